//! Page tokens: where a page ended, sealed for one tenant and one set of filters.

use a2a::{Error, Timestamp};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use store::{Installation, PageKey, Position, TaskId, TenantId};

/// The installation's key for page tokens.
#[derive(Clone)]
pub(crate) struct Key(pub(crate) [u8; 32]);

const SEAL: usize = 16;

/// The bytes of a feed's cursor without its seal, and what its seals and masks are for.
const CURSOR: usize = 24;
const FEED: &[u8; 32] = b"switchboard feed cursor seal 001";
const MASK: &[u8; 32] = b"switchboard feed cursor mask 001";

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

    /// A place in the log of all tasks, and the time up to there. Nobody else can read it: how far the log has grown is no
    /// tenant's business.
    pub(crate) fn seal_cursor(&self, tenant: TenantId, position: Position, at: Timestamp) -> String {
        let mut payload = [0; CURSOR];
        payload[..16].copy_from_slice(&position.to_bytes());
        payload[16..].copy_from_slice(&at.as_millis().to_be_bytes());
        let seal = self.mac(tenant, FEED, &payload);
        self.mask(tenant, &seal, &mut payload);
        URL_SAFE_NO_PAD.encode([&payload[..], &seal].concat())
    }

    /// The reverse of [`Key::seal_cursor`].
    pub(crate) fn open_cursor(&self, tenant: TenantId, cursor: &str) -> Result<(Position, Timestamp), Error> {
        let why = "is not a cursor of this feed: use the id of one of its events, or 0 for the begin of the log";
        self.try_open_cursor(tenant, cursor).ok_or_else(|| Error::invalid("after", why))
    }

    fn try_open_cursor(&self, tenant: TenantId, cursor: &str) -> Option<(Position, Timestamp)> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (payload, seal) = bytes.split_first_chunk::<CURSOR>()?;
        let (mut payload, seal) = (*payload, <[u8; SEAL]>::try_from(seal).ok()?);
        self.mask(tenant, &seal, &mut payload);
        let expected = self.mac(tenant, FEED, &payload);
        if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &seal[..])) {
            return None;
        }
        let (position, at) = payload.split_first_chunk::<16>()?;
        let at = i64::from_be_bytes(at.try_into().ok()?);
        Some((Position::from_bytes(*position), Timestamp::from_millis(at)))
    }

    /// Hides a cursor or shows it: each seal has a mask of its own.
    fn mask(&self, tenant: TenantId, seal: &[u8; SEAL], payload: &mut [u8; CURSOR]) {
        let blocks = [[0_u8], [1]].map(|block| self.mac(tenant, MASK, &[&seal[..], &block].concat()));
        for (byte, mask) in payload.iter_mut().zip(blocks.iter().flatten()) {
            *byte ^= mask;
        }
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

    /// A digest that only this installation can make. `filters` keeps digests of different kinds apart.
    pub(crate) fn mac(&self, tenant: TenantId, filters: &[u8; 32], payload: &[u8]) -> [u8; SEAL] {
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

    #[test]
    fn a_cursor_is_its_tenants_and_says_nothing_to_it() {
        let key = Key([7; 32]);
        let place = |pos: u8| {
            let mut bytes = [0; 16];
            bytes[15] = pos;
            (Position::from_bytes(bytes), Timestamp::from_millis(1234))
        };
        let (one, two) = (place(1), place(2));
        let cursor = key.seal_cursor(TenantId(1), one.0, one.1);
        assert_eq!(key.open_cursor(TenantId(1), &cursor).unwrap(), one);
        assert!(key.open_cursor(TenantId(2), &cursor).is_err());
        for wrong in ["", "0", "1", "x", &cursor[1..], &format!("{cursor}A"), &cursor.replace(&cursor[..1], "_")] {
            if wrong != cursor {
                assert!(key.open_cursor(TenantId(1), wrong).is_err(), "{wrong}");
            }
        }
        let other = key.seal_cursor(TenantId(1), two.0, two.1);
        let same = cursor.bytes().zip(other.bytes()).filter(|(a, b)| a == b).count();
        assert!(same < cursor.len() / 2, "{cursor} {other}");
    }

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
