//! A remote agent: a real HTTP server that keeps what it was asked and answers by a script.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    PATIENCE, TOKEN,
    http::{Api, message, with_json},
    webhook::{self, Request},
};

mod words;

pub use words::{card_03, card_10, task_03, task_10};

/// Where the card is that belongs to the agent at [`Remote::agent`], for whoever looks at the well-known place.
pub const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// The same before 0.3.
pub const LEGACY: &str = "/.well-known/agent.json";

/// Where it is for whoever looks beside the agent.
pub const BESIDE: &str = "/a2a/agent-card.json";

/// Stands for the id of the request in bytes that are said.
pub const ID: &str = "\"$id\"";

/// One that listens.
pub struct Remote {
    /// `http://host:port`
    pub base: String,
    inner: Arc<Inner>,
    running: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Inner {
    asked: Mutex<Vec<Asked>>,
    /// What it says next, by the method of JSON-RPC, else by the path; the last answer of each stays.
    script: Mutex<HashMap<String, VecDeque<Answer>>>,
    /// How many connections are open.
    open: AtomicUsize,
    /// How many bytes it has said.
    said: AtomicU64,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// What it says to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A JSON-RPC result, in an envelope with the id of the request.
    Result(Value),
    /// A JSON-RPC error with this code.
    Refused(i64, &'static str),
    /// Any status with any headers and body. Where the body begins, [`ID`] becomes the id of the request.
    Plain(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Server-sent events. The connection ends after them.
    Stream(Vec<Step>),
    /// Bytes as they are, be they HTTP or not. The connection ends after them.
    Raw(Vec<Step>),
    /// Another answer after a while.
    Later(Duration, Box<Self>),
    /// The answer of the agent at a URL, which is sent the parts of the message under a new id, with this header of the request and no other.
    Relayed(String, &'static str),
}

/// A piece of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    /// A JSON-RPC result as one event of a stream, in an envelope with the id of the request.
    Event(Value),
    /// Bytes. Where they begin, [`ID`] becomes the id of the request.
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Bytes with a pause after them, again and again until the other side has gone.
    Forever(Vec<u8>, Duration),
    /// So many of the same event at once with a pause after them, again and again.
    Events(Value, usize, Duration),
    /// Nothing more, until the other side has gone.
    Hang,
}

impl Remote {
    pub async fn start() -> Self {
        Self::on_listener(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// One on another host of this machine, as far as anybody can tell.
    pub async fn elsewhere() -> Self {
        Self::on_listener(TcpListener::bind("127.0.0.2:0").await.unwrap())
    }

    /// One with this card in all the places where it may be looked for.
    pub async fn with_card(card: impl FnOnce(&str) -> Value) -> Self {
        let remote = Self::start().await;
        remote.has_card(&card(&remote.agent()));
        remote
    }

    /// One at the place of another that is gone.
    pub async fn again(base: &str) -> Self {
        Self::on_listener(TcpListener::bind(base.trim_start_matches("http://")).await.unwrap())
    }

    fn on_listener(listener: TcpListener) -> Self {
        let base = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner::default());
        let serving = Arc::clone(&inner);
        let running = tokio::spawn(async move {
            // Its connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let inner = Arc::clone(&serving);
                connections.spawn(async move {
                    inner.open.fetch_add(1, Ordering::Relaxed);
                    // How a connection ends is for the script and the other side to say.
                    let _ = serve(&inner, connection).await;
                    inner.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { base, inner, running }
    }

    /// The URL of its agent.
    pub fn agent(&self) -> String {
        format!("{}/a2a", self.base)
    }

    /// What it says from now on to a method of JSON-RPC or at a path: one answer after the other, and the last one for ever.
    pub fn on(&self, what: &str, answers: impl IntoIterator<Item = Answer>) {
        self.inner.script.lock().unwrap().insert(what.to_owned(), answers.into_iter().collect());
    }

    /// The same, for one answer.
    pub fn says(&self, what: &str, answer: Answer) {
        self.on(what, [answer]);
    }

    /// Its card from now on.
    pub fn has_card(&self, card: &Value) {
        for path in [WELL_KNOWN, BESIDE] {
            self.says(path, Answer::json(card));
        }
    }

    /// All that it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.lock().unwrap().clone()
    }

    /// The calls among it.
    pub fn calls(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.method == "POST").collect()
    }

    /// The one call that there was.
    #[track_caller]
    pub fn only_call(&self) -> Asked {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:#?}");
        calls.remove(0)
    }

    /// The methods that were called, in order.
    pub fn methods(&self) -> Vec<String> {
        self.calls().iter().map(|call| call.rpc().to_owned()).collect()
    }

    /// The paths at which cards were looked for, in order.
    pub fn looked_at(&self) -> Vec<String> {
        self.asked().into_iter().filter(|asked| asked.method == "GET").map(|asked| asked.path).collect()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.inner.open.load(Ordering::Relaxed)
    }

    /// How many bytes it has said.
    pub fn said(&self) -> u64 {
        self.inner.said.load(Ordering::Relaxed)
    }

    /// Waits until it was asked enough.
    pub async fn until(&self, what: &str, enough: impl Fn(&[Asked]) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !enough(&self.asked()) {
            assert!(tokio::time::Instant::now() < deadline, "in vain: {what}; it was asked {:#?}", self.asked());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a method was called so often.
    pub async fn until_called(&self, method: &str, times: usize) {
        let enough = |asked: &[Asked]| asked.iter().filter(|asked| asked.rpc() == method).count() >= times;
        self.until(&format!("{times} of {method}"), enough).await;
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Asked {
    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The method of JSON-RPC, or nothing.
    pub fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The parameters of a call.
    pub fn params(&self) -> &Value {
        &self.body["params"]
    }

    /// The message that is sent.
    pub fn message(&self) -> &Value {
        &self.body["params"]["message"]
    }

    /// Everything that it says, headers and body, as one text.
    pub fn everything(&self) -> String {
        format!("{} {} {:?} {}", self.method, self.path, self.headers, self.body)
    }
}

impl Answer {
    /// A body of JSON.
    pub fn json(body: &Value) -> Self {
        Self::Plain(200, vec![("content-type", "application/json".to_owned())], body.to_string().into_bytes())
    }

    /// A status with a few words.
    pub fn status(status: u16, words: &str) -> Self {
        Self::Plain(status, vec![("content-type", "text/plain".to_owned())], words.as_bytes().to_vec())
    }

    /// The socket is closed without a word.
    pub fn closes() -> Self {
        Self::Raw(Vec::new())
    }

    /// The socket stays open, without a word.
    pub fn hangs() -> Self {
        Self::Raw(vec![Step::Hang])
    }

    /// A stream of these results at once.
    pub fn events(results: impl IntoIterator<Item = Value>) -> Self {
        Self::Stream(results.into_iter().map(Step::Event).collect())
    }

    /// A stream of these results with a pause before each but the first.
    pub fn slow_events(results: impl IntoIterator<Item = Value>, pause: Duration) -> Self {
        let steps = results.into_iter().flat_map(|result| [Step::Wait(pause), Step::Event(result)]);
        Self::Stream(steps.skip(1).collect())
    }

    /// The same after a while.
    pub fn later(self, pause: Duration) -> Self {
        Self::Later(pause, Box::new(self))
    }

    /// A redirect.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::Plain(status, vec![("location", location.to_owned())], Vec::new())
    }

    /// The head of an answer whose body follows in pieces and has no end of its own.
    pub fn body_of(media_type: &str, mut pieces: Vec<Step>) -> Self {
        let head = format!("HTTP/1.1 200 Said\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n");
        pieces.insert(0, Step::Bytes(head.into_bytes()));
        Self::Raw(pieces)
    }
}

/// Answers what comes over a connection, until it or the script ends it.
async fn serve(inner: &Inner, connection: TcpStream) -> Option<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let Request { line, headers, raw } = webhook::request(&mut connection).await?;
        let mut words = line.split_whitespace().map(ToOwned::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let body: Value = serde_json::from_slice(&raw).unwrap_or_default();
        let asked = Asked { method, path, headers, body };
        let id = asked.body["id"].clone();
        let answer = inner.answer(&asked);
        inner.asked.lock().unwrap().push(asked.clone());
        let answer = match answer {
            Answer::Relayed(url, header) => relay(&asked, &url, header).await,
            answer => answer,
        };
        let (steps, ends) = steps(answer, &id);
        for step in steps {
            match step {
                Step::Event(result) => inner.say(&mut connection, &event(&id, &result)).await?,
                Step::Bytes(bytes) => inner.say(&mut connection, &with_id(bytes, &id)).await?,
                Step::Wait(pause) => tokio::time::sleep(pause).await,
                Step::Forever(bytes, pause) => inner.repeat(&mut connection, &bytes, pause).await?,
                Step::Events(result, count, pause) => {
                    inner.repeat(&mut connection, &event(&id, &result).repeat(count), pause).await?;
                }
                Step::Hang => while connection.read_u8().await.is_ok() {},
            }
        }
        if ends {
            return None;
        }
    }
}

impl Inner {
    fn answer(&self, asked: &Asked) -> Answer {
        let mut script = self.script.lock().unwrap();
        let by_method = script.contains_key(asked.rpc());
        let path = asked.path.split('?').next().unwrap_or_default();
        match script.get_mut(if by_method { asked.rpc() } else { path }) {
            Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
            Some(answers) => answers.front().cloned().unwrap(),
            None if asked.rpc().is_empty() => Answer::status(404, "not here"),
            None => Answer::Refused(-32601, "Method not found"),
        }
    }

    /// Ends when the other side has gone.
    async fn repeat(&self, connection: &mut BufReader<TcpStream>, bytes: &[u8], pause: Duration) -> Option<()> {
        loop {
            self.say(connection, bytes).await?;
            tokio::time::sleep(pause).await;
        }
    }

    async fn say(&self, connection: &mut BufReader<TcpStream>, bytes: &[u8]) -> Option<()> {
        connection.write_all(bytes).await.ok()?;
        self.said.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(())
    }
}

/// The pieces of an answer, and whether its connection ends with it.
fn steps(answer: Answer, id: &Value) -> (Vec<Step>, bool) {
    let plain = |status: u16, headers: Vec<(&str, String)>, body: Vec<u8>| {
        let body = with_id(body, id);
        let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        (vec![Step::Bytes([format!("{head}\r\n").into_bytes(), body].concat())], false)
    };
    let envelope =
        |body: Value| plain(200, vec![("content-type", "application/json".to_owned())], body.to_string().into());
    match answer {
        Answer::Result(result) => envelope(json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Answer::Refused(code, message) => {
            envelope(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
        }
        Answer::Plain(status, headers, body) => plain(status, headers, body),
        Answer::Stream(events) => steps(Answer::body_of("text/event-stream", events), id),
        Answer::Raw(pieces) => (pieces, true),
        Answer::Relayed(..) => unreachable!("it was asked for before"),
        Answer::Later(pause, answer) => {
            let (later, ends) = steps(*answer, id);
            ([vec![Step::Wait(pause)], later].concat(), ends)
        }
    }
}

/// Sends the parts of a message on and waits for the end of the task.
async fn relay(asked: &Asked, url: &str, header: &str) -> Answer {
    let mut message = message("");
    message["parts"] = asked.message()["parts"].clone();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let api = Api::new("", Some(TOKEN));
    let request = with_json(api.request(Method::POST, url), &call);
    let request = asked.header(header).into_iter().fold(request, |request, value| request.header(header, value));
    Answer::Result(api.call(request).await.json()["result"].clone())
}

/// The bytes with the id of the request where it is to stand, which is looked for at their begin alone: they may be many.
fn with_id(mut bytes: Vec<u8>, id: &Value) -> Vec<u8> {
    let begin = &bytes[..bytes.len().min(400)];
    if let Some(at) = begin.windows(ID.len()).position(|found| found == ID.as_bytes()) {
        bytes.splice(at..at + ID.len(), id.to_string().into_bytes());
    }
    bytes
}

/// A result as it stands in a stream.
fn event(id: &Value, result: &Value) -> Vec<u8> {
    format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": result})).into_bytes()
}
