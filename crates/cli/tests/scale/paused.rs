//! An instance that stands still for longer than its lease.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::postgres::Database;

use super::{
    detour::{Detour, Passage},
    http::{artifact_text, is_terminal, state, to_at_once},
    rig::{PATIENCE, Server, Setting, TOKEN},
    sse::Frame,
};
use crate::harness::Home;

/// The first instance is stopped in its turn; the second takes the task over. The first wakes up when its turn is over and
/// it wants to complete the task. Gives the task's state just after that, and all that was written.
async fn sleep_through_the_lease(fault: Option<&'static str>) -> (String, Vec<Value>) {
    let database = Database::create();
    let setting = Setting::on(database.url()).with_config("lease = \"1s\"\n").with_fault(fault);
    let [first, second]: [Server; 2] = setting.start_all().await;
    // The first to accept a message runs it.
    let task = first.api().send(&to_at_once("slow", "2500")).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.signal("STOP");
    let begun = Instant::now();
    let attempts = |frames: &[Frame]| frames.iter().filter(|frame| frame.state() == Some("WORKING")).count();
    let mut stream = second.api().subscribe(&id, Some(0)).await;
    // The second attempt says WORKING again.
    let mut seen = Vec::new();
    while attempts(&seen) < 2 {
        seen.push(stream.next().await.expect("the task is taken over"));
    }
    let taken_over_after = begun.elapsed();
    assert!(taken_over_after < Duration::from_millis(2500), "the second was to be at work still: {taken_over_after:?}");
    // By now the first one's two and a half seconds are over.
    tokio::time::sleep(Duration::from_millis(2600).saturating_sub(begun.elapsed())).await;
    first.signal("CONT");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let after_waking = state(&second.api().task(&id).await).to_owned();
    let frames = seen.into_iter().chain(stream.rest().await).collect::<Vec<_>>();
    // Whoever reads it from the one that slept sees the same.
    let again = first.api().subscribe(&id, Some(0)).await.rest().await;
    assert_eq!(frames, again);
    (after_waking, frames.into_iter().map(|frame| frame.body).collect())
}

fn ends(frames: &[Value]) -> usize {
    let is_end =
        |frame: &&Value| frame.pointer("/statusUpdate/status/state").is_some_and(|s| s == "TASK_STATE_COMPLETED");
    frames.iter().filter(is_end).count()
}

/// Waits until this holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first instance is stopped after it has kept that it is about to send a message to another Switchboard, and before it does. The
/// second takes the task over and sends the message with its key. The first wakes up while the other Switchboard works, and sends it too.
#[tokio::test]
async fn an_instance_that_stood_still_before_it_sent_a_message_has_the_work_done_once() {
    let elsewhere = Home::on_sqlite();
    let mut serving = elsewhere.serving(&[], &[]);
    serving.env("SB_BOOTSTRAP_TOKEN", TOKEN);
    let far = elsewhere.start(&mut serving).await;
    let entry = format!(
        "agents:\n  - name: next\n    url: {}/a2a/agents/stream\n    auth: {{scheme: bearer, credentialsEnv: SB_BOOTSTRAP_TOKEN}}\n",
        far.url
    );
    let database = Database::create();
    let detour = Detour::to(database.url()).await;
    let mut setting = Setting::on(detour.url())
        .with_config("lease = \"1s\"\n[outbound]\npoll = \"200ms\"\n")
        .with_agents_yaml(&entry)
        .with_fault(Some("slow-send"));
    let first = setting.start("a").await;
    (setting.fault, setting.store) = (None, Some(database.url().to_owned()));
    let far_tasks = || {
        let rows = elsewhere.scratch.look(&["SELECT state FROM a2a_tasks"]);
        rows[0].iter().map(|row| row[0].clone().unwrap_or_default()).collect::<Vec<_>>()
    };

    // The first to accept a message runs it.
    let task = first.api().send(&to_at_once("next", "40 chunks, 100 ms apart")).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    until("it keeps that it is about to send", || first.log().contains("a message is about to be sent")).await;
    first.signal("STOP");
    assert_eq!(far_tasks().len(), 0, "it has not sent yet");
    let second = setting.start("b").await;
    until("the second sends", || far_tasks().len() == 1).await;
    // It does not hear that its lease is lost before it has sent.
    detour.set(Passage::Silent);
    first.signal("CONT");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    detour.set(Passage::Open);
    let is_lost = |log: &str| log.contains("no longer this worker's") || log.contains("has taken the task over");
    until("the first hears that its lease is lost", || is_lost(&first.log())).await;

    let done = second.api().task_when(&id, is_terminal).await;
    let whole: String = (1..=40).map(|n| format!("chunk {n} of 40\n")).collect();
    assert_eq!((state(&done), artifact_text(&done)), ("COMPLETED", whole), "{done:#}");
    let log: Vec<Value> =
        first.api().subscribe(&id, Some(0)).await.rest().await.into_iter().map(|frame| frame.body).collect();
    assert_eq!(ends(&log), 1, "{log:#?}");
    // A cancel that is owed would be told by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(far_tasks(), ["completed"], "the work is done once, and is not canceled");
}

#[tokio::test]
async fn a_paused_worker_cannot_write() {
    let (after_waking, frames) = sleep_through_the_lease(None).await;
    assert_eq!(after_waking, "WORKING", "the second attempt is still at work");
    assert_eq!(ends(&frames), 1, "{frames:#?}");
    assert_eq!(ends(&frames[frames.len() - 1..]), 1, "{frames:#?}");
}

#[tokio::test]
async fn control_a_paused_worker_without_a_fence_is_noticed() {
    let (after_waking, _) = sleep_through_the_lease(Some("no-fence")).await;
    assert_eq!(after_waking, "COMPLETED", "without a fence the sleeper ends what is no longer its own");
}
