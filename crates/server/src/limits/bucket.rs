//! Token buckets, one for each key. Time comes from the caller.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use tokio::time::Instant;

/// How many keys are remembered. A bucket that is full again needs no memory.
const CAPACITY: usize = 65_536;

/// So many at once, and in the long run so many a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run; 0 is no bound at all.
    pub per_second: u32,
    /// At once.
    pub burst: u32,
}

/// Nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// When there will be something, in seconds, at least 1.
    pub(crate) retry_seconds: u32,
    pub(crate) per_second: u32,
}

/// A bucket for each key.
pub(crate) struct Buckets<K> {
    rate: Rate,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    /// When that was so.
    at: Instant,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate: Rate { burst: rate.burst.max(1), ..rate }, buckets: Mutex::default() }
    }

    /// Takes one token of this key.
    pub(crate) fn take(&self, key: K, now: Instant) -> Result<(), Refused> {
        if self.rate.per_second == 0 {
            return Ok(());
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CAPACITY && !buckets.contains_key(&key) {
            self.make_room(&mut buckets, now);
        }
        let full = Bucket { tokens: f64::from(self.rate.burst), at: now };
        let bucket = buckets.entry(key).or_insert(full);
        *bucket = self.refilled(*bucket, now);
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let wait = ((1.0 - bucket.tokens) / f64::from(self.rate.per_second)).ceil();
        Err(Refused { retry_seconds: (wait as u32).max(1), per_second: self.rate.per_second })
    }

    /// Whether there is a token of this key. None is taken.
    pub(crate) fn has_any(&self, key: &K, now: Instant) -> bool {
        if self.rate.per_second == 0 {
            return true;
        }
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.get(key).is_none_or(|bucket| self.refilled(*bucket, now).tokens >= 1.0)
    }

    fn refilled(&self, bucket: Bucket, now: Instant) -> Bucket {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        let tokens = bucket.tokens + passed * f64::from(self.rate.per_second);
        Bucket { tokens: tokens.min(f64::from(self.rate.burst)), at: now.max(bucket.at) }
    }

    /// Forgets who is not in anybody's way; when that is hardly anyone, forgets all, so that this stays rare.
    fn make_room(&self, buckets: &mut HashMap<K, Bucket>, now: Instant) {
        let full = f64::from(self.rate.burst);
        buckets.retain(|_, bucket| self.refilled(*bucket, now).tokens < full);
        if buckets.len() > CAPACITY / 2 {
            buckets.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let buckets = Buckets::new(Rate { per_second: 10, burst: 3 });
        let start = Instant::now();
        for _ in 0..3 {
            assert!(buckets.take("a", start).is_ok());
        }
        let refused = buckets.take("a", start).unwrap_err();
        assert_eq!(refused, Refused { retry_seconds: 1, per_second: 10 });
        assert!(buckets.take("a", after(start, 99)).is_err());
        assert!(buckets.take("a", after(start, 101)).is_ok());
        assert!(buckets.take("a", after(start, 102)).is_err());
        // However long it was quiet, a burst is no larger.
        for _ in 0..3 {
            assert!(buckets.take("a", after(start, 60_000)).is_ok());
        }
        assert!(buckets.take("a", after(start, 60_000)).is_err());
    }

    #[test]
    fn keys_do_not_meet() {
        let buckets = Buckets::new(Rate { per_second: 1, burst: 1 });
        let start = Instant::now();
        assert!(buckets.take(1, start).is_ok());
        assert!(buckets.take(1, start).is_err());
        assert!(buckets.take(2, start).is_ok());
    }

    #[test]
    fn the_long_run_keeps_to_the_rate() {
        let buckets = Buckets::new(Rate { per_second: 100, burst: 5 });
        let start = Instant::now();
        let mut taken = 0;
        for millis in 0..10_000 {
            taken += u32::from(buckets.take((), after(start, millis)).is_ok());
        }
        assert!((1003..=1005).contains(&taken), "{taken}");
    }

    #[test]
    fn a_rate_of_zero_is_no_bound_and_a_burst_is_at_least_one() {
        let now = Instant::now();
        let free = Buckets::new(Rate { per_second: 0, burst: 0 });
        assert!((0..10_000).all(|_| free.take("a", now).is_ok()));
        let one = Buckets::new(Rate { per_second: 1, burst: 0 });
        assert!(one.take("a", now).is_ok() && one.take("a", now).is_err());
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let buckets = Buckets::new(Rate { per_second: 1000, burst: 1 });
        let start = after(Instant::now(), 1000);
        assert!(buckets.take("a", start).is_ok());
        assert!(buckets.take("a", start - Duration::from_millis(500)).is_err());
        assert!(buckets.take("a", start).is_err());
        assert!(buckets.take("a", after(start, 2)).is_ok());
    }

    #[test]
    fn memory_is_bounded() {
        let buckets = Buckets::new(Rate { per_second: 1, burst: 2 });
        let start = Instant::now();
        for key in 0..3 * CAPACITY as u64 {
            assert!(buckets.take(key, after(start, key)).is_ok());
        }
        assert!(buckets.buckets.lock().unwrap().len() <= CAPACITY);
    }
}
