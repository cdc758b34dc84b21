//! A request of gRPC: what it has to be, the one message that it carries, and how it is refused.

use a2a::{Error, ErrorKind};
use axum::response::Response;
use bytes::{Buf, Bytes};
use exchange::{Call, Caller};
use http::{HeaderMap, Version, request::Parts};

use super::answer;
use crate::{
    headers,
    query::Query,
    reply,
    surface::{Admit, Visit},
};

/// A message is in memory as protobuf and as JSON.
pub(crate) const WEIGHT: u64 = 2;

/// The length of a body with one message.
pub(crate) fn promised(first: &[u8]) -> Option<usize> {
    let (&[_, a, b, c, d], _) = first.split_first_chunk::<PREFIX>()?;
    Some(PREFIX.saturating_add(u32::from_be_bytes([a, b, c, d]) as usize))
}

/// Before each message stand a byte that says whether it is compressed, and its length in four.
const PREFIX: usize = 5;

/// The surroundings of a call. All that can be told without its message is checked here.
pub(crate) fn open(visit: &Visit<'_, Caller>, versioned: bool) -> Result<Call, Error> {
    check(visit.parts)?;
    let headers = &visit.parts.headers;
    let call = visit.app.call(visit.caller.clone(), None, headers, visit.luggage)?;
    if versioned {
        headers::check_version(headers, &Query::default())?;
    }
    Ok(call)
}

/// Refuses what is not gRPC.
pub(crate) fn check(parts: &Parts) -> Result<(), Error> {
    if parts.version < Version::HTTP_2 {
        return Err(Error::new(ErrorKind::InvalidRequest, "gRPC needs HTTP/2"));
    }
    if is_grpc(&parts.headers) {
        return Ok(());
    }
    let message = "the request body must be application/grpc";
    Err(Error::new(ErrorKind::UnsupportedMediaType, message).with_violation("Content-Type", message))
}

/// An error as a caller of gRPC reads it; as HTTP has it for whoever speaks something else.
pub(crate) fn refuse(parts: &Parts, error: &Error) -> Response {
    if check(parts).is_err() {
        return reply::error(error);
    }
    match error.kind {
        ErrorKind::NotFound if error.reason.is_none() => {
            answer::error(&Error::new(ErrorKind::MethodNotFound, "there is no such method"))
        }
        _ => answer::error(error),
    }
}

/// The message of a call that carries one.
pub(crate) async fn message<C: Admit>(visit: &mut Visit<'_, C>) -> Result<Bytes, Error> {
    unframe(visit.read().await?)
}

/// The same of just anybody.
pub(crate) async fn short_message<C: Admit>(visit: &mut Visit<'_, C>) -> Result<Bytes, Error> {
    unframe(visit.read_short().await?)
}

/// `application/grpc`, whose messages are protobuf, and the same said aloud.
fn is_grpc(headers: &HeaderMap) -> bool {
    let essence = headers::media_type(headers);
    essence.eq_ignore_ascii_case(b"application/grpc") || essence.eq_ignore_ascii_case(b"application/grpc+proto")
}

fn unframe(mut body: Bytes) -> Result<Bytes, Error> {
    let broken = |what: &str| Error::new(ErrorKind::InvalidRequest, what);
    if body.len() < PREFIX {
        return Err(broken("the call carries no message"));
    }
    let compressed = body.get_u8();
    let length = body.get_u32();
    match compressed {
        0 => {}
        // The code of gRPC for an encoding that is not spoken.
        1 => {
            let error = Error::new(ErrorKind::MethodNotFound, "compressed messages are not read");
            return Err(error.with_reason("COMPRESSION_NOT_SUPPORTED"));
        }
        _ => return Err(broken("the call carries no message")),
    }
    if u32::try_from(body.len()) != Ok(length) {
        return Err(broken("the call must carry one whole message"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn one_whole_message_is_read() {
        assert_eq!(unframe(Bytes::from_static(b"\0\0\0\0\x02ab")).unwrap(), "ab");
        assert_eq!(unframe(Bytes::from_static(b"\0\0\0\0\0")).unwrap(), "");
    }

    #[test]
    fn the_length_of_a_body_stands_in_its_first_bytes() {
        assert_eq!(promised(b"\0\0\0\x01\x02ab"), Some(5 + 258));
        assert_eq!(promised(b"\0\0\0\x01"), None);
    }

    #[test]
    fn everything_else_is_refused() {
        for body in
            [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\0\xff\xff\xff\xffab", b"\x02\0\0\0\0"]
        {
            assert_eq!(unframe(Bytes::from_static(body)).unwrap_err().kind, ErrorKind::InvalidRequest, "{body:?}");
        }
        let compressed = unframe(Bytes::from_static(b"\x01\0\0\0\x01a")).unwrap_err();
        assert_eq!(compressed.reason(), "COMPRESSION_NOT_SUPPORTED");
    }

    #[test]
    fn the_media_type_is_grpc_with_protobuf() {
        for (value, is) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, http::HeaderValue::from_static(value))]);
            assert_eq!(is_grpc(&headers), is, "{value}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
