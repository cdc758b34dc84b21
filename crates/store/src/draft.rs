//! Events on their way into the log: encoded by the caller, so that the writer only copies bytes.

use a2a::{
    Artifact, JsonObject, Message, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use bytes::Bytes;

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
    Artifact { artifact_id: String, append: bool, artifact: Bytes },
    Reply,
}

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
    /// It failed in a way that is worth another attempt, not before `due`.
    Retry {
        /// When.
        due: Timestamp,
    },
    /// It was interrupted by this instance's own will; the attempt does not count.
    Release,
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
        let message_bytes = match &message {
            Some(message) => Some(Bytes::from(serde_json::to_vec(message)?)),
            None => None,
        };
        let update = TaskStatusUpdateEvent {
            task_id: task.to_string(),
            context_id: context.to_owned(),
            status: TaskStatus { state, message, timestamp: Some(at) },
            metadata,
        };
        let body = serde_json::to_vec(&StreamResponse::StatusUpdate(update))?;
        Ok(Self { at, body: body.into(), content: Content::Status { state, message: message_bytes } })
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
        let artifact_bytes = Bytes::from(serde_json::to_vec(&artifact)?);
        let artifact_id = artifact.artifact_id.clone();
        let update = TaskArtifactUpdateEvent {
            task_id: task.to_string(),
            context_id: context.to_owned(),
            artifact,
            append,
            last_chunk,
            metadata,
        };
        let body = serde_json::to_vec(&StreamResponse::ArtifactUpdate(update))?;
        Ok(Self { at, body: body.into(), content: Content::Artifact { artifact_id, append, artifact: artifact_bytes } })
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
            Content::Artifact { .. } | Content::Reply => None,
        }
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
