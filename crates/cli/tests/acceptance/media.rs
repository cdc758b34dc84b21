//! Media types of requests.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{
    http::{Api, message, reason, state, violations},
    rig::Rig,
};

fn typed(api: &Api, path: &str, media_type: Option<&str>, body: &Value) -> RequestBuilder {
    let request = api.request(Method::POST, path).body(body.to_string());
    match media_type {
        Some(media_type) => request.header("Content-Type", media_type),
        None => request,
    }
}

#[tokio::test]
async fn s3_88_both_media_types_are_taken() {
    let rig = Rig::start().await;
    let api = rig.api();
    for media_type in [
        "application/json",
        "application/a2a+json",
        "application/json; charset=utf-8",
        "application/a2a+json;charset=UTF-8",
        "Application/JSON",
    ] {
        let request = typed(&api, "/a2a/message:send", Some(media_type), &json!({"message": message("hello")}));
        let reply = api.call(request).await;
        assert_eq!(state(&reply.task()), "COMPLETED", "{media_type}");
        assert_eq!(reply.media_type(), "application/a2a+json");
        let request = typed(&api, "/a2a/message:stream", Some(media_type), &json!({"message": message("hello")}));
        assert_eq!(api.call(request).await.media_type(), "text/event-stream");
    }
}

#[tokio::test]
async fn s3_89_x_16_other_media_types_are_refused() {
    let rig = Rig::start().await;
    let api = rig.api();
    for media_type in [Some("text/plain"), Some("application/xml"), Some("multipart/form-data"), Some("nonsense"), None]
    {
        for path in ["/a2a/message:send", "/a2a/message:stream", "/a2a/agents/echo/message:send"] {
            let request = typed(&api, path, media_type, &json!({"message": message("hello")}));
            let error = api.call(request).await.error(415);
            assert_eq!(reason(&error), "UNSUPPORTED_MEDIA_TYPE", "{media_type:?} {path}");
        }
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
}

#[tokio::test]
async fn s3_90_x_16_json_rpc_requires_json() {
    let rig = Rig::start().await;
    let api = rig.api();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hello")}});
    for media_type in [Some("application/a2a+json"), Some("text/plain"), None] {
        for path in ["/a2a/jsonrpc", "/a2a", "/a2a/agents/echo/jsonrpc"] {
            let reply = api.call(typed(&api, path, media_type, &call)).await;
            assert_eq!(reply.status, 415, "{}", reply.shown());
            assert_eq!(reply.media_type(), "application/json");
            let envelope = reply.json();
            assert_eq!((&envelope["jsonrpc"], &envelope["id"]), (&json!("2.0"), &json!(null)));
            assert_eq!(envelope["error"]["code"], -32005);
            assert_eq!(reason(&envelope["error"]), "UNSUPPORTED_MEDIA_TYPE");
            assert!(!violations(&envelope["error"]).is_empty(), "{envelope:#}");
        }
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);
}
