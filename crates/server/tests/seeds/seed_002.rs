//! Seed 002, the JSON-RPC endpoint of an agent under `/v1/a2a`: envelopes, methods, codes, row by row.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{
    rig::{Fixture, TOKEN, envelope, message, said},
    wire::read_until,
};

fn without(mut params: Value, path: &[&str]) -> Value {
    let (last, parents) = path.split_last().expect("a path");
    let mut object = &mut params;
    for parent in parents {
        object = &mut object[*parent];
    }
    object.as_object_mut().expect("an object").remove(*last);
    params
}

#[tokio::test]
async fn s2_1_s2_2_one_url_answers_every_method_in_one_envelope() {
    let fixture = Fixture::seeded().await;
    let reply = fixture.dispatch("index").json(&envelope("message/send", said("hello"))).send().await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let sent = reply.json();
    assert_eq!(sent.as_object().unwrap().len(), 3, "{sent}");
    let id = json!({"id": sent["result"]["id"]});
    assert_eq!(fixture.seed("index", "tasks/get", id.clone()).await["result"]["id"], id["id"]);
    assert_eq!(fixture.seed("index", "tasks/cancel", id).await["error"]["code"], -32002);
    let slash = fixture.bare("POST", "/v1/a2a/agents/index/").header("x-sb-token", TOKEN);
    assert!(slash.json(&envelope("message/send", said("x"))).send().await.json()["result"].is_object());
}

#[tokio::test]
async fn s2_3_protocol_errors_are_http_200() {
    let fixture = Fixture::seeded().await;
    for (version, body, code) in [
        ("1.0", "{".to_owned(), -32700),
        ("1.0", "[]".to_owned(), -32600),
        ("0.3", "{}".to_owned(), -32007),
        ("1.0", envelope("foo/bar", json!({})).to_string(), -32601),
        ("1.0", envelope("tasks/get", json!({})).to_string(), -32602),
        ("1.0", envelope("tasks/get", json!({"id": "x"})).to_string(), -32001),
    ] {
        let ask = fixture.dispatch("index").header("A2A-Version", version).header("Content-Type", "application/json");
        let reply = ask.body(body).send().await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (200, &json!(code)));
    }
}

#[tokio::test]
async fn s2_4_s2_5_the_id_comes_back_as_it_was() {
    let fixture = Fixture::seeded().await;
    for (id, version, code) in [
        ("\"a\"", "2.0", None),
        ("7", "2.0", None),
        ("1.50", "2.0", None),
        ("null", "2.0", None),
        ("\"a\"", "1.0", Some(-32600)),
        ("7", "", Some(-32600)),
    ] {
        let params = said("x");
        let body = format!(r#"{{"jsonrpc":"{version}","id":{id},"method":"message/send","params":{params}}}"#);
        let reply = fixture.dispatch("index").header("Content-Type", "application/json").body(body).send().await;
        assert!(reply.body.contains(&format!("\"id\":{id},")), "{}", reply.body);
        assert_eq!(reply.json()["error"]["code"].as_i64(), code);
    }
    let body = json!({"jsonrpc": "2.0", "method": "tasks/get", "params": {"id": "x"}});
    let missing = fixture.dispatch("index").json(&body).send().await.json();
    assert_eq!(missing.get("id"), Some(&Value::Null));
}

#[tokio::test]
async fn s2_6_s2_7_what_a_message_needs() {
    let fixture = Fixture::seeded().await;
    for method in ["message/send", "message/stream"] {
        for path in [&["message"][..], &["message", "messageId"], &["message", "parts"], &["message", "role"]] {
            let error = fixture.seed("index", method, without(said("x"), path)).await;
            assert_eq!(error["error"]["code"], -32602, "{method} {path:?} {error}");
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        assert_eq!(fixture.dispatch("index").json(&body).send().await.json()["error"]["code"], -32602);
    }
    assert_eq!(fixture.get("/v1/requests").await.json()["requests"], json!([]), "nothing came of it");
}

#[tokio::test]
async fn s2_8_a_context_is_echoed_or_made() {
    let fixture = Fixture::seeded().await;
    let made = fixture.seed("index", "message/send", said("x")).await["result"]["contextId"].clone();
    assert!(!made.as_str().unwrap().is_empty());
    let mut params = said("x");
    params["message"]["contextId"] = made.clone();
    assert_eq!(fixture.seed("index", "message/send", params).await["result"]["contextId"], made);
}

#[tokio::test]
async fn s2_10_s2_11_x_11_only_text_is_taken() {
    let fixture = Fixture::seeded().await;
    for part in [json!({"kind": "file", "file": {"bytes": "aGk="}}), json!({"kind": "data", "data": {"a": 1}})] {
        for method in ["message/send", "message/stream"] {
            let mut params = said("x");
            params["message"]["parts"].as_array_mut().unwrap().push(part.clone());
            let error = fixture.seed("index", method, params).await;
            assert_eq!(error["error"]["code"], -32005, "{part}");
        }
    }
}

#[tokio::test]
async fn s2_12_s2_14_x_29_the_task_that_a_message_becomes() {
    let fixture = Fixture::seeded().await;
    for agent in ["index", "direct"] {
        let mut params = said("hello");
        params["message"]["contextId"] = json!("c-42");
        let mut sent = fixture.seed(agent, "message/send", params).await;
        let task = sent["result"].as_object_mut().unwrap();
        let id = task["id"].as_str().unwrap().to_owned();
        task["status"].as_object_mut().unwrap().remove("timestamp");
        let part = json!([{"kind": "text", "text": "hello"}]);
        let reply = json!({"kind": "message", "role": "agent", "messageId": format!("{id}-r"), "parts": part,
            "taskId": id, "contextId": "c-42"});
        let user = json!({"kind": "message", "role": "user", "messageId": "m-1", "parts": part,
            "taskId": id, "contextId": "c-42"});
        let expected = json!({
            "kind": "task", "id": id, "contextId": "c-42",
            "status": {"state": "completed", "message": reply},
            "history": [user, reply],
            "metadata": {"x-arbiter.agent_id": agent, "x-arbiter.input_tokens": 0, "x-arbiter.output_tokens": 0},
        });
        assert_eq!(Value::Object(task.clone()), expected, "{agent}");
        let mut got = fixture.seed(agent, "tasks/get", json!({"id": id})).await["result"].take();
        got["status"].as_object_mut().unwrap().remove("timestamp");
        assert_eq!(got, expected, "X-40: {agent}");
        let short = fixture.seed(agent, "tasks/get", json!({"id": id, "historyLength": 1})).await;
        assert_eq!(short["result"]["history"], json!([reply]));
    }
}

#[tokio::test]
async fn x_19_the_same_message_is_new_work_each_time() {
    let fixture = Fixture::seeded().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut params = said("hello");
        params["message"]["contextId"] = json!("c-1");
        let ask = fixture.dispatch("index").header("Idempotency-Key", "k-1");
        ids.push(ask.json(&envelope("message/send", params)).send().await.json()["result"]["id"].clone());
    }
    assert!(ids[0].is_string());
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn s2_15_s2_16_s2_17_s2_18_the_frames_of_a_stream() {
    let fixture = Fixture::seeded().await;
    let reply = fixture.dispatch("index").json(&envelope("message/stream", said("stream"))).send().await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    for record in reply.body.split_terminator("\n\n") {
        let record = record.split_once("event: message\ndata: {");
        let (id, _) = record.expect("each record is an event with one line of data");
        assert!(id.is_empty() || id.starts_with("id: "), "{id}");
    }
    let results = reply.results();
    let texts: Vec<_> = results.iter().filter(|result| result["kind"] == "artifact-update").collect();
    assert_eq!(texts[0]["append"], false);
    assert!(texts[1..].iter().all(|frame| frame["append"] == true));
    for frame in &texts {
        assert_eq!(frame["artifact"]["name"], "response");
        assert!(frame["artifact"]["artifactId"].as_str().unwrap().ends_with("-text-0"));
    }
    assert_eq!(results.last().unwrap()["final"], true, "and then the stream was closed");
}

#[tokio::test]
async fn s2_19_s2_31_errors_before_a_stream_are_no_stream() {
    let fixture = Fixture::seeded().await;
    let empty = json!({"message": {"messageId": "m", "role": "user", "parts": []}});
    for (agent, method, params, code) in [
        ("index", "message/stream", json!({}), -32602),
        ("index", "message/stream", empty, -32602),
        ("ghost", "message/stream", said("x"), -32001),
        ("index", "tasks/resubscribe", json!({}), -32602),
        ("index", "tasks/resubscribe", json!({"id": "nope"}), -32001),
    ] {
        assert_eq!(fixture.seed(agent, method, params.clone()).await["error"]["code"], code, "{method} {params}");
    }
}

#[tokio::test]
async fn s2_20_a_task_has_to_be_named() {
    let fixture = Fixture::seeded().await;
    for params in ["{}", "{\"id\":\"\"}", "{\"id\":7}", "null", "[]", "\"x\"", "7"] {
        for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"{method}","params":{params}}}"#);
            let ask = fixture.dispatch("index").header("Content-Type", "application/json");
            let error = ask.body(body).send().await.json();
            assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32602), &json!(5)), "{method} {params}");
        }
    }
}

#[tokio::test]
async fn s2_21_s2_22_a_working_task_is_its_state() {
    let fixture = Fixture::seeded().await;
    let id = fixture.begin_working("slow", "long").await;
    let mut got = fixture.seed("slow", "tasks/get", json!({"id": id})).await["result"].take();
    assert!(got["status"]["timestamp"].is_string());
    got["status"].as_object_mut().unwrap().remove("timestamp");
    assert_eq!(got["status"], json!({"state": "working"}));
    assert!(got.get("history").is_none());
    fixture.seed("slow", "tasks/cancel", json!({"id": id})).await;
    let ended = fixture.seed("slow", "tasks/get", json!({"id": id})).await;
    assert_eq!(ended["result"]["history"][0]["messageId"], "m-1");
}

#[tokio::test]
async fn s2_24_s2_26_a_cancel_ends_the_task_and_its_stream() {
    let fixture = Fixture::seeded().await;
    let mut live = fixture.dispatch("slow").json(&envelope("message/stream", said("long"))).open().await;
    let seen = read_until(&mut live, "\"working\"").await;
    let start = seen.find("\"taskId\":\"").unwrap() + 10;
    let id = &seen[start..start + 36];
    let canceled = fixture.seed("slow", "tasks/cancel", json!({"id": id})).await;
    assert_eq!((&canceled["result"]["id"], &canceled["result"]["status"]["state"]), (&json!(id), &json!("canceled")));
    let end = read_until(&mut live, "\"final\":true").await;
    assert!(end.contains(r#""state":"canceled""#), "{end}");
}

#[tokio::test]
async fn s2_25_canceled_stays_canceled() {
    let fixture = Fixture::seeded().await;
    let race = async |n: u64| {
        let id = fixture.begin("index", "stream").await;
        // Around the end, which comes after four chunks of 40 ms and the start of a program.
        tokio::time::sleep(Duration::from_millis(120 + 3 * n)).await;
        let answer = fixture.seed("index", "tasks/cancel", json!({"id": id})).await;
        let state = fixture.seed("index", "tasks/get", json!({"id": id})).await["result"]["status"]["state"].clone();
        match answer["error"]["code"].as_i64() {
            None => {
                assert_eq!((&answer["result"]["status"]["state"], &state), (&json!("canceled"), &json!("canceled")))
            }
            Some(code) => assert_eq!((code, state), (-32002, json!("completed"))),
        }
    };
    // Fewer at once than the agent takes.
    for first in (0..50).step_by(5) {
        join_all((first..first + 5).map(&race)).await;
    }
}

#[tokio::test]
async fn s2_27_a_blocking_send_that_is_canceled_returns_the_task() {
    let fixture = Fixture::seeded().await;
    let mut sending = fixture.dispatch("slow").json(&envelope("message/send", said("long"))).open().await;
    let id = loop {
        let listed = fixture.get("/v1/requests").await.json();
        if let Some(id) = listed["requests"][0]["request_id"].as_str() {
            break id.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    fixture.seed("slow", "tasks/cancel", json!({"id": id})).await;
    let answer = read_until(&mut sending, "\"canceled\"").await;
    assert!(answer.contains(r#""result":{"kind":"task""#) && answer.contains(&id), "{answer}");
}

#[tokio::test]
async fn s2_28_a_finished_task_is_one_final_event() {
    let fixture = Fixture::seeded().await;
    for (agent, text, state) in
        [("index", "stream", "completed"), ("fails", "x", "failed"), ("talks", "x", "completed")]
    {
        let sent = fixture.seed(agent, "message/send", said(text)).await;
        let params = json!({"id": sent["result"]["id"]});
        let reply = fixture.dispatch(agent).json(&envelope("tasks/resubscribe", params)).send().await;
        let results = reply.results();
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!((&results[0]["kind"], &results[0]["final"]), (&json!("status-update"), &json!(true)));
        assert_eq!(results[0]["status"]["state"], state);
        assert_eq!(results[0]["status"]["message"], sent["result"]["status"]["message"]);
        assert!(reply.records()[0].0.is_some());
    }
}

#[tokio::test]
async fn x_39_a_cursor_gets_what_is_missing() {
    let fixture = Fixture::seeded().await;
    let live = fixture.dispatch("index").json(&envelope("message/stream", said("stream"))).send().await;
    let records = live.records();
    let body = envelope("tasks/resubscribe", json!({"id": live.results()[0]["taskId"]}));
    let after = |cursor: Option<u64>| {
        let ask = fixture.dispatch("index");
        match cursor {
            Some(cursor) => ask.header("Last-Event-ID", &cursor.to_string()),
            None => ask,
        }
        .json(&body)
        .send()
    };
    assert_eq!(after(Some(0)).await.records(), records, "everything");
    let third = records[2].0.unwrap();
    assert_eq!(after(Some(third)).await.records(), records[3..]);
    let last = records.last().unwrap().0;
    assert_eq!(after(last).await.records(), []);
    assert_eq!(after(Some(10_000)).await.results().len(), 1, "a cursor of another task counts as none");
    let path = format!("/v1/a2a/agents/index?afterSequence={third}");
    let by_query = fixture.bare("POST", &path).header("x-sb-token", TOKEN).json(&body).send().await;
    assert_eq!(by_query.records(), records[3..]);
}

#[tokio::test]
async fn s2_33_one_trigger_for_each_code() {
    let fixture = Fixture::seeded().await;
    let raw = |version: &'static str, body: String| {
        let ask = fixture.dispatch("index").header("A2A-Version", version).header("Content-Type", "application/json");
        ask.body(body).send()
    };
    assert_eq!(raw("1.0", "nope".to_owned()).await.json()["error"]["code"], -32700);
    assert_eq!(raw("1.0", "{}".to_owned()).await.json()["error"]["code"], -32600);
    assert_eq!(raw("2.0", "{}".to_owned()).await.json()["error"]["code"], -32007);
    let done = fixture.seed("index", "message/send", said("x")).await["result"]["id"].clone();
    let file =
        json!({"message": {"messageId": "m", "role": "user", "parts": [{"kind": "file", "file": {"uri": "u"}}]}});
    for (method, params, code) in [
        ("no/such", json!({}), -32601),
        ("tasks/get", json!({}), -32602),
        ("tasks/get", json!({"id": "x"}), -32001),
        ("tasks/cancel", json!({"id": done}), -32002),
        ("tasks/pushNotificationConfig/set", json!({}), -32004),
        ("message/send", file, -32005),
    ] {
        let error = fixture.seed("index", method, params).await;
        assert_eq!(error["error"]["code"], code, "{method}");
        assert!(error["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn x_40_an_agent_that_breaks_its_protocol_is_an_error_to_a_blocking_send_alone() {
    let fixture = Fixture::seeded().await;
    for agent in ["breaks", "strays"] {
        let error = fixture.seed(agent, "message/send", said("x")).await;
        assert_eq!(error["error"]["code"], -32006, "{agent}");
        let streamed = fixture.dispatch(agent).json(&envelope("message/stream", said("x"))).send().await.results();
        assert_eq!(streamed.last().unwrap()["status"]["state"], "failed");
        let in_1_0 = fixture.seed(agent, "SendMessage", message("x")).await;
        assert_eq!(in_1_0["result"]["task"]["status"]["state"], "TASK_STATE_FAILED");
    }
    let failed = fixture.seed("fails", "message/send", said("x")).await;
    assert_eq!(failed["result"]["status"]["state"], "failed", "an agent that fails properly is a failed task");
}

#[tokio::test]
async fn s2_34_s2_43_an_unknown_agent_is_not_found_on_every_route() {
    let fixture = Fixture::seeded().await;
    for (agent, known) in [("index", true), ("research", true), ("ghost", false), ("secret", false), ("a%20b", false)] {
        let sent = fixture.seed(agent, "message/send", said("x")).await;
        assert_eq!(sent["error"]["code"].as_i64(), (!known).then_some(-32001), "{agent}");
        let card = fixture.get(&format!("/v1/a2a/agents/{agent}/agent-card.json")).await;
        assert_eq!(card.status, if known { 200 } else { 404 }, "{agent}");
    }
}

#[tokio::test]
async fn s2_37_version_failure_precedes_the_envelope() {
    let fixture = Fixture::seeded().await;
    for body in ["{", "", &envelope("message/send", said("x")).to_string()] {
        let ask = fixture.dispatch("index").header("A2A-Version", "0.3").header("Content-Type", "application/json");
        let reply = ask.body(body).send().await;
        let error = reply.json();
        assert_eq!((reply.status, &error["error"]["code"]), (200, &json!(-32007)), "{body}");
        assert_eq!(error.get("id"), Some(&Value::Null), "{body}");
        assert_eq!(error["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
    }
}

#[tokio::test]
async fn s2_38_s2_39_s2_40_what_is_not_http_200() {
    let fixture = Fixture::seeded().await;
    let agent = "/v1/a2a/agents/index";
    for (method, path) in [("POST", agent), ("GET", agent), ("GET", "/v1/a2a/foo"), ("GET", "/v1/requests")] {
        for token in [None, Some("sb_wrong")] {
            let mut ask = fixture.bare(method, path);
            if let Some(token) = token {
                ask = ask.header("Authorization", &format!("Bearer {token}"));
            }
            let reply = ask.send().await;
            assert_eq!((reply.status, reply.reason().as_str()), (401, "UNAUTHENTICATED"), "{method} {path}");
            assert_eq!(reply.header("www-authenticate"), None, "X-18");
        }
    }
    for (method, path, status, reason) in [
        ("POST", "/v1/a2a/foo", 404, "NOT_FOUND"),
        ("POST", "/v1/a2a", 404, "NOT_FOUND"),
        ("POST", "/v1/a2a/agents", 404, "NOT_FOUND"),
        ("GET", "/v1/a2a/agents/index/nope", 404, "NOT_FOUND"),
        ("GET", "/v1/nope", 404, "NOT_FOUND"),
        ("GET", agent, 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", agent, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v1/a2a/agents/index/agent-card.json", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v1/requests", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/requests/x/cancel", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v1/requests/x/events", 405, "METHOD_NOT_ALLOWED"),
    ] {
        let reply = fixture.ask(method, path).send().await;
        assert_eq!((reply.status, reply.reason().as_str()), (status, reason), "{method} {path}");
        assert_eq!(reply.header("allow").is_some(), status == 405, "{method} {path}");
    }
    let options = fixture.bare("OPTIONS", agent).send().await;
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
}

#[tokio::test]
async fn s2_41_x_16_everything_else_is_http_200() {
    let fixture = Fixture::seeded().await;
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}}"#, "[".repeat(5000));
    for body in [
        &b""[..],
        b"null",
        b"\"x\"",
        b"\xff\xfe",
        b"{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\",\"method\":\"tasks/get\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tasks/get\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message/send\",\"params\":{\"message\":[]}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message/send\",\"params\":{\"message\":{\"parts\":[{\"kind\":\"x\"}]}}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/get\",\"params\":{\"id\":\"a\\r\\nb\"}}",
        deep.as_bytes(),
    ] {
        let ask = fixture.dispatch("index").header("Content-Type", "application/json");
        let reply = ask.body(body).send().await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{shown}");
        assert!(reply.json()["error"]["code"].is_i64(), "{shown}");
    }
    let media = fixture.dispatch("index").header("Content-Type", "text/plain").body("{}").send().await;
    assert_eq!((media.status, &media.json()["error"]["code"]), (415, &json!(-32005)), "X-16");
    assert_eq!(fixture.get("/v1/requests").await.json()["requests"], json!([]), "nothing came of it");
}

#[tokio::test]
async fn s2_44_unknown_members_are_tolerated() {
    let fixture = Fixture::seeded().await;
    let mut params = said("hello");
    params["metadata"] = json!({"x-other.key": {"deep": [1, 2]}});
    params["unknown"] = json!(true);
    params["message"]["metadata"] = json!({"x-arbiter.unknown": 1, "own": 1.50});
    params["message"]["unknown"] = json!("x");
    let sent = fixture.seed("index", "message/send", params).await;
    assert_eq!(sent["result"]["status"]["state"], "completed");
    assert_eq!(sent["result"]["history"][0]["metadata"]["own"], 1.5);
}

#[tokio::test]
async fn a_reply_too_long_for_a_status_is_whole_all_the_same() {
    let fixture = Fixture::seeded().await;
    let whole: String = (0..10).map(|n| n.to_string().repeat(10_000)).collect();
    let sent = fixture.seed("talks", "message/send", said("x")).await;
    assert_eq!(sent["result"]["status"]["message"]["parts"][0]["text"], whole);
    let results = fixture.dispatch("talks").json(&envelope("message/stream", said("x"))).send().await.results();
    let last = results.last().unwrap();
    assert_eq!((&last["final"], &last["status"]["message"]["parts"][0]["text"]), (&json!(true), &json!(whole)));
    let texts = results.iter().filter_map(|result| result["artifact"]["parts"][0]["text"].as_str());
    assert_eq!(texts.collect::<String>(), whole);
}

#[tokio::test]
async fn x_17_what_is_no_text_is_an_artifact_of_its_own() {
    let fixture = Fixture::seeded().await;
    let sent = fixture.seed("makes", "message/send", said("x")).await;
    let artifacts = sent["result"]["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), 1, "{sent}");
    assert_eq!(artifacts[0]["parts"][0]["file"]["bytes"], "aGn/", "X-17");
    assert_eq!(artifacts[0]["parts"][1], json!({"kind": "data", "data": {"n": 1}}));
    let results = fixture.dispatch("makes").json(&envelope("message/stream", said("x"))).send().await.results();
    assert!(results.iter().any(|result| result["artifact"]["name"] == "out.txt"), "{results:?}");
}
