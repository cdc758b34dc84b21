//! What is published is durable first, and then a message and a task of A2A.

use serde_json::json;

use super::{
    Hand, Setup, TestServer,
    grpc::{A2A, GATEWAY, Grpc},
    http::{array, text, to},
    piece, status,
};

#[tokio::test]
async fn s3_2_x_21_the_view_has_a_row_for_each_publish() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let count = || rig.look(&["SELECT count(*) FROM a2a_messages"])[0][0][0].clone();
    assert_eq!(count().as_deref(), Some("0"));
    let mut ids = Vec::new();
    for n in 0..4 {
        let body = json!({"from": "planner", "to": "researcher", "text": format!("number {n}"), "payload": {"n": n}, "maxAttempts": 1});
        ids.push(text(&hand.publish_all(&body).await, "/id").to_owned());
    }
    assert_eq!(count().as_deref(), Some("4"), "as many as were published");
    let first = hand.take("researcher").await;
    let second = hand.take("researcher").await;
    let third = hand.take("researcher").await;
    hand.under(&first, "ack", &json!({"result": {"done": true}})).await.ok();
    hand.under(&second, "nack", &json!({"error": "broken"})).await.ok();
    // Whatever happens to them makes no other rows.
    assert_eq!(count().as_deref(), Some("4"));
    let rows = &rig.look(&[
        "SELECT message_id, from_agent, to_agent, task, status, attempts, max_attempts, error, task_id FROM a2a_messages",
    ])[0];
    let row = |id: &str| rows.iter().find(|row| row[0].as_deref() == Some(id)).expect("it has a row");
    for (n, (status, attempts, error)) in
        [("acked", "1", ""), ("dlq", "1", "broken"), ("in_progress", "1", ""), ("pending", "0", "")]
            .into_iter()
            .enumerate()
    {
        let found: Vec<&str> = row(&ids[n])[1..].iter().map(|value| value.as_deref().unwrap_or_default()).collect();
        let says = format!("number {n}");
        let expected = ["planner", "researcher", &says, status, attempts, "1", error, &ids[n]];
        assert_eq!(found, expected, "{n}");
    }
    let json_of = |column: &str, id: &str| {
        let query = format!("SELECT {column} FROM a2a_messages WHERE message_id = '{id}'");
        let text = rig.look(&[&query])[0][0][0].clone().expect("it is there");
        serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON")
    };
    assert_eq!(json_of("payload_json", &ids[3]), json!({"n": 3}));
    assert_eq!(json_of("result_json", &first.id), json!({"done": true}));
    assert_eq!(json_of("history_json", &third.id)[0]["messageId"], json!(third.id));
}

#[tokio::test]
async fn s3_3_s3_7_s3_8_s3_9_what_was_published_is_the_tasks_first_message() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let payload = json!({"topic": "release-notes", "deep": [{"n": 1.5}, null, "ü"]});
    let body =
        json!({"from": "planner", "to": "researcher", "text": "Summarize latest release notes", "payload": payload});
    let id = text(&hand.publish_all(&body).await, "/id").to_owned();
    let task = hand.api.task(&id).await;
    let history = array(&task, "/history");
    assert_eq!(history.len(), 1);
    let message = &history[0];
    assert_eq!((text(message, "/messageId"), text(message, "/role")), (id.as_str(), "ROLE_USER"));
    assert_eq!((text(message, "/taskId"), &message["contextId"]), (id.as_str(), &task["contextId"]));
    assert_eq!(
        message["parts"],
        json!([{"text": "Summarize latest release notes", "mediaType": "text/plain"}, {"data": payload, "mediaType": "application/json"}])
    );
    let plain = hand.publish("researcher", "without").await;
    assert_eq!(
        hand.api.task(&plain).await["history"][0]["parts"],
        json!([{"text": "without", "mediaType": "text/plain"}]),
        "where there is no payload there is no part for it"
    );
    let bare = hand.publish_all(&json!({"from": "planner", "to": "researcher", "payload": [1]})).await;
    let parts = hand.api.task(text(&bare, "/id")).await["history"][0]["parts"].take();
    assert_eq!(parts, json!([{"data": [1], "mediaType": "application/json"}]), "a payload says enough");
}

#[tokio::test]
async fn s3_4_s3_5_the_context_is_the_correlation_id_or_one_of_its_own() {
    let mut rig = TestServer::start().await;
    let hand = rig.hand();
    let body = json!({"from": "planner", "to": "researcher", "text": "x", "correlationId": "batch-7 ü"});
    let entry = hand.publish_all(&body).await;
    assert_eq!((text(&entry, "/correlationId"), text(&entry, "/contextId")), ("batch-7 ü", "batch-7 ü"));
    let correlated = text(&entry, "/id").to_owned();
    assert_eq!(text(&hand.api.task(&correlated).await, "/contextId"), "batch-7 ü");

    let entry = hand.publish_all(&json!({"from": "planner", "to": "researcher", "text": "x"})).await;
    assert_eq!(entry.get("correlationId"), None, "it belongs to nothing");
    let id = text(&entry, "/id").to_owned();
    let context = text(&hand.api.task(&id).await, "/contextId").to_owned();
    assert!(!context.is_empty());
    assert_eq!(text(&hand.api.task(&id).await, "/contextId"), context);
    let other = hand.publish("researcher", "x").await;
    assert_ne!(text(&hand.api.task(&other).await, "/contextId"), context);
    rig = rig.restart(Setup::new()).await;
    let hand = rig.hand();
    assert_eq!(text(&hand.api.task(&id).await, "/contextId"), context);
    assert_eq!(text(&hand.entry(&id).await, "/contextId"), context);
    assert_eq!(text(&hand.api.task(&correlated).await, "/contextId"), "batch-7 ü");
}

#[tokio::test]
async fn s3_6_x_20_every_surface_knows_an_entry_by_the_same_id() {
    let mut rig = TestServer::start().await;
    let id = rig.hand().publish("researcher", "x").await;
    for _ in 0..2 {
        let hand = rig.hand();
        let entry = hand.entry(&id).await;
        assert_eq!((text(&entry, "/taskId"), text(&entry, "/messageId")), (id.as_str(), id.as_str()));
        let task = hand.api.task(&id).await;
        assert_eq!(text(&task, "/id"), id);
        assert_eq!(hand.api.rpc_ok("GetTask", &json!({"id": id})).await, task);
        for service in [A2A, GATEWAY] {
            let found = Grpc::new(&rig.url).ok(service, "GetTask", &json!({"id": id})).await;
            assert_eq!((text(&found, "/id"), &found["contextId"]), (id.as_str(), &task["contextId"]), "{service}");
        }
        let listed = hand.api.get("/a2a/tasks").await.ok();
        assert_eq!((&listed["totalSize"], text(&listed, "/tasks/0/id")), (&json!(1), id.as_str()));
        assert_eq!(hand.api.get(&format!("/v1/requests/{id}")).await.status, 200);
        rig = rig.restart(Setup::new()).await;
    }
}

#[tokio::test]
async fn s3_10_s3_12_s3_13_a_result_is_an_artifact_and_without_one_there_is_none() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let completed = ("acked".to_owned(), "COMPLETED".to_owned());
    let long = "9".repeat(40);
    for (body, part) in [
        (
            json!({"result": {"status": "done"}}),
            Some(json!({"data": {"status": "done"}, "mediaType": "application/json"})),
        ),
        (json!({"result": [1, "two", null]}), Some(json!({"data": [1, "two", null], "mediaType": "application/json"}))),
        (json!({"result": "in words"}), Some(json!({"text": "in words", "mediaType": "text/plain"}))),
        (json!({"result": null}), Some(json!({"data": null, "mediaType": "application/json"}))),
        (json!({"result": long}), Some(json!({"text": long, "mediaType": "text/plain"}))),
        (json!({}), None),
        (json!({"text": "all is well"}), None),
    ] {
        let id = hand.publish("researcher", "x").await;
        let held = hand.take("researcher").await;
        assert_eq!(hand.stands(&id).await, ("in_progress".to_owned(), "WORKING".to_owned()));
        let written = hand.under(&held, "ack", &body).await.ok();
        assert_eq!((text(&written, "/id"), text(&written, "/status")), (id.as_str(), "acked"));
        assert_eq!(hand.stands(&id).await, completed);
        let task = hand.api.task(&id).await;
        match part {
            Some(part) => {
                let artifacts = array(&task, "/artifacts");
                assert_eq!(artifacts.len(), 1, "{task:#}");
                assert!(!text(&artifacts[0], "/artifactId").is_empty());
                assert_eq!(artifacts[0]["parts"], json!([part]), "{body}");
            }
            None => assert_eq!(task.get("artifacts"), None, "{body}"),
        }
        match body.get("text") {
            Some(says) => assert_eq!(task.pointer("/status/message/parts/0/text"), Some(says)),
            None => assert_eq!(task.pointer("/status/message"), None, "{body}"),
        }
    }
}

/// Publishes, takes, reports; gives how it stands then, and what its status says.
async fn reported(hand: &Hand, report: &serde_json::Value) -> ((String, String), String) {
    let id = hand.publish("researcher", "x").await;
    let held = hand.take("researcher").await;
    hand.under(&held, "progress", report).await.ok();
    let task = hand.api.task(&id).await;
    (hand.stands(&id).await, text(&task, "/status/message/parts/0/text").to_owned())
}

#[tokio::test]
async fn s3_14_s3_17_s3_18_s3_19_workers_end_entries_in_every_state() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    for (state, called) in [
        ("COMPLETED", "acked"),
        ("FAILED", "failed"),
        ("INPUT_REQUIRED", "input_required"),
        ("REJECTED", "rejected"),
        ("AUTH_REQUIRED", "auth_required"),
    ] {
        let end = state == "AUTH_REQUIRED";
        let report = json!({"events": [piece("so far", false), status(state, "so")], "end": end});
        let (stands, says) = reported(&hand, &report).await;
        assert_eq!((stands.0.as_str(), stands.1.as_str(), says.as_str()), (called, state, "so"));
    }
    // Who asks for authorization may go on while it waits.
    let (stands, _) = reported(&hand, &json!({"events": [status("AUTH_REQUIRED", "so")]})).await;
    assert_eq!((stands.0.as_str(), stands.1.as_str()), ("auth_required", "AUTH_REQUIRED"));
    // What another attempt would not mend has failed, and is no dead letter.
    let id = hand.publish("researcher", "x").await;
    let held = hand.take("researcher").await;
    let entry = hand.under(&held, "nack", &json!({"fatal": true, "error": "no such page"})).await.ok();
    assert_eq!((text(&entry, "/status"), text(&entry, "/state")), ("failed", "TASK_STATE_FAILED"));
    assert_eq!(text(&hand.api.task(&id).await, "/status/message/parts/0/text"), "no such page");
    assert!(hand.letters().await.is_empty());
}

#[tokio::test]
async fn s3_14_s3_17_s3_18_s3_19_agents_that_are_run_end_theirs_alike() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    for (agent, called, state) in [
        ("echo", "acked", "COMPLETED"),
        ("fail", "failed", "FAILED"),
        ("ask", "input_required", "INPUT_REQUIRED"),
        ("reject", "rejected", "REJECTED"),
        ("auth", "auth_required", "AUTH_REQUIRED"),
    ] {
        let id = hand.publish(agent, "x").await;
        let task = hand.api.post_empty(&format!("/v1/queue/messages/{id}/execute")).await.ok();
        assert_eq!((text(&task, "/id"), super::state(&task)), (id.as_str(), state));
        assert_eq!(hand.stands(&id).await, (called.to_owned(), state.to_owned()), "{agent}");
        // What came as a message is an entry in the same words.
        let sent = hand.api.send(&to(agent, "x")).await;
        let entry = hand.entry(text(&sent, "/id")).await;
        assert_eq!((text(&entry, "/status"), text(&entry, "/agent")), (called, agent));
    }
}

#[tokio::test]
async fn s3_15_what_was_tried_too_often_has_failed() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.letter("researcher", "poison").await;
    assert_eq!(hand.stands(&id).await, ("dlq".to_owned(), "FAILED".to_owned()));
    let task = hand.api.task(&id).await;
    assert_eq!(text(&task, "/status/message/parts/0/text"), "no");
}

#[tokio::test]
async fn s3_16_a_canceled_entry_is_nobodys_work() {
    let rig = TestServer::start().await;
    let hand = rig.hand();
    let id = hand.publish("researcher", "x").await;
    let task = hand.api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(super::state(&task), "CANCELED");
    assert_eq!(hand.stands(&id).await, ("canceled".to_owned(), "CANCELED".to_owned()));
    assert!(hand.consume("researcher", &json!({})).await.is_empty());
    let error = hand.on(&id, "claim", &json!({})).await.error(409);
    assert_eq!(super::reason(&error), "NOT_WAITING");
}
