//! Who could not authenticate: counted, and told in the log, which bounds how often it says the same.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use a2a::{Error, ErrorKind};
use http::request::Parts;

use crate::auth;

/// The reason of a refusal for what an address did before.
pub(super) const TOO_MANY_FAILURES: &str = "TOO_MANY_FAILED_AUTHENTICATIONS";

/// What could not authenticate since the start.
#[derive(Default)]
pub(super) struct Tally {
    missing: AtomicU64,
    wrong: AtomicU64,
    refused: AtomicU64,
}

/// How many could not authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Who came with no token.
    pub(crate) missing: u64,
    /// Who came with one that nobody is let in with.
    pub(crate) wrong: u64,
    /// Of both, those who were told that their address fails too often.
    pub(crate) refused: u64,
}

impl Tally {
    pub(super) fn failed(&self, parts: &Parts, address: Option<IpAddr>, error: &Error) {
        let is_missing = auth::has_no_credential(&parts.headers);
        let (count, kind) = match error.reason {
            _ if is_missing => (&self.missing, "no token"),
            Some(auth::TENANT_DISABLED) => (&self.wrong, "a token of a disabled tenant"),
            _ => (&self.wrong, "a wrong token"),
        };
        count.fetch_add(1, Relaxed);
        if error.kind == ErrorKind::ResourceExhausted {
            self.refused.fetch_add(1, Relaxed);
        }
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(peer.address = address, kind, "a caller came with {kind}");
    }

    pub(super) fn read(&self) -> Failed {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Failed { missing: of(&self.missing), wrong: of(&self.wrong), refused: of(&self.refused) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
