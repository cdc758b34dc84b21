//! Credentials: which are accepted, and what everyone else is told.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::protocol::{
    TOKEN, grpc,
    http::{Api, reason, text},
    raw,
    scenario::{message, said},
    server::{Setup, TestServer},
};

/// One request for every kind of route, without a credential.
fn every_route(api: &Api, task: &str) -> Vec<RequestBuilder> {
    let nobody = api.with_token(None);
    let mut requests = Vec::new();
    for scope in ["/a2a", "/a2a/agents/echo", "/a2a/echo"] {
        let send = json!({"message": said("hello")});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send});
        for (path, body) in [("message:send", &send), ("message:stream", &send), ("jsonrpc", &call)] {
            let head = format!("POST {scope}/{path}\nContent-Type: application/json");
            requests.push(raw::request(&nobody, &head).body(body.to_string()));
        }
        let subscribe = format!("tasks/{task}:subscribe?afterSequence=0");
        for path in ["tasks", &format!("tasks/{task}"), "extendedAgentCard", &subscribe] {
            requests.push(raw::request(&nobody, &format!("GET {scope}/{path}")));
        }
        requests.push(raw::request(&nobody, &format!("POST {scope}/{subscribe}")));
    }
    requests
}

/// What must not depend on which wrong credential was given.
async fn check_refusal(api: &Api, request: RequestBuilder) -> Value {
    let reply = api.call(request).await;
    let error = reply.error(401);
    assert_eq!((error["status"].as_str(), reason(&error)), (Some("UNAUTHENTICATED"), "UNAUTHENTICATED"));
    assert!(reply.header("www-authenticate").is_none(), "{}", reply.shown());
    error
}

#[tokio::test]
async fn s3_104_x_24_every_credential_on_every_route() {
    let server = TestServer::start().await;
    let api = server.api();
    let task = text(&api.send(&message("echo", said("hello"))).await, "/id").to_owned();
    assert!(every_route(&api, &task).len() > 20);
    for (header, value) in [
        ("Authorization", format!("Bearer {TOKEN}")),
        ("authorization", format!("bearer {TOKEN}")),
        ("x-sb-token", TOKEN.to_owned()),
        ("X-API-Key", TOKEN.to_owned()),
    ] {
        for request in every_route(&api, &task) {
            let reply = api.call(request.header(header, &value)).await;
            assert_eq!(reply.status, 200, "{header}: {}", reply.shown());
            assert!(!reply.body.is_empty(), "{header}: {}", reply.shown());
        }
        let caller = server.grpc().without("authorization").with(&header.to_lowercase(), &value);
        assert_eq!(caller.ok(grpc::A2A, "ListTasks", &json!({})).await["pageSize"], 50, "{header}");
    }
    // Two credentials that agree are one, and two that disagree are none.
    let both = |other: &str| raw::request(&api, &format!("GET /a2a/tasks\nx-sb-token: {other}"));
    api.call(both(TOKEN)).await.ok();
    check_refusal(&api, both("sb_something-else-altogether")).await;
    check_refusal(&api, both(&server.add_tenant("other").await)).await;
}

#[tokio::test]
async fn s3_105_x_18_x_25_401_is_plain_json() {
    let server = TestServer::start().await;
    let api = server.api();
    let task = text(&api.send(&message("echo", said("hello"))).await, "/id").to_owned();
    for request in every_route(&api, &task) {
        check_refusal(&api, request).await;
    }
    // It precedes everything else about a request: version, media type, envelope, whether there is such a route.
    check_refusal(&api, raw::request(&api.with_token(None), "POST /a2a/jsonrpc\nA2A-Version:").body("{")).await;
    for path in ["/v1/a2a/agents/echo/agent-card.json", "/a2a/nope"] {
        check_refusal(&api, raw::request(&api.with_token(None), &format!("GET {path}"))).await;
        check_refusal(&api, raw::request(&api.with_token(Some("sb_wrong")), &format!("GET {path}"))).await;
    }
    // Nothing was done.
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1);
    // Health is for everyone, and so are a card and what a route is for.
    let nobody = api.with_token(None);
    for path in ["/healthz", "/readyz", "/.well-known/agent-card.json"] {
        let reply = nobody.get(path).await;
        reply.ok();
        assert_eq!(reply.media_type(), "application/json");
    }
    raw::say(&nobody, [("OPTIONS /a2a/tasks", "", "204")]).await;
}

#[tokio::test]
async fn s3_106_x_18_over_grpc_who_does_not_say_who_they_are_is_told_how() {
    let server = TestServer::start().await;
    let nobody = server.grpc().without("authorization");
    for caller in [nobody.clone(), nobody.with("x-api-key", "sb_wrong"), nobody.with("authorization", "Basic x")] {
        for service in [grpc::A2A, grpc::GATEWAY] {
            let refused = caller.call(service, "GetTask", &json!({"id": "t"})).await;
            assert_eq!(reason(&refused.error(16)), "UNAUTHENTICATED");
            assert!(refused.trailers["www-authenticate"].to_str().unwrap().starts_with("Bearer "), "{refused:?}");
            assert!(!refused.trailers["x-sb-token"].is_empty());
        }
    }
}

#[tokio::test]
async fn s3_107_a_wrong_token_is_a_missing_token() {
    let server = TestServer::start().await;
    let api = server.api().with_token(None);
    let missing = check_refusal(&api, raw::request(&api, "GET /a2a/tasks")).await;
    let almost = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    for token in ["sb_wrong-token-nobody-ever-issued", &almost, &TOKEN[..10], "", "Ünïcödé"] {
        for header in ["Authorization", "x-sb-token", "X-API-Key"] {
            let value = if header == "Authorization" { format!("Bearer {token}") } else { token.to_owned() };
            let request = raw::request(&api, "GET /a2a/tasks").header(header, value.as_bytes());
            assert_eq!(check_refusal(&api, request).await, missing, "{header}: {token}");
        }
    }
    let basic = raw::request(&api, &format!("GET /a2a/tasks\nAuthorization: Basic {TOKEN}"));
    assert_eq!(check_refusal(&api, basic).await, missing);
}

#[tokio::test]
async fn without_auth_everybody_is_the_default_tenant_by_a_name_of_this_machine() {
    let server = Setup::new().edge(|edge| edge.auth = false).start().await;
    let api = server.api().with_token(None);
    let sent = api.send(&message("echo", said("hi"))).await;
    assert_eq!(server.api().task(text(&sent, "/id")).await["id"], sent["id"]);
    let anybody = server.grpc().without("authorization");
    assert!(anybody.ok(grpc::A2A, "SendMessage", &message("echo", said("hi"))).await["task"].is_object());
    let renamed = anybody.with("host", "evil.example").call(grpc::A2A, "ListTasks", &json!({})).await;
    assert_eq!((renamed.status, renamed.code()), (403, None), "a client makes PERMISSION_DENIED of it");
    assert_eq!(server.exchange.store().tenants().await.unwrap().len(), 1, "there is no other");
}
