//! An exchange over a fresh journal, agents as closures, and the calls tests make most.

#![expect(clippy::unwrap_used, reason = "a test rig")]

use std::{future::Future, sync::Arc, time::Duration};

use a2a::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, Role, SendMessageRequest,
    SubscribeToTaskRequest, Task, TaskState,
};
use async_trait::async_trait;
use exchange::{
    Agent, Agents, Call, Caller, Entry, Exchange, Frames, Options, Outcome, Output, Profile, Reply, Sent, Turn,
};
use store::{Accept, Append, Draft, Store, Target, TaskId, TenantId, Term, clock};
use testkit::temp_store::TempStore;

#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) exchange: Exchange,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) call: Call,
    _place: Option<Arc<Place>>,
}

/// A journal of its own, for one exchange or several.
pub(crate) struct Place {
    pub(crate) scratch: TempStore,
    _dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { scratch: TempStore::new(dir.path()), _dir: dir }
    }
}

struct Closure<F>(F);

#[async_trait]
impl<F, R> Agent for Closure<F>
where
    F: Fn(Turn, Output) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send,
{
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        (self.0)(turn, out).await
    }
}

pub(crate) fn agent<F, R>(id: &str, run: F) -> Entry
where
    F: Fn(Turn, Output) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let mut profile = Profile::new(id.parse().unwrap(), "test");
    profile.concurrency = 256;
    Entry::new(profile, Arc::new(Closure(run)))
}

pub(crate) fn message(text: &str) -> Message {
    Message {
        message_id: TaskId::mint().to_string(),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..Message::default()
    }
}

pub(crate) fn task_of(sent: &Sent) -> Task {
    match &sent.reply {
        Reply::Task(snapshot) => snapshot.to_task().unwrap(),
        Reply::Direct(event) => panic!("a direct reply: {event:?}"),
    }
}

/// The bytes of a direct reply.
pub(crate) fn direct(sent: &Sent) -> bytes::Bytes {
    match &sent.reply {
        Reply::Direct(event) => event.body.clone(),
        Reply::Task(snapshot) => panic!("a task: {snapshot:?}"),
    }
}

/// The bytes of an event.
pub(crate) fn event(frame: &exchange::Frame) -> &store::Event {
    match frame {
        exchange::Frame::Event(event) => event,
        exchange::Frame::Task(snapshot) => panic!("a task: {snapshot:?}"),
    }
}

pub(crate) fn state_of(sent: &Sent) -> TaskState {
    task_of(sent).status.state
}

impl Rig {
    pub(crate) async fn new(agents: Vec<Entry>) -> Self {
        Self::with(Options::default(), agents).await
    }

    pub(crate) async fn with(options: Options, agents: Vec<Entry>) -> Self {
        let place = Place::new();
        let rig = Self::at(&place, options, agents).await;
        Self { _place: Some(Arc::new(place)), ..rig }
    }

    pub(crate) async fn at(place: &Place, options: Options, agents: Vec<Entry>) -> Self {
        Self::over(place.scratch.open().await, options, agents).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, options: Options, agents: Vec<Entry>) -> Self {
        let tenant = tenant(store.as_ref(), "default").await;
        let registry = Agents::default();
        for agent in agents {
            registry.insert(agent);
        }
        let exchange = Exchange::start(Arc::clone(&store), registry, options).await.unwrap();
        let call = Call::new(Caller::new(tenant, "default"));
        Self { exchange, store, call, _place: None }
    }

    /// A leased turn whose worker is gone without a word.
    pub(crate) async fn abandon(place: &Place, agent: &str, message: Message, lease: Duration) -> String {
        Self::abandon_at(place, agent, message, lease, Vec::new()).await
    }

    /// The same, after it has said so much.
    pub(crate) async fn abandon_at(
        place: &Place,
        agent: &str,
        message: Message,
        lease: Duration,
        drafts: Vec<Draft>,
    ) -> String {
        let store = place.scratch.open().await;
        let tenant = tenant(store.as_ref(), "default").await;
        let task = TaskId::mint();
        let at = clock::now();
        let working = Draft::status(task, "ctx", TaskState::Working, None, None, at).unwrap();
        let message = Message { task_id: task.to_string(), context_id: "ctx".into(), ..message };
        let accept = Accept {
            target: Target::New {
                task,
                agent: agent.parse().unwrap(),
                context: "ctx".into(),
                created: "{}".into(),
                hold: false,
                remembers: true,
                post: store::Post::default(),
                origin: None,
                tells_cancel: false,
            },
            message_id: message.message_id.clone(),
            message: serde_json::to_vec(&message).unwrap().into(),
            idempotency: None,
            lease: Some(Term { holder: store.instance().into(), lasts: lease }),
            working,
            push: None,
            quota: store::Quota::default(),
            parent: None,
            request: None,
            at,
        };
        let lease = store.accept(tenant, accept).await.unwrap().lease.unwrap();
        if !drafts.is_empty() {
            store.append(&lease, Append { drafts, ..Append::default() }).await.unwrap();
        }
        task.to_string()
    }

    pub(crate) fn request(&self, agent: &str, message: Message) -> SendMessageRequest {
        SendMessageRequest { tenant: agent.to_owned(), message, ..SendMessageRequest::default() }
    }

    pub(crate) async fn send(&self, agent: &str, message: Message) -> Result<Sent, exchange::Error> {
        self.exchange.send(&self.call, self.request(agent, message)).await
    }

    /// Sends without waiting; the task's id.
    pub(crate) async fn start(&self, agent: &str, message: Message) -> String {
        let mut request = self.request(agent, message);
        request.configuration = Some(a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() });
        task_of(&self.exchange.send(&self.call, request).await.unwrap()).id
    }

    pub(crate) async fn get(&self, id: &str) -> Task {
        let request = GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() };
        self.exchange.get(&self.call, request).await.unwrap().to_task().unwrap()
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<Task, exchange::Error> {
        let request = CancelTaskRequest { id: id.to_owned(), ..CancelTaskRequest::default() };
        self.exchange.cancel(&self.call, request).await.map(|snapshot| snapshot.to_task().unwrap())
    }

    pub(crate) async fn frames(&self, id: &str, after: u64) -> Frames {
        let request = SubscribeToTaskRequest { id: id.to_owned(), ..SubscribeToTaskRequest::default() };
        self.exchange.subscribe(&self.call, request, Some(after)).await.unwrap()
    }

    pub(crate) async fn total(&self) -> i32 {
        let listing = self.exchange.list(&self.call, ListTasksRequest::default()).await.unwrap();
        i32::try_from(listing.total).unwrap()
    }

    pub(crate) async fn until_terminal(&self, id: &str) -> Task {
        self.until(id, TaskState::is_terminal).await
    }

    pub(crate) async fn until(&self, id: &str, reached: impl Fn(TaskState) -> bool) -> Task {
        for _ in 0..500 {
            let task = self.get(id).await;
            if reached(task.status.state) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the task never got there: {:?}", self.get(id).await.status);
    }

    /// Waits until so many further messages are in the task's log.
    pub(crate) async fn until_told(&self, id: &str, messages: usize) {
        let task = TaskId::parse(id).unwrap();
        for _ in 0..500 {
            let log = self.store.events(self.call.caller.tenant, task, 0, 1000).await.unwrap();
            if log.iter().filter(|event| event.kind == store::EventKind::Input).count() >= messages {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the messages never came");
    }

    pub(crate) async fn other_tenant(&self) -> Call {
        let tenant = tenant(self.store.as_ref(), "other").await;
        Call::new(Caller::new(tenant, "other"))
    }
}

async fn tenant(store: &dyn Store, name: &str) -> TenantId {
    match store.create_tenant(name).await {
        Ok(tenant) => tenant.id,
        Err(_) => store.tenants().await.unwrap().into_iter().find(|tenant| tenant.name == name).unwrap().id,
    }
}
