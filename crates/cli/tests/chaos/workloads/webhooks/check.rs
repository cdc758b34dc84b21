//! What arrived at receivers, compared with what each webhook is owed.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    Report,
    load::Hook,
    owed::Owed,
    receiver::{Arrival, Fate},
};

/// How long after its deletion was answered a webhook may still get a request that was on its way, if it was not in the
/// middle of another one.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// How long a request whose sender was killed may have waited before it was read.
const UNREAD: Duration = Duration::from_secs(1);

/// How long an attempt may take.
const TIMEOUT: Duration = Duration::from_secs(1);

const VIOLATIONS: &[(&str, &str)] = &[
    ("lost", "owed, and never accepted"),
    ("skipped", "sent although something before it had not been accepted"),
    ("late", "sent again after something later was accepted"),
    ("early", "sent although it was logged before the webhook was made"),
    ("renamed", "with another id than it had before, or with the id of something else"),
    ("wrong", "not what the log says, or not in the webhook's version of the protocol"),
    ("forged", "with a wrong signature or token"),
    ("after deletion", "sent after the webhook was deleted"),
    ("after leaving", "sent after the webhook had left, or left and not shown as gone"),
    ("unsettled", "not delivered in time, by what the server shows"),
    ("given up", "a task that did not complete"),
    ("cut", "a stream that ended although no instance was killed"),
    ("wrong streams", "a stream that differs from its log"),
];

/// Everything that there is to compare.
pub(crate) struct Evidence<'a> {
    pub(crate) hooks: &'a [Hook],
    pub(crate) arrivals: &'a [Arrival],
    /// When servers were killed.
    pub(crate) kills: &'a [Instant],
    /// What each webhook is owed, of its whole log.
    pub(crate) owed: &'a HashMap<String, Vec<Owed>>,
}

/// One webhook.
struct Case<'a> {
    hook: &'a Hook,
    owed: &'a [Owed],
    arrivals: Vec<&'a Arrival>,
    kills: &'a [Instant],
}

impl Evidence<'_> {
    pub(crate) fn check(&self) -> Report {
        let mut report = Report::new(VIOLATIONS);
        report.count("webhooks", self.hooks.len());
        report.count("attempts", self.arrivals.len());
        for arrival in self.arrivals {
            report.count(arrival.fate.name(), 1);
            if !arrival.is_genuine {
                report.violate("forged", arrival.at_hook("is not signed as it should be"));
            }
        }
        for hook in self.hooks {
            let owed = self.owed.get(&hook.name).map(Vec::as_slice).unwrap_or_default();
            let arrivals = self.arrivals.iter().filter(|arrival| arrival.hook == hook.name).collect();
            Case { hook, owed, arrivals, kills: self.kills }.check(&mut report);
        }
        self.check_ids(&mut report);
        report
    }

    /// Ids are the same for the same notification, and for no other.
    fn check_ids(&self, report: &mut Report) {
        let mut ids: HashMap<&str, &Arrival> = HashMap::new();
        let mut places: HashMap<(&str, (u64, u32)), &Arrival> = HashMap::new();
        for arrival in self.arrivals {
            let known = ids.entry(&arrival.id).or_insert(arrival);
            if (&known.hook, &known.body) != (&arrival.hook, &arrival.body) {
                report.violate("renamed", arrival.at_hook(&format!("is the id of something else, at {}", known.hook)));
            }
            let Some(place) = place(&arrival.id) else { continue };
            let before = places.entry((&arrival.hook, place)).or_insert(arrival);
            if before.id != arrival.id {
                report.violate("renamed", arrival.at_hook(&format!("was {}", before.id)));
            }
        }
    }
}

impl Case<'_> {
    /// What was accepted must be what was owed, from some event while the webhook was being made to the end, in order. Each
    /// request must be about the next notification, or about the last one again.
    fn check(&self, report: &mut Report) {
        let Self { hook, owed, arrivals, .. } = self;
        let first = |arrival: &&&Arrival| place(&arrival.id).is_some_and(|of| of.0 > hook.after.0);
        let begin = arrivals.iter().find(first).and_then(|arrival| {
            let begin = place(&arrival.id)?;
            owed.iter().position(|owed| owed.place == begin)
        });
        // Everything that was logged when the webhook was there for sure is owed.
        let latest = owed.iter().position(|owed| owed.place.0 > hook.after.1).unwrap_or(owed.len());
        let mut next = begin.unwrap_or(latest);
        for missing in owed.iter().take(next).skip(latest) {
            report.violate("skipped", format!("{} begins after {:?}", hook.name, missing.place));
        }
        let mut accepted: Option<&Arrival> = None;
        for arrival in arrivals {
            let found = place(&arrival.id).and_then(|of| owed.iter().position(|owed| owed.place == of));
            let Some(found) = found else {
                report.violate("wrong", arrival.at_hook("is not owed at all"));
                continue;
            };
            if !owed[found].is_said_by(hook.version(), &arrival.body) || arrival.version != hook.version() {
                report.violate("wrong", arrival.at_hook(&format!("says {}", String::from_utf8_lossy(&arrival.body))));
            }
            if owed[found].place.0 <= hook.after.0 {
                report.violate("early", arrival.at_hook("was logged before the webhook was made"));
                continue;
            }
            if found > next {
                report
                    .violate("skipped", arrival.at_hook(&format!("comes before {:?} was accepted", owed[next].place)));
                // One violation for each that is missing, and not for all that follow.
                next = found;
            } else if found + 1 < next {
                let accepted = owed[next - 1].place;
                report.violate("late", arrival.at_hook(&format!("comes again although {accepted:?} was accepted")));
                continue;
            }
            if found < next {
                report.count("repeated", 1);
                let needless = accepted.is_some_and(|before| !is_excused(before, arrival, self.kills));
                report.count("needless", usize::from(needless));
            }
            if arrival.fate.is_receipt() {
                accepted = Some(arrival);
                if found == next {
                    next += 1;
                    report.count("delivered", 1);
                }
            }
        }
        self.check_the_end(next, report);
    }

    fn check_the_end(&self, next: usize, report: &mut Report) {
        let Self { hook, owed, arrivals, kills } = self;
        if let Some(left) = arrivals.iter().position(|arrival| arrival.fate == Fate::Gone) {
            report.count("left", 1);
            if hook.deleted.is_none() && hook.gone.is_none() {
                report.violate("after leaving", format!("{} has left and is not shown as gone", hook.name));
            }
            for pair in arrivals[left..].windows(2) {
                let is_known = hook.gone.is_some_and(|gone| pair[1].at > gone);
                if is_known || !is_excused(pair[0], pair[1], kills) {
                    report.violate("after leaving", pair[1].at_hook("comes after the webhook has left"));
                }
            }
        } else if let Some(deleted) = hook.deleted {
            report.count("deleted", 1);
            let (before, after): (Vec<&Arrival>, Vec<&Arrival>) =
                arrivals.iter().partition(|arrival| arrival.at <= deleted);
            let was_being_told = before.last().is_some_and(|arrival| arrival.until > deleted);
            for (number, arrival) in after.into_iter().enumerate() {
                if was_being_told || number > 0 || arrival.at > deleted + ON_ITS_WAY {
                    let late = arrival.at - deleted;
                    report.violate("after deletion", arrival.at_hook(&format!("comes {late:?} after the deletion")));
                }
            }
        } else {
            for missing in &owed[next.min(owed.len())..] {
                report.violate("lost", format!("{:?} of {} at {}", missing.place, hook.task, hook.name));
            }
        }
    }
}

impl Arrival {
    fn at_hook(&self, what: &str) -> String {
        format!("{} at {} {what}", self.id, self.hook)
    }
}

impl Fate {
    /// Whether the receiver has the notification, whatever its sender knows.
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

/// Whether there is a reason to send something again that was answered: its sender was killed, or gave up waiting on a busy
/// machine.
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

#[cfg(test)]
mod tests {
    use a2a::{TaskState, Timestamp};
    use serde_json::json;
    use store::{Event, EventKind, Start};

    use super::{super::owed::owed, *};

    const NONE: [(&str, usize); 0] = [];

    /// A log of which a webhook is owed 1, 2, and of event 4 the artifact and the end.
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

    /// What a receiver got, a tenth of a second apart.
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
                let at = story.at(number);
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

        fn at(&self, tenths: u64) -> Instant {
            self.begun + Duration::from_millis(100 * tenths)
        }

        fn report(&self) -> Report {
            let hooks = std::slice::from_ref(&self.hook);
            let owed = HashMap::from([("hook".to_owned(), owed(&log(), false))]);
            Evidence { hooks, arrivals: &self.arrivals, kills: &self.kills, owed: &owed }.check()
        }

        /// Each violation that is seen when this is changed, as often as it is seen.
        fn after(mut self, change: impl FnOnce(&mut Self)) -> Vec<(&'static str, usize)> {
            change(&mut self);
            let report = self.report();
            report.broken().into_iter().map(|name| (name, report.violations(name))).collect()
        }

        fn broken(self) -> Vec<(&'static str, usize)> {
            self.after(|_| {})
        }
    }

    const OK: Fate = Fate::Accepted;
    const ALL: [(&str, Fate); 4] = [("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)];

    #[test]
    fn notifications_as_they_should_be_are_clean() {
        let figures = |told: &[(&str, Fate)]| {
            let report = Story::new(told).report();
            report.assert_clean(&[("delivered", 4)]);
            ["delivered", "repeated", "needless"].map(|name| report.figure(name))
        };
        assert_eq!(figures(&ALL), [4, 0, 0]);
        let again = [("1", Fate::Reset), ("1", Fate::Swallowed), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)];
        assert_eq!(figures(&again), [4, 1, 0], "the sender did not know that it was received");
        assert_eq!(figures(&[("1", OK), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)]), [4, 1, 1], "the sender knew");
    }

    #[test]
    fn missing_and_misplaced_notifications_are_noticed() {
        let broken = |told: &[(&str, Fate)]| Story::new(told).broken();
        assert_eq!(broken(&ALL[..3]), [("lost", 1)]);
        assert_eq!(broken(&[]), [("lost", 4)]);
        assert_eq!(broken(&ALL[1..]), [("skipped", 1)], "it begins too late");
        assert_eq!(broken(&[("1", OK), ("4_1", OK), ("4_2", OK)]), [("skipped", 1)]);
        let never_accepted = [("1", Fate::PutOff), ("2", OK), ("4_1", OK), ("4_2", OK)];
        assert_eq!(broken(&never_accepted), [("skipped", 1)]);
        assert_eq!(broken(&[("1", OK), ("2", OK), ("1", OK), ("4_1", OK), ("4_2", OK)]), [("late", 1)]);
    }

    #[test]
    fn notifications_that_are_not_owed_are_noticed() {
        assert_eq!(Story::new(&ALL).after(|story| story.hook.after = (1, 1)), [("early", 1)]);
        let made_meanwhile = Story::new(&ALL[1..]).after(|story| story.hook.after = (0, 1));
        assert_eq!(made_meanwhile, NONE, "it was made before or after the first event");
        let unknown = Story::new(&[("1", OK), ("2", OK), ("3", OK), ("4_1", OK), ("4_2", OK)]);
        assert_eq!(unknown.broken(), [("wrong", 1)]);
        assert_eq!(Story::new(&ALL).after(|story| story.arrivals[1].body = b"{}".to_vec()), [("wrong", 1)]);
        assert_eq!(Story::new(&ALL).after(|story| story.hook.is_old = true), [("wrong", 4)], "another version");
        assert_eq!(Story::new(&ALL).after(|story| story.arrivals[2].is_genuine = false), [("forged", 1)]);
    }

    #[test]
    fn another_id_is_noticed() {
        let repeated = || Story::new(&[("1", Fate::Reset), ("1", OK), ("2", OK), ("4_1", OK), ("4_2", OK)]);
        let other_id = repeated().after(|story| story.arrivals[1].id = "msg_task_11111111_1".to_owned());
        assert_eq!(other_id, [("renamed", 1)]);
        let one_id_of_two = repeated().after(|story| story.arrivals[0].body = b"{}".to_vec());
        assert_eq!(one_id_of_two, [("renamed", 1), ("wrong", 1)]);
    }

    #[test]
    fn notifications_after_a_deletion_are_noticed() {
        let deleted = || {
            let mut story = Story::new(&ALL[..3]);
            story.hook.deleted = Some(story.at(1) + Duration::from_millis(50));
            story
        };
        assert_eq!(deleted().broken(), NONE, "the last one was on its way");
        let another_was = deleted().after(|story| story.arrivals[1].until = story.at(2));
        assert_eq!(another_was, [("after deletion", 1)]);
        let two = deleted().after(|story| story.hook.deleted = Some(story.begun));
        assert_eq!(two, [("after deletion", 1)], "only one can have been on its way");
    }

    #[test]
    fn notifications_after_a_receiver_has_left_are_noticed() {
        let left = || Story::new(&[("1", OK), ("2", Fate::Gone)]);
        assert_eq!(left().broken(), [("after leaving", 1)], "the server does not know it");
        assert_eq!(left().after(|story| story.hook.gone = Some(story.at(2))), NONE);
        let told_again = || Story::new(&[("1", OK), ("2", Fate::Gone), ("2", Fate::Gone)]);
        assert_eq!(told_again().after(|story| story.hook.gone = Some(story.at(3))), [("after leaving", 1)]);
        let killed = |gone: u64| {
            told_again().after(|story| {
                story.hook.gone = Some(story.at(gone));
                story.kills.push(story.at(1));
            })
        };
        assert_eq!(killed(3), NONE, "the sender that was told so was killed");
        assert_eq!(killed(1), [("after leaving", 1)], "a server that has understood it remembers it");
    }
}
