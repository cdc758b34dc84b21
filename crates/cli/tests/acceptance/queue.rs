//! The queue when its server dies or stops. All else about it is proven in `crates/server/tests/queue`.

#[expect(dead_code, reason = "the suite of the server uses the rest")]
#[path = "../../../server/tests/queue/hand.rs"]
mod hand;

use std::time::{Duration, Instant};

use hand::Hand;
use serde_json::json;

use super::{
    http::{self, artifact_text, text},
    rig::{PATIENCE, Rig},
};

/// Whoever has the token of the tenant `default`.
fn hand_of(rig: &Rig) -> Hand {
    Hand { api: rig.api() }
}

#[tokio::test]
async fn s3_1_s3_11_what_was_published_survives_kill_9_and_waits() {
    let mut rig = Rig::start().await;
    let hand = hand_of(&rig);
    let entry = hand
        .publish_all(
            &json!({"from": "planner", "to": "researcher", "text": "Summarize", "payload": {"topic": "notes"}}),
        )
        .await;
    let id = text(&entry, "/id").to_owned();
    assert_eq!((text(&entry, "/status"), text(&entry, "/messageId")), ("pending", id.as_str()));
    assert_eq!(hand.api.get("/v1/queue/status").await.ok()["pending"], 1);
    rig.kill9();
    rig.restart().await;
    let hand = hand_of(&rig);
    assert_eq!(hand.stands(&id).await, ("pending".to_owned(), "SUBMITTED".to_owned()));
    assert_eq!(hand.api.get("/v1/queue/status").await.ok()["pending"], 1);
    let held = hand.take("researcher").await;
    assert_eq!(held.id, id);
    for (name, value) in [("from", json!("planner")), ("to", json!("researcher")), ("text", json!("Summarize"))] {
        assert_eq!(held.entry[name], value, "{name}");
    }
    assert_eq!(held.entry["payload"], json!({"topic": "notes"}));
    // What a worker holds survives as well, and so does its lease.
    rig.kill9();
    rig.restart().await;
    let hand = hand_of(&rig);
    assert_eq!(hand.stands(&id).await.0, "in_progress");
    assert_eq!(hand.under(&held, "ack", &json!({})).await.ok()["status"], "acked");
}

#[tokio::test]
async fn a_worker_outlives_the_instance_that_it_got_its_work_from() {
    let mut rig = Rig::start().await;
    let second = rig.second().await;
    let (a, b) = (hand_of(&rig), Hand { api: second.api() });
    let id = a.publish("researcher", "x").await;
    let held = a.take("researcher").await;
    rig.kill9();
    assert_eq!(b.under(&held, "ack", &json!({"result": "after all"})).await.ok()["status"], "acked");
    assert_eq!(artifact_text(&b.api.task(&id).await), "after all");
}

#[tokio::test]
async fn a_server_that_stops_sends_those_who_wait_away() {
    let mut rig = Rig::start().await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let hand = hand_of(&rig);
        waiting.spawn(async move { hand.consume("researcher", &json!({"wait": 30, "lease": 60})).await });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    assert!(rig.server.ends_well().await);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for held in waiting.join_all().await {
        assert!(held.is_empty());
    }
}
