//! `sb key`, `sb card sign` and `sb card verify`: keys with and without a server, and cards that are believed or not.

use a2a::signature::{Algorithm, Trusted, decode_keys, verify};
use serde_json::{Value, json};

use super::rig::{Home, Server, failed, store, text, worked};
use crate::harness::wait_for;

const CARD: &str = r#"{"name":"Bäcker","description":"","version":"1","supportedInterfaces":[{"url":"https://agents.example/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
  "capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"bake","name":"Bake","description":"Bakes.","tags":["bread"]}]}"#;

/// A home with a journal, a signed card in `signed.json` and the public keys in `jwks.json`.
fn with_signed_card() -> (Home, String) {
    let home = Home::new();
    drop(home.serve());
    let card = home.write("card.json", CARD);
    let signed = home.ok(&["card", "sign", &card, "-o", "json"]);
    home.write("signed.json", &signed);
    write_keys(&home, "jwks.json");
    (home, signed)
}

fn write_keys(home: &Home, name: &str) -> String {
    let keys: Vec<Value> = home.json(&["key", "list"]).into_iter().map(|key| key["jwk"].clone()).collect();
    home.write(name, json!({ "keys": keys }).to_string())
}

fn path(home: &Home, name: &str) -> String {
    home.path(name).to_str().unwrap().to_owned()
}

#[test]
fn keys_are_listed_and_rotated_with_a_server_and_without() {
    let home = Home::new();
    let server = home.serve();
    let first = home.json(&["key", "list"]);
    assert_eq!(first.len(), 1);
    assert_eq!((&first[0]["alg"], &first[0]["state"]), (&json!("ES256"), &json!("active")));
    assert_eq!(first[0]["jwk"]["kid"], first[0]["kid"]);
    let rotated = home.json(&["key", "rotate", "--alg", "eddsa", "--overlap", "1h"]);
    let states: Vec<_> = rotated.iter().map(|key| key["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active", "retiring"]);
    assert_eq!(rotated[0]["alg"], "EdDSA");
    assert_eq!(rotated[1]["kid"], first[0]["kid"]);
    let end = rotated[1]["retires_at"].as_i64().unwrap() - rotated[0]["created_at"].as_i64().unwrap();
    assert!((3590..=3610).contains(&end), "{end}");
    drop(server);

    let after = home.json(&["key", "list"]);
    assert_eq!(after, rotated, "the journal has them");
    let again = home.ok(&["key", "rotate", "--overlap", "1ms"]);
    assert!(again.starts_with("KEY") && again.contains("active") && !again.contains("retiring"), "{again}");
    let said = text(&home.run(&["key", "list", "-o", "json"]).stdout) + &again + &format!("{after:?}");
    assert!(!said.contains("pkcs8") && !said.contains("\"d\""), "no secret is shown: {said}");
    assert!(home.ok(&["audit"]).contains("card.keys"), "rotations are written down");
    assert!(home.fails(&["key", "rotate", "--alg", "none"], 2).contains("ES256"));
}

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

#[test]
fn s3_85_a_signed_card_verifies_and_a_changed_one_does_not() {
    let (home, signed) = with_signed_card();
    let (keys, file) = (path(&home, "jwks.json"), path(&home, "signed.json"));
    let value: Value = serde_json::from_str(&signed).unwrap();
    assert_eq!(value["name"], "Bäcker");
    assert!(value["signatures"].as_array().unwrap().len() >= 2, "one for each form that differs");
    let told = home.ok(&["card", "verify", &file, "--key", &keys]);
    assert!(told.starts_with("verified, by the key ") && told.contains("form `spec`"), "{told}");
    let verdict = home.json(&["card", "verify", &file, "--jwks", &keys]).remove(0);
    assert_eq!((&verdict["verdict"], &verdict["form"]), (&json!("verified"), &json!("spec")));
    assert_eq!((&verdict["alg"], &verdict["uncovered"]), (&json!("ES256"), &json!([])));

    let changed = home.write("changed.json", signed.replace("Bakes.", "Burns."));
    let said = home.fails(&["card", "verify", &changed, "--key", &keys], 1);
    assert!(said.contains("the card is not what the key"), "{said}");
    let output = home.run(&["card", "verify", &changed, "--key", &keys, "-o", "json"]);
    failed(&output, 1);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict["verdict"], "refused");
    let told = home.ok(&["card", "verify", &changed, "--key", &keys, "--mode", "prefer"]);
    assert!(told.starts_with("not verified: "), "{told}");
    assert_eq!(home.ok(&["card", "verify", &changed, "--mode", "ignore"]), "");
    assert!(home.fails(&["card", "verify", &path(&home, "card.json"), "--key", &keys], 1).contains("not signed"));
    assert!(text(&home.pipe(&["card", "verify", "-", "--key", &keys], &signed).stdout).starts_with("verified"));
}

#[test]
fn only_keys_that_are_trusted_for_the_origin_count() {
    let (home, _) = with_signed_card();
    let file = path(&home, "signed.json");
    assert!(home.fails(&["card", "verify", &file], 2).contains("cannot vouch for its own key"));
    // Somebody else's key, then ours for another origin, then for the right one.
    let stranger = Home::new();
    drop(stranger.serve());
    let strange = write_keys(&stranger, "jwks.json");
    let said = home.fails(&["card", "verify", &file, "--key", &strange], 1);
    assert!(said.contains("is not trusted"), "{said}");

    let trust = |origin: &str| {
        home.configure(&format!("[trust]\nkeys = [\"{origin}=../../jwks.json\"]\n"));
    };
    trust("https://elsewhere.example");
    let said = home.fails(&["card", "verify", &file], 1);
    assert!(said.contains("another origin") && said.contains("https://agents.example"), "{said}");
    trust("https://agents.example:443");
    assert!(home.ok(&["card", "verify", &file]).starts_with("verified"));
    let said = home.fails(&["card", "verify", &file, "--origin", "https://elsewhere.example"], 1);
    assert!(said.contains("another origin"), "{said}");
    for wrong in ["https://agents.example", "agents.example=x", "https://agents.example/a2a=x", "=x"] {
        home.configure(&format!("[trust]\nkeys = [\"{wrong}\"]\n"));
        assert!(home.fails(&["card", "verify", &file], 2).contains("ORIGIN=FILE"), "{wrong}");
    }
    home.configure("[trust]\nkeys = [\"https://agents.example=nowhere.json\"]\n");
    assert!(home.fails(&["card", "verify", &file], 2).contains("nowhere.json"));
}

#[test]
fn a_key_that_has_ended_does_not_count() {
    let (home, _) = with_signed_card();
    let file = path(&home, "signed.json");
    let mut key = home.json(&["key", "list"]).remove(0)["jwk"].clone();
    key["exp"] = json!(1);
    let expired = home.write("expired.json", key.to_string());
    assert!(home.fails(&["card", "verify", &file, "--key", &expired], 1).contains("has expired"));
    key["exp"] = json!(null);
    key["kty"] = json!("oct");
    let secret = home.write("secret.json", key.to_string());
    assert!(home.fails(&["card", "verify", &file, "--key", &secret], 2).contains("EC with P-256 or OKP with Ed25519"));
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

#[test]
fn commands_believe_the_cards_that_they_are_told_to() {
    let home = Home::new();
    let server = home.serve();
    let base = format!("http://{}", server.address());
    let jwks = write_keys(&home, ".config/switchboard/jwks.json");
    let told = |args: &[&str]| text(&home.run(args).stderr);
    assert!(told(&["card", "get"]).contains("signature: not verified: the key "), "nobody is trusted yet");
    assert_eq!(home.ok(&["send", "hello"]), "hello\n");
    let verdict = home.json(&["card", "verify", "--agent", "echo", "--key", &jwks]).remove(0);
    assert_eq!((&verdict["verdict"], &verdict["uncovered"]), (&json!("verified"), &json!([])));

    home.configure(&format!("[trust]\ncards = \"require\"\nkeys = [\"{base}=jwks.json\"]\n"));
    assert!(told(&["card", "get"]).contains("signature: verified, by the key "));
    assert_eq!(home.ok(&["send", "hello"]), "hello\n");
    assert_eq!(home.ok(&["send", "--agent", "echo", "hello"]), "hello\n");
    // A key of the same installation for somebody else's origin does not count, and neither does none.
    for trust in ["keys = [\"https://elsewhere.example=jwks.json\"]", ""] {
        home.configure(&format!("[trust]\ncards = \"require\"\n{trust}\n"));
        let said = home.fails(&["send", "hello"], 1);
        assert!(said.contains("is not verified") && said.contains("trust.keys"), "{said}");
        home.fails(&["task", "list"], 1);
    }
    home.configure("[trust]\ncards = \"ignore\"\n");
    assert_eq!(told(&["card", "get"]), "");
    assert_eq!(home.ok(&["send", "hello"]), "hello\n");
    // Keys are known and the card does not fit them: it is used, and that is said.
    let stranger = Home::new();
    drop(stranger.serve());
    write_keys(&stranger, "jwks.json");
    std::fs::copy(stranger.path("jwks.json"), home.path(".config/switchboard/jwks.json")).unwrap();
    home.configure(&format!("[trust]\nkeys = [\"{base}=jwks.json\"]\n"));
    let output = home.run(&["send", "hello"]);
    assert_eq!(worked(&output), "hello\n");
    assert!(text(&output.stderr).contains("a card is used that is not verified"), "{}", text(&output.stderr));
}
