//! Answers of gRPC: messages, streams of them, and errors as google.rpc.Status with their details.

use std::time::Duration;

use a2a::Error;
use axum::{body::Body, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::{BodyExt, Full};
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
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    // No answer is as long as four bytes can count: what it is made of was read under a bound.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(frame)).with_trailers(std::future::ready(Some(Ok(trailers))));
    with_body(Body::new(body))
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
