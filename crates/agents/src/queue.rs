//! Agents whose work is done elsewhere: their tasks wait in the queue, and workers ask for them.

use std::{num::NonZeroUsize, sync::Arc};

use a2a::Part;
use async_trait::async_trait;
use exchange::{Agent, Delivery, Outcome, Output, Turn};
use serde::Deserialize;

use crate::{
    file::{Table, keys_of},
    kind::{Built, Context, Kind},
};

/// Queues, described by the table `[queue]`.
pub const KIND: Kind = Kind { name: "queue", moved: &[], keys: keys_of::<QueueSpec>, prepare: |_| {}, build };

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
    Ok(Built { agent: Arc::new(Elsewhere), delivery, described: None, warnings: Vec::new() })
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::Reader;

    #[test]
    fn a_queue_says_what_it_does_not_do() {
        let read = |text: &str| Reader::default().parse(Path::new("/agents/far.toml"), text);
        let file =
            read("kind = \"queue\"\ntimeout = \"1s\"\nreply = \"auto\"\n[queue]\nmax_in_progress = 3\n").unwrap();
        assert_eq!(file.entry.profile.delivery, Delivery::Queue { most_held: Some(3) });
        assert_eq!(file.warnings.len(), 2, "{:?}", file.warnings);
        assert!(read("kind = \"queue\"").unwrap().warnings.is_empty());
        for (wrong, why) in [
            ("kind = \"queue\"\non_crash = \"resume\"", "resume"),
            ("kind = \"queue\"\n[queue]\nmax_in_progres = 3", "max_in_progress"),
            ("kind = \"queue\"\n[queue]\nmax_in_progress = 0", "max_in_progress"),
        ] {
            let refused = read(wrong).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }
}
