//! `sb task`: looked at, listed, canceled and followed, over a crash as well.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};

use super::{
    rig::{Home, Server, eventually, failed, text, worked},
    terminal::Terminal,
};

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
    assert!(shown.starts_with(&format!("task:     {id}\n")) && shown.ends_with("\n\nhello\n"), "{shown}");
    for field in ["agent:    echo\n", "input:    hello\n", "started:  ", "duration: ", "attempts: 1\n"] {
        assert!(shown.contains(field), "{field:?} in {shown}");
    }
    assert_eq!(home.ok(&["task", "show", &id]), shown);
    let told = home.json(&["task", "get", &id]).remove(0);
    assert_eq!(told["usage"], json!({"inputTokens": 0, "outputTokens": 0}));
    assert_eq!((&told["agent"], &told["attempts"], &told["children"]), (&json!("echo"), &json!(1), &json!([])));
    let cut = home.json(&["task", "get", &id, "--history", "0"]).remove(0);
    assert!(cut.get("history").is_none(), "{cut}");
    home.ok(&["task", "get", &id, "--agent", "echo"]);
    home.ok(&["task", "get", &id, "--url", &server.url]);
    home.fails(&["task", "get", &id, "--agent", "slow"], 1);
    home.fails(&["task", "get", "nothing"], 1);
    home.fails(&["task", "get", &id, "--token", "sb_wrong"], 4);
    let failed_task = begin(&home, &server, "fail", "x");
    eventually("it fails", || home.ok(&["task", "get", &failed_task]).contains("state:    failed"));
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
    // Whose they are, and what they were begun with.
    let shown = home.ok(&["task", "list"]);
    let line = shown.lines().find(|line| line.starts_with(&slow)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[1], words[2], words[5]), ("slow", "working", "60000"), "{line}");
    assert!(shown.lines().filter(|line| line.contains(" echo ") && line.contains("hello ")).count() == 5, "{shown}");
    let agents: Vec<Value> = home.json(&["task", "list"]).iter().map(|task| task["agent"].clone()).collect();
    assert_eq!(agents.iter().filter(|agent| *agent == "echo").count(), 5, "{agents:?}");
    assert_eq!(home.json(&["task", "list", "--state", "working"])[0]["agent"], "slow");
    assert_eq!(home.json(&["task", "list", "--agent", "echo"]).len(), 5);
    assert!(home.json(&["task", "list", "--artifacts", "--limit", "1", "--agent", "echo"])[0]["artifacts"].is_array());
    assert_eq!(home.run(&["task", "list", "--state", "done"]).status.code(), Some(2));
}

#[test]
fn tasks_and_contexts_have_short_names() {
    let home = Home::new();
    let server = home.serve();
    let first = begin(&home, &server, "echo", "first");
    // Ids begin with the time, and the first twelve digits are milliseconds.
    std::thread::sleep(Duration::from_millis(5));
    let sent = home.json(&["send", "--agent", "slow", "--detach", "60000"]).remove(0);
    let (id, context) = (sent["task"]["id"].as_str().unwrap(), sent["task"]["contextId"].as_str().unwrap());
    let shown = |name: &str| home.json(&["task", "get", name])[0]["id"].clone();
    assert_eq!(
        (shown("last"), shown(&first[..13]), shown(&format!("{}…", &id[..20]))),
        (json!(id), json!(first), json!(id))
    );
    let said = home.fails(&["task", "get", &id[..6]], 2);
    assert!(said.contains("2 tasks begin with") && said.contains(&first) && said.contains(id), "{said}");
    home.fails(&["task", "get", "ffff"], 1);
    assert_eq!(home.json(&["task", "list", "--context", &context[..18]]).len(), 1);
    let listed = home.ok(&["context", "list"]);
    assert!(listed.lines().nth(1).unwrap().starts_with(context) && listed.lines().count() == 3, "{listed}");
    let listed = home.json(&["context", "list"]);
    assert_eq!(
        (&listed[0]["contextId"], &listed[0]["tasks"], &listed[0]["lastTask"]),
        (&json!(context), &json!(1), &json!(id))
    );
    // A name that a caller has chosen is never taken for the begin of another.
    home.ok(&["send", "--context", "cafe-1", "x"]);
    assert_eq!(home.json(&["send", "--context", "cafe", "x"])[0]["task"]["contextId"], "cafe");
    assert!(home.ok(&["task", "cancel", &id[..13]]).contains(id));
    assert!(home.ok(&["context", "delete", &context[..18], "--yes"]).contains(context));
    assert!(home.ok(&["task", "delete", &first[..13]]).contains(&first));
}

#[test]
fn tab_completes_tasks_and_contexts() {
    let home = Home::new();
    let server = home.serve();
    let sent = home.json(&["send", "--context", "chat-17", "hello"]).remove(0);
    let id = sent["task"]["id"].as_str().unwrap();
    let offered = |words: &[&str]| {
        let line = [&["--", "sb"], words].concat();
        let shown = worked(&home.command(&line).env("SB_COMPLETE", "fish").output().unwrap());
        shown.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    for verb in ["get", "cancel", "subscribe", "download", "logs", "delete"] {
        assert_eq!(offered(&["task", verb, &id[..8]]), [id], "{verb}");
    }
    assert_eq!(offered(&["push", "show", &id[..8]]), [id]);
    assert_eq!(offered(&["context", "delete", "chat"]), ["chat-17"]);
    assert!(offered(&["task", "get", "ffff"]).is_empty());
    assert_eq!(offered(&["task", "logs", &id[..2]]), [id]);
    assert_eq!(offered(&["task", "cancel", "la"]), ["last"]);
    for verb in ["delete", "disable", "enable", "rotate"] {
        assert_eq!(offered(&["tenant", verb, "def"]), ["default"], "{verb}");
    }
    assert_eq!(offered(&["token", "list", "--tenant", "def"]), ["default"]);
    drop(server);
}

#[test]
fn entries_of_the_queue_have_short_names() {
    let home = Home::new();
    let _server = home.serve();
    let id = home.ok(&["a2a", "publish", "planner", "researcher", "look"]).trim().to_owned();
    for name in ["last", &id[..13]] {
        assert!(home.ok(&["a2a", "show", name]).contains(&id), "{name}");
    }
    home.ok(&["a2a", "claim", &id[..13]]);
    home.ok(&["a2a", "ack", "last"]);
    assert!(home.ok(&["task", "get", &id]).contains("completed"));
}

#[test]
fn a_watched_list_fits_the_screen() {
    let home = Home::new();
    let server = home.serve();
    for n in 0..12 {
        home.ok(&["send", &format!("hello number {n} {}", "and more ".repeat(20))]);
    }
    let mut newest = String::new();
    eventually("all are there", || {
        newest = home.json(&["task", "list", "--limit", "1"])[0]["id"].as_str().unwrap().to_owned();
        home.json(&["task", "list"]).len() == 12
    });
    let mut command = home.command(&["task", "list", "--watch"]);
    let mut terminal = Terminal::start_sized(&mut command, 8, 70);
    terminal.shows("6 more");
    let screen = terminal.screen();
    let drawn = screen.split("\u{1b}[H").nth(1).unwrap();
    let lines: Vec<&str> = drawn.split("\u{1b}[K").map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(lines[1].starts_with(&newest[..12]), "newest first: {lines:?}");
    terminal.interrupt();
    assert_eq!(terminal.ends().0, Some(0));
    // On a narrow screen no line wraps: there is room for the states, and for no contexts.
    let mut terminal = Terminal::start_sized(home.command(&["task", "list", "--watch"]).env("NO_COLOR", "1"), 12, 50);
    terminal.shows("more");
    let screen = terminal.screen();
    let drawn = screen.split("\u{1b}[H").nth(1).unwrap();
    let lines: Vec<&str> = drawn.split("\u{1b}[K").map(str::trim).filter(|line| line.contains("hello")).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 50 && line.contains("completed")), "{lines:?}");
    assert!(!screen.contains("CONTEXT") && screen.contains("\u{1b}[?7l"), "{screen:?}");
    terminal.interrupt();
    assert_eq!(terminal.ends().0, Some(0));
    drop(server);
}

#[test]
fn states_have_colors_on_a_terminal_that_shows_them() {
    let home = Home::new();
    let _server = home.serve();
    home.ok(&["send", "hello"]);
    let screen = |name: &str, value: &str| {
        let mut command = home.command(&["task", "list"]);
        Terminal::start_sized(command.env(name, value), 40, 200).ends().1
    };
    let shown = screen("TERM", "xterm");
    assert!(shown.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{shown:?}");
    for (name, value) in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let shown = screen(name, value);
        assert!(shown.contains("completed") && !shown.contains('\u{1b}'), "{name}: {shown:?}");
    }
    assert!(!home.ok(&["doctor"]).contains('\u{1b}'), "nor on a pipe");
    // Behind a state stands why; its word alone has the color.
    home.add_agent("bad.toml", "kind = \"command\"\n[command]\nargw = [\"cat\"]\n");
    home.add_agent("good.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    home.add_agent("gone.toml", "kind = \"command\"\n[command]\nargv = [\"/nowhere/program\"]\n");
    let screen = |args: &[&str]| Terminal::start_sized(home.command(args).env("TERM", "xterm"), 40, 200).ends().1;
    let shown = screen(&["agent", "check"]);
    for word in ["\u{1b}[31mbroken\u{1b}[0m: ", "\u{1b}[32mok\u{1b}[0m"] {
        assert!(shown.contains(word), "{word:?} in {shown:?}");
    }
    assert!(screen(&["agent", "list"]).contains("\u{1b}[31mbroken\u{1b}[0m: "));
    let shown = screen(&["config", "check"]);
    for word in ["\u{1b}[31mfail\u{1b}[0m", "\u{1b}[33mwarn\u{1b}[0m", "\u{1b}[32mok  \u{1b}[0m"] {
        assert!(shown.contains(word), "{word:?} in {shown:?}");
    }
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
        .command(&["task", "subscribe", &id, "--after", "0", "--timeout", "6s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(900));
    drop(server);
    let output = follower.wait_with_output().unwrap();
    let said = failed(&output, 3);
    assert!(said.contains("did not come back within 6s") && said.contains(&format!("task: {id} working")), "{said}");
    assert!(said.contains(&format!("`sb task subscribe {id} --after ")), "{said}");
    assert!(said.contains(&format!("`sb task cancel {id}`")), "{said}");
    assert!(text(&output.stdout).starts_with("chunk 1 of 100\n"), "what came is kept");
}

#[test]
fn a_long_list_fits_its_terminal() {
    let home = Home::new();
    let _server = home.serve();
    home.ok(&["send", "--agent", "echo", &"many words ".repeat(30)]);
    let plain = home.command(&["task", "list"]);
    let mut narrow = std::process::Command::new("sh");
    narrow.args(["-c", "stty cols 90; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args()).env_clear();
    narrow.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, screen) = Terminal::start(narrow.env("NO_COLOR", "1")).ends();
    assert_eq!(code, Some(0), "{screen}");
    let line = screen.lines().find(|line| line.contains(" echo ")).unwrap();
    assert!(line.chars().count() <= 90 && line.contains("many words") && line.ends_with('…'), "{screen}");
    let line = home.ok(&["task", "list"]).lines().find(|line| line.contains(" echo ")).unwrap().to_owned();
    assert!(line.chars().count() > 90, "{line}");
}

#[test]
fn what_changes_is_watched() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "slow", "3000");
    let mut command = home.command(&["task", "list", "--watch", "--poll-interval", "200ms", "-o", "json"]);
    let watcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let shown = home.run(&["task", "get", "--watch", "--poll-interval", "200ms", &id]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("working") && shown.ends_with("done after 3000 ms\n"), "{shown}");
    // Another one is seen as well.
    home.ok(&["send", "--agent", "echo", "later"]);
    std::thread::sleep(Duration::from_millis(800));
    let interrupted = std::process::Command::new("kill").args(["-INT", &watcher.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    let output = watcher.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen = objects(&output.stdout);
    let states: Vec<&str> = seen
        .iter()
        .filter(|task| task["id"] == id.as_str())
        .map(|task| task["status"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(states.last(), Some(&"TASK_STATE_COMPLETED"), "{seen:#?}");
    assert!(states.contains(&"TASK_STATE_WORKING") && seen.iter().any(|task| task["agent"] == "echo"), "{seen:#?}");
}

#[test]
fn a_subscription_begins_with_what_is_there() {
    let home = Home::new();
    let server = home.serve();
    let id = begin(&home, &server, "stream", "10 chunks, 150 ms apart");
    eventually("some of it is there", || home.ok(&["task", "get", &id]).contains("chunk 3 of 10"));
    let followed = home.ok(&["task", "subscribe", &id]);
    let whole: Vec<String> = (1..=10).map(|n| format!("chunk {n} of 10")).collect();
    assert_eq!(followed.lines().collect::<Vec<_>>(), whole);
}

#[test]
fn files_of_a_task_are_saved() {
    let home = Home::new();
    let _server = home.serve();
    let picture = home.write("a picture.png", [0x89, b'P', 0, 1]);
    let notes = home.write("in/notes.md", "# Notes\n");
    let args =
        ["send", "--agent", "echo", "--file", &picture, "--file", &notes, "--file", "https://h.example/x", "look"];
    let id = home.json(&args).remove(0)["task"]["id"].as_str().unwrap().to_owned();
    let out = home.path("out");
    let dir = out.to_str().unwrap();
    let saved = home.run(&["task", "download", &id, "--dir", dir]);
    let paths = format!("{}\n{}\n", out.join("a picture.png").display(), out.join("notes.md").display());
    assert_eq!(text(&saved.stdout), paths, "{}", text(&saved.stderr));
    assert!(text(&saved.stderr).contains("not fetched: https://h.example/x"), "{}", text(&saved.stderr));
    assert_eq!(std::fs::read(out.join("a picture.png")).unwrap(), [0x89, b'P', 0, 1]);
    assert_eq!(std::fs::read(out.join("notes.md")).unwrap(), b"# Notes\n");
    // Nothing is replaced unless somebody says so, and then everything is there anew.
    std::fs::write(out.join("notes.md"), "mine").unwrap();
    assert!(home.fails(&["task", "download", &id, "--dir", dir], 1).contains("--force"));
    assert_eq!(std::fs::read(out.join("notes.md")).unwrap(), b"mine");
    let objects = home.json(&["task", "download", &id, "--dir", dir, "--force", "--all"]);
    assert_eq!(std::fs::read(out.join("notes.md")).unwrap(), b"# Notes\n");
    assert_eq!(std::fs::read(out.join("echo.txt")).unwrap(), b"look");
    assert_eq!(objects.len(), 4);
    assert_eq!((&objects[1]["bytes"], &objects[1]["mediaType"]), (&json!(4), &json!("image/png")));
}

#[test]
fn a_task_that_nobody_took_has_not_started() {
    let home = Home::new();
    let _server = home.serve();
    let id = home.ok(&["a2a", "publish", "planner", "researcher", "look"]).trim().to_owned();
    let shown = home.ok(&["task", "get", &id]);
    assert!(!shown.contains("started:") && !shown.contains("duration:"), "{shown}");
    home.ok(&["a2a", "claim", &id]);
    let shown = home.ok(&["task", "get", &id]);
    assert!(shown.contains("started:") && shown.contains("duration:"), "{shown}");
}
