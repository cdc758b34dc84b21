//! Parts, messages, artifacts, tasks and events between 1.0 and 0.3. Every one converts both ways, and what goes down
//! and up again is what it was.

use serde_json::Value;

use super::carry::{self, Members};
use super::{
    Artifact, Event, File, FileContent, Message, Part, PartContent, Role, Task, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use crate::error::{Error, ErrorKind};
use crate::{Json, SendMessageResponse, StreamResponse};

impl From<crate::Part> for Part {
    fn from(part: crate::Part) -> Self {
        let crate::Part { content, metadata, filename, media_type } = part;
        let file = |content| File { content, name: filename.clone(), mime_type: media_type.clone() };
        let mut wrapped = false;
        let content = match content {
            crate::PartContent::Raw(bytes) => PartContent::File(file(FileContent::Bytes(bytes))),
            crate::PartContent::Url(url) => PartContent::File(file(FileContent::Uri(url))),
            crate::PartContent::Text(text) => PartContent::Text(text),
            crate::PartContent::Data(data) if data.get().starts_with('{') => PartContent::Data(data),
            crate::PartContent::Data(data) => {
                wrapped = true;
                PartContent::Data(wrap(data))
            }
        };
        let is_file = matches!(content, PartContent::File(_));
        let is_unnamed = filename.is_empty() && media_type.is_empty();
        if !wrapped && (is_file || is_unnamed) {
            return Self { content, metadata };
        }
        let mut members = Members::of(metadata.as_ref());
        if wrapped {
            members.put(carry::DATA_PART_COMPAT, &Value::Bool(true));
        }
        if !filename.is_empty() {
            members.put(carry::FILENAME, &Value::String(filename));
        }
        if !media_type.is_empty() {
            members.put(carry::MEDIA_TYPE, &Value::String(media_type));
        }
        Self { content, metadata: members.into_object() }
    }
}

impl From<Part> for crate::Part {
    fn from(part: Part) -> Self {
        let Part { content, metadata } = part;
        let mut up = match content {
            PartContent::File(File { content, name, mime_type }) => {
                let content = match content {
                    FileContent::Bytes(bytes) => crate::PartContent::Raw(bytes),
                    FileContent::Uri(uri) => crate::PartContent::Url(uri),
                };
                return Self { content, metadata, filename: name, media_type: mime_type };
            }
            PartContent::Text(text) => Self::text(text),
            PartContent::Data(data) => Self::data(data),
        };
        let ours = [carry::DATA_PART_COMPAT, carry::FILENAME, carry::MEDIA_TYPE];
        if !carry::mentions(metadata.as_ref(), &ours) {
            up.metadata = metadata;
            return up;
        }
        let mut members = Members::of(metadata.as_ref());
        if let crate::PartContent::Data(data) = &mut up.content
            && let Some(value) = unwrap(data)
            && members.take_flag(carry::DATA_PART_COMPAT)
        {
            *data = value;
        }
        up.filename = members.take_string(carry::FILENAME).unwrap_or_default();
        up.media_type = members.take_string(carry::MEDIA_TYPE).unwrap_or_default();
        up.metadata = members.into_object();
        up
    }
}

fn wrap(data: Json) -> Json {
    // One member of valid JSON is an object.
    carry::object_of("value", data).map_or_else(|| Json::from_value(&Value::Null), Json::from)
}

/// What stands in `{"value": …}`; nothing for data of any other form.
fn unwrap(data: &Json) -> Option<Json> {
    let members: Members = data.parse().ok()?;
    members.only("value")
}

impl From<crate::Message> for Message {
    fn from(message: crate::Message) -> Self {
        let mut metadata = message.metadata;
        if message.role == crate::Role::Unspecified {
            let mut members = Members::of(metadata.as_ref());
            members.put(carry::ROLE, &Value::from(message.role.as_str()));
            metadata = members.into_object();
        }
        Self {
            message_id: message.message_id,
            role: Role(message.role),
            parts: all(message.parts),
            context_id: message.context_id,
            task_id: message.task_id,
            reference_task_ids: message.reference_task_ids,
            extensions: message.extensions,
            metadata,
            ..Self::default()
        }
    }
}

impl From<Message> for crate::Message {
    fn from(message: Message) -> Self {
        let mut metadata = message.metadata;
        let mut role = message.role.0;
        if carry::mentions(metadata.as_ref(), &[carry::ROLE]) {
            let mut members = Members::of(metadata.as_ref());
            let carried = members.take_string(carry::ROLE);
            if let Some(carried) = carried.and_then(|name| crate::Role::from_name(&name)) {
                role = carried;
                metadata = members.into_object();
            }
        }
        Self {
            message_id: message.message_id,
            context_id: message.context_id,
            task_id: message.task_id,
            role,
            parts: all(message.parts),
            metadata,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

impl From<crate::Artifact> for Artifact {
    fn from(artifact: crate::Artifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id,
            name: artifact.name,
            description: artifact.description,
            parts: all(artifact.parts),
            extensions: artifact.extensions,
            metadata: artifact.metadata,
        }
    }
}

impl From<Artifact> for crate::Artifact {
    fn from(artifact: Artifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id,
            name: artifact.name,
            description: artifact.description,
            parts: all(artifact.parts),
            metadata: artifact.metadata,
            extensions: artifact.extensions,
        }
    }
}

impl From<crate::TaskStatus> for TaskStatus {
    fn from(status: crate::TaskStatus) -> Self {
        Self { state: TaskState(status.state), message: status.message.map(Message::from), timestamp: status.timestamp }
    }
}

impl From<TaskStatus> for crate::TaskStatus {
    fn from(status: TaskStatus) -> Self {
        Self { state: status.state.0, message: status.message.map(crate::Message::from), timestamp: status.timestamp }
    }
}

impl From<crate::Task> for Task {
    fn from(task: crate::Task) -> Self {
        Self {
            id: task.id,
            context_id: task.context_id,
            status: task.status.into(),
            artifacts: all(task.artifacts),
            history: all(task.history),
            metadata: task.metadata,
            ..Self::default()
        }
    }
}

impl From<Task> for crate::Task {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            context_id: task.context_id,
            status: task.status.into(),
            artifacts: all(task.artifacts),
            history: all(task.history),
            metadata: task.metadata,
        }
    }
}

impl From<crate::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn from(event: crate::TaskStatusUpdateEvent) -> Self {
        Self {
            task_id: event.task_id,
            context_id: event.context_id,
            is_final: event.status.state.is_terminal(),
            status: event.status.into(),
            metadata: event.metadata,
            ..Self::default()
        }
    }
}

impl From<TaskStatusUpdateEvent> for crate::TaskStatusUpdateEvent {
    fn from(event: TaskStatusUpdateEvent) -> Self {
        Self {
            task_id: event.task_id,
            context_id: event.context_id,
            status: event.status.into(),
            metadata: event.metadata,
        }
    }
}

impl From<crate::TaskArtifactUpdateEvent> for TaskArtifactUpdateEvent {
    fn from(event: crate::TaskArtifactUpdateEvent) -> Self {
        Self {
            task_id: event.task_id,
            context_id: event.context_id,
            artifact: event.artifact.into(),
            append: Some(event.append),
            last_chunk: Some(event.last_chunk),
            metadata: event.metadata,
            ..Self::default()
        }
    }
}

impl From<TaskArtifactUpdateEvent> for crate::TaskArtifactUpdateEvent {
    fn from(event: TaskArtifactUpdateEvent) -> Self {
        Self {
            task_id: event.task_id,
            context_id: event.context_id,
            artifact: event.artifact.into(),
            append: event.append.unwrap_or_default(),
            last_chunk: event.last_chunk.unwrap_or_default(),
            metadata: event.metadata,
        }
    }
}

impl From<StreamResponse> for Event {
    fn from(event: StreamResponse) -> Self {
        match event {
            StreamResponse::Task(task) => Self::Task(task.into()),
            StreamResponse::Message(message) => Self::Message(message.into()),
            StreamResponse::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            StreamResponse::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

impl From<Event> for StreamResponse {
    fn from(event: Event) -> Self {
        match event {
            Event::Task(task) => Self::Task(task.into()),
            Event::Message(message) => Self::Message(message.into()),
            Event::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            Event::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

/// The answer to `message/send` is a task or a message; an update is an agent's mistake.
impl TryFrom<Event> for SendMessageResponse {
    type Error = Error;

    fn try_from(event: Event) -> Result<Self, Error> {
        match event {
            Event::Task(task) => Ok(Self::Task(task.into())),
            Event::Message(message) => Ok(Self::Message(message.into())),
            Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => Err(Error::new(
                ErrorKind::InvalidAgentResponse,
                "the agent answered a message with an update, not with a task or a message",
            )),
        }
    }
}

fn all<T, U: From<T>>(list: Vec<T>) -> Vec<U> {
    list.into_iter().map(U::from).collect()
}
