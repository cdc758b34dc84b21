//! Wall clocks that jump. Leases go by the journal's own time, so nobody's work is disturbed and nobody's waits.

use std::time::{Duration, Instant};

use testkit::postgres::Database;

use super::{
    http::{is_terminal, state},
    programs::{POLICIES, Programs, begin},
    rig::Setting,
};

/// In milliseconds.
const HOUR: i64 = 60 * 60 * 1000;

/// How long work that waits may take: six times half a second, one after the other, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(8);

/// Programs run and others wait in line, while the wall clock of the first instance is an hour ahead for longer
/// than a lease, and then an hour behind. Says what was disturbed by that.
async fn jump(setting: Setting, names: &[&str]) -> Vec<String> {
    let setting = setting.with_config("lease = \"1s\"\n").with_doubtful_clock_of("a");
    setting.set_clocks(0);
    let programs = Programs::of_each_policy(&setting, 3.0);
    programs.add("line", "retry", 1, 0.5);
    let mut instances = Vec::new();
    for name in names {
        instances.push(setting.start(name).await);
    }
    let mut running = Vec::new();
    for instance in &instances {
        for policy in POLICIES {
            running.push(begin(&instance.api(), policy, "hello").await);
        }
    }
    programs.have_started(running.len()).await;

    let api = instances[0].api();
    let mut waiting = Vec::new();
    setting.set_clocks(HOUR);
    for _ in 0..4 {
        waiting.push(begin(&api, "line", "hello").await);
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    setting.set_clocks(-HOUR);
    let set_back = Instant::now();
    for _ in 0..2 {
        waiting.push(begin(&api, "line", "hello").await);
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
async fn a_wall_clock_that_jumps_disturbs_nobody_on_sqlite() {
    assert_eq!(jump(Setting::on_a_file(), &["a"]).await, [""; 0]);
}

#[tokio::test]
async fn a_wall_clock_that_jumps_disturbs_nobody_on_postgres() {
    let database = Database::create();
    assert_eq!(jump(Setting::on(database.url()), &["a", "b"]).await, [""; 0]);
}

#[tokio::test]
async fn control_leases_by_a_wall_clock_are_noticed() {
    let found = jump(Setting::on_a_file().with_fault(Some("wall-leases")), &["a"]).await;
    assert!(!found.is_empty(), "work was to wait for an hour");
}
