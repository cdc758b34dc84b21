//! Somebody else who writes to the file and takes longer than a lease: a backup, a vacuum, a person with a shell.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{
    programs::{POLICIES, Programs, begin},
    rig::{Server, Setting},
};

/// Holds the write lock of a SQLite file until its input ends.
const HOLD: &str = r#"import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
file.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
file.execute("COMMIT")
"#;

/// The write lock of a file, held by another process.
struct WriteLock(Child);

impl WriteLock {
    fn take(file: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", HOLD]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut said).expect("it says something");
        assert_eq!(said, "held\n");
        Self(child)
    }

    fn release(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().is_ok_and(|status| status.success()), "the lock was held to the end");
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        // After a release it is gone already.
        let _ = self.0.kill();
    }
}

/// Runs programs on so many servers of one file, and locks the file for so many milliseconds; a lease is two seconds. Says what was
/// disturbed by that.
async fn lock(servers: usize, held: u64, fault: Option<&'static str>) -> Vec<String> {
    let held = Duration::from_millis(held);
    let setting = Setting::on_a_file().with_config("lease = \"2s\"\n").with_fault(fault);
    let programs = Programs::of_each_policy(&setting, held.as_secs_f32() + 2.0);
    // One that ends while nobody can write.
    programs.add("short", "fail", 8, 1.0);
    let mut instances: Vec<Server> = Vec::new();
    for _ in 0..servers {
        instances.push(setting.start("a").await);
    }
    // The others have nothing to do, and look for what has run out.
    tokio::time::sleep(if servers > 1 { Duration::from_millis(2500) } else { Duration::ZERO }).await;
    let api = instances[0].api();
    let mut jobs = Vec::new();
    for agent in POLICIES.into_iter().chain(["short"]) {
        jobs.push(begin(&api, agent, "hello").await);
    }
    programs.have_started(jobs.len()).await;
    // Whoever starts one of them again need not wait for it as long.
    POLICIES.into_iter().for_each(|policy| programs.set_pace(policy, 0.5));
    let write_lock = WriteLock::take(&setting.data_dir("a").join(store::sqlite::FILE));
    tokio::time::sleep(held).await;
    write_lock.release();
    programs.disturbances(&api, &jobs).await
}

#[tokio::test]
async fn a_write_lock_for_longer_than_a_lease_ends_no_turn() {
    // A little longer than a lease, and longer than a transaction waits to begin.
    let (little, long) = tokio::join!(lock(1, 2200, None), lock(1, 11_500, None));
    assert_eq!([little, long].concat(), [""; 0]);
}

#[tokio::test]
async fn a_write_lock_for_longer_than_a_lease_gives_no_turn_to_another_server() {
    // After a short one it is left to chance which of the two writes first; only one of them runs the turns.
    let little = [2050, 2120, 2190, 2260, 2330, 2400].map(|held| lock(2, held, None));
    let (little, long) = tokio::join!(futures_util::future::join_all(little), lock(2, 11_500, None));
    assert_eq!([little.concat(), long].concat(), [""; 0]);
}

#[tokio::test]
async fn control_a_takeover_after_a_lock_is_noticed() {
    // Who is the first to write after the lock is a matter of chance.
    for millis in [2050, 2120, 2200, 2280, 2350, 2400, 2100, 2250] {
        if !lock(2, millis, Some("takeover-at-once")).await.is_empty() {
            return;
        }
    }
    panic!("a turn was to be given to the other server");
}
