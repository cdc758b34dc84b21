//! `sb send`: one message to an agent, and its reply.

mod follow;
mod heard;
mod patience;
mod printer;
mod text;

use std::{convert::Infallible, path::PathBuf, time::Duration};

use a2a::{SendMessageResponse, Task, TaskState, TaskStatus};
use agents::units::Span;
use client::{Client, user_message};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;

use self::follow::Turn;
pub(crate) use self::{
    follow::{is_over, waits},
    heard::Heard,
    patience::{Away, FIRST_PAUSE, Patience, Stop, resume},
    printer::{Printer, Show, print_heard},
    text::{message_text, print_reply, print_text, task_text},
};
use crate::{
    config::{LogFormat, process_environment},
    failure::{Exit, Failure},
    logging,
    output::{self, Format},
    parts::PartArgs,
    routes::{self, Native},
    target,
    task::{ids, logs::kept, spoken},
};

/// A task that nobody has begun after this time may have no worker.
const UNCLAIMED_AFTER: Duration = Duration::from_secs(3);

/// `sb send …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    parts: PartArgs,
    /// An agent of the server [default: the server's default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The server, an agent elsewhere, or a card [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL", alias = "agent-card", short_alias = 'a')]
    url: Option<String>,
    /// Print the reply while it is made
    #[arg(long)]
    stream: bool,
    /// Do not wait: print the task's id as soon as the message is taken
    #[arg(long, conflicts_with = "stream", aliases = ["async", "return-immediately", "no-wait"])]
    detach: bool,
    /// Wait for the end of the turn, as it does without being told
    #[arg(long, hide = true, conflicts_with = "detach")]
    wait: bool,
    /// The conversation this belongs to: any id, or the first characters of one that a server has made
    #[arg(long, value_name = "CONTEXT", alias = "context-id")]
    context: Option<String>,
    /// The task this continues: its id, the first characters of it, or `last`
    #[arg(long, value_name = "TASK", alias = "task-id")]
    task: Option<String>,
    /// How often a task is looked at whose agent does not stream
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    poll_interval: Span,
    /// How to print the reply
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    target::block_on(send(&args))
}

async fn send(args: &Args) -> Result<(), Failure> {
    let mut request = user_message(Uuid::new_v4().to_string(), "");
    args.parts.fill(&mut request.message)?;
    request.message.context_id = args.context.clone().unwrap_or_default();
    request.message.task_id = args.task.clone().unwrap_or_default();
    let mut patience = Patience::new(args.target.timeout.0)?;
    let place = Place::of(args.url.as_deref(), &args.target);
    let client = match patience.bear(connect(args)).await {
        Ok(connected) => connected?,
        Err(stop) => return Err(Stopped::by(stop, &patience).plain()),
    };

    for (given, is_task) in [(&mut request.message.task_id, true), (&mut request.message.context_id, false)] {
        if ids::is_short(given) {
            let native = Native { target: &args.target, url: args.url.as_deref() };
            let native = args.agent.is_none().then_some(native);
            let found = async {
                if is_task { ids::task(&client, given, native).await } else { ids::context(&client, given).await }
            };
            *given = match patience.bear(found).await {
                Ok(found) => found?,
                Err(stop) => return Err(Stopped::by(stop, &patience).plain()),
            };
        }
    }
    let mut turn = Turn::new(&client, request, Show::new(args.output, args.stream), args.poll_interval.0);
    let done = if args.detach {
        turn.begin(&mut patience).await
    } else {
        patience.spin(&format!("waiting for {}", args.agent.as_deref().unwrap_or("the agent")));
        let submitted = turn.submitted.subscribe();
        tokio::select! {
            biased;
            done = turn.run(&mut patience) => done,
            never = say_unclaimed(args, client.resumes(), submitted) => match never {},
        }
    };
    let stopped = done.err().map(|stop| Stopped::by(stop, &patience));
    if args.output == Format::Json
        && !args.stream
        && let Some(object) = object(&turn)
    {
        output::line(&object);
    }
    if let Some(stopped) = stopped {
        return Err(place.stopped(stopped, &turn.heard, turn.cursor.as_deref()));
    }
    if args.output == Format::Text && !args.stream && !args.detach {
        print_heard(&turn.heard);
    }
    match &turn.heard {
        Heard { message: Some(_), .. } if !args.detach => Ok(()),
        Heard { message: Some(message), .. } => {
            if args.output == Format::Text {
                print_text(&message_text(message));
            }
            Ok(())
        }
        Heard { task: Some(task), .. } if args.detach => {
            if args.output == Format::Text {
                output::line(&output::single_line(&task.id));
            }
            place.say(task);
            Ok(())
        }
        Heard { task: Some(task), .. } => {
            place.say(task);
            place.verdict(task)
        }
        Heard { .. } => Err(Failure::failed("the stream ended before it said anything")),
    }
}

/// Says when nobody takes a task out of its queue. Another agent begins by itself, sooner or later.
async fn say_unclaimed(args: &Args, is_ours: bool, mut submitted: watch::Receiver<Option<String>>) -> Infallible {
    while is_ours && submitted.wait_for(Option::is_some).await.is_ok() {
        let task = submitted.borrow().clone().unwrap_or_default();
        if timeout(UNCLAIMED_AFTER, submitted.wait_for(Option::is_none)).await.is_ok() {
            continue;
        }
        let ask = |path: Vec<String>| async move {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            routes::ask::<Value>(&args.target, args.url.as_deref(), &path, &[]).await
        };
        let path = |words: [&str; 3]| words.map(str::to_owned).to_vec();
        let Some(request) = ask(path(["v1", "requests", &task])).await else { break };
        let agent = request["request"]["agent_id"].as_str().unwrap_or_default().to_owned();
        let Some(known) = ask(path(["v1", "agents", &agent])).await else { break };
        if known["kind"] == "queue" && submitted.borrow().is_some() {
            let text = format!(
                "no worker has taken the task from the queue of `{agent}` yet; `sb a2a work {agent} -- PROGRAM` starts one"
            );
            output::error_line("note", &text);
        }
        break;
    }
    std::future::pending().await
}

async fn connect(args: &Args) -> Result<Client, Failure> {
    let target = args.target.target(args.url.as_deref(), args.agent.as_deref())?.or_default_agent()?;
    let options = client::Options { resume: resume(), ..args.target.client_options(&target)? };
    Client::connect(args.target.connector(), &target.url, options).await.map_err(Failure::of_agent)
}

/// The object that `-o json` prints: the answer as it came, or what is known of the task.
fn object(turn: &Turn) -> Option<String> {
    let known = || {
        let task = turn.heard.task.clone()?;
        serde_json::to_string(&SendMessageResponse::Task(task)).ok()
    };
    turn.answer.clone().or_else(known)
}

/// How many of the last lines of a failed program are shown.
const LAST_LINES: usize = 5;
/// Begins the line above what each attempt has written.
const ATTEMPT: &str = "--- attempt ";

/// Where a command was sent, so that the next one goes there as well.
pub(crate) struct Place {
    /// The flags that lead there.
    words: Vec<String>,
    /// The data directory of the server, where that is the one of this machine.
    data_dir: Option<PathBuf>,
}

/// Why a wait was given up, in words.
pub(crate) struct Stopped {
    failure: Failure,
    /// The work may go on without whoever waits.
    goes_on: bool,
}

impl Stopped {
    /// What giving up a wait means for the command.
    pub(crate) fn by(stop: Stop, patience: &Patience) -> Self {
        let limit = patience.limit();
        let (failure, goes_on) = match (stop, patience.lost()) {
            (Stop::Late, Some(outage)) => {
                let what = if outage.is_answered { "did not take it" } else { "did not come back" };
                let failure = Failure::new(Exit::Unreachable, format!("the server {what} within {limit:?}"));
                (failure.because(&outage.reason), true)
            }
            (Stop::Late, None) => (Failure::new(Exit::Timeout, format!("no result within {limit:?}")), true),
            (Stop::Interrupted, _) => (Failure::new(Exit::Interrupted, "interrupted"), true),
            (Stop::Failed(failure), _) => (failure, false),
            (Stop::Broken(error), _) => {
                let is_silence = matches!(error, client::Error::Unreachable { .. } | client::Error::Timeout { .. });
                let goes_on = matches!(error, client::Error::Cut { .. }) || (is_silence && !error.never_sent());
                (Failure::from(error), goes_on)
            }
        };
        Self { failure, goes_on }
    }

    /// The end of a command that is about no one task.
    pub(crate) fn plain(self) -> Failure {
        let Self { failure, .. } = self;
        if failure.exit == Exit::Timeout { failure.hint("give it more time with --timeout") } else { failure }
    }
}

impl Place {
    pub(crate) fn of(url: Option<&str>, target: &target::TargetArgs) -> Self {
        let is_local = url.is_none() && !target.names_server();
        let settings = is_local.then(|| target.settings(&process_environment).ok()).flatten();
        let data_dir = settings.and_then(|settings| settings.data_dir(&process_environment).ok());
        let url = url.into_iter().flat_map(|url| ["--url".to_owned(), url.to_owned()]);
        Self { words: url.chain(target.words()).collect(), data_dir }
    }

    /// Another command that goes there.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let place = self.words.iter().map(String::as_str);
        // Only what holds a zero byte cannot be quoted, and that is no argument.
        let command = shlex::try_join(["sb"].into_iter().chain(words.iter().copied()).chain(place)).unwrap_or_default();
        output::single_line(&command)
    }

    /// Says on stderr which task it was and where it stands. In JSON the object says it.
    pub(crate) fn say(&self, task: &Task) {
        if output::is_for_programs() {
            return;
        }
        match task.status.state {
            // Nothing was heard of it.
            TaskState::Unspecified => output::error_line("task", &output::single_line(&task.id)),
            state => {
                let text = format!("{} {}, context {}", task.id, spoken(state), task.context_id);
                output::error_line("task", &output::single_line(&text));
            }
        }
    }

    /// What a task that was heard of to the end of its turn means for the command.
    pub(crate) fn verdict(&self, task: &Task) -> Result<(), Failure> {
        if task.status.state.is_interrupted() {
            let command = self.command(&["send", "--task", &task.id]);
            output::error_line("note", &format!("the task waits; go on with `{command} …`"));
            return Ok(());
        }
        verdict(&task.id, &task.status).map_err(|failure| self.explain(failure, task).of(task))
    }

    /// Adds how to read what the program of a failed task said, after its last lines.
    fn explain(&self, failure: Failure, task: &Task) -> Failure {
        match self.last_words(&task.id, task.status.state) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Shows what the program of a failed task wrote last to standard error, for a user of this machine who may read it; gives a hint
    /// that says how to see all of it.
    pub(crate) fn last_words(&self, id: &str, state: TaskState) -> Option<String> {
        let (_, text) = self.data_dir.as_deref().and_then(|data_dir| kept(data_dir, id))?;
        if state != TaskState::Failed {
            return None;
        }
        if !output::is_for_programs() {
            let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(ATTEMPT)).collect();
            for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                output::error_line("stderr", &output::single_line(line));
            }
        }
        let command = self.command(&["task", "logs", id]);
        Some(format!("`{command}` shows what its program wrote to standard error"))
    }

    /// The end of a command that gave up, with all that is known of its task.
    pub(crate) fn stopped(&self, stopped: Stopped, heard: &Heard, cursor: Option<&str>) -> Failure {
        let Stopped { failure, goes_on } = stopped;
        let Some(task) = &heard.task else {
            if !goes_on {
                return failure;
            }
            let list = self.command(&["task", "list"]);
            return failure
                .hint(format!("whether the message was taken is not known; `{list}` shows the tasks that there are"));
        };
        self.say(task);
        let failure = failure.of(task);
        if !goes_on {
            return failure;
        }
        let mut words = vec!["task", "subscribe", &task.id];
        words.extend(cursor.into_iter().flat_map(|cursor| ["--after", cursor]));
        let (follow, cancel) = (self.command(&words), self.command(&["task", "cancel", &task.id]));
        failure.hint(format!("the work goes on; `{follow}` follows it to the end, `{cancel}` ends it"))
    }
}

/// The exit code that a task's state means, and what to say about it.
pub(crate) fn verdict(task: &str, status: &TaskStatus) -> Result<(), Failure> {
    let said = status.message.as_ref().map(message_text).filter(|text| !text.is_empty());
    let task = output::single_line(&shlex::try_quote(task).unwrap_or_default());
    let failed = |what: &str| {
        let failure = Failure::failed(format!("the task {what}"));
        Err(match &said {
            Some(text) => failure.because(text.as_str()),
            None => failure,
        })
    };
    match status.state {
        TaskState::Completed => Ok(()),
        TaskState::Failed => failed("failed"),
        TaskState::Rejected => failed("was rejected"),
        TaskState::Canceled => failed("was canceled"),
        TaskState::InputRequired | TaskState::AuthRequired => {
            output::error_line("note", &format!("the task waits; go on with `sb send --task {task} …`"));
            Ok(())
        }
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            Err(Failure::new(Exit::Timeout, "the task is not finished")
                .because("the server does not hold a request that long")
                .hint(format!("the work goes on; `sb task subscribe {task}` follows it to the end")))
        }
    }
}

#[cfg(test)]
mod tests {
    use a2a::{Message, Part};

    use super::*;

    fn code(state: TaskState) -> u8 {
        let message = Message { parts: vec![Part::text("")], ..Message::default() };
        let status = TaskStatus { state, message: Some(message), timestamp: None };
        verdict("t", &status).map_or_else(|failure| failure.exit as u8, |()| 0)
    }

    #[test]
    fn every_state_has_its_exit_code() {
        for (state, expected) in [
            (TaskState::Completed, 0),
            (TaskState::InputRequired, 0),
            (TaskState::AuthRequired, 0),
            (TaskState::Failed, 1),
            (TaskState::Rejected, 1),
            (TaskState::Canceled, 1),
            (TaskState::Working, 5),
        ] {
            assert_eq!(code(state), expected, "{}", state.as_str());
        }
    }

    #[test]
    fn the_next_command_goes_to_the_same_place() {
        let here = Place { words: Vec::new(), data_dir: None };
        assert_eq!(here.command(&["task", "cancel", "t-1"]), "sb task cancel t-1");
        let there = Place { words: vec!["--url".to_owned(), "https://h/a b".to_owned()], data_dir: None };
        assert_eq!(there.command(&["task", "cancel", "t-1"]), "sb task cancel t-1 --url 'https://h/a b'");
    }
}
