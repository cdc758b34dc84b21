//! What a tenant may have at once: tasks, stored bytes, streams.

use std::time::Duration;

use serde_json::{Value, json};
use store::Quota;
use tokio::time::{Instant, sleep};

use crate::edge::{
    support::{Fixture, OTHER_TOKEN, at_once, envelope, message},
    wire::read_until,
};

/// Checks that this is the JSON-RPC form of 429.
fn exhausted(answer: &Value) {
    let error = &answer["error"];
    assert_eq!((&error["code"], &answer["id"]), (&json!(-32000), &json!("r-1")), "{answer}");
    let details = error["data"].as_array().unwrap();
    assert_eq!(details[0]["reason"], "RESOURCE_EXHAUSTED");
    assert!(details.iter().any(|detail| detail["retryDelay"].is_string()), "{answer}");
}

#[tokio::test]
async fn a_tenant_has_so_many_tasks_that_have_not_ended() {
    let rig = Fixture::in_exchange(|options| options.quota = Quota { tasks: Some(2), bytes: None }).await;
    let first = rig.slow_task("go").await;
    let asked = rig.post("/a2a/message:send", &message("ask")).await.json();
    let asking = asked["task"]["id"].as_str().unwrap().to_owned();

    assert_eq!(rig.post("/a2a/message:send", &message("more")).await.retry_after(), 5);
    assert_eq!(rig.post("/a2a/message:stream", &message("more")).await.retry_after(), 5);
    exhausted(&rig.call("SendMessage", message("more")).await);
    let seed = json!({"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}});
    let old = rig.post("/v1/a2a/agents/echo", &envelope("message/send", seed)).await;
    assert_eq!((old.status, &old.json()["error"]["code"]), (200, &json!(-32000)), "{old:?}");
    assert_eq!(rig.get("/a2a/tasks").await.json()["totalSize"], 2);

    // Others, reading, going on and canceling are not concerned.
    let other = rig.ask_as(OTHER_TOKEN, "POST", "/a2a/message:send").json(&message("hello")).send().await;
    assert_eq!(other.status, 200);
    assert_eq!(rig.get(&format!("/a2a/tasks/{first}")).await.status, 200);
    let mut answer = message("this one");
    answer["message"]["taskId"] = json!(asking);
    let answered = rig.post("/a2a/message:send", &answer).await.json();
    assert_eq!(answered["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answered}");
    assert_eq!(rig.post("/a2a/message:send", &message("more")).await.status, 200);
    assert_eq!(rig.post(&format!("/a2a/tasks/{first}:cancel"), &json!({})).await.status, 200);
    assert_eq!(rig.exchange.store().usage(rig.alice).await.unwrap().tasks, 0);
}

#[tokio::test]
async fn a_repeated_message_finds_its_task_at_the_bound() {
    let rig = Fixture::in_exchange(|options| options.quota = Quota { tasks: Some(1), bytes: None }).await;
    let again = |text| {
        let ask = rig.ask("POST", "/a2a/agents/slow/message:send").header("Idempotency-Key", "k-1");
        ask.json(&at_once(text)).send()
    };
    let first = again("go").await.json();
    let second = again("go").await;
    assert_eq!((second.status, &second.json()["task"]["id"]), (200, &first["task"]["id"]));
}

#[tokio::test]
async fn a_tenant_stores_so_many_bytes() {
    let rig = Fixture::in_exchange(|options| options.quota = Quota { tasks: None, bytes: Some(20_000) }).await;
    let running = rig.slow_task("go").await;
    let asked = rig.post("/a2a/message:send", &message("ask")).await.json();
    // The bound is noticed by the next message, so that one may pass it.
    assert_eq!(rig.post("/a2a/message:send", &message(&"x".repeat(15_000))).await.status, 200);
    let used = rig.exchange.store().usage(rig.alice).await.unwrap().bytes;
    assert!(used > 20_000, "{used}");

    let refused = rig.post("/a2a/message:send", &message("more")).await;
    assert_eq!(refused.retry_after(), 300);
    assert_eq!(refused.json()["error"]["details"][0]["metadata"]["limitStoredBytes"], "20000");
    exhausted(&rig.call("SendStreamingMessage", message("more")).await);
    let mut answer = message("this one");
    answer["message"]["taskId"] = asked["task"]["id"].clone();
    assert_eq!(rig.post("/a2a/message:send", &answer).await.status, 429);
    assert_eq!(rig.exchange.store().usage(rig.alice).await.unwrap().bytes, used, "a refusal stores nothing");

    assert_eq!(rig.get("/a2a/tasks").await.json()["totalSize"], 3);
    let canceled = rig.post(&format!("/a2a/tasks/{running}:cancel"), &json!({})).await.json();
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let other = rig.ask_as(OTHER_TOKEN, "POST", "/a2a/message:send").json(&message("hello")).send().await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn a_tenant_has_so_many_streams() {
    let rig = Fixture::in_exchange(|options| options.max_streams = Some(2)).await;
    let task = rig.slow_task("go").await;
    let path = format!("/a2a/tasks/{task}:subscribe");
    let mut first = rig.ask("GET", &path).open().await;
    read_until(&mut first, "{\"task\":").await;
    let mut second = rig.ask("POST", "/a2a/agents/slow/message:stream").json(&message("go")).open().await;
    read_until(&mut second, "{\"task\":").await;

    assert_eq!(rig.get(&path).await.retry_after(), 5);
    assert_eq!(rig.get(&format!("/v1/requests/{task}/events")).await.retry_after(), 5);
    exhausted(&rig.call("SubscribeToTask", json!({"id": task})).await);
    // A streaming send that gets no stream is not taken in.
    assert_eq!(rig.post("/a2a/message:stream", &message("hello")).await.retry_after(), 5);
    assert_eq!(rig.get("/a2a/tasks").await.json()["totalSize"], 2);
    // Sends that wait are no streams, and others have their own.
    assert_eq!(rig.post("/a2a/message:send", &message("hello")).await.status, 200);
    let other = rig.ask_as(OTHER_TOKEN, "POST", "/a2a/message:stream").json(&message("hello")).send().await;
    assert_eq!(other.status, 200);

    drop(first);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // This one ends by itself.
        let reply = rig.post("/a2a/message:stream", &message("hello")).await;
        if reply.status == 200 {
            break;
        }
        assert!(Instant::now() < deadline, "the place of a client that left is not given back");
        sleep(Duration::from_millis(50)).await;
    }
}
