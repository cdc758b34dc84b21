//! The edge over real sockets, on a real journal, with small agents.

mod agents;
mod auth;
mod connections;
mod limits;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod support;
mod surfaces;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
pub(crate) mod wire;
