//! The 0.3 dialect under `/a2a`, as it is on the wire: slash methods of real 0.3 clients, by the rules of A2A and not of Arbiter.
//! That they do what the operations of 1.0 do is proven in `protocol`.

use serde_json::{Value, json};

use super::{
    rig::{Fixture, TOKEN, envelope, said},
    wire::Reply,
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
async fn x_1_slash_methods_answer_in_their_dialect() {
    let fixture = Fixture::start().await;
    let sent = call(&fixture, "message/send", said("hello")).await;
    let task = &sent["result"];
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{sent}");
    assert_eq!(task["status"]["message"]["kind"], "message");
    assert_eq!(task["history"][0]["parts"], json!([{"kind": "text", "text": "hello"}]));
    let id = task["id"].clone();

    assert_eq!(fixture.call("GetTask", json!({"id": id})).await["result"]["id"], id, "it is the same task");

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
async fn x_22_blocking_and_the_context_are_understood() {
    let fixture = Fixture::start().await;
    let mut params = said("long");
    params["configuration"] = json!({"blocking": false});
    params["contextId"] = json!("c-params");
    let begun = post(&fixture, "/a2a/agents/slow", "message/send", params).await.json();
    assert!(["submitted", "working"].contains(&begun["result"]["status"]["state"].as_str().unwrap()), "{begun}");
    assert_eq!(begun["result"]["contextId"], "c-params", "X-22");
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
async fn what_has_no_name_in_0_3_is_no_method() {
    let fixture = Fixture::start().await;
    for (method, params) in [("tasks/get", json!({})), ("message/send", json!({})), ("message/stream", json!({}))] {
        assert_eq!(call(&fixture, method, params).await["error"]["code"], -32602, "{method}");
    }
    let none = fixture.call("tasks/list", json!({})).await;
    assert_eq!(none["error"]["code"], -32601, "ListTasks has no name in 0.3");
}
