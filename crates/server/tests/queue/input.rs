//! What is wrong with a request is said by the name of its member, and nothing is done.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    TestServer,
    http::{reason, text, violations, with_json},
};

/// Requests that are wrong in one member.
fn wrong_publishes() -> Vec<(Value, &'static str)> {
    let whole = json!({"from": "planner", "to": "researcher", "text": "x"});
    let with = |name: &str, value: Value| {
        let mut body = whole.clone();
        body[name] = value;
        body
    };
    let long = "x".repeat(2000);
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    vec![
        (json!({"to": "researcher", "text": "x"}), "from"),
        (json!({"from": "planner", "text": "x"}), "to"),
        (json!({"from": "planner", "to": "researcher"}), "text"),
        (with("text", json!("")), "text"),
        (with("text", json!(1)), "text"),
        (with("from", json!("")), "from"),
        (with("from", json!("a\nb")), "from"),
        (with("from", json!(&long)), "from"),
        (with("from", json!(["a"])), "from"),
        (with("to", json!("")), "to"),
        (with("to", json!("a b")), "to"),
        (with("to", json!("agents")), "to"),
        (with("to", json!(&long)), "to"),
        (with("to", json!(null)), "to"),
        (with("payload", deep), "payload"),
        (with("correlationId", json!(1)), "correlationId"),
        (with("correlationId", json!(&long)), "correlationId"),
        (with("delay", json!(-1)), "delay"),
        (with("delay", json!("1")), "delay"),
        (with("delay", json!(1e10)), "delay"),
        (with("priority", json!(10)), "priority"),
        (with("priority", json!(-1)), "priority"),
        (with("priority", json!(1.5)), "priority"),
        (with("priority", json!("9")), "priority"),
        (with("maxAttempts", json!(0)), "maxAttempts"),
        (with("maxAttempts", json!(-1)), "maxAttempts"),
        (with("maxAttempts", json!("3")), "maxAttempts"),
        (with("later", json!(1)), "later"),
    ]
}

/// Wrong wishes of those who want an entry.
fn wrong_wishes() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"lease": 0}), "lease"),
        (json!({"lease": -1}), "lease"),
        (json!({"lease": 43_201}), "lease"),
        (json!({"lease": "60"}), "lease"),
        (json!({"worker": ""}), "worker"),
        (json!({"worker": 1}), "worker"),
        (json!({"worker": "a\u{0}b"}), "worker"),
        (json!({"worker": "x".repeat(129)}), "worker"),
        (json!({"max": "1"}), "max"),
        (json!({"max": -1}), "max"),
        (json!({"wait": "1"}), "wait"),
        (json!({"wait": -1}), "wait"),
        (json!({"for": 1}), "for"),
    ]
}

#[tokio::test]
async fn what_is_wrong_with_a_publish_is_named_and_nothing_is_queued() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let before = rig.rows();
    for (body, field) in wrong_publishes() {
        let shown: String = body.to_string().chars().take(100).collect();
        let error = hand.api.post("/v1/queue/publish", &body).await.error(400);
        assert_eq!((reason(&error), violations(&error)), ("INVALID_PARAMS", vec![field.to_owned()]), "{shown}");
    }
    assert_eq!(rig.rows(), before);
}

#[tokio::test]
async fn an_empty_correlation_id_is_none() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let entry = hand.publish_all(&json!({"from": "a", "to": "b", "text": "c", "correlationId": ""})).await;
    assert_eq!(entry.get("correlationId"), None);
    assert!(!text(&hand.api.task(text(&entry, "/id")).await, "/contextId").is_empty());
}

#[tokio::test]
async fn what_is_wrong_with_a_wish_is_named_and_nothing_is_handed_out() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let before = rig.rows();
    let of_consume = [(json!({"max": 0}), "max"), (json!({"max": 101}), "max"), (json!({"wait": 61}), "wait")];
    for (body, field) in wrong_wishes().into_iter().chain(of_consume) {
        let error = hand.api.post("/v1/queue/researcher/consume", &body).await.error(400);
        assert_eq!((reason(&error), violations(&error)), ("INVALID_PARAMS", vec![field.to_owned()]), "{body}");
    }
    // Who names an entry gets it, or not.
    let of_claim = [(json!({"max": 1}), "max"), (json!({"wait": 1}), "wait")];
    for (body, field) in wrong_wishes().into_iter().chain(of_claim) {
        let error = hand.on(&id, "claim", &body).await.error(400);
        assert_eq!((reason(&error), violations(&error)), ("INVALID_PARAMS", vec![field.to_owned()]), "{body}");
    }
    for agent in ["a%20b", "agents", &"x".repeat(65)] {
        let error = hand.api.post_empty(&format!("/v1/queue/{agent}/consume")).await.error(400);
        assert_eq!(violations(&error), ["agent"], "{agent}");
    }
    assert_eq!(rig.rows(), before);
}

#[tokio::test]
async fn what_is_wrong_with_a_report_is_named_and_nothing_is_written() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    hand.publish("researcher", "x").await;
    let held = hand.take("researcher").await;
    let before = rig.rows();
    let working = super::status("WORKING", "so far");
    let ended = super::status("COMPLETED", "done");
    let long = json!({"artifactUpdate": {"artifact": {"artifactId": "x".repeat(2000), "parts": [{"text": "x"}]}}});
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    for (verb, body, field) in [
        ("heartbeat", json!({"seconds": "60"}), "seconds"),
        ("heartbeat", json!({"seconds": -1}), "seconds"),
        ("heartbeat", json!({"wait": 61}), "wait"),
        ("heartbeat", json!({"wait": "1"}), "wait"),
        ("heartbeat", json!({"lease": 1}), "lease"),
        ("heartbeat", json!({"later": 1}), "later"),
        ("progress", json!({}), "events"),
        ("progress", json!({"events": []}), "events"),
        ("progress", json!({"events": {}}), "events"),
        ("progress", json!({"events": [1]}), "events[0]"),
        ("progress", json!({"events": [{"task": {"id": held.id}}]}), "events[0]"),
        ("progress", json!({"events": [working, {"what": 1}]}), "events[1]"),
        ("progress", json!({"events": [super::status("SUBMITTED", "x")]}), "events[0]"),
        ("progress", json!({"events": [ended, working]}), "events[1]"),
        ("progress", json!({"events": [long]}), "events[0].artifactUpdate.artifact.artifactId"),
        ("progress", json!({"events": [working], "end": true}), "end"),
        ("progress", json!({"text": "x", "end": "yes"}), "end"),
        ("progress", json!({"text": 1}), "text"),
        ("progress", json!({"text": "x", "sequence": -1}), "sequence"),
        ("progress", json!({"text": "x", "later": 1}), "later"),
        ("ack", json!({"text": 1}), "text"),
        ("ack", json!({"lease": 1}), "lease"),
        ("ack", json!({"results": 1}), "results"),
        ("ack", json!({"result": deep}), "result"),
        ("nack", json!({"error": 1}), "error"),
        ("nack", json!({"delay": -1}), "delay"),
        ("nack", json!({"delay": 1e10}), "delay"),
        ("nack", json!({"fatal": 1}), "fatal"),
        ("nack", json!({"release": "yes"}), "release"),
        ("nack", json!({"release": true, "fatal": true}), "release"),
        ("nack", json!({"release": true, "delay": 1}), "release"),
        ("nack", json!({"later": 1}), "later"),
    ] {
        let shown: String = body.to_string().chars().take(100).collect();
        let error = hand.on(&held.id, verb, &body).await.error(400);
        let found = violations(&error);
        assert_eq!((reason(&error), found.len()), ("INVALID_PARAMS", 1), "{verb} {shown}: {error:#}");
        assert!(found[0].starts_with(field), "{verb} {shown}: {found:?}");
    }
    // No lease is that short or that long.
    for seconds in [0, 43_201] {
        hand.under(&held, "heartbeat", &json!({"seconds": seconds})).await.error(400);
    }
    assert_eq!(rig.rows(), before);
    hand.under(&held, "ack", &json!({})).await.ok();
}

#[tokio::test]
async fn what_is_wrong_with_a_look_at_dead_letters_is_named() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let letter = hand.letter("researcher", "x").await;
    let before = rig.rows();
    for (query, field) in [("limit=x", "limit"), ("limit=-1", "limit"), ("after=x", "after"), ("agent=a%20b", "agent")]
    {
        let error = hand.api.get(&format!("/v1/queue/dlq?{query}")).await.error(400);
        assert_eq!(violations(&error), [field], "{query}");
    }
    for (body, field) in [
        (json!({"messageId": 1}), "messageId"),
        (json!({"messageId": letter, "toAgent": "a b"}), "toAgent"),
        (json!({"toAgent": "agents"}), "toAgent"),
        (json!({"toAgent": 1}), "toAgent"),
        (json!({"all": true}), "all"),
    ] {
        let error = hand.api.post("/v1/queue/dlq/replay", &body).await.error(400);
        assert_eq!(violations(&error), [field], "{body}");
    }
    assert_eq!(rig.rows(), before);
    assert_eq!(hand.letters().await.len(), 1);
}

#[tokio::test]
async fn bodies_that_are_no_objects_of_json_are_refused() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let before = rig.rows();
    let paths = [
        "/v1/queue/publish".to_owned(),
        "/v1/queue/researcher/consume".to_owned(),
        "/v1/queue/dlq/replay".to_owned(),
        format!("/v1/queue/messages/{id}/claim"),
        format!("/v1/queue/messages/{id}/progress"),
    ];
    let post = async |path: &str, media: &str, body: &'static str| {
        hand.api.call(hand.api.request(Method::POST, path).header("Content-Type", media).body(body)).await
    };
    for path in &paths {
        for body in
            ["{", "nonsense", "[]", "[\"a\", \"b\"]", "1", "\"x\"", "null", "{} {}", "{\"to\": \"a\", \"to\": \"b\"}"]
        {
            let reply = post(path, "application/json", body).await;
            assert_eq!(reply.status, 400, "{path} {body}: {}", reply.shown());
            reply.error(400);
        }
        let reply = post(path, "text/plain", "{}").await;
        assert_eq!(reason(&reply.error(415)), "UNSUPPORTED_MEDIA_TYPE", "{path}");
        assert_eq!(hand.api.get(path).await.status, 405, "{path}");
    }
    assert_eq!(rig.rows(), before);
    let reply = hand.api.call(with_json(hand.api.request(Method::DELETE, "/v1/queue/status"), &json!({}))).await;
    assert_eq!(reply.status, 405, "{}", reply.shown());
    hand.api.get("/v1/queue/nothing/here").await.error(404);
}
