//! What runs: the built-in demo agents, and agents that are described by one file each of a directory.

mod breaker;
pub mod command;
mod demo;
pub mod environment;
pub mod file;
mod frame;
pub mod guard;
pub mod kind;
#[cfg(target_os = "linux")]
pub mod launch;
pub mod mind;
pub mod model;
mod numbers;
pub mod queue;
mod random;
pub mod remote;
pub mod settled;
pub mod units;
mod watch;

pub use demo::demo;
pub use file::{AgentFile, FileState, Reader};
pub use kind::KINDS;
pub use watch::{AgentFiles, Options};
