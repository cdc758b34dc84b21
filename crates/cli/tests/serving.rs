//! A server as its operator meets it: several on one data directory, what it says when it starts and when it cannot, its log, and what a
//! browser finds.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod answers;
mod logs;
mod page;
mod several;
mod starting;
