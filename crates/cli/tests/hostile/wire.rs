//! HTTP/1.1 by hand: any bytes go out.

use std::{net::TcpStream, time::Duration};

use serde_json::Value;
use testkit::raw_http::{RawReply, exchange};

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

/// Sends bytes over a connection of their own and reads what comes until the server closes it. `None` is a connection that
/// was closed without a word.
pub(crate) fn send(address: &str, bytes: Vec<u8>, and_close: bool) -> Result<Option<RawReply>, String> {
    let socket = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    let limited = socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
    limited.map_err(|error| error.to_string())?;
    let raw = exchange(socket, bytes, and_close)?;
    if raw.is_empty() { Ok(None) } else { RawReply::parse(raw).map(Some) }
}
