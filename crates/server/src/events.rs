//! The events of a stream as types, for dialects that are not the journal's own: each event gives any number of records.

use std::collections::VecDeque;

use a2a::{
    Error, GetTaskRequest, JsonObject, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent, v03::arbiter,
};
use bytes::Bytes;
use exchange::{Call, Exchange, Frame, Frames, Note};
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use store::{EventKind, Tokens};

use crate::{
    encode,
    sse::{Record, Records},
};

/// Reads a cursor of the exchange.
pub(crate) struct Events {
    frames: Frames,
    end: End,
}

/// What a stream tells next.
pub(crate) struct Told {
    /// The number that it brings the reader to.
    pub(crate) seq: u64,
    pub(crate) event: StreamResponse,
    /// It is the task as it stands, in the place of all events so far.
    pub(crate) is_snapshot: bool,
    /// What the task has used of models, where the event is the whole task.
    pub(crate) tokens: Tokens,
}

/// How the last status of a task is read.
pub(crate) enum End {
    /// As it stands in the journal.
    AsItIs,
    /// Where a completed task's reply is not in it, but in the artifacts: as the whole task.
    WithReply(Exchange, Call),
    /// As the whole task.
    Whole(Exchange, Call),
}

impl Events {
    pub(crate) fn new(frames: Frames, end: End) -> Self {
        Self { frames, end }
    }

    /// The same, which also tells what the agent has used on the way: as WORKING, whose metadata say so.
    pub(crate) fn with_usage(frames: Frames, end: End) -> Self {
        Self::new(frames.with_notes(), end)
    }

    async fn next(&mut self) -> Option<Result<Told, Error>> {
        let frame = loop {
            let frame = match self.frames.next().await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error.into())),
            };
            match frame.note() {
                None if is_note(&frame) => {}
                None => break frame,
                Some(Note::Usage { model, input_tokens, output_tokens }) => {
                    let event = used(&model, input_tokens, output_tokens);
                    return Some(Ok(Told { seq: frame.seq(), event, is_snapshot: false, tokens: Tokens::default() }));
                }
                // What a tool did is an artifact too.
                Some(_) => {}
            }
        };
        let event = match frame.response() {
            Ok(event) => self.ended(event).await.map(|(event, tokens)| (event, tokens.or(tokens_of(&frame)))),
            Err(cause) => Err(encode::unreadable(&cause)),
        };
        let is_snapshot = matches!(frame, Frame::Task(_));
        Some(event.map(|(event, tokens)| Told {
            seq: frame.seq(),
            event,
            is_snapshot,
            tokens: tokens.unwrap_or_default(),
        }))
    }

    /// The event, or the whole task in its place and what that has used.
    async fn ended(&self, event: StreamResponse) -> Result<(StreamResponse, Option<Tokens>), Error> {
        let (id, status) = match &event {
            StreamResponse::StatusUpdate(update) => (&update.task_id, &update.status),
            StreamResponse::Task(task) => (&task.id, &task.status),
            _ => return Ok((event, None)),
        };
        let is_told = status.state != TaskState::Completed || status.message.is_some();
        let (exchange, call) = match &self.end {
            End::WithReply(exchange, call) if !is_told => (exchange, call),
            End::Whole(exchange, call) if status.state.is_terminal() => (exchange, call),
            _ => return Ok((event, None)),
        };
        // A task that has ended stays as it is, so that this is what the event was about.
        let request = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        let snapshot = exchange.get(call, request).await?;
        let mut task = encode::typed(&snapshot)?;
        if matches!(self.end, End::WithReply(..)) {
            arbiter::tell_replies(&mut task, &snapshot.made_in);
        }
        Ok((StreamResponse::Task(task), Some(snapshot.tokens)))
    }
}

fn tokens_of(frame: &Frame) -> Option<Tokens> {
    match frame {
        Frame::Task(snapshot) => Some(snapshot.tokens),
        Frame::Event(_) => None,
    }
}

/// Under this key of a status' metadata stands what a model has used.
pub(crate) const TOKEN_USAGE: &str = "x-arbiter.token_usage";

fn used(model: &str, input_tokens: u64, output_tokens: u64) -> StreamResponse {
    let used = json!({ "model": model, "input_tokens": input_tokens, "output_tokens": output_tokens });
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        status: TaskStatus { state: TaskState::Working, ..TaskStatus::default() },
        metadata: JsonObject::from_value(&json!({ TOKEN_USAGE: used })),
        ..TaskStatusUpdateEvent::default()
    })
}

/// A note that this version cannot read is one all the same.
fn is_note(frame: &Frame) -> bool {
    matches!(frame, Frame::Event(event) if event.kind == EventKind::Note)
}

/// The records that `translate` makes of the events, which it is given in order.
pub(crate) fn records<F>(events: Events, translate: F) -> Records
where
    F: FnMut(Told) -> Result<Vec<Record>, Error> + Send + 'static,
{
    let state = (events, translate, VecDeque::new());
    Box::pin(stream::unfold(state, |(mut events, mut translate, mut ready)| async move {
        loop {
            if let Some(record) = ready.pop_front() {
                return Some((Ok(record), (events, translate, ready)));
            }
            match events.next().await?.and_then(&mut translate) {
                Ok(records) => ready = records.into(),
                Err(error) => return Some((Err(error), (events, translate, ready))),
            }
        }
    }))
}

/// A record's data.
pub(crate) fn json(value: &impl Serialize) -> Result<Bytes, Error> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => Err(Error::internal("the event cannot be written as JSON")),
    }
}
