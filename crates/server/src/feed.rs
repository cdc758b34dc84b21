//! The feed of a tenant, `/v1/feed`: the events of all its tasks, in plain JSON, as server-sent events.

use a2a::{Error, Timestamp, v03};
use axum::response::Response;
use exchange::{Caller, Fed, FedEvent, Feed, FeedItem};
use futures_util::stream;
use serde::Serialize;

use crate::{
    chat::{self, INBOUND},
    events, reply,
    sse::{Envelope, EventId, EventStream, Record},
    surface::{Surface, Visit},
};

/// The events of all tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route;

/// An event of a task.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    task_id: String,
    context_id: &'a str,
    agent: &'a str,
    correlation_id: &'a str,
    sequence: u64,
    timestamp: Timestamp,
}

/// What the feed says of itself.
#[derive(Serialize)]
struct Notice<'a> {
    after: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        matches!(segments, ["v1", "feed"]).then_some(Self)
    }

    fn allow(&self) -> &'static str {
        "GET, HEAD, OPTIONS"
    }

    async fn answer(self, visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let query = visit.query()?;
        let last = visit.parts.headers.get("last-event-id");
        let last = last.map(|id| id.to_str().map_err(|_| Error::invalid("Last-Event-ID", "must be plain text")));
        // The query is the first connection's, and a browser repeats it when it comes back with the header.
        let after = match last.transpose()?.map(str::trim).filter(|id| !id.is_empty()) {
            Some(id) => Some(id),
            None => query.one_of("after", &["after"])?,
        };
        let app = visit.app;
        let call = app.call(visit.caller, None, &visit.parts.headers, visit.luggage)?;
        let feed = app.exchange.feed(&call, after).await?;
        let records = stream::unfold(feed, |mut feed: Feed| async move {
            let next = feed.next().await?;
            Some((next.map_err(Error::from).and_then(record), feed))
        });
        Ok(reply::stream(EventStream::over(Box::pin(records), Envelope::plain(), app.keep_alive)))
    }
}

fn record(item: FeedItem) -> Result<Record, Error> {
    let FeedItem { cursor, what } = item;
    let notice = |reason| events::json(&Notice { after: &cursor, reason });
    let (event, body) = match what {
        Fed::Open => ("open", notice(None)?),
        Fed::Silence => ("cursor", notice(None)?),
        Fed::Reset => ("reset", notice(Some("events after this cursor may be gone: read the tasks anew"))?),
        Fed::Event(event) => (INBOUND, update(*event)?),
    };
    Ok(Record { id: Some(EventId::Cursor(cursor)), event, body })
}

fn update(event: FedEvent) -> Result<bytes::Bytes, Error> {
    let FedEvent { task, agent, context, correlation, seq, at, response, state } = event;
    let (kind, text, said) = response.as_ref().map_or(("status", String::new(), None), chat::plain);
    events::json(&Update {
        kind,
        text,
        state: said.or_else(|| state.map(|state| v03::TaskState(state).as_str())),
        task_id: task.to_string(),
        context_id: &context,
        agent: &agent,
        correlation_id: &correlation,
        sequence: seq,
        timestamp: at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        assert_eq!(route("/v1/feed", Route::at), Some(Route));
        for path in ["/v1/feed/", "/v1/feed/a"] {
            assert_eq!(route(path, Route::at), None, "{path}");
        }
    }
}
