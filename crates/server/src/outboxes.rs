//! What became of notifications, `/v1/push`: how far each configuration has come, its dead letters, and sending those again.

use std::time::Duration;

use a2a::{Error, Timestamp, decode, error::excerpt};
use axum::response::Response;
use exchange::{Caller, push::PushSecret};
use serde::{Deserialize, Serialize};
use store::{Attempt, Letter, PushConfig, PushFilter, PushState, Replay, TaskId};

use crate::{
    app::App,
    headers::Media,
    query::Query,
    reply::{self, Status},
    surface::{Surface, Visit},
};

/// How long a list is, unless somebody wants it shorter.
const PAGE: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    All,
    Secret,
    RotateSecret,
    One { task: String, id: String },
    Replay { task: String, id: String },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    configs: Vec<Outbox>,
    /// What `after` is for the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A configuration and how far it has come. Its secrets are not in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outbox {
    task_id: String,
    id: String,
    url: String,
    state: &'static str,
    /// The last event that was told, and the last that there may be to tell of.
    told: u64,
    owed: u64,
    /// How often the next notification was tried.
    attempt: u32,
    /// The version of the protocol that it is told in.
    version: &'static str,
    chunks: bool,
    created_at: Timestamp,
    dead_letters: Vec<DeadLetter>,
    /// The last attempts, where one configuration is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<Tried>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetter {
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u32>,
    at: Timestamp,
    attempts: u32,
    outcome: String,
    /// It is being sent again.
    replaying: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tried {
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u32>,
    at: Timestamp,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    outcome: String,
}

#[derive(Serialize)]
struct Replayed {
    /// How many dead letters are sent again.
    replayed: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    secret: String,
    /// Until when the one before counts as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_until: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotateSecret {
    overlap_seconds: Option<u64>,
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        let named = |task: &str, id: &str| (task.to_owned(), id.to_owned());
        match segments {
            ["v1", "push"] => Some(Self::All),
            ["v1", "push", "secret"] => Some(Self::Secret),
            ["v1", "push", "secret", "rotate"] => Some(Self::RotateSecret),
            ["v1", "push", task, id] => Some(named(task, id)).map(|(task, id)| Self::One { task, id }),
            ["v1", "push", task, id, "replay"] => Some(named(task, id)).map(|(task, id)| Self::Replay { task, id }),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::All | Self::Secret | Self::One { .. } => "GET, HEAD, OPTIONS",
            Self::RotateSecret | Self::Replay { .. } => "POST, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let asked = match self {
            Self::RotateSecret => match visit.optional_text(&[Media::Json]).await? {
                Some(body) => decode(&body)?,
                None => RotateSecret::default(),
            },
            _ => RotateSecret::default(),
        };
        let (exchange, caller) = (&visit.app.exchange, &visit.caller);
        let query = visit.query()?;
        Ok(match self {
            Self::All => reply::json(Status::Ok, &list(visit.app, caller, &query).await?),
            Self::Secret => reply::json(Status::Ok, &Secret::from(exchange.push_secret(caller).await?)),
            Self::RotateSecret => {
                let overlap = asked.overlap_seconds.map(Duration::from_secs);
                reply::json(Status::Ok, &Secret::from(exchange.rotate_push_secret(caller, overlap).await?))
            }
            Self::One { task, id } => {
                let config = exchange.outbox(caller, &task, &id).await?;
                let attempts = config.record.attempts.iter().map(tried).collect();
                reply::json(Status::Ok, &Outbox { attempts, ..outbox(config) })
            }
            Self::Replay { task, id } => {
                let which = match number(&query, "sequence")? {
                    Some(sequence) => Replay::Event(sequence),
                    None => Replay::All,
                };
                let replayed = exchange.replay(caller, &task, &id, which).await?;
                reply::json(Status::Ok, &Replayed { replayed })
            }
        })
    }
}

impl From<PushSecret> for Secret {
    fn from(PushSecret { secret, previous_until }: PushSecret) -> Self {
        Self { secret, previous_until }
    }
}

async fn list(app: &App, caller: &Caller, query: &Query) -> Result<List, Error> {
    let task = match query.one_of("task", &["task"])? {
        Some(task) => Some(TaskId::parse(task).ok_or_else(|| Error::task_not_found(task))?),
        None => None,
    };
    let after = match query.one_of("after", &["after"])? {
        Some(text) => Some(place(text).ok_or_else(|| Error::invalid("after", "is not the `next` of a list"))?),
        None => None,
    };
    let troubled = match query.one_of("dead", &["dead"])? {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            return Err(Error::invalid("dead", format!("must be true or false, not {}", excerpt(other))));
        }
    };
    let limit = number(query, "limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(PAGE).clamp(1, PAGE);
    let filter = PushFilter { task, troubled, after, limit: limit + 1 };
    let mut found = app.exchange.outboxes(caller, filter).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|last| format!("{}/{}", last.task, last.config.id));
    Ok(List { configs: found.into_iter().map(outbox).collect(), next })
}

fn place(text: &str) -> Option<(TaskId, String)> {
    let (task, id) = text.split_once('/')?;
    Some((TaskId::parse(task)?, id.to_owned()))
}

fn number(query: &Query, name: &str) -> Result<Option<u64>, Error> {
    let Some(text) = query.one_of(name, &[name])? else { return Ok(None) };
    let wrong = |_| Error::invalid(name, format!("must be a whole number, not {}", excerpt(text)));
    text.parse().map(Some).map_err(wrong)
}

fn outbox(config: PushConfig) -> Outbox {
    Outbox {
        task_id: config.task.to_string(),
        state: match config.state {
            PushState::Active => "active",
            PushState::Gone => "gone",
            PushState::Stopped => "stopped",
        },
        told: config.told.seq,
        owed: config.owed,
        attempt: config.attempt,
        version: config.config.dialect.version(),
        chunks: config.config.chunks,
        created_at: config.created_at,
        dead_letters: config.record.letters.iter().map(dead_letter).collect(),
        attempts: Vec::new(),
        id: config.config.id,
        url: config.config.url,
    }
}

fn part(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

fn dead_letter(letter: &Letter) -> DeadLetter {
    DeadLetter {
        sequence: letter.place.seq,
        part: part(letter.place.part),
        at: Timestamp::from_millis(letter.at),
        attempts: letter.attempts,
        outcome: letter.outcome.clone(),
        replaying: letter.replay,
    }
}

fn tried(attempt: &Attempt) -> Tried {
    Tried {
        sequence: attempt.place.seq,
        part: part(attempt.place.part),
        at: Timestamp::from_millis(attempt.at),
        duration_ms: attempt.ms,
        status: attempt.status,
        outcome: attempt.outcome.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        let (task, id) = ("t".to_owned(), "a b".to_owned());
        assert_eq!(route("/v1/push", Route::at), Some(Route::All));
        assert_eq!(route("/v1/push/secret", Route::at), Some(Route::Secret));
        assert_eq!(route("/v1/push/secret/rotate", Route::at), Some(Route::RotateSecret));
        assert_eq!(route("/v1/push/t/a%20b", Route::at), Some(Route::One { task: task.clone(), id: id.clone() }));
        assert_eq!(route("/v1/push/t/a%20b/replay", Route::at), Some(Route::Replay { task, id }));
        assert_eq!(route("/v1/push/t", Route::at), None);
    }
}
