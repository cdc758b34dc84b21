//! HTTP/1: heads that are too large, slow or ambiguous, and bodies that drip.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use super::rig::{PATIENCE, Rig, SHORT, ask, drip, get, run};
use crate::harness::TOKEN;

/// What must hold.
enum Holds {
    /// One answer with one of these statuses, and the end of the connection.
    Answers(&'static [u16]),
    /// The end of the connection, with this answer or without a word.
    EndsWith(u16),
    /// All is well: this is what others send too.
    Is(u16),
}

/// How bytes are sent.
enum Sent {
    AtOnce(Vec<u8>),
    /// The beginning at once, then the same few bytes again and again.
    Drips(Vec<u8>, &'static [u8], Duration),
}

struct Attempt {
    name: &'static str,
    sent: Sent,
    holds: Holds,
}

const TWICE_A_SECOND: Duration = Duration::from_millis(500);

fn attempts() -> Vec<Attempt> {
    use Holds::{Answers, EndsWith, Is};
    let row = |name, bytes: Vec<u8>, holds| Attempt { name, sent: Sent::AtOnce(bytes), holds };
    let slow = |name, begin: &[u8], drop, holds| Attempt {
        name,
        sent: Sent::Drips(begin.to_vec(), drop, TWICE_A_SECOND),
        holds,
    };
    let close = "Connection: close\r\n";
    let known = format!("{close}Authorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\n");
    let health = |headers: &str| get("/healthz", &format!("{close}{headers}"));
    let tasks = |headers: &str| get("/a2a/tasks", &format!("{known}{headers}"));
    let post = |headers: &str, body: &str| {
        let head = "POST /a2a/message:send HTTP/1.1\r\nHost: localhost\r\n";
        format!("{head}Authorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\n{headers}\r\n{body}").into_bytes()
    };
    let extensions = |count: usize| vec!["urn:x"; count].join(",");
    let second = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    vec![
        // Heads that are too large.
        row("a header of 15 KiB", health(&format!("X-Long: {}\r\n", "x".repeat(15 << 10))), Is(200)),
        row("a header of 17 KiB", health(&format!("X-Long: {}\r\n", "x".repeat(17 << 10))), Answers(&[431])),
        row("a header of 120 KiB", health(&format!("X-Long: {}\r\n", "x".repeat(120 << 10))), Answers(&[431])),
        row("a header of 2 MiB", health(&format!("X-Long: {}\r\n", "x".repeat(2 << 20))), EndsWith(431)),
        row("a target of 20 KiB", get(&format!("/healthz?{}", "x".repeat(20 << 10)), close), Answers(&[431, 414])),
        row("two hundred headers", health(&"X-A: b\r\n".repeat(200)), Answers(&[431])),
        row("a head of 8 MiB without an end", [get("/healthz", "X-A: ").as_slice(), &vec![b'x'; 8 << 20]].concat(), EndsWith(431)),
        row("trailers of 64 KiB", post("Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n", &format!("2\r\n{{}}\r\n0\r\nX-T: {}\r\n\r\n", "x".repeat(64 << 10))), Answers(&[400])),
        // Lists in headers.
        row("32 extensions", tasks(&format!("A2A-Extensions: {}\r\n", extensions(32))), Is(200)),
        row("33 extensions", tasks(&format!("A2A-Extensions: {}\r\n", extensions(33))), Answers(&[400])),
        row("17 extensions under each of two names", tasks(&format!("A2A-Extensions: {0}\r\nX-A2A-Extensions: {0}\r\n", extensions(17))), Answers(&[400])),
        row("2,500 extensions", tasks(&format!("A2A-Extensions: {}\r\n", extensions(2500))), Answers(&[400])),
        row("extensions of 120 KiB", tasks(&format!("A2A-Extensions: {}\r\n", extensions(20_000))), Answers(&[431])),
        row("8,000 commas and no extension", tasks(&format!("A2A-Extensions: {}\r\n", ",".repeat(8000))), Is(200)),
        row("an Accept of 12 KiB", tasks(&format!("Accept: {}\r\n", "a/b;q=0.1,".repeat(1200))), Is(200)),
        row("an If-None-Match of 12 KiB", get("/.well-known/agent-card.json", &format!("{close}If-None-Match: {}\r\n", "\"x\",".repeat(3000))), Is(200)),
        row("an X-Forwarded-For of 12 KiB", tasks(&format!("X-Forwarded-For: {}\r\n", "10.0.0.1, ".repeat(1200))), Is(200)),
        row("a Last-Event-ID of 12 KiB", tasks(&format!("Last-Event-ID: {}\r\n", "9".repeat(12 << 10))), Is(200)),
        row("a traceparent of 12 KiB", tasks(&format!("traceparent: 00-{}\r\n", "a-".repeat(6 << 10))), Is(200)),
        // What is said twice, or in two ways.
        row("a length and chunks", post("Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", &format!("0\r\n\r\n{second}")), Answers(&[400])),
        row("chunks and a length", post("Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n", &format!("0\r\n\r\n{second}")), Answers(&[400])),
        row("two lengths", post("Content-Length: 2\r\nContent-Length: 40\r\n", &format!("{{}}{second}")), Answers(&[400])),
        row("a length that is a list", post("Content-Length: 2, 40\r\n", &format!("{{}}{second}")), Answers(&[400])),
        row("a length with a sign", post("Content-Length: +2\r\n", &format!("{{}}{second}")), Answers(&[400])),
        row("a transfer coding twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", &format!("0\r\n\r\n{second}")), Answers(&[400])),
        row("chunks in HTTP/1.0", format!("POST /a2a/message:send HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}").into_bytes(), EndsWith(400)),
        row("a folded header", health("X-A: b\r\n c\r\n"), Answers(&[400])),
        row("a space before a colon", health("X-A : b\r\n"), Answers(&[400])),
        row("a bare line feed in a value", health("X-A: b\nX-B: c\r\n"), Is(200)),
        row("a zero byte in a value", health("X-A: b\0c\r\n"), Answers(&[400])),
        row("a chunk size with junk", post("Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n", &format!("0x2\r\n{{}}\r\n0\r\n\r\n{second}")), Answers(&[400])),
        row("a version that is none", b"GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n".to_vec(), EndsWith(400)),
        row("a tunnel", b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_vec(), Answers(&[400, 401, 404, 405])),
        row("an absolute target elsewhere", format!("GET http://evil.example/a2a/tasks HTTP/1.1\r\nHost: localhost\r\n{close}\r\n").into_bytes(), Answers(&[401])),
        // Who is slow.
        slow("a head that drips", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n", EndsWith(408)),
        slow("a preface that drips", b"PRI * HTTP/2.0\r\n", b"\r", EndsWith(400)),
        slow("a method that never ends", b"P", b"O", EndsWith(408)),
        slow("a body that drips", &post("Content-Type: application/json\r\nContent-Length: 4096\r\n", "{"), b" ", EndsWith(408)),
        slow("chunks that drip", &post("Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", ""), b"1\r\n \r\n", EndsWith(408)),
        slow("a body that nobody wants, dripping", b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4096\r\n\r\n", b"x", EndsWith(405)),
        slow("a short body of anybody that drips", b"POST /v1/callbacks/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n", b" ", Answers(&[401, 404, 408])),
    ]
}

#[test]
fn heads_and_bodies_are_bounded_and_mean_one_thing() {
    let rig = Rig::start(&[], &SHORT);
    let attempts = attempts();
    run(&rig, &attempts, |attempt| attempt.name, |attempt| attempt.holds(&rig));
}

impl Attempt {
    fn holds(&self, rig: &Rig) -> Result<(), String> {
        let heard = match &self.sent {
            Sent::AtOnce(bytes) => ask(rig.connect(), bytes)?,
            Sent::Drips(begin, drop, every) => drip(rig.connect(), begin, drop, *every)?,
        };
        let status = heard.status();
        let right = match self.holds {
            Holds::Answers(statuses) => status.is_some_and(|status| statuses.contains(&status)),
            Holds::EndsWith(expected) => status.is_none_or(|status| status == expected),
            Holds::Is(expected) => status == Some(expected),
        };
        if right && heard.answers() <= 1 { Ok(()) } else { Err(format!("{:.300}", heard.0)) }
    }
}

/// The size of a chunk has no bound of its own, and its digits and the spaces behind them are no body: who sends them without end keeps
/// nobody waiting, and is shown out.
#[test]
fn chunk_sizes_without_an_end_keep_nobody_waiting() {
    const HEAD: &[u8] = b"POST /a2a/message:send HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1";
    let rig = Rig::start(&[], &SHORT);
    let crowd: Vec<_> = (0..12)
        .map(|n| {
            let mut stream = rig.connect();
            let more = vec![if n % 2 == 0 { b' ' } else { b'0' }; 64 << 10];
            // A size that is not zero would soon be too large.
            let head = if n % 2 == 0 { HEAD } else { &HEAD[..HEAD.len() - 1] };
            thread::spawn(move || {
                stream.write_all(head).expect("the server listens");
                while stream.write_all(&more).is_ok() {}
            })
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(rig.echo(), Ok(()));
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    crowd.into_iter().for_each(|member| member.join().expect("it is shown out"));
}

/// A pipeline is answered in order, and the answers are as many as the requests.
#[test]
fn a_pipeline_is_answered_in_order() {
    let rig = Rig::start(&[], &[]);
    let mut bytes = get("/healthz", "").repeat(200);
    bytes.extend(get("/nothing", "Connection: close\r\n"));
    let heard = ask(rig.connect(), &bytes).expect("an end");
    assert_eq!((heard.answers(), heard.0.matches("HTTP/1.1 404").count()), (201, 1));
    assert_eq!(rig.echo(), Ok(()));
}
