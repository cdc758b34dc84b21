//! A server that says exactly what a test wants, cuts and silence included.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use a2a::StreamResponse;
use client::{Client, Connector, Credential, Error, Limits, Options, Policy, Resume, Secret, parse_url};

/// The header of an answer whose connection is kept.
const HELD: &str = "x-held: yes";

/// The header of an answer whose connection says again and again that it is there.
const PINGING: &str = "x-pinging: yes";

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Seen {
    /// A header in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.headers.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned())
    }
}

/// Answers one connection after the other with the next of its answers.
pub(crate) struct Script {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Script {
    /// `answers` get the server's own URL, for the card.
    pub(crate) fn start(answers: impl FnOnce(&str) -> Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = answers(&url);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                log.lock().unwrap().push(read(&socket));
                socket.write_all(answer.as_bytes()).unwrap();
                if answer.contains(PINGING) {
                    std::thread::spawn(move || {
                        while socket.write_all(b": still here\n\n").is_ok() {
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    });
                } else if answer.contains(HELD) {
                    held.push(socket);
                }
            }
            // Whoever is left waits for a caller that has seen enough.
            let _ = listener.accept();
        });
        Self { url, seen }
    }

    pub(crate) async fn client(&self, options: Options) -> Result<Client, Error> {
        Client::connect(connector(), &parse_url(&self.url).unwrap(), options).await
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(socket: &TcpStream) -> Seen {
    let mut reader = BufReader::new(socket);
    let mut seen = Seen::default();
    reader.read_line(&mut seen.line).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.to_ascii_lowercase();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        seen.headers.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    seen.body = String::from_utf8(body).unwrap();
    seen
}

pub(crate) fn connector() -> Connector {
    Connector::new(Policy::Operator, Limits { total_timeout: Some(Duration::from_secs(10)), ..Limits::default() })
}

pub(crate) fn options() -> Options {
    let resume = Resume {
        attempts: 3,
        backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(5),
        ..Resume::default()
    };
    Options { credential: Some(Credential::Bearer(Secret::new("sb_secret"))), resume, ..Options::default() }
}

pub(crate) fn answer(status: u16, media_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

pub(crate) fn json(status: u16, body: &str) -> String {
    answer(status, "application/json", body)
}

pub(crate) fn events(events: &[String]) -> String {
    answer(200, "text/event-stream", &events.concat())
}

/// A stream that stays open and says no more.
pub(crate) fn held(events: &[String]) -> String {
    format!("HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n{HELD}\r\n\r\n{}", events.concat())
}

/// A stream that stays open and says nothing but that.
pub(crate) fn pinging(held: &str) -> String {
    held.replace(HELD, PINGING)
}

pub(crate) fn event(id: u32, body: &str) -> String {
    format!("id: {id}\ndata: {body}\n\n")
}

pub(crate) fn rpc(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
}

pub(crate) async fn collect(mut stream: client::EventStream) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        all.push(match event?.value {
            StreamResponse::Task(task) => format!("task {}", task.status.state.as_str()),
            StreamResponse::StatusUpdate(update) => format!("status {}", update.status.state.as_str()),
            StreamResponse::ArtifactUpdate(_) => "artifact".to_owned(),
            StreamResponse::Message(_) => "message".to_owned(),
        });
    }
    Ok(all)
}
