//! Credentials: which are accepted, and what everyone else is told.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{
    http::{Api, message, text, to, with_json},
    rig::{Rig, TOKEN},
};

/// One request for every kind of route, without a credential.
fn every_route(api: &Api, task: &str) -> Vec<RequestBuilder> {
    let mut requests = Vec::new();
    let version = |request: RequestBuilder| request.header("A2A-Version", "1.0");
    for scope in ["/a2a", "/a2a/agents/echo", "/a2a/echo"] {
        let send = json!({"message": message("hello")});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hello")}});
        for path in ["message:send", "message:stream"] {
            requests.push(with_json(version(api.bare(Method::POST, &format!("{scope}/{path}"))), &send));
        }
        requests.push(with_json(version(api.bare(Method::POST, &format!("{scope}/jsonrpc"))), &call));
        for path in ["tasks".to_owned(), format!("tasks/{task}"), "extendedAgentCard".to_owned()] {
            requests.push(version(api.bare(Method::GET, &format!("{scope}/{path}"))));
        }
        let subscribe = format!("{scope}/tasks/{task}:subscribe?afterSequence=0");
        requests.push(version(api.bare(Method::GET, &subscribe)));
        requests.push(version(api.bare(Method::POST, &subscribe)));
    }
    requests
}

/// What must not depend on which wrong credential was given.
async fn check_refusal(api: &Api, request: RequestBuilder) -> Value {
    let reply = api.call(request).await;
    let error = reply.error(401);
    assert_eq!(error["status"], "UNAUTHENTICATED");
    assert!(reply.header("www-authenticate").is_none(), "{}", reply.shown());
    error
}

#[tokio::test]
async fn s3_104_every_credential_on_every_route() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();
    let routes = every_route(&api, &task).len();
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
    }
    assert!(routes > 20);
    // Two credentials that disagree are none.
    let both = api.request(Method::GET, "/a2a/tasks").header("x-sb-token", "sb_something-else-altogether");
    check_refusal(&api, both).await;
}

#[tokio::test]
async fn s3_105_x_18_x_25_401_is_plain_json() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();
    for request in every_route(&api, &task) {
        check_refusal(&api, request).await;
    }
    // It precedes everything else about a request: version, media type, envelope.
    check_refusal(&api, api.bare(Method::POST, "/a2a/jsonrpc").body("{")).await;
    // Nothing was done.
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1);
    // Health is for everyone.
    for path in ["/healthz", "/readyz"] {
        let reply = api.call(api.bare(Method::GET, path)).await;
        reply.ok();
        assert_eq!(reply.media_type(), "application/json");
    }
}

#[tokio::test]
async fn s3_107_a_wrong_token_is_a_missing_token() {
    let rig = Rig::start().await;
    let api = rig.api();
    let path = "/a2a/tasks";
    let missing = check_refusal(&api, api.bare(Method::GET, path)).await;
    let almost = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    for token in ["sb_wrong-token-nobody-ever-issued", &almost, &TOKEN[..10], "", "Ünïcödé"] {
        for header in ["Authorization", "x-sb-token", "X-API-Key"] {
            let value = if header == "Authorization" { format!("Bearer {token}") } else { token.to_owned() };
            let request = api.bare(Method::GET, path).header(header, value.as_bytes());
            assert_eq!(check_refusal(&api, request).await, missing, "{header}: {token}");
        }
    }
    let basic = api.bare(Method::GET, path).header("Authorization", format!("Basic {TOKEN}"));
    assert_eq!(check_refusal(&api, basic).await, missing);
}
