//! What runs: the built-in demo agents, and programs as agents, each described by one file of a directory.

pub mod command;
mod demo;
pub mod file;
pub mod guard;
mod numbers;
pub mod units;
mod watch;

pub use command::CommandAgent;
pub use demo::demo;
pub use watch::{AgentFiles, FileState, Options};
