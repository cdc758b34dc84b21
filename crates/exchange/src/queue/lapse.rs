//! Attempts that did not work, and those whose lease ran out: another one follows, or the entry is a dead letter.

use std::{sync::Arc, time::Duration};

use a2a::TaskState;
use store::{AgentId, Append, FailedAttempt, Lease, Only, TurnEnd};

use tokio::time::Instant;

use crate::{
    Inner, Outcome, attempts,
    scribe::Scribe,
    trouble::{Attempt, Trouble},
    turn,
};

/// How often an entry is tried when neither it nor its agent says.
const ATTEMPTS: u32 = 3;
/// How many leases that ran out are dealt with at once.
const LAPSED: usize = 100;

/// What becomes of an entry whose attempt did not work.
pub(super) fn failed(
    inner: &Inner,
    lease: &Lease,
    error: &str,
    delay: Option<Duration>,
    fatal: bool,
) -> store::Result<TurnEnd> {
    let error = FailedAttempt::cut(error);
    let of_agent = inner.agents.get(lease.tenant, &lease.agent).map_or(ATTEMPTS, |entry| entry.profile.max_attempts);
    if !fatal && lease.tries < attempts::limit(lease, of_agent) {
        let after = delay.unwrap_or_else(|| attempts::backoff(lease.task, lease.tries));
        return Ok(TurnEnd::Retry { after, error: error.to_owned() });
    }
    let mut scribe = Scribe::of(lease, lease.turn);
    if fatal { attempts::fail_for_good(&mut scribe, error) } else { attempts::give_up(&mut scribe, error, lease.tries) }
}

/// Says what became of an attempt, once that is written.
pub(super) fn tell(lease: &Lease, trouble: Option<Trouble>, state: TaskState, cause: &str) {
    if let Some(trouble) = trouble.and_then(|trouble| trouble.in_state(state)) {
        Attempt::of(lease).tell(trouble, cause);
    }
}

/// Ends the attempts of those who have let their leases run out. Says how many.
pub(super) async fn requeue_lapsed(inner: &Inner, agent: Option<AgentId>) -> store::Result<usize> {
    inner.desk.note_look(inner.options.poll);
    let Some(since) = inner.desk.lapses_since() else { return Ok(0) };
    let asked = Instant::now();
    let (now, lapsed) = inner.store.lapsed(agent, since, LAPSED).await?;
    // The pause may have come while the store was asked.
    inner.desk.note_look(inner.options.poll);
    if inner.desk.lapses_since().is_none() {
        return Ok(0);
    }
    if let Some(step) = inner.desk.clock_step(now, asked) {
        // Workers hold these leases and do not know that they have run out: no renewal of theirs was late.
        let prolonged = inner.store.prolong_lapsed(step).await?;
        inner.desk.settle_clock_step();
        tracing::warn!(
            ?step,
            prolonged,
            "the clock of the journal was set forward: leases that ended with it are prolonged"
        );
        return Ok(0);
    }
    let running = inner.workers.tasks();
    let mut ended = 0;
    for lease in lapsed {
        // What runs here is renewed, however late.
        if lease.holder == inner.holder && running.contains(&lease.task) {
            continue;
        }
        let error = format!("the lease of {} ran out", lease.holder.name());
        let policy = inner.agents.get(lease.tenant, &lease.agent).filter(|entry| !entry.is_run());
        let policy = policy.and_then(|entry| turn::on_interruption(&entry.profile, &error));
        let end = match policy {
            Some(Outcome::Failed(_)) => failed(inner, &lease, &error, None, true)?,
            Some(outcome) => Scribe::of(&lease, lease.turn).end(outcome)?,
            None => failed(inner, &lease, &error, Some(Duration::ZERO), false)?,
        };
        let trouble = Trouble::of_end(&end).unwrap_or(Trouble::Asked);
        match inner.store.append(&lease, Append { end: Some(end), only: Only::Lapsed, ..Append::default() }).await {
            Ok(appended) => {
                tell(&lease, Some(trouble), appended.state, &error);
                ended += 1;
            }
            Err(error) if error.is_refusal() => {}
            Err(error) => {
                tracing::warn!(task.id = %lease.task, %error, "an entry whose lease ran out cannot be put back yet");
                inner.desk.set_calm(None);
            }
        }
    }
    Ok(ended)
}

/// Looks after leases that ran out while nobody asks for work.
pub(super) async fn watch_leases(inner: Arc<Inner>) {
    loop {
        if inner.desk.lapses_since().is_none() {
            match inner.store.next_due(&[]).await {
                Ok(due) => inner.desk.set_calm(Some(due.now)),
                Err(error) => tracing::warn!(%error, "the journal cannot be asked for its time"),
            }
        }
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(inner.options.poll) => {}
        }
        loop {
            match requeue_lapsed(&inner, None).await {
                // There may be more of them.
                Ok(LAPSED) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "leases that ran out cannot be looked for");
                    inner.desk.set_calm(None);
                    break;
                }
            }
        }
    }
}
