//! A circuit breaker: after some failures in a row nobody calls for a while, then one tries.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many failures in a row open it.
const FAILURES: u32 = 5;
/// So long it stays open before one may try.
const OPEN: Duration = Duration::from_secs(60);

/// Whether somebody may be called.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default, Clone)]
struct State {
    failures: u32,
    opened: Option<Instant>,
    /// Somebody tries.
    trying: bool,
}

impl Breaker {
    /// Asks for a call, which has to be reported. `false` when it is open.
    pub(super) fn admit(&self) -> bool {
        self.admit_at(Instant::now())
    }

    /// Whether a call would be admitted, without asking for it.
    pub(super) fn may_admit(&self) -> bool {
        self.state().opened.is_none_or(|opened| opened.elapsed() >= OPEN)
    }

    fn admit_at(&self, now: Instant) -> bool {
        let mut state = self.state();
        match state.opened {
            None => true,
            Some(opened) if now.duration_since(opened) >= OPEN => {
                // One at a time; who never reports is not waited for longer than another round.
                state.opened = Some(now);
                state.trying = true;
                true
            }
            Some(_) => false,
        }
    }

    /// It worked, or failed in a way that says that somebody is there. Says whether that closes it.
    pub(super) fn succeeded(&self) -> bool {
        std::mem::take(&mut *self.state()).opened.is_some()
    }

    /// Nobody was there, or they were broken. Says whether that opens it.
    pub(super) fn failed(&self) -> bool {
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

    /// Goes on as another one stands.
    pub(super) fn go_on(&self, before: &Self) {
        let before = before.state().clone();
        *self.state() = before;
    }

    /// For people.
    pub(super) fn name(&self) -> &'static str {
        let state = self.state();
        match state.opened {
            None => "closed",
            Some(opened) if state.trying || opened.elapsed() >= OPEN => "half-open",
            Some(_) => "open",
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.name() == "open"
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_five_and_lets_one_try_after_a_minute() {
        let breaker = Breaker::default();
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
        let breaker = Breaker::default();
        for _ in 0..20 {
            breaker.failed();
            breaker.failed();
            breaker.succeeded();
        }
        assert_eq!(breaker.name(), "closed");
    }
}
