//! `sb task`: looked at, listed, canceled and followed, over a crash as well.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};

use super::rig::{Home, Server, eventually, failed, text};

/// Begins a task and does not wait for it.
fn begin(home: &Home, server: &Server, agent: &str, says: &str) -> String {
    let body = json!({
        "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": says}]},
        "configuration": {"returnImmediately": true},
    });
    let path = format!("/a2a/agents/{agent}/message:send");
    let (status, answer) = server.http("POST", &path, Some(&home.token()), Some(&body));
    assert_eq!(status, 200, "{answer}");
    answer["task"]["id"].as_str().unwrap().to_owned()
}

fn objects(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_task_is_shown() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "echo", "hello");
    eventually("it completes", || home.json(&["task", "get", &id])[0]["status"]["state"] == "TASK_STATE_COMPLETED");
    let shown = home.ok(&["task", "get", &id]);
    assert!(shown.starts_with(&format!("task:    {id}\n")) && shown.ends_with("\n\nhello\n"), "{shown}");
    let cut = home.json(&["task", "get", &id, "--history", "0"]).remove(0);
    assert!(cut.get("history").is_none(), "{cut}");
    home.ok(&["task", "get", &id, "--agent", "echo"]);
    home.ok(&["task", "get", &id, "--url", &server.url]);
    home.fails(&["task", "get", &id, "--agent", "slow"], 1);
    home.fails(&["task", "get", "nothing"], 1);
    home.fails(&["task", "get", &id, "--token", "sb_wrong"], 4);
    let failed_task = begin(&home, &server, "fail", "x");
    eventually("it fails", || home.ok(&["task", "get", &failed_task]).contains("state:   failed"));
}

#[test]
fn tasks_are_listed() {
    let home = Home::new();
    let server = home.serve();
    for n in 0..5 {
        home.ok(&["send", "--context", "c-1", &format!("hello {n}")]);
    }
    let slow = begin(&home, &server, "slow", "60000");
    assert_eq!(home.json(&["task", "list"]).len(), 6);
    let limited = home.run(&["task", "list", "--limit", "2"]);
    assert_eq!(text(&limited.stdout).lines().count(), 3);
    assert!(text(&limited.stderr).contains("2 of 6 tasks"));
    assert_eq!(home.json(&["task", "list", "--context", "c-1"]).len(), 5);
    eventually("it works", || home.json(&["task", "list", "--state", "working"]).len() == 1);
    let working = home.ok(&["task", "list", "--state", "working", "--agent", "slow"]);
    assert!(working.starts_with("TASK ") && working.contains(&slow), "{working}");
    assert_eq!(home.json(&["task", "list", "--agent", "echo"]).len(), 5);
    assert!(home.json(&["task", "list", "--artifacts", "--limit", "1", "--agent", "echo"])[0]["artifacts"].is_array());
    assert_eq!(home.run(&["task", "list", "--state", "done"]).status.code(), Some(2));
}

#[test]
fn a_task_is_canceled_once() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "slow", "60000");
    assert_eq!(home.ok(&["task", "cancel", &id]), format!("task {id} is canceled\n"));
    let other = begin(&home, &server, "slow", "60000");
    assert_eq!(home.json(&["task", "cancel", &other])[0]["status"]["state"], "TASK_STATE_CANCELED");
    let done = begin(&home, &server, "echo", "x");
    eventually("it completes", || home.ok(&["task", "get", &done]).contains("completed"));
    home.fails(&["task", "cancel", &done], 1);
    home.fails(&["task", "cancel", "nothing"], 1);
}

#[test]
fn a_task_is_followed_to_its_end() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "stream", "5 chunks, 100 ms apart");
    let followed = home.ok(&["task", "subscribe", &id]);
    assert!(followed.ends_with("chunk 5 of 5\n"), "{followed}");
    // An ended task: what came of it, or the whole log.
    assert!(home.ok(&["task", "subscribe", &id]).contains("chunk 1 of 5"));
    assert!(home.json(&["task", "subscribe", &id])[0]["task"].is_object());
    let log = home.json(&["task", "subscribe", &id, "--after", "0"]);
    assert!(log.len() > 5 && log[0]["task"].is_object());
    let rest = home.json(&["task", "subscribe", &id, "--after", "2"]);
    assert_eq!(rest.as_slice(), &log[2..]);
    let end = (log.len()).to_string();
    assert_eq!(home.ok(&["task", "subscribe", &id, "--after", &end]), "");
    let bad = begin(&home, &server, "fail", "x");
    assert!(home.fails(&["task", "subscribe", &bad, "--after", "0"], 1).contains("the task failed"));
    home.fails(&["task", "subscribe", "nothing"], 1);
}

#[test]
fn following_goes_on_over_a_kill_and_a_restart() {
    let home = Home::new();
    let server = home.serve();
    let listen = server.address().to_owned();
    let id = begin(&home, &server, "stream", "25 chunks, 100 ms apart");
    let follower = home
        .command(&["task", "subscribe", &id, "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(900));
    drop(server);
    let _again = home.serve_with(&["--listen", &listen], &[]);
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let followed = objects(&output.stdout);
    let log = home.json(&["task", "subscribe", &id, "--after", "0"]);
    // First the task as it was, then every event after that, none twice and none left out.
    assert!(followed[0]["task"].is_object() && followed.len() > 10);
    assert!(log.ends_with(&followed[1..]), "followed:\n{followed:#?}\nlog:\n{log:#?}");
    let attempts = log.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING").count();
    assert!(attempts >= 2, "the crash interrupted a turn");
}

#[test]
fn a_stream_that_cannot_go_on_says_so() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "stream", "100 chunks, 100 ms apart");
    let follower = home
        .command(&["task", "subscribe", &id, "--after", "0", "--timeout", "4s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(900));
    drop(server);
    let output = follower.wait_with_output().unwrap();
    let said = failed(&output, 3);
    assert!(said.contains("did not come back within 4s") && said.contains(&format!("task: {id} working")), "{said}");
    assert!(said.contains(&format!("`sb task subscribe {id} --after ")), "{said}");
    assert!(said.contains(&format!("`sb task cancel {id}`")), "{said}");
    assert!(text(&output.stdout).starts_with("chunk 1 of 100\n"), "what came is kept");
}
