//! What becomes of answers: states, texts, errors, and work that takes its time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{asking, completing, problem};
use crate::harness::{
    http::{artifact_text, state, text},
    remote::{Answer, Caller, Remote, Setup, Step, card_03, task_03},
};

#[tokio::test]
async fn s4_17_every_end_is_surfaced_by_its_name() {
    let remote = completing("").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    for name in ["completed", "failed", "canceled", "rejected"] {
        let mut task = task_03("rt-1", "rc-1", name, "");
        let parts = json!([{"kind": "text", "text": format!("it is {name}")}]);
        task["status"]["message"] = json!({"kind": "message", "messageId": "s", "role": "agent", "parts": parts});
        remote.says("message/send", Answer::Result(task));
        let outcome = caller.asks("quinn", "work").await;
        assert_eq!(outcome["taskState"], name, "{outcome:#}");
        // A cancel has no words of its own here.
        if name != "canceled" {
            assert_eq!(outcome["response"], format!("it is {name}"));
        }
        // By A2A it is the same end of a task.
        assert_eq!(state(&caller.sends("quinn", "work").await), name.to_uppercase());
    }
}

#[tokio::test]
async fn s4_18_a_task_that_has_ended_is_followed_by_a_new_one_in_its_context() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let first = caller.asks("quinn", "work").await;
    let next = json!({"agent": "quinn", "message": "more", "taskId": first["taskId"], "contextId": first["contextId"]});
    let second = caller.chat(&next).await.ok();
    assert_eq!(second["contextId"], first["contextId"]);
    assert_ne!(second["taskId"], first["taskId"]);
    let call = remote.calls().pop().unwrap();
    assert_eq!(call.message().get("taskId"), None, "{}", call.body);
    assert_eq!(call.message()["contextId"], "rc-1", "the conversation goes on: {}", call.body);
    // A context alone goes on as well.
    caller.chat(&json!({"agent": "quinn", "message": "more", "contextId": first["contextId"]})).await.ok();
    assert_eq!(remote.calls().pop().unwrap().message()["contextId"], "rc-1");
}

#[tokio::test]
async fn s4_19_a_conversation_that_is_done_has_no_ids() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let open = caller.chat(&json!({"agent": "quinn", "message": "work", "done": false})).await.ok();
    assert!(open["taskId"].is_string() && open["contextId"].is_string(), "{open:#}");
    let done = json!({"agent": "quinn", "message": "bye", "contextId": open["contextId"], "done": true});
    let closed = caller.chat(&done).await.ok();
    assert_eq!((closed.get("contextId"), closed.get("taskId")), (None, None), "{closed:#}");
    assert_eq!((&closed["response"], &closed["taskState"]), (&json!("done"), &json!("completed")));
    assert!(!remote.calls().pop().unwrap().body.to_string().contains("done"), "that is nothing for the remote");
}

#[tokio::test]
async fn s4_20_s4_21_s4_22_s4_23_where_the_reply_is_looked_for() {
    let remote = completing("").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let part = |text: &str| json!({"kind": "text", "text": text});
    let message = |text: &str| json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [part(text)]});
    let bare = || json!({"id": "rt-1", "contextId": "rc-1", "status": {"state": "completed"}});
    let with = |more: Value| {
        let mut task = bare();
        task.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        task
    };
    let file = json!({"kind": "file", "file": {"uri": "https://example.com/x.png"}});
    let artifacts = json!([
        {"artifactId": "1", "parts": [part("a"), file, part("b")]},
        {"artifactId": "2", "parts": [part("c"), part("d")]},
    ]);
    let said = json!({"state": "completed", "message": message("in the status")});
    for (result, expected) in [
        (with(json!({"artifacts": artifacts, "status": said})), "ab\ncd"),
        (with(json!({"status": said, "message": "a string"})), "in the status"),
        (with(json!({"message": "a string"})), "a string"),
        (with(json!({"message": message("a message")})), "a message"),
        (with(json!({"history": [message("an old one"), message("the last one")]})), "the last one"),
        (message("a message alone"), "a message alone"),
        (json!({"message": "nothing else"}), "nothing else"),
    ] {
        remote.says("message/send", Answer::Result(result.clone()));
        let outcome = caller.asks("quinn", "work").await;
        assert_eq!(
            (&outcome["response"], &outcome["taskState"]),
            (&json!(expected), &json!("completed")),
            "{result:#}"
        );
    }
    remote.says("message/send", Answer::Result(bare()));
    let chat = json!({"agent": "quinn", "message": "work", "skill": "pr_review"});
    let outcome = caller.chat(&chat).await.ok();
    let placeholder = text(&outcome, "/response");
    assert!(placeholder.contains("pr_review") && placeholder.contains("quinn"), "{placeholder}");
}

#[tokio::test]
async fn s4_23_a_server_of_arbiters_kind_is_understood() {
    let other = Setup::new().start().await;
    let yaml = format!(
        "agents:\n  - {{name: arbiter, url: \"{}/v1/a2a/agents/echo\", auth: {{scheme: bearer, credentialsEnv: KEY}}}}\n",
        other.server.url
    );
    let caller = Setup::new().yaml(&yaml).env("KEY", crate::harness::TOKEN).start().await;
    assert_eq!(caller.asks("arbiter", "over there").await["response"], "over there");
}

#[tokio::test]
async fn s4_15_s4_44_what_takes_its_time_is_followed_to_the_end_and_answered_once() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    let done = Answer::Result(task_03("rt-1", "rc-1", "completed", "at last"));
    remote.on("tasks/get", [working.clone(), working.clone(), working, done]);
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let chat = json!({"agent": "quinn", "message": "work", "returnImmediately": true});
    let begun = caller.chat(&chat).await;
    assert_eq!(begun.status, 202, "{}", begun.shown());
    let begun = begun.json();
    assert_eq!((&begun["pending"], &begun["response"], &begun["agent"]), (&json!(true), &Value::Null, &json!("quinn")));
    assert!(["submitted", "working"].contains(&text(&begun, "/taskState")), "{begun:#}");
    let url = text(&begun, "/pollUrl");
    remote.until_called("tasks/get", 1).await;
    let seen = caller.api().get(url).await;
    assert!(seen.status == 202 && seen.json()["taskState"] == "working" || seen.status == 200, "{}", seen.shown());
    let end = caller.polled(url).await;
    assert_eq!((&end["response"], &end["taskState"]), (&json!("at last"), &json!("completed")));
    assert_eq!((&end["taskId"], &end["correlationId"]), (&begun["taskId"], &begun["correlationId"]));
    let methods = remote.methods();
    assert_eq!(methods.iter().filter(|method| *method == "message/send").count(), 1, "{methods:?}");
    assert!(methods.iter().filter(|method| *method == "tasks/get").count() >= 4, "{methods:?}");
    for call in remote.calls().iter().filter(|call| call.rpc() == "tasks/get") {
        assert_eq!(call.params()["id"], "rt-1");
    }
    let task = caller.api().task(text(&begun, "/taskId")).await;
    assert_eq!(artifact_text(&task), "at last", "once and whole");
}

#[tokio::test]
async fn s4_44_a_caller_that_waits_gets_the_end_and_not_the_receipt() {
    let remote = completing("").await;
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "submitted", "")));
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    // It asks in the end, and that is for the caller to answer.
    remote.on("tasks/get", [working.clone(), working, Answer::Result(asking("rt-1", "rc-1", "which city?"))]);
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!((&outcome["taskState"], &outcome["response"]), (&json!("input-required"), &json!("which city?")));
}

#[tokio::test]
async fn s4_40_a_remote_that_says_nothing_is_given_up_in_time() {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::hangs());
    let yaml = format!(
        "agents:\n  - {{name: ms, url: \"{0}\", timeoutMs: 1000}}\n  - {{name: text, url: \"{0}\", timeout: 1s}}\n",
        remote.agent()
    );
    let caller = Setup::new().yaml(&yaml).start().await;
    for name in ["ms", "text"] {
        let begun = Instant::now();
        let said = problem(&caller.chat(&json!({"agent": name, "message": "work"})).await);
        assert!(said.contains("within 1 s"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(12), "{name}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn s4_40_the_time_is_that_of_the_whole_body_and_the_default_is_configured() {
    let remote = Remote::with_card(card_03).await;
    let head = b"HTTP/1.1 200 Said\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n".to_vec();
    let drip = Step::Forever(b" ".to_vec(), Duration::from_millis(100));
    remote.says("message/send", Answer::Raw(vec![Step::Bytes(head), drip]));
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_TIMEOUT", "1s").start().await;
    let begun = Instant::now();
    let said = problem(&caller.chat(&json!({"agent": "quinn", "message": "work"})).await);
    assert!(said.contains("within 1 s"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn s4_42_s4_43_what_the_remote_refuses_is_an_error_with_its_words() {
    let remote = completing("").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    for (answer, words) in [
        (Answer::Refused(-32603, "the wheel came off"), "the wheel came off"),
        (Answer::Refused(-32602, "what city?"), "what city?"),
        (Answer::status(400, "no"), "400"),
        (Answer::status(403, "no"), "403"),
    ] {
        remote.says("message/send", answer);
        let said = problem(&caller.chat(&json!({"agent": "quinn", "message": "work"})).await);
        assert!(said.contains(words), "{said}");
        let task = caller.sends("quinn", "work").await;
        assert_eq!(state(&task), "FAILED", "{task:#}");
        assert!(text(&task, "/status/message/parts/0/text").contains(words), "{task:#}");
        // It works in between, so that the circuit stays closed.
        remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "fine")));
        assert_eq!(caller.asks("quinn", "work").await["response"], "fine");
    }
}

#[tokio::test]
async fn s4_43_a_remote_that_is_broken_is_an_error_with_its_status() {
    let remote = completing("").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    remote.says("message/send", Answer::status(500, "stack trace"));
    let said = problem(&caller.chat(&json!({"agent": "quinn", "message": "work"})).await);
    assert!(said.contains("500"), "{said}");
}
