//! Talking to agents in plain JSON, `/v1/chat`: a text goes in, a text comes out, and what takes long can be asked for.

use std::time::Instant;

use a2a::{Error, ErrorKind, Part, StreamResponse, Task, v03};
use axum::response::Response;
use exchange::{Caller, Chat, Chatted};
use serde::{Deserialize, Serialize};

use crate::{
    admin::parse,
    events::{self, End, Events},
    headers::Media,
    reply::{self, Status},
    sse::{Envelope, EventStream, Record},
    surface::{Surface, Visit},
};

/// What the events of a chat are called.
pub(crate) const INBOUND: &str = "agent.chat.inbound";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Say,
    One(String),
    Events(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Said {
    agent: Option<String>,
    #[serde(default)]
    message: String,
    context_id: Option<String>,
    task_id: Option<String>,
    skill: Option<String>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    return_immediately: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
    response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    task_state: &'static str,
    agent: String,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// Under which ids it is worked on elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<Remote>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Remote {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
}

/// Something that an agent says while it works.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    task_id: &'a str,
    agent: &'a str,
    correlation_id: &'a str,
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "chat"] => Some(Self::Say),
            ["v1", "chat", "", ..] => None,
            ["v1", "chat", id] => Some(Self::One((*id).to_owned())),
            ["v1", "chat", id, "events"] => Some(Self::Events((*id).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Say => "POST, OPTIONS",
            Self::One(_) | Self::Events(_) => "GET, HEAD, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let begun = Instant::now();
        let app = visit.app;
        match self {
            Self::Say => {
                let body = visit.text(&[Media::Json]).await?;
                let said: Said = parse(&body)?;
                let call = app.call(visit.caller, None, &visit.parts.headers, visit.luggage)?;
                let chat = Chat {
                    agent: said.agent.filter(|agent| !agent.is_empty()),
                    message: said.message,
                    context_id: said.context_id,
                    task_id: said.task_id,
                    skill: said.skill,
                    return_immediately: said.return_immediately,
                };
                let chatted = app.exchange.chat(&call, chat).await?;
                tell(chatted, said.done, Some(begun))
            }
            Self::One(id) => {
                let call = app.call(visit.caller, None, &visit.parts.headers, visit.luggage)?;
                tell(app.exchange.chat_state(&call, &id).await?, false, None)
            }
            Self::Events(id) => {
                let call = app.call(visit.caller, None, &visit.parts.headers, visit.luggage)?;
                let chatted = app.exchange.chat_state(&call, &id).await?;
                let frames = app.exchange.chat_events(&call, &id).await?;
                let events = Events::new(frames, End::AsItIs);
                let records = events::records(events, move |told| updates(&chatted, told.seq, &told.event));
                Ok(reply::stream(EventStream::over(records, Envelope::plain(), app.keep_alive)))
            }
        }
    }
}

/// How a chat stands. One whose remote is broken is an error.
fn tell(chatted: Chatted, done: bool, begun: Option<Instant>) -> Result<Response, Error> {
    if chatted.is_broken {
        let why = chatted.response.unwrap_or_else(|| "the remote failed".to_owned());
        return Err(Error::new(ErrorKind::BadGateway, why));
    }
    let pending = chatted.is_pending();
    let task = chatted.task.to_string();
    let shown = !done || pending;
    let answer = Answer {
        pending,
        response: chatted.response,
        context_id: shown.then(|| chatted.context.to_string()),
        task_id: shown.then(|| task.clone()),
        task_state: v03::TaskState(chatted.state).as_str(),
        agent: chatted.agent.to_string(),
        correlation_id: chatted.correlation,
        poll_url: pending.then(|| format!("/v1/chat/{task}")),
        duration_ms: begun
            .filter(|_| !pending)
            .map(|begun| u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)),
        remote: chatted
            .elsewhere
            .filter(|_| shown)
            .map(|elsewhere| Remote { task_id: elsewhere.task, context_id: elsewhere.context }),
    };
    Ok(reply::json(if pending { Status::Accepted } else { Status::Ok }, &answer))
}

/// What an event tells of a chat.
fn updates(chatted: &Chatted, seq: u64, event: &StreamResponse) -> Result<Vec<Record>, Error> {
    let (kind, text, state) = plain(event);
    let task = chatted.task.to_string();
    let update = Update {
        kind,
        text,
        state,
        task_id: &task,
        agent: chatted.agent.as_str(),
        correlation_id: &chatted.correlation,
    };
    Ok(vec![Record { id: Some(seq.into()), event: INBOUND, body: events::json(&update)? }])
}

/// An event in plain words: its type, its text and its state.
pub(crate) fn plain(event: &StreamResponse) -> (&'static str, String, Option<&'static str>) {
    let text = |parts: &[Part]| parts.iter().filter_map(Part::as_text).collect::<String>();
    let state = |state| Some(v03::TaskState(state).as_str());
    match event {
        StreamResponse::Task(Task { status, .. }) => {
            ("status", status.message.as_ref().map(|said| text(&said.parts)).unwrap_or_default(), state(status.state))
        }
        StreamResponse::StatusUpdate(update) => {
            let said = update.status.message.as_ref().map(|said| text(&said.parts)).unwrap_or_default();
            ("status", said, state(update.status.state))
        }
        StreamResponse::ArtifactUpdate(update) => ("artifact", text(&update.artifact.parts), None),
        StreamResponse::Message(message) => ("message", text(&message.parts), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        assert_eq!(route("/v1/chat", Route::at), Some(Route::Say));
        assert_eq!(route("/v1/chat/t-1", Route::at), Some(Route::One("t-1".to_owned())));
        assert_eq!(route("/v1/chat/t-1/events", Route::at), Some(Route::Events("t-1".to_owned())));
        for path in ["/v1/chat/", "/v1/chat/a/b", "/v1/chat/a/events/b"] {
            assert_eq!(route(path, Route::at), None, "{path}");
        }
    }
}
