//! Who may call.

use serde_json::json;

use crate::edge::support::{Fixture, OTHER_TOKEN, TOKEN, envelope, message};

#[tokio::test]
async fn everything_but_the_public_needs_a_token() {
    let fixture = Fixture::start().await;
    for path in ["/healthz", "/readyz", "/.well-known/agent-card.json"] {
        assert_eq!(fixture.bare("GET", path).send().await.status, 200, "{path}");
    }
    assert_eq!(fixture.bare("OPTIONS", "/a2a/tasks").send().await.status, 204);
    for (method, path) in [
        ("GET", "/a2a/tasks"),
        ("GET", "/a2a/tasks/x"),
        ("POST", "/a2a/message:send"),
        ("POST", "/a2a/message:stream"),
        ("GET", "/a2a/tasks/x:subscribe"),
        ("POST", "/a2a/jsonrpc"),
        ("POST", "/a2a"),
        ("GET", "/a2a/extendedAgentCard"),
        ("GET", "/v1/a2a/agents/echo/agent-card.json"),
        ("GET", "/a2a/nope"),
    ] {
        for token in [None, Some("sb_wrong")] {
            let mut ask = fixture.bare(method, path).header("A2A-Version", "1.0");
            if let Some(token) = token {
                ask = ask.header("Authorization", &format!("Bearer {token}"));
            }
            let reply = ask.send().await;
            assert_eq!((reply.status, reply.reason().as_str()), (401, "UNAUTHENTICATED"), "{method} {path}");
            assert_eq!(reply.header("www-authenticate"), None);
            assert!(!reply.body.contains("sb_wrong"));
        }
    }
}

#[tokio::test]
async fn any_of_three_headers_will_do() {
    let fixture = Fixture::start().await;
    let tasks = |headers: &[(&str, &str)]| {
        let mut ask = fixture.bare("GET", "/a2a/tasks").header("A2A-Version", "1.0");
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send()
    };
    let bearer = format!("Bearer {TOKEN}");
    for headers in [
        &[("Authorization", bearer.as_str())][..],
        &[("X-API-Key", TOKEN)],
        &[("x-sb-token", TOKEN)],
        &[("Authorization", bearer.as_str()), ("x-sb-token", TOKEN)],
    ] {
        // Twice: looked up, then remembered.
        assert_eq!(tasks(headers).await.status, 200, "{headers:?}");
        assert_eq!(tasks(headers).await.status, 200, "{headers:?}");
    }
    assert_eq!(tasks(&[("Authorization", bearer.as_str()), ("x-sb-token", OTHER_TOKEN)]).await.status, 401);
}

#[tokio::test]
async fn without_auth_everybody_is_the_default_tenant() {
    let fixture = Fixture::with(|options| options.auth = false).await;
    let ask = fixture.bare("POST", "/a2a/jsonrpc").header("A2A-Version", "1.0");
    let sent = ask.json(&envelope("SendMessage", message("hello"))).send().await.json();
    assert!(sent["result"]["task"]["id"].is_string(), "{sent}");
    let names: Vec<String> =
        fixture.exchange.store().tenants().await.unwrap().into_iter().map(|tenant| tenant.name).collect();
    assert_eq!(json!(names), json!(["alice", "bob", "default"]));
}
