//! What is asked of the log of a task, and which of its events a stream shows.

use store::{Event, EventKind};

/// Numbered from 1 without a gap, and ended once, at the end.
pub(crate) fn is_whole(log: &[Event]) -> bool {
    let is_numbered = log.iter().zip(1..).all(|(event, seq)| event.seq == seq);
    let ends = |event: &Event| matches!(event.kind, EventKind::Status { state, .. } if state.is_terminal());
    is_numbered && log.iter().filter(|event| ends(event)).count() == 1 && log.last().is_some_and(ends)
}

/// Whether an event is one that a stream shows.
pub(crate) fn has_frame(kind: EventKind) -> bool {
    kind.has_frame()
}

#[cfg(test)]
mod tests {
    use a2a::{TaskState, Timestamp};

    use super::*;

    const CREATED: EventKind = EventKind::Created { held: false };
    const STARTED: EventKind = EventKind::Started(store::Start::First);
    const COMPLETED: EventKind = EventKind::Status { state: TaskState::Completed, ends_turn: true };
    const FAILED: EventKind = EventKind::Status { state: TaskState::Failed, ends_turn: true };

    fn log(events: &[(u64, EventKind)]) -> Vec<Event> {
        let event = |&(seq, kind)| Event { seq, at: Timestamp::from_millis(0), kind, body: Vec::new().into() };
        events.iter().map(event).collect()
    }

    #[test]
    fn a_log_that_is_not_whole_is_noticed() {
        let whole = [(1, CREATED), (2, STARTED), (3, EventKind::Artifact), (4, COMPLETED)];
        assert!(is_whole(&log(&whole)));
        let broken: [(&str, &[(u64, EventKind)]); 8] = [
            ("nothing", &[]),
            ("no first event", &[(2, STARTED), (3, COMPLETED)]),
            ("a gap", &[(1, CREATED), (2, STARTED), (4, COMPLETED)]),
            ("an event twice", &[(1, CREATED), (2, STARTED), (2, STARTED), (3, COMPLETED)]),
            ("another order", &[(1, CREATED), (3, EventKind::Artifact), (2, STARTED), (4, COMPLETED)]),
            ("no end", &[(1, CREATED), (2, STARTED), (3, EventKind::Artifact)]),
            ("two ends", &[(1, CREATED), (2, STARTED), (3, COMPLETED), (4, FAILED)]),
            ("an event after the end", &[(1, CREATED), (2, STARTED), (3, COMPLETED), (4, EventKind::Artifact)]),
        ];
        for (what, events) in broken {
            assert!(!is_whole(&log(events)), "{what}");
        }
    }
}
