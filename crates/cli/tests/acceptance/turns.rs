//! More than one message: continuing, the inbox, direct replies.

use serde_json::json;

use super::{
    http::{answer, array, artifact_text, is_terminal, message, reason, state, text, to, to_at_once, violations},
    rig::Rig,
};

#[tokio::test]
async fn s3_82_an_answer_resumes_the_task_in_place() {
    let rig = Rig::start().await;
    let api = rig.api();
    let asked = api.send(&to("ask", "what")).await;
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let id = text(&asked, "/id").to_owned();
    let done = api.send(&answer(&id, "forty-two")).await;
    assert_eq!((state(&done), text(&done, "/id")), ("COMPLETED", id.as_str()));
    assert_eq!(done["contextId"], asked["contextId"]);
    assert!(artifact_text(&done).contains("forty-two"), "{done:#}");
    // What was asked back is part of the history, between question and answer.
    let roles: Vec<&str> = array(&done, "/history").iter().map(|message| text(message, "/role")).collect();
    assert_eq!(roles[..3], ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{done:#}");
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1);

    // Over JSON-RPC, agent-scoped and streamed, it is the same.
    let asked = api.rpc_ok("SendMessage", &to("ask", "what")).await["task"].take();
    let done = api.rpc_ok("SendMessage", &answer(text(&asked, "/id"), "this")).await["task"].take();
    assert_eq!((state(&done), &done["id"]), ("COMPLETED", &asked["id"]));
    let asked = api.send(&to("ask", "what")).await;
    let path = "/a2a/agents/ask/message:send";
    assert_eq!(state(&api.post(path, &answer(text(&asked, "/id"), "this")).await.task()), "COMPLETED");
}

#[tokio::test]
async fn continuations_must_fit_their_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let asked = api.send(&to("ask", "what")).await;
    let id = text(&asked, "/id").to_owned();

    let mut elsewhere = answer(&id, "that");
    elsewhere["message"]["contextId"] = json!("another context");
    let error = api.post("/a2a/message:send", &elsewhere).await.error(400);
    assert_eq!(violations(&error), ["message.contextId"]);
    let error = api.post("/a2a/message:send", &answer("unknown", "that")).await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
    let path = "/a2a/agents/echo/message:send";
    assert_eq!(reason(&api.post(path, &answer(&id, "that")).await.error(404)), "TASK_NOT_FOUND");
    assert_eq!(api.task(&id).await, asked, "nothing of that changed it");

    let mut fitting = answer(&id, "that");
    fitting["message"]["contextId"] = asked["contextId"].clone();
    assert_eq!(state(&api.send(&fitting).await), "COMPLETED");
}

#[tokio::test]
async fn s3_83_a_message_to_a_finished_task_is_refused() {
    let rig = Rig::start().await;
    let api = rig.api();
    for agent in ["echo", "fail", "reject"] {
        let done = api.send(&to(agent, "hello")).await;
        let id = text(&done, "/id").to_owned();
        for path in ["/a2a/message:send", "/a2a/message:stream"] {
            let error = api.post(path, &answer(&id, "more")).await.error(400);
            assert_eq!(reason(&error), "UNSUPPORTED_OPERATION");
        }
        let error = api.rpc_error("SendMessage", &answer(&id, "more"), -32004).await;
        assert_eq!(reason(&error), "UNSUPPORTED_OPERATION");
        assert_eq!(api.task(&id).await, done);
    }
}

#[tokio::test]
async fn a_message_to_a_running_task_waits_for_its_turn() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to_at_once("slow", "900")).await;
    let id = text(&task, "/id").to_owned();
    let mut subscriber = api.subscribe(&id, Some(0)).await;

    // Queued behind the first; a blocking send waits for its own turn, which is the last.
    let queued = answer(&id, "200");
    let mut at_once = queued.clone();
    at_once["configuration"] = json!({"returnImmediately": true});
    let waiting = api.send(&at_once).await;
    assert_eq!(text(&waiting, "/id"), id);
    assert!(!is_terminal(state(&waiting)), "{waiting:#}");
    let done = api.send(&answer(&id, "100")).await;
    assert_eq!(state(&done), "COMPLETED", "{done:#}");

    let frames = subscriber.rest().await;
    assert_eq!(frames.iter().filter(|frame| frame.is_end()).count(), 1);
    assert!(frames.last().unwrap().is_end());
    // All three messages are in the history, in order, and each had its turn.
    let mine: Vec<&str> = array(&done, "/history")
        .iter()
        .filter(|message| message["role"] == "ROLE_USER")
        .map(|message| text(message, "/parts/0/text"))
        .collect();
    assert_eq!(mine, ["900", "200", "100"]);
    let artifacts = frames.iter().filter(|frame| frame.kind() == "artifactUpdate").count();
    assert!(artifacts >= 3, "one a turn: {frames:#?}");
}

#[tokio::test]
async fn a_blocking_send_waits_for_its_own_turn_only() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut first = to("slow", "900");
    first["message"]["contextId"] = json!("own turn");
    let sender = api.clone();
    let first = tokio::spawn(async move { sender.send(&first).await });
    let id = loop {
        let page = api.get("/a2a/tasks?contextId=own%20turn").await.ok();
        if let Some(id) = page["tasks"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    let mut second = answer(&id, "3000");
    second["configuration"] = json!({"returnImmediately": true});
    api.send(&second).await;
    // The first one's turn is over long before the second one's.
    let task = first.await.unwrap();
    assert_eq!(text(&task, "/id"), id);
    assert_eq!(state(&task), "WORKING", "{task:#}");
    api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
}

#[tokio::test]
async fn a_direct_reply_is_a_message_and_no_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let reply = api.post("/a2a/message:send", &to("message", "hello")).await.ok();
    assert_eq!(reply.as_object().unwrap().keys().collect::<Vec<_>>(), ["message"]);
    assert_eq!(text(&reply, "/message/role"), "ROLE_AGENT");
    assert!(!text(&reply, "/message/messageId").is_empty());
    assert!(text(&reply, "/message/parts/0/text").contains("hello"));
    assert!(reply["message"].get("taskId").is_none(), "there is no task to speak of: {reply:#}");
    let result = api.rpc_ok("SendMessage", &to("message", "hello")).await;
    assert!(result["message"].is_object(), "{result:#}");
    let frames = api.stream("/a2a/message:stream", &to("message", "hello")).await.rest().await;
    assert_eq!(frames.len(), 1, "{frames:#?}");
    assert_eq!(frames[0].kind(), "message");
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);

    // who does not wait for the turn waits for its first word all the same.
    let reply = api.post("/a2a/message:send", &to_at_once("message", "hello")).await.ok();
    assert!(reply["message"].is_object(), "{reply:#}");
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
}

#[tokio::test]
async fn a_context_is_kept_and_may_be_chosen() {
    let rig = Rig::start().await;
    let api = rig.api();
    let first = api.send(&to("echo", "one")).await;
    let mut second = json!({"message": message("two")});
    second["message"]["contextId"] = first["contextId"].clone();
    let second = api.send(&second).await;
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["contextId"], first["contextId"]);
    let mut own = json!({"message": message("three")});
    own["message"]["contextId"] = json!("mein Kontext \u{1F50C} /?#");
    assert_eq!(text(&api.send(&own).await, "/contextId"), "mein Kontext \u{1F50C} /?#");
}
