//! How long a turn has worked. What it waits for others to make room is not counted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// While a turn waits it is looked at again after so long.
const LOOK: Duration = Duration::from_millis(50);

/// The time that a turn has worked since it was begun. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct WorkingTime(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    begun: Instant,
    /// How long it has waited, up to now or up to when it began to wait this time.
    waited: Duration,
    /// How many wait, and since when any does.
    waiting: usize,
    since: Instant,
}

/// A turn waits, until this is dropped.
#[derive(Debug)]
pub struct Waits(WorkingTime);

impl WorkingTime {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(State { begun: now, waited: Duration::ZERO, waiting: 0, since: now })))
    }

    pub(crate) fn wait(&self) -> Waits {
        let mut state = self.lock();
        if state.waiting == 0 {
            state.since = Instant::now();
        }
        state.waiting += 1;
        drop(state);
        Waits(self.clone())
    }

    /// How long it is until the turn has worked for `limit`, at least, or nothing when it has.
    pub(crate) fn left(&self, limit: Duration) -> Option<Duration> {
        let state = self.lock();
        let now = Instant::now();
        let until = if state.waiting > 0 { state.since } else { now };
        let worked = until.saturating_duration_since(state.begun).saturating_sub(state.waited);
        let left = limit.checked_sub(worked).filter(|left| !left.is_zero());
        if state.waiting > 0 { Some(left.unwrap_or_default().max(LOOK)) } else { left }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            let waited = state.since.elapsed();
            state.waited += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_does_not_count() {
        let time = WorkingTime::start();
        tokio::time::sleep(SECOND).await;
        assert_eq!(time.left(SECOND * 10), Some(SECOND * 9));
        let (one, other) = (time.wait(), time.wait());
        tokio::time::sleep(SECOND * 100).await;
        assert_eq!(time.left(SECOND * 10), Some(SECOND * 9));
        assert_eq!(time.left(SECOND / 2), Some(LOOK), "nothing ends while it waits");
        drop(one);
        tokio::time::sleep(SECOND).await;
        drop(other);
        assert_eq!(time.left(SECOND * 10), Some(SECOND * 9));
        tokio::time::sleep(SECOND * 9).await;
        assert_eq!(time.left(SECOND * 10), None);
    }
}
