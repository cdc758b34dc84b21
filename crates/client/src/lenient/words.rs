//! An answer, however it was written, in the words of 1.0.

use a2a::{Part, Role, TaskState, Timestamp, v03};
use serde_json::{Map, Value, json};

/// Where an object stands that does not say what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It answers a message, or the question for a task.
    Answer,
    /// It is one event of a stream.
    Stream,
}

/// An answer or an event as 1.0 has it: a task, a message or an update under its name.
pub(super) fn of(found: &Value, place: Place) -> Option<Value> {
    let Value::Object(object) = found else {
        return Some(json!({"message": message(found)?}));
    };
    // It may be so already.
    if let Some(whole) = member(object, "task").filter(|task| task.is_object()) {
        return Some(json!({"task": task(whole)?}));
    }
    if let Some(update) = member(object, "statusUpdate") {
        return Some(json!({"statusUpdate": status_update(update.as_object()?)?}));
    }
    if let Some(update) = member(object, "artifactUpdate") {
        return Some(json!({"artifactUpdate": artifact_update(update.as_object()?)?}));
    }
    if member(object, "artifact").is_some_and(Value::is_object) {
        return Some(json!({"artifactUpdate": artifact_update(object)?}));
    }
    let kind = text(object, "kind");
    let is_update = place == Place::Stream && kind != "task" && text(object, "id").is_empty();
    if is_update && member(object, "status").is_some() {
        return Some(json!({"statusUpdate": status_update(object)?}));
    }
    let is_task = ["status", "artifacts", "history"].iter().any(|name| member(object, name).is_some());
    let is_named = !text(object, "id").is_empty() && member(object, "message").is_some();
    if kind == "task" || is_task || is_named {
        return Some(json!({"task": task(found)?}));
    }
    Some(json!({"message": message(member(object, "message").unwrap_or(found))?}))
}

fn task(found: &Value) -> Option<Value> {
    let object = found.as_object()?;
    let mut made = common(object);
    let id = text(object, "id");
    made.insert("id".to_owned(), json!(if id.is_empty() { text(object, "taskId") } else { id }));
    // An answer that cannot be read is not one that is not there.
    if member(object, "artifacts").is_some_and(|found| !found.is_array() && !found.is_object() && !found.is_null()) {
        return None;
    }
    let artifacts = list(object, "artifacts").iter().map(artifact).collect::<Option<Vec<Value>>>()?;
    let history: Vec<Value> = list(object, "history").iter().filter_map(message).collect();
    let has_answer = !artifacts.is_empty() || member(object, "message").is_some();
    let mut status = match member(object, "status") {
        Some(found) => status(found)?,
        // Whoever answers and says nothing about a task has nothing more to do.
        None if has_answer => json!({"state": TaskState::Completed.as_str()}),
        None => return None,
    };
    if artifacts.is_empty() {
        put_beside(&mut status, object);
    }
    made.insert("status".to_owned(), status);
    made.insert("artifacts".to_owned(), artifacts.into());
    made.insert("history".to_owned(), history.into());
    Some(Value::Object(made))
}

/// Puts a message that stands beside a status into it, if it has none.
fn put_beside(status: &mut Value, object: &Map<String, Value>) {
    if let Some(message) = member(object, "message").and_then(message)
        && status["message"].is_null()
    {
        status["message"] = message;
    }
}

fn status(found: &Value) -> Option<Value> {
    if let Value::String(_) = found {
        return Some(json!({"state": state(found)?}));
    }
    let object = found.as_object()?;
    let mut made = json!({"state": state(member(object, "state").unwrap_or(&Value::Null))?});
    // In the proto of 0.3 the field of the message is called `update`.
    if let Some(message) = member(object, "message").or_else(|| member(object, "update")).and_then(message) {
        made["message"] = message;
    }
    if let Some(when) = member(object, "timestamp").and_then(Value::as_str).filter(|when| is_timestamp(when)) {
        made["timestamp"] = json!(when);
    }
    Some(made)
}

fn is_timestamp(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok()
}

/// A state in the words of either dialect, with either spelling of the word for canceled.
fn state(found: &Value) -> Option<Value> {
    let word = match found {
        Value::Null => return Some(json!(TaskState::Unspecified.as_str())),
        Value::Number(_) => return Some(found.clone()),
        found => found.as_str()?.to_ascii_lowercase().replace('_', "-"),
    };
    let word = word.strip_prefix("task-state-").unwrap_or(&word);
    let known = match word {
        "cancelled" => TaskState::Canceled,
        "unspecified" => TaskState::Unspecified,
        word => v03::TaskState::from_name(word)?.0,
    };
    Some(json!(known.as_str()))
}

fn status_update(object: &Map<String, Value>) -> Option<Value> {
    let mut made = common(object);
    made.insert("taskId".to_owned(), json!(text(object, "taskId")));
    let mut status = status(member(object, "status")?)?;
    put_beside(&mut status, object);
    made.insert("status".to_owned(), status);
    Some(Value::Object(made))
}

fn artifact_update(object: &Map<String, Value>) -> Option<Value> {
    let mut made = common(object);
    made.insert("taskId".to_owned(), json!(text(object, "taskId")));
    made.insert("artifact".to_owned(), artifact(member(object, "artifact")?)?);
    for name in ["append", "lastChunk"] {
        let is_set = member(object, name).and_then(Value::as_bool).unwrap_or_default();
        made.insert(name.to_owned(), json!(is_set));
    }
    Some(Value::Object(made))
}

fn artifact(found: &Value) -> Option<Value> {
    let object = found.as_object()?;
    let mut made = common(object);
    for name in ["artifactId", "name", "description"] {
        made.insert(name.to_owned(), json!(text(object, name)));
    }
    made.insert("parts".to_owned(), parts(object)?);
    Some(Value::Object(made))
}

/// A message, or a text that stands for one.
pub(super) fn message(found: &Value) -> Option<Value> {
    let object = match found {
        Value::String(_) => return Some(json!({"role": Role::Agent.as_str(), "parts": [part(found)?]})),
        Value::Object(object) => object,
        _ => return None,
    };
    let parts = parts(object)?;
    // Whatever this is, it says nothing.
    if parts.as_array().is_none_or(Vec::is_empty) && member(object, "parts").is_none() {
        return None;
    }
    let mut made = common(object);
    for name in ["messageId", "taskId"] {
        made.insert(name.to_owned(), json!(text(object, name)));
    }
    let role = text(object, "role").to_ascii_lowercase();
    let is_user = matches!(role.trim_start_matches("role_"), "user");
    made.insert("role".to_owned(), json!(if is_user { Role::User.as_str() } else { Role::Agent.as_str() }));
    made.insert("parts".to_owned(), parts);
    Some(Value::Object(made))
}

/// The content of a message or an artifact, which is a list of parts, or simply a text.
fn parts(object: &Map<String, Value>) -> Option<Value> {
    let content = ["parts", "content", "text"].into_iter().find_map(|name| member(object, name));
    match content {
        // A part that cannot be read does not spoil the others. Where there are no others, there is nothing to read.
        Some(Value::Array(parts)) => {
            let read: Vec<Value> = parts.iter().filter_map(part).collect();
            (parts.is_empty() || !read.is_empty()).then_some(Value::Array(read))
        }
        Some(Value::Null) | None => Some(Value::Array(Vec::new())),
        Some(one) => part(one).map(|part| Value::Array(vec![part])),
    }
}

fn part(found: &Value) -> Option<Value> {
    let object = match found {
        Value::String(text) => return Some(json!({"text": text})),
        Value::Object(object) => object,
        _ => return None,
    };
    let mut made = Map::new();
    if let Some(found) = member(object, "text").filter(|found| found.is_string()) {
        made.insert("text".to_owned(), found.clone());
    } else if let Some(file) = member(object, "file").and_then(Value::as_object) {
        made = file_part(file)?;
    } else if let Some(data) = member(object, "data") {
        made.insert("data".to_owned(), data.clone());
    } else {
        let raw = ["raw", "url"].into_iter().find_map(|name| Some((name, member(object, name)?)));
        let (name, content) = raw?;
        made.insert(name.to_owned(), content.clone());
    }
    for name in ["filename", "mediaType"] {
        if !text(object, name).is_empty() {
            made.insert(name.to_owned(), json!(text(object, name)));
        }
    }
    if let Some(metadata) = member(object, "metadata").filter(|metadata| metadata.is_object()) {
        made.insert("metadata".to_owned(), metadata.clone());
    }
    let made = Value::Object(made);
    // A part that cannot be read, such as one whose bytes are no base64, does not spoil those beside it.
    serde_json::from_value::<Part>(made.clone()).is_ok().then_some(made)
}

/// The content of a file, under the names of either JSON of 0.3.
fn file_part(file: &Map<String, Value>) -> Option<Map<String, Value>> {
    let names = [("bytes", "raw"), ("fileWithBytes", "raw"), ("uri", "url"), ("fileWithUri", "url")];
    let (content, name) = names.into_iter().find_map(|(theirs, ours)| Some((member(file, theirs)?, ours)))?;
    let mut made = Map::from_iter([(name.to_owned(), content.clone())]);
    made.insert("filename".to_owned(), json!(text(file, "name")));
    made.insert("mediaType".to_owned(), json!(text(file, "mimeType")));
    Some(made)
}

/// What tasks, messages, artifacts and updates have in common.
fn common(object: &Map<String, Value>) -> Map<String, Value> {
    let mut made = Map::new();
    if !text(object, "contextId").is_empty() {
        made.insert("contextId".to_owned(), json!(text(object, "contextId")));
    }
    if let Some(metadata) = member(object, "metadata").filter(|metadata| metadata.is_object()) {
        made.insert("metadata".to_owned(), metadata.clone());
    }
    for name in ["extensions", "referenceTaskIds"] {
        let words: Vec<&Value> = list(object, name).iter().filter(|word| word.is_string()).collect();
        if !words.is_empty() {
            made.insert(name.to_owned(), json!(words));
        }
    }
    made
}

/// A member under its name in either spelling. Null is none.
fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let found = object.get(name).or_else(|| {
        let mut other = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() {
                other.push('_');
            }
            other.push(c.to_ascii_lowercase());
        }
        object.get(&other)
    });
    found.filter(|found| !found.is_null())
}

/// A text; what is none is empty.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    member(object, name).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list; one that stands there by itself is one.
fn list<'a>(object: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    match member(object, name) {
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}
