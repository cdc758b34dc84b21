//! All surfaces together, and what every request goes through: name check, CORS, log line, panic guard.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use a2a::Error;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
    routing::any,
};
use exchange::{Call, Caller, Exchange};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Version, header};
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
    grpc, headers,
    limits::Limits,
    open,
    origin::Names,
    outboxes, own_agents,
    path::Place,
    queue, remotes,
    reply::{self, Tagged},
    requests,
    surface::{mount, serve},
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
    /// The gateway's card, for everybody.
    pub(crate) async fn gateway_card(&self) -> Result<Tagged, Error> {
        let everybodys = self.auth.everybody().map(|caller| self.exchange.agents().visible(caller));
        self.cards.gateway(&everybodys.unwrap_or_default()).await
    }

    /// The surroundings of a call.
    pub(crate) fn call(&self, caller: Caller, agent: Option<String>, headers: &HeaderMap) -> Result<Call, Error> {
        Ok(Call {
            agent,
            extensions: headers::extensions(headers),
            idempotency_key: headers::idempotency_key(headers)?,
            origin: headers::origin(headers),
            ..Call::new(caller)
        })
    }
}

/// All surfaces. What is at no other is looked for at the open one.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = grpc();
    router = mount::<Place>(router, "/a2a").route("/", any(serve::<Place>));
    router = mount::<arbiter::Route>(router, "/v1/a2a");
    router = mount::<requests::Route>(router, "/v1/requests");
    router = mount::<contexts::Route>(router, "/v1/contexts");
    router = mount::<admin::Route>(router, "/v1/admin");
    router = mount::<card_registry::Route>(router, "/v1/cards");
    router = mount::<own_agents::Route>(router, "/v1/agents");
    router = mount::<outboxes::Route>(router, "/v1/push");
    router = mount::<queue::Route>(router, "/v1/queue");
    router = mount::<chat::Route>(router, "/v1/chat");
    router = mount::<remotes::Route>(router, "/v1/remotes");
    router = mount::<remotes::Callback>(router, "/v1/callbacks");
    for path in agent_cards::PATHS {
        router = router.route(path, any(serve::<AgentCard>));
    }
    finish(router, app)
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
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let sender = app.cors.sender(&method, request.uri(), request.headers());
    let mut response = match app.names.check(&app.cors, request.uri(), request.headers()) {
        // Its body stays unread. On HTTP/2 the header means nothing and is left out.
        Err(error) => {
            let mut response = reply::error(&error);
            if request.version() < Version::HTTP_2 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(_panic) => {
                tracing::error!(%method, path, "a handler panicked");
                reply::error(&Error::internal("internal error"))
            }
        },
    };
    if let Some(sender) = sender {
        app.cors.mark(sender, &mut response);
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
