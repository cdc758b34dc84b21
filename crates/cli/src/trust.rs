//! Whose cards the client commands believe: the keys of the configuration, read from their files, and verdicts for people and
//! programs.

use std::path::Path;

use a2a::signature::{Refusal, Trusted, Verified, decode_keys};
use client::{Mode, Trust};
use exchange::card_keys::seconds_now;
use serde_json::{Value, json};

use crate::{
    config::{CardTrust, Settings},
    failure::Failure,
    output,
};

impl From<CardTrust> for Mode {
    fn from(mode: CardTrust) -> Self {
        match mode {
            CardTrust::Ignore => Self::Ignore,
            CardTrust::Prefer => Self::Prefer,
            CardTrust::Require => Self::Require,
        }
    }
}

/// The most that is read of a file with keys.
const LARGEST: u64 = 1 << 20;

/// What the configuration says.
pub(crate) fn configured(settings: &Settings) -> Result<Trust, Failure> {
    let mut keys = Vec::new();
    for entry in settings.keys.trust.keys().0 {
        keys.extend(read_keys(&entry.file, Some(&entry.origin))?);
    }
    Ok(Trust { mode: settings.keys.trust.cards().into(), keys, now: seconds_now() })
}

/// The keys in a file: a JSON Web Key, or a set of them.
pub(crate) fn read_keys(file: &Path, origin: Option<&str>) -> Result<Vec<Trusted>, Failure> {
    let failure = || Failure::usage(format!("cannot use the keys in `{}`", file.display()));
    let hint = "it has to be a JSON Web Key or a set of them, such as an agent serves at /.well-known/jwks.json";
    let read = store::open_given(file).and_then(|(file, _)| store::read_opened(file, LARGEST));
    let bytes = read.map_err(|error| failure().caused_by(&error))?;
    let keys = decode_keys(&bytes).map_err(|error| failure().caused_by(&error).hint(hint))?;
    Ok(keys.into_iter().map(|key| Trusted { key, origin: origin.map(str::to_owned) }).collect())
}

/// A verdict as an object.
pub(crate) fn verdict_json(verdict: &Result<Verified, Refusal>) -> Value {
    match verdict {
        Ok(verified) => json!({
            "verdict": "verified",
            "kid": verified.kid,
            "alg": verified.algorithm.name(),
            "form": verified.form.name(),
            "uncovered": verified.uncovered,
        }),
        Err(refusal) => {
            let (verdict, signatures) = match refusal {
                Refusal::Malformed(_) => ("malformed", Vec::new()),
                Refusal::Unsigned => ("unsigned", Vec::new()),
                Refusal::Rejected(objections) => ("refused", objections.iter().map(ToString::to_string).collect()),
            };
            json!({"verdict": verdict, "reason": refusal.to_string(), "signatures": signatures})
        }
    }
}

/// A verdict for people, in a few words.
pub(crate) fn verdict_text(verdict: &Result<Verified, Refusal>) -> String {
    match verdict {
        Ok(verified) => {
            let Verified { kid, algorithm, form, uncovered, .. } = verified;
            let rest = match uncovered.len() {
                0 => String::new(),
                1..=5 => format!("; not covered: {}", uncovered.join(", ")),
                more => format!("; not covered: {} and {} more", uncovered[..5].join(", "), more - 5),
            };
            format!("verified, by the key {kid} ({algorithm}), in the form `{form}`{rest}")
        }
        Err(refusal) => format!("not verified: {refusal}"),
    }
}

/// Says a verdict beside a result.
pub(crate) fn tell(verdict: &Result<Verified, Refusal>) {
    output::error_line("signature", &verdict_text(verdict));
}
