//! Webhooks: their configurations are made, read, listed and deleted, in every spelling and both dialects. What is sent to
//! them is proven elsewhere.
//!
//! The addresses here are nobody's: they are taken without a look at who answers there.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, array, reason, text, to, violations, with_json},
    rig::Rig,
};

const HOOK: &str = "https://example.com/hook";
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A task that waits for input, and where its configurations are.
async fn open_task(api: &Api) -> (String, String) {
    let id = text(&api.send(&to("ask", "what")).await, "/id").to_owned();
    let path = format!("/a2a/tasks/{id}/pushNotificationConfigs");
    (id, path)
}

/// A configuration that is there from now on.
async fn made(api: &Api, path: &str, config: &Value) -> Value {
    api.post(path, config).await.ok()
}

async fn delete(api: &Api, path: &str) -> super::http::Reply {
    api.call(api.request(Method::DELETE, path)).await
}

/// A call of 0.3, whose envelope is checked for form.
async fn old(api: &Api, method: &str, params: &Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": "r", "method": format!("tasks/pushNotificationConfig/{method}"), "params": params});
    let bare = api.bare(Method::POST, "/a2a/jsonrpc").bearer_auth(api.token().expect("callers here have one"));
    let reply = api.call(with_json(bare, &call)).await;
    assert_eq!(reply.header("a2a-version"), Some("0.3"), "{}", reply.shown());
    let envelope = reply.ok();
    assert!(envelope.get("result").is_some() != envelope.get("error").is_some(), "{envelope:#}");
    envelope
}

/// The result of a call of 0.3 that works.
async fn old_ok(api: &Api, method: &str, params: &Value) -> Value {
    let mut envelope = old(api, method, params).await;
    assert!(envelope.get("result").is_some(), "{method}: {envelope:#}");
    envelope["result"].take()
}

fn ids(page: &Value) -> Vec<&str> {
    array(page, "/configs").iter().map(|config| text(config, "/id")).collect()
}

#[tokio::test]
async fn s3_57_a_webhook_is_made_and_has_an_id() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, path) = open_task(&api).await;
    let reply = api.post(&path, &json!({"url": HOOK})).await;
    let config = reply.ok();
    assert_eq!(reply.media_type(), "application/a2a+json");
    assert!(!text(&config, "/id").is_empty(), "one is made up");
    assert_eq!((text(&config, "/taskId"), text(&config, "/url")), (task.as_str(), HOOK));
    let other = made(&api, &path, &json!({"taskId": task, "url": HOOK})).await;
    assert_ne!(other["id"], config["id"], "each is one of its own");
    let named = made(&api, &path, &json!({"id": "mine", "url": HOOK})).await;
    assert_eq!(text(&named, "/id"), "mine");
    let snake = made(&api, &path, &json!({"id": "snake", "task_id": task, "url": HOOK})).await;
    assert_eq!(text(&snake, "/taskId"), task, "names are read in both spellings");

    for url in ["", "nonsense", "/hook", "ftp://example.com/", "http://", "javascript:alert(1)"] {
        let error = api.post(&path, &json!({"url": url})).await.error(400);
        assert_eq!((reason(&error), violations(&error)), ("INVALID_PARAMS", vec!["url".to_owned()]), "{url}");
    }
    let error = api.post(&path, &json!({})).await.error(400);
    assert_eq!(violations(&error), ["url"]);
    let error = api.post(&path, &json!({"taskId": UNKNOWN, "url": HOOK})).await.error(400);
    assert_eq!(violations(&error), ["taskId"], "the body and the URL name the same task");
    for unknown in [UNKNOWN, "nothing"] {
        let path = format!("/a2a/tasks/{unknown}/pushNotificationConfigs");
        let error = api.post(&path, &json!({"url": HOOK})).await.error(404);
        assert_eq!(reason(&error), "TASK_NOT_FOUND", "{unknown}");
    }
    assert_eq!(ids(&api.get(&path).await.ok()).len(), 4, "nothing of that made another one");
}

#[tokio::test]
async fn s3_58_the_webhooks_of_a_task_are_listed_by_pages() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (_, path) = open_task(&api).await;
    let (_, empty) = open_task(&api).await;
    let one = made(&api, &path, &json!({"url": HOOK})).await;
    let two = made(&api, &path, &json!({"url": format!("{HOOK}/2")})).await;
    let reply = api.get(&path).await;
    let listed = reply.ok();
    assert_eq!(reply.media_type(), "application/a2a+json");
    assert_eq!(listed.get("nextPageToken"), None, "that is all");
    let configs = array(&listed, "/configs");
    assert_eq!(configs.len(), 2);
    assert!(configs.contains(&one) && configs.contains(&two), "{listed:#}");
    assert_eq!(api.get(&empty).await.ok(), json!({"configs": []}), "another task's are its own");

    made(&api, &path, &json!({"url": format!("{HOOK}/3")})).await;
    let whole = api.get(&path).await.ok();
    let (mut seen, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let page = api.get(&format!("{path}?pageSize=2&pageToken={token}")).await.ok();
        seen.extend(array(&page, "/configs").clone());
        pages += 1;
        match page.get("nextPageToken") {
            Some(next) => token = next.as_str().unwrap().to_owned(),
            None => break,
        }
    }
    assert_eq!((&json!(seen), pages), (&whole["configs"], 2));
    let snake = api.get(&format!("{path}?page_size=1")).await.ok();
    assert_eq!(array(&snake, "/configs").len(), 1);

    for (query, field) in [
        ("pageSize=-1", "pageSize"),
        ("pageSize=101", "pageSize"),
        ("pageSize=x", "pageSize"),
        ("pageToken=x", "pageToken"),
    ] {
        let error = api.get(&format!("{path}?{query}")).await.error(400);
        assert_eq!(violations(&error), [field], "{query}");
    }
    let error = api.get(&format!("/a2a/tasks/{UNKNOWN}/pushNotificationConfigs")).await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
}

#[tokio::test]
async fn s3_59_a_webhook_is_read_bare() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (_, path) = open_task(&api).await;
    let config = made(&api, &path, &json!({"url": HOOK})).await;
    let one = format!("{path}/{}", text(&config, "/id"));
    let reply = api.get(&one).await;
    assert_eq!(reply.ok(), config);
    assert_eq!(reply.media_type(), "application/a2a+json");
    let head = api.call(api.request(Method::HEAD, &one)).await;
    assert_eq!((head.status, head.body.len()), (200, 0));

    api.get(&format!("{path}/nothing")).await.error(404);
    let (_, other) = open_task(&api).await;
    api.get(&format!("{other}/{}", text(&config, "/id"))).await.error(404);
    let unknown = one.replace(text(&config, "/taskId"), UNKNOWN);
    assert_eq!(reason(&api.get(&unknown).await.error(404)), "TASK_NOT_FOUND");
    for method in [Method::POST, Method::PUT, Method::PATCH] {
        let reply = api.call(with_json(api.request(method, &one), &json!({}))).await;
        reply.error(405);
        assert_eq!(reply.header("allow"), Some("GET, HEAD, DELETE, OPTIONS"));
    }
}

#[tokio::test]
async fn s3_60_a_webhook_is_deleted_once_or_twice() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, path) = open_task(&api).await;
    let config = made(&api, &path, &json!({"url": HOOK})).await;
    let kept = made(&api, &path, &json!({"url": HOOK})).await;
    let one = format!("{path}/{}", text(&config, "/id"));
    for _ in 0..2 {
        let reply = delete(&api, &one).await;
        assert_eq!(reply.ok(), json!({}));
        assert_eq!(reply.media_type(), "application/a2a+json");
        api.get(&one).await.error(404);
    }
    assert_eq!(delete(&api, &format!("{path}/never-was")).await.ok(), json!({}));
    assert_eq!(ids(&api.get(&path).await.ok()), [text(&kept, "/id")], "the other one stays");
    let error = delete(&api, &path.replace(&task, UNKNOWN).replace("Configs", "Configs/c")).await.error(404);
    assert_eq!(reason(&error), "TASK_NOT_FOUND");
}

#[tokio::test]
async fn s3_57_s3_60_all_of_it_over_json_rpc() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, _) = open_task(&api).await;
    let (create, get) = ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig");
    let (list, delete) = ("ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig");
    let config = api.rpc_ok(create, &json!({"taskId": task, "url": HOOK})).await;
    let id = text(&config, "/id").to_owned();
    assert_eq!((text(&config, "/taskId"), text(&config, "/url")), (task.as_str(), HOOK));
    let named = json!({"taskId": task, "id": id});
    assert_eq!(api.rpc_ok(get, &named).await, config);
    assert_eq!(api.rpc_ok(list, &json!({"taskId": task})).await, json!({"configs": [config]}));
    for _ in 0..2 {
        assert_eq!(api.rpc_ok(delete, &named).await, json!({}));
    }
    assert!(api.rpc(get, &named).await.get("error").is_some());
    assert_eq!(api.rpc_ok(list, &json!({"taskId": task})).await, json!({"configs": []}));

    for (method, params) in [
        (create, json!({"taskId": UNKNOWN, "url": HOOK})),
        (get, json!({"taskId": UNKNOWN, "id": id})),
        (list, json!({"taskId": UNKNOWN})),
        (delete, json!({"taskId": UNKNOWN, "id": id})),
    ] {
        assert_eq!(reason(&api.rpc_error(method, &params, -32001).await), "TASK_NOT_FOUND", "{method}");
    }
    for (method, params, field) in [
        (create, json!({"taskId": task, "url": "nonsense"}), "url"),
        (create, json!({"url": HOOK}), "taskId"),
        (get, json!({"taskId": task}), "id"),
        (list, json!({}), "taskId"),
        (delete, json!({"taskId": task}), "id"),
    ] {
        assert_eq!(violations(&api.rpc_error(method, &params, -32602).await), [field], "{method}");
    }
}

#[tokio::test]
async fn x_4_s3_57_s3_60_all_of_it_in_0_3() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, path) = open_task(&api).await;
    let set = old_ok(&api, "set", &json!({"taskId": task, "pushNotificationConfig": {"url": HOOK}})).await;
    assert_eq!(text(&set, "/taskId"), task);
    assert_eq!(text(&set, "/pushNotificationConfig/url"), HOOK);
    let id = text(&set, "/pushNotificationConfig/id").to_owned();
    let named = json!({"id": task, "pushNotificationConfigId": id});
    assert_eq!(old_ok(&api, "get", &named).await, set);
    assert_eq!(old_ok(&api, "get", &json!({"id": task})).await, set, "the only one");
    assert_eq!(old_ok(&api, "list", &json!({"id": task})).await, json!([set]), "an array");
    assert_eq!(text(&api.get(&path).await.ok(), "/configs/0/id"), id, "it is the same in 1.0");
    for _ in 0..2 {
        assert_eq!(old_ok(&api, "delete", &named).await, Value::Null);
    }
    assert_eq!(old_ok(&api, "list", &json!({"id": task})).await, json!([]));
    assert!(old(&api, "get", &json!({"id": task})).await["error"]["code"].is_i64(), "there is none");
    assert!(old(&api, "get", &named).await["error"]["code"].is_i64());
    for (method, params) in [
        ("set", json!({"taskId": UNKNOWN, "pushNotificationConfig": {"url": HOOK}})),
        ("get", json!({"id": UNKNOWN})),
        ("get", json!({"id": UNKNOWN, "pushNotificationConfigId": "c"})),
        ("list", json!({"id": UNKNOWN})),
        ("delete", json!({"id": UNKNOWN, "pushNotificationConfigId": "c"})),
    ] {
        assert_eq!(old(&api, method, &params).await["error"]["code"], -32001, "{method}");
    }
    let bad = json!({"taskId": task, "pushNotificationConfig": {"url": "nonsense"}});
    assert_eq!(old(&api, "set", &bad).await["error"]["code"], -32602);
}

#[tokio::test]
async fn x_4_clients_of_0_3_get_every_webhook_and_may_leave_out_which() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, path) = open_task(&api).await;
    let first = text(&made(&api, &path, &json!({"url": HOOK})).await, "/id").to_owned();
    made(&api, &path, &json!({"url": HOOK})).await;
    let whole = api.get(&path).await.ok();
    let found = old_ok(&api, "get", &json!({"id": task})).await;
    assert_eq!(found["pushNotificationConfig"]["id"], whole["configs"][0]["id"], "the first of several");
    // Servers of 0.3 call it as its task where nobody named it.
    made(&api, &path, &json!({"id": task, "url": HOOK})).await;
    let found = old_ok(&api, "get", &json!({"id": task})).await;
    assert_eq!(found["pushNotificationConfig"]["id"], task);
    let listed = old_ok(&api, "list", &json!({"id": task})).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(3));
    assert!(listed.to_string().contains(&first));
}

#[tokio::test]
async fn s3_57_secrets_go_in_and_never_come_back() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, path) = open_task(&api).await;
    let (token, credentials) = ("secret-token-4711", "secret-credentials-4712");
    let config = json!({"id": "c", "url": HOOK, "token": token, "authentication": {"scheme": "Bearer", "credentials": credentials}});
    let mut told = vec![
        made(&api, &path, &config).await,
        api.get(&path).await.ok(),
        api.get(&format!("{path}/c")).await.ok(),
        api.rpc_ok("ListTaskPushNotificationConfigs", &json!({"taskId": task})).await,
        old_ok(&api, "get", &json!({"id": task, "pushNotificationConfigId": "c"})).await,
        old_ok(&api, "list", &json!({"id": task})).await,
    ];
    let authentication = json!({"schemes": ["Bearer"], "credentials": credentials});
    let inner = json!({"id": "d", "url": HOOK, "token": token, "authentication": authentication});
    told.push(old_ok(&api, "set", &json!({"taskId": task, "pushNotificationConfig": inner})).await);
    told.push(api.task(&task).await);
    for answer in told {
        let answer = answer.to_string();
        assert!(!answer.contains(token) && !answer.contains(credentials), "{answer}");
    }
}

#[tokio::test]
async fn s3_68_an_agents_own_routes_do_the_same() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (task, _) = open_task(&api).await;
    for scope in ["/a2a/agents/ask", "/a2a/ask"] {
        let path = format!("{scope}/tasks/{task}/pushNotificationConfigs");
        let config = made(&api, &path, &json!({"url": HOOK})).await;
        assert_eq!(text(&config, "/taskId"), task);
        let one = format!("{path}/{}", text(&config, "/id"));
        assert_eq!(api.get(&one).await.ok(), config);
        assert_eq!(api.get(&path).await.ok(), json!({"configs": [config]}));
        let gateways = format!("/a2a/tasks/{task}/pushNotificationConfigs");
        assert_eq!(api.get(&gateways).await.ok()["configs"], json!([config]), "{scope}");
        assert_eq!(api.get(&format!("{gateways}?tenant=ask")).await.ok()["configs"], json!([config]));

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
        let error = api.post(&path, &json!({"tenant": "echo", "url": HOOK})).await.error(400);
        assert_eq!(violations(&error), ["tenant"]);
        for _ in 0..2 {
            assert_eq!(delete(&api, &one).await.ok(), json!({}));
        }
        assert_eq!(api.get(&path).await.ok(), json!({"configs": []}));
    }
    let at = "/a2a/agents/ask/jsonrpc";
    let made = api.rpc_at(at, "CreateTaskPushNotificationConfig", &json!({"taskId": task, "url": HOOK})).await;
    let id = text(&made, "/result/id");
    let got = api.rpc_at(at, "GetTaskPushNotificationConfig", &json!({"taskId": task, "id": id})).await;
    assert_eq!(got["result"], made["result"]);
}

#[tokio::test]
async fn s3_57_s3_60_another_tenants_task_has_no_webhooks() {
    let rig = Rig::start().await;
    let mine = rig.api();
    let token = rig.add_tenant("other").await;
    let theirs = mine.with_token(Some(&token));
    let (task, path) = open_task(&mine).await;
    let config = made(&mine, &path, &json!({"url": HOOK})).await;
    let id = text(&config, "/id");
    let replies = [
        theirs.post(&path, &json!({"url": HOOK})).await,
        theirs.get(&path).await,
        theirs.get(&format!("{path}/{id}")).await,
        delete(&theirs, &format!("{path}/{id}")).await,
    ];
    for reply in replies {
        assert_eq!(reason(&reply.error(404)), "TASK_NOT_FOUND");
    }
    for (method, params) in [
        ("CreateTaskPushNotificationConfig", json!({"taskId": task, "url": HOOK})),
        ("GetTaskPushNotificationConfig", json!({"taskId": task, "id": id})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": task})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": id})),
    ] {
        theirs.rpc_error(method, &params, -32001).await;
    }
    assert_eq!(old(&theirs, "list", &json!({"id": task})).await["error"]["code"], -32001);
    assert_eq!(mine.get(&path).await.ok(), json!({"configs": [config]}), "it is as it was");
}

#[tokio::test]
async fn whoever_asks_for_chunks_is_told_that_they_come() {
    let rig = Rig::start().await;
    let api = rig.api();
    let (_, path) = open_task(&api).await;
    let wanted = format!("{}, urn:unknown", a2a::PUSH_CHUNKS);
    let request = api.request(Method::POST, &path).header("A2A-Extensions", wanted);
    let reply = api.call(with_json(request, &json!({"url": HOOK}))).await;
    reply.ok();
    assert_eq!(reply.header("a2a-extensions"), Some(a2a::PUSH_CHUNKS));
    let plain = api.post(&path, &json!({"url": HOOK})).await;
    plain.ok();
    assert_eq!(plain.header("a2a-extensions"), None);
}
