//! Keys over HTTP and in several instances. `signing.md` has the verbs.

use a2a::signature::{Algorithm, Trusted, decode_keys, verify};
use serde_json::{Value, json};

use super::rig::{Home, Server, store, worked};
use crate::harness::wait_for;

#[test]
fn keys_over_http_need_the_admin_token() {
    let home = Home::new();
    let server = home.serve();
    let admin = home.admin_token();
    let tenant = home.token();
    for (method, path) in
        [("GET", "/v1/admin/keys"), ("POST", "/v1/admin/keys/rotate"), ("POST", "/v1/admin/cards/sign")]
    {
        for token in [None, Some(tenant.as_str())] {
            assert_eq!(server.http(method, path, token, None).0, 401, "{path}");
        }
    }
    let (status, keys) = server.http("GET", "/v1/admin/keys", Some(&admin), None);
    assert_eq!((status, &keys["count"]), (200, &json!(1)));
    let rotate = |body: Value| server.http("POST", "/v1/admin/keys/rotate", Some(&admin), Some(&body));
    assert_eq!(rotate(json!({"alg": "HS256"})).0, 400);
    assert_eq!(rotate(json!({"overlap_seconds": 999_999_999_999_u64})).0, 400);
    assert_eq!(rotate(json!({"overlap": 1})).0, 400);
    assert_eq!(rotate(json!({})).1["count"], 2);
    let sign = |body: Value| server.http("POST", "/v1/admin/cards/sign", Some(&admin), Some(&body));
    assert_eq!(sign(json!({"card": {"name": "a"}})).0, 200);
    for card in [json!([]), json!("x"), json!({"supportedInterfaces": 1})] {
        assert_eq!(sign(json!({ "card": card })).0, 400, "{card}");
    }
}

/// Waits until something is so, for as long as an instance may take to notice a rotation.
#[track_caller]
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = std::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed() < std::time::Duration::from_secs(5), "{what}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_rotation_reaches_every_instance_and_old_keys_go_on_for_a_while() {
    let home = Home::new();
    let store = home.scratch.url().map_or_else(|| store(&home, "journal"), str::to_owned);
    let start = |data: &str| {
        let directory = home.path(data);
        let environment = [("SB_STORE", store.as_str()), ("SB_DATA_DIR", directory.to_str().unwrap())];
        home.serve_with(&["--public-url", "https://sb.example"], &environment)
    };
    let (one, other) = (start("one"), start("other"));
    let get = |server: &Server, path: &str| {
        let api = server.api().with_token(None);
        let request = api.bare(reqwest::Method::GET, path).header("Host", "sb.example");
        let reply = wait_for(api.call(request));
        assert_eq!(reply.status, 200, "{}", reply.shown());
        reply
    };
    let card = |server: &Server| get(server, "/a2a/agents/echo/.well-known/agent-card.json");
    let keys = |server: &Server| get(server, "/.well-known/jwks.json").body;
    let verifies = |card: &[u8], keys: &[u8]| {
        let trusted = decode_keys(keys).unwrap().into_iter();
        let trusted: Vec<_> =
            trusted.map(|key| Trusted { key, origin: Some("https://sb.example".to_owned()) }).collect();
        verify(card, &trusted, Some("https://sb.example"), exchange::card_keys::seconds_now()).is_ok()
    };
    let (before, old_keys) = (card(&one), keys(&one));
    assert_eq!(before.header("etag"), card(&other).header("etag"), "one card behind one URL has one tag");
    assert_eq!(old_keys, keys(&other));
    assert!(verifies(&card(&other).body, &old_keys));

    let url = format!("http://{}", one.address());
    let admin = home.stored("one/admin.json", "token");
    let mut rotate = home.command(&["key", "rotate", "--url", &url, "--alg", "EdDSA"]);
    worked(&rotate.env("SB_URL", &url).env("SB_ADMIN_TOKEN", admin).output().unwrap());
    let after = card(&one);
    assert_ne!(after.header("etag"), before.header("etag"), "at once on the instance that did it");
    soon("the other instance signs with the new key", || card(&other).header("etag") == after.header("etag"));
    let new_keys = keys(&other);
    for signed in [&before.body, &after.body, &card(&other).body] {
        assert!(verifies(signed, &new_keys), "who knows all keys believes all cards");
    }
    assert!(verifies(&after.body, &old_keys), "who knows the old key only goes on");
    assert_eq!(decode_keys(&new_keys).unwrap()[0].algorithm, Algorithm::EdDsa);
    drop((one, other));
    assert_eq!(keys(&start("one")), new_keys, "they are kept");
}
