//! An HTTP/1.1 server over real sockets that does with each request what a test says: pieces and pauses, cuts and silence.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

/// One step of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Sends the bytes with a pause after them, again and again until the client has gone.
    Repeat(Vec<u8>, Duration),
    /// Waits for [`HttpServer::go_on`].
    Hold,
    /// Closes the connection. Without it the next request on it is read.
    Close,
    /// Waits until the client has gone.
    AwaitClose,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// The request line without its end.
    pub line: String,
    /// The lines of the headers, their names in lower case.
    pub headers: String,
    pub body: String,
    /// The number of its connection, counted from 1.
    pub connection: usize,
}

impl Received {
    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.headers.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// A server that listens.
pub struct HttpServer {
    /// `http://host:port`
    pub url: String,
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<Vec<Step>>>,
    /// The answer after the last of `answers`. Without it the connection is closed.
    otherwise: Option<Vec<Step>>,
    received: Mutex<Vec<Received>>,
    signals: Mutex<Signals>,
    changed: Condvar,
}

#[derive(Default)]
struct Signals {
    /// Connections that were accepted.
    connections: usize,
    /// Holds that may go on.
    released: usize,
    /// Connections that the client has closed while that was waited for.
    closed: usize,
}

impl HttpServer {
    /// A server whose requests get one answer each. Those that come later are hung up on.
    pub fn start(answers: impl IntoIterator<Item = Vec<Step>>) -> Self {
        Self::start_with(|_| answers)
    }

    /// The same with answers that depend on the server's own URL.
    pub fn start_with<A: IntoIterator<Item = Vec<Step>>>(answers: impl FnOnce(&str) -> A) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = Mutex::new(answers(&url).into_iter().collect());
        Self::serve(listener, Shared { answers, ..Shared::default() })
    }

    /// A server that answers all requests alike.
    pub fn repeating(listener: TcpListener, answer: Vec<Step>) -> Self {
        Self::serve(listener, Shared { otherwise: Some(answer), ..Shared::default() })
    }

    fn serve(listener: TcpListener, shared: Shared) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(shared);
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let shared = Arc::clone(&ours);
                shared.signals.lock().unwrap().connections += 1;
                thread::spawn(move || shared.converse(socket.unwrap(), n + 1));
            }
        });
        Self { url: format!("http://{address}"), port: address.port(), shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests that came, in order.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.signals.lock().unwrap().connections
    }

    /// Ends one [`Step::Hold`].
    pub fn go_on(&self) {
        self.shared.signals.lock().unwrap().released += 1;
        self.shared.changed.notify_all();
    }

    /// Waits until the client has closed a connection at [`Step::AwaitClose`].
    pub async fn closed(&self) {
        let shared = Arc::clone(&self.shared);
        let wait = tokio::task::spawn_blocking(move || {
            let signals = shared.signals.lock().unwrap();
            let waited = shared.changed.wait_timeout_while(signals, crate::PATIENCE, |signals| signals.closed == 0);
            assert!(!waited.unwrap().1.timed_out(), "the connection stays open");
        });
        wait.await.unwrap();
    }
}

impl Shared {
    fn converse(&self, mut socket: TcpStream, connection: usize) {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        while let Some(request) = read(&mut reader, connection) {
            self.received.lock().unwrap().push(request);
            let Some(answer) = self.answers.lock().unwrap().pop_front().or_else(|| self.otherwise.clone()) else {
                return;
            };
            for step in answer {
                match step {
                    Step::Send(bytes) => {
                        if socket.write_all(&bytes).is_err() {
                            return;
                        }
                    }
                    Step::Pause(time) => thread::sleep(time),
                    Step::Repeat(bytes, pause) => {
                        while socket.write_all(&bytes).is_ok() {
                            thread::sleep(pause);
                        }
                        return;
                    }
                    Step::Hold => {
                        let signals = self.signals.lock().unwrap();
                        let wait =
                            self.changed.wait_timeout_while(signals, crate::PATIENCE, |signals| signals.released == 0);
                        let mut signals = wait.unwrap().0;
                        signals.released = signals.released.saturating_sub(1);
                    }
                    Step::Close => {
                        let _ = socket.shutdown(Shutdown::Both);
                        return;
                    }
                    Step::AwaitClose => {
                        let _ = reader.read(&mut [0; 64]);
                        self.signals.lock().unwrap().closed += 1;
                        self.changed.notify_all();
                        return;
                    }
                }
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
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
    Some(Received { line: line.trim().to_owned(), headers, body: String::from_utf8(body).unwrap(), connection })
}

/// An answer of these bytes. The connection is closed after it if they say so.
pub fn raw(answer: &str) -> Vec<Step> {
    let mut steps = vec![Step::Send(answer.as_bytes().to_vec())];
    if answer.contains("connection: close") {
        steps.push(Step::Close);
    }
    steps
}

/// The head of a stream whose pieces follow.
pub fn head() -> Step {
    head_of("text/event-stream; charset=utf-8")
}

pub fn head_of(media_type: &str) -> Step {
    let kind = if media_type.is_empty() { String::new() } else { format!("content-type: {media_type}\r\n") };
    Step::Send(format!("HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n").into_bytes())
}

/// A piece of a stream, in one chunk.
pub fn chunk(bytes: impl AsRef<[u8]>) -> Step {
    let bytes = bytes.as_ref();
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    Step::Send(chunk)
}

/// The end of a stream.
pub fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// A stream of these pieces.
pub fn stream<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Vec<Step> {
    let mut steps = vec![head()];
    steps.extend(pieces.into_iter().map(chunk));
    steps.push(end());
    steps
}

/// One whole answer, after which the connection is kept. `headers` end with a line break each.
pub fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Send(bytes)]
}

pub fn json(status: u16, body: &str) -> Vec<Step> {
    answer(status, "content-type: application/json\r\n", body)
}
