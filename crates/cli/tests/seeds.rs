//! What Arbiter and Workstacean, older systems, promised about the agents that they called, each proven over the wire against the
//! built binary. What Arbiter promised about being called is proven in `crates/server/tests/seeds`.
//!
//! A seed is a document about an older system, a row one requirement of it (`s1_17_…` is the 17th of seed 001), a ruling a
//! decision where they disagree: see `docs/compatibility.md`. Every server here calls a remote that writes everything down.

mod seed_001;
mod seed_004;
