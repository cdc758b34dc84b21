//! Who is meant by a request, where nobody has to say who they are.
//!
//! Without authentication whatever reaches the port may do everything. A page in the browser of the same machine reaches
//! it too: directly, or under a name of its own that it lets point to this machine (DNS rebinding). Browsers tell both, so
//! that both can be refused: by `Host` or the authority of HTTP/2, by `Origin`, and by `Sec-Fetch-Site`, which is also sent where
//! there is no origin. What comes from a page of this server itself passes all three. With authentication none of these headers is
//! looked at: a page has no token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use a2a::{Error, ErrorKind, error::excerpt};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use crate::cors::Cors;

/// What a browser says of the page that a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names that this server answers to.
#[derive(Debug)]
pub(crate) struct Names {
    /// Anything is answered.
    any: bool,
    /// The host of the public URL.
    public: Option<String>,
}

impl Names {
    /// With `auth` all names are fine; without it those of loopback and the public URL's.
    pub(crate) fn new(auth: bool, public_url: Option<&str>) -> Self {
        let public = public_url.and_then(|url| url.parse::<Uri>().ok()?.host().map(str::to_ascii_lowercase));
        Self { any: auth, public }
    }

    /// Refuses a request that was meant for another name, or that a page sent which may not call.
    pub(crate) fn check(&self, cors: &Cors, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
        if self.any {
            return Ok(());
        }
        // HTTP/2 has the name in the URI. Where there are several, none may be foreign.
        let in_uri = uri.authority().map(|authority| authority.as_str().as_bytes());
        let in_headers = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let mut names = in_uri.into_iter().chain(in_headers).peekable();
        if names.peek().is_none() {
            return Err(foreign_host("nothing"));
        }
        for name in names {
            if !self.knows(name) {
                return Err(foreign_host(&format!("`{}`", excerpt(&String::from_utf8_lossy(name)))));
            }
        }
        let mut is_listed = *cors == Cors::Everybody;
        for origin in headers.get_all(header::ORIGIN) {
            is_listed = cors.allows(origin);
            if !is_listed && !self.is_own(origin.as_bytes()) {
                return Err(foreign_page(origin.as_bytes()));
            }
        }
        // A page that sends no origin with what it loads is still told apart from a page of this server, and from a person.
        let from = headers.get_all(SEC_FETCH_SITE).iter();
        match from.map(HeaderValue::as_bytes).find(|site| !matches!(*site, b"same-origin" | b"none")) {
            Some(site) if !is_listed => Err(foreign_site(site)),
            _ => Ok(()),
        }
    }

    /// Whether this is a name of ours, with or without a port.
    fn knows(&self, name: &[u8]) -> bool {
        let Some(host) = std::str::from_utf8(name).ok().and_then(without_port) else {
            return false;
        };
        is_loopback(host) || self.public.as_deref().is_some_and(|public| host.eq_ignore_ascii_case(public))
    }

    /// Whether a page of this origin comes from a server at one of our names.
    fn is_own(&self, origin: &[u8]) -> bool {
        let name = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        name.is_some_and(|name| self.knows(name))
    }
}

/// The addresses by which clients on this machine reach the server.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) scheme: &'static str,
    /// The main address.
    pub(crate) address: SocketAddr,
    /// The port for gRPC alone, at the same IP address.
    pub(crate) grpc_port: Option<u16>,
}

impl Local {
    /// The base of URLs for a client that calls by this loopback name. `None` if the name leads to an address that this server does not
    /// listen at: another user of the machine may listen there, and a signed card would vouch for that address.
    pub(crate) fn base(&self, name: &str) -> Option<String> {
        let host = without_port(name)?;
        let port = match name[host.len()..].strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if self.scheme == "https" => 443,
            None => 80,
        };
        if port != self.address.port() && Some(port) != self.grpc_port {
            return None;
        }
        let listens = self.address.ip();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let host = match address {
            Ok(ip) if ip == listens || listens.is_unspecified() && (ip.is_ipv4() || listens.is_ipv6()) => match ip {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            },
            Ok(_) => return None,
            Err(_) => host.to_ascii_lowercase(),
        };
        // A client of the port for gRPC finds everything else at the main one.
        Some(format!("{}://{host}:{}", self.scheme, self.address.port()))
    }
}

/// The name that a request calls this server by, with its port, if that is a name of loopback and the only one.
pub(crate) fn loopback_name<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let in_uri = uri.authority().map(|authority| authority.as_str());
    let mut names = in_uri.into_iter().chain(headers.get_all(header::HOST).iter().map(|it| it.to_str().unwrap_or("")));
    let name = names.next()?;
    (names.all(|other| other == name) && without_port(name).is_some_and(is_loopback)).then_some(name)
}

/// The host of `host` or `host:port`; an IPv6 address keeps its brackets.
fn without_port(name: &str) -> Option<&str> {
    let end = match name.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => name.find(':').unwrap_or(name.len()),
    };
    let (host, port) = name.split_at(end);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    host.eq_ignore_ascii_case("localhost") || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

fn foreign_host(name: &str) -> Error {
    let message = format!(
        "the Host header names {name}; without authentication only localhost, a loopback address and the host of the \
         public URL are answered"
    );
    Error::new(ErrorKind::PermissionDenied, message).with_reason("HOST_NOT_ALLOWED")
}

fn foreign_page(origin: &[u8]) -> Error {
    let message = format!(
        "pages of `{}` may not call; without authentication only those of this machine and of cors.origins may",
        excerpt(&String::from_utf8_lossy(origin))
    );
    Error::new(ErrorKind::PermissionDenied, message).with_reason("ORIGIN_NOT_ALLOWED")
}

fn foreign_site(site: &[u8]) -> Error {
    let message = format!(
        "the browser says that this comes from a page of another server (Sec-Fetch-Site: {}); without authentication only \
         this server's own and those of cors.origins may call",
        excerpt(&String::from_utf8_lossy(site))
    );
    Error::new(ErrorKind::PermissionDenied, message).with_reason("ORIGIN_NOT_ALLOWED")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &Names, cors: &Cors, uri: &'static str, pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        match names.check(cors, &Uri::from_static(uri), &headers) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::PermissionDenied);
                false
            }
        }
    }

    #[test]
    fn names_of_this_machine() {
        let names = Names::new(false, Some("http://Box.example:8765/sb"));
        let host = |value| check(&names, &Cors::Nobody, "/", &[("host", value)]);
        for good in [
            "localhost",
            "LocalHost:8765",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.1.2.3:80",
            "[::1]",
            "[::1]:8765",
            "[0:0:0:0:0:0:0:1]",
            "box.example",
            "BOX.example:9",
        ] {
            assert!(host(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:80x",
            "localhost:80:80",
            "user@localhost",
            "[::1",
            "[::1]x",
            "::1",
            "[::2]",
            "[::ffff:127.0.0.1]",
            "128.0.0.1",
            "0.0.0.0",
            "127.1",
            "0x7f.0.0.1",
            "localhost, evil.example",
            "x.box.example",
        ] {
            assert!(!host(bad), "{bad}");
        }
    }

    #[test]
    fn every_name_counts_and_there_must_be_one() {
        let names = Names::new(false, None);
        let nobody = Cors::Nobody;
        assert!(!check(&names, &nobody, "/", &[]));
        assert!(!check(&names, &nobody, "/", &[("host", "localhost"), ("host", "evil.example")]));
        assert!(check(&names, &nobody, "http://localhost:1/a2a", &[]));
        assert!(!check(&names, &nobody, "http://evil.example/a2a", &[]));
        assert!(!check(&names, &nobody, "http://evil.example/a2a", &[("host", "localhost")]));
        assert!(check(&Names::new(true, None), &nobody, "/", &[("host", "evil.example"), ("origin", "null")]));
    }

    #[test]
    fn only_one_name_of_loopback_is_taken_from_a_request() {
        let name = |uri: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            loopback_name(&Uri::from_static(uri), &headers).map(str::to_owned)
        };
        for good in ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "localhost"] {
            assert_eq!(name("/", &[good]).as_deref(), Some(good));
        }
        for bad in
            ["evil.example", "localhost.evil.example", "localhost@evil.example", "localhost/x", "10.0.0.1:80", ""]
        {
            assert_eq!(name("/", &[bad]), None, "{bad}");
        }
        assert_eq!(name("http://localhost:1/a2a", &[]).as_deref(), Some("localhost:1"));
        assert_eq!(name("http://localhost:1/a2a", &["localhost:1"]).as_deref(), Some("localhost:1"));
        assert_eq!(name("http://localhost:1/a2a", &["evil.example"]), None);
        assert_eq!((name("/", &["localhost", "127.0.0.1"]), name("/", &[])), (None, None));
    }

    #[test]
    fn only_addresses_that_are_listened_at_are_put_on_cards() {
        let local = |listen: &str| Local { scheme: "http", address: listen.parse().unwrap(), grpc_port: Some(9) };
        for (listen, name, base) in [
            ("127.0.0.1:8765", "localhost:8765", Some("http://localhost:8765")),
            ("127.0.0.1:8765", "LocalHost:8765", Some("http://localhost:8765")),
            ("127.0.0.1:8765", "127.0.0.1:8765", Some("http://127.0.0.1:8765")),
            ("127.0.0.1:8765", "localhost:9", Some("http://localhost:8765")),
            ("127.0.0.1:80", "localhost", Some("http://localhost:80")),
            ("[::1]:8765", "[0:0:0:0:0:0:0:1]:8765", Some("http://[::1]:8765")),
            ("0.0.0.0:8765", "127.0.0.2:8765", Some("http://127.0.0.2:8765")),
            ("[::]:8765", "127.0.0.1:8765", Some("http://127.0.0.1:8765")),
            ("[::]:8765", "[::1]:8765", Some("http://[::1]:8765")),
            ("0.0.0.0:8765", "[::1]:8765", None),
            ("127.0.0.1:8765", "localhost:9999", None),
            ("127.0.0.1:8765", "localhost:99999", None),
            ("127.0.0.1:8765", "localhost", None),
            ("127.0.0.1:8765", "127.0.0.2:8765", None),
            ("127.0.0.1:8765", "[::1]:8765", None),
        ] {
            assert_eq!(local(listen).base(name).as_deref(), base, "{name} at {listen}");
        }
    }

    #[test]
    fn pages_of_this_machine_and_of_the_list() {
        let names = Names::new(false, Some("https://box.example"));
        let listed = Cors::parse(&["https://app.example"]).unwrap();
        let origin = |cors, value| check(&names, cors, "/", &[("host", "localhost"), ("origin", value)]);
        for good in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8765", "https://box.example"] {
            assert!(origin(&Cors::Nobody, good), "{good}");
        }
        for bad in ["null", "https://app.example", "http://localhost.evil.example", "localhost", "file://", ""] {
            assert!(!origin(&Cors::Nobody, bad), "{bad}");
            assert!(origin(&Cors::Everybody, bad), "{bad}");
        }
        assert!(origin(&listed, "https://app.example"));
        assert!(!origin(&listed, "http://app.example"));
    }

    #[test]
    fn pages_of_other_servers_are_told_by_the_browser() {
        let names = Names::new(false, Some("https://box.example"));
        let listed = Cors::parse(&["https://app.example"]).unwrap();
        let own = ("host", "localhost:8765");
        for (site, origin, allowed_by_nobody, allowed_by_list) in [
            ("none", None, true, true),
            ("same-origin", None, true, true),
            ("same-origin", Some("http://localhost:8765"), true, true),
            ("same-origin", Some("https://evil.example"), false, false),
            ("same-site", None, false, false),
            ("same-site", Some("http://localhost:3000"), false, false),
            ("cross-site", None, false, false),
            ("cross-site", Some("http://localhost:8765"), false, false),
            ("cross-site", Some("https://app.example"), false, true),
            ("cross-site", Some("null"), false, false),
            ("Same-Origin", None, false, false),
            ("", None, false, false),
            ("something-new", None, false, false),
        ] {
            let mut pairs = vec![own, ("sec-fetch-site", site)];
            pairs.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(check(&names, &Cors::Nobody, "/", &pairs), allowed_by_nobody, "{pairs:?}");
            assert_eq!(check(&names, &listed, "/", &pairs), allowed_by_list, "{pairs:?}");
            assert!(check(&names, &Cors::Everybody, "/", &pairs), "{pairs:?}");
            assert!(check(&Names::new(true, None), &Cors::Nobody, "/", &pairs), "{pairs:?}");
        }
        let twice = [own, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
        assert!(!check(&names, &Cors::Nobody, "/", &twice));
    }
}
