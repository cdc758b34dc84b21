//! What a caller says beside its message, metadata of the request, the media types that it accepts and extensions, reaches the agent over
//! every binding and in both dialects, and is durable.

use serde_json::{Value, json};

use super::{
    grpc::{A2A, GATEWAY},
    harness::Home,
    http::{array, message, reason, state, text, with_json},
    rows::Rig,
};

const URI: &str = "urn:example:units";

/// Gives back what it was given, and asks for more. A turn in that unit is cut off in its first attempt.
const TELLS: &str = r#"
kind = "command"
max_attempts = 3
input_modes = ["*/*"]
[[extensions]]
uri = "urn:example:units"
[command]
argv = ["sh", "-c", '''read -r line
case "$line" in *'"attempt":1'*rankine*) sleep 600 ;; esac
printf '{"artifactUpdate":{"artifact":{"parts":[{"data":%s}]}}}\n' "$line"
printf '{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}\n' ''']
output = "events"
"#;

async fn rig() -> Rig {
    let home = Home::new();
    home.add_agent("tells.toml", TELLS);
    home.add_agent("waits.toml", "kind = \"queue\"\n[[extensions]]\nuri = \"urn:example:units\"\n");
    Rig::start_in(home, &[], &[]).await
}

fn said(words: &str) -> Value {
    json!({
        "message": message(words),
        "metadata": {"unit": "kelvin", "large": 12_345_678_901_234_567_u64},
        "configuration": {"acceptedOutputModes": ["application/json", "text/plain"]},
    })
}

/// What the program was given in the last turn.
fn told(task: &Value) -> Value {
    let made = array(task, "/artifacts").last().unwrap_or_else(|| panic!("no artifact in {task:#}"));
    made["parts"][0]["data"].clone()
}

#[track_caller]
fn assert_told(told: &Value, unit: &str) {
    assert_eq!(told["metadata"]["unit"], unit, "{told:#}");
    assert_eq!(told["accepted_output_modes"], json!(["application/json", "text/plain"]), "{told:#}");
    assert_eq!(told["extensions"], json!([URI]), "{told:#}");
}

#[tokio::test]
async fn what_is_said_beside_a_message_reaches_the_agent_over_every_binding_and_dialect() {
    let rig = rig().await;
    let (api, path) = (rig.api(), "/a2a/agents/tells");
    let post = |path: String, body: Value, version: Option<&str>, extensions: &str| {
        let request = api.bare(reqwest::Method::POST, &path).bearer_auth(super::harness::TOKEN);
        let request = request
            .header("Content-Type", "application/json")
            .header(extensions.to_owned(), format!("urn:other, {URI}"));
        let request = version.iter().fold(request, |request, version| request.header("A2A-Version", *version));
        api.call(request.body(body.to_string()))
    };
    let rpc = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let rest = post(format!("{path}/message:send"), said("rest"), Some("1.0"), "A2A-Extensions").await.task();
    let sent =
        post(format!("{path}/jsonrpc"), rpc("SendMessage", said("rpc")), Some("1.0"), "A2A-Extensions").await.ok();
    let mut tasks = vec![rest, sent["result"]["task"].clone()];
    for service in [A2A, GATEWAY] {
        let mut request = said("grpc");
        request["tenant"] = json!("tells");
        let sent = rig.grpc().with("a2a-extensions", URI).ok(service, "SendMessage", &request).await;
        tasks.push(sent["task"].clone());
    }
    for task in &tasks {
        assert_eq!(state(task), "INPUT_REQUIRED", "{task:#}");
        assert_told(&told(task), "kelvin");
        assert!(!task["history"].to_string().contains("kelvin"), "it is no part of the message: {task:#}");
    }
    // Integers stay integers where JSON carries them.
    assert_eq!(told(&tasks[0])["metadata"]["large"], 12_345_678_901_234_567_u64);

    let in_03 = |words: &str| {
        let mut params = said(words);
        params["message"] = json!({"messageId": words, "role": "user", "parts": [{"kind": "text", "text": words}]});
        rpc("message/send", params)
    };
    for path in [format!("{path}/jsonrpc"), "/v1/a2a/agents/tells".to_owned()] {
        let sent = post(path.clone(), in_03("0.3"), None, "X-A2A-Extensions").await.ok();
        let task = api.task(text(&sent, "/result/id")).await;
        assert_told(&told(&task), "kelvin");
    }
    let sent =
        post("/v1/a2a/agents/tells".into(), rpc("SendMessage", said("1.0 there")), Some("1.0"), "A2A-Extensions");
    assert_told(&told(&sent.await.ok()["result"]["task"]), "kelvin");

    // An extension may be named by the message; who says nothing has nothing of it in its turn.
    let mut request = said("by the message");
    request["message"]["extensions"] = json!([URI, "urn:unknown"]);
    assert_told(&told(&api.post(&format!("{path}/message:send"), &request).await.task()), "kelvin");
    let plain = told(&api.post(&format!("{path}/message:send"), &json!({"message": message("plain")})).await.task());
    for member in ["metadata", "accepted_output_modes", "extensions"] {
        assert_eq!(plain.get(member), None, "{plain:#}");
    }
}

#[tokio::test]
async fn what_is_said_beside_a_message_is_there_for_each_turn_and_after_a_restart() {
    let mut rig = rig().await;
    let api = rig.api();
    let asked = |request: Value| {
        let api = rig.api();
        async move {
            let request = with_json(api.request(reqwest::Method::POST, "/a2a/agents/tells/message:send"), &request);
            api.call(request.header("A2A-Extensions", URI)).await.task()
        }
    };
    let first = asked(said("first")).await;
    let id = text(&first, "/id").to_owned();
    let follow = |words: &str, unit: &str| {
        let mut request = said(words);
        request["message"]["taskId"] = json!(id);
        request["metadata"]["unit"] = json!(unit);
        request
    };
    let second = asked(follow("second", "celsius")).await;
    assert_told(&told(&second), "celsius");
    let mut plain = json!({"message": message("third")});
    plain["message"]["taskId"] = json!(id);
    assert_eq!(told(&asked(plain).await).get("metadata"), None, "each message has its own");

    // One turn runs, another one waits behind it, and an entry waits in the queue: none of them has ended when the server dies.
    let mut cut = follow("cut off", "rankine");
    cut["configuration"]["returnImmediately"] = json!(true);
    asked(cut).await;
    let mut behind = follow("behind", "delisle");
    behind["configuration"]["returnImmediately"] = json!(true);
    asked(behind).await;
    let mut queued = said("queued");
    queued["configuration"]["returnImmediately"] = json!(true);
    let request = with_json(api.request(reqwest::Method::POST, "/a2a/agents/waits/message:send"), &queued);
    api.call(request.header("A2A-Extensions", URI)).await.task();
    rig.restart().await;

    let task = rig.api().task_when(&id, |state| state == "INPUT_REQUIRED").await;
    let units: Vec<Value> =
        array(&task, "/artifacts").iter().map(|made| made["parts"][0]["data"]["metadata"]["unit"].clone()).collect();
    assert_eq!(json!(units), json!(["kelvin", "celsius", null, "rankine", "delisle"]));
    let handed = rig.api().post("/v1/queue/waits/consume", &json!({"worker": "w"})).await.ok();
    let entry = &handed["messages"][0];
    assert_eq!(entry["metadata"]["unit"], "kelvin", "{handed:#}");
    assert_eq!(entry["acceptedOutputModes"], json!(["application/json", "text/plain"]));
    assert_eq!(entry["extensions"], json!([URI]));
}

#[tokio::test]
async fn x_19_a_repetition_may_differ_in_configuration_and_in_metadata_of_the_request() {
    let rig = rig().await;
    let mut request = said("once");
    request["message"]["contextId"] = json!("a-context");
    request["metadata"]["correlationId"] = json!("c-1");
    let first = rig.api().post("/a2a/agents/tells/message:send", &request).await.task();
    request["metadata"]["correlationId"] = json!("c-2");
    request["configuration"] = json!({});
    let again = rig.api().post("/a2a/agents/tells/message:send", &request).await.task();
    assert_eq!(again["id"], first["id"]);
    assert_eq!(array(&again, "/history").len(), array(&first, "/history").len());
    request["metadata"]["unit"] = json!("celsius");
    let again = rig.api().post("/a2a/agents/tells/message:send", &request).await.task();
    assert_eq!(again["id"], first["id"]);
    // Metadata of the message is a part of it.
    request["message"]["metadata"] = json!({"other": 1});
    let refused = rig.api().post("/a2a/agents/tells/message:send", &request).await.error(400);
    assert_eq!(reason(&refused), "IDEMPOTENCY_CONFLICT");
}
