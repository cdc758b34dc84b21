//! HTTP/2 by hand: frames that no client library would send.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::rig::{PATIENCE, Rig, SHORT, run};
use crate::harness::TOKEN;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection of HTTP/2.
pub(super) struct Client {
    stream: TcpStream,
}

/// A frame that came.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Client {
    /// Says that it speaks HTTP/2, with this window for each stream.
    pub(super) fn open(rig: &Rig, window: u32) -> Self {
        Self::over(rig.connect(), window)
    }

    pub(super) fn over(stream: TcpStream, window: u32) -> Self {
        let mut client = Self { stream };
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &settings)].concat();
        assert!(client.write(&hello), "the server takes a preface");
        client
    }

    /// Whether the server still takes what is sent.
    pub(super) fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next frame; none at the end of the connection.
    pub(super) fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    pub(super) fn try_clone(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("a socket can be shared") }
    }

    /// Waits until the server has read what was sent before.
    pub(super) fn is_heard(&mut self) {
        self.write(&frame(PING, 0, 0, b"heard it"));
        let is_answer = |frame: &Frame| frame.kind == PING && frame.flags == 1;
        assert!(std::iter::from_fn(|| self.read()).any(|frame| is_answer(&frame)), "a PING is answered");
    }

    /// Whether the server ends the connection in time. PINGs are answered, as by somebody who wants to stay.
    pub(super) fn ends(&mut self) -> bool {
        let since = Instant::now();
        while let Some(frame) = self.read() {
            if frame.kind == PING && frame.flags == 0 {
                self.write(&self::frame(PING, 1, 0, &frame.payload));
            }
        }
        since.elapsed() < PATIENCE
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header as HPACK has one that is not to be remembered.
fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0][..], &text(name), &text(value)].concat()
}

fn text(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match text.len() {
        short if short < 127 => out.push(short as u8),
        long => {
            out.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// The head of a request.
fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    pseudo.iter().chain(headers).flat_map(|(name, value)| literal(name, value)).collect()
}

/// A whole request without a body.
pub(super) fn request(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [&[("authorization", bearer.as_str()), ("a2a-version", "1.0")], headers].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", path, &headers))
}

/// The begin of a request that has a body.
pub(super) fn upload(stream: u32, path: &str, media: &str) -> Vec<u8> {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("a2a-version", "1.0"), ("content-type", media)];
    frame(HEADERS, END_HEADERS, stream, &head("POST", path, &headers))
}

/// A check of health by anybody, whose body does not come.
pub(super) fn unfinished(stream: u32) -> Vec<u8> {
    let head = head("POST", "/grpc.health.v1.Health/Check", &[("content-type", "application/grpc")]);
    frame(HEADERS, END_HEADERS, stream, &head)
}

/// Health as gRPC watches it, by anybody.
pub(super) fn watch(stream: u32) -> Vec<u8> {
    let head = head("POST", "/grpc.health.v1.Health/Watch", &[("content-type", "application/grpc")]);
    [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// `:status` as the server writes it where it has no number of its own in HPACK: three digits by Huffman's code.
fn status(code: &str) -> Vec<u8> {
    let bits = code.bytes().map(|digit| match digit {
        b'0'..=b'2' => (u32::from(digit - b'0'), 5),
        _ => (0b01_1001 + u32::from(digit - b'3'), 6),
    });
    let (value, length) = bits.fold((0, 0), |(value, length), (bits, more)| ((value << more) | bits, length + more));
    let padding = (24 - length) % 8;
    let value = (value << padding) | ((1 << padding) - 1);
    let bytes = (length + padding) / 8;
    [&[0x48, 0x80 | bytes as u8][..], &u32::to_be_bytes(value)[4 - bytes..]].concat()
}

/// What must hold.
enum Holds {
    /// The server ends the connection.
    Ends,
    /// The stream is answered with this status, reset, or the connection ended.
    Refused(&'static str),
    /// Nothing but that the others are served.
    Survives,
}

struct Attempt {
    name: &'static str,
    /// What goes out behind the preface.
    bytes: Vec<u8>,
    /// And then again and again.
    drip: Option<Vec<u8>>,
    holds: Holds,
}

fn attempts() -> Vec<Attempt> {
    use Holds::{Ends, Refused, Survives};
    let row = |name, bytes: Vec<u8>, holds| Attempt { name, bytes, drip: None, holds };
    let slow = |name, bytes: Vec<u8>, drip: Vec<u8>, holds| Attempt { name, bytes, drip: Some(drip), holds };
    let open_head = frame(HEADERS, END_STREAM, 1, &head("GET", "/healthz", &[]));
    let get = |stream: u32| frame(HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", "/healthz", &[]));
    let with =
        |headers: &[(&str, &str)]| frame(HEADERS, END_HEADERS | END_STREAM, 1, &head("GET", "/healthz", headers));
    let long = "x".repeat(15 << 10);
    // A header that is remembered once, and then said a thousand times by one byte.
    let bomb =
        [head("GET", "/healthz", &[]), vec![0x40], text("x-a"), text(&"x".repeat(4000)), vec![0xbe; 1000]].concat();
    let streams = |count: u32| (0..count).map(|n| 2 * n + 1);
    let rapid: Vec<u8> =
        streams(5000).flat_map(|stream| [get(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()).collect();
    let much: Vec<u8> =
        streams(2000).flat_map(|stream| upload(stream, "/a2a/message:send", "application/json")).collect();
    let grpc = "/lf.a2a.v1.A2AService/SendMessage";
    let half = [head("GET", "/healthz", &[]), literal("x-a", &long)].concat();
    vec![
        row(
            "continuations without end",
            [open_head.clone(), frame(CONTINUATION, 0, 1, b"").repeat(20_000)].concat(),
            Ends,
        ),
        row(
            "continuations of much",
            [open_head.clone(), frame(CONTINUATION, 0, 1, &literal("x-a", &long)).repeat(200)].concat(),
            Ends,
        ),
        row(
            "a head of 30 KiB",
            [frame(HEADERS, END_STREAM, 1, &half), frame(CONTINUATION, END_HEADERS, 1, &literal("x-b", &long))]
                .concat(),
            Refused("431"),
        ),
        row(
            "a header that grows when it is unpacked",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb),
            Refused("431"),
        ),
        row("requests that are taken back at once", rapid, Ends),
        row("two thousand requests at once", much, Survives),
        row("settings without end", frame(SETTINGS, 0, 0, &[]).repeat(200_000), Survives),
        row("pings without end", frame(PING, 0, 0, &[0; 8]).repeat(200_000), Survives),
        row("windows that open without end", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(100_000), Survives),
        row(
            "empty data without end",
            [upload(1, "/a2a/message:send", "application/json"), frame(DATA, 0, 1, &[]).repeat(100_000)].concat(),
            Survives,
        ),
        row("a window beyond its bound", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(2), Ends),
        row("a window that opens by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4]), Ends),
        row("data of no stream", frame(DATA, 0, 0, b"x"), Ends),
        row("data of a stream that was never begun", frame(DATA, 0, 5, b"x"), Ends),
        row("a stream with an even number", get(2), Ends),
        row("a stream with a number that is past", [get(3), get(1)].concat(), Ends),
        row("a frame that is longer than agreed", frame(DATA, 0, 1, &vec![0; 1 << 20]), Ends),
        row("a frame that says 16 MiB", vec![0xff, 0xff, 0xff, HEADERS, 0, 0, 0, 0, 1], Ends),
        row("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &[]), Ends),
        row("a promise by a client", frame(5, END_HEADERS, 1, &[0, 0, 0, 2]), Ends),
        row("settings of half a setting", frame(SETTINGS, 0, 0, &[0, 4, 0]), Ends),
        row(
            "an index of a header that is not there",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff, 0xff, 0xff, 0x7f]),
            Ends,
        ),
        row("a name in capitals", with(&[("X-A", "b")]), Refused("400")),
        row("a transfer encoding", with(&[("transfer-encoding", "chunked")]), Refused("400")),
        row("a connection header", with(&[("connection", "keep-alive")]), Refused("400")),
        row("a second path", with(&[(":path", "/a2a/tasks")]), Refused("400")),
        row("a length that is not true", with(&[("content-length", "5")]), Refused("400")),
        row(
            "33 extensions",
            request(1, "/a2a/tasks", &[("a2a-extensions", &vec!["urn:x"; 33].join(","))]),
            Refused("400"),
        ),
        slow("a preface and nothing but pings", Vec::new(), frame(PING, 0, 0, &[7; 8]), Ends),
        slow("a head that drips", open_head, frame(CONTINUATION, 0, 1, &[]), Ends),
        slow("a look at health and then nothing but pings", get(1), frame(PING, 0, 0, &[7; 8]), Ends),
        slow(
            "a body that drips",
            upload(1, "/a2a/message:send", "application/json"),
            frame(DATA, 0, 1, b" "),
            Refused("408"),
        ),
        slow(
            "a message of gRPC that drips",
            upload(1, grpc, "application/grpc"),
            frame(DATA, 0, 1, b"\0"),
            Refused("200"),
        ),
    ]
}

#[test]
fn frames_that_nobody_should_send_end_what_they_are_sent_on() {
    let rig = Rig::start(&[], &SHORT);
    let attempts = attempts();
    run(&rig, &attempts, |attempt| attempt.name, |attempt| attempt.holds(&rig));
}

impl Attempt {
    fn holds(&self, rig: &Rig) -> Result<(), String> {
        let mut client = Client::open(rig, 65_535);
        let mut writing = client.try_clone();
        let (bytes, drip) = (self.bytes.clone(), self.drip.clone());
        let since = Instant::now();
        let writer = thread::spawn(move || {
            // The server may have heard enough.
            let mut is_open = writing.write(&bytes);
            while let Some(drip) = drip.as_ref().filter(|_| is_open && since.elapsed() < PATIENCE) {
                thread::sleep(Duration::from_millis(500));
                is_open = writing.write(drip);
            }
        });
        let judged = match self.holds {
            Holds::Ends if client.ends() => Ok(()),
            Holds::Ends => Err("the connection is still open".to_owned()),
            Holds::Refused(code) => refused(&mut client, code),
            Holds::Survives => rig.echo(),
        };
        let _ = client.stream.shutdown(std::net::Shutdown::Both);
        let _ = writer.join();
        judged
    }
}

/// Whether the first stream is refused: by this status, a reset, or the end of the connection.
fn refused(client: &mut Client, code: &str) -> Result<(), String> {
    // Some have a number of their own.
    let known = match code {
        "200" => vec![0x88],
        "400" => vec![0x8c],
        code => status(code),
    };
    let mut seen = Vec::new();
    while let Some(frame) = client.read() {
        match frame.kind {
            HEADERS if frame.payload.windows(known.len()).any(|window| window == known) => return Ok(()),
            HEADERS => return Err(format!("answered with {:02x?}", frame.payload)),
            RST_STREAM | GOAWAY => return Ok(()),
            _ => seen.push(frame.kind),
        }
    }
    if seen.len() > 1000 { Err("nothing but other frames".to_owned()) } else { Ok(()) }
}

#[test]
fn a_status_is_written_as_the_server_does() {
    assert_eq!(status("431"), [0x48, 0x83, 0x69, 0x90, 0xff]);
    assert_eq!(status("408"), [0x48, 0x83, 0x68, 0x0f, 0x7f]);
}
