//! `sb send` through what happens to servers and connections: a kill -9, a cut, a cap, an end that does not come, and Ctrl-C. With text and
//! JSON, streamed and not.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

use super::rig::{Home, Server, eventually, failed, text, worked};

/// A way to a server that can be cut.
struct Way {
    url: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// Cuts the connection that this comes along, before anything of the answer passes.
    trap: Arc<Mutex<Option<&'static str>>>,
}

impl Way {
    /// To a server that says on its cards that this way leads to it.
    fn to_a_server(home: &Home) -> (Self, Server) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            open: Arc::default(),
            trap: Arc::default(),
        };
        let server = home.serve_with(&["--public-url", &way.url], &[]);
        let (open, trap, target) = (Arc::clone(&way.open), Arc::clone(&way.trap), server.address().to_owned());
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                let (caller, server) = (caller.unwrap(), TcpStream::connect(&target).unwrap());
                open.lock().unwrap().extend([caller.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (back, to) = ((server.try_clone().unwrap(), caller.try_clone().unwrap()), (caller, server));
                let trap = Arc::clone(&trap);
                std::thread::spawn(move || pass(to, Some(&trap)));
                std::thread::spawn(move || pass(back, None));
            }
        });
        (way, server)
    }

    /// Breaks every connection; new ones are let through.
    fn cut(&self) {
        for end in self.open.lock().unwrap().drain(..) {
            // It may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), trap: Option<&Mutex<Option<&'static str>>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let springs = trap.is_some_and(|trap| {
            let mut trap = trap.lock().unwrap();
            trap.take_if(|word| text(&buffer[..count]).contains(*word)).is_some()
        });
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        if springs {
            // It has arrived, and the answer never will.
            let _ = to.flush();
            let _ = from.shutdown(Shutdown::Both);
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Write);
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a task of this agent works; gives its id.
fn working(home: &Home, agent: &str) -> String {
    let mut id = String::new();
    eventually("it works", || {
        let tasks = home.json(&["task", "list", "--agent", agent, "--state", "working"]);
        id = tasks.first().map(|task| task["id"].as_str().unwrap().to_owned()).unwrap_or_default();
        !id.is_empty()
    });
    id
}

/// The one object that was printed.
#[track_caller]
fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn send_goes_on_over_a_kill_and_a_restart() {
    let home = Home::new();
    let mut server = home.serve();
    let listen = server.address().to_owned();
    let says = ["--agent", "stream", "40 chunks, 100 ms apart"];
    let plain = start(&mut home.command(&[&["send"], &says[..]].concat()));
    let json = start(&mut home.command(&[&["send", "-o", "json"], &says[..]].concat()));
    let streamed = start(&mut home.command(&[&["send", "--stream"], &says[..]].concat()));
    eventually("all of them work", || home.json(&["task", "list", "--state", "working"]).len() == 3);
    std::thread::sleep(Duration::from_millis(500));
    server.kill9();
    let _again = home.serve_with(&["--listen", &listen], &[]);

    let plain = plain.wait_with_output().unwrap();
    let lines = worked(&plain);
    let whole: Vec<String> = (1..=40).map(|n| format!("chunk {n} of 40")).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), whole, "the last attempt and nothing else");
    let said = text(&plain.stderr);
    assert!(said.contains("note: attempt 2: ") && said.contains(" completed, context "), "{said}");

    let json = json.wait_with_output().unwrap();
    assert!(json.status.success(), "{}", text(&json.stderr));
    let task = &object(&json)["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"].as_str().unwrap().lines().count(), 40);
    for line in text(&json.stderr).lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "stderr is JSON, too: {line}");
    }

    let streamed = streamed.wait_with_output().unwrap();
    let lines = worked(&streamed);
    assert_eq!(lines.lines().collect::<Vec<_>>(), whole, "what both attempts said is there once");
    let said = text(&streamed.stderr);
    assert!(said.contains("note: attempt 2: "), "{said}");
    assert_eq!(home.json(&["task", "list"]).len(), 3, "nothing was sent twice");
}

#[test]
fn an_attempt_that_says_something_else_is_marked_on_a_pipe() {
    let home = Home::new();
    let program = "echo begin; echo process $$; sleep 3; echo end";
    home.add_agent("odd.toml", &format!("kind = \"command\"\n[command]\nargv = [\"sh\", \"-c\", \"{program}\"]\n"));
    let mut server = home.serve();
    let listen = server.address().to_owned();
    let streamed = start(&mut home.command(&["send", "--stream", "--agent", "odd", "go"]));
    let id = working(&home, "odd");
    eventually("it has begun", || home.ok(&["task", "get", &id]).contains("process"));
    server.kill9();
    let _again = home.serve_with(&["--listen", &listen], &[]);
    let lines = worked(&streamed.wait_with_output().unwrap());
    let lines: Vec<&str> = lines.lines().collect();
    let [first, process, mark, again, other, end] = lines[..] else { panic!("{lines:?}") };
    assert_eq!((first, mark, again, end), ("begin", "· attempt 2 starts the answer again", "begin", "end"));
    assert!(process.starts_with("process ") && other.starts_with("process ") && process != other, "{lines:?}");
}

#[test]
fn send_goes_on_over_a_cut() {
    let home = Home::new();
    let (way, _server) = Way::to_a_server(&home);
    let token = home.token();
    for mode in [&["send"][..], &["send", "-o", "json"], &["send", "--stream"]] {
        let place = ["--url", &way.url, "--token", &token, "--agent", "stream"];
        let sender = start(&mut home.command(&[mode, &place, &["25 chunks, 100 ms apart"]].concat()));
        working(&home, "stream");
        way.cut();
        std::thread::sleep(Duration::from_millis(400));
        way.cut();
        let output = sender.wait_with_output().unwrap();
        assert!(output.status.success(), "{mode:?}: {}", text(&output.stderr));
        let printed = text(&output.stdout);
        for n in 1..=25 {
            assert_eq!(printed.matches(&format!("chunk {n} of 25")).count(), 1, "{mode:?}: {printed}");
        }
        assert!(!text(&output.stderr).contains("attempt"), "the work was not touched");
    }
}

#[test]
fn a_message_whose_answer_was_cut_off_is_not_done_twice() {
    let home = Home::new();
    let (way, _server) = Way::to_a_server(&home);
    let token = home.token();
    let place = ["--url", &way.url, "--token", &token, "--agent", "slow"];
    for mode in [&["send"][..], &["send", "--detach"]] {
        *way.trap.lock().unwrap() = Some("returns-later 700");
        let output = home.run(&[mode, &place, &["returns-later 700"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(way.trap.lock().unwrap().is_none(), "the connection was cut");
        assert!(text(&output.stderr).contains("the server is away"), "{}", text(&output.stderr));
    }
    assert_eq!(home.json(&["task", "list"]).len(), 2, "one each");
}

#[test]
fn the_cap_of_the_server_is_not_that_of_send() {
    let home = Home::new();
    home.configure("blocking_cap = \"1s\"\n");
    let server = home.serve();
    assert_eq!(home.ok(&["send", "--agent", "slow", "2500"]), "done after 2500 ms\n");
    let answer = home.json(&["send", "--agent", "slow", "2500"]).remove(0);
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "done after 2500 ms");
    drop(server);
}

#[test]
fn an_end_that_does_not_come_names_the_task() {
    let home = Home::new();
    let _server = home.serve();
    let late = home.run(&["send", "--agent", "slow", "--timeout", "3s", "60000"]);
    let id = working(&home, "slow");
    let said = failed(&late, 5);
    assert!(said.contains("no result within 3s") && said.contains(&format!("task: {id} working, context ")), "{said}");
    assert!(said.contains(&format!("`sb task cancel {id}`")), "{said}");
    home.ok(&["task", "cancel", &id]);

    let late = home.run(&["send", "--agent", "slow", "--timeout", "3s", "-o", "json", "60000"]);
    let id = working(&home, "slow");
    assert_eq!(late.status.code(), Some(5));
    let task = &object(&late)["task"];
    assert_eq!(
        (task["id"].as_str(), task["status"]["state"].as_str()),
        (Some(id.as_str()), Some("TASK_STATE_WORKING"))
    );
    let error: Value = serde_json::from_slice(&late.stderr).unwrap();
    assert_eq!(error["error"]["code"], "A2ACLI_ERR_TIMEOUT");
    assert_eq!(error["error"]["task"]["id"], id.as_str());
    assert_eq!(error["error"]["task"]["state"], "TASK_STATE_WORKING");
}

#[test]
fn an_interrupt_leaves_the_work_and_says_how_to_go_on() {
    let home = Home::new();
    let _server = home.serve();
    for mode in [&["send"][..], &["send", "--stream"]] {
        let sender = start(&mut home.command(&[mode, &["--agent", "slow", "60000"]].concat()));
        let id = working(&home, "slow");
        // It may not have heard of its task yet.
        std::thread::sleep(Duration::from_millis(500));
        assert!(Command::new("kill").args(["-INT", &sender.id().to_string()]).status().unwrap().success());
        let output = sender.wait_with_output().unwrap();
        let said = failed(&output, 130);
        assert!(said.contains(&format!("task: {id} working")), "{said}");
        assert!(said.contains(&format!("`sb task subscribe {id}")), "{said}");
        assert!(said.contains(&format!("`sb task cancel {id}`")), "{said}");
        home.ok(&["task", "cancel", &id]);
    }
}

#[test]
fn a_server_that_is_lost_for_good_is_unreachable() {
    let home = Home::new();
    let server = home.serve();
    let text_sender = start(&mut home.command(&["send", "--agent", "slow", "--timeout", "8s", "60000"]));
    let json_sender = start(&mut home.command(&["send", "--agent", "slow", "--timeout", "8s", "-o", "json", "60000"]));
    eventually("both work", || home.json(&["task", "list", "--state", "working"]).len() == 2);
    drop(server);
    let said = failed(&text_sender.wait_with_output().unwrap(), 3);
    assert!(said.contains("did not come back within 8s") && said.contains(" working, context "), "{said}");
    let output = json_sender.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(object(&output)["task"]["status"]["state"], "TASK_STATE_WORKING");
    let last: Value = serde_json::from_str(text(&output.stderr).lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "A2ACLI_ERR_UNREACHABLE");
}

#[test]
fn who_does_not_wait_gets_the_id_at_once() {
    let home = Home::new();
    let _server = home.serve();
    let id = home.ok(&["send", "--agent", "slow", "--detach", "1500"]);
    let id = id.trim();
    let waited = home.ok(&["task", "get", "--wait", id]);
    assert!(waited.contains("completed") && waited.ends_with("done after 1500 ms\n"), "{waited}");
    let taken = home.json(&["send", "--agent", "slow", "--detach", "60000"]).remove(0);
    assert!(matches!(
        taken["task"]["status"]["state"].as_str().unwrap(),
        "TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING"
    ));
    assert_eq!(home.ok(&["send", "--agent", "message", "--detach", "hi"]), "hi\n", "a message is all there is");
}
