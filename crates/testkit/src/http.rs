//! Plain HTTP: requests as any client could make them, replies with the looks a test takes at them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder, header::HeaderMap};
use serde_json::{Value, json};

use crate::{PATIENCE, sse::Sse};

/// A caller of one server, with or without a credential.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// A whole reply.
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A number that was not used before in this process.
pub fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A caller's message with one text part and a new id.
pub fn message(text: &str) -> Value {
    json!({"messageId": format!("m-{}", fresh()), "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// A send request for an agent.
pub fn to(agent: &str, text: &str) -> Value {
    json!({"tenant": agent, "message": message(text)})
}

/// The same, to be answered at once.
pub fn to_at_once(agent: &str, text: &str) -> Value {
    json!({"tenant": agent, "message": message(text), "configuration": {"returnImmediately": true}})
}

/// A message that continues a task.
pub fn answer(task: &str, text: &str) -> Value {
    let mut message = message(text);
    message["taskId"] = json!(task);
    json!({"message": message})
}

/// The string at this place, or a panic that shows the value.
#[track_caller]
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no string at {pointer} in {value:#}"))
}

/// The array at this place, or a panic that shows the value.
#[track_caller]
pub fn array<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no array at {pointer} in {value:#}"))
}

/// A task's state without its prefix.
#[track_caller]
pub fn state(task: &Value) -> &str {
    let state = text(task, "/status/state");
    state.strip_prefix("TASK_STATE_").unwrap_or_else(|| panic!("no task state: {state}"))
}

/// Whether a state ends a task.
pub fn is_terminal(state: &str) -> bool {
    matches!(state, "COMPLETED" | "FAILED" | "CANCELED" | "REJECTED")
}

/// The text of all text parts of all artifacts.
pub fn artifact_text(task: &Value) -> String {
    let mut all = String::new();
    for artifact in task["artifacts"].as_array().into_iter().flatten() {
        for part in artifact["parts"].as_array().into_iter().flatten() {
            all.push_str(part["text"].as_str().unwrap_or_default());
        }
    }
    all
}

/// The details of an error: `details` of a status body, `data` of a JSON-RPC error.
#[track_caller]
fn details(error: &Value) -> &Vec<Value> {
    let list = error.get("details").or_else(|| error.get("data"));
    list.and_then(Value::as_array).unwrap_or_else(|| panic!("an error without details: {error:#}"))
}

/// The reason in an error's `ErrorInfo`.
#[track_caller]
pub fn reason(error: &Value) -> &str {
    let info = details(error).iter().find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo");
    let info = info.unwrap_or_else(|| panic!("an error without ErrorInfo: {error:#}"));
    assert_eq!(info["domain"], "a2a-protocol.org", "{error:#}");
    text(info, "/reason")
}

/// The fields that an error's `BadRequest` names.
#[track_caller]
pub fn violations(error: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    for detail in details(error) {
        if detail["@type"] == "type.googleapis.com/google.rpc.BadRequest" {
            for violation in array(detail, "/fieldViolations") {
                assert!(!text(violation, "/description").is_empty(), "{error:#}");
                fields.push(text(violation, "/field").to_owned());
            }
        }
    }
    fields
}

impl Reply {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.shown()))
    }

    /// The body of a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.shown());
        self.json()
    }

    /// The `task` of a send's answer.
    #[track_caller]
    pub fn task(&self) -> Value {
        let mut body = self.ok();
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body:#}");
        let task = body["task"].take();
        assert!(task.is_object(), "no task: {}", self.shown());
        task
    }

    /// The `error` of a failure, its status body checked for form.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.shown());
        assert_eq!(self.media_type(), "application/json", "{}", self.shown());
        let mut body = self.json();
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body:#}");
        let error = body["error"].take();
        assert_eq!(error["code"], status, "{error:#}");
        assert!(!text(&error, "/message").is_empty());
        assert!(!text(&error, "/status").is_empty());
        error
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The content type without parameters.
    pub fn media_type(&self) -> &str {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// For messages of failed assertions.
    pub fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(2000).collect();
        format!("{} {:?} {body}", self.status, self.headers)
    }
}

impl Api {
    /// A caller with connections of its own.
    pub fn new(base: &str, token: Option<&str>) -> Self {
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
        let http = http.expect("the client needs nothing special");
        Self { http, base: base.to_owned(), token: token.map(ToOwned::to_owned) }
    }

    /// The same server seen by someone else.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(ToOwned::to_owned), ..self.clone() }
    }

    /// What it authenticates with.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The server's address, `http://host:port`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A request without version and credential.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.base) };
        self.http.request(method, url).timeout(PATIENCE)
    }

    /// A request with version and credential.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method, path).header("A2A-Version", "1.0");
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and reads the reply.
    pub async fn call(&self, request: RequestBuilder) -> Reply {
        let response = request.send().await.expect("the server answers");
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.bytes().await.expect("the reply can be read").to_vec();
        Reply { status, headers, body }
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(self.request(Method::GET, path)).await
    }

    /// A POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call(with_json(self.request(Method::POST, path), body)).await
    }

    /// A POST without a body.
    pub async fn post_empty(&self, path: &str) -> Reply {
        self.call(self.request(Method::POST, path)).await
    }

    /// Sends a message over HTTP+JSON and gives the task.
    pub async fn send(&self, request: &Value) -> Value {
        self.post("/a2a/message:send", request).await.task()
    }

    /// Reads a task.
    pub async fn task(&self, id: &str) -> Value {
        self.get(&format!("/a2a/tasks/{id}")).await.ok()
    }

    /// Reads a task until its state is as wanted.
    pub async fn task_when(&self, id: &str, wanted: impl Fn(&str) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let task = self.task(id).await;
            if wanted(state(&task)) {
                return task;
            }
            assert!(begun.elapsed() < PATIENCE, "still {task:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A JSON-RPC call at the gateway; the whole envelope, checked for form.
    pub async fn rpc(&self, method: &str, params: &Value) -> Value {
        self.rpc_at("/a2a/jsonrpc", method, params).await
    }

    /// A JSON-RPC call at some endpoint; the whole envelope, checked for form.
    pub async fn rpc_at(&self, path: &str, method: &str, params: &Value) -> Value {
        let id = format!("r-{}", fresh());
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let reply = self.post(path, &call).await;
        assert_eq!(reply.status, 200, "{}", reply.shown());
        assert_eq!(reply.media_type(), "application/json", "{}", reply.shown());
        let envelope = reply.json();
        assert_eq!(envelope["jsonrpc"], "2.0", "{envelope:#}");
        assert_eq!(envelope["id"], json!(id), "{envelope:#}");
        assert!(envelope.get("result").is_some() != envelope.get("error").is_some(), "{envelope:#}");
        envelope
    }

    /// The result of a JSON-RPC call that works.
    pub async fn rpc_ok(&self, method: &str, params: &Value) -> Value {
        let mut envelope = self.rpc(method, params).await;
        assert!(envelope.get("result").is_some(), "{method}: {envelope:#}");
        envelope["result"].take()
    }

    /// The error of a JSON-RPC call that does not.
    pub async fn rpc_error(&self, method: &str, params: &Value, code: i64) -> Value {
        let mut envelope = self.rpc(method, params).await;
        assert_eq!(envelope["error"]["code"], code, "{method}: {envelope:#}");
        envelope["error"].take()
    }

    /// Opens a stream with a POST.
    pub async fn stream(&self, path: &str, body: &Value) -> Sse {
        Sse::open(with_json(self.request(Method::POST, path), body)).await
    }

    /// Opens a JSON-RPC stream at some endpoint.
    pub async fn rpc_stream(&self, path: &str, method: &str, params: &Value) -> Sse {
        let id = json!(fresh());
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        Sse::open(with_json(self.request(Method::POST, path), &call)).await.in_envelopes(id)
    }

    /// Subscribes to a task, after a sequence number if one is given.
    pub async fn subscribe(&self, task: &str, after: Option<u64>) -> Sse {
        let mut request = self.request(Method::POST, &format!("/a2a/tasks/{task}:subscribe"));
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after.to_string());
        }
        Sse::open(request).await
    }
}

/// A request with a JSON body.
pub fn with_json(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("Content-Type", "application/json").body(body.to_string())
}
