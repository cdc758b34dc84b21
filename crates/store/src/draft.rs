//! Events on their way into the log: encoded by the caller, so that the writer only copies bytes.

use std::{ops::Range, time::Duration};

use a2a::{Artifact, JsonObject, Message, StreamResponse, TaskState, Timestamp};
use bytes::Bytes;
use serde::Serialize;

use crate::{Result, TaskId};

/// An event without a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub(crate) at: Timestamp,
    pub(crate) body: Bytes,
    pub(crate) content: Content,
}

/// What an event changes in the projections.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Status { state: TaskState, message: Option<Bytes> },
    Artifact { artifact_id: String, append: bool, last: bool, artifact: Bytes },
    Note,
    Kept(Owing),
    Reply,
}

/// Whether others are at work for an agent who have to be told when the task has ended in any way; as before where that is not said.
pub(crate) type Owing = Option<bool>;

/// How a turn ends.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEnd {
    /// With this status.
    Status(Draft),
    /// With a direct reply if the task was held for one, else with the status.
    Reply {
        /// Made by [`Draft::reply`].
        reply: Draft,
        /// COMPLETED, with the reply as its message.
        otherwise: Draft,
    },
    /// It failed in a way that is worth another attempt, after a while.
    Retry {
        /// How long to wait.
        after: Duration,
        /// Why it failed.
        error: String,
    },
    /// There is no other attempt.
    GiveUp {
        /// FAILED.
        status: Draft,
        /// Why the last attempt failed.
        error: String,
        /// It failed once too often: the task is a dead letter.
        dead: bool,
    },
    /// It is given back on purpose, which is not counted against the agent's limit.
    Release {
        /// The agent was at work on it: the next attempt is told that it was interrupted.
        begun: bool,
    },
    /// It does not end but rests, and nobody holds it: until [`Journal::wake`](crate::Journal::wake), or for so long. Then it goes on
    /// as the same attempt.
    Park {
        /// How long at most; until it is woken when nothing is said.
        at_most: Option<Duration>,
    },
}

impl Draft {
    /// A status update.
    pub fn status(
        task: TaskId,
        context: &str,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<JsonObject>,
        at: Timestamp,
    ) -> Result<Self> {
        let mut body = Frame::begin("statusUpdate", task, context)?;
        body.text(b"\"status\":{\"state\":\"");
        body.text(state.as_str().as_bytes());
        body.text(b"\"");
        let message = match &message {
            Some(message) => {
                body.text(b",\"message\":");
                Some(body.value(message)?)
            }
            None => None,
        };
        body.text(b",\"timestamp\":");
        body.value(&at)?;
        body.text(b"}");
        let body = body.end(metadata.as_ref())?;
        let message = message.map(|range| body.slice(range));
        Ok(Self { at, body, content: Content::Status { state, message } })
    }

    /// An artifact, or a chunk of one.
    pub fn artifact(
        task: TaskId,
        context: &str,
        artifact: Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<JsonObject>,
        at: Timestamp,
    ) -> Result<Self> {
        let mut body = Frame::begin("artifactUpdate", task, context)?;
        body.text(b"\"artifact\":");
        let range = body.value(&artifact)?;
        if append {
            body.text(b",\"append\":true");
        }
        if last_chunk {
            body.text(b",\"lastChunk\":true");
        }
        let body = body.end(metadata.as_ref())?;
        let (artifact_id, artifact) = (artifact.artifact_id, body.slice(range));
        let content = Content::Artifact { artifact_id, append, last: last_chunk, artifact };
        Ok(Self { at, body, content })
    }

    /// What an agent did on the way, as a JSON object.
    pub fn note(note: Bytes, at: Timestamp) -> Self {
        Self { at, body: note, content: Content::Note }
    }

    /// What the agent needs to go on after all that was said before it.
    pub fn kept(state: Bytes, at: Timestamp) -> Self {
        Self { at, body: state, content: Content::Kept(None) }
    }

    /// The same. With `owes` a cancel is owed to others when the task has ended, even as COMPLETED.
    pub fn kept_owing(state: Bytes, owes: bool, at: Timestamp) -> Self {
        Self { content: Content::Kept(Some(owes)), ..Self::kept(state, at) }
    }

    /// A direct reply.
    pub fn reply(message: Message, at: Timestamp) -> Result<Self> {
        let body = serde_json::to_vec(&StreamResponse::Message(message))?;
        Ok(Self { at, body: body.into(), content: Content::Reply })
    }

    /// The state that a status update brings.
    pub(crate) fn state(&self) -> Option<TaskState> {
        match &self.content {
            Content::Status { state, .. } => Some(*state),
            Content::Artifact { .. } | Content::Note | Content::Kept(_) | Content::Reply => None,
        }
    }

    /// Whether it is what a turn goes on from.
    pub fn is_kept(&self) -> bool {
        matches!(self.content, Content::Kept(_))
    }

    /// Whether callers see it: a task that was held is shown by it.
    pub(crate) fn is_output(&self) -> bool {
        !matches!(self.content, Content::Note | Content::Kept(_))
    }

    /// The same status update with another state. Used when the machine overrules the end of a turn,
    /// which is rare enough to parse the bytes again.
    pub(crate) fn with_state(&self, state: TaskState) -> Result<Self> {
        let StreamResponse::StatusUpdate(update) = serde_json::from_slice(&self.body)? else {
            return Ok(self.clone());
        };
        let task = TaskId::parse(&update.task_id)
            .ok_or_else(|| crate::Error::Damaged("a draft names no task of ours".into()))?;
        Self::status(task, &update.context_id, state, update.status.message, update.metadata, self.at)
    }
}

/// The bytes of an event while they are written: what the projections keep of it is a part of them, so nothing is
/// serialised twice.
struct Frame(Vec<u8>);

impl Frame {
    /// Up to the member that the kind of event is about.
    fn begin(name: &str, task: TaskId, context: &str) -> Result<Self> {
        let mut frame = Self(Vec::with_capacity(512));
        frame.text(b"{\"");
        frame.text(name.as_bytes());
        frame.text(b"\":{\"taskId\":\"");
        frame.text(task.hyphenated(&mut [0; TaskId::LENGTH]).as_bytes());
        frame.text(b"\",\"contextId\":");
        frame.value(context)?;
        frame.text(b",");
        Ok(frame)
    }

    fn text(&mut self, json: &[u8]) {
        self.0.extend_from_slice(json);
    }

    /// Writes a value; says where it stands.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<Range<usize>> {
        let start = self.0.len();
        serde_json::to_writer(&mut self.0, value)?;
        Ok(start..self.0.len())
    }

    fn end(mut self, metadata: Option<&JsonObject>) -> Result<Bytes> {
        if let Some(metadata) = metadata {
            self.text(b",\"metadata\":");
            self.value(metadata)?;
        }
        self.text(b"}}");
        Ok(self.0.into())
    }
}

#[cfg(test)]
mod tests {
    use a2a::{Part, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent};

    use super::*;

    fn metadata(given: bool) -> Option<JsonObject> {
        given.then(|| JsonObject::from_text(r#"{"a":1e3}"#).unwrap())
    }

    #[test]
    fn a_status_is_the_protocols_own_json() {
        let (task, at, context) = (TaskId::mint(), crate::clock::now(), "a \"context\"");
        for (said, with) in [(None, false), (Some("x\ny"), false), (None, true), (Some(""), true)] {
            let message = said.map(|text| Message { parts: vec![Part::text(text)], ..Message::default() });
            let draft = Draft::status(task, context, TaskState::Failed, message.clone(), metadata(with), at).unwrap();
            let kept = message.as_ref().map(|message| Bytes::from(serde_json::to_vec(message).unwrap()));
            let typed = StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id: task.to_string(),
                context_id: context.to_owned(),
                status: TaskStatus { state: TaskState::Failed, message, timestamp: Some(at) },
                metadata: metadata(with),
            });
            assert_eq!(draft.body, serde_json::to_vec(&typed).unwrap());
            assert_eq!(draft.content, Content::Status { state: TaskState::Failed, message: kept });
        }
    }

    #[test]
    fn an_artifact_is_the_protocols_own_json() {
        let (task, at) = (TaskId::mint(), crate::clock::now());
        for (append, last_chunk, with) in
            [(false, false, false), (true, false, true), (false, true, true), (true, true, false)]
        {
            let artifact = Artifact { artifact_id: "a".into(), parts: vec![Part::text("text")], ..Artifact::default() };
            let draft = Draft::artifact(task, "c", artifact.clone(), append, last_chunk, metadata(with), at).unwrap();
            let kept = Bytes::from(serde_json::to_vec(&artifact).unwrap());
            let typed = StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: task.to_string(),
                context_id: "c".to_owned(),
                artifact,
                append,
                last_chunk,
                metadata: metadata(with),
            });
            assert_eq!(draft.body, serde_json::to_vec(&typed).unwrap());
            assert_eq!(
                draft.content,
                Content::Artifact { artifact_id: "a".into(), append, last: last_chunk, artifact: kept }
            );
        }
    }
}
