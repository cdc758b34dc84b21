//! How often a turn is tried, how long it waits in between, and what is said when there is no other attempt.

use std::time::Duration;

use a2a::Part;
use store::{Lease, TaskId, TurnEnd};

use crate::{Outcome, scribe::Scribe};

const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// How often a turn may be tried: as often as its task says, or its agent.
pub(crate) fn limit(lease: &Lease, of_agent: u32) -> u32 {
    lease.max_attempts.unwrap_or(of_agent)
}

/// How long to wait after so many attempts: twice as long each time, and up to half of it less, so that what failed together does not come
/// back together. Where in that half is the task's own affair: the same task waits as long on every instance.
pub(crate) fn backoff(task: TaskId, attempt: u32) -> Duration {
    let seconds = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    let longest = Duration::from_secs(seconds).min(MAX_BACKOFF);
    let mut hash = attempt.wrapping_mul(0x9e37_79b9);
    for byte in task.to_string().bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    longest.mul_f64(0.5 + f64::from(hash >> 16) / f64::from(u16::MAX) / 2.0)
}

/// The end of a turn that was tried too often: its task is a dead letter, and says why.
pub(crate) fn give_up(scribe: &mut Scribe, why: &str, tries: u32) -> store::Result<TurnEnd> {
    let text = match tries {
        0 | 1 => why.to_owned(),
        tries => format!("{why}; gave up after {tries} attempts"),
    };
    fail(scribe, text, why, true)
}

/// The end of a turn that no other attempt would do better.
pub(crate) fn fail_for_good(scribe: &mut Scribe, why: &str) -> store::Result<TurnEnd> {
    fail(scribe, why.to_owned(), why, false)
}

fn fail(scribe: &mut Scribe, says: String, why: &str, dead: bool) -> store::Result<TurnEnd> {
    Ok(match scribe.end(Outcome::Failed(vec![Part::text(says)]))? {
        TurnEnd::Status(status) => TurnEnd::GiveUp { status, error: why.to_owned(), dead },
        end => end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_differ() {
        let waits = |attempt: u32| {
            let mut waits: Vec<Duration> = (0..200).map(|_| backoff(TaskId::mint(), attempt)).collect();
            waits.sort();
            waits
        };
        for (attempt, longest) in [(1, 1), (2, 2), (5, 16), (7, 60), (64, 60), (u32::MAX, 60)] {
            let longest = Duration::from_secs(longest);
            let waits = waits(attempt);
            assert!(waits[0] >= longest / 2 && waits[199] <= longest, "{attempt}: {:?} to {:?}", waits[0], waits[199]);
            assert!(waits[199] - waits[0] > longest / 4, "{attempt}: they are spread");
        }
        let task = TaskId::mint();
        assert_eq!(backoff(task, 3), backoff(task, 3));
    }
}
