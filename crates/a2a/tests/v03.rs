//! The 0.3 dialect: every message in both spellings against files that were written by hand, identity of what goes down
//! and up again, and what is carried or refused.

use crate::common::arbitrary;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

use a2a::v03::{self, Event};
use a2a::{
    AgentCard, Artifact, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, Message, Method, Part, SendMessageRequest, SendMessageResponse,
    StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig, TaskState, TaskStatus,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn golden_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn golden(name: &str) -> (Value, Value) {
    let path = golden_folder().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let both: Value = serde_json::from_str(&text).expect("the file is JSON");
    (both["v1"].clone(), both["v03"].clone())
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    a2a::decode(value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("wire types serialise")
}

/// Reads both spellings, converts each into the other, and compares with the file.
fn check<V1, V03>(name: &str, down: impl Fn(V1) -> Result<V03, Error>, up: impl Fn(V03) -> Result<V1, Error>)
where
    V1: Serialize + DeserializeOwned + PartialEq + Debug,
    V03: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let (v1, v03) = golden(name);
    let old: V03 = read(&v03);
    assert_eq!(json_of(&old), v03, "{name}: we write what we read");
    let new: V1 = read(&v1);
    assert_eq!(json_of(&new), v1, "{name}: we write what we read");
    assert_eq!(json_of(&down(new).expect(name)), v03, "{name}: down");
    assert_eq!(json_of(&up(old).expect(name)), v1, "{name}: up");
}

#[test]
fn every_message_in_both_spellings() {
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(golden_folder()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".json").unwrap();
        seen.insert(name.to_owned());
        match name {
            name if name.starts_with("part-") => {
                check(name, |part: Part| Ok(v03::Part::from(part)), |part| Ok(part.into()));
            }
            "message" | "message-agent" | "message-without-role" => {
                check(name, |it: Message| Ok(v03::Message::from(it)), |it| Ok(it.into()));
            }
            "artifact" => {
                check(name, |it: Artifact| Ok(v03::Artifact::from(it)), |it| Ok(it.into()));
            }
            "task-status" => {
                check(name, |it: TaskStatus| Ok(v03::TaskStatus::from(it)), |it| Ok(it.into()));
            }
            "task" => check(name, |it: Task| Ok(v03::Task::from(it)), |it| Ok(it.into())),
            name if name.starts_with("status-update-")
                || name.starts_with("artifact-update")
                || name.starts_with("stream-") =>
            {
                check(name, |it: StreamResponse| Ok(v03::stream_result(&it)), |it: Event| Ok(it.into()));
            }
            name if name.starts_with("send-response-") => {
                check(name, |it: SendMessageResponse| Ok(v03::send_result(&it)), SendMessageResponse::try_from);
            }
            name if name.starts_with("send-params") => {
                check(name, v03::MessageSendParams::try_from, SendMessageRequest::try_from);
            }
            "get-task" => check(name, |it: GetTaskRequest| v03::TaskQueryParams::try_from(it), |it| Ok(it.into())),
            "cancel-task" => check(name, |it: CancelTaskRequest| v03::TaskIdParams::try_from(it), |it| Ok(it.into())),
            "subscribe-to-task" => {
                check(name, |it: SubscribeToTaskRequest| v03::TaskIdParams::try_from(it), |it| Ok(it.into()))
            }
            "push-config" | "push-config-plain" => {
                check(name, v03::TaskPushNotificationConfig::request, TaskPushNotificationConfig::try_from)
            }
            "get-push-config" | "get-push-config-only" => check(
                name,
                |it: GetTaskPushNotificationConfigRequest| v03::GetTaskPushNotificationConfigParams::try_from(it),
                |it| Ok(it.into()),
            ),
            "delete-push-config" => check(
                name,
                |it: DeleteTaskPushNotificationConfigRequest| v03::DeleteTaskPushNotificationConfigParams::try_from(it),
                |it| Ok(it.into()),
            ),
            "list-push-configs" => check(
                name,
                |it: ListTaskPushNotificationConfigsRequest| v03::TaskIdParams::try_from(it),
                |it| Ok(it.into()),
            ),
            "list-push-configs-response" => {
                let (v1, v03) = golden(name);
                let new: ListTaskPushNotificationConfigsResponse = read(&v1);
                assert_eq!(json_of(&v03::list_configs_result(&new).unwrap()), v03);
                let old = serde_json::from_value(v03).unwrap();
                assert_eq!(v03::list_configs_response(old).unwrap(), new);
            }
            "agent-card" => check(name, |it: AgentCard| Ok(v03::AgentCard::from(&it)), |it| Ok(it.into())),
            other => panic!("nothing reads {other}.json"),
        }
    }
    assert!(seen.len() >= 40, "the files are there: {seen:?}");
}

// What a single kind of metadata cannot tell apart: an empty object and none.
fn without_empty_metadata(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // A part, or a message: `data` and other metadata are left alone.
            if map.get("metadata").is_some_and(|it| *it == json!({})) {
                map.remove("metadata");
            }
            for (name, inner) in map {
                if name != "data" && name != "metadata" {
                    without_empty_metadata(inner);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty_metadata),
        _ => {}
    }
}

fn comes_back<T, U>(original: &T, down: impl Fn(T) -> U, up: impl Fn(U) -> T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug + Clone,
    U: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let mut normal = json_of(original);
    without_empty_metadata(&mut normal);
    let original: T = read(&normal);
    let low = down(original.clone());
    let text = serde_json::to_vec(&low).expect("wire types serialise");
    assert!(!text.contains(&b'\n'), "an event is one line");
    let reread: U = a2a::decode(&text).expect("we read what we write");
    // The role of a message without one is in its metadata, where reading does not look.
    assert_eq!(json_of(&reread), json_of(&low), "we read what we write");
    assert_eq!(up(reread), original);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_come_back(value in arbitrary::part()) {
        comes_back(&value, v03::Part::from, Part::from);
    }

    #[test]
    fn messages_come_back(value in arbitrary::message()) {
        comes_back(&value, v03::Message::from, Message::from);
    }

    #[test]
    fn tasks_come_back(value in arbitrary::task()) {
        comes_back(&value, v03::Task::from, Task::from);
    }

    #[test]
    fn events_come_back(value in arbitrary::stream_response()) {
        comes_back(&value, Event::from, StreamResponse::from);
    }

    #[test]
    fn requests_come_back(value in arbitrary::send_request()) {
        let mut value = value;
        value.tenant.clear();
        if let Some(config) = value.configuration.as_mut().and_then(|it| it.task_push_notification_config.as_mut()) {
            config.tenant.clear();
            config.task_id.clear();
        }
        comes_back(
            &value,
            |it| v03::MessageSendParams::try_from(it).unwrap(),
            |it| SendMessageRequest::try_from(it).unwrap(),
        );
    }

    /// What 0.3 keeps of a card is what comes back, and the card with both sets of fields reads as either.
    #[test]
    fn cards_keep_their_content(value in arbitrary::card()) {
        let down = v03::AgentCard::from(&value);
        let back = AgentCard::from(read::<v03::AgentCard>(&json_of(&down)));
        prop_assert_eq!(&back.skills, &value.skills);
        prop_assert_eq!(&back.security_requirements, &value.security_requirements);
        for (name, scheme) in &back.security_schemes {
            prop_assert_eq!(Some(scheme), value.security_schemes.get(name));
        }
        let both = v03::compat_card(&value, "http://base");
        prop_assert_eq!(&a2a::decode::<AgentCard>(&both).unwrap(), &value);
        let old: v03::AgentCard = a2a::decode(&both).unwrap();
        prop_assert_eq!(old.security_schemes.len(), value.security_schemes.len());
        prop_assert!(!old.url.is_empty() || value.supported_interfaces.iter().any(|it| it.url.is_empty()));
    }

    /// No bytes make the readers panic, and whatever they read converts.
    #[test]
    fn noise_is_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        value in arbitrary::stream_response(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut changed = serde_json::to_vec(&v03::stream_result(&value)).unwrap();
        let at = at.index(changed.len());
        changed[at] = byte;
        for input in [bytes.as_slice(), &changed] {
            if let Ok(event) = a2a::decode::<Event>(input) {
                let _ = StreamResponse::from(event);
            }
            if let Ok(params) = a2a::decode::<v03::MessageSendParams>(input) {
                let _ = SendMessageRequest::try_from(params);
            }
            let _ = a2a::decode::<v03::TaskPushNotificationConfig>(input);
            if let Ok(v03::AnyCard::V03(card)) = v03::decode_card(input) {
                let _ = AgentCard::from(card);
            }
        }
    }
}

#[test]
fn every_operation_but_one_has_a_name() {
    for method in Method::ALL {
        match v03::method_name(method) {
            Ok(name) => assert_eq!(v03::method(name), Some(method)),
            Err(error) => {
                assert_eq!(method, Method::ListTasks);
                assert_eq!(error.kind, ErrorKind::UnsupportedOperation);
            }
        }
    }
    for name in ["", "SendMessage", "tasks/list", "message/Send"] {
        assert_eq!(v03::method(name), None, "{name}");
    }
}

fn violation<T: Debug>(result: Result<T, Error>) -> String {
    let error = result.expect_err("it is refused");
    assert_eq!(error.kind, ErrorKind::InvalidParams, "{error}");
    error.violations[0].field.clone()
}

#[test]
fn what_0_3_cannot_say_is_refused_by_name() {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "taskId": "t"});
    let send = |value: Value| v03::MessageSendParams::try_from(read::<SendMessageRequest>(&value));
    assert_eq!(violation(send(json!({"tenant": "a", "message": message}))), "tenant");
    let push =
        |config: Value| send(json!({"message": message, "configuration": {"taskPushNotificationConfig": config}}));
    let path = "configuration.taskPushNotificationConfig";
    assert_eq!(violation(push(json!({"url": "u", "tenant": "a"}))), format!("{path}.tenant"));
    assert_eq!(violation(push(json!({"url": "u", "taskId": "other"}))), format!("{path}.taskId"));
    assert!(push(json!({"url": "u", "taskId": "t"})).is_ok(), "that is the message's own task");
    let list = |value: Value| v03::TaskIdParams::try_from(read::<ListTaskPushNotificationConfigsRequest>(&value));
    assert_eq!(violation(list(json!({"taskId": "t", "pageSize": 5}))), "pageSize");
    assert_eq!(violation(list(json!({"taskId": "t", "pageToken": "p"}))), "pageToken");
    let get = read::<GetTaskRequest>(&json!({"tenant": "a", "id": "t"}));
    assert_eq!(violation(v03::TaskQueryParams::try_from(get)), "tenant");
    let page = read(&json!({"configs": [], "nextPageToken": "p"}));
    assert_eq!(v03::list_configs_result(&page).unwrap_err().kind, ErrorKind::Internal);
}

#[test]
fn what_1_0_cannot_say_is_refused_by_name() {
    let config = json!({"url": "u", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}});
    let set: v03::TaskPushNotificationConfig = read(&json!({"taskId": "t", "pushNotificationConfig": config}));
    assert_eq!(violation(TaskPushNotificationConfig::try_from(set)), "pushNotificationConfig.authentication.schemes");
    let send: v03::MessageSendParams = read(&json!({
        "message": {"messageId": "m", "role": "user", "parts": []},
        "configuration": {"pushNotificationConfig": config},
    }));
    assert_eq!(
        violation(SendMessageRequest::try_from(send)),
        "configuration.pushNotificationConfig.authentication.schemes"
    );
}

#[test]
fn x_22_the_context_of_the_message_counts_before_that_of_the_parameters() {
    let up = |value: Value| SendMessageRequest::try_from(read::<v03::MessageSendParams>(&value)).unwrap();
    let message = json!({"messageId": "m", "role": "user", "parts": []});
    let request = up(json!({"message": message, "contextId": "outer"}));
    assert_eq!(request.message.context_id, "outer");
    let message = json!({"messageId": "m", "role": "user", "parts": [], "contextId": "inner"});
    let request = up(json!({"message": message, "contextId": "outer"}));
    assert_eq!(request.message.context_id, "inner");
    let down = v03::MessageSendParams::try_from(request).unwrap();
    assert_eq!((down.context_id.as_str(), down.message.context_id.as_str()), ("inner", "inner"));
}

#[test]
fn blocking_is_the_default() {
    let message = json!({"messageId": "m", "role": "user", "parts": []});
    for (configuration, immediately) in [
        (json!({}), false),
        (json!({"blocking": null}), false),
        (json!({"blocking": true}), false),
        (json!({"blocking": false}), true),
    ] {
        let params = json!({"message": message, "configuration": configuration});
        let request = SendMessageRequest::try_from(read::<v03::MessageSendParams>(&params)).unwrap();
        assert_eq!(request.configuration.unwrap().return_immediately, immediately);
    }
}

#[test]
fn reading_is_lenient_where_senders_are() {
    // Nothing says its kind, null means unset, unknown names are skipped, names may be in snake case.
    let params: v03::MessageSendParams = read(&json!({
        "message": {
            "message_id": "m", "role": "user", "taskId": null, "novel": {},
            "parts": [{"text": "a"}, {"file": {"uri": "u", "mime_type": "m/t", "bytes": null}}, {"data": {}}],
        },
    }));
    let request = SendMessageRequest::try_from(params).unwrap();
    assert_eq!(request.message.message_id, "m");
    assert_eq!(request.message.parts[1].media_type, "m/t");
    for (result, kind) in [
        (json!({"id": "t", "status": {"state": "working"}}), "task"),
        (json!({"taskId": "t", "status": {"state": "working"}}), "status-update"),
        (json!({"artifact": {"artifactId": "a", "parts": []}}), "artifact-update"),
        (json!({"messageId": "m", "role": "agent", "parts": []}), "message"),
    ] {
        assert_eq!(json_of(&read::<Event>(&result))["kind"], kind);
    }
    // Unpadded base64 of the other alphabet, a time without a zone, data that is a list.
    let task: v03::Task = read(&json!({
        "id": "t", "contextId": "c", "status": {"state": "completed", "timestamp": "2025-01-02T03:04:05.678901"},
        "artifacts": [{"artifactId": "a", "parts": [
            {"kind": "file", "file": {"bytes": "-_8"}},
            {"kind": "data", "data": [1]},
        ]}],
    }));
    let task = Task::from(task);
    assert_eq!(task.status.timestamp.unwrap().to_string(), "2025-01-02T03:04:05.678Z");
    assert_eq!(task.artifacts[0].parts[0], Part::raw(vec![0xfb, 0xff]));
    assert_eq!(json_of(&task.artifacts[0].parts[1]), json!({"data": [1]}));
}

#[test]
fn wrong_input_names_its_field() {
    let field = |value: Value| violation(a2a::decode::<v03::MessageSendParams>(value.to_string().as_bytes()));
    let with = |part: Value| json!({"message": {"messageId": "m", "role": "user", "parts": [part]}});
    assert_eq!(field(json!({})), "message");
    assert_eq!(field(json!({"message": {"role": "ROLE_USER"}})), "message.role");
    assert_eq!(field(json!({"message": {"kind": "task"}})), "message.kind");
    assert_eq!(field(with(json!({"kind": "text"}))), "message.parts[0]");
    assert_eq!(field(with(json!({"kind": "image", "text": "x"}))), "message.parts[0]");
    assert_eq!(field(with(json!({"kind": "text", "text": 5}))), "message.parts[0].text");
    assert_eq!(field(with(json!({}))), "message.parts[0].kind");
    assert_eq!(field(with(json!({"kind": "file", "file": {}}))), "message.parts[0].file");
    let two = json!({"kind": "file", "file": {"bytes": "", "uri": "u"}});
    assert_eq!(field(with(two)), "message.parts[0].file");
    let bad = json!({"kind": "file", "file": {"bytes": "not base64!"}});
    assert_eq!(field(with(bad)), "message.parts[0].file.bytes");
    let refused = a2a::decode::<Event>(br#"{"kind":"novel"}"#);
    assert_eq!(violation(refused), "");
    let refused = a2a::decode::<Event>(br#"{"kind":"task","id":"t"}"#);
    assert_eq!(violation(refused), "status");
}

#[test]
fn values_keep_the_senders_bytes() {
    let text = r#"{"kind":"data","data":{"n": 1.0e2,"b":18446744073709551616},"metadata":{"z":1.50,"a":2}}"#;
    let part = Part::from(a2a::decode::<v03::Part>(text.as_bytes()).unwrap());
    let up = serde_json::to_string(&part).unwrap();
    assert_eq!(up, r#"{"data":{"n": 1.0e2,"b":18446744073709551616},"metadata":{"z":1.50,"a":2}}"#);
    assert_eq!(serde_json::to_string(&v03::Part::from(part)).unwrap(), text);
    // Also when something is put beside them and taken away again.
    let part: Part = a2a::decode(br#"{"data":1.0e2,"metadata":{"z":1.50}}"#).unwrap();
    let down = serde_json::to_string(&v03::Part::from(part.clone())).unwrap();
    assert_eq!(down, r#"{"kind":"data","data":{"value":1.0e2},"metadata":{"z":1.50,"data_part_compat":true}}"#);
    assert_eq!(Part::from(a2a::decode::<v03::Part>(down.as_bytes()).unwrap()), part);
}

#[test]
fn what_only_looks_carried_stays() {
    for part in [
        // Flagged, but not wrapped by anybody.
        json!({"kind": "data", "data": {"a": 1}, "metadata": {"data_part_compat": true}}),
        json!({"kind": "data", "data": {"value": 1, "b": 2}, "metadata": {"data_part_compat": true}}),
        json!({"kind": "data", "data": {"value": 1}, "metadata": {"data_part_compat": "yes"}}),
        json!({"kind": "text", "text": "x", "metadata": {"a2a.filename": 5}}),
    ] {
        let up = json_of(&Part::from(read::<v03::Part>(&part)));
        assert_eq!(up["metadata"], part["metadata"]);
        assert_eq!(up["data"], part["data"]);
    }
}

#[test]
fn errors_are_bare_but_for_one() {
    let error = Error::task_not_found("t");
    assert_eq!(json_of(&v03::error_object(&error)), json!({"code": -32001, "message": "task not found: t"}));
    let full = json_of(&v03::error_object(&error).with_details());
    assert_eq!(full["data"][0]["reason"], "TASK_NOT_FOUND");
    // X-3: in every case.
    let error = Error::new(ErrorKind::VersionNotSupported, "no");
    let object = json_of(&v03::error_object(&error));
    assert_eq!(object["code"], -32009);
    assert_eq!(object["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
    let object = json_of(&v03::error_object(&error).with_code(v03::arbiter::error_code(error.kind)));
    assert_eq!(
        (object["code"].as_i64(), &object["data"][0]["reason"]),
        (Some(-32007), &json!("VERSION_NOT_SUPPORTED"))
    );
}

#[test]
fn an_update_is_no_answer_to_a_message() {
    let event: Event = read(&json!({"kind": "status-update", "taskId": "t", "status": {"state": "working"}}));
    let error = SendMessageResponse::try_from(event).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAgentResponse);
}

#[test]
fn cards_of_both_versions_are_told_apart() {
    let (v1, old) = golden("agent-card");
    assert!(matches!(v03::decode_card(v1.to_string().as_bytes()), Ok(v03::AnyCard::V1(_))));
    assert!(matches!(v03::decode_card(old.to_string().as_bytes()), Ok(v03::AnyCard::V03(_))));
    assert_eq!(violation(v03::decode_card(br#"{"name":"x"}"#)), "supportedInterfaces");
    // A card in 0.3's shape speaks 0.3, whatever it says.
    let odd = json!({"protocolVersion": "1.0", "name": "n", "url": "http://a", "additionalInterfaces": [
        {"url": "http://a", "transport": "JSONRPC"}, {"url": "http://b", "transport": "GRPC"},
    ]});
    let card = AgentCard::from(read::<v03::AgentCard>(&odd));
    let found: Vec<_> = card
        .supported_interfaces
        .iter()
        .map(|it| (it.url.as_str(), it.protocol_binding.as_str(), it.protocol_version.as_str()))
        .collect();
    assert_eq!(found, [("http://a", "JSONRPC", "0.3.0"), ("http://b", "GRPC", "0.3.0")]);
}

#[test]
fn several_flows_become_several_schemes() {
    let card: v03::AgentCard = read(&json!({"url": "u", "securitySchemes": {
        "o": {"type": "oauth2", "flows": {
            "clientCredentials": {"tokenUrl": "t", "scopes": {}},
            "password": {"tokenUrl": "p", "scopes": {}},
        }},
        "new": {"type": "quantum"},
    }}));
    let schemes = json_of(&AgentCard::from(card))["securitySchemes"].clone();
    assert_eq!(schemes["o"]["oauth2SecurityScheme"]["flows"]["clientCredentials"]["tokenUrl"], "t");
    assert_eq!(schemes["o.password"]["oauth2SecurityScheme"]["flows"]["password"]["tokenUrl"], "p");
    assert_eq!(schemes["new"], json!({}));
}

#[test]
fn x_5_the_compat_card_has_both_sets_of_fields() {
    let card: AgentCard = read(&json!({
        "name": "N", "description": "D", "version": "1", "skills": [],
        "supportedInterfaces": [
            {"url": "http://h/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": "http://h/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ],
        "capabilities": {"streaming": true, "extendedAgentCard": true},
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "x-sb-token"}},
        },
        "securityRequirements": [{"schemes": {"bearer": {}}}, {"schemes": {"key": {}}}],
        "signatures": [{"protected": "p", "signature": "s"}],
    }));
    let both: Value = serde_json::from_slice(&v03::compat_card(&card, "http://h")).unwrap();
    assert_eq!(both["url"], "http://h/rpc");
    assert_eq!(both["preferredTransport"], "JSONRPC");
    assert_eq!(both["protocolVersion"], "0.3.0");
    assert_eq!(both.get("additionalInterfaces"), None, "REST is another in 0.3");
    assert_eq!(both["supportsAuthenticatedExtendedCard"], true);
    assert_eq!(both["security"], json!([{"bearer": []}, {"key": []}]));
    assert_eq!(
        both["securitySchemes"]["bearer"],
        json!({"type": "http", "scheme": "Bearer", "httpAuthSecurityScheme": {"scheme": "Bearer"}})
    );
    assert_eq!(both["securitySchemes"]["key"]["in"], "header");
    assert_eq!(both["signatures"], json!([{"protected": "p", "signature": "s"}]));
    assert_eq!(read::<AgentCard>(&both), card);
    let nowhere = AgentCard::default();
    let both: Value = serde_json::from_slice(&v03::compat_card(&nowhere, "http://h")).unwrap();
    assert_eq!(both["url"], "http://h");
}

#[test]
fn final_is_computed_from_the_state() {
    for state in TaskState::ALL {
        let event = json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state.as_str()}}});
        let down = json_of(&v03::stream_result(&read(&event)));
        assert_eq!(down["final"], state.is_terminal(), "{state}");
    }
}
