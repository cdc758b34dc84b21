//! How many streams of events, and how many long polls, each tenant has open, and a bound on either.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use store::TenantId;

use crate::{Caller, Error, Pass};

/// The open streams of every tenant, or its long polls.
#[derive(Debug)]
pub(crate) struct Streams {
    limit: Option<usize>,
    open: Arc<Mutex<HashMap<TenantId, usize>>>,
}

/// One open stream. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Whose stream it is, for as long as that may have one.
    pub(crate) pass: Arc<Pass>,
    _open: Open,
}

/// One of a tenant's that is open. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    tenant: TenantId,
    all: Arc<Mutex<HashMap<TenantId, usize>>>,
}

impl Streams {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, open: Arc::default() }
    }

    /// A place for one more stream of the tenant.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<Place, Error> {
        let open = self.count(caller.tenant).map_err(|limit| Error::TooManyStreams { limit })?;
        Ok(Place { pass: Arc::clone(&caller.pass), _open: open })
    }

    /// A place for one more long poll of the tenant.
    pub(crate) fn wait(&self, tenant: TenantId) -> Result<Open, Error> {
        self.count(tenant).map_err(|limit| Error::TooManyLongPolls { limit })
    }

    fn count(&self, tenant: TenantId) -> Result<Open, usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&tenant).copied().unwrap_or_default();
        if let Some(limit) = self.limit.filter(|limit| count >= *limit) {
            return Err(limit);
        }
        open.insert(tenant, count + 1);
        drop(open);
        Ok(Open { tenant, all: Arc::clone(&self.open) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.all.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn caller(tenant: i64) -> Caller {
        Caller::new(TenantId(tenant), "somebody")
    }

    #[test]
    fn a_tenant_has_so_many_and_no_more() {
        let streams = Streams::new(Some(2));
        let first = streams.enter(&caller(1)).unwrap();
        let _second = streams.enter(&caller(1)).unwrap();
        let refused = streams.enter(&caller(1)).unwrap_err();
        let told = a2a::Error::from(refused);
        assert_eq!((told.kind, told.retry_after), (a2a::ErrorKind::ResourceExhausted, Some(5)));
        let _others = streams.enter(&caller(2)).unwrap();
        drop(first);
        assert!(streams.enter(&caller(1)).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let streams = Streams::new(None);
        let places: Vec<Place> = (0..100).map(|n| streams.enter(&caller(n)).unwrap()).collect();
        drop(places);
        assert!(streams.open.lock().unwrap().is_empty());
        let nobody = Streams::new(Some(0));
        assert!(nobody.enter(&caller(1)).is_err());
    }
}
