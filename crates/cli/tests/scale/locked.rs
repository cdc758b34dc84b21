//! SQLite's write lock in the hands of another process for longer than a lease: a backup, a vacuum, a person with a shell.

use std::time::Duration;

use futures_util::future::join_all;

use crate::{
    chaos::{Fault, Installation, Instances, POLICIES, Programs, begin},
    harness::Server,
};

/// Longer than a transaction waits to begin.
const LONG: u64 = 11_500;

/// Runs programs on the first of so many servers of one file, and locks the file for so many milliseconds; a lease is two
/// seconds. Returns what was disturbed by that.
async fn lock(servers: usize, held: u64, installation: Installation) -> Vec<String> {
    let held = Duration::from_millis(held);
    let installation = installation.with_config("lease = \"2s\"\n");
    // The short one ends while nobody can write.
    let short = ("short", "fail", 8, 1.0);
    let programs = Programs::of_each_policy(&installation, held.as_secs_f32() + 2.0, short);
    let mut instances = Instances::start(installation, 1).await;
    let mut others: Vec<Server> = Vec::new();
    for _ in 1..servers {
        others.push(instances.installation.start("a").await);
    }
    // The others have nothing to do, and look for leases that have run out.
    tokio::time::sleep(if servers > 1 { Duration::from_millis(2500) } else { Duration::ZERO }).await;
    let api = instances[0].api();
    let mut jobs = Vec::new();
    for agent in POLICIES.into_iter().chain(["short"]) {
        jobs.push(begin(&api, agent, "hello").await);
    }
    programs.have_started(jobs.len()).await;
    // A second start of one of them need not take as long.
    POLICIES.into_iter().for_each(|policy| programs.set_pace(policy, 0.5));
    instances.apply(&Fault::WriteLock(held), 0).await;
    programs.disturbances(&api, &jobs).await
}

/// Runs of one and of two servers at once; after a short lock it is left to chance which of two servers writes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_lock_for_longer_than_a_lease_disturbs_no_turn() {
    let of_two = [2050, 2120, 2190, 2260, 2330, 2400, LONG].map(|held| (2, held));
    let runs = [&[(1, 2200), (1, LONG)][..], &of_two].concat().into_iter();
    let found = join_all(runs.map(|(servers, held)| lock(servers, held, Installation::on_sqlite()))).await;
    assert_eq!(found.concat(), [""; 0]);
}

#[tokio::test]
async fn control_a_takeover_after_a_lock_is_noticed() {
    // Which server is the first to write after the lock is a matter of chance.
    for held in [2050, 2120, 2200, 2280, 2350, 2400, 2100, 2250] {
        if !lock(2, held, Installation::on_sqlite().breaking("takeover-at-once")).await.is_empty() {
            return;
        }
    }
    panic!("a turn was to be given to the other server");
}
