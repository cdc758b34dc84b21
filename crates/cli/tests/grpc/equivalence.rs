//! One table of scenarios, played over every binding: whatever a caller sees is the same.
//!
//! A scenario is a list of steps. `$task`, `$context`, `$page` and `$config` in a request stand for what the last answer had there. Each play
//! has a tenant of its own, so that lists do not mix. What differs between two runs by nature, ids, times and page tokens, is
//! replaced by where it appears first; pieces of text that were joined differently are joined. Answers are compared as JSON, and
//! those of the typed service as the JSON that protobuf makes of all of them: there a default and nothing are the same.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    grpc::{self, A2A, Answer, GATEWAY, Grpc},
    harness::Home,
    http::{Api, message, reason, violations, with_json},
    rows::Rig,
};

/// How operations travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    Struct,
}

struct Step {
    method: &'static str,
    request: Value,
    /// Service parameters beside version and credential; an empty value takes one away.
    parameters: Vec<(&'static str, &'static str)>,
}

fn step(method: &'static str, request: Value) -> Step {
    Step { method, request, parameters: Vec::new() }
}

impl Step {
    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.parameters.push((name, value));
        self
    }
}

fn send(agent: &str, text: &str) -> Step {
    step("SendMessage", json!({"tenant": agent, "message": said(text)}))
}

fn send_and_go(agent: &str, text: &str) -> Step {
    let configuration = json!({"returnImmediately": true});
    step("SendMessage", json!({"tenant": agent, "message": said(text), "configuration": configuration}))
}

/// The same id in every play.
fn said(text: &str) -> Value {
    let mut message = message(text);
    message["messageId"] = json!(format!("m of {text}"));
    message
}

fn continued(text: &str) -> Step {
    let mut message = said(text);
    message["taskId"] = json!("$task");
    step("SendMessage", json!({"message": message}))
}

fn scenarios() -> Vec<(&'static str, Vec<Step>)> {
    let get = || step("GetTask", json!({"id": "$task"}));
    let get_with = |length: i64| step("GetTask", json!({"id": "$task", "historyLength": length}));
    let list = |request: Value| step("ListTasks", request);
    let rich = json!({
        "messageId": "rich", "role": "ROLE_USER", "extensions": ["urn:x"], "referenceTaskIds": ["t"],
        "metadata": {"n": 7, "deep": {"list": [1.5, null, true, "x", {}]}},
        "parts": [{"text": "a", "metadata": {"k": "v"}}, {"raw": "+/8=", "filename": "f", "mediaType": "image/png"},
            {"url": "https://h/x"}, {"data": {"whole": 12_345_678, "half": 0.5}}, {"data": null}],
    });
    vec![
        ("a blocking send", vec![send("echo", "hello"), get()]),
        ("every kind of part", vec![step("SendMessage", json!({"tenant": "echo", "message": rich})), get()]),
        (
            "a send that returns at once",
            vec![send_and_go("slow", "60000"), get(), step("CancelTask", json!({"id": "$task"})), get()],
        ),
        ("a direct reply", vec![send("message", "hello"), list(json!({}))]),
        ("a task that fails", vec![send("fail", "x"), get()]),
        ("a task that is rejected", vec![send("reject", "x")]),
        ("a question and its answer", vec![send("ask", "start"), get(), continued("the answer"), get()]),
        (
            "history lengths",
            vec![
                send("ask", "start"),
                continued("the answer"),
                get_with(0),
                get_with(1),
                get_with(2),
                get_with(100),
                get_with(-1),
            ],
        ),
        (
            "a history length of a send",
            vec![step(
                "SendMessage",
                json!({"tenant": "echo", "message": said("x"), "configuration": {"historyLength": 0}}),
            )],
        ),
        (
            "a stream",
            vec![
                step("SendStreamingMessage", json!({"tenant": "stream", "message": said("3 chunks, 30 ms apart")})),
                get(),
            ],
        ),
        (
            "a stream of a direct reply",
            vec![step("SendStreamingMessage", json!({"tenant": "message", "message": said("x")}))],
        ),
        ("a stream that asks", vec![step("SendStreamingMessage", json!({"tenant": "ask", "message": said("start")}))]),
        (
            "a subscription to a task that runs",
            vec![send_and_go("slow", "800"), step("SubscribeToTask", json!({"id": "$task"}))],
        ),
        (
            "a subscription after everything and after nothing",
            vec![
                send("stream", "2 chunks, 30 ms apart"),
                step("SubscribeToTask", json!({"id": "$task"})).with("after_sequence", "0"),
                step("SubscribeToTask", json!({"id": "$task"})).with("after_sequence", "2"),
                step("SubscribeToTask", json!({"id": "$task"})),
                step("SubscribeToTask", json!({"id": "$task"})).with("after_sequence", "x"),
            ],
        ),
        (
            "lists",
            vec![
                send("echo", "one"),
                send("fail", "two"),
                send("echo", "three"),
                list(json!({})),
                list(json!({"tenant": "echo"})),
                list(json!({"status": "TASK_STATE_FAILED"})),
                list(json!({"pageSize": 2})),
                list(json!({"pageSize": 2, "pageToken": "$page"})),
                list(json!({"includeArtifacts": true, "historyLength": 0})),
                list(json!({"contextId": "$context"})),
                list(json!({"statusTimestampAfter": "2099-01-01T00:00:00Z"})),
            ],
        ),
        (
            "lists that are wrong",
            vec![
                list(json!({"pageSize": 101})),
                list(json!({"pageSize": -1})),
                list(json!({"pageToken": "x"})),
                list(json!({"tenant": "nobody"})),
                list(json!({"historyLength": -1})),
            ],
        ),
        (
            "cancels",
            vec![
                send("echo", "x"),
                step("CancelTask", json!({"id": "$task"})),
                step("CancelTask", json!({"id": "nothing"})),
            ],
        ),
        (
            "tasks that nobody knows",
            vec![
                step("GetTask", json!({"id": "nothing"})),
                step("GetTask", json!({"id": "01980000-0000-7000-8000-000000000000"})),
                step("SubscribeToTask", json!({"id": "01980000-0000-7000-8000-000000000000"})),
                step("CancelTask", json!({"id": "01980000-0000-7000-8000-000000000000"})),
            ],
        ),
        (
            "an agent that nobody knows",
            vec![send("nobody", "x"), step("SendStreamingMessage", json!({"tenant": "nobody", "message": said("x")}))],
        ),
        ("a task that has ended", vec![send("echo", "x"), continued("more")]),
        (
            "a task of another agent",
            vec![send("echo", "x"), step("GetTask", json!({"tenant": "stream", "id": "$task"}))],
        ),
        (
            "messages that are wrong",
            vec![
                step("SendMessage", json!({"tenant": "echo"})),
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}),
                ),
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}),
                ),
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{}]}}),
                ),
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}),
                ),
            ],
        ),
        (
            "another version",
            vec![send("echo", "x").with("a2a-version", "0.9"), send("echo", "x").with("a2a-version", "")],
        ),
        ("nobody", vec![send("echo", "x").with("authorization", "")]),
        (
            "a content type that the agent does not take",
            vec![step(
                "SendMessage",
                json!({
                    "tenant": "slow",
                    "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x", "mediaType": "text/html"}]},
                }),
            )],
        ),
        (
            "an extension that the agent requires",
            vec![
                send("strict", "x"),
                send("strict", "x").with("a2a-extensions", "urn:needed, urn:unknown"),
                get(),
                get().with("a2a-extensions", "urn:needed"),
            ],
        ),
        (
            "the same message twice",
            vec![
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "x"}]}}),
                ),
                step(
                    "SendMessage",
                    json!({"tenant": "echo", "message": {"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "x"}]}}),
                ),
                list(json!({})),
            ],
        ),
        (
            "webhooks",
            vec![
                send("ask", "start"),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK, "token": "t"})),
                step(GET_PUSH, json!({"taskId": "$task", "id": "$config"})),
                step(
                    CREATE_PUSH,
                    json!({
                        "taskId": "$task", "id": "mine", "url": HOOK,
                        "authentication": {"scheme": "Bearer", "credentials": "c"},
                    }),
                )
                .with("a2a-extensions", a2a::PUSH_CHUNKS),
                step(LIST_PUSH, json!({"taskId": "$task"})),
                step(LIST_PUSH, json!({"taskId": "$task", "pageSize": 1})),
                step(LIST_PUSH, json!({"taskId": "$task", "pageSize": 1, "pageToken": "$page"})),
                step(LIST_PUSH, json!({"taskId": "$task", "tenant": "ask"})),
                step(DELETE_PUSH, json!({"taskId": "$task", "id": "mine"})),
                step(DELETE_PUSH, json!({"taskId": "$task", "id": "mine"})),
                step(GET_PUSH, json!({"taskId": "$task", "id": "mine"})),
                step(LIST_PUSH, json!({"taskId": "$task"})),
            ],
        ),
        (
            "webhooks that are wrong",
            vec![
                send("ask", "start"),
                step(LIST_PUSH, json!({"taskId": "$task"})),
                step(CREATE_PUSH, json!({"taskId": "$task"})),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": "nonsense"})),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK, "tenant": "echo"})),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK, "tenant": "nobody"})),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK, "authentication": {"credentials": "c"}})),
                step(CREATE_PUSH, json!({"taskId": "nothing", "url": HOOK})),
                step(GET_PUSH, json!({"taskId": "$task", "id": "nothing"})),
                step(GET_PUSH, json!({"taskId": "nothing", "id": "c"})),
                step(LIST_PUSH, json!({"taskId": "nothing"})),
                step(LIST_PUSH, json!({"taskId": "$task", "pageSize": -1})),
                step(LIST_PUSH, json!({"taskId": "$task", "pageSize": 101})),
                step(LIST_PUSH, json!({"taskId": "$task", "pageToken": "x"})),
                step(DELETE_PUSH, json!({"taskId": "nothing", "id": "c"})),
                step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK})).with("a2a-version", "0.9"),
                step(LIST_PUSH, json!({"taskId": "$task"})).with("authorization", ""),
            ],
        ),
        (
            "a key used for two messages",
            vec![
                send("echo", "x").with("idempotency-key", "k"),
                send("echo", "x").with("idempotency-key", "k"),
                send("echo", "y").with("idempotency-key", "k"),
            ],
        ),
    ]
}

const CREATE_PUSH: &str = "CreateTaskPushNotificationConfig";
const GET_PUSH: &str = "GetTaskPushNotificationConfig";
const LIST_PUSH: &str = "ListTaskPushNotificationConfigs";
const DELETE_PUSH: &str = "DeleteTaskPushNotificationConfig";
/// Nobody's address: it is taken without a look at who answers there.
const HOOK: &str = "https://example.com/hook";

const STRICT: &str = r#"
name = "Strict"
kind = "command"

[[extensions]]
uri = "urn:needed"
required = true

[command]
argv = ["echo", "done"]
"#;

#[tokio::test]
async fn s3_101_every_binding_says_the_same() {
    let home = Home::new();
    home.configure("");
    home.add_agent("strict.toml", STRICT);
    let rig = Rig::start_in(home, &[], &[]).await;
    let mut steps = 0;
    for (n, (name, script)) in scenarios().into_iter().enumerate() {
        steps += script.len();
        let mut told = Vec::new();
        for binding in [Binding::JsonRpc, Binding::Rest, Binding::Grpc, Binding::Struct] {
            let token = format!("sb_token-of-a-tenant-of-one-play-{n}-{binding:?}");
            rig.home.add_tenant(&format!("play-{n}-{binding:?}").to_lowercase(), &token).await;
            let player = Player::new(&rig, binding, &token);
            told.push((binding, player.play(&script).await));
        }
        let (_, first) = &told[0];
        for (binding, other) in &told[1..] {
            for (at, (one, two)) in first.iter().zip(other).enumerate() {
                let place = format!("{name}, step {at} ({}), JsonRpc and {binding:?}", script[at].method);
                assert_eq!(one.canonical, two.canonical, "{place}");
                if *binding != Binding::Grpc {
                    assert_eq!(one.plain, two.plain, "{place}");
                }
            }
        }
    }
    eprintln!("{} scenarios, {steps} steps, 4 bindings", scenarios().len());
}

struct Player {
    binding: Binding,
    api: Api,
    grpc: Grpc,
}

/// What was seen of a step: as it came, and as protobuf writes it.
struct Seen {
    plain: Outcome,
    canonical: Outcome,
}

/// What a step came to: its answers or its error, and the extensions in use.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    answers: Vec<Value>,
    error: Option<(String, Vec<String>)>,
    extensions: Option<String>,
}

impl Player {
    fn new(rig: &Rig, binding: Binding, token: &str) -> Self {
        let grpc = rig.grpc().with("authorization", &format!("Bearer {token}"));
        Self { binding, api: rig.api().with_token(Some(token)), grpc }
    }

    async fn play(&self, script: &[Step]) -> Vec<Seen> {
        let mut known = BTreeMap::new();
        let mut names = Names::default();
        let mut seen = Vec::new();
        for step in script {
            let request = filled(&step.request, &known);
            let mut plain = self.perform(step, &request).await;
            plain.answers.iter().for_each(|answer| remember(answer, &mut known));
            let mut canonical = plain.clone();
            for answer in &mut canonical.answers {
                *answer = grpc::canonical(A2A, step.method, answer);
            }
            for outcome in [&mut canonical, &mut plain] {
                outcome.answers.iter_mut().for_each(|answer| names.rename(answer));
                outcome.answers = joined(std::mem::take(&mut outcome.answers));
            }
            seen.push(Seen { plain, canonical });
        }
        seen
    }

    async fn perform(&self, step: &Step, request: &Value) -> Outcome {
        match self.binding {
            Binding::JsonRpc => self.rpc(step, request).await,
            Binding::Rest => self.rest(step, request).await,
            Binding::Grpc => self.rpc_of(A2A, step, request).await,
            Binding::Struct => self.rpc_of(GATEWAY, step, request).await,
        }
    }

    async fn rpc_of(&self, service: &str, step: &Step, request: &Value) -> Outcome {
        let mut grpc = self.grpc.clone();
        for &(name, value) in &step.parameters {
            grpc = if value.is_empty() { grpc.without(name) } else { grpc.with(name, value) };
        }
        let answer: Answer = grpc.call(service, step.method, request).await;
        let extensions = answer.headers.get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned());
        match answer.code() {
            Some(0) => Outcome { answers: answer.messages, error: None, extensions },
            code => Outcome { answers: Vec::new(), error: Some(told(&answer.error(code.unwrap()))), extensions: None },
        }
    }

    async fn rpc(&self, step: &Step, request: &Value) -> Outcome {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": step.method, "params": request});
        let http = with_json(self.http(step, Method::POST, "/a2a/jsonrpc", ""), &call);
        let unwrapped = |mut envelope: Value| envelope["result"].take();
        self.told(http, unwrapped).await
    }

    async fn rest(&self, step: &Step, request: &Value) -> Outcome {
        let id = request["id"].as_str().unwrap_or_default();
        let query: Vec<String> = request
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| !["id", "taskId"].contains(&name.as_str()))
            .map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                format!("{name}={}", value.replace(' ', "%20").replace('+', "%2B"))
            })
            .collect();
        let query = query.join("&");
        let configs = format!("/a2a/tasks/{}/pushNotificationConfigs", request["taskId"].as_str().unwrap_or_default());
        let http = match step.method {
            "SendMessage" => with_json(self.http(step, Method::POST, "/a2a/message:send", ""), request),
            "SendStreamingMessage" => with_json(self.http(step, Method::POST, "/a2a/message:stream", ""), request),
            "GetTask" => self.http(step, Method::GET, &format!("/a2a/tasks/{id}"), &query),
            "ListTasks" => self.http(step, Method::GET, "/a2a/tasks", &query),
            "CancelTask" => self.http(step, Method::POST, &format!("/a2a/tasks/{id}:cancel"), &query),
            CREATE_PUSH => with_json(self.http(step, Method::POST, &configs, ""), request),
            GET_PUSH => self.http(step, Method::GET, &format!("{configs}/{id}"), &query),
            LIST_PUSH => self.http(step, Method::GET, &configs, &query),
            DELETE_PUSH => self.http(step, Method::DELETE, &format!("{configs}/{id}"), &query),
            "SubscribeToTask" => self.http(step, Method::GET, &format!("/a2a/tasks/{id}:subscribe"), &query),
            other => panic!("{other}"),
        };
        self.told(http, |body| body).await
    }

    fn http(&self, step: &Step, method: Method, path: &str, query: &str) -> reqwest::RequestBuilder {
        let after = step.parameters.iter().find(|(name, _)| *name == "after_sequence");
        let cursor = after.map(|(_, value)| format!("afterSequence={value}"));
        let query: Vec<&str> =
            [query, cursor.as_deref().unwrap_or_default()].into_iter().filter(|part| !part.is_empty()).collect();
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        let has = |wanted: &str| step.parameters.iter().any(|(name, _)| *name == wanted);
        let mut http = if has("authorization") {
            self.api.with_token(None).request(method, &path)
        } else if has("a2a-version") {
            let token = self.api.token().unwrap_or_default();
            self.api.bare(method, &path).bearer_auth(token)
        } else {
            self.api.request(method, &path)
        };
        for (name, value) in &step.parameters {
            if !value.is_empty() && *name != "after_sequence" {
                http = http.header(*name, *value);
            }
        }
        http
    }

    async fn told(&self, http: reqwest::RequestBuilder, unwrapped: impl Fn(Value) -> Value) -> Outcome {
        let reply = self.api.call(http).await;
        let extensions = reply.header("a2a-extensions").map(ToOwned::to_owned);
        if reply.media_type() == "text/event-stream" {
            let text = String::from_utf8(reply.body).unwrap();
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let answers = data.map(|line| unwrapped(serde_json::from_str(line).unwrap())).collect();
            return Outcome { answers, error: None, extensions };
        }
        let mut body = reply.json();
        match body.get_mut("error").map(Value::take) {
            Some(error) => Outcome { answers: Vec::new(), error: Some(told(&error)), extensions: None },
            None => Outcome { answers: vec![unwrapped(body)], error: None, extensions },
        }
    }
}

/// What an error says in every binding.
fn told(error: &Value) -> (String, Vec<String>) {
    (reason(error).to_owned(), violations(error))
}

/// The request with what is known in the place of its names.
fn filled(request: &Value, known: &BTreeMap<&'static str, String>) -> Value {
    match request {
        Value::String(text) => match text.strip_prefix('$') {
            Some(name) => json!(known.get(name).cloned().unwrap_or_default()),
            None => request.clone(),
        },
        Value::Array(list) => list.iter().map(|item| filled(item, known)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), filled(value, known))).collect(),
        other => other.clone(),
    }
}

fn remember(answer: &Value, known: &mut BTreeMap<&'static str, String>) {
    for (name, places) in [
        ("task", &["/task/id", "/taskId", "/id", "/statusUpdate/taskId"][..]),
        ("context", &["/task/contextId", "/contextId"]),
        ("page", &["/nextPageToken"]),
    ] {
        if let Some(found) = places.iter().find_map(|place| answer.pointer(place)?.as_str()) {
            known.insert(name, found.to_owned());
        }
    }
    if answer.get("url").is_some() {
        known.insert("config", answer["id"].as_str().unwrap_or_default().to_owned());
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
