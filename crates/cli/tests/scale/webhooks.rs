//! Webhooks under fault: receivers that behave badly in every way there is, while servers are killed.
//!
//! A [`storm`] makes the [`load`]: tasks with webhooks of every kind at [`receiver`]s in this process, which write down all
//! that arrives. What each webhook is [`owed`] is read from the log of its task, and the [`verdict`] compares the two. The
//! controls are the same storm against servers that break a promise on purpose.

mod load;
mod owed;
mod receiver;
mod remade;
mod storm;
mod verdict;

use std::time::Duration;

use receiver::Manners;
use storm::{RECEIVERS, Storm};
use verdict::Verdict;

use super::{http, log, random, rig, sse};

fn is_long() -> bool {
    std::env::var_os("SB_LONG").is_some()
}

/// What a verdict has to be on any store.
async fn all_that_is_owed_arrives(instances: usize) {
    let lasts = Duration::from_secs(if is_long() { 180 } else { 18 });
    let verdict = Storm { lasts, every: (2000, 3500), instances, receivers: RECEIVERS, fault: None }.run().await;
    assert!(verdict.is_clean(), "{verdict}");
    // A storm in which nothing happened proves nothing.
    assert!(verdict.kills >= 4 && verdict.tasks >= 24 && verdict.told >= 200, "{verdict}");
    assert!(verdict.had_every_trouble(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_told_all_while_the_server_is_killed_on_sqlite() {
    all_that_is_owed_arrives(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_told_all_while_one_of_two_instances_is_killed_on_postgres() {
    all_that_is_owed_arrives(2).await;
}

/// A storm against a server that breaks a promise, with as many kills as it takes to notice.
async fn control(fault: &'static str, receivers: &'static [Manners]) -> Verdict {
    let lasts = Duration::from_secs(10);
    Storm { lasts, every: (1000, 1500), instances: 1, receivers, fault: Some(fault) }.run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_notification_that_is_settled_before_it_is_sent_is_noticed() {
    // What is lost is what a kill finds in an attempt that does not succeed: the more of those the better.
    let verdict = control("push-settles-first", &[Manners::Moody; 3]).await;
    assert!(!verdict.is_clean() && verdict.lost + verdict.skipped > 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_failed_attempt_that_counts_as_told_is_noticed() {
    let verdict = control("push-forgets", RECEIVERS).await;
    assert!(!verdict.is_clean() && verdict.lost + verdict.skipped > 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_retry_with_another_id_is_noticed() {
    let verdict = control("push-new-id", RECEIVERS).await;
    assert!(!verdict.is_clean() && verdict.renamed > 0, "{verdict}");
    assert_eq!(verdict.lost + verdict.skipped, 0, "nothing else is broken: {verdict}");
}
