//! The notifications that a webhook is owed, by the log of its task. This is written from what is promised and not from how
//! the server does it; the agents of the workload keep no checkpoints, so each attempt begins anew.

use serde_json::Value;
use store::{Event, EventKind};

/// A notification that is owed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owed {
    /// The event, and which of its notifications from 1, or 0 if it has only one.
    pub(crate) place: (u64, u32),
    says: Says,
    /// The task at that time, which is what a notification of 0.3 says.
    state: String,
    result: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Says {
    /// The body of the event.
    This(Value),
    /// A finished artifact: its id, and its text in one piece.
    Whole(String, String),
}

/// An artifact so far.
struct Made {
    id: String,
    text: String,
    is_finished: bool,
    /// Made by the turn that runs.
    is_new: bool,
}

/// All notifications that are owed by a log, with or without chunks.
pub(crate) fn owed(log: &[Event], chunks: bool) -> Vec<Owed> {
    let mut made: Vec<Made> = Vec::new();
    let mut state = String::new();
    let mut all = Vec::new();
    for event in log {
        let body: Value = serde_json::from_slice(&event.body).unwrap_or_default();
        let mut says = Vec::new();
        match event.kind {
            EventKind::Created { .. } => {
                state = text(&body, "/task/status/state");
                says.push(Says::This(body));
            }
            EventKind::Started(_) => {
                made.retain(|artifact| !artifact.is_new);
                state = text(&body, "/statusUpdate/status/state");
                says.push(Says::This(body));
            }
            EventKind::Status { ends_turn, .. } => {
                state = text(&body, "/statusUpdate/status/state");
                if ends_turn {
                    for artifact in made.iter_mut().filter(|artifact| artifact.is_new) {
                        if !artifact.is_finished && !chunks {
                            says.push(Says::Whole(artifact.id.clone(), artifact.text.clone()));
                        }
                        artifact.is_new = false;
                        artifact.is_finished = true;
                    }
                }
                says.push(Says::This(body));
            }
            EventKind::Artifact => {
                let is_last = body.pointer("/artifactUpdate/lastChunk") == Some(&Value::Bool(true));
                let artifact = add(&mut made, &body);
                artifact.is_finished = is_last;
                if chunks {
                    says.push(Says::This(body));
                } else if is_last {
                    says.push(Says::Whole(artifact.id.clone(), artifact.text.clone()));
                }
            }
            _ => {}
        }
        let result: String = made.iter().map(|artifact| artifact.text.as_str()).collect();
        let count = says.len();
        for (says, number) in says.into_iter().zip(1..) {
            let part = if count > 1 { number } else { 0 };
            all.push(Owed { place: (event.seq, part), says, state: state.clone(), result: result.clone() });
        }
    }
    all
}

fn add<'a>(made: &'a mut Vec<Made>, body: &Value) -> &'a mut Made {
    let id = text(body, "/artifactUpdate/artifact/artifactId");
    let append = body.pointer("/artifactUpdate/append") == Some(&Value::Bool(true));
    if !append {
        made.retain(|artifact| artifact.id != id);
    }
    let place = made.iter().position(|artifact| artifact.id == id).unwrap_or_else(|| {
        made.push(Made { id, text: String::new(), is_finished: false, is_new: true });
        made.len() - 1
    });
    let artifact = &mut made[place];
    artifact.text.push_str(&texts(body.pointer("/artifactUpdate/artifact/parts")));
    artifact
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(parts: Option<&Value>) -> String {
    let parts = parts.and_then(Value::as_array);
    parts.into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
}

impl Owed {
    /// Whether a notification of this version says it.
    pub(crate) fn is_said_by(&self, version: &str, body: &[u8]) -> bool {
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
        match (version, &self.says) {
            ("1.0", Says::This(event)) => body == *event,
            ("1.0", Says::Whole(id, whole)) => {
                let Some(update) = body.get("artifactUpdate") else { return false };
                text(update, "/artifact/artifactId") == *id
                    && texts(update.pointer("/artifact/parts")) == *whole
                    && update["lastChunk"] == true
                    && update.get("append").is_none_or(|append| append == false)
            }
            ("0.3", _) => {
                let state = self.state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-");
                let artifacts = body["artifacts"].as_array().into_iter().flatten();
                let result: String = artifacts.map(|artifact| texts(artifact.get("parts"))).collect();
                body["kind"] == "task" && text(&body, "/status/state") == state && result == self.result
            }
            _ => false,
        }
    }
}
