//! Reading a request's body: bounded in size, and in the time between two of its pieces.

use std::time::Duration;

use a2a::{Error, ErrorKind};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

/// How long the rest of a refused body is read. A client that is still writing when the connection closes may never see
/// the answer.
const DRAIN: Duration = Duration::from_secs(5);

/// How much of a body that nobody wanted is read for the sake of its connection, and for how long.
const LEFT_OVER: usize = 256 << 10;
const LEFT_OVER_TIME: Duration = Duration::from_secs(1);

/// Bounds of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Its size in bytes.
    pub(crate) limit: usize,
    /// How long it may stand still.
    pub(crate) pause: Duration,
}

/// Reads it whole.
pub(crate) async fn read(headers: &HeaderMap, body: &mut Body, bounds: Bounds) -> Result<Bytes, Error> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > bounds.limit) {
        // A client that waits for permission has sent nothing yet.
        if !headers.contains_key(header::EXPECT) {
            drain(body, bounds.limit.saturating_mul(4), DRAIN).await;
        }
        return Err(too_large(bounds.limit));
    }

    // Most bodies come in one piece, which is then not copied.
    let mut piece = Bytes::new();
    let mut pieces = BytesMut::new();
    loop {
        let frame = match timeout(bounds.pause, body.frame()).await {
            Err(_elapsed) => {
                return Err(Error::new(ErrorKind::RequestTimeout, "the request body did not arrive in time"));
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Error::new(ErrorKind::InvalidRequest, "the request body broke off")),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if piece.len() + pieces.len() + data.len() > bounds.limit {
            drain(body, bounds.limit.saturating_mul(4), DRAIN).await;
            return Err(too_large(bounds.limit));
        }
        if piece.is_empty() && pieces.is_empty() {
            piece = data;
            continue;
        }
        if pieces.is_empty() {
            pieces.reserve(length.unwrap_or(piece.len() * 2));
            pieces.extend_from_slice(&piece);
            piece = Bytes::new();
        }
        pieces.extend_from_slice(&data);
    }
    Ok(if pieces.is_empty() { piece } else { pieces.freeze() })
}

/// Refuses what is not text, before anybody parses it: a JSON reader skips over strings that it does not need.
pub(crate) fn check_text(body: &[u8]) -> Result<(), Error> {
    match std::str::from_utf8(body) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(ErrorKind::ParseError, "not valid JSON: the body is not UTF-8 text")),
    }
}

/// Reads what nobody has read of a body, if that is little and comes soon. Says whether its connection can be used again: what
/// is left would stand where the next request begins.
pub(crate) async fn finish(headers: &HeaderMap, body: &mut Body) -> bool {
    // A client that waits for permission has sent nothing yet.
    body.is_end_stream() || (!headers.contains_key(header::EXPECT) && drain(body, LEFT_OVER, LEFT_OVER_TIME).await)
}

/// Reads and forgets, within reason. Says whether that was all.
async fn drain(body: &mut Body, mut left: usize, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        match timeout_at(deadline, body.frame()).await {
            Ok(None) => return true,
            Ok(Some(Ok(frame))) => match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(less) => left = less,
                None => return false,
            },
            Ok(Some(Err(_))) | Err(_) => return false,
        }
    }
}

fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::PayloadTooLarge, format!("the request body is larger than {limit} bytes"))
        .with_metadata("limitBytes", limit.to_string())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    const BOUNDS: Bounds = Bounds { limit: 8, pause: Duration::from_millis(50) };

    fn chunks(pieces: &'static [&'static str]) -> Body {
        let pieces = pieces.iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        for (pieces, whole) in
            [(&["abc"][..], "abc"), (&["ab", "", "cd", "efgh"], "abcdefgh"), (&["", "ab", "c"], "abc"), (&[], "")]
        {
            assert_eq!(read(&HeaderMap::new(), &mut chunks(pieces), BOUNDS).await.unwrap(), whole);
        }
        for pieces in [&["abcdefghi"][..], &["abcdefgh", "i"], &["ab", "cd", "efghi"]] {
            let error = read(&HeaderMap::new(), &mut chunks(pieces), BOUNDS).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::PayloadTooLarge);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let mut body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let error = read(&HeaderMap::new(), &mut body, BOUNDS).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RequestTimeout);
    }
}
