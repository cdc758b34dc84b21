//! `GET /a2a/tasks`: order, pages, filters and bad queries.

use serde_json::{Value, json};

use super::{
    http::{Api, array, message, reason, text, to, violations},
    rig::Rig,
};

fn ids(page: &Value) -> Vec<String> {
    array(page, "/tasks").iter().map(|task| text(task, "/id").to_owned()).collect()
}

async fn page(api: &Api, query: &str) -> Value {
    api.get(&format!("/a2a/tasks?{query}")).await.ok()
}

/// Escapes what a query must not hold as it is.
fn escaped(value: &str) -> String {
    value.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('&', "%26")
}

#[tokio::test]
async fn s3_51_x_52_list_pages_newest_first() {
    let rig = Rig::start().await;
    let api = rig.api();
    let empty = api.get("/a2a/tasks").await.ok();
    assert_eq!(empty, json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}));

    let mut made = Vec::new();
    for n in 0..3 {
        made.push(text(&api.send(&to("echo", &format!("task {n}"))).await, "/id").to_owned());
    }
    made.reverse();
    let all = api.get("/a2a/tasks").await.ok();
    assert_eq!(ids(&all), made);
    assert_eq!((&all["totalSize"], &all["nextPageToken"]), (&json!(3), &json!("")));

    let mut seen = Vec::new();
    let mut token = String::new();
    for n in 0..3 {
        let one = page(&api, &format!("pageSize=1&pageToken={}", escaped(&token))).await;
        assert_eq!((&one["pageSize"], &one["totalSize"]), (&json!(1), &json!(3)), "{one:#}");
        assert_eq!(array(&one, "/tasks").len(), 1);
        assert!(one["tasks"][0].get("artifacts").is_none(), "{one:#}");
        seen.extend(ids(&one));
        token = text(&one, "/nextPageToken").to_owned();
        assert_eq!(token.is_empty(), n == 2, "{one:#}");
    }
    assert_eq!(seen, made);

    let rpc = api.rpc_ok("ListTasks", &json!({"pageSize": 2})).await;
    assert_eq!(ids(&rpc), made[..2]);
}

#[tokio::test]
async fn s3_52_x_52_list_filters() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut in_context = to("echo", "first");
    in_context["message"]["contextId"] = json!("a context/with?odd&signs=+");
    let first = api.send(&in_context).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let second = api.send(&to("ask", "second")).await;
    let (first_id, second_id) = (text(&first, "/id").to_owned(), text(&second, "/id").to_owned());

    let by_context = page(&api, "contextId=a%20context%2Fwith%3Fodd%26signs%3D%2B").await;
    assert_eq!(ids(&by_context), [first_id.as_str()]);
    assert_eq!(by_context["totalSize"], 1);
    assert_eq!(page(&api, "contextId=unknown").await["totalSize"], 0);

    for status in ["TASK_STATE_INPUT_REQUIRED", "6"] {
        let by_status = page(&api, &format!("status={status}")).await;
        assert_eq!(ids(&by_status), [second_id.as_str()]);
        assert_eq!(by_status["totalSize"], 1);
    }

    // At or after: the second's own timestamp includes it.
    let since = text(&second, "/status/timestamp").to_owned();
    let offset = since.replace('Z', "+00:00");
    for since in [since.clone(), escaped(&offset), offset] {
        let by_time = page(&api, &format!("statusTimestampAfter={since}")).await;
        assert_eq!(ids(&by_time), [second_id.as_str()], "{since}");
        assert_eq!(by_time["totalSize"], 1);
    }
    assert_eq!(page(&api, "statusTimestampAfter=2999-01-01T00:00:00Z").await["totalSize"], 0);

    let bare = page(&api, "historyLength=0").await;
    assert!(array(&bare, "/tasks").iter().all(|task| task.get("history").is_none()), "{bare:#}");
    let last = page(&api, "history_length=1").await;
    assert!(array(&last, "/tasks").iter().all(|task| array(task, "/history").len() == 1), "{last:#}");

    let with = page(&api, "includeArtifacts=true").await;
    let echoed = array(&with, "/tasks").iter().find(|task| task["id"] == first["id"]).unwrap();
    assert_eq!(echoed["artifacts"], first["artifacts"]);
    let without = page(&api, "includeArtifacts=false").await;
    assert!(array(&without, "/tasks").iter().all(|task| task.get("artifacts").is_none()));

    // Filters combine, and unknown parameters are none of our business.
    let none = page(&api, "contextId=unknown&status=TASK_STATE_COMPLETED&somethingElse=1").await;
    assert_eq!(none["totalSize"], 0);
}

#[tokio::test]
async fn s3_53_bad_queries_are_refused() {
    let rig = Rig::start().await;
    let api = rig.api();
    for (query, field) in [
        ("pageSize=0", "pageSize"),
        ("pageSize=101", "pageSize"),
        ("pageSize=-1", "pageSize"),
        ("pageSize=x", "pageSize"),
        ("pageSize=99999999999999999999", "pageSize"),
        ("status=FOO", "status"),
        ("status=99", "status"),
        ("historyLength=-1", "historyLength"),
        ("historyLength=many", "historyLength"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
        ("includeArtifacts=perhaps", "includeArtifacts"),
        ("pageToken=nonsense", "pageToken"),
        ("pageSize=1&pageSize=2", "pageSize"),
    ] {
        let error = api.get(&format!("/a2a/tasks?{query}")).await.error(400);
        assert_eq!(error["status"], "INVALID_ARGUMENT", "{query}");
        assert_eq!(violations(&error), [field], "{query}: {error:#}");
    }
    for (params, field) in [
        (json!({"pageSize": 0}), "pageSize"),
        (json!({"pageSize": 101}), "pageSize"),
        (json!({"status": "FOO"}), "status"),
        (json!({"historyLength": -1}), "historyLength"),
        (json!({"pageToken": "nonsense"}), "pageToken"),
    ] {
        let error = api.rpc_error("ListTasks", &params, -32602).await;
        assert_eq!(violations(&error), [field], "{params}: {error:#}");
    }
}

#[tokio::test]
async fn page_tokens_cannot_be_forged_or_carried_elsewhere() {
    let rig = Rig::start().await;
    let api = rig.api();
    let other_token = rig.add_tenant("other").await;
    let other = api.with_token(Some(&other_token));
    for _ in 0..3 {
        api.send(&to("echo", "mine")).await;
        other.send(&to("echo", "theirs")).await;
    }
    let first = page(&api, "pageSize=1").await;
    let token = text(&first, "/nextPageToken").to_owned();
    let query = |token: &str| format!("/a2a/tasks?pageSize=1&pageToken={}", escaped(token));
    api.get(&query(&token)).await.ok();

    // Every single character counts.
    for at in 0..token.len() {
        let mut forged: Vec<char> = token.chars().collect();
        forged[at] = if forged[at] == 'A' { 'B' } else { 'A' };
        let forged: String = forged.into_iter().collect();
        let error = api.get(&query(&forged)).await.error(400);
        assert_eq!(violations(&error), ["pageToken"]);
    }
    api.get(&query(&token[..token.len() - 1])).await.error(400);
    other.get(&query(&token)).await.error(400);
    for filter in
        ["contextId=c", "status=TASK_STATE_COMPLETED", "statusTimestampAfter=2020-01-01T00:00:00Z", "tenant=echo"]
    {
        let error = api.get(&format!("{}&{filter}", query(&token))).await.error(400);
        assert_eq!(violations(&error), ["pageToken"], "{filter}");
    }
    api.get(&format!("/a2a/agents/echo/tasks?pageToken={}", escaped(&token))).await.error(400);
    // What does not choose tasks may change between pages, and a restart forgets nothing.
    page(&api, &format!("pageSize=2&historyLength=0&pageToken={}", escaped(&token))).await;
    let mut rig = rig;
    rig.kill9();
    rig.restart().await;
    let second = rig.api().get(&query(&token)).await.ok();
    assert_ne!(ids(&second), ids(&first));
}

#[tokio::test]
async fn history_length_holds_everywhere() {
    let rig = Rig::start().await;
    let api = rig.api();
    // ask: the question, what was asked back, the answer. Three messages at least.
    let task = api.send(&to("ask", "one")).await;
    let id = text(&task, "/id").to_owned();
    let continued = |length: Option<u32>| {
        let mut request = super::http::answer(&id, "two");
        request["message"]["messageId"] = json!("the answer");
        if let Some(length) = length {
            request["configuration"] = json!({"historyLength": length});
        }
        request
    };
    let full = api.send(&continued(None)).await;
    let all = array(&full, "/history").clone();
    assert!(all.len() >= 3, "{full:#}");

    // The same message again is the same answer, in other lengths.
    let none = api.send(&continued(Some(0))).await;
    assert!(none.get("history").is_none(), "{none:#}");
    let last = api.send(&continued(Some(1))).await;
    assert_eq!(array(&last, "/history").as_slice(), &all[all.len() - 1..]);

    let get = async |query: &str| api.get(&format!("/a2a/tasks/{id}{query}")).await.ok();
    assert_eq!(array(&get("").await, "/history"), &all);
    assert!(get("?historyLength=0").await.get("history").is_none());
    assert_eq!(array(&get("?historyLength=2").await, "/history").as_slice(), &all[all.len() - 2..]);
    assert_eq!(array(&get("?history_length=100").await, "/history"), &all);
    let rpc = api.rpc_ok("GetTask", &json!({"id": id, "historyLength": 1})).await;
    assert_eq!(array(&rpc, "/history").as_slice(), &all[all.len() - 1..]);
    let error = api.get(&format!("/a2a/tasks/{id}?historyLength=-1")).await.error(400);
    assert_eq!(violations(&error), ["historyLength"]);

    // A stream's first frame too.
    let request = json!({"tenant": "echo", "message": message("streamed"), "configuration": {"historyLength": 0}});
    let first = api.stream("/a2a/message:stream", &request).await.next().await.unwrap();
    assert_eq!(first.kind(), "task");
    assert!(first.body["task"].get("history").is_none(), "{:#}", first.body);
    let first = api.stream("/a2a/message:stream", &to("echo", "streamed")).await.next().await.unwrap();
    assert_eq!(array(&first.body, "/task/history").len(), 1);

    let error = api.get("/a2a/tasks/unknown?historyLength=0").await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
}

#[tokio::test]
async fn s3_52_artifacts_that_are_asked_for_are_there_when_there_are_none() {
    let rig = Rig::start().await;
    let api = rig.api();
    api.send(&to("fail", "no artifacts")).await;
    let listed = page(&api, "includeArtifacts=true").await;
    assert_eq!(listed["tasks"][0]["artifacts"], json!([]), "{listed:#}");
    let called = api.rpc_ok("ListTasks", &json!({"includeArtifacts": true})).await;
    assert_eq!(called, listed);
    let gateway = super::grpc::Grpc::new(&rig.server.url);
    let structs = gateway.ok(super::grpc::GATEWAY, "ListTasks", &json!({"includeArtifacts": true})).await;
    assert_eq!(structs["tasks"][0]["artifacts"], json!([]), "{structs:#}");
    for query in ["", "includeArtifacts=false"] {
        assert_eq!(page(&api, query).await["tasks"][0].get("artifacts"), None, "{query}");
    }
    let task = api.get(&format!("/a2a/tasks/{}", text(&listed, "/tasks/0/id"))).await.ok();
    assert_eq!(task.get("artifacts"), None, "only a list is asked whether it is to have them");
}
