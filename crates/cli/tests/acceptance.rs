//! What A2A 1.0 under `/a2a` promises, and that it survives, each proven over the wire against the built binary.
//!
//! Every test starts its own server on a fresh data directory and speaks plain HTTP to it; nothing of
//! the product's own client is used. A test is named after the rows it proves: `s3_77_…` is requirement 77 of seed 003,
//! an older system's document, and X-19 in a comment is a ruling. `docs/compatibility.md` explains both; other words are
//! at the end of `ARCHITECTURE.md`.

mod auth;
mod cards;
mod durability;
mod errors;
mod feed;
mod held;
mod idempotency;
mod lists;
mod media;
mod push;
mod queue;
mod race;
mod remotes;
mod resume;
mod rig;
mod rpc;
mod sends;
mod serving;
mod signatures;
mod streams;
mod targets;
mod tasks;
mod tenants;
mod tls;
mod turns;
mod versions;
mod webhooks;

use crate::harness::{grpc, http, sse, webhook};
