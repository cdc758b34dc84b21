//! What publishers and workers were told, compared with what became of the entries.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

use a2a::TaskState;
use serde_json::Value;
use store::{Event, EventKind, FailedAttempt};

use super::{
    log::is_whole,
    notes::{Hold, Notes, Outcome, Published, Verb, Write},
    site::{ATTEMPTS, LEASE},
};

/// How many words there are about what is wrong.
const SAMPLES: usize = 8;

/// What was found after a storm. The names are those of the other suites, as far as they mean the same.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) kills: usize,
    /// Requests.
    pub(crate) attempts: usize,
    /// Entries that were acknowledged.
    ok: usize,
    /// Of these, entries that a request had made whose answer never came.
    recovered: usize,
    /// Good ones that completed, dead letters, and those of them that completed when they were replayed.
    pub(crate) good: usize,
    pub(crate) letters: usize,
    pub(crate) replayed: usize,
    /// How often an entry was handed to somebody, and how often somebody who had gone away.
    handed: usize,
    unheard: usize,
    /// Attempts that ended with a nack, by a lease that ran out, and those that were given back and do not count.
    nacked: usize,
    lapsed: usize,
    released: usize,
    /// Workers that were killed or died of their work, that hung up, and that held on to an entry for longer than a lease.
    killed: usize,
    hung_up: usize,
    held_on: usize,
    /// Writes that were refused because they came late, and because they were the second of their kind.
    refused: usize,
    repeated: usize,

    /// Answers that nobody should ever get.
    unexpected: usize,
    /// Acknowledged and gone.
    lost: usize,
    /// Never ended.
    pub(crate) unfinished: usize,
    /// Entries that nobody has published, or more than once for one that somebody has.
    duplicates: usize,
    /// Logs with a gap or not exactly one end.
    broken_logs: usize,
    /// Completed with something else than what one accepted ack said, or as something else than was published.
    wrong_results: usize,
    /// Good ones that did not complete.
    given_up: usize,
    /// Accepted under a lease that somebody else had had since.
    pub(crate) late: usize,
    /// Held by two at once.
    pub(crate) shared: usize,
    /// Refused under a lease that had not run out.
    pub(crate) robbed: usize,
    /// Ends of one attempt, or acks of one entry, that were accepted although one had been before.
    twice: usize,
    /// Poisonous ones that are no dead letter after exactly their attempts, and histories of errors that are not what happened.
    wrong_letters: usize,
    wrong_errors: usize,
    /// Dead letters that could not be replayed, once, as they should be.
    pub(crate) not_replayed: usize,
    samples: Vec<String>,
}

/// What became of an entry.
pub(crate) struct Ending {
    pub(crate) state: TaskState,
    pub(crate) is_letter: bool,
    pub(crate) errors: Vec<FailedAttempt>,
    pub(crate) replays: Option<String>,
    pub(crate) log: Vec<Event>,
}

/// Everything that there is to judge.
pub(crate) struct Evidence<'a> {
    pub(crate) notes: &'a Notes,
    /// Of the entries that are there.
    pub(crate) endings: &'a HashMap<String, Ending>,
    /// All tasks, as callers see them.
    pub(crate) listed: &'a HashMap<String, Value>,
}

impl Verdict {
    /// Looks at every entry.
    pub(crate) fn on(evidence: &Evidence<'_>) -> Self {
        let Notes { published, holds, unexpected, killed, hung_up } = evidence.notes;
        let mut verdict = Self {
            ok: published.len(),
            handed: holds.len(),
            unexpected: unexpected.len(),
            killed: *killed,
            hung_up: *hung_up,
            samples: unexpected.iter().take(SAMPLES).cloned().collect(),
            ..Self::default()
        };
        let mut of_entry: HashMap<&str, Vec<&Hold>> = HashMap::new();
        for hold in holds {
            of_entry.entry(&hold.entry).or_default().push(hold);
        }
        let known: BTreeSet<&str> = published.iter().map(|entry| entry.id.as_str()).collect();
        verdict.duplicates += published.len() - known.len();
        for id in evidence.listed.keys().map(String::as_str).chain(of_entry.keys().copied()) {
            if !known.contains(id) {
                verdict.duplicates += 1;
                verdict.say(id, "was published by nobody");
            }
        }
        for entry in published {
            let holds = of_entry.get(entry.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            match (evidence.endings.get(&entry.id), evidence.listed.get(&entry.id)) {
                (Some(ending), Some(shown)) => verdict.judge(entry, ending, shown, holds),
                _ => {
                    verdict.lost += 1;
                    verdict.say(&entry.id, "is gone");
                }
            }
        }
        verdict
    }

    /// Nothing that was promised was broken.
    pub(crate) fn is_clean(&self) -> bool {
        self.ok > 0 && self.broken().into_iter().all(|(_, count)| count == 0)
    }

    /// Everything that can happen to workers has happened to some.
    pub(crate) fn had_every_trouble(&self) -> bool {
        let troubles = [
            self.killed,
            self.hung_up,
            self.held_on,
            self.unheard,
            self.nacked,
            self.lapsed,
            self.released,
            self.refused,
            self.repeated,
        ];
        troubles.into_iter().all(|count| count > 0)
    }

    /// How often each promise was broken.
    fn broken(&self) -> [(&'static str, usize); 14] {
        [
            ("unexpected", self.unexpected),
            ("lost", self.lost),
            ("unfinished", self.unfinished),
            ("duplicates", self.duplicates),
            ("broken logs", self.broken_logs),
            ("wrong results", self.wrong_results),
            ("given up", self.given_up),
            ("late", self.late),
            ("shared", self.shared),
            ("robbed", self.robbed),
            ("twice", self.twice),
            ("wrong letters", self.wrong_letters),
            ("wrong errors", self.wrong_errors),
            ("not replayed", self.not_replayed),
        ]
    }

    pub(crate) fn say(&mut self, id: &str, what: &str) {
        if self.samples.len() < SAMPLES {
            self.samples.push(format!("{id} {what}"));
        }
    }

    fn judge(&mut self, entry: &Published, ending: &Ending, shown: &Value, holds: &[&Hold]) {
        let was_there = ending.log.first().is_some_and(|first| first.at.as_millis() < entry.sent);
        self.recovered += usize::from(entry.retried && was_there);
        let starts = self.judge_log(&entry.id, &ending.log);
        self.unheard += (starts as usize).saturating_sub(holds.len());
        self.judge_holds(&entry.id, holds, starts);
        for hold in holds {
            self.judge_writes(hold, holds);
        }
        if !ending.state.is_terminal() {
            self.unfinished += 1;
            self.say(&entry.id, &format!("is still {}, after {starts} attempts", ending.state.as_str()));
            return;
        }
        if !is_whole(&ending.log) {
            self.broken_logs += 1;
            self.say(&entry.id, "has a log that is not whole");
        }
        self.judge_errors(entry, ending, holds, starts);
        if entry.is_poisonous {
            let is_dead = ending.is_letter && ending.state == TaskState::Failed;
            if is_dead && ending.errors.len() == ATTEMPTS as usize {
                self.letters += 1;
            } else {
                self.wrong_letters += 1;
                self.say(&entry.id, &format!("is {} after {:?}", ending.state.as_str(), ending.errors));
            }
        } else if ending.state == TaskState::Completed {
            self.judge_result(entry, ending, shown, holds);
        } else {
            self.given_up += 1;
            self.say(&entry.id, &format!("is {} after {:?}", ending.state.as_str(), ending.errors));
        }
    }

    /// Nobody is given what somebody has. Says how often it was given to somebody.
    fn judge_log(&mut self, id: &str, log: &[Event]) -> u32 {
        let mut starts = 0;
        let mut is_held = false;
        for event in log {
            match event.kind {
                EventKind::Started(_) => {
                    starts += 1;
                    if is_held {
                        self.shared += 1;
                        self.say(id, &format!("was given away for the {starts}. time while somebody had it"));
                    }
                    is_held = true;
                }
                EventKind::Status { state, .. } if state != TaskState::Working => is_held = false,
                _ => {}
            }
        }
        starts
    }

    fn judge_holds(&mut self, id: &str, holds: &[&Hold], starts: u32) {
        for (number, hold) in holds.iter().enumerate() {
            if hold.attempt > starts {
                self.duplicates += 1;
                self.say(id, &format!("has no attempt {}, which {} has made", hold.attempt, hold.worker));
            }
            for other in &holds[number + 1..] {
                let (first, then) = if hold.attempt < other.attempt { (hold, other) } else { (other, hold) };
                let is_same = first.attempt == then.attempt;
                let is_too_soon = then.got < first.sure_until_as_of(then.got) && !first.may_have_ended_by(then.got);
                if is_same || is_too_soon {
                    self.shared += 1;
                    self.say(id, &format!("was held at once by {} and {}", first.worker, then.worker));
                }
            }
        }
    }

    fn judge_writes(&mut self, hold: &Hold, holds: &[&Hold]) {
        let mut ended = false;
        let mut acked = false;
        let mut accepted = 0;
        let mut beats = 0;
        for write in &hold.writes {
            let is_taken = |other: &&&Hold| other.attempt > hold.attempt && other.got < write.sent;
            let successor = holds.iter().find(is_taken);
            match write.outcome {
                Outcome::Accepted if write.knew || successor.is_some() => {
                    self.late += 1;
                    let by = successor.map_or("nobody", |other| other.worker.as_str());
                    let what = format!("took the {:?} of {} after its lease was lost to {by}", write.verb, hold.worker);
                    self.say(&hold.entry, &what);
                }
                Outcome::Refused if ended => self.repeated += 1,
                Outcome::Refused if write.answered < hold.sure_until_as_of(write.sent) => {
                    self.robbed += 1;
                    let left = hold.sure_until_as_of(write.sent) - write.answered;
                    let what = format!("refused the {:?} of {}, with {left} ms left", write.verb, hold.worker);
                    self.say(&hold.entry, &what);
                }
                Outcome::Refused => self.refused += 1,
                Outcome::Accepted | Outcome::Unknown => {}
            }
            let is_accepted = write.outcome == Outcome::Accepted;
            beats += usize::from(write.verb == Verb::Heartbeat && is_accepted);
            // An ack that is said again is answered the same, and ends nothing.
            let is_repetition = write.verb == Verb::Ack && is_accepted && acked;
            self.repeated += usize::from(is_repetition);
            acked |= write.verb == Verb::Ack && write.outcome != Outcome::Refused;
            if write.verb.is_end() {
                accepted += usize::from(is_accepted && !is_repetition);
                ended |= write.outcome != Outcome::Refused;
                self.held_on += usize::from(is_accepted && beats >= 4);
            }
        }
        if accepted > 1 {
            self.twice += 1;
            self.say(&hold.entry, &format!("took {accepted} ends of attempt {}", hold.attempt));
        }
    }

    /// Every attempt that failed is in the history, once, with what its worker said; and nothing else is.
    fn judge_errors(&mut self, entry: &Published, ending: &Ending, holds: &[&Hold], starts: u32) {
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
            self.lapsed += usize::from(has_lapsed);
            self.nacked += usize::from(!has_lapsed);
            if !is_true {
                self.wrong_errors += 1;
                self.say(&entry.id, &format!("remembers {failed:?} of {hold:?}"));
            }
        }
        if !ending.errors.is_sorted_by(|one, next| one.attempt < next.attempt) {
            self.wrong_errors += 1;
            self.say(&entry.id, &format!("remembers an attempt twice, or in another order: {:?}", ending.errors));
        }
        for hold in holds {
            if ending.errors.iter().any(|failed| failed.attempt == hold.attempt) {
                continue;
            }
            let is_last = hold.attempt == starts && ending.state == TaskState::Completed;
            let mut ends = hold.ends(Outcome::Accepted).chain(hold.ends(Outcome::Unknown));
            let is_given_back = ends.any(|write| write.verb == Verb::Release);
            self.released += usize::from(is_given_back);
            if !is_last && !is_given_back {
                self.wrong_errors += 1;
                self.say(&entry.id, &format!("has forgotten {hold:?}"));
            }
        }
    }

    /// The result is that of the one ack that was accepted, or of one whose answer nobody has heard.
    fn judge_result(&mut self, entry: &Published, ending: &Ending, shown: &Value, holds: &[&Hold]) {
        let acks = |outcome: Outcome| {
            // What is said again under one lease is one ack, the first.
            let of_each =
                holds.iter().flat_map(move |hold| hold.ends(outcome).filter(|write| write.verb == Verb::Ack).take(1));
            of_each.collect::<Vec<&Write>>()
        };
        let (accepted, unknown) = (acks(Outcome::Accepted), acks(Outcome::Unknown));
        if accepted.len() > 1 {
            self.twice += 1;
            self.say(&entry.id, &format!("took {} acks", accepted.len()));
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
            self.wrong_results += 1;
            self.say(&entry.id, &format!("has {parts:?}, where {may_be:?} was acknowledged"));
        } else if entry.replays.is_some() {
            self.replayed += 1;
        } else {
            self.good += 1;
        }
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "attempts {}, ok {}, recovered {}, kills {}; good {}, letters {}, replayed {}; handed {} (unheard {}), nacked {}, \
             lapsed {}, released {}, held on {}, refused {}, repeated {}; workers killed {}, hung up {};",
            self.attempts,
            self.ok,
            self.recovered,
            self.kills,
            self.good,
            self.letters,
            self.replayed,
            self.handed,
            self.unheard,
            self.nacked,
            self.lapsed,
            self.released,
            self.held_on,
            self.refused,
            self.repeated,
            self.killed,
            self.hung_up
        )?;
        for (what, count) in self.broken() {
            write!(f, " {what} {count}")?;
        }
        for sample in &self.samples {
            write!(f, "\n  {sample}")?;
        }
        Ok(())
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

    /// One entry, and what became of it.
    struct Story {
        entry: Published,
        ending: Ending,
        holds: Vec<Hold>,
        shown: Value,
    }

    fn write(verb: Verb, says: &str, at: i64, outcome: Outcome) -> Write {
        Write { verb, says: says.to_owned(), knew: false, sent: at, answered: at + 10, outcome }
    }

    /// A hold of `w1`, `w2`, … from one second after the last, with leases of one second.
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
                retried: false,
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

        fn verdict(self) -> Verdict {
            let Self { entry, ending, holds, shown } = self;
            let notes = Notes { published: vec![entry], holds, ..Notes::default() };
            let endings = HashMap::from([("e".to_owned(), ending)]);
            let listed = HashMap::from([("e".to_owned(), shown)]);
            Verdict::on(&Evidence { notes: &notes, endings: &endings, listed: &listed })
        }

        /// What is broken when this is changed.
        #[track_caller]
        fn after(mut self, change: impl FnOnce(&mut Self)) -> Vec<&'static str> {
            change(&mut self);
            let verdict = self.verdict();
            let broken = verdict.broken().into_iter().filter(|(_, count)| *count > 0).map(|(what, _)| what).collect();
            assert_eq!(verdict.is_clean(), Vec::is_empty(&broken), "{verdict}");
            broken
        }
    }

    #[test]
    fn what_may_happen_may_happen() {
        let verdict = Story::good().verdict();
        assert!(verdict.is_clean() && verdict.good == 1 && verdict.nacked == 1, "{verdict}");
        let verdict = Story::poisonous().verdict();
        assert!(verdict.is_clean() && verdict.letters == 1 && verdict.lapsed == 1, "{verdict}");
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
    fn what_is_lost_or_made_up_is_noticed() {
        let notes = Notes { published: vec![Story::good().entry], ..Notes::default() };
        let empty = (HashMap::new(), HashMap::new());
        let verdict = Verdict::on(&Evidence { notes: &notes, endings: &empty.0, listed: &empty.1 });
        assert_eq!(verdict.lost, 1, "{verdict}");
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
