//! HTTP+JSON of 0.3, as a caller.

use a2a::{
    Error as ProtocolError,
    v03::{DeleteTaskPushNotificationConfigParams, GetTaskPushNotificationConfigParams, TaskIdParams, TaskQueryParams},
};
use serde_json::{Value, json};
use url::Url;

use super::proto;
use crate::{
    Error,
    binding::{Operation, Outbound},
    rest::{at, get},
};

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
    outbound(endpoint, operation).map_err(Error::Inexpressible)
}

fn outbound(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, ProtocolError> {
    let route = |segments: &[&str]| at(endpoint, "", &[&["v1"], segments].concat());
    // A request that only names what it is about is checked by what 0.3 can say.
    Ok(match operation {
        Operation::Send(request) => post(route(&["message:send"]), &proto::send(request)?),
        Operation::Stream(request) => post(route(&["message:stream"]), &proto::send(request)?),
        Operation::Get(request) => {
            let params = TaskQueryParams::try_from(request.clone())?;
            let mut url = route(&["tasks", &params.id]);
            if let Some(length) = params.history_length {
                url.query_pairs_mut().append_pair("historyLength", &length.to_string());
            }
            get(url)
        }
        Operation::Cancel(request) => {
            let params = TaskIdParams::try_from(request.clone())?;
            let url = route(&["tasks", &format!("{}:cancel", params.id)]);
            post(url, &json!({"name": proto::task_name(&params.id)}))
        }
        Operation::Subscribe(request) => {
            let params = TaskIdParams::try_from(request.clone())?;
            get(route(&["tasks", &format!("{}:subscribe", params.id)]))
        }
        Operation::CreatePush(config) => {
            post(route(&["tasks", &config.task_id, proto::PUSH_CONFIGS]), &proto::create_push(config)?)
        }
        Operation::GetPush(request) => {
            let params = GetTaskPushNotificationConfigParams::try_from(request.clone())?;
            get(route(&["tasks", &params.id, proto::PUSH_CONFIGS, &params.push_notification_config_id]))
        }
        Operation::ListPush(request) => {
            let params = TaskIdParams::try_from(request.clone())?;
            get(route(&["tasks", &params.id, proto::PUSH_CONFIGS]))
        }
        Operation::DeletePush(request) => {
            let params = DeleteTaskPushNotificationConfigParams::try_from(request.clone())?;
            let url = route(&["tasks", &params.id, proto::PUSH_CONFIGS, &params.push_notification_config_id]);
            Outbound { method: http::Method::DELETE, ..get(url) }
        }
        Operation::ExtendedCard(_) => get(route(&["card"])),
        Operation::List(_) => return Err(super::lists_no_tasks()),
    })
}

fn post(url: Url, body: &Value) -> Outbound {
    let body = Some(body.to_string().into_bytes());
    Outbound { method: http::Method::POST, url, media_type: Some("application/json"), body }
}

#[cfg(test)]
mod tests {
    use a2a::{CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest};

    use super::*;

    #[test]
    fn routes_are_below_v1() {
        let endpoint = Url::parse("http://h/x/").unwrap();
        let at = |operation| {
            let outbound = encode(&endpoint, operation).unwrap();
            format!("{} {}", outbound.method, outbound.url)
        };
        let message = crate::user_message("m", "hi");
        assert_eq!(at(Operation::Send(&message)), "POST http://h/x/v1/message:send");
        assert_eq!(at(Operation::Stream(&message)), "POST http://h/x/v1/message:stream");
        let request = GetTaskRequest { id: "t/1".to_owned(), history_length: Some(0), ..Default::default() };
        assert_eq!(at(Operation::Get(&request)), "GET http://h/x/v1/tasks/t%2F1?historyLength=0");
        let request = CancelTaskRequest { id: "t".to_owned(), ..Default::default() };
        assert_eq!(at(Operation::Cancel(&request)), "POST http://h/x/v1/tasks/t:cancel");
        let mut request = SubscribeToTaskRequest { id: "t".to_owned(), ..Default::default() };
        assert_eq!(at(Operation::Subscribe(&request)), "GET http://h/x/v1/tasks/t:subscribe");
        request.tenant = "x".to_owned();
        assert!(matches!(encode(&endpoint, Operation::Subscribe(&request)), Err(Error::Inexpressible(_))));
        let request = ListTasksRequest::default();
        assert!(matches!(encode(&endpoint, Operation::List(&request)), Err(Error::Inexpressible(_))));
    }
}
