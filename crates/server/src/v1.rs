//! What stands under `/v1`: the A2A surface of seeds 000 and 002, and the native requests, which are the same tasks.

mod native;
mod requests;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use exchange::Caller;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::{
    app::{App, admit},
    auth, reply,
    rpc::{self, Contract},
};

/// What can stand at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Resource {
    /// The JSON-RPC endpoint of an agent.
    Agent(String),
    AgentCard(String),
    Requests,
    Request(String),
    CancelRequest(String),
    RequestEvents(String),
}

/// Answers everything under `/v1/a2a` and `/v1/requests`.
pub(crate) async fn surface(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let resource = Resource::parse(parts.uri.path());
    let caller = match admit(&app, &parts, resource.as_ref().map(Resource::allow)).await {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let Some(resource) = resource else {
        return reply::no_route();
    };
    let answered = match resource {
        Resource::Agent(agent) => {
            return rpc::answer(&app, Contract::Arbiter, caller, Some(agent), &parts, body).await;
        }
        Resource::AgentCard(agent) => card(&app, caller, agent, &parts),
        resource => at_requests(&app, caller, resource, &parts, body).await,
    };
    answered.unwrap_or_else(|error| reply::error(&error))
}

async fn at_requests(
    app: &App,
    caller: Caller,
    resource: Resource,
    parts: &Parts,
    body: Body,
) -> Result<Response, a2a::Error> {
    match resource {
        Resource::Request(id) => requests::one(app, caller, id).await,
        Resource::CancelRequest(id) => {
            // Nothing is said in it, but it has to be read before the connection can go on.
            match crate::body::read(&parts.headers, body, app.bounds).await {
                Ok(_) => requests::cancel(app, caller, id).await,
                Err(response) => Ok(*response),
            }
        }
        Resource::RequestEvents(id) => requests::events(app, caller, id, parts).await,
        _ => requests::list(app, caller, parts).await,
    }
}

fn card(app: &App, caller: Caller, agent: String, parts: &Parts) -> Result<Response, a2a::Error> {
    let call = app.call(caller, Some(agent), &parts.headers)?;
    let Some(entry) = app.exchange.target(&call, "")? else {
        return Ok(reply::no_route());
    };
    let card = app.cards.arbiter(&entry.profile);
    Ok(reply::cacheable(&parts.headers, &card, reply::JSON, "private, max-age=60", Some(auth::VARY)))
}

impl Resource {
    /// Reads a request path. `None` is an unknown route.
    fn parse(path: &str) -> Option<Self> {
        let mut segments = Vec::new();
        for segment in path.strip_prefix("/v1/")?.split('/') {
            segments.push(percent_decode_str(segment).decode_utf8().ok()?);
        }
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        match segments.as_slice() {
            [_, "agents", "", ..] | ["requests", "", ..] => None,
            // JSON-RPC answers with and without a trailing slash; nothing else does.
            ["a2a", "agents", agent] | ["a2a", "agents", agent, ""] => Some(Self::Agent((*agent).to_owned())),
            ["a2a", "agents", agent, "agent-card.json"] => Some(Self::AgentCard((*agent).to_owned())),
            ["requests"] => Some(Self::Requests),
            ["requests", id] => Some(Self::Request((*id).to_owned())),
            ["requests", id, "cancel"] => Some(Self::CancelRequest((*id).to_owned())),
            ["requests", id, "events"] => Some(Self::RequestEvents((*id).to_owned())),
            _ => None,
        }
    }

    /// The methods that it answers, as the `Allow` header names them.
    fn allow(&self) -> &'static str {
        match self {
            Self::Agent(_) | Self::CancelRequest(_) => "POST, OPTIONS",
            Self::AgentCard(_) | Self::Requests | Self::Request(_) => "GET, HEAD, OPTIONS",
            Self::RequestEvents(_) => "GET, OPTIONS",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let agent = || "a b".to_owned();
        for (path, resource) in [
            ("/v1/a2a/agents/a%20b", Resource::Agent(agent())),
            ("/v1/a2a/agents/a%20b/", Resource::Agent(agent())),
            ("/v1/a2a/agents/a%20b/agent-card.json", Resource::AgentCard(agent())),
            ("/v1/requests", Resource::Requests),
            ("/v1/requests/a%20b", Resource::Request(agent())),
            ("/v1/requests/a%20b/cancel", Resource::CancelRequest(agent())),
            ("/v1/requests/a%20b/events", Resource::RequestEvents(agent())),
        ] {
            assert_eq!(Resource::parse(path), Some(resource), "{path}");
        }
        for path in [
            "/v1/a2a",
            "/v1/a2a/foo",
            "/v1/a2a/agents",
            "/v1/a2a/agents/",
            "/v1/a2a/agents//agent-card.json",
            "/v1/a2a/agents/x/card",
            "/v1/a2a/agents/x/agent-card.json/",
            "/v1/a2a/agents/%ff",
            "/v1/requests/",
            "/v1/requests//cancel",
            "/v1/requests/x/",
            "/v1/requests/x/cancel/y",
        ] {
            assert_eq!(Resource::parse(path), None, "{path}");
        }
    }
}
