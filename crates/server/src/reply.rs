//! Answers of HTTP: every status, header and body is made here, so that none is a framework's default. Those of gRPC are made in
//! `grpc::answer`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use a2a::{Error, ErrorKind};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use exchange::Luggage;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};
use serde::Serialize;

use crate::{auth, headers, sse::EventStream};

/// The media type of everything but REST's successes.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The media type of REST's successes.
pub(crate) const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// The media type of a JSON Web Key Set.
pub(crate) const KEY_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Every status that is answered. Those of errors stand in the table of [`ErrorKind::codes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    Created,
    NoContent,
    Accepted,
    NotModified,
    Error(ErrorKind),
}

impl From<Status> for StatusCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::OK,
            Status::Created => Self::CREATED,
            Status::NoContent => Self::NO_CONTENT,
            Status::Accepted => Self::ACCEPTED,
            Status::NotModified => Self::NOT_MODIFIED,
            Status::Error(kind) => Self::from_u16(kind.codes().http).unwrap_or(Self::INTERNAL_SERVER_ERROR),
        }
    }
}

/// A body with a status.
pub(crate) fn body(status: Status, media: HeaderValue, bytes: impl Into<Bytes>) -> Response {
    let mut response = empty(status);
    *response.body_mut() = Body::from(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// Plain data as JSON.
pub(crate) fn json(status: Status, value: &impl Serialize) -> Response {
    // It always serialises.
    body(status, JSON, serde_json::to_vec(value).unwrap_or_default())
}

fn empty(status: Status) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status.into();
    response
}

/// An error as HTTP has it: its status and a google.rpc.Status body.
pub(crate) fn error(error: &Error) -> Response {
    let mut response = body(Status::Error(error.kind), JSON, error.status_body());
    // What is refused to one is not to be told to the next.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An answer that keeps what its call has in flight until it is read. A stream sees to that by itself.
pub(crate) fn with_luggage(response: Response, luggage: Arc<Luggage>) -> Response {
    if luggage.is_empty() || response.body().size_hint().exact().is_none() {
        return response;
    }
    response.map(|body| Body::new(Carrying { body, luggage }))
}

/// A body whose bytes keep what their call has in flight.
struct Carrying {
    body: Body,
    luggage: Arc<Luggage>,
}

impl http_body::Body for Carrying {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let kept = |bytes| Bytes::from_owner(Kept(bytes, Arc::clone(&self.luggage)));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(kept))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes, and what they have in flight.
struct Kept(Bytes, #[expect(dead_code, reason = "held until it is dropped")] Arc<Luggage>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Keeps an answer that depends on who asks from everybody else: from caches, unless it says itself how it may be kept, and from
/// those who ask with another credential.
pub(crate) fn keep_private(headers: &mut HeaderMap) {
    let kept = headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let is_public = kept.as_bytes().starts_with(b"public");
    if !is_public && !headers.get_all(header::VARY).iter().any(|value| value == auth::VARY) {
        headers.append(header::VARY, HeaderValue::from_static(auth::VARY));
    }
}

/// Names the methods that a path answers.
pub(crate) fn with_allow(mut response: Response, allow: &'static str) -> Response {
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// What OPTIONS answers at a known path.
pub(crate) fn options(allow: &'static str) -> Response {
    with_allow(empty(Status::NoContent), allow)
}

/// A stream whose only event is this piece of JSON, which has no line ends.
pub(crate) fn event(json: &[u8]) -> Response {
    let mut event = b"data: ".to_vec();
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    body(Status::Ok, HeaderValue::from_static("text/event-stream"), event)
}

/// A stream of events.
pub(crate) fn stream(events: EventStream) -> Response {
    let mut response = Response::new(Body::new(events));
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that buffers or compresses would hold events back.
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, no-transform"));
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
    request: &HeaderMap,
    content: &Tagged,
    media: HeaderValue,
    cache_control: &'static str,
    vary: &[&'static str],
) -> Response {
    let mut response = if headers::none_match(request, &content.etag) {
        empty(Status::NotModified)
    } else {
        body(Status::Ok, media, content.bytes.clone())
    };
    let map = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&content.etag) {
        map.insert(header::ETAG, etag);
    }
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    for name in vary {
        map.append(header::VARY, HeaderValue::from_static(name));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_error_has_the_status_of_its_kind_in_its_head_and_in_its_body() {
        for kind in ErrorKind::ALL {
            let response = error(&Error::new(kind, "text").with_retry_after(7));
            let status = response.status().as_u16();
            assert_eq!(status, kind.codes().http, "{kind:?}");
            assert!((400..600).contains(&status), "{kind:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            assert_eq!(response.headers()[header::RETRY_AFTER], "7");
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let told: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(told["error"]["code"], status, "{kind:?}");
        }
    }
}
