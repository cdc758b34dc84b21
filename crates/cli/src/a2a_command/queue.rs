//! The verbs of the queue. Each is one call of the server's own routes, `/v1/queue`; `consume --wait` is as many as it takes.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use a2a::Task;
use agents::units::Span;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::time::Instant;

use crate::{
    failure::Failure,
    output::{self, Format},
    routes::RouteArgs,
    send::{print_reply, verdict},
    table::{fields, table},
    task::ids,
};

/// How long the server is asked to wait at once. The verb asks again.
const LONG_POLL: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Put work into an agent's queue; prints its message id
    #[command(
        after_help = "Examples:\n  sb a2a publish planner researcher \"Summarize latest release notes\" \\\n    \
                            --payload-json '{\"topic\":\"release-notes\"}'\n  \
                            sb a2a publish cron report \"monthly\" --delay 1h --priority 5 --max-attempts 10"
    )]
    Publish(Publish),
    /// Take what waits for an agent; the entry is yours until its lease runs out
    #[command(
        after_help = "Examples:\n  sb a2a consume researcher --json\n  sb a2a consume researcher --wait --lease 60 --max 10\n\nPrints nothing, and \
                            exits with 0, when there is nothing."
    )]
    Consume(Consume),
    /// Take one entry by its id, whatever stands before it
    Claim(Claim),
    /// Keep an entry for longer, and hear whether its task was canceled
    Heartbeat(Heartbeat),
    /// Say something about an entry: a word on the progress, or events of a program
    Progress(Progress),
    /// End an entry as done
    Ack(Ack),
    /// Give an entry back: it waits for another attempt, or becomes a dead letter
    Nack(Nack),
    /// Run an entry by the agent that it is for, and print the result
    Execute(One),
    /// Print an entry
    Show(One),
    /// How many entries there are, of which agent and where they stand
    Status(Status),
    /// List dead letters: entries that failed once too often
    Dlq(Dlq),
    /// Put dead letters into the queue again, as new entries that name them
    ReplayDlq(Replay),
}

#[derive(Debug, clap::Args)]
pub(super) struct Publish {
    /// Who wants it done
    from: String,
    /// The agent whose work it is; nobody has to serve it
    to: String,
    /// What is to be done
    text: String,
    /// The same for programs: any JSON, or @FILE, or @- for what comes on stdin
    #[arg(long, value_name = "JSON")]
    payload_json: Option<Json>,
    /// What it belongs to; the context of its task [default: nothing]
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// How long nobody gets it: `30`, `90s`, `2h`
    #[arg(long, value_name = "DURATION")]
    delay: Option<Seconds>,
    /// From 0 to 9; the higher comes first
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u8,
    /// How often it may be tried [default: its agent's, else 3]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Consume {
    /// The agent
    agent: String,
    /// Wait until there is something, or for so long
    #[arg(long, value_name = "DURATION", num_args = 0..=1)]
    wait: Option<Option<Seconds>>,
    #[command(flatten)]
    term: TermArgs,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: usize,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct TermArgs {
    /// For how long it is yours [default: 300]
    #[arg(long, value_name = "SECONDS")]
    lease: Option<Seconds>,
    /// What you are called while you hold it [default: an id]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Claim {
    /// The entry's message id, the first characters of it, or `last`
    id: String,
    #[command(flatten)]
    term: TermArgs,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
struct HeldArgs {
    /// The entry's message id, the first characters of it, or `last`
    id: String,
    /// The lease that came with the entry [default: whoever holds it now is meant]
    #[arg(long, value_name = "LEASE")]
    lease: Option<String>,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Heartbeat {
    /// For how long from now on it is yours [default: 300]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<Seconds>,
    /// Answer only after so long, unless the task is canceled before: at most 60
    #[arg(long, value_name = "SECONDS")]
    wait: Option<Seconds>,
    #[command(flatten)]
    held: HeldArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Progress {
    /// A word on the progress
    #[arg(long, value_name = "TEXT", required_unless_present = "event_json")]
    text: Option<String>,
    /// An event as programs print them; may be given again. One that ends the turn is the last
    #[arg(long, value_name = "JSON")]
    event_json: Vec<Json>,
    /// The last event ends the turn, although it is AUTH_REQUIRED
    #[arg(long, requires = "event_json")]
    end: bool,
    #[command(flatten)]
    held: HeldArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ack {
    /// What came of it: any JSON, @FILE or @-, which becomes the task's artifact
    #[arg(long, value_name = "JSON")]
    result_json: Option<Json>,
    /// A word on it
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    held: HeldArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Nack {
    /// Why it did not work
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// How long until the next attempt [default: 1 s, then twice as long each time]
    #[arg(long, value_name = "DURATION")]
    delay: Option<Seconds>,
    /// No other attempt would do better: the task fails
    #[arg(long, conflicts_with_all = ["delay", "release"])]
    fatal: bool,
    /// It was not tried: this attempt does not count, and it waits again at once
    #[arg(long, conflicts_with = "delay")]
    release: bool,
    #[command(flatten)]
    held: HeldArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The entry's message id, the first characters of it, or `last`
    id: String,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Dlq {
    /// Only those of this agent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    #[command(flatten)]
    common: RouteArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    /// Only this one [default: all of them]
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// For this agent [default: the one that each was for]
    #[arg(long, value_name = "ID")]
    to_agent: Option<String>,
    #[command(flatten)]
    common: RouteArgs,
}

/// JSON that was typed, or is in a file behind `@`, as it was: numbers stay what they are.
#[derive(Debug, Clone)]
struct Json(Box<RawValue>);

impl FromStr for Json {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = match text.strip_prefix('@') {
            Some("-") => std::io::read_to_string(std::io::stdin()),
            Some(file) => std::fs::read_to_string(file),
            None => Ok(text.to_owned()),
        };
        let text = read.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map(Self).map_err(|error| error.to_string())
    }
}

/// What was handed out.
#[derive(Deserialize)]
struct Handed {
    messages: Vec<Box<RawValue>>,
}

/// A page of dead letters.
#[derive(Deserialize)]
struct Letters {
    messages: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// A length of time: a number of seconds, or one with a unit.
#[derive(Debug, Clone, Copy)]
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds)
                .map(Self)
                .map_err(|_| format!("`{text}` is not a number of seconds")),
            Err(_) => text.parse::<Span>().map(|span| Self(span.0)),
        }
    }
}

impl Seconds {
    fn raw(self) -> Box<RawValue> {
        raw(&self.0.as_secs_f64())
    }
}

/// A member of a request, if it was given.
type Member<'a> = (&'a str, Option<Box<RawValue>>);

/// The JSON of a plain value, which always has one.
fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The members that were given, as an object.
fn body(members: Vec<Member<'_>>) -> Vec<u8> {
    let given: BTreeMap<&str, Box<RawValue>> =
        members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    serde_json::to_vec(&given).unwrap_or_default()
}

impl Verb {
    pub(super) fn routes(&mut self) -> &mut RouteArgs {
        match self {
            Self::Publish(args) => &mut args.common,
            Self::Consume(args) => &mut args.common,
            Self::Claim(args) => &mut args.common,
            Self::Heartbeat(args) => &mut args.held.common,
            Self::Progress(args) => &mut args.held.common,
            Self::Ack(args) => &mut args.held.common,
            Self::Nack(args) => &mut args.held.common,
            Self::Execute(args) | Self::Show(args) => &mut args.common,
            Self::Status(args) => &mut args.common,
            Self::Dlq(args) => &mut args.common,
            Self::ReplayDlq(args) => &mut args.common,
        }
    }

    pub(super) async fn perform(mut self) -> Result<(), Failure> {
        self.resolve().await?;
        match self {
            Self::Publish(args) => publish(args).await,
            Self::Consume(args) => consume(args).await,
            Self::Claim(args) => claim(args).await,
            Self::Heartbeat(args) => heartbeat(args).await,
            Self::Progress(args) => progress(args).await,
            Self::Ack(args) => ack(args).await,
            Self::Nack(args) => nack(args).await,
            Self::Execute(args) => execute(&args).await,
            Self::Show(args) => show(&args).await,
            Self::Status(args) => status(&args).await,
            Self::Dlq(args) => dlq(&args).await,
            Self::ReplayDlq(args) => replay(args).await,
        }
    }
}

impl Verb {
    /// Puts the whole id of an entry in the place of its first characters.
    async fn resolve(&mut self) -> Result<(), Failure> {
        let (id, common) = match self {
            Self::Show(One { id, common }) => {
                if ids::is_short(id) {
                    *id = ids::task(&common.client().await?, id, Some(common.native())).await?;
                }
                return Ok(());
            }
            Self::Execute(One { id, common }) => (id, &*common),
            Self::Claim(args) => (&mut args.id, &args.common),
            Self::Heartbeat(Heartbeat { held, .. })
            | Self::Progress(Progress { held, .. })
            | Self::Ack(Ack { held, .. })
            | Self::Nack(Nack { held, .. }) => (&mut held.id, &held.common),
            Self::ReplayDlq(Replay { message_id: Some(id), common, .. }) => (id, &*common),
            Self::ReplayDlq(_) | Self::Publish(_) | Self::Consume(_) | Self::Status(_) | Self::Dlq(_) => return Ok(()),
        };
        if ids::is_short(id) {
            *id = ids::task_to_change(&common.client().await?, id, Some(common.native())).await?;
        }
        Ok(())
    }
}

impl HeldArgs {
    /// Calls a verb of this entry.
    async fn call(&self, verb: &str, members: Vec<Member<'_>>) -> Result<Box<RawValue>, Failure> {
        let mut all = vec![("lease", self.lease.as_deref().map(raw))];
        all.extend(members);
        let path = ["v1", "queue", "messages", &self.id, verb];
        self.common.call(Method::POST, &path, &[], Some(body(all))).await
    }
}

async fn publish(args: Publish) -> Result<(), Failure> {
    let members = vec![
        ("from", Some(raw(&args.from))),
        ("to", Some(raw(&args.to))),
        ("text", Some(raw(&args.text))),
        ("payload", args.payload_json.map(|json| json.0)),
        ("correlationId", args.correlation_id.as_ref().map(raw)),
        ("delay", args.delay.map(Seconds::raw)),
        ("priority", Some(raw(&args.priority))),
        ("maxAttempts", args.max_attempts.as_ref().map(raw)),
    ];
    let entry: Box<RawValue> =
        args.common.call(Method::POST, &["v1", "queue", "publish"], &[], Some(body(members))).await?;
    args.common.print(&entry, text(&read(&entry), "id"));
    Ok(())
}

async fn consume(args: Consume) -> Result<(), Failure> {
    let begin = Instant::now();
    // Without a length it waits for as long as the verb may take.
    let patience = match args.wait {
        None => Duration::ZERO,
        Some(None) => args.common.target.timeout.0.saturating_sub(Duration::from_secs(1)),
        Some(Some(Seconds(wait))) => wait,
    };
    loop {
        let left = patience.saturating_sub(begin.elapsed());
        let members = vec![
            ("max", Some(raw(&args.max))),
            ("lease", args.term.lease.map(Seconds::raw)),
            ("worker", args.term.worker.as_ref().map(raw)),
            ("wait", Some(Seconds(left.min(LONG_POLL)).raw())),
        ];
        let path = ["v1", "queue", &args.agent, "consume"];
        let Handed { messages } = args.common.call(Method::POST, &path, &[], Some(body(members))).await?;
        if !messages.is_empty() || left <= LONG_POLL {
            messages.iter().for_each(|entry| print_handed(&args.common, entry));
            return Ok(());
        }
    }
}

async fn claim(args: Claim) -> Result<(), Failure> {
    let members = vec![("lease", args.term.lease.map(Seconds::raw)), ("worker", args.term.worker.as_ref().map(raw))];
    let path = ["v1", "queue", "messages", &args.id, "claim"];
    let entry: Box<RawValue> = args.common.call(Method::POST, &path, &[], Some(body(members))).await?;
    print_handed(&args.common, &entry);
    Ok(())
}

async fn heartbeat(args: Heartbeat) -> Result<(), Failure> {
    let members = vec![("seconds", args.seconds.map(Seconds::raw)), ("wait", args.wait.map(Seconds::raw))];
    let answer = args.held.call("heartbeat", members).await?;
    let beat = read(&answer);
    let said = if beat["canceled"] == json!(true) {
        "the task is canceled: stop, and say so with nack or progress".to_owned()
    } else {
        format!("yours for {:.1} s", beat["leaseSeconds"].as_f64().unwrap_or_default())
    };
    args.held.common.print(&answer, &said);
    Ok(())
}

async fn progress(args: Progress) -> Result<(), Failure> {
    let events = args.event_json.into_iter().map(|event| event.0).collect::<Vec<_>>();
    let members = vec![
        ("text", args.text.as_ref().map(raw)),
        ("events", Some(raw(&events))),
        ("end", args.end.then(|| raw(&true))),
    ];
    let written = args.held.call("progress", members).await?;
    args.held.common.print(&written, text(&read(&written), "status"));
    Ok(())
}

async fn ack(args: Ack) -> Result<(), Failure> {
    let members = vec![("result", args.result_json.map(|json| json.0)), ("text", args.text.as_ref().map(raw))];
    let written = args.held.call("ack", members).await?;
    args.held.common.print(&written, text(&read(&written), "status"));
    Ok(())
}

async fn nack(args: Nack) -> Result<(), Failure> {
    let members = vec![
        ("error", args.error.as_ref().map(raw)),
        ("delay", args.delay.map(Seconds::raw)),
        ("fatal", args.fatal.then(|| raw(&true))),
        ("release", args.release.then(|| raw(&true))),
    ];
    let answer = args.held.call("nack", members).await?;
    let entry = read(&answer);
    let said = match (text(&entry, "status"), entry["availableInSeconds"].as_f64()) {
        ("pending", Some(wait)) if wait > 0.0 => format!("pending, again in {wait:.1} s"),
        (status, _) => status.to_owned(),
    };
    args.held.common.print(&answer, &said);
    Ok(())
}

async fn execute(args: &One) -> Result<(), Failure> {
    let path = ["v1", "queue", "messages", &args.id, "execute"];
    let answer: Box<RawValue> = args.common.call(Method::POST, &path, &[], None).await?;
    let task: Task = a2a::decode(answer.get().as_bytes())
        .map_err(|error| Failure::failed("malformed answer").because(error.message))?;
    match args.common.format() {
        Format::Json => output::line(&output::one_line(answer.get())),
        Format::Text => {
            print_reply(&task);
        }
    }
    verdict(&task.id, &task.status)
}

async fn show(args: &One) -> Result<(), Failure> {
    let answer: Box<RawValue> =
        args.common.call(Method::GET, &["v1", "queue", "messages", &args.id], &[], None).await?;
    if args.common.format() == Format::Json {
        output::line(&output::one_line(answer.get()));
        return Ok(());
    }
    let entry = read(&answer);
    let field = |name: &str| plain(&entry[name]);
    output::print(&fields(&[
        ("id", field("id")),
        ("from", field("from")),
        ("to", field("to")),
        ("status", field("status")),
        ("text", field("text")),
        ("payload", field("payload")),
        ("correlation", field("correlationId")),
        ("priority", field("priority").filter(|priority| priority != "0")),
        ("attempts", field("attempts")),
        ("at most", field("maxAttempts")),
        ("next in", seconds(&entry["availableInSeconds"])),
        ("held by", field("claimedBy")),
        ("held for", seconds(&entry["leaseLeftSeconds"])),
        ("cancel", (entry["canceled"] == json!(true)).then(|| "asked for".to_owned())),
        ("created", field("createdAt")),
        ("replays", field("replays")),
    ]));
    print_errors(&entry);
    Ok(())
}

async fn status(args: &Status) -> Result<(), Failure> {
    let status: Value = args.common.call(Method::GET, &["v1", "queue", "status"], &[], None).await?;
    if args.common.format() == Format::Json {
        output::line(&status.to_string());
        return Ok(());
    }
    const COLUMNS: [&str; 5] = ["pending", "in_progress", "acked", "failed", "dlq"];
    const OTHERS: [&str; 4] = ["canceled", "rejected", "input_required", "auth_required"];
    let mut rows = Vec::new();
    for agent in list(&status, "agents") {
        let mut row = vec![output::single_line(text(agent, "agent"))];
        row.extend(COLUMNS.map(|name| agent[name].to_string()));
        row.push(OTHERS.map(|name| agent[name].as_u64().unwrap_or(0)).iter().sum::<u64>().to_string());
        row.push(age(&agent["oldestPendingSeconds"]));
        row.push(age(&agent["oldestDlqSeconds"]));
        rows.push(row);
    }
    if rows.is_empty() {
        output::error_line("note", "there is nothing in any queue");
        return Ok(());
    }
    let headings = ["AGENT", "PENDING", "IN PROGRESS", "ACKED", "FAILED", "DLQ", "OTHER", "OLDEST", "OLDEST DLQ"];
    output::print(&table(&headings, &rows));
    Ok(())
}

async fn dlq(args: &Dlq) -> Result<(), Failure> {
    let mut letters: Vec<Box<RawValue>> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query: Vec<(&str, &str)> = Vec::new();
        query.extend(args.agent.as_deref().map(|agent| ("agent", agent)));
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: Letters = args.common.call(Method::GET, &["v1", "queue", "dlq"], &query, None).await?;
        letters.extend(page.messages);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if args.common.format() == Format::Json {
        output::line(raw(&letters).get());
        return Ok(());
    }
    let row = |letter: &Value| {
        vec![
            text(letter, "id").to_owned(),
            output::single_line(text(letter, "agent")),
            letter["attempts"].to_string(),
            text(letter, "statusAt").to_owned(),
            output::single_line(text(letter, "error")),
        ]
    };
    if letters.is_empty() {
        output::error_line("note", "there is no dead letter");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = letters.iter().map(|letter| row(&read(letter))).collect();
    output::print(&table(&["ID", "AGENT", "ATTEMPTS", "SINCE", "ERROR"], &rows));
    Ok(())
}

async fn replay(args: Replay) -> Result<(), Failure> {
    let members = vec![("messageId", args.message_id.as_ref().map(raw)), ("toAgent", args.to_agent.as_ref().map(raw))];
    let answer: Value =
        args.common.call(Method::POST, &["v1", "queue", "dlq", "replay"], &[], Some(body(members))).await?;
    if args.common.format() == Format::Json {
        output::line(&answer.to_string());
        return Ok(());
    }
    let replayed = list(&answer, "replayed");
    if replayed.is_empty() {
        output::error_line("note", "there is no dead letter");
    }
    for one in replayed {
        let (old, new) = (text(one, "messageId"), text(one, "newMessageId"));
        output::line(&format!("{old} is repeated as {new} for {}", output::single_line(text(one, "toAgent"))));
    }
    Ok(())
}

/// An entry that was handed out: what is to be done, and the lease.
fn print_handed(common: &RouteArgs, entry: &RawValue) {
    if common.format() == Format::Json {
        output::line(&output::one_line(entry.get()));
        return;
    }
    let entry = read(entry);
    output::print(&fields(&[
        ("id", plain(&entry["id"])),
        ("from", plain(&entry["from"])),
        ("text", plain(&entry["text"])),
        ("payload", plain(&entry["payload"])),
        ("attempt", plain(&entry["attempt"])),
        ("lease", plain(&entry["lease"])),
    ]));
}

fn print_errors(entry: &Value) {
    let errors = list(entry, "errors");
    if errors.is_empty() {
        return;
    }
    let row = |failed: &Value| {
        vec![
            failed["attempt"].to_string(),
            text(failed, "at").to_owned(),
            output::single_line(text(failed, "worker")),
            output::single_line(text(failed, "error")),
        ]
    };
    let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
    output::print(&format!("\nfailed attempts\n{}", table(&["ATTEMPT", "AT", "WORKER", "ERROR"], &rows)));
}

/// What the server said, to pick from.
fn read(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// A value for people; nothing for what is not there.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(output::single_line(text)),
        other => Some(output::single_line(&other.to_string())),
    }
}

/// How long something takes yet, if it does.
fn seconds(value: &Value) -> Option<String> {
    value.as_f64().filter(|seconds| *seconds > 0.0).map(|seconds| format!("{seconds:.1} s"))
}

fn age(seconds: &Value) -> String {
    match seconds.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.0}s"),
        Some(seconds) if seconds < 7200.0 => format!("{:.0}m", seconds / 60.0),
        Some(seconds) if seconds < 172_800.0 => format!("{:.0}h", seconds / 3600.0),
        Some(seconds) => format!("{:.0}d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_seconds_or_have_a_unit() {
        for (text, seconds) in [("30", 30.0), ("0", 0.0), ("1.5", 1.5), ("90s", 90.0), ("2h", 7200.0), ("250ms", 0.25)]
        {
            let read: Seconds = text.parse().unwrap();
            assert!((read.0.as_secs_f64() - seconds).abs() < 1e-9, "{text}");
        }
        for wrong in ["", "-1", "soon", "1e400", "NaN"] {
            assert!(wrong.parse::<Seconds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_not_given_is_not_sent() {
        let typed: Json = "123456789012345678901234567890".parse().unwrap();
        let sent = body(vec![("a", Some(typed.0)), ("b", None), ("c", Some(raw(&())))]);
        assert_eq!(String::from_utf8(sent).unwrap(), r#"{"a":123456789012345678901234567890,"c":null}"#);
    }
}
