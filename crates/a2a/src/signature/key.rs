//! Keys that sign cards and keys that verify them, and JSON Web Keys (RFC 7517, 8037) as which the latter travel.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    UnparsedPublicKey,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::canonical::Malformed;
use crate::error::excerpt;

/// How long a coordinate of P-256 and a key of Ed25519 are.
const SIZE: usize = 32;

/// An algorithm that is taken. There is no `none`, and none whose key is a shared secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256. Its signatures differ each time.
    Es256,
    /// Ed25519.
    EdDsa,
}

/// A key that signs. It does not print its secret.
pub struct SigningKey {
    kid: String,
    pair: Pair,
    pkcs8: Vec<u8>,
}

enum Pair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// A key that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// What the header of a signature calls it.
    pub kid: String,
    pub algorithm: Algorithm,
    /// From then on, in seconds since 1970, what it signed is not believed: `exp` of its JSON Web Key.
    pub not_after: Option<i64>,
    /// The point without compression, or the 32 bytes of Ed25519.
    bytes: Vec<u8>,
}

impl Algorithm {
    /// Its name in a header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// By its name in a header. RFC 9864 calls EdDSA with this curve `Ed25519`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The library has no key, or does not take one. It does not say more.
fn refused<E>(_: E) -> Malformed {
    Malformed("the key is not one of its algorithm".to_owned())
}

impl SigningKey {
    /// A new key, called by its thumbprint (RFC 7638).
    pub fn generate(algorithm: Algorithm) -> Result<Self, Malformed> {
        let pkcs8 = match algorithm {
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(refused)?;
                pair.to_pkcs8v1().map_err(refused)?.as_ref().to_vec()
            }
            Algorithm::EdDsa => {
                let pair = Ed25519KeyPair::generate().map_err(refused)?;
                pair.to_pkcs8().map_err(refused)?.as_ref().to_vec()
            }
        };
        Self::from_pkcs8(algorithm, &pkcs8)
    }

    /// The key that [`pkcs8`](Self::pkcs8) gave.
    pub fn from_pkcs8(algorithm: Algorithm, pkcs8: &[u8]) -> Result<Self, Malformed> {
        let pair = match algorithm {
            Algorithm::Es256 => {
                Pair::Es256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).map_err(refused)?)
            }
            Algorithm::EdDsa => Pair::EdDsa(Ed25519KeyPair::from_pkcs8(pkcs8).map_err(refused)?),
        };
        let mut key = Self { kid: String::new(), pair, pkcs8: pkcs8.to_vec() };
        key.kid = key.public().kid;
        Ok(key)
    }

    /// All of the key, its secret included, for keeping.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            Pair::Es256(_) => Algorithm::Es256,
            Pair::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    /// What others need to verify with.
    pub fn public(&self) -> PublicKey {
        let bytes = match &self.pair {
            Pair::Es256(pair) => pair.public_key().as_ref(),
            Pair::EdDsa(pair) => pair.public_key().as_ref(),
        };
        PublicKey::new(self.algorithm(), bytes.to_vec())
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Malformed> {
        match &self.pair {
            Pair::Es256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message);
                Ok(signature.map_err(|_| Malformed("the library cannot sign".to_owned()))?.as_ref().to_vec())
            }
            Pair::EdDsa(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

impl PublicKey {
    fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Self {
        let mut key = Self { kid: String::new(), algorithm, not_after: None, bytes };
        key.kid = key.thumbprint();
        key
    }

    /// The SHA-256 of its JSON Web Key in one spelling (RFC 7638).
    fn thumbprint(&self) -> String {
        let (x, y) = self.coordinates();
        let text = match y {
            Some(y) => format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#),
            None => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#),
        };
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, text.as_bytes()))
    }

    fn coordinates(&self) -> (String, Option<String>) {
        match self.algorithm {
            Algorithm::Es256 => {
                // The first byte says that the point is not compressed.
                let (x, y) = self.bytes[1..].split_at(SIZE);
                (URL_SAFE_NO_PAD.encode(x), Some(URL_SAFE_NO_PAD.encode(y)))
            }
            Algorithm::EdDsa => (URL_SAFE_NO_PAD.encode(&self.bytes), None),
        }
    }

    /// As a JSON Web Key.
    pub fn jwk(&self) -> Value {
        let mut jwk = match self.coordinates() {
            (x, Some(y)) => json!({"kty": "EC", "crv": "P-256", "x": x, "y": y}),
            (x, None) => json!({"kty": "OKP", "crv": "Ed25519", "x": x}),
        };
        jwk["kid"] = json!(self.kid);
        jwk["alg"] = json!(self.algorithm.name());
        jwk["use"] = json!("sig");
        if let Some(end) = self.not_after {
            jwk["exp"] = json!(end);
        }
        jwk
    }

    /// Reads a JSON Web Key. One without a `kid` is called by its thumbprint.
    pub fn from_jwk(jwk: &Value) -> Result<Self, Malformed> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let coordinate = |name: &str| {
            let bytes = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            bytes
                .filter(|bytes| bytes.len() == SIZE)
                .ok_or_else(|| Malformed(format!("`{name}` is not 32 bytes of base64url")))
        };
        let (algorithm, bytes) = match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => {
                let mut point = vec![4];
                point.extend(coordinate("x")?);
                point.extend(coordinate("y")?);
                (Algorithm::Es256, point)
            }
            (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDsa, coordinate("x")?),
            (kind, curve) => {
                let told = |name: Option<&str>| name.map_or_else(|| "nothing".to_owned(), excerpt);
                return Err(Malformed(format!(
                    "a key has to be EC with P-256 or OKP with Ed25519, this one is {} with {}",
                    told(kind),
                    told(curve)
                )));
            }
        };
        if let Some(named) = text("alg")
            && Algorithm::named(named) != Some(algorithm)
        {
            return Err(Malformed(format!("a key for {} cannot be of this kind", excerpt(named))));
        }
        if text("use").is_some_and(|usage| usage != "sig") {
            return Err(Malformed("it is not a key for signatures".to_owned()));
        }
        let mut key = Self::new(algorithm, bytes);
        if let Some(kid) = text("kid") {
            key.kid = kid.to_owned();
        }
        key.not_after = jwk.get("exp").and_then(Value::as_i64);
        Ok(key)
    }

    /// Whether this signature of this message is the key's.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Es256 => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.bytes).verify(message, signature)
            }
            Algorithm::EdDsa => UnparsedPublicKey::new(&ED25519, &self.bytes).verify(message, signature),
        }
        .is_ok()
    }
}

/// A JSON Web Key Set.
pub fn encode_keys<'a>(keys: impl IntoIterator<Item = &'a PublicKey>) -> Vec<u8> {
    let keys: Vec<Value> = keys.into_iter().map(PublicKey::jwk).collect();
    json!({"keys": keys}).to_string().into_bytes()
}

/// Reads a JSON Web Key Set, or a single key. Keys of a set that are of another kind are passed over (RFC 7517, 5).
pub fn decode_keys(bytes: &[u8]) -> Result<Vec<PublicKey>, Malformed> {
    let value: Value = serde_json::from_slice(bytes)?;
    let Some(keys) = value.get("keys") else {
        return Ok(vec![PublicKey::from_jwk(&value)?]);
    };
    let keys = keys.as_array().ok_or_else(|| Malformed("`keys` is not a list".to_owned()))?;
    let read: Vec<PublicKey> = keys.iter().filter_map(|key| PublicKey::from_jwk(key).ok()).collect();
    if read.is_empty() {
        return Err(Malformed("there is no key for ES256 or EdDSA in the set".to_owned()));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_were() {
        for algorithm in [Algorithm::Es256, Algorithm::EdDsa] {
            let key = SigningKey::generate(algorithm).unwrap();
            let again = SigningKey::from_pkcs8(algorithm, key.pkcs8()).unwrap();
            assert_eq!(again.public(), key.public());
            assert!(key.public().verifies(b"message", &again.sign(b"message").unwrap()));
            assert!(!key.public().verifies(b"massage", &again.sign(b"message").unwrap()));
            let other = SigningKey::generate(algorithm).unwrap();
            assert_ne!(other.kid(), key.kid());
            assert!(!other.public().verifies(b"message", &key.sign(b"message").unwrap()));
            let mut public = key.public();
            public.not_after = Some(5);
            assert_eq!(decode_keys(&encode_keys([&public])).unwrap(), [public.clone()]);
            assert_eq!(PublicKey::from_jwk(&public.jwk()).unwrap(), public);
        }
        let es256 = SigningKey::generate(Algorithm::Es256).unwrap();
        assert!(SigningKey::from_pkcs8(Algorithm::EdDsa, es256.pkcs8()).is_err());
    }

    #[test]
    fn secrets_are_not_printed() {
        let key = SigningKey::generate(Algorithm::EdDsa).unwrap();
        let printed = format!("{key:?}");
        assert!(printed.contains(key.kid()) && printed.len() < 120, "{printed}");
    }

    /// RFC 8037, appendix A.3.
    #[test]
    fn thumbprints_are_those_of_the_rfc() {
        let ed25519 = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        assert_eq!(PublicKey::from_jwk(&ed25519).unwrap().kid, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let good = SigningKey::generate(Algorithm::Es256).unwrap().public().jwk();
        let with = |name: &str, value: Value| {
            let mut jwk = good.clone();
            jwk[name] = value;
            jwk
        };
        for jwk in [
            json!({}),
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
            with("crv", json!("P-384")),
            with("x", json!("AQAB")),
            with("alg", json!("EdDSA")),
            with("alg", json!("none")),
            with("use", json!("enc")),
        ] {
            assert!(PublicKey::from_jwk(&jwk).is_err(), "{jwk}");
            assert!(decode_keys(jwk.to_string().as_bytes()).is_err(), "{jwk}");
        }
        let set = json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, good]});
        assert_eq!(decode_keys(set.to_string().as_bytes()).unwrap().len(), 1);
        assert!(decode_keys(b"{\"keys\":[]}").is_err());
    }
}
