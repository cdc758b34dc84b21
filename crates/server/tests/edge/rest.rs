//! The HTTP+JSON binding.

use serde_json::json;

use crate::edge::support::{Fixture, OTHER_TOKEN, message};

#[tokio::test]
async fn a_message_is_sent_and_its_task_is_found() {
    let fixture = Fixture::start().await;
    let sent = fixture.post("/a2a/message:send", &message("hello")).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    assert_eq!(sent.header("content-type"), Some("application/a2a+json"));
    assert_eq!(sent.header("a2a-version"), Some("1.0"));
    let task = &sent.json()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let id = task["id"].as_str().unwrap();

    let got = fixture.get(&format!("/a2a/tasks/{id}?historyLength=0")).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.json()["id"], id);
    assert!(got.json().get("history").is_none());

    let listed = fixture.get("/a2a/tasks?pageSize=1&status=TASK_STATE_COMPLETED").await.json();
    assert_eq!(listed["tasks"][0]["id"], id);
    assert_eq!((&listed["totalSize"], &listed["nextPageToken"]), (&json!(1), &json!("")));

    let other = fixture.bare("GET", &format!("/a2a/tasks/{id}")).header("x-sb-token", OTHER_TOKEN);
    let other = other.header("A2A-Version", "1").send().await;
    assert_eq!((other.status, other.reason().as_str()), (404, "TASK_NOT_FOUND"));
}

#[tokio::test]
async fn the_target_is_in_the_path_the_body_or_the_query() {
    let fixture = Fixture::start().await;
    let mut named = message("hello");
    named["tenant"] = json!("direct");
    for (path, body) in [
        ("/a2a/agents/direct/message:send", message("hello")),
        ("/a2a/direct/message:send", message("hello")),
        ("/a2a/message:send", named.clone()),
        ("/a2a/message:send?tenant=direct", message("hello")),
        ("/a2a/agents/direct/message:send", named.clone()),
    ] {
        let reply = fixture.post(path, &body).await;
        assert_eq!(reply.json()["message"]["parts"][0]["text"], "hello", "{path}");
    }
    for path in ["/a2a/agents/echo/message:send", "/a2a/message:send?tenant=echo"] {
        let reply = fixture.post(path, &named).await;
        assert_eq!(reply.status, 400, "{path}");
        assert_eq!(reply.json()["error"]["details"][1]["fieldViolations"][0]["field"], "tenant");
    }
    for path in ["/a2a/agents/nope/message:send", "/a2a/agents/secret/message:send", "/a2a/nope/message:send"] {
        let reply = fixture.post(path, &message("hello")).await;
        assert_eq!((reply.status, reply.reason().as_str()), (404, "AGENT_NOT_FOUND"), "{path}");
    }
    let id = fixture.slow_task("long").await;
    assert_eq!(fixture.get(&format!("/a2a/agents/slow/tasks/{id}")).await.status, 200);
    assert_eq!(fixture.get(&format!("/a2a/agents/echo/tasks/{id}")).await.reason(), "TASK_NOT_FOUND");
    assert_eq!(fixture.get("/a2a/agents/slow/tasks").await.json()["totalSize"], 1);
    assert_eq!(fixture.get("/a2a/tasks?tenant=echo").await.json()["totalSize"], 0);
}

#[tokio::test]
async fn x_41_a_task_is_canceled_without_a_body() {
    let fixture = Fixture::start().await;
    let id = fixture.slow_task("long").await;
    let path = format!("/a2a/tasks/{id}:cancel");
    let canceled = fixture.ask("POST", &path).body("").send().await;
    assert_eq!(canceled.status, 200, "{canceled:?}");
    assert_eq!(canceled.json()["status"]["state"], "TASK_STATE_CANCELED");
    let again = fixture.post(&path, &json!({"metadata": {"why": "twice"}})).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(fixture.post(&path, &json!({"id": "other"})).await.status, 400);

    let done = fixture.post("/a2a/message:send", &message("x")).await.json();
    let done = done["task"]["id"].as_str().unwrap();
    let refused = fixture.ask("POST", &format!("/a2a/tasks/{done}:cancel")).send().await;
    assert_eq!((refused.status, refused.reason().as_str()), (400, "TASK_NOT_CANCELABLE"));
    let unknown = fixture.ask("POST", "/a2a/tasks/nope:cancel").send().await;
    assert_eq!((unknown.status, unknown.reason().as_str()), (404, "TASK_NOT_FOUND"));
}

#[tokio::test]
async fn a_webhook_is_for_the_task_and_the_agent_of_the_url() {
    let fixture = Fixture::start().await;
    for (path, body, field) in [
        ("/a2a/tasks/x/pushNotificationConfigs", json!({"taskId": "y", "url": "https://h"}), "taskId"),
        ("/a2a/tasks/x/pushNotificationConfigs?tenant=echo", json!({"tenant": "slow", "url": "https://h"}), "tenant"),
        ("/a2a/agents/echo/tasks/x/pushNotificationConfigs", json!({"tenant": "slow", "url": "https://h"}), "tenant"),
        ("/a2a/tasks/x/pushNotificationConfigs", json!({"url": 7}), "url"),
    ] {
        let refused = fixture.post(path, &body).await;
        assert_eq!((refused.status, refused.reason().as_str()), (400, "INVALID_PARAMS"), "{path} {body}");
        assert_eq!(refused.json()["error"]["details"][1]["fieldViolations"][0]["field"], field, "{path} {body}");
    }
}

#[tokio::test]
async fn versions_are_checked() {
    let fixture = Fixture::with(|options| options.auth = false).await;
    for version in [None, Some(""), Some("0.3"), Some("2.0"), Some("1.1")] {
        let mut ask = fixture.bare("GET", "/a2a/tasks");
        if let Some(version) = version {
            ask = ask.header("A2A-Version", version);
        }
        let reply = ask.send().await;
        assert_eq!((reply.status, reply.reason().as_str()), (400, "VERSION_NOT_SUPPORTED"), "{version:?}");
        assert_eq!(reply.json()["error"]["details"][0]["metadata"]["supported"], "1.0");
    }
    for version in ["1", "1.0", "1.0.1"] {
        assert_eq!(fixture.bare("GET", "/a2a/tasks").header("A2A-Version", version).send().await.status, 200);
        assert_eq!(fixture.bare("GET", &format!("/a2a/tasks?A2A-Version={version}")).send().await.status, 200);
    }
}

#[tokio::test]
async fn media_types_are_checked() {
    let fixture = Fixture::start().await;
    let body = message("hello").to_string();
    for media in ["application/json", "application/a2a+json", "application/json; charset=utf-8"] {
        let ask = fixture.ask("POST", "/a2a/message:send").header("Content-Type", media);
        assert_eq!(ask.body(body.clone()).send().await.status, 200, "{media}");
    }
    for media in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let mut ask = fixture.ask("POST", "/a2a/message:send");
        if let Some(media) = media {
            ask = ask.header("Content-Type", media);
        }
        let reply = ask.body(body.clone()).send().await;
        assert_eq!((reply.status, reply.reason().as_str()), (415, "UNSUPPORTED_MEDIA_TYPE"), "{media:?}");
    }
}

#[tokio::test]
async fn x_16_every_bad_request_gets_the_same_kind_of_body() {
    let fixture = Fixture::with(|options| options.body_limit = 1000).await;
    for (method, path, status, reason) in [
        ("GET", "/nope", 404, "NOT_FOUND"),
        ("GET", "/.well-known/agent.json", 404, "NOT_FOUND"),
        ("GET", "/a2a/nope/nope", 404, "NOT_FOUND"),
        ("POST", "/a2a/tasks/", 404, "NOT_FOUND"),
        ("GET", "/a2a/message:send", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/a2a/tasks", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/a2a/tasks/x", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/a2a/jsonrpc", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/healthz", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/.well-known/agent-card.json", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/a2a/tasks?pageSize=0", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks?pageSize=101", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks?pageSize=x", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks?status=FOO", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks?historyLength=-1", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks/x?historyLength=x", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks?contextId=%ff", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks/x:subscribe?afterSequence=x", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/tasks/x:subscribe", 404, "TASK_NOT_FOUND"),
        ("PUT", "/a2a/tasks/x/pushNotificationConfigs", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/a2a/tasks/x/pushNotificationConfigs/c", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/a2a/tasks/x/pushNotificationConfigs", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("GET", "/a2a/tasks/x/pushNotificationConfigs?pageSize=x", 400, "INVALID_PARAMS"),
        ("GET", "/a2a/agents/nope/tasks/x/pushNotificationConfigs", 404, "AGENT_NOT_FOUND"),
        ("GET", "/a2a/tasks/x/pushNotificationConfigs?tenant=nope", 404, "AGENT_NOT_FOUND"),
        ("GET", "/a2a/nope/tasks/x/pushNotificationConfigs/c", 404, "AGENT_NOT_FOUND"),
        ("DELETE", "/a2a/agents/nope/tasks/x/pushNotificationConfigs/c", 404, "AGENT_NOT_FOUND"),
    ] {
        let reply = fixture.ask(method, path).send().await;
        assert_eq!((reply.status, reply.reason().as_str()), (status, reason), "{method} {path}");
        assert_eq!(reply.header("allow").is_some(), status == 405, "{method} {path}");
    }

    let utf8 = b"{\"message\":{\"messageId\":\"\xff\"}}".to_vec();
    for (body, status, reason) in [
        (b"{".to_vec(), 400, "PARSE_ERROR"),
        (utf8, 400, "PARSE_ERROR"),
        (b"[]".to_vec(), 400, "INVALID_PARAMS"),
        (b"{}".to_vec(), 400, "INVALID_PARAMS"),
        (br#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}"#.to_vec(), 400, "INVALID_PARAMS"),
        (br#"{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]}}"#.to_vec(), 400, "INVALID_PARAMS"),
        (br#"{"message":{"messageId":7,"role":"ROLE_USER","parts":[{"text":"x"}]}}"#.to_vec(), 400, "INVALID_PARAMS"),
        (vec![b' '; 1001], 413, "PAYLOAD_TOO_LARGE"),
    ] {
        let shown = String::from_utf8_lossy(&body).into_owned();
        let ask = fixture.ask("POST", "/a2a/message:send").header("Content-Type", "application/json");
        let reply = ask.body(body).send().await;
        assert_eq!((reply.status, reply.reason().as_str()), (status, reason), "{shown}");
    }
}

#[tokio::test]
async fn an_idempotency_key_makes_one_task() {
    let fixture = Fixture::start().await;
    let mut ids = Vec::new();
    for key in ["k-1", "k-1", "k-2"] {
        let ask = fixture.ask("POST", "/a2a/message:send").header("Idempotency-Key", key);
        let reply = ask.json(&message("hello")).send().await;
        assert_eq!(reply.status, 200, "{reply:?}");
        ids.push(reply.json()["task"]["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
}
