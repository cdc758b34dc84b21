//! What Arbiter, an older system, promised under `/v1`, the 0.3 dialect under `/a2a`, and what Arbiter and Workstacean, another one,
//! promised about the agents that they called, each proven over the wire against the built binary.
//!
//! A seed is a document about an older system, a row one requirement of it (`s2_17_…` is the 17th of seed 002), a ruling a
//! decision where they disagree: see `docs/compatibility.md`.
//!
//! Every test starts its own server on a fresh data directory, with two tenants and small programs as agents. Seeded, it
//! has the agents that the requirements assume beside the usual ones; [`rig::Fixture::seed`] calls a method under
//! `/v1/a2a`. Those about calling out have servers of their own, which call a remote that writes everything down.

mod requests;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod rig;
mod seed_000;
mod seed_001;
mod seed_002;
mod seed_004;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod streams;
mod v03;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#[path = "../../server/tests/edge/wire.rs"]
mod wire;
