//! What remote agents say of themselves and of their tasks, in both generations of the protocol.

use serde_json::{Value, json};

/// The card of an agent at this URL, as 0.3 has it. It does not stream.
pub fn card_03(url: &str) -> Value {
    json!({
        "protocolVersion": "0.3.0",
        "name": "Quinn",
        "description": "Looks after pull requests.",
        "version": "2.7.1",
        "url": url,
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": false, "pushNotifications": false},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "pr_review", "name": "Review", "description": "As the card has it.", "tags": ["code"]}],
    })
}

/// The card of an agent at this URL, as 1.0 has it. It does not stream.
pub fn card_10(url: &str) -> Value {
    json!({
        "name": "Quinn",
        "description": "Looks after pull requests.",
        "version": "2.7.1",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": false, "pushNotifications": false},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "pr_review", "name": "Review", "description": "As the card has it.", "tags": ["code"]}],
    })
}

/// A task of 0.3 in this state, with an artifact if there is a text.
pub fn task_03(id: &str, context: &str, state: &str, text: &str) -> Value {
    let mut task = json!({"kind": "task", "id": id, "contextId": context, "status": {"state": state}});
    if !text.is_empty() {
        task["artifacts"] = json!([{"artifactId": "a-1", "parts": [{"kind": "text", "text": text}]}]);
    }
    task
}

/// A task of 1.0 in this state, written without its prefix, with an artifact if there is a text.
pub fn task_10(id: &str, context: &str, state: &str, text: &str) -> Value {
    let mut task = json!({"id": id, "contextId": context, "status": {"state": format!("TASK_STATE_{state}")}});
    if !text.is_empty() {
        task["artifacts"] = json!([{"artifactId": "a-1", "parts": [{"text": text}]}]);
    }
    task
}
