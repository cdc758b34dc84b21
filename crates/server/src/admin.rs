//! Administration: tenants, their tokens, the audit log and what this instance has counted, under `/v1/admin`.
//!
//! [`answer`] is the whole surface without HTTP and without authentication: the command line calls it on a journal that
//! no server has open. The routes add the admin token and nothing else. A token is shown once, by the call that made it.

use std::sync::Arc;

use a2a::{Error, ErrorKind, Timestamp};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::{AuditEntry, Change, NewToken, Store, Tenant, TenantId, Token, check_tenant_name, clock};
use subtle::ConstantTimeEq;

use crate::{
    app::App,
    auth, body,
    headers::{Media, wrong_media},
    path::allows,
    query::Query,
    reply,
};

/// The setting that holds the SHA-256 of the admin token.
pub const ADMIN_TOKEN: &str = "admin.token";
/// What a tenant's token begins with, so that scanners for leaked secrets can recognise it.
pub const TOKEN_PREFIX: &str = "sb_";
/// What the admin token begins with.
pub const ADMIN_PREFIX: &str = "sba_";

/// Who did it, in the audit log, when it came over HTTP.
const ACTOR: &str = "admin";

/// How many entries a page of the audit log has, and can have.
const AUDIT_PAGE: usize = 50;
const AUDIT_MAX: usize = 200;

/// The longest life of a token that ends, ten years.
const MAX_LIFE_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// The longest name of a token, in characters.
const NAME_CHARS: usize = 64;

/// What a call is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// JSON: what was asked for, or an error object.
    pub body: Vec<u8>,
}

/// A new token: 256 bits behind a prefix.
pub fn mint(prefix: &str) -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// What is stored of a token.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Answers a call of `/v1/admin/…`. Whoever calls this has made sure that the caller may administer.
pub async fn answer(
    store: &dyn Store,
    actor: &str,
    method: &Method,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Answer {
    let Some(route) = Route::parse(path) else {
        return Refusal::from(Error::new(ErrorKind::NotFound, "there is nothing at this path")).answer();
    };
    match perform(store, actor, &route, method, query, body).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(),
    }
}

/// The routes.
pub(crate) async fn surface(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = at_route(&app, &parts, body).await;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn at_route(app: &App, parts: &Parts, body: Body) -> Response {
    let route = Route::parse(parts.uri.path());
    if parts.method == Method::OPTIONS {
        return match route {
            Some(route) => reply::options(route.allow()),
            None => reply::no_route(),
        };
    }
    let store = app.exchange.store();
    if let Err(error) = authorize(store.as_ref(), &parts.headers).await {
        return reply::error(&app.limits.failure(&parts.extensions, error));
    }
    let Some(route) = route else {
        return reply::no_route();
    };
    if !allows(route.allow(), &parts.method) {
        return reply::wrong_method(route.allow());
    }
    let bytes = match body::read(&parts.headers, body, app.bounds).await {
        Ok(bytes) => bytes,
        Err(response) => return *response,
    };
    if !bytes.is_empty() && Media::of(&parts.headers) != Media::Json {
        return reply::error(&wrong_media("application/json"));
    }
    let answer = match perform(store.as_ref(), ACTOR, &route, &parts.method, parts.uri.query(), &bytes).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(),
    };
    if !parts.method.is_safe() {
        // Other instances believe a token for a moment longer; this one does not.
        app.auth.forget();
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply::body(status, reply::JSON, answer.body)
}

/// Whether this is the admin token. It is read from the store each time: another instance may have replaced it.
async fn authorize(store: &dyn Store, headers: &HeaderMap) -> Result<(), Error> {
    let known = match store.find_setting(ADMIN_TOKEN).await {
        Ok(Some(known)) => known,
        Ok(None) => return Err(Error::new(ErrorKind::Unavailable, "no admin token is configured")),
        Err(error) => return Err(unavailable(&error)),
    };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(auth::refused());
    };
    let given = auth::bearer(value.as_bytes()).map(<[u8]>::trim_ascii).unwrap_or_default();
    let given: [u8; 32] = Sha256::digest(given).into();
    if bool::from(given.as_slice().ct_eq(&known)) { Ok(()) } else { Err(auth::refused()) }
}

/// What can stand under `/v1/admin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Tenants,
    Tenant(TenantId),
    Rotate(TenantId),
    Tokens(TenantId),
    Token(TenantId, i64),
    Audit,
    Stats,
}

impl Route {
    fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.strip_prefix("/v1/admin/")?.split('/').collect();
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let tenant = |text: &str| number(text).map(TenantId);
        match segments.as_slice() {
            ["tenants"] => Some(Self::Tenants),
            ["tenants", id] => tenant(id).map(Self::Tenant),
            ["tenants", id, "rotate-token"] => tenant(id).map(Self::Rotate),
            ["tenants", id, "tokens"] => tenant(id).map(Self::Tokens),
            ["tenants", id, "tokens", token] => Some(Self::Token(tenant(id)?, number(token)?)),
            ["audit"] => Some(Self::Audit),
            ["stats"] => Some(Self::Stats),
            _ => None,
        }
    }

    fn allow(self) -> &'static str {
        match self {
            Self::Tenants | Self::Tokens(_) => "GET, HEAD, POST, OPTIONS",
            Self::Tenant(_) => "GET, HEAD, PATCH, OPTIONS",
            Self::Rotate(_) => "POST, OPTIONS",
            Self::Token(..) => "GET, HEAD, DELETE, OPTIONS",
            Self::Audit | Self::Stats => "GET, HEAD, OPTIONS",
        }
    }
}

/// Why a call was not done.
enum Refusal {
    Error(Error),
    /// 409: the protocol has no error for it.
    Exists(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Refusal {
    fn answer(self) -> Answer {
        match self {
            Self::Error(error) => Answer { status: error.http_status(), body: error.status_body() },
            Self::Exists(message) => {
                let info = json!({
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "ALREADY_EXISTS",
                    "domain": a2a::error::DOMAIN,
                    "metadata": {},
                });
                let error = json!({"code": 409, "status": "ALREADY_EXISTS", "message": message, "details": [info]});
                Answer { status: 409, body: json!({"error": error}).to_string().into_bytes() }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateTenant {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateTenant {
    disabled: bool,
}

/// A token to make; all of it can be left out.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CreateToken {
    name: Option<String>,
    expires_in_seconds: Option<u64>,
}

async fn perform(
    store: &dyn Store,
    actor: &str,
    route: &Route,
    method: &Method,
    query: Option<&str>,
    body: &[u8],
) -> Result<Answer, Refusal> {
    match (route, method.as_str()) {
        (Route::Tenants, "GET" | "HEAD") => {
            let mut tenants = Vec::new();
            for tenant in store.tenants().await.map_err(|error| unavailable(&error))? {
                tenants.push(tenant_json(&tenant, &tokens_of(store, tenant.id).await?));
            }
            Ok(ok(200, &json!({"count": tenants.len(), "tenants": tenants})))
        }
        (Route::Tenants, "POST") => {
            let CreateTenant { name } = parse(body)?;
            check_tenant_name(&name).map_err(|why| Error::invalid("name", why))?;
            let (token, hash) = new_secret()?;
            let taken = Refusal::Exists(format!("there is a tenant `{name}` already"));
            let changed = change(store, actor, Change::CreateTenant { name, hash: Some(hash) }, taken).await?;
            let mut answer = tenant_json(&changed.tenant, &[]);
            show_once(&mut answer, &token, changed.token.as_ref());
            Ok(ok(201, &answer))
        }
        (Route::Tenant(id), "GET" | "HEAD") => {
            let tenant = tenant(store, *id).await?;
            Ok(ok(200, &tenant_json(&tenant, &tokens_of(store, *id).await?)))
        }
        (Route::Tenant(id), "PATCH") => {
            let UpdateTenant { disabled } = parse(body)?;
            let set = Change::SetEnabled { tenant: *id, enabled: !disabled };
            let changed = change(store, actor, set, no_tenant().into()).await?;
            Ok(ok(200, &tenant_json(&changed.tenant, &tokens_of(store, *id).await?)))
        }
        (Route::Rotate(id), "POST") => {
            let (token, new) = new_token(*id, body, "rotated")?;
            let changed = change(store, actor, Change::Rotate(new), no_tenant().into()).await?;
            let mut answer = tenant_json(&changed.tenant, &tokens_of(store, *id).await?);
            show_once(&mut answer, &token, changed.token.as_ref());
            Ok(ok(200, &answer))
        }
        (Route::Tokens(id), "GET" | "HEAD") => {
            tenant(store, *id).await?;
            let tokens: Vec<Value> = tokens_of(store, *id).await?.iter().map(token_json).collect();
            Ok(ok(200, &json!({"count": tokens.len(), "tokens": tokens})))
        }
        (Route::Tokens(id), "POST") => {
            let (token, new) = new_token(*id, body, "")?;
            let changed = change(store, actor, Change::AddToken(new), no_tenant().into()).await?;
            let mut answer = changed.token.as_ref().map_or(json!({}), token_json);
            show_once(&mut answer, &token, None);
            Ok(ok(201, &answer))
        }
        (Route::Token(id, token), "GET" | "HEAD") => {
            let found = tokens_of(store, *id).await?.into_iter().find(|found| found.id == *token);
            Ok(ok(200, &token_json(&found.ok_or_else(no_token)?)))
        }
        (Route::Token(id, token), "DELETE") => {
            let revoke = Change::RevokeToken { tenant: *id, token: *token };
            let changed = change(store, actor, revoke, no_token().into()).await?;
            Ok(ok(200, &changed.token.as_ref().map_or(json!({}), token_json)))
        }
        (Route::Audit, "GET" | "HEAD") => {
            let (before, limit) = page(query)?;
            let entries = store.audit(before, limit).await.map_err(|error| unavailable(&error))?;
            let entries: Vec<Value> = entries.iter().map(entry_json).collect();
            Ok(ok(200, &json!({"entries": entries})))
        }
        (Route::Stats, "GET" | "HEAD") => {
            let stats = store.stats();
            let instance = store.instance().to_string();
            Ok(ok(200, &json!({"instance": instance, "commits": stats.commits, "events": stats.events})))
        }
        _ => Err(Error::new(ErrorKind::MethodNotAllowed, format!("this path answers {}", route.allow())).into()),
    }
}

/// `refusal` is for what is taken, or not there.
async fn change(store: &dyn Store, actor: &str, change: Change, refusal: Refusal) -> Result<store::Changed, Refusal> {
    match store.administer(actor, change).await {
        Ok(changed) => Ok(changed),
        Err(store::Error::NotFound | store::Error::Exists) => Err(refusal),
        Err(error) => Err(unavailable(&error).into()),
    }
}

async fn tenant(store: &dyn Store, id: TenantId) -> Result<Tenant, Refusal> {
    let tenants = store.tenants().await.map_err(|error| unavailable(&error))?;
    Ok(tenants.into_iter().find(|tenant| tenant.id == id).ok_or_else(no_tenant)?)
}

async fn tokens_of(store: &dyn Store, tenant: TenantId) -> Result<Vec<Token>, Refusal> {
    Ok(store.tokens(tenant).await.map_err(|error| unavailable(&error))?)
}

/// A new token and what is to be stored of it, as the body wants it.
fn new_token(tenant: TenantId, body: &[u8], default_name: &str) -> Result<(String, NewToken), Refusal> {
    let CreateToken { name, expires_in_seconds } = if body.is_empty() { CreateToken::default() } else { parse(body)? };
    let name = name.unwrap_or_else(|| default_name.to_owned());
    if name.chars().count() > NAME_CHARS || name.chars().any(char::is_control) {
        return Err(Error::invalid("name", format!("must have at most {NAME_CHARS} visible characters")).into());
    }
    let expires = match expires_in_seconds {
        None => None,
        Some(seconds @ 1..=MAX_LIFE_SECONDS) => {
            let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
            Some(Timestamp::from_millis(clock::now().as_millis().saturating_add(millis)))
        }
        Some(_) => {
            return Err(Error::invalid("expires_in_seconds", format!("must be 1 to {MAX_LIFE_SECONDS}")).into());
        }
    };
    let (token, hash) = new_secret()?;
    Ok((token, NewToken { tenant, hash, name, expires }))
}

fn new_secret() -> Result<(String, [u8; 32]), Refusal> {
    let token = mint(TOKEN_PREFIX).map_err(|error| {
        tracing::error!(%error, "the system gives no random numbers");
        Error::internal("no token can be made")
    })?;
    let hash = hash(&token);
    Ok((token, hash))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    body::check_text(body)?;
    serde_json::from_slice(body).map_err(|error| {
        let kind = if error.is_data() { ErrorKind::InvalidParams } else { ErrorKind::ParseError };
        Error::new(kind, format!("the request body cannot be used: {error}")).into()
    })
}

fn page(query: Option<&str>) -> Result<(Option<i64>, usize), Refusal> {
    let query = Query::parse(query)?;
    let number = |field: &str| -> Result<Option<u64>, Error> {
        let text = query.one_of(field, &[field])?;
        text.map(|text| text.parse().map_err(|_| Error::invalid(field, "must be a number"))).transpose()
    };
    let before = number("before_id")?.map(|id| i64::try_from(id).unwrap_or(i64::MAX));
    let limit = match number("limit")? {
        None => AUDIT_PAGE,
        Some(0) => return Err(Error::invalid("limit", "must be at least 1").into()),
        Some(limit) => usize::try_from(limit).unwrap_or(AUDIT_MAX).min(AUDIT_MAX),
    };
    Ok((before, limit))
}

fn ok(status: u16, body: &Value) -> Answer {
    Answer { status, body: body.to_string().into_bytes() }
}

/// Adds the token itself, and its number where the object is not the token's own.
fn show_once(answer: &mut Value, token: &str, stored: Option<&Token>) {
    answer["token"] = token.into();
    if let Some(stored) = stored {
        answer["token_id"] = stored.id.into();
    }
}

fn tenant_json(tenant: &Tenant, tokens: &[Token]) -> Value {
    json!({
        "id": tenant.id.0,
        "name": tenant.name,
        "disabled": !tenant.enabled,
        "created_at": seconds(tenant.created_at),
        "last_used_at": tokens.iter().filter_map(|token| token.used_at).max().map(seconds),
    })
}

fn token_json(token: &Token) -> Value {
    let state = match token.revoked_at {
        Some(_) => "revoked",
        None if token.is_live(clock::now()) => "live",
        None => "expired",
    };
    json!({
        "id": token.id,
        "tenant_id": token.tenant.0,
        "name": token.name,
        "state": state,
        "created_at": seconds(token.created_at),
        "expires_at": token.expires.map(seconds),
        "revoked_at": token.revoked_at.map(seconds),
        "last_used_at": token.used_at.map(seconds),
    })
}

fn entry_json(entry: &AuditEntry) -> Value {
    let detail: Value = serde_json::from_str(&entry.detail).unwrap_or_default();
    let of = |key: &str| detail.get(key).cloned().unwrap_or_default();
    json!({
        "id": entry.id,
        "ts": seconds(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "target_kind": of("target_kind"),
        "target_id": of("target_id"),
        "before": of("before"),
        "after": of("after"),
    })
}

/// The native surface gives times as seconds since 1970.
fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1000)
}

fn no_tenant() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such tenant")
}

fn no_token() -> Error {
    Error::new(ErrorKind::NotFound, "this tenant has no such token")
}

fn unavailable(error: &store::Error) -> Error {
    tracing::error!(error = %error, "administration failed");
    Error::new(ErrorKind::Unavailable, "the journal cannot be used at the moment").with_retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read() {
        let tenant = TenantId(7);
        for (path, route) in [
            ("/v1/admin/tenants", Some(Route::Tenants)),
            ("/v1/admin/tenants/7", Some(Route::Tenant(tenant))),
            ("/v1/admin/tenants/7/rotate-token", Some(Route::Rotate(tenant))),
            ("/v1/admin/tenants/7/tokens", Some(Route::Tokens(tenant))),
            ("/v1/admin/tenants/7/tokens/9", Some(Route::Token(tenant, 9))),
            ("/v1/admin/audit", Some(Route::Audit)),
            ("/v1/admin", None),
            ("/v1/admin/", None),
            ("/v1/admin/tenants/", None),
            ("/v1/admin/tenants/acme", None),
            ("/v1/admin/tenants/+7", None),
            ("/v1/admin/tenants/-7", None),
            ("/v1/admin/tenants/99999999999999999999", None),
            ("/v1/admin/tenants/7/tokens/x", None),
        ] {
            assert_eq!(Route::parse(path), route, "{path}");
        }
    }

    #[tokio::test]
    async fn only_the_installed_token_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        let status = async |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            authorize(store.as_ref(), &headers).await.map_or_else(|error| error.http_status(), |()| 200)
        };
        assert_eq!(status(&["Bearer sba_1"]).await, 503, "none is configured");
        assert_eq!(status(&[]).await, 503);
        store.set_setting("test", ADMIN_TOKEN, hash("sba_1").to_vec()).await.unwrap();
        assert_eq!(status(&["Bearer sba_1"]).await, 200);
        assert_eq!(status(&["bearer  sba_1 "]).await, 200);
        for wrong in [&[][..], &["Bearer sba_2"], &["Bearer "], &["Basic sba_1"], &["Bearer sba_1", "Bearer sba_1"]] {
            assert_eq!(status(wrong).await, 401, "{wrong:?}");
        }
        store.set_setting("test", ADMIN_TOKEN, hash("sba_2").to_vec()).await.unwrap();
        assert_eq!(status(&["Bearer sba_1"]).await, 401, "it was replaced");
    }

    #[test]
    fn a_token_has_a_prefix_and_256_bits() {
        let token = mint(TOKEN_PREFIX).unwrap();
        assert!(token.starts_with("sb_"));
        assert_eq!(token.len(), 46);
        assert_ne!(token, mint(TOKEN_PREFIX).unwrap());
        assert!(mint(ADMIN_PREFIX).unwrap().starts_with("sba_"));
    }
}
