//! The events of a cursor as messages, each made when the connection asks for it.
//!
//! A message has no place for its number. Who activates the extension of the resume cursor finds it in the event's metadata, and
//! subscribes again after it with `after_sequence`.

use a2a::{Error, ErrorKind, StreamResponse, grpc::Wire, grpc::wire};
use exchange::{Call, Frame, Frames, RESUME_CURSOR};
use futures_util::{Stream, stream};
use prost_types::{Struct, Value, value::Kind};
use tonic::Status;

use super::answer;
use crate::encode;

/// Whether the caller asks for the numbers of events.
pub(crate) fn is_numbered(call: &Call) -> bool {
    call.extensions.iter().any(|uri| uri == RESUME_CURSOR)
}

/// The events of the protocol's service.
pub(crate) fn events(
    frames: Frames,
    is_numbered: bool,
) -> impl Stream<Item = Result<wire::StreamResponse, Status>> + Send + 'static {
    messages(frames, move |frame| {
        let event = frame.response().map_err(|cause| encode::unreadable(&cause))?;
        let mut message = event.into_message();
        if is_numbered && let Some(metadata) = metadata(&mut message) {
            number(metadata, frame.seq());
        }
        Ok(message)
    })
}

/// The same of the custom service: the JSON of the event.
pub(crate) fn objects(
    frames: Frames,
    is_numbered: bool,
) -> impl Stream<Item = Result<Struct, Status>> + Send + 'static {
    messages(frames, move |frame| {
        let mut object = a2a::grpc::struct_of(&String::from_utf8_lossy(&encode::frame(frame)?));
        if is_numbered && let Some(Value { kind: Some(Kind::StructValue(event)) }) = object.fields.values_mut().next() {
            let metadata = event.fields.entry("metadata".to_owned()).or_default();
            if let Kind::StructValue(metadata) =
                metadata.kind.get_or_insert_with(|| Kind::StructValue(Struct::default()))
            {
                number(metadata, frame.seq());
            }
        }
        Ok(object)
    })
}

/// What `write` makes of each frame. An error ends the stream with its status; a stream that the server cuts says so, since an
/// orderly end would say that there is nothing more.
fn messages<M, W>(frames: Frames, write: W) -> impl Stream<Item = Result<M, Status>> + Send + 'static
where
    M: Send + 'static,
    W: Fn(&Frame) -> Result<M, Error> + Send + 'static,
{
    stream::unfold(Some((frames, write)), |state| async move {
        let (mut frames, write) = state?;
        let failed = |error: &Error| Some((Err(answer::status(error)), None));
        match frames.next().await {
            Some(Ok(frame)) => match write(&frame) {
                Ok(message) => Some((Ok(message), Some((frames, write)))),
                Err(error) => failed(&error),
            },
            Some(Err(error)) => {
                let error = Error::from(error);
                tracing::warn!(error = %error, "a stream of events ended early");
                failed(&error)
            }
            None if frames.is_cut() => {
                failed(&Error::new(ErrorKind::Unavailable, "the server stops; subscribe to the task again"))
            }
            None => None,
        }
    })
}

fn metadata(message: &mut wire::StreamResponse) -> Option<&mut Struct> {
    use wire::stream_response::Payload;
    let metadata = match message.payload.as_mut()? {
        Payload::Task(task) => &mut task.metadata,
        Payload::Message(message) => &mut message.metadata,
        Payload::StatusUpdate(update) => &mut update.metadata,
        Payload::ArtifactUpdate(update) => &mut update.metadata,
    };
    Some(metadata.get_or_insert_default())
}

fn number(metadata: &mut Struct, sequence: u64) {
    // Exact up to 2^53, which no task's log will reach.
    let kind = Some(Kind::NumberValue(sequence as f64));
    metadata.fields.insert(a2a::grpc::sequence_key(), Value { kind });
}

/// A direct reply to a send.
pub(crate) fn direct(event: StreamResponse) -> Result<a2a::Message, Error> {
    match event {
        StreamResponse::Message(message) => Ok(message),
        _ => Err(Error::internal("what is stored as a reply is none")),
    }
}
