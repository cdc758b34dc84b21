//! Webhooks at receivers that behave badly, while servers are killed; and the controls.

use std::time::Duration;

use super::is_long;
use crate::chaos::{ChaosRun, Installation, Plan, Webhooks, webhooks::Manners};

/// A run in which less happened would prove nothing. The names from `swallowed` on are of troubles, each of which must have
/// happened.
const LEAST: &[(&str, usize)] = &[
    ("faults", 4),
    ("tasks", 24),
    ("delivered", 200),
    ("accepted", 1),
    ("swallowed", 1),
    ("put off", 1),
    ("hung", 1),
    ("reset", 1),
    ("gone", 1),
    ("deleted", 1),
    ("left", 1),
    ("repeated", 1),
    ("followed", 1),
];

async fn all_that_is_owed_arrives(installation: Installation, instances: usize) {
    let lasts = Duration::from_secs(if is_long() { 180 } else { 15 });
    let plan = Plan { at_least: 4, ..Plan::kills((2000, 3000), lasts) };
    ChaosRun { installation, instances, plan, workload: Webhooks::new() }.run().await.assert_clean(LEAST);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_told_all_while_the_server_is_killed_on_sqlite() {
    all_that_is_owed_arrives(Installation::on_sqlite(), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_told_all_while_one_of_two_instances_is_killed_on_postgres() {
    all_that_is_owed_arrives(Installation::on_postgres(), 2).await;
}

/// A run against a server that breaks a promise, with as many kills as it takes to notice.
fn control(promise: &'static str, workload: Webhooks, seconds: u64) -> ChaosRun<Webhooks> {
    let plan = Plan::kills((1000, 1500), Duration::from_secs(seconds));
    ChaosRun { installation: Installation::on_sqlite().breaking(promise), instances: 1, plan, workload }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_notification_that_is_settled_before_it_is_sent_is_noticed() {
    // A kill loses what it finds in an attempt that does not succeed: the more of those the better.
    let report = control("push-settles-first", Webhooks::to(&[Manners::Moody; 3]), 10).run().await;
    report.assert_broken(&["lost", "skipped"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_failed_attempt_that_counts_as_told_is_noticed() {
    let report = control("push-forgets", Webhooks::new(), 4).run().await;
    report.assert_broken(&["lost", "skipped"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_retry_with_another_id_is_noticed() {
    let report = control("push-new-id", Webhooks::new(), 4).run().await;
    report.assert_broken(&["renamed"]);
    assert_eq!([report.violations("lost"), report.violations("skipped")], [0, 0], "nothing else is broken: {report}");
}
