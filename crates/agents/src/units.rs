//! Durations and sizes as people write them, `90s` and `10MiB`, in flags, configuration and agent files, and the name
//! they probably meant when they wrote another. What is printed here can be read here.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration of 1 ms to ten years.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A size in bytes: a plain number, or one with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// Largest first, in milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
/// Largest first, in bytes.
const SIZES: [(&str, u64); 6] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];
/// Far longer than anything here waits, and far from where clocks overflow.
const MAX_MS: u64 = 3650 * 86_400_000;

impl Span {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("`{text}` is not a duration: write a number and a unit: 500ms, 120s, 2m, 1h or 30d");
        let milliseconds = measure(text, &TIMES).ok_or_else(refuse)?;
        if !(1..=MAX_MS).contains(&milliseconds) {
            return Err(format!("`{text}` is out of range: 1ms to 3650d"));
        }
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("`{text}` is not a size: write a number of bytes, or one with a unit, such as 10MiB");
        let bytes = measure(text, &SIZES).filter(|bytes| *bytes < u64::MAX);
        bytes.map(Self).ok_or_else(refuse)
    }
}

/// A number times its unit; what is too much for a number is the largest there is.
fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, worth) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    if number.is_empty() {
        return None;
    }
    Some(number.parse().unwrap_or(u64::MAX).saturating_mul(*worth))
}

/// In the largest unit that leaves no rest.
fn written(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().find(|(_, worth)| amount > 0 && amount.is_multiple_of(*worth)) {
        Some((unit, worth)) => write!(f, "{}{unit}", amount / worth),
        None => write!(f, "{amount}"),
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIMES)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, self.0, &SIZES)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The form of a duration in a file.
pub const DURATION: &str = r#"a duration in quotes, e.g. "60s""#;

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text).and_then(|text| text.parse().map_err(de::Error::custom))
    }
}

/// Reads a text where [`DURATION`] is expected.
pub struct Text;

impl de::Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DURATION)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;

        impl de::Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a text such as \"10MiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                let unsigned = u64::try_from(bytes);
                unsigned.map(Size).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Sizes)
    }
}

/// The name that was probably meant, if one is near.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let normal = wrong.to_lowercase().replace('-', "_");
    let (distance, name) = known.iter().map(|name| (strsim::osa_distance(&normal, name), *name)).min()?;
    (distance <= 2 && distance < wrong.chars().count()).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, ms) in [("500ms", 500), ("120s", 120_000), ("2m", 120_000), ("1h", 3_600_000), (" 1 d", 86_400_000)]
        {
            assert_eq!(text.parse::<Span>().unwrap().0, Duration::from_millis(ms), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1y", "0s", "3651d", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("0", 0), ("12", 12), ("12 B", 12), ("2KiB", 2048), ("10 MiB", 10 << 20), ("1TiB", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MiB", "1.5MiB", "-1", "1MB", "1k", "99999999TiB", "99999999999999999999"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_largest_unit_is_written() {
        for text in ["1500ms", "90s", "2m", "1h", "30d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("120s".parse::<Span>().unwrap().to_string(), "2m");
        for text in ["0", "1023B", "1KiB", "10MiB", "1025KiB", "3TiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(amount in 1..=MAX_MS, unit in 0..TIMES.len(), bytes in any::<u64>(), shift in 0_u32..64) {
            let span = Span(Duration::from_millis(amount / TIMES[unit].1 * TIMES[unit].1));
            if !span.0.is_zero() {
                prop_assert_eq!(span.to_string().parse(), Ok(span));
            }
            let size = Size((bytes >> shift << shift).min(u64::MAX - 1));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn near_misses() {
        let known = ["argv", "cwd", "env", "concurrency", "pass_env"];
        assert_eq!(nearest("agrv", &known), Some("argv"));
        assert_eq!(nearest("concurency", &known), Some("concurrency"));
        assert_eq!(nearest("Pass-Envs", &known), Some("pass_env"));
        assert_eq!(nearest("id", &known), None, "nothing of it would be left");
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
