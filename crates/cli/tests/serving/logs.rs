//! The log of a server, as JSON: one line for each turn that did not go well, and no more lines than anybody reads.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::harness::{Home, Server, eventually, text};

const SLEEPS: &str = "kind = \"command\"\ntimeout = \"300ms\"\n[command]\nargv = [\"sleep\", \"60\"]\n";
/// What it prints is no event.
const BREAKS: &str = "kind = \"command\"\n[command]\noutput = \"events\"\nargv = [\"echo\", \"hello\"]\n";

/// A server whose log is JSON.
fn serve(home: &Home, args: &[&str]) -> Server {
    home.serve_with(&[args, &["--log-format", "json"]].concat(), &[])
}

/// All lines, each of which has to be an object with what every line has.
fn lines(server: &Server) -> Vec<Value> {
    let mut lines = Vec::new();
    for line in server.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "no {field}: {line}");
        }
        lines.push(line);
    }
    lines
}

/// What is said of an agent's turns.
fn troubles(server: &Server, agent: &str) -> Vec<(String, u64, String)> {
    let mut found = Vec::new();
    for line in lines(server) {
        if line["level"] == "WARN" && line["agent.name"] == agent && line["cause"].is_string() {
            let of = |field: &str| line[field].as_str().unwrap().to_owned();
            assert!(line["task.id"].is_string() && line["turn"].is_u64() && line["tenant.id"].is_u64(), "{line}");
            found.push((of("message"), line["attempt"].as_u64().unwrap(), of("cause")));
        }
    }
    found
}

#[test]
fn each_turn_that_did_not_go_well_has_one_line() {
    let home = Home::new();
    home.add_agent("sleeps.toml", SLEEPS);
    home.add_agent("breaks.toml", BREAKS);
    // A program that is just being written cannot be started, which may pass.
    let busy = home.write("busy", "#!/bin/sh\n");
    fs::set_permissions(&busy, fs::Permissions::from_mode(0o755)).unwrap();
    let _writing = fs::OpenOptions::new().append(true).open(&busy).unwrap();
    let tries = format!("kind = \"command\"\nmax_attempts = 2\n[command]\nargv = [\"{busy}\"]\n");
    home.add_agent("tries.toml", &tries);
    let server = serve(&home, &[]);
    for agent in ["fail", "sleeps", "breaks", "tries"] {
        home.fails(&["send", "--agent", agent, "x"], 1);
    }
    home.fails(&["send", "--agent", "reject", "x"], 1);
    home.ok(&["send", "--agent", "echo", "x"]);

    let one = |agent: &str| {
        let [(says, attempt, cause)] = &troubles(&server, agent)[..] else {
            panic!("{agent}: {:?}", troubles(&server, agent))
        };
        assert_eq!(*attempt, 1);
        (says.clone(), cause.clone())
    };
    assert_eq!(one("fail").0, "a turn failed");
    assert_eq!(one("sleeps"), ("a turn timed out".to_owned(), "timed out after 300ms".to_owned()));
    assert_eq!(one("breaks").0, "a turn broke its protocol");
    let tries = troubles(&server, "tries");
    let says: Vec<_> = tries.iter().map(|(says, attempt, _)| (says.as_str(), *attempt)).collect();
    assert_eq!(says, [("a turn will be tried again", 1), ("a task is a dead letter", 2)], "{tries:?}");
    assert!(troubles(&server, "reject").is_empty() && troubles(&server, "echo").is_empty(), "that is no trouble");
    assert!(lines(&server).iter().any(|line| line["level"] == "INFO" && line["message"] == "started"));
}

#[test]
fn a_turn_that_was_cut_off_is_told_by_whoever_takes_it() {
    let home = Home::new();
    let mut first = serve(&home, &[]);
    let sent = home.run(&["send", "--agent", "slow", "--timeout", "700ms", "2000"]);
    assert_eq!(sent.status.code(), Some(5), "{}", text(&sent.stderr));
    first.kill9();
    let second = serve(&home, &[]);
    eventually("the next attempt is told", || !troubles(&second, "slow").is_empty());
    let told = troubles(&second, "slow");
    assert_eq!((told.len(), told[0].0.as_str(), told[0].1), (1, "a turn was cut off and runs again", 1), "{told:?}");
    let is_takeover = |line: &Value| line["level"] == "INFO" && line["turns"] == 1;
    eventually("the takeover is told", || lines(&second).iter().any(is_takeover));
}

#[test]
fn what_repeats_itself_is_counted() {
    let home = Home::new();
    let server = serve(&home, &[]);
    home.fails(&["bench", "--agent", "fail", "--requests", "300", "--concurrency", "4"], 1);
    let told = troubles(&server, "fail").len();
    assert!((20..300).contains(&told), "{told} of 300 lines");
    // Another agent has lines of its own.
    home.add_agent("sleeps.toml", SLEEPS);
    eventually("the agent is there", || home.run(&["card", "get", "--agent", "sleeps"]).status.success());
    home.fails(&["send", "--agent", "sleeps", "x"], 1);
    assert_eq!(troubles(&server, "sleeps").len(), 1);
    // The next line of its kind tells how many were left out. A bench that takes long has several such lines.
    eventually("all are told or counted", || {
        home.fails(&["send", "--agent", "fail", "x"], 1);
        let left_out: u64 = lines(&server).iter().filter_map(|line| line["suppressed"].as_u64()).sum();
        let told = troubles(&server, "fail").len() as u64;
        left_out > 0 && left_out + told >= 300
    });
    assert!(lines(&server).iter().any(|line| line["suppressed"].is_u64() && line["like"] == "a turn failed"));
}

#[test]
fn json_is_understood_where_what_to_log_is_said() {
    let home = Home::new();
    let server = home.serve_with(&["--log", "json"], &[]);
    eventually("it has started", || lines(&server).iter().any(|line| line["message"] == "started"));
}
