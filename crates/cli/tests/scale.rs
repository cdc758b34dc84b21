//! Several instances on one journal: what is promised when one of them, the database, the wake-ups, the disk or a clock
//! fail, or when somebody tells them to stop.
//!
//! Everything is done to the built binary, over the wire. A suite with a verdict has negative controls: the same run
//! against servers that break a promise on purpose (`SB_FAULT`, debug builds only) must come to another one. `SB_LONG=1`
//! runs the long forms; `SB_SEED` repeats a run. The instances work on databases of the server that `SB_TEST_POSTGRES`
//! names; whoever kills PostgreSQL or fills its disk starts one of its own. What was found is in `docs/faults.md`.

mod caller;
mod chain;
mod clocks;
mod crossing;
mod database;
mod detour;
mod disk;
mod latency;
mod locked;
mod outage;
mod paused;
mod postgres;
mod programs;
mod rig;
mod stopping;
mod storm;
mod storms;
mod verdict;
mod wakeless;
mod webhooks;
mod workers;

use testkit::nats;

use crate::harness::{http, log, random, sse};
