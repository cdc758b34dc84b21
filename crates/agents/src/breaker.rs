//! A circuit breaker: after some failures in a row nobody calls for a while, then one tries.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many failures in a row open it.
const FAILURES: u32 = 5;

/// Whether somebody may be called.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// So long it stays open before one may try.
    open: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone)]
struct State {
    failures: u32,
    opened: Option<Instant>,
    /// Somebody tries.
    trying: bool,
}

impl Breaker {
    /// A closed one, which stays open for so long once it opens.
    pub(crate) fn new(open: Duration) -> Self {
        Self { open, state: Mutex::default() }
    }

    /// Asks for a call, which has to be reported. `false` when it is open.
    pub(crate) fn admit(&self) -> bool {
        self.admit_at(Instant::now())
    }

    /// Whether a call would be admitted, without asking for it.
    pub(crate) fn may_admit(&self) -> bool {
        self.state().opened.is_none_or(|opened| opened.elapsed() >= self.open)
    }

    fn admit_at(&self, now: Instant) -> bool {
        let mut state = self.state();
        match state.opened {
            None => true,
            Some(opened) if now.duration_since(opened) >= self.open => {
                // One at a time; who never reports is not waited for longer than another round.
                state.opened = Some(now);
                state.trying = true;
                true
            }
            Some(_) => false,
        }
    }

    /// It worked, or failed in a way that says that somebody is there. Says whether that closes it.
    pub(crate) fn succeeded(&self) -> bool {
        std::mem::take(&mut *self.state()).opened.is_some()
    }

    /// Nobody was there, or they were broken. Says whether that opens it.
    pub(crate) fn failed(&self) -> bool {
        self.failed_at(Instant::now())
    }

    fn failed_at(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        let opens = state.failures >= FAILURES;
        let is_news = opens && state.opened.is_none();
        if opens {
            state.opened = Some(now);
            state.trying = false;
        }
        is_news
    }

    /// How long it is until somebody may try, while it is open.
    pub(crate) fn remaining(&self) -> Duration {
        self.state().opened.map_or(Duration::ZERO, |opened| self.open.saturating_sub(opened.elapsed()))
    }

    /// Goes on as another one stands.
    pub(crate) fn go_on(&self, before: &Self) {
        let before = before.state().clone();
        *self.state() = before;
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        let state = self.state();
        match state.opened {
            None => "closed",
            Some(opened) if state.trying || opened.elapsed() >= self.open => "half-open",
            Some(_) => "open",
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.name() == "open"
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(60);

    #[test]
    fn it_opens_after_five_and_lets_one_try_after_its_time() {
        let breaker = Breaker::new(OPEN);
        let start = Instant::now();
        for _ in 0..4 {
            breaker.failed_at(start);
            assert!(breaker.admit_at(start));
        }
        breaker.failed_at(start);
        assert!(!breaker.admit_at(start + OPEN / 2));
        assert_eq!(breaker.name(), "open");
        assert!(breaker.admit_at(start + OPEN), "one may try");
        assert!(!breaker.admit_at(start + OPEN), "and no other");
        assert_eq!(breaker.name(), "half-open");
        breaker.failed_at(start + OPEN);
        assert!(!breaker.admit_at(start + OPEN + OPEN / 2));
        assert!(breaker.admit_at(start + OPEN * 2));
        breaker.succeeded();
        assert!(breaker.admit_at(start) && breaker.name() == "closed");
    }

    #[test]
    fn failures_count_only_in_a_row() {
        let breaker = Breaker::new(OPEN);
        for _ in 0..20 {
            breaker.failed();
            breaker.failed();
            breaker.succeeded();
        }
        assert_eq!(breaker.name(), "closed");
    }
}
