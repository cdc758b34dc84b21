//! One message from being sent to the end of its turn.
//!
//! It is streamed wherever that can be had, printed or not: a stream names the task at once, and is taken up after its last event when it is
//! cut. Where nothing streams the task is asked for again and again. A message that nobody has answered is repeated under the same key, so that
//! nothing is done twice, and only to those who know it by that: servers like ours.

use std::time::Duration;

use a2a::{
    ErrorKind, GetTaskRequest, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse,
    TaskState,
};
use client::{Client, Error, EventStream, Received};
use http::{HeaderName, HeaderValue};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    heard::Heard,
    patience::{FIRST_PAUSE, Patience, Stop},
    printer::Show,
};
use crate::output;

/// How long the task is waited for once all of it was heard.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// A message that is under way.
pub(crate) struct Turn {
    client: Client,
    request: SendMessageRequest,
    show: Show,
    /// How long between two looks at a task that cannot be followed.
    poll: Duration,
    pub(crate) heard: Heard,
    /// The answer as it came, in the other side's own words.
    pub(crate) answer: Option<String>,
    /// The last event that came, to go on after.
    pub(crate) cursor: Option<String>,
    /// The task, while its turn has not begun.
    pub(crate) submitted: watch::Sender<Option<String>>,
}

impl Turn {
    pub(crate) fn new(client: &Client, request: SendMessageRequest, show: Show, poll: Duration) -> Self {
        let key = HeaderValue::from_str(&request.message.message_id).ok().filter(|_| client.resumes());
        let client =
            client.with_headers(key.map(|key| (HeaderName::from_static("idempotency-key"), key)).into_iter().collect());
        // What is printed as it comes is not kept.
        let heard = if show.is_live() { Heard::brief() } else { Heard::default() };
        Self { client, request, show, poll, heard, answer: None, cursor: None, submitted: watch::Sender::new(None) }
    }

    /// Sends it and waits for the end of its turn.
    pub(crate) async fn run(&mut self, patience: &mut Patience) -> Result<(), Stop> {
        if !self.client.streams() && !self.show.is_live() {
            return self.plainly(patience, false).await;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match patience.bear(self.client.stream(self.request.clone())).await? {
                Ok(mut stream) => {
                    patience.notice(None);
                    match self.follow(&mut stream, patience).await {
                        // It was cut before anybody has named a task.
                        Err(Stop::Broken(error)) if self.heard.is_nothing() => error,
                        Err(stop) => return Err(stop),
                        Ok(()) => {
                            patience.bear(self.show.finish(&stream)).await?;
                            return self.whole(patience).await;
                        }
                    }
                }
                Err(error) if is_unable(&error) => return self.plainly(patience, false).await,
                Err(error) => error,
            };
            if !self.may_repeat(&error) {
                return Err(Stop::Broken(error));
            }
            patience.rest(&error, &mut pause).await?;
        }
    }

    /// Sends it and does not wait for more than that it is taken.
    pub(crate) async fn begin(&mut self, patience: &mut Patience) -> Result<(), Stop> {
        self.plainly(patience, true).await
    }

    async fn follow(&mut self, stream: &mut EventStream, patience: &mut Patience) -> Result<(), Stop> {
        loop {
            patience.at_line_start = self.show.is_at_line_start();
            let Some(event) = self.show.ended_by(patience.next(stream).await)? else { break };
            let heard = self.hear(&event).map_err(Stop::Broken);
            self.show.ended_by(heard)?;
            self.tell_submitted();
            self.cursor = stream.last_id().map(str::to_owned);
            if waits(&event.value) {
                break;
            }
        }
        Ok(())
    }

    fn hear(&mut self, event: &Received<StreamResponse>) -> Result<(), Error> {
        self.show.event(event)?;
        self.heard.add(event)?;
        if self.heard.message.is_some() {
            self.answer = Some(output::one_line(event.json.get()));
        }
        Ok(())
    }

    /// The task at its end, in the other side's own words. What was heard is enough where it cannot be had: there are agents that forget a
    /// task when it is over, and servers that stop then.
    async fn whole(&mut self, patience: &mut Patience) -> Result<(), Stop> {
        let Some(task) = self.heard.task.as_ref().filter(|_| !self.show.is_live()) else { return Ok(()) };
        let request = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
        if let Ok(Ok(answer)) = patience.bear(timeout(LAST_LOOK, self.client.answer(request))).await? {
            self.take(answer);
        }
        Ok(())
    }

    async fn look(&mut self, id: &str, patience: &mut Patience) -> Result<(), Stop> {
        let client = &self.client;
        let request = || GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() };
        let answer = patience.ask(async || client.answer(request()).await).await?;
        self.take(answer);
        Ok(())
    }

    fn take(&mut self, answer: Received<SendMessageResponse>) {
        self.answer = Some(output::one_line(answer.json.get()));
        match answer.value {
            SendMessageResponse::Message(message) => self.heard.message = Some(message),
            SendMessageResponse::Task(task) => self.heard.task = Some(task),
        }
        self.tell_submitted();
    }

    fn tell_submitted(&self) {
        let task = self.heard.task.as_ref().filter(|task| task.status.state == TaskState::Submitted);
        self.submitted.send_replace(task.map(|task| task.id.clone()));
    }

    /// Without a stream: the message is taken at once, and its task is looked at until the turn is over.
    async fn plainly(&mut self, patience: &mut Patience, detached: bool) -> Result<(), Stop> {
        let mut request = self.request.clone();
        let configuration = request.configuration.get_or_insert_with(SendMessageConfiguration::default);
        configuration.return_immediately = true;
        let mut pause = FIRST_PAUSE;
        let answer = loop {
            match patience.bear(self.client.send(request.clone())).await? {
                Ok(answer) => break answer,
                Err(error) if self.may_repeat(&error) => patience.rest(&error, &mut pause).await?,
                Err(error) => return Err(Stop::Broken(error)),
            }
        };
        patience.notice(None);
        self.take(answer);
        let mut pause = FIRST_PAUSE;
        while let Some(task) = self.heard.task.as_ref().filter(|task| !detached && !is_over(task.status.state)) {
            let id = task.id.clone();
            patience.bear(sleep(pause)).await?;
            pause = (pause * 2).min(self.poll);
            self.look(&id, patience).await?;
        }
        if self.show.is_live() {
            self.show.answer(self.answer.as_deref().unwrap_or_default(), &self.heard);
        }
        Ok(())
    }

    /// Whether the message can be sent once more without being done twice.
    fn may_repeat(&self, error: &Error) -> bool {
        // It is there and does not take it: that is for whoever sends too much to mend.
        let is_refusal = |kind: Option<ErrorKind>, code: i64| kind == Some(ErrorKind::ResourceExhausted) || code == 429;
        if matches!(error, Error::Protocol(remote) if is_refusal(remote.kind(), remote.code)) {
            return false;
        }
        let not_taken = error.never_sent() || error.http_status() == Some(503);
        match error {
            Error::Cut { .. } => self.client.resumes(),
            error => error.is_passing() && (self.client.resumes() || not_taken),
        }
    }
}

/// Whether a turn has come to its end.
pub(crate) fn is_over(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

/// Whether somebody has to do something. The stream stays open while authorization is awaited, but the command has nobody to wait for it.
pub(crate) fn waits(event: &StreamResponse) -> bool {
    matches!(event, StreamResponse::StatusUpdate(update) if update.status.state == TaskState::AuthRequired)
}

/// Whether somebody who says that they stream do not.
fn is_unable(error: &Error) -> bool {
    match error {
        Error::Protocol(remote) => {
            matches!(remote.kind(), Some(ErrorKind::MethodNotFound | ErrorKind::UnsupportedOperation))
                || matches!(error.http_status(), Some(404 | 405 | 406 | 415 | 501))
        }
        _ => false,
    }
}
