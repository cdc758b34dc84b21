//! The installation's keys for notifications: one that seals the secrets of configurations, one that signs what is told.
//!
//! They are one setting of the installation, made by the first instance that asks. With a key of the operator's, which is not in the
//! store, they are wrapped there: whoever has a copy of the database or a backup of it has no secret of any webhook. Nothing
//! here prints one.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{Installation, TaskId, TenantId};

use super::signing::{Generation, Signing};

/// The setting.
const SETTING: &str = "push.keys";

/// The first byte of what is sealed says how.
const VERSION: u8 = 1;

/// What a signing secret begins with, by the Standard Webhooks.
const PREFIX: &str = "whsec_";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The store has them wrapped, and no key file was given.
    #[error("the installation's keys for notifications are wrapped by a key file: set key_file to it")]
    Wrapped,
    /// The key file is not the one that they were wrapped with.
    #[error("the key file is not the one that wraps the installation's keys for notifications")]
    OtherKey,
    /// What is stored is no set of keys, or one of a newer version.
    #[error("the installation's keys for notifications cannot be read")]
    Unreadable,
    /// Others rotate a signing secret without an end.
    #[error("the signing secret is being rotated by others")]
    Overtaken,
    /// There is no randomness.
    #[error("no key can be made")]
    NotMade,
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What nobody but the receiver may know.
#[derive(Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Secrets {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) token: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) credentials: String,
}

/// The keys.
pub(crate) struct Keys {
    seal: LessSafeKey,
    sign: [u8; 32],
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stored {
    /// The seal's key and the signature's, one after the other.
    Plain(String),
    Wrapped(String),
}

impl Keys {
    /// The keys of this installation. A key file wraps what was stored without one, and what the key file before it has wrapped.
    pub(crate) async fn load(
        store: &dyn Installation,
        key_file: Option<&[u8]>,
        previous: Option<&[u8]>,
    ) -> Result<Self, KeyError> {
        let key_of = |content| aes(&Sha256::digest(content).into());
        let wrap = key_file.map(key_of).transpose()?;
        let previous = previous.map(key_of).transpose()?;
        let stored = match store.find_setting(SETTING).await? {
            Some(stored) => stored,
            None => {
                let mut fresh = [0; 64];
                getrandom::fill(&mut fresh).map_err(|_| KeyError::NotMade)?;
                store.setting(SETTING, Stored::of(&fresh, wrap.as_ref())?).await?
            }
        };
        let keys = match (serde_json::from_slice(&stored).map_err(|_| KeyError::Unreadable)?, &wrap) {
            (Stored::Plain(text), None) => decode(&text)?,
            (Stored::Plain(text), Some(key)) => {
                let keys = decode(&text)?;
                // Of two who do this at once one is first, and the other finds the same keys.
                store.replace_setting("system", SETTING, stored, Stored::of(&keys, Some(key))?).await?;
                tracing::info!("the keys for notifications are wrapped by the key file from now on");
                keys
            }
            (Stored::Wrapped(_), None) => return Err(KeyError::Wrapped),
            (Stored::Wrapped(text), Some(key)) => {
                let wrapped = decode(&text)?;
                let open = |key| open(key, SETTING.as_bytes(), &wrapped);
                match open(key) {
                    Some(keys) => keys,
                    None => {
                        let keys = previous.as_ref().and_then(open).ok_or(KeyError::OtherKey)?;
                        // The setting is one row: it is wrapped by the one file or by the other, whenever this is cut off.
                        store.replace_setting("system", SETTING, stored, Stored::of(&keys, Some(key))?).await?;
                        tracing::info!("the keys for notifications are wrapped by the new key file from now on");
                        keys
                    }
                }
            }
        };
        let (seal, sign) = keys.split_first_chunk::<32>().ok_or(KeyError::Unreadable)?;
        Ok(Self { seal: aes(seal)?, sign: sign.try_into().map_err(|_| KeyError::Unreadable)? })
    }

    /// Seals the secrets of a configuration, for that one alone.
    pub(crate) fn seal(&self, of: &Of<'_>, secrets: &Secrets) -> Result<Vec<u8>, KeyError> {
        if *secrets == Secrets::default() {
            return Ok(Vec::new());
        }
        let plain = serde_json::to_vec(secrets).map_err(store::Error::from)?;
        close(&self.seal, &of.bytes(), &plain)
    }

    /// The secrets of a configuration; `None` when they were sealed for another or with another key.
    pub(crate) fn open(&self, of: &Of<'_>, sealed: &[u8]) -> Option<Secrets> {
        if sealed.is_empty() {
            return Some(Secrets::default());
        }
        serde_json::from_slice(&open(&self.seal, &of.bytes(), sealed)?).ok()
    }

    /// What a tenant's receivers verify signatures with: the current secret.
    pub(crate) fn secret(&self, tenant: TenantId, signing: Signing) -> String {
        format!("{PREFIX}{}", STANDARD.encode(self.tenants_key(tenant, signing.current())))
    }

    /// The signatures of a notification, by the Standard Webhooks: over its id, its time in seconds and its body, one for each secret that
    /// counts at that time.
    pub(crate) fn sign(&self, tenant: TenantId, signing: Signing, id: &str, seconds: i64, body: &[u8]) -> String {
        let sign = |generation| {
            let mut mac = mac(&self.tenants_key(tenant, generation));
            mac.update(format!("{id}.{seconds}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        signing.generations(seconds).map(sign).collect::<Vec<_>>().join(" ")
    }

    /// The first secret is made as it was before secrets had numbers, and one without random bytes as before there were any.
    fn tenants_key(&self, tenant: TenantId, Generation { number, salt }: Generation) -> [u8; 32] {
        let mut mac = mac(&self.sign);
        mac.update(b"push.signing");
        mac.update(&tenant.0.to_be_bytes());
        if number > 0 {
            mac.update(&number.to_be_bytes());
        }
        if let Some(salt) = salt {
            mac.update(&salt);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Which configuration secrets are sealed for.
pub(crate) struct Of<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) task: TaskId,
    pub(crate) id: &'a str,
}

impl Of<'_> {
    fn bytes(&self) -> Vec<u8> {
        format!("{} {} {}", self.tenant.0, self.task, self.id).into_bytes()
    }
}

impl Stored {
    fn of(keys: &[u8], wrap: Option<&LessSafeKey>) -> Result<Vec<u8>, KeyError> {
        let stored = match wrap {
            None => Self::Plain(STANDARD.encode(keys)),
            Some(key) => Self::Wrapped(STANDARD.encode(close(key, SETTING.as_bytes(), keys)?)),
        };
        Ok(serde_json::to_vec(&stored).map_err(store::Error::from)?)
    }
}

fn decode(text: &str) -> Result<Vec<u8>, KeyError> {
    STANDARD.decode(text).map_err(|_| KeyError::Unreadable)
}

fn aes(key: &[u8; 32]) -> Result<LessSafeKey, KeyError> {
    UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| KeyError::NotMade)
}

fn close(key: &LessSafeKey, about: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|_| KeyError::NotMade)?;
    let mut text = plain.to_vec();
    let sealed = key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut text);
    sealed.map_err(|_| KeyError::NotMade)?;
    let mut closed = vec![VERSION];
    closed.extend_from_slice(&nonce);
    closed.append(&mut text);
    Ok(closed)
}

fn open(key: &LessSafeKey, about: &[u8], closed: &[u8]) -> Option<Vec<u8>> {
    let closed = closed.strip_prefix(&[VERSION])?;
    let (nonce, text) = closed.split_first_chunk::<NONCE_LEN>()?;
    let mut text = text.to_vec();
    let plain = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(about), &mut text).ok()?;
    Some(plain.to_vec())
}

fn mac(key: &[u8; 32]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    Hmac::new_from_slice(key).expect("a key of any length is taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys { seal: aes(&[7; 32]).unwrap(), sign: [9; 32] }
    }

    #[test]
    fn a_secret_takes_the_random_bytes_of_its_rotation() {
        let keys = keys();
        let secret = |number, salt| keys.tenants_key(TenantId(1), Generation { number, salt });
        let all =
            [secret(0, None), secret(1, None), secret(1, Some([1; 32])), secret(1, Some([2; 32])), secret(2, None)];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(one), "{n}");
        }
        // Receivers of installations that rotated before have this one.
        let mut before = mac(&[9; 32]);
        before.update(b"push.signing");
        before.update(&1_i64.to_be_bytes());
        before.update(&1_u64.to_be_bytes());
        assert_eq!(secret(1, None)[..], before.finalize().into_bytes()[..]);
    }

    #[test]
    fn secrets_are_sealed_for_one_configuration() {
        let (keys, task) = (keys(), TaskId::mint());
        let secrets = Secrets { token: "canary-token".into(), credentials: "canary-credentials".into() };
        let of = Of { tenant: TenantId(1), task, id: "a" };
        let sealed = keys.seal(&of, &secrets).unwrap();
        let again = keys.seal(&of, &secrets).unwrap();
        assert_ne!(sealed, again, "the same is never sealed the same twice");
        assert!(!String::from_utf8_lossy(&sealed).contains("canary"));
        assert!(keys.open(&of, &sealed).is_some_and(|opened| opened == secrets));
        for other in [
            Of { tenant: TenantId(2), task, id: "a" },
            Of { tenant: TenantId(1), task: TaskId::mint(), id: "a" },
            Of { tenant: TenantId(1), task, id: "b" },
        ] {
            assert!(keys.open(&other, &sealed).is_none());
        }
        for n in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[n] ^= 1;
            assert!(keys.open(&of, &changed).is_none(), "{n}");
        }
        assert!(keys.open(&of, b"").is_some_and(|opened| opened == Secrets::default()));
    }

    /// The vector of the Standard Webhooks' own libraries.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}");
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let keys = keys();
        let first = Signing::default();
        let secret = keys.secret(TenantId(1), first);
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(b"msg_1.17.{}");
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(keys.sign(TenantId(1), first, "msg_1", 17, b"{}"), expected);
        assert_ne!(keys.secret(TenantId(2), first), secret);
    }
}
