//! Durations as people write them: `500ms`, `120s`, `2m`, `1h`, and `30d` for what lives long.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration of the configuration or the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// How long something lives, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) seconds: u64,
}

/// Thirty days: longer than anything here waits, and far from where clocks overflow.
const MAX_MS: u64 = 30 * 24 * 3_600_000;

/// Ten years, as the server has it.
const MAX_LIFE_SECONDS: u64 = 10 * 365 * 24 * 3600;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("`{text}` is not a duration: write a number and a unit, such as 500ms, 120s, 2m or 1h");
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
        let total = measure(text, &units).ok_or_else(refuse)?;
        let total = total.filter(|total| (1..=MAX_MS).contains(total));
        total
            .map(|total| Self(Duration::from_millis(total)))
            .ok_or_else(|| format!("`{text}` is out of range: 1ms to 720h"))
    }
}

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("`{text}` is no lifetime: write a number and a unit, such as 30d, 12h or 90m");
        let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)];
        let total = measure(text, &units).ok_or_else(refuse)?;
        let total = total.filter(|total| (1..=MAX_LIFE_SECONDS).contains(total));
        total.map(|seconds| Self { seconds }).ok_or_else(|| format!("`{text}` is out of range: 1s to 3650d"))
    }
}

/// A number times its unit. `None` when it is not that, `Some(None)` when it is too much.
fn measure(text: &str, units: &[(&str, u64)]) -> Option<Option<u64>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (_, size) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.checked_mul(*size))
}

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
    fn lifetimes_have_days() {
        for (text, seconds) in [("30d", 2_592_000), ("1h", 3600), ("90m", 5400), ("2s", 2)] {
            assert_eq!(text.parse::<Lifetime>().unwrap().seconds, seconds, "{text}");
        }
        for text in ["", "30", "0d", "3651d", "1y", "-1d", "99999999999999999999d", "18446744073709551615d"] {
            assert!(text.parse::<Lifetime>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "s", "-1s", "1.5s", "1d", "0s", "99999999999999999999s", "721h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
