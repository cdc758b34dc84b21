//! The queue over HTTP, `/v1/queue`: the verbs of [`exchange::queue`] for workers in any language. JSON in, JSON out.
//!
//! Workers come with a tenant's token and get that tenant's entries, or with the admin token and get those of all tenants.

use std::{sync::Arc, time::Duration};

use a2a::{Error, ErrorKind, Json, Message, Timestamp, error::excerpt};
use axum::response::Response;
use exchange::{
    Caller, Luggage, Pass, RequestOptions, Said, heavy,
    queue::{self, Ack, Consume, Handed, LetterPage, Nack, Publish, Replayed, Report, Shown, Worker},
    words::{self, Word},
};
use http::{HeaderValue, request::Parts};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{AgentQueue, FailedAttempt, Letters, QueueEntry, TaskId, TenantId};

use crate::{
    admin::{Visitor, parse},
    app::App,
    headers::Media,
    query::Query,
    reply::{self, Status},
    surface::{Admit, Surface, Visit},
};

/// How long a list is, unless somebody wants it shorter: its entries come with what they say.
const PAGE: usize = 25;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Publish,
    Consume(String),
    Entry(String),
    Verb(String, Verb),
    Status,
    Letters,
    Replay,
}

/// What is done with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Claim,
    Heartbeat,
    Progress,
    Ack,
    Nack,
    Execute,
}

/// Who may come: a tenant, or the administrator as a worker for all of them.
pub(crate) struct Hand(Worker, Option<Arc<Pass>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PublishBody {
    from: String,
    to: String,
    #[serde(default)]
    text: String,
    payload: Option<Json>,
    correlation_id: Option<String>,
    #[serde(default)]
    delay: Seconds,
    #[serde(default)]
    priority: u8,
    max_attempts: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsumeBody {
    max: Option<usize>,
    lease: Option<Seconds>,
    #[serde(default)]
    wait: Seconds,
    worker: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimBody {
    lease: Option<Seconds>,
    worker: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HeartbeatBody {
    lease: Option<String>,
    seconds: Option<Seconds>,
    #[serde(default)]
    wait: Seconds,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProgressBody {
    lease: Option<String>,
    /// Which call under this lease it is, from 1, so that it can be repeated when its answer was not heard.
    sequence: Option<u64>,
    /// A word on the progress.
    text: Option<String>,
    #[serde(default)]
    events: Vec<Box<RawValue>>,
    #[serde(default)]
    end: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AckBody {
    lease: Option<String>,
    /// Any JSON, `null` among it.
    #[serde(default, deserialize_with = "given")]
    result: Option<Json>,
    text: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NackBody {
    lease: Option<String>,
    #[serde(default)]
    error: String,
    delay: Option<Seconds>,
    #[serde(default)]
    release: bool,
    #[serde(default)]
    fatal: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReplayBody {
    message_id: Option<String>,
    to_agent: Option<String>,
}

/// A length of time in seconds, of which parts are allowed.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "f64")]
struct Seconds(Duration);

impl TryFrom<f64> for Seconds {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| "must be a number of seconds that is not negative")
    }
}

/// A member that is there counts, whatever its value.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// An entry as everybody sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView<'a> {
    id: String,
    message_id: String,
    task_id: String,
    context_id: String,
    /// What the publisher said it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    from: String,
    to: String,
    agent: String,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Json>,
    status: &'static str,
    state: &'static str,
    priority: u8,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    created_at: Timestamp,
    status_at: Timestamp,
    /// Until it can be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    available_in_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_by: Option<String>,
    /// Until its lease runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_left_seconds: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    canceled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Failed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replays: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    attempt: u32,
    at: Timestamp,
    #[serde(skip_serializing_if = "String::is_empty")]
    worker: String,
    error: String,
}

/// An entry in a worker's hands.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HandedView<'a> {
    #[serde(flatten)]
    entry: EntryView<'a>,
    attempt: u32,
    turn: u32,
    lease: &'a str,
    lease_seconds: f64,
    message: &'a Message,
    history: &'a [Message],
    context_history: &'a [Message],
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'a RawValue>,
    #[serde(flatten)]
    request: &'a RequestOptions,
}

#[derive(Serialize)]
struct HandedList<'a> {
    messages: Vec<HandedView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BeatView {
    canceled: bool,
    lease_seconds: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    id: String,
    status: &'static str,
    state: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    #[serde(flatten)]
    counts: Counts,
    agents: Vec<AgentView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentView {
    agent: String,
    #[serde(flatten)]
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_dlq_seconds: Option<f64>,
}

/// How many entries there are of each status.
#[derive(Serialize, Default, Clone, Copy)]
struct Counts {
    pending: u64,
    in_progress: u64,
    acked: u64,
    failed: u64,
    dlq: u64,
    canceled: u64,
    input_required: u64,
    rejected: u64,
    auth_required: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LettersView<'a> {
    messages: Vec<EntryView<'a>>,
    /// What `after` is for the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Plain data as JSON, of messages that are so long.
fn answer(status: Status, bytes: usize, value: &impl Serialize) -> Response {
    heavy(bytes, || reply::json(status, value))
}

#[derive(Serialize)]
struct ReplayedList {
    replayed: Vec<ReplayedView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayedView {
    message_id: String,
    new_message_id: String,
    to_agent: String,
}

impl Surface for Route {
    type Caller = Hand;

    fn at(segments: &[&str]) -> Option<Self> {
        let ["v1", "queue", segments @ ..] = segments else { return None };
        match segments {
            ["publish"] => Some(Self::Publish),
            ["status"] => Some(Self::Status),
            ["dlq"] => Some(Self::Letters),
            ["dlq", "replay"] => Some(Self::Replay),
            ["messages", id] => Some(Self::Entry((*id).to_owned())),
            ["messages", id, verb] => {
                let verb = match *verb {
                    "claim" => Verb::Claim,
                    "heartbeat" => Verb::Heartbeat,
                    "progress" => Verb::Progress,
                    "ack" => Verb::Ack,
                    "nack" => Verb::Nack,
                    "execute" => Verb::Execute,
                    _ => return None,
                };
                Some(Self::Verb((*id).to_owned(), verb))
            }
            [agent, "consume"] => Some(Self::Consume((*agent).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Publish | Self::Consume(_) | Self::Verb(..) | Self::Replay => "POST, OPTIONS",
            Self::Entry(_) | Self::Status | Self::Letters => "GET, HEAD, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Hand>) -> Result<Response, Error> {
        match self {
            Self::Publish => publish(visit).await,
            Self::Consume(agent) => {
                let body: ConsumeBody = body(&mut visit).await?;
                let exchange = &visit.app.exchange;
                let handed = exchange.consume(&visit.caller.0, &agent, consume(body), visit.luggage).await?;
                let messages = handed.iter().map(handed_view).collect();
                Ok(answer(Status::Ok, handed.iter().map(Handed::bytes).sum(), &HandedList { messages }))
            }
            Self::Entry(id) => {
                let shown = visit.app.exchange.queue_entry(&visit.caller.0, &id, visit.luggage).await?;
                Ok(shown_answer(Status::Ok, &shown))
            }
            Self::Verb(id, verb) => on_entry(visit, &id, verb).await,
            Self::Status => {
                let queues = visit.app.exchange.queue_status(tenant(&visit.caller)?).await?;
                Ok(reply::json(Status::Ok, &status_view(queues)))
            }
            Self::Letters => {
                let query = visit.query()?;
                letters(visit.app, tenant(&visit.caller)?, &query, visit.luggage).await
            }
            Self::Replay => replay(visit).await,
        }
    }
}

impl Admit for Hand {
    async fn admit(app: &App, parts: &Parts) -> Result<Self, Error> {
        let visitor = Visitor::admit(app, parts).await?;
        let pass = visitor.pass();
        let worker = match visitor {
            Visitor::Tenant(caller) => Worker::Tenant(caller),
            Visitor::Operator(_) => Worker::Operator,
        };
        Ok(Self(worker, pass))
    }

    fn pass(&self) -> Option<Arc<Pass>> {
        self.1.clone()
    }

    fn tenant(&self) -> Option<TenantId> {
        match &self.0 {
            Worker::Tenant(caller) => Some(caller.tenant),
            Worker::Operator => None,
        }
    }
}

/// The tenant that is meant, where it has to be one.
fn tenant(hand: &Hand) -> Result<&Caller, Error> {
    match &hand.0 {
        Worker::Tenant(caller) => Ok(caller),
        Worker::Operator => Err(Error::new(
            ErrorKind::PermissionDenied,
            "this takes a tenant's token: the admin token is for workers that serve all tenants",
        )),
    }
}

/// The body, which may be missing where every member of it may be.
async fn body<T: serde::de::DeserializeOwned + Default>(visit: &mut Visit<'_, Hand>) -> Result<T, Error> {
    match visit.optional_text(&[Media::Json]).await? {
        Some(bytes) => parse(&bytes),
        None => Ok(T::default()),
    }
}

async fn publish(mut visit: Visit<'_, Hand>) -> Result<Response, Error> {
    let bytes = visit.text(&[Media::Json]).await?;
    let body: PublishBody = parse(&bytes)?;
    let call = visit.app.call(tenant(&visit.caller)?.clone(), None, &visit.parts.headers, visit.luggage)?;
    let publish = Publish {
        from: body.from,
        to: body.to,
        text: body.text,
        payload: body.payload,
        // As everywhere on the wire, what is empty was not said.
        correlation_id: body.correlation_id.filter(|id| !id.is_empty()),
        delay: body.delay.0,
        priority: body.priority,
        max_attempts: body.max_attempts,
    };
    Ok(shown_answer(Status::Created, &visit.app.exchange.publish(&call, publish).await?))
}

fn consume(body: ConsumeBody) -> Consume {
    Consume { max: body.max, lease: body.lease.map(|lease| lease.0), wait: body.wait.0, worker: body.worker }
}

async fn on_entry(mut visit: Visit<'_, Hand>, id: &str, verb: Verb) -> Result<Response, Error> {
    let exchange = &visit.app.exchange;
    let state = match verb {
        Verb::Claim => {
            let ClaimBody { lease, worker } = body(&mut visit).await?;
            let wish = Consume { lease: lease.map(|lease| lease.0), worker, ..Consume::default() };
            let handed = exchange.claim_entry(&visit.caller.0, id, wish, visit.luggage).await?;
            return Ok(answer(Status::Ok, handed.bytes(), &handed_view(&handed)));
        }
        Verb::Heartbeat => {
            let HeartbeatBody { lease, seconds, wait } = body(&mut visit).await?;
            let lasts = seconds.map(|seconds| seconds.0);
            let beat = exchange.heartbeat(&visit.caller.0, id, lease.as_deref(), lasts, wait.0).await?;
            let view = BeatView { canceled: beat.canceled, lease_seconds: beat.lasts.as_secs_f64() };
            return Ok(reply::json(Status::Ok, &view));
        }
        Verb::Progress => {
            let bytes = visit.text(&[Media::Json]).await?;
            let ProgressBody { lease, sequence, text, events, end } = parse(&bytes)?;
            let mut said = Vec::with_capacity(events.len() + 1);
            if let Some(text) = text {
                let message = Message { parts: vec![a2a::Part::text(text)], ..Message::default() };
                said.push(Word::Said(Said::Status { auth_required: false, message: Some(message), metadata: None }));
            }
            for (n, event) in events.iter().enumerate() {
                let word = words::read(event.get().as_bytes(), exchange.limits());
                said.push(word.map_err(|why| Error::invalid(format!("events[{n}]"), why))?);
            }
            let report = Report { number: sequence, words: said, ends: end };
            exchange.progress(&visit.caller.0, id, lease.as_deref(), report, visit.luggage).await?
        }
        Verb::Ack => {
            let AckBody { lease, result, text } = body(&mut visit).await?;
            exchange.ack(&visit.caller.0, id, lease.as_deref(), Ack { result, text }, visit.luggage).await?
        }
        Verb::Nack => {
            let NackBody { lease, error, delay, release, fatal } = body(&mut visit).await?;
            let nack = Nack { error, delay: delay.map(|delay| delay.0), release, fatal };
            let shown = exchange.nack(&visit.caller.0, id, lease.as_deref(), nack, visit.luggage).await?;
            return Ok(shown_answer(Status::Ok, &shown));
        }
        Verb::Execute => {
            let call = visit.app.call(tenant(&visit.caller)?.clone(), None, &visit.parts.headers, visit.luggage)?;
            let task = exchange.execute(&call, id).await?;
            let json = task.to_json().map_err(exchange::Error::from)?;
            return Ok(reply::body(Status::Ok, HeaderValue::from_static("application/json"), json));
        }
    };
    let status = queue::status(state, false);
    Ok(reply::json(Status::Ok, &Written { id: id.to_owned(), status, state: state.as_str() }))
}

async fn letters(app: &App, caller: &Caller, query: &Query, luggage: &Luggage) -> Result<Response, Error> {
    let agent = match query.one_of("agent", &["agent"])? {
        Some(agent) => Some(agent.parse().map_err(|_| Error::invalid("agent", "is no agent's id"))?),
        None => None,
    };
    let after = match query.one_of("after", &["after"])? {
        Some(text) => Some(place(text).ok_or_else(|| Error::invalid("after", "is not the `next` of a list"))?),
        None => None,
    };
    let limit = match query.one_of("limit", &["limit"])? {
        Some(text) => {
            let wrong = |_| Error::invalid("limit", format!("must be a whole number, not {}", excerpt(text)));
            text.parse::<usize>().map_err(wrong)?.clamp(1, PAGE)
        }
        None => PAGE,
    };
    let LetterPage { letters, next } =
        app.exchange.dead_letters(caller, Letters { agent, after, limit }, luggage).await?;
    let next = next.map(|(at, task)| format!("{}.{task}", at.as_millis()));
    let messages = letters.iter().map(|letter| entry_view(&letter.entry, &letter.first)).collect();
    let bytes = letters.iter().map(|letter| bytes_of(&letter.entry)).sum();
    Ok(answer(Status::Ok, bytes, &LettersView { messages, next }))
}

fn shown_answer(status: Status, shown: &Shown) -> Response {
    answer(status, bytes_of(&shown.entry), &entry_view(&shown.entry, &shown.first))
}

fn bytes_of(entry: &QueueEntry) -> usize {
    usize::try_from(entry.first_bytes).unwrap_or(usize::MAX)
}

fn place(text: &str) -> Option<(Timestamp, TaskId)> {
    let (at, task) = text.split_once('.')?;
    Some((Timestamp::from_millis(at.parse().ok()?), TaskId::parse(task)?))
}

async fn replay(mut visit: Visit<'_, Hand>) -> Result<Response, Error> {
    let ReplayBody { message_id, to_agent } = body(&mut visit).await?;
    let exchange = &visit.app.exchange;
    let call = visit.app.call(tenant(&visit.caller)?.clone(), None, &visit.parts.headers, visit.luggage)?;
    let replayed = match message_id {
        Some(id) => vec![exchange.replay_letter(&call, &id, to_agent.as_deref()).await?],
        None => exchange.replay_letters(&call, to_agent.as_deref()).await?,
    };
    let view = |done: Replayed| ReplayedView {
        message_id: done.letter.to_string(),
        new_message_id: done.entry.task.to_string(),
        to_agent: done.entry.agent.to_string(),
    };
    Ok(reply::json(Status::Ok, &ReplayedList { replayed: replayed.into_iter().map(view).collect() }))
}

fn entry_view<'a>(entry: &QueueEntry, message: &'a Message) -> EntryView<'a> {
    let (text, payload) = said(message);
    let id = entry.task.to_string();
    let due = entry.due_in.map(|due| due.as_secs_f64());
    let is_held = entry.lease.is_some();
    let context = entry.context.to_string();
    EntryView {
        message_id: id.clone(),
        task_id: id.clone(),
        correlation_id: queue::correlation_id(entry).map(str::to_owned),
        context_id: context,
        id,
        from: entry.from.to_string(),
        to: entry.agent.to_string(),
        agent: entry.agent.to_string(),
        text,
        payload,
        status: queue::status(entry.state, entry.dead),
        state: entry.state.as_str(),
        priority: entry.priority,
        attempts: entry.attempts,
        max_attempts: entry.max_attempts,
        created_at: entry.created_at,
        status_at: entry.status_at,
        available_in_seconds: due.filter(|_| !is_held),
        claimed_by: entry.lease.as_ref().map(|lease| lease.holder.name().to_owned()),
        lease_left_seconds: due.filter(|_| is_held),
        canceled: entry.canceled,
        error: entry.errors.last().map(|failed| failed.error.clone()),
        errors: entry.errors.iter().map(failed_view).collect(),
        replays: entry.replays.map(|letter| letter.to_string()),
    }
}

/// What a message says for people and for programs.
fn said(message: &Message) -> (&str, Option<&Json>) {
    let text = message.parts.iter().find_map(a2a::Part::as_text).unwrap_or_default();
    let payload = message.parts.iter().find_map(|part| match &part.content {
        a2a::PartContent::Data(data) => Some(data),
        _ => None,
    });
    (text, payload)
}

fn failed_view(failed: &FailedAttempt) -> Failed {
    let FailedAttempt { attempt, at, worker, error } = failed.clone();
    Failed { attempt, at: Timestamp::from_millis(at), worker, error }
}

fn handed_view(handed: &Handed) -> HandedView<'_> {
    HandedView {
        // What is to be worked on may have been said after the first message.
        entry: entry_view(&handed.entry, &handed.message),
        attempt: handed.attempt,
        turn: handed.turn,
        lease: &handed.ticket,
        lease_seconds: handed.lasts.as_secs_f64(),
        message: &handed.message,
        history: match handed.history.as_slice() {
            [] => std::slice::from_ref(&handed.message),
            history => history,
        },
        context_history: &handed.context_history,
        // Workers keep JSON.
        kept: handed.state.as_deref().and_then(|state| serde_json::from_slice(state).ok()),
        request: &handed.request,
    }
}

fn status_view(queues: Vec<AgentQueue>) -> StatusView {
    let now = store::clock::now().as_millis();
    let age = |since: Option<Timestamp>| {
        since.map(|since| Duration::from_millis(u64::try_from(now - since.as_millis()).unwrap_or(0)).as_secs_f64())
    };
    let mut all = Counts::default();
    let mut agents = Vec::new();
    for queue in queues {
        let mut counts = Counts { dlq: queue.dead, ..Counts::default() };
        for (state, n) in queue.counts {
            *counts.of(queue::status(state, false)) += n;
        }
        counts.failed = counts.failed.saturating_sub(queue.dead);
        all.add(counts);
        agents.push(AgentView {
            agent: queue.agent.to_string(),
            counts,
            oldest_pending_seconds: age(queue.oldest_waiting),
            oldest_dlq_seconds: age(queue.oldest_dead),
        });
    }
    StatusView { counts: all, agents }
}

impl Counts {
    fn of(&mut self, status: &str) -> &mut u64 {
        match status {
            "pending" => &mut self.pending,
            "in_progress" => &mut self.in_progress,
            "acked" => &mut self.acked,
            "dlq" => &mut self.dlq,
            "canceled" => &mut self.canceled,
            "input_required" => &mut self.input_required,
            "rejected" => &mut self.rejected,
            "auth_required" => &mut self.auth_required,
            _ => &mut self.failed,
        }
    }

    fn add(&mut self, other: Self) {
        self.pending += other.pending;
        self.in_progress += other.in_progress;
        self.acked += other.acked;
        self.failed += other.failed;
        self.dlq += other.dlq;
        self.canceled += other.canceled;
        self.input_required += other.input_required;
        self.rejected += other.rejected;
        self.auth_required += other.auth_required;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        let id = || "x y".to_owned();
        for (path, expected) in [
            ("/v1/queue/publish", Some(Route::Publish)),
            ("/v1/queue/x%20y/consume", Some(Route::Consume(id()))),
            ("/v1/queue/messages/consume", Some(Route::Entry("consume".to_owned()))),
            ("/v1/queue/messages/x%20y", Some(Route::Entry(id()))),
            ("/v1/queue/messages/x%20y/ack", Some(Route::Verb(id(), Verb::Ack))),
            ("/v1/queue/messages/x%20y/execute", Some(Route::Verb(id(), Verb::Execute))),
            ("/v1/queue/status", Some(Route::Status)),
            ("/v1/queue/dlq", Some(Route::Letters)),
            ("/v1/queue/dlq/replay", Some(Route::Replay)),
            ("/v1/queue/messages/x/y", None),
            ("/v1/queue", None),
            ("/v1/queue/x", None),
        ] {
            assert_eq!(route(path, Route::at), expected, "{path}");
        }
    }

    #[test]
    fn a_result_may_be_null() {
        let ack: AckBody = parse(br#"{"result": null}"#).unwrap();
        assert_eq!(ack.result.unwrap().get(), "null");
        assert!(parse::<AckBody>(b"{}").unwrap().result.is_none());
        for wrong in [r#"{"delay": -1}"#, r#"{"delay": 1e400}"#, r#"{"delay": "1"}"#, r#"{"later": 1}"#] {
            assert!(parse::<NackBody>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
