//! The share of each tenant in a remote: a circuit breaker and a number of calls of its own, so that one tenant's failures and slow calls are not
//! the others'.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use store::TenantId;
use tokio::sync::Semaphore;

use crate::breaker::Breaker;

/// Maximum number of calls of the tool that a tenant may have under way.
const CALLS: usize = 32;
/// How long an open circuit waits at first before one call is tried.
const FIRST_BREAK: Duration = Duration::from_secs(1);
/// The longest such wait.
const LONGEST_BREAK: Duration = Duration::from_secs(60);
/// Maximum number of tenants with a share of their own. The others have one together.
const MOST: usize = 1000;

/// The share of a tenant in a remote.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) breaker: Breaker,
    /// Room for calls that are no tasks.
    pub(super) calls: Semaphore,
}

/// The shares of a remote.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<HashMap<Option<TenantId>, Arc<Share>>>);

impl Share {
    fn new() -> Self {
        Self { breaker: Breaker::growing(FIRST_BREAK, LONGEST_BREAK), calls: Semaphore::new(CALLS) }
    }

    fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.breaker.is_untouched() && self.calls.available_permits() == CALLS
    }
}

impl Shares {
    /// The share of a tenant.
    pub(super) fn of(&self, tenant: Option<TenantId>) -> Arc<Share> {
        let mut shares = self.shares();
        if shares.len() >= MOST && !shares.contains_key(&tenant) {
            shares.retain(|_, share| !share.is_idle());
        }
        let tenant = tenant.filter(|_| shares.len() < MOST || shares.contains_key(&tenant));
        Arc::clone(shares.entry(tenant).or_insert_with(|| Arc::new(Share::new())))
    }

    /// How the worst of the circuits stands.
    pub(super) fn worst(&self) -> &'static str {
        let shares = self.shares();
        let names = || shares.values().map(|share| share.breaker.name());
        let found = |name: &'static str| names().find(|one| *one == name);
        found("open").or_else(|| found("half-open")).unwrap_or("closed")
    }

    /// Takes over the shares of the same remote, whose entry has changed.
    pub(super) fn adopt(&self, before: &Self) {
        let before = before.shares().clone();
        *self.shares() = before;
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<Option<TenantId>, Arc<Share>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(share: &Share) {
        (0..5).for_each(|_| {
            share.breaker.failed();
        });
    }

    #[test]
    fn a_circuit_is_one_tenants() {
        let shares = Shares::default();
        let (one, two) = (Some(TenantId(1)), Some(TenantId(2)));
        fail(&shares.of(one));
        assert!(!shares.of(one).breaker.admit());
        assert!(shares.of(two).breaker.admit() && shares.of(None).breaker.admit());
        assert_eq!(shares.worst(), "open");
        let after = Shares::default();
        after.adopt(&shares);
        assert!(!after.of(one).breaker.admit(), "a changed entry keeps it");
    }

    #[test]
    fn calls_under_way_are_one_tenants() {
        let shares = Shares::default();
        let (one, two) = (shares.of(Some(TenantId(1))), shares.of(Some(TenantId(2))));
        let calls: Vec<_> = (0..1000).map_while(|_| one.calls.try_acquire().ok()).collect();
        assert_eq!(calls.len(), CALLS);
        assert!(shares.of(Some(TenantId(1))).calls.try_acquire().is_err() && two.calls.try_acquire().is_ok());
    }

    #[test]
    fn their_number_is_bounded_and_idle_ones_give_way() {
        let shares = Shares::default();
        for tenant in 0..3 * MOST as i64 {
            shares.of(Some(TenantId(tenant)));
        }
        assert!(shares.shares().len() <= MOST);
        // Those that know something stay.
        let shares = Shares::default();
        for tenant in 0..MOST as i64 + 10 {
            fail(&shares.of(Some(TenantId(tenant))));
        }
        assert!(shares.shares().len() <= MOST + 1);
        assert!(!shares.of(Some(TenantId(0))).breaker.admit());
    }
}
