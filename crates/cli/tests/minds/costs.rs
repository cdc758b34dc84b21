//! What a turn of a model costs the journal.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{Thinker, answer, setup_at};
use crate::harness::{
    Home,
    http::{is_terminal, state, text, to_at_once},
    remote::Caller,
};

#[tokio::test]
async fn an_answer_at_once_costs_as_many_commits_as_an_echo() {
    let thinker = Thinker::start(&json!([{"text": "at once"}])).await;
    let home = &thinker.caller.home;
    for agent in ["echo", "index"] {
        let arguments = [
            "bench",
            "--url",
            &thinker.caller.server.url,
            "--agent",
            agent,
            "--requests",
            "50",
            "--concurrency",
            "1",
            "-o",
            "json",
        ];
        let output = home.command(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["errors"]["count"], 0, "{result}");
        // One accepts and leases, one is the whole turn; a few more are the server's own.
        assert!(result["commits_per_send"].as_f64().unwrap() <= 2.2, "{agent}: {result}");
    }
}

/// A turn with many commands, in the build for tests and beside others.
const LONGEST: Duration = Duration::from_secs(180);

/// Number of commands in a reply. A turn runs some of them and refuses the others.
const COMMANDS: usize = 32;

/// The bytes that a turn adds to the database whose model gives so many replies of this length, full of commands.
async fn written_by(replies: usize, length: usize, fault: &str) -> u64 {
    let commands: String = (0..COMMANDS).map(|n| format!("/agent echo result-{n}\n")).collect();
    let long = format!("{}\n{commands}", "x".repeat(length - commands.len()));
    let mut script = vec![json!({"text": long, "once": true}); replies];
    script.push(json!({"text": "The end."}));
    let setup = setup_at(Home::on_sqlite(), &Value::Array(script)).env("SB_FAULT", fault);
    let thinker = Thinker { caller: setup.start().await };
    let before = database_bytes(&thinker.caller);
    let sent = thinker.api().post("/a2a/message:send", &to_at_once("index", "go")).await.task();
    let begun = Instant::now();
    while thinker.answered() <= replies {
        assert!(begun.elapsed() < LONGEST, "{} replies were given", thinker.answered());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let ended = thinker.api().task_when(text(&sent, "/id"), is_terminal).await;
    assert_eq!(state(&ended), "COMPLETED", "{ended:#}");
    assert!(answer(&ended).ends_with("The end."));
    database_bytes(&thinker.caller) - before
}

/// The size of the database and of its log.
fn database_bytes(caller: &Caller) -> u64 {
    let files = ["data/switchboard.db", "data/switchboard.db-wal"].map(|name| caller.home.path(name));
    files.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|file| file.len()).sum()
}

/// Each reply is written once, whatever number of them the turn has kept already. `SB_LONG=1` gives replies of 480 KB.
#[tokio::test]
async fn long_replies_with_many_commands_are_written_once() {
    const REPLIES: usize = 5;
    let length = if std::env::var_os("SB_LONG").is_some() { 480_000 } else { 120_000 };
    let one = written_by(1, length, "none").await;
    let all = written_by(REPLIES, length, "none").await;
    println!("replies of {length} bytes: {one} bytes are written for one, {all} for {REPLIES}");
    assert!(all < (REPLIES as u64 + 1) * one, "{all} bytes for {REPLIES}, {one} for one");
    // The control: each state is written anew, so that two replies are more than all of them.
    let anew = written_by(2, length, "keep-whole").await;
    assert!(anew > all, "{anew} bytes for two, each time anew");
}
