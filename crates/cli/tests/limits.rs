//! The bounds of `switchboard.toml`, as the running binary keeps them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use reqwest::{RequestBuilder, StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};
use store::scratch::Scratch;
use tempfile::TempDir;

const TOKEN: &str = "sb_test_token_of_limits";

struct Sb {
    process: Child,
    url: String,
    client: reqwest::Client,
    _scratch: Scratch,
    _directory: TempDir,
}

impl Drop for Sb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sb {
    fn start(config: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("switchboard.toml");
        std::fs::write(&file, config).unwrap();
        let scratch = Scratch::new(&directory.path().join("data"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_sb"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&file)
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(arguments)
            .env_clear()
            .env("HOME", directory.path())
            .env("SB_BOOTSTRAP_TOKEN", TOKEN)
            .envs(scratch.url().map(|url| ("SB_STORE", url)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned)).unwrap();
        // Nobody reads the rest, and there is not much of it.
        std::thread::spawn(move || lines.for_each(drop));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { process, url, client, _scratch: scratch, _directory: directory }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.url)).bearer_auth(TOKEN).header("A2A-Version", "1.0")
    }

    fn send(&self, agent: &str, text: &str) -> RequestBuilder {
        let body = json!({
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]},
            "configuration": {"returnImmediately": true},
        });
        self.client
            .post(format!("{}/a2a/agents/{agent}/message:send", self.url))
            .bearer_auth(TOKEN)
            .header("A2A-Version", "1.0")
            .header("Content-Type", "application/json")
            .body(body.to_string())
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn bounds_come_from_the_file() {
    let sb = Sb::start(
        r#"
        [limits]
        body_bytes = "64KiB"
        stored_bytes = "100KiB"
        failed_auth_per_second = 1
        failed_auth_burst = 2
        [cors]
        origins = ["https://app.example"]
        "#,
        &[],
    );
    assert_eq!(status(sb.send("echo", &"x".repeat(65_536))).await, 413);
    assert_eq!(status(sb.send("echo", &"x".repeat(60_000))).await, 200);
    let full = sb.send("echo", "more").send().await.unwrap();
    assert_eq!((full.status().as_u16(), full.headers().contains_key(RETRY_AFTER)), (429, true));
    let listed = sb.get("/a2a/tasks").send().await.unwrap().bytes().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed["totalSize"], 1);

    let wrong = || sb.client.get(format!("{}/a2a/tasks", sb.url)).bearer_auth("sb_wrong");
    let answers = [status(wrong()).await, status(wrong()).await, status(wrong()).await];
    assert_eq!(answers.map(|status| status.as_u16()), [401, 401, 429]);

    let page = sb.get("/a2a/tasks").header("Origin", "https://app.example").send().await.unwrap();
    assert_eq!(page.headers()["access-control-allow-origin"], "https://app.example");
}

#[tokio::test]
async fn a_rate_comes_from_the_file() {
    let sb = Sb::start("[limits]\nrequests_per_second = 1\nrequest_burst = 2\n", &[]);
    let answers =
        [status(sb.get("/a2a/tasks")).await, status(sb.get("/a2a/tasks")).await, status(sb.get("/a2a/tasks")).await];
    assert_eq!(answers.map(|status| status.as_u16()), [200, 200, 429]);
}

#[tokio::test]
async fn without_authentication_a_rebound_name_is_refused() {
    let sb = Sb::start("", &["--no-auth"]);
    assert_eq!(status(sb.get("/a2a/tasks")).await, 200);
    assert_eq!(status(sb.get("/a2a/tasks").header("Host", "rebound.example")).await, 403);
    assert_eq!(status(sb.get("/a2a/tasks").header("Origin", "https://page.example")).await, 403);
}

#[test]
fn a_key_that_is_no_key_is_refused_with_a_suggestion() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("switchboard.toml");
    std::fs::write(&file, "[limits]\nbody_byte = 5\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
    let output = command.args(["serve", "--config"]).arg(&file).env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unknown key `limits.body_byte`") && said.contains("`limits.body_bytes`"), "{said}");
}
