//! What a worker holds in its hand: the lease of an entry, sealed, so that any instance can write for it and nobody can make one up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{AgentId, Holder, Lease, TaskId, TenantId};

use crate::{convert, page_token::Key};

/// The longest name of a worker.
pub(super) const LONGEST_NAME: usize = 128;

/// A lease as it is sealed.
#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(rename = "w")]
    holder: String,
    #[serde(rename = "t")]
    task: String,
    #[serde(rename = "o")]
    tenant: i64,
    #[serde(rename = "a")]
    agent: String,
    #[serde(rename = "c")]
    context: Arc<str>,
    #[serde(rename = "g")]
    generation: u64,
    #[serde(rename = "n")]
    turn: u32,
    #[serde(rename = "i")]
    attempt: u32,
    #[serde(rename = "r")]
    tries: u32,
    #[serde(rename = "m")]
    max_attempts: Option<u32>,
    #[serde(rename = "k")]
    kept: u64,
}

fn purpose() -> [u8; 32] {
    convert::digest(&[b"a lease of the queue"])
}

/// Seals a lease. Tickets are of no tenant: who may use one is found in it.
pub(super) fn seal(key: &Key, lease: &Lease) -> String {
    let sealed = Sealed {
        holder: lease.holder.name().to_owned(),
        task: lease.task.to_string(),
        tenant: lease.tenant.0,
        agent: lease.agent.to_string(),
        context: Arc::clone(&lease.context),
        generation: lease.generation,
        turn: lease.turn,
        attempt: lease.attempt,
        tries: lease.tries,
        max_attempts: lease.max_attempts,
        kept: lease.kept,
    };
    // Numbers and texts always serialise.
    key.seal_name(TenantId(0), &purpose(), &serde_json::to_string(&sealed).unwrap_or_default())
}

/// The lease that was sealed, if it was here.
pub(super) fn open(key: &Key, ticket: &str) -> Option<Lease> {
    let sealed = key.open_name(TenantId(0), &purpose(), ticket).ok()?;
    let sealed: Sealed = serde_json::from_str(&sealed).ok()?;
    Some(Lease {
        holder: Holder::worker(&sealed.holder),
        task: TaskId::parse(&sealed.task)?,
        tenant: TenantId(sealed.tenant),
        agent: sealed.agent.parse::<AgentId>().ok()?,
        context: sealed.context,
        generation: sealed.generation,
        turn: sealed.turn,
        attempt: sealed.attempt,
        tries: sealed.tries,
        max_attempts: sealed.max_attempts,
        remembers: true,
        kept: sealed.kept,
        origin: None,
    })
}
