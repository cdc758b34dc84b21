//! Agents that still speak 0.3: requests go down to its bindings, answers come up to the 1.0 types. Here is JSON-RPC; HTTP+JSON and
//! gRPC have another JSON ([`proto`]).

pub(crate) mod grpc;
mod proto;
pub(crate) mod rest;
mod transcode;

use a2a::{
    AgentCard, Error as ProtocolError, ErrorKind, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Method,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, Task,
    TaskPushNotificationConfig, jsonrpc,
    v03::{
        self, DeleteTaskPushNotificationConfigParams, Event, GetTaskPushNotificationConfigParams, MessageSendParams,
        TaskIdParams, TaskQueryParams,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use url::Url;

use crate::{
    Error,
    binding::{Operation, Outbound},
    lenient,
};

/// An answer that can be read in both dialects.
pub(crate) trait FromV03: DeserializeOwned {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError>;

    /// Reads the JSON of 0.3's proto.
    fn read_proto(json: &[u8]) -> Result<Self, ProtocolError> {
        // To put it into words that can be read is what mending does with any answer.
        Self::mend(&proto::answer(json)?, Err(proto::unreadable("neither a task nor a message")))
    }

    /// What can be made of an answer that was read or could not be.
    fn mend(_json: &[u8], strict: Result<Self, ProtocolError>) -> Result<Self, ProtocolError> {
        strict
    }
}

impl FromV03 for SendMessageResponse {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        a2a::decode::<Event>(json)?.try_into()
    }

    fn mend(json: &[u8], strict: Result<Self, ProtocolError>) -> Result<Self, ProtocolError> {
        lenient::response(json, strict)
    }
}

impl FromV03 for StreamResponse {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        a2a::decode::<Event>(json).map(Self::from)
    }

    fn mend(json: &[u8], strict: Result<Self, ProtocolError>) -> Result<Self, ProtocolError> {
        lenient::event(json, strict)
    }
}

impl FromV03 for Task {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        a2a::decode::<v03::Task>(json).map(Self::from)
    }

    fn mend(json: &[u8], strict: Result<Self, ProtocolError>) -> Result<Self, ProtocolError> {
        lenient::task(json, strict)
    }
}

impl FromV03 for AgentCard {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        a2a::decode::<v03::AgentCard>(json).map(Self::from)
    }

    fn read_proto(json: &[u8]) -> Result<Self, ProtocolError> {
        Self::read_v03(json)
    }
}

impl FromV03 for TaskPushNotificationConfig {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        a2a::decode::<v03::TaskPushNotificationConfig>(json)?.try_into()
    }

    fn read_proto(json: &[u8]) -> Result<Self, ProtocolError> {
        proto::push_config(json)?.try_into()
    }
}

impl FromV03 for ListTaskPushNotificationConfigsResponse {
    fn read_v03(json: &[u8]) -> Result<Self, ProtocolError> {
        v03::list_configs_response(a2a::decode(json)?)
    }

    fn read_proto(json: &[u8]) -> Result<Self, ProtocolError> {
        v03::list_configs_response(proto::push_configs(json)?)
    }
}

impl FromV03 for ListTasksResponse {
    /// Its request does not get through [`encode`].
    fn read_v03(_json: &[u8]) -> Result<Self, ProtocolError> {
        Err(lists_no_tasks())
    }
}

fn lists_no_tasks() -> ProtocolError {
    ProtocolError::new(ErrorKind::UnsupportedOperation, "A2A 0.3 lists no tasks")
}

fn no_card_by_grpc() -> ProtocolError {
    ProtocolError::new(ErrorKind::UnsupportedOperation, "a card of A2A 0.3 is not read over gRPC")
}

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
    let body = match operation {
        Operation::Send(request) => call(Method::SendMessage, send_params(request)),
        Operation::Stream(request) => call(Method::SendStreamingMessage, send_params(request)),
        Operation::Get(request) => call(Method::GetTask, TaskQueryParams::try_from(request.clone())),
        Operation::Cancel(request) => call(Method::CancelTask, TaskIdParams::try_from(request.clone())),
        Operation::Subscribe(request) => call(Method::SubscribeToTask, TaskIdParams::try_from(request.clone())),
        Operation::CreatePush(config) => {
            let config = v03::TaskPushNotificationConfig::request(config.clone());
            call(Method::CreateTaskPushNotificationConfig, config)
        }
        Operation::GetPush(request) => {
            let params = GetTaskPushNotificationConfigParams::try_from(request.clone());
            call(Method::GetTaskPushNotificationConfig, params)
        }
        Operation::ListPush(request) => {
            call(Method::ListTaskPushNotificationConfigs, TaskIdParams::try_from(request.clone()))
        }
        Operation::DeletePush(request) => {
            let params = DeleteTaskPushNotificationConfigParams::try_from(request.clone());
            call(Method::DeleteTaskPushNotificationConfig, params)
        }
        Operation::ExtendedCard(_) => call(Method::GetExtendedAgentCard, Ok(serde_json::Map::new())),
        Operation::List(request) => call(Method::ListTasks, Ok(request)),
    }?;
    let url = endpoint.clone();
    Ok(Outbound { method: http::Method::POST, url, media_type: Some("application/json"), body: Some(body) })
}

/// Whether an event of a stream says that it is the last one. 1.0 has no such mark.
pub(crate) fn is_final(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        #[serde(rename = "final", default)]
        is_final: bool,
        /// Where the proto has it.
        #[serde(rename = "statusUpdate")]
        wrapped: Option<Box<Self>>,
    }
    let mark: Result<Mark, _> = serde_json::from_slice(json);
    mark.is_ok_and(|mark| mark.is_final || mark.wrapped.is_some_and(|mark| mark.is_final))
}

fn send_params(request: &SendMessageRequest) -> Result<MessageSendParams, ProtocolError> {
    let mut request = request.clone();
    // 1.0 waits for the turn unless it is told otherwise; 0.3 leaves the default open, so that it is said.
    request.configuration.get_or_insert_with(SendMessageConfiguration::default);
    request.try_into()
}

fn call<P: Serialize>(method: Method, params: Result<P, ProtocolError>) -> Result<Vec<u8>, Error> {
    let name = v03::method_name(method).map_err(Error::Inexpressible)?;
    let params = params.map_err(Error::Inexpressible)?;
    jsonrpc::encode_request(&jsonrpc::Id::number(1), name, &params)
        .map_err(|error| Error::Malformed(format!("the request cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use a2a::{GetTaskRequest, ListTasksRequest};

    use super::*;

    fn body(operation: Operation<'_>) -> serde_json::Value {
        let url = Url::parse("http://h/rpc").unwrap();
        serde_json::from_slice(&encode(&url, operation).unwrap().body.unwrap()).unwrap()
    }

    #[test]
    fn a_message_goes_down_with_its_context_twice() {
        let mut request = crate::user_message("m-1", "hello");
        request.message.context_id = "c-1".to_owned();
        let body = body(Operation::Send(&request));
        assert_eq!(body["method"], "message/send");
        assert_eq!(body["params"]["message"]["contextId"], "c-1");
        assert_eq!(body["params"]["contextId"], "c-1");
        assert_eq!(body["params"]["message"]["parts"][0]["kind"], "text");
        assert_eq!(body["params"]["configuration"]["blocking"], true);
    }

    #[test]
    fn what_0_3_cannot_say_is_refused() {
        let url = Url::parse("http://h/rpc").unwrap();
        let list = ListTasksRequest::default();
        assert!(matches!(encode(&url, Operation::List(&list)), Err(Error::Inexpressible(_))));
        let get = GetTaskRequest { tenant: "t".to_owned(), ..GetTaskRequest::default() };
        assert!(matches!(encode(&url, Operation::Get(&get)), Err(Error::Inexpressible(_))));
    }

    #[test]
    fn only_a_status_can_be_final() {
        let status = |last: bool| {
            let rest = r#""taskId":"t","contextId":"c","status":{"state":"working"}"#;
            format!(r#"{{"kind":"status-update","final":{last},{rest}}}"#)
        };
        assert!(is_final(status(true).as_bytes()));
        assert!(!is_final(status(false).as_bytes()));
        assert!(is_final(format!(r#"{{"statusUpdate":{}}}"#, status(true)).as_bytes()), "as the proto has it");
        assert!(!is_final(format!(r#"{{"statusUpdate":{}}}"#, status(false)).as_bytes()));
        assert!(!is_final(br#"{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}"#));
    }
}
