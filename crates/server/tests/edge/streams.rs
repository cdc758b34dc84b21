//! Streams over both bindings, and taking them up again.

use serde_json::{Value, json};

use crate::edge::{
    support::{Fixture, envelope, message},
    wire::read_until,
};

fn numbers(events: &[(u64, Value)]) -> Vec<u64> {
    events.iter().map(|(number, _)| *number).collect()
}

#[tokio::test]
async fn a_stream_begins_with_the_task_and_ends_with_its_end() {
    let fixture = Fixture::start().await;
    let reply = fixture.post("/a2a/message:stream", &message("stream")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-cache, no-store, no-transform"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert_eq!(reply.header("a2a-version"), Some("1.0"));
    let events = reply.events();
    assert!(events[0].1["task"]["id"].is_string(), "{events:?}");
    assert_eq!(events.last().unwrap().1["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(events.iter().any(|(_, body)| body.get("artifactUpdate").is_some()));
    assert!(numbers(&events).is_sorted_by(|a, b| a < b));
}

#[tokio::test]
async fn both_bindings_carry_the_same_events() {
    let fixture = Fixture::start().await;
    let reply = fixture.post("/a2a/jsonrpc", &envelope("SendStreamingMessage", message("stream"))).await;
    let live = reply.events();
    let task = live[0].1["result"]["task"]["id"].as_str().unwrap().to_owned();
    for (_, body) in &live {
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!("r-1")));
    }

    let replayed = fixture.get(&format!("/a2a/tasks/{task}:subscribe?afterSequence=0")).await.events();
    assert_eq!(numbers(&replayed), numbers(&live));
    for ((_, live), (_, replayed)) in live.iter().zip(&replayed) {
        assert_eq!(&live["result"], replayed);
    }
    let body = envelope("SubscribeToTask", json!({"id": task}));
    let over_rpc = fixture.post("/a2a/jsonrpc?afterSequence=0", &body).await.events();
    assert_eq!(over_rpc, live);
}

#[tokio::test]
async fn a_finished_task_is_resumed_from_a_cursor_only() {
    let fixture = Fixture::start().await;
    let live = fixture.post("/a2a/message:stream", &message("stream")).await.events();
    let task = live[0].1["task"]["id"].as_str().unwrap().to_owned();
    let path = format!("/a2a/tasks/{task}:subscribe");
    let last = live.last().unwrap().0;

    let plain = fixture.ask("POST", &path).send().await;
    assert_eq!((plain.status, plain.reason().as_str()), (400, "UNSUPPORTED_OPERATION"));
    let foreign = fixture.ask("POST", &path).header("Last-Event-ID", "not-ours").send().await;
    assert_eq!(foreign.reason(), "UNSUPPORTED_OPERATION");

    for ask in [
        fixture.ask("POST", &path).header("Last-Event-ID", "2"),
        fixture.ask("GET", &format!("{path}?after_sequence=2")),
        fixture.ask("GET", &format!("{path}?since_seq=2")).header("Last-Event-ID", "0"),
    ] {
        let missed = ask.send().await.events();
        let expected: Vec<u64> = numbers(&live).into_iter().filter(|number| *number > 2).collect();
        assert_eq!(numbers(&missed), expected);
    }
    let nothing = fixture.ask("GET", &path).header("Last-Event-ID", &last.to_string()).send().await;
    assert_eq!((nothing.status, nothing.events().len()), (200, 0));
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_and_nothing_is_lost() {
    let fixture = Fixture::start().await;
    let mut cut = fixture.ask("POST", "/a2a/message:stream").json(&message("stream")).open().await;
    let seen = read_until(&mut cut, "id: 3\n").await;
    drop(cut);
    let start = seen.find("{\"task\":{\"id\":\"").unwrap() + 15;
    let task = &seen[start..start + 36];
    let path = format!("/a2a/tasks/{task}:subscribe");
    let rest = fixture.ask("GET", &path).header("Last-Event-ID", "3").send().await.events();
    let all = fixture.get(&format!("{path}?afterSequence=0")).await.events();
    assert_eq!(rest, all.iter().filter(|(number, _)| *number > 3).cloned().collect::<Vec<_>>());
    assert_eq!(rest.last().unwrap().1["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn several_streams_of_one_task_do_not_meet() {
    let fixture = Fixture::with(|options| options.keep_alive = std::time::Duration::from_millis(100)).await;
    let id = fixture.slow_task("short").await;
    let path = format!("/a2a/tasks/{id}:subscribe");
    let mut first = fixture.ask("GET", &path).open().await;
    let mut second = fixture.ask("GET", &path).open().await;
    read_until(&mut first, "{\"task\":").await;
    drop(first);
    let seen = read_until(&mut second, "TASK_STATE_COMPLETED").await;
    assert!(seen.contains(": keep-alive\n\n"), "{seen}");
}

#[tokio::test]
async fn an_error_before_the_stream_is_no_stream() {
    let fixture = Fixture::start().await;
    let bad = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}});
    let rest = fixture.post("/a2a/message:stream", &bad).await;
    assert_eq!((rest.status, rest.reason().as_str()), (400, "INVALID_PARAMS"));
    let rpc = fixture.call("SendStreamingMessage", bad).await;
    assert_eq!(rpc["error"]["code"], -32602);
    let body = envelope("SubscribeToTask", json!({"id": "x"}));
    let rpc = fixture.post("/a2a/jsonrpc?afterSequence=x", &body).await.json();
    assert_eq!((&rpc["error"]["code"], &rpc["id"]), (&json!(-32602), &json!("r-1")));
}
