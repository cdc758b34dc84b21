//! How a command fails: what happened, why, what to do, and the exit code that says it to scripts.

use std::{error::Error, process::ExitCode};

use a2a::{ErrorKind, Task, TaskState};
use client::egress::TlsProblem;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{credentials, output};

/// The exit codes. They are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did not work: an error, a task that failed, was rejected or canceled.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The server cannot be reached, or did not come back.
    Unreachable = 3,
    /// The token is missing or not good enough.
    Auth = 4,
    /// It took too long.
    Timeout = 5,
    /// Ctrl-C, as shells count it.
    Interrupted = 130,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    /// What the other side calls the error, and its number for it.
    remote: Option<Box<(String, i64)>>,
    /// The task that it is about.
    task: Option<Box<TaskRef>>,
}

/// Which task something is about, and where that stands.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRef {
    id: String,
    context_id: String,
    state: TaskState,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self { exit, error: error.into(), causes: Vec::new(), hint: None, remote: None, task: None }
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

    /// What it means that an agent could not be connected to: a name that the server does not have is a mistake of the
    /// command line.
    pub(crate) fn of_agent(error: client::Error) -> Self {
        let is_unknown = names_no_agent(&error);
        let failure = Self::from(error);
        if !is_unknown {
            return failure;
        }
        Self { exit: Exit::Usage, ..failure }.hint("`sb agent list` shows the agents of the server")
    }

    /// Says which task it is about.
    pub(crate) fn of(mut self, task: &Task) -> Self {
        let (id, context_id) = (task.id.clone(), task.context_id.clone());
        self.task = Some(Box::new(TaskRef { id, context_id, state: task.status.state }));
        self
    }

    /// Says it on stderr: in lines for people, as one object for programs.
    pub(crate) fn print(&self) {
        if output::is_for_programs() {
            output::error_object(&self.object());
            return;
        }
        output::error_line("error", &self.error);
        for cause in &self.causes {
            output::error_line("cause", cause);
        }
        if let Some(hint) = &self.hint {
            output::error_line("hint", hint);
        }
    }
}

impl Failure {
    /// The error as a2a-cli describes it, and what we know beyond that.
    fn object(&self) -> Value {
        let (code, number) = match self.remote.as_deref() {
            Some((name, number)) => (name.clone(), Some(*number)),
            None => (code_of(self.exit).to_owned(), None),
        };
        let mut error = json!({
            "code": code, "message": self.error, "hint": self.hint, "a2aCode": number, "exitCode": self.exit as u8,
        });
        if !self.causes.is_empty() {
            error["causes"] = json!(self.causes);
        }
        if let Some(task) = &self.task {
            error["task"] = json!(task);
        }
        json!({ "error": error })
    }
}

/// The name that a2a-cli has for a failure that is not the protocol's.
fn code_of(exit: Exit) -> &'static str {
    match exit {
        Exit::Usage => "A2ACLI_ERR_USAGE",
        Exit::Unreachable => "A2ACLI_ERR_UNREACHABLE",
        Exit::Auth => "A2ACLI_ERR_AUTH_FAILED",
        Exit::Timeout => "A2ACLI_ERR_TIMEOUT",
        Exit::Failed | Exit::Interrupted => "A2ACLI_ERR_INTERNAL",
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let mut failure = Self::new(exit_of(&error), error.to_string());
        failure.remote = named(&error).map(Box::new);
        let failure = match error.source() {
            Some(source) => failure.caused_by(source),
            None => failure,
        };
        match (failure.exit, &error) {
            (_, client::Error::Tls { origin, problem }) => failure.hint(tls_hint(origin, problem)),
            (Exit::Unreachable, _) => {
                failure.hint("is the server running? start one with `sb serve`, or name it with --url")
            }
            (Exit::Auth, client::Error::Auth(remote)) if remote.reason.as_deref() == Some("TENANT_DISABLED") => {
                failure.hint("the token is right; whoever administers the server enables its tenant with `sb tenant enable NAME`")
            }
            (Exit::Auth, _) if failure.error.contains("a token with the scope") => {
                failure.hint("an administrator makes one: `sb token add --scope …`")
            }
            (Exit::Auth, _) => failure.hint(match credentials::withheld() {
                Some(why) => format!("give a token that the server knows with --token; {why}"),
                None => "give a token that the server knows with --token or SB_TOKEN; after a restore without its tokens, \
                         `sb tenant rotate NAME` makes a new one"
                    .to_owned(),
            }),
            _ if failure.error.contains("name the agent that the message is for") => {
                failure.hint("name one with --agent; `sb agent list` shows those that there are")
            }
            (_, client::Error::ForeignInterface { .. }) => {
                failure.hint("if you trust the card, follow it with --allow-other-origin; your token is sent there too")
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

/// What the protocol calls an error that the other side told.
fn named(error: &client::Error) -> Option<(String, i64)> {
    let client::Error::Protocol(remote) = error else { return None };
    let kind = remote.kind()?;
    let is_of_the_protocol = matches!(
        kind,
        ErrorKind::InvalidRequest
            | ErrorKind::MethodNotFound
            | ErrorKind::InvalidParams
            | ErrorKind::Internal
            | ErrorKind::TaskNotFound
            | ErrorKind::TaskNotCancelable
            | ErrorKind::PushNotificationNotSupported
            | ErrorKind::UnsupportedOperation
            | ErrorKind::ContentTypeNotSupported
            | ErrorKind::InvalidAgentResponse
            | ErrorKind::ExtendedAgentCardNotConfigured
            | ErrorKind::ExtensionSupportRequired
            | ErrorKind::VersionNotSupported
    );
    is_of_the_protocol.then(|| (format!("{kind:?}Error"), remote.code))
}

/// Advice about a running server that accepts no connection.
fn tls_hint(origin: &str, problem: &TlsProblem) -> String {
    match problem {
        TlsProblem::UntrustedIssuer => "name the authority with SSL_CERT_FILE=ca.pem".to_owned(),
        TlsProblem::NameMismatch { .. } => {
            "call it by a name that its certificate has; where a Switchboard server puts the other \
                                            name on its cards, set its `--public-url`"
                .to_owned()
        }
        TlsProblem::Expired(_) => {
            "whoever runs the server has to renew its certificate; check the clock of this machine".to_owned()
        }
        TlsProblem::NotYetValid(_) => "check the clock of this machine".to_owned(),
        TlsProblem::PlainHttp => format!("use {}", origin.replacen("https://", "http://", 1)),
        TlsProblem::SpeaksTls => format!("use {}", origin.replacen("http://", "https://", 1)),
        _ => "whoever runs the server has to look at its certificate and its TLS settings".to_owned(),
    }
}

fn exit_of(error: &client::Error) -> Exit {
    match error {
        client::Error::Url { .. } => Exit::Usage,
        // A stream that could not be taken up again has lost its server.
        client::Error::Unreachable { .. } | client::Error::Tls { .. } | client::Error::Cut { .. } => Exit::Unreachable,
        client::Error::Timeout { .. } => Exit::Timeout,
        client::Error::Auth(_) | client::Error::Token => Exit::Auth,
        _ => Exit::Failed,
    }
}

/// Whether a server of ours says that it has no agent of this name.
fn names_no_agent(error: &client::Error) -> bool {
    match error {
        client::Error::Protocol(remote) => remote.reason.as_deref() == Some("AGENT_NOT_FOUND"),
        client::Error::NoCard { tried } => tried.iter().any(|(_, error)| names_no_agent(error)),
        _ => false,
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
            (Error::Cut { attempts: 3, source: None }, 3),
            (Error::Cut { attempts: 3, source: Some(Box::new(unreachable())) }, 3),
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
    fn programs_get_an_object() {
        let told = RemoteError { code: -32001, message: "task t not found".to_owned(), ..RemoteError::default() };
        let error = Failure::from(Error::Protocol(told)).object();
        assert_eq!(error["error"]["code"], "TaskNotFoundError");
        assert_eq!((&error["error"]["a2aCode"], &error["error"]["exitCode"]), (&json!(-32001), &json!(1)));
        let task = Task { id: "t".to_owned(), ..Task::default() };
        let late = Failure::new(Exit::Timeout, "no result").because("slow").hint("wait").of(&task).object();
        let expected = json!({
            "code": "A2ACLI_ERR_TIMEOUT", "message": "no result", "hint": "wait", "a2aCode": null, "exitCode": 5,
            "causes": ["slow"], "task": {"id": "t", "contextId": "", "state": "TASK_STATE_UNSPECIFIED"},
        });
        assert_eq!(late["error"], expected);
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
