//! What a caller says beside its message, metadata of the request, the media types that it accepts and extensions, is durable.

use serde_json::{Value, json};

use super::{
    harness::Home,
    http::{array, message, text, with_json},
    rig::Rig,
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
