//! `sb task`: tasks that exist, looked at, followed, canceled and deleted.

use a2a::{CancelTaskRequest, ErrorKind, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest, Task, TaskState};
use agents::units::Span;
use client::{Client, Received};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    aside::Aside,
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    routes::RouteArgs,
    send::{
        FIRST_PAUSE, Heard, Patience, Place, Show, Stop, is_over, print_heard, print_text, resume, stop_text,
        task_text, verdict, waits,
    },
    table::{self, fields, table},
    target,
};

/// The most tasks of one page, as the protocol has it.
const PAGE: u32 = 100;

/// `sb task …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a task: its state and what came of it
    #[command(after_help = "Examples:\n  sb task get 0197c5a2-…\n  sb task get 0197c5a2-… -o json | jq .artifacts")]
    Get(Get),
    /// List tasks, the last one that changed first
    #[command(
        after_help = "Examples:\n  sb task list --state working\n  sb task list --agent count --limit 10 -o json"
    )]
    List(List),
    /// Cancel a task
    #[command(after_help = "Example:\n  sb task cancel 0197c5a2-…")]
    Cancel(Cancel),
    /// Delete tasks that have ended, with all that was said and made in them
    #[command(after_help = "Examples:\n  sb task delete 0197c5a2-…\n  sb task delete 0197c5a2-… 0197c5a3-… --cancel")]
    Delete(Delete),
    /// Follow a task to its end; a stream that is cut goes on by itself
    #[command(
        after_help = "Examples:\n  sb task subscribe 0197c5a2-…\n  sb task subscribe 0197c5a2-… --after 0 -o json    \
                      # everything from the start"
    )]
    Subscribe(Subscribe),
}

/// Whose task it is, for all verbs.
#[derive(Debug, clap::Args)]
struct Where {
    /// An agent of the server [default: all of them]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The server, an agent elsewhere, or a card [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How to print it: `json` is the protocol's objects, one a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

#[derive(Debug, clap::Args)]
struct Get {
    /// The task
    id: String,
    /// How many of its last messages come with it (json) [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    history: Option<i32>,
    /// Wait until its turn is over
    #[arg(long)]
    wait: bool,
    /// How often it is looked at while it is waited for
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    poll_interval: Span,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only tasks of this conversation
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
    /// Only tasks in this state: submitted, working, completed, failed, canceled, rejected, input-required, auth-required
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<TaskState>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// With artifacts (json)
    #[arg(long)]
    artifacts: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    /// The task
    id: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// The tasks
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Cancel those that have not ended first
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    common: RouteArgs,
}

/// What the server says of a deletion.
#[derive(Serialize, Deserialize)]
pub(crate) struct Deleted {
    pub(crate) deleted: u64,
    pub(crate) bytes: u64,
}

#[derive(Serialize)]
struct DeletedTask<'a> {
    task: &'a str,
    #[serde(flatten)]
    deleted: Deleted,
}

#[derive(Debug, clap::Args)]
struct Subscribe {
    /// The task
    id: String,
    /// Only what came after this event; 0 is everything from the start
    #[arg(long, value_name = "SEQUENCE")]
    after: Option<u64>,
    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    match args.verb {
        Verb::Get(args) => target::block_on(get(&args)),
        Verb::List(args) => args.place.target.block_on(list(&args)),
        Verb::Cancel(args) => args.place.target.block_on(cancel(&args)),
        Verb::Delete(args) => args.common.target.block_on(delete(&args)),
        Verb::Subscribe(args) => target::block_on(subscribe(&args)),
    }
}

impl Where {
    async fn client(&self) -> Result<Client, Failure> {
        let target = self.target.target(self.url.as_deref(), self.agent.as_deref())?;
        let options = client::Options { resume: resume(), ..self.target.client_options(target.token)? };
        Ok(Client::connect(self.target.connector(), &target.url, options).await?)
    }
}

async fn get(args: &Get) -> Result<(), Failure> {
    let mut patience = Patience::new(args.place.target.timeout.0)?;
    let place = Place { url: args.place.url.as_deref() };
    let mut last = None;
    let done = look(args, &mut patience, &mut last).await?;
    if let Some(task) = &last {
        match args.place.output {
            Format::Json => output::line(&output::one_line(task.json.get())),
            Format::Text => print_task(&task.value),
        }
    }
    let Err(stop) = done else { return Ok(()) };
    let heard = Heard::of(last.map(|task| task.value).or_else(|| nameless(&args.id, &stop)));
    Err(place.stopped(stop_text(stop, &patience), &heard, None))
}

/// Looks at the task once, or until its turn is over.
async fn look(
    args: &Get,
    patience: &mut Patience,
    last: &mut Option<Received<Task>>,
) -> Result<Result<(), Stop>, Failure> {
    let client = match patience.bear(args.place.client()).await {
        Ok(client) => client?,
        Err(stop) => return Ok(Err(stop)),
    };
    let request = || GetTaskRequest { id: args.id.clone(), history_length: args.history, ..GetTaskRequest::default() };
    let mut pause = FIRST_PAUSE;
    loop {
        let asked = match args.wait {
            true => patience.ask(async || client.get(request()).await).await,
            false => match patience.bear(client.get(request())).await {
                Ok(answer) => answer.map_err(Stop::Broken),
                Err(stop) => Err(stop),
            },
        };
        let task = match asked {
            Ok(task) => task,
            Err(stop) => return Ok(Err(stop)),
        };
        let over = is_over(task.value.status.state);
        *last = Some(task);
        if over || !args.wait {
            return Ok(Ok(()));
        }
        if let Err(stop) = patience.bear(tokio::time::sleep(pause)).await {
            return Ok(Err(stop));
        }
        pause = (pause * 2).min(args.poll_interval.0);
    }
}

/// A page with its tasks as they came.
#[derive(Deserialize)]
struct RawPage {
    #[serde(default)]
    tasks: Vec<Box<RawValue>>,
}

async fn list(args: &List) -> Result<(), Failure> {
    let client = args.place.client().await?;
    let json = args.place.output == Format::Json;
    let mut left = args.limit;
    let mut page_token = String::new();
    let mut rows = Vec::new();
    let total = loop {
        let request = ListTasksRequest {
            context_id: args.context.clone().unwrap_or_default(),
            status: args.state.unwrap_or_default(),
            page_size: i32::try_from(left.min(PAGE)).ok(),
            page_token,
            // Nothing of it is shown to people.
            history_length: (!json).then_some(0),
            include_artifacts: args.artifacts.then_some(true),
            ..ListTasksRequest::default()
        };
        let page = client.list(request).await?;
        if json {
            let raw: RawPage = serde_json::from_str(page.json.get())
                .map_err(|error| Failure::failed("malformed answer").caused_by(&error))?;
            raw.tasks.iter().for_each(|task| output::line(&output::one_line(task.get())));
        }
        rows.extend(page.value.tasks.iter().map(row));
        left = left.saturating_sub(u32::try_from(page.value.tasks.len()).unwrap_or(u32::MAX));
        page_token = page.value.next_page_token;
        if left == 0 || page_token.is_empty() || page.value.tasks.is_empty() {
            break page.value.total_size;
        }
    };
    if !json {
        output::print(&table(&["TASK", "STATE", "CHANGED", "CONTEXT"], &rows));
        if usize::try_from(total).is_ok_and(|total| total > rows.len()) {
            output::error_line("note", &format!("{} of {total} tasks; --limit shows more", rows.len()));
        }
    }
    Ok(())
}

async fn cancel(args: &Cancel) -> Result<(), Failure> {
    let client = args.place.client().await?;
    let task = client.cancel(CancelTaskRequest { id: args.id.clone(), ..CancelTaskRequest::default() }).await?;
    match args.place.output {
        Format::Json => output::line(&output::one_line(task.json.get())),
        Format::Text => output::line(&format!("task {} is {}", task.value.id, spoken(task.value.status.state))),
    }
    Ok(())
}

/// Deletes all that can be deleted; the first failure is that of the command.
async fn delete(args: &Delete) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for id in &args.ids {
        match remove(&args.common, &["v1", "requests", id], args.cancel).await {
            Ok(deleted) => {
                let text = format!("deleted task {id}, {} bytes", deleted.bytes);
                args.common.print(&DeletedTask { task: id, deleted }, &text);
            }
            Err(failure) if outcome.is_ok() => outcome = Err(failure),
            Err(failure) => failure.print(),
        }
    }
    outcome
}

/// Deletes what is at this path.
pub(crate) async fn remove(common: &RouteArgs, path: &[&str], cancel: bool) -> Result<Deleted, Failure> {
    let query: &[(&str, &str)] = if cancel { &[("cancel", "true")] } else { &[] };
    let failed = |failure: Failure| {
        if !cancel && failure.error.contains("not ended") { failure.hint("--cancel cancels it first") } else { failure }
    };
    common.call(Method::DELETE, path, query, None).await.map_err(failed)
}

async fn subscribe(args: &Subscribe) -> Result<(), Failure> {
    let mut patience = Patience::new(args.place.target.timeout.0)?;
    let mut followed = Followed { show: Show::whole(args.place.output), heard: Heard::default(), cursor: None };
    let place = Place { url: args.place.url.as_deref() };
    let done = followed.follow(args, &mut patience).await?;
    if let Err(stop) = done {
        let heard = &mut followed.heard;
        heard.task = heard.task.take().or_else(|| nameless(&args.id, &stop));
        return Err(place.stopped(stop_text(stop, &patience), heard, followed.cursor.as_deref()));
    }
    match &followed.heard.task {
        Some(task) => {
            place.say(task);
            verdict(&task.id, &task.status).map_err(|failure| failure.of(task))
        }
        // There was nothing after the event that was named.
        None => Ok(()),
    }
}

/// A task of which nothing was heard: whoever gave up waiting has its id, and where it cannot be had there is none.
fn nameless(id: &str, stop: &Stop) -> Option<Task> {
    (!matches!(stop, Stop::Broken(_))).then(|| Task { id: id.to_owned(), ..Task::default() })
}

/// A task that is followed.
struct Followed {
    show: Show,
    heard: Heard,
    cursor: Option<String>,
}

impl Followed {
    async fn follow(&mut self, args: &Subscribe, patience: &mut Patience) -> Result<Result<(), Stop>, Failure> {
        let client = match patience.bear(args.place.client()).await {
            Ok(client) => client?,
            Err(stop) => return Ok(Err(stop)),
        };
        Ok(self.events(&client, args, patience).await)
    }

    async fn events(&mut self, client: &Client, args: &Subscribe, patience: &mut Patience) -> Result<(), Stop> {
        let request = || SubscribeToTaskRequest { id: args.id.clone(), ..SubscribeToTaskRequest::default() };
        let after = args.after.map(|sequence| sequence.to_string());
        let mut stream = match patience.ask(async || client.subscribe(request(), after.clone()).await).await {
            Ok(stream) => stream,
            // It has ended, and by the protocol there is nothing to subscribe to: how it ended is the answer.
            Err(Stop::Broken(client::Error::Protocol(remote)))
                if remote.kind() == Some(ErrorKind::UnsupportedOperation) =>
            {
                return self.last(client, args, patience).await;
            }
            Err(stop) => return Err(stop),
        };
        while let Some(event) = self.show.ended_by(patience.next(&mut stream).await)? {
            self.show.event(&event);
            self.heard.add(&event.value);
            self.cursor = stream.last_id().map(str::to_owned);
            if waits(&event.value) {
                break;
            }
        }
        patience.bear(self.show.finish(&stream)).await
    }

    async fn last(&mut self, client: &Client, args: &Subscribe, patience: &mut Patience) -> Result<(), Stop> {
        let request = || GetTaskRequest { id: args.id.clone(), ..GetTaskRequest::default() };
        let task = patience.ask(async || client.get(request()).await).await?;
        self.heard.task = Some(task.value);
        match args.place.output {
            Format::Json => output::line(&format!("{{\"task\":{}}}", output::one_line(task.json.get()))),
            Format::Text => print_heard(&self.heard),
        }
        Ok(())
    }
}

fn print_task(task: &Task) {
    let state = &task.status;
    output::print(&fields(&[
        ("task", Some(task.id.clone())),
        ("context", Some(task.context_id.clone())),
        ("state", Some(spoken(state.state))),
        ("changed", state.timestamp.map(table::timestamp)),
    ]));
    let asides = Aside::all(task);
    let mut text = task_text(task);
    // What a task that went wrong says of it is in its status.
    if text.is_empty()
        && let Some(message) = &state.message
    {
        text = output::parts_text(&message.parts);
    }
    if !text.is_empty() || (!asides.is_empty() && output::is_watched()) {
        output::line("");
    }
    asides.iter().for_each(Aside::print);
    print_text(&text);
}

fn row(task: &Task) -> Vec<String> {
    let changed = task.status.timestamp.map_or_else(|| "-".to_owned(), table::timestamp);
    vec![task.id.clone(), spoken(task.status.state), changed, task.context_id.clone()]
}

/// A state as people write it: `input-required`.
pub(crate) fn spoken(state: TaskState) -> String {
    let name = state.as_str();
    name.strip_prefix("TASK_STATE_").unwrap_or(name).to_lowercase().replace('_', "-")
}

fn state(text: &str) -> Result<TaskState, String> {
    let wanted = text.to_lowercase().replace('_', "-");
    let wanted = wanted.strip_prefix("task-state-").unwrap_or(&wanted);
    let mut states = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Unspecified);
    states.find(|state| spoken(*state) == wanted).ok_or_else(|| {
        "a task is submitted, working, completed, failed, canceled, rejected, input-required or auth-required"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_shown() {
        for known in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Unspecified) {
            assert_eq!(state(&spoken(known)), Ok(known));
            assert_eq!(state(known.as_str()), Ok(known));
        }
        assert_eq!(spoken(TaskState::InputRequired), "input-required");
        assert!(state("unspecified").is_err());
        assert!(state("done").is_err());
    }
}
