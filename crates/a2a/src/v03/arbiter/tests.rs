//! The surface of seeds 000 to 002, row by row: task results, stream frames, cards. `docs/compatibility.md` says what
//! seeds, rows and rulings are.

use serde_json::{Value, json};

use super::*;
use crate::{AgentCard, StreamResponse};

const USAGE: Usage = Usage { input_tokens: 142, output_tokens: 218 };

fn task(state: &str, message: Option<&str>, artifacts: Value) -> crate::Task {
    let message = message.map(|text| {
        json!({"messageId": "T-r", "role": "ROLE_AGENT", "parts": [{"text": text}], "taskId": "T", "contextId": "C"})
    });
    let value = json!({
        "id": "T", "contextId": "C",
        "status": {"state": format!("TASK_STATE_{state}"), "message": message},
        "history": [
            {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
            {"messageId": "T-s1-1", "role": "ROLE_AGENT", "parts": [{"text": "thinking"}]},
        ],
        "artifacts": artifacts,
    });
    serde_json::from_value(value).unwrap()
}

fn result(task: &crate::Task) -> Value {
    serde_json::to_value(task_result(task, "index", USAGE)).unwrap()
}

#[test]
fn s2_12_s2_13_s2_14_the_result_of_a_completed_task() {
    let reply = json!({
        "kind": "message", "role": "agent", "messageId": "T-r", "taskId": "T", "contextId": "C",
        "parts": [{"kind": "text", "text": "hello"}],
    });
    let expected = json!({
        "kind": "task", "id": "T", "contextId": "C",
        "status": {"state": "completed", "message": reply},
        "history": [
            {"kind": "message", "role": "user", "messageId": "m1", "taskId": "T", "contextId": "C",
             "parts": [{"kind": "text", "text": "hi"}]},
            reply,
        ],
        "metadata": {
            "x-arbiter.agent_id": "index", "x-arbiter.input_tokens": 142, "x-arbiter.output_tokens": 218,
        },
    });
    let text = json!([{"artifactId": "T-text-0", "name": "response", "parts": [{"text": "hel"}, {"text": "lo"}]}]);
    assert_eq!(result(&task("COMPLETED", Some("hello"), text.clone())), expected);
    // A reply that was too long to repeat is taken from the artifacts.
    assert_eq!(result(&task("COMPLETED", None, text)), expected);
    let mut direct = task("COMPLETED", Some("hello"), json!([]));
    direct.status.message.as_mut().unwrap().message_id = "T-random".to_owned();
    assert_eq!(result(&direct), expected);
}

#[test]
fn what_is_no_text_stays_an_artifact() {
    let artifacts = json!([
        {"artifactId": "T-text-0", "parts": [{"text": "hello"}]},
        {"artifactId": "T-file-0", "name": "out.txt", "parts": [{"raw": "aGk=", "filename": "out.txt"}]},
    ]);
    let value = result(&task("COMPLETED", None, artifacts));
    assert_eq!(
        value["artifacts"],
        json!([{"artifactId": "T-file-0", "name": "out.txt",
                "parts": [{"kind": "file", "file": {"bytes": "aGk=", "name": "out.txt"}}]}])
    );
}

#[test]
fn s2_21_s2_22_a_running_task_is_its_state_alone() {
    for state in ["SUBMITTED", "WORKING"] {
        let value = result(&task(state, Some("on it"), json!([])));
        assert_eq!(value["status"], json!({"state": state.to_lowercase()}));
        assert_eq!(value.get("history"), None);
        assert_eq!(value["metadata"]["x-arbiter.input_tokens"], 142);
    }
    let value = result(&task("INPUT_REQUIRED", Some("which?"), json!([])));
    assert_eq!(value["status"]["message"]["parts"][0]["text"], "which?");
    assert_eq!(value.get("history"), None);
}

#[test]
fn s0_41_a_failed_task_says_why_in_its_metadata() {
    let value = result(&task("FAILED", Some("no disk"), json!([])));
    assert_eq!(value["metadata"]["x-arbiter.error"], "no disk");
    assert_eq!(value["history"].as_array().unwrap().len(), 2);
    let value = result(&task("CANCELED", None, json!([])));
    assert_eq!(value["status"], json!({"state": "canceled"}));
    assert_eq!(value["history"].as_array().unwrap().len(), 1);
    assert_eq!(value["metadata"].get("x-arbiter.error"), None);
}

#[test]
fn x_10_replies_in_artifacts_are_told_turn_by_turn() {
    // Artifacts that their agent has named tell nothing of their turn, and one is nobody's reply.
    let artifacts = json!([
        {"artifactId": "a1", "parts": [{"text": "one"}]},
        {"artifactId": "a2", "parts": [{"text": "two"}]},
        {"artifactId": "a3", "name": "report", "parts": [{"text": "three"}]},
        {"artifactId": "a4", "parts": [{"text": "and"}, {"text": " more"}]},
    ]);
    let mut task = task("COMPLETED", None, artifacts);
    let user = task.history.remove(0);
    let said = |id: &str| crate::Message { message_id: id.to_owned(), ..user.clone() };
    task.history = vec![said("m1"), said("m2"), said("m3")];
    tell_replies(&mut task, &[1, 2, 2, 3]);
    let value = result(&task);
    let told: Vec<_> = value["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["messageId"], it["parts"][0]["text"].as_str().unwrap()))
        .collect();
    let (m1, m2, m3) = (json!("m1"), json!("m2"), json!("m3"));
    let (r1, r2, r3) = (json!("T-r"), json!("T-r2"), json!("T-r3"));
    assert_eq!(told, [(&m1, "hi"), (&r1, "one"), (&m2, "hi"), (&r2, "two"), (&m3, "hi"), (&r3, "and more")]);
    assert_eq!(value["status"]["message"]["parts"][0]["text"], "and more");
}

#[test]
fn a_second_turn_keeps_the_answer_of_the_first() {
    let mut task = task("COMPLETED", Some("done"), json!([]));
    let mut first = task.history[1].clone();
    first.message_id = "T-r".to_owned();
    let mut user = task.history[0].clone();
    user.message_id = "m2".to_owned();
    task.history.extend([first, user]);
    task.status.message.as_mut().unwrap().message_id = "T-r2".to_owned();
    let value = result(&task);
    let ids: Vec<_> = value["history"].as_array().unwrap().iter().map(|it| it["messageId"].clone()).collect();
    assert_eq!(ids, ["m1", "T-r", "m2", "T-r2"]);
}

#[test]
fn metadata_is_kept_beside_ours() {
    let mut task = task("COMPLETED", Some("x"), json!([]));
    task.metadata = crate::JsonObject::from_text(r#"{"own":1.50,"x-arbiter.input_tokens":9}"#).ok();
    let metadata = task_result(&task, "a", Usage::default()).metadata.unwrap();
    assert_eq!(
        metadata.get(),
        r#"{"own":1.50,"x-arbiter.agent_id":"a","x-arbiter.input_tokens":0,"x-arbiter.output_tokens":0}"#
    );
}

#[test]
fn s2_10_s2_11_x_11_only_text_is_taken() {
    let message = |parts: Value| -> Message {
        serde_json::from_value(json!({"messageId": "m", "role": "user", "parts": parts})).unwrap()
    };
    assert!(require_text(&message(json!([{"kind": "text", "text": "a"}]))).is_ok());
    for part in [json!({"kind": "data", "data": {}}), json!({"kind": "file", "file": {"uri": "u"}})] {
        let error = require_text(&message(json!([{"kind": "text", "text": "a"}, part]))).unwrap_err();
        assert_eq!(error.kind.codes().jsonrpc, -32005);
        assert_eq!(error.violations[0].field, "message.parts[1].kind");
    }
}

#[test]
fn s2_33_the_codes_of_this_surface() {
    for (kind, code) in [
        (ErrorKind::ParseError, -32700),
        (ErrorKind::InvalidRequest, -32600),
        (ErrorKind::MethodNotFound, -32601),
        (ErrorKind::InvalidParams, -32602),
        (ErrorKind::Internal, -32603),
        (ErrorKind::TaskNotFound, -32001),
        (ErrorKind::AgentNotFound, -32001),
        (ErrorKind::TaskNotCancelable, -32002),
        (ErrorKind::PushNotificationNotSupported, -32004),
        (ErrorKind::UnsupportedOperation, -32004),
        (ErrorKind::ContentTypeNotSupported, -32005),
        (ErrorKind::InvalidAgentResponse, -32006),
        (ErrorKind::VersionNotSupported, -32007),
    ] {
        assert_eq!(error_code(kind), code, "{kind:?}");
    }
}

/// Feeds events, numbered from 1, and gives each frame as its id and its JSON without the ids of task and context.
fn frames(events: Vec<Value>) -> Vec<(Option<u64>, Value)> {
    let mut stream = Stream::new("T", "C");
    let mut all = Vec::new();
    for (seq, event) in (1..).zip(events) {
        let event: StreamResponse = serde_json::from_value(event).unwrap();
        for frame in stream.feed(seq, event) {
            let mut value = serde_json::to_value(&frame.event).unwrap();
            let object = value.as_object_mut().unwrap();
            assert_eq!(object.remove("taskId"), Some(json!("T")));
            assert_eq!(object.remove("contextId"), Some(json!("C")));
            all.push((frame.id, value));
        }
    }
    all
}

fn status(state: &str, text: Option<&str>) -> Value {
    let message = text.map(|text| json!({"messageId": "T-r", "role": "ROLE_AGENT", "parts": [{"text": text}]}));
    json!({"statusUpdate": {"taskId": "T", "contextId": "C",
        "status": {"state": format!("TASK_STATE_{state}"), "message": message}}})
}

fn chunk(id: &str, text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "T", "contextId": "C", "append": append,
        "artifact": {"artifactId": id, "parts": [{"text": text}]}}})
}

fn snapshot(state: &str, artifacts: &Value) -> Value {
    json!({"task": {"id": "T", "contextId": "C", "status": {"state": format!("TASK_STATE_{state}")}, "artifacts": artifacts}})
}

fn working() -> Value {
    json!({"kind": "status-update", "status": {"state": "working"}, "final": false})
}

fn text_frame(text: &str, append: bool) -> Value {
    json!({"kind": "artifact-update", "append": append, "artifact":
        {"artifactId": "T-text-0", "name": "response", "parts": [{"kind": "text", "text": text}]}})
}

fn last_chunk(append: bool) -> Value {
    let mut frame = text_frame("", append);
    frame["lastChunk"] = json!(true);
    frame
}

fn ended(state: &str, text: Option<&str>) -> Value {
    let mut frame = json!({"kind": "status-update", "status": {"state": state}, "final": true});
    if let Some(text) = text {
        frame["status"]["message"] = json!({"kind": "message", "messageId": "T-r", "role": "agent", "taskId": "T",
            "contextId": "C", "parts": [{"kind": "text", "text": text}]});
    }
    frame
}

#[test]
fn s0_35_s0_36_s0_40_s0_42_s2_17_x_27_a_stream_of_text() {
    let found = frames(vec![
        snapshot("SUBMITTED", &json!([])),
        status("WORKING", None),
        chunk("T-text-0", "hello ", false),
        chunk("T-text-0", "world", true),
        chunk("T-text-1", "!", false),
        chunk("T-text-1", "", true),
        status("COMPLETED", Some("hello world!")),
        status("WORKING", None),
    ]);
    let expected = vec![
        (Some(2), working()),
        (Some(3), text_frame("hello ", false)),
        (Some(4), text_frame("world", true)),
        (Some(5), text_frame("!", true)),
        // X-27: of the two frames of the seventh event, the last has its id.
        (None, last_chunk(true)),
        (Some(7), ended("completed", Some("hello world!"))),
    ];
    assert_eq!(found, expected);
}

/// The demo agent `echo` names its artifact and leaves the id to the server.
fn echo_chunk(text: &str) -> Value {
    let mut named = chunk("T-text-0", text, false);
    named["artifactUpdate"]["artifact"]["name"] = json!("echo");
    named["artifactUpdate"]["lastChunk"] = json!(true);
    named
}

#[test]
fn s0_36_s0_42_s2_17_a_first_text_with_a_name_and_no_id_is_the_one_text_artifact() {
    let found = frames(vec![status("WORKING", None), echo_chunk("hello"), status("COMPLETED", None)]);
    let expected = vec![
        (Some(1), working()),
        (Some(2), text_frame("hello", false)),
        (None, last_chunk(true)),
        (Some(3), ended("completed", None)),
    ];
    assert_eq!(found, expected);
    let found = frames(vec![echo_chunk("hello"), chunk("T-text-1", "and more", false)]);
    assert_eq!(found.last().unwrap().1, text_frame("and more", true), "{found:?}");
}

#[test]
fn s0_36_s0_42_a_text_with_a_name_and_no_id_of_a_later_turn_is_the_one_text_artifact() {
    let mut named = chunk("T-t2-text-0", "hello", false);
    named["artifactUpdate"]["artifact"]["name"] = json!("echo");
    named["artifactUpdate"]["lastChunk"] = json!(true);
    let found = frames(vec![status("WORKING", None), named.clone(), status("COMPLETED", None)]);
    let expected = vec![
        (Some(1), working()),
        (Some(2), text_frame("hello", false)),
        (None, last_chunk(true)),
        (Some(3), ended("completed", None)),
    ];
    assert_eq!(found, expected);
    // Only the ids that the journal gives.
    for other in ["T-tx-text-0", "T-t-text-0", "T2-text-0", "T-t2-text-1"] {
        named["artifactUpdate"]["artifact"]["artifactId"] = json!(other);
        assert_eq!(frames(vec![named.clone()])[1].1["artifact"]["name"], "echo", "{other}");
    }
}

#[test]
fn s2_12_a_first_text_with_a_name_and_no_id_is_the_reply_and_nothing_else() {
    let text = json!([{"artifactId": "T-text-0", "name": "echo", "parts": [{"text": "hello"}]}]);
    let StreamResponse::Task(task) = serde_json::from_value(snapshot("COMPLETED", &text)).unwrap() else {
        unreachable!("a snapshot is a task")
    };
    let result = serde_json::to_value(task_result(&task, "echo", Usage::default())).unwrap();
    assert_eq!(result["status"]["message"]["parts"][0]["text"], "hello");
    assert_eq!(result.get("artifacts"), None, "{result}");
}

#[test]
fn s0_42_the_last_chunk_takes_nothing_back() {
    // An artifact that is more than text may have the id that the reply's text has.
    let mut file = chunk("T-text-0", "the report", false);
    file["artifactUpdate"]["artifact"]["parts"][0]["filename"] = json!("report.txt");
    let found = frames(vec![status("WORKING", None), file.clone(), status("COMPLETED", Some("done"))]);
    assert_eq!(found[2].1, last_chunk(true), "{found:?}");
    let found = frames(vec![file, chunk("T-text-1", "and more", false)]);
    assert_eq!(found.last().unwrap().1, text_frame("and more", true), "{found:?}");
}

#[test]
fn x_13_working_comes_first_whatever_happens() {
    let found = frames(vec![status("REJECTED", Some("no"))]);
    let expected = vec![(None, working()), (None, last_chunk(false)), (Some(1), ended("rejected", Some("no")))];
    assert_eq!(found, expected);
    let found = frames(vec![chunk("T-text-0", "x", false)]);
    assert_eq!(found, vec![(None, working()), (Some(1), text_frame("x", false))]);
}

#[test]
fn x_40_a_direct_reply_completes_the_task() {
    let user = json!({"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "more"}]}});
    let reply = json!({"message": {"messageId": "own", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}});
    let found = frames(vec![user, reply]);
    let expected = vec![(None, working()), (None, last_chunk(false)), (Some(2), ended("completed", Some("hi")))];
    assert_eq!(found, expected);
}

#[test]
fn x_40_waiting_for_the_user_ends_nothing() {
    let found = frames(vec![
        status("WORKING", None),
        status("INPUT_REQUIRED", None),
        status("WORKING", None),
        chunk("T-t2-text-0", "x", false),
        status("CANCELED", None),
    ]);
    assert_eq!(found[1].1, json!({"kind": "status-update", "status": {"state": "input-required"}, "final": false}));
    assert_eq!(found[3].1, text_frame("x", false));
    assert_eq!(found.last().unwrap(), &(Some(5), ended("canceled", None)));
}

#[test]
fn x_12_s2_28_a_finished_task_is_one_frame() {
    let text = json!([{"artifactId": "T-text-0", "parts": [{"text": "hello"}]}]);
    assert_eq!(
        frames(vec![snapshot("COMPLETED", &text), status("COMPLETED", None)]),
        vec![(Some(1), ended("completed", Some("hello")))]
    );
    assert_eq!(frames(vec![snapshot("FAILED", &json!([]))]), vec![(Some(1), ended("failed", None))]);
    // In the place of a status without a message, at the end of a stream.
    let found = frames(vec![status("WORKING", None), chunk("T-text-0", "hello", false), snapshot("COMPLETED", &text)]);
    assert_eq!(found[2..], [(None, last_chunk(true)), (Some(3), ended("completed", Some("hello")))]);
}

#[test]
fn a_new_attempt_takes_the_place_of_the_one_before() {
    let found = frames(vec![
        status("WORKING", None),
        chunk("T-text-0", "a", false),
        chunk("T-text-1", "b", false),
        chunk("T-text-0", "c", false),
        chunk("T-text-1", "d", false),
    ]);
    let texts: Vec<Value> = found.into_iter().skip(1).map(|(_, frame)| frame).collect();
    assert_eq!(texts, [text_frame("a", false), text_frame("b", true), text_frame("c", false), text_frame("d", true)]);
}

#[test]
fn a_resumed_stream_goes_on_where_it_was() {
    let made = json!([
        {"artifactId": "T-text-0", "parts": [{"text": "a"}]},
        {"artifactId": "T-text-1", "parts": [{"text": "b"}]},
    ]);
    let appends = |events: Vec<Value>| -> Vec<Value> {
        let mut stream = Stream::resumed(&task("WORKING", None, made.clone()));
        let feed = |event| stream.feed(9, serde_json::from_value(event).unwrap());
        let frames: Vec<Frame> = events.into_iter().flat_map(feed).collect();
        let appends = frames.iter().map(|it| serde_json::to_value(&it.event).unwrap()["append"].clone());
        appends.collect()
    };
    assert_eq!(appends(vec![chunk("T-text-0", "b", true)]), [json!(true)]);
    assert_eq!(appends(vec![chunk("T-text-1", "b", false)]), [json!(true)]);
    let first_text = vec![chunk("T-text-0", "a", false), chunk("T-text-0", "b", true)];
    assert_eq!(appends(first_text), [json!(false), json!(true)]);
    assert_eq!(appends(vec![status("COMPLETED", None)]), [json!(true), Value::Null]);
}

#[test]
fn x_13_x_39_a_stream_that_continues_a_task_begins_with_working_and_nothing_of_the_task() {
    let made = json!([{"artifactId": "T-text-0", "parts": [{"text": "a"}]}]);
    for (state, begins) in [("SUBMITTED", false), ("WORKING", true), ("INPUT_REQUIRED", true), ("COMPLETED", true)] {
        let (mut stream, first) = Stream::continued(&task(state, Some("which?"), made.clone()));
        let shown: Vec<_> = first.iter().map(|it| serde_json::to_value(&it.event).unwrap()).collect();
        let states: Vec<_> = shown.iter().map(|it| it["status"]["state"].as_str()).collect();
        assert_eq!(states, if begins { vec![Some("working")] } else { vec![] }, "{state}: {shown:?}");
        assert!(first.iter().all(|it| it.id.is_none()) && !stream.is_over(), "{state}");
        let next = stream.feed(9, serde_json::from_value(chunk("T-t2-text-0", "b", false)).unwrap());
        let text = serde_json::to_value(&next.last().unwrap().event).unwrap();
        assert_eq!((&text["append"], next.len()), (&json!(false), if begins { 1 } else { 2 }), "{state}: {text}");
    }
}

#[test]
fn s2_29_x_10_a_later_chunk_goes_to_the_artifact_that_it_is_of() {
    let made = json!([{"artifactId": "r", "name": "report", "parts": [{"text": "a"}]}]);
    let task = task("WORKING", None, made);
    for mut stream in [Stream::resumed(&task), Stream::continued(&task).0] {
        let mut more = chunk("r", "b", true);
        more["artifactUpdate"]["lastChunk"] = json!(true);
        let frame = stream.feed(9, serde_json::from_value(more).unwrap()).pop().unwrap();
        let value = serde_json::to_value(&frame.event).unwrap();
        assert_eq!((&value["artifact"]["artifactId"], &value["lastChunk"]), (&json!("r"), &json!(true)), "{value}");
        // There is no text that the last chunk could be added to.
        let end = stream.feed(10, serde_json::from_value(status("COMPLETED", None)).unwrap());
        let last = serde_json::to_value(&end[0].event).unwrap();
        assert_eq!((&last["append"], &last["lastChunk"]), (&json!(false), &json!(true)), "{last}");
    }
}

#[test]
fn a_snapshot_stands_for_what_is_no_longer_in_the_log() {
    let artifacts = json!([
        {"artifactId": "T-text-0", "parts": [{"text": "a"}, {"text": "b"}]},
        {"artifactId": "T-tool-0", "name": "tool_call", "parts": [{"data": {"tool": "x", "ok": true}}]},
    ]);
    let found = frames(vec![snapshot("WORKING", &artifacts), chunk("T-text-0", "c", true)]);
    let tool = json!({"kind": "artifact-update", "artifact": {"artifactId": "T-tool-0", "name": "tool_call",
        "parts": [{"kind": "data", "data": {"tool": "x", "ok": true}}]}});
    let expected =
        vec![(None, working()), (None, text_frame("ab", false)), (Some(1), tool), (Some(2), text_frame("c", true))];
    assert_eq!(found, expected);
}

#[test]
fn s0_37_s0_38_other_artifacts_go_out_as_they_are() {
    let file = json!({"artifactUpdate": {"taskId": "T", "contextId": "C", "artifact":
        {"artifactId": "T-file-0", "name": "notes.md", "parts": [{"text": "# a", "filename": "notes.md"}]}}});
    let more = json!({"artifactUpdate": {"taskId": "T", "contextId": "C", "append": true, "lastChunk": true, "artifact":
        {"artifactId": "T-file-0", "parts": [{"text": "b"}]}}});
    let found = frames(vec![status("WORKING", None), file, more]);
    assert_eq!(found[1].1["artifact"]["name"], "notes.md");
    assert_eq!(found[1].1.get("append"), None);
    // A piece of it is no piece of the reply.
    assert_eq!(found[2].1["artifact"]["artifactId"], "T-file-0");
    assert_eq!(found[2].1["append"], true);
    assert_eq!(found[2].1["lastChunk"], true);
}

#[test]
fn s0_21_to_s0_30_the_card() {
    assert_eq!(describe("Researcher", "finds out"), "Researcher — finds out");
    assert_eq!(describe("", "finds out"), "finds out");
    assert_eq!(describe("Researcher", ""), "Researcher");
    assert_eq!(describe("", ""), "arbiter agent");
    let facts = AgentFacts {
        id: "research",
        name: "",
        description: "d",
        version: "1700000000",
        auth: true,
        commands: &["/fetch", "/search", "/a2a"].map(str::to_owned),
    };
    let bytes = agent_card(&facts, "https://x.example/");
    let card: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(card["protocolVersion"], "1.0");
    assert_eq!(card["name"], "research");
    assert_eq!(card["url"], "https://x.example/v1/a2a/agents/research");
    assert_eq!(card["version"], "1700000000");
    assert_eq!(
        card["capabilities"],
        json!({"streaming": true, "pushNotifications": false, "stateTransitionHistory": false})
    );
    assert_eq!(card["defaultInputModes"], json!(["text/plain"]));
    assert_eq!(card["defaultOutputModes"], json!(["text/plain", "application/json"]));
    let skills: Vec<_> =
        card["skills"].as_array().unwrap().iter().map(|it| (it["id"].clone(), it["tags"][0].clone())).collect();
    let expected = [("chat", "chat"), ("fetch-url", "/fetch"), ("web-search", "/search"), ("a2a", "/a2a")];
    assert_eq!(skills, expected.map(|(id, tag)| (json!(id), json!(tag))));
    assert_eq!(card["securitySchemes"]["bearer"]["type"], "http");
    assert_eq!(card["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert_eq!(card["security"], json!([{"bearer": []}]));
    assert_eq!(card["preferredTransport"], "JSONRPC");
    // X-5: the 1.0 fields are there too.
    let card: AgentCard = crate::decode(&bytes).unwrap();
    assert_eq!(card.supported_interfaces[0].protocol_version, "1.0");
    assert_eq!(card.security_requirements.len(), 1);
}
