//! What can go wrong when calling an agent, by what the caller can do about it.

use std::{error::Error as _, time::Duration};

use a2a::error::{ErrorKind, RemoteError};
use hyper_util::client::legacy;

use crate::egress::{Refusal, TlsProblem};

/// An error of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a URL that can be called.
    #[error("`{url}` is not a usable URL: {reason}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The policy of the connector forbids it. The text is one for all reasons, whether or not the name resolved, so that
    /// nobody can look around with it; the source is for the log of whoever runs this program, and not for tenants.
    #[error("this address may not be called")]
    Forbidden(#[source] Refusal),
    /// Nobody answered there, or the connection broke before the answer was complete.
    #[error("cannot reach {origin}")]
    Unreachable {
        /// Who was called.
        origin: String,
        /// What the network said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server is there, but no connection to it can be made until somebody changes the URL or a certificate. Nothing was sent.
    #[error("cannot reach {origin}")]
    Tls {
        /// The server that was called.
        origin: String,
        /// The reason.
        #[source]
        problem: TlsProblem,
    },
    /// The answer did not come in time.
    #[error("{origin} did not answer within {} s", .after.as_secs_f64())]
    Timeout {
        /// Who was called.
        origin: String,
        /// How long it had.
        after: Duration,
    },
    /// The token cannot stand in a header.
    #[error("the token has characters that no header can carry")]
    Token,
    /// The token that calls need could not be had: nothing was sent to the agent.
    #[error("no token could be had at {url}")]
    Grant {
        /// Who was asked.
        url: String,
        /// Why.
        #[source]
        source: Box<Self>,
    },
    /// None of the places where a card may be has one.
    #[error("there is no card: {}", each(.tried))]
    NoCard {
        /// Where it was looked for, and what came of it.
        tried: Vec<(String, Self)>,
    },
    /// The credential is missing, unknown or not allowed to do this.
    #[error("{0}")]
    Auth(RemoteError),
    /// The agent's server answered with an error.
    #[error("{0}")]
    Protocol(RemoteError),
    /// The answer is not what the protocol says.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// Where one answer was expected, events come.
    #[error("{url} answers with a stream of events where one answer was expected")]
    Stream {
        /// What was called.
        url: String,
    },
    /// The answer is larger than this program takes.
    #[error("the answer is larger than {cap} bytes")]
    TooLarge {
        /// The cap.
        cap: usize,
    },
    /// The stream was cut and could not be resumed.
    #[error("the stream was cut before its end and could not be resumed ({attempts} attempts)")]
    Cut {
        /// How often it was tried.
        attempts: u32,
        /// Why the last attempt failed.
        #[source]
        source: Option<Box<Self>>,
    },
    /// gRPC was asked for, and the card does not name it.
    #[error("the card offers no interface for A2A 1.0 over gRPC")]
    NoGrpc,
    /// The card has no interface that this program speaks.
    #[error("the card offers no interface for A2A 1.0 over JSONRPC or HTTP+JSON, nor for 0.3 over JSONRPC")]
    NoInterface,
    /// The agent speaks 0.3, which has no way to say this.
    #[error("the agent speaks A2A 0.3, which cannot express this: {0}")]
    Inexpressible(#[source] a2a::Error),
    /// The card's interface is somewhere else than the card.
    #[error("the card at {card} points to another origin: {interface}")]
    ForeignInterface {
        /// Where the card is.
        card: String,
        /// Where it points.
        interface: String,
    },
    /// Nobody who is trusted has signed the card.
    #[error("the card at {url} is not verified")]
    Untrusted {
        /// Where the card is.
        url: String,
        /// Why.
        #[source]
        source: a2a::signature::Refusal,
    },
    /// The HTTP client could not be set up.
    #[error("cannot set up HTTP")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A time in which calls fail that may work later.
#[derive(Debug, Clone)]
pub struct Outage {
    /// What the last attempt met.
    pub reason: String,
    /// Whether the server answered: it is there, but refuses the call for now.
    pub is_answered: bool,
}

impl From<&Error> for Outage {
    fn from(error: &Error) -> Self {
        Self { reason: error.chain(), is_answered: matches!(error, Error::Protocol(_)) }
    }
}

impl Error {
    /// An error that the other side told, with the HTTP status it came with.
    pub(crate) fn told(status: u16, mut remote: RemoteError) -> Self {
        // The first of the numbers that servers use as they like means a refusal only to those who say more than the number.
        let kind = remote.kind().filter(|_| remote.code != -32000 || remote.reason.is_some());
        let by_kind = matches!(kind, Some(ErrorKind::Unauthenticated | ErrorKind::PermissionDenied));
        let is_refused = matches!(status, 401 | 403);
        // A code of JSON-RPC that says less than the status gives way to it.
        if is_refused || (status >= 300 && kind.is_none()) {
            remote.code = status.into();
        }
        if by_kind || is_refused { Self::Auth(remote) } else { Self::Protocol(remote) }
    }

    /// The status of the HTTP answer that this error was made of, when that is what told it.
    pub fn http_status(&self) -> Option<u16> {
        match self {
            // Below 100 are the codes of gRPC, below zero those of JSON-RPC.
            Self::Auth(remote) | Self::Protocol(remote) => u16::try_from(remote.code).ok().filter(|code| *code >= 100),
            Self::NoCard { tried } => tried.iter().find_map(|(_, error)| error.http_status()),
            _ => None,
        }
    }

    /// Whether what was to be sent cannot have reached the agent, so that sending it again does nothing twice.
    pub fn never_sent(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => {
                source.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
            }
            Self::Url { .. }
            | Self::Forbidden(_)
            | Self::Tls { .. }
            | Self::Token
            | Self::Grant { .. }
            | Self::NoCard { .. }
            | Self::NoGrpc
            | Self::NoInterface
            | Self::Inexpressible(_)
            | Self::ForeignInterface { .. }
            | Self::Untrusted { .. }
            | Self::Setup(_) => true,
            Self::Timeout { .. }
            | Self::Auth(_)
            | Self::Protocol(_)
            | Self::Malformed(_)
            | Self::Stream { .. }
            | Self::TooLarge { .. }
            | Self::Cut { .. } => false,
        }
    }

    /// The error with everything that led to it, in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(next) = cause {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        text
    }

    /// Whether the same call may work a moment later.
    pub fn is_passing(&self) -> bool {
        self.is_over_later(false)
    }

    /// Whether the same call may work later: a moment later, or when somebody has renewed a certificate. Durable work waits for that.
    pub fn is_mendable(&self) -> bool {
        self.is_over_later(true)
    }

    fn is_over_later(&self, is_mended: bool) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::Tls { .. } => is_mended,
            Self::Grant { source, .. } => source.is_over_later(is_mended),
            Self::NoCard { tried } => tried.iter().any(|(_, error)| error.is_over_later(is_mended)),
            Self::Protocol(remote) => {
                matches!(remote.kind(), Some(ErrorKind::Unavailable | ErrorKind::ResourceExhausted))
                    || matches!(remote.code, 429 | 502 | 503 | 504)
            }
            _ => false,
        }
    }
}

/// What each place said, with everything that led to it: whoever reads it has no other way to learn that.
fn each(tried: &[(String, Error)]) -> String {
    let said: Vec<String> = tried.iter().map(|(place, error)| format!("{place}: {}", error.chain())).collect();
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(code: i64, reason: Option<&str>) -> RemoteError {
        RemoteError { code, reason: reason.map(str::to_owned), ..RemoteError::default() }
    }

    #[test]
    fn credentials_are_told_apart_from_other_errors() {
        assert!(matches!(Error::told(401, remote(401, None)), Error::Auth(_)));
        assert!(matches!(Error::told(403, remote(403, None)), Error::Auth(_)));
        assert!(matches!(Error::told(404, remote(404, Some("TASK_NOT_FOUND"))), Error::Protocol(_)));
        assert!(matches!(Error::told(200, remote(-32001, None)), Error::Protocol(_)));
        assert!(matches!(Error::told(200, remote(-32000, None)), Error::Protocol(_)));
        assert!(matches!(Error::told(200, remote(-32000, Some("UNAUTHENTICATED"))), Error::Auth(_)));
    }

    #[test]
    fn the_status_is_told_where_it_says_more() {
        for (status, code, told) in [
            (401, 401, Some(401)),
            (401, -32000, Some(401)),
            (403, -32603, Some(403)),
            (500, 500, Some(500)),
            (500, -32000, Some(500)),
            (500, -32603, None),
            (404, -32001, None),
            (200, -32000, None),
            (0, 14, None),
        ] {
            assert_eq!(Error::told(status, remote(code, None)).http_status(), told, "{status} {code}");
        }
        assert_eq!(Error::Malformed(String::new()).http_status(), None);
    }

    #[test]
    fn places_without_a_card_say_what_they_said() {
        let gone = |place: &str| (place.to_owned(), Error::told(404, remote(404, None)));
        let refused = Error::Unreachable { origin: "http://h".to_owned(), source: "refused".into() };
        let error = Error::NoCard { tried: vec![gone("http://h/a"), ("http://h/b".to_owned(), refused)] };
        assert_eq!(
            error.to_string(),
            "there is no card: http://h/a: an error without a message (404); http://h/b: cannot reach http://h: refused"
        );
        assert_eq!((error.http_status(), error.is_passing(), error.never_sent()), (Some(404), true, true));
    }

    #[test]
    fn a_server_that_answers_is_not_away() {
        let refused = Error::Unreachable { origin: "http://h".to_owned(), source: "refused".into() };
        assert!(!Outage::from(&refused).is_answered);
        let full = Error::told(503, remote(503, None));
        assert!(full.is_passing() && Outage::from(&full).is_answered);
    }

    #[test]
    fn a_problem_with_tls_does_not_pass_but_can_be_mended() {
        let tls = || Error::Tls { origin: "https://h".to_owned(), problem: TlsProblem::UntrustedIssuer };
        let granted = Error::Grant { url: "https://h/token".to_owned(), source: Box::new(tls()) };
        for error in [tls(), granted, Error::NoCard { tried: vec![("https://h/a".to_owned(), tls())] }] {
            assert!(!error.is_passing() && error.is_mendable() && error.never_sent(), "{error}");
        }
        assert!(!Error::Malformed(String::new()).is_mendable());
    }

    #[test]
    fn what_passes_is_tried_again() {
        assert!(Error::told(503, remote(503, None)).is_passing());
        assert!(!Error::told(404, remote(404, None)).is_passing());
        assert!(!Error::Malformed(String::new()).is_passing());
    }
}
