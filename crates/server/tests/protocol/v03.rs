//! Requests of 1.0 as clients of 0.3 make them, and answers of 0.3 as those of 1.0 that mean the same.

use serde_json::{Map, Value, json};

use super::scenario::{CREATE_PUSH, DELETE_PUSH, GET_PUSH, LIST_PUSH};

/// The method and the parameters, or nothing where 0.3 has no such method.
pub(crate) fn request(method: &str, request: &Value) -> Option<(&'static str, Value)> {
    let (id, task) = (&request["id"], &request["taskId"]);
    let named = || json!({"id": task, "pushNotificationConfigId": id});
    Some(match method {
        "SendMessage" => ("message/send", send(request)),
        "SendStreamingMessage" => ("message/stream", send(request)),
        "GetTask" => ("tasks/get", without(request, &["tenant"])),
        "CancelTask" => ("tasks/cancel", without(request, &["tenant"])),
        "SubscribeToTask" => ("tasks/resubscribe", without(request, &["tenant"])),
        CREATE_PUSH => {
            let config = push_config(&without(request, &["tenant", "taskId"]));
            ("tasks/pushNotificationConfig/set", json!({"taskId": task, "pushNotificationConfig": config}))
        }
        GET_PUSH => ("tasks/pushNotificationConfig/get", named()),
        LIST_PUSH => ("tasks/pushNotificationConfig/list", json!({"id": task})),
        DELETE_PUSH => ("tasks/pushNotificationConfig/delete", named()),
        _ => return None,
    })
}

/// What a method of 0.3 has answered.
pub(crate) fn answer(method: &str, result: Value) -> Value {
    match method {
        "SendMessage" | "SendStreamingMessage" | "SubscribeToTask" => event(result),
        "GetTask" | "CancelTask" => task(result),
        CREATE_PUSH | GET_PUSH => config(result),
        LIST_PUSH => json!({"configs": result.as_array().unwrap().iter().cloned().map(config).collect::<Vec<_>>()}),
        DELETE_PUSH => {
            assert_eq!(result, Value::Null);
            json!({})
        }
        other => panic!("{other} is not of 0.3"),
    }
}

fn send(request: &Value) -> Value {
    let mut params = without(request, &["tenant"]);
    if let Some(message) = params.get_mut("message").filter(|message| message.is_object()) {
        message["kind"] = json!("message");
        if let Some(role) = message["role"].as_str().map(|role| role.trim_start_matches("ROLE_").to_lowercase()) {
            message["role"] = json!(role);
        }
        if let Some(parts) = message["parts"].as_array_mut() {
            parts.iter_mut().for_each(|part| *part = old_part(part));
        }
    }
    if let Some(configuration) = params.get_mut("configuration") {
        let members = configuration.as_object_mut().unwrap();
        if let Some(at_once) = members.remove("returnImmediately") {
            members.insert("blocking".to_owned(), json!(at_once != true));
        }
        if let Some(push) = members.remove("taskPushNotificationConfig") {
            members.insert("pushNotificationConfig".to_owned(), push_config(&push));
        }
    }
    params
}

fn push_config(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(authentication) = config.get_mut("authentication") {
        *authentication = json!({"schemes": [authentication["scheme"]], "credentials": authentication["credentials"]});
    }
    config
}

fn old_part(part: &Value) -> Value {
    let mut old = part.clone();
    let Some(members) = old.as_object_mut() else { return old };
    let kind = ["text", "data", "raw", "url"].into_iter().find(|kind| members.contains_key(*kind));
    match kind {
        Some("raw" | "url") => {
            let mut file = Map::new();
            for (new, old) in [("raw", "bytes"), ("url", "uri"), ("filename", "name"), ("mediaType", "mimeType")] {
                if let Some(value) = members.remove(new) {
                    file.insert(old.to_owned(), value);
                }
            }
            members.insert("file".to_owned(), Value::Object(file));
            members.insert("kind".to_owned(), json!("file"));
        }
        Some(kind) => drop(members.insert("kind".to_owned(), json!(kind))),
        None => {}
    }
    old
}

fn event(result: Value) -> Value {
    let kind = result["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "task" => json!({"task": task(result)}),
        "message" => json!({"message": message(result)}),
        "status-update" => {
            let mut update = without(&result, &["kind", "final"]);
            update["status"] = status(update["status"].take());
            json!({"statusUpdate": update})
        }
        "artifact-update" => {
            let mut update = without(&result, &["kind"]);
            update["artifact"] = artifact(update["artifact"].take());
            json!({"artifactUpdate": update})
        }
        other => panic!("no event of 0.3: {other} {result:#}"),
    }
}

fn task(result: Value) -> Value {
    assert_eq!(result["kind"], "task", "{result:#}");
    let mut task = without(&result, &["kind"]);
    task["status"] = status(task["status"].take());
    for (member, convert) in [("history", message as fn(Value) -> Value), ("artifacts", artifact)] {
        if let Some(list) = task.get_mut(member).and_then(Value::as_array_mut) {
            list.iter_mut().for_each(|item| *item = convert(item.take()));
        }
    }
    task
}

fn status(mut status: Value) -> Value {
    let state = status["state"].as_str().unwrap_or_default().to_uppercase().replace('-', "_");
    status["state"] = json!(format!("TASK_STATE_{state}"));
    if let Some(said) = status.get_mut("message") {
        *said = message(said.take());
    }
    status
}

fn message(said: Value) -> Value {
    assert_eq!(said["kind"], "message", "{said:#}");
    let mut message = parts(without(&said, &["kind"]));
    message["role"] = json!(format!("ROLE_{}", said["role"].as_str().unwrap_or_default().to_uppercase()));
    message
}

fn artifact(made: Value) -> Value {
    parts(made)
}

fn parts(mut of: Value) -> Value {
    for part in of["parts"].as_array_mut().into_iter().flatten() {
        let members = part.as_object_mut().unwrap();
        let kind = members.remove("kind");
        assert!(kind.is_some_and(|kind| ["text", "data", "file"].iter().any(|known| kind == *known)), "{members:?}");
        if let Some(Value::Object(file)) = members.remove("file") {
            for (name, value) in file {
                let name = match name.as_str() {
                    "bytes" => "raw",
                    "uri" => "url",
                    "name" => "filename",
                    "mimeType" => "mediaType",
                    other => panic!("no member of a file: {other}"),
                };
                members.insert(name.to_owned(), value);
            }
        }
    }
    of
}

fn config(result: Value) -> Value {
    let mut config = result["pushNotificationConfig"].clone();
    config["taskId"] = result["taskId"].clone();
    config
}

fn without(value: &Value, names: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !names.contains(&name.as_str()));
    }
    value
}
