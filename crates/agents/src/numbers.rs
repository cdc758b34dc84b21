//! The parameters of the demo agents: the numbers in a message's text.

use std::time::Duration;

/// No demo agent works longer than this, whatever the message asks for.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(600);

/// No demo agent says more chunks than this.
pub(crate) const MAX_CHUNKS: u64 = 10_000;

/// Every run of ASCII digits, in order. A number too large for `u64` is the largest one.
pub(crate) fn numbers(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for digits in text.split(|c: char| !c.is_ascii_digit()) {
        if !digits.is_empty() {
            // Only overflow can fail here.
            found.push(digits.parse().unwrap_or(u64::MAX));
        }
    }
    found
}

/// The number at `index` as milliseconds, capped.
pub(crate) fn milliseconds(numbers: &[u64], index: usize, default: u64) -> Duration {
    let asked = numbers.get(index).copied().unwrap_or(default);
    Duration::from_millis(asked).min(MAX_DURATION)
}

/// How many chunks, and how long between two of them; the whole stays within [`MAX_DURATION`].
pub(crate) fn chunks(numbers: &[u64]) -> (u64, Duration) {
    let count = numbers.first().copied().unwrap_or(5).clamp(1, MAX_CHUNKS);
    // `count` is at most 10,000, so the narrowing cannot lose anything.
    let longest = MAX_DURATION / u32::try_from(count).unwrap_or(u32::MAX);
    (count, milliseconds(numbers, 1, 50).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_anywhere() {
        assert!(numbers("").is_empty());
        assert!(numbers("none here").is_empty());
        assert_eq!(numbers("7"), [7]);
        assert_eq!(numbers("send 3 chunks, one each 20ms"), [3, 20]);
        assert_eq!(numbers("-4 1.5 007"), [4, 1, 5, 7]);
        assert_eq!(numbers("x12y"), [12]);
        assert_eq!(numbers("٣ 4"), [4], "only ASCII digits count");
    }

    #[test]
    fn a_number_too_large_is_the_largest() {
        assert_eq!(numbers("99999999999999999999999"), [u64::MAX]);
    }

    #[test]
    fn times_have_a_default_and_a_cap() {
        assert_eq!(milliseconds(&[], 0, 2000), Duration::from_secs(2));
        assert_eq!(milliseconds(&[5], 0, 2000), Duration::from_millis(5));
        assert_eq!(milliseconds(&[u64::MAX], 0, 2000), MAX_DURATION);
    }

    #[test]
    fn chunks_have_defaults_and_caps() {
        assert_eq!(chunks(&[]), (5, Duration::from_millis(50)));
        assert_eq!(chunks(&[3, 0]), (3, Duration::ZERO));
        assert_eq!(chunks(&[0]), (1, Duration::from_millis(50)));
        let (count, pause) = chunks(&[u64::MAX, u64::MAX]);
        assert_eq!(count, MAX_CHUNKS);
        assert!(pause * 10_000 <= MAX_DURATION);
    }
}
