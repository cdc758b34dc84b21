//! What was said in a conversation so far, as the agent's server has it: its tasks, oldest first.

use a2a::{ListTasksRequest, Role, Task, TaskState};
use client::Client;

use crate::{
    aside::{Aside, excerpt},
    failure::Failure,
    output::{self, Style},
    send::{message_text, print_text},
};

/// The most tasks that are shown.
const MOST: usize = 500;
/// The most tasks of one page, as the protocol has it.
const PAGE: usize = 100;
/// So many are shown of a conversation that goes on, and so much of each text.
const LAST: usize = 3;
const LAST_EXCERPT: usize = 400;

/// Prints all that was said.
pub(super) async fn print(client: &Client, context: &str) -> Result<(), Failure> {
    if context.is_empty() {
        output::error_line("note", "nothing was said yet");
        return Ok(());
    }
    let (tasks, has_more) = tasks(client, context, MOST).await?;
    if tasks.is_empty() {
        output::error_line("note", &format!("the server has nothing of the conversation {context}"));
    }
    if has_more {
        output::error_line("note", &format!("only the last {MOST} tasks are shown"));
    }
    for task in &tasks {
        show(task, None);
    }
    Ok(())
}

/// Prints the last of what was said, for somebody who comes back.
pub(super) async fn recall(client: &Client, context: &str) -> Result<(), Failure> {
    let (tasks, has_more) = tasks(client, context, LAST).await?;
    match (tasks.is_empty(), has_more) {
        (true, _) => output::error_line("note", "nothing was said in this conversation yet"),
        (false, true) => output::aside("… (/history shows all)"),
        (false, false) => {}
    }
    for task in &tasks {
        show(task, Some(LAST_EXCERPT));
    }
    Ok(())
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
    // The last one that changed comes first.
    tasks.reverse();
    Ok((tasks, has_more))
}

/// Prints a task as a conversation: what was asked behind the prompt's sign, and what was answered.
fn show(task: &Task, most: Option<usize>) {
    let shorten = |text: String| match most {
        Some(most) if text.chars().count() > most => excerpt(&text, most),
        _ => text,
    };
    for message in &task.history {
        let text = shorten(message_text(message));
        if message.role == Role::User {
            let text = output::harmless(&text).replace('\n', "\n  ");
            output::line(&output::styled(Style::Bold, &format!("> {text}")));
        } else {
            print_text(&text);
        }
    }
    Aside::all(task).iter().for_each(Aside::print);
    let answers = task.artifacts.iter().filter(|artifact| Aside::of(artifact).is_none());
    let answers: Vec<String> = answers.map(|artifact| output::parts_text(&artifact.parts)).collect();
    for answer in &answers {
        print_text(&shorten(answer.clone()));
    }
    let said = task.status.message.as_ref().map(|message| shorten(message_text(message)));
    match (task.status.state, said) {
        (TaskState::Completed, Some(text)) if answers.is_empty() => print_text(&text),
        (TaskState::Completed | TaskState::Submitted | TaskState::Working, _) => {}
        (state, Some(text)) if state.is_interrupted() => print_text(&text),
        (state, said) => {
            let state = state.as_str().trim_start_matches("TASK_STATE_").to_lowercase();
            output::aside(&said.map_or_else(|| state.clone(), |text| format!("{state}: {text}")));
        }
    }
}
