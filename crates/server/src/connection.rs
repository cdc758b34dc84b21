//! A socket that does not wait forever: neither for a client that says nothing at first nor for one that stops reading.
//!
//! hyper bounds the time for a request's head only after it knows which version of HTTP is spoken, and does not bound
//! writes at all.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// The length of HTTP/2's preface: after so many bytes the version is known.
const PREFACE: usize = 24;

/// A guarded socket.
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    stall: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Runs until the version of HTTP is known.
    opening: Option<Pin<Box<Sleep>>>,
    received: usize,
}

impl<S> Connection<S> {
    /// Fails when the first bytes are not there after `opening`, and when a write has waited for `stall`.
    pub(crate) fn new(stream: S, opening: Duration, stall: Duration) -> Self {
        Self { stream, stall, stalled: None, opening: Some(Box::pin(sleep(opening))), received: 0 }
    }

    /// Passes the outcome of a write on, or fails when none came for too long.
    fn written<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            self.opening = None;
            return outcome;
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(timed_out("the client takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(opening) = &mut self.opening {
            if outcome.is_pending() {
                return match opening.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(timed_out("the client says nothing"))),
                    Poll::Pending => Poll::Pending,
                };
            }
            self.received += buffer.filled().len() - before;
            if self.received >= PREFACE {
                self.opening = None;
            }
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    const OPENING: Duration = Duration::from_secs(10);
    const STALL: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up() {
        let (mut client, server) = duplex(64);
        let mut connection = Connection::new(server, OPENING, STALL);
        client.write_all(b"PRI * HTTP").await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(connection.read(&mut buffer).await.unwrap(), 10);
        let start = Instant::now();
        assert_eq!(connection.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), OPENING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_spoke_may_be_silent() {
        let (mut client, server) = duplex(64);
        let mut connection = Connection::new(server, OPENING, STALL);
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut buffer = [0; 64];
        assert_ne!(connection.read(&mut buffer).await.unwrap(), 0);
        let read = tokio::time::timeout(Duration::from_secs(3600), connection.read(&mut buffer)).await;
        assert!(read.is_err(), "still waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut client, server) = duplex(8);
        let mut connection = Connection::new(server, OPENING, STALL);
        connection.write_all(b"12345678").await.unwrap();
        // Slow is not stalled: each byte that is taken starts the clock anew.
        for _ in 0..3 {
            let writing = tokio::spawn(async move {
                connection.write_all(b"x").await.unwrap();
                connection
            });
            tokio::time::sleep(STALL - Duration::from_secs(1)).await;
            client.read_u8().await.unwrap();
            connection = writing.await.unwrap();
        }
        let start = Instant::now();
        assert_eq!(connection.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), STALL);
    }
}
