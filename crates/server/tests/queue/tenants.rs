//! Entries are their tenant's. The administrator works for all tenants, and is none.

use serde_json::json;

use super::{
    Hand, Held, TestServer, UNKNOWN,
    http::{Api, array, reason, text, violations},
    is_lost,
};
use crate::protocol::server::ADMIN;

/// Everything that can be asked of one entry.
fn verbs() -> [(&'static str, serde_json::Value); 6] {
    [
        ("claim", json!({})),
        ("heartbeat", json!({})),
        ("progress", json!({"text": "x"})),
        ("ack", json!({"result": 1})),
        ("nack", json!({"error": "x"})),
        ("execute", json!({})),
    ]
}

#[tokio::test]
async fn what_is_another_tenants_does_not_exist_for_any_verb() {
    let rig = TestServer::start().await;
    let mine = rig.hand();
    let theirs = mine.with_token(&rig.add_tenant("other").await);
    let letter = mine.letter("researcher", "dead").await;
    mine.publish("researcher", "held").await;
    let held = mine.take("researcher").await;
    let waits = mine.publish("researcher", "waits").await;
    let runs = mine.publish("echo", "could be run").await;
    let before = rig.rows();
    for id in [&letter, &held.id, &waits, &runs] {
        for (verb, body) in verbs() {
            let found = theirs.on(id, verb, &body).await.error(404);
            let nothing = theirs.on(UNKNOWN, verb, &body).await.error(404);
            assert_eq!(reason(&found), "TASK_NOT_FOUND");
            assert_eq!(found.to_string().replace(id, UNKNOWN), nothing.to_string(), "{verb}");
        }
        theirs.api.get(&format!("/v1/queue/messages/{id}")).await.error(404);
        theirs.api.post("/v1/queue/dlq/replay", &json!({"messageId": id})).await.error(404);
    }
    // The lease of a tenant in the hands of another.
    for (verb, body) in verbs().into_iter().filter(|(verb, _)| !matches!(*verb, "claim" | "execute")) {
        let error = theirs.under(&held, verb, &body).await.error(404);
        assert_eq!(reason(&error), "TASK_NOT_FOUND", "{verb}");
    }
    assert!(theirs.consume("researcher", &json!({"max": 10, "wait": 0.5})).await.is_empty());
    assert!(theirs.letters().await.is_empty());
    assert_eq!(theirs.api.post_empty("/v1/queue/dlq/replay").await.ok(), json!({"replayed": []}));
    let status = theirs.api.get("/v1/queue/status").await.ok();
    assert_eq!((&status["pending"], &status["agents"]), (&json!(0), &json!([])));
    assert_eq!(rig.rows(), before);

    // Of the same agent each gets its own.
    let their = theirs.publish("researcher", "theirs").await;
    let taken = theirs.take("researcher").await;
    assert_eq!(taken.id, their);
    // A lease that is good, shown for an entry that is another's.
    let error = theirs.on(&held.id, "ack", &json!({"lease": taken.lease})).await.error(400);
    assert_eq!(violations(&error), ["lease"]);
    mine.under(&held, "ack", &json!({})).await.ok();
    assert_eq!(mine.take("researcher").await.id, waits);
}

#[tokio::test]
async fn a_waiting_worker_is_not_woken_by_another_tenants_entry() {
    let rig = TestServer::start().await;
    let mine = rig.hand();
    let theirs = mine.with_token(&rig.add_tenant("other").await);
    let waiting = {
        let theirs = theirs.clone();
        tokio::spawn(async move { theirs.consume("researcher", &json!({"wait": 2})).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let id = mine.publish("researcher", "x").await;
    assert!(waiting.await.expect("it is answered").is_empty());
    assert_eq!(mine.entry(&id).await["attempts"], 0);
}

#[tokio::test]
async fn the_administrator_works_for_all_tenants_and_publishes_for_none() {
    let rig = TestServer::start().await;
    let mine = rig.hand();
    let theirs = mine.with_token(&rig.add_tenant("other").await);
    let admin = mine.with_token(ADMIN);
    let own = mine.publish("researcher", "mine").await;
    let other = theirs.publish("researcher", "theirs").await;
    let held: Vec<Held> = admin.consume("researcher", &json!({"max": 10, "lease": 60})).await;
    assert_eq!(held.len(), 2, "{held:?}");
    for held in &held {
        let owner = if held.id == own { &mine } else { &theirs };
        assert_eq!(admin.under(held, "heartbeat", &json!({})).await.ok()["canceled"], false);
        assert_eq!(text(&admin.entry(&held.id).await, "/status"), "in_progress");
        admin.under(held, "progress", &json!({"text": "so far"})).await.ok();
        admin.under(held, "ack", &json!({"result": "done"})).await.ok();
        let task = owner.api.task(&held.id).await;
        assert_eq!(super::http::artifact_text(&task), "done");
        assert_eq!(super::state(&task), "COMPLETED");
    }
    theirs.api.get(&format!("/a2a/tasks/{own}")).await.error(404);
    mine.api.get(&format!("/a2a/tasks/{other}")).await.error(404);

    // By its id, and given back: to whoever asks of its tenant.
    let id = theirs.publish("researcher", "x").await;
    let claimed = admin.on(&id, "claim", &json!({})).await.ok();
    let claimed = Held::of(&claimed);
    admin.under(&claimed, "nack", &json!({"release": true})).await.ok();
    let taken = theirs.take("researcher").await;
    assert_eq!(taken.id, id);
    is_lost(&admin.under(&claimed, "ack", &json!({})).await);

    let before = rig.rows();
    let publish = json!({"from": "a", "to": "b", "text": "c"});
    let refused = [
        admin.api.post("/v1/queue/publish", &publish).await,
        admin.api.get("/v1/queue/status").await,
        admin.api.get("/v1/queue/dlq").await,
        admin.api.post_empty("/v1/queue/dlq/replay").await,
        admin.on(&id, "execute", &json!({})).await,
    ];
    for reply in refused {
        assert_eq!(reason(&reply.error(403)), "PERMISSION_DENIED", "{}", reply.shown());
    }
    assert_eq!(rig.rows(), before);
}

#[tokio::test]
async fn nobody_comes_in_without_a_token() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let before = rig.rows();
    for token in [None, Some("sb_wrong"), Some("sba_wrong")] {
        let nobody = Hand { api: Api::new(hand.api.base(), token) };
        nobody.api.post("/v1/queue/publish", &json!({"from": "a", "to": "b", "text": "c"})).await.error(401);
        nobody.api.post_empty("/v1/queue/researcher/consume").await.error(401);
        nobody.api.get("/v1/queue/status").await.error(401);
        nobody.api.get("/v1/queue/dlq").await.error(401);
        nobody.api.post_empty("/v1/queue/dlq/replay").await.error(401);
        nobody.api.get(&format!("/v1/queue/messages/{id}")).await.error(401);
        for (verb, body) in verbs() {
            nobody.on(&id, verb, &body).await.error(401);
        }
    }
    assert_eq!(rig.rows(), before);
    assert_eq!(array(&hand.api.get("/v1/queue/status").await.ok(), "/agents").len(), 1);
}
