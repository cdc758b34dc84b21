//! Replies of HTTP/1.1 as they come over a socket, taken apart strictly.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
};

use serde_json::Value;

/// A reply. What is not HTTP/1 has the status 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawReply {
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// Its chunks are joined.
    pub body: Vec<u8>,
    /// Everything as it came.
    pub raw: Vec<u8>,
}

impl RawReply {
    /// Takes apart what came over a connection until its end.
    pub fn parse(raw: Vec<u8>) -> Result<Self, String> {
        if !raw.starts_with(b"HTTP/1.") {
            return Ok(Self { status: 0, headers: Vec::new(), body: Vec::new(), raw });
        }
        let end =
            raw.windows(4).position(|window| window == b"\r\n\r\n").ok_or("a reply without an end of its head")?;
        let head = std::str::from_utf8(&raw[..end]).map_err(text)?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.get(9..12)?.parse().ok());
        let status = status.ok_or_else(|| format!("no status line: {head}"))?;
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("no header: {line}"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Self { status, headers, body: raw[end + 4..].to_vec(), raw };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = joined(&reply.body)?;
        }
        Ok(reply)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("the body is no JSON: {error}"))
    }

    /// The status and the beginning of the body, for messages of failed tests.
    pub fn shown(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(400).collect();
        format!("{} {body}", self.status)
    }
}

/// The chunks of a body as one.
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

/// Sends bytes and reads until the server ends the connection. Whoever answers early may close before all is written.
pub fn exchange(mut stream: TcpStream, bytes: Vec<u8>, and_close: bool) -> Result<Vec<u8>, String> {
    let mut writing = stream.try_clone().map_err(text)?;
    let writer = thread::spawn(move || {
        let _ = writing.write_all(&bytes);
        if and_close {
            let _ = writing.shutdown(Shutdown::Write);
        }
    });
    let read = read_to_end(&mut stream);
    let _ = stream.shutdown(Shutdown::Both);
    let _ = writer.join();
    read
}

/// Reads until the server ends the connection, in whatever way.
pub fn read_to_end(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut raw = Vec::new();
    match stream.read_to_end(&mut raw) {
        Err(error) if !is_end(error.kind()) => {
            Err(format!("not ended: {error} after {}", String::from_utf8_lossy(&raw)))
        }
        _ => Ok(raw),
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
