//! `A2A-Version`: required on everything of 1.0 but the cards.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{
    http::{Api, message, reason, with_json},
    rig::{Rig, TOKEN},
};

fn rest(api: &Api, query: &str) -> RequestBuilder {
    api.bare(Method::GET, &format!("/a2a/tasks{query}")).bearer_auth(TOKEN)
}

fn rpc(api: &Api, query: &str) -> RequestBuilder {
    let call =
        json!({"jsonrpc": "2.0", "id": "kept", "method": "SendMessage", "params": {"message": message("hello")}});
    with_json(api.bare(Method::POST, &format!("/a2a/jsonrpc{query}")).bearer_auth(TOKEN), &call)
}

fn versioned(request: RequestBuilder, version: Option<&str>) -> RequestBuilder {
    match version {
        Some(version) => request.header("A2A-Version", version),
        None => request,
    }
}

fn check_error(error: &Value) {
    assert_eq!(reason(error), "VERSION_NOT_SUPPORTED");
}

#[tokio::test]
async fn s3_46_x_38_requests_must_say_1_0() {
    let rig = Rig::start().await;
    let api = rig.api();
    for refused in [None, Some(""), Some("0.3"), Some("0.3.0"), Some("2.0"), Some("1.1"), Some("10"), Some("abc")] {
        let reply = api.call(versioned(rest(&api, ""), refused)).await;
        check_error(&reply.error(400));
        let reply = api.call(versioned(rpc(&api, ""), refused)).await;
        let envelope = reply.ok();
        assert_eq!(envelope["error"]["code"], -32009, "{refused:?}: {envelope:#}");
        assert_eq!(envelope["id"], "kept");
        check_error(&envelope["error"]);
    }
    // Nothing of the above did any work.
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 0);

    for accepted in ["1.0", "1", "1.0.0", "1.0.1"] {
        api.call(versioned(rest(&api, ""), Some(accepted))).await.ok();
        let envelope = api.call(versioned(rpc(&api, ""), Some(accepted))).await.ok();
        assert!(envelope["result"]["task"].is_object(), "{accepted}: {envelope:#}");
    }
    api.call(rest(&api, "?A2A-Version=1.0")).await.ok();
    let envelope = api.call(rpc(&api, "?A2A-Version=1.0")).await.ok();
    assert!(envelope["result"]["task"].is_object(), "{envelope:#}");
    check_error(&api.call(rest(&api, "?A2A-Version=0.3")).await.error(400));

    // Cards are exempt.
    for version in [None, Some("0.3"), Some("2.0")] {
        let card = api.bare(Method::GET, "/.well-known/agent-card.json");
        api.call(versioned(card, version)).await.ok();
    }
}
