//! A repeated send finds its first task, and only then.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    http::{Api, Reply, array, message, reason, state, text, to, to_at_once, with_json},
    rig::Rig,
};

fn keyed(agent: &str, context: &str, id: &str, words: &str) -> Value {
    json!({"tenant": agent, "message": {
        "messageId": id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": words}],
    }})
}

async fn with_key(api: &Api, key: &str, request: &Value) -> Reply {
    let call = api.request(Method::POST, "/a2a/message:send").header("Idempotency-Key", key);
    api.call(with_json(call, request)).await
}

#[tokio::test]
async fn s3_77_send_is_idempotent() {
    let rig = Rig::start().await;
    let api = rig.api();
    let request = keyed("stream", "c", "m", "3 20");
    let mut sends = JoinSet::new();
    for _ in 0..10 {
        let (api, request) = (api.clone(), request.clone());
        sends.spawn(async move { api.send(&request).await });
    }
    let tasks = sends.join_all().await;
    let first = api.send(&request).await;
    assert_eq!(state(&first), "COMPLETED");
    for task in &tasks {
        assert_eq!(task, &first, "a repetition joins the task and waits with it");
    }
    let page = api.get("/a2a/tasks?contextId=c").await.ok();
    assert_eq!(page["totalSize"], 1);
    // It ran once: one message, one artifact begun once, one end.
    assert_eq!(array(&first, "/history").len(), 1);
    let events = api.subscribe(text(&first, "/id"), Some(0)).await.rest().await;
    let begun = events.iter().filter(|frame| {
        frame.kind() == "artifactUpdate" && frame.body["artifactUpdate"].get("append") != Some(&json!(true))
    });
    assert_eq!(begun.count(), 1);
    assert_eq!(events.iter().filter(|frame| frame.state() == Some("WORKING")).count(), 1);

    // A stream joins too, and other configuration is not other content.
    let mut other_way = request.clone();
    other_way["configuration"] = json!({"historyLength": 0, "returnImmediately": true});
    assert_eq!(api.send(&other_way).await["id"], first["id"]);
    // Nor is other metadata of the request, which says how to work on a message and is no part of it.
    for metadata in [json!({"attempt": 2}), json!({"attempt": 3, "correlationId": "c"})] {
        let mut again = request.clone();
        again["metadata"] = metadata;
        assert_eq!(api.send(&again).await["id"], first["id"], "{again}");
    }
    let mut with_metadata = keyed("stream", "c2", "m2", "2 20");
    with_metadata["metadata"] = json!({"attempt": 1});
    let id = api.send(&with_metadata).await["id"].clone();
    with_metadata["metadata"] = json!({"attempt": 2});
    assert_eq!(api.send(&with_metadata).await["id"], id);
    let joined = api.stream("/a2a/message:stream", &request).await.rest().await;
    assert_eq!(joined[0].task_id(), text(&first, "/id"));

    // Same key, other content.
    let error = api.post("/a2a/message:send", &keyed("stream", "c", "m", "4 20")).await.error(400);
    assert_eq!(reason(&error), "IDEMPOTENCY_CONFLICT");
    let error = api.rpc_error("SendMessage", &keyed("stream", "c", "m", "4 20"), -32602).await;
    assert_eq!(reason(&error), "IDEMPOTENCY_CONFLICT");
    for context in ["c", "c2"] {
        assert_eq!(api.get(&format!("/a2a/tasks?contextId={context}")).await.ok()["totalSize"], 1, "{context}");
    }
}

#[tokio::test]
async fn s3_78_another_target_context_or_message_is_another_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut ids = Vec::new();
    for request in [
        keyed("echo", "c", "m", "hello"),
        keyed("reject", "c", "m", "hello"),
        keyed("echo", "other", "m", "hello"),
        keyed("echo", "c", "other", "hello"),
    ] {
        ids.push(text(&api.send(&request).await, "/id").to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    // Another tenant's key is another key.
    let token = rig.add_tenant("other").await;
    let theirs = api.with_token(Some(&token)).send(&keyed("echo", "c", "m", "hello")).await;
    assert!(!ids.iter().any(|id| theirs["id"] == json!(id)));
}

#[tokio::test]
async fn s3_79_idempotent_across_bindings_and_restart() {
    let mut rig = Rig::start().await;
    let request = keyed("echo", "c", "m", "hello");
    let first = rig.api().send(&request).await;
    assert_eq!(rig.api().rpc_ok("SendMessage", &request).await["task"], first);
    // The URL's agent and the field's are the same target.
    let mut scoped = request.clone();
    scoped.as_object_mut().unwrap().remove("tenant");
    assert_eq!(rig.api().post("/a2a/agents/echo/message:send", &scoped).await.task(), first);
    rig.kill9();
    rig.restart().await;
    assert_eq!(rig.api().send(&request).await, first);
    assert_eq!(rig.api().rpc_ok("SendMessage", &request).await["task"], first);
    assert_eq!(rig.api().get("/a2a/tasks").await.ok()["totalSize"], 1);
}

#[tokio::test]
async fn s3_80_without_a_context_the_header_is_the_key() {
    let rig = Rig::start().await;
    let api = rig.api();
    let request = to("echo", "hello");
    let first = with_key(&api, "k", &request).await.task();
    assert_eq!(with_key(&api, "k", &request).await.task(), first);
    assert_ne!(with_key(&api, "other", &request).await.task()["id"], first["id"]);
    let conflict = with_key(&api, "k", &to("echo", "something else")).await.error(400);
    assert_eq!(reason(&conflict), "IDEMPOTENCY_CONFLICT");
    // Without it, the same message is new work each time.
    let one = api.send(&request).await;
    let two = api.send(&request).await;
    assert_ne!(one["id"], two["id"]);
    assert_ne!(one["id"], first["id"]);
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 4);
}

#[tokio::test]
async fn x_19_a_follow_up_with_a_known_id_and_other_content_is_a_new_message() {
    let rig = Rig::start().await;
    let api = rig.api();
    let running = api.send(&to_at_once("slow", "600")).await;
    let id = text(&running, "/id").to_owned();
    for says in ["one", "two", "two"] {
        let mut more = super::http::answer(&id, says);
        more["message"]["messageId"] = json!("again");
        more["configuration"] = json!({"returnImmediately": true});
        api.send(&more).await;
    }
    let task = api.task_when(&id, super::http::is_terminal).await;
    let history = task["history"].as_array().unwrap();
    let said: Vec<&str> = history
        .iter()
        .filter(|message| message["messageId"] == "again")
        .map(|message| text(message, "/parts/0/text"))
        .collect();
    assert_eq!(said, ["one", "two"], "the same again is the same; something else is not");
}

#[tokio::test]
async fn s3_81_repeated_continuations_are_not_duplicated() {
    let rig = Rig::start().await;
    let api = rig.api();
    let asked = api.send(&to("ask", "what")).await;
    let id = text(&asked, "/id").to_owned();
    let mut continuation = super::http::answer(&id, "that");
    continuation["message"]["messageId"] = json!("the answer");
    let done = api.send(&continuation).await;
    assert_eq!(state(&done), "COMPLETED");
    // The check precedes the one for a terminal state.
    for _ in 0..3 {
        assert_eq!(api.send(&continuation).await, done);
    }
    assert_eq!(api.rpc_ok("SendMessage", &continuation).await["task"], done);
    let history = api.task(&id).await["history"].as_array().unwrap().clone();
    assert_eq!(history.iter().filter(|message| message["messageId"] == "the answer").count(), 1);
    assert_eq!(json!(history), done["history"]);
}

#[tokio::test]
async fn x_19_a_direct_reply_is_given_again() {
    let rig = Rig::start().await;
    let api = rig.api();
    let request = keyed("message", "c", "m", "hello");
    let first = api.post("/a2a/message:send", &request).await.ok();
    assert!(first["message"].is_object(), "{first:#}");
    assert_eq!(api.post("/a2a/message:send", &request).await.ok(), first);
    assert_eq!(api.rpc_ok("SendMessage", &request).await, first);
    let frames = api.stream("/a2a/message:stream", &request).await.rest().await;
    assert_eq!(frames.len(), 1, "{frames:#?}");
    assert_eq!(frames[0].body, first);
    let fresh = json!({"tenant": "message", "message": message("hello")});
    assert_ne!(api.post("/a2a/message:send", &fresh).await.ok(), first);
}
