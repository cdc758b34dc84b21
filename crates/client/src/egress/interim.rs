//! Bounds on what a connection reads: the interim responses (1xx) that precede an answer, and the bytes of one turn of its task.
//!
//! hyper reads them in a loop and drops them, and the loop ends with the final response only. A server that never stops to send them
//! keeps a thread busy for as long as it likes. So what a connection reads is watched here: on HTTP/1.1 by the status lines, on HTTP/2
//! by the frames that carry heads. A connection over the bound fails, and the call with it.
//!
//! hyper and h2 also read for as long as bytes come where these say nothing, such as the digits of a chunk's size. So other tasks run
//! after some of them, and the timeouts of the call apply.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tls;

/// Interim responses that may precede one answer.
const MAX_RESPONSES: u32 = 100;
/// Bytes that they may have on HTTP/1.1. On HTTP/2 the size of each head is bounded.
const MAX_BYTES: usize = 64 * 1024;
/// Streams of HTTP/2 that are remembered. The oldest are over: connections of ours have fewer at once.
const MAX_STREAMS: usize = 1024;
/// Bytes that are read in one turn of a connection's task.
const TURN: usize = 16 * 1024;
/// Error kind of a connection that fails for this. It survives the way through hyper and h2, which the error itself does not.
const KIND: io::ErrorKind = io::ErrorKind::QuotaExceeded;

const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// A connection that fails when too many interim responses come, and that lets other tasks run while bytes come without end.
pub(crate) struct Bounded<S> {
    stream: S,
    watch: Watch,
    /// Something was read.
    begun: bool,
    /// Bytes that were read since another task could last run.
    turn: usize,
}

/// How far the responses of a connection have been read, and how many interim ones came.
#[derive(Debug, Default)]
enum Watch {
    /// Nothing was written yet.
    #[default]
    Unknown,
    Http1(Http1),
    Http2(Http2),
}

/// The heads of HTTP/1.1.
#[derive(Debug, Default)]
struct Http1 {
    at: At,
    responses: u32,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    /// In a status line, of which these bytes have come.
    Status([u8; STATUS], usize),
    /// In the rest of an interim head, with so many bytes of its current line.
    Interim(usize),
    /// Behind the begin of a final head.
    Final,
}

/// How much of a status line tells what it is: `HTTP/1.1 103`.
const STATUS: usize = 12;

/// The frames of HTTP/2.
#[derive(Debug, Default)]
struct Http2 {
    head: [u8; FRAME_HEAD],
    /// How much of a frame's head has come.
    filled: usize,
    /// Remaining bytes of a frame's payload.
    payload: usize,
    /// Heads that did not end their stream.
    heads: BTreeMap<u32, u32>,
}

impl Default for At {
    fn default() -> Self {
        Self::Status([0; STATUS], 0)
    }
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, watch: Watch::default(), begun: false, turn: 0 }
    }
}

impl Watch {
    /// Notes what is sent: the first bytes tell the version of HTTP, and on HTTP/1.1 a request follows the answer before it.
    fn written(&mut self, bytes: &[u8]) {
        match self {
            Self::Unknown if bytes.is_empty() => {}
            Self::Unknown if bytes.starts_with(b"PRI ") => *self = Self::Http2(Http2::default()),
            Self::Unknown => *self = Self::Http1(Http1::default()),
            Self::Http1(http1) if http1.at == At::Final => *http1 = Http1::default(),
            Self::Http1(_) | Self::Http2(_) => {}
        }
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unknown => Ok(()),
            Self::Http1(http1) => http1.read(bytes),
            Self::Http2(http2) => http2.read(bytes),
        }
    }
}

impl Http1 {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            match &mut self.at {
                At::Final => return Ok(()),
                // Empty lines before a status line are skipped by everybody.
                At::Status(_, 0) if matches!(byte, b'\r' | b'\n') => self.count(0, 1)?,
                At::Status(line, filled) => {
                    line[*filled] = *byte;
                    *filled += 1;
                    if *filled == STATUS {
                        // 101 is the last that HTTP/1.1 says.
                        let is_interim = line.starts_with(b"HTTP/1.") && line[9] == b'1' && &line[9..] != b"101";
                        self.at = if is_interim { At::Interim(STATUS) } else { At::Final };
                        self.count(u32::from(is_interim), STATUS)?;
                    }
                }
                At::Interim(length) => {
                    match byte {
                        b'\n' if *length == 0 => self.at = At::default(),
                        b'\n' => *length = 0,
                        b'\r' => {}
                        _ => *length += 1,
                    }
                    self.count(0, 1)?;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, responses: u32, bytes: usize) -> io::Result<()> {
        self.responses += responses;
        self.bytes += bytes;
        if self.responses > MAX_RESPONSES || self.bytes > MAX_BYTES { Err(too_many()) } else { Ok(()) }
    }
}

impl Http2 {
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head[self.filled] = bytes[0];
            self.filled += 1;
            bytes = &bytes[1..];
            if self.filled == FRAME_HEAD {
                self.filled = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    /// Reads the head of a frame.
    fn frame(&mut self) -> io::Result<()> {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        match kind {
            RST_STREAM => drop(self.heads.remove(&stream)),
            DATA | HEADERS if flags & END_STREAM != 0 => drop(self.heads.remove(&stream)),
            HEADERS => {
                let heads = self.heads.entry(stream).or_default();
                *heads += 1;
                // One of them is the answer's.
                if *heads > MAX_RESPONSES + 1 {
                    return Err(too_many());
                }
                if self.heads.len() > MAX_STREAMS {
                    self.heads.pop_first();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn too_many() -> io::Error {
    let message =
        format!("more than {MAX_RESPONSES} interim responses (1xx), or {MAX_BYTES} bytes of them, and no answer");
    io::Error::new(KIND, message)
}

/// The error of a connection that failed for too many interim responses, if that is why a call failed.
pub(super) fn flood_in(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>().or_else(|| error.downcast_ref::<h2::Error>()?.get_io());
        if io.is_some_and(|error| error.kind() == KIND) {
            return Some(too_many().to_string());
        }
        next = error.source();
    }
    None
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let turn = std::mem::take(&mut this.turn);
        if turn >= TURN {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = buffer.remaining().min(TURN);
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(length));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut piece))?;
        let read = piece.filled().len();
        if !std::mem::replace(&mut this.begun, true) {
            tls::check_first_bytes(piece.filled())?;
        }
        let watched = this.watch.read(piece.filled());
        buffer.advance(read);
        this.turn = turn + read;
        Poll::Ready(watched)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.watch.written(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.watch.written(first.map_or(&[], |slice| &slice[..written.min(slice.len())]));
        Poll::Ready(Ok(written))
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

impl<S: Connection> Connection for Bounded<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    fn sent(first: &[u8]) -> Watch {
        let mut watch = Watch::default();
        watch.written(first);
        watch
    }

    /// How many of these can be read until the connection fails.
    fn read_until_it_fails(watch: &mut Watch, piece: &[u8]) -> usize {
        (0..1_000_000).take_while(|_| watch.read(piece).is_ok()).count()
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn interim_responses_have_a_bound_and_answers_have_none() {
        let max = MAX_RESPONSES as usize;
        let mut watch = sent(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(read_until_it_fails(&mut watch, INTERIM), max);
        for _ in 0..2 {
            let mut watch = sent(b"GET / HTTP/1.1\r\n\r\n");
            for _ in 0..3 {
                for _ in 0..max {
                    watch.read(INTERIM).unwrap();
                }
                watch.read(ANSWER).unwrap();
                assert_eq!(read_until_it_fails(&mut watch, INTERIM), 1_000_000, "it is a body that looks like it");
                watch.written(b"GET / HTTP/1.1\r\n\r\n");
            }
        }
    }

    #[test]
    fn pieces_do_not_matter() {
        let stream = [INTERIM, b"\r\n", b"HTTP/1.1 100 \nx: y\n\n", ANSWER].concat();
        for size in 1..stream.len() {
            let mut watch = sent(b"POST");
            for piece in stream.chunks(size) {
                watch.read(piece).unwrap();
            }
            let Watch::Http1(http1) = watch else { panic!("it is HTTP/1.1") };
            assert_eq!((http1.at, http1.responses), (At::Final, 2), "{size}");
        }
    }

    #[test]
    fn bytes_of_interim_responses_have_a_bound() {
        for piece in [&b"x: y\r\n"[..], b"x"] {
            let mut watch = sent(b"GET");
            watch.read(b"HTTP/1.1 103 X\r\n").unwrap();
            assert!(read_until_it_fails(&mut watch, piece) <= MAX_BYTES);
        }
        assert!(read_until_it_fails(&mut sent(b"GET"), b"\r\n") <= MAX_BYTES);
        let mut upgrade = sent(b"GET");
        upgrade.read(b"HTTP/1.1 101 Switching\r\n").unwrap();
        assert_eq!(read_until_it_fails(&mut upgrade, b"x"), 1_000_000);
    }

    #[test]
    fn heads_of_a_stream_have_a_bound_on_http_2() {
        let interim = |stream| frame(HEADERS, 4, stream, &[8, 3, b'1', b'0', b'3']);
        let max = MAX_RESPONSES as usize + 1;
        assert_eq!(read_until_it_fails(&mut sent(b"PRI * HTTP/2.0"), &interim(1)), max);
        let mut watch = sent(b"PRI * HTTP/2.0");
        for stream in (1..6000).step_by(2) {
            for _ in 0..max {
                watch.read(&interim(stream)).unwrap();
            }
            watch.read(&frame(DATA, 0, stream, &interim(1))).unwrap();
            watch.read(&frame(HEADERS, 4 | END_STREAM, stream, &[])).unwrap();
        }
        for piece in interim(7).chunks(2).cycle().take(7 * max) {
            watch.read(piece).unwrap();
        }
        assert!(watch.read(&interim(7)).is_err());
        // Streams that are never ended are forgotten in the end.
        let mut watch = sent(b"PRI * HTTP/2.0");
        for stream in (1..20_000).step_by(2) {
            watch.read(&interim(stream)).unwrap();
        }
        let Watch::Http2(http2) = watch else { panic!("it is HTTP/2") };
        assert_eq!(http2.heads.len(), MAX_STREAMS);
    }
}
