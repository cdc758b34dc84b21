//! A circuit breaker: after some failures in a row nobody calls for a while, then one tries.
//!
//! Calls that fail together are one failure: a failure counts only if its call began after the failure that was counted last. A restart that
//! breaks a hundred connections at once is one event and opens nothing.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many failures in a row open it.
const FAILURES: u32 = 5;

/// Whether somebody may be called.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// So long it stays open at first before one may try.
    first: Duration,
    /// The time doubles with each attempt that fails, up to this one.
    longest: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone)]
struct State {
    failures: u32,
    /// When the failure that was counted last was reported.
    failed: Option<Instant>,
    opened: Option<Instant>,
    /// How often it has been opened anew since it was closed.
    rounds: u32,
    /// A trial is under way: the call that is admitted while the circuit is half-open.
    trying: bool,
    /// The number of trials so far, which is also the number of the newest.
    trials: u64,
}

/// An admitted call. A trial that is dropped before a report lets the next one begin as if there had been none.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    breaker: &'a Breaker,
    /// The number of the trial; `None` for a call that was admitted while the circuit was closed.
    trial: Option<u64>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.breaker.state();
        // After a report or a later trial this one is over already.
        if self.trial == Some(state.trials) {
            state.trying = false;
        }
    }
}

impl Breaker {
    /// A closed one, which stays open for so long once it opens.
    pub(crate) fn new(open: Duration) -> Self {
        Self::growing(open, open)
    }

    /// A closed one. It stays open for `first`, and twice as long after each attempt that fails, up to `longest`.
    pub(crate) fn growing(first: Duration, longest: Duration) -> Self {
        Self { first, longest, state: Mutex::default() }
    }

    /// Asks for a call, which has to be reported. `false` when it is open.
    pub(crate) fn admit(&self) -> bool {
        self.admitted(Instant::now()).is_some()
    }

    /// The same for a call that may end without a report.
    pub(crate) fn attempt(&self) -> Option<Attempt<'_>> {
        self.attempt_at(Instant::now())
    }

    fn attempt_at(&self, now: Instant) -> Option<Attempt<'_>> {
        self.admitted(now).map(|trial| Attempt { breaker: self, trial })
    }

    /// Whether a call would be admitted, without asking for it.
    pub(crate) fn may_admit(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The number of the trial that a call is, where it is one. `None` when it is not admitted.
    fn admitted(&self, now: Instant) -> Option<Option<u64>> {
        let mut state = self.state();
        match state.opened {
            None => Some(None),
            Some(opened) if now.duration_since(opened) >= self.period(&state) => {
                // One at a time. An attempt that is never reported is not waited for longer than another round.
                if std::mem::replace(&mut state.trying, true) {
                    state.rounds = state.rounds.saturating_add(1);
                }
                state.opened = Some(now);
                state.trials += 1;
                Some(Some(state.trials))
            }
            Some(_) => None,
        }
    }

    /// It worked, or failed in a way that says that somebody is there. Says whether that closes it.
    pub(crate) fn succeeded(&self) -> bool {
        let mut state = self.state();
        let trials = state.trials;
        std::mem::replace(&mut *state, State { trials, ..State::default() }).opened.is_some()
    }

    /// Nobody was there, or they were broken. Says whether that opens it.
    pub(crate) fn failed(&self) -> bool {
        let now = Instant::now();
        self.failed_at(now, now)
    }

    /// The same for a call that began at this time.
    pub(crate) fn failed_since(&self, begun: Instant) -> bool {
        self.failed_at(begun, Instant::now())
    }

    fn failed_at(&self, begun: Instant, now: Instant) -> bool {
        let mut state = self.state();
        if state.failed.is_some_and(|failed| begun < failed) {
            return false;
        }
        state.failed = Some(now);
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURES {
            return false;
        }
        let is_news = state.opened.is_none();
        if !is_news {
            state.rounds = state.rounds.saturating_add(1);
        }
        state.opened = Some(now);
        state.trying = false;
        is_news
    }

    /// How long it is until somebody may try, while it is open.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        state.opened.map_or(Duration::ZERO, |opened| self.period(&state).saturating_sub(opened.elapsed()))
    }

    /// The same, and nothing while somebody tries, since that may be over at any moment.
    pub(crate) fn rest(&self) -> Duration {
        if self.state().trying { Duration::ZERO } else { self.remaining() }
    }

    /// How long it stays open this time.
    fn period(&self, state: &State) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(state.rounds)).min(self.longest)
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        let (is_over, state) = (self.may_admit(), self.state());
        match state.opened {
            None => "closed",
            Some(_) if state.trying || is_over => "half-open",
            Some(_) => "open",
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.name() == "open"
    }

    /// Whether nothing is known of it that a new one would not know.
    pub(crate) fn is_untouched(&self) -> bool {
        self.state().failures == 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(60);

    impl Breaker {
        fn admit_at(&self, now: Instant) -> bool {
            self.admitted(now).is_some()
        }
    }

    /// Fails as often in a row as opens it.
    fn fail(breaker: &Breaker, at: Instant) {
        for _ in 0..FAILURES {
            breaker.failed_at(at, at);
        }
    }

    #[test]
    fn it_opens_after_five_and_lets_one_try_after_its_time() {
        let breaker = Breaker::new(OPEN);
        let start = Instant::now();
        for _ in 0..4 {
            breaker.failed_at(start, start);
            assert!(breaker.admit_at(start));
        }
        breaker.failed_at(start, start);
        assert!(!breaker.admit_at(start + OPEN / 2));
        assert_eq!(breaker.name(), "open");
        assert!(breaker.admit_at(start + OPEN), "one may try");
        assert!(!breaker.admit_at(start + OPEN), "and no other");
        assert_eq!(breaker.name(), "half-open");
        breaker.failed_at(start + OPEN, start + OPEN);
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

    #[test]
    fn calls_that_fail_together_are_one_failure() {
        let breaker = Breaker::new(OPEN);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        for round in 0..4 {
            // All of them were under way when the first of them failed.
            let begun = start + second * 2 * round;
            for n in 0..100 {
                assert!(!breaker.failed_at(begun, begun + second + Duration::from_millis(n)));
            }
        }
        assert_eq!(breaker.name(), "closed");
        let last = start + second * 8;
        assert!(breaker.failed_at(last, last), "the fifth in a row opens it");
    }

    #[test]
    fn its_time_doubles_with_each_attempt_that_fails_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let breaker = Breaker::growing(second, OPEN);
        let mut now = Instant::now();
        fail(&breaker, now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let wait = Duration::from_secs(seconds);
            assert!(!breaker.admit_at(now + wait - Duration::from_millis(1)), "{seconds}");
            now += wait;
            assert!(breaker.admit_at(now), "{seconds}");
            breaker.failed_at(now, now);
        }
        // A call that began before the circuit opened says nothing new when it fails.
        breaker.failed_at(now - OPEN, now + second);
        assert!(breaker.admit_at(now + OPEN));
        breaker.succeeded();
        now += OPEN;
        fail(&breaker, now);
        assert!(breaker.admit_at(now + second), "after a success it begins anew");
    }

    #[test]
    fn attempts_that_are_never_reported_come_less_and_less_often() {
        let second = Duration::from_secs(1);
        let breaker = Breaker::growing(second, OPEN);
        let start = Instant::now();
        fail(&breaker, start);
        let admitted = (0..120).filter(|n| breaker.admit_at(start + second * *n)).count();
        assert!((5..=9).contains(&admitted), "{admitted}");
    }

    #[test]
    fn an_attempt_that_is_dropped_does_not_prolong_the_time() {
        let second = Duration::from_secs(1);
        let breaker = Breaker::growing(second, OPEN);
        let start = Instant::now();
        fail(&breaker, start);
        for n in 1..10 {
            drop(breaker.attempt_at(start + second * n).unwrap());
        }
    }

    #[test]
    fn a_call_admitted_before_the_circuit_opened_does_not_end_the_trial_of_another() {
        let second = Duration::from_secs(1);
        let breaker = Breaker::growing(second, OPEN);
        let start = Instant::now();
        let early = breaker.attempt_at(start).unwrap();
        fail(&breaker, start);
        let trial = breaker.attempt_at(start + second).unwrap();
        drop(early);
        assert_eq!(breaker.name(), "half-open", "the trial is under way");
        let next = breaker.attempt_at(start + second * 2).unwrap();
        assert!(breaker.attempt_at(start + second * 3).is_none(), "a trial that is not reported prolongs the time");
        drop(trial);
        assert_eq!(breaker.name(), "half-open", "the next trial is under way");
        drop(next);
    }

    #[test]
    fn a_call_that_was_reported_does_not_end_the_trial_of_another() {
        let second = Duration::from_secs(1);
        let breaker = Breaker::growing(second, OPEN);
        let start = Instant::now();
        fail(&breaker, start);
        let reported = breaker.attempt_at(start + second).unwrap();
        breaker.failed_at(start + second, start + second);
        let trial = breaker.attempt_at(start + second * 3).unwrap();
        drop(reported);
        assert!(breaker.state().trying, "the trial is under way");
        breaker.succeeded();
        fail(&breaker, start + second * 4);
        let after = breaker.attempt_at(start + second * 5).unwrap();
        drop(trial);
        assert!(breaker.state().trying, "a trial from before the circuit closed is not this one");
        drop(after);
        assert!(!breaker.state().trying);
    }
}
