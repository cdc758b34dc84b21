//! Memory that turns hold: a budget for messages and kept states, and one for what was said before.
//!
//! Each budget has as many bytes as requests and answers have ([`crate::Flight`]), of which a tenant may have half. Turns never wait for
//! callers nor callers for turns. A turn that finds no room waits and holds its slot and its lease, but not its message, which is read from
//! the journal again once there is room.
//!
//! **Nothing deadlocks.** A turn that waits for the first budget holds nothing of either. One that waits for the second may hold some of the
//! first. One that holds some of the second waits for neither, so that it comes to its end, or to its suspension, which gives back all.
//!
//! **Nobody starves.** Of the tenants that wait, the one that holds least is next. Its oldest turn is waited for, whatever else would fit.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use store::TenantId;
use tokio::sync::oneshot;

use crate::flight::FREE;

/// The budgets of an instance.
pub(crate) struct TurnMemory {
    /// Messages and kept states.
    pub(crate) messages: Budget,
    /// What was said before.
    pub(crate) past: Budget,
}

/// A bound on bytes that turns hold. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` where there is no bound.
    most: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    tenants: HashMap<TenantId, u64>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    tenant: TenantId,
    bytes: u64,
    granted: oneshot::Sender<Reservation>,
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    tenant: TenantId,
    bytes: u64,
}

impl TurnMemory {
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self { messages: Budget::new(most), past: Budget::new(most) }
    }
}

impl Budget {
    fn new(most: Option<u64>) -> Self {
        Self(Arc::new(Inner { most, state: Mutex::default() }))
    }

    /// Takes room if there is some and nobody waits for it.
    pub(crate) fn try_take(&self, tenant: TenantId, bytes: u64) -> Option<Reservation> {
        let Some((most, bytes)) = self.bounded(bytes) else { return Some(self.reservation(tenant, 0)) };
        let mut state = self.lock();
        let fits = state.waiting.is_empty() && state.fits(tenant, bytes, most);
        fits.then(|| {
            state.add(tenant, bytes);
            self.reservation(tenant, bytes)
        })
    }

    /// Takes room as soon as there is some.
    pub(crate) async fn take(&self, tenant: TenantId, bytes: u64) -> Reservation {
        let Some((_, bytes)) = self.bounded(bytes) else { return self.reservation(tenant, 0) };
        let (granted, room) = oneshot::channel();
        self.lock().waiting.push_back(Waiter { tenant, bytes, granted });
        self.grant();
        // Waiters are granted or dropped by whoever waits.
        room.await.unwrap_or_else(|_| self.reservation(tenant, 0))
    }

    /// What is counted of so many bytes, and the bound. What is more than a tenant may have goes when the tenant has nothing else.
    fn bounded(&self, bytes: u64) -> Option<(u64, u64)> {
        let most = self.0.most.filter(|_| bytes > FREE)?;
        Some((most, bytes.min(most / 2)))
    }

    fn reservation(&self, tenant: TenantId, bytes: u64) -> Reservation {
        Reservation { budget: self.clone(), tenant, bytes }
    }

    /// Gives room to those who wait and can have it.
    fn grant(&self) {
        let Some(most) = self.0.most else { return };
        let mut state = self.lock();
        let mut granted = Vec::new();
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        while let Some(waiter) = state.next(most) {
            state.add(waiter.tenant, waiter.bytes);
            granted.push((waiter.granted, self.reservation(waiter.tenant, waiter.bytes)));
        }
        drop(state);
        for (waiter, reservation) in granted {
            // One that has gone in the meantime drops it, and that grants it to the next.
            let _ = waiter.send(reservation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has(&self, tenant: TenantId) -> u64 {
        self.tenants.get(&tenant).copied().unwrap_or_default()
    }

    fn fits(&self, tenant: TenantId, bytes: u64, most: u64) -> bool {
        self.has(tenant) + bytes <= most / 2 && self.held + bytes <= most
    }

    fn add(&mut self, tenant: TenantId, bytes: u64) {
        self.held += bytes;
        *self.tenants.entry(tenant).or_default() += bytes;
    }

    /// The oldest waiter of the tenant that holds least, of those that may have more, if there is room for it now.
    fn next(&mut self, most: u64) -> Option<Waiter> {
        let mut seen = HashSet::new();
        let oldest = self.waiting.iter().enumerate().filter(|(_, waiter)| seen.insert(waiter.tenant));
        let may_have_more = oldest.filter(|(_, waiter)| self.has(waiter.tenant) + waiter.bytes <= most / 2);
        let (at, waiter) = may_have_more.min_by_key(|(_, waiter)| self.has(waiter.tenant))?;
        if !self.fits(waiter.tenant, waiter.bytes, most) {
            return None;
        }
        self.waiting.remove(at)
    }
}

impl Reservation {
    /// Gives back what is more than that.
    pub(crate) fn keep(&mut self, bytes: u64) {
        let bytes = if bytes <= FREE { 0 } else { bytes };
        let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) else { return };
        self.bytes = bytes;
        let mut state = self.budget.lock();
        state.held -= less;
        if let Some(has) = state.tenants.get_mut(&self.tenant) {
            *has -= less;
            if *has == 0 {
                state.tenants.remove(&self.tenant);
            }
        }
        let is_waited_for = !state.waiting.is_empty();
        drop(state);
        if is_waited_for {
            self.budget.grant();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{task::JoinHandle, time::timeout};

    use super::*;

    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);
    const THREE: TenantId = TenantId(3);
    const MIB: u64 = 1 << 20;

    fn budget() -> Budget {
        Budget::new(Some(8 * MIB))
    }

    async fn waits(budget: &Budget, tenant: TenantId, bytes: u64) -> JoinHandle<Reservation> {
        let budget = budget.clone();
        let waits = tokio::spawn(async move { budget.take(tenant, bytes).await });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waits.is_finished(), "it waits for as long as it takes");
        waits
    }

    async fn granted(waits: JoinHandle<Reservation>) -> Reservation {
        timeout(Duration::from_secs(1), waits).await.expect("there is room").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_half_and_the_others_the_rest() {
        let budget = budget();
        let one = budget.take(ONE, 4 * MIB).await;
        let next = waits(&budget, ONE, MIB).await;
        let _two = budget.take(TWO, 4 * MIB).await;
        let three = waits(&budget, THREE, MIB).await;
        drop(one);
        let _held = (granted(next).await, granted(three).await);
    }

    #[tokio::test(start_paused = true)]
    async fn small_turns_take_no_room_and_large_ones_go_alone() {
        let budget = budget();
        let alone = budget.take(ONE, 100 * MIB).await;
        assert_eq!(budget.try_take(ONE, FREE).unwrap().bytes, 0);
        assert!(budget.try_take(ONE, FREE + 1).is_none());
        drop(alone);
        assert!(budget.try_take(ONE, FREE + 1).is_some());
        assert_eq!(Budget::new(None).take(ONE, u64::MAX).await.bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenant_that_holds_least_is_next_and_a_large_turn_is_waited_for() {
        let budget = budget();
        let mut one = budget.take(ONE, 4 * MIB).await;
        let mut two = budget.take(TWO, 4 * MIB).await;
        let crowd = [waits(&budget, ONE, MIB).await, waits(&budget, TWO, MIB).await];
        let large = waits(&budget, THREE, 3 * MIB).await;
        one.keep(3 * MIB);
        two.keep(3 * MIB);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(crowd.iter().all(|waits| !waits.is_finished()), "what was freed is kept for the third tenant");
        two.keep(2 * MIB);
        let _large = granted(large).await;
        drop(one);
        for waits in crowd {
            granted(waits).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_of_a_tenant_go_in_their_order() {
        let budget = budget();
        let mut all = budget.take(ONE, 4 * MIB).await;
        let large = waits(&budget, ONE, 4 * MIB).await;
        let small = waits(&budget, ONE, MIB).await;
        all.keep(2 * MIB);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!small.is_finished(), "it does not overtake");
        drop(all);
        drop(granted(large).await);
        granted(small).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_no_longer_waits_keeps_nobody_waiting() {
        let budget = budget();
        let all = budget.take(ONE, 4 * MIB).await;
        let gone = waits(&budget, ONE, 4 * MIB).await;
        let next = waits(&budget, ONE, MIB).await;
        gone.abort();
        drop(all);
        drop(granted(next).await);
        let state = budget.lock();
        assert!(state.held == 0 && state.tenants.is_empty() && state.waiting.is_empty());
    }
}
