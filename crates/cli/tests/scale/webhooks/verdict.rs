//! What arrived, compared with what was owed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::{Duration, Instant},
};

use super::{
    load::Hook,
    owed::Owed,
    receiver::{Arrival, Fate},
};

/// How long after its deletion was answered a webhook may still get a request that was on its way, if it was not in the
/// middle of another one.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A request whose sender was killed may have waited for so long before it was read.
const UNREAD: Duration = Duration::from_secs(1);

/// How long an attempt may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many words there are about what is wrong.
const SAMPLES: usize = 8;

/// What was found after a storm.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) kills: usize,
    pub(crate) tasks: usize,
    pub(crate) hooks: usize,
    /// Notifications that were accepted, each counted once.
    pub(crate) told: usize,
    /// Requests.
    pub(crate) attempts: usize,
    /// Requests with something that had been accepted before, and those of them without a reason: nobody was killed, and no
    /// answer was late or withheld.
    repeated: usize,
    pub(crate) needless: usize,
    fates: BTreeMap<&'static str, usize>,
    deleted: usize,
    left: usize,
    followed: usize,

    /// Owed, and never accepted.
    pub(crate) lost: usize,
    /// Sent although something before it had not been accepted.
    pub(crate) skipped: usize,
    /// Sent again after something later was accepted.
    late: usize,
    /// Sent although it was logged before the webhook was made.
    early: usize,
    /// With an id that is not the one that it had before, or that something else has.
    pub(crate) renamed: usize,
    /// Not what the log says, or not in the webhook's version of the protocol.
    wrong: usize,
    /// With a wrong signature or token.
    forged: usize,
    /// Sent after the webhook was deleted.
    after_deletion: usize,
    /// Sent after the webhook had said that it is gone, or not shown as gone.
    after_leaving: usize,
    /// Webhooks that were not told everything in time, by what the server shows.
    pub(crate) unsettled: usize,
    /// Tasks that did not complete, and streams that were cut or are not the log.
    pub(crate) given_up: usize,
    pub(crate) cut: usize,
    pub(crate) wrong_streams: usize,
    samples: Vec<String>,
}

/// Everything that there is to judge.
pub(crate) struct Evidence<'a> {
    pub(crate) hooks: &'a [Hook],
    pub(crate) arrivals: &'a [Arrival],
    /// When servers were killed.
    pub(crate) kills: &'a [Instant],
    /// What each webhook is owed, of its whole log.
    pub(crate) owed: &'a HashMap<String, Vec<Owed>>,
}

impl Verdict {
    /// Looks at every webhook.
    pub(crate) fn on(evidence: &Evidence<'_>) -> Self {
        let mut verdict = Self {
            kills: evidence.kills.len(),
            hooks: evidence.hooks.len(),
            attempts: evidence.arrivals.len(),
            ..Self::default()
        };
        for arrival in evidence.arrivals {
            *verdict.fates.entry(arrival.fate.name()).or_default() += 1;
            if !arrival.is_genuine {
                verdict.forged += 1;
                verdict.say(arrival, "is not signed as it should be");
            }
        }
        for hook in evidence.hooks {
            let owed = evidence.owed.get(&hook.name).map(Vec::as_slice).unwrap_or_default();
            let arrivals: Vec<&Arrival> =
                evidence.arrivals.iter().filter(|arrival| arrival.hook == hook.name).collect();
            verdict.judge(hook, owed, &arrivals, evidence.kills);
        }
        verdict.judge_ids(evidence.arrivals);
        verdict
    }

    /// Nothing that was promised was broken.
    pub(crate) fn is_clean(&self) -> bool {
        self.told > 0 && self.broken().into_iter().all(|(_, count)| count == 0)
    }

    /// How often each promise was broken.
    fn broken(&self) -> [(&'static str, usize); 13] {
        [
            ("lost", self.lost),
            ("skipped", self.skipped),
            ("late", self.late),
            ("early", self.early),
            ("renamed", self.renamed),
            ("wrong", self.wrong),
            ("forged", self.forged),
            ("after deletion", self.after_deletion),
            ("after leaving", self.after_leaving),
            ("unsettled", self.unsettled),
            ("given up", self.given_up),
            ("cut", self.cut),
            ("wrong streams", self.wrong_streams),
        ]
    }

    /// Every fate there is has befallen somebody.
    pub(crate) fn had_every_trouble(&self) -> bool {
        self.fates.len() == 6 && self.deleted > 0 && self.left > 0 && self.repeated > 0 && self.followed > 0
    }

    pub(crate) fn say_of(&mut self, what: String) {
        if self.samples.len() < SAMPLES {
            self.samples.push(what);
        }
    }

    pub(crate) fn follow(&mut self, followed: usize, cut: usize, wrong: usize) {
        (self.followed, self.cut, self.wrong_streams) = (followed, cut, wrong);
    }

    fn say(&mut self, arrival: &Arrival, what: &str) {
        self.say_of(format!("{} at {}: {what}", arrival.id, arrival.hook));
    }

    /// What was accepted must be what was owed, from some event while the webhook was being made to the end, in order. What is
    /// sent must be the next of it, or the last again.
    fn judge(&mut self, hook: &Hook, owed: &[Owed], arrivals: &[&Arrival], kills: &[Instant]) {
        let first = |arrival: &&&Arrival| place(&arrival.id).is_some_and(|of| of.0 > hook.after.0);
        let begin = arrivals.iter().find(first).and_then(|arrival| {
            let begin = place(&arrival.id)?;
            owed.iter().position(|owed| owed.place == begin)
        });
        // Whatever was logged when the webhook was there for sure is owed.
        let latest = owed.iter().position(|owed| owed.place.0 > hook.after.1).unwrap_or(owed.len());
        let mut next = begin.unwrap_or(latest);
        if next > latest {
            self.skipped += next - latest;
            self.say_of(format!("{} begins with {:?}", hook.name, owed[next].place));
        }
        let mut accepted: Option<&Arrival> = None;
        for arrival in arrivals {
            let found = place(&arrival.id).and_then(|of| owed.iter().position(|owed| owed.place == of));
            let Some(found) = found else {
                self.wrong += 1;
                self.say(arrival, "is not owed at all");
                continue;
            };
            let Owed { place, .. } = owed[found];
            if !owed[found].is_said_by(hook.version(), &arrival.body) || arrival.version != hook.version() {
                self.wrong += 1;
                self.say(arrival, &format!("says {}", String::from_utf8_lossy(&arrival.body)));
            }
            if place.0 <= hook.after.0 {
                self.early += 1;
                self.say(arrival, "was logged before the webhook was made");
                continue;
            }
            if found > next {
                self.skipped += 1;
                self.say(arrival, &format!("comes before {:?} was accepted", owed[next].place));
                // One word for each that is missing, and not for all that follow.
                next = found;
            } else if found + 1 < next {
                self.late += 1;
                self.say(arrival, &format!("comes again although {:?} was accepted", owed[next - 1].place));
                continue;
            }
            if found < next {
                self.repeated += 1;
                if let Some(before) = accepted.filter(|before| !is_excused(before, arrival, kills)) {
                    self.needless += 1;
                    self.say(arrival, &format!("comes again {:?} after it was accepted", arrival.at - before.until));
                }
            }
            if arrival.fate.is_receipt() {
                accepted = Some(arrival);
                if found == next {
                    next += 1;
                    self.told += 1;
                }
            }
        }
        self.judge_the_end(hook, owed, next, arrivals, kills);
    }

    fn judge_the_end(&mut self, hook: &Hook, owed: &[Owed], next: usize, arrivals: &[&Arrival], kills: &[Instant]) {
        if let Some(left) = arrivals.iter().position(|arrival| arrival.fate == Fate::Gone) {
            self.left += 1;
            if hook.deleted.is_none() && hook.gone.is_none() {
                self.after_leaving += 1;
                self.say_of(format!("{} has left and is not shown as gone", hook.name));
            }
            for pair in arrivals[left..].windows(2) {
                let is_known = hook.gone.is_some_and(|gone| pair[1].at > gone);
                if is_known || !is_excused(pair[0], pair[1], kills) {
                    self.after_leaving += 1;
                    self.say(pair[1], "comes after the webhook has left");
                }
            }
            return;
        }
        if let Some(deleted) = hook.deleted {
            self.deleted += 1;
            let (before, after): (Vec<&Arrival>, Vec<&Arrival>) =
                arrivals.iter().partition(|arrival| arrival.at <= deleted);
            let was_being_told = before.last().is_some_and(|arrival| arrival.until > deleted);
            for (number, arrival) in after.into_iter().enumerate() {
                if was_being_told || number > 0 || arrival.at > deleted + ON_ITS_WAY {
                    self.after_deletion += 1;
                    self.say(arrival, &format!("comes {:?} after the deletion", arrival.at - deleted));
                }
            }
            return;
        }
        if next < owed.len() {
            self.lost += owed.len() - next;
            self.say_of(format!("{} of {} is not told {:?}", hook.name, hook.task, owed[next].place));
        }
    }

    /// Ids are the same for the same, and for nothing else.
    fn judge_ids(&mut self, arrivals: &[Arrival]) {
        let mut ids: HashMap<&str, &Arrival> = HashMap::new();
        let mut places: HashMap<(&str, (u64, u32)), &Arrival> = HashMap::new();
        for arrival in arrivals {
            let known = ids.entry(&arrival.id).or_insert(arrival);
            if (&known.hook, &known.body) != (&arrival.hook, &arrival.body) {
                self.renamed += 1;
                let text = format!("is the id of something else, at {}", known.hook);
                self.say(arrival, &text);
            }
            let Some(place) = place(&arrival.id) else { continue };
            let before = places.entry((&arrival.hook, place)).or_insert(arrival);
            if before.id != arrival.id {
                self.renamed += 1;
                let text = format!("was {}", before.id);
                self.say(arrival, &text);
            }
        }
    }
}

impl Fate {
    /// Whether the receiver has it, whatever its sender knows.
    fn is_receipt(self) -> bool {
        matches!(self, Self::Accepted | Self::Swallowed)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Swallowed => "swallowed",
            Self::PutOff => "put off",
            Self::Hung => "hung",
            Self::Reset => "reset",
            Self::Gone => "gone",
        }
    }
}

/// Whether there is a reason to send something again that was answered: its sender was killed, or it has waited for as long as it
/// does, on a machine that is busy.
fn is_excused(before: &Arrival, again: &Arrival, kills: &[Instant]) -> bool {
    let was_killed = kills.iter().any(|kill| *kill + UNREAD > before.at && *kill < again.at);
    let was_late = again.at.duration_since(before.at) >= TIMEOUT;
    was_killed || was_late || !matches!(before.fate, Fate::Accepted | Fate::Gone)
}

/// The event that an id names, and which of its notifications: `msg_TASK_WEBHOOK_EVENT` or `msg_TASK_WEBHOOK_EVENT_PART`.
fn place(id: &str) -> Option<(u64, u32)> {
    let mut parts = id.strip_prefix("msg_")?.split('_').skip(2);
    let seq = parts.next()?.parse().ok()?;
    let part = parts.next().map_or(Some(0), |part| part.parse().ok())?;
    parts.next().is_none().then_some((seq, part))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kills {}, tasks {}, webhooks {} (deleted {}, left {}), told {}, attempts {} {:?}, repeated {} (needless {}), followed {};",
            self.kills,
            self.tasks,
            self.hooks,
            self.deleted,
            self.left,
            self.told,
            self.attempts,
            self.fates,
            self.repeated,
            self.needless,
            self.followed
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
    use a2a::{TaskState, Timestamp};
    use serde_json::json;
    use store::{Event, EventKind, Start};

    use super::*;
    use crate::scale::webhooks::owed::owed;

    /// What a webhook with the whole log is owed: 1, 2, and of event 4 the artifact and the end.
    fn log() -> Vec<Event> {
        let status = |state: &str| json!({"statusUpdate": {"status": {"state": state}}});
        let chunk = json!({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "hello"}]}}});
        let events = [
            (EventKind::Created { held: false }, json!({"task": {"status": {"state": "TASK_STATE_SUBMITTED"}}})),
            (EventKind::Started(Start::First), status("TASK_STATE_WORKING")),
            (EventKind::Artifact, chunk),
            (EventKind::Status { state: TaskState::Completed, ends_turn: true }, status("TASK_STATE_COMPLETED")),
        ];
        let at = Timestamp::from_millis(0);
        let event = |(seq, (kind, body)): (u64, (EventKind, serde_json::Value))| Event {
            seq,
            at,
            kind,
            body: body.to_string().into(),
        };
        (1..).zip(events).map(event).collect()
    }

    /// What a receiver has seen, a tenth of a second apart.
    struct Story {
        begun: Instant,
        hook: Hook,
        arrivals: Vec<Arrival>,
        kills: Vec<Instant>,
    }

    impl Story {
        fn new(told: &[(&str, Fate)]) -> Self {
            let begun = Instant::now();
            let mut story = Self { begun, hook: Hook::named("hook"), arrivals: Vec::new(), kills: Vec::new() };
            for (number, (place, fate)) in (0..).zip(told) {
                let at = story.after(number);
                let body = match *place {
                    "4_1" => {
                        json!({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "hello"}]}, "lastChunk": true}})
                    }
                    "1" | "2" | "4_2" => {
                        let seq = place.split('_').next().and_then(|seq| seq.parse().ok()).unwrap_or(0);
                        let event = log().into_iter().find(|event| event.seq == seq).expect("it is in the log");
                        serde_json::from_slice(&event.body).expect("it is JSON")
                    }
                    _ => json!({}),
                };
                story.arrivals.push(Arrival {
                    hook: "hook".to_owned(),
                    id: format!("msg_task_00000000_{place}"),
                    at,
                    until: at,
                    fate: *fate,
                    body: body.to_string().into(),
                    version: "1.0".to_owned(),
                    is_genuine: true,
                });
            }
            story
        }

        fn after(&self, tenths: u64) -> Instant {
            self.begun + Duration::from_millis(100 * tenths)
        }

        fn verdict(&self) -> Verdict {
            Verdict::on(&Evidence {
                hooks: std::slice::from_ref(&self.hook),
                arrivals: &self.arrivals,
                kills: &self.kills,
                owed: &HashMap::from([("hook".to_owned(), owed(&log(), false))]),
            })
        }
    }

    const OK: Fate = Fate::Accepted;
    const ALL: [(&str, Fate); 4] = [("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)];

    #[test]
    fn what_is_told_as_it_should_be_is_clean() {
        let verdict = Story::new(&ALL).verdict();
        assert!(verdict.is_clean() && verdict.told == 4, "{verdict}");
        let again = [("1", Fate::Reset), ("1", Fate::Swallowed), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)];
        let verdict = Story::new(&again).verdict();
        assert!(verdict.is_clean() && verdict.told == 4, "{verdict}");
        assert_eq!((verdict.repeated, verdict.needless), (1, 0), "nobody had said that it was received");
        let verdict = Story::new(&[("1", OK), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)]).verdict();
        assert_eq!((verdict.is_clean(), verdict.needless), (true, 1), "somebody had");
    }

    #[test]
    fn what_is_missing_or_out_of_order_is_noticed() {
        let verdict = Story::new(&ALL[..3]).verdict();
        assert_eq!((verdict.lost, verdict.skipped), (1, 0), "{verdict}");
        let verdict = Story::new(&[]).verdict();
        assert_eq!(verdict.lost, 4, "{verdict}");
        let verdict = Story::new(&ALL[1..]).verdict();
        assert_eq!(verdict.skipped, 1, "it begins too late: {verdict}");
        let verdict = Story::new(&[("1", OK), ("4_1", OK), ("4_2", OK)]).verdict();
        assert_eq!(verdict.skipped, 1, "{verdict}");
        let verdict = Story::new(&[("1", Fate::PutOff), ("2", OK), ("4_1", OK), ("4_2", OK)]).verdict();
        assert_eq!(verdict.skipped, 1, "the first was never accepted: {verdict}");
        let verdict = Story::new(&[("1", OK), ("2", OK), ("1", OK), ("4_1", OK), ("4_2", OK)]).verdict();
        assert_eq!(verdict.late, 1, "{verdict}");
    }

    #[test]
    fn what_is_not_owed_or_says_something_else_is_noticed() {
        let mut late = Story::new(&ALL);
        late.hook.after = (1, 1);
        assert_eq!(late.verdict().early, 1);
        let mut in_between = Story::new(&ALL[1..]);
        in_between.hook.after = (0, 1);
        assert!(in_between.verdict().is_clean(), "it was made before or after the first event");
        assert_eq!(Story::new(&[("1", OK), ("2", OK), ("3", OK), ("4_1", OK), ("4_2", OK)]).verdict().wrong, 1);
        let mut other = Story::new(&ALL);
        other.arrivals[1].body = b"{}".to_vec();
        assert_eq!(other.verdict().wrong, 1);
        let mut old = Story::new(&ALL);
        old.hook.is_old = true;
        assert_eq!(old.verdict().wrong, 4, "it asked for another version");
        let mut forged = Story::new(&ALL);
        forged.arrivals[2].is_genuine = false;
        assert_eq!(forged.verdict().forged, 1);
    }

    #[test]
    fn another_id_is_noticed() {
        let mut other = Story::new(&[("1", Fate::Reset), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)]);
        other.arrivals[1].id = "msg_task_11111111_1".to_owned();
        assert_eq!(other.verdict().renamed, 1);
        let mut same = Story::new(&[("1", Fate::Reset), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)]);
        same.arrivals[0].body = b"{}".to_vec();
        assert_eq!(same.verdict().renamed, 1, "two things have one id");
    }

    #[test]
    fn what_comes_after_a_deletion_is_noticed() {
        let mut deleted = Story::new(&ALL[..3]);
        deleted.hook.deleted = Some(deleted.after(1) + Duration::from_millis(50));
        assert!(deleted.verdict().is_clean(), "the last one was on its way");
        deleted.arrivals[1].until = deleted.after(2);
        assert_eq!(deleted.verdict().after_deletion, 1, "it was not: another one was");
        deleted.arrivals[1].until = deleted.arrivals[1].at;
        deleted.hook.deleted = Some(deleted.begun);
        assert_eq!(deleted.verdict().after_deletion, 1, "there is only one on its way");
    }

    #[test]
    fn what_comes_after_a_receiver_has_left_is_noticed() {
        let mut left = Story::new(&[("1", OK), ("2", Fate::Gone)]);
        assert_eq!(left.verdict().after_leaving, 1, "the server does not know it");
        left.hook.gone = Some(left.after(2));
        assert!(left.verdict().is_clean());
        let mut told = Story::new(&[("1", OK), ("2", Fate::Gone), ("2", Fate::Gone)]);
        told.hook.gone = Some(told.after(3));
        assert_eq!(told.verdict().after_leaving, 1);
        told.kills.push(told.after(1));
        assert!(told.verdict().is_clean(), "who was told so was killed");
        told.hook.gone = Some(told.after(1));
        assert_eq!(told.verdict().after_leaving, 1, "who had understood it remembers it");
    }
}
