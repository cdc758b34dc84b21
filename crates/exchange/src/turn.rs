//! One turn: the agent runs, what it says is journaled, and its end ends the turn.
//!
//! Whatever wants a turn to stop (a lost lease, a shutdown, its time, a cancel) is looked at before the agent is, so that
//! an agent that never waits is stopped like any other. Each of these clocks is started once for the turn.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use a2a::{Message, Part, PartContent, Role, TaskState};
use bytes::Bytes;
use futures_util::FutureExt;
use store::{Append, Most, TurnEnd, View, fault};
use tokio::time::Instant;

use crate::{
    Entry, Errands, Inner, OnCrash, Origin, Outcome, Output, Past, Profile, ReplyMode, RequestOptions, Turn,
    agent::{COALESCE, Journaled},
    attempts, errand,
    flight::FREE,
    fold::Made,
    intake::size_of,
    kept::{self, Kept},
    scribe::{INTERRUPTED, Scribe, reason_of},
    trouble::{Attempt, Trouble},
    turn_memory::Reservation,
    worker::{self, Begin, Running},
};

/// How many things an agent may have said that are not journaled yet.
const SAID: usize = 64;
/// So many events of a log are read at once.
const LOG: usize = 256;
/// So many bytes of them, or one that has more.
const LOG_BYTES: u64 = 1 << 20;
/// So many messages back the one that was interrupted is looked for.
const REMEMBERED: u32 = 16;
/// For clocks that are not to strike.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// How one turn ended for its worker.
enum Ended {
    /// Another message was waiting. The journal was asked at that moment.
    Next(Box<store::Turn>, Instant),
    Over,
}

/// What became of a commit.
enum Committed {
    /// The next turn, if there is one, when the journal was asked, how the task stands, and the log's end.
    Written(Option<Box<store::Turn>>, Instant, TaskState, u64),
    /// The turn has failed in place of that, and what is to be told of it is told.
    Unkept,
    Refused,
}

/// Runs a leased turn, and those that wait behind it.
pub(crate) async fn drive(inner: &Arc<Inner>, entry: &Entry, running: &Running, begin: Begin) {
    let mut left = Left::Stored;
    let mut ended = match verdict(&entry.profile, running, begin.interrupted) {
        Some(verdict) => end_unrun(inner, running, &begin.turn, verdict).await,
        None => {
            let tries = Tries { attempt: running.lease.attempt, counted: running.lease.tries };
            run(inner, entry, running, begin, tries, &mut left).await
        }
    };
    while let Ended::Next(turn, asked) = ended {
        let begin = Begin { turn: *turn, interrupted: false, rested: false, asked };
        ended = run(inner, entry, running, begin, Tries { attempt: 1, counted: 1 }, &mut left).await;
    }
}

/// Gives back a turn that has not begun: nothing was interrupted. One that was resting goes on resting.
async fn give_back(inner: &Arc<Inner>, running: &Running, turn: u32, rested: bool) -> Ended {
    let mut scribe = Scribe::of(&running.lease, turn);
    let rests = TurnEnd::Park { at_most: Some(Duration::ZERO) };
    commit(inner, running, &mut scribe, Some(if rested { rests } else { TurnEnd::Release { begun: false } })).await;
    Ended::Over
}

/// What the agent's policy says about a turn that was cut off, or has been tried too often.
fn verdict(profile: &Profile, running: &Running, interrupted: bool) -> Option<Verdict> {
    if interrupted && let Some(outcome) = on_interruption(profile, "interrupted by a crash") {
        return Some(Verdict::Ends(outcome));
    }
    let tries = running.lease.tries;
    (tries > attempts::limit(&running.lease, profile.max_attempts)).then(|| Verdict::Dead(tries.saturating_sub(1)))
}

/// How a turn ends that is not run.
enum Verdict {
    Ends(Outcome),
    /// After so many attempts.
    Dead(u32),
}

/// How a turn ends that was cut off, if it is not to run again.
pub(crate) fn on_interruption(profile: &Profile, why: &str) -> Option<Outcome> {
    match profile.on_crash {
        OnCrash::Retry | OnCrash::Resume => None,
        OnCrash::Fail => Some(Outcome::Failed(vec![Part::text(why)])),
        OnCrash::Ask => Some(Outcome::Interrupted),
    }
}

/// Ends a turn without its agent.
async fn end_unrun(inner: &Arc<Inner>, running: &Running, turn: &store::Turn, verdict: Verdict) -> Ended {
    let mut scribe = Scribe::of(&running.lease, turn.number);
    let attempt = cut_off(running, turn.number);
    match verdict {
        Verdict::Ends(outcome) => {
            let trouble = Trouble::of(&outcome);
            end_as(inner, running, &mut scribe, outcome, attempt, trouble).await
        }
        Verdict::Dead(tries) => give_up(inner, running, &mut scribe, attempt, "interrupted", tries).await,
    }
}

/// The attempt before the one that a lease was given for.
fn cut_off(running: &Running, turn: u32) -> Attempt<'_> {
    let lease = &running.lease;
    Attempt { lease, turn, number: lease.attempt.saturating_sub(1).max(1) }
}

/// What was kept before a turn.
pub(crate) enum Left {
    /// The journal has it, if there is anything.
    Stored,
    /// The turn before has run here.
    Known(Option<Bytes>),
}

/// Which attempt at a turn it is.
#[derive(Clone, Copy)]
struct Tries {
    attempt: u32,
    /// Those that were not given back on purpose.
    counted: u32,
}

/// Runs one attempt at one turn and commits all that comes of it.
async fn run(
    inner: &Arc<Inner>,
    entry: &Entry,
    running: &Running,
    begin: Begin,
    tries: Tries,
    left: &mut Left,
) -> Ended {
    let Begin { turn, interrupted, rested, asked } = begin;
    let lease = &running.lease;
    let profile = &entry.profile;
    let number = turn.number;
    if inner.workers.is_releasing() {
        return give_back(inner, running, number, rested).await;
    }
    let mut scribe = Scribe::new(lease.task, Arc::clone(&lease.context), number, tries.attempt, profile.reply_text);
    let may_be_held = profile.reply == ReplyMode::Auto && number == 1 && !fault::is_on("stay-held");
    let begun = async {
        let Some((turn, mut held)) = reserve(inner, running, turn, left, may_be_held).await? else { return Ok(None) };
        // It may wait for memory, and the state is read only once there is enough.
        let (message, request) = offered(inner, running, turn, left, &mut held).await?;
        let resumed = take_up(inner, lease, &mut scribe, left).await?;
        let mut origin = Origin::read(lease.origin.as_deref());
        if origin.has_stored_deadline() {
            origin.start_deadline(inner.store.next_due(&[]).await?.now);
        }
        let request = RequestOptions::of(&*inner.store, lease.tenant, lease.task, request).await?;
        if let Some(held) = &mut held {
            held.keep((size_of(&message) + scribe.state().map_or(0, Bytes::len)) as u64);
        }
        Ok::<_, store::Error>(Some((resumed, origin, request, message, held)))
    };
    let begun = tokio::select! {
        biased;
        begun = begun => begun,
        () = running.lost.cancelled() => return Ended::Over,
        () = inner.workers.released() => return give_back(inner, running, number, rested).await,
    };
    let (resumed, origin, request, message, held) = match begun {
        Ok(Some(begun)) => begun,
        Ok(None) => {
            let attempt = attempt_of(running, &scribe);
            let ended = end_as(inner, running, &mut scribe, Outcome::Canceled, attempt, None).await;
            errand::wake_parent(inner, lease.tenant, &Origin::read(lease.origin.as_deref())).await;
            return ended;
        }
        Err(error) => {
            if rested && !error.is_permanent() {
                tracing::warn!(task.id = %lease.task, %error, "what a turn goes on with cannot be read yet");
                let at_most = Some(attempts::backoff(lease.task, 1));
                commit(inner, running, &mut scribe, Some(TurnEnd::Park { at_most })).await;
                return Ended::Over;
            }
            tracing::error!(task.id = %lease.task, %error, "what a turn begins with cannot be read");
            let why = "the journal cannot be read";
            return retry_or_give_up(inner, running, &mut scribe, profile, tries.counted, why).await;
        }
    };
    // The reads above take as long as they take. From here to the agent's first step nothing waits.
    if !worker::is_held(inner, running, asked).await {
        if inner.workers.is_releasing() {
            return give_back(inner, running, number, rested).await;
        }
        return Ended::Over;
    }
    if interrupted {
        cut_off(running, number).tell(Trouble::CutOff, "whoever ran it is gone or was stopped");
    }
    let (output, mut said) = Output::channel(SAID);
    let time = output.time();
    // Held until all that comes of it is committed.
    let held = held.map(|held| Arc::new(Mutex::new(held)));
    let journaled = Journaled {
        tenant: lease.tenant,
        store: inner.journal(),
        context_limit: if lease.remembers { inner.options.context_limit } else { 0 },
        key: inner.page_key.clone(),
        time: time.clone(),
        held: held.clone(),
        budget: inner.turn_memory.past.clone(),
        past: Mutex::default(),
    };
    let agent_turn = Turn {
        agent: lease.agent.clone(),
        task: lease.task,
        context: Arc::clone(&lease.context),
        message,
        attempt: tries.attempt,
        tries: tries.counted,
        number,
        state: scribe.state().cloned(),
        resumed,
        cancel: running.cancel.clone(),
        past: Past::journal(journaled),
        ledger: inner.ledger(&lease.agent, &origin),
        errands: Some(Errands::of_turn(inner, lease)),
        origin: origin.clone(),
        request,
    };
    let mut agent = pin!(AssertUnwindSafe(entry.agent.run(agent_turn, output)).catch_unwind());
    let mut deadline = pin!(tokio::time::sleep(profile.timeout.unwrap_or(NEVER)));
    let mut grace = pin!(async {
        running.cancel.cancelled().await;
        tokio::time::sleep(inner.options.cancel_grace).await;
    });
    // A caller that waits for a direct reply is told of the task when that takes too long, whether it is there or not.
    let mut reveal = pin!(tokio::time::sleep(if may_be_held { profile.reveal_after } else { NEVER }));
    let mut flush_at = (!scribe.is_empty()).then(Instant::now);
    let mut patience = profile.first_text;
    let mut overdue = false;

    let outcome = loop {
        tokio::select! {
            biased;
            () = running.lost.cancelled() => {
                tracing::info!(task.id = %lease.task, "another instance has taken the task over");
                return Ended::Over;
            }
            () = inner.workers.released() => {
                return release(inner, running, &mut scribe, profile, "interrupted: the server was stopped").await;
            }
            () = &mut deadline => {
                let limit = profile.timeout.unwrap_or_default();
                if let Some(left) = time.left(limit) {
                    deadline.as_mut().reset(Instant::now() + left);
                    continue;
                }
                overdue = true;
                break Outcome::Failed(vec![Part::text(format!("timed out after {limit:?}"))]);
            }
            () = &mut grace => break Outcome::Canceled,
            () = &mut reveal => {
                let next = if show(inner, running).await { NEVER } else { Duration::from_secs(1) };
                reveal.as_mut().reset(Instant::now() + next);
            }
            // What it says without waiting is one commit.
            ended = &mut agent => break ended.unwrap_or_else(|_| Outcome::Broken("the agent panicked".to_owned())),
            Some(first) = said.recv() => {
                scribe.take(first);
                while let Ok(more) = said.try_recv() {
                    scribe.take(more);
                }
            }
            () = at(flush_at) => flush_at = Some(Instant::now()),
        }
        if scribe.is_empty() {
            continue;
        }
        // Text waits a little for company.
        let due = flush_at.is_some_and(|at| at <= Instant::now());
        if scribe.is_urgent() || due {
            flush_at = None;
            if !matches!(commit(inner, running, &mut scribe, None).await, Committed::Written(..)) {
                return Ended::Over;
            }
        } else if flush_at.is_none() {
            flush_at = Some(Instant::now() + std::mem::replace(&mut patience, COALESCE));
        }
    };

    said.close();
    while let Ok(more) = said.try_recv() {
        scribe.take(more);
    }
    let rests = matches!(outcome, Outcome::Parked { .. });
    let ended = match outcome {
        Outcome::Retry(why) => retry_or_give_up(inner, running, &mut scribe, profile, tries.counted, &why).await,
        Outcome::Crashed(why) => match on_interruption(profile, &why) {
            Some(outcome) => {
                let (attempt, trouble) = (attempt_of(running, &scribe), Trouble::of(&outcome));
                end_as(inner, running, &mut scribe, outcome, attempt, trouble).await
            }
            None => retry_or_give_up(inner, running, &mut scribe, profile, tries.counted, &why).await,
        },
        Outcome::Displaced(why) => release(inner, running, &mut scribe, profile, &why).await,
        outcome => {
            let trouble =
                Trouble::of(&outcome).map(|(what, why)| (if overdue { Trouble::TimedOut } else { what }, why));
            let attempt = attempt_of(running, &scribe);
            end_as(inner, running, &mut scribe, outcome, attempt, trouble).await
        }
    };
    *left = Left::Known(scribe.state().cloned());
    if matches!(ended, Ended::Over) && !rests {
        errand::wake_parent(inner, lease.tenant, &origin).await;
    }
    ended
}

/// Memory for the message and the kept state of a turn, and the message, unless it came with the lease. Waits until there is room, without the
/// message. `None` when the turn is canceled meanwhile.
async fn reserve(
    inner: &Inner,
    running: &Running,
    mut turn: store::Turn,
    left: &Left,
    may_be_held: bool,
) -> store::Result<Option<(store::Turn, Option<Reservation>)>> {
    let lease = &running.lease;
    let message = if turn.unread > 0 { turn.unread } else { size_of(&turn.message) as u64 };
    let bytes = message.saturating_add(kept_bytes(inner, lease, left).await?);
    if bytes <= FREE {
        return Ok(Some((turn, None)));
    }
    let budget = &inner.turn_memory.messages;
    let held = match budget.try_take(lease.tenant, bytes) {
        Some(held) => held,
        None => {
            tracing::debug!(task.id = %lease.task, bytes, "a turn waits for memory");
            turn = store::Turn { message: Message::default(), unread: message.max(1), ..turn };
            if may_be_held {
                // Nobody knows how long it takes.
                show(inner, running).await;
            }
            tokio::select! {
                biased;
                () = running.cancel.cancelled() => return Ok(None),
                held = budget.take(lease.tenant, bytes) => held,
            }
        }
    };
    if turn.unread > 0 {
        let message = inner.store.turn_message(lease.tenant, lease.task, turn.number).await?;
        turn = store::Turn { message, unread: 0, ..turn };
    }
    Ok(Some((turn, Some(held))))
}

/// The length of the state that was kept before a turn.
async fn kept_bytes(inner: &Inner, lease: &store::Lease, left: &Left) -> store::Result<u64> {
    let before = match left {
        Left::Known(state) => return Ok(state.as_ref().map_or(0, |state| state.len() as u64)),
        Left::Stored => lease.kept.checked_sub(1),
    };
    let Some(before) = before else { return Ok(0) };
    match inner.store.read(lease.tenant, lease.task, before, Most { events: 1, bytes: LOG_BYTES }).await {
        Err(store::Error::Heavy { bytes }) => Ok(bytes),
        read => read?.0.first().map_or(Ok(0), kept::length),
    }
}

/// Tells the scribe what was kept before, and how far this turn has come already. Says whether it has come anywhere.
pub(crate) async fn take_up(
    inner: &Inner,
    lease: &store::Lease,
    scribe: &mut Scribe,
    left: &mut Left,
) -> store::Result<bool> {
    scribe.set_keeps_whole(Arc::clone(&inner.has_older_instances));
    if let Left::Known(state) = left {
        scribe.set_state(state.take(), None);
        return Ok(false);
    }
    if lease.kept == 0 {
        return Ok(false);
    }
    let Kept { progress, state, base } = kept::read(&*inner.journal(), lease.tenant, lease.task, lease.kept).await?;
    scribe.set_state(state, base);
    if progress.turn != scribe.turn() {
        return Ok(false);
    }
    let mut made = Vec::new();
    if !progress.made.is_empty() {
        let is_new_attempt = progress.attempt != scribe.attempt();
        let view = View { history: Some(0), artifacts: !is_new_attempt, ..View::FULL };
        let mut task = inner.store.task(lease.tenant, lease.task, view).await?;
        if is_new_attempt {
            // What the attempt before replaced after it kept its state is in the log alone.
            task.artifacts = made_until(inner, lease, lease.kept).await?;
        }
        made = task.to_task()?.artifacts;
        made.retain(|artifact| progress.made.contains(&artifact.artifact_id));
    }
    scribe.resume(progress, made)?;
    Ok(true)
}

/// The artifacts of a task as of one of its events.
async fn made_until(inner: &Inner, lease: &store::Lease, last: u64) -> store::Result<Vec<Vec<Bytes>>> {
    let mut made = Made::default();
    let mut seq = 0;
    while seq < last {
        let most = Most { events: LOG, bytes: LOG_BYTES };
        let events = match inner.store.read(lease.tenant, lease.task, seq, most).await {
            Err(store::Error::Heavy { .. }) => inner.store.events(lease.tenant, lease.task, seq, 1).await?,
            read => read?.0,
        };
        let Some(newest) = events.last() else { break };
        seq = newest.seq;
        for event in events.iter().take_while(|event| event.seq <= last) {
            made.add(event)?;
        }
    }
    Ok(made.artifacts())
}

/// The message that the agent gets. When a caller was asked whether to run an interrupted turn again, and says no more
/// than yes, that is the message of the interrupted turn.
async fn offered(
    inner: &Inner,
    running: &Running,
    turn: store::Turn,
    left: &Left,
    held: &mut Option<Reservation>,
) -> store::Result<(Message, Option<u64>)> {
    if turn.number == 1 || !is_confirmation(&turn.message) {
        return Ok((turn.message, turn.request));
    }
    let lease = &running.lease;
    let mut most = FREE;
    let task = loop {
        let view = View { history: Some(REMEMBERED), artifacts: false, most };
        match inner.store.task(lease.tenant, lease.task, view).await {
            Err(store::Error::Heavy { bytes }) => {
                let state = kept_bytes(inner, lease, left).await?;
                // Given back before it is waited for more.
                drop(held.take());
                *held = Some(inner.turn_memory.messages.take(lease.tenant, bytes.saturating_add(state)).await);
                most = bytes;
            }
            read => break read?,
        }
    };
    let mut history: Vec<Message> = Vec::with_capacity(task.history.len());
    for message in &task.history {
        history.push(serde_json::from_slice(message)?);
    }
    let mut before = history.iter().rev().skip_while(|message| message.message_id != turn.message.message_id).skip(1);
    let mut asked_in = turn.number;
    while before.next().is_some_and(was_interrupted) {
        asked_in = asked_in.saturating_sub(1);
        let Some(asked_about) = before.next().filter(|message| message.role == Role::User) else { break };
        // It may have been interrupted more than once.
        if !is_confirmation(asked_about) {
            let (parts, metadata) = (asked_about.parts.clone(), asked_about.metadata.clone());
            let message = Message { parts, metadata, ..turn.message };
            return Ok((message, running.lease.request(asked_in)));
        }
    }
    Ok((turn.message, turn.request))
}

/// Whether a message says that the turn was interrupted and asks whether to run it again.
fn was_interrupted(message: &Message) -> bool {
    message.role == Role::Agent && reason_of(message).is_some_and(|reason| reason == INTERRUPTED)
}

/// Whether a message says yes and nothing else.
fn is_confirmation(message: &Message) -> bool {
    const YES: [&str; 16] = [
        "",
        "y",
        "yes",
        "yes please",
        "ok",
        "okay",
        "sure",
        "go",
        "go on",
        "go ahead",
        "again",
        "retry",
        "run again",
        "continue",
        "confirm",
        "please",
    ];
    let mut words = Vec::new();
    for part in &message.parts {
        let PartContent::Text(text) = &part.content else { return false };
        if text.len() > 64 {
            return false;
        }
        let plain = text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
        words.extend(plain.split_whitespace().map(str::to_owned));
    }
    YES.contains(&words.join(" ").as_str())
}

/// Gives a turn back that was ended on purpose: what the agent's policy says about crashes holds for it.
async fn release(inner: &Arc<Inner>, running: &Running, scribe: &mut Scribe, profile: &Profile, why: &str) -> Ended {
    match on_interruption(profile, why) {
        Some(outcome) if !fault::is_on("release-again") => {
            let (attempt, trouble) = (attempt_of(running, scribe), Trouble::of(&outcome));
            end_as(inner, running, scribe, outcome, attempt, trouble).await
        }
        _ => {
            commit(inner, running, scribe, Some(TurnEnd::Release { begun: true })).await;
            Ended::Over
        }
    }
}

/// Another attempt after a while, if there is one left.
async fn retry_or_give_up(
    inner: &Arc<Inner>,
    running: &Running,
    scribe: &mut Scribe,
    profile: &Profile,
    tries: u32,
    why: &str,
) -> Ended {
    if tries >= attempts::limit(&running.lease, profile.max_attempts) {
        let attempt = attempt_of(running, scribe);
        return give_up(inner, running, scribe, attempt, why, tries).await;
    }
    let attempt = attempt_of(running, scribe);
    let again = TurnEnd::Retry { after: attempts::backoff(running.lease.task, tries), error: why.to_owned() };
    let committed = commit(inner, running, scribe, Some(again)).await;
    committed.tell(attempt, Trouble::Again, why);
    committed.into_ended()
}

/// The attempt that a scribe writes for.
fn attempt_of<'a>(running: &'a Running, scribe: &Scribe) -> Attempt<'a> {
    Attempt { lease: &running.lease, turn: scribe.turn(), number: scribe.attempt() }
}

/// Ends a turn that was tried too often: its task is a dead letter.
async fn give_up(
    inner: &Arc<Inner>,
    running: &Running,
    scribe: &mut Scribe,
    attempt: Attempt<'_>,
    why: &str,
    tries: u32,
) -> Ended {
    let committed = match attempts::give_up(scribe, why, tries) {
        Ok(end) => commit(inner, running, scribe, Some(end)).await,
        Err(error) => fail(inner, running, scribe, &error).await,
    };
    committed.tell(attempt, Trouble::Dead, why);
    committed.into_ended()
}

/// Ends a turn, and says what is to be told of it.
async fn end_as(
    inner: &Arc<Inner>,
    running: &Running,
    scribe: &mut Scribe,
    outcome: Outcome,
    attempt: Attempt<'_>,
    trouble: Option<(Trouble, String)>,
) -> Ended {
    let committed = match scribe.end(outcome) {
        Ok(end) => commit(inner, running, scribe, Some(end)).await,
        Err(error) => fail(inner, running, scribe, &error).await,
    };
    if let Some((trouble, cause)) = trouble {
        committed.tell(attempt, trouble, &cause);
    }
    committed.into_ended()
}

/// Commits what the scribe holds. A journal that is unwell is tried again for as long as the lease holds: what an
/// agent has done must not be lost to a full disk. What the journal can never take fails the turn.
async fn commit(inner: &Inner, running: &Running, scribe: &mut Scribe, end: Option<TurnEnd>) -> Committed {
    match scribe.drafts() {
        Ok(drafts) => {
            let says_on = end.is_none();
            match write(inner, running, Append { drafts, end, tokens: scribe.spent(), ..Append::default() }).await {
                Ok(Committed::Refused) => Committed::Refused,
                Ok(committed) => {
                    // An end has events of its own behind what was said.
                    scribe.committed(match committed {
                        Committed::Written(.., last) if says_on => Some(last),
                        _ => None,
                    });
                    committed
                }
                Err(error) => fail(inner, running, scribe, &error).await,
            }
        }
        Err(error) => fail(inner, running, scribe, &error).await,
    }
}

/// Ends the turn as failed, since what its agent said cannot be kept.
async fn fail(inner: &Inner, running: &Running, scribe: &mut Scribe, error: &store::Error) -> Committed {
    let outcome = Outcome::Failed(vec![Part::text("what the agent said cannot be stored")]);
    let written = match scribe.end(outcome) {
        Ok(end) => write(inner, running, Append { drafts: Vec::new(), end: Some(end), ..Append::default() }).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(Committed::Refused) => Committed::Refused,
        Ok(_) => {
            attempt_of(running, scribe).tell(Trouble::Unkept, &error.to_string());
            Committed::Unkept
        }
        Err(error) => {
            tracing::error!(task.id = %running.lease.task, %error, "not even that its turn failed can be kept");
            Committed::Refused
        }
    }
}

/// `Err` is for what another attempt would meet again.
async fn write(inner: &Inner, running: &Running, append: Append) -> store::Result<Committed> {
    let lease = &running.lease;
    let mut wait = Duration::from_millis(50);
    loop {
        let asked = Instant::now();
        match inner.store.append(lease, append.clone()).await {
            Ok(appended) => {
                if appended.state.is_terminal() && appended.state != TaskState::Completed {
                    inner.workers.cut_short.notify_one();
                }
                return Ok(Committed::Written(appended.next.map(Box::new), asked, appended.state, appended.seq));
            }
            Err(error) if error.is_refusal() => {
                tracing::info!(task.id = %lease.task, error = %error, "a write was refused: the task is no longer this worker's");
                running.lost.cancel();
                return Ok(Committed::Refused);
            }
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => tracing::warn!(task.id = %lease.task, error = %error, "a write failed and is tried again"),
        }
        tokio::select! {
            biased;
            () = running.lost.cancelled() => return Ok(Committed::Refused),
            () = inner.workers.abandoned() => return Ok(Committed::Refused),
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(2)),
        }
    }
}

/// Shows a task that is held. `false` when it is worth another try.
async fn show(inner: &Inner, running: &Running) -> bool {
    match inner.store.reveal(running.lease.tenant, running.lease.task).await {
        Ok(()) => true,
        Err(error) if error.is_refusal() => true,
        Err(error) => {
            tracing::warn!(task.id = %running.lease.task, %error, "a task that is held cannot be shown yet");
            false
        }
    }
}

impl Committed {
    /// Says what became of an attempt, if that is what was written.
    fn tell(&self, attempt: Attempt<'_>, trouble: Trouble, cause: &str) {
        if let Self::Written(_, _, state, _) = self
            && let Some(trouble) = trouble.in_state(*state)
        {
            attempt.tell(trouble, cause);
        }
    }

    fn into_ended(self) -> Ended {
        match self {
            Self::Written(Some(next), asked, ..) => Ended::Next(next, asked),
            Self::Written(None, ..) | Self::Unkept | Self::Refused => Ended::Over,
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_a_yes_and_nothing_else() {
        let says = |text: &str| is_confirmation(&Message { parts: vec![Part::text(text)], ..Message::default() });
        for yes in ["yes", "Yes!", " OK. ", "run again", "Go ahead, ", "retry"] {
            assert!(says(yes), "{yes:?}");
        }
        for no in ["no", "yes, but with 3", "run it with other data", "y/n?", &"yes ".repeat(40)] {
            assert!(!says(no), "{no:?}");
        }
    }
}
