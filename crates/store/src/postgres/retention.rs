//! Removing tasks and logs on PostgreSQL: short transactions beside the writer. What goes and what stays is argued in
//! [`crate::retention`].
//!
//! **Nobody waits in a circle.** The order is that of [`super::fetch`]: idempotency keys, then tasks, then counters, each sorted, and push
//! configurations only of tasks that are locked. A step of retention passes over whatever somebody else has locked, keys and tasks alike,
//! and waits for nothing but the counters of others who remove. A deletion waits, in that order. It takes the lock of administration
//! before all others, which no writer ever asks for.
//!
//! **A key that is found later would be out of order.** A task is locked after its keys. If it has a key by then that was not there before, the
//! task is left alone: a step finds it the next time, a deletion begins anew. While the task is locked nobody adds one, since whoever
//! takes in a message for the task needs that lock before its commit (test: `instances_that_delete_and_repeat_do_not_deadlock`).
//!
//! **Counters** have a shard that no instance adds to, so that no writer waits for a step's commit.
//!
//! A step that is not answered may have been made; said again it means the same. A deletion that is not answered is
//! [`Error::Unavailable`] and may have been made, as in `administer.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Instant,
};

use deadpool_postgres::Transaction;
use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    administer,
    fetch::{task_id, uuid},
    pool::{Pool, silent},
};
use crate::{
    Deleted, Error, Prune, PruneStep, Pruned, Removal, Result, TaskId, TenantId, clock, codec, lease,
    ops::{Aftermath, Dead, Hidden, RegistryTx},
    retention::{ENDS, Ended, MOST_SEEN, OWES, audit_entry, most_tasks, owes_cancel},
};

/// The shard of counters of those who write without being an instance.
const SHARD: i16 = 0;

/// How often a deletion begins anew.
const TRIES: usize = 5;

/// The lines of a walk, by what is hidden: those that callers see, and those that were answered by a direct reply.
const LINES: [(&str, i64); 2] = [("listed", 0), ("~direct", 2)];

/// The next `$5` tasks of a line after `$2, $3` that ended more than `$4` milliseconds before `$6` and the server's own time.
fn look_at(hidden: i64) -> String {
    format!(
        "SELECT t.task_id, t.agent_id, t.status_at, t.state IN {ENDS}, t.dead::bigint, t.aftermath::bigint FROM a2a_tasks t
         WHERE t.tenant_id = $1 AND t.hidden = {hidden} AND (t.status_at, t.task_id) > ($2, $3)
           AND t.status_at < least(lease_now(), $6::bigint) - $4::bigint
         ORDER BY t.status_at, t.task_id LIMIT $5"
    )
}

/// How many events each of these has, up to `$2`, and how many bytes there are of it.
const WEIGH: &str = "SELECT
       (SELECT count(*) FROM (SELECT FROM a2a_events e WHERE e.task = w.task LIMIT $2) e),
       (SELECT coalesce(sum(octet_length(e.body)), 0)::bigint FROM a2a_events e WHERE e.task = w.task)
         + (SELECT coalesce(sum(octet_length(m.body)), 0)::bigint FROM messages m WHERE m.task = w.task)
         + (SELECT coalesce(sum(octet_length(a.body)), 0)::bigint FROM a2a_artifacts a WHERE a.task = w.task)
     FROM unnest($1::uuid[]) WITH ORDINALITY AS w (task, place) ORDER BY w.place";

const KEYS: &str =
    "SELECT tenant_id, key FROM idempotency WHERE task = ANY ($1::uuid[]) ORDER BY tenant_id, key FOR UPDATE";
const ALL_KEYS: &str = "SELECT tenant_id, key, task FROM idempotency WHERE task = ANY ($1::uuid[])";
const TASKS: &str = "SELECT t.task_id, t.agent_id, t.state, t.hidden::bigint, t.dead::bigint,
       t.aftermath::bigint, t.status_at FROM a2a_tasks t
     WHERE t.task_id = ANY ($1::uuid[]) AND t.tenant_id = $2 ORDER BY t.task_id FOR UPDATE OF t";

static OWING: LazyLock<String> =
    LazyLock::new(|| format!("SELECT DISTINCT c.task FROM push_configs c WHERE c.task = ANY ($1::uuid[]) AND {OWES}"));

/// Removes tasks with all that is their own: how many events there were, and how many bytes.
const REMOVE: &str = "WITH e AS (DELETE FROM a2a_events WHERE task = ANY ($1::uuid[]) RETURNING octet_length(body)::bigint AS bytes),
       m AS (DELETE FROM messages WHERE task = ANY ($1::uuid[]) RETURNING octet_length(body)::bigint AS bytes),
       a AS (DELETE FROM a2a_artifacts WHERE task = ANY ($1::uuid[]) RETURNING octet_length(body)::bigint AS bytes),
       p AS (DELETE FROM push_configs WHERE task = ANY ($1::uuid[]) RETURNING bytes),
       k AS (DELETE FROM idempotency WHERE task = ANY ($1::uuid[])),
       t AS (DELETE FROM a2a_tasks WHERE task_id = ANY ($1::uuid[]))
     SELECT (SELECT count(*) FROM e), (SELECT coalesce(sum(bytes), 0)::bigint FROM (
       SELECT bytes FROM e UNION ALL SELECT bytes FROM m UNION ALL SELECT bytes FROM a UNION ALL SELECT bytes FROM p) b)";

/// Removes the oldest `$2` events of these tasks, task by task: how many there were of each, and how many bytes.
const REMOVE_EVENTS: &str = "WITH oldest AS (
       SELECT e.task, e.seq FROM unnest($1::uuid[]) WITH ORDINALITY AS w (task, place) CROSS JOIN LATERAL (
         SELECT task, seq FROM a2a_events WHERE task = w.task ORDER BY seq LIMIT $2) e
       ORDER BY w.place, e.seq LIMIT $2),
     gone AS (DELETE FROM a2a_events e USING oldest o WHERE e.task = o.task AND e.seq = o.seq
       RETURNING e.task, octet_length(e.body)::bigint AS bytes)
     SELECT task, count(*), sum(bytes)::bigint FROM gone GROUP BY task";

const COUNTS: &str = "INSERT INTO task_counts AS c (tenant_id, agent_id, state, n, shard)
     SELECT $1::bigint, g.agent_id, g.state, g.n, $5::smallint
     FROM unnest($2::text[], $3::text[], $4::bigint[]) AS g (agent_id, state, n)
     ON CONFLICT (tenant_id, agent_id, state, shard) DO UPDATE SET n = c.n + excluded.n";

const USAGE: &str = "INSERT INTO tenant_usage AS u (tenant_id, tasks, bytes, shard) VALUES ($1, 0, $2, $3)
     ON CONFLICT (tenant_id, shard) DO UPDATE SET bytes = u.bytes + excluded.bytes";

static OF_CONTEXT: LazyLock<String> = LazyLock::new(|| {
    "SELECT task_id, state FROM a2a_tasks WHERE tenant_id = $1 AND context_id = $2 ORDER BY task_id LIMIT $3".to_owned()
});

static UNFINISHED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT task_id, state FROM a2a_tasks WHERE tenant_id = $1 AND context_id = $2 AND state NOT IN {ENDS}
         ORDER BY task_id LIMIT $3"
    )
});

const OF_TENANT: &str = "SELECT task_id FROM a2a_tasks WHERE tenant_id = $1 ORDER BY context_id, task_id LIMIT $2";

static UNFINISHED_OF_TENANT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT task_id FROM a2a_tasks WHERE tenant_id = $1 AND state NOT IN {ENDS}
         ORDER BY context_id, task_id LIMIT $2"
    )
});

/// A task on a line.
struct Seen {
    task: TaskId,
    at: i64,
    /// It may go, as far as can be seen without a lock.
    may_go: bool,
}

/// A task that is locked, with its keys.
struct Locked {
    task: Uuid,
    agent: String,
    state: String,
    hidden: Hidden,
    dead: Dead,
    aftermath: Aftermath,
    at: i64,
}

/// Whether locks of others are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Waits,
    /// Removes what ended before this time.
    PassesOver {
        before: i64,
    },
}

/// What a transaction has removed.
#[derive(Default)]
struct Gone {
    tasks: Vec<TaskId>,
    events: i64,
    bytes: i64,
    /// Something was left out that may go another time.
    left_out: bool,
}

pub(super) async fn prune(readers: &Pool, writers: &Pool, step: &PruneStep) -> Result<Pruned> {
    // It runs beside the writer, and waits for nobody's turn.
    let begun = Instant::now();
    let pruned = remove_old(readers, writers, step).await?;
    Ok(Pruned { took: begun.elapsed(), ..pruned })
}

async fn remove_old(readers: &Pool, writers: &Pool, step: &PruneStep) -> Result<Pruned> {
    let mut pruned = Pruned { walk: step.walk.clone(), ..Pruned::default() };
    for (line, hidden) in LINES {
        // A log is kept for as long as a direct reply is read from it.
        if line < step.walk.line.as_str() || (hidden != 0 && step.what == Prune::Events) {
            continue;
        }
        pruned.walk.line = line.to_owned();
        let mut seen = look(readers, step, line, hidden).await?;
        let is_end = seen.len() < MOST_SEEN;
        if seen.is_empty() {
            continue;
        }
        let has_all = match step.what {
            Prune::Tasks => prune_tasks(readers, writers, step, &mut seen, &mut pruned).await?,
            Prune::Events => prune_events(writers, step, &mut seen, &mut pruned).await?,
        };
        if let Some(last) = seen.last() {
            pruned.walk.pass(line, last.at, last.task);
        }
        if !is_end || !has_all {
            pruned.more = true;
            return Ok(pruned);
        }
    }
    pruned.walk.line.clear();
    Ok(pruned)
}

/// What ended before this time may go, by the wall clock: the server's own is not known here.
fn before(step: &PruneStep) -> i64 {
    clock::now().as_millis().saturating_sub(lease::millis(step.older_than))
}

/// The next tasks of a line.
async fn look(readers: &Pool, step: &PruneStep, line: &str, hidden: i64) -> Result<Vec<Seen>> {
    let (at, task) = step.walk.place(line);
    let age = lease::millis(step.older_than);
    let most = i64::try_from(MOST_SEEN).unwrap_or(i64::MAX);
    let now = clock::now().as_millis();
    let before = before(step);
    let rows = readers.query(&look_at(hidden), &[&step.tenant.0, &at, &uuid(task), &age, &most, &now]).await?;
    let mut seen = Vec::with_capacity(rows.len());
    for row in &rows {
        let is_dead = Dead::from_code(row.try_get(4)?) == Dead::Letter;
        let owes = owes_cancel(Aftermath::from_code(row.try_get(5)?), row.try_get(2)?, before);
        let ended = Ended { is_direct: hidden != 0, is_dead, owes };
        let may_go = row.try_get(3)? && ended.may_go(step.what) && step.whose.includes(row.try_get(1)?);
        seen.push(Seen { task: task_id(row.try_get(0)?), at: row.try_get(2)?, may_go });
    }
    Ok(seen)
}

/// Removes tasks, as many as a step may; `seen` is cut to those that were dealt with. Says whether that is all of them.
async fn prune_tasks(
    readers: &Pool,
    writers: &Pool,
    step: &PruneStep,
    seen: &mut Vec<Seen>,
    pruned: &mut Pruned,
) -> Result<bool> {
    let may_go: Vec<Uuid> = seen.iter().filter(|seen| seen.may_go).map(|seen| uuid(seen.task)).collect();
    let may_go = &may_go[..may_go.len().min(usize::try_from(step.most_tasks()).unwrap_or(usize::MAX))];
    if may_go.is_empty() {
        return Ok(true);
    }
    let (most_events, most_bytes) = (codec::signed(step.most_events()), codec::signed(step.most_bytes()));
    let weights = readers.query(WEIGH, &[&may_go, &most_events]).await?;
    let (mut events, mut bytes, mut chosen) = (0, 0, 0);
    for weight in &weights {
        // One goes in any case, so that a step comes forward.
        if chosen > 0 && (events >= most_events || bytes >= most_bytes) {
            break;
        }
        events += weight.try_get::<_, i64>(0)?;
        bytes += weight.try_get::<_, i64>(1)?;
        chosen += 1;
    }
    let chosen = &may_go[..chosen];
    let patience = Patience::PassesOver { before: before(step) };
    let gone = run(writers, async |tx| remove(tx, step.tenant, chosen, patience).await).await?;
    pruned.tasks += gone.tasks.len() as u64;
    pruned.events += codec::unsigned(gone.events);
    pruned.bytes += codec::unsigned(gone.bytes);
    // What comes after the last that was chosen is for the next step.
    let last = chosen.last().copied();
    let next = seen.iter().skip_while(|seen| Some(uuid(seen.task)) != last).skip(1).position(|seen| seen.may_go);
    let Some(next) = next else { return Ok(true) };
    let dealt_with = seen.iter().position(|seen| Some(uuid(seen.task)) == last).unwrap_or(0) + 1 + next;
    seen.truncate(dealt_with);
    Ok(false)
}

/// The same with logs. A long one takes several steps.
async fn prune_events(writers: &Pool, step: &PruneStep, seen: &mut Vec<Seen>, pruned: &mut Pruned) -> Result<bool> {
    let may_go: Vec<Uuid> = seen.iter().filter(|seen| seen.may_go).map(|seen| uuid(seen.task)).collect();
    if may_go.is_empty() {
        return Ok(true);
    }
    let removed = run(writers, async |tx| remove_events(tx, step, &may_go).await).await?;
    let (mut events, mut last) = (0, None);
    for row in &removed {
        let task = task_id(row.try_get(0)?);
        events += codec::unsigned(row.try_get(1)?);
        pruned.bytes += codec::unsigned(row.try_get(2)?);
        last = last.max(seen.iter().position(|seen| seen.task == task));
    }
    pruned.events += events;
    match last {
        // The last of them may have more.
        Some(last) if events >= step.most_events() => {
            seen.truncate(last);
            Ok(false)
        }
        _ => Ok(true),
    }
}

/// Runs `work` in a transaction; its error undoes everything.
pub(super) async fn run<T>(writers: &Pool, work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
    let mut session = writers.checkout().await?;
    let run = async {
        let tx = session.transaction().await?;
        let value = work(&tx).await?;
        tx.commit().await?;
        Ok(value)
    };
    let outcome: Result<T> = timeout(writers.bound(), run).await.unwrap_or_else(|_| Err(silent()));
    if !matches!(outcome, Err(Error::Unavailable(_))) {
        session.give_back();
    }
    outcome
}

/// Removes those of the tasks that may go by themselves, or, for somebody who waits, all of them that have ended.
async fn remove(tx: &Transaction<'_>, tenant: TenantId, tasks: &[Uuid], patience: Patience) -> Result<Gone> {
    let (locked, left_out) = lock(tx, tenant, tasks, patience).await?;
    let mut goes = Vec::new();
    let owing = owing(tx, &locked).await?;
    for task in locked {
        let state = codec::parse_state(&task.state)?;
        let may_go = match patience {
            Patience::Waits if !state.is_terminal() => return Err(Error::NotEnded(state)),
            Patience::Waits => true,
            Patience::PassesOver { before } => state.is_terminal() && task.ended(&owing, before).may_go(Prune::Tasks),
        };
        if may_go {
            goes.push(task);
        }
    }
    if goes.is_empty() {
        return Ok(Gone { left_out, ..Gone::default() });
    }
    let ids: Vec<Uuid> = goes.iter().map(|task| task.task).collect();
    let statement = tx.prepare_cached(REMOVE).await?;
    let row = tx.query_one(&statement, &[&ids]).await?;
    let (events, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let mut counts: BTreeMap<(String, String), i64> = BTreeMap::new();
    for task in goes.into_iter().filter(|task| task.hidden == Hidden::No) {
        *counts.entry((task.agent, task.state)).or_default() -= 1;
    }
    let mut groups: (Vec<String>, Vec<String>, Vec<i64>) = Default::default();
    for ((agent, state), n) in counts {
        groups.0.push(agent);
        groups.1.push(state);
        groups.2.push(n);
    }
    if !groups.0.is_empty() {
        let statement = tx.prepare_cached(COUNTS).await?;
        tx.execute(&statement, &[&tenant.0, &groups.0, &groups.1, &groups.2, &SHARD]).await?;
    }
    give_back(tx, tenant, bytes).await?;
    Ok(Gone { tasks: ids.into_iter().map(task_id).collect(), events, bytes, left_out })
}

/// Removes the oldest events of those tasks whose logs may go; what was removed of each.
async fn remove_events(tx: &Transaction<'_>, step: &PruneStep, tasks: &[Uuid]) -> Result<Vec<Row>> {
    let statement = tx.prepare_cached(&format!("{TASKS} SKIP LOCKED")).await?;
    let mut locked = Vec::new();
    for row in tx.query(&statement, &[&tasks, &step.tenant.0]).await? {
        locked.push(Locked::read(&row)?);
    }
    let owing = owing(tx, &locked).await?;
    let mut may_go = BTreeSet::new();
    for task in &locked {
        if codec::parse_state(&task.state)?.is_terminal() && task.ended(&owing, before(step)).may_go(Prune::Events) {
            may_go.insert(task.task);
        }
    }
    // In the order in which they ended, so that a walk stands behind those that are done.
    let in_order: Vec<Uuid> = tasks.iter().filter(|task| may_go.contains(task)).copied().collect();
    let statement = tx.prepare_cached(REMOVE_EVENTS).await?;
    let removed = tx.query(&statement, &[&in_order, &codec::signed(step.most_events())]).await?;
    let mut bytes = 0;
    for row in &removed {
        bytes += row.try_get::<_, i64>(2)?;
    }
    if bytes > 0 {
        give_back(tx, step.tenant, bytes).await?;
    }
    Ok(removed)
}

async fn give_back(tx: &Transaction<'_>, tenant: TenantId, bytes: i64) -> Result<()> {
    let statement = tx.prepare_cached(USAGE).await?;
    tx.execute(&statement, &[&tenant.0, &-bytes, &SHARD]).await?;
    Ok(())
}

/// Locks tasks behind their keys. Those that cannot be had in this order are left out, which is said.
async fn lock(
    tx: &Transaction<'_>,
    tenant: TenantId,
    tasks: &[Uuid],
    patience: Patience,
) -> Result<(Vec<Locked>, bool)> {
    let how = if patience == Patience::Waits { "" } else { " SKIP LOCKED" };
    let statement = tx.prepare_cached(&format!("{KEYS}{how}")).await?;
    let mut keys: BTreeSet<(i64, Vec<u8>)> = BTreeSet::new();
    for row in tx.query(&statement, &[&tasks]).await? {
        keys.insert((row.try_get(0)?, row.try_get(1)?));
    }
    let statement = tx.prepare_cached(&format!("{TASKS}{how}")).await?;
    let mut locked = Vec::new();
    for row in tx.query(&statement, &[&tasks, &tenant.0]).await? {
        locked.push(Locked::read(&row)?);
    }
    let statement = tx.prepare_cached(ALL_KEYS).await?;
    let mut unlocked: BTreeSet<Uuid> = BTreeSet::new();
    for row in tx.query(&statement, &[&tasks]).await? {
        if !keys.contains(&(row.try_get(0)?, row.try_get(1)?)) {
            unlocked.insert(row.try_get(2)?);
        }
    }
    locked.retain(|task| !unlocked.contains(&task.task));
    Ok((locked, !unlocked.is_empty()))
}

/// Which of the tasks owe a notification. Read when they are locked: nobody makes them owe more.
async fn owing(tx: &Transaction<'_>, locked: &[Locked]) -> Result<BTreeSet<Uuid>> {
    let tasks: Vec<Uuid> = locked.iter().map(|task| task.task).collect();
    let statement = tx.prepare_cached(&OWING).await?;
    let mut owing = BTreeSet::new();
    for row in tx.query(&statement, &[&tasks]).await? {
        owing.insert(row.try_get(0)?);
    }
    Ok(owing)
}

pub(super) async fn delete(
    writers: &Pool,
    tenant: TenantId,
    actor: &str,
    removal: &Removal,
    size: u64,
) -> Result<Deleted> {
    for _ in 0..TRIES {
        let begun = Instant::now();
        if let Some(deleted) = run(writers, async |tx| try_delete(tx, tenant, actor, removal, size).await).await? {
            return Ok(Deleted { took: begun.elapsed(), ..deleted });
        }
    }
    Err(Error::Unavailable("others are writing to what is to be deleted".into()))
}

/// Deletes, or nothing if others were at it.
async fn try_delete(
    tx: &Transaction<'_>,
    tenant: TenantId,
    actor: &str,
    removal: &Removal,
    size: u64,
) -> Result<Option<Deleted>> {
    // The entries of the audit log become visible in the order of their numbers.
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&administer::LOCK]).await?;
    let (tasks, more) = match removal {
        Removal::Task(task) => {
            let visible = "SELECT 1 FROM a2a_tasks WHERE task_id = $1 AND tenant_id = $2 AND hidden = 0";
            tx.query_opt(visible, &[&uuid(*task), &tenant.0]).await?.ok_or(Error::NotFound)?;
            (vec![uuid(*task)], false)
        }
        Removal::Context(context) => of_context(tx, tenant, context, most_tasks(size)).await?,
        Removal::Tenant => of_tenant(tx, tenant, most_tasks(size)).await?,
    };
    let gone = remove(tx, tenant, &tasks, Patience::Waits).await?;
    if gone.left_out {
        return Ok(None);
    }
    if gone.tasks.is_empty() {
        return Err(Error::NotFound);
    }
    let (action, detail) = audit_entry(tenant, removal, &gone.tasks, gone.bytes);
    tx.write_down(clock::now(), actor, action, &detail.to_string()).await?;
    let (tasks, bytes) = (gone.tasks.len() as u64, codec::unsigned(gone.bytes));
    Ok(Some(Deleted { tasks, bytes, more, ..Deleted::default() }))
}

/// Some tasks of a context, all of which has ended, and whether there are more.
async fn of_context(tx: &Transaction<'_>, tenant: TenantId, context: &str, most: u64) -> Result<(Vec<Uuid>, bool)> {
    let statement = tx.prepare_cached(&UNFINISHED).await?;
    if let Some(row) = tx.query_opt(&statement, &[&tenant.0, &context, &1i64]).await? {
        return Err(Error::NotEnded(codec::parse_state(row.try_get(1)?)?));
    }
    let statement = tx.prepare_cached(&OF_CONTEXT).await?;
    some_of(&tx.query(&statement, &[&tenant.0, &context, &codec::signed(most + 1)]).await?, most)
}

/// Some tasks of a tenant, and whether there are more. Whether one of them has not ended is seen when they are locked: a look at all tasks of
/// the tenant takes long, and every step would make one.
async fn of_tenant(tx: &Transaction<'_>, tenant: TenantId, most: u64) -> Result<(Vec<Uuid>, bool)> {
    let statement = tx.prepare_cached(OF_TENANT).await?;
    some_of(&tx.query(&statement, &[&tenant.0, &codec::signed(most + 1)]).await?, most)
}

fn some_of(rows: &[Row], most: u64) -> Result<(Vec<Uuid>, bool)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut tasks = Vec::with_capacity(rows.len());
    for row in rows {
        tasks.push(row.try_get(0)?);
    }
    if tasks.is_empty() {
        return Err(Error::NotFound);
    }
    let more = tasks.len() > most;
    tasks.truncate(most);
    Ok((tasks, more))
}

pub(super) async fn owes_cancels(readers: &Pool, tenant: TenantId, removal: &Removal) -> Result<bool> {
    let (task, context) = match removal {
        Removal::Task(task) => (Some(uuid(*task)), None),
        Removal::Context(context) => (None, Some(context)),
        Removal::Tenant => (None, None),
    };
    let sql = "SELECT 1 FROM a2a_tasks WHERE aftermath = 2 AND tenant_id = $1
         AND ($2::uuid IS NULL OR task_id = $2) AND ($3::text IS NULL OR context_id = $3) LIMIT 1";
    Ok(!readers.query(sql, &[&tenant.0, &task, &context]).await?.is_empty())
}

pub(super) async fn unfinished(readers: &Pool, tenant: TenantId, context: &str, limit: usize) -> Result<Vec<TaskId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = readers.query(&UNFINISHED, &[&tenant.0, &context, &limit]).await?;
    rows.iter().map(|row| Ok(task_id(row.try_get(0)?))).collect()
}

pub(super) async fn unfinished_of(readers: &Pool, tenant: TenantId, limit: usize) -> Result<Vec<TaskId>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = readers.query(&UNFINISHED_OF_TENANT, &[&tenant.0, &limit]).await?;
    rows.iter().map(|row| Ok(task_id(row.try_get(0)?))).collect()
}

impl Locked {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            task: row.try_get(0)?,
            agent: row.try_get(1)?,
            state: row.try_get(2)?,
            hidden: Hidden::from_code(row.try_get(3)?),
            dead: Dead::from_code(row.try_get(4)?),
            aftermath: Aftermath::from_code(row.try_get(5)?),
            at: row.try_get(6)?,
        })
    }

    fn ended(&self, owing: &BTreeSet<Uuid>, before: i64) -> Ended {
        Ended {
            is_direct: self.hidden == Hidden::Direct,
            is_dead: self.dead == Dead::Letter,
            owes: owing.contains(&self.task) || owes_cancel(self.aftermath, self.at, before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    /// Ten thousand tasks, of which a step looks at some.
    #[tokio::test]
    async fn what_goes_is_found_by_indexes() {
        let database = testing::database().await;
        let client = database.client().await;
        client
            .batch_execute(
                "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, turn, agent_id,
                   context_id, state, hidden)
                 SELECT gen_random_uuid(), 7, 1, 1, n, 1, 1, 'echo', n::text, 'completed', CASE WHEN n % 10 = 0 THEN 2 ELSE 0 END
                 FROM generate_series(1, 10000) n;
                 INSERT INTO idempotency (tenant_id, key, fingerprint, task, turn)
                   SELECT 7, convert_to(task_id::text, 'UTF8'), '', task_id, 1 FROM a2a_tasks;
                 ANALYZE",
            )
            .await
            .unwrap();
        let plan = async |sql: &str, values: &[&(dyn tokio_postgres::types::ToSql + Sync)]| {
            let rows = client.query(&format!("EXPLAIN (COSTS OFF) {sql}"), values).await.unwrap();
            rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect::<String>()
        };
        let nobody = uuid(TaskId::from_u128(0));
        for (hidden, index) in [(0, "a2a_tasks_listed"), (2, "a2a_tasks_direct")] {
            let plan = plan(&look_at(hidden), &[&7i64, &100i64, &nobody, &5i64, &200i64, &i64::MAX]).await;
            assert!(plan.contains(index) && !plan.contains("Seq Scan") && !plan.contains("Sort"), "{plan}");
        }
        let of_tenant = plan(OF_TENANT, &[&7i64, &51i64]).await;
        let is_walk = of_tenant.contains("a2a_tasks_context") && !of_tenant.contains("Sort");
        assert!(is_walk && !of_tenant.contains("Seq Scan"), "{of_tenant}");
        let plan = plan(ALL_KEYS, &[&vec![nobody]]).await;
        assert!(plan.contains("idempotency_task"), "{plan}");
    }
}
