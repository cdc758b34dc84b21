//! How often callers may come: requests by tenant, failed authentications by address.
//!
//! What is over the bound is answered before its body is read, with 429 and the time to wait. What a tenant may store and
//! keep open is the exchange's to decide.

mod bucket;
mod peer;

use std::net::{IpAddr, Ipv6Addr};

use a2a::{Error, ErrorKind};
use http::Extensions;
use store::TenantId;
use tokio::time::Instant;

pub use self::bucket::Rate;
use self::bucket::{Buckets, Refused};
pub(crate) use self::peer::{Peer, Peered};

/// The bounds and how far everybody is from theirs.
pub(crate) struct Limits {
    requests: Buckets<TenantId>,
    failures: Buckets<IpAddr>,
}

impl Limits {
    pub(crate) fn new(requests: Rate, failures: Rate) -> Self {
        Self { requests: Buckets::new(requests), failures: Buckets::new(failures) }
    }

    /// Lets a request of this tenant in, or says when to come again.
    pub(crate) fn request(&self, tenant: TenantId) -> Result<(), Error> {
        self.requests.take(tenant, Instant::now()).map_err(|refused| too_many("too many requests", refused))
    }

    /// The answer to a caller that could not authenticate: the error, or 429 when its address fails too often.
    ///
    /// A valid token is never refused for what others at the same address do: behind a proxy that is everybody. Guessing
    /// among 256 bits does not need a lock to be hopeless; this only keeps those who try anyway from costing much.
    pub(crate) fn failure(&self, extensions: &Extensions, error: Error) -> Error {
        if error.kind != ErrorKind::Unauthenticated {
            return error;
        }
        let Some(Peer(address)) = extensions.get() else {
            return error;
        };
        match self.failures.take(network(*address), Instant::now()) {
            Ok(()) => error,
            Err(refused) => too_many("too many failed authentications from this address", refused),
        }
    }
}

fn too_many(what: &str, refused: Refused) -> Error {
    let seconds = refused.retry_seconds;
    Error::new(ErrorKind::ResourceExhausted, format!("{what}; try again in {seconds} s"))
        .with_metadata("limitPerSecond", refused.per_second.to_string())
        .with_retry_after(seconds)
}

/// Whom an address stands for: one machine, or with IPv6 the network that one customer is given.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = v6.to_bits() & (u128::MAX << 64);
            Ipv6Addr::from_bits(prefix).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Rate = Rate { per_second: 1, burst: 1 };

    #[test]
    fn an_address_is_a_network() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn only_failed_authentications_count() {
        let limits = Limits::new(ONE, ONE);
        let mut here = Extensions::new();
        here.insert(Peer("192.0.2.7".parse().unwrap()));
        let refused = || Error::new(ErrorKind::Unauthenticated, "no");
        for _ in 0..3 {
            let busy = limits.failure(&here, Error::new(ErrorKind::Unavailable, "no"));
            assert_eq!(busy.kind, ErrorKind::Unavailable);
        }
        assert_eq!(limits.failure(&here, refused()).kind, ErrorKind::Unauthenticated);
        let second = limits.failure(&here, refused());
        assert_eq!((second.kind, second.retry_after), (ErrorKind::ResourceExhausted, Some(1)));
        let mut there = Extensions::new();
        there.insert(Peer("192.0.2.8".parse().unwrap()));
        assert_eq!(limits.failure(&there, refused()).kind, ErrorKind::Unauthenticated);
    }
}
