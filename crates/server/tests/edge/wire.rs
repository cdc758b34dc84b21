//! An HTTP client that sends exactly what it is told, and what it makes of the answers.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use testkit::raw_http::RawReply;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Nothing here takes longer, except when it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A request in the making.
pub(crate) struct Ask {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

impl Ask {
    /// A request with this beginning; its lines are ended.
    pub(crate) fn new(address: SocketAddr, head: &str) -> Self {
        Self { address, head: head.to_owned(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len();
        self.header("Content-Length", &length.to_string())
    }

    /// Sends it and leaves the answer on the socket.
    pub(crate) async fn open(self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut bytes = self.head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes).await.unwrap();
        stream
    }

    pub(crate) async fn send(self) -> Reply {
        let mut stream = self.open().await;
        let mut bytes = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the answer ends").unwrap();
        Reply::parse(bytes)
    }
}

/// Reads until the text is there.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            let so_far = String::from_utf8_lossy(&bytes).into_owned();
            if so_far.contains(text) {
                return so_far;
            }
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "ended before {text:?}: {so_far}");
        }
    };
    timeout(PATIENCE, reading).await.expect("the text comes")
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    fn parse(bytes: Vec<u8>) -> Self {
        let RawReply { status, headers, body, raw } = RawReply::parse(bytes).unwrap();
        assert_ne!(status, 0, "no answer: {:?}", String::from_utf8_lossy(&raw));
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The reason of a google.rpc.Status body, after a look at the rest of it.
    pub(crate) fn reason(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["error"]["code"], self.status, "{self:?}");
        assert!(body["error"]["status"].is_string() && body["error"]["message"].is_string(), "{self:?}");
        body["error"]["details"][0]["reason"].as_str().unwrap().to_owned()
    }
}
