//! The binary as a person uses it: started, stopped, asked and misused.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use store::scratch::Scratch;
use tempfile::TempDir;

/// A home of its own, so that no test sees another's files or this machine's.
struct Home {
    scratch: Scratch,
    directory: TempDir,
}

/// A running `sb serve`.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: Scratch::new(&directory.path().join("data")), directory }
    }

    /// Whose journal is a file, whatever the test run is about.
    fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: Scratch::file(&directory.path().join("data")), directory }
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
        command.args(args).env_clear().env("HOME", self.directory.path()).env("SB_DATA_DIR", self.data());
        command.stdin(Stdio::null()).envs(self.scratch.url().map(|url| ("SB_STORE", url)));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn serve(&self, args: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        Server::start(&mut self.command(&all))
    }
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        Self { child, stdout, url }
    }

    /// Tells the server to stop; gives its exit code and what it had printed after its first line.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "the server does not stop");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status.code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", stdout(output), stderr(output));
    stdout(output)
}

#[track_caller]
fn fails(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", stdout(output), stderr(output));
    let text = stderr(output);
    assert!(text.contains("error: "), "{text}");
    text
}

fn token_in(text: &str) -> Option<&str> {
    let start = text.find("sb_")?;
    text.get(start..start + 46)
}

fn stored(directory: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(directory.join("cli.json")).unwrap()).unwrap()
}

#[test]
fn the_first_start_prints_its_token_once() {
    let home = Home::new();
    let server = home.serve(&[]);
    let url = server.url.clone();
    let (code, text) = server.stop("-TERM");
    assert_eq!(code, Some(0));
    let token = token_in(&text).expect("the first start shows a token");
    assert!(text.contains("sb send") && text.contains("curl"), "{text}");
    assert_eq!(stored(&home.data())["token"], token);
    assert_eq!(stored(&home.data())["url"], url);

    let server = home.serve(&[]);
    let url = server.url.clone();
    let (code, text) = server.stop("-INT");
    assert_eq!((code, text.as_str()), (Some(0), ""));
    assert_eq!(stored(&home.data())["token"], token);
    assert_eq!(stored(&home.data())["url"], url);
}

#[test]
fn a_token_from_outside_is_not_printed() {
    let home = Home::new();
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::start(command.env("SB_BOOTSTRAP_TOKEN", "a-token-from-outside"));
    let url = server.url.clone();
    let with = home.run(&["send", "--url", &url, "--token", "a-token-from-outside", "hello"]);
    assert_eq!(succeeds(&with), "hello\n");
    let (code, text) = server.stop("-TERM");
    assert_eq!((code, text.as_str()), (Some(0), ""));
}

#[test]
fn send_prints_the_reply() {
    let home = Home::new();
    let server = home.serve(&[]);
    assert_eq!(succeeds(&home.run(&["send", "hello"])), "hello\n", "the default agent is echo");
    assert_eq!(succeeds(&home.run(&["send", "--agent", "message", "hi"])), "hi\n");

    let json = succeeds(&home.run(&["send", "-o", "json", "--context", "c-1", "hello"]));
    assert_eq!(json.lines().count(), 1);
    let reply: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(reply["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(reply["task"]["contextId"], "c-1");

    let localhost = server.url.replace("127.0.0.1", "localhost");
    assert_eq!(succeeds(&home.run(&["send", "--url", &localhost, "again"])), "again\n");
}

#[test]
fn send_streams() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let text = succeeds(&home.run(&["send", "--stream", "--agent", "stream", "3 chunks, 5 ms apart"]));
    assert_eq!(text, "chunk 1 of 3\nchunk 2 of 3\nchunk 3 of 3\n");

    let lines = succeeds(&home.run(&["send", "--stream", "-o", "json", "--agent", "stream", "3 5"]));
    let events: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.first().unwrap()["task"].is_object(), "{lines}");
    assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");

    assert_eq!(succeeds(&home.run(&["send", "--stream", "--agent", "message", "hi"])), "hi\n");
    assert_eq!(succeeds(&home.run(&["send", "--stream", "echo this"])), "echo this\n");
}

#[test]
fn a_stream_goes_on_over_a_restart() {
    let home = Home::new();
    let first = home.serve(&[]);
    let listen = first.url.strip_prefix("http://").unwrap().to_owned();
    let args = ["send", "--stream", "--agent", "stream", "20 chunks, 100 ms apart"];
    let sender = home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    drop(first);
    let _second = Server::start(&mut home.command(&["serve", "--listen", &listen]));
    let text = succeeds(&sender.wait_with_output().unwrap());
    assert!(text.ends_with("chunk 20 of 20\n"), "{text}");
}

#[test]
fn a_waiting_task_is_continued() {
    let home = Home::new();
    let _server = home.serve(&[]);
    for mode in [&["send"][..], &["send", "--stream"]] {
        let asked = home.run(&[mode, &["--agent", "ask", "start"]].concat());
        assert_eq!(succeeds(&asked), "What is your answer?\n");
        let note = stderr(&asked);
        let task = note.split("--task ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(succeeds(&home.run(&[mode, &["--agent", "ask", "--task", task, "42"]].concat())), "42\n");
    }
    let auth = home.run(&["send", "--stream", "--agent", "auth", "start"]);
    assert!(succeeds(&auth).contains("Authorize"));
}

#[test]
fn exit_codes_tell_what_happened() {
    let home = Home::new();
    let server = home.serve(&[]);
    assert!(fails(&home.run(&["send", "--agent", "fail", "x"]), 1).contains("the task failed"));
    assert!(fails(&home.run(&["send", "--stream", "--agent", "fail", "x"]), 1).contains("the task failed"));
    assert!(fails(&home.run(&["send", "--agent", "reject", "x"]), 1).contains("was rejected"));
    fails(&home.run(&["send", "--agent", "nobody", "x"]), 1);
    fails(&home.run(&["send", "--agent", "a:b", "x"]), 2);
    fails(&home.run(&["send", "--url", "nonsense", "x"]), 2);
    assert_eq!(home.run(&["send"]).status.code(), Some(2));
    fails(&home.run(&["send", "--token", "sb_wrong", "x"]), 4);
    fails(&home.run(&["card", "get", "--agent", "echo", "--token", "sb_wrong"]), 4);
    assert!(fails(&home.run(&["send", "--agent", "slow", "--timeout", "200ms", "5000"]), 5).contains("hint: "));
    server.stop("-TERM");
    assert!(fails(&home.run(&["send", "x"]), 3).contains("hint: "));
    assert!(fails(&Home::new().run(&["send", "x"]), 2).contains("sb serve"));
}

#[test]
fn card_get_prints_the_card() {
    let home = Home::new();
    let server = home.serve(&[]);
    let gateway: serde_json::Value = serde_json::from_str(&succeeds(&home.run(&["card", "get"]))).unwrap();
    assert!(gateway["supportedInterfaces"][0]["url"].as_str().unwrap().starts_with(&server.url));
    let echo = succeeds(&home.run(&["card", "get", "-o", "json", "--agent", "echo"]));
    assert_eq!(echo.lines().count(), 1);
    let echo: serde_json::Value = serde_json::from_str(&echo).unwrap();
    assert_eq!(echo["name"], "Echo");
    // The public card needs no token, wherever it is fetched from.
    let url = format!("{}/.well-known/agent-card.json", server.url);
    succeeds(&Home::new().run(&["card", "get", &url]));
}

#[test]
fn what_is_not_safe_is_refused() {
    let home = Home::new();
    let text = fails(&home.run(&["serve", "--listen", "0.0.0.0:0", "--no-auth"]), 2);
    assert!(text.contains("--no-auth") && text.contains("hint: "), "{text}");
    let text = fails(&home.run(&["serve", "--listen", "0.0.0.0:0"]), 2);
    assert!(text.contains("--public-url"), "{text}");

    let server = home.serve(&["--no-auth"]);
    let anyone = Home::new();
    assert_eq!(succeeds(&anyone.run(&["send", "--url", &server.url, "hello"])), "hello\n");
}

#[test]
fn the_configuration_file_is_checked() {
    let home = Home::new();
    let file = home.directory.path().join("sb.toml");
    fs::write(&file, "defalt_agent = \"echo\"\n").unwrap();
    let text = fails(&home.run(&["serve", "--config", file.to_str().unwrap()]), 2);
    assert!(text.contains("unknown key `defalt_agent`") && text.contains("did you mean `default_agent`?"), "{text}");
    fails(&home.run(&["serve", "--config", "/nowhere/sb.toml"]), 2);

    let directory = home.directory.path().join(".config/switchboard");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("switchboard.toml"), "default_agent = \"message\"\n").unwrap();
    let _server = home.serve(&[]);
    let reply = succeeds(&home.run(&["send", "-o", "json", "hi"]));
    assert!(reply.starts_with("{\"message\":"), "{reply}");
}

#[test]
fn without_demo_agents_a_send_needs_an_agent() {
    let home = Home::new();
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let _server = Server::start(command.env("SB_DEMO_AGENTS", "false"));
    fails(&home.run(&["send", "hello"]), 1);
    fails(&home.run(&["send", "--agent", "echo", "hello"]), 1);
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let home = Home::new();
    let server = home.serve(&[]);
    let taken = server.url.strip_prefix("http://").unwrap();
    let text = fails(&Home::new().run(&["serve", "--listen", taken]), 1);
    assert!(text.contains("cannot listen on") && text.contains("hint: "), "{text}");
}

#[test]
fn a_journal_that_cannot_be_made_says_why_on_sqlite() {
    let home = Home::on_sqlite();
    let file = home.directory.path().join("file");
    fs::write(&file, "").unwrap();
    let text = fails(&home.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", file.to_str().unwrap()]), 1);
    assert!(text.contains("cannot open the journal") && text.contains("hint: "), "{text}");
}

#[test]
fn a_database_from_the_future_is_refused_on_sqlite() {
    let home = Home::on_sqlite();
    home.serve(&[]).stop("-TERM");
    // SQLite keeps the schema's version in bytes 60 to 63 of the file.
    let path = home.data().join("switchboard.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let text = fails(&home.run(&["serve", "--listen", "127.0.0.1:0"]), 1);
    assert!(text.contains("9999") && text.contains("newer version"), "{text}");
}

#[test]
fn running_work_has_a_grace_and_a_second_signal_ends_it() {
    let home = Home::new();
    let server = home.serve(&[]);
    let sender = home.command(&["send", "--agent", "slow", "1500"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let (code, _) = server.stop("-TERM");
    assert_eq!(code, Some(0));
    assert_eq!(succeeds(&sender.wait_with_output().unwrap()), "done after 1500 ms\n");

    let server = home.serve(&[]);
    let mut sender = home
        .command(&["send", "--agent", "slow", "60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    let (code, _) = server.stop("-TERM");
    assert_eq!(code, Some(1));
    assert!(since.elapsed() < Duration::from_secs(5), "a second signal does not wait for the grace");
    let _ = sender.kill();
    let _ = sender.wait();
}
