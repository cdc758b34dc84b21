//! What a send answers, what it checks, how long it waits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    player::{play, play_on},
    scenario::{Binding, CURRENT, EVERY, UNTYPED, begin, get, list, message, said, send, step, stream},
    server::{Setup, TestServer},
};

/// `2026-01-02T03:04:05.678Z`.
fn is_timestamp(value: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd.dddZ";
    value.len() == pattern.len()
        && value.chars().zip(pattern.chars()).all(|(c, p)| if p == 'd' { c.is_ascii_digit() } else { c == p })
}

#[tokio::test]
async fn s3_47_s3_9_s3_101_x_10_send_answers_with_the_task_and_its_history_holds_the_request() {
    let sent = send("echo", "hello there").state("COMPLETED").has("/task/id").has("/task/contextId");
    let sent = sent.is("/task/artifacts/0/parts", json!([{"text": "hello there"}])).has("/task/artifacts/0/artifactId");
    // X-10: the reply's text is there and nowhere else.
    let sent = sent.lacks("/task/status/message").count("/task/history", 1).keep("sent", "/task");
    let sent =
        sent.check(|sent| assert!(is_timestamp(sent["task"]["status"]["timestamp"].as_str().unwrap()), "{sent:#}"));
    let got = get()
        .answers("$sent")
        .is("/history/0/role", "ROLE_USER")
        .is("/history/0/parts", json!([{"text": "hello there"}]));
    let got = got.is("/history/0/messageId", "m of hello there").is("/history/0/taskId", "$task");
    play(&EVERY, [sent, got.is("/history/0/contextId", "$context")]).await;
}

#[tokio::test]
async fn s3_48_messages_are_validated() {
    let server = TestServer::start().await;
    let with = |field: &str, value: Value| {
        let mut message = said("hello");
        message[field] = value;
        json!({"message": message})
    };
    let without = |field: &str| {
        let mut request = with("x", json!(0));
        request["message"].as_object_mut().unwrap().retain(|name, _| name != field && name != "x");
        request
    };
    let typed = [
        (without("messageId"), "message.messageId"),
        (with("messageId", json!("")), "message.messageId"),
        (without("role"), "message.role"),
        (with("role", json!("ROLE_UNSPECIFIED")), "message.role"),
        (with("role", json!("ROLE_AGENT")), "message.role"),
        (without("parts"), "message.parts"),
        (with("parts", json!([])), "message.parts"),
        (with("parts", json!([{}])), "message.parts[0]"),
        (json!({}), "message"),
        (json!({"message": said("x"), "configuration": {"historyLength": -1}}), "configuration.historyLength"),
    ];
    let untyped = [
        (with("role", json!("ROLE_KING")), "message.role"),
        (with("parts", json!([{"text": "a", "url": "http://example.com"}])), "message.parts[0]"),
        (with("parts", json!([{"text": 7}])), "message.parts[0].text"),
        (with("parts", json!([{"raw": "not base64!"}])), "message.parts[0].raw"),
        (with("parts", json!("x")), "message.parts"),
        (with("metadata", json!([1])), "message.metadata"),
    ];
    let refused = |(request, field): &(Value, &'static str)| {
        ["SendMessage", "SendStreamingMessage"].map(|method| step(method, request.clone()).wrong(field))
    };
    let nothing = || [list(json!({})).is("/totalSize", 0)];
    play_on(&server, &CURRENT, typed.iter().flat_map(refused).chain(nothing())).await;
    play_on(&server, &UNTYPED, untyped.iter().flat_map(refused).chain(nothing())).await;
}

#[tokio::test]
async fn s3_49_send_blocks_unless_told_otherwise() {
    let server = TestServer::start().await;
    let begun = Instant::now();
    play_on(&server, &EVERY, [send("slow", "600").state("COMPLETED")]).await;
    assert!(begun.elapsed() >= Duration::from_millis(550), "{:?}", begun.elapsed());
    let is_begun = |sent: &Value| {
        let state = sent["task"]["status"]["state"].as_str().unwrap();
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state), "{sent:#}");
    };
    let done = get().until("/status/state", "TASK_STATE_COMPLETED").has("/artifacts/0/parts/0/text");
    play_on(&server, &EVERY, [begin("slow", "600").check(is_begun).varies(), done]).await;
    // In either spelling.
    let snake = send("slow", "600").and(json!({"configuration": {"return_immediately": true}}));
    play_on(&server, &[Binding::JsonRpc, Binding::Rest], [snake.check(is_begun).varies()]).await;
}

#[tokio::test]
async fn blocking_send_that_outlasts_the_cap_returns_the_working_task() {
    let server = Setup::new().engine(|engine| engine.blocking_cap = Duration::from_millis(300)).start().await;
    let done = get().until("/status/state", "TASK_STATE_COMPLETED");
    play_on(&server, &EVERY, [send("slow", "1200").state("WORKING"), done]).await;
}

#[tokio::test]
async fn s3_14_failed_is_failed() {
    let sent = send("fail", "please").state("FAILED").has("/task/status/message/parts/0/text").keep("sent", "/task");
    play(&EVERY, [sent, get().answers("$sent")]).await;
}

#[tokio::test]
async fn s3_17_ask_is_input_required() {
    let sent = send("ask", "what now").state("INPUT_REQUIRED").has("/task/status/message/parts/0/text");
    play(&EVERY, [sent.keep("sent", "/task"), get().answers("$sent")]).await;
}

#[tokio::test]
async fn s3_18_rejected_is_rejected() {
    play(&EVERY, [send("reject", "please").state("REJECTED").keep("sent", "/task"), get().answers("$sent")]).await;
}

#[tokio::test]
async fn s3_19_auth_is_auth_required() {
    let asked = send("auth", "let me in").state("AUTH_REQUIRED").keep("sent", "/task").keep("id", "/task/id");
    let done = super::scenario::answer("I am in").state("COMPLETED").is("/task/id", "$id");
    play(&EVERY, [asked, get().answers("$sent"), done]).await;
}

#[tokio::test]
async fn s3_108_x_11_typed_parts_survive() {
    let server = TestServer::start().await;
    let read = |parts: &Value, more: Value| {
        let sent = send("echo", "typed").and(json!({"message": {"parts": parts}})).and(json!({"message": more}));
        let got = get().is("/artifacts/0/parts", parts.clone()).is("/history/0/parts", parts.clone());
        let replay = super::scenario::resume("0").check({
            let parts = parts.clone();
            move |events| {
                let made =
                    events.as_array().unwrap().iter().find_map(|event| event.pointer("/artifactUpdate/artifact"));
                let told: Vec<f64> = numbers(&made.unwrap()["parts"]);
                assert_eq!(told, numbers(&parts), "{events:#}");
            }
        });
        let members = ["metadata", "extensions", "referenceTaskIds"];
        let got = members
            .into_iter()
            .filter(|name| more.get(name).is_some())
            .fold(got, |got, name| got.is(&format!("/history/0/{name}"), more[name].clone()));
        [sent, got, replay]
    };
    let more = json!({"extensions": ["urn:example:unknown"], "referenceTaskIds": ["some-task"]});
    let parts = json!([
        {"text": "with parts \u{1F600}\n", "mediaType": "text/plain", "metadata": {"n": 7, "deep": {"list": [1.5, null, true, "x"]}}},
        {"raw": "+/8=", "filename": "a.bin", "mediaType": "application/octet-stream"},
        {"url": "https://h/x"},
        {"data": {"whole": 12_345_678, "half": 0.5, "null": null}},
        {"data": null},
    ]);
    play_on(&server, &CURRENT, read(&parts, more.clone())).await;
    // Numbers beyond f64, key order and unusual characters have to come back as they were sent, where JSON carries them.
    let parts = json!([
        {"text": "plain \u{1F600} \u{0}\n", "mediaType": "text/plain", "metadata": {"n": 9007199254740993i64}},
        {"raw": "AAECAwT//g==", "filename": "bytes.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.com/a.png?x=1", "filename": "a.png", "mediaType": "image/png"},
        {"data": {"b": 18446744073709551615u64, "a": [1, 1.5, null, "x", {}]}, "mediaType": "application/json"},
        {"data": null},
        {"data": [1, 2]},
        {"data": "just text"},
    ]);
    let mut more = more;
    more["metadata"] = json!({"big": 12345678901234567890u64});
    let exact = parts.to_string();
    let as_sent = get().check(move |task| assert_eq!(task["artifacts"][0]["parts"].to_string(), exact));
    let steps = read(&parts, more).into_iter().chain([as_sent]);
    play_on(&server, &[Binding::JsonRpc, Binding::Rest], steps).await;
    // base64url without padding is read, base64 is written.
    let url = send("echo", "url").and(json!({"message": {"parts": [{"raw": "AAECAwT__g"}]}}));
    play_on(&server, &UNTYPED, [url.is("/task/artifacts/0/parts/0/raw", "AAECAwT//g==")]).await;
}

/// All numbers of a value, in order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => number.as_f64().into_iter().collect(),
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        Value::Object(map) => map.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn x_11_media_types_are_checked_against_the_agent() {
    let server = TestServer::start().await;
    let refused = |agent: &str, part: Value| {
        let request = message(agent, said("x"));
        let step = step("SendMessage", request).and(json!({"message": {"parts": [part]}}));
        step.refused_at("CONTENT_TYPE_NOT_SUPPORTED", "message.parts[0].mediaType")
    };
    let picture = || refused("stream", json!({"raw": "AAEC", "mediaType": "image/png"}));
    let page = refused("slow", json!({"text": "x", "mediaType": "text/html"}));
    let nothing = || list(json!({})).is("/totalSize", 0);
    play_on(&server, &CURRENT, [picture(), page, nothing()]).await;
    play_on(&server, &[Binding::V03], [picture(), nothing()]).await;
}

#[tokio::test]
async fn x_4_nothing_is_pushed_where_that_is_switched_off() {
    let server = Setup::new().engine(|engine| engine.push = None).start().await;
    let inline = json!({"configuration": {"taskPushNotificationConfig": {"url": "https://example.com/"}}});
    let steps = [
        send("echo", "hi").and(inline).refused("PUSH_NOTIFICATION_NOT_SUPPORTED"),
        step(super::scenario::LIST_PUSH, json!({"taskId": "x"})).refused("PUSH_NOTIFICATION_NOT_SUPPORTED"),
        list(json!({})).is("/totalSize", 0),
    ];
    play_on(&server, &EVERY, steps).await;
    let card = server.api().get("/a2a/agents/echo/.well-known/agent-card.json").await.ok();
    assert_eq!(card["capabilities"]["pushNotifications"], false);
}

#[tokio::test]
async fn x_33_an_unknown_agent_a_version_and_a_caller_are_refused_alike() {
    let server = TestServer::start().await;
    let steps = [
        send("nobody", "x").refused("AGENT_NOT_FOUND"),
        stream("nobody", "x").refused("AGENT_NOT_FOUND"),
        send("echo", "x").by(super::scenario::Who::Nobody).refused("UNAUTHENTICATED"),
        list(json!({})).is("/totalSize", 0),
    ];
    play_on(&server, &EVERY, steps).await;
    let steps =
        ["0.9", ""].map(|version| send("echo", "x").with("a2a-version", version).refused("VERSION_NOT_SUPPORTED"));
    play_on(&server, &CURRENT, steps).await;
}

const STRICT: &str = r#"
kind = "command"
[[extensions]]
uri = "urn:needed"
required = true
[command]
argv = ["echo", "done"]
"#;

#[tokio::test]
async fn x_51_an_extension_that_the_agent_requires_has_to_be_asked_for() {
    let server = Setup::new().file("strict.toml", STRICT).start().await;
    let steps = [
        send("strict", "x").refused("EXTENSION_SUPPORT_REQUIRED"),
        send("strict", "x").with("a2a-extensions", "urn:needed, urn:unknown").state("COMPLETED"),
        get().refused("EXTENSION_SUPPORT_REQUIRED"),
        get().with("a2a-extensions", "urn:needed").state("COMPLETED"),
    ];
    play_on(&server, &CURRENT, steps).await;
}

/// Gives back what it was given, and asks for more.
const TELLS: &str = r#"
kind = "command"
[[extensions]]
uri = "urn:example:units"
[command]
argv = ["sh", "-c", '''read -r line
printf '{"artifactUpdate":{"artifact":{"parts":[{"data":%s}]}}}\n' "$line"
printf '{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}\n' ''']
output = "events"
"#;

#[tokio::test]
async fn what_is_said_beside_a_message_reaches_the_agent() {
    let server = Setup::new().file("tells.toml", TELLS).start().await;
    let beside = json!({
        "metadata": {"unit": "kelvin", "large": 12_345_678_901_234_567_u64},
        "configuration": {"acceptedOutputModes": ["application/json", "text/plain"]},
    });
    let given = |task: &Value| task["artifacts"].as_array().unwrap().last().unwrap()["parts"][0]["data"].clone();
    let all = move |task: &Value| {
        let given = given(task);
        assert_eq!(given["metadata"]["unit"], "kelvin", "{given:#}");
        assert_eq!(given["accepted_output_modes"], json!(["application/json", "text/plain"]), "{given:#}");
        assert_eq!(given["extensions"], json!(["urn:example:units"]), "{given:#}");
        assert!(!task["history"].to_string().contains("kelvin"), "it is no part of the message: {task:#}");
    };
    // Whoever says nothing has nothing of it in its turn.
    let nothing = move |sent: &Value| {
        let given = given(&sent["task"]);
        let members = ["metadata", "accepted_output_modes", "extensions"];
        assert!(members.iter().all(|member| given.get(member).is_none()), "{given:#}");
    };
    let asked = |text: &str| send("tells", text).and(beside.clone());
    let in_header = || asked("in the header").with("a2a-extensions", "urn:other, urn:example:units");
    let in_message = json!({"message": {"extensions": ["urn:example:units", "urn:unknown"]}});
    let steps = [
        in_header().state("INPUT_REQUIRED").check(move |sent| all(&sent["task"])),
        asked("by the message").and(in_message).check(move |sent| all(&sent["task"])),
        send("tells", "plain").check(nothing),
    ];
    play_on(&server, &EVERY, steps.map(super::scenario::Step::varies)).await;
    // Integers stay integers where JSON carries them.
    let exact = move |sent: &Value| assert_eq!(given(&sent["task"])["metadata"]["large"], 12_345_678_901_234_567_u64);
    play_on(&server, &[Binding::JsonRpc, Binding::Rest], [in_header().check(exact).varies()]).await;

    // So it is in Arbiter's dialect, by names of 0.3 and of 1.0.
    let api = server.api();
    let mut old = beside.clone();
    old["message"] = json!({"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]});
    let mut new = beside.clone();
    new["message"] = said("x");
    for (method, params, id) in [("message/send", old, "/result/id"), ("SendMessage", new, "/result/task/id")] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let head =
            "POST /v1/a2a/agents/tells\nX-A2A-Extensions: urn:other, urn:example:units\nContent-Type: application/json";
        let sent = super::raw::call(&api, head, call.to_string()).await.ok();
        all(&api.task(super::http::text(&sent, id)).await);
    }
}
