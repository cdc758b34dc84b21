//! One turn of a remote agent: the message goes out once, what comes back is said here, and what is known of it is kept.
//!
//! **Not twice.** What is about to be sent is kept before it is, so that a turn that is taken up later knows whether the message may have
//! arrived. What follows when no answer came depends on the remote:
//! - One that knows repetitions by their key is sent the same message with the same key, until it answers.
//! - Another one of 1.0 is asked for a task with the message. It is sent again only after the remote has said that it does not have it. While
//!   the remote cannot be asked, the turn is suspended. Where it has no way to tell, the turn fails and a cancel is owed; after a crash of this
//!   server the caller decides.
//! - One of 0.3 cannot be asked. A stream that breaks before it has said anything is followed by a plain send with the same id, as seed 004
//!   has it; an unanswered plain send fails.
//!
//! An answer 503 counts as none: proxies give it when they have lost the remote's.
//!
//! **In time.** A message that cannot have arrived is sent again after a while, for as long as messages are to be delivered. While the circuit
//! of the remote is open, the turn is suspended too. A caller that wants a quick verdict, a chat, gets one instead.
//!
//! **Whole, and once.** Where a remote numbers its events, a stream is taken up after the last one that was kept. Where it does not, the task
//! is asked for, and what differs from what was heard takes its place.
//!
//! **Without a slot.** When nothing has come for a while the turn is parked, and looks again after a time, or when the remote says that
//! something has happened.

mod heard;
mod suspend;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use a2a::{
    Dialect, ErrorKind, GetTaskRequest, JsonObject, Message, Part, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use client::{Client, Error, EventStream};
use exchange::{DELEGATION, Delegation, Outcome, Output, RequestOptions, Turn};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use tokio::sync::Notify;

pub(super) use self::suspend::wait_for_remote;
use self::{
    heard::Made,
    suspend::{later, rest, tell_delay},
};
use super::{
    Options,
    call::{self, Found, cancel, headers, is_broken_stream, is_final, message_id, refuses_streams},
    peer::{Peer, Refused, told},
    share::Share,
    spec::Sees,
    state::{LONGEST_ID, Phase, State, StoreClock, in_short, is_over, millis},
};

/// How often a message is sent again without a key to a remote that says that it does not have it.
const RESENDS: u32 = 3;
/// How long a message may be on its way to the remote after its connection broke, before it is sent again without a key.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How often in a row the remote may fail while it is followed, before the turn rests.
const FAILURES: u32 = 5;
/// At most so often what was heard is kept while pieces come.
const KEEP_EVERY: Duration = Duration::from_millis(300);
/// The longest wait between two looks at a parked task.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long between the first looks at a task that cannot be followed.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// How long a task that stood still is followed when it is looked at.
const GLANCE: Duration = Duration::from_secs(1);
/// How long a cancel waits for the id of a task that was just begun.
const LEARN: Duration = Duration::from_secs(3);
/// How long a remote whose work is not wanted any more is told so at the end of a turn.
const FAREWELL: Duration = Duration::from_secs(3);

/// How a step of a turn ended.
enum Step {
    Ends(Outcome),
    /// The remote works on it, and there is nothing to read.
    Quiet,
}

/// How a look ended that found nothing.
enum Looked {
    Ends(Outcome),
    Failed(Error),
}

/// A turn that is under way.
struct Follow<'a> {
    peer: &'a Peer,
    share: &'a Share,
    options: &'a Options,
    turn: Turn,
    out: Output,
    state: State,
    clock: StoreClock,
    /// For the message, which may take long.
    client: Client,
    /// For questions.
    asking: Client,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The id of the turn's message there.
    message: String,
    /// What has come in this run, as far as it is known whole.
    made: Vec<Made>,
    /// The state as it was last kept.
    last: Option<State>,
    kept: Instant,
    /// When this run began, and how long the turn had been at work by then.
    run: (Instant, u64),
    /// When the call began that is under way, or was last.
    called: Instant,
    /// The remote may have the message of an earlier attempt.
    may_have: bool,
    dirty: bool,
    /// Something may have been missed: before the end the whole task is asked for.
    gap: bool,
    begun: bool,
    /// The task as it was last looked at, in short.
    looked: String,
    /// Told once the remote has named its task.
    named: Arc<Notify>,
}

/// Takes a turn.
pub(super) async fn run(peer: &Peer, options: &Options, turn: Turn, out: Output) -> Outcome {
    let started = Instant::now();
    let mut state = match begin(&turn).await {
        Ok(state) => state,
        Err(error) => return Outcome::Retry(format!("the journal cannot be read: {error}")),
    };
    let clock = match StoreClock::of(&turn).await {
        Ok(clock) => clock,
        Err(_) if turn.state.is_some() => return suspend::unreadable(),
        Err(error) => return Outcome::Retry(format!("the journal cannot be read: {error}")),
    };
    state.wake(clock.now());
    let share = peer.share(turn.tenant());
    let message = message_id(&turn, &state);
    let headers = headers(peer, &turn, &message);
    let (client, asking) = match clients(peer, &share, &turn, &mut state, options, &clock).await {
        Ok(clients) => clients,
        Err(outcome) => {
            state.tracked = state.tracked.saturating_add(millis(started.elapsed()));
            tell_delay(peer, &state, &outcome, &out).await;
            out.keep(state.write()).await;
            farewell(peer, &state, &outcome).await;
            return outcome;
        }
    };
    let client = match peer.spec.sees {
        Sees::Message => client.with_extensions(&turn.message.extensions),
        Sees::Text | Sees::Trace => client,
    };
    // A state that is of this turn already is kept.
    let last = Some(state.clone()).filter(|_| state == State::read(turn.state.as_ref()));
    let mut follow = Follow {
        client: client.with_headers(headers.clone()),
        asking: asking.with_headers(headers.clone()),
        headers,
        message,
        peer,
        share: &share,
        options,
        last,
        turn,
        out,
        run: (started, state.tracked),
        state,
        clock,
        made: Vec::new(),
        kept: Instant::now(),
        called: started,
        may_have: false,
        dirty: false,
        gap: false,
        begun: false,
        looked: String::new(),
        named: Arc::default(),
    };
    let outcome = follow.drive().await;
    tell_delay(peer, &follow.state, &outcome, &follow.out).await;
    follow.state.phase = match &outcome {
        Outcome::Parked { .. } | Outcome::Retry(_) | Outcome::Canceled => follow.state.phase,
        _ => Phase::Over,
    };
    follow.keep().await;
    farewell(peer, &follow.state, &outcome).await;
    outcome
}

/// Cancels the work of a remote whose turn has failed here.
async fn farewell(peer: &Peer, state: &State, outcome: &Outcome) {
    if matches!(outcome, Outcome::RemoteFailed(_)) && state.is_owed_a_cancel() {
        tokio::time::timeout(FAREWELL, cancel(peer, state)).await.ok();
    }
}

/// How the remote is called in this run, or how the run ends without a call.
async fn clients(
    peer: &Peer,
    share: &Share,
    turn: &Turn,
    state: &mut State,
    options: &Options,
    clock: &StoreClock,
) -> Result<(Client, Client), Outcome> {
    let is_prompt = turn.origin.prompt;
    let started = Instant::now();
    if state.phase != Phase::Working && !share.breaker.may_admit() {
        return Err(later(state, share, turn, options, clock.now(), open_circuit(&peer.spec.name)));
    }
    if peer.card().is_none() || !peer.is_watched() {
        let fetched = peer.ensure_card(!peer.is_watched()).await;
        if let (Err(refused), None) = (fetched, peer.card()) {
            let why = format!("card fetch failed: {}", peer.refusal(&refused));
            let is_away =
                matches!(&refused, Refused::Card(error) if error.is_mendable() && error.http_status().is_none());
            let may_wait = is_away && !is_prompt && (peer.spec.card.is_none() || peer.spec.follows_card);
            match state.phase {
                // It was begun with one, and is not gone on with in another way.
                Phase::Working if state.carded => return Err(rest(state, options, clock.now(), options.poll)),
                Phase::Sending if state.carded => return Err(later(state, share, turn, options, clock.now(), why)),
                Phase::New | Phase::Over if may_wait => {
                    peer.broke(share, started, &why);
                    return Err(later(state, share, turn, options, clock.now(), why));
                }
                // Those of `agents.yaml` are called without one, too: the seed's agents need none.
                Phase::New | Phase::Over if !peer.is_watched() || peer.spec.follows_card => return Err(broken(why)),
                _ => {}
            }
        }
    }
    match (peer.client(), peer.asking()) {
        (Ok(client), Ok(asking)) => Ok((client, asking)),
        (Err(refused), _) | (_, Err(refused)) => Err(match state.phase {
            Phase::Working => rest(state, options, clock.now(), options.poll),
            Phase::Sending => later(state, share, turn, options, clock.now(), peer.refusal(&refused)),
            Phase::New | Phase::Over => broken(peer.refusal(&refused)),
        }),
    }
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

/// Whether a turn with this state has something under way elsewhere.
pub(super) fn is_under_way(turn: &Turn) -> bool {
    let state = State::read(turn.state.as_ref());
    state.turn == turn.number && matches!(state.phase, Phase::Sending | Phase::Working)
}

/// A failure that is the remote's, or the network's.
fn broken(why: String) -> Outcome {
    Outcome::RemoteFailed(why)
}

fn open_circuit(name: &str) -> String {
    format!("circuit breaker a2a:{name}: circuit OPEN — call rejected")
}

impl Follow<'_> {
    async fn drive(&mut self) -> Outcome {
        let cancel = self.turn.cancel.clone();
        if cancel.is_cancelled() {
            return Outcome::Canceled;
        }
        let late = self.turn.origin.delegation.time_left();
        let track_for = self.options.track_for;
        let tracked = track_for.saturating_sub(self.age());
        let named = Arc::clone(&self.named);
        if self.state.task.is_some() {
            named.notify_one();
        }
        let worked = async {
            tokio::select! {
                outcome = self.work() => outcome,
                () = sleep(late) => broken("the deadline has passed".to_owned()),
                () = tokio::time::sleep(tracked) => broken(suspend::tracked_too_long(&track_for)),
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
            Phase::Working => {
                self.turn.release_message();
                self.look().await
            }
        };
        match step {
            Ok(Step::Ends(outcome)) => outcome,
            Ok(Step::Quiet) => self.park().await,
            Err(outcome) => outcome,
        }
    }

    /// The message as the remote gets it.
    fn request(&self, delegation: &Delegation) -> SendMessageRequest {
        let turn = &self.turn;
        let parts = match self.peer.spec.sees {
            Sees::Text => vec![Part::text(turn.text())],
            Sees::Trace | Sees::Message => turn.message.parts.clone(),
        };
        let mut message = Message {
            message_id: self.message.clone(),
            role: Role::User,
            parts,
            task_id: self.state.task.clone().unwrap_or_default(),
            context_id: self.state.context.clone().unwrap_or_default(),
            ..Message::default()
        };
        if self.peer.spec.sees == Sees::Message {
            let said = &turn.message;
            message.metadata = said.metadata.as_ref().and_then(RequestOptions::without_tracing);
            message.extensions.clone_from(&said.extensions);
            message.reference_task_ids.clone_from(&said.reference_task_ids);
        }
        let mut request = SendMessageRequest { message, ..SendMessageRequest::default() };
        if self.peer.spec.sees.traces() {
            let trace = turn.trace();
            let mut metadata = serde_json::Map::new();
            metadata.extend(self.skill().map(|skill| ("skillHint".to_owned(), skill.into())));
            metadata.insert("correlationId".to_owned(), trace.correlation.into());
            metadata.extend(trace.parent.map(|parent| ("parentId".to_owned(), parent.into())));
            if self.client.resumes() {
                metadata.insert(DELEGATION.to_owned(), json!(delegation));
            }
            request.metadata = JsonObject::from_value(&metadata.into());
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
        if !self.share.breaker.admit() {
            return Err(self.later(open_circuit(&self.peer.spec.name)));
        }
        self.called = Instant::now();
        self.may_have = self.state.phase == Phase::Sending;
        self.state.phase = Phase::Sending;
        self.state.message = self.message.clone();
        self.state.carded = self.peer.card().is_some();
        self.state.is_sent(self.clock.now());
        self.keep().await;
        self.out.flush().await;
        if store::fault::is_on("slow-send") {
            tracing::warn!(task.id = %self.turn.task, "a message is about to be sent");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        if self.turn.cancel.is_cancelled() && !self.may_have {
            self.was_not_sent();
            return Err(Outcome::Canceled);
        }
        Ok(delegation)
    }

    /// The message of this attempt did not reach the remote.
    fn was_not_sent(&mut self) {
        if !self.may_have {
            self.state.phase = Phase::New;
            self.state.is_not_sent();
        }
    }

    /// Suspends the turn, whose message was not delivered.
    fn later(&mut self, why: String) -> Outcome {
        self.state.tracked = millis(self.age());
        later(&mut self.state, self.share, &self.turn, self.options, self.clock.now(), why)
    }

    /// Whether the remote knows a message that it gets again by its key.
    fn has_keys(&self) -> bool {
        self.client.resumes() && self.peer.spec.sees.traces()
    }

    /// Sends the message and hears what comes of it.
    async fn send(&mut self) -> Result<Step, Outcome> {
        let delegation = self.admit().await?;
        if self.state.plain || !self.peer.streams() {
            return self.send_plainly(&delegation).await;
        }
        let error = match self.client.stream(self.request(&delegation)).await {
            Ok(stream) => match self.hear(stream).await {
                Ok(step) => return Ok(step),
                Err(error) if self.begun => return self.take_up(error).await,
                Err(error) => error,
            },
            Err(error) => error,
        };
        if refuses_streams(&error) {
            self.state.plain = true;
            return self.send_plainly(&delegation).await;
        }
        if !is_broken_stream(&error) {
            return self.not_sent(error).await;
        }
        self.state.plain = true;
        if self.has_keys() {
            self.may_have = true;
            return self.send_plainly(&delegation).await;
        }
        match self.find_after_a_while().await? {
            Found::Yes(_) => self.look().await,
            Found::No => self.send_plainly(&delegation).await,
            Found::NotNow(_) | Found::TooMany => Err(self.later(self.peer.said(&error))),
            // Seed 004 has it so.
            Found::Unknown if self.client.dialect() == Dialect::V03 => self.send_plainly(&delegation).await,
            Found::Unknown | Found::Unsure => Err(self.may_have_taken(&error)),
        }
    }

    /// Sends it to somebody who does not stream. Where it can be looked at, it is not waited for: it has a name then.
    async fn send_plainly(&mut self, delegation: &Delegation) -> Result<Step, Outcome> {
        let mut request = self.request(delegation);
        if self.peer.spec.sees.traces() {
            let immediate =
                SendMessageConfiguration { return_immediately: true, ..SendMessageConfiguration::default() };
            request.configuration = Some(immediate);
        }
        let answer = match self.client.send(request).await {
            Ok(answer) => {
                self.use_up(answer.json.get().len()).map_err(broken)?;
                answer.value
            }
            Err(error) => return self.not_sent(error).await,
        };
        self.peer.worked(self.share);
        self.turn.release_message();
        match answer {
            SendMessageResponse::Message(message) => Ok(Step::Ends(self.message(message))),
            SendMessageResponse::Task(task) => match self.task(task, false).await? {
                Some(outcome) => Ok(Step::Ends(outcome)),
                None => self.look().await,
            },
        }
    }

    /// A message that may have been sent before: by a run that was cut off, or by one that got no answer.
    async fn send_again(&mut self) -> Result<Step, Outcome> {
        if self.has_keys() && !suspend::may_be_forgotten(&self.state, self.clock.now()) {
            return self.send().await;
        }
        self.called = Instant::now();
        match self.find_after_a_while().await? {
            Found::Yes(_) => self.look().await,
            Found::No => {
                self.state.phase = Phase::New;
                self.state.is_not_sent();
                self.send().await
            }
            Found::NotNow(error) => {
                self.peer.broke(self.share, self.called, &told(&error));
                Err(self.later(self.peer.said(&error)))
            }
            Found::TooMany => Err(self.later(call::not_found_yet(&self.peer.spec.name))),
            // Nobody knows. The caller decides whether it is sent again.
            Found::Unknown | Found::Unsure => {
                self.state = std::mem::take(&mut self.state).next_turn(self.turn.number);
                Err(Outcome::Interrupted)
            }
        }
    }

    /// Asks the remote whether it has the message. An attempt goes on where the one before it was cut off.
    async fn find(&mut self) -> Result<Found, Outcome> {
        let search = self.peer.search(&self.state.message);
        let found = call::find(&self.asking, &self.state, &mut *search.lock().await).await;
        if !matches!(found, Found::No | Found::NotNow(_) | Found::TooMany) {
            self.peer.end_search(&self.state.message);
        }
        if let Found::Yes(task) = &found {
            self.meet(&task.id, &task.context_id).map_err(broken)?;
            self.state.phase = Phase::Working;
            self.keep().await;
        }
        if matches!(found, Found::Yes(_) | Found::No) {
            self.peer.worked(self.share);
        }
        Ok(found)
    }

    /// Asks the remote whether it has the message. A remote that does not have it is asked a second time: the message may still be on its way
    /// when its connection breaks.
    async fn find_after_a_while(&mut self) -> Result<Found, Outcome> {
        loop {
            let found = self.find().await?;
            if !matches!(found, Found::No) {
                return Ok(found);
            }
            let search = self.peer.search(&self.state.message);
            if search.lock().await.has_missed_twice() {
                self.peer.end_search(&self.state.message);
                return Ok(Found::No);
            }
            tokio::time::sleep(ON_ITS_WAY).await;
        }
    }

    /// What becomes of a message that was not answered.
    async fn not_sent(&mut self, error: Error) -> Result<Step, Outcome> {
        let why = told(&error);
        let status = error.http_status();
        if matches!(error, Error::Protocol(_) | Error::Auth(_)) && !error.is_mendable() {
            // Somebody is there and says no.
            if status.is_some_and(|status| status >= 500) {
                self.peer.broke(self.share, self.called, &why);
            } else {
                self.peer.worked(self.share);
            }
            if !self.may_have && (is_final(&error) || matches!(error, Error::Auth(_))) {
                self.state.is_not_sent();
            }
            return Err(broken(self.peer.said(&error)));
        }
        self.peer.broke(self.share, self.called, &why);
        if matches!(error, Error::Forbidden(_) | Error::Token | Error::Setup(_) | Error::Url { .. }) {
            self.was_not_sent();
            return Err(broken(self.peer.said(&error)));
        }
        // What cannot have arrived, or was refused, is sent again.
        if error.never_sent() || is_refused(&error) {
            self.was_not_sent();
            return Err(self.later(self.peer.said(&error)));
        }
        let is_passing = error.is_mendable() || matches!(error, Error::Cut { .. });
        if self.has_keys() {
            return Err(if is_passing { self.later(self.peer.said(&error)) } else { self.may_have_taken(&error) });
        }
        // A busy remote says 503. So does a proxy that has lost the remote's answer.
        let is_busy = status == Some(503);
        let found = if is_busy { self.find_after_a_while().await? } else { self.find().await? };
        if matches!(found, Found::No) {
            self.peer.end_search(&self.state.message);
        }
        match found {
            Found::Yes(_) => self.look().await,
            Found::NotNow(_) | Found::TooMany => Err(self.later(self.peer.said(&error))),
            Found::No if is_busy => {
                self.was_not_sent();
                Err(self.later(self.peer.said(&error)))
            }
            // It may be slow to begin a task, or begin none: a message that took too long is not sent again.
            Found::No if is_passing && !matches!(error, Error::Timeout { .. }) && self.state.resent + 1 < RESENDS => {
                // It is asked again before the message is sent again.
                self.state.resent += 1;
                Err(self.later(self.peer.said(&error)))
            }
            Found::No | Found::Unknown | Found::Unsure => Err(self.may_have_taken(&error)),
        }
    }

    /// The failure of a message that was not answered and is not sent again.
    fn may_have_taken(&self, error: &Error) -> Outcome {
        broken(format!("{}; the remote may have taken the message", self.peer.said(error)))
    }

    /// Hears a stream until it is over, is cut, or nothing has come for a while.
    async fn hear(&mut self, mut stream: EventStream) -> Result<Step, Error> {
        loop {
            let quiet = match (self.begun && self.state.task.is_some(), self.state.looks) {
                (false, _) => self.peer.spec.timeout,
                (true, 0) => self.options.quiet,
                // It stood still when it was last looked at.
                (true, _) => self.options.quiet.min(GLANCE),
            };
            let event = match tokio::time::timeout(quiet, stream.next()).await {
                Ok(Some(event)) => event?,
                // A stream that ends before its task does was cut.
                Ok(None) => return Err(Error::Cut { attempts: 0, source: None }),
                Err(_) if self.begun && self.state.task.is_some() => {
                    self.state.looks = self.state.looks.saturating_add(1);
                    return Ok(Step::Quiet);
                }
                Err(_) => return Err(Error::Timeout { origin: self.peer.spec.name.clone(), after: quiet }),
            };
            if !self.begun {
                self.peer.worked(self.share);
            }
            let id = stream.last_id().map_or(0, str::len);
            if let Err(why) = self.use_up(event.json.get().len() + id) {
                return Ok(Step::Ends(broken(why)));
            }
            let first = !std::mem::replace(&mut self.begun, true);
            if first {
                self.turn.release_message();
            }
            self.state.failures = 0;
            self.state.tries = 0;
            self.state.looks = 0;
            let heard = match event.value {
                StreamResponse::Message(message) => Ok(Some(self.message(message))),
                StreamResponse::Task(task) => self.task(task, first).await,
                StreamResponse::StatusUpdate(update) => self.status(update).await,
                StreamResponse::ArtifactUpdate(update) => self.artifact(update).await.map(|()| None),
            };
            self.state.cursor = stream.last_id().filter(|id| id.len() <= LONGEST_ID).map(str::to_owned);
            match heard {
                Ok(Some(outcome)) => return self.whole(outcome).await.map(Step::Ends),
                Ok(None) => self.keep_sometimes().await,
                Err(outcome) => return Ok(Step::Ends(outcome)),
            }
        }
    }

    /// A stream was cut: it is taken up again, or the task is looked at.
    async fn take_up(&mut self, error: Error) -> Result<Step, Outcome> {
        let Some(_) = self.state.task else {
            self.state.phase = Phase::Sending;
            return self.not_sent(error).await;
        };
        if !error.is_mendable() && !matches!(error, Error::Cut { .. }) {
            // What is wrong with it stays wrong.
            self.peer.broke(self.share, self.called, &told(&error));
            return Err(broken(self.peer.said(&error)));
        }
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
                tokio::time::sleep(wait).await;
            }
            match self.look_once().await {
                Ok(step) => return Ok(step),
                Err(Looked::Ends(outcome)) => return Err(outcome),
                Err(Looked::Failed(error)) => {
                    tracing::debug!(agent.name = %self.peer.spec.name, error = told(&error), "a remote cannot be looked at");
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
        // Its card may be another by now.
        if let Ok(asking) = self.peer.asking() {
            self.asking = asking.with_headers(self.headers.clone());
        }
        // Who follows a task of a 0.3 server a second time has it written down twice there (the official Python SDK): it is looked at.
        let streams = self.peer.streams() && self.asking.dialect() == a2a::Dialect::V1;
        let with_cursor = self.asking.resumes() && self.state.cursor.is_some();
        if !with_cursor || !streams {
            let until = Instant::now() + if self.state.looks == 0 { self.options.quiet } else { Duration::ZERO };
            let mut wait = FIRST_LOOK;
            loop {
                let is_new = match self.get(&id).await? {
                    Ok(outcome) => return Ok(Step::Ends(outcome)),
                    Err(is_new) => is_new,
                };
                if streams {
                    // A task that stands still is not followed, but looked at now and then.
                    let stood_still = !is_new && self.state.looks > 0;
                    self.state.looks = if is_new { 0 } else { self.state.looks.saturating_add(1) };
                    if stood_still {
                        return Ok(Step::Quiet);
                    }
                    break;
                }
                self.keep_sometimes().await;
                if Instant::now() + wait >= until {
                    self.state.looks = if is_new { 0 } else { self.state.looks.saturating_add(1) };
                    return Ok(Step::Quiet);
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 3 / 2).min(Duration::from_secs(2));
            }
            self.gap = true;
        }
        let request = SubscribeToTaskRequest { id, ..SubscribeToTaskRequest::default() };
        let after = self.state.cursor.clone().filter(|_| with_cursor);
        let stream = match self.asking.subscribe(request, after).await {
            Ok(stream) => stream,
            // Some say nothing before there is something to say.
            Err(Error::Timeout { .. }) => {
                self.state.looks = self.state.looks.saturating_add(1);
                return Ok(Step::Quiet);
            }
            Err(error) if error.is_mendable() => return Err(Looked::Failed(error)),
            // It cannot be followed, or has just ended: it is looked at.
            Err(_) if with_cursor => {
                self.state.cursor = None;
                return Err(Looked::Failed(Error::Cut { attempts: 0, source: None }));
            }
            Err(_) => {
                return match self.get(&self.state.task.clone().unwrap_or_default()).await? {
                    Ok(outcome) => Ok(Step::Ends(outcome)),
                    Err(_) => Ok(Step::Quiet),
                };
            }
        };
        self.peer.worked(self.share);
        self.begun = true;
        let cursor = self.state.cursor.clone().filter(|_| with_cursor);
        let heard = self.hear(stream).await;
        // A stream that ends before it says anything has nothing after the cursor: the task itself says how it stands.
        if matches!(heard, Err(Error::Cut { source: None, .. })) && cursor.is_some() && self.state.cursor == cursor {
            self.state.cursor = None;
        }
        heard.map_err(Looked::Failed)
    }

    /// Looks at the task: gives the end of the turn, or whether there is anything new.
    async fn get(&mut self, id: &str) -> Result<Result<Outcome, bool>, Looked> {
        let before = (self.state.heard.clone(), self.state.said.clone());
        let task = self.asking.get(GetTaskRequest { id: id.to_owned(), ..GetTaskRequest::default() }).await;
        let task = match task {
            Ok(task) => {
                // What is the same again is not more.
                let size = task.json.get().len();
                let is_same =
                    std::mem::replace(&mut self.looked, in_short(task.json.get())) == in_short(task.json.get());
                self.use_up(if is_same { 0 } else { size }).map_err(|why| Looked::Ends(broken(why)))?;
                task.value
            }
            Err(error) if is_final(&error) => {
                let why = format!("the remote's task cannot be read: {}", self.peer.said(&error));
                return Err(Looked::Ends(broken(why)));
            }
            Err(error) => return Err(Looked::Failed(error)),
        };
        self.peer.worked(self.share);
        self.state.failures = 0;
        self.begun = true;
        if let Some(outcome) = self.task(task, false).await.map_err(Looked::Ends)? {
            return Ok(Ok(outcome));
        }
        Ok(Err(before != (self.state.heard.clone(), self.state.said.clone())))
    }

    /// Rests. Before that the remote is asked, once, to say when something happens.
    async fn park(&mut self) -> Outcome {
        self.state.phase = Phase::Working;
        if !self.state.told {
            self.state.told = true;
            self.ask_to_be_told().await;
        }
        let doublings = self.state.looks.saturating_sub(1).min(16);
        let longest = LONGEST_WAIT.max(self.options.poll);
        let wait = self.options.poll.saturating_mul(2_u32.saturating_pow(doublings)).min(longest);
        self.state.failures = 0;
        self.state.tracked = millis(self.age());
        rest(&mut self.state, self.options, self.clock.now(), wait)
    }

    /// How long the turn has been at work: a sum of times that a steady clock has measured.
    fn age(&self) -> Duration {
        let (started, before) = self.run;
        Duration::from_millis(before).saturating_add(started.elapsed())
    }

    /// Counts what has come in this turn.
    fn use_up(&mut self, bytes: usize) -> Result<(), String> {
        self.state.used = self.state.used.saturating_add(bytes as u64);
        let cap = self.options.turn_bytes;
        let is_more = self.state.used > cap as u64;
        if is_more { Err(format!("the remote said more than {cap} bytes in one turn")) } else { Ok(()) }
    }

    async fn ask_to_be_told(&mut self) {
        let (Some(base), Some(token), Some(task)) =
            (self.options.callback(&self.peer.spec), self.turn.wake_token(), self.state.task.clone())
        else {
            return;
        };
        if !self.asking.pushes() {
            return;
        }
        let config = TaskPushNotificationConfig {
            task_id: task,
            url: format!("{base}/v1/callbacks/{token}"),
            token,
            ..TaskPushNotificationConfig::default()
        };
        if let Err(error) = self.asking.create_push(config).await {
            let error = told(&error);
            tracing::debug!(agent.name = %self.peer.spec.name, error, "a remote does not notify; it is asked now and then");
        }
    }

    /// Before the end, where something may have been missed, the whole task is asked for.
    async fn whole(&mut self, outcome: Outcome) -> Result<Outcome, Error> {
        let Some(id) = self.state.task.clone().filter(|_| self.gap) else { return Ok(outcome) };
        match self.asking.get(GetTaskRequest { id, ..GetTaskRequest::default() }).await {
            Ok(task) if is_over(&task.value) => match self.task(task.value, false).await {
                Ok(Some(outcome)) | Err(outcome) => Ok(outcome),
                Ok(None) => Ok(outcome),
            },
            Err(error) if !is_final(&error) => {
                self.state.ended = false;
                Err(error)
            }
            _ => Ok(outcome),
        }
    }

    async fn keep(&mut self) {
        self.dirty = false;
        self.kept = Instant::now();
        // What is so already is not written again.
        if self.last.as_ref() == Some(&self.state) || store::fault::is_on("remote-forgets") {
            return;
        }
        self.state.tracked = millis(self.age());
        self.out.keep(self.state.write()).await;
        self.last = Some(self.state.clone());
    }

    async fn keep_sometimes(&mut self) {
        if self.dirty && self.kept.elapsed() >= KEEP_EVERY {
            self.keep().await;
        }
    }
}

/// Whether the remote refused the message because it has too much to do. A 503 is none of these answers: proxies say it as well when the
/// remote took the message and its answer was lost.
fn is_refused(error: &Error) -> bool {
    let is_exhausted = matches!(error, Error::Protocol(remote) if remote.kind() == Some(ErrorKind::ResourceExhausted));
    is_exhausted || error.http_status() == Some(429)
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
