//! Agent cards and their caching.

use serde_json::json;

use crate::support::{Fixture, OTHER_TOKEN};

const PUBLIC: &str = "/.well-known/agent-card.json";

#[tokio::test]
async fn the_public_card_names_addresses_and_no_agent() {
    let fixture = Fixture::start().await;
    let reply = fixture.bare("GET", PUBLIC).send().await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("cache-control"), Some("public, max-age=60"));
    let card = reply.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("{}/a2a/jsonrpc", fixture.base_url));
    assert_eq!(card["supportedInterfaces"][1]["url"], format!("{}/a2a", fixture.base_url));
    assert!(!reply.body.contains("odd.example"));
    for agent in ["echo", "slow", "direct", "secret"] {
        assert!(!reply.body.contains(&format!("\"{agent}\"")), "{agent}");
    }
}

#[tokio::test]
async fn a_known_card_is_not_sent_again() {
    let fixture = Fixture::start().await;
    let extended = "/a2a/extendedAgentCard";
    for (path, cache_control) in [
        (PUBLIC, "public, max-age=60"),
        (extended, "private, max-age=60"),
        ("/a2a/agents/echo/.well-known/agent-card.json", "private, max-age=60"),
        ("/a2a/agents/echo/extendedAgentCard", "private, max-age=60"),
    ] {
        let reply = fixture.get(path).await;
        assert_eq!((reply.status, reply.header("cache-control")), (200, Some(cache_control)), "{path}");
        assert_eq!(reply.header("vary").is_some(), path != PUBLIC, "{path}");
        let etag = reply.header("etag").unwrap();
        assert!(etag.starts_with("W/\""), "{etag}");
        let known = fixture.ask("GET", path).header("If-None-Match", &format!("\"x\", {etag}")).send().await;
        assert_eq!((known.status, known.body.as_str()), (304, ""), "{path}");
        assert_eq!(known.header("etag"), Some(etag));
        let other = fixture.ask("GET", path).header("If-None-Match", "\"x\"").send().await;
        assert_eq!(other.status, 200);
        let head = fixture.ask("HEAD", path).send().await;
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        assert_eq!(head.header("content-length").unwrap(), reply.body.len().to_string());
    }
}

#[tokio::test]
async fn the_extended_card_lists_what_the_caller_may_see() {
    let fixture = Fixture::start().await;
    let skills = |body: serde_json::Value| {
        let ids: Vec<_> = body["skills"].as_array().unwrap().iter().map(|skill| skill["id"].clone()).collect();
        json!(ids)
    };
    let reply = fixture.get("/a2a/extendedAgentCard").await;
    assert_eq!(reply.header("content-type"), Some("application/a2a+json"));
    assert_eq!(skills(reply.json()), json!(["relay", "direct", "echo", "slow"]));
    let bob = fixture.bare("GET", "/a2a/extendedAgentCard").header("x-sb-token", OTHER_TOKEN).send().await;
    assert_eq!(skills(bob.json()), json!(["relay", "direct", "echo", "secret", "slow"]));

    for path in
        ["/a2a/agents/echo/extendedAgentCard", "/a2a/echo/extendedAgentCard", "/a2a/extendedAgentCard?tenant=echo"]
    {
        let card = fixture.get(path).await.json();
        assert_eq!(card["name"], "echo", "{path}");
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("{}/a2a/agents/echo/jsonrpc", fixture.base_url));
    }
    for path in ["/a2a/agents/secret/extendedAgentCard", "/a2a/agents/secret/.well-known/agent-card.json"] {
        assert_eq!(fixture.get(path).await.reason(), "AGENT_NOT_FOUND", "{path}");
    }
}

#[tokio::test]
async fn a_public_url_is_what_cards_say() {
    let fixture = Fixture::with(|options| options.public_url = Some("https://sb.example/x/".to_owned())).await;
    let card = fixture.bare("GET", PUBLIC).send().await.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://sb.example/x/a2a/jsonrpc");
}
