//! Hostile requests against the built binary: each gets the right error in the right shape and changes nothing.
//!
//! The requests are data, in `corpus/*.json`; [`corpus`] says how a case is written. What belongs to another tenant is a
//! matrix of its own, generated from every operation and every kind of id. Requests are bytes on a socket here: no
//! client library stands between a test and what it wants to say. [`remote`] is about the other side: agents that we call and
//! that mean no good.

mod corpus;
mod expect;
mod matrix;
mod remote;
mod requests;
mod rig;
mod wire;
