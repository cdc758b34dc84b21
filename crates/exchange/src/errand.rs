//! Work that a turn hands on to other agents of the installation. Each errand is a task like any other, of the same tenant, with a key of its
//! own: whoever hands the same errand on again, after a crash or a rest, finds the task that it made the first time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::{CancelTaskRequest, ErrorKind, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, TaskState};
use store::{Lease, TaskId, TenantId};

use crate::{Call, Caller, Delegation, Entry, Error, Exchange, Inner, Origin, Rules, Trace};

/// What tenants are called: that never changes.
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<TenantId, Arc<str>>>);

/// Hands work on for one tenant. Cheap to clone.
#[derive(Clone)]
pub struct Errands {
    inner: Arc<Inner>,
    tenant: TenantId,
    /// The lease of the turn that hands work on.
    parent: Option<Lease>,
}

/// Something to be done by another agent.
#[derive(Debug, Clone)]
pub struct Errand {
    /// The task that it becomes: whoever hands it on has kept that before.
    pub task: TaskId,
    /// By whom.
    pub agent: String,
    /// What.
    pub text: String,
    /// What no other errand of the tenant has.
    pub key: String,
    /// The task that it is done for.
    pub parent: TaskId,
    /// The ids under which what that task causes is known.
    pub trace: Trace,
    /// How far the work has been handed on.
    pub delegation: Delegation,
}

/// An errand that was handed on.
pub struct Handed {
    exchange: Exchange,
    call: Call,
    task: TaskId,
}

/// How an errand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// As its task did.
    pub state: TaskState,
    /// What was said.
    pub text: String,
}

impl Errands {
    pub(crate) fn new(inner: &Arc<Inner>, tenant: TenantId) -> Self {
        Self { inner: Arc::clone(inner), tenant, parent: None }
    }

    /// For a turn under this lease. When the lease is lost, or the turn's task has ended or is being canceled, no task begins for it.
    pub(crate) fn of_turn(inner: &Arc<Inner>, lease: &Lease) -> Self {
        Self { parent: Some(lease.clone()), ..Self::new(inner, lease.tenant) }
    }

    /// Whose work it is.
    pub async fn caller(&self) -> store::Result<Caller> {
        let known = |names: &Names| names.lock().get(&self.tenant).cloned();
        if let Some(name) = known(&self.inner.names) {
            return Ok(Caller::new(self.tenant, name));
        }
        let tenants = self.inner.store.tenants().await?;
        self.inner.names.lock().extend(tenants.into_iter().map(|tenant| (tenant.id, Arc::from(tenant.name))));
        let name = known(&self.inner.names).ok_or(store::Error::NotFound)?;
        Ok(Caller::new(self.tenant, name))
    }

    /// The agents that may be asked, by id.
    pub fn agents(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        self.inner.agents.visible(caller)
    }

    /// An agent that may be asked.
    pub fn agent(&self, caller: &Caller, id: &str) -> Option<Arc<Entry>> {
        self.inner.agents.find(caller, id)
    }

    /// What an agent is called in chains of delegations.
    pub fn name_of(&self, agent: &str) -> String {
        self.inner.name_of(agent)
    }

    /// Whether an errand was handed on.
    pub async fn has(&self, task: TaskId) -> Result<bool, Error> {
        match self.inner.store.head(self.tenant, task).await {
            Ok(_) => Ok(true),
            Err(store::Error::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands an errand on, or finds it where it was handed on before. [`Error::LeaseLost`] says that the turn that hands it on is over.
    pub async fn hand_on(&self, caller: &Caller, errand: Errand) -> Result<Handed, Error> {
        let exchange = Exchange { inner: Arc::clone(&self.inner) };
        let call = Call {
            agent: Some(errand.agent),
            task: Some(errand.task),
            parent: self.parent.clone(),
            idempotency_key: Some(errand.key.clone()),
            rules: Rules { always_task: true, ..Rules::default() },
            origin: Origin {
                correlation: Some(errand.trace.correlation),
                parent: Some(errand.parent.to_string()),
                trace: Some(errand.trace.traceparent),
                delegation: errand.delegation,
                ..Origin::default()
            },
            ..Call::new(caller.clone())
        };
        let message = Message {
            // The same message each time: its key stands for nothing else.
            message_id: errand.key,
            role: Role::User,
            parts: vec![Part::text(errand.text)],
            ..Message::default()
        };
        let request = SendMessageRequest {
            message,
            configuration: Some(SendMessageConfiguration { return_immediately: true, ..Default::default() }),
            ..SendMessageRequest::default()
        };
        let taken = exchange.take_in(&call, request).await.map_err(|error| match error {
            Error::Store(store::Error::LeaseLost) => Error::LeaseLost("the turn that hands this on is over".to_owned()),
            error => error,
        });
        let task = taken?.accepted.task;
        Ok(Handed { exchange, call, task })
    }

    /// An errand that was handed on before, by its task. Keys are not remembered for as long as tasks are.
    pub fn handed(&self, caller: &Caller, task: TaskId) -> Handed {
        Handed { exchange: Exchange { inner: Arc::clone(&self.inner) }, call: Call::new(caller.clone()), task }
    }

    /// Has a task that was made for another one canceled. One that has ended, or is gone, is left alone.
    pub async fn cancel(&self, caller: &Caller, task: TaskId) -> Result<(), Error> {
        let exchange = Exchange { inner: Arc::clone(&self.inner) };
        let request = CancelTaskRequest { id: task.to_string(), ..CancelTaskRequest::default() };
        match exchange.cancel(&Call::new(caller.clone()), request).await {
            Err(error) if matches!(error.kind(), ErrorKind::TaskNotFound | ErrorKind::TaskNotCancelable) => Ok(()),
            canceled => canceled.map(drop),
        }
    }
}

impl Handed {
    /// Its task.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Its end, if it has come to one.
    pub async fn look(&self) -> Result<Option<Answer>, Error> {
        let chatted = self.exchange.chatted(&self.call, self.task, Some(1)).await;
        // Its text is all that is left of it.
        self.call.luggage.leave();
        let chatted = chatted?;
        let state = chatted.state;
        Ok((!chatted.is_pending()).then(|| Answer { state, text: chatted.response.unwrap_or_default() }))
    }

    /// Waits for its end, but no longer than that.
    pub async fn wait(&self, at_most: Duration) -> Result<Option<Answer>, Error> {
        let inner = &self.exchange.inner;
        let mut cursor = inner.cursor(self.call.caller.tenant, self.task, 0);
        let joined = self.exchange.join(&self.call, self.task, &mut cursor);
        // What is not there by then can be asked for again.
        match tokio::time::timeout(at_most, joined).await {
            Ok(waited) => drop(waited?),
            Err(_) => return Ok(None),
        }
        self.look().await
    }
}

impl Names {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a task that rests that one which was made for it has come to an end. Only a hint: it looks by itself in a while.
pub(crate) async fn wake_parent_of(inner: &Inner, tenant: TenantId, task: TaskId) {
    if let Ok(head) = inner.store.head(tenant, task).await {
        wake_parent(inner, tenant, &Origin::read(head.origin.as_deref())).await;
    }
}

/// The same, for whoever knows what the task came from.
pub(crate) async fn wake_parent(inner: &Inner, tenant: TenantId, origin: &Origin) {
    if origin.delegation.is_first() {
        return;
    }
    let Some(parent) = origin.parent.as_deref().and_then(|parent| crate::convert::task_id(parent).ok()) else { return };
    if let Err(error) = inner.store.wake(tenant, parent).await
        && !error.is_refusal()
    {
        tracing::debug!(task.id = %parent, %error, "a task cannot be told that its errand has ended");
    }
}
