//! One turn of a conversation: a message, what comes of it while it comes, and what Ctrl-C means meanwhile.

use std::pin::pin;

use a2a::{CancelTaskRequest, SendMessageRequest, SendMessageResponse, StreamResponse, TaskState, TaskStatus};
use client::{Client, EventStream, user_message};
use tokio::{
    signal::unix::Signal,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use super::{Conversation, Peer};
use crate::{
    failure::{Exit, Failure},
    output::{self, Format},
    send::{Away, Printer, message_text, print_reply, print_text, verdict, waits},
    waiting::Waiting,
};

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

impl Screen {
    /// Makes room for a line of something else.
    fn clear(&mut self) {
        self.waiting.hide();
        self.printer.end();
    }
}

impl Conversation<'_> {
    /// Sends one message and prints what comes of it.
    pub(super) async fn turn(&mut self, text: &str, interrupts: &mut Signal) -> Result<(), Failure> {
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
        let answered = request.message.task_id.clone();
        request.message.parts.extend(self.attached.iter().cloned());
        let ended = if client.streams() {
            self.stream(&client, request, interrupts, &mut progress).await
        } else {
            self.send(&client, request, interrupts, &mut progress).await
        };
        // What did not get there is still to be said.
        if ended.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable) && !progress.said {
            self.waiting = answered;
        } else {
            self.attached.clear();
        }
        ended?;
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
            state => verdict(&task, &status).map_err(|failure| {
                let hint = self.place().last_words(&task, state);
                hint.into_iter().fold(failure, Failure::hint)
            }),
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
        let waiting = self.spinner();
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
        let mut away = Away::default();
        loop {
            if progress.interrupted
                && !progress.canceling
                && let Some(task) = stream.task().map(str::to_owned)
            {
                screen.clear();
                progress.canceling = true;
                cancel(client, task);
            }
            let task = stream.task().map(str::to_owned);
            let event = {
                let mut lost = stream.lost();
                // Whoever gives it up begins anew to look for a server that was away.
                let mut next = pin!(stream.next());
                loop {
                    tokio::select! {
                        event = &mut next => break event,
                        () = screen.waiting.tick() => screen.waiting.show(screen.printer.is_at_line_start()),
                        Ok(()) = lost.changed() => {
                            let why = lost.borrow_and_update().clone();
                            screen.clear();
                            away.notice(why);
                        }
                        () = sleep_until(deadline) => return Err(self.too_slow(task.as_deref())),
                        _ = interrupts.recv() => {
                            if std::mem::replace(&mut progress.interrupted, true) {
                                self.leaves = true;
                                return Err(left(task.as_deref()));
                            }
                            if let Some(task) = &task && !progress.canceling {
                                screen.clear();
                                progress.canceling = true;
                                cancel(client, task.clone());
                            }
                        }
                    }
                }
            };
            if matches!(event, Some(Ok(_))) {
                away.notice(None);
            }
            screen.waiting.heard();
            let Some(event) = event.transpose()? else {
                return Ok(());
            };
            match self.format {
                Format::Json => output::line(&output::one_line(event.json.get())),
                Format::Text => screen.printer.event(&event.value)?,
            }
            let must_answer = waits(&event.value);
            self.note(event.value, progress);
            // The stream stays open while authorization is awaited, and the person has to be asked now.
            if must_answer {
                return Ok(());
            }
        }
    }

    fn spinner(&self) -> Waiting {
        Waiting::new((self.watched && self.format == Format::Text).then_some("thinking"))
    }

    /// Work, with a sign while it takes long.
    async fn shown_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut waiting = self.spinner();
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
        if let Some((task, _)) = &progress.last {
            self.task.clone_from(task);
        }
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
