//! Ctrl-C in `sb chat` with lines from a pipe. `chatting.md` has what else it does.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use super::rig::{Home, eventually, worked};

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
