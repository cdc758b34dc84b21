//! Whether a card is what a trusted key signed.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::canonical::{Malformed, Node, Spelling};
use super::form::{Canonical, Form, Forms};
use super::key::{Algorithm, PublicKey};
use super::signing_input;
use crate::AgentCardSignature;
use crate::error::excerpt;

/// How many signatures of a card are looked at. Each costs a few verifications, and cards come from anybody.
const MAX_SIGNATURES: usize = 32;
/// By how many seconds the clocks of two parties may differ.
const SKEW: i64 = 60;

/// A key that somebody has decided to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    pub key: PublicKey,
    /// For which origin (`https://agents.example`) it speaks; for all when nothing is said.
    pub origin: Option<String>,
}

/// A card that a trusted key has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The key.
    pub kid: String,
    pub algorithm: Algorithm,
    /// What was signed.
    pub form: Form,
    /// The card as far as the signature covers it, as JSON: whoever acts on a card acts on this.
    pub card: Vec<u8>,
    /// The places of the received card that the signature does not cover.
    pub uncovered: Vec<String>,
}

/// Why a card is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is no card, or says two things at once.
    Malformed(Malformed),
    /// It carries no signature.
    Unsigned,
    /// No signature is good: one objection for each that was looked at.
    Rejected(Vec<Objection>),
}

/// What is wrong with one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// It cannot be read.
    Unreadable(String),
    /// Its algorithm is none that is taken.
    Algorithm(String),
    /// Nobody trusts its key. What the card itself says about the key does not count.
    UnknownKey {
        kid: String,
        /// The card brings its key along, or says where to find it.
        points_to_itself: bool,
    },
    /// Its key is trusted for another origin.
    WrongOrigin { kid: String },
    /// Its key is for another algorithm.
    WrongAlgorithm { kid: String, named: String },
    /// Its key has run out.
    KeyExpired { kid: String },
    /// It has run out itself, or is not valid yet.
    Expired { kid: String },
    /// The card is not what was signed.
    Mismatch { kid: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the card has no canonical form: {why}"),
            Self::Unsigned => f.write_str("the card is not signed"),
            Self::Rejected(objections) => match objections.iter().max_by_key(|objection| objection.weight()) {
                Some(objection) => objection.fmt(f),
                None => f.write_str("no signature of the card is good"),
            },
        }
    }
}

impl std::error::Error for Refusal {}

impl Objection {
    /// Of several signatures the one that came furthest tells most.
    fn weight(&self) -> u8 {
        match self {
            Self::Unreadable(_) => 0,
            Self::Algorithm(_) => 1,
            Self::UnknownKey { .. } => 2,
            Self::WrongOrigin { .. } => 3,
            Self::WrongAlgorithm { .. } => 4,
            Self::KeyExpired { .. } => 5,
            Self::Expired { .. } => 6,
            Self::Mismatch { .. } => 7,
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "the signature cannot be read: {why}"),
            Self::Algorithm(name) => write!(f, "the signature is by `{name}`; only ES256 and EdDSA are taken"),
            Self::UnknownKey { kid, points_to_itself: false } => write!(f, "the key `{kid}` is not trusted"),
            Self::UnknownKey { kid, points_to_itself: true } => {
                write!(f, "the key `{kid}` is not trusted; that the card itself says where its key is proves nothing")
            }
            Self::WrongOrigin { kid } => write!(f, "the key `{kid}` is trusted for another origin"),
            Self::WrongAlgorithm { kid, named } => write!(f, "the key `{kid}` is not for `{named}`"),
            Self::KeyExpired { kid } => write!(f, "the key `{kid}` has expired"),
            Self::Expired { kid } => write!(f, "the signature by `{kid}` has expired or is not valid yet"),
            Self::Mismatch { kid } => write!(f, "the card is not what the key `{kid}` has signed"),
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

/// Whether a trusted key has signed this card, which came from `origin` at `now`, in seconds since 1970. A key that is trusted
/// for an origin does not count when nobody knows where the card came from.
///
/// Of several good signatures the one counts that leaves least of the card uncovered. If that one leaves something uncovered
/// while another signature by a trusted key does not match, the card was changed where only the other one looked, and is
/// refused. Whoever strips the other one gets a card of which only what is covered counts: [`Verified::card`].
pub fn verify(card: &[u8], trusted: &[Trusted], origin: Option<&str>, now: i64) -> Result<Verified, Refusal> {
    let forms = Forms::to_verify(card)?;
    let signatures = signatures_of(card)?;
    if signatures.is_empty() {
        return Err(Refusal::Unsigned);
    }
    let mut best: Option<Verified> = None;
    let mut objections = Vec::new();
    for signature in signatures.iter().take(MAX_SIGNATURES) {
        match one(signature, &forms, trusted, origin, now) {
            Ok(verified) => {
                let rank = |verified: &Verified| (verified.uncovered.len(), verified.form);
                if best.as_ref().is_none_or(|known| rank(&verified) < rank(known)) {
                    best = Some(verified);
                }
            }
            Err(objection) => objections.push(objection),
        }
    }
    let was_changed = objections.iter().any(|objection| matches!(objection, Objection::Mismatch { .. }));
    match best {
        Some(verified) if verified.uncovered.is_empty() || !was_changed => Ok(verified),
        _ => Err(Refusal::Rejected(objections)),
    }
}

fn signatures_of(card: &[u8]) -> Result<Vec<AgentCardSignature>, Malformed> {
    let card: Signed = crate::decode(card).map_err(|error| Malformed(error.message))?;
    Ok(card.signatures)
}

crate::wire::message! {
    /// The part of a card of either version that is about its signatures.
    #[expect(unreachable_pub, reason = "the macro makes public types")]
    pub struct Signed {
        implicit signatures "signatures": Vec<AgentCardSignature>,
    }
}

fn one(
    signature: &AgentCardSignature,
    forms: &Forms,
    trusted: &[Trusted],
    origin: Option<&str>,
    now: i64,
) -> Result<Verified, Objection> {
    let unreadable = |why: &str| Objection::Unreadable(why.to_owned());
    let header = header(&signature.protected)?;
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    // Extensions that have to be understood: none is (RFC 7515, 4.1.11).
    if header.contains_key("crit") {
        return Err(unreadable("it needs an extension that is not known"));
    }
    let named = text("alg").ok_or_else(|| unreadable("it names no algorithm"))?;
    let algorithm = Algorithm::named(named).ok_or_else(|| Objection::Algorithm(excerpt(named)))?;
    let named_kid = text("kid").ok_or_else(|| unreadable("it names no key"))?;
    let kid = excerpt(named_kid);
    let bytes = URL_SAFE_NO_PAD.decode(&signature.signature).map_err(|_| unreadable("it is not base64url"))?;

    let known: Vec<&Trusted> = trusted.iter().filter(|trusted| trusted.key.kid == named_kid).collect();
    if known.is_empty() {
        let points_to_itself = ["jku", "jwk", "x5u", "x5c"].iter().any(|name| header.contains_key(*name));
        return Err(Objection::UnknownKey { kid, points_to_itself });
    }
    let mut worst: Option<Objection> = None;
    for Trusted { key, origin: scope } in known {
        let objection = if scope.is_some() && scope.as_deref() != origin {
            Objection::WrongOrigin { kid: kid.clone() }
        } else if key.algorithm != algorithm {
            Objection::WrongAlgorithm { kid: kid.clone(), named: excerpt(named) }
        } else if key.not_after.is_some_and(|end| end <= now) {
            Objection::KeyExpired { kid: kid.clone() }
        } else if !is_in_time(&header, now) {
            Objection::Expired { kid: kid.clone() }
        } else if let Some(canonical) = matching(key, &signature.protected, &bytes, forms) {
            return Ok(Verified {
                kid,
                algorithm,
                form: canonical.form,
                card: canonical.content.write(Spelling::Jcs).into_bytes(),
                uncovered: forms.uncovered(canonical),
            });
        } else {
            Objection::Mismatch { kid: kid.clone() }
        };
        if worst.as_ref().is_none_or(|known| known.weight() < objection.weight()) {
            worst = Some(objection);
        }
    }
    Err(worst.unwrap_or(Objection::Mismatch { kid }))
}

fn header(protected: &str) -> Result<Map<String, Value>, Objection> {
    let unreadable = |why: &str| Objection::Unreadable(why.to_owned());
    let bytes = URL_SAFE_NO_PAD.decode(protected).map_err(|_| unreadable("its header is not base64url"))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("its header is not UTF-8"))?;
    // A header that says something twice is refused here: which of the two is meant must not depend on the reader.
    Node::read(&text).map_err(|error| Objection::Unreadable(format!("its header: {error}")))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(header)) => Ok(header),
        _ => Err(unreadable("its header is not an object")),
    }
}

/// JWS knows no times. Where a signer has written those of JWT into the protected header they count.
fn is_in_time(header: &Map<String, Value>, now: i64) -> bool {
    let time = |name: &str| header.get(name).map(|value| value.as_i64());
    let ends = match time("exp") {
        None => true,
        Some(end) => end.is_some_and(|end| now < end.saturating_add(SKEW)),
    };
    let begins = ["nbf", "iat"].iter().all(|name| match time(name) {
        None => true,
        Some(begin) => begin.is_some_and(|begin| begin <= now.saturating_add(SKEW)),
    });
    ends && begins
}

fn matching<'a>(key: &PublicKey, protected: &str, signature: &[u8], forms: &'a Forms) -> Option<&'a Canonical> {
    forms.list.iter().find(|canonical| key.verifies(signing_input(protected, &canonical.payload).as_bytes(), signature))
}
