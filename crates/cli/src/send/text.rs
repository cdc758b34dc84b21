//! The answer of a task or message as text, and how it is printed when it is there as a whole.

use a2a::{Artifact, Message, Part, PartContent, Role, Task, TaskState};

use crate::{aside::Aside, output};

/// The name of an artifact that says nothing: what text without a name of its own is called.
const PLAIN: &str = "response";

/// Prints the reply in a task, after a line for each thing that is beside it. Says whether there was one; a file is one.
pub(crate) fn print_reply(task: &Task) -> bool {
    let asides = Aside::all(task);
    asides.iter().for_each(Aside::print);
    let answers = answers(task);
    // Where there are several, each has its name above it.
    if answers.len() > 1 {
        for (artifact, text) in &answers {
            title(artifact).iter().for_each(|title| output::aside(title));
            print_text(text);
        }
    }
    let texts: Vec<&str> = answers.iter().map(|(_, text)| text.as_str()).collect();
    let rest = if answers.len() > 1 { closing(task, &texts).unwrap_or_default() } else { task_text(task) };
    print_text(&rest);
    !texts.is_empty() || !rest.is_empty() || asides.iter().any(Aside::is_file)
}

/// The reply in a task: its artifacts, and what it said at its end unless that repeats them; else what the agent last said. What is beside the
/// reply is left out.
pub(crate) fn task_text(task: &Task) -> String {
    let mut texts: Vec<String> = answers(task).into_iter().map(|(_, text)| text).collect();
    let shown: Vec<&str> = texts.iter().map(String::as_str).collect();
    if let Some(text) = closing(task, &shown) {
        texts.push(text);
    }
    let is_over = task.status.state == TaskState::Completed || task.status.state.is_interrupted();
    if texts.is_empty() && is_over {
        texts.extend(last_said(task));
    }
    texts.join("\n")
}

/// The artifacts that belong to the answer, with their texts.
fn answers(task: &Task) -> Vec<(&Artifact, String)> {
    let answers = task.artifacts.iter().filter(|artifact| Aside::of(artifact).is_none());
    answers.map(|artifact| (artifact, artifact_text(artifact))).filter(|(_, text)| !text.is_empty()).collect()
}

/// What is said with the end of a turn, unless it was said.
fn closing(task: &Task, shown: &[&str]) -> Option<String> {
    let counts = task.status.state == TaskState::Completed || task.status.state.is_interrupted();
    let text = message_text(task.status.message.as_ref().filter(|_| counts)?);
    (!text.is_empty() && !repeats(&text, shown)).then_some(text)
}

/// Whether a text says again what was shown: one of the texts, or all of them.
pub(crate) fn repeats(text: &str, shown: &[&str]) -> bool {
    let text = text.trim();
    let same = |other: &str| other.trim() == text;
    shown.iter().any(|shown| same(shown)) || (shown.len() > 1 && (same(&shown.concat()) || same(&shown.join("\n"))))
}

/// What the agent said last, as far as the history tells.
pub(crate) fn last_said(task: &Task) -> Option<String> {
    let said = task.history.iter().rev().filter(|message| message.role == Role::Agent);
    said.map(message_text).find(|text| !text.is_empty())
}

pub(crate) fn message_text(message: &Message) -> String {
    output::parts_text(&message.parts)
}

/// The text of an artifact. Pieces of text belong together, as they were streamed; everything else has lines of its own.
pub(crate) fn artifact_text(artifact: &Artifact) -> String {
    let is_text = |part: &Part| matches!(part.content, PartContent::Text(_));
    let mut text = String::new();
    for run in artifact.parts.chunk_by(|one, next| is_text(one) && is_text(next)) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        match run {
            [part] => text.push_str(&output::parts_text(std::slice::from_ref(part))),
            pieces => pieces.iter().filter_map(Part::as_text).for_each(|piece| text.push_str(piece)),
        }
    }
    text
}

/// What stands above an artifact where there are several: its name, if it has one that says something.
pub(crate) fn title(artifact: &Artifact) -> Option<String> {
    let names = [&artifact.name, &artifact.description];
    names.into_iter().find(|name| !name.is_empty() && *name != PLAIN).map(|name| format!("artifact {name}"))
}

/// Nothing came, and that is no mistake.
pub(crate) fn say_silence() {
    output::error_line("note", "the task is done, and its agent said nothing");
}

pub(crate) fn print_text(text: &str) {
    if text.is_empty() {
        return;
    }
    output::print_foreign(text);
    if !text.ends_with('\n') {
        output::print("\n");
    }
}

#[cfg(test)]
mod tests {
    use a2a::TaskStatus;

    use super::*;

    fn status(state: TaskState, text: &str) -> TaskStatus {
        let message = Message { parts: vec![Part::text(text)], ..Message::default() };
        TaskStatus { state, message: Some(message), timestamp: None }
    }

    fn artifact(parts: Vec<Part>) -> Artifact {
        Artifact { parts, ..Artifact::default() }
    }

    #[test]
    fn x_10_a_reply_is_artifacts_then_status_then_history() {
        let mut task = Task { status: status(TaskState::Completed, "status"), ..Task::default() };
        assert_eq!(task_text(&task), "status");
        task.status.message = None;
        let said = |role, text: &str| Message { role, parts: vec![Part::text(text)], ..Message::default() };
        task.history = vec![said(Role::Agent, "earlier"), said(Role::User, "question"), said(Role::Agent, "answer")];
        assert_eq!(task_text(&task), "answer");
        task.status.state = TaskState::InputRequired;
        assert_eq!(task_text(&task), "answer", "a question may be there, too");
        task.status.state = TaskState::Working;
        assert_eq!(task_text(&task), "");
        task.artifacts = vec![artifact(vec![Part::text("artifact")])];
        assert_eq!(task_text(&task), "artifact");
        task.status = status(TaskState::InputRequired, "question?");
        assert_eq!(task_text(&task), "artifact\nquestion?");
    }

    #[test]
    fn the_last_word_is_said_once() {
        let mut task = Task {
            status: status(TaskState::Completed, "one two"),
            artifacts: vec![artifact(vec![Part::text("one "), Part::text("two\n")])],
            ..Task::default()
        };
        assert_eq!(task_text(&task), "one two\n");
        task.artifacts.push(artifact(vec![Part::text("three")]));
        task.status = status(TaskState::Completed, "one two\nthree");
        assert_eq!(task_text(&task), "one two\n\nthree");
        task.status = status(TaskState::Completed, "and that is all");
        assert_eq!(task_text(&task), "one two\n\nthree\nand that is all");
    }

    #[test]
    fn only_text_runs_together() {
        let data = Part::data(a2a::Json::from_text("[1]").unwrap());
        let mixed = artifact(vec![Part::text("a"), Part::text("b"), data, Part::text("c")]);
        assert_eq!(artifact_text(&mixed), "ab\n[1]\nc");
    }
}
