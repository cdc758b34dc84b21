//! A server that calls remote agents, with its registries and variables.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{
    Home, PATIENCE, Server, TOKEN,
    http::{Api, Reply, text, with_json},
};

const BESIDE_CONFIGURATION: &str = ".config/switchboard";

/// Nothing here tests how often somebody may ask, and what is done again and again is done soon or not at all.
const CONFIG: &str = r#"
[limits]
requests_per_second = 0
failed_auth_per_second = 0

[outbound]
card_refresh = "1h"
probe = "1h"
poll = "200ms"
"#;

/// What a server is started with.
pub(crate) struct Setup {
    home: Home,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// A program and its arguments that run the server.
    under: Vec<String>,
}

/// A home and the server in it.
pub(crate) struct Caller {
    // Dropped in this order: the database goes when its servers are gone.
    pub(crate) server: Server,
    pub(crate) home: Home,
    /// How the server was started.
    command: Command,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::at(Home::new())
    }

    pub(crate) fn at(home: Home) -> Self {
        home.configure(CONFIG);
        Self { home, arguments: Vec::new(), environment: Vec::new(), under: Vec::new() }
    }

    /// With a file beside the configuration.
    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.home.write(&format!("{BESIDE_CONFIGURATION}/{name}"), content);
        self
    }

    /// With this `agents.yaml`.
    pub(crate) fn yaml(self, content: &str) -> Self {
        self.file("agents.yaml", content)
    }

    /// With these agents in `a2a_agents.json`.
    pub(crate) fn json(self, agents: &Value) -> Self {
        self.file("a2a_agents.json", &json!({"agents": agents}).to_string())
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Run by another program.
    pub(crate) fn under(self, under: Vec<String>) -> Self {
        Self { under, ..self }
    }

    /// Its home, to write more to it.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) async fn start(self) -> Caller {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut command = self.home.serving(&self.under, &arguments);
        command.env("SB_BOOTSTRAP_TOKEN", TOKEN).envs(self.environment);
        Caller { server: self.home.start(&mut command).await, home: self.home, command }
    }
}

impl Caller {
    /// One whose `agents.yaml` has this agent and no other.
    pub(crate) async fn of(name: &str, url: &str) -> Self {
        Setup::new().yaml(&format!("agents:\n  - name: {name}\n    url: \"{url}\"\n")).start().await
    }

    /// The same, once the agent's card is known.
    pub(crate) async fn knowing(name: &str, url: &str) -> Self {
        let caller = Self::of(name, url).await;
        caller.knows(name).await;
        caller
    }

    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// The administrator as a caller.
    pub(crate) fn admin(&self) -> Api {
        self.api().with_token(Some(&self.home.admin_token()))
    }

    /// Ends the server without a warning and starts another one on the same data.
    pub(crate) async fn restart(&mut self) {
        self.server.kill9();
        self.server = self.home.start(&mut self.command).await;
    }

    /// Writes a file beside the configuration anew.
    pub(crate) fn edit(&self, name: &str, content: &str) {
        self.home.write(&format!("{BESIDE_CONFIGURATION}/{name}"), content);
    }

    /// What is known of a remote.
    pub(crate) async fn remote(&self, name: &str) -> Value {
        self.admin().get(&format!("/v1/remotes/{name}")).await.ok()
    }

    /// Waits until a remote is as wanted; gives what is known of it.
    pub(crate) async fn remote_when(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let reply = self.admin().get(&format!("/v1/remotes/{name}")).await;
            if reply.status == 200 && wanted(&reply.json()) {
                return reply.json();
            }
            assert!(begun.elapsed() < PATIENCE, "still {}", reply.shown());
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until the card of a remote is known.
    pub(crate) async fn knows(&self, name: &str) -> Value {
        self.remote_when(name, |remote| remote["cardAvailable"] == true).await
    }

    /// Waits until the log has a line with all of these in it.
    pub(crate) async fn logs(&self, words: &[&str]) {
        let begun = Instant::now();
        loop {
            let log = self.server.log();
            if log.lines().any(|line| words.iter().all(|word| line.contains(word))) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no line with {words:?} in\n{log}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// What an agent gets that says `/a2a LINE`, without its frame, which is checked.
    pub(crate) async fn a2a(&self, line: &str) -> String {
        let body = self.api().post("/v1/remotes/a2a", &json!({"line": line})).await.ok();
        unframed(line, text(&body, "/text"))
    }

    /// A message by `/v1/chat`.
    pub(crate) async fn chat(&self, request: &Value) -> Reply {
        self.api().post("/v1/chat", request).await
    }

    /// The same with headers.
    pub(crate) async fn chat_with(&self, request: &Value, headers: &[(&str, &str)]) -> Reply {
        let api = self.api();
        let mut call = with_json(api.request(Method::POST, "/v1/chat"), request);
        for (name, value) in headers {
            call = call.header(*name, *value);
        }
        api.call(call).await
    }

    /// What an agent answers to a text by `/v1/chat`.
    pub(crate) async fn asks(&self, agent: &str, message: &str) -> Value {
        self.chat(&json!({"agent": agent, "message": message})).await.ok()
    }

    /// What is answered at a poll URL in the end.
    pub(crate) async fn polled(&self, url: &str) -> Value {
        let begun = Instant::now();
        loop {
            let reply = self.api().get(url).await;
            if reply.status == 200 {
                return reply.json();
            }
            assert_eq!(reply.status, 202, "{}", reply.shown());
            assert!(begun.elapsed() < PATIENCE, "still {}", reply.shown());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A message for an agent of this server by A2A itself; gives the task when it has ended or asks.
    pub(crate) async fn sends(&self, agent: &str, words: &str) -> Value {
        self.api().post(&format!("/a2a/agents/{agent}/message:send"), &said(words)).await.task()
    }

    /// Reads the feed of a chat to its end, or until one of its events is wanted: names and data, and when each came.
    pub(crate) async fn feed(&self, url: &str, wanted: impl Fn(&Value) -> bool) -> Vec<(Instant, String, Value)> {
        let api = self.api();
        let mut response = api.request(Method::GET, &format!("{url}/events")).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let (mut buffer, mut events) = (String::new(), Vec::new());
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                buffer += std::str::from_utf8(&chunk).unwrap();
                while let Some(end) = buffer.find("\n\n") {
                    let record: String = buffer.drain(..end + 2).collect();
                    let of = |field: &str| {
                        record.lines().find_map(|line| line.strip_prefix(field)).map(|rest| rest.trim().to_owned())
                    };
                    let Some(data) = of("data:") else { continue };
                    let data: Value = serde_json::from_str(&data).unwrap();
                    let found = wanted(&data);
                    events.push((Instant::now(), of("event:").unwrap_or_default(), data));
                    if found {
                        return;
                    }
                }
            }
        };
        timeout(PATIENCE, reading).await.expect("the feed ends in time");
        events
    }

    /// How many bytes of memory the server has had at most.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// A request to send a text.
fn said(words: &str) -> Value {
    json!({"message": crate::harness::http::message(words)})
}

/// What stands in the frame of a tool's result. It has one begin and one end, whatever stands in it.
#[track_caller]
pub(crate) fn unframed(line: &str, framed: &str) -> String {
    let framed = framed.strip_suffix('\n').unwrap_or(framed);
    let begun = framed.strip_prefix(&format!("[/a2a {line} #")).and_then(|rest| rest.split_once("]\n"));
    let (word, body) = begun.unwrap_or_else(|| panic!("no begin: {framed}"));
    assert!(word.len() >= 12 && framed.matches(word).count() == 2, "nothing inside has the word: {framed}");
    let body = body.strip_suffix(&format!("[END A2A #{word}]")).unwrap_or_else(|| panic!("no end: {framed}"));
    body.strip_suffix('\n').unwrap_or(body).to_owned()
}
