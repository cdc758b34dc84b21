//! One turn of a remote agent: the message goes out once, what comes back is said here, and what is known of it is kept.
//!
//! **Not twice.** What is about to be sent is kept before it is. A turn that is taken up after a crash knows whether that had happened:
//! where nobody had answered yet, the remote is asked for a task with this message; where it cannot be asked and does not know repetitions by
//! itself, the caller decides.
//!
//! **Whole, and once.** Where a remote numbers its events, a stream is taken up after the last one that was kept. Where it does not, the task
//! is asked for, and what differs from what was heard takes its place.
//!
//! **Without a slot.** When nothing has come for a while the turn is parked, and looks again after a time, or when the remote says that
//! something has happened.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::{
    Artifact, CancelTaskRequest, ErrorKind, GetTaskRequest, JsonObject, ListTasksRequest, Message, Part, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task,
    TaskPushNotificationConfig, TaskState,
};
use client::{Client, Error, EventStream};
use exchange::{DELEGATION, Delegation, Note, Outcome, Output, Turn};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use store::clock;
use tokio::sync::Notify;

use super::{
    Options,
    peer::{Peer, told},
    spec::Sees,
    state::{Phase, State, is_over, repeats, text_of},
};

/// How often a message that cannot have arrived is sent again.
const RESENDS: u32 = 3;
/// How often in a row the remote may fail while it is followed.
const FAILURES: u32 = 8;
/// At most so often what was heard is kept while pieces come.
const KEEP_EVERY: Duration = Duration::from_millis(300);
/// The longest wait between two looks at a parked task.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a cancel waits for the id of a task that was just begun.
const LEARN: Duration = Duration::from_secs(3);
/// How long a task that stood still is followed when it is looked at.
const GLANCE: Duration = Duration::from_secs(1);
/// So many tasks of the remote are looked through for a message.
const LOOK_THROUGH: i32 = 50;
/// So many artifacts a turn may have.
const MOST_ARTIFACTS: usize = 1000;

/// How a step of a turn ended.
enum Step {
    Ends(Outcome),
    /// The remote works on it, and there is nothing to read.
    Quiet,
}

/// A turn that is under way.
pub(super) struct Follow<'a> {
    peer: &'a Peer,
    options: &'a Options,
    turn: Turn,
    out: Output,
    state: State,
    client: Client,
    /// What has come in this run, as far as it is known whole.
    made: Vec<Artifact>,
    /// Bytes that may still come.
    room: usize,
    kept: Instant,
    dirty: bool,
    /// Something may have been missed: before the end the whole task is asked for.
    gap: bool,
    begun: bool,
    /// Told once the remote has named its task.
    named: Arc<Notify>,
}

/// Takes a turn.
pub(super) async fn run(peer: &Peer, options: &Options, turn: Turn, out: Output) -> Outcome {
    let state = match begin(&turn).await {
        Ok(state) => state,
        Err(error) => return Outcome::Retry(format!("the journal cannot be read: {error}")),
    };
    if peer.card().is_none() || !peer.is_watched() {
        let fetched = peer.ensure_card(!peer.is_watched()).await;
        // Those of `agents.yaml` are called without one, too: the seed's agents need none.
        if let Err(refused) = fetched
            && !peer.is_watched()
        {
            return broken(format!("card fetch failed: {refused}"));
        }
    }
    let client = match peer.client() {
        Ok(client) => client,
        Err(refused) => return broken(refused.to_string()),
    };
    let mut follow = Follow {
        client: client.with_headers(headers(peer, &turn)),
        peer,
        options,
        room: options.turn_bytes,
        turn,
        out,
        state,
        made: Vec::new(),
        kept: Instant::now(),
        dirty: false,
        gap: false,
        begun: false,
        named: Arc::default(),
    };
    let outcome = follow.drive().await;
    follow.state.phase = match &outcome {
        Outcome::Parked { .. } | Outcome::Retry(_) | Outcome::Canceled => follow.state.phase,
        _ => Phase::Over,
    };
    follow.keep().await;
    outcome
}

/// What the turn goes on from: itself, the turn before, or the task before in the context.
async fn begin(turn: &Turn) -> store::Result<State> {
    if turn.state.is_some() {
        let state = State::read(turn.state.as_ref());
        return Ok(if state.turn == turn.number { state } else { state.next_turn(turn.number) });
    }
    let before = turn.context_state().await?;
    Ok(State::read(before.as_ref()).next_task(turn.number))
}

/// Tells a remote that its task is not wanted any more.
pub(super) async fn cancel(peer: &Peer, state: &State) -> Result<(), String> {
    if state.ended || state.phase == Phase::New {
        return Ok(());
    }
    if peer.card().is_none() {
        // Without one it is called as it was then, or not at all.
        let _ = peer.ensure_card(false).await;
    }
    let client = peer.client().map_err(|refused| refused.to_string())?;
    let Some(id) = state.task.clone() else {
        tracing::warn!(agent.name = %peer.spec.name, "a canceled task had not been answered by its remote, which may work on it");
        return Ok(());
    };
    match client.cancel(CancelTaskRequest { id, ..CancelTaskRequest::default() }).await {
        Ok(_) => Ok(()),
        // It has ended, is not known or cannot be canceled: nothing more can be done.
        Err(error) if !error.is_passing() && !matches!(error, Error::Auth(_)) => {
            tracing::info!(agent.name = %peer.spec.name, error = told(&error), "a remote did not cancel its task");
            Ok(())
        }
        Err(error) => Err(told(&error)),
    }
}

fn headers(peer: &Peer, turn: &Turn) -> Vec<(HeaderName, HeaderValue)> {
    if peer.spec.sees == Sees::Text {
        return Vec::new();
    }
    let trace = turn.trace();
    let key = format!("{}.{}", turn.task, turn.number);
    let all = [
        ("x-correlation-id", Some(trace.correlation)),
        ("x-parent-id", trace.parent),
        ("traceparent", Some(trace.traceparent)),
        ("idempotency-key", Some(key).filter(|_| !store::fault::is_on("remote-forgets"))),
    ];
    let header = |(name, value): (&'static str, Option<String>)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(&value?).ok()?))
    };
    all.into_iter().filter_map(header).collect()
}

/// A failure that is the remote's, or the network's.
fn broken(why: String) -> Outcome {
    Outcome::RemoteFailed(why)
}

impl Follow<'_> {
    async fn drive(&mut self) -> Outcome {
        let cancel = self.turn.cancel.clone();
        if cancel.is_cancelled() {
            return Outcome::Canceled;
        }
        let late = self.turn.origin.delegation.time_left();
        let named = Arc::clone(&self.named);
        if self.state.task.is_some() {
            named.notify_one();
        }
        let worked = async {
            tokio::select! {
                outcome = self.work() => outcome,
                () = sleep(late) => broken("the deadline has passed".to_owned()),
            }
        };
        let mut worked = std::pin::pin!(worked);
        tokio::select! {
            outcome = &mut worked => return outcome,
            () = cancel.cancelled() => {}
        }
        // What was just begun has no name yet. It is waited for a moment, so that it can be canceled there.
        tokio::select! {
            biased;
            () = named.notified() => {}
            _ = &mut worked => {}
            () = tokio::time::sleep(LEARN) => {}
        }
        Outcome::Canceled
    }

    async fn work(&mut self) -> Outcome {
        let step = match self.state.phase {
            Phase::New | Phase::Over => self.send().await,
            Phase::Sending => self.send_again().await,
            Phase::Working => self.look().await,
        };
        match step {
            Ok(Step::Ends(outcome)) => outcome,
            Ok(Step::Quiet) => self.park().await,
            Err(outcome) => outcome,
        }
    }

    /// The message as the remote gets it.
    fn request(&mut self, delegation: &Delegation) -> SendMessageRequest {
        let turn = &self.turn;
        let parts = match self.peer.spec.sees {
            Sees::Text => vec![Part::text(turn.text())],
            Sees::Trace => turn.message.parts.clone(),
        };
        let message = Message {
            message_id: format!("{}.{}", turn.task, turn.number),
            role: Role::User,
            parts,
            task_id: self.state.task.clone().unwrap_or_default(),
            context_id: self.state.context.clone().unwrap_or_default(),
            ..Message::default()
        };
        let mut request = SendMessageRequest { message, ..SendMessageRequest::default() };
        if self.peer.spec.sees == Sees::Trace {
            let trace = turn.trace();
            let mut metadata = serde_json::Map::new();
            metadata.extend(self.skill().map(|skill| ("skillHint".to_owned(), skill.into())));
            metadata.insert("correlationId".to_owned(), trace.correlation.into());
            metadata.extend(trace.parent.map(|parent| ("parentId".to_owned(), parent.into())));
            if self.client.resumes() {
                metadata.insert(DELEGATION.to_owned(), json!(delegation));
            }
            request.metadata = JsonObject::from_value(&metadata.into());
            request.configuration = Some(SendMessageConfiguration::default());
        }
        request
    }

    /// Which skill is meant: what this message says, or what the task was begun for.
    fn skill(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Metadata {
            #[serde(rename = "skillHint")]
            skill: String,
        }
        let metadata = self.turn.message.metadata.as_ref();
        let own = metadata.and_then(|it| serde_json::from_str::<Metadata>(it.get()).ok()).map(|it| it.skill);
        own.or_else(|| self.turn.origin.skill.clone())
    }

    /// Asks whether the call may be made, and keeps that it is about to be.
    async fn admit(&mut self) -> Result<Delegation, Outcome> {
        let mut ledger = self.turn.ledger.clone();
        let delegation =
            ledger.delegate(None).map_err(|refusal| Outcome::Failed(vec![Part::text(refusal.to_string())]))?;
        if !self.peer.breaker.admit() {
            let name = &self.peer.spec.name;
            return Err(broken(format!("circuit breaker a2a:{name}: circuit OPEN — call rejected")));
        }
        self.state.phase = Phase::Sending;
        self.state.calls = ledger.made();
        self.state.since.get_or_insert_with(|| clock::now().as_millis());
        self.keep().await;
        self.out.flush().await;
        Ok(delegation)
    }

    /// Sends the message and hears what comes of it.
    async fn send(&mut self) -> Result<Step, Outcome> {
        let delegation = self.admit().await?;
        let request = self.request(&delegation);
        if !self.peer.streams() {
            return self.send_plainly(request).await;
        }
        match self.client.stream(request.clone()).await {
            Ok(stream) => match self.hear(stream).await {
                Ok(step) => Ok(step),
                // It broke before anything was heard: it may work without.
                Err(error) if !self.begun && falls_back(&error) => self.send_plainly(request).await,
                Err(error) => self.take_up(error).await,
            },
            Err(error) if falls_back(&error) => self.send_plainly(request).await,
            Err(error) => Err(self.not_sent(&error)),
        }
    }

    async fn send_plainly(&mut self, request: SendMessageRequest) -> Result<Step, Outcome> {
        let answer = match self.client.send(request).await {
            Ok(answer) => answer.value,
            Err(error) => return Err(self.not_sent(&error)),
        };
        self.peer.worked();
        match answer {
            SendMessageResponse::Message(message) => Ok(Step::Ends(self.message(message))),
            SendMessageResponse::Task(task) => {
                let over = self.task(task, false).await?;
                if let Some(outcome) = over {
                    return Ok(Step::Ends(outcome));
                }
                self.look().await
            }
        }
    }

    /// A message that may have been sent before a crash.
    async fn send_again(&mut self) -> Result<Step, Outcome> {
        if self.client.resumes() && self.peer.spec.sees == Sees::Trace {
            // It knows the message by its key.
            return self.send().await;
        }
        let id = format!("{}.{}", self.turn.task, self.turn.number);
        if self.client.dialect() == a2a::Dialect::V1 {
            let list = ListTasksRequest {
                context_id: self.state.context.clone().unwrap_or_default(),
                page_size: Some(LOOK_THROUGH),
                ..ListTasksRequest::default()
            };
            match self.client.list(list).await {
                Ok(page) => {
                    let has_it = |task: &&Task| task.history.iter().any(|message| message.message_id == id);
                    if let Some(task) = page.value.tasks.iter().find(has_it) {
                        let (task, context) = (task.id.clone(), task.context_id.clone());
                        self.meet(&task, &context)?;
                        self.state.phase = Phase::Working;
                        return self.look().await;
                    }
                    // It has not arrived, as far as the remote's newest tasks tell.
                    if page.value.next_page_token.is_empty()
                        && page.value.tasks.iter().all(|task| !task.history.is_empty())
                    {
                        return self.send().await;
                    }
                }
                Err(error) if error.is_passing() => {
                    return Err(Outcome::Retry(format!("{}: {}", self.peer.spec.name, told(&error))));
                }
                Err(_) => {}
            }
        }
        // Nobody knows. The caller decides whether it is sent again.
        self.state = std::mem::take(&mut self.state).next_turn(self.turn.number);
        Err(Outcome::Interrupted)
    }

    /// What becomes of a message that was not answered.
    fn not_sent(&mut self, error: &Error) -> Outcome {
        let why = told(error);
        if matches!(error, Error::Protocol(_) | Error::Auth(_)) && !error.is_passing() {
            // Somebody is there and says no.
            if error.http_status().is_some_and(|status| status >= 500) {
                self.peer.broke(&why)
            } else {
                self.peer.worked()
            }
            return broken(said(error));
        }
        self.peer.broke(&why);
        // What cannot have arrived is sent again.
        let again = error.never_sent() || matches!(error, Error::Protocol(_));
        if again && !matches!(error, Error::Forbidden(_) | Error::Token) && self.state.failures + 1 < RESENDS {
            self.state.failures += 1;
            self.state.phase = Phase::New;
            self.dirty = true;
            return Outcome::Retry(said(error));
        }
        broken(said(error))
    }

    /// Hears a stream until it is over, is cut, or nothing has come for a while.
    async fn hear(&mut self, mut stream: EventStream) -> Result<Step, Error> {
        loop {
            let quiet = match (self.begun, self.state.looks) {
                (false, _) => self.peer.spec.timeout,
                (true, 0) => self.options.quiet,
                // It stood still when it was last looked at.
                (true, _) => self.options.quiet.min(GLANCE),
            };
            let event = match tokio::time::timeout(quiet, stream.next()).await {
                Ok(Some(event)) => event?,
                // A stream that ends before its task does was cut.
                Ok(None) => return Err(Error::Cut { attempts: 0, source: None }),
                Err(_) if self.begun => {
                    self.state.looks = self.state.looks.saturating_add(1);
                    return Ok(Step::Quiet);
                }
                Err(_) => return Err(Error::Timeout { origin: self.peer.spec.name.clone(), after: quiet }),
            };
            if !self.begun {
                self.peer.worked();
            }
            self.room = self.room.saturating_sub(event.json.get().len());
            if self.room == 0 {
                let cap = self.options.turn_bytes;
                return Ok(Step::Ends(broken(format!("the remote said more than {cap} bytes in one turn"))));
            }
            let first = !std::mem::replace(&mut self.begun, true);
            self.state.failures = 0;
            self.state.looks = 0;
            let heard = match event.value {
                StreamResponse::Message(message) => Ok(Some(self.message(message))),
                StreamResponse::Task(task) => self.task(task, first).await,
                StreamResponse::StatusUpdate(update) => self.status(update).await,
                StreamResponse::ArtifactUpdate(update) => self.artifact(update).await.map(|()| None),
            };
            self.state.cursor = stream.last_id().map(str::to_owned);
            match heard {
                Ok(Some(outcome)) => return Ok(Step::Ends(self.whole(outcome).await)),
                Ok(None) => self.keep_sometimes().await,
                Err(outcome) => return Ok(Step::Ends(outcome)),
            }
        }
    }

    /// A stream was cut: it is taken up again, or the task is looked at.
    async fn take_up(&mut self, error: Error) -> Result<Step, Outcome> {
        let Some(_) = self.state.task else {
            return Err(self.not_sent(&error));
        };
        if !error.is_passing() && !matches!(error, Error::Cut { .. }) {
            // What is wrong with it stays wrong.
            self.peer.broke(&told(&error));
            return Err(broken(said(&error)));
        }
        self.peer.broke(&told(&error));
        self.state.failures += 1;
        self.look().await
    }

    /// Looks at the task there and follows it again, from where it was last heard.
    async fn look(&mut self) -> Result<Step, Outcome> {
        loop {
            if self.state.failures > 0 {
                if self.state.failures > FAILURES {
                    return Ok(Step::Quiet);
                }
                let wait = Duration::from_millis(100).saturating_mul(2_u32.saturating_pow(self.state.failures - 1));
                tokio::time::sleep(wait.min(Duration::from_secs(5))).await;
            }
            match self.look_once().await {
                Ok(step) => return Ok(step),
                Err(Looked::Ends(outcome)) => return Err(outcome),
                Err(Looked::Failed(error)) => {
                    tracing::debug!(agent.name = %self.peer.spec.name, error = told(&error), "a remote cannot be looked at");
                    self.peer.broke(&told(&error));
                    self.state.failures += 1;
                }
            }
        }
    }

    async fn look_once(&mut self) -> Result<Step, Looked> {
        let id = self.state.task.clone().unwrap_or_default();
        if id.is_empty() {
            return Err(Looked::Ends(broken("the remote works on it and has not said under which id".to_owned())));
        }
        let streams = self.peer.streams();
        let with_cursor = self.client.resumes() && self.state.cursor.is_some();
        if !with_cursor || !streams {
            let before = (self.state.heard.clone(), self.state.said.clone());
            let task = self.client.get(GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() }).await;
            let task = task.map_err(|error| self.looked(error))?.value;
            self.peer.worked();
            self.state.failures = 0;
            self.begun = true;
            if let Some(outcome) = self.task(task, false).await.map_err(Looked::Ends)? {
                return Ok(Step::Ends(outcome));
            }
            let is_new = before != (self.state.heard.clone(), self.state.said.clone());
            // A task that stands still is not followed, but looked at now and then.
            let stood_still = !is_new && self.state.looks > 0;
            self.state.looks = if is_new { 0 } else { self.state.looks.saturating_add(1) };
            if !streams || stood_still {
                return Ok(Step::Quiet);
            }
            self.gap = true;
        }
        let request = SubscribeToTaskRequest { id, ..SubscribeToTaskRequest::default() };
        let after = self.state.cursor.clone().filter(|_| with_cursor);
        let stream = match self.client.subscribe(request, after).await {
            Ok(stream) => stream,
            Err(error) if error.is_passing() => return Err(Looked::Failed(error)),
            // It cannot be followed, or has just ended: it is looked at.
            Err(_) => {
                if with_cursor {
                    self.state.cursor = None;
                    return Err(Looked::Failed(Error::Cut { attempts: 0, source: None }));
                }
                return Ok(Step::Quiet);
            }
        };
        self.begun = true;
        self.hear(stream).await.map_err(Looked::Failed)
    }

    fn looked(&self, error: Error) -> Looked {
        if error.is_passing() {
            return Looked::Failed(error);
        }
        let why = format!("the remote's task cannot be read: {}", told(&error));
        Looked::Ends(broken(why))
    }

    /// Rests. Before that the remote is asked, once, to say when something happens.
    async fn park(&mut self) -> Outcome {
        let age = self.state.since.map_or(0, |since| clock::now().as_millis().saturating_sub(since));
        if u128::try_from(age).is_ok_and(|age| age > self.options.track_for.as_millis()) {
            return broken(format!("task tracking timeout (>{}s)", self.options.track_for.as_secs()));
        }
        self.state.phase = Phase::Working;
        if !self.state.told {
            self.state.told = true;
            self.ask_to_be_told().await;
        }
        let doublings = self.state.looks.saturating_sub(1).max(self.state.failures).min(16);
        let wait =
            self.options.poll.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_WAIT.max(self.options.poll));
        self.state.failures = 0;
        Outcome::Parked { at_most: Some(wait) }
    }

    async fn ask_to_be_told(&mut self) {
        let (Some(base), Some(token), Some(task)) =
            (self.options.callback(&self.peer.spec), self.turn.wake_token(), self.state.task.clone())
        else {
            return;
        };
        if !self.client.pushes() {
            return;
        }
        let config = TaskPushNotificationConfig {
            task_id: task,
            url: format!("{base}/v1/callbacks/{token}"),
            token,
            ..TaskPushNotificationConfig::default()
        };
        if let Err(error) = self.client.create_push(config).await {
            tracing::debug!(agent.name = %self.peer.spec.name, error = told(&error), "a remote does not notify; it is asked now and then");
        }
    }

    /// A direct message is a whole answer.
    fn message(&mut self, message: Message) -> Outcome {
        let _ = self.state.meet(&message.task_id, &message.context_id);
        self.state.ended = true;
        self.begun = true;
        Outcome::Message(message)
    }

    /// A task as it stands there. Gives the end of the turn, if it is over.
    async fn task(&mut self, task: Task, first: bool) -> Result<Option<Outcome>, Outcome> {
        // A task that is continued is shown as it stood before, and so are its artifacts.
        let is_before = first && self.state.task.is_some() && self.turn.number > 1 && self.peer.streams();
        self.meet(&task.id, &task.context_id)?;
        if self.state.phase != Phase::Working {
            self.state.phase = Phase::Working;
            self.dirty = true;
            let note = Note::Step {
                agent: self.peer.spec.name.clone(),
                task: self.state.task.clone(),
                text: "works on it".to_owned(),
            };
            self.out.note(note).await;
            self.keep().await;
        }
        if is_before && !task.status.state.is_terminal() {
            for artifact in &task.artifacts {
                self.state.remember(&artifact.artifact_id, Some(artifact));
            }
            return Ok(None);
        }
        for artifact in &task.artifacts {
            if !self.state.has(artifact) {
                self.say(artifact.clone(), false, true, None).await?;
            }
        }
        if is_over(&task) {
            let artifacts = task.artifacts;
            return Ok(Some(self.end(task.status.state, task.status.message, &artifacts)));
        }
        self.working(task.status.state, task.status.message, None).await;
        Ok(None)
    }

    async fn status(&mut self, update: a2a::TaskStatusUpdateEvent) -> Result<Option<Outcome>, Outcome> {
        self.meet(&update.task_id, &update.context_id)?;
        let status = update.status;
        if status.state.is_terminal() || status.state == TaskState::InputRequired {
            let made = self.made.clone();
            return Ok(Some(self.end(status.state, status.message, &made)));
        }
        self.state.phase = Phase::Working;
        self.working(status.state, status.message, update.metadata).await;
        Ok(None)
    }

    /// The remote is at work, and may say something about it.
    async fn working(&mut self, state: TaskState, message: Option<Message>, metadata: Option<JsonObject>) {
        if let Some(message) = &message {
            let id = if message.message_id.is_empty() {
                exchange::text_of(&message.parts)
            } else {
                message.message_id.clone()
            };
            if std::mem::replace(&mut self.state.said, id.clone()) == id {
                return;
            }
            self.dirty = true;
        }
        match (state, message) {
            (TaskState::AuthRequired, message) => self.out.auth_required(message, metadata).await,
            (_, Some(message)) => self.out.status(Some(message), metadata).await,
            (_, None) => {}
        }
    }

    async fn artifact(&mut self, update: a2a::TaskArtifactUpdateEvent) -> Result<(), Outcome> {
        self.meet(&update.task_id, &update.context_id)?;
        self.state.phase = Phase::Working;
        let (append, last_chunk) = (update.append, update.last_chunk);
        self.say(update.artifact, append, last_chunk, update.metadata).await
    }

    /// Says an artifact or a piece of one, and remembers what it is by now.
    async fn say(
        &mut self,
        mut artifact: Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<JsonObject>,
    ) -> Result<(), Outcome> {
        if artifact.artifact_id.is_empty() {
            artifact.artifact_id =
                if append { self.last_artifact() } else { format!("artifact-{}", self.state.heard.len() + 1) };
        }
        let known = self.made.iter().position(|made| made.artifact_id == artifact.artifact_id);
        let is_heard = known.is_some() || self.state.heard.iter().any(|heard| heard.id == artifact.artifact_id);
        if !is_heard && self.state.heard.len() >= MOST_ARTIFACTS {
            return Err(broken(format!("the remote made more than {MOST_ARTIFACTS} artifacts")));
        }
        // What continues nothing begins.
        let append = append && is_heard;
        match known {
            Some(at) if append => self.made[at].parts.extend(artifact.parts.iter().cloned()),
            Some(at) => self.made[at] = artifact.clone(),
            None if append => {}
            None => self.made.push(artifact.clone()),
        }
        let id = artifact.artifact_id.clone();
        let whole = self.made.iter().find(|made| made.artifact_id == id).cloned();
        self.state.remember(&id, whole.as_ref());
        self.dirty = true;
        self.out.artifact(artifact, append, last_chunk, metadata).await;
        Ok(())
    }

    fn last_artifact(&self) -> String {
        self.state.heard.last().map_or_else(|| "artifact-1".to_owned(), |heard| heard.id.clone())
    }

    fn meet(&mut self, task: &str, context: &str) -> Result<(), Outcome> {
        self.state.meet(task, context).map_err(broken)?;
        if self.state.task.is_some() {
            self.named.notify_one();
        }
        Ok(())
    }

    /// The end of the remote's turn, in our words.
    fn end(&mut self, state: TaskState, message: Option<Message>, artifacts: &[Artifact]) -> Outcome {
        self.state.ended = state.is_terminal();
        let text = message.as_ref().map(|message| exchange::text_of(&message.parts)).unwrap_or_default();
        let parts = message.map(|message| message.parts).unwrap_or_default();
        match state {
            // Many repeat in the message what their artifacts say.
            TaskState::Completed if repeats(&text_of(artifacts), &text) => Outcome::Completed(Vec::new()),
            TaskState::Completed => Outcome::Completed(parts),
            TaskState::InputRequired => Outcome::InputRequired(parts),
            TaskState::Rejected => Outcome::Rejected(parts),
            TaskState::Canceled => Outcome::Canceled,
            _ if parts.is_empty() => Outcome::Failed(vec![Part::text("the remote says that it failed, and not why")]),
            _ => Outcome::Failed(parts),
        }
    }

    /// Before the end, where something may have been missed, the whole task is asked for.
    async fn whole(&mut self, outcome: Outcome) -> Outcome {
        let Some(id) = self.state.task.clone().filter(|_| self.gap) else { return outcome };
        match self.client.get(GetTaskRequest { id, ..GetTaskRequest::default() }).await {
            Ok(task) if is_over(&task.value) => match self.task(task.value, false).await {
                Ok(Some(outcome)) | Err(outcome) => outcome,
                Ok(None) => outcome,
            },
            _ => outcome,
        }
    }

    async fn keep(&mut self) {
        self.dirty = false;
        self.kept = Instant::now();
        if !store::fault::is_on("remote-forgets") {
            self.out.keep(self.state.write()).await;
        }
    }

    async fn keep_sometimes(&mut self) {
        if self.dirty && self.kept.elapsed() >= KEEP_EVERY {
            self.keep().await;
        }
    }
}

/// How a look ended that found nothing.
enum Looked {
    Ends(Outcome),
    Failed(Error),
}

/// Whether somebody who does not stream may answer plainly.
fn falls_back(error: &Error) -> bool {
    match error {
        Error::Protocol(remote) => {
            let kinds = [ErrorKind::MethodNotFound, ErrorKind::UnsupportedOperation];
            let statuses = [404, 405, 406, 415, 501];
            remote.kind().is_some_and(|kind| kinds.contains(&kind))
                || error.http_status().is_some_and(|status| statuses.contains(&status))
        }
        Error::Malformed(_) | Error::Cut { .. } | Error::Inexpressible(_) => true,
        _ => false,
    }
}

/// An error as the caller is told of it: what the remote said, or what happened on the way.
pub(super) fn said(error: &Error) -> String {
    match (error, error.http_status()) {
        (Error::Protocol(_) | Error::Auth(_), Some(status)) => format!("HTTP {status}: {}", told(error)),
        _ => told(error),
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
