//! Why an operation was not carried out, and the one place that says it in the protocol's words.

use std::fmt;

use a2a::{ErrorKind, TaskState};
use store::{AgentId, Scope, TaskId};

/// When trying again makes sense, in seconds: tasks and streams end all the time, storage is made free by people.
const RETRY_SOON: u32 = 5;
const RETRY_STORED: u32 = 300;

/// An error of the exchange.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is not one that the protocol allows, or that the agent takes.
    #[error(transparent)]
    Request(Box<a2a::Error>),
    /// No agent of that name, or none that this caller sees.
    #[error("no agent {0}")]
    AgentNotFound(Missing),
    /// The tenant has an agent of that id, or sees one.
    #[error("there is an agent '{0}' already")]
    AgentExists(String),
    /// The tenant has defined no agent of that id.
    #[error("no agent '{0}' for this tenant")]
    NotDefined(String),
    /// Tenants define no agents here.
    #[error("this server does not take agents that tenants define")]
    NothingDefined,
    /// No agent that this caller sees has the skill.
    #[error("no agent has the skill `{0}`")]
    NoSkill(String),
    /// No task of that id, or none that this caller sees.
    #[error("no task `{0}`")]
    TaskNotFound(String),
    /// The task has ended, and cannot be canceled.
    #[error("the task has already ended as {}", .0.as_str())]
    NotCancelable(TaskState),
    /// The task has ended, and nothing comes of it any more.
    #[error("the task has already ended as {}: get it, or resume with a cursor", .0.as_str())]
    NothingToFollow(TaskState),
    /// No context of that id with any task, or none that this caller sees.
    #[error("no context `{0}`")]
    ContextNotFound(String),
    /// Push notifications were asked for.
    #[error("push notifications are not supported")]
    PushNotSupported,
    /// No push notification configuration of that id, or none that this caller sees.
    #[error("no push notification configuration `{0}`")]
    PushNotFound(String),
    /// The caller's token is not for this.
    #[error("this takes a token with the scope `{0}`")]
    MissingScope(Scope),
    /// The caller's token is bound to some agents, and this is about all of them.
    #[error("a token that is bound to agents cannot do this, since it concerns others too")]
    Bound,
    /// The caller's token was revoked or has expired, or its tenant was disabled.
    #[error("the token is not valid any more")]
    TokenEnded,
    /// The tenant has as many streams open as it may have.
    #[error("{limit} streams are open already; close one, or poll with GetTask")]
    TooManyStreams {
        /// How many it may have.
        limit: usize,
    },
    /// The tenant has as many long polls open as it may have.
    #[error("the tenant has {limit} requests to the queue that wait, as many as it may have (`limits.streams`)")]
    TooManyLongPolls {
        /// How many it may have.
        limit: usize,
    },
    /// Whoever holds the entry now, it is not this worker.
    #[error("{0}")]
    LeaseLost(String),
    /// The entry cannot be had.
    #[error("{0}")]
    NotWaiting(String),
    /// The task is no dead letter.
    #[error("the task `{0}` is no dead letter")]
    NotDead(String),
    /// No instance runs the agent.
    #[error("no agent `{0}` is run here: its entries wait for a worker that consumes them")]
    NotRun(String),
    /// No more work is taken.
    #[error("the server is shutting down")]
    Stopping,
    /// The store says no, or does not work.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// An agent that is not there.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    name: String,
    /// One that the caller sees, and may have meant.
    meant: Option<AgentId>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        match &self.meant {
            Some(meant) => write!(f, ": did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// No agent of this name, which may be anything.
    pub fn agent_not_found(name: &str) -> Self {
        Self::agent_not_meant(name, None)
    }

    /// The same, where the caller may have meant one that it sees.
    pub(crate) fn agent_not_meant(name: &str, meant: Option<AgentId>) -> Self {
        Self::AgentNotFound(Missing { name: name.chars().take(64).collect(), meant })
    }

    /// No agent of this name that the tenant has defined, which may be anything.
    pub(crate) fn not_defined(name: &str) -> Self {
        Self::NotDefined(name.chars().take(64).collect())
    }

    /// No context of this id, which may be anything.
    pub(crate) fn context_not_found(id: &str) -> Self {
        Self::ContextNotFound(id.chars().take(64).collect())
    }

    /// No push configuration of this id, which may be anything.
    pub(crate) fn push_not_found(id: &str) -> Self {
        Self::PushNotFound(id.chars().take(64).collect())
    }

    /// A field of the request is wrong.
    pub(crate) fn invalid(field: &str, why: impl AsRef<str>) -> Self {
        a2a::Error::invalid(field, why).into()
    }

    /// An error of the store, where "not found" means this task.
    pub(crate) fn of_task(error: store::Error, task: TaskId) -> Self {
        match error {
            store::Error::NotFound => Self::TaskNotFound(task.to_string()),
            other => other.into(),
        }
    }

    /// What kind of error of the protocol it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Request(error) => error.kind,
            Self::AgentNotFound(_) | Self::NoSkill(_) | Self::NotDefined(_) => ErrorKind::AgentNotFound,
            Self::AgentExists(_) => ErrorKind::AlreadyExists,
            Self::NothingDefined => ErrorKind::UnsupportedOperation,
            Self::TaskNotFound(_) | Self::PushNotFound(_) => ErrorKind::TaskNotFound,
            Self::ContextNotFound(_) => ErrorKind::NotFound,
            Self::NotCancelable(_) => ErrorKind::TaskNotCancelable,
            Self::NothingToFollow(_) => ErrorKind::UnsupportedOperation,
            Self::PushNotSupported => ErrorKind::PushNotificationNotSupported,
            Self::MissingScope(_) | Self::Bound => ErrorKind::PermissionDenied,
            Self::TokenEnded => ErrorKind::Unauthenticated,
            Self::TooManyStreams { .. } | Self::TooManyLongPolls { .. } => ErrorKind::ResourceExhausted,
            Self::LeaseLost(_) | Self::NotWaiting(_) | Self::NotDead(_) | Self::NotRun(_) => ErrorKind::Conflict,
            Self::Stopping => ErrorKind::Unavailable,
            Self::Store(error) => store_kind(error),
        }
    }
}

fn store_kind(error: &store::Error) -> ErrorKind {
    match error {
        store::Error::Terminal(_) => ErrorKind::UnsupportedOperation,
        store::Error::IdempotencyConflict => ErrorKind::InvalidParams,
        store::Error::NotEnded(_) | store::Error::HasTasks => ErrorKind::Conflict,
        store::Error::InboxFull
        | store::Error::TooManyTasks { .. }
        | store::Error::TooMuchStored { .. }
        | store::Error::TooManyCards { .. }
        | store::Error::TooManyAgents { .. }
        | store::Error::TooManyPushes { .. } => ErrorKind::ResourceExhausted,
        store::Error::Unavailable(_) => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

impl From<a2a::Error> for Error {
    fn from(error: a2a::Error) -> Self {
        Self::Request(Box::new(error))
    }
}

/// As a caller may see it. Internals go to the log, not over the wire.
impl From<Error> for a2a::Error {
    fn from(error: Error) -> Self {
        let plain = |error: &Error| Self::new(error.kind(), error.to_string());
        match error {
            Error::Request(error) => *error,
            Error::TaskNotFound(id) => Self::task_not_found(&id),
            Error::TooManyStreams { limit } => {
                plain(&error).with_metadata("limitStreams", limit.to_string()).with_retry_after(RETRY_SOON)
            }
            Error::TooManyLongPolls { limit } => {
                plain(&error).with_metadata("limitLongPolls", limit.to_string()).with_retry_after(RETRY_SOON)
            }
            Error::MissingScope(scope) => {
                plain(&error).with_reason("MISSING_SCOPE").with_metadata("scope", scope.name())
            }
            Error::LeaseLost(_) => plain(&error).with_reason("LEASE_LOST"),
            Error::NotWaiting(_) => plain(&error).with_reason("NOT_WAITING"),
            Error::NotDead(_) => plain(&error).with_reason("NOT_A_DEAD_LETTER"),
            Error::NotRun(_) => plain(&error).with_reason("AGENT_NOT_RUN_HERE"),
            Error::Store(error) => of_store(&error),
            error => plain(&error),
        }
    }
}

fn of_store(error: &store::Error) -> a2a::Error {
    let new = |message: String| a2a::Error::new(store_kind(error), message);
    match error {
        store::Error::Terminal(_) => new(format!("the {error}")),
        store::Error::IdempotencyConflict => {
            new("this idempotency key or message id was used before with other content".into())
                .with_reason("IDEMPOTENCY_CONFLICT")
        }
        store::Error::NotEnded(state) => {
            let state = state.as_str();
            new(format!("a task that has not ended cannot be deleted, and one is {state}: cancel it first"))
                .with_reason("TASK_NOT_ENDED")
        }
        store::Error::InboxFull => new("too many messages are waiting for this task; wait for a turn to end".into())
            .with_retry_after(RETRY_SOON),
        store::Error::TooManyTasks { limit } => {
            new(format!("{limit} tasks have not ended, as many as there may be; wait for one to end, or cancel one"))
                .with_metadata("limitTasks", limit.to_string())
                .with_retry_after(RETRY_SOON)
        }
        store::Error::TooMuchStored { limit } => new(format!(
            "the {limit} bytes that this tenant may store are used up: delete tasks or contexts, or ask the operator for a shorter \
             retention or a higher limits.stored_bytes"
        ))
            .with_metadata("limitStoredBytes", limit.to_string())
            .with_retry_after(RETRY_STORED),
        store::Error::TooManyCards { limit } => {
            new(format!("{limit} cards are kept, as many as there may be; remove one"))
                .with_metadata("limitCards", limit.to_string())
        }
        store::Error::TooManyAgents { limit } => {
            new(format!("{limit} agents are defined, as many as there may be; delete one"))
                .with_metadata("limitAgents", limit.to_string())
        }
        store::Error::TooManyPushes { limit } => {
            new(format!("the task has {limit} push notification configurations, as many as it may; delete one"))
                .with_metadata("limitConfigs", limit.to_string())
        }
        store::Error::Unavailable(why) => {
            tracing::warn!(error = %why, "the journal refused a call");
            new("the journal cannot take this now; try again".into())
        }
        other => {
            tracing::error!(error = %other, "a store call failed");
            new("internal error".into())
        }
    }
}
