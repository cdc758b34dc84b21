//! The `result` of a 0.3 response to a message or of a stream: one of four bare objects, told apart by `kind`.
//!
//! `kind` may stand anywhere in the object, so that the members of all four are read in one pass and sorted out after. An
//! object without `kind` is taken by the members that only one of the four has.

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::part::Part;
use super::types::{Artifact, Message, Role, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent};
use crate::JsonObject;
use crate::wire::message;

/// One event of a stream, or the answer to a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Task(Task),
    Message(Message),
    StatusUpdate(TaskStatusUpdateEvent),
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Task(task) => task.serialize(serializer),
            Self::Message(message) => message.serialize(serializer),
            Self::StatusUpdate(update) => update.serialize(serializer),
            Self::ArtifactUpdate(update) => update.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let any = AnyEvent::deserialize(deserializer)?;
        match any.kind() {
            Some("task") => Ok(Self::Task(Task {
                id: any.id,
                context_id: any.context_id,
                status: required(any.status, "status")?,
                artifacts: any.artifacts,
                history: any.history,
                metadata: any.metadata,
                ..Task::default()
            })),
            Some("message") => Ok(Self::Message(Message {
                message_id: any.message_id,
                role: any.role,
                parts: any.parts,
                context_id: any.context_id,
                task_id: any.task_id,
                reference_task_ids: any.reference_task_ids,
                extensions: any.extensions,
                metadata: any.metadata,
                ..Message::default()
            })),
            Some("status-update") => Ok(Self::StatusUpdate(TaskStatusUpdateEvent {
                task_id: any.task_id,
                context_id: any.context_id,
                status: required(any.status, "status")?,
                is_final: any.is_final,
                metadata: any.metadata,
                ..TaskStatusUpdateEvent::default()
            })),
            Some("artifact-update") => Ok(Self::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: any.task_id,
                context_id: any.context_id,
                artifact: required(any.artifact, "artifact")?,
                append: any.append,
                last_chunk: any.last_chunk,
                metadata: any.metadata,
                ..TaskArtifactUpdateEvent::default()
            })),
            Some(other) => Err(de::Error::invalid_value(
                de::Unexpected::Str(other),
                &"`task`, `message`, `status-update` or `artifact-update` as the kind of a result",
            )),
            None => Err(de::Error::missing_field("kind")),
        }
    }
}

message! {
    /// The members that the four kinds have between them.
    #[expect(unreachable_pub, reason = "the macro makes public types")]
    pub struct AnyEvent {
        optional kind "kind": String,
        implicit id "id": String,
        implicit task_id "taskId": String,
        implicit context_id "contextId": String,
        optional status "status": TaskStatus,
        implicit is_final "final": bool,
        implicit artifacts "artifacts": Vec<Artifact>,
        implicit history "history": Vec<Message>,
        optional artifact "artifact": Artifact,
        optional append "append": bool,
        optional last_chunk "lastChunk": bool,
        implicit message_id "messageId": String,
        implicit role "role": Role,
        implicit parts "parts": Vec<Part>,
        implicit reference_task_ids "referenceTaskIds": Vec<String>,
        implicit extensions "extensions": Vec<String>,
        optional metadata "metadata": JsonObject,
    }
}

impl AnyEvent {
    fn kind(&self) -> Option<&str> {
        if let Some(kind) = &self.kind {
            return Some(kind);
        }
        if self.artifact.is_some() {
            return Some("artifact-update");
        }
        if self.status.is_some() {
            let is_task = !self.id.is_empty();
            return Some(if is_task { "task" } else { "status-update" });
        }
        (!self.message_id.is_empty()).then_some("message")
    }
}

fn required<T, E: de::Error>(value: Option<T>, name: &'static str) -> Result<T, E> {
    value.ok_or_else(|| E::missing_field(name))
}
