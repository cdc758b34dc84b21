//! A server on a free port, two tenants, four agents, and an HTTP client that sends exactly what it is told.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use a2a::{Message, Part, Role};
use async_trait::async_trait;
use exchange::{Agent, Agents, Entry, Exchange, Outcome, Output, Profile, ReplyMode, Turn};
use serde_json::{Value, json};
use server::{Options, Server};
use store::TenantId;
use tempfile::TempDir;
use testkit::temp_store::{TempStore, add_tenant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::edge::wire::{Ask, Reply};

pub(crate) const TOKEN: &str = "sb_test_of_alice";
pub(crate) const OTHER_TOKEN: &str = "sb_test_of_bob";

/// Repeats the text; in four chunks when told `stream`, as a question when told `ask`.
struct Echo;
/// Works until it is canceled, or for a second when told `short`.
struct Slow;
/// Answers with a direct message.
struct Direct;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: Turn, out: Output) -> Outcome {
        if turn.text() == "stream" {
            for n in 0..4 {
                out.text(format!("chunk {n} "), n == 0).await;
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            return Outcome::Completed(Vec::new());
        }
        let parts = vec![Part::text(turn.text())];
        if turn.text() == "ask" { Outcome::InputRequired(parts) } else { Outcome::Completed(parts) }
    }
}

#[async_trait]
impl Agent for Slow {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        let time = if turn.text() == "short" { 1 } else { 600 };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(time)) => Outcome::Completed(vec![Part::text("done")]),
            () = turn.cancel.cancelled() => Outcome::Canceled,
        }
    }
}

#[async_trait]
impl Agent for Direct {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        Outcome::Message(Message {
            message_id: "reply".to_owned(),
            role: Role::Agent,
            parts: vec![Part::text(turn.text())],
            ..Message::default()
        })
    }
}

pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) exchange: Exchange,
    pub(crate) alice: TenantId,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<()>,
    pub(crate) scratch: TempStore,
    _directory: TempDir,
    /// Whom requests are for.
    host: &'static str,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings at the edge.
    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::build(|_| {}, change).await
    }

    /// With other settings in the exchange.
    pub(crate) async fn in_exchange(change: impl FnOnce(&mut exchange::Options)) -> Self {
        Self::build(change, |_| {}).await
    }

    async fn build(inside: impl FnOnce(&mut exchange::Options), outside: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scratch = TempStore::new(directory.path());
        let store = scratch.open().await;
        let alice = add_tenant(store.as_ref(), "alice", TOKEN).await;
        add_tenant(store.as_ref(), "bob", OTHER_TOKEN).await;

        let agents = Agents::default();
        agents.insert(Entry::new(profile("echo"), Arc::new(Echo)));
        agents.insert(Entry::new(profile("slow"), Arc::new(Slow)));
        let mut direct = profile("direct");
        direct.reply = ReplyMode::Auto;
        agents.insert(Entry::new(direct, Arc::new(Direct)));
        let mut secret = profile("secret");
        secret.tenants = Some(["bob".to_owned()].into());
        agents.insert(Entry::new(secret, Arc::new(Echo)));

        let mut settings = exchange::Options { default_agent: "echo".parse().ok(), ..exchange::Options::default() };
        inside(&mut settings);
        let exchange = Exchange::start(store, agents, settings).await.unwrap();
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        outside(&mut options);
        // A name that is not ours must not matter, except where nobody has to authenticate.
        let host = if options.auth { "odd.example" } else { "localhost" };
        let server = Server::bind(exchange.clone(), options).await.unwrap();
        let address = server.local_addr();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        Self { address, exchange, alice, stop, running, scratch, _directory: directory, host }
    }

    /// A request of alice, in 1.0.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Ask {
        self.ask_as(TOKEN, method, path)
    }

    /// A request with some token, in 1.0.
    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str) -> Ask {
        self.bare(method, path).header("Authorization", &format!("Bearer {token}")).header("A2A-Version", "1.0")
    }

    /// A request with nothing.
    pub(crate) fn bare(&self, method: &str, path: &str) -> Ask {
        self.to(self.host, method, path)
    }

    /// A request with nothing, for this host.
    pub(crate) fn to(&self, host: &str, method: &str, path: &str) -> Ask {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        Ask::new(self.address, &head)
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
        let reply = self.post("/a2a/agents/slow/message:send", &at_once(text)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["task"]["id"].as_str().unwrap().to_owned()
    }
}

fn profile(id: &str) -> Profile {
    Profile::new(id.parse().unwrap(), "test")
}

/// A SendMessageRequest.
pub(crate) fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// One that is answered at once.
pub(crate) fn at_once(text: &str) -> Value {
    let mut body = message(text);
    body["configuration"] = json!({"returnImmediately": true});
    body
}

pub(crate) fn envelope(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params})
}
