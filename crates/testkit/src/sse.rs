//! A reader of server-sent events that notices everything it should not see.

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    PATIENCE,
    http::{is_terminal, state, text},
};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub id: u64,
    /// The `StreamResponse`, out of its envelope if there was one.
    pub body: Value,
}

/// An open stream.
pub struct Sse {
    response: Response,
    buffer: Vec<u8>,
    envelope: Option<Value>,
    last: u64,
}

impl Frame {
    /// Which of the four it is.
    #[track_caller]
    pub fn kind(&self) -> &str {
        let members = self.body.as_object().expect("a frame is an object");
        assert_eq!(members.len(), 1, "{:#}", self.body);
        members.keys().next().expect("there is one")
    }

    /// The state it shows, if it shows one.
    pub fn state(&self) -> Option<&str> {
        match self.kind() {
            "task" => Some(state(&self.body["task"])),
            "statusUpdate" => Some(state(&self.body["statusUpdate"])),
            _ => None,
        }
    }

    /// Whether it ends its task.
    pub fn is_end(&self) -> bool {
        self.state().is_some_and(is_terminal)
    }

    /// The text of its artifact's parts.
    pub fn artifact_text(&self) -> String {
        let parts = self.body.pointer("/artifactUpdate/artifact/parts").and_then(Value::as_array);
        parts.into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
    }

    /// A2A requires parts of every artifact.
    #[track_caller]
    fn check_parts(&self) {
        if let Some(artifact) = self.body.pointer("/artifactUpdate/artifact") {
            assert_ne!(
                artifact["parts"].as_array().map_or(0, Vec::len),
                0,
                "an artifact without parts: {:#}",
                self.body
            );
        }
    }

    /// The task it is about.
    #[track_caller]
    pub fn task_id(&self) -> &str {
        match self.kind() {
            "task" => text(&self.body, "/task/id"),
            kind => text(&self.body, &format!("/{kind}/taskId")),
        }
    }
}

impl Sse {
    /// Sends the request and checks that a stream was opened.
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let status = response.status().as_u16();
        let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let is_stream = status == 200 && media_type.is_some_and(|value| value.starts_with("text/event-stream"));
        if !is_stream {
            let media_type = media_type.map(ToOwned::to_owned);
            panic!("no stream: {status} {media_type:?} {}", response.text().await.unwrap_or_default());
        }
        Self::of(response)
    }

    /// The stream of a response that is known to be one.
    pub fn of(response: Response) -> Self {
        Self { response, buffer: Vec::new(), envelope: None, last: 0 }
    }

    /// Expects every event inside a JSON-RPC envelope with this id.
    pub fn in_envelopes(mut self, id: Value) -> Self {
        self.envelope = Some(id);
        self
    }

    /// A header of the response.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The next event, or `None` at the end. A connection that breaks counts as the end.
    pub async fn next(&mut self) -> Option<Frame> {
        timeout(PATIENCE, self.read()).await.expect("an event or the end comes in time")
    }

    /// The same, without patience. A server that was killed may have sent half an event.
    pub async fn next_however_long(&mut self) -> Option<Frame> {
        self.read().await
    }

    /// All events up to the end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// All events up to the first that is wanted, that one included.
    pub async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let found = wanted(&frame);
            frames.push(frame);
            if found {
                return frames;
            }
        }
        panic!("the stream ended before that: {frames:#?}");
    }

    async fn read(&mut self) -> Option<Frame> {
        loop {
            while let Some(record) = self.take_record() {
                if let Some(frame) = self.parse(&record) {
                    return Some(frame);
                }
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => {
                    assert!(self.buffer.is_empty(), "half an event at the end");
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    fn take_record(&mut self) -> Option<String> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let record: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8(record).expect("events are UTF-8"))
    }

    fn parse(&mut self, record: &str) -> Option<Frame> {
        let mut id = None;
        let mut data = None;
        for line in record.trim_end_matches('\n').split('\n') {
            if line.starts_with(':') {
                continue;
            }
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.parse::<u64>().expect("an id is a sequence number")),
                Some(("data", value)) => {
                    assert!(data.is_none(), "one data line an event: {record}");
                    data = Some(serde_json::from_str::<Value>(value).expect("data is JSON"));
                }
                Some(("event", "message")) => {}
                _ => panic!("a line nobody asked for: {line}"),
            }
        }
        let mut body = data?;
        let id = id.unwrap_or_else(|| panic!("an event without id: {record}"));
        assert!(id > self.last, "ids must increase: {id} after {}", self.last);
        self.last = id;
        if let Some(envelope) = &self.envelope {
            assert_eq!(body["jsonrpc"], "2.0", "{body:#}");
            assert_eq!(&body["id"], envelope, "{body:#}");
            assert!(body.get("result").is_some(), "{body:#}");
            body = body["result"].take();
        } else {
            assert!(body.get("jsonrpc").is_none(), "{body:#}");
        }
        let frame = Frame { id, body };
        frame.check_parts();
        Some(frame)
    }
}
