//! Rows of the seeds and of the 0.3 dialect, each proven over the wire against the built binary.
//!
//! Every test starts its own server on a fresh data directory, with two tenants and small programs as agents.

mod requests;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod rig;
mod seed_000;
mod seed_002;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod streams;
mod v03;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#[path = "../../../server/tests/edge/wire.rs"]
mod wire;
