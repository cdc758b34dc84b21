//! `sb task logs`: what the program of a task wrote to standard error, as the server on this machine keeps it.

use std::{fs, path::Path};

use agents::command::record_of;
use client::Client;
use serde_json::{Value, json};
use store::TaskId;

use super::ids;
use crate::{
    config::process_environment,
    failure::Failure,
    output::{self, Format, single_line},
    routes::{self, Native},
    target::TargetArgs,
};

#[derive(Debug, clap::Args)]
pub(super) struct Logs {
    /// The task: its id, the first characters of it, or `last`
    id: String,
    /// How to print it: `json` is one object
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn run(mut args: Logs) -> Result<(), Failure> {
    if ids::is_short(&args.id) {
        args.id = args.target.block_on(find(&args))?;
    }
    if TaskId::parse(&args.id).is_none() {
        return Err(Failure::usage(format!("`{}` is not the id of a task of this server", args.id)));
    }
    let settings = args.target.settings(&process_environment)?;
    let data_dir = settings.data_dir(&process_environment)?;
    let Some((path, text)) = kept(&data_dir, &args.id) else {
        let agent = args.target.block_on(agent(&args)).ok().flatten();
        let log = match agent {
            Some(agent) => format!("`sb agent logs {}`", single_line(&agent)),
            None => "`sb agent logs NAME`".to_owned(),
        };
        let hint = format!(
            "the server's machine has it, for the newest 200 tasks of an agent; {log} shows what programs that stay have written"
        );
        return Err(Failure::failed(format!(
            "nothing is kept of what a program wrote to standard error for task {}",
            args.id
        ))
        .because(format!("`{}` has no record of it that this user can read", data_dir.display()))
        .hint(hint));
    };
    match args.output {
        Format::Text => output::print_foreign(&text),
        Format::Json => output::line(&json!({"task": args.id, "path": path, "stderr": text}).to_string()),
    }
    Ok(())
}

/// The whole id, as the server knows it.
async fn find(args: &Logs) -> Result<String, Failure> {
    let target = args.target.target(None, None)?;
    let options = args.target.client_options(&target)?;
    let client = Client::connect(args.target.connector(), &target.url, options).await?;
    ids::task(&client, &args.id, Some(Native { target: &args.target, url: None })).await
}

/// The agent of the task, where the server can be asked.
async fn agent(args: &Logs) -> Result<Option<String>, Failure> {
    let found: Option<Value> = routes::ask(&args.target, None, &["v1", "requests", &args.id], &[]).await;
    Ok(found.and_then(|found| Some(found["request"]["agent_id"].as_str()?.to_owned())))
}

/// What is kept for a task below a data directory, and where.
pub(crate) fn kept(data_dir: &Path, task: &str) -> Option<(String, String)> {
    let path = record_of(data_dir, TaskId::parse(task)?)?;
    let bytes = fs::read(&path).ok()?;
    Some((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()))
}
