//! Pages in browsers: who may call, and what they are told.

use serde_json::json;
use server::{Cors, Rate};

use crate::edge::{
    support::{Fixture, envelope, message},
    wire::Ask,
};

const PAGE: &str = "https://app.example";

async fn allowing(origins: &[&str]) -> Fixture {
    let cors = Cors::parse(origins).unwrap();
    Fixture::with(|options| options.cors = cors).await
}

fn preflight(rig: &Fixture, path: &str, origin: &str, method: &str) -> Ask {
    rig.bare("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", method)
        .header("Access-Control-Request-Headers", "authorization,a2a-version,content-type")
}

#[tokio::test]
async fn by_default_no_page_may_call() {
    let rig = allowing(&[]).await;
    let asked = preflight(&rig, "/a2a/message:send", PAGE, "POST").send().await;
    assert_eq!((asked.status, asked.names("access-control")), (204, Vec::new()));
    let reply = rig.ask("GET", "/a2a/tasks").header("Origin", PAGE).send().await;
    assert_eq!((reply.status, reply.names("access-control")), (200, Vec::new()));
    assert!(!reply.says("vary", "Origin"));
}

#[tokio::test]
async fn a_page_that_is_listed_may_call() {
    let rig = allowing(&["https://other.example", PAGE]).await;
    for (path, method, methods) in [
        ("/a2a/message:send", "POST", "POST, OPTIONS"),
        ("/a2a/jsonrpc", "POST", "POST, OPTIONS"),
        ("/a2a/tasks", "GET", "GET, HEAD, OPTIONS"),
        ("/v1/a2a/agents/echo", "POST", "POST, OPTIONS"),
        ("/.well-known/agent-card.json", "GET", "GET, HEAD, OPTIONS"),
    ] {
        let asked = preflight(&rig, path, PAGE, method).send().await;
        assert_eq!((asked.status, asked.header("access-control-allow-origin")), (204, Some(PAGE)), "{path}");
        assert_eq!(asked.header("access-control-allow-methods"), Some(methods), "{path}");
        let headers = asked.header("access-control-allow-headers").unwrap().to_lowercase();
        for name in ["authorization", "content-type", "a2a-version", "a2a-extensions", "x-sb-token", "last-event-id"] {
            assert!(headers.split(", ").any(|known| known == name), "{name} is not in {headers}");
        }
        assert!(asked.says("vary", "Origin") && asked.header("access-control-max-age").is_some());
    }
    let card = rig.bare("GET", "/.well-known/agent-card.json").header("Origin", PAGE).send().await;
    assert_eq!(card.header("access-control-allow-origin"), Some(PAGE));
    let exposed = card.header("access-control-expose-headers").unwrap();
    for name in ["ETag", "A2A-Extensions", "Retry-After"] {
        assert!(exposed.split(", ").any(|known| known == name), "{name} is not in {exposed}");
    }
    let sent = rig.ask("POST", "/a2a/message:stream").header("Origin", PAGE).json(&message("hi")).send().await;
    assert_eq!((sent.status, sent.header("access-control-allow-origin")), (200, Some(PAGE)));
    // A page has to be able to read why it was refused.
    let refused = rig.bare("POST", "/a2a/jsonrpc").header("Origin", PAGE).json(&json!({})).send().await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(PAGE)));
}

#[tokio::test]
async fn another_page_is_told_nothing() {
    let rig = allowing(&[PAGE]).await;
    for origin in ["https://evil.example", "http://app.example", "https://app.example:8443", "null"] {
        let asked = preflight(&rig, "/a2a/message:send", origin, "POST").send().await;
        assert_eq!((asked.status, asked.names("access-control")), (204, Vec::new()), "{origin}");
        let reply = rig.ask("GET", "/a2a/tasks").header("Origin", origin).send().await;
        assert_eq!(reply.names("access-control"), Vec::<&str>::new(), "{origin}");
        assert!(reply.says("vary", "Origin"), "{origin}");
    }
    let unknown = preflight(&rig, "/a2a/nope", PAGE, "POST").send().await;
    assert_eq!((unknown.status, unknown.header("access-control-allow-methods")), (404, None));
}

#[tokio::test]
async fn a_star_is_everybody_and_never_with_credentials() {
    let rig = allowing(&["*"]).await;
    for origin in [PAGE, "https://evil.example", "null"] {
        let asked = preflight(&rig, "/a2a/jsonrpc", origin, "POST").send().await;
        assert_eq!(asked.header("access-control-allow-origin"), Some("*"));
        let body = envelope("ListTasks", json!({}));
        let reply = rig.ask("POST", "/a2a/jsonrpc").header("Origin", origin).json(&body).send().await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("*")));
        for reply in [asked, reply] {
            assert_eq!(reply.header("access-control-allow-credentials"), None);
            assert!(!reply.says("vary", "Origin"));
        }
    }
    // Administration is for its own page only.
    let asked = preflight(&rig, "/v1/admin/tenants", PAGE, "GET").send().await;
    assert_eq!(asked.names("access-control"), Vec::<&str>::new());
}

#[tokio::test]
async fn a_page_can_read_when_to_come_again() {
    let rig = Fixture::with(|options| {
        options.cors = Cors::Everybody;
        options.request_rate = Rate { per_second: 1, burst: 1 };
    })
    .await;
    let ask = || rig.ask("GET", "/a2a/tasks").header("Origin", PAGE).send();
    assert_eq!(ask().await.status, 200);
    let refused = ask().await;
    assert_eq!((refused.retry_after(), refused.header("access-control-allow-origin")), (1, Some("*")));
    assert!(refused.header("access-control-expose-headers").unwrap().contains("Retry-After"));
}
