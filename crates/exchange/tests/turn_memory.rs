//! Turns with large messages wait for memory: nothing fails, is charged or is lost by that, and others are served.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{CancelTaskRequest, Message, Part, SendMessageConfiguration, Task, TaskState};
use exchange::{Call, Entry, OnCrash, Options, Outcome, Output, Turn};
use futures_util::future::join_all;
use rig::{Rig, agent, message, state_of, task_of};
use store::{TaskId, View};
use tokio_util::sync::CancellationToken;

/// A tenant has room for one such message.
const LARGE: usize = 3 << 20;

/// Leases run out many times while a turn waits.
fn options() -> Options {
    Options { bytes_in_flight: Some(8 << 20), lease: Duration::from_millis(600), ..Options::default() }
}

fn large() -> Message {
    message(&"x".repeat(LARGE))
}

/// Works until the gate is open.
fn holder(gate: &CancellationToken) -> Entry {
    let gate = gate.clone();
    agent("holder", move |_turn: Turn, _out: Output| {
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Outcome::Completed(vec![])
        }
    })
}

/// Says what it was given; it has little time. Counts its turns.
fn counter(begun: &Arc<AtomicUsize>) -> Entry {
    let begun = Arc::clone(begun);
    let mut entry = agent("counter", move |turn: Turn, _out: Output| {
        begun.fetch_add(1, Relaxed);
        async move { Outcome::Completed(vec![Part::text(format!("{} in attempt {}", turn.text().len(), turn.attempt))]) }
    });
    entry.profile.timeout = Some(Duration::from_millis(500));
    entry
}

/// A call of its own: what its answer holds goes with it.
fn call(rig: &Rig) -> Call {
    Call { luggage: Arc::default(), ..rig.call.clone() }
}

async fn send(rig: &Rig, agent: &str, message: Message) -> TaskState {
    state_of(&rig.exchange.send(&call(rig), rig.request(agent, message)).await.unwrap())
}

/// Sends without waiting; the task's id.
async fn start(rig: &Rig, agent: &str, message: Message) -> String {
    let mut request = rig.request(agent, message);
    let configuration = SendMessageConfiguration { return_immediately: true, ..Default::default() };
    request.configuration = Some(configuration);
    task_of(&rig.exchange.send(&call(rig), request).await.unwrap()).id
}

/// A task without its messages, once it is in this state.
async fn until(rig: &Rig, id: &str, state: TaskState) -> Task {
    let (tenant, id) = (rig.call.caller.tenant, TaskId::parse(id).unwrap());
    let view = View { history: Some(0), ..View::FULL };
    let reached = async {
        loop {
            let task = rig.store.task(tenant, id, view).await.unwrap();
            if task.state == state {
                return task.to_task().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("it comes to that state")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_memory_is_neither_failed_nor_charged() {
    let (gate, begun) = (CancellationToken::new(), Arc::default());
    let rig = Rig::with(options(), vec![holder(&gate), counter(&begun)]).await;
    start(&rig, "holder", large()).await;
    let waiting = start(&rig, "counter", large()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(begun.load(Relaxed), 0);
    until(&rig, &waiting, TaskState::Working).await;

    assert_eq!(send(&rig, "counter", message("small")).await, TaskState::Completed);
    let other = rig.other_tenant().await;
    let sent = rig.exchange.send(&other, rig.request("counter", large())).await.unwrap();
    assert_eq!(state_of(&sent), TaskState::Completed);
    assert_eq!(begun.load(Relaxed), 2);

    gate.cancel();
    let ended = until(&rig, &waiting, TaskState::Completed).await;
    let said = exchange::text_of(&ended.status.message.unwrap().parts);
    assert_eq!(said, format!("{LARGE} in attempt 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_memory_can_be_canceled() {
    let (gate, begun) = (CancellationToken::new(), Arc::default());
    let rig = Rig::with(options(), vec![holder(&gate), counter(&begun)]).await;
    start(&rig, "holder", large()).await;
    let waiting = start(&rig, "counter", large()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let request = CancelTaskRequest { id: waiting, ..CancelTaskRequest::default() };
    assert_eq!(rig.exchange.cancel(&call(&rig), request).await.unwrap().state, TaskState::Canceled);
    gate.cancel();
    assert_eq!(send(&rig, "counter", large()).await, TaskState::Completed);
    assert_eq!(begun.load(Relaxed), 1, "the one that was canceled never began");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_turn_holds_no_memory() {
    let begun = Arc::default();
    let rests = agent("rests", |_turn: Turn, _out: Output| async {
        Outcome::Parked { at_most: Some(Duration::from_secs(3600)) }
    });
    let rig = Rig::with(options(), vec![rests, counter(&begun)]).await;
    start(&rig, "rests", large()).await;
    assert_eq!(send(&rig, "counter", large()).await, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_that_hold_memory_and_read_a_large_past_do_not_wait_for_each_other() {
    let reads = agent("reads", |turn: Turn, _out: Output| async move {
        let (_, context) = turn.past().await.unwrap();
        Outcome::Completed(vec![Part::text(format!("{} and {}", turn.message.parts.len(), context.len()))])
    });
    let rig = Rig::with(options(), vec![reads]).await;
    let sent = |text: &str| Message { context_id: "c".to_owned(), ..message(text) };
    send(&rig, "reads", sent(&"x".repeat(LARGE))).await;
    let text = "x".repeat(LARGE / 2);
    let all = join_all((0..6).map(|_| send(&rig, "reads", sent(&text))));
    let all = tokio::time::timeout(Duration::from_secs(60), all).await.expect("they come to their ends");
    assert_eq!(all, [TaskState::Completed; 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_behind_a_turn_wait_for_memory_too() {
    let begun = Arc::default();
    let asks = agent("asks", |turn: Turn, out: Output| async move {
        out.text(format!("{};", turn.text().len()), true).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        Outcome::InputRequired(vec![])
    });
    let rig = Rig::with(options(), vec![asks, counter(&begun)]).await;
    let id = start(&rig, "asks", large()).await;
    for _ in 0..2 {
        start(&rig, "asks", Message { task_id: id.clone(), ..large() }).await;
    }
    let ended = until(&rig, &id, TaskState::InputRequired).await;
    let texts: Vec<String> = ended.artifacts.iter().map(|artifact| exchange::text_of(&artifact.parts)).collect();
    assert_eq!(texts, vec![format!("{LARGE};"); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_goes_on_after_an_interruption_holds_memory_for_its_message_and_its_state() {
    const MESSAGE: usize = 3 << 19;
    const STATE: usize = 1 << 20;
    let (gate, begun) = (CancellationToken::new(), Arc::default());
    let opened = gate.clone();
    let mut fragile = agent("fragile", move |turn: Turn, out: Output| {
        let gate = opened.clone();
        async move {
            let Some(state) = &turn.state else {
                out.keep(format!("\"{}\"", "x".repeat(STATE))).await;
                return Outcome::Crashed("its program died".to_owned());
            };
            out.text(format!("{} and {}", turn.text().len(), state.len()), true).await;
            gate.cancelled().await;
            Outcome::Completed(vec![])
        }
    });
    fragile.profile.on_crash = OnCrash::Ask;
    let rig = Rig::with(options(), vec![fragile, counter(&begun)]).await;
    let id = start(&rig, "fragile", message(&"x".repeat(MESSAGE))).await;
    until(&rig, &id, TaskState::InputRequired).await;
    start(&rig, "fragile", Message { task_id: id.clone(), ..message("yes") }).await;
    let said = format!("{MESSAGE} and {}", STATE + 2);
    loop {
        let task = until(&rig, &id, TaskState::Working).await;
        if task.artifacts.iter().any(|artifact| exchange::text_of(&artifact.parts) == said) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // There is room for it beside the message or the state, and not beside both.
    let waiting = start(&rig, "counter", message(&"x".repeat(2 << 20))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(begun.load(Relaxed), 0, "the message and the state are held");
    gate.cancel();
    until(&rig, &waiting, TaskState::Completed).await;
    until(&rig, &id, TaskState::Completed).await;
}
