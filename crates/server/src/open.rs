//! What is open to everybody: whether the process lives, whether it takes work, the gateway's public card and the
//! keys that cards are verified with.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use a2a::{Error, ErrorKind};
use axum::response::Response;
use exchange::Exchange;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    reply::{self, Status},
    signing::KEYS_PATH,
    surface::{Anybody, Surface, Visit},
};

/// How long a probe waits for the journal.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it waits for the version of the schema.
const LOOK: Duration = Duration::from_secs(1);

/// What is said when a newer version has migrated the journal.
const OUTDATED: &str = "outdated: the schema of the journal is newer than this version";

/// Where the gateway's card is beside its well-known path: below the URLs that it names, for clients that look there.
pub(crate) const CARD_PATHS: [&str; 4] = [
    "/a2a/agent-card.json",
    "/a2a/.well-known/agent-card.json",
    "/a2a/jsonrpc/agent-card.json",
    "/a2a/jsonrpc/.well-known/agent-card.json",
];

pub(crate) enum Open {
    /// Answers as long as the process does.
    Live,
    /// Says no while the server drains, while the journal cannot be written, and when a newer version has changed its schema.
    /// Nothing else is said.
    Ready,
    PublicCard,
    /// What cards are verified with.
    Keys,
}

impl Surface for Open {
    type Caller = Anybody;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["healthz"] => Some(Self::Live),
            ["readyz"] => Some(Self::Ready),
            [".well-known", "agent-card.json"] => Some(Self::PublicCard),
            ["a2a", "agent-card.json"] | ["a2a", "jsonrpc", "agent-card.json"] => Some(Self::PublicCard),
            ["a2a", ".well-known", "agent-card.json"] | ["a2a", "jsonrpc", ".well-known", "agent-card.json"] => {
                Some(Self::PublicCard)
            }
            path if path == KEYS_PATH => Some(Self::Keys),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "GET, HEAD, OPTIONS"
    }

    async fn answer(self, visit: Visit<'_, Anybody>) -> Result<Response, Error> {
        let app = visit.app;
        let (status, said) = match self {
            Self::Live => (Status::Ok, "ok"),
            Self::Ready => match app.readiness.unready().await {
                None => (Status::Ok, "ok"),
                Some(why) => (Status::Error(ErrorKind::Unavailable), why),
            },
            Self::PublicCard => {
                let headers = &visit.parts.headers;
                let base = app.local_base(visit.parts);
                let cache = if base.is_some() { "private, max-age=60" } else { "public, max-age=60" };
                let card = app.gateway_card(base).await?;
                return Ok(reply::cacheable(headers, &card, reply::JSON, cache, &[]));
            }
            Self::Keys => {
                let keys = app.cards.signing().key_set().await;
                return Ok(reply::cacheable(&visit.parts.headers, &keys, reply::KEY_SET, "public, max-age=60", &[]));
            }
        };
        Ok(reply::body(status, reply::JSON, format!(r#"{{"status":"{said}"}}"#)))
    }
}

/// Whether the server takes work. Those who ask at the same time share one look at the journal.
pub(crate) struct Readiness {
    exchange: Exchange,
    looks: SharedRun<Option<&'static str>>,
}

/// A computation that those who want its result at the same time share.
struct SharedRun<T: Clone>(Mutex<Option<WeakShared<BoxFuture<'static, T>>>>);

impl Readiness {
    pub(crate) fn new(exchange: Exchange) -> Self {
        Self { exchange, looks: SharedRun(Mutex::default()) }
    }

    /// Why the server takes no work, if it takes none.
    pub(crate) async fn unready(&self) -> Option<&'static str> {
        let exchange = self.exchange.clone();
        self.looks.join(async move { unready(&exchange).await }).await
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        self.exchange.draining()
    }
}

impl<T: Clone> SharedRun<T> {
    /// The run that is under way, or this one.
    fn join(&self, run: impl Future<Output = T> + Send + 'static) -> Shared<BoxFuture<'static, T>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = running.as_ref().and_then(WeakShared::upgrade).filter(|run| run.peek().is_none());
        under_way.unwrap_or_else(|| {
            let run = run.boxed().shared();
            *running = run.downgrade();
            run
        })
    }
}

/// Why the server takes no work, if it takes none.
async fn unready(exchange: &Exchange) -> Option<&'static str> {
    if exchange.is_outdated() {
        return Some(OUTDATED);
    }
    if exchange.draining().is_cancelled() {
        return Some("draining");
    }
    let store = exchange.store();
    // Who reads a lot makes nobody unready: without a connection the scheduler finds it a little later.
    let (schema, ping) = tokio::join!(timeout(LOOK, store.check_schema()), timeout(PATIENCE, store.ping()));
    if let Ok(Err(store::Error::FromTheFuture { .. })) = schema {
        return Some(OUTDATED);
    }
    match ping {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => tracing::error!(error = %error, "the journal cannot be written"),
        Err(_elapsed) => tracing::error!("the journal does not answer"),
    }
    Some("unavailable")
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_share_a_run() {
        let (shared, runs) = (SharedRun(Mutex::default()), Arc::new(AtomicUsize::new(0)));
        let join = || {
            let runs = Arc::clone(&runs);
            shared.join(async move {
                tokio::task::yield_now().await;
                runs.fetch_add(1, Relaxed)
            })
        };
        assert_eq!(tokio::join!(join(), join(), join()), (0, 0, 0));
        assert_eq!(join().await, 1, "a later one asks anew");
        // The one who began it goes away.
        let (first, second) = (join(), join());
        drop(first);
        assert_eq!(second.await, 2);
    }
}
