//! What the writers of both stores share: who waits for an operation's outcome, and what is counted.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use tokio::sync::oneshot;

use crate::{Error, Result, Stats, Tokens};

/// Someone who waits for an operation. The operation can run several times; the last run counts.
pub(crate) struct Waiter<T> {
    outcome: Option<Result<T>>,
    reply: Option<oneshot::Sender<Result<T>>>,
}

/// What a writer counts.
pub(crate) struct Counters {
    opened: Instant,
    commits: AtomicU64,
    events: AtomicU64,
    quota_locks: AtomicU64,
    owed: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    /// When the last commit succeeded, in milliseconds since then. Negative before the first.
    last_commit: AtomicI64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            commits: AtomicU64::new(0),
            events: AtomicU64::new(0),
            quota_locks: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            input_tokens: AtomicU64::new(0),
            output_tokens: AtomicU64::new(0),
            last_commit: AtomicI64::new(i64::MIN),
        }
    }
}

impl<T> Waiter<T> {
    pub(crate) fn new(reply: oneshot::Sender<Result<T>>) -> Self {
        Self { outcome: None, reply: Some(reply) }
    }

    /// Keeps the outcome of a run. `Err` when the transaction must be rolled back: it failed, or was refused after it
    /// had written something.
    pub(crate) fn keep(&mut self, outcome: Result<T>, wrote: bool) -> Result<()> {
        match outcome {
            Err(error) if !error.is_refusal() || wrote => Err(error),
            outcome => {
                self.outcome = Some(outcome);
                Ok(())
            }
        }
    }

    /// Tells the caller. Only the first call has an effect.
    pub(crate) fn finish(&mut self, failure: Option<Error>) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        let outcome = match failure {
            Some(error) => Err(error),
            None => self.outcome.take().unwrap_or_else(|| Err(Error::Unavailable("the operation did not run".into()))),
        };
        // A caller that is gone has no use for the outcome; what was committed stays.
        let _ = reply.send(outcome);
    }
}

impl Counters {
    /// A commit succeeded just now.
    pub(crate) fn committed(&self, events: usize) {
        self.commits.fetch_add(1, Relaxed);
        self.events.fetch_add(events as u64, Relaxed);
        self.last_commit.store(self.millis(), Relaxed);
    }

    /// A batch took so many tenants' locks.
    pub(crate) fn locked(&self, tenants: usize) {
        self.quota_locks.fetch_add(tenants as u64, Relaxed);
    }

    /// So many tasks made their push configurations due.
    pub(crate) fn owed(&self, tasks: usize) {
        self.owed.fetch_add(tasks as u64, Relaxed);
    }

    /// A turn has used this of models.
    pub(crate) fn spent(&self, tokens: Tokens) {
        for (counter, more) in [(&self.input_tokens, tokens.input), (&self.output_tokens, tokens.output)] {
            // It cannot fail: there is always a next value.
            let _ = counter.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(more)));
        }
    }

    /// Whether a commit of the last `millis` proves that the journal can be written.
    pub(crate) fn has_committed_within(&self, millis: i64) -> bool {
        self.millis().saturating_sub(self.last_commit.load(Relaxed)) < millis
    }

    fn millis(&self) -> i64 {
        i64::try_from(self.opened.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            commits: self.commits.load(Relaxed),
            events: self.events.load(Relaxed),
            quota_locks: self.quota_locks.load(Relaxed),
            owed: self.owed.load(Relaxed),
            tokens: Tokens { input: self.input_tokens.load(Relaxed), output: self.output_tokens.load(Relaxed) },
        }
    }
}
