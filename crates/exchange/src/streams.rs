//! How many streams of events each tenant has open, and a bound on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use store::TenantId;

use crate::Error;

/// The open streams of every tenant.
#[derive(Debug)]
pub(crate) struct Streams {
    limit: Option<usize>,
    open: Arc<Mutex<HashMap<TenantId, usize>>>,
}

/// One open stream. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    tenant: TenantId,
    open: Arc<Mutex<HashMap<TenantId, usize>>>,
}

impl Streams {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, open: Arc::default() }
    }

    /// A place for one more stream of the tenant.
    pub(crate) fn enter(&self, tenant: TenantId) -> Result<Place, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(tenant).or_default();
        if let Some(limit) = self.limit.filter(|limit| *count >= *limit) {
            return Err(Error::TooManyStreams { limit });
        }
        *count += 1;
        drop(open);
        Ok(Place { tenant, open: Arc::clone(&self.open) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_so_many_and_no_more() {
        let streams = Streams::new(Some(2));
        let first = streams.enter(TenantId(1)).unwrap();
        let _second = streams.enter(TenantId(1)).unwrap();
        let refused = streams.enter(TenantId(1)).unwrap_err();
        let told = a2a::Error::from(refused);
        assert_eq!((told.kind, told.retry_after), (a2a::ErrorKind::ResourceExhausted, Some(5)));
        let _others = streams.enter(TenantId(2)).unwrap();
        drop(first);
        assert!(streams.enter(TenantId(1)).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let streams = Streams::new(None);
        let places: Vec<Place> = (0..100).map(|n| streams.enter(TenantId(n)).unwrap()).collect();
        drop(places);
        assert!(streams.open.lock().unwrap().is_empty());
        let nobody = Streams::new(Some(0));
        assert!(nobody.enter(TenantId(1)).is_err());
    }
}
