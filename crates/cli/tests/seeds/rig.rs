//! The built binary on a free port, with two tenants and programs as agents.

use std::{fs, net::SocketAddr, process::Stdio, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::scratch::Scratch;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::wire::{Ask, PATIENCE, Reply};

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
const SEEDED: [File; 11] = [
    ("index", "echo", "", ""),
    ("research", "echo", r#"tenants = ["alice"]"#, ""),
    ("single", "slow", "concurrency = 1", ""),
    ("fails", "fails", "", ""),
    ("rejects", "rejects", "", ""),
    ("breaks", "breaks", "", ""),
    ("strays", "strays", "", ""),
    ("asks", "asks", "", ""),
    ("talks", "talks", "", ""),
    ("makes", "makes", "", ""),
    ("remembers", "remembers", "", ""),
];

/// A server and its data directory.
pub(crate) struct Fixture {
    address: SocketAddr,
    pub(crate) base_url: String,
    child: Child,
    /// Its journal, seen from beside.
    pub(crate) scratch: Scratch,
    directory: TempDir,
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

    async fn launch(config: &str, agents: &[File]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        // Keys at the top have to come before the first table.
        fs::write(dir.join("switchboard.toml"), format!("{config}\n{CONFIG}")).unwrap();
        fs::create_dir(dir.join("agents")).unwrap();
        fs::write(dir.join("agents/agent.sh"), PROGRAM).unwrap();
        for (id, role, keys, command) in agents {
            let argv = format!(r#"argv = ["sh", "agent.sh", "{role}"]"#);
            let text = format!("kind = \"command\"\n{keys}\n[command]\n{argv}\noutput = \"events\"\n{command}\n");
            fs::write(dir.join(format!("agents/{id}.toml")), text).unwrap();
        }

        let scratch = Scratch::new(&dir.join("data"));
        let store = scratch.url().map(|url| ["--store", url]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_sb"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.join("data"))
            .arg("--config")
            .arg(dir.join("switchboard.toml"))
            .args(store.iter().flatten())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .env("SB_BOOTSTRAP_TOKEN", "sb_test_of_the_default_tenant")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.join("server.log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = timeout(PATIENCE, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(url) = line.strip_prefix("listening on ") {
                    return Some(url.trim().to_owned());
                }
            }
            None
        });
        let Ok(Some(listening)) = listening.await else {
            panic!("the server does not listen:\n{}", fs::read_to_string(dir.join("server.log")).unwrap());
        };
        // Whatever else the server prints must not find a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = listening.strip_prefix("http://").unwrap().parse().unwrap();
        let fixture = Self { address, base_url: listening, child, scratch, directory };
        fixture.add_tenants().await;
        fixture
    }

    /// Makes alice and bob in the journal, beside the server.
    async fn add_tenants(&self) {
        let journal = self.scratch.open().await;
        for (name, token) in [("alice", TOKEN), ("bob", OTHER_TOKEN)] {
            let tenant = journal.create_tenant(name).await.unwrap().id;
            let hash = Sha256::digest(token).into();
            let token = store::NewToken { tenant, hash, name: "test".to_owned(), expires: None };
            journal.add_token(token).await.unwrap();
        }
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
        Ask::new(self.address, &format!("{method} {path} HTTP/1.1\r\nHost: odd.example\r\nConnection: close\r\n"))
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

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A server that is gone tells another story than one that answers wrongly.
            let state = self.child.try_wait();
            let log = fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default();
            eprintln!("--- the server at {}: {state:?}; its log ---\n{log}", self.base_url);
        }
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
