//! Bad requests of every kind: a clear error in the right shape, never the framework's own. Media types are among them.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::protocol::{
    PATIENCE, TOKEN,
    http::{reason, state, text, violations},
    raw,
    scenario::{message, said},
    server::{Setup, TestServer},
};

const SEND: &str = "POST /a2a/message:send";

#[tokio::test]
async fn s3_91_x_16_no_framework_default_errors() {
    let server = TestServer::start().await;
    let api = server.api();
    let id = text(&api.send(&message("echo", said("hello"))).await, "/id").to_owned();
    let nested = |open: &str| format!("{}{}", open.repeat(5000), "]".repeat(5000));
    let deep = format!("{{\"message\":{}}}", nested("["));
    let deep_data = format!(
        "{{\"message\":{{\"messageId\":\"d\",\"role\":\"ROLE_USER\",\"parts\":[{{\"data\":{}}}]}}}}",
        nested("[")
    );
    let bodies: [(&str, &[u8], &str); 33] = [
        (SEND, b"{", "400 PARSE_ERROR"),
        (SEND, b"nonsense", "400 PARSE_ERROR"),
        (SEND, b"{\"message\": {\"messageId\": \"\xff\xfe\"}}", "400 PARSE_ERROR"),
        (SEND, b"null", "400 INVALID_PARAMS"),
        (SEND, b"[]", "400 INVALID_PARAMS"),
        (SEND, b"7", "400 INVALID_PARAMS"),
        (SEND, b"\"text\"", "400 INVALID_PARAMS"),
        (SEND, b"{}", "400 INVALID_PARAMS message"),
        (SEND, b"{\"message\": 7}", "400 INVALID_PARAMS message"),
        (SEND, b"{\"message\": {\"messageId\": 7, \"role\": \"ROLE_USER\"}}", "400 INVALID_PARAMS message.messageId"),
        (SEND, b"{\"message\": {\"messageId\": [], \"role\": {}}}", "400 INVALID_PARAMS message.messageId"),
        (SEND, b"{\"message\": {\"parts\": [null]}}", "400 INVALID_PARAMS message.parts[0]"),
        (SEND, b"{\"tenant\": 7}", "400 INVALID_PARAMS tenant"),
        (SEND, b"{\"message\": {}, \"message\": {}}", "400 INVALID_PARAMS"),
        (SEND, b"{\"configuration\": []}", "400 INVALID_PARAMS configuration"),
        (SEND, b"{\"configuration\": {\"historyLength\": 1e99}}", "400 INVALID_PARAMS configuration.historyLength"),
        (SEND, deep.as_bytes(), "400 INVALID_PARAMS message"),
        (SEND, deep_data.as_bytes(), "400 INVALID_PARAMS message.parts[0].data"),
        ("POST /a2a/message:stream", b"{", "400 PARSE_ERROR"),
        ("POST /a2a/message:stream", b"{}", "400 INVALID_PARAMS message"),
        ("POST /a2a/agents/echo/message:send", b"[1]", "400 INVALID_PARAMS"),
        ("POST /a2a/tasks/x:cancel", b"{", "400 PARSE_ERROR"),
        ("POST /a2a/tasks/x:subscribe", b"[]", "400 INVALID_PARAMS"),
        ("POST /a2a/tasks/x/pushNotificationConfigs", b"[]", "400 INVALID_PARAMS"),
        ("POST /a2a/tasks/x/pushNotificationConfigs", b"{\"url\": 7}", "400 INVALID_PARAMS url"),
        ("POST /a2a/tasks/x/pushNotificationConfigs", b"", "415 UNSUPPORTED_MEDIA_TYPE Content-Type"),
        (
            "POST /a2a/tasks/x/pushNotificationConfigs",
            b"{\"taskId\": \"y\", \"url\": \"https://h\"}",
            "400 INVALID_PARAMS taskId",
        ),
        (
            "POST /a2a/tasks/x/pushNotificationConfigs?tenant=echo",
            b"{\"tenant\": \"slow\", \"url\": \"https://h\"}",
            "400 INVALID_PARAMS tenant",
        ),
        ("POST /a2a/tasks/x:cancel", b"{\"id\": \"other\"}", "400 INVALID_PARAMS id"),
        ("POST /a2a/agents/nope/tasks/x/pushNotificationConfigs", b"{\"url\": \"http://x/\"}", "404 AGENT_NOT_FOUND"),
        ("POST /a2a/message:send\nContent-Type: application/json", b"", "400 PARSE_ERROR"),
        ("POST /a2a/message:stream\nContent-Type: application/json", b"", "400 PARSE_ERROR"),
        ("POST /a2a/tasks/x:nonsense", b"", "405 METHOD_NOT_ALLOWED"),
    ];
    raw::say(&api, bodies).await;

    // Routes nobody has, verbs nobody takes, queries nobody can read.
    let requests = [
        ("DELETE /", "405 METHOD_NOT_ALLOWED"),
        ("GET /nonsense", "404 NOT_FOUND"),
        ("GET /a2a/agents/echo/nonsense", "404 NOT_FOUND"),
        ("GET /a2a/nope/nope", "404 NOT_FOUND"),
        ("POST /a2a/message:nonsense", "404 NOT_FOUND"),
        ("POST /a2a/message", "404 NOT_FOUND"),
        ("POST /a2a/tasks/{id}:nonsense", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/tasks/", "404 NOT_FOUND"),
        ("POST /a2a/tasks/", "404 NOT_FOUND"),
        ("GET /a2a//tasks", "404 NOT_FOUND"),
        ("GET /.well-known/agent.json", "404 NOT_FOUND"),
        ("GET /.well-known/nonsense", "404 NOT_FOUND"),
        ("GET /a2a/message:send", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/message:stream", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/jsonrpc", "405 METHOD_NOT_ALLOWED"),
        ("PUT /a2a/jsonrpc", "405 METHOD_NOT_ALLOWED"),
        ("DELETE /a2a/tasks", "405 METHOD_NOT_ALLOWED"),
        ("POST /a2a/tasks", "405 METHOD_NOT_ALLOWED"),
        ("DELETE /a2a/tasks/{id}", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/tasks/{id}:cancel", "405 METHOD_NOT_ALLOWED"),
        ("PUT /a2a/tasks/{id}:subscribe", "405 METHOD_NOT_ALLOWED"),
        ("PATCH /a2a/extendedAgentCard", "405 METHOD_NOT_ALLOWED"),
        ("DELETE /a2a/tasks/{id}/pushNotificationConfigs", "405 METHOD_NOT_ALLOWED"),
        ("PUT /a2a/tasks/x/pushNotificationConfigs", "405 METHOD_NOT_ALLOWED"),
        ("POST /a2a/tasks/x/pushNotificationConfigs/c", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/tasks/{id}/pushNotificationConfigs/", "404 NOT_FOUND"),
        ("GET /a2a/tasks/{id}/pushNotificationConfigs?pageSize=x", "400 INVALID_PARAMS pageSize"),
        ("GET /a2a/agents/nope/tasks/x/pushNotificationConfigs", "404 AGENT_NOT_FOUND"),
        ("GET /a2a/tasks/x/pushNotificationConfigs?tenant=nope", "404 AGENT_NOT_FOUND"),
        ("GET /a2a/nope/tasks/x/pushNotificationConfigs/c", "404 AGENT_NOT_FOUND"),
        ("DELETE /a2a/agents/nope/tasks/x/pushNotificationConfigs/c", "404 AGENT_NOT_FOUND"),
        ("POST /.well-known/agent-card.json", "405 METHOD_NOT_ALLOWED"),
        ("POST /healthz", "405 METHOD_NOT_ALLOWED"),
        ("GET /a2a/tasks?pageSize=%ff", "400 INVALID_PARAMS query"),
        ("GET /a2a/tasks?contextId=%ff", "400 INVALID_PARAMS query"),
        ("GET /a2a/tasks/{id}?historyLength=%", "400 INVALID_PARAMS historyLength"),
        ("GET /a2a/tasks/x?historyLength=x", "400 INVALID_PARAMS historyLength"),
        ("GET /a2a/tasks/{id}:subscribe?afterSequence=-1", "400 INVALID_PARAMS afterSequence"),
        ("GET /a2a/tasks/x:subscribe", "404 TASK_NOT_FOUND"),
        ("GET /a2a/tasks/%ff", "404 NOT_FOUND"),
        ("GET /a2a/tasks/{ID}", "404 TASK_NOT_FOUND"),
    ]
    .map(|(head, told)| (head.replace("{id}", &id).replace("{ID}", &id.to_uppercase()), told));
    raw::say(&api, requests.iter().map(|(head, told)| (head.as_str(), "", *told))).await;
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1, "nothing of that changed anything");
}

#[tokio::test]
async fn s3_91_x_16_too_large_is_413() {
    let server = Setup::new().edge(|edge| edge.body_limit = 1000).start().await;
    let api = server.api();
    raw::say(&api, [(SEND, vec![b' '; 1001], "413 PAYLOAD_TOO_LARGE")]).await;
    let request = json!({"message": said(&"x".repeat(1 << 20))});
    api.post("/a2a/message:send", &request).await.error(413);
    // answered before the envelope is read, so with a status body on the JSON-RPC route as well.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": request});
    api.post("/a2a/jsonrpc", &call).await.error(413);
    assert_eq!(::server::Options::new(([127, 0, 0, 1], 0).into()).body_limit, 10 << 20);
}

#[tokio::test]
async fn bytes_that_are_no_http_end_the_connection() {
    let server = TestServer::start().await;
    let address = server.url.strip_prefix("http://").unwrap();
    for bytes in [&b"\x00\x01\x02\x03\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        let mut reply = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut reply)).await;
        assert!(ended.is_ok(), "the server closes it");
        assert!(!String::from_utf8_lossy(&reply).contains(TOKEN));
    }
    server.api().get("/healthz").await.ok();
}

#[tokio::test]
async fn s3_88_both_media_types_are_taken() {
    let server = TestServer::start().await;
    let body = json!({"message": said("hello")}).to_string();
    for media_type in [
        "application/json",
        "application/a2a+json",
        "application/json; charset=utf-8",
        "application/a2a+json;charset=UTF-8",
        "Application/JSON",
    ] {
        let post = async |path: &str| {
            let head = format!("POST /a2a/{path}\nContent-Type: {media_type}");
            raw::call(&server.api(), &head, body.clone()).await
        };
        let reply = post("message:send").await;
        assert_eq!((state(&reply.task()), reply.media_type()), ("COMPLETED", "application/a2a+json"), "{media_type}");
        assert_eq!(post("message:stream").await.media_type(), "text/event-stream", "{media_type}");
    }
}

#[tokio::test]
async fn s3_89_s3_90_x_16_other_media_types_are_refused() {
    let server = TestServer::start().await;
    let api = server.api();
    let send = json!({"message": said("hello")});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send});
    for media_type in
        ["text/plain", "application/xml", "multipart/form-data", "application/x-www-form-urlencoded", "nonsense", ""]
    {
        for path in ["/a2a/message:send", "/a2a/message:stream", "/a2a/agents/echo/message:send"] {
            let reply = raw::call(&api, &format!("POST {path}\nContent-Type: {media_type}"), send.to_string()).await;
            assert_eq!(reason(&reply.error(415)), "UNSUPPORTED_MEDIA_TYPE", "{media_type:?} {path}");
        }
    }
    for media_type in ["application/a2a+json", "text/plain", ""] {
        for path in ["/a2a/jsonrpc", "/a2a", "/a2a/agents/echo/jsonrpc"] {
            let reply = raw::call(&api, &format!("POST {path}\nContent-Type: {media_type}"), call.to_string()).await;
            assert_eq!((reply.status, reply.media_type()), (415, "application/json"), "{}", reply.shown());
            let envelope = reply.json();
            assert_eq!((&envelope["jsonrpc"], &envelope["id"]), (&json!("2.0"), &Value::Null));
            assert_eq!(envelope["error"]["code"], -32005);
            assert_eq!(reason(&envelope["error"]), "UNSUPPORTED_MEDIA_TYPE");
            assert!(!violations(&envelope["error"]).is_empty(), "{envelope:#}");
        }
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
}
