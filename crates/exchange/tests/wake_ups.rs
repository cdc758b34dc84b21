//! Rule 7: everything still arrives when nobody is told anything, neither inside a process nor between two. And the other
//! way round: who is told need not look.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::time::{Duration, Instant};

use a2a::{Message, Part, TaskState};
use exchange::{Entry, Options, Outcome};
use rig::{Place, Rig, agent, message, state_of, task_of};
use store::{Recent, Wake};

/// How often everyone looks. In a server it is seconds.
const LOOK: Duration = Duration::from_millis(100);

/// Nothing is found later than this, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

fn agents() -> Vec<Entry> {
    let one_at_a_time = |mut entry: Entry| {
        entry.profile.concurrency = 1;
        Entry::new(entry.profile, entry.agent)
    };
    vec![
        agent("counts", |_turn, out| async move {
            for n in 0..5 {
                out.text(format!("{n} "), n == 0).await;
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            Outcome::Completed(Vec::new())
        }),
        agent("asks", |turn, _out| async move {
            match turn.number {
                1 => Outcome::InputRequired(vec![Part::text("well?")]),
                _ => Outcome::Completed(Vec::new()),
            }
        }),
        agent("waits", |turn, _out| async move {
            turn.cancel.cancelled().await;
            Outcome::Canceled
        }),
        one_at_a_time(agent("queues", |_turn, _out| async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            Outcome::Completed(Vec::new())
        })),
    ]
}

async fn silent(place: &Place) -> Rig {
    let store = place.scratch.open_with(Some(Wake::Off), LOOK).await;
    let options = Options { poll: LOOK, cancel_grace: Duration::from_secs(10), ..Options::default() };
    Rig::over(store, options, agents()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_instance_finds_everything_by_looking() {
    let place = Place::new();
    let rig = silent(&place).await;
    let begun = Instant::now();
    // Nothing is announced: otherwise the rest would prove nothing.
    let probe = rig.start("waits", message("x")).await;
    let mut watch = rig.store.hub().watch(store::TaskId::parse(&probe).unwrap());
    let due = rig.store.hub().due();
    assert_eq!(rig.cancel(&probe).await.unwrap().status.state, TaskState::Canceled);
    assert!(!watch.has_changed() && !due.has_changed().unwrap());
    assert!(matches!(watch.recent(0), Recent::Events(events) if events.is_empty()));

    // A blocking send, a stream from its beginning, a question and its answer, and work that waits for a slot.
    let sent = rig.send("counts", message("x")).await.unwrap();
    assert_eq!(state_of(&sent), TaskState::Completed);
    let id = rig.start("counts", message("x")).await;
    assert_eq!(follow(&rig, &id).await, log(&rig, &id).await);
    let asked = task_of(&rig.send("asks", message("x")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let answer = Message { task_id: asked.id.clone(), ..message("so") };
    assert_eq!(state_of(&rig.send("asks", answer).await.unwrap()), TaskState::Completed);
    let mut queued = Vec::new();
    for _ in 0..5 {
        queued.push(rig.start("queues", message("x")).await);
    }
    for id in queued {
        assert_eq!(rig.until_terminal(&id).await.status.state, TaskState::Completed);
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_find_each_others_work_by_looking() {
    let place = Place::new();
    let (a, b) = (silent(&place).await, silent(&place).await);
    let begun = Instant::now();
    let id = a.start("counts", message("x")).await;
    assert_eq!(follow(&b, &id).await, log(&a, &id).await, "B's stream is A's log");
    // Cancel on B stops work on A: by the mark, long before the grace is over.
    let id = a.start("waits", message("x")).await;
    assert_eq!(b.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    assert!(begun.elapsed() < Duration::from_secs(9), "the turn was told: {:?}", begun.elapsed());
    // A question of A is answered on B.
    let asked = task_of(&a.send("asks", message("x")).await.unwrap());
    let answer = Message { task_id: asked.id.clone(), ..message("so") };
    assert_eq!(state_of(&b.send("asks", answer).await.unwrap()), TaskState::Completed);
    assert_eq!(a.get(&asked.id).await.status.state, TaskState::Completed);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

/// The store's own wake-ups with nobody who looks by himself: what arrives was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_tell_each_other() {
    let place = Place::new();
    let never = Duration::from_secs(3600);
    let told = async || {
        let options = Options { poll: never, cancel_grace: never, ..Options::default() };
        Rig::over(place.scratch.open_with(None, never).await, options, agents()).await
    };
    let (a, b) = (told().await, told().await);
    let begun = Instant::now();
    for _ in 0..5 {
        let id = a.start("counts", message("x")).await;
        assert_eq!(follow(&b, &id).await, log(&a, &id).await, "B's stream is A's log");
    }
    let id = a.start("waits", message("x")).await;
    assert_eq!(b.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
    let asked = task_of(&a.send("asks", message("x")).await.unwrap());
    let answer = Message { task_id: asked.id.clone(), ..message("so") };
    assert_eq!(state_of(&b.send("asks", answer).await.unwrap()), TaskState::Completed);
    let mut queued = Vec::new();
    for _ in 0..5 {
        queued.push(a.start("queues", message("x")).await);
    }
    for id in queued {
        assert_eq!(b.until_terminal(&id).await.status.state, TaskState::Completed);
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

/// What a stream from the beginning says: the numbers and bodies of its frames.
async fn follow(rig: &Rig, id: &str) -> Vec<(u64, bytes::Bytes)> {
    let mut frames = rig.frames(id, 0).await;
    let mut seen = Vec::new();
    while let Some(frame) = tokio::time::timeout(PATIENCE, frames.next()).await.unwrap() {
        let frame = frame.unwrap();
        seen.push((frame.seq(), rig::event(&frame).body.clone()));
    }
    seen
}

/// The same, from the journal.
async fn log(rig: &Rig, id: &str) -> Vec<(u64, bytes::Bytes)> {
    let task = store::TaskId::parse(id).unwrap();
    let events = rig.store.events(rig.call.caller.tenant, task, 0, 1000).await.unwrap();
    events.into_iter().map(|event| (event.seq, event.body)).collect()
}
