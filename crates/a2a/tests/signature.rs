//! Signed cards: those that the official SDKs have signed, those that we sign, and what becomes of a card that was changed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use a2a::signature::{
    Algorithm, Form, Objection, PublicKey, Refusal, SigningKey, Trusted, Verified, decode_keys, sign, verify,
};
use a2a::{AgentCard, v03};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: i64 = 1_770_000_000;
const ORIGIN: &str = "https://agents.example";
const JKU: &str = "https://agents.example/.well-known/jwks.json";

/// Two cards and their keys. The signed ones were made by the signers of the SDKs themselves.
macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!("signed/", $name, ".json")).as_slice()
    };
}

fn trust(keys: impl IntoIterator<Item = PublicKey>) -> Vec<Trusted> {
    keys.into_iter().map(|key| Trusted { key, origin: Some(ORIGIN.to_owned()) }).collect()
}

fn check(card: &[u8], keys: &[Trusted]) -> Result<Verified, Refusal> {
    verify(card, keys, Some(ORIGIN), NOW)
}

fn objection(refusal: Refusal) -> Objection {
    let Refusal::Rejected(objections) = refusal else { panic!("{refusal}") };
    objections.into_iter().next().expect("a signature was looked at")
}

fn parsed(card: &[u8]) -> Value {
    serde_json::from_slice(card).unwrap()
}

#[test]
fn cards_that_the_official_sdks_have_signed_verify() {
    let keys = trust(decode_keys(golden!("jwks")).unwrap());
    for (name, card, form) in [
        ("new-python-1x", golden!("new-python-1x"), Form::Sdk),
        ("both-python-1x", golden!("both-python-1x"), Form::Sdk),
        ("new-js-raw", golden!("new-js-raw"), Form::Sdk),
        ("both-js-raw", golden!("both-js-raw"), Form::Sdk),
        ("new-js-parsed", golden!("new-js-parsed"), Form::SdkParsed),
        ("both-js-parsed", golden!("both-js-parsed"), Form::SdkParsed),
        ("old-python-03", golden!("old-python-03"), Form::Sdk03),
    ] {
        let verified = check(card, &keys).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(verified.form, form, "{name}");
        let covers_schemes = verified.uncovered.iter().all(|place| place != "securitySchemes");
        assert_eq!(covers_schemes, form != Form::SdkParsed, "{name}: {:?}", verified.uncovered);
    }
    // It has 1.0's interfaces too, which are what a reader takes and what that signature does not cover.
    assert!(matches!(objection(check(golden!("both-python-03"), &keys).unwrap_err()), Objection::Mismatch { .. }));
}

/// Every form that we sign, one at a time: what each SDK would look for is there.
#[test]
fn what_we_sign_has_a_signature_for_every_form() {
    for algorithm in [Algorithm::Es256, Algorithm::EdDsa] {
        let key = SigningKey::generate(algorithm).unwrap();
        let keys = trust([key.public()]);
        for (card, count) in [(golden!("new"), 4), (golden!("both"), 6)] {
            let signed = sign(card, &key, Some(JKU)).unwrap();
            let mut value = parsed(&signed);
            let signatures = value["signatures"].as_array().unwrap().clone();
            assert_eq!(signatures.len(), count);
            let header = URL_SAFE_NO_PAD.decode(signatures[0]["protected"].as_str().unwrap()).unwrap();
            assert_eq!(
                parsed(&header),
                json!({"alg": algorithm.name(), "kid": key.kid(), "typ": "JOSE", "jku": JKU}),
                "s3_84"
            );
            let mut forms = Vec::new();
            for signature in signatures {
                value["signatures"] = json!([signature]);
                forms.extend(check(value.to_string().as_bytes(), &keys).ok().map(|verified| verified.form));
            }
            // The last one of the card with both sets of fields is for readers of 0.3.
            assert_eq!(forms.len(), count - usize::from(count == 6));
            assert!(forms.is_sorted(), "{forms:?}");
            let all = check(&signed, &keys).unwrap();
            assert_eq!((all.form, all.uncovered), (Form::Plain, vec![]), "the form that covers most counts");
        }
    }
}

#[test]
fn a_card_keeps_its_bytes_and_its_other_signatures() {
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let once = sign(golden!("new"), &key, None).unwrap();
    let count = |card: &[u8]| parsed(card)["signatures"].as_array().unwrap().len();
    let other = SigningKey::generate(Algorithm::Es256).unwrap();
    let twice = sign(&once, &other, None).unwrap();
    assert_eq!(count(&twice), 2 * count(&once));
    assert!(check(&twice, &trust([key.public()])).is_ok() && check(&twice, &trust([other.public()])).is_ok());
    let mut without = parsed(&twice);
    without.as_object_mut().unwrap().remove("signatures");
    assert_eq!(without, parsed(golden!("new")));
    assert!(String::from_utf8(once).unwrap().contains("\"whole\": 4.0"), "nothing was written anew");
}

#[test]
fn a_card_in_both_versions_is_signed_as_such() {
    let card: AgentCard = a2a::decode(golden!("new")).unwrap();
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let keys = trust([key.public()]);
    let signed = sign(&v03::compat_card(&card, "https://agents.example"), &key, None).unwrap();
    assert_eq!(check(&signed, &keys).unwrap().form, Form::Plain);
    // A 0.3 field that was changed: the signature over the whole card says so.
    let mut changed = parsed(&signed);
    changed["url"] = json!("https://evil.example");
    assert!(check(changed.to_string().as_bytes(), &keys).is_err());
    // Without that one the field is not covered, and what is covered does not have it.
    let all = std::mem::replace(&mut changed["signatures"], json!([parsed(&signed)["signatures"][0]]));
    let verified = check(changed.to_string().as_bytes(), &keys).unwrap();
    assert_eq!(verified.form, Form::Spec);
    assert!(verified.uncovered.contains(&"url".to_owned()), "{:?}", verified.uncovered);
    assert!(parsed(&verified.card).get("url").is_none());
    // Made into a card of 0.3 it has to be the one that was signed, and what is left of 1.0 in it does not count.
    changed["signatures"] = json!([all.as_array().unwrap().last().unwrap()]);
    changed.as_object_mut().unwrap().remove("supportedInterfaces");
    assert!(check(changed.to_string().as_bytes(), &keys).is_err());
    changed["url"] = parsed(&signed)["url"].clone();
    let verified = check(changed.to_string().as_bytes(), &keys).unwrap();
    assert_eq!(verified.form, Form::Sdk03);
    assert!(parsed(&verified.card).get("securityRequirements").is_none());
}

/// Each bit of each byte, in the card and in its one signature: refused, or what is covered is what was signed and the
/// rest is named.
#[test]
fn s3_84_a_flipped_byte_fails() {
    let card = br#"{"name":"a\u00e9","description":"d","supportedInterfaces":[{"url":"https://h/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{"streaming":true,"extensions":[{"uri":"u","params":{"n":1.5}}]},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"s","description":"s","tags":["t"]}]}"#;
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let keys = trust([key.public()]);
    let mut signed = parsed(&sign(card, &key, None).unwrap());
    signed["signatures"].as_array_mut().unwrap().truncate(1);
    let mut bytes = signed.to_string().into_bytes();
    let covered = check(&bytes, &keys).unwrap().card;
    let card: AgentCard = a2a::decode(&bytes).unwrap();
    let mut harmless = 0;
    for index in 0..bytes.len() {
        for bit in 0..8 {
            bytes[index] ^= 1 << bit;
            if let Ok(verified) = check(&bytes, &keys) {
                assert_eq!(verified.card, covered, "byte {index}, bit {bit}");
                let same = a2a::decode::<AgentCard>(&bytes).unwrap() == card;
                assert!(!verified.uncovered.is_empty() || same, "byte {index}, bit {bit}");
                harmless += 1;
            }
            bytes[index] ^= 1 << bit;
        }
    }
    assert!(harmless < 20, "{harmless}");
}

/// A signed card with this header in place of its own. The signature does not match any more, so that an objection to the
/// header shows that it came first.
fn with_header(key: &SigningKey, header: &Value) -> Vec<u8> {
    let mut card = parsed(&sign(golden!("new"), key, None).unwrap());
    for signature in card["signatures"].as_array_mut().unwrap() {
        signature["protected"] = json!(URL_SAFE_NO_PAD.encode(header.to_string()));
    }
    card.to_string().into_bytes()
}

#[test]
fn s3_85_keys_that_do_not_speak_for_the_card_are_refused() {
    let key = SigningKey::generate(Algorithm::Es256).unwrap();
    let card = sign(golden!("new"), &key, Some(JKU)).unwrap();
    let kid = || key.kid().to_owned();

    // Nobody trusts it: a card that says where its key is has signed itself.
    assert_eq!(
        objection(check(&card, &[]).unwrap_err()),
        Objection::UnknownKey { kid: kid(), points_to_itself: true },
        "self-signed"
    );
    let other = SigningKey::generate(Algorithm::Es256).unwrap();
    let mut impostor = other.public();
    impostor.kid = kid();
    assert_eq!(objection(check(&card, &trust([impostor])).unwrap_err()), Objection::Mismatch { kid: kid() });

    // Trusted for another origin, or nobody knows where the card is from.
    let keys = trust([key.public()]);
    for origin in [Some("https://agents.example:8443"), Some("http://agents.example"), None] {
        let refusal = verify(&card, &keys, origin, NOW).unwrap_err();
        assert_eq!(objection(refusal), Objection::WrongOrigin { kid: kid() }, "{origin:?}");
    }
    let everywhere = [Trusted { key: key.public(), origin: None }];
    assert!(verify(&card, &everywhere, None, NOW).is_ok());

    // Its key has expired, at that very second.
    let mut expired = key.public();
    expired.not_after = Some(NOW);
    assert_eq!(objection(check(&card, &trust([expired.clone()])).unwrap_err()), Objection::KeyExpired { kid: kid() });
    assert!(verify(&card, &trust([expired]), Some(ORIGIN), NOW - 1).is_ok());

    // The key is for another algorithm than the header says.
    let mut ed25519 = SigningKey::generate(Algorithm::EdDsa).unwrap().public();
    ed25519.kid = kid();
    assert_eq!(
        objection(check(&card, &trust([ed25519])).unwrap_err()),
        Objection::WrongAlgorithm { kid: kid(), named: "ES256".to_owned() }
    );
}

#[test]
fn headers_that_must_not_be_believed_are_refused() {
    let key = SigningKey::generate(Algorithm::Es256).unwrap();
    let keys = trust([key.public()]);
    let refused = |header: Value| objection(check(&with_header(&key, &header), &keys).unwrap_err());
    let kid = key.kid();
    for name in ["none", "None", "HS256", "RS256", "ES256K", ""] {
        assert_eq!(refused(json!({"alg": name, "kid": kid})), Objection::Algorithm(name.to_owned()));
    }
    for header in [
        json!({"kid": kid}),
        json!({"alg": "ES256"}),
        json!({"alg": 1, "kid": kid}),
        json!({"alg": "ES256", "kid": kid, "crit": ["b64"], "b64": false}),
        json!([]),
        json!("ES256"),
    ] {
        assert!(matches!(refused(header.clone()), Objection::Unreadable(_)), "{header}");
    }
    for times in [
        json!({"exp": NOW - 61}),
        json!({"nbf": NOW + 61}),
        json!({"iat": NOW + 61}),
        json!({"exp": "never"}),
        json!({"exp": null}),
    ] {
        let mut header = json!({"alg": "ES256", "kid": kid});
        header.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        assert_eq!(refused(header), Objection::Expired { kid: kid.to_owned() }, "{times}");
    }
    // A header in time is signed by nobody here, and comes to the signature itself.
    let in_time = json!({"alg": "ES256", "kid": kid, "exp": NOW + 1, "nbf": NOW - 1, "iat": NOW});
    assert_eq!(refused(in_time), Objection::Mismatch { kid: kid.to_owned() });
    let raw = |protected: &str| {
        let mut card = parsed(&sign(golden!("new"), &key, None).unwrap());
        card["signatures"] = json!([{"protected": protected, "signature": card["signatures"][0]["signature"]}]);
        objection(check(card.to_string().as_bytes(), &keys).unwrap_err())
    };
    let twice = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"ES256","alg":"none","kid":"{kid}"}}"#));
    for protected in ["", "%", "e30=", "AA", &twice] {
        assert!(matches!(raw(protected), Objection::Unreadable(_)), "{protected}");
    }
}

/// What only some of the forms cover: security schemes, and requirements without scopes.
#[test]
fn what_one_signature_does_not_cover_another_one_watches() {
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let keys = trust([key.public()]);
    let signed = parsed(&sign(golden!("new"), &key, None).unwrap());
    for (place, value) in [
        ("/securitySchemes/key/apiKeySecurityScheme/name", json!("x-other")),
        ("/securityRequirements/0/schemes", json!({"key": {}})),
        ("/documentationUrl", json!(null)),
    ] {
        let mut changed = signed.clone();
        *changed.pointer_mut(place).unwrap() = value;
        assert!(check(changed.to_string().as_bytes(), &keys).is_err(), "{place}");
    }
}

#[test]
fn a_card_without_a_signature_is_not_verified() {
    let keys = trust([SigningKey::generate(Algorithm::EdDsa).unwrap().public()]);
    assert_eq!(check(golden!("new"), &keys).unwrap_err(), Refusal::Unsigned);
    for card in [r#"{"name":"a","signatures":[]}"#, r#"{"name":"a","signatures":null}"#] {
        assert_eq!(check(card.as_bytes(), &keys).unwrap_err(), Refusal::Unsigned);
    }
    for card in ["", "[]", r#"{"name":"a","name":"b"}"#, r#"{"signatures":{}}"#] {
        assert!(matches!(check(card.as_bytes(), &keys).unwrap_err(), Refusal::Malformed(_)), "{card}");
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
    let card = sign(golden!("new"), &key, Some(JKU)).unwrap();
    let told = |refusal: Refusal| refusal.to_string().replace(key.kid(), "KID");
    assert_eq!(told(Refusal::Unsigned), "the card is not signed");
    assert_eq!(
        told(check(&card, &[]).unwrap_err()),
        "the key `KID` is not trusted; that the card itself says where its key is proves nothing"
    );
    let changed = String::from_utf8(card).unwrap().replace("Recipe", "Poison");
    assert_eq!(
        told(check(changed.as_bytes(), &trust([key.public()])).unwrap_err()),
        "the card is not what the key `KID` has signed"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a card says: it verifies as it was signed, also when its members come in another order, and not with
    /// another name.
    #[test]
    fn every_card_verifies_until_it_is_changed(
        name in "\\PC{0,12}", description in any::<String>(), quarters in any::<i32>(),
        scopes in prop::collection::vec("\\PC{0,3}", 0..3), streaming in any::<Option<bool>>(), old in any::<bool>(),
    ) {
        let card: AgentCard = serde_json::from_value(json!({
            "name": name, "description": description, "version": "1", "supportedInterfaces": [{"url": "https://h", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": streaming, "extensions": [{"uri": "u", "params": {"n": f64::from(quarters) / 4.0, "": [null, ""]}}]},
            "securityRequirements": [{"schemes": {"k": {"list": scopes}}}],
        })).unwrap();
        let bytes = if old { v03::compat_card(&card, "https://h") } else { serde_json::to_vec(&card).unwrap() };
        let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
        let keys = trust([key.public()]);
        let signed = sign(&bytes, &key, None).unwrap();
        prop_assert!(check(&signed, &keys).unwrap().uncovered.is_empty());
        let mut reordered = parsed(&signed);
        prop_assert!(check(reordered.to_string().as_bytes(), &keys).is_ok());
        reordered["name"] = json!(format!("{name}x"));
        prop_assert!(check(reordered.to_string().as_bytes(), &keys).is_err());
    }

    #[test]
    fn nothing_that_comes_in_makes_it_panic(card in any::<Vec<u8>>(), text in "[\\[\\]{}\":,a-z0-9 ]{0,40}") {
        let keys = trust([SigningKey::generate(Algorithm::EdDsa).unwrap().public()]);
        prop_assert!(check(&card, &keys).is_err());
        prop_assert!(check(text.as_bytes(), &keys).is_err());
        let _ = decode_keys(&card);
    }
}
