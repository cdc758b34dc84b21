//! How many bytes of requests and answers are in memory at once: bounded for the whole server, and for each tenant to half of that.
//!
//! Whatever is large is taken aboard before it is read, from a socket or from the journal, and stays until it is done with. Who finds no room
//! waits a little and is then refused. What is small travels free: there, the number of connections is the bound.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use a2a::ErrorKind;
use store::TenantId;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::Error;

/// What is no larger travels free.
pub(crate) const FREE: u64 = 16 << 10;
/// How long whoever finds no room waits for some.
const PATIENCE: Duration = Duration::from_secs(5);
/// When trying again makes sense, in seconds.
const RETRY: u32 = 2;

/// The bytes that are in flight. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Flight(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None where there is no bound.
    most: Option<u64>,
    aboard: Mutex<Aboard>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Aboard {
    all: u64,
    tenants: HashMap<TenantId, u64>,
}

/// Bytes that are in flight, until this is dropped.
#[derive(Debug)]
pub struct Load {
    flight: Flight,
    tenant: TenantId,
    bytes: u64,
}

/// What one call has in flight. It is given back when the call is done and its answer is read.
#[derive(Debug)]
pub struct Luggage {
    loads: Mutex<Vec<Load>>,
    weight: u64,
}

/// Whose bound was met.
#[derive(Clone, Copy)]
enum Full {
    Tenant,
    Server,
}

impl Flight {
    /// With room for so many bytes.
    pub fn new(most: Option<u64>) -> Self {
        Self(Arc::new(Inner { most, aboard: Mutex::default(), freed: Notify::new() }))
    }

    /// Room for so many bytes of a tenant, as soon as there is some; an error when that takes too long.
    pub async fn take(&self, tenant: TenantId, bytes: u64) -> Result<Load, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let freed = self.0.freed.notified();
            let full = match self.try_take(tenant, bytes) {
                Ok(load) => return Ok(load),
                Err(full) => full,
            };
            if timeout_at(deadline, freed).await.is_err() {
                return Err(self.refused(full));
            }
        }
    }

    /// Room for so many bytes more of a call, which has `luggage` in flight already. What is more than a tenant may have goes when it has
    /// nothing else but that.
    pub(crate) async fn take_more(&self, tenant: TenantId, bytes: u64, luggage: &Luggage) -> Result<(), Error> {
        let left = self.0.most.map_or(u64::MAX, |most| (most / 2).saturating_sub(luggage.bytes()));
        luggage.put(self.take(tenant, bytes.min(left)).await?);
        Ok(())
    }

    /// Counts bytes that are in memory in any case, whether there is room for them or not.
    pub fn count(&self, tenant: TenantId, bytes: u64) -> Load {
        let bytes = if self.0.most.is_none() || bytes <= FREE { 0 } else { bytes };
        if bytes > 0 {
            let mut aboard = self.0.lock();
            aboard.all += bytes;
            *aboard.tenants.entry(tenant).or_default() += bytes;
        }
        Load { flight: self.clone(), tenant, bytes }
    }

    /// The same for whoever has all the time in the world.
    pub(crate) async fn wait(&self, tenant: TenantId, bytes: u64) -> Load {
        loop {
            let freed = self.0.freed.notified();
            if let Ok(load) = self.try_take(tenant, bytes) {
                return load;
            }
            freed.await;
        }
    }

    fn try_take(&self, tenant: TenantId, bytes: u64) -> Result<Load, Full> {
        let load = |bytes| Load { flight: self.clone(), tenant, bytes };
        let Some(most) = self.0.most.filter(|_| bytes > FREE) else { return Ok(load(0)) };
        // What is more than a tenant may have goes when it has nothing else.
        let (share, bytes) = (most / 2, bytes.min(most / 2));
        let mut aboard = self.0.lock();
        let own = aboard.tenants.get(&tenant).copied().unwrap_or_default();
        if own + bytes > share {
            return Err(Full::Tenant);
        }
        if aboard.all + bytes > most {
            return Err(Full::Server);
        }
        aboard.all += bytes;
        aboard.tenants.insert(tenant, own + bytes);
        Ok(load(bytes))
    }

    fn refused(&self, full: Full) -> Error {
        let most = self.0.most.unwrap_or_default();
        let (kind, limit, what) = match full {
            Full::Tenant => (ErrorKind::ResourceExhausted, most / 2, "requests and unread answers of this tenant"),
            Full::Server => (ErrorKind::Unavailable, most, "requests and unread answers"),
        };
        let message = format!("{what} take {limit} bytes of memory, as many as they may; try again in {RETRY} s");
        a2a::Error::new(kind, message).with_metadata("limitBytes", limit.to_string()).with_retry_after(RETRY).into()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Aboard> {
        self.aboard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Gives back what is more than that.
    pub fn keep(&mut self, bytes: u64) {
        let bytes = if bytes <= FREE { 0 } else { bytes };
        let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) else { return };
        self.bytes = bytes;
        let inner = &self.flight.0;
        let mut aboard = inner.lock();
        aboard.all -= less;
        if let Some(own) = aboard.tenants.get_mut(&self.tenant) {
            *own -= less;
            if *own == 0 {
                aboard.tenants.remove(&self.tenant);
            }
        }
        drop(aboard);
        inner.freed.notify_waiters();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl Default for Luggage {
    fn default() -> Self {
        Self::weighing(1)
    }
}

impl Luggage {
    /// For a binding that holds each byte so many times, in its own form and in that of the journal.
    pub fn weighing(weight: u64) -> Self {
        Self { loads: Mutex::default(), weight }
    }

    /// The room that so many bytes of the journal or of a body need.
    pub fn room(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.weight)
    }

    /// Gives back what is more than that: an answer has got its last form.
    pub fn keep(&self, mut bytes: u64) {
        self.lock().retain_mut(|load| {
            load.keep(bytes);
            bytes = bytes.saturating_sub(load.bytes);
            load.bytes > 0
        });
    }

    /// Keeps it until the call is done.
    pub fn put(&self, load: Load) {
        if load.bytes > 0 {
            self.lock().push(load);
        }
    }

    /// How many bytes it has.
    fn bytes(&self) -> u64 {
        self.lock().iter().map(|load| load.bytes).sum()
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Gives all of it back.
    pub fn leave(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Load>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);
    const MIB: u64 = 1 << 20;

    fn kind(refused: Result<Load, Error>) -> ErrorKind {
        refused.unwrap_err().kind()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_half_and_all_have_all_of_it() {
        let flight = Flight::new(Some(8 * MIB));
        let first = flight.take(ONE, 3 * MIB).await.unwrap();
        assert_eq!(kind(flight.take(ONE, 2 * MIB).await), ErrorKind::ResourceExhausted);
        let _small = flight.take(ONE, FREE).await.unwrap();
        let _second = flight.take(TWO, 4 * MIB).await.unwrap();
        assert_eq!(kind(flight.take(TenantId(3), 2 * MIB).await), ErrorKind::Unavailable);
        drop(first);
        let _fits = flight.take(ONE, 4 * MIB).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_goes_to_who_waits() {
        let flight = Flight::new(Some(2 * MIB));
        let mut first = flight.take(ONE, 100 * MIB).await.unwrap();
        let waiting = tokio::spawn({
            let flight = flight.clone();
            async move { flight.wait(ONE, MIB / 2).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        first.keep(MIB / 2);
        let load = waiting.await.unwrap();
        drop((first, load));
        assert!(flight.0.lock().tenants.is_empty());
        assert_eq!(flight.0.lock().all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_gives_back_what_its_last_form_does_not_need() {
        let flight = Flight::new(Some(8 * MIB));
        let luggage = Luggage::weighing(2);
        for _ in 0..2 {
            luggage.put(flight.take(ONE, luggage.room(MIB)).await.unwrap());
        }
        assert_eq!(flight.0.lock().all, 4 * MIB);
        luggage.keep(3 * MIB);
        assert_eq!(flight.0.lock().all, 3 * MIB);
        luggage.keep(FREE);
        assert_eq!(flight.0.lock().all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_something_gets_the_rest_of_its_tenants_share() {
        let flight = Flight::new(Some(8 * MIB));
        let luggage = Luggage::default();
        flight.take_more(ONE, 3 * MIB, &luggage).await.unwrap();
        flight.take_more(ONE, 100 * MIB, &luggage).await.unwrap();
        assert_eq!(luggage.bytes(), 4 * MIB);
        let other = Luggage::default();
        assert!(flight.take_more(ONE, MIB, &other).await.is_err());
        luggage.leave();
        flight.take_more(ONE, MIB, &other).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_already_is_counted_and_never_refused() {
        let flight = Flight::new(Some(2 * MIB));
        let full = flight.count(ONE, 5 * MIB);
        let more = flight.count(ONE, MIB);
        assert_eq!(kind(flight.take(ONE, MIB / 2).await), ErrorKind::ResourceExhausted);
        assert_eq!(kind(flight.take(TWO, MIB / 2).await), ErrorKind::Unavailable);
        drop((full, more));
        assert_eq!(flight.0.lock().all, 0);
        flight.take(ONE, MIB / 2).await.unwrap();
    }

    #[tokio::test]
    async fn without_a_bound_everything_has_room() {
        let flight = Flight::new(None);
        let _loads = (flight.take(ONE, u64::MAX).await.unwrap(), flight.take(ONE, u64::MAX).await.unwrap());
    }
}
