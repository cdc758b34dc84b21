//! `sb a2a work`: takes entries of an agent's queue and runs a program for each of them, as the server does for agents of the
//! kind `command`.
//!
//! A worker is nobody whom the server has to know: what it may do to an entry it may do by the entry's lease. It keeps the
//! lease while the program runs, and ends the program when it hears that the lease is lost. While the server is away nothing is
//! lost: the program goes on, and what it said is told when the server is back; only the server decides whether the lease still
//! holds then. A guard ends the programs of a worker that was killed.

mod queue;
mod report;

use std::{
    env,
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use a2a::Part;
use agents::{
    command::{Mode, OutputMode, Program, Quarters},
    guard,
};
use exchange::{Agent, Ledger, Origin, Outcome, Output, Past, Turn, text_of};
use serde_json::json;
use store::{AgentId, TaskId};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    queue::{Consume, Entry, Error, Held, Queue, Reported, Waits},
    report::Reporter,
};
use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    privacy,
    routes::RouteArgs,
    serve::Signals,
    target,
};

/// How long the server is asked to wait for an entry.
const TAKE_WAIT: Duration = Duration::from_secs(30);
/// A server that says sooner that there is nothing is not asked again before this.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest time between heartbeats, each of which waits for a cancel.
const LONGEST_BEAT: Duration = Duration::from_secs(20);
/// A program that ends sooner costs no heartbeat.
const FIRST_BEAT: Duration = Duration::from_millis(200);
/// How many things a program may have said that are not told yet.
const SAID: usize = 64;
/// How long a worker that leaves tries to give an entry back.
const FAREWELL: Duration = Duration::from_secs(5);
/// So much of what a program said about its end is shown.
const SHOWN_CHARS: usize = 200;

/// What `sb a2a work --help` ends with.
pub(crate) const EXAMPLES: &str = "The program is run as those of agents of the kind `command`: it reads one JSON object and \
    what it prints is the answer (docs/agents.md). The first SIGTERM or SIGINT waits for what runs, a second one gives it back.\n\n\
    Examples:\n  sb a2a work upper -- sh -c 'tr a-z A-Z'\n  \
    sb a2a work review --concurrency 4 --events --env OPENAI_API_KEY -- python3 review.py\n  \
    sb a2a work review --concurrency 4 --serve -- python3 stay.py\n  \
    sb a2a work nightly --once --url https://agents.example.org -- ./nightly";

/// `sb a2a work …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The agent whose queue is worked on
    agent: AgentId,
    /// How many entries are worked on at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// After how many seconds others take an entry over when this worker is not heard of
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: u64,
    /// Each line that the program prints is an event in JSON [default: all of it is the text of one artifact]
    #[arg(long)]
    events: bool,
    /// Start the program once and give it one entry after the other, as `mode = "serve"` of an agent file does
    #[arg(long)]
    serve: bool,
    /// How many of it there may be, with --serve
    #[arg(long, value_name = "N", requires = "serve")]
    processes: Option<NonZeroUsize>,
    /// A variable for the program, which has none but PATH, HOME, LANG, TZ and TMPDIR otherwise; without a value it gets that of
    /// this process. May be given again
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Leave when nothing waits
    #[arg(long)]
    once: bool,
    /// What this worker is called where entries are shown [default: the host's name and the process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    common: RouteArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// What all slots share.
struct Worker {
    queue: Queue,
    agent: AgentId,
    program: Arc<dyn Agent>,
    name: String,
    lease: u64,
    once: bool,
    format: Format,
    /// Set when nothing more is taken.
    stopping: CancellationToken,
    /// Set when what runs is given back.
    leaving: CancellationToken,
}

/// What became of an entry.
enum End {
    /// The server knows it: what it is now, and why it is not what was hoped for.
    Told(Reported, Option<String>),
    /// Others have it.
    Lost,
    /// It was given back, if the server has heard of it.
    Left(bool),
    /// The server does not want to hear of it.
    Untold(client::Error),
}

/// How the program's run came to an end.
enum Run {
    Ended(Outcome),
    Lost,
    Left,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    privacy::hide_environment()?;
    // What programs complain is for who runs the worker.
    logging::start(log, "warn,agents::command=info", LogFormat::Human)?;
    target::block_on(work(args))
}

async fn work(args: Args) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let instance = Uuid::now_v7().to_string();
    let quarters = Quarters { mark: instance.as_str().into(), ..Quarters::launched() };
    let program = args.program(quarters.clone())?;
    let _guard = guard::start(&instance)
        .map_err(|error| Failure::failed("cannot start the guard of programs").caused_by(&error))?;
    let worker = Arc::new(Worker {
        agent: args.agent,
        program,
        name: args.name.unwrap_or_else(default_name),
        lease: args.lease,
        once: args.once,
        format: args.common.format(),
        queue: Queue::new(args.common)?,
        stopping: CancellationToken::new(),
        leaving: CancellationToken::new(),
    });
    let mut slots = JoinSet::new();
    for _ in 0..args.concurrency {
        slots.spawn(Arc::clone(&worker).slot());
    }
    let mut failed = None;
    loop {
        tokio::select! {
            ended = slots.join_next() => {
                let failure = match ended {
                    None => break,
                    Some(Ok(Ok(()))) => continue,
                    Some(Ok(Err(failure))) => failure,
                    Some(Err(error)) => Failure::failed("the worker broke").caused_by(&error),
                };
                // What cannot be mended in one slot cannot in another; what runs goes on to its end.
                worker.stopping.cancel();
                failed.get_or_insert(failure);
            }
            signal = signals.next() => {
                if worker.stopping.is_cancelled() {
                    worker.leaving.cancel();
                } else {
                    output::error_line("stopping", &format!("{signal}: waiting for what runs; a second signal gives it back"));
                    worker.stopping.cancel();
                }
            }
        }
    }
    quarters.close().await;
    failed.map_or(Ok(()), Err)
}

impl Args {
    /// The program as an agent. One that cannot run is no reason to take anything from a queue.
    fn program(&self, quarters: Quarters) -> Result<Arc<dyn Agent>, Failure> {
        let unusable = |why: String| Failure::usage("the program cannot be run").because(why);
        let here = env::current_dir().map_err(|error| unusable(format!("no current directory: {error}")))?;
        let mut program = Program::new(self.argv.clone(), here);
        if self.events {
            program.output = Some(OutputMode::Events);
        }
        if self.serve {
            program.mode = Mode::Serve;
            program.processes = self.processes;
        }
        for variable in &self.env {
            match variable.split_once('=') {
                Some((name, value)) => drop(program.env.insert(name.to_owned(), value.to_owned())),
                None => program.pass_env.push(variable.clone()),
            }
        }
        let built = program.into_agent(self.agent.clone(), quarters).map_err(unusable)?;
        match built.warnings.into_iter().next() {
            Some(problem) => Err(unusable(problem)),
            None => Ok(built.agent),
        }
    }
}

/// The host and the process, by which people find a worker.
fn default_name() -> String {
    let host = rustix::system::uname();
    format!("{}-{}", host.nodename().to_string_lossy(), std::process::id())
}

impl Worker {
    /// Takes entries and works on them, one after the other.
    async fn slot(self: Arc<Self>) -> Result<(), Failure> {
        let mut waits = Waits::default();
        loop {
            let asked = Instant::now();
            let taken = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return Ok(()),
                // An entry that is given to somebody who has just left is taken over when its lease runs out.
                taken = self.take() => taken,
            };
            match taken {
                Ok(entries) if entries.is_empty() => {
                    if self.once {
                        return Ok(());
                    }
                    waits = Waits::default();
                    self.pause(tokio::time::sleep_until(asked + PAUSE)).await;
                }
                Ok(entries) => {
                    waits = Waits::default();
                    for entry in entries {
                        self.attend(&entry).await;
                    }
                }
                // Whoever waits for the end of this worker is not to wait for a server.
                Err(Error::Away(error)) if self.once => return Err(error.into()),
                Err(Error::Away(_) | Error::Lost) => self.pause(waits.next()).await,
                Err(Error::Refused(error)) => return Err(error.into()),
            }
        }
    }

    async fn take(&self) -> Result<Vec<Entry>, Error> {
        let wait = if self.once { 0 } else { TAKE_WAIT.as_secs() };
        let asked = Consume { max: 1, lease: self.lease, wait, worker: &self.name };
        self.queue.consume(self.agent.as_str(), &asked).await
    }

    /// A rest that ends early when nothing more is to be taken.
    async fn pause(&self, rest: impl Future<Output = ()>) {
        tokio::select! {
            () = self.stopping.cancelled() => {}
            () = rest => {}
        }
    }

    /// Works on one entry, and says what becomes of it.
    async fn attend(&self, entry: &Entry) {
        let tries = entry.max_attempts.map_or_else(String::new, |most| format!(" of {most}"));
        self.say("taken", entry, &format!("attempt {}{tries}", entry.attempt));
        let begun = Instant::now();
        let held = self.queue.hold(entry);
        let end = self.work_on(entry, &held).await;
        let took = format!("after {:.1} s", begun.elapsed().as_secs_f64());
        match end {
            End::Told(reported, None) => self.say("done", entry, &format!("{}, {took}", spoken(&reported.state))),
            End::Told(reported, Some(why)) => {
                self.say("failed", entry, &format!("{}, {took}: {why}", spoken(&reported.state)));
            }
            End::Lost => self.say("lost", entry, &format!("{took}: others have it, or it is over")),
            End::Left(true) => self.say("given back", entry, &took),
            End::Left(false) => self.say("left", entry, &format!("{took}: others take it when its lease runs out")),
            End::Untold(error) => self.say("failed", entry, &format!("{took}: it cannot be reported: {error}")),
        }
    }

    async fn work_on(&self, entry: &Entry, held: &Held<'_>) -> End {
        let cancel = CancellationToken::new();
        let mut beats = pin!(keep(held, &cancel));
        let mut reporter = Reporter::new(held);
        let outcome = match self.run(entry, &mut reporter, beats.as_mut(), cancel.clone()).await {
            Run::Ended(outcome) => outcome,
            Run::Lost => return End::Lost,
            Run::Left => {
                let given = tokio::time::timeout(FAREWELL, held.release()).await;
                return End::Left(matches!(given, Ok(Ok(_))));
            }
        };
        let why = failure_of(&outcome);
        let telling = async {
            match reporter.end(outcome).await {
                Err(Error::Refused(error)) => {
                    let why = format!("what the program said was refused: {error}");
                    let failed = reporter.end(Outcome::Failed(vec![Part::text(why.clone())])).await;
                    (failed, Some(why))
                }
                reported => (reported, why),
            }
        };
        let mut telling = pin!(telling);
        let mut beating = true;
        let (reported, why) = loop {
            tokio::select! {
                biased;
                told = &mut telling => break told,
                // The lease ends with what is being told, and the heartbeat may hear of it first.
                () = &mut beats, if beating => beating = false,
                () = self.leaving.cancelled() => return End::Left(false),
            }
        };
        match reported {
            Ok(reported) => End::Told(reported, why),
            Err(Error::Lost) => End::Lost,
            Err(Error::Refused(error) | Error::Away(error)) => End::Untold(error),
        }
    }

    /// Runs the program until it ends, the lease is lost or this worker has to leave. Whatever it is, the program has ended
    /// then.
    async fn run(
        &self,
        entry: &Entry,
        reporter: &mut Reporter<'_>,
        beats: Pin<&mut impl Future<Output = ()>>,
        cancel: CancellationToken,
    ) -> Run {
        let Some(task) = TaskId::parse(&entry.task_id) else {
            return Run::Ended(Outcome::Retry("the worker does not understand the task's id".to_owned()));
        };
        let turn = Turn {
            agent: self.agent.clone(),
            task,
            context: Arc::from(entry.context_id.as_str()),
            message: entry.message.clone(),
            attempt: entry.attempt,
            tries: entry.attempt,
            number: entry.turn,
            state: entry.kept.as_ref().map(|state| state.get().to_owned().into()),
            // Programs find out by their state.
            resumed: false,
            cancel,
            past: Past::told(entry.history.clone(), entry.context_history.clone()),
            origin: Origin::default(),
            request: entry.request(),
            ledger: Ledger::default(),
            errands: None,
        };
        let (output, said) = Output::channel(SAID);
        let talking = async {
            let running = async { Ok(self.program.run(turn, output).await) };
            tokio::try_join!(running, reporter.listen(said))
        };
        let ended = tokio::select! {
            biased;
            () = self.leaving.cancelled() => return Run::Left,
            () = beats => return Run::Lost,
            ended = talking => ended,
        };
        match ended {
            Ok((outcome, ())) => Run::Ended(outcome),
            Err(Error::Lost) => Run::Lost,
            Err(Error::Refused(error) | Error::Away(error)) => {
                reporter.forget();
                let why = format!("what the program said was refused: {error}");
                Run::Ended(Outcome::Failed(vec![Part::text(why)]))
            }
        }
    }

    /// One line about an entry: for people on stderr, for programs on stdout.
    fn say(&self, what: &str, entry: &Entry, text: &str) {
        match self.format {
            Format::Text => output::error_line(what, &format!("{} {}", entry.id, shown(text))),
            Format::Json => {
                output::line(
                    &json!({ "event": what, "id": entry.id, "taskId": entry.task_id, "text": text }).to_string(),
                );
            }
        }
    }
}

/// Keeps the lease, and passes a cancel on. Returns when the lease is lost.
async fn keep(held: &Held<'_>, cancel: &CancellationToken) {
    let period = (held.lasts / 3).min(LONGEST_BEAT);
    tokio::time::sleep(FIRST_BEAT.min(period)).await;
    let mut waits = Waits::default();
    loop {
        let asked = Instant::now();
        // A cancel is heard once.
        let wait = if cancel.is_cancelled() { Duration::ZERO } else { period };
        match held.beat(wait).await {
            Ok(beat) => {
                if beat.canceled {
                    cancel.cancel();
                }
                waits = Waits::default();
                tokio::time::sleep_until(asked + period).await;
            }
            Err(Error::Away(_)) => waits.next().await,
            Err(Error::Lost) => return,
            Err(Error::Refused(error)) => {
                tracing::warn!(%error, "a heartbeat was refused");
                return;
            }
        }
    }
}

/// Why a turn did not go well, if it did not.
fn failure_of(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Failed(parts) | Outcome::Rejected(parts) => Some(text_of(parts)),
        Outcome::Retry(why) | Outcome::Crashed(why) | Outcome::Displaced(why) | Outcome::Broken(why) => {
            Some(why.clone())
        }
        _ => None,
    }
}

/// A state as people write it: `input-required`.
fn spoken(state: &str) -> String {
    state.strip_prefix("TASK_STATE_").unwrap_or(state).to_lowercase().replace('_', "-")
}

/// The beginning of a text, on one line.
fn shown(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(SHOWN_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["work"], line].concat()).map(|line| line.args)
    }

    #[test]
    fn the_program_stands_behind_two_dashes() {
        let args = parse(&["review", "--env", "A=b=c", "--env", "HOME", "--", "sh", "-c", "true", "--once"]).unwrap();
        assert_eq!(args.argv, ["sh", "-c", "true", "--once"]);
        assert_eq!((args.concurrency, args.lease, args.events, args.once), (1, 60, false, false));
        assert!(args.program(Quarters::default()).is_ok());
        for wrong in [
            &["review"][..],
            &["review", "--"],
            &["review", "sh"],
            &["a/b", "--", "sh"],
            &["review", "--concurrency", "0", "--", "sh"],
            &["review", "--lease", "0", "--", "sh"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_program_that_cannot_run_is_refused_before_anything_is_taken() {
        for wrong in [&["a", "--", "no-such-program-anywhere"][..], &["a", "--env", "=x", "--", "sh"], &["a", "--", ""]]
        {
            assert!(parse(wrong).unwrap().program(Quarters::default()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_shown_is_one_line() {
        assert_eq!(shown("exit code 3: a\n  b\n"), "exit code 3: a b");
        assert_eq!(shown(&"é".repeat(300)).chars().count(), SHOWN_CHARS + 1);
        assert_eq!(spoken("TASK_STATE_INPUT_REQUIRED"), "input-required");
    }
}
