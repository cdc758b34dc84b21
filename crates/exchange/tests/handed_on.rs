//! Work that a turn hands on ends with the turn's task: whatever ends the parent, other than its own completion, cancels the child, and no
//! child begins once the parent has ended.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{Part, TaskState};
use async_trait::async_trait;
use bytes::Bytes;
use exchange::{
    Agent, Agents, Call, Caller, DELEGATION, Deadline, Delegation, Entry, Errand, Errands, Exchange, OnCrash, Options,
    Outcome, Output, Profile, Turn,
};
use rig::{Place, Rig, agent, message};
use store::{Error as StoreError, TaskId};
use tokio::sync::Notify;

/// Hands work on to `child` and then does what its message says.
#[derive(Clone, Default)]
struct Parent {
    children: Arc<Mutex<Vec<TaskId>>>,
    /// Calls of [`Agent::canceled`], the first of which fail so often.
    told: Arc<AtomicU32>,
    fails: u32,
    /// What holds the turn up between keeping the child's id and handing on, and what came of handing on after that.
    thaw: Arc<Notify>,
    late: Arc<Mutex<Option<Result<TaskId, String>>>>,
}

impl Parent {
    fn entry(&self) -> Entry {
        let mut profile = Profile::new("parent".parse().unwrap(), "test");
        profile.tells_cancel = true;
        profile.on_crash = OnCrash::Resume;
        Entry::new(profile, Arc::new(self.clone()))
    }

    fn children(&self) -> Vec<TaskId> {
        self.children.lock().unwrap().clone()
    }

    async fn until_handed_on(&self) -> TaskId {
        for _ in 0..500 {
            if let Some(child) = self.children().first() {
                return *child;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing was handed on");
    }
}

async fn hand_on(turn: &Turn, child: TaskId) -> Result<TaskId, exchange::Error> {
    let errands = turn.errands.clone().unwrap();
    let caller = errands.caller().await.unwrap();
    let errand = Errand {
        task: child,
        agent: "child".into(),
        text: "work".into(),
        key: format!("{child}"),
        parent: turn.task,
        trace: turn.trace(),
        delegation: turn.ledger.clone().delegate(None).unwrap(),
    };
    errands.hand_on(&caller, errand).await.map(|handed| handed.task())
}

#[async_trait]
impl Agent for Parent {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        let text = turn.text();
        if turn.resumed {
            return Outcome::Completed(Vec::new());
        }
        let child = TaskId::mint();
        let (before, text) = match text.strip_prefix("long ") {
            // The state with the child's id begins like the one before it, and is stored as what it adds.
            Some(text) => (" ".repeat(100 << 10), text),
            None => (String::new(), text.as_str()),
        };
        out.owes_cancel(text == "leaves").await;
        if !before.is_empty() {
            out.keep(before.clone()).await;
            out.flush().await;
        }
        out.keep(before + &child.to_string()).await;
        out.flush().await;
        if text == "frozen" {
            // The process stands still here: what it does next is not stopped by anything that happens to its turn.
            let (thaw, late) = (Arc::clone(&self.thaw), Arc::clone(&self.late));
            self.children.lock().unwrap().push(child);
            tokio::spawn(async move {
                thaw.notified().await;
                let handed = hand_on(&turn, child).await.map_err(|error| error.to_string());
                *late.lock().unwrap() = Some(handed);
            });
            return std::future::pending().await;
        }
        hand_on(&turn, child).await.unwrap();
        self.children.lock().unwrap().push(child);
        match text {
            "panics" => panic!("on purpose"),
            "breaks" => Outcome::Broken("its protocol".into()),
            "retries" => Outcome::Retry("again".into()),
            "fails" => Outcome::Failed(vec![Part::text("by itself")]),
            "rejects" => Outcome::Rejected(Vec::new()),
            "completes" | "leaves" => Outcome::Completed(Vec::new()),
            _ => std::future::pending().await,
        }
    }

    async fn canceled(&self, _: TaskId, state: Bytes, errands: &Errands) -> Result<(), String> {
        if self.told.fetch_add(1, Relaxed) < self.fails {
            return Err("not now".into());
        }
        let child = TaskId::parse(std::str::from_utf8(&state).unwrap().trim_start()).unwrap();
        let caller = errands.caller().await.map_err(|error| error.to_string())?;
        errands.cancel(&caller, child).await.map_err(|error| error.to_string())
    }
}

/// Works until it is canceled.
fn child() -> Entry {
    agent("child", |turn: Turn, _: Output| async move {
        turn.cancel.cancelled().await;
        Outcome::Canceled
    })
}

fn soon() -> Options {
    Options { lease: Duration::from_millis(1500), cancel_grace: Duration::from_millis(100), ..Options::default() }
}

/// Plays a parent whose profile was changed, and gives the state in which it ended and those in which its children did.
async fn ends(says: &str, change: impl FnOnce(&mut Profile)) -> (TaskState, Vec<TaskState>) {
    let parent = Parent::default();
    let mut entry = parent.entry();
    change(&mut entry.profile);
    let rig = Rig::with(soon(), vec![entry, child()]).await;
    let id = rig.start("parent", message(says)).await;
    let state = rig.until_terminal(&id).await.status.state;
    let mut states = Vec::new();
    for child in parent.children() {
        states.push(rig.until_terminal(&child.to_string()).await.status.state);
    }
    (state, states)
}

const FAILED_AND_CANCELED: (TaskState, [TaskState; 1]) = (TaskState::Failed, [TaskState::Canceled]);

fn once(ended: &(TaskState, Vec<TaskState>)) -> (TaskState, [TaskState; 1]) {
    (ended.0, ended.1.clone().try_into().unwrap())
}

#[tokio::test]
async fn a_child_ends_with_a_parent_that_took_too_long() {
    let ended = ends("waits", |profile| profile.timeout = Some(Duration::from_millis(300))).await;
    assert_eq!(once(&ended), FAILED_AND_CANCELED);
}

#[tokio::test]
async fn a_child_ends_with_a_parent_that_panics_or_breaks_its_protocol() {
    assert_eq!(once(&ends("panics", |_| ()).await), FAILED_AND_CANCELED);
    assert_eq!(once(&ends("breaks", |_| ()).await), FAILED_AND_CANCELED);
}

#[tokio::test]
async fn a_child_ends_with_a_parent_that_gives_up_by_itself() {
    assert_eq!(once(&ends("fails", |_| ()).await), FAILED_AND_CANCELED);
    assert_eq!(once(&ends("rejects", |_| ()).await), (TaskState::Rejected, [TaskState::Canceled]));
}

#[tokio::test]
async fn the_children_of_every_attempt_end_when_attempts_are_used_up() {
    assert_eq!(once(&ends("retries", |profile| profile.max_attempts = 1).await), FAILED_AND_CANCELED);
    let ended = ends("retries", |profile| {
        profile.max_attempts = 2;
        profile.on_crash = OnCrash::Retry;
    })
    .await;
    assert_eq!(ended, (TaskState::Failed, vec![TaskState::Canceled; 2]), "also those of the attempt that was undone");
}

#[tokio::test]
async fn a_child_ends_whose_parent_kept_a_state_that_adds_to_an_earlier_one() {
    assert_eq!(once(&ends("long fails", |_| ()).await), FAILED_AND_CANCELED, "the newest state");
    let ended = ends("long retries", |profile| {
        profile.max_attempts = 2;
        profile.on_crash = OnCrash::Retry;
    })
    .await;
    assert_eq!(ended, (TaskState::Failed, vec![TaskState::Canceled; 2]), "the state of every attempt");
}

#[tokio::test]
async fn a_parent_that_completes_leaves_its_child_alone() {
    let parent = Parent::default();
    let rig = Rig::with(soon(), vec![parent.entry(), child()]).await;
    let id = rig.start("parent", message("completes")).await;
    assert_eq!(rig.until_terminal(&id).await.status.state, TaskState::Completed);
    assert_eq!(rig.store.owed_cancels(&["parent".parse().unwrap()], 9).await.unwrap(), []);
    assert_eq!(parent.told.load(Relaxed), 0);
    assert_eq!(rig.get(&parent.children()[0].to_string()).await.status.state, TaskState::Working);
}

#[tokio::test]
async fn a_child_ends_with_a_parent_that_completes_and_says_that_it_leaves_it() {
    assert_eq!(once(&ends("leaves", |_| ()).await), (TaskState::Completed, [TaskState::Canceled]));
}

#[tokio::test]
async fn a_task_is_not_deleted_before_its_child_is_canceled() {
    let parent = Parent { fails: 1, ..Parent::default() };
    let rig = Rig::with(soon(), vec![parent.entry(), child()]).await;
    let id = rig.start("parent", message("waits")).await;
    let handed = parent.until_handed_on().await.to_string();
    rig.exchange.delete_task(&rig.call, &id, true).await.unwrap();
    assert_eq!(rig.get(&handed).await.status.state, TaskState::Canceled);
    assert_eq!(parent.told.load(Relaxed), 2);
}

/// The instance that ran the parent is stopped, and the parent's policy is to fail then. Another instance cancels the child.
#[tokio::test]
async fn a_child_ends_with_a_parent_that_was_interrupted() {
    let place = Place::new();
    let parent = Parent::default();
    let failing = || {
        let mut entry = parent.entry();
        entry.profile.on_crash = OnCrash::Fail;
        entry
    };
    let first = Rig::at(&place, soon(), vec![failing(), child()]).await;
    let id = first.start("parent", message("waits")).await;
    let handed = parent.until_handed_on().await.to_string();
    first.exchange.shut_down(Duration::ZERO).await;
    let second = Rig::at(&place, soon(), vec![failing(), child()]).await;
    assert_eq!(second.until_terminal(&id).await.status.state, TaskState::Failed);
    assert_eq!(second.until_terminal(&handed).await.status.state, TaskState::Canceled);
}

/// As above, but the instance is gone without a word: the attempt is undone by whoever takes it over, and fails then.
#[tokio::test]
async fn a_child_ends_with_a_parent_whose_instance_is_gone() {
    let place = Arc::new(Place::new());
    let parent = Parent::default();
    let entries = {
        let parent = parent.clone();
        move || {
            let mut entry = parent.entry();
            entry.profile.on_crash = OnCrash::Fail;
            vec![entry, child()]
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (its_place, its_entries) = (Arc::clone(&place), entries.clone());
    let started = runtime.spawn(async move {
        let rig = Rig::at(&its_place, soon(), its_entries()).await;
        rig.start("parent", message("waits")).await
    });
    let id = started.await.unwrap();
    let handed = parent.until_handed_on().await.to_string();
    runtime.shutdown_background();
    let second = Rig::at(&place, soon(), entries()).await;
    assert_eq!(second.until_terminal(&id).await.status.state, TaskState::Failed);
    assert_eq!(second.until_terminal(&handed).await.status.state, TaskState::Canceled);
}

#[tokio::test]
async fn a_child_ends_with_a_parent_whose_agent_was_removed() {
    let place = Place::new();
    let parent = Parent::default();
    let store = place.scratch.open().await;
    let tenant = store.create_tenant("default").await.unwrap().id;
    let agents = Agents::default();
    let mut entry = parent.entry();
    entry.profile.timeout = Some(Duration::from_millis(500));
    agents.insert(entry);
    agents.insert(child());
    let exchange = Exchange::start(Arc::clone(&store), agents.clone(), soon()).await.unwrap();
    let call = Call::new(Caller::new(tenant, "default"));
    let configuration = a2a::SendMessageConfiguration { return_immediately: true, ..Default::default() };
    let request = a2a::SendMessageRequest {
        tenant: "parent".into(),
        message: message("waits"),
        configuration: Some(configuration),
        ..Default::default()
    };
    exchange.send(&call, request).await.unwrap();
    let handed = parent.until_handed_on().await;
    agents.remove(&"parent".parse().unwrap());
    for _ in 0..500 {
        if store.head(tenant, handed).await.unwrap().state == TaskState::Canceled {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the child goes on");
}

/// A turn that stands still before it hands work on is no reason to leave a child behind that nobody cancels.
#[tokio::test]
async fn no_child_begins_after_its_parent_has_ended() {
    let parent = Parent::default();
    let rig = Rig::with(soon(), vec![parent.entry(), child()]).await;
    let id = rig.start("parent", message("frozen")).await;
    let handed = parent.until_handed_on().await;
    assert_eq!(rig.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    // The cancel was passed on: to nobody, since there is no child yet.
    for _ in 0..500 {
        if rig.store.owed_cancels(&["parent".parse().unwrap()], 9).await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Once more when its turn hears that it has lost its lease.
    assert_ne!(parent.told.load(Relaxed), 0);
    parent.thaw.notify_one();
    let mut late = None;
    for _ in 0..500 {
        late = parent.late.lock().unwrap().take();
        if late.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(late.unwrap().is_err(), "it is refused");
    let found = rig.store.head(rig.call.caller.tenant, handed).await;
    assert!(matches!(found, Err(StoreError::NotFound)), "{found:?}");
}

/// A turn that stood still while its task was ended elsewhere may have handed work on since, which the cancel of that time did not find.
#[tokio::test]
async fn what_a_turn_may_have_handed_on_after_the_end_of_its_task_is_canceled_too() {
    let parent = Parent::default();
    // The turn hears of the end when it renews its lease, after the cancel was passed on.
    let (lease, cancel_grace) = (Duration::from_secs(15), Duration::from_secs(60));
    let options = Options { lease, cancel_grace, ..soon() };
    let rig = Rig::with(options, vec![parent.entry(), child()]).await;
    let id = rig.start("parent", message("frozen")).await;
    parent.until_handed_on().await;
    let (tenant, task) = (rig.call.caller.tenant, TaskId::parse(&id).unwrap());
    rig.store.mark_cancel(tenant, task).await.unwrap();
    rig.store.force_cancel(tenant, task).await.unwrap();
    for _ in 0..500 {
        if parent.told.load(Relaxed) == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    panic!("told {} times", parent.told.load(Relaxed));
}

/// Has others at work, who take a while to cancel.
struct Employer(Arc<AtomicU32>);

#[async_trait]
impl Agent for Employer {
    async fn run(&self, _: Turn, out: Output) -> Outcome {
        out.keep("others").await;
        out.flush().await;
        std::future::pending().await
    }

    async fn canceled(&self, _: TaskId, _: Bytes, _: &Errands) -> Result<(), String> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// A bounded number of an agent's cancels is passed on at once. The others do not wait for the next regular look.
#[tokio::test]
async fn cancels_of_many_tasks_that_end_together_are_passed_on_without_pauses() {
    const TASKS: u32 = 120;
    let told = Arc::new(AtomicU32::new(0));
    let mut profile = Profile::new("employer".parse().unwrap(), "test");
    profile.tells_cancel = true;
    profile.concurrency = TASKS as usize;
    let rig = Rig::with(soon(), vec![Entry::new(profile, Arc::new(Employer(Arc::clone(&told))))]).await;
    let mut ids = Vec::new();
    for _ in 0..TASKS {
        ids.push(rig.start("employer", message("go")).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    futures_util::future::join_all(ids.iter().map(|id| rig.cancel(id))).await;
    let ended = std::time::Instant::now();
    while told.load(Relaxed) < TASKS {
        assert!(ended.elapsed() < Duration::from_secs(9), "{} of {TASKS}", told.load(Relaxed));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Has others at work, of whom those of one task never answer.
struct Divided(Arc<Mutex<Option<TaskId>>>);

#[async_trait]
impl Agent for Divided {
    async fn run(&self, _: Turn, out: Output) -> Outcome {
        out.keep("others").await;
        out.flush().await;
        std::future::pending().await
    }

    async fn canceled(&self, task: TaskId, _: Bytes, _: &Errands) -> Result<(), String> {
        if *self.0.lock().unwrap() == Some(task) {
            return std::future::pending().await;
        }
        // It is told together with the other.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(())
    }
}

/// Each cancel is settled when its own agent has answered, not when the slowest one has.
#[tokio::test]
async fn a_cancel_that_is_not_answered_keeps_no_other_from_being_settled() {
    let silent = Arc::new(Mutex::new(None));
    let mut profile = Profile::new("divided".parse().unwrap(), "test");
    profile.tells_cancel = true;
    profile.concurrency = 2;
    let entry = || Entry::new(profile.clone(), Arc::new(Divided(Arc::clone(&silent))));
    let place = Place::new();
    let before = Rig::at(&place, soon(), vec![entry()]).await;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        tasks.push(TaskId::parse(&before.start("divided", message("go")).await).unwrap());
    }
    for task in &tasks {
        before.until_kept(*task).await;
    }
    *silent.lock().unwrap() = Some(tasks[0]);
    // Both are owed when the next instance looks for the first time, which tells them together.
    before.exchange.shut_down(Duration::ZERO).await;
    for task in &tasks {
        before.store.mark_cancel(before.call.caller.tenant, *task).await.unwrap();
    }
    let rig = Rig::at(&place, soon(), vec![entry()]).await;
    let agents = ["divided".parse().unwrap()];
    let owed = async || rig.store.owed_cancels(&agents, 9).await.unwrap();
    let ended = std::time::Instant::now();
    while owed().await.iter().any(|owed| owed.task == tasks[1]) {
        assert!(ended.elapsed() < Duration::from_secs(15), "it waits for the other");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(owed().await.iter().any(|owed| owed.task == tasks[0]));
}

impl Rig {
    async fn until_kept(&self, task: TaskId) {
        for _ in 0..500 {
            let events = self.store.events(self.call.caller.tenant, task, 0, 100).await.unwrap();
            if events.iter().any(|event| event.kind == store::EventKind::Kept) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing was kept");
    }
}

/// For how long a cancel is tried is not decided by wall clocks, which may be set at any time.
#[tokio::test]
async fn a_cancel_that_cannot_be_passed_on_is_tried_again_whatever_the_wall_clock_says() {
    let parent = Parent { fails: 2, ..Parent::default() };
    let rig = Rig::with(soon(), vec![parent.entry(), child()]).await;
    let id = rig.start("parent", message("waits")).await;
    let handed = parent.until_handed_on().await.to_string();
    store::clock::bend(Some(|millis| millis - 25 * 3_600_000));
    rig.cancel(&id).await.unwrap();
    store::clock::bend(None);
    assert_eq!(rig.until_terminal(&handed).await.status.state, TaskState::Canceled);
    assert_eq!(parent.told.load(Relaxed), 3);
}

/// The time that a caller waits is measured by the store's clock while the task waits, and by a steady one while it runs.
#[tokio::test]
async fn a_turn_knows_how_long_its_caller_waits_whatever_the_wall_clock_says() {
    let place = Place::new();
    let left = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&left);
    let entry = agent("patient", move |turn: Turn, out: Output| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(turn.origin.delegation.time_left());
            if turn.resumed {
                return Outcome::Completed(Vec::new());
            }
            out.keep("state").await;
            store::clock::bend(Some(|millis| millis + 25 * 3_600_000));
            Outcome::Parked { at_most: Some(Duration::from_millis(10)) }
        }
    });
    let rig = Rig::at(&place, soon(), vec![entry]).await;
    let mut request = rig.request("patient", message("go"));
    let hour = Duration::from_secs(3600);
    let told = Delegation { depth: 1, deadline: Some(Deadline::after(hour)), ..Delegation::default() };
    request.metadata = a2a::JsonObject::from_value(&serde_json::json!({ DELEGATION: told }));
    rig.exchange.send(&rig.call, request).await.unwrap();
    store::clock::bend(None);
    let left = left.lock().unwrap().clone();
    assert_eq!(left.len(), 2);
    for left in left {
        assert!(left.is_some_and(|left| left <= hour && left + Duration::from_secs(60) > hour), "{left:?}");
    }
}
