//! The one place that opens outbound connections.
//!
//! Every connector has a policy. URLs that the operator gives may lead anywhere; those that tenants give may lead only
//! where a [`Guard`] lets them. Whatever the policy: redirects are not followed, the proxy variables of the environment
//! are not read, fragments are not sent, and bodies and times have caps.

mod guard;
mod local;
mod steady;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use url::{Host, Url};

use self::{
    guard::{Checked, Reach},
    local::Local,
};
pub use self::{
    guard::{Guard, Refusal, Resolve},
    local::LocalServer,
    steady::Steady,
};
use crate::{Error, Secret, binding::Endpoint, credential::bearer, wire};

/// How long the check of a URL waits for its name. Whoever registers it waits as long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

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
    // Plain HTTP must work where no root certificates are installed, and should not pay for loading them.
    plain: OnceLock<reqwest::Client>,
    tls: OnceLock<reqwest::Client>,
    // Without TLS nobody can ask the other side whether it speaks HTTP/2.
    plain_http2: OnceLock<reqwest::Client>,
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
    body: reqwest::Body,
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
        let origin = request.url.origin().ascii_serialization();
        let timeout = self.inner.limits.total_timeout;
        let local = self.inner.local.iter().find_map(|local| local.by_name(request.url, self.inner.limits).transpose());
        let (url, http) = match local.transpose()? {
            Some(named) => named,
            None => (request.url.clone(), self.http(request.url, request.http2, reach)?),
        };
        let mut outbound = http.request(request.method, url);
        if let Some(token) = request.token {
            outbound = outbound.header(header::AUTHORIZATION, bearer(token)?);
        }
        for (name, value) in request.headers {
            outbound = outbound.header(name, value);
        }
        if let Some(body) = request.body {
            outbound = outbound.body(body);
        }
        if let Some(limit) = timeout.filter(|_| !request.streaming) {
            outbound = outbound.timeout(limit);
        }
        let sent = outbound.send();
        let answer = match timeout {
            Some(limit) => match tokio::time::timeout(limit, sent).await {
                Ok(answer) => answer,
                Err(_) => return Err(Error::Timeout { origin, after: limit }),
            },
            None => sent.await,
        };
        let inner = answer.map_err(|error| network_error(error, &origin, self.inner.limits))?;
        wire::answered(inner.status(), inner.headers());
        Ok(Response {
            status: inner.status(),
            headers: inner.headers().clone(),
            origin,
            url: shown(inner.url()),
            limits: self.inner.limits,
            body: inner.into(),
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

    fn http(&self, url: &Url, http2: bool, reach: Reach) -> Result<&reqwest::Client, Error> {
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
        let mut builder = builder(self.inner.limits);
        if let Policy::Tenant(guard) = &self.inner.policy {
            // Who answers there is a stranger: no connection is kept for it once it has answered, which could be many and cost on,
            // and where it might choose it speaks the simpler protocol.
            builder = builder.dns_resolver(Checked::new(guard, reach)).pool_max_idle_per_host(0);
            if secure {
                builder = builder.http1_only();
            }
        }
        if let Policy::Remote(steady) = &self.inner.policy {
            builder = builder.dns_resolver(steady::Watched(Arc::clone(steady)));
        }
        if !secure {
            builder = builder.tls_certs_only([]);
        }
        if http2 && !secure {
            builder = builder.http2_prior_knowledge();
        }
        let client = builder.build().map_err(|error| Error::Setup(Box::new(error)))?;
        Ok(slot.get_or_init(|| client))
    }
}

/// What all clients have in common.
fn builder(limits: Limits) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("switchboard/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(limits.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true)
}

impl Response {
    /// The media type, without parameters, in lower case.
    pub fn media_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
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
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| network_error(error, &self.origin, self.limits))?;
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

fn network_error(error: reqwest::Error, origin: &str, limits: Limits) -> Error {
    // The origin is told by our own error; a URL may hold what should not be shown.
    let error = error.without_url();
    let origin = origin.to_owned();
    if let Some(refusal) = guard::refusal_in(&error) {
        return Error::Forbidden(refusal);
    }
    // Whoever does not even take the connection is not there: what was to be said has not been said.
    if error.is_timeout() && !error.is_connect() {
        return Error::Timeout { origin, after: limits.total_timeout.unwrap_or(limits.connect_timeout) };
    }
    if error.is_builder() {
        return Error::Setup(Box::new(error));
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
