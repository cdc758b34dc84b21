//! The queue under fault: workers that die, sleep, say things twice and hang up, while servers are killed.
//!
//! A [`storm`] has publishers and workers, who know each other only by the queue; all that they were told is in the [`notes`],
//! written down before anything is asked for, since whoever asks may be gone before there is an answer. The [`verdict`] compares
//! the notes with the journal. The controls are the same storm against servers that break a promise on purpose.

mod notes;
mod site;
mod storm;
mod verdict;
mod worker;

use std::time::Duration;

use storm::Storm;
use verdict::Verdict;

use super::{http, log, random, rig};

/// How many entries a second are published in a storm. One in 101 is poisonous.
const PACE: usize = 72;

fn is_long() -> bool {
    std::env::var_os("SB_LONG").is_some()
}

/// What a verdict has to be on any store.
async fn every_entry_ends_as_it_should(instances: usize) {
    // 1,010 entries in the short form: a thousand good ones among ten.
    let (entries, seconds) = if is_long() { (PACE * 600, 600) } else { (1010, 14) };
    let lasts = Duration::from_secs(seconds);
    let verdict = Storm { entries, lasts, every: (2000, 3500), instances, sleepers: 3, fault: None }.run().await;
    assert!(verdict.is_clean(), "{verdict}");
    assert!(verdict.good >= 1000 && verdict.letters >= 10 && verdict.letters == verdict.replayed, "{verdict}");
    // A storm in which nothing happened proves nothing.
    assert!(verdict.kills >= 4 && verdict.had_every_trouble(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_lose_nothing_while_the_server_is_killed_on_sqlite() {
    every_entry_ends_as_it_should(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_lose_nothing_while_one_of_two_instances_is_killed_on_postgres() {
    every_entry_ends_as_it_should(2).await;
}

/// A storm against a server that breaks a promise.
async fn control(fault: &'static str, sleepers: u64) -> Verdict {
    let lasts = Duration::from_secs(8);
    Storm { entries: 303, lasts, every: (2000, 3000), instances: 1, sleepers, fault: Some(fault) }.run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_worker_that_writes_under_a_lease_that_it_has_lost_is_noticed() {
    // What comes late is written over what somebody else is at, and only then: the more of it the better.
    let verdict = control("no-fence", 25).await;
    assert!(!verdict.is_clean() && verdict.late > 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_entry_that_is_forgotten_after_an_attempt_that_failed_is_noticed() {
    let verdict = control("queue-forgets", 3).await;
    assert!(!verdict.is_clean() && verdict.unfinished > 0, "{verdict}");
    assert_eq!(verdict.late + verdict.shared + verdict.robbed, 0, "nothing else is broken: {verdict}");
}
