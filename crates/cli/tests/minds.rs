//! Agents run by models, over the wire against the built binary: what they are told, what callers see of their thinking, what becomes of it
//! when the server is killed. Their models are files of replies, which write down what they are asked.
//!
//! Rows are those of seeds 000 to 002, `f_7_…` is a check of the older system's conformance (see `docs/compatibility.md`).

mod agents;
mod commands;
mod costs;
mod crashes;
#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
mod rig;
mod rows;
