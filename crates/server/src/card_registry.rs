//! The card registry, `/v1/cards`: the cards of the agents that are served, and of those that the tenant keeps cards of.

use a2a::{AgentCard, Error, Timestamp};
use axum::response::Response;
use exchange::{Caller, Luggage};
use serde::Serialize;
use serde_json::value::RawValue;
use store::StoredCard;

use crate::{
    app::App,
    headers::Media,
    reply::{self, Status, Tagged},
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
struct Entry<'a> {
    agent_id: String,
    /// `served` or `stored`.
    source: &'static str,
    /// Of one that is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    card: &'a RawValue,
}

#[derive(Serialize)]
struct List<'a> {
    count: usize,
    cards: Vec<Entry<'a>>,
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
            return all(visit.app, &visit.caller, visit.luggage).await;
        };
        let exchange = &visit.app.exchange;
        Ok(match visit.parts.method.as_str() {
            "PUT" => {
                let body = visit.text(&[Media::Json, Media::A2aJson]).await?;
                let card: AgentCard = visit.app.reading(body.len(), || a2a::decode(&body))?;
                let (stored, is_new) = visit.app.exchange.put_card(&visit.caller, &id, card).await?;
                reply::json(if is_new { Status::Created } else { Status::Ok }, &kept(&stored)?)
            }
            "DELETE" => reply::json(Status::Ok, &kept(&exchange.remove_card(&visit.caller, &id).await?)?),
            _ => match exchange.agents().find(&visit.caller, &id) {
                Some(entry) => {
                    let card = visit.app.cards.agent(&entry.profile).await?;
                    reply::json(Status::Ok, &served(&entry.profile, &card)?)
                }
                None => reply::json(Status::Ok, &kept(&exchange.kept_card(&visit.caller, &id).await?)?),
            },
        })
    }
}

/// By id. What is served counts before what was stored under the same id when it was not.
async fn all(app: &App, caller: &Caller, luggage: &Luggage) -> Result<Response, Error> {
    let exchange = &app.exchange;
    let stored = exchange.kept_cards(caller, luggage).await?;
    let mut made = Vec::new();
    for entry in exchange.agents().visible(caller) {
        let card = app.cards.agent(&entry.profile).await?;
        made.push((entry, card));
    }
    let mut cards = Vec::with_capacity(made.len() + stored.len());
    for (entry, card) in &made {
        cards.push(served(&entry.profile, card)?);
    }
    for stored in &stored {
        if made.iter().all(|(entry, _)| entry.profile.id != stored.agent) {
            cards.push(kept(stored)?);
        }
    }
    cards.sort_by(|one, other| one.agent_id.cmp(&other.agent_id));
    Ok(reply::json(Status::Ok, &List { count: cards.len(), cards }))
}

fn served<'a>(profile: &exchange::Profile, card: &'a Tagged) -> Result<Entry<'a>, Error> {
    Ok(Entry { agent_id: profile.id.to_string(), source: "served", updated_at: None, card: raw(&card.bytes)? })
}

/// It is served as it was stored and without our signature: what it says is somebody else's word.
fn kept(stored: &StoredCard) -> Result<Entry<'_>, Error> {
    let card = raw(&stored.card)?;
    Ok(Entry { agent_id: stored.agent.to_string(), source: "stored", updated_at: Some(stored.updated_at), card })
}

fn raw(bytes: &[u8]) -> Result<&RawValue, Error> {
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
