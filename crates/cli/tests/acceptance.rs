//! What A2A 1.0 under `/a2a` promises across crashes, restarts and several processes, and what is not an operation of the protocol,
//! each proven over the wire against the built binary. The operations are proven in `crates/server/tests/protocol`.
//!
//! Every test starts its own server on a fresh data directory and speaks plain HTTP to it; nothing of
//! the product's own client is used. A test is named after the rows it proves: `s3_77_…` is requirement 77 of seed 003,
//! an older system's document, and X-19 in a comment is a ruling. `docs/compatibility.md` explains both; other words are
//! at the end of `ARCHITECTURE.md`.

mod durability;
mod held;
mod queue;
mod remotes;
mod resume;
mod rig;
mod serving;
mod streams;
mod tls;
mod webhooks;

use crate::harness::{http, sse, webhook};
