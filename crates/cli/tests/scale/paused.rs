//! An instance that stands still for longer than its lease.

use std::time::{Duration, Instant};

use serde_json::Value;
use store::scratch::Database;

use super::{
    http::{state, to_at_once},
    rig::{Server, Setting},
    sse::Frame,
};

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
