//! Finding an agent: its card, and whether what the card says may be followed.

use a2a::{
    AgentCard,
    signature::Verified,
    v03::{AnyCard, decode_card},
};
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use url::{Host, Url};

use crate::{Connector, Error, Secret, egress, egress::Request};

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

/// Reads a URL as a person gives it.
pub fn parse_url(text: &str) -> Result<Url, Error> {
    let refuse = |reason: &str| Error::Url { url: text.chars().take(200).collect(), reason: reason.to_owned() };
    let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(refuse("it has to start with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("it may not hold a user name or password"));
    }
    Ok(url)
}

/// Fetches the card of the agent at `url`, or at `url` itself when its path ends in `.json`.
pub async fn discover(connector: &Connector, url: &Url, token: Option<&Secret>) -> Result<Discovered, Error> {
    let at = card_url(url);
    let accept = (header::ACCEPT, HeaderValue::from_static("application/json"));
    let headers = vec![accept, crate::client::version_header(a2a::PROTOCOL_VERSION)];
    let request = Request { method: Method::GET, url: &at, token, headers, body: None, streaming: false, http2: false };
    let response = connector.send(request).await?;
    let status = response.status;
    let json = response.bytes().await?;
    if !status.is_success() {
        let remote = a2a::error::RemoteError::from_status_body(status.as_u16(), &json);
        return Err(Error::told(status.as_u16(), remote));
    }
    Discovered::read(at, json)
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

/// Whether two URLs lead to one server. The names of the loopback interface are one.
pub fn same_origin(a: &Url, b: &Url) -> bool {
    same_host(a, b) && a.port_or_known_default() == b.port_or_known_default()
}

/// Whether two URLs lead to one machine, at whatever port.
pub(crate) fn same_host(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && (a.host() == b.host() || (is_loopback(a) && is_loopback(b)))
}

fn card_url(url: &Url) -> Url {
    let mut card = url.clone();
    card.set_fragment(None);
    if card.path().ends_with(".json") {
        return card;
    }
    card.set_query(None);
    // Fails only for URLs without a host, which `parse_url` refuses.
    if let Ok(mut path) = card.path_segments_mut() {
        path.pop_if_empty().extend([".well-known", "agent-card.json"]);
    }
    card
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        parse_url(text).unwrap()
    }

    #[test]
    fn a_card_is_below_its_agent_or_named() {
        let at = |text: &str| card_url(&url(text)).to_string();
        assert_eq!(at("http://h"), "http://h/.well-known/agent-card.json");
        assert_eq!(at("http://h/a/b/?x=1"), "http://h/a/b/.well-known/agent-card.json");
        assert_eq!(at("http://h/cards/x.json?v=1"), "http://h/cards/x.json?v=1");
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
            ("http://localhost", "http://localhost.example.org", false),
        ] {
            assert_eq!(same_origin(&url(a), &url(b)), same, "{a} {b}");
        }
    }
}
