//! What Arbiter, an older system, promised under `/v1`, and the 0.3 dialect under `/a2a`, each proven over the wire.
//!
//! A seed is a document about an older system, a row one requirement of it (`s2_17_…` is the 17th of seed 002), a ruling a
//! decision where they disagree: see `docs/compatibility.md`.
//!
//! Every test starts its own server in this process, with two tenants and small programs as agents. Seeded, it
//! has the agents that the requirements assume beside the usual ones; [`rig::Fixture::seed`] calls a method under
//! `/v1/a2a`. What was promised about agents that are called is proven in `crates/cli/tests/seeds`.

mod requests;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod rig;
mod seed_000;
mod seed_002;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod streams;
mod v03;

use crate::edge::wire;
