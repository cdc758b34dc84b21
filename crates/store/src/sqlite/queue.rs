//! The queue on SQLite: what waits of it, and how it stands. What it means is in [`crate::queue`].

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::{lease, row, tx::positions, writer::Batch};
use crate::{
    AgentId, AgentQueue, Claim, Error, Lease, LeaseTime, Letters, QueueEntry, Result, Room, TaskId, TenantId, Wish,
    codec,
    lease::{fit, millis, one_by_one},
    ops::TaskRow,
    queue::{Counted, Lengths, sort_counts},
};

/// The next tenant that has anything in an agent's queue.
const NEXT_TENANT: &str = "SELECT tenant_id FROM a2a_tasks
     WHERE agent_id = ?1 AND tenant_id > ?2 AND due_at IS NOT NULL AND queued = 1 ORDER BY tenant_id LIMIT 1";

/// The next lower priority of a tenant's entries, and the earliest time of those.
const NEXT_LEVEL: &str = "SELECT priority, due_at FROM a2a_tasks
     WHERE agent_id = ?1 AND tenant_id = ?2 AND due_at IS NOT NULL AND queued = 1 AND priority < ?3
     ORDER BY priority DESC, due_at LIMIT 1";

static DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} WHERE agent_id = ?1 AND tenant_id = ?2 AND priority = ?3 AND due_at <= ?4 AND queued = 1 AND owner IS NULL
         ORDER BY due_at LIMIT ?5",
        *row::SELECT
    )
});

static LAPSED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} WHERE queued = 1 AND owner IS NOT NULL AND due_at <= ?1 AND due_at > ?4 AND (?2 IS NULL OR agent_id = ?2) LIMIT ?3",
        *row::SELECT_BARE
    )
});

static ENTRY: LazyLock<String> = LazyLock::new(|| {
    format!("{} WHERE task_id = ?1 AND (?2 IS NULL OR tenant_id = ?2) AND hidden = 0", *row::SELECT_BARE)
});

static LETTERS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{} WHERE tenant_id = ?1 AND dead = 1 AND (status_at, task_id) > (?2, ?3) AND (?4 IS NULL OR agent_id = ?4)
         ORDER BY status_at, task_id LIMIT ?5",
        *row::SELECT_BARE
    )
});

const FIRST: &str = "SELECT body FROM messages WHERE pos >= ?1 AND pos < ?2 ORDER BY pos LIMIT 1";

/// The length of what is stored is known without reading it.
const LENGTHS: &str = "SELECT (SELECT length(body) FROM messages WHERE pos >= ?1 AND pos < ?2 ORDER BY pos LIMIT 1),
       (SELECT sum(length(body)) FROM messages WHERE pos >= ?1 AND pos < ?2)";
const INBOX_LENGTH: &str = "SELECT coalesce(sum(length(body)), 0) FROM messages
     WHERE pos >= ?1 AND pos < ?2 AND status IN ('pending', 'in_progress')";

/// How many entries of an agent are held.
const HELD: &str = "SELECT count(*) FROM a2a_tasks
     WHERE agent_id = ?1 AND queued = 1 AND owner IS NOT NULL AND due_at IS NOT NULL";

/// What waits of an agent's queue, as much as there is room for: the higher first, then the older, shared among tenants.
pub(super) fn due(batch: &Batch<'_>, claim: &Claim, room: &Room, only: Option<TenantId>) -> Result<Vec<TaskRow>> {
    let mut slots = room.slots;
    if let Some(most) = room.most_held {
        let held: i64 = batch.conn.prepare_cached(HELD)?.query_row([room.agent.as_str()], |row| row.get(0))?;
        slots = slots.min(most.saturating_sub(usize::try_from(held).unwrap_or(0)));
    }
    if slots == 0 {
        return Ok(Vec::new());
    }
    let tenants = match only {
        Some(tenant) => vec![tenant],
        None => crate::lease::in_line(tenants(batch.conn, &room.agent)?, room.after),
    };
    let mut lines = Vec::new();
    for tenant in tenants {
        let rows = waiting(batch, claim, &room.agent, tenant, slots)?;
        if !rows.is_empty() {
            lines.push(rows);
        }
        // Nobody gets a second one before each of so many had a first.
        if lines.len() >= slots {
            break;
        }
    }
    let mut due = one_by_one(lines);
    due.truncate(slots);
    let mut length = batch.conn.prepare_cached(INBOX_LENGTH)?;
    fit(due, room.most_bytes, |row| Ok(codec::unsigned(length.query_row(positions(row.pk), |row| row.get(0))?)))
}

fn waiting(batch: &Batch<'_>, claim: &Claim, agent: &AgentId, tenant: TenantId, slots: usize) -> Result<Vec<TaskRow>> {
    let mut found = Vec::new();
    let mut unreadable = Vec::new();
    for (level, _) in levels(batch.conn, agent, tenant)? {
        let mut due = batch.conn.prepare_cached(&DUE)?;
        let left = i64::try_from(slots - found.len()).unwrap_or(i64::MAX);
        let mut rows = due.query(params![agent.as_str(), tenant.0, level, batch.now.0, left])?;
        while let Some(next) = rows.next()? {
            match row::read(next) {
                Ok(row) if claim.may_have(row.owner.as_deref(), row.task) => found.push(row),
                Ok(_) => {}
                Err(error) => {
                    let pk: i64 = next.get(0)?;
                    tracing::error!(task.pk = pk, %error, "a due task cannot be read and steps aside");
                    unreadable.push(pk);
                }
            }
        }
        if found.len() >= slots {
            break;
        }
    }
    lease::set_aside(batch, unreadable)?;
    Ok(found)
}

fn tenants(conn: &Connection, agent: &AgentId) -> Result<Vec<TenantId>> {
    let mut next = conn.prepare_cached(NEXT_TENANT)?;
    let mut tenants = Vec::new();
    let mut after = i64::MIN;
    while let Some(tenant) = next.query_row(params![agent.as_str(), after], |row| row.get(0)).optional()? {
        tenants.push(TenantId(tenant));
        after = tenant;
    }
    Ok(tenants)
}

/// The priorities that a tenant's entries have, the highest first, each with the earliest time of it.
fn levels(conn: &Connection, agent: &AgentId, tenant: TenantId) -> Result<Vec<(i64, LeaseTime)>> {
    let mut next = conn.prepare_cached(NEXT_LEVEL)?;
    let mut levels = Vec::new();
    let mut below = i64::MAX;
    let mut found = |below| {
        let level = next.query_row(params![agent.as_str(), tenant.0, below], |row| Ok((row.get(0)?, row.get(1)?)));
        level.optional()
    };
    while let Some((level, due)) = found(below)? {
        levels.push((level, LeaseTime(due)));
        below = level;
    }
    Ok(levels)
}

pub(super) fn lapsed(
    conn: &Connection,
    agent: Option<&AgentId>,
    since: LeaseTime,
    limit: usize,
    now: LeaseTime,
) -> Result<Vec<Lease>> {
    let mut lapsed = conn.prepare_cached(&LAPSED)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = lapsed.query(params![now.0, agent.map(AgentId::as_str), limit, since.0])?;
    let mut leases = Vec::new();
    while let Some(next) = rows.next()? {
        match row::read(next) {
            Ok(row) => leases.extend(row.lease()),
            Err(error) => tracing::error!(%error, "a lease that ran out cannot be read"),
        }
    }
    Ok(leases)
}

pub(super) fn prolong_lapsed(batch: &mut Batch<'_>, step: Duration) -> Result<usize> {
    batch.rows.forget();
    let mut prolong = batch.conn.prepare_cached(
        "UPDATE a2a_tasks SET due_at = due_at + ?1, overdue = 1
         WHERE queued = 1 AND owner IS NOT NULL AND due_at <= ?2 AND due_at > ?2 - ?1 AND overdue = 0",
    )?;
    Ok(prolong.execute(params![millis(step), batch.now.0])?)
}

pub(super) fn next(conn: &Connection, wishes: &[Wish]) -> Result<Vec<Option<LeaseTime>>> {
    let mut times = Vec::with_capacity(wishes.len());
    for wish in wishes {
        let tenants = match wish.tenant {
            Some(tenant) => vec![tenant],
            None => tenants(conn, &wish.agent)?,
        };
        let mut earliest = None;
        for tenant in tenants {
            let levels = levels(conn, &wish.agent, tenant)?.into_iter().map(|(_, due)| due);
            earliest = levels.chain(earliest).min();
        }
        times.push(earliest);
    }
    Ok(times)
}

pub(super) fn entry(conn: &Connection, tenant: Option<TenantId>, task: TaskId, now: LeaseTime) -> Result<QueueEntry> {
    let mut entry = conn.prepare_cached(&ENTRY)?;
    let mut rows = entry.query(params![task.to_string(), tenant.map(|tenant| tenant.0)])?;
    let row = row::read(rows.next()?.ok_or(Error::NotFound)?)?;
    let lengths = lengths(conn, &row)?;
    row.into_entry(lengths, now)
}

pub(super) fn first_message(conn: &Connection, tenant: TenantId, task: TaskId) -> Result<Bytes> {
    let sql = "SELECT pk FROM a2a_tasks WHERE task_id = ?1 AND tenant_id = ?2 AND hidden = 0";
    let pk = conn.prepare_cached(sql)?.query_row(params![task.to_string(), tenant.0], |row| row.get(0)).optional()?;
    let positions = positions(pk.ok_or(Error::NotFound)?);
    let mut first = conn.prepare_cached(FIRST)?;
    let body = first.query_row(positions, |row| Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_bytes()?)));
    Ok(body.optional()?.unwrap_or_default())
}

pub(super) fn dead_letters(
    conn: &Connection,
    tenant: TenantId,
    letters: &Letters,
    now: LeaseTime,
) -> Result<Vec<QueueEntry>> {
    let mut found = conn.prepare_cached(&LETTERS)?;
    let (at, task) = match &letters.after {
        Some((at, task)) => (at.as_millis(), task.to_string()),
        None => (i64::MIN, String::new()),
    };
    let limit = i64::try_from(letters.limit).unwrap_or(i64::MAX);
    let mut rows = found.query(params![tenant.0, at, task, letters.agent.as_ref().map(AgentId::as_str), limit])?;
    let mut entries = Vec::new();
    while let Some(next) = rows.next()? {
        let row = row::read(next)?;
        let lengths = lengths(conn, &row)?;
        entries.push(row.into_entry(lengths, now)?);
    }
    Ok(entries)
}

fn lengths(conn: &Connection, row: &TaskRow) -> Result<Lengths> {
    let mut lengths = conn.prepare_cached(LENGTHS)?;
    let (first, all): (Option<i64>, Option<i64>) =
        lengths.query_row(positions(row.pk), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Lengths { first: codec::unsigned(first.unwrap_or_default()), all: codec::unsigned(all.unwrap_or_default()) })
}

pub(super) fn agent_queues(conn: &Connection, tenant: TenantId) -> Result<Vec<AgentQueue>> {
    let mut counts = conn.prepare_cached(
        "SELECT c.agent_id, c.state, c.n, (SELECT min(t.status_at) FROM a2a_tasks t
           WHERE t.tenant_id = c.tenant_id AND t.agent_id = c.agent_id AND t.state = c.state AND t.hidden = 0)
         FROM task_counts c WHERE c.tenant_id = ?1 AND c.n > 0",
    )?;
    let mut dead = conn.prepare_cached(
        "SELECT agent_id, NULL, count(*), min(status_at) FROM a2a_tasks WHERE tenant_id = ?1 AND dead = 1
         GROUP BY agent_id",
    )?;
    let mut all = Vec::new();
    for statement in [&mut counts, &mut dead] {
        let mut rows = statement.query([tenant.0])?;
        while let Some(row) = rows.next()? {
            let state: Option<String> = row.get(1)?;
            all.push(Counted {
                agent: codec::parse_agent(&row.get::<_, String>(0)?)?,
                state: state.as_deref().map(codec::parse_state).transpose()?,
                n: codec::unsigned(row.get(2)?),
                since: row.get::<_, Option<i64>>(3)?.map(codec::time),
            });
        }
    }
    Ok(sort_counts(all))
}
