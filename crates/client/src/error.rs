//! What can go wrong when calling an agent, by what the caller can do about it.

use std::time::Duration;

use a2a::error::{ErrorKind, RemoteError};

use crate::egress::Refusal;

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

impl Error {
    /// An error that the other side told, with the HTTP status it came with.
    pub(crate) fn told(status: u16, remote: RemoteError) -> Self {
        let by_kind = matches!(remote.kind(), Some(ErrorKind::Unauthenticated | ErrorKind::PermissionDenied));
        if by_kind || matches!(status, 401 | 403) { Self::Auth(remote) } else { Self::Protocol(remote) }
    }

    /// Whether the same call may work a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::Protocol(remote) => {
                matches!(remote.kind(), Some(ErrorKind::Unavailable | ErrorKind::ResourceExhausted))
                    || matches!(remote.code, 429 | 502 | 503 | 504)
            }
            _ => false,
        }
    }
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
    }

    #[test]
    fn what_passes_is_tried_again() {
        assert!(Error::told(503, remote(503, None)).is_passing());
        assert!(!Error::told(404, remote(404, None)).is_passing());
        assert!(!Error::Malformed(String::new()).is_passing());
    }
}
