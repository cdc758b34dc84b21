//! Support for the tests of the other crates: temporary stores and the conformance suite of the store, servers to call and be
//! called by, certificates and random numbers. Crates depend on it for their tests only, so nothing of it is in the binary.

#![expect(clippy::unwrap_used, reason = "a helper fails as a test does, by panicking")]

use std::{net::TcpListener, time::Duration};

pub mod certificates;
pub mod conformance;
pub mod fake_agent;
pub mod grpc;
pub mod http;
pub mod http_server;
pub mod nats;
pub mod postgres;
pub mod raw_http;
pub mod rng;
pub mod sse;
pub mod temp_store;
pub mod webhook;

/// Longer than anything that a test waits for takes, unless something is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The token of the tenant `default` that most suites give their servers.
pub const TOKEN: &str = "sb_test-token-of-the-default-tenant-0000000";

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
