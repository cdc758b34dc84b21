//! The routes, and what every request goes through: identification, method check, log line, panic guard.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use a2a::{Error, PROTOCOL_VERSION};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
    routing::any,
};
use exchange::{Call, Caller, Exchange, Rules};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body::Body as _;
use tokio::time::Instant;

use crate::{
    admin,
    auth::Auth,
    body::Bounds,
    cards::Cards,
    cors::Cors,
    headers, health,
    limits::Limits,
    origin::Names,
    path::{Place, Resource, allows},
    reply, rest,
    rpc::{self, Contract},
    v1,
};

/// What all handlers share.
pub(crate) struct App {
    pub(crate) exchange: Exchange,
    pub(crate) auth: Auth,
    pub(crate) cards: Cards,
    pub(crate) bounds: Bounds,
    pub(crate) keep_alive: Duration,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    pub(crate) cors: Cors,
}

impl App {
    /// The surroundings of a call.
    pub(crate) fn call(&self, caller: Caller, agent: Option<String>, headers: &HeaderMap) -> Result<Call, Error> {
        Ok(Call {
            caller,
            agent,
            extensions: headers::extensions(headers),
            idempotency_key: headers::idempotency_key(headers)?,
            rules: Rules::default(),
        })
    }
}

/// All routes. Handlers check methods themselves, so that 405 looks like every other error.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", any(health::live))
        .route("/readyz", any(health::ready))
        .route("/.well-known/agent-card.json", any(public_card))
        // What stands under `/a2a` has colons inside its segments, which routes here cannot have.
        .route("/a2a", any(surface))
        .route("/a2a/", any(surface))
        .route("/a2a/{*path}", any(surface))
        .route("/v1/a2a", any(v1::surface))
        .route("/v1/a2a/", any(v1::surface))
        .route("/v1/a2a/{*path}", any(v1::surface))
        .route("/v1/requests", any(v1::surface))
        .route("/v1/requests/", any(v1::surface))
        .route("/v1/requests/{*path}", any(v1::surface))
        .route("/v1/admin/{*path}", any(admin::surface))
        .fallback(async || reply::no_route())
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe))
        .with_state(app)
}

async fn public_card(State(app): State<Arc<App>>, method: Method, headers: HeaderMap) -> Response {
    let allow = Resource::AgentCard.allow();
    if method == Method::OPTIONS {
        return reply::options(allow);
    }
    if !allows(allow, &method) {
        return reply::wrong_method(allow);
    }
    reply::cacheable(&headers, app.cards.gateway(), reply::JSON, "public, max-age=60", None)
}

/// Everything under `/a2a`.
async fn surface(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = at_place(&app, &parts, body).await;
    // What answers in another version has said so.
    let version = HeaderValue::from_static(PROTOCOL_VERSION);
    response.headers_mut().entry(headers::A2A_VERSION).or_insert(version);
    response
}

async fn at_place(app: &App, parts: &http::request::Parts, body: Body) -> Response {
    let place = Place::parse(parts.uri.path());
    let caller = match admit(app, parts, place.as_ref().map(|place| place.resource.allow())).await {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let Some(place) = place else {
        return reply::no_route();
    };
    match place.resource {
        Resource::JsonRpc => rpc::answer(app, Contract::A2a, caller, place.agent, parts, body).await,
        _ => rest::answer(app, caller, place, parts, body).await,
    }
}

/// The caller of a request whose path answers the methods of `allow`; none for a path that is no route. An error is the
/// answer to send. Who may not come in does not learn which routes there are.
pub(crate) async fn admit(
    app: &App,
    parts: &http::request::Parts,
    allow: Option<&'static str>,
) -> Result<Caller, Box<Response>> {
    if parts.method == Method::OPTIONS {
        return Err(Box::new(allow.map_or_else(reply::no_route, reply::options)));
    }
    let refuse = |error: Error| Box::new(reply::error(&error));
    let known = app.auth.caller(&parts.headers).await;
    let caller = known.map_err(|error| refuse(app.limits.failure(&parts.extensions, error)))?;
    app.limits.request(caller.tenant).map_err(refuse)?;
    match allow {
        None => Err(Box::new(reply::no_route())),
        Some(allow) if !allows(allow, &parts.method) => Err(Box::new(reply::wrong_method(allow))),
        Some(_) => Ok(caller),
    }
}

/// Lets a request in or not, says which pages may read its answer, logs it when that begins, and answers for a handler
/// that panicked.
///
/// Neither headers nor the query are logged: both may hold secrets.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let asked = app.cors.asked(&method, request.uri(), request.headers());
    let mut response = match app.names.check(&app.cors, request.uri(), request.headers()) {
        Err(error) => reply::error(&error),
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(_panic) => {
                tracing::error!(%method, path, "a handler panicked");
                reply::error(&Error::internal("internal error"))
            }
        },
    };
    if let Some(asked) = asked {
        app.cors.answer(asked, &mut response);
    }
    if method == Method::HEAD {
        response = without_body(response);
    }
    let status = response.status().as_u16();
    let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(%method, path, status, duration_ms, "{method} {path} answered {status}");
    } else {
        tracing::debug!(%method, path, status, duration_ms, "{method} {path} answered {status}");
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
