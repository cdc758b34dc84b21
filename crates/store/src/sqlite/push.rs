//! Push configurations on SQLite: reading, claiming, settling. What it means is in [`crate::push`].

use std::sync::LazyLock;

use a2a::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::writer::Batch;
use crate::{
    Claimed, Error, LeaseTime, NewPush, Next, PushClaim, PushConfig, PushFilter, PushLease, PushState, Replay, Result,
    Settlement, TaskId, TenantId, codec,
    ops::{Owes, TaskRow},
    push::{PushColumns, VISITS, Visited, dialect_code},
};

/// The next pair of tenant and receiver that has anything due or held, and the earliest time of it.
const HEAD: &str = "SELECT tenant_id, receiver, due_at FROM push_configs
     WHERE (tenant_id, receiver) > (?1, ?2) AND due_at IS NOT NULL ORDER BY tenant_id, receiver, due_at LIMIT 1";

/// The begin of every statement whose rows [`read`] reads.
static SELECT: LazyLock<String> = LazyLock::new(|| {
    let columns = PushColumns::NAMES.split(", ").map(|name| format!("c.{name}")).collect::<Vec<_>>().join(", ");
    format!("SELECT t.task_id, c.generation, {columns} FROM push_configs c JOIN a2a_tasks t ON t.pk = c.task")
});

fn read(row: &Row<'_>) -> Result<(PushConfig, u64)> {
    let task = codec::parse_task(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
    let generation = codec::unsigned(row.get(1)?);
    let columns = PushColumns {
        tenant: row.get(2)?,
        id: row.get(3)?,
        url: row.get(4)?,
        receiver: row.get(5)?,
        scheme: row.get(6)?,
        sealed: row.get(7)?,
        dialect: row.get(8)?,
        chunks: row.get(9)?,
        created_at: row.get(10)?,
        seq: row.get(11)?,
        part: row.get(12)?,
        owed: row.get(13)?,
        state: row.get(14)?,
        attempt: row.get(15)?,
        due_at: row.get(16)?,
        record: row.get(17)?,
    };
    Ok((columns.config(task), generation))
}

/// The ids of a task's configurations, with the bytes that each takes.
pub(super) fn of_task(conn: &Connection, pk: i64) -> Result<Vec<(String, i64)>> {
    let mut all = conn.prepare_cached("SELECT config_id, bytes FROM push_configs WHERE task = ?1")?;
    let all = all.query_map([pk], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(all.collect::<Result<_, _>>()?)
}

/// Makes or replaces one. What is told and where is the same for one whose secrets alone are new, and nobody is disturbed. Otherwise
/// it is another generation, which a holder finds out when it settles; its lease keeps its time.
pub(super) fn put(batch: &Batch<'_>, task: &TaskRow, new: &NewPush, from: u64, at: Timestamp) -> Result<()> {
    batch
        .conn
        .prepare_cached(
            "INSERT INTO push_configs AS c (task, config_id, tenant_id, url, receiver, scheme, sealed, dialect, chunks,
                                            created_at, seq, owed, bytes, generation)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?13, ?14)
             ON CONFLICT (task, config_id) DO UPDATE
             SET sealed = excluded.sealed, bytes = excluded.bytes, url = excluded.url, receiver = excluded.receiver,
                 scheme = excluded.scheme, dialect = excluded.dialect, chunks = excluded.chunks,
                 created_at = CASE WHEN same THEN c.created_at ELSE excluded.created_at END,
                 part = CASE WHEN same THEN c.part ELSE 0 END,
                 attempt = CASE WHEN same THEN c.attempt ELSE 0 END,
                 state = 0,
                 generation = CASE WHEN same THEN c.generation ELSE c.generation + 1 END,
                 due_at = CASE WHEN c.owner IS NOT NULL OR (same AND c.due_at IS NOT NULL) THEN c.due_at
                               WHEN c.due_at IS NOT NULL OR c.owed > c.seq OR c.part > 0 OR c.letters > 0 THEN ?12 END"
                .replace(
                    "same",
                    "(c.url, c.scheme, c.dialect, c.chunks, c.state)
                       IS (excluded.url, excluded.scheme, excluded.dialect, excluded.chunks, 0)",
                )
                .as_str(),
        )?
        .execute(params![
            task.pk,
            new.id,
            task.tenant.0,
            new.url,
            new.receiver,
            new.scheme,
            new.sealed,
            dialect_code(new.dialect),
            new.chunks,
            at.as_millis(),
            codec::signed(from),
            batch.now.0,
            i64::try_from(new.size()).unwrap_or(i64::MAX),
            NewPush::first_generation(),
        ])?;
    Ok(())
}

pub(super) fn remove(batch: &Batch<'_>, task: &TaskRow, id: &str) -> Result<()> {
    let mut remove = batch.conn.prepare_cached("DELETE FROM push_configs WHERE task = ?1 AND config_id = ?2")?;
    remove.execute(params![task.pk, id])?;
    Ok(())
}

/// Whoever tells a task's events has something to tell.
pub(super) fn owe(batch: &Batch<'_>, task: &TaskRow, owes: Owes) -> Result<()> {
    batch
        .conn
        .prepare_cached(
            "UPDATE push_configs
             SET owed = ?2, due_at = CASE WHEN due_at IS NULL AND state = 0 THEN ?3 ELSE due_at END
             WHERE task = ?1 AND (chunks OR ?4)",
        )?
        .execute(params![task.pk, codec::signed(task.seq), batch.now.0, owes == Owes::All])?;
    Ok(())
}

pub(super) fn find(conn: &Connection, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<PushConfig>> {
    Ok(load(conn, tenant, task, id)?.map(|(config, _)| config))
}

fn load(conn: &Connection, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<(PushConfig, u64)>> {
    let sql = format!("{} WHERE t.task_id = ?1 AND c.tenant_id = ?2 AND c.config_id = ?3 AND t.hidden = 0", *SELECT);
    let mut load = conn.prepare_cached(&sql)?;
    let mut rows = load.query(params![task.to_string(), tenant.0, id])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn list(conn: &Connection, tenant: TenantId, filter: &PushFilter) -> Result<Vec<PushConfig>> {
    let pk = |task: TaskId| {
        conn.prepare_cached("SELECT pk FROM a2a_tasks WHERE task_id = ?1 AND tenant_id = ?2")?
            .query_row(params![task.to_string(), tenant.0], |row| row.get::<_, i64>(0))
            .optional()
    };
    let task = filter.task.map(|task| Ok::<_, Error>(pk(task)?.unwrap_or(-1))).transpose()?;
    let (after, after_id) = match &filter.after {
        Some((task, id)) => (pk(*task)?.unwrap_or(-1), id.as_str()),
        None => (-1, ""),
    };
    let troubled = if filter.troubled { " AND (c.letters > 0 OR c.state <> 0)" } else { "" };
    let sql = format!(
        "{} WHERE c.tenant_id = ?1 AND t.hidden = 0 AND (c.task, c.config_id) > (?2, ?3) AND (?4 IS NULL OR c.task = ?4){troubled}
         ORDER BY c.task, c.config_id LIMIT ?5",
        *SELECT
    );
    let mut list = conn.prepare_cached(&sql)?;
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let mut rows = list.query(params![tenant.0, after, after_id, task, limit])?;
    let mut configs = Vec::new();
    while let Some(row) = rows.next()? {
        configs.push(read(row)?.0);
    }
    Ok(configs)
}

pub(super) fn next(conn: &Connection) -> Result<Option<LeaseTime>> {
    let mut next = conn.prepare_cached("SELECT min(due_at) FROM push_configs WHERE due_at IS NOT NULL")?;
    Ok(next.query_row((), |row| row.get::<_, Option<i64>>(0))?.map(LeaseTime))
}

/// Goes on from the pair that was visited last. Gives those pairs that have something due, the last one that was visited, and
/// whether these were all there are.
fn visit(batch: &Batch<'_>, after: Option<&(TenantId, String)>) -> Result<Visited> {
    let first = || (i64::MIN, String::new());
    let start = after.map_or_else(first, |(tenant, receiver)| (tenant.0, receiver.clone()));
    let (mut at, mut wrapped) = (start.clone(), after.is_none());
    let mut due = Vec::new();
    let mut head = batch.conn.prepare_cached(HEAD)?;
    for _ in 0..VISITS {
        let next: Option<(i64, String, i64)> =
            head.query_row(params![at.0, at.1], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
        match next {
            Some((tenant, receiver, _)) if wrapped && after.is_some() && (tenant, &receiver) > (start.0, &start.1) => {
                return Ok(Visited { due, last: None, is_round: true });
            }
            Some((tenant, receiver, due_at)) => {
                if due_at <= batch.now.0 {
                    due.push((TenantId(tenant), receiver.clone()));
                }
                at = (tenant, receiver);
            }
            None if wrapped => return Ok(Visited { due, last: None, is_round: true }),
            None => (at, wrapped) = (first(), true),
        }
    }
    // Where it stands may be before the first pair.
    let last = (at.0 > i64::MIN).then_some((TenantId(at.0), at.1));
    Ok(Visited { due, last, is_round: false })
}

pub(super) fn claim(batch: &Batch<'_>, claim: &PushClaim) -> Result<Claimed> {
    let Visited { due, last, is_round } = visit(batch, claim.after.as_ref())?;
    let sql =
        format!("{} WHERE c.tenant_id = ?1 AND c.receiver = ?2 AND c.due_at <= ?3 ORDER BY c.due_at LIMIT ?4", *SELECT);
    let mut oldest = batch.conn.prepare_cached(&sql)?;
    let mut take = batch.conn.prepare_cached(
        "UPDATE push_configs SET owner = ?3, due_at = ?4, generation = generation + 1
         WHERE task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1) AND config_id = ?2",
    )?;
    let until = batch.now.after(claim.term.lasts).0;
    let mut leases = Vec::new();
    let shares = claim.shares(due);
    let after = last.or_else(|| shares.last().map(|(tenant, receiver, _)| (*tenant, receiver.clone())));
    for (tenant, receiver, share) in shares {
        let mut found = Vec::new();
        let share = i64::try_from(share).unwrap_or(i64::MAX);
        let mut rows = oldest.query(params![tenant.0, receiver, batch.now.0, share])?;
        while let Some(row) = rows.next()? {
            match read(row) {
                Ok(row) => found.push(row),
                Err(error) => tracing::error!(%error, "a push configuration that is due cannot be read"),
            }
        }
        for (config, generation) in found {
            take.execute(params![config.task.to_string(), config.config.id, claim.term.holder.as_str(), until])?;
            leases.push(PushLease { config, term: claim.term.clone(), generation: generation + 1 });
        }
    }
    Ok(Claimed { leases, after, is_round })
}

pub(super) fn settle(batch: &Batch<'_>, lease: &PushLease, settlement: &Settlement) -> Result<()> {
    let Settlement { told, state, attempt, record, next } = settlement;
    let (keeps, due, when_owed) = match next {
        Next::Keep => (true, Some(batch.now.after(lease.term.lasts).0), false),
        Next::After(wait) => (false, Some(batch.now.after(*wait).0), false),
        Next::Idle => (false, Some(batch.now.0), true),
        Next::Rest => (false, None, false),
    };
    let settled = batch
        .conn
        .prepare_cached(
            "UPDATE push_configs
             SET seq = ?3, part = ?4, state = ?5, attempt = ?6, letters = ?7, record = ?8,
                 owner = CASE WHEN ?9 THEN owner END,
                 due_at = CASE WHEN NOT ?11 OR owed > ?3 OR ?4 > 0 THEN ?10 END
             WHERE task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1) AND config_id = ?2 AND generation = ?12
               AND owner = ?13 AND tenant_id = ?14",
        )?
        .execute(params![
            lease.config.task.to_string(),
            lease.config.config.id,
            codec::signed(told.seq),
            told.part,
            *state as i64,
            attempt,
            i64::try_from(record.letters.len()).unwrap_or(i64::MAX),
            record.encode()?,
            keeps,
            due,
            when_owed,
            codec::signed(lease.generation),
            lease.term.holder.as_str(),
            lease.config.tenant.0,
        ])?;
    if settled == 0 { Err(Error::LeaseLost) } else { Ok(()) }
}

pub(super) fn replay(batch: &Batch<'_>, tenant: TenantId, task: TaskId, id: &str, which: Replay) -> Result<usize> {
    let (mut config, generation) = load(batch.conn, tenant, task, id)?.ok_or(Error::NotFound)?;
    let replayed = config.replay(which);
    if replayed == 0 && config.state == PushState::Active && config.attempt == 0 {
        return Ok(0);
    }
    batch
        .conn
        .prepare_cached(
            "UPDATE push_configs
             SET record = ?4, state = 0, attempt = 0, generation = generation + 1,
                 due_at = CASE WHEN owner IS NULL OR due_at IS NULL THEN ?5 ELSE due_at END
             WHERE task = (SELECT pk FROM a2a_tasks WHERE task_id = ?1) AND config_id = ?2 AND generation = ?3",
        )?
        .execute(params![task.to_string(), id, codec::signed(generation), config.record.encode()?, batch.now.0])?;
    Ok(replayed)
}

/// What dead instances held is due at once: they tell nobody any more.
pub(super) fn reclaim(batch: &Batch<'_>, dead: &str) -> Result<usize> {
    let mut reclaim = batch.conn.prepare_cached(
        "UPDATE push_configs SET due_at = min(due_at, ?1), owner = NULL, generation = generation + 1
         WHERE due_at IS NOT NULL AND owner = ?2",
    )?;
    Ok(reclaim.execute(params![batch.now.0, dead])?)
}
