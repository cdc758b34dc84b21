//! A server with bounds of the test's choice, two tenants, two agents, and an HTTP client that sends what it is told.

use std::{net::SocketAddr, sync::Arc};

use a2a::Part;
use async_trait::async_trait;
use exchange::{Agent, Agents, Entry, Exchange, Outcome, Output, Profile, Turn};
use serde_json::{Value, json};
use server::{Options, Server};
use sha2::{Digest, Sha256};
use store::{NewToken, TenantId, scratch::Scratch};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    support::{envelope, message},
    wire::{Ask, Reply},
};

pub(crate) const ALICE: &str = "sb_test_of_alice";
pub(crate) const BOB: &str = "sb_test_of_bob";

/// Repeats what it is told, or asks when told `ask`.
struct Echo;
/// Works until it is canceled.
struct Slow;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        let parts = vec![Part::text(turn.text())];
        if turn.text() == "ask" { Outcome::InputRequired(parts) } else { Outcome::Completed(parts) }
    }
}

#[async_trait]
impl Agent for Slow {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        turn.cancel.cancelled().await;
        Outcome::Canceled
    }
}

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) exchange: Exchange,
    pub(crate) alice: TenantId,
    stop: CancellationToken,
    _scratch: Scratch,
    _directory: TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Rig {
    /// With other bounds at the edge.
    pub(crate) async fn at_edge(change: impl FnOnce(&mut Options)) -> Self {
        Self::with(|_| {}, change).await
    }

    /// With other bounds in the exchange.
    pub(crate) async fn in_exchange(change: impl FnOnce(&mut exchange::Options)) -> Self {
        Self::with(change, |_| {}).await
    }

    async fn with(inside: impl FnOnce(&mut exchange::Options), outside: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(directory.path());
        let store = scratch.open().await;
        let mut tenants = Vec::new();
        for (name, token) in [("alice", ALICE), ("bob", BOB)] {
            let tenant = store.create_tenant(name).await.unwrap().id;
            let hash = Sha256::digest(token).into();
            store.add_token(NewToken { tenant, hash, name: "test".to_owned(), expires: None }).await.unwrap();
            tenants.push(tenant);
        }
        let agents = Agents::default();
        agents.insert(Entry::new(Profile::new("echo".parse().unwrap(), "test"), Arc::new(Echo)));
        agents.insert(Entry::new(Profile::new("slow".parse().unwrap(), "test"), Arc::new(Slow)));
        let mut settings = exchange::Options { default_agent: "echo".parse().ok(), ..exchange::Options::default() };
        inside(&mut settings);
        let exchange = Exchange::start(store, agents, settings).await.unwrap();
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        outside(&mut options);
        let server = Server::bind(exchange.clone(), options).await.unwrap();
        let address = server.local_addr();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { address, exchange, alice: tenants[0], stop, _scratch: scratch, _directory: directory }
    }

    /// A request with nothing but a host.
    pub(crate) fn to(&self, host: &str, method: &str, path: &str) -> Ask {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        Ask::new(self.address, &head)
    }

    /// A request without a token.
    pub(crate) fn bare(&self, method: &str, path: &str) -> Ask {
        self.to("localhost", method, path)
    }

    /// A request of a tenant, in 1.0.
    pub(crate) fn ask(&self, token: &str, method: &str, path: &str) -> Ask {
        self.bare(method, path).header("Authorization", &format!("Bearer {token}")).header("A2A-Version", "1.0")
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(ALICE, "GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask(ALICE, "POST", path).json(body).send().await
    }

    /// Calls a JSON-RPC method.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let reply = self.post("/a2a/jsonrpc", &envelope(method, params)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Begins a task that goes on, and gives its id.
    pub(crate) async fn begin(&self) -> String {
        let reply = self.post("/a2a/agents/slow/message:send", &at_once("go")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["task"]["id"].as_str().unwrap().to_owned()
    }
}

/// One that does not wait.
pub(crate) fn at_once(text: &str) -> Value {
    let mut body = message(text);
    body["configuration"] = json!({"returnImmediately": true});
    body
}

impl Reply {
    /// The headers whose names begin like this.
    pub(crate) fn names(&self, prefix: &str) -> Vec<&str> {
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Whether one of the lines of this header says exactly this.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.headers.iter().any(|(key, said)| key == name && said == value)
    }

    /// Checks that this is 429 in the form of HTTP, and gives the seconds to wait.
    pub(crate) fn retry_after(&self) -> u64 {
        assert_eq!((self.status, self.reason().as_str()), (429, "RESOURCE_EXHAUSTED"), "{self:?}");
        let seconds: u64 = self.header("retry-after").unwrap_or_else(|| panic!("{self:?}")).parse().unwrap();
        let body = self.json();
        assert_eq!(body["error"]["status"], "RESOURCE_EXHAUSTED");
        let details = body["error"]["details"].as_array().unwrap();
        let info = details.iter().find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.RetryInfo");
        assert_eq!(info.unwrap()["retryDelay"], format!("{seconds}s"));
        seconds
    }
}
