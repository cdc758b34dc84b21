//! Cards with their signatures: each card is signed once and remembered, until it or the keys of the installation change.
//!
//! What is remembered goes by the card's own bytes, so that an agent that changes has another card and nothing has to be
//! told. A signature by ES256 is another one each time, so the tag of a card is that of what it says and of who signed it: the
//! instances behind one URL give the same tag.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::signature::encode_keys;
use exchange::card_keys::{self, CardKeys, seconds_now};
use sha2::{Digest, Sha256};
use store::Store;
use tokio::time::Instant;

use crate::reply::Tagged;

/// How long keys are believed that were read. A rotation by another instance is noticed at most that much later.
const TTL: Duration = Duration::from_secs(2);

/// How many cards are remembered: some for each agent, and some for each tenant.
const CAPACITY: usize = 4096;

/// Where the public keys are, below the server.
pub(crate) const KEYS_PATH: [&str; 2] = [".well-known", "jwks.json"];

pub(crate) struct Signing {
    store: Arc<dyn Store>,
    base: String,
    known: Mutex<Known>,
}

struct Known {
    keys: Arc<CardKeys>,
    since: Instant,
    /// Who signed what is remembered.
    signers: Vec<String>,
    cards: HashMap<[u8; 32], Tagged>,
}

impl Signing {
    /// With the keys of the installation, which the first instance makes. `base` is what URLs begin with.
    pub(crate) async fn new(store: Arc<dyn Store>, base: &str) -> Result<Self, card_keys::Error> {
        let keys = Arc::new(CardKeys::load(store.as_ref()).await?);
        let known = Known { keys, since: Instant::now(), signers: Vec::new(), cards: HashMap::new() };
        Ok(Self { store, base: base.to_owned(), known: Mutex::new(known) })
    }

    /// Where verifiers find the public keys.
    pub(crate) fn jku(&self) -> String {
        jku(&self.base)
    }

    /// The card, signed and tagged. `base` is what its URLs begin with.
    pub(crate) async fn sign(&self, card: Vec<u8>, base: &str) -> Tagged {
        let keys = self.keys().await;
        let now = seconds_now();
        let signers = keys.signers(now);
        let digest: [u8; 32] = Sha256::digest(&card).into();
        {
            let mut known = self.lock();
            if known.signers != signers {
                known.signers = signers.iter().map(|kid| (*kid).to_owned()).collect();
                known.cards.clear();
            }
            if let Some(signed) = known.cards.get(&digest) {
                return signed.clone();
            }
        }
        let etag = tag(&[&card, signers.join(" ").as_bytes()]);
        let bytes = keys.sign(&card, Some(&jku(base)), now).unwrap_or_else(|error| {
            tracing::error!(%error, "a card is served without a signature");
            card
        });
        let signed = Tagged { bytes: bytes.into(), etag };
        let mut known = self.lock();
        if known.cards.len() >= CAPACITY {
            known.cards.clear();
        }
        // Whoever was first decides, so that all have the same bytes; those of other keys are another's to remember.
        if known.signers == signers {
            return known.cards.entry(digest).or_insert(signed).clone();
        }
        signed
    }

    /// The public keys as a JSON Web Key Set.
    pub(crate) async fn key_set(&self) -> Tagged {
        let bytes = encode_keys(&self.keys().await.published(seconds_now()));
        let etag = tag(&[&bytes]);
        Tagged { bytes: bytes.into(), etag }
    }

    /// The keys have changed here: what comes next sees it.
    pub(crate) fn forget(&self) {
        let mut known = self.lock();
        if let Some(past) = Instant::now().checked_sub(TTL) {
            known.since = past;
        }
    }

    /// The keys as they are, or were a moment ago.
    async fn keys(&self) -> Arc<CardKeys> {
        let keys = {
            let mut known = self.lock();
            if known.since.elapsed() < TTL {
                return Arc::clone(&known.keys);
            }
            // One looks; the others go on with what is known.
            known.since = Instant::now();
            Arc::clone(&known.keys)
        };
        match CardKeys::load_after(self.store.as_ref(), &keys).await {
            Ok(None) => keys,
            Ok(Some(changed)) => {
                let changed = Arc::new(changed);
                self.lock().keys = Arc::clone(&changed);
                changed
            }
            Err(error) => {
                tracing::warn!(%error, "the signing keys cannot be read; those of before are used");
                keys
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the public keys are, below what URLs begin with.
fn jku(base: &str) -> String {
    format!("{base}/{}", KEYS_PATH.join("/"))
}

/// A weak tag: the same for what says the same.
fn tag(parts: &[&[u8]]) -> Arc<str> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let mut etag = String::from("W/\"");
    for byte in &hash.finalize()[..12] {
        etag.push_str(&format!("{byte:02x}"));
    }
    etag.push('"');
    etag.into()
}

#[cfg(test)]
mod tests {
    use a2a::signature::{Trusted, decode_keys, verify};

    use super::*;

    const CARD: &[u8] = br#"{"name":"a","supportedInterfaces":[]}"#;

    fn store() -> (tempfile::TempDir, Arc<dyn Store>) {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        (directory, store)
    }

    async fn verifies(card: &Tagged, by: &Signing) -> bool {
        let keys = decode_keys(&by.key_set().await.bytes).unwrap();
        let trusted: Vec<_> = keys.into_iter().map(|key| Trusted { key, origin: None }).collect();
        verify(&card.bytes, &trusted, None, seconds_now()).is_ok()
    }

    #[tokio::test]
    async fn instances_give_the_same_tag_and_believe_each_other() {
        let (_directory, store) = store();
        let one = Signing::new(Arc::clone(&store), "https://h").await.unwrap();
        let other = Signing::new(store, "https://h").await.unwrap();
        let (first, second) =
            (one.sign(CARD.to_vec(), "https://h").await, other.sign(CARD.to_vec(), "https://h").await);
        assert_eq!(first.etag, second.etag);
        assert!(verifies(&first, &other).await && verifies(&second, &one).await);
        assert_eq!(one.key_set().await.etag, other.key_set().await.etag);
        assert_eq!(one.sign(CARD.to_vec(), "https://h").await.bytes, first.bytes, "signed once");
        let changed = br#"{"name":"b","supportedInterfaces":[]}"#;
        assert_ne!(one.sign(changed.to_vec(), "https://h").await.etag, first.etag);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotation_elsewhere_is_noticed() {
        let (_directory, store) = store();
        let signing = Signing::new(Arc::clone(&store), "https://h").await.unwrap();
        let before = signing.sign(CARD.to_vec(), "https://h").await;
        CardKeys::rotate(store.as_ref(), "test", None, card_keys::OVERLAP).await.unwrap();
        assert_eq!(signing.sign(CARD.to_vec(), "https://h").await.etag, before.etag, "not yet");
        tokio::time::advance(TTL).await;
        let after = signing.sign(CARD.to_vec(), "https://h").await;
        assert_ne!(after.etag, before.etag);
        assert!(
            verifies(&after, &signing).await && verifies(&before, &signing).await,
            "the old key is still published"
        );
        CardKeys::rotate(store.as_ref(), "test", None, Duration::ZERO).await.unwrap();
        signing.forget();
        let last = signing.sign(CARD.to_vec(), "https://h").await;
        assert!(verifies(&last, &signing).await && !verifies(&before, &signing).await);
    }
}
