//! The HTTP+JSON binding: paths, query parameters and bodies become operations, answers become plain JSON or events.

use a2a::{CancelTaskRequest, Error, GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest};
use axum::{body::Body, response::Response};
use exchange::Caller;
use http::{StatusCode, request::Parts};

use crate::{
    app::App,
    auth, body,
    headers::{self, Media},
    operation::{Answer, Encoded, Operation},
    path::{Place, Resource},
    query::Query,
    reply,
    sse::{Envelope, EventStream},
};

/// Answers a request at a place that is not a JSON-RPC endpoint. The method is one that the place answers.
pub(crate) async fn answer(app: &App, caller: Caller, place: Place, parts: &Parts, body: Body) -> Response {
    match try_answer(app, caller, place, parts, body).await {
        Ok(response) => response,
        Err(response) => *response,
    }
}

async fn try_answer(
    app: &App,
    caller: Caller,
    place: Place,
    parts: &Parts,
    body: Body,
) -> Result<Response, Box<Response>> {
    let query = Query::parse(parts.uri.query()).map_err(refuse)?;
    let call = app.call(caller, place.agent, &parts.headers).map_err(refuse)?;
    // Who reads a card may not know yet which versions there are.
    if !matches!(place.resource, Resource::ExtendedCard | Resource::AgentCard) {
        headers::check_version(&parts.headers, &query).map_err(refuse)?;
    }
    let operation = operation(app, place.resource, parts, &query, body).await?;
    let answer = app.perform(&call, operation).await.and_then(Answer::encode).map_err(refuse)?;
    Ok(match answer {
        Encoded::Json(body, extensions) => {
            reply::with_extensions(reply::body(StatusCode::OK, reply::A2A_JSON, body), &extensions)
        }
        Encoded::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let events = EventStream::new(*frames, Envelope::plain(), app.keep_alive);
            reply::with_extensions(reply::stream(events), &extensions)
        }
        Encoded::Card(card) => {
            reply::cacheable(&parts.headers, &card, reply::A2A_JSON, "private, max-age=60", Some(auth::VARY))
        }
    })
}

async fn operation(
    app: &App,
    resource: Resource,
    parts: &Parts,
    query: &Query,
    body: Body,
) -> Result<Operation, Box<Response>> {
    match resource {
        Resource::SendMessage => Ok(Operation::Send(Box::new(read_message(app, parts, query, body).await?))),
        Resource::StreamMessage => Ok(Operation::Stream(Box::new(read_message(app, parts, query, body).await?))),
        Resource::Tasks => Ok(Operation::List(Box::new(query.list_tasks().map_err(refuse)?))),
        Resource::Task(id) => {
            let tenant = query.tenant().map_err(refuse)?.to_owned();
            let history_length = query.history_length().map_err(refuse)?;
            Ok(Operation::Get(GetTaskRequest { tenant, id, history_length }))
        }
        Resource::CancelTask(id) => {
            let mut request: CancelTaskRequest = read_optional(app, parts, body).await?.unwrap_or_default();
            agree(&mut request.tenant, query.tenant().map_err(refuse)?, "tenant").map_err(refuse)?;
            agree(&mut request.id, &id, "id").map_err(refuse)?;
            Ok(Operation::Cancel(request))
        }
        Resource::SubscribeToTask(id) => {
            let after = headers::cursor(&parts.headers, query).map_err(refuse)?;
            let mut request: SubscribeToTaskRequest = read_optional(app, parts, body).await?.unwrap_or_default();
            agree(&mut request.tenant, query.tenant().map_err(refuse)?, "tenant").map_err(refuse)?;
            agree(&mut request.id, &id, "id").map_err(refuse)?;
            Ok(Operation::Subscribe(request, after))
        }
        Resource::PushConfigs | Resource::PushConfig => Ok(Operation::PushConfig),
        Resource::ExtendedCard | Resource::AgentCard | Resource::JsonRpc => {
            Ok(Operation::ExtendedCard { tenant: query.tenant().map_err(refuse)?.to_owned() })
        }
    }
}

async fn read_message(
    app: &App,
    parts: &Parts,
    query: &Query,
    body: Body,
) -> Result<SendMessageRequest, Box<Response>> {
    check_media(parts).map_err(refuse)?;
    let bytes = body::read(&parts.headers, body, app.bounds).await?;
    body::check_text(&bytes).map_err(refuse)?;
    let mut request: SendMessageRequest = a2a::decode(&bytes).map_err(refuse)?;
    agree(&mut request.tenant, query.tenant().map_err(refuse)?, "tenant").map_err(refuse)?;
    Ok(request)
}

/// A request that may come without a body, and then without a media type.
async fn read_optional<T>(app: &App, parts: &Parts, body: Body) -> Result<Option<T>, Box<Response>>
where
    T: serde::de::DeserializeOwned,
{
    let bytes = body::read(&parts.headers, body, app.bounds).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    check_media(parts).map_err(refuse)?;
    body::check_text(&bytes).map_err(refuse)?;
    a2a::decode(&bytes).map(Some).map_err(refuse)
}

fn check_media(parts: &Parts) -> Result<(), Error> {
    match Media::of(&parts.headers) {
        Media::Json | Media::A2aJson => Ok(()),
        Media::Other => Err(headers::wrong_media("application/json or application/a2a+json")),
    }
}

/// Fills in a field of the body from the URL. What is said twice must be the same.
fn agree(field: &mut String, url: &str, name: &str) -> Result<(), Error> {
    if field.is_empty() {
        url.clone_into(field);
    } else if !url.is_empty() && field != url {
        return Err(Error::invalid(name, "the body and the URL must name the same"));
    }
    Ok(())
}

fn refuse(error: Error) -> Box<Response> {
    Box::new(reply::error(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_and_url_agree() {
        for (body, url, result) in [("", "a", Some("a")), ("a", "", Some("a")), ("a", "a", Some("a")), ("a", "b", None)]
        {
            let mut field = body.to_owned();
            let agreed = agree(&mut field, url, "tenant");
            assert_eq!(agreed.ok().map(|()| field.as_str()), result, "{body} {url}");
        }
    }
}
