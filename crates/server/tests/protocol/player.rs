//! Plays scenarios over the bindings.
//!
//! What differs between two plays by nature, ids, times and page tokens, is replaced by where it appears first, and pieces of
//! text that were joined differently are joined; then all plays of 1.0 have to have seen the same. Answers are compared as
//! JSON, and those of the typed service as the JSON that protobuf makes of all of them: there a default and nothing are the same.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use super::{
    PATIENCE,
    grpc::{self, A2A, GATEWAY, Grpc},
    http::{Api, Reply, reason, violations, with_json},
    scenario::{Binding, CREATE_PUSH, DELETE_PUSH, GET_PUSH, JOIN, LIST_PUSH, Step, Want, Who, found},
    server::TestServer,
    sse::Sse,
    v03,
};

/// The reasons for which operations are refused: the status of HTTP, the code of JSON-RPC, the status of gRPC.
const REASONS: [(&str, u16, i64, i32); 11] = [
    ("TASK_NOT_FOUND", 404, -32001, 5),
    ("TASK_NOT_CANCELABLE", 400, -32002, 9),
    ("PUSH_NOTIFICATION_NOT_SUPPORTED", 400, -32003, 9),
    ("UNSUPPORTED_OPERATION", 400, -32004, 9),
    ("CONTENT_TYPE_NOT_SUPPORTED", 400, -32005, 3),
    ("EXTENSION_SUPPORT_REQUIRED", 400, -32008, 9),
    ("VERSION_NOT_SUPPORTED", 400, -32009, 9),
    ("INVALID_PARAMS", 400, -32602, 3),
    ("IDEMPOTENCY_CONFLICT", 400, -32602, 3),
    ("AGENT_NOT_FOUND", 404, -32602, 5),
    ("UNAUTHENTICATED", 401, -32000, 16),
];

/// Plays a scenario on a server with everything at its defaults.
pub(crate) fn play(bindings: &[Binding], steps: impl IntoIterator<Item = Step>) -> impl Future<Output = ()> {
    let steps: Vec<Step> = steps.into_iter().collect();
    async move { play_all(&TestServer::start().await, bindings, &steps).await }
}

/// Plays a scenario.
pub(crate) fn play_on(
    server: &TestServer,
    bindings: &[Binding],
    steps: impl IntoIterator<Item = Step>,
) -> impl Future<Output = ()> {
    let steps: Vec<Step> = steps.into_iter().collect();
    async move { play_all(server, bindings, &steps).await }
}

async fn play_all(server: &TestServer, bindings: &[Binding], steps: &[Step]) {
    let mut players = Vec::new();
    for binding in bindings {
        let name = format!("{binding:?}-{}", super::http::fresh()).to_lowercase();
        let own = server.add_tenant(&name).await;
        let other = match steps.iter().any(|step| step.who == Who::Other) {
            true => Some(server.add_tenant(&format!("other-{name}")).await),
            false => None,
        };
        players.push(Player {
            own: Caller::new(server, *binding, Some(&own)),
            other: Caller::new(server, *binding, other.as_deref()),
            nobody: Caller::new(server, *binding, None),
            known: BTreeMap::new(),
            aside: BTreeMap::new(),
        });
    }
    let seen = join_all(players.into_iter().map(|player| player.play(steps))).await;
    let current: Vec<_> = bindings.iter().zip(&seen).filter(|(binding, _)| **binding != Binding::V03).collect();
    let Some(((first, one), rest)) = current.split_first() else { return };
    for (binding, other) in rest {
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| !step.varies) {
            let place = format!("step {at} ({}), {first:?} and {binding:?}", step.method);
            assert_eq!(one[at].canonical, other[at].canonical, "{place}");
            if ![first, binding].contains(&&&Binding::Grpc) {
                assert_eq!(one[at].plain, other[at].plain, "{place}");
            }
        }
    }
}

struct Player {
    own: Caller,
    other: Caller,
    nobody: Caller,
    known: BTreeMap<String, Value>,
    aside: BTreeMap<&'static str, (String, JoinHandle<Outcome>)>,
}

/// What was seen of a step: as it came, and as protobuf writes it.
struct Seen {
    plain: Outcome,
    canonical: Outcome,
}

/// What a step came to: its answers or its refusal, and the extensions in use.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    answers: Vec<Value>,
    is_stream: bool,
    refusal: Option<Refusal>,
    extensions: Option<String>,
}

/// 0.3 tells no more than the code, which is compared where it is known what it has to be.
#[derive(Debug, Clone, PartialEq)]
struct Refusal {
    told: Option<(String, Vec<String>)>,
    code: Option<i64>,
}

impl Player {
    async fn play(mut self, steps: &[Step]) -> Vec<Seen> {
        let mut names = Names::default();
        let mut seen = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let place = format!("{:?}, step {at} ({})", self.own.binding, step.method);
            let Some((method, mut plain)) = self.take(step, &place).await else {
                seen.push(Seen { plain: Outcome::nothing(), canonical: Outcome::nothing() });
                continue;
            };
            self.check(step, &plain, &place);
            plain.answers.iter().for_each(|answer| remember(answer, &mut self.known));
            let subject = plain.subject();
            for (name, pointer) in &step.keeps {
                let kept = found(&subject, pointer).unwrap_or_else(|| panic!("{place}: no {pointer} in {subject:#}"));
                self.known.insert((*name).to_owned(), kept.clone());
            }
            let mut canonical = plain.clone();
            for answer in canonical.answers.iter_mut().filter(|_| self.own.binding != Binding::V03) {
                *answer = grpc::canonical(A2A, &method, answer);
            }
            for outcome in [&mut canonical, &mut plain] {
                outcome.answers.iter_mut().for_each(|answer| names.rename(answer));
                outcome.answers = joined(std::mem::take(&mut outcome.answers));
            }
            seen.push(Seen { plain, canonical });
        }
        seen
    }

    /// Gives the method and what it came to, unless that goes on aside.
    async fn take(&mut self, step: &Step, place: &str) -> Option<(String, Outcome)> {
        if step.method == JOIN {
            let (method, running) = self.aside.remove(step.aside.unwrap()).unwrap();
            let ended = tokio::time::timeout(PATIENCE, running).await;
            return Some((method, ended.unwrap_or_else(|_| panic!("{place}: it does not end")).unwrap()));
        }
        let caller = match step.who {
            Who::Own => &self.own,
            Who::Other => &self.other,
            Who::Nobody => &self.nobody,
        };
        let request = filled(&step.request, &self.known);
        if let Some(name) = step.aside {
            let (caller, method, parameters) = (caller.clone(), step.method, step.parameters.clone());
            let (begun, begins) = oneshot::channel();
            let running = tokio::spawn(async move { caller.perform(method, &request, &parameters, Some(begun)).await });
            begins.await.unwrap_or_else(|_| panic!("{place}: it has not begun"));
            self.aside.insert(name, (method.to_owned(), running));
            return None;
        }
        let since = Instant::now();
        loop {
            let outcome = caller.perform(step.method, &request, &step.parameters, None).await;
            let Some((pointer, wanted)) = &step.until else { return Some((step.method.to_owned(), outcome)) };
            let subject = outcome.subject();
            if is_same(found(&subject, pointer), &filled(wanted, &self.known), false) {
                return Some((step.method.to_owned(), outcome));
            }
            assert!(since.elapsed() < PATIENCE, "{place}: still {subject:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn check(&self, step: &Step, outcome: &Outcome, place: &str) {
        let wants_refusal = step.wants.iter().any(|want| matches!(want, Want::Refused(..)));
        assert_eq!(outcome.refusal.is_some(), wants_refusal, "{place}: {outcome:#?}");
        let subject = outcome.subject();
        let is_typed = self.own.binding == Binding::Grpc;
        for want in &step.wants {
            match want {
                Want::Is(pointer, wanted) => {
                    let wanted = filled(wanted, &self.known);
                    let there = found(&subject, pointer);
                    assert!(is_same(there, &wanted, is_typed), "{place}: {pointer} is not {wanted} in {subject:#}");
                }
                Want::Has(pointer) => {
                    let there = found(&subject, pointer);
                    assert!(!there.is_none_or(is_default), "{place}: no {pointer} in {subject:#}");
                }
                Want::Lacks(pointer) => {
                    let there = found(&subject, pointer);
                    let is_absent = there.is_none_or(|value| is_typed && is_default(value));
                    assert!(is_absent, "{place}: {pointer} in {subject:#}");
                }
                Want::Count(pointer, wanted) => {
                    let there = found(&subject, pointer).and_then(Value::as_array).map_or(0, Vec::len);
                    assert_eq!(there, *wanted, "{place}: {pointer} in {subject:#}");
                }
                Want::State(wanted) => {
                    let last = found(&subject, "/-1").filter(|_| subject.is_array()).unwrap_or(&subject);
                    let places = ["/task/status/state", "/statusUpdate/status/state", "/status/state"];
                    let state = places.iter().find_map(|place| last.pointer(place)?.as_str()).unwrap_or_default();
                    assert_eq!(state, format!("TASK_STATE_{wanted}"), "{place}: {subject:#}");
                }
                Want::Refused(reason, fields) => {
                    let refusal = outcome.refusal.as_ref().unwrap();
                    if let Some((told, named)) = &refusal.told {
                        assert_eq!((told.as_str(), named.as_slice()), (*reason, &owned(fields)[..]), "{place}");
                    }
                    if let Some(code) = refusal.code {
                        assert_eq!(code, codes(reason).2, "{place}: {reason}");
                    }
                }
                Want::Check(check) => check(&subject),
            }
        }
    }
}

fn owned(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|&field| field.to_owned()).collect()
}

fn codes(reason: &str) -> (&'static str, u16, i64, i32) {
    REASONS.into_iter().find(|row| row.0 == reason).unwrap_or_else(|| panic!("no such reason: {reason}"))
}

/// Somebody who calls operations over a binding.
#[derive(Clone)]
struct Caller {
    binding: Binding,
    api: Api,
    grpc: Grpc,
}

impl Caller {
    fn new(server: &TestServer, binding: Binding, token: Option<&str>) -> Self {
        let grpc = match token {
            Some(token) => server.grpc().with("authorization", &format!("Bearer {token}")),
            None => server.grpc().without("authorization"),
        };
        Self { binding, api: server.api().with_token(token), grpc }
    }

    /// Calls an operation, and says when its answer or the stream of it has begun or, if it blocks, when it was sent.
    async fn perform(
        &self,
        method: &'static str,
        request: &Value,
        parameters: &[(&str, &str)],
        begun: Option<oneshot::Sender<()>>,
    ) -> Outcome {
        let is_stream = ["SendStreamingMessage", "SubscribeToTask"].contains(&method);
        let begun = match begun {
            Some(begun) if !is_stream => {
                let _ = begun.send(());
                None
            }
            begun => begun,
        };
        let call = Call { caller: self, method, request, parameters };
        match (self.binding, v03::request(method, request)) {
            (Binding::V03, Some((old, params))) => call.old(old, &params, begun).await,
            (Binding::JsonRpc | Binding::V03, _) => call.rpc(begun).await,
            (Binding::Rest, _) => call.rest(begun).await,
            (Binding::Grpc, _) => call.grpc(A2A, begun).await,
            (Binding::Struct, _) => call.grpc(GATEWAY, begun).await,
        }
    }
}

struct Call<'a> {
    caller: &'a Caller,
    method: &'static str,
    request: &'a Value,
    parameters: &'a [(&'a str, &'a str)],
}

impl Call<'_> {
    async fn grpc(&self, service: &str, begun: Option<oneshot::Sender<()>>) -> Outcome {
        let mut grpc = self.caller.grpc.clone();
        for &(name, value) in self.parameters {
            grpc = if value.is_empty() { grpc.without(name) } else { grpc.with(name, value) };
        }
        let mut answers = grpc.open(service, self.method, self.request).await;
        let first = match &begun {
            Some(_) => answers.next().await,
            None => None,
        };
        say(begun);
        let mut answer = answers.finish().await;
        answer.messages.splice(0..0, first);
        let extensions = answer.headers.get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned());
        match answer.code() {
            Some(0) => self.answered(answer.messages, extensions),
            code => {
                let error = answer.error(code.unwrap());
                assert_eq!(code, Some(codes(reason(&error)).3), "{error:#}");
                Outcome::refused(&error)
            }
        }
    }

    async fn rpc(&self, begun: Option<oneshot::Sender<()>>) -> Outcome {
        let id = json!(super::http::fresh());
        let call = json!({"jsonrpc": "2.0", "id": id, "method": self.method, "params": self.request});
        let http = with_json(self.http(Method::POST, "/a2a/jsonrpc", "", true), &call);
        self.enveloped(http, &id, begun).await
    }

    async fn old(&self, method: &str, params: &Value, begun: Option<oneshot::Sender<()>>) -> Outcome {
        let id = json!(super::http::fresh());
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let agent = self.request["tenant"].as_str();
        let path = agent.map_or_else(|| "/a2a/jsonrpc".to_owned(), |agent| format!("/a2a/agents/{agent}/jsonrpc"));
        let http = with_json(self.http(Method::POST, &path, "", false), &call);
        let mut outcome = self.enveloped(http, &id, begun).await;
        let count = outcome.answers.len();
        for (n, event) in outcome.answers.iter().enumerate().filter(|(_, event)| event["kind"] == "status-update") {
            let ends = ["completed", "failed", "canceled", "rejected"].map(|end| json!(end));
            let is_end = ends.contains(&event["status"]["state"]);
            assert_eq!(event["final"], is_end, "X-13: {event:#}");
            assert!(!is_end || n + 1 == count, "the end of a task ends its streams: {event:#}");
        }
        for answer in &mut outcome.answers {
            *answer = v03::answer(self.method, answer.take());
        }
        outcome
    }

    async fn rest(&self, begun: Option<oneshot::Sender<()>>) -> Outcome {
        let request = self.request;
        let id = escaped(request["id"].as_str().unwrap_or_default());
        let in_path = |name: &str| name == "taskId" || name == "id";
        let query: Vec<String> = (request.as_object().unwrap().iter())
            .filter(|(name, _)| !in_path(name))
            .map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                format!("{name}={}", escaped(&value))
            })
            .collect();
        let query = query.join("&");
        let task = format!("/a2a/tasks/{id}");
        let configs = format!("/a2a/tasks/{}/pushNotificationConfigs", request["taskId"].as_str().unwrap_or_default());
        let post = |path: &str| with_json(self.http(Method::POST, path, "", true), request);
        let http = match self.method {
            "SendMessage" => post("/a2a/message:send"),
            "SendStreamingMessage" => post("/a2a/message:stream"),
            "GetTask" => self.http(Method::GET, &task, &query, true),
            "ListTasks" => self.http(Method::GET, "/a2a/tasks", &query, true),
            "CancelTask" => match request.get("metadata") {
                Some(_) => with_json(self.http(Method::POST, &format!("{task}:cancel"), "", true), request),
                None => self.http(Method::POST, &format!("{task}:cancel"), &query, true),
            },
            "SubscribeToTask" => self.http(Method::GET, &format!("{task}:subscribe"), &query, true),
            "GetExtendedAgentCard" => self.http(Method::GET, "/a2a/extendedAgentCard", &query, true),
            CREATE_PUSH => post(&configs),
            GET_PUSH => self.http(Method::GET, &format!("{configs}/{id}"), &query, true),
            LIST_PUSH => self.http(Method::GET, &configs, &query, true),
            DELETE_PUSH => self.http(Method::DELETE, &format!("{configs}/{id}"), &query, true),
            other => panic!("{other}"),
        };
        let response = http.send().await.unwrap();
        if is_stream(&response) {
            return self.streamed(response, None, begun).await;
        }
        say(begun);
        let reply = whole(response).await;
        assert_eq!(reply.header("a2a-version"), Some("1.0"), "{}", reply.shown());
        let extensions = reply.header("a2a-extensions").map(ToOwned::to_owned);
        if reply.status != 200 {
            return refused_by_status(&reply);
        }
        assert_eq!(reply.media_type(), "application/a2a+json", "{}", reply.shown());
        self.answered(vec![reply.json()], extensions)
    }

    fn http(&self, method: Method, path: &str, query: &str, is_current: bool) -> RequestBuilder {
        let given = |wanted: &str| self.parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let cursor = given("after_sequence").map(|value| format!("afterSequence={value}")).unwrap_or_default();
        let query: Vec<&str> = [query, &cursor].into_iter().filter(|part| !part.is_empty()).collect();
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        let api = &self.caller.api;
        let mut http = match api.token() {
            Some(token) => api.bare(method, &path).bearer_auth(token),
            None => api.bare(method, &path),
        };
        if is_current && given("a2a-version").is_none() {
            http = http.header("A2A-Version", "1.0");
        }
        for (name, value) in self.parameters {
            if !value.is_empty() && *name != "after_sequence" {
                http = http.header(*name, *value);
            }
        }
        http
    }

    /// The answer to a call of JSON-RPC.
    async fn enveloped(&self, http: RequestBuilder, id: &Value, begun: Option<oneshot::Sender<()>>) -> Outcome {
        let response = http.send().await.unwrap();
        if is_stream(&response) {
            return self.streamed(response, Some(id), begun).await;
        }
        say(begun);
        let reply = whole(response).await;
        let is_old = self.caller.binding == Binding::V03 && v03::request(self.method, self.request).is_some();
        if reply.status == 401 {
            return refused_by_status(&reply);
        }
        assert_eq!((reply.status, reply.media_type()), (200, "application/json"), "{}", reply.shown());
        let mut envelope = reply.json();
        assert_eq!((&envelope["jsonrpc"], &envelope["id"]), (&json!("2.0"), id), "{envelope:#}");
        assert_eq!(reply.header("a2a-version"), Some(if is_old { "0.3" } else { "1.0" }), "{}", reply.shown());
        assert_eq!(envelope.as_object().unwrap().len(), 3, "{envelope:#}");
        match envelope.get_mut("error").map(Value::take) {
            Some(error) => {
                assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{error:#}");
                // 0.3 tells the code and some words.
                if is_old && error["code"] != -32009 {
                    assert_eq!(error.as_object().unwrap().len(), 2, "{error:#}");
                    let refusal = Refusal { told: None, code: error["code"].as_i64() };
                    return Outcome { refusal: Some(refusal), ..Outcome::nothing() };
                }
                assert_eq!(error["code"], codes(reason(&error)).2, "{error:#}");
                Outcome::refused(&error)
            }
            None => {
                let extensions = reply.header("a2a-extensions").map(ToOwned::to_owned);
                self.answered(vec![envelope["result"].take()], extensions)
            }
        }
    }

    async fn streamed(
        &self,
        response: reqwest::Response,
        id: Option<&Value>,
        begun: Option<oneshot::Sender<()>>,
    ) -> Outcome {
        let mut sse = Sse::of(response);
        assert!(sse.header("cache-control").is_some_and(|value| value.contains("no-cache")));
        assert_eq!(sse.header("x-accel-buffering"), Some("no"));
        let extensions = sse.header("a2a-extensions").map(ToOwned::to_owned);
        if let Some(id) = id {
            sse = sse.in_envelopes(id.clone());
        }
        let mut answers: Vec<Value> = sse.next().await.into_iter().map(|frame| frame.body).collect();
        say(begun);
        answers.extend(sse.rest().await.into_iter().map(|frame| frame.body));
        self.answered(answers, extensions)
    }

    fn answered(&self, answers: Vec<Value>, extensions: Option<String>) -> Outcome {
        let is_stream = ["SendStreamingMessage", "SubscribeToTask"].contains(&self.method);
        assert!(is_stream || answers.len() == 1, "{answers:#?}");
        Outcome { answers, is_stream, refusal: None, extensions }
    }
}

/// As it stands in a URL.
fn escaped(value: &str) -> String {
    let mut escaped = String::new();
    for byte in value.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._~:".contains(&b) => escaped.push(char::from(b)),
            b => escaped += &format!("%{b:02X}"),
        }
    }
    escaped
}

impl Outcome {
    fn nothing() -> Self {
        Self { answers: Vec::new(), is_stream: false, refusal: None, extensions: None }
    }

    fn refused(error: &Value) -> Self {
        let told = (reason(error).to_owned(), violations(error));
        Self { refusal: Some(Refusal { told: Some(told), code: None }), ..Self::nothing() }
    }

    /// The answer, or the array of events.
    fn subject(&self) -> Value {
        match self.is_stream {
            true => json!(self.answers),
            false => self.answers.first().cloned().unwrap_or_default(),
        }
    }
}

fn say(begun: Option<oneshot::Sender<()>>) {
    if let Some(begun) = begun {
        let _ = begun.send(());
    }
}

fn is_stream(response: &reqwest::Response) -> bool {
    let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    response.status() == 200 && media_type.is_some_and(|value| value == "text/event-stream")
}

async fn whole(response: reqwest::Response) -> Reply {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Reply { status, headers, body: response.bytes().await.unwrap().to_vec() }
}

fn refused_by_status(reply: &Reply) -> Outcome {
    let error = reply.error(reply.status);
    assert_eq!(reply.status, codes(reason(&error)).1, "{error:#}");
    Outcome::refused(&error)
}

/// Whether something is what is wanted. The typed service does not write defaults.
fn is_same(there: Option<&Value>, wanted: &Value, is_typed: bool) -> bool {
    match (there, wanted) {
        (None, wanted) => is_typed && is_default(wanted),
        (Some(Value::Number(one)), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Some(Value::Array(one)), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_same(Some(one), two, is_typed))
        }
        (Some(Value::Object(one)), Value::Object(two)) => {
            one.keys().all(|key| two.contains_key(key))
                && two.iter().all(|(key, wanted)| is_same(one.get(key), wanted, is_typed))
        }
        (Some(one), two) => one == two,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

/// The value with what is known in the place of its names.
fn filled(value: &Value, known: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            Some(name) => known.get(name).cloned().unwrap_or_default(),
            None => value.clone(),
        },
        Value::Array(list) => list.iter().map(|item| filled(item, known)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), filled(value, known))).collect(),
        other => other.clone(),
    }
}

fn remember(answer: &Value, known: &mut BTreeMap<String, Value>) {
    for (name, places) in [
        ("task", &["/task/id", "/statusUpdate/taskId", "/taskId", "/id"][..]),
        ("context", &["/task/contextId", "/contextId"]),
        ("page", &["/nextPageToken"]),
    ] {
        if let Some(found) = places.iter().find_map(|place| answer.pointer(place)?.as_str()) {
            known.insert(name.to_owned(), json!(found));
        }
    }
    if answer.get("url").is_some() {
        known.insert("config".to_owned(), answer["id"].clone());
    }
}

/// What was made by chance, numbered as it appears.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn rename(&mut self, value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|item| self.rename(item)),
            Value::Object(map) => {
                for (key, value) in map {
                    match key.as_str() {
                        "timestamp" => *value = json!("T"),
                        "nextPageToken" if value != "" => *value = json!("P"),
                        _ => self.rename(value),
                    }
                }
            }
            // Ids of what belongs to a task begin with the task's.
            Value::String(text) => {
                if let Some((id, rest)) = text.split_at_checked(36).filter(|(id, _)| is_uuid(id)) {
                    let at = self.0.iter().position(|known| known == id).unwrap_or_else(|| {
                        self.0.push(id.to_owned());
                        self.0.len() - 1
                    });
                    *text = format!("#{at}{rest}");
                }
            }
            Value::Number(number) => *value = json!(number.as_f64()),
            _ => {}
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The events of a stream, where pieces of one artifact that follow each other are one.
fn joined(events: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for event in events {
        let same = joined.last().is_some_and(|last| {
            let artifact = "/artifactUpdate/artifact/artifactId";
            event["artifactUpdate"]["append"] == true && last.pointer(artifact) == event.pointer(artifact)
        });
        let Some(last) = joined.last_mut().filter(|_| same) else {
            joined.push(event);
            continue;
        };
        let piece = event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or_default();
        let part = &mut last["artifactUpdate"]["artifact"]["parts"][0]["text"];
        *part = json!(format!("{}{piece}", part.as_str().unwrap_or_default()));
        if event["artifactUpdate"]["lastChunk"] == true {
            last["artifactUpdate"]["lastChunk"] = json!(true);
        }
    }
    joined
}
