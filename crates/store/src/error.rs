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
    /// The store cannot take this now: shutting down, full or failing.
    #[error("the journal is unavailable: {0}")]
    Unavailable(String),
    /// What was stored cannot be read back.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
    /// An error of SQLite.
    #[error("sqlite: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl Error {
    /// Whether the state of things forbids the call, as opposed to a failure of the journal itself.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotFound
            | Self::Terminal(_)
            | Self::Illegal(_)
            | Self::LeaseLost
            | Self::IdempotencyConflict
            | Self::InboxFull
            | Self::TooManyTasks { .. }
            | Self::TooMuchStored { .. }
            | Self::Exists => true,
            Self::FromTheFuture { .. } | Self::Unavailable(_) | Self::Damaged(_) | Self::Sqlite(_) => false,
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}
