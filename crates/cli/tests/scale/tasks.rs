//! Tasks while instances or their database fail, and the controls that show what the check would notice.

use std::time::Duration;

use super::is_long;
use crate::chaos::{ChaosRun, Fault, Installation, Plan, Tasks};

const SECOND: Duration = Duration::from_secs(1);

/// One server on SQLite, whose callers use programs, too.
fn one_server(callers: usize, kills: usize) -> ChaosRun<Tasks> {
    let plan = Plan { fault: Fault::KILL, every: (300, 1500), lasts: Duration::ZERO, at_least: kills };
    let workload = Tasks::new(callers).with_senders(4).with_programs().with_frequent_kills();
    ChaosRun { installation: Installation::on_sqlite(), instances: 1, plan, workload }
}

/// Three instances on PostgreSQL.
fn three_instances(installation: Installation, plan: Plan, workload: Tasks) -> ChaosRun<Tasks> {
    ChaosRun { installation, instances: 3, plan, workload }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_loses_nothing_when_it_is_killed() {
    let kills = if is_long() { 20 } else { 3 };
    let report = one_server(120, kills).run().await;
    report.assert_clean(&[("ok", 120), ("followed", 50), ("recovered", 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_lose_nothing_when_one_is_killed() {
    // In the short form leases are short, so that callers need not wait for a proof that an instance is dead.
    let (lasts, lease) = if is_long() { (120, "30s") } else { (14, "3s") };
    let plan = Plan { at_least: 2, ..Plan::kills((2000, 5000), lasts * SECOND) };
    let workload = Tasks::new(100).with_lease(lease);
    let report = three_instances(Installation::on_postgres(), plan, workload).run().await;
    // Few kills may all miss the moment between a commit and its answer; many do not.
    report.assert_clean(&[("ok", 100), ("recovered", usize::from(is_long()))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_itself_is_killed() {
    // The short form is two kills, however long the instances take to notice them.
    let (every, lasts, lease) = if is_long() { ((5000, 40_000), 120, "30s") } else { ((2000, 3000), 0, "3s") };
    let plan = Plan { fault: Fault::KillDatabase, every, lasts: lasts * SECOND, at_least: 2 };
    let workload = Tasks::new(100).with_lease(lease);
    let report = three_instances(Installation::on_its_own_postgres(), plan, workload).run().await;
    report.assert_clean(&[("ok", 100)]);
}

/// Short leases, and an instance that stands still for longer, again and again. On a busy machine a lease of a second runs out by itself
/// as well, so often that turns use up their attempts.
fn frozen(installation: Installation, callers: usize, lasts: Duration) -> ChaosRun<Tasks> {
    let fault = Fault::Freeze(Duration::from_millis(2700));
    let plan = Plan { fault, every: (300, 1000), lasts, at_least: 3 };
    three_instances(installation, plan, Tasks::new(callers).with_lease("2s"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_of_which_one_stands_still_at_times() {
    let lasts = if is_long() { 60 } else { 10 } * SECOND;
    let report = frozen(Installation::on_postgres(), 60, lasts).run().await;
    report.assert_clean(&[("ok", 60)]);
}

/// Runs a control until the violation is noticed, at most three times: whether a fault meets the moment at which the promise
/// is broken is a matter of chance.
async fn breaks(run: impl Fn() -> ChaosRun<Tasks>, violation: &str) {
    for _ in 0..2 {
        if run().run().await.violations(violation) > 0 {
            return;
        }
    }
    run().run().await.assert_broken(&[violation]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_answer_before_the_commit_is_noticed() {
    let run = || {
        let installation = Installation::on_postgres().breaking("ack-before-commit");
        let plan = Plan::kills((200, 500), 6 * SECOND);
        three_instances(installation, plan, Tasks::new(30).with_senders(8).with_lease("3s"))
    };
    breaks(run, "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_lease_without_a_fence_is_noticed() {
    breaks(|| frozen(Installation::on_postgres().breaking("no-fence"), 60, 8 * SECOND), "wrong results").await;
}

async fn control_on_one_server(promise: &'static str, callers: usize, kills: usize, violation: &str) {
    let run = || {
        let run = one_server(callers, kills);
        ChaosRun { installation: run.installation.breaking(promise), ..run }
    };
    breaks(run, violation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_an_answer_before_the_commit_is_noticed_on_one_server() {
    control_on_one_server("ack-before-commit", 10, 6, "lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_stream_that_skips_an_event_is_noticed() {
    control_on_one_server("skip-one", 30, 2, "wrong streams").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_program_that_outlives_its_server_is_noticed() {
    control_on_one_server("no-guard", 30, 1, "survivors").await;
}
