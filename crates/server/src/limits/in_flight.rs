//! Counts requests that are under way: those of authenticated callers by tenant and by address, all others in small pools.
//!
//! On HTTP/2 a connection has many requests at once, and each takes memory until its answer is read. A request begins in the pool of
//! those whose caller is looked up, and goes from there to its tenant or to the pool of anonymous ones, so that a crowd without tokens
//! never takes the room of callers with one. Health checks and administration begin in a pool that refuses nothing. When a pool is full,
//! the oldest request in it is told to end. A request that was told so counts until it is gone; no more than twice the size of a pool is
//! ever under way, except of health checks, which end at once.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use a2a::{Error, ErrorKind};
use store::TenantId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::network;
use crate::places::{Busy, Seat};

/// Requests that one connection may have under way, whatever the share of its address: as many as HTTP/2 has streams.
const PER_CONNECTION: usize = 256;
/// Shortest time between two log lines about the same bound.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum numbers of requests under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maximum {
    /// Of authenticated callers.
    pub(crate) all: usize,
    /// Of authenticated callers at one address.
    pub(crate) per_address: usize,
}

/// The requests under way at one listener.
pub(crate) struct InFlight {
    maximum: Maximum,
    state: Mutex<State>,
}

/// The sender of a request, once that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Tenant(TenantId),
    Operator,
    Anonymous,
}

#[derive(Default)]
struct State {
    authenticated: Counts,
    tenants: HashMap<TenantId, usize>,
    admission: Pool,
    operators: Pool,
    anonymous: Pool,
    next: u64,
    logged: HashMap<&'static str, Instant>,
}

/// Requests of which the oldest gives way to a newer one.
#[derive(Default)]
struct Pool {
    counts: Counts,
    /// Those that have not been told to end, the oldest first.
    evictable: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// A request under way, until it is dropped.
pub(crate) struct RequestSlot {
    busy: Busy,
    address: IpAddr,
    in_flight: Arc<InFlight>,
    /// Whether another address is at the other end of the connection.
    is_proxied: bool,
    class: Mutex<Class>,
    evicted: CancellationToken,
}

/// How a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// With its number in a pool.
    Pooled(PoolName, u64),
    /// With its tenant, unless it is an operator's.
    Authenticated(Option<TenantId>),
    /// Not: it is a call of an operator that was begun as one.
    Exempt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolName {
    /// Its caller is not known yet.
    Admission,
    /// Health checks and administration.
    Operators,
    Anonymous,
}

/// Words of the log and the errors about a full pool.
struct Messages {
    all: &'static str,
    address: &'static str,
    all_evicts: &'static str,
    address_evicts: &'static str,
    gave_way: &'static str,
}

impl PoolName {
    /// The error of a request in this pool that gave way to a newer one.
    fn gave_way(self) -> Error {
        Error::new(ErrorKind::ResourceExhausted, self.messages().gave_way).with_retry_after(1)
    }

    fn messages(self) -> Messages {
        match self {
            Self::Anonymous => Messages {
                all: "too many requests without a token are under way at this server",
                address: "too many requests without a token are under way from this address",
                all_evicts: "the pool of requests without a token is full; the oldest ones are ended",
                address_evicts: "the share of an address in the requests without a token is taken; its oldest ones are ended",
                gave_way: "too many requests without a token are under way; this one gave way to a newer one; try again in 1 s",
            },
            Self::Admission => Messages {
                all: "too many requests wait for their tokens to be checked at this server",
                address: "too many requests of this address wait for their tokens to be checked",
                all_evicts: "the pool of requests whose tokens are checked is full; the oldest ones are ended",
                address_evicts: "the share of an address in the requests whose tokens are checked is taken; its oldest ones are ended",
                gave_way: "too many requests wait for their tokens to be checked; this one gave way to a newer one; try again in 1 s",
            },
            Self::Operators => Messages {
                all: "too many health checks are under way at this server",
                address: "too many health checks are under way from this address",
                all_evicts: "the pool of health checks is full; the oldest ones are ended",
                address_evicts: "the share of an address in the health checks is taken; its oldest ones are ended",
                gave_way: "too many health checks are under way; this one gave way to a newer one; try again in 1 s",
            },
        }
    }
}

impl Maximum {
    /// Size of a pool.
    fn pool(self) -> usize {
        (self.all / 8).clamp(64, 1024)
    }

    /// Requests of one address in a pool.
    fn pool_per_address(self) -> usize {
        self.pool() / 4
    }

    /// Requests of one tenant. A tenant never has all, wherever it sends them from.
    fn of_tenant(self) -> usize {
        (self.all / 2).max(PER_CONNECTION)
    }

    /// The bounds for authenticated callers. A caller with a connection of its own may fill it.
    fn authenticated(self, is_proxied: bool) -> (usize, usize) {
        let least = if is_proxied { 0 } else { PER_CONNECTION };
        (self.all.max(least), self.per_address.max(least))
    }
}

impl InFlight {
    pub(crate) fn new(maximum: Maximum) -> Arc<Self> {
        Arc::new(Self { maximum, state: Mutex::default() })
    }

    /// A request on this connection: one whose caller is not known, or of a kind that operators send. [`RequestSlot::count`] says later whose
    /// it is.
    pub(crate) fn begin(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        address: IpAddr,
        is_proxied: bool,
        is_for_operators: bool,
    ) -> Result<Arc<RequestSlot>, Error> {
        let (address, evicted) = (network(address), CancellationToken::new());
        let pool = if is_for_operators { PoolName::Operators } else { PoolName::Admission };
        let number = self.state().add_pooled(pool, address, self.maximum, &evicted)?;
        Ok(Arc::new(RequestSlot {
            busy: Busy::new(seat),
            address,
            in_flight: Arc::clone(self),
            is_proxied,
            class: Mutex::new(Class::Pooled(pool, number)),
            evicted,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_authenticated(
        &mut self,
        tenant: Option<TenantId>,
        address: IpAddr,
        maximum: Maximum,
        is_proxied: bool,
    ) -> Result<(), Error> {
        let (all, per_address) = maximum.authenticated(is_proxied);
        if self.authenticated.all >= all {
            let message = "too many requests are under way at this server";
            self.log(message, all, None);
            return Err(too_many(message, all));
        }
        if self.authenticated.of(address) >= per_address {
            let message = "too many requests of this address are under way";
            self.log(message, per_address, Some(address));
            return Err(too_many(message, per_address));
        }
        if let Some(tenant) = tenant {
            let (count, limit) = (self.tenants.entry(tenant).or_default(), maximum.of_tenant());
            if *count >= limit {
                let message = "too many requests of this tenant are under way";
                self.log(message, limit, Some(address));
                return Err(too_many(message, limit));
            }
            *count += 1;
        }
        self.authenticated.add(address);
        Ok(())
    }

    fn pool(&mut self, pool: PoolName) -> &mut Pool {
        match pool {
            PoolName::Admission => &mut self.admission,
            PoolName::Operators => &mut self.operators,
            PoolName::Anonymous => &mut self.anonymous,
        }
    }

    fn add_pooled(
        &mut self,
        pool: PoolName,
        address: IpAddr,
        maximum: Maximum,
        end: &CancellationToken,
    ) -> Result<u64, Error> {
        let (all, per_address) = (maximum.pool(), maximum.pool_per_address());
        let messages = pool.messages();
        let counts = &self.pool(pool).counts;
        let (of_all, of_address) = (counts.all, counts.of(address));
        let may_refuse = pool != PoolName::Operators;
        if may_refuse && of_all >= 2 * all {
            self.log(messages.all, all, None);
            return Err(too_many(messages.all, all));
        }
        if may_refuse && of_address >= 2 * per_address {
            self.log(messages.address, per_address, Some(address));
            return Err(too_many(messages.address, per_address));
        }
        if of_address >= per_address {
            self.log(messages.address_evicts, per_address, Some(address));
            self.pool(pool).evict_oldest(Some(address));
        } else if of_all >= all {
            self.log(messages.all_evicts, all, None);
            self.pool(pool).evict_oldest(None);
        }
        let number = self.next;
        self.next += 1;
        let pool = self.pool(pool);
        pool.counts.add(address);
        pool.evictable.insert(number, (address, end.clone()));
        Ok(number)
    }

    fn remove(&mut self, class: Class, address: IpAddr) {
        match class {
            Class::Exempt => {}
            Class::Authenticated(tenant) => {
                self.authenticated.remove(address);
                if let Some(tenant) = tenant
                    && let Some(count) = self.tenants.get_mut(&tenant)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.tenants.remove(&tenant);
                    }
                }
            }
            Class::Pooled(pool, number) => {
                let pool = self.pool(pool);
                pool.evictable.remove(&number);
                pool.counts.remove(address);
            }
        }
    }

    /// Logs that a bound is met, at most once in an interval for each bound.
    fn log(&mut self, message: &'static str, limit: usize, address: Option<IpAddr>) {
        let now = Instant::now();
        if self.logged.get(message).is_some_and(|logged| now < *logged + LOG_INTERVAL) {
            return;
        }
        self.logged.insert(message, now);
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(
            peer.address = address,
            limit,
            authenticated = self.authenticated.all,
            anonymous = self.anonymous.counts.all,
            "{message}"
        );
    }
}

impl Pool {
    /// Ends the oldest request that has not been told to end, of one address or of all.
    fn evict_oldest(&mut self, address: Option<IpAddr>) {
        let is_meant = |other: &IpAddr| address.is_none_or(|address| address == *other);
        let oldest = self.evictable.iter().find(|(_, (other, _))| is_meant(other)).map(|(number, _)| *number);
        if let Some((_, end)) = oldest.and_then(|number| self.evictable.remove(&number)) {
            end.cancel();
        }
    }
}

impl Counts {
    fn of(&self, address: IpAddr) -> usize {
        self.addresses.get(&address).copied().unwrap_or_default()
    }

    fn add(&mut self, address: IpAddr) {
        self.all += 1;
        *self.addresses.entry(address).or_default() += 1;
    }

    fn remove(&mut self, address: IpAddr) {
        self.all -= 1;
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

impl RequestSlot {
    /// Counts the request as one of its sender, or refuses it. What is said first stays.
    pub(crate) fn count(&self, sender: Sender) -> Result<(), Error> {
        let mut class = self.class.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.in_flight.state();
        let maximum = self.in_flight.maximum;
        let now = match (*class, sender) {
            (Class::Pooled(PoolName::Operators, _), Sender::Anonymous) => return Ok(()),
            (Class::Pooled(pool @ (PoolName::Admission | PoolName::Operators), _), _)
                if self.evicted.is_cancelled() =>
            {
                return Err(pool.gave_way());
            }
            (Class::Pooled(PoolName::Operators, _), Sender::Operator) => Class::Exempt,
            (Class::Pooled(PoolName::Admission | PoolName::Operators, _), Sender::Tenant(tenant)) => {
                state.add_authenticated(Some(tenant), self.address, maximum, self.is_proxied)?;
                Class::Authenticated(Some(tenant))
            }
            (Class::Pooled(PoolName::Admission, _), Sender::Operator) => {
                state.add_authenticated(None, self.address, maximum, self.is_proxied)?;
                Class::Authenticated(None)
            }
            (Class::Pooled(PoolName::Admission, _), Sender::Anonymous) => {
                let pool = PoolName::Anonymous;
                Class::Pooled(pool, state.add_pooled(pool, self.address, maximum, &self.evicted)?)
            }
            (Class::Pooled(PoolName::Anonymous, _) | Class::Authenticated(_) | Class::Exempt, _) => return Ok(()),
        };
        state.remove(std::mem::replace(&mut *class, now), self.address);
        Ok(())
    }

    /// Cancelled when the request has to end because its pool is full.
    pub(crate) fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }

    /// The same of a request that is counted in a pool: no other one ever has to end.
    pub(crate) fn pooled(&self) -> Option<&CancellationToken> {
        let class = *self.class.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(class, Class::Pooled(..)).then_some(&self.evicted)
    }

    /// The error of the request once it was [evicted](Self::evicted).
    pub(crate) fn gave_way(&self) -> Error {
        match *self.class.lock().unwrap_or_else(PoisonError::into_inner) {
            Class::Pooled(pool, _) => pool.gave_way(),
            // None of these is ever evicted.
            Class::Authenticated(_) | Class::Exempt => gave_way(),
        }
    }

    /// Whether the connection is there for this request alone.
    pub(crate) fn is_only(&self) -> bool {
        self.busy.seat().is_reserved()
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let class = *self.class.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.in_flight.state().remove(class, self.address);
    }
}

/// The error of an anonymous request that gave way to a newer one.
pub(crate) fn gave_way() -> Error {
    PoolName::Anonymous.gave_way()
}

fn too_many(what: &str, limit: usize) -> Error {
    Error::new(ErrorKind::ResourceExhausted, format!("{what} (limit {limit}); try again in 1 s"))
        .with_metadata("limit", limit.to_string())
        .with_retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{Bounds, Entry, Place, Places};

    const HERE: &str = "192.0.2.1";

    fn place() -> Place {
        let bounds = Bounds { places: 9, per_address: 9, reserved: 1, unknown_idle: Duration::from_secs(10) };
        let Entry::In(place) = Places::new(bounds).enter(None) else { panic!("there is a place") };
        place
    }

    /// A listener, and requests at it.
    struct Fixture {
        place: Place,
        in_flight: Arc<InFlight>,
    }

    impl Fixture {
        fn new(all: usize, per_address: usize) -> Self {
            Self { place: place(), in_flight: InFlight::new(Maximum { all, per_address }) }
        }

        fn begin(&self, address: &str, is_proxied: bool, sender: Sender) -> Result<Arc<RequestSlot>, Error> {
            let slot = self.in_flight.begin(&self.place.seat, address.parse().unwrap(), is_proxied, false)?;
            slot.count(sender).map(|()| slot)
        }

        fn known(&self, address: &str) -> Result<Arc<RequestSlot>, Error> {
            self.begin(address, false, Sender::Operator)
        }

        fn of(&self, tenant: i64, address: &str) -> Result<Arc<RequestSlot>, Error> {
            self.begin(address, false, Sender::Tenant(TenantId(tenant)))
        }

        fn anonymous(&self, address: &str) -> Result<Arc<RequestSlot>, Error> {
            self.begin(address, false, Sender::Anonymous)
        }
    }

    #[test]
    fn anonymous_requests_never_refuse_authenticated_ones() {
        let fixture = Fixture::new(10, 2);
        let crowd: Vec<_> = (0..1000).filter_map(|n| fixture.anonymous(&format!("192.0.2.{}", n % 250)).ok()).collect();
        assert!(crowd.len() <= 2 * fixture.in_flight.maximum.pool(), "{}", crowd.len());
        assert!(fixture.anonymous("192.0.2.251").is_err(), "the crowd does not end although it was told to");
        let known: Vec<_> = (0..PER_CONNECTION).map(|_| fixture.known(HERE).unwrap()).collect();
        assert!(fixture.known(HERE).is_err());
        drop((crowd, known));
        assert!(fixture.known(HERE).is_ok() && fixture.anonymous(HERE).is_ok());
    }

    #[test]
    fn oldest_anonymous_request_gives_way() {
        let fixture = Fixture::new(10, 2);
        let pool = fixture.in_flight.maximum.pool();
        let mut open: Vec<_> = (0..pool).map(|n| fixture.anonymous(&format!("192.0.2.{n}")).unwrap()).collect();
        assert!(open.iter().all(|slot| !slot.evicted().is_cancelled()));
        let newer = fixture.anonymous("198.51.100.1").unwrap();
        let evicted: Vec<_> = open.iter().map(|slot| slot.evicted().is_cancelled()).collect();
        assert!(evicted[0] && !evicted[1..].contains(&true), "{evicted:?}");
        let gave_way = open[0].gave_way().message;
        assert!(gave_way.starts_with("too many requests without a token are under way; this one gave"), "{gave_way}");
        open.remove(0);
        drop(newer);
        let again = fixture.anonymous("198.51.100.1").unwrap();
        assert!(open.iter().chain([&again]).all(|slot| !slot.evicted().is_cancelled()), "there is room again");
    }

    #[test]
    fn an_address_at_its_share_ends_its_own_oldest_anonymous_request() {
        let fixture = Fixture::new(10, 2);
        let other = fixture.anonymous("192.0.2.2").unwrap();
        let share = fixture.in_flight.maximum.pool_per_address();
        let open: Vec<_> = (0..=share).map(|_| fixture.anonymous(HERE).unwrap()).collect();
        assert!(open[0].evicted().is_cancelled() && !open[1].evicted().is_cancelled());
        assert!(!other.evicted().is_cancelled());
        let more: Vec<_> = (0..share).filter_map(|_| fixture.anonymous(HERE).ok()).collect();
        assert_eq!(open.len() + more.len(), 2 * share, "those that do not end keep others of the address out");
        let refused = fixture.anonymous(HERE).err().unwrap();
        assert!(refused.message.contains("without a token are under way from this address"), "{}", refused.message);
        assert!(fixture.anonymous("192.0.2.3").is_ok());
    }

    #[test]
    fn an_address_behind_a_proxy_has_its_share() {
        let fixture = Fixture::new(9, 2);
        let begin = |address: &str| fixture.begin(address, true, Sender::Tenant(TenantId(1)));
        let first = begin(HERE).unwrap();
        let _second = begin(HERE).unwrap();
        let refused = begin(HERE).err().unwrap();
        assert!(refused.message.contains("this address are under way (limit 2)"), "{}", refused.message);
        assert!(begin("192.0.2.2").is_ok());
        drop(first);
        assert!(begin(HERE).is_ok());
    }

    #[test]
    fn a_tenant_never_has_all_wherever_it_sends_from() {
        let fixture = Fixture::new(1000, 300);
        let own: Vec<_> = (0..1000).filter_map(|n| fixture.of(1, &format!("192.0.2.{}", n % 5)).ok()).collect();
        assert_eq!(own.len(), 500);
        let refused = fixture.of(1, "192.0.2.9").err().unwrap();
        assert!(refused.message.contains("of this tenant are under way (limit 500)"), "{}", refused.message);
        assert!(fixture.of(2, "192.0.2.1").is_ok() && fixture.known("192.0.2.1").is_ok());
        drop(own);
        assert!(fixture.of(1, "192.0.2.9").is_ok() && fixture.in_flight.state().tenants.is_empty());
    }

    #[test]
    fn a_connection_may_be_filled_and_all_together_have_a_bound() {
        let fixture = Fixture::new(300, 2);
        let own: Vec<_> = (0..PER_CONNECTION).map(|_| fixture.known(HERE).unwrap()).collect();
        assert!(fixture.known(HERE).is_err());
        let others: Vec<_> = (0..44).map(|_| fixture.known("192.0.2.2").unwrap()).collect();
        let refused = fixture.known("192.0.2.2").err().unwrap();
        assert!(refused.message.contains("at this server (limit 300)"), "{}", refused.message);
        drop((own, others));
        assert!(fixture.known(HERE).is_ok());
    }

    #[test]
    fn requests_whose_caller_is_not_known_yet_are_bounded() {
        let fixture = Fixture::new(10, 2);
        let begin =
            |address: &str| fixture.in_flight.begin(&fixture.place.seat, address.parse().unwrap(), false, false);
        let share = fixture.in_flight.maximum.pool_per_address();
        let waiting: Vec<_> = (0..10 * share).filter_map(|_| begin(HERE).ok()).collect();
        assert_eq!(waiting.len(), 2 * share, "those that do not end keep others of the address out");
        assert!(waiting[0].evicted().is_cancelled() && !waiting[2 * share - 1].evicted().is_cancelled());
        let gave_way = waiting[0].count(Sender::Tenant(TenantId(1))).unwrap_err();
        let why = "too many requests wait for their tokens to be checked; this one gave way to a newer one";
        assert!(gave_way.message.starts_with(why), "{}", gave_way.message);
        assert!(waiting[2 * share - 1].count(Sender::Tenant(TenantId(1))).is_ok());
        assert!(begin(HERE).is_ok() && begin("192.0.2.2").is_ok());
        drop(waiting);
        let state = fixture.in_flight.state();
        assert!(state.admission.counts.all == 0 && state.admission.evictable.is_empty());
    }

    #[test]
    fn checks_of_health_are_never_refused_and_administration_never_gives_way() {
        let fixture = Fixture::new(10, 2);
        let begin = || fixture.in_flight.begin(&fixture.place.seat, HERE.parse().unwrap(), false, true).unwrap();
        let admin = begin();
        admin.count(Sender::Operator).unwrap();
        let share = fixture.in_flight.maximum.pool_per_address();
        let checks: Vec<_> = (0..3 * share).map(|_| begin()).collect();
        assert!(checks.iter().all(|check| check.count(Sender::Anonymous).is_ok()));
        let evicted = checks.iter().filter(|check| check.evicted().is_cancelled()).count();
        assert_eq!(evicted, 2 * share);
        let gave_way = checks[0].gave_way().message;
        assert!(gave_way.starts_with("too many health checks are under way; this one gave way"), "{gave_way}");
        assert!(!admin.evicted().is_cancelled() && admin.pooled().is_none());
        drop((checks, admin));
        assert_eq!(fixture.in_flight.state().operators.counts.all, 0);
    }
}
