//! Support for the tests of the other crates: temporary stores, the conformance suite of the store, certificates and
//! random numbers. Crates depend on it for their tests only, so nothing of it is in the binary.

#![expect(clippy::unwrap_used, reason = "a helper fails as a test does, by panicking")]

pub mod certificates;
pub mod conformance;
pub mod postgres;
pub mod rng;
pub mod temp_store;
