//! `sb` as a person uses it: messages of every kind, conversations, agents of both protocol generations, exit codes,
//! the configuration and the doctor.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod chatting;
mod checking;
mod old_agent;
mod rig;
mod sending;
