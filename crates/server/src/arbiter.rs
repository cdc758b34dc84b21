//! The surface of seeds 000 and 002, `/v1/a2a`: an agent's JSON-RPC endpoint by older rules, and its card.

use a2a::Error;
use axum::response::Response;
use exchange::Caller;

use crate::{
    auth, reply,
    rpc::{self, Contract},
    surface::{Surface, Visit},
};

/// What can stand at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// The JSON-RPC endpoint of an agent.
    Agent(String),
    AgentCard(String),
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        let ["v1", "a2a", "agents", agent, rest @ ..] = segments else { return None };
        let agent = Some((*agent).to_owned()).filter(|agent| !agent.is_empty())?;
        match rest {
            // JSON-RPC answers with and without a trailing slash; nothing else does.
            [] | [""] => Some(Self::Agent(agent)),
            ["agent-card.json"] => Some(Self::AgentCard(agent)),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Agent(_) => "POST, OPTIONS",
            Self::AgentCard(_) => "GET, HEAD, OPTIONS",
        }
    }

    async fn answer(self, visit: Visit<'_, Caller>) -> Result<Response, Error> {
        match self {
            Self::Agent(agent) => rpc::answer(visit, Contract::Arbiter, Some(agent)).await,
            Self::AgentCard(agent) => card(visit, agent).await,
        }
    }
}

async fn card(visit: Visit<'_, Caller>, agent: String) -> Result<Response, Error> {
    let (app, headers) = (visit.app, &visit.parts.headers);
    let call = app.call(visit.caller, Some(agent), headers, visit.luggage)?;
    let Some(entry) = app.exchange.target(&call, "")? else {
        return Err(Error::internal("the path names no agent"));
    };
    let card = app.cards.reached_at(app.local_base(visit.parts)).arbiter(&entry.profile).await;
    Ok(reply::cacheable(headers, &card, reply::JSON, "private, max-age=60", &[auth::VARY]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        let agent = || "a b".to_owned();
        for (path, expected) in [
            ("/v1/a2a/agents/a%20b", Route::Agent(agent())),
            ("/v1/a2a/agents/a%20b/", Route::Agent(agent())),
            ("/v1/a2a/agents/a%20b/agent-card.json", Route::AgentCard(agent())),
        ] {
            assert_eq!(route(path, Route::at), Some(expected), "{path}");
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
        ] {
            assert_eq!(route(path, Route::at), None, "{path}");
        }
    }
}
