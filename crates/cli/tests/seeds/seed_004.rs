//! Seed 004, the executor: what is sent to the agents of `agents.yaml`, and what becomes of their answers.

mod answers;
mod cards;
mod streams;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    TOKEN,
    http::{Reply, text, with_json},
    remote::{Answer, Asked, Caller, Remote, Setup, card_03, card_10, task_03, task_10},
};

/// An agent of 0.3 that completes whatever it gets with this text.
async fn completing(text: &str) -> Remote {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", text)));
    remote
}

/// A task of 0.3 that asks this.
fn asking(id: &str, context: &str, question: &str) -> Value {
    let mut task = task_03(id, context, "input-required", "");
    let parts = json!([{"kind": "text", "text": question}]);
    task["status"]["message"] = json!({"kind": "message", "messageId": "q", "role": "agent", "parts": parts});
    task
}

/// What went wrong, in words: the outcome of a task that failed, or that of a remote which could not be talked to.
#[track_caller]
fn problem(reply: &Reply) -> String {
    match reply.status {
        200 => {
            let outcome = reply.json();
            assert_eq!(outcome["taskState"], "failed", "{outcome:#}");
            text(&outcome, "/response").to_owned()
        }
        _ => {
            let error = reply.error(502);
            assert_eq!(error["status"], "UNAVAILABLE", "{error:#}");
            text(&error, "/message").to_owned()
        }
    }
}

#[tokio::test]
async fn s4_1_s4_2_every_entry_is_an_agent_of_type_a2a() {
    let remote = completing("done").await;
    let url = remote.agent();
    let yaml = format!(
        "agents:\n  - {{name: one, url: \"{url}\"}}\n  - {{name: two, url: \"{url}\"}}\n  - {{name: three, url: \"{url}\"}}\n"
    );
    let caller = Setup::new().yaml(&yaml).start().await;
    let listed = caller.api().get("/v1/remotes").await.ok();
    let mut names = Vec::new();
    for remote in listed["remotes"].as_array().unwrap() {
        assert_eq!((&remote["type"], &remote["registry"]), (&json!("a2a"), &json!("agents.yaml")), "{remote:#}");
        assert!(remote.get("url").is_none(), "where it is is the operator's business: {remote:#}");
        names.push(text(remote, "/name").to_owned());
    }
    names.sort();
    assert_eq!(names, ["one", "three", "two"]);
    for name in ["one", "two", "three"] {
        assert_eq!(caller.asks(name, "work").await["response"], "done", "{name}");
    }
    assert_eq!(remote.calls().len(), 3);
    let agents = caller.home.json(&["agent", "list"]);
    for name in ["one", "two", "three"] {
        let agent = agents.iter().find(|agent| agent["id"] == name).unwrap_or_else(|| panic!("{agents:#?}"));
        assert_eq!(agent["type"], "a2a", "{agent:#}");
    }
}

#[tokio::test]
async fn s4_3_s4_4_s4_6_s4_12_the_first_turn_as_it_is_on_the_wire() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let chat = json!({"agent": "quinn", "message": "look at #12", "skill": "pr_review"});
    let outcome = caller.chat_with(&chat, &[("X-Correlation-Id", "corr-1"), ("X-Parent-Id", "parent-1")]).await.ok();
    assert_eq!((&outcome["response"], &outcome["correlationId"]), (&json!("done"), &json!("corr-1")));
    let call = remote.only_call();
    assert_eq!((call.method.as_str(), call.path.as_str(), call.rpc()), ("POST", "/a2a", "message/send"));
    assert_eq!(call.body["jsonrpc"], "2.0");
    assert!(!call.body["id"].is_null(), "{}", call.body);
    let message = call.message();
    assert_eq!((&message["role"], &message["kind"]), (&json!("user"), &json!("message")));
    assert_eq!(message["parts"], json!([{"kind": "text", "text": "look at #12"}]));
    assert!(!text(message, "/messageId").is_empty());
    let metadata = &call.params()["metadata"];
    assert_eq!((&metadata["skillHint"], &metadata["correlationId"]), (&json!("pr_review"), &json!("corr-1")));
    assert_eq!(metadata["parentId"], "parent-1");
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!((call.header("x-correlation-id"), call.header("x-parent-id")), (Some("corr-1"), Some("parent-1")));
    // It is the remote that names its context and its task.
    let body = call.body.to_string();
    assert!(!body.contains("contextId") && !body.contains("taskId"), "{body}");
}

#[tokio::test]
async fn s4_3_the_path_is_exactly_that_of_the_url() {
    let remote = completing("done").await;
    for path in ["/", "/deep/er/a2a/", "/rpc?tenant=x", "/a2a/v2"] {
        let caller = Caller::of("quinn", &format!("{}{path}", remote.base)).await;
        assert_eq!(caller.asks("quinn", "work").await["response"], "done", "{path}");
        assert_eq!(remote.calls().pop().unwrap().path, path);
    }
}

#[tokio::test]
async fn s4_5_s4_11_s4_13_s4_14_s4_16_ids_go_round_and_the_caller_passes_on_what_it_got() {
    let remote = completing("").await;
    remote.on(
        "message/send",
        [
            Answer::Result(asking("rt-9", "rc-9", "which city?")),
            Answer::Result(asking("rt-9", "rc-9", "which day?")),
            Answer::Result(task_03("rt-9", "rc-9", "completed", "sunny")),
        ],
    );
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let first = caller.asks("quinn", "weather").await;
    assert_eq!((&first["taskState"], &first["response"]), (&json!("input-required"), &json!("which city?")));
    assert_eq!(first["remote"], json!({"taskId": "rt-9", "contextId": "rc-9"}), "{first:#}");
    let (task, context) = (text(&first, "/taskId"), text(&first, "/contextId"));
    let go_on = |message: &str| json!({"agent": "quinn", "message": message, "taskId": task, "contextId": context});
    let second = caller.chat(&go_on("San Francisco")).await.ok();
    assert_eq!((&second["taskState"], &second["response"]), (&json!("input-required"), &json!("which day?")));
    assert_eq!((text(&second, "/taskId"), text(&second, "/contextId")), (task, context), "it is the same task");
    let third = caller.chat(&go_on("tomorrow")).await.ok();
    assert_eq!((&third["taskState"], &third["response"]), (&json!("completed"), &json!("sunny")));
    assert_eq!((text(&third, "/taskId"), text(&third, "/contextId")), (task, context));

    let calls = remote.calls();
    assert_eq!(calls.len(), 3);
    for call in &calls[1..] {
        assert_eq!(call.message()["taskId"], "rt-9", "{}", call.body);
        assert_eq!(call.message()["contextId"], "rc-9", "where 0.3 has it: {}", call.body);
        assert_eq!(call.params()["contextId"], "rc-9", "where the seed has it: {}", call.body);
    }
    let ids = |call: &Asked| text(call.message(), "/messageId").to_owned();
    assert!(ids(&calls[0]) != ids(&calls[1]) && ids(&calls[1]) != ids(&calls[2]), "each turn is a message of its own");
}

#[tokio::test]
async fn s4_7_s4_10_x_48_whose_flow_it_is_is_told_in_header_and_metadata() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let chat = json!({"agent": "quinn", "message": "work"});
    // Nobody said anything: the one is made up, the other is not.
    let minted = caller.chat(&chat).await.ok();
    let call = remote.calls().pop().unwrap();
    let correlation = text(&minted, "/correlationId");
    assert!(!correlation.is_empty());
    assert_eq!(call.header("x-correlation-id"), Some(correlation));
    assert_eq!(call.params()["metadata"]["correlationId"], correlation);
    assert_eq!(call.header("x-parent-id"), None);
    assert_eq!(call.params()["metadata"].get("parentId"), None);
    // The headers of the caller.
    let given = caller.chat_with(&chat, &[("X-Correlation-Id", "flow-1"), ("X-Parent-Id", "span-1")]).await.ok();
    let call = remote.calls().pop().unwrap();
    assert_eq!(given["correlationId"], "flow-1");
    assert_eq!((call.header("x-correlation-id"), call.header("x-parent-id")), (Some("flow-1"), Some("span-1")));
    assert_eq!(call.params()["metadata"]["correlationId"], "flow-1");
    assert_eq!(call.params()["metadata"]["parentId"], "span-1");
    // A trace says the same where the headers do not.
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let traced = caller.chat_with(&chat, &[("traceparent", &parent)]).await.ok();
    let call = remote.calls().pop().unwrap();
    assert_eq!((&traced["correlationId"], call.header("x-correlation-id")), (&json!(trace), Some(trace)));
    assert_eq!(call.header("x-parent-id"), call.params()["metadata"]["parentId"].as_str());
    let ours = call.header("traceparent").unwrap_or_default();
    assert!(ours.starts_with(&format!("00-{trace}-")) && ours != parent, "the same trace, a span of our own: {ours}");
    // A flow keeps its name over its turns.
    let next = json!({"agent": "quinn", "message": "more", "contextId": given["contextId"]});
    caller.chat_with(&next, &[("X-Correlation-Id", "flow-1")]).await.ok();
    assert_eq!(remote.calls().pop().unwrap().params()["metadata"]["correlationId"], "flow-1");
}

#[tokio::test]
async fn s4_10_the_message_that_caused_a_call_is_its_parent() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let api = caller.api();
    let body = json!({"message": {"messageId": "cause-1", "role": "ROLE_USER", "parts": [{"text": "work"}]}});
    let request = api.request(Method::POST, "/a2a/agents/quinn/message:send").header("X-Correlation-Id", "flow-2");
    api.call(with_json(request, &body)).await.task();
    let call = remote.only_call();
    assert_eq!((call.header("x-correlation-id"), call.header("x-parent-id")), (Some("flow-2"), Some("cause-1")));
    assert_eq!(call.params()["metadata"]["parentId"], "cause-1");
}

#[tokio::test]
async fn s4_8_the_api_key_is_that_of_the_variable() {
    let remote = completing("done").await;
    let yaml = format!("agents:\n  - {{name: ava, url: \"{}\", apiKeyEnv: AVA_API_KEY}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("AVA_API_KEY", "key-of-ava").start().await;
    assert_eq!(caller.asks("ava", "work").await["response"], "done");
    assert_eq!(remote.calls().pop().unwrap().header("x-api-key"), Some("key-of-ava"));
    assert!(!caller.server.log().contains("key-of-ava"));
    let without = Setup::new().yaml(&yaml).start().await;
    assert_eq!(without.asks("ava", "work").await["response"], "done");
    assert_eq!(remote.calls().pop().unwrap().header("x-api-key"), None);
}

#[tokio::test]
async fn s4_8_s4_30_other_credentials_and_headers_of_an_entry() {
    let remote = completing("done").await;
    let url = remote.agent();
    let yaml = format!(
        "agents:\n\
         \x20 - {{name: bearer, url: \"{url}\", auth: {{scheme: bearer, credentialsEnv: KEY}}, headers: {{X-Team: blue}}}}\n\
         \x20 - {{name: header, url: \"{url}\", auth: {{scheme: apiKey, credentialsEnv: KEY, header: X-Quinn-Key}}}}\n\
         \x20 - {{name: plain, url: \"{url}\", auth: {{scheme: apiKey, credentialsEnv: KEY}}}}\n"
    );
    let caller = Setup::new().yaml(&yaml).env("KEY", "key-1").start().await;
    for (name, header, value) in [
        ("bearer", "authorization", "Bearer key-1"),
        ("bearer", "x-team", "blue"),
        ("header", "x-quinn-key", "key-1"),
        ("plain", "x-api-key", "key-1"),
    ] {
        caller.asks(name, "work").await;
        assert_eq!(remote.calls().pop().unwrap().header(header), Some(value), "{name}");
    }
}

#[tokio::test]
async fn s4_8_client_credentials_are_exchanged_for_a_token_and_the_token_is_kept() {
    let remote = completing("done").await;
    remote.on(
        "/token",
        [
            Answer::json(&json!({"access_token": "first", "token_type": "Bearer", "expires_in": 3600})),
            Answer::json(&json!({"access_token": "second", "token_type": "Bearer", "expires_in": 3600})),
        ],
    );
    let yaml = format!(
        "agents:\n  - name: ava\n    url: \"{}\"\n    auth: {{scheme: oauth2, tokenUrl: \"{}/token\", clientIdEnv: ID, clientSecretEnv: SECRET, scope: a2a}}\n",
        remote.agent(),
        remote.base
    );
    let caller = Setup::new().yaml(&yaml).env("ID", "me").env("SECRET", "secret-of-me").start().await;
    caller.knows("ava").await;
    for _ in 0..2 {
        assert_eq!(caller.asks("ava", "work").await["response"], "done");
    }
    let (tokens, calls): (Vec<Asked>, Vec<Asked>) =
        remote.calls().into_iter().partition(|asked| asked.path == "/token");
    assert_eq!(tokens.len(), 1, "{tokens:#?}");
    assert_eq!(tokens[0].header("authorization"), Some("Basic bWU6c2VjcmV0LW9mLW1l"));
    assert!(calls.iter().all(|call| call.header("authorization") == Some("Bearer first")), "{calls:#?}");
    // A token that is not honoured any more is forgotten once.
    let works = Answer::Result(task_03("rt-2", "rc-2", "completed", "done"));
    remote.on("message/send", [Answer::status(401, "expired"), works]);
    assert_eq!(caller.asks("ava", "work").await["response"], "done");
    assert_eq!(remote.calls().pop().unwrap().header("authorization"), Some("Bearer second"));
}

#[tokio::test]
async fn s0_50_x_9_a_remote_never_sees_the_payload_or_the_caller() {
    let remote = completing("done").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let api = caller.api();
    let body = json!({
        "message": {
            "messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "only this"}],
            "metadata": {"memory": "private-memory"},
        },
        "metadata": {"memory": "private-memory"},
    });
    let request = api.request(Method::POST, "/a2a/agents/quinn/message:send").header("Cookie", "session=private");
    api.call(with_json(request, &body)).await.task();
    caller.chat(&json!({"agent": "quinn", "message": "only this", "skill": "pr_review"})).await.ok();
    assert_eq!(remote.calls().len(), 2);
    for asked in remote.asked() {
        let everything = asked.everything();
        for secret in [TOKEN, "private", "echo", "Cookie", "cookie"] {
            assert!(!everything.contains(secret), "{secret} in {everything}");
        }
    }
    for call in remote.calls() {
        assert_eq!(call.message()["parts"], json!([{"kind": "text", "text": "only this"}]));
        let metadata = call.params()["metadata"].as_object().expect("it is told whose flow it is");
        let known = ["skillHint", "correlationId", "parentId"];
        assert!(metadata.keys().all(|key| known.contains(&key.as_str())), "{metadata:?}");
    }
}

#[tokio::test]
async fn s4_45_a_remote_of_1_0_is_called_in_1_0() {
    let remote = Remote::with_card(card_10).await;
    let mut question = task_10("rt-1", "rc-1", "INPUT_REQUIRED", "");
    question["status"]["message"] = json!({"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "which city?"}]});
    remote.on(
        "SendMessage",
        [
            Answer::Result(json!({"task": question})),
            Answer::Result(json!({"task": task_10("rt-1", "rc-1", "COMPLETED", "sunny")})),
            Answer::Result(json!({"task": task_10("rt-2", "rc-2", "REJECTED", "")})),
            Answer::Result(json!({"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}})),
        ],
    );
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let first = caller.chat(&json!({"agent": "quinn", "message": "weather", "skill": "pr_review"})).await.ok();
    assert_eq!((&first["taskState"], &first["response"]), (&json!("input-required"), &json!("which city?")));
    let next = json!({"agent": "quinn", "message": "SF", "taskId": first["taskId"], "contextId": first["contextId"]});
    let second = caller.chat(&next).await.ok();
    assert_eq!((&second["taskState"], &second["response"]), (&json!("completed"), &json!("sunny")));
    assert_eq!(caller.asks("quinn", "no").await["taskState"], "rejected");
    assert_eq!(caller.asks("quinn", "hi").await["response"], "hello");
    let calls = remote.calls();
    for call in &calls {
        assert_eq!((call.rpc(), call.header("a2a-version")), ("SendMessage", Some("1.0")));
        assert_eq!(call.message()["role"], "ROLE_USER");
        assert!(call.message().get("kind").is_none() && call.message()["parts"][0].get("kind").is_none());
        assert!(call.params().get("contextId").is_none(), "1.0 has it in the message: {}", call.body);
    }
    assert_eq!(calls[0].params()["metadata"]["skillHint"], "pr_review");
    assert_eq!((&calls[1].message()["taskId"], &calls[1].message()["contextId"]), (&json!("rt-1"), &json!("rc-1")));
}
