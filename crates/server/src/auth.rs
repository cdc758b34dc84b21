//! Who calls: a credential becomes a [`Caller`], or the call is refused.
//!
//! `Authorization: Bearer`, `X-API-Key` and `x-sb-token` carry the same token. A wrong token is treated like a missing one.
//! Tokens exist here only as hashes, except in the header they came in; none is ever logged.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::{Error, ErrorKind};
use exchange::{Caller, admin::hash};
use http::{HeaderMap, HeaderName, header};
use store::Registry;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_SB_TOKEN: HeaderName = HeaderName::from_static("x-sb-token");

/// Where a token can be.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, X_API_KEY, X_SB_TOKEN];

/// The request headers that the answer to an authenticated request depends on.
pub(crate) const VARY: &str = "Authorization, X-API-Key, x-sb-token";

/// How long a token that was found is believed. A token that is revoked lives at most that much longer.
const TTL: Duration = Duration::from_secs(2);
/// How often the use of a token is written down.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// How many tokens are remembered.
const CAPACITY: usize = 4096;

/// The tenant of every caller while nobody has to authenticate.
const OPEN_TENANT: &str = "default";

type Hash = [u8; 32];

/// Decides who calls.
pub(crate) struct Auth {
    store: Arc<dyn Registry>,
    /// Everybody is this one when nobody has to authenticate.
    everybody: Option<Caller>,
    known: Mutex<HashMap<Hash, (Instant, Caller)>>,
    /// When the use of a token was last written down.
    noted: Mutex<HashMap<i64, Instant>>,
}

impl Auth {
    /// With `required` every call needs a token; without it every call is the default tenant's.
    pub(crate) async fn new(store: Arc<dyn Registry>, required: bool) -> store::Result<Self> {
        let everybody = if required { None } else { Some(open_tenant(store.as_ref()).await?) };
        Ok(Self { store, everybody, known: Mutex::default(), noted: Mutex::default() })
    }

    /// Who everybody is, where nobody has to say.
    pub(crate) fn everybody(&self) -> Option<&Caller> {
        self.everybody.as_ref()
    }

    /// Whether callers have to authenticate.
    pub(crate) fn required(&self) -> bool {
        self.everybody.is_none()
    }

    /// Whether there is nothing in these headers to know a caller by.
    pub(crate) fn is_unknown(&self, headers: &HeaderMap) -> bool {
        self.required() && CREDENTIALS.iter().all(|name| !headers.contains_key(name))
    }

    /// The caller behind these headers.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Error> {
        if let Some(everybody) = &self.everybody {
            return Ok(everybody.clone());
        }
        let Some(hash) = credential(headers) else {
            return Err(refused());
        };
        if let Some(caller) = self.remembered(&hash) {
            return Ok(caller);
        }
        match self.look_up(&hash).await {
            Ok(Some(caller)) => {
                self.remember(hash, caller.clone());
                Ok(caller)
            }
            Ok(None) => Err(refused()),
            Err(error) => {
                tracing::error!(error = %error, "tokens cannot be read");
                Err(Error::new(ErrorKind::Unavailable, "credentials cannot be checked at the moment")
                    .with_retry_after(1))
            }
        }
    }

    async fn look_up(&self, hash: &Hash) -> store::Result<Option<Caller>> {
        let Some(token) = self.store.token(hash).await? else {
            return Ok(None);
        };
        if !bool::from(token.hash.ct_eq(hash)) {
            return Ok(None);
        }
        let tenants = self.store.tenants().await?;
        let tenant = tenants.into_iter().find(|tenant| tenant.id == token.tenant && tenant.enabled);
        if tenant.is_some() {
            self.note_use(token.id);
        }
        Ok(tenant.map(|tenant| Caller { tenant: tenant.id, name: tenant.name.into() }))
    }

    /// Forgets every token, so that what was just revoked or disabled here ends at once.
    pub(crate) fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Writes down now and then that a token is in use. No call waits for it.
    fn note_use(&self, token: i64) {
        let now = Instant::now();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(&token).is_some_and(|at| now.duration_since(*at) < NOTE_EVERY) {
            return;
        }
        if noted.len() >= CAPACITY {
            noted.clear();
        }
        noted.insert(token, now);
        drop(noted);
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            if let Err(error) = store.touch_token(token).await {
                tracing::debug!(error = %error, "the use of a token could not be written down");
            }
        });
    }

    fn remembered(&self, hash: &Hash) -> Option<Caller> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, caller) = known.get(hash)?;
        (Instant::now() < *until).then(|| caller.clone())
    }

    fn remember(&self, hash: Hash, caller: Caller) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CAPACITY {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < CAPACITY {
            known.insert(hash, (now + TTL, caller));
        }
    }
}

/// The tenant of everybody, created when it is not there yet.
async fn open_tenant(store: &dyn Registry) -> store::Result<Caller> {
    let find = async || -> store::Result<Option<Caller>> {
        let tenant = store.tenants().await?.into_iter().find(|tenant| tenant.name == OPEN_TENANT);
        Ok(tenant.map(|tenant| Caller { tenant: tenant.id, name: tenant.name.into() }))
    };
    if let Some(caller) = find().await? {
        return Ok(caller);
    }
    match store.create_tenant(OPEN_TENANT).await {
        // Another instance was faster.
        Ok(_) | Err(store::Error::Exists) => find().await?.ok_or(store::Error::NotFound),
        Err(error) => Err(error),
    }
}

/// The hash of the token that the headers carry. Two different tokens are none.
fn credential(headers: &HeaderMap) -> Option<Hash> {
    let mut found: Option<Hash> = None;
    let bearer = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
    let keys = headers.get_all(X_API_KEY).iter().chain(headers.get_all(X_SB_TOKEN)).map(|value| value.as_bytes());
    for token in bearer.chain(keys) {
        let token = token.trim_ascii();
        if token.is_empty() {
            continue;
        }
        let hash = hash(token);
        match &found {
            Some(other) if !bool::from(other.ct_eq(&hash)) => return None,
            _ => found = Some(hash),
        }
    }
    found
}

/// The token of an `Authorization` header whose scheme is Bearer.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.trim_ascii().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

fn refused() -> Error {
    Error::new(ErrorKind::Unauthenticated, "a valid token is needed, as Authorization: Bearer, X-API-Key or x-sb-token")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn found(pairs: &[(&'static str, &'static str)]) -> Option<Hash> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        credential(&headers)
    }

    #[test]
    fn three_headers_mean_the_same_token() {
        let token = hash("t-1");
        for pairs in [
            &[("authorization", "Bearer t-1")][..],
            &[("authorization", "bearer   t-1 ")],
            &[("x-api-key", "t-1")],
            &[("x-sb-token", "t-1")],
            &[("authorization", "Bearer t-1"), ("x-api-key", "t-1"), ("x-sb-token", "t-1")],
            &[("authorization", "Basic abc"), ("x-sb-token", "t-1")],
        ] {
            assert_eq!(found(pairs), Some(token), "{pairs:?}");
        }
    }

    #[test]
    fn no_token_or_two_are_none() {
        for pairs in [
            &[][..],
            &[("authorization", "Basic dDp0")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer")],
            &[("x-sb-token", "")],
            &[("authorization", "Bearer t-1"), ("x-sb-token", "t-2")],
            &[("authorization", "Bearer t-1"), ("authorization", "Bearer t-2")],
        ] {
            assert_eq!(found(pairs), None, "{pairs:?}");
        }
    }
}
