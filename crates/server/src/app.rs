//! All surfaces together, and what every request goes through: name check, CORS, log line, panic guard.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use a2a::{Error, ErrorKind};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
    routing::{any, post},
};
use exchange::{Call, Caller, Exchange, Luggage, heavy};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Version, header, request::Parts};
use http_body::Body as _;
use tokio::time::Instant;

use crate::{
    admin,
    agent_cards::{self, AgentCard},
    arbiter,
    auth::Auth,
    body::Bounds,
    card_registry,
    cards::Cards,
    chat, contexts,
    cors::Cors,
    feed, grpc, headers,
    limits::{Limits, Peer, RequestSlot, Wire},
    open,
    origin::{self, Names},
    outboxes, own_agents,
    page::Page,
    path::Place,
    progress::{self, Answer, PIECE},
    queue, remotes,
    reply::{self, Tagged},
    requests,
    surface::{mount, serve},
};

/// What all handlers share.
pub(crate) struct App {
    pub(crate) exchange: Exchange,
    pub(crate) readiness: Arc<open::Readiness>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) cards: Cards,
    pub(crate) bounds: Bounds,
    pub(crate) keep_alive: Duration,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    pub(crate) cors: Cors,
    /// The addresses by which clients on this machine reach the server.
    pub(crate) local: origin::Local,
    /// `Strict-Transport-Security`, if it is said.
    pub(crate) hsts: Option<HeaderValue>,
}

/// What proxies say of the request that they hand on.
const ADDED_BY_PROXIES: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

impl App {
    /// The gateway's card, for everybody.
    pub(crate) async fn gateway_card(&self, base: Option<String>) -> Result<Tagged, Error> {
        let everybodys = self.auth.everybody().map(|caller| self.exchange.agents().visible(caller));
        self.cards.reached_at(base).gateway(&everybodys.unwrap_or_default()).await
    }

    /// The base of the URLs on a card for a client on this machine that calls the server by a loopback name, if that is another one than
    /// the base for everybody else. Some clients refuse a card whose URLs have another origin than the card itself.
    ///
    /// A proxy on this machine may use such a name too. It is recognized by the headers that it adds; one that adds none speaks HTTP/1.0.
    pub(crate) fn local_base(&self, parts: &Parts) -> Option<String> {
        let (wire, Peer(peer)) = (parts.extensions.get::<Wire>()?, parts.extensions.get::<Peer>()?);
        let is_direct = peer.is_loopback() && wire.seat.is_counted() && parts.version >= Version::HTTP_11;
        if !is_direct || ADDED_BY_PROXIES.iter().any(|name| parts.headers.contains_key(*name)) {
            return None;
        }
        let base = self.local.base(origin::loopback_name(&parts.uri, &parts.headers)?)?;
        (base != self.cards.base()).then_some(base)
    }

    /// The surroundings of a call.
    pub(crate) fn call(
        &self,
        caller: Caller,
        agent: Option<String>,
        headers: &HeaderMap,
        luggage: &Arc<Luggage>,
    ) -> Result<Call, Error> {
        Ok(Call {
            luggage: Arc::clone(luggage),
            agent,
            extensions: headers::extensions(headers)?,
            idempotency_key: headers::idempotency_key(headers)?,
            origin: headers::origin(headers),
            ..Call::new(caller)
        })
    }
}

impl App {
    /// Reads a request of so many bytes, within the bounds of what callers send.
    pub(crate) fn reading<T>(&self, bytes: usize, read: impl FnOnce() -> T) -> T {
        heavy(bytes, || self.exchange.limits().reading(read))
    }
}

/// All surfaces, that of administration unless it has an address of its own. What is at no other is looked for at the open one.
pub(crate) fn router(app: Arc<App>, with_administration: bool) -> Router {
    let mut router = grpc();
    router = mount::<Place>(router, "/a2a").route("/", post(serve::<Place>).fallback(serve::<Page>));
    router = mount::<arbiter::Route>(router, "/v1/a2a");
    router = mount::<requests::Route>(router, "/v1/requests");
    router = mount::<contexts::Route>(router, "/v1/contexts");
    if with_administration {
        router = mount::<admin::Route>(router, "/v1/admin");
    }
    router = mount::<card_registry::Route>(router, "/v1/cards");
    router = mount::<own_agents::Route>(router, "/v1/agents");
    router = mount::<chat::Route>(router, "/v1/chat");
    router = mount::<feed::Route>(router, "/v1/feed");
    router = shared(router);
    router = mount::<remotes::Callback>(router, "/v1/callbacks");
    for path in agent_cards::PATHS {
        router = router.route(path, any(serve::<AgentCard>));
    }
    for path in open::CARD_PATHS {
        router = router.route(path, any(serve::<open::Open>));
    }
    finish(router, app)
}

/// Administration alone, for an address of its own, with the routes that administrators share with tenants.
pub(crate) fn admin_router(app: Arc<App>) -> Router {
    finish(shared(mount::<admin::Route>(Router::new(), "/v1/admin")), app)
}

/// What tenants ask as well as administrators.
fn shared(mut router: Router<Arc<App>>) -> Router<Arc<App>> {
    router = mount::<outboxes::Route>(router, "/v1/push");
    router = mount::<queue::Route>(router, "/v1/queue");
    mount::<remotes::Route>(router, "/v1/remotes")
}

/// The surfaces of gRPC alone, for a port of its own.
pub(crate) fn grpc_router(app: Arc<App>) -> Router {
    finish(grpc(), app)
}

fn grpc() -> Router<Arc<App>> {
    let mut router = Router::new();
    router = mount::<grpc::Operations>(router, grpc::Operations::PATH);
    router = mount::<grpc::Gateway>(router, grpc::Gateway::PATH);
    router = mount::<grpc::Health>(router, grpc::Health::PATH);
    for path in grpc::Reflection::PATHS {
        router = mount::<grpc::Reflection>(router, path);
    }
    router
}

fn finish(router: Router<Arc<App>>, app: Arc<App>) -> Router {
    router
        .fallback(serve::<open::Open>)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe))
        .with_state(app)
}

/// Lets a request in or not, says which pages may read its answer, logs it when that begins, and answers for a handler
/// that panicked.
///
/// Neither headers nor the query are logged: both may hold secrets.
async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let version = request.version();
    let sender = app.cors.sender(&method, request.uri(), request.headers());
    // The header is about all ports of a host, so on loopback it would be about servers of others.
    let hsts = app.hsts.clone().filter(|_| origin::loopback_name(request.uri(), request.headers()).is_none());
    let entered = enter(&app, &request);
    let mut response = match &entered {
        // Its body stays unread.
        Err(error) => closing(reply::error(error), version),
        Ok(slot) => {
            if let Some(slot) = slot {
                request.extensions_mut().insert(Arc::clone(slot));
            }
            match AssertUnwindSafe(unless_evicted(slot.as_deref(), next.run(request))).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => closing(reply::error(&error), version),
                Err(_panic) => {
                    tracing::error!(%method, path, "a handler panicked");
                    reply::error(&Error::internal("internal error"))
                }
            }
        }
    };
    if let Some(sender) = sender {
        app.cors.mark(sender, &mut response);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(hsts) = hsts {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts);
    }
    if method == Method::HEAD {
        response = without_body(response);
    }
    // Who is not let in is answered as often as they like, and not worth a line each time.
    let is_worth_a_line = entered.is_ok();
    let slot = entered.ok().flatten();
    if slot.as_ref().is_some_and(|slot| slot.is_only()) {
        response = closing(response, version);
    }
    let status = response.status().as_u16();
    let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    if status >= 500 && is_worth_a_line {
        tracing::warn!(%method, path, status, duration_ms, "{method} {path} answered {status}");
    } else {
        tracing::debug!(%method, path, status, duration_ms, "{method} {path} answered {status}");
    }
    if let Some(evicted) = slot.as_deref().and_then(RequestSlot::pooled) {
        progress::end_when(evicted);
    }
    // HTTP/1 has a queue of its own for what is large; see `progress` for HTTP/2.
    let piece = if version < Version::HTTP_2 { usize::MAX } else { PIECE };
    response.map(|body| Body::new(Answer::new(body, piece, slot)))
}

/// The response, unless the request has to end because the pool that it is counted in is full.
async fn unless_evicted(
    slot: Option<&RequestSlot>,
    response: impl Future<Output = Response>,
) -> Result<Response, Error> {
    let Some(slot) = slot else { return Ok(response.await) };
    tokio::select! {
        biased;
        response = response => Ok(response),
        () = slot.evicted().cancelled() => Err(slot.gave_way()),
    }
}

/// Begins a request, or refuses it: for a name that is none of this server's, or on a connection that is reserved for operators. It is
/// counted where its caller is known ([`crate::surface`]).
fn enter(app: &App, request: &Request) -> Result<Option<Arc<RequestSlot>>, Error> {
    app.names.check(&app.cors, request.uri(), request.headers())?;
    let extensions = request.extensions();
    let (Some(wire), Some(peer)) = (extensions.get::<Wire>(), extensions.get::<Peer>()) else { return Ok(None) };
    if wire.seat.is_reserved() && !is_for_operators(request.uri().path()) {
        let message = "all connections are taken; try again in 1 s";
        return Err(Error::new(ErrorKind::Unavailable, message).with_retry_after(1));
    }
    let path = request.uri().path();
    // The check of gRPC has a body, which may take its time.
    wire.begin(*peer, is_for_operators(path) && !path.starts_with(grpc::Health::PATH)).map(Some)
}

/// What is answered when there is no place for anything else: health and administration.
fn is_for_operators(path: &str) -> bool {
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path == "/healthz" || path == "/readyz" || path == "/grpc.health.v1.Health/Check" || below("/v1/admin")
}

/// Says that the connection ends with this answer. On HTTP/2 the header means nothing and is left out.
fn closing(mut response: Response, version: Version) -> Response {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer to HEAD: what GET would say of its body, without it.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact().filter(|_| !parts.status.is_redirection()) {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, Body::empty())
}
