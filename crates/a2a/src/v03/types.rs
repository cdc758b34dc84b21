//! What an agent produces, as 0.3 spells it: objects say what they are in `kind`, enums are lowercase words.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::part::Part;
use crate::wire::{message, value};
use crate::{JsonObject, Timestamp};

/// The constant `kind` of an object: always written, and when it is there on reading, it has to be this one.
macro_rules! tag {
    ($( $(#[$meta:meta])* $name:ident $text:literal, )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name;

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Word {
                    expected: concat!("`", $text, "`"),
                    read: |word| (word == $text).then_some(Self),
                })
            }
        }

        value!($name);
    )* };
}

tag! {
    /// `kind: "message"`
    MessageTag "message",
    /// `kind: "task"`
    TaskTag "task",
    /// `kind: "status-update"`
    StatusUpdateTag "status-update",
    /// `kind: "artifact-update"`
    ArtifactUpdateTag "artifact-update",
}

/// Where a task is in its life, in 0.3's words; Unspecified is `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TaskState(pub crate::TaskState);

/// Who wrote a message, in 0.3's words. Unspecified is what a message without a role reads as; it is written as `agent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Role(pub crate::Role);

message! {
    /// One turn of a conversation.
    pub struct Message {
        always kind "kind": MessageTag,
        always message_id "messageId": String,
        always role "role": Role,
        always parts "parts": Vec<Part>,
        implicit context_id "contextId": String,
        implicit task_id "taskId": String,
        implicit reference_task_ids "referenceTaskIds": Vec<String>,
        implicit extensions "extensions": Vec<String>,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// A unit of work and what came of it.
    pub struct Task {
        always kind "kind": TaskTag,
        always id "id": String,
        always context_id "contextId": String,
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
    /// A result of a task.
    pub struct Artifact {
        always artifact_id "artifactId": String,
        implicit name "name": String,
        implicit description "description": String,
        always parts "parts": Vec<Part>,
        implicit extensions "extensions": Vec<String>,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// A task's status changed.
    pub struct TaskStatusUpdateEvent {
        always kind "kind": StatusUpdateTag,
        always task_id "taskId": String,
        always context_id "contextId": String,
        mandatory status "status": TaskStatus,
        /// Nothing follows. We say so at terminal states only; others say it at `input-required` too.
        always is_final "final": bool,
        optional metadata "metadata": JsonObject,
    }
}

message! {
    /// A task's artifact was made or has grown.
    pub struct TaskArtifactUpdateEvent {
        always kind "kind": ArtifactUpdateTag,
        always task_id "taskId": String,
        always context_id "contextId": String,
        mandatory artifact "artifact": Artifact,
        optional append "append": bool,
        optional last_chunk "lastChunk": bool,
        optional metadata "metadata": JsonObject,
    }
}

impl TaskState {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            crate::TaskState::Unspecified => "unknown",
            crate::TaskState::Submitted => "submitted",
            crate::TaskState::Working => "working",
            crate::TaskState::Completed => "completed",
            crate::TaskState::Failed => "failed",
            crate::TaskState::Canceled => "canceled",
            crate::TaskState::InputRequired => "input-required",
            crate::TaskState::Rejected => "rejected",
            crate::TaskState::AuthRequired => "auth-required",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        let mut states = crate::TaskState::ALL.into_iter().map(Self);
        states.find(|state| state.as_str() == name)
    }
}

impl Role {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            crate::Role::User => "user",
            crate::Role::Agent | crate::Role::Unspecified => "agent",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "user" => Some(Self(crate::Role::User)),
            "agent" => Some(Self(crate::Role::Agent)),
            _ => None,
        }
    }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Word { expected: "a task state of A2A 0.3", read: Self::from_name })
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Word { expected: "`user` or `agent`", read: Self::from_name })
    }
}

value!(TaskState);
value!(Role);

/// Reads one of a few words.
struct Word<T> {
    expected: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        (self.read)(word).ok_or_else(|| E::invalid_value(de::Unexpected::Str(word), &self))
    }
}
