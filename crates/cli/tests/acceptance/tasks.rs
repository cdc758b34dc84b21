//! Get, cancel and subscribe over HTTP+JSON.

use reqwest::Method;
use serde_json::json;

use super::{
    http::{is_terminal, reason, state, text, to, to_at_once, with_json},
    rig::Rig,
    sse::Sse,
};

const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[tokio::test]
async fn s3_54_get_gives_the_bare_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let sent = api.send(&to("echo", "hello")).await;
    let id = text(&sent, "/id").to_owned();
    let reply = api.get(&format!("/a2a/tasks/{id}")).await;
    assert_eq!(reply.ok(), sent);
    assert_eq!(reply.media_type(), "application/a2a+json");
    assert!(api.get(&format!("/a2a/tasks/{id}?historyLength=0")).await.ok().get("history").is_none());
    for unknown in [UNKNOWN, "nonsense", "a%2Fb", "a%20b", &id.to_uppercase()] {
        let error = api.get(&format!("/a2a/tasks/{unknown}")).await.error(404);
        assert_eq!(reason(&error), "TASK_NOT_FOUND");
        assert_eq!(error["status"], "NOT_FOUND");
    }
}

#[tokio::test]
async fn s3_55_x_35_x_41_cancel() {
    let rig = Rig::start().await;
    let api = rig.api();
    // without a body, and with one.
    for body in [None, Some(json!({})), Some(json!({"metadata": {"why": "changed my mind"}}))] {
        let id = text(&api.send(&to_at_once("slow", "20000")).await, "/id").to_owned();
        let path = format!("/a2a/tasks/{id}:cancel");
        let reply = match &body {
            None => api.post_empty(&path).await,
            Some(body) => api.post(&path, body).await,
        };
        let task = reply.ok();
        assert_eq!(reply.media_type(), "application/a2a+json");
        assert_eq!((&task["id"], state(&task)), (&json!(id), "CANCELED"));
        // canceling a canceled task returns it.
        assert_eq!(api.post_empty(&path).await.ok(), task);
        assert_eq!(api.task(&id).await, task);
    }
    for agent in ["echo", "fail", "reject"] {
        let done = api.send(&to(agent, "hello")).await;
        let id = text(&done, "/id").to_owned();
        let error = api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.error(400);
        assert_eq!(reason(&error), "TASK_NOT_CANCELABLE");
        assert_eq!(error["status"], "FAILED_PRECONDITION");
        assert_eq!(api.task(&id).await, done, "a refused cancel changes nothing");
    }
    let error = api.post_empty(&format!("/a2a/tasks/{UNKNOWN}:cancel")).await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
}

#[tokio::test]
async fn s3_55_a_blocking_send_learns_of_the_cancel() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut request = to("slow", "20000");
    request["message"]["contextId"] = json!("blocked");
    let sender = api.clone();
    let waiting = tokio::spawn(async move { sender.send(&request).await });
    let id = loop {
        let page = api.get("/a2a/tasks?contextId=blocked").await.ok();
        if let Some(id) = page["tasks"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(state(&waiting.await.unwrap()), "CANCELED");
}

#[tokio::test]
async fn s3_56_x_26_x_41_subscribe_shows_the_task_and_what_follows() {
    let rig = Rig::start().await;
    let api = rig.api();
    let id = text(&api.send(&to_at_once("slow", "800")).await, "/id").to_owned();
    // GET and POST; X-41: with and without a body.
    let path = format!("/a2a/tasks/{id}:subscribe");
    let mut streams = vec![
        Sse::open(api.request(Method::GET, &path)).await,
        Sse::open(api.request(Method::POST, &path)).await,
        Sse::open(with_json(api.request(Method::POST, &path), &json!({}))).await,
    ];
    for stream in &mut streams {
        let frames = stream.rest().await;
        assert_eq!(frames[0].kind(), "task", "{frames:#?}");
        assert!(frames.iter().skip(1).all(|frame| ["statusUpdate", "artifactUpdate"].contains(&frame.kind())));
        assert!(frames.iter().all(|frame| frame.task_id() == id));
        let (last, before) = frames.split_last().unwrap();
        assert_eq!(last.state(), Some("COMPLETED"));
        assert!(before.iter().all(|frame| !frame.is_end()));
    }
    api.task_when(&id, is_terminal).await;
    for method in [Method::GET, Method::POST] {
        let error = api.call(api.request(method, &path)).await.error(400);
        assert_eq!(reason(&error), "UNSUPPORTED_OPERATION");
    }
    let error = api.post_empty(&format!("/a2a/tasks/{UNKNOWN}:subscribe")).await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
}
