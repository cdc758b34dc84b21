//! `/v1/chat`: one call for local agents and for both registries.

use std::time::Duration;

use serde_json::{Value, json};

use super::completing;
use crate::harness::{
    http::{reason, text},
    remote::{Answer, Remote, Setup, card_03, task_03},
};

#[tokio::test]
async fn x_47_it_serves_local_agents_and_both_registries() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).json(&json!({"weatherbot": {"url": remote.agent()}})).start().await;
    for (agent, response) in [("echo", "work"), ("quinn", "done"), ("weatherbot", "done")] {
        let outcome = caller.asks(agent, "work").await;
        assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!(response), &json!("completed")), "{agent}");
        assert_eq!(outcome["agent"], agent);
        for key in ["taskId", "contextId", "correlationId"] {
            assert!(!text(&outcome, &format!("/{key}")).is_empty(), "{agent}: {outcome:#}");
        }
        assert!(outcome["durationMs"].is_number(), "{agent}: {outcome:#}");
        assert!(outcome.get("pending").is_none() && outcome.get("success").is_none(), "no envelope: {outcome:#}");
    }
    // The task is one like any other.
    let outcome = caller.asks("quinn", "work").await;
    let task = caller.api().task(text(&outcome, "/taskId")).await;
    assert_eq!(task["contextId"], outcome["contextId"]);
}

#[tokio::test]
async fn x_47_a_local_agent_that_asks_is_answered_by_the_same_ids() {
    let caller = Setup::new().start().await;
    let first = caller.asks("ask", "what").await;
    assert_eq!(first["taskState"], "input-required", "{first:#}");
    assert!(!text(&first, "/response").is_empty());
    let next = json!({"agent": "ask", "message": "that", "taskId": first["taskId"], "contextId": first["contextId"]});
    let second = caller.chat(&next).await.ok();
    assert_eq!((&second["taskState"], &second["taskId"]), (&json!("completed"), &first["taskId"]));
}

#[tokio::test]
async fn x_47_what_is_wrong_with_a_request_is_said() {
    let caller = Setup::new().start().await;
    for body in [
        json!({}),
        json!({"agent": "echo"}),
        json!({"message": "x"}),
        json!({"agent": "echo", "message": ""}),
        json!({"agent": 7, "message": "x"}),
        json!({"agent": "echo", "message": ["x"]}),
        json!({"agent": "echo", "message": "x", "done": "yes"}),
        json!([]),
    ] {
        caller.chat(&body).await.error(400);
    }
    for body in [json!({"agent": "ghost", "message": "x"}), json!({"skill": "ghost", "message": "x"})] {
        caller.chat(&body).await.error(404);
    }
    let nowhere = "01890a5d-ac96-774b-bcce-b302099a8057";
    caller.chat(&json!({"agent": "echo", "message": "x", "taskId": nowhere})).await.error(404);
    caller.api().get(&format!("/v1/chat/{nowhere}")).await.error(404);
    caller.api().get(&format!("/v1/chat/{nowhere}/events")).await.error(404);
    caller.api().with_token(None).post("/v1/chat", &json!({"agent": "echo", "message": "x"})).await.error(401);
    assert_eq!(reason(&caller.chat(&json!({"agent": "ghost", "message": "x"})).await.error(404)), "AGENT_NOT_FOUND");
}

#[tokio::test]
async fn x_47_a_chat_is_its_tenants_own() {
    let caller = Setup::new().start().await;
    let token = "sb_test-token-of-the-tenant-second-00";
    caller.home.add_tenant("second", token).await;
    let begun = caller.chat(&json!({"agent": "slow", "message": "3000", "returnImmediately": true})).await.json();
    let url = text(&begun, "/pollUrl");
    let other = caller.api().with_token(Some(token));
    other.get(url).await.error(404);
    other.get(&format!("{url}/events")).await.error(404);
    let next = json!({"agent": "ask", "message": "x", "taskId": begun["taskId"]});
    other.post("/v1/chat", &next).await.error(404);
    assert_eq!(caller.api().get(url).await.status, 202);
}

#[tokio::test]
async fn x_47_what_takes_longer_is_pending_and_polled() {
    let remote = Remote::with_card(card_03).await;
    let late = Answer::Result(task_03("rt-1", "rc-1", "completed", "late")).later(Duration::from_secs(3));
    remote.says("message/send", late);
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_CHAT_WAIT", "1s").start().await;
    let reply = caller.chat(&json!({"agent": "quinn", "message": "work"})).await;
    assert_eq!(reply.status, 202, "{}", reply.shown());
    let pending = reply.json();
    assert_eq!((&pending["pending"], &pending["response"]), (&json!(true), &Value::Null), "{pending:#}");
    assert!(["submitted", "working"].contains(&text(&pending, "/taskState")), "{pending:#}");
    assert_eq!(pending["agent"], "quinn");
    let url = text(&pending, "/pollUrl");
    assert!(url.starts_with("/v1/chat/"), "{pending:#}");
    let end = caller.polled(url).await;
    assert_eq!((&end["response"], &end["taskState"]), (&json!("late"), &json!("completed")));
    for key in ["taskId", "contextId", "correlationId", "agent"] {
        assert_eq!(end[key], pending[key], "{key}");
    }
    assert_eq!(caller.api().get(url).await.ok(), end, "it can be asked again");
    assert_eq!(remote.calls().len(), 1);
}

#[tokio::test]
async fn x_47_a_remote_that_cannot_be_reached_is_a_bad_gateway() {
    let remote = Remote::with_card(card_03).await;
    let base = remote.base.clone();
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_DELIVER_FOR", "2s").start().await;
    caller.knows("quinn").await;
    drop(remote);
    let reply = caller.chat(&json!({"agent": "quinn", "message": "work"})).await;
    let error = reply.error(502);
    assert_eq!(error["status"], "UNAVAILABLE", "{error:#}");
    assert!(!error.to_string().contains(&base), "where it is is the operator's business: {error:#}");
    // The task that was begun for it says the same.
    let task = caller.sends("quinn", "work").await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task:#}");
}
