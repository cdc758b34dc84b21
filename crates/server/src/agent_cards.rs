//! The cards of agents at their well-known paths, for whoever may see the agent: everybody, where every tenant may.
//!
//! Most clients fetch the card before they have anything to authenticate with, or without thinking of it. Some look for it below the URL that
//! they call, so it is below every URL that it names.

use a2a::{Error, PROTOCOL_VERSION};
use axum::response::Response;
use http::{HeaderMap, HeaderValue};

use crate::{
    auth, headers, reply,
    surface::{Guest, Surface, Visit},
};

/// An agent's card: as it is called under `/a2a`, or under `/v1/a2a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentCard {
    Protocol(String),
    Arbiter(String),
}

/// Where they are.
pub(crate) const PATHS: [&str; 5] = [
    "/a2a/agents/{id}/.well-known/agent-card.json",
    "/a2a/agents/{id}/agent-card.json",
    "/a2a/agents/{id}/jsonrpc/.well-known/agent-card.json",
    "/a2a/agents/{id}/jsonrpc/agent-card.json",
    "/v1/a2a/agents/{id}/.well-known/agent-card.json",
];

impl Surface for AgentCard {
    type Caller = Guest;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["a2a", "agents", agent, ..] => Some(Self::Protocol((*agent).to_owned())),
            ["v1", "a2a", "agents", agent, ..] => Some(Self::Arbiter((*agent).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "GET, HEAD, OPTIONS"
    }

    async fn answer(self, visit: Visit<'_, Guest>) -> Result<Response, Error> {
        let (app, headers) = (visit.app, &visit.parts.headers);
        let (Self::Protocol(id) | Self::Arbiter(id)) = &self;
        let agents = app.exchange.agents();
        let entry = match &visit.caller {
            Guest::Known(caller) => agents.find(caller, id).ok_or_else(|| agents.missing(caller, id)),
            // Whoever has not said who they are is told no names.
            Guest::Unknown => agents.find_open(id).ok_or_else(|| exchange::Error::agent_not_found(id)),
        };
        let entry = entry?;
        let is_open = app.cards.are_public() && entry.is_open();
        let base = app.local_base(visit.parts);
        let is_local = base.is_some();
        let cards = app.cards.reached_at(base);
        let card = match &self {
            Self::Protocol(_) => {
                let speaks_1_0 = headers::names_version_1(headers, &visit.query()?);
                cards.agent_at_origin(&entry.profile, speaks_1_0).await?
            }
            Self::Arbiter(_) => cards.arbiter(&entry.profile).await,
        };
        let mut vary = Vec::new();
        if !is_open {
            vary.push(auth::VARY);
        }
        // Which fields there are depends on what the client says it speaks.
        if matches!(self, Self::Protocol(_)) {
            vary.push("A2A-Version");
        }
        let cache = if is_open && !is_local { "public, max-age=60" } else { "private, max-age=60" };
        Ok(reply::cacheable(headers, &card, reply::JSON, cache, &vary))
    }

    fn mark(headers: &mut HeaderMap) {
        headers.insert(headers::A2A_VERSION, HeaderValue::from_static(PROTOCOL_VERSION));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn paths_name_agents() {
        let agent = || "a b".to_owned();
        let at = |path: &str| route(&path.replace("{id}", "a%20b"), AgentCard::at);
        let [protocol @ .., arbiter] = PATHS.map(at);
        assert!(protocol.into_iter().all(|card| card == Some(AgentCard::Protocol(agent()))));
        assert_eq!(arbiter, Some(AgentCard::Arbiter(agent())));
    }
}
