//! Which of a tenant's signing secrets count.
//!
//! A secret is made of the installation's key, the tenant, a number and the random bytes of its rotation. The numbers and the random bytes
//! are kept, in one setting for each tenant that has rotated: neither the key nor the setting alone gives a secret, and an old copy of
//! both does not give a later one. At most two secrets count at once, the current one and for a while the one before. An instance notices
//! a rotation by another within [`AGE`].

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use store::{Installation, TenantId};
use tokio::time::Instant;

use super::KeyError;

/// How long the numbers of a tenant are believed without looking again.
const AGE: Duration = Duration::from_secs(2);

/// How many tenants are remembered.
const REMEMBERED: usize = 4096;

/// How often a rotation tries again that others have overtaken.
const ATTEMPTS: usize = 20;

/// The numbers of a tenant's secrets.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signing {
    /// That of the current secret. The first is 0.
    number: u64,
    /// The second since 1970 until which the secret before it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_until: Option<i64>,
    /// The random bytes of the current secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<[u8; 32]>,
    /// Those of the secret before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_salt: Option<[u8; 32]>,
}

/// The input of a secret beside the installation's key and the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) number: u64,
    /// The first secret has none, nor have those that were rotated before there were any.
    pub(super) salt: Option<[u8; 32]>,
}

/// What is known of the tenants that were looked at.
#[derive(Default)]
pub(crate) struct SigningNumbers {
    known: Mutex<HashMap<TenantId, (Instant, Signing)>>,
}

impl Signing {
    async fn load(store: &dyn Installation, tenant: TenantId) -> Result<Self, KeyError> {
        match store.find_setting(&setting(tenant)).await? {
            Some(stored) => Self::read(&stored),
            None => Ok(Self::default()),
        }
    }

    fn read(stored: &[u8]) -> Result<Self, KeyError> {
        serde_json::from_slice(stored).map_err(|_| KeyError::Unreadable)
    }

    fn stored(self) -> Result<Vec<u8>, KeyError> {
        Ok(serde_json::to_vec(&self).map_err(store::Error::from)?)
    }

    /// When the secret before the current one ends, if it still counts.
    pub(crate) fn overlap_end(self, now: i64) -> Option<i64> {
        self.previous_until.filter(|end| self.number > 0 && *end > now)
    }

    /// The current secret.
    pub(super) fn current(self) -> Generation {
        Generation { number: self.number, salt: self.salt }
    }

    /// The secrets that count, the newest first.
    pub(super) fn generations(self, now: i64) -> impl Iterator<Item = Generation> {
        let previous = self.overlap_end(now).map(|_| Generation { number: self.number - 1, salt: self.previous_salt });
        std::iter::once(self.current()).chain(previous)
    }
}

impl SigningNumbers {
    /// Those of a tenant, at most [`AGE`] old.
    pub(crate) async fn of(&self, store: &dyn Installation, tenant: TenantId) -> Result<Signing, KeyError> {
        if let Some((looked, signing)) = self.lock().get(&tenant)
            && looked.elapsed() < AGE
        {
            return Ok(*signing);
        }
        self.look(store, tenant).await
    }

    /// Those of a tenant as they are in the store.
    pub(crate) async fn look(&self, store: &dyn Installation, tenant: TenantId) -> Result<Signing, KeyError> {
        let signing = Signing::load(store, tenant).await?;
        self.remember(tenant, signing);
        Ok(signing)
    }

    /// Makes the next secret of a tenant the current one. The one before counts for `overlap` longer.
    pub(crate) async fn rotate(
        &self,
        store: &dyn Installation,
        actor: &str,
        tenant: TenantId,
        (now, overlap): (i64, Duration),
    ) -> Result<Signing, KeyError> {
        let name = setting(tenant);
        for _ in 0..ATTEMPTS {
            let stored = match store.find_setting(&name).await? {
                Some(stored) => stored,
                None => store.setting(&name, Signing::default().stored()?).await?,
            };
            let before = Signing::read(&stored)?;
            let end = now.saturating_add(i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX));
            let number = before.number.checked_add(1).ok_or(KeyError::Unreadable)?;
            let mut salt = [0; 32];
            getrandom::fill(&mut salt).map_err(|_| KeyError::NotMade)?;
            let (salt, previous_salt) = (Some(salt), before.salt);
            let after = Signing { number, previous_until: Some(end).filter(|end| *end > now), salt, previous_salt };
            if store.replace_setting(actor, &name, stored, after.stored()?).await? {
                self.remember(tenant, after);
                return Ok(after);
            }
        }
        Err(KeyError::Overtaken)
    }

    fn remember(&self, tenant: TenantId, signing: Signing) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (looked, _)| looked.elapsed() < AGE);
        }
        if known.len() < REMEMBERED {
            known.insert(tenant, (Instant::now(), signing));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, (Instant, Signing)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of the setting, which goes with its tenant (`delete_tenant` of both stores).
fn setting(tenant: TenantId) -> String {
    format!("push.signing.{}", tenant.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::Store;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn open(directory: &std::path::Path) -> Arc<dyn Store> {
        store::sqlite::open(directory, store::sqlite::Options::default()).unwrap()
    }

    fn numbers(signing: Signing, now: i64) -> Vec<u64> {
        signing.generations(now).map(|generation| generation.number).collect()
    }

    #[tokio::test]
    async fn the_secret_before_counts_for_the_overlap_or_until_the_next_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let (signing, tenant) = (SigningNumbers::default(), TenantId(1));
        assert_eq!(numbers(signing.of(store.as_ref(), tenant).await.unwrap(), 0), [0]);
        let rotated = signing.rotate(store.as_ref(), "test", tenant, (1000, DAY)).await.unwrap();
        assert_eq!((numbers(rotated, 1000), numbers(rotated, 1000 + 86_399)), (vec![1, 0], vec![1, 0]));
        assert_eq!(numbers(rotated, 1000 + 86_400), [1]);
        assert_eq!(signing.of(store.as_ref(), tenant).await.unwrap(), rotated, "known at once here");
        let again = signing.rotate(store.as_ref(), "test", tenant, (1001, DAY)).await.unwrap();
        assert_eq!(numbers(again, 1001), [2, 1], "two at most");
        let alone = signing.rotate(store.as_ref(), "test", tenant, (1002, Duration::ZERO)).await.unwrap();
        assert_eq!(numbers(alone, 1002), [3]);
        let other = SigningNumbers::default();
        assert_eq!(other.of(store.as_ref(), tenant).await.unwrap(), alone, "it is in the store");
        assert_eq!(numbers(other.of(store.as_ref(), TenantId(2)).await.unwrap(), 1002), [0], "another tenant's stays");
    }

    #[tokio::test]
    async fn rotations_make_random_bytes_and_keep_those_of_the_secret_before() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let (signing, tenant) = (SigningNumbers::default(), TenantId(1));
        // As it was stored before there were random bytes.
        let stored = br#"{"number":3,"previous_until":2000}"#.to_vec();
        store.setting(&setting(tenant), stored).await.unwrap();
        let old = signing.look(store.as_ref(), tenant).await.unwrap();
        let generation = |number, salt| Generation { number, salt };
        assert_eq!(old.generations(1000).collect::<Vec<_>>(), [generation(3, None), generation(2, None)]);
        let first = signing.rotate(store.as_ref(), "test", tenant, (1000, DAY)).await.unwrap();
        let [current, before] = first.generations(1000).collect::<Vec<_>>()[..] else { panic!("{first:?}") };
        assert!(current.number == 4 && current.salt.is_some() && before == generation(3, None), "{first:?}");
        let second = signing.rotate(store.as_ref(), "test", tenant, (1000, DAY)).await.unwrap();
        let [next, before] = second.generations(1000).collect::<Vec<_>>()[..] else { panic!("{second:?}") };
        assert!(before == current && next.salt.is_some() && next.salt != current.salt, "{second:?}");
        let read = SigningNumbers::default().look(store.as_ref(), tenant).await.unwrap();
        assert_eq!(read, second, "it is in the store");
    }

    #[tokio::test(start_paused = true)]
    async fn another_instance_notices_a_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let (one, other, tenant) = (SigningNumbers::default(), SigningNumbers::default(), TenantId(1));
        let before = other.of(store.as_ref(), tenant).await.unwrap();
        let rotated = one.rotate(store.as_ref(), "test", tenant, (0, DAY)).await.unwrap();
        assert_eq!(other.of(store.as_ref(), tenant).await.unwrap(), before, "not yet");
        tokio::time::advance(AGE).await;
        assert_eq!(other.of(store.as_ref(), tenant).await.unwrap(), rotated);
    }

    #[tokio::test]
    async fn rotations_at_once_all_count() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let numbers = SigningNumbers::default();
        let rotations = (0..6).map(|_| numbers.rotate(store.as_ref(), "test", TenantId(1), (0, DAY)));
        for rotated in futures_util::future::join_all(rotations).await {
            rotated.unwrap();
        }
        assert_eq!(Signing::load(store.as_ref(), TenantId(1)).await.unwrap().number, 6);
    }
}
