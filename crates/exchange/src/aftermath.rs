//! Work that was handed on ends with its task: once a task has ended as CANCELED, FAILED or REJECTED, whatever the reason, its agent is asked
//! to cancel what others still do for it.
//!
//! That is owed from the transaction that ends the task until it is done or there is no sense in it any more, over crashes too. More than
//! one instance may do it: a cancel that comes twice does no harm. Agents do not wait for each other: one whose others hang delays its own.
//! What is handed on after the end is refused where it would begin ([`store::Accept::parent`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use store::{AgentId, EventKind, Lease, OwedCancel, Removal, Start, Store, TaskId, TenantId};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Entry, Errands, Inner, OnCrash, attempts,
    kept::{self, Kept},
};

/// How many of an agent are told at once.
const AT_ONCE: usize = 16;
/// How long one may take.
const TIME: Duration = Duration::from_secs(20);
/// After so long of trying, by the steady clock of one instance, whoever works on it is not told any more.
const GIVE_UP: Duration = Duration::from_secs(86_400);
/// For so long a cancel that cannot be passed on is tried at short intervals: a message that was not answered may still arrive for a minute,
/// and its work is to end soon after that.
const EARLY: Duration = Duration::from_secs(120);
/// Maximum interval in that time.
const EARLY_INTERVAL: Duration = Duration::from_secs(5);
/// So many are looked at to know which agents owe anything.
const LOOK: usize = 256;
/// How often is looked, where nobody says that there is something.
const POLL: Duration = Duration::from_secs(2);

/// How many events are read at once.
const EVENTS: usize = 256;

/// The tasks of an agent whose others could not be told.
type Tried = HashMap<TaskId, Attempts>;

/// How often it was tried.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    count: u32,
    first: Instant,
    next: Instant,
}

/// Starts the loop.
pub(crate) fn start(inner: &Arc<Inner>) {
    inner.workers.loops.spawn(tell(Arc::clone(inner)));
}

async fn tell(inner: Arc<Inner>) {
    // What is known of each agent's, while nobody is at it.
    let mut known: HashMap<AgentId, Tried> = HashMap::new();
    let mut rounds: JoinSet<(AgentId, Tried, bool)> = JoinSet::new();
    let mut busy: Vec<AgentId> = Vec::new();
    loop {
        for id in owing(&inner, &busy).await {
            let tried = known.remove(&id).unwrap_or_default();
            busy.push(id.clone());
            rounds.spawn(round(Arc::clone(&inner), id, tried));
        }
        let wake = async {
            tokio::select! {
                biased;
                () = inner.workers.cut_short.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        };
        tokio::pin!(wake);
        loop {
            tokio::select! {
                biased;
                // What is cut off here is owed still.
                () = inner.draining.cancelled() => return,
                Some(ended) = rounds.join_next() => match ended {
                    Ok((id, tried, has_told)) => {
                        busy.retain(|agent| *agent != id);
                        if !tried.is_empty() {
                            known.insert(id, tried);
                        }
                        // It may owe more than one round tells, and looks left it out meanwhile.
                        if has_told {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "a round of cancels broke");
                        busy.clear();
                    }
                },
                () = &mut wake => break,
            }
        }
    }
}

/// The agents that owe something, as far as one look shows, but for these.
async fn owing(inner: &Inner, busy: &[AgentId]) -> Vec<AgentId> {
    let mut ids: Vec<AgentId> = inner.agents.handing_on().into_iter().filter(|id| !busy.contains(id)).collect();
    match inner.store.owed_cancels(&ids, LOOK).await {
        // There may be more of others behind so many.
        Ok(owed) if owed.len() == LOOK => ids,
        Ok(owed) => {
            ids.retain(|id| owed.iter().any(|owed| owed.agent == *id));
            ids
        }
        Err(error) => {
            tracing::warn!(%error, "ended tasks that others work on cannot be looked for");
            Vec::new()
        }
    }
}

/// Tells what is owed of an agent and may be tried now. Says whether anything was settled.
async fn round(inner: Arc<Inner>, id: AgentId, mut tried: Tried) -> (AgentId, Tried, bool) {
    let all = match inner.store.owed_cancels(std::slice::from_ref(&id), tried.len() + AT_ONCE).await {
        Ok(all) => all,
        Err(error) => {
            tracing::warn!(%error, "ended tasks that others work on cannot be looked for");
            return (id, tried, false);
        }
    };
    let mut left: Tried = all.iter().filter_map(|owed| Some((owed.task, *tried.get(&owed.task)?))).collect();
    std::mem::swap(&mut tried, &mut left);
    let now = Instant::now();
    let ready: Vec<&OwedCancel> =
        all.iter().filter(|owed| tried.get(&owed.task).is_none_or(|tried| tried.next <= now)).take(AT_ONCE).collect();
    // Each is settled when it is told: others may take long, and the instance may end meanwhile.
    let mut telling: FuturesUnordered<_> =
        ready.iter().map(|owed| async { (*owed, tell_one(&inner, owed).await) }).collect();
    let mut has_told = false;
    while let Some((owed, told)) = telling.next().await {
        let before = tried.get(&owed.task);
        let (count, first) = before.map_or((1, now), |before| (before.count + 1, before.first));
        match told {
            Err(error) if first.elapsed() <= GIVE_UP => {
                tracing::info!(task.id = %owed.task, agent.name = %id, error, "a cancel cannot be passed on yet");
                let next = Instant::now() + interval(owed.task, count, first.elapsed());
                tried.insert(owed.task, Attempts { count, first, next });
            }
            told => {
                if let Err(error) = told {
                    tracing::warn!(task.id = %owed.task, agent.name = %id, error, "a cancel is not passed on any more");
                }
                tried.remove(&owed.task);
                match inner.store.settle_cancel(owed.tenant, owed.task, owed.generation).await {
                    Ok(()) => has_told = true,
                    Err(error) => {
                        tracing::warn!(task.id = %owed.task, %error, "that a cancel was passed on cannot be written");
                    }
                }
            }
        }
    }
    (id, tried, has_told)
}

/// How long to wait after so many attempts, the first of which was made this long ago.
fn interval(task: TaskId, count: u32, tried_for: Duration) -> Duration {
    let backoff = attempts::backoff(task, count);
    if tried_for < EARLY { backoff.min(EARLY_INTERVAL) } else { backoff }
}

async fn tell_one(inner: &Arc<Inner>, owed: &OwedCancel) -> Result<(), String> {
    // Agents of several tenants may have one id.
    let entry = inner.agents.get_or_removed(owed.tenant, &owed.agent).ok_or("there is no such agent any more")?;
    let states = kept_states(inner, &entry, owed).await.map_err(|error| error.to_string())?;
    let errands = Errands::new(inner, owed.tenant);
    let canceled = join_all(states.into_iter().map(|state| entry.agent.canceled(owed.task, state, &errands)));
    match tokio::time::timeout(TIME, canceled).await {
        Ok(told) => told.into_iter().collect(),
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}

/// A turn has lost its lease. If its task has ended meanwhile, the turn did not know, and may have handed work on after what it had handed on
/// before was canceled: the cancel is owed once more.
pub(crate) async fn owe_again(inner: &Inner, lease: &Lease) {
    let mut wait = Duration::from_millis(50);
    while let Err(error) = inner.store.owe_cancel(lease.tenant, lease.task).await {
        if error.is_refusal() {
            return;
        }
        if error.is_permanent() {
            tracing::error!(task.id = %lease.task, %error, "a cancel that may be owed once more cannot be written");
            return;
        }
        tracing::warn!(task.id = %lease.task, %error, "a cancel that may be owed once more cannot be written yet");
        tokio::select! {
            biased;
            () = inner.workers.abandoned() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(POLL),
        }
    }
    inner.workers.cut_short.notify_one();
}

/// Waits until no task that is to be removed owes a cancel, but not beyond `until`: nothing is known of a cancel once its task is gone.
pub(crate) async fn until_told(
    store: &dyn Store,
    tenant: TenantId,
    removal: &Removal,
    until: Instant,
) -> store::Result<()> {
    let mut wait = Duration::from_millis(20);
    while Instant::now() < until && store.owes_cancels(tenant, removal.clone()).await? {
        tokio::time::sleep_until(until.min(Instant::now() + wait)).await;
        wait = (wait * 2).min(Duration::from_millis(250));
        if Instant::now() >= until {
            tracing::warn!(
                tenant.id = tenant.0,
                "tasks are deleted before others could be told to cancel what they do for them"
            );
        }
    }
    Ok(())
}

/// The state that each attempt at the task's turns kept last. An attempt that resumes goes on from what the one before kept; any other
/// begins anew, and what the one before handed on is known by that one's state alone. What was pruned is not known any more.
async fn kept_states(inner: &Inner, entry: &Entry, owed: &OwedCancel) -> store::Result<Vec<Bytes>> {
    let journal = inner.journal();
    let newest = async || known_state(kept::read(&*journal, owed.tenant, owed.task, owed.kept).await);
    if entry.profile.on_crash == OnCrash::Resume && owed.kept > 0 {
        return Ok(newest().await?.into_iter().collect());
    }
    let mut kept = Vec::new();
    let mut last = None;
    let mut seq = 0;
    loop {
        let events = match journal.events(owed.tenant, owed.task, seq, EVENTS).await {
            Err(store::Error::Pruned | store::Error::NotFound) => Vec::new(),
            read => read?,
        };
        let Some(end) = events.last().map(|event| event.seq) else { break };
        seq = end;
        for event in events {
            match event.kind {
                EventKind::Kept => last = Some(event),
                EventKind::Started(Start::Again) => kept.extend(last.take()),
                _ => {}
            }
        }
    }
    if seq == 0 && owed.kept > 0 {
        return Ok(newest().await?.into_iter().collect());
    }
    kept.extend(last);
    let mut states = Vec::new();
    for event in kept {
        states.extend(known_state(kept::read_event(&*journal, owed.tenant, owed.task, &event).await)?);
    }
    Ok(states)
}

/// The state that was read. One that was pruned, or that cannot be read at all, is not known.
fn known_state(read: store::Result<Kept>) -> store::Result<Option<Bytes>> {
    match read {
        Err(store::Error::Pruned | store::Error::NotFound | store::Error::Damaged(_)) => Ok(None),
        read => Ok(read?.state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_is_tried_often_while_its_message_may_still_arrive() {
        let task = TaskId::mint();
        let (mut at, mut count, mut longest) = (Duration::ZERO, 0, Duration::ZERO);
        while at < Duration::from_secs(600) {
            count += 1;
            let interval = interval(task, count, at);
            if at < Duration::from_secs(120) {
                assert!(interval <= Duration::from_secs(5), "attempt {count} after {at:?}: {interval:?}");
            }
            longest = longest.max(interval);
            at += interval;
        }
        assert!(longest >= Duration::from_secs(30), "later on it is tried less often: {longest:?}");
    }
}
