//! What a program says, as a worker tells it to the server: events for the way, and one call for the end.
//!
//! Pieces of text wait a little for company, as they do in the server. What has waited when the program ends is told together
//! with its end, so that a short answer is one call.

use std::time::Duration;

use a2a::{
    JsonObject, Message, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use exchange::{Outcome, Said};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::queue::{Error, Held, Reported};

/// How long pieces of an artifact wait for company.
const COALESCE: Duration = Duration::from_millis(50);
/// So much is told at once. A program's longest line is 1 MiB, and a server's bodies have 10 MiB unless it is told otherwise.
const BATCH_BYTES: usize = 256 << 10;

/// Tells the server what one program says.
pub(super) struct Reporter<'a> {
    held: &'a Held<'a>,
    events: Vec<Box<RawValue>>,
    bytes: usize,
    /// Whether what is there may not wait.
    urgent: bool,
    /// Who waits until it is durable.
    flushed: Vec<oneshot::Sender<()>>,
    /// How many calls were made.
    sequence: u64,
}

/// The call that ends a turn.
#[derive(Debug)]
pub(super) enum Ending {
    /// An event, and whether it has to be said that this is the end.
    Event(Box<RawValue>, bool),
    /// Another attempt.
    Retry(String),
    /// Back into the queue, uncounted.
    Release,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(held: &'a Held<'a>) -> Self {
        Self { held, events: Vec::new(), bytes: 0, urgent: false, flushed: Vec::new(), sequence: 0 }
    }

    /// Tells what is said until nobody speaks any more. What comes last may be left for the end.
    pub(super) async fn listen(&mut self, mut said: mpsc::Receiver<Said>) -> Result<(), Error> {
        while let Some(first) = said.recv().await {
            self.take(first);
            let due = Instant::now() + COALESCE;
            while !self.urgent {
                match timeout_at(due, said.recv()).await {
                    Ok(Some(more)) => self.take(more),
                    Ok(None) => return Ok(()),
                    Err(_) => break,
                }
            }
            while self.bytes < BATCH_BYTES
                && let Ok(more) = said.try_recv()
            {
                self.take(more);
            }
            self.tell().await?;
        }
        Ok(())
    }

    /// Tells the end, with what has not been told yet.
    pub(super) async fn end(&mut self, outcome: Outcome) -> Result<Reported, Error> {
        match ending(outcome) {
            // Nothing but that it is done.
            None if self.events.is_empty() => self.held.ack().await,
            None => self.tell_end(status(TaskState::Completed, None), false).await,
            Some(Ending::Event(event, end)) => self.tell_end(event, end).await,
            Some(Ending::Retry(why)) => {
                self.tell().await?;
                self.held.nack(&why).await
            }
            Some(Ending::Release) => self.held.release().await,
        }
    }

    /// What was not told is of no use any more.
    pub(super) fn forget(&mut self) {
        self.events.clear();
        self.bytes = 0;
    }

    fn take(&mut self, said: Said) {
        let (event, urgent) = match said {
            Said::Status { auth_required, message, metadata } => {
                let state = if auth_required { TaskState::AuthRequired } else { TaskState::Working };
                let status = TaskStatus { state, message, ..TaskStatus::default() };
                let update = TaskStatusUpdateEvent { status, metadata, ..TaskStatusUpdateEvent::default() };
                (event(StreamResponse::StatusUpdate(update)), true)
            }
            Said::Artifact { artifact, append, last_chunk, metadata } => {
                let update = TaskArtifactUpdateEvent {
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                    ..TaskArtifactUpdateEvent::default()
                };
                (event(StreamResponse::ArtifactUpdate(update)), false)
            }
            Said::Keep(state) => {
                // Programs keep JSON, and nothing else is read from them.
                let Ok(state) = std::str::from_utf8(&state) else { return };
                (raw(format!(r#"{{"keep":{state}}}"#)), true)
            }
            Said::Flush(waiting) => {
                self.flushed.push(waiting);
                self.urgent = true;
                return;
            }
            // Programs have no words for it, and the queue has none either.
            Said::Note(_) | Said::Owes(_) => return,
        };
        self.bytes += event.get().len();
        self.urgent |= urgent || self.bytes >= BATCH_BYTES;
        self.events.push(event);
    }

    async fn tell(&mut self) -> Result<(), Error> {
        self.urgent = false;
        if !self.events.is_empty() {
            self.sequence += 1;
            self.held.progress(self.sequence, &self.events, false).await?;
            self.forget();
        }
        for waiting in self.flushed.drain(..) {
            // Whoever asked may have been dropped.
            let _ = waiting.send(());
        }
        Ok(())
    }

    async fn tell_end(&mut self, event: Box<RawValue>, end: bool) -> Result<Reported, Error> {
        self.sequence += 1;
        self.events.push(event);
        let reported = self.held.progress(self.sequence, &self.events, end).await;
        self.forget();
        reported
    }
}

/// How an outcome is told; nothing where it only says that it is done.
fn ending(outcome: Outcome) -> Option<Ending> {
    let said = |state, parts| Some(Ending::Event(status(state, message(parts)), false));
    match outcome {
        Outcome::Completed(parts) if parts.is_empty() => None,
        Outcome::Completed(parts) => said(TaskState::Completed, parts),
        Outcome::Message(message) => Some(Ending::Event(status(TaskState::Completed, Some(message)), false)),
        Outcome::InputRequired(parts) => said(TaskState::InputRequired, parts),
        Outcome::RemoteFailed(why) | Outcome::Unset(why) => said(TaskState::Failed, vec![Part::text(why)]),
        // It would leave the turn going.
        Outcome::AuthRequired(parts) => Some(Ending::Event(status(TaskState::AuthRequired, message(parts)), true)),
        Outcome::Rejected(parts) => said(TaskState::Rejected, parts),
        Outcome::Failed(parts) => said(TaskState::Failed, parts),
        Outcome::Canceled => said(TaskState::Canceled, Vec::new()),
        Outcome::Broken(why) => {
            let metadata = JsonObject::from_value(&serde_json::json!({ "reason": "INVALID_AGENT_RESPONSE" }));
            let message = message(vec![Part::text(why)]).map(|message| Message { metadata, ..message });
            Some(Ending::Event(status(TaskState::Failed, message), false))
        }
        Outcome::Retry(why) | Outcome::Crashed(why) => Some(Ending::Retry(why)),
        // Programs do not park; what was cut off without a fault of its own costs no attempt.
        Outcome::Parked { .. } | Outcome::Interrupted | Outcome::Displaced(_) => Some(Ending::Release),
    }
}

fn message(parts: Vec<Part>) -> Option<Message> {
    (!parts.is_empty()).then(|| Message { parts, ..Message::default() })
}

fn status(state: TaskState, message: Option<Message>) -> Box<RawValue> {
    let status = TaskStatus { state, message, ..TaskStatus::default() };
    event(StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }))
}

fn event(event: StreamResponse) -> Box<RawValue> {
    // Plain data always serialises.
    raw(serde_json::to_string(&event).unwrap_or_default())
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use a2a::Limits;
    use exchange::words::{self, Word};

    use super::*;

    #[test]
    fn every_end_arrives_as_what_it_was() {
        let parts = || vec![Part::text("so")];
        for outcome in [
            Outcome::Completed(parts()),
            Outcome::InputRequired(parts()),
            Outcome::Rejected(parts()),
            Outcome::Failed(parts()),
            Outcome::Failed(Vec::new()),
            Outcome::Canceled,
        ] {
            let Some(Ending::Event(event, false)) = ending(outcome.clone()) else { panic!("{outcome:?} is an event") };
            let word = words::read(event.get().as_bytes(), &Limits::default());
            assert!(matches!(&word, Ok(Word::End { outcome: read, .. }) if *read == outcome), "{word:?}");
        }
        let Some(Ending::Event(event, true)) = ending(Outcome::AuthRequired(parts())) else {
            panic!("it has to be said that this is the end");
        };
        let word = words::read(event.get().as_bytes(), &Limits::default());
        assert!(matches!(word, Ok(Word::Said(Said::Status { auth_required: true, .. }))), "{word:?}");
        for (outcome, read) in [
            (Outcome::Broken("so".to_owned()), Outcome::Failed(parts())),
            (Outcome::Message(Message { parts: parts(), ..Message::default() }), Outcome::Completed(parts())),
        ] {
            let Some(Ending::Event(event, false)) = ending(outcome) else { panic!("{read:?} is an event") };
            let word = words::read(event.get().as_bytes(), &Limits::default());
            assert!(matches!(&word, Ok(Word::End { outcome, .. }) if *outcome == read), "{word:?}");
        }
    }

    #[test]
    fn some_ends_are_calls_of_their_own() {
        assert!(ending(Outcome::Completed(Vec::new())).is_none());
        assert!(
            matches!(ending(Outcome::Retry("no memory".to_owned())), Some(Ending::Retry(why)) if why == "no memory")
        );
        assert!(matches!(ending(Outcome::Parked { at_most: None }), Some(Ending::Release)));
    }
}
