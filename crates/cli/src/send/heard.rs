//! What the events of a turn add up to, for when the task itself cannot be asked for any more.

use std::collections::BTreeMap;

use a2a::{Artifact, Message, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent};
use client::{Error, Received};
use serde::Deserialize;

/// Bytes of one answer that a command keeps in memory.
pub(crate) const MAX_KEPT: usize = 64 << 20;

/// Bytes that an artifact counts beside its content.
pub(crate) const PER_ARTIFACT: usize = 4096;

/// A turn, as far as it was heard of.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The message that answered it.
    pub(crate) message: Option<Message>,
    /// Its task.
    pub(crate) task: Option<Task>,
    /// How many artifacts were there before anything was heard of being made.
    before: usize,
    /// Whether artifacts are left out, because they are printed as they come.
    is_brief: bool,
    /// Bytes of the events that each artifact was made of.
    sizes: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Marks {
    attempt: Option<u64>,
}

impl Heard {
    /// This task, and nothing more.
    pub(crate) fn of(task: Option<Task>) -> Self {
        Self { task, ..Self::default() }
    }

    /// Without the artifacts of its task.
    pub(crate) fn brief() -> Self {
        Self { is_brief: true, ..Self::default() }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.message.is_none() && self.task.is_none()
    }

    /// Adds an event, unless there is too much to keep.
    pub(crate) fn add(&mut self, event: &Received<StreamResponse>) -> Result<(), Error> {
        let bytes = event.json.get().len();
        match &event.value {
            StreamResponse::Message(message) => self.message = Some(message.clone()),
            StreamResponse::Task(task) => {
                if self.task.is_none() {
                    self.before = task.artifacts.len();
                }
                self.sizes.clear();
                self.task = Some(match self.is_brief {
                    true => without_artifacts(task),
                    false => task.clone(),
                });
            }
            StreamResponse::StatusUpdate(update) => {
                let before = self.before;
                let task = self.task(&update.task_id, &update.context_id);
                if attempt(update).is_some() {
                    // What the attempt before has made is taken back.
                    task.artifacts.truncate(before);
                    self.sizes.clear();
                }
                self.task(&update.task_id, &update.context_id).status = update.status.clone();
            }
            StreamResponse::ArtifactUpdate(update) if self.is_brief => {
                self.task(&update.task_id, &update.context_id);
            }
            StreamResponse::ArtifactUpdate(update) => {
                let size = self.sizes.entry(update.artifact.artifact_id.clone()).or_default();
                *size = bytes + if update.append { *size } else { PER_ARTIFACT };
                if self.sizes.values().sum::<usize>() > MAX_KEPT {
                    return Err(Error::TooLarge { cap: MAX_KEPT });
                }
                let task = self.task(&update.task_id, &update.context_id);
                add(&mut task.artifacts, update);
            }
        }
        Ok(())
    }

    fn task(&mut self, id: &str, context: &str) -> &mut Task {
        self.task.get_or_insert_with(|| Task { id: id.to_owned(), context_id: context.to_owned(), ..Task::default() })
    }
}

/// Where a task stands, without what it has made and what was said before.
fn without_artifacts(task: &Task) -> Task {
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        metadata: task.metadata.clone(),
        ..Task::default()
    }
}

fn add(artifacts: &mut Vec<Artifact>, update: &TaskArtifactUpdateEvent) {
    let known = artifacts.iter_mut().find(|known| known.artifact_id == update.artifact.artifact_id);
    match known {
        Some(known) if update.append => known.parts.extend(update.artifact.parts.iter().cloned()),
        Some(known) => *known = update.artifact.clone(),
        None => artifacts.push(update.artifact.clone()),
    }
}

/// Which attempt at the turn begins here, when it is not the first: what the one before has made is taken back.
pub(crate) fn attempt(update: &TaskStatusUpdateEvent) -> Option<u64> {
    if update.status.state != TaskState::Working || update.status.message.is_some() {
        return None;
    }
    let marks: Marks = update.metadata.as_ref()?.parse().ok()?;
    marks.attempt.filter(|attempt| *attempt > 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn received(event: &Value) -> Received<StreamResponse> {
        let json = serde_json::value::to_raw_value(event).unwrap();
        Received { value: serde_json::from_value(event.clone()).unwrap(), json }
    }

    fn heard(events: &[Value]) -> Heard {
        let mut heard = Heard::default();
        for event in events {
            heard.add(&received(event)).unwrap();
        }
        heard
    }

    fn chunk(id: &str, append: bool, text: &str) -> Value {
        let artifact = json!({"artifactId": id, "parts": [{"text": text}]});
        json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": append, "artifact": artifact}})
    }

    fn status(state: &str, metadata: &Value) -> Value {
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}, "metadata": metadata}})
    }

    #[test]
    fn events_add_up_to_their_task() {
        let old = json!({"artifactId": "old", "parts": [{"text": "earlier"}]});
        let events = [
            json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}, "artifacts": [old]}}),
            status("TASK_STATE_WORKING", &json!({})),
            chunk("a", false, "lost"),
            chunk("b", false, "lost, too"),
            status("TASK_STATE_WORKING", &json!({"attempt": 2})),
            chunk("a", false, "one "),
            chunk("a", true, "two"),
            status("TASK_STATE_COMPLETED", &json!({})),
        ];
        let task = heard(&events).task.unwrap();
        assert_eq!(task.status.state, TaskState::Completed);
        let texts: Vec<String> = task
            .artifacts
            .iter()
            .map(|artifact| artifact.parts.iter().filter_map(a2a::Part::as_text).collect())
            .collect();
        assert_eq!(texts, ["earlier", "one two"], "an attempt takes back what the one before it made, and no more");
    }

    #[test]
    fn what_is_kept_of_an_answer_has_a_bound() {
        let large = "x".repeat(1 << 20);
        let fits = |heard: &mut Heard, event: Value| {
            let event = received(&event);
            (0..200).take_while(|_| heard.add(&event).is_ok()).count()
        };
        assert_eq!(fits(&mut Heard::default(), chunk("a", true, &large)), 63);
        assert_eq!(fits(&mut Heard::default(), chunk("a", false, &large)), 200, "it replaces itself");
        let mut brief = Heard::brief();
        assert_eq!(fits(&mut brief, chunk("a", true, &large)), 200);
        let task = json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": large}]}]}});
        brief.add(&received(&task)).unwrap();
        assert_eq!(brief.task.unwrap().artifacts, []);
        let mut many = Heard::default();
        many.sizes.extend((0..MAX_KEPT / PER_ARTIFACT).map(|n| (format!("empty-{n}"), PER_ARTIFACT)));
        assert_eq!(fits(&mut many, chunk("a", false, "")), 0, "empty ones count as well");
    }

    #[test]
    fn an_event_alone_names_the_task() {
        let heard = heard(&[status("TASK_STATE_WORKING", &json!({}))]);
        assert_eq!(heard.task.unwrap().id, "t");
    }
}
