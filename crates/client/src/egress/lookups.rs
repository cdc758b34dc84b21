//! Name lookups under way, with a share for each tenant.
//!
//! A lookup of the system holds a thread until the name server answers or the system gives up, also when the caller has stopped waiting.
//! So their number is bounded, and the silent name servers of one tenant must not delay the calls of another.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::Resolve;

/// Lookups at once.
const LOOKUPS: usize = 64;
/// Lookups at once for one tenant.
const PER_TENANT: usize = 4;
/// Lookups at once for calls that are for no tenant.
const FOR_NO_TENANT: usize = 32;

tokio::task_local! {
    static TENANT: i64;
}

/// Makes calls for a tenant: the lookups that they need count in its share.
pub async fn for_tenant<T>(tenant: i64, calls: impl Future<Output = T>) -> T {
    TENANT.scope(tenant, calls).await
}

/// A resolver that bounds the lookups of another.
#[derive(Debug)]
pub struct Lookups {
    resolver: Arc<dyn Resolve>,
    all: Arc<Semaphore>,
    /// Of tenants with a lookup under way, and of calls for none.
    shares: Mutex<HashMap<Option<i64>, Weak<Semaphore>>>,
}

impl Lookups {
    /// Bounds the lookups of this resolver.
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, all: Arc::new(Semaphore::new(LOOKUPS)), shares: Mutex::default() }
    }

    fn share(&self, tenant: Option<i64>) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&tenant).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(if tenant.is_some() { PER_TENANT } else { FOR_NO_TENANT }));
        shares.insert(tenant, Arc::downgrade(&share));
        share
    }
}

#[async_trait]
impl Resolve for Lookups {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let share = self.share(TENANT.try_with(|tenant| *tenant).ok());
        let own = share.acquire_owned().await.map_err(io::Error::other)?;
        let permit = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
        let (resolver, host) = (Arc::clone(&self.resolver), host.to_owned());
        // A task of its own keeps the permits as long as the thread is held, whether or not the caller still waits.
        let lookup = tokio::spawn(async move {
            let _permits = (own, permit);
            resolver.resolve(&host).await
        });
        lookup.await.map_err(io::Error::other)?
    }
}
