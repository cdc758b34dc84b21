//! The events of a cursor as messages, each made when the connection asks for it.
//!
//! A message has no place for its number. Who activates the extension of the resume cursor finds it in the event's metadata, and
//! subscribes again after it with `after_sequence`.

use std::collections::BTreeMap;

use a2a::{Error, ErrorKind, JsonObject, StreamResponse, grpc, grpc::Wire};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use exchange::{Call, Frame, Frames, RESUME_CURSOR, heavy};
use futures_util::{FutureExt, stream};
use http_body::Frame as Piece;
use serde_json::value::RawValue;

use super::answer;
use crate::encode;

/// Whether the caller asks for the numbers of events.
pub(crate) fn is_numbered(call: &Call) -> bool {
    call.extensions.iter().any(|uri| uri == RESUME_CURSOR)
}

/// The events of the protocol's service.
pub(crate) fn events(frames: Frames, is_numbered: bool) -> Response {
    messages(frames, move |frame, body| {
        let mut event = frame.response().map_err(|cause| encode::unreadable(&cause))?;
        if is_numbered {
            let metadata = metadata(&mut event);
            *metadata = Some(numbered(metadata.take(), frame.seq())?);
        }
        answer::frame(&event.into_message(), body);
        Ok(())
    })
}

/// The same of the custom service: the JSON of the event.
pub(crate) fn objects(frames: Frames, is_numbered: bool) -> Response {
    messages(frames, move |frame, body| {
        let mut json = encode::frame(frame)?;
        if is_numbered {
            json = numbered_event(&json, frame.seq())?.into();
        }
        answer::frame(&grpc::Struct::from_text(json), body);
        Ok(())
    })
}

/// Up to so many bytes, messages that are there already go out together.
const TOGETHER: usize = 32 << 10;

/// What `write` makes of each frame. An error ends the stream with its status; a stream that the server cuts says so, since an
/// orderly end would say that there is nothing more.
fn messages<W>(frames: Frames, write: W) -> Response
where
    W: Fn(&Frame, &mut BytesMut) -> Result<(), Error> + Send + 'static,
{
    let pieces = stream::unfold(Some((frames, write, None)), |state| async move {
        let (mut frames, write, mut end) = state?;
        let mut body = BytesMut::new();
        while end.is_none() && body.len() < TOGETHER {
            let next = if body.is_empty() {
                frames.next().await
            } else {
                match frames.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                }
            };
            let written = match next {
                Some(Ok(frame)) => heavy(size_of(&frame), || write(&frame, &mut body)),
                Some(Err(error)) => {
                    let error = Error::from(error);
                    tracing::warn!(error = %error, "a stream of events ended early");
                    Err(error)
                }
                None if frames.is_cut() => {
                    Err(Error::new(ErrorKind::Unavailable, "the server stops; subscribe to the task again"))
                }
                None => {
                    end = Some(answer::trailers(None));
                    continue;
                }
            };
            end = written.err().map(|error| answer::trailers(Some(&error)));
        }
        match end {
            Some(end) if body.is_empty() => Some((Piece::trailers(end), None)),
            end => Some((Piece::data(Bytes::from(body)), Some((frames, write, end)))),
        }
    });
    answer::frames(pieces)
}

/// How much is converted to make a message of a frame.
fn size_of(frame: &Frame) -> usize {
    match frame {
        Frame::Task(snapshot) => snapshot.size_hint(),
        Frame::Event(event) => event.body.len(),
    }
}

fn metadata(event: &mut StreamResponse) -> &mut Option<JsonObject> {
    match event {
        StreamResponse::Task(task) => &mut task.metadata,
        StreamResponse::Message(message) => &mut message.metadata,
        StreamResponse::StatusUpdate(update) => &mut update.metadata,
        StreamResponse::ArtifactUpdate(update) => &mut update.metadata,
    }
}

/// The metadata of an event with its number.
fn numbered(metadata: Option<JsonObject>, sequence: u64) -> Result<JsonObject, Error> {
    let metadata = match metadata {
        Some(metadata) => metadata,
        None => JsonObject::from_text("{}").map_err(unwritable)?,
    };
    metadata.with_member(&grpc::sequence_key(), &sequence).map_err(unwritable)
}

/// The JSON of an event with its number.
fn numbered_event(json: &[u8], sequence: u64) -> Result<Vec<u8>, Error> {
    let event: BTreeMap<String, BTreeMap<String, &RawValue>> = serde_json::from_slice(json).map_err(unwritable)?;
    let Some((kind, mut members)) = event.into_iter().next() else { return Ok(json.to_vec()) };
    let metadata = members.remove("metadata").and_then(|metadata| JsonObject::from_text(metadata.get()).ok());
    let metadata = serde_json::value::to_raw_value(&numbered(metadata, sequence)?).map_err(unwritable)?;
    members.insert("metadata".to_owned(), &metadata);
    serde_json::to_vec(&BTreeMap::from([(kind, members)])).map_err(unwritable)
}

fn unwritable(_: serde_json::Error) -> Error {
    Error::internal("an event cannot be written with its number")
}

/// A direct reply to a send.
pub(crate) fn direct(event: StreamResponse) -> Result<a2a::Message, Error> {
    match event {
        StreamResponse::Message(message) => Ok(message),
        _ => Err(Error::internal("what is stored as a reply is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_number_in_its_metadata() {
        let key = grpc::sequence_key();
        for (json, expected) in [
            (r#"{"task":{"id":"t"}}"#.to_owned(), format!(r#"{{"task":{{"id":"t","metadata":{{"{key}":7}}}}}}"#)),
            (
                r#"{"message":{"metadata":{"b":[1e999],"a": 1 }}}"#.to_owned(),
                format!(r#"{{"message":{{"metadata":{{"b":[1e999],"a": 1 ,"{key}":7}}}}}}"#),
            ),
            (r#"{"message":{"metadata":{ }}}"#.to_owned(), format!(r#"{{"message":{{"metadata":{{ "{key}":7}}}}}}"#)),
        ] {
            assert_eq!(String::from_utf8(numbered_event(json.as_bytes(), 7).unwrap()).unwrap(), expected);
        }
    }
}
