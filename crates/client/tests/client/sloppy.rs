//! Agents that speak something like 0.3: the answers of older systems, and streams that leave out what others need.

use std::time::Duration;

use a2a::{GetTaskRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, TaskState};
use client::{Client, Dialect, Resume, parse_url, reply_text, task_text, user_message};

use crate::client::script::{Script, collect, connector, events, held, json, options, pinging};

fn client(script: &Script) -> Client {
    Client::without_card(connector(), parse_url(&script.url).unwrap(), Dialect::V03, options())
}

fn data(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
    events(&lines)
}

#[tokio::test]
async fn an_answer_without_an_id_and_without_kinds_is_read() {
    let result = r#"{"id":"t-1","contextId":"c-1","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"done"}]}]}"#;
    let beside = r#"{"id":"t-1","contextId":"c-1","status":{"state":"working"},"message":"still at it"}"#;
    let script = Script::start(|_| {
        vec![
            json(200, &format!(r#"{{"jsonrpc":"2.0","result":{result}}}"#)),
            json(200, &format!(r#"{{"result":{beside}}}"#)),
        ]
    });
    let client = client(&script);
    let sent = client.send(user_message("m", "hi")).await.unwrap();
    assert!(matches!(&sent.value, SendMessageResponse::Task(task) if task.id == "t-1" && task.context_id == "c-1"));
    assert_eq!(reply_text(&sent.value).as_deref(), Some("done"));
    assert_eq!(sent.json.get(), result, "the object as it came");
    let got = client.get(GetTaskRequest { id: "t-1".to_owned(), ..GetTaskRequest::default() }).await.unwrap();
    assert_eq!(got.value.status.state, TaskState::Working);
    assert_eq!(task_text(&got.value).as_deref(), Some("still at it"));
}

#[tokio::test]
async fn a_stream_without_names_is_followed_to_its_end() {
    let script = Script::start(|_| {
        vec![data(&[
            r#"{"jsonrpc":"2.0","result":{"id":"t-1","contextId":"c-1","status":{"state":"submitted"}}}"#,
            "",
            r#"{"status":{"state":"TASK_STATE_WORKING","message":"thinking"}}"#,
            r#"{"jsonrpc":"2.0","result":{"artifact":{"parts":[{"text":"one "}]}}}"#,
            r#"{"jsonrpc":"2.0","result":{"artifact":{"parts":[{"text":"two"}]},"append":true,"lastChunk":true}}"#,
            r#"{"jsonrpc":"2.0","result":{"artifact":{"parts":[{"text":"more"}]}}}"#,
            r#"{"jsonrpc":"2.0","result":{"status":{"state":"completed"},"final":true}}"#,
            "[DONE]",
        ])]
    });
    let mut stream = client(&script).stream(user_message("m", "hi")).await.unwrap();
    let mut ids = Vec::new();
    let mut last = None;
    while let Some(event) = stream.next().await {
        let value = event.unwrap().value;
        let (task, context) = match &value {
            StreamResponse::Task(task) => (&task.id, &task.context_id),
            StreamResponse::StatusUpdate(update) => (&update.task_id, &update.context_id),
            StreamResponse::ArtifactUpdate(update) => {
                ids.push(update.artifact.artifact_id.clone());
                (&update.task_id, &update.context_id)
            }
            StreamResponse::Message(message) => panic!("{message:?}"),
        };
        assert_eq!((task.as_str(), context.as_str()), ("t-1", "c-1"));
        last = Some(value);
    }
    assert_eq!(ids, ["artifact-1", "artifact-1", "artifact-2"]);
    assert!(matches!(last, Some(StreamResponse::StatusUpdate(update)) if update.status.state == TaskState::Completed));
}

#[tokio::test]
async fn a_stream_that_only_says_that_it_is_there_is_left_once_its_task_is_over() {
    let script = Script::start(|_| {
        let task = |state: &str| {
            let task = format!(r#"{{"kind":"task","id":"t-1","contextId":"c","status":{{"state":"{state}"}}}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{task}}}"#)
        };
        let begin = held(&[format!("data: {}\n\n", task("working"))]);
        vec![pinging(&begin), json(200, &task("working")), json(200, &task("canceled"))]
    });
    let mut options = options();
    options.resume = Resume { idle: Duration::from_millis(300), ..options.resume };
    let url = parse_url(&script.url).unwrap();
    let client = Client::without_card(connector(), url, Dialect::V03, options);
    let stream = client.stream(user_message("m", "hi")).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["task TASK_STATE_WORKING", "task TASK_STATE_CANCELED"]);
    assert!(script.received()[1..].iter().all(|seen| seen.body.contains("tasks/get")), "nobody subscribes again");
}

#[tokio::test]
async fn a_subscription_that_breaks_off_at_once_is_looked_into() {
    let task = r#"{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t-1","status":{"state":"completed"}}}"#;
    let broken = events(&[]).replace("content-length: 0", "content-length: 9");
    let script = Script::start(|_| vec![broken, json(200, task)]);
    let request = SubscribeToTaskRequest { tenant: String::new(), id: "t-1".to_owned() };
    let stream = client(&script).subscribe(request, None).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["task TASK_STATE_COMPLETED"]);
    assert_eq!(script.received().len(), 2, "nobody tries again what cannot work");
}

#[tokio::test]
async fn a_stream_that_is_one_message_is_a_whole_answer() {
    let script = Script::start(|_| vec![data(&[r#"{"jsonrpc":"2.0","id":1,"result":{"message":"hello"}}"#])]);
    let stream = client(&script).stream(user_message("m", "hi")).await.unwrap();
    assert_eq!(collect(stream).await.unwrap(), ["message"]);
}
