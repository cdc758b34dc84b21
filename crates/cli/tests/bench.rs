//! `sb bench` against a running server: that every mode works, counts what it did and says so as JSON.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use store::scratch::Scratch;
use tempfile::TempDir;

/// A server with a home of its own. Dropping it is kill -9.
struct Server {
    child: Child,
    url: String,
    scratch: Scratch,
    home: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[("SB_LIMITS_REQUESTS_PER_SECOND", "0")])
    }

    fn start_with(environment: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&home.path().join("data"));
        let mut command = sb(&home, &scratch, &["serve", "--listen", "127.0.0.1:0"]);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        // Whatever else the server prints must not find a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { child, url, scratch, home }
    }

    fn run(&self, args: &[&str]) -> Output {
        sb(&self.home, &self.scratch, args).output().unwrap()
    }

    /// The result of a run of load.
    #[track_caller]
    fn bench(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["bench", "-o", "json"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}\n{stderr}");
        assert_eq!(stderr, "", "there is no terminal to show progress on");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.lines().count(), 1, "{stdout}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// How many tasks the agent has.
    fn tasks(&self, agent: &str) -> usize {
        let output = self.run(&["task", "list", "--agent", agent, "--limit", "1000", "-o", "json"]);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout.lines().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sb(home: &TempDir, scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
    command.args(args).env_clear().stdin(Stdio::null());
    command.env("HOME", home.path()).env("SB_DATA_DIR", home.path().join("data"));
    command.envs(scratch.url().map(|url| ("SB_STORE", url)));
    command
}

#[track_caller]
fn assert_clean(result: &Value, mode: &str, binding: &str) {
    assert_eq!(result["mode"], mode, "{result}");
    assert_eq!(result["binding"], binding, "{result}");
    assert_eq!(result["errors"]["count"], 0, "{result}");
    let commits = result["commits_per_send"].as_f64();
    assert_eq!(commits.is_some(), matches!(mode, "send" | "stream"), "{result}");
    // Two when nobody shares them; a few more are the server's own, such as noting that a token was used.
    assert!(commits.unwrap_or_default() <= 2.2, "{result}");
}

#[test]
fn each_message_is_sent_once_over_either_binding() {
    let server = Server::start();
    let mut sent = 0;
    for (wire, binding) in [("jsonrpc", "JSONRPC"), ("rest", "HTTP+JSON")] {
        for (mode, frames) in [("send", 0), ("stream", 1)] {
            let result = server.bench(&["--mode", mode, "--binding", wire, "--requests", "25", "--concurrency", "4"]);
            sent += 25;
            assert_clean(&result, mode, binding);
            assert_eq!(result["count"], 25, "{result}");
            assert_eq!(result["concurrency"], 4);
            assert_eq!(result["text_bytes"], 256);
            assert!(result["frames"].as_u64().unwrap() >= 25 * frames, "{result}");
            assert_eq!(result["first_frame_us"].is_null(), mode == "send", "{result}");
            let latency = |name: &str| result["latency_us"][name].as_f64().unwrap();
            assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
            assert!(result["bytes"]["sent"].as_u64().unwrap() > 25 * 256, "{result}");
            assert!(result["bytes"]["received"].as_u64().unwrap() > 25 * 256, "{result}");
        }
    }
    assert_eq!(server.tasks("echo"), sent);
}

#[test]
fn tasks_are_read_over_either_binding() {
    let server = Server::start();
    for (wire, binding) in [("jsonrpc", "JSONRPC"), ("rest", "HTTP+JSON")] {
        for mode in ["get", "list"] {
            let result = server.bench(&["--mode", mode, "--binding", wire, "--requests", "40", "--concurrency", "3"]);
            assert_clean(&result, mode, binding);
            assert_eq!((&result["count"], &result["unit"]), (&Value::from(40), &Value::from("operation")));
        }
    }
}

#[test]
fn a_run_lasts_as_long_as_it_was_told() {
    let server = Server::start();
    let result = server.bench(&["--duration", "300ms", "--warmup", "50ms", "--concurrency", "2", "--text-bytes", "10"]);
    assert_clean(&result, "send", "JSONRPC");
    assert!(result["seconds"].as_f64().unwrap() >= 0.3, "{result}");
    let (count, rate) = (result["count"].as_f64().unwrap(), result["per_second"].as_f64().unwrap());
    assert!(count > 0.0 && (rate * result["seconds"].as_f64().unwrap() - count).abs() < 1.0, "{result}");
}

#[test]
fn followers_all_get_the_frames() {
    let server = Server::start();
    for wire in ["jsonrpc", "rest"] {
        let args = ["--mode", "fanout", "--binding", wire, "--concurrency", "8", "--duration", "500ms"];
        let result = server.bench(&args);
        assert_eq!(result["errors"]["count"], 0, "{result}");
        assert_eq!(result["unit"], "frame");
        assert_eq!(result["subscribers"]["attached"], 8, "{result}");
        assert_eq!(result["subscribers"]["stayed"], 8, "{result}");
        assert!(result["count"].as_u64().unwrap() >= 8, "{result}");
        assert_eq!(result["count"], result["frames"]);
    }
    assert_eq!(server.tasks("stream"), 2, "one task for all followers of a run");
}

#[test]
fn idle_subscribers_stay() {
    let server = Server::start();
    let result = server.bench(&["--mode", "idle", "--concurrency", "20", "--duration", "300ms"]);
    assert_clean(&result, "idle", "JSONRPC");
    let held = &result["subscribers"];
    assert_eq!((&held["asked"], &held["attached"], &held["stayed"]), (&20.into(), &20.into(), &20.into()), "{result}");
}

#[test]
fn a_url_of_an_agent_will_do() {
    let server = Server::start();
    let url = format!("{}/a2a/agents/message", server.url);
    let result = server.bench(&["--url", &url, "--requests", "3"]);
    assert_clean(&result, "send", "JSONRPC");
    assert_eq!(result["count"], 3);
}

#[test]
fn errors_are_counted_by_kind_and_nothing_else_counts() {
    let server = Server::start();
    let output = server.run(&["bench", "--agent", "fail", "--requests", "5", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "nothing worked");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["count"], 0);
    assert_eq!(result["latency_us"], Value::Null);
    assert_eq!(result["errors"]["kinds"]["TASK_STATE_FAILED"], 5, "{result}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not one request worked"));
}

#[test]
fn a_limit_of_the_server_is_explained() {
    let server = Server::start_with(&[("SB_LIMITS_REQUESTS_PER_SECOND", "1"), ("SB_LIMITS_REQUEST_BURST", "20")]);
    let output = server.run(&["bench", "--requests", "60"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("throughput"), "{stdout}");
    assert!(stderr.contains("limits.requests_per_second"), "{stdout}{stderr}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let server = Server::start();
    for (args, code, text) in [
        (&["--concurrency", "0"][..], 2, "at least 1"),
        (&["--mode", "idle", "--requests", "1"][..], 2, "--duration"),
        (&["--url", "http://127.0.0.1:1"][..], 3, "cannot reach"),
        (&["--agent", "nobody"][..], 1, "nobody"),
        (&["--mode", "get", "--agent", "message"][..], 1, "a task was needed"),
        (&["--mode", "fanout", "--agent", "echo", "--concurrency", "600"][..], 1, "error: "),
    ] {
        let output = server.run(&[&["bench"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{stderr}");
        assert!(stderr.contains(text), "{args:?}\n{stderr}");
    }
}
