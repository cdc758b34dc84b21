//! Durations as people write them: `500ms`, `120s`, `2m`, `1h`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration of the configuration or the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("`{text}` is not a duration: write a number and a unit, such as 500ms, 120s, 2m or 1h");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| refuse())?;
        let milliseconds = match unit.trim_start() {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(refuse()),
        };
        let total = number.checked_mul(milliseconds).filter(|total| (1..=MAX_MS).contains(total));
        total
            .map(|total| Self(Duration::from_millis(total)))
            .ok_or_else(|| format!("`{text}` is out of range: 1ms to 720h"))
    }
}

/// Thirty days: longer than anything here waits, and far from where clocks overflow.
const MAX_MS: u64 = 30 * 24 * 3_600_000;

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, ms) in [("500ms", 500), ("120s", 120_000), ("2m", 120_000), ("1h", 3_600_000), ("5 s", 5000)] {
            assert_eq!(text.parse::<Span>().unwrap().0, Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "s", "-1s", "1.5s", "1d", "0s", "99999999999999999999s", "721h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
