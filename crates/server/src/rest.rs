//! The HTTP+JSON binding: paths, query parameters and bodies become operations, answers become plain JSON or events.

use a2a::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use axum::response::Response;
use exchange::Caller;
use http::Method;
use serde::de::DeserializeOwned;

use crate::{
    auth,
    headers::{self, Media},
    operation::{Encoded, Operation},
    path::Resource,
    query::Query,
    reply::{self, Status},
    sse::{Envelope, EventStream},
    surface::Visit,
};

const MEDIA: &[Media] = &[Media::Json, Media::A2aJson];

/// Answers a request at a place that is not a JSON-RPC endpoint.
pub(crate) async fn answer(
    mut visit: Visit<'_, Caller>,
    agent: Option<String>,
    resource: Resource,
) -> Result<Response, Error> {
    let (app, headers) = (visit.app, &visit.parts.headers);
    let query = visit.query()?;
    let call = app.call(visit.caller.clone(), agent, headers, visit.luggage)?;
    // Who reads a card may not know yet which versions there are.
    if resource != Resource::ExtendedCard {
        headers::check_version(headers, &query)?;
    }
    let operation = operation(&mut visit, resource, &query).await?;
    Ok(match app.perform(&call, operation).await?.encode()? {
        Encoded::Json(body, extensions) => {
            reply::with_extensions(reply::body(Status::Ok, reply::A2A_JSON, body), &extensions)
        }
        Encoded::Stream(frames) => {
            let extensions = frames.extensions.clone();
            let events = EventStream::new(*frames, Envelope::plain(), app.keep_alive);
            reply::with_extensions(reply::stream(events), &extensions)
        }
        Encoded::Card(card) => reply::cacheable(headers, &card, reply::A2A_JSON, "private, max-age=60", &[auth::VARY]),
    })
}

async fn operation(visit: &mut Visit<'_, Caller>, resource: Resource, query: &Query) -> Result<Operation, Error> {
    Ok(match resource {
        Resource::SendMessage => Operation::Send(Box::new(message(visit, query).await?)),
        Resource::StreamMessage => Operation::Stream(Box::new(message(visit, query).await?)),
        Resource::Tasks => Operation::List(Box::new(query.list_tasks()?)),
        Resource::Task(id) => {
            let tenant = query.tenant()?.to_owned();
            Operation::Get(GetTaskRequest { tenant, id, history_length: query.history_length()? })
        }
        Resource::CancelTask(id) => {
            let mut request: CancelTaskRequest = optional(visit).await?;
            agree(&mut request.tenant, query.tenant()?, "tenant")?;
            agree(&mut request.id, &id, "id")?;
            Operation::Cancel(request)
        }
        Resource::SubscribeToTask(id) => {
            let after = headers::cursor(&visit.parts.headers, query)?;
            let mut request: SubscribeToTaskRequest = optional(visit).await?;
            agree(&mut request.tenant, query.tenant()?, "tenant")?;
            agree(&mut request.id, &id, "id")?;
            Operation::Subscribe(request, after)
        }
        Resource::PushConfigs(task) if visit.parts.method == Method::POST => {
            let mut config: TaskPushNotificationConfig = decode(visit).await?;
            agree(&mut config.tenant, query.tenant()?, "tenant")?;
            agree(&mut config.task_id, &task, "taskId")?;
            Operation::CreatePush(Box::new(config))
        }
        Resource::PushConfigs(task) => Operation::ListPush(query.list_push(task)?),
        Resource::PushConfig(task_id, id) => {
            let tenant = query.tenant()?.to_owned();
            if visit.parts.method == Method::DELETE {
                Operation::DeletePush(DeleteTaskPushNotificationConfigRequest { tenant, task_id, id })
            } else {
                Operation::GetPush(GetTaskPushNotificationConfigRequest { tenant, task_id, id })
            }
        }
        Resource::ExtendedCard | Resource::JsonRpc => {
            Operation::ExtendedCard { tenant: query.tenant()?.to_owned(), base: visit.app.local_base(visit.parts) }
        }
    })
}

async fn message(visit: &mut Visit<'_, Caller>, query: &Query) -> Result<SendMessageRequest, Error> {
    let mut request: SendMessageRequest = decode(visit).await?;
    agree(&mut request.tenant, query.tenant()?, "tenant")?;
    Ok(request)
}

async fn decode<T: DeserializeOwned>(visit: &mut Visit<'_, Caller>) -> Result<T, Error> {
    let text = visit.text(MEDIA).await?;
    visit.app.reading(text.len(), || a2a::decode(&text))
}

async fn optional<T: DeserializeOwned + Default>(visit: &mut Visit<'_, Caller>) -> Result<T, Error> {
    match visit.optional_text(MEDIA).await? {
        Some(text) => visit.app.reading(text.len(), || a2a::decode(&text)),
        None => Ok(T::default()),
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
