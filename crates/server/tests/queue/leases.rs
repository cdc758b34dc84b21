//! Leases: who holds an entry, on whichever instance, until when; and that nobody else writes to it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Hand, Held, Setup, TestServer,
    http::{array, artifact_text, reason, text, violations},
    is_lost, piece, state,
};

/// What a worker does under its lease.
fn verbs() -> [(&'static str, Value); 6] {
    [
        ("heartbeat", json!({"seconds": 600})),
        ("progress", json!({"text": "late"})),
        ("progress", json!({"events": [piece("late", false)]})),
        ("ack", json!({"result": "late"})),
        ("nack", json!({"error": "late"})),
        ("nack", json!({"release": true})),
    ]
}

/// Tries everything under a lease that was lost, and looks whether it has done anything.
async fn all_is_refused(rig: &TestServer, hand: &Hand, stale: &Held) {
    let before = rig.rows();
    for (verb, body) in verbs() {
        is_lost(&hand.under(stale, verb, &body).await);
        assert_eq!(rig.rows(), before, "{verb} {body}");
    }
}

/// The same under the lease that has ended the task: who has not heard the answer says the end again and is answered the same.
/// Everything else comes too late.
async fn only_the_end_is_said_again(rig: &TestServer, hand: &Hand, held: &Held, status: &str) {
    let before = rig.rows();
    for (verb, body) in verbs() {
        let reply = hand.under(held, verb, &body).await;
        if verb == "ack" {
            assert_eq!(reply.ok()["status"], status);
        } else {
            is_lost(&reply);
        }
        assert_eq!(rig.rows(), before, "{verb} {body}");
    }
}

#[tokio::test]
async fn a_lease_that_was_lost_changes_nothing_wherever_its_entry_is_now() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let first = hand.take("researcher").await;
    hand.under(&first, "nack", &json!({"delay": 0})).await.ok();
    all_is_refused(&rig, &hand, &first).await;
    let second = hand.take("researcher").await;
    assert_eq!(second.id, id);
    assert_ne!(second.lease, first.lease);
    all_is_refused(&rig, &hand, &first).await;
    hand.under(&second, "ack", &json!({"result": "done"})).await.ok();
    all_is_refused(&rig, &hand, &first).await;
    only_the_end_is_said_again(&rig, &hand, &second, "acked").await;
    assert_eq!(artifact_text(&hand.api.task(&id).await), "done");
}

#[tokio::test]
async fn a_lease_that_nobody_gave_is_refused() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    hand.publish("researcher", "x").await;
    hand.publish("researcher", "y").await;
    let (held, other) = (hand.take("researcher").await, hand.take("researcher").await);
    let middle = held.lease.len() / 2;
    let changed = if held.lease.as_bytes()[middle] == b'A' { 'B' } else { 'A' };
    let forged = format!("{}{changed}{}", &held.lease[..middle], &held.lease[middle + 1..]);
    let before = rig.rows();
    for lease in [forged.as_str(), &held.lease[1..], &other.lease, "1", "", "ü"] {
        for (verb, mut body) in verbs() {
            body["lease"] = json!(lease);
            let error = hand.on(&held.id, verb, &body).await.error(400);
            assert_eq!(
                (reason(&error), violations(&error)),
                ("INVALID_PARAMS", vec!["lease".to_owned()]),
                "{verb} {lease}"
            );
        }
    }
    assert_eq!(rig.rows(), before);
    hand.under(&held, "ack", &json!({})).await.ok();
    hand.under(&other, "ack", &json!({})).await.ok();
}

#[tokio::test]
async fn what_a_worker_does_not_renew_waits_again_and_a_late_worker_cannot_end_it() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let paused = hand.take_for("researcher", 0.5).await;
    hand.report(&paused, &[piece("half", false)]).await;
    // Nobody asks for it, and it is put back all the same.
    let entry = hand.becomes(&id, "pending").await;
    assert_eq!(text(&entry, "/error"), "the lease of tests ran out");
    assert_eq!(super::state(&hand.api.task(&id).await), "SUBMITTED");
    all_is_refused(&rig, &hand, &paused).await;
    let next = hand.take("researcher").await;
    assert_eq!((&next.id, &next.entry["attempt"]), (&id, &json!(2)));
    assert_eq!(hand.api.task(&id).await.get("artifacts"), None, "another attempt begins anew");
    all_is_refused(&rig, &hand, &paused).await;
    hand.under(&next, "ack", &json!({"result": "whole"})).await.ok();
    assert_eq!(artifact_text(&hand.api.task(&id).await), "whole");
}

#[tokio::test]
async fn who_waits_gets_what_another_lets_run_out_until_there_were_too_many_attempts() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    for attempt in 1..=3 {
        let held =
            hand.consume("researcher", &json!({"lease": 0.5, "wait": 20, "worker": format!("w-{attempt}")})).await;
        assert_eq!(held.len(), 1, "attempt {attempt}");
        assert_eq!(held[0].entry["attempt"], attempt);
    }
    let entry = hand.becomes(&id, "dlq").await;
    let workers: Vec<&str> = array(&entry, "/errors").iter().map(|failed| text(failed, "/worker")).collect();
    assert_eq!(workers, ["w-1", "w-2", "w-3"]);
}

#[tokio::test]
async fn a_lease_is_kept_by_heartbeats() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let held = hand.take_for("researcher", 3.0).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let beat = hand.under(&held, "heartbeat", &json!({"seconds": 3})).await.ok();
        let left = beat["leaseSeconds"].as_f64().expect("how long it is good for");
        assert!(beat["canceled"] == json!(false) && left > 2.0 && left <= 3.0, "{beat}");
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let entry = hand.entry(&id).await;
    assert_eq!((text(&entry, "/claimedBy"), &entry["attempts"]), ("tests", &json!(1)));
    hand.under(&held, "ack", &json!({})).await.ok();
}

#[tokio::test]
async fn what_one_instance_has_handed_out_another_takes_back() {
    let rig = TestServer::start().await;
    let second = rig.second(Setup::new()).await;
    let (a, b) = (rig.hand(), Hand { api: second.api() });
    let id = a.publish("researcher", "x").await;
    let held = a.take("researcher").await;
    assert!(b.consume("researcher", &json!({})).await.is_empty());
    assert_eq!(b.under(&held, "heartbeat", &json!({"seconds": 120})).await.ok()["canceled"], false);
    b.report(&held, &[piece("one", false)]).await;
    a.report(&held, &[piece(" two", true)]).await;
    b.report(&held, &[piece("three", false)]).await;
    let written = b.under(&held, "ack", &json!({"result": {"n": 4}})).await.ok();
    assert_eq!(text(&written, "/status"), "acked");
    let task = a.api.task(&id).await;
    assert_eq!(b.api.task(&id).await, task);
    let made: Vec<(&str, &Value)> =
        array(&task, "/artifacts").iter().map(|it| (text(it, "/artifactId"), &it["parts"][0])).collect();
    assert_eq!(made.len(), 3, "{task:#}");
    assert_eq!((made[0].0, made[1].0), (&*format!("{id}-text-0"), &*format!("{id}-text-1")));
    assert_eq!((artifact_text(&task).as_str(), &made[2].1["data"]), ("one twothree", &json!({"n": 4})));
    is_lost(&a.under(&held, "heartbeat", &json!({})).await);
}

#[tokio::test]
async fn of_many_reports_at_once_each_is_there_once() {
    let rig = TestServer::start().await;
    let second = rig.second(Setup::new()).await;
    let (a, b) = (rig.hand(), Hand { api: second.api() });
    let id = a.publish("researcher", "x").await;
    let held = a.take("researcher").await;
    let mut reporting = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (hand, held) = (if n % 2 == 0 { a.clone() } else { b.clone() }, held.clone());
        reporting.spawn(async move { hand.report(&held, &[piece(&format!("<{n}>"), false)]).await });
    }
    reporting.join_all().await;
    a.under(&held, "ack", &json!({})).await.ok();
    let task = a.api.task(&id).await;
    let mut ids: Vec<&str> = array(&task, "/artifacts").iter().map(|artifact| text(artifact, "/artifactId")).collect();
    let said = artifact_text(&task);
    for n in 0..8 {
        assert_eq!(said.matches(&format!("<{n}>")).count(), 1, "{said}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8, "each has an id of its own: {task:#}");
}

/// Cancels from beside; gives the task when that is answered.
fn cancel(hand: &Hand, id: &str) -> tokio::task::JoinHandle<Value> {
    let (api, path) = (hand.api.clone(), format!("/a2a/tasks/{id}:cancel"));
    tokio::spawn(async move { api.post_empty(&path).await.ok() })
}

#[tokio::test]
async fn a_worker_hears_of_a_cancel_at_once_and_may_say_how_it_ends() {
    // Only who hears of it before the grace is over can end it by itself.
    let rig = Setup::new().engine(|engine| engine.cancel_grace = Duration::from_secs(20)).start().await;
    let hand = rig.hand();
    for (verb, body) in [
        ("progress", json!({"events": [{"statusUpdate": {"status": {"state": "TASK_STATE_CANCELED"}}}]})),
        ("nack", json!({"error": "canceled"})),
        ("ack", json!({"result": "done all the same"})),
    ] {
        let id = hand.publish("researcher", "x").await;
        let held = hand.take("researcher").await;
        let begun = Instant::now();
        let waiting = {
            let (hand, held) = (hand.clone(), held.clone());
            tokio::spawn(async move { hand.under(&held, "heartbeat", &json!({"wait": 15})).await.ok() })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "nothing has happened yet");
        let canceling = cancel(&hand, &id);
        assert_eq!(waiting.await.expect("it is heard")["canceled"], true);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(hand.entry(&id).await["canceled"], true);
        assert_eq!(
            hand.under(&held, "heartbeat", &json!({})).await.ok()["canceled"],
            true,
            "whoever asks later hears it"
        );
        assert!(!canceling.is_finished(), "the cancel waits for the worker");
        assert_eq!(hand.under(&held, verb, &body).await.ok()["status"], "canceled", "{verb}");
        // the mark decides, whatever was said after it.
        assert_eq!(state(&canceling.await.expect("it is answered")), "CANCELED", "{verb}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        only_the_end_is_said_again(&rig, &hand, &held, "canceled").await;
    }
    assert!(hand.letters().await.is_empty(), "none of them is a dead letter");
}

#[tokio::test]
async fn a_worker_that_does_not_listen_loses_its_lease() {
    let rig = Setup::new().engine(|engine| engine.cancel_grace = Duration::from_secs(1)).start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let held = hand.take("researcher").await;
    let task = cancel(&hand, &id).await.expect("it is answered");
    assert_eq!(state(&task), "CANCELED");
    all_is_refused(&rig, &hand, &held).await;
    assert_eq!(hand.stands(&id).await.0, "canceled");
}

#[tokio::test]
async fn a_cancel_is_heard_on_the_other_instance_too() {
    let rig = Setup::new().engine(|engine| engine.cancel_grace = Duration::from_secs(20)).start().await;
    let second = rig.second(Setup::new()).await;
    let (a, b) = (rig.hand(), Hand { api: second.api() });
    let id = a.publish("researcher", "x").await;
    let held = a.take("researcher").await;
    let waiting = {
        let (b, held) = (b.clone(), held.clone());
        tokio::spawn(async move { b.under(&held, "heartbeat", &json!({"wait": 25})).await.ok() })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let canceling = cancel(&a, &id);
    assert_eq!(waiting.await.expect("it is heard")["canceled"], true);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    b.under(&held, "nack", &json!({})).await.ok();
    assert_eq!(state(&canceling.await.expect("it is answered")), "CANCELED");
}
