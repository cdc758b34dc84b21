//! Telling others that a task was canceled: agents that have others work for them are asked to, once their task has ended as CANCELED.
//!
//! It is owed from the transaction that ends the task until somebody was told or there is no sense in it any more, over crashes too. More than
//! one instance may tell: a cancel that comes twice does no harm.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use store::{OwedCancel, TaskId, clock};
use tokio::time::Instant;

use crate::{Entry, Inner, attempts, scribe::Progress};

/// How many are told at once.
const AT_ONCE: usize = 32;
/// How long one may take.
const TIME: Duration = Duration::from_secs(20);
/// After so long whoever worked on it is not told any more.
const GIVE_UP: Duration = Duration::from_secs(86_400);
/// How often is looked, where nobody says that there is something.
const POLL: Duration = Duration::from_secs(2);

/// Those that could not be told: how often, and when it is tried again.
type Tried = HashMap<TaskId, (u32, Instant)>;

/// Starts the loop.
pub(crate) fn start(inner: &Arc<Inner>) {
    inner.workers.loops.spawn(tell(Arc::clone(inner)));
}

async fn tell(inner: Arc<Inner>) {
    let mut tried = Tried::new();
    loop {
        if let Err(error) = round(&inner, &mut tried).await {
            tracing::warn!(%error, "canceled tasks that others work on cannot be looked for");
        }
        tokio::select! {
            () = inner.draining.cancelled() => return,
            () = inner.workers.canceled.notified() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

async fn round(inner: &Inner, tried: &mut Tried) -> store::Result<()> {
    let mut telling = inner.agents.all();
    telling.retain(|entry| entry.profile.tells_cancel);
    if telling.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = telling.iter().map(|entry| entry.profile.id.clone()).collect();
    let all = inner.store.owed_cancels(&ids, tried.len() + AT_ONCE).await?;
    tried.retain(|task, _| all.iter().any(|owed| owed.task == *task));
    let now = Instant::now();
    let ready = |owed: &&OwedCancel| tried.get(&owed.task).is_none_or(|(_, again)| *again <= now);
    let told = all.iter().filter(ready).take(AT_ONCE).filter_map(|owed| {
        let entry = telling.iter().find(|entry| entry.profile.id == owed.agent)?;
        Some(async move { (owed, tell_one(inner, entry, owed).await) })
    });
    for (owed, told) in join_all(told).await {
        let age = clock::now().as_millis().saturating_sub(owed.since.as_millis());
        let is_old = u128::try_from(age).is_ok_and(|age| age > GIVE_UP.as_millis());
        let count = tried.get(&owed.task).map_or(0, |(count, _)| *count) + 1;
        match told {
            Err(error) if !is_old => {
                tracing::info!(task.id = %owed.task, agent.name = %owed.agent, error, "a cancel cannot be passed on yet");
                tried.insert(owed.task, (count, Instant::now() + attempts::backoff(owed.task, count)));
            }
            told => {
                if let Err(error) = told {
                    tracing::warn!(task.id = %owed.task, agent.name = %owed.agent, error, "a cancel is not passed on any more");
                }
                inner.store.settle_cancel(owed.tenant, owed.task).await?;
                tried.remove(&owed.task);
            }
        }
    }
    Ok(())
}

async fn tell_one(inner: &Inner, entry: &Entry, owed: &OwedCancel) -> Result<(), String> {
    let kept = match inner.store.events(owed.tenant, owed.task, owed.kept.saturating_sub(1), 1).await {
        // Nobody knows any more what to say.
        Err(store::Error::Pruned | store::Error::NotFound) => return Ok(()),
        kept => kept.map_err(|error| error.to_string())?,
    };
    let state = kept.first().and_then(|kept| Progress::open(&kept.body).ok()).and_then(|(_, state)| state);
    let Some(state) = state else { return Ok(()) };
    match tokio::time::timeout(TIME, entry.agent.canceled(owed.task, state)).await {
        Ok(told) => told,
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}
