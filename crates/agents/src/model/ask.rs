//! Asking: one model, with the attempts that it takes until something has arrived.

use std::{sync::Arc, time::Duration};

use client::{Connector, Secret};

use super::{
    Content, Piece, Request, Usage,
    choose::Chosen,
    error::{Again, Error, ErrorKind, Failure},
    provider::Provider,
    scripted::Saying,
    wire::{self, Hearing},
};
use crate::breaker::Breaker;

/// So often one question is asked.
const ATTEMPTS: u32 = 4;
/// No wait that is not the provider's own wish is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// What an attempt gives.
pub(super) type Attempt<T> = Result<T, Failure>;

/// How providers are reached.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) connector: Connector,
    /// How long to wait before the second attempt, at most.
    pub(super) backoff: Duration,
}

/// A model that can be asked, with the key of whoever asks.
#[derive(Clone)]
pub struct Model {
    provider: Arc<Provider>,
    /// `PROVIDER/MODEL`.
    name: String,
    key: Option<Secret>,
    circuit: Arc<Breaker>,
    way: Way,
}

/// An answer that comes. Dropping it ends the call.
pub struct Answer {
    provider: Arc<Provider>,
    circuit: Arc<Breaker>,
    /// What came while it was not yet certain that there is an answer.
    first: Option<Piece>,
    /// Who says the rest, until the end has come.
    source: Option<Speaker>,
    usage: Usage,
}

enum Speaker {
    Script(Box<Saying>),
    Wire(Box<Hearing>),
}

impl Model {
    pub(super) fn new(chosen: Chosen, way: Way) -> Self {
        let Chosen { provider, model, key, circuit } = chosen;
        Self { name: format!("{}/{model}", provider.spec.name), provider, key, circuit, way }
    }

    /// `PROVIDER/MODEL`, as it is accounted.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is shown pictures. One that is not refuses them.
    pub fn takes_images(&self) -> bool {
        self.provider.spec.images
    }

    /// Asks, and waits until the first piece has come. Until then it is asked again where that may help; whoever stops waiting ends that.
    pub async fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let provider = &self.provider.spec.name;
        let mut contents = request.messages.iter().flat_map(|message| &message.content);
        if !self.takes_images() && contents.any(|content| !matches!(content, Content::Text(_))) {
            let message = format!("`{}` takes no images; `images = true` says that it does", self.name);
            return Err(Error::new(ErrorKind::Invalid, provider, message));
        }
        let breaker = &self.circuit;
        let mut last: Option<Error> = None;
        for attempt in 1..=ATTEMPTS {
            if !breaker.admit() {
                return Err(last.unwrap_or_else(|| self.rejected()));
            }
            let Failure { error, again } = match self.attempt(request).await {
                Ok(answer) => {
                    if breaker.succeeded() {
                        tracing::info!(provider.name = provider, "provider `{provider}` answers again");
                    }
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            self.provider.settle(&self.circuit, &error);
            let wait = match again {
                Again::Never => return Err(error),
                // That was one too many, here or elsewhere.
                _ if !breaker.may_admit() => return Err(error),
                _ if attempt == ATTEMPTS => return Err(error.and(&format!(" (after {ATTEMPTS} attempts)"))),
                Again::Soon => backoff(self.way.backoff, attempt, chance()),
                // Those who were told the same do not all come back at once.
                Again::After(wait) => wait + backoff(self.way.backoff, 1, chance()),
            };
            tracing::info!(provider.name = provider, attempt, wait_ms = wait.as_millis(), %error, "provider `{provider}` is asked again");
            last = Some(error);
            tokio::time::sleep(wait).await;
        }
        // The loop returns with its last attempt.
        Err(last.unwrap_or_else(|| self.rejected()))
    }

    /// Asks once, and waits for the first piece.
    async fn attempt(&self, request: &Request) -> Attempt<Answer> {
        let spec = &self.provider.spec;
        let model = self.name.get(spec.name.len() + 1..).unwrap_or_default();
        let source = match self.provider.script.as_ref().and_then(|script| script.loaded()) {
            Some(loaded) => Speaker::Script(Box::new(loaded.ask(&spec.name, model, request)?)),
            None => {
                let asked = wire::ask(&self.way, &self.provider, model, self.key.as_ref(), request);
                Speaker::Wire(Box::new(asked.await?))
            }
        };
        let (provider, circuit) = (Arc::clone(&self.provider), Arc::clone(&self.circuit));
        let mut answer = Answer { provider, circuit, first: None, source: Some(source), usage: Usage::default() };
        answer.first = answer.hear().await?;
        Ok(answer)
    }

    fn rejected(&self) -> Error {
        let wait = self.circuit.remaining();
        let seconds = wait.as_secs().max(1);
        let message = format!("too many calls have failed, so that nobody is called for {seconds} s");
        Error::new(ErrorKind::CircuitOpen, &self.provider.spec.name, message).with_retry_after(wait)
    }
}

impl Answer {
    /// The next piece, as soon as it is there; `None` after the end. Cancel-safe. After an error there is no more.
    pub async fn next(&mut self) -> Result<Option<Piece>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        self.hear().await.map_err(|failure| {
            self.usage = self.usage();
            self.source = None;
            self.provider.settle(&self.circuit, &failure.error);
            failure.error
        })
    }

    /// What has been used as far as the provider has said by now; all of it once the end has come.
    pub fn usage(&self) -> Usage {
        match &self.source {
            Some(Speaker::Wire(hearing)) => hearing.usage(),
            _ => self.usage,
        }
    }

    async fn hear(&mut self) -> Attempt<Option<Piece>> {
        let piece = match &mut self.source {
            None => return Ok(None),
            Some(Speaker::Script(saying)) => saying.next().await?,
            Some(Speaker::Wire(hearing)) => hearing.next().await?,
        };
        if let Piece::End { usage, .. } = &piece {
            self.usage = *usage;
            self.source = None;
        }
        Ok(Some(piece))
    }
}

impl Provider {
    /// Counts an error for the circuit breaker.
    fn settle(&self, breaker: &Breaker, error: &Error) {
        let name = &self.spec.name;
        if !error.kind.is_outage() {
            // Whoever refuses is there.
            breaker.succeeded();
        } else if breaker.failed() {
            tracing::warn!(provider.name = name, %error, "provider `{name}` has failed too often and is not called for a while");
        }
    }
}

/// Full jitter: anything up to a time that doubles with each attempt.
fn backoff(first: Duration, attempt: u32, chance: f64) -> Duration {
    first.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_BACKOFF).mul_f64(chance)
}

/// A number from zero to one.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness all wait equally long.
    if getrandom::fill(&mut bytes).is_err() {
        return 1.0;
    }
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let first = Duration::from_millis(500);
        let waits: Vec<u128> = (1..=7).map(|attempt| backoff(first, attempt, 1.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(backoff(first, 3, 0.0), Duration::ZERO);
        assert!((0..100).all(|_| (0.0..=1.0).contains(&chance())));
    }
}
