//! How values look in columns. The numbers and names here are in every database file: add, never change.

use a2a::{TaskState, Timestamp};
use bytes::Bytes;

use crate::{AgentId, Error, EventKind, Result, Start, TaskId};

/// Every state and its name in `a2a_tasks.state` and `task_counts.state`.
const STATES: [(TaskState, &str); 9] = [
    (TaskState::Unspecified, "unspecified"),
    (TaskState::Submitted, "submitted"),
    (TaskState::Working, "working"),
    (TaskState::Completed, "completed"),
    (TaskState::Failed, "failed"),
    (TaskState::Canceled, "canceled"),
    (TaskState::InputRequired, "input-required"),
    (TaskState::Rejected, "rejected"),
    (TaskState::AuthRequired, "auth-required"),
];

// `a2a_events.kind`: a status is 16 plus the number of its state, and 32 more when it ends a turn.
const CREATED: i64 = 1;
const INPUT: i64 = 2;
const ARTIFACT: i64 = 3;
const REPLY: i64 = 4;
const CREATED_HELD: i64 = 5;
const REVEALED: i64 = 6;
const STARTED: i64 = 7;
const STARTED_AGAIN: i64 = 8;
const NOTE: i64 = 9;
const KEPT: i64 = 10;
const RESUMED: i64 = 11;
const STATUS: i64 = 16;
const ENDS_TURN: i64 = 32;
// Kinds to come are free to take what is left below the statuses, and everything from here on.
const OTHERS: i64 = 64;

pub(crate) fn state_name(state: TaskState) -> &'static str {
    STATES.iter().find(|(s, _)| *s == state).map_or("unspecified", |(_, name)| name)
}

pub(crate) fn parse_state(name: &str) -> Result<TaskState> {
    let found = STATES.iter().find(|(_, n)| *n == name);
    found.map(|(state, _)| *state).ok_or_else(|| Error::Damaged(format!("unknown state {name:?}")))
}

pub(crate) fn kind_code(kind: EventKind) -> i64 {
    match kind {
        EventKind::Created { held: false } => CREATED,
        EventKind::Created { held: true } => CREATED_HELD,
        EventKind::Revealed => REVEALED,
        EventKind::Started(Start::First) => STARTED,
        EventKind::Started(Start::Again) => STARTED_AGAIN,
        EventKind::Started(Start::Resumed) => RESUMED,
        EventKind::Note => NOTE,
        EventKind::Kept => KEPT,
        EventKind::Other(code) => code.into(),
        EventKind::Input => INPUT,
        EventKind::Artifact => ARTIFACT,
        EventKind::Reply => REPLY,
        EventKind::Status { state, ends_turn } => {
            STATUS + i64::from(state.number()) + if ends_turn { ENDS_TURN } else { 0 }
        }
    }
}

pub(crate) fn parse_kind(code: i64) -> Result<EventKind> {
    let kind = match code {
        CREATED => EventKind::Created { held: false },
        CREATED_HELD => EventKind::Created { held: true },
        REVEALED => EventKind::Revealed,
        STARTED => EventKind::Started(Start::First),
        STARTED_AGAIN => EventKind::Started(Start::Again),
        RESUMED => EventKind::Started(Start::Resumed),
        NOTE => EventKind::Note,
        KEPT => EventKind::Kept,
        INPUT => EventKind::Input,
        ARTIFACT => EventKind::Artifact,
        REPLY => EventKind::Reply,
        // An older version lives with what a newer one writes.
        1..STATUS | OTHERS.. if let Ok(code) = u16::try_from(code) => EventKind::Other(code),
        code => {
            let ends_turn = code >= STATUS + ENDS_TURN;
            let number = code - STATUS - if ends_turn { ENDS_TURN } else { 0 };
            let state = STATES.iter().find(|(s, _)| i64::from(s.number()) == number);
            let (state, _) = state.ok_or_else(|| Error::Damaged(format!("unknown event kind {code}")))?;
            EventKind::Status { state: *state, ends_turn }
        }
    };
    Ok(kind)
}

pub(crate) fn parse_task(text: &str) -> Result<TaskId> {
    TaskId::parse(text).ok_or_else(|| Error::Damaged(format!("{text:?} is no task id")))
}

pub(crate) fn parse_agent(text: &str) -> Result<AgentId> {
    text.parse().map_err(|why| Error::Damaged(format!("{text:?}: {why}")))
}

pub(crate) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// JSON that is kept in a TEXT column.
pub(crate) fn text(json: &Bytes) -> Result<&str> {
    std::str::from_utf8(json).map_err(|error| Error::Damaged(error.to_string()))
}

/// The databases have no unsigned numbers. Ours never come near the difference.
pub(crate) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// Numbers of turns, attempts and the like.
pub(crate) fn small(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_code() {
        let mut kinds = vec![EventKind::Input, EventKind::Artifact, EventKind::Reply, EventKind::Revealed];
        kinds.extend([EventKind::Created { held: false }, EventKind::Created { held: true }]);
        kinds.extend([Start::First, Start::Again, Start::Resumed].map(EventKind::Started));
        kinds.extend([EventKind::Note, EventKind::Kept, EventKind::Other(12), EventKind::Other(64)]);
        for (state, _) in STATES {
            for ends_turn in [false, true] {
                kinds.push(EventKind::Status { state, ends_turn });
            }
        }
        let mut codes: Vec<i64> = kinds.iter().map(|kind| kind_code(*kind)).collect();
        for (kind, code) in kinds.iter().zip(&codes) {
            assert_eq!(parse_kind(*code).unwrap(), *kind);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), kinds.len());
        for unknown in [0, 25, 31, 47, 57, -1, 1 << 16] {
            assert!(parse_kind(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn codes_stay_what_they_are() {
        assert_eq!(kind_code(EventKind::Status { state: TaskState::Working, ends_turn: false }), 18);
        assert_eq!(kind_code(EventKind::Status { state: TaskState::Completed, ends_turn: true }), 51);
    }

    #[test]
    fn every_state_has_one_name() {
        for (state, name) in STATES {
            assert_eq!(state_name(state), name);
            assert_eq!(parse_state(name).unwrap(), state);
        }
        assert!(parse_state("WORKING").is_err());
    }
}
