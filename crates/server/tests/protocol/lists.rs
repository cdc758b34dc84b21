//! Listing tasks: order, pages, filters and bad queries.

use serde_json::{Value, json};

use super::{
    http::{array, text, violations},
    player::{play, play_on},
    raw,
    scenario::{Binding, CURRENT, UNTYPED, answer, get_with, list, message, said, send, stream},
    server::{Setup, TestServer},
};

#[tokio::test]
async fn s3_51_x_52_list_pages_newest_first() {
    let made = |text: &str, name| send("echo", text).keep(name, "/task/id");
    let page = |token: &str| {
        list(json!({"pageSize": 1, "pageToken": token}))
            .count("/tasks", 1)
            .is("/pageSize", 1)
            .is("/totalSize", 3)
            .lacks("/tasks/0/artifacts")
    };
    let all = list(json!({})).count("/tasks", 3).is("/totalSize", 3).is("/nextPageToken", "");
    let steps = [
        list(json!({})).answers(json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0})),
        made("task 0", "one"),
        made("task 1", "two"),
        made("task 2", "three"),
        all.is("/tasks/0/id", "$three").is("/tasks/1/id", "$two").is("/tasks/2/id", "$one"),
        page("").is("/tasks/0/id", "$three").has("/nextPageToken"),
        page("$page").is("/tasks/0/id", "$two").has("/nextPageToken"),
        page("$page").is("/tasks/0/id", "$one").is("/nextPageToken", ""),
        list(json!({"pageSize": 2})).count("/tasks", 2).is("/tasks/0/id", "$three"),
    ];
    play(&CURRENT, steps).await;
}

#[tokio::test]
async fn s3_52_x_52_list_filters() {
    let odd = "a context/with?odd&signs=+";
    let one = |filter: Value, id: &str| list(filter).is("/totalSize", 1).count("/tasks", 1).is("/tasks/0/id", id);
    let none = |filter: Value| list(filter).is("/totalSize", 0).lacks("/tasks/0");
    let each =
        |what: fn(&Value) -> bool| move |page: &Value| assert!(array(page, "/tasks").iter().all(what), "{page:#}");
    let first = send("echo", "first").and(json!({"message": {"contextId": odd}}));
    let steps = [
        send("ask", "zeroth").keep("zeroth", "/task/id"),
        first.keep("first", "/task/id").keep("artifacts", "/task/artifacts"),
        // Times have milliseconds, and its last one is later.
        send("slow", "5").keep("second", "/task/id").keep("at", "/task/status/timestamp"),
        one(json!({"contextId": odd}), "$first"),
        none(json!({"contextId": "unknown"})),
        one(json!({"status": "TASK_STATE_INPUT_REQUIRED"}), "$zeroth"),
        one(json!({"tenant": "echo"}), "$first"),
        // At or after: the second's own timestamp includes it.
        one(json!({"statusTimestampAfter": "$at"}), "$second"),
        none(json!({"statusTimestampAfter": "2999-01-01T00:00:00Z"})),
        // Filters combine.
        none(json!({"contextId": "unknown", "status": "TASK_STATE_COMPLETED"})),
        list(json!({"historyLength": 0})).check(each(|task| task.get("history").is_none())),
        list(json!({"historyLength": 1})).check(each(|task| array(task, "/history").len() == 1)),
        list(json!({"includeArtifacts": true})).is("/tasks/1/artifacts", "$artifacts"),
        list(json!({"includeArtifacts": false})).check(each(|task| task.get("artifacts").is_none())),
    ];
    play(&CURRENT, steps).await;
}

#[tokio::test]
async fn s3_52_queries_are_read_in_every_spelling() {
    let server = TestServer::start().await;
    let api = server.api();
    api.send(&message("echo", said("first"))).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let second = api.send(&message("ask", said("second"))).await;
    let since = text(&second, "/status/timestamp");
    let offset = since.replace('Z', "+00:00");
    let queries = [
        "status=6",
        &format!("statusTimestampAfter={}", offset.replace('+', "%2B")),
        &format!("statusTimestampAfter={offset}"),
    ]
    .map(ToOwned::to_owned);
    for query in queries {
        let page = api.get(&format!("/a2a/tasks?{query}")).await.ok();
        assert_eq!((&page["totalSize"], &page["tasks"][0]["id"]), (&json!(1), &second["id"]), "{query}");
    }
    let last = api.get("/a2a/tasks?history_length=1&somethingElse=1").await.ok();
    assert!(array(&last, "/tasks").iter().all(|task| array(task, "/history").len() == 1), "{last:#}");
}

#[tokio::test]
async fn s3_53_bad_queries_are_refused() {
    let server = TestServer::start().await;
    let typed = [
        (json!({"pageSize": 0}), "pageSize"),
        (json!({"pageSize": 101}), "pageSize"),
        (json!({"pageSize": -1}), "pageSize"),
        (json!({"historyLength": -1}), "historyLength"),
        (json!({"pageToken": "nonsense"}), "pageToken"),
    ];
    let refused = |(request, field): (Value, &'static str)| list(request).wrong(field);
    play_on(
        &server,
        &CURRENT,
        typed.into_iter().map(refused).chain([list(json!({"tenant": "nobody"})).refused("AGENT_NOT_FOUND")]),
    )
    .await;
    play_on(
        &server,
        &UNTYPED,
        [list(json!({"status": "FOO"})).wrong("status"), list(json!({"pageSize": "x"})).wrong("pageSize")],
    )
    .await;
    let queries = [
        ("pageSize=99999999999999999999", "pageSize"),
        ("status=99", "status"),
        ("historyLength=many", "historyLength"),
        ("statusTimestampAfter=yesterday", "statusTimestampAfter"),
        ("includeArtifacts=perhaps", "includeArtifacts"),
        ("pageSize=1&pageSize=2", "pageSize"),
    ]
    .map(|(query, field)| (format!("GET /a2a/tasks?{query}"), format!("400 INVALID_PARAMS {field}")));
    raw::say(&server.api(), queries.iter().map(|(head, told)| (head.as_str(), "", told.as_str()))).await;
}

#[tokio::test]
async fn page_tokens_cannot_be_forged_or_carried_elsewhere() {
    let server = TestServer::start().await;
    let api = server.api();
    let other = api.with_token(Some(&server.add_tenant("other").await));
    for _ in 0..3 {
        api.send(&message("echo", said("mine"))).await;
        other.send(&message("echo", said("theirs"))).await;
    }
    let first = api.get("/a2a/tasks?pageSize=1").await.ok();
    let token = text(&first, "/nextPageToken").to_owned();
    let escaped = |token: &str| token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('&', "%26");
    let query = |token: &str| format!("/a2a/tasks?pageSize=1&pageToken={}", escaped(token));
    api.get(&query(&token)).await.ok();

    // Every single character counts.
    for at in 0..token.len() {
        let mut forged: Vec<char> = token.chars().collect();
        forged[at] = if forged[at] == 'A' { 'B' } else { 'A' };
        let forged: String = forged.into_iter().collect();
        assert_eq!(violations(&api.get(&query(&forged)).await.error(400)), ["pageToken"]);
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
    api.get(&format!("/a2a/tasks?pageSize=2&historyLength=0&pageToken={}", escaped(&token))).await.ok();
    let server = server.restart(Setup::new()).await;
    let second = server.api().get(&query(&token)).await.ok();
    assert_ne!(second["tasks"][0]["id"], first["tasks"][0]["id"]);
}

#[tokio::test]
async fn history_length_holds_everywhere() {
    // ask: the question, what was asked back, the answer. Three messages at least.
    let limited = |length: u32| answer("two").and(json!({"configuration": {"historyLength": length}}));
    let first = |length: Value| stream("echo", "streamed").and(json!({"configuration": length}));
    let steps = [
        send("ask", "one"),
        answer("two").keep("all", "/task/history").keep("last", "/task/history/2").check(|done| {
            assert_eq!(array(done, "/task/history").len(), 3, "{done:#}");
        }),
        // The same message again is the same answer, in other lengths.
        limited(0).lacks("/task/history"),
        limited(1).is("/task/history", json!(["$last"])),
        get_with(0).lacks("/history"),
        get_with(1).is("/history", json!(["$last"])),
        get_with(2).count("/history", 2).is("/history/1", "$last"),
        get_with(100).is("/history", "$all"),
        get_with(-1).wrong("historyLength"),
        // A stream's first event too.
        first(json!({"historyLength": 0})).has("/0/task/id").lacks("/0/task/history"),
        first(json!({})).count("/0/task/history", 1),
    ];
    play(&CURRENT, steps).await;
}

#[tokio::test]
async fn s3_52_artifacts_that_are_asked_for_are_there_when_there_are_none() {
    let with = |asked: Value| list(asked);
    let steps = [
        send("fail", "no artifacts"),
        with(json!({"includeArtifacts": true})).is("/tasks/0/artifacts", json!([])),
        with(json!({})).lacks("/tasks/0/artifacts"),
        with(json!({"includeArtifacts": false})).lacks("/tasks/0/artifacts"),
        // Only a list is asked whether it is to have them.
        super::scenario::get().lacks("/artifacts"),
    ];
    play(&[Binding::JsonRpc, Binding::Rest, Binding::Struct], steps).await;
}
