//! Wake-ups by way of NATS: a small client of its core protocol, for those who have a server and would rather not use NOTIFY.
//!
//! It does one thing: publish on one subject and hear what others publish there. It never makes the writer wait: what
//! is told goes into a short queue whose oldest entry gives way. It reconnects for ever. While it was away it may have
//! missed anything, and others may have missed it, so after every connect it has everything looked at, here and there.
//!
//! TLS is out of scope: what travels is task ids and numbers.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    Hub, InstanceId,
    wake::{Login, MAX_PAYLOAD, NatsUrl, News},
};

/// How many payloads may wait for the server.
const QUEUE: usize = 1024;
/// No line of the protocol is longer; the longest is INFO, which may name all servers of a cluster.
const MAX_LINE: usize = 64 * 1024;
/// How long the server may take to connect, to answer and to take what is written.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent server is asked whether it is there.
const PING: Duration = Duration::from_secs(15);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The way to tell others. Dropping it ends the connection.
pub(crate) struct NatsHandle {
    queue: Arc<Queue>,
    me: InstanceId,
    task: JoinHandle<()>,
}

/// What a server may say.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Info(Bytes),
    Message(Bytes),
    Ping,
    Pong,
    Ok,
    Error(String),
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer in time")]
    Silent,
    #[error("the server wants TLS, which is not supported")]
    Tls,
    #[error("the server says {0}")]
    Refused(String),
    #[error("the server does not speak the protocol of NATS: {0}")]
    Protocol(&'static str),
}

/// Connects in the background and stays connected. What comes in goes to the hub.
pub(crate) fn start(url: NatsUrl, subject: String, me: InstanceId, hub: Hub) -> NatsHandle {
    let queue = Arc::new(Queue::default());
    let client = Client { url, subject, me, hub, queue: Arc::clone(&queue) };
    NatsHandle { queue, me, task: tokio::spawn(client.run()) }
}

impl NatsHandle {
    /// Tells others, soon. Never waits.
    pub(crate) fn tell(&self, news: &News) {
        if !news.is_empty() {
            self.queue.push(news.encode(self.me));
        }
    }
}

impl Drop for NatsHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<String>>,
    filled: Notify,
}

impl Queue {
    fn push(&self, payload: String) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == QUEUE {
            waiting.pop_front();
        }
        waiting.push_back(payload);
        drop(waiting);
        self.filled.notify_one();
    }

    fn take(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Client {
    url: NatsUrl,
    subject: String,
    me: InstanceId,
    hub: Hub,
    queue: Arc<Queue>,
}

impl Client {
    async fn run(self) {
        let mut wait = FIRST_WAIT;
        let mut told = false;
        loop {
            let mut connected = false;
            let Err(error) = self.session(&mut connected).await;
            if connected {
                wait = FIRST_WAIT;
            }
            // Once for each outage: it may last, and everything works without.
            if connected || !told {
                tracing::warn!(server = %self.url, %error, "no wake-ups by NATS; trying again");
                told = true;
            } else {
                tracing::debug!(server = %self.url, %error, "still no wake-ups by NATS");
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One connection, until it fails.
    async fn session(&self, connected: &mut bool) -> Result<std::convert::Infallible, Error> {
        let mut stream = in_time(TcpStream::connect((self.url.host.as_str(), self.url.port))).await?;
        stream.set_nodelay(true)?;
        let mut parser = Parser::default();
        let hello = in_time(async {
            loop {
                match parser.next()? {
                    Some(Said::Info(info)) => return Ok(info),
                    Some(Said::Error(text)) => return Err(Error::Refused(text)),
                    Some(_) => return Err(Error::Protocol("it does not begin with INFO")),
                    None => parser.fill(&mut stream).await?,
                }
            }
        });
        let info: serde_json::Value =
            serde_json::from_slice(&hello.await?).map_err(|_| Error::Protocol("INFO is not JSON"))?;
        if info["tls_required"] == true {
            return Err(Error::Tls);
        }
        let subject = &self.subject;
        let hello = format!("CONNECT {}\r\nSUB {subject} 1\r\nPING\r\n", self.connect());
        write(&mut stream, hello.as_bytes()).await?;

        let mut asked: Option<Instant> = Some(Instant::now());
        let mut heard = Instant::now();
        loop {
            while let Some(said) = parser.next()? {
                heard = Instant::now();
                match said {
                    Said::Message(payload) => self.hub.hear(self.me, &payload),
                    Said::Ping => write(&mut stream, b"PONG\r\n").await?,
                    Said::Pong => {
                        asked = None;
                        if !*connected {
                            *connected = true;
                            self.greet();
                        }
                    }
                    Said::Error(text) => return Err(Error::Refused(text)),
                    Said::Info(_) | Said::Ok => {}
                }
            }
            let deadline = asked.map_or(heard + PING, |asked| asked + PATIENCE);
            tokio::select! {
                filled = parser.fill(&mut stream) => filled?,
                // Before the first PONG it is not known that the server takes us.
                () = self.queue.filled.notified(), if *connected => self.publish(&mut stream).await?,
                () = sleep_until(deadline) => {
                    if asked.is_some() {
                        return Err(Error::Silent);
                    }
                    asked = Some(Instant::now());
                    write(&mut stream, b"PING\r\n").await?;
                }
            }
        }
    }

    /// The subscription stands: whatever is published from now on is heard. What was before may have been missed.
    fn greet(&self) {
        tracing::info!(server = %self.url, "wake-ups by NATS");
        self.hub.take(&News::all());
        drop(self.queue.take());
        self.queue.push(News::all().encode(self.me));
    }

    async fn publish(&self, stream: &mut TcpStream) -> Result<(), Error> {
        let mut out = Vec::new();
        for payload in self.queue.take() {
            out.extend_from_slice(format!("PUB {} {}\r\n{payload}\r\n", self.subject, payload.len()).as_bytes());
        }
        write(stream, &out).await
    }

    fn connect(&self) -> serde_json::Value {
        let mut options = json!({
            "verbose": false, "pedantic": false, "tls_required": false, "echo": false, "headers": false, "protocol": 1,
            "name": "switchboard", "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        });
        match &self.url.login {
            Login::None => {}
            Login::Token(token) => options["auth_token"] = json!(token),
            Login::User { name, password } => {
                options["user"] = json!(name);
                options["pass"] = json!(password);
            }
        }
        options
    }
}

async fn in_time<T, E: Into<Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, Error> {
    timeout(PATIENCE, work).await.map_err(|_| Error::Silent)?.map_err(Into::into)
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), Error> {
    in_time(stream.write_all(bytes)).await
}

/// Cuts what the server sends into what it says. It holds one line and one payload at most, both bounded.
#[derive(Default)]
struct Parser {
    buffer: BytesMut,
    /// The bytes of a payload, with the line end behind it, that are still to come.
    payload: Option<usize>,
    /// Bytes to pass over: a payload that is too long to be one of ours.
    skip: usize,
    /// So much of the buffer holds no line end.
    searched: usize,
}

impl Parser {
    /// Reads more. Cancel safe.
    async fn fill(&mut self, stream: &mut TcpStream) -> Result<(), Error> {
        self.buffer.reserve(8 * 1024);
        match stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Option<Said>, Error> {
        loop {
            let skipped = self.skip.min(self.buffer.len());
            self.buffer.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
            if let Some(length) = self.payload {
                if self.buffer.len() < length + 2 {
                    return Ok(None);
                }
                self.payload = None;
                let payload = self.buffer.split_to(length).freeze();
                if self.buffer.split_to(2) != b"\r\n"[..] {
                    return Err(Error::Protocol("a payload does not end where it should"));
                }
                return Ok(Some(Said::Message(payload)));
            }
            let begin = self.searched.min(self.buffer.len());
            let Some(end) = self.buffer[begin..].windows(2).position(|pair| pair == b"\r\n") else {
                if self.buffer.len() > MAX_LINE {
                    return Err(Error::Protocol("a line has no end"));
                }
                // The last byte may be the first half of one.
                self.searched = self.buffer.len().saturating_sub(1);
                return Ok(None);
            };
            self.searched = 0;
            let line = self.buffer.split_to(begin + end).freeze();
            self.buffer.advance(2);
            if let Some(said) = self.line(&line)? {
                return Ok(Some(said));
            }
        }
    }

    /// What a line says; `None` when it begins a message.
    fn line(&mut self, line: &Bytes) -> Result<Option<Said>, Error> {
        let cut = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
        let (word, rest) = (line.slice(..cut), line.slice(cut..));
        let text = String::from_utf8_lossy(rest.trim_ascii());
        match word.to_ascii_uppercase().as_slice() {
            b"MSG" => {
                // MSG <subject> <subscription> [reply-to] <bytes>
                let words: Vec<&str> = text.split_ascii_whitespace().collect();
                let size = words.last().filter(|_| matches!(words.len(), 3 | 4)).and_then(|size| size.parse().ok());
                let size: usize = size.ok_or(Error::Protocol("a message has no size"))?;
                if size > MAX_PAYLOAD {
                    self.skip = size.saturating_add(2);
                } else {
                    self.payload = Some(size);
                }
                Ok(None)
            }
            b"INFO" => Ok(Some(Said::Info(rest))),
            b"PING" => Ok(Some(Said::Ping)),
            b"PONG" => Ok(Some(Said::Pong)),
            b"+OK" => Ok(Some(Said::Ok)),
            b"-ERR" => Ok(Some(Said::Error(text.chars().take(200).collect()))),
            _ => Err(Error::Protocol("unknown word")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that is said, with the bytes arriving in pieces of `piece`.
    fn said(bytes: &[u8], piece: usize) -> Result<Vec<Said>, String> {
        let mut parser = Parser::default();
        let mut all = Vec::new();
        for chunk in bytes.chunks(piece) {
            parser.buffer.extend_from_slice(chunk);
            while let Some(said) = parser.next().map_err(|error| error.to_string())? {
                all.push(said);
            }
        }
        Ok(all)
    }

    #[test]
    fn the_protocol_is_read_in_pieces_of_any_size() {
        let long = "x".repeat(MAX_PAYLOAD + 1);
        let bytes = format!(
            "INFO {{\"a\":1}}\r\nping\r\nPONG\r\n+OK\r\nMSG a.b 1 5\r\nhe\r\no\r\nMSG a.b 1 reply.to 0\r\n\r\n\
             MSG a.b 1 {}\r\n{long}\r\n-ERR 'Authorization Violation'\r\n",
            long.len()
        );
        for piece in [1, 2, 3, 7, 100, 100_000] {
            let all = said(bytes.as_bytes(), piece).unwrap();
            assert_eq!(
                all,
                [
                    Said::Info(" {\"a\":1}".into()),
                    Said::Ping,
                    Said::Pong,
                    Said::Ok,
                    Said::Message("he\r\no".into()),
                    Said::Message("".into()),
                    Said::Error("'Authorization Violation'".into()),
                ]
            );
        }
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        for bad in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "MSG\r\n",
            "MSG a 1\r\n",
            "MSG a 1 -5\r\n",
            "MSG a 1 99999999999999999999999\r\n",
            "MSG a 1 b c 3\r\n",
            "MSG a 1 3\r\nabcde",
            &"x".repeat(MAX_LINE + 1),
        ] {
            for piece in [1, 1000] {
                assert!(said(bad.as_bytes(), piece).is_err(), "{bad:?}");
            }
        }
        // A length that nothing can hold only makes the rest be passed over.
        assert_eq!(said(format!("MSG a 1 {}\r\nabc", usize::MAX).as_bytes(), 4), Ok(vec![]));
    }

    #[test]
    fn a_full_queue_forgets_the_oldest() {
        let queue = Queue::default();
        for n in 0..QUEUE + 5 {
            queue.push(n.to_string());
        }
        let kept = queue.take();
        assert_eq!((kept.len(), kept.front().map(String::as_str)), (QUEUE, Some("5")));
    }
}
