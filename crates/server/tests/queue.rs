//! The queue over HTTP: what is published is a task, workers in any language get it by leases, and what they report is what
//! callers see.
//!
//! Workers here are this test: they hold an entry for as long as a step takes. Those that are programs, and what survives kill -9,
//! are proven against the built binary, in `crates/cli/tests`.

mod agents;
mod hand;
mod input;
mod leases;
mod projection;
mod tenants;
mod verbs;
mod waiting;

use hand::{Hand, Held, is_lost, piece, status};
use http::{reason, state};

use crate::protocol::server::{Setup, TestServer};
use testkit::{PATIENCE, grpc, http, sse};

/// An id that nobody has.
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

impl TestServer {
    /// Whoever has the token of the tenant `default`.
    fn hand(&self) -> Hand {
        Hand { api: self.api() }
    }

    /// All that an entry is made of. Nobody writes to it when that is the same as before.
    fn rows(&self) -> Vec<Vec<Vec<Option<String>>>> {
        let mut tables = self.look(&[
            "SELECT task_id, state, seq, turn, waiting, attempt, generation, owner, due_at, cancel_mark, dead, errors FROM a2a_tasks",
            "SELECT * FROM a2a_events",
            "SELECT * FROM messages",
            "SELECT * FROM a2a_artifacts",
            "SELECT * FROM idempotency",
        ]);
        // The order in which a table is read is its own business.
        tables.iter_mut().for_each(|rows| rows.sort());
        tables
    }
}
