//! The JSON-RPC binding.

use serde_json::{Value, json};

use crate::edge::support::{Fixture, envelope, message};

#[tokio::test]
async fn every_method_answers_in_its_envelope() {
    let fixture = Fixture::start().await;
    let sent = fixture.call("SendMessage", message("hello")).await;
    assert_eq!((&sent["jsonrpc"], &sent["id"]), (&json!("2.0"), &json!("r-1")));
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let id = task["id"].clone();

    assert_eq!(fixture.call("GetTask", json!({"id": id})).await["result"]["id"], id);
    assert_eq!(fixture.call("ListTasks", json!({})).await["result"]["tasks"][0]["id"], id);
    assert_eq!(fixture.call("CancelTask", json!({"id": id})).await["error"]["code"], -32002);
    assert_eq!(fixture.call("SubscribeToTask", json!({"id": id})).await["error"]["code"], -32004);
    for method in ["Create", "Get", "Delete"] {
        let refused = fixture.call(&format!("{method}TaskPushNotificationConfig"), json!({"taskId": 7})).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}");
    }
    let refused = fixture.call("ListTaskPushNotificationConfigs", json!({"taskId": id, "pageSize": "x"})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let card = fixture.call("GetExtendedAgentCard", json!({"tenant": "slow"})).await;
    assert_eq!(card["result"]["name"], "slow");
    let canceled = fixture.slow_task("long").await;
    let canceled = fixture.call("CancelTask", json!({"id": canceled})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn every_endpoint_is_one() {
    let fixture = Fixture::start().await;
    for path in [
        "/a2a",
        "/a2a/",
        "/a2a/jsonrpc",
        "/a2a/jsonrpc/",
        "/a2a/agents/echo",
        "/a2a/agents/echo/",
        "/a2a/agents/echo/jsonrpc",
        "/a2a/agents/echo/jsonrpc/",
        "/a2a/echo/jsonrpc",
    ] {
        let reply = fixture.post(path, &envelope("SendMessage", message("hello"))).await;
        assert_eq!(reply.header("content-type"), Some("application/json"), "{path}");
        assert!(reply.json()["result"]["task"].is_object(), "{path}: {reply:?}");
    }
}

#[tokio::test]
async fn errors_are_answers() {
    let fixture = Fixture::start().await;
    let bodies: [(&[u8], i32, Value); 12] = [
        (b"{", -32700, Value::Null),
        (b"", -32700, Value::Null),
        (b"{\"x\":\"\xff\"}", -32700, Value::Null),
        (b"[]", -32600, Value::Null),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ListTasks\"}]", -32600, Value::Null),
        (b"{\"id\":1,\"method\":\"ListTasks\"}", -32600, json!(1)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2}", -32600, json!(2)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ListTasks\"}", -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"foo/bar\"}", -32601, json!("a")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"GetTask\",\"params\":[]}", -32602, json!(4)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ListTasks\",\"params\":{\"pageSize\":0}}", -32602, json!(5)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"GetTask\",\"params\":{\"id\":\"nope\"}}", -32001, json!(6)),
    ];
    for (body, code, id) in bodies {
        let shown = String::from_utf8_lossy(body).into_owned();
        let ask = fixture.ask("POST", "/a2a/jsonrpc").header("Content-Type", "application/json");
        let reply = ask.body(body).send().await;
        assert_eq!(reply.status, 200, "{shown}");
        let json = reply.json();
        assert_eq!((&json["error"]["code"], &json["id"]), (&json!(code), &id), "{shown}");
        assert!(json["error"]["data"][0]["@type"].as_str().unwrap().ends_with("ErrorInfo"), "{shown}");
    }
    let unknown = fixture.post("/a2a/agents/secret/jsonrpc", &envelope("SendMessage", message("x"))).await.json();
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(unknown["error"]["data"][0]["reason"], "AGENT_NOT_FOUND");
}

#[tokio::test]
async fn the_media_type_comes_before_the_envelope() {
    let fixture = Fixture::start().await;
    for media in ["application/a2a+json", "text/plain"] {
        let ask = fixture.ask("POST", "/a2a/jsonrpc").header("Content-Type", media);
        let reply = ask.body(envelope("ListTasks", json!({})).to_string()).send().await;
        assert_eq!(reply.status, 415, "{media}");
        let json = reply.json();
        assert_eq!((&json["error"]["code"], &json["id"]), (&json!(-32005), &Value::Null));
        assert_eq!(json["error"]["data"][0]["reason"], "UNSUPPORTED_MEDIA_TYPE");
        assert!(json["error"]["data"][1]["fieldViolations"].is_array());
    }
}

#[tokio::test]
async fn the_version_comes_after_the_method() {
    let fixture = Fixture::with(|options| options.auth = false).await;
    for (method, version, code) in [
        ("ListTasks", None, Some(-32009)),
        ("ListTasks", Some("0.3"), Some(-32009)),
        ("ListTasks", Some("1.0"), None),
        ("message/send", None, Some(-32602)),
        ("message/send", Some("0.3"), Some(-32602)),
        ("message/send", Some("9"), Some(-32009)),
        ("nope", Some("9"), Some(-32601)),
    ] {
        let mut ask = fixture.bare("POST", "/a2a");
        if let Some(version) = version {
            ask = ask.header("A2A-Version", version);
        }
        let json = ask.json(&envelope(method, json!({"pageSize": 5}))).send().await.json();
        assert_eq!(json["error"]["code"].as_i64(), code, "{method} {version:?}");
        assert_eq!(json["id"], "r-1");
    }
    let by_query = fixture.bare("POST", "/a2a?A2A-Version=1.0").json(&envelope("ListTasks", json!({}))).send().await;
    assert!(by_query.json()["result"].is_object());
}
