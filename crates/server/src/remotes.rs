//! The remotes that there are, `/v1/remotes`: tenants see who they can reach, the operator changes it. And `/v1/callbacks`, where remotes say that
//! something has happened.

use std::sync::Arc;

use a2a::{Error, ErrorKind, Timestamp};
use axum::response::Response;
use exchange::remotes::{self, Remote, Remotes};
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Scope;
use subtle::ConstantTimeEq;

use crate::{
    admin::{Visitor, parse},
    headers::Media,
    reply::{self, Status},
    surface::{Anybody, Surface, Visit},
};

/// The longest line of the tool.
const LONGEST_LINE: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    All,
    /// The tool `/a2a`.
    Tool,
    /// Somebody at a URL.
    Look,
    One(String),
    Card(String),
    Probe(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    registry: &'static str,
    description: String,
    reachable: Option<bool>,
    latency_ms: Option<u64>,
    last_probed_at: Option<Timestamp>,
    card_available: bool,
    streaming: bool,
    push_notifications: bool,
    binding: Option<&'static str>,
    protocol_version: Option<&'static str>,
    breaker: &'static str,
    skills: Vec<Value>,
    security: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_credential: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    line: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    url: String,
}

impl Surface for Route {
    type Caller = Visitor;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "remotes"] => Some(Self::All),
            ["v1", "remotes", "a2a"] => Some(Self::Tool),
            ["v1", "remotes", "probe"] => Some(Self::Look),
            ["v1", "remotes", "", ..] => None,
            ["v1", "remotes", name] => Some(Self::One((*name).to_owned())),
            ["v1", "remotes", name, "card"] => Some(Self::Card((*name).to_owned())),
            ["v1", "remotes", name, "probe"] => Some(Self::Probe((*name).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::All => "GET, HEAD, POST, OPTIONS",
            Self::One(_) => "GET, HEAD, DELETE, OPTIONS",
            Self::Card(_) => "GET, HEAD, OPTIONS",
            Self::Tool | Self::Look | Self::Probe(_) => "POST, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Visitor>) -> Result<Response, Error> {
        let known = visit.app.exchange.remotes().map(Arc::clone);
        let remotes = known.ok_or_else(|| Error::new(ErrorKind::Unavailable, "this server knows no remotes"))?;
        match self {
            Self::All if visit.parts.method == Method::POST => {
                visit.caller.operator()?;
                let body = visit.text(&[Media::Json]).await?;
                let entry: Value = parse(&body)?;
                let added = remotes.add(entry).await.map_err(refused)?;
                Ok(reply::json(Status::Created, &shown(added, true)))
            }
            Self::All => {
                let (caller, all) = (visit.caller.caller(), visit.caller.caller().is_none());
                let list: Vec<Shown> = remotes.list(caller).into_iter().map(|remote| shown(remote, all)).collect();
                Ok(reply::json(Status::Ok, &json!({ "remotes": list })))
            }
            Self::One(name) if visit.parts.method == Method::DELETE => {
                visit.caller.operator()?;
                visit.read().await?;
                remotes.remove(&name).await.map_err(refused)?;
                Ok(reply::json(Status::Ok, &json!({ "removed": name })))
            }
            Self::One(name) => one(remotes.as_ref(), &visit.caller, &name),
            Self::Card(name) => {
                let refresh = visit.query()?.one_of("refresh", &["refresh"])?.is_some_and(|value| value != "false");
                let card = remotes.card(visit.caller.caller(), &name, refresh).await.map_err(refused)?;
                Ok(reply::body(Status::Ok, HeaderValue::from_static("application/json"), card))
            }
            Self::Probe(name) => {
                visit.caller.operator()?;
                visit.read().await?;
                Ok(reply::json(Status::Ok, &shown(remotes.probe(&name).await.map_err(refused)?, true)))
            }
            Self::Look => {
                visit.caller.operator()?;
                let body = visit.text(&[Media::Json]).await?;
                let at: At = parse(&body)?;
                Ok(reply::json(Status::Ok, &remotes.look(&at.url).await.map_err(refused)?))
            }
            Self::Tool => {
                let body = visit.text(&[Media::Json]).await?;
                let line: Line = parse(&body)?;
                if line.line.trim().is_empty() {
                    return Err(Error::invalid("line", "is required: `list`, `card NAME` or `call NAME TEXT`"));
                }
                if line.line.len() > LONGEST_LINE {
                    return Err(Error::invalid("line", format!("must have at most {LONGEST_LINE} bytes")));
                }
                let Visitor::Tenant(caller) = &visit.caller else {
                    return Err(Error::new(ErrorKind::PermissionDenied, "this takes a tenant's token"));
                };
                caller.needs(Scope::Send).map_err(Error::from)?;
                let text = remotes.command(caller, &line.line).await;
                Ok(reply::json(Status::Ok, &json!({ "text": text })))
            }
        }
    }
}

fn one(remotes: &dyn Remotes, visitor: &Visitor, name: &str) -> Result<Response, Error> {
    let found = remotes.list(visitor.caller()).into_iter().find(|remote| remote.name == name);
    let found = found.ok_or_else(|| refused(remotes::Error::Unknown(name.chars().take(64).collect())))?;
    Ok(reply::json(Status::Ok, &shown(found, visitor.caller().is_none())))
}

/// A remote as its viewer may see it. Where it is and what is wrong with it is the operator's business.
fn shown(remote: Remote, all: bool) -> Shown {
    let skill = |skill: remotes::Skill| json!({ "id": skill.id, "name": skill.name, "description": skill.description, "source": skill.source });
    Shown {
        name: remote.name,
        kind: "a2a",
        registry: remote.registry,
        description: remote.description,
        reachable: remote.reachable,
        latency_ms: remote.latency_ms,
        last_probed_at: remote.probed_at,
        card_available: remote.has_card,
        streaming: remote.streaming,
        push_notifications: remote.push,
        binding: remote.binding,
        protocol_version: remote.protocol_version,
        breaker: remote.breaker,
        skills: remote.skills.into_iter().map(skill).collect(),
        security: remote.security,
        missing_credential: remote.missing_credential.filter(|_| all),
        url: all.then_some(remote.url),
        error: remote.error.filter(|_| all),
    }
}

fn refused(error: remotes::Error) -> Error {
    let text = error.to_string();
    match error {
        remotes::Error::Unknown(_) => Error::new(ErrorKind::NotFound, text),
        remotes::Error::Conflict(_) => Error::new(ErrorKind::Conflict, text),
        remotes::Error::Invalid { field, why } => Error::invalid(&field, why),
        remotes::Error::Broken(_) => Error::new(ErrorKind::BadGateway, text),
        remotes::Error::Failed(_) => Error::internal(text),
    }
}

/// Where remotes say that something has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Callback(String);

impl Surface for Callback {
    type Caller = Anybody;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "callbacks", token] if !token.is_empty() => Some(Self((*token).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    /// What it says is not read: the task looks for itself. Who has not got the token from us is refused, whatever task is meant.
    async fn answer(self, visit: Visit<'_, Anybody>) -> Result<Response, Error> {
        let headers = &visit.parts.headers;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let bearer = text("authorization").split_once(' ').map_or("", |(_, token)| token);
        let is_it = |given: &str| bool::from(given.trim().as_bytes().ct_eq(self.0.as_bytes()));
        let known = [text("x-a2a-notification-token"), bearer].into_iter().any(is_it);
        if !known || !visit.app.exchange.wake_by(&self.0).await? {
            return Err(Error::new(ErrorKind::NotFound, "there is nothing at this path"));
        }
        Ok(reply::json(Status::Ok, &json!({ "success": true })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        assert_eq!(route("/v1/remotes", Route::at), Some(Route::All));
        assert_eq!(route("/v1/remotes/a2a", Route::at), Some(Route::Tool));
        assert_eq!(route("/v1/remotes/probe", Route::at), Some(Route::Look));
        assert_eq!(route("/v1/remotes/x", Route::at), Some(Route::One("x".to_owned())));
        assert_eq!(route("/v1/remotes/x/card", Route::at), Some(Route::Card("x".to_owned())));
        assert_eq!(route("/v1/remotes/x/probe", Route::at), Some(Route::Probe("x".to_owned())));
        assert_eq!(route("/v1/callbacks/t", Callback::at), Some(Callback("t".to_owned())));
        for path in ["/v1/remotes/", "/v1/remotes/a/b", "/v1/callbacks", "/v1/callbacks/a/b"] {
            assert_eq!(route(path, Route::at), None, "{path}");
            assert_eq!(route(path, Callback::at), None, "{path}");
        }
    }
}
