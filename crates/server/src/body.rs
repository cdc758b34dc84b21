//! Reading a request's body: bounded in size, in the time between two of its pieces, and by how fast it has to come.

use std::time::Duration;

use a2a::{Error, ErrorKind};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use exchange::{Flight, Luggage};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use store::TenantId;
use tokio::time::{Instant, timeout_at};

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
    /// How many bytes have to come in a second once it has lasted so long, taken over all of it; 0 is no bound.
    pub(crate) rate: u64,
}

impl Bounds {
    /// Until when the next piece has to be there, of a body that began at `begun` and of which so much has come.
    fn deadline(&self, begun: Instant, received: usize) -> Instant {
        let standing = Instant::now() + self.pause;
        let earned = u64::try_from(received).unwrap_or(u64::MAX).checked_div(self.rate);
        match earned.and_then(|seconds| begun.checked_add(self.pause)?.checked_add(Duration::from_secs(seconds))) {
            Some(by_rate) => standing.min(by_rate),
            None => standing,
        }
    }
}

/// Where room for a body is found, and where that is noted.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'a> {
    pub(crate) flight: &'a Flight,
    pub(crate) tenant: TenantId,
    pub(crate) luggage: &'a Luggage,
    /// The length of a body by its first bytes, where no header tells it.
    pub(crate) promised: fn(&[u8]) -> Option<usize>,
}

impl Hold<'_> {
    /// Room for so many bytes more. Where there is none, nothing of the body is kept, and the rest is read and forgotten.
    async fn take(&self, body: &mut Body, bounds: Bounds, bytes: usize) -> Result<(), Error> {
        match self.flight.take(self.tenant, self.luggage.room(bytes as u64)).await {
            Ok(load) => self.luggage.put(load),
            Err(refused) => {
                self.luggage.leave();
                drain(body, bounds.limit, DRAIN).await;
                return Err(refused.into());
            }
        }
        Ok(())
    }
}

/// So much of a body comes without asking for room, and where its length is not known, for so much more is asked at least.
const AT_FIRST: usize = 16 << 10;
const STEP: usize = 64 << 10;

/// Reads it whole.
pub(crate) async fn read(headers: &HeaderMap, body: &mut Body, bounds: Bounds, hold: Hold<'_>) -> Result<Bytes, Error> {
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
    let mut room = AT_FIRST;
    let mut promised = length;
    // What is promised is asked for at once: of many who have half of what they need, none would get the rest.
    if let Some(length) = length.filter(|length| *length > room) {
        hold.take(body, bounds, length).await?;
        room = length;
    }
    let begun = Instant::now();
    loop {
        let received = piece.len() + pieces.len();
        let frame = match timeout_at(bounds.deadline(begun, received), body.frame()).await {
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
        if received + data.len() > bounds.limit {
            drain(body, bounds.limit.saturating_mul(4), DRAIN).await;
            return Err(too_large(bounds.limit));
        }
        let total = piece.len() + pieces.len() + data.len();
        if received == 0 && promised.is_none() {
            promised = (hold.promised)(&data).map(|length| length.min(bounds.limit));
        }
        if total > room {
            let more = (total - room).max(room / 4).max(STEP).max(promised.unwrap_or(0).saturating_sub(room));
            if let Err(refused) = hold.take(body, bounds, more).await {
                drop((piece, pieces));
                return Err(refused);
            }
            room += more;
        }
        if piece.is_empty() && pieces.is_empty() {
            piece = data;
            continue;
        }
        if pieces.is_empty() {
            pieces.reserve(promised.unwrap_or(0).min(room));
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

    const BOUNDS: Bounds = Bounds { limit: 8, pause: Duration::from_millis(50), rate: 0 };

    async fn read(headers: &HeaderMap, body: &mut Body, bounds: Bounds) -> Result<Bytes, Error> {
        let (flight, luggage) = (Flight::new(None), Luggage::default());
        super::read(
            headers,
            body,
            bounds,
            Hold { flight: &flight, tenant: TenantId(1), luggage: &luggage, promised: |_| None },
        )
        .await
    }

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

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_and_a_slow_one_is_not() {
        let dripping = |every: u64, bytes: usize| {
            Body::from_stream(stream::unfold(0, move |n| async move {
                tokio::time::sleep(Duration::from_secs(every)).await;
                let piece = Bytes::from(vec![b'x'; bytes]);
                (n < 100).then_some((Ok::<_, std::io::Error>(piece), n + 1))
            }))
        };
        let bounds = Bounds { limit: 1 << 20, pause: Duration::from_secs(30), rate: 1024 };
        let begun = Instant::now();
        let error = read(&HeaderMap::new(), &mut dripping(20, 1), bounds).await.unwrap_err();
        assert_eq!((error.kind, begun.elapsed().as_secs()), (ErrorKind::RequestTimeout, 30));
        let slow = read(&HeaderMap::new(), &mut dripping(2, 2048), bounds).await.unwrap();
        assert_eq!(slow.len(), 100 * 2048);
        let unbounded = Bounds { rate: 0, ..bounds };
        assert_eq!(read(&HeaderMap::new(), &mut dripping(20, 1), unbounded).await.unwrap().len(), 100);
    }
}
