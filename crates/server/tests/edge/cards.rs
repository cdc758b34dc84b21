//! Agent cards and their caching.

use serde_json::json;

use crate::edge::support::{Fixture, OTHER_TOKEN, TOKEN};

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
        ("/a2a/agents/echo/.well-known/agent-card.json", "public, max-age=60"),
        ("/v1/a2a/agents/echo/.well-known/agent-card.json", "public, max-age=60"),
        ("/a2a/agents/echo/extendedAgentCard", "private, max-age=60"),
    ] {
        let reply = fixture.get(path).await;
        assert_eq!((reply.status, reply.header("cache-control")), (200, Some(cache_control)), "{path}");
        assert_eq!(reply.header("vary").is_none(), path == PUBLIC || path.starts_with("/v1"), "{path}");
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
async fn x_34_the_card_of_an_agent_is_as_public_as_the_agent() {
    let fixture = Fixture::start().await;
    for prefix in ["/a2a", "/v1/a2a"] {
        let path = |agent: &str| format!("{prefix}/agents/{agent}/.well-known/agent-card.json");
        let open = fixture.bare("GET", &path("echo")).send().await;
        assert_eq!((open.status, open.header("cache-control")), (200, Some("public, max-age=60")), "{}", open.body);
        assert_eq!(open.header("vary"), (prefix == "/a2a").then_some("A2A-Version"));
        assert_eq!(open.header("a2a-version"), Some("1.0"));
        assert_eq!(open.header("content-type"), Some("application/json"));

        // One that belongs to some tenants does not exist for anybody else, and no credential is tried out here for free.
        let nobody = fixture.bare("GET", &path("secret")).send().await;
        let stranger = fixture.get(&path("secret")).await;
        let unknown = fixture.bare("GET", &path("nobody")).send().await;
        for refused in [&nobody, &stranger, &unknown] {
            assert_eq!((refused.status, refused.reason().as_str()), (404, "AGENT_NOT_FOUND"), "{}", refused.body);
            assert_eq!(refused.body.replace("secret", "nobody"), unknown.body);
            assert_eq!(refused.header("cache-control"), Some("no-store"));
        }
        let wrong = fixture.bare("GET", &path("echo")).header("x-sb-token", "sb_wrong").send().await;
        assert_eq!(wrong.status, 401);
        let bob = fixture.bare("GET", &path("secret")).header("x-sb-token", OTHER_TOKEN).send().await;
        assert_eq!((bob.status, bob.header("cache-control")), (200, Some("private, max-age=60")));
        assert_eq!(fixture.bare("POST", &path("echo")).send().await.status, 405);
    }

    let closed = Fixture::with(|options| options.public_cards = false).await;
    let path = "/a2a/agents/echo/.well-known/agent-card.json";
    assert_eq!(closed.bare("GET", path).send().await.status, 401);
    let known = closed.get(path).await;
    assert_eq!((known.status, known.header("cache-control")), (200, Some("private, max-age=60")));
}

#[tokio::test]
async fn x_34_the_card_of_an_agent_has_the_fields_of_0_3_unless_1_0_is_asked_for() {
    let path = "/a2a/agents/echo/.well-known/agent-card.json";
    let asked = async |fixture: &Fixture, version: &str| {
        let ask = fixture.bare("GET", path);
        let reply = if version.is_empty() { ask } else { ask.header("A2A-Version", version) }.send().await;
        let etag = reply.header("etag").unwrap().to_owned();
        (reply.json(), etag)
    };
    let fixture = Fixture::start().await;
    let (both, both_tag) = asked(&fixture, "").await;
    let (pure, pure_tag) = asked(&fixture, "1.0").await;
    assert_ne!(both_tag, pure_tag);
    assert_eq!(both["url"], format!("{}/a2a/agents/echo/jsonrpc", fixture.base_url));
    assert_eq!((&both["preferredTransport"], &both["protocolVersion"]), (&json!("JSONRPC"), &json!("0.3.0")));
    for field in ["url", "preferredTransport", "protocolVersion", "security", "additionalInterfaces"] {
        assert!(pure.get(field).is_none(), "{field}");
    }
    assert_eq!(both["supportedInterfaces"], pure["supportedInterfaces"]);
    for version in ["0.3", "0.3.0", "2.0"] {
        assert_eq!(asked(&fixture, version).await.0, both, "{version}");
    }
    assert_eq!(asked(&fixture, "1").await.0, pure);
    assert_eq!(fixture.bare("GET", &format!("{path}?A2A-Version=1.0")).send().await.json(), pure);
    let url = both["url"].as_str().unwrap().trim_start_matches(&fixture.base_url);
    let message =
        json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let sent = fixture.bare("POST", url).header("x-sb-token", TOKEN).json(&call).send().await;
    assert_eq!(sent.json()["result"]["status"]["state"], "completed", "{}", sent.body);

    let none = Fixture::with(|options| options.compat = server::Compat::None).await;
    let (card, _) = asked(&none, "").await;
    assert!(card.get("url").is_none() && card.get("supportedInterfaces").is_some(), "{card}");
    assert!(none.bare("GET", PUBLIC).send().await.json().get("url").is_none());
    let all = Fixture::with(|options| options.compat = server::Compat::All).await;
    assert!(all.bare("GET", PUBLIC).send().await.json().get("url").is_some());
    assert!(fixture.bare("GET", PUBLIC).send().await.json().get("url").is_none());
}

#[tokio::test]
async fn a_public_url_is_what_cards_say() {
    let fixture = Fixture::with(|options| options.public_url = Some("https://sb.example/x/".to_owned())).await;
    let card = fixture.bare("GET", PUBLIC).send().await.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://sb.example/x/a2a/jsonrpc");
}
