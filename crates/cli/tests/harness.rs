//! What the suites share: a home for the binary, servers as processes of their own, plain HTTP to them, and how to read
//! streams and logs. Nothing of the product's own client is used.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::{Duration, Instant};

pub(crate) mod grpc;
mod home;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod random {
    pub(crate) use testkit::rng::Random;
}
pub(crate) mod remote;
mod server;
pub(crate) mod sse;
pub(crate) mod webhook;

pub(crate) use home::{Home, failed, text, worked};
pub(crate) use server::{Ended, Server};

/// Nothing a test waits for takes longer, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The token of the tenant `default`, where a suite gives its servers one.
pub(crate) const TOKEN: &str = "sb_test-token-of-the-default-tenant-0000000";

/// Does in a test without a runtime what needs one.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
