//! The task that a follower's events add up to, without reading it back.
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
        let frame: ArtifactFrame<'_> = serde_json::from_slice(&event.body).ok()?;
        let ArtifactUpdate { artifact, append } = frame.artifact_update;
        let name: ArtifactName = serde_json::from_str(artifact.get()).ok()?;
        let chunk = slice(&event.body, artifact);
        let place = self.artifact_ids.iter().position(|id| *id == name.artifact_id);
        match place {
            Some(place) if append => self.sum.artifacts[place].push(chunk),
            place => {
                if let Some(place) = place {
                    self.artifact_ids.remove(place);
                    self.sum.artifacts.remove(place);
                }
                self.artifact_ids.push(name.artifact_id);
                self.sum.artifacts.push(vec![chunk]);
            }
        }
        Some(())
    }
}

/// A part of an event's bytes, shared with it.
fn slice(body: &Bytes, raw: &RawValue) -> Bytes {
    body.slice_ref(raw.get().as_bytes())
}
