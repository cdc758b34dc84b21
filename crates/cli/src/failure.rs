//! How a command fails: what happened, why, what to do, and the exit code that says it to scripts.

use std::{error::Error, process::ExitCode};

use crate::output;

/// The exit codes. They are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did not work: an error, a task that failed, was rejected or canceled, or a stream that broke off for good.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The server cannot be reached.
    Unreachable = 3,
    /// The token is missing or not good enough.
    Auth = 4,
    /// It took too long.
    Timeout = 5,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self { exit, error: error.into(), causes: Vec::new(), hint: None }
    }

    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self::new(Exit::Failed, error)
    }

    pub(crate) fn usage(error: impl Into<String>) -> Self {
        Self::new(Exit::Usage, error)
    }

    /// Adds an error and everything that led to it.
    pub(crate) fn caused_by(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Some errors repeat their source in their own text.
            if !self.causes.last().is_some_and(|last| last.contains(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says it on stderr.
    pub(crate) fn print(&self) {
        output::error_line("error", &self.error);
        for cause in &self.causes {
            output::error_line("cause", cause);
        }
        if let Some(hint) = &self.hint {
            output::error_line("hint", hint);
        }
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let failure = Self::new(exit_of(&error), error.to_string());
        let failure = match error.source() {
            Some(source) => failure.caused_by(source),
            None => failure,
        };
        let is_untrusted = failure.causes.iter().any(|cause| cause.contains("certificate"));
        match (failure.exit, &error) {
            (Exit::Unreachable, _) if is_untrusted => failure
                .hint("the server is there, but its certificate is not trusted: name its authority with SSL_CERT_FILE=ca.pem"),
            (Exit::Unreachable, _) => {
                failure.hint("is the server running? start one with `sb serve`, or name it with --url")
            }
            (Exit::Auth, client::Error::Auth(remote)) if remote.reason.as_deref() == Some("TENANT_DISABLED") => {
                failure.hint("the token is right; whoever administers the server enables its tenant with `sb tenant enable NAME`")
            }
            (Exit::Auth, _) => failure.hint("give a token that the server knows with --token or SB_TOKEN"),
            (_, client::Error::ForeignInterface { .. }) => {
                failure.hint("if you trust the card, follow it with --allow-other-origin")
            }
            (_, client::Error::Stream { .. }) => failure.hint(
                "the URL, or the one on the agent's card, leads to an endpoint that only streams: try `sb send --stream`, or \
                 name the agent's own URL; `sb card get` shows what the card says",
            ),
            (_, client::Error::Untrusted { .. }) => failure.hint(
                "trust its key with `trust.keys` in the configuration if you know whose it is; `trust.cards` says what is required",
            ),
            (_, client::Error::NoGrpc) => failure
                .hint("a Switchboard server offers it with --grpc-port; `sb card get` shows what the agent offers"),
            (_, client::Error::NoInterface) => failure.hint("`sb card get` shows what the agent offers"),
            _ => failure,
        }
    }
}

fn exit_of(error: &client::Error) -> Exit {
    match error {
        client::Error::Url { .. } => Exit::Usage,
        client::Error::Unreachable { .. } => Exit::Unreachable,
        client::Error::Timeout { .. } => Exit::Timeout,
        client::Error::Auth(_) | client::Error::Token => Exit::Auth,
        // Not unreachable: the server was there and has taken the work.
        client::Error::Cut { .. } => Exit::Failed,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use a2a::error::RemoteError;
    use client::Error;

    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let remote = RemoteError::default;
        let unreachable = || Error::Unreachable { origin: "http://h".to_owned(), source: "refused".into() };
        for (error, code) in [
            (Error::Url { url: "x".to_owned(), reason: "y".to_owned() }, 2),
            (unreachable(), 3),
            (Error::Cut { attempts: 3, source: None }, 1),
            (Error::Cut { attempts: 3, source: Some(Box::new(unreachable())) }, 1),
            (Error::Auth(remote()), 4),
            (Error::Token, 4),
            (Error::Timeout { origin: "http://h".to_owned(), after: Duration::from_secs(1) }, 5),
            (Error::Protocol(remote()), 1),
            (Error::Malformed("x".to_owned()), 1),
            (Error::NoGrpc, 1),
            (Error::NoInterface, 1),
            (Error::Stream { url: "http://h/stream".to_owned() }, 1),
        ] {
            let text = error.to_string();
            assert_eq!(Failure::from(error).exit as u8, code, "{text}");
        }
    }

    #[test]
    fn causes_are_told_once() {
        let error = Error::Unreachable { origin: "http://h".to_owned(), source: "connection refused".into() };
        let failure = Failure::from(error);
        assert_eq!(failure.error, "cannot reach http://h");
        assert_eq!(failure.causes, ["connection refused"]);
        assert!(failure.hint.is_some());
    }
}
