//! What an agent produces: tasks, messages, artifacts and the events of a stream.

use std::fmt::Display;

use crate::wire::{message, oneof};
use crate::{JsonObject, Part, Role, TaskState, Timestamp};

message! {
    /// A unit of work and what came of it.
    pub struct Task {
        always id "id": String,
        implicit context_id "contextId": String,
        mandatory status "status": TaskStatus,
        implicit artifacts "artifacts": Vec<Artifact>,
        implicit history "history": Vec<Message>,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// Where a task stands, since when, and what the agent says about it.
    pub struct TaskStatus {
        always state "state": TaskState,
        optional message "message": Message,
        optional timestamp "timestamp": Timestamp,
    }
}

message! {
    /// One turn of a conversation.
    pub struct Message {
        always message_id "messageId": String,
        implicit context_id "contextId": String,
        implicit task_id "taskId": String,
        always role "role": Role,
        always parts "parts": Vec<Part>,
        optional metadata "metadata": JsonObject,
        implicit extensions "extensions": Vec<String>,
        implicit reference_task_ids "referenceTaskIds": Vec<String>,
    }
}

message! {
    /// A result of a task.
    pub struct Artifact {
        always artifact_id "artifactId": String,
        implicit name "name": String,
        implicit description "description": String,
        always parts "parts": Vec<Part>,
        optional metadata "metadata": JsonObject,
        implicit extensions "extensions": Vec<String>,
    }
}

message! {
    /// A task's status changed.
    pub struct TaskStatusUpdateEvent {
        always task_id "taskId": String,
        always context_id "contextId": String,
        mandatory status "status": TaskStatus,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// A task's artifact was made or has grown.
    pub struct TaskArtifactUpdateEvent {
        always task_id "taskId": String,
        always context_id "contextId": String,
        mandatory artifact "artifact": Artifact,
        /// The parts go after those of the artifact with the same id.
        implicit append "append": bool,
        implicit last_chunk "lastChunk": bool,
        optional metadata "metadata": JsonObject,
    }
}

oneof! {
    /// One event of a stream.
    pub enum StreamResponse {
        Task(Task) = task "task",
        Message(Message) = message "message",
        StatusUpdate(TaskStatusUpdateEvent) = status_update "statusUpdate",
        ArtifactUpdate(TaskArtifactUpdateEvent) = artifact_update "artifactUpdate",
    }
}

impl Message {
    /// The text parts, joined by line breaks.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }
}

/// The id of the message that ends a turn of a task: one a turn, the same at every attempt.
pub fn reply_id(task: impl Display, turn: u32) -> String {
    match turn {
        0 | 1 => format!("{task}-r"),
        turn => format!("{task}-r{turn}"),
    }
}
