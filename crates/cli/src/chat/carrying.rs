//! The commands of a conversation, carried out.

use std::{
    fs::{OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use a2a::{CancelTaskRequest, GetTaskRequest, PartContent, Task};

use super::{
    Conversation, Peer, connect, errand, history, is_url,
    slash::{self, Command},
};
use crate::{
    a2a_command,
    aside::Aside,
    config::process_environment,
    failure::Failure,
    output, parts,
    table::{fields, timestamp},
    task::spoken,
};

impl Conversation<'_> {
    pub(super) async fn carry_out(&mut self, command: Command, words: &[String]) -> Result<(), Failure> {
        match command {
            Command::Help => {
                output::print(&slash::help());
                Ok(())
            }
            Command::New => {
                self.name_it();
                self.begin("");
                Ok(())
            }
            Command::Agent => self.agent(words).await,
            Command::Task => self.show_task().await,
            Command::Cancel => self.cancel_task().await,
            Command::Attach => self.attach(words.first().map(String::as_str)),
            Command::Save => self.save(words).await,
            Command::Context => self.resume(words.first().map(String::as_str)).await,
            Command::History => {
                let work = history::print(self.client()?, &self.context);
                self.args.target.in_time(work).await
            }
            Command::A2a => a2a_command::line(words, self.args.url.as_deref(), &self.args.target).await,
            Command::Quit => {
                self.leaves = true;
                Ok(())
            }
        }
    }

    /// From now on it is this conversation, or a new one.
    fn begin(&mut self, context: &str) {
        context.clone_into(&mut self.context);
        self.waiting.clear();
        self.task.clear();
    }

    /// Shows the last of a conversation that goes on. A task that waits in it is answered next.
    pub(super) async fn recall(&mut self) -> Result<(), Failure> {
        let work = history::recall(self.client()?, &self.context);
        let last = self.args.target.in_time(work).await?;
        self.take_up(last);
        Ok(())
    }

    /// The task that was the last one. What it waits for is said next.
    fn take_up(&mut self, task: Option<Task>) {
        let Some(task) = task else { return };
        if task.status.state.is_interrupted() {
            self.waiting.clone_from(&task.id);
        }
        self.task = task.id;
    }

    async fn resume(&mut self, context: Option<&str>) -> Result<(), Failure> {
        match context {
            Some(context) if context != self.context => {
                self.name_it();
                self.begin(context);
                self.recall().await
            }
            Some(_) => Ok(()),
            None if self.context.is_empty() => {
                output::error_line("note", "nothing was said yet; the first message begins a conversation");
                Ok(())
            }
            None => {
                output::line(&output::single_line(&self.context));
                Ok(())
            }
        }
    }

    async fn agent(&mut self, words: &[String]) -> Result<(), Failure> {
        match words {
            [] => {
                output::line(self.agent.as_deref().unwrap_or("the server's default agent"));
                output::error_line("note", "`sb agent list` shows who there is; /agent NAME goes on with another one");
                Ok(())
            }
            [name] if !name.starts_with('-') && !matches!(name.as_str(), "run" | "help") => self.switch(name).await,
            [verb, ..] if verb.starts_with('-') || matches!(verb.as_str(), "run" | "help") => {
                errand::run(words, self.args, &mut self.context).await
            }
            [_, word, ..] | [word] => Err(Failure::usage(format!("`/agent` does not take `{word}`"))
                .hint("`/agent NAME` goes on with that agent, `/agent run NAME TEXT` sends it one message")),
        }
    }

    /// Goes on with another agent. The conversation keeps its id where the server stays the same.
    async fn switch(&mut self, agent: &str) -> Result<(), Failure> {
        let peer = connect(self.args, Some(agent)).await?;
        let moves = is_url(agent) || self.agent.as_deref().is_some_and(is_url);
        let context = if moves { String::new() } else { self.context.clone() };
        if moves {
            self.name_it();
        }
        self.begin(&context);
        if matches!(peer, Peer::Remote(_)) && !self.attached.is_empty() {
            self.attached.clear();
            output::error_line("note", "a remote takes text only: nothing is attached any more");
        }
        self.peer = peer;
        self.agent = Some(agent.to_owned());
        output::error_line("note", &format!("this is {agent} now; it knows only what was said to it"));
        if let (Peer::Agent(client), false) = (&self.peer, self.context.is_empty()) {
            let last = self.args.target.in_time(history::last(client, &self.context)).await?;
            self.take_up(last);
        }
        Ok(())
    }

    async fn show_task(&self) -> Result<(), Failure> {
        let client = self.client()?;
        let id = self.known_task()?;
        let request = GetTaskRequest { id, history_length: Some(0), ..GetTaskRequest::default() };
        let task = self.args.target.in_time(async { Ok(client.get(request).await?) }).await?;
        self.print_task(&task.value);
        Ok(())
    }

    async fn cancel_task(&mut self) -> Result<(), Failure> {
        let client = self.client()?;
        let request = CancelTaskRequest { id: self.known_task()?, ..CancelTaskRequest::default() };
        let task = self.args.target.in_time(async { Ok(client.cancel(request).await?) }).await?;
        self.print_task(&task.value);
        if !task.value.status.state.is_interrupted() {
            self.waiting.clear();
        }
        Ok(())
    }

    fn known_task(&self) -> Result<String, Failure> {
        if self.task.is_empty() {
            return Err(Failure::usage("there is no task yet").hint("say something first"));
        }
        Ok(self.task.clone())
    }

    fn print_task(&self, task: &Task) {
        let shown = fields(&[
            ("task", Some(task.id.clone())),
            ("agent", self.agent.clone()),
            ("state", Some(spoken(task.status.state))),
            ("changed", task.status.timestamp.map(timestamp)),
            ("context", Some(task.context_id.clone())),
        ]);
        output::print(&shown);
    }

    fn attach(&mut self, file: Option<&str>) -> Result<(), Failure> {
        let Some(file) = file else {
            if self.attached.is_empty() {
                output::error_line("note", "nothing is attached; /attach FILE puts a file on the next message");
            }
            self.attached.iter().for_each(|part| output::line(&output::parts_text(std::slice::from_ref(part))));
            return Ok(());
        };
        if file == "-" {
            self.attached.clear();
            output::error_line("note", "nothing is attached any more");
            return Ok(());
        }
        if matches!(self.peer, Peer::Remote(_)) {
            return Err(Failure::failed("a remote takes text only"));
        }
        let part = parts::file(&place(file))
            .map_err(|failure| failure.hint("/attach needs a file that can be read; names with spaces are quoted"))?;
        let bytes = if let PartContent::Raw(bytes) = &part.content { bytes.len() } else { 0 };
        let shown = Aside::File { name: part.filename.clone(), bytes };
        self.attached.push(part);
        output::error_line("note", &format!("{} goes with the next message", shown.text()));
        Ok(())
    }

    async fn save(&self, words: &[String]) -> Result<(), Failure> {
        let replace = words.iter().any(|word| word == "--replace");
        let files: Vec<&String> = words.iter().filter(|word| *word != "--replace").collect();
        let [file] = files[..] else {
            return Err(Failure::usage("/save needs the name of one file").hint("it is `/save FILE [--replace]`"));
        };
        let work = history::text(self.client()?, &self.context);
        let Some(text) = self.args.target.in_time(work).await? else { return Ok(()) };
        let path = place(file);
        write_private(&path, &text, replace).map_err(|error| {
            let failure = Failure::failed(format!("cannot write `{}`", path.display())).caused_by(&error);
            match error.kind() {
                io::ErrorKind::AlreadyExists => failure.hint("name another file, or add --replace"),
                _ => failure.hint("name a file in a directory that can be written"),
            }
        })?;
        output::error_line("note", &format!("saved to {}", path.display()));
        Ok(())
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str, replace: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).create_new(!replace).create(replace).truncate(replace);
    let mut file = options.open(path)?;
    // One that was there may have been anybody's.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}

/// A path as it is typed; `~/` is the home, which no shell has put in here.
fn place(typed: &str) -> PathBuf {
    match (typed.strip_prefix("~/"), process_environment("HOME")) {
        (Some(below), Some(home)) => Path::new(&home).join(below),
        _ => PathBuf::from(typed),
    }
}
