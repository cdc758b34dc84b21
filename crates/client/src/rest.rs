//! The HTTP+JSON binding, as a caller.

use a2a::{
    Json, ListTaskPushNotificationConfigsRequest, ListTasksRequest, TaskState,
    error::{RemoteError, excerpt, parse_error_body},
};
use http::Method;
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use url::Url;

use crate::{
    Error,
    binding::{Operation, Outbound},
};

const MEDIA_TYPE: &str = "application/a2a+json";
const PUSH_CONFIGS: &str = "pushNotificationConfigs";

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
    match operation {
        Operation::Send(request) => post(at(endpoint, &request.tenant, &["message:send"]), request),
        Operation::Stream(request) => post(at(endpoint, &request.tenant, &["message:stream"]), request),
        Operation::Get(request) => {
            let mut url = at(endpoint, &request.tenant, &["tasks", &request.id]);
            if let Some(length) = request.history_length {
                url.query_pairs_mut().append_pair("historyLength", &length.to_string());
            }
            Ok(get(url))
        }
        Operation::List(request) => Ok(get(list(endpoint, request))),
        Operation::Cancel(request) => {
            post(at(endpoint, &request.tenant, &["tasks", &format!("{}:cancel", request.id)]), request)
        }
        Operation::Subscribe(request) => {
            Ok(get(at(endpoint, &request.tenant, &["tasks", &format!("{}:subscribe", request.id)])))
        }
        Operation::CreatePush(config) => {
            post(at(endpoint, &config.tenant, &["tasks", &config.task_id, PUSH_CONFIGS]), config)
        }
        Operation::GetPush(request) => {
            Ok(get(at(endpoint, &request.tenant, &["tasks", &request.task_id, PUSH_CONFIGS, &request.id])))
        }
        Operation::ListPush(request) => Ok(get(list_push(endpoint, request))),
        Operation::DeletePush(request) => {
            let url = at(endpoint, &request.tenant, &["tasks", &request.task_id, PUSH_CONFIGS, &request.id]);
            Ok(Outbound { method: Method::DELETE, url, media_type: None, body: None })
        }
        Operation::ExtendedCard(request) => Ok(get(at(endpoint, &request.tenant, &["extendedAgentCard"]))),
    }
}

pub(crate) fn decode(status: u16, body: &[u8]) -> Result<Box<RawValue>, Error> {
    if !(200..300).contains(&status) {
        return Err(refused(status, body));
    }
    serde_json::from_slice(body).map_err(|error| Error::Malformed(format!("not JSON: {error}")))
}

/// The JSON in an event of a stream, on one line however it was written.
pub(crate) fn decode_frame(data: &str) -> Result<Box<RawValue>, Error> {
    let json = Json::from_text(data).map_err(|error| Error::Malformed(format!("not JSON: {error}")))?;
    RawValue::from_string(json.get().to_owned()).map_err(|error| Error::Malformed(format!("not JSON: {error}")))
}

/// Servers of 0.3 say what is wrong in a `message` that stands by itself.
fn refused(status: u16, body: &[u8]) -> Error {
    let mut remote = RemoteError::from_status_body(status, body);
    let said = parse_error_body(body);
    if let (Value::Null, Some(message)) = (&said["error"], said["message"].as_str()) {
        remote.message = excerpt(message);
    }
    Error::told(status, remote)
}

/// Whatever succeeds says so by its status; what else it says, if anything, is not read.
pub(crate) fn acknowledged(status: u16, body: &[u8]) -> Result<(), Error> {
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(refused(status, body))
}

fn list(endpoint: &Url, request: &ListTasksRequest) -> Url {
    let mut url = at(endpoint, &request.tenant, &["tasks"]);
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if !request.context_id.is_empty() {
        pairs.push(("contextId", request.context_id.clone()));
    }
    if request.status != TaskState::Unspecified {
        pairs.push(("status", request.status.as_str().to_owned()));
    }
    if let Some(size) = request.page_size {
        pairs.push(("pageSize", size.to_string()));
    }
    if !request.page_token.is_empty() {
        pairs.push(("pageToken", request.page_token.clone()));
    }
    if let Some(length) = request.history_length {
        pairs.push(("historyLength", length.to_string()));
    }
    if let Some(after) = request.status_timestamp_after {
        pairs.push(("statusTimestampAfter", after.0.to_string()));
    }
    if let Some(include) = request.include_artifacts {
        pairs.push(("includeArtifacts", include.to_string()));
    }
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    url
}

fn list_push(endpoint: &Url, request: &ListTaskPushNotificationConfigsRequest) -> Url {
    let mut url = at(endpoint, &request.tenant, &["tasks", &request.task_id, PUSH_CONFIGS]);
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if request.page_size != 0 {
        pairs.push(("pageSize", request.page_size.to_string()));
    }
    if !request.page_token.is_empty() {
        pairs.push(("pageToken", request.page_token.clone()));
    }
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    url
}

fn post(url: Url, request: &impl Serialize) -> Result<Outbound, Error> {
    let body = serde_json::to_vec(request)
        .map_err(|error| Error::Malformed(format!("the request cannot be written: {error}")))?;
    Ok(Outbound { method: Method::POST, url, media_type: Some(MEDIA_TYPE), body: Some(body) })
}

pub(crate) fn get(url: Url) -> Outbound {
    Outbound { method: Method::GET, url, media_type: None, body: None }
}

/// A route below the interface's URL; a tenant is a path segment of its own.
pub(crate) fn at(endpoint: &Url, tenant: &str, segments: &[&str]) -> Url {
    let mut url = endpoint.clone();
    // Fails only for URLs without a host, which no endpoint is.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty();
        if !tenant.is_empty() {
            path.push(tenant);
        }
        path.extend(segments);
    }
    url
}

#[cfg(test)]
mod tests {
    use a2a::{
        DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
        SubscribeToTaskRequest, TaskPushNotificationConfig,
    };

    use super::*;

    fn endpoint() -> Url {
        Url::parse("http://host/a2a/").unwrap()
    }

    #[test]
    fn routes_are_below_the_interface() {
        let subscribe = SubscribeToTaskRequest { tenant: "echo".to_owned(), id: "t/1".to_owned() };
        let outbound = encode(&endpoint(), Operation::Subscribe(&subscribe)).unwrap();
        assert_eq!(outbound.url.as_str(), "http://host/a2a/echo/tasks/t%2F1:subscribe");
        let get = GetTaskRequest { id: "t".to_owned(), history_length: Some(2), ..GetTaskRequest::default() };
        let outbound = encode(&endpoint(), Operation::Get(&get)).unwrap();
        assert_eq!(outbound.url.as_str(), "http://host/a2a/tasks/t?historyLength=2");
    }

    #[test]
    fn webhooks_are_below_their_task() {
        let config =
            TaskPushNotificationConfig { tenant: "echo".to_owned(), task_id: "t".to_owned(), ..Default::default() };
        let create = encode(&endpoint(), Operation::CreatePush(&config)).unwrap();
        let all = "http://host/a2a/echo/tasks/t/pushNotificationConfigs";
        assert_eq!((create.method, create.url.as_str()), (Method::POST, all));
        let (task_id, id) = ("t".to_owned(), "c/1".to_owned());
        let request =
            GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: id.clone(), ..Default::default() };
        let got = encode(&endpoint(), Operation::GetPush(&request)).unwrap();
        let one = "http://host/a2a/tasks/t/pushNotificationConfigs/c%2F1";
        assert_eq!((got.method, got.url.as_str()), (Method::GET, one));
        let request = DeleteTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
        let deleted = encode(&endpoint(), Operation::DeletePush(&request)).unwrap();
        assert_eq!((deleted.method, deleted.url.as_str(), deleted.body), (Method::DELETE, one, None));
        let mut request = ListTaskPushNotificationConfigsRequest { task_id: "t".to_owned(), ..Default::default() };
        assert_eq!(list_push(&endpoint(), &request).query(), None);
        request.page_size = 2;
        request.page_token = "a=".to_owned();
        assert_eq!(list_push(&endpoint(), &request).query(), Some("pageSize=2&pageToken=a%3D"));
    }

    #[test]
    fn nothing_is_written_in_several_ways() {
        for (status, body) in [(200, "{}"), (200, ""), (204, ""), (200, "null")] {
            assert!(acknowledged(status, body.as_bytes()).is_ok(), "{status} {body}");
        }
        let body = br#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}"#;
        assert!(matches!(acknowledged(404, body), Err(Error::Protocol(remote)) if remote.message == "no such task"));
    }

    #[test]
    fn filters_go_into_the_query() {
        let request = ListTasksRequest {
            context_id: "a b".to_owned(),
            status: TaskState::Working,
            page_size: Some(5),
            ..ListTasksRequest::default()
        };
        let url = list(&endpoint(), &request);
        assert_eq!(url.query(), Some("contextId=a+b&status=TASK_STATE_WORKING&pageSize=5"));
        assert_eq!(list(&endpoint(), &ListTasksRequest::default()).query(), None);
    }

    #[test]
    fn a_very_long_error_is_told_by_its_status() {
        let body = format!(r#"{{"message":"Task not found","more":"{}"}}"#, "x".repeat(64 << 10));
        let error = decode(404, body.as_bytes()).unwrap_err();
        assert!(
            matches!(&error, Error::Protocol(remote) if remote.message.starts_with("HTTP status 404: {")),
            "{error}"
        );
    }

    #[test]
    fn errors_are_read_from_status_bodies() {
        let body = br#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}"#;
        assert!(matches!(decode(404, body), Err(Error::Protocol(remote)) if remote.message == "no such task"));
        let old = br#"{"message":"Task not found"}"#;
        assert!(matches!(decode(404, old), Err(Error::Protocol(remote)) if remote.message == "Task not found"));
        assert!(matches!(decode(401, b""), Err(Error::Auth(_))));
        assert!(matches!(decode(200, b"{"), Err(Error::Malformed(_))));
    }
}
