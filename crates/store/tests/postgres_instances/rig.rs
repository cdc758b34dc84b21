//! What the tests have in common: a database, instances on it, and short ways to say things.

use std::{sync::Arc, time::Duration};

use a2a::{Message, Part, Role, TaskState};
use store::{
    Accept, AgentId, Append, Appended, Claim, Draft, EventKind, IdempotencyKey, Lease, LeasedTurn, Result, Room, Store,
    Target, TaskId, TenantId, Term, TurnEnd, clock,
    postgres::{self, Options},
};
use testkit::postgres::Database;
use tokio_postgres::{Client, NoTls};

pub(crate) const CONTEXT: &str = "context";
pub(crate) const TENANT: TenantId = TenantId(1);

pub(crate) type Instance = Arc<dyn Store>;

pub(crate) async fn open(url: &str) -> Instance {
    open_with(url, Options { patience: Duration::from_secs(5), ..Options::default() }).await
}

pub(crate) async fn open_with(url: &str, options: Options) -> Instance {
    postgres::open(&url.parse().unwrap(), options).await.unwrap()
}

/// A database and two instances on it.
pub(crate) async fn two() -> (Database, Instance, Instance) {
    let database = Database::create();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    (database, one, two)
}

/// A connection beside those of the instances.
pub(crate) async fn raw(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn agents() -> [AgentId; 1] {
    ["echo".parse().unwrap()]
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn term(store: &dyn Store, lasts: Duration) -> Term {
    Term { holder: store.instance().into(), lasts }
}

/// So many turns, for this instance.
pub(crate) async fn claim(store: &dyn Store, slots: usize) -> Vec<LeasedTurn> {
    let [agent] = agents();
    store.claim(Claim::new(term(store, MINUTE), vec![Room::new(agent, slots)])).await.unwrap()
}

pub(crate) fn status(task: TaskId, state: TaskState) -> Draft {
    Draft::status(task, CONTEXT, state, None, None, clock::now()).unwrap()
}

fn message(task: TaskId) -> Message {
    Message {
        message_id: "m".into(),
        task_id: task.to_string(),
        role: Role::User,
        parts: vec![Part::text("hello")],
        ..Message::default()
    }
}

/// A message that begins a task, not leased.
pub(crate) fn begin(task: TaskId) -> Accept {
    Accept {
        target: Target::New {
            task,
            agent: agents()[0].clone(),
            context: CONTEXT.into(),
            created: "{}".into(),
            hold: false,
            remembers: true,
            post: store::Post::default(),
            origin: None,
            tells_cancel: false,
        },
        message_id: "m".into(),
        message: serde_json::to_vec(&message(task)).unwrap().into(),
        idempotency: None,
        lease: None,
        working: status(task, TaskState::Working),
        push: None,
        quota: store::Quota::default(),
        parent: None,
        request: None,
        at: clock::now(),
    }
}

/// The same, leased to this instance.
pub(crate) fn leased(store: &dyn Store, task: TaskId) -> Accept {
    Accept { lease: Some(term(store, MINUTE)), ..begin(task) }
}

/// A message for a task that exists, not leased.
pub(crate) fn more(task: TaskId) -> Accept {
    let target = Target::Continue { task, max_waiting: 10_000, submitted: status(task, TaskState::Submitted) };
    Accept { target, ..begin(task) }
}

pub(crate) fn keyed(accept: Accept, key: u64) -> Accept {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&key.to_be_bytes());
    Accept { idempotency: Some(IdempotencyKey { key: hash, fingerprint: [7; 32], keep: None }), ..accept }
}

pub(crate) async fn running(store: &dyn Store) -> Lease {
    store.accept(TENANT, leased(store, TaskId::mint())).await.unwrap().lease.unwrap()
}

pub(crate) async fn waiting(store: &dyn Store) -> TaskId {
    let task = TaskId::mint();
    store.accept(TENANT, begin(task)).await.unwrap();
    task
}

pub(crate) async fn end(store: &dyn Store, lease: &Lease, state: TaskState) -> Result<Appended> {
    let end = Some(TurnEnd::Status(status(lease.task, state)));
    store.append(lease, Append { drafts: vec![], end, ..Append::default() }).await
}

pub(crate) async fn say(store: &dyn Store, lease: &Lease) -> Result<Appended> {
    let drafts = vec![status(lease.task, TaskState::Working)];
    store.append(lease, Append { drafts, end: None, ..Append::default() }).await
}

/// The kinds of a task's events; the log has no gap, at most one end, and nothing after it.
pub(crate) async fn checked_log(store: &dyn Store, task: TaskId) -> Vec<EventKind> {
    let events = store.events(TENANT, task, 0, 100_000).await.unwrap();
    for (event, seq) in events.iter().zip(1..) {
        assert_eq!(event.seq, seq, "the log of {task} has a gap");
    }
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    let is_end = |kind: &EventKind| matches!(kind, EventKind::Status { state, .. } if state.is_terminal());
    if let Some(end) = kinds.iter().position(is_end) {
        assert_eq!(end, kinds.len() - 1, "something follows the end of {task}: {kinds:?}");
    }
    assert_eq!(store.head(TENANT, task).await.unwrap().seq, events.len() as u64);
    kinds
}

/// What a tenant uses and how many tasks are counted are the sums of what is there.
pub(crate) async fn check_sums(database: &Database) {
    let row = raw(database)
        .await
        .query_one(
            "SELECT (SELECT coalesce(sum(tasks), 0)::bigint FROM tenant_usage),
                    (SELECT count(*) FROM a2a_tasks WHERE state NOT IN ('completed', 'failed', 'canceled', 'rejected')),
                    (SELECT coalesce(sum(bytes), 0)::bigint FROM tenant_usage),
                    (SELECT coalesce(sum(length(body)), 0) FROM a2a_events)
                      + (SELECT coalesce(sum(length(body)), 0) FROM messages)
                      + (SELECT coalesce(sum(length(body)), 0) FROM a2a_artifacts),
                    (SELECT coalesce(sum(n), 0)::bigint FROM task_counts),
                    (SELECT count(*) FROM a2a_tasks WHERE hidden = 0)",
            &[],
        )
        .await
        .unwrap();
    let sums: [i64; 6] = std::array::from_fn(|n| row.get(n));
    assert_eq!((sums[0], sums[2], sums[4]), (sums[1], sums[3], sums[5]), "usage and counts");
}
