//! The queue's verbs: publish, consume, claim, heartbeat, progress, ack, nack, execute, dead letters and their replay.
//!
//! They are operations on the same tasks. An entry's message id is its task's id. What a worker holds is a sealed lease
//! ([`ticket`]): any instance writes for it, knowing no more than what the ticket says and the journal has kept, and a write
//! under a lease that was lost changes nothing. How far a turn has come is kept with what it says, so that ids go on where the
//! call before left them.

mod desk;
mod ticket;

use std::{sync::Arc, time::Duration};

use a2a::{Json, Message, Part, PartContent, Role, TaskState};
use bytes::Bytes;
use store::{
    Accept, AgentId, AgentQueue, Append, Claim, Draft, EventKind, Holder, IdempotencyKey, Lease, LeasedTurn, Letters,
    Post, QueueEntry, Room, Snapshot, Target, TaskId, TenantId, Term, TurnEnd, View, Wish, clock,
};
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

pub(crate) use self::desk::Desk;
use self::{desk::Promise, ticket::LONGEST_NAME};
use crate::{
    Call, Caller, Delivery, Error, Exchange, Inner, Outcome, ReplyText, Said, attempts, convert,
    cursor::Cursor,
    intake::{answered, newborn_snapshot},
    scribe::Scribe,
    turn::{self, Left},
    words::Word,
    worker::{self, Begin},
};

/// How long a lease lasts that nobody asked to be longer or shorter.
pub const LEASE: Duration = Duration::from_secs(300);
/// The longest that a lease may last.
pub const LONGEST_LEASE: Duration = Duration::from_secs(12 * 60 * 60);
/// The longest that a call waits for something.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest that an entry can be kept back.
pub const LONGEST_DELAY: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The most entries of one call.
pub const MOST_AT_ONCE: usize = 100;

/// How often an entry is tried when neither it nor its agent says.
const ATTEMPTS: u32 = 3;
/// How many leases that ran out are dealt with at once.
const LAPSED: usize = 100;
/// How often a write is tried again that another one under the same lease has overtaken.
const MOVES: usize = 16;
/// How long an `Idempotency-Key` is remembered.
const KEEP_KEYS: Duration = Duration::from_secs(24 * 60 * 60);

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
    /// Which turn of the task that is.
    pub turn: u32,
    /// Which attempt at it.
    pub attempt: u32,
    /// The task's messages, ending with this one.
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
}

/// Starts the loops.
pub(crate) fn start(inner: &Arc<Inner>) {
    inner.workers.loops.spawn(desk::serve(Arc::clone(inner)));
    inner.workers.loops.spawn(watch_leases(Arc::clone(inner)));
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

impl Exchange {
    /// Makes an entry, durable before this returns.
    pub async fn publish(&self, call: &Call, publish: Publish) -> Result<QueueEntry, Error> {
        let Publish { from, to, text, payload, correlation_id, delay, priority, max_attempts } = publish;
        let agent: AgentId = to.parse().map_err(|why| Error::invalid("to", format!("is no agent's id: {why}")))?;
        Self::check_name("from", &from)?;
        if text.is_empty() && payload.is_none() {
            return Err(Error::invalid("text", "is required, unless there is a payload"));
        }
        if priority > store::queue::HIGHEST {
            return Err(Error::invalid("priority", format!("must be at most {}", store::queue::HIGHEST)));
        }
        if max_attempts == Some(0) {
            return Err(Error::invalid("maxAttempts", "must be at least 1"));
        }
        if delay > LONGEST_DELAY {
            return Err(Error::invalid("delay", format!("must be at most {} seconds", LONGEST_DELAY.as_secs())));
        }
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part { media_type: "text/plain".to_owned(), ..Part::text(text) });
        }
        if let Some(payload) = payload {
            parts.push(data_part(payload));
        }
        let post = Post { queued: true, from: from.into(), priority, max_attempts, delay, replays: None };
        self.post(call, agent, parts, correlation_id, Vec::new(), post).await
    }

    /// Takes a new entry in.
    async fn post(
        &self,
        call: &Call,
        agent: AgentId,
        parts: Vec<Part>,
        correlation_id: Option<String>,
        references: Vec<String>,
        post: Post,
    ) -> Result<QueueEntry, Error> {
        let inner = &self.inner;
        if inner.draining.is_cancelled() {
            return Err(Error::Stopping);
        }
        let task = TaskId::mint();
        let context: Arc<str> = match correlation_id {
            Some(given) => given.into(),
            None => local_context(task).into(),
        };
        let mut message = Message {
            message_id: task.to_string(),
            role: Role::User,
            context_id: context.to_string(),
            parts,
            reference_task_ids: references,
            ..Message::default()
        };
        let request = a2a::SendMessageRequest { message: message.clone(), ..a2a::SendMessageRequest::default() };
        a2a::validate::validate_send(&request, &inner.options.limits).map_err(of_publish)?;
        message.task_id = task.to_string();
        let idempotency = match &call.idempotency_key {
            Some(key) => {
                let anonymous = Message { message_id: String::new(), task_id: String::new(), ..message.clone() };
                let anonymous = if message.context_id == local_context(task) {
                    Message { context_id: String::new(), ..anonymous }
                } else {
                    anonymous
                };
                let key = convert::digest(&[b"publish", key.as_bytes()]);
                let fingerprint = convert::fingerprint(agent.as_str(), &anonymous)?;
                Some(IdempotencyKey { key, fingerprint, keep: Some(KEEP_KEYS) })
            }
            None => None,
        };
        let at = clock::now();
        let body = Bytes::from(serde_json::to_vec(&message).map_err(store::Error::from)?);
        let created = newborn_snapshot(task, &agent, &context, at, &body).created()?;
        let replays = post.replays;
        let target =
            Target::New { task, agent, context: Arc::clone(&context), created, hold: false, remembers: true, post };
        let accept = Accept {
            target,
            message_id: message.message_id,
            message: body,
            idempotency,
            lease: None,
            working: Draft::status(task, &context, TaskState::Working, None, None, at)?,
            push: None,
            quota: inner.options.quota,
            at,
        };
        let accepted = answered(inner.store.accept(call.caller.tenant, accept)).await;
        let accepted = accepted.map_err(|error| match (error, replays) {
            (store::Error::NotDead, Some(letter)) => Error::NotDead(letter.to_string()),
            (error, letter) => Error::of_task(error, letter.unwrap_or(task)),
        })?;
        self.entry(&Worker::Tenant(call.caller.clone()), accepted.task).await
    }

    /// Hands out what waits for an agent, the higher first, then the older.
    pub async fn consume(&self, worker: &Worker, agent: &str, consume: Consume) -> Result<Vec<Handed>, Error> {
        let inner = &self.inner;
        let id: AgentId = agent.parse().map_err(|why| Error::invalid("agent", format!("is no agent's id: {why}")))?;
        let max = consume.max.unwrap_or(1);
        if max == 0 || max > MOST_AT_ONCE {
            return Err(Error::invalid("max", format!("must be from 1 to {MOST_AT_ONCE}")));
        }
        if consume.wait > LONGEST_WAIT {
            return Err(Error::invalid("wait", format!("must be at most {} seconds", LONGEST_WAIT.as_secs())));
        }
        if inner.draining.is_cancelled() {
            return Err(Error::Stopping);
        }
        let term = Self::term(consume.worker, consume.lease)?;
        let lasts = term.lasts;
        let room = Room { most_held: self.most_held(&id), ..Room::new(id.clone(), max) };
        let claim = Claim::of_queue(term, worker.tenant(), room);
        let asked = Instant::now();
        let mut leased = self.claim_now(claim.clone()).await?;
        if leased.is_empty() && requeue_lapsed(inner, Some(id.clone())).await? > 0 {
            leased = self.claim_now(claim.clone()).await?;
        }
        let left = consume.wait.saturating_sub(asked.elapsed());
        if leased.is_empty() && !left.is_zero() {
            let wish = Wish { agent: id, tenant: worker.tenant() };
            leased = tokio::select! {
                leased = Promise::later(inner, wish, claim).within(left) => leased?,
                () = inner.draining.cancelled() => Vec::new(),
            };
        }
        let mut handed = Vec::with_capacity(leased.len());
        for turn in leased {
            handed.push(self.hand(turn, lasts).await?);
        }
        Ok(handed)
    }

    async fn claim_now(&self, claim: Claim) -> store::Result<Vec<LeasedTurn>> {
        let store = Arc::clone(&self.inner.store);
        answered(Promise::now(&self.inner, async move { store.claim(claim).await }).within(LONGEST_WAIT)).await
    }

    /// Hands out one entry by its id, whatever stands before it.
    pub async fn claim_entry(&self, worker: &Worker, id: &str, consume: Consume) -> Result<Handed, Error> {
        let task = convert::task_id(id)?;
        let term = Self::term(consume.worker, consume.lease)?;
        let lasts = term.lasts;
        let leased = self.take(worker, task, term).await?;
        self.hand(leased, lasts).await
    }

    /// Leases an entry by its id.
    async fn take(&self, worker: &Worker, task: TaskId, term: Term) -> Result<LeasedTurn, Error> {
        let entry = self.entry(worker, task).await?;
        if entry.lease.is_some() && entry.due_in == Some(Duration::ZERO) {
            requeue_lapsed(&self.inner, Some(entry.agent.clone())).await?;
        }
        let (store, tenant) = (Arc::clone(&self.inner.store), entry.tenant);
        let claiming = async move { store.claim_task(tenant, task, term).await.map(|leased| vec![leased]) };
        match answered(Promise::now(&self.inner, claiming).within(LONGEST_WAIT)).await {
            Ok(leased) => leased.into_iter().next().ok_or(Error::Stopping),
            Err(store::Error::NotWaiting | store::Error::Terminal(_)) => {
                Err(Error::NotWaiting(why_not(&self.entry(worker, task).await?)))
            }
            Err(error) => Err(Error::of_task(error, task)),
        }
    }

    /// Prolongs a lease, and says whether its task is canceled: at once with `wait`, as soon as it is.
    pub async fn heartbeat(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        lasts: Option<Duration>,
        wait: Duration,
    ) -> Result<Beat, Error> {
        if wait > LONGEST_WAIT {
            return Err(Error::invalid("wait", format!("must be at most {} seconds", LONGEST_WAIT.as_secs())));
        }
        let lasts = check_lease(lasts)?;
        let lease = self.lease(worker, id, ticket).await?;
        let lost = answered(self.inner.store.renew(std::slice::from_ref(&lease), lasts)).await?;
        if !lost.is_empty() {
            return Err(self.lost(&lease).await);
        }
        let watching = self.inner.desk.watch(lease.task, &lease.holder);
        let mut entry = self.entry(worker, lease.task).await?;
        if !entry.canceled && !wait.is_zero() {
            tokio::select! {
                () = watching.canceled.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.inner.draining.cancelled() => {}
            }
            entry = self.entry(worker, lease.task).await?;
        }
        if entry.lease.as_ref().is_none_or(|now| now.generation != lease.generation) {
            return Err(self.lost(&lease).await);
        }
        Ok(Beat { canceled: entry.canceled, lasts })
    }

    /// Writes what a worker says; the last word may end the turn. AUTH_REQUIRED ends it where `ends` says so.
    pub async fn progress(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        words: Vec<Word>,
        ends: bool,
    ) -> Result<TaskState, Error> {
        let longest = self.inner.options.limits.id_bytes;
        let mut said = Vec::with_capacity(words.len());
        let mut outcome = None;
        let mut auth = None;
        for (n, word) in words.into_iter().enumerate() {
            if outcome.is_some() {
                return Err(Error::invalid(&format!("events[{n}]"), "nothing may follow the end of the turn"));
            }
            auth = None;
            match word {
                Word::Said(one) => {
                    if let Said::Artifact { artifact, .. } = &one
                        && artifact.artifact_id.len() > longest
                    {
                        let field = format!("events[{n}].artifactUpdate.artifact.artifactId");
                        return Err(Error::invalid(&field, format!("must have at most {longest} bytes")));
                    }
                    if let Said::Status { auth_required: true, message, .. } = &one {
                        auth = Some(message.as_ref().map(|message| message.parts.clone()).unwrap_or_default());
                    }
                    said.push(one);
                }
                Word::End { outcome: end, .. } => outcome = Some(end),
                Word::Message(message) => outcome = Some(Outcome::Completed(message.parts)),
            }
        }
        if ends && outcome.is_none() {
            let Some(parts) = auth else {
                return Err(Error::invalid("end", "there is no event that ends the turn"));
            };
            outcome = Some(Outcome::AuthRequired(parts));
        }
        if said.is_empty() && outcome.is_none() {
            return Err(Error::invalid("events", "there is nothing in it"));
        }
        self.write(worker, id, ticket, Written { said, outcome }).await
    }

    /// Ends an entry's turn as done.
    pub async fn ack(&self, worker: &Worker, id: &str, ticket: Option<&str>, ack: Ack) -> Result<TaskState, Error> {
        let mut said = Vec::new();
        if let Some(result) = ack.result {
            let part = match serde_json::from_str::<String>(result.get()) {
                Ok(text) => Part { media_type: "text/plain".to_owned(), ..Part::text(text) },
                Err(_) => data_part(result),
            };
            let parts = vec![part];
            a2a::validate::validate_parts("result", &parts, &self.inner.options.limits)?;
            let artifact = a2a::Artifact { name: "result".to_owned(), parts, ..a2a::Artifact::default() };
            said.push(Said::Artifact { artifact, append: false, last_chunk: true, metadata: None });
        }
        let parts = ack.text.filter(|text| !text.is_empty()).map(Part::text).into_iter().collect();
        self.write(worker, id, ticket, Written { said, outcome: Some(Outcome::Completed(parts)) }).await
    }

    /// Ends an attempt that did not work: another one follows, or the entry is a dead letter.
    pub async fn nack(&self, worker: &Worker, id: &str, ticket: Option<&str>, nack: Nack) -> Result<QueueEntry, Error> {
        if nack.delay.is_some_and(|delay| delay > LONGEST_DELAY) {
            return Err(Error::invalid("delay", format!("must be at most {} seconds", LONGEST_DELAY.as_secs())));
        }
        let lease = self.lease(worker, id, ticket).await?;
        let end = if nack.release {
            TurnEnd::Release { begun: false }
        } else {
            let error = if nack.error.is_empty() { "the worker gave it back" } else { &nack.error };
            self.failed(&lease, error, nack.delay, nack.fatal)?
        };
        match answered(self.inner.store.append(&lease, Append { end: Some(end), ..Append::default() })).await {
            Ok(_) => {}
            Err(store::Error::LeaseLost | store::Error::Terminal(_)) => return Err(self.lost(&lease).await),
            Err(error) => return Err(Error::of_task(error, lease.task)),
        }
        self.inner.desk.look();
        self.entry(worker, lease.task).await
    }

    /// Runs an entry here and now, by the agent that it is for, and waits for the end of its turn, up to the cap.
    pub async fn execute(&self, call: &Call, id: &str) -> Result<Snapshot, Error> {
        let inner = &self.inner;
        let task = convert::task_id(id)?;
        let worker = Worker::Tenant(call.caller.clone());
        let entry = self.entry(&worker, task).await?;
        let runs = inner.agents.find(&call.caller, entry.agent.as_str()).filter(|agent| agent.is_run());
        let Some(agent) = runs else { return Err(Error::NotRun(entry.agent.to_string())) };
        if !entry.queued || entry.state.is_terminal() {
            return Err(Error::NotWaiting(why_not(&entry)));
        }
        let slot = tokio::time::timeout(inner.options.blocking_cap, Arc::clone(&agent.slots).acquire_owned()).await;
        let Ok(Ok(slot)) = slot else {
            return Err(Error::NotWaiting(format!("the agent `{}` has no slot free; try again", entry.agent)));
        };
        let head = self.head(call, task).await?;
        let mut cursor = Cursor::new(inner.journal(), call.caller.tenant, task, head.seq);
        // On a task of its own: whoever asked may go away, and the entry is run all the same.
        let (reply, started) = oneshot::channel();
        let here = self.clone();
        inner.tracker.spawn(async move {
            let inner = &here.inner;
            let asked = Instant::now();
            let starting = inner.workers.starting(task);
            let term = Term { holder: inner.holder.clone(), lasts: inner.options.lease };
            let leased = match here.take(&worker, task, term).await {
                Ok(leased) => leased,
                Err(error) => return drop(reply.send(Err(error))),
            };
            let running = inner.workers.register(leased.lease);
            drop(starting);
            let _ = reply.send(Ok(()));
            let begin = Begin { turn: leased.turn, interrupted: false, rested: false, asked };
            worker::run(Arc::clone(inner), agent, running, begin, slot).await;
        });
        started.await.unwrap_or(Err(Error::Stopping))?;
        let ended = async {
            loop {
                match cursor.next().await?.kind {
                    EventKind::Status { state, ends_turn } if ends_turn || state == TaskState::Submitted => {
                        return Ok::<(), store::Error>(());
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            ended = ended => ended?,
            () = tokio::time::sleep(inner.options.blocking_cap) => {}
            () = inner.workers.released() => {}
        }
        self.snapshot(call, task, View::FULL).await
    }

    /// A task as the queue sees it.
    pub async fn queue_entry(&self, worker: &Worker, id: &str) -> Result<QueueEntry, Error> {
        self.entry(worker, convert::task_id(id)?).await
    }

    /// How the tenant's queues stand, agent by agent.
    pub async fn queue_status(&self, caller: &Caller) -> Result<Vec<AgentQueue>, Error> {
        Ok(self.inner.store.agent_queues(caller.tenant).await?)
    }

    /// The tenant's dead letters, the oldest first.
    pub async fn dead_letters(&self, caller: &Caller, letters: Letters) -> Result<Vec<QueueEntry>, Error> {
        Ok(self.inner.store.dead_letters(caller.tenant, letters).await?)
    }

    /// Repeats a dead letter as a new task that names it, for its own agent or another one. The letter is none from then on.
    pub async fn replay_letter(&self, call: &Call, id: &str, to: Option<&str>) -> Result<Replayed, Error> {
        let letter = convert::task_id(id)?;
        let entry = self.entry(&Worker::Tenant(call.caller.clone()), letter).await?;
        if !entry.dead {
            return Err(Error::NotDead(letter.to_string()));
        }
        let agent = match to {
            Some(to) => to.parse().map_err(|why| Error::invalid("toAgent", format!("is no agent's id: {why}")))?,
            None => entry.agent.clone(),
        };
        let message: Message = if entry.turn > 1 {
            // What failed was said later.
            let history = self.inner.store.history(entry.tenant, letter).await?;
            history.into_iter().rev().find(|message| message.role == Role::User).unwrap_or_default()
        } else {
            serde_json::from_slice(&entry.first).map_err(store::Error::from)?
        };
        let is_run = self.inner.agents.find(&call.caller, agent.as_str()).is_some_and(|agent| agent.is_run());
        let correlation = Some(entry.context.to_string()).filter(|context| *context != local_context(letter));
        let post = Post {
            queued: entry.queued || !is_run,
            from: entry.from,
            priority: entry.priority,
            max_attempts: entry.max_attempts,
            delay: Duration::ZERO,
            replays: Some(letter),
        };
        // The key of a call that replays several would be used up by the first of them.
        let call = Call { idempotency_key: None, ..call.clone() };
        let entry = self.post(&call, agent, message.parts, correlation, vec![letter.to_string()], post).await?;
        Ok(Replayed { letter, entry })
    }

    async fn entry(&self, worker: &Worker, task: TaskId) -> Result<QueueEntry, Error> {
        let entry = self.inner.store.entry(worker.tenant(), task).await;
        entry.map_err(|error| Error::of_task(error, task))
    }

    fn most_held(&self, agent: &AgentId) -> Option<usize> {
        match self.inner.agents.get(agent)?.profile.delivery {
            Delivery::Queue { most_held } => most_held,
            Delivery::Run => None,
        }
    }

    fn check_name(field: &str, name: &str) -> Result<(), Error> {
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            let why = format!("must be a text of 1 to {LONGEST_NAME} bytes without control characters");
            return Err(Error::invalid(field, why));
        }
        Ok(())
    }

    /// For whom a lease is. Who does not say is told apart all the same.
    fn term(name: Option<String>, lasts: Option<Duration>) -> Result<Term, Error> {
        let name = match name {
            Some(name) => {
                Self::check_name("worker", &name)?;
                name
            }
            None => Uuid::now_v7().to_string(),
        };
        Ok(Term { holder: Holder::worker(&name), lasts: check_lease(lasts)? })
    }

    async fn hand(&self, leased: LeasedTurn, lasts: Duration) -> Result<Handed, Error> {
        let LeasedTurn { lease, turn, .. } = leased;
        let store = &self.inner.store;
        let entry = self.inner.store.entry(Some(lease.tenant), lease.task).await?;
        let history = match turn.number {
            1 => vec![turn.message.clone()],
            _ => store.history(lease.tenant, lease.task).await?,
        };
        let limit = if lease.remembers { self.inner.options.context_limit } else { 0 };
        let context_history = if limit == 0 || *lease.context == *local_context(lease.task) {
            Vec::new()
        } else {
            store.context_history(lease.tenant, &lease.agent, &lease.context, lease.task, limit).await?
        };
        let state = self.scribe(&lease).await?.state().cloned();
        let ticket = ticket::seal(&self.inner.page_key, &lease);
        let (number, attempt) = (turn.number, lease.attempt);
        Ok(Handed {
            entry,
            ticket,
            lasts,
            message: turn.message,
            turn: number,
            attempt,
            history,
            context_history,
            state,
        })
    }

    /// The lease that a worker has shown; without one, whoever's it is now.
    async fn lease(&self, worker: &Worker, id: &str, ticket: Option<&str>) -> Result<Lease, Error> {
        let task = convert::task_id(id)?;
        let Some(ticket) = ticket else {
            let entry = self.entry(worker, task).await?;
            let Some(lease) = entry.lease.clone().filter(|_| entry.queued) else {
                return Err(Error::NotWaiting(format!("nobody holds the entry: {}", why_not(&entry))));
            };
            return Ok(lease);
        };
        let wrong = || Error::invalid("lease", "is not a lease of this entry: use the one that came with it");
        let lease = ticket::open(&self.inner.page_key, ticket).ok_or_else(wrong)?;
        if lease.task != task {
            return Err(wrong());
        }
        if worker.tenant().is_some_and(|tenant| tenant != lease.tenant) {
            return Err(Error::TaskNotFound(task.to_string()));
        }
        Ok(lease)
    }

    /// What to tell a worker that no longer holds its entry.
    async fn lost(&self, lease: &Lease) -> Error {
        match self.inner.store.entry(Some(lease.tenant), lease.task).await {
            Ok(entry) => Error::LeaseLost(format!("the lease is lost: {}", why_not(&entry))),
            Err(error) => Error::of_task(error, lease.task),
        }
    }

    /// Whoever writes for this lease, with what was kept before.
    async fn scribe(&self, lease: &Lease) -> Result<Scribe, Error> {
        let entry = self.inner.agents.get(&lease.agent);
        let reply_text = entry.map_or(ReplyText::default(), |entry| entry.profile.reply_text);
        let mut scribe = Scribe::new(lease.task, Arc::clone(&lease.context), lease.turn, lease.attempt, reply_text);
        turn::take_up(&self.inner, lease, &mut scribe, &mut Left::Stored).await?;
        Ok(scribe)
    }

    /// Writes what a worker says. Of several calls under one lease each sees what those before it have written.
    async fn write(
        &self,
        worker: &Worker,
        id: &str,
        ticket: Option<&str>,
        written: Written,
    ) -> Result<TaskState, Error> {
        let mut lease = self.lease(worker, id, ticket).await?;
        for _ in 0..MOVES {
            match self.try_write(&lease, &written).await {
                Err(Error::Store(store::Error::Moved)) => {
                    let now = self.entry(worker, lease.task).await?.lease;
                    let same = |now: &Lease| now.generation == lease.generation && now.holder == lease.holder;
                    let Some(now) = now.filter(same) else { return Err(self.lost(&lease).await) };
                    lease = now;
                }
                Err(Error::Store(store::Error::LeaseLost | store::Error::Terminal(_))) => {
                    return Err(self.lost(&lease).await);
                }
                Err(Error::Store(error)) => return Err(Error::of_task(error, lease.task)),
                outcome => {
                    // There may be room for one more of an agent that has a bound.
                    if written.outcome.is_some() && self.most_held(&lease.agent).is_some() {
                        self.inner.desk.look();
                    }
                    return outcome;
                }
            }
        }
        Err(Error::Store(store::Error::Unavailable("too many calls write to this entry at once".into())))
    }

    async fn try_write(&self, lease: &Lease, written: &Written) -> Result<TaskState, Error> {
        let mut scribe = self.scribe(lease).await?;
        for said in &written.said {
            scribe.take(copy(said));
        }
        let end = match &written.outcome {
            Some(outcome) => Some(scribe.end(outcome.clone())?),
            None => {
                scribe.rest();
                None
            }
        };
        let append = Append { drafts: scribe.drafts()?, end, kept: Some(lease.kept) };
        Ok(answered(self.inner.store.append(lease, append)).await?.state)
    }

    /// What becomes of an entry whose attempt did not work.
    fn failed(&self, lease: &Lease, error: &str, delay: Option<Duration>, fatal: bool) -> Result<TurnEnd, Error> {
        Ok(failed(&self.inner, lease, error, delay, fatal)?)
    }
}

/// What a call writes.
struct Written {
    said: Vec<Said>,
    outcome: Option<Outcome>,
}

/// What was said, once more: a call may have to say it again.
fn copy(said: &Said) -> Said {
    match said {
        Said::Status { auth_required, message, metadata } => {
            Said::Status { auth_required: *auth_required, message: message.clone(), metadata: metadata.clone() }
        }
        Said::Artifact { artifact, append, last_chunk, metadata } => Said::Artifact {
            artifact: artifact.clone(),
            append: *append,
            last_chunk: *last_chunk,
            metadata: metadata.clone(),
        },
        Said::Note(note) => Said::Note(note.clone()),
        Said::Keep(state) => Said::Keep(state.clone()),
        // Nobody waits here: a call is answered when all of it is durable.
        Said::Flush(_) => Said::Flush(oneshot::channel().0),
    }
}

fn failed(inner: &Inner, lease: &Lease, error: &str, delay: Option<Duration>, fatal: bool) -> store::Result<TurnEnd> {
    let of_agent = inner.agents.get(&lease.agent).map_or(ATTEMPTS, |entry| entry.profile.max_attempts);
    if !fatal && lease.tries < attempts::limit(lease, of_agent) {
        let after = delay.unwrap_or_else(|| attempts::backoff(lease.task, lease.tries));
        return Ok(TurnEnd::Retry { after, error: error.to_owned() });
    }
    let mut scribe =
        Scribe::new(lease.task, Arc::clone(&lease.context), lease.turn, lease.attempt, ReplyText::default());
    let text = if fatal { error.to_owned() } else { attempts::gave_up(error, lease.tries) };
    match scribe.end(Outcome::Failed(vec![Part::text(text)]))? {
        TurnEnd::Status(status) if !fatal => {
            let (task, agent) = (lease.task, &lease.agent);
            tracing::warn!(task.id = %task, agent.name = %agent, attempts = lease.tries, %error, "a task is a dead letter");
            Ok(TurnEnd::GiveUp { status, error: error.to_owned() })
        }
        end => Ok(end),
    }
}

/// Ends the attempts of those who have let their leases run out. Says how many.
pub(super) async fn requeue_lapsed(inner: &Inner, agent: Option<AgentId>) -> store::Result<usize> {
    let lapsed = inner.store.lapsed(agent, LAPSED).await?;
    let mut ended = 0;
    for lease in lapsed {
        let error = format!("the lease of {} ran out", lease.holder.name());
        let policy = inner.agents.get(&lease.agent).filter(|entry| !entry.is_run());
        let policy = policy.and_then(|entry| turn::on_interruption(&entry.profile, &error));
        let end = match policy {
            Some(outcome) => {
                let context = Arc::clone(&lease.context);
                Scribe::new(lease.task, context, lease.turn, lease.attempt, ReplyText::default()).end(outcome)?
            }
            None => failed(inner, &lease, &error, Some(Duration::ZERO), false)?,
        };
        match inner.store.append(&lease, Append { end: Some(end), ..Append::default() }).await {
            Ok(_) => {
                tracing::info!(task.id = %lease.task, worker = lease.holder.name(), "the lease of an entry ran out");
                ended += 1;
            }
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ended)
}

/// Looks after leases that ran out while nobody asks for work.
async fn watch_leases(inner: Arc<Inner>) {
    loop {
        tokio::select! {
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(inner.options.poll) => {}
        }
        if let Err(error) = requeue_lapsed(&inner, None).await {
            tracing::warn!(%error, "leases that ran out cannot be looked for");
        }
    }
}

fn check_lease(lasts: Option<Duration>) -> Result<Duration, Error> {
    let lasts = lasts.unwrap_or(LEASE);
    if lasts.is_zero() || lasts > LONGEST_LEASE {
        return Err(Error::invalid("lease", format!("must be from 1 to {} seconds", LONGEST_LEASE.as_secs())));
    }
    Ok(lasts)
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

/// The fields of what is published are not those of a message.
fn of_publish(mut error: a2a::Error) -> Error {
    for violation in &mut error.violations {
        violation.field = match violation.field.as_str() {
            "message.contextId" => "correlationId".to_owned(),
            field if field.starts_with("message.parts[0]") => "text".to_owned(),
            field if field.starts_with("message.parts") => "payload".to_owned(),
            field => field.to_owned(),
        };
    }
    error.into()
}
