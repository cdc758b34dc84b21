//! `sb task get`: one task, as it is or when its turn is over.

use a2a::{GetTaskRequest, Task};
use agents::units::Span;
use client::Received;

use super::{Where, spoken, subscribe::nameless};
use crate::{
    aside::Aside,
    failure::Failure,
    output::{self, Format},
    send::{FIRST_PAUSE, Heard, Patience, Place, Stop, Stopped, is_over, print_text, task_text},
    table::{self, fields},
};

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// The task
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

pub(super) async fn get(args: &Get) -> Result<(), Failure> {
    let mut patience = Patience::new(args.place.target.timeout.0)?;
    let place = Place::of(args.place.url.as_deref(), &args.place.target);
    let mut last = None;
    let done = look(args, &mut patience, &mut last).await;
    if let Some(task) = last.as_ref().filter(|_| !args.watch) {
        show(args, task);
    }
    let Err(stop) = done else { return Ok(()) };
    let heard = Heard::of(last.map(|task| task.value).or_else(|| nameless(&args.id, &stop)));
    Err(place.stopped(Stopped::by(stop, &patience), &heard, None))
}

fn show(args: &Get, task: &Received<Task>) {
    match args.place.output {
        Format::Json => output::line(&output::one_line(task.json.get())),
        Format::Text => {
            if args.watch && output::is_watched() {
                output::print("\u{1b}[2J\u{1b}[H");
            }
            print_task(&task.value);
        }
    }
}

/// Looks at the task once, or until its turn is over.
async fn look(args: &Get, patience: &mut Patience, last: &mut Option<Received<Task>>) -> Result<(), Stop> {
    let client = patience.bear(args.place.client()).await?.map_err(Stop::Failed)?;
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
            show(args, &task);
        }
        *last = Some(task);
        if over || !waits {
            return Ok(());
        }
        patience.bear(tokio::time::sleep(pause)).await?;
        pause = (pause * 2).min(args.poll_interval.0);
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
