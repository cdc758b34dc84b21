//! Programs of agents over a restart of the server, and what a request tells them. `programs.md` has what their operator sees.

use std::{fs, time::Duration};

use serde_json::json;

use super::rig::{Home, eventually};

/// Ends its process on the first two attempts at `die`; the third waits.
const PROGRAM: &str = r#"
import json, os, sys, threading, time

def say(turn, line):
    print(json.dumps({"id": turn["id"], **line}), flush=True)

def work(turn):
    verb = turn["message"]["parts"][0]["text"].split()[0]
    if verb == "tell":
        told = {name: turn.get(name) for name in ["metadata", "accepted_output_modes", "extensions"]}
        return say(turn, {"message": {"parts": [{"data": told}]}})
    with open("trace", "a") as trace:
        trace.write("%s %d %d\n" % (verb, turn["attempt"], os.getpid()))
    if verb == "die":
        if turn["attempt"] < 3:
            os._exit(3)
        time.sleep(3600)
    say(turn, {"message": {"parts": [{"text": str(os.getpid())}]}})

for line in sys.stdin:
    turn = json.loads(line)
    if "cancel" not in turn:
        threading.Thread(target=work, args=(turn,), daemon=True).start()
"#;

fn add(home: &Home, more: &str) {
    home.write("programs/it.py", PROGRAM);
    let directory = home.path("programs");
    let file = format!(
        "kind = \"command\"\ndirectory = {directory:?}\nconcurrency = 4\n{more}\n[command]\nargv = [\"python3\", \"it.py\"]\nmode = \"serve\"\n"
    );
    home.add_agent("it.toml", &file);
}

/// The processes of the starts of a verb, in order.
fn trace(home: &Home, verb: &str) -> Vec<String> {
    let all = fs::read_to_string(home.path("programs/trace")).unwrap_or_default();
    let of_verb = all.lines().filter(|line| line.split(' ').next() == Some(verb));
    of_verb.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_that_killed_two_processes_runs_in_its_own_after_a_restart_of_the_server() {
    let home = Home::new();
    add(&home, "max_attempts = 4");
    let mut server = home.serve();
    home.ok(&["send", "--agent", "it", "--detach", "die"]);
    eventually("it has two attempts", || trace(&home, "die").len() == 2);
    // The second death is in the journal when the next attempt is due.
    std::thread::sleep(Duration::from_millis(300));
    server.kill9();
    let _server = home.serve();
    eventually("it has a third one", || trace(&home, "die").len() == 3);
    let own = trace(&home, "die").remove(2);
    let shared = home.ok(&["send", "--agent", "it", "pid"]);
    assert_ne!(shared.lines().next(), Some(own.as_str()), "another turn is in its process");
}

#[test]
fn a_program_that_stays_is_told_what_the_request_says_beside_its_message() {
    let home = Home::new();
    add(&home, "");
    let server = home.serve();
    let request = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "tell"}]},
        "metadata": {"unit": "kelvin"},
        "configuration": {"acceptedOutputModes": ["application/json"]},
    });
    let path = "/a2a/agents/it/message:send";
    let (status, answer) = server.http("POST", path, Some(&home.token()), Some(&request));
    assert_eq!(status, 200, "{answer}");
    let told = answer.to_string();
    assert!(told.contains(r#""metadata":{"unit":"kelvin"}"#), "{told}");
    assert!(told.contains(r#""accepted_output_modes":["application/json"]"#), "{told}");
}
