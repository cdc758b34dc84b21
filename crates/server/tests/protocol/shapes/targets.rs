//! Which agent is meant: by the URL, by the `tenant` field, or by default.

use serde_json::json;

use crate::protocol::{
    http::{artifact_text, is_terminal, reason, state, text, violations},
    player::play_on,
    scenario::{EVERY, UNTYPED, begin, cancel, get, list, message, said, send, stream},
    server::{Setup, TestServer},
};

#[tokio::test]
async fn s3_66_agent_scoped_sends() {
    let server = TestServer::start().await;
    let api = server.api();
    let what = json!({"message": said("what")});
    for scope in ["/a2a/agents/ask", "/a2a/ask"] {
        assert_eq!(state(&api.post(&format!("{scope}/message:send"), &what).await.task()), "INPUT_REQUIRED");
        let frames = api.stream(&format!("{scope}/message:stream"), &what).await.rest().await;
        assert_eq!(frames[0].kind(), "task");
        assert_eq!(frames.last().unwrap().state(), Some("INPUT_REQUIRED"));
    }
    for (path, request) in [("?tenant=ask", &what), ("", &message("ask", said("what")))] {
        assert_eq!(state(&api.post(&format!("/a2a/message:send{path}"), request).await.task()), "INPUT_REQUIRED");
    }
    assert_eq!(api.get("/a2a/agents/ask/tasks").await.ok()["totalSize"], 6);
    for path in ["/a2a/agents/nobody/message:send", "/a2a/agents/nobody/message:stream", "/a2a/nobody/message:send"] {
        assert_eq!(reason(&api.post(path, &what).await.error(404)), "AGENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn s3_67_agent_scoped_tasks() {
    let server = TestServer::start().await;
    let api = server.api();
    let running = text(&api.send(&begin("slow", "20000").request).await, "/id").to_owned();
    let echoed = text(&api.send(&message("echo", said("hello"))).await, "/id").to_owned();
    for path in ["/a2a/agents/slow/tasks", "/a2a/tasks?tenant=slow"] {
        let page = api.get(path).await.ok();
        assert_eq!((&page["totalSize"], &page["tasks"][0]["id"]), (&json!(1), &json!(running)), "{path}");
    }
    assert_eq!(api.get("/a2a/agents/fail/tasks").await.ok()["totalSize"], 0);
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
    let server = TestServer::start().await;
    let of_ask = || json!({"tenant": "ask"});
    let steps = [
        send("ask", "what").state("INPUT_REQUIRED").keep("asked", "/task"),
        stream("ask", "what else").state("INPUT_REQUIRED"),
        send("echo", "hello").keep("echoed", "/task/id"),
        list(of_ask()).is("/totalSize", 2),
        // all of the caller's.
        list(json!({})).is("/totalSize", 3),
        get().and(json!({"tenant": "echo"})).is("/id", "$echoed"),
        get().and(of_ask()).refused("TASK_NOT_FOUND"),
        cancel().and(of_ask()).refused("TASK_NOT_FOUND"),
        send("ask", "one more").keep("more", "/task"),
        get().and(of_ask()).answers("$more"),
        cancel().and(of_ask()).state("CANCELED"),
    ];
    play_on(&server, &EVERY, steps).await;
    let steps = ["nobody", "not a name", "agents", "../echo", "ECHO"];
    play_on(&server, &UNTYPED, steps.map(|unknown| send(unknown, "hello").refused("AGENT_NOT_FOUND"))).await;
    play_on(&server, &UNTYPED, [list(json!({"tenant": "nobody"})).refused("AGENT_NOT_FOUND")]).await;
}

#[tokio::test]
async fn s3_71_unknown_and_missing_targets() {
    let server = TestServer::start().await;
    let anyone = json!({"message": said("anyone there")});
    // Out of the box, echo answers who names nobody.
    let echoed = server.api().send(&anyone).await;
    assert_eq!(artifact_text(&echoed), "anyone there");
    let asked = text(&server.api().send(&message("ask", said("what"))).await, "/id").to_owned();

    let server = server.restart(Setup::new().engine(|engine| engine.default_agent = "reject".parse().ok())).await;
    assert_eq!(state(&server.api().send(&anyone).await), "REJECTED");
    // A send with a task id needs no agent.
    let task = server.api().send(&crate::protocol::http::answer(&asked, "that")).await;
    assert_eq!((state(&task), text(&task, "/id")), ("COMPLETED", asked.as_str()));

    let mut empty = Setup::new().engine(|engine| engine.default_agent = None);
    empty.demo_agents = false;
    let server = server.restart(empty).await;
    let api = server.api();
    assert_eq!(violations(&api.post("/a2a/message:send", &anyone).await.error(400)), ["tenant"]);
    assert_eq!(violations(&api.rpc_error("SendMessage", &anyone, -32602).await), ["tenant"]);
    let unknown = api.post("/a2a/message:send", &message("echo", said("x"))).await.error(404);
    assert_eq!(reason(&unknown), "AGENT_NOT_FOUND");
    // What was done before can still be read.
    assert_eq!(api.task(text(&echoed, "/id")).await, echoed);
}

#[tokio::test]
async fn s3_72_the_url_binds_the_target() {
    let server = TestServer::start().await;
    let api = server.api();
    let other = message("ask", said("hello"));
    for path in
        ["agents/echo/message:send", "agents/echo/message:stream", "echo/message:send", "message:send?tenant=echo"]
    {
        assert_eq!(violations(&api.post(&format!("/a2a/{path}"), &other).await.error(400)), ["tenant"], "{path}");
    }
    let refused = api.rpc_at("/a2a/agents/echo/jsonrpc", "SendMessage", &other).await;
    assert_eq!((&refused["error"]["code"], violations(&refused["error"])), (&json!(-32602), vec!["tenant".to_owned()]));
    assert_eq!(violations(&api.get("/a2a/agents/echo/tasks?tenant=ask").await.error(400)), ["tenant"]);
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
    // One that agrees is fine.
    let task = api.post("/a2a/agents/echo/message:send", &message("echo", said("hello"))).await.task();
    assert!(is_terminal(state(&task)));
}
