//! The relay: what is published is passed on, as an A2A message with its task, to a URL that the operator has named.
//!
//! The queue is the truth and waits for nobody. A relay that is slow, or away, misses things and the log says so.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use client::egress::{Connector, Limits, Policy, Request};
use exchange::queue::{Relay, RelayTo};
use http::{HeaderValue, Method, header};
use tokio::sync::mpsc;
use url::Url;

use crate::{config::Config, failure::Failure};

/// How many may wait to be passed on.
const WAITING: usize = 100;
/// What is larger is not passed on: it would wait in memory.
const LARGEST: usize = 1 << 20;
/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before each further attempt.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

struct Line {
    sender: mpsc::Sender<Bytes>,
}

/// The relay, if one is configured. It ends with the runtime that this is called on.
pub(crate) fn start(config: &Config) -> Result<Option<RelayTo>, Failure> {
    let Some(url) = &config.keys.relay.url else { return Ok(None) };
    let refuse = |why: String| Failure::usage("cannot use `relay.url`").because(why);
    let url = client::parse_url(url).map_err(|error| refuse(error.to_string()))?;
    let limits = Limits { connect_timeout: TIMEOUT, total_timeout: Some(TIMEOUT), ..Limits::default() };
    let connector = Connector::new(Policy::Operator, limits);
    let (sender, bodies) = mpsc::channel(WAITING);
    tokio::spawn(forward(connector, url, bodies));
    Ok(Some(RelayTo(Arc::new(Line { sender }))))
}

impl Relay for Line {
    fn forward(&self, body: Bytes) {
        if body.len() > LARGEST {
            tracing::warn!(bytes = body.len(), "something that was published is too large for the relay");
        } else if self.sender.try_send(body).is_err() {
            tracing::warn!("the relay is behind; something that was published is not passed on");
        }
    }
}

async fn forward(connector: Connector, url: Url, mut bodies: mpsc::Receiver<Bytes>) {
    while let Some(body) = bodies.recv().await {
        let mut waits = WAITS.into_iter();
        while let Err(error) = post(&connector, &url, &body).await {
            let Some(wait) = waits.next() else {
                tracing::warn!(%error, "something that was published cannot be passed on by the relay");
                break;
            };
            tokio::time::sleep(wait).await;
        }
    }
}

async fn post(connector: &Connector, url: &Url, body: &Bytes) -> Result<(), String> {
    let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let body = Some(body.to_vec());
    let request = Request { method: Method::POST, url, token: None, headers, body, streaming: false, http2: false };
    let response = connector.send(request).await.map_err(|error| error.to_string())?;
    if response.status.is_success() { Ok(()) } else { Err(format!("it answers with {}", response.status)) }
}
