//! Answers of gRPC: messages, streams of them, and errors as google.rpc.Status with their details.

use std::{convert::Infallible, time::Duration};

use a2a::Error;
use axum::{body::Body, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use prost::Message;
use tonic::{
    Code, Status,
    codec::{Codec, EncodeBody, SingleMessageCompressionOverride},
    metadata::MetadataValue,
};
use tonic_prost::ProstCodec;
use tonic_types::{ErrorDetails, StatusExt};

use crate::headers;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// One message.
pub(crate) fn message(message: &impl Message) -> Response {
    let mut body = BytesMut::new();
    frame(message, &mut body);
    let body = Full::new(Bytes::from(body)).with_trailers(std::future::ready(Some(Ok(trailers(None)))));
    with_body(Body::new(body))
}

/// Adds a message to a body, in its frame.
pub(crate) fn frame(message: &impl Message, body: &mut BytesMut) {
    let length = message.encoded_len();
    body.reserve(5 + length);
    body.put_u8(0);
    // No answer is as long as four bytes can count: what it is made of was read under a bound.
    body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(body);
}

/// The end of an answer: well, or with an error.
pub(crate) fn trailers(error: Option<&Error>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let status = error.map_or_else(|| Status::new(Code::Ok, ""), status);
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(GRPC_STATUS, HeaderValue::from(Code::Internal as i32));
    }
    trailers
}

/// Messages in their frames, and trailers after them. The connection pulls them, one after the other.
pub(crate) fn frames(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response {
    with_body(Body::new(StreamBody::new(frames.map(Ok::<_, Infallible>))))
}

/// Messages as they come. The connection pulls them: a reader that stalls is a cursor that nobody moves.
pub(crate) fn stream<M>(messages: impl Stream<Item = Result<M, Status>> + Send + 'static) -> Response
where
    M: Message + Default + 'static,
{
    let encoder = ProstCodec::<M, M>::default().encoder();
    let body = EncodeBody::new_server(encoder, messages, None, SingleMessageCompressionOverride::Inherit, None);
    with_body(Body::new(body))
}

/// An error instead of an answer.
pub(crate) fn error(error: &Error) -> Response {
    status(error).into_http()
}

/// An error, with the details that it has in every binding.
pub(crate) fn status(error: &Error) -> Status {
    let mut details = ErrorDetails::new();
    let metadata = error.metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    details.set_error_info(error.reason(), a2a::error::DOMAIN, metadata.collect::<std::collections::HashMap<_, _>>());
    for violation in &error.violations {
        details.add_bad_request_violation(&violation.field, &violation.description);
    }
    if let Some(seconds) = error.retry_after {
        details.set_retry_info(Some(Duration::from_secs(seconds.into())));
    }
    let code = Code::from_i32(error.kind.codes().grpc.number());
    let mut status = Status::with_error_details(code, &error.message, details);
    if code == Code::Unauthenticated {
        let metadata = status.metadata_mut();
        metadata.insert("www-authenticate", MetadataValue::from_static("Bearer realm=\"switchboard\""));
        metadata
            .insert("x-sb-token", MetadataValue::from_static("a token of this installation, or authorization: Bearer"));
    }
    status
}

/// Says which version of the protocol is spoken.
pub(crate) fn mark(metadata: &mut HeaderMap) {
    metadata.insert(headers::A2A_VERSION, HeaderValue::from_static(a2a::PROTOCOL_VERSION));
}

fn with_body(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
    response
}

#[cfg(test)]
mod tests {
    use a2a::ErrorKind;

    use super::*;

    #[test]
    fn every_error_has_the_code_of_its_kind_and_its_details() {
        for kind in ErrorKind::ALL {
            let error = Error::invalid("message.parts", "is required").with_metadata("taskId", "t").with_retry_after(7);
            let status = status(&Error { kind, ..error });
            assert_eq!(status.code() as i32, kind.codes().grpc.number(), "{kind:?}");
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (kind.codes().reason, "a2a-protocol.org"));
            assert_eq!(info.metadata["taskId"], "t");
            assert_eq!(details.bad_request().unwrap().field_violations[0].field, "message.parts");
            assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(7)));
            let challenged = status.metadata().contains_key("www-authenticate");
            assert_eq!(challenged, kind == ErrorKind::Unauthenticated, "{kind:?}");
        }
    }
}
