//! What events add up to: the task that a follower has seen, without reading it back, and the artifacts of a log.
//!
//! A blocking send has seen its task from the first event on, so it already holds everything that the answer says. The
//! fold takes the ordinary course of a turn; whatever else happens (another caller's message, another attempt) makes it
//! give up, and the task is read from the store as for everybody else.

use std::borrow::Cow;

use a2a::TaskState;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::{Event, EventKind, Snapshot, Start, Tokens};

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
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate<'a> {
    #[serde(borrow)]
    artifact: &'a RawValue,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    last_chunk: bool,
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
            EventKind::Note => self.sum.tokens = self.sum.tokens.plus(used(event)),
            EventKind::Revealed | EventKind::Kept | EventKind::Other(_) => {}
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
        let message = status_message(event).ok()?;
        // The message of a status goes into the history when the next status comes.
        self.sum.history.extend(self.sum.status_message.take());
        self.sum.status_message = message;
        self.sum.state = state;
        self.sum.status_at = event.at;
        Some(())
    }

    fn artifact(&mut self, event: &Event) -> Option<()> {
        let Piece { id, append, chunk, .. } = Piece::of(event).ok()?;
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
                let Piece { id, append, chunk, .. } = Piece::of(event)?;
                if !append {
                    self.chunks.retain(|(of, ..)| *of != id);
                }
                self.chunks.push((id, event.seq, chunk));
            }
            _ => {}
        }
        Ok(())
    }

    /// The chunks of one.
    pub(crate) fn artifact(&self, id: &str) -> Vec<Bytes> {
        self.chunks.iter().filter(|(of, ..)| of == id).map(|(.., chunk)| chunk.clone()).collect()
    }

    /// The ids of those that the current turn has made or added to, in the order in which they appeared.
    pub(crate) fn of_turn(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for (id, ..) in self.chunks.iter().filter(|(_, seq, _)| *seq > self.begun) {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    }

    /// The chunks of each, in the order in which they appeared.
    pub(crate) fn artifacts(&self) -> Vec<Vec<Bytes>> {
        let mut artifacts: Vec<(String, Vec<Bytes>)> = Vec::new();
        for (id, _, chunk) in &self.chunks {
            match artifacts.iter_mut().find(|(known, _)| known == id) {
                Some((_, chunks)) => chunks.push(chunk.clone()),
                None => artifacts.push((id.clone(), vec![chunk.clone()])),
            }
        }
        artifacts.into_iter().map(|(_, chunks)| chunks).collect()
    }
}

/// What an artifact's event says.
pub(crate) struct Piece {
    pub(crate) id: String,
    pub(crate) append: bool,
    /// Nothing follows it.
    pub(crate) last: bool,
    pub(crate) chunk: Bytes,
}

impl Piece {
    pub(crate) fn of(event: &Event) -> store::Result<Self> {
        let frame: ArtifactFrame<'_> = serde_json::from_slice(&event.body)?;
        let ArtifactUpdate { artifact, append, last_chunk } = frame.artifact_update;
        let ArtifactName { artifact_id } = serde_json::from_str(artifact.get())?;
        Ok(Self { id: artifact_id, append, last: last_chunk, chunk: slice(&event.body, artifact) })
    }
}

/// The message of a status, as JSON.
pub(crate) fn status_message(event: &Event) -> store::Result<Option<Bytes>> {
    let frame: StatusFrame<'_> = serde_json::from_slice(&event.body)?;
    Ok(frame.status_update.status.message.map(|raw| slice(&event.body, raw)))
}

/// What a note says that was used of models; nothing where it tells of something else.
fn used(event: &Event) -> Tokens {
    #[derive(Deserialize)]
    struct Usage<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        #[serde(default)]
        input_tokens: u64,
        #[serde(default)]
        output_tokens: u64,
    }
    match serde_json::from_slice::<Usage<'_>>(&event.body) {
        Ok(usage) if usage.kind == "usage" => Tokens { input: usage.input_tokens, output: usage.output_tokens },
        _ => Tokens::default(),
    }
}

/// A part of an event's bytes, shared with it.
fn slice(body: &Bytes, raw: &RawValue) -> Bytes {
    body.slice_ref(raw.get().as_bytes())
}
