//! Page tokens: where a page ended, sealed for one tenant and one set of filters.

use a2a::{Error, Timestamp};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use store::{Installation, PageKey, TaskId, TenantId};

/// The installation's key for page tokens.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

const SEAL: usize = 16;

impl Key {
    /// The key of this installation, made by the first instance that asks.
    pub(crate) async fn load(store: &dyn Installation) -> store::Result<Self> {
        let mut fresh = [0; 32];
        getrandom::fill(&mut fresh)
            .map_err(|error| store::Error::Unavailable(format!("no randomness for a key: {error}")))?;
        let stored = store.setting("page-token-key", fresh.to_vec()).await?;
        let key =
            stored.try_into().map_err(|_| store::Error::Damaged("the page token key has the wrong length".into()))?;
        Ok(Self(key))
    }

    /// `filters` is anything that must be the same on the next page.
    pub(crate) fn seal(&self, tenant: TenantId, filters: &[u8; 32], at: PageKey) -> String {
        let mut token = at.status_at.as_millis().to_be_bytes().to_vec();
        token.extend_from_slice(at.task.to_string().as_bytes());
        self.seal_bytes(tenant, filters, token)
    }

    /// The same for a list whose places are names.
    pub(crate) fn seal_name(&self, tenant: TenantId, filters: &[u8; 32], name: &str) -> String {
        self.seal_bytes(tenant, filters, name.as_bytes().to_vec())
    }

    fn seal_bytes(&self, tenant: TenantId, filters: &[u8; 32], mut token: Vec<u8>) -> String {
        let seal = self.mac(tenant, filters, &token);
        token.extend_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Refuses what this installation did not seal for this tenant and these filters.
    pub(crate) fn open(&self, tenant: TenantId, filters: &[u8; 32], token: &str) -> Result<PageKey, Error> {
        self.try_open(tenant, filters, token).ok_or_else(foreign)
    }

    /// The same for a list whose places are names.
    pub(crate) fn open_name(&self, tenant: TenantId, filters: &[u8; 32], token: &str) -> Result<String, Error> {
        let name = self.open_bytes(tenant, filters, token).and_then(|payload| String::from_utf8(payload).ok());
        name.ok_or_else(foreign)
    }

    fn open_bytes(&self, tenant: TenantId, filters: &[u8; 32], token: &str) -> Option<Vec<u8>> {
        let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let seal = bytes.split_off(bytes.len().checked_sub(SEAL)?);
        let expected = self.mac(tenant, filters, &bytes);
        bool::from(subtle::ConstantTimeEq::ct_eq(expected.as_slice(), &seal[..])).then_some(bytes)
    }

    fn try_open(&self, tenant: TenantId, filters: &[u8; 32], token: &str) -> Option<PageKey> {
        let payload = self.open_bytes(tenant, filters, token)?;
        let (millis, task) = payload.split_first_chunk::<8>()?;
        Some(PageKey {
            status_at: Timestamp::from_millis(i64::from_be_bytes(*millis)),
            task: TaskId::parse(std::str::from_utf8(task).ok()?)?,
        })
    }

    fn mac(&self, tenant: TenantId, filters: &[u8; 32], payload: &[u8]) -> [u8; SEAL] {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(&tenant.0.to_be_bytes());
        mac.update(filters);
        mac.update(payload);
        let full = mac.finalize().into_bytes();
        let mut seal = [0; SEAL];
        seal.copy_from_slice(&full[..SEAL]);
        seal
    }
}

fn foreign() -> Error {
    let why = "is not a token of this list: use the nextPageToken of a page with the same filters";
    Error::invalid("pageToken", why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Nothing but what was sealed opens, and that as what it was.
        #[test]
        fn a_token_is_opened_or_refused(
            noise in any::<String>(),
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            millis in 0_i64..4_000_000_000_000,
            tenant in any::<i64>(),
            filters in any::<[u8; 32]>(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let key = Key([7; 32]);
            let tenant = TenantId(tenant);
            for forged in [noise, URL_SAFE_NO_PAD.encode(&bytes)] {
                let error = key.open(tenant, &filters, &forged).unwrap_err();
                prop_assert_eq!(&error.violations[0].field, "pageToken");
            }
            let page = PageKey { status_at: Timestamp::from_millis(millis), task: TaskId::mint() };
            let token = key.seal(tenant, &filters, page);
            prop_assert_eq!(key.open(tenant, &filters, &token).unwrap(), page);
            let mut changed = token.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = byte;
            let changed = String::from_utf8_lossy(&changed).into_owned();
            if changed != token {
                prop_assert!(key.open(tenant, &filters, &changed).is_err());
            }
            prop_assert!(key.open(TenantId(tenant.0.wrapping_add(1)), &filters, &token).is_err());
        }
    }

    #[test]
    fn a_token_opens_only_where_it_was_sealed() {
        let key = Key([7; 32]);
        let at = PageKey { status_at: Timestamp::from_millis(1_700_000_000_123), task: TaskId::mint() };
        let token = key.seal(TenantId(1), &[1; 32], at);
        assert_eq!(key.open(TenantId(1), &[1; 32], &token).unwrap(), at);
        assert!(key.open(TenantId(2), &[1; 32], &token).is_err(), "another tenant");
        assert!(key.open(TenantId(1), &[2; 32], &token).is_err(), "other filters");
        assert!(Key([8; 32]).open(TenantId(1), &[1; 32], &token).is_err(), "another installation");
        for n in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[n] = if forged[n] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(key.open(TenantId(1), &[1; 32], &forged).is_err(), "byte {n}");
        }
        for short in ["", "A", "AAAA", "%%%"] {
            assert!(key.open(TenantId(1), &[1; 32], short).is_err());
        }
    }
}
