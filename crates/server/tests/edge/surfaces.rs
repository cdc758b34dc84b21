//! What all surfaces have in common: who learns what, and in which order.

use crate::edge::support::{Fixture, TOKEN};

const ADMIN: &str = "sba_test_of_an_administrator";

/// A path of each surface, the methods that it answers, and the token that opens it.
const ROUTES: [(&str, &str, Option<&str>); 27] = [
    ("/healthz", "GET, HEAD, OPTIONS", None),
    ("/.well-known/agent-card.json", "GET, HEAD, OPTIONS", None),
    ("/.well-known/jwks.json", "GET, HEAD, OPTIONS", None),
    ("/a2a/tasks", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/a2a/jsonrpc", "POST, OPTIONS", Some(TOKEN)),
    ("/a2a/tasks/x:subscribe", "GET, POST, OPTIONS", Some(TOKEN)),
    ("/v1/a2a/agents/echo", "POST, OPTIONS", Some(TOKEN)),
    ("/v1/requests", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/v1/requests/x/events", "GET, OPTIONS", Some(TOKEN)),
    ("/v1/cards", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/v1/agents", "GET, HEAD, POST, OPTIONS", Some(TOKEN)),
    ("/v1/agents/x", "GET, HEAD, PATCH, DELETE, OPTIONS", Some(TOKEN)),
    ("/v1/queue/status", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/v1/queue/publish", "POST, OPTIONS", Some(TOKEN)),
    ("/v1/queue/researcher/consume", "POST, OPTIONS", Some(ADMIN)),
    ("/v1/queue/messages/x/ack", "POST, OPTIONS", Some(ADMIN)),
    ("/v1/chat", "POST, OPTIONS", Some(TOKEN)),
    ("/v1/chat/x", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/v1/feed", "GET, HEAD, OPTIONS", Some(TOKEN)),
    ("/v1/remotes", "GET, HEAD, POST, OPTIONS", Some(TOKEN)),
    ("/v1/remotes/x", "GET, HEAD, DELETE, OPTIONS", Some(ADMIN)),
    ("/v1/remotes/x/probe", "POST, OPTIONS", Some(ADMIN)),
    ("/v1/callbacks/x", "POST, OPTIONS", None),
    ("/lf.a2a.v1.A2AService/GetTask", "POST, OPTIONS", Some(TOKEN)),
    ("/secondbrain.a2a.A2AGateway/GetTask", "POST, OPTIONS", Some(TOKEN)),
    ("/grpc.health.v1.Health/Check", "POST, OPTIONS", None),
    ("/v1/admin/tenants", "GET, HEAD, POST, OPTIONS", Some(ADMIN)),
];

async fn fixture() -> Fixture {
    let fixture = Fixture::start().await;
    let hash = exchange::admin::hash(ADMIN).to_vec();
    fixture
        .exchange
        .store()
        .set_setting("test", exchange::admin::ADMIN_TOKEN, hash)
        .await
        .expect("a setting is stored");
    fixture
}

#[tokio::test]
async fn every_route_says_which_methods_it_answers() {
    let fixture = fixture().await;
    for (path, allow, token) in ROUTES {
        let options = fixture.bare("OPTIONS", path).send().await;
        assert_eq!((options.status, options.header("allow")), (204, Some(allow)), "{path} asks for no credential");
        let mut ask = fixture.bare("PUT", path);
        if let Some(token) = token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        let wrong = ask.send().await;
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some(allow)), "{path}");
        assert_eq!(wrong.reason(), "METHOD_NOT_ALLOWED");
    }
}

#[tokio::test]
async fn who_may_not_come_in_does_not_learn_what_there_is() {
    let fixture = fixture().await;
    for (known, _, token) in ROUTES {
        let Some(token) = token else { continue };
        let mut answers = Vec::new();
        for path in [known.to_owned(), format!("{known}/nothing/here")] {
            let reply = fixture.bare("PUT", &path).send().await;
            assert_eq!(reply.reason(), "UNAUTHENTICATED", "{path}");
            answers.push((reply.status, reply.body));
        }
        assert_eq!(answers[0], answers[1], "{known}");
        let nothing =
            fixture.bare("GET", &format!("{known}/nothing/here")).header("Authorization", &format!("Bearer {token}"));
        assert_eq!(nothing.send().await.reason(), "NOT_FOUND", "{known}");
        assert_eq!(fixture.bare("OPTIONS", &format!("{known}/nothing/here")).send().await.status, 404, "{known}");
    }
    assert_eq!(fixture.bare("GET", "/nowhere").send().await.reason(), "NOT_FOUND");
}

#[tokio::test]
async fn what_a_surface_says_of_itself_stands_on_its_errors_too() {
    let fixture = fixture().await;
    for path in ["/a2a/tasks", "/a2a/nowhere"] {
        assert_eq!(fixture.bare("GET", path).send().await.header("a2a-version"), Some("1.0"), "{path}");
    }
    for path in ["/v1/admin/tenants", "/v1/admin/nowhere", "/v1/queue/status", "/v1/queue/nowhere/at/all"] {
        assert_eq!(fixture.bare("GET", path).send().await.header("cache-control"), Some("no-store"), "{path}");
    }
}
