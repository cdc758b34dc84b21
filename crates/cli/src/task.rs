//! `sb task`: tasks that exist, looked at, followed, canceled, saved and deleted.

mod download;
mod get;
pub(crate) mod ids;
mod list;
pub(crate) mod logs;
mod subscribe;

use a2a::{CancelTaskRequest, TaskState};
use client::Client;
use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    routes::{Native, RouteArgs},
    send::resume,
    target,
};

/// `sb task …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a task: where it stands, what it took, its sub-tasks and its result
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  sb task get last\n  sb task get 0197c5a2-1f3\n  \
                            sb task get 0197c5a2-… -o json | jq .artifacts"
    )]
    Get(get::Get),
    /// List tasks, the last one that changed first
    #[command(
        after_help = "Examples:\n  sb task list --state working\n  sb task list --agent count --limit 10 -o json"
    )]
    List(list::List),
    /// Cancel a task
    #[command(after_help = "Examples:\n  sb task cancel last\n  sb task cancel 0197c5a2-…")]
    Cancel(Cancel),
    /// Delete tasks that have ended, with all that was said and made in them
    #[command(after_help = "Examples:\n  sb task delete 0197c5a2-…\n  sb task delete 0197c5a2-… 0197c5a3-… --cancel")]
    Delete(Delete),
    /// Follow a task to its end; a stream that is cut goes on by itself
    #[command(
        after_help = "Examples:\n  sb task subscribe 0197c5a2-…\n  sb task subscribe 0197c5a2-… --after 0 -o json    \
                      # everything from the start"
    )]
    Subscribe(subscribe::Subscribe),
    /// Print what the program of a task wrote to standard error; on the server's machine
    #[command(after_help = "Examples:\n  sb task logs last\n  sb task logs 0197c5a2-…")]
    Logs(logs::Logs),
    /// Save the files that a task has made
    #[command(after_help = "Examples:\n  sb task download 0197c5a2-… --dir ./results\n  \
                            sb task download 0197c5a2-… --all --force -o json")]
    Download(download::Download),
}

/// Whose task it is, for all verbs.
#[derive(Debug, clap::Args)]
struct Where {
    /// An agent of the server [default: all of them]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The server, an agent elsewhere, or a card [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL", alias = "agent-card", short_alias = 'a')]
    url: Option<String>,
    /// How to print it: `json` is the protocol's objects, one a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

#[derive(Debug, clap::Args)]
struct Cancel {
    /// The task: its id, the first characters of it, or `last`
    id: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// The tasks: their ids, the first characters of them, or `last`
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

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    match args.verb {
        Verb::Get(args) => target::block_on(get::get(args)),
        Verb::List(args) => target::block_on(list::list(args)),
        Verb::Cancel(args) => args.place.target.block_on(cancel(&args)),
        Verb::Delete(args) => args.common.target.block_on(delete(&args)),
        Verb::Subscribe(args) => target::block_on(subscribe::subscribe(args)),
        Verb::Logs(args) => logs::run(args),
        Verb::Download(args) => args.place.target.block_on(download::download(&args)),
    }
}

impl Where {
    async fn client(&self) -> Result<Client, Failure> {
        let target = self.target.target(self.url.as_deref(), self.agent.as_deref())?;
        let options = client::Options { resume: resume(), ..self.target.client_options(&target)? };
        Client::connect(self.target.connector(), &target.url, options).await.map_err(Failure::of_agent)
    }

    /// The server, for what the protocol has no place for. The tasks of one agent can all be sub-tasks: there, none is left out.
    fn native(&self) -> Option<Native<'_>> {
        let native = Native { target: &self.target, url: self.url.as_deref() };
        self.agent.is_none().then_some(native)
    }
}

async fn cancel(args: &Cancel) -> Result<(), Failure> {
    let client = args.place.client().await?;
    let id = ids::task_to_change(&client, &args.id, args.place.native()).await?;
    let task = client.cancel(CancelTaskRequest { id, ..CancelTaskRequest::default() }).await?;
    match args.place.output {
        Format::Json => output::line(&output::one_line(task.json.get())),
        Format::Text => {
            let id = output::single_line(&task.value.id);
            output::line(&format!("task {id} is {}", output::state(&spoken(task.value.status.state))));
        }
    }
    Ok(())
}

/// Deletes all that can be deleted; the first failure is that of the command.
async fn delete(args: &Delete) -> Result<(), Failure> {
    let mut outcome = Ok(());
    // What `last` means does not change on the way.
    let mut ids = args.ids.clone();
    if ids.iter().any(|id| ids::is_short(id)) {
        let client = args.common.client().await?;
        for id in &mut ids {
            *id = ids::task_to_change(&client, id, Some(args.common.native())).await?;
        }
    }
    for id in &ids {
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
