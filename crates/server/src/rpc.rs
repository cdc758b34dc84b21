//! The JSON-RPC binding: an envelope becomes an operation, an answer goes into an envelope.
//!
//! The URL's prefix picks the contract, the method's name picks the dialect, and an answer is in the dialect of its request.
//! Once the envelope is being read every answer is HTTP 200. Checks come in this order: media type, envelope, method,
//! version, parameters; under `/v1/a2a` the version comes before all of them.

mod arbiter;
mod v03;

use std::{borrow::Cow, sync::Arc};

use a2a::{
    Dialect, Error, ErrorKind, GetExtendedAgentCardRequest, Method,
    jsonrpc::{self, Id, Request},
};
use axum::response::Response;
use bytes::Bytes;
use exchange::{Call, Caller, Luggage};
use http::{HeaderValue, header, request::Parts};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    app::App,
    body,
    headers::{self, Media},
    operation::{Encoded, Operation},
    query::Query,
    reply::{self, Status},
    sse::{Envelope, EventStream},
    surface::Visit,
};

/// What an endpoint promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contract {
    /// A2A, under `/a2a`.
    A2a,
    /// That of seeds 000 and 002, under `/v1/a2a`: it departs from A2A in its 0.3 dialect, and in some codes.
    Arbiter,
}

/// A request whose envelope was read.
struct Asked<'a> {
    contract: Contract,
    dialect: Dialect,
    method: Method,
    /// The method as it was named.
    name: String,
    id: Id,
    parts: &'a Parts,
    luggage: &'a Arc<Luggage>,
}

/// Answers a POST at a JSON-RPC endpoint.
pub(crate) async fn answer(
    mut visit: Visit<'_, Caller>,
    contract: Contract,
    agent: Option<String>,
) -> Result<Response, Error> {
    let (app, parts) = (visit.app, visit.parts);
    let refuse = |id: &Id, error: &Error| Ok(failure(Status::Ok, contract, None, id, error));
    if contract == Contract::Arbiter
        && let Err(error) = headers::check_version_of_v1(&parts.headers)
    {
        return refuse(&Id::NULL, &error);
    }
    if let Err(error) = headers::require_media(&parts.headers, &[Media::Json]) {
        return Ok(failure(Status::Error(error.kind), contract, None, &Id::NULL, &error));
    }
    let bytes = visit.read().await?;
    if let Err(error) = body::check_text(&bytes) {
        return refuse(&Id::NULL, &error);
    }
    let request = match app.reading(bytes.len(), || Request::decode(&bytes)) {
        Ok(request) => request,
        Err(mut rejected) => {
            if contract == Contract::Arbiter && has_odd_params(&bytes) {
                rejected.error = Error::invalid("params", "must be an object");
            }
            return refuse(&rejected.id, &rejected.error);
        }
    };
    let Some((dialect, method)) = method(&request.method) else {
        return refuse(&request.id, &jsonrpc::method_not_found(&request.method));
    };
    let params = request.params.map_or(Bytes::from_static(b"{}"), |params| bytes.slice_ref(params.get().as_bytes()));
    let (name, id) = (request.method.into_owned(), request.id);
    // It goes with its parameters, once these are read.
    drop(bytes);
    let asked = Asked { contract, dialect, method, name, id, parts, luggage: visit.luggage };
    let answered = in_dialect(app, visit.caller, agent, &asked, params).await;
    Ok(answered.unwrap_or_else(|error| match asked.wants_events() {
        true => in_version_03(reply::event(&failure_of_03(&asked.id, &error, error.kind.codes().jsonrpc))),
        false => failure(Status::Ok, contract, Some(dialect), &asked.id, &error),
    }))
}

async fn in_dialect(
    app: &App,
    caller: Caller,
    agent: Option<String>,
    asked: &Asked<'_>,
    params: Bytes,
) -> Result<Response, Error> {
    let headers = &asked.parts.headers;
    let query = asked.query()?;
    match (asked.contract, asked.dialect) {
        // Who reads a card may not know yet which versions there are.
        (Contract::A2a, Dialect::V1) if asked.method == Method::GetExtendedAgentCard => {}
        (Contract::A2a, Dialect::V1) => headers::check_version(headers, &query)?,
        (Contract::A2a, Dialect::V03) => headers::check_version_of_03(headers, &query)?,
        // That was the first thing.
        (Contract::Arbiter, _) => {}
    }
    let call = Call { dialect: asked.dialect, ..app.call(caller, agent, headers, asked.luggage)? };
    match (asked.contract, asked.dialect) {
        (_, Dialect::V1) => in_1_0(app, &call, asked, params).await,
        (Contract::A2a, Dialect::V03) => v03::answer(app, &call, asked, params).await.map(in_version_03),
        (Contract::Arbiter, Dialect::V03) => arbiter::answer(app, call, asked, params).await,
    }
}

async fn in_1_0(app: &App, call: &Call, asked: &Asked<'_>, params: Bytes) -> Result<Response, Error> {
    let id = &asked.id;
    let operation = match asked.contract {
        Contract::A2a => app.reading(params.len(), || operation(app, asked, &params))?,
        Contract::Arbiter => app.reading(params.len(), || arbiter::operation_of_1_0(app, call, asked, &params))?,
    };
    drop(params);
    Ok(match app.perform(call, operation).await?.encode()? {
        Encoded::Json(body, extensions) => reply::with_extensions(success(id, &body), &extensions),
        Encoded::Card(card) => success(id, &card.bytes),
        Encoded::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let events = EventStream::new(*frames, Envelope::jsonrpc(id), app.keep_alive);
            reply::with_extensions(reply::stream(events), &extensions)
        }
    })
}

fn operation(app: &App, asked: &Asked<'_>, params: &[u8]) -> Result<Operation, Error> {
    Ok(match asked.method {
        Method::SendMessage => Operation::Send(a2a::decode(params)?),
        Method::SendStreamingMessage => Operation::Stream(a2a::decode(params)?),
        Method::GetTask => Operation::Get(a2a::decode(params)?),
        Method::ListTasks => Operation::List(a2a::decode(params)?),
        Method::CancelTask => Operation::Cancel(a2a::decode(params)?),
        Method::SubscribeToTask => Operation::Subscribe(a2a::decode(params)?, asked.cursor()?),
        Method::CreateTaskPushNotificationConfig => Operation::CreatePush(a2a::decode(params)?),
        Method::GetTaskPushNotificationConfig => Operation::GetPush(a2a::decode(params)?),
        Method::ListTaskPushNotificationConfigs => Operation::ListPush(a2a::decode(params)?),
        Method::DeleteTaskPushNotificationConfig => Operation::DeletePush(a2a::decode(params)?),
        Method::GetExtendedAgentCard => {
            let request: GetExtendedAgentCardRequest = a2a::decode(params)?;
            Operation::ExtendedCard { tenant: request.tenant, base: app.local_base(asked.parts) }
        }
    })
}

impl Asked<'_> {
    fn query(&self) -> Result<Query, Error> {
        Query::parse(self.parts.uri.query())
    }

    /// Whether the answer is a stream, errors included: a client of 0.3 that asked for one reads nothing else (A2A 0.3,
    /// section 7). Seed 002 has them as plain JSON.
    fn wants_events(&self) -> bool {
        let accepted = self.parts.headers.get_all(header::ACCEPT).iter();
        self.contract == Contract::A2a
            && self.dialect == Dialect::V03
            && matches!(self.method, Method::SendStreamingMessage | Method::SubscribeToTask)
            && accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains("text/event-stream"))
    }

    /// After which event a stream is taken up again.
    fn cursor(&self) -> Result<Option<u64>, Error> {
        headers::cursor(&self.parts.headers, &self.query()?)
    }
}

/// What a method's name stands for, and in which dialect.
fn method(name: &str) -> Option<(Dialect, Method)> {
    let in_1_0 = Method::from_name(name).map(|method| (Dialect::V1, method));
    in_1_0.or_else(|| a2a::v03::method(name).map(|method| (Dialect::V03, method)))
}

/// Whether all that is wrong with an envelope is that its parameters are a plain value. To seed 002 these are wrong
/// parameters, elsewhere it is no request.
fn has_odd_params(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        jsonrpc: Cow<'a, str>,
        #[serde(borrow)]
        method: &'a RawValue,
        #[serde(borrow)]
        params: &'a RawValue,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    // What is no object can have members by their places.
    let is_object = body.trim_ascii_start().first() == Some(&b'{');
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(body) else { return false };
    let begins = |raw: &RawValue, with: &[u8]| raw.get().as_bytes().first().is_some_and(|first| with.contains(first));
    is_object
        && envelope.jsonrpc == "2.0"
        && begins(envelope.method, b"\"")
        && !begins(envelope.params, b"{n")
        && envelope.id.is_none_or(|id| begins(id, b"\"-0123456789n"))
}

fn success(id: &Id, result: &[u8]) -> Response {
    reply::body(Status::Ok, reply::JSON, jsonrpc::success_raw(id, result))
}

/// An error, in the dialect of its request as far as that is known. Details go to everybody who does not speak 0.3 for sure.
fn failure(status: Status, contract: Contract, dialect: Option<Dialect>, id: &Id, error: &Error) -> Response {
    let code = match (contract, dialect) {
        (Contract::A2a, _) => error.kind.codes().jsonrpc,
        (Contract::Arbiter, Some(Dialect::V1)) if error.kind != ErrorKind::AgentNotFound => error.kind.codes().jsonrpc,
        (Contract::Arbiter, _) => a2a::v03::arbiter::error_code(error.kind),
    };
    if dialect != Some(Dialect::V03) {
        return reply::body(status, reply::JSON, jsonrpc::failure_with_code(id, error, code));
    }
    let response = reply::body(status, reply::JSON, failure_of_03(id, error, code));
    if contract == Contract::A2a { in_version_03(response) } else { response }
}

fn failure_of_03(id: &Id, error: &Error, code: i32) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failure<'a> {
        jsonrpc: &'static str,
        id: &'a Id,
        error: a2a::v03::ErrorObject<'a>,
    }

    let object = a2a::v03::error_object(error).with_code(code);
    // An id is JSON text already, and an error always serialises.
    serde_json::to_vec(&Failure { jsonrpc: "2.0", id, error: object }).unwrap_or_default()
}

/// Says which version an answer speaks.
fn in_version_03(mut response: Response) -> Response {
    response.headers_mut().insert(headers::A2A_VERSION, HeaderValue::from_static("0.3"));
    response
}
