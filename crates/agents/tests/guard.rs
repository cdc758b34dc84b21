//! No program survives its server.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::rig;

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use agents::guard;
use rig::{alive, dies};
use store::InstanceId;

fn sleeper(instance: &str) -> std::process::Child {
    Command::new("sleep").arg("60").env(guard::MARK, instance).stdin(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_sweep_kills_the_marked_and_nobody_else() {
    let (ours, theirs) = (InstanceId::mint().to_string(), InstanceId::mint().to_string());
    let mut marked = sleeper(&ours);
    let mut other = sleeper(&theirs);
    // A child shows its mark once it runs its program.
    let mut found = 0;
    for _ in 0..100 {
        found = guard::sweep(&ours);
        if found > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(found, 1);
    dies(&marked.id().to_string()).await;
    marked.wait().unwrap();
    assert_eq!(guard::sweep(&ours), 0);
    assert!(alive(&other.id().to_string()));
    other.kill().unwrap();
    other.wait().unwrap();
}

/// The example beside the tests' own binaries.
fn guarded() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples/guarded");
    assert!(path.is_file(), "{} is built with the tests", path.display());
    path
}

#[tokio::test]
async fn programs_die_with_a_server_that_is_killed() {
    let instance = InstanceId::mint().to_string();
    let mut server = Command::new(guarded()).args(["serve", &instance]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let pids: Vec<String> = lines.take(4).map(|line| line.unwrap()).collect();
    assert!(pids.iter().all(|pid| alive(pid)), "{pids:?}");
    server.kill().unwrap();
    server.wait().unwrap();
    for pid in &pids {
        dies(pid).await;
    }
}

#[tokio::test]
async fn a_guard_that_dies_is_replaced() {
    let instance = InstanceId::mint().to_string();
    let mut server = Command::new(guarded()).args(["serve", &instance]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let pids: Vec<String> = lines.take(4).map(|line| line.unwrap()).collect();
    let first = guard_of(&instance).unwrap();
    assert!(Command::new("kill").args(["-9", &first]).status().unwrap().success());
    let mut second = None;
    for _ in 0..200 {
        second = guard_of(&instance).filter(|pid| *pid != first);
        if second.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(second.is_some(), "another guard");
    server.kill().unwrap();
    server.wait().unwrap();
    for pid in &pids {
        dies(pid).await;
    }
}

/// The process whose command line is that of the instance's guard.
fn guard_of(instance: &str) -> Option<String> {
    let end = format!("\0guard\0{instance}\0");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let command_line = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        if command_line.ends_with(&end) {
            return process.file_name().into_string().ok();
        }
    }
    None
}
