//! `sb chat`: a conversation with an agent, one line a turn.
//!
//! On a terminal there is a prompt, and a turn that fails is told and forgotten. With lines from a pipe every line is
//! sent when the turn before it is over, and the exit code tells whether all of them worked.

mod commands;
mod history;
mod plain;
mod waiting;

use std::{
    io::{self, BufRead, IsTerminal},
    pin::pin,
    time::Duration,
};

use a2a::{CancelTaskRequest, SendMessageRequest, SendMessageResponse, StreamResponse, TaskState, TaskStatus};
use agents::mind::INDEX;
use client::{Client, EventStream, call_json, user_message};
use http::Method;
use serde_json::Value;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use self::{plain::Plain, waiting::Waiting};
use crate::{
    config::LogFormat,
    failure::{Exit, Failure},
    logging,
    output::{self, Format, Style},
    routes,
    send::{Printer, message_text, print_reply, print_text, verdict},
    target,
};

/// `sb chat …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An agent of the server, or the URL of one elsewhere [default: `index` where the server has a model, else the server's default agent]
    agent: Option<String>,
    /// The server [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The conversation to go on with: the context of everything that is said [default: a new one]
    #[arg(long, visible_alias = "session", value_name = "CONTEXT")]
    context: Option<String>,
    /// How to print replies
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    /// `--timeout` is for each turn here.
    #[command(flatten)]
    target: target::TargetArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    target::block_on(chat(&args))
}

/// What is known of a conversation.
struct Conversation<'a> {
    args: &'a Args,
    peer: Peer,
    format: Format,
    turn_limit: Duration,
    context: String,
    /// The task that waits for the next message; empty when none does.
    waiting: String,
    /// The agent, where the server was asked for one and none was named.
    chosen: Option<&'static str>,
    /// Somebody watches, and is shown that something goes on.
    watched: bool,
    /// The person wants to go, whatever runs.
    leaves: bool,
}

/// Who is talked with.
enum Peer {
    Agent(Box<Client>),
    /// A remote that the server calls for us.
    Remote(Plain),
}

/// What is seen of a turn.
struct Screen {
    printer: Printer,
    waiting: Waiting,
}

/// How a turn has gone so far.
#[derive(Default)]
struct Progress {
    last: Option<(String, TaskStatus)>,
    said: bool,
    /// The person does not want it any more.
    interrupted: bool,
    canceling: bool,
}

async fn chat(args: &Args) -> Result<(), Failure> {
    let (url, agent) = match args.agent.as_deref() {
        Some(agent) if agent.contains("://") && args.url.is_some() => {
            return Err(Failure::usage(format!("two agents are named: {agent} and --url"))
                .hint("give the URL once, or an agent's id together with --url"));
        }
        Some(agent) if agent.contains("://") => (Some(agent), None),
        agent => (args.url.as_deref(), agent),
    };
    let chosen = if args.agent.is_none() { choose(args).await } else { None };
    let agent = agent.or(chosen);
    let target = args.target.target(url, agent)?;
    let options = args.target.client_options(target.token)?;
    let connecting = async { Ok(Client::connect(args.target.connector(), &target.url, options).await) };
    let peer = match (args.target.in_time(connecting).await?, agent) {
        (Ok(client), _) => Peer::Agent(Box::new(client)),
        // It may be a remote that is known to the server and not served by it.
        (Err(error), Some(agent)) if error.http_status() == Some(404) => match Plain::find(args, agent).await {
            Some(plain) => Peer::Remote(plain),
            None => return Err(error.into()),
        },
        (Err(error), _) => return Err(error.into()),
    };
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Failure::failed("cannot listen to signals").caused_by(&error))?;

    let watched = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut conversation = Conversation {
        args,
        peer,
        format: args.output,
        turn_limit: args.target.timeout.0,
        context: args.context.clone().unwrap_or_default(),
        waiting: String::new(),
        chosen,
        watched,
        leaves: false,
    };
    if watched {
        conversation.with_a_person(&mut interrupts).await
    } else {
        conversation.with_a_pipe(&mut interrupts).await
    }
}

/// Whom to talk with where nobody is named: the agent that routes, if the server says that it has a model to think with.
async fn choose(args: &Args) -> Option<&'static str> {
    let server = args.target.target(args.url.as_deref(), None).ok()?;
    let url = routes::at(server.url, &["v1", "agents", INDEX], &[]);
    let connector = args.target.connector();
    let asked = call_json(&connector, Method::GET, &url, server.token.as_ref(), None, None);
    let answer = args.target.in_time(async { Ok(asked.await?) }).await.ok()?;
    let index: Value = serde_json::from_slice(&answer).ok()?;
    index["model"].as_str().filter(|model| !model.is_empty()).map(|_| INDEX)
}

impl Screen {
    /// Makes room for a line of something else.
    fn clear(&mut self) {
        self.waiting.hide();
        self.printer.end();
    }
}

impl Conversation<'_> {
    async fn with_a_person(&mut self, interrupts: &mut Signal) -> Result<(), Failure> {
        let mut lines = lines()?;
        let with = self.agent().map_or_else(String::new, |agent| format!("this is {agent}; "));
        output::error_line(
            "note",
            &format!(
                "{with}/history shows what was said, /new starts over, /a2a and /agent run reach the queue and other agents, \
                 Ctrl-C cancels what runs, /quit or Ctrl-D ends"
            ),
        );
        if !self.context.is_empty()
            && let Err(failure) = self.recall().await
        {
            failure.print();
        }
        while !self.leaves {
            let prompt = if self.waiting.is_empty() { "> " } else { "answer> " };
            output::print(&output::styled(Style::Bold, prompt));
            let line = tokio::select! {
                line = lines.recv() => line.transpose()?,
                _ = interrupts.recv() => None,
            };
            match line.as_deref().map(str::trim) {
                None => {
                    output::print("\n");
                    break;
                }
                Some("/quit") => break,
                Some("") => {}
                Some(text) => {
                    if let Err(failure) = self.hear(text, interrupts).await {
                        failure.print();
                    }
                }
            }
        }
        self.name_it();
        Ok(())
    }

    async fn with_a_pipe(&mut self, interrupts: &mut Signal) -> Result<(), Failure> {
        let mut lines = lines()?;
        let mut turns = 0;
        let mut failed: Vec<Exit> = Vec::new();
        loop {
            let line = tokio::select! {
                line = lines.recv() => line.transpose()?,
                _ = interrupts.recv() => None,
            };
            match line.as_deref().map(str::trim) {
                None | Some("/quit") => break,
                Some("") => {}
                Some(text) => {
                    turns += 1;
                    if let Err(failure) = self.hear(text, interrupts).await {
                        // Nobody would answer the lines that follow either, or hear the answers.
                        if self.leaves || matches!(failure.exit, Exit::Unreachable | Exit::Auth) {
                            return Err(failure);
                        }
                        failure.print();
                        failed.push(failure.exit);
                    }
                }
            }
        }
        match failed.first() {
            Some(exit) => Err(Failure::new(*exit, format!("{} of {turns} messages did not work", failed.len()))),
            None => Ok(()),
        }
    }

    /// Carries out a command, or says something to the agent.
    async fn hear(&mut self, text: &str, interrupts: &mut Signal) -> Result<(), Failure> {
        match text {
            "/new" => {
                self.name_it();
                self.context.clear();
                self.waiting.clear();
                return Ok(());
            }
            "/history" => return self.history().await,
            _ => {}
        }
        match commands::try_run(text, self.args, &mut self.context).await {
            Some(done) => done,
            None => self.turn(text, interrupts).await,
        }
    }

    /// The agent, as the command line names it.
    fn agent(&self) -> Option<&str> {
        self.args.agent.as_deref().or(self.chosen)
    }

    /// Says which conversation this is, and how to come back to it.
    fn name_it(&self) {
        if !self.watched || self.context.is_empty() {
            return;
        }
        let mut words = vec!["sb", "chat"];
        words.extend(self.agent());
        words.extend(self.args.url.as_deref().into_iter().flat_map(|url| ["--url", url]));
        words.extend(["--context", &self.context]);
        // Only what holds a zero byte cannot be quoted, and that is no argument.
        let command = shlex::try_join(words).unwrap_or_default();
        output::error_line("note", &format!("`{command}` goes on with this conversation"));
    }

    async fn history(&self) -> Result<(), Failure> {
        let work = history::print(self.client()?, &self.context);
        self.args.target.in_time(work).await
    }

    async fn recall(&self) -> Result<(), Failure> {
        let work = history::recall(self.client()?, &self.context);
        self.args.target.in_time(work).await
    }

    fn client(&self) -> Result<&Client, Failure> {
        match &self.peer {
            Peer::Agent(client) => Ok(client),
            Peer::Remote(_) => Err(Failure::failed("what was said to a remote is not known here")
                .hint("`sb task list` shows the tasks of this server")),
        }
    }

    /// Sends one message and prints what comes of it.
    async fn turn(&mut self, text: &str, interrupts: &mut Signal) -> Result<(), Failure> {
        let mut request = user_message(Uuid::new_v4().to_string(), text);
        request.message.context_id = self.context.clone();
        request.message.task_id = std::mem::take(&mut self.waiting);
        let mut progress = Progress::default();
        let client = match &self.peer {
            Peer::Agent(client) => Client::clone(client),
            Peer::Remote(plain) => {
                let deadline = Instant::now() + self.turn_limit;
                let said = tokio::select! {
                    said = self.shown_waiting(plain.say(text, &self.context, &request.message.task_id)) => said?,
                    _ = interrupts.recv() => return Err(left(None)),
                    () = sleep_until(deadline) => return Err(self.too_slow(None)),
                };
                self.context = said.context;
                self.waiting = said.waiting;
                return said.verdict;
            }
        };
        if client.streams() {
            self.stream(&client, request, interrupts, &mut progress).await?;
        } else {
            self.send(&client, request, interrupts, &mut progress).await?;
        }
        let Some((task, status)) = progress.last else {
            return if progress.said {
                Ok(())
            } else {
                Err(Failure::failed("the stream ended before it said anything"))
            };
        };
        match status.state {
            state if state.is_interrupted() => {
                self.waiting = task;
                Ok(())
            }
            TaskState::Canceled if progress.canceling => {
                output::error_line("note", "canceled; the conversation goes on");
                Ok(())
            }
            _ => verdict(&task, &status),
        }
    }

    /// A turn with an agent that streams.
    async fn stream(
        &mut self,
        client: &Client,
        request: SendMessageRequest,
        interrupts: &mut Signal,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.turn_limit;
        let waiting = Waiting::new(self.watched && self.format == Format::Text);
        let mut screen = Screen { printer: Printer::default(), waiting };
        let mut opening = pin!(client.stream(request));
        let mut stream = loop {
            tokio::select! {
                opened = &mut opening => break opened?,
                _ = interrupts.recv() => {
                    screen.clear();
                    if std::mem::replace(&mut progress.interrupted, true) {
                        self.leaves = true;
                        return Err(left(None));
                    }
                    output::error_line("note", "canceling as soon as there is a task; Ctrl-C again leaves");
                }
                () = screen.waiting.tick() => screen.waiting.show(true),
                () = sleep_until(deadline) => return Err(self.too_slow(None)),
            }
        };
        let ended = self.follow(client, &mut stream, &mut screen, interrupts, deadline, progress).await;
        screen.waiting.hide();
        if ended.is_ok() {
            screen.printer.finish(&stream).await;
        }
        screen.clear();
        ended
    }

    async fn follow(
        &mut self,
        client: &Client,
        stream: &mut EventStream,
        screen: &mut Screen,
        interrupts: &mut Signal,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        loop {
            if progress.interrupted
                && !progress.canceling
                && let Some(task) = stream.task().map(str::to_owned)
            {
                screen.clear();
                progress.canceling = true;
                cancel(client, task);
            }
            let event = tokio::select! {
                event = stream.next() => event,
                () = screen.waiting.tick() => {
                    screen.waiting.show(screen.printer.is_at_line_start());
                    continue;
                }
                () = sleep_until(deadline) => return Err(self.too_slow(stream.task())),
                _ = interrupts.recv() => {
                    if std::mem::replace(&mut progress.interrupted, true) {
                        self.leaves = true;
                        return Err(left(stream.task()));
                    }
                    continue;
                }
            };
            screen.waiting.heard();
            let Some(event) = event.transpose()? else {
                return Ok(());
            };
            match self.format {
                Format::Json => output::line(&output::one_line(event.json.get())),
                Format::Text => screen.printer.event(&event.value),
            }
            let waits = matches!(&event.value, StreamResponse::StatusUpdate(update)
                if update.status.state == TaskState::AuthRequired);
            self.note(event.value, progress);
            // The stream stays open while authorization is awaited, and the person has to be asked now.
            if waits {
                return Ok(());
            }
        }
    }

    /// Work, with a sign while it takes long.
    async fn shown_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut waiting = Waiting::new(self.watched && self.format == Format::Text);
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = waiting.tick() => waiting.show(true),
            }
        }
    }

    /// A turn with an agent that answers as a whole.
    async fn send(
        &mut self,
        client: &Client,
        request: SendMessageRequest,
        interrupts: &mut Signal,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.turn_limit;
        let reply = tokio::select! {
            reply = self.shown_waiting(client.send(request)) => reply?,
            _ = interrupts.recv() => return Err(left(None)),
            () = sleep_until(deadline) => return Err(self.too_slow(None)),
        };
        match (self.format, &reply.value) {
            (Format::Json, _) => output::line(&output::one_line(reply.json.get())),
            (Format::Text, SendMessageResponse::Message(message)) => print_text(&message_text(message)),
            (Format::Text, SendMessageResponse::Task(task)) => {
                print_reply(task);
            }
        }
        let event = match reply.value {
            SendMessageResponse::Message(message) => StreamResponse::Message(message),
            SendMessageResponse::Task(task) => StreamResponse::Task(task),
        };
        self.note(event, progress);
        Ok(())
    }

    /// Learns from an event which conversation this is and where its task stands.
    fn note(&mut self, event: StreamResponse, progress: &mut Progress) {
        progress.said = true;
        let context = match event {
            StreamResponse::Task(task) => {
                progress.last = Some((task.id, task.status));
                task.context_id
            }
            StreamResponse::StatusUpdate(update) => {
                progress.last = Some((update.task_id, update.status));
                update.context_id
            }
            StreamResponse::ArtifactUpdate(update) => update.context_id,
            StreamResponse::Message(message) => message.context_id,
        };
        if !context.is_empty() {
            self.context = context;
        }
    }

    fn too_slow(&self, task: Option<&str>) -> Failure {
        let failure = Failure::new(Exit::Timeout, format!("no end of the turn within {:?}", self.turn_limit));
        match task {
            Some(task) => failure.hint(format!("the work goes on as task {task}; --timeout gives a turn more time")),
            None => failure.hint("give a turn more time with --timeout"),
        }
    }
}

/// Asks for the end of the task; the stream then tells what became of it. Nobody waits for the answer, who might want to leave.
fn cancel(client: &Client, task: String) {
    output::error_line("note", "canceling; the conversation goes on, and Ctrl-C again leaves it");
    let client = client.clone();
    tokio::spawn(async move {
        let request = CancelTaskRequest { id: task, ..CancelTaskRequest::default() };
        if let Err(error) = client.cancel(request).await {
            Failure::from(error).print();
        }
    });
}

/// The person did not want to wait any longer.
fn left(task: Option<&str>) -> Failure {
    let failure = Failure::failed("left before the turn was over");
    match task {
        Some(task) => failure.hint(format!("`sb task get {task}` shows what becomes of it")),
        None => failure.hint("the agent may go on with it"),
    }
}

/// The lines of stdin, read on a thread of their own: a read that waits cannot be given up.
fn lines() -> Result<mpsc::Receiver<Result<String, Failure>>, Failure> {
    let (sender, receiver) = mpsc::channel(1);
    let read = move || {
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|error| Failure::failed("cannot read from stdin").caused_by(&error));
            let ends = line.is_err();
            if sender.blocking_send(line).is_err() || ends {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)
        .map_err(|error| Failure::failed("cannot read from stdin").caused_by(&error))?;
    Ok(receiver)
}
