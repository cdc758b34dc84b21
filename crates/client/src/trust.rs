//! Whether a card that was found is believed: the keys that its reader trusts, and what becomes of a card that none of them has
//! signed.

use a2a::signature::{Refusal, Trusted, Verified, verify};
use url::Url;

use crate::{Discovered, Error, egress};

/// What becomes of a card that no trusted key has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nobody looks.
    Ignore,
    /// It is used. Where there are keys for its origin a warning says so.
    #[default]
    Prefer,
    /// It is refused.
    Require,
}

/// Whom to believe.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What becomes of the others.
    pub mode: Mode,
    /// The keys.
    pub keys: Vec<Trusted>,
    /// When, in seconds since 1970: keys and signatures end.
    pub now: i64,
}

/// The origin of a URL, as keys are trusted for it.
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

impl Trust {
    /// Whether a trusted key has signed this card. It is what the mode is about, and does not depend on it.
    pub fn judge(&self, found: &Discovered) -> Result<Verified, Refusal> {
        verify(&found.json, &self.keys, Some(&origin(&found.url)), self.now)
    }

    /// The card as far as it may be used: of one that is verified what its signature covers.
    pub(crate) fn admit(&self, found: Discovered) -> Result<Discovered, Error> {
        if self.mode == Mode::Ignore {
            return Ok(found);
        }
        match self.judge(&found) {
            Ok(verified) => found.covered_by(&verified),
            Err(refusal) if self.mode == Mode::Require => {
                Err(Error::Untrusted { url: egress::shown(&found.url), source: refusal })
            }
            Err(refusal) => {
                let from = origin(&found.url);
                let is_known =
                    self.keys.iter().any(|trusted| trusted.origin.as_ref().is_none_or(|known| *known == from));
                if is_known {
                    tracing::warn!(card.url = %egress::shown(&found.url), "a card is used that is not verified: {refusal}");
                }
                Ok(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use a2a::signature::{Algorithm, SigningKey, sign};
    use serde_json::{Value, json};

    use super::*;
    use crate::parse_url;

    const CARD: &str = r#"{"name":"a","url":"https://old.example","supportedInterfaces":[{"url":"https://h.example/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}"#;

    fn found(json: Vec<u8>) -> Discovered {
        Discovered::read(parse_url("https://h.example/.well-known/agent-card.json").unwrap(), json.into()).unwrap()
    }

    #[test]
    fn a_card_is_admitted_as_the_mode_says() {
        let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
        let signed = sign(CARD.as_bytes(), &key, None).unwrap();
        let trusted = |origin: &str| vec![Trusted { key: key.public(), origin: Some(origin.to_owned()) }];
        let trust = |mode, keys| Trust { mode, keys, now: 1 };
        let own = || trusted("https://h.example");
        for mode in [Mode::Ignore, Mode::Prefer, Mode::Require] {
            assert!(trust(mode, own()).admit(found(signed.clone())).is_ok(), "{mode:?}");
        }
        let changed = String::from_utf8(signed.clone()).unwrap().replace("\"a\"", "\"b\"").into_bytes();
        for (keys, json) in [
            (own(), changed),
            (own(), CARD.as_bytes().to_vec()),
            (trusted("https://other.example"), signed.clone()),
            (Vec::new(), signed),
        ] {
            assert!(trust(Mode::Ignore, keys.clone()).admit(found(json.clone())).is_ok());
            assert!(trust(Mode::Prefer, keys.clone()).admit(found(json.clone())).is_ok());
            let refused = trust(Mode::Require, keys).admit(found(json)).unwrap_err();
            assert!(matches!(refused, Error::Untrusted { .. }), "{refused}");
        }
    }

    #[test]
    fn only_what_was_signed_is_used() {
        let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
        let signed = sign(CARD.as_bytes(), &key, None).unwrap();
        let trust = Trust { mode: Mode::Require, keys: vec![Trusted { key: key.public(), origin: None }], now: 1 };
        // The last signature is for programs that lose security schemes when they parse a card, and covers none.
        let mut added: Value = serde_json::from_slice(&signed).unwrap();
        added["securitySchemes"] = json!({"k": {"apiKeySecurityScheme": {"location": "header", "name": "x"}}});
        assert!(trust.admit(found(added.to_string().into_bytes())).is_err(), "the other signatures say it");
        let last = added["signatures"].as_array().unwrap().iter().rfind(|one| is_sdk(one, &added, &trust)).cloned();
        added["signatures"] = json!([last.unwrap()]);
        let admitted = trust.admit(found(added.to_string().into_bytes())).unwrap();
        assert!(admitted.card.security_schemes.is_empty() && admitted.card.name == "a");
    }

    fn is_sdk(signature: &Value, card: &Value, trust: &Trust) -> bool {
        let mut card = card.clone();
        card["signatures"] = json!([signature]);
        trust.judge(&found(card.to_string().into_bytes())).is_ok()
    }
}
