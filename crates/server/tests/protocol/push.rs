//! The configurations of webhooks: made, read, listed and deleted, over every binding and in both dialects. What is sent to
//! webhooks is proven against the built binary.
//!
//! The addresses here are nobody's: they are taken without a look at who answers there.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, array, reason, text, violations, with_json},
    player::{play, play_on},
    raw,
    scenario::{
        Binding, CREATE_PUSH, CURRENT, DELETE_PUSH, EVERY, GET_PUSH, LIST_PUSH, Step, UNKNOWN, Who, get, message, said,
        send, step,
    },
    server::TestServer,
};

const HOOK: &str = "https://example.com/hook";

/// A configuration of the task.
fn create(more: Value) -> Step {
    step(CREATE_PUSH, json!({"taskId": "$task", "url": HOOK})).and(more)
}

fn named(method: &'static str, id: &str) -> Step {
    step(method, json!({"taskId": "$task", "id": id}))
}

fn list_all() -> Step {
    step(LIST_PUSH, json!({"taskId": "$task"}))
}

/// A task that waits for input.
fn open_task() -> Step {
    send("ask", "what")
}

#[tokio::test]
async fn s3_57_s3_58_s3_59_s3_60_x_4_a_webhook_is_made_read_listed_and_deleted() {
    let server = TestServer::start().await;
    let one = |answer: &Value| assert_eq!(array(answer, "/configs").len(), 1, "{answer:#}");
    let steps = |second: Value| {
        [
            open_task(),
            list_all().answers(json!({"configs": []})),
            create(json!({})).has("/id").is("/taskId", "$task").is("/url", HOOK).keep("made", "").keep("first", "/id"),
            named(GET_PUSH, "$first").answers("$made"),
            list_all().answers(json!({"configs": ["$made"]})),
            // Each is one of its own.
            create(second).keep("second", "/id"),
            list_all().count("/configs", 2).varies(),
            create(json!({"id": "mine"})).is("/id", "mine"),
            named(DELETE_PUSH, "mine").answers(json!({})),
            named(DELETE_PUSH, "mine").answers(json!({})),
            named(DELETE_PUSH, "never-was").answers(json!({})),
            named(GET_PUSH, "mine").refused("TASK_NOT_FOUND"),
            named(DELETE_PUSH, "$second"),
            // The other one stays.
            list_all().check(one).is("/configs/0/id", "$first"),
            // Another task's are its own.
            open_task(),
            list_all().answers(json!({"configs": []})),
            named(GET_PUSH, "$first").refused("TASK_NOT_FOUND"),
        ]
    };
    let url = format!("{HOOK}/2");
    play_on(&server, &CURRENT, steps(json!({"url": url}))).await;
    // Without an id, 0.3 means the one that has its task's.
    play_on(&server, &[Binding::V03], steps(json!({"url": url, "id": "second"}))).await;
}

#[tokio::test]
async fn s3_57_s3_60_what_is_wrong_with_a_webhook_is_said() {
    let server = TestServer::start().await;
    let mut steps = vec![open_task()];
    for url in ["", "nonsense", "/hook", "ftp://example.com/", "http://", "javascript:alert(1)"] {
        steps.push(create(json!({"url": url})).wrong("url"));
    }
    for unknown in [UNKNOWN, "nothing"] {
        let config = json!({"taskId": unknown, "id": "c", "url": HOOK});
        steps.push(step(CREATE_PUSH, config.clone()).refused("TASK_NOT_FOUND"));
        for method in [GET_PUSH, DELETE_PUSH] {
            steps.push(step(method, json!({"taskId": unknown, "id": "c"})).refused("TASK_NOT_FOUND"));
        }
        steps.push(step(LIST_PUSH, json!({"taskId": unknown})).refused("TASK_NOT_FOUND"));
    }
    steps.push(list_all().answers(json!({"configs": []})));
    play_on(&server, &EVERY, steps).await;
    let steps = [
        open_task(),
        step(CREATE_PUSH, json!({"taskId": "$task"})).wrong("url"),
        create(json!({"tenant": "echo"})).refused("TASK_NOT_FOUND"),
        create(json!({"tenant": "nobody"})).refused("AGENT_NOT_FOUND"),
        create(json!({"authentication": {"credentials": "c"}})).wrong("authentication.scheme"),
        list_all().and(json!({"pageSize": -1})).wrong("pageSize"),
        list_all().and(json!({"pageSize": 101})).wrong("pageSize"),
        list_all().and(json!({"pageToken": "x"})).wrong("pageToken"),
        create(json!({})).with("a2a-version", "0.9").refused("VERSION_NOT_SUPPORTED"),
        list_all().by(Who::Nobody).refused("UNAUTHENTICATED"),
        list_all().answers(json!({"configs": []})),
    ];
    play_on(&server, &CURRENT, steps).await;
    // A method is named, and so is what it lacks.
    for (method, params, field) in [
        (CREATE_PUSH, json!({"url": HOOK}), "taskId"),
        (GET_PUSH, json!({"taskId": UNKNOWN}), "id"),
        (LIST_PUSH, json!({}), "taskId"),
        (DELETE_PUSH, json!({"taskId": UNKNOWN}), "id"),
    ] {
        assert_eq!(violations(&server.api().rpc_error(method, &params, -32602).await), [field], "{method}");
    }
}

#[tokio::test]
async fn s3_58_the_webhooks_of_a_task_are_listed_by_pages() {
    let page = |token: &str| list_all().and(json!({"pageSize": 2, "pageToken": token}));
    let steps = [
        open_task(),
        create(json!({"id": "a"})),
        create(json!({"id": "b"})),
        create(json!({"id": "c"})),
        list_all()
            .lacks("/nextPageToken")
            .keep("one", "/configs/0/id")
            .keep("two", "/configs/1/id")
            .keep("three", "/configs/2/id"),
        page("").is("/configs/0/id", "$one").is("/configs/1/id", "$two").has("/nextPageToken"),
        page("$page").count("/configs", 1).is("/configs/0/id", "$three").lacks("/nextPageToken"),
    ];
    play(&CURRENT, steps).await;
}

#[tokio::test]
async fn s3_57_secrets_go_in_and_never_come_back() {
    let hidden = |answer: &Value| {
        let answer = answer.to_string();
        assert!(!answer.contains("secret-token-4711") && !answer.contains("secret-credentials-4712"), "{answer}");
    };
    let authentication = json!({"scheme": "Bearer", "credentials": "secret-credentials-4712"});
    let config = json!({"id": "c", "token": "secret-token-4711", "authentication": authentication});
    let steps = [
        open_task(),
        create(config).check(hidden),
        list_all().check(hidden),
        named(GET_PUSH, "c").check(hidden),
        get().check(hidden),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn whoever_asks_for_chunks_is_told_that_they_come() {
    // The players compare which extensions they are told of.
    let server = TestServer::start().await;
    let api = server.api();
    let task = text(&api.send(&message("ask", said("what"))).await, "/id").to_owned();
    let head = format!("POST /a2a/tasks/{task}/pushNotificationConfigs\nContent-Type: application/json");
    let wanted = format!("{head}\nA2A-Extensions: {}, urn:unknown", a2a::PUSH_CHUNKS);
    for (head, told) in [(wanted, Some(a2a::PUSH_CHUNKS)), (head, None)] {
        let reply = raw::call(&api, &head, json!({"url": HOOK}).to_string()).await;
        assert_eq!((reply.status, reply.header("a2a-extensions")), (200, told), "{}", reply.shown());
    }
    play_on(&server, &CURRENT, [open_task(), create(json!({"id": "c"})).with("a2a-extensions", a2a::PUSH_CHUNKS)])
        .await;
}

async fn delete(api: &Api, path: &str) -> super::http::Reply {
    api.call(api.request(Method::DELETE, path)).await
}

#[tokio::test]
async fn s3_59_s3_68_an_agents_own_routes_do_the_same() {
    let server = TestServer::start().await;
    let api = server.api();
    let task = text(&api.send(&message("ask", said("what"))).await, "/id").to_owned();
    for scope in ["/a2a/agents/ask", "/a2a/ask"] {
        let path = format!("{scope}/tasks/{task}/pushNotificationConfigs");
        let config = api.post(&path, &json!({"task_id": task, "url": HOOK})).await.ok();
        assert_eq!(text(&config, "/taskId"), task);
        let one = format!("{path}/{}", text(&config, "/id"));
        assert_eq!(api.get(&one).await.ok(), config);
        let head = api.call(api.request(Method::HEAD, &one)).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        for method in [Method::POST, Method::PUT, Method::PATCH] {
            let reply = api.call(with_json(api.request(method, &one), &json!({}))).await;
            reply.error(405);
            assert_eq!(reply.header("allow"), Some("GET, HEAD, DELETE, OPTIONS"));
        }
        let gateways = format!("/a2a/tasks/{task}/pushNotificationConfigs");
        for listed in [path.clone(), gateways.clone(), format!("{gateways}?tenant=ask&page_size=1")] {
            assert_eq!(api.get(&listed).await.ok(), json!({"configs": [config]}), "{listed}");
        }

        // To another agent there is no such task.
        let others = path.replace("/ask/", "/echo/");
        let replies = [
            api.post(&others, &json!({"url": HOOK})).await,
            api.get(&others).await,
            api.get(&one.replace("/ask/", "/echo/")).await,
            delete(&api, &one.replace("/ask/", "/echo/")).await,
            api.get(&format!("{gateways}?tenant=echo")).await,
        ];
        for reply in replies {
            assert_eq!(reason(&reply.error(404)), "TASK_NOT_FOUND", "{scope}");
        }
        assert_eq!(reason(&api.get(&path.replace("/ask/", "/nobody/")).await.error(404)), "AGENT_NOT_FOUND");
        for (wrong, field) in
            [(json!({"tenant": "echo", "url": HOOK}), "tenant"), (json!({"taskId": UNKNOWN, "url": HOOK}), "taskId")]
        {
            assert_eq!(violations(&api.post(&path, &wrong).await.error(400)), [field]);
        }
        for _ in 0..2 {
            assert_eq!(delete(&api, &one).await.ok(), json!({}));
        }
        assert_eq!(api.get(&path).await.ok(), json!({"configs": []}));
    }
    let at = "/a2a/agents/ask/jsonrpc";
    let made = api.rpc_at(at, CREATE_PUSH, &json!({"taskId": task, "url": HOOK})).await;
    let got = api.rpc_at(at, GET_PUSH, &json!({"taskId": task, "id": text(&made, "/result/id")})).await;
    assert_eq!(got["result"], made["result"]);
}

#[tokio::test]
async fn x_4_clients_of_0_3_get_every_webhook_and_may_leave_out_which() {
    let server = TestServer::start().await;
    let api = server.api();
    let task = text(&api.send(&message("ask", said("what"))).await, "/id").to_owned();
    let path = format!("/a2a/tasks/{task}/pushNotificationConfigs");
    let old = async |method: &str, params: Value| {
        let method = format!("tasks/pushNotificationConfig/{method}");
        let call = json!({"jsonrpc": "2.0", "id": "r", "method": method, "params": params});
        let head = "POST /a2a/jsonrpc\nA2A-Version:\nContent-Type: application/json";
        let reply = raw::call(&api, head, call.to_string()).await;
        assert_eq!(reply.header("a2a-version"), Some("0.3"), "{}", reply.shown());
        reply.ok()
    };
    assert_eq!(old("get", json!({"id": task})).await["error"]["code"], -32001, "there is none");
    assert_eq!(old("get", json!({"id": UNKNOWN})).await["error"]["code"], -32001);
    let first = api.post(&path, &json!({"url": HOOK})).await.ok();
    let found = old("get", json!({"id": task})).await["result"].take();
    assert_eq!(
        (&found["taskId"], &found["pushNotificationConfig"]["id"]),
        (&json!(task), &first["id"]),
        "the only one"
    );
    api.post(&path, &json!({"url": HOOK})).await.ok();
    let whole = api.get(&path).await.ok();
    let found = old("get", json!({"id": task})).await;
    assert_eq!(found["result"]["pushNotificationConfig"]["id"], whole["configs"][0]["id"], "the first of several");
    // Servers of 0.3 call it as its task where nobody named it.
    api.post(&path, &json!({"id": task, "url": HOOK})).await.ok();
    let found = old("get", json!({"id": task})).await;
    assert_eq!(found["result"]["pushNotificationConfig"]["id"], task);
    let listed = old("list", json!({"id": task})).await;
    assert_eq!(listed["result"].as_array().map(Vec::len), Some(3));
    assert!(listed.to_string().contains(text(&first, "/id")));
}
