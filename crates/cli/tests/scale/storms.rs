//! The storms, and the controls that show what they would notice.

use std::time::Duration;

use super::storm::{Blow, Storm};

fn is_long() -> bool {
    std::env::var_os("SB_LONG").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_lose_nothing_when_one_is_killed() {
    let lasts = Duration::from_secs(if is_long() { 120 } else { 15 });
    let storm = Storm { blow: Blow::Kill, every: (2000, 5000), lasts, callers: 100, fault: None };
    let verdict = storm.run().await;
    assert!(verdict.is_clean() && verdict.blows >= 2, "{verdict}");
    // Few kills may all miss the moment between a commit and its answer; many do not.
    assert!(verdict.recovered > 0 || !is_long(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_itself_is_killed() {
    // The short form is two kills, however long the instances take to notice them.
    let (every, lasts) = if is_long() { ((5000, 40_000), 120) } else { ((3000, 4000), 0) };
    let lasts = Duration::from_secs(lasts);
    let storm = Storm { blow: Blow::Database, every, lasts, callers: 100, fault: None };
    let verdict = storm.run_on_its_own().await;
    assert!(verdict.is_clean() && verdict.blows >= 2, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_of_which_one_stands_still_at_times() {
    let lasts = Duration::from_secs(if is_long() { 60 } else { 10 });
    let storm = Storm { blow: Blow::Pause, every: (300, 1000), lasts, callers: 60, fault: None };
    let verdict = storm.run().await;
    assert!(verdict.is_clean() && verdict.blows > 2, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_answer_before_the_commit_is_noticed_in_a_storm() {
    let lasts = Duration::from_secs(12);
    let fault = Some("ack-before-commit");
    let verdict = Storm { blow: Blow::Kill, every: (200, 500), lasts, callers: 100, fault }.run().await;
    assert!(!verdict.is_clean() && verdict.lost > 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_lease_without_a_fence_is_noticed_in_a_storm() {
    let lasts = Duration::from_secs(14);
    let verdict =
        Storm { blow: Blow::Pause, every: (300, 1000), lasts, callers: 100, fault: Some("no-fence") }.run().await;
    assert!(!verdict.is_clean() && verdict.wrong_results > 0, "{verdict}");
}
