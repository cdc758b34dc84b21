//! Which web pages may call, as browsers ask it. By default none: no header of this kind is ever sent.
//!
//! Callers identify themselves with headers that a page has to set, never with cookies, so that credentials in the
//! browser's sense are not needed and not allowed. Administration is for no other page than its own.

use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

/// The headers that a page may send: those that are read here.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, If-None-Match, Last-Event-ID, Idempotency-Key, A2A-Version, A2A-Extensions, \
     X-A2A-Extensions, X-API-Key, x-sb-token",
);
/// The headers that a page may read, beside those that it always may.
const RESPONSE_HEADERS: HeaderValue =
    HeaderValue::from_static("ETag, A2A-Version, A2A-Extensions, X-A2A-Extensions, Retry-After");
/// How long a browser remembers what it may do, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

const ADMINISTRATION: &str = "/v1/admin";

/// Which pages may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cors {
    /// None.
    #[default]
    Nobody,
    /// Those of these origins, in the form in which browsers send them.
    Only(Vec<String>),
    /// All.
    Everybody,
}

/// What a request says about the page it comes from.
#[derive(Debug)]
pub(crate) struct Sender {
    origin: Option<HeaderValue>,
    is_preflight: bool,
}

impl Cors {
    /// Reads a list of origins such as `https://app.example.org`, or one `*` for all. The error says which is none.
    pub fn parse<S: AsRef<str>>(origins: &[S]) -> Result<Self, String> {
        let mut only = Vec::new();
        for text in origins.iter().map(AsRef::as_ref) {
            if text == "*" {
                if origins.len() > 1 {
                    return Err("`*` means every origin: it has to stand alone".to_owned());
                }
                return Ok(Self::Everybody);
            }
            let origin = normal(text);
            only.push(origin.ok_or_else(|| {
                format!("`{text}` is not an origin: write scheme and host, such as https://app.example.org")
            })?);
        }
        Ok(if only.is_empty() { Self::Nobody } else { Self::Only(only) })
    }

    /// Whether pages of this origin may call.
    pub(crate) fn allows(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Nobody => false,
            Self::Only(origins) => origins.iter().any(|known| known.as_bytes() == origin.as_bytes()),
            Self::Everybody => true,
        }
    }

    /// What a request asks of this; `None` when no answer depends on it.
    pub(crate) fn sender(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Sender> {
        if *self == Self::Nobody || uri.path().starts_with(ADMINISTRATION) {
            return None;
        }
        let origin = headers.get(header::ORIGIN).filter(|origin| self.allows(origin)).cloned();
        let is_preflight = method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        Some(Sender { origin, is_preflight })
    }

    /// Says in the answer what the page may do with it.
    pub(crate) fn mark(&self, sender: Sender, response: &mut Response) {
        let status = response.status();
        let headers = response.headers_mut();
        if *self != Self::Everybody {
            // A cache must not give one page the answer that was meant for another.
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        let Some(origin) = sender.origin else { return };
        let allowed = if *self == Self::Everybody { HeaderValue::from_static("*") } else { origin };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        if !sender.is_preflight {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
            return;
        }
        if status == StatusCode::NO_CONTENT
            && let Some(methods) = headers.get(header::ALLOW).cloned()
        {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
    }
}

/// An origin as browsers write it: lower case, and without the port that its scheme implies.
fn normal(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let uri: Uri = format!("{scheme}://{authority}/").parse().ok()?;
    let is_plain = uri.path() == "/" && uri.query().is_none() && !authority.contains(['@', '*', '/', '?', '#']);
    let host = uri.host().filter(|host| !host.is_empty() && is_plain)?.to_ascii_lowercase();
    let scheme = scheme.to_ascii_lowercase();
    let port: Option<u16> = match authority.get(host.len()..)? {
        "" => None,
        text => Some(text.strip_prefix(':')?.parse().ok()?),
    };
    Some(match (scheme.as_str(), port) {
        (_, None) | ("http", Some(80)) | ("https", Some(443)) => format!("{scheme}://{host}"),
        (_, Some(port)) => format!("{scheme}://{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_as_browsers_write_them() {
        for (text, origin) in [
            ("https://app.example.org", "https://app.example.org"),
            ("https://App.Example.org/", "https://app.example.org"),
            ("HTTPS://a:443", "https://a"),
            ("http://a:80", "http://a"),
            ("http://a:8080", "http://a:8080"),
            ("http://[::1]:3000", "http://[::1]:3000"),
        ] {
            assert_eq!(Cors::parse(&[text]), Ok(Cors::Only(vec![origin.to_owned()])), "{text}");
        }
        for text in [
            "",
            "null",
            "app.example.org",
            "https://",
            "https://a/b",
            "https://a?b",
            "https://a#b",
            "https://u@a",
            "https://*.example.org",
            "https://a:x",
            "https://a b",
        ] {
            assert!(Cors::parse(&[text]).is_err(), "{text}");
        }
        assert_eq!(Cors::parse(&["*"]), Ok(Cors::Everybody));
        assert_eq!(Cors::parse::<&str>(&[]), Ok(Cors::Nobody));
        assert!(Cors::parse(&["*", "https://a"]).is_err());
    }

    #[test]
    fn only_those_who_are_named_are_allowed() {
        let cors = Cors::parse(&["https://a"]).unwrap();
        let allows = |origin| cors.allows(&HeaderValue::from_static(origin));
        assert!(allows("https://a"));
        for other in ["http://a", "https://a.b", "https://b", "null", "https://a:8443", "*", ""] {
            assert!(!allows(other), "{other}");
        }
    }
}
