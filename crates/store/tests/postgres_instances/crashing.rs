//! kill -9: what was acknowledged is there, and another instance takes over.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use store::{Store, TaskId};
use testkit::postgres::Database;

use crate::postgres_instances::rig::*;

/// The other half of the tests: a process that accepts tasks and prints each one that was acknowledged.
#[tokio::test]
async fn child_that_accepts_until_it_is_killed() {
    let Ok(url) = std::env::var("SB_TEST_JOURNAL") else {
        return;
    };
    let store = open(&url).await;
    loop {
        println!("acknowledged {}", running(&*store).await.task);
    }
}

/// Kills a process right after its n-th acknowledgement; returns what it acknowledged.
fn accept_and_kill(url: &str, n: usize, fault: Option<&str>) -> Vec<TaskId> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "postgres_instances::crashing::child_that_accepts_until_it_is_killed", "--nocapture"]);
    command.env("SB_TEST_JOURNAL", url).env_remove("SB_FAULT").stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env("SB_FAULT", fault);
    }
    let mut child = command.spawn().unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The first one shares its line with the test harness.
        if let Some((_, task)) = line.unwrap().split_once("acknowledged ") {
            acknowledged.push(TaskId::parse(task).unwrap());
        }
        if acknowledged.len() == n {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged
}

async fn lost(store: &dyn Store, acknowledged: &[TaskId]) -> usize {
    let mut lost = 0;
    for task in acknowledged {
        lost += usize::from(store.head(TENANT, *task).await.is_err());
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill() {
    let database = Database::create();
    let store = open(database.url()).await;
    let acknowledged = accept_and_kill(database.url(), 40, None);
    assert_eq!(acknowledged.len(), 40);
    assert_eq!(lost(&*store, &acknowledged).await, 0);
    // The server frees the dead one's lock by itself.
    let mut reclaimed = 0;
    for _ in 0..500 {
        reclaimed += store.reclaim_dead().await.unwrap();
        if reclaimed >= acknowledged.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(reclaimed >= acknowledged.len(), "the dead held {reclaimed} leases");
    let turns = claim(&*store, 1000).await;
    assert!(turns.iter().all(|turn| turn.interrupted && turn.lease.attempt == 2));
    assert!(acknowledged.iter().all(|task| turns.iter().any(|turn| turn.lease.task == *task)));
    check_sums(&database).await;
}

/// The negative control: the test above can fail.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_too_early_is_lost() {
    for _ in 0..5 {
        let database = Database::create();
        let acknowledged = accept_and_kill(database.url(), 3, Some("ack-before-commit"));
        if lost(&*open(database.url()).await, &acknowledged).await > 0 {
            return;
        }
    }
    panic!("a journal that acknowledges before it commits has lost nothing");
}
