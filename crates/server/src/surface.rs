//! The skeleton of every surface: which paths and methods it has, who comes in, and in which order that is found out.
//!
//! A [`Surface`] is a family of routes. It says what a path names, which methods that answers and who may call;
//! [`serve`] does the rest, the same for all of them. In this order: OPTIONS is answered without a credential,
//! so that browsers can ask; then the caller is let in or not, before anybody learns which routes there are; then 404, then
//! 405. The body is read last, by the route that wants one, since the checks of a binding come before it. What nobody has read of
//! it then is read here, or the answer says that the connection is closed.

use std::sync::Arc;

use a2a::{Error, ErrorKind};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::any,
};
use bytes::Bytes;
use exchange::{Caller, Luggage, Pass};
use http::{HeaderMap, HeaderValue, Method, Version, header, request::Parts};
use http_body::Body as _;
use store::TenantId;
use tokio_util::sync::CancellationToken;

use crate::{
    app::App,
    body::{self, Bounds, Hold},
    headers::{self, Media},
    limits::{RequestSlot, Sender, Wire},
    path,
    query::Query,
    reply,
};

/// A family of routes; a value of it is one of them, with what its path names.
pub(crate) trait Surface: Sized + Send + 'static {
    /// Who may call.
    type Caller: Admit;

    /// How often each byte of a request or an answer is in memory at once. What is more than one stands for another form of it.
    const WEIGHT: u64 = 1;

    /// The length of a body by its first bytes, where they tell it.
    fn promised(_first: &[u8]) -> Option<usize> {
        None
    }

    /// Reads the segments of a path, which are decoded. `None` is no route.
    fn at(segments: &[&str]) -> Option<Self>;

    /// The methods that it answers, as the `Allow` header names them.
    fn allow(&self) -> &'static str;

    /// Answers a request by one of its methods.
    fn answer(self, visit: Visit<'_, Self::Caller>) -> impl Future<Output = Result<Response, Error>> + Send;

    /// What all its answers say, errors included.
    fn mark(_headers: &mut HeaderMap) {}

    /// An error as its callers read one.
    fn refuse(_parts: &Parts, error: &Error) -> Response {
        reply::error(error)
    }
}

/// Somebody who can be let in, and what is known of them then.
pub(crate) trait Admit: Sized + Send {
    /// Whether all who come are told the same.
    const ALIKE: bool = false;

    fn admit(app: &App, parts: &Parts) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Whose request it is, where it is some tenant's.
    fn tenant(&self) -> Option<TenantId> {
        None
    }

    /// Whether they have said who they are.
    fn is_known(&self) -> bool {
        !Self::ALIKE
    }

    /// As whose the request is counted.
    fn sender(&self) -> Sender {
        match self.tenant() {
            Some(tenant) => Sender::Tenant(tenant),
            None if self.is_known() => Sender::Operator,
            None => Sender::Anonymous,
        }
    }

    /// What they came with, if it can end.
    fn pass(&self) -> Option<Arc<Pass>> {
        None
    }
}

/// The longest body that is read of just anybody.
const SHORT: usize = 4096;

/// Whoever comes.
pub(crate) struct Anybody;

/// Whoever comes, and is known if there is a credential.
pub(crate) enum Guest {
    Known(Caller),
    Unknown,
}

/// A request that was let in.
pub(crate) struct Visit<'a, C> {
    pub(crate) app: &'a App,
    pub(crate) caller: C,
    pub(crate) parts: &'a Parts,
    /// What the request and its answer have in flight.
    pub(crate) luggage: &'a Arc<Luggage>,
    body: &'a mut Body,
    promised: fn(&[u8]) -> Option<usize>,
}

/// Adds a surface to the routes: everything at this path and below it.
pub(crate) fn mount<S: Surface>(mut router: Router<Arc<App>>, below: &str) -> Router<Arc<App>> {
    // Segments can have colons inside, which routes there cannot: what follows is read here.
    for path in [below.to_owned(), format!("{below}/"), format!("{below}/{{*path}}")] {
        router = router.route(&path, any(serve::<S>));
    }
    router
}

/// Answers whatever comes to a surface.
pub(crate) async fn serve<S: Surface>(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let luggage = Arc::new(Luggage::weighing(S::WEIGHT));
    let answered = enter::<S>(&app, &parts, &luggage, &mut body).await;
    let mut response = answered.unwrap_or_else(|error| S::refuse(&parts, &error));
    S::mark(response.headers_mut());
    if !S::Caller::ALIKE {
        reply::keep_private(response.headers_mut());
    }
    if parts.version < Version::HTTP_2 && !body::finish(&parts.headers, &mut body).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    reply::with_luggage(response, luggage)
}

async fn enter<S: Surface>(
    app: &App,
    parts: &Parts,
    luggage: &Arc<Luggage>,
    body: &mut Body,
) -> Result<Response, Error> {
    let route = path::route(parts.uri.path(), S::at);
    if parts.method == Method::OPTIONS {
        count(parts, Sender::Anonymous)?;
        return Ok(reply::options(route.ok_or_else(no_route)?.allow()));
    }
    let admitted = S::Caller::admit(app, parts).await;
    count(parts, admitted.as_ref().map_or(Sender::Anonymous, Admit::sender))?;
    let caller = admitted.map_err(|error| app.limits.failure(parts, error))?;
    if let Some(wire) = parts.extensions.get::<Wire>().filter(|_| caller.is_known()) {
        wire.seat.know();
    }
    let route = route.ok_or_else(no_route)?;
    let allow = route.allow();
    if !allow.split(", ").any(|name| name == parts.method.as_str()) {
        let error = Error::new(ErrorKind::MethodNotAllowed, format!("this path answers {allow}"));
        return Ok(reply::with_allow(reply::error(&error), allow));
    }
    let (pass, tenant) = (caller.pass(), caller.tenant());
    let answered = async {
        let response = route.answer(Visit { app, caller, parts, luggage, body, promised: S::promised }).await?;
        if let Some(bytes) = response.body().size_hint().exact() {
            // What the answer was made of is gone.
            luggage.keep(bytes);
            if let Some(tenant) = tenant.filter(|_| luggage.is_empty()) {
                // What was gathered without being weighed waits here for whoever reads slowly.
                let flight = app.exchange.flight();
                // What has changed something is answered: who is told to try again would find it done.
                let is_safe = parts.method.is_safe();
                let load = if is_safe { flight.take(tenant, bytes).await? } else { flight.count(tenant, bytes) };
                luggage.put(load);
            }
        }
        Ok(response)
    };
    let Some(pass) = pass else { return answered.await };
    // A token that ends while its request waits is as one that was wrong. Whoever asked may go away at any time, so this may too.
    tokio::select! {
        biased;
        answered = answered => answered,
        () = pass.ended().cancelled() => Err(exchange::Error::TokenEnded.into()),
    }
}

/// Counts a request among those that are under way, or refuses it.
fn count(parts: &Parts, sender: Sender) -> Result<(), Error> {
    match parts.extensions.get::<Arc<RequestSlot>>() {
        Some(slot) => slot.count(sender),
        None => Ok(()),
    }
}

fn no_route() -> Error {
    Error::new(ErrorKind::NotFound, "there is nothing at this path")
}

impl Admit for Anybody {
    const ALIKE: bool = true;

    async fn admit(_app: &App, _parts: &Parts) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// A credential that is wrong is refused here as everywhere, so that nobody can try them out.
impl Admit for Guest {
    async fn admit(app: &App, parts: &Parts) -> Result<Self, Error> {
        if app.cards.are_public() && app.auth.is_unknown(&parts.headers) {
            return Ok(Self::Unknown);
        }
        Caller::admit(app, parts).await.map(Self::Known)
    }

    fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Known(caller) => Some(caller.tenant),
            Self::Unknown => None,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

/// A tenant, within its rate.
impl Admit for Caller {
    async fn admit(app: &App, parts: &Parts) -> Result<Self, Error> {
        let caller = app.auth.caller(parts, &app.limits).await?;
        app.limits.request(caller.tenant)?;
        Ok(caller)
    }

    fn tenant(&self) -> Option<TenantId> {
        Some(self.tenant)
    }

    fn pass(&self) -> Option<Arc<Pass>> {
        Some(Arc::clone(&self.pass))
    }
}

impl<C: Admit> Visit<'_, C> {
    pub(crate) fn query(&self) -> Result<Query, Error> {
        Query::parse(self.parts.uri.query())
    }

    /// The body, as it is.
    pub(crate) async fn read(&mut self) -> Result<Bytes, Error> {
        self.read_within(self.app.bounds).await
    }

    /// The body, which is short: for those who have not said who they are.
    pub(crate) async fn read_short(&mut self) -> Result<Bytes, Error> {
        let bounds = Bounds { limit: SHORT, ..self.app.bounds };
        self.read_within(bounds).await
    }

    async fn read_within(&mut self, bounds: Bounds) -> Result<Bytes, Error> {
        let (flight, tenant) = (self.app.exchange.flight(), self.tenant());
        let hold = Hold { flight, tenant, luggage: self.luggage, promised: self.promised };
        body::read(&self.parts.headers, self.body, bounds, hold).await
    }

    /// Cancelled when an anonymous request has to end because there are too many.
    pub(crate) fn evicted(&self) -> CancellationToken {
        let slot = self.parts.extensions.get::<Arc<RequestSlot>>();
        slot.map(|slot| slot.evicted().clone()).unwrap_or_default()
    }

    /// Nobody's requests count together.
    fn tenant(&self) -> TenantId {
        self.caller.tenant().unwrap_or(TenantId(0))
    }

    /// The body, unread.
    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::take(self.body)
    }

    /// The text of a body of one of these media types.
    pub(crate) async fn text(&mut self, media: &[Media]) -> Result<Bytes, Error> {
        headers::require_media(&self.parts.headers, media)?;
        let bytes = self.read().await?;
        body::check_text(&bytes)?;
        Ok(bytes)
    }

    /// The same where there may be no body, and then no media type.
    pub(crate) async fn optional_text(&mut self, media: &[Media]) -> Result<Option<Bytes>, Error> {
        let bytes = self.read().await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        headers::require_media(&self.parts.headers, media)?;
        body::check_text(&bytes)?;
        Ok(Some(bytes))
    }
}
