//! `sb context`: what groups tasks, and goes with all of them.

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::single_line,
    routes::RouteArgs,
    task::{self, Deleted},
};

/// `sb context …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Delete all tasks of a context, whichever agents they are of
    #[command(after_help = "Examples:\n  sb context delete 0197c5a2-…\n  sb context delete chat-17 --cancel --yes")]
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// The context
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
    let Verb::Delete(args) = args.verb;
    if !args.yes && io::stdin().is_terminal() && !is_sure(&args.id)? {
        return Err(Failure::failed("nothing was deleted"));
    }
    args.common.target.block_on(delete(&args))
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
