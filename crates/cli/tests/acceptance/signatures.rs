//! Signed cards: every card that is served, the keys it is verified with, and what happens to one that was changed.

use a2a::signature::{Algorithm, Form, Trusted, Verified, decode_keys, verify};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, array, text, with_json},
    rig::{Rig, TOKEN},
};

const KEYS: &str = "/.well-known/jwks.json";
const AGENT: &str = "/a2a/agents/echo/.well-known/agent-card.json";

/// The keys that the server publishes, trusted for its origin.
async fn trusted(api: &Api, base: &str) -> Vec<Trusted> {
    let reply = api.call(api.bare(Method::GET, KEYS)).await;
    assert_eq!(reply.status, 200, "{}", reply.shown());
    let keys = decode_keys(&reply.body).expect("it is a key set");
    keys.into_iter().map(|key| Trusted { key, origin: Some(base.to_owned()) }).collect()
}

fn now() -> i64 {
    exchange::card_keys::seconds_now()
}

fn check(card: &Value, keys: &[Trusted], base: &str) -> Result<Verified, a2a::signature::Refusal> {
    verify(card.to_string().as_bytes(), keys, Some(base), now())
}

/// Every card there is, by how it is asked for.
async fn cards(api: &Api) -> Vec<(&'static str, Value)> {
    let get = async |path: &str, version: Option<&str>| {
        let request = api.bare(Method::GET, path).header("x-sb-token", TOKEN);
        let request = match version {
            Some(version) => request.header("A2A-Version", version),
            None => request,
        };
        api.call(request).await.ok()
    };
    let call = async |path: &str, version: &str, method: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let request =
            with_json(api.bare(Method::POST, path).header("x-sb-token", TOKEN), &body).header("A2A-Version", version);
        let mut answer = api.call(request).await.ok();
        assert!(answer["error"].is_null(), "{method} at {path}: {answer}");
        answer["result"].take()
    };
    vec![
        ("gateway", get("/.well-known/agent-card.json", None).await),
        ("agent, both versions", get(AGENT, None).await),
        ("agent, 1.0", get(AGENT, Some("1.0")).await),
        ("older surface", get("/v1/a2a/agents/echo/.well-known/agent-card.json", None).await),
        ("older surface, own path", get("/v1/a2a/agents/echo/agent-card.json", None).await),
        ("extended", get("/a2a/extendedAgentCard", Some("1.0")).await),
        ("extended, of an agent", get("/a2a/agents/echo/extendedAgentCard", Some("1.0")).await),
        ("extended, JSON-RPC", call("/a2a/jsonrpc", "1.0", "GetExtendedAgentCard").await),
        ("extended, 0.3", call("/a2a/jsonrpc", "0.3", "agent/getAuthenticatedExtendedCard").await),
        ("extended, older surface", call("/v1/a2a/agents/echo", "1.0", "agent/getAuthenticatedExtendedCard").await),
    ]
}

#[tokio::test]
async fn s3_84_every_card_is_signed_and_a_changed_one_fails() {
    let rig = Rig::start().await;
    let (api, base) = (rig.api(), format!("http://{}", rig.server.address()));
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
}

#[tokio::test]
async fn the_public_keys_are_for_everybody() {
    let rig = Rig::start().await;
    let nobody = rig.api().with_token(None);
    let reply = nobody.call(nobody.bare(Method::GET, KEYS)).await;
    let set = reply.ok();
    assert_eq!(reply.media_type(), "application/jwk-set+json");
    assert_eq!(reply.header("cache-control"), Some("public, max-age=60"));
    let etag = reply.header("etag").expect("it has a tag").to_owned();
    let again = nobody.call(nobody.bare(Method::GET, KEYS).header("If-None-Match", &etag)).await;
    assert_eq!(again.status, 304);
    let key = &array(&set, "/keys")[0];
    let members: Vec<&str> = key.as_object().expect("a key is an object").keys().map(String::as_str).collect();
    assert_eq!(members, ["alg", "crv", "kid", "kty", "use", "x", "y"], "and no secret");
    assert_eq!(decode_keys(&reply.body).expect("it is a key set")[0].algorithm, Algorithm::Es256);
    assert_eq!(nobody.call(nobody.bare(Method::POST, KEYS)).await.status, 405);
}

#[tokio::test]
async fn a_card_is_signed_once() {
    let rig = Rig::start().await;
    let nobody = rig.api().with_token(None);
    let get = async || nobody.call(nobody.bare(Method::GET, AGENT)).await;
    let first = get().await;
    for _ in 0..3 {
        let again = get().await;
        assert_eq!((again.header("etag"), &again.body), (first.header("etag"), &first.body));
    }
}

/// The URLs on a card.
fn urls(card: &Value) -> Vec<&str> {
    let named = [&card["supportedInterfaces"], &card["additionalInterfaces"]].into_iter().filter_map(Value::as_array);
    let interfaces = named.flatten().map(|interface| text(interface, "/url"));
    interfaces.chain(card.get("url").and_then(Value::as_str)).collect()
}

fn port_of(url: &str) -> &str {
    url.rsplit(':').next().expect("it has a port")
}

#[tokio::test]
async fn x_37_a_card_fetched_by_localhost_names_localhost_without_a_public_url_too() {
    let rig = Rig::start().await;
    let configured = rig.server.url.clone();
    let base = configured.replace("127.0.0.1", "localhost");
    let by_name = Api::new(&base, Some(TOKEN));
    for (name, card) in cards(&by_name).await {
        assert!(urls(&card).iter().all(|url| url.starts_with(&base)), "{name}: {:?}", urls(&card));
        let keys = trusted(&by_name.with_token(None), &base).await;
        check(&card, &keys, &base).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    }
    for (api, base, cache) in
        [(&by_name, &base, "private, max-age=60"), (&rig.api(), &configured, "public, max-age=60")]
    {
        for path in ["/.well-known/agent-card.json", AGENT] {
            let reply = api.call(api.bare(Method::GET, path)).await;
            assert!(urls(&reply.ok())[0].starts_with(base.as_str()), "{}", reply.shown());
            assert_eq!(reply.header("cache-control"), Some(cache), "{path} at {base}");
        }
    }
    // Another user of this machine may listen at another port, and a signature would vouch for it.
    let other = rig.api().with_token(None);
    let reply = other.call(other.bare(Method::GET, AGENT).header("Host", "localhost:1")).await;
    assert!(urls(&reply.ok())[0].starts_with(&configured), "{}", reply.shown());
}

#[tokio::test]
async fn x_37_a_card_names_the_loopback_address_that_it_was_fetched_by_and_is_signed_so() {
    let mut rig = Rig::start().await;
    rig.kill9();
    rig.restart_with("", &["--public-url", "https://agents.example.com/sb", "--grpc-port", "0"]).await;
    let api = rig.api();
    for (name, card) in cards(&api).await {
        let base = rig.server.url.clone();
        for url in urls(&card).into_iter().filter(|url| url.contains("://")) {
            assert!(url.starts_with(&base), "{name}: {url}");
        }
        for target in urls(&card).into_iter().filter(|url| !url.contains("://")) {
            assert!(target.starts_with("127.0.0.1:"), "{name}: {target}");
        }
        let keys = trusted(&api.with_token(None), &base).await;
        check(&card, &keys, &base).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    }
    // At the port for gRPC the card is that of the main one, where everything else is.
    let card = api.get("/a2a/extendedAgentCard").await.ok();
    let target = urls(&card).into_iter().find(|url| !url.contains("://")).unwrap().to_owned();
    let there = super::grpc::Grpc::new(&format!("http://{target}"));
    let same = there.ok(super::grpc::A2A, "GetExtendedAgentCard", &json!({})).await;
    assert_eq!(urls(&same), urls(&card));
    let nobody = api.with_token(None);
    let fetch = async |headers: &[(&str, &str)]| {
        let request = nobody.bare(Method::GET, "/.well-known/agent-card.json");
        nobody.call(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    };
    let named = format!("localhost:{}", port_of(&rig.server.url));
    let local = fetch(&[("Host", &named)]).await;
    assert_eq!(urls(&local.ok())[0], format!("http://{named}/a2a/jsonrpc"));
    assert_eq!(local.header("cache-control"), Some("private, max-age=60"), "it is nobody else's");
    let etag = local.header("etag").unwrap().to_owned();
    let elsewhere = named.replace("localhost", "127.0.0.2");
    for headers in [
        &[("Host", "agents.example.com")][..],
        &[("Host", "evil.example")],
        &[("Host", "localhost.evil.example")],
        &[("Host", "10.0.0.1:8765")],
        // Somebody else may listen there.
        &[("Host", "localhost:1")],
        &[("Host", "localhost")],
        &[("Host", &elsewhere)],
        &[("Host", &named), ("X-Forwarded-For", "203.0.113.9")],
        &[("Host", &named), ("Forwarded", "for=203.0.113.9")],
        &[("Host", &named), ("Via", "1.1 proxy")],
    ] {
        let public = fetch(headers).await;
        assert_eq!(urls(&public.ok())[0], "https://agents.example.com/sb/a2a/jsonrpc", "{headers:?}");
        assert_eq!(public.header("cache-control"), Some("public, max-age=60"), "{headers:?}");
        let again = fetch(&[headers, &[("If-None-Match", etag.as_str())]].concat()).await;
        assert_eq!(again.status, 200, "the other card has another tag: {headers:?}");
    }
}
