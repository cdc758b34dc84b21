//! JSON-RPC: envelopes, endpoints, spellings; and the methods of the service with Struct.

use serde_json::{Value, json};

use crate::protocol::{
    grpc::{self, GATEWAY},
    http::{reason, state, text, violations},
    player::play_on,
    raw,
    scenario::{Binding, GET_PUSH, LIST_PUSH, begin, message, said},
    server::TestServer,
};

const AT: &str = "POST /a2a/jsonrpc";

#[tokio::test]
async fn s3_62_unknown_methods_are_not_found() {
    let server = TestServer::start().await;
    for unknown in ["Unknown", "sendMessage", "SendMessage ", "", "foo/bar"] {
        server.api().rpc_error(unknown, &json!({}), -32601).await;
    }
    let unknown = server.grpc().raw(&format!("{GATEWAY}/GetNothing"), grpc::framed(b""));
    let unknown = grpc::Messages::of(unknown, None).await.finish().await;
    assert_eq!(reason(&unknown.error(12)), "METHOD_NOT_FOUND");
}

#[tokio::test]
async fn s3_63_ids_come_back_as_they_were_sent_and_sse_is_the_same_over_both() {
    let server = TestServer::start().await;
    let api = server.api();
    for id in [json!(1), json!("one"), json!(-7), json!(12345678901234567i64), json!(""), json!(null)] {
        let call =
            json!({"jsonrpc": "2.0", "id": id, "method": "SendMessage", "params": message("echo", said("hello"))});
        let envelope = api.post("/a2a/jsonrpc", &call).await.ok();
        assert_eq!(envelope["id"], id);
        assert_eq!(envelope["result"].as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
    }
    let request = message("stream", said("3 30"));
    let frames = api.rpc_stream("/a2a/jsonrpc", "SendStreamingMessage", &request).await.rest().await;
    assert_eq!(frames[0].kind(), "task");
    assert!(frames.iter().any(|frame| frame.kind() == "artifactUpdate"));
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    let replayed = api.subscribe(frames[0].task_id(), Some(frames[0].id)).await.rest().await;
    assert_eq!(replayed, frames[1..]);
}

#[tokio::test]
async fn s3_64_errors() {
    let server = TestServer::start().await;
    let api = server.api();
    // What the error says, and the id in the envelope.
    let bodies: [(&[u8], &str, Value); 22] = [
        (b"", "-32700 PARSE_ERROR", Value::Null),
        (b"{", "-32700 PARSE_ERROR", Value::Null),
        (b"not json", "-32700 PARSE_ERROR", Value::Null),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"GetTask\",", "-32700 PARSE_ERROR", Value::Null),
        (b"\x7f", "-32700 PARSE_ERROR", Value::Null),
        (b"{\"x\":\"\xff\"}", "-32700 PARSE_ERROR", Value::Null),
        (b"[]", "-32600 INVALID_REQUEST", Value::Null),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ListTasks\"}]", "-32600 INVALID_REQUEST", Value::Null),
        (b"7", "-32600 INVALID_REQUEST", Value::Null),
        (b"\"text\"", "-32600 INVALID_REQUEST", Value::Null),
        (b"null", "-32600 INVALID_REQUEST", Value::Null),
        (b"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"ListTasks\"}", "-32600 INVALID_REQUEST", json!(5)),
        (b"{\"id\":\"x\",\"method\":\"ListTasks\"}", "-32600 INVALID_REQUEST", json!("x")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":6}", "-32600 INVALID_REQUEST", json!(6)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":7}", "-32600 INVALID_REQUEST", json!(6)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ListTasks\"}", "-32600 INVALID_REQUEST", Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ListTasks\",\"params\":\"x\"}",
            "-32600 INVALID_REQUEST",
            json!(7),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ListTasks\",\"params\":[]}",
            "-32602 INVALID_PARAMS params",
            json!(8),
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"foo/bar\"}", "-32601 METHOD_NOT_FOUND", json!("a")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"GetTask\",\"params\":{}}", "-32602 INVALID_PARAMS id", json!(9)),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"GetTask\",\"params\":{\"id\":7}}",
            "-32602 INVALID_PARAMS id",
            json!(9),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"GetTask\",\"params\":{\"id\":\"nope\"}}",
            "-32001 TASK_NOT_FOUND",
            json!(6),
        ),
    ];
    let mut wrong = Vec::new();
    for (body, told, id) in bodies {
        let reply = raw::call(&api, &format!("{AT}\nContent-Type: application/json"), body).await;
        if (raw::told(&reply).as_str(), &reply.json()["id"]) != (told, &id) {
            wrong.push(format!("{} is not {told} {id}: {}", String::from_utf8_lossy(body), reply.shown()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (method, params) in [(GET_PUSH, json!({"taskId": 7})), (LIST_PUSH, json!({"taskId": "x", "pageSize": "x"}))] {
        api.rpc_error(method, &params, -32602).await;
    }
    let after = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": "x"}}).to_string();
    raw::say(&api, [("POST /a2a/jsonrpc?afterSequence=x", after, "-32602 INVALID_PARAMS afterSequence")]).await;
}

#[tokio::test]
async fn s3_69_x_26_every_endpoint_is_one() {
    let server = TestServer::start().await;
    let api = server.api();
    for path in ["/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/"] {
        let sent = api.rpc_at(path, "SendMessage", &json!({"message": said("hello")})).await;
        assert_eq!(state(&sent["result"]["task"]), "COMPLETED", "{path}");
    }
    for path in [
        "/a2a/agents/ask",
        "/a2a/agents/ask/",
        "/a2a/agents/ask/jsonrpc",
        "/a2a/agents/ask/jsonrpc/",
        "/a2a/ask/jsonrpc",
    ] {
        let sent = api.rpc_at(path, "SendMessage", &json!({"message": said("what")})).await;
        assert_eq!(state(&sent["result"]["task"]), "INPUT_REQUIRED", "{path}: {sent:#}");
    }
    let at = "/a2a/agents/ask/jsonrpc";
    let mut stream = api.rpc_stream(at, "SendStreamingMessage", &json!({"message": said("what")})).await;
    assert_eq!(stream.rest().await.last().unwrap().state(), Some("INPUT_REQUIRED"));
    let other = text(&api.send(&message("echo", said("hello"))).await, "/id").to_owned();
    let refused = api.rpc_at(at, "GetTask", &json!({"id": other})).await;
    assert_eq!(refused["error"]["code"], -32001);
    let refused = api.rpc_at("/a2a/agents/nobody/jsonrpc", "SendMessage", &json!({"message": said("x")})).await;
    assert_eq!((&refused["error"]["code"], reason(&refused["error"])), (&json!(-32602), "AGENT_NOT_FOUND"));
    // A running task can be cancelled through any of the doors.
    let id = text(&api.send(&begin("slow", "20000").request).await, "/id").to_owned();
    assert_eq!(state(&api.rpc_at("/a2a", "CancelTask", &json!({"id": id})).await["result"]), "CANCELED");
}

#[tokio::test]
async fn x_28_names_are_read_in_both_spellings() {
    let server = TestServer::start().await;
    let api = server.api();
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
    let error = api.rpc_error("SendMessage", &json!({"message": {"parts": "x"}}), -32602).await;
    assert_eq!(violations(&error), ["message.parts"]);
    // A JSON body with a character set is JSON.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"});
    let reply =
        raw::call(&api, &format!("{AT}\nContent-Type: application/json; charset=utf-8"), call.to_string()).await;
    assert!(reply.ok()["result"]["tasks"].is_array());
}

#[tokio::test]
async fn s3_100_x_29_the_struct_service_has_the_methods_of_its_card() {
    let server = TestServer::start().await;
    let anybody = server.grpc().without("a2a-version");
    assert_eq!(anybody.ok(GATEWAY, "GetAgentCard", &json!({"tenant": "echo"})).await["name"], "Echo");
    let extended = anybody.ok(GATEWAY, "GetExtendedAgentCard", &json!({})).await;
    assert!(extended["skills"].as_array().unwrap().iter().any(|skill| skill["id"] == "echo"), "{extended:#}");
    // All others are those of 1.0: what is proven over every binding is proven over this one.
    play_on(&server, &[Binding::Struct], [crate::protocol::scenario::send("echo", "hello").state("COMPLETED")]).await;
}
