//! Workers of the queue that die, sleep, repeat themselves and hang up, while servers are killed; and the controls.

use std::time::Duration;

use super::is_long;
use crate::chaos::{ChaosRun, Installation, Plan, Queue};

/// How many entries a second are published. One in 101 is poisonous.
const PACE: usize = 72;

/// A run in which less happened would prove nothing. The names from `killed` on are of troubles, each of which must have
/// happened.
const LEAST: &[(&str, usize)] = &[
    ("faults", 4),
    ("good", 1000),
    ("letters", 10),
    ("replayed", 10),
    ("killed", 1),
    ("hung up", 1),
    ("held on", 1),
    ("unheard", 1),
    ("nacked", 1),
    ("lapsed", 1),
    ("released", 1),
    ("refused", 1),
    ("repeated", 1),
];

async fn every_entry_ends_as_it_should(installation: Installation, instances: usize) {
    // The short form has 1,010 entries: a thousand good ones and ten that are poisonous.
    let (entries, seconds) = if is_long() { (PACE * 600, 600) } else { (1010, 12) };
    let lasts = Duration::from_secs(seconds);
    // On a busy machine publishing takes longer, and goes on when the kills are over.
    let plan = Plan { at_least: 4, ..Plan::kills((1500, 2500), lasts) };
    let report = ChaosRun { installation, instances, plan, workload: Queue::new(entries, lasts) }.run().await;
    report.assert_clean(LEAST);
    assert_eq!(report.figure("letters"), report.figure("replayed"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_lose_nothing_while_the_server_is_killed_on_sqlite() {
    every_entry_ends_as_it_should(Installation::on_sqlite(), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_lose_nothing_while_one_of_two_instances_is_killed_on_postgres() {
    every_entry_ends_as_it_should(Installation::on_postgres(), 2).await;
}

/// A run against a server that breaks a promise.
fn control(promise: &'static str, sleepers: u64) -> ChaosRun<Queue> {
    let workload = Queue::new(303, Duration::from_secs(8)).with_sleepers(sleepers);
    let plan = Plan { at_least: 2, ..Plan::kills((2000, 3000), Duration::from_secs(8)) };
    ChaosRun { installation: Installation::on_sqlite().breaking(promise), instances: 1, plan, workload }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_worker_that_writes_under_a_lease_that_it_has_lost_is_noticed() {
    // A late write goes over what another worker is at, and only then: the more sleepers the better.
    control("no-fence", 25).run().await.assert_broken(&["late"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_entry_that_is_forgotten_after_an_attempt_that_failed_is_noticed() {
    let report = control("queue-forgets", 3).run().await;
    report.assert_broken(&["unfinished"]);
    let others = ["late", "shared", "robbed"].map(|name| report.violations(name));
    assert_eq!(others, [0; 3], "nothing else is broken: {report}");
}
