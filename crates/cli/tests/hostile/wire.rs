//! HTTP/1.1 by hand: any bytes go out, and what comes back is taken apart strictly.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::Duration,
};

use serde_json::Value;

/// No answer takes longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request, before it is bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: Vec<u8>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// An answer. What is not HTTP/1 has the status 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Everything as it came, for those who look for secrets.
    pub(crate) raw: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, target: impl Into<Vec<u8>>) -> Self {
        Self { method: method.to_owned(), target: target.into(), ..Self::default() }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the body to some JSON.
    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.header("Content-Type", "application/json")
    }

    /// The bytes to send. A header that is there already is not added.
    pub(crate) fn bytes(&self, host: &str) -> Vec<u8> {
        let has = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut bytes = format!("{} ", self.method).into_bytes();
        bytes.extend_from_slice(&self.target);
        bytes.extend_from_slice(b" HTTP/1.1\r\nConnection: close\r\n");
        if !has("Host") {
            bytes.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
        }
        if !self.body.is_empty() && !has("Content-Length") && !has("Transfer-Encoding") {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("the body is no JSON: {error}"))
    }

    /// For messages of failed tests.
    pub(crate) fn shown(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(400).collect();
        format!("{} {body}", self.status)
    }
}

/// Sends bytes over a connection of their own and reads what comes until the server closes it. `None` is a connection that
/// was closed without a word.
pub(crate) fn send(address: &str, bytes: Vec<u8>, and_close: bool) -> Result<Option<Answer>, String> {
    let mut socket = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE))).map_err(text)?;
    let mut writing = socket.try_clone().map_err(text)?;
    // Whoever answers early may close before all is written; that is for the answer to tell.
    let writer = thread::spawn(move || {
        let _ = writing.write_all(&bytes);
        if and_close {
            let _ = writing.shutdown(Shutdown::Write);
        }
    });
    let mut raw = Vec::new();
    let read = socket.read_to_end(&mut raw);
    let _ = socket.shutdown(Shutdown::Both);
    let _ = writer.join();
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(format!("no end of the answer: {error} after {}", String::from_utf8_lossy(&raw))),
    }
    if raw.is_empty() { Ok(None) } else { take_apart(raw).map(Some) }
}

fn take_apart(raw: Vec<u8>) -> Result<Answer, String> {
    if !raw.starts_with(b"HTTP/1.") {
        return Ok(Answer { status: 0, headers: Vec::new(), body: Vec::new(), raw });
    }
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n").ok_or("an answer without an end of its head")?;
    let head = std::str::from_utf8(&raw[..end]).map_err(text)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12)?.parse().ok());
    let status = status.ok_or_else(|| format!("no status line: {head}"))?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no header: {line}"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: raw[end + 4..].to_vec(), raw };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = joined(&answer.body)?;
    }
    Ok(answer)
}

/// The pieces of a chunked body as one.
fn joined(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").ok_or("a chunk without a size")?;
        let size = std::str::from_utf8(&rest[..end]).map_err(text)?;
        let size = usize::from_str_radix(size, 16).map_err(text)?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(..size).ok_or("a chunk that breaks off")?);
        rest = rest.get(size + 2..).ok_or("a chunk that breaks off")?;
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
