//! Long polls: who waits is handed what comes, and nobody else is.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::{
    Hand, Held, Setup, TestServer,
    http::{Api, text},
    is_lost,
};
use testkit::TOKEN;

/// Workers that wait, each on a connection of its own.
fn waiting(hand: &Hand, workers: usize, seconds: f64) -> JoinSet<(Vec<Held>, Instant)> {
    let mut waiting = JoinSet::new();
    for _ in 0..workers {
        let hand = Hand { api: Api::new(hand.api.base(), Some(TOKEN)) };
        waiting.spawn(async move {
            let held = hand.consume("researcher", &json!({"wait": seconds, "lease": 60})).await;
            (held, Instant::now())
        });
    }
    waiting
}

#[tokio::test]
async fn of_twenty_who_wait_one_gets_the_one_entry() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let waiting = waiting(&hand, 20, 4.0);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let published = Instant::now();
    let id = hand.publish("researcher", "x").await;
    let answers = waiting.join_all().await;
    let handed: Vec<_> = answers.iter().flat_map(|(held, at)| held.iter().map(move |held| (held, at))).collect();
    assert_eq!(handed.len(), 1, "{handed:?}");
    assert_eq!(handed[0].0.id, id);
    let late = handed[0].1.saturating_duration_since(published);
    assert!(late < Duration::from_secs(2), "{late:?}");
    let entry = hand.entry(&id).await;
    assert_eq!((text(&entry, "/status"), &entry["attempts"]), ("in_progress", &json!(1)));
}

#[tokio::test]
async fn of_twenty_who_wait_as_many_are_served_as_there_are_entries() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let waiting = waiting(&hand, 20, 4.0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut published = Vec::new();
    for n in 0..7 {
        published.push(hand.publish("researcher", &n.to_string()).await);
    }
    let answers = waiting.join_all().await;
    assert!(answers.iter().all(|(held, _)| held.len() < 2), "each wanted one");
    let mut handed: Vec<String> = answers.into_iter().flat_map(|(held, _)| held).map(|held| held.id).collect();
    handed.sort_unstable();
    // Ids sort by the time at which they were made.
    assert_eq!(handed, published);
}

#[tokio::test]
async fn whoever_hangs_up_while_waiting_takes_nothing_along() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    for _ in 0..3 {
        let gone = Hand { api: Api::new(hand.api.base(), Some(TOKEN)) };
        let wishes = json!({"wait": 30, "lease": 600, "worker": "gone"});
        let asking = gone.consume("researcher", &wishes);
        assert!(timeout(Duration::from_millis(300), asking).await.is_err(), "there was nothing to get");
        drop(gone);
        let body = json!({"from": "planner", "to": "researcher", "text": "x", "maxAttempts": 1});
        let id = text(&hand.publish_all(&body).await, "/id").to_owned();
        let held = hand.consume("researcher", &json!({"wait": 10, "lease": 60})).await;
        assert_eq!(held.len(), 1, "it is still to be had: {:#}", hand.entry(&id).await);
        assert_eq!(held[0].id, id);
        let entry = hand.under(&held[0], "ack", &json!({})).await.ok();
        assert_eq!(text(&entry, "/status"), "acked", "and its only attempt was left");
    }
}

#[tokio::test]
async fn a_wait_ends_with_nothing_when_nothing_comes() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let begun = Instant::now();
    assert!(hand.consume("researcher", &json!({"wait": 1})).await.is_empty());
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    // Work for others is none.
    let waiting = waiting(&hand, 1, 1.0);
    hand.publish("other", "x").await;
    assert!(waiting.join_all().await[0].0.is_empty());
}

#[tokio::test]
async fn who_waits_on_one_instance_gets_what_is_published_on_another() {
    let rig = TestServer::start().await;
    let second = rig.second(Setup::new()).await;
    let waiting = waiting(&Hand { api: second.api() }, 1, 20.0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let published = Instant::now();
    let id = rig.hand().publish("researcher", "x").await;
    let (held, at) = waiting.join_all().await.remove(0);
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].id, id);
    let late = at.saturating_duration_since(published);
    assert!(late < Duration::from_secs(4), "{late:?}");
}

#[tokio::test]
async fn what_is_given_back_goes_to_who_waits() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let first = hand.take("researcher").await;
    let waiting = waiting(&hand, 1, 20.0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    hand.under(&first, "nack", &json!({"release": true})).await.ok();
    let (held, _) = waiting.join_all().await.remove(0);
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].id, id);
    is_lost(&hand.under(&first, "heartbeat", &json!({})).await);
}

#[tokio::test]
async fn a_queue_with_a_bound_hands_out_the_next_when_one_is_done() {
    let rig = Setup::new().file("researcher.toml", "kind = \"queue\"\n[queue]\nmax_in_progress = 1\n").start().await;
    let hand = rig.hand();
    let ids = [hand.publish("researcher", "x").await, hand.publish("researcher", "y").await];
    let held = hand.consume("researcher", &json!({"max": 2, "lease": 60})).await;
    assert_eq!(held.len(), 1, "both are wanted and one is to be had");
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let waiting = waiting(&hand, 1, 20.0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    hand.under(&held[0], "ack", &json!({})).await.ok();
    let (next, _) = waiting.join_all().await.remove(0);
    assert_eq!(next.len(), 1);
    assert_eq!((&held[0].id, &next[0].id), (&ids[0], &ids[1]));
}
