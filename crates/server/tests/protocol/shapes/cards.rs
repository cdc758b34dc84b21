//! Agent cards: who may see them, what they say, whose URLs they name, how they are cached and signed.

use a2a::signature::{Algorithm, Form, Trusted, Verified, decode_keys, verify};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::protocol::{
    TOKEN,
    grpc::{A2A, GATEWAY, Grpc},
    http::{Api, Reply, array, reason, state, text},
    player::play,
    raw,
    scenario::{CURRENT, message, said, step},
    server::{Setup, TestServer},
};

const PUBLIC: &str = "/.well-known/agent-card.json";
const KEYS: &str = "/.well-known/jwks.json";
const AGENT: &str = "/a2a/agents/echo/.well-known/agent-card.json";
const OLDER: &str = "/v1/a2a/agents/echo/.well-known/agent-card.json";
const EXTENDED: &str = "/a2a/extendedAgentCard";
const OF_AGENT: &str = "/a2a/agents/echo/extendedAgentCard";

/// What only 0.3 has on a card.
const OLD_FIELDS: [&str; 5] = ["url", "preferredTransport", "protocolVersion", "security", "additionalInterfaces"];

/// A server with an agent for one tenant, whose token is given.
async fn with_secret() -> (TestServer, String) {
    let secret = "kind = \"command\"\ntenants = [\"bob\"]\n[command]\nargv = [\"cat\"]\n";
    let server = Setup::new().file("secret.toml", secret).start().await;
    let bob = server.add_tenant("bob").await;
    (server, bob)
}

fn interface<'a>(card: &'a Value, binding: &str) -> &'a Value {
    let interfaces = array(card, "/supportedInterfaces");
    let found = interfaces.iter().find(|interface| interface["protocolBinding"] == binding);
    found.unwrap_or_else(|| panic!("no {binding} in {card:#}"))
}

fn skill_ids(card: &Value) -> Vec<&str> {
    array(card, "/skills").iter().map(|skill| text(skill, "/id")).collect()
}

fn has_old_fields(card: &Value) -> bool {
    let has: Vec<bool> = OLD_FIELDS[..4].iter().map(|field| card.get(field).is_some()).collect();
    assert!(has.iter().all(|one| *one == has[0]), "{card:#}");
    has[0]
}

/// A GET without a version, and with these headers.
async fn get(api: &Api, path: &str, headers: &str) -> Reply {
    raw::call(api, &format!("GET {path}\nA2A-Version:{headers}"), "").await
}

#[tokio::test]
async fn s3_44_x_5_x_34_the_well_known_card_is_public_and_names_nobody() {
    let (server, _) = with_secret().await;
    let nobody = server.api().with_token(None);
    // the address never comes from the Host header.
    let reply = get(&nobody, PUBLIC, "\nHost: somewhere.example:1").await;
    let card = reply.ok();
    assert_eq!(reply.media_type(), "application/json");
    for field in ["name", "description", "version"] {
        assert!(!text(&card, &format!("/{field}")).is_empty());
    }
    for capability in ["streaming", "extendedAgentCard", "pushNotifications"] {
        assert_eq!(card["capabilities"][capability], true, "X-6: {capability}");
    }
    assert!(!array(&card, "/defaultInputModes").is_empty() && !array(&card, "/defaultOutputModes").is_empty());
    assert_eq!(array(&card, "/skills").len(), 1, "a generic one");
    for word in ["echo", "slow", "ask", "reject", "secret"] {
        assert!(!card["skills"].to_string().contains(&format!("\"{word}\"")), "{word}");
    }
    assert!(OLD_FIELDS.iter().all(|field| card.get(field).is_none()), "X-5: {card:#}");
    assert!(array(&card, "/supportedInterfaces").iter().all(|interface| interface.get("tenant").is_none()));
    assert!(!text(&card, "/description").contains("tenant"), "{card:#}");
    assert!(!card.to_string().contains("somewhere.example") && !card.to_string().contains(TOKEN));
    // the older address is not served.
    get(&nobody, "/.well-known/agent.json", "").await.error(404);

    // S3-45: it names both bindings, and they work there.
    let api = server.api();
    let rest = interface(&card, "HTTP+JSON");
    assert_eq!((text(rest, "/protocolVersion"), text(rest, "/url")), ("1.0", &*format!("{}/a2a", server.url)));
    let sent = api.post(&format!("{}/message:send", text(rest, "/url")), &json!({"message": said("hello")})).await;
    assert_eq!(state(&sent.task()), "COMPLETED");
    let rpc = interface(&card, "JSONRPC");
    assert_eq!((text(rpc, "/protocolVersion"), text(rpc, "/url")), ("1.0", &*format!("{}/a2a/jsonrpc", server.url)));
    let sent = api.rpc_at(text(rpc, "/url"), "SendMessage", &json!({"message": said("hello")})).await;
    assert_eq!(state(&sent["result"]["task"]), "COMPLETED");
}

#[tokio::test]
async fn s3_45_x_37_a_public_url_is_what_cards_say() {
    let server = Setup::new().edge(|edge| edge.public_url = Some("https://sb.example/x/".to_owned())).start().await;
    let card = get(&server.api(), PUBLIC, "\nHost: sb.example").await.ok();
    assert_eq!(text(interface(&card, "JSONRPC"), "/url"), "https://sb.example/x/a2a/jsonrpc");
    assert_eq!(text(interface(&card, "HTTP+JSON"), "/url"), "https://sb.example/x/a2a");
}

#[tokio::test]
async fn s3_61_s3_65_extended_cards_are_for_callers_and_the_same_by_every_binding() {
    let (server, bob) = with_secret().await;
    let (api, nobody) = (server.api(), server.api().with_token(None));
    for path in [EXTENDED, OF_AGENT] {
        assert_eq!(reason(&nobody.get(path).await.error(401)), "UNAUTHENTICATED");
    }
    let reply = api.get(EXTENDED).await;
    assert_eq!(reply.media_type(), "application/a2a+json");
    let mut seen = vec!["relay", "ask", "auth", "echo", "fail", "message", "reject", "slow", "stream"];
    assert_eq!(skill_ids(&reply.ok()), seen);
    seen.insert(7, "secret");
    assert_eq!(skill_ids(&api.with_token(Some(&bob)).get(EXTENDED).await.ok()), seen, "also what is theirs alone");

    let card = api.get(OF_AGENT).await.ok();
    assert!(text(&card, "/name").to_lowercase().contains("echo") && !array(&card, "/skills").is_empty(), "{card:#}");
    assert_eq!(text(interface(&card, "HTTP+JSON"), "/url"), format!("{}/a2a/agents/echo", server.url));
    assert_eq!(text(interface(&card, "JSONRPC"), "/url"), format!("{}/a2a/agents/echo/jsonrpc", server.url));
    assert_ne!(api.get("/a2a/agents/slow/extendedAgentCard").await.ok()["name"], card["name"]);
    // By the proto's route, by `tenant`, over JSON-RPC, and at its well-known address.
    for path in ["/a2a/echo/extendedAgentCard", "/a2a/extendedAgentCard?tenant=echo", AGENT] {
        assert_eq!(api.get(path).await.ok(), card, "{path}");
    }
    assert_eq!(api.rpc_ok("GetExtendedAgentCard", &json!({"tenant": "echo"})).await, card);
    assert_eq!(api.rpc_ok("GetExtendedAgentCard", &json!({})).await, reply.ok());
    let both = get(&nobody, AGENT, "").await.ok();
    assert_eq!(both["supportedInterfaces"], card["supportedInterfaces"]);
    assert_eq!(text(&both, "/url"), format!("{}/a2a/agents/echo/jsonrpc", server.url));
    assert_eq!(text(&get(&nobody, OLDER, "").await.ok(), "/url"), format!("{}/v1/a2a/agents/echo", server.url));
    for agent in ["nobody", "secret"] {
        for path in ["extendedAgentCard", ".well-known/agent-card.json"] {
            let error = api.get(&format!("/a2a/agents/{agent}/{path}")).await.error(404);
            assert_eq!(reason(&error), "AGENT_NOT_FOUND");
        }
    }
    play(&CURRENT, [step("GetExtendedAgentCard", json!({"tenant": "nobody"})).refused("AGENT_NOT_FOUND")]).await;
}

#[tokio::test]
async fn x_34_the_card_of_an_agent_is_as_public_as_the_agent() {
    let (server, bob) = with_secret().await;
    let (api, nobody) = (server.api(), server.api().with_token(None));
    for prefix in ["/a2a", "/v1/a2a"] {
        let path = |agent: &str| format!("{prefix}/agents/{agent}/.well-known/agent-card.json");
        let open = get(&nobody, &path("echo"), "").await;
        assert_eq!((open.status, open.header("cache-control")), (200, Some("public, max-age=60")), "{}", open.shown());
        assert_eq!(open.header("vary"), (prefix == "/a2a").then_some("A2A-Version"));
        assert_eq!((open.header("a2a-version"), open.media_type()), (Some("1.0"), "application/json"));

        // One that belongs to some tenants does not exist for anybody else, and no credential is tried out here for free.
        let unknown = get(&nobody, &path("nobody"), "").await;
        for refused in [&get(&nobody, &path("secret"), "").await, &get(&api, &path("secret"), "").await, &unknown] {
            assert_eq!(reason(&refused.error(404)), "AGENT_NOT_FOUND");
            assert_eq!(refused.json().to_string().replace("secret", "nobody"), unknown.json().to_string());
            assert_eq!(refused.header("cache-control"), Some("no-store"));
        }
        assert_eq!(get(&nobody, &path("echo"), "\nx-sb-token: sb_wrong").await.status, 401);
        let bobs = get(&api.with_token(Some(&bob)), &path("secret"), "").await;
        assert_eq!((bobs.status, bobs.header("cache-control")), (200, Some("private, max-age=60")));
        assert_eq!(raw::call(&nobody, &format!("POST {}", path("echo")), "").await.status, 405);
    }
    let closed = Setup::new().edge(|edge| edge.public_cards = false).start().await;
    assert_eq!(get(&closed.api().with_token(None), AGENT, "").await.status, 401);
    let known = closed.api().get(AGENT).await;
    assert_eq!((known.status, known.header("cache-control")), (200, Some("private, max-age=60")));
}

#[tokio::test]
async fn x_5_x_34_s0_26_s0_29_the_card_of_an_agent_has_the_fields_of_0_3_unless_1_0_is_asked_for() {
    let server = TestServer::start().await;
    let api = server.api();
    let asked = async |query: &str, version: &str| {
        let reply = get(&api, &format!("{AGENT}{query}"), version).await;
        (reply.ok(), reply.header("etag").unwrap().to_owned())
    };
    let (both, both_tag) = asked("", "").await;
    let (pure, pure_tag) = asked("", "\nA2A-Version: 1.0").await;
    assert_ne!(both_tag, pure_tag);
    assert_eq!(both["url"], format!("{}/a2a/agents/echo/jsonrpc", server.url));
    assert_eq!((&both["preferredTransport"], &both["protocolVersion"]), (&json!("JSONRPC"), &json!("0.3.0")));
    assert!(has_old_fields(&both) && !has_old_fields(&pure));
    assert_eq!(both["supportedInterfaces"], pure["supportedInterfaces"]);
    for version in ["0.3", "0.3.0", "2.0"] {
        assert_eq!(asked("", &format!("\nA2A-Version: {version}")).await.0, both, "{version}");
    }
    assert_eq!(asked("", "\nA2A-Version: 1").await.0, pure);
    assert_eq!(asked("?A2A-Version=1.0", "").await.0, pure);
    // What it names is where 0.3 is spoken.
    let said = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}});
    let head = format!("POST {}\nA2A-Version:\nContent-Type: application/json", text(&both, "/url"));
    assert_eq!(raw::call(&api, &head, call.to_string()).await.ok()["result"]["status"]["state"], "completed");

    for (compat, of_agent, public) in [(::server::Compat::None, false, false), (::server::Compat::All, true, true)] {
        let server = Setup::new().edge(|edge| edge.compat = compat).start().await;
        let api = server.api();
        let cards = [(AGENT, of_agent, "/agents/echo"), (PUBLIC, public, "")];
        for (path, is_old, at) in cards {
            let card = get(&api, path, "").await.ok();
            assert_eq!(has_old_fields(&card), is_old, "{path}: {card:#}");
            if is_old {
                assert_eq!(
                    (&card["protocolVersion"], &card["preferredTransport"]),
                    (&json!("0.3.0"), &json!("JSONRPC"))
                );
                assert_eq!(card["url"], format!("{}/a2a{at}/jsonrpc", server.url));
                let bearer = &card["securitySchemes"]["bearerAuth"];
                assert_eq!((&bearer["type"], &bearer["scheme"]), (&json!("http"), &json!("Bearer")));
                assert_eq!(card["security"][0], json!({"bearerAuth": []}));
                assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
            }
            // every card says whether webhooks are told.
            assert_eq!(card["capabilities"]["pushNotifications"], true, "{card:#}");
            let extensions = array(&card, "/capabilities/extensions");
            assert!(extensions.iter().any(|extension| extension["uri"] == a2a::PUSH_CHUNKS), "{card:#}");
        }
        let extended = api.rpc_ok("GetExtendedAgentCard", &json!({})).await;
        assert_eq!(extended["capabilities"]["pushNotifications"], true, "{extended:#}");
        let arbiters = get(&api, OLDER, "").await.ok();
        assert_eq!(arbiters["capabilities"]["pushNotifications"], false, "nothing is pushed there");
    }
}

#[tokio::test]
async fn s3_86_s3_87_a_known_card_is_not_sent_again() {
    let server = TestServer::start().await;
    let (api, nobody) = (server.api(), server.api().with_token(None));
    for (path, caller, cache) in [
        (PUBLIC, &nobody, "public, max-age=60"),
        (AGENT, &nobody, "public, max-age=60"),
        (OLDER, &nobody, "public, max-age=60"),
        (EXTENDED, &api, "private, max-age=60"),
        (OF_AGENT, &api, "private, max-age=60"),
    ] {
        let whole = caller.get(path).await;
        assert_eq!((whole.status, whole.header("cache-control")), (200, Some(cache)), "{path}: {}", whole.shown());
        let etag = whole.header("etag").expect("a card has an ETag").to_owned();
        assert!(etag.starts_with("W/\"") && etag.ends_with('"') && etag.len() > 4, "{etag}");
        let strong = etag.trim_start_matches("W/").to_owned();
        for condition in [etag.clone(), strong, format!("\"other\", {etag}"), "*".to_owned()] {
            let reply = raw::call(caller, &format!("GET {path}\nIf-None-Match: {condition}"), "").await;
            assert_eq!((reply.status, reply.body.len()), (304, 0), "{condition}: {}", reply.shown());
            assert_eq!((reply.header("etag"), reply.header("cache-control")), (Some(etag.as_str()), Some(cache)));
        }
        let other = raw::call(caller, &format!("GET {path}\nIf-None-Match: W/\"other\""), "").await;
        assert_eq!(other.ok(), whole.json());
        let head = raw::call(caller, &format!("HEAD {path}"), "").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length").unwrap(), whole.body.len().to_string());
        assert_eq!(whole.header("vary").is_none(), path == PUBLIC || path == OLDER, "{path}");
        if cache.starts_with("private") {
            let vary = whole.header("vary").unwrap().to_lowercase();
            assert!(["authorization", "x-api-key", "x-sb-token"].iter().all(|name| vary.contains(name)), "{vary}");
            // A condition is no way around the credential.
            raw::call(&nobody, &format!("GET {path}\nIf-None-Match: *"), "").await.error(401);
        }
    }
    let before = nobody.get(PUBLIC).await.header("etag").unwrap().to_owned();
    let public = Setup::new().edge(|edge| edge.public_url = Some("https://agents.example.com/".to_owned()));
    let server = server.restart(public).await;
    let reply = get(&server.api(), PUBLIC, "\nHost: agents.example.com").await;
    assert_ne!(reply.header("etag"), Some(before.as_str()), "another card has another ETag");
}

#[tokio::test]
async fn s3_103_x_50_a_card_says_how_to_authenticate_and_needs_it() {
    let server = TestServer::start().await;
    let card = server.api().get(PUBLIC).await.ok();
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

    let server = Setup::new().edge(|edge| edge.auth = false).start().await;
    let nobody = server.api().with_token(None);
    let card = nobody.get(PUBLIC).await.ok();
    assert!(card.get("securitySchemes").is_none() && card.get("securityRequirements").is_none(), "{card:#}");
    assert!(nobody.get(AGENT).await.ok().get("securitySchemes").is_none());
    // what needs a credential cannot be had where there are none.
    assert_eq!(card["capabilities"]["extendedAgentCard"], false);
    for path in [EXTENDED, OF_AGENT] {
        assert_eq!(reason(&nobody.get(path).await.error(400)), "UNSUPPORTED_OPERATION", "{path}");
    }
    let refused = server.grpc().without("authorization").call(A2A, "GetExtendedAgentCard", &json!({})).await;
    assert_eq!(reason(&refused.error(9)), "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn x_51_cards_tell_of_required_extensions_and_do_not_insist_on_them() {
    let strict =
        "kind = \"command\"\n[command]\nargv = [\"cat\"]\n[[extensions]]\nuri = \"urn:needed\"\nrequired = true\n";
    let server = Setup::new().file("strict.toml", strict).start().await;
    for path in ["/a2a/agents/strict/.well-known/agent-card.json", "/a2a/agents/strict/extendedAgentCard"] {
        let card = server.api().get(path).await.ok();
        let declared = array(&card, "/capabilities/extensions");
        assert!(declared.iter().any(|one| one["uri"] == "urn:needed" && one["required"] == true), "{path}: {card:#}");
    }
    assert_eq!(reason(&server.api().get("/a2a/agents/strict/tasks").await.error(400)), "EXTENSION_SUPPORT_REQUIRED");
}

#[tokio::test]
async fn s3_99_s3_102_x_30_cards_name_grpc_only_where_it_has_a_port_of_its_own() {
    const STRUCT: &str = "https://secondbrain.local/a2a/bindings/grpc-struct/v1";
    let bindings = |card: &Value| -> Vec<String> {
        array(card, "/supportedInterfaces").iter().map(|one| text(one, "/protocolBinding").to_owned()).collect()
    };
    let plain = TestServer::start().await;
    for path in [PUBLIC, OF_AGENT, EXTENDED, AGENT] {
        assert_eq!(bindings(&plain.api().get(path).await.ok()), ["JSONRPC", "HTTP+JSON"], "{path}");
    }
    let server = Setup::new().edge(|edge| edge.grpc_port = Some(0)).start().await;
    // google-adk refuses a card with any interface off its origin, and finds agents by their own cards.
    assert_eq!(bindings(&server.api().get(AGENT).await.ok()), ["JSONRPC", "HTTP+JSON"]);
    for path in [PUBLIC, OF_AGENT, EXTENDED] {
        let card = server.api().get(path).await.ok();
        assert_eq!(bindings(&card), ["JSONRPC", "HTTP+JSON", "GRPC", STRUCT], "{path}");
        for (at, service) in [(2, A2A), (3, GATEWAY)] {
            let interface = &card["supportedInterfaces"][at];
            let target = text(interface, "/url");
            assert!(target.strip_prefix("127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok()), "{target}");
            assert_ne!(format!("http://{target}"), server.url);
            let tenant = interface.get("tenant").and_then(Value::as_str).unwrap_or("echo");
            assert_eq!(interface.get("tenant").is_some(), path == OF_AGENT, "where no URL names the agent");
            for base in [format!("http://{target}"), server.url.clone()] {
                let sent = Grpc::new(&base).ok(service, "SendMessage", &message(tenant, said("hi"))).await;
                assert_eq!(state(&sent["task"]), "COMPLETED");
            }
            let other = Api::new(&format!("http://{target}"), Some(TOKEN));
            assert_eq!(other.get("/a2a/tasks").await.status, 404, "nothing else is answered there");
        }
    }
}

/// The keys that the server publishes, trusted for its origin.
async fn trusted(api: &Api, base: &str) -> Vec<Trusted> {
    let keys = decode_keys(&api.get(KEYS).await.body).expect("it is a key set");
    keys.into_iter().map(|key| Trusted { key, origin: Some(base.to_owned()) }).collect()
}

fn check(card: &Value, keys: &[Trusted], base: &str) -> Result<Verified, a2a::signature::Refusal> {
    verify(card.to_string().as_bytes(), keys, Some(base), exchange::card_keys::seconds_now())
}

/// Every card there is, by how it is asked for.
async fn cards(api: &Api) -> Vec<(&'static str, Value)> {
    let called = async |path: &str, version: &str, method: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let head = format!("POST {path}\nA2A-Version: {version}\nContent-Type: application/json");
        let mut answer = raw::call(api, &head, body.to_string()).await.ok();
        assert!(answer["error"].is_null(), "{method} at {path}: {answer}");
        answer["result"].take()
    };
    let old = "agent/getAuthenticatedExtendedCard";
    vec![
        ("gateway", get(api, PUBLIC, "").await.ok()),
        ("agent, both versions", get(api, AGENT, "").await.ok()),
        ("agent, 1.0", api.get(AGENT).await.ok()),
        ("older surface", get(api, OLDER, "").await.ok()),
        ("older surface, own path", get(api, "/v1/a2a/agents/echo/agent-card.json", "").await.ok()),
        ("extended", api.get(EXTENDED).await.ok()),
        ("extended, of an agent", api.get(OF_AGENT).await.ok()),
        ("extended, JSON-RPC", called("/a2a/jsonrpc", "1.0", "GetExtendedAgentCard").await),
        ("extended, 0.3", called("/a2a/jsonrpc", "0.3", old).await),
        ("extended, older surface", called("/v1/a2a/agents/echo", "1.0", old).await),
    ]
}

#[tokio::test]
async fn s3_84_every_card_is_signed_once_and_a_changed_one_fails() {
    let server = TestServer::start().await;
    let (api, base) = (server.api(), server.url.clone());
    let keys = trusted(&api.with_token(None), &base).await;
    for (name, card) in cards(&api).await {
        for signature in array(&card, "/signatures") {
            let header = URL_SAFE_NO_PAD.decode(text(signature, "/protected")).expect("a header is base64url");
            let header: Value = serde_json::from_slice(&header).expect("a header is JSON");
            assert_eq!((text(&header, "/alg"), text(&header, "/typ")), ("ES256", "JOSE"), "{name}");
            assert_eq!(text(&header, "/kid"), keys[0].key.kid, "{name}");
            assert_eq!(text(&header, "/jku"), format!("{base}{KEYS}"), "{name}");
            assert_eq!(URL_SAFE_NO_PAD.decode(text(signature, "/signature")).map(|bytes| bytes.len()), Ok(64));
        }
        let verified = check(&card, &keys, &base).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(verified.uncovered, [""; 0], "{name}");
        let is_pure = card.get("url").is_none();
        assert_eq!(verified.form, if is_pure { Form::Spec } else { Form::Plain }, "{name}");

        assert!(check(&card, &keys, "https://elsewhere.example").is_err(), "{name}: for another origin");
        assert!(check(&card, &[], &base).is_err(), "{name}: by its own word");
        for member in ["name", "description", "version", "skills", "url", "supportedInterfaces", "securitySchemes"] {
            if card.get(member).is_none() {
                continue;
            }
            let mut changed = card.clone();
            changed[member] = match &card[member] {
                Value::String(text) => json!(format!("{text} ")),
                Value::Object(_) => json!({"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "Basic"}}}),
                _ => json!([]),
            };
            assert!(check(&changed, &keys, &base).is_err(), "{name}: {member}");
        }
    }
    // Once, and not with each request.
    let first = get(&api, AGENT, "").await;
    for _ in 0..3 {
        let again = get(&api, AGENT, "").await;
        assert_eq!((again.header("etag"), &again.body), (first.header("etag"), &first.body));
    }
}

#[tokio::test]
async fn the_public_keys_are_for_everybody() {
    let server = TestServer::start().await;
    let nobody = server.api().with_token(None);
    let reply = get(&nobody, KEYS, "").await;
    let set = reply.ok();
    assert_eq!(reply.media_type(), "application/jwk-set+json");
    assert_eq!(reply.header("cache-control"), Some("public, max-age=60"));
    let etag = reply.header("etag").expect("it has a tag").to_owned();
    assert_eq!(get(&nobody, KEYS, &format!("\nIf-None-Match: {etag}")).await.status, 304);
    let key = array(&set, "/keys")[0].as_object().expect("a key is an object");
    assert_eq!(key.keys().collect::<Vec<_>>(), ["alg", "crv", "kid", "kty", "use", "x", "y"], "and no secret");
    assert_eq!(decode_keys(&reply.body).expect("it is a key set")[0].algorithm, Algorithm::Es256);
    assert_eq!(raw::call(&nobody, &format!("POST {KEYS}"), "").await.status, 405);
}

/// The URLs on a card.
fn urls(card: &Value) -> Vec<&str> {
    let named = [&card["supportedInterfaces"], &card["additionalInterfaces"]].into_iter().filter_map(Value::as_array);
    let interfaces = named.flatten().map(|interface| text(interface, "/url"));
    interfaces.chain(card.get("url").and_then(Value::as_str)).collect()
}

#[tokio::test]
async fn x_37_a_card_fetched_by_localhost_names_localhost_without_a_public_url_too() {
    let server = TestServer::start().await;
    let (configured, by_address) = (server.url.clone(), server.api());
    let base = configured.replace("127.0.0.1", "localhost");
    let by_name = Api::new(&base, Some(TOKEN));
    for (name, card) in cards(&by_name).await {
        assert!(urls(&card).iter().all(|url| url.starts_with(&base)), "{name}: {:?}", urls(&card));
        let keys = trusted(&by_name.with_token(None), &base).await;
        check(&card, &keys, &base).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    }
    for (api, base, cache) in
        [(&by_name, &base, "private, max-age=60"), (&by_address, &configured, "public, max-age=60")]
    {
        for path in [PUBLIC, AGENT] {
            let reply = get(&api.with_token(None), path, "").await;
            assert!(urls(&reply.ok())[0].starts_with(base.as_str()), "{}", reply.shown());
            assert_eq!(reply.header("cache-control"), Some(cache), "{path} at {base}");
        }
    }
    // Another user of this machine may listen at another port, and a signature would vouch for it.
    let reply = get(&by_address.with_token(None), AGENT, "\nHost: localhost:1").await;
    assert!(urls(&reply.ok())[0].starts_with(&configured), "{}", reply.shown());
}

#[tokio::test]
async fn x_37_a_card_names_the_loopback_address_that_it_was_fetched_by_and_is_signed_so() {
    let setup = Setup::new().edge(|edge| {
        edge.public_url = Some("https://agents.example.com/sb".to_owned());
        edge.grpc_port = Some(0);
    });
    let server = setup.start().await;
    let (api, base) = (server.api(), server.url.clone());
    for (name, card) in cards(&api).await {
        let (urls, targets): (Vec<&str>, Vec<&str>) = urls(&card).into_iter().partition(|url| url.contains("://"));
        assert!(urls.iter().all(|url| url.starts_with(&base)), "{name}: {urls:?}");
        assert!(targets.iter().all(|target| target.starts_with("127.0.0.1:")), "{name}: {targets:?}");
        let keys = trusted(&api.with_token(None), &base).await;
        check(&card, &keys, &base).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    }
    // At the port for gRPC the card is that of the main one, where everything else is.
    let card = api.get(EXTENDED).await.ok();
    let target = urls(&card).into_iter().find(|url| !url.contains("://")).unwrap().to_owned();
    let same = Grpc::new(&format!("http://{target}")).ok(A2A, "GetExtendedAgentCard", &json!({})).await;
    assert_eq!(urls(&same), urls(&card));
    let nobody = api.with_token(None);
    let fetch = async |headers: &str| get(&nobody, PUBLIC, headers).await;
    let named = format!("localhost:{}", base.rsplit(':').next().unwrap());
    let host = format!("\nHost: {named}");
    let local = fetch(&host).await;
    assert_eq!(urls(&local.ok())[0], format!("http://{named}/a2a/jsonrpc"));
    assert_eq!(local.header("cache-control"), Some("private, max-age=60"), "it is nobody else's");
    let etag = local.header("etag").unwrap().to_owned();
    for headers in [
        "\nHost: agents.example.com".to_owned(),
        "\nHost: evil.example".to_owned(),
        "\nHost: localhost.evil.example".to_owned(),
        "\nHost: 10.0.0.1:8765".to_owned(),
        // Somebody else may listen there.
        "\nHost: localhost:1".to_owned(),
        "\nHost: localhost".to_owned(),
        host.replace("localhost", "127.0.0.2"),
        format!("{host}\nX-Forwarded-For: 203.0.113.9"),
        format!("{host}\nForwarded: for=203.0.113.9"),
        format!("{host}\nVia: 1.1 proxy"),
    ] {
        let public = fetch(&headers).await;
        assert_eq!(urls(&public.ok())[0], "https://agents.example.com/sb/a2a/jsonrpc", "{headers:?}");
        assert_eq!(public.header("cache-control"), Some("public, max-age=60"), "{headers:?}");
        let again = fetch(&format!("{headers}\nIf-None-Match: {etag}")).await;
        assert_eq!(again.status, 200, "the other card has another tag: {headers:?}");
    }
}
