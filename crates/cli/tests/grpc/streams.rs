//! Streams over gRPC: the same events as over SSE, cursors, and what a server that stops says.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    grpc::{A2A, GATEWAY, Grpc},
    http::{reason, state, text, to, to_at_once},
    rows::Rig,
};

const RESUME_CURSOR: &str = "urn:switchboard:a2a:resume-cursor:v1";

/// All numbers as doubles, since those of Struct are.
fn doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(list) => list.into_iter().map(doubles).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, doubles(value))).collect(),
        other => other,
    }
}

async fn working(grpc: &Grpc, said: &str) -> String {
    let sent = grpc.ok(A2A, "SendMessage", &to_at_once("stream", said)).await;
    text(&sent, "/task/id").to_owned()
}

#[tokio::test]
async fn s3_96_sse_and_grpc_show_the_same_events_in_the_same_order() {
    let rig = Rig::start(&[]).await;
    let id = working(&rig.grpc(), "5 chunks, 60 ms apart").await;
    let (api, request) = (rig.api(), json!({"id": id}));
    let first = rig.grpc().with("after_sequence", "0");
    let (mut sse, typed, objects) = tokio::join!(
        api.subscribe(&id, Some(0)),
        first.open(A2A, "SubscribeToTask", &request),
        first.open(GATEWAY, "SubscribeToTask", &request),
    );
    let (sse, typed, objects) = tokio::join!(sse.rest(), typed.finish(), objects.finish());
    assert!(sse.len() >= 4, "{sse:#?}");
    let sse: Vec<Value> = sse.into_iter().map(|frame| doubles(frame.body)).collect();
    let objects: Vec<Value> = objects.messages.into_iter().map(doubles).collect();
    assert_eq!(objects, sse);
    // What is there only when it is not the default: said or not, it is the same.
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event.as_object().unwrap().keys().next().unwrap().clone()).collect()
    };
    assert_eq!(kinds(&typed.messages), kinds(&sse));
    let texts = |events: &[Value]| -> Vec<Value> {
        events
            .iter()
            .map(|event| event.pointer("/artifactUpdate/artifact/parts").cloned().unwrap_or_default())
            .collect()
    };
    assert_eq!(texts(&typed.messages), texts(&sse));
    assert_eq!(state(&typed.messages.last().unwrap()["statusUpdate"]), "COMPLETED");
}

#[tokio::test]
async fn x_39_a_cursor_replays_what_is_missing_and_nothing_else() {
    let rig = Rig::start(&[]).await;
    let grpc = rig.grpc().with("a2a-extensions", RESUME_CURSOR);
    for service in [A2A, GATEWAY] {
        let streamed = grpc.call(service, "SendStreamingMessage", &to("stream", "4 chunks, 40 ms apart")).await;
        assert_eq!(streamed.headers["a2a-extensions"], RESUME_CURSOR);
        let number = |event: &Value| {
            let event = event.as_object().unwrap().values().next().unwrap();
            event["metadata"][format!("{RESUME_CURSOR}/sequence")].as_f64().unwrap() as u64
        };
        let numbers: Vec<u64> = streamed.messages.iter().map(number).collect();
        assert!(numbers.is_sorted() && numbers.len() >= 3, "{numbers:?}");
        let id = json!({"id": text(&streamed.messages[0], "/task/id")});
        for (n, after) in numbers.iter().enumerate() {
            let resumed = grpc.with("after_sequence", &after.to_string()).call(service, "SubscribeToTask", &id).await;
            assert_eq!(resumed.code(), Some(0));
            assert_eq!(resumed.messages, streamed.messages[n + 1..], "after {after}");
        }
        let all = grpc.with("after_sequence", "0").call(service, "SubscribeToTask", &id).await;
        assert_eq!(all.messages.len(), streamed.messages.len());
        let ended = grpc.call(service, "SubscribeToTask", &id).await;
        assert_eq!(reason(&ended.error(9)), "UNSUPPORTED_OPERATION", "without a cursor there is nothing to follow");
        let wrong = grpc.with("after_sequence", "x").call(service, "SubscribeToTask", &id).await;
        assert_eq!(reason(&wrong.error(3)), "INVALID_PARAMS");
    }
    let beside = json!({"id": working(&grpc, "2 chunks, 10 ms apart").await, "afterSequence": 0});
    let all = grpc.call(GATEWAY, "SubscribeToTask", &beside).await;
    assert!(all.messages[0]["task"].is_object() && all.messages.len() > 2, "{all:?}");
}

#[tokio::test]
async fn who_does_not_ask_for_numbers_gets_none() {
    let rig = Rig::start(&[]).await;
    let streamed = rig.grpc().call(A2A, "SendStreamingMessage", &to("echo", "plain")).await;
    assert!(streamed.messages.iter().all(|event| !event.to_string().contains("sequence")), "{streamed:?}");
    assert!(!streamed.headers.contains_key("a2a-extensions"));
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_and_says_that_there_is_more() {
    let rig = Rig::start(&[]).await;
    let id = working(&rig.grpc(), "600 chunks, 100 ms apart").await;
    let mut following = rig.grpc().open(A2A, "SubscribeToTask", &json!({"id": id})).await;
    assert_eq!(text(&following.next().await.unwrap(), "/task/id"), id);
    rig.server.signal("TERM");
    let ended = following.finish().await;
    assert_eq!(reason(&ended.error(14)), "UNAVAILABLE");
}

#[tokio::test]
async fn work_goes_on_when_its_caller_has_gone() {
    let rig = Rig::start(&[]).await;
    let mut stream = rig.grpc().open(A2A, "SendStreamingMessage", &to("stream", "5 chunks, 50 ms apart")).await;
    let id = text(&stream.next().await.unwrap(), "/task/id").to_owned();
    drop(stream);
    let task = rig.api().task_when(&id, super::http::is_terminal).await;
    assert_eq!(state(&task), "COMPLETED");
}

#[tokio::test]
async fn a_reader_that_stalls_holds_nobody_up() {
    let rig = Rig::start(&[]).await;
    let stalled = rig.grpc().open(A2A, "SendStreamingMessage", &to("stream", "400 chunks, 2 ms apart")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Over the same connection.
    let quick = rig.grpc().ok(A2A, "SendMessage", &to("echo", "quick")).await;
    assert_eq!(state(&quick["task"]), "COMPLETED");
    let whole = stalled.finish().await;
    assert_eq!(state(&whole.messages.last().unwrap()["statusUpdate"]), "COMPLETED");
}
