//! `sb task get`: one task, as it is or when its turn is over.

use a2a::{GetTaskRequest, Role, Task, TaskState, Timestamp};
use agents::units::Span;
use client::Received;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Where, ids, spoken, subscribe::nameless};
use crate::{
    aside::{Aside, excerpt},
    failure::Failure,
    output::{self, Format},
    routes,
    send::{FIRST_PAUSE, Heard, Patience, Place, Stop, Stopped, is_over, message_text, print_text, task_text},
    table::{self, fields},
};

/// So much of the input is shown.
const WORDS: usize = 100;
/// How deep sub-tasks are followed, and how many are shown.
const DEEPEST: usize = 5;
const MOST_SHOWN: usize = 50;

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// The task: its id, the first characters of it, or `last`
    id: String,
    /// How many of its last messages come with it (json) [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    history: Option<i32>,
    /// Wait until its turn is over
    #[arg(long)]
    wait: bool,
    /// Wait until its turn is over, and show it anew whenever it has changed
    #[arg(long, conflicts_with = "wait")]
    watch: bool,
    /// How often it is looked at while it is waited for
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    poll_interval: Span,
    #[command(flatten)]
    pub(super) place: Where,
}

pub(super) async fn get(mut args: Get) -> Result<(), Failure> {
    let mut patience = Patience::new(args.place.target.timeout.0)?;
    let place = Place::of(args.place.url.as_deref(), &args.place.target);
    let mut last = None;
    let done = look(&mut args, &mut patience, &mut last).await;
    if let Some(task) = last.as_ref().filter(|_| !args.watch) {
        let details = patience.bear(Details::of(&args, task)).await.ok().flatten();
        show(&args, task, details.as_ref());
    }
    let Err(stop) = done else {
        let task = last.map(|task| task.value);
        if args.place.output == Format::Text
            && let Some(hint) = task.and_then(|task| place.last_words(&task.id, task.status.state))
        {
            output::error_line("note", &hint);
        }
        return Ok(());
    };
    let heard = Heard::of(last.map(|task| task.value).or_else(|| nameless(&args.id, &stop)));
    Err(place.stopped(Stopped::by(stop, &patience), &heard, None))
}

fn show(args: &Get, task: &Received<Task>, details: Option<&Details>) {
    match args.place.output {
        Format::Json => output::line(&with_members(&output::one_line(task.json.get()), details.map(Details::members))),
        Format::Text => {
            if args.watch && output::is_watched() {
                output::print("\u{1b}[2J\u{1b}[H");
            }
            print_task(&task.value, details);
        }
    }
}

/// Looks at the task once, or until its turn is over.
async fn look(args: &mut Get, patience: &mut Patience, last: &mut Option<Received<Task>>) -> Result<(), Stop> {
    let client = patience.bear(args.place.client()).await?.map_err(Stop::Failed)?;
    args.id = patience.bear(ids::task(&client, &args.id, args.place.native())).await?.map_err(Stop::Failed)?;
    let args = &*args;
    let request = || GetTaskRequest { id: args.id.clone(), history_length: args.history, ..GetTaskRequest::default() };
    let waits = args.wait || args.watch;
    let mut pause = FIRST_PAUSE;
    loop {
        let task = if waits {
            patience.ask(async || client.get(request()).await).await?
        } else {
            patience.bear(client.get(request())).await?.map_err(Stop::Broken)?
        };
        let over = is_over(task.value.status.state);
        if args.watch && last.as_ref().is_none_or(|before| before.json.get() != task.json.get()) {
            let details = patience.bear(Details::of(args, &task)).await?;
            show(args, &task, details.as_ref());
        }
        *last = Some(task);
        if over || !waits {
            return Ok(());
        }
        patience.bear(tokio::time::sleep(pause)).await?;
        pause = (pause * 2).min(args.poll_interval.0);
    }
}

/// A task as the server's own route tells of it.
#[derive(Deserialize)]
struct Request {
    #[serde(flatten)]
    relative: Relative,
    #[serde(default)]
    attempts: u32,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    parent: Option<Relative>,
    #[serde(default)]
    children: Vec<Relative>,
}

/// A task that another was begun for, or by.
#[derive(Clone, Deserialize)]
struct Relative {
    request_id: String,
    agent_id: String,
    state: String,
}

#[derive(Deserialize)]
struct Answer {
    request: Request,
}

/// What the server says of a task beyond the protocol, and its sub-tasks.
struct Details {
    request: Request,
    /// The sub-tasks in the order in which they are shown, each with how deep it is.
    tree: Vec<(usize, Relative)>,
}

impl Details {
    /// Nothing where the server is not one of ours.
    async fn of(args: &Get, task: &Received<Task>) -> Option<Self> {
        let request = Request::read(args, &task.value.id).await?;
        let mut tree = Vec::new();
        // The next one is the last.
        let mut waiting: Vec<(usize, Relative)> =
            request.children.iter().rev().map(|child| (1, child.clone())).collect();
        while let Some((depth, task)) = waiting.pop() {
            if tree.len() == MOST_SHOWN {
                break;
            }
            if depth < DEEPEST
                && let Some(below) = Request::read(args, &task.request_id).await
            {
                waiting.extend(below.children.into_iter().rev().map(|child| (depth + 1, child)));
            }
            tree.push((depth, task));
        }
        Some(Self { request, tree })
    }

    fn has_relatives(&self) -> bool {
        self.request.parent.is_some() || !self.tree.is_empty()
    }

    /// A line for each task, from the parent down.
    fn tree(&self, task: &Task) -> String {
        let line = |depth: usize, id: &str, agent: &str, state: &str| {
            let (agent, id) = (output::single_line(agent), output::single_line(id));
            format!("{}{id}  {agent}  {}\n", "  ".repeat(depth), output::state(state))
        };
        let of = |depth, task: &Relative| line(depth, &task.request_id, &task.agent_id, &state_name(&task.state));
        let parent = self.request.parent.as_ref();
        let own = usize::from(parent.is_some());
        let mut text = parent.map(|parent| of(0, parent)).unwrap_or_default();
        text += &line(own, &task.id, &self.request.relative.agent_id, &spoken(task.status.state));
        self.tree.iter().for_each(|(depth, task)| text += &of(own + depth, task));
        text
    }

    /// The members that `-o json` adds to the task.
    fn members(&self) -> Value {
        let request = &self.request;
        let relative =
            |task: &Relative| json!({"id": task.request_id, "agent": task.agent_id, "state": state_name(&task.state)});
        json!({
            "agent": request.relative.agent_id,
            "attempts": request.attempts,
            "usage": {"inputTokens": request.input_tokens, "outputTokens": request.output_tokens},
            "parent": request.parent.as_ref().map(relative),
            "children": request.children.iter().map(relative).collect::<Vec<_>>(),
        })
    }
}

impl Request {
    async fn read(args: &Get, id: &str) -> Option<Self> {
        let Where { target, url, .. } = &args.place;
        let answer: Answer =
            routes::ask(target, url.as_deref(), &["v1", "requests", id], &[("children", "true")]).await?;
        Some(answer.request)
    }

    fn tokens(&self) -> Option<String> {
        let (input, output) = (self.input_tokens, self.output_tokens);
        (input + output > 0).then(|| format!("{input} in, {output} out"))
    }
}

/// A state of the native route as people write it.
fn state_name(state: &str) -> String {
    match state {
        "cancelled" => "canceled".to_owned(),
        "running" => "working".to_owned(),
        other => output::single_line(other),
    }
}

/// A JSON object with further members in front.
fn with_members(object: &str, members: Option<Value>) -> String {
    let added = members.map(|members| members.to_string()).unwrap_or_default();
    match (added.strip_suffix('}'), object.strip_prefix('{')) {
        (Some(added), Some(rest)) => format!("{added}{}{rest}", if rest == "}" { "" } else { "," }),
        _ => object.to_owned(),
    }
}

/// When a task began, where its id tells it: a UUIDv7 begins with the milliseconds.
fn started(task: &Task) -> Option<Timestamp> {
    let id = Uuid::parse_str(&task.id).ok().filter(|id| id.get_version_num() == 7)?;
    i64::try_from(id.as_u128() >> 80).ok().map(Timestamp::from_millis)
}

/// How long it took, or has taken so far.
fn duration(task: &Task) -> Option<String> {
    let started = started(task)?;
    let end = task.status.timestamp.filter(|_| task.status.state.is_terminal()).unwrap_or_else(store::clock::now);
    let millis = (end.as_millis() - started.as_millis()).max(0);
    Some(match millis {
        ..10_000 => format!("{millis} ms"),
        10_000..600_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} min", millis / 60_000),
    })
}

fn print_task(task: &Task, details: Option<&Details>) {
    let state = &task.status;
    let request = details.map(|details| &details.request);
    let has_started = state.state != TaskState::Submitted || request.is_some_and(|request| request.attempts > 0);
    let input = task.history.iter().find(|message| message.role == Role::User);
    let input = input.map(|message| excerpt(&message_text(message), WORDS)).filter(|text| !text.is_empty());
    output::print(&fields(&[
        ("task", Some(task.id.clone())),
        ("agent", request.map(|request| request.relative.agent_id.clone())),
        ("context", Some(task.context_id.clone())),
        ("state", Some(spoken(state.state))),
        ("input", input),
        ("started", started(task).filter(|_| has_started).map(table::timestamp)),
        ("changed", state.timestamp.map(table::timestamp)),
        ("duration", duration(task).filter(|_| has_started)),
        ("attempts", request.map(|request| request.attempts.to_string())),
        ("tokens", request.and_then(Request::tokens)),
    ]));
    if let Some(details) = details.filter(|details| details.has_relatives()) {
        output::line("");
        output::print(&details.tree(task));
    }
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
