//! `sb chat` with lines from a pipe: turns, contexts, questions, commands, failures and Ctrl-C.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
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
fn commands_are_carried_out_and_not_sent() {
    let home = Home::new();
    let _server = home.serve();
    let help = worked(&home.pipe(&["chat", "echo"], "/help\n"));
    for command in ["/help", "/new", "/agent", "/task", "/cancel", "/attach", "/save", "/context", "/quit", "/history"]
    {
        assert!(help.lines().any(|line| line.starts_with(command)), "{command} in {help}");
    }
    let output = home.pipe(&["chat", "echo"], "/taks\n/usr/bin is full\n//taks\n");
    let said = failed(&output, 2);
    assert_eq!(text(&output.stdout), "/taks\n", "two slashes send one");
    assert!(
        said.contains("`/taks` is no command, and was not sent") && said.contains("did you mean `/task`?"),
        "{said}"
    );
    assert!(said.contains("`/usr/bin` is no command") && said.contains("2 of 3 messages"), "{said}");
    assert_eq!(home.json(&["task", "list"]).len(), 1);

    let said = failed(&home.pipe(&["chat", "echo"], "/task\n"), 2);
    assert!(said.contains("there is no task yet"), "{said}");
    let shown = worked(&home.pipe(&["chat", "ask"], "start\n/task\n/cancel\n/context\nagain\n"));
    let lines: Vec<&str> = shown.lines().collect();
    let task = lines[1].strip_prefix("task:").unwrap().trim();
    assert_eq!(lines[1..4], [lines[1], "agent:   ask", "state:   input-required"], "{shown}");
    assert!(lines.contains(&"state:   canceled"), "{shown}");
    let tasks = home.json(&["task", "list", "--agent", "ask"]);
    assert_eq!(tasks.len(), 2, "what is said after a cancel begins another task");
    assert_eq!((&tasks[1]["id"], &tasks[1]["status"]["state"]), (&task.into(), &"TASK_STATE_CANCELED".into()));
    assert!(lines.contains(&tasks[0]["contextId"].as_str().unwrap()), "/context tells it: {shown}");
}

#[test]
fn what_was_said_is_shown_in_the_order_in_which_it_was_said() {
    let home = Home::new();
    let _server = home.serve();
    let shown = worked(&home.pipe(&["chat", "echo"], "one\ntwo\nthree\n/history\n"));
    let history = shown.strip_prefix("one\ntwo\nthree\n").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(history, "> one\none\n> two\ntwo\n> three\nthree\n");
}

#[test]
fn another_agent_goes_on_and_a_conversation_is_resumed() {
    let home = Home::new();
    let _server = home.serve();
    let output = home.pipe(&["chat", "ask"], "start\n/agent echo\nhello\n/agent\n/agent nobody\nstill here\n");
    let said = failed(&output, 2);
    assert_eq!(text(&output.stdout), "What is your answer?\nhello\necho\nstill here\n", "{said}");
    assert!(said.contains("note: this is echo now"), "{said}");
    let echoed = home.json(&["task", "list", "--agent", "echo"]);
    assert_eq!(echoed.len(), 2);
    let asked = home.json(&["task", "list", "--agent", "ask"]).remove(0);
    assert_eq!(asked["contextId"], echoed[0]["contextId"], "one conversation");

    // Whoever comes back to an agent comes back to its question.
    let shown = worked(&home.pipe(&["chat", "ask"], "start\n/agent echo\nhello\n/agent ask\n41\n"));
    assert_eq!(shown, "What is your answer?\nhello\n41\n");

    // The question that is open there is answered by the next line.
    let context = asked["contextId"].as_str().unwrap();
    let input = format!("first\n/context {context}\n42\n");
    let shown = worked(&home.pipe(&["chat", "ask"], &input));
    assert_eq!(shown, "What is your answer?\n> start\nWhat is your answer?\n42\n");
    let id = asked["id"].as_str().unwrap();
    assert_eq!(home.json(&["task", "get", id]).remove(0)["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn files_go_along_and_a_conversation_is_saved() {
    let home = Home::new();
    let _server = home.serve();
    let file = home.write("my notes.txt", "nine byte");
    let saved = home.path("saved.txt");
    let saved = saved.to_str().unwrap();
    let input = format!("/attach '{file}'\n/attach\nlook\nagain\n/save {saved}\n/save {saved}\n");
    let output = home.pipe(&["chat", "echo"], &input);
    let said = failed(&output, 1);
    assert!(said.contains("note: file my notes.txt (9 bytes) goes with the next message"), "{said}");
    assert!(said.contains("1 of 6 messages") && said.contains("--replace"), "the second time it is there: {said}");
    let tasks = home.json(&["task", "list"]);
    let parts = |task: &Value| {
        let task = home.json(&["task", "get", task["id"].as_str().unwrap()]).remove(0);
        task["history"][0]["parts"].as_array().unwrap().clone()
    };
    let first = parts(&tasks[1]);
    assert_eq!(
        (first.len(), &first[1]["filename"], &first[1]["mediaType"]),
        (2, &"my notes.txt".into(), &"text/plain".into())
    );
    assert_eq!(parts(&tasks[0]).len(), 1, "it went with one message");
    let kept = fs::read_to_string(saved).unwrap();
    assert!(
        kept.starts_with("> look\n> [my notes.txt, text/plain, 9 bytes]\n") && kept.ends_with("> again\nagain\n"),
        "{kept}"
    );
    assert_eq!(fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);

    fs::set_permissions(saved, fs::Permissions::from_mode(0o644)).unwrap();
    worked(&home.pipe(&["chat", "echo"], &format!("other\n/save {saved} --replace\n")));
    assert_eq!(fs::read_to_string(saved).unwrap(), "> other\nother\n");
    assert_eq!(fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);
    let said = failed(&home.pipe(&["chat", "echo"], "/attach /nowhere/x\n"), 2);
    assert!(said.contains("/attach needs a file that can be read"), "{said}");
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
