//! Reading and locking what a batch of operations needs, in one round trip (two when work is claimed).
//!
//! **Nobody waits in a circle.** Every transaction of every instance takes its locks in one order: idempotency keys,
//! then tasks, then tenants at their bound, then counters, each sorted. What is claimed comes by `SKIP LOCKED`: it
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
//! **Claims.** `FOR UPDATE SKIP LOCKED` passes over tasks that another instance is claiming or writing to at this
//! moment; the server checks again that a task is due once its row is locked. A task that was passed over is still due
//! at the next look (test: `no_work_is_leased_twice`).
//!
//! **Bounds hold across instances.** What a tenant uses is a sum over shards, which two instances could read at the same
//! time. So whoever comes near a bound on tasks takes a lock of the tenant's before reading it; far from it that
//! cannot matter (test: `instances_do_not_pass_a_bound_together`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    batch::{Batch, Key, KeyOf, Use},
    writer::{MAX_BATCH, Session},
};
use crate::{
    Accept, AgentId, Append, Error, Quota, Result, Target, TaskId, TenantId, codec,
    ops::{Hidden, TaskRow},
};

/// Why a batch could not be read.
pub(super) enum Trouble {
    /// The server said so, or is gone.
    Server(tokio_postgres::Error),
    /// What was read makes no sense.
    Other(Error),
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
    /// About how much it will write.
    pub(super) bytes: usize,
    task: Option<TaskId>,
    /// The messages of that task's inbox may matter.
    inbox: bool,
    key: Option<(KeyOf, Use)>,
    quota: Option<(TenantId, Quota)>,
    claim: Option<(Vec<AgentId>, usize)>,
}

impl Need {
    pub(super) fn accept(tenant: TenantId, accept: &Accept) -> Self {
        let (task, turn, begins) = match &accept.target {
            Target::New { task, .. } => (*task, 1, true),
            // Which turn it will be is known when it was accepted.
            Target::Continue { task, .. } => (*task, 0, false),
        };
        let reserve = accept.idempotency.as_ref().map(|key| {
            let expires = key.expires.map(|at| at.as_millis());
            ((tenant, key.key), Use { fingerprint: key.fingerprint.to_vec(), task, turn, expires })
        });
        let quota = Quota { tasks: accept.quota.tasks.filter(|_| begins), bytes: accept.quota.bytes };
        Self {
            task: (!begins).then_some(task),
            inbox: !begins,
            key: reserve,
            quota: (quota != Quota::default()).then_some((tenant, quota)),
            claim: None,
            // Once as an event, once as a message.
            bytes: accept.message.len() * 2,
        }
    }

    pub(super) fn append(task: TaskId, append: &Append) -> Self {
        let bytes = append.drafts.iter().map(|draft| draft.body.len() * 2).sum();
        Self { bytes, ..Self::task(task, append.end.is_some()) }
    }

    pub(super) fn task(task: TaskId, inbox: bool) -> Self {
        Self { task: Some(task), inbox, ..Self::default() }
    }

    pub(super) fn claim(agents: &[AgentId], limit: usize) -> Self {
        Self { claim: Some((agents.to_vec(), limit)), ..Self::default() }
    }
}

/// What all operations of a batch need.
#[derive(Default)]
pub(super) struct Needs {
    tasks: BTreeSet<TaskId>,
    inboxes: BTreeSet<TaskId>,
    keys: BTreeMap<KeyOf, Use>,
    /// The tenants to which bounds apply, with the lowest bound on their tasks.
    quotas: BTreeMap<TenantId, Option<u64>>,
    /// How many tasks of which agents. Operations that ask for the same agents are answered from one claim.
    claims: BTreeMap<Vec<AgentId>, usize>,
}

impl Needs {
    pub(super) fn add(&mut self, need: &Need) {
        if let Some(task) = need.task {
            self.tasks.insert(task);
            if need.inbox {
                self.inboxes.insert(task);
            }
        }
        if let Some((key, reserve)) = &need.key {
            self.keys.entry(*key).or_insert_with(|| reserve.clone());
        }
        if let Some((tenant, quota)) = need.quota {
            let lowest = self.quotas.entry(tenant).or_default();
            *lowest = lowest.iter().copied().chain(quota.tasks).min();
        }
        if let Some((agents, limit)) = &need.claim
            && !agents.is_empty()
        {
            let mut agents = agents.clone();
            agents.sort();
            agents.dedup();
            *self.claims.entry(agents).or_default() += limit;
        }
    }
}

/// So far below its bound a tenant's tasks may be counted without a lock: as many as sixteen instances can add at once.
const MARGIN: i64 = 16 * MAX_BATCH as i64;

/// Makes the locks of tenants at their bound different from other advisory locks.
const QUOTA_LOCKS: i64 = 0x5357_5155_4f54_0000;

/// The columns that [`read_row`] reads, for every statement that loads rows.
macro_rules! columns {
    () => {
        "t.task_id, t.tenant_id, t.agent_id, t.context_id, t.state, t.created_at, t.updated_at, t.status_at, \
         t.status_message, t.status_turn, t.seq, t.hidden, t.due_at, t.owner, t.generation, t.attempt, t.turn, \
         t.waiting, t.cancel_mark, t.remembers"
    };
}

/// What the keys `$2, $3` stand for, beside the tasks `$1`.
macro_rules! tasks_and_keys {
    () => {
        "($1::uuid[] || ARRAY(SELECT i.task FROM unnest($2::bigint[], $3::bytea[]) AS k (tenant_id, key)
           JOIN idempotency i ON i.tenant_id = k.tenant_id AND i.key = k.key))"
    };
}

const RESERVE: &str = "INSERT INTO idempotency AS i (tenant_id, key, fingerprint, task, turn, expires)
     SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::uuid[], $5::integer[], $6::bigint[])
     ON CONFLICT (tenant_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, task = excluded.task, turn = excluded.turn, expires = excluded.expires
       WHERE i.expires <= $7
     RETURNING tenant_id, key";

const FIND: &str = "SELECT i.tenant_id, i.key, i.fingerprint, i.task, i.turn, i.expires
     FROM unnest($1::bigint[], $2::bytea[]) AS k (tenant_id, key)
     JOIN idempotency i ON i.tenant_id = k.tenant_id AND i.key = k.key";

const LOCK: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM a2a_tasks t WHERE t.task_id = ANY ",
    tasks_and_keys!(),
    " ORDER BY t.task_id FOR UPDATE OF t"
);

/// Of a turn that runs and has nothing behind it nobody reads the message.
const INBOX: &str = concat!(
    "SELECT m.task, m.turn, m.status = 'in_progress', m.body
     FROM a2a_tasks t JOIN a2a_messages m ON m.task = t.task_id
     WHERE (t.waiting > 0 OR (t.due_at IS NOT NULL AND t.owner IS NULL)) AND m.status IN ('pending', 'in_progress')
       AND t.task_id = ANY ",
    tasks_and_keys!()
);

const CLAIM: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM a2a_tasks t WHERE t.due_at <= $1 AND t.agent_id = ANY ($2::text[])
     ORDER BY t.due_at LIMIT $3 FOR UPDATE OF t SKIP LOCKED"
);

const CLAIMED_INBOX: &str = "SELECT m.task, m.turn, m.status = 'in_progress', m.body FROM a2a_messages m
     WHERE m.task = ANY ($1::uuid[]) AND m.status IN ('pending', 'in_progress')";

const QUOTA: &str = "SELECT pg_advisory_xact_lock(q.lock)
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS q (tenant_id, bound, lock)
     WHERE q.bound <= (SELECT coalesce(sum(u.tasks), 0) FROM tenant_usage u WHERE u.tenant_id = q.tenant_id)";

const USAGE: &str = "SELECT u.tenant_id, sum(u.tasks)::bigint, sum(u.bytes)::bigint FROM tenant_usage u
     WHERE u.tenant_id = ANY ($1::bigint[]) GROUP BY u.tenant_id";

/// Prepared on every writing session.
pub(super) const STATEMENTS: [&str; 8] = [RESERVE, FIND, LOCK, INBOX, CLAIM, CLAIMED_INBOX, QUOTA, USAGE];

/// Begins a transaction and reads into `batch` what its operations need.
pub(super) async fn fetch(session: &Session, needs: &Needs, now: i64, batch: &mut Batch) -> Result<(), Trouble> {
    let tasks = uuids(&needs.tasks);
    let inboxes = uuids(&needs.inboxes);
    let keys = KeyColumns::of(&needs.keys);
    let quotas = QuotaColumns::of(&needs.quotas);
    let has_keys = !needs.keys.is_empty();
    let no_tenants: Vec<i64> = Vec::new();
    let no_keys: Vec<&[u8]> = Vec::new();
    let (key_tenants, key_hashes) = if has_keys { (&keys.tenants, &keys.keys) } else { (&no_tenants, &no_keys) };

    // Sent in this order without waiting in between. After a failure the server refuses the rest of them.
    let (begun, reserved, found, locked, claimed, inbox, near, used) = tokio::join!(
        biased;
        session.begin(),
        async {
            session
                .query_if(
                    has_keys,
                    RESERVE,
                    &[&keys.tenants, &keys.keys, &keys.fingerprints, &keys.tasks, &keys.turns, &keys.expires, &now],
                )
                .await
        },
        async { session.query_if(has_keys, FIND, &[&keys.tenants, &keys.keys]).await },
        async { session.query_if(has_keys || !tasks.is_empty(), LOCK, &[&tasks, key_tenants, key_hashes]).await },
        claim(session, needs, now),
        async { session.query_if(has_keys || !inboxes.is_empty(), INBOX, &[&inboxes, key_tenants, key_hashes]).await },
        async {
            session.query_if(!quotas.bounded.is_empty(), QUOTA, &[&quotas.bounded, &quotas.bounds, &quotas.locks]).await
        },
        async { session.query_if(!quotas.all.is_empty(), USAGE, &[&quotas.all]).await },
    );
    begun?;
    for row in reserved? {
        let key = key_of(&row)?;
        if let Some(reserved) = needs.keys.get(&key) {
            batch.keys.insert(key, Key { reserved: Some(reserved.clone()), used: None, changed: false });
        }
    }
    for row in found? {
        let key = key_of(&row)?;
        let used = Use {
            fingerprint: row.try_get(2)?,
            task: task_id(row.try_get(3)?),
            turn: count(row.try_get(4)?),
            expires: row.try_get(5)?,
        };
        batch.keys.entry(key).or_insert_with(|| Key { reserved: None, used: Some(used), changed: false });
    }
    for row in locked? {
        batch.know_task(read_row(&row)?);
    }
    let mut claims = Vec::new();
    for row in claimed? {
        let row = read_row(&row)?;
        claims.push(uuid(row.task));
        batch.know_task(row);
    }
    for row in inbox? {
        know_message(batch, &row)?;
    }
    near?;
    for tenant in needs.quotas.keys() {
        batch.usage.entry(*tenant).or_default().before = Some((0, 0));
    }
    for row in used? {
        let before = Some((row.try_get(1)?, row.try_get(2)?));
        batch.usage.entry(TenantId(row.try_get(0)?)).or_default().before = before;
    }
    if !claims.is_empty() {
        for row in session.query(CLAIMED_INBOX, &[&claims]).await? {
            know_message(batch, &row)?;
        }
    }
    Ok(())
}

async fn claim(session: &Session, needs: &Needs, now: i64) -> Result<Vec<Row>, tokio_postgres::Error> {
    let mut claimed = Vec::new();
    for (agents, limit) in &needs.claims {
        let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
        let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
        claimed.extend(session.query(CLAIM, &[&now, &agents, &limit]).await?);
    }
    Ok(claimed)
}

#[derive(Default)]
struct KeyColumns<'a> {
    tenants: Vec<i64>,
    keys: Vec<&'a [u8]>,
    fingerprints: Vec<&'a [u8]>,
    tasks: Vec<Uuid>,
    turns: Vec<i32>,
    expires: Vec<Option<i64>>,
}

impl<'a> KeyColumns<'a> {
    fn of(keys: &'a BTreeMap<KeyOf, Use>) -> Self {
        let mut columns = Self::default();
        for ((tenant, key), reserve) in keys {
            columns.tenants.push(tenant.0);
            columns.keys.push(key);
            columns.fingerprints.push(&reserve.fingerprint);
            columns.tasks.push(uuid(reserve.task));
            columns.turns.push(number(reserve.turn));
            columns.expires.push(reserve.expires);
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
    locks: Vec<i64>,
}

impl QuotaColumns {
    fn of(quotas: &BTreeMap<TenantId, Option<u64>>) -> Self {
        let mut columns = Self::default();
        for (tenant, tasks) in quotas {
            columns.all.push(tenant.0);
            if let Some(limit) = tasks {
                columns.bounded.push(tenant.0);
                columns.bounds.push(codec::signed(*limit) - MARGIN);
                columns.locks.push(tenant.0 ^ QUOTA_LOCKS);
            }
        }
        columns
    }
}

/// A row of a statement that selects `columns!()`.
fn read_row(row: &Row) -> Result<TaskRow> {
    let mut task = TaskRow::new(
        0,
        task_id(row.try_get(0)?),
        TenantId(row.try_get(1)?),
        codec::parse_agent(row.try_get(2)?)?,
        row.try_get::<_, &str>(3)?.into(),
        Hidden::from_code(row.try_get::<_, i16>(11)?.into()),
        codec::time(row.try_get(5)?),
    );
    task.state = codec::parse_state(row.try_get(4)?)?;
    task.updated_at = row.try_get(6)?;
    task.status_at = row.try_get(7)?;
    task.status_message = row.try_get::<_, Option<String>>(8)?.map(Bytes::from);
    task.status_turn = count(row.try_get(9)?);
    task.seq = codec::unsigned(row.try_get(10)?);
    task.due_at = row.try_get(12)?;
    task.owner = row.try_get(13)?;
    task.generation = codec::unsigned(row.try_get(14)?);
    task.attempt = count(row.try_get(15)?);
    task.turn = count(row.try_get(16)?);
    task.waiting = count(row.try_get(17)?);
    task.cancel_mark = row.try_get(18)?;
    task.remembers = row.try_get(19)?;
    Ok(task.stored())
}

fn know_message(batch: &mut Batch, row: &Row) -> Result<()> {
    let body: Vec<u8> = row.try_get(3)?;
    batch.know_message(task_id(row.try_get(0)?), count(row.try_get(1)?), row.try_get(2)?, body.into());
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
