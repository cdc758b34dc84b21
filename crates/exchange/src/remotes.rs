//! The remotes that an installation knows, as the edges see them. Who they are and how they are called is the business of whoever implements
//! [`Remotes`].

use std::{fmt, sync::Arc};

use a2a::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use crate::Caller;

/// Remotes: looked at, called by line, and changed by the operator.
#[async_trait]
pub trait Remotes: Send + Sync + 'static {
    /// Those that this caller may see, all of them for the operator (`None`), by name.
    fn list(&self, caller: Option<&Caller>) -> Vec<Remote>;

    /// The card of one, as it came; asked for anew when that is wanted.
    async fn card(&self, caller: Option<&Caller>, name: &str, refresh: bool) -> Result<Bytes, Error>;

    /// Looks whether one is there.
    async fn probe(&self, name: &str) -> Result<Remote, Error>;

    /// Looks at whoever is at a URL, known or not.
    async fn look(&self, url: &str) -> Result<Value, Error>;

    /// Adds one, described as an entry of `agents.yaml`. It is kept in a file.
    async fn add(&self, entry: Value) -> Result<Remote, Error>;

    /// Removes one that was added.
    async fn remove(&self, name: &str) -> Result<(), Error>;

    /// The tool `/a2a`: what an agent of this caller is told when it says this line, framed.
    async fn command(&self, caller: &Caller, line: &str) -> String;
}

/// Somebody who has [`Remotes`].
#[derive(Clone)]
pub struct Known(pub Arc<dyn Remotes>);

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known(…)")
    }
}

/// A remote as it stands.
#[derive(Debug, Clone, Default)]
pub struct Remote {
    /// Its name here.
    pub name: String,
    /// Where it is described.
    pub registry: &'static str,
    /// Where it is. Not for tenants.
    pub url: String,
    /// What its card says of it.
    pub description: String,
    /// Whether it answered when it was last asked; nothing before that.
    pub reachable: Option<bool>,
    /// How long that took, in milliseconds.
    pub latency_ms: Option<u64>,
    /// When that was.
    pub probed_at: Option<Timestamp>,
    /// Why not. Not for tenants.
    pub error: Option<String>,
    /// Whether its card is known.
    pub has_card: bool,
    /// Whether it streams.
    pub streaming: bool,
    /// Whether it notifies.
    pub push: bool,
    /// The binding in use.
    pub binding: Option<&'static str>,
    /// The generation of the protocol that it speaks.
    pub protocol_version: Option<&'static str>,
    /// `closed`, `open` or `half-open`.
    pub breaker: &'static str,
    /// What it can do.
    pub skills: Vec<Skill>,
    /// How it wants to be authenticated to, as its card says it: any of these is enough.
    pub security: Vec<String>,
    /// The kind of credential that it requires and that its entry does not have: `bearer`, `apiKey` or `other`. Not for tenants.
    pub missing_credential: Option<&'static str>,
}

/// Something that a remote can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Whether it is on the card, or in the operator's file, which counts first.
    pub source: &'static str,
}

/// Why something cannot be done with a remote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none of that name, or none that this caller sees.
    #[error("no remote agent named `{0}`")]
    Unknown(String),
    /// The name is taken, or it stands in a file that is not changed from here.
    #[error("{0}")]
    Conflict(String),
    /// What was given cannot be one.
    #[error("{why}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// It does not answer as it should.
    #[error("{0}")]
    Broken(String),
    /// It cannot be written down.
    #[error("{0}")]
    Failed(String),
}
