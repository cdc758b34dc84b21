//! The bounds of the edge, each over a real socket: what the caller sees at it, and that the others do not notice.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cors;
mod origin;
mod quotas;
mod rates;
mod rig;
mod sizes;
