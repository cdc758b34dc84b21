//! A caller in a storm: it sends a message in some way to any instance, and whenever something fails it sends the same
//! message to another one. It knows what it may be told, and writes down everything else.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use store::clock;

use super::{http::is_terminal, random::Random, rig::TOKEN, sse::Frame};

/// How long one request may take. An instance answers or dies.
const REQUEST: Duration = Duration::from_secs(20);

/// How long a caller goes on with one message.
const PERSISTENCE: Duration = Duration::from_secs(90);

/// Where the instances are at the moment.
#[derive(Clone, Default)]
pub(crate) struct Doors(Arc<Mutex<Vec<String>>>);

/// One of many.
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) doors: Doors,
    pub(crate) http: reqwest::Client,
    pub(crate) random: Random,
}

/// What became of one message.
#[derive(Debug, Default)]
pub(crate) struct Item {
    /// Unique to it: two tasks with it are one too many.
    pub(crate) context: String,
    /// The task that it was told.
    pub(crate) task: Option<String>,
    /// How many requests it took.
    pub(crate) attempts: usize,
    /// When the request was sent that was answered, and whether others had been sent before.
    pub(crate) answered: Option<i64>,
    pub(crate) retried: bool,
    /// All went as it should.
    pub(crate) done: bool,
    /// What nobody should ever be told.
    pub(crate) unexpected: Vec<String>,
    /// What came over its streams, across all reconnects.
    pub(crate) frames: Vec<Frame>,
    /// The text of the task's artifacts if it completes.
    pub(crate) result: String,
}

/// Why a request was not answered as it was meant to be.
enum Trouble {
    /// Nobody there, no more bytes, or refused for now: another instance may do.
    Elsewhere,
    Unexpected(String),
}

#[derive(Clone, Copy)]
enum Binding {
    Rpc,
    Rest,
}

impl Doors {
    pub(crate) fn open(&self, all: impl IntoIterator<Item = String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.into_iter().collect();
    }

    pub(crate) fn replace(&self, index: usize, base: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = base.to_owned();
    }

    pub(crate) fn any(&self, random: &mut Random) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[random.index(all.len())].clone()
    }
}

impl Caller {
    /// Sends one message in one of the ways there are, and sees it through.
    pub(crate) async fn send(&mut self, number: usize) -> Item {
        let context = format!("{}-{number}", self.name);
        let mut item = Item { context, ..Item::default() };
        let binding = if self.random.below(2) == 0 { Binding::Rpc } else { Binding::Rest };
        let seen_through = match self.random.below(6) {
            0 => self.blocking(&mut item, binding, "echo", "hello", "hello").await,
            1 => self.blocking(&mut item, binding, "stream", "4 30", &chunks(4)).await,
            2 | 3 => self.streaming(&mut item, binding, 12, 60).await,
            4 => self.at_once(&mut item, binding).await,
            _ => self.continued(&mut item, binding).await,
        };
        match seen_through {
            Ok(()) => item.done = true,
            Err(Trouble::Unexpected(what)) => item.unexpected.push(what),
            Err(Trouble::Elsewhere) => item.unexpected.push("no instance has answered for too long".to_owned()),
        }
        item
    }

    async fn blocking(
        &mut self,
        item: &mut Item,
        binding: Binding,
        agent: &str,
        text: &str,
        result: &str,
    ) -> Result<(), Trouble> {
        result.clone_into(&mut item.result);
        let request = json!({"tenant": agent, "message": new_message(item, text)});
        let task = self.task_of(item, binding, &request).await?;
        expect_state(&task, is_terminal)
    }

    async fn at_once(&mut self, item: &mut Item, binding: Binding) -> Result<(), Trouble> {
        "done after 250 ms".clone_into(&mut item.result);
        let mut request = json!({"tenant": "slow", "message": new_message(item, "250")});
        request["configuration"] = json!({"returnImmediately": true});
        self.task_of(item, binding, &request).await?;
        self.follow(item).await
    }

    /// A question, and an answer that continues its task.
    async fn continued(&mut self, item: &mut Item, binding: Binding) -> Result<(), Trouble> {
        "my answer".clone_into(&mut item.result);
        let request = json!({"tenant": "ask", "message": new_message(item, "start")});
        let asked = self.task_of(item, binding, &request).await?;
        expect_state(&asked, |state| state == "INPUT_REQUIRED" || is_terminal(state))?;
        if expect_state(&asked, is_terminal).is_ok() {
            // Interrupted so often that it was given up; that is counted elsewhere.
            return Ok(());
        }
        let mut message = json!({"messageId": "second", "role": "ROLE_USER", "parts": [{"text": "my answer"}]});
        message["taskId"] = asked["id"].clone();
        let task = self.task_of(item, binding, &json!({"message": message})).await?;
        expect_state(&task, is_terminal)
    }

    async fn streaming(&mut self, item: &mut Item, binding: Binding, count: u64, pause: u64) -> Result<(), Trouble> {
        item.result = chunks(count);
        let request = json!({"tenant": "stream", "message": new_message(item, &format!("{count} {pause}"))});
        let begun = Instant::now();
        while item.frames.is_empty() {
            let sent_at = clock::now().as_millis();
            let base = self.next_door(item, begun)?;
            let stream = match binding {
                Binding::Rpc => self.post(&base, "/a2a/jsonrpc", Some(&call("SendStreamingMessage", &request))),
                Binding::Rest => self.post(&base, "/a2a/message:stream", Some(&request)),
            };
            match read_stream(stream, &mut item.frames).await {
                Ok(()) | Err(Trouble::Elsewhere) => {}
                Err(unexpected) => return Err(unexpected),
            }
            match item.frames.first() {
                Some(first) => {
                    item.answered = Some(sent_at);
                    item.task = Some(first.task_id().to_owned());
                }
                None => self.pause(item).await,
            }
        }
        self.follow(item).await
    }

    /// Follows the task from where its frames end, on any instance, to its end.
    async fn follow(&mut self, item: &mut Item) -> Result<(), Trouble> {
        let path = format!("/a2a/tasks/{}:subscribe", item.task.as_deref().expect("it was acknowledged"));
        let begun = Instant::now();
        while !item.frames.last().is_some_and(Frame::is_end) {
            let base = self.next_door(item, begun)?;
            let after = item.frames.last().map_or(0, |frame| frame.id);
            let stream = self.post(&base, &path, None).header("Last-Event-ID", after.to_string());
            match read_stream(stream.timeout(PERSISTENCE), &mut item.frames).await {
                Ok(()) => {}
                Err(Trouble::Elsewhere) => self.pause(item).await,
                Err(unexpected) => return Err(unexpected),
            }
        }
        Ok(())
    }

    /// Sends a request until an instance answers it with a task.
    async fn task_of(&mut self, item: &mut Item, binding: Binding, request: &Value) -> Result<Value, Trouble> {
        let begun = Instant::now();
        loop {
            let sent_at = clock::now().as_millis();
            let base = self.next_door(item, begun)?;
            let answer = match binding {
                Binding::Rpc => {
                    let answer = answer(self.post(&base, "/a2a/jsonrpc", Some(&call("SendMessage", request)))).await;
                    answer.map(|mut envelope| envelope["result"].take())
                }
                Binding::Rest => answer(self.post(&base, "/a2a/message:send", Some(request))).await,
            };
            match answer {
                Ok(mut answer) => {
                    let task = answer["task"].take();
                    let Some(id) = task["id"].as_str() else {
                        return Err(Trouble::Unexpected(format!("no task: {answer}")));
                    };
                    if item.task.as_deref().is_some_and(|known| known != id) {
                        return Err(Trouble::Unexpected(format!("{id} continues {:?}", item.task)));
                    }
                    item.answered.get_or_insert(sent_at);
                    item.task = Some(id.to_owned());
                    return Ok(task);
                }
                Err(Trouble::Elsewhere) => self.pause(item).await,
                Err(unexpected) => return Err(unexpected),
            }
        }
    }

    fn next_door(&mut self, item: &mut Item, begun: Instant) -> Result<String, Trouble> {
        if begun.elapsed() > PERSISTENCE {
            return Err(Trouble::Elsewhere);
        }
        item.attempts += 1;
        Ok(self.doors.any(&mut self.random))
    }

    async fn pause(&mut self, item: &mut Item) {
        item.retried |= item.task.is_none();
        tokio::time::sleep(Duration::from_millis(50 + self.random.below(250))).await;
    }

    fn post(&self, base: &str, path: &str, body: Option<&Value>) -> RequestBuilder {
        let request = self.http.post(format!("{base}{path}")).timeout(REQUEST);
        let request = request.header("A2A-Version", "1.0").bearer_auth(TOKEN);
        match body {
            Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
            None => request,
        }
    }
}

/// What the agent `stream` says in so many pieces.
fn chunks(count: u64) -> String {
    (1..=count).map(|n| format!("chunk {n} of {count}\n")).collect()
}

/// With a context of its own, a message is known by its id.
fn new_message(item: &Item, text: &str) -> Value {
    json!({"messageId": "first", "contextId": item.context, "role": "ROLE_USER", "parts": [{"text": text}]})
}

fn call(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn expect_state(task: &Value, wanted: impl Fn(&str) -> bool) -> Result<(), Trouble> {
    let state = task.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
    if wanted(state.trim_start_matches("TASK_STATE_")) {
        return Ok(());
    }
    Err(Trouble::Unexpected(format!("a blocking send was answered with {state}")))
}

/// The answer to a request that succeeds.
async fn answer(request: RequestBuilder) -> Result<Value, Trouble> {
    let response = request.send().await.map_err(|error| broken(&error))?;
    let status = response.status().as_u16();
    let body = response.bytes().await.map_err(|error| broken(&error))?;
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return Err(Trouble::Unexpected(format!("{status}, not JSON: {}", String::from_utf8_lossy(&body))));
    };
    match body.get("error") {
        None if status == 200 => Ok(body),
        error => Err(sort(status, error.unwrap_or(&body))),
    }
}

/// The frames of a stream. `Ok` at its end, whoever ended it.
async fn read_stream(request: RequestBuilder, frames: &mut Vec<Frame>) -> Result<(), Trouble> {
    let response = request.send().await.map_err(|error| broken(&error))?;
    let status = response.status().as_u16();
    let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media_type.starts_with("text/event-stream") {
        let body = response.bytes().await.map_err(|error| broken(&error))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        return Err(sort(status, body.get("error").unwrap_or(&body)));
    }
    read_frames(response, frames).await
}

async fn read_frames(mut response: Response, frames: &mut Vec<Frame>) -> Result<(), Trouble> {
    let mut buffer = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| broken(&error))?;
        let Some(chunk) = chunk else { return Ok(()) };
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
            let record: Vec<u8> = buffer.drain(..end + 2).collect();
            let record = String::from_utf8_lossy(&record).into_owned();
            if record.starts_with(':') {
                continue;
            }
            let Some(frame) = parse(&record)? else { continue };
            frames.push(frame);
        }
    }
}

fn parse(record: &str) -> Result<Option<Frame>, Trouble> {
    let field = |name: &str| record.lines().find_map(|line| line.strip_prefix(name));
    let Some(data) = field("data: ") else { return Ok(None) };
    let mut body: Value = serde_json::from_str(data).map_err(|_| Trouble::Unexpected(record.to_owned()))?;
    if let Some(error) = body.get("error") {
        return Err(sort(200, error));
    }
    if body.get("jsonrpc").is_some() {
        body = body["result"].take();
    }
    let id = field("id: ").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| Trouble::Unexpected(format!("an event without an id: {record}")))?;
    Ok(Some(Frame { id, body }))
}

/// A connection that breaks is what a killed instance looks like; silence is not.
fn broken(error: &reqwest::Error) -> Trouble {
    if error.is_timeout() {
        return Trouble::Unexpected(format!("no answer in time: {error}"));
    }
    Trouble::Elsewhere
}

/// Whether an error says that the journal cannot take this now. Nothing else may be said.
fn sort(status: u16, error: &Value) -> Trouble {
    let text = error.to_string();
    if text.contains("\"UNAVAILABLE\"") && matches!(status, 200 | 503) {
        return Trouble::Elsewhere;
    }
    Trouble::Unexpected(format!("{status}: {text}"))
}
