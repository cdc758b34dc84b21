//! What can go wrong in the store, named by the race that was lost.

use a2a::TaskState;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such thing for this tenant.
    #[error("not found")]
    NotFound,
    /// The task had already ended.
    #[error("task has already ended as {}", .0.as_str())]
    Terminal(TaskState),
    /// A turn cannot say this, or nobody has asked for it.
    #[error("task cannot become {} by this step", .0.as_str())]
    Illegal(TaskState),
    /// The lease was taken over or has been voided.
    #[error("lease lost")]
    LeaseLost,
    /// Nobody can have the task: it does not stand in the queue, somebody has it, or it waits for its caller.
    #[error("the task does not wait in the queue")]
    NotWaiting,
    /// The task is no dead letter.
    #[error("the task is no dead letter")]
    NotDead,
    /// The task has not ended, and what has not ended is not removed.
    #[error("the task has not ended, it is {}", .0.as_str())]
    NotEnded(TaskState),
    /// The tenant still has tasks, and only one without tasks is removed.
    #[error("the tenant still has tasks")]
    HasTasks,
    /// The event after the one that was named is gone: the task has ended long ago, and its log was removed from the begin.
    #[error("the log of the task begins later than that")]
    Pruned,
    /// It is more than was to be read at once.
    #[error("there are {bytes} bytes to read")]
    Heavy {
        /// How many bytes it is.
        bytes: u64,
    },
    /// Something was written under the same lease since the caller looked.
    #[error("the turn has moved on")]
    Moved,
    /// The idempotency key was used with other content.
    #[error("idempotency key was used with other content")]
    IdempotencyConflict,
    /// Too many messages wait for the task's running turn.
    #[error("too many messages are waiting for this task")]
    InboxFull,
    /// The tenant has as many tasks that have not ended as it may have.
    #[error("the tenant has {limit} tasks that have not ended, as many as it may have")]
    TooManyTasks {
        /// How many it may have.
        limit: u64,
    },
    /// The tenant has as much stored as it may.
    #[error("the tenant has {limit} bytes stored, as many as it may have")]
    TooMuchStored {
        /// How many bytes it may have.
        limit: u64,
    },
    /// The tenant keeps as many cards as it may.
    #[error("the tenant keeps {limit} cards, as many as it may")]
    TooManyCards {
        /// How many it may keep.
        limit: u64,
    },
    /// The tenant has defined as many agents as it may.
    #[error("the tenant has {limit} agents, as many as it may")]
    TooManyAgents {
        /// How many it may have.
        limit: u64,
    },
    /// The task has as many push configurations as it may.
    #[error("the task has {limit} push notification configurations, as many as it may")]
    TooManyPushes {
        /// How many it may have.
        limit: u32,
    },
    /// The name or hash is taken.
    #[error("already exists")]
    Exists,
    /// The database was written by a newer version.
    #[error("the database has schema version {found}, this program knows up to {known}")]
    FromTheFuture {
        /// The version the file has.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The schema cannot be brought up to date while others work with it.
    #[error("the schema cannot be migrated: {0}")]
    Blocked(String),
    /// The store cannot take this now: shutting down, full or failing.
    #[error("the journal is unavailable: {0}")]
    Unavailable(String),
    /// What was stored cannot be read back.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
    /// An error of SQLite that another attempt would meet again; others are [`Error::Unavailable`].
    #[error("sqlite: {0}")]
    Sqlite(#[source] rusqlite::Error),
    /// An error of PostgreSQL that another attempt would meet again; others are [`Error::Unavailable`].
    #[error("postgresql: {}", postgres_said(.0))]
    Postgres(#[source] tokio_postgres::Error),
}

impl Error {
    /// Whether the state of things forbids the call, as opposed to a failure of the journal itself.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotFound
            | Self::Terminal(_)
            | Self::Illegal(_)
            | Self::LeaseLost
            | Self::NotWaiting
            | Self::NotDead
            | Self::NotEnded(_)
            | Self::HasTasks
            | Self::Pruned
            | Self::Heavy { .. }
            | Self::Moved
            | Self::IdempotencyConflict
            | Self::InboxFull
            | Self::TooManyTasks { .. }
            | Self::TooMuchStored { .. }
            | Self::TooManyCards { .. }
            | Self::TooManyAgents { .. }
            | Self::TooManyPushes { .. }
            | Self::Exists => true,
            Self::FromTheFuture { .. }
            | Self::Blocked(_)
            | Self::Unavailable(_)
            | Self::Damaged(_)
            | Self::Sqlite(_)
            | Self::Postgres(_) => false,
        }
    }
}

impl Error {
    /// Whether another attempt at the same call would meet it again.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::FromTheFuture { .. } | Self::Sqlite(_) | Self::Postgres(_) => true,
            Self::Unavailable(_) | Self::Blocked(_) => false,
            refusal => refusal.is_refusal(),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, ReadOnly, SystemIoFailure,
        };
        match error.sqlite_error_code() {
            // The file is well but this cannot be done now: no room, no rights, somebody else's lock, a failing disk.
            Some(CannotOpen | DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory | ReadOnly | SystemIoFailure) => {
                Self::Unavailable(format!("sqlite: {error}"))
            }
            _ => Self::Sqlite(error),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if is_lost(&error) || is_passing(&error) {
            Self::Unavailable(postgres_said(&error))
        } else {
            Self::Postgres(error)
        }
    }
}

/// Whether the connection is gone, and with it any knowledge of what became of the last statement.
pub(crate) fn is_lost(error: &tokio_postgres::Error) -> bool {
    use std::{error::Error as _, io::ErrorKind};
    if let Some(code) = error.code() {
        // The server says good-bye (shutdown, crash, starting up, idle for too long), or the connection failed.
        return matches!(code.code(), "57P01" | "57P02" | "57P03" | "57P05") || code.code().starts_with("08");
    }
    // A certificate that does not check out is invalid data: a new connection would meet the same one.
    let broken = |error: &std::io::Error| !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput);
    error.is_closed() || error.source().and_then(|cause| cause.downcast_ref()).is_some_and(broken)
}

/// Whether the server is well but cannot do this now: no room, no connections left, a standby, out of time.
fn is_passing(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return false };
    let code = code.code();
    code.starts_with("53") || code.starts_with("58") || matches!(code, "25006" | "40001" | "40P01" | "55P03" | "57014")
}

/// What the server said, with its SQLSTATE; otherwise what happened on the way, down to the first cause.
fn postgres_said(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    if let Some(said) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
