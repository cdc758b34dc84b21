//! What an HTTP status of a provider means, and when it may be asked again.

use std::time::Duration;

use super::error::{Again, Error, ErrorKind, Failure};

/// Whoever wants to be left alone for longer is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The failure that a status is. `message` is what the provider says of it, cleaned.
pub(super) fn failure(provider: &str, status: u16, wait: Option<Duration>, message: &str) -> Failure {
    let (kind, what) = match status {
        401 => (ErrorKind::Auth, "the key was refused"),
        402 => (ErrorKind::Auth, "the account cannot pay for this"),
        403 => (ErrorKind::Auth, "the key is not allowed to do this"),
        404 => (ErrorKind::NotFound, "there is no such model, or no such path"),
        408 | 500..=599 => (ErrorKind::Unavailable, "the provider cannot answer"),
        413 => (ErrorKind::TooLarge, "the request is too large"),
        429 => (ErrorKind::RateLimited, "too many requests"),
        300..=399 => (ErrorKind::Broken, "the provider redirects, which is not followed"),
        _ => (ErrorKind::Invalid, "the request was refused"),
    };
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    let error = Error::new(kind, provider, format!("{what} ({status}){said}")).with_status(status);
    let is_passing = matches!(status, 429 | 500 | 502 | 503 | 504 | 529);
    match wait {
        Some(wait) if is_passing && wait > LONGEST_WAIT => {
            error.and(&format!("; it wants to be asked again in {} s", wait.as_secs())).with_retry_after(wait).never()
        }
        Some(wait) if is_passing => Failure { error: error.with_retry_after(wait), again: Again::After(wait) },
        None if is_passing => error.soon(),
        _ => error.never(),
    }
}
