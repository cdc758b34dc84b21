//! SendMessage and SendStreamingMessage: taking a message in, once, and waiting for its turn.

use std::{sync::Arc, time::Duration};

use a2a::{Error, ErrorKind, SendMessageRequest, TaskState, Timestamp};
use bytes::Bytes;
use store::{
    Accept, Accepted, AgentId, Draft, EventKind, IdempotencyKey, Snapshot, Target, TaskId, TenantId, Term, Turn, View,
    clock,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use crate::{
    Call, Entry, Exchange, Frame, Frames, ReplyMode, Sent, convert,
    cursor::{Cursor, Until},
    fold::Fold,
    operations::{agent_not_found, history_length, in_scope},
    worker::{self, Begin},
};

/// The extension that says: SSE ids are cursors.
pub(crate) const RESUME_CURSOR: &str = "urn:switchboard:a2a:resume-cursor:v1";

const KEEP_KEYS: Duration = Duration::from_secs(24 * 60 * 60);

/// Every call is answered within 20 s, even while it is in doubt whether the journal has taken it.
const ANSWER: Duration = Duration::from_secs(15);

/// How the answer to a send is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Blocking,
    Immediate,
    Streaming,
}

/// A message that has been taken in.
struct Taken {
    accepted: Accepted,
    /// Follows the task from before the message came.
    cursor: Cursor,
    /// The task right after a first message, known without reading it back; once its turn was waited for, as it is then.
    newborn: Option<Snapshot>,
    /// The first output may be a direct reply.
    held: bool,
    history: Option<u32>,
    extensions: Vec<String>,
}

/// What a turn needs to start at once.
struct Start {
    entry: Option<Arc<Entry>>,
    permit: Option<OwnedSemaphorePermit>,
    message: a2a::Message,
}

/// How a wait for a turn ended.
enum Waited {
    TurnEnded,
    Reply(Bytes),
    NotYet,
}

impl Exchange {
    /// SendMessage.
    pub async fn send(&self, call: &Call, request: SendMessageRequest) -> Result<Sent, Error> {
        let immediate = request.configuration.as_ref().is_some_and(|c| c.return_immediately);
        let mode = if immediate { Mode::Immediate } else { Mode::Blocking };
        let mut taken = self.take_in(call, request, mode).await?;
        let extensions = std::mem::take(&mut taken.extensions);

        if mode == Mode::Blocking || (taken.accepted.duplicate && self.is_direct(call, &taken).await?) {
            match self.wait(call, &mut taken).await? {
                Waited::Reply(message) => return Ok(Sent { body: message, extensions }),
                Waited::TurnEnded => {}
                Waited::NotYet => {
                    taken.newborn = None;
                    if let Some(reply) = self.reveal(call, &mut taken).await? {
                        return Ok(Sent { body: reply, extensions });
                    }
                }
            }
        }
        let snapshot = match taken.newborn.take() {
            Some(known) => cut_history(known, taken.history),
            None => {
                let view = View { history: taken.history, artifacts: true };
                self.snapshot(call, taken.accepted.task, view).await?
            }
        };
        Ok(Sent { body: snapshot_frame(&snapshot)?.body, extensions })
    }

    /// SendStreamingMessage.
    pub async fn stream(&self, call: &Call, request: SendMessageRequest) -> Result<Frames, Error> {
        let place = self.inner.streams.enter(call.caller.tenant)?;
        let mut taken = self.take_in(call, request, Mode::Streaming).await?;
        let extensions = std::mem::take(&mut taken.extensions);
        let draining = self.inner.draining.clone();

        if taken.accepted.duplicate && self.is_direct(call, &taken).await? {
            // The log from its beginning, held back until it is decided what it is.
            let cursor = Cursor::new(Arc::clone(&self.inner.store), call.caller.tenant, taken.accepted.task, 0);
            let frames = Frames::new(Vec::new(), Some(cursor), Until::TurnEnd, draining).hold();
            return Ok(frames.with_extensions(extensions).in_place(place));
        }

        let mut frames = match taken.newborn.take() {
            Some(newborn) => {
                let newborn = cut_history(newborn, taken.history);
                // The log's first event is the task as it was submitted; what followed is read from it.
                let born = Snapshot { state: TaskState::Submitted, seq: 1, ..newborn };
                let mut cursor = taken.cursor;
                cursor.skip_to(1);
                Frames::new(vec![snapshot_frame(&born)?], Some(cursor), Until::TurnEnd, draining)
            }
            None => {
                let view = View { history: taken.history, artifacts: true };
                let snapshot = self.snapshot(call, taken.accepted.task, view).await?;
                let mut cursor = taken.cursor;
                cursor.skip_to(snapshot.seq);
                let over = snapshot.state.is_terminal() || snapshot.state == TaskState::InputRequired;
                let first = vec![snapshot_frame(&snapshot)?];
                Frames::new(first, (!over).then_some(cursor), Until::TurnEnd, draining)
            }
        };
        if taken.held {
            frames = frames.hold();
        }
        Ok(frames.with_extensions(extensions).in_place(place))
    }

    /// Checks a message, commits it and starts its turn if there is a free slot.
    async fn take_in(&self, call: &Call, request: SendMessageRequest, mode: Mode) -> Result<Taken, Error> {
        let inner = &self.inner;
        a2a::validate::validate_send(&request, &inner.options.limits)?;
        if inner.draining.is_cancelled() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
        }
        let longest = inner.options.limits.id_bytes;
        if call.idempotency_key.as_ref().is_some_and(|key| key.len() > longest) {
            return Err(Error::invalid("Idempotency-Key", format!("must have at most {longest} bytes")));
        }
        let SendMessageRequest { tenant, mut message, configuration, .. } = request;
        let configuration = configuration.unwrap_or_default();
        if configuration.task_push_notification_config.is_some() {
            return Err(Error::new(ErrorKind::PushNotificationNotSupported, "push notifications are not supported"));
        }
        let history = history_length(configuration.history_length)?;
        let target = self.target(call, &tenant)?;
        let at = clock::now();

        // Which task, agent and context this is about.
        let continued = match message.task_id.as_str() {
            "" => None,
            text => {
                let id = convert::task_id(text)?;
                let head = self.head(call, id).await?;
                in_scope(target.as_deref(), &head.agent, id)?;
                if !message.context_id.is_empty() && message.context_id != *head.context {
                    return Err(Error::invalid("message.contextId", "is not the context of the task"));
                }
                Some((id, head))
            }
        };
        let (task, agent, context, entry) = match &continued {
            Some((id, head)) => (*id, head.agent.clone(), Arc::clone(&head.context), inner.agents.get(&head.agent)),
            None => {
                let entry = target.map_or_else(|| self.default_agent(call), Ok)?;
                let context = match message.context_id.as_str() {
                    "" => Uuid::now_v7().to_string().into(),
                    given => given.into(),
                };
                (TaskId::mint(), entry.profile.id.clone(), context, Some(entry))
            }
        };
        let mut extensions = Vec::new();
        if let Some(entry) = &entry {
            extensions = negotiate(entry, &call.extensions)?;
            convert::check_modes(&message.parts, &entry.profile.input_modes)?;
        }

        // The key is made of what the caller sent, before anything is filled in.
        let keyed_by_context = continued.is_some() || !message.context_id.is_empty();
        message.context_id = if keyed_by_context { context.to_string() } else { String::new() };
        let idempotency = idempotency(call, &agent, continued.is_some(), &message, keyed_by_context)?;
        message.context_id = context.to_string();
        message.task_id = task.to_string();

        let may_reply = entry.as_ref().is_some_and(|entry| entry.profile.reply == ReplyMode::Auto);
        let permit = self.try_slot(entry.as_deref());
        // What has to wait for a slot is shown at once: nobody knows how long that takes.
        let held =
            may_reply && permit.is_some() && !call.rules.always_task && mode != Mode::Immediate && continued.is_none();
        let term = Term { holder: inner.holder.clone(), lasts: inner.options.lease };
        let body = Bytes::from(serde_json::to_vec(&message).map_err(|e| convert::store_error(&e.into()))?);
        let draft = |state| Draft::status(task, &context, state, None, None, at).map_err(|e| convert::store_error(&e));

        let mut newborn = None;
        let (accept_target, cursor) = match &continued {
            Some((_, head)) => (
                Target::Continue {
                    task,
                    max_waiting: inner.options.max_waiting,
                    submitted: draft(TaskState::Submitted)?,
                },
                Cursor::new(Arc::clone(&inner.store), call.caller.tenant, task, head.seq),
            ),
            None => {
                let snapshot = newborn_snapshot(task, &agent, &context, at, &body);
                let created = snapshot_frame(&snapshot)?.body;
                newborn = Some(snapshot);
                (
                    Target::New {
                        task,
                        agent: agent.clone(),
                        context: Arc::clone(&context),
                        created,
                        hold: held,
                        remembers: call.rules.remembers,
                    },
                    Cursor::before_birth(Arc::clone(&inner.store), call.caller.tenant, task),
                )
            }
        };
        let accept = Accept {
            target: accept_target,
            message_id: message.message_id.clone(),
            message: body,
            idempotency,
            lease: permit.is_some().then_some(term),
            working: draft(TaskState::Working)?,
            quota: inner.options.quota,
            at,
        };
        let start = Start { entry, permit, message };
        let accepted = self.accept(call.caller.tenant, accept, start).await;
        let accepted = accepted.map_err(|e| convert::task_error(&e, &task.to_string()))?;
        if let (Some(_), Some(newborn)) = (&accepted.lease, &mut newborn) {
            newborn.state = TaskState::Working;
            newborn.seq = accepted.seq;
        }
        if accepted.duplicate {
            let cursor = Cursor::new(Arc::clone(&inner.store), call.caller.tenant, accepted.task, accepted.seq);
            return Ok(Taken { cursor, newborn: None, held: false, accepted, history, extensions });
        }
        Ok(Taken { accepted, cursor, newborn, held, history, extensions })
    }

    /// Commits a message and runs its turn, on a task of its own: a caller that goes away while this
    /// commits must not leave a lease behind that nobody works on. A commit whose outcome is not known in time is waited
    /// for there, and the caller is told to ask again.
    async fn accept(&self, tenant: TenantId, accept: Accept, start: Start) -> store::Result<Accepted> {
        let inner = Arc::clone(&self.inner);
        let (reply, accepted) = oneshot::channel();
        self.inner.tracker.spawn(async move {
            let task = accept.target.task();
            let starting = accept.lease.is_some().then(|| inner.workers.starting(task));
            let accepted = inner.store.accept(tenant, accept).await;
            let running = match &accepted {
                Ok(accepted) => accepted.lease.clone().map(|lease| (inner.workers.register(lease), accepted.turn)),
                Err(_) => None,
            };
            drop(starting);
            // Whoever asked may be gone; the turn runs all the same.
            let _ = reply.send(accepted);
            if let (Some((running, number)), Some(entry), Some(permit)) = (running, start.entry, start.permit) {
                let begin = Begin { turn: Turn { message: start.message, number }, interrupted: false };
                worker::run(Arc::clone(&inner), entry, running, begin, permit).await;
            }
        });
        answered(async { accepted.await.unwrap_or_else(|_| Err(stopping())) }).await
    }

    fn default_agent(&self, call: &Call) -> Result<Arc<Entry>, Error> {
        let Some(id) = &self.inner.options.default_agent else {
            return Err(Error::invalid("tenant", "is required: name the agent that the message is for"));
        };
        self.inner.agents.find(&call.caller, id.as_str()).ok_or_else(|| agent_not_found(id.as_str()))
    }

    /// A free slot of the agent, unless others wait for one.
    fn try_slot(&self, entry: Option<&Entry>) -> Option<OwnedSemaphorePermit> {
        let entry = entry?;
        let permit = if entry.has_backlog() { None } else { Arc::clone(&entry.slots).try_acquire_owned().ok() };
        if permit.is_none() {
            entry.set_backlog(true);
        }
        permit
    }

    /// Whether a repeated message's answer was, or may become, a direct reply.
    async fn is_direct(&self, call: &Call, taken: &Taken) -> Result<bool, Error> {
        let head = self.inner.store.head(call.caller.tenant, taken.accepted.task).await;
        head.map(|head| head.hidden).map_err(|e| convert::store_error(&e))
    }

    /// Waits for the end of the message's own turn, or until the cap.
    async fn wait(&self, call: &Call, taken: &mut Taken) -> Result<Waited, Error> {
        let cap = self.inner.options.blocking_cap;
        let followed = async {
            if taken.accepted.duplicate {
                return self.join(call, taken).await;
            }
            taken.cursor.skip_to(taken.accepted.seq);
            // The turns ahead of this message's own, and its own.
            let mut turns = taken.accepted.ahead + 1;
            let mut fold = taken.newborn.take().map(Fold::new);
            loop {
                let event = taken.cursor.next().await.map_err(|e| convert::store_error(&e))?;
                fold = fold.and_then(|fold| fold.add(&event));
                match event.kind {
                    EventKind::Reply => return Ok(Waited::Reply(event.body.clone())),
                    EventKind::Status { state, ends_turn } => {
                        turns -= u32::from(ends_turn);
                        let interrupted = turns == 1 && state == TaskState::AuthRequired;
                        if state.is_terminal() || turns == 0 || interrupted {
                            taken.newborn = fold.map(Fold::finish);
                            return Ok(Waited::TurnEnded);
                        }
                    }
                    EventKind::Created { .. }
                    | EventKind::Started { .. }
                    | EventKind::Revealed
                    | EventKind::Input
                    | EventKind::Artifact => {}
                }
            }
        };
        tokio::select! {
            waited = followed => waited,
            () = tokio::time::sleep(cap) => Ok(Waited::NotYet),
            () = self.inner.workers.released() => Ok(Waited::NotYet),
        }
    }

    /// Shows a task whose direct reply did not come in time, unless it came just now.
    async fn reveal(&self, call: &Call, taken: &mut Taken) -> Result<Option<Bytes>, Error> {
        if !taken.held && !taken.accepted.duplicate {
            return Ok(None);
        }
        match self.inner.store.reveal(call.caller.tenant, taken.accepted.task).await {
            Ok(()) => Ok(None),
            Err(store::Error::Terminal(_)) => match self.join(call, taken).await? {
                Waited::Reply(reply) => Ok(Some(reply)),
                Waited::TurnEnded | Waited::NotYet => Ok(None),
            },
            Err(error) => Err(convert::store_error(&error)),
        }
    }

    /// A repeated message joins the task as it stands.
    async fn join(&self, call: &Call, taken: &mut Taken) -> Result<Waited, Error> {
        let tenant = call.caller.tenant;
        let task = taken.accepted.task;
        let head = self.inner.store.head(tenant, task).await.map_err(|e| convert::store_error(&e))?;
        if head.hidden && head.state.is_terminal() {
            let last = self.inner.store.events(tenant, task, head.seq - 1, 1).await;
            let last = last.map_err(|e| convert::store_error(&e))?;
            if let Some(event) = last.into_iter().find(|event| event.kind == EventKind::Reply) {
                return Ok(Waited::Reply(event.body));
            }
        }
        if head.state.is_terminal() || head.state.is_interrupted() {
            return Ok(Waited::TurnEnded);
        }
        taken.cursor.skip_to(head.seq);
        loop {
            let event = taken.cursor.next().await.map_err(|e| convert::store_error(&e))?;
            match event.kind {
                EventKind::Reply => return Ok(Waited::Reply(event.body.clone())),
                EventKind::Status { state, .. } if state.is_terminal() || state.is_interrupted() => {
                    return Ok(Waited::TurnEnded);
                }
                _ => {}
            }
        }
    }
}

/// Bounds how long a caller waits to hear whether something was written. It may be, after all: a repetition will tell.
pub(crate) async fn answered<T>(written: impl Future<Output = store::Result<T>>) -> store::Result<T> {
    let unknown = |_| Err(store::Error::Unavailable("it is not known yet whether this was written".into()));
    tokio::time::timeout(ANSWER, written).await.unwrap_or_else(unknown)
}

fn stopping() -> store::Error {
    store::Error::Unavailable("the server is shutting down".into())
}

/// What the caller asked for and the agent has; what the agent requires must be among it.
fn negotiate(entry: &Entry, requested: &[String]) -> Result<Vec<String>, Error> {
    let declared = &entry.profile.extensions;
    for extension in declared.iter().filter(|extension| extension.required) {
        if !requested.contains(&extension.uri) {
            let message = format!("the agent requires the extension {}; name it in A2A-Extensions", extension.uri);
            return Err(Error::new(ErrorKind::ExtensionSupportRequired, message));
        }
    }
    let is_known = |uri: &String| uri == RESUME_CURSOR || declared.iter().any(|extension| extension.uri == *uri);
    Ok(requested.iter().filter(|uri| is_known(uri)).cloned().collect())
}

/// The idempotency key, where the caller made one.
fn idempotency(
    call: &Call,
    agent: &AgentId,
    continues: bool,
    message: &a2a::Message,
    keyed_by_context: bool,
) -> Result<Option<IdempotencyKey>, Error> {
    if !call.rules.idempotent {
        return Ok(None);
    }
    let id = message.message_id.as_bytes();
    let (key, keep) = match &call.idempotency_key {
        Some(key) => (convert::digest(&[b"header", key.as_bytes()]), Some(KEEP_KEYS)),
        None if continues => (convert::digest(&[b"task", message.task_id.as_bytes(), id]), None),
        None if keyed_by_context => {
            (convert::digest(&[b"context", agent.as_str().as_bytes(), message.context_id.as_bytes(), id]), None)
        }
        None => return Ok(None),
    };
    let fingerprint = convert::fingerprint(agent.as_str(), message)?;
    Ok(Some(IdempotencyKey { key, fingerprint, keep }))
}

/// The task as its first event shows it.
fn newborn_snapshot(task: TaskId, agent: &AgentId, context: &Arc<str>, at: Timestamp, message: &Bytes) -> Snapshot {
    Snapshot {
        task,
        agent: agent.clone(),
        context: Arc::clone(context),
        state: TaskState::Submitted,
        status_at: at,
        status_message: None,
        seq: 1,
        history: vec![message.clone()],
        artifacts: Vec::new(),
    }
}

/// A frame with the whole task.
fn snapshot_frame(snapshot: &Snapshot) -> Result<Frame, Error> {
    Frame::snapshot(snapshot).map_err(|e| convert::store_error(&e))
}

fn cut_history(mut snapshot: Snapshot, history: Option<u32>) -> Snapshot {
    if let Some(n) = history {
        let keep = usize::try_from(n).unwrap_or(usize::MAX).min(snapshot.history.len());
        snapshot.history.drain(..snapshot.history.len() - keep);
    }
    snapshot
}
