//! Finding an agent: its card, and whether what the card says may be followed.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use a2a::{
    AgentCard,
    error::RemoteError,
    signature::Verified,
    v03::{AnyCard, decode_card},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use url::{Host, Url};

use crate::{
    Binding, Client, Connector, Credential, Error, Options,
    client::authorized,
    egress::{self, Request, Response},
    freshness::{self, Said},
};

/// A card and where it came from.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// Where it was.
    pub url: Url,
    /// What it says, in 1.0's words also when it was written in those of 0.3.
    pub card: AgentCard,
    /// What a card of the 0.3 shape says about its version, be it nothing. `None` for a 1.0 card.
    pub protocol_version: Option<String>,
    /// What it says, as it came.
    pub json: Bytes,
}

/// A card that is kept, with what HTTP says about keeping it.
#[derive(Debug, Clone)]
pub struct FetchedCard {
    /// The card, as far as it may be used.
    pub found: Discovered,
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
    /// For how long it was good when it came.
    lifetime: Duration,
    fresh_until: Instant,
}

/// Reads a URL as a person gives it.
pub fn parse_url(text: &str) -> Result<Url, Error> {
    let refuse = |reason: &str| Error::Url { url: text.chars().take(200).collect(), reason: reason.to_owned() };
    let scheme = "it has to start with http:// or https://";
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => refuse(scheme),
        error => refuse(&error.to_string()),
    })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(refuse(scheme));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it may not hold a user name or password"));
    }
    Ok(url)
}

/// Fetches the card of the agent at `url`, or at `url` itself when its path ends in `.json`.
pub async fn discover(connector: &Connector, url: &Url, credential: Option<&Credential>) -> Result<Discovered, Error> {
    discover_with(connector, url, &Options { credential: credential.cloned(), ..Options::default() }).await
}

/// The same with all of `options` that a card is asked for with. Its signature is not checked.
pub async fn discover_with(connector: &Connector, url: &Url, options: &Options) -> Result<Discovered, Error> {
    let at = card_url(url);
    let response = ask(connector, &at, options, Vec::new()).await?;
    let found = Discovered::read(at, body(response).await?)?;
    Ok(with_grpc(connector, found, options).await)
}

/// A card that names gRPC, where `options` ask for that: the extended card may name interfaces that the public one leaves out.
async fn with_grpc(connector: &Connector, found: Discovered, options: &Options) -> Discovered {
    let names_grpc = || found.card.supported_interfaces.iter().any(|interface| interface.protocol_binding == "GRPC");
    let has_extended = found.card.capabilities.extended_agent_card == Some(true);
    if options.binding != Some(Binding::Grpc) || !has_extended || names_grpc() {
        return found;
    }
    let over_http = Options { binding: None, ..options.clone() };
    let Ok(client) = Client::from_card(connector.clone(), &found, over_http) else { return found };
    let extended = Box::pin(client.extended_card()).await.ok().and_then(|card| {
        let json = Bytes::from(String::from(Box::<str>::from(card.json)));
        Discovered::read(found.url.clone(), json).ok()
    });
    extended.unwrap_or(found)
}

/// The URL of the agent whose card is at `url`, if `url` is that of a card: `agent-card.json` or `agent.json`, which may be in `.well-known`.
pub fn agent_of_card(url: &Url) -> Option<Url> {
    let (path, name) = url.path().rsplit_once('/')?;
    if !matches!(name, "agent-card.json" | "agent.json") {
        return None;
    }
    let mut agent = url.clone();
    agent.set_fragment(None);
    agent.set_query(None);
    agent.set_path(path.strip_suffix("/.well-known").unwrap_or(path));
    Some(agent)
}

/// Where a card is that lies beside its agent.
pub fn card_beside(url: &Url) -> Vec<Url> {
    vec![below(url, &["agent-card.json"])]
}

/// Where a card is by the conventions of 1.0 and, after that, of those before: below the agent's URL. The URL of a JSON-RPC endpoint may be
/// below the agent's: a trailing `/jsonrpc` and a trailing `/a2a` are left out, and what is below the endpoint itself comes last.
pub fn card_well_known(url: &Url) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let agent = path.strip_suffix("/jsonrpc").unwrap_or(path);
    let mut base = url.clone();
    base.set_path(agent.strip_suffix("/a2a").unwrap_or(agent));
    let mut places =
        vec![below(&base, &[".well-known", "agent-card.json"]), below(&base, &[".well-known", "agent.json"])];
    if agent != path {
        places.push(below(url, &[".well-known", "agent-card.json"]));
    }
    places
}

/// The card at the first of these places that has one, if it is to be believed. With one from before the place that it came from is asked
/// whether it still holds.
pub async fn fetch_card(
    connector: &Connector,
    places: &[Url],
    options: &Options,
    before: Option<&FetchedCard>,
) -> Result<FetchedCard, Error> {
    let mut tried: Vec<(String, Error)> = Vec::new();
    let mut silent: Vec<&Url> = Vec::new();
    for place in places {
        // Who does not answer there does not answer beside it either, and it would take as long again to learn that.
        if silent.iter().any(|known| same_origin(known, place)) {
            continue;
        }
        let kept = before.filter(|before| before.found.url == *place);
        match fetch_one(connector, place, options, kept).await {
            Ok(card) => return Ok(card),
            Err(error) => {
                if matches!(error, Error::Unreachable { .. } | Error::Timeout { .. } | Error::Tls { .. }) {
                    silent.push(place);
                }
                tried.push((egress::shown(place), error));
            }
        }
    }
    // The error of a single place is told as what it is.
    match <[_; 1]>::try_from(tried) {
        Ok([(_, error)]) => Err(error),
        Err(tried) => Err(Error::NoCard { tried }),
    }
}

async fn fetch_one(
    connector: &Connector,
    place: &Url,
    options: &Options,
    before: Option<&FetchedCard>,
) -> Result<FetchedCard, Error> {
    let conditions = before.map(FetchedCard::conditions).unwrap_or_default();
    let is_conditional = !conditions.is_empty();
    let response = ask(connector, place, options, conditions).await?;
    if let Some(before) = before.filter(|_| is_conditional && response.status == StatusCode::NOT_MODIFIED) {
        return Ok(before.renewed(&response.headers));
    }
    let headers = response.headers.clone();
    let found = Discovered::read(place.clone(), body(response).await?)?;
    let found = with_grpc(connector, found, options).await;
    Ok(FetchedCard::new(options.trust.admit(found)?, &headers))
}

async fn ask(
    connector: &Connector,
    at: &Url,
    options: &Options,
    conditions: Vec<(HeaderName, HeaderValue)>,
) -> Result<Response, Error> {
    let accept = (header::ACCEPT, HeaderValue::from_static("application/json"));
    let mut headers = vec![accept, crate::client::version_header(a2a::PROTOCOL_VERSION)];
    headers.extend(conditions);
    let request =
        Request { method: Method::GET, url: at, token: None, headers, body: None, streaming: false, http2: false };
    authorized(connector, request, options).await
}

async fn body(response: Response) -> Result<Bytes, Error> {
    let status = response.status;
    let json = response.bytes().await?;
    if status.is_success() {
        return Ok(json);
    }
    Err(Error::told(status.as_u16(), RemoteError::from_status_body(status.as_u16(), &json)))
}

impl FetchedCard {
    fn new(found: Discovered, headers: &HeaderMap) -> Self {
        let said = freshness::said(headers);
        let lifetime = if let Said::For(lifetime) = said { lifetime } else { Duration::ZERO };
        // What may not be kept is not asked about again either.
        let kept = |name: HeaderName| headers.get(name).filter(|_| said != Said::Never).cloned();
        Self {
            found,
            etag: kept(header::ETAG),
            last_modified: kept(header::LAST_MODIFIED),
            lifetime,
            fresh_until: Instant::now() + lifetime,
        }
    }

    /// Whether it may be used without asking again.
    pub fn is_fresh(&self) -> bool {
        Instant::now() < self.fresh_until
    }

    /// What makes an answer say no more than that this card still holds.
    fn conditions(&self) -> Vec<(HeaderName, HeaderValue)> {
        let mut conditions = Vec::new();
        conditions.extend(self.etag.clone().map(|etag| (header::IF_NONE_MATCH, etag)));
        conditions.extend(self.last_modified.clone().map(|date| (header::IF_MODIFIED_SINCE, date)));
        conditions
    }

    /// The same card with what the answer that it still holds says about keeping it. What that leaves out holds on.
    fn renewed(&self, headers: &HeaderMap) -> Self {
        let newer = Self::new(self.found.clone(), headers);
        if freshness::said(headers) == Said::Never {
            return newer;
        }
        let says_nothing = freshness::said(headers) == Said::Nothing;
        let lifetime = if says_nothing { self.lifetime } else { newer.lifetime };
        Self {
            etag: newer.etag.or_else(|| self.etag.clone()),
            last_modified: newer.last_modified.or_else(|| self.last_modified.clone()),
            lifetime,
            fresh_until: Instant::now() + lifetime,
            found: newer.found,
        }
    }
}

impl Discovered {
    /// Reads what came from there.
    pub(crate) fn read(url: Url, json: Bytes) -> Result<Self, Error> {
        let card = decode_card(&json).map_err(|error| {
            Error::Malformed(format!("{} is not an agent card: {}", egress::shown(&url), error.message))
        })?;
        let (card, protocol_version) = match card {
            AnyCard::V1(card) => (card, None),
            AnyCard::V03(card) => {
                let said = card.protocol_version.clone();
                (card.into(), Some(said))
            }
        };
        Ok(Self { url, card, protocol_version, json })
    }

    /// The same card without what its signature does not cover.
    pub(crate) fn covered_by(self, verified: &Verified) -> Result<Self, Error> {
        let covered = Self::read(self.url, Bytes::copy_from_slice(&verified.card))?;
        Ok(Self { json: self.json, ..covered })
    }
}

/// Whether two URLs lead to one server. `localhost` is the same as the addresses that it stands for.
pub fn same_origin(a: &Url, b: &Url) -> bool {
    same_host(a, b) && a.port_or_known_default() == b.port_or_known_default()
}

/// Whether two URLs lead to one machine, at whatever port.
pub(crate) fn same_host(a: &Url, b: &Url) -> bool {
    // Another user of this machine may listen on another loopback address at the same port.
    let is_same =
        a.host() == b.host() || (is_localhost(a) && is_its_address(b)) || (is_its_address(a) && is_localhost(b));
    a.scheme() == b.scheme() && is_same
}

fn card_url(url: &Url) -> Url {
    let mut card = url.clone();
    card.set_fragment(None);
    if card.path().ends_with(".json") {
        return card;
    }
    below(url, &[".well-known", "agent-card.json"])
}

fn below(url: &Url, segments: &[&str]) -> Url {
    let mut below = url.clone();
    below.set_fragment(None);
    below.set_query(None);
    // Fails only for URLs without a host, which `parse_url` refuses.
    if let Ok(mut path) = below.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    below
}

fn is_localhost(url: &Url) -> bool {
    url.host_str() == Some("localhost")
}

/// Whether the host is an address of `localhost`.
fn is_its_address(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address == Ipv4Addr::LOCALHOST,
        Some(Host::Ipv6(address)) => address == Ipv6Addr::LOCALHOST,
        Some(Host::Domain(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        parse_url(text).unwrap()
    }

    #[test]
    fn the_url_of_a_card_leads_to_its_agent() {
        for (card, agent) in [
            ("http://h/.well-known/agent-card.json", Some("http://h/")),
            ("http://h/a/b/.well-known/agent-card.json?x#f", Some("http://h/a/b")),
            ("http://h/a/.well-known/agent.json", Some("http://h/a")),
            ("http://h/a/agent-card.json", Some("http://h/a")),
            ("http://h/a", None),
            ("http://h/a/agent-card.json/", None),
            ("http://h/a/my-agent-card.json", None),
            ("http://h/rpc.json", None),
        ] {
            let found = agent_of_card(&parse_url(card).unwrap());
            assert_eq!(found.as_ref().map(Url::as_str), agent, "{card}");
        }
    }

    #[test]
    fn a_card_is_below_its_agent_or_named() {
        let at = |text: &str| card_url(&url(text)).to_string();
        assert_eq!(at("http://h"), "http://h/.well-known/agent-card.json");
        assert_eq!(at("http://h/a/b/?x=1"), "http://h/a/b/.well-known/agent-card.json");
        assert_eq!(at("http://h/cards/x.json?v=1"), "http://h/cards/x.json?v=1");
    }

    #[test]
    fn a_card_lies_beside_its_agent_or_in_a_well_known_place() {
        let beside = |text: &str| card_beside(&url(text))[0].to_string();
        assert_eq!(beside("http://h/agents/x"), "http://h/agents/x/agent-card.json");
        assert_eq!(beside("http://h/agents/x/?q#f"), "http://h/agents/x/agent-card.json");
        assert_eq!(beside("http://h"), "http://h/agent-card.json");
        for (text, base) in [
            ("http://h/a2a", "http://h"),
            ("http://h/a2a/", "http://h"),
            ("http://h/x/a2a?q", "http://h/x"),
            ("http://h/", "http://h"),
            ("http://h/xa2a", "http://h/xa2a"),
            ("http://h/a2a/x", "http://h/a2a/x"),
        ] {
            let places: Vec<String> = card_well_known(&url(text)).iter().map(Url::to_string).collect();
            let expected = ["agent-card.json", "agent.json"].map(|name| format!("{base}/.well-known/{name}"));
            assert_eq!(places, expected, "{text}");
        }
        for (text, base) in [
            ("http://h/a2a/agents/x/jsonrpc", "http://h/a2a/agents/x"),
            ("http://h/a2a/agents/x/jsonrpc/", "http://h/a2a/agents/x"),
            ("http://h/a2a/jsonrpc", "http://h"),
            ("http://h/jsonrpc", "http://h"),
        ] {
            let places: Vec<String> = card_well_known(&url(text)).iter().map(Url::to_string).collect();
            let own = format!("{}/.well-known/agent-card.json", text.trim_end_matches('/'));
            let expected = ["agent-card.json", "agent.json"].map(|name| format!("{base}/.well-known/{name}"));
            assert_eq!(places, [expected.as_slice(), &[own]].concat(), "{text}");
        }
    }

    #[test]
    fn what_is_no_agents_url_is_refused() {
        for text in ["", "localhost:8765", "ftp://h/", "http://", "http://u:p@h/"] {
            assert!(matches!(parse_url(text), Err(Error::Url { .. })), "{text}");
        }
    }

    #[test]
    fn origins_are_compared() {
        for (a, b, same) in [
            ("http://h/a", "http://h:80/b", true),
            ("http://h", "https://h", false),
            ("http://h:1", "http://h:2", false),
            ("http://localhost:1", "http://127.0.0.1:1", true),
            ("http://localhost:1", "http://[::1]:1", true),
            ("http://[::1]:1", "http://localhost:1", true),
            ("http://127.0.0.1:1", "http://[::1]:1", false),
            ("http://127.0.0.1:1", "http://127.0.0.2:1", false),
            ("http://localhost:1", "http://127.0.0.2:1", false),
            ("http://localhost", "http://localhost.example.org", false),
        ] {
            assert_eq!(same_origin(&url(a), &url(b)), same, "{a} {b}");
        }
    }
}
