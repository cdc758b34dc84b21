//! Arbiter's native requests under `/v1/requests`: the tasks of `/v1/a2a` and `/a2a`, told in other words.

use serde_json::{Value, json};

use super::{
    rig::{Fixture, OTHER_TOKEN, TOKEN, envelope, said},
    wire::read_until,
};

#[tokio::test]
async fn a_request_is_a_task() {
    let fixture = Fixture::seeded().await;
    let sent = fixture.seed("index", "message/send", said("hello")).await;
    let id = sent["result"]["id"].as_str().unwrap();
    let reply = fixture.get(&format!("/v1/requests/{id}")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let request = reply.json()["request"].clone();
    assert_eq!((&request["request_id"], &request["agent_id"]), (&json!(id), &json!("index")));
    assert_eq!((&request["state"], &request["error_message"]), (&json!("completed"), &json!("")));
    assert!(request["started_at"].as_i64().unwrap() > 1_700_000_000, "{request}");
    assert!(request["completed_at"].as_i64() >= request["started_at"].as_i64(), "{request}");
    let events = fixture.get(&format!("/a2a/tasks/{id}:subscribe?afterSequence=0")).await.events();
    assert_eq!(request["last_seq"], json!(events.last().unwrap().0), "last_seq is real");

    let failed = fixture.seed("fails", "message/send", said("x")).await["result"]["id"].clone();
    let running = fixture.begin("slow", "long").await;
    let listed = fixture.get("/v1/requests").await.json();
    let listed: Vec<_> =
        listed["requests"].as_array().unwrap().iter().map(|it| (&it["request_id"], &it["state"])).collect();
    let (running, completed) = (json!(running), json!(id));
    let expected = [(&running, &json!("running")), (&failed, &json!("failed")), (&completed, &json!("completed"))];
    assert_eq!(listed, expected, "the newest first");
    let one = fixture.get("/v1/requests?limit=1").await.json();
    assert_eq!(one["requests"].as_array().unwrap().len(), 1);
    let failed = fixture.get(&format!("/v1/requests/{}", failed.as_str().unwrap())).await.json();
    assert_eq!(failed["request"]["error_message"], "no luck");
    for bad in ["limit=0", "limit=201", "limit=x"] {
        let reply = fixture.get(&format!("/v1/requests?{bad}")).await;
        assert_eq!((reply.status, reply.reason().as_str()), (400, "INVALID_PARAMS"), "{bad}");
    }
}

#[tokio::test]
async fn what_is_not_the_callers_does_not_exist() {
    let fixture = Fixture::seeded().await;
    let id = fixture.begin_working("slow", "long").await;
    for (method, tail) in [("GET", ""), ("POST", "/cancel"), ("GET", "/events")] {
        let never = "01890000-0000-7000-8000-000000000000";
        let foreign = fixture.bare(method, &format!("/v1/requests/{id}{tail}")).header("x-sb-token", OTHER_TOKEN);
        let foreign = foreign.send().await;
        let unknown = fixture.ask(method, &format!("/v1/requests/{never}{tail}")).send().await;
        assert_eq!((foreign.status, unknown.status), (404, 404), "{method} {tail}");
        assert_eq!(foreign.body.replace(&id, "ID"), unknown.body.replace(never, "ID"), "{method} {tail}");
        assert!(foreign.json()["error"].is_object());
    }
    let listed = fixture.bare("GET", "/v1/requests").header("x-sb-token", OTHER_TOKEN).send().await.json();
    assert_eq!(listed, json!({"requests": []}));
    assert_eq!(fixture.seed("slow", "tasks/get", json!({"id": id})).await["result"]["status"]["state"], "working");
}

#[tokio::test]
async fn s0_46_s2_42_both_ways_to_cancel_meet() {
    let fixture = Fixture::seeded().await;
    let mut live = fixture.dispatch("slow").json(&envelope("message/stream", said("long"))).open().await;
    let seen = read_until(&mut live, "\"working\"").await;
    let start = seen.find("\"taskId\":\"").unwrap() + 10;
    let id = seen[start..start + 36].to_owned();
    let path = format!("/v1/requests/{id}/cancel");
    let canceled = fixture.ask("POST", &path).send().await;
    assert_eq!((canceled.status, canceled.json()), (200, json!({"request_id": id, "cancelled": true})));
    let end = read_until(&mut live, "\"final\":true").await;
    assert!(end.contains(r#""state":"canceled""#), "{end}");
    assert_eq!(fixture.seed("slow", "tasks/get", json!({"id": id})).await["result"]["status"]["state"], "canceled");
    assert_eq!(fixture.seed("slow", "tasks/cancel", json!({"id": id})).await["error"]["code"], -32002);

    for id in [id.as_str(), "nope"] {
        let again = fixture.post(&format!("/v1/requests/{id}/cancel"), &json!({})).await;
        assert_eq!(again.status, 404, "{id}");
        let body = again.json();
        assert_eq!((&body["request_id"], &body["cancelled"]), (&json!(id), &json!(false)));
        assert_eq!(body["reason"], "no in-flight request with that id");
        assert_eq!(again.reason(), "NOT_FOUND");
    }
    let other = fixture.begin("slow", "long").await;
    fixture.seed("slow", "tasks/cancel", json!({"id": other})).await;
    assert_eq!(fixture.ask("POST", &format!("/v1/requests/{other}/cancel")).send().await.status, 404);
    let shown = fixture.get(&format!("/v1/requests/{other}")).await.json();
    assert_eq!(shown["request"]["state"], "cancelled");
}

#[tokio::test]
async fn the_log_is_told_in_native_events() {
    let fixture = Fixture::seeded().await;
    let mut params = said("stream");
    params["configuration"] = json!({"blocking": false});
    let id = fixture.seed("index", "message/send", params).await["result"]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/requests/{id}/events");
    let live = fixture.get(&path).await.records();
    let kinds: Vec<&str> = live.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds[..3], ["request_received", "stream_start", "text"]);
    assert_eq!(kinds[kinds.len() - 2..], ["stream_end", "done"]);
    assert_eq!((live[0].0, live[1].0), (Some(1), Some(2)), "live frames carry their numbers");
    let received = &live[0].2;
    assert_eq!((&received["request_id"], &received["agent"]), (&json!(id), &json!("index")));
    assert_eq!((&received["message"], &received["tenant"]), (&json!("stream"), &json!("alice")));
    assert_eq!(live[1].2, json!({"agent": "index", "stream_id": 0, "depth": 0}));
    let text: String = live.iter().filter_map(|(_, _, data)| data["delta"].as_str()).collect();
    let done = &live.last().unwrap().2;
    assert_eq!((&done["ok"], &done["content"]), (&json!(true), &json!(text)));
    assert_eq!(done["request_id"], json!(id));
    assert!(done["duration_ms"].as_i64().unwrap() >= 100, "{done}");
    let last = live.last().unwrap().0.unwrap();
    assert_eq!(fixture.get(&format!("/v1/requests/{id}")).await.json()["request"]["last_seq"], json!(last));

    assert_eq!(fixture.get(&path).await.records(), live, "a replay is the same");
    assert_eq!(fixture.get(&format!("{path}?since_seq=2")).await.records(), live[2..]);
    let resumed = fixture.ask("GET", &path).header("Last-Event-ID", "2").send().await.records();
    assert_eq!(resumed, live[2..]);
    assert_eq!(fixture.get(&format!("{path}?since_seq={last}")).await.records(), []);
    assert_eq!(fixture.get(&format!("{path}?since_seq=x")).await.reason(), "INVALID_PARAMS");
}

#[tokio::test]
async fn each_end_has_its_own_words() {
    let fixture = Fixture::seeded().await;
    let events = async |id: &Value| {
        let path = format!("/v1/requests/{}/events", id.as_str().unwrap());
        fixture.bare("GET", &path).header("x-sb-token", TOKEN).send().await.records()
    };
    for (agent, code, why) in [("fails", "agent_error", "no luck"), ("rejects", "invalid_request", "not me")] {
        let id = fixture.seed(agent, "message/send", said("x")).await["result"]["id"].clone();
        let told = events(&id).await;
        let (_, kind, done) = told.last().unwrap();
        assert_eq!((kind.as_str(), &done["ok"]), ("done", &json!(false)));
        assert_eq!((&done["error_code"], &done["error"]), (&json!(code), &json!(why)));
        assert_eq!(told[told.len() - 2].2, json!({"message": why}));
    }
    let id = fixture.seed("asks", "message/send", said("x")).await["result"]["id"].clone();
    let mut open = fixture.ask("GET", &format!("/v1/requests/{}/events", id.as_str().unwrap())).open().await;
    let asked = read_until(&mut open, r#""state":"input-required""#).await;
    assert!(asked.contains("event: status\n") && asked.contains("which one?"), "{asked}");

    let id = fixture.seed("makes", "message/send", said("x")).await["result"]["id"].clone();
    let told = events(&id).await;
    let file = told.iter().find(|(_, kind, _)| kind == "file").unwrap();
    assert_eq!((&file.2["path"], &file.2["encoding"]), (&json!("out.txt"), &json!("base64")));
    assert_eq!(told.last().unwrap().2["files_bytes"], 3);
    let talked = fixture.seed("talks", "message/send", said("x")).await["result"]["id"].clone();
    assert_eq!(events(&talked).await.last().unwrap().2["content"].as_str().unwrap().len(), 100_000);
}
