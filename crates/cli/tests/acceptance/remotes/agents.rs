//! Remotes that are called as agents of this server, over every binding and in both dialects.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{chunk, completing, status, streaming_card};
use crate::harness::{
    grpc::{A2A, GATEWAY, Grpc},
    http::{artifact_text, message, state, text, to, with_json},
    remote::{Answer, Caller, Remote, Setup, card_10, task_03, task_10},
};

const CARD: &str = "/a2a/agents/quinn/.well-known/agent-card.json";

#[tokio::test(flavor = "multi_thread")]
async fn x_46_an_entry_is_an_agent_over_every_binding() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let api = caller.api();
    let done = |task: &Value| assert_eq!((state(task), artifact_text(task).as_str()), ("COMPLETED", "done"));
    let plain = caller.sends("quinn", "work").await;
    done(&plain);
    assert!(text(&plain, "/id") != "rt-1" && text(&plain, "/contextId") != "rc-1", "ids are ours: {plain:#}");
    done(&api.send(&to("quinn", "by the gateway")).await);
    let rpc = api.rpc_at("/a2a/agents/quinn/jsonrpc", "SendMessage", &json!({"message": message("by JSON-RPC")})).await;
    done(&rpc["result"]["task"]);
    let old =
        json!({"kind": "message", "messageId": "m-old", "role": "user", "parts": [{"kind": "text", "text": "old"}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}});
    let bare = api.bare(Method::POST, "/a2a/agents/quinn").bearer_auth(api.token().unwrap());
    let old = api.call(with_json(bare, &call)).await.ok();
    assert_eq!(old["result"]["status"]["state"], "completed", "{old:#}");
    assert_eq!(artifact_text(&old["result"]), "done");
    let grpc = Grpc::new(&caller.server.url);
    for service in [A2A, GATEWAY] {
        done(&grpc.ok(service, "SendMessage", &to("quinn", "by gRPC")).await["task"]);
    }
    assert_eq!(caller.home.ok(&["send", "--agent", "quinn", "by hand"]), "done\n");
    assert_eq!(remote.calls().len(), 7);
}

#[tokio::test]
async fn x_46_the_card_is_our_own_and_signed_by_us() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let reply = caller.api().get(CARD).await;
    let card = reply.ok();
    assert!(!card["signatures"].as_array().unwrap().is_empty(), "{card:#}");
    let said = card.to_string();
    assert!(!said.contains(&remote.base), "where the remote is is the operator's business: {said}");
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        assert!(text(interface, "/url").contains(caller.server.address()), "{card:#}");
    }
    assert_eq!(card["description"], "Looks after pull requests.", "{card:#}");
    assert!(card["skills"].as_array().unwrap().iter().any(|skill| skill["id"] == "pr_review"), "{card:#}");
}

#[tokio::test]
async fn x_46_a_stream_of_the_remote_is_a_stream_here() {
    let remote = Remote::with_card(streaming_card).await;
    let events = [
        task_03("rt-1", "rc-1", "submitted", ""),
        status("working", false),
        chunk("one ", false, false),
        chunk("two ", true, false),
        chunk("three", true, true),
        status("completed", true),
    ];
    remote.says("message/stream", Answer::slow_events(events, Duration::from_millis(200)));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let api = caller.api();
    let mut stream = api.stream("/a2a/agents/quinn/message:stream", &json!({"message": message("work")})).await;
    let frames = stream.rest().await;
    assert_eq!(frames[0].kind(), "task", "{frames:#?}");
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"), "{frames:#?}");
    let pieces: Vec<String> =
        frames.iter().map(|frame| frame.artifact_text()).filter(|piece| !piece.is_empty()).collect();
    assert_eq!(pieces, ["one ", "two ", "three"], "{frames:#?}");
    let id = frames[0].task_id();
    assert!(frames.iter().all(|frame| frame.task_id() == id && id != "rt-1"), "{frames:#?}");
    assert!(!frames.iter().any(|frame| frame.body.to_string().contains("rc-1\"")), "ids are ours: {frames:#?}");
    // The journal has it all, for whoever comes later.
    let task = api.task(id).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "one two three"));
    assert_eq!(remote.calls().len(), 1);
}

#[tokio::test]
async fn x_46_a_file_of_kind_remote_makes_any_remote_an_agent() {
    let remote = completing("done").await;
    let url = remote.agent();
    let named = "kind = \"remote\"\n[remote]\nname = \"weatherbot\"\n";
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{url}\"}}\n");
    let caller = Setup::new()
        .yaml(&yaml)
        .json(&json!({"weatherbot": {"url": url, "auth": {"token": "tok-inline"}}}))
        .file("agents/by_name.toml", named)
        .file("agents/of_yaml.toml", "kind = \"remote\"\ntenants = [\"default\"]\n[remote]\nname = \"quinn\"\n")
        .file(
            "agents/by_url.toml",
            &format!("kind = \"remote\"\nname = \"Ours\"\n[remote]\nurl = \"{url}\"\napi_key_env = \"KEY\"\nheaders = {{ X-Team = \"blue\" }}\n"),
        )
        .env("KEY", "key-1")
        .start()
        .await;
    for (agent, header, value) in [
        ("by_name", "authorization", Some("Bearer tok-inline")),
        ("of_yaml", "x-api-key", None),
        ("by_url", "x-api-key", Some("key-1")),
        ("by_url", "x-team", Some("blue")),
    ] {
        let task = caller.sends(agent, "work").await;
        assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{agent}");
        assert_eq!(remote.calls().pop().unwrap().header(header), value, "{agent}");
    }
    // what a remote may see depends on the registry that has it, not on who calls it.
    caller.sends("by_name", "work").await;
    let call = remote.calls().pop().unwrap();
    assert!(call.params().get("metadata").is_none() && call.header("x-correlation-id").is_none(), "{call:#?}");
    // The message of one that a file of ours describes goes on with all that was said in it, and traced anew.
    let said = json!({
        "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "work"}], "extensions": ["urn:x", "urn:y"],
        "referenceTaskIds": ["t-1"], "metadata": {"unit": "kelvin", "correlationId": "forged"},
    });
    let request = json!({"message": said, "metadata": {"private": true}});
    for (agent, goes_on) in [("by_url", true), ("of_yaml", false), ("by_name", false)] {
        caller.api().post(&format!("/a2a/agents/{agent}/message:send"), &request).await.task();
        let call = remote.calls().pop().unwrap();
        let expected = |value: Value| if goes_on { value } else { Value::Null };
        assert_eq!(call.message()["metadata"], expected(json!({"unit": "kelvin"})), "{agent}");
        assert_eq!(call.message()["extensions"], expected(json!(["urn:x", "urn:y"])), "{agent}");
        assert_eq!(call.message()["referenceTaskIds"], expected(json!(["t-1"])), "{agent}");
        let named = call.header("x-a2a-extensions").or(call.header("a2a-extensions"));
        assert_eq!(named.is_some_and(|named| named.contains("urn:x, urn:y")), goes_on, "{agent} {named:?}");
        assert!(!call.everything().contains("private"), "{agent}");
    }
    let listed = caller.api().get("/v1/remotes").await.ok();
    let file = listed["remotes"].as_array().unwrap().iter().find(|remote| remote["name"] == "by_url");
    assert_eq!(file.unwrap_or_else(|| panic!("{listed:#}"))["registry"], "file");
}

#[tokio::test]
async fn x_46_the_remotes_of_a2a_agents_json_are_not_served_by_themselves() {
    let remote = completing("done").await;
    let caller = Setup::new().json(&json!({"weatherbot": {"url": remote.agent()}})).start().await;
    let body = json!({"message": message("work")});
    caller.api().post("/a2a/agents/weatherbot/message:send", &body).await.error(404);
    caller.api().get("/a2a/agents/weatherbot/.well-known/agent-card.json").await.error(404);
    assert!(remote.calls().is_empty());
}

#[tokio::test]
async fn x_46_an_entry_for_some_tenants_is_nobody_elses() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\", tenants: [second]}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).start().await;
    let token = "sb_test-token-of-the-tenant-second-00";
    caller.home.add_tenant("second", token).await;
    let body = json!({"message": message("work")});
    caller.api().post("/a2a/agents/quinn/message:send", &body).await.error(404);
    caller.chat(&json!({"agent": "quinn", "message": "work"})).await.error(404);
    assert_eq!(caller.api().get("/v1/remotes").await.ok()["remotes"], json!([]));
    assert_eq!(caller.a2a("list").await, "no remote agents configured");
    for line in ["card quinn", "call quinn hello"] {
        assert!(caller.a2a(line).await.starts_with("ERR: no remote agent named 'quinn'"), "{line}");
    }
    caller.api().get("/v1/remotes/quinn/card").await.error(404);
    caller.chat(&json!({"skill": "pr_review", "message": "work"})).await.error(404);
    assert!(remote.calls().is_empty());
    let second = caller.api().with_token(Some(token));
    assert_eq!(
        second.post("/a2a/agents/quinn/message:send", &body).await.task()["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}

#[tokio::test]
async fn x_46_a_remote_is_called_over_http_json_where_its_card_says_so() {
    let remote = Remote::start().await;
    let mut card = card_10(&remote.agent());
    card["supportedInterfaces"][0]["protocolBinding"] = json!("HTTP+JSON");
    remote.has_card(&card);
    let result = json!({"task": task_10("rt-1", "rc-1", "COMPLETED", "done")});
    remote.says("/a2a/message:send", Answer::json(&result));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let task = caller.sends("quinn", "work").await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"));
    let call = remote.only_call();
    assert_eq!((call.path.as_str(), call.header("a2a-version")), ("/a2a/message:send", Some("1.0")));
    assert_eq!(call.body["message"]["parts"][0]["text"], "work");
    assert_eq!(caller.remote("quinn").await["binding"], "HTTP+JSON");
}

#[tokio::test]
async fn x_46_files_and_data_in_answers_are_kept() {
    let remote = completing("").await;
    let mut task = task_03("rt-1", "rc-1", "completed", "");
    task["artifacts"] = json!([{"artifactId": "a", "name": "report", "parts": [
        {"kind": "data", "data": {"n": 1}},
        {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "hi.txt"}},
        {"kind": "text", "text": "see above"},
    ]}]);
    remote.says("message/send", Answer::Result(task));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let task = caller.sends("quinn", "work").await;
    let parts = &task["artifacts"][0]["parts"];
    assert_eq!(task["artifacts"][0]["name"], "report", "{task:#}");
    assert_eq!((&parts[0]["data"], &parts[1]["raw"]), (&json!({"n": 1}), &json!("aGk=")), "{task:#}");
    assert_eq!((&parts[1]["filename"], &parts[2]["text"]), (&json!("hi.txt"), &json!("see above")), "{task:#}");
}
