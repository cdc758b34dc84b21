//! Answers that go out as their reader takes them, and the end of those that nobody takes.
//!
//! On HTTP/1 a socket that takes nothing is noticed where it is written to ([`crate::connection`]). On HTTP/2 the socket may be
//! fine while a client keeps the window of one stream, or of all, at zero. hyper then holds one piece of the answer and does
//! not ask for the next. So answers go out in small pieces, each stream notes when it has given one that is not gone yet, and
//! a stream that stands still for too long is reset. The others of its connection go on. A stream of an anonymous request that has to
//! give way to a newer one is reset as soon as it stands still.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// How much of an answer is handed to HTTP/2 at once: what fits into one of its frames. It is also what waits there for each stream.
pub(crate) const PIECE: usize = 16 * 1024;

tokio::task_local! {
    static GIVEN: RefCell<Given>;
}

/// What an answer has given to its connection.
#[derive(Debug, Default)]
struct Given {
    pieces: u64,
    /// Whether nobody has asked for more since the last piece.
    waits: bool,
    /// Cancelled when the request has to give way.
    evicted: Option<CancellationToken>,
}

/// Makes the stream of HTTP/2 that runs now end when this is cancelled and its answer is not taken.
pub(crate) fn end_when(evicted: &CancellationToken) {
    // HTTP/1 keeps nothing of a short answer once it has it.
    let _ = GIVEN.try_with(|given| given.borrow_mut().evicted = Some(evicted.clone()));
}

/// Runs the streams of HTTP/2, each for as long as somebody takes its answer.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    /// How long none of an answer may be taken.
    pub(crate) stall: Duration,
}

/// An answer's body, in pieces, and what lasts as long as it does.
pub(crate) struct Answer<G> {
    body: Body,
    /// What is left of a piece that was too large.
    rest: Bytes,
    /// It is what is left of something larger.
    is_split: bool,
    /// The largest piece.
    piece: usize,
    _guard: G,
}

impl<G> Answer<G> {
    pub(crate) fn new(body: Body, piece: usize, guard: G) -> Self {
        Self { body, rest: Bytes::new(), is_split: false, piece, _guard: guard }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let is_whole = !self.is_split && self.rest.len() <= self.piece;
        self.is_split = !is_whole && self.rest.len() > self.piece;
        let piece = self.rest.split_to(self.rest.len().min(self.piece));
        // A piece that waits must not hold on to all that it was cut from.
        let piece = if is_whole { piece } else { Bytes::copy_from_slice(&piece) };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl<G: Unpin> http_body::Body for Answer<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.poll_piece(context);
        // There is nothing to note outside of a stream of HTTP/2.
        let _ = GIVEN.try_with(|given| {
            let waits = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
            let mut given = given.borrow_mut();
            given.pieces += u64::from(waits);
            given.waits = waits;
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(unless_stalled(stream, self.stall));
    }
}

/// Runs a stream to its end, or until the answer that it gives has not been taken for so long, or has to give way. What is dropped then
/// resets it.
async fn unless_stalled(stream: impl Future<Output = ()>, stall: Duration) {
    let mut stream = pin!(stream);
    let mut given = Given::default();
    let mut stalled: Option<Pin<Box<Sleep>>> = None;
    let mut evicted = None;
    poll_fn(|context| {
        let pieces = given.pieces;
        let polled;
        (polled, given) = GIVEN.sync_scope(RefCell::new(std::mem::take(&mut given)), || {
            (stream.as_mut().poll(context), GIVEN.with(RefCell::take))
        });
        if polled.is_ready() {
            return Poll::Ready(());
        }
        if !given.waits || given.pieces != pieces {
            stalled = None;
        }
        if !given.waits {
            evicted = None;
            return Poll::Pending;
        }
        if let Some(token) = &given.evicted {
            let evicted = evicted.get_or_insert_with(|| Box::pin(token.clone().cancelled_owned()));
            if evicted.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
        }
        let timer = stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(timer.as_mut().poll(context));
        tracing::debug!("a stream is reset: nobody takes its answer");
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_large_body_goes_out_in_pieces_and_nothing_is_lost() {
        let whole = Bytes::from((0..100_000_u32).map(|n| n as u8).collect::<Vec<u8>>());
        let mut answer = Answer::new(Body::from(whole.clone()), PIECE, ());
        assert_eq!(answer.size_hint().exact(), Some(100_000));
        let mut pieces = Vec::new();
        while let Some(frame) = answer.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
            let left = 100_000 - pieces.iter().map(Bytes::len).sum::<usize>();
            assert_eq!(answer.size_hint().exact(), Some(left as u64));
            assert_eq!(answer.is_end_stream(), left == 0);
        }
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(pieces.concat(), whole);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_answer_is_not_taken_ends() {
        let start = Instant::now();
        unless_stalled(
            async {
                let mut answer = Answer::new(Body::from("x".repeat(3 * PIECE)), PIECE, ());
                // Two pieces are taken in time, the third one is not.
                for _ in 0..2 {
                    answer.frame().await.unwrap().unwrap();
                    sleep(STALL - Duration::from_secs(1)).await;
                }
                answer.frame().await.unwrap().unwrap();
                std::future::pending::<()>().await;
            },
            STALL,
        )
        .await;
        assert_eq!(start.elapsed(), 3 * STALL - Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_to_give_way_ends_when_its_answer_is_not_taken() {
        let start = Instant::now();
        let evicted = CancellationToken::new();
        let stream = |is_taken: bool| {
            let evicted = evicted.clone();
            async move {
                end_when(&evicted);
                let mut answer = Answer::new(Body::from("x"), PIECE, ());
                answer.frame().await.unwrap().unwrap();
                if is_taken {
                    assert!(answer.frame().await.is_none());
                }
                sleep(STALL / 2).await;
            }
        };
        let begun = tokio::spawn(unless_stalled(stream(false), STALL));
        tokio::task::yield_now().await;
        evicted.cancel();
        begun.await.unwrap();
        unless_stalled(stream(false), STALL).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        unless_stalled(stream(true), STALL).await;
        assert_eq!(start.elapsed(), STALL / 2, "what is taken ends by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_nothing_to_say_may_be_silent() {
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let stream = async {
            let mut answer = Answer::new(silent, PIECE, ());
            let _ = answer.frame().await;
        };
        assert!(timeout(Duration::from_secs(3600), unless_stalled(stream, STALL)).await.is_err());
    }
}
