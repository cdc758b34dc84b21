//! Signed cards (section 8.4): detached JSON Web Signatures over a canonical form of the card.
//!
//! Signers and verifiers do not agree on the form, so [`sign`] makes one signature for each form that differs, and [`verify`]
//! tries each and says which it was. A verdict is about keys that the caller trusts and nothing else: what a card says about
//! its own key, `jku` or `jwk`, is never believed, since whoever forges the card writes that too.
//!
//! ```
//! use a2a::signature::{Algorithm, SigningKey, Trusted, sign, verify};
//!
//! let card = br#"{"name":"a","supportedInterfaces":[]}"#;
//! let key = SigningKey::generate(Algorithm::Es256)?;
//! let signed = sign(card, &key, Some("https://agents.example/.well-known/jwks.json"))?;
//! let trusted = [Trusted { key: key.public(), origin: Some("https://agents.example".to_owned()) }];
//! let verified = verify(&signed, &trusted, Some("https://agents.example"), 1_770_000_000)?;
//! assert_eq!(verified.kid, key.kid());
//! assert!(verify(&signed, &trusted, Some("https://elsewhere.example"), 1_770_000_000).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::AgentCardSignature;

mod canonical;
mod form;
mod key;
mod verify;

pub use canonical::Malformed;
use canonical::Members;
pub use form::Form;
use form::Forms;
pub use key::{Algorithm, PublicKey, SigningKey, decode_keys, encode_keys};
pub use verify::{Objection, Refusal, Trusted, Verified, verify};

const SIGNATURES: &str = "signatures";

/// The signatures of a card: one for each canonical form of it that differs from the others.
pub fn signatures(card: &[u8], key: &SigningKey, jku: Option<&str>) -> Result<Vec<AgentCardSignature>, Malformed> {
    let mut header = Map::new();
    header.insert("alg".to_owned(), key.algorithm().name().into());
    header.insert("kid".to_owned(), key.kid().into());
    header.insert("typ".to_owned(), "JOSE".into());
    if let Some(jku) = jku {
        header.insert("jku".to_owned(), jku.into());
    }
    let protected = URL_SAFE_NO_PAD.encode(Value::Object(header).to_string());
    let mut made = Vec::new();
    for canonical in Forms::to_sign(card)?.list {
        let signature = key.sign(signing_input(&protected, &canonical.payload).as_bytes())?;
        made.push(AgentCardSignature {
            protected: protected.clone(),
            signature: URL_SAFE_NO_PAD.encode(signature),
            header: None,
        });
    }
    Ok(made)
}

/// The card with its signatures behind those that it has. Everything else of it stays as it is.
pub fn sign(card: &[u8], key: &SigningKey, jku: Option<&str>) -> Result<Vec<u8>, Malformed> {
    let made = signatures(card, key, jku)?;
    let Members(members) = serde_json::from_slice(card)?;
    let mut list: Vec<Box<RawValue>> = Vec::new();
    let mut signed = Vec::with_capacity(card.len() + 400 * made.len());
    signed.push(b'{');
    for (name, value) in members {
        if name == SIGNATURES {
            // ProtoJSON reads null as a list without elements.
            list = serde_json::from_str::<Option<_>>(value.get())?.unwrap_or_default();
            continue;
        }
        serde_json::to_writer(&mut signed, &name)?;
        signed.push(b':');
        signed.extend_from_slice(value.get().as_bytes());
        signed.push(b',');
    }
    for signature in &made {
        list.push(serde_json::value::to_raw_value(signature)?);
    }
    serde_json::to_writer(&mut signed, SIGNATURES)?;
    signed.push(b':');
    serde_json::to_writer(&mut signed, &list)?;
    signed.push(b'}');
    Ok(signed)
}

/// A detached signature of something that is no card, such as an archive. `kind` is what it is of: a signature of one kind is
/// none of another, and none of a card.
pub fn sign_other(kind: &str, payload: &[u8], key: &SigningKey) -> Result<AgentCardSignature, Malformed> {
    let header = serde_json::json!({"alg": key.algorithm().name(), "kid": key.kid(), "typ": kind});
    let protected = URL_SAFE_NO_PAD.encode(header.to_string());
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signing_input(&protected, payload).as_bytes())?);
    Ok(AgentCardSignature { protected, signature, header: None })
}

/// Whether [`sign_other`] made this signature of this payload with this key.
pub fn verifies_other(kind: &str, payload: &[u8], signed: &AgentCardSignature, key: &PublicKey) -> bool {
    let Some(header) = URL_SAFE_NO_PAD.decode(&signed.protected).ok() else { return false };
    let Ok(header) = serde_json::from_slice::<Value>(&header) else { return false };
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let fits = text("typ") == Some(kind) && text("alg").and_then(Algorithm::named) == Some(key.algorithm);
    // What has to be understood and is not (RFC 7515, 4.1.11).
    let demands = header.get("crit").is_some();
    let Some(signature) = URL_SAFE_NO_PAD.decode(&signed.signature).ok() else { return false };
    fits && !demands && key.verifies(signing_input(&signed.protected, payload).as_bytes(), &signature)
}

/// What a JSON Web Signature is over (RFC 7515, 5.1).
fn signing_input(protected: &str, payload: impl AsRef<[u8]>) -> String {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_as_one_kind_is_none_of_another() {
        for algorithm in [Algorithm::Es256, Algorithm::EdDsa] {
            let key = SigningKey::generate(algorithm).unwrap();
            let signed = sign_other("archive", b"payload", &key).unwrap();
            assert!(verifies_other("archive", b"payload", &signed, &key.public()));
            assert!(!verifies_other("card", b"payload", &signed, &key.public()));
            assert!(!verifies_other("archive", b"other", &signed, &key.public()));
            let other = SigningKey::generate(algorithm).unwrap();
            assert!(!verifies_other("archive", b"payload", &signed, &other.public()));
            let card = signatures(br#"{"name":"a"}"#, &key, None).unwrap().remove(0);
            assert!(!verifies_other("archive", br#"{"name":"a"}"#, &card, &key.public()));
            for broken in [
                AgentCardSignature { protected: "!".into(), ..signed.clone() },
                AgentCardSignature { protected: String::new(), ..signed.clone() },
                AgentCardSignature { signature: "!".into(), ..signed.clone() },
                AgentCardSignature { signature: String::new(), ..signed.clone() },
            ] {
                assert!(!verifies_other("archive", b"payload", &broken, &key.public()));
            }
        }
    }
}
