//! 1.0 agents over both bindings: resuming, typed errors, caps.

use std::{net::TcpListener, time::Duration};

use a2a::{
    DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use client::{Binding, Client, Connector, Error, Limits, Options, Policy, Resume, parse_url, user_message};

use crate::client::script::{Script, answer, collect, event, events, held, json, options, rpc};

fn card(binding: &str, url: &str) -> String {
    let card = serde_json::json!({
        "name": "n", "description": "d", "version": "1",
        "supportedInterfaces": [{"url": format!("{url}/x"), "protocolBinding": binding, "protocolVersion": "1.0"}],
        "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    });
    json(200, &card.to_string())
}

fn task(state: &str) -> String {
    format!(r#"{{"id":"t-1","contextId":"c","status":{{"state":"TASK_STATE_{state}"}}}}"#)
}

fn task_event(state: &str) -> String {
    format!(r#"{{"task":{}}}"#, task(state))
}

fn status_event(state: &str) -> String {
    format!(r#"{{"statusUpdate":{{"taskId":"t-1","contextId":"c","status":{{"state":"TASK_STATE_{state}"}}}}}}"#)
}

/// The code that the documentation of the crate shows.
#[tokio::test]
async fn an_agent_is_found_by_its_url_and_its_events_are_read() -> Result<(), Error> {
    let script = Script::start(|url| {
        vec![
            card("JSONRPC", url),
            events(&[event(1, &rpc(&task_event("SUBMITTED"))), event(2, &rpc(&status_event("COMPLETED")))]),
        ]
    });
    let connector = Connector::new(Policy::Operator, Limits::default());
    let url = parse_url(&script.url)?;
    let client = Client::connect(connector, &url, Options::default()).await?;
    let mut stream = client.stream(user_message("m-1", "hello")).await?;
    let mut shown = Vec::new();
    while let Some(event) = stream.next().await {
        shown.push(event?.json.to_string());
    }
    assert_eq!(shown, [task_event("SUBMITTED"), status_event("COMPLETED")]);
    Ok(())
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_after_its_last_event() {
    let script = Script::start(|url| {
        let cut = "id: 3\ndata: {\"cut".to_owned();
        vec![
            card("JSONRPC", url),
            events(&[event(1, &rpc(&task_event("SUBMITTED"))), event(2, &rpc(&status_event("WORKING"))), cut]),
            events(&[event(3, &rpc(&status_event("COMPLETED")))]),
        ]
    });
    let stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    let all = collect(stream).await.unwrap();
    assert_eq!(all, ["task TASK_STATE_SUBMITTED", "status TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]);
    let seen = script.received();
    assert!(seen[0].line.starts_with("GET /.well-known/agent-card.json"));
    assert!(seen[1].body.contains("\"SendStreamingMessage\""));
    assert!(seen[1].headers.contains("a2a-version: 1.0") && seen[1].headers.contains("Bearer sb_secret"));
    assert!(seen[2].body.contains("\"SubscribeToTask\"") && seen[2].body.contains("t-1"));
    assert!(seen[2].headers.contains("last-event-id: 2"), "{}", seen[2].headers);
}

#[tokio::test]
async fn webhooks_are_asked_for_in_both_bindings() {
    let kept = r#"{"id":"c-1","taskId":"t-1","url":"https://h"}"#;
    let page = format!(r#"{{"configs":[{kept}],"nextPageToken":"more"}}"#);
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let script = Script::start(|url| {
            let said = |result: &str| if binding == "JSONRPC" { rpc(result) } else { result.to_owned() };
            vec![
                card(binding, url),
                json(200, &said(kept)),
                json(200, &said(kept)),
                json(200, &said(&page)),
                json(200, &said("{}")),
            ]
        });
        let client = script.client(options()).await.unwrap();
        let (task_id, id) = ("t-1".to_owned(), "c-1".to_owned());
        let url = "https://h".to_owned();
        let config = TaskPushNotificationConfig { task_id: task_id.clone(), url, ..Default::default() };
        let created = client.create_push(config).await.unwrap();
        assert_eq!((created.value.id.as_str(), created.json.get()), ("c-1", kept));
        let get =
            GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: id.clone(), ..Default::default() };
        assert_eq!(client.get_push(get).await.unwrap().value, created.value);
        let list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..Default::default() };
        let listed = client.list_push(list).await.unwrap().value;
        assert_eq!((listed.configs, listed.next_page_token.as_str()), (vec![created.value], "more"));
        let delete = DeleteTaskPushNotificationConfigRequest { task_id, id, ..Default::default() };
        client.delete_push(delete).await.unwrap();
        assert_eq!(script.received().len(), 5);
    }
}

#[tokio::test]
async fn rest_streams_resume_and_what_passes_is_tried_again() {
    let script = Script::start(|url| {
        vec![
            card("HTTP+JSON", url),
            events(&[event(1, &task_event("WORKING"))]),
            json(503, r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"draining"}}"#),
            events(&[event(2, &status_event("COMPLETED"))]),
        ]
    });
    let client = script.client(options()).await.unwrap();
    assert_eq!(client.binding(), Binding::Rest);
    let stream = client.stream(user_message("m", "hi")).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]);
    let seen = script.received();
    assert!(seen[1].line.starts_with("POST /x/message:stream"));
    for again in &seen[2..4] {
        assert!(again.line.starts_with("GET /x/tasks/t-1:subscribe"), "{}", again.line);
        assert!(again.headers.contains("last-event-id: 1"));
    }
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_is_fetched() {
    let script = Script::start(|url| {
        let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UNSUPPORTED_OPERATION","domain":"a2a-protocol.org"}"#;
        vec![
            card("HTTP+JSON", url),
            events(&[format!("data: {}\n\n", task_event("WORKING"))]),
            json(400, &format!(r#"{{"error":{{"code":400,"message":"ended","details":[{info}]}}}}"#)),
            json(200, &task("COMPLETED")),
        ]
    });
    let stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["task TASK_STATE_WORKING", "task TASK_STATE_COMPLETED"]);
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_is_an_error() {
    let script = Script::start(|url| vec![card("HTTP+JSON", url), events(&[event(1, &task_event("WORKING"))])]);
    let stream = script.client(options()).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    let result = collect(stream).await;
    assert!(matches!(result, Err(Error::Cut { attempts: 3, source: Some(_) })), "{result:?}");
}

#[tokio::test]
async fn a_cursor_at_the_end_of_a_finished_task_is_an_empty_stream() {
    let script = Script::start(|url| vec![card("HTTP+JSON", url), events(&[]), json(200, &task("COMPLETED"))]);
    let request = SubscribeToTaskRequest { tenant: String::new(), id: "t-1".to_owned() };
    let stream = script.client(options()).await.unwrap().subscribe(request, Some("7".to_owned())).await.unwrap();
    assert!(collect(stream).await.unwrap().is_empty());
}

#[tokio::test]
async fn errors_are_typed() {
    let unauthenticated = Script::start(|_| vec![json(401, r#"{"error":{"code":401,"message":"no"}}"#)]);
    assert!(matches!(unauthenticated.client(options()).await, Err(Error::Auth(_))));
    let no_card = Script::start(|_| vec![json(200, "[]")]);
    assert!(matches!(no_card.client(options()).await, Err(Error::Malformed(_))));
    let elsewhere = Script::start(|_| vec![card("JSONRPC", "http://192.0.2.1")]);
    assert!(matches!(elsewhere.client(options()).await, Err(Error::ForeignInterface { .. })));
    let moved = answer(302, "text/plain", "").replace("302 X", "302 X\r\nlocation: http://192.0.2.1/");
    let redirect = Script::start(|_| vec![moved]);
    assert!(matches!(redirect.client(options()).await, Err(Error::Protocol(_))), "redirects are not followed");
    let not_a_stream = Script::start(|url| vec![card("HTTP+JSON", url), json(200, "{}")]);
    let client = not_a_stream.client(options()).await.unwrap();
    assert!(matches!(client.stream(user_message("m", "hi")).await, Err(Error::Malformed(_))));
}

#[tokio::test]
async fn a_body_and_a_time_have_caps() {
    let large = Script::start(|_| vec![json(200, &"x".repeat(2000))]);
    let limits = Limits { body_cap: 1000, ..Limits::default() };
    let url = parse_url(&large.url).unwrap();
    let result = client::discover(&Connector::new(Policy::Operator, limits), &url, None).await;
    assert!(matches!(result, Err(Error::TooLarge { cap: 1000 })));

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = parse_url(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let limits = Limits { total_timeout: Some(Duration::from_millis(50)), ..Limits::default() };
    let result = client::discover(&Connector::new(Policy::Operator, limits), &url, None).await;
    assert!(matches!(result, Err(Error::Timeout { .. })));
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let script = Script::start(|url| {
        vec![
            card("JSONRPC", url),
            held(&[event(1, &rpc(&status_event("WORKING")))]),
            events(&[event(2, &rpc(&status_event("COMPLETED")))]),
        ]
    });
    let mut options = options();
    options.resume = Resume { idle: Duration::from_millis(500), ..options.resume };
    let stream = script.client(options).await.unwrap().stream(user_message("m", "hi")).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["status TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]);
    assert!(script.received()[2].headers.contains("last-event-id: 1"));
}
