//! Attempts with credentials: too little of one, none, a wrong one, another's, one that has ended.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::harness::{
    Home, Server, TOKEN,
    grpc::{A2A, GATEWAY, Grpc},
    http::{Api, Reply, message, reason, text, to, to_at_once, with_json},
};

/// How soon the end of a token is to be felt everywhere. It is promised within a second; a busy machine has some more.
const SOON: Duration = Duration::from_secs(5);

/// A server, somebody who may do everything at it, and its administrator.
struct Site {
    api: Api,
    admin: Api,
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

/// What is sent.
enum Sent {
    Http(Method, String, Option<Value>),
    Rpc(&'static str, &'static str, Value),
    /// JSON-RPC of 0.3, which names no version.
    Old(&'static str, &'static str, Value),
    Grpc(&'static str, &'static str, Value),
}

/// One attempt: what is sent with a token that has every scope but one, and the one that is missing.
struct Attempt {
    name: &'static str,
    sent: Sent,
    missing: &'static str,
}

impl Site {
    async fn start() -> Self {
        Self::start_with("").await
    }

    async fn start_with(config: &str) -> Self {
        let home = Home::new();
        home.configure(config);
        let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
        let api = server.api();
        let admin = api.with_token(Some(&home.admin_token()));
        Self { api, admin, server, home }
    }

    /// A second instance on the same journal.
    async fn second(&self) -> (Api, Server) {
        let mut command = self.home.serving(&[], &[]);
        command.env("SB_BOOTSTRAP_TOKEN", TOKEN);
        let server = Server::start(&mut command, self.home.path("second.log")).await;
        let server = server.unwrap_or_else(|ended| panic!("{ended}"));
        (server.api(), server)
    }

    /// A token of the tenant `default`: its number, and a caller that has it.
    async fn token(&self, request: Value) -> (i64, Api) {
        let made = self.admin.post("/v1/admin/tenants/1/tokens", &request).await;
        assert_eq!(made.status, 201, "{}", made.shown());
        let made = made.json();
        (made["id"].as_i64().unwrap(), self.api.with_token(Some(text(&made, "/token"))))
    }

    async fn revoke(&self, token: i64) {
        let path = format!("/v1/admin/tenants/1/tokens/{token}");
        self.admin.call(self.admin.request(Method::DELETE, &path)).await.ok();
    }

    async fn disable(&self, disabled: bool) {
        let request =
            with_json(self.admin.request(Method::PATCH, "/v1/admin/tenants/1"), &json!({"disabled": disabled}));
        self.admin.call(request).await.ok();
    }
}

fn grpc(api: &Api) -> Grpc {
    Grpc::new(api.base()).with("authorization", &format!("Bearer {}", api.token().unwrap()))
}

/// What is refused, and why: the reason and the scope that the error names.
async fn refusal(api: &Api, sent: &Sent) -> (String, String) {
    let error = match sent {
        Sent::Http(method, path, body) => {
            let request = api.request(method.clone(), path);
            let request = match body {
                Some(body) => with_json(request, body),
                None => request,
            };
            let reply = api.call(request).await;
            if reply.status != 403 {
                return (format!("HTTP {}", reply.shown()), String::new());
            }
            reply.error(403)
        }
        Sent::Rpc(path, method, params) => {
            let mut envelope = api.rpc_at(path, method, params).await;
            if envelope.get("error").is_none() {
                return (envelope.to_string(), String::new());
            }
            envelope["error"].take()
        }
        Sent::Old(path, method, params) => {
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let request = api.bare(Method::POST, path).bearer_auth(api.token().unwrap());
            let answer = api.call(with_json(request, &call)).await.ok();
            // It has no details: its text says it.
            let said = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
            let Some(scope) = said.strip_prefix("this takes a token with the scope ") else {
                return (answer.to_string(), String::new());
            };
            return ("MISSING_SCOPE".to_owned(), scope.trim_matches('`').to_owned());
        }
        Sent::Grpc(service, method, request) => {
            let answer = grpc(api).call(service, method, request).await;
            if answer.code() != Some(7) {
                return (format!("{answer:?}"), String::new());
            }
            answer.error(7)
        }
    };
    let details = error.get("details").or_else(|| error.get("data")).and_then(Value::as_array).unwrap();
    let scope = details.iter().find_map(|detail| detail.pointer("/metadata/scope")).and_then(Value::as_str);
    (reason(&error).to_owned(), scope.unwrap_or_default().to_owned())
}

/// Every operation, over each binding, and the scope that it needs.
fn attempts(task: &str) -> Vec<Attempt> {
    let get = |path: String| Sent::Http(Method::GET, path, None);
    let post = |path: String, body: Value| Sent::Http(Method::POST, path, Some(body));
    let delete = |path: String| Sent::Http(Method::DELETE, path, None);
    let id = || json!({"id": task});
    let push = || json!({"taskId": task, "id": "p", "url": "https://receiver.example/hook"});
    let old = json!({"message": {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "x"}]}});
    let row = |name, missing, sent| Attempt { name, sent, missing };
    vec![
        row("send over HTTP+JSON", "send", post("/a2a/message:send".into(), to("echo", "x"))),
        row("stream over HTTP+JSON", "send", post("/a2a/message:stream".into(), to("echo", "x"))),
        row(
            "send at an agent's URL",
            "send",
            post("/a2a/agents/echo/message:send".into(), json!({"message": message("x")})),
        ),
        row("get over HTTP+JSON", "read", get(format!("/a2a/tasks/{task}"))),
        row("list over HTTP+JSON", "read", get("/a2a/tasks".into())),
        row("cancel over HTTP+JSON", "cancel", post(format!("/a2a/tasks/{task}:cancel"), json!({}))),
        row("subscribe over HTTP+JSON", "read", post(format!("/a2a/tasks/{task}:subscribe"), json!({}))),
        row("create push over HTTP+JSON", "send", post(format!("/a2a/tasks/{task}/pushNotificationConfigs"), push())),
        row("list push over HTTP+JSON", "read", get(format!("/a2a/tasks/{task}/pushNotificationConfigs"))),
        row("get push over HTTP+JSON", "read", get(format!("/a2a/tasks/{task}/pushNotificationConfigs/p"))),
        row("delete push over HTTP+JSON", "send", delete(format!("/a2a/tasks/{task}/pushNotificationConfigs/p"))),
        row("send over JSON-RPC", "send", Sent::Rpc("/a2a/jsonrpc", "SendMessage", to("echo", "x"))),
        row("get over JSON-RPC", "read", Sent::Rpc("/a2a/jsonrpc", "GetTask", id())),
        row("list over JSON-RPC", "read", Sent::Rpc("/a2a/jsonrpc", "ListTasks", json!({}))),
        row("cancel over JSON-RPC", "cancel", Sent::Rpc("/a2a/jsonrpc", "CancelTask", id())),
        row("subscribe over JSON-RPC", "read", Sent::Rpc("/a2a/jsonrpc", "SubscribeToTask", id())),
        row(
            "list push over JSON-RPC",
            "read",
            Sent::Rpc("/a2a/jsonrpc", "ListTaskPushNotificationConfigs", json!({"taskId": task})),
        ),
        row("send over JSON-RPC of 0.3", "send", Sent::Old("/a2a/agents/echo", "message/send", old.clone())),
        row("get over JSON-RPC of 0.3", "read", Sent::Old("/a2a/agents/slow", "tasks/get", id())),
        row("cancel over JSON-RPC of 0.3", "cancel", Sent::Old("/a2a/agents/slow", "tasks/cancel", id())),
        row("send to /v1/a2a", "send", Sent::Old("/v1/a2a/agents/echo", "message/send", old)),
        row("get at /v1/a2a", "read", Sent::Old("/v1/a2a/agents/slow", "tasks/get", id())),
        row("cancel at /v1/a2a", "cancel", Sent::Old("/v1/a2a/agents/slow", "tasks/cancel", id())),
        row("send over gRPC", "send", Sent::Grpc(A2A, "SendMessage", to("echo", "x"))),
        row("stream over gRPC", "send", Sent::Grpc(A2A, "SendStreamingMessage", to("echo", "x"))),
        row("get over gRPC", "read", Sent::Grpc(A2A, "GetTask", id())),
        row("list over gRPC", "read", Sent::Grpc(A2A, "ListTasks", json!({}))),
        row("cancel over gRPC", "cancel", Sent::Grpc(A2A, "CancelTask", id())),
        row("subscribe over gRPC", "read", Sent::Grpc(A2A, "SubscribeToTask", id())),
        row("send over the gateway of gRPC", "send", Sent::Grpc(GATEWAY, "SendMessage", to("echo", "x"))),
        row("get over the gateway of gRPC", "read", Sent::Grpc(GATEWAY, "GetTask", id())),
        row("the request log", "read", get("/v1/requests".into())),
        row("a request", "read", get(format!("/v1/requests/{task}"))),
        row("the events of a request", "read", get(format!("/v1/requests/{task}/events"))),
        row("cancel a request", "cancel", post(format!("/v1/requests/{task}/cancel"), json!({}))),
        row("delete a request", "cancel", delete(format!("/v1/requests/{task}"))),
        row("delete a context", "cancel", delete("/v1/contexts/c-1".into())),
        row("chat", "send", post("/v1/chat".into(), json!({"agent": "echo", "message": "x"}))),
        row("how a chat stands", "read", get(format!("/v1/chat/{task}"))),
        row("the events of a chat", "read", get(format!("/v1/chat/{task}/events"))),
        row("publish", "send", post("/v1/queue/publish".into(), json!({"from": "a", "to": "b", "text": "x"}))),
        row("consume without read", "read", post("/v1/queue/b/consume".into(), json!({}))),
        row("consume without send", "send", post("/v1/queue/b/consume".into(), json!({}))),
        row("claim", "send", post(format!("/v1/queue/messages/{task}/claim"), json!({}))),
        row("heartbeat", "send", post(format!("/v1/queue/messages/{task}/heartbeat"), json!({}))),
        row("progress", "send", post(format!("/v1/queue/messages/{task}/progress"), json!({"text": "x"}))),
        row("ack", "send", post(format!("/v1/queue/messages/{task}/ack"), json!({}))),
        row("nack", "send", post(format!("/v1/queue/messages/{task}/nack"), json!({}))),
        row("execute", "send", post(format!("/v1/queue/messages/{task}/execute"), json!({}))),
        row("an entry of the queue", "read", get(format!("/v1/queue/messages/{task}"))),
        row("how queues stand", "read", get("/v1/queue/status".into())),
        row("dead letters", "read", get("/v1/queue/dlq".into())),
        row("replay dead letters", "send", post("/v1/queue/dlq/replay".into(), json!({}))),
        row("outboxes", "read", get("/v1/push".into())),
        row("the secret of webhooks", "admin", get("/v1/push/secret".into())),
        row("rotate the secret of webhooks", "admin", post("/v1/push/secret/rotate".into(), json!({}))),
        row("replay an outbox", "send", post(format!("/v1/push/{task}/p/replay"), json!({}))),
        row("define an agent", "admin", post("/v1/agents".into(), json!({"id": "mine", "role": "r", "model": "m"}))),
        row("delete an agent", "admin", delete("/v1/agents/mine".into())),
        row("the definitions of agents", "read", get("/v1/agents".into())),
        row("keep a card", "admin", Sent::Http(Method::PUT, "/v1/cards/far".into(), Some(json!({"name": "Far"})))),
        row("forget a card", "admin", delete("/v1/cards/far".into())),
        row("the tool of remotes", "send", post("/v1/remotes/a2a".into(), json!({"line": "list"}))),
    ]
}

#[tokio::test]
async fn an_operation_without_its_scope_is_refused_by_name_over_every_binding() {
    let site = Site::start().await;
    let task = site.api.send(&to_at_once("slow", "60000")).await;
    let task = text(&task, "/id").to_owned();
    let mut without = Vec::new();
    for missing in ["read", "send", "cancel", "admin"] {
        let scopes: Vec<&str> = ["read", "send", "cancel", "admin"].into_iter().filter(|it| *it != missing).collect();
        without.push((missing, site.token(json!({"scopes": scopes})).await.1));
    }
    let before = site.api.get("/a2a/tasks").await.ok()["totalSize"].clone();
    let all = attempts(&task);
    assert!(all.len() >= 60);
    for Attempt { name, sent, missing } in &all {
        let (_, api) = without.iter().find(|(scope, _)| scope == missing).unwrap();
        let told = refusal(api, sent).await;
        assert_eq!(told, ("MISSING_SCOPE".to_owned(), (*missing).to_owned()), "{name}");
    }
    assert_eq!(site.api.get("/a2a/tasks").await.ok()["totalSize"], before, "nothing was done");
    let state = site.api.task(&task).await;
    assert_ne!(text(&state, "/status/state"), "TASK_STATE_CANCELED");
    // With the scope the same works.
    let (_, reader) = site.token(json!({"scopes": ["read"]})).await;
    reader.get(&format!("/a2a/tasks/{task}")).await.ok();
    let (_, canceler) = site.token(json!({"scopes": ["cancel"]})).await;
    canceler.post(&format!("/a2a/tasks/{task}:cancel"), &json!({})).await.ok();
    let (_, sender) = site.token(json!({"scopes": ["send"]})).await;
    sender.send(&to("echo", "hello")).await;
}

/// What is asked for with a token that is bound to `echo`, about what belongs to `slow`, and how it is to be answered.
fn foreign(task: &str) -> Vec<(&'static str, Sent, u16)> {
    let get = |path: String| Sent::Http(Method::GET, path, None);
    let post = |path: String, body: Value| Sent::Http(Method::POST, path, Some(body));
    let answer = json!({"message": {"messageId": "m", "role": "ROLE_USER", "taskId": task, "parts": [{"text": "x"}]}});
    vec![
        ("send to it", post("/a2a/message:send".into(), to("slow", "1")), 404),
        ("send at its URL", post("/a2a/agents/slow/message:send".into(), json!({"message": message("1")})), 404),
        ("its card", get("/a2a/agents/slow/.well-known/agent-card.json".into()), 404),
        ("its old card", get("/v1/a2a/agents/slow/.well-known/agent-card.json".into()), 404),
        ("its extended card", get("/a2a/agents/slow/extendedAgentCard".into()), 404),
        ("its task", get(format!("/a2a/tasks/{task}")), 404),
        ("its task at its URL", get(format!("/a2a/agents/slow/tasks/{task}")), 404),
        ("continue its task", post("/a2a/message:send".into(), answer), 404),
        ("cancel its task", post(format!("/a2a/tasks/{task}:cancel"), json!({})), 404),
        ("subscribe to its task", post(format!("/a2a/tasks/{task}:subscribe"), json!({})), 404),
        (
            "a webhook for its task",
            post(format!("/a2a/tasks/{task}/pushNotificationConfigs"), json!({"url": "https://r.example"})),
            404,
        ),
        ("the webhooks of its task", get(format!("/a2a/tasks/{task}/pushNotificationConfigs")), 404),
        ("its request", get(format!("/v1/requests/{task}")), 404),
        ("the events of its request", get(format!("/v1/requests/{task}/events")), 404),
        ("cancel its request", post(format!("/v1/requests/{task}/cancel"), json!({})), 404),
        ("delete its request", Sent::Http(Method::DELETE, format!("/v1/requests/{task}"), None), 404),
        ("delete a context", Sent::Http(Method::DELETE, "/v1/contexts/any".into(), None), 403),
        ("chat with it", post("/v1/chat".into(), json!({"agent": "slow", "message": "1"})), 404),
        ("its chat", get(format!("/v1/chat/{task}")), 404),
        ("publish to it", post("/v1/queue/publish".into(), json!({"from": "a", "to": "slow", "text": "x"})), 404),
        ("consume its work", post("/v1/queue/slow/consume".into(), json!({})), 404),
        ("its entry", get(format!("/v1/queue/messages/{task}")), 404),
        ("claim its entry", post(format!("/v1/queue/messages/{task}/claim"), json!({})), 404),
        ("end its entry", post(format!("/v1/queue/messages/{task}/ack"), json!({})), 404),
        ("its definition", get("/v1/agents/slow".into()), 404),
        ("define it", post("/v1/agents".into(), json!({"id": "slow2", "role": "r", "model": "m"})), 404),
        ("keep a card of it", Sent::Http(Method::PUT, "/v1/cards/slow".into(), Some(json!({"name": "Slow"}))), 404),
        ("its card in the registry", get("/v1/cards/slow".into()), 404),
        ("its outbox", get(format!("/v1/push/{task}/p")), 404),
    ]
}

#[tokio::test]
async fn what_a_token_is_not_bound_to_is_not_there() {
    let site = Site::start().await;
    let theirs = site.api.send(&to_at_once("slow", "60000")).await;
    let theirs = text(&theirs, "/id").to_owned();
    site.api.send(&to("echo", "hello")).await;
    let (_, bound) = site.token(json!({"agents": ["echo"]})).await;
    let nowhere = "01890000-0000-7000-8000-000000000000";
    let all = foreign(&theirs);
    assert!(all.len() >= 25);
    for ((name, sent, status), (_, never, _)) in all.into_iter().zip(foreign(nowhere)) {
        let answer = async |sent: &Sent| -> Reply {
            let Sent::Http(method, path, body) = sent else { panic!("all of these are plain HTTP") };
            let request = bound.request(method.clone(), path);
            bound
                .call(match body {
                    Some(body) => with_json(request, body),
                    None => request,
                })
                .await
        };
        let (told, of_nothing) = (answer(&sent).await, answer(&never).await);
        assert_eq!(told.status, status, "{name}: {}", told.shown());
        // It is told apart from what never was by nothing but the id that was asked for.
        let plain = |reply: &Reply, id: &str| String::from_utf8_lossy(&reply.body).replace(id, "ID");
        assert_eq!(plain(&told, &theirs), plain(&of_nothing, nowhere), "{name}");
    }
    let grpc = grpc(&bound);
    assert_eq!(grpc.call(A2A, "GetTask", &json!({"id": theirs})).await.code(), Some(5));
    assert_eq!(grpc.call(A2A, "SendMessage", &to("slow", "1")).await.code(), Some(5));
    let rpc = bound.rpc("GetTask", &json!({"id": theirs})).await;
    assert_eq!(rpc["error"]["code"], -32001);

    let listed = bound.get("/a2a/tasks").await.ok();
    assert_eq!((&listed["totalSize"], listed["tasks"].as_array().unwrap().len()), (&json!(1), 1), "{listed:#}");
    let requests = bound.get("/v1/requests").await.ok();
    assert_eq!(requests["requests"].as_array().unwrap().len(), 1, "{requests:#}");
    for path in ["/v1/agents", "/v1/cards", "/a2a/extendedAgentCard", "/v1/queue/status", "/v1/remotes"] {
        let shown = bound.get(path).await;
        let shown = String::from_utf8_lossy(&shown.body).into_owned();
        assert!(!shown.contains("\"slow\"") && !shown.contains("/slow"), "{path}: {shown}");
    }
    // What is passed over does not end a list.
    let own = text(&listed["tasks"][0], "/id").to_owned();
    for (task, id) in [(&theirs, "a"), (&theirs, "b"), (&own, "c")] {
        let path = format!("/a2a/tasks/{task}/pushNotificationConfigs");
        site.api.post(&path, &json!({"id": id, "url": "https://example.com/hook"})).await.ok();
    }
    // The signing secret speaks for all agents of the tenant.
    for (method, path) in [(Method::GET, "/v1/push/secret"), (Method::POST, "/v1/push/secret/rotate")] {
        let refused = bound.call(bound.request(method, path)).await;
        assert!(!refused.shown().contains("whsec_"), "{path}: {}", refused.shown());
        refused.error(403);
    }
    let pushed = bound.get("/v1/push?limit=1").await.ok();
    assert_eq!(pushed["configs"][0]["id"], "c", "{pushed:#}");
    assert!(pushed["next"].is_null(), "{pushed:#}");
    let seen = site.api.task(&theirs).await;
    assert_eq!(text(&seen, "/status/state"), "TASK_STATE_WORKING", "nothing was done to it");
    bound.send(&to("echo", "still there")).await;
}

#[tokio::test]
async fn a_lease_of_another_agents_entry_is_no_use_to_a_bound_token() {
    let site = Site::start().await;
    let published = json!({"from": "planner", "to": "researcher", "text": "x"});
    let published = site.api.post("/v1/queue/publish", &published).await;
    assert_eq!(published.status, 201, "{}", published.shown());
    let handed = site.api.post("/v1/queue/researcher/consume", &json!({"lease": 60})).await.ok();
    let (id, lease) = (text(&handed, "/messages/0/id"), text(&handed, "/messages/0/lease"));
    let (_, bound) = site.token(json!({"agents": ["echo"]})).await;
    for (verb, report) in [
        ("heartbeat", json!({"lease": lease})),
        ("progress", json!({"lease": lease, "text": "x"})),
        ("ack", json!({"lease": lease, "result": 1})),
        ("nack", json!({"lease": lease, "error": "x"})),
    ] {
        let refused = bound.post(&format!("/v1/queue/messages/{id}/{verb}"), &report).await;
        assert_eq!((refused.status, reason(&refused.error(404))), (404, "TASK_NOT_FOUND"), "{verb}");
    }
    let entry = site.api.get(&format!("/v1/queue/messages/{id}")).await.ok();
    assert_eq!(entry["status"], "in_progress", "{entry:#}");
    site.api.post(&format!("/v1/queue/messages/{id}/ack"), &json!({"lease": lease})).await.ok();
}

#[tokio::test]
async fn a_token_anywhere_but_in_its_header_is_none() {
    let site = Site::start().await;
    let bare = |path: &str| site.api.bare(Method::GET, path).header("A2A-Version", "1.0");
    let other = site.token(json!({})).await.1;
    let other = other.token().unwrap();
    let huge = "sb_".to_owned() + &"A".repeat(6000);
    let admin = site.home.admin_token();
    let rows = [
        ("none at all", bare("/a2a/tasks")),
        ("in the query", bare(&format!("/a2a/tasks?access_token={TOKEN}"))),
        ("in the query by another name", bare(&format!("/a2a/tasks?token={TOKEN}&x-sb-token={TOKEN}"))),
        ("in a cookie", bare("/a2a/tasks").header("Cookie", format!("token={TOKEN}; x-sb-token={TOKEN}"))),
        ("as Basic", bare("/a2a/tasks").basic_auth("", Some(TOKEN))),
        ("as Basic by its letters", bare("/a2a/tasks").header("Authorization", format!("Basic {TOKEN}"))),
        ("without a scheme", bare("/a2a/tasks").header("Authorization", TOKEN)),
        ("with half of it", bare("/a2a/tasks").bearer_auth(&TOKEN[..20])),
        ("with more than it", bare("/a2a/tasks").bearer_auth(format!("{TOKEN}0"))),
        ("in capitals", bare("/a2a/tasks").bearer_auth(TOKEN.to_uppercase())),
        ("two different ones", bare("/a2a/tasks").bearer_auth(TOKEN).header("x-sb-token", other)),
        ("two different ones in one header", bare("/a2a/tasks").header("x-api-key", TOKEN).header("x-api-key", other)),
        ("an empty one", bare("/a2a/tasks").bearer_auth("")),
        ("a huge one", bare("/a2a/tasks").bearer_auth(&huge)),
        ("SQL", bare("/a2a/tasks").bearer_auth("' OR 1=1 --")),
        ("the administrator's for a tenant", bare("/a2a/tasks").bearer_auth(&admin)),
        ("a tenant's for administration", bare("/v1/admin/tenants").bearer_auth(TOKEN)),
        ("a guess for administration", bare("/v1/admin/tenants").bearer_auth("sba_guess")),
        ("administration by another header", bare("/v1/admin/tenants").header("x-sb-token", &admin)),
        ("administration by the query", bare(&format!("/v1/admin/tenants?token={admin}"))),
        ("administration with two", bare("/v1/admin/tenants").bearer_auth(&admin).bearer_auth(&admin)),
        ("the stats of administration", bare("/v1/admin/stats")),
    ];
    for (name, request) in rows {
        let reply = site.api.call(request).await;
        // reqwest sends one of two equal `Authorization` headers in one case, so what counts is that nobody is let in by mistake.
        let expected: &[u16] = if name == "a huge one" { &[401, 431] } else { &[401] };
        assert!(expected.contains(&reply.status), "{name}: {}", reply.shown());
        let body = String::from_utf8_lossy(&reply.body);
        assert!(!body.contains(TOKEN) && !body.contains(&admin), "{name}");
    }
    let stats = site.admin.get("/v1/admin/stats").await.ok();
    assert!(stats["failed_authentications"]["wrong"].as_u64().unwrap() >= 10, "{stats:#}");
    assert!(stats["failed_authentications"]["missing"].as_u64().unwrap() >= 4, "{stats:#}");
    let log = site.server.log();
    assert!(log.contains("a caller came with"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(&admin), "no token is logged");
}

#[tokio::test]
async fn guessing_costs_the_guesser_and_not_its_neighbours() {
    let site = Site::start_with("[limits]\nfailed_auth_per_second = 1\nfailed_auth_burst = 5\n").await;
    assert_eq!(site.api.get("/a2a/tasks").await.status, 200);
    let guess = async |n: usize| {
        let api = site.api.with_token(Some(&format!("sb_guess-number-{n}")));
        let reply = api.get("/a2a/tasks").await;
        (reply.status, reply.header("retry-after").is_some())
    };
    let mut refused = 0;
    for n in 0..200 {
        match guess(n).await {
            (401, _) => {}
            (429, true) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 150, "{refused}");
    // Who is known is let in as before, at the same address.
    for _ in 0..20 {
        assert_eq!(site.api.get("/a2a/tasks").await.status, 200);
    }
    assert_eq!(site.admin.get("/v1/admin/tenants").await.status, 200);
    // Who is right and new comes in too, if not at once.
    let (_, new) = site.token(json!({})).await;
    let begun = Instant::now();
    while new.get("/a2a/tasks").await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "a right token is kept out");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let stats = site.admin.get("/v1/admin/stats").await.ok();
    assert!(stats["failed_authentications"]["refused"].as_u64().unwrap() > 150, "{stats:#}");
}

#[tokio::test]
async fn a_guess_that_becomes_a_token_is_one() {
    let site = Site::start().await;
    let (second, _server) = site.second().await;
    // Whoever tries a token before it is made does not keep it from being one, here or elsewhere.
    let coming = "sb_a-token-that-is-about-to-be-made-00000000";
    for api in [&site.api, &second] {
        assert_eq!(api.with_token(Some(coming)).get("/a2a/tasks").await.status, 401);
    }
    site.home.add_tenant("late", coming).await;
    for api in [&site.api, &second] {
        let api = api.with_token(Some(coming));
        let begun = Instant::now();
        while api.get("/a2a/tasks").await.status != 200 {
            assert!(begun.elapsed() < SOON, "a token that there is is refused");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits for the end of a stream of events: an answer that has begun can say no more than that.
async fn ended(response: reqwest::Response) {
    let read = timeout(SOON, response.bytes()).await;
    let read = read.expect("a stream whose token has ended, ends").expect("it ends in good order");
    assert!(!String::from_utf8_lossy(&read).contains("COMPLETED"), "its task goes on");
}

/// Everything that can be open with a token, at one instance.
struct Open {
    streams: Vec<reqwest::Response>,
    grpc: crate::harness::grpc::Messages,
    waits: Vec<(&'static str, tokio::task::JoinHandle<u16>)>,
}

impl Open {
    async fn new(api: &Api, task: &str) -> Self {
        let subscribe = |path: String, method: Method| api.request(method, &path).timeout(Duration::from_secs(60));
        let old = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task}});
        let requests = [
            subscribe(format!("/a2a/tasks/{task}:subscribe"), Method::POST),
            with_json(
                subscribe("/a2a/jsonrpc".into(), Method::POST),
                &json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}),
            ),
            with_json(
                api.bare(Method::POST, "/a2a/agents/slow")
                    .bearer_auth(api.token().unwrap())
                    .timeout(Duration::from_secs(60)),
                &old,
            ),
            subscribe(format!("/v1/requests/{task}/events"), Method::GET),
            subscribe(format!("/v1/chat/{task}/events"), Method::GET),
            with_json(subscribe("/a2a/message:stream".into(), Method::POST), &to("slow", "60000")),
        ];
        let mut streams = Vec::new();
        for request in requests {
            let response = request.send().await.unwrap();
            assert_eq!(response.status().as_u16(), 200);
            streams.push(response);
        }
        let grpc = grpc(api).open(A2A, "SubscribeToTask", &json!({"id": task})).await;
        let waits = [
            ("a blocking send", "/a2a/message:send", to("slow", "60000")),
            ("a long poll", "/v1/queue/nobody/consume", json!({"wait": 50})),
            ("a chat", "/v1/chat", json!({"agent": "slow", "message": "60000"})),
        ];
        let waits = waits.map(|(name, path, body)| {
            let api = api.clone();
            (name, tokio::spawn(async move { api.post(path, &body).await.status }))
        });
        // They are to be under way.
        tokio::time::sleep(Duration::from_millis(500)).await;
        Self { streams, grpc, waits: waits.into() }
    }

    /// All of it ends soon.
    async fn ends(self) {
        for stream in self.streams {
            ended(stream).await;
        }
        let answer = timeout(SOON, self.grpc.finish()).await.expect("a stream of gRPC ends");
        assert_eq!(answer.code(), Some(16), "{answer:?}");
        for (name, wait) in self.waits {
            let status = timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{name} goes on")).unwrap();
            assert_eq!(status, 401, "{name}");
        }
    }
}

/// From when on a token is refused.
async fn refused_soon(api: &Api) {
    let begun = Instant::now();
    while api.get("/a2a/tasks").await.status != 401 {
        assert!(begun.elapsed() < SOON, "it is still honoured");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_ends_what_it_has_opened_on_every_instance() {
    let site = Site::start().await;
    let (second, _server) = site.second().await;
    let task = site.api.send(&to_at_once("slow", "60000")).await;
    let task = text(&task, "/id").to_owned();
    let (id, here) = site.token(json!({})).await;
    let there = second.with_token(here.token());
    let (of_here, of_there) = (Open::new(&here, &task).await, Open::new(&there, &task).await);
    let mut neighbour = site.api.subscribe(&task, None).await;
    site.revoke(id).await;
    assert_eq!(here.get("/a2a/tasks").await.status, 401, "at once where it was revoked");
    refused_soon(&there).await;
    of_here.ends().await;
    of_there.ends().await;
    // The task goes on, and so does everybody else's stream.
    assert_eq!(text(&site.api.task(&task).await, "/status/state"), "TASK_STATE_WORKING");
    site.api.post(&format!("/a2a/tasks/{task}:cancel"), &json!({})).await.ok();
    assert!(neighbour.rest().await.last().unwrap().is_end());
}

#[tokio::test]
async fn a_tenant_that_is_disabled_loses_what_it_has_opened_on_every_instance() {
    let site = Site::start().await;
    let (second, _server) = site.second().await;
    let task = site.api.send(&to_at_once("slow", "60000")).await;
    let task = text(&task, "/id").to_owned();
    let (of_here, of_there) = (Open::new(&site.api, &task).await, Open::new(&second, &task).await);
    site.disable(true).await;
    assert_eq!(site.api.get("/a2a/tasks").await.status, 401);
    refused_soon(&second).await;
    of_here.ends().await;
    of_there.ends().await;
    site.disable(false).await;
    assert_eq!(text(&site.api.task(&task).await, "/status/state"), "TASK_STATE_WORKING");
}

#[tokio::test]
async fn a_token_that_expires_ends_what_it_has_opened() {
    let site = Site::start().await;
    let task = site.api.send(&to_at_once("slow", "60000")).await;
    let task = text(&task, "/id").to_owned();
    let (_, short) = site.token(json!({"expires_in_seconds": 6})).await;
    let open = Open::new(&short, &task).await;
    let begun = Instant::now();
    while short.get("/a2a/tasks").await.status == 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not expire");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    open.ends().await;
}

#[tokio::test]
async fn administrators_are_told_apart_and_end_apart() {
    let site = Site::start().await;
    let (second, _server) = site.second().await;
    let make = async |name: &str, more: Value| {
        let mut request = json!({"name": name});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = site.admin.post("/v1/admin/tokens", &request).await;
        assert_eq!(made.status, 201, "{}", made.shown());
        let made = made.json();
        (made["id"].as_i64().unwrap(), site.api.with_token(Some(text(&made, "/token"))))
    };
    let (ops, of_ops) = make("ops", json!({})).await;
    let (_, of_ci) = make("ci", json!({"expires_in_seconds": 6})).await;
    assert_eq!(of_ci.get("/v1/admin/tenants").await.status, 200);
    assert_eq!(of_ops.post("/v1/admin/tenants", &json!({"name": "acme"})).await.status, 201);
    let audit = site.admin.get("/v1/admin/audit?limit=1").await.ok();
    assert_eq!((text(&audit, "/entries/0/actor"), text(&audit, "/entries/0/action")), ("admin:ops", "create_tenant"));
    for (name, request, status) in [
        ("a name that is taken", json!({"name": "ops"}), 409),
        ("a name that forges the log", json!({"name": "ops\nadmin"}), 400),
        ("no name", json!({}), 400),
        ("an empty name", json!({"name": ""}), 400),
        ("no life", json!({"name": "x", "expires_in_seconds": 0}), 400),
        ("scopes", json!({"name": "x", "scopes": ["read"]}), 400),
    ] {
        let reply = site.admin.post("/v1/admin/tokens", &request).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.shown());
    }
    let there = second.with_token(of_ops.token());
    let begun = Instant::now();
    while there.get("/v1/admin/tenants").await.status != 200 {
        assert!(begun.elapsed() < SOON, "it is not known elsewhere");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let long_poll = {
        let there = there.clone();
        tokio::spawn(async move { there.post("/v1/queue/nobody/consume", &json!({"wait": 50})).await.status })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let path = format!("/v1/admin/tokens/{ops}");
    site.admin.call(site.admin.request(Method::DELETE, &path)).await.ok();
    assert_eq!(of_ops.get("/v1/admin/tenants").await.status, 401);
    let begun = Instant::now();
    while there.get("/v1/admin/tenants").await.status != 401 {
        assert!(begun.elapsed() < SOON, "it is still honoured elsewhere");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(timeout(SOON, long_poll).await.expect("its long poll ends").unwrap(), 401);
    let begun = Instant::now();
    while of_ci.get("/v1/admin/tenants").await.status != 401 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not expire");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(site.admin.get("/v1/admin/tenants").await.status, 200, "the first one stays");
    let shown = site.admin.get("/v1/admin/tokens").await;
    assert!(!String::from_utf8_lossy(&shown.body).contains("sba_"), "{}", shown.shown());
    let states: Vec<String> =
        shown.ok()["tokens"].as_array().unwrap().iter().map(|token| text(token, "/state").to_owned()).collect();
    assert_eq!(states, ["revoked", "expired"]);
}

#[tokio::test]
async fn an_agent_that_is_withdrawn_is_withdrawn_for_what_it_has_begun() {
    let home = Home::new();
    let file = |tenants: &str| {
        format!(
            "kind = \"command\"\nname = \"Secret\"\n{tenants}\nconcurrency = 1\nmax_attempts = 1\n[command]\n\
             argv = [\"sh\", \"-c\", \"sleep 1; echo done\"]\n"
        )
    };
    home.add_agent("secret.toml", &file(""));
    let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    let api = server.api();
    let begun = Instant::now();
    while api.get("/a2a/agents/secret/.well-known/agent-card.json").await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", server.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // One runs, the others wait for it.
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(text(&api.send(&to_at_once("secret", "x")).await, "/id").to_owned());
    }
    home.add_agent("secret.toml", &file("tenants = [\"somebody-else\"]"));
    let begun = Instant::now();
    while api.get("/a2a/agents/secret/.well-known/agent-card.json").await.status != 404 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let last = tasks.last().unwrap();
    let again = json!({"message": {"messageId": "m", "role": "ROLE_USER", "taskId": last, "parts": [{"text": "x"}]}});
    let refused = api.post("/a2a/message:send", &again).await;
    assert_eq!(reason(&refused.error(404)), "AGENT_NOT_FOUND");
    assert_eq!(api.post("/a2a/message:send", &to("secret", "x")).await.status, 404);
    let listed = api.get("/a2a/extendedAgentCard").await;
    assert!(!String::from_utf8_lossy(&listed.body).contains("Secret"), "{}", listed.shown());
    let ended = api.task_when(last, crate::harness::http::is_terminal).await;
    assert_eq!(text(&ended, "/status/state"), "TASK_STATE_FAILED", "{ended:#}");
    let why = ended.pointer("/status/message/parts/0/text").and_then(Value::as_str).unwrap_or_default();
    assert!(why.contains("there is no agent 'secret' any more"), "{ended:#}");
}
