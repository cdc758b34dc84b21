//! The operations that look at tasks or end them. Sending is in its own module.

use std::sync::Arc;

use a2a::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest,
    TaskState, validate,
};
use store::{AgentId, CancelMark, Event, Filter, Page, Removal, Scope, Snapshot, TaskHead, TaskId, TenantId, View};

use crate::{
    Call, Caller, Entry, Error, Exchange, Frame, Frames, Luggage, Origin, convert,
    cursor::Until,
    errand,
    intake::{answered, negotiate},
};

/// The answer to a send.
#[derive(Debug, Clone)]
pub struct Sent {
    /// What it was answered with.
    pub reply: Reply,
    /// The protocol extensions that are active.
    pub extensions: Vec<String>,
}

/// What a message is answered with.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Its task, as of one moment.
    Task(Snapshot),
    /// A direct reply: the event that holds the message.
    Direct(Arc<Event>),
}

impl Reply {
    /// The protocol's own response, typed.
    pub fn response(&self) -> store::Result<SendMessageResponse> {
        match self {
            Self::Task(snapshot) => Ok(SendMessageResponse::Task(snapshot.to_task()?)),
            Self::Direct(event) => match event.response()? {
                StreamResponse::Message(message) => Ok(SendMessageResponse::Message(message)),
                _ => Err(store::Error::Damaged("a direct reply is no message".into())),
            },
        }
    }
}

/// The most sub-tasks of a task that are told.
const MOST_CHILDREN: usize = 50;

/// A task and what the protocol has no place for.
#[derive(Debug, Clone)]
pub struct Details {
    /// The task.
    pub snapshot: Snapshot,
    /// How often its current or last turn was tried; attempts that were given back on purpose do not count.
    pub attempts: u32,
    /// Others who work for it still have to be told that it has ended.
    pub owes_cancel: bool,
    /// The task that it was begun for.
    pub parent: Option<Relative>,
    /// The tasks that were begun for it, oldest first.
    pub children: Vec<Relative>,
}

/// A task that another was begun for, or by.
#[derive(Debug, Clone)]
pub struct Relative {
    /// Its id.
    pub task: TaskId,
    /// Its agent.
    pub agent: AgentId,
    /// Its state.
    pub state: TaskState,
}

/// The answer to a list.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Newest status first.
    pub tasks: Vec<Snapshot>,
    /// What asks for the next page; empty on the last one.
    pub next_page_token: String,
    /// How many tasks a page has at most.
    pub page_size: i32,
    /// How many tasks the filter matches in all.
    pub total: u64,
    /// The tasks have their artifacts.
    pub with_artifacts: bool,
}

const DEFAULT_PAGE: i32 = 50;
/// So many bytes of a task are read before it is known how many there are.
const SNAPSHOT: u64 = 256 << 10;
/// Without messages and artifacts it is mostly little, and then needs no room.
const BARE: u64 = 16 << 10;
const BARE_PAGE: u64 = 1 << 20;
/// A page has no more bytes than that, unless its first task has more by itself.
const PAGE: u64 = 4 << 20;

impl Exchange {
    /// The agent that a call means: the one of its URL, the one of its `tenant` field, or none.
    /// Where both name one they must agree: a call is never silently sent elsewhere.
    pub fn target(&self, call: &Call, tenant_field: &str) -> Result<Option<Arc<Entry>>, Error> {
        let name = match &call.agent {
            Some(agent) if !tenant_field.is_empty() && tenant_field != agent => {
                return Err(Error::invalid("tenant", "names another agent than the URL does"));
            }
            Some(agent) => agent.as_str(),
            None if tenant_field.is_empty() => return Ok(None),
            None => tenant_field,
        };
        match self.inner.agents.find(&call.caller, name) {
            Some(entry) => Ok(Some(entry)),
            None => Err(self.inner.agents.missing(&call.caller, name)),
        }
    }

    /// Refuses whoever has not named the extensions that an agent requires, if this instance has the agent.
    pub(crate) fn require(&self, call: &Call, agent: &AgentId) -> Result<(), Error> {
        let entry = self.inner.agents.get(call.caller.tenant, agent);
        entry.map_or(Ok(()), |entry| negotiate(&entry, &call.extensions).map(drop))
    }

    /// GetTask.
    pub async fn get(&self, call: &Call, request: GetTaskRequest) -> Result<Snapshot, Error> {
        call.caller.needs(Scope::Read)?;
        validate::validate_get(&request, &self.inner.options.limits)?;
        let target = self.target(call, &request.tenant)?;
        let id = convert::task_id(&request.id)?;
        let view = View { history: history_length(request.history_length)?, artifacts: true, ..View::FULL };
        let snapshot = self.snapshot(call, id, view).await?;
        in_scope(target.as_deref(), &snapshot.agent, id)?;
        self.require(call, &snapshot.agent)?;
        Ok(snapshot)
    }

    /// A task and what the protocol has no place for: its attempts, and the tasks it was begun for and, if they are asked for,
    /// has begun, as far as the caller may see them.
    pub async fn details(&self, call: &Call, request: GetTaskRequest, with_children: bool) -> Result<Details, Error> {
        let snapshot = self.get(call, request).await?;
        let (tenant, task) = (call.caller.tenant, snapshot.task);
        let store = &self.inner.store;
        let entry = store.entry(Some(tenant), task).await.map_err(|error| Error::of_task(error, task))?;
        let head = store.head(tenant, task).await.map_err(|error| Error::of_task(error, task))?;
        let parent = match Origin::read(head.origin.as_deref()).parent.as_deref().and_then(TaskId::parse) {
            Some(parent) => self.relative(call, parent).await?,
            None => None,
        };
        let mut children = Vec::new();
        if with_children {
            for child in store.children(tenant, task, MOST_CHILDREN).await? {
                children.extend(self.relative(call, child).await?);
            }
        }
        let owes_cancel = store.owes_cancels(tenant, Removal::Task(task)).await?;
        Ok(Details { snapshot, attempts: entry.attempts, owes_cancel, parent, children })
    }

    /// A task, if it is there and the caller may see it.
    async fn relative(&self, call: &Call, task: TaskId) -> Result<Option<Relative>, Error> {
        match self.inner.store.head(call.caller.tenant, task).await {
            Ok(head) if head.hidden || !call.caller.covers(head.agent.as_str()) => Ok(None),
            Ok(head) => Ok(Some(Relative { task, agent: head.agent, state: head.state })),
            Err(store::Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// ListTasks.
    pub async fn list(&self, call: &Call, request: ListTasksRequest) -> Result<Listing, Error> {
        call.caller.needs(Scope::Read)?;
        validate::validate_list(&request, &self.inner.options.limits)?;
        let target = self.target(call, &request.tenant)?;
        if let Some(entry) = &target {
            self.require(call, &entry.profile.id)?;
        }
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE);
        let history = history_length(request.history_length)?;
        let artifacts = request.include_artifacts.unwrap_or(false);
        let agent = target.map(|entry| entry.profile.id.clone());
        let since = request.status_timestamp_after.map(|since| since.0);

        let filters = convert::digest(&[
            agent.as_ref().map_or("", |agent| agent.as_str()).as_bytes(),
            request.context_id.as_bytes(),
            &request.status.number().to_be_bytes(),
            &since.map_or(i64::MIN, |at| at.as_millis()).to_be_bytes(),
        ]);
        let tenant = call.caller.tenant;
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(self.inner.page_key.open(tenant, &filters, token)?),
        };
        let filter = Filter {
            agent,
            among: Vec::new(),
            context: Some(request.context_id).filter(|context| !context.is_empty()),
            state: Some(request.status).filter(|state| *state != TaskState::Unspecified),
            since,
            after,
            limit: page_size.unsigned_abs(),
            view: View { history, artifacts, ..View::FULL },
        };
        let page = self.page(call, filter).await?;

        let next_page_token = page.next.map(|key| self.inner.page_key.seal(tenant, &filters, key)).unwrap_or_default();
        Ok(Listing { tasks: page.tasks, next_page_token, page_size, total: page.total, with_artifacts: artifacts })
    }

    /// A page of the caller's tasks, for surfaces whose lists are not the protocol's. Those of agents that its token is not for are not
    /// among them.
    pub async fn page(&self, call: &Call, filter: Filter) -> Result<Page, Error> {
        call.caller.needs(Scope::Read)?;
        let filter = Filter { among: call.caller.bound_to().to_vec(), ..filter };
        let tenant = call.caller.tenant;
        let mut room = if filter.view.history == Some(0) && !filter.view.artifacts { BARE_PAGE } else { PAGE };
        loop {
            let mut load = self.inner.flight.take(tenant, call.luggage.room(room)).await?;
            let filter = Filter { view: View { most: room, ..filter.view }, ..filter.clone() };
            match self.inner.store.list(tenant, filter).await {
                Err(store::Error::Heavy { bytes }) => room = bytes,
                Err(error) => return Err(error.into()),
                Ok(page) => {
                    load.keep(call.luggage.room(page.tasks.iter().map(|task| task.size_hint() as u64).sum()));
                    call.luggage.put(load);
                    return Ok(page);
                }
            }
        }
    }

    /// CancelTask. The durable mark decides; the running turn has a grace to end by itself.
    pub async fn cancel(&self, call: &Call, request: CancelTaskRequest) -> Result<Snapshot, Error> {
        call.caller.needs(Scope::Cancel)?;
        validate::validate_cancel(&request, &self.inner.options.limits)?;
        let target = self.target(call, &request.tenant)?;
        let id = convert::task_id(&request.id)?;
        let head = self.head(call, id).await?;
        in_scope(target.as_deref(), &head.agent, id)?;
        self.require(call, &head.agent)?;

        match self.stop(call.caller.tenant, id, head.seq).await.map_err(|error| Error::of_task(error, id))? {
            CancelMark::Canceled { already: true } if call.rules.cancel_once => {
                return Err(Error::NotCancelable(TaskState::Canceled));
            }
            CancelMark::NotCancelable(state) => return Err(Error::NotCancelable(state)),
            CancelMark::Canceled { .. } | CancelMark::Running => {}
        }
        self.snapshot(call, id, View::FULL).await
    }

    /// Marks a task and waits for its end: a turn that runs has a grace, and is then ended without being asked. What the mark found is said.
    pub(crate) async fn stop(&self, tenant: TenantId, id: TaskId, after: u64) -> store::Result<CancelMark> {
        let store = &self.inner.store;
        let mut cursor = self.inner.cursor(tenant, id, after);
        let mark = answered(store.mark_cancel(tenant, id)).await?;
        if mark == CancelMark::Running {
            self.inner.workers.cancel(id);
            self.inner.desk.cancel(id);
            let ended = async {
                loop {
                    if cursor.next().await?.kind.ends_task() {
                        return Ok::<(), store::Error>(());
                    }
                }
            };
            let waited = tokio::time::timeout(self.inner.options.cancel_grace, ended).await;
            if !matches!(waited, Ok(Ok(()))) {
                answered(store.force_cancel(tenant, id)).await?;
            }
        }
        self.inner.workers.cut_short.notify_one();
        errand::wake_parent_of(&self.inner, tenant, id).await;
        Ok(mark)
    }

    /// SubscribeToTask. `after` is a resume cursor: with one, the missed events and nothing else.
    pub async fn subscribe(
        &self,
        call: &Call,
        request: SubscribeToTaskRequest,
        after: Option<u64>,
    ) -> Result<Frames, Error> {
        call.caller.needs(Scope::Read)?;
        validate::validate_subscribe(&request, &self.inner.options.limits)?;
        let target = self.target(call, &request.tenant)?;
        let id = convert::task_id(&request.id)?;
        let head = self.head(call, id).await?;
        in_scope(target.as_deref(), &head.agent, id)?;
        self.require(call, &head.agent)?;
        let place = self.inner.streams.enter(&call.caller)?;
        Ok(self.frames(call, id, &head, after).await?.with_luggage(&call.luggage).in_place(place))
    }

    async fn frames(&self, call: &Call, id: TaskId, head: &TaskHead, after: Option<u64>) -> Result<Frames, Error> {
        let draining = self.inner.draining.clone();
        let tenant = call.caller.tenant;

        // A cursor beyond the log's end is not of this task: it counts as none.
        if let Some(after) = after.filter(|after| *after <= head.seq) {
            if head.state.is_terminal() && after == head.seq {
                return Ok(Frames::new(Vec::new(), None, Until::TaskEnd, draining));
            }
            if !self.is_pruned(call, id, after, head.seq).await? {
                let after = after + u64::from(store::fault::is_on("skip-one"));
                let cursor = self.inner.cursor(tenant, id, after);
                return Ok(Frames::new(Vec::new(), Some(cursor), Until::TaskEnd, draining));
            }
        } else if head.state.is_terminal() {
            return Err(Error::NothingToFollow(head.state));
        }

        // Follow first, then read, so that nothing falls between.
        let mut cursor = self.inner.cursor(tenant, id, head.seq);
        let snapshot = self.snapshot(call, id, View::FULL).await?;
        cursor.skip_to(snapshot.seq);
        let cursor = (!snapshot.state.is_terminal()).then_some(cursor);
        Ok(Frames::new(vec![Frame::Task(snapshot)], cursor, Until::TaskEnd, draining))
    }

    /// Whether the log no longer has the event after `after`.
    async fn is_pruned(&self, call: &Call, id: TaskId, after: u64, end: u64) -> Result<bool, Error> {
        if after == end {
            return Ok(false);
        }
        match self.inner.store.events(call.caller.tenant, id, after, 1).await {
            Ok(_) => Ok(false),
            Err(store::Error::Pruned) => Ok(true),
            Err(error) => Err(Error::of_task(error, id)),
        }
    }

    /// A task's head, if its tenant may see it and the token is for its agent.
    pub(crate) async fn head(&self, call: &Call, id: TaskId) -> Result<TaskHead, Error> {
        let head = self.inner.store.head(call.caller.tenant, id).await;
        match head.map_err(|error| Error::of_task(error, id))? {
            head if head.hidden || !call.caller.covers(head.agent.as_str()) => Err(Error::TaskNotFound(id.to_string())),
            head => Ok(head),
        }
    }

    /// Reads what is as large as its tenant has made it. There is room for it, and for the answer that is made of it, before it is read.
    pub(crate) async fn weighed<T, Reading: Future<Output = store::Result<T>>>(
        &self,
        caller: &Caller,
        luggage: &Luggage,
        read: impl Fn(u64) -> Reading,
    ) -> Result<T, Error> {
        let (mut most, mut room) = (BARE, BARE);
        loop {
            let load = self.inner.flight.take(caller.tenant, room).await?;
            match read(most).await {
                Err(store::Error::Heavy { bytes }) => (most, room) = (bytes, bytes.saturating_mul(2)),
                Err(error) => return Err(error.into()),
                Ok(found) => {
                    luggage.put(load);
                    return Ok(found);
                }
            }
        }
    }

    pub(crate) async fn snapshot(&self, call: &Call, id: TaskId, view: View) -> Result<Snapshot, Error> {
        self.snapshot_with(call, id, view, false).await
    }

    /// The snapshot that answers a call which has done something already: it waits until there is room and is never refused.
    pub(crate) async fn patient_snapshot(&self, call: &Call, id: TaskId, view: View) -> Result<Snapshot, Error> {
        self.snapshot_with(call, id, view, true).await
    }

    async fn snapshot_with(&self, call: &Call, id: TaskId, view: View, is_patient: bool) -> Result<Snapshot, Error> {
        let (tenant, flight) = (call.caller.tenant, &self.inner.flight);
        let mut room = if view.history == Some(0) && !view.artifacts { BARE } else { SNAPSHOT };
        loop {
            let bytes = call.luggage.room(room);
            let mut load =
                if is_patient { flight.wait(tenant, bytes).await } else { flight.take(tenant, bytes).await? };
            match self.inner.store.task(tenant, id, View { most: room, ..view }).await {
                Err(store::Error::Heavy { bytes }) => room = bytes,
                Err(error) => return Err(Error::of_task(error, id)),
                Ok(snapshot) if !call.caller.covers(snapshot.agent.as_str()) => {
                    return Err(Error::TaskNotFound(id.to_string()));
                }
                Ok(snapshot) => {
                    load.keep(call.luggage.room(snapshot.size_hint() as u64));
                    call.luggage.put(load);
                    return Ok(snapshot);
                }
            }
        }
    }
}

/// What an agent's URL shows of a task of another agent: nothing.
pub(crate) fn in_scope(target: Option<&Entry>, agent: &AgentId, id: TaskId) -> Result<(), Error> {
    match target {
        Some(entry) if entry.profile.id != *agent => Err(Error::TaskNotFound(id.to_string())),
        _ => Ok(()),
    }
}

pub(crate) fn history_length(given: Option<i32>) -> Result<Option<u32>, Error> {
    match given {
        None => Ok(None),
        Some(n) => match u32::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(Error::invalid("historyLength", "must not be negative")),
        },
    }
}
