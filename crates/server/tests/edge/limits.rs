//! The bounds of the edge: what the caller sees at each of them, and that the others do not notice.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod cors;
mod in_flight;
mod origin;
mod quotas;
mod rates;
mod replies;
mod sizes;
