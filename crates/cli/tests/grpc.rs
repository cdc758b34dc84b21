//! What the gRPC surfaces promise, proven against the built binary: the protocol's service and the one with Struct.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod equivalence;
mod health;
mod hostile;
mod rows;
mod said_beside;
mod streams;
mod verbs;

use crate::harness::{self, grpc, http};
