//! Reading and locking what a batch of operations needs, in one round trip (a few more when work is claimed).
//!
//! **Nobody waits in a circle.** Every transaction of every instance takes its locks in one order: idempotency keys,
//! then tasks, then agents whose queue has a bound, then tenants at their bound, then counters, each sorted. What is claimed comes by `SKIP LOCKED`: it
//! never waits, so it may come in any order (test: `instances_that_write_the_same_tasks_do_not_deadlock`).
//!
//! **A key has one first use.** The keys of a batch are inserted before its operations run. An insert of a key that
//! another instance has inserted and not committed yet waits for that commit; after it, one of the two has the key and
//! the other reads what it stands for. A key whose operation is refused is taken back before the commit (test:
//! `one_of_two_instances_wins_a_key`).
//!
//! **What is read holds.** Statements run at READ COMMITTED, so each sees what was committed before it began. The inbox
//! is read after the row of its task was locked, and nobody writes to the inbox of a task without that lock.
//!
//! **Claims** go over the heads of the line, one look-up for each tenant that has work, and then take each tenant's share,
//! oldest first. `FOR UPDATE SKIP LOCKED` passes over tasks that another instance is claiming or writing to at this
//! moment; the server checks again that a task is due once its row is locked. A task that was passed over is still due
//! at the next look (test: `no_work_is_leased_twice`).
//!
//! **Bounds hold across instances.** What a tenant uses is a sum over shards, which two instances could read at the same
//! time. So whoever comes near a bound on tasks has a lock of the tenant's for itself before reading it. Far from it the
//! lock is shared, and nobody waits: such a batch begins at most a [`STEP`]th of the bound, and goes on only if, read under
//! the lock, as many instances as there are could each begin so many; else it starts anew. The one that reads last knows
//! of all the others but one batch of each other instance, so together they stay within the bound. Whoever has the lock for
//! itself knows of all (tests: `instances_do_not_pass_a_bound_together`, `a_slow_instance_does_not_pass_a_bound`,
//! `far_from_its_bound_a_tenant_needs_no_lock`).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};

use tokio_postgres::{Row, error::SqlState};
use uuid::Uuid;

use super::{
    batch::{Batch, Key, KeyOf, Use},
    writer::Session,
};
use crate::{
    Accept, Append, Claim, Error, Lease, LeaseTime, Line, Quota, Result, Room, Target, TaskId, TenantId, Turn, TurnEnd,
    codec,
    fair::Cost,
    lease,
    ops::{InboxMessage, TaskRow, columns, columns::Columns, task_columns},
};

/// A statement that is put together from lists of columns.
pub(super) type Sql = LazyLock<&'static str>;

/// How many entries of queues that have a bound may still be held, by agent.
pub(super) type Free = HashMap<String, usize>;

/// A row that was claimed, and how much there is to read for it.
struct Claimed {
    row: Row,
    /// The length of its inbox. That is counted for queues only.
    bytes: u64,
    /// Its claim takes it. One that is too long for its claim is known all the same, so that the claim can say so.
    fits: bool,
}

/// Why a batch could not be read.
pub(super) enum Trouble {
    /// The server said so, or is gone.
    Server(tokio_postgres::Error),
    /// What was read makes no sense.
    Other(Error),
    /// A tenant came near its bound while its lock was waited for.
    Near,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// What one operation needs to read.
#[derive(Default)]
pub(super) struct Need {
    pub(super) cost: Cost,
    task: Option<TaskId>,
    /// The messages of that task's inbox may matter.
    inbox: bool,
    key: Option<(KeyOf, Reserve)>,
    quota: Option<(TenantId, Quota)>,
    begins: bool,
    claim: Option<Claim>,
    /// Which push configurations that task has matters.
    pushes: bool,
}

/// What an idempotency key will stand for.
#[derive(Clone)]
struct Reserve {
    fingerprint: Vec<u8>,
    task: TaskId,
    turn: u32,
    /// How long it is kept, in milliseconds.
    keep: Option<i64>,
}

impl Need {
    pub(super) fn accept(tenant: TenantId, accept: &Accept) -> Self {
        let (task, turn, replays, begins) = match &accept.target {
            Target::New { task, post, .. } => (*task, 1, post.replays, true),
            // Which turn it will be is known when it was accepted.
            Target::Continue { task, .. } => (*task, 0, None, false),
        };
        let reserve = accept.idempotency.as_ref().map(|key| {
            let keep = key.keep.map(lease::millis);
            ((tenant, key.key), Reserve { fingerprint: key.fingerprint.to_vec(), task, turn, keep })
        });
        let quota = Quota { tasks: accept.quota.tasks.filter(|_| begins), bytes: accept.quota.bytes };
        Self {
            // A task that a turn hands on repeats no dead letter.
            task: if begins { replays.or(accept.parent.as_ref().map(|parent| parent.task)) } else { Some(task) },
            inbox: !begins,
            key: reserve,
            quota: (quota != Quota::default()).then_some((tenant, quota)),
            begins,
            claim: None,
            pushes: accept.push.is_some() && !begins,
            cost: Cost::of(tenant, accept.bytes()),
        }
    }

    pub(super) fn append(lease: &Lease, append: &Append) -> Self {
        // A direct reply takes the configurations of its task along, if there are any.
        let pushes = matches!(append.end, Some(TurnEnd::Reply { .. }));
        let cost = Cost::of(lease.tenant, append.bytes());
        Self { cost, pushes, ..Self::task(lease.tenant, lease.task, append.end.is_some()) }
    }

    pub(super) fn task(tenant: TenantId, task: TaskId, inbox: bool) -> Self {
        Self { cost: tenant.into(), task: Some(task), inbox, ..Self::default() }
    }

    pub(super) fn pushes(tenant: TenantId, task: TaskId) -> Self {
        Self { pushes: true, ..Self::task(tenant, task, false) }
    }

    /// Reads nothing.
    #[cfg(test)]
    pub(super) fn of(cost: Cost) -> Self {
        Self { cost, ..Self::default() }
    }

    pub(super) fn claim(claim: &Claim) -> Self {
        Self { claim: Some(claim.clone()), ..Self::default() }
    }
}

/// What all operations of a batch need.
#[derive(Default)]
pub(super) struct Needs {
    tasks: BTreeSet<TaskId>,
    inboxes: BTreeSet<TaskId>,
    keys: BTreeMap<KeyOf, Reserve>,
    /// The tenants to which bounds apply.
    quotas: BTreeMap<TenantId, Bound>,
    claims: Vec<Claim>,
    pushes: BTreeSet<TaskId>,
}

#[derive(Default)]
struct Bound {
    /// The lowest bound on the tenant's tasks.
    tasks: Option<u64>,
    /// How many tasks the batch may begin.
    begins: u64,
}

impl Needs {
    pub(super) fn add(&mut self, need: &Need) {
        if let Some(task) = need.task {
            self.tasks.insert(task);
            if need.inbox {
                self.inboxes.insert(task);
            }
            if need.pushes {
                self.pushes.insert(task);
            }
        }
        if let Some((key, reserve)) = &need.key {
            self.keys.entry(*key).or_insert_with(|| reserve.clone());
        }
        if let Some((tenant, quota)) = need.quota {
            let bound = self.quotas.entry(tenant).or_default();
            bound.tasks = bound.tasks.iter().copied().chain(quota.tasks).min();
            bound.begins += u64::from(need.begins);
        }
        self.claims.extend(need.claim.clone());
    }
}

/// A batch that begins more than this part of what a tenant may have takes the tenant's lock for itself in any case.
const STEP: u64 = 64;

/// Makes the locks of tenants at their bound different from other advisory locks.
pub(super) const QUOTA_LOCKS: i64 = 0x5357_5155_4f54_0000;

/// What the keys `$2, $3` stand for, beside the tasks `$1`.
macro_rules! tasks_and_keys {
    () => {
        "($1::uuid[] || ARRAY(SELECT i.task FROM unnest($2::bigint[], $3::bytea[]) AS k (tenant_id, key)
           JOIN idempotency i ON i.tenant_id = k.tenant_id AND i.key = k.key))"
    };
}

const RESERVE: &str = "INSERT INTO idempotency AS i (tenant_id, key, fingerprint, task, turn, expires)
     SELECT k.tenant_id, k.key, k.fingerprint, k.task, k.turn, lease_now() + k.keep
     FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::uuid[], $5::integer[], $6::bigint[])
       AS k (tenant_id, key, fingerprint, task, turn, keep)
     ON CONFLICT (tenant_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, task = excluded.task, turn = excluded.turn, expires = excluded.expires
       WHERE i.expires <= lease_now()
     RETURNING tenant_id, key, expires";

const FIND: &str = "SELECT i.tenant_id, i.key, i.fingerprint, i.task, i.turn, i.expires
     FROM unnest($1::bigint[], $2::bytea[]) AS k (tenant_id, key)
     JOIN idempotency i ON i.tenant_id = k.tenant_id AND i.key = k.key";

/// The begin of every statement whose rows [`read_row`] reads, from `t`.
pub(super) fn select() -> String {
    format!("SELECT t.task_id, {} FROM", columns::list(columns::all(), |(name, sql)| format!("t.{name}::{sql}")))
}

static LOCK: Sql = Sql::new(|| {
    let tasks = tasks_and_keys!();
    format!("{} a2a_tasks t WHERE t.task_id = ANY {tasks} ORDER BY t.task_id FOR UPDATE OF t", select()).leak()
});

/// Of a turn that runs and has nothing behind it nobody reads the message.
const INBOX: &str = concat!(
    "SELECT m.task, m.turn, m.status = 'in_progress', octet_length(m.body),
       CASE WHEN t.queued OR octet_length(m.body) <= $4 THEN m.body END
     FROM a2a_tasks t JOIN messages m ON m.task = t.task_id
     WHERE (t.waiting > 0 OR (t.due_at IS NOT NULL AND t.owner IS NULL)) AND m.status IN ('pending', 'in_progress')
       AND t.task_id = ANY ",
    tasks_and_keys!()
);

/// `line`: each tenant that has anything due or running with one of the agents `$1`, and the earliest time of it.
macro_rules! line {
    () => {
        "WITH RECURSIVE line (agent, tenant_id, due_at) AS (
       (SELECT a.agent, h.tenant_id, h.due_at FROM unnest($1::text[]) AS a (agent) CROSS JOIN LATERAL (
          SELECT t.tenant_id, t.due_at FROM a2a_tasks t WHERE t.agent_id = a.agent AND t.due_at IS NOT NULL AND NOT t.queued
          ORDER BY t.tenant_id, t.due_at LIMIT 1) h)
       UNION ALL
       SELECT l.agent, h.tenant_id, h.due_at FROM line l CROSS JOIN LATERAL (
          SELECT t.tenant_id, t.due_at FROM a2a_tasks t
          WHERE t.agent_id = l.agent AND t.tenant_id > l.tenant_id AND t.due_at IS NOT NULL AND NOT t.queued
          ORDER BY t.tenant_id, t.due_at LIMIT 1) h) "
    };
}
pub(super) use line;

/// The tenants that have work due with the agents `$1`.
const LINE: &str = concat!(line!(), "SELECT agent, tenant_id FROM line WHERE due_at <= lease_now()");

/// `$3` tasks of each agent `$1` and tenant `$2`, but none of `$4`. Which of them `$5` may have: see `lease.rs`.
static CLAIM: Sql = Sql::new(|| {
    let due = "FROM a2a_tasks t
       WHERE t.agent_id = w.agent AND t.tenant_id = w.tenant_id AND t.due_at <= lease_now() AND NOT t.queued
         AND NOT t.task_id = ANY ($4::uuid[])
         AND (t.owner IS NULL OR t.owner <> $5 OR NOT t.task_id = ANY ($6::uuid[]))
       ORDER BY t.due_at LIMIT w.share FOR UPDATE SKIP LOCKED";
    let shares = "unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (agent, tenant_id, share)";
    format!("{} {shares} CROSS JOIN LATERAL (SELECT * {due}) t", select()).leak()
});

/// How many entries of each of the queues `$1` may still be held, if `$2` may be in all. Nobody else counts at the same time.
const HELD: &str = "SELECT a.agent, greatest(a.most - (SELECT count(*) FROM a2a_tasks t
       WHERE t.agent_id = a.agent AND t.queued AND t.owner IS NOT NULL AND t.due_at IS NOT NULL), 0)
     FROM unnest($1::text[], $2::bigint[]) AS a (agent, most)";
const HELD_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended(a.agent, $2))::text
     FROM (SELECT u.agent FROM unnest($1::text[]) WITH ORDINALITY AS u (agent, place) ORDER BY u.place OFFSET 0) a";

/// The tenants in the queue of an agent `$1`, or the one `$2`, the priorities of what waits there, and up to `$3` of each.
const QUEUE_LINE: &str = "WITH RECURSIVE line (tenant_id) AS (
       (SELECT min(t.tenant_id) FROM a2a_tasks t WHERE t.agent_id = $1 AND t.due_at IS NOT NULL AND t.queued)
       UNION ALL
       SELECT (SELECT min(t.tenant_id) FROM a2a_tasks t
          WHERE t.agent_id = $1 AND t.tenant_id > l.tenant_id AND t.due_at IS NOT NULL AND t.queued)
       FROM line l WHERE l.tenant_id IS NOT NULL AND $2::bigint IS NULL)
     SELECT l.tenant_id, p.level, w.n
     FROM (SELECT tenant_id FROM line WHERE $2::bigint IS NULL AND tenant_id IS NOT NULL
           UNION ALL SELECT $2::bigint WHERE $2::bigint IS NOT NULL) l
       CROSS JOIN generate_series(0, 9) AS p (level)
       CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM a2a_tasks t
          WHERE t.agent_id = $1 AND t.tenant_id = l.tenant_id AND t.queued AND t.priority = p.level
            AND t.due_at <= lease_now() AND t.owner IS NULL
          ORDER BY t.due_at LIMIT $3) due) w
     WHERE w.n > 0 ORDER BY l.tenant_id, p.level DESC";

/// `$4` entries of the agent `$1`, the tenant `$2` and the priority `$3`, but none of `$5`, each with the length of its inbox.
static QUEUE_CLAIM: Sql = Sql::new(|| {
    let due = ", (SELECT coalesce(sum(octet_length(m.body)), 0)::bigint FROM messages m
         WHERE m.task = t.task_id AND m.status IN ('pending', 'in_progress')) FROM a2a_tasks t
       WHERE t.agent_id = $1 AND t.tenant_id = $2 AND t.queued AND t.priority = $3
         AND t.due_at <= lease_now() AND t.owner IS NULL AND NOT t.task_id = ANY ($5::uuid[])
       ORDER BY t.due_at LIMIT $4 FOR UPDATE OF t SKIP LOCKED";
    let select = select();
    format!("{} {due}", select.strip_suffix(" FROM").unwrap_or(&select)).leak()
});

const CLAIMED_INBOX: &str = "SELECT m.task, m.turn, m.status = 'in_progress', octet_length(m.body),
       CASE WHEN t.queued OR octet_length(m.body) <= $2 THEN m.body END
     FROM messages m JOIN a2a_tasks t ON t.task_id = m.task
     WHERE m.task = ANY ($1::uuid[]) AND m.status IN ('pending', 'in_progress')";

/// Takes the locks of tenants, those that are near their bounds for itself. Tells which those are, and how far from its
/// bound a tenant must be to share its lock.
const QUOTA: &str = "SELECT n.tenant_id, n.near, greatest(n.bound - n.reach, 0)::bigint, CASE WHEN n.near
       THEN pg_advisory_xact_lock(n.lock)::text ELSE pg_advisory_xact_lock_shared(n.lock)::text END
     FROM (
       SELECT q.tenant_id, q.lock, q.bound, q.step::numeric * i.n AS reach, q.large OR q.bound < q.step::numeric * i.n
         + (SELECT coalesce(sum(u.tasks), 0) FROM tenant_usage u WHERE u.tenant_id = q.tenant_id) AS near
       FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[]) WITH ORDINALITY
           AS q (tenant_id, bound, step, lock, large, place)
         CROSS JOIN (SELECT count(*) + 1 AS n FROM instances) i
       ORDER BY q.place OFFSET 0) n";

/// Makes the locks of agents whose queue has a bound different from other advisory locks.
const HELD_LOCKS: i64 = 0x5357_4845_4c44_0000;

const NOW: &str = "SELECT lease_now()";

/// The push configurations of tasks, with the bytes that each takes. Nobody adds or removes one without the task's lock.
const PUSHES: &str = "SELECT task, config_id, bytes FROM push_configs WHERE task = ANY ($1::uuid[])";

const USAGE: &str = "SELECT u.tenant_id, sum(u.tasks)::bigint, sum(u.bytes)::bigint FROM tenant_usage u
     WHERE u.tenant_id = ANY ($1::bigint[]) GROUP BY u.tenant_id";

/// Prepared on every writing session.
pub(super) fn statements() -> [&'static str; 15] {
    [
        RESERVE,
        FIND,
        *LOCK,
        INBOX,
        LINE,
        *CLAIM,
        CLAIMED_INBOX,
        QUOTA,
        USAGE,
        NOW,
        PUSHES,
        HELD,
        HELD_LOCK,
        QUEUE_LINE,
        *QUEUE_CLAIM,
    ]
}

/// Begins a transaction and reads into `batch` what its operations need.
pub(super) async fn fetch(session: &Session, needs: &Needs, batch: &mut Batch) -> Result<(), Trouble> {
    let tasks = uuids(&needs.tasks);
    let inboxes = uuids(&needs.inboxes);
    let with_lease = i32::try_from(Turn::WITH_LEASE).unwrap_or(i32::MAX);
    let keys = KeyColumns::of(&needs.keys);
    let quotas = QuotaColumns::of(&needs.quotas);
    let has_keys = !needs.keys.is_empty();
    let no_tenants: Vec<i64> = Vec::new();
    let no_keys: Vec<&[u8]> = Vec::new();
    let (key_tenants, key_hashes) = if has_keys { (&keys.tenants, &keys.keys) } else { (&no_tenants, &no_keys) };

    // Sent in this order without waiting in between. After a failure the server refuses the rest of them.
    let (begun, reserved, found, locked, claimed, inbox, bounded, used, now) = tokio::join!(
        biased;
        session.begin(),
        async {
            session
                .query_if(
                    has_keys,
                    RESERVE,
                    &[&keys.tenants, &keys.keys, &keys.fingerprints, &keys.tasks, &keys.turns, &keys.keeps],
                )
                .await
        },
        async { session.query_if(has_keys, FIND, &[&keys.tenants, &keys.keys]).await },
        async { session.query_if(has_keys || !tasks.is_empty(), *LOCK, &[&tasks, key_tenants, key_hashes]).await },
        claim(session, needs),
        async { session.query_if(has_keys || !inboxes.is_empty(), INBOX, &[&inboxes, key_tenants, key_hashes, &with_lease]).await },
        async {
            session
                .query_if(
                    !quotas.bounded.is_empty(),
                    QUOTA,
                    &[&quotas.bounded, &quotas.bounds, &quotas.steps, &quotas.locks, &quotas.large],
                )
                .await
        },
        async { session.query_if(!quotas.all.is_empty(), USAGE, &[&quotas.all]).await },
        // The last: whatever had to be waited for has been.
        async { session.query(NOW, &[]).await },
    );
    let mut failure = None;
    rows_or_failure(begun, &mut failure);
    let reserved = rows_or_failure(reserved, &mut failure);
    let found = rows_or_failure(found, &mut failure);
    let locked = rows_or_failure(locked, &mut failure);
    let (claimed, free) = rows_or_failure(claimed, &mut failure);
    let inbox = rows_or_failure(inbox, &mut failure);
    let bounded = rows_or_failure(bounded, &mut failure);
    let used = rows_or_failure(used, &mut failure);
    let now = rows_or_failure(now, &mut failure);
    if let Some(error) = failure {
        return Err(error.into());
    }
    for row in reserved {
        let key = key_of(&row)?;
        if let Some(Reserve { fingerprint, task, turn, .. }) = needs.keys.get(&key) {
            let reserved = Use { fingerprint: fingerprint.clone(), task: *task, turn: *turn, expires: row.try_get(2)? };
            batch.keys.insert(key, Key { reserved: Some(reserved), used: None, changed: false });
        }
    }
    for row in found {
        let key = key_of(&row)?;
        let used = Use {
            fingerprint: row.try_get(2)?,
            task: task_id(row.try_get(3)?),
            turn: count(row.try_get(4)?),
            expires: row.try_get(5)?,
        };
        batch.keys.entry(key).or_insert_with(|| Key { reserved: None, used: Some(used), changed: false });
    }
    for row in locked {
        batch.know_task(read_row(&row)?);
    }
    let mut claims = Vec::new();
    batch.free = free;
    for Claimed { row, bytes, fits } in claimed {
        let task: Uuid = row.try_get(0)?;
        match read_row(&row) {
            Ok(row) => {
                if fits {
                    claims.push(task);
                    batch.know_claimed(row);
                } else {
                    batch.know_too_long(row, bytes);
                }
            }
            Err(error) => {
                tracing::error!(task.id = %task, %error, "a due task cannot be read and steps aside");
                batch.step_aside(task);
            }
        }
    }
    for row in inbox {
        know_message(batch, &row)?;
    }
    if let Some(row) = now.first() {
        batch.now = LeaseTime(row.try_get(0)?);
    }
    for tenant in needs.quotas.keys() {
        batch.usage.entry(*tenant).or_default().before = Some((0, 0));
    }
    for row in used {
        let before = Some((row.try_get(1)?, row.try_get(2)?));
        batch.usage.entry(TenantId(row.try_get(0)?)).or_default().before = before;
    }
    for row in bounded {
        let (tenant, near, far): (i64, bool, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (tasks, _) = batch.usage.entry(TenantId(tenant)).or_default().before.unwrap_or_default();
        if !near && tasks > far {
            return Err(Trouble::Near);
        }
        batch.quota_locks += usize::from(near);
    }
    let has_pushes = |task: &&TaskId| batch.tasks.get(*task).is_some_and(|entry| entry.row.pushes > 0);
    let pushing: Vec<Uuid> = needs.pushes.iter().filter(has_pushes).map(|task| uuid(*task)).collect();
    if !pushing.is_empty() {
        for row in session.query(PUSHES, &[&pushing]).await? {
            let (id, bytes) = (row.try_get(1)?, row.try_get(2)?);
            batch.pushes.entry(task_id(row.try_get(0)?)).or_default().insert(id, bytes);
        }
    }
    if !claims.is_empty() {
        for row in session.query(CLAIMED_INBOX, &[&claims, &with_lease]).await? {
            know_message(batch, &row)?;
        }
    }
    Ok(())
}

/// What a statement of the pipeline returned. A failure aborts the transaction, and the statements behind it fail with
/// 25P02: the failure that is kept is the one that aborted it, in whatever order the results are looked at.
fn rows_or_failure<T: Default>(
    result: Result<T, tokio_postgres::Error>,
    failure: &mut Option<tokio_postgres::Error>,
) -> T {
    result.unwrap_or_else(|error| {
        let follows = |error: &tokio_postgres::Error| error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION);
        if failure.as_ref().is_none_or(follows) {
            *failure = Some(error);
        }
        T::default()
    })
}

/// Locks what is claimed, each tenant's share of it.
async fn claim(session: &Session, needs: &Needs) -> Result<(Vec<Claimed>, Free), tokio_postgres::Error> {
    let mut claimed: Vec<Claimed> = Vec::new();
    let mut taken: Vec<Uuid> = Vec::new();
    let mut bounds: BTreeMap<&str, i64> = BTreeMap::new();
    for room in needs.claims.iter().filter(|claim| claim.line != Line::Running).flat_map(|claim| &claim.room) {
        if let Some(most) = room.most_held {
            bounds.insert(room.agent.as_str(), i64::try_from(most).unwrap_or(i64::MAX));
        }
    }
    let (agents, most): (Vec<&str>, Vec<i64>) = bounds.into_iter().unzip();
    // Both are on their way before anything else of the batch that takes a lock.
    let (locked, held) = tokio::join!(
        biased;
        async { session.query_if(!agents.is_empty(), HELD_LOCK, &[&agents, &HELD_LOCKS]).await },
        async { session.query_if(!agents.is_empty(), HELD, &[&agents, &most]).await },
    );
    locked?;
    let mut free = Free::new();
    for row in held? {
        free.insert(row.try_get(0)?, usize::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0));
    }
    let mut left = free.clone();
    for claim in &needs.claims {
        if let Line::Queue(only) = claim.line {
            for room in &claim.room {
                let rows = claim_queue(session, room, only, &mut taken, left.get(room.agent.as_str()).copied()).await?;
                if let Some(left) = left.get_mut(room.agent.as_str()) {
                    *left = left.saturating_sub(rows.iter().filter(|entry| entry.fits).count());
                }
                claimed.extend(rows);
            }
            continue;
        }
        let mut agents: Vec<&str> = claim.room.iter().map(|room| room.agent.as_str()).collect();
        agents.sort_unstable();
        agents.dedup();
        let line = session.query_if(!agents.is_empty(), LINE, &[&agents]).await?;
        let mut stands = Stand::all(claim, &line)?;
        let (me, running) = (claim.term.holder.as_str(), uuids(&claim.running.iter().copied().collect()));
        // Who has had less than its share has no more (of what may be taken), and the others share the rest.
        while !stands.is_empty() {
            let given = || stands.iter().filter(|stand| stand.share > 0);
            let agents: Vec<&str> = given().map(|stand| stand.room.agent.as_str()).collect();
            let tenants: Vec<i64> = given().map(|stand| stand.tenant.0).collect();
            let shares: Vec<i64> = given().map(|stand| i64::try_from(stand.share).unwrap_or(i64::MAX)).collect();
            let rows = session.query(*CLAIM, &[&agents, &tenants, &shares, &taken, &me, &running]).await?;
            let mut found: BTreeMap<(String, i64), usize> = BTreeMap::new();
            for row in &rows {
                taken.push(row.try_get(0)?);
                *found.entry((row.try_get(2)?, row.try_get(1)?)).or_default() += 1;
            }
            claimed.extend(rows.into_iter().map(|row| Claimed { row, bytes: 0, fits: true }));
            stands = Stand::again(stands, &found);
        }
    }
    Ok((claimed, free))
}

/// Locks what is claimed of a queue: of each tenant the higher first, then the older. What others are taking is passed over, and
/// the next in line comes in its place.
async fn claim_queue(
    session: &Session,
    room: &Room,
    only: Option<TenantId>,
    taken: &mut Vec<Uuid>,
    free: Option<usize>,
) -> Result<Vec<Claimed>, tokio_postgres::Error> {
    let agent = room.agent.as_str();
    let slots = i64::try_from(free.map_or(room.slots, |free| room.slots.min(free))).unwrap_or(i64::MAX);
    if slots <= 0 {
        return Ok(Vec::new());
    }
    let only = only.map(|tenant| tenant.0);
    // As many more as this batch has taken already: those are counted, and cannot be had.
    let reach = slots.saturating_add(i64::try_from(taken.len()).unwrap_or(0));
    let line = session.query(QUEUE_LINE, &[&agent, &only, &reach]).await?;
    let mut levels: BTreeMap<TenantId, Vec<(i32, usize)>> = BTreeMap::new();
    for row in &line {
        let waiting = usize::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0);
        levels.entry(TenantId(row.try_get(0)?)).or_default().push((row.try_get(1)?, waiting));
    }
    let tenants = lease::in_line(levels.keys().copied().collect(), room.after);
    let waiting: Vec<usize> =
        tenants.iter().map(|tenant| levels[tenant].iter().map(|(_, waiting)| waiting).sum()).collect();
    let shares = lease::share(usize::try_from(slots).unwrap_or(0), &waiting);
    let mut lines = Vec::new();
    for (tenant, share) in tenants.into_iter().zip(shares) {
        let (mut left, mut line) = (share, Vec::new());
        for (level, _) in &levels[&tenant] {
            if left == 0 {
                break;
            }
            let wanted = i64::try_from(left).unwrap_or(i64::MAX);
            let rows = session.query(*QUEUE_CLAIM, &[&agent, &tenant.0, level, &wanted, &*taken]).await?;
            left = left.saturating_sub(rows.len());
            for row in rows {
                let bytes = codec::unsigned(row.try_get(row.len() - 1)?);
                line.push(Claimed { row, bytes, fits: false });
            }
        }
        lines.push(line);
    }
    let mut claimed = lease::one_by_one(lines);
    let mut room = room.most_bytes;
    let fits = claimed.iter().take_while(|entry| {
        let fits = entry.bytes <= room;
        room = room.saturating_sub(entry.bytes);
        fits
    });
    let fits = fits.count();
    // The first is kept even where it does not fit. The others wait.
    claimed.truncate(fits.max(1));
    for entry in claimed.iter_mut().take(fits) {
        entry.fits = true;
        taken.push(entry.row.try_get(0)?);
    }
    Ok(claimed)
}

/// A tenant in an agent's line.
struct Stand<'a> {
    room: &'a Room,
    tenant: TenantId,
    /// How many turns it has got so far.
    has: usize,
    /// How many it is given now.
    share: usize,
    /// How many all of this line are given now.
    left: usize,
}

impl<'a> Stand<'a> {
    fn all(claim: &'a Claim, line: &[Row]) -> Result<Vec<Self>, tokio_postgres::Error> {
        let mut tenants: BTreeMap<String, Vec<TenantId>> = BTreeMap::new();
        for row in line {
            tenants.entry(row.try_get(0)?).or_default().push(TenantId(row.try_get(1)?));
        }
        let mut stands = Vec::new();
        for room in &claim.room {
            let Some(tenants) = tenants.get(room.agent.as_str()) else { continue };
            let may = |tenant: &TenantId| room.tenants.have(*tenant) && room.shares.left(*tenant) > 0;
            let theirs = tenants.iter().copied().filter(may).collect();
            let tenants = lease::in_line(theirs, room.after);
            let line = tenants.into_iter().map(|tenant| Self { room, tenant, has: 0, share: 0, left: 0 }).collect();
            stands.extend(Self::shared(line, room.slots));
        }
        Ok(stands)
    }

    /// Those who got all that they were given, or were given nothing, with a new share of what is left.
    fn again(stands: Vec<Self>, found: &BTreeMap<(String, i64), usize>) -> Vec<Self> {
        let mut lines: Vec<(usize, Vec<Self>)> = Vec::new();
        let mut room: Option<&Room> = None;
        for mut stand in stands {
            if room.is_none_or(|room| !std::ptr::eq(room, stand.room)) {
                room = Some(stand.room);
                lines.push((stand.left, Vec::new()));
            }
            let Some((left, line)) = lines.last_mut() else { continue };
            let got = found.get(&(stand.room.agent.to_string(), stand.tenant.0)).copied().unwrap_or(0);
            *left = left.saturating_sub(got);
            stand.has += got;
            if got == stand.share && stand.has < stand.room.shares.left(stand.tenant) {
                line.push(stand);
            }
        }
        lines.into_iter().flat_map(|(left, line)| Self::shared(line, left)).collect()
    }

    /// Shares what is left of an agent's room: who has had least comes first.
    fn shared(mut line: Vec<Self>, left: usize) -> Vec<Self> {
        if left == 0 {
            return Vec::new();
        }
        line.sort_by_key(|stand| stand.has);
        let most = |stand: &Self| stand.room.shares.left(stand.tenant) - stand.has;
        let shares = lease::share(left, &line.iter().map(most).collect::<Vec<_>>());
        for (stand, share) in line.iter_mut().zip(shares) {
            stand.left = left;
            stand.share = share;
        }
        line
    }
}

#[derive(Default)]
struct KeyColumns<'a> {
    tenants: Vec<i64>,
    keys: Vec<&'a [u8]>,
    fingerprints: Vec<&'a [u8]>,
    tasks: Vec<Uuid>,
    turns: Vec<i32>,
    keeps: Vec<Option<i64>>,
}

impl<'a> KeyColumns<'a> {
    fn of(keys: &'a BTreeMap<KeyOf, Reserve>) -> Self {
        let mut columns = Self::default();
        for ((tenant, key), reserve) in keys {
            columns.tenants.push(tenant.0);
            columns.keys.push(key);
            columns.fingerprints.push(&reserve.fingerprint);
            columns.tasks.push(uuid(reserve.task));
            columns.turns.push(number(reserve.turn));
            columns.keeps.push(reserve.keep);
        }
        columns
    }
}

#[derive(Default)]
struct QuotaColumns {
    all: Vec<i64>,
    /// Those with a bound on tasks.
    bounded: Vec<i64>,
    bounds: Vec<i64>,
    /// How many tasks a batch may begin that shares its tenant's lock.
    steps: Vec<i64>,
    locks: Vec<i64>,
    large: Vec<bool>,
}

impl QuotaColumns {
    fn of(quotas: &BTreeMap<TenantId, Bound>) -> Self {
        let mut columns = Self::default();
        for (tenant, bound) in quotas {
            columns.all.push(tenant.0);
            if let Some(limit) = bound.tasks {
                columns.bounded.push(tenant.0);
                let step = (limit / STEP).max(1);
                columns.bounds.push(codec::signed(limit));
                columns.steps.push(codec::signed(step));
                columns.locks.push(tenant.0 ^ QUOTA_LOCKS);
                columns.large.push(bound.begins > step);
            }
        }
        columns
    }
}

/// A row of a statement that begins with [`select`].
pub(super) fn read_row(row: &Row) -> Result<TaskRow> {
    let mut next = 0;
    macro_rules! get {
        ($([$once:ident $once_sql:ident $once_type:ty])*; $([$name:ident $sql:ident $type:ty])*) => {
            Columns {
                $($once: { next += 1; row.try_get(next)? },)*
                $($name: { next += 1; row.try_get(next)? },)*
            }
        };
    }
    let columns = task_columns!(get);
    columns.row(0, task_id(row.try_get(0)?))
}

fn know_message(batch: &mut Batch, row: &Row) -> Result<()> {
    let message = match row.try_get::<_, Option<Vec<u8>>>(4)? {
        Some(body) => InboxMessage::Here(body.into()),
        None => InboxMessage::Large(codec::unsigned(row.try_get::<_, i32>(3)?.into())),
    };
    batch.know_message(task_id(row.try_get(0)?), count(row.try_get(1)?), row.try_get(2)?, message);
    Ok(())
}

fn key_of(row: &Row) -> Result<KeyOf> {
    let key: &[u8] = row.try_get(1)?;
    let key = key.try_into().map_err(|_| Error::Damaged("an idempotency key is not 32 bytes long".into()))?;
    Ok((TenantId(row.try_get(0)?), key))
}

fn uuids(tasks: &BTreeSet<TaskId>) -> Vec<Uuid> {
    tasks.iter().map(|task| uuid(*task)).collect()
}

pub(super) fn uuid(task: TaskId) -> Uuid {
    Uuid::from_u128(task.as_u128())
}

pub(super) fn task_id(uuid: Uuid) -> TaskId {
    TaskId::from_u128(uuid.as_u128())
}

/// How small numbers look in an integer column. Ours never come near its end.
pub(super) fn number(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn count(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::{super::testing, *};
    use crate::{Draft, Holder, Post, Term, clock};

    /// Begins a task of a tenant that may have this number of tasks.
    pub(in super::super) fn accept(task: TaskId, tasks: u64) -> Accept {
        let agent = "echo".parse().unwrap();
        let at = clock::now();
        Accept {
            target: Target::New {
                task,
                agent,
                context: "c".into(),
                created: "{}".into(),
                hold: false,
                remembers: true,
                post: Post::default(),
                origin: None,
                tells_cancel: false,
            },
            message_id: "m".into(),
            message: "{}".into(),
            idempotency: None,
            lease: None,
            working: Draft::status(task, "c", a2a::TaskState::Working, None, None, at).unwrap(),
            push: None,
            quota: Quota { tasks: Some(tasks), bytes: None },
            parent: None,
            request: None,
            at,
        }
    }

    /// The statements behind the one that waited for the lock fail with 25P02, and some of their results are read first.
    #[tokio::test]
    async fn a_lock_timeout_is_reported_and_not_what_follows_from_it() {
        let database = testing::database().await;
        let tenant = TenantId(1);
        let holder = database.client().await;
        holder.execute("SELECT pg_advisory_lock($1)", &[&(tenant.0 ^ QUOTA_LOCKS)]).await.unwrap();
        let session = Session::open(&database.connector()).await.unwrap();
        session.client.batch_execute("SET lock_timeout = '20ms'").await.unwrap();

        let accepted = Need::accept(tenant, &accept(TaskId::mint(), 1));
        let holder = Holder::from(crate::InstanceId::mint());
        let rooms = vec![Room::new("echo".parse().unwrap(), 1)];
        let claim = Need::claim(&Claim::new(Term { holder, lasts: Duration::from_secs(60) }, rooms));
        for beside in [None, Some(&claim)] {
            let mut needs = Needs::default();
            needs.add(&accepted);
            if let Some(claim) = beside {
                needs.add(claim);
            }
            let fetched = fetch(&session, &needs, &mut Batch::new()).await;
            let Err(Trouble::Server(error)) = fetched else { panic!("the lock is taken") };
            assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE), "{error:?}");
            assert!(matches!(Error::from(error), Error::Unavailable(_)));
            session.client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}
