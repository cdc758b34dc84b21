//! The client against a scripted server: agents of both protocol generations.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod calls;
mod old_agents;
mod remotes;
mod script;
mod sloppy;
