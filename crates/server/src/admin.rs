//! Administration over HTTP: the operations of [`exchange::admin`] under `/v1/admin`, for whoever has the admin token.

use std::sync::Arc;

use a2a::{Error, ErrorKind};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use exchange::admin::{Administration, CreateToken, is_admin_token};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use serde::{Serialize, de::DeserializeOwned};
use store::{Store, TenantId};

use crate::{
    app::App,
    auth, body,
    headers::{Media, wrong_media},
    path::allows,
    query::Query,
    reply,
};

/// Who did it, in the audit log.
const ACTOR: &str = "admin";

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
    let admin = Administration::new(store.as_ref(), ACTOR);
    let done = perform(admin, route, &parts.method, parts.uri.query(), &bytes).await;
    if !parts.method.is_safe() {
        // Other instances believe a token for a moment longer; this one does not.
        app.auth.forget();
    }
    done.unwrap_or_else(|error| reply::error(&error))
}

/// Lets in whoever has the admin token.
async fn authorize(store: &dyn Store, headers: &HeaderMap) -> Result<(), Error> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let given = match (values.next(), values.next()) {
        (Some(value), None) => auth::bearer(value.as_bytes()).map(<[u8]>::trim_ascii),
        _ => None,
    };
    let is_known = is_admin_token(store, given.unwrap_or_default()).await?;
    if is_known && given.is_some() { Ok(()) } else { Err(auth::refused()) }
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

async fn perform(
    admin: Administration<'_>,
    route: Route,
    method: &Method,
    query: Option<&str>,
    body: &[u8],
) -> Result<Response, Error> {
    let token = || if body.is_empty() { Ok(CreateToken::default()) } else { parse(body) };
    Ok(match (route, method.as_str()) {
        (Route::Tenants, "GET" | "HEAD") => ok(&admin.tenants().await?),
        (Route::Tenants, "POST") => created(&admin.create_tenant(parse(body)?).await?),
        (Route::Tenant(id), "GET" | "HEAD") => ok(&admin.tenant(id).await?),
        (Route::Tenant(id), "PATCH") => ok(&admin.update_tenant(id, &parse(body)?).await?),
        (Route::Rotate(id), "POST") => ok(&admin.rotate(id, token()?).await?),
        (Route::Tokens(id), "GET" | "HEAD") => ok(&admin.tokens(id).await?),
        (Route::Tokens(id), "POST") => created(&admin.create_token(id, token()?).await?),
        (Route::Token(id, number), "GET" | "HEAD") => ok(&admin.token(id, number).await?),
        (Route::Token(id, number), "DELETE") => ok(&admin.revoke_token(id, number).await?),
        (Route::Audit, "GET" | "HEAD") => {
            let (before, limit) = page(query)?;
            ok(&admin.audit(before, limit).await?)
        }
        (Route::Stats, "GET" | "HEAD") => ok(&admin.stats()),
        _ => reply::wrong_method(route.allow()),
    })
}

fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}

fn created(value: &impl Serialize) -> Response {
    json(StatusCode::CREATED, value)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Plain data always serialises.
    reply::body(status, reply::JSON, serde_json::to_vec(value).unwrap_or_default())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    body::check_text(body)?;
    serde_json::from_slice(body).map_err(|error| {
        let kind = if error.is_data() { ErrorKind::InvalidParams } else { ErrorKind::ParseError };
        Error::new(kind, format!("the request body cannot be used: {error}"))
    })
}

fn page(query: Option<&str>) -> Result<(Option<i64>, Option<usize>), Error> {
    let query = Query::parse(query)?;
    let number = |field: &str| -> Result<Option<u64>, Error> {
        let text = query.one_of(field, &[field])?;
        text.map(|text| text.parse().map_err(|_| Error::invalid(field, "must be a number"))).transpose()
    };
    let before = number("before_id")?.map(|id| i64::try_from(id).unwrap_or(i64::MAX));
    let limit = number("limit")?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    Ok((before, limit))
}

#[cfg(test)]
mod tests {
    use exchange::admin::{ADMIN_TOKEN, hash};

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
}
