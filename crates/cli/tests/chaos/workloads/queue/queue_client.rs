//! What publishers and workers of a run share: a client, and the notes.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Answer, Answered, Client,
    http::{reason, text},
    notes::{Notes, Outcome, Published, Verb, Write},
    now,
    random::Random,
};

/// Whose entries they are. No agent has to be there.
pub(crate) const AGENT: &str = "jobs";

/// How often a poisonous entry is tried.
pub(crate) const ATTEMPTS: u32 = 3;

/// How often another one may be tried: more often than bad luck lasts, and no more often than errors are remembered.
const ENOUGH: u32 = 20;

/// How long a lease lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

pub(crate) struct QueueClient {
    pub(crate) client: Client,
    notes: Mutex<Notes>,
    /// The number of the next entry, and how many there are to be.
    next: AtomicUsize,
    entries: usize,
    /// How many of a hundred good entries a worker sleeps over.
    pub(crate) sleepers: u64,
    /// Workers complete everything, also what is poisonous.
    is_kind: AtomicBool,
}

impl QueueClient {
    pub(crate) fn new(client: Client, entries: usize, sleepers: u64) -> Self {
        let (next, is_kind) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { client, notes: Mutex::default(), next, entries, sleepers, is_kind }
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_kind(&self) -> bool {
        self.is_kind.load(Ordering::Relaxed)
    }

    pub(crate) fn be_kind(&self) {
        self.is_kind.store(true, Ordering::Relaxed);
    }

    pub(crate) fn all_are_published(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.entries
    }

    pub(crate) fn note_unexpected(&self, what: String) {
        self.notes().unexpected.push(what);
    }

    /// Publishes the next entry, unless all are.
    pub(crate) async fn publish(&self, random: &mut Random, from: &str) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.entries {
            return false;
        }
        let is_poisonous = number % 101 == 50;
        let context = format!("job-{number}");
        let entry = json!({
            "from": from,
            "to": AGENT,
            "text": if is_poisonous { "poison" } else { "work" },
            "payload": {"number": number, "isPoisonous": is_poisonous},
            "correlationId": context,
            "priority": random.below(10),
            "delay": if random.below(5) == 0 { 0.3 } else { 0.0 },
            "maxAttempts": if is_poisonous { ATTEMPTS } else { ENOUGH },
        });
        let post = |random: &mut Random| {
            let request = self.client.request(random, &Method::POST, "/v1/queue/publish", Some(&entry));
            request.header("Idempotency-Key", &context)
        };
        match self.client.insist(random, post).await {
            Ok(Answered { status: 201, body, sent, is_doubtful }) => {
                let id = text(&body, "/id").to_owned();
                self.notes().published.push(Published { id, context, is_poisonous, sent, is_doubtful, replays: None });
            }
            Ok(other) => self.note_unexpected(format!("publishing {number}: {} {}", other.status, other.body)),
            Err(what) => self.note_unexpected(format!("publishing {number}: {what}")),
        }
        true
    }

    /// Writes for a lease until there is an answer. The write is in the notes before it is sent.
    pub(crate) async fn write(
        &self,
        random: &mut Random,
        hold: usize,
        ticket: &str,
        verb: Verb,
        write: Write,
    ) -> Outcome {
        let (entry, place) = {
            let held = &mut self.notes().holds[hold];
            held.writes.push(write.clone());
            (held.entry.clone(), held.writes.len() - 1)
        };
        let body = match verb {
            Verb::Heartbeat => json!({"lease": ticket, "seconds": LEASE.as_secs_f64()}),
            Verb::Ack => json!({"lease": ticket, "result": serde_json::from_str::<Value>(&write.says).ok()}),
            Verb::Nack => json!({"lease": ticket, "error": write.says, "delay": 0.05 * random.below(5) as f64}),
            Verb::Release => json!({"lease": ticket, "release": true}),
        };
        let path = format!("/v1/queue/messages/{entry}/{}", verb.as_str());
        let post = |random: &mut Random| self.client.request(random, &Method::POST, &path, Some(&body));
        let answered = match verb {
            // The next one comes soon.
            Verb::Heartbeat => match self.client.send(post(random)).await {
                Answer::Status(status, body) => Ok(Answered { status, body, sent: write.sent, is_doubtful: false }),
                Answer::Nothing { .. } => return Outcome::Unknown,
                Answer::Unexpected(what) => Err(what),
            },
            _ => self.client.insist(random, post).await,
        };
        let outcome = match answered {
            Ok(Answered { status: 200, .. }) => Outcome::Accepted,
            // It may be lost because an earlier request arrived.
            Ok(answered) if is_lease_lost(&answered) && answered.is_doubtful => Outcome::Unknown,
            Ok(answered) if is_lease_lost(&answered) => Outcome::Refused,
            Ok(Answered { status, body, .. }) => {
                self.note_unexpected(format!("{} of {entry}: {status} {body}", verb.as_str()));
                Outcome::Unknown
            }
            Err(what) => {
                self.note_unexpected(format!("{} of {entry}: {what}", verb.as_str()));
                Outcome::Unknown
            }
        };
        let mut notes = self.notes();
        let noted = &mut notes.holds[hold].writes[place];
        (noted.outcome, noted.answered) = (outcome, now());
        outcome
    }
}

fn is_lease_lost(answered: &Answered) -> bool {
    answered.status == 409 && reason(&answered.body["error"]) == "LEASE_LOST"
}
