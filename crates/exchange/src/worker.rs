//! Workers: they lease due turns, run the agent, journal what it says and end the turn.
//!
//! A turn is one future on the runtime. It owns a slot of its agent and a lease of its task, and it
//! writes only under that lease: whoever took the task over in the meantime is not disturbed.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use a2a::Timestamp;
use futures_util::FutureExt;
use store::{Append, Lease, LeasedTurn, TaskId, TurnEnd, clock};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Entry, Inner, OnCrash, Outcome, Output, Turn, scribe::Scribe};

/// How many things an agent may have said that are not journaled yet.
const SAID: usize = 64;
/// Later pieces of text wait this long for company before they are committed.
const COALESCE: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// How often owners of leases are looked at for being dead.
const RECLAIM: Duration = Duration::from_secs(5);
/// How many turns are leased at once.
const CLAIM: usize = 32;

/// The turns that run here.
#[derive(Default)]
pub(crate) struct Workers {
    running: Mutex<HashMap<TaskId, Running>>,
    /// A slot became free that others may be waiting for.
    freed: Notify,
    /// Set when the grace of a shutdown is over: turns are given back.
    release: CancellationToken,
}

/// One turn that runs here.
#[derive(Clone)]
pub(crate) struct Running {
    lease: Lease,
    cancel: CancellationToken,
    lost: CancellationToken,
}

/// How one turn ended for its worker.
enum Ended {
    /// Another message was waiting.
    Next(store::Turn),
    Over,
}

impl Workers {
    /// Tells a turn that runs here to stop.
    pub(crate) fn cancel(&self, task: TaskId) {
        if let Some(running) = self.lock().get(&task) {
            running.cancel.cancel();
        }
    }

    /// Returns when running turns are given back.
    pub(crate) async fn released(&self) {
        self.release.cancelled().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the loops that look for due work, renew leases and take over from the dead.
pub(crate) fn start(inner: &Arc<Inner>) {
    tokio::spawn(look_for_work(Arc::clone(inner)));
    tokio::spawn(keep_leases(Arc::clone(inner)));
    tokio::spawn(bury_the_dead(Arc::clone(inner)));
}

/// Stops taking work, waits for what runs, and gives back what does not end in time.
pub(crate) async fn shut_down(inner: &Inner, grace: Duration) {
    inner.draining.cancel();
    inner.tracker.close();
    if tokio::time::timeout(grace, inner.tracker.wait()).await.is_err() {
        tracing::info!(turns = inner.tracker.len(), "giving back turns that did not end in time");
        inner.workers.release.cancel();
        if tokio::time::timeout(Duration::from_secs(5), inner.tracker.wait()).await.is_err() {
            tracing::warn!(turns = inner.tracker.len(), "turns did not stop; their leases will run out");
        }
    }
}

/// Runs a leased turn, and those that wait behind it, in the background.
pub(crate) fn spawn(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    lease: Lease,
    turn: store::Turn,
    permit: OwnedSemaphorePermit,
) {
    let running = register(inner, lease);
    inner.tracker.spawn(run(Arc::clone(inner), entry, running, turn, permit));
}

/// Makes a leased turn known: from here on it can be canceled and its lease is renewed.
pub(crate) fn register(inner: &Inner, lease: Lease) -> Running {
    let running = Running { lease, cancel: CancellationToken::new(), lost: CancellationToken::new() };
    inner.workers.lock().insert(running.lease.task, running.clone());
    running
}

/// Runs a registered turn, and those that wait behind it.
pub(crate) async fn run(
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    running: Running,
    turn: store::Turn,
    permit: OwnedSemaphorePermit,
) {
    drive(&inner, &entry, &running, turn).await;
    let mut all = inner.workers.lock();
    // The task may already run here again under a newer lease.
    if all.get(&running.lease.task).is_some_and(|now| now.lease.generation == running.lease.generation) {
        all.remove(&running.lease.task);
    }
    drop(all);
    let was_full = entry.slots.available_permits() == 0;
    drop(permit);
    if was_full {
        inner.workers.freed.notify_one();
    }
}

/// `at` plus a while.
pub(crate) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
}

async fn drive(inner: &Arc<Inner>, entry: &Entry, running: &Running, mut turn: store::Turn) {
    let mut attempt = running.lease.attempt;
    while let Ended::Next(next) = run_turn(inner, entry, running, turn, attempt).await {
        turn = next;
        attempt = 1;
    }
}

/// Runs one attempt at one turn and commits all that comes of it.
async fn run_turn(inner: &Arc<Inner>, entry: &Entry, running: &Running, turn: store::Turn, attempt: u32) -> Ended {
    let lease = &running.lease;
    let (sender, mut said) = mpsc::channel(SAID);
    let mut scribe = Scribe::new(lease.task, Arc::clone(&lease.context), turn.number);
    let agent_turn = Turn {
        agent: lease.agent.clone(),
        task: lease.task,
        context: Arc::clone(&lease.context),
        message: turn.message,
        attempt,
        number: turn.number,
        cancel: running.cancel.clone(),
        tenant: lease.tenant,
        store: Arc::clone(&inner.store),
        context_limit: if lease.remembers { inner.options.context_limit } else { 0 },
    };
    let mut agent = std::pin::pin!(AssertUnwindSafe(entry.agent.run(agent_turn, Output { sender })).catch_unwind());
    let timeout = entry.profile.timeout;
    let mut deadline = std::pin::pin!(tokio::time::sleep(timeout.unwrap_or(Duration::from_secs(86_400 * 365))));
    let mut flush_at: Option<Instant> = None;

    let outcome = loop {
        tokio::select! {
            biased;
            () = running.lost.cancelled() => {
                tracing::info!(task.id = %lease.task, "another instance has taken the task over");
                return Ended::Over;
            }
            // The agent first: what it says without waiting is one commit.
            ended = &mut agent => break ended.unwrap_or_else(|_| Outcome::Broken("the agent panicked".to_owned())),
            Some(first) = said.recv() => {
                scribe.take(first);
                while let Ok(more) = said.try_recv() {
                    scribe.take(more);
                }
            }
            () = grace(running, inner.options.cancel_grace) => break Outcome::Canceled,
            () = inner.workers.released() => {
                commit(inner, running, &mut scribe, Some(TurnEnd::Release)).await;
                return Ended::Over;
            }
            () = &mut deadline, if timeout.is_some() => {
                let limit = timeout.unwrap_or_default();
                break Outcome::Failed(vec![a2a::Part::text(format!("timed out after {limit:?}"))]);
            }
            () = at(flush_at) => flush_at = Some(Instant::now()),
        }
        if scribe.is_empty() {
            continue;
        }
        // The first words go out at once, later text waits a little for company.
        let due = flush_at.is_some_and(|at| at <= Instant::now());
        if scribe.is_urgent() || due {
            flush_at = None;
            if !commit(inner, running, &mut scribe, None).await.is_written() {
                return Ended::Over;
            }
        } else if flush_at.is_none() {
            flush_at = Some(Instant::now() + COALESCE);
        }
    };

    said.close();
    while let Ok(more) = said.try_recv() {
        scribe.take(more);
    }
    let end = match outcome {
        Outcome::Retry(why) if attempt < entry.profile.max_attempts => {
            tracing::info!(task.id = %lease.task, agent.name = %lease.agent, attempt, error = %why, "a turn will be tried again");
            Ok(TurnEnd::Retry { due: after(clock::now(), backoff(attempt)) })
        }
        Outcome::Retry(why) => scribe.gave_up(&why, attempt),
        outcome => scribe.end(outcome),
    };
    match end {
        Ok(end) => commit(inner, running, &mut scribe, Some(end)).await.into_ended(),
        Err(error) => {
            tracing::error!(task.id = %lease.task, error = %error, "the end of a turn cannot be encoded");
            Ended::Over
        }
    }
}

/// What became of a commit.
enum Committed {
    Written(Option<store::Turn>),
    Refused,
}

impl Committed {
    fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }

    fn into_ended(self) -> Ended {
        match self {
            Self::Written(Some(next)) => Ended::Next(next),
            Self::Written(None) | Self::Refused => Ended::Over,
        }
    }
}

/// Commits what the scribe holds. A journal that is unwell is tried again for as long as the lease holds:
/// what an agent has done must not be lost to a full disk.
async fn commit(inner: &Inner, running: &Running, scribe: &mut Scribe, end: Option<TurnEnd>) -> Committed {
    let lease = &running.lease;
    let drafts = match scribe.drafts() {
        Ok(drafts) => drafts,
        Err(error) => {
            tracing::error!(task.id = %lease.task, error = %error, "an event cannot be encoded");
            return Committed::Refused;
        }
    };
    let append = Append { drafts, end };
    let mut wait = Duration::from_millis(50);
    loop {
        match inner.store.append(lease, append.clone()).await {
            Ok(appended) => return Committed::Written(appended.next),
            Err(error) if error.is_refusal() => {
                tracing::info!(task.id = %lease.task, error = %error, "a write was refused: the task is no longer this worker's");
                return Committed::Refused;
            }
            Err(error) => tracing::warn!(task.id = %lease.task, error = %error, "a write failed and is tried again"),
        }
        tokio::select! {
            () = running.lost.cancelled() => return Committed::Refused,
            () = inner.workers.released() => return Committed::Refused,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(2)),
        }
    }
}

/// Leases what is due, for agents that have a free slot.
async fn look_for_work(inner: Arc<Inner>) {
    let mut due = inner.store.hub().due();
    loop {
        let wait = match lease_due(&inner).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(error = %error, "due work cannot be leased");
                inner.options.poll
            }
        };
        match inner.store.marked().await {
            Ok(marked) => marked.into_iter().for_each(|task| inner.workers.cancel(task)),
            Err(error) => tracing::warn!(error = %error, "cancel marks cannot be read"),
        }
        tokio::select! {
            () = inner.draining.cancelled() => return,
            _ = due.changed() => {}
            () = inner.workers.freed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Leases all that is due now; says how long to wait before the next look.
async fn lease_due(inner: &Arc<Inner>) -> store::Result<Duration> {
    let poll = inner.options.poll;
    loop {
        if inner.draining.is_cancelled() {
            return Ok(poll);
        }
        // A look first: slots that are held while nothing is due would be missing for messages that come in.
        let all: Vec<_> = inner.agents.all().iter().map(|entry| entry.profile.id.clone()).collect();
        let Some(due) = inner.store.next_due(&all).await? else { return Ok(poll) };
        let ahead = due.as_millis().saturating_sub(clock::now().as_millis());
        if let Some(ahead) = u64::try_from(ahead).ok().filter(|ahead| *ahead > 0) {
            return Ok(poll.min(Duration::from_millis(ahead)));
        }
        // Slots are taken before the work is: what is leased can run.
        let mut slots: HashMap<store::AgentId, (Arc<Entry>, Vec<OwnedSemaphorePermit>)> = HashMap::new();
        for entry in inner.agents.all() {
            let mut permits = Vec::new();
            while permits.len() < CLAIM
                && let Ok(permit) = Arc::clone(&entry.slots).try_acquire_owned()
            {
                permits.push(permit);
            }
            if !permits.is_empty() {
                slots.insert(entry.profile.id.clone(), (entry, permits));
            }
        }
        let Some(limit) = slots.values().map(|(_, permits)| permits.len()).min() else { return Ok(poll) };
        let agents: Vec<_> = slots.keys().cloned().collect();
        let until = after(clock::now(), inner.options.lease);
        let leased = inner.store.lease(until, &agents, limit).await?;
        let count = leased.len();
        for leased_turn in leased {
            let Some((entry, permits)) = slots.get_mut(&leased_turn.lease.agent) else { continue };
            let Some(permit) = permits.pop() else { continue };
            begin(inner, Arc::clone(entry), leased_turn, permit).await;
        }
        if count < limit {
            return Ok(poll);
        }
    }
}

/// Starts a leased turn, or ends it where the agent's policy or its attempts say so.
async fn begin(inner: &Arc<Inner>, entry: Arc<Entry>, leased: LeasedTurn, permit: OwnedSemaphorePermit) {
    let LeasedTurn { lease, turn, interrupted } = leased;
    let profile = &entry.profile;
    let mut scribe = Scribe::new(lease.task, Arc::clone(&lease.context), turn.number);
    let end = if lease.attempt > profile.max_attempts {
        scribe.gave_up("interrupted", lease.attempt - 1)
    } else if interrupted && profile.on_crash == OnCrash::Fail {
        scribe.end(Outcome::Failed(vec![a2a::Part::text("interrupted by a crash")]))
    } else if interrupted && profile.on_crash == OnCrash::Ask {
        scribe.end(Outcome::InputRequired(vec![a2a::Part::text("interrupted, reply to run again")]))
    } else {
        return spawn(inner, entry, lease, turn, permit);
    };
    let running = Running { lease, cancel: CancellationToken::new(), lost: CancellationToken::new() };
    match end {
        Ok(end) => {
            if let Committed::Written(Some(next)) = commit(inner, &running, &mut scribe, Some(end)).await {
                spawn(inner, entry, running.lease, next, permit);
            }
        }
        Err(error) => tracing::error!(task.id = %running.lease.task, error = %error, "an end cannot be encoded"),
    }
}

/// Renews the leases of the turns that run, and stops those whose lease is lost.
async fn keep_leases(inner: Arc<Inner>) {
    let period = inner.options.lease / 3;
    loop {
        tokio::select! {
            () = inner.workers.released() => return,
            () = tokio::time::sleep(period) => {}
        }
        let leases: Vec<Lease> = inner.workers.lock().values().map(|running| running.lease.clone()).collect();
        if leases.is_empty() {
            continue;
        }
        match inner.store.renew(&leases, after(clock::now(), inner.options.lease)).await {
            Ok(lost) => {
                let running = inner.workers.lock();
                for lease in lost {
                    if let Some(turn) =
                        running.get(&lease.task).filter(|turn| turn.lease.generation == lease.generation)
                    {
                        turn.lost.cancel();
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error, "leases cannot be renewed"),
        }
    }
}

/// Makes the work of dead instances due at once, instead of when their leases run out.
async fn bury_the_dead(inner: Arc<Inner>) {
    loop {
        match inner.store.reclaim_dead().await {
            Ok(0) => {}
            Ok(turns) => tracing::info!(turns, "took over turns of an instance that is gone"),
            Err(error) => tracing::warn!(error = %error, "dead instances cannot be looked for"),
        }
        tokio::select! {
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(RECLAIM) => {}
        }
    }
}

/// Returns a grace after the turn was told to stop.
async fn grace(running: &Running, grace: Duration) {
    running.cancel.cancelled().await;
    tokio::time::sleep(grace).await;
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn backoff(attempt: u32) -> Duration {
    let seconds = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(MAX_BACKOFF)
}
