//! The 0.3 dialect under `/a2a`: slash methods of real 0.3 clients, by the rules of A2A and not of Arbiter.

use serde_json::{Value, json};

use super::{
    rig::{Fixture, OTHER_TOKEN, TOKEN, envelope, message, said},
    wire::{Reply, read_until},
};

/// Calls a slash method as a 0.3 client does: without a version.
async fn post(fixture: &Fixture, path: &str, method: &str, params: Value) -> Reply {
    let ask = fixture.bare("POST", path).header("Authorization", &format!("Bearer {TOKEN}"));
    let reply = ask.json(&envelope(method, params)).send().await;
    assert_eq!((reply.status, reply.header("a2a-version")), (200, Some("0.3")), "{reply:?}");
    reply
}

async fn call(fixture: &Fixture, method: &str, params: Value) -> Value {
    post(fixture, "/a2a/jsonrpc", method, params).await.json()
}

#[tokio::test]
async fn x_1_x_35_slash_methods_answer_in_their_dialect() {
    let fixture = Fixture::start().await;
    let sent = call(&fixture, "message/send", said("hello")).await;
    let task = &sent["result"];
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{sent}");
    assert_eq!(task["status"]["message"]["kind"], "message");
    assert_eq!(task["history"][0]["parts"], json!([{"kind": "text", "text": "hello"}]));
    let id = task["id"].clone();

    let got = call(&fixture, "tasks/get", json!({"id": id, "historyLength": 0})).await;
    assert_eq!((&got["result"]["id"], &got["result"]["kind"]), (&id, &json!("task")));
    assert!(got["result"].get("history").is_none());
    assert_eq!(fixture.call("GetTask", json!({"id": id})).await["result"]["id"], id, "it is the same task");

    let running = fixture.slow_task("long").await;
    let canceled = call(&fixture, "tasks/cancel", json!({"id": running})).await;
    assert_eq!(canceled["result"]["status"]["state"], "canceled");
    let again = call(&fixture, "tasks/cancel", json!({"id": running})).await;
    assert_eq!(again["result"]["status"]["state"], "canceled", "X-35");

    let card = call(&fixture, "agent/getAuthenticatedExtendedCard", json!({})).await;
    assert_eq!(card["result"]["protocolVersion"], "0.3.0");
    assert_eq!(card["result"]["url"], format!("{}/a2a/jsonrpc", fixture.url()));
    assert_eq!(card["result"]["skills"][2]["id"], "echo");
    assert!(card["result"].get("supportedInterfaces").is_none());
}

#[tokio::test]
async fn every_endpoint_speaks_it_and_a_direct_reply_is_a_message() {
    let fixture = Fixture::start().await;
    for path in ["/a2a", "/a2a/", "/a2a/jsonrpc/", "/a2a/agents/echo", "/a2a/agents/echo/jsonrpc", "/a2a/echo/jsonrpc"]
    {
        let sent = post(&fixture, path, "message/send", said("hello")).await.json();
        assert_eq!(sent["result"]["kind"], "task", "{path}");
    }
    let direct = post(&fixture, "/a2a/agents/direct", "message/send", said("hello")).await.json();
    let reply = &direct["result"];
    assert_eq!((&reply["kind"], &reply["role"]), (&json!("message"), &json!("agent")), "{direct}");
    assert_eq!(reply["parts"], json!([{"kind": "text", "text": "hello"}]));
}

#[tokio::test]
async fn an_error_of_a_streaming_method_is_an_event_for_those_who_read_events() {
    let fixture = Fixture::start().await;
    for (method, params) in [("tasks/resubscribe", json!({"id": "nope"})), ("message/stream", json!({}))] {
        let ask = |accept: &str| {
            let ask = fixture.bare("POST", "/a2a/agents/echo").header("x-sb-token", TOKEN).header("Accept", accept);
            ask.json(&envelope(method, params.clone())).send()
        };
        let plain = ask("application/json").await;
        assert_eq!(plain.header("content-type"), Some("application/json"), "{method}");
        let told = ask("text/event-stream").await;
        assert_eq!((told.status, told.header("content-type")), (200, Some("text/event-stream")), "{method}");
        let event = told.body.strip_prefix("data: ").and_then(|event| event.strip_suffix("\n\n")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(event).unwrap(), plain.json(), "{method}");
        assert!(plain.json()["error"]["code"].is_number());
    }
}

#[tokio::test]
async fn x_2_a_slash_method_is_of_0_3() {
    let fixture = Fixture::start().await;
    let ask = |version: Option<&str>| {
        let ask = fixture.bare("POST", "/a2a/jsonrpc").header("x-sb-token", TOKEN);
        let ask = match version {
            Some(version) => ask.header("A2A-Version", version),
            None => ask,
        };
        ask.json(&envelope("message/send", said("hello"))).send()
    };
    for version in [None, Some(""), Some("0.3"), Some("0.3.0")] {
        assert_eq!(ask(version).await.json()["result"]["kind"], "task", "{version:?}");
    }
    // 1.0 has no such method.
    for version in ["1.0", "1"] {
        assert_eq!(ask(Some(version)).await.json()["error"]["code"], -32601, "{version}");
    }
    for version in ["0.2", "2.0", "abc"] {
        let refused = ask(Some(version)).await.json();
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32009), &json!("r-1")), "{version}");
        assert_eq!(refused["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
    }
}

#[tokio::test]
async fn streams_are_frames_of_0_3_with_numbers() {
    let fixture = Fixture::start().await;
    let reply = post(&fixture, "/a2a/jsonrpc", "message/stream", said("stream")).await;
    let records = reply.records();
    let ids: Vec<u64> = records.iter().map(|(id, _, _)| id.unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    let results = reply.results();
    let kinds: Vec<&str> = results.iter().map(|result| result["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("task", "status-update"), "X-13");
    assert!(kinds.contains(&"artifact-update"));
    for (n, result) in results.iter().enumerate().filter(|(_, result)| result["kind"] == "status-update") {
        assert_eq!(result["final"], n + 1 == results.len(), "{result}");
    }

    // The same events as in 1.0, by number.
    let task = results[0]["id"].as_str().unwrap();
    let replayed = fixture.get(&format!("/a2a/tasks/{task}:subscribe?afterSequence=0")).await.events();
    assert_eq!(replayed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);

    let params = json!({"id": task});
    let resumed = post(&fixture, "/a2a/jsonrpc?afterSequence=2", "tasks/resubscribe", params.clone()).await.records();
    assert_eq!(resumed, records.iter().filter(|(id, _, _)| *id > Some(2)).cloned().collect::<Vec<_>>());
    let ended = call(&fixture, "tasks/resubscribe", params).await;
    assert_eq!(ended["error"]["code"], -32004, "X-12");
}

#[tokio::test]
async fn a_running_task_is_resubscribed_to_with_the_task_first() {
    let fixture = Fixture::start().await;
    let id = fixture.slow_task("long").await;
    let ask = fixture.bare("POST", "/a2a/jsonrpc").header("x-sb-token", TOKEN);
    let mut open = ask.json(&envelope("tasks/resubscribe", json!({"id": id}))).open().await;
    let first = read_until(&mut open, "\n\n").await;
    assert!(first.contains(r#""result":{"kind":"task""#), "{first}");
    call(&fixture, "tasks/cancel", json!({"id": id})).await;
    let rest = read_until(&mut open, "\"final\":true").await;
    assert!(rest.contains(r#""state":"canceled""#), "{rest}");
}

#[tokio::test]
async fn errors_of_0_3_are_bare() {
    let fixture = Fixture::start().await;
    let push = json!({"taskId": "x", "pushNotificationConfig": {"url": "https://x"}});
    let file =
        json!({"message": {"messageId": "m", "role": "user", "parts": [{"kind": "file", "file": {"bytes": "aGk="}}]}});
    let empty = json!({"message": {"messageId": "m", "role": "user", "parts": []}});
    for (method, params, code) in [
        ("tasks/get", json!({"id": "nope"}), -32001),
        ("tasks/get", json!({}), -32602),
        ("message/send", json!({}), -32602),
        ("message/send", empty.clone(), -32602),
        ("message/stream", empty, -32602),
        ("message/send", file, -32005),
        ("tasks/pushNotificationConfig/set", push, -32001),
        ("tasks/pushNotificationConfig/get", json!({"id": "x"}), -32001),
        ("tasks/pushNotificationConfig/list", json!({"id": "x"}), -32001),
        ("tasks/pushNotificationConfig/delete", json!({"id": "x", "pushNotificationConfigId": "c"}), -32001),
    ] {
        let error = call(&fixture, method, params.clone()).await;
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &json!("r-1")), "{method} {params}");
        assert!(error["error"]["message"].is_string() && error["error"].get("data").is_none(), "{error}");
    }
    let unknown = post(&fixture, "/a2a/agents/secret", "message/send", said("x")).await.json();
    assert_eq!(unknown["error"]["code"], -32602, "X-33");
    let none = fixture.call("tasks/list", json!({})).await;
    assert_eq!(none["error"]["code"], -32601, "ListTasks has no name in 0.3");
}

#[tokio::test]
async fn blocking_and_the_context_are_understood() {
    let fixture = Fixture::start().await;
    let mut params = said("long");
    params["configuration"] = json!({"blocking": false});
    params["contextId"] = json!("c-params");
    let begun = post(&fixture, "/a2a/agents/slow", "message/send", params).await.json();
    assert!(["submitted", "working"].contains(&begun["result"]["status"]["state"].as_str().unwrap()), "{begun}");
    assert_eq!(begun["result"]["contextId"], "c-params", "X-22");

    // Idempotency is that of the operation: the same message in the same context is the same task.
    let mut params = said("hello");
    params["message"]["contextId"] = json!("c-1");
    let first = call(&fixture, "message/send", params.clone()).await["result"]["id"].clone();
    assert_eq!(call(&fixture, "message/send", params).await["result"]["id"], first);
    let mut in_1_0 = message("hello");
    in_1_0["message"]["contextId"] = json!("c-1");
    assert_eq!(fixture.call("SendMessage", in_1_0).await["result"]["task"]["id"], first);
}

#[tokio::test]
async fn the_older_extensions_header_works() {
    let fixture = Fixture::start().await;
    let uri = "urn:switchboard:a2a:resume-cursor:v1";
    for name in ["X-A2A-Extensions", "A2A-Extensions"] {
        let ask = fixture.bare("POST", "/a2a").header("x-sb-token", TOKEN).header(name, uri);
        let reply = ask.json(&envelope("message/send", said("x"))).send().await;
        assert_eq!(reply.header("x-a2a-extensions"), Some(uri), "{name}");
    }
}

#[tokio::test]
async fn another_tenant_finds_nothing() {
    let fixture = Fixture::start().await;
    let id = fixture.slow_task("long").await;
    for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        let ask = fixture.bare("POST", "/a2a").header("x-sb-token", OTHER_TOKEN);
        let foreign = ask.json(&envelope(method, json!({"id": id}))).send().await.json();
        assert_eq!(foreign["error"], json!({"code": -32001, "message": format!("task not found: {id}")}), "{method}");
    }
}

#[tokio::test]
async fn x_5_s0_29_the_public_card_can_carry_both() {
    let fixture = Fixture::with("cards.compat = \"0.3\"").await;
    let card = fixture.bare("GET", "/.well-known/agent-card.json").send().await.json();
    assert_eq!((&card["protocolVersion"], &card["preferredTransport"]), (&json!("0.3.0"), &json!("JSONRPC")));
    assert_eq!(card["url"], format!("{}/a2a/jsonrpc", fixture.url()));
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
    let bearer = &card["securitySchemes"]["bearerAuth"];
    assert_eq!((&bearer["type"], &bearer["scheme"]), (&json!("http"), &json!("Bearer")));
    assert_eq!(card["security"][0], json!({"bearerAuth": []}));
    let plain = Fixture::start().await.bare("GET", "/.well-known/agent-card.json").send().await.json();
    for field in ["url", "preferredTransport", "protocolVersion", "security"] {
        assert!(plain.get(field).is_none(), "{field}");
    }
}
