//! Bad requests of every kind: a clear error in the right shape, never the framework's own.

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    http::{message, text, to},
    rig::{PATIENCE, Rig, TOKEN},
};

#[tokio::test]
async fn s3_91_x_16_no_framework_default_errors() {
    let rig = Rig::start().await;
    let api = rig.api();
    let id = text(&api.send(&to("echo", "hello")).await, "/id").to_owned();
    let deep = format!("{{\"message\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let deep_data = format!(
        "{{\"message\":{{\"messageId\":\"d\",\"role\":\"ROLE_USER\",\"parts\":[{{\"data\":{}{}}}]}}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let send = "/a2a/message:send";
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        (send, b"".to_vec()),
        (send, b"{".to_vec()),
        (send, b"nonsense".to_vec()),
        (send, b"null".to_vec()),
        (send, b"[]".to_vec()),
        (send, b"7".to_vec()),
        (send, b"\"text\"".to_vec()),
        (send, b"{}".to_vec()),
        (send, b"{\"message\": 7}".to_vec()),
        (send, b"{\"message\": {\"messageId\": [], \"role\": {}}}".to_vec()),
        (send, b"{\"message\": {\"parts\": [null]}}".to_vec()),
        (send, b"{\"message\": {\"messageId\": \"\xff\xfe\"}}".to_vec()),
        (send, b"{\"tenant\": 7}".to_vec()),
        (send, b"{\"message\": {}, \"message\": {}}".to_vec()),
        (send, b"{\"configuration\": []}".to_vec()),
        (send, b"{\"configuration\": {\"historyLength\": 1e99}}".to_vec()),
        (send, deep.into_bytes()),
        (send, deep_data.into_bytes()),
        ("/a2a/message:stream", b"{".to_vec()),
        ("/a2a/message:stream", b"{}".to_vec()),
        ("/a2a/agents/echo/message:send", b"[1]".to_vec()),
        ("/a2a/tasks/x:cancel", b"{".to_vec()),
        ("/a2a/tasks/x:subscribe", b"[]".to_vec()),
        ("/a2a/tasks/x/pushNotificationConfigs", b"".to_vec()),
        ("/a2a/tasks/x/pushNotificationConfigs", b"[]".to_vec()),
        ("/a2a/tasks/x/pushNotificationConfigs", b"{\"url\": 7}".to_vec()),
    ];
    for (path, body) in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let request = api.request(Method::POST, path).header("Content-Type", "application/json").body(body);
        let reply = api.call(request).await;
        assert!([400, 404].contains(&reply.status), "{path} {shown}: {}", reply.shown());
        reply.error(reply.status);
    }

    // Routes nobody has, verbs nobody takes, queries nobody can read.
    let requests = [
        (Method::DELETE, "/".to_owned(), 405),
        (Method::GET, "/nonsense".to_owned(), 404),
        (Method::GET, "/a2a/agents/echo/nonsense".to_owned(), 404),
        (Method::POST, "/a2a/message:nonsense".to_owned(), 404),
        (Method::POST, "/a2a/message".to_owned(), 404),
        (Method::POST, format!("/a2a/tasks/{id}:nonsense"), 405),
        (Method::GET, "/a2a/tasks/".to_owned(), 404),
        (Method::GET, "/a2a//tasks".to_owned(), 404),
        (Method::GET, "/.well-known/agent.json".to_owned(), 404),
        (Method::GET, "/.well-known/nonsense".to_owned(), 404),
        (Method::GET, "/a2a/message:send".to_owned(), 405),
        (Method::GET, "/a2a/message:stream".to_owned(), 405),
        (Method::GET, "/a2a/jsonrpc".to_owned(), 405),
        (Method::DELETE, "/a2a/tasks".to_owned(), 405),
        (Method::POST, "/a2a/tasks".to_owned(), 405),
        (Method::DELETE, format!("/a2a/tasks/{id}"), 405),
        (Method::GET, format!("/a2a/tasks/{id}:cancel"), 405),
        (Method::PUT, format!("/a2a/tasks/{id}:subscribe"), 405),
        (Method::PATCH, "/a2a/extendedAgentCard".to_owned(), 405),
        (Method::DELETE, format!("/a2a/tasks/{id}/pushNotificationConfigs"), 405),
        (Method::GET, format!("/a2a/tasks/{id}/pushNotificationConfigs/"), 404),
        (Method::POST, "/.well-known/agent-card.json".to_owned(), 405),
        (Method::POST, "/healthz".to_owned(), 405),
        (Method::GET, "/a2a/tasks?pageSize=%ff".to_owned(), 400),
        (Method::GET, format!("/a2a/tasks/{id}?historyLength=%"), 400),
        (Method::GET, format!("/a2a/tasks/{id}:subscribe?afterSequence=-1"), 400),
        (Method::GET, "/a2a/tasks/%ff".to_owned(), 404),
    ];
    for (method, path, status) in requests {
        let reply = api.call(api.request(method.clone(), &path)).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.shown());
        reply.error(status);
        if status == 405 {
            assert!(!reply.header("allow").unwrap_or_default().is_empty(), "{method} {path}: {}", reply.shown());
        }
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1, "nothing of that changed anything");
}

#[tokio::test]
async fn s3_91_x_16_too_large_is_413() {
    let rig = Rig::start().await;
    let api = rig.api();
    let request = json!({"message": message(&"x".repeat(11 << 20))});
    api.post("/a2a/message:send", &request).await.error(413);
    // answered before the envelope is read, so with a status body on the JSON-RPC route as well.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": request});
    api.post("/a2a/jsonrpc", &call).await.error(413);
}

#[tokio::test]
async fn bytes_that_are_no_http_end_the_connection() {
    let rig = Rig::start().await;
    let api = rig.api();
    let address = api.base().strip_prefix("http://").unwrap().to_owned();
    for bytes in [&b"\x00\x01\x02\x03\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        let mut reply = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut reply)).await;
        assert!(ended.is_ok(), "the server closes it");
        assert!(!String::from_utf8_lossy(&reply).contains(TOKEN));
    }
    api.get("/healthz").await.ok();
}
