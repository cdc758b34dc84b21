//! Programs of agents over restarts, of the server and of themselves, and what they wrote to standard error.

use std::{fs, time::Duration};

use serde_json::json;

use super::rig::{Home, eventually, failed, text};

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
    print("turn of", verb, file=sys.stderr, flush=True)
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

#[test]
fn an_agent_is_restarted_by_a_verb_and_by_its_file() {
    let home = Home::new();
    add(&home, "");
    let _server = home.serve();
    let pid = || home.ok(&["send", "--agent", "it", "pid"]);
    let first = pid();
    assert_eq!(pid(), first);
    let said = home.ok(&["agent", "restart", "it"]);
    assert_eq!(said, "restarted agent it: new turns get a new process\n");
    let second = pid();
    assert_ne!(second, first);
    let file = home.agents().join("it.toml");
    let copy = home.path("it.toml");
    fs::copy(&file, &copy).unwrap();
    home.ok(&["agent", "add", copy.to_str().unwrap(), "--replace"]);
    assert_ne!(pid(), second);
    assert!(home.fails(&["agent", "restart", "nobody"], 2).contains("there is no agent file"));
}

#[test]
fn what_programs_write_to_standard_error_is_shown_to_their_operator() {
    let home = Home::new();
    add(&home, "");
    let fails = "kind = \"command\"\n[command]\nargv = [\"sh\", \"-c\", \"for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; printf 'x\\\\033[2J\\\\n' >&2; exit 3\"]\n";
    home.add_agent("fails.toml", fails);
    assert!(home.fails(&["agent", "logs", "it"], 1).contains("there is no log"));
    let server = home.serve();
    let output = home.run(&["send", "--agent", "fails", "x"]);
    let said = failed(&output, 1);
    assert!(said.contains("stderr: line 7") && !said.contains("line 2") && !said.contains('\u{1b}'), "{said}");
    let task = said.split("sb task logs ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    let record = home.ok(&["task", "logs", &task]);
    assert!(record.starts_with("--- attempt 1\nline 1\n") && !record.contains('\u{1b}'), "{record}");
    for name in ["last", &task[..13]] {
        assert_eq!(home.ok(&["task", "logs", name]), record, "{name}");
    }
    let lines = home.json(&["agent", "logs", "fails"]);
    assert_eq!(
        (lines.len(), lines[0]["task"].as_str(), lines[6]["line"].as_str()),
        (8, Some(task.as_str()), Some("line 7"))
    );
    assert!(lines[0]["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')), "{lines:?}");
    assert_eq!(home.ok(&["agent", "logs", "fails", "-n", "2"]).lines().count(), 2);
    let shown = text(&home.run(&["task", "get", "last"]).stderr);
    assert!(shown.contains("stderr: line 7") && shown.contains(&format!("sb task logs {task}")), "{shown}");
    let said = failed(&home.pipe(&["chat", "fails"], "x\n"), 1);
    assert!(said.contains("stderr: line 7") && said.contains("sb task logs "), "{said}");
    // What has no task is of a program that takes many; it is followed while it comes.
    home.ok(&["send", "--agent", "it", "pid"]);
    eventually("its line is there", || home.run(&["agent", "logs", "it"]).status.success());
    let log = home.json(&["agent", "logs", "it"]);
    assert_eq!((log[0]["task"].is_null(), log[0]["line"].as_str()), (true, Some("turn of pid")));
    let followed = home.path("followed");
    let mut command = home.command(&["agent", "logs", "it", "-f"]);
    let mut follower = command.stdout(fs::File::create(&followed).unwrap()).spawn().unwrap();
    let count = || fs::read_to_string(&followed).unwrap().lines().count();
    eventually("what is there is printed", || count() == 1);
    home.ok(&["send", "--agent", "it", "pid"]);
    eventually("what comes is printed", || count() == 2);
    follower.kill().unwrap();
    follower.wait().unwrap();
    // A caller from elsewhere is told nothing of it, and finds nothing.
    let url = server.url.clone();
    let token = home.token();
    let elsewhere = Home::new();
    let output =
        elsewhere.command(&["send", "--url", &url, "--agent", "fails", "--token", &token, "x"]).output().unwrap();
    let said = failed(&output, 1);
    assert!(!said.contains("line 7") && !said.contains("sb task logs"), "{said}");
    assert!(elsewhere.fails(&["task", "logs", &task], 1).contains("nothing is kept"));
}

#[test]
fn a_check_sees_a_script_that_is_missing_and_keys_in_the_wrong_table() {
    let home = Home::new();
    let check = |text: &str| {
        let file = home.write("checked/agent.toml", text);
        let output = home.run(&["agent", "check", &file]);
        String::from_utf8(output.stdout).unwrap()
    };
    let said = check("kind = \"command\"\n[command]\nargv = [\"python3\", \"missing.py\"]\n");
    assert!(
        said.contains("ok, but tasks will fail: the script `") && said.contains("missing.py` is not there"),
        "{said}"
    );
    home.write("checked/plain.txt", "not a program\n");
    let said = check("kind = \"command\"\n[command]\nargv = [\"./plain.txt\"]\n");
    assert!(said.contains("ok, but tasks will fail: the program `./plain.txt` is not executable"), "{said}");
    for (text, wanted) in [
        (
            "kind = \"command\"\n[command]\nargv = [\"cat\"]\ntimeot = \"5s\"\n",
            "line 4: unknown key `timeot`; did you mean `timeout`, which stands at the top of the file",
        ),
        (
            "kind = \"command\"\ntimeot = \"5s\"\n[command]\nargv = [\"cat\"]\n",
            "line 2: unknown key `timeot`; did you mean `timeout`?",
        ),
        (
            "kind = \"command\"\nisolaton = \"strict\"\n[command]\nargv = [\"cat\"]\n",
            "did you mean `isolation`, which stands in the table `[command]`?",
        ),
        (
            "kind = \"command\"\nisolation = \"strict\"\n[command]\nargv = [\"cat\"]\n",
            "line 2: `isolation` stands in the table `[command]`",
        ),
        ("kind = \"llm\"\n[llm]\nconcurency = 3\n", "did you mean `concurrency`, which stands at the top"),
        ("kind = \"command\"\n[command]\nargv = [\"cat\"]\nlimits = { timeot = 3 }\n", "unknown key `timeot`;"),
    ] {
        let said = check(text);
        assert!(said.contains(wanted), "{text}: {said}");
    }
}

#[test]
fn a_program_that_stays_and_dies_shows_its_owner_why() {
    let home = Home::new();
    let add = |name: &str, script: &str| {
        let file = format!(
            "kind = \"command\"\nmax_attempts = 1\n[command]\nargv = [\"sh\", \"-c\", {script:?}]\nmode = \"serve\"\n"
        );
        home.add_agent(name, &file);
    };
    add("dies.toml", "echo 'No module named requests_nix' >&2; exit 1");
    add("chatty.toml", "read line; echo debug; sleep 60");
    let _server = home.serve();
    let task_of = |said: &str| said.split("sb task logs ").nth(1).unwrap().split('`').next().unwrap().to_owned();

    let said = home.fails(&["send", "--agent", "dies", "x"], 1);
    assert!(said.contains("stderr: No module named requests_nix"), "{said}");
    assert!(!said.contains("--- attempt"), "{said}");
    let record = home.ok(&["task", "logs", &task_of(&said)]);
    assert_eq!(record, "--- attempt 1\nNo module named requests_nix\n");

    let said = home.fails(&["send", "--agent", "chatty", "x"], 1);
    let why = "line 1: not an object in JSON: debug";
    assert!(said.contains("stderr: ") && said.contains(why), "{said}");
    assert!(home.ok(&["task", "logs", &task_of(&said)]).contains(why));
    assert!(home.ok(&["agent", "logs", "chatty"]).contains(why));
}

#[test]
fn a_task_without_a_record_names_the_log_of_its_agent() {
    let home = Home::new();
    add(&home, "");
    let _server = home.serve();
    home.ok(&["send", "--agent", "it", "pid"]);
    let said = home.fails(&["task", "logs", "last"], 1);
    assert!(said.contains("`sb agent logs it`"), "{said}");
}
