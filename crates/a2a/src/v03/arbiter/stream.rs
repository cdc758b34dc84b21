//! A stream of seed 000: first the status `working`, then the text as chunks of one artifact, one last chunk, and the
//! terminal status with the reply.

use std::collections::BTreeSet;

use super::{RESPONSE, is_response, reply, responses, stamped, text_id, text_of, with_reply_id};
use crate::v03::{Artifact, Event, Part, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};
use crate::{JsonObject, Role, StreamResponse, TaskState, TaskStatus};

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The SSE id. Of several frames of one event the last has it, so that whoever resumes from it has missed none.
    pub id: Option<u64>,
    /// The `result` of the frame's response.
    pub event: Event,
}

/// Whether the work on a task has not begun.
fn is_waiting(task: &crate::Task) -> bool {
    matches!(task.status.state, TaskState::Unspecified | TaskState::Submitted)
}

/// The ids of the artifacts that are text of the reply.
fn response_ids(task: &crate::Task) -> Vec<String> {
    let texts = task.artifacts.iter().filter(|artifact| is_response(artifact, &task.id));
    texts.map(|artifact| artifact.artifact_id.clone()).collect()
}

/// Turns the events of one task, in their order, into the frames of one stream. It keeps no text.
#[derive(Debug, Clone)]
pub struct Stream {
    task_id: String,
    context_id: String,
    /// The first frame is out.
    started: bool,
    ended: bool,
    /// The artifacts whose text went out, in order: all of them are one text here.
    texts: Vec<String>,
    /// The artifacts that go out as they are.
    others: BTreeSet<String>,
}

impl Stream {
    pub fn new(task_id: impl Into<String>, context_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
            context_id: context_id.into(),
            started: false,
            ended: false,
            texts: Vec::new(),
            others: BTreeSet::new(),
        }
    }

    /// The stream of the events that follow a message to `task`, and its first frame where the work has begun. What the
    /// task holds already does not go out again.
    pub fn continued(task: &crate::Task) -> (Self, Vec<Frame>) {
        let mut stream = Self::with_artifacts_of(task);
        let mut events = Vec::new();
        if !is_waiting(task) {
            stream.start(&mut events);
        }
        // Events that the task shows may follow: no number is behind the reader yet.
        (stream, events.into_iter().map(|event| Frame { id: None, event }).collect())
    }

    /// The rest of a stream, for a client that has the frames up to some event of `task` and resumes after it.
    pub fn resumed(task: &crate::Task) -> Self {
        Self { started: true, texts: response_ids(task), ..Self::with_artifacts_of(task) }
    }

    /// Of a later chunk of an artifact only the id tells whether it is text of the reply.
    fn with_artifacts_of(task: &crate::Task) -> Self {
        let others = task.artifacts.iter().filter(|artifact| !is_response(artifact, &task.id));
        Self {
            others: others.map(|artifact| artifact.artifact_id.clone()).collect(),
            ..Self::new(&task.id, &task.context_id)
        }
    }

    /// The frames of the next event; often there is one, sometimes none.
    ///
    /// A task that has ended and is the first thing to come gives one frame, its terminal status. A task that comes later
    /// stands for events that are not in the log any more: its text takes the place of what was sent.
    ///
    /// A completed status without a message (a reply that is in the artifacts alone) goes out without one. Whoever has the
    /// task at hand gives [`StreamResponse::Task`] in its place, with its history, and the reply is taken from the artifacts.
    pub fn feed(&mut self, seq: u64, event: StreamResponse) -> Vec<Frame> {
        if self.ended {
            return Vec::new();
        }
        let mut events = Vec::new();
        match event {
            StreamResponse::Task(task) => self.snapshot(&task, &mut events),
            // What the user adds is no event of this surface.
            StreamResponse::Message(message) if message.role == Role::User => {}
            StreamResponse::Message(message) => {
                let status = TaskStatus { state: TaskState::Completed, message: Some(message), timestamp: None };
                self.end(status, None, &mut events);
            }
            StreamResponse::StatusUpdate(update) => {
                self.status(update.status, update.metadata, &mut events);
            }
            StreamResponse::ArtifactUpdate(update) => self.artifact(update, &mut events),
        }
        let last = events.len().saturating_sub(1);
        let frame = |(at, event)| Frame { id: (at == last).then_some(seq), event };
        events.into_iter().enumerate().map(frame).collect()
    }

    /// Whether the terminal status is out.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    fn status(&mut self, status: TaskStatus, metadata: Option<JsonObject>, events: &mut Vec<Event>) {
        match status.state {
            // The stream begins when the work does.
            TaskState::Unspecified | TaskState::Submitted => {}
            TaskState::Working => {
                self.started = true;
                events.push(self.status_update(status, metadata));
            }
            TaskState::InputRequired | TaskState::AuthRequired => {
                self.start(events);
                events.push(self.status_update(status, metadata));
            }
            TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected => {
                self.end(status, metadata, events)
            }
        }
    }

    fn artifact(&mut self, update: crate::TaskArtifactUpdateEvent, events: &mut Vec<Event>) {
        let crate::TaskArtifactUpdateEvent { artifact, append, last_chunk, metadata, .. } = update;
        let continues_other = append && self.others.contains(&artifact.artifact_id);
        if !continues_other && is_response(&artifact, &self.task_id) {
            self.text(&artifact, append, metadata, events);
            return;
        }
        self.start(events);
        events.push(self.other(artifact, append, last_chunk, metadata));
    }

    /// A piece of the reply's text.
    fn text(
        &mut self,
        artifact: &crate::Artifact,
        append: bool,
        metadata: Option<JsonObject>,
        events: &mut Vec<Event>,
    ) {
        let text = text_of(artifact);
        let id = &artifact.artifact_id;
        // The first artifact from its beginning once more is a new attempt, which takes the place of the one before.
        let begins_anew = !append && self.texts.first() == Some(id);
        if begins_anew {
            self.texts.clear();
        } else if text.is_empty() {
            return;
        }
        self.start(events);
        // What went out as it is under this id must not be taken back.
        let append = !self.texts.is_empty() || self.others.contains(&self.text_id());
        if !self.texts.contains(id) {
            self.texts.push(id.clone());
        }
        events.push(self.text_update(text, append, false, metadata));
    }

    fn snapshot(&mut self, task: &crate::Task, events: &mut Vec<Event>) {
        if task.status.state.is_terminal() {
            let status = TaskStatus { message: reply(task), ..task.status.clone() };
            if self.started {
                self.end(status, None, events);
            } else {
                self.ended = true;
                events.push(self.status_update(status, None));
            }
            return;
        }
        if is_waiting(task) && task.artifacts.is_empty() {
            return;
        }
        self.start(events);
        self.texts = response_ids(task);
        if !self.texts.is_empty() {
            events.push(self.text_update(responses(task), false, false, None));
        }
        for artifact in &task.artifacts {
            if !is_response(artifact, &task.id) {
                events.push(self.other(artifact.clone(), false, false, None));
            }
        }
        if task.status.state.is_interrupted() {
            let mut status = task.status.clone();
            status.message = status.message.map(|message| stamped(message, task));
            events.push(self.status_update(status, None));
        }
    }

    /// The first frame, when nothing has been said yet.
    fn start(&mut self, events: &mut Vec<Event>) {
        if self.started {
            return;
        }
        self.started = true;
        let working = TaskStatus { state: TaskState::Working, ..TaskStatus::default() };
        events.push(self.status_update(working, None));
    }

    /// The last chunk, for clients that show nothing before it, and the terminal status.
    fn end(&mut self, mut status: TaskStatus, metadata: Option<JsonObject>, events: &mut Vec<Event>) {
        self.start(events);
        self.ended = true;
        let has_text = !self.texts.is_empty() || self.others.contains(&self.text_id());
        events.push(self.text_update(String::new(), has_text, true, None));
        status.message = status.message.map(|mut message| {
            message.task_id.clone_from(&self.task_id);
            message.context_id.clone_from(&self.context_id);
            with_reply_id(message, &self.task_id)
        });
        events.push(self.status_update(status, metadata));
    }

    /// The one artifact that all text goes to.
    fn text_id(&self) -> String {
        text_id(&self.task_id)
    }

    fn status_update(&self, status: TaskStatus, metadata: Option<JsonObject>) -> Event {
        Event::StatusUpdate(TaskStatusUpdateEvent::from(crate::TaskStatusUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            status,
            metadata,
        }))
    }

    fn text_update(&self, text: String, append: bool, is_last: bool, metadata: Option<JsonObject>) -> Event {
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            artifact: Artifact {
                artifact_id: self.text_id(),
                name: RESPONSE.to_owned(),
                parts: vec![Part::text(text)],
                ..Artifact::default()
            },
            append: Some(append),
            last_chunk: is_last.then_some(true),
            metadata,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    /// A file, data, or a text with a name of its own.
    fn other(
        &mut self,
        artifact: crate::Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<JsonObject>,
    ) -> Event {
        self.others.insert(artifact.artifact_id.clone());
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task_id.clone(),
            context_id: self.context_id.clone(),
            artifact: artifact.into(),
            append: append.then_some(true),
            last_chunk: last_chunk.then_some(true),
            metadata,
            ..TaskArtifactUpdateEvent::default()
        })
    }
}
