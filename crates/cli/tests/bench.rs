//! `sb bench` against a running server: that every mode works, counts what it did and says so as JSON.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use serde_json::Value;

use crate::harness::{Home, Server};

/// A server with a home of its own.
struct Bench {
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

impl Bench {
    fn start() -> Self {
        Self::start_with(&[("SB_LIMITS_REQUESTS_PER_SECOND", "0")])
    }

    fn start_with(environment: &[(&str, &str)]) -> Self {
        let home = Home::new();
        Self { server: home.serve_with(&["--grpc-port", "0"], environment), home }
    }

    /// The result of a run of load.
    #[track_caller]
    fn run(&self, args: &[&str]) -> Value {
        let output = self.home.run(&[&["bench", "-o", "json"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}\n{stderr}");
        assert_eq!(stderr, "", "there is no terminal to show progress on");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.lines().count(), 1, "{stdout}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// How many tasks the agent has.
    fn tasks(&self, agent: &str) -> usize {
        self.home.json(&["task", "list", "--agent", agent, "--limit", "1000"]).len()
    }
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
fn each_message_is_sent_once_over_every_binding() {
    let bench = Bench::start();
    let mut sent = 0;
    for (wire, binding) in [("jsonrpc", "JSONRPC"), ("rest", "HTTP+JSON"), ("grpc", "GRPC")] {
        for (mode, frames) in [("send", 0), ("stream", 1)] {
            let result = bench.run(&["--mode", mode, "--binding", wire, "--requests", "25", "--concurrency", "4"]);
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
    assert_eq!(bench.tasks("echo"), sent);
}

#[test]
fn tasks_are_read_over_every_binding() {
    let bench = Bench::start();
    for (wire, binding) in [("jsonrpc", "JSONRPC"), ("rest", "HTTP+JSON"), ("grpc", "GRPC")] {
        for mode in ["get", "list"] {
            let result = bench.run(&["--mode", mode, "--binding", wire, "--requests", "40", "--concurrency", "3"]);
            assert_clean(&result, mode, binding);
            assert_eq!((&result["count"], &result["unit"]), (&Value::from(40), &Value::from("operation")));
        }
    }
}

#[test]
fn a_run_lasts_as_long_as_it_was_told() {
    let bench = Bench::start();
    let result = bench.run(&["--duration", "300ms", "--warmup", "50ms", "--concurrency", "2", "--text-bytes", "10"]);
    assert_clean(&result, "send", "JSONRPC");
    assert!(result["seconds"].as_f64().unwrap() >= 0.3, "{result}");
    let (count, rate) = (result["count"].as_f64().unwrap(), result["per_second"].as_f64().unwrap());
    assert!(count > 0.0 && (rate * result["seconds"].as_f64().unwrap() - count).abs() < 1.0, "{result}");
}

#[test]
fn every_entry_of_a_queue_is_published_taken_and_acknowledged() {
    let bench = Bench::start();
    for wire in ["jsonrpc", "rest"] {
        let result = bench.run(&["--mode", "queue", "--binding", wire, "--requests", "40", "--concurrency", "4"]);
        assert_eq!((&result["mode"], &result["count"]), (&"queue".into(), &40.into()), "{result}");
        assert_eq!(result["errors"]["count"], 0, "{result}");
        let phases = result["phases"].as_array().unwrap();
        for (phase, name) in phases.iter().zip(["send", "publish", "consume+ack"]) {
            assert_eq!((&phase["name"], &phase["count"]), (&name.into(), &40.into()), "{result}");
            assert!(phase["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{result}");
            // A message is two commits and so is an entry that is taken and acknowledged; a few more are the server's own.
            let most = if name == "publish" { 1.0 } else { 2.0 };
            assert!((0.1..=most + 0.3).contains(&phase["commits_each"].as_f64().unwrap()), "{result}");
        }
        assert_eq!((phases.len(), &phases[0]["ratio"]), (3, &1.0.into()), "{result}");
    }
    let tasks = bench.home.json(&["task", "list", "--limit", "1000"]);
    let ended = tasks.iter().filter(|task| task["status"]["state"] == "TASK_STATE_COMPLETED").count();
    assert_eq!((tasks.len(), ended), (160, 160), "as many messages as entries");
}

#[test]
fn followers_all_get_the_frames() {
    let bench = Bench::start();
    for wire in ["jsonrpc", "rest", "grpc"] {
        let args = ["--mode", "fanout", "--binding", wire, "--concurrency", "8", "--duration", "500ms"];
        let result = bench.run(&args);
        assert_eq!(result["errors"]["count"], 0, "{result}");
        assert_eq!(result["unit"], "frame");
        assert_eq!(result["subscribers"]["attached"], 8, "{result}");
        assert_eq!(result["subscribers"]["stayed"], 8, "{result}");
        assert!(result["count"].as_u64().unwrap() >= 8, "{result}");
        assert_eq!(result["count"], result["frames"]);
    }
    assert_eq!(bench.tasks("stream"), 3, "one task for all followers of a run");
}

#[test]
fn idle_subscribers_stay() {
    let bench = Bench::start();
    let result = bench.run(&["--mode", "idle", "--concurrency", "20", "--duration", "300ms"]);
    assert_clean(&result, "idle", "JSONRPC");
    let held = &result["subscribers"];
    assert_eq!((&held["asked"], &held["attached"], &held["stayed"]), (&20.into(), &20.into(), &20.into()), "{result}");
}

#[test]
fn a_url_of_an_agent_will_do() {
    let bench = Bench::start();
    let url = format!("{}/a2a/agents/message", bench.server.url);
    let result = bench.run(&["--url", &url, "--requests", "3"]);
    assert_clean(&result, "send", "JSONRPC");
    assert_eq!(result["count"], 3);
}

#[test]
fn errors_are_counted_by_kind_and_nothing_else_counts() {
    let bench = Bench::start();
    let output = bench.home.run(&["bench", "--agent", "fail", "--requests", "5", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "nothing worked");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["count"], 0);
    assert_eq!(result["latency_us"], Value::Null);
    assert_eq!(result["errors"]["kinds"]["TASK_STATE_FAILED"], 5, "{result}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not one request worked"));
}

#[test]
fn a_limit_of_the_server_is_explained() {
    let bench = Bench::start_with(&[("SB_LIMITS_REQUESTS_PER_SECOND", "1"), ("SB_LIMITS_REQUEST_BURST", "20")]);
    let output = bench.home.run(&["bench", "--requests", "60"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("throughput"), "{stdout}");
    assert!(stderr.contains("limits.requests_per_second"), "{stdout}{stderr}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let bench = Bench::start();
    for (args, code, text) in [
        (&["--concurrency", "0"][..], 2, "at least 1"),
        (&["--mode", "idle", "--requests", "1"][..], 2, "--duration"),
        (&["--mode", "queue", "--binding", "grpc"][..], 2, "gRPC"),
        (&["--url", "http://127.0.0.1:1"][..], 3, "cannot reach"),
        (&["--agent", "nobody"][..], 1, "nobody"),
        (&["--mode", "get", "--agent", "message"][..], 1, "a task was needed"),
        (&["--mode", "fanout", "--agent", "echo", "--concurrency", "600"][..], 1, "error: "),
    ] {
        let output = bench.home.run(&[&["bench"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{stderr}");
        assert!(stderr.contains(text), "{args:?}\n{stderr}");
    }
}

#[test]
fn it_says_that_it_fills_a_journal_and_needs_no_warm_up() {
    let bench = Bench::start();
    let short = ["--duration", "200ms", "--warmup", "0s", "--concurrency", "2"];
    let said = |args: &[&str]| {
        let output = bench.home.run(&[&["bench"], &short[..], args].concat());
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let note = said(&[]);
    assert!(note.starts_with("note: every request leaves a task in the journal of "), "{note}");
    assert!(note.contains("--data-dir"), "{note}");
    assert_eq!(said(&["--mode", "get"]), "", "these make a few");
    assert_eq!(said(&["--url", &bench.server.url]), "", "who names a server knows which");
}
