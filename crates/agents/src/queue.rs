//! Agents whose work is done elsewhere: their tasks wait in the queue, and workers ask for them.

use std::{num::NonZeroUsize, sync::Arc};

use a2a::Part;
use async_trait::async_trait;
use exchange::{Agent, Delivery, Outcome, Output, Turn};
use serde::Deserialize;

use crate::{
    file::Table,
    kind::{Built, Context, Kind},
};

/// Queues, described by the table `[queue]`.
pub const KIND: Kind = Kind { name: "queue", moved: &[], build };

/// The table `[queue]` of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueSpec {
    /// How many entries workers may hold at once, all together.
    max_in_progress: Option<NonZeroUsize>,
}

/// What stands in the place of a program. No instance runs it.
struct Elsewhere;

fn build(table: Table<'_>, _context: &Context) -> Result<Built, String> {
    let spec: QueueSpec = table.read()?;
    let delivery = Delivery::Queue { most_held: spec.max_in_progress.map(NonZeroUsize::get) };
    Ok(Built { agent: Arc::new(Elsewhere), delivery, warnings: Vec::new() })
}

#[async_trait]
impl Agent for Elsewhere {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        Outcome::Failed(vec![Part::text(format!(
            "the work of `{}` is done by workers: sb a2a work {}",
            turn.agent, turn.agent
        ))])
    }
}
