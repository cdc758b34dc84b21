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

/// What a JSON Web Signature is over (RFC 7515, 5.1).
fn signing_input(protected: &str, payload: &str) -> String {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload))
}
