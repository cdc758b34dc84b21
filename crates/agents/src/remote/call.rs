//! What is said to a remote beside its message, and what its answers mean for what follows.

use a2a::{CancelTaskRequest, ErrorKind, ListTasksRequest, Task};
use client::{Client, Error};
use exchange::Turn;
use http::{HeaderName, HeaderValue};

use super::{
    peer::{Peer, told},
    spec::Sees,
    state::State,
};
use crate::frame::{clean, root_cause};

/// So many tasks of the remote are looked through for a message.
const LOOK_THROUGH: i32 = 100;

/// Tells a remote that its task is not wanted any more.
pub(super) async fn cancel(peer: &Peer, state: &State) -> Result<(), String> {
    if state.ended || (state.task.is_none() && state.message.is_empty()) {
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
    let id = match &state.task {
        Some(id) => id.clone(),
        // It was sent, and nobody has answered. It may be there all the same.
        None => match find(&client, state).await {
            Ok(Some(task)) => task.id,
            Ok(None) => return Ok(()),
            Err(error) if error.is_passing() => return Err(told(&error)),
            Err(_) => {
                let name = &peer.spec.name;
                tracing::warn!(
                    agent.name = name,
                    "a canceled task had not been answered by its remote, which may work on it"
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

/// The task there that was begun by the message of a state, among the newest.
pub(super) async fn find(client: &Client, state: &State) -> Result<Option<Task>, Error> {
    let list = ListTasksRequest {
        context_id: state.context.clone().unwrap_or_default(),
        page_size: Some(LOOK_THROUGH),
        history_length: Some(LOOK_THROUGH),
        ..ListTasksRequest::default()
    };
    let page = client.list(list).await?.value;
    let has_it = |task: &Task| task.history.iter().any(|message| message.message_id == state.message);
    let is_told = page.tasks.iter().all(|task| !task.history.is_empty());
    let found = page.tasks.into_iter().find(has_it);
    if found.is_none() && (!page.next_page_token.is_empty() || !is_told) {
        return Err(Error::Malformed("the list does not tell".to_owned()));
    }
    Ok(found)
}

pub(super) fn headers(peer: &Peer, turn: &Turn) -> Vec<(HeaderName, HeaderValue)> {
    if peer.spec.sees == Sees::Text {
        return Vec::new();
    }
    let trace = turn.trace();
    let key = Some(message_id(turn)).filter(|_| !store::fault::is_on("remote-forgets"));
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

/// The id of a turn's message there: the same at each attempt.
pub(super) fn message_id(turn: &Turn) -> String {
    format!("{}.{}", turn.task, turn.number)
}

/// Whether somebody who does not stream may answer plainly.
pub(super) fn falls_back(error: &Error) -> bool {
    match error {
        Error::Protocol(remote) => {
            let kinds = [ErrorKind::MethodNotFound, ErrorKind::UnsupportedOperation];
            let statuses = [404, 405, 406, 415, 501];
            remote.kind().is_some_and(|kind| kinds.contains(&kind))
                || error.http_status().is_some_and(|status| statuses.contains(&status))
        }
        Error::Malformed(_) | Error::Cut { .. } | Error::Inexpressible(_) => true,
        _ => false,
    }
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
        (Error::Unreachable { .. }, _) => format!("the remote cannot be reached: {}", root_cause(error)),
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
