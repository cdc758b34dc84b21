//! A socket that does not wait for ever for a client that stops reading, and that knows which version of HTTP is spoken.
//!
//! hyper does not bound writes at all, and bounds the time for a request's head only once it knows the version.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use crate::places::Seat;

/// What HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that are read in one turn of a connection's task. hyper reads for as long as bytes come where these say nothing, such as the
/// digits of a chunk's size, and so would keep a thread.
const TURN: usize = 16 * 1024;

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// A guarded socket.
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    /// Hears whether the client takes what is written.
    seat: Arc<Seat>,
    stall: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What was read to learn the version, until it is read again.
    begin: [u8; PREFACE.len()],
    unread: std::ops::Range<usize>,
    /// Bytes that were read since another task could last run.
    turn: usize,
}

impl<S> Connection<S> {
    /// Fails when a write has waited for `stall`.
    pub(crate) fn new(stream: S, seat: Arc<Seat>, stall: Duration) -> Self {
        Self { stream, seat, stall, stalled: None, begin: [0; PREFACE.len()], unread: 0..0, turn: 0 }
    }

    /// Passes the outcome of a write on, or fails when none came for too long.
    fn written<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.seat.set_writing(outcome.is_pending());
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Waits for as many bytes as say which version is spoken. They are read again afterwards. `None` is a client that has gone.
    pub(crate) async fn version(&mut self) -> io::Result<Option<Version>> {
        let mut length = 0;
        while length < PREFACE.len() && self.begin[..length] == PREFACE[..length] {
            match self.stream.read(&mut self.begin[length..]).await? {
                0 if length == 0 => return Ok(None),
                0 => break,
                more => length += more,
            }
        }
        self.unread = 0..length;
        Ok(Some(if self.begin == *PREFACE { Version::Two } else { Version::One }))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_empty() {
            if this.turn >= TURN {
                this.turn = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            let outcome = if buffer.remaining() <= TURN {
                // Memory that nothing is read into stays untouched: each idle connection has 8 KiB of it.
                Pin::new(&mut this.stream).poll_read(context, buffer)
            } else {
                let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(TURN));
                let outcome = Pin::new(&mut this.stream).poll_read(context, &mut piece);
                let read = piece.filled().len();
                buffer.advance(read);
                outcome
            };
            let read = buffer.filled().len() - before;
            this.turn = if outcome.is_ready() { this.turn + read } else { 0 };
            return outcome;
        }
        let taken = this.unread.len().min(buffer.remaining());
        buffer.put_slice(&this.begin[this.unread.start..this.unread.start + taken]);
        this.unread.start += taken;
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, mem::MaybeUninit, pin::pin};

    use futures_util::poll;
    use tokio::{
        io::{AsyncWriteExt, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;
    use crate::places::{Bounds, Entry, Places};

    const STALL: Duration = Duration::from_secs(60);

    fn connection(server: DuplexStream) -> Connection<DuplexStream> {
        let bounds = Bounds { places: 1, per_address: 1, reserved: 1, unknown_idle: STALL };
        let Entry::In(place) = Places::new(bounds).enter(None) else { panic!("there is a place") };
        Connection::new(server, Arc::clone(&place.seat), STALL)
    }

    #[tokio::test]
    async fn the_version_is_told_by_the_first_bytes_and_nothing_is_lost() {
        for (said, version) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], Some(Version::One)),
            (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", Some(Version::One)),
            (b"PRI * HTTP/1.1\r\n\r\n", Some(Version::One)),
            (b"P", Some(Version::One)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Version::Two)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", Some(Version::Two)),
            (b"", None),
        ] {
            // Whole, and byte by byte.
            for capacity in [64, 1] {
                let (mut client, server) = duplex(capacity);
                let mut connection = connection(server);
                let written = tokio::spawn(async move { client.write_all(said).await });
                assert_eq!(connection.version().await.unwrap(), version, "{}", said.escape_ascii());
                let mut again = Vec::new();
                connection.read_to_end(&mut again).await.unwrap();
                assert_eq!(again, said);
                written.await.unwrap().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn reading_what_is_there_lets_other_tasks_run() {
        let (mut client, server) = duplex(8 * TURN);
        client.write_all(&[b'0'; 8 * TURN]).await.unwrap();
        let mut connection = connection(server);
        let mut buffer = [0; 1000];
        let mut others = 0;
        for _ in 0..8 * TURN / buffer.len() {
            let mut reading = pin!(connection.read_exact(&mut buffer));
            while poll!(reading.as_mut()).is_pending() {
                others += 1;
                tokio::task::yield_now().await;
            }
        }
        assert!((6..=9).contains(&others), "{others}");
    }

    #[tokio::test]
    async fn a_connection_that_waits_does_not_touch_its_buffer() {
        let (_client, server) = duplex(64);
        let mut connection = connection(server);
        let mut memory = [const { MaybeUninit::uninit() }; 8192];
        let mut buffer = ReadBuf::uninit(&mut memory);
        let read = poll_fn(|context| Poll::Ready(Pin::new(&mut connection).poll_read(context, &mut buffer))).await;
        assert!(read.is_pending());
        assert_eq!(buffer.initialized().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut client, server) = duplex(8);
        let mut connection = connection(server);
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
