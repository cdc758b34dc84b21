//! The native requests, `/v1/requests`: the caller's tasks, of every agent, as a request log. A request's id is its task's id.

mod native;

use std::sync::Arc;

use a2a::{CancelTaskRequest, Error, ErrorKind, GetTaskRequest, SubscribeToTaskRequest, TaskState};
use axum::response::Response;
use exchange::{Call, Caller, Relative, Rules};
use http::Method;
use serde_json::{Value, json};
use store::{Deleted, Filter, Snapshot, TaskId, View};

use self::native::Run;
use crate::{
    app::App,
    events::{self, End, Events},
    headers,
    reply::{self, Status},
    sse::{Envelope, EventStream},
    surface::{Surface, Visit},
};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 200;

/// What can stand at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    All,
    One(String),
    Cancel(String),
    Events(String),
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "requests"] => Some(Self::All),
            ["v1", "requests", "", ..] => None,
            ["v1", "requests", id] => Some(Self::One((*id).to_owned())),
            ["v1", "requests", id, "cancel"] => Some(Self::Cancel((*id).to_owned())),
            ["v1", "requests", id, "events"] => Some(Self::Events((*id).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::All => "GET, HEAD, OPTIONS",
            Self::One(_) => "GET, HEAD, DELETE, OPTIONS",
            Self::Cancel(_) => "POST, OPTIONS",
            Self::Events(_) => "GET, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        match self {
            Self::All => list(visit).await,
            Self::One(id) if visit.parts.method == Method::DELETE => {
                let cancel = visit.query()?.cancel()?;
                visit.read().await?;
                let exchange = &visit.app.exchange;
                Ok(deleted(&exchange.delete_task(&Call::new(visit.caller), &id, cancel).await?))
            }
            Self::One(id) => one(visit, id).await,
            Self::Cancel(id) => {
                // Nothing is said in it, but it has to be read before the connection can go on.
                visit.read().await?;
                cancel(visit, id).await
            }
            Self::Events(id) => events(visit, id).await,
        }
    }
}

/// The newest requests first.
async fn list(visit: Visit<'_, Caller>) -> Result<Response, Error> {
    let query = visit.query()?;
    let limit = match query.one_of("limit", &["limit"])? {
        None => DEFAULT_LIMIT,
        Some(text) => match text.parse() {
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => limit,
            _ => return Err(Error::invalid("limit", format!("must be a whole number from 1 to {MAX_LIMIT}"))),
        },
    };
    let view = View { history: Some(0), artifacts: false, ..View::FULL };
    let filter =
        Filter { agent: None, among: Vec::new(), context: None, state: None, since: None, after: None, limit, view };
    let call = Call { luggage: Arc::clone(visit.luggage), ..Call::new(visit.caller) };
    let page = visit.app.exchange.page(&call, filter).await?;
    let requests: Vec<Value> = page.tasks.iter().map(status).collect();
    Ok(reply::json(Status::Ok, &json!({ "requests": requests })))
}

/// One request.
async fn one(visit: Visit<'_, Caller>, id: String) -> Result<Response, Error> {
    let with_children = visit.query()?.children()?;
    let call = Call { luggage: Arc::clone(visit.luggage), ..Call::new(visit.caller) };
    let request = GetTaskRequest { id, history_length: Some(0), ..GetTaskRequest::default() };
    let details = visit.app.exchange.details(&call, request, with_children).await?;
    let relative = |task: &Relative| json!({ "request_id": task.task.to_string(), "agent_id": task.agent.as_str(), "state": state(task.state) });
    let mut request = status(&details.snapshot);
    request["attempts"] = json!(details.attempts);
    request["cancel_owed"] = json!(details.owes_cancel);
    request["parent"] = json!(details.parent.as_ref().map(relative));
    if with_children {
        request["children"] = details.children.iter().map(relative).collect();
    }
    Ok(reply::json(Status::Ok, &json!({ "request": request })))
}

/// What was deleted: how many tasks, and how many bytes the tenant has back.
pub(crate) fn deleted(deleted: &Deleted) -> Response {
    reply::json(Status::Ok, &json!({ "deleted": deleted.tasks, "bytes": deleted.bytes }))
}

/// Cancels what `tasks/cancel` cancels. A request that has ended is not in flight, as one that never was.
async fn cancel(visit: Visit<'_, Caller>, id: String) -> Result<Response, Error> {
    let call = Call { rules: Rules { cancel_once: true, ..Rules::default() }, ..Call::new(visit.caller) };
    let request = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
    let Err(error) = visit.app.exchange.cancel(&call, request).await else {
        return Ok(reply::json(Status::Ok, &json!({ "request_id": id, "cancelled": true })));
    };
    if !matches!(error.kind(), ErrorKind::TaskNotFound | ErrorKind::TaskNotCancelable) {
        return Err(error.into());
    }
    let reason = "no in-flight request with that id";
    // The error that every other route would answer with stands beside it.
    let status: Value =
        serde_json::from_slice(&Error::new(ErrorKind::NotFound, reason).status_body()).unwrap_or_default();
    let body = json!({ "request_id": id, "cancelled": false, "reason": reason, "error": status["error"] });
    Ok(reply::json(Status::Error(ErrorKind::NotFound), &body))
}

/// The log of a request from `since_seq` on, then what comes. Of a log that is gone the request as it ended is told, from its begin.
async fn events(visit: Visit<'_, Caller>, id: String) -> Result<Response, Error> {
    let app = visit.app;
    let cursor = headers::cursor(&visit.parts.headers, &visit.query()?)?;
    let call = Call::new(visit.caller);
    let snapshot = look(app, &call, &id).await?;
    // A cursor beyond the log's end is not of this request.
    let after = cursor.filter(|after| *after <= snapshot.seq).unwrap_or(0);
    let request = SubscribeToTaskRequest { id, ..SubscribeToTaskRequest::default() };
    let frames = app.exchange.subscribe(&call, request, Some(after)).await?;
    let run = Run {
        request: snapshot.task.to_string(),
        agent: snapshot.agent.to_string(),
        tenant: call.caller.tenant.0,
        tenant_name: call.caller.name.to_string(),
        started_ms: started_ms(snapshot.task),
    };
    let events = Events::with_usage(frames, End::Whole(app.exchange.clone(), call));
    let records = events::records(events, move |told| run.records(told));
    Ok(reply::stream(EventStream::over(records, Envelope::plain(), app.keep_alive)))
}

async fn look(app: &App, call: &Call, id: &str) -> Result<Snapshot, Error> {
    let request = GetTaskRequest { id: id.to_owned(), history_length: Some(0), ..GetTaskRequest::default() };
    Ok(app.exchange.get(call, request).await?)
}

/// A request as it stands. Times are seconds since the epoch.
fn status(snapshot: &Snapshot) -> Value {
    let ended = snapshot.state.is_terminal();
    json!({
        "request_id": snapshot.task.to_string(),
        "agent_id": snapshot.agent.as_str(),
        "context_id": &*snapshot.context,
        // A context is no conversation.
        "conversation_id": null,
        "state": state(snapshot.state),
        "started_at": started_ms(snapshot.task) / 1000,
        "completed_at": ended.then(|| snapshot.status_at.as_millis() / 1000),
        "error_message": error_message(snapshot),
        "last_seq": snapshot.seq,
        "input_tokens": snapshot.tokens.input,
        "output_tokens": snapshot.tokens.output,
    })
}

fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified | TaskState::Submitted | TaskState::Working => "running",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "cancelled",
        TaskState::Rejected => "rejected",
    }
}

fn error_message(snapshot: &Snapshot) -> String {
    if snapshot.state != TaskState::Failed {
        return String::new();
    }
    let message = snapshot.status_message.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
    message.map(|message: a2a::Message| message.text()).unwrap_or_default()
}

/// When a task began, in milliseconds: its id is a UUIDv7, whose first 48 bits say so (RFC 9562, 5.7).
fn started_ms(task: TaskId) -> i64 {
    let digits: String = task.to_string().chars().filter(char::is_ascii_hexdigit).take(12).collect();
    i64::from_str_radix(&digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        for (path, expected) in [
            ("/v1/requests", Some(Route::All)),
            ("/v1/requests/a%20b", Some(Route::One("a b".into()))),
            ("/v1/requests/x/cancel", Some(Route::Cancel("x".into()))),
            ("/v1/requests/x/events", Some(Route::Events("x".into()))),
            ("/v1/requests/", None),
            ("/v1/requests//cancel", None),
            ("/v1/requests/x/", None),
            ("/v1/requests/x/cancel/y", None),
        ] {
            assert_eq!(route(path, Route::at), expected, "{path}");
        }
    }

    #[test]
    fn an_id_says_when() {
        let now = store::clock::now().as_millis();
        let started = started_ms(TaskId::mint());
        assert!((started - now).abs() < 10_000, "{started} {now}");
    }
}
