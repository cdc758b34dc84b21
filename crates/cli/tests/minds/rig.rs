//! A server whose agents think with a file of replies.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    Home, PATIENCE,
    http::{Api, array, fresh, text},
    remote::{Caller, Setup},
};

const MODELS: &str = r#"
default = "script/m"
[providers.script]
api = "scripted"
file = "replies.json"
"#;

/// A server and the file of its model's replies.
pub(crate) struct Thinker {
    pub(crate) caller: Caller,
}

/// What a model was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) system: String,
    /// Each message's role and text.
    pub(crate) messages: Vec<(String, String)>,
}

impl Asked {
    /// What the user said last.
    pub(crate) fn last(&self) -> &str {
        &self.messages.last().unwrap().1
    }
}

/// What is written before a server is started whose model answers like that.
pub(crate) fn setup(replies: &Value) -> Setup {
    setup_at(Home::new(), replies)
}

pub(crate) fn setup_at(home: Home, replies: &Value) -> Setup {
    Setup::at(home).file("models.toml", MODELS).file("replies.json", &script(replies))
}

fn script(replies: &Value) -> String {
    json!({"log": "asked.jsonl", "replies": replies}).to_string()
}

/// An agent file of the kind `llm` with this table.
pub(crate) fn llm(table: &str) -> String {
    format!("kind = \"llm\"\n[llm]\n{table}\n")
}

impl Thinker {
    /// With nothing but the agent that routes.
    pub(crate) async fn start(replies: &Value) -> Self {
        Self { caller: setup(replies).start().await }
    }

    /// With an agent `helper` too.
    pub(crate) async fn with_helper(replies: &Value) -> Self {
        let helper =
            llm("role = \"research analyst\"\ngoal = \"extract decisions\"\nmodel = \"script/claude-sonnet-4-6\"");
        Self { caller: setup(replies).file("agents/helper.toml", &helper).start().await }
    }

    pub(crate) fn api(&self) -> Api {
        self.caller.api()
    }

    fn log(&self) -> Vec<Value> {
        let log = self.caller.home.path(".config/switchboard/asked.jsonl");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the model was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let begun = self.log().into_iter().filter(|line| line["event"] == "begun");
        begun
            .map(|line| {
                let messages = array(&line, "/messages").iter();
                Asked {
                    system: text(&line, "/system").to_owned(),
                    messages: messages.map(|message| (text(message, "/role").to_owned(), words(message))).collect(),
                }
            })
            .collect()
    }

    /// How many answers were given to their end.
    pub(crate) fn answered(&self) -> usize {
        self.log().iter().filter(|line| line["event"] == "completed").count()
    }

    /// Waits until the model was asked so often.
    pub(crate) async fn until_asked(&self, times: usize) {
        let begun = Instant::now();
        while self.asked().len() < times {
            assert!(begun.elapsed() < PATIENCE, "asked {:?}", self.asked());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends by 1.0; gives the task when it has ended.
    pub(crate) async fn sends(&self, agent: &str, words: &str) -> Value {
        self.caller.sends(agent, words).await
    }

    /// Calls a method of 0.3 under `/v1/a2a`; gives the envelope.
    pub(crate) async fn seed(&self, agent: &str, method: &str, params: &Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params});
        let api = self.api();
        let request = api.bare(reqwest::Method::POST, &format!("/v1/a2a/agents/{agent}"));
        let request = request.bearer_auth(api.token().unwrap()).header("Content-Type", "application/json");
        api.call(request.body(call.to_string())).await.ok()
    }

    /// The results of a stream of 0.3 under `/v1/a2a`, to its end.
    pub(crate) async fn seed_stream(&self, agent: &str, method: &str, params: &Value) -> Vec<Value> {
        let call = json!({"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params});
        let api = self.api();
        let request = api.bare(reqwest::Method::POST, &format!("/v1/a2a/agents/{agent}"));
        let request = request.bearer_auth(api.token().unwrap()).header("Content-Type", "application/json");
        let reply = api.call(request.body(call.to_string())).await;
        assert_eq!(reply.media_type(), "text/event-stream", "{}", reply.shown());
        results(&reply.body)
    }

    /// The native events of a request, to its end.
    pub(crate) async fn native(&self, request: &str) -> Vec<(String, Value)> {
        let reply = self.api().get(&format!("/v1/requests/{request}/events?since_seq=0")).await;
        let body = String::from_utf8(reply.body).unwrap();
        let mut events = Vec::new();
        for record in body.split("\n\n").filter(|record| record.contains("data: ")) {
            let of = |field: &str| record.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            events.push((of("event: ").to_owned(), serde_json::from_str(of("data: ")).unwrap()));
        }
        events
    }
}

fn words(message: &Value) -> String {
    let texts = array(message, "/content").iter().filter_map(|content| content["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// The results in a stream of JSON-RPC envelopes.
pub(crate) fn results(body: &[u8]) -> Vec<Value> {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].take()).collect()
}

/// MessageSendParams of 0.3.
pub(crate) fn said(words: &str) -> Value {
    json!({"message": {"messageId": format!("m-{}", fresh()), "role": "user", "parts": [{"kind": "text", "text": words}]}})
}

/// What a task of 1.0 answered: the text of its response.
pub(crate) fn answer(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().cloned().unwrap_or_default();
    let response = artifacts.iter().filter(|artifact| artifact["name"] == "response");
    response
        .flat_map(|artifact| array(artifact, "/parts").clone())
        .filter_map(|part| part["text"].as_str().map(str::to_owned))
        .collect()
}

/// The data of a task's artifacts with this name.
pub(crate) fn data(task: &Value, name: &str) -> Vec<Value> {
    let artifacts = task["artifacts"].as_array().cloned().unwrap_or_default();
    let named = artifacts.into_iter().filter(|artifact| artifact["name"] == name);
    named.map(|artifact| artifact["parts"][0]["data"].clone()).collect()
}
