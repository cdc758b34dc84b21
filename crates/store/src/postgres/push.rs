//! Push configurations on PostgreSQL: reading, claiming, settling. What it means is in [`crate::push`]. Making and removing them is
//! the writer's, since their task counts them.
//!
//! **Nobody waits in a circle.** Claims pass over locked rows. Settling and replaying lock one row and nothing after it.
//! The writer locks configurations last of all, and only those of tasks that it has locked before.
//!
//! **Nothing is overlooked.** The writer raises `owed` of a row whatever its lease, so it and whoever settles have to wait
//! for each other: either what was logged is seen by the settlement, or the row is found at rest and made due.
//!
//! None of these decides anything that a lost answer could spoil: said twice, a claim leaves leases that run out, and a settlement
//! says the same or is refused.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    fetch::{task_id, uuid},
    pool::Pool,
};
use crate::{
    Claimed, Error, LeaseTime, Next, PushClaim, PushConfig, PushFilter, PushLease, PushState, Replay, Result,
    Settlement, TaskId, TenantId, codec, lease,
    push::{PushColumns, VISITS, Visited},
};

/// The pairs of tenant and receiver after `$1, $2` and up to `$3, $4`, and whether they have something due.
const LINE: &str = "WITH RECURSIVE line (tenant_id, receiver, due_at) AS (
       (SELECT tenant_id, receiver, due_at FROM push_configs
        WHERE (tenant_id, receiver) > ($1::bigint, $2::text) AND due_at IS NOT NULL
        ORDER BY tenant_id, receiver, due_at LIMIT 1)
       UNION ALL
       SELECT h.tenant_id, h.receiver, h.due_at FROM line l CROSS JOIN LATERAL (
         SELECT c.tenant_id, c.receiver, c.due_at FROM push_configs c
         WHERE (c.tenant_id, c.receiver) > (l.tenant_id, l.receiver) AND c.due_at IS NOT NULL
         ORDER BY c.tenant_id, c.receiver, c.due_at LIMIT 1) h)
     SELECT tenant_id, receiver, due_at <= lease_now() FROM line
     WHERE $3::bigint IS NULL OR (tenant_id, receiver) <= ($3, $4::text) LIMIT $5";

/// The columns that [`read`] reads, of `c`.
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let columns = PushColumns::NAMES.split(", ").map(|name| match name {
        "dialect" | "state" | "part" | "attempt" => format!("c.{name}::bigint"),
        name => format!("c.{name}"),
    });
    format!("c.task, c.generation, {}", columns.collect::<Vec<_>>().join(", "))
});

/// Where the record stands among them.
const RECORD: usize = 17;

/// How often a replay looks again that others have overtaken.
const TRIES: usize = 20;

fn read(row: &Row) -> Result<(PushConfig, u64)> {
    let columns = PushColumns {
        tenant: row.try_get(2)?,
        id: row.try_get(3)?,
        url: row.try_get(4)?,
        receiver: row.try_get(5)?,
        scheme: row.try_get(6)?,
        sealed: row.try_get(7)?,
        dialect: row.try_get(8)?,
        chunks: row.try_get(9)?,
        created_at: row.try_get(10)?,
        seq: row.try_get(11)?,
        part: row.try_get(12)?,
        owed: row.try_get(13)?,
        state: row.try_get(14)?,
        attempt: row.try_get(15)?,
        due_at: row.try_get(16)?,
        record: row.try_get(RECORD)?,
    };
    Ok((columns.config(task_id(row.try_get(0)?)), codec::unsigned(row.try_get(1)?)))
}

pub(super) async fn find(pool: &Pool, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<PushConfig>> {
    Ok(load(pool, tenant, task, id).await?.as_ref().map(read).transpose()?.map(|(config, _)| config))
}

async fn load(pool: &Pool, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<Row>> {
    let sql = format!(
        "SELECT {} FROM push_configs c JOIN a2a_tasks t ON t.task_id = c.task
         WHERE c.task = $1 AND c.tenant_id = $2 AND c.config_id = $3 AND t.hidden = 0",
        *COLUMNS
    );
    pool.query_opt(&sql, &[&uuid(task), &tenant.0, &id]).await
}

pub(super) async fn list(pool: &Pool, tenant: TenantId, filter: &PushFilter) -> Result<Vec<PushConfig>> {
    let troubled = if filter.troubled { " AND (c.letters > 0 OR c.state <> 0)" } else { "" };
    let sql = format!(
        "SELECT {} FROM push_configs c JOIN a2a_tasks t ON t.task_id = c.task AND t.hidden = 0
         WHERE c.tenant_id = $1 AND ($2::uuid IS NULL OR c.task = $2)
           AND ($3::uuid IS NULL OR (c.task, c.config_id) > ($3, $4)){troubled}
         ORDER BY c.task, c.config_id LIMIT $5",
        *COLUMNS
    );
    let (after, after_id) = filter.after.as_ref().map_or((None, ""), |(task, id)| (Some(uuid(*task)), id.as_str()));
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let rows = pool.query(&sql, &[&tenant.0, &filter.task.map(uuid), &after, &after_id, &limit]).await?;
    rows.iter().map(|row| Ok(read(row)?.0)).collect()
}

pub(super) async fn next(pool: &Pool) -> Result<(LeaseTime, Option<LeaseTime>)> {
    let sql = "SELECT lease_now(), (SELECT min(due_at) FROM push_configs WHERE due_at IS NOT NULL)";
    let row = pool.query_one(sql, &[]).await?;
    Ok((LeaseTime(row.try_get(0)?), row.try_get::<_, Option<i64>>(1)?.map(LeaseTime)))
}

/// Goes on from the pair that was visited last, to the end and then from the begin to there.
async fn visit(readers: &Pool, after: Option<&(TenantId, String)>) -> Result<Visited> {
    let (mut due, mut last, mut visited) = (Vec::new(), None, 0);
    let begin = (i64::MIN, String::new());
    let start = after.map(|(tenant, receiver)| (tenant.0, receiver.clone()));
    let mut ways = vec![(start.clone().unwrap_or_else(|| begin.clone()), None)];
    ways.extend(start.map(|start| (begin, Some(start))));
    for ((tenant, receiver), until) in ways {
        let limit = i64::try_from(VISITS - visited).unwrap_or(0);
        let (until_tenant, until_receiver) = until.unzip();
        let pairs = readers.query(LINE, &[&tenant, &receiver, &until_tenant, &until_receiver, &limit]).await?;
        visited += pairs.len();
        for row in &pairs {
            let pair = (TenantId(row.try_get(0)?), row.try_get::<_, String>(1)?);
            if row.try_get(2)? {
                due.push(pair.clone());
            }
            last = Some(pair);
        }
        if visited == VISITS {
            return Ok(Visited { due, last, is_round: false });
        }
    }
    Ok(Visited { due, last: None, is_round: true })
}

pub(super) async fn claim(readers: &Pool, writers: &Pool, claim: &PushClaim) -> Result<Claimed> {
    let Visited { due, last, is_round } = visit(readers, claim.after.as_ref()).await?;
    let shares = claim.shares(due);
    if shares.is_empty() {
        return Ok(Claimed { leases: Vec::new(), after: last, is_round });
    }
    let tenants: Vec<i64> = shares.iter().map(|(tenant, ..)| tenant.0).collect();
    let receivers: Vec<&str> = shares.iter().map(|(_, receiver, _)| receiver.as_str()).collect();
    let counts: Vec<i64> = shares.iter().map(|(.., share)| i64::try_from(*share).unwrap_or(i64::MAX)).collect();
    let sql = format!(
        "WITH due AS (
           SELECT d.task, d.config_id FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS w (tenant_id, receiver, share)
           CROSS JOIN LATERAL (
             SELECT c.task, c.config_id FROM push_configs c
             WHERE c.tenant_id = w.tenant_id AND c.receiver = w.receiver AND c.due_at <= lease_now()
             ORDER BY c.due_at LIMIT w.share FOR UPDATE SKIP LOCKED) d)
         UPDATE push_configs c SET owner = $4, due_at = lease_clock() + $5, generation = c.generation + 1
         FROM due WHERE c.task = due.task AND c.config_id = due.config_id
         RETURNING {}",
        *COLUMNS
    );
    let (holder, lasts) = (claim.term.holder.as_str(), lease::millis(claim.term.lasts));
    let mut leases = Vec::new();
    for row in writers.query(&sql, &[&tenants, &receivers, &counts, &holder, &lasts]).await? {
        match read(&row) {
            Ok((config, generation)) => leases.push(PushLease { config, term: claim.term.clone(), generation }),
            Err(error) => tracing::error!(%error, "a push configuration that is due cannot be read"),
        }
    }
    let after = last.or_else(|| shares.last().map(|(tenant, receiver, _)| (*tenant, receiver.clone())));
    Ok(Claimed { leases, after, is_round })
}

pub(super) async fn settle(writers: &Pool, lease: &PushLease, settlement: &Settlement) -> Result<()> {
    let Settlement { told, state, attempt, record, next } = settlement;
    let (keeps, wait, when_owed) = match next {
        Next::Keep => (true, Some(lease::millis(lease.term.lasts)), false),
        Next::After(wait) => (false, Some(lease::millis(*wait)), false),
        Next::Idle => (false, Some(0), true),
        Next::Rest => (false, None, false),
    };
    let sql = "UPDATE push_configs
         SET seq = $4, part = $5::bigint, state = $6::bigint, attempt = $7::bigint, letters = $8::bigint, record = $9,
             owner = CASE WHEN $10 THEN owner END,
             due_at = CASE WHEN NOT $12 OR owed > $4 OR $5::bigint > 0 THEN lease_clock() + $11 END
         WHERE task = $1 AND tenant_id = $2 AND config_id = $3 AND generation = $13 AND owner = $14
         RETURNING task";
    let config = &lease.config;
    let row = writers
        .query_opt(
            sql,
            &[
                &uuid(config.task),
                &config.tenant.0,
                &config.config.id,
                &codec::signed(told.seq),
                &i64::from(told.part),
                &(*state as i64),
                &i64::from(*attempt),
                &i64::try_from(record.letters.len()).unwrap_or(i64::MAX),
                &record.encode()?,
                &keeps,
                &wait,
                &when_owed,
                &codec::signed(lease.generation),
                &lease.term.holder.as_str(),
            ],
        )
        .await?;
    if row.is_none() { Err(Error::LeaseLost) } else { Ok(()) }
}

/// What was read may have changed by the time that it is written: it counts only if it has not.
pub(super) async fn replay(writers: &Pool, tenant: TenantId, task: TaskId, id: &str, which: Replay) -> Result<usize> {
    let sql = "UPDATE push_configs
         SET record = $4, state = 0, attempt = 0, generation = generation + 1,
             due_at = CASE WHEN owner IS NULL OR due_at IS NULL THEN lease_clock() ELSE due_at END
         WHERE task = $1 AND config_id = $2 AND generation = $3 AND record = $5 RETURNING task";
    for _ in 0..TRIES {
        let row = load(writers, tenant, task, id).await?.ok_or(Error::NotFound)?;
        let ((mut config, generation), before) = (read(&row)?, row.try_get::<_, String>(RECORD)?);
        let replayed = config.replay(which);
        if replayed == 0 && config.state == PushState::Active && config.attempt == 0 {
            return Ok(0);
        }
        let (generation, record) = (codec::signed(generation), config.record.encode()?);
        if writers.query_opt(sql, &[&uuid(task), &id, &generation, &record, &before]).await?.is_some() {
            return Ok(replayed);
        }
    }
    Err(Error::Unavailable("the push configuration is being changed by others".into()))
}
