//! The other JSON of 0.3, that of its proto, which HTTP+JSON and gRPC speak: requests go from the JSON of JSON-RPC down to it, answers come
//! back up.
//!
//! The two differ in small things. The parts of a message are its `content`, nothing has a `kind`, enums are spelled as in a proto, the
//! content of files and data stands one level deeper, and tasks and webhooks are named by paths. The bytes of a file are those of its base64,
//! as the SDKs for Python and Go have it; the one for JavaScript means the file itself, which is read, too.

use a2a::{Error as ProtocolError, ErrorKind, SendMessageRequest, TaskPushNotificationConfig, v03};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::send_params;
use crate::lenient::tree;

/// What goes before the id in the name of a task.
const TASKS: &str = "tasks/";
/// What goes between the ids in the name of a webhook.
pub(super) const PUSH_CONFIGS: &str = "pushNotificationConfigs";

/// A message to send.
pub(super) fn send(request: &SendMessageRequest) -> Result<Value, ProtocolError> {
    if !request.message.reference_task_ids.is_empty() {
        let why = "the proto of A2A 0.3 cannot express it";
        return Err(ProtocolError::invalid("message.referenceTaskIds", why));
    }
    let mut params = value(&send_params(request)?)?;
    let mut made = json!({"message": message(params["message"].take())});
    let mut configuration = params["configuration"].take();
    if let Some(members) = configuration.as_object_mut() {
        if let Some(config) = members.remove("pushNotificationConfig") {
            members.insert("pushNotification".to_owned(), config);
        }
        made["configuration"] = configuration;
    }
    if !params["metadata"].is_null() {
        made["metadata"] = params["metadata"].take();
    }
    Ok(made)
}

/// A webhook to keep.
pub(super) fn create_push(config: &TaskPushNotificationConfig) -> Result<Value, ProtocolError> {
    let config = v03::TaskPushNotificationConfig::request(config.clone())?;
    let id = config.push_notification_config.id.clone();
    Ok(json!({
        "parent": task_name(&config.task_id),
        "configId": id,
        "config": {
            "name": push_name(&config.task_id, &id),
            "pushNotificationConfig": value(&config.push_notification_config)?,
        },
    }))
}

/// A task by its name.
pub(super) fn task_name(id: &str) -> String {
    format!("{TASKS}{id}")
}

/// A webhook by its name.
pub(super) fn push_name(task: &str, id: &str) -> String {
    format!("{TASKS}{task}/{PUSH_CONFIGS}/{id}")
}

/// An answer or an event with its data where the other JSON has it. What else differs can be read as it is.
pub(super) fn answer(json: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let mut answer = tree(json).map_err(|error| unreadable(&error.to_string()))?;
    raise_data(&mut answer);
    serde_json::to_vec(&answer).map_err(|error| unreadable(&error.to_string()))
}

/// A webhook as the other JSON has it.
pub(super) fn push_config(json: &[u8]) -> Result<v03::TaskPushNotificationConfig, ProtocolError> {
    let found = tree(json).map_err(|error| unreadable(&error.to_string()))?;
    named_config(&found)
}

/// A list of webhooks as the other JSON has it.
pub(super) fn push_configs(json: &[u8]) -> Result<Vec<v03::TaskPushNotificationConfig>, ProtocolError> {
    let found = tree(json).map_err(|error| unreadable(&error.to_string()))?;
    let configs = found["configs"].as_array().map(Vec::as_slice).unwrap_or_default();
    configs.iter().map(named_config).collect()
}

/// What is no answer at all.
pub(super) fn unreadable(why: &str) -> ProtocolError {
    ProtocolError::new(ErrorKind::InvalidAgentResponse, format!("not an answer of A2A 0.3: {why}"))
}

fn named_config(found: &Value) -> Result<v03::TaskPushNotificationConfig, ProtocolError> {
    let name = found["name"].as_str().unwrap_or_default();
    let task = name.strip_prefix(TASKS).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let config = json!({"taskId": task, "pushNotificationConfig": found["pushNotificationConfig"]});
    serde_json::from_value(config).map_err(|error| unreadable(&error.to_string()))
}

fn value(written: &impl Serialize) -> Result<Value, ProtocolError> {
    let json = serde_json::to_vec(written).map_err(|error| ProtocolError::internal(error.to_string()))?;
    tree(&json).map_err(|error| ProtocolError::invalid("message", format!("cannot go to an agent of A2A 0.3: {error}")))
}

fn message(found: Value) -> Value {
    let Value::Object(mut members) = found else { return found };
    members.remove("kind");
    let role = if members.get("role").is_some_and(|role| role == "user") { "ROLE_USER" } else { "ROLE_AGENT" };
    members.insert("role".to_owned(), json!(role));
    let Some(Value::Array(parts)) = members.remove("parts") else { return Value::Object(members) };
    members.insert("content".to_owned(), parts.into_iter().map(part).collect());
    Value::Object(members)
}

fn part(found: Value) -> Value {
    let Value::Object(mut members) = found else { return found };
    members.remove("kind");
    if let Some(data) = members.get_mut("data") {
        *data = json!({"data": data.take()});
    }
    if let Some(Value::Object(file)) = members.get_mut("file") {
        if let Some(uri) = file.remove("uri") {
            file.insert("fileWithUri".to_owned(), uri);
        }
        if let Some(Value::String(bytes)) = file.remove("bytes") {
            file.insert("fileWithBytes".to_owned(), STANDARD.encode(bytes).into());
        }
    }
    Value::Object(members)
}

fn raise_data(found: &mut Value) {
    match found {
        Value::Array(list) => list.iter_mut().for_each(raise_data),
        Value::Object(members) => raise_members(members),
        _ => {}
    }
}

fn raise_members(members: &mut Map<String, Value>) {
    for (name, inner) in members {
        match (name.as_str(), inner) {
            ("content" | "parts", Value::Array(parts)) => {
                parts.iter_mut().for_each(raise_part);
            }
            // What others may say as they like, such as metadata, is not looked into.
            (
                "task" | "message" | "statusUpdate" | "artifactUpdate" | "status" | "artifact" | "artifacts"
                | "history",
                inner,
            ) => raise_data(inner),
            _ => {}
        }
    }
}

fn raise_part(part: &mut Value) {
    if let Some(data) = part.pointer_mut("/data/data").map(Value::take) {
        part["data"] = data;
    }
    if let Some(Value::String(bytes)) = part.pointer_mut("/file/fileWithBytes")
        && let Some(base64) = inner_base64(bytes)
    {
        *bytes = base64;
    }
}

/// The base64 that stands in some base64, if it does.
fn inner_base64(bytes: &str) -> Option<String> {
    let inner = String::from_utf8(STANDARD.decode(bytes).ok()?).ok()?;
    STANDARD.decode(&inner).is_ok().then_some(inner)
}

#[cfg(test)]
mod tests {
    use a2a::{AuthenticationInfo, Json, JsonObject, Part, SendMessageConfiguration};

    use super::*;

    #[test]
    fn a_message_is_written_as_the_proto_has_it() {
        let mut request = crate::user_message("m", "hi");
        request.message.context_id = "c".to_owned();
        request.message.parts.extend([
            Part { filename: "n".to_owned(), media_type: "text/plain".to_owned(), ..Part::raw(&b"hi"[..]) },
            Part::url("https://h/x"),
            Part::data(Json::from_text(r#"{"k":1}"#).unwrap()),
        ]);
        let authentication = AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: "s".to_owned() };
        request.configuration = Some(SendMessageConfiguration {
            return_immediately: true,
            task_push_notification_config: Some(TaskPushNotificationConfig {
                url: "https://h".to_owned(),
                authentication: Some(authentication),
                ..Default::default()
            }),
            ..Default::default()
        });
        request.metadata = JsonObject::from_text(r#"{"skillHint":"s"}"#).ok();
        let expected = json!({
            "message": {
                "messageId": "m", "contextId": "c", "role": "ROLE_USER",
                "content": [
                    {"text": "hi"},
                    {"file": {"fileWithBytes": "YUdrPQ==", "name": "n", "mimeType": "text/plain"}},
                    {"file": {"fileWithUri": "https://h/x"}},
                    {"data": {"data": {"k": 1}}},
                ],
            },
            "configuration": {
                "blocking": false,
                "pushNotification": {
                    "url": "https://h",
                    "authentication": {"schemes": ["Bearer"], "credentials": "s"},
                },
            },
            "metadata": {"skillHint": "s"},
        });
        assert_eq!(send(&request).unwrap(), expected);
    }

    #[test]
    fn what_the_proto_cannot_say_is_refused() {
        let mut request = crate::user_message("m", "hi");
        request.message.reference_task_ids.push("t".to_owned());
        assert!(send(&request).is_err());
        request.message.reference_task_ids.clear();
        request.tenant = "x".to_owned();
        assert!(send(&request).is_err());
    }

    #[test]
    fn data_is_where_it_belongs() {
        let found = json!({"task": {
            "metadata": {"content": [{"data": {"data": 1}}]},
            "status": {"message": {"content": [{"data": {"data": {"data": {"data": 2}}}}]}},
            "artifacts": [{"parts": [{"data": {"data": {"k": 1}}}, {"text": "x"}]}],
        }});
        let answer: Value = serde_json::from_slice(&answer(found.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(answer["task"]["artifacts"][0]["parts"][0], json!({"data": {"k": 1}}));
        assert_eq!(answer["task"]["status"]["message"]["content"][0], json!({"data": {"data": {"data": 2}}}));
        assert_eq!(answer["task"]["metadata"], found["task"]["metadata"], "what others say as they like stays");
    }

    #[test]
    fn the_bytes_of_a_file_are_those_of_its_base64_or_its_own() {
        for (found, file) in [("YUdrPQ==", "aGk="), ("iVBORw==", "iVBORw=="), ("aGkh", "aGkh"), ("", "")] {
            let found = json!({"content": [{"file": {"fileWithBytes": found}}]});
            let answer: Value = serde_json::from_slice(&answer(found.to_string().as_bytes()).unwrap()).unwrap();
            assert_eq!(answer["content"][0]["file"]["fileWithBytes"], file);
        }
    }

    #[test]
    fn webhooks_have_names() {
        let config = TaskPushNotificationConfig {
            task_id: "t".to_owned(),
            id: "c".to_owned(),
            url: "https://h".to_owned(),
            ..Default::default()
        };
        let written = create_push(&config).unwrap();
        assert_eq!((&written["parent"], &written["configId"]), (&json!("tasks/t"), &json!("c")));
        assert_eq!(written["config"]["name"], "tasks/t/pushNotificationConfigs/c");
        let read = push_config(written["config"].to_string().as_bytes()).unwrap();
        assert_eq!(TaskPushNotificationConfig::try_from(read).unwrap(), config);
        assert!(push_config(b"{}").is_err());
        let all = json!({"configs": [written["config"], written["config"]]});
        assert_eq!(push_configs(all.to_string().as_bytes()).unwrap().len(), 2);
    }
}
