//! What can go wrong when a model is asked, by what the caller can do about it.

use std::time::Duration;

use a2a::is_hidden;

/// So much of what a provider says is shown.
const EXCERPT_BYTES: usize = 300;

/// Why there is no answer, or no end of it. Its text is for callers: it names the provider and the cause, and holds neither a key nor a
/// whole body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct Error {
    /// What can be done about it.
    pub kind: ErrorKind,
    provider: String,
    message: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

/// What can be done about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// Too much was asked in too short a time.
    RateLimited,
    /// The provider does not take what was asked.
    Invalid,
    /// What was asked is too long for the model.
    TooLarge,
    /// There is no such model.
    NotFound,
    /// Nobody answers, or they say that they cannot at the moment.
    Unavailable,
    /// So many calls failed that nobody is called for a while.
    CircuitOpen,
    /// The answer makes no sense.
    Broken,
}

/// An error of one attempt, and whether another one may help.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) again: Again,
}

/// Whether the same may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Never,
    /// After a while that the asker chooses.
    Soon,
    /// After what the provider says.
    After(Duration),
}

impl Error {
    pub(super) fn new(kind: ErrorKind, provider: &str, message: impl Into<String>) -> Self {
        Self { kind, provider: provider.to_owned(), message: message.into(), status: None, retry_after: None }
    }

    #[must_use]
    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    #[must_use]
    pub(super) fn with_retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Adds to what is said.
    #[must_use]
    pub(super) fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// Whose error it is.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The HTTP status that said so.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// When the provider wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(super) fn never(self) -> Failure {
        Failure { error: self, again: Again::Never }
    }

    pub(super) fn soon(self) -> Failure {
        Failure { error: self, again: Again::Soon }
    }
}

impl ErrorKind {
    /// Whether the same question may be answered a moment later.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::CircuitOpen)
    }

    /// Its word on the wire.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Auth => "auth_failed",
            Self::RateLimited => "rate_limited",
            Self::Invalid => "invalid_request",
            Self::TooLarge => "request_too_large",
            Self::NotFound => "not_found",
            Self::Unavailable | Self::Broken => "provider_error",
            Self::CircuitOpen => "circuit_open",
        }
    }

    /// Whether it says that nobody is there who could answer, so that it counts for the circuit breaker.
    pub(super) const fn is_outage(self) -> bool {
        matches!(self, Self::Unavailable | Self::Broken)
    }
}

/// A text of others for one line of ours: without control characters, not long, and without anything that looks like a key.
pub(super) fn excerpt(text: &str, key: Option<&client::Secret>) -> String {
    // A key goes before anything is cut, be it in the middle of it.
    let mut said = match key.map(client::Secret::expose).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "…"),
        None => text.to_owned(),
    };
    // More than is shown is not looked at, however long it is: every word could be shortened to nothing.
    let mut end = said.len().min(EXCERPT_BYTES * 8);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    let is_cut = end < said.len();
    said.truncate(end);
    let plain: String = said.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    let mut line = String::new();
    for word in plain.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        // What providers show of a key that they do not know.
        let bare = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        if bare.starts_with("sk-") && bare.len() > 8 {
            line.push_str("sk-…");
        } else {
            line.push_str(word);
        }
    }
    if line.len() > EXCERPT_BYTES || is_cut {
        let mut end = line.len().min(EXCERPT_BYTES);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use client::Secret;

    use super::*;

    #[test]
    fn an_excerpt_has_no_key_no_line_break_and_an_end() {
        let key = Secret::new("my-own-key");
        assert_eq!(excerpt("a\r\n my-own-key\u{202e}b", Some(&key)), "a … b");
        assert_eq!(excerpt("Incorrect API key: sk-proj-****abcd.", None), "Incorrect API key: sk-…");
        assert_eq!(excerpt("a task-oriented sk-run", None), "a task-oriented sk-run");
        let long = excerpt(&"ü".repeat(10_000), None);
        assert!(long.len() <= EXCERPT_BYTES + '…'.len_utf8() && long.ends_with("ü…"), "{}", long.len());
    }

    #[test]
    fn what_passes_and_what_it_is_called() {
        use ErrorKind::*;
        let all = [Auth, RateLimited, Invalid, TooLarge, NotFound, Unavailable, CircuitOpen, Broken];
        let passing: Vec<&str> = all.iter().filter(|kind| kind.is_passing()).map(|kind| kind.code()).collect();
        assert_eq!(passing, ["rate_limited", "provider_error", "circuit_open"]);
    }
}
