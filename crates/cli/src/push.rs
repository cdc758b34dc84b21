//! `sb push`: what became of notifications, and sending again those that were given up.

use agents::units::Span;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    routes::RouteArgs,
    table::{fields, table},
    task::ids,
};

/// `sb push …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List who is told of which task, and how far that has come
    #[command(after_help = "Examples:\n  sb push list --dead\n  sb push list --task 0198…")]
    List(List),
    /// Show one of them: its dead letters and the last attempts
    Show(One),
    /// Send dead letters again, and let one that had stopped go on
    #[command(
        after_help = "Examples:\n  sb push replay 0198… my-hook\n  sb push replay 0198… my-hook --sequence 4\n  \
                            sb push replay --all-dead"
    )]
    Replay(Resend),
    /// Print the secret with which receivers verify signatures
    Secret(RouteArgs),
    /// Make a new secret and print it; notifications are signed with the one before as well for a while
    #[command(
        name = "rotate-secret",
        after_help = "At most two secrets count: rotating again ends the older one at once.\n\n\
                      Examples:\n  sb push rotate-secret\n  sb push rotate-secret --overlap 1d\n  \
                      sb push rotate-secret --now"
    )]
    RotateSecret(RotateSecret),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those that have dead letters, or do not tell any more
    #[arg(long)]
    dead: bool,
    /// Only those of this task: its id, the first characters of it, or `last`
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct One {
    /// The task: its id, the first characters of it, or `last`
    task: String,
    /// The configuration's id
    id: String,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct Resend {
    /// The task: its id, the first characters of it, or `last`
    #[arg(required_unless_present = "all_dead", requires = "id")]
    task: Option<String>,
    /// The configuration's id
    id: Option<String>,
    /// Only the dead letters of this event [default: all of them]
    #[arg(long, value_name = "NUMBER")]
    sequence: Option<u64>,
    /// All dead letters of all configurations
    #[arg(long, conflicts_with_all = ["task", "id", "sequence"])]
    all_dead: bool,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct RotateSecret {
    /// How long the secret before still counts [default: 7d]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<Span>,
    /// End the secret before at once
    #[arg(long, conflicts_with = "overlap")]
    now: bool,
    #[command(flatten)]
    common: RouteArgs,
}

/// A configuration, as the server tells it. What this version does not know of it is kept for `-o json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outbox {
    task_id: String,
    id: String,
    url: String,
    state: String,
    told: u64,
    owed: u64,
    attempt: u32,
    dead_letters: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Page {
    configs: Vec<Outbox>,
    next: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Replayed {
    replayed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_until: Option<String>,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    match args.verb {
        Verb::List(args) => args.common.target.block_on(list(&args)),
        Verb::Show(args) => args.common.target.block_on(show(&args)),
        Verb::Replay(args) => args.common.target.block_on(replay(&args)),
        Verb::Secret(common) => common.target.block_on(secret(&common)),
        Verb::RotateSecret(args) => args.common.target.block_on(rotate_secret(&args)),
    }
}

/// The whole id of a task.
async fn whole(common: &RouteArgs, task: &str) -> Result<String, Failure> {
    if !ids::is_short(task) {
        return Ok(task.to_owned());
    }
    ids::task(&common.client().await?, task, Some(common.native())).await
}

async fn list(args: &List) -> Result<(), Failure> {
    let task = match &args.task {
        Some(task) => Some(whole(&args.common, task).await?),
        None => None,
    };
    let configs = all(&args.common, args.dead, task.as_deref()).await?;
    if args.common.format() == Format::Json {
        configs.iter().for_each(print_json);
        return Ok(());
    }
    let row = |config: &Outbox| {
        let told = format!("{} of {}", config.told, config.owed.max(config.told));
        let state = if config.attempt > 0 {
            format!("{}, attempt {}", config.state, config.attempt)
        } else {
            config.state.clone()
        };
        vec![
            config.task_id.clone(),
            output::single_line(&config.id),
            state,
            told,
            config.dead_letters.len().to_string(),
            output::single_line(&config.url),
        ]
    };
    let rows: Vec<Vec<String>> = configs.iter().map(row).collect();
    output::print(&table(&["TASK", "ID", "STATE", "TOLD", "DEAD", "URL"], &rows));
    Ok(())
}

async fn show(args: &One) -> Result<(), Failure> {
    let task = whole(&args.common, &args.task).await?;
    let config: Outbox = args.common.call(Method::GET, &["v1", "push", &task, &args.id], &[], None).await?;
    if args.common.format() == Format::Json {
        print_json(&config);
        return Ok(());
    }
    output::print(&fields(&[
        ("task", Some(config.task_id.clone())),
        ("id", Some(output::single_line(&config.id))),
        ("url", Some(output::single_line(&config.url))),
        ("state", Some(config.state.clone())),
        ("told", Some(format!("event {} of {}", config.told, config.owed.max(config.told)))),
        ("attempt", (config.attempt > 0).then(|| config.attempt.to_string())),
    ]));
    let text = |entry: &Value, name: &str| match &entry[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => output::single_line(text),
        other => other.to_string(),
    };
    let rows = |entries: &[Value], names: &[&str]| -> Vec<Vec<String>> {
        entries.iter().map(|entry| names.iter().map(|name| text(entry, name)).collect()).collect()
    };
    if !config.dead_letters.is_empty() {
        let letters = rows(&config.dead_letters, &["sequence", "at", "attempts", "outcome"]);
        output::print(&format!("\ndead letters\n{}", table(&["EVENT", "AT", "ATTEMPTS", "OUTCOME"], &letters)));
    }
    if !config.attempts.is_empty() {
        let attempts = rows(&config.attempts, &["sequence", "at", "durationMs", "status", "outcome"]);
        output::print(&format!("\nattempts\n{}", table(&["EVENT", "AT", "MS", "STATUS", "OUTCOME"], &attempts)));
    }
    Ok(())
}

async fn replay(args: &Resend) -> Result<(), Failure> {
    let mut replayed = 0;
    if let (Some(task), Some(id)) = (&args.task, &args.id) {
        replayed = resend(&args.common, &whole(&args.common, task).await?, id, args.sequence).await?;
    } else {
        for config in all(&args.common, true, None).await? {
            replayed += resend(&args.common, &config.task_id, &config.id, None).await?;
        }
    }
    let text = match replayed {
        0 => "there is no dead letter to send again; what waits is tried now".to_owned(),
        1 => "1 dead letter will be sent again".to_owned(),
        _ => format!("{replayed} dead letters will be sent again"),
    };
    args.common.print(&Replayed { replayed }, &text);
    Ok(())
}

async fn secret(common: &RouteArgs) -> Result<(), Failure> {
    let secret: Secret = common.call(Method::GET, &["v1", "push", "secret"], &[], None).await?;
    print_secret(common, &secret);
    Ok(())
}

async fn rotate_secret(args: &RotateSecret) -> Result<(), Failure> {
    let seconds = if args.now { Some(0) } else { args.overlap.map(|overlap| overlap.0.as_secs()) };
    let body = seconds.map(|seconds| json!({"overlapSeconds": seconds}).to_string().into_bytes());
    let secret: Secret = args.common.call(Method::POST, &["v1", "push", "secret", "rotate"], &[], body).await?;
    print_secret(&args.common, &secret);
    Ok(())
}

fn print_secret(common: &RouteArgs, secret: &Secret) {
    common.print(secret, &secret.secret);
    if let (Format::Text, Some(end)) = (common.format(), &secret.previous_until) {
        output::error_line("note", &format!("the secret before it counts until {end}"));
    }
}

fn print_json(config: &Outbox) {
    // Plain data always serialises.
    output::line(&serde_json::to_string(config).unwrap_or_default());
}

/// All that there are, page by page.
async fn all(common: &RouteArgs, dead: bool, task: Option<&str>) -> Result<Vec<Outbox>, Failure> {
    let mut configs = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query = Vec::new();
        if dead {
            query.push(("dead", "true"));
        }
        query.extend(task.map(|task| ("task", task)));
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: Page = common.call(Method::GET, &["v1", "push"], &query, None).await?;
        configs.extend(page.configs);
        after = page.next;
        if after.is_none() {
            return Ok(configs);
        }
    }
}

async fn resend(common: &RouteArgs, task: &str, id: &str, sequence: Option<u64>) -> Result<u64, Failure> {
    let sequence = sequence.map(|number| number.to_string());
    let query: Vec<(&str, &str)> = sequence.iter().map(|number| ("sequence", number.as_str())).collect();
    let answer: Replayed = common.call(Method::POST, &["v1", "push", task, id, "replay"], &query, None).await?;
    Ok(answer.replayed)
}
