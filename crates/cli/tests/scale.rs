//! Installations while one of their instances, the database, the wake-ups, the disk or a clock fails, or when they are told
//! to stop. The runs of [`crate::chaos`] and suites with a course of their own.
//!
//! `SB_LONG=1` runs the long forms; `SB_SEED` repeats a run. Databases are on the server that `SB_TEST_POSTGRES` names; a
//! suite that kills PostgreSQL or fills its disk starts a server of its own. What was found is in `docs/faults.md`.

mod chain;
mod clocks;
mod crossing;
mod database;
mod disk;
mod latency;
mod locked;
mod outage;
mod paused;
mod remade;
mod stopping;
mod tasks;
mod webhooks;
mod workers;

use crate::harness::{http, random, sse};

fn is_long() -> bool {
    std::env::var_os("SB_LONG").is_some()
}
