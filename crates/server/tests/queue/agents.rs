//! An agent of kind `queue`: callers speak A2A to it, and workers do its work.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Hand, Setup, TestServer,
    http::{answer, array, artifact_text, text, to, to_at_once},
    piece, state, status,
};

async fn rig() -> TestServer {
    rig_with(Setup::new()).await
}

async fn rig_with(setup: Setup) -> TestServer {
    setup.file("review.toml", "kind = \"queue\"\nname = \"Review\"\ninput_modes = [\"*/*\"]\n").start().await
}

/// A blocking send that goes on beside the test.
fn sending(hand: &Hand, request: Value) -> tokio::task::JoinHandle<Value> {
    let api = hand.api.clone();
    tokio::spawn(async move { api.send(&request).await })
}

/// The next entry of the agent, once there is one.
async fn next(hand: &Hand) -> super::Held {
    let mut held = hand.consume("review", &json!({"wait": 20, "lease": 60})).await;
    assert_eq!(held.len(), 1, "{held:?}");
    held.remove(0)
}

#[tokio::test]
async fn a_blocking_send_is_answered_when_a_worker_is_done() {
    let rig = rig().await;
    let hand = rig.hand();
    let mut request = to("review", "look at this");
    request["message"]["parts"] = json!([{"text": "look at this"}, {"data": {"n": 1}}]);
    let sent = sending(&hand, request.clone());
    let held = next(&hand).await;
    assert_eq!(
        (&held.entry["message"]["messageId"], text(&held.entry, "/from")),
        (&request["message"]["messageId"], "")
    );
    assert_eq!((text(&held.entry, "/text"), &held.entry["payload"]), ("look at this", &json!({"n": 1})));
    assert!(!sent.is_finished());
    hand.under(&held, "ack", &json!({"result": "looks good"})).await.ok();
    let task = sent.await.expect("it is answered");
    assert_eq!((text(&task, "/id"), state(&task)), (held.id.as_str(), "COMPLETED"));
    assert_eq!(artifact_text(&task), "looks good");
    // Over JSON-RPC and at the agent's own URL it is the same.
    let api = hand.api.clone();
    let called = tokio::spawn(async move {
        api.rpc_at("/a2a/agents/review/jsonrpc", "SendMessage", &json!({"message": super::http::message("x")})).await
    });
    let held = next(&hand).await;
    hand.under(&held, "nack", &json!({"fatal": true, "error": "no"})).await.ok();
    let envelope = called.await.expect("it is answered");
    assert_eq!(state(&envelope["result"]["task"]), "FAILED", "{envelope:#}");
}

#[tokio::test]
async fn a_send_that_nobody_works_on_is_answered_at_the_cap() {
    let rig = rig_with(Setup::new().engine(|engine| engine.blocking_cap = Duration::from_secs(1))).await;
    let hand = rig.hand();
    let begun = Instant::now();
    let task = hand.api.send(&to("review", "x")).await;
    assert_eq!(state(&task), "SUBMITTED");
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let held = next(&hand).await;
    assert_eq!(held.id, text(&task, "/id"), "it is still there for whoever comes");
    hand.under(&held, "ack", &json!({})).await.ok();
    // Who does not want to wait does not.
    let task = hand.api.send(&to_at_once("review", "x")).await;
    assert_eq!(state(&task), "SUBMITTED");
}

#[tokio::test]
async fn a_streaming_send_sees_progress_artifacts_and_the_end_in_order() {
    let rig = rig().await;
    let hand = rig.hand();
    let mut stream = hand.api.stream("/a2a/message:stream", &to("review", "x")).await;
    let first = stream.next().await.expect("a task");
    assert_eq!((first.kind(), first.state()), ("task", Some("SUBMITTED")));
    let held = next(&hand).await;
    let id = &held.id;
    hand.under(&held, "progress", &json!({"text": "begun"})).await.ok();
    hand.report(&held, &[piece("one", false), piece(" two", true)]).await;
    hand.report(&held, &[piece(" three", true)]).await;
    let table =
        json!({"artifactUpdate": {"artifact": {"name": "table", "parts": [{"data": {"n": 1}}]}, "lastChunk": true}});
    hand.report(&held, &[status("WORKING", "halfway"), table]).await;
    hand.report(&held, &[piece("four", false)]).await;
    hand.under(&held, "ack", &json!({"text": "that is all"})).await.ok();
    let frames = stream.rest().await;
    let shown: Vec<String> = frames
        .iter()
        .map(|frame| match frame.kind() {
            "statusUpdate" => {
                let says = frame.body.pointer("/statusUpdate/status/message/parts/0/text").and_then(Value::as_str);
                format!("{} {}", frame.state().expect("a state"), says.unwrap_or_default()).trim_end().to_owned()
            }
            _ => {
                let update = &frame.body["artifactUpdate"];
                let number =
                    text(update, "/artifact/artifactId").strip_prefix(&format!("{id}-")).expect("it is its task's");
                let is = |name: &str| update.get(name) == Some(&json!(true));
                let says = frame.artifact_text();
                format!(
                    "{number}{}{} {says}",
                    if is("append") { "+" } else { "" },
                    if is("lastChunk") { "." } else { "" }
                )
            }
        })
        .collect();
    // Ids go on over several calls, and each artifact ends once.
    assert_eq!(
        shown,
        [
            "WORKING",
            "WORKING begun",
            "text-0 one two",
            "text-0+  three",
            "WORKING halfway",
            "text-0+. ",
            "data-1. ",
            "text-2 four",
            "text-2+. ",
            "COMPLETED that is all",
        ]
    );
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    let task = hand.api.task(id).await;
    assert_eq!((array(&task, "/artifacts").len(), artifact_text(&task).as_str()), (3, "one two threefour"));
    assert_eq!(hand.api.subscribe(id, Some(first.id)).await.rest().await, frames, "and so do those who come later");
}

#[tokio::test]
async fn a_worker_asks_and_the_answer_is_the_next_ones_turn() {
    let rig = rig().await;
    let hand = rig.hand();
    let sent = sending(&hand, to("review", "this or that?"));
    let first = next(&hand).await;
    hand.report(&first, &[piece("so far", false), json!({"keep": {"step": 3}}), status("INPUT_REQUIRED", "which?")])
        .await;
    let asked = sent.await.expect("it is answered");
    assert_eq!((state(&asked), text(&asked, "/status/message/parts/0/text")), ("INPUT_REQUIRED", "which?"));
    let id = text(&asked, "/id").to_owned();
    assert!(hand.consume("review", &json!({})).await.is_empty(), "it waits for its caller");
    super::is_lost(&hand.under(&first, "ack", &json!({})).await);

    let answered = sending(&hand, answer(&id, "that"));
    let second = next(&hand).await;
    assert_eq!((&second.id, &second.entry["turn"], &second.entry["attempt"]), (&id, &json!(2), &json!(1)));
    assert_eq!(text(&second.entry, "/message/parts/0/text"), "that");
    assert_eq!(second.entry["kept"], json!({"step": 3}));
    let history: Vec<(&str, &str)> = array(&second.entry, "/history")
        .iter()
        .map(|message| (text(message, "/role"), text(message, "/parts/0/text")))
        .collect();
    assert_eq!(history.first(), Some(&("ROLE_USER", "this or that?")), "{history:?}");
    assert!(history.contains(&("ROLE_AGENT", "which?")), "{history:?}");
    assert_eq!(history.last(), Some(&("ROLE_USER", "that")), "{history:?}");
    assert_eq!(hand.stands(&id).await, ("in_progress".to_owned(), "WORKING".to_owned()));
    hand.under(&second, "ack", &json!({"result": "that it is"})).await.ok();
    let done = answered.await.expect("it is answered");
    assert_eq!((state(&done), text(&done, "/id")), ("COMPLETED", id.as_str()));
    assert_eq!(artifact_text(&done), "so farthat it is", "what was made before is still there");
}

#[tokio::test]
async fn a_worker_is_told_what_came_before_in_the_context() {
    let rig = rig().await;
    let hand = rig.hand();
    for n in 1..=2 {
        let body = json!({"from": "planner", "to": "review", "text": format!("question {n}"), "correlationId": "c-1"});
        hand.publish_all(&body).await;
        let held = next(&hand).await;
        let before: Vec<String> = array(&held.entry, "/contextHistory")
            .iter()
            .map(|message| text(message, "/parts/0/text").to_owned())
            .collect();
        let expected: &[&str] = if n == 1 { &[] } else { &["question 1", "reply 1"] };
        assert_eq!(before, expected);
        hand.under(&held, "ack", &json!({"result": format!("reply {n}")})).await.ok();
    }
    // What belongs to nothing has no past.
    hand.publish("review", "alone").await;
    assert_eq!(next(&hand).await.entry["contextHistory"], json!([]));
}

#[tokio::test]
async fn x_44_the_card_of_an_agent_that_workers_serve_is_like_any_other() {
    let rig = rig().await;
    let entry = rig.api().get("/v1/cards/review").await.ok();
    assert_eq!((text(&entry, "/source"), text(&entry, "/card/name")), ("served", "Review"));
    for interface in array(&entry, "/card/supportedInterfaces") {
        assert!(text(interface, "/url").starts_with("http://"), "{entry:#}");
        assert_ne!(text(interface, "/protocolBinding"), "SECOND_BRAIN_LOCAL");
    }
}
