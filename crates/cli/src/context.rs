//! `sb context`: groups of tasks, listed and deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use a2a::{TaskState, Timestamp};
use serde::Serialize;

use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format, single_line},
    routes::RouteArgs,
    table,
    task::{self, Deleted, ids},
};

/// How many tasks `list` reads to find contexts.
const MOST: usize = 1000;

/// `sb context …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List contexts, the last one that changed first
    #[command(after_help = "Examples:\n  sb context list\n  sb context list --limit 5 -o json")]
    List(List),
    /// Delete all tasks of a context, whichever agents they are of
    #[command(after_help = "Examples:\n  sb context delete 0197c5a2-…\n  sb context delete chat-17 --cancel --yes")]
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
struct List {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// The context: its id or the first characters of it
    id: String,
    /// Cancel the tasks that have not ended first
    #[arg(long)]
    cancel: bool,
    /// Do not ask; nobody is asked without a terminal
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Serialize)]
struct DeletedContext<'a> {
    context: &'a str,
    #[serde(flatten)]
    deleted: Deleted,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    match args.verb {
        Verb::List(args) => args.common.target.block_on(list(&args)),
        Verb::Delete(mut args) => {
            if ids::is_short(&args.id) {
                args.id = args.common.target.block_on(find(&args))?;
            }
            if !args.yes && io::stdin().is_terminal() && !is_sure(&args.id)? {
                return Err(Failure::failed("nothing was deleted"));
            }
            args.common.target.block_on(delete(&args))
        }
    }
}

async fn find(args: &Delete) -> Result<String, Failure> {
    ids::context_to_change(&args.common.client().await?, &args.id).await
}

/// A context as its tasks describe it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    context_id: String,
    tasks: usize,
    /// The task that changed last, and its state.
    last_task: String,
    state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Timestamp>,
}

/// Adds up the tasks that changed last to their contexts.
async fn list(args: &List) -> Result<(), Failure> {
    let client = args.common.client().await?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut contexts: Vec<Listed> = Vec::new();
    let (mut token, mut read) = (String::new(), 0);
    loop {
        let (tasks, next) = ids::page(&client, "", &token).await?;
        read += tasks.len();
        let is_empty = tasks.is_empty();
        for task in tasks {
            match contexts.iter_mut().find(|context| context.context_id == task.context_id) {
                Some(context) => context.tasks += 1,
                None => contexts.push(Listed {
                    context_id: task.context_id,
                    tasks: 1,
                    last_task: task.id,
                    state: task.status.state,
                    changed: task.status.timestamp,
                }),
            }
        }
        token = next;
        if token.is_empty() || is_empty || read >= MOST {
            break;
        }
    }
    let is_cut = contexts.len() > limit || !token.is_empty();
    contexts.truncate(limit);
    if args.common.format() == Format::Json {
        for context in &contexts {
            // Plain data always serializes.
            output::line(&serde_json::to_string(context).unwrap_or_default());
        }
        return Ok(());
    }
    let age = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), table::age);
    let rows: Vec<Vec<String>> = contexts
        .iter()
        .map(|context| {
            let state = task::spoken(context.state);
            vec![
                context.context_id.clone(),
                context.tasks.to_string(),
                age(context.changed),
                state,
                context.last_task.clone(),
            ]
        })
        .collect();
    output::print(&table::table(&["CONTEXT", "TASKS", "AGE", "STATE", "LAST TASK"], &rows));
    if is_cut {
        let text = format!("only contexts among the last {read} tasks that changed; --limit shows more of them");
        output::error_line("note", &text);
    }
    Ok(())
}

fn is_sure(id: &str) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::failed("cannot ask").caused_by(&error).hint("--yes does not ask");
    let mut asks = io::stderr().lock();
    write!(asks, "delete all tasks of the context {}? [y/N] ", single_line(id))
        .and_then(|()| asks.flush())
        .map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn delete(args: &Delete) -> Result<(), Failure> {
    let deleted = task::remove(&args.common, &["v1", "contexts", &args.id], args.cancel).await?;
    let text = format!("deleted {} tasks of the context {}, {} bytes", deleted.deleted, args.id, deleted.bytes);
    args.common.print(&DeletedContext { context: &args.id, deleted }, &text);
    Ok(())
}
