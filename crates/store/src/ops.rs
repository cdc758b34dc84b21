//! The operations that write, once for every backend: what is decided, in which order it is read and written.
//!
//! An operation sees the journal through [`Tx`] and never through SQL. It decides whether it is refused before its
//! first write, so that a refusal leaves nothing behind; what fails after that fails the transaction.

mod accept;
mod administer;
mod append;
mod cancel;
pub(crate) mod columns;
mod lease;
mod push;
pub(crate) mod requests;
mod row;

use a2a::{TaskState, Timestamp};
use bytes::Bytes;

pub(crate) use self::{
    accept::accept,
    administer::{
        RegistryTx, add_admin_token, administer, create_agent, put_card, remove_agent, replace_agent, replace_setting,
        revoke_admin_token, set_setting,
    },
    append::append,
    cancel::{force, mark, owe_again, reveal, settle, wake},
    columns::task_columns,
    lease::{claim, claim_task},
    push::{put_push, remove_push},
    row::{Aftermath, Dead, Hidden, Owes, TaskRow},
};
use crate::{AgentId, Claim, Event, IdempotencyKey, LeaseTime, NewPush, Quota, Result, TaskId, TenantId, Turn};

/// The transaction that an operation is part of: what it can read and write.
///
/// Implementations may write at once (SQLite) or gather and write before the commit (PostgreSQL); either way an
/// operation reads what those before it in the same transaction have written.
pub(crate) trait Tx {
    /// The time here, by which leases are measured.
    fn now(&self) -> LeaseTime;
    /// Work became due or a cancel mark was set: tell those who wait for such, after the commit.
    fn poke(&mut self);

    /// The key of a new task's row.
    fn new_key(&mut self) -> Result<i64>;
    /// The tenant's task, hidden or not.
    fn load(&mut self, tenant: TenantId, task: TaskId) -> Result<TaskRow>;
    /// What is due of that which is claimed, fairly chosen.
    fn due(&mut self, claim: &Claim) -> Result<Vec<TaskRow>>;
    /// Writes a new row.
    fn insert(&mut self, row: TaskRow) -> Result<()>;
    /// Writes a changed row.
    fn save(&mut self, row: TaskRow) -> Result<()>;
    /// Writes the log's end of a row that has not changed otherwise.
    fn touch(&mut self, row: TaskRow) -> Result<()>;

    /// Appends an event that the row has numbered.
    fn log(&mut self, row: &TaskRow, event: Event) -> Result<()>;

    /// Adds a message.
    fn add_message(&mut self, row: &TaskRow, message: NewMessage<'_>) -> Result<()>;
    /// Whether the current turn has not ended.
    fn has_current_turn(&mut self, row: &TaskRow) -> Result<bool>;
    /// The message that the current turn works on, if the turn has not ended.
    fn current_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>>;
    /// The oldest message of the inbox.
    fn waiting_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>>;
    /// The oldest message of the inbox is worked on from now on; `row.turn` is its turn already.
    fn begin_turn(&mut self, row: &TaskRow) -> Result<()>;
    /// The current turn's message has been dealt with.
    fn end_turn(&mut self, row: &TaskRow) -> Result<()>;

    /// Adds an artifact or, when it is to be appended, a chunk of one.
    fn add_artifact(&mut self, row: &TaskRow, artifact_id: &str, append: bool, body: &Bytes) -> Result<()>;
    /// Removes an artifact. Returns the bytes that have to be taken off the tenant's usage.
    fn remove_artifact(&mut self, row: &TaskRow, artifact_id: &str) -> Result<i64>;
    /// Removes what the current turn has made after that event of the task; all of it for zero. Returns the bytes that have
    /// to be taken off the tenant's usage.
    fn remove_artifacts_of_turn(&mut self, row: &TaskRow, after: u64) -> Result<i64>;

    /// What an idempotency key was first used for, unless it has expired.
    fn find_key(&mut self, tenant: TenantId, key: &IdempotencyKey) -> Result<Option<FirstUse>>;
    /// Remembers what the key is used for. What may be replaced by that has expired.
    fn remember(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()>;

    /// The push configurations of a task, by id, with the bytes that each takes.
    fn pushes(&mut self, row: &TaskRow) -> Result<Vec<(String, i64)>>;
    /// Makes or replaces a push configuration. A new one is told of what comes after the event `from`.
    fn put_push(&mut self, row: &TaskRow, new: &NewPush, from: u64, at: Timestamp) -> Result<()>;
    /// Removes a push configuration.
    fn remove_push(&mut self, row: &TaskRow, id: &str) -> Result<()>;
    /// Says that the log has something to tell; those of the task's push configurations whom it concerns are due.
    fn owe(&mut self, row: &TaskRow, owes: Owes) -> Result<()>;

    /// Changes the number of visible tasks.
    fn count(&mut self, tenant: TenantId, agent: &AgentId, state: TaskState, n: i64);
    /// A tenant has so many more tasks that have not ended, and so many more bytes.
    fn add_usage(&mut self, tenant: TenantId, tasks: i64, bytes: i64);
    /// Refuses a message of a tenant that has come to its bound; `begins` when it would be one task more.
    fn check_quota(&mut self, tenant: TenantId, quota: Quota, begins: bool) -> Result<()>;
}

/// A message to add.
pub(crate) struct NewMessage<'a> {
    pub(crate) id: &'a str,
    pub(crate) role: &'static str,
    /// As it stands in `messages.status`.
    pub(crate) status: &'static str,
    pub(crate) turn: u32,
    pub(crate) body: &'a Bytes,
    pub(crate) at: Timestamp,
}

/// A message of an inbox.
#[derive(Clone)]
pub(crate) enum InboxMessage {
    Here(Bytes),
    /// It has so many bytes and does not come with its lease.
    Large(u64),
}

impl InboxMessage {
    /// The most bytes of a message that is read. Claims of a queue are bounded as a whole.
    pub(crate) fn most(queued: bool) -> i64 {
        if queued { i64::MAX } else { i64::try_from(Turn::WITH_LEASE).unwrap_or(i64::MAX) }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Here(body) => body.len() as u64,
            Self::Large(bytes) => *bytes,
        }
    }

    fn into_turn(self, number: u32, request: Option<u64>) -> Result<Turn> {
        Ok(match self {
            Self::Here(body) => Turn { message: serde_json::from_slice(&body)?, number, unread: 0, request },
            Self::Large(unread) => Turn { message: a2a::Message::default(), number, unread, request },
        })
    }
}

/// What an idempotency key was first used for.
pub(crate) struct FirstUse {
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) task: TaskId,
    pub(crate) turn: u32,
}

/// What a message has become.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    /// The key of its task's row.
    pub(crate) pk: i64,
    pub(crate) task: TaskId,
    pub(crate) turn: u32,
}

/// Refuses what would go beyond a bound, given what the tenant uses now.
pub(crate) fn within_quota(quota: Quota, begins: bool, tasks: i64, bytes: i64) -> Result<()> {
    let unsigned = |n| u64::try_from(n).unwrap_or(0);
    if begins
        && let Some(limit) = quota.tasks
        && unsigned(tasks) >= limit
    {
        return Err(crate::Error::TooManyTasks { limit });
    }
    if let Some(limit) = quota.bytes
        && unsigned(bytes) >= limit
    {
        return Err(crate::Error::TooMuchStored { limit });
    }
    Ok(())
}
