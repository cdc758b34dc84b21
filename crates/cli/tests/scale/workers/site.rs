//! The way to the servers, for publishers and workers who do not give up when one dies.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{reason, text},
    notes::{Notes, Outcome, Published, Verb, Write, now},
    random::Random,
    rig::{PATIENCE, TOKEN},
};
use crate::scale::caller::Doors;

/// Whose entries they are. No agent has to be there.
pub(crate) const AGENT: &str = "jobs";

/// How often a poisonous entry is tried.
pub(crate) const ATTEMPTS: u32 = 3;

/// How often another one may be tried: more often than bad luck lasts, and no more often than errors are remembered.
const ENOUGH: u32 = 20;

/// How long a lease lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// How long somebody goes on with one request.
const PERSISTENCE: Duration = Duration::from_secs(60);

/// What publishers and workers share.
pub(crate) struct Site {
    pub(crate) doors: Doors,
    http: reqwest::Client,
    notes: Mutex<Notes>,
    /// The number of the next entry, and how many there are to be.
    next: AtomicUsize,
    entries: usize,
    /// How many of a hundred good entries a worker sleeps over.
    pub(crate) sleepers: u64,
    /// How many requests were sent.
    pub(crate) requests: AtomicUsize,
    /// Workers do as they are told, and poison is none.
    is_kind: AtomicBool,
}

/// What became of one request.
pub(crate) enum Answer {
    Said(u16, Value),
    /// No answer; whether the request can have arrived all the same.
    Nothing {
        may_have_arrived: bool,
    },
}

/// The answer to a request that was sent until there was one.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// When the request was sent that was answered.
    pub(crate) sent: i64,
    /// One that was not answered may have been heard.
    pub(crate) is_doubtful: bool,
}

impl Site {
    pub(crate) fn new(doors: Doors, entries: usize, sleepers: u64) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("the client needs nothing special");
        let (next, requests, is_kind) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { doors, http, notes: Mutex::default(), next, entries, sleepers, requests, is_kind }
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

    /// Sends a request once.
    pub(crate) async fn ask(&self, base: &str, method: Method, path: &str, body: Option<&Value>, key: &str) -> Answer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut request = self.http.request(method, format!("{base}{path}")).timeout(PATIENCE).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        if !key.is_empty() {
            request = request.header("Idempotency-Key", key);
        }
        let response = match request.header("A2A-Version", "1.0").send().await {
            Ok(response) => response,
            Err(error) => return Answer::Nothing { may_have_arrived: !error.is_connect() },
        };
        let status = response.status().as_u16();
        match response.bytes().await {
            Ok(body) if status != 503 => Answer::Said(status, serde_json::from_slice(&body).unwrap_or_default()),
            _ => Answer::Nothing { may_have_arrived: true },
        }
    }

    /// Sends a request until it is answered. A server that is not there or has no time is none.
    pub(crate) async fn insist(
        &self,
        random: &mut Random,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: &str,
    ) -> Answered {
        let begun = Instant::now();
        let mut is_doubtful = false;
        loop {
            let sent = now();
            match self.ask(&self.doors.any(random), method.clone(), path, body, key).await {
                Answer::Said(status, body) => return Answered { status, body, sent, is_doubtful },
                Answer::Nothing { may_have_arrived } => is_doubtful |= may_have_arrived,
            }
            assert!(begun.elapsed() < PERSISTENCE, "nobody has answered {path} for too long");
            tokio::time::sleep(Duration::from_millis(30 + random.below(120))).await;
        }
    }

    /// What the server shows.
    pub(crate) async fn get(&self, random: &mut Random, path: &str) -> Value {
        let answered = self.insist(random, Method::GET, path, None, "").await;
        assert_eq!(answered.status, 200, "{path}: {}", answered.body);
        answered.body
    }

    pub(crate) fn say_unexpected(&self, what: String) {
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
        let answered = self.insist(random, Method::POST, "/v1/queue/publish", Some(&entry), &context).await;
        let Answered { status, body, sent, is_doubtful } = answered;
        if status != 201 {
            self.say_unexpected(format!("publishing {number}: {status} {body}"));
            return true;
        }
        let id = text(&body, "/id").to_owned();
        let retried = is_doubtful;
        self.notes().published.push(Published { id, context, is_poisonous, sent, retried, replays: None });
        true
    }

    /// Writes for a hold, until there is an answer. The write is in the notes before it is sent.
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
        let answered = match verb {
            // The next one comes soon.
            Verb::Heartbeat => match self.ask(&self.doors.any(random), Method::POST, &path, Some(&body), "").await {
                Answer::Said(status, body) => Answered { status, body, sent: write.sent, is_doubtful: false },
                Answer::Nothing { .. } => return Outcome::Unknown,
            },
            _ => self.insist(random, Method::POST, &path, Some(&body), "").await,
        };
        let outcome = match answered.status {
            200 => Outcome::Accepted,
            409 if reason(&answered.body["error"]) == "LEASE_LOST" => match answered.is_doubtful {
                // It may be lost because the first of them was heard.
                true => Outcome::Unknown,
                false => Outcome::Refused,
            },
            status => {
                self.say_unexpected(format!("{} of {entry}: {status} {}", verb.as_str(), answered.body));
                Outcome::Unknown
            }
        };
        let mut notes = self.notes();
        let noted = &mut notes.holds[hold].writes[place];
        (noted.outcome, noted.answered) = (outcome, now());
        outcome
    }
}
