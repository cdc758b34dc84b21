//! What only the journal on PostgreSQL promises: several instances on one database, lost connections and lost answers,
//! crashes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crashing;
mod leasing;
mod losing;
mod proxy;
mod racing;
mod removing;
mod rig;
mod tailing;
