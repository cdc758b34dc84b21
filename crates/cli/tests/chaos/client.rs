//! A client that sends a request to any instance, and to another one when that fails.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use store::clock;
use tokio::{sync::watch, time::timeout};

use super::{
    TOKEN,
    http::{array, text},
    random::Random,
    sse::Frame,
};

/// How long one request may take. An instance answers or dies.
const REQUEST: Duration = Duration::from_secs(20);

/// How long a client goes on with one request.
const PERSISTENCE: Duration = Duration::from_secs(90);

/// Where the instances listen at the moment.
#[derive(Clone)]
pub(crate) struct Addresses(Arc<Mutex<Vec<String>>>);

#[derive(Clone)]
pub(crate) struct Client {
    addresses: Addresses,
    http: reqwest::Client,
    /// How many requests were sent by all clones.
    requests: Arc<AtomicUsize>,
    kills: watch::Receiver<Vec<Instant>>,
}

/// The outcome of one request.
pub(crate) enum Answer {
    Status(u16, Value),
    /// No instance there, a broken connection, or refused for now: another instance may do.
    Nothing {
        may_have_arrived: bool,
    },
    /// Nothing that a client should ever get.
    Unexpected(String),
}

/// The answer to a request that was sent until there was one.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// When the request was sent that was answered.
    pub(crate) sent: i64,
    /// A request that was not answered may have arrived.
    pub(crate) is_doubtful: bool,
}

/// Milliseconds of the wall clock, which the servers share.
pub(crate) fn now() -> i64 {
    clock::now().as_millis()
}

impl Addresses {
    pub(crate) fn of(all: impl IntoIterator<Item = String>) -> Self {
        Self(Arc::new(Mutex::new(all.into_iter().collect())))
    }

    pub(crate) fn replace(&self, index: usize, address: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = address.to_owned();
    }
}

impl Answered {
    /// The body of a success.
    pub(crate) fn ok(self) -> Result<Value, String> {
        // An entry of the queue has an `error`, too, which is a text.
        let is_error = self.body.get("error").is_some_and(Value::is_object);
        if matches!(self.status, 200 | 201 | 204) && !is_error {
            return Ok(self.body);
        }
        Err(format!("{} {}", self.status, self.body))
    }
}

impl Client {
    pub(crate) fn new(addresses: Addresses, kills: watch::Receiver<Vec<Instant>>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("the client needs nothing special");
        Self { addresses, http, requests: Arc::default(), kills }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// When instances were killed.
    pub(crate) fn kills(&self) -> Vec<Instant> {
        self.kills.borrow().clone()
    }

    /// A request to any instance.
    pub(crate) fn request(
        &self,
        random: &mut Random,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> RequestBuilder {
        self.unversioned(random, method, path, body).header("A2A-Version", "1.0")
    }

    /// The same without a version, which means 0.3.
    pub(crate) fn unversioned(
        &self,
        random: &mut Random,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> RequestBuilder {
        let address = {
            let all = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
            all[random.index(all.len())].clone()
        };
        let request = self.http.request(method.clone(), format!("{address}{path}")).timeout(REQUEST);
        let request = request.bearer_auth(TOKEN);
        match body {
            Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return broken(&error),
        };
        let status = response.status().as_u16();
        match response.bytes().await {
            Ok(body) => answer(status, &body),
            Err(error) => broken(&error),
        }
    }

    /// Sends a request until an instance answers it.
    pub(crate) async fn insist(
        &self,
        random: &mut Random,
        request: impl Fn(&mut Random) -> RequestBuilder,
    ) -> Result<Answered, String> {
        let begun = Instant::now();
        let mut is_doubtful = false;
        loop {
            let sent = now();
            match self.send(request(random)).await {
                Answer::Status(status, body) => return Ok(Answered { status, body, sent, is_doubtful }),
                Answer::Nothing { may_have_arrived } => is_doubtful |= may_have_arrived,
                Answer::Unexpected(what) => return Err(what),
            }
            pause(random, begun).await?;
        }
    }

    /// The body of a GET that succeeds.
    ///
    /// # Panics
    /// When it is answered with something else, which fails the run.
    pub(crate) async fn get(&self, random: &mut Random, path: &str) -> Value {
        let request = |random: &mut Random| self.request(random, &Method::GET, path, None);
        let answered = self.insist(random, request).await.and_then(Answered::ok);
        answered.unwrap_or_else(|what| panic!("{path}: {what}"))
    }

    /// All tasks by id, with their artifacts.
    pub(crate) async fn tasks(&self, random: &mut Random) -> HashMap<String, Value> {
        let mut all = HashMap::new();
        let mut token = String::new();
        loop {
            let path = format!("/a2a/tasks?pageSize=100&historyLength=0&includeArtifacts=true&pageToken={token}");
            let page = self.get(random, &path).await;
            all.extend(array(&page, "/tasks").iter().map(|task| (text(task, "/id").to_owned(), task.clone())));
            match page["nextPageToken"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => return all,
            }
        }
    }

    /// Opens a stream, again and again until it has shown something; adds its frames. Returns when the request was sent that
    /// was answered, and whether there were others before.
    pub(crate) async fn open_stream(
        &self,
        random: &mut Random,
        path: &str,
        body: &Value,
        frames: &mut Vec<Frame>,
    ) -> Result<(i64, bool), String> {
        let begun = Instant::now();
        let mut was_repeated = false;
        loop {
            let sent = now();
            self.read_stream(self.request(random, &Method::POST, path, Some(body)), frames).await?;
            if !frames.is_empty() {
                return Ok((sent, was_repeated));
            }
            was_repeated = true;
            pause(random, begun).await?;
        }
    }

    /// Follows a task from the end of `frames`, on any instance, to its end. Returns how often a stream ended early although
    /// no instance was killed meanwhile.
    pub(crate) async fn follow(
        &self,
        random: &mut Random,
        task: &str,
        frames: &mut Vec<Frame>,
    ) -> Result<usize, String> {
        let path = format!("/a2a/tasks/{task}:subscribe");
        let begun = Instant::now();
        let mut cuts = 0;
        loop {
            let kills = self.kills.borrow().len();
            let after = frames.last().map_or(0, |frame| frame.id);
            let request = self.request(random, &Method::POST, &path, None);
            let was_open = self.read_stream(request.header("Last-Event-ID", after.to_string()), frames).await?;
            if frames.last().is_some_and(Frame::is_end) {
                return Ok(cuts);
            }
            cuts += usize::from(was_open && self.kills.borrow().len() == kills);
            pause(random, begun).await?;
        }
    }

    /// Adds the frames of a stream until it ends or breaks; tells whether it was opened at all.
    async fn read_stream(&self, request: RequestBuilder, frames: &mut Vec<Frame>) -> Result<bool, String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let unless_broken = |answer: Answer, was_open: bool| match answer {
            Answer::Nothing { .. } => Ok(was_open),
            Answer::Unexpected(what) => Err(what),
            Answer::Status(status, body) => Err(format!("{status} {body}")),
        };
        // The stream may last, its beginning may not.
        let response = match timeout(REQUEST, request.timeout(PERSISTENCE).send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return unless_broken(broken(&error), false),
            Err(_) => return Err("no stream in time".to_owned()),
        };
        let status = response.status().as_u16();
        let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        if !media_type.is_some_and(|value| value.starts_with("text/event-stream")) {
            let body = response.bytes().await;
            return unless_broken(body.map_or_else(|error| broken(&error), |body| answer(status, &body)), false);
        }
        match read_frames(response, frames).await {
            Ok(()) => Ok(true),
            Err(answer) => unless_broken(answer, true),
        }
    }
}

/// Waits a moment before the next request, unless this has gone on for too long.
async fn pause(random: &mut Random, begun: Instant) -> Result<(), String> {
    if begun.elapsed() > PERSISTENCE {
        return Err("no instance has answered for too long".to_owned());
    }
    tokio::time::sleep(Duration::from_millis(30 + random.below(220))).await;
    Ok(())
}

pub(crate) fn call(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A connection that breaks is how a killed instance looks; silence is not.
fn broken(error: &reqwest::Error) -> Answer {
    if error.is_timeout() {
        return Answer::Unexpected(format!("no answer in time: {error}"));
    }
    Answer::Nothing { may_have_arrived: !error.is_connect() }
}

fn answer(status: u16, body: &[u8]) -> Answer {
    if body.is_empty() {
        return Answer::Status(status, Value::Null);
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(body) if is_unavailable(status, &body) => Answer::Nothing { may_have_arrived: true },
        Ok(body) => Answer::Status(status, body),
        Err(_) => Answer::Unexpected(format!("{status}, not JSON: {}", String::from_utf8_lossy(body))),
    }
}

/// Whether an answer says that the journal cannot take this now. No other refusal may be repeated.
fn is_unavailable(status: u16, body: &Value) -> bool {
    let error = body.get("error").map(Value::to_string).unwrap_or_default();
    matches!(status, 200 | 503) && error.contains("\"UNAVAILABLE\"")
}

async fn read_frames(mut response: Response, frames: &mut Vec<Frame>) -> Result<(), Answer> {
    let mut buffer = Vec::new();
    loop {
        let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? else {
            let is_whole = buffer.is_empty();
            return if is_whole { Ok(()) } else { Err(Answer::Unexpected("half an event at the end".to_owned())) };
        };
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
            let record: Vec<u8> = buffer.drain(..end + 2).collect();
            let record = String::from_utf8_lossy(&record).into_owned();
            if let Some(frame) = parse(&record)? {
                let follows = frames.last().is_none_or(|last| last.id < frame.id);
                let parts = frame.body.pointer("/artifactUpdate/artifact").map(|artifact| &artifact["parts"]);
                let has_parts = parts.is_none_or(|parts| parts.as_array().is_some_and(|parts| !parts.is_empty()));
                if !follows || !has_parts {
                    return Err(Answer::Unexpected(format!("{record} after {:?}", frames.last())));
                }
                frames.push(frame);
            }
        }
    }
}

fn parse(record: &str) -> Result<Option<Frame>, Answer> {
    let field = |name: &str| record.lines().find_map(|line| line.strip_prefix(name));
    let unexpected = || Answer::Unexpected(record.to_owned());
    let Some(data) = field("data: ") else {
        // A comment keeps the connection alive.
        return if record.starts_with(':') { Ok(None) } else { Err(unexpected()) };
    };
    let mut body: Value = serde_json::from_str(data).map_err(|_| unexpected())?;
    if body.get("error").is_some() {
        return Err(if is_unavailable(200, &body) { Answer::Nothing { may_have_arrived: true } } else { unexpected() });
    }
    if body.get("jsonrpc").is_some() {
        body = body["result"].take();
    }
    let id = field("id: ").and_then(|id| id.parse().ok()).ok_or_else(unexpected)?;
    Ok(Some(Frame { id, body }))
}
