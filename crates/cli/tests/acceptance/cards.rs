//! Agent cards: who may see them, what they say, how they are cached.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, array, message, reason, state, text, to},
    rig::{Rig, TOKEN},
};

const PUBLIC: &str = "/.well-known/agent-card.json";

fn interface<'a>(card: &'a Value, binding: &str) -> &'a Value {
    let interfaces = array(card, "/supportedInterfaces");
    let found = interfaces.iter().find(|interface| interface["protocolBinding"] == binding);
    found.unwrap_or_else(|| panic!("no {binding} in {card:#}"))
}

fn skill_ids(card: &Value) -> Vec<&str> {
    array(card, "/skills").iter().map(|skill| text(skill, "/id")).collect()
}

/// The conditional flow: an ETag that is weak, honoured in every form, and gives an empty 304.
async fn check_conditional_get(api: &Api, path: &str, cache: &str) {
    let whole = api.get(path).await;
    assert_eq!(whole.status, 200, "{}", whole.shown());
    let control = whole.header("cache-control").expect("a card is cached");
    assert!(control.starts_with(cache), "{control}");
    let age = control.split("max-age=").nth(1).expect("there is an age");
    let age = age.split(',').next().unwrap_or_default().trim();
    assert!((1..=300).contains(&age.parse::<u32>().expect("an age is a number")), "{control}");
    let etag = whole.header("etag").expect("a card has an ETag").to_owned();
    assert!(etag.starts_with("W/\"") && etag.ends_with('"') && etag.len() > 4, "{etag}");

    let strong = etag.trim_start_matches("W/").to_owned();
    for condition in [etag.clone(), strong, format!("\"other\", {etag}"), "*".to_owned()] {
        let request = api.request(Method::GET, path).header("If-None-Match", &condition);
        let reply = api.call(request).await;
        assert_eq!(reply.status, 304, "{condition}: {}", reply.shown());
        assert!(reply.body.is_empty(), "{}", reply.shown());
        assert_eq!(reply.header("etag"), Some(etag.as_str()));
        assert_eq!(reply.header("cache-control"), Some(control));
    }
    let other = api.request(Method::GET, path).header("If-None-Match", "W/\"other\"");
    assert_eq!(api.call(other).await.ok(), whole.json());
}

#[tokio::test]
async fn s3_44_well_known_card_is_public() {
    let rig = Rig::start().await;
    let nobody = rig.api().with_token(None);
    let reply = nobody.call(nobody.bare(Method::GET, PUBLIC)).await;
    let card = reply.ok();
    assert_eq!(reply.media_type(), "application/json");
    for field in ["name", "description", "version"] {
        assert!(!text(&card, &format!("/{field}")).is_empty());
    }
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);
    assert_eq!(card["capabilities"]["pushNotifications"], true, "X-6");
    assert!(!array(&card, "/defaultInputModes").is_empty());
    assert!(!array(&card, "/defaultOutputModes").is_empty());
    // X-5, X-34: it names nobody's agents and has one generic skill.
    assert_eq!(array(&card, "/skills").len(), 1);
    for agent in ["echo", "slow", "ask", "reject"] {
        assert!(!skill_ids(&card).contains(&agent));
    }
    // X-5: pure 1.0 form, no field of 0.3.
    for field in ["url", "preferredTransport", "protocolVersion", "security", "additionalInterfaces"] {
        assert!(card.get(field).is_none(), "{field}");
    }
    // X-15: the older address is not served.
    nobody.call(nobody.bare(Method::GET, "/.well-known/agent.json")).await.error(404);
}

#[tokio::test]
async fn x_6_s0_26_every_card_says_whether_webhooks_are_told() {
    let rig = Rig::start_with("[cards]\ncompat = \"0.3\"").await;
    let api = rig.api();
    let extended = api.rpc_ok("GetExtendedAgentCard", &json!({})).await;
    let of_agent = "/a2a/agents/echo/.well-known/agent-card.json";
    let for_old = api.call(api.bare(Method::GET, of_agent)).await.ok();
    assert_eq!(for_old["protocolVersion"], "0.3.0", "whoever names no version");
    for card in [api.get(PUBLIC).await.ok(), extended, api.get(of_agent).await.ok(), for_old] {
        assert_eq!(card["capabilities"]["pushNotifications"], true, "{card:#}");
        let extensions = array(&card, "/capabilities/extensions");
        assert!(extensions.iter().any(|extension| extension["uri"] == a2a::PUSH_CHUNKS), "{card:#}");
    }
    let arbiters = api.get("/v1/a2a/agents/echo/.well-known/agent-card.json").await.ok();
    assert_eq!(arbiters["capabilities"]["pushNotifications"], false, "nothing is pushed there");
}

#[tokio::test]
async fn s3_45_card_advertises_both_bindings() {
    let rig = Rig::start().await;
    let api = rig.api();
    // X-37: the address never comes from the Host header.
    let request = api.request(Method::GET, PUBLIC).header("Host", "somewhere.example:1");
    let card = api.call(request).await.ok();

    let rest = interface(&card, "HTTP+JSON");
    assert_eq!(rest["protocolVersion"], "1.0");
    assert_eq!(text(rest, "/url"), format!("{}/a2a", api.base()));
    let sent = api.post(&format!("{}/message:send", text(rest, "/url")), &json!({"message": message("hello")})).await;
    assert_eq!(state(&sent.task()), "COMPLETED");

    let rpc = interface(&card, "JSONRPC");
    assert_eq!(rpc["protocolVersion"], "1.0");
    assert_eq!(text(rpc, "/url"), format!("{}/a2a/jsonrpc", api.base()));
    let sent = api.rpc_at(text(rpc, "/url"), "SendMessage", &json!({"message": message("hello")})).await;
    assert_eq!(state(&sent["result"]["task"]), "COMPLETED");
}

#[tokio::test]
async fn s3_61_extended_card_needs_a_credential() {
    let rig = Rig::start().await;
    let api = rig.api();
    let nobody = api.with_token(None);
    assert_eq!(nobody.get("/a2a/extendedAgentCard").await.error(401)["status"], "UNAUTHENTICATED");
    let card = api.get("/a2a/extendedAgentCard").await.ok();
    for agent in ["echo", "stream", "slow", "ask", "auth", "fail", "reject", "message"] {
        assert!(skill_ids(&card).contains(&agent), "{agent} in {card:#}");
    }
    assert_eq!(api.rpc_ok("GetExtendedAgentCard", &json!({})).await, card);
}

#[tokio::test]
async fn the_gateway_s_card_asks_for_no_tenant_that_its_interfaces_lack() {
    let rig = Rig::start().await;
    let card = rig.api().get(PUBLIC).await.ok();
    assert!(array(&card, "/supportedInterfaces").iter().all(|interface| interface.get("tenant").is_none()));
    assert!(!text(&card, "/description").contains("tenant"), "{card:#}");
}

#[tokio::test]
async fn s3_65_agent_scoped_extended_card() {
    let rig = Rig::start().await;
    let api = rig.api();
    let card = api.get("/a2a/agents/echo/extendedAgentCard").await.ok();
    assert!(text(&card, "/name").to_lowercase().contains("echo"), "{card:#}");
    assert!(!array(&card, "/skills").is_empty());
    assert_eq!(text(interface(&card, "HTTP+JSON"), "/url"), format!("{}/a2a/agents/echo", api.base()));
    assert_eq!(text(interface(&card, "JSONRPC"), "/url"), format!("{}/a2a/agents/echo/jsonrpc", api.base()));
    assert_ne!(api.get("/a2a/agents/slow/extendedAgentCard").await.ok()["name"], card["name"]);

    // The same agent by the proto's route, by `tenant` and over JSON-RPC.
    assert_eq!(api.get("/a2a/echo/extendedAgentCard").await.ok(), card);
    assert_eq!(api.get("/a2a/extendedAgentCard?tenant=echo").await.ok(), card);
    assert_eq!(api.rpc_ok("GetExtendedAgentCard", &json!({"tenant": "echo"})).await, card);

    // X-5, X-34: the same card at the agent's well-known address, for everybody, also to those who know 0.3 alone.
    let path = "/a2a/agents/echo/.well-known/agent-card.json";
    assert_eq!(api.get(path).await.ok(), card);
    let nobody = api.with_token(None);
    let both = nobody.call(nobody.bare(Method::GET, path)).await.ok();
    assert_eq!(both["supportedInterfaces"], card["supportedInterfaces"]);
    assert_eq!(text(&both, "/url"), format!("{}/a2a/agents/echo/jsonrpc", api.base()));
    let older = nobody.call(nobody.bare(Method::GET, "/v1/a2a/agents/echo/.well-known/agent-card.json")).await.ok();
    assert_eq!(text(&older, "/url"), format!("{}/v1/a2a/agents/echo", api.base()));

    for path in ["/a2a/agents/nobody/extendedAgentCard", "/a2a/agents/nobody/.well-known/agent-card.json"] {
        let error = api.get(path).await.error(404);
        assert_eq!(super::http::reason(&error), "AGENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn s3_86_well_known_card_is_cached_publicly() {
    let mut rig = Rig::start().await;
    check_conditional_get(&rig.api().with_token(None), PUBLIC, "public").await;
    let before = rig.api().get(PUBLIC).await.header("etag").unwrap().to_owned();

    rig.kill9();
    rig.restart_with("", &["--public-url", "https://agents.example.com/"]).await;
    let reply = rig.api().call(rig.api().bare(Method::GET, PUBLIC).header("Host", "agents.example.com")).await;
    assert_ne!(reply.header("etag"), Some(before.as_str()), "another card has another ETag");
    assert_eq!(text(interface(&reply.json(), "HTTP+JSON"), "/url"), "https://agents.example.com/a2a");
}

#[tokio::test]
async fn s3_87_extended_cards_are_cached_privately() {
    let rig = Rig::start().await;
    let api = rig.api();
    check_conditional_get(&api.with_token(None), "/a2a/agents/echo/.well-known/agent-card.json", "public").await;
    for path in ["/a2a/extendedAgentCard", "/a2a/agents/echo/extendedAgentCard"] {
        check_conditional_get(&api, path, "private").await;
        let vary = api.get(path).await.header("vary").unwrap().to_lowercase();
        for name in ["authorization", "x-api-key", "x-sb-token"] {
            assert!(vary.contains(name), "{vary}");
        }
        // A condition is no way around the credential.
        let nobody = api.with_token(None);
        let request = nobody.request(Method::GET, path).header("If-None-Match", "*");
        nobody.call(request).await.error(401);
    }
}

#[tokio::test]
async fn s3_103_card_says_how_to_authenticate() {
    let mut rig = Rig::start().await;
    let card = rig.api().get(PUBLIC).await.ok();
    let schemes = &card["securitySchemes"];
    assert_eq!(schemes["bearerAuth"]["httpAuthSecurityScheme"]["scheme"], "Bearer", "{card:#}");
    let key = &schemes["sbTokenAuth"]["apiKeySecurityScheme"];
    assert_eq!((&key["location"], &key["name"]), (&json!("header"), &json!("x-sb-token")), "{card:#}");
    let mut either = Vec::new();
    for requirement in array(&card, "/securityRequirements") {
        let schemes = requirement["schemes"].as_object().unwrap();
        assert_eq!(schemes.len(), 1, "either of them, not both: {card:#}");
        either.extend(schemes.keys().cloned());
    }
    either.sort();
    assert_eq!(either, ["bearerAuth", "sbTokenAuth"]);
    assert!(!card.to_string().contains(TOKEN));

    rig.kill9();
    rig.restart_with("", &["--no-auth"]).await;
    let nobody = rig.api().with_token(None);
    let card = nobody.get(PUBLIC).await.ok();
    assert!(card.get("securitySchemes").is_none(), "{card:#}");
    assert!(card.get("securityRequirements").is_none(), "{card:#}");
    // X-50: what needs a credential cannot be had where there are none.
    assert_eq!(card["capabilities"]["extendedAgentCard"], false);
    for path in ["/a2a/extendedAgentCard", "/a2a/agents/echo/extendedAgentCard"] {
        assert_eq!(reason(&nobody.get(path).await.error(400)), "UNSUPPORTED_OPERATION", "{path}");
    }
    assert!(nobody.get("/a2a/agents/echo/.well-known/agent-card.json").await.ok().get("securitySchemes").is_none());
    assert_eq!(state(&nobody.send(&json!({"message": message("hello")})).await), "COMPLETED");
}

/// An agent that requires an extension.
const STRICT: &str = r#"
kind = "command"
[command]
argv = ["cat"]
[[extensions]]
uri = "urn:example:needed"
required = true
"#;

#[tokio::test]
async fn x_51_cards_tell_of_required_extensions_and_do_not_insist_on_them() {
    let rig = Rig::start_with_agents("", &[("strict.toml", STRICT)], None).await;
    let api = rig.api();
    let refused = api.post("/a2a/message:send", &to("strict", "hello")).await.error(400);
    assert_eq!(reason(&refused), "EXTENSION_SUPPORT_REQUIRED");
    let refused = api.get("/a2a/agents/strict/tasks").await.error(400);
    assert_eq!(reason(&refused), "EXTENSION_SUPPORT_REQUIRED");
    for path in ["/a2a/agents/strict/.well-known/agent-card.json", "/a2a/agents/strict/extendedAgentCard"] {
        let card = api.get(path).await.ok();
        let declared = array(&card, "/capabilities/extensions");
        let is_told = declared.iter().any(|one| one["uri"] == "urn:example:needed" && one["required"] == true);
        assert!(is_told, "{path}: {card:#}");
    }
}
