//! A provider over real sockets that plays one behaviour for each request: pieces and pauses, cuts and silence.

#![expect(clippy::unwrap_used, reason = "a test rig")]

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use serde_json::Value;

/// What is done to a request, in order.
#[derive(Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Until the test says so, or the other side has gone.
    Hold,
    /// The connection is closed. Without it the next request on it is read.
    Close,
    /// Until the other side has gone.
    AwaitClose,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    headers: String,
    pub(crate) body: Value,
    /// Which connection it came on, counted from 1.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.headers.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned())
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    plays: Mutex<VecDeque<Vec<Step>>>,
    seen: Mutex<Vec<Seen>>,
    /// How many holds may go on, and how many connections the other side has closed while they were waited for.
    signals: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Server {
    /// Each request gets the next play; whoever comes after the last is hung up on.
    pub(crate) fn start(plays: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { plays: Mutex::new(plays.into_iter().collect()), ..Shared::default() });
        let ours = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let shared = Arc::clone(&ours);
                std::thread::spawn(move || shared.serve(socket.unwrap(), n + 1));
            }
        });
        Self { url, shared }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Lets one hold go on.
    pub(crate) fn go_on(&self) {
        self.shared.signals.lock().unwrap().0 += 1;
        self.shared.changed.notify_all();
    }

    /// Waits until the other side has closed a connection that was waited for.
    pub(crate) async fn closed(&self) {
        let shared = Arc::clone(&self.shared);
        let wait = tokio::task::spawn_blocking(move || {
            let signals = shared.signals.lock().unwrap();
            let waited = shared.changed.wait_timeout_while(signals, Duration::from_secs(10), |signals| signals.1 == 0);
            assert!(!waited.unwrap().1.timed_out(), "the connection stays open");
        });
        wait.await.unwrap();
    }
}

impl Shared {
    fn serve(&self, mut socket: TcpStream, connection: usize) {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        while let Some(seen) = read(&mut reader, connection) {
            self.seen.lock().unwrap().push(seen);
            let Some(play) = self.plays.lock().unwrap().pop_front() else { return };
            for step in play {
                match step {
                    Step::Send(bytes) => {
                        if socket.write_all(&bytes).is_err() {
                            return;
                        }
                    }
                    Step::Pause(time) => std::thread::sleep(time),
                    Step::Hold => {
                        let signals = self.signals.lock().unwrap();
                        let wait = self.changed.wait_timeout_while(signals, Duration::from_secs(20), |s| s.0 == 0);
                        let mut signals = wait.unwrap().0;
                        signals.0 = signals.0.saturating_sub(1);
                    }
                    Step::Close => {
                        let _ = socket.shutdown(Shutdown::Both);
                        return;
                    }
                    Step::AwaitClose => {
                        let _ = reader.read(&mut [0; 64]);
                        self.signals.lock().unwrap().1 += 1;
                        self.changed.notify_all();
                        return;
                    }
                }
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Seen> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut headers = String::new();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap();
        let name = name.to_ascii_lowercase();
        if name == "content-length" {
            length = value.trim().parse().unwrap();
        }
        headers.push_str(&format!("{name}:{value}"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Seen { line: line.trim().to_owned(), headers, body, connection })
}

/// The head of a stream whose pieces follow.
pub(crate) fn head() -> Step {
    head_of("text/event-stream; charset=utf-8")
}

pub(crate) fn head_of(media_type: &str) -> Step {
    let kind = if media_type.is_empty() { String::new() } else { format!("content-type: {media_type}\r\n") };
    Step::Send(format!("HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n").into_bytes())
}

/// A piece of a stream, in one chunk.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Step {
    let bytes = bytes.as_ref();
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    Step::Send(chunk)
}

/// The end of a stream.
pub(crate) fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// A stream of these pieces.
pub(crate) fn stream<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Vec<Step> {
    let mut steps = vec![head()];
    steps.extend(pieces.into_iter().map(chunk));
    steps.push(end());
    steps
}

/// One whole answer, after which the connection is kept. `headers` end with a line break each.
pub(crate) fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Send(bytes)]
}

pub(crate) fn json(status: u16, body: &str) -> Vec<Step> {
    answer(status, "content-type: application/json\r\n", body)
}
