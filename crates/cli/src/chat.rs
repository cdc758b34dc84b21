//! `sb chat`: a conversation with an agent, one line a turn.
//!
//! On a terminal there is a prompt, and a turn that fails is told and forgotten. With lines from a pipe every line is
//! sent when the turn before it is over, and the exit code tells whether all of them worked.

mod commands;
mod plain;

use std::{
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use a2a::{CancelTaskRequest, SendMessageRequest, SendMessageResponse, StreamResponse, TaskState, TaskStatus};
use client::{Client, EventStream, user_message};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use self::plain::Plain;
use crate::{
    config::LogFormat,
    failure::{Exit, Failure},
    logging,
    output::{self, Format, Style},
    send::{Printer, message_text, print_text, task_text, verdict},
    target,
};

/// `sb chat …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An agent of the server, or the URL of one elsewhere [default: the server's default agent]
    agent: Option<String>,
    /// The server [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The conversation to go on with: the context of everything that is said [default: a new one]
    #[arg(long, value_name = "CONTEXT")]
    session: Option<String>,
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
}

/// Who is talked with.
enum Peer {
    Agent(Box<Client>),
    /// A remote that the server calls for us.
    Remote(Plain),
}

/// How a turn has gone so far.
#[derive(Default)]
struct Progress {
    last: Option<(String, TaskStatus)>,
    said: bool,
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

    let mut conversation = Conversation {
        args,
        peer,
        format: args.output,
        turn_limit: args.target.timeout.0,
        context: args.session.clone().unwrap_or_default(),
        waiting: String::new(),
    };
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        conversation.with_a_person(&mut interrupts).await
    } else {
        conversation.with_a_pipe(&mut interrupts).await
    }
}

impl Conversation<'_> {
    async fn with_a_person(&mut self, interrupts: &mut Signal) -> Result<(), Failure> {
        let mut lines = lines()?;
        output::error_line(
            "note",
            "/new starts over, /a2a and /agent run reach the queue and other agents, Ctrl-C cancels what runs, /quit or Ctrl-D ends",
        );
        let mut warned = false;
        loop {
            let prompt = if self.waiting.is_empty() { "> " } else { "answer> " };
            output::print(&output::styled(Style::Bold, prompt));
            let line = tokio::select! {
                line = lines.recv() => line.transpose()?,
                _ = interrupts.recv() => {
                    output::print("\n");
                    if warned {
                        return Ok(());
                    }
                    warned = true;
                    output::error_line("note", "nothing runs; Ctrl-C again or Ctrl-D ends");
                    continue;
                }
            };
            warned = false;
            match line.as_deref().map(str::trim) {
                None => {
                    output::print("\n");
                    return Ok(());
                }
                Some("/quit") => return Ok(()),
                Some("/new") => self.start_over(),
                Some("") => {}
                Some(text) => {
                    if let Err(failure) = self.hear(text, interrupts).await {
                        failure.print();
                    }
                }
            }
        }
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
                Some("/new") => self.start_over(),
                Some("") => {}
                Some(text) => {
                    turns += 1;
                    if let Err(failure) = self.hear(text, interrupts).await {
                        // Nobody would answer the lines that follow either.
                        if matches!(failure.exit, Exit::Unreachable | Exit::Auth) {
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

    fn start_over(&mut self) {
        self.context.clear();
        self.waiting.clear();
    }

    /// Carries out a command, or says something to the agent.
    async fn hear(&mut self, text: &str, interrupts: &mut Signal) -> Result<(), Failure> {
        match commands::try_run(text, self.args, &mut self.context).await {
            Some(done) => done,
            None => self.turn(text, interrupts).await,
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
                    said = plain.say(text, &self.context, &request.message.task_id) => said?,
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
                output::error_line("note", "canceled");
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
        let mut stream = tokio::select! {
            opened = client.stream(request) => opened?,
            _ = interrupts.recv() => return Err(left(None)),
            () = sleep_until(deadline) => return Err(self.too_slow(None)),
        };
        let mut printer = Printer::default();
        let ended = self.follow(client, &mut stream, &mut printer, interrupts, deadline, progress).await;
        if ended.is_ok() {
            printer.finish(&stream).await;
        }
        printer.end();
        ended
    }

    async fn follow(
        &mut self,
        client: &Client,
        stream: &mut EventStream,
        printer: &mut Printer,
        interrupts: &mut Signal,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                () = sleep_until(deadline) => return Err(self.too_slow(stream.task())),
                _ = interrupts.recv() => {
                    printer.end();
                    let task = stream.task().map(str::to_owned);
                    match task.clone().filter(|_| !progress.canceling) {
                        Some(task) => cancel(client, task, progress).await,
                        None => return Err(left(task.as_deref())),
                    }
                    continue;
                }
            };
            let Some(event) = event.transpose()? else {
                return Ok(());
            };
            match self.format {
                Format::Json => output::line(&output::one_line(event.json.get())),
                Format::Text => printer.event(&event.value),
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
            reply = client.send(request) => reply?,
            _ = interrupts.recv() => return Err(left(None)),
            () = sleep_until(deadline) => return Err(self.too_slow(None)),
        };
        match (self.format, &reply.value) {
            (Format::Json, _) => output::line(&output::one_line(reply.json.get())),
            (Format::Text, SendMessageResponse::Message(message)) => print_text(&message_text(message)),
            (Format::Text, SendMessageResponse::Task(task)) => print_text(&task_text(task)),
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

/// Asks for the end of the task; the stream then tells what became of it.
async fn cancel(client: &Client, task: String, progress: &mut Progress) {
    progress.canceling = true;
    output::error_line("note", "canceling; Ctrl-C again leaves it running");
    let request = CancelTaskRequest { id: task, ..CancelTaskRequest::default() };
    if let Err(error) = client.cancel(request).await {
        Failure::from(error).print();
    }
}

/// The person did not want to wait any longer.
fn left(task: Option<&str>) -> Failure {
    let failure = Failure::failed("left before the turn was over");
    match task {
        Some(task) => failure.hint(format!("the work goes on as task {task}")),
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
