//! What was said in a conversation so far, as the agent's server has it: its tasks, oldest first. It is printed, or written to a file.

use a2a::{ListTasksRequest, Role, Task, TaskState};
use client::Client;

use crate::{
    aside::{Aside, excerpt},
    failure::Failure,
    output::{self, Style},
    send::{message_text, print_text},
    task::{ids, spoken},
};

/// The most tasks that are shown.
const MOST: usize = 500;
/// The most tasks of one page, as the protocol has it.
const PAGE: usize = 100;
/// So many are shown of a conversation that goes on, and so much of each text.
const LAST: usize = 3;
const LAST_EXCERPT: usize = 400;

/// One thing that was said.
enum Entry {
    /// By the person.
    Asked(String),
    /// By the agent.
    Answered(String),
    /// Beside the answer, a line.
    Beside(String),
}

/// Prints all that was said.
pub(super) async fn print(client: &Client, context: &str) -> Result<(), Failure> {
    let Some(tasks) = all(client, context).await? else { return Ok(()) };
    for task in &tasks {
        show(task, None);
    }
    Ok(())
}

/// All that was said as text, if there is anything.
pub(super) async fn text(client: &Client, context: &str) -> Result<Option<String>, Failure> {
    let Some(tasks) = all(client, context).await? else { return Ok(None) };
    let mut text = String::new();
    for task in &tasks {
        for entry in entries(task, None) {
            let said = match &entry {
                Entry::Asked(said) => format!("> {}", said.replace('\n', "\n> ")),
                Entry::Answered(said) => said.clone(),
                Entry::Beside(said) => format!("· {}", said.replace('\n', " ")),
            };
            text.push_str(&format!("{}\n", said.trim_end_matches('\n')));
        }
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The tasks of a conversation, as many as are shown. `None` when nothing was said.
async fn all(client: &Client, context: &str) -> Result<Option<Vec<Task>>, Failure> {
    if context.is_empty() {
        output::error_line("note", "nothing was said yet");
        return Ok(None);
    }
    let (tasks, has_more) = tasks(client, context, MOST).await?;
    if tasks.is_empty() {
        output::error_line("note", &format!("the server has nothing of the conversation {context}"));
    }
    if has_more {
        output::error_line("note", &format!("these are only the last {MOST} tasks"));
    }
    Ok(Some(tasks))
}

/// Prints the last of what was said, for somebody who comes back. Gives the last task.
pub(super) async fn recall(client: &Client, context: &str) -> Result<Option<Task>, Failure> {
    let (mut tasks, has_more) = tasks(client, context, LAST).await?;
    match (tasks.is_empty(), has_more) {
        (true, _) => output::error_line("note", "nothing was said in this conversation yet"),
        (false, true) => output::aside("… (/history shows all)"),
        (false, false) => {}
    }
    for task in &tasks {
        show(task, Some(LAST_EXCERPT));
    }
    Ok(tasks.pop())
}

/// The last task of a conversation.
pub(super) async fn last(client: &Client, context: &str) -> Result<Option<Task>, Failure> {
    Ok(tasks(client, context, 1).await?.0.pop())
}

/// The last tasks of a conversation, oldest first, and whether there are more.
async fn tasks(client: &Client, context: &str, most: usize) -> Result<(Vec<Task>, bool), Failure> {
    let mut tasks = Vec::new();
    let mut page_token = String::new();
    let has_more = loop {
        let request = ListTasksRequest {
            context_id: context.to_owned(),
            page_size: i32::try_from((most - tasks.len()).min(PAGE)).ok(),
            page_token,
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        let page = client.list(request).await?.value;
        let is_empty = page.tasks.is_empty();
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if page_token.is_empty() || is_empty || tasks.len() >= most {
            break !page_token.is_empty();
        }
    };
    tasks.truncate(most);
    // The last one that changed comes first; a conversation is in the order in which its tasks began.
    tasks.reverse();
    ids::sort(&mut tasks);
    Ok((tasks, has_more))
}

/// Prints a task as a conversation: what was asked behind the prompt's sign, and what was answered.
fn show(task: &Task, most: Option<usize>) {
    for entry in entries(task, most) {
        match entry {
            Entry::Asked(text) => {
                let text = output::harmless(&text).replace('\n', "\n  ");
                output::line(&output::styled(Style::Bold, &format!("> {text}")));
            }
            Entry::Answered(text) => print_text(&text),
            Entry::Beside(text) => output::aside(&text),
        }
    }
}

/// A task as a conversation, with at most so much of each text.
fn entries(task: &Task, most: Option<usize>) -> Vec<Entry> {
    let shorten = |text: String| match most {
        Some(most) if text.chars().count() > most => excerpt(&text, most),
        _ => text,
    };
    let mut entries = Vec::new();
    for message in &task.history {
        let text = shorten(message_text(message));
        entries.push(if message.role == Role::User { Entry::Asked(text) } else { Entry::Answered(text) });
    }
    entries.extend(Aside::all(task).iter().map(|aside| Entry::Beside(aside.text())));
    let answers = task.artifacts.iter().filter(|artifact| Aside::of(artifact).is_none());
    let answers: Vec<String> = answers.map(|artifact| output::parts_text(&artifact.parts)).collect();
    entries.extend(answers.iter().map(|answer| Entry::Answered(shorten(answer.clone()))));
    let said = task.status.message.as_ref().map(|message| shorten(message_text(message)));
    match (task.status.state, said) {
        (TaskState::Completed, Some(text)) if answers.is_empty() => entries.push(Entry::Answered(text)),
        (TaskState::Completed | TaskState::Submitted | TaskState::Working, _) => {}
        (state, Some(text)) if state.is_interrupted() => entries.push(Entry::Answered(text)),
        (state, said) => {
            let state = spoken(state);
            entries.push(Entry::Beside(said.map_or_else(|| state.clone(), |text| format!("{state}: {text}"))));
        }
    }
    entries
}
