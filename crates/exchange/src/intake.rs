//! Taking a message in: check it, find out what it is about, commit it once, and start its turn if there is a free slot.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use a2a::{ErrorKind, Message, PartContent, SendMessageRequest, TaskState, Timestamp};
use bytes::Bytes;
use store::{
    Accept, Accepted, AgentId, Draft, IdempotencyKey, NewPush, Post, Snapshot, Target, TaskHead, TaskId, TenantId,
    Term, Turn, clock,
};
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use crate::{
    Call, Entry, Error, Exchange, ReplyMode, RequestOptions, convert,
    cursor::Cursor,
    heavy,
    operations::{history_length, in_scope},
    registry::Slot,
    worker::{self, Begin},
};

/// How long an `Idempotency-Key` is remembered.
pub(crate) const KEEP_KEYS: Duration = Duration::from_secs(24 * 60 * 60);

/// A message of more bytes is not kept to be shown.
const LARGE: usize = 64 << 10;

/// Every call is answered within 20 s, even while it is in doubt whether the journal has taken it.
const ANSWER: Duration = Duration::from_secs(15);

/// A message that has been taken in.
pub(crate) struct Taken {
    pub(crate) accepted: Accepted,
    /// Follows the task from before the message came.
    pub(crate) cursor: Cursor,
    /// The task right after a first message, known without reading it back; once its turn was waited for, as it is then.
    pub(crate) newborn: Option<Snapshot>,
    /// The first output may be a direct reply.
    pub(crate) held: bool,
    /// How long that may take before the task is shown.
    pub(crate) reveal_after: Duration,
    pub(crate) history: Option<u32>,
    pub(crate) extensions: Vec<String>,
}

/// What a turn needs to start at once.
struct Start {
    entry: Option<Arc<Entry>>,
    slot: Option<Slot>,
    message: a2a::Message,
}

/// What a message is about.
struct Subject {
    task: TaskId,
    agent: AgentId,
    context: Arc<str>,
    /// The agent, if this instance has it.
    entry: Option<Arc<Entry>>,
    /// The task as it stands, if the message continues one.
    continued: Option<TaskHead>,
}

impl Exchange {
    /// Takes a message in.
    pub(crate) async fn take_in(&self, call: &Call, request: SendMessageRequest) -> Result<Taken, Error> {
        self.take_in_for(call, request, None).await
    }

    /// Takes a message in for this agent, if it is known already.
    pub(crate) async fn take_in_for(
        &self,
        call: &Call,
        request: SendMessageRequest,
        target: Option<Arc<Entry>>,
    ) -> Result<Taken, Error> {
        self.check(call, &request)?;
        let SendMessageRequest { tenant, mut message, configuration, metadata } = request;
        let mut origin = call.origin.clone();
        origin.hear(metadata.as_ref());
        origin.hear(message.metadata.as_ref());
        // A key may arrive where the message was rewritten on its way.
        for id in [Some(message.message_id.as_str()), call.idempotency_key.as_deref()].into_iter().flatten() {
            self.inner.delegation_of(id).into_iter().for_each(|told| origin.delegation.join(told));
        }
        origin.join_own_span(&self.inner.page_key);
        let configuration = configuration.unwrap_or_default();
        let history = history_length(configuration.history_length)?;
        let subject = self.subject(call, &tenant, &message, target).await?;
        let extensions = subject.agree(call, &message)?;
        let options = RequestOptions {
            metadata,
            accepted_output_modes: configuration.accepted_output_modes,
            extensions: subject.active(&call.extensions, &message.extensions),
        };
        let push = self.inline_push(call, subject.task, configuration.task_push_notification_config).await?;
        let reveal_after = subject.entry.as_ref().map_or(Duration::ZERO, |entry| entry.profile.reveal_after);
        let size = size_of(&message);
        let now = match origin.delegation.deadline {
            Some(_) => Some(self.inner.store.next_due(&[]).await?.now),
            None => None,
        };
        let origin = origin.stored(now).map(Into::into);
        let (accept, taking) = heavy(size, || {
            let key = idempotency(call, &subject, &mut message)?;
            let message = subject.address(message);
            let (mut accept, taking) = self.compose(call, subject, message, key, push, origin)?;
            accept.request = options.logged()?;
            Ok::<_, Error>((accept, taking))
        })?;
        let Taking { task, mut newborn, held, cursor, start } = taking;
        let accepted = self.accept(call.caller.tenant, accept, start).await;
        let accepted = accepted.map_err(|error| Error::of_task(error, task))?;

        // What is large is read back when it is shown, and not kept while its turn is waited for: a call would hold its tenant's room all the while.
        if size > LARGE && !held {
            newborn = None;
            call.luggage.leave();
        }
        if accepted.duplicate {
            let cursor = self.inner.cursor(call.caller.tenant, accepted.task, accepted.seq);
            return Ok(Taken { cursor, newborn: None, held: false, reveal_after, accepted, history, extensions });
        }
        if let (Some(_), Some(newborn)) = (&accepted.lease, &mut newborn) {
            newborn.state = TaskState::Working;
            newborn.seq = accepted.seq;
        }
        Ok(Taken { accepted, cursor, newborn, held, reveal_after, history, extensions })
    }

    /// What can be refused without a look at anything else.
    fn check(&self, call: &Call, request: &SendMessageRequest) -> Result<(), Error> {
        let inner = &self.inner;
        a2a::validate::validate_send(request, &inner.options.limits)?;
        if inner.draining.is_cancelled() {
            return Err(Error::Stopping);
        }
        let longest = inner.options.limits.id_bytes;
        if call.idempotency_key.as_ref().is_some_and(|key| key.len() > longest) {
            return Err(Error::invalid("Idempotency-Key", format!("must have at most {longest} bytes")));
        }
        Ok(())
    }

    /// Which task, agent and context a message is about.
    async fn subject(
        &self,
        call: &Call,
        tenant_field: &str,
        message: &Message,
        known: Option<Arc<Entry>>,
    ) -> Result<Subject, Error> {
        let target = known.map_or_else(|| self.target(call, tenant_field), |entry| Ok(Some(entry)))?;
        if message.task_id.is_empty() {
            let entry = target.map_or_else(|| self.default_agent(call), Ok)?;
            let context = match message.context_id.as_str() {
                "" => Uuid::now_v7().to_string().into(),
                given => given.into(),
            };
            let (task, agent) = (call.task.unwrap_or_else(TaskId::mint), entry.profile.id.clone());
            return Ok(Subject { task, agent, context, entry: Some(entry), continued: None });
        }
        let task = convert::task_id(&message.task_id)?;
        let head = self.head(call, task).await?;
        in_scope(target.as_deref(), &head.agent, task)?;
        if !message.context_id.is_empty() && message.context_id != *head.context {
            return Err(Error::invalid("message.contextId", "is not the context of the task"));
        }
        let (agent, context) = (head.agent.clone(), Arc::clone(&head.context));
        let entry = self.inner.agents.find_any(&call.caller, agent.as_str());
        // An agent that was withdrawn is withdrawn for what it has begun too. One that only another instance can make is not.
        if entry.is_none() && !self.inner.agents.is_aside(call.caller.tenant, &agent) {
            return Err(Error::agent_not_found(agent.as_str()));
        }
        Ok(Subject { task, agent, context, entry, continued: Some(head) })
    }

    /// What the journal is to take in, and what goes on from there.
    fn compose(
        &self,
        call: &Call,
        subject: Subject,
        message: Message,
        idempotency: Option<IdempotencyKey>,
        push: Option<NewPush>,
        origin: Option<Arc<str>>,
    ) -> Result<(Accept, Taking), Error> {
        let inner = &self.inner;
        let at = clock::now();
        let body = Bytes::from(serde_json::to_vec(&message).map_err(store::Error::from)?);
        let slot = self.try_slot(call.caller.tenant, subject.entry.as_deref());
        let held = slot.is_some() && subject.may_be_held(call);
        let Subject { task, agent, context, entry, continued } = subject;
        let status = |state| Draft::status(task, &context, state, None, None, at);
        let working = status(TaskState::Working)?;
        let tenant = call.caller.tenant;
        let (target, cursor, newborn) = match continued {
            Some(head) => {
                let submitted = status(TaskState::Submitted)?;
                let target = Target::Continue { task, max_waiting: inner.options.max_waiting, submitted };
                (target, inner.cursor(tenant, task, head.seq), None)
            }
            None => {
                let newborn = newborn_snapshot(task, &agent, &context, at, &body);
                let created = newborn.created()?;
                let remembers = call.rules.remembers;
                let queued = entry.as_ref().is_some_and(|entry| !entry.is_run());
                let post = Post { queued, ..Post::default() };
                let target = Target::New {
                    task,
                    agent,
                    context: Arc::clone(&context),
                    created,
                    hold: held,
                    remembers,
                    post,
                    origin,
                    tells_cancel: entry.as_ref().is_some_and(|entry| entry.profile.tells_cancel),
                };
                (target, inner.cursor(tenant, task, 0).before_birth(), Some(newborn))
            }
        };
        let term = Term { holder: inner.holder.clone(), lasts: inner.options.lease };
        let accept = Accept {
            target,
            message_id: message.message_id.clone(),
            message: body,
            idempotency,
            lease: slot.is_some().then_some(term),
            working,
            push,
            quota: inner.options.quota,
            parent: call.parent.clone(),
            request: None,
            at,
        };
        Ok((accept, Taking { task, newborn, held, cursor, start: Start { entry, slot, message } }))
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
            let asked = Instant::now();
            let accepted = inner.store.accept(tenant, accept).await;
            let running = match &accepted {
                Ok(accepted) => {
                    let turn = (accepted.turn, accepted.request);
                    accepted.lease.clone().map(|lease| (inner.workers.register(lease), turn))
                }
                Err(_) => None,
            };
            drop(starting);
            // Whoever asked may be gone; the turn runs all the same.
            let _ = reply.send(accepted);
            if let (Some((running, (number, request))), Some(entry), Some(slot)) = (running, start.entry, start.slot) {
                let turn = Turn { message: start.message, number, unread: 0, request };
                let begin = Begin { turn, interrupted: false, rested: false, asked };
                worker::run(Arc::clone(&inner), entry, running, begin, slot).await;
            }
        });
        answered(async { accepted.await.unwrap_or_else(|_| Err(stopping())) }).await
    }

    fn default_agent(&self, call: &Call) -> Result<Arc<Entry>, Error> {
        let Some(id) = &self.inner.options.default_agent else {
            return Err(Error::invalid("tenant", "is required: name the agent that the message is for"));
        };
        self.inner.agents.find(&call.caller, id.as_str()).ok_or_else(|| Error::agent_not_found(id.as_str()))
    }

    /// A free slot of the agent, unless others wait for one, or the tenant has as many as it may.
    fn try_slot(&self, tenant: TenantId, entry: Option<&Entry>) -> Option<Slot> {
        let entry = entry.filter(|entry| entry.is_run())?;
        let others = !entry.is_own() && self.inner.has_tenants.load(Relaxed);
        let slot = if entry.lane.has_backlog() { None } else { entry.lane.try_give(tenant, others) };
        // Who has as many as it may waits, and nobody else behind it.
        if slot.is_none() && entry.lane.slots.available_permits() == 0 {
            entry.lane.set_backlog(true);
        }
        slot
    }
}

/// A message on its way into the journal.
struct Taking {
    task: TaskId,
    newborn: Option<Snapshot>,
    held: bool,
    cursor: Cursor,
    start: Start,
}

impl Subject {
    /// The extensions that are active. What the agent requires, and what it does not take, is refused.
    fn agree(&self, call: &Call, message: &Message) -> Result<Vec<String>, Error> {
        let Some(entry) = &self.entry else { return Ok(Vec::new()) };
        let extensions = negotiate(entry, &call.extensions)?;
        convert::check_modes(&message.parts, &entry.profile.input_modes)?;
        Ok(extensions)
    }

    /// The extensions of the agent that the call or the message names. Those of the server mean nothing to it.
    fn active(&self, named: &[String], message: &[String]) -> Vec<String> {
        let declared = self.entry.iter().flat_map(|entry| &entry.profile.extensions);
        let is_named = |uri: &&String| named.contains(uri) || message.contains(uri);
        declared.map(|extension| &extension.uri).filter(is_named).cloned().collect()
    }

    /// The message with its task and context filled in.
    fn address(&self, message: Message) -> Message {
        Message { task_id: self.task.to_string(), context_id: self.context.to_string(), ..message }
    }

    /// Whether the first output may be a direct reply. What has to wait for a slot is shown at once: nobody knows how
    /// long that takes.
    fn may_be_held(&self, call: &Call) -> bool {
        let is_auto = self.entry.as_ref().is_some_and(|entry| entry.profile.reply == ReplyMode::Auto);
        is_auto && !call.rules.always_task && self.continued.is_none()
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
pub(crate) fn negotiate(entry: &Entry, requested: &[String]) -> Result<Vec<String>, Error> {
    let declared = &entry.profile.extensions;
    for extension in declared.iter().filter(|extension| extension.required) {
        if !requested.contains(&extension.uri) {
            let message = format!("the agent requires the extension {}; name it in A2A-Extensions", extension.uri);
            return Err(a2a::Error::new(ErrorKind::ExtensionSupportRequired, message).into());
        }
    }
    let ours = [a2a::RESUME_CURSOR, a2a::PUSH_CHUNKS];
    let is_known =
        |uri: &String| ours.contains(&uri.as_str()) || declared.iter().any(|extension| extension.uri == *uri);
    Ok(requested.iter().filter(|uri| is_known(uri)).cloned().collect())
}

/// About how many bytes a message has.
pub fn size_of(message: &Message) -> usize {
    let content = |part: &a2a::Part| match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len(),
        PartContent::Raw(bytes) => bytes.len(),
        PartContent::Data(data) => data.get().len(),
    };
    message.parts.iter().map(content).sum()
}

/// The idempotency key, where the caller made one. It is made of what the caller sent, before anything is filled in.
fn idempotency(call: &Call, subject: &Subject, message: &mut Message) -> Result<Option<IdempotencyKey>, Error> {
    if !call.rules.idempotent {
        return Ok(None);
    }
    let continues = subject.continued.is_some();
    let keyed_by_context = continues || !message.context_id.is_empty();
    let (id, agent) = (message.message_id.as_bytes(), subject.agent.as_str());
    let (mut key, keep) = match &call.idempotency_key {
        Some(key) => (convert::digest(&[b"header", key.as_bytes()]), Some(KEEP_KEYS)),
        None if continues => (convert::digest(&[b"task", message.task_id.as_bytes(), id]), None),
        None if keyed_by_context => {
            (convert::digest(&[b"context", agent.as_bytes(), subject.context.as_bytes(), id]), None)
        }
        None => return Ok(None),
    };
    if keyed_by_context {
        message.context_id = subject.context.to_string();
    }
    let fingerprint = convert::fingerprint(agent, message)?;
    if continues && call.idempotency_key.is_none() {
        // Clients count their messages anew in every turn: what says something else is another message.
        key = convert::digest(&[&key, &fingerprint]);
    }
    Ok(Some(IdempotencyKey { key, fingerprint, keep }))
}

/// The task as its first event shows it.
pub(crate) fn newborn_snapshot(
    task: TaskId,
    agent: &AgentId,
    context: &Arc<str>,
    at: Timestamp,
    message: &Bytes,
) -> Snapshot {
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
        made_in: Vec::new(),
        tokens: store::Tokens::default(),
    }
}
