//! The custom service of seed 003, `secondbrain.a2a.A2AGateway`: the same operations, with the JSON objects of the HTTP+JSON
//! binding as `google.protobuf.Struct` in both directions.

use a2a::{Error, GetExtendedAgentCardRequest, JsonObject, grpc};
use axum::response::Response;
use bytes::Bytes;
use exchange::{Call, Caller, heavy};
use http::{HeaderMap, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};

use super::{answer, call, stream};
use crate::{
    app::App,
    headers,
    operation::{Encoded, Operation},
    reply,
    surface::{Surface, Visit},
};

/// One of its methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gateway {
    GetAgentCard,
    SendMessage,
    SendStreamingMessage,
    GetTask,
    ListTasks,
    CancelTask,
    SubscribeToTask,
}

impl Gateway {
    pub(crate) const PATH: &'static str = "/secondbrain.a2a.A2AGateway";

    /// The operation that is meant; a card is none.
    fn operation(self, object: &JsonObject, headers: &HeaderMap) -> Result<Option<Operation>, Error> {
        Ok(Some(match self {
            Self::GetAgentCard => return Ok(None),
            Self::SendMessage => Operation::Send(Box::new(decode(object)?)),
            Self::SendStreamingMessage => Operation::Stream(Box::new(decode(object)?)),
            Self::GetTask => Operation::Get(decode(object)?),
            Self::ListTasks => Operation::List(Box::new(decode(object)?)),
            Self::CancelTask => Operation::Cancel(decode(object)?),
            Self::SubscribeToTask => Operation::Subscribe(decode(object)?, cursor(object, headers)?),
        }))
    }
}

impl Surface for Gateway {
    type Caller = Caller;

    const WEIGHT: u64 = call::WEIGHT;

    fn promised(first: &[u8]) -> Option<usize> {
        call::promised(first)
    }

    fn at(segments: &[&str]) -> Option<Self> {
        let [grpc::STRUCT_SERVICE, name] = segments else { return None };
        match *name {
            "GetAgentCard" => Some(Self::GetAgentCard),
            "SendMessage" => Some(Self::SendMessage),
            "SendStreamingMessage" => Some(Self::SendStreamingMessage),
            "GetTask" => Some(Self::GetTask),
            "ListTasks" => Some(Self::ListTasks),
            "CancelTask" => Some(Self::CancelTask),
            "SubscribeToTask" => Some(Self::SubscribeToTask),
            _ => None,
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        // Who reads a card may not know yet which versions there are.
        let call = call::open(&visit, self != Self::GetAgentCard)?;
        let message = call::message(&mut visit).await?;
        let (app, headers) = (visit.app, &visit.parts.headers);
        let (object, operation) = app.reading(message.len(), || {
            let object = grpc::Struct::decode_json(&message)?;
            let operation = self.operation(&object, headers)?;
            Ok::<_, Error>((object, operation))
        })?;
        drop(message);
        let Some(operation) = operation else {
            return card(visit.app, &call, &object).await;
        };
        let numbered = stream::is_numbered(&call);
        Ok(match visit.app.perform(&call, operation).await?.encode()? {
            Encoded::Json(body, extensions) => reply::with_extensions(object_of(body), &extensions),
            Encoded::Card(card) => object_of(card.bytes),
            Encoded::Stream(frames) => {
                let extensions = frames.extensions.clone();
                reply::with_extensions(stream::objects(*frames, numbered), &extensions)
            }
        })
    }

    fn mark(headers: &mut HeaderMap) {
        answer::mark(headers);
    }

    fn refuse(parts: &Parts, error: &Error) -> Response {
        call::refuse(parts, error)
    }
}

/// The card of the agent that is named, or the gateway's: those of the well-known paths.
async fn card(app: &App, call: &Call, object: &JsonObject) -> Result<Response, Error> {
    let request: GetExtendedAgentCardRequest = decode(object)?;
    Ok(match app.exchange.target(call, &request.tenant)? {
        Some(entry) => object_of(app.cards.agent(&entry.profile).await?.bytes),
        None => object_of(app.gateway_card().await?.bytes),
    })
}

fn decode<T: DeserializeOwned>(object: &JsonObject) -> Result<T, Error> {
    a2a::decode(object.get().as_bytes())
}

/// The cursor of a subscription: beside the task's id, else in the metadata.
fn cursor(object: &JsonObject, headers: &HeaderMap) -> Result<Option<u64>, Error> {
    #[derive(Deserialize)]
    struct Resumed {
        #[serde(rename = "afterSequence", alias = "after_sequence")]
        after_sequence: Option<u64>,
    }
    match object.parse() {
        Ok(Resumed { after_sequence: Some(sequence) }) => Ok(Some(sequence)),
        Ok(Resumed { after_sequence: None }) => headers::cursor_in_metadata(headers),
        Err(_) => Err(Error::invalid("afterSequence", "must be a whole number of 0 or more")),
    }
}

fn object_of(json: Bytes) -> Response {
    heavy(json.len(), || answer::message(&grpc::Struct::from_text(json)))
}
