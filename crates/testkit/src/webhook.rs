//! A webhook: a real HTTP server that keeps what it is told and answers as it is told to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::PATIENCE;

/// One that listens.
pub struct Webhook {
    pub url: String,
    inner: Arc<Inner>,
    running: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Inner {
    got: Mutex<Vec<Got>>,
    /// The next answers; 200 when there are none.
    answers: Mutex<VecDeque<u16>>,
}

/// A notification.
#[derive(Debug, Clone)]
pub struct Got {
    pub headers: HeaderMap,
    pub raw: Vec<u8>,
    pub body: Value,
}

impl Webhook {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener)
    }

    /// One at the place of another that is gone.
    pub async fn again(url: &str) -> Self {
        let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        Self::on(TcpListener::bind(address).await.unwrap())
    }

    fn on(listener: TcpListener) -> Self {
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let inner = Arc::new(Inner::default());
        let serving = Arc::clone(&inner);
        let running = tokio::spawn(async move {
            // Its connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.spawn(take(Arc::clone(&serving), connection));
            }
        });
        Self { url, inner, running }
    }

    /// What to answer next, one after the other.
    pub fn answers(&self, statuses: &[u16]) {
        self.inner.answers.lock().unwrap().extend(statuses);
    }

    pub fn got(&self) -> Vec<Got> {
        self.inner.got.lock().unwrap().clone()
    }

    /// What it was told, in a word each.
    pub fn told(&self) -> Vec<String> {
        self.got().iter().map(Got::word).collect()
    }

    /// Waits until it was told enough.
    pub async fn until(&self, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let told = self.told();
            if enough(&told) {
                return told;
            }
            assert!(tokio::time::Instant::now() < deadline, "the webhook was told only {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the end of a task.
    pub async fn until_completed(&self) -> Vec<String> {
        self.until(|told| told.last().is_some_and(|last| last == "completed")).await
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The state of a status, the text of an artifact, `task`, or the state of a task in 0.3.
    pub fn word(&self) -> String {
        let body = &self.body;
        if body["task"].is_object() {
            return "task".to_owned();
        }
        let state = body["statusUpdate"]["status"]["state"].as_str().or(body["status"]["state"].as_str());
        let text = body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str();
        state.or(text).unwrap_or("?").trim_start_matches("TASK_STATE_").to_lowercase()
    }
}

/// A request as it came.
pub(crate) struct Request {
    /// Its first line.
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) raw: Vec<u8>,
}

/// Takes what comes over a connection, which ends when the other side does.
async fn take(inner: Arc<Inner>, connection: TcpStream) -> Option<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let Request { headers, raw, .. } = request(&mut connection).await?;
        let body = serde_json::from_slice(&raw).unwrap_or_default();
        inner.got.lock().unwrap().push(Got { headers, raw, body });
        let status = inner.answers.lock().unwrap().pop_front().unwrap_or(200);
        let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
        connection.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// The next request of a connection, or none where it ends.
pub(crate) async fn request(connection: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if connection.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let mut headers = HeaderMap::new();
    loop {
        let mut header = String::new();
        connection.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?);
    }
    let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    let mut raw = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut raw).await.ok()?;
    Some(Request { line, headers, raw })
}
