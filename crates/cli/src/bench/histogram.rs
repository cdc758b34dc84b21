//! Latencies in fixed memory: buckets that grow with the value, each at most 1/32 wide, whatever is recorded.

use std::time::Duration;

/// Each power of two has this many buckets, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// How often each latency was seen, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, value: Duration) {
        let nanoseconds = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    pub(crate) fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The latency that this many of a thousand do not exceed, as the upper end of its bucket.
    pub(crate) fn per_mille(&self, share: u64) -> Duration {
        let rank = (u128::from(self.count) * u128::from(share)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Duration::from_nanos(upper_end(index).min(self.max));
            }
        }
        self.max()
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return usize::try_from(value).unwrap_or(0);
    }
    let exponent = value.ilog2() - SUB_BITS;
    // The top bits without the leading one: below SUB by construction.
    let sub = usize::try_from(value >> exponent).unwrap_or(SUB) - SUB;
    (exponent as usize + 1) * SUB + sub
}

/// The largest value of a bucket.
fn upper_end(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let exponent = index / SUB - 1;
    let base = (SUB + index % SUB) as u64;
    (base << exponent) + ((1_u64 << exponent) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_values() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, (1_u64 << shift) | 1, u64::MAX >> shift] {
                let end = upper_end(bucket(value));
                assert!(end >= value, "{value} is in a bucket that ends at {end}");
                assert!(end - value <= value / SUB as u64, "{value} is in a bucket that ends at {end}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        for microseconds in 1..=1000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        let close = |share: u64, expected: u64| {
            let found = histogram.per_mille(share).as_micros() as u64;
            assert!((expected..=expected + expected / 32 + 1).contains(&found), "{share}: {found} for {expected}");
        };
        close(500, 500);
        close(990, 990);
        assert_eq!(histogram.per_mille(1000), Duration::from_millis(1));
        assert_eq!(histogram.max(), Duration::from_millis(1));
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
    }

    #[test]
    fn nothing_recorded_is_nothing() {
        let histogram = Histogram::default();
        assert!(histogram.is_empty());
        assert_eq!((histogram.per_mille(990), histogram.mean()), (Duration::ZERO, Duration::ZERO));
    }
}
