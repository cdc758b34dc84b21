//! Server-sent events: a cursor of the exchange as an HTTP body.
//!
//! The body is pulled by the connection. A reader that stalls is a cursor that nobody moves and costs nothing else. In 1.0
//! an event's bytes are the journal's own; around them go its number and, for JSON-RPC, an envelope that was made once.
//! Other dialects make records of what the cursor gives, see [`crate::events`].

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io::Write,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use a2a::{
    ErrorKind,
    jsonrpc::{self, Id},
};
use bytes::Bytes;
use exchange::{Frame, Frames};
use futures_util::stream::{self, Stream};
use http_body::{Body, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::encode;

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
/// Above this an event's bytes go out by themselves instead of being copied between prefix and suffix; and about so much of
/// what is ready goes out as one piece.
const COPY_LIMIT: usize = 16 * 1024;

/// What goes around each event.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    prefix: Bytes,
    suffix: &'static [u8],
}

/// One event as it goes out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Where its reader has come to, when it has come to a place.
    pub(crate) id: Option<EventId>,
    /// The type of the event; left out when it is empty, and then `message` to a reader.
    pub(crate) event: &'static str,
    /// The data: JSON without line ends.
    pub(crate) body: Bytes,
}

/// Where the reader of a stream has come to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EventId {
    /// The number of an event in its task.
    Seq(u64),
    /// A cursor of a feed.
    Cursor(String),
}

impl From<u64> for EventId {
    fn from(seq: u64) -> Self {
        Self::Seq(seq)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => seq.fmt(f),
            Self::Cursor(cursor) => cursor.fmt(f),
        }
    }
}

/// Events, as they come.
pub(crate) type Records = Pin<Box<dyn Stream<Item = Result<Record, a2a::Error>> + Send>>;

/// A stream of events as a body.
pub(crate) struct EventStream {
    records: Records,
    envelope: Envelope,
    keep_alive: Duration,
    next_keep_alive: Pin<Box<Sleep>>,
    /// What is left of an event that was too large to be copied.
    body: Option<Bytes>,
    suffix: Option<Bytes>,
    /// An event that goes out by itself, after those that were ready before it.
    large: Option<Record>,
    ended: bool,
}

impl Envelope {
    /// The event alone.
    pub(crate) fn plain() -> Self {
        Self { prefix: Bytes::new(), suffix: b"\n\n" }
    }

    /// The event as the result of a JSON-RPC response.
    pub(crate) fn jsonrpc(id: &Id) -> Self {
        const SUFFIX: &[u8] = b"}\n\n";
        debug_assert_eq!(&SUFFIX[..1], jsonrpc::FRAME_SUFFIX);
        Self { prefix: jsonrpc::frame_prefix(id), suffix: SUFFIX }
    }

    /// Writes what goes before an event's bytes.
    fn head(&self, out: &mut Vec<u8>, record: &Record) {
        // Writing to a vector does not fail.
        if let Some(id) = &record.id {
            let _ = writeln!(out, "id: {id}");
        }
        if !record.event.is_empty() {
            let _ = writeln!(out, "event: {}", record.event);
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
    }

    /// Writes a whole event.
    fn event(&self, out: &mut Vec<u8>, record: &Record) {
        self.head(out, record);
        out.extend_from_slice(&record.body);
        out.extend_from_slice(self.suffix);
    }

    /// About how long an event will be.
    fn room(&self, record: &Record) -> usize {
        // "id: ", twenty digits, "\nevent: ", "\ndata: ".
        39 + record.event.len() + self.prefix.len() + record.body.len() + self.suffix.len()
    }
}

impl Record {
    /// A frame in 1.0.
    fn of(frame: &Frame) -> Result<Self, a2a::Error> {
        Ok(Self { id: Some(frame.seq().into()), event: "", body: encode::frame(frame)? })
    }
}

impl EventStream {
    /// A stream of what `frames` gives, with a comment whenever nothing came for `keep_alive`.
    pub(crate) fn new(frames: Frames, envelope: Envelope, keep_alive: Duration) -> Self {
        // The state of `next` lives inside this one allocation, not in one per event.
        let records = stream::unfold(frames, |mut frames| async move {
            let next = frames.next().await?;
            Some((next.map_err(a2a::Error::from).and_then(|frame| Record::of(&frame)), frames))
        });
        Self::over(Box::pin(records), envelope, keep_alive)
    }

    /// The same of records that were made elsewhere.
    pub(crate) fn over(records: Records, envelope: Envelope, keep_alive: Duration) -> Self {
        Self {
            records,
            envelope,
            keep_alive,
            next_keep_alive: Box::pin(sleep(keep_alive)),
            body: None,
            suffix: None,
            large: None,
            ended: false,
        }
    }

    /// The first piece of an event that is too large to be copied; the others wait in `self`.
    fn begin(&mut self, record: Record) -> Bytes {
        let mut head = Vec::with_capacity(self.envelope.room(&record) - record.body.len());
        self.envelope.head(&mut head, &record);
        self.body = Some(record.body);
        self.suffix = Some(Bytes::from_static(self.envelope.suffix));
        head.into()
    }

    /// An event and those that are ready behind it, as one piece.
    fn gather(&mut self, record: &Record, context: &mut Context<'_>) -> Bytes {
        let mut out = Vec::with_capacity(self.envelope.room(record));
        self.envelope.event(&mut out, record);
        while out.len() < COPY_LIMIT {
            match self.poll_record(context) {
                Poll::Ready(Some(next)) if next.body.len() <= COPY_LIMIT => self.envelope.event(&mut out, &next),
                Poll::Ready(large) => {
                    self.large = large;
                    break;
                }
                Poll::Pending => break,
            }
        }
        out.into()
    }

    /// The next event; none when the stream is over, and then it stays so.
    fn poll_record(&mut self, context: &mut Context<'_>) -> Poll<Option<Record>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.records.as_mut().poll_next(context));
        match next {
            Some(Ok(record)) => return Poll::Ready(Some(record)),
            // As many as its token had open, and no news to anyone.
            Some(Err(error)) if error.kind == ErrorKind::Unauthenticated => {
                tracing::debug!(error = %error, "a stream of events ended with its token");
            }
            // The answer has begun; all that can be said is its end, and the client takes it up from its cursor.
            Some(Err(error)) => tracing::warn!(error = %error, "a stream of events ended early"),
            None => {}
        }
        self.ended = true;
        Poll::Ready(None)
    }

    fn rearm(&mut self) {
        let deadline = Instant::now() + self.keep_alive;
        self.next_keep_alive.as_mut().reset(deadline);
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let data = |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes))));
        if let Some(piece) = this.body.take().or_else(|| this.suffix.take()) {
            return data(piece);
        }
        let next = match this.large.take() {
            Some(large) => Poll::Ready(Some(large)),
            None => this.poll_record(context),
        };
        match next {
            Poll::Ready(Some(record)) => {
                this.rearm();
                let large = record.body.len() > COPY_LIMIT;
                return data(if large { this.begin(record) } else { this.gather(&record, context) });
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        ready!(this.next_keep_alive.as_mut().poll(context));
        this.rearm();
        data(Bytes::from_static(KEEP_ALIVE))
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.body.is_none() && self.suffix.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use a2a::Error;
    use http_body_util::BodyExt;

    use super::*;

    fn frame(seq: u64, body: impl Into<Bytes>) -> Result<Record, Error> {
        Ok(Record { id: Some(seq.into()), event: "", body: body.into() })
    }

    fn over(events: Vec<Result<Record, Error>>, envelope: Envelope) -> EventStream {
        EventStream::over(Box::pin(stream::iter(events)), envelope, Duration::from_secs(15))
    }

    #[tokio::test]
    async fn events_carry_their_number() {
        let stream = over(vec![frame(1, r#"{"task":{}}"#), frame(3, "{}")], Envelope::plain());
        let bytes = stream.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "id: 1\ndata: {\"task\":{}}\n\nid: 3\ndata: {}\n\n");
    }

    #[tokio::test]
    async fn an_envelope_goes_around_the_same_bytes() {
        let stream = over(vec![frame(2, "{}")], Envelope::jsonrpc(&Id::string("a")));
        let bytes = stream.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\n\n");
    }

    #[tokio::test]
    async fn an_event_may_have_a_type_and_no_number() {
        let record = |id: Option<u64>| Ok(Record { id: id.map(EventId::from), event: "message", body: "{}".into() });
        let stream = over(vec![record(None), record(Some(7))], Envelope::plain());
        let bytes = stream.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "event: message\ndata: {}\n\nid: 7\nevent: message\ndata: {}\n\n");
    }

    #[tokio::test]
    async fn a_large_event_is_not_copied() {
        let large = Bytes::from(vec![b'x'; COPY_LIMIT + 1]);
        let mut stream = over(vec![frame(1, large.clone())], Envelope::plain());
        let mut pieces = Vec::new();
        while let Some(piece) = stream.frame().await {
            pieces.push(piece.unwrap().into_data().unwrap());
        }
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(pieces.concat().len(), large.len() + "id: 1\ndata: \n\n".len());
    }

    #[tokio::test]
    async fn an_error_ends_the_stream() {
        let stream = over(vec![frame(1, "{}"), Err(Error::internal("x")), frame(2, "{}")], Envelope::plain());
        assert_eq!(stream.collect().await.unwrap().to_bytes(), "id: 1\ndata: {}\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_with_comments() {
        let events = Box::pin(stream::pending());
        let mut stream = EventStream::over(events, Envelope::plain(), Duration::from_secs(15));
        let start = Instant::now();
        for n in 1..=3 {
            let piece = stream.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece, KEEP_ALIVE);
            assert_eq!(start.elapsed().as_secs(), 15 * n);
        }
    }
}
