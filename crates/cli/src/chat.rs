//! `sb chat`: a conversation with an agent, one message a turn.
//!
//! On a terminal there is a prompt with an editor, and a turn that fails is told and forgotten. With lines from a pipe
//! every line is sent when the turn before it is over, and the exit code tells whether all of them worked.

mod carrying;
mod errand;
mod history;
mod plain;
mod slash;
mod turn;

use std::{
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use a2a::Part;
use agents::mind::INDEX;
use client::{Client, call_json};
use http::Method;
use serde_json::Value;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::timeout,
};

use self::{plain::Plain, slash::Line};
use crate::{
    config::{self, LogFormat, process_environment},
    editor::{Editor, Heard, Words},
    failure::{Exit, Failure},
    logging,
    output::{self, Format},
    routes,
    send::Place,
    target,
    task::ids,
};

/// `sb chat …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An agent of the server, or the URL of one elsewhere [default: that of the profile; `index` where the server has a model, else the server's default agent]
    agent: Option<String>,
    /// The server [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The conversation to go on with: its context, or the first characters of an id that a server has made [default: a new one]
    #[arg(long, visible_alias = "session", value_name = "CONTEXT")]
    context: Option<String>,
    /// Neither keep what is typed for the next time nor bring back what was typed before
    #[arg(long)]
    no_history: bool,
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
    /// Who is talked with, as the command line names it; nobody where it is the server's default agent.
    agent: Option<String>,
    format: Format,
    turn_limit: Duration,
    context: String,
    /// The last task that is known of; empty when there was none.
    task: String,
    /// The task that waits for the next message; empty when none does.
    waiting: String,
    /// Files that go with the next message.
    attached: Vec<Part>,
    /// Somebody watches, and is shown that something goes on.
    watched: bool,
    /// The person wants to go, whatever runs.
    leaves: bool,
}

/// Who is talked with.
enum Peer {
    Agent(Box<Client>),
    /// A remote that the server calls for us.
    Remote(Box<Plain>),
}

async fn chat(args: &Args) -> Result<(), Failure> {
    if let (Some(agent), Some(_)) = (args.agent.as_deref().filter(|agent| is_url(agent)), &args.url) {
        return Err(Failure::usage(format!("two agents are named: {agent} and --url"))
            .hint("give the URL once, or an agent's id together with --url"));
    }
    let agent = match &args.agent {
        Some(agent) => Some(agent.clone()),
        None => choose(args).await?,
    };
    let peer = connect(args, agent.as_deref()).await?;
    let mut context = args.context.clone().unwrap_or_default();
    if let Peer::Agent(client) = &peer {
        context = args.target.in_time(ids::context(client, &context)).await?;
    }
    let listen = |kind| signal(kind).map_err(|error| Failure::failed("cannot listen to signals").caused_by(&error));
    let mut interrupts = listen(SignalKind::interrupt())?;
    let (mut terminated, mut hung_up) = (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);

    let watched = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut conversation = Conversation {
        args,
        peer,
        agent,
        format: args.output,
        turn_limit: args.target.timeout.0,
        context,
        task: String::new(),
        waiting: String::new(),
        attached: Vec::new(),
        watched,
        leaves: false,
    };
    let talking = async {
        if watched {
            conversation.with_a_person(&mut interrupts).await
        } else {
            conversation.with_a_pipe(&mut interrupts).await
        }
    };
    // Whoever ends this from outside finds the terminal as it was: the editor goes with what is given up here.
    let ended = tokio::select! {
        ended = talking => ended,
        _ = terminated.recv() => Err(ended_by("SIGTERM")),
        _ = hung_up.recv() => Err(ended_by("SIGHUP")),
    };
    conversation.name_it();
    ended
}

fn ended_by(signal: &str) -> Failure {
    Failure::failed(format!("ended by {signal}"))
}

fn is_url(agent: &str) -> bool {
    agent.contains("://")
}

/// The way to an agent, by its id or its URL.
async fn connect(args: &Args, agent: Option<&str>) -> Result<Peer, Failure> {
    let (url, agent) = match agent {
        Some(agent) if is_url(agent) => (Some(agent), None),
        agent => (args.url.as_deref(), agent),
    };
    let target = args.target.target(url, agent)?;
    let options = args.target.client_options(&target)?;
    let connecting = async { Ok(Client::connect(args.target.connector(), &target.url, options).await) };
    match (args.target.in_time(connecting).await?, agent) {
        (Ok(client), _) => Ok(Peer::Agent(Box::new(client))),
        // It may be a remote that is known to the server and not served by it.
        (Err(error), Some(agent)) if error.http_status() == Some(404) => match Plain::find(args, agent).await {
            Some(plain) => Ok(Peer::Remote(Box::new(plain))),
            None => Err(Failure::of_agent(error)),
        },
        (Err(error), _) => Err(Failure::of_agent(error)),
    }
}

/// Whom to talk with where nobody is named: the profile's agent, or the one that routes, if the server says that it has a
/// model to think with.
async fn choose(args: &Args) -> Result<Option<String>, Failure> {
    let server = args.target.target(args.url.as_deref(), None)?;
    if server.default_agent.is_some() {
        return Ok(server.default_agent);
    }
    let url = routes::at(server.url, &["v1", "agents", INDEX], &[]);
    let connector = args.target.connector();
    let asked = call_json(&connector, Method::GET, &url, server.credential.as_ref(), None, None);
    let Ok(answer) = args.target.in_time(async { Ok(asked.await?) }).await else { return Ok(None) };
    let index: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let thinks = index["model"].as_str().is_some_and(|model| !model.is_empty());
    Ok(thinks.then(|| INDEX.to_owned()))
}

impl Conversation<'_> {
    /// Where the conversation is.
    fn place(&self) -> Place {
        let url = self.agent.as_deref().filter(|agent| is_url(agent)).or(self.args.url.as_deref());
        Place::of(url, &self.args.target)
    }

    async fn with_a_person(&mut self, interrupts: &mut Signal) -> Result<(), Failure> {
        let words = Words { commands: slash::names(), with_files: slash::with_files() };
        let mut editor = Editor::start(self.typed_before(), words)?;
        let with = self.agent.as_ref().map_or_else(String::new, |agent| format!("this is {agent}; "));
        let keys = "/help shows the commands, Ctrl-C cancels what runs, /quit or Ctrl-D ends";
        output::error_line("note", &format!("{with}{keys}"));
        if !self.context.is_empty()
            && let Err(failure) = self.recall().await
        {
            failure.print();
        }
        while !self.leaves {
            let prompt = if self.waiting.is_empty() { "> " } else { "answer> " };
            // One that came too late for the turn before is none for this prompt.
            let _ = timeout(Duration::ZERO, interrupts.recv()).await;
            let heard = tokio::select! {
                heard = editor.ask(prompt) => heard?,
                _ = interrupts.recv() => Heard::End,
            };
            let line = match heard {
                Heard::Line(line) => line,
                Heard::End => break,
            };
            let text = line.trim();
            if !text.is_empty()
                && let Err(failure) = self.hear(text, interrupts).await
            {
                failure.print();
            }
        }
        Ok(())
    }

    async fn with_a_pipe(&mut self, interrupts: &mut Signal) -> Result<(), Failure> {
        let mut lines = lines()?;
        let mut turns = 0;
        let mut failed: Vec<Exit> = Vec::new();
        while !self.leaves {
            let line = tokio::select! {
                line = lines.recv() => line.transpose()?,
                _ = interrupts.recv() => None,
            };
            match line.as_deref().map(str::trim) {
                None => break,
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
        match slash::read(text)? {
            Line::Say(text) => self.turn(text, interrupts).await,
            Line::Do(command, words) => self.carry_out(command, &words).await,
        }
    }

    /// The file with what was typed in earlier conversations, unless it is not wanted or there is no place for it.
    fn typed_before(&self) -> Option<PathBuf> {
        let wanted = !self.args.no_history;
        Some(config::state_home(&process_environment).filter(|_| wanted)?.join("chat_history"))
    }

    /// Says which conversation this is, and how to come back to it.
    fn name_it(&self) {
        if !self.watched || self.context.is_empty() {
            return;
        }
        let mut words = vec!["sb".to_owned(), "chat".to_owned()];
        words.extend(self.agent.clone());
        if !self.agent.as_deref().is_some_and(is_url) {
            words.extend(self.args.url.iter().flat_map(|url| ["--url".to_owned(), url.clone()]));
        }
        words.extend(self.args.target.words());
        words.extend(["--context".to_owned(), self.context.clone()]);
        // Only what holds a zero byte cannot be quoted, and that is no argument.
        let command = shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
        let command = output::single_line(&command);
        output::error_line("note", &format!("`{command}` goes on with this conversation"));
    }

    fn client(&self) -> Result<&Client, Failure> {
        match &self.peer {
            Peer::Agent(client) => Ok(client),
            Peer::Remote(_) => Err(Failure::failed("what was said to a remote is not known here")
                .hint("`sb task list` shows the tasks of this server")),
        }
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
