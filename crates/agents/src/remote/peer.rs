//! A remote as it stands: its card, whether it answers, and how it is called.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use a2a::{Dialect, Timestamp};
use client::{Client, Connector, Error, FetchedCard, Limits, Order, Policy, Resume};
use exchange::remotes::{Remote, Skill};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use store::{TenantId, clock};
use url::Url;

use super::{
    Options,
    call::{Search, said},
    security::Security,
    share::{Share, Shares},
    spec::{Auth, Registry, Sees, Spec},
};
use crate::frame::clean;

/// How long a look at a card may take.
const CARD_TIME: Duration = Duration::from_secs(5);
/// How long a question about a task may take.
const ASK_TIME: Duration = Duration::from_secs(15);
/// How long may pass between two pieces of an answer.
const IDLE: Duration = Duration::from_secs(60);
/// So many skills of a card are read.
const MOST_SKILLS: usize = 200;
/// Maximum number of searches for messages that are remembered.
const MOST_SEARCHES: usize = 10_000;

/// A remote.
#[derive(Debug)]
pub struct Peer {
    /// What its file says.
    pub spec: Arc<Spec>,
    shares: Shares,
    connector: Connector,
    /// For questions that are answered soon.
    asker: Connector,
    /// For cards, which are short and come soon.
    looker: Connector,
    trust: client::Trust,
    seen: Mutex<Seen>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
    /// That another agent has its id was said.
    hidden: AtomicBool,
    /// Searches for messages whose cancel is owed, by the ids of the messages.
    searches: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Search>>>>,
}

#[derive(Debug, Default)]
struct Seen {
    card: Option<FetchedCard>,
    /// What the card says, cut and cleaned.
    told: Arc<Told>,
    reachable: Option<bool>,
    latency: Option<Duration>,
    probed_at: Option<Timestamp>,
    error: Option<String>,
    /// When its card was last asked for, and why it was not had then.
    looked: Option<(Instant, Option<Arc<Error>>)>,
}

/// What a remote's card says of it and of what it can do.
#[derive(Debug, Default)]
struct Told {
    description: String,
    skills: Vec<Skill>,
    security: Security,
}

/// Why a remote cannot be called.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is not known where it is.
    Nowhere(String),
    /// Its card cannot be had.
    Card(Arc<Error>),
    /// Its card does not say how to call it.
    Interface(Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nowhere(why) => f.write_str(why),
            Self::Card(error) => f.write_str(&told(error)),
            Self::Interface(error) => f.write_str(&told(error)),
        }
    }
}

impl Peer {
    pub(super) fn new(spec: Arc<Spec>, options: &Options) -> Self {
        let limits = Limits {
            total_timeout: Some(spec.timeout),
            body_cap: options.body_bytes,
            event_cap: options.event_bytes,
            idle_timeout: Some(IDLE.min(spec.timeout)),
            ..Limits::default()
        };
        let look = Limits {
            connect_timeout: CARD_TIME.min(spec.timeout),
            total_timeout: Some(CARD_TIME.min(spec.timeout)),
            body_cap: options.body_bytes.min(1 << 20),
            ..limits
        };
        let policy = Policy::Remote(Arc::clone(&options.names));
        let ask = Limits { total_timeout: Some(ASK_TIME.min(spec.timeout)), ..limits };
        Self {
            connector: Connector::new(policy.clone(), limits),
            asker: Connector::new(policy.clone(), ask),
            looker: Connector::new(policy, look),
            trust: options.trust.clone(),
            shares: Shares::default(),
            seen: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            hidden: AtomicBool::new(false),
            searches: Mutex::default(),
            spec,
        }
    }

    /// An error as callers are told of it, see [`said`].
    pub(super) fn said(&self, error: &Error) -> String {
        said(&self.spec.name, self.has_credential(), error)
    }

    /// Why it cannot be called, as callers are told of it.
    pub(super) fn refusal(&self, refused: &Refused) -> String {
        match refused {
            Refused::Nowhere(_) => format!("it is not known where remote {} is", self.spec.name),
            Refused::Card(error) => self.said(error),
            Refused::Interface(error) => self.said(error),
        }
    }

    /// How to call it now: by its card where there is one, else as the seed's agents are.
    pub(super) fn client(&self) -> Result<Client, Refused> {
        self.client_over(&self.connector)
    }

    /// The same for questions about a task, which are answered soon or not at all.
    pub(super) fn asking(&self) -> Result<Client, Refused> {
        self.client_over(&self.asker)
    }

    /// Asks which tasks there are. Only 1.0 has a method for that, and some that are called in 0.3 know it too.
    pub(super) fn finder(&self) -> Result<Client, Refused> {
        let client = self.asking()?;
        if client.dialect() == Dialect::V1 {
            return Ok(client);
        }
        Ok(Client::without_card(self.asker.clone(), self.at()?, Dialect::V1, self.options()))
    }

    /// The URL at which it is called: the host is always the operator's choice.
    fn at(&self) -> Result<Url, Refused> {
        let url = self.spec.url.clone().map_err(Refused::Nowhere)?;
        if !self.spec.follows_card {
            return Ok(url);
        }
        let card = self.card().ok_or_else(|| Refused::Nowhere("its card is not known".to_owned()))?;
        Ok(endpoint(&card, &url).unwrap_or(url))
    }

    fn client_over(&self, connector: &Connector) -> Result<Client, Refused> {
        let at = self.at()?;
        let card = self.card();
        let mut options = self.options();
        options.at = Some(at.clone());
        match card {
            Some(card) if self.spec.sees == Sees::Text && is_of_both(&card) => {
                options.headers.push(version("1.0"));
                Ok(Client::without_card(connector.clone(), at, Dialect::V03, options))
            }
            Some(card) => {
                if self.spec.sees == Sees::Text {
                    options.headers.push(version("1.0"));
                }
                Client::from_card(connector.clone(), &card.found, options).map_err(Refused::Interface)
            }
            None => Ok(Client::without_card(connector.clone(), at, Dialect::V03, options)),
        }
    }

    fn options(&self) -> client::Options {
        client::Options {
            credential: self.spec.auth.credential(),
            headers: self.spec.headers.clone(),
            binding: self.spec.binding,
            order: Order::Card,
            // A cut stream is taken up by the turn, which knows what it has heard.
            resume: Resume { attempts: 0, idle: Duration::from_secs(86_400), ..Resume::default() },
            trust: self.trust.clone(),
            ..client::Options::default()
        }
    }

    /// The search for a message, which goes on where it was cut off.
    pub(super) fn search(&self, message: &str) -> Arc<tokio::sync::Mutex<Search>> {
        let mut searches = self.searches();
        if searches.len() >= MOST_SEARCHES && !searches.contains_key(message) {
            searches.retain(|_, search| Arc::strong_count(search) > 1);
        }
        Arc::clone(searches.entry(message.to_owned()).or_default())
    }

    /// Forgets the search for a message whose cancel is not owed any more.
    pub(super) fn end_search(&self, message: &str) {
        self.searches().remove(message);
    }

    fn searches(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<Search>>>> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its card says that it streams; before it is known, whether its file does.
    pub(super) fn streams(&self) -> bool {
        self.seen()
            .card
            .as_ref()
            .map_or(self.spec.streaming, |card| card.found.card.capabilities.streaming == Some(true))
    }

    /// Its card, if it is known.
    pub(super) fn card(&self) -> Option<FetchedCard> {
        self.seen().card.clone()
    }

    /// Makes sure that its card is known, and fresh by the rules of HTTP where `fresh` asks for that.
    pub(super) async fn ensure_card(&self, fresh: bool) -> Result<FetchedCard, Refused> {
        let begun = Instant::now();
        let _one = self.looking.lock().await;
        if let Some(card) = self.card().filter(|card| !fresh || card.is_fresh()) {
            return Ok(card);
        }
        if let Some(shared) = self.looked_since(begun) {
            return shared;
        }
        self.fetch(self.card().as_ref()).await
    }

    /// Looks at its card, whatever is known.
    pub(super) async fn refresh(&self) -> Result<FetchedCard, Refused> {
        let begun = Instant::now();
        let _one = self.looking.lock().await;
        if let Some(shared) = self.looked_since(begun) {
            return shared;
        }
        self.fetch(self.card().as_ref()).await
    }

    /// What somebody found who looked while this one waited to: nobody repeats what has just failed.
    fn looked_since(&self, begun: Instant) -> Option<Result<FetchedCard, Refused>> {
        let seen = self.seen();
        let (at, failed) = seen.looked.as_ref()?;
        if *at < begun {
            return None;
        }
        match (failed, &seen.card) {
            (Some(error), _) => Some(Err(Refused::Card(Arc::clone(error)))),
            (None, Some(card)) => Some(Ok(card.clone())),
            (None, None) => None,
        }
    }

    async fn fetch(&self, before: Option<&FetchedCard>) -> Result<FetchedCard, Refused> {
        if let Err(why) = &self.spec.url {
            self.note(Err(why.clone()), None);
            return Err(Refused::Nowhere(why.clone()));
        }
        let begun = Instant::now();
        let fetched = client::fetch_card(&self.looker, &self.spec.card_places(), &self.options(), before).await;
        match fetched {
            Ok(card) => {
                self.note(Ok(begun.elapsed()), Some(card.clone()));
                self.seen().looked = Some((Instant::now(), None));
                Ok(card)
            }
            Err(error) => {
                // Whoever answers is there, card or not.
                let answers = error.http_status().is_some();
                self.note(if answers { Ok(begun.elapsed()) } else { Err(told(&error)) }, None);
                let error = Arc::new(error);
                let mut seen = self.seen();
                seen.error = Some(told(&error));
                seen.looked = Some((Instant::now(), Some(Arc::clone(&error))));
                Err(Refused::Card(error))
            }
        }
    }

    /// Whether its card was last asked for so recently, and was not had.
    pub(super) fn failed_within(&self, time: Duration) -> bool {
        self.seen().looked.as_ref().is_some_and(|(at, failed)| failed.is_some() && at.elapsed() < time)
    }

    /// The card at the first of these places that has one, which is not kept.
    pub(super) async fn fetch_from(&self, places: &[Url]) -> Result<FetchedCard, Error> {
        client::fetch_card(&self.looker, places, &self.options(), None).await
    }

    /// Looks whether somebody is there, without asking what they can do.
    pub(super) async fn probe(&self) {
        let Some(place) = self.spec.card_places().into_iter().next() else { return };
        let begun = Instant::now();
        let request = client::egress::Request {
            method: Method::HEAD,
            url: &place,
            token: None,
            headers: Vec::new(),
            body: None,
            streaming: false,
            http2: false,
        };
        let answered = match self.looker.send(request).await {
            Ok(answer) if answer.status.is_server_error() && answer.status != StatusCode::NOT_IMPLEMENTED => {
                Err(format!("HTTP {}", answer.status.as_u16()))
            }
            Ok(_) => Ok(begun.elapsed()),
            Err(error) => Err(told(&error)),
        };
        self.note(answered, None);
    }

    /// Says once that it is hidden by another agent.
    pub(super) fn hide(&self) -> bool {
        !self.hidden.swap(true, Relaxed)
    }

    fn note(&self, answered: Result<Duration, String>, card: Option<FetchedCard>) {
        let mut seen = self.seen();
        seen.probed_at = Some(clock::now());
        seen.reachable = Some(answered.is_ok());
        seen.latency = answered.as_ref().ok().copied();
        seen.error = answered.err();
        if let Some(card) = card {
            seen.told = Arc::new(self.tell(&card));
            seen.card = Some(card);
        }
    }

    /// Takes over what is known of the same remote, whose entry has changed in something else.
    pub(super) fn adopt(&self, before: &Self) {
        if self.spec.url == before.spec.url && self.spec.card == before.spec.card {
            let (card, told) = {
                let before = before.seen();
                (before.card.clone(), Arc::clone(&before.told))
            };
            let told = card.as_ref().map_or(told, |card| Arc::new(self.tell(card)));
            let mut seen = self.seen();
            (seen.card, seen.told) = (card, told);
            drop(seen);
            self.shares.adopt(&before.shares);
        }
    }

    /// The share of one tenant; `None` is for turns that belong to no installation.
    pub(super) fn share(&self, tenant: Option<TenantId>) -> Arc<Share> {
        self.shares.of(tenant)
    }

    /// A call of it worked.
    pub(super) fn worked(&self, share: &Share) {
        if share.breaker.succeeded() {
            tracing::info!(agent.name = self.spec.name, "remote `{}` works again", self.spec.name);
        }
        self.seen().reachable = Some(true);
    }

    /// Records that a call which began at this time failed: the remote was unreachable or broken.
    pub(super) fn broke(&self, share: &Share, begun: Instant, why: &str) {
        if share.breaker.failed_since(begun) {
            let name = &self.spec.name;
            tracing::warn!(
                agent.name = name,
                error = why,
                "remote `{name}` has failed too often and is called less often until it works"
            );
        }
        let mut seen = self.seen();
        seen.error = Some(why.to_owned());
    }

    pub(super) fn is_ready(&self, tenant: Option<TenantId>) -> bool {
        self.spec.url.is_ok() && !self.share(tenant).breaker.is_open() && self.seen().reachable != Some(false)
    }

    /// Whether the remote was reachable when it was last called or probed.
    pub(super) fn is_reachable(&self) -> bool {
        self.spec.url.is_ok() && self.seen().reachable != Some(false)
    }

    /// What it can do: what its file says, and what its card has beside that.
    pub(super) fn skills(&self) -> Vec<Skill> {
        let seen = self.seen();
        if seen.card.is_some() { seen.told.skills.clone() } else { self.own_skills() }
    }

    fn own_skills(&self) -> Vec<Skill> {
        let own = self.spec.skills.iter();
        own.map(|(name, description)| Skill {
            id: name.clone(),
            name: name.clone(),
            description: description.clone(),
            source: "yaml",
        })
        .collect()
    }

    /// What its card says of it.
    pub(super) fn description(&self) -> String {
        self.seen().told.description.clone()
    }

    fn tell(&self, card: &FetchedCard) -> Told {
        let card = &card.found.card;
        let mut skills = self.own_skills();
        for skill in card.skills.iter().take(MOST_SKILLS) {
            let id = clean(&skill.id);
            if id.is_empty() || skills.iter().any(|known| known.id == id) {
                continue;
            }
            let (name, description) = (clean(&skill.name), clean(&skill.description));
            let name = if name.is_empty() { id.clone() } else { name };
            skills.push(Skill { name, id, description, source: "card" });
        }
        Told { description: clean(&card.description), skills, security: Security::of(card) }
    }

    /// As it stands: for one tenant, or with the worst of its circuits.
    pub(super) fn state(&self, tenant: Option<TenantId>) -> Remote {
        let client = self.card().map(|_| self.client());
        let uncallable = client.as_ref().and_then(|client| client.as_ref().err()).map(ToString::to_string);
        let client = client.and_then(Result::ok);
        let (skills, description) = (self.skills(), self.description());
        let seen = self.seen();
        Remote {
            name: self.spec.name.clone(),
            registry: self.spec.registry.as_str(),
            url: self.spec.url.as_ref().map_or_else(String::clone, ToString::to_string),
            description,
            reachable: seen.reachable,
            latency_ms: seen.latency.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            probed_at: seen.probed_at,
            error: seen.error.clone().or(uncallable).or_else(|| self.spec.auth.missing()),
            has_card: seen.card.is_some(),
            streaming: seen.card.as_ref().is_some_and(|card| card.found.card.capabilities.streaming == Some(true)),
            push: seen.card.as_ref().is_some_and(|card| card.found.card.capabilities.push_notifications == Some(true)),
            binding: client.as_ref().map(|client| client.binding().as_str()),
            protocol_version: client.as_ref().map(|client| match client.dialect() {
                Dialect::V1 => "1.0",
                Dialect::V03 => "0.3",
            }),
            breaker: tenant.map_or_else(|| self.shares.worst(), |_| self.share(tenant).breaker.name()),
            skills,
            security: seen.told.security.ways.clone(),
            missing_credential: seen.told.security.required.filter(|_| !self.names_credential()),
        }
    }

    /// Whether its entry names a credential; a header of the entry may be one.
    fn names_credential(&self) -> bool {
        !matches!(self.spec.auth, Auth::None) || !self.spec.headers.is_empty()
    }

    /// Whether there is a credential to show it now.
    pub(super) fn has_credential(&self) -> bool {
        self.names_credential() && self.spec.auth.missing().is_none()
    }

    /// Whether it is looked at in the background. What `a2a_agents.json` has is looked at when it is called, and not otherwise.
    pub(super) fn is_watched(&self) -> bool {
        self.spec.registry != Registry::Json
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(version: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static("a2a-version"), HeaderValue::from_static(version))
}

/// Whether a card has the fields of before 1.0, beside those of 1.0 or instead: agents that call themselves 1.0 and have them speak as
/// seed 000 does.
fn is_of_both(card: &FetchedCard) -> bool {
    const BEFORE: [&str; 4] = ["url", "preferredTransport", "protocolVersion", "additionalInterfaces"];
    let fields = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&card.found.json);
    fields.is_ok_and(|fields| BEFORE.iter().any(|key| fields.contains_key(*key)))
}

/// The URL of a card's first JSON-RPC interface, at the operator's host.
pub(super) fn endpoint(card: &FetchedCard, at: &Url) -> Option<Url> {
    let interfaces = card.found.card.supported_interfaces.iter();
    let rpc = interfaces
        .filter(|interface| interface.protocol_binding == "JSONRPC")
        .find_map(|it| client::parse_url(&it.url).ok())?;
    let mut there = at.clone();
    there.set_path(rpc.path());
    Some(there)
}

/// An error with what caused it, on one line.
pub(super) fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    clean(&text)
}
