//! The bounds of the edge, each over a real socket: what the caller sees at it, and that the others do not notice.

mod cors;
mod origin;
mod quotas;
mod rates;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod rig;
mod sizes;
