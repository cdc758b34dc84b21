//! Options of a request beside its message: metadata, the accepted media types, and the active extensions.
//!
//! It is logged behind the message as a note, so that every attempt at the turn has it, on any instance. A message that comes with
//! nothing has no such event.

use std::collections::BTreeMap;

use a2a::JsonObject;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Error, Event, Journal, Result, TaskId, TenantId};

use crate::origin;

/// Options that came with a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestOptions {
    /// The metadata of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The media types that the caller accepts; empty when it did not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted_output_modes: Vec<String>,
    /// The extensions that are active: those that the caller named and the agent declares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// The event that holds it. Readers of notes skip a type that they do not know.
#[derive(Serialize)]
#[serde(tag = "type", rename = "request")]
struct Logged<'a> {
    #[serde(flatten)]
    options: &'a RequestOptions,
}

impl RequestOptions {
    /// Whether the caller said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Metadata without the members that trace a call; `None` when nothing else is said. Who hands a message on traces it anew.
    pub fn without_tracing(metadata: &JsonObject) -> Option<JsonObject> {
        let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(metadata.get()).ok()?;
        members.retain(|name, _| !origin::TRACING.contains(&name.as_str()));
        if members.is_empty() {
            return None;
        }
        serde_json::from_str(&serde_json::to_string(&members).ok()?).ok()
    }

    /// The body of the event; `None` where there is nothing to log.
    pub(crate) fn logged(&self) -> Result<Option<Bytes>> {
        if self.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::to_vec(&Logged { options: self })?.into()))
    }

    /// Reads the options that came with the message of a turn.
    pub(crate) async fn of(journal: &dyn Journal, tenant: TenantId, task: TaskId, event: Option<u64>) -> Result<Self> {
        let Some(event) = event else { return Ok(Self::default()) };
        Self::read(&journal.events(tenant, task, event.saturating_sub(1), 1).await?)
    }

    /// The same of the event that was read.
    pub(crate) fn read(events: &[Event]) -> Result<Self> {
        let event = events.first().ok_or_else(|| Error::Damaged("what came with a message is not there".into()))?;
        Ok(serde_json::from_slice(&event.body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(json: &str) -> JsonObject {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_logged_request_is_read_back_and_an_empty_one_is_not_logged() {
        assert_eq!(RequestOptions::default().logged().unwrap(), None);
        let said = RequestOptions {
            metadata: Some(metadata(r#"{"n":12345678901234567890123,"type":"mine"}"#)),
            accepted_output_modes: vec!["text/plain".to_owned()],
            extensions: vec!["urn:x".to_owned()],
        };
        let body = said.logged().unwrap().unwrap();
        let event = Event { seq: 2, at: store::clock::now(), kind: store::EventKind::Note, body };
        assert_eq!(RequestOptions::read(&[event]).unwrap(), said);
        assert!(RequestOptions::read(&[]).is_err());
    }
}
