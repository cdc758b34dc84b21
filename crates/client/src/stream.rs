//! A stream of events that survives its connection: it remembers the last event id and takes up again after it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use a2a::{ErrorKind, GetTaskRequest, StreamResponse, SubscribeToTaskRequest, Task, TaskState};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::{
    Binding, Client, Dialect, Error, Outage, Received,
    binding::Form,
    client::read,
    egress::Response,
    grpc,
    heavy::heavy,
    lenient,
    sse::{Event, Parser},
    v03, wire,
};

/// How a cut stream is taken up again.
#[derive(Debug, Clone, Copy)]
pub struct Resume {
    /// How often in a row, without anything new in between.
    pub attempts: u32,
    /// How long before the first attempt; doubled for each further one.
    pub backoff: Duration,
    /// The longest wait.
    pub max_backoff: Duration,
    /// How long a connection may be silent. Servers with streams like ours send a comment every 15 s.
    pub idle: Duration,
}

impl Default for Resume {
    fn default() -> Self {
        Self {
            attempts: 6,
            backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            idle: Duration::from_secs(60),
        }
    }
}

/// When a stream is over, so that its end can be told from a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// A sent message's: at a terminal state, or when input is required.
    TurnEnds,
    /// A subscription: at a terminal state.
    TaskEnds,
}

/// What takes a stream's bytes apart.
#[derive(Debug)]
pub(crate) enum Reader {
    Sse(Parser),
    Grpc(grpc::Parser),
}

impl Reader {
    /// For events up to `cap` bytes.
    pub(crate) fn of(binding: Binding, dialect: Dialect, cap: usize) -> Self {
        match binding {
            Binding::Grpc => Self::Grpc(grpc::Parser::new(dialect, cap)),
            Binding::JsonRpc | Binding::Rest => Self::Sse(Parser::new(cap)),
        }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        match self {
            Self::Sse(parser) => heavy(parser.work(chunk), || {
                parser.feed(chunk, events).map_err(|error| Error::TooLarge { cap: error.cap })
            }),
            Self::Grpc(parser) => heavy(parser.work(chunk), || parser.feed(chunk, events)),
        }
    }
}

/// The events of a stream, in order.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    /// `None` once the stream is over.
    response: Option<Response>,
    reader: Reader,
    ready: VecDeque<Event>,
    until: Until,
    /// Empty until the first event names it.
    task: String,
    /// The same of its context.
    context: String,
    /// How many artifacts have begun.
    artifacts: usize,
    last_id: Option<String>,
    /// The task waits for somebody: some servers end the stream then.
    interrupted: bool,
    attempts: u32,
    /// Nothing has come over this connection yet.
    silent: bool,
    /// Nothing can take this connection's place, so that its silence is borne.
    patient: bool,
    /// When the last event came, or when it was last looked for.
    heard: Instant,
    /// What the last attempt to take it up met.
    lost: watch::Sender<Option<Outage>>,
}

impl EventStream {
    pub(crate) fn new(client: Client, response: Response, until: Until, task: String, last_id: Option<String>) -> Self {
        Self {
            reader: client.reader(),
            client,
            response: Some(response),
            ready: VecDeque::new(),
            until,
            task,
            context: String::new(),
            artifacts: 0,
            last_id,
            interrupted: false,
            attempts: 0,
            silent: true,
            patient: false,
            heard: Instant::now(),
            lost: watch::Sender::new(None),
        }
    }

    /// Why the other side could not be reached when the stream was last to be taken up again, while that is so. For whoever wants to know
    /// what a long wait is about.
    pub fn lost(&self) -> watch::Receiver<Option<Outage>> {
        self.lost.subscribe()
    }

    /// The id of the last event, to subscribe after it another time.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The task's id, once an event has named it.
    pub fn task(&self) -> Option<&str> {
        Some(self.task.as_str()).filter(|task| !task.is_empty())
    }

    /// The next event. `None` at the end; after an error there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Received<StreamResponse>, Error>> {
        let result = self.advance().await;
        if !matches!(result, Ok(Some(_))) {
            self.response = None;
        }
        result.transpose()
    }

    async fn advance(&mut self) -> Result<Option<Received<StreamResponse>>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                // Some say so that they are still there, or that nothing follows.
                if matches!(event.data.trim(), "" | "[DONE]") {
                    continue;
                }
                return self.take(event).map(Some);
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            let idle = if self.patient { Duration::MAX } else { self.client.resume().idle };
            let Ok(chunk) = tokio::time::timeout(idle, response.chunk()).await else {
                if let Some(last) = self.revive().await? {
                    self.response = None;
                    return Ok(Some(last));
                }
                continue;
            };
            // Only gRPC says how a stream ended.
            let chunk = match (&self.reader, chunk) {
                (Reader::Grpc(_), Ok(None)) => match grpc::ended(response) {
                    Err(error) if !error.is_passing() => return Err(error),
                    ended => ended.map(|()| None),
                },
                (_, chunk) => chunk,
            };
            let cause = match chunk {
                Ok(Some(bytes)) => {
                    let mut events = Vec::new();
                    self.reader.feed(&bytes, &mut events)?;
                    self.ready.extend(events);
                    if let Some(last) = self.look().await {
                        self.response = None;
                        return Ok(Some(last));
                    }
                    continue;
                }
                Ok(None) if self.interrupted => return Ok(None),
                // A cursor at the end of a finished task's log gives an empty stream.
                Ok(None) if self.silent && self.last_id.is_some() && self.has_ended().await? => return Ok(None),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if let Some(last) = self.take_up(cause).await? {
                self.response = None;
                return Ok(Some(last));
            }
        }
    }

    /// Reads an event and learns from it where the stream is.
    fn take(&mut self, event: Event) -> Result<Received<StreamResponse>, Error> {
        self.silent = false;
        wire::came(event.data.as_bytes());
        let (mut received, is_final) =
            parse(self.client.binding(), self.client.dialect(), self.client.form(), &event.data)?;
        self.complete(&mut received.value);
        // A snapshot may be the same one again; anything else is progress.
        if event.id != self.last_id || !matches!(received.value, StreamResponse::Task(_)) {
            self.attempts = 0;
        }
        if event.id.is_some() {
            self.last_id = event.id;
        }
        self.note(&received.value);
        if is_final {
            self.response = None;
        }
        Ok(received)
    }

    /// Makes up for what an event leaves out and those before it have said.
    fn complete(&mut self, event: &mut StreamResponse) {
        let (task, context) = match event {
            StreamResponse::StatusUpdate(update) => (&mut update.task_id, &mut update.context_id),
            StreamResponse::ArtifactUpdate(update) => {
                if !update.append {
                    self.artifacts += 1;
                }
                if update.artifact.artifact_id.is_empty() {
                    update.artifact.artifact_id = lenient::artifact_id(self.artifacts.max(1));
                }
                (&mut update.task_id, &mut update.context_id)
            }
            StreamResponse::Task(task) => (&mut task.id, &mut task.context_id),
            StreamResponse::Message(_) => return,
        };
        if task.is_empty() {
            task.clone_from(&self.task);
        }
        if context.is_empty() {
            context.clone_from(&self.context);
        }
        self.context.clone_from(context);
    }

    fn note(&mut self, event: &StreamResponse) {
        let state = match event {
            StreamResponse::Task(task) => {
                self.task.clone_from(&task.id);
                task.status.state
            }
            StreamResponse::StatusUpdate(update) => {
                self.task.clone_from(&update.task_id);
                update.status.state
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.task.clone_from(&update.task_id);
                return;
            }
            // A direct message is a whole answer.
            StreamResponse::Message(_) => TaskState::Completed,
        };
        self.interrupted = state.is_interrupted();
        let over = state.is_terminal() || (self.until == Until::TurnEnds && state == TaskState::InputRequired);
        // A Task that begins a continued stream may show the state before this message.
        if over && !(matches!(event, StreamResponse::Task(_)) && state == TaskState::InputRequired) {
            self.response = None;
        }
    }

    /// Subscribes after the last event. Gives the task itself when it has ended where nobody can subscribe any more.
    async fn take_up(&mut self, cause: Option<Error>) -> Result<Option<Received<StreamResponse>>, Error> {
        let resume = *self.client.resume();
        let mut cause = cause.map(Box::new);
        // Some servers refuse a subscription to a task that is over by breaking off a stream that they have begun.
        if self.silent
            && !self.task.is_empty()
            && !self.client.resumes()
            && let Some(last) = self.final_state().await.unwrap_or_default()
        {
            return Ok(Some(last));
        }
        while !self.task.is_empty() && self.attempts < resume.attempts {
            let doubled = resume.backoff.saturating_mul(2_u32.saturating_pow(self.attempts));
            tokio::time::sleep(doubled.min(resume.max_backoff)).await;
            self.attempts += 1;
            tracing::debug!(task.id = %self.task, attempt = self.attempts, "stream was cut; subscribing again");
            match self.subscribe_again().await {
                Ok(()) => return Ok(None),
                Err(Error::Protocol(remote)) if remote.kind() == Some(ErrorKind::UnsupportedOperation) => {
                    return self.last_state().await.map(Some);
                }
                Err(error) if error.is_passing() => {
                    self.lost.send_replace(Some(Outage::from(&error)));
                    cause = Some(Box::new(error));
                }
                // 0.3 has no one error for a task that nobody can subscribe to any more.
                Err(error @ Error::Protocol(_)) if self.client.dialect() == Dialect::V03 => {
                    return match self.final_state().await? {
                        Some(last) => Ok(Some(last)),
                        None => Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Cut { attempts: self.attempts, source: cause })
    }

    /// Nothing has come for long. A new subscription takes over, and where there can be none the old connection stays:
    /// some agents give no sign of life while they work.
    async fn revive(&mut self) -> Result<Option<Received<StreamResponse>>, Error> {
        if self.task.is_empty() {
            self.patient = true;
            return Ok(None);
        }
        tracing::debug!(task.id = %self.task, "stream is silent; subscribing again");
        match self.subscribe_again().await {
            Ok(()) => Ok(None),
            Err(error) if error.is_passing() => self.take_up(Some(error)).await,
            Err(_) => {
                let last = self.final_state().await.unwrap_or_default();
                self.patient = last.is_none();
                Ok(last)
            }
        }
    }

    /// The task, if it is over although its stream goes on. There are servers that say for ever that they are still there, and nothing of
    /// a task that was canceled by somebody else.
    async fn look(&mut self) -> Option<Received<StreamResponse>> {
        if !self.ready.is_empty() {
            self.heard = Instant::now();
            return None;
        }
        if self.client.resumes() || self.task.is_empty() || self.heard.elapsed() < self.client.resume().idle {
            return None;
        }
        self.heard = Instant::now();
        self.final_state().await.unwrap_or_default()
    }

    /// Puts a new subscription in the place of the connection.
    async fn subscribe_again(&mut self) -> Result<(), Error> {
        let request = SubscribeToTaskRequest { tenant: String::new(), id: self.task.clone() };
        let after = self.client.resume().idle;
        let opened = self.client.resubscribe(request, self.last_id.as_deref());
        let response = match tokio::time::timeout(after, opened).await {
            Ok(response) => response?,
            Err(_) => return Err(Error::Timeout { origin: self.client.origin(), after }),
        };
        self.response = Some(response);
        self.reader = self.client.reader();
        self.silent = true;
        self.lost.send_if_modified(|lost| lost.take().is_some());
        Ok(())
    }

    async fn has_ended(&self) -> Result<bool, Error> {
        let request = GetTaskRequest { id: self.task.clone(), history_length: Some(0), ..GetTaskRequest::default() };
        match self.client.get(request).await {
            Ok(task) => Ok(task.value.status.state.is_terminal()),
            Err(error) if error.is_passing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The task, if its turn is over.
    async fn final_state(&self) -> Result<Option<Received<StreamResponse>>, Error> {
        let last = self.last_state().await?;
        let is_over = match &last.value {
            StreamResponse::Task(task) => {
                let state = task.status.state;
                state.is_terminal() || (self.until == Until::TurnEnds && state.is_interrupted())
            }
            _ => false,
        };
        Ok(Some(last).filter(|_| is_over))
    }

    /// The task as it is now, with everything that no event has told.
    pub async fn whole(&self) -> Result<Received<Task>, Error> {
        let request = GetTaskRequest { id: self.task.clone(), ..GetTaskRequest::default() };
        self.client.get(request).await
    }

    async fn last_state(&self) -> Result<Received<StreamResponse>, Error> {
        let task = self.whole().await?;
        Ok(Received { json: as_answer(self.client.form(), task.json)?, value: StreamResponse::Task(task.value) })
    }
}

/// Reads the data of an event, and whether it says that it is the last one.
fn parse(
    binding: Binding,
    dialect: Dialect,
    form: Form,
    data: &str,
) -> Result<(Received<StreamResponse>, bool), Error> {
    heavy(data.len(), || {
        let json = binding.decode_frame(data)?;
        let is_final = dialect == Dialect::V03 && v03::is_final(json.get().as_bytes());
        Ok((read(form, json)?, is_final))
    })
}

/// The JSON of a task as that of an answer or an event that is a task.
pub(crate) fn as_answer(form: Form, task: Box<RawValue>) -> Result<Box<RawValue>, Error> {
    match form {
        Form::V1 | Form::V03Proto => RawValue::from_string(format!("{{\"task\":{}}}", task.get()))
            .map_err(|error| Error::Malformed(error.to_string())),
        Form::V03 => Ok(task),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    /// Runs work on the only thread of a runtime, beside a task that counts its turns. How often it had one meanwhile.
    fn turns_of_others(work: impl FnOnce() + Send + 'static) -> u64 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        runtime.spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
        let worked = runtime.spawn(async move {
            let before = turns.load(Ordering::SeqCst);
            work();
            turns.load(Ordering::SeqCst) - before
        });
        let others = runtime.block_on(worked).unwrap();
        runtime.shutdown_background();
        others
    }

    fn event(bytes: usize) -> String {
        let text = "x\n".repeat(bytes / 3).replace('\n', "\\n");
        let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
        let event = format!(r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}}}"#)
    }

    #[test]
    fn a_large_event_does_not_hold_its_thread() {
        let read = |data: String| {
            turns_of_others(move || {
                parse(Binding::JsonRpc, Dialect::V1, Form::V1, &data).unwrap();
            })
        };
        assert_eq!(read(event(1 << 10)), 0, "a small one is read where it is");
        assert!(read(event(16 << 20)) > 0);
    }

    #[test]
    fn the_end_of_a_large_event_does_not_hold_its_thread() {
        let fed = |pieces: [Vec<u8>; 2]| {
            let mut reader = Reader::of(Binding::Rest, Dialect::V1, 64 << 20);
            reader.feed(&pieces[0], &mut Vec::new()).unwrap();
            turns_of_others(move || {
                let mut events = Vec::new();
                reader.feed(&pieces[1], &mut events).unwrap();
                assert_eq!(events.len(), 1);
            })
        };
        assert_eq!(fed([b"data: x".to_vec(), b"\n\n".to_vec()]), 0);
        assert!(fed([["data: ", &"\u{e9}".repeat(16 << 20)].concat().into_bytes(), b"\n\n".to_vec()]) > 0);
    }
}
