//! The agents that a tenant defines, `/v1/agents`, and the others that it can call, in one list.
//!
//! **What is kept is what came**: the bytes of the definition, whatever stands in it. What is told of it is those bytes with the times beside
//! them, so that whoever gets a definition and sends it back loses nothing. The times are the server's, and are passed over when
//! they come back.

use std::fmt;

use a2a::{Error, ErrorKind};
use axum::response::Response;
use bytes::Bytes;
use exchange::{Caller, Entry, Exchange, Luggage};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};
use store::StoredAgent;

use crate::{
    admin::parse,
    headers::Media,
    reply::{self, Status},
    surface::{Surface, Visit},
};

/// Under which a definition may stand, too.
const WRAPPED: &str = "agent_def";
/// What the server says of a definition itself.
const OURS: [&str; 2] = ["created_at", "updated_at"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    All,
    One(String),
}

#[derive(Serialize)]
struct List {
    count: usize,
    agents: Vec<Box<RawValue>>,
}

/// An error with what stands in its way.
#[derive(Serialize)]
struct Conflict {
    error: Value,
    existing: Option<Box<RawValue>>,
}

/// A definition, as far as this surface reads it.
struct Definition {
    /// The bytes that are kept.
    bytes: Vec<u8>,
    id: Option<String>,
}

impl Surface for Route {
    type Caller = Caller;

    fn at(segments: &[&str]) -> Option<Self> {
        match segments {
            ["v1", "agents"] => Some(Self::All),
            ["v1", "agents", id] if !id.is_empty() => Some(Self::One((*id).to_owned())),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::All => "GET, HEAD, POST, OPTIONS",
            Self::One(_) => "GET, HEAD, PATCH, DELETE, OPTIONS",
        }
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let exchange = &visit.app.exchange;
        match (self, visit.parts.method.as_str()) {
            (Self::All, "POST") => {
                let definition = Definition::read(&visit.text(&[Media::Json]).await?)?;
                let id = definition.id.ok_or_else(|| Error::invalid("id", "is required"))?;
                match visit.app.exchange.define_agent(&visit.caller, &id, definition.bytes).await {
                    Ok(stored) => Ok(reply::json(Status::Created, &record(&stored)?)),
                    Err(exchange::Error::AgentExists(_)) => conflict(&visit.app.exchange, &visit.caller, &id).await,
                    Err(error) => Err(error.into()),
                }
            }
            (Self::All, _) => Ok(reply::json(Status::Ok, &list(exchange, &visit.caller, visit.luggage).await?)),
            (Self::One(id), "PATCH") => {
                let definition = Definition::read(&visit.text(&[Media::Json]).await?)?;
                if definition.id.is_some_and(|given| given != id) {
                    return Err(Error::invalid("id", "names another agent than the path does"));
                }
                let stored = visit.app.exchange.redefine_agent(&visit.caller, &id, definition.bytes).await?;
                Ok(reply::json(Status::Ok, &record(&stored)?))
            }
            (Self::One(id), "DELETE") => {
                visit.read().await?;
                visit.app.exchange.undefine_agent(&visit.caller, &id).await?;
                Ok(reply::json(Status::Ok, &json!({ "deleted": true })))
            }
            (Self::One(id), _) => Ok(reply::json(Status::Ok, &one(exchange, &visit.caller, &id).await?)),
        }
    }
}

/// What is built in and has a definition first, then the tenant's own, then the others that it sees.
async fn list(exchange: &Exchange, caller: &Caller, luggage: &Luggage) -> Result<List, Error> {
    let own = exchange.defined_agents(caller, luggage).await?;
    let (mut agents, mut others) = (Vec::new(), Vec::new());
    for entry in exchange.agents().visible(caller) {
        let id = entry.profile.id.as_str();
        if entry.is_own() || own.iter().any(|stored| stored.id == entry.profile.id) {
            continue;
        }
        let place = if exchange.builtin_agent(id).is_some() { &mut agents } else { &mut others };
        place.push(other(exchange, &entry)?);
    }
    for stored in &own {
        agents.push(record(stored)?);
    }
    agents.append(&mut others);
    Ok(List { count: agents.len(), agents })
}

async fn one(exchange: &Exchange, caller: &Caller, id: &str) -> Result<Box<RawValue>, Error> {
    match exchange.defined_agent(caller, id).await {
        Ok(stored) => record(&stored),
        Err(error @ exchange::Error::NotDefined(_)) => match exchange.agents().find(caller, id) {
            Some(entry) => other(exchange, &entry),
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

async fn conflict(exchange: &Exchange, caller: &Caller, id: &str) -> Result<Response, Error> {
    let error = Error::from(exchange::Error::AgentExists(id.to_owned()));
    let status: Value = serde_json::from_slice(&error.status_body()).unwrap_or_default();
    // It may have been removed just now, or stand in no list.
    let existing = one(exchange, caller, id).await.ok();
    let body = Conflict { error: status["error"].clone(), existing };
    Ok(reply::json(Status::Error(ErrorKind::AlreadyExists), &body))
}

/// What a tenant has defined, member by member as it came: its id first if it is not among them, and the times, in seconds since the epoch.
fn record(stored: &StoredAgent) -> Result<Box<RawValue>, Error> {
    let text = std::str::from_utf8(&stored.definition).unwrap_or_default();
    let said = serde_json::from_str::<Members>(text).ok();
    let has_id = said.as_ref().is_some_and(|members| members.get("id").is_some());
    // What cannot be read is not told.
    let inside = said.and_then(|_| text.trim().strip_prefix('{')?.strip_suffix('}')).unwrap_or_default().trim();
    let mut record = String::with_capacity(inside.len() + 128);
    record.push('{');
    if !has_id {
        record.push_str(&format!("\"id\":\"{}\",", stored.id));
    }
    if !inside.is_empty() {
        record.push_str(inside);
        record.push(',');
    }
    let seconds = |at: a2a::Timestamp| at.as_millis() / 1000;
    let (created, updated) = (seconds(stored.created_at), seconds(stored.updated_at));
    record.push_str(&format!("\"created_at\":{created},\"updated_at\":{updated}}}"));
    RawValue::from_string(record).map_err(|_| Error::internal("a definition cannot be read"))
}

/// An agent that the tenant has not defined.
fn other(exchange: &Exchange, entry: &Entry) -> Result<Box<RawValue>, Error> {
    let profile = &entry.profile;
    let id = profile.id.as_str();
    let mut told = exchange
        .builtin_agent(id)
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({ "id": id, "name": profile.name, "description": profile.description }));
    told["kind"] = json!(profile.kind);
    told["source"] = json!(match profile.kind {
        "builtin" => "builtin",
        _ if exchange.builtin_agent(id).is_some() => "builtin",
        "a2a" => "remote",
        _ => "file",
    });
    serde_json::value::to_raw_value(&told).map_err(|_| Error::internal("an agent cannot be told of"))
}

impl Definition {
    /// Reads a body: a definition by itself, or as the only member.
    fn read(body: &Bytes) -> Result<Self, Error> {
        let members: Members = parse(body)?;
        let Some(wrapped) = members.get(WRAPPED) else { return Self::of(members, body.trim_ascii()) };
        if let Some((name, _)) = members.0.iter().find(|(name, _)| name != WRAPPED) {
            return Err(Error::invalid(name.as_str(), format!("has no place beside {WRAPPED}")));
        }
        let inside = parse(wrapped.get().as_bytes()).map_err(|_| Error::invalid(WRAPPED, "must be an object"))?;
        Self::of(inside, wrapped.get().as_bytes())
    }

    fn of(members: Members, bytes: &[u8]) -> Result<Self, Error> {
        let mut names: Vec<&str> = members.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(twice[0], "is said twice"));
        }
        let id = match members.get("id") {
            Some(id) => Some(serde_json::from_str(id.get()).map_err(|_| Error::invalid("id", "must be a text"))?),
            None => None,
        };
        if !OURS.iter().any(|ours| members.get(ours).is_some()) {
            return Ok(Self { bytes: bytes.to_vec(), id });
        }
        Ok(Self { bytes: members.without(&OURS), id })
    }
}

/// The members of an object in their order, as they stand there.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }

    /// The object without some of them.
    fn without(&self, names: &[&str]) -> Vec<u8> {
        let mut bytes = b"{".to_vec();
        for (name, value) in self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())) {
            if bytes.len() > 1 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(json!(name).to_string().as_bytes());
            bytes.push(b':');
            bytes.extend_from_slice(value.get().as_bytes());
        }
        bytes.push(b'}');
        bytes
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use a2a::Timestamp;

    use super::*;
    use crate::path::route;

    #[test]
    fn routes() {
        for (path, expected) in [
            ("/v1/agents", Some(Route::All)),
            ("/v1/agents/poet", Some(Route::One("poet".into()))),
            ("/v1/agents/a%20b", Some(Route::One("a b".into()))),
            ("/v1/agents/", None),
            ("/v1/agents/poet/", None),
            ("/v1/agents/poet/chat", None),
        ] {
            assert_eq!(route(path, Route::at), expected, "{path}");
        }
    }

    fn read(body: &str) -> Result<(String, Option<String>), Error> {
        let definition = Definition::read(&Bytes::copy_from_slice(body.as_bytes()))?;
        Ok((String::from_utf8(definition.bytes).unwrap(), definition.id))
    }

    #[test]
    fn what_is_kept_is_what_came() {
        let odd = "{ \"x\":1.0,\n\"id\" : \"p\\u006fet\", \"y\":[1e400,\"\\u0000\"] }";
        assert_eq!(read(&format!("\n {odd} \n")).unwrap(), (odd.to_owned(), Some("poet".into())));
        assert_eq!(read(&format!("{{ \"agent_def\" :\t{odd} }}")).unwrap(), (odd.to_owned(), Some("poet".into())));
        // The times are ours, and nothing else is touched.
        let (kept, _) = read(r#"{"created_at":1,"b" : 1.0, "updated_at":"x","a":{ "c":2 }}"#).unwrap();
        assert_eq!(kept, r#"{"b":1.0,"a":{ "c":2 }}"#);
        assert_eq!(read("{}").unwrap(), ("{}".to_owned(), None));
        for (body, field) in [
            (r#"{"id":1}"#, "id"),
            (r#"{"id":"a","id":"b"}"#, "id"),
            (r#"{"agent_def":[]}"#, "agent_def"),
            (r#"{"agent_def":"x"}"#, "agent_def"),
            (r#"{"agent_def":{"id":"a"},"id":"a"}"#, "id"),
            (r#"{"role":"a","agent_def":{"role":"x","role":"y"}}"#, "role"),
        ] {
            assert_eq!(read(body).unwrap_err().violations[0].field, field, "{body}");
        }
        for body in ["", "[]", "1", "{", "{}x", "[{}]", "\"{}\""] {
            assert!(read(body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_record_is_what_came_with_the_times_beside_it() {
        let told = |definition: &[u8]| {
            let at = Timestamp::from_millis(1_700_000_000_999);
            let (id, updated_at) = ("poet".parse().unwrap(), Timestamp::from_millis(1_700_000_002_000));
            let definition = definition.to_vec();
            let stored = StoredAgent { tenant: store::TenantId(1), id, definition, created_at: at, updated_at };
            record(&stored).unwrap().get().to_owned()
        };
        let times = r#""created_at":1700000000,"updated_at":1700000002}"#;
        assert_eq!(told(b"{ \"x\":1.0 }"), format!("{{\"id\":\"poet\",\"x\":1.0,{times}"));
        assert_eq!(told(br#"{"x":{},"id":"poet"}"#), format!("{{\"x\":{{}},\"id\":\"poet\",{times}"));
        assert_eq!(told(b"{}"), format!("{{\"id\":\"poet\",{times}"));
        // What cannot be read keeps nobody from hearing of the rest.
        for damaged in [&b"\xff"[..], b"", b"{", b"[1]", b"{}}"] {
            assert_eq!(told(damaged), format!("{{\"id\":\"poet\",{times}"));
        }
    }
}
