//! The routes of the queue, as a worker calls them.
//!
//! Of what can go wrong a worker has to know three things apart: the server is away, so that the same call is tried again;
//! the lease is lost, so that whatever is said under it changes nothing; or the server has understood and refuses.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use a2a::{JsonObject, Message};
use client::{Connector, Limits, call_json};
use exchange::RequestOptions;
use http::Method;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    failure::Failure,
    output,
    routes::{RouteArgs, at},
    target::Target,
};

/// How long a call may take beyond the time that it asks the server to wait.
const ANSWER: Duration = Duration::from_secs(15);
/// The least of it.
const QUICK: Duration = Duration::from_secs(1);
/// An entry carries the histories of its task and its context, and nobody else could read it either.
const ENTRY_BYTES: usize = 256 << 20;
/// The waits while the server is away: doubled from the first to the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A server that breaks so often over the same call will not take it.
const BREAKS: u32 = 8;
/// A lease that a server says is shorter is renewed as if it were this long.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// What a lost lease is called.
const LEASE_LOST: &str = "LEASE_LOST";

/// The queues of a server.
pub(super) struct Queue {
    routes: RouteArgs,
    connector: Connector,
    /// Where the server was found. One on this machine may come back at another port.
    server: Mutex<Arc<Target>>,
    /// Whether it was said that the server is away.
    away: AtomicBool,
}

/// One entry of a queue, leased to this worker.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) attempt: u32,
    pub(super) max_attempts: Option<u32>,
    pub(super) turn: u32,
    pub(super) lease: String,
    pub(super) lease_seconds: f64,
    pub(super) message: Message,
    #[serde(default)]
    pub(super) history: Vec<Message>,
    #[serde(default)]
    pub(super) context_history: Vec<Message>,
    /// What the program has kept, which may be `null`.
    #[serde(default, deserialize_with = "any")]
    pub(super) kept: Option<Box<RawValue>>,
    #[serde(default)]
    metadata: Option<JsonObject>,
    #[serde(default)]
    accepted_output_modes: Vec<String>,
    #[serde(default)]
    extensions: Vec<String>,
}

impl Entry {
    /// What the caller said beside the message.
    pub(super) fn request(&self) -> RequestOptions {
        RequestOptions {
            metadata: self.metadata.clone(),
            accepted_output_modes: self.accepted_output_modes.clone(),
            extensions: self.extensions.clone(),
        }
    }
}

/// What a heartbeat hears.
#[derive(Debug, Deserialize)]
pub(super) struct Beat {
    pub(super) canceled: bool,
}

/// What became of a report.
#[derive(Debug, Deserialize)]
pub(super) struct Reported {
    pub(super) state: String,
}

/// Why a call did not work.
#[derive(Debug)]
pub(super) enum Error {
    /// Nobody answers, or nobody who can do it now.
    Away(client::Error),
    /// The entry is no longer this worker's.
    Lost,
    /// The server does not do this.
    Refused(client::Error),
}

/// What is asked of a queue.
#[derive(Serialize)]
pub(super) struct Consume<'a> {
    pub(super) max: u32,
    pub(super) lease: u64,
    pub(super) wait: u64,
    pub(super) worker: &'a str,
}

#[derive(Deserialize)]
struct Consumed {
    messages: Vec<Entry>,
}

/// An entry's lease, under which its worker speaks.
pub(super) struct Held<'a> {
    queue: &'a Queue,
    id: &'a str,
    token: &'a str,
    /// How long it lasts without a heartbeat.
    pub(super) lasts: Duration,
}

#[derive(Serialize)]
struct Heartbeat<'a> {
    lease: &'a str,
    seconds: f64,
    wait: f64,
}

/// What a program has said. The number is the same when it is said again because the answer was not heard, and the server knows
/// by it what it has already.
#[derive(Serialize)]
struct Progress<'a> {
    lease: &'a str,
    sequence: u64,
    events: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    end: bool,
}

#[derive(Serialize)]
struct Ack<'a> {
    lease: &'a str,
}

#[derive(Serialize)]
struct Nack<'a> {
    lease: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    release: bool,
}

impl Queue {
    pub(super) fn new(routes: RouteArgs) -> Result<Self, Failure> {
        let server = Mutex::new(Arc::new(routes.server()?));
        let connector = routes.target.connector_with(Limits { body_cap: ENTRY_BYTES, ..Limits::default() });
        Ok(Self { routes, connector, server, away: AtomicBool::new(false) })
    }

    /// Takes what waits, or what comes within the time that is asked for.
    pub(super) async fn consume(&self, agent: &str, asked: &Consume<'_>) -> Result<Vec<Entry>, Error> {
        let path = ["v1", "queue", agent, "consume"];
        let consumed: Consumed = self.call(&path, &encode(asked), Duration::from_secs(asked.wait)).await?;
        Ok(consumed.messages)
    }

    pub(super) fn hold<'a>(&'a self, entry: &'a Entry) -> Held<'a> {
        let lasts = Duration::try_from_secs_f64(entry.lease_seconds).unwrap_or_default().max(SHORTEST_LEASE);
        Held { queue: self, id: &entry.id, token: &entry.lease, lasts }
    }

    async fn call<T: DeserializeOwned>(&self, path: &[&str], body: &[u8], wait: Duration) -> Result<T, Error> {
        let server = Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner));
        let url = at(server.url.clone(), path, &[]);
        // A beat that is not answered must leave time for the next.
        let limit = if wait.is_zero() { ANSWER } else { wait + ANSWER.min((wait / 2).max(QUICK)) };
        let call =
            call_json(&self.connector, Method::POST, &url, server.credential.as_ref(), Some(body.to_vec()), None);
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(client::Error::Timeout { origin: url.origin().ascii_serialization(), after: limit }),
        };
        let read = answer.and_then(|bytes| {
            serde_json::from_slice(&bytes).map_err(|error| client::Error::Malformed(error.to_string()))
        });
        let result = read.map_err(judge);
        match &result {
            Err(Error::Away(error)) => self.note_away(error),
            _ => self.note_back(),
        }
        result
    }

    fn note_away(&self, error: &client::Error) {
        if !self.away.swap(true, Ordering::Relaxed) {
            output::error_line("away", &format!("{error}; trying again"));
        }
        // A server that cannot be found either is looked for again the next time.
        if let Ok(found) = self.routes.server() {
            *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        }
    }

    fn note_back(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            output::error_line("back", "the server answers again");
        }
    }
}

impl Held<'_> {
    /// Keeps the lease. Returns at once when the task is canceled, else when the server has waited for so long.
    pub(super) async fn beat(&self, wait: Duration) -> Result<Beat, Error> {
        let body = Heartbeat { lease: self.token, seconds: self.lasts.as_secs_f64(), wait: wait.as_secs_f64() };
        self.queue.call(&self.path("heartbeat"), &encode(&body), wait).await
    }

    /// Tells what was said, until the server has heard it. With `end` a last AUTH_REQUIRED is the end of the turn.
    pub(super) async fn progress(&self, sequence: u64, events: &[Box<RawValue>], end: bool) -> Result<Reported, Error> {
        let body = Progress { lease: self.token, sequence, events, end };
        self.insist("progress", &encode(&body)).await
    }

    /// Says that it is done, when there is nothing else to say.
    pub(super) async fn ack(&self) -> Result<Reported, Error> {
        self.insist("ack", &encode(&Ack { lease: self.token })).await
    }

    /// Asks for another attempt.
    pub(super) async fn nack(&self, why: &str) -> Result<Reported, Error> {
        self.insist("nack", &encode(&Nack { lease: self.token, error: Some(why), release: false })).await
    }

    /// Gives it back as if it had not been tried.
    pub(super) async fn release(&self) -> Result<Reported, Error> {
        self.insist("nack", &encode(&Nack { lease: self.token, error: None, release: true })).await
    }

    /// The same call until the server has answered it: what a program has done must not be lost to a server that is away.
    async fn insist(&self, verb: &'static str, body: &[u8]) -> Result<Reported, Error> {
        let mut waits = Waits::default();
        let mut breaks = 0;
        loop {
            let error = match self.queue.call(&self.path(verb), body, Duration::ZERO).await {
                Err(Error::Away(error)) => error,
                answered => return answered,
            };
            if matches!(&error, client::Error::Protocol(remote) if remote.code == 500) {
                breaks += 1;
                if breaks == BREAKS {
                    return Err(Error::Refused(error));
                }
            }
            waits.next().await;
        }
    }

    fn path<'a>(&'a self, verb: &'a str) -> [&'a str; 5] {
        ["v1", "queue", "messages", self.id, verb]
    }
}

/// The waits between attempts at reaching a server.
pub(super) struct Waits(Duration);

impl Default for Waits {
    fn default() -> Self {
        Self(WAITS.0)
    }
}

impl Waits {
    pub(super) async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(WAITS.1);
    }
}

/// What an error means for a worker.
fn judge(error: client::Error) -> Error {
    match &error {
        client::Error::Unreachable { .. } | client::Error::Timeout { .. } => Error::Away(error),
        client::Error::Protocol(remote) => match remote.code {
            409 if remote.reason.as_deref().is_none_or(|reason| reason == LEASE_LOST) => Error::Lost,
            408 | 425 | 429 | 500.. => Error::Away(error),
            _ => Error::Refused(error),
        },
        _ => Error::Refused(error),
    }
}

fn encode(body: &impl Serialize) -> Vec<u8> {
    // Plain data always serialises.
    serde_json::to_vec(body).unwrap_or_default()
}

/// A value that is there, whatever it is.
fn any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use a2a::error::RemoteError;

    use super::*;

    fn told(code: i64, reason: Option<&str>) -> Error {
        judge(client::Error::Protocol(RemoteError {
            code,
            reason: reason.map(str::to_owned),
            ..RemoteError::default()
        }))
    }

    #[test]
    fn a_worker_knows_what_passes_what_is_lost_and_what_is_refused() {
        for code in [408, 429, 500, 502, 503] {
            assert!(matches!(told(code, None), Error::Away(_)), "{code}");
        }
        assert!(matches!(told(409, Some("LEASE_LOST")), Error::Lost));
        assert!(matches!(told(409, None), Error::Lost));
        assert!(matches!(told(409, Some("ALREADY_EXISTS")), Error::Refused(_)));
        for code in [400, 404, 413] {
            assert!(matches!(told(code, None), Error::Refused(_)), "{code}");
        }
        assert!(matches!(judge(client::Error::Auth(RemoteError::default())), Error::Refused(_)));
        let unreachable = client::Error::Unreachable { origin: "http://h".to_owned(), source: "refused".into() };
        assert!(matches!(judge(unreachable), Error::Away(_)));
    }

    #[test]
    fn an_entry_is_read_with_what_this_version_does_not_know() {
        let message = r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}"#;
        let entry = |more: &str| -> Entry {
            let text = format!(
                r#"{{"id":"e","messageId":"m","taskId":"t","contextId":"c","from":null,"to":"a","text":"hi","payload":{{}},
                "status":"in_progress","attempt":2,"maxAttempts":3,"turn":1,"lease":"l","leaseSeconds":60.0,
                "message":{message}{more}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let plain = entry("");
        assert_eq!((plain.attempt, plain.max_attempts, plain.message.text().as_str()), (2, Some(3), "hi"));
        assert!(plain.kept.is_none() && plain.history.is_empty());
        let full = entry(&format!(r#","history":[{message}],"contextHistory":[{message},{message}],"kept":null"#));
        assert_eq!((full.history.len(), full.context_history.len()), (1, 2));
        assert_eq!(full.kept.unwrap().get(), "null");
    }
}
