//! What an agent has answered, as one text.
//!
//! Agents put their answer in different places. The artifacts are the result; an agent that makes none says it in the message of its
//! status, and some leave it in the history alone.

use a2a::{Message, Part, Role, SendMessageResponse, Task};

/// The text of an answer: of a task that of [`task_text`], of a message its own. `None` when there is none.
pub fn reply_text(response: &SendMessageResponse) -> Option<String> {
    match response {
        SendMessageResponse::Task(task) => task_text(task),
        SendMessageResponse::Message(message) => message_text(message),
    }
}

/// The text of a task's answer: of all its artifacts, else of its status, else of the last message of the agent in its history. `None` when
/// there is none.
pub fn task_text(task: &Task) -> Option<String> {
    let said = || {
        let mut history = task.history.iter().rev();
        history.find(|message| message.role == Role::Agent).and_then(message_text)
    };
    artifacts_text(task).or_else(|| task.status.message.as_ref().and_then(message_text)).or_else(said)
}

/// The text of all artifacts. The pieces of one belong together, as they were streamed; artifacts stand apart.
pub(crate) fn artifacts_text(task: &Task) -> Option<String> {
    let texts = task.artifacts.iter().map(|artifact| text_of(&artifact.parts));
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn message_text(message: &Message) -> Option<String> {
    Some(message.text()).filter(|text| !text.is_empty())
}

fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

#[cfg(test)]
mod tests {
    use a2a::{Artifact, TaskStatus};

    use super::*;

    fn said(role: Role, texts: &[&str]) -> Message {
        Message { role, parts: texts.iter().map(|text| Part::text(*text)).collect(), ..Message::default() }
    }

    fn artifact(parts: Vec<Part>) -> Artifact {
        Artifact { parts, ..Artifact::default() }
    }

    #[test]
    fn a_reply_is_looked_for_where_agents_put_it() {
        let mut task = Task { history: vec![said(Role::User, &["question"])], ..Task::default() };
        assert_eq!(task_text(&task), None);
        task.history.extend([said(Role::Agent, &["first"]), said(Role::Agent, &["last"]), said(Role::User, &["more"])]);
        assert_eq!(task_text(&task).as_deref(), Some("last"));
        task.status = TaskStatus { message: Some(said(Role::Agent, &["a", "b"])), ..TaskStatus::default() };
        assert_eq!(task_text(&task).as_deref(), Some("a\nb"));
        task.artifacts.push(artifact(vec![Part::url("https://h/x")]));
        assert_eq!(task_text(&task).as_deref(), Some("a\nb"), "an artifact without text is none");
        task.artifacts.push(artifact(vec![Part::text("one "), Part::url("https://h/x"), Part::text("two")]));
        task.artifacts.push(artifact(vec![Part::text("three")]));
        assert_eq!(reply_text(&SendMessageResponse::Task(task)).as_deref(), Some("one two\nthree"));
    }

    #[test]
    fn a_message_is_its_own_text() {
        let reply = |texts: &[&str]| reply_text(&SendMessageResponse::Message(said(Role::Agent, texts)));
        assert_eq!(reply(&["hello"]).as_deref(), Some("hello"));
        assert_eq!(reply(&[""]), None);
        assert_eq!(reply(&[]), None);
    }
}
