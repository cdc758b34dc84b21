//! A server on a free port, two tenants, four agents, and an HTTP client that sends exactly what it is told.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use a2a::{Message, Part, Role};
use async_trait::async_trait;
use exchange::{Agent, Agents, Entry, Exchange, Outcome, Output, Profile, ReplyMode, Turn};
use serde_json::{Value, json};
use server::{Options, Server};
use sha2::{Digest, Sha256};
use store::{NewToken, Store};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "sb_test_of_alice";
pub(crate) const OTHER_TOKEN: &str = "sb_test_of_bob";

/// Nothing here takes longer, except when it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Repeats the text; in four chunks when told `stream`.
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
        Outcome::Completed(vec![Part::text(turn.text())])
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
    pub(crate) base_url: String,
    pub(crate) exchange: Exchange,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<()>,
    _directory: TempDir,
    /// Whom requests are for.
    host: &'static str,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        for (name, token) in [("alice", TOKEN), ("bob", OTHER_TOKEN)] {
            let tenant = store.create_tenant(name).await.unwrap().id;
            let hash = Sha256::digest(token).into();
            store.add_token(NewToken { tenant, hash, name: "test".to_owned(), expires: None }).await.unwrap();
        }

        let agents = Agents::default();
        agents.insert(Entry::new(profile("echo"), Arc::new(Echo)));
        agents.insert(Entry::new(profile("slow"), Arc::new(Slow)));
        let mut direct = profile("direct");
        direct.reply = ReplyMode::Auto;
        agents.insert(Entry::new(direct, Arc::new(Direct)));
        let mut secret = profile("secret");
        secret.tenants = Some(["bob".to_owned()].into());
        agents.insert(Entry::new(secret, Arc::new(Echo)));

        let settings = exchange::Options { default_agent: "echo".parse().ok(), ..exchange::Options::default() };
        let exchange = Exchange::start(store, agents, settings).await.unwrap();
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        change(&mut options);
        // A name that is not ours must not matter, except where nobody has to authenticate.
        let host = if options.auth { "odd.example" } else { "localhost" };
        let server = Server::bind(exchange.clone(), options).await.unwrap();
        let address = server.local_addr();
        let base_url = server.base_url().to_owned();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        Self { address, base_url, exchange, stop, running, _directory: directory, host }
    }

    /// A request with a token and the version.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Ask {
        self.bare(method, path).header("Authorization", &format!("Bearer {TOKEN}")).header("A2A-Version", "1.0")
    }

    /// A request with nothing.
    pub(crate) fn bare(&self, method: &str, path: &str) -> Ask {
        let host = self.host;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        Ask { address: self.address, head, body: Vec::new() }
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

fn profile(id: &str) -> Profile {
    Profile::new(id.parse().unwrap(), "test")
}

/// A SendMessageRequest.
pub(crate) fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}})
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
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Self { status, headers, body: body.to_owned() };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = dechunk(body);
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
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

    /// The events of a stream, as numbers and bodies.
    pub(crate) fn events(&self) -> Vec<(u64, Value)> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        let mut events = Vec::new();
        for event in self.body.split_terminator("\n\n").filter(|event| !event.starts_with(':')) {
            let (id, data) = event.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            events.push((id.strip_prefix("id: ").unwrap().parse().unwrap(), data));
        }
        events
    }
}

fn dechunk(mut text: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.push_str(&rest[..size]);
        text = rest[size..].strip_prefix("\r\n").unwrap();
    }
}
