//! `sb chat` with lines from a pipe: turns, contexts, questions, failures and Ctrl-C.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::rig::{Home, eventually, failed, text, worked};

#[test]
fn a_question_is_answered_on_the_same_task() {
    let home = Home::new();
    let _server = home.serve();
    let output = home.pipe(&["chat", "ask"], "start\n\n42\n");
    assert_eq!(worked(&output), "What is your answer?\n42\n", "no prompts in a pipe");
    assert_eq!(text(&output.stderr), "");

    let output = home.pipe(&["chat", "ask", "-o", "json"], "start\n42\nagain\n");
    let events: Vec<Value> = worked(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut tasks: Vec<&str> = events.iter().filter_map(|event| event["statusUpdate"]["taskId"].as_str()).collect();
    tasks.dedup();
    assert_eq!(tasks.len(), 2, "two turns on one task, then a new one");
    let mut contexts: Vec<&str> =
        events.iter().filter_map(|event| event["statusUpdate"]["contextId"].as_str()).collect();
    contexts.dedup();
    assert_eq!(contexts.len(), 1, "all in one conversation");
}

#[test]
fn a_session_is_the_context_until_a_new_one_begins() {
    let home = Home::new();
    let _server = home.serve();
    let input = "one\ntwo\n/new\nthree\nfour\n/quit\nfive\n";
    assert_eq!(worked(&home.pipe(&["chat", "echo", "--session", "s-1"], input)), "one\ntwo\nthree\nfour\n");
    let tasks = home.json(&["task", "list", "--agent", "echo"]);
    assert_eq!(tasks.len(), 4);
    let contexts: Vec<&str> = tasks.iter().map(|task| task["contextId"].as_str().unwrap()).collect();
    // The newest comes first.
    assert_eq!(contexts[2..], ["s-1", "s-1"]);
    assert!(contexts[0] == contexts[1] && contexts[0] != "s-1", "{contexts:?}");
    // A direct reply belongs to the conversation as well.
    assert_eq!(worked(&home.pipe(&["chat", "message"], "how are you?\n")), "how are you?\n");
}

#[test]
fn an_agent_is_named_by_its_url() {
    let home = Home::new();
    let server = home.serve();
    let url = format!("{}/a2a/agents/stream", server.url);
    assert_eq!(worked(&home.pipe(&["chat", &url], "2 10\n")), "chunk 1 of 2\nchunk 2 of 2\n");
    assert_eq!(worked(&home.pipe(&["chat"], "hello\n")), "hello\n", "the default agent");
    failed(&home.pipe(&["chat", &url, "--url", &server.url], "x\n"), 2);
}

#[test]
fn what_goes_wrong_is_told_and_counted() {
    let home = Home::new();
    let server = home.serve();
    let said = failed(&home.pipe(&["chat", "fail"], "one\ntwo\n"), 1);
    assert_eq!(said.matches("the task failed").count(), 2, "{said}");
    assert!(said.contains("2 of 2 messages did not work"), "{said}");
    failed(&home.pipe(&["chat", "slow", "--timeout", "300ms"], "5000\n"), 5);
    failed(&home.pipe(&["chat", "echo", "--token", "sb_wrong"], "x\n"), 4);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    failed(&home.pipe(&["chat", &format!("http://{closed}")], "x\n"), 3);
    // After an authorization that was asked for, the next line goes to the same task.
    let output = home.pipe(&["chat", "auth"], "start\ndone\n");
    assert!(worked(&output).ends_with("authorized\n"));
    drop(server);
}

#[test]
fn ctrl_c_cancels_the_task_and_the_conversation_goes_on() {
    let home = Home::new();
    let _server = home.serve();
    let mut command = home.command(&["chat", "slow"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap());
    input.write_all(b"60000\n").unwrap();
    eventually("the task runs", || home.json(&["task", "list", "--state", "working"]).len() == 1);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut note = String::new();
    while !note.contains("note: canceled") {
        assert_ne!(notes.read_line(&mut note).unwrap(), 0, "{note}");
    }
    input.write_all(b"10\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(worked(&output), "done after 10 ms\n");
    assert_eq!(home.json(&["task", "list", "--state", "canceled"]).len(), 1);
}
