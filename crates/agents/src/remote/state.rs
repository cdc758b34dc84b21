//! What a turn of a remote agent keeps: under which ids it is worked on there, and how far it was heard.

use std::time::{Duration, Instant};

use a2a::{Artifact, Part, Task};
use bytes::Bytes;
use exchange::{Elsewhere, Turn};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{LeaseTime, clock};

/// The longest id of a remote: they are kept with everything that is heard.
pub(super) const LONGEST_ID: usize = 1024;

/// How far a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Phase {
    /// Nothing was sent.
    #[default]
    New,
    /// The message is about to be sent, or was: nobody has answered yet.
    Sending,
    /// The remote works on it.
    Working,
    /// The remote's turn is over.
    Over,
}

/// The clock of the store, read once for a run of a turn and counted on by this process's steady clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreClock {
    read: LeaseTime,
    at: Instant,
}

impl StoreClock {
    pub(super) async fn of(turn: &Turn) -> store::Result<Self> {
        // What passes while it is read is counted twice rather than not at all.
        let at = Instant::now();
        Ok(Self { read: turn.store_time().await?, at })
    }

    pub(super) fn now(&self) -> LeaseTime {
        self.read.after(self.at.elapsed())
    }
}

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// The turn of ours that the rest is about.
    pub(super) turn: u32,
    pub(super) phase: Phase,
    /// The task there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<String>,
    /// Whether that has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) ended: bool,
    /// The context there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    /// The id of the last event that was heard, where the remote gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
    /// The artifacts that were heard, and what they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) heard: Vec<Heard>,
    /// The last message of a status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) said: String,
    /// How often it did not work.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) failures: u32,
    /// How often was looked without anything new.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) looks: u32,
    /// How often in a row its message was not delivered.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) tries: u32,
    /// How often the message was sent again without a key, after the remote had said that it does not have it.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) resent: u32,
    /// The message is sent without a stream, which did not work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) plain: bool,
    /// How long it has been at work on this turn, in milliseconds. It is the sum of what runs have measured and of the rests between them.
    #[serde(skip_serializing_if = "is_nothing")]
    pub(super) tracked: u64,
    /// The rest that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rest: Option<Rest>,
    /// When the message that the remote may have was sent for the first time, in milliseconds since 1970 by the wall clock. States of older
    /// versions have the last time.
    #[serde(rename = "sent", skip_serializing_if = "Option::is_none")]
    pub(super) first_sent: Option<i64>,
    /// The same by the clock of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_sent_store: Option<LeaseTime>,
    /// The remote was asked to say when something happens.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) told: bool,
    /// Its card was known when it was sent: it is not called as if it had none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) carded: bool,
    /// The id of the message that was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// It waits for authentication, as far as was said here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) auth: bool,
    /// How many bytes have come in this turn.
    #[serde(skip_serializing_if = "is_nothing")]
    pub(super) used: u64,
}

/// A suspension of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rest {
    /// When it began, by the clock of the store. In states of older versions it is the wall clock's time.
    since: LeaseTime,
    /// How long it lasts at most, in milliseconds.
    at_most: u64,
}

/// An artifact that was heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) id: String,
    /// What it held; empty when that is not known.
    pub(super) digest: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
fn is_nothing(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl State {
    pub(super) fn read(bytes: Option<&Bytes>) -> Self {
        bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
    }

    pub(super) fn write(&self) -> Bytes {
        // Numbers and texts always serialise.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// What the next turn of the task goes on from.
    pub(super) fn next_turn(self, turn: u32) -> Self {
        if self.ended {
            return self.next_task(turn);
        }
        Self { turn, task: self.task, context: self.context, heard: self.heard, said: self.said, ..Self::default() }
    }

    /// What a new task of the context goes on from.
    pub(super) fn next_task(self, turn: u32) -> Self {
        Self { turn, context: self.context, ..Self::default() }
    }

    /// Begins a rest.
    pub(super) fn rest(&mut self, at_most: Duration, now: LeaseTime) {
        self.rest = Some(Rest { since: now, at_most: millis(at_most) });
    }

    /// Ends the rest. It is counted by the clock of the store, but never for longer than it was to last: however far that clock is set, a turn
    /// is not tracked for longer than it was.
    pub(super) fn wake(&mut self, now: LeaseTime) {
        let Some(rest) = self.rest.take() else { return };
        let passed = millis(now.since(rest.since));
        self.tracked = self.tracked.saturating_add(passed.min(rest.at_most));
    }

    /// Notes that the message is about to be sent: only the first time counts, as long as the remote may have it since.
    pub(super) fn is_sent(&mut self, now: LeaseTime) {
        if self.first_sent.is_none() {
            self.first_sent = Some(clock::now().as_millis());
            self.first_sent_store = Some(now);
        }
    }

    /// Notes that the remote does not have the message.
    pub(super) fn is_not_sent(&mut self) {
        (self.first_sent, self.first_sent_store) = (None, None);
    }

    /// How long ago the message was sent for the first time, if it was. The store's clock counts, which nobody can set back, and the wall clock
    /// as well, since SQLite's clock stands still while the machine sleeps: the longer time of the two.
    pub(super) fn sent_for(&self, now: LeaseTime) -> Duration {
        let by_wall = self.first_sent.map(|sent| clock::now().as_millis().saturating_sub(sent));
        let by_wall = Duration::from_millis(by_wall.and_then(|passed| u64::try_from(passed).ok()).unwrap_or(0));
        self.first_sent_store.map_or(by_wall, |sent| by_wall.max(now.since(sent)))
    }

    /// Whether the remote may be working: on the task, or on a message that was not answered.
    pub(super) fn is_owed_a_cancel(&self) -> bool {
        // States of older versions do not say when the message was sent.
        let is_sending = self.phase == Phase::Sending && !self.message.is_empty();
        !self.ended && (self.task.is_some() || self.first_sent.is_some() || is_sending)
    }

    /// Knows the ids of a task there. One that names another than before is not believed.
    pub(super) fn meet(&mut self, task: &str, context: &str) -> Result<(), String> {
        if [task, context].iter().any(|id| id.len() > LONGEST_ID) {
            return Err(format!("the remote's ids are longer than {LONGEST_ID} bytes"));
        }
        if !task.is_empty() {
            match &self.task {
                Some(known) if known != task => {
                    return Err("the remote speaks of another task than the one that was begun".to_owned());
                }
                Some(_) => {}
                None => self.task = Some(task.to_owned()),
            }
        }
        if !context.is_empty() {
            self.context = Some(context.to_owned());
        }
        Ok(())
    }

    /// Whether an artifact is as it was heard.
    pub(super) fn has(&self, artifact: &Artifact) -> bool {
        let digest = digest(artifact);
        self.heard.iter().any(|heard| heard.id == artifact.artifact_id && heard.digest == digest)
    }

    /// Remembers an artifact as it stands.
    pub(super) fn remember_whole(&mut self, artifact: &Artifact) {
        self.remember(&artifact.artifact_id, digest(artifact));
    }

    /// Remembers an artifact by what it holds. An empty digest is for one of which only a part is known.
    pub(super) fn remember(&mut self, id: &str, digest: String) {
        match self.heard.iter_mut().find(|heard| heard.id == id) {
            Some(heard) => heard.digest = digest,
            None => self.heard.push(Heard { id: id.to_owned(), digest }),
        }
    }

    pub(super) fn elsewhere(&self) -> Elsewhere {
        Elsewhere { task: self.task.clone(), context: self.context.clone() }
    }
}

/// What an artifact holds, in short, while its pieces come: however it was cut, it is the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces {
    hash: Sha256,
    /// The media type of the text that it ends with, if it does: what follows may belong to it.
    text: Option<String>,
}

impl Pieces {
    pub(super) fn add(&mut self, parts: &[Part]) {
        for part in parts {
            let plain = part.metadata.is_none() && part.filename.is_empty();
            // An empty text only says that nothing follows: a server that joins the pieces leaves it out.
            if plain && part.as_text() == Some("") {
                continue;
            }
            match part.as_text().filter(|_| plain) {
                Some(text) => {
                    if self.text.as_ref() != Some(&part.media_type) {
                        self.hash.update([0]);
                        self.hash.update(part.media_type.as_bytes());
                        self.hash.update([0]);
                    }
                    self.hash.update(text.as_bytes());
                    self.text = Some(part.media_type.clone());
                }
                None => {
                    self.hash.update([1]);
                    self.hash.update(serde_json::to_vec(part).unwrap_or_default());
                    self.text = None;
                }
            }
        }
    }

    pub(super) fn digest(&self) -> String {
        self.hash.clone().finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A text in short.
pub(super) fn in_short(text: &str) -> String {
    let mut pieces = Pieces::default();
    pieces.hash.update(text.as_bytes());
    pieces.digest()
}

fn digest(artifact: &Artifact) -> String {
    let mut pieces = Pieces::default();
    pieces.add(&artifact.parts);
    pieces.digest()
}

/// Whether a message only repeats what a task's artifacts say.
pub(super) fn repeats(task_text: &str, said: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    !said.trim().is_empty() && plain(task_text) == plain(said)
}

/// The text of an artifact.
pub(super) fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

/// Whether a remote's turn is over.
pub(super) fn is_over(task: &Task) -> bool {
    task.status.state.is_terminal() || task.status.state == a2a::TaskState::InputRequired
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> LeaseTime {
        serde_json::from_value(millis.into()).unwrap()
    }

    fn artifact(id: &str, texts: &[&str]) -> Artifact {
        let parts = texts.iter().map(|text| Part::text(*text)).collect();
        Artifact { artifact_id: id.to_owned(), parts, ..Artifact::default() }
    }

    #[test]
    fn an_artifact_is_the_same_however_it_was_cut() {
        let mut state = State::default();
        assert!(!state.has(&artifact("a", &["one two"])));
        state.remember_whole(&artifact("a", &["one ", "two"]));
        assert!(state.has(&artifact("a", &["one two"])));
        assert!(!state.has(&artifact("a", &["one two three"])));
        assert!(!state.has(&artifact("b", &["one two"])));
        state.remember("a", String::new());
        assert!(!state.has(&artifact("a", &["one two"])), "it has grown by something");
        assert_eq!(State::read(Some(&state.write())), state);
    }

    #[test]
    fn an_empty_text_that_closes_an_artifact_is_none_of_its_content() {
        let data: Part = serde_json::from_str(r#"{"data": 1}"#).unwrap();
        let of = |parts: Vec<Part>| Artifact { artifact_id: "a".to_owned(), parts, ..Artifact::default() };
        let mut state = State::default();
        state.remember_whole(&of(vec![data.clone(), Part::text("")]));
        assert!(state.has(&of(vec![data])));
    }

    #[test]
    fn a_turn_goes_on_with_the_task_there_unless_that_has_ended() {
        let state = State {
            turn: 1,
            phase: Phase::Over,
            task: Some("t".into()),
            context: Some("c".into()),
            cursor: Some("7".into()),
            ..State::default()
        };
        let next = state.clone().next_turn(2);
        assert_eq!((next.task.as_deref(), next.context.as_deref(), next.phase), (Some("t"), Some("c"), Phase::New));
        assert_eq!(next.cursor, None);
        let after = State { ended: true, ..state.clone() }.next_turn(2);
        assert_eq!((after.task, after.context.as_deref()), (None, Some("c")));
        assert_eq!(state.next_task(1).context.as_deref(), Some("c"));
    }

    #[test]
    fn a_remote_cannot_speak_of_another_task() {
        let mut state = State::default();
        state.meet("t", "c").unwrap();
        state.meet("t", "").unwrap();
        assert!(state.meet("other", "c").is_err());
        assert!(state.meet("t", &"c".repeat(2000)).is_err());
        assert_eq!(state.task.as_deref(), Some("t"));
    }

    #[test]
    fn a_rest_is_counted_as_it_was_and_never_for_longer_than_it_was_to_last() {
        let minute = Duration::from_secs(60);
        let day = 86_400_000;
        // Woken early, on time, late, with a clock that has jumped ahead, and with one that has jumped back.
        for (after, counted) in [(1_000, 1_000), (60_000, 60_000), (90_000, 60_000), (day + 1, 60_000), (-day, 0)] {
            let mut state = State { tracked: 5, ..State::default() };
            state.rest(minute, at(1_700_000_000_000));
            let mut state = State::read(Some(&state.write()));
            state.wake(at(1_700_000_000_000 + after));
            assert_eq!((state.tracked, state.rest), (5 + counted, None), "{after}");
            state.wake(at(1_800_000_000_000));
            assert_eq!(state.tracked, 5 + counted, "a rest is counted once");
        }
    }

    #[test]
    fn the_first_time_that_a_message_was_sent_counts() {
        let hour = 3_600_000;
        let now = clock::now().as_millis();
        let mut state = State::default();
        assert_eq!(state.sent_for(at(now)), Duration::ZERO);
        state.is_sent(at(now));
        let mut state = State::read(Some(&state.write()));
        // A further attempt.
        state.is_sent(at(now + 7 * hour));
        assert_eq!(state.sent_for(at(now + 13 * hour)), Duration::from_secs(13 * 3600));
        assert!(state.is_owed_a_cancel());
        state.is_not_sent();
        state.is_sent(at(now + 13 * hour));
        assert_eq!(state.sent_for(at(now + 14 * hour)), Duration::from_secs(3600));
    }

    #[test]
    fn the_longer_time_since_a_message_was_sent_counts() {
        let hour = 3_600_000;
        let now = clock::now().as_millis();
        let sent = |wall: i64| State { first_sent: Some(wall), first_sent_store: Some(at(now)), ..State::default() };
        // The wall clock was set back by a day; the store's clock stood still while the machine slept.
        assert_eq!(sent(now + 24 * hour).sent_for(at(now + 13 * hour)), Duration::from_secs(13 * 3600));
        assert!(sent(now - 13 * hour).sent_for(at(now)) >= Duration::from_secs(13 * 3600));
        // A state of an older version.
        let older = format!("{{\"phase\": \"sending\", \"message\": \"m\", \"sent\": {}}}", now - 13 * hour);
        let older = State::read(Some(&older.into()));
        assert!(older.sent_for(at(now)) >= Duration::from_secs(13 * 3600) && older.is_owed_a_cancel());
    }

    #[test]
    fn a_copy_is_known_by_its_words() {
        assert!(repeats("one\ntwo", "one two"));
        assert!(!repeats("one", "one two"));
        assert!(!repeats("", ""));
    }
}
