//! The surface of Arbiter, an older system (`/v1/a2a/`; seeds 000 to 002 of `docs/compatibility.md`), where it differs from
//! plain 0.3: results stand in `status.message` and in the history, token counts in metadata under `x-arbiter.`, and a
//! stream is one text artifact between two statuses.

use serde_json::Value;

use super::carry::Members;
use super::{Message, PartContent, Task, TaskStatus};
use crate::error::{Error, ErrorKind};
use crate::{Artifact, Role};

mod card;
mod stream;

pub use card::{AgentFacts, agent_card, describe, skills};
pub use stream::{Frame, Stream};

/// The name of the artifact that a stream's text goes to.
pub const RESPONSE: &str = "response";

const AGENT_ID: &str = "x-arbiter.agent_id";
const INPUT_TOKENS: &str = "x-arbiter.input_tokens";
const OUTPUT_TOKENS: &str = "x-arbiter.output_tokens";
const ERROR: &str = "x-arbiter.error";

/// How many tokens a task took; zero where nobody counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// The JSON-RPC code of an error there. It differs from A2A's for three kinds (rulings X-3, X-4, X-33).
pub const fn error_code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::VersionNotSupported => -32007,
        ErrorKind::AgentNotFound => -32001,
        ErrorKind::PushNotificationNotSupported => -32004,
        other => other.codes().jsonrpc,
    }
}

/// Refuses a message with anything but text: ContentTypeNotSupported.
pub fn require_text(message: &Message) -> Result<(), Error> {
    for (index, part) in message.parts.iter().enumerate() {
        if matches!(part.content, PartContent::Text(_)) {
            continue;
        }
        let kind = part.content.kind();
        let error = Error::new(
            ErrorKind::ContentTypeNotSupported,
            format!("only text parts are taken here, not a part of kind {kind}"),
        );
        return Err(error.with_violation(format!("message.parts[{index}].kind"), "must be text"));
    }
    Ok(())
}

/// A task as `message/send`, `tasks/get` and `tasks/cancel` answer it.
///
/// While it runs, the state alone counts: no message, no history. When it has ended, `status.message` is the reply, and the
/// history is the conversation that led to it. Artifacts of mere text are the reply and do not appear a second time.
pub fn task_result(task: &crate::Task, agent_id: &str, usage: Usage) -> Task {
    let state = task.status.state;
    let mut result = Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: TaskStatus { state: super::TaskState(state), message: None, timestamp: task.status.timestamp },
        ..Task::default()
    };
    let artifacts = task.artifacts.iter().filter(|artifact| !is_response(artifact, &task.id));
    result.artifacts = artifacts.cloned().map(super::Artifact::from).collect();

    let mut members = Members::of(task.metadata.as_ref());
    members.put(AGENT_ID, &Value::from(agent_id));
    members.put(INPUT_TOKENS, &Value::from(usage.input_tokens));
    members.put(OUTPUT_TOKENS, &Value::from(usage.output_tokens));

    if state.is_terminal() {
        let reply = reply(task);
        let failed = state == crate::TaskState::Failed;
        if let Some(why) = reply.as_ref().filter(|_| failed) {
            members.put(ERROR, &Value::from(why.text()));
        }
        result.history = history(task, reply.as_ref());
        result.status.message = reply.map(Message::from);
    } else if state.is_interrupted() {
        let message = task.status.message.clone();
        result.status.message = message.map(|message| stamped(message, task).into());
    }
    result.metadata = members.into_object();
    result
}

/// Puts replies that are in artifacts alone where this surface has them: in the history, and in the status of a completed task.
/// `made_in` tells which turn made each artifact, and the history has to be whole: every message of the user's is a turn.
pub fn tell_replies(task: &mut crate::Task, made_in: &[u32]) {
    let text_of_turn = |turn: u32| {
        let of_it: Vec<&Artifact> =
            task.artifacts.iter().zip(made_in).filter(|(_, made_in)| **made_in == turn).map(|(it, _)| it).collect();
        text_of_all(&of_it, &task.id)
    };
    let mut history = Vec::with_capacity(task.history.len());
    let mut turn = 0;
    let mut answered = true;
    for message in &task.history {
        if message.role == Role::User {
            let text = if answered { String::new() } else { text_of_turn(turn) };
            if !text.is_empty() {
                history.push(made_of(text, &task.id, turn));
            }
            turn += 1;
            answered = false;
        } else {
            answered = true;
        }
        history.push(message.clone());
    }
    if task.status.message.is_none() && task.status.state == crate::TaskState::Completed {
        let turn = turn.max(1);
        task.status.message = Some(made_of(text_of_turn(turn), &task.id, turn));
    }
    task.history = history;
}

/// A reply that is only in the artifacts, as a message.
fn made_of(text: String, task_id: &str, turn: u32) -> crate::Message {
    crate::Message {
        message_id: crate::reply_id(task_id, turn),
        role: Role::Agent,
        parts: vec![crate::Part::text(text)],
        ..crate::Message::default()
    }
}

/// The last message of a task that has ended. A completed task always has one: its own, or the text of its artifacts.
fn reply(task: &crate::Task) -> Option<crate::Message> {
    let message = match &task.status.message {
        Some(message) => message.clone(),
        None if task.status.state == crate::TaskState::Completed => {
            made_of(text_of_all(&task.artifacts.iter().collect::<Vec<_>>(), &task.id), &task.id, 1)
        }
        None => return None,
    };
    Some(with_reply_id(stamped(message, task), &task.id))
}

/// Replies are called after their task: `<id>-r`, and `<id>-r2` in a second turn.
fn with_reply_id(mut message: crate::Message, task_id: &str) -> crate::Message {
    let prefix = format!("{task_id}-r");
    let turn = message.message_id.strip_prefix(&prefix);
    if !turn.is_some_and(|turn| turn.bytes().all(|byte| byte.is_ascii_digit())) {
        message.message_id = prefix;
    }
    message
}

/// What the user said and what the agent answered. What it said on the way to an answer is left out.
fn history(task: &crate::Task, reply: Option<&crate::Message>) -> Vec<Message> {
    let mut kept: Vec<Message> = Vec::new();
    let mut answer = None;
    for message in &task.history {
        if message.role == Role::User {
            kept.extend(answer.take());
            kept.push(stamped(message.clone(), task).into());
        } else {
            answer = Some(stamped(message.clone(), task).into());
        }
    }
    kept.extend(reply.cloned().map(Message::from));
    kept
}

fn stamped(mut message: crate::Message, task: &crate::Task) -> crate::Message {
    message.task_id.clone_from(&task.id);
    message.context_id.clone_from(&task.context_id);
    message
}

/// The id of the one artifact that all text of a stream goes to. The journal gives it to a task's first text without an id.
fn text_id(task_id: &str) -> String {
    format!("{task_id}-text-0")
}

/// Whether the journal gave an id to the first text of a turn: `<id>-text-0`, and `<id>-t2-text-0` in a second turn.
fn is_first_text(id: &str, task_id: &str) -> bool {
    let Some(rest) = id.strip_prefix(task_id).and_then(|rest| rest.strip_suffix("-text-0")) else { return false };
    let turn = rest.strip_prefix("-t");
    rest.is_empty() || turn.is_some_and(|turn| !turn.is_empty() && turn.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether an artifact is part of the reply's text: it consists of text, and it has no name of its own or the id of the
/// artifact that the text goes to. Two artifacts of one id would be one too many.
fn is_response(artifact: &Artifact, task_id: &str) -> bool {
    let is_plain = |part: &crate::Part| part.as_text().is_some() && part.filename.is_empty();
    let is_unnamed = artifact.name.is_empty() || artifact.name == RESPONSE;
    (is_unnamed || is_first_text(&artifact.artifact_id, task_id))
        && !artifact.parts.is_empty()
        && artifact.parts.iter().all(is_plain)
}

/// The reply's text. Who made nothing but things with names has nothing else to say.
fn text_of_all(artifacts: &[&Artifact], task_id: &str) -> String {
    let text = |is_wanted: &dyn Fn(&Artifact) -> bool| {
        let texts = artifacts.iter().filter(|artifact| is_wanted(artifact)).map(|artifact| text_of(artifact));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let response = text(&|artifact| is_response(artifact, task_id));
    if response.is_empty() { text(&|_| true) } else { response }
}

/// All that is the reply's text, of whatever turn.
fn responses(task: &crate::Task) -> String {
    let texts = task.artifacts.iter().filter(|artifact| is_response(artifact, &task.id)).map(text_of);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The text of an artifact. Its parts are pieces of one text, not lines.
fn text_of(artifact: &Artifact) -> String {
    artifact.parts.iter().filter_map(crate::Part::as_text).collect()
}

#[cfg(test)]
mod tests;
