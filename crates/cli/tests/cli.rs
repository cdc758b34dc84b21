//! The binary as a person uses it: started, stopped, asked and misused.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    harness::{Home, text, worked},
    verbs::terminal::Terminal,
};

fn token_in(text: &str) -> Option<&str> {
    let start = text.find("sb_")?;
    text.get(start..start + 46)
}

#[test]
fn the_first_start_names_the_file_with_its_token() {
    let home = Home::new();
    let server = home.serve();
    let url = server.url.clone();
    let (code, text) = server.stop_with("TERM");
    assert_eq!(code, Some(0));
    assert_eq!(token_in(&text), None, "this is no terminal: {text}");
    assert!(text.contains("sb send") && text.contains("curl"), "{text}");
    let file = home.path("data/cli.json");
    assert!(text.contains(&format!("token file: {}\n", file.display())), "{text}");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = home.token();
    assert_eq!(home.stored("data/cli.json", "url"), url);

    let server = home.serve();
    let url = server.url.clone();
    let (code, text) = server.stop_with("INT");
    assert_eq!((code, text.as_str()), (Some(0), ""));
    assert_eq!(home.token(), token);
    assert_eq!(home.stored("data/cli.json", "url"), url);
}

#[test]
fn the_first_start_shows_its_token_on_a_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::start(&mut home.serving(&[], &[]));
    terminal.shows("Try it from another terminal");
    terminal.interrupt();
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains(&format!("token: {}\n", home.token())), "{screen}");
}

#[test]
fn a_token_from_outside_is_not_printed() {
    let home = Home::new();
    let server = home.serve_with(&[], &[("SB_BOOTSTRAP_TOKEN", "a-token-from-outside")]);
    let url = server.url.clone();
    let with = home.run(&["send", "--url", &url, "--token", "a-token-from-outside", "hello"]);
    assert_eq!(worked(&with), "hello\n");
    let (code, text) = server.stop_with("TERM");
    assert_eq!((code, text.as_str()), (Some(0), ""));
}

#[test]
fn send_prints_the_reply() {
    let home = Home::new();
    let server = home.serve();
    assert_eq!(home.ok(&["send", "hello"]), "hello\n", "the default agent is echo");
    assert_eq!(home.ok(&["send", "--agent", "message", "hi"]), "hi\n");

    let json = home.ok(&["send", "-o", "json", "--context", "c-1", "hello"]);
    assert_eq!(json.lines().count(), 1);
    let reply: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(reply["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(reply["task"]["contextId"], "c-1");

    let localhost = server.url.replace("127.0.0.1", "localhost");
    assert_eq!(home.ok(&["send", "--url", &localhost, "again"]), "again\n");
}

#[test]
fn send_streams() {
    let home = Home::new();
    let _server = home.serve();
    let text = home.ok(&["send", "--stream", "--agent", "stream", "3 chunks, 5 ms apart"]);
    assert_eq!(text, "chunk 1 of 3\nchunk 2 of 3\nchunk 3 of 3\n");

    let lines = home.ok(&["send", "--stream", "-o", "json", "--agent", "stream", "3 5"]);
    let events: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.first().unwrap()["task"].is_object(), "{lines}");
    assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");

    assert_eq!(home.ok(&["send", "--stream", "--agent", "message", "hi"]), "hi\n");
    assert_eq!(home.ok(&["send", "--stream", "echo this"]), "echo this\n");
}

#[test]
fn a_stream_goes_on_over_a_restart() {
    let home = Home::new();
    let first = home.serve();
    let listen = first.address().to_owned();
    let args = ["send", "--stream", "--agent", "stream", "20 chunks, 100 ms apart"];
    let sender = home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    drop(first);
    let _second = home.serve_with(&["--listen", &listen], &[]);
    let text = worked(&sender.wait_with_output().unwrap());
    assert!(text.ends_with("chunk 20 of 20\n"), "{text}");
}

#[test]
fn a_waiting_task_is_continued() {
    let home = Home::new();
    let _server = home.serve();
    for mode in [&["send"][..], &["send", "--stream"]] {
        let asked = home.run(&[mode, &["--agent", "ask", "start"]].concat());
        assert_eq!(worked(&asked), "What is your answer?\n");
        let note = text(&asked.stderr);
        let task = note.split("--task ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(home.ok(&[mode, &["--agent", "ask", "--task", task, "42"]].concat()), "42\n");
    }
    let auth = home.run(&["send", "--stream", "--agent", "auth", "start"]);
    assert!(worked(&auth).contains("Authorize"));
}

#[test]
fn exit_codes_tell_what_happened() {
    let home = Home::new();
    let server = home.serve();
    assert!(home.fails(&["send", "--agent", "fail", "x"], 1).contains("the task failed"));
    assert!(home.fails(&["send", "--stream", "--agent", "fail", "x"], 1).contains("the task failed"));
    assert!(home.fails(&["send", "--agent", "reject", "x"], 1).contains("was rejected"));
    home.fails(&["send", "--agent", "nobody", "x"], 2);
    home.fails(&["send", "--agent", "a:b", "x"], 2);
    home.fails(&["send", "--url", "nonsense", "x"], 2);
    assert_eq!(home.run(&["send"]).status.code(), Some(2));
    home.fails(&["send", "--token", "sb_wrong", "x"], 4);
    home.fails(&["card", "get", "--agent", "echo", "--token", "sb_wrong"], 4);
    assert!(home.fails(&["send", "--agent", "slow", "--timeout", "200ms", "5000"], 5).contains("hint: "));
    server.stop_with("TERM");
    assert!(home.fails(&["send", "x"], 3).contains("hint: "));
    assert!(Home::new().fails(&["send", "x"], 2).contains("sb serve"));
}

#[test]
fn card_get_prints_the_card() {
    let home = Home::new();
    let server = home.serve();
    let gateway: serde_json::Value = serde_json::from_str(&home.ok(&["card", "get"])).unwrap();
    assert!(gateway["supportedInterfaces"][0]["url"].as_str().unwrap().starts_with(&server.url));
    let echo = home.ok(&["card", "get", "-o", "json", "--agent", "echo"]);
    assert_eq!(echo.lines().count(), 1);
    let echo: serde_json::Value = serde_json::from_str(&echo).unwrap();
    assert_eq!(echo["name"], "Echo");
    // The public card needs no token, wherever it is fetched from.
    let url = format!("{}/.well-known/agent-card.json", server.url);
    Home::new().ok(&["card", "get", &url]);
}

#[test]
fn x_25_what_is_not_safe_is_refused() {
    let home = Home::new();
    let text = home.fails(&["serve", "--listen", "0.0.0.0:0", "--no-auth"], 2);
    assert!(text.contains("--no-auth") && text.contains("hint: "), "{text}");
    let text = home.fails(&["serve", "--listen", "0.0.0.0:0"], 2);
    assert!(text.contains("--public-url"), "{text}");

    let server = home.serve_with(&["--no-auth"], &[]);
    let anyone = Home::new();
    assert_eq!(anyone.ok(&["send", "--url", &server.url, "hello"]), "hello\n");
}

#[test]
fn the_configuration_file_is_checked() {
    let home = Home::new();
    let file = home.write("sb.toml", "defalt_agent = \"echo\"\n");
    let text = home.fails(&["serve", "--config", &file], 2);
    assert!(text.contains("unknown key `defalt_agent`") && text.contains("did you mean `default_agent`?"), "{text}");
    home.fails(&["serve", "--config", "/nowhere/sb.toml"], 2);

    home.configure("default_agent = \"message\"\n");
    let _server = home.serve();
    let reply = home.ok(&["send", "-o", "json", "hi"]);
    assert!(reply.starts_with("{\"message\":"), "{reply}");
}

#[test]
fn without_demo_agents_a_send_needs_an_agent() {
    let home = Home::new();
    let _server = home.serve_with(&[], &[("SB_DEMO_AGENTS", "false")]);
    home.fails(&["send", "hello"], 1);
    home.fails(&["send", "--agent", "echo", "hello"], 2);
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let home = Home::new();
    let server = home.serve();
    let second = Home::new();
    let text = second.fails(&["serve", "--listen", server.address()], 1);
    assert!(text.contains("cannot listen on") && text.contains("hint: "), "{text}");
    // That was no start: the first one is still to come.
    let (_, text) = second.serve().stop_with("TERM");
    assert!(text.contains("token file: "), "{text}");
}

#[test]
fn a_journal_that_cannot_be_made_says_why_on_sqlite() {
    let home = Home::on_sqlite();
    let file = home.write("file", "");
    let text = home.fails(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &file], 1);
    assert!(text.contains("cannot open the journal") && text.contains("hint: "), "{text}");
}

#[test]
fn a_database_from_the_future_is_refused_on_sqlite() {
    let home = Home::on_sqlite();
    home.serve().stop_with("TERM");
    // SQLite keeps the schema's version in bytes 60 to 63 of the file.
    let path = home.path("data/switchboard.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let text = home.fails(&["serve", "--listen", "127.0.0.1:0"], 1);
    assert!(text.contains("9999") && text.contains("newer version"), "{text}");
}

#[test]
fn running_work_has_a_grace_and_a_second_signal_ends_it() {
    let home = Home::new();
    let server = home.serve();
    let id = home.ok(&["send", "--agent", "slow", "--detach", "1500"]);
    std::thread::sleep(Duration::from_millis(700));
    let (code, _) = server.stop_with("TERM");
    assert_eq!(code, Some(0));

    let server = home.serve();
    let log = home.json(&["task", "subscribe", id.trim(), "--after", "0"]);
    let starts = log.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING").count();
    assert_eq!(starts, 1, "it was not begun anew: {log:#?}");
    assert!(home.ok(&["task", "get", id.trim()]).ends_with("done after 1500 ms\n"));
    let mut sender = home
        .command(&["send", "--agent", "slow", "60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    // `timeout` sends its signal to the child and then to the child's group.
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(1000));
    let log = server.log();
    assert!(
        log.contains("stopping") && !log.contains("stopped at once"),
        "a second SIGTERM so soon is the first: {log}"
    );
    let since = Instant::now();
    let (code, _) = server.stop_with("TERM");
    assert_eq!(code, Some(1));
    assert!(since.elapsed() < Duration::from_secs(5), "a second signal does not wait for the grace");
    let _ = sender.kill();
    let _ = sender.wait();

    let server = home.serve();
    home.ok(&["send", "--agent", "slow", "--detach", "60000"]);
    std::thread::sleep(Duration::from_millis(700));
    server.signal("INT");
    std::thread::sleep(Duration::from_millis(200));
    let since = Instant::now();
    let (code, _) = server.stop_with("INT");
    assert_eq!(code, Some(1));
    assert!(since.elapsed() < Duration::from_secs(5), "nor does a second Ctrl-C, however soon it comes");
}
