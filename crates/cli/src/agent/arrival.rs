//! Whether the server has taken an agent whose file was just written.

use std::time::Duration;

use client::discover;
use tokio::time::Instant;

use super::Common;
use crate::{failure::Failure, output, send::Place};

/// The server looks at its files twice a second.
const PATIENCE: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(100);

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The server has it.
    Served,
    /// A server runs, and does not show it to this caller.
    Unseen,
    /// No server runs here.
    NoServer,
}

/// Waits until the server offers the agent, as long as that may take.
pub(super) async fn wait(common: &Common, id: &str) -> Result<Arrival, Failure> {
    let Some(target) = common.target.target_if_any(None, Some(id))? else { return Ok(Arrival::NoServer) };
    let connector = common.target.connector();
    let begun = Instant::now();
    // The file may have been there before, and a card of it; whoever calls it is to meet the new one.
    tokio::time::sleep(Duration::from_millis(600)).await;
    loop {
        match discover(&connector, &target.url, target.credential.as_ref()).await {
            Ok(_) => return Ok(Arrival::Served),
            // It has ended meanwhile.
            Err(_) if common.target.target_if_any(None, Some(id))?.is_none() => return Ok(Arrival::NoServer),
            Err(_) if begun.elapsed() > PATIENCE => return Ok(Arrival::Unseen),
            Err(_) => tokio::time::sleep(PERIOD).await,
        }
    }
}

impl Arrival {
    pub(super) fn is_served(self) -> bool {
        self == Self::Served
    }

    /// Says it, and what to do next.
    pub(super) fn say(self, common: &Common, id: &str) {
        match self {
            Self::Served => {
                let call = Place::of(None, &common.target).command(&["send", "--agent", id, "hello"]);
                output::line(&format!("the server has it; call it: {call}"));
            }
            Self::Unseen => output::error_line(
                "note",
                "the server does not show it to this token yet; `sb agent list` and the server's log say more",
            ),
            Self::NoServer => {
                output::error_line("note", "no server is running here; `sb serve` starts one, which then has it");
            }
        }
    }
}
