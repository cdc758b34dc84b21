//! Who calls: a credential becomes a [`Caller`] or an [`Administrator`], or the call is refused.
//!
//! `Authorization: Bearer`, `X-API-Key` and `x-sb-token` carry the same token. A wrong token is treated like a missing one; who has a right
//! one of a tenant that is disabled hears that, and is let in as little.
//! Tokens exist here only as hashes, except in the header they came in; none is ever logged.
//!
//! **What is remembered, and for how long.** A token that was found is believed until something changes, and what has changed is looked for
//! several times a second, by one number ([`store::Registry::credentials_revision`]). Then those that are not honoured any more are forgotten, and
//! all that they had opened ends ([`Pass`]). What could not be looked at for [`BELIEVED`] is not believed: the token is looked up again. So after
//! a second no instance answers a token that was revoked. Tokens of administrators are few, and are all known. A token
//! that was not found is remembered for [`MISS`], or until something changes.
//!
//! **What a wrong token costs.** Nothing of the store, if it is remembered. Else one look, by a reader that does nothing else, as long as its address
//! is within its rate of failures. Beyond that a token that is not known gets one of five looks a second (`crate::limits`), so that a new one behind
//! the same address comes in after some attempts, or 429.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use a2a::{Error, ErrorKind};
use exchange::{
    Caller, Pass,
    admin::{self, ADMIN_TOKEN, hash},
};
use http::{HeaderMap, HeaderName, header, request::Parts};
use store::{AdminToken, Bearer, Store, clock};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use crate::limits::Limits;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_SB_TOKEN: HeaderName = HeaderName::from_static("x-sb-token");

/// Where a token can be.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, X_API_KEY, X_SB_TOKEN];

/// The request headers that the answer to an authenticated request depends on.
pub(crate) const VARY: &str = "Authorization, X-API-Key, x-sb-token";

/// How often is looked whether anything has changed.
const LOOK: Duration = Duration::from_millis(300);
/// How long a token is believed after the last look. With the time between two looks it is less than a second.
const BELIEVED: Duration = Duration::from_millis(900);
/// How long a token that was not found is remembered.
const MISS: Duration = Duration::from_secs(3);
/// How often the use of a token is written down.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// How many tokens are remembered, and as many that were not found.
const CAPACITY: usize = 4096;
/// How long a token is unused before it may be forgotten for another one.
const IDLE: Duration = Duration::from_secs(60);
/// How often a look-up is done again because something has changed meanwhile.
const ATTEMPTS: usize = 3;

/// The tenant of every caller while nobody has to authenticate.
const OPEN_TENANT: &str = "default";

/// Who has the token that is a setting, in the audit log.
const FIRST_ADMIN: &str = "admin";

/// The reason of a refusal of a token that is right.
pub(crate) const TENANT_DISABLED: &str = "TENANT_DISABLED";

type Hash = [u8; 32];

/// Decides who calls.
pub(crate) struct Auth {
    store: Arc<dyn Store>,
    /// Everybody is this one when nobody has to authenticate.
    everybody: Option<Caller>,
    book: Mutex<Book>,
    /// Held by whoever looks for changes: one after the other.
    looking: tokio::sync::Mutex<()>,
}

/// Whoever has the token of an administrator.
#[derive(Clone)]
pub(crate) struct Administrator {
    /// What the audit log calls them.
    pub(crate) actor: Arc<str>,
    pub(crate) pass: Arc<Pass>,
}

/// What is remembered.
struct Book {
    known: HashMap<Hash, Known>,
    missed: HashMap<Hash, Missed>,
    /// What the tokens that are in use opened, by their numbers.
    passes: HashMap<i64, Weak<Pass>>,
    admins: Vec<(Hash, Administrator)>,
    /// The revision that all of it is of; none before the first look.
    revision: Option<i64>,
    /// How often something had changed: what was looked up before that is not remembered after it.
    changes: u64,
    /// When nothing had changed.
    looked: Instant,
}

/// A token that nobody is let in with, until when that is believed.
#[derive(Clone, Copy)]
struct Missed {
    until: Instant,
    why: Why,
}

/// Why nobody is let in with a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Wrong,
    /// It is right, and its tenant is disabled: whoever has it may know.
    Disabled,
}

/// A token that was found.
struct Known {
    caller: Caller,
    at: Instant,
    used: Instant,
    /// When its use was last written down.
    noted: Instant,
}

impl Auth {
    /// With `required` every call needs a token; without it every call is the default tenant's.
    pub(crate) async fn new(store: Arc<dyn Store>, required: bool) -> store::Result<Arc<Self>> {
        let everybody = if required { None } else { Some(open_tenant(store.as_ref()).await?) };
        let book = Book {
            known: HashMap::new(),
            missed: HashMap::new(),
            passes: HashMap::new(),
            admins: Vec::new(),
            revision: None,
            changes: 0,
            looked: Instant::now(),
        };
        let auth = Arc::new(Self { store, everybody, book: Mutex::new(book), looking: tokio::sync::Mutex::default() });
        auth.look().await?;
        tokio::spawn(watch(Arc::downgrade(&auth)));
        Ok(auth)
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
        self.required() && has_no_credential(headers)
    }

    /// The caller behind a request.
    pub(crate) async fn caller(&self, parts: &Parts, limits: &Limits) -> Result<Caller, Error> {
        if let Some(everybody) = &self.everybody {
            return Ok(everybody.clone());
        }
        let Some(hash) = credential(&parts.headers) else {
            return Err(refused());
        };
        if let Some(caller) = self.remembered(&hash) {
            return Ok(caller);
        }
        if let Some(why) = self.missed(&hash) {
            return Err(why.refusal());
        }
        limits.look_up(&parts.extensions)?;
        match self.look_up(&hash).await {
            Ok(Ok(caller)) => Ok(caller),
            Ok(Err(why)) => Err(why.refusal()),
            Err(error) => Err(unreadable(&error)),
        }
    }

    /// The administrator behind a request: one `Authorization` header with a token of one. No store is asked, unless what is known is old.
    pub(crate) async fn administrator(&self, headers: &HeaderMap) -> Result<Administrator, Error> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let given = match (values.next(), values.next()) {
            (Some(value), None) => bearer(value.as_bytes()).map(<[u8]>::trim_ascii).filter(|token| !token.is_empty()),
            _ => None,
        };
        let is_old = |book: &Book| book.admins.is_empty() || book.looked.elapsed() >= BELIEVED;
        if is_old(&self.book()) {
            self.look_anew().await.map_err(|error| unreadable(&error))?;
        }
        let book = self.book();
        if book.admins.is_empty() {
            return Err(admin::Error::NoAdminToken.into());
        }
        let hash = given.map(hash);
        let mut found = None;
        // All of them are compared, whichever it is.
        for (known, administrator) in &book.admins {
            if hash.as_ref().is_some_and(|hash| bool::from(known.ct_eq(hash))) {
                found = Some(administrator.clone());
            }
        }
        let live = found.filter(|found| !found.pass.has_expired(clock::now()));
        live.ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "the admin token is needed, as Authorization: Bearer")
        })
    }

    /// Looks whether anything has changed, and takes it in: whoever is not honoured any more is forgotten, and what was opened ends.
    pub(crate) async fn look(&self) -> store::Result<()> {
        let _alone = self.looking.lock().await;
        let asked = Instant::now();
        let revision = self.store.credentials_revision().await?;
        let in_use = {
            let mut book = self.book();
            book.end_expired();
            if book.revision == Some(revision) {
                book.looked = asked;
                return Ok(());
            }
            book.changes += 1;
            book.missed.clear();
            book.in_use()
        };
        let live = if in_use.is_empty() { Vec::new() } else { self.store.live_tokens(&in_use).await? };
        let admins = self.admins().await?;
        let mut book = self.book();
        for token in in_use.iter().filter(|token| !live.contains(token)) {
            book.end(*token);
        }
        book.set_admins(admins);
        book.revision = Some(revision);
        book.looked = asked;
        Ok(())
    }

    /// The same where something has changed that the number does not tell.
    async fn look_anew(&self) -> store::Result<()> {
        if self.book().admins.is_empty() {
            self.book().revision = None;
        }
        self.look().await
    }

    /// The tokens of administrators that are live, by what the audit log calls those who have them.
    async fn admins(&self) -> store::Result<Vec<(Hash, Arc<str>, AdminToken)>> {
        let mut admins = Vec::new();
        if let Some(first) = self.store.find_setting(ADMIN_TOKEN).await?.and_then(|hash| Hash::try_from(hash).ok()) {
            let (name, created_at) = (FIRST_ADMIN.to_owned(), clock::now());
            let token = AdminToken { id: 0, hash: first, name, expires: None, created_at, revoked_at: None };
            admins.push((first, FIRST_ADMIN.into(), token));
        }
        for token in self.store.admin_tokens().await? {
            if token.is_live(clock::now()) {
                admins.push((token.hash, format!("{FIRST_ADMIN}:{}", token.name).into(), token));
            }
        }
        Ok(admins)
    }

    /// Asks the store for a token, and remembers what it says.
    async fn look_up(&self, hash: &Hash) -> store::Result<Result<Caller, Why>> {
        for _ in 0..ATTEMPTS {
            let (changes, at) = (self.book().changes, Instant::now());
            let found = self.store.token(hash).await?;
            let found = found.filter(|found| bool::from(found.token.hash.ct_eq(hash)));
            let mut book = self.book();
            if book.changes != changes {
                // It may be what has changed.
                continue;
            }
            let why = match &found {
                None => Some(Why::Wrong),
                Some(found) if !found.tenant.enabled => Some(Why::Disabled),
                Some(_) => None,
            };
            if let Some(why) = why {
                book.miss(*hash, why, at);
            }
            let found = match (found, why) {
                (Some(found), None) => found,
                (_, why) => return Ok(Err(why.unwrap_or(Why::Wrong))),
            };
            let token = found.token.id;
            let caller = book.remember(*hash, found, at);
            drop(book);
            self.note_use(token);
            return Ok(Ok(caller));
        }
        Err(store::Error::Unavailable("who may call changes faster than it can be looked up".into()))
    }

    /// Writes down that a token is in use. No call waits for it.
    fn note_use(&self, token: i64) {
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            if let Err(error) = store.touch_token(token).await {
                tracing::debug!(error = %error, "the use of a token could not be written down");
            }
        });
    }

    fn remembered(&self, hash: &Hash) -> Option<Caller> {
        let now = Instant::now();
        let mut book = self.book();
        let looked = book.looked;
        let known = book.known.get_mut(hash)?;
        if now >= known.at.max(looked) + BELIEVED || known.caller.pass.has_expired(clock::now()) {
            return None;
        }
        known.used = now;
        let is_to_note = now.duration_since(known.noted) >= NOTE_EVERY;
        if is_to_note {
            known.noted = now;
        }
        let caller = known.caller.clone();
        drop(book);
        if let Some(token) = caller.pass.token().filter(|_| is_to_note) {
            self.note_use(token);
        }
        Some(caller)
    }

    fn missed(&self, hash: &Hash) -> Option<Why> {
        let missed = self.book().missed.get(hash).copied();
        missed.filter(|missed| Instant::now() < missed.until).map(|missed| missed.why)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Remembers a token that was found. All callers of one token have the same pass.
    fn remember(&mut self, hash: Hash, found: Bearer, at: Instant) -> Caller {
        let Bearer { token, tenant } = found;
        let pass = self.passes.get(&token.id).and_then(Weak::upgrade);
        let pass = pass.unwrap_or_else(|| {
            let pass = Arc::new(Pass::new(token.id, token.reach, token.expires));
            if self.passes.len() >= 2 * CAPACITY {
                self.passes.retain(|_, pass| pass.strong_count() > 0);
            }
            self.passes.insert(token.id, Arc::downgrade(&pass));
            pass
        });
        let caller = Caller { tenant: tenant.id, name: tenant.name.into(), pass };
        if self.known.len() >= CAPACITY {
            self.known.retain(|_, known| known.used + IDLE > at);
        }
        if self.known.len() < CAPACITY {
            self.known.insert(hash, Known { caller: caller.clone(), at, used: at, noted: at });
        }
        caller
    }

    fn miss(&mut self, hash: Hash, why: Why, at: Instant) {
        if self.missed.len() >= CAPACITY {
            self.missed.retain(|_, missed| at < missed.until);
        }
        if self.missed.len() < CAPACITY {
            self.missed.insert(hash, Missed { until: at + MISS, why });
        }
    }

    /// The tokens that somebody has come with, and may still be here.
    fn in_use(&mut self) -> Vec<i64> {
        self.passes.retain(|_, pass| pass.strong_count() > 0);
        self.passes.keys().copied().collect()
    }

    fn end(&mut self, token: i64) {
        self.known.retain(|_, known| known.caller.pass.token() != Some(token));
        if let Some(pass) = self.passes.remove(&token).and_then(|pass| pass.upgrade()) {
            pass.end();
        }
    }

    fn end_expired(&mut self) {
        let now = clock::now();
        let has_expired = |pass: &Weak<Pass>| pass.upgrade().is_some_and(|pass| pass.has_expired(now));
        let expired: Vec<i64> = self.passes.iter().filter(|(_, pass)| has_expired(pass)).map(|(id, _)| *id).collect();
        for token in expired {
            self.end(token);
        }
        let before = self.admins.len();
        self.admins.retain(|(_, administrator)| {
            let has_expired = administrator.pass.has_expired(now);
            if has_expired {
                administrator.pass.end();
            }
            !has_expired
        });
        // A clock that was wrong may be set right: all of them are read again.
        if self.admins.len() < before {
            self.revision = None;
        }
    }

    fn set_admins(&mut self, live: Vec<(Hash, Arc<str>, AdminToken)>) {
        let before = std::mem::take(&mut self.admins);
        for (_, gone) in before.iter().filter(|(hash, _)| live.iter().all(|(known, ..)| known != hash)) {
            gone.pass.end();
        }
        for (hash, actor, token) in live {
            let is_same = |(known, it): &&(Hash, Administrator)| {
                *known == hash && it.actor == actor && !it.pass.ended().is_cancelled()
            };
            let known = before.iter().find(is_same);
            let pass = known.map_or_else(|| Arc::new(Pass::until(token.expires)), |(_, it)| Arc::clone(&it.pass));
            self.admins.push((hash, Administrator { actor, pass }));
        }
    }
}

/// Looks for changes for as long as anybody asks who calls.
async fn watch(auth: Weak<Auth>) {
    // The store says the same again and again while it is away; once is enough.
    let mut is_well = true;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(auth) = auth.upgrade() else { return };
        match auth.look().await {
            Ok(()) => is_well = true,
            Err(error) if is_well => {
                tracing::warn!(%error, "whether tokens have changed cannot be looked up");
                is_well = false;
            }
            Err(_) => {}
        }
    }
}

pub(crate) fn has_no_credential(headers: &HeaderMap) -> bool {
    CREDENTIALS.iter().all(|name| !headers.contains_key(name))
}

fn unreadable(error: &store::Error) -> Error {
    tracing::error!(error = %error, "tokens cannot be read");
    Error::new(ErrorKind::Unavailable, "credentials cannot be checked at the moment").with_retry_after(1)
}

/// The tenant of everybody, created when it is not there yet.
async fn open_tenant(store: &dyn Store) -> store::Result<Caller> {
    let find = async || -> store::Result<Option<Caller>> {
        let tenant = store.tenants().await?.into_iter().find(|tenant| tenant.name == OPEN_TENANT);
        Ok(tenant.map(|tenant| Caller::new(tenant.id, tenant.name)))
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

impl Why {
    fn refusal(self) -> Error {
        match self {
            Self::Wrong => refused(),
            Self::Disabled => Error::new(ErrorKind::Unauthenticated, "the tenant of this token is disabled")
                .with_reason(TENANT_DISABLED),
        }
    }
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
