//! Why attempts at a turn failed, as a task remembers it: a short list in JSON.

use a2a::Timestamp;
use serde::{Deserialize, Serialize};

/// So many are remembered: the first, and the last ones.
const MOST: usize = 20;

/// The longest text of each.
const LONGEST: usize = 2048;

/// One attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Which one, from 1.
    pub attempt: u32,
    /// When, in milliseconds.
    pub at: i64,
    /// Who has made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Why.
    pub error: String,
}

impl FailedAttempt {
    /// As much of an error as is remembered.
    pub fn cut(error: &str) -> &str {
        let mut end = error.len().min(LONGEST);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        &error[..end]
    }
}

/// What was remembered. What cannot be read is nothing.
pub(crate) fn read(stored: Option<&str>) -> Vec<FailedAttempt> {
    stored.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

/// The same and one more.
pub(crate) fn with(stored: Option<&str>, attempt: u32, worker: &str, error: &str, at: Timestamp) -> String {
    let mut all = read(stored);
    // A NUL is no text for PostgreSQL.
    let error = FailedAttempt::cut(error).replace('\0', "\u{fffd}");
    all.push(FailedAttempt { attempt, at: at.as_millis(), worker: worker.to_owned(), error });
    if all.len() > MOST {
        all.remove(1);
    }
    // Numbers and texts always serialise.
    serde_json::to_string(&all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_ones_are_remembered() {
        let mut stored: Option<String> = None;
        for attempt in 1..=50 {
            let why = format!("é{}", "x\0".repeat(4000));
            stored = Some(with(stored.as_deref(), attempt, "w", &why, Timestamp::from_millis(7)));
        }
        let all = read(stored.as_deref());
        assert_eq!(all.len(), MOST);
        assert_eq!((all[0].attempt, all[1].attempt, all[MOST - 1].attempt), (1, 32, 50));
        assert!(all.iter().all(|failed| failed.error.starts_with('é') && !failed.error.contains('\0')));
        assert!(read(Some("no JSON")).is_empty() && read(None).is_empty());
    }
}
