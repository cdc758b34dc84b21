//! JSON-RPC: the methods, the shapes of their results, the errors, the endpoints.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{message, reason, state, text, to, to_at_once, violations, with_json},
    rig::Rig,
};

#[tokio::test]
async fn s3_62_every_method() {
    let rig = Rig::start().await;
    let api = rig.api();
    let task = api.rpc_ok("SendMessage", &to("echo", "hello")).await["task"].take();
    let id = text(&task, "/id").to_owned();
    assert_eq!(state(&task), "COMPLETED");
    assert_eq!(api.rpc_ok("GetTask", &json!({"id": id})).await, task);
    assert_eq!(api.rpc_ok("ListTasks", &json!({})).await["tasks"][0]["id"], id);
    assert!(api.rpc_ok("GetExtendedAgentCard", &json!({})).await["skills"].is_array());

    let mut stream = api.rpc_stream("/a2a/jsonrpc", "SendStreamingMessage", &to("slow", "20000")).await;
    let running = stream.next().await.unwrap().task_id().to_owned();
    let mut subscriber = api.rpc_stream("/a2a/jsonrpc", "SubscribeToTask", &json!({"id": running})).await;
    assert_eq!(subscriber.next().await.unwrap().kind(), "task");
    let canceled = api.rpc_ok("CancelTask", &json!({"id": running})).await;
    assert_eq!((state(&canceled), &canceled["id"]), ("CANCELED", &json!(running)));
    assert_eq!(stream.rest().await.last().unwrap().state(), Some("CANCELED"));
    assert_eq!(subscriber.rest().await.last().unwrap().state(), Some("CANCELED"));

    let open = text(&api.send(&to("ask", "what")).await, "/id").to_owned();
    let config = json!({"taskId": open, "id": "c", "url": "https://example.com/hook"});
    assert_eq!(api.rpc_ok("CreateTaskPushNotificationConfig", &config).await["id"], "c");
    let named = json!({"taskId": open, "id": "c"});
    assert_eq!(api.rpc_ok("GetTaskPushNotificationConfig", &named).await["id"], "c");
    let listed = api.rpc_ok("ListTaskPushNotificationConfigs", &json!({"taskId": open})).await;
    assert_eq!(listed["configs"][0]["id"], "c");
    assert_eq!(api.rpc_ok("DeleteTaskPushNotificationConfig", &named).await, json!({}));
    for unknown in ["Unknown", "sendMessage", "SendMessage ", "", "foo/bar"] {
        api.rpc_error(unknown, &json!({}), -32601).await;
    }
}

#[tokio::test]
async fn s3_63_result_shapes() {
    let rig = Rig::start().await;
    let api = rig.api();
    let sent = api.rpc_ok("SendMessage", &to("echo", "hello")).await;
    assert_eq!(sent.as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
    let got = api.rpc_ok("GetTask", &json!({"id": sent["task"]["id"]})).await;
    assert_eq!(got, sent["task"], "a bare task");

    // Ids come back as they were sent, in streams too (the reader checks each envelope).
    let send = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "SendMessage", "params": to("echo", "hello")});
    for id in [json!(1), json!("one"), json!(-7), json!(12345678901234567i64), json!(""), json!(null)] {
        let envelope = api.post("/a2a/jsonrpc", &send(id.clone())).await.ok();
        assert_eq!(envelope["id"], id);
        assert!(envelope["result"]["task"].is_object());
    }
    let frames = api.rpc_stream("/a2a/jsonrpc", "SendStreamingMessage", &to("stream", "3 30")).await.rest().await;
    assert_eq!(frames[0].kind(), "task");
    assert!(frames.iter().any(|frame| frame.kind() == "artifactUpdate"));
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    // The same events over HTTP+JSON.
    let replayed = api.subscribe(frames[0].task_id(), Some(frames[0].id)).await.rest().await;
    assert_eq!(replayed, frames[1..]);
}

#[tokio::test]
async fn s3_64_errors() {
    let rig = Rig::start().await;
    let api = rig.api();
    let raw = async |body: &'static str| {
        let request = api.request(Method::POST, "/a2a/jsonrpc").header("Content-Type", "application/json");
        api.call(request.body(body)).await.ok()
    };
    for body in ["", "{", "not json", "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"GetTask\",", "\u{7f}"] {
        let envelope = raw(body).await;
        assert_eq!((&envelope["error"]["code"], &envelope["id"]), (&json!(-32700), &json!(null)), "{body}");
        assert_eq!(envelope["jsonrpc"], "2.0");
    }
    for (body, id) in [
        ("[]", json!(null)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}]"#, json!(null)),
        ("7", json!(null)),
        ("\"text\"", json!(null)),
        ("null", json!(null)),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ListTasks"}"#, json!(5)),
        (r#"{"id":"x","method":"ListTasks"}"#, json!("x")),
        (r#"{"jsonrpc":"2.0","id":6}"#, json!(6)),
        (r#"{"jsonrpc":"2.0","id":6,"method":7}"#, json!(6)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ListTasks"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":"x"}"#, json!(7)),
    ] {
        let envelope = raw(body).await;
        assert_eq!((&envelope["error"]["code"], &envelope["id"]), (&json!(-32600), &id), "{body}");
    }
    assert_eq!(raw(r#"{"jsonrpc":"2.0","id":8,"method":"ListTasks","params":[]}"#).await["error"]["code"], -32602);

    let error = api.rpc_error("SendMessage", &json!({"message": {"parts": "x"}}), -32602).await;
    assert_eq!(violations(&error), ["message.parts"]);
    api.rpc_error("GetTask", &json!({}), -32602).await;
    api.rpc_error("GetTask", &json!({"id": 7}), -32602).await;

    let done = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();
    for (method, params, code, expected) in [
        ("GetTask", json!({"id": "unknown"}), -32001, "TASK_NOT_FOUND"),
        ("CancelTask", json!({"id": "unknown"}), -32001, "TASK_NOT_FOUND"),
        ("SubscribeToTask", json!({"id": "unknown"}), -32001, "TASK_NOT_FOUND"),
        ("SendMessage", super::http::answer("unknown", "x"), -32001, "TASK_NOT_FOUND"),
        ("SendStreamingMessage", super::http::answer("unknown", "x"), -32001, "TASK_NOT_FOUND"),
        ("CancelTask", json!({"id": done}), -32002, "TASK_NOT_CANCELABLE"),
        ("SubscribeToTask", json!({"id": done}), -32004, "UNSUPPORTED_OPERATION"),
        ("SendMessage", super::http::answer(&done, "x"), -32004, "UNSUPPORTED_OPERATION"),
    ] {
        let error = api.rpc_error(method, &params, code).await;
        assert_eq!(reason(&error), expected, "{method}");
        assert!(error["data"].is_array());
        assert!(!text(&error, "/message").is_empty());
    }
}

#[tokio::test]
async fn s3_69_agent_scoped_endpoint() {
    let rig = Rig::start().await;
    let api = rig.api();
    for path in ["/a2a/agents/ask/jsonrpc", "/a2a/agents/ask/jsonrpc/", "/a2a/agents/ask", "/a2a/ask/jsonrpc"] {
        let envelope = api.rpc_at(path, "SendMessage", &json!({"message": message("what")})).await;
        assert_eq!(state(&envelope["result"]["task"]), "INPUT_REQUIRED", "{path}: {envelope:#}");
    }
    let mut stream =
        api.rpc_stream("/a2a/agents/ask/jsonrpc", "SendStreamingMessage", &json!({"message": message("what")})).await;
    assert_eq!(stream.rest().await.last().unwrap().state(), Some("INPUT_REQUIRED"));
    let other = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();
    let envelope = api.rpc_at("/a2a/agents/ask/jsonrpc", "GetTask", &json!({"id": other})).await;
    assert_eq!(envelope["error"]["code"], -32001);
    let envelope = api.rpc_at("/a2a/agents/nobody/jsonrpc", "SendMessage", &json!({"message": message("x")})).await;
    assert_eq!(envelope["error"]["code"], -32602);
    assert_eq!(reason(&envelope["error"]), "AGENT_NOT_FOUND");
}

#[tokio::test]
async fn x_26_x_28_aliases_and_spellings() {
    let rig = Rig::start().await;
    let api = rig.api();
    for path in ["/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/"] {
        let envelope = api.rpc_at(path, "SendMessage", &json!({"message": message("hello")})).await;
        assert_eq!(state(&envelope["result"]["task"]), "COMPLETED", "{path}");
    }
    // snake_case in, camelCase out; enums by number; null is unset.
    let params = json!({
        "message": {"message_id": "snake", "context_id": "c", "role": 1, "parts": [{"text": "x", "media_type": "text/plain"}],
            "metadata": null, "task_id": null, "reference_task_ids": []},
        "configuration": {"return_immediately": false, "history_length": "1", "accepted_output_modes": ["text/plain"]},
        "somethingNew": {"ignored": true},
    });
    let task = api.rpc_ok("SendMessage", &params).await["task"].take();
    assert_eq!(text(&task, "/contextId"), "c");
    let kept = &api.task(text(&task, "/id")).await["history"][0];
    assert_eq!((&kept["messageId"], &kept["role"]), (&json!("snake"), &json!("ROLE_USER")));

    // A JSON body with a character set is JSON.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
    let request = api.request(Method::POST, "/a2a/jsonrpc").header("Content-Type", "application/json; charset=utf-8");
    assert!(api.call(request.body(call.to_string())).await.ok()["result"]["tasks"].is_array());
    // A running task can be cancelled through any of the doors.
    let id = text(&api.send(&to_at_once("slow", "20000")).await, "/id").to_owned();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": id}});
    let envelope = api.call(with_json(api.request(Method::POST, "/a2a"), &call)).await.ok();
    assert_eq!(state(&envelope["result"]), "CANCELED");
}
