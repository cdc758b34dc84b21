//! What is said to a remote beside its message, and what its answers mean for what follows.

use std::time::Duration;

use a2a::{CancelTaskRequest, Dialect, ErrorKind, GetTaskRequest, ListTasksRequest, Message, Task};
use client::{Client, Error};
use exchange::Turn;
use http::{HeaderName, HeaderValue};

use super::{
    peer::{Peer, told},
    spec::Sees,
    state::State,
};
use crate::frame::{clean, root_cause};

/// How many tasks of the remote a page has in which a message is looked for, and how many messages of each.
const PAGE: i32 = 100;
/// Maximum number of such pages.
const PAGES: usize = 100;
/// How long an unanswered message may still arrive at the remote while its cancel is tried.
const ARRIVAL: Duration = Duration::from_secs(60);

/// The answer of a remote that was asked for a message.
pub(super) enum Found {
    /// It has a task with it.
    Yes(Box<Task>),
    /// It does not have it.
    No,
    /// It has more tasks than are looked through.
    TooMany,
    /// It has no way to tell.
    Unknown,
    /// It cannot be asked now.
    NotNow(Error),
}

/// Cancels the remote's task. `tried_for` is how long that has been tried, by a steady clock. An error means that the cancel is still owed.
pub(super) async fn cancel(peer: &Peer, state: &State, tried_for: Duration) -> Result<(), String> {
    if !state.is_owed_a_cancel() {
        return Ok(());
    }
    if peer.card().is_none() {
        let fetched = peer.ensure_card(false).await;
        if state.carded
            && let Err(refused) = fetched
        {
            return Err(refused.to_string());
        }
    }
    let client = peer.asking().map_err(|refused| refused.to_string())?;
    let name = &peer.spec.name;
    let id = match &state.task {
        Some(id) => id.clone(),
        // The message was sent and not answered. It may be there all the same.
        None => match find(&peer.finder().map_err(|refused| refused.to_string())?, state).await {
            Found::Yes(task) => task.id,
            Found::No if tried_for < ARRIVAL => {
                return Err("the remote does not have the message yet, and may still get it".to_owned());
            }
            Found::No => return Ok(()),
            Found::NotNow(error) => return Err(told(&error)),
            Found::TooMany => {
                let why = "the message is not among the remote's newest tasks";
                tracing::warn!(agent.name = name, message.id = state.message, "a cancel is still owed: {why}");
                return Err(why.to_owned());
            }
            Found::Unknown => {
                tracing::warn!(
                    agent.name = name,
                    message.id = state.message,
                    "a remote that did not answer a message cannot be asked for it, and may work on it although it is not wanted any more"
                );
                return Ok(());
            }
        },
    };
    match client.cancel(CancelTaskRequest { id, ..CancelTaskRequest::default() }).await {
        Ok(_) => Ok(()),
        // It has ended, is not known or cannot be canceled: nothing more can be done.
        Err(error) if is_final(&error) => {
            tracing::info!(agent.name = %peer.spec.name, error = told(&error), "a remote did not cancel its task");
            Ok(())
        }
        Err(error) => Err(told(&error)),
    }
}

/// Whether an answer about a task will not change.
pub(super) fn is_final(error: &Error) -> bool {
    let kinds = [
        ErrorKind::TaskNotFound,
        ErrorKind::TaskNotCancelable,
        ErrorKind::UnsupportedOperation,
        ErrorKind::MethodNotFound,
        ErrorKind::InvalidParams,
    ];
    match error {
        Error::Protocol(remote) => {
            let status =
                error.http_status().is_some_and(|status| (400..500).contains(&status) && !matches!(status, 408 | 429));
            remote.kind().is_some_and(|kind| kinds.contains(&kind)) || (status && !error.is_passing())
        }
        Error::Inexpressible(_) => true,
        _ => false,
    }
}

/// Asks the remote for the task that has the message of a state: the task that is continued, where one is, or one of all that the remote
/// lists.
pub(super) async fn find(client: &Client, state: &State) -> Found {
    let has_it = |task: &Task| task.history.iter().any(|message: &Message| message.message_id == state.message);
    if let Some(id) = state.task.clone() {
        return match client.get(GetTaskRequest { id, ..GetTaskRequest::default() }).await {
            Ok(task) if has_it(&task.value) => Found::Yes(Box::new(task.value)),
            Ok(task) if task.value.history.is_empty() => Found::Unknown,
            Ok(_) => Found::No,
            Err(error) if error.is_passing() => Found::NotNow(error),
            Err(_) => Found::Unknown,
        };
    }
    if client.dialect() != Dialect::V1 {
        return Found::Unknown;
    }
    let mut list = ListTasksRequest {
        context_id: state.context.clone().unwrap_or_default(),
        page_size: Some(PAGE),
        history_length: Some(PAGE),
        ..ListTasksRequest::default()
    };
    for _ in 0..PAGES {
        let page = match client.list(list.clone()).await {
            Ok(page) => page.value,
            Err(error) if error.is_passing() => return Found::NotNow(error),
            Err(_) => return Found::Unknown,
        };
        let tells = page.tasks.iter().all(|task| !task.history.is_empty());
        if let Some(task) = page.tasks.into_iter().find(has_it) {
            return Found::Yes(Box::new(task));
        }
        if !tells || (!page.next_page_token.is_empty() && page.next_page_token == list.page_token) {
            return Found::Unknown;
        }
        if page.next_page_token.is_empty() {
            return Found::No;
        }
        list.page_token = page.next_page_token;
    }
    Found::TooMany
}

pub(super) fn headers(peer: &Peer, turn: &Turn, message: &str) -> Vec<(HeaderName, HeaderValue)> {
    if peer.spec.sees == Sees::Text {
        return Vec::new();
    }
    let trace = turn.trace();
    let key = Some(message.to_owned()).filter(|_| !store::fault::is_on("remote-forgets"));
    let all = [
        ("x-correlation-id", Some(trace.correlation)),
        ("x-parent-id", trace.parent),
        ("traceparent", Some(trace.traceparent)),
        ("idempotency-key", key),
    ];
    let header = |(name, value): (&'static str, Option<String>)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(&value?).ok()?))
    };
    all.into_iter().filter_map(header).collect()
}

/// The id of a turn's message there: the same at each attempt, since what was sent is kept. A turn that may hand nothing on sends nothing.
pub(super) fn message_id(turn: &Turn, state: &State) -> String {
    if !state.message.is_empty() {
        return state.message.clone();
    }
    let base = format!("{}.{}", turn.task, turn.number);
    match turn.ledger.clone().delegate(None) {
        Ok(delegation) => exchange::message_id(&base, &delegation),
        Err(_) => base,
    }
}

/// Whether a remote refuses to stream, and has not taken the message.
pub(super) fn refuses_streams(error: &Error) -> bool {
    match error {
        Error::Protocol(remote) => {
            let kinds = [ErrorKind::MethodNotFound, ErrorKind::UnsupportedOperation];
            let statuses = [404, 405, 406, 415, 501];
            remote.kind().is_some_and(|kind| kinds.contains(&kind))
                || error.http_status().is_some_and(|status| statuses.contains(&status))
        }
        Error::Inexpressible(_) => true,
        _ => false,
    }
}

/// Whether a stream broke before it said anything. The remote may have taken the message.
pub(super) fn is_broken_stream(error: &Error) -> bool {
    match error {
        Error::Malformed(_) | Error::Cut { .. } => true,
        Error::Unreachable { .. } => !error.never_sent(),
        _ => false,
    }
}

/// Whether the remote may be at work although the call failed.
pub(super) fn may_have_arrived(error: &Error) -> bool {
    !error.never_sent() && (error.is_passing() || is_broken_stream(error))
}

/// An error as callers are told of it: what the remote said, or what happened on the way. Where the remote is, is the operator's business.
pub(super) fn said(error: &Error) -> String {
    match (error, error.http_status()) {
        (Error::Protocol(remote) | Error::Auth(remote), Some(status)) => {
            let message = clean(&remote.message);
            let repeats = message.is_empty() || message.starts_with("HTTP status");
            // A page is no answer.
            if repeats || message.contains("<html") || message.contains("<!DOCTYPE") {
                let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
                return format!("HTTP {status}: {}", reason.unwrap_or("no reason given"));
            }
            format!("HTTP {status}: {message}")
        }
        (Error::Unreachable { origin, .. }, _) => {
            let cause = root_cause(error);
            // A certificate for another name is told with the name that was called.
            let host = url::Url::parse(origin).ok().and_then(|url| url.host_str().map(str::to_owned));
            if host.is_some_and(|host| cause.contains(&host)) {
                return "the remote cannot be reached".to_owned();
            }
            format!("the remote cannot be reached: {cause}")
        }
        (Error::Forbidden(_), _) => "the remote's address may not be called".to_owned(),
        (Error::Timeout { after, .. }, _) => format!("the remote did not answer within {} s", after.as_secs_f64()),
        (Error::Grant { .. }, _) => "the token for the remote cannot be had".to_owned(),
        (Error::NoCard { .. }, _) => "there is no card where cards are".to_owned(),
        (Error::Stream { .. }, _) => "it answers with a stream of events where one answer was expected".to_owned(),
        (Error::Url { .. } | Error::ForeignInterface { .. } | Error::Untrusted { .. }, _) => {
            "its card cannot be used".to_owned()
        }
        (Error::Malformed(why), _) if why.contains("://") => "malformed answer".to_owned(),
        (Error::Cut { .. }, _) => "the connection was cut before the answer was complete".to_owned(),
        _ => told(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_not_told_where_a_remote_is() {
        let unreachable = |cause: &str| {
            let origin = "https://far.internal:8443".to_owned();
            said(&Error::Unreachable { origin, source: std::io::Error::other(cause.to_owned()).into() })
        };
        assert_eq!(unreachable("Connection refused"), "the remote cannot be reached: Connection refused");
        let certificate = "invalid peer certificate: certificate not valid for name \"far.internal\"";
        assert_eq!(unreachable(certificate), "the remote cannot be reached");
        let forbidden = Error::Forbidden(client::egress::Refusal::Address("10.0.0.3".parse().unwrap()));
        assert_eq!(said(&forbidden), "the remote's address may not be called");
    }
}
