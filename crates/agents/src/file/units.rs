//! Durations, sizes and near misses: what people write in files.

use std::time::Duration;

/// Reads `500ms`, `60s`, `2m` or `1h`. Zero is no duration.
pub(super) fn duration(key: &str, text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{key}`: `{text}` is not a duration such as \"500ms\", \"60s\", \"2m\" or \"1h\"");
    let (number, unit) = split(text).ok_or_else(malformed)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(malformed()),
    };
    match number.checked_mul(milliseconds) {
        Some(0) => Err(format!("`{key}` must be more than zero")),
        // A year: beyond it timers overflow, and nobody waits.
        Some(milliseconds) if milliseconds <= 365 * 86_400_000 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(format!("`{key}`: `{text}` is too long")),
    }
}

/// Reads `512KiB`, `64MiB` or `1GiB`. Zero is no size.
pub(super) fn size(key: &str, text: &str) -> Result<u64, String> {
    let malformed = || format!("`{key}`: `{text}` is not a size such as \"512KiB\", \"64MiB\" or \"1GiB\"");
    let (number, unit) = split(text).ok_or_else(malformed)?;
    let bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(malformed()),
    };
    match number.checked_mul(bytes) {
        Some(0) => Err(format!("`{key}` must be more than zero")),
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{key}`: `{text}` is too much")),
    }
}

/// The name that was probably meant, if one is near.
pub(super) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, name) = known.iter().map(|name| (distance(wrong, name), *name)).min()?;
    (distance <= 2 && distance < wrong.chars().count()).then_some(name)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// How many letters have to be added, removed or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, milliseconds) in
            [("500ms", 500), ("60s", 60_000), ("2m", 120_000), ("1h", 3_600_000), (" 1 s", 1000)]
        {
            assert_eq!(duration("k", text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "60", "1.5s", "-1s", "1d", "0s", "99999999999999999999s", "9999999h"] {
            assert!(duration("k", text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1B", 1), ("512KiB", 512 << 10), ("64MiB", 64 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size("k", text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "64", "64MB", "0B", "99999999999GiB"] {
            assert!(size("k", text).is_err(), "{text}");
        }
    }

    #[test]
    fn near_misses() {
        let known = ["argv", "cwd", "env", "concurrency"];
        assert_eq!(nearest("agrv", &known), Some("argv"));
        assert_eq!(nearest("concurency", &known), Some("concurrency"));
        assert_eq!(nearest("id", &known), None, "nothing of it would be left");
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
