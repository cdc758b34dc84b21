//! What events add up to: the task that a follower has seen, without reading it back, and the artifacts of a log.
//!
//! A blocking send has seen its task from the first event on, so it already holds everything that the answer says. The
//! fold takes the ordinary course of a turn; whatever else happens (another caller's message, another attempt) makes it
//! give up, and the task is read from the store as for everybody else.

use a2a::TaskState;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::{Event, EventKind, Snapshot, Start};

/// A task since its birth.
pub(crate) struct Fold {
    sum: Snapshot,
    /// The ids of `sum.artifacts`, in their order.
    artifact_ids: Vec<String>,
    /// How much the events hold that the sum is made of.
    bytes: usize,
}

/// A longer answer is read from the store: who waits must not hold all of it all the time.
const MAX_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusFrame<'a> {
    #[serde(borrow)]
    status_update: StatusUpdate<'a>,
}

#[derive(Deserialize)]
struct StatusUpdate<'a> {
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactFrame<'a> {
    #[serde(borrow)]
    artifact_update: ArtifactUpdate<'a>,
}

#[derive(Deserialize)]
struct ArtifactUpdate<'a> {
    #[serde(borrow)]
    artifact: &'a RawValue,
    #[serde(default)]
    append: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactName {
    artifact_id: String,
}

impl Fold {
    /// Begins with the task as it was accepted.
    pub(crate) fn new(newborn: Snapshot) -> Self {
        Self { sum: newborn, artifact_ids: Vec::new(), bytes: 0 }
    }

    /// Adds the next event; `None` when only the store knows what comes of it.
    pub(crate) fn add(mut self, event: &Event) -> Option<Self> {
        self.bytes += event.body.len().max(512);
        if event.seq != self.sum.seq + 1 || self.bytes > MAX_BYTES {
            return None;
        }
        self.sum.seq = event.seq;
        match event.kind {
            EventKind::Status { state, .. } => self.status(event, state)?,
            EventKind::Started(Start::First) => self.status(event, TaskState::Working)?,
            EventKind::Artifact => self.artifact(event)?,
            EventKind::Revealed | EventKind::Note | EventKind::Kept | EventKind::Other(_) => {}
            // Another attempt takes back what the last one made.
            EventKind::Started(Start::Again | Start::Resumed) => return None,
            EventKind::Created { .. } | EventKind::Input | EventKind::Reply => return None,
        }
        Some(self)
    }

    /// What the events add up to.
    pub(crate) fn finish(self) -> Snapshot {
        self.sum
    }

    fn status(&mut self, event: &Event, state: TaskState) -> Option<()> {
        let frame: StatusFrame<'_> = serde_json::from_slice(&event.body).ok()?;
        let message = frame.status_update.status.message;
        // The message of a status goes into the history when the next status comes.
        self.sum.history.extend(self.sum.status_message.take());
        self.sum.status_message = message.map(|raw| slice(&event.body, raw));
        self.sum.state = state;
        self.sum.status_at = event.at;
        Some(())
    }

    fn artifact(&mut self, event: &Event) -> Option<()> {
        let Piece { id, append, chunk } = Piece::of(event).ok()?;
        let place = self.artifact_ids.iter().position(|known| *known == id);
        match place {
            Some(place) if append => self.sum.artifacts[place].push(chunk),
            place => {
                if let Some(place) = place {
                    self.artifact_ids.remove(place);
                    self.sum.artifacts.remove(place);
                    self.sum.made_in.remove(place);
                }
                self.artifact_ids.push(id);
                self.sum.artifacts.push(vec![chunk]);
                // It is the first: another begins with a message, which is not folded.
                self.sum.made_in.push(1);
            }
        }
        Some(())
    }
}

/// The artifacts of a task, as its log tells of them.
#[derive(Default)]
pub(crate) struct Made {
    /// The ids of chunks, the numbers of their events, and what they are.
    chunks: Vec<(String, u64, Bytes)>,
    /// The events with which the turn began, and with which the state was last kept.
    begun: u64,
    kept: u64,
}

impl Made {
    /// Adds the next event.
    pub(crate) fn add(&mut self, event: &Event) -> store::Result<()> {
        match event.kind {
            EventKind::Started(Start::First) | EventKind::Status { ends_turn: true, .. } => self.begun = event.seq,
            EventKind::Started(Start::Again) => self.chunks.retain(|(_, seq, _)| *seq <= self.begun),
            EventKind::Started(Start::Resumed) => {
                let stays = self.kept.max(self.begun);
                self.chunks.retain(|(_, seq, _)| *seq <= stays);
            }
            EventKind::Kept => self.kept = event.seq,
            EventKind::Artifact => {
                let Piece { id, append, chunk } = Piece::of(event)?;
                if !append {
                    self.chunks.retain(|(of, ..)| *of != id);
                }
                self.chunks.push((id, event.seq, chunk));
            }
            _ => {}
        }
        Ok(())
    }

    /// The chunks of each, in the order in which they appeared.
    pub(crate) fn artifacts(self) -> Vec<Vec<Bytes>> {
        let mut artifacts: Vec<(String, Vec<Bytes>)> = Vec::new();
        for (id, _, chunk) in self.chunks {
            match artifacts.iter_mut().find(|(known, _)| *known == id) {
                Some((_, chunks)) => chunks.push(chunk),
                None => artifacts.push((id, vec![chunk])),
            }
        }
        artifacts.into_iter().map(|(_, chunks)| chunks).collect()
    }
}

/// What an artifact's event says.
struct Piece {
    id: String,
    append: bool,
    chunk: Bytes,
}

impl Piece {
    fn of(event: &Event) -> store::Result<Self> {
        let frame: ArtifactFrame<'_> = serde_json::from_slice(&event.body)?;
        let ArtifactUpdate { artifact, append } = frame.artifact_update;
        let ArtifactName { artifact_id } = serde_json::from_str(artifact.get())?;
        Ok(Self { id: artifact_id, append, chunk: slice(&event.body, artifact) })
    }
}

/// A part of an event's bytes, shared with it.
fn slice(body: &Bytes, raw: &RawValue) -> Bytes {
    body.slice_ref(raw.get().as_bytes())
}
