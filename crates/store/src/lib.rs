//! The journal: every task, message, artifact and event, durable before anyone hears of it.
//!
//! [`Store`] is the contract; [`sqlite`] implements it on one file, [`postgres`] on a server for many instances, and
//! `testkit::conformance` tests any implementation of it. Nothing outside this crate knows SQL, and nothing inside it decides what an
//! operation means: it decides only what may follow what ([`machine`]) and in which order.

pub mod archive;
mod attempts;
pub mod clock;
mod codec;
mod contract;
mod credentials;
mod draft;
mod error;
mod fair;
pub mod fault;
mod hub;
mod ids;
pub mod lease;
mod location;
pub mod machine;
mod nats;
mod ops;
pub mod postgres;
pub mod push;
pub mod queue;
mod regular;
pub mod retention;
mod schema;
mod share;
pub mod sqlite;
mod talk;
#[cfg(test)]
mod testing;
mod types;
mod waiter;
pub mod wake;

pub use attempts::FailedAttempt;
pub use contract::{Installation, Journal, Outbox, Queue, Registry, Retention, Store};
pub use credentials::{AdminToken, Bearer, NewAdminToken, Reach, Scope, Scopes};
pub use draft::{Draft, TurnEnd};
pub use error::Error;
pub use hub::{Hub, Recent, Watch};
pub use ids::{AgentId, InstanceId, Numbers, TaskId, TenantId, check_tenant_name, number_ids};
pub use lease::{Claim, Due, Holder, Lease, LeaseTime, LeasedTurn, Line, Room, Shares, Tenants, Term};
pub use location::{CONNECTIONS, Location, OpenOptions, Presence, announce, bury, dead_instances, is_dead, open};
pub use push::{
    Attempt, Claimed, Letter, MOST_CONFIGS, MOST_LETTERS, NewPush, Next, Place, PushClaim, PushConfig, PushFilter,
    PushLease, PushRecord, PushState, Replay, Settlement,
};
pub use queue::{AgentQueue, Letters, QueueEntry, Wish};
pub use regular::{open_given, open_regular, read_opened, read_regular};
pub use retention::{Deleted, LARGEST_STEP, Prune, PruneStep, PruneWalk, Pruned, Removal, Whose};
pub use types::{
    Accept, Accepted, Append, Appended, AuditEntry, CHILDREN_SCANNED, CancelMark, Change, Changed, Event, EventKind,
    FeedEvent, FeedLimit, FeedPage, Filter, IdempotencyKey, MOST_COUNTED, Most, NewToken, Only, OwedCancel, Page,
    PageKey, Position, Post, Quota, Snapshot, Start, Stats, StoredAgent, StoredCard, Tailed, Target, TaskHead, Tenant,
    Token, Tokens, Turn, Usage, View, merge_chunks,
};
pub use wake::{NatsUrl, News, Wake, WakeError};

/// A `Result` of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
