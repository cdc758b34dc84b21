//! The one place that opens outbound connections.
//!
//! Every connector has a policy. URLs that the operator gives may lead anywhere; those that tenants give may lead only
//! where a [`Guard`] lets them. Whatever the policy: redirects are not followed, the proxy variables of the environment
//! are not read, fragments are not sent, and bodies and times have caps.

mod guard;
mod interim;
mod local;
mod lookups;
mod steady;
mod tls;
mod transport;

use std::{
    error::Error as StdError,
    sync::{Arc, OnceLock},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

pub(crate) use self::interim::Bounded;
use self::{
    guard::{Checked, Reach},
    local::Local,
    transport::{Protocol, Resolver, is_refused, is_timeout},
};
pub use self::{
    guard::{Guard, Refusal, Resolve},
    local::LocalServer,
    lookups::{Lookups, for_tenant},
    steady::Steady,
    tls::TlsProblem,
};
use crate::{Error, Secret, binding::Endpoint, credential::bearer, wire};

/// How long the check of a URL waits for its name. Whoever registers it waits as long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// The name and version of this program.
const USER_AGENT: &str = concat!("switchboard/", env!("CARGO_PKG_VERSION"));
/// How often a request is sent again that the other side has refused because its connection was about to end.
const MAX_REFUSALS: usize = 2;

/// Whose URLs a connector follows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Policy {
    /// Given by whoever runs this program: any address is allowed.
    Operator,
    /// Remotes that whoever runs this program has named: any address is allowed, but a name that has led outside does not lead inside
    /// later.
    Remote(Arc<Steady>),
    /// Given by tenants, whom nobody trusts with the network of this machine: only what the guard lets through.
    Tenant(Arc<Guard>),
}

/// Caps on what an outbound call may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For connecting, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// For a whole call that is not a stream; for a stream, until its headers are there.
    pub total_timeout: Option<Duration>,
    /// For a body that is read whole.
    pub body_cap: usize,
    /// For one event of a stream.
    pub event_cap: usize,
    /// Between two pieces of a body that is read whole.
    pub idle_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            total_timeout: None,
            body_cap: 16 * 1024 * 1024,
            event_cap: 16 * 1024 * 1024,
            idle_timeout: None,
        }
    }
}

/// Opens connections. Cheap to clone; clones share the pool.
#[derive(Debug, Clone)]
pub struct Connector {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    policy: Policy,
    limits: Limits,
    // A client judges the names that it resolves for one reach, and shares no connection with the other.
    anywhere: Clients,
    allowed: Clients,
    local: Vec<Local>,
}

#[derive(Debug, Default)]
struct Clients {
    plain: OnceLock<transport::Client>,
    tls: OnceLock<transport::Client>,
    // Without TLS nobody can ask the other side whether it speaks HTTP/2.
    plain_http2: OnceLock<transport::Client>,
}

/// A request to send.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The verb.
    pub method: Method,
    /// Where to.
    pub url: &'a Url,
    /// A bearer token.
    pub token: Option<&'a Secret>,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// It is answered with a stream: the total timeout ends with the headers.
    pub streaming: bool,
    /// It needs HTTP/2.
    pub http2: bool,
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    origin: String,
    /// Where it came from, for people.
    url: String,
    limits: Limits,
    body: Incoming,
    /// When the whole body has to be there.
    deadline: Option<Instant>,
    trailers: HeaderMap,
}

impl Connector {
    /// A connector with a policy.
    pub fn new(policy: Policy, limits: Limits) -> Self {
        Self::with(policy, limits, Vec::new())
    }

    /// A connector for an operator's URLs that calls these servers where they listen, whatever their cards say.
    pub fn with_local(limits: Limits, servers: impl IntoIterator<Item = LocalServer>) -> Self {
        Self::with(Policy::Operator, limits, servers.into_iter().map(Local::new).collect())
    }

    fn with(policy: Policy, limits: Limits, local: Vec<Local>) -> Self {
        let (anywhere, allowed) = Default::default();
        Self { inner: Arc::new(Inner { policy, limits, anywhere, allowed, local }) }
    }

    /// Makes an interface lead to the address that its server listens on, if the card is that of a local server.
    pub(crate) fn localize(&self, card: &Url, endpoint: &mut Endpoint) {
        if let Some(local) = self.inner.local.iter().find(|local| local.is_at(card)) {
            local.localize(endpoint);
        }
    }

    /// The caps on what its calls may cost.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Whether the policy lets anyone call this URL, for when it is registered. A name that does not resolve now, or not
    /// soon, passes: `send` checks what it resolves to whenever it connects, and that is the check that protects.
    pub async fn check_url(&self, url: &Url) -> Result<(), Error> {
        let reach = self.check(url)?;
        let Policy::Tenant(guard) = &self.inner.policy else { return Ok(()) };
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        let Ok(Ok(addresses)) = tokio::time::timeout(LOOKUP_TIMEOUT, guard.look_up(name)).await else { return Ok(()) };
        guard.judge(&addresses, reach).map_err(Error::Forbidden)
    }

    /// Sends a request and waits for the answer's headers.
    pub async fn send(&self, request: Request<'_>) -> Result<Response, Error> {
        let reach = self.check(request.url)?;
        wire::sent(&request);
        let (url, is_stream) = (request.url, request.streaming);
        let origin = url.origin().ascii_serialization();
        let limit = self.inner.limits.total_timeout;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let local = self.inner.local.iter().find_map(|local| local.by_name(url, self.inner.limits).transpose());
        let (outbound, client) = match local.transpose()? {
            Some((named, client)) => (outbound(Request { url: &named, ..request })?, client),
            None => {
                let client = self.http(url, request.http2, reach)?;
                (outbound(request)?, client)
            }
        };
        let mut refusals = 0;
        let sent = async {
            loop {
                match client.request(outbound.clone()).await {
                    Err(error) if is_refused(&error) && refusals < MAX_REFUSALS => refusals += 1,
                    answered => return answered,
                }
            }
        };
        let answered = match (deadline, limit) {
            (Some(deadline), Some(after)) => match timeout_at(deadline, sent).await {
                Ok(answered) => answered,
                Err(_) => return Err(Error::Timeout { origin, after }),
            },
            _ => sent.await,
        };
        let answer = answered.map_err(|error| {
            // The name that the certificate was to be for.
            let connecting_to = outbound.uri().host().filter(|_| error.is_connect());
            network_error(error, connecting_to, &origin, self.inner.limits)
        })?;
        let (head, body) = answer.into_parts();
        wire::answered(head.status, &head.headers);
        Ok(Response {
            status: head.status,
            headers: head.headers,
            origin,
            url: shown(url),
            limits: self.inner.limits,
            body,
            deadline: deadline.filter(|_| !is_stream),
            trailers: HeaderMap::new(),
        })
    }

    /// Whether the policy lets anyone call this URL as far as it tells itself, names being checked when they are resolved.
    /// What it may reach then.
    fn check(&self, url: &Url) -> Result<Reach, Error> {
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(Error::Url { url: shown(url), reason: "only http and https are spoken".to_owned() });
        }
        match &self.inner.policy {
            Policy::Operator | Policy::Remote(_) => Ok(Reach::Anywhere),
            Policy::Tenant(guard) => guard.check(url),
        }
    }

    fn http(&self, url: &Url, http2: bool, reach: Reach) -> Result<&transport::Client, Error> {
        let secure = url.scheme() == "https";
        let clients = match reach {
            Reach::Anywhere => &self.inner.anywhere,
            Reach::Allowed => &self.inner.allowed,
        };
        let slot = match (secure, http2) {
            (true, _) => &clients.tls,
            (false, true) => &clients.plain_http2,
            (false, false) => &clients.plain,
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let resolver = match &self.inner.policy {
            Policy::Operator => Resolver::Any(Guard::default().resolver),
            Policy::Remote(steady) => Resolver::Steady(steady::Watched(Arc::clone(steady))),
            Policy::Tenant(guard) => Resolver::Checked(Checked::new(guard, reach)),
        };
        let is_stranger = matches!(self.inner.policy, Policy::Tenant(_));
        let protocol = Protocol { is_secure: secure, is_http2: http2, is_stranger };
        let client = transport::client(protocol, resolver, self.inner.limits.connect_timeout).map_err(Error::Setup)?;
        Ok(slot.get_or_init(|| client))
    }
}

impl Response {
    /// The media type, without parameters, in lower case.
    pub fn media_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The same answer with a smaller cap for its body.
    pub(crate) fn capped(mut self, cap: usize) -> Self {
        self.limits.body_cap = self.limits.body_cap.min(cap);
        self
    }

    /// The whole body, up to the cap.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        self.read().await
    }

    /// The same, when something is to be asked of the answer afterwards.
    pub(crate) async fn read(&mut self) -> Result<Bytes, Error> {
        // It may never end.
        if self.status.is_success() && self.media_type() == "text/event-stream" {
            return Err(Error::Stream { url: self.url.clone() });
        }
        let cap = self.limits.body_cap;
        let too_large = Error::TooLarge { cap };
        if self.body.size_hint().lower() > cap as u64 {
            return Err(too_large);
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk_in_time().await? {
            if body.len() + chunk.len() > cap {
                return Err(too_large);
            }
            body.extend_from_slice(&chunk);
        }
        wire::came(&body);
        Ok(body.freeze())
    }

    /// The next piece of a body that should not pause for long.
    async fn chunk_in_time(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(after) = self.limits.idle_timeout else { return self.chunk().await };
        match tokio::time::timeout(after, self.chunk()).await {
            Ok(chunk) => chunk,
            Err(_) => Err(Error::Timeout { origin: self.origin.clone(), after }),
        }
    }

    /// The next piece of the body. `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let (Some(deadline), Some(after)) = (self.deadline, self.limits.total_timeout) else {
            return self.piece().await;
        };
        // A piece that is there already would pass the timeout.
        if Instant::now() < deadline
            && let Ok(piece) = timeout_at(deadline, self.piece()).await
        {
            return piece;
        }
        Err(Error::Timeout { origin: self.origin.clone(), after })
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| network_error(error, None, &self.origin, self.limits))?;
            match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        Ok(None)
    }

    /// The headers that came after the body, once that was read.
    pub(crate) fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }
}

/// A URL for people: without a password and without the query, where some put tokens.
pub(crate) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // Fails only for URLs that have no place for credentials.
    let _ = shown.set_password(None);
    let _ = shown.set_username("");
    shown.to_string()
}

/// The request as it is sent.
fn outbound(request: Request<'_>) -> Result<http::Request<Full<Bytes>>, Error> {
    let url = request.url;
    let unusable = |reason: &dyn std::fmt::Display| Error::Url { url: shown(url), reason: reason.to_string() };
    let mut bare = url.clone();
    bare.set_fragment(None);
    // Fails only for URLs that have no place for credentials.
    let _ = bare.set_password(None);
    let _ = bare.set_username("");
    let uri: Uri = bare.as_str().parse().map_err(|error| unusable(&error))?;
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers {
        headers.append(name, value);
    }
    if let Some(token) = request.token {
        headers.append(header::AUTHORIZATION, bearer(token)?);
    }
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some(value) = credentials(url)
    {
        headers.insert(header::AUTHORIZATION, value);
    }
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    let mut outbound = http::Request::new(Full::from(request.body.unwrap_or_default()));
    *outbound.method_mut() = request.method;
    *outbound.uri_mut() = uri;
    *outbound.headers_mut() = headers;
    Ok(outbound)
}

/// The `Authorization` header for the user name and the password of a URL.
fn credentials(url: &Url) -> Option<HeaderValue> {
    let password = url.password();
    if url.username().is_empty() && password.is_none() {
        return None;
    }
    let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [decode(url.username()), b":".to_vec(), decode(password.unwrap_or_default())].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn network_error(
    error: impl StdError + Send + Sync + 'static,
    connecting_to: Option<&str>,
    origin: &str,
    limits: Limits,
) -> Error {
    let origin = origin.to_owned();
    if let Some(refusal) = guard::refusal_in(&error) {
        return Error::Forbidden(refusal);
    }
    if let Some(flood) = interim::flood_in(&error) {
        return Error::Malformed(flood);
    }
    let problem = match connecting_to {
        Some(host) => TlsProblem::of_connecting(&error, host),
        None => tls::is_answered_in_tls(&error).then_some(TlsProblem::SpeaksTls),
    };
    if let Some(problem) = problem {
        return Error::Tls { origin, problem };
    }
    // Whoever does not even take the connection is not there: what was to be said has not been said.
    if is_timeout(&error) && connecting_to.is_none() {
        return Error::Timeout { origin, after: limits.total_timeout.unwrap_or(limits.connect_timeout) };
    }
    Error::Unreachable { origin, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector() -> Connector {
        Connector::new(Policy::Operator, Limits::default())
    }

    #[test]
    fn only_http_is_spoken() {
        for url in ["ftp://example.org/", "file:///etc/passwd", "data:,x"] {
            assert!(matches!(connector().check(&Url::parse(url).unwrap()), Err(Error::Url { .. })), "{url}");
        }
        assert!(connector().check(&Url::parse("http://127.0.0.1/").unwrap()).is_ok());
    }

    #[test]
    fn a_shown_url_has_no_credentials() {
        let url = Url::parse("https://user:pass@example.org/a?token=t#f").unwrap();
        assert_eq!(shown(&url), "https://example.org/a");
    }

    #[test]
    fn credentials_of_a_url_are_sent_as_a_header() {
        let of = |url: &str| credentials(&Url::parse(url).unwrap());
        assert_eq!(of("http://h/"), None);
        assert_eq!(of("http://user:p%40ss@h/").unwrap(), "Basic dXNlcjpwQHNz");
        assert_eq!(of("http://user@h/").unwrap(), "Basic dXNlcjo=");
    }

    #[tokio::test]
    async fn a_closed_port_is_unreachable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        drop(listener);
        let request = Request {
            method: Method::GET,
            url: &url,
            token: None,
            headers: vec![],
            body: None,
            streaming: false,
            http2: false,
        };
        assert!(matches!(connector().send(request).await, Err(Error::Unreachable { .. })));
    }
}
