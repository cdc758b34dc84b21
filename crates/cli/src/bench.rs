//! `sb bench`: load on an A2A agent from a process of its own, and what it came to.
//!
//! One thread, one connection per worker, each worker asking again as soon as it has its answer. What is measured is
//! what a caller sees; nothing here looks into the server.

mod closed_loop;
mod followers;
mod queue;
mod report;

use std::{
    cell::RefCell,
    io::{self, IsTerminal, Write},
    rc::Rc,
    time::{Duration, Instant},
};

use agents::units::Span;
use clap::ValueEnum;
use client::{
    Binding, Credential, Discovered, Error, Options, Secret, discover_with,
    load::{Target, Work},
};
use tokio::task::LocalSet;
use uuid::Uuid;

use self::report::{Report, Tally};
use crate::{
    admin::{self, Admin},
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    target,
};

/// `sb bench …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server, an agent elsewhere, or a card [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// An agent of the server [default: echo, `stream` for fanout, `slow` for idle; else the agent at the URL]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// What to ask for
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// How many requests at once, or how many subscribers; each has a connection of its own
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    concurrency: usize,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// How long to ask before measuring, `0s` for not at all; not for fanout and idle
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span_or_none)]
    warmup: Duration,
    /// Measure this many requests, however long they take, without a warm-up; entries of a queue [default of queue: 10000]
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warmup"])]
    requests: Option<u64>,
    /// How long the text of a message is
    #[arg(long, value_name = "N", default_value_t = 256)]
    text_bytes: usize,
    /// The text of the messages, in place of one of --text-bytes
    #[arg(long, value_name = "TEXT", conflicts_with = "text_bytes")]
    text: Option<String>,
    /// How to print the result
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Mode {
    /// Send a message and wait for the end of its turn
    #[default]
    Send,
    /// Send a message and follow it to the end of its turn
    Stream,
    /// One task, followed by all subscribers: frames per second
    Fanout,
    /// One task on which nothing happens, followed by all subscribers: how many stay
    Idle,
    /// Get a task
    Get,
    /// List the newest fifty tasks
    List,
    /// Publish entries to a queue, then take and acknowledge them, beside as many messages to the agent
    Queue,
}

/// What all workers of a run share. They run on one thread.
pub(crate) struct Run {
    mode: Mode,
    target: Target,
    /// Part of every message id of this run.
    name: String,
    text: String,
    concurrency: usize,
    duration: Duration,
    warmup: Duration,
    requests: Option<u64>,
    tally: RefCell<Tally>,
    /// A Switchboard tells its counts to those who may administer it.
    admin: Option<Admin>,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    if args.requests.is_some() && matches!(args.mode, Mode::Fanout | Mode::Idle) {
        return Err(Failure::usage("`--requests` counts nothing while subscribers only listen")
            .hint("say how long to listen with --duration"));
    }
    if args.mode == Mode::Queue && args.target.binding.is_some_and(|binding| Binding::from(binding) == Binding::Grpc) {
        return Err(Failure::usage("the queue is not served over gRPC").hint("leave --binding out"));
    }
    raise_file_limit(args.concurrency)?;
    let report = args.target.block_on(async { LocalSet::new().run_until(measure(&args)).await })?;
    match args.output {
        Format::Json => output::line(&report.json().to_string()),
        Format::Text => output::print(&report.text()),
    }
    if report.tally.errors.keys().any(|kind| kind.contains("RESOURCE_EXHAUSTED")) {
        output::error_line(
            "hint",
            "the server bounds what one caller may use; a Switchboard does not with `limits.requests_per_second = 0`, \
             and likewise `limits.tasks` and `limits.streams`",
        );
    }
    let nothing_worked = report.tally.done == 0 && report.tally.error_count() > 0;
    if nothing_worked {
        return Err(Failure::failed("not one request worked"));
    }
    Ok(())
}

async fn measure(args: &Args) -> Result<Report, Failure> {
    let (found, token, named) = find(args).await?;
    let binding = args.target.binding.map_or(Binding::JsonRpc, Binding::from);
    let target =
        Target::new(&args.target.connector(), &found, Some(binding), token, args.target.allow_other_origin).await?;
    let text = match &args.text {
        Some(text) => text.clone(),
        None => args.mode.text(args.text_bytes, args.duration.0, args.concurrency),
    };
    let run = Rc::new(Run {
        mode: args.mode,
        target,
        name: Uuid::new_v4().simple().to_string(),
        text,
        concurrency: args.concurrency,
        duration: args.duration.0,
        warmup: args.warmup,
        requests: args.requests,
        tally: RefCell::default(),
        admin: admin::of_server(&found.url.origin().ascii_serialization(), args.target.data_dir.clone()),
    });
    if !named && run.mode.makes_many() && (args.output == Format::Text || io::stderr().is_terminal()) {
        output::error_line(
            "note",
            &format!(
                "every request leaves a task in the journal of {}, for as long as `retention.tasks` says; to measure beside it start a \
                 server of its own: `sb serve --data-dir DIR --listen 127.0.0.1:0`, and `sb bench --data-dir DIR`",
                run.target.shown()
            ),
        );
    }
    let progress = tokio::task::spawn_local(show_progress(run.clone()));
    let report = match args.mode {
        Mode::Send | Mode::Stream | Mode::Get | Mode::List => closed_loop::measure(&run).await,
        Mode::Fanout | Mode::Idle => followers::measure(&run).await,
        Mode::Queue => queue::measure(&run).await,
    };
    progress.abort();
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
    }
    report
}

/// The card: of the agent that was named, of the one that a Switchboard has for this, or of the agent at the URL. Also the token, and whether
/// a server was named.
async fn find(args: &Args) -> Result<(Discovered, Option<Secret>, bool), Failure> {
    let url = args.url.as_deref();
    let connector = args.target.connector();
    let agent = args.agent.as_deref().unwrap_or(args.mode.agent());
    let server = args.target.target(url, Some(agent))?;
    let options = |credential: &Option<Credential>| Options {
        credential: credential.clone(),
        binding: args.target.binding.map(Binding::from),
        ..Options::default()
    };
    match discover_with(&connector, &server.url, &options(&server.credential)).await {
        Ok(found) => Ok((found, server.token(), server.named)),
        // Not a Switchboard, or the URL is already that of an agent.
        Err(Error::Protocol(_) | Error::Malformed(_)) if args.agent.is_none() => {
            let direct = args.target.target(url, None)?;
            let found = discover_with(&connector, &direct.url, &options(&direct.credential)).await?;
            Ok((found, direct.token(), direct.named))
        }
        Err(error) => Err(error.into()),
    }
}

impl Mode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Stream => "stream",
            Self::Fanout => "fanout",
            Self::Idle => "idle",
            Self::Get => "get",
            Self::List => "list",
            Self::Queue => "queue",
        }
    }

    /// Whether what it leaves grows with what it measures.
    const fn makes_many(self) -> bool {
        matches!(self, Self::Send | Self::Stream | Self::Queue)
    }

    /// The demo agent that suits it.
    const fn agent(self) -> &'static str {
        match self {
            Self::Fanout => "stream",
            Self::Idle => "slow",
            Self::Send | Self::Stream | Self::Get | Self::List | Self::Queue => "echo",
        }
    }

    /// What to say to the agent: so many bytes to an echo, and to the other two to go on until the run is over.
    fn text(self, bytes: usize, duration: Duration, concurrency: usize) -> String {
        let lasting = duration + Duration::from_secs(5) + Duration::from_millis(concurrency as u64);
        let milliseconds = lasting.as_millis();
        match self {
            Self::Fanout => {
                // The demo agent says at most 10,000 chunks.
                let pause = milliseconds.div_ceil(10_000).max(1);
                format!("{} chunks, {pause} ms apart", milliseconds / pause)
            }
            Self::Idle => format!("wait {milliseconds} ms"),
            Self::Send | Self::Stream | Self::Get | Self::List | Self::Queue => "x".repeat(bytes),
        }
    }
}

impl Run {
    fn prepare(&self, work: Work<'_>) -> Result<client::load::Prepared, Failure> {
        Ok(self.target.prepare(&self.name, work)?)
    }

    /// How often the server has committed, where it tells.
    async fn commits(&self) -> Option<u64> {
        Some(self.admin.as_ref()?.stats().await.ok()?.commits)
    }

    /// How far it has come, for people.
    fn far(&self, elapsed: Duration, done: u64) -> String {
        if let Some(requests) = self.requests {
            return format!("{done} of {requests}");
        }
        let warmup = if matches!(self.mode, Mode::Fanout | Mode::Idle) { Duration::ZERO } else { self.warmup };
        match elapsed.checked_sub(warmup) {
            None => format!("warming up, {} s", elapsed.as_secs()),
            Some(measured) => format!("{} of {} s", measured.as_secs(), self.duration.as_secs()),
        }
    }

    fn report(&self, unit: &'static str, elapsed: Duration) -> Report {
        Report {
            mode: self.mode.as_str(),
            unit,
            binding: self.target.binding().as_str(),
            url: self.target.shown(),
            concurrency: self.concurrency,
            text_bytes: self.text.len(),
            elapsed,
            tally: self.tally.take(),
            subscribers: None,
            commits: None,
            phases: Vec::new(),
        }
    }
}

/// A line a second on stderr, for people.
async fn show_progress(run: Rc<Run>) {
    if !io::stderr().is_terminal() {
        return;
    }
    let begun = Instant::now();
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let line = {
            let tally = run.tally.borrow();
            // The count starts over when the warm-up ends.
            let fresh = tally.done.checked_sub(before).unwrap_or(tally.done);
            before = tally.done;
            let far = run.far(begun.elapsed(), tally.done);
            format!("{far}  {fresh}/s  {} errors", tally.error_count())
        };
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K{line}");
    }
}

/// A duration, which may be none at all.
fn span_or_none(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        text => text.parse::<Span>().map(|span| span.0),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it has to be a number of at least 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// Makes room for a connection per worker.
fn raise_file_limit(connections: usize) -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let needed = connections as u64 + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Failure::usage(format!("{connections} connections need {needed} open files"))
            .because("this process may not open that many")
            .hint("ask for less with --concurrency, or raise the limit (`ulimit -Hn`)"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| Failure::failed("cannot raise the limit of open files").caused_by(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_says_what_its_agent_understands() {
        let second = Duration::from_secs(1);
        assert_eq!(Mode::Send.text(3, second, 1), "xxx");
        assert_eq!(Mode::Idle.text(3, second, 100), "wait 6100 ms");
        assert_eq!(Mode::Fanout.text(3, second, 100), "6100 chunks, 1 ms apart");
        assert_eq!(Mode::Fanout.text(3, Duration::from_secs(20), 1000), "8666 chunks, 3 ms apart");
    }

    #[test]
    fn a_warm_up_may_be_none() {
        assert_eq!(span_or_none("0s"), Ok(Duration::ZERO));
        assert_eq!(span_or_none("0"), Ok(Duration::ZERO));
        assert_eq!(span_or_none("250ms"), Ok(Duration::from_millis(250)));
        assert!(span_or_none("soon").is_err() && span_or_none("-1s").is_err());
    }

    #[test]
    fn there_is_at_least_one_worker() {
        assert_eq!(at_least_one("3"), Ok(3));
        assert!(at_least_one("0").is_err());
        assert!(at_least_one("many").is_err());
    }
}
