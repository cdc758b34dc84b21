//! The notes of publishers and workers, compared with what became of the entries.

use std::collections::{BTreeSet, HashMap};

use a2a::TaskState;
use serde_json::Value;
use store::{Event, EventKind, FailedAttempt};

use super::{
    Report,
    log::is_whole,
    notes::{Hold, Notes, Outcome, Published, Verb, Write},
    queue_client::{ATTEMPTS, LEASE},
};

const VIOLATIONS: &[(&str, &str)] = &[
    ("unexpected", "an answer that no client should ever get"),
    ("lost", "acknowledged and not there"),
    ("unfinished", "acknowledged and never ended"),
    ("duplicates", "an entry that nobody published, or a second one for what was published once"),
    ("broken logs", "a log with a gap, or without exactly one end"),
    (
        "wrong results",
        "completed with something else than one accepted ack said, or as something else than was published",
    ),
    ("given up", "a good entry that did not complete"),
    ("late", "a write that was accepted under a lease that somebody else had had since"),
    ("shared", "an entry that two workers held at once"),
    ("robbed", "a write that was refused under a lease that had not run out"),
    ("twice", "a second end of one attempt, or a second ack of one entry, that was accepted"),
    ("wrong letters", "a poisonous entry that is no dead letter after exactly its attempts"),
    ("wrong errors", "a history of errors that is not what happened"),
    ("not replayed", "a dead letter that could not be replayed, once, as it should be"),
];

/// The end of an entry.
pub(crate) struct Ending {
    pub(crate) state: TaskState,
    pub(crate) is_letter: bool,
    pub(crate) errors: Vec<FailedAttempt>,
    pub(crate) replays: Option<String>,
    pub(crate) log: Vec<Event>,
}

/// Everything that there is to compare.
pub(crate) struct Evidence<'a> {
    pub(crate) notes: &'a Notes,
    /// Of the entries that are there.
    pub(crate) endings: &'a HashMap<String, Ending>,
    /// All tasks, as callers see them.
    pub(crate) listed: &'a HashMap<String, Value>,
}

/// One entry.
struct Case<'a> {
    report: &'a mut Report,
    entry: &'a Published,
    ending: &'a Ending,
    shown: &'a Value,
    holds: &'a [&'a Hold],
}

impl Evidence<'_> {
    pub(crate) fn check(&self) -> Report {
        let Notes { published, holds, unexpected, killed, hung_up } = self.notes;
        let mut report = Report::new(VIOLATIONS);
        report.count("ok", published.len());
        report.count("handed", holds.len());
        report.count("killed", *killed);
        report.count("hung up", *hung_up);
        unexpected.iter().for_each(|what| report.violate("unexpected", what));
        let mut of_entry: HashMap<&str, Vec<&Hold>> = HashMap::new();
        for hold in holds {
            of_entry.entry(&hold.entry).or_default().push(hold);
        }
        let mut known = BTreeSet::new();
        for entry in published {
            if !known.insert(entry.id.as_str()) {
                report.violate("duplicates", format!("{} was published twice", entry.id));
            }
        }
        for id in self.listed.keys().map(String::as_str).chain(of_entry.keys().copied()) {
            if !known.contains(id) {
                report.violate("duplicates", format!("{id} was published by nobody"));
            }
        }
        for entry in published {
            let holds = of_entry.get(entry.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            match (self.endings.get(&entry.id), self.listed.get(&entry.id)) {
                (Some(ending), Some(shown)) => {
                    Case { report: &mut report, entry, ending, shown, holds }.check();
                }
                _ => report.violate("lost", &entry.id),
            }
        }
        report
    }
}

impl Case<'_> {
    fn check(mut self) {
        let Self { entry, ending, holds, .. } = self;
        let was_there = ending.log.first().is_some_and(|first| first.at.as_millis() < entry.sent);
        self.report.count("recovered", usize::from(entry.is_doubtful && was_there));
        let starts = self.check_log();
        self.report.count("unheard", (starts as usize).saturating_sub(holds.len()));
        self.check_holds(starts);
        for hold in holds {
            self.check_writes(hold);
        }
        if !ending.state.is_terminal() {
            return self.violate("unfinished", format!("is {} after {starts} attempts", ending.state.as_str()));
        }
        if !is_whole(&ending.log) {
            self.violate("broken logs", "has a log that is not whole");
        }
        self.check_errors(starts);
        let as_it_is = || format!("is {} after {:?}", ending.state.as_str(), ending.errors);
        if entry.is_poisonous {
            let is_dead = ending.is_letter && ending.state == TaskState::Failed;
            if is_dead && ending.errors.len() == ATTEMPTS as usize {
                self.report.count("letters", 1);
            } else {
                self.violate("wrong letters", as_it_is());
            }
        } else if ending.state == TaskState::Completed {
            self.check_result();
        } else {
            self.violate("given up", as_it_is());
        }
    }

    /// An entry that somebody has is not given to anybody else. Returns how often it was given to somebody.
    fn check_log(&mut self) -> u32 {
        let mut starts = 0;
        let mut is_held = false;
        for event in &self.ending.log {
            match event.kind {
                EventKind::Started(_) => {
                    starts += 1;
                    if is_held {
                        self.violate("shared", format!("was given away as attempt {starts} while somebody had it"));
                    }
                    is_held = true;
                }
                EventKind::Status { state, .. } if state != TaskState::Working => is_held = false,
                _ => {}
            }
        }
        starts
    }

    fn check_holds(&mut self, starts: u32) {
        let holds = self.holds;
        for (number, hold) in holds.iter().enumerate() {
            if hold.attempt > starts {
                self.violate("duplicates", format!("has no attempt {}, which {} made", hold.attempt, hold.worker));
            }
            for other in &holds[number + 1..] {
                let (first, then) = if hold.attempt < other.attempt { (hold, other) } else { (other, hold) };
                let is_same = first.attempt == then.attempt;
                let is_too_soon = then.got < first.sure_until_as_of(then.got) && !first.may_have_ended_by(then.got);
                if is_same || is_too_soon {
                    self.violate("shared", format!("was held at once by {} and {}", first.worker, then.worker));
                }
            }
        }
    }

    fn check_writes(&mut self, hold: &Hold) {
        let mut ended = false;
        let mut acked = false;
        let mut accepted = 0;
        let mut beats = 0;
        for write in &hold.writes {
            let is_taken = |other: &&&Hold| other.attempt > hold.attempt && other.got < write.sent;
            let successor = self.holds.iter().find(is_taken);
            match write.outcome {
                Outcome::Accepted if write.knew || successor.is_some() => {
                    let to = successor.map_or("nobody", |other| other.worker.as_str());
                    let what = format!("took the {:?} of {} after its lease was lost to {to}", write.verb, hold.worker);
                    self.violate("late", what);
                }
                Outcome::Refused if ended => self.report.count("repeated", 1),
                Outcome::Refused if write.answered < hold.sure_until_as_of(write.sent) => {
                    let left = hold.sure_until_as_of(write.sent) - write.answered;
                    let what = format!("refused the {:?} of {}, with {left} ms left", write.verb, hold.worker);
                    self.violate("robbed", what);
                }
                Outcome::Refused => self.report.count("refused", 1),
                Outcome::Accepted | Outcome::Unknown => {}
            }
            let is_accepted = write.outcome == Outcome::Accepted;
            beats += usize::from(write.verb == Verb::Heartbeat && is_accepted);
            // An ack that is said again is answered the same, and ends nothing.
            let is_repetition = write.verb == Verb::Ack && is_accepted && acked;
            self.report.count("repeated", usize::from(is_repetition));
            acked |= write.verb == Verb::Ack && write.outcome != Outcome::Refused;
            if write.verb.is_end() {
                accepted += usize::from(is_accepted && !is_repetition);
                ended |= write.outcome != Outcome::Refused;
                self.report.count("held on", usize::from(is_accepted && beats >= 4));
            }
        }
        if accepted > 1 {
            self.violate("twice", format!("took {accepted} ends of attempt {}", hold.attempt));
        }
    }

    /// Every attempt that failed is in the history, once, with what its worker said; and nothing else is.
    fn check_errors(&mut self, starts: u32) {
        let Self { ending, holds, .. } = *self;
        for failed in &ending.errors {
            let hold = holds.iter().find(|hold| hold.attempt == failed.attempt);
            let has_lapsed = failed.error == format!("the lease of {} ran out", failed.worker);
            let is_true = match hold {
                Some(hold) if has_lapsed => {
                    hold.worker == failed.worker && hold.ends(Outcome::Accepted).next().is_none()
                }
                Some(hold) => {
                    let says_so = |write: &Write| write.verb == Verb::Nack && write.says == failed.error;
                    let mut may_be = hold.ends(Outcome::Accepted).chain(hold.ends(Outcome::Unknown));
                    hold.worker == failed.worker && may_be.any(says_so)
                }
                None => has_lapsed,
            };
            self.report.count(if has_lapsed { "lapsed" } else { "nacked" }, 1);
            if !is_true {
                self.violate("wrong errors", format!("remembers {failed:?} of {hold:?}"));
            }
        }
        if !ending.errors.is_sorted_by(|one, next| one.attempt < next.attempt) {
            self.violate(
                "wrong errors",
                format!("remembers an attempt twice, or in another order: {:?}", ending.errors),
            );
        }
        for hold in holds {
            if ending.errors.iter().any(|failed| failed.attempt == hold.attempt) {
                continue;
            }
            let is_last = hold.attempt == starts && ending.state == TaskState::Completed;
            let mut ends = hold.ends(Outcome::Accepted).chain(hold.ends(Outcome::Unknown));
            let is_given_back = ends.any(|write| write.verb == Verb::Release);
            self.report.count("released", usize::from(is_given_back));
            if !is_last && !is_given_back {
                self.violate("wrong errors", format!("has forgotten {hold:?}"));
            }
        }
    }

    /// The result is that of the one ack that was accepted, or of an ack whose answer never came.
    fn check_result(&mut self) {
        let Self { entry, ending, shown, holds, .. } = *self;
        let acks = |outcome: Outcome| {
            // An ack that is repeated under one lease is one ack, the first.
            let of_each =
                holds.iter().flat_map(move |hold| hold.ends(outcome).filter(|write| write.verb == Verb::Ack).take(1));
            of_each.collect::<Vec<&Write>>()
        };
        let (accepted, unknown) = (acks(Outcome::Accepted), acks(Outcome::Unknown));
        if accepted.len() > 1 {
            self.violate("twice", format!("took {} acks", accepted.len()));
        }
        let may_be = if accepted.is_empty() { unknown } else { accepted };
        let parts: Vec<&Value> = ["artifacts", "parts"].iter().fold(vec![shown], |found, name| {
            found.into_iter().flat_map(|value| value[*name].as_array().into_iter().flatten()).collect()
        });
        let is_said = |part: &Value| {
            let said =
                |write: &&Write| serde_json::from_str::<Value>(&write.says).is_ok_and(|says| says == part["data"]);
            may_be.iter().any(said)
        };
        let is_right = matches!(parts.as_slice(), [part] if is_said(part));
        let is_itself = ending.replays == entry.replays && shown["contextId"] == entry.context.as_str();
        if !is_right || !is_itself {
            self.violate("wrong results", format!("has {parts:?}, where {may_be:?} was acknowledged"));
        } else {
            self.report.count(if entry.replays.is_some() { "replayed" } else { "good" }, 1);
        }
    }

    fn violate(&mut self, violation: &str, what: impl AsRef<str>) {
        self.report.violate(violation, format!("{} {}", self.entry.id, what.as_ref()));
    }
}

impl Hold {
    /// Until when the lease lasts at least, by what was said until then.
    fn sure_until_as_of(&self, at: i64) -> i64 {
        let lasts = i64::try_from(LEASE.as_millis()).unwrap_or_default();
        let renewals = self.writes.iter().filter(|write| write.verb == Verb::Heartbeat && write.sent < at);
        let renewals = renewals.filter(|write| write.outcome == Outcome::Accepted).map(|write| write.sent + lasts);
        renewals.chain([self.sure_until]).max().unwrap_or_default()
    }

    fn ends(&self, outcome: Outcome) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |write| write.verb.is_end() && write.outcome == outcome)
    }
}

#[cfg(test)]
mod tests {
    use a2a::Timestamp;
    use serde_json::json;
    use store::Start;

    use super::*;

    const STARTED: EventKind = EventKind::Started(Start::First);
    const AGAIN: EventKind = EventKind::Status { state: TaskState::Submitted, ends_turn: false };
    const COMPLETED: EventKind = EventKind::Status { state: TaskState::Completed, ends_turn: true };
    const FAILED: EventKind = EventKind::Status { state: TaskState::Failed, ends_turn: true };

    /// An entry and its history.
    struct Story {
        entry: Published,
        ending: Ending,
        holds: Vec<Hold>,
        shown: Value,
    }

    fn write(verb: Verb, says: &str, at: i64, outcome: Outcome) -> Write {
        Write { verb, says: says.to_owned(), knew: false, sent: at, answered: at + 10, outcome }
    }

    /// Leases of one second of `w1`, `w2`, …, one second apart.
    fn hold(attempt: u32, writes: Vec<Write>) -> Hold {
        let got = i64::from(attempt) * 2000;
        Hold { entry: "e".to_owned(), worker: format!("w{attempt}"), attempt, got, sure_until: got + 1000, writes }
    }

    fn failed(attempt: u32, error: &str) -> FailedAttempt {
        FailedAttempt { attempt, at: 0, worker: format!("w{attempt}"), error: error.to_owned() }
    }

    fn log(kinds: &[EventKind]) -> Vec<Event> {
        let kinds = [&[EventKind::Created { held: false }], kinds].concat();
        let event = |(seq, kind)| Event { seq, at: Timestamp::from_millis(0), kind, body: Vec::new().into() };
        (1..).zip(kinds).map(event).collect()
    }

    impl Story {
        /// Nacked, then acknowledged.
        fn good() -> Self {
            let entry = Published {
                id: "e".to_owned(),
                context: "job".to_owned(),
                is_poisonous: false,
                sent: 0,
                is_doubtful: false,
                replays: None,
            };
            let ending = Ending {
                state: TaskState::Completed,
                is_letter: false,
                errors: vec![failed(1, "no luck")],
                replays: None,
                log: log(&[STARTED, AGAIN, STARTED, EventKind::Artifact, COMPLETED]),
            };
            let holds = vec![
                hold(1, vec![write(Verb::Nack, "no luck", 2100, Outcome::Accepted)]),
                hold(2, vec![write(Verb::Ack, "2", 4100, Outcome::Accepted)]),
            ];
            let shown = json!({"id": "e", "contextId": "job", "artifacts": [{"parts": [{"data": 2}]}]});
            Self { entry, ending, holds, shown }
        }

        /// Nacked, left alone, nacked: a dead letter.
        fn poisonous() -> Self {
            let mut story = Self::good();
            story.entry.is_poisonous = true;
            story.holds = vec![
                hold(1, vec![write(Verb::Nack, "no luck", 2100, Outcome::Accepted)]),
                hold(2, Vec::new()),
                hold(3, vec![write(Verb::Nack, "never", 6100, Outcome::Unknown)]),
            ];
            let errors = vec![failed(1, "no luck"), failed(2, "the lease of w2 ran out"), failed(3, "never")];
            let log = log(&[STARTED, AGAIN, STARTED, AGAIN, STARTED, FAILED]);
            story.ending = Ending { state: TaskState::Failed, is_letter: true, errors, replays: None, log };
            story
        }

        fn report(self) -> Report {
            let Self { entry, ending, holds, shown } = self;
            let notes = Notes { published: vec![entry], holds, ..Notes::default() };
            let endings = HashMap::from([("e".to_owned(), ending)]);
            let listed = HashMap::from([("e".to_owned(), shown)]);
            Evidence { notes: &notes, endings: &endings, listed: &listed }.check()
        }

        /// The violations that are seen when this is changed.
        #[track_caller]
        fn after(mut self, change: impl FnOnce(&mut Self)) -> Vec<&'static str> {
            change(&mut self);
            self.report().broken()
        }
    }

    #[test]
    fn allowed_histories_are_clean() {
        Story::good().report().assert_clean(&[("good", 1), ("nacked", 1)]);
        Story::poisonous().report().assert_clean(&[("letters", 1), ("lapsed", 1)]);
        let unheard = Story::good().after(|story| story.holds[1].writes[0].outcome = Outcome::Unknown);
        assert!(unheard.is_empty(), "{unheard:?}");
        let twice = write(Verb::Ack, "2", 4200, Outcome::Refused);
        let repeated = Story::good().after(|story| story.holds[1].writes.push(twice));
        assert!(repeated.is_empty(), "{repeated:?}");
        let refused =
            Story::poisonous().after(|story| story.holds[1].writes.push(write(Verb::Ack, "1", 5500, Outcome::Refused)));
        assert!(refused.is_empty(), "{refused:?}");
        let given_back = Story::good().after(|story| {
            story.holds[0].writes[0].verb = Verb::Release;
            story.ending.errors.clear();
        });
        assert!(given_back.is_empty(), "{given_back:?}");
    }

    #[test]
    fn lost_and_made_up_entries_are_noticed() {
        let notes = Notes { published: vec![Story::good().entry], ..Notes::default() };
        let empty = (HashMap::new(), HashMap::new());
        let report = Evidence { notes: &notes, endings: &empty.0, listed: &empty.1 }.check();
        assert_eq!(report.broken(), ["lost"], "{report}");
        assert_eq!(Story::good().after(|story| story.entry.id = "f".to_owned()), ["lost", "duplicates"]);
        let held_by_a_ghost = |story: &mut Story| story.holds.push(hold(3, Vec::new()));
        assert_eq!(Story::good().after(held_by_a_ghost), ["duplicates", "wrong errors"]);
        let is_open = |story: &mut Story| story.ending.state = TaskState::Submitted;
        assert_eq!(Story::good().after(is_open), ["unfinished"]);
        let has_a_gap = |story: &mut Story| story.ending.log[1].seq = 7;
        assert_eq!(Story::good().after(has_a_gap), ["broken logs"]);
    }

    #[test]
    fn a_lease_that_does_not_hold_is_noticed() {
        let knew = |story: &mut Story| story.holds[1].writes[0].knew = true;
        assert_eq!(Story::good().after(knew), ["late"]);
        let came_late = |story: &mut Story| story.holds[0].writes[0].sent = 4050;
        assert_eq!(Story::good().after(came_late), ["late"]);
        let too_soon = |story: &mut Story| story.holds[2].got = 4900;
        assert_eq!(Story::poisonous().after(too_soon), ["shared"]);
        let in_spite_of_a_heartbeat = |story: &mut Story| {
            story.holds[1].writes.push(write(Verb::Heartbeat, "", 4900, Outcome::Accepted));
            story.holds[2].got = 5800;
        };
        assert_eq!(Story::poisonous().after(in_spite_of_a_heartbeat), ["shared"]);
        let to_two = |story: &mut Story| story.holds.push(hold(2, Vec::new()));
        assert_eq!(Story::poisonous().after(to_two), ["shared"]);
        let in_the_log = |story: &mut Story| story.ending.log[2].kind = EventKind::Note;
        assert_eq!(Story::good().after(in_the_log), ["shared"]);
        let early = |story: &mut Story| story.holds[1].writes.push(write(Verb::Ack, "1", 4500, Outcome::Refused));
        assert_eq!(Story::poisonous().after(early), ["robbed"]);
    }

    #[test]
    fn another_result_is_noticed() {
        let other = |story: &mut Story| story.shown["artifacts"][0]["parts"][0]["data"] = json!(1);
        assert_eq!(Story::good().after(other), ["wrong results"]);
        let mixed = |story: &mut Story| story.shown["artifacts"] = json!([{"parts": [{"data": 2}, {"data": 2}]}]);
        assert_eq!(Story::good().after(mixed), ["wrong results"]);
        let of_another = |story: &mut Story| story.shown["contextId"] = json!("another");
        assert_eq!(Story::good().after(of_another), ["wrong results"]);
        let again = |story: &mut Story| story.holds[1].writes.push(write(Verb::Ack, "2", 4200, Outcome::Accepted));
        assert!(Story::good().after(again).is_empty(), "an ack that is said again is answered the same");
        let back = |story: &mut Story| story.holds[1].writes.push(write(Verb::Release, "", 4200, Outcome::Accepted));
        assert_eq!(Story::good().after(back), ["twice"]);
        let failed = |story: &mut Story| {
            story.ending.state = TaskState::Failed;
            story.ending.log = log(&[STARTED, AGAIN, STARTED, FAILED]);
            story.holds[1].writes.clear();
            story.ending.errors.push(failed(2, "the lease of w2 ran out"));
        };
        assert_eq!(Story::good().after(failed), ["given up"]);
    }

    #[test]
    fn another_history_is_noticed() {
        let too_few = |story: &mut Story| {
            story.holds.truncate(2);
            story.ending.errors.truncate(2);
            story.ending.log = log(&[STARTED, AGAIN, STARTED, FAILED]);
        };
        assert_eq!(Story::poisonous().after(too_few), ["wrong letters"]);
        assert_eq!(Story::poisonous().after(|story| story.ending.is_letter = false), ["wrong letters"]);
        let forgotten = |story: &mut Story| story.ending.errors.clear();
        assert_eq!(Story::good().after(forgotten), ["wrong errors"]);
        let made_up = |story: &mut Story| story.ending.errors[0].error = "something else".to_owned();
        assert_eq!(Story::good().after(made_up), ["wrong errors"]);
        let of_another = |story: &mut Story| story.ending.errors[0].worker = "w2".to_owned();
        assert_eq!(Story::good().after(of_another), ["wrong errors"]);
        let refused = |story: &mut Story| {
            story.holds[0].writes[0].outcome = Outcome::Refused;
            story.holds[0].sure_until = 0;
        };
        assert_eq!(Story::good().after(refused), ["wrong errors"]);
        let ran_out = |story: &mut Story| story.ending.errors[0].error = "the lease of w1 ran out".to_owned();
        assert_eq!(Story::good().after(ran_out), ["wrong errors"], "it had ended before");
        let twice = |story: &mut Story| story.ending.errors.push(failed(1, "no luck"));
        assert_eq!(Story::good().after(twice), ["wrong errors"]);
    }
}
