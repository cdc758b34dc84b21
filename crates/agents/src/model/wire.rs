//! Asking a provider over HTTP, and reading what comes, whichever API it speaks.
//!
//! What a provider says is data: capped, checked, and turned into an error that says what is wrong with it. Nothing is held back: what one
//! chunk of the network completes is said before the next is read.

mod anthropic;
mod openai;

use std::{collections::VecDeque, time::Duration};

use bytes::{Bytes, BytesMut};
use client::{Secret, egress, sse};
use exchange::heavy;
use http::{HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Piece, Request, Stop, Usage,
    ask::{Attempt, Way},
    error::{Error, ErrorKind, Failure, excerpt},
    provider::{Provider, Quirks},
    settings::Api,
    status::{self, Told},
};
use crate::{frame::root_cause, units::Span};

/// The longest event of a stream: one of them is a few words.
const EVENT_BYTES: usize = 4 << 20;
/// The longest answer.
const ANSWER_BYTES: usize = 64 << 20;
/// So much of an error is read, and for so long.
const ERROR_BYTES: usize = 64 << 10;
const ERROR_TIME: Duration = Duration::from_secs(10);
/// When the model has ended, so long the provider may still say what it cost and close the stream.
const LINGER: Duration = Duration::from_secs(5);

/// An answer as far as it has come.
#[derive(Debug, Default)]
struct Progress {
    pieces: VecDeque<String>,
    usage: Usage,
    /// Why the model ended, once it has.
    stop: Option<Stop>,
    /// The provider has said that nothing more comes.
    ended: bool,
}

/// What is wrong with an event or a body.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// The provider says that something is.
    Told(Told),
    /// It makes no sense.
    Garbled(String),
}

/// An answer that comes over a connection, which is closed when this is dropped.
pub(super) struct Hearing {
    provider: String,
    key: Option<Secret>,
    api: Api,
    progress: Progress,
    /// What comes after the pieces that are there.
    failure: Option<Failure>,
    /// Nothing, once all has come.
    response: Option<egress::Response>,
    parser: sse::Parser,
    /// The begin of a character whose end has not come.
    tail: Vec<u8>,
    bytes: usize,
    timeout: Duration,
    heard: Instant,
}

/// Asks once.
pub(super) async fn ask(
    way: &Way,
    provider: &Provider,
    model: &str,
    key: Option<&Secret>,
    request: &Request,
) -> Attempt<Hearing> {
    let spec = &provider.spec;
    let Some(Ok(base)) = &spec.url else {
        return Err(Error::new(ErrorKind::Invalid, &spec.name, "it has no URL").never());
    };
    let path = match spec.api {
        Api::Anthropic if base.path().trim_end_matches('/').ends_with("/v1") => "messages",
        Api::Anthropic => "v1/messages",
        Api::Openai | Api::Scripted => "chat/completions",
    };
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    loop {
        let quirks = provider.learnt.quirks(model);
        let body = match spec.api {
            Api::Anthropic => anthropic::body(request, model, quirks),
            Api::Openai | Api::Scripted => openai::body(request, model, quirks),
        };
        let request = egress::Request {
            method: Method::POST,
            url: &url,
            token: key.filter(|_| spec.api != Api::Anthropic),
            headers: headers(spec.api, key),
            body: Some(body.to_string().into_bytes()),
            streaming: true,
            http2: false,
        };
        let response = match timeout(spec.timeout, way.connector.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unreachable(&spec.name, "cannot be reached", &error)),
            Err(_) => return Err(silent(&spec.name, spec.timeout)),
        };
        if response.status.is_success() {
            return hearing(response, provider, key).await;
        }
        let (status, wait) = (response.status.as_u16(), status::retry_after(&response.headers));
        let media_type = response.media_type();
        let body = beginning(response).await;
        let told = Told::read(&body, &media_type);
        // What it does not take it is not sent again, and neither is anything else that was learnt: there is an end to it.
        if let Some(learnt) = learn(status, &told, quirks) {
            tracing::debug!(
                provider.name = spec.name,
                model,
                ?learnt,
                "provider `{}` does not take all that was sent",
                spec.name
            );
            provider.learnt.remember(model, learnt);
            continue;
        }
        return Err(status::failure(&spec.name, Some(status), wait, &told, key));
    }
}

fn headers(api: Api, key: Option<&Secret>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json")),
    ];
    if api == Api::Anthropic {
        headers.push((HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01")));
        // What a header cannot carry is refused when keys are read.
        if let Some(mut value) = key.and_then(|key| HeaderValue::from_str(key.expose()).ok()) {
            value.set_sensitive(true);
            headers.push((HeaderName::from_static("x-api-key"), value));
        }
    }
    headers
}

/// What a refusal says that the model does not take, if that is what it says and it was sent.
fn learn(status: u16, told: &Told, quirks: Quirks) -> Option<Quirks> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    // A name in a URL of the caller's is not what it complains about.
    let says = |name: &str| {
        let words = told.message.split_whitespace().filter(|word| !word.contains('/'));
        words.flat_map(|word| word.split(|c: char| !(c.is_alphanumeric() || c == '_'))).any(|word| word == name)
    };
    let names = |name: &str| told.param.as_deref() == Some(name) || says(name);
    if names("stream_options") && !quirks.no_stream_options {
        return Some(Quirks { no_stream_options: true, ..quirks });
    }
    // A number that is too large is refused with the name `max_tokens` alone.
    if says("max_completion_tokens") && !quirks.completion_tokens {
        return Some(Quirks { completion_tokens: true, ..quirks });
    }
    let message = told.message.to_ascii_lowercase();
    let unsupported =
        ["unsupported", "not support", "n't support", "deprecated", "not permitted", "cannot be used", "not allowed"];
    if names("temperature") && !quirks.no_temperature && unsupported.iter().any(|word| message.contains(word)) {
        return Some(Quirks { no_temperature: true, ..quirks });
    }
    None
}

/// What to make of an answer whose status is good.
async fn hearing(response: egress::Response, provider: &Provider, key: Option<&Secret>) -> Attempt<Hearing> {
    let spec = &provider.spec;
    let broken = |message: String| Error::new(ErrorKind::Broken, &spec.name, message).never();
    if let Some(coding) = response.headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let coding = excerpt(&String::from_utf8_lossy(coding.as_bytes()), None);
        return Err(broken(format!("the answer is compressed ({coding}) although nobody asked for that")));
    }
    let mut hearing = Hearing {
        provider: spec.name.clone(),
        key: key.cloned(),
        api: spec.api,
        progress: Progress::default(),
        failure: None,
        response: None,
        parser: sse::Parser::new(EVENT_BYTES),
        tail: Vec::new(),
        bytes: 0,
        timeout: spec.timeout,
        heard: Instant::now(),
    };
    match response.media_type().as_str() {
        "text/event-stream" => hearing.response = Some(response),
        "application/json" => {
            hearing.response = Some(response);
            hearing.read_whole().await?;
        }
        other => {
            let kind = if other.is_empty() {
                "without a content type".to_owned()
            } else {
                format!("as {}", excerpt(other, None))
            };
            let status = response.status.as_u16();
            let told = Told::read(&beginning(response).await, other);
            let said = excerpt(&told.message, key);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            return Err(broken(format!(
                "the answer ({status}) comes {kind} instead of a stream; is the URL right?{said}"
            )));
        }
    }
    Ok(hearing)
}

impl Hearing {
    /// The next piece. Cancel-safe.
    pub(super) async fn next(&mut self) -> Attempt<Piece> {
        loop {
            if let Some(text) = self.progress.pieces.pop_front() {
                return Ok(Piece::Text(text));
            }
            if let Some(failure) = self.failure.take() {
                self.response = None;
                return Err(failure);
            }
            if self.progress.ended {
                if let Some(response) = self.response.take() {
                    tokio::spawn(finish(response));
                }
                let stop = self.progress.stop.take().unwrap_or(Stop::Done);
                return Ok(Piece::End { stop, usage: self.progress.usage });
            }
            let chunk = self.chunk().await;
            let has_stopped = self.progress.stop.is_some();
            match chunk {
                Ok(Some(chunk)) => self.take(&chunk),
                // The model has said all; that the provider does not say so is nobody's loss.
                Ok(None) | Err(_) if has_stopped => {
                    self.response = None;
                    self.progress.ended = true;
                }
                Ok(None) => {
                    self.response = None;
                    let message = "the answer broke off before its end";
                    self.failure = Some(Error::new(ErrorKind::Unavailable, &self.provider, message).soon());
                }
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    /// What has been used as far as that was said.
    pub(super) fn usage(&self) -> Usage {
        self.progress.usage
    }

    /// What comes next over the connection.
    async fn chunk(&mut self) -> Attempt<Option<Bytes>> {
        let Some(response) = &mut self.response else { return Ok(None) };
        let patience = if self.progress.stop.is_some() { self.timeout.min(LINGER) } else { self.timeout };
        match timeout_at(self.heard + patience, response.chunk()).await {
            Ok(Ok(chunk)) => {
                self.heard = Instant::now();
                Ok(chunk)
            }
            Ok(Err(error)) => Err(unreachable(&self.provider, "the connection broke before the answer's end", &error)),
            Err(_) => Err(silent(&self.provider, self.timeout)),
        }
    }

    /// Reads the events that a chunk completes.
    fn take(&mut self, chunk: &[u8]) {
        heavy(self.parser.work(chunk), || self.read_events(chunk));
    }

    fn read_events(&mut self, chunk: &[u8]) {
        let broken = |message: &str| Some(Error::new(ErrorKind::Broken, &self.provider, message).never());
        self.bytes += chunk.len();
        if self.bytes > ANSWER_BYTES {
            self.failure = broken("the answer does not end");
            return;
        }
        if !is_text(&mut self.tail, chunk) {
            self.failure = broken("the answer is not UTF-8 text");
            return;
        }
        let mut events = Vec::new();
        let fed = self.parser.feed(chunk, &mut events);
        for event in events {
            let read = match self.api {
                Api::Anthropic => anthropic::read(&event, &mut self.progress),
                Api::Openai | Api::Scripted => openai::read(&event, &mut self.progress),
            };
            if let Err(fault) = read {
                self.failure = Some(self.fault(fault));
                return;
            }
            if self.progress.ended {
                return;
            }
        }
        if let Err(error) = fed {
            self.failure = Some(Error::new(ErrorKind::Broken, &self.provider, error.to_string()).never());
        }
    }

    /// Reads an answer that comes as one body.
    async fn read_whole(&mut self) -> Attempt<()> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > EVENT_BYTES {
                let message = format!("the answer is larger than {EVENT_BYTES} bytes");
                return Err(Error::new(ErrorKind::Broken, &self.provider, message).never());
            }
            body.extend_from_slice(&chunk);
        }
        self.response = None;
        let read = heavy(body.len(), || match serde_json::from_slice::<Value>(&body) {
            Err(error) => Err(Fault::Garbled(format!("{error}: {}", String::from_utf8_lossy(&body)))),
            Ok(value) if value.get("error").is_some_and(|error| !error.is_null()) => {
                Err(Fault::Told(Told::of(&value).unwrap_or_default()))
            }
            Ok(value) => match self.api {
                Api::Anthropic => anthropic::read_whole(&value, &mut self.progress),
                Api::Openai | Api::Scripted => openai::read_whole(&value, &mut self.progress),
            },
        });
        self.progress.ended = true;
        read.map_err(|fault| self.fault(fault))
    }

    fn fault(&self, fault: Fault) -> Failure {
        match fault {
            Fault::Told(told) => status::failure(&self.provider, None, None, &told, self.key.as_ref()),
            Fault::Garbled(what) => {
                let what = excerpt(&what, self.key.as_ref());
                Error::new(ErrorKind::Broken, &self.provider, format!("the answer makes no sense: {what}")).never()
            }
        }
    }
}

impl Progress {
    /// More text; nothing is no piece.
    fn say(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces.push_back(text.to_owned());
        }
    }
}

/// The JSON of an event.
fn json(event: &sse::Event) -> Result<Value, Fault> {
    serde_json::from_str(&event.data).map_err(|error| Fault::Garbled(format!("{error}: {}", event.data)))
}

/// Whether a text goes on as one; `tail` is what the chunk before left of a character.
fn is_text(tail: &mut Vec<u8>, chunk: &[u8]) -> bool {
    let mut rest = chunk;
    while !tail.is_empty() {
        let Some((byte, after)) = rest.split_first() else { return true };
        tail.push(*byte);
        rest = after;
        match std::str::from_utf8(tail) {
            Ok(_) => tail.clear(),
            Err(error) if error.error_len().is_some() => return false,
            Err(_) => {}
        }
    }
    match std::str::from_utf8(rest) {
        Ok(_) => true,
        Err(error) => {
            tail.extend_from_slice(&rest[error.valid_up_to()..]);
            error.error_len().is_none()
        }
    }
}

/// The begin of a body of which only the begin is shown.
async fn beginning(mut response: egress::Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BYTES - body.len())]);
            if body.len() >= ERROR_BYTES {
                break;
            }
        }
    };
    // What has come by then is all that is told.
    let _ = timeout(ERROR_TIME, read).await;
    body
}

/// Reads the end of a stream that has said all, so that its connection can be used again.
async fn finish(mut response: egress::Response) {
    let mut bytes = 0;
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            bytes += chunk.len();
            if bytes > ERROR_BYTES {
                break;
            }
        }
    };
    let _ = timeout(LINGER, read).await;
}

fn silent(provider: &str, after: Duration) -> Failure {
    // It has had its time, and whoever waits has waited long enough.
    Error::new(ErrorKind::Unavailable, provider, format!("nothing was heard for {}", Span(after))).never()
}

fn unreachable(provider: &str, what: &str, error: &client::Error) -> Failure {
    // Where a provider is, is the operator's business.
    tracing::info!(provider.name = provider, error = error as &dyn std::error::Error, "provider `{provider}`: {what}");
    let message = format!("{what}: {}", excerpt(&root_cause(error), None));
    match error {
        client::Error::Unreachable { .. } | client::Error::Timeout { .. } | client::Error::Tls { .. } => {
            Error::new(ErrorKind::Unavailable, provider, message).soon()
        }
        _ => Error::new(ErrorKind::Invalid, provider, message).never(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_text_however_it_is_cut(text in "[a-zä€😀\u{0}]{0,20}", cuts in prop::collection::vec(1_usize..4, 0..40), bad in any::<bool>()) {
            let mut bytes = text.into_bytes();
            if bad {
                bytes.push(0xff);
            }
            let mut tail = Vec::new();
            let mut rest = &bytes[..];
            let mut is_good = true;
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (chunk, next) = rest.split_at(cut.min(rest.len()));
                is_good = is_good && is_text(&mut tail, chunk);
                rest = next;
            }
            prop_assert_eq!(is_good, !bad);
            prop_assert!(bad || tail.is_empty());
        }
    }

    proptest! {
        #[test]
        fn whatever_an_event_says_it_is_read_or_refused(
            keys in prop::collection::vec(prop::sample::select(vec![
                "type", "choices", "delta", "message", "content", "usage", "error", "index", "text", "finish_reason", "stop_reason",
            ]), 1..6),
            leaf in prop::sample::select(vec![
                "null", "1", "-1", "1e300", "\"message_delta\"", "\"error\"", "[]", "{}", "[[1]]", "[{\"delta\":3}]", "true", "nonsense",
            ]),
            lists in any::<u8>(),
        ) {
            let mut data = leaf.to_owned();
            for (n, key) in keys.iter().enumerate() {
                data = format!("{{\"{key}\":{data},\"type\":\"content_block_delta\"}}");
                if lists >> n & 1 == 1 {
                    data = format!("[{data}]");
                }
            }
            let event = sse::Event { id: None, name: "message".to_owned(), data: data.clone() };
            let mut progress = Progress::default();
            let _ = anthropic::read(&event, &mut progress);
            let _ = openai::read(&event, &mut progress);
            if let Ok(value) = serde_json::from_str(&data) {
                let _ = anthropic::read_whole(&value, &mut progress);
                let _ = openai::read_whole(&value, &mut progress);
            }
            prop_assert!(progress.pieces.iter().all(|piece| !piece.is_empty()));
        }
    }

    #[test]
    fn a_refusal_teaches_what_is_not_taken_and_only_once() {
        let told = |message: &str, param: Option<&str>| Told {
            message: message.to_owned(),
            status: None,
            param: param.map(str::to_owned),
        };
        let none = Quirks::default();
        let wants =
            told("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", Some("max_tokens"));
        let learnt = learn(400, &wants, none).unwrap();
        assert_eq!(learnt, Quirks { completion_tokens: true, ..none });
        assert_eq!(learn(400, &wants, learnt), None);
        assert_eq!(learn(400, &told("max_tokens is too large: 99999", Some("max_tokens")), none), None);
        assert!(learn(422, &told("extra fields not permitted: stream_options", None), none).unwrap().no_stream_options);
        assert!(
            learn(400, &told("Unsupported value: 'temperature' does not support 0.3", None), none)
                .unwrap()
                .no_temperature
        );
        assert_eq!(learn(400, &told("temperature: must be at most 2", None), none), None);
        assert_eq!(learn(500, &wants, none), None);
        let params = told("UnsupportedParamsError: this model does not support temperature=0.5.", None);
        assert!(learn(400, &params, none).unwrap().no_temperature);
        // What a caller has put into its message teaches nothing.
        let url = "Error while downloading https://x.example/stream_options.png?max_completion_tokens";
        assert_eq!(learn(400, &told(url, None), none), None);
    }
}
