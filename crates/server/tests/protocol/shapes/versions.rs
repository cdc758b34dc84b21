//! `A2A-Version`: required on everything of 1.0 but the cards.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::protocol::{
    grpc,
    http::{Api, reason},
    raw,
    scenario::said,
    server::TestServer,
};

fn rest(api: &Api, query: &str, version: Option<&str>) -> RequestBuilder {
    raw::request(api, &format!("GET /a2a/tasks{query}\nA2A-Version: {}", version.unwrap_or_default()))
}

fn rpc(api: &Api, query: &str, version: Option<&str>, method: &str) -> RequestBuilder {
    let call = json!({"jsonrpc": "2.0", "id": "kept", "method": method, "params": {"message": said("hello")}});
    let version = version.unwrap_or_default();
    let head = format!("POST /a2a/jsonrpc{query}\nContent-Type: application/json\nA2A-Version: {version}");
    raw::request(api, &head).body(call.to_string())
}

#[tokio::test]
async fn s3_46_x_2_x_3_x_38_requests_must_say_1_0() {
    let server = TestServer::start().await;
    let api = server.api();
    let unversioned = server.grpc().without("a2a-version");
    for refused in [None, Some(""), Some("0.3"), Some("0.3.0"), Some("2.0"), Some("1.1"), Some("10"), Some("abc")] {
        // A header that is there and empty counts as none.
        let request = match refused {
            Some("") => rest(&api, "", None).header("A2A-Version", ""),
            refused => rest(&api, "", refused),
        };
        let error = api.call(request).await.error(400);
        assert_eq!(reason(&error), "VERSION_NOT_SUPPORTED", "{refused:?}");
        assert_eq!(error["details"][0]["metadata"]["supported"], "1.0");
        let envelope = api.call(rpc(&api, "", refused, "SendMessage")).await.ok();
        assert_eq!((&envelope["error"]["code"], &envelope["id"]), (&json!(-32009), &json!("kept")), "{refused:?}");
        assert_eq!(reason(&envelope["error"]), "VERSION_NOT_SUPPORTED");
        let caller = refused.map_or(unversioned.clone(), |version| unversioned.with("a2a-version", version));
        for service in [grpc::A2A, grpc::GATEWAY] {
            let refusal = caller.call(service, "ListTasks", &json!({})).await.error(9);
            assert_eq!(reason(&refusal), "VERSION_NOT_SUPPORTED", "{refused:?}");
        }
    }
    assert_eq!(reason(&api.call(rest(&api, "?A2A-Version=0.3", None)).await.error(400)), "VERSION_NOT_SUPPORTED");
    // Nothing of the above did any work.
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);

    for accepted in ["1.0", "1", "1.0.0", "1.0.1", "1.0.3"] {
        let query = format!("?A2A-Version={accepted}");
        for (query, version) in [("", Some(accepted)), (query.as_str(), None)] {
            api.call(rest(&api, query, version)).await.ok();
            let envelope = api.call(rpc(&api, query, version, "SendMessage")).await.ok();
            assert!(envelope["result"]["task"].is_object(), "{accepted}: {envelope:#}");
        }
        let answer = unversioned.with("a2a-version", accepted).call(grpc::A2A, "ListTasks", &json!({})).await;
        assert_eq!(answer.headers["a2a-version"], "1.0");
        answer.ok();
    }
}

#[tokio::test]
async fn x_2_the_version_comes_after_the_method() {
    let server = TestServer::start().await;
    let api = server.api();
    for (method, version, code) in [
        ("ListTasks", None, Some(-32009)),
        ("ListTasks", Some("0.3"), Some(-32009)),
        ("ListTasks", Some("1.0"), None),
        // What 0.3 makes of a message of 1.0.
        ("message/send", None, Some(-32602)),
        ("message/send", Some("0.3"), Some(-32602)),
        ("message/send", Some("1.0"), Some(-32601)),
        ("message/send", Some("9"), Some(-32009)),
        ("nope", Some("9"), Some(-32601)),
    ] {
        let reply = api.call(rpc(&api, "", version, method)).await.ok();
        assert_eq!((reply["error"]["code"].as_i64(), &reply["id"]), (code, &json!("kept")), "{method} {version:?}");
    }
}

#[tokio::test]
async fn x_2_who_reads_a_card_may_not_know_yet_which_versions_there_are() {
    let server = TestServer::start().await;
    let (api, grpc_of) = (server.api(), server.grpc().without("a2a-version"));
    for version in [None, Some("0.3"), Some("2.0")] {
        let shown = version.unwrap_or_default();
        let get = async |path: &str| raw::call(&api, &format!("GET {path}\nA2A-Version: {shown}"), "").await.ok();
        get("/.well-known/agent-card.json").await;
        assert_eq!(get("/a2a/echo/extendedAgentCard").await["name"], "Echo", "{version:?}");
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {"tenant": "echo"}});
        let head = format!("POST /a2a/jsonrpc\nContent-Type: application/json\nA2A-Version: {shown}");
        assert_eq!(raw::call(&api, &head, call.to_string()).await.ok()["result"]["name"], "Echo", "{version:?}");
        let caller = version.map_or(grpc_of.clone(), |version| grpc_of.with("a2a-version", version));
        for service in [grpc::A2A, grpc::GATEWAY] {
            assert_eq!(caller.ok(service, "GetExtendedAgentCard", &json!({"tenant": "echo"})).await["name"], "Echo");
        }
    }
}
