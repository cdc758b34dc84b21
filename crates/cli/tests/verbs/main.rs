//! The verbs of the command line and the admin routes, against the built binary and over the wire.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod admin;
mod agents;
mod rig;
mod tasks;
mod tenants;
mod tokens;
