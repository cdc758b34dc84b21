//! Seed 000, the concept: who may see which card, what a stream says, what is stored; `/v1/a2a` row by row.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    rig::{Fixture, OTHER_TOKEN, TOKEN, envelope, message, said},
    wire::read_until,
};

const STUB: &str = "/.well-known/agent-card.json";

/// The rows of a query of the journal.
fn look(fixture: &Fixture, query: &str) -> testkit::temp_store::Rows {
    fixture.scratch().look(&[query]).remove(0)
}

/// One row that has no NULL in it.
fn row(fixture: &Fixture, query: &str) -> Vec<String> {
    look(fixture, query).remove(0).into_iter().map(Option::unwrap).collect()
}

#[tokio::test]
async fn s0_1_s0_8_every_agent_is_an_endpoint_and_send_blocks_to_the_end() {
    let fixture = Fixture::seeded().await;
    for (agent, text) in [("index", "hello"), ("research", "hello"), ("single", "short")] {
        let sent = fixture.seed(agent, "message/send", said(text)).await;
        assert_eq!(sent["result"]["kind"], "task", "{agent}");
        assert_eq!(sent["result"]["status"]["state"], "completed", "{agent}");
    }
}

#[tokio::test]
async fn s0_3_s2_9_a_context_is_no_conversation() {
    let fixture = Fixture::seeded().await;
    for _ in 0..2 {
        let mut params = said("hello");
        params["message"]["contextId"] = json!("c-42");
        let sent = fixture.seed("remembers", "message/send", params).await;
        assert_eq!(sent["result"]["contextId"], "c-42");
        assert_eq!(sent["result"]["status"]["message"]["parts"][0]["text"], "1", "only this message");
    }
    let tables = match fixture.scratch().url() {
        Some(_) => "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE '%conversation%'",
        None => "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%conversation%'",
    };
    assert_eq!(row(&fixture, tables), ["0"]);
}

#[tokio::test]
async fn s0_4_s0_5_the_stub_is_public_and_names_no_agent() {
    let fixture = Fixture::seeded().await;
    let stub = fixture.bare("GET", STUB).send().await;
    assert_eq!(stub.status, 200);
    for agent in ["research", "index"] {
        assert!(!stub.body.contains(agent), "{agent}");
    }
    let card = stub.json();
    assert!(card["description"].as_str().unwrap().contains("agent-card.json"));
    assert_eq!(card["securitySchemes"]["bearerAuth"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
}

#[tokio::test]
async fn s0_6_s0_7_s0_44_the_card_is_for_those_who_may_see_the_agent() {
    let fixture = Fixture::seeded().await;
    let path = "/v1/a2a/agents/research/agent-card.json";
    let nobody = fixture.bare("GET", path).send().await;
    assert_eq!((nobody.status, nobody.reason().as_str()), (401, "UNAUTHENTICATED"));
    assert_eq!(fixture.bare("GET", path).header("x-sb-token", TOKEN).send().await.status, 200);
    for (token, path) in [(TOKEN, "/v1/a2a/agents/ghost/agent-card.json"), (OTHER_TOKEN, path)] {
        let unknown = fixture.bare("GET", path).header("x-sb-token", token).send().await;
        assert_eq!((unknown.status, unknown.reason().as_str()), (404, "AGENT_NOT_FOUND"), "{path}");
    }
    let ask = fixture.bare("POST", "/v1/a2a/agents/research").header("x-sb-token", OTHER_TOKEN);
    let foreign = ask.json(&envelope("message/send", said("x"))).send().await.json();
    assert_eq!(foreign["error"]["code"], -32001);
}

#[tokio::test]
async fn s0_21_s0_24_s0_26_s0_27_s0_29_s0_30_what_the_card_says() {
    let fixture = Fixture::seeded().await;
    let reply = fixture.get("/v1/a2a/agents/research/agent-card.json").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.header("etag").is_some() && reply.header("vary").is_some());
    let card = reply.json();
    let url = format!("{}/v1/a2a/agents/research", fixture.url());
    assert_eq!((&card["protocolVersion"], &card["name"]), (&json!("1.0"), &json!("research")));
    assert_eq!((&card["url"], &card["preferredTransport"]), (&json!(url), &json!("JSONRPC")));
    let capabilities = json!({"streaming": true, "pushNotifications": false, "stateTransitionHistory": false});
    assert_eq!(card["capabilities"], capabilities);
    assert_eq!(card["defaultInputModes"], json!(["text/plain"]));
    assert_eq!(card["defaultOutputModes"], json!(["text/plain", "application/json"]));
    let bearer = &card["securitySchemes"]["bearer"];
    assert_eq!((&bearer["type"], &bearer["scheme"]), (&json!("http"), &json!("bearer")));
    assert_eq!(card["security"], json!([{"bearer": []}]));
    assert_eq!(card["skills"][0]["id"], "chat");
    // the 1.0 set of fields stands beside it.
    assert_eq!(card["supportedInterfaces"][0]["url"], json!(url));
    assert_eq!(bearer["httpAuthSecurityScheme"]["scheme"], "bearer");
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"bearer": {}}}]));
}

#[tokio::test]
async fn s0_32_the_base_url_is_configured_and_never_the_host_header() {
    let fixture = Fixture::with(|edge| edge.public_url = Some("https://sb.example/".to_owned())).await;
    let card = fixture.get("/v1/a2a/agents/echo/agent-card.json").await;
    assert_eq!(card.json()["url"], "https://sb.example/v1/a2a/agents/echo");
    assert!(!card.body.contains("odd.example"));
    let unset = Fixture::start().await;
    let card = unset.get("/v1/a2a/agents/echo/agent-card.json").await;
    assert!(card.json()["url"].as_str().unwrap().starts_with(unset.url()) && !card.body.contains("odd.example"));
}

#[tokio::test]
async fn s0_9_s0_34_s0_35_s0_36_s0_40_s0_42_x_27_what_a_stream_says() {
    let fixture = Fixture::seeded().await;
    let mut params = said("stream");
    params["message"]["contextId"] = json!("c-1");
    let reply = fixture.dispatch("index").json(&envelope("message/stream", params)).send().await;
    let results = reply.results();
    let task = results[0]["taskId"].as_str().unwrap().to_owned();
    for result in &results {
        assert!(["task", "message", "status-update", "artifact-update"].contains(&result["kind"].as_str().unwrap()));
        assert_eq!((&result["taskId"], &result["contextId"]), (&json!(task), &json!("c-1")));
    }
    let first = &results[0];
    assert_eq!((&first["kind"], &first["status"]["state"]), (&json!("status-update"), &json!("working")));
    assert_eq!(first["final"], false);

    let texts = &results[1..results.len() - 2];
    let mut text = String::new();
    for (n, frame) in texts.iter().enumerate() {
        let artifact = &frame["artifact"];
        assert_eq!(artifact["artifactId"], format!("{task}-text-0"), "{frame}");
        assert_eq!((&artifact["name"], &frame["append"]), (&json!("response"), &json!(n > 0)));
        text.push_str(artifact["parts"][0]["text"].as_str().unwrap());
    }
    assert!(texts.len() > 1);
    assert_eq!(text, "chunk 0 chunk 1 chunk 2 chunk 3 ");

    let chunk = &results[results.len() - 2];
    assert_eq!((&chunk["kind"], &chunk["lastChunk"]), (&json!("artifact-update"), &json!(true)));
    let last = results.last().unwrap();
    assert_eq!((&last["status"]["state"], &last["final"]), (&json!("completed"), &json!(true)));
    assert_eq!(last["status"]["message"]["parts"][0]["text"], text);
    assert_eq!(results.iter().filter(|result| result["final"] == true).count(), 1);

    // of the frames of one event the last has its number, and numbers grow.
    let ids: Vec<Option<u64>> = reply.records().into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(ids[ids.len() - 2], None);
    assert!(ids.iter().flatten().is_sorted_by(|a, b| a < b) && ids.last().unwrap().is_some());
}

#[tokio::test]
async fn s0_36_s0_42_x_10_a_named_text_without_an_id_is_the_one_artifact_of_a_stream() {
    let is_one = |results: &[Value]| {
        let updates: Vec<&Value> = results.iter().filter(|result| result["kind"] == "artifact-update").collect();
        let task = results[0]["taskId"].as_str().unwrap();
        for update in &updates {
            assert_eq!(update["artifact"]["artifactId"], format!("{task}-text-0"), "{results:#?}");
            assert_eq!(update["artifact"]["name"], "response", "{results:#?}");
        }
        assert_eq!(updates[0]["append"], false);
        assert_eq!(updates.iter().filter(|update| update["lastChunk"] == true).count(), 1, "{results:#?}");
        updates.iter().filter_map(|update| update["artifact"]["parts"][0]["text"].as_str()).collect::<String>()
    };
    let demo = Fixture::with_demo_agents().await;
    let streamed = demo.dispatch("echo").json(&envelope("message/stream", said("hello"))).send().await;
    assert_eq!(is_one(&streamed.results()), "hello");
    // In a later turn as well.
    let fixture = Fixture::seeded().await;
    let asked = fixture.seed("names", "message/send", said("start")).await;
    assert_eq!(asked["result"]["status"]["state"], "input-required", "{asked:#}");
    let mut params = said("hello");
    params["message"]["messageId"] = json!("m-2");
    params["message"]["taskId"] = asked["result"]["id"].clone();
    let streamed = fixture.dispatch("names").json(&envelope("message/stream", params)).send().await;
    assert_eq!(is_one(&streamed.results()), "hello");
}

/// The text chunks and artifacts of a stream, as id, text, `append` and `lastChunk`.
fn chunks(results: &[Value]) -> Vec<(String, String, bool, bool)> {
    let updates = results.iter().filter(|result| result["kind"] == "artifact-update");
    let chunk = |update: &Value| {
        let artifact = &update["artifact"];
        let text = artifact["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        let id = artifact["artifactId"].as_str().unwrap_or_default().to_owned();
        (id, text, update["append"] == true, update["lastChunk"] == true)
    };
    updates.map(chunk).collect()
}

#[tokio::test]
async fn s0_36_x_10_x_13_x_39_a_stream_that_continues_a_task_has_the_new_turn_alone() {
    let fixture = Fixture::seeded().await;
    let stream = async |task: Option<&str>, text: &str| {
        let mut params = said(text);
        params["message"]["messageId"] = json!(text);
        if let Some(task) = task {
            params["message"]["taskId"] = json!(task);
        }
        let results = fixture.dispatch("turns").json(&envelope("message/stream", params)).send().await.results();
        assert_eq!(results[0]["status"]["state"], "working", "{results:#?}");
        results
    };
    for how in ["plain", "named", "id"] {
        let first = stream(None, &format!("{how} ONE asks")).await;
        let task = first[0]["taskId"].as_str().unwrap();
        let second = stream(Some(task), &format!("{how} TWO asks")).await;
        let third = stream(Some(task), &format!("{how} THREE")).await;
        let response = format!("{task}-text-0");
        for (word, results) in [("ONE", &first), ("TWO", &second), ("THREE", &third)] {
            let id = if how == "id" { format!("r-{word}") } else { response.clone() };
            let chunk = |text: &str, append, last| (id.clone(), text.to_owned(), append, last);
            let a = chunk(&format!("{word}-a "), false, false);
            let mut expected = vec![a, chunk(&format!("{word}-b"), true, how == "id")];
            if word == "THREE" {
                expected.push((response.clone(), String::new(), how != "id", true));
            }
            assert_eq!(chunks(results), expected, "{how}: {results:#?}");
        }
        let got = fixture.seed("turns", "tasks/get", json!({"id": task})).await["result"].take();
        assert_eq!(got["artifacts"].as_array().map_or(0, Vec::len), if how == "id" { 3 } else { 0 }, "{got:#}");
        if how != "id" {
            assert_eq!(got["status"]["message"]["parts"][0]["text"], "THREE-a THREE-b", "{got:#}");
        }
    }
    // What a turn adds to an artifact of the one before stays in that artifact.
    let first = stream(None, "id ONE asks").await;
    let added = stream(first[0]["taskId"].as_str(), "more TWO").await;
    assert_eq!(chunks(&added)[0], ("r-ONE".to_owned(), "TWO-b".to_owned(), true, true), "{added:#?}");
}

#[tokio::test]
async fn s2_29_x_10_a_resumed_stream_gives_each_chunk_under_the_artifact_it_had() {
    let fixture = Fixture::seeded().await;
    for how in ["plain", "named", "id"] {
        let params = said(&format!("{how} ONE"));
        let live = fixture.dispatch("turns").json(&envelope("message/stream", params)).send().await;
        let records = live.records();
        let body = envelope("tasks/resubscribe", json!({"id": live.results()[0]["taskId"]}));
        for (n, record) in records.iter().enumerate() {
            let Some(cursor) = record.0 else { continue };
            let ask = fixture.dispatch("turns").header("Last-Event-ID", &cursor.to_string());
            assert_eq!(ask.json(&body).send().await.records(), records[n + 1..], "{how}, after {cursor}");
        }
    }
}

#[tokio::test]
async fn s0_10_s2_23_tasks_are_scoped_to_their_tenant() {
    let fixture = Fixture::seeded().await;
    let id = fixture.begin_working("slow", "long").await;
    assert_eq!(fixture.seed("slow", "tasks/get", json!({"id": id})).await["result"]["id"], json!(id));
    let never = "01890000-0000-7000-8000-000000000000";
    for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        let ask = fixture.bare("POST", "/v1/a2a/agents/slow").header("x-sb-token", OTHER_TOKEN);
        let foreign = ask.json(&envelope(method, json!({"id": id}))).send().await;
        let unknown = fixture.dispatch("slow").json(&envelope(method, json!({"id": never}))).send().await;
        assert_eq!(foreign.json()["error"]["code"], -32001, "{method}");
        assert_eq!(foreign.body.replace(&id, "ID"), unknown.body.replace(never, "ID"), "{method}");
    }
    let elsewhere = fixture.seed("index", "tasks/get", json!({"id": id})).await;
    assert_eq!(elsewhere["error"]["code"], -32001, "another agent's URL does not show it");
    assert_eq!(fixture.seed("slow", "tasks/get", json!({"id": id})).await["result"]["status"]["state"], "working");
}

#[tokio::test]
async fn s0_12_x_35_what_has_ended_is_not_cancelable() {
    let fixture = Fixture::seeded().await;
    let done = fixture.seed("index", "message/send", said("x")).await["result"]["id"].clone();
    assert_eq!(fixture.seed("index", "tasks/cancel", json!({"id": done})).await["error"]["code"], -32002);
    let id = fixture.begin("slow", "long").await;
    let canceled = fixture.seed("slow", "tasks/cancel", json!({"id": id})).await;
    assert_eq!(canceled["result"]["status"]["state"], "canceled");
    let again = fixture.seed("slow", "tasks/cancel", json!({"id": id})).await;
    assert_eq!(again["error"]["code"], -32002, "X-35: also when it was canceled");
}

#[tokio::test]
async fn s0_13_s2_29_resubscribe_replays_and_follows() {
    let fixture = Fixture::seeded().await;
    let mut live = fixture.dispatch("index").json(&envelope("message/stream", said("stream"))).open().await;
    let seen = read_until(&mut live, "chunk 0").await;
    let start = seen.find("\"taskId\":\"").unwrap() + 10;
    let task = &seen[start..start + 36];
    let ask = fixture.dispatch("index").json(&envelope("tasks/resubscribe", json!({"id": task})));
    let results = ask.send().await.results();
    assert_eq!(results[0]["status"]["state"], "working");
    let texts = results.iter().filter_map(|result| result["artifact"]["parts"][0]["text"].as_str());
    assert_eq!(texts.collect::<String>(), "chunk 0 chunk 1 chunk 2 chunk 3 ", "every text once");
    let last = results.last().unwrap();
    assert_eq!((&last["status"]["state"], &last["final"]), (&json!("completed"), &json!(true)));
}

#[tokio::test]
async fn s0_15_s2_32_nothing_is_pushed() {
    let fixture = Fixture::seeded().await;
    let mut messages = Vec::new();
    for verb in ["set", "get", "list", "delete", "set"] {
        let method = format!("tasks/pushNotificationConfig/{verb}");
        let error = fixture.seed("index", &method, json!({"id": "x"})).await;
        assert_eq!(error["error"]["code"], -32004, "{verb}");
        messages.push(error["error"]["message"].clone());
    }
    assert!(messages.windows(2).all(|pair| pair[0] == pair[1]), "{messages:?}");
    let mut params = said("x");
    params["configuration"] = json!({"pushNotificationConfig": {"url": "https://x.example"}});
    assert_eq!(fixture.seed("index", "message/send", params).await["error"]["code"], -32004);
    for (method, params) in [
        ("CreateTaskPushNotificationConfig", json!({"taskId": "x", "url": "https://x.example"})),
        ("CreateTaskPushNotificationConfig", json!({})),
        ("GetTaskPushNotificationConfig", json!({"taskId": "x", "id": "c"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": "x"})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": "x", "id": "c"})),
    ] {
        assert_eq!(fixture.seed("index", method, params).await["error"]["code"], -32003, "X-4: {method}");
    }
}

#[tokio::test]
async fn s0_15_x_4_no_message_brings_a_webhook() {
    let fixture = Fixture::seeded().await;
    let mut old = said("x");
    old["configuration"] = json!({"pushNotificationConfig": {"url": "https://x.example"}});
    let mut new = message("x");
    new["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://x.example"}});
    let pushing = fixture.seed("index", "tasks/pushNotificationConfig/set", json!({})).await;
    for (method, mut params, code) in [
        ("message/send", old.clone(), -32004),
        ("message/stream", old, -32004),
        ("SendMessage", new.clone(), -32003),
        ("SendStreamingMessage", new, -32003),
    ] {
        let refused = fixture.seed("index", method, params.clone()).await;
        assert_eq!(refused["error"]["code"], code, "{method}: {refused}");
        assert_eq!(refused["error"]["message"], pushing["error"]["message"], "{method}");
        // What is wrong with the message itself is told first.
        params["message"]["parts"] = json!([]);
        assert_eq!(fixture.seed("index", method, params.clone()).await["error"]["code"], -32602, "{method}");
    }
    let listed = fixture.seed("index", "ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 0, "nothing was begun: {listed}");
}

#[tokio::test]
async fn s0_16_s0_17_methods_and_envelopes() {
    let fixture = Fixture::seeded().await;
    assert_eq!(fixture.seed("index", "foo/bar", json!({})).await["error"]["code"], -32601);
    for (body, code) in [("{", -32700), ("[]", -32600), ("{\"id\":1}", -32600)] {
        let ask = fixture.dispatch("index").header("Content-Type", "application/json");
        assert_eq!(ask.body(body).send().await.json()["error"]["code"], code, "{body}");
    }
    // a name of 1.0 is served in 1.0.
    let sent = fixture.seed("index", "SendMessage", message("hello")).await;
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let direct = fixture.seed("direct", "SendMessage", message("hello")).await;
    assert!(direct["result"]["message"].is_object(), "by the rules of 1.0: {direct}");
    let unknown = fixture.seed("ghost", "SendMessage", message("hello")).await;
    assert_eq!(unknown["error"]["code"], -32001, "X-33");
    assert_eq!(unknown["error"]["data"][0]["reason"], "AGENT_NOT_FOUND");
    let listed = fixture.seed("index", "ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 1);
    let stream = fixture.dispatch("index").json(&envelope("SendStreamingMessage", message("stream"))).send().await;
    assert!(stream.events()[0].1["result"]["task"].is_object(), "X-13");
}

#[tokio::test]
async fn s0_18_s0_19_versions() {
    let fixture = Fixture::seeded().await;
    let ask = |version: Option<&str>, method: &str, params: Value| {
        let ask = match version {
            Some(version) => fixture.dispatch("index").header("A2A-Version", version),
            None => fixture.dispatch("index"),
        };
        ask.json(&envelope(method, params)).send()
    };
    for version in [None, Some(""), Some("1"), Some("1.0")] {
        let sent = ask(version, "message/send", said("x")).await.json();
        assert_eq!(sent["result"]["status"]["state"], "completed", "{version:?}");
        assert!(ask(version, "SendMessage", message("x")).await.json()["result"]["task"].is_object(), "{version:?}");
    }
    for version in ["0.3", "2.0", "abc", "1.1"] {
        for (method, params) in [("message/send", said("x")), ("SendMessage", message("x"))] {
            let refused = ask(Some(version), method, params).await.json();
            assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32007), &Value::Null), "{version}");
            assert_eq!(refused["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED", "X-3");
        }
    }
}

#[tokio::test]
async fn s0_20_the_older_well_known_path_is_not_served() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.get("/.well-known/agent.json").await.status, 404);
    assert_eq!(fixture.get("/v1/a2a/agents/echo/.well-known/agent.json").await.status, 404);
}

#[tokio::test]
async fn s0_33_states_are_lowercase_words() {
    let fixture = Fixture::seeded().await;
    for (agent, state) in
        [("index", "completed"), ("fails", "failed"), ("rejects", "rejected"), ("asks", "input-required")]
    {
        let sent = fixture.seed(agent, "message/send", said("x")).await;
        assert_eq!(sent["result"]["status"]["state"], state, "{sent}");
        let id = sent["result"]["id"].clone();
        let got = fixture.seed(agent, "tasks/get", json!({"id": id})).await;
        assert_eq!(got["result"]["status"]["state"], state);
    }
    let failed = fixture.seed("fails", "message/send", said("x")).await;
    assert_eq!(failed["result"]["metadata"]["x-arbiter.error"], "no luck");
    assert_eq!(failed["result"]["metadata"]["x-arbiter.agent_id"], "fails");

    let asked = fixture.seed("asks", "message/send", said("x")).await;
    assert_eq!(asked["result"]["status"]["message"]["parts"][0]["text"], "which one?", "X-40");
    let mut answer = said("the red one");
    answer["message"]["taskId"] = asked["result"]["id"].clone();
    let done = fixture.seed("asks", "message/send", answer).await;
    assert_eq!(
        (&done["result"]["id"], &done["result"]["status"]["state"]),
        (&asked["result"]["id"], &json!("completed"))
    );
    assert_eq!(done["result"]["status"]["message"]["parts"][0]["text"], "the red one");
}

#[tokio::test]
async fn s0_43_one_token_for_both_surfaces() {
    let fixture = Fixture::seeded().await;
    for (name, value) in [
        ("Authorization", format!("Bearer {TOKEN}")),
        ("X-API-Key", TOKEN.to_owned()),
        ("x-sb-token", TOKEN.to_owned()),
    ] {
        let ask = fixture.bare("POST", "/v1/a2a/agents/index").header(name, &value);
        assert_eq!(ask.json(&envelope("message/send", said("x"))).send().await.json()["result"]["kind"], "task");
        assert_eq!(fixture.bare("GET", "/v1/requests").header(name, &value).send().await.status, 200, "{name}");
        let ask = fixture.bare("POST", "/a2a").header(name, &value);
        assert_eq!(ask.json(&envelope("message/send", said("x"))).send().await.json()["result"]["kind"], "task");
    }
}

#[tokio::test]
async fn s0_45_the_table_of_tasks() {
    let fixture = Fixture::start().await;
    // Its columns with their types, whether they are the key, and what they hold when nothing is said.
    let (columns, text, number) = match fixture.scratch().url() {
        Some(_) => (
            "SELECT c.column_name, c.data_type, CASE WHEN k.column_name IS NULL THEN 0 ELSE 1 END, c.column_default
             FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k
               ON k.table_name = c.table_name AND k.column_name = c.column_name AND k.constraint_name LIKE '%_pkey'
             WHERE c.table_name = 'a2a_tasks'",
            ["text", "uuid"],
            "bigint",
        ),
        None => ("SELECT name, type, pk, dflt_value FROM pragma_table_xinfo('a2a_tasks')", ["TEXT", "TEXT"], "INTEGER"),
    };
    let columns = look(&fixture, columns);
    for (name, kinds, key) in [
        ("task_id", &text[..], "1"),
        ("tenant_id", &[number], "0"),
        ("agent_id", &text, "0"),
        ("context_id", &text, "0"),
        ("state", &text, "0"),
        ("created_at", &[number], "0"),
        ("updated_at", &[number], "0"),
        ("final_message_json", &text, "0"),
        ("error_message", &text, "0"),
    ] {
        let column = columns.iter().find(|column| column[0].as_deref() == Some(name)).expect(name);
        let kind = column[1].as_deref().unwrap();
        assert!(kinds.iter().any(|wanted| kind.starts_with(wanted)), "{name}: {kind}");
        assert_eq!(column[2].as_deref(), Some(key), "{name}");
        if name == "context_id" {
            assert!(column[3].as_deref().unwrap().starts_with("''"), "{column:?}");
        }
    }

    // The two that have no default are derived, and empty until there is something to say.
    let id = fixture.slow_task("long").await;
    let query = format!("SELECT final_message_json, error_message FROM a2a_tasks WHERE task_id = '{id}'");
    assert_eq!(row(&fixture, &query), ["", ""]);
}

#[tokio::test]
async fn s0_47_rows_are_written_at_each_step() {
    let fixture = Fixture::seeded().await;
    let state = |id: &str| row(&fixture, &format!("SELECT state FROM a2a_tasks WHERE task_id = '{id}'")).remove(0);
    let ahead = fixture.begin_working("single", "long").await;
    let id = fixture.begin("single", "short").await;
    assert_eq!((state(&ahead).as_str(), state(&id).as_str()), ("working", "submitted"));
    let got = fixture.seed("single", "tasks/get", json!({"id": id})).await;
    assert_eq!(got["result"]["status"]["state"], "submitted");
    fixture.seed("single", "tasks/cancel", json!({"id": ahead})).await;
    let mut states = Vec::new();
    for _ in 0..500 {
        let now = state(&id);
        if states.last() != Some(&now) {
            states.push(now.clone());
        }
        if now == "completed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(states[states.len() - 2..], ["working", "completed"]);
    assert_eq!(state(&ahead), "canceled");
}

#[tokio::test]
async fn x_21_the_tables_have_the_names_and_columns_that_others_read() {
    let fixture = Fixture::seeded().await;
    let mut params = said("do this");
    params["message"]["contextId"] = json!("c-21");
    let sent = fixture.seed("index", "message/send", params).await;
    let id = sent["result"]["id"].as_str().unwrap().to_owned();
    let running = fixture.begin_working("single", "long").await;
    let seen =
        |columns: &str, id: &str| row(&fixture, &format!("SELECT {columns} FROM a2a_messages WHERE task_id = '{id}'"));
    assert_eq!(seen("to_agent, task, correlation_id, status", &id), ["index", "do this", "c-21", "acked"]);
    assert_eq!(seen("message_id, context_id, from_agent, error", &id), [id.as_str(), "c-21", "", ""]);
    assert_eq!(seen("status, task", &running), ["in_progress", "long"]);
    for column in
        ["payload_json", "attempts", "max_attempts", "available_at", "claimed_by", "lease_until", "result_json"]
    {
        row(&fixture, &format!("SELECT count({column}) FROM a2a_messages"));
    }
    for column in ["protocol_message_id", "history_json", "created_at", "updated_at"] {
        assert_eq!(row(&fixture, &format!("SELECT count({column}) FROM a2a_messages")), ["2"], "{column}");
    }
    assert!(seen("history_json", &id)[0].contains("do this"));
    let columns =
        "task_id, tenant_id, agent_id, context_id, state, created_at, updated_at, final_message_json, error_message";
    assert_eq!(row(&fixture, &format!("SELECT {columns} FROM a2a_tasks WHERE task_id = '{id}'"))[4], "completed");
}

#[tokio::test]
async fn s0_48_a_context_id_comes_back_as_it_was() {
    let fixture = Fixture::seeded().await;
    for context in ["c-42", "контекст ☃ \"'<>", " with spaces "] {
        let mut params = said("x");
        params["message"]["contextId"] = json!(context);
        let sent = fixture.seed("index", "message/send", params).await;
        assert_eq!(sent["result"]["contextId"], context);
        let got = fixture.seed("index", "tasks/get", json!({"id": sent["result"]["id"]})).await;
        assert_eq!(got["result"]["contextId"], context);
    }
}

#[tokio::test]
async fn s0_52_a_definition_in_the_metadata_defines_nothing() {
    let fixture = Fixture::seeded().await;
    let definition = json!({"agent_def": {"id": "ghost", "model": "x"}, "agent": "ghost"});
    let mut params = said("hello");
    params["metadata"] = definition.clone();
    params["message"]["metadata"] = definition;
    let sent = fixture.seed("index", "message/send", params.clone()).await;
    assert_eq!(sent["result"]["metadata"]["x-arbiter.agent_id"], "index");
    assert_eq!(sent["result"]["status"]["message"]["parts"][0]["text"], "hello");
    assert_eq!(fixture.seed("ghost", "message/send", params).await["error"]["code"], -32001);
}
