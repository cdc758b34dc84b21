//! Shares of what reads: one tenant's reads, however slow they are, leave some of the readers to the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Result, TenantId};

/// How many reads a tenant may have under way at once.
pub(crate) struct Shares {
    most: usize,
    of: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

impl Shares {
    /// Of so many readers. A quarter of them, and one at least, is always for others; a single one is shared.
    pub(crate) fn new(readers: usize) -> Self {
        Self { most: readers.saturating_sub((readers / 4).max(1)).max(1), of: Mutex::default() }
    }

    /// Waits until the tenant may begin another read, which lasts as long as the permit.
    pub(crate) async fn take(&self, tenant: TenantId) -> Result<OwnedSemaphorePermit> {
        let share = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            of.get(&tenant).and_then(Weak::upgrade).unwrap_or_else(|| {
                of.retain(|_, share| share.strong_count() > 0);
                let share = Arc::new(Semaphore::new(self.most));
                of.insert(tenant, Arc::downgrade(&share));
                share
            })
        };
        share.acquire_owned().await.map_err(|_| Error::Unavailable("the readers have stopped".into()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_tenant_leaves_some_readers_to_the_others() {
        for (readers, most) in [(1, 1), (2, 1), (4, 3), (8, 6)] {
            let shares = Shares::new(readers);
            let mut taken: Vec<_> =
                (0..most).map(|_| shares.take(TenantId(1)).now_or_never().unwrap().unwrap()).collect();
            assert!(shares.take(TenantId(1)).now_or_never().is_none(), "{readers}");
            assert!(shares.take(TenantId(2)).now_or_never().is_some(), "{readers}");
            taken.pop();
            assert!(shares.take(TenantId(1)).now_or_never().is_some(), "{readers}");
        }
    }

    #[test]
    fn tenants_that_do_not_read_are_forgotten() {
        let shares = Shares::new(4);
        for tenant in 0..100 {
            drop(shares.take(TenantId(tenant)).now_or_never().unwrap());
        }
        assert_eq!(shares.of.lock().unwrap().len(), 1);
    }
}
