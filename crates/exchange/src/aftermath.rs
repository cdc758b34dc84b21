//! Telling others that a task was canceled: agents that have others work for them are asked to, once their task has ended as CANCELED.
//!
//! It is owed from the transaction that ends the task until somebody was told or there is no sense in it any more, over crashes too. More than
//! one instance may tell: a cancel that comes twice does no harm. Agents do not wait for each other: one whose others hang delays its own.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use store::{AgentId, OwedCancel, TaskId, clock};
use tokio::{task::JoinSet, time::Instant};

use crate::{Errands, Inner, attempts, scribe::Progress};

/// How many of an agent are told at once.
const AT_ONCE: usize = 16;
/// How long one may take.
const TIME: Duration = Duration::from_secs(20);
/// After so long whoever worked on it is not told any more.
const GIVE_UP: Duration = Duration::from_secs(86_400);
/// So many are looked at to know which agents owe anything.
const LOOK: usize = 256;
/// How often is looked, where nobody says that there is something.
const POLL: Duration = Duration::from_secs(2);

/// Those of an agent that could not be told: how often, and when it is tried again.
type Tried = HashMap<TaskId, (u32, Instant)>;

/// Starts the loop.
pub(crate) fn start(inner: &Arc<Inner>) {
    inner.workers.loops.spawn(tell(Arc::clone(inner)));
}

async fn tell(inner: Arc<Inner>) {
    // What is known of each agent's, while nobody is at it.
    let mut known: HashMap<AgentId, Tried> = HashMap::new();
    let mut rounds: JoinSet<(AgentId, Tried)> = JoinSet::new();
    let mut busy: Vec<AgentId> = Vec::new();
    loop {
        for id in owing(&inner, &busy).await {
            let tried = known.remove(&id).unwrap_or_default();
            busy.push(id.clone());
            rounds.spawn(round(Arc::clone(&inner), id, tried));
        }
        let wake = async {
            tokio::select! {
                () = inner.workers.canceled.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        };
        tokio::pin!(wake);
        loop {
            tokio::select! {
                // What is cut off here is owed still.
                () = inner.draining.cancelled() => return,
                Some(ended) = rounds.join_next() => match ended {
                    Ok((id, tried)) => {
                        busy.retain(|agent| *agent != id);
                        if !tried.is_empty() {
                            known.insert(id, tried);
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
    let mut ids = Vec::new();
    for entry in inner.agents.all() {
        if entry.profile.tells_cancel && !busy.contains(&entry.profile.id) {
            ids.push(entry.profile.id.clone());
        }
    }
    match inner.store.owed_cancels(&ids, LOOK).await {
        // There may be more of others behind so many.
        Ok(owed) if owed.len() == LOOK => ids,
        Ok(owed) => {
            ids.retain(|id| owed.iter().any(|owed| owed.agent == *id));
            ids
        }
        Err(error) => {
            tracing::warn!(%error, "canceled tasks that others work on cannot be looked for");
            Vec::new()
        }
    }
}

/// Tells what is owed of an agent and may be tried now.
async fn round(inner: Arc<Inner>, id: AgentId, mut tried: Tried) -> (AgentId, Tried) {
    let all = match inner.store.owed_cancels(std::slice::from_ref(&id), tried.len() + AT_ONCE).await {
        Ok(all) => all,
        Err(error) => {
            tracing::warn!(%error, "canceled tasks that others work on cannot be looked for");
            return (id, tried);
        }
    };
    let mut left: Tried = all.iter().filter_map(|owed| Some((owed.task, *tried.get(&owed.task)?))).collect();
    std::mem::swap(&mut tried, &mut left);
    let now = Instant::now();
    let ready: Vec<&OwedCancel> =
        all.iter().filter(|owed| tried.get(&owed.task).is_none_or(|(_, again)| *again <= now)).take(AT_ONCE).collect();
    let told = ready.iter().map(|owed| async { (*owed, tell_one(&inner, owed).await) });
    for (owed, told) in join_all(told).await {
        let age = clock::now().as_millis().saturating_sub(owed.since.as_millis());
        let is_old = u128::try_from(age).is_ok_and(|age| age > GIVE_UP.as_millis());
        let count = tried.get(&owed.task).map_or(0, |(count, _)| *count) + 1;
        match told {
            Err(error) if !is_old => {
                tracing::info!(task.id = %owed.task, agent.name = %id, error, "a cancel cannot be passed on yet");
                tried.insert(owed.task, (count, Instant::now() + attempts::backoff(owed.task, count)));
            }
            told => {
                if let Err(error) = told {
                    tracing::warn!(task.id = %owed.task, agent.name = %id, error, "a cancel is not passed on any more");
                }
                tried.remove(&owed.task);
                if let Err(error) = inner.store.settle_cancel(owed.tenant, owed.task).await {
                    tracing::warn!(task.id = %owed.task, %error, "that a cancel was passed on cannot be written");
                }
            }
        }
    }
    (id, tried)
}

async fn tell_one(inner: &Arc<Inner>, owed: &OwedCancel) -> Result<(), String> {
    // Agents of several tenants may have one id.
    let entry = inner.agents.get(owed.tenant, &owed.agent).ok_or("there is no such agent any more")?;
    let kept = match inner.store.events(owed.tenant, owed.task, owed.kept.saturating_sub(1), 1).await {
        // Nobody knows any more what to say.
        Err(store::Error::Pruned | store::Error::NotFound) => return Ok(()),
        kept => kept.map_err(|error| error.to_string())?,
    };
    let state = kept.first().and_then(|kept| Progress::open(&kept.body).ok()).and_then(|(_, state)| state);
    let Some(state) = state else { return Ok(()) };
    match tokio::time::timeout(TIME, entry.agent.canceled(owed.task, state, &Errands::new(inner, owed.tenant))).await {
        Ok(told) => told,
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}
