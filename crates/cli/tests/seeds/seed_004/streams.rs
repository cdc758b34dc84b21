//! Remotes that stream: what is seen while they work, and what happens where they cannot.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    http::{artifact_text, text},
    remote::{Answer, Caller, Remote, Step, card_03, card_10, task_03, task_10},
};

const PAUSE: Duration = Duration::from_millis(400);

fn streaming(card: fn(&str) -> Value) -> impl FnOnce(&str) -> Value {
    move |url| {
        let mut card = card(url);
        card["capabilities"]["streaming"] = json!(true);
        card
    }
}

fn status(state: &str, words: &str, is_final: bool) -> Value {
    let mut event = json!({
        "kind": "status-update", "taskId": "rt-1", "contextId": "rc-1", "status": {"state": state}, "final": is_final,
    });
    if !words.is_empty() {
        let parts = json!([{"kind": "text", "text": words}]);
        event["status"]["message"] = json!({"kind": "message", "messageId": "s", "role": "agent", "parts": parts});
    }
    event
}

fn chunk(words: &str, append: bool, last: bool) -> Value {
    let artifact = json!({"artifactId": "a-1", "parts": [{"kind": "text", "text": words}]});
    json!({"kind": "artifact-update", "taskId": "rt-1", "contextId": "rc-1", "artifact": artifact, "append": append, "lastChunk": last})
}

/// A whole stream of 0.3.
fn script() -> Vec<Value> {
    vec![
        task_03("rt-1", "rc-1", "submitted", ""),
        status("working", "thinking", false),
        chunk("one ", false, false),
        chunk("two ", true, false),
        chunk("three", true, true),
        status("completed", "", true),
    ]
}

#[tokio::test]
async fn s4_9_s4_24_a_card_that_says_so_is_called_by_a_stream() {
    let remote = Remote::with_card(streaming(card_03)).await;
    remote.says("message/stream", Answer::events(script()));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!("one two three"), &json!("completed")));
    assert_eq!(outcome["remote"], json!({"taskId": "rt-1", "contextId": "rc-1"}), "{outcome:#}");
    let call = remote.only_call();
    assert_eq!(call.rpc(), "message/stream");
    assert!(call.header("accept").unwrap().contains("text/event-stream"), "{call:?}");
    assert!(call.header("x-correlation-id").is_some());
}

#[tokio::test]
async fn s4_9_s4_28_a_card_that_does_not_is_asked_and_waited_for() {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "done");
    let call = remote.only_call();
    assert_eq!(call.rpc(), "message/send");
    assert!(!call.header("accept").unwrap_or_default().contains("text/event-stream"), "{call:?}");
}

#[tokio::test]
async fn s4_25_s4_26_s4_27_updates_are_seen_while_the_remote_works() {
    let remote = Remote::with_card(streaming(card_03)).await;
    remote.says("message/stream", Answer::slow_events(script(), PAUSE));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let begun = caller.chat(&json!({"agent": "quinn", "message": "work", "returnImmediately": true})).await;
    assert_eq!(begun.status, 202, "{}", begun.shown());
    let begun = begun.json();
    let url = text(&begun, "/pollUrl");
    let feed = caller.feed(url, |event| event["state"] == "completed").await;
    for (_, name, event) in &feed {
        assert_eq!(name, "agent.chat.inbound", "{event:#}");
        assert!(["status", "artifact"].contains(&text(event, "/type")), "{event:#}");
        assert_eq!((&event["taskId"], &event["agent"]), (&begun["taskId"], &json!("quinn")), "{event:#}");
        assert_eq!(event["correlationId"], begun["correlationId"], "{event:#}");
    }
    let thinking = feed.iter().find(|(_, _, event)| event["text"] == "thinking").unwrap_or_else(|| panic!("{feed:#?}"));
    assert_eq!((&thinking.2["type"], &thinking.2["state"]), (&json!("status"), &json!("working")));
    let chunks: Vec<&str> = feed
        .iter()
        .filter(|(_, _, event)| event["type"] == "artifact")
        .filter_map(|(_, _, event)| event["text"].as_str())
        .filter(|words| !words.is_empty())
        .collect();
    assert_eq!(chunks, ["one ", "two ", "three"]);
    let end = feed.last().unwrap();
    assert!(end.0.duration_since(thinking.0) > PAUSE * 2, "it is told before the end");
    let outcome = caller.polled(url).await;
    assert_eq!(outcome["response"], "one two three", "once and whole");
    assert_eq!(artifact_text(&caller.api().task(text(&begun, "/taskId")).await), "one two three");
}

#[tokio::test]
async fn s4_26_a_chunk_that_does_not_append_replaces() {
    let remote = Remote::with_card(streaming(card_03)).await;
    let mut events = script();
    events.splice(2..5, [chunk("draft", false, false), chunk("final", false, false), chunk(" word", true, true)]);
    remote.says("message/stream", Answer::events(events));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    assert_eq!(caller.asks("quinn", "work").await["response"], "final word");
}

#[tokio::test]
async fn s4_29_where_a_stream_cannot_be_had_the_same_message_is_sent() {
    let nothing = Answer::Stream(Vec::new());
    let comment = Answer::Stream(vec![Step::Bytes(b": hello\n\n".to_vec())]);
    for answer in [
        Answer::status(404, "no streams"),
        Answer::status(405, "no streams"),
        Answer::Refused(-32601, "Method not found"),
        Answer::Refused(-32004, "This operation is not supported"),
        Answer::status(200, "<html>hello</html>"),
        nothing,
        comment,
        // The connection ends before the head of the answer.
        Answer::closes(),
    ] {
        let remote = Remote::with_card(streaming(card_03)).await;
        remote.says("message/stream", answer.clone());
        remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
        let caller = Caller::knowing("quinn", &remote.agent()).await;
        let outcome = caller.asks("quinn", "work").await;
        assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!("done"), &json!("completed")), "{answer:?}");
        let calls = remote.calls();
        assert_eq!(remote.methods(), ["message/stream", "message/send"], "{answer:?}");
        assert_eq!(calls[0].message()["messageId"], calls[1].message()["messageId"], "{answer:?}");
        assert_eq!(calls[0].header("x-correlation-id"), calls[1].header("x-correlation-id"), "{answer:?}");
    }
}

#[tokio::test]
async fn s4_29_a_stream_that_was_cut_is_picked_up_and_nothing_is_sent_twice() {
    let remote = Remote::with_card(streaming(card_03)).await;
    // It breaks off after the first chunk; what follows is told to whoever asks for it.
    remote.says("message/stream", Answer::events(script().into_iter().take(3)));
    let mut rest = script();
    rest[0] = task_03("rt-1", "rc-1", "working", "one ");
    rest.drain(1..3);
    remote.says("tasks/resubscribe", Answer::events(rest));
    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "one two three")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!("one two three"), &json!("completed")));
    let methods = remote.methods();
    assert_eq!(methods[0], "message/stream");
    assert!(!methods[1..].iter().any(|method| method.starts_with("message/")), "{methods:?}");
}

#[tokio::test]
async fn s4_24_s4_45_a_stream_of_1_0() {
    let remote = Remote::with_card(streaming(card_10)).await;
    let artifact = |words: &str| json!({"artifactId": "a-1", "parts": [{"text": words}]});
    let update = |words: &str, append: bool| json!({"artifactUpdate": {"taskId": "rt-1", "contextId": "rc-1", "artifact": artifact(words), "append": append}});
    let ids =
        |state: &str| json!({"statusUpdate": {"taskId": "rt-1", "contextId": "rc-1", "status": {"state": state}}});
    let events = [
        json!({"task": task_10("rt-1", "rc-1", "SUBMITTED", "")}),
        ids("TASK_STATE_WORKING"),
        update("one ", false),
        update("two", true),
        ids("TASK_STATE_COMPLETED"),
    ];
    remote.says("SendStreamingMessage", Answer::events(events));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!("one two"), &json!("completed")));
    let call = remote.only_call();
    assert_eq!((call.rpc(), call.header("a2a-version")), ("SendStreamingMessage", Some("1.0")));
}
