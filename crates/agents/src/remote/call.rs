//! What is said to a remote beside its message, and what its answers mean for what follows.

use std::time::{Duration, Instant};

use a2a::{CancelTaskRequest, Dialect, ErrorKind, GetTaskRequest, ListTasksRequest, Message, Task};
use client::{Client, Error, egress::TlsProblem};
use exchange::Turn;
use http::{HeaderName, HeaderValue};

use super::{
    peer::{Peer, told},
    spec::Sees,
    state::State,
};
use crate::frame::{clean, root_cause};

/// Sizes of the pages in which a message is looked for: number of tasks, and of messages of each. After an answer that is too large the next
/// size is tried.
const PAGES: [(i32, i32); 4] = [(100, 100), (10, 100), (1, 100), (1, 1)];
/// Maximum number of tasks that are looked through at once.
const MOST_TASKS: usize = 10_000;
/// How long an unanswered message may still arrive after the remote has said for the first time that it does not have it.
const ARRIVAL: Duration = Duration::from_secs(60);

/// The answer of a remote that was asked for a message.
pub(super) enum Found {
    /// It has a task with it.
    Yes(Box<Task>),
    /// It does not have it.
    No,
    /// No task that tells its messages has it, and some tell none.
    Unsure,
    /// It has more tasks than are looked through at once. The next attempt goes on behind them.
    TooMany,
    /// It has no way to tell.
    Unknown,
    /// It did not answer, or what it answered may be different another time.
    NotNow(Error),
}

/// A search for the task that has a message. An attempt goes on where the one before it was cut off.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Token of the page that comes next.
    page: String,
    /// Index of its size in [`PAGES`].
    size: usize,
    /// Number of tasks on the pages before it.
    tasks: usize,
    /// Some of them did not tell their messages.
    is_unsure: bool,
    /// When the remote said for the first time that it does not have the message.
    missing_since: Option<Instant>,
    /// How often it has said so.
    missed: u32,
}

impl Search {
    fn begin_anew(&mut self) {
        *self = Self { missing_since: self.missing_since, missed: self.missed, ..Self::default() };
    }

    /// Whether the remote has said twice that it does not have the message.
    pub(super) fn has_missed_twice(&self) -> bool {
        self.missed >= 2
    }

    /// Whether a message that the remote does not have at this time may still arrive there.
    fn may_arrive(&mut self, now: Instant) -> bool {
        now.duration_since(*self.missing_since.get_or_insert(now)) < ARRIVAL
    }
}

/// Cancels the remote's task. An error means that the cancel is still owed.
pub(super) async fn cancel(peer: &Peer, state: &State) -> Result<(), String> {
    if !state.is_owed_a_cancel() {
        return Ok(());
    }
    let told = try_cancel(peer, state).await;
    if told.is_ok() {
        peer.end_search(&state.message);
    }
    told
}

async fn try_cancel(peer: &Peer, state: &State) -> Result<(), String> {
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
        None => match search(peer, state).await? {
            Found::Yes(task) => task.id,
            Found::No | Found::Unsure => return Ok(()),
            Found::NotNow(error) => return Err(told(&error)),
            Found::TooMany => {
                let why = not_found_yet(name);
                tracing::warn!(agent.name = name, message.id = state.message, "a cancel is still owed: {why}");
                return Err(why);
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

/// Looks for the message, as long as it may still arrive.
async fn search(peer: &Peer, state: &State) -> Result<Found, String> {
    let finder = peer.finder().map_err(|refused| refused.to_string())?;
    let search = peer.search(&state.message);
    let mut search = search.lock().await;
    let found = find(&finder, state, &mut search).await;
    if matches!(found, Found::No | Found::Unsure) && search.may_arrive(Instant::now()) {
        return Err("the remote does not have the message yet, and may still get it".to_owned());
    }
    Ok(found)
}

/// Why a message of a remote with many tasks is still looked for.
pub(super) fn not_found_yet(name: &str) -> String {
    format!(
        "the message is not among the {MOST_TASKS} tasks of remote {name} that were looked through, and the search goes on behind them"
    )
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

/// Whether the remote has said that it cannot answer such a question.
fn cannot_tell(error: &Error) -> bool {
    let is_unknown = matches!(error, Error::Protocol(remote) if remote.kind() == Some(ErrorKind::InvalidRequest));
    is_unknown || error.http_status() == Some(501) || is_final(error)
}

/// Asks the remote for the task that has the message of a state: the task that is continued, where one is, or one of all that the remote
/// lists.
pub(super) async fn find(client: &Client, state: &State, search: &mut Search) -> Found {
    let has_it = |task: &Task| task.history.iter().any(|message: &Message| message.message_id == state.message);
    if let Some(id) = state.task.clone() {
        return match client.get(GetTaskRequest { id, ..GetTaskRequest::default() }).await {
            Ok(task) if has_it(&task.value) => Found::Yes(Box::new(task.value)),
            Ok(task) if task.value.history.is_empty() => Found::Unknown,
            Ok(_) => {
                search.missed += 1;
                Found::No
            }
            Err(error) if cannot_tell(&error) => Found::Unknown,
            Err(error) => Found::NotNow(error),
        };
    }
    if client.dialect() != Dialect::V1 {
        return Found::Unknown;
    }
    let found = loop {
        let (tasks, messages) = PAGES[search.size];
        let list = ListTasksRequest {
            context_id: state.context.clone().unwrap_or_default(),
            page_size: Some(tasks),
            history_length: Some(messages),
            page_token: search.page.clone(),
            ..ListTasksRequest::default()
        };
        let page = match client.list(list).await {
            Ok(page) => page.value,
            Err(Error::TooLarge { .. }) if search.size + 1 < PAGES.len() => {
                search.size += 1;
                continue;
            }
            Err(error) if error.is_mendable() => return Found::NotNow(error),
            // The token of a page may be good for a while only.
            Err(error) if cannot_tell(&error) && search.page.is_empty() => break Found::Unknown,
            Err(error) => break Found::NotNow(error),
        };
        search.tasks += page.tasks.len().max(1);
        search.is_unsure |= page.tasks.iter().any(|task| task.history.is_empty());
        if let Some(task) = page.tasks.into_iter().find(has_it) {
            break Found::Yes(Box::new(task));
        }
        let is_stuck = !page.next_page_token.is_empty() && page.next_page_token == search.page;
        if is_stuck || (page.next_page_token.is_empty() && search.is_unsure) {
            break Found::Unsure;
        }
        if page.next_page_token.is_empty() {
            search.missed += 1;
            break Found::No;
        }
        search.page = page.next_page_token;
        if search.tasks >= MOST_TASKS {
            search.tasks = 0;
            return Found::TooMany;
        }
    };
    search.begin_anew();
    found
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
    !error.never_sent() && (error.is_mendable() || is_broken_stream(error))
}

/// An error as callers are told of it: which remote it was, and what it said or what happened on the way. Where the remote is, is the
/// operator's business.
pub(super) fn said(name: &str, has_credential: bool, error: &Error) -> String {
    match error {
        Error::Auth(remote) => {
            let number = error.http_status().map(|status| format!(" (HTTP {status})")).unwrap_or_default();
            let message = own_words(&remote.message).map(|message| format!(": {message}")).unwrap_or_default();
            format!("remote {name} {}{number}{message}", refusal(error, has_credential))
        }
        Error::Protocol(_) => match status_line(error) {
            Some(line) => format!("remote {name} answered {line}"),
            None => format!("remote {name} answered: {}", told(error)),
        },
        Error::Tls { problem: TlsProblem::NameMismatch { .. }, .. } => {
            format!("remote {name} cannot be reached: its certificate is for another name")
        }
        Error::Tls { problem, .. } => format!("remote {name} cannot be reached: {}", clean(&problem.to_string())),
        Error::Unreachable { origin, .. } => {
            let cause = root_cause(error);
            // Some causes name the host that was called.
            let host = url::Url::parse(origin).ok().and_then(|url| url.host_str().map(str::to_owned));
            if host.is_some_and(|host| cause.contains(&host)) {
                return format!("remote {name} cannot be reached");
            }
            format!("remote {name} cannot be reached: {cause}")
        }
        Error::Forbidden(_) => format!("the address of remote {name} may not be called"),
        Error::Timeout { after, .. } => format!("remote {name} did not answer within {} s", after.as_secs_f64()),
        Error::Grant { .. } => format!("the token for remote {name} cannot be had"),
        Error::NoCard { .. } => format!("remote {name} has no card where cards are"),
        Error::Stream { .. } => {
            format!("remote {name} answers with a stream of events where one answer was expected")
        }
        Error::Url { .. } | Error::ForeignInterface { .. } | Error::Untrusted { .. } => {
            format!("the card of remote {name} cannot be used")
        }
        Error::Malformed(why) if why.contains("://") => format!("remote {name}: malformed answer"),
        Error::Cut { .. } => format!("the connection to remote {name} was cut before the answer was complete"),
        _ => format!("remote {name}: {}", told(error)),
    }
}

/// The meaning of a remote's error about credentials, for the caller.
pub(super) fn refusal(error: &Error, has_credential: bool) -> &'static str {
    match (error.http_status(), has_credential) {
        (Some(403), _) => "does not allow this server to do this",
        (_, true) => "refused this server's token",
        (_, false) => "demands a credential, and this server has none for it",
    }
}

/// The status of an answer of HTTP and what the remote said with it: `HTTP 500: …`.
pub(super) fn status_line(error: &Error) -> Option<String> {
    let (Error::Protocol(remote) | Error::Auth(remote)) = error else { return None };
    let status = error.http_status()?;
    let reason = || http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let message = own_words(&remote.message);
    Some(format!("HTTP {status}: {}", message.as_deref().or_else(reason).unwrap_or("no reason given")))
}

/// What a remote said with an error: neither nothing, nor a page for people.
fn own_words(message: &str) -> Option<String> {
    let message = clean(message);
    let is_nothing = message.is_empty() || message.starts_with("HTTP status");
    (!is_nothing && !message.contains("<html") && !message.contains("<!DOCTYPE")).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_not_told_where_a_remote_is() {
        let unreachable = |cause: &str| {
            let origin = "https://far.internal:8443".to_owned();
            said("far", true, &Error::Unreachable { origin, source: std::io::Error::other(cause.to_owned()).into() })
        };
        assert_eq!(unreachable("Connection refused"), "remote far cannot be reached: Connection refused");
        assert_eq!(unreachable("no address for far.internal"), "remote far cannot be reached");
        let tls = |problem| said("far", true, &Error::Tls { origin: "https://far.internal:8443".to_owned(), problem });
        let (host, names) = ("far.internal".to_owned(), vec!["near.internal".to_owned()]);
        let mismatch = "remote far cannot be reached: its certificate is for another name";
        assert_eq!(tls(TlsProblem::NameMismatch { host, names }), mismatch);
        let expired = "remote far cannot be reached: its certificate has expired";
        assert_eq!(tls(TlsProblem::Expired(None)), expired);
        let forbidden = Error::Forbidden(client::egress::Refusal::Address("10.0.0.3".parse().unwrap()));
        assert_eq!(said("far", true, &forbidden), "the address of remote far may not be called");
    }

    /// A remote that could not be asked for an hour may be behind a proxy that has held the message for as long.
    #[test]
    fn a_message_may_arrive_for_a_while_after_the_remote_has_said_that_it_does_not_have_it() {
        let mut search = Search::default();
        let first = Instant::now() + Duration::from_secs(3600);
        assert!(search.may_arrive(first) && search.may_arrive(first + ARRIVAL / 2));
        search.begin_anew();
        assert!(!search.may_arrive(first + ARRIVAL));
    }
}
