//! The gRPC binding, as a caller: messages are framed here and travel as any other request; answers become the types and the
//! JSON that the other bindings give.

use a2a::{
    Dialect, Method, StreamResponse,
    error::{DOMAIN, FieldViolation, RemoteError, excerpt},
    grpc::{self, Wire},
};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::value::RawValue;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use url::Url;

use crate::{
    Error,
    binding::{Operation, Outbound},
    egress::Response,
    heavy::heavy,
    sse::Event,
    v03,
};

/// Before each message stand a byte that says whether it is compressed, and its length in four.
const PREFIX: usize = 5;

/// Where an interface is: `host:port` with the scheme of its card, or a URL.
pub(crate) fn url(interface: &str, card: &Url) -> Result<Url, Error> {
    if interface.contains("://") {
        return crate::parse_url(interface);
    }
    crate::parse_url(&format!("{}://{interface}", card.scheme()))
}

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Outbound {
    let (method, message) = match operation {
        Operation::Send(request) => (Method::SendMessage, grpc::encode(request.clone())),
        Operation::Stream(request) => (Method::SendStreamingMessage, grpc::encode(request.clone())),
        Operation::Get(request) => (Method::GetTask, grpc::encode(request.clone())),
        Operation::List(request) => (Method::ListTasks, grpc::encode(request.clone())),
        Operation::Cancel(request) => (Method::CancelTask, grpc::encode(request.clone())),
        Operation::Subscribe(request) => (Method::SubscribeToTask, grpc::encode(request.clone())),
        Operation::CreatePush(config) => (Method::CreateTaskPushNotificationConfig, grpc::encode(config.clone())),
        Operation::GetPush(request) => (Method::GetTaskPushNotificationConfig, grpc::encode(request.clone())),
        Operation::ListPush(request) => (Method::ListTaskPushNotificationConfigs, grpc::encode(request.clone())),
        Operation::DeletePush(request) => (Method::DeleteTaskPushNotificationConfig, grpc::encode(request.clone())),
        Operation::ExtendedCard(request) => (Method::GetExtendedAgentCard, grpc::encode(request.clone())),
    };
    call(endpoint, grpc::SERVICE, method.as_str(), &message)
}

/// A call of a method with its message.
pub(crate) fn call(endpoint: &Url, service: &str, method: &str, message: &[u8]) -> Outbound {
    let mut url = endpoint.clone();
    url.set_path(&format!("/{service}/{method}"));
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let body = [&[0][..], &length.to_be_bytes(), message].concat();
    Outbound { method: http::Method::POST, url, media_type: Some("application/grpc"), body: Some(body) }
}

/// What every call says: that it reads trailers, and that it wants the numbers of events, which nobody had in 0.3.
pub(crate) fn metadata(dialect: Dialect) -> Vec<(HeaderName, HeaderValue)> {
    let mut metadata = vec![(header::TE, HeaderValue::from_static("trailers"))];
    if dialect == Dialect::V1 {
        let cursor = HeaderValue::from_static(a2a::RESUME_CURSOR);
        metadata.push((HeaderName::from_static("a2a-extensions"), cursor));
    }
    metadata
}

/// The one message of an answer.
pub(crate) async fn read<T: Wire>(response: Response) -> Result<T, Error> {
    let message = message(response).await?;
    heavy(message.len(), || grpc::decode(message)).map_err(|error| Error::Malformed(error.to_string()))
}

/// The bytes of the one message of an answer.
pub(crate) async fn message(mut response: Response) -> Result<Bytes, Error> {
    let body = response.read().await?;
    answered(&response, &body)?;
    ended(&response)?;
    let message = unframe(&body)?;
    Ok(body.slice_ref(message))
}

/// Whether a message was answered and with what, in as little JSON as tells it.
pub(crate) fn outline(body: &[u8]) -> Result<String, Error> {
    use grpc::wire::send_message_response::Payload;
    let message = Bytes::copy_from_slice(unframe(body)?);
    let sent: grpc::wire::SendMessageResponse =
        grpc::parse(message).map_err(|error| Error::Malformed(error.to_string()))?;
    Ok(match sent.payload {
        Some(Payload::Task(task)) => {
            let state = task.status.and_then(|status| a2a::TaskState::from_number(status.state)).unwrap_or_default();
            serde_json::json!({"task": {"id": task.id, "status": {"state": state.as_str()}}}).to_string()
        }
        Some(Payload::Message(_)) => r#"{"message":{}}"#.to_owned(),
        None => "{}".to_owned(),
    })
}

fn unframe(body: &[u8]) -> Result<&[u8], Error> {
    match next_length(body, body.len())? {
        Some(length) if body.len() == PREFIX + length => Ok(&body[PREFIX..]),
        _ => Err(Error::Malformed("the answer is not one message of gRPC".to_owned())),
    }
}

/// An answer that is a stream of messages. Whatever is not one is an error.
pub(crate) async fn opened(mut response: Response) -> Result<Response, Error> {
    if response.status.is_success() && !response.headers.contains_key("grpc-status") {
        answered(&response, &[])?;
        return Ok(response);
    }
    let body = response.read().await?;
    answered(&response, &body)?;
    ended(&response)?;
    // A stream of nothing.
    Ok(response)
}

/// How an answer ended, after it was read.
pub(crate) fn ended(response: &Response) -> Result<(), Error> {
    verdict(&response.headers, response.trailers())
}

/// What the headers and the trailers of an answer say about it.
pub(crate) fn verdict(headers: &HeaderMap, trailers: &HeaderMap) -> Result<(), Error> {
    match Status::from_header_map(trailers).or_else(|| Status::from_header_map(headers)) {
        Some(status) if status.code() == Code::Ok => Ok(()),
        Some(status) => Err(Error::told(0, remote(&status))),
        None => Err(Error::Malformed("the answer ended without a status".to_owned())),
    }
}

/// The JSON that was made of a message.
pub(crate) fn decode(json: &[u8]) -> Result<Box<RawValue>, Error> {
    serde_json::from_slice(json).map_err(|error| Error::Malformed(format!("not JSON: {error}")))
}

/// Whatever answers before gRPC does, a proxy for example, speaks plain HTTP.
fn answered(response: &Response, body: &[u8]) -> Result<(), Error> {
    let status = response.status.as_u16();
    if !response.status.is_success() {
        return Err(Error::told(status, RemoteError::from_status_body(status, body)));
    }
    let media_type = response.media_type();
    if media_type.starts_with("application/grpc") {
        return Ok(());
    }
    Err(Error::Malformed(format!("expected application/grpc, got `{}`", excerpt(&media_type))))
}

fn remote(status: &Status) -> RemoteError {
    let details = status.get_error_details();
    let info = details.error_info().filter(|info| info.domain == DOMAIN);
    let violations = details.bad_request().map(|found| found.field_violations.as_slice()).unwrap_or_default();
    let violation = |found: &tonic_types::FieldViolation| FieldViolation {
        field: excerpt(&found.field),
        description: excerpt(&found.description),
    };
    RemoteError {
        code: status.code() as i64,
        // Not longer than those of the other bindings.
        message: a2a::Error::internal(status.message()).message,
        reason: info.map(|info| excerpt(&info.reason)),
        metadata: info
            .into_iter()
            .flat_map(|info| &info.metadata)
            .map(|(key, value)| (excerpt(key), excerpt(value)))
            .collect(),
        violations: violations.iter().map(violation).collect(),
    }
}

/// The length of the message that the bytes begin with, once its prefix is there.
fn next_length(bytes: &[u8], cap: usize) -> Result<Option<usize>, Error> {
    let Some((&[compressed, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    if compressed != 0 {
        return Err(Error::Malformed("a compressed message, which nobody asked for".to_owned()));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > cap { Err(Error::TooLarge { cap }) } else { Ok(Some(length)) }
}

/// Takes a stream of messages apart.
#[derive(Debug)]
pub(crate) struct Parser {
    read: fn(Bytes) -> Result<Event, Error>,
    cap: usize,
    buffer: BytesMut,
}

impl Parser {
    /// A parser at the start of a stream, for messages up to `cap` bytes.
    pub(crate) fn new(dialect: Dialect, cap: usize) -> Self {
        let read = match dialect {
            Dialect::V1 => event,
            Dialect::V03 => v03::grpc::event,
        };
        Self { read, cap, buffer: BytesMut::new() }
    }

    /// How many bytes are worked through when this chunk is read: those of a message at its end.
    pub(crate) fn work(&self, chunk: &[u8]) -> usize {
        let (held, whole) = (self.buffer.len(), self.buffer.len() + chunk.len());
        match next_length(&self.buffer, self.cap) {
            Ok(Some(length)) if whole < PREFIX + length => chunk.len(),
            _ => held + chunk.len(),
        }
    }

    /// Reads a chunk and adds the events that it completes, as JSON, with their numbers as ids.
    pub(crate) fn feed(&mut self, chunk: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        self.buffer.extend_from_slice(chunk);
        while let Some(length) = next_length(&self.buffer, self.cap)?
            && self.buffer.len() >= PREFIX + length
        {
            self.buffer.advance(PREFIX);
            events.push((self.read)(self.buffer.split_to(length).freeze())?);
        }
        Ok(())
    }
}

fn event(message: Bytes) -> Result<Event, Error> {
    let malformed = |error: &dyn std::fmt::Display| Error::Malformed(error.to_string());
    let mut message: grpc::wire::StreamResponse = grpc::parse(message).map_err(|error| malformed(&error))?;
    let id = take_number(&mut message).map(|number| number.to_string());
    let event = StreamResponse::from_message(message).map_err(|error| malformed(&error))?;
    let data = serde_json::to_string(&event).map_err(|error| malformed(&error))?;
    Ok(Event { id, name: "message".to_owned(), data })
}

/// The number of an event, which is not the agent's and is taken out of its metadata.
fn take_number(message: &mut grpc::wire::StreamResponse) -> Option<u64> {
    use grpc::wire::stream_response::Payload;
    let metadata = match message.payload.as_mut()? {
        Payload::Task(task) => &mut task.metadata,
        Payload::Message(message) => &mut message.metadata,
        Payload::StatusUpdate(update) => &mut update.metadata,
        Payload::ArtifactUpdate(update) => &mut update.metadata,
    };
    let members = metadata.as_mut()?;
    let number = members.take_number(&grpc::sequence_key())?;
    if members.is_empty() {
        *metadata = None;
    }
    // Exact: it is whole and not negative, and logs do not reach 2^53.
    (number >= 0.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let card = crate::parse_url("https://h/.well-known/agent-card.json").unwrap();
        for (interface, url_) in [
            ("h:50051", "https://h:50051/"),
            ("[::1]:50051", "https://[::1]:50051/"),
            ("http://other:1", "http://other:1/"),
        ] {
            assert_eq!(url(interface, &card).unwrap().as_str(), url_);
        }
        for interface in ["", ":1", "u:p@h:1", "dns:///h:1"] {
            assert!(url(interface, &card).is_err(), "{interface}");
        }
    }

    #[test]
    fn a_stream_is_taken_apart_wherever_it_is_cut() {
        let status = a2a::TaskStatus::default();
        let update = a2a::TaskStatusUpdateEvent { task_id: "t".into(), status, ..Default::default() };
        let mut message = StreamResponse::StatusUpdate(update.clone()).into_message();
        let plain = grpc::encode(StreamResponse::StatusUpdate(update));
        if let Some(grpc::wire::stream_response::Payload::StatusUpdate(update)) = &mut message.payload {
            update.metadata = Some(grpc::Struct::from_text(format!("{{\"{}\": 7}}", grpc::sequence_key())));
        }
        let numbered = prost::Message::encode_to_vec(&message);
        let mut bytes = Vec::new();
        for message in [&numbered, &plain] {
            bytes.extend([&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat());
        }
        for size in 1..bytes.len() {
            let mut parser = Parser::new(Dialect::V1, 1000);
            let mut events = Vec::new();
            for chunk in bytes.chunks(size) {
                parser.feed(chunk, &mut events).unwrap();
            }
            let ids: Vec<Option<&str>> = events.iter().map(|event| event.id.as_deref()).collect();
            assert_eq!(ids, [Some("7"), None], "{size}");
            assert_eq!(events[0].data, events[1].data, "the number is not the agent's");
        }
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        for bytes in [&b"\x01\0\0\0\0"[..], b"\0\xff\xff\xff\xff", b"\0\0\0\0\x02\xff\xff", b"\0\0\0\0\0"] {
            assert!(Parser::new(Dialect::V1, 1000).feed(bytes, &mut Vec::new()).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_status_is_read_with_its_details() {
        let mut details = tonic_types::ErrorDetails::new();
        details.set_error_info("TASK_NOT_FOUND", DOMAIN, std::collections::HashMap::new());
        details.add_bad_request_violation("id", "is wrong");
        let told = remote(&Status::with_error_details(Code::NotFound, "no such task", details));
        assert_eq!((told.kind(), told.message.as_str()), (Some(a2a::ErrorKind::TaskNotFound), "no such task"));
        assert_eq!(told.violations[0].field, "id");
        for (code, kind) in [
            (Code::Unavailable, a2a::ErrorKind::Unavailable),
            (Code::Unauthenticated, a2a::ErrorKind::Unauthenticated),
            (Code::FailedPrecondition, a2a::ErrorKind::UnsupportedOperation),
            (Code::Unimplemented, a2a::ErrorKind::MethodNotFound),
        ] {
            assert_eq!(remote(&Status::new(code, "x")).kind(), Some(kind));
        }
        let mut trailers = HeaderMap::new();
        assert!(Status::from_header_map(&trailers).is_none());
        trailers.insert("grpc-status", HeaderValue::from_static("14"));
        assert_eq!(Status::from_header_map(&trailers).unwrap().code(), Code::Unavailable);
    }
}
