//! Answers: every status, header and body that leaves this crate is made here, so that none is a framework's default.

use std::sync::Arc;

use a2a::{Error, ErrorKind};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{headers, sse::EventStream};

/// The media type of everything but REST's successes.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The media type of REST's successes.
pub(crate) const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A body with a status.
pub(crate) fn body(status: StatusCode, media: HeaderValue, bytes: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// No body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An error as HTTP has it: its status and a google.rpc.Status body.
pub(crate) fn error(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = body(status, JSON, error.status_body());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// 404 for a path that is no route.
pub(crate) fn no_route() -> Response {
    error(&Error::new(ErrorKind::NotFound, "there is nothing at this path"))
}

/// 405, with the methods that would do.
pub(crate) fn wrong_method(allow: &'static str) -> Response {
    let message = format!("this path answers {allow}");
    let mut response = error(&Error::new(ErrorKind::MethodNotAllowed, message));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// What OPTIONS answers at a known path.
pub(crate) fn options(allow: &'static str) -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// A stream of events.
pub(crate) fn stream(events: EventStream) -> Response {
    let mut response = Response::new(Body::new(events));
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that buffers or compresses would hold events back.
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    map.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Names the extensions that an answer used.
pub(crate) fn with_extensions(mut response: Response, extensions: &[String]) -> Response {
    if let Some(value) = headers::extensions_in_use(extensions) {
        response.headers_mut().insert(headers::A2A_EXTENSIONS, value);
    }
    response
}

/// The same under the name that 0.3 has for the header, too.
pub(crate) fn with_extensions_of_03(mut response: Response, extensions: &[String]) -> Response {
    if let Some(value) = headers::extensions_in_use(extensions) {
        response.headers_mut().insert(headers::X_A2A_EXTENSIONS, value);
    }
    with_extensions(response, extensions)
}

/// Bytes with the tag that names them.
#[derive(Debug, Clone)]
pub(crate) struct Tagged {
    pub(crate) bytes: Bytes,
    pub(crate) etag: Arc<str>,
}

/// A cacheable answer, or 304 when the caller has it already.
pub(crate) fn cacheable(
    request: &http::HeaderMap,
    content: &Tagged,
    media: HeaderValue,
    cache_control: &'static str,
    vary: Option<&'static str>,
) -> Response {
    let mut response = if headers::none_match(request, &content.etag) {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        body(StatusCode::OK, media, content.bytes.clone())
    };
    let map = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&content.etag) {
        map.insert(header::ETAG, etag);
    }
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    if let Some(vary) = vary {
        map.insert(header::VARY, HeaderValue::from_static(vary));
    }
    response
}
