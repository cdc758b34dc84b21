//! `sb task list`: which tasks there are, whose, about what, where they stand and since when.

use std::{collections::BTreeMap, time::Duration};

use a2a::{ListTasksRequest, Role, Task, TaskState};
use agents::units::Span;
use client::Client;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Where, ids, spoken, state};
use crate::{
    aside::excerpt,
    failure::Failure,
    output::{self, Format, Style},
    routes,
    send::{Patience, Stop, Stopped, message_text},
    table::{self, table},
};

/// The most tasks of one page, as the protocol has it.
const PAGE: u32 = 100;
/// As many as the server names at once.
const RECENT: &str = "200";
/// So much of the input is shown where nothing says how wide a line is.
const WORDS: usize = 60;
/// Longer than anybody watches.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only tasks of this conversation
    #[arg(long, value_name = "CONTEXT", alias = "context-id")]
    context: Option<String>,
    /// Only tasks in this state: submitted, working, completed, failed, canceled, rejected, input-required, auth-required
    #[arg(long, value_name = "STATE", value_parser = state, alias = "status")]
    state: Option<TaskState>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// With artifacts (json)
    #[arg(long)]
    artifacts: bool,
    /// Go on until Ctrl-C: a terminal shows the list anew, and elsewhere what has changed is printed
    #[arg(long)]
    watch: bool,
    /// How often it is looked with --watch
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    poll_interval: Span,
    #[command(flatten)]
    pub(super) place: Where,
}

/// A page with its tasks as they came.
#[derive(Deserialize)]
struct RawPage {
    #[serde(default)]
    tasks: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Requests {
    requests: Vec<Request>,
}

#[derive(Deserialize)]
struct One {
    request: Request,
}

/// What the server says of a task beyond the protocol.
#[derive(Deserialize)]
struct Request {
    request_id: String,
    agent_id: String,
}

/// A task that was listed.
struct Listed {
    task: Task,
    json: Box<RawValue>,
}

/// What is remembered of tasks, since it does not change.
#[derive(Default)]
struct Known {
    agents: BTreeMap<String, String>,
    inputs: BTreeMap<String, String>,
    /// The server does not tell whose tasks they are.
    mute: bool,
}

pub(super) async fn list(mut args: List) -> Result<(), Failure> {
    let limit = if args.watch { FOR_EVER } else { args.place.target.timeout.0 };
    let mut patience = Patience::new(limit)?;
    let client = match patience.bear(args.place.client()).await {
        Ok(client) => client?,
        Err(stop) => return Err(Stopped::by(stop, &patience).plain()),
    };
    if let Some(context) = &mut args.context {
        *context = match patience.bear(ids::context(&client, context)).await {
            Ok(context) => context?,
            Err(stop) => return Err(Stopped::by(stop, &patience).plain()),
        };
    }
    let args = &args;
    let mut known = Known::default();
    let mut before: Option<Vec<String>> = None;
    loop {
        match patience.bear(listed(args, &client, &mut known)).await {
            Ok(Ok((tasks, total))) => {
                patience.notice(None);
                before = Some(show(args, &tasks, total, &known, before.as_deref()));
            }
            Ok(Err(error)) if args.watch && error.is_passing() => patience.notice(Some((&error).into())),
            Ok(Err(error)) => return Err(error.into()),
            Err(Stop::Interrupted) if args.watch => {
                end_watch(args);
                return Ok(());
            }
            Err(stop) => return Err(Stopped::by(stop, &patience).plain()),
        }
        if !args.watch {
            return Ok(());
        }
        if patience.bear(tokio::time::sleep(args.poll_interval.0)).await.is_err() {
            end_watch(args);
            return Ok(());
        }
    }
}

/// Leaves the list that was drawn where it is.
fn end_watch(args: &List) {
    if args.place.output == Format::Text && output::is_watched() {
        output::line("");
    }
}

/// One look at the tasks, and at what is not known of them yet.
async fn listed(args: &List, client: &Client, known: &mut Known) -> Result<(Vec<Listed>, i32), client::Error> {
    let is_text = args.place.output == Format::Text;
    let mut left = args.limit;
    let mut page_token = String::new();
    let mut tasks: Vec<Listed> = Vec::new();
    let total = loop {
        let request = ListTasksRequest {
            context_id: args.context.clone().unwrap_or_default(),
            status: args.state.unwrap_or_default(),
            page_size: i32::try_from(left.min(PAGE)).ok(),
            page_token,
            // The input is the begin of the history, and is asked for once.
            history_length: (is_text && !known.inputs.is_empty()).then_some(0),
            include_artifacts: args.artifacts.then_some(true),
            ..ListTasksRequest::default()
        };
        let page = client.list(request).await?;
        let raw: RawPage =
            serde_json::from_str(page.json.get()).map_err(|error| client::Error::Malformed(error.to_string()))?;
        let count = page.value.tasks.len();
        tasks.extend(page.value.tasks.into_iter().zip(raw.tasks).map(|(task, json)| Listed { task, json }));
        left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        page_token = page.value.next_page_token;
        if left == 0 || page_token.is_empty() || count == 0 {
            break page.value.total_size;
        }
    };
    if is_text {
        known.learn_inputs(client, &tasks).await;
    }
    if args.place.agent.is_none() && client.resumes() {
        known.learn_agents(&args.place, &tasks).await;
    }
    Ok((tasks, total))
}

/// Prints what there is, or what has changed since it was last printed. Gives what is to be compared with the next time.
fn show(args: &List, tasks: &[Listed], total: i32, known: &Known, before: Option<&[String]>) -> Vec<String> {
    let agent = |task: &Task| args.place.agent.as_deref().or_else(|| known.agents.get(&task.id).map(String::as_str));
    if args.place.output == Format::Json {
        let lines: Vec<String> = tasks.iter().map(|listed| line(listed, agent(&listed.task))).collect();
        let is_new = |line: &&String| before.is_none_or(|before| !before.contains(line));
        lines.iter().filter(is_new).for_each(|line| output::line(line));
        return lines;
    }
    let marks: Vec<String> = tasks.iter().map(|listed| mark(&listed.task)).collect();
    let redrawn = args.watch && output::is_watched();
    let is_new = |at: usize| redrawn || before.is_none_or(|before| !before.contains(&marks[at]));
    let shown = tasks.iter().enumerate().filter(|(at, _)| is_new(*at)).map(|(_, listed)| &listed.task);
    let rows: Vec<Vec<String>> = shown.map(|task| row(task, agent(task), known)).collect();
    if before.is_some() && rows.is_empty() && !redrawn {
        return marks;
    }
    let text = table(&["TASK", "AGENT", "STATE", "AGE", "CONTEXT", "INPUT"], &rows);
    if redrawn {
        draw(&text, before.is_none());
    } else {
        output::print(&text);
    }
    if !redrawn && before.is_none() && usize::try_from(total).is_ok_and(|total| total > tasks.len()) {
        output::error_line("note", &format!("{} of {total} tasks; --limit shows more", tasks.len()));
    }
    marks
}

/// Draws as much of a table as the terminal has room for, over what is there.
fn draw(text: &str, is_first: bool) {
    let most = output::height().unwrap_or(usize::MAX);
    let lines: Vec<&str> = text.lines().collect();
    // The last line says what is left out.
    let shown = if lines.len() > most { most.saturating_sub(1) } else { lines.len() };
    // No line wraps: some characters are wider than one column.
    let mut drawn = if is_first { "\u{1b}[?7l\u{1b}[2J\u{1b}[H" } else { "\u{1b}[?7l\u{1b}[H" }.to_owned();
    drawn += &lines[..shown].join("\u{1b}[K\r\n");
    if shown < lines.len() {
        drawn += &format!("\u{1b}[K\r\n{}", output::styled(Style::Dim, &format!("{} more", lines.len() - shown)));
    }
    output::print(&(drawn + "\u{1b}[K\u{1b}[J\u{1b}[?7h"));
}

/// What changes when a task does.
fn mark(task: &Task) -> String {
    let at = task.status.timestamp.map(|at| at.as_millis()).unwrap_or_default();
    format!("{} {} {at}", task.id, task.status.state.as_str())
}

/// The task as it came, and whose it is.
fn line(listed: &Listed, agent: Option<&str>) -> String {
    let task = output::one_line(listed.json.get());
    match (agent, task.strip_prefix('{')) {
        (Some(agent), Some(members)) => {
            let comma = if members.starts_with('}') { "" } else { "," };
            format!("{{\"agent\":{}{comma}{members}", serde_json::Value::from(agent))
        }
        _ => task,
    }
}

fn row(task: &Task, agent: Option<&str>, known: &Known) -> Vec<String> {
    let input = known.inputs.get(&task.id).map(String::as_str).unwrap_or_default();
    let age = task.status.timestamp.map_or_else(|| "-".to_owned(), table::age);
    let agent = agent.unwrap_or("-").to_owned();
    vec![task.id.clone(), agent, spoken(task.status.state), age, task.context_id.clone(), excerpt(input, WORDS)]
}

impl Known {
    /// What tasks were begun with, as far as that is not known.
    async fn learn_inputs(&mut self, client: &Client, tasks: &[Listed]) {
        let is_first = self.inputs.is_empty();
        for Listed { task, .. } in tasks {
            if self.inputs.contains_key(&task.id) {
                continue;
            }
            let text = if is_first {
                input(task)
            } else {
                let request = a2a::GetTaskRequest { id: task.id.clone(), ..a2a::GetTaskRequest::default() };
                client.get(request).await.ok().and_then(|task| input(&task.value))
            };
            self.inputs.insert(task.id.clone(), text.unwrap_or_default());
        }
    }

    /// Whose tasks they are, which the protocol has no place for. What cannot be had is left out.
    async fn learn_agents(&mut self, place: &Where, tasks: &[Listed]) {
        if self.mute || tasks.iter().all(|listed| self.agents.contains_key(&listed.task.id)) {
            return;
        }
        let Some(recent) =
            routes::ask::<Requests>(&place.target, place.url.as_deref(), &["v1", "requests"], &[("limit", RECENT)])
                .await
        else {
            self.mute = true;
            return;
        };
        self.agents.extend(recent.requests.into_iter().map(|request| (request.request_id, request.agent_id)));
        for Listed { task, .. } in tasks {
            if !self.agents.contains_key(&task.id)
                && let Some(one) =
                    routes::ask::<One>(&place.target, place.url.as_deref(), &["v1", "requests", &task.id], &[]).await
            {
                self.agents.insert(one.request.request_id, one.request.agent_id);
            }
        }
    }
}

/// What the task was begun with.
fn input(task: &Task) -> Option<String> {
    task.history.iter().find(|message| message.role == Role::User).map(message_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_says_whose_task_it_is() {
        let listed =
            |json: &str| Listed { task: Task::default(), json: RawValue::from_string(json.to_owned()).unwrap() };
        assert_eq!(line(&listed("{\"id\": \"t\"}"), Some("a\"b")), "{\"agent\":\"a\\\"b\",\"id\":\"t\"}");
        assert_eq!(line(&listed("{}"), Some("a")), "{\"agent\":\"a\"}");
        assert_eq!(line(&listed("{\"id\": \"t\"}"), None), "{\"id\":\"t\"}");
    }
}
