//! What the gRPC surfaces promise beside their operations, proven against the built binary. The operations are proven in
//! `crates/server/tests/protocol`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod health;
mod hostile;
mod process;
mod rig;
mod said_beside;
mod verbs;

use crate::harness::{self, grpc, http};
