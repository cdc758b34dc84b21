//! `message:send`: what it answers, what it checks, how long it waits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    http::{array, artifact_text, is_terminal, message, reason, state, text, to, to_at_once, violations},
    rig::Rig,
};

/// `2026-01-02T03:04:05.678Z`.
fn is_timestamp(value: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd.dddZ";
    value.len() == pattern.len()
        && value.chars().zip(pattern.chars()).all(|(c, p)| if p == 'd' { c.is_ascii_digit() } else { c == p })
}

#[tokio::test]
async fn s3_47_send_answers_with_the_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let reply = api.post("/a2a/message:send", &to("echo", "hello there")).await;
    let task = reply.task();
    assert_eq!(reply.media_type(), "application/a2a+json");
    assert!(!text(&task, "/id").is_empty());
    assert!(!text(&task, "/contextId").is_empty());
    assert_eq!(state(&task), "COMPLETED");
    assert!(is_timestamp(text(&task, "/status/timestamp")), "{task:#}");
    assert_eq!(artifact_text(&task), "hello there");
    // the reply's text is there and nowhere else.
    assert!(task["status"].get("message").is_none(), "{task:#}");
    assert_eq!(task["history"].as_array().map(Vec::len), Some(1), "{task:#}");
    assert!(!text(&task, "/artifacts/0/artifactId").is_empty());
    assert_eq!(api.task(text(&task, "/id")).await, task);
}

#[tokio::test]
async fn s3_48_messages_are_validated() {
    let rig = Rig::start().await;
    let api = rig.api();
    let without = |field: &str| {
        let mut request = json!({"message": message("hello")});
        request["message"].as_object_mut().unwrap().remove(field);
        request
    };
    let with = |field: &str, value: Value| {
        let mut request = json!({"message": message("hello")});
        request["message"][field] = value;
        request
    };
    let cases = [
        (without("messageId"), "message.messageId"),
        (with("messageId", json!("")), "message.messageId"),
        (without("role"), "message.role"),
        (with("role", json!("ROLE_UNSPECIFIED")), "message.role"),
        (with("role", json!("ROLE_AGENT")), "message.role"),
        (with("role", json!("ROLE_KING")), "message.role"),
        (without("parts"), "message.parts"),
        (with("parts", json!([])), "message.parts"),
        (with("parts", json!([{}])), "message.parts[0]"),
        (with("parts", json!([{"text": "a", "url": "http://example.com"}])), "message.parts[0]"),
        (with("parts", json!([{"text": 7}])), "message.parts[0].text"),
        (with("parts", json!([{"raw": "not base64!"}])), "message.parts[0].raw"),
        (with("metadata", json!([1])), "message.metadata"),
        (json!({}), "message"),
        (json!({"message": message("x"), "configuration": {"historyLength": -1}}), "configuration.historyLength"),
    ];
    for (request, field) in &cases {
        let error = api.post("/a2a/message:send", request).await.error(400);
        assert_eq!(error["status"], "INVALID_ARGUMENT", "{error:#}");
        assert_eq!(violations(&error), [*field], "{request:#} {error:#}");
        let error = api.post("/a2a/message:stream", request).await.error(400);
        assert_eq!(violations(&error), [*field], "{request:#} {error:#}");
        let error = api.rpc_error("SendMessage", request, -32602).await;
        assert_eq!(violations(&error), [*field], "{request:#} {error:#}");
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0, "a refused message changes nothing");
}

#[tokio::test]
async fn s3_49_send_blocks_unless_told_otherwise() {
    let rig = Rig::start().await;
    let api = rig.api();
    let begun = Instant::now();
    let task = api.send(&to("slow", "600")).await;
    assert_eq!(state(&task), "COMPLETED");
    assert!(begun.elapsed() >= Duration::from_millis(550), "{:?}", begun.elapsed());

    let task = api.send(&to_at_once("slow", "600")).await;
    assert!(["SUBMITTED", "WORKING"].contains(&state(&task)), "{task:#}");
    let task = api.task_when(text(&task, "/id"), is_terminal).await;
    assert_eq!(state(&task), "COMPLETED");
    assert!(!artifact_text(&task).is_empty());

    let mut request = to("slow", "600");
    request["configuration"] = json!({"return_immediately": true});
    let result = api.rpc_ok("SendMessage", &request).await;
    assert!(["SUBMITTED", "WORKING"].contains(&state(&result["task"])), "{result:#}");
}

#[tokio::test]
async fn blocking_send_that_outlasts_the_cap_returns_the_working_task() {
    let rig = Rig::start_with("blocking_cap = \"300ms\"\n").await;
    let api = rig.api();
    let task = api.send(&to("slow", "1200")).await;
    assert_eq!(state(&task), "WORKING", "{task:#}");
    let task = api.task_when(text(&task, "/id"), is_terminal).await;
    assert_eq!(state(&task), "COMPLETED");
}

#[tokio::test]
async fn s3_9_history_holds_the_request() {
    let rig = Rig::start().await;
    let api = rig.api();
    let request = to("echo", "remember me");
    let task = api.send(&request).await;
    let task = api.task(text(&task, "/id")).await;
    let first = &array(&task, "/history")[0];
    assert_eq!(first["role"], "ROLE_USER");
    assert_eq!(first["messageId"], request["message"]["messageId"]);
    assert_eq!(first["parts"], request["message"]["parts"]);
    assert_eq!(first["taskId"], task["id"]);
    assert_eq!(first["contextId"], task["contextId"]);
}

#[tokio::test]
async fn s3_14_failed_is_failed() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to("fail", "please")).await;
    assert_eq!(text(&task, "/status/state"), "TASK_STATE_FAILED");
    assert!(!text(&task, "/status/message/parts/0/text").is_empty());
    assert_eq!(api.task(text(&task, "/id")).await, task);
}

#[tokio::test]
async fn s3_16_canceled_is_canceled() {
    let rig = Rig::start().await;
    let api = rig.api();
    // One that runs and one that waits for its caller.
    for request in [to_at_once("slow", "20000"), to("ask", "something")] {
        let id = text(&api.send(&request).await, "/id").to_owned();
        let task = api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
        assert_eq!(text(&task, "/status/state"), "TASK_STATE_CANCELED");
        assert_eq!(state(&api.task(&id).await), "CANCELED");
    }
}

#[tokio::test]
async fn s3_17_ask_is_input_required() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to("ask", "what now")).await;
    assert_eq!(text(&task, "/status/state"), "TASK_STATE_INPUT_REQUIRED");
    assert!(!text(&task, "/status/message/parts/0/text").is_empty(), "it says what it asks");
    assert_eq!(api.task(text(&task, "/id")).await, task);
}

#[tokio::test]
async fn s3_18_rejected_is_rejected() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to("reject", "please")).await;
    assert_eq!(text(&task, "/status/state"), "TASK_STATE_REJECTED");
    assert_eq!(api.task(text(&task, "/id")).await, task);
}

#[tokio::test]
async fn s3_19_auth_is_auth_required() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to("auth", "let me in")).await;
    assert_eq!(text(&task, "/status/state"), "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(api.task(text(&task, "/id")).await, task);
    let done = api.send(&super::http::answer(text(&task, "/id"), "I am in")).await;
    assert_eq!((state(&done), &done["id"]), ("COMPLETED", &task["id"]));
}

#[tokio::test]
async fn s3_108_x_11_typed_parts_survive() {
    let rig = Rig::start().await;
    let api = rig.api();
    // Numbers beyond f64, key order and unusual characters have to come back as they were sent.
    let parts = json!([
        {"text": "plain \u{1F600} \u{0}\n", "mediaType": "text/plain", "metadata": {"n": 9007199254740993i64}},
        {"raw": "AAECAwT//g==", "filename": "bytes.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.com/a.png?x=1", "filename": "a.png", "mediaType": "image/png"},
        {"data": {"b": 18446744073709551615u64, "a": [1, 1.5, null, "x", {}]}, "mediaType": "application/json"},
        {"data": null},
        {"data": [1, 2]},
        {"data": "just text"},
    ]);
    let message = json!({
        "messageId": "typed", "role": "ROLE_USER", "parts": parts,
        "metadata": {"big": 12345678901234567890u64}, "extensions": ["urn:example:unknown"],
        "referenceTaskIds": ["some-task"],
    });
    let task = api.send(&json!({"tenant": "echo", "message": message})).await;
    let id = text(&task, "/id").to_owned();
    let read = api.task(&id).await;
    assert_eq!(read["artifacts"][0]["parts"], parts, "{read:#}");
    let kept = &read["history"][0];
    for field in ["parts", "metadata", "extensions", "referenceTaskIds", "messageId", "role"] {
        assert_eq!(kept[field], message[field], "{field}");
    }
    // Replay tells the same.
    let frames = api.subscribe(&id, Some(0)).await.rest().await;
    let artifact = frames.iter().find(|frame| frame.kind() == "artifactUpdate").unwrap();
    assert_eq!(artifact.body["artifactUpdate"]["artifact"]["parts"], parts);

    // base64url without padding is read, base64 is written.
    let message = json!({"messageId": "url", "role": "ROLE_USER", "parts": [{"raw": "AAECAwT__g"}]});
    let task = api.send(&json!({"tenant": "echo", "message": message})).await;
    assert_eq!(text(&task, "/artifacts/0/parts/0/raw"), "AAECAwT//g==");
}

#[tokio::test]
async fn x_11_media_types_are_checked_against_the_agent() {
    let rig = Rig::start().await;
    let api = rig.api();
    let message = json!({
        "messageId": "picture", "role": "ROLE_USER",
        "parts": [{"raw": "AAEC", "mediaType": "image/png"}],
    });
    let request = json!({"tenant": "stream", "message": message});
    let error = api.post("/a2a/message:send", &request).await.error(400);
    assert_eq!(reason(&error), "CONTENT_TYPE_NOT_SUPPORTED");
    api.rpc_error("SendMessage", &request, -32005).await;
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
}
