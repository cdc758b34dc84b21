//! How often callers may come: requests by tenant, failed authentications by address.
//!
//! What is over the bound is answered before its body is read, with 429 and the time to wait. What a tenant may store and
//! keep open is the exchange's to decide.

mod bucket;
mod in_flight;
mod peer;
mod tally;

use std::net::{IpAddr, Ipv6Addr};

use a2a::{Error, ErrorKind};
use http::{Extensions, request::Parts};
use store::TenantId;
use tokio::time::Instant;

pub use self::bucket::Rate;
use self::bucket::{Buckets, Refused};
use self::tally::{TOO_MANY_FAILURES, Tally};
pub(crate) use self::{
    in_flight::{InFlight, Maximum, RequestSlot, Sender, gave_way},
    peer::{Peer, Peered, Wire},
    tally::Failed,
};

/// The bounds and how far everybody is from theirs.
pub(crate) struct Limits {
    requests: Buckets<TenantId>,
    failures: Buckets<IpAddr>,
    spare: Buckets<IpAddr>,
    tally: Tally,
}

/// So many tokens that are not known are looked up for an address that fails too often. One that is right, and new, is among those who try.
const SPARE: Rate = Rate { per_second: 5, burst: 5 };

impl Limits {
    pub(crate) fn new(requests: Rate, failures: Rate) -> Self {
        let (requests, failures) = (Buckets::new(requests), Buckets::new(failures));
        Self { requests, failures, spare: Buckets::new(SPARE), tally: Tally::default() }
    }

    /// Lets a request of this tenant in, or says when to come again.
    pub(crate) fn request(&self, tenant: TenantId) -> Result<(), Error> {
        self.requests.take(tenant, Instant::now()).map_err(|refused| too_many("too many requests", refused))
    }

    /// Lets a token that is not known be looked up, or says when to come again.
    ///
    /// A token that is known is never refused for what others at the same address do: behind a proxy that is everybody. One that is not
    /// costs a look at the store, of which an address that fails too often has few.
    pub(crate) fn look_up(&self, extensions: &Extensions) -> Result<(), Error> {
        let Some(Peer(address)) = extensions.get() else { return Ok(()) };
        let (network, now) = (network(*address), Instant::now());
        if self.failures.has_any(&network, now) {
            return Ok(());
        }
        self.spare.take(network, now).map_err(too_many_failures)
    }

    /// The answer to a caller that could not authenticate: the error, or 429 when its address fails too often. It is counted and logged.
    ///
    /// Guessing among 256 bits does not need a lock to be hopeless; this only keeps those who try anyway from costing much.
    pub(crate) fn failure(&self, parts: &Parts, error: Error) -> Error {
        let peer: Option<&Peer> = parts.extensions.get();
        let error = match (error.kind, peer) {
            (ErrorKind::Unauthenticated, Some(Peer(address))) => {
                match self.failures.take(network(*address), Instant::now()) {
                    Ok(()) => error,
                    Err(refused) => too_many_failures(refused),
                }
            }
            _ => error,
        };
        let is_failure = error.kind == ErrorKind::Unauthenticated || error.reason == Some(TOO_MANY_FAILURES);
        if is_failure {
            self.tally.failed(parts, peer.map(|Peer(address)| *address), &error);
        }
        // The reason was for this place: callers are told the one of every bound.
        Error { reason: error.reason.filter(|reason| *reason != TOO_MANY_FAILURES), ..error }
    }

    /// How many could not authenticate.
    pub(crate) fn failed_authentications(&self) -> Failed {
        self.tally.read()
    }
}

fn too_many_failures(refused: Refused) -> Error {
    too_many("too many failed authentications from this address", refused).with_reason(TOO_MANY_FAILURES)
}

fn too_many(what: &str, refused: Refused) -> Error {
    let seconds = refused.retry_seconds;
    Error::new(ErrorKind::ResourceExhausted, format!("{what}; try again in {seconds} s"))
        .with_metadata("limitPerSecond", refused.per_second.to_string())
        .with_retry_after(seconds)
}

/// Whom an address stands for: one machine, or with IPv6 the network that one customer is given.
pub(crate) fn network(address: IpAddr) -> IpAddr {
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

    fn from(address: &str) -> Parts {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.extensions.insert(Peer(address.parse().unwrap()));
        parts
    }

    #[test]
    fn only_failed_authentications_count() {
        let limits = Limits::new(ONE, ONE);
        let here = from("192.0.2.7");
        let refused = || Error::new(ErrorKind::Unauthenticated, "no");
        for _ in 0..3 {
            let busy = limits.failure(&here, Error::new(ErrorKind::Unavailable, "no"));
            assert_eq!(busy.kind, ErrorKind::Unavailable);
        }
        assert_eq!(limits.failure(&here, refused()).kind, ErrorKind::Unauthenticated);
        let second = limits.failure(&here, refused());
        assert_eq!((second.kind, second.retry_after), (ErrorKind::ResourceExhausted, Some(1)));
        assert_eq!(limits.failure(&from("192.0.2.8"), refused()).kind, ErrorKind::Unauthenticated);
        let failed = limits.failed_authentications();
        assert_eq!((failed.missing, failed.wrong, failed.refused), (3, 0, 1));
    }

    #[test]
    fn an_address_that_fails_too_often_has_few_look_ups_left() {
        let limits = Limits::new(ONE, ONE);
        let here = from("192.0.2.7");
        for _ in 0..100 {
            assert!(limits.look_up(&here.extensions).is_ok(), "it has not failed yet");
        }
        limits.failure(&here, Error::new(ErrorKind::Unauthenticated, "no"));
        let looked = (0..100).filter(|_| limits.look_up(&here.extensions).is_ok()).count();
        assert_eq!(looked, SPARE.burst as usize);
        let refused = limits.look_up(&here.extensions).unwrap_err();
        assert_eq!((refused.kind, refused.reason), (ErrorKind::ResourceExhausted, Some(TOO_MANY_FAILURES)));
        assert!(limits.look_up(&from("192.0.2.8").extensions).is_ok(), "others are others");
    }
}
