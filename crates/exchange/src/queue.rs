//! The queue's verbs: publish, consume, claim, heartbeat, progress, ack, nack, execute, dead letters and their replay.
//!
//! They are operations on the same tasks. An entry's message id is its task's id. What a worker holds is a sealed lease
//! ([`ticket`]): any instance writes for it, knowing no more than what the ticket says and the journal has kept, and a write
//! under a lease that was lost changes nothing. How far a turn has come is kept with what it says, so that ids go on where the
//! call before left them.

mod desk;
mod hand;
mod hold;
mod lapse;
mod publish;
mod steps;
mod ticket;

use std::{fmt, sync::Arc, time::Duration};

use a2a::{Json, Message, Part, PartContent, TaskState, Timestamp};
use bytes::Bytes;
use store::{AgentId, AgentQueue, Letters, QueueEntry, Scope, TaskId, TenantId};

pub(crate) use self::desk::Desk;
use self::ticket::LONGEST_NAME;
use crate::{Caller, Delivery, Error, Exchange, Inner, Luggage, RequestOptions, convert, heavy};

/// How long a lease lasts that nobody asked to be longer or shorter.
const LEASE: Duration = Duration::from_secs(300);
/// The longest that a lease may last.
const LONGEST_LEASE: Duration = Duration::from_secs(12 * 60 * 60);
/// The longest that a call waits for something.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest that an entry can be kept back.
const LONGEST_DELAY: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The most entries of one call.
const MOST_AT_ONCE: usize = 100;
/// How many bytes of messages one call reads, unless its first entry has more by itself.
const MOST_BYTES: u64 = 2 << 20;
/// How many bytes of earlier messages an agent is told about: what [`store::Journal::history`] reads at most, with a last message.
const MOST_TOLD: u64 = 16 << 20;
/// How often a message is in memory while it is answered: as it is read, and three times in the answer (`text` or `payload`, `message` and
/// `history`).
const COPIES: u64 = 4;

/// Who is told of everything that is published, beside the queue. It must not wait, and nothing depends on it.
pub trait Relay: Send + Sync + 'static {
    /// Passes an object with `message` and `task` on, in 1.0 JSON.
    fn forward(&self, body: Bytes);
}

/// A relay, as an option.
#[derive(Clone)]
pub struct RelayTo(pub Arc<dyn Relay>);

impl fmt::Debug for RelayTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelayTo(_)")
    }
}

/// Who asks for work.
#[derive(Debug, Clone)]
pub enum Worker {
    /// A tenant, for its own entries.
    Tenant(Caller),
    /// The installation's own, for those of all tenants.
    Operator,
}

/// Work to hand out.
#[derive(Debug)]
pub struct Publish {
    /// Who wants it.
    pub from: String,
    /// Whose work it is. Nobody has to serve that agent.
    pub to: String,
    /// What is to be done, for people.
    pub text: String,
    /// The same for programs.
    pub payload: Option<Json>,
    /// What it belongs to: the context of its task.
    pub correlation_id: Option<String>,
    /// How long nobody gets it.
    pub delay: Duration,
    /// Of two that wait the higher one comes first.
    pub priority: u8,
    /// How often it may be tried.
    pub max_attempts: Option<u32>,
}

/// A wish for work.
#[derive(Debug, Clone, Default)]
pub struct Consume {
    /// At most so many.
    pub max: Option<usize>,
    /// For how long.
    pub lease: Option<Duration>,
    /// How long to wait for the first.
    pub wait: Duration,
    /// What the worker calls itself.
    pub worker: Option<String>,
}

/// An entry and the message that began it.
#[derive(Debug)]
pub struct Shown {
    /// The entry.
    pub entry: QueueEntry,
    /// The message.
    pub first: Message,
}

/// Some of a tenant's dead letters.
#[derive(Debug)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<Shown>,
    /// What those after them come after, if there are any.
    pub next: Option<(Timestamp, TaskId)>,
}

/// An entry in a worker's hands.
#[derive(Debug)]
pub struct Handed {
    /// The entry.
    pub entry: QueueEntry,
    /// What the worker shows to write to it.
    pub ticket: String,
    /// How long that is good for.
    pub lasts: Duration,
    /// What is to be worked on.
    pub message: Message,
    /// What its caller said beside it.
    pub request: RequestOptions,
    /// Which turn of the task that is.
    pub turn: u32,
    /// Which attempt at it.
    pub attempt: u32,
    /// The task's messages, ending with this one. None of them in the first turn.
    pub history: Vec<Message>,
    /// What came before in the context.
    pub context_history: Vec<Message>,
    /// What the agent last kept.
    pub state: Option<Bytes>,
}

/// What a worker has to say with the end of its work.
#[derive(Debug, Default)]
pub struct Ack {
    /// What came of it: an artifact.
    pub result: Option<Json>,
    /// What it says about that.
    pub text: Option<String>,
}

/// Why a worker does not go on.
#[derive(Debug, Default)]
pub struct Nack {
    /// Why.
    pub error: String,
    /// How long to wait before the next attempt.
    pub delay: Option<Duration>,
    /// It was given back: no attempt that counts.
    pub release: bool,
    /// No other attempt would do better.
    pub fatal: bool,
}

/// The events that a worker reports in one call.
#[derive(Debug)]
pub struct Report {
    /// Number of the call, counted from 1 by the worker. A call whose answer was lost may be repeated: its events are written once.
    pub number: Option<u64>,
    /// The events, in order.
    pub words: Vec<crate::words::Word>,
    /// Whether AUTH_REQUIRED ends the turn.
    pub ends: bool,
}

/// How a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The task is canceled: the worker should stop.
    pub canceled: bool,
    /// How long the lease is good for.
    pub lasts: Duration,
}

/// A dead letter and what repeats it.
#[derive(Debug)]
pub struct Replayed {
    /// The dead letter.
    pub letter: TaskId,
    /// The new entry.
    pub entry: QueueEntry,
}

impl Worker {
    fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Tenant(caller) => Some(caller.tenant),
            Self::Operator => None,
        }
    }

    /// The tenant whose share of the memory a call takes. Those of operators count together.
    fn counts_for(&self) -> TenantId {
        self.tenant().unwrap_or(TenantId(0))
    }

    /// Refuses whoever may not work: that is seeing what was said, and answering it.
    fn may_work(&self) -> Result<(), Error> {
        self.needs(Scope::Read)?;
        self.needs(Scope::Send)
    }

    fn needs(&self, scope: Scope) -> Result<(), Error> {
        match self {
            Self::Tenant(caller) => caller.needs(scope),
            Self::Operator => Ok(()),
        }
    }

    fn covers(&self, agent: &AgentId) -> bool {
        match self {
            Self::Tenant(caller) => caller.covers(agent.as_str()),
            Self::Operator => true,
        }
    }
}

/// Starts the loops.
pub(crate) fn start(inner: &Arc<Inner>) {
    inner.workers.loops.spawn(desk::serve(Arc::clone(inner)));
    inner.workers.loops.spawn(lapse::watch_leases(Arc::clone(inner)));
}

/// What a queue calls the state of an entry.
pub fn status(state: TaskState, dead: bool) -> &'static str {
    match state {
        _ if dead => "dlq",
        TaskState::Submitted | TaskState::Unspecified => "pending",
        TaskState::Working => "in_progress",
        TaskState::Completed => "acked",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input_required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "auth_required",
    }
}

/// What the publisher said that an entry belongs to, if it did.
pub fn correlation_id(entry: &QueueEntry) -> Option<&str> {
    Some(entry.context.as_ref()).filter(|context| *context != local_context(entry.task))
}

impl Exchange {
    /// A task as the queue sees it, with the message that began it.
    pub async fn queue_entry(&self, worker: &Worker, id: &str, luggage: &Luggage) -> Result<Shown, Error> {
        worker.needs(Scope::Read)?;
        let entry = self.entry(worker, convert::task_id(id)?).await?;
        self.make_room(worker, entry.first_bytes, luggage).await?;
        self.show(entry).await
    }

    /// Takes room for messages of an entry and for the answer that is made of them, before they are read.
    async fn make_room(&self, worker: &Worker, bytes: u64, luggage: &Luggage) -> Result<(), Error> {
        self.inner.flight.take_more(worker.counts_for(), bytes.saturating_mul(COPIES), luggage).await
    }

    /// Reads the message that began an entry. There is room for it.
    async fn show(&self, entry: QueueEntry) -> Result<Shown, Error> {
        let body = self.inner.store.first_message(entry.tenant, entry.task).await;
        let body = body.map_err(|error| Error::of_task(error, entry.task))?;
        let first = heavy(body.len(), || serde_json::from_slice(&body)).unwrap_or_default();
        Ok(Shown { entry, first })
    }

    /// How the tenant's queues stand, agent by agent.
    pub async fn queue_status(&self, caller: &Caller) -> Result<Vec<AgentQueue>, Error> {
        caller.needs(Scope::Read)?;
        let mut all = self.inner.store.agent_queues(caller.tenant).await?;
        all.retain(|queue| caller.covers(queue.agent.as_str()));
        Ok(all)
    }

    /// The tenant's dead letters, the oldest first. Where they have many bytes there are fewer than asked for, and at least one.
    pub async fn dead_letters(
        &self,
        caller: &Caller,
        letters: Letters,
        luggage: &Luggage,
    ) -> Result<LetterPage, Error> {
        caller.needs(Scope::Read)?;
        let limit = letters.limit;
        let mut found = self.letters(caller, Letters { limit: limit.saturating_add(1), ..letters }).await?;
        let all = found.len();
        let mut bytes = 0;
        let fits = found.iter().take_while(|letter| {
            let before = bytes;
            bytes += letter.first_bytes;
            before == 0 || bytes <= MOST_BYTES
        });
        let fits = fits.count().min(limit);
        found.truncate(fits);
        let next = found.last().filter(|_| fits < all).map(|last| (last.status_at, last.task));
        let bytes = found.iter().map(|letter| letter.first_bytes).sum();
        self.make_room(&Worker::Tenant(caller.clone()), bytes, luggage).await?;
        let mut letters = Vec::with_capacity(found.len());
        for letter in found {
            match self.show(letter).await {
                Ok(letter) => letters.push(letter),
                // Somebody has deleted it.
                Err(Error::TaskNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(LetterPage { letters, next })
    }

    /// Dead letters as they are listed: without what they say.
    async fn letters(&self, caller: &Caller, letters: Letters) -> Result<Vec<QueueEntry>, Error> {
        let store = &self.inner.store;
        let bound = caller.bound_to();
        if bound.is_empty() {
            return Ok(store.dead_letters(caller.tenant, letters).await?);
        }
        let mut found = Vec::new();
        for agent in bound.iter().filter(|agent| letters.agent.as_ref().is_none_or(|one| one == *agent)) {
            let of_agent = Letters { agent: Some(agent.clone()), ..letters.clone() };
            found.extend(store.dead_letters(caller.tenant, of_agent).await?);
        }
        found.sort_by_key(|letter| (letter.status_at, letter.task));
        found.truncate(letters.limit);
        Ok(found)
    }

    async fn entry(&self, worker: &Worker, task: TaskId) -> Result<QueueEntry, Error> {
        let entry = self.inner.store.entry(worker.tenant(), task).await;
        match entry.map_err(|error| Error::of_task(error, task))? {
            entry if !worker.covers(&entry.agent) => Err(Error::TaskNotFound(task.to_string())),
            entry => Ok(entry),
        }
    }

    fn most_held(&self, agent: &AgentId) -> Option<usize> {
        match self.inner.agents.common(agent)?.profile.delivery {
            Delivery::Queue { most_held } => most_held,
            Delivery::Run => None,
        }
    }
}

fn check_name(field: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        let why = format!("must be a text of 1 to {LONGEST_NAME} bytes without control characters");
        return Err(Error::invalid(field, why));
    }
    Ok(())
}

fn check_lease(lasts: Option<Duration>) -> Result<Duration, Error> {
    let lasts = lasts.unwrap_or(LEASE);
    if lasts.is_zero() || lasts > LONGEST_LEASE {
        return Err(Error::invalid(
            "lease",
            format!("must be more than 0 and at most {} seconds", LONGEST_LEASE.as_secs()),
        ));
    }
    Ok(lasts)
}

fn check_wait(wait: Duration) -> Result<(), Error> {
    if wait > LONGEST_WAIT {
        return Err(Error::invalid("wait", format!("must be at most {} seconds", LONGEST_WAIT.as_secs())));
    }
    Ok(())
}

/// The context of an entry that belongs to nothing.
fn local_context(task: TaskId) -> String {
    format!("local-{task}")
}

fn data_part(json: Json) -> Part {
    Part { media_type: "application/json".to_owned(), ..Part::new(PartContent::Data(json)) }
}

/// Why nobody can have an entry.
fn why_not(entry: &QueueEntry) -> String {
    let held = entry.lease.as_ref().map(|lease| lease.holder.name().to_owned());
    match (held, entry.state) {
        (_, state) if state.is_terminal() => format!("the task has ended as {}", state.as_str()),
        (Some(holder), _) => format!("{holder} holds it"),
        (None, state) if state.is_interrupted() => format!("the task waits for its caller ({})", state.as_str()),
        (None, _) if !entry.queued => "the task is run by the server itself".to_owned(),
        (None, _) if entry.canceled => "the task is being canceled".to_owned(),
        (None, _) => "it waits again".to_owned(),
    }
}
