//! Wall clocks that jump. Leases go by the journal's own time, so no turn is disturbed and no work waits longer.

use std::time::{Duration, Instant};

use super::http::{is_terminal, state};
use crate::chaos::{Fault, Installation, Instances, POLICIES, Programs, begin};

/// In milliseconds.
const HOUR: i64 = 60 * 60 * 1000;

/// How long waiting work may take: six times half a second, one after the other, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(8);

/// Programs run and others wait for a slot, while the wall clock of the first instance is an hour ahead for longer
/// than a lease, and then an hour behind. Returns what was disturbed by that.
async fn jump(installation: Installation, instances: usize) -> Vec<String> {
    let installation = installation.with_config("lease = \"1s\"\n").with_adjustable_clock_of("a");
    let programs = Programs::of_each_policy(&installation, 3.0, ("one-slot", "retry", 1, 0.5));
    let mut instances = Instances::start(installation, instances).await;
    let mut running = Vec::new();
    for server in instances.servers() {
        for policy in POLICIES {
            running.push(begin(&server.api(), policy, "hello").await);
        }
    }
    programs.have_started(running.len()).await;

    let api = instances[0].api();
    let mut waiting = Vec::new();
    instances.apply(&Fault::Clock(HOUR), 0).await;
    for _ in 0..4 {
        waiting.push(begin(&api, "one-slot", "hello").await);
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    instances.apply(&Fault::Clock(-HOUR), 0).await;
    let set_back = Instant::now();
    for _ in 0..2 {
        waiting.push(begin(&api, "one-slot", "hello").await);
    }

    let mut found = programs.disturbances(&api, &running).await;
    for job in &waiting {
        while !is_terminal(state(&api.task(&job.id).await)) {
            if set_back.elapsed() > PROMPTLY {
                found.push(format!("{job} still waits"));
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    found.extend(programs.disturbances(&api, &waiting).await);
    found
}

#[tokio::test]
async fn a_wall_clock_that_jumps_disturbs_no_turn() {
    let one_server = Box::pin(jump(Installation::on_sqlite(), 1));
    let two_instances = Box::pin(jump(Installation::on_postgres(), 2));
    let (one_server, two_instances) = tokio::join!(one_server, two_instances);
    assert_eq!([one_server, two_instances].concat(), [""; 0]);
}

#[tokio::test]
async fn control_leases_by_a_wall_clock_are_noticed() {
    let found = jump(Installation::on_sqlite().breaking("wall-leases"), 1).await;
    assert!(!found.is_empty(), "work was to wait for an hour");
}
