//! Steps of the store's clock: how far it went forward beside a steady clock.

use std::time::Duration;

use store::LeaseTime;
use tokio::time::Instant;

/// A smaller step is not told apart from the time that a query takes, and harms no lease.
const SMALLEST: Duration = Duration::from_secs(1);

/// The last reading of the store's clock.
#[derive(Default)]
pub(super) struct Steps {
    last: Option<Reading>,
}

/// A reading of the store's clock, which was made between two moments of the steady one.
#[derive(Clone, Copy)]
struct Reading {
    now: LeaseTime,
    asked: Instant,
    answered: Instant,
}

impl Steps {
    /// Takes a reading in. Returns how far the clock has stepped forward since the one before, if it has; then that one stays, until
    /// [`Steps::forget`], so that an error in between loses no step.
    pub(super) fn compare(&mut self, now: LeaseTime, asked: Instant, answered: Instant) -> Option<Duration> {
        let reading = Reading { now, asked, answered };
        let Some(last) = self.last else {
            self.last = Some(reading);
            return None;
        };
        let ahead = now.since(last.now);
        // A reading may be as old as its query, or as young as its answer.
        let at_least = ahead.saturating_sub(answered.saturating_duration_since(last.asked));
        if at_least >= SMALLEST {
            return Some(ahead.saturating_sub(asked.saturating_duration_since(last.answered)));
        }
        // Readings may come in another order than they were made.
        if asked >= last.asked {
            self.last = Some(reading);
        }
        None
    }

    /// Goes on from the next reading.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_step_forward_is_seen_once_it_is_settled() {
        let (mut steps, start, zero) = (Steps::default(), Instant::now(), LeaseTime::default());
        assert_eq!(steps.compare(zero.after(HOUR), start, start), None, "nothing to compare with");
        let later = start + seconds(5);
        assert_eq!(steps.compare(zero.after(HOUR + seconds(5)), later, later), None);
        let stepped = zero.after(HOUR * 2 + seconds(10));
        let later = start + seconds(10);
        assert_eq!(steps.compare(stepped, later, later), Some(HOUR));
        assert_eq!(steps.compare(stepped, later, later), Some(HOUR), "nothing was done about it yet");
        steps.forget();
        assert_eq!(steps.compare(stepped, later, later), None);
    }

    #[test]
    fn a_slow_answer_and_a_clock_that_was_set_back_are_no_steps() {
        let (mut steps, start, zero) = (Steps::default(), Instant::now(), LeaseTime::default());
        assert_eq!(steps.compare(zero.after(HOUR), start, start + seconds(9)), None);
        // The one before was made when it was asked for, this one when it is answered.
        assert_eq!(steps.compare(zero.after(HOUR + seconds(12)), start + seconds(10), start + seconds(12)), None);
        let later = start + seconds(20);
        assert_eq!(steps.compare(zero, later, later), None);
        assert_eq!(steps.compare(zero.after(HOUR), later, later), Some(HOUR));
        steps.forget();
        // An answer that comes late is older than the one before it.
        assert_eq!(steps.compare(zero.after(seconds(20)), later, later), None);
        assert_eq!(steps.compare(zero.after(seconds(10)), start + seconds(10), start + seconds(21)), None);
        let last = start + seconds(22);
        assert_eq!(steps.compare(zero.after(seconds(22)), last, last), None);
    }
}
