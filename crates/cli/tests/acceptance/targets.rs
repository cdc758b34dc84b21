//! Which agent is meant: by the URL, by the `tenant` field, or by default.

use serde_json::json;

use super::{
    http::{array, artifact_text, is_terminal, message, reason, state, text, to, to_at_once, violations},
    rig::Rig,
};

#[tokio::test]
async fn s3_66_agent_scoped_sends() {
    let rig = Rig::start().await;
    let api = rig.api();
    for scope in ["/a2a/agents/ask", "/a2a/ask"] {
        let task = api.post(&format!("{scope}/message:send"), &json!({"message": message("what")})).await.task();
        assert_eq!(state(&task), "INPUT_REQUIRED");
        let path = format!("{scope}/message:stream");
        let frames = api.stream(&path, &json!({"message": message("what")})).await.rest().await;
        assert_eq!(frames[0].kind(), "task");
        assert_eq!(frames.last().unwrap().state(), Some("INPUT_REQUIRED"));
    }
    assert_eq!(api.get("/a2a/agents/ask/tasks").await.ok()["totalSize"], 4);
    for path in ["/a2a/agents/nobody/message:send", "/a2a/agents/nobody/message:stream", "/a2a/nobody/message:send"] {
        let error = api.post(path, &json!({"message": message("x")})).await.error(404);
        assert_eq!(reason(&error), "AGENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn s3_67_agent_scoped_tasks() {
    let rig = Rig::start().await;
    let api = rig.api();
    let running = text(&api.send(&to_at_once("slow", "20000")).await, "/id").to_owned();
    let echoed = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();

    let page = api.get("/a2a/agents/slow/tasks").await.ok();
    assert_eq!(page["totalSize"], 1);
    assert_eq!(array(&page, "/tasks").len(), 1);
    assert_eq!(page["tasks"][0]["id"], running);
    assert_eq!(api.get("/a2a/agents/fail/tasks").await.ok()["totalSize"], 0);
    assert_eq!(api.get("/a2a/tasks?tenant=slow").await.ok()["tasks"][0]["id"], running);
    assert_eq!(api.get(&format!("/a2a/agents/slow/tasks/{running}")).await.ok()["id"], running);

    // The task of another agent does not exist here.
    for path in [format!("/a2a/agents/slow/tasks/{echoed}"), format!("/a2a/tasks/{echoed}?tenant=slow")] {
        assert_eq!(reason(&api.get(&path).await.error(404)), "TASK_NOT_FOUND");
    }
    for verb in ["cancel", "subscribe"] {
        let error = api.post_empty(&format!("/a2a/agents/echo/tasks/{running}:{verb}")).await.error(404);
        assert_eq!(reason(&error), "TASK_NOT_FOUND");
    }
    assert_eq!(reason(&api.get("/a2a/agents/nobody/tasks").await.error(404)), "AGENT_NOT_FOUND");

    let path = format!("/a2a/agents/slow/tasks/{running}:subscribe");
    let mut stream = api.stream(&path, &json!({})).await;
    assert_eq!(stream.next().await.unwrap().kind(), "task");
    let task = api.post_empty(&format!("/a2a/agents/slow/tasks/{running}:cancel")).await.ok();
    assert_eq!(state(&task), "CANCELED");
    assert_eq!(stream.rest().await.last().unwrap().state(), Some("CANCELED"));
}

#[tokio::test]
async fn s3_70_x_8_the_gateway_selects_by_tenant() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.send(&to("ask", "what")).await;
    assert_eq!(state(&task), "INPUT_REQUIRED");
    let result = api.rpc_ok("SendMessage", &to("ask", "what")).await;
    assert_eq!(state(&result["task"]), "INPUT_REQUIRED");
    let frames = api.stream("/a2a/message:stream", &to("ask", "what")).await.rest().await;
    assert_eq!(frames.last().unwrap().state(), Some("INPUT_REQUIRED"));
    api.send(&to("echo", "hello")).await;

    assert_eq!(api.get("/a2a/tasks?tenant=ask").await.ok()["totalSize"], 3);
    assert_eq!(api.rpc_ok("ListTasks", &json!({"tenant": "ask"})).await["totalSize"], 3);
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 4, "X-34: all of the caller's");
    let id = text(&task, "/id");
    assert_eq!(api.get(&format!("/a2a/tasks/{id}?tenant=ask")).await.ok(), task);
    assert_eq!(api.rpc_ok("GetTask", &json!({"id": id, "tenant": "ask"})).await, task);
    assert_eq!(api.rpc_ok("CancelTask", &json!({"id": id, "tenant": "ask"})).await["id"], task["id"]);
}

#[tokio::test]
async fn s3_71_unknown_and_missing_targets() {
    let mut rig = Rig::start().await;
    let api = rig.api();
    for unknown in ["nobody", "not a name", "agents", "../echo", "ECHO"] {
        let request = to(unknown, "hello");
        let error = api.post("/a2a/message:send", &request).await.error(404);
        assert_eq!(reason(&error), "AGENT_NOT_FOUND", "{unknown}");
        let error = api.rpc_error("SendMessage", &request, -32602).await;
        assert_eq!(reason(&error), "AGENT_NOT_FOUND", "{unknown}");
    }
    assert_eq!(reason(&api.get("/a2a/tasks?tenant=nobody").await.error(404)), "AGENT_NOT_FOUND");
    // Out of the box, echo answers who names nobody.
    let echoed = api.send(&json!({"message": message("anyone there")})).await;
    assert_eq!(artifact_text(&echoed), "anyone there");
    let asked = text(&api.send(&to("ask", "what")).await, "/id").to_owned();

    rig.kill9();
    rig.restart_with("default_agent = \"reject\"\n", &[]).await;
    let task = rig.api().send(&json!({"message": message("anyone there")})).await;
    assert_eq!(state(&task), "REJECTED");
    // A send with a task id needs no agent.
    let task = rig.api().send(&super::http::answer(&asked, "that")).await;
    assert_eq!((state(&task), text(&task, "/id")), ("COMPLETED", asked.as_str()));

    rig.kill9();
    rig.restart_with("demo_agents = false\n", &[]).await;
    let api = rig.api();
    let request = json!({"message": message("anyone there")});
    assert_eq!(violations(&api.post("/a2a/message:send", &request).await.error(400)), ["tenant"]);
    assert_eq!(violations(&api.rpc_error("SendMessage", &request, -32602).await), ["tenant"]);
    assert_eq!(reason(&api.post("/a2a/message:send", &to("echo", "x")).await.error(404)), "AGENT_NOT_FOUND");
    // What was done before can still be read.
    assert_eq!(api.task(text(&echoed, "/id")).await, echoed);
}

#[tokio::test]
async fn s3_72_the_url_binds_the_target() {
    let rig = Rig::start().await;
    let api = rig.api();
    for path in ["/a2a/agents/echo/message:send", "/a2a/agents/echo/message:stream", "/a2a/echo/message:send"] {
        let error = api.post(path, &to("ask", "hello")).await.error(400);
        assert_eq!(violations(&error), ["tenant"], "{path}");
    }
    let envelope = api.rpc_at("/a2a/agents/echo/jsonrpc", "SendMessage", &to("ask", "hello")).await;
    assert_eq!(envelope["error"]["code"], -32602);
    assert_eq!(violations(&envelope["error"]), ["tenant"]);
    let error = api.get("/a2a/agents/echo/tasks?tenant=ask").await.error(400);
    assert_eq!(violations(&error), ["tenant"]);
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
    // One that agrees is fine.
    let task = api.post("/a2a/agents/echo/message:send", &to("echo", "hello")).await.task();
    assert!(is_terminal(state(&task)));
}
