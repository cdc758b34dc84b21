//! A server with bounds of the test's choice, two tenants, two agents, and an HTTP client that sends what it is told.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use a2a::Part;
use async_trait::async_trait;
use exchange::{Agent, Agents, Entry, Exchange, Outcome, Output, Profile, Turn};
use serde_json::{Value, json};
use server::{Options, Server};
use sha2::{Digest, Sha256};
use store::{NewToken, Store, TenantId};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub(crate) const ALICE: &str = "sb_test_of_alice";
pub(crate) const BOB: &str = "sb_test_of_bob";

/// Nothing here takes longer, except when it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

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
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
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
        Self { address, exchange, alice: tenants[0], stop, _directory: directory }
    }

    /// A request with nothing but a host.
    pub(crate) fn to(&self, host: &str, method: &str, path: &str) -> Ask {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        Ask { address: self.address, head, body: Vec::new() }
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

/// A SendMessageRequest.
pub(crate) fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// One that does not wait.
pub(crate) fn at_once(text: &str) -> Value {
    let mut body = message(text);
    body["configuration"] = json!({"returnImmediately": true});
    body
}

pub(crate) fn envelope(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params})
}

/// A request in the making.
pub(crate) struct Ask {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len();
        self.header("Content-Length", &length.to_string())
    }

    /// Sends it and leaves the answer on the socket.
    pub(crate) async fn open(self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut bytes = self.head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes).await.unwrap();
        stream
    }

    pub(crate) async fn send(self) -> Reply {
        let mut stream = self.open().await;
        let mut bytes = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the answer ends").unwrap();
        Reply::parse(&bytes)
    }
}

/// Reads until the text is there.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            let so_far = String::from_utf8_lossy(&bytes).into_owned();
            if so_far.contains(text) {
                return so_far;
            }
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "ended before {text:?}: {so_far}");
        }
    };
    timeout(PATIENCE, reading).await.expect("the text comes")
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        Self { status, headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The headers whose names begin like this.
    pub(crate) fn names(&self, prefix: &str) -> Vec<&str> {
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Whether one of the lines of this header says exactly this.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.headers.iter().any(|(key, said)| key == name && said == value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The reason of a google.rpc.Status body, after a look at the rest of it.
    pub(crate) fn reason(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["error"]["code"], self.status, "{self:?}");
        assert!(body["error"]["status"].is_string() && body["error"]["message"].is_string(), "{self:?}");
        body["error"]["details"][0]["reason"].as_str().unwrap().to_owned()
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
