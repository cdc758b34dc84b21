//! gRPC of 0.3, as a caller: the JSON of its proto as messages of that proto. The tables are the proto.

use a2a::{
    Error as ProtocolError,
    v03::{DeleteTaskPushNotificationConfigParams, GetTaskPushNotificationConfigParams, TaskIdParams, TaskQueryParams},
};
use bytes::Bytes;
use serde_json::{Value, json};
use url::Url;

use super::{
    proto,
    transcode::{self, Field, Kind, Table},
};
use crate::{
    Error,
    binding::{Operation, Outbound},
    grpc,
    sse::Event,
};

/// The service of the protocol.
const SERVICE: &str = "a2a.v1.A2AService";

const STATES: &[&str] = &[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELLED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
];
const ROLES: &[&str] = &["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"];

const FILE: Table = &[
    one(1, "fileWithUri", Kind::Text),
    one(2, "fileWithBytes", Kind::Bytes),
    one(3, "mimeType", Kind::Text),
    one(4, "name", Kind::Text),
];
const DATA: Table = &[one(1, "data", Kind::Struct)];
const PART: Table = &[
    one(1, "text", Kind::Text),
    one(2, "file", Kind::Message(FILE)),
    one(3, "data", Kind::Message(DATA)),
    one(4, "metadata", Kind::Struct),
];
const MESSAGE: Table = &[
    one(1, "messageId", Kind::Text),
    one(2, "contextId", Kind::Text),
    one(3, "taskId", Kind::Text),
    one(4, "role", Kind::Word(ROLES)),
    many(5, "content", Kind::Message(PART)),
    one(6, "metadata", Kind::Struct),
    many(7, "extensions", Kind::Text),
];
const ARTIFACT: Table = &[
    one(1, "artifactId", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "description", Kind::Text),
    many(5, "parts", Kind::Message(PART)),
    one(6, "metadata", Kind::Struct),
    many(7, "extensions", Kind::Text),
];
const STATUS: Table =
    &[one(1, "state", Kind::Word(STATES)), one(2, "message", Kind::Message(MESSAGE)), one(3, "timestamp", Kind::Time)];
const TASK: Table = &[
    one(1, "id", Kind::Text),
    one(2, "contextId", Kind::Text),
    one(3, "status", Kind::Message(STATUS)),
    many(4, "artifacts", Kind::Message(ARTIFACT)),
    many(5, "history", Kind::Message(MESSAGE)),
    one(6, "metadata", Kind::Struct),
];
const STATUS_UPDATE: Table = &[
    one(1, "taskId", Kind::Text),
    one(2, "contextId", Kind::Text),
    one(3, "status", Kind::Message(STATUS)),
    one(4, "final", Kind::Bool),
    one(5, "metadata", Kind::Struct),
];
const ARTIFACT_UPDATE: Table = &[
    one(1, "taskId", Kind::Text),
    one(2, "contextId", Kind::Text),
    one(3, "artifact", Kind::Message(ARTIFACT)),
    one(4, "append", Kind::Bool),
    one(5, "lastChunk", Kind::Bool),
    one(6, "metadata", Kind::Struct),
];
/// The answer to a message is one of the first two.
const EVENT: Table = &[
    one(1, "task", Kind::Message(TASK)),
    one(2, "message", Kind::Message(MESSAGE)),
    one(3, "statusUpdate", Kind::Message(STATUS_UPDATE)),
    one(4, "artifactUpdate", Kind::Message(ARTIFACT_UPDATE)),
];
const AUTHENTICATION: Table = &[many(1, "schemes", Kind::Text), one(2, "credentials", Kind::Text)];
const PUSH: Table = &[
    one(1, "id", Kind::Text),
    one(2, "url", Kind::Text),
    one(3, "token", Kind::Text),
    one(4, "authentication", Kind::Message(AUTHENTICATION)),
];
const NAMED_PUSH: Table = &[one(1, "name", Kind::Text), one(2, "pushNotificationConfig", Kind::Message(PUSH))];
const PUSH_LIST: Table = &[many(1, "configs", Kind::Message(NAMED_PUSH)), one(2, "nextPageToken", Kind::Text)];
const CONFIGURATION: Table = &[
    many(1, "acceptedOutputModes", Kind::Text),
    one(2, "pushNotification", Kind::Message(PUSH)),
    one(3, "historyLength", Kind::Int),
    one(4, "blocking", Kind::Bool),
];
const SEND: Table = &[
    one(1, "message", Kind::Message(MESSAGE)),
    one(2, "configuration", Kind::Message(CONFIGURATION)),
    one(3, "metadata", Kind::Struct),
];
/// All requests that name a task or a webhook; those for tasks have a length, too.
const NAME: Table = &[one(1, "name", Kind::Text), one(2, "historyLength", Kind::Int)];
const PARENT: Table = &[one(1, "parent", Kind::Text)];
const CREATE_PUSH: Table =
    &[one(1, "parent", Kind::Text), one(2, "configId", Kind::Text), one(3, "config", Kind::Message(NAMED_PUSH))];

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, repeated: false }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, repeated: true }
}

pub(crate) fn encode(endpoint: &Url, operation: Operation<'_>) -> Result<Outbound, Error> {
    let (method, table, request) = call(operation).map_err(Error::Inexpressible)?;
    Ok(grpc::call(endpoint, SERVICE, method, &transcode::encode(table, &request)))
}

/// An event of a stream, as JSON.
pub(crate) fn event(message: Bytes) -> Result<Event, Error> {
    Ok(Event { id: None, name: "message".to_owned(), data: json_of(EVENT, message)? })
}

/// The answer to an operation, as JSON.
pub(crate) fn answer(operation: Operation<'_>, message: Bytes) -> Result<String, Error> {
    let table = match operation {
        Operation::Send(_) | Operation::Stream(_) | Operation::Subscribe(_) => EVENT,
        Operation::Get(_) | Operation::Cancel(_) => TASK,
        Operation::CreatePush(_) | Operation::GetPush(_) => NAMED_PUSH,
        Operation::ListPush(_) => PUSH_LIST,
        Operation::DeletePush(_) | Operation::List(_) | Operation::ExtendedCard(_) => &[],
    };
    json_of(table, message)
}

fn json_of(table: Table, message: Bytes) -> Result<String, Error> {
    let json = transcode::decode(table, message);
    json.map(|json| json.to_string()).map_err(|_| Error::Malformed("not a message of A2A 0.3".to_owned()))
}

fn call(operation: Operation<'_>) -> Result<(&'static str, Table, Value), ProtocolError> {
    let task = |params: TaskIdParams| json!({"name": proto::task_name(&params.id)});
    Ok(match operation {
        Operation::Send(request) => ("SendMessage", SEND, proto::send(request)?),
        Operation::Stream(request) => ("SendStreamingMessage", SEND, proto::send(request)?),
        Operation::Get(request) => {
            let params = TaskQueryParams::try_from(request.clone())?;
            let request = json!({"name": proto::task_name(&params.id), "historyLength": params.history_length});
            ("GetTask", NAME, request)
        }
        Operation::Cancel(request) => ("CancelTask", NAME, task(request.clone().try_into()?)),
        Operation::Subscribe(request) => ("TaskSubscription", NAME, task(request.clone().try_into()?)),
        Operation::CreatePush(config) => ("CreateTaskPushNotificationConfig", CREATE_PUSH, proto::create_push(config)?),
        Operation::GetPush(request) => {
            let params = GetTaskPushNotificationConfigParams::try_from(request.clone())?;
            let name = proto::push_name(&params.id, &params.push_notification_config_id);
            ("GetTaskPushNotificationConfig", NAME, json!({"name": name}))
        }
        Operation::ListPush(request) => {
            let params = TaskIdParams::try_from(request.clone())?;
            ("ListTaskPushNotificationConfig", PARENT, json!({"parent": proto::task_name(&params.id)}))
        }
        Operation::DeletePush(request) => {
            let params = DeleteTaskPushNotificationConfigParams::try_from(request.clone())?;
            let name = proto::push_name(&params.id, &params.push_notification_config_id);
            ("DeleteTaskPushNotificationConfig", NAME, json!({"name": name}))
        }
        Operation::List(_) => return Err(super::lists_no_tasks()),
        // It would be a card in a form that nobody here reads; whoever needs it has HTTP for it.
        Operation::ExtendedCard(_) => return Err(super::no_card_by_grpc()),
    })
}

#[cfg(test)]
mod tests {
    use a2a::GetTaskRequest;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use proptest::prelude::*;

    use super::*;

    fn bytes(base64: &str) -> Bytes {
        STANDARD.decode(base64).unwrap().into()
    }

    /// What the official SDK for Python wrote, and the JSON that it takes for the same.
    #[test]
    fn events_are_read_as_others_write_them() {
        let task = "CsMBCgF0EgFjGh4IBRIMCgFtIAIqBQoDYnllGgwIpYTYuwYQgOulwwIicgoBYRoBbiIBZCoCCgAqHhIcCgtodHRwczovL2gveBoKdGV4dC9wbGFpbiIBZipAGjIKMAouCgFrEikyJwoJEQAAAAAAAPA/CgkRAAAAAAAABEAKAggACgsqCQoHCgF4EgIgASIKCggKAW0SAxoBdjoBdSoVCgFoEgFjGgF0IAEqCBIGEgRhR2s9MhAKDgoBbhIJEQAAAAAAAPA/";
        let expected = json!({"task": {
            "id": "t", "contextId": "c",
            "status": {
                "state": "TASK_STATE_CANCELLED",
                "message": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "bye"}]},
                "timestamp": "2025-01-02T03:04:05.678Z",
            },
            "artifacts": [{
                "artifactId": "a", "name": "n", "description": "d", "extensions": ["u"],
                "parts": [
                    {"text": ""},
                    {"file": {"fileWithUri": "https://h/x", "mimeType": "text/plain", "name": "f"}},
                    {"data": {"data": {"k": [1, 2.5, null, {"x": true}]}}, "metadata": {"m": "v"}},
                ],
            }],
            "history": [{
                "messageId": "h", "contextId": "c", "taskId": "t", "role": "ROLE_USER",
                "content": [{"file": {"fileWithBytes": "YUdrPQ=="}}],
            }],
            "metadata": {"n": 1},
        }});
        let status = json!({"statusUpdate": {
            "taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "final": true,
        }});
        let artifact = json!({"artifactUpdate": {
            "taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "x"}]},
            "append": true, "lastChunk": true,
        }});
        let message = json!({"message": {
            "messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "hi"}], "extensions": ["e"],
        }});
        for (written, expected) in [
            (task, expected),
            ("GgwKAXQSAWMaAggDIAE=", status),
            ("IhQKAXQSAWMaCAoBYSoDCgF4IAEoAQ==", artifact),
            ("Eg4KAW0gAioECgJoaToBZQ==", message),
        ] {
            let read: Value = serde_json::from_str(&event(bytes(written)).unwrap().data).unwrap();
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn a_message_is_written_as_others_write_it() {
        let request = json!({
            "message": {
                "messageId": "m", "contextId": "c", "taskId": "t", "role": "ROLE_USER",
                "content": [
                    {"text": "hi"},
                    {"data": {"data": {"k": 1}}},
                    {"file": {"fileWithBytes": "YUdrPQ==", "mimeType": "text/plain", "name": "n"}},
                ],
            },
            "configuration": {
                "acceptedOutputModes": ["text"], "historyLength": 3, "blocking": true,
                "pushNotification": {
                    "id": "i", "url": "https://h", "token": "k",
                    "authentication": {"schemes": ["Bearer"], "credentials": "s"},
                },
            },
            "metadata": {"skillHint": "s"},
        });
        let expected = "CkAKAW0SAWMaAXQgASoECgJoaSoUGhIKEAoOCgFrEgkRAAAAAAAA8D8qFxIVEgRhR2s9Ggp0ZXh0L3BsYWluIgFuEioKBHRleHQSHgoBaRIJaHR0cHM6Ly9oGgFrIgsKBkJlYXJlchIBcxgDIAEaEgoQCglza2lsbEhpbnQSAxoBcw==";
        assert_eq!(STANDARD.encode(transcode::encode(SEND, &request)), expected);
    }

    #[test]
    fn a_task_is_asked_for_by_its_name() {
        let url = Url::parse("http://h:1/").unwrap();
        let request = GetTaskRequest { id: "t".to_owned(), history_length: Some(2), ..GetTaskRequest::default() };
        let outbound = encode(&url, Operation::Get(&request)).unwrap();
        assert_eq!(outbound.url.as_str(), "http://h:1/a2a.v1.A2AService/GetTask");
        assert_eq!(outbound.body.unwrap(), b"\0\0\0\0\x0b\x0a\x07tasks/t\x10\x02");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b"\x0a\x05"[..], b"\x0a\x03\x0a\x01\xff", b"\x0b", b"\x1a\x04\x1a\x02\x08\x63", b"\xff"] {
            assert!(event(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        assert_eq!(event(Bytes::from_static(b"\x7a\x01x")).unwrap().data, "{}", "fields of others are skipped");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(found in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = event(found.into());
        }
    }
}
