//! The JSON-RPC binding: an envelope becomes an operation, an answer goes into an envelope.
//!
//! Once the envelope is being read every answer is HTTP 200. Checks come in this order: media type, envelope, method,
//! version, parameters.

use a2a::{
    Error, GetExtendedAgentCardRequest, Method,
    jsonrpc::{self, Id, Request},
};
use axum::{body::Body, response::Response};
use exchange::Caller;
use http::{StatusCode, request::Parts};

use crate::{
    app::App,
    body,
    headers::{self, Media},
    operation::{Answer, Operation},
    query::Query,
    reply,
    sse::{Envelope, EventStream},
};

/// Answers a POST at a JSON-RPC endpoint.
pub(crate) async fn answer(app: &App, caller: Caller, agent: Option<String>, parts: &Parts, body: Body) -> Response {
    if Media::of(&parts.headers) != Media::Json {
        let error = headers::wrong_media("application/json");
        return failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, &Id::NULL, &error);
    }
    let bytes = match body::read(&parts.headers, body, app.bounds).await {
        Ok(bytes) => bytes,
        Err(response) => return *response,
    };
    if let Err(error) = body::check_text(&bytes) {
        return failure(StatusCode::OK, &Id::NULL, &error);
    }
    let request = match Request::decode(&bytes) {
        Ok(request) => request,
        Err(rejected) => return failure(StatusCode::OK, &rejected.id, &rejected.error),
    };
    match perform(app, caller, agent, parts, &request).await {
        Ok(response) => response,
        Err(error) => failure(StatusCode::OK, &request.id, &error),
    }
}

async fn perform(
    app: &App,
    caller: Caller,
    agent: Option<String>,
    parts: &Parts,
    request: &Request<'_>,
) -> Result<Response, Error> {
    let method = Method::from_name(&request.method).ok_or_else(|| jsonrpc::method_not_found(&request.method))?;
    let query = Query::parse(parts.uri.query())?;
    headers::check_version(&parts.headers, &query)?;
    let call = app.call(caller, agent, &parts.headers)?;
    let operation = operation(method, request, parts, &query)?;
    Ok(match app.perform(&call, operation).await? {
        Answer::Json { body, extensions } => reply::with_extensions(success(&request.id, &body), &extensions),
        Answer::Card(card) => success(&request.id, &card.bytes),
        Answer::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let events = EventStream::new(frames, Envelope::jsonrpc(&request.id), app.keep_alive);
            reply::with_extensions(reply::stream(events), &extensions)
        }
    })
}

fn operation(method: Method, request: &Request<'_>, parts: &Parts, query: &Query) -> Result<Operation, Error> {
    let params = request.params;
    Ok(match method {
        Method::SendMessage => Operation::Send(a2a::decode_params(params)?),
        Method::SendStreamingMessage => Operation::Stream(a2a::decode_params(params)?),
        Method::GetTask => Operation::Get(a2a::decode_params(params)?),
        Method::ListTasks => Operation::List(a2a::decode_params(params)?),
        Method::CancelTask => Operation::Cancel(a2a::decode_params(params)?),
        Method::SubscribeToTask => {
            Operation::Subscribe(a2a::decode_params(params)?, headers::cursor(&parts.headers, query)?)
        }
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => Operation::PushConfig,
        Method::GetExtendedAgentCard => {
            let request: GetExtendedAgentCardRequest = a2a::decode_params(params)?;
            Operation::ExtendedCard { tenant: request.tenant }
        }
    })
}

fn success(id: &Id, result: &[u8]) -> Response {
    reply::body(StatusCode::OK, reply::JSON, jsonrpc::success_raw(id, result))
}

fn failure(status: StatusCode, id: &Id, error: &Error) -> Response {
    reply::body(status, reply::JSON, jsonrpc::failure(id, error))
}
