//! Who could not authenticate: counted, and told in the log, though not more often than anybody reads.

use std::{
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::{Error, ErrorKind};
use http::request::Parts;
use tokio::time::Instant;

use crate::auth;

/// The reason of a refusal for what an address did before.
pub(super) const TOO_MANY_FAILURES: &str = "TOO_MANY_FAILED_AUTHENTICATIONS";

/// One line in so long.
const PAUSE: Duration = Duration::from_secs(1);

/// What could not authenticate since the start.
#[derive(Default)]
pub(super) struct Tally {
    missing: AtomicU64,
    wrong: AtomicU64,
    refused: AtomicU64,
    told: Mutex<Told>,
}

/// How many could not authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Who came with no token.
    pub(crate) missing: u64,
    /// Who came with a wrong one.
    pub(crate) wrong: u64,
    /// Of both, those who were told that their address fails too often.
    pub(crate) refused: u64,
}

#[derive(Default)]
struct Told {
    at: Option<Instant>,
    /// How many were not told of since then.
    silent: u64,
}

impl Tally {
    pub(super) fn failed(&self, parts: &Parts, address: Option<IpAddr>, error: &Error) {
        let is_missing = auth::has_no_credential(&parts.headers);
        let (count, kind) = if is_missing { (&self.missing, "no token") } else { (&self.wrong, "a wrong token") };
        count.fetch_add(1, Relaxed);
        if error.kind == ErrorKind::ResourceExhausted {
            self.refused.fetch_add(1, Relaxed);
        }
        let Some(suppressed) = self.may_tell(Instant::now()) else { return };
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(peer.address = address, kind, suppressed, "a caller came with {kind}");
    }

    pub(super) fn read(&self) -> Failed {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Failed { missing: of(&self.missing), wrong: of(&self.wrong), refused: of(&self.refused) }
    }

    /// Whether this one is told, and how many before it were not.
    fn may_tell(&self, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.at.is_some_and(|at| now.duration_since(at) < PAUSE) {
            told.silent += 1;
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let tally = Tally::default();
        let start = Instant::now();
        assert_eq!(tally.may_tell(start), Some(0));
        for _ in 0..5 {
            assert_eq!(tally.may_tell(start + PAUSE / 2), None);
        }
        assert_eq!(tally.may_tell(start + PAUSE), Some(5));
        assert_eq!(tally.may_tell(start + PAUSE * 3), Some(0));
    }

    #[test]
    fn what_is_wrong_is_told_from_what_is_missing() {
        let tally = Tally::default();
        let parts = |token: Option<&str>| {
            let request = http::Request::builder();
            let request = token.map_or_else(http::Request::builder, |token| request.header("x-sb-token", token));
            request.body(()).unwrap().into_parts().0
        };
        let wrong = Error::new(ErrorKind::Unauthenticated, "no");
        tally.failed(&parts(None), None, &wrong);
        tally.failed(&parts(Some("t")), None, &wrong);
        tally.failed(&parts(Some("t")), None, &Error::new(ErrorKind::ResourceExhausted, "no"));
        assert_eq!(tally.read(), Failed { missing: 1, wrong: 2, refused: 1 });
    }
}
