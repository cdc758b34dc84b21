//! The keys with which the installation signs its cards: one that is active, and those before it for as long as somebody may
//! know only them.
//!
//! They are one setting of the installation, so that all instances have the same ones: the first who asks makes the first key,
//! and of two who rotate at once one finds that the other was first and looks again. An instance notices a rotation by another when it
//! [looks](CardKeys::load) the next time. What is stored names the place of the secret (`pkcs8`); a wrapped one would stand
//! under another name. Nothing here prints a secret.

use std::{fmt, time::Duration};

use a2a::signature::{Algorithm, Malformed, PublicKey, SigningKey, sign};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use store::{Installation, clock};

/// The setting.
pub const SETTING: &str = "card.keys";

/// How long a key that was replaced is still published and signs.
pub const OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many keys sign a card. Rotating often must not make cards large; the others are published only.
const SIGNING: usize = 3;

/// How often a rotation tries again that others have overtaken.
const ATTEMPTS: usize = 20;

/// The keys, newest first, as of one look at the store.
pub struct CardKeys {
    keys: Vec<CardKey>,
    /// What the store has, secrets included.
    stored: Vec<u8>,
}

/// A key and its life, in seconds since 1970.
#[derive(Debug)]
pub struct CardKey {
    pub key: SigningKey,
    pub created_at: i64,
    /// When it ends, once it was replaced.
    pub retires_at: Option<i64>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What is stored is no set of keys, or one of a newer version.
    #[error("the signing keys of the installation cannot be read: {0}")]
    Unreadable(String),
    /// The crypto library gives none.
    #[error("no signing key can be made: {0}")]
    NotMade(Malformed),
    /// Others rotate without an end.
    #[error("the signing keys are being rotated by others")]
    Overtaken,
    /// The store does not work.
    #[error("the journal cannot be used at the moment")]
    Store(#[from] store::Error),
}

#[derive(Serialize, Deserialize)]
struct Stored {
    keys: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    alg: String,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retires_at: Option<i64>,
    pkcs8: String,
}

impl CardKeys {
    /// The keys of the installation. The first who asks makes the first one, for ES256, which every verifier knows.
    pub async fn load(store: &dyn Installation) -> Result<Self, Error> {
        if let Some(stored) = store.find_setting(SETTING).await? {
            return Self::read(stored);
        }
        let first = Self::encode(&[StoredKey::new(Algorithm::Es256)?])?;
        Self::read(store.setting(SETTING, first).await?)
    }

    /// The same, unless they are still those that are known here.
    pub async fn load_after(store: &dyn Installation, known: &Self) -> Result<Option<Self>, Error> {
        match store.find_setting(SETTING).await? {
            Some(stored) if stored == known.stored => Ok(None),
            _ => Self::load(store).await.map(Some),
        }
    }

    /// Makes a new key the active one, of the same algorithm as the one before when none is named. That one is published and
    /// signs for `overlap` longer; those that have ended are forgotten.
    pub async fn rotate(
        store: &dyn Installation,
        actor: &str,
        algorithm: Option<Algorithm>,
        overlap: Duration,
    ) -> Result<Self, Error> {
        for _ in 0..ATTEMPTS {
            let before = Self::load(store).await?;
            let now = seconds_now();
            let end = now.saturating_add(i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX));
            let algorithm = algorithm.unwrap_or(before.active().key.algorithm());
            let mut after = vec![StoredKey::new(algorithm)?];
            for kept in &before.keys {
                let retires_at = kept.retires_at.unwrap_or(end).min(end);
                if retires_at > now {
                    after.push(StoredKey { retires_at: Some(retires_at), ..StoredKey::of(kept) });
                }
            }
            let stored = Self::encode(&after)?;
            if store.replace_setting(actor, SETTING, before.stored, stored.clone()).await? {
                return Self::read(stored);
            }
        }
        Err(Error::Overtaken)
    }

    /// The key that others should know by now: the newest.
    pub fn active(&self) -> &CardKey {
        // A set without keys is not read.
        &self.keys[0]
    }

    /// The same, to sign with it.
    pub fn into_active(mut self) -> CardKey {
        self.keys.swap_remove(0)
    }

    /// All that are kept, newest first.
    pub fn all(&self) -> impl Iterator<Item = &CardKey> {
        self.keys.iter()
    }

    /// Those that have not ended, newest first.
    pub fn live(&self, now: i64) -> impl Iterator<Item = &CardKey> {
        self.keys.iter().filter(move |key| key.retires_at.is_none_or(|end| end > now))
    }

    /// What verifiers are told, each with its end.
    pub fn published(&self, now: i64) -> Vec<PublicKey> {
        self.live(now).map(CardKey::public).collect()
    }

    /// The names of those that sign, newest first. Two cards that say the same and whose keys have the same names are the same
    /// to their readers, although signatures differ each time.
    pub fn signers(&self, now: i64) -> Vec<&str> {
        self.live(now).take(SIGNING).map(|key| key.key.kid()).collect()
    }

    /// The card with signatures of the keys that sign now.
    pub fn sign(&self, card: &[u8], jku: Option<&str>, now: i64) -> Result<Vec<u8>, Malformed> {
        let mut signed = card.to_vec();
        for key in self.live(now).take(SIGNING) {
            signed = sign(&signed, &key.key, jku)?;
        }
        Ok(signed)
    }

    /// The keys as the store has them.
    pub fn read(stored: Vec<u8>) -> Result<Self, Error> {
        // What serde_json says of an error may hold a piece of what it read.
        let parsed: Stored = serde_json::from_slice(&stored)
            .map_err(|_| Error::Unreadable("they are not in a form known here".into()))?;
        let keys = parsed.keys.into_iter().map(StoredKey::open).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(Error::Unreadable("there is none".into()));
        }
        Ok(Self { keys, stored })
    }

    fn encode(keys: &[StoredKey]) -> Result<Vec<u8>, Error> {
        let encoded = serde_json::to_vec(&serde_json::json!({ "keys": keys }));
        encoded.map_err(|_| Error::Unreadable("they cannot be written".into()))
    }
}

impl fmt::Debug for CardKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardKeys").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl CardKey {
    /// What verifiers need.
    pub fn public(&self) -> PublicKey {
        let mut public = self.key.public();
        public.not_after = self.retires_at;
        public
    }
}

impl StoredKey {
    fn new(algorithm: Algorithm) -> Result<Self, Error> {
        let key = SigningKey::generate(algorithm).map_err(Error::NotMade)?;
        Ok(Self::of(&CardKey { key, created_at: seconds_now(), retires_at: None }))
    }

    fn of(key: &CardKey) -> Self {
        Self {
            alg: key.key.algorithm().name().to_owned(),
            created_at: key.created_at,
            retires_at: key.retires_at,
            pkcs8: STANDARD.encode(key.key.pkcs8()),
        }
    }

    fn open(self) -> Result<CardKey, Error> {
        let unreadable = || Error::Unreadable("one is not what it says".into());
        let algorithm = Algorithm::named(&self.alg).ok_or_else(unreadable)?;
        let pkcs8 = STANDARD.decode(&self.pkcs8).map_err(|_| unreadable())?;
        let key = SigningKey::from_pkcs8(algorithm, &pkcs8).map_err(|_| unreadable())?;
        Ok(CardKey { key, created_at: self.created_at, retires_at: self.retires_at })
    }
}

/// The time by which keys live.
pub fn seconds_now() -> i64 {
    clock::now().as_millis().div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use a2a::signature::{Trusted, verify};
    use store::Store;

    use super::*;

    const CARD: &[u8] = br#"{"name":"a","supportedInterfaces":[]}"#;
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn open(directory: &std::path::Path) -> Arc<dyn Store> {
        store::sqlite::open(directory, store::sqlite::Options::default()).unwrap()
    }

    fn verifies(signed: &[u8], key: &PublicKey, now: i64) -> bool {
        verify(signed, &[Trusted { key: key.clone(), origin: None }], None, now).is_ok()
    }

    #[tokio::test]
    async fn instances_that_ask_at_once_have_the_same_key() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let asked = (0..8).map(|_| CardKeys::load(store.as_ref()));
        let kids: HashSet<String> = futures_util::future::join_all(asked)
            .await
            .into_iter()
            .map(|keys| keys.unwrap().active().key.kid().to_owned())
            .collect();
        assert_eq!(kids.len(), 1);
    }

    #[tokio::test]
    async fn a_key_that_was_replaced_is_believed_for_the_overlap() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let first = CardKeys::load(store.as_ref()).await.unwrap();
        assert!(CardKeys::load_after(store.as_ref(), &first).await.unwrap().is_none());
        CardKeys::rotate(store.as_ref(), "test", Some(Algorithm::EdDsa), DAY).await.unwrap();
        let second = CardKeys::load_after(store.as_ref(), &first).await.unwrap().unwrap();
        assert_eq!(second.active().key.algorithm(), Algorithm::EdDsa);
        let now = seconds_now();
        let published = second.published(now);
        assert_eq!(published.len(), 2);
        let old = published[1].clone();
        assert_eq!(old.kid, first.active().key.kid());
        assert!((now + 86_390..=now + 86_400).contains(&old.not_after.unwrap()));
        // Who knows only the old one, and who knows only the new one, both verify, until the old one has ended.
        let signed = second.sign(CARD, None, now).unwrap();
        assert!(verifies(&signed, &first.active().public(), now) && verifies(&signed, &published[0], now));
        let later = now + 86_401;
        assert_eq!((second.published(later).len(), second.signers(later).len()), (1, 1));
        assert!(!verifies(&signed, &old, later));
        assert!(!verifies(&second.sign(CARD, None, later).unwrap(), &first.active().public(), later));
    }

    #[tokio::test]
    async fn rotations_at_once_all_count() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let rotations = (0..6).map(|_| CardKeys::rotate(store.as_ref(), "test", None, DAY));
        for rotated in futures_util::future::join_all(rotations).await {
            rotated.unwrap();
        }
        let keys = CardKeys::load(store.as_ref()).await.unwrap();
        let now = seconds_now();
        assert_eq!(keys.published(now).len(), 7);
        assert_eq!(keys.signers(now).len(), SIGNING);
        // Without an overlap what was before is gone at once.
        let keys = CardKeys::rotate(store.as_ref(), "test", None, Duration::ZERO).await.unwrap();
        assert_eq!(keys.published(now).len(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_neither_used_nor_printed() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let keys = CardKeys::load(store.as_ref()).await.unwrap();
        let secret = STANDARD.encode(keys.active().key.pkcs8());
        assert!(!format!("{keys:?}").contains(&secret[..20]) && format!("{keys:?}").len() < 300);
        for stored in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"alg":"ES256","created_at":1,"pkcs8":"c2VjcmV0"}]}"#] {
            store.set_setting("test", SETTING, stored.as_bytes().to_vec()).await.unwrap();
            let error = CardKeys::load(store.as_ref()).await.unwrap_err().to_string();
            assert!(!error.contains("c2VjcmV0"), "{error}");
        }
    }
}
