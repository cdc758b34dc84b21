//! What A2A 1.0 under `/a2a` and its older dialect promise: scenarios, each played over every binding that it holds for.
//!
//! A scenario is a list of steps: an operation, its request, and what its answer has to be ([`scenario`]). It is played against a
//! server in this process, over JSON-RPC, HTTP+JSON, gRPC, the service with Struct, and 0.3, each with a tenant of its own
//! ([`player`]). What holds for every answer of a binding, such as its media type and the code of an error, is checked there,
//! and so is that all bindings of 1.0 show the same. What is about the form of HTTP requests is a table of requests and their
//! refusals ([`raw`]). `shapes` has what does not depend on the store.
//!
//! A test is named after the rows it proves: `s3_77_…` is requirement 77 of seed 003, an older system's document, and X-19 is
//! a ruling. `docs/compatibility.md` explains both. What is about a process, such as signals and kill -9, is proven against the
//! built binary in `crates/cli/tests`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod feed;
mod idempotency;
mod lists;
mod player;
mod push;
mod race;
mod raw;
mod scenario;
mod sends;
pub(crate) mod server;
mod shapes;
mod streams;
mod tasks;
mod tenants;
mod turns;
mod v03;

use testkit::{PATIENCE, TOKEN, grpc, http, sse};
