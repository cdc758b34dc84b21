//! The built binary on a free port, with two tenants and programs as agents.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::temp_store::TempStore;

use super::wire::{Ask, Reply};
use crate::harness::{Home, Server};

pub(crate) const TOKEN: &str = "sb_test_of_alice";
pub(crate) const OTHER_TOKEN: &str = "sb_test_of_bob";

/// The program behind every agent, told by its argument which one to be.
const PROGRAM: &str = include_str!("agent.sh");

/// No agents but those of the files, and nothing here tests how often somebody may ask.
const CONFIG: &str = r#"
demo_agents = false
default_agent = "echo"

[limits]
requests_per_second = 0
failed_auth_per_second = 0
"#;

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

/// A server and its home.
pub(crate) struct Fixture {
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

impl Fixture {
    /// With the agents that every server has.
    pub(crate) async fn start() -> Self {
        Self::launch("", &BASE).await
    }

    /// With the agents of the seeds beside them.
    pub(crate) async fn seeded() -> Self {
        Self::launch("", &[&BASE[..], &SEEDED].concat()).await
    }

    /// With the agents that every server has, and more configuration.
    pub(crate) async fn with(config: &str) -> Self {
        Self::launch(config, &BASE).await
    }

    /// With the demo agents alone.
    pub(crate) async fn with_demo_agents() -> Self {
        Self::launch_with(&CONFIG.replace("demo_agents = false", "demo_agents = true"), &[]).await
    }

    async fn launch(config: &str, agents: &[File]) -> Self {
        // Keys at the top have to come before the first table.
        Self::launch_with(&format!("{config}\n{CONFIG}"), agents).await
    }

    async fn launch_with(config: &str, agents: &[File]) -> Self {
        let home = Home::new();
        home.configure(config);
        home.add_agent("agent.sh", PROGRAM);
        for (id, role, keys, command) in agents {
            let argv = format!(r#"argv = ["sh", "agent.sh", "{role}"]"#);
            let text = format!("kind = \"command\"\n{keys}\n[command]\n{argv}\noutput = \"events\"\n{command}\n");
            home.add_agent(&format!("{id}.toml"), &text);
        }
        let mut command = home.serving(&[], &[]);
        let server = home.start(command.env("SB_BOOTSTRAP_TOKEN", "sb_test_of_the_default_tenant")).await;
        home.add_tenant("alice", TOKEN).await;
        home.add_tenant("bob", OTHER_TOKEN).await;
        Self { server, home }
    }

    /// Its address, as a URL.
    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    /// Its journal, seen from beside.
    pub(crate) fn scratch(&self) -> &TempStore {
        &self.home.scratch
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
        let address = self.server.address().parse().unwrap();
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
