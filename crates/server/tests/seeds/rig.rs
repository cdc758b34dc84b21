//! A server in this process, with two tenants and programs as agents.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::temp_store::TempStore;

use super::wire::{Ask, Reply};
use crate::protocol::server::{Setup, TestServer};

pub(crate) const TOKEN: &str = "sb_test_of_alice";
pub(crate) const OTHER_TOKEN: &str = "sb_test_of_bob";

/// The program behind every agent, told by its argument which one to be.
const PROGRAM: &str = include_str!("agent.sh");

/// What to ask the program for, and the keys of the agent and of its command.
type File = (&'static str, &'static str, &'static str, &'static str);

const BASE: [File; 4] = [
    ("echo", "echo", "", ""),
    ("slow", "slow", "", ""),
    ("direct", "direct", r#"reply = "auto""#, ""),
    ("secret", "echo", r#"tenants = ["bob"]"#, ""),
];

/// The agents of the seeds' setup: `index` for everybody, `research` for alice alone, and some that misbehave.
const SEEDED: [File; 13] = [
    ("index", "echo", "", ""),
    ("research", "echo", r#"tenants = ["alice"]"#, ""),
    ("single", "slow", "concurrency = 1", ""),
    ("fails", "fails", "", ""),
    ("rejects", "rejects", "", ""),
    ("breaks", "breaks", "", ""),
    ("strays", "strays", "", ""),
    ("asks", "asks", "", ""),
    ("names", "names", "", ""),
    ("turns", "turns", "", ""),
    ("talks", "talks", "", ""),
    ("makes", "makes", "", ""),
    ("remembers", "remembers", "", ""),
];

pub(crate) struct Fixture(TestServer);

impl Fixture {
    /// With the agents that every server has.
    pub(crate) async fn start() -> Self {
        Self::launch(Setup::new(), &BASE).await
    }

    /// With the agents of the seeds beside them.
    pub(crate) async fn seeded() -> Self {
        Self::launch(Setup::new(), &[&BASE[..], &SEEDED].concat()).await
    }

    /// With the agents that every server has, and other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut server::Options)) -> Self {
        Self::launch(Setup::new().edge(change), &BASE).await
    }

    /// With the demo agents alone.
    pub(crate) async fn with_demo_agents() -> Self {
        Self::tenants(Setup::new()).await
    }

    async fn launch(mut setup: Setup, agents: &[File]) -> Self {
        setup.demo_agents = false;
        setup = setup.file("agent.sh", PROGRAM);
        for (id, role, keys, command) in agents {
            let argv = format!(r#"argv = ["sh", "agent.sh", "{role}"]"#);
            let text = format!("kind = \"command\"\n{keys}\n[command]\n{argv}\noutput = \"events\"\n{command}\n");
            setup = setup.file(format!("{id}.toml"), text);
        }
        Self::tenants(setup).await
    }

    async fn tenants(setup: Setup) -> Self {
        Self(setup.tenant("alice", TOKEN).tenant("bob", OTHER_TOKEN).start().await)
    }

    /// Its address, as a URL.
    pub(crate) fn url(&self) -> &str {
        &self.0.url
    }

    /// Its journal, seen from beside.
    pub(crate) fn scratch(&self) -> &TempStore {
        &self.0.scratch
    }

    /// A POST to an agent under `/v1/a2a`, with alice's token and no version.
    pub(crate) fn dispatch(&self, agent: &str) -> Ask {
        self.bare("POST", &format!("/v1/a2a/agents/{agent}")).header("Authorization", &format!("Bearer {TOKEN}"))
    }

    /// Calls a method under `/v1/a2a`.
    pub(crate) async fn seed(&self, agent: &str, method: &str, params: Value) -> Value {
        let reply = self.dispatch(agent).json(&envelope(method, params)).send().await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
        reply.json()
    }

    /// Begins a task of an agent under `/v1/a2a` that goes on, and gives its id.
    pub(crate) async fn begin(&self, agent: &str, text: &str) -> String {
        let mut params = said(text);
        params["configuration"] = json!({"blocking": false});
        let begun = self.seed(agent, "message/send", params).await;
        begun["result"]["id"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
    }

    /// The same, once it works: for a moment it may be waiting.
    pub(crate) async fn begin_working(&self, agent: &str, text: &str) -> String {
        let id = self.begin(agent, text).await;
        for _ in 0..500 {
            let got = self.seed(agent, "tasks/get", json!({"id": id})).await;
            if got["result"]["status"]["state"] == "working" {
                return id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the task never began to work");
    }

    /// A request with a token and the version.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Ask {
        self.bare(method, path).header("Authorization", &format!("Bearer {TOKEN}")).header("A2A-Version", "1.0")
    }

    /// A request with nothing. It is for a name that is not ours, which must not matter.
    pub(crate) fn bare(&self, method: &str, path: &str) -> Ask {
        let address = self.url().strip_prefix("http://").unwrap().parse().unwrap();
        Ask::new(address, &format!("{method} {path} HTTP/1.1\r\nHost: odd.example\r\nConnection: close\r\n"))
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path).json(body).send().await
    }

    /// Calls a JSON-RPC method at the gateway.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let reply = self.post("/a2a/jsonrpc", &envelope(method, params)).await;
        assert_eq!(reply.status, 200);
        reply.json()
    }

    /// Begins a task of the agent `slow` and gives its id.
    pub(crate) async fn slow_task(&self, text: &str) -> String {
        let mut body = message(text);
        body["configuration"] = json!({"returnImmediately": true});
        let reply = self.post("/a2a/agents/slow/message:send", &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["task"]["id"].as_str().unwrap().to_owned()
    }
}

/// A SendMessageRequest.
pub(crate) fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// MessageSendParams of 0.3.
pub(crate) fn said(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": text}]}})
}

pub(crate) fn envelope(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params})
}
