//! `sb task` on a terminal, and over a crash. `tasks.md` has what else it does.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};

use super::{
    rig::{Home, Server, eventually, failed, text},
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
