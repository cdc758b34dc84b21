//! What runs: whether the port is free or ours, and whether the card leads to where callers are told to go.

use std::{
    fs, io,
    net::TcpListener,
    time::{Duration, UNIX_EPOCH},
};

use a2a::{
    AgentCard,
    v03::{AnyCard, decode_card},
};
use client::{
    Connector, Limits, Policy,
    egress::{Request, Response},
    parse_url, same_origin,
};
use http::{HeaderName, HeaderValue, Method, header};
use url::Url;

use crate::{config::Config, findings::Finding, servers::Servers};

/// How long an answer may take. It comes from this machine, or from the public URL.
const PATIENCE: Duration = Duration::from_secs(5);

/// Marks a request as that of a proxy. A server gives other clients on its machine cards with the address that they called, and the card
/// that everybody else gets is the one to look at.
const VIA: (HeaderName, HeaderValue) = (header::VIA, HeaderValue::from_static("1.1 sb-doctor"));

/// A server that answers with a card.
pub(super) struct Running {
    base: Url,
    /// Whether it is of this data directory, as far as it has registered there.
    pub(super) is_ours: bool,
    card: AgentCard,
    /// What its answer said the time was, in milliseconds since the epoch.
    pub(super) date: Option<i64>,
}

/// The server of this data directory, where it said that it is; else whatever answers where it would listen.
pub(super) async fn find(config: &Config) -> Option<Running> {
    let servers = Servers::of(&config.data_dir).unwrap_or_else(|_| Servers::none());
    // The one whose port is looked at, if it is one of them.
    let port = config.edge.listen.port();
    // Where one was that has ended, anybody may answer now.
    let known = servers.all().iter().filter_map(|known| Some((parse_url(&known.url).ok()?, known.runs)));
    let mut urls: Vec<(Url, bool)> = known.collect();
    urls.sort_by_key(|(url, _)| url.port_or_known_default() != Some(port));
    let connector = servers.connector(limits());
    for (url, is_ours) in urls {
        if let Some(running) = ask(&connector, &url, vec![VIA]).await {
            return Some(Running { is_ours, ..running });
        }
    }
    if config.edge.listen.port() == 0 {
        return None;
    }
    ask(&connector, &listening(config)?, vec![VIA]).await
}

pub(super) fn port(config: &Config, running: Option<&Running>) -> Finding {
    let subject = "port";
    let listen = config.edge.listen;
    let ours = running.filter(|server| server.base.port_or_known_default() == Some(listen.port()));
    if let Some(server) = ours {
        if server.is_ours {
            return Finding::ok(subject, format!("a server of ours answers at {}", server.base));
        }
        let user = listener(listen.port()).map_or_else(String::new, |user| format!(", run by {user}"));
        return Finding::warn(
            subject,
            format!(
                "{listen} is held by a Switchboard server of another data directory than {}{user}",
                config.data_dir.display()
            ),
            "name its data directory with --data-dir, or choose another address with --listen",
        );
    }
    let elsewhere = match running.filter(|server| server.is_ours) {
        Some(server) => format!("; the server of this data directory answers at {}", server.base),
        None => String::new(),
    };
    match TcpListener::bind(listen) {
        Ok(_) => Finding::ok(subject, format!("{listen} is free{elsewhere}")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::fail(
            subject,
            format!("{listen} is taken by something that is no Switchboard server"),
            "stop it, or choose another address with --listen",
        ),
        Err(error) => {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need privileges: choose a higher one with --listen"
                }
                _ => "choose an address of this machine with --listen",
            };
            Finding::fail(subject, format!("cannot listen on {listen}: {error}"), hint)
        }
    }
}

pub(super) async fn public_url(config: &Config, running: Option<&Running>) -> Finding {
    let subject = "public URL";
    let Some(server) = running else {
        let told = config.edge.public_url.as_deref().unwrap_or("the listen address");
        return Finding::ok(subject, format!("{told}; not compared, since no server runs"));
    };
    let expected =
        config.edge.public_url.clone().unwrap_or_else(|| server.base.as_str().trim_end_matches('/').to_owned());
    // That of gRPC is a host and a port, which may be another.
    for interface in server.card.supported_interfaces.iter().filter(|interface| interface.url.contains("://")) {
        if !is_below(&interface.url, &expected) {
            return Finding::fail(
                subject,
                format!("the card leads to {}, not to {expected}", interface.url),
                "start the server again, so that it takes the configuration as it is now",
            );
        }
    }
    let Some(public) = config.edge.public_url.as_deref().and_then(|url| parse_url(url).ok()) else {
        return Finding::ok(subject, format!("{expected}, as on the card"));
    };
    match ask(&Connector::new(Policy::Operator, limits()), &public, Vec::new()).await {
        None => Finding::warn(
            subject,
            format!("{expected} is on the card, but no card can be fetched there from here"),
            "check the name, the proxy and the certificate; it may be reachable from elsewhere",
        ),
        Some(seen) if seen.card.supported_interfaces != server.card.supported_interfaces => Finding::fail(
            subject,
            format!("{expected} answers with the card of another server"),
            "check where the name and the proxy lead, and that a proxy on this machine passes `Host` on or adds X-Forwarded-For",
        ),
        Some(_) => Finding::ok(subject, format!("{expected}, as on the card, and it answers")),
    }
}

/// Whether a card's URL is that one or below it.
fn is_below(url: &str, base: &str) -> bool {
    let (Ok(url), Ok(base)) = (parse_url(url), parse_url(base)) else {
        return false;
    };
    let path = base.path().trim_end_matches('/');
    same_origin(&url, &base)
        && url.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How to reach what listens there from this machine.
fn listening(config: &Config) -> Option<Url> {
    let mut address = config.edge.listen;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    let scheme = if config.edge.tls.is_some() { "https" } else { "http" };
    parse_url(&format!("{scheme}://{address}")).ok()
}

fn limits() -> Limits {
    Limits { connect_timeout: PATIENCE, total_timeout: Some(PATIENCE), ..Limits::default() }
}

/// The user whose process listens on a port of this machine, where the system tells.
fn listener(port: u16) -> Option<String> {
    const LISTENS: &str = "0A";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let uid = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, LISTENS, _, _, _, uid, ..] = fields[..] else { return None };
        let (_, at) = local.rsplit_once(':')?;
        (u16::from_str_radix(at, 16) == Ok(port)).then(|| uid.to_owned())
    })?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (rest.split(':').nth(1) == Some(uid.as_str())).then_some(name)
    });
    Some(name.map_or(format!("user {uid}"), |name| format!("user {uid} ({name})")))
}

/// Fetches the card of a server of ours.
async fn ask(connector: &Connector, base: &Url, headers: Vec<(HeaderName, HeaderValue)>) -> Option<Running> {
    let mut url = base.clone();
    url.path_segments_mut().ok()?.pop_if_empty().extend([".well-known", "agent-card.json"]);
    let request =
        Request { method: Method::GET, url: &url, token: None, headers, body: None, streaming: false, http2: false };
    let response = connector.send(request).await.ok()?;
    let date = date(&response);
    if !response.status.is_success() {
        return None;
    }
    match decode_card(&response.bytes().await.ok()?).ok()? {
        AnyCard::V1(card) if card.name == "Switchboard" => {
            Some(Running { base: base.clone(), is_ours: false, card, date })
        }
        _ => None,
    }
}

fn date(response: &Response) -> Option<i64> {
    let text = response.headers.get(header::DATE)?.to_str().ok()?;
    let since_epoch = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_epoch.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_leads_below_its_base() {
        for (url, base, below) in [
            ("http://127.0.0.1:1/a2a", "http://localhost:1", true),
            ("https://h/base/a2a", "https://h/base", true),
            ("https://h/base", "https://h/base/", true),
            ("https://h/basement/a2a", "https://h/base", false),
            ("https://h/a2a", "https://other", false),
            ("http://h/a2a", "https://h", false),
        ] {
            assert_eq!(is_below(url, base), below, "{url} {base}");
        }
    }
}
