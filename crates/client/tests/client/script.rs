//! A server that says exactly what a test wants, cuts and silence included.

use std::time::Duration;

use a2a::StreamResponse;
use client::{Client, Connector, Credential, Error, Limits, Options, Policy, Resume, Secret, parse_url};
use testkit::http_server::{HttpServer, Received, Step};

/// The header of an answer whose connection is kept.
const HELD: &str = "x-held: yes";

/// The header of an answer whose connection says again and again that it is there.
const PINGING: &str = "x-pinging: yes";

/// A server that answers one request after the other, each over a connection of its own.
pub(crate) struct Script {
    pub(crate) url: String,
    server: HttpServer,
}

impl Script {
    /// `answers` get the server's own URL, for the card.
    pub(crate) fn start(answers: impl FnOnce(&str) -> Vec<String>) -> Self {
        let server = HttpServer::start_with(|url| answers(url).iter().map(|answer| steps(answer)).collect::<Vec<_>>());
        Self { url: server.url.clone(), server }
    }

    pub(crate) async fn client(&self, options: Options) -> Result<Client, Error> {
        Client::connect(connector(), &parse_url(&self.url).unwrap(), options).await
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.server.received()
    }
}

fn steps(answer: &str) -> Vec<Step> {
    let after = match () {
        () if answer.contains(PINGING) => Step::Repeat(b": still here\n\n".to_vec(), Duration::from_millis(20)),
        () if answer.contains(HELD) => Step::AwaitClose,
        () => Step::Close,
    };
    vec![Step::Send(answer.as_bytes().to_vec()), after]
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
