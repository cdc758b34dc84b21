//! The card registry, `/v1/cards`: the cards of the agents that are served, and of those that the tenant keeps cards of.

use a2a::{AgentCard, Error, Timestamp};
use axum::response::Response;
use exchange::Caller;
use serde::Serialize;
use serde_json::value::RawValue;
use store::StoredCard;

use crate::{
    app::App,
    headers::Media,
    reply::{self, Status},
    surface::{Surface, Visit},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    All,
    One(String),
}

/// A card and where it comes from.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    agent_id: String,
    /// `served` or `stored`.
    source: &'static str,
    /// Of one that is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    card: Box<RawValue>,
}

#[derive(Serialize)]
struct List {
    count: usize,
    cards: Vec<Entry>,
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "cards"] => Some(Self::All),
            ["v1", "cards", id] => Some(Self::One((*id).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::All => "GET, HEAD, OPTIONS",
            Self::One(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let Self::One(id) = self else {
            return Ok(reply::json(Status::Ok, &all(visit.app, &visit.caller).await?));
        };
        let exchange = &visit.app.exchange;
        Ok(match visit.parts.method.as_str() {
            "PUT" => {
                let body = visit.text(&[Media::Json, Media::A2aJson]).await?;
                let card: AgentCard = visit.app.reading(body.len(), || a2a::decode(&body))?;
                let (stored, is_new) = visit.app.exchange.put_card(&visit.caller, &id, card).await?;
                reply::json(if is_new { Status::Created } else { Status::Ok }, &kept(stored)?)
            }
            "DELETE" => reply::json(Status::Ok, &kept(exchange.remove_card(&visit.caller, &id).await?)?),
            _ => match exchange.agents().find(&visit.caller, &id) {
                Some(entry) => reply::json(Status::Ok, &served(visit.app, &entry.profile).await?),
                None => reply::json(Status::Ok, &kept(exchange.kept_card(&visit.caller, &id).await?)?),
            },
        })
    }
}

/// By id. What is served counts before what was stored under the same id when it was not.
async fn all(app: &App, caller: &Caller) -> Result<List, Error> {
    let exchange = &app.exchange;
    let mut cards = Vec::new();
    for entry in exchange.agents().visible(caller) {
        cards.push(served(app, &entry.profile).await?);
    }
    for stored in exchange.kept_cards(caller).await? {
        if cards.iter().all(|known| known.agent_id != stored.agent.as_str()) {
            cards.push(kept(stored)?);
        }
    }
    cards.sort_by(|one, other| one.agent_id.cmp(&other.agent_id));
    Ok(List { count: cards.len(), cards })
}

async fn served(app: &App, profile: &exchange::Profile) -> Result<Entry, Error> {
    let card = app.cards.agent(profile).await?;
    Ok(Entry { agent_id: profile.id.to_string(), source: "served", updated_at: None, card: raw(&card.bytes)? })
}

/// It is served as it was stored and without our signature: what it says is somebody else's word.
fn kept(stored: StoredCard) -> Result<Entry, Error> {
    let card = raw(&stored.card)?;
    Ok(Entry { agent_id: stored.agent.to_string(), source: "stored", updated_at: Some(stored.updated_at), card })
}

fn raw(bytes: &[u8]) -> Result<Box<RawValue>, Error> {
    serde_json::from_slice(bytes).map_err(|_| Error::internal("a card cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        assert_eq!(route("/v1/cards", Route::at), Some(Route::All));
        assert_eq!(route("/v1/cards/agent.research.v1", Route::at), Some(Route::One("agent.research.v1".to_owned())));
        assert_eq!(route("/v1/cards/a/b", Route::at), None);
    }
}
