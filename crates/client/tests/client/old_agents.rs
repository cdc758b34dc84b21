//! Agents that speak 0.3: discovery, every operation, streams, and what the caller gets to see of it.

use std::time::Duration;

use a2a::{
    AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageResponse, SubscribeToTaskRequest, TaskPushNotificationConfig, TaskState,
};
use client::{Binding, Dialect, Error, Resume, parse_url, user_message};
use serde_json::Value;

use crate::client::script::{Script, collect, connector, event, events, held, json, options, rpc};

fn card(url: &str, version: &str) -> String {
    let card = serde_json::json!({
        "protocolVersion": version, "name": "old", "description": "d", "version": "1",
        "url": format!("{url}/rpc"), "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": true}, "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
        "skills": [{"id": "s", "name": "s", "description": "s", "tags": []}],
    });
    json(200, &card.to_string())
}

fn task(state: &str) -> String {
    format!(r#"{{"kind":"task","id":"t-1","contextId":"c","status":{{"state":"{state}"}},"x-own":1.0}}"#)
}

fn status(state: &str, last: bool) -> String {
    format!(
        r#"{{"kind":"status-update","taskId":"t-1","contextId":"c","final":{last},"status":{{"state":"{state}"}}}}"#
    )
}

fn error(code: i32) -> String {
    json(200, &format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no"}}}}"#))
}

fn body(script: &Script, request: usize) -> Value {
    script.received()[request].json()
}

#[tokio::test]
async fn operations_speak_0_3_and_give_1_0_types() {
    let message = r#"{"kind":"message","messageId":"r","role":"agent","parts":[{"kind":"text","text":"hello"}]}"#;
    let script = Script::start(|url| {
        vec![
            card(url, "0.3.0"),
            json(200, &rpc(message)),
            json(200, &rpc(&task("input-required"))),
            json(200, &rpc(&task("canceled"))),
        ]
    });
    let client = script.client(options()).await.unwrap();
    assert_eq!((client.dialect(), client.binding()), (Dialect::V03, Binding::JsonRpc));
    assert!(client.streams());

    let mut request = user_message("m", "hi");
    request.message.context_id = "c".to_owned();
    let reply = client.send(request).await.unwrap();
    assert!(matches!(&reply.value, SendMessageResponse::Message(reply) if reply.text() == "hello"));
    assert_eq!(reply.json.get(), message, "the object as it came");
    let get = GetTaskRequest { id: "t-1".to_owned(), ..GetTaskRequest::default() };
    let got = client.get(get).await.unwrap();
    assert_eq!(got.value.status.state, TaskState::InputRequired);
    assert_eq!(got.json.get(), task("input-required"));
    let cancel = CancelTaskRequest { id: "t-1".to_owned(), ..CancelTaskRequest::default() };
    assert_eq!(client.cancel(cancel).await.unwrap().value.status.state, TaskState::Canceled);
    assert!(matches!(client.list(ListTasksRequest::default()).await, Err(Error::Inexpressible(_))));

    let seen = script.received();
    assert!(seen[0].line.starts_with("GET /.well-known/agent-card.json"));
    assert_eq!(seen.len(), 4, "no other path is asked");
    for (number, method) in [(1, "message/send"), (2, "tasks/get"), (3, "tasks/cancel")] {
        assert!(seen[number].line.starts_with("POST /rpc"), "{}", seen[number].line);
        assert!(seen[number].headers.contains("a2a-version: 0.3\r\n"), "{}", seen[number].headers);
        assert!(seen[number].headers.contains("Bearer sb_secret"));
        assert_eq!(body(&script, number)["method"], method);
    }
    let params = &body(&script, 1)["params"];
    assert_eq!((&params["contextId"], &params["message"]["contextId"]), (&"c".into(), &"c".into()));
    assert_eq!(params["message"]["role"], "user");
}

#[tokio::test]
async fn webhooks_are_asked_for_in_0_3() {
    let kept = r#"{"taskId":"t-1","pushNotificationConfig":{"id":"c-1","url":"https://h"}}"#;
    let script = Script::start(|url| {
        vec![
            card(url, "0.3.0"),
            json(200, &rpc(kept)),
            json(200, &rpc(kept)),
            json(200, &rpc(&format!("[{kept},{kept}]"))),
            json(200, &rpc("null")),
        ]
    });
    let client = script.client(options()).await.unwrap();
    let authentication = AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: "secret".to_owned() };
    let config = TaskPushNotificationConfig {
        task_id: "t-1".to_owned(),
        url: "https://h".to_owned(),
        authentication: Some(authentication),
        ..Default::default()
    };
    let created = client.create_push(config).await.unwrap();
    assert_eq!((created.value.id.as_str(), created.value.task_id.as_str()), ("c-1", "t-1"));
    assert_eq!(created.json.get(), kept, "the object as it came");
    let get = GetTaskPushNotificationConfigRequest { task_id: "t-1".to_owned(), ..Default::default() };
    assert_eq!(client.get_push(get).await.unwrap().value, created.value);
    let mut list = ListTaskPushNotificationConfigsRequest { task_id: "t-1".to_owned(), ..Default::default() };
    assert_eq!(client.list_push(list.clone()).await.unwrap().value.configs.len(), 2);
    list.page_size = 1;
    assert!(matches!(client.list_push(list).await, Err(Error::Inexpressible(_))), "0.3 has no pages");
    let delete = DeleteTaskPushNotificationConfigRequest {
        task_id: "t-1".to_owned(),
        id: "c-1".to_owned(),
        ..Default::default()
    };
    client.delete_push(delete).await.unwrap();
    for (number, verb) in [(1, "set"), (2, "get"), (3, "list"), (4, "delete")] {
        assert_eq!(body(&script, number)["method"], format!("tasks/pushNotificationConfig/{verb}"));
    }
    let params = &body(&script, 1)["params"];
    assert_eq!(params["pushNotificationConfig"]["authentication"]["schemes"][0], "Bearer");
    assert!(body(&script, 2)["params"].get("pushNotificationConfigId").is_none(), "the only one is meant");
    assert_eq!(body(&script, 4)["params"]["pushNotificationConfigId"], "c-1");
}

#[tokio::test]
async fn an_older_card_is_not_told_a_version() {
    let script = Script::start(|url| vec![card(url, "0.2.6"), json(200, &rpc(&task("completed")))]);
    let reply = script.client(options()).await.unwrap().send(user_message("m", "hi")).await.unwrap();
    assert!(matches!(reply.value, SendMessageResponse::Task(_)));
    assert!(!script.received()[1].headers.contains("a2a-version"), "{}", script.received()[1].headers);
}

#[tokio::test]
async fn a_stream_ends_with_its_final_event() {
    let script = Script::start(|url| {
        let artifact = r#"{"kind":"artifact-update","taskId":"t-1","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]}}"#;
        let lines = [task("submitted"), status("working", false), artifact.to_owned(), status("input-required", true)];
        // Nothing follows, and nobody closes the connection.
        vec![card(url, "0.3.0"), held(&lines.map(|line| format!("data: {}\n\n", rpc(&line))))]
    });
    let stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    let all = collect(stream).await.unwrap();
    let expected = ["task TASK_STATE_SUBMITTED", "status TASK_STATE_WORKING", "artifact"];
    assert_eq!(all[..3], expected);
    assert_eq!(all[3..], ["status TASK_STATE_INPUT_REQUIRED"]);
    assert_eq!(body(&script, 1)["method"], "message/stream");
}

#[tokio::test]
async fn a_cut_stream_is_resubscribed_or_looked_up() {
    let script = Script::start(|url| {
        vec![
            card(url, "0.3.0"),
            events(&[event(1, &rpc(&status("working", false)))]),
            events(&[event(2, &rpc(&status("working", false)))]),
            error(-32602),
            json(200, &rpc(&task("completed"))),
        ]
    });
    let mut stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        all.push(event.unwrap().json.get().to_owned());
    }
    assert_eq!(all, [status("working", false), status("working", false), task("completed")], "as they came");
    assert_eq!(body(&script, 2)["method"], "tasks/resubscribe");
    assert_eq!(body(&script, 4)["method"], "tasks/get");

    let gone = Script::start(|url| vec![card(url, "0.3.0"), error(-32001)]);
    let request = SubscribeToTaskRequest { tenant: String::new(), id: "t-1".to_owned() };
    let result = gone.client(options()).await.unwrap().subscribe(request, None).await;
    assert!(matches!(result, Err(Error::Protocol(remote)) if remote.code == -32001));
}

#[tokio::test]
async fn silence_is_borne_where_nobody_can_subscribe() {
    let script = Script::start(|url| {
        vec![
            card(url, "0.3.0"),
            held(&[event(1, &rpc(&status("working", false)))]),
            error(-32601),
            json(200, &rpc(&task("working"))),
        ]
    });
    let mut options = options();
    options.resume = Resume { idle: Duration::from_millis(50), ..options.resume };
    let mut stream = script.client(options).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    let more = tokio::time::timeout(Duration::from_millis(400), stream.next()).await;
    assert!(more.is_err(), "the old connection is kept");
    assert_eq!(script.received().len(), 4);
}

#[tokio::test]
async fn the_old_card_path_is_not_tried() {
    let script = Script::start(|_| vec![json(404, "{}")]);
    let result = client::discover(&connector(), &parse_url(&script.url).unwrap(), None).await;
    assert!(matches!(result, Err(Error::Protocol(_))));
    assert_eq!(script.received().len(), 1);
}

fn rest_card(url: &str) -> String {
    let card = serde_json::json!({
        "protocolVersion": "0.3.0", "name": "old", "description": "d", "version": "1",
        "url": format!("{url}/x"), "preferredTransport": "HTTP+JSON",
        "capabilities": {"streaming": true}, "defaultInputModes": ["text"], "defaultOutputModes": ["text"], "skills": [],
    });
    json(200, &card.to_string())
}

fn proto_task(state: &str) -> String {
    format!(r#"{{"id":"t-1","contextId":"c","status":{{"state":"TASK_STATE_{state}"}}}}"#)
}

#[tokio::test]
async fn operations_speak_http_and_json_of_0_3() {
    let message = r#"{"message":{"messageId":"r","role":"ROLE_AGENT","content":[{"text":"hello"}]}}"#;
    let script = Script::start(|url| {
        vec![
            rest_card(url),
            json(200, message),
            json(200, &format!(r#"{{"task":{}}}"#, proto_task("INPUT_REQUIRED"))),
            json(200, &proto_task("WORKING")),
            json(200, &proto_task("CANCELLED")),
            json(404, r#"{"message":"Task not found"}"#),
        ]
    });
    let client = script.client(options()).await.unwrap();
    assert_eq!((client.dialect(), client.binding()), (Dialect::V03, Binding::Rest));
    let reply = client.send(user_message("m", "hi")).await.unwrap();
    assert!(matches!(&reply.value, SendMessageResponse::Message(reply) if reply.text() == "hello"));
    assert_eq!(reply.json.get(), message, "the object as it came");
    let asked = client.send(user_message("m", "hi")).await.unwrap().value;
    assert!(matches!(asked, SendMessageResponse::Task(task) if task.status.state == TaskState::InputRequired));
    let get = GetTaskRequest { id: "t-1".to_owned(), ..GetTaskRequest::default() };
    assert_eq!(client.get(get.clone()).await.unwrap().value.status.state, TaskState::Working);
    let cancel = CancelTaskRequest { id: "t-1".to_owned(), ..CancelTaskRequest::default() };
    assert_eq!(client.cancel(cancel).await.unwrap().value.status.state, TaskState::Canceled);
    let error = client.get(get).await.unwrap_err();
    assert_eq!((error.http_status(), error.to_string().as_str()), (Some(404), "Task not found (404)"));

    let seen = script.received();
    for (number, line) in [
        (1, "POST /x/v1/message:send "),
        (3, "GET /x/v1/tasks/t-1 "),
        (4, "POST /x/v1/tasks/t-1:cancel "),
        (5, "GET /x/v1/tasks/t-1 "),
    ] {
        assert!(seen[number].line.starts_with(line), "{}", seen[number].line);
        assert!(seen[number].headers.contains("a2a-version: 0.3\r\n"), "{}", seen[number].headers);
    }
    let sent = body(&script, 1);
    assert_eq!((&sent["message"]["role"], &sent["configuration"]["blocking"]), (&"ROLE_USER".into(), &true.into()));
    assert_eq!(sent["message"]["content"][0]["text"], "hi");
}

#[tokio::test]
async fn a_stream_of_http_and_json_of_0_3_is_taken_up_again() {
    let script = Script::start(|url| {
        let status = |state: &str, last: bool| {
            // As the official server writes it: on several lines, and nothing that is not set.
            let last = if last { ",\ndata:   \"final\": true" } else { "" };
            let status = format!(r#""taskId": "t-1", "contextId": "c", "status": {{"state": "TASK_STATE_{state}"}}"#);
            format!("data: {{\ndata: \"statusUpdate\": {{{status}{last}}}\ndata: }}\n\n")
        };
        vec![
            rest_card(url),
            events(&[format!("data: {{\"task\": {}}}\n\n", proto_task("SUBMITTED")), status("WORKING", false)]),
            held(&[status("INPUT_REQUIRED", true)]),
        ]
    });
    let mut stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    let mut states = Vec::new();
    while let Some(event) = stream.next().await {
        let event = event.unwrap();
        assert!(!event.json.get().contains('\n'), "an event is one line: {}", event.json.get());
        states.push(serde_json::to_value(&event.value).unwrap().to_string());
    }
    assert_eq!(states.len(), 3, "{states:?}");
    assert!(states[2].contains("TASK_STATE_INPUT_REQUIRED"));
    assert!(script.received()[1].line.starts_with("POST /x/v1/message:stream "));
    assert!(script.received()[2].line.starts_with("GET /x/v1/tasks/t-1:subscribe "));
}
