//! Administration over HTTP: the operations of [`exchange::admin`] under `/v1/admin`, for whoever has the token of an administrator.

use std::sync::Arc;

use a2a::{Error, ErrorKind};
use axum::response::Response;
use exchange::{
    Caller, Pass,
    admin::{Administration, CreateToken, FailedAuthentications, RotateKey, SignCard, Stats},
};
use http::request::Parts;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use store::TenantId;

use crate::{
    app::App,
    auth::Administrator,
    headers::Media,
    query::Query,
    reply::{self, Status},
    surface::{Admit, Surface, Visit},
};

/// Who may come: a tenant, or an administrator.
pub(crate) enum Visitor {
    Tenant(Caller),
    Operator(Administrator),
}

impl Admit for Visitor {
    /// Tokens of administrators are all known, and come first: what a tenant's would cost is not asked for them.
    async fn admit(app: &App, parts: &Parts) -> Result<Self, Error> {
        if app.auth.required()
            && let Ok(administrator) = app.auth.administrator(&parts.headers).await
        {
            return Ok(Self::Operator(administrator));
        }
        Caller::admit(app, parts).await.map(Self::Tenant)
    }

    fn pass(&self) -> Option<Arc<Pass>> {
        match self {
            Self::Tenant(caller) => caller.pass(),
            Self::Operator(administrator) => administrator.pass(),
        }
    }

    fn tenant(&self) -> Option<TenantId> {
        self.caller().map(|caller| caller.tenant)
    }
}

impl Visitor {
    pub(crate) fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Tenant(caller) => Some(caller),
            Self::Operator(_) => None,
        }
    }

    pub(crate) fn operator(&self) -> Result<(), Error> {
        match self {
            Self::Operator(_) => Ok(()),
            Self::Tenant(_) => Err(Error::new(ErrorKind::PermissionDenied, "this takes the admin token")),
        }
    }
}

/// What can stand under `/v1/admin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Tenants,
    Tenant(TenantId),
    Rotate(TenantId),
    Tokens(TenantId),
    Token(TenantId, i64),
    Admins,
    Admin(i64),
    Keys,
    RotateKey,
    SignCard,
    Audit,
    Stats,
}

impl Surface for Route {
    type Caller = Administrator;

    fn at(segments: &[&str]) -> Option<Self> {
        let ["v1", "admin", segments @ ..] = segments else { return None };
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let tenant = |text: &str| number(text).map(TenantId);
        match segments {
            ["tenants"] => Some(Self::Tenants),
            ["tenants", id] => tenant(id).map(Self::Tenant),
            ["tenants", id, "rotate-token"] => tenant(id).map(Self::Rotate),
            ["tenants", id, "tokens"] => tenant(id).map(Self::Tokens),
            ["tenants", id, "tokens", token] => Some(Self::Token(tenant(id)?, number(token)?)),
            ["tokens"] => Some(Self::Admins),
            ["tokens", token] => number(token).map(Self::Admin),
            ["keys"] => Some(Self::Keys),
            ["keys", "rotate"] => Some(Self::RotateKey),
            ["cards", "sign"] => Some(Self::SignCard),
            ["audit"] => Some(Self::Audit),
            ["stats"] => Some(Self::Stats),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Tenants | Self::Tokens(_) | Self::Admins => "GET, HEAD, POST, OPTIONS",
            Self::Tenant(_) => "GET, HEAD, PATCH, DELETE, OPTIONS",
            Self::Rotate(_) | Self::RotateKey | Self::SignCard => "POST, OPTIONS",
            Self::Token(..) | Self::Admin(_) => "GET, HEAD, DELETE, OPTIONS",
            Self::Keys | Self::Audit | Self::Stats => "GET, HEAD, OPTIONS",
        }
    }

    async fn answer(self, visit: Visit<'_, Administrator>) -> Result<Response, Error> {
        let (app, is_safe) = (visit.app, visit.parts.method.is_safe());
        let answered = self.carry_out(visit).await;
        if !is_safe {
            // Other instances believe a token and sign with a key for a moment longer; this one does not. What cannot be looked up now
            // is looked for again soon, and nobody is believed until then.
            let _ = app.auth.look().await;
            app.cards.signing().forget();
        }
        answered
    }
}

impl Route {
    async fn carry_out(self, mut visit: Visit<'_, Administrator>) -> Result<Response, Error> {
        let body = visit.optional_text(&[Media::Json]).await?.unwrap_or_default();
        let token = || if body.is_empty() { Ok(CreateToken::default()) } else { parse(&body) };
        let administrator = Arc::clone(&visit.caller.actor);
        let admin = Administration::new(visit.app.exchange.store().as_ref(), &administrator);
        Ok(match (self, visit.parts.method.as_str()) {
            (Self::Tenants, "POST") => created(&admin.create_tenant(parse(&body)?).await?),
            (Self::Tenants, _) => ok(&list("tenants", admin.tenants().await?)),
            (Self::Tenant(id), "PATCH") => ok(&admin.update_tenant(id, &parse(&body)?).await?),
            (Self::Tenant(id), "DELETE") => {
                let query = visit.query()?;
                let force = match query.one_of("force", &["force"])? {
                    None | Some("false") => false,
                    Some("true") => true,
                    Some(_) => return Err(Error::invalid("force", "must be true or false")),
                };
                ok(&admin.delete_tenant(id, force).await?)
            }
            (Self::Tenant(id), _) => ok(&admin.tenant(id).await?),
            (Self::Rotate(id), _) => ok(&admin.rotate(id, token()?).await?),
            (Self::Tokens(id), "POST") => created(&admin.create_token(id, token()?).await?),
            (Self::Tokens(id), _) => ok(&list("tokens", admin.tokens(id).await?)),
            (Self::Token(id, number), "DELETE") => ok(&admin.revoke_token(id, number).await?),
            (Self::Token(id, number), _) => ok(&admin.token(id, number).await?),
            (Self::Admins, "POST") => created(&admin.create_admin_token(parse(&body)?).await?),
            (Self::Admins, _) => ok(&list("tokens", admin.admin_tokens().await?)),
            (Self::Admin(number), "DELETE") => ok(&admin.revoke_admin_token(number).await?),
            (Self::Admin(number), _) => ok(&admin.admin_token(number).await?),
            (Self::Keys, _) => ok(&list("keys", admin.keys().await?)),
            (Self::RotateKey, _) => {
                let request = if body.is_empty() { RotateKey::default() } else { parse(&body)? };
                ok(&list("keys", admin.rotate_key(request).await?))
            }
            (Self::SignCard, _) => {
                let mut request: SignCard = parse(&body)?;
                request.jku.get_or_insert_with(|| visit.app.cards.signing().jku());
                ok(&admin.sign_card(&request).await?)
            }
            (Self::Audit, _) => {
                let (before, limit) = page(&visit.query()?)?;
                ok(&json!({"entries": admin.audit(before, limit).await?}))
            }
            (Self::Stats, _) => {
                let failed = visit.app.limits.failed_authentications();
                let failed_authentications =
                    FailedAuthentications { missing: failed.missing, wrong: failed.wrong, refused: failed.refused };
                ok(&Stats { failed_authentications, ..admin.stats() })
            }
        })
    }
}

impl Admit for Administrator {
    async fn admit(app: &App, parts: &Parts) -> Result<Self, Error> {
        app.auth.administrator(&parts.headers).await
    }

    fn pass(&self) -> Option<Arc<Pass>> {
        Some(Arc::clone(&self.pass))
    }
}

fn list(name: &str, all: Vec<impl Serialize>) -> Value {
    json!({"count": all.len(), name: all})
}

fn ok(value: &impl Serialize) -> Response {
    reply::json(Status::Ok, value)
}

fn created(value: &impl Serialize) -> Response {
    reply::json(Status::Created, value)
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // A list would be taken for the members in their order.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Error::new(ErrorKind::InvalidParams, "the request body must be an object"));
    }
    a2a::decode(body)
}

fn page(query: &Query) -> Result<(Option<i64>, Option<usize>), Error> {
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
    use http::{HeaderMap, HeaderValue, header};
    use store::NewAdminToken;

    use super::*;
    use crate::{auth::Auth, path::route};

    #[test]
    fn routes_are_read() {
        let tenant = TenantId(7);
        for (path, expected) in [
            ("/v1/admin/tenants", Some(Route::Tenants)),
            ("/v1/admin/tenants/7", Some(Route::Tenant(tenant))),
            ("/v1/admin/tenants/7/rotate-token", Some(Route::Rotate(tenant))),
            ("/v1/admin/tenants/7/tokens", Some(Route::Tokens(tenant))),
            ("/v1/admin/tenants/7/tokens/9", Some(Route::Token(tenant, 9))),
            ("/v1/admin/tokens", Some(Route::Admins)),
            ("/v1/admin/tokens/9", Some(Route::Admin(9))),
            ("/v1/admin/tokens/x", None),
            ("/v1/admin/keys", Some(Route::Keys)),
            ("/v1/admin/keys/rotate", Some(Route::RotateKey)),
            ("/v1/admin/cards/sign", Some(Route::SignCard)),
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
            assert_eq!(route(path, Route::at), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn only_tokens_of_administrators_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::sqlite::open(directory.path(), store::sqlite::Options::default()).unwrap();
        let auth = Auth::new(Arc::clone(&store), true).await.unwrap();
        let actor = async |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            match auth.administrator(&headers).await {
                Ok(administrator) => administrator.actor.to_string(),
                Err(error) => error.http_status().to_string(),
            }
        };
        assert_eq!(actor(&["Bearer sba_1"]).await, "503", "none is configured");
        assert_eq!(actor(&[]).await, "503");
        store.setting(ADMIN_TOKEN, hash("sba_1").to_vec()).await.unwrap();
        assert_eq!(actor(&["Bearer sba_1"]).await, "admin");
        assert_eq!(actor(&["bearer  sba_1 "]).await, "admin");
        for wrong in [&[][..], &["Bearer sba_2"], &["Bearer "], &["Basic sba_1"], &["Bearer sba_1", "Bearer sba_1"]] {
            assert_eq!(actor(wrong).await, "401", "{wrong:?}");
        }
        store.set_setting("test", ADMIN_TOKEN, hash("sba_2").to_vec()).await.unwrap();
        let new = |name: &str, token, expires| NewAdminToken { hash: hash(token), name: name.into(), expires };
        let ops = store.add_admin_token("test", new("ops", "sba_3", None)).await.unwrap();
        let past = Some(a2a::Timestamp::from_millis(1));
        store.add_admin_token("test", new("old", "sba_4", past)).await.unwrap();
        auth.look().await.unwrap();
        let mut seen = Vec::new();
        for token in ["Bearer sba_1", "Bearer sba_2", "Bearer sba_3", "Bearer sba_4"] {
            seen.push(actor(&[token]).await);
        }
        assert_eq!(seen, ["401", "admin", "admin:ops", "401"], "one was replaced, one has expired");
        store.revoke_admin_token("test", ops.id).await.unwrap();
        auth.look().await.unwrap();
        assert_eq!(actor(&["Bearer sba_3"]).await, "401");
    }
}
