//! The custom service of seed 003, `secondbrain.a2a.A2AGateway`: the same operations, with the JSON objects of the HTTP+JSON
//! binding as `google.protobuf.Struct` in both directions.

use a2a::{Error, GetExtendedAgentCardRequest, JsonObject, Method, grpc};
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

/// One of its methods: the public card, or an operation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gateway {
    GetAgentCard,
    Operation(Method),
}

impl Gateway {
    pub(crate) const PATH: &'static str = "/secondbrain.a2a.A2AGateway";

    /// The operation that is meant; the public card is none.
    fn operation(self, app: &App, object: &JsonObject, parts: &Parts) -> Result<Option<Operation>, Error> {
        let Self::Operation(method) = self else { return Ok(None) };
        Ok(Some(match method {
            Method::SendMessage => Operation::Send(Box::new(decode(object)?)),
            Method::SendStreamingMessage => Operation::Stream(Box::new(decode(object)?)),
            Method::GetTask => Operation::Get(decode(object)?),
            Method::ListTasks => Operation::List(Box::new(decode(object)?)),
            Method::CancelTask => Operation::Cancel(decode(object)?),
            Method::SubscribeToTask => Operation::Subscribe(decode(object)?, cursor(object, &parts.headers)?),
            Method::CreateTaskPushNotificationConfig => Operation::CreatePush(Box::new(decode(object)?)),
            Method::GetTaskPushNotificationConfig => Operation::GetPush(decode(object)?),
            Method::ListTaskPushNotificationConfigs => Operation::ListPush(decode(object)?),
            Method::DeleteTaskPushNotificationConfig => Operation::DeletePush(decode(object)?),
            Method::GetExtendedAgentCard => {
                let request: GetExtendedAgentCardRequest = decode(object)?;
                Operation::ExtendedCard { tenant: request.tenant, base: app.local_base(parts) }
            }
        }))
    }

    /// Who reads a card may not know yet which versions there are.
    fn is_card(self) -> bool {
        matches!(self, Self::GetAgentCard | Self::Operation(Method::GetExtendedAgentCard))
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
            name => Method::from_name(name).map(Self::Operation),
        }
    }

    fn allow(&self) -> &'static str {
        "POST, OPTIONS"
    }

    async fn answer(self, mut visit: Visit<'_, Caller>) -> Result<Response, Error> {
        let call = call::open(&visit, !self.is_card())?;
        let message = call::message(&mut visit).await?;
        let (app, parts) = (visit.app, visit.parts);
        let (object, operation) = app.reading(message.len(), || {
            let object = grpc::Struct::decode_json(&message)?;
            let operation = self.operation(app, &object, parts)?;
            Ok::<_, Error>((object, operation))
        })?;
        drop(message);
        let Some(operation) = operation else {
            return card(app, parts, &call, &object).await;
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
async fn card(app: &App, parts: &Parts, call: &Call, object: &JsonObject) -> Result<Response, Error> {
    let request: GetExtendedAgentCardRequest = decode(object)?;
    let base = app.local_base(parts);
    Ok(match app.exchange.target(call, &request.tenant)? {
        Some(entry) => object_of(app.cards.reached_at(base).agent(&entry.profile).await?.bytes),
        None => object_of(app.gateway_card(base).await?.bytes),
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
