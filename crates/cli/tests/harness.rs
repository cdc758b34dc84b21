//! What the suites share: a home for the binary, servers as processes of their own, plain HTTP to them, and how to read
//! streams and logs. Nothing of the product's own client is used.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::{Duration, Instant};

mod home;
pub(crate) mod log;
pub(crate) mod remote;
mod server;

pub(crate) use home::{Home, failed, text, worked};
pub(crate) use server::{Ended, Server};
pub(crate) use testkit::{PATIENCE, TOKEN, grpc, http, rng as random, sse, webhook};

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
