//! Removing tasks and logs on SQLite: operations of the writer, each of a bounded size. What goes and what stays is argued in
//! [`crate::retention`].
//!
//! A walk goes along the lines of the index by which lists are made, one for each agent and state that exists, oldest first, and at last along
//! those that were answered by a direct reply.

use std::{sync::LazyLock, time::Instant};

use futures_util::FutureExt;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{tx::positions, writer::Batch};
use crate::{
    Deleted, Error, Prune, PruneStep, Pruned, Removal, Result, TaskId, TenantId, clock, codec,
    ops::{Aftermath, Dead, Hidden, RegistryTx},
    retention::{ENDS, Ended, MOST_SEEN, OWES, audit_entry, most_tasks, owes_cancel},
};

/// The line of those that were answered by a direct reply. No agent's name begins so.
const DIRECT: &str = "~direct";

/// What [`Found::read`] reads of a task `t`.
const COLUMNS: &str = "t.pk, t.task_id, t.agent_id, t.state, t.status_at, t.hidden, t.dead, t.pushes, t.aftermath";

static LISTED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM a2a_tasks t
         WHERE t.tenant_id = ?1 AND t.agent_id = ?2 AND t.state = ?3 AND t.hidden = 0
           AND (t.status_at, t.task_id) > (?4, ?5) AND t.status_at < ?6
         ORDER BY t.status_at, t.task_id LIMIT ?7"
    )
});

static ANSWERED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM a2a_tasks t
         WHERE t.tenant_id = ?1 AND t.hidden = 2 AND (t.status_at, t.task_id) > (?2, ?3) AND t.status_at < ?4
         ORDER BY t.status_at, t.task_id LIMIT ?5"
    )
});

static ONE: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM a2a_tasks t WHERE t.tenant_id = ?1 AND t.task_id = ?2 AND t.hidden = 0")
});

static OF_CONTEXT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS} FROM a2a_tasks t WHERE t.tenant_id = ?1 AND t.context_id = ?2 ORDER BY t.task_id LIMIT ?3"
    )
});

static UNFINISHED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT task_id, state FROM a2a_tasks WHERE tenant_id = ?1 AND context_id = ?2 AND state NOT IN {ENDS}
         ORDER BY task_id LIMIT ?3"
    )
});

static OF_TENANT: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {COLUMNS} FROM a2a_tasks t WHERE t.tenant_id = ?1 ORDER BY t.context_id, t.task_id LIMIT ?2")
});

static UNFINISHED_OF_TENANT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT task_id FROM a2a_tasks WHERE tenant_id = ?1 AND state NOT IN {ENDS}
         ORDER BY context_id, task_id LIMIT ?2"
    )
});

static LINES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT agent_id, state FROM task_counts WHERE tenant_id = ?1 AND n > 0 AND state IN {ENDS}
         ORDER BY agent_id, state"
    )
});

static IS_OWED: LazyLock<String> =
    LazyLock::new(|| format!("SELECT EXISTS (SELECT 1 FROM push_configs c WHERE c.task = ?1 AND {OWES})"));

/// How many tasks a look at a line takes.
const LOOK: i64 = 50;

/// What is needed to remove a task.
struct Found {
    pk: i64,
    task: TaskId,
    agent: String,
    state: String,
    at: i64,
    hidden: Hidden,
    dead: Dead,
    pushes: i64,
    aftermath: Aftermath,
}

/// A walk's line.
struct Line {
    name: String,
    /// The agent and the state; none of those that were answered directly.
    group: Option<(String, String)>,
}

pub(super) fn prune(batch: &mut Batch<'_>, step: &PruneStep) -> Result<Pruned> {
    let begun = Instant::now();
    let pruned = remove_old(batch, step)?;
    Ok(Pruned { took: begun.elapsed(), ..pruned })
}

fn remove_old(batch: &mut Batch<'_>, step: &PruneStep) -> Result<Pruned> {
    let before = step.before(batch.now);
    let mut pruned = Pruned { walk: step.walk.clone(), ..Pruned::default() };
    let mut seen = 0;
    for line in lines(batch.conn, step)? {
        if line.name < step.walk.line {
            continue;
        }
        pruned.walk.line.clone_from(&line.name);
        loop {
            let found = line.look(batch.conn, step, &pruned, before)?;
            let is_end = found.len() < usize::try_from(LOOK).unwrap_or(0);
            for task in found {
                if step.is_done(&pruned) || seen >= MOST_SEEN {
                    pruned.more = true;
                    return Ok(pruned);
                }
                seen += 1;
                if step.whose.includes(&task.agent)
                    && task.ended(batch.conn, before)?.may_go(step.what)
                    && !remove_some(batch, step, &task, &mut pruned)?
                {
                    pruned.more = true;
                    return Ok(pruned);
                }
                pruned.walk.pass(&line.name, task.at, task.task);
            }
            if is_end {
                break;
            }
        }
    }
    pruned.walk.line.clear();
    Ok(pruned)
}

/// Removes what may go of a task. Says whether that was all: a long log takes several steps.
fn remove_some(batch: &mut Batch<'_>, step: &PruneStep, found: &Found, pruned: &mut Pruned) -> Result<bool> {
    let (events, bytes, is_all) = remove_events(batch.conn, found.pk, step, pruned)?;
    pruned.events += events;
    pruned.bytes += codec::unsigned(bytes);
    if step.what == Prune::Events || !is_all {
        batch.ledger.add(step.tenant, 0, -bytes);
        return Ok(is_all);
    }
    let rest = remove_task(batch, step.tenant, found)?;
    pruned.bytes += codec::unsigned(rest);
    pruned.tasks += 1;
    batch.ledger.add(step.tenant, 0, -bytes);
    Ok(true)
}

/// Removes as many events from the begin of a log as there is room for in the step: how many, their bytes, and whether none is left.
fn remove_events(conn: &Connection, pk: i64, step: &PruneStep, pruned: &Pruned) -> Result<(u64, i64, bool)> {
    let mut oldest =
        conn.prepare_cached("SELECT seq, length(body) FROM a2a_events WHERE task = ?1 ORDER BY seq LIMIT ?2")?;
    let room = step.most_events().saturating_sub(pruned.events).max(1);
    let mut rows = oldest.query(params![pk, codec::signed(room + 1)])?;
    let (mut last, mut count, mut bytes, mut is_all) = (None, 0, 0, true);
    while let Some(row) = rows.next()? {
        let so_far =
            Pruned { events: pruned.events + count, bytes: pruned.bytes + codec::unsigned(bytes), ..Pruned::default() };
        // One goes in any case, so that a step comes forward.
        if count > 0 && step.is_done(&so_far) {
            is_all = false;
            break;
        }
        last = Some(row.get::<_, i64>(0)?);
        count += 1;
        bytes += row.get::<_, i64>(1)?;
    }
    drop(rows);
    if let Some(last) = last {
        conn.prepare_cached("DELETE FROM a2a_events WHERE task = ?1 AND seq <= ?2")?.execute([pk, last])?;
    }
    Ok((count, bytes, is_all))
}

/// Removes a task with all that is its own, and counts it out. Gives the bytes that it had.
fn remove_task(batch: &mut Batch<'_>, tenant: TenantId, found: &Found) -> Result<i64> {
    let conn = batch.conn;
    let (first, end) = positions(found.pk);
    let mut bytes = 0;
    for (delete, arguments) in [
        ("DELETE FROM a2a_events WHERE task = ?1 AND ?2 = ?2 RETURNING length(body)", [found.pk, 0]),
        ("DELETE FROM messages WHERE pos >= ?1 AND pos < ?2 RETURNING length(body)", [first, end]),
        ("DELETE FROM a2a_artifacts WHERE pos >= ?1 AND pos < ?2 RETURNING length(body)", [first, end]),
        ("DELETE FROM push_configs WHERE task = ?1 AND ?2 = ?2 RETURNING bytes", [found.pk, 0]),
    ] {
        bytes += sum(conn, delete, arguments)?;
    }
    conn.prepare_cached("DELETE FROM idempotency WHERE task = ?1")?.execute([found.pk])?;
    conn.prepare_cached("DELETE FROM a2a_tasks WHERE pk = ?1")?.execute([found.pk])?;
    batch.rows.take(found.task);
    if found.hidden == Hidden::No {
        batch.change_count(tenant, &codec::parse_agent(&found.agent)?, codec::parse_state(&found.state)?, -1);
    }
    batch.ledger.add(tenant, 0, -bytes);
    Ok(bytes)
}

/// Runs a DELETE that returns a number for each row; gives their sum.
fn sum(conn: &Connection, delete: &str, arguments: impl Params) -> Result<i64> {
    let mut delete = conn.prepare_cached(delete)?;
    let mut rows = delete.query(arguments)?;
    let mut sum = 0;
    while let Some(row) = rows.next()? {
        sum += row.get::<_, i64>(0)?;
    }
    Ok(sum)
}

pub(super) fn delete(
    batch: &mut Batch<'_>,
    tenant: TenantId,
    actor: &str,
    removal: &Removal,
    size: u64,
) -> Result<Deleted> {
    let begun = Instant::now();
    // One more than is removed tells whether there are more.
    let most = codec::signed(most_tasks(size));
    let mut found = match removal {
        Removal::Task(task) => read_all(batch.conn, &ONE, params![tenant.0, task.to_string()])?,
        Removal::Context(context) => read_all(batch.conn, &OF_CONTEXT, params![tenant.0, context, most + 1])?,
        Removal::Tenant => read_all(batch.conn, &OF_TENANT, params![tenant.0, most + 1])?,
    };
    if found.is_empty() {
        return Err(Error::NotFound);
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let more = found.len() > most;
    found.truncate(most);
    refuse_unfinished(batch.conn, tenant, removal, &found)?;
    let mut bytes = 0;
    for task in &found {
        bytes += remove_task(batch, tenant, task)?;
    }
    let tasks: Vec<TaskId> = found.iter().map(|found| found.task).collect();
    let (action, detail) = audit_entry(tenant, removal, &tasks, bytes);
    let written = batch.conn.write_down(clock::now(), actor, action, &detail.to_string()).now_or_never();
    written.unwrap_or_else(|| Err(Error::Unavailable("the audit log has to wait".into())))?;
    Ok(Deleted { tasks: tasks.len() as u64, bytes: codec::unsigned(bytes), more, took: begun.elapsed() })
}

/// Refuses before anything is removed, of a context whichever of its tasks it is. Of a tenant only those that would be removed count: a look
/// at all of its tasks takes long, and every step would make one.
fn refuse_unfinished(conn: &Connection, tenant: TenantId, removal: &Removal, found: &[Found]) -> Result<()> {
    if let Removal::Context(context) = removal {
        let mut unfinished = conn.prepare_cached(&UNFINISHED)?;
        let state: Option<String> = unfinished.query_row(params![tenant.0, context, 1], |row| row.get(1)).optional()?;
        if let Some(state) = state {
            return Err(Error::NotEnded(codec::parse_state(&state)?));
        }
    }
    for task in found {
        let state = codec::parse_state(&task.state)?;
        if !state.is_terminal() {
            return Err(Error::NotEnded(state));
        }
    }
    Ok(())
}

pub(super) fn owes_cancels(conn: &Connection, tenant: TenantId, removal: &Removal) -> Result<bool> {
    let (task, context) = match removal {
        Removal::Task(task) => (Some(task.to_string()), None),
        Removal::Context(context) => (None, Some(context)),
        Removal::Tenant => (None, None),
    };
    let mut owing = conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM a2a_tasks INDEXED BY a2a_tasks_aftermath WHERE aftermath = 2 AND tenant_id = ?1
           AND (?2 IS NULL OR task_id = ?2) AND (?3 IS NULL OR context_id = ?3))",
    )?;
    Ok(owing.query_row(params![tenant.0, task, context], |row| row.get(0))?)
}

pub(super) fn unfinished(conn: &Connection, tenant: TenantId, context: &str, limit: usize) -> Result<Vec<TaskId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    read_ids(conn, &UNFINISHED, params![tenant.0, context, limit])
}

pub(super) fn unfinished_of(conn: &Connection, tenant: TenantId, limit: usize) -> Result<Vec<TaskId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    read_ids(conn, &UNFINISHED_OF_TENANT, params![tenant.0, limit])
}

fn read_ids(conn: &Connection, sql: &str, arguments: impl Params) -> Result<Vec<TaskId>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(arguments)?;
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        tasks.push(codec::parse_task(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?);
    }
    Ok(tasks)
}

/// The lines of a walk, in its order.
fn lines(conn: &Connection, step: &PruneStep) -> Result<Vec<Line>> {
    let mut groups = conn.prepare_cached(&LINES)?;
    let mut rows = groups.query([step.tenant.0])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        let (agent, state): (String, String) = (row.get(0)?, row.get(1)?);
        if step.whose.includes(&agent) {
            lines.push(Line { name: format!("{agent}/{state}"), group: Some((agent, state)) });
        }
    }
    // An agent whose name begins as another's does comes elsewhere than the index has it.
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    if step.what == Prune::Tasks {
        lines.push(Line { name: DIRECT.to_owned(), group: None });
    }
    Ok(lines)
}

impl Line {
    /// The next tasks of the line that ended before then.
    fn look(&self, conn: &Connection, step: &PruneStep, pruned: &Pruned, before: i64) -> Result<Vec<Found>> {
        let (at, task) = pruned.walk.place(&self.name);
        let task = task.to_string();
        match &self.group {
            Some((agent, state)) => {
                read_all(conn, &LISTED, params![step.tenant.0, agent, state, at, task, before, LOOK])
            }
            None => read_all(conn, &ANSWERED, params![step.tenant.0, at, task, before, LOOK]),
        }
    }
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            pk: row.get(0)?,
            task: codec::parse_task(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?,
            agent: row.get(2)?,
            state: row.get(3)?,
            at: row.get(4)?,
            hidden: Hidden::from_code(row.get(5)?),
            dead: Dead::from_code(row.get(6)?),
            pushes: row.get(7)?,
            aftermath: Aftermath::from_code(row.get(8)?),
        })
    }

    fn ended(&self, conn: &Connection, before: i64) -> Result<Ended> {
        let tells = self.pushes > 0 && conn.prepare_cached(&IS_OWED)?.query_row([self.pk], |row| row.get(0))?;
        let owes = tells || owes_cancel(self.aftermath, self.at, before);
        Ok(Ended { is_direct: self.hidden == Hidden::Direct, is_dead: self.dead == Dead::Letter, owes })
    }
}

fn read_all(conn: &Connection, sql: &str, arguments: impl Params) -> Result<Vec<Found>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(arguments)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Found::read(row)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn what_goes_is_found_by_indexes() {
        let dir = tempfile::tempdir().unwrap();
        let conn = schema::open_writer(&dir.path().join("new.db"), 1024).unwrap();
        let plan = |sql: &str| -> String {
            let mut explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let arguments: Vec<rusqlite::types::Value> =
                (0..explained.parameter_count()).map(|_| rusqlite::types::Value::Null).collect();
            let rows = explained.query_map(rusqlite::params_from_iter(arguments), |row| row.get::<_, String>("detail"));
            rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap().join("; ")
        };
        for (sql, index) in [
            (LISTED.as_str(), "a2a_tasks_listed"),
            (ANSWERED.as_str(), "a2a_tasks_direct"),
            (OF_CONTEXT.as_str(), "a2a_tasks_context"),
            (UNFINISHED.as_str(), "a2a_tasks_context"),
            (OF_TENANT.as_str(), "a2a_tasks_context"),
            (IS_OWED.as_str(), "PRIMARY KEY"),
            ("DELETE FROM idempotency WHERE task = ?1", "idempotency_task"),
        ] {
            let plan = plan(sql);
            assert!(plan.contains(index) && !plan.contains("TEMP"), "{sql}: {plan}");
        }
    }

    #[test]
    fn a_step_looks_at_no_more_tasks_than_it_takes() {
        const TASKS: i64 = 5000;
        let dir = tempfile::tempdir().unwrap();
        let conn = schema::open_writer(&dir.path().join("new.db"), 1024).unwrap();
        conn.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO a2a_tasks (pk, task_id, tenant_id, agent_id, context_id, state, created_at, updated_at,
               status_at, seq, turn, hidden)
             SELECT i, printf('%036d', i), 7, 'echo', 'c', 'completed', 1, 1, i, 1, 1, i % 2 * 2 FROM n",
            [TASKS],
        )
        .unwrap();
        let taken = 51;
        let steps = |sql: &str, arguments: &[&dyn rusqlite::ToSql]| {
            let mut statement = conn.prepare(sql).unwrap();
            let found = statement.query_map(arguments, |_| Ok(())).unwrap().count();
            assert_eq!(found, usize::try_from(taken).unwrap(), "{sql}");
            statement.get_status(rusqlite::StatementStatus::VmStep)
        };
        let first = "0".repeat(36);
        let all = steps(&OF_TENANT, &[&7, &taken]);
        let of_context = steps(&OF_CONTEXT, &[&7, &"c", &taken]);
        let listed = steps(&LISTED, &[&7, &"echo", &"completed", &0, &first, &i64::MAX, &taken]);
        let answered = steps(&ANSWERED, &[&7, &0, &first, &i64::MAX, &taken]);
        for steps in [all, of_context, listed, answered] {
            assert!(steps < taken * 40, "{steps} steps for {taken} of {TASKS} tasks");
        }
    }
}
