//! The queue on PostgreSQL: how it stands. Claiming is the writer's (see [`super::fetch`]). What it means is in [`crate::queue`].

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    fetch::{read_row, uuid},
    pool::Pool,
};
use crate::{
    AgentId, AgentQueue, Error, Lease, LeaseTime, Letters, QueueEntry, Result, TaskId, TenantId, Wish, codec,
    lease::millis,
    ops::columns,
    queue::{Counted, Lengths, sort_counts},
};

/// The columns of a row, which come first, where `read_row` looks for them.
fn columns() -> String {
    let column = |(name, sql): &columns::Column| format!("{}::{sql}", columns::bare(name, &format!("t.{name}")));
    format!("SELECT t.task_id, {}", columns::list(columns::all(), column))
}

/// What time it is, with each lease that has run out by then, or without any.
static LAPSED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}, n.now FROM (SELECT lease_now() AS now) n LEFT JOIN LATERAL (
           SELECT * FROM a2a_tasks t WHERE t.queued AND t.owner IS NOT NULL AND t.due_at <= n.now AND t.due_at > $3
             AND ($1::text IS NULL OR t.agent_id = $1) LIMIT $2) t ON true",
        columns()
    )
});

/// Rows are locked in the order of every writer.
const PROLONG: &str = "WITH held AS (
       SELECT t.task_id FROM a2a_tasks t WHERE t.queued AND t.owner IS NOT NULL
         AND t.due_at <= lease_now() AND t.due_at > lease_now() - $1::bigint AND NOT t.overdue
       ORDER BY t.task_id FOR UPDATE OF t)
     UPDATE a2a_tasks t SET due_at = t.due_at + $1::bigint, overdue = true FROM held
     WHERE t.task_id = held.task_id RETURNING t.task_id";

/// When something of the queue of each agent `$1` and tenant `$2` (any if there is none) is due next.
const NEXT: &str = "SELECT lease_now(), (SELECT min(least.due_at) FROM generate_series(0, 9) AS p (level)
       CROSS JOIN LATERAL (
         SELECT t.tenant_id FROM (
           WITH RECURSIVE line (tenant_id) AS (
             (SELECT min(t.tenant_id) FROM a2a_tasks t WHERE t.agent_id = w.agent AND t.due_at IS NOT NULL AND t.queued)
             UNION ALL
             SELECT (SELECT min(t.tenant_id) FROM a2a_tasks t
                WHERE t.agent_id = w.agent AND t.tenant_id > l.tenant_id AND t.due_at IS NOT NULL AND t.queued)
             FROM line l WHERE l.tenant_id IS NOT NULL AND w.tenant_id IS NULL)
           SELECT tenant_id FROM line WHERE w.tenant_id IS NULL AND tenant_id IS NOT NULL
           UNION ALL SELECT w.tenant_id WHERE w.tenant_id IS NOT NULL) t) l
       CROSS JOIN LATERAL (
         SELECT t.due_at FROM a2a_tasks t WHERE t.agent_id = w.agent AND t.tenant_id = l.tenant_id AND t.queued
           AND t.priority = p.level AND t.due_at IS NOT NULL ORDER BY t.due_at LIMIT 1) least)
     FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS w (agent, tenant_id, place) ORDER BY w.place";

/// An entry: its columns, what time it is, and how long its first message and all of them are, which is known without reading them.
fn entry_of(condition: &str) -> String {
    let columns = columns();
    format!(
        "{columns}, lease_now(),
           (SELECT octet_length(m.body)::bigint FROM messages m WHERE m.task = t.task_id ORDER BY m.pos LIMIT 1),
           (SELECT sum(octet_length(m.body))::bigint FROM messages m WHERE m.task = t.task_id)
         FROM a2a_tasks t WHERE {condition}"
    )
}

const FIRST: &str = "SELECT (SELECT m.body FROM messages m WHERE m.task = t.task_id ORDER BY m.pos LIMIT 1)
     FROM a2a_tasks t WHERE t.task_id = $1 AND t.tenant_id = $2 AND t.hidden = 0";

static ENTRY: LazyLock<String> =
    LazyLock::new(|| entry_of("t.task_id = $1 AND ($2::bigint IS NULL OR t.tenant_id = $2) AND t.hidden = 0"));

static LETTERS: LazyLock<String> = LazyLock::new(|| {
    entry_of(
        "t.tenant_id = $1 AND t.dead = 1 AND ($2::bigint IS NULL OR (t.status_at, t.task_id) > ($2, $3::uuid))
           AND ($4::text IS NULL OR t.agent_id = $4)
         ORDER BY t.status_at, t.task_id LIMIT $5",
    )
});

pub(super) async fn lapsed(
    readers: &Pool,
    agent: Option<&AgentId>,
    since: LeaseTime,
    limit: usize,
) -> Result<(LeaseTime, Vec<Lease>)> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut now = LeaseTime::default();
    let mut leases = Vec::new();
    for row in readers.query(&LAPSED, &[&agent.map(AgentId::as_str), &limit, &since.0]).await? {
        now = LeaseTime(row.try_get(row.len() - 1)?);
        if row.try_get::<_, Option<Uuid>>(0)?.is_none() {
            continue;
        }
        match read_row(&row) {
            Ok(row) => leases.extend(row.lease()),
            Err(error) => tracing::error!(%error, "a lease that ran out cannot be read"),
        }
    }
    Ok((now, leases))
}

pub(super) async fn prolong_lapsed(writers: &Pool, step: Duration) -> Result<usize> {
    Ok(writers.query(PROLONG, &[&millis(step)]).await?.len())
}

pub(super) async fn next(readers: &Pool, wishes: &[Wish]) -> Result<(LeaseTime, Vec<Option<LeaseTime>>)> {
    let agents: Vec<&str> = wishes.iter().map(|wish| wish.agent.as_str()).collect();
    let tenants: Vec<Option<i64>> = wishes.iter().map(|wish| wish.tenant.map(|tenant| tenant.0)).collect();
    let mut now = LeaseTime::default();
    let mut times = Vec::with_capacity(wishes.len());
    for row in readers.query(NEXT, &[&agents, &tenants]).await? {
        now = LeaseTime(row.try_get(0)?);
        times.push(row.try_get::<_, Option<i64>>(1)?.map(LeaseTime));
    }
    Ok((now, times))
}

fn read(row: &Row) -> Result<QueueEntry> {
    let now = row.len() - 3;
    let length = |at| row.try_get::<_, Option<i64>>(at).map(|length| codec::unsigned(length.unwrap_or_default()));
    let lengths = Lengths { first: length(now + 1)?, all: length(now + 2)? };
    read_row(row)?.into_entry(lengths, LeaseTime(row.try_get(now)?))
}

pub(super) async fn first_message(readers: &Pool, tenant: TenantId, task: TaskId) -> Result<Bytes> {
    let row = readers.query_opt(FIRST, &[&uuid(task), &tenant.0]).await?.ok_or(Error::NotFound)?;
    Ok(row.try_get::<_, Option<Vec<u8>>>(0)?.unwrap_or_default().into())
}

pub(super) async fn entry(readers: &Pool, tenant: Option<TenantId>, task: TaskId) -> Result<QueueEntry> {
    let row = readers.query_opt(&ENTRY, &[&uuid(task), &tenant.map(|tenant| tenant.0)]).await?;
    read(&row.ok_or(Error::NotFound)?)
}

pub(super) async fn dead_letters(readers: &Pool, tenant: TenantId, letters: &Letters) -> Result<Vec<QueueEntry>> {
    let (at, task) = match &letters.after {
        Some((at, task)) => (Some(at.as_millis()), Some(uuid(*task))),
        None => (None, None),
    };
    let agent = letters.agent.as_ref().map(AgentId::as_str);
    let limit = i64::try_from(letters.limit).unwrap_or(i64::MAX);
    let rows = readers.query(&LETTERS, &[&tenant.0, &at, &task, &agent, &limit]).await?;
    rows.iter().map(read).collect()
}

pub(super) async fn agent_queues(readers: &Pool, tenant: TenantId) -> Result<Vec<AgentQueue>> {
    let sql = "SELECT c.agent_id, c.state, c.n, CASE WHEN c.state = 'submitted' THEN least(
             (SELECT min(t.status_at) FROM a2a_tasks t WHERE t.agent_id = c.agent_id AND t.tenant_id = $1
                AND t.due_at IS NOT NULL AND NOT t.queued AND t.state = 'submitted' AND t.hidden = 0),
             (SELECT min(t.status_at) FROM a2a_tasks t WHERE t.agent_id = c.agent_id AND t.tenant_id = $1
                AND t.due_at IS NOT NULL AND t.queued AND t.state = 'submitted')) END
         FROM (SELECT agent_id, state, sum(n)::bigint AS n FROM task_counts WHERE tenant_id = $1
               GROUP BY agent_id, state) c WHERE c.n > 0
       UNION ALL
       SELECT agent_id, NULL, count(*), min(status_at) FROM a2a_tasks WHERE tenant_id = $1 AND dead = 1 GROUP BY agent_id";
    let mut all = Vec::new();
    for row in readers.query(sql, &[&tenant.0]).await? {
        let state: Option<&str> = row.try_get(1)?;
        all.push(Counted {
            agent: codec::parse_agent(row.try_get(0)?)?,
            state: state.map(codec::parse_state).transpose()?,
            n: codec::unsigned(row.try_get(2)?),
            since: row.try_get::<_, Option<i64>>(3)?.map(codec::time),
        });
    }
    Ok(sort_counts(all))
}
