//! What the cases have in common: a tenant, an agent, and short ways to say things.

use std::{sync::Arc, time::Duration};

use a2a::{Artifact, Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus, Timestamp};
use bytes::Bytes;

use store::{
    Accept, Accepted, AgentId, Append, Appended, Claim, Draft, Event, EventKind, Filter, Holder, IdempotencyKey, Lease,
    LeasedTurn, Result, Room, Snapshot, Start, Store, Target, TaskId, TenantId, Term, Turn, TurnEnd, View, clock,
};

pub(super) const CONTEXT: &str = "context";

/// Longer than any case.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A lease or a wait of this length is over at once.
pub(super) const NOTHING: Duration = Duration::ZERO;

pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
}

impl World {
    pub(super) async fn new(store: Arc<dyn Store>) -> Self {
        let tenant = store.create_tenant("first").await.unwrap().id;
        Self { store, tenant, agent: agent("echo") }
    }

    /// The same store for another tenant.
    pub(super) async fn other(&self) -> Self {
        let tenant = self.store.create_tenant("second").await.unwrap().id;
        Self { store: Arc::clone(&self.store), tenant, agent: self.agent.clone() }
    }

    /// A message that begins a task, not leased.
    pub(super) fn begin(&self, says: &str) -> (TaskId, Accept) {
        let task = TaskId::mint();
        let at = clock::now();
        let message = message(task, Role::User, says);
        let created = StreamResponse::Task(Task {
            id: task.to_string(),
            context_id: CONTEXT.into(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(at) },
            history: vec![message.clone()],
            ..Task::default()
        });
        let target = Target::New {
            task,
            agent: self.agent.clone(),
            context: CONTEXT.into(),
            created: serde_json::to_vec(&created).unwrap().into(),
            hold: false,
            remembers: true,
            post: store::Post::default(),
            origin: None,
            tells_cancel: false,
        };
        let accept = Accept {
            target,
            message_id: message.message_id.clone(),
            message: serde_json::to_vec(&message).unwrap().into(),
            idempotency: None,
            lease: None,
            working: status(task, TaskState::Working, None),
            push: None,
            quota: store::Quota::default(),
            parent: None,
            request: None,
            at,
        };
        (task, accept)
    }

    /// A message for an existing task, not leased.
    pub(super) fn more(&self, task: TaskId, says: &str) -> Accept {
        let message = message(task, Role::User, says);
        Accept {
            target: Target::Continue { task, max_waiting: 8, submitted: status(task, TaskState::Submitted, None) },
            message_id: message.message_id.clone(),
            message: serde_json::to_vec(&message).unwrap().into(),
            idempotency: None,
            lease: None,
            working: status(task, TaskState::Working, None),
            push: None,
            quota: store::Quota::default(),
            parent: None,
            request: None,
            at: clock::now(),
        }
    }

    pub(super) async fn accept(&self, accept: Accept) -> Result<Accepted> {
        self.store.accept(self.tenant, accept).await
    }

    /// A new task that waits to be leased.
    pub(super) async fn waiting(&self, says: &str) -> TaskId {
        let (task, accept) = self.begin(says);
        self.accept(accept).await.unwrap();
        task
    }

    /// A new task that this instance runs.
    pub(super) async fn running(&self, says: &str) -> (TaskId, Lease) {
        let (task, accept) = self.begin(says);
        let accepted = self.accept(self.leased(accept)).await.unwrap();
        (task, accepted.lease.unwrap())
    }

    /// A new task whose first output may be a direct reply.
    pub(super) async fn held(&self, says: &str) -> (TaskId, Lease) {
        let (task, accept) = self.begin(says);
        let accepted = self.accept(held(self.leased(accept))).await.unwrap();
        (task, accepted.lease.unwrap())
    }

    /// A new task that has asked a question.
    pub(super) async fn asking(&self, asks: &str) -> TaskId {
        let (task, lease) = self.running("go").await;
        self.end(&lease, TaskState::InputRequired, Some(asks)).await.unwrap();
        task
    }

    pub(super) async fn append(&self, lease: &Lease, drafts: Vec<Draft>) -> Result<Appended> {
        self.store.append(lease, Append { drafts, end: None, ..Append::default() }).await
    }

    pub(super) async fn finish(&self, lease: &Lease, end: TurnEnd) -> Result<Appended> {
        self.store.append(lease, Append { drafts: Vec::new(), end: Some(end), ..Append::default() }).await
    }

    pub(super) async fn end(&self, lease: &Lease, state: TaskState, says: Option<&str>) -> Result<Appended> {
        self.finish(lease, TurnEnd::Status(status(lease.task, state, says))).await
    }

    /// The same message, its turn leased to this instance.
    pub(super) fn leased(&self, accept: Accept) -> Accept {
        self.leased_for(accept, MINUTE)
    }

    pub(super) fn leased_for(&self, accept: Accept, lasts: Duration) -> Accept {
        Accept { lease: Some(Term { holder: self.me(), lasts }), ..accept }
    }

    /// This instance, as a holder.
    pub(super) fn me(&self) -> Holder {
        self.store.instance().into()
    }

    /// Lets a lease run out. Nobody has taken it over yet.
    pub(super) async fn run_out(&self, lease: &Lease) {
        assert_eq!(self.store.renew(std::slice::from_ref(lease), NOTHING).await.unwrap(), []);
    }

    /// A claim of this instance.
    pub(super) fn claim(&self, room: Vec<Room>) -> Claim {
        Claim::new(Term { holder: self.me(), lasts: MINUTE }, room)
    }

    /// Leases what is due of this agent.
    pub(super) async fn lease(&self) -> Vec<LeasedTurn> {
        self.store.claim(self.claim(vec![Room::new(self.agent.clone(), 100)])).await.unwrap()
    }

    /// The same of an agent that goes on where it last kept its state.
    pub(super) async fn resume(&self) -> Vec<LeasedTurn> {
        let room = Room { resumes: true, ..Room::new(self.agent.clone(), 100) };
        self.store.claim(self.claim(vec![room])).await.unwrap()
    }

    /// Leases the one task that is due.
    pub(super) async fn lease_one(&self) -> LeasedTurn {
        let mut leased = self.lease().await;
        assert_eq!(leased.len(), 1, "{leased:?}");
        leased.remove(0)
    }

    pub(super) async fn task(&self, task: TaskId) -> Snapshot {
        self.store.task(self.tenant, task, View::FULL).await.unwrap()
    }

    pub(super) async fn state(&self, task: TaskId) -> TaskState {
        self.store.head(self.tenant, task).await.unwrap().state
    }

    /// The whole log, checked to be gapless.
    pub(super) async fn events(&self, task: TaskId) -> Vec<Event> {
        let events = self.store.events(self.tenant, task, 0, 10_000).await.unwrap();
        for (event, seq) in events.iter().zip(1..) {
            assert_eq!(event.seq, seq, "the log has a gap");
        }
        let head = self.store.head(self.tenant, task).await.unwrap();
        assert_eq!(head.seq, events.len() as u64);
        events
    }

    pub(super) async fn kinds(&self, task: TaskId) -> Vec<EventKind> {
        self.events(task).await.iter().map(|event| event.kind).collect()
    }

    pub(super) async fn total(&self) -> u64 {
        self.store.list(self.tenant, everything()).await.unwrap().total
    }
}

pub(super) const CREATED: EventKind = EventKind::Created { held: false };
pub(super) const HELD: EventKind = EventKind::Created { held: true };
pub(super) const STARTED: EventKind = EventKind::Started(Start::First);
pub(super) const AGAIN: EventKind = EventKind::Started(Start::Again);
pub(super) const RESUMED: EventKind = EventKind::Started(Start::Resumed);
pub(super) const NOTE: EventKind = EventKind::Note;
pub(super) const KEPT: EventKind = EventKind::Kept;
pub(super) const REVEALED: EventKind = EventKind::Revealed;
pub(super) const INPUT: EventKind = EventKind::Input;
pub(super) const ARTIFACT: EventKind = EventKind::Artifact;
pub(super) const REPLY: EventKind = EventKind::Reply;

/// A status on the way.
pub(super) fn is(state: TaskState) -> EventKind {
    EventKind::Status { state, ends_turn: false }
}

/// A status that ends a turn.
pub(super) fn ends(state: TaskState) -> EventKind {
    EventKind::Status { state, ends_turn: true }
}

pub(super) fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

pub(super) fn held(mut accept: Accept) -> Accept {
    if let Target::New { hold, .. } = &mut accept.target {
        *hold = true;
    }
    accept
}

pub(super) fn keyed(accept: Accept, key: u8, content: u8) -> Accept {
    let idempotency = Some(IdempotencyKey { key: [key; 32], fingerprint: [content; 32], keep: None });
    Accept { idempotency, ..accept }
}

pub(super) fn message(task: TaskId, role: Role, says: &str) -> Message {
    Message {
        message_id: format!("message-{says}"),
        context_id: CONTEXT.into(),
        task_id: task.to_string(),
        role,
        parts: vec![Part::text(says)],
        ..Message::default()
    }
}

pub(super) fn status(task: TaskId, state: TaskState, says: Option<&str>) -> Draft {
    let message = says.map(|says| message(task, Role::Agent, says));
    Draft::status(task, CONTEXT, state, message, None, clock::now()).unwrap()
}

pub(super) fn artifact(task: TaskId, id: &str, text: &str, append: bool) -> Draft {
    let artifact = Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() };
    Draft::artifact(task, CONTEXT, artifact, append, false, None, clock::now()).unwrap()
}

pub(super) fn note() -> Draft {
    Draft::note(Bytes::from_static(b"{}"), clock::now())
}

pub(super) fn kept(state: &str) -> Draft {
    Draft::kept(Bytes::copy_from_slice(state.as_bytes()), clock::now())
}

pub(super) fn reply(task: TaskId, says: &str) -> TurnEnd {
    TurnEnd::Reply {
        reply: Draft::reply(message(task, Role::Agent, says), clock::now()).unwrap(),
        otherwise: status(task, TaskState::Completed, Some(says)),
    }
}

pub(super) fn later(millis: i64) -> Timestamp {
    Timestamp::from_millis(clock::now().as_millis() + millis)
}

pub(super) fn past() -> Timestamp {
    later(-1000)
}

pub(super) fn says(message: &Message) -> String {
    message.parts.iter().filter_map(Part::as_text).collect()
}

pub(super) fn turn_says(turn: &Turn) -> String {
    says(&turn.message)
}

pub(super) fn all_say(messages: &[Message]) -> Vec<String> {
    messages.iter().map(says).collect()
}

pub(super) fn bytes_say(messages: &[Bytes]) -> Vec<String> {
    messages.iter().map(|bytes| says(&serde_json::from_slice(bytes).unwrap())).collect()
}

/// Each artifact's id and text.
pub(super) fn artifacts_say(snapshot: &Snapshot) -> Vec<(String, String)> {
    let task = snapshot.to_task().unwrap();
    let text = |artifact: &Artifact| artifact.parts.iter().filter_map(Part::as_text).collect();
    task.artifacts.iter().map(|artifact| (artifact.artifact_id.clone(), text(artifact))).collect()
}

pub(super) fn everything() -> Filter {
    Filter {
        agent: None,
        among: Vec::new(),
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 100,
        view: View::FULL,
    }
}

/// Lets the clock move on by at least a millisecond, where an order by time is wanted.
pub(super) async fn tick() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}
