//! `sb send`: one message to an agent, and its reply.

use std::collections::BTreeMap;

use a2a::{
    Artifact, Message, Role, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
};
use client::{Client, EventStream, user_message};
use uuid::Uuid;

use crate::{
    aside::Aside,
    config::LogFormat,
    failure::{Exit, Failure},
    logging,
    output::{self, Format},
    parts::PartArgs,
    target,
};

/// `sb send …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    parts: PartArgs,
    /// An agent of the server [default: the server's default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The server, an agent elsewhere, or a card [env: SB_URL] [default: the local server]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Print the reply while it is made
    #[arg(long)]
    stream: bool,
    /// The conversation this belongs to
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
    /// The task this continues
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// How to print the reply
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    args.target.block_on(send(&args))
}

async fn send(args: &Args) -> Result<(), Failure> {
    let mut request = user_message(Uuid::new_v4().to_string(), "");
    args.parts.fill(&mut request.message)?;
    request.message.context_id = args.context.clone().unwrap_or_default();
    request.message.task_id = args.task.clone().unwrap_or_default();
    let target = args.target.target(args.url.as_deref(), args.agent.as_deref())?.or_default_agent()?;
    let options = args.target.client_options(target.token)?;
    let client = Client::connect(args.target.connector(), &target.url, options).await?;
    if args.stream {
        return follow(client.stream(request).await?, args.output).await;
    }
    let reply = client.send(request).await?;
    if args.output == Format::Json {
        output::line(&output::one_line(reply.json.get()));
    }
    match &reply.value {
        SendMessageResponse::Message(message) => {
            if args.output == Format::Text {
                print_text(&message_text(message));
            }
            Ok(())
        }
        SendMessageResponse::Task(task) => {
            if args.output == Format::Text && !print_reply(task) && task.status.state == TaskState::Completed {
                say_silence();
            }
            verdict(&task.id, &task.status)
        }
    }
}

/// Nothing came, and that is no mistake.
fn say_silence() {
    output::error_line("note", "the task is done, and its agent said nothing");
}

/// What a stream had to say.
pub(crate) enum Seen {
    /// Nothing at all.
    Nothing,
    /// A direct message.
    Message,
    /// A task, and the last that is known of it.
    Task(String, Box<TaskStatus>),
}

/// Prints a stream while it comes, and says what its end means.
async fn follow(stream: EventStream, format: Format) -> Result<(), Failure> {
    match watch(stream, format).await? {
        Seen::Message => Ok(()),
        Seen::Task(task, status) => verdict(&task, &status),
        Seen::Nothing => Err(Failure::failed("the stream ended before it said anything")),
    }
}

/// Prints a stream while it comes.
pub(crate) async fn watch(mut stream: EventStream, format: Format) -> Result<Seen, Failure> {
    let mut printer = Printer::default();
    let mut seen = Seen::Nothing;
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                printer.end();
                return Err(broken_off(error, &stream));
            }
        };
        match format {
            Format::Json => output::line(&output::one_line(event.json.get())),
            Format::Text => printer.event(&event.value),
        }
        match event.value {
            StreamResponse::Message(_) => return Ok(Seen::Message),
            StreamResponse::Task(task) => seen = Seen::Task(task.id, Box::new(task.status)),
            StreamResponse::StatusUpdate(update) => {
                // The stream stays open while authorization is awaited, but this command has nobody to wait for it.
                let waits = update.status.state == TaskState::AuthRequired;
                seen = Seen::Task(update.task_id, Box::new(update.status));
                if waits {
                    break;
                }
            }
            StreamResponse::ArtifactUpdate(_) => {}
        }
    }
    printer.finish(&stream).await;
    Ok(seen)
}

/// Why a stream ended early, and how to go on with it.
fn broken_off(error: client::Error, stream: &EventStream) -> Failure {
    let is_cut = matches!(error, client::Error::Cut { .. });
    let failure = Failure::from(error);
    match (stream.task(), stream.last_id()) {
        (Some(task), Some(last)) if is_cut => {
            failure.hint(format!("the work goes on; `sb task subscribe {task} --after {last}` shows the rest"))
        }
        (Some(task), None) if is_cut => {
            failure.hint(format!("the work may go on; `sb task get {task}` shows what came of it"))
        }
        _ => failure,
    }
}

/// What has been printed of a stream.
#[derive(Default)]
pub(crate) struct Printer {
    artifact: Option<String>,
    printed: bool,
    completed: bool,
    /// What was shown beside the answer, by artifact: what a stream says again after a cut is not shown again.
    asides: BTreeMap<String, Aside>,
    /// The last thing printed did not end its line.
    open_line: bool,
    /// A line was ended for something beside the answer, whose own line break may be the next thing to come.
    cut_line: bool,
}

impl Printer {
    pub(crate) fn event(&mut self, event: &StreamResponse) {
        match event {
            StreamResponse::Message(message) => self.line(&message_text(message)),
            StreamResponse::ArtifactUpdate(update) => self.chunk(update),
            StreamResponse::StatusUpdate(update) => self.status(&update.status),
            // A snapshot in place of the events that made it, as some servers give it after a cut.
            StreamResponse::Task(task) if task.status.state.is_terminal() && !self.printed => {
                self.completed = task.status.state == TaskState::Completed;
                task.artifacts.iter().for_each(|artifact| {
                    self.aside(artifact);
                });
                self.line(&task_text(task))
            }
            StreamResponse::Task(_) => {}
        }
    }

    fn chunk(&mut self, update: &TaskArtifactUpdateEvent) {
        if !update.append && self.aside(&update.artifact) {
            return;
        }
        let id = &update.artifact.artifact_id;
        let goes_on = self.artifact.as_ref() == Some(id) && update.append;
        if !goes_on {
            self.end();
            self.artifact = Some(id.clone());
        }
        let was_cut = std::mem::take(&mut self.cut_line);
        let text = output::parts_text(&update.artifact.parts);
        let text = if goes_on && was_cut { text.strip_prefix('\n').unwrap_or(&text) } else { &text };
        self.print(text);
    }

    /// What is beside the answer has a line of its own among it. Where the answer stands alone nothing of it changes.
    fn aside(&mut self, artifact: &Artifact) -> bool {
        let Some(aside) = Aside::of(artifact) else { return false };
        if self.asides.get(&artifact.artifact_id) != Some(&aside) {
            if output::is_watched() {
                self.cut_line |= self.open_line;
                self.end();
            }
            aside.print();
            self.asides.insert(artifact.artifact_id.clone(), aside);
        }
        true
    }

    /// Whether something else can be shown without running into a line.
    pub(crate) fn is_at_line_start(&self) -> bool {
        !self.open_line
    }

    /// The text of a status is news while the task waits, and the reply when nothing else was.
    fn status(&mut self, status: &TaskStatus) {
        self.completed = status.state == TaskState::Completed;
        let is_news = status.state.is_interrupted() || (status.state == TaskState::Completed && !self.printed);
        if let Some(message) = status.message.as_ref().filter(|_| is_news) {
            self.line(&message_text(message));
        }
    }

    /// What a completed task said in none of its events may stand in the task itself.
    pub(crate) async fn finish(&mut self, stream: &EventStream) {
        if self.completed
            && !self.printed
            && let Ok(task) = stream.whole().await
        {
            self.line(&task_text(&task.value));
            if !self.printed && !self.asides.values().any(Aside::is_file) {
                say_silence();
            }
        }
        self.end();
    }

    fn line(&mut self, text: &str) {
        self.end();
        self.print(text);
        self.end();
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        output::print_foreign(text);
        self.printed = true;
        self.open_line = !text.ends_with('\n');
    }

    pub(crate) fn end(&mut self) {
        if self.open_line {
            output::print("\n");
            self.open_line = false;
        }
    }
}

/// The exit code that a task's state means, and what to say about it.
pub(crate) fn verdict(task: &str, status: &TaskStatus) -> Result<(), Failure> {
    let said = status.message.as_ref().map(message_text).filter(|text| !text.is_empty());
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

/// Prints the reply in a task, after a line for each thing that is beside it. Says whether there was one; a file is one.
pub(crate) fn print_reply(task: &Task) -> bool {
    let asides = Aside::all(task);
    asides.iter().for_each(Aside::print);
    let text = task_text(task);
    print_text(&text);
    !text.is_empty() || asides.iter().any(Aside::is_file)
}

/// The reply in a task: its artifacts, else its status, else what the agent last said; the status as well while the task
/// waits. What is beside the reply is left out.
pub(crate) fn task_text(task: &Task) -> String {
    let answers = task.artifacts.iter().filter(|artifact| Aside::of(artifact).is_none());
    let mut texts: Vec<String> = answers.map(|artifact| output::parts_text(&artifact.parts)).collect();
    texts.retain(|text| !text.is_empty());
    let status_counts = match task.status.state {
        TaskState::Completed => texts.is_empty(),
        state => state.is_interrupted(),
    };
    if let Some(message) = task.status.message.as_ref().filter(|_| status_counts) {
        texts.push(message_text(message));
    }
    let is_silent = texts.is_empty() && (status_counts || task.status.state == TaskState::Completed);
    if is_silent && let Some(text) = last_said(task) {
        texts.push(text);
    }
    texts.join("\n")
}

/// What the agent said last, as far as the history tells.
fn last_said(task: &Task) -> Option<String> {
    let said = task.history.iter().rev().filter(|message| message.role == Role::Agent);
    said.map(message_text).find(|text| !text.is_empty())
}

pub(crate) fn message_text(message: &Message) -> String {
    output::parts_text(&message.parts)
}

pub(crate) fn print_text(text: &str) {
    if text.is_empty() {
        return;
    }
    output::print_foreign(text);
    if !text.ends_with('\n') {
        output::print("\n");
    }
}

#[cfg(test)]
mod tests {
    use a2a::Part;

    use super::*;

    fn status(state: TaskState, text: &str) -> TaskStatus {
        let message = Message { parts: vec![Part::text(text)], ..Message::default() };
        TaskStatus { state, message: Some(message), timestamp: None }
    }

    fn code(state: TaskState) -> u8 {
        verdict("t", &status(state, "")).map_or_else(|failure| failure.exit as u8, |()| 0)
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
    fn x_10_a_reply_is_artifacts_then_status_then_history() {
        let mut task = Task {
            id: "t".to_owned(),
            context_id: String::new(),
            status: status(TaskState::Completed, "status"),
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: None,
        };
        assert_eq!(task_text(&task), "status");
        task.status.message = None;
        let said = |role, text: &str| Message { role, parts: vec![Part::text(text)], ..Message::default() };
        task.history = vec![said(Role::Agent, "earlier"), said(Role::User, "question"), said(Role::Agent, "answer")];
        assert_eq!(task_text(&task), "answer");
        task.status.state = TaskState::InputRequired;
        assert_eq!(task_text(&task), "answer", "a question may be there, too");
        task.status.state = TaskState::Working;
        assert_eq!(task_text(&task), "");
        task.artifacts = vec![Artifact { parts: vec![Part::text("artifact")], ..Artifact::default() }];
        assert_eq!(task_text(&task), "artifact");
        task.status = status(TaskState::InputRequired, "question?");
        assert_eq!(task_text(&task), "artifact\nquestion?");
    }
}
