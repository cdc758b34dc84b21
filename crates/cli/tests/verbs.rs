//! The verbs of the command line and the admin routes, against the built binary and over the wire: messages of every
//! kind, conversations, agents of both protocol generations, administration, exit codes, the configuration, the doctor. What is
//! run and looked at is in transcripts, the pages beside the modules.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod admin;
mod agents;
mod backup;
mod chatting;
mod checking;
mod durable;
mod old_agent;
mod origins;
mod programs;
mod pushing;
mod registry;
mod retaining;
mod rig;
mod sending;
mod signing;
mod talking;
mod tasks;
mod templates;
pub(crate) mod terminal;
mod thinking;
mod tmux;
mod transcripts;
mod transfer;
mod working;
