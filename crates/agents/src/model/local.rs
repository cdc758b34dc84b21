//! Whether Ollama answers where it usually does, for those who have set no provider yet.
//!
//! It is looked for when the models are started and when somebody had to be told that none is set; what was seen is kept for a moment.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use client::{Connector, Limits, Policy, egress::Request};
use http::Method;
use serde::Deserialize;
use url::Url;

use super::error::excerpt;

/// Where Ollama listens unless it is told otherwise.
pub(super) const USUAL: &str = "http://127.0.0.1:11434";
/// A look takes no longer, and so nobody waits longer for it.
const LOOK_TIME: Duration = Duration::from_millis(200);
/// So long what was seen counts.
const FRESH: Duration = Duration::from_secs(5);
/// So many names of models are kept.
const MODELS: usize = 20;

/// A provider on this machine that nobody has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Where it answers.
    pub url: String,
    /// The models that it has.
    pub models: Vec<String>,
}

/// What was seen last.
pub(super) struct Look {
    url: Option<Url>,
    connector: Connector,
    seen: Mutex<Option<(Instant, Option<Local>)>>,
    /// One looks at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Deserialize)]
struct Tags {
    models: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
}

impl Local {
    /// The line that sets it as the default.
    pub fn line(&self) -> String {
        let model = self.models.first().map_or("llama3.2", String::as_str);
        format!("default = \"ollama/{}\"", model.trim_end_matches(":latest"))
    }
}

impl Look {
    /// A look at this URL, or at nothing.
    pub(super) fn new(url: Option<&str>) -> Self {
        let limits = Limits {
            connect_timeout: LOOK_TIME,
            total_timeout: Some(LOOK_TIME),
            body_cap: 1 << 20,
            ..Limits::default()
        };
        Self {
            url: url.and_then(|url| Url::parse(url).ok()),
            connector: Connector::new(Policy::Operator, limits),
            seen: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// What was seen last, however long ago.
    pub(super) fn last(&self) -> Option<Local> {
        self.seen().as_ref().and_then(|(_, seen)| seen.clone())
    }

    pub(super) fn is_stale(&self) -> bool {
        self.url.is_some() && self.seen().as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH)
    }

    /// What is there now, or was a moment ago.
    pub(super) async fn now(&self) -> Option<Local> {
        let _one = self.looking.lock().await;
        if self.is_stale() {
            let found = tokio::time::timeout(LOOK_TIME, self.ask()).await.ok().flatten();
            *self.seen() = Some((Instant::now(), found));
        }
        self.last()
    }

    async fn ask(&self) -> Option<Local> {
        let base = self.url.as_ref()?;
        let url = base.join("/api/tags").ok()?;
        let request = Request {
            method: Method::GET,
            url: &url,
            token: None,
            headers: Vec::new(),
            body: None,
            streaming: false,
            http2: false,
        };
        let response = self.connector.send(request).await.ok()?;
        if !response.status.is_success() {
            return None;
        }
        let tags: Tags = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
        let models = tags.models.into_iter().take(MODELS).map(|tag| excerpt(&tag.name, None)).collect();
        Some(Local { url: base.as_str().trim_end_matches('/').to_owned(), models })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Option<Local>)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
