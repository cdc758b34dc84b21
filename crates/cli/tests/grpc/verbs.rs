//! `sb` as a caller over gRPC, and the client inside it: what it prints is what it prints over the other bindings.

use std::process::Stdio;

use a2a::{
    DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, SendMessageResponse, TaskPushNotificationConfig,
};
use client::{Binding, Client, Connector, Credential, Limits, Options, Policy, Secret};
use serde_json::Value;

use super::{
    harness::{Home, TOKEN, text, wait_for},
    http::{artifact_text, state},
};

fn serve(home: &Home) -> super::harness::Server {
    home.serve_with(&["--grpc-port", "0"], &[("SB_BOOTSTRAP_TOKEN", TOKEN)])
}

#[test]
fn sends_and_tasks_look_the_same_over_every_binding() {
    let home = Home::new();
    let _server = serve(&home);
    let mut told: Vec<Vec<String>> = Vec::new();
    for binding in ["jsonrpc", "rest", "grpc"] {
        let by = ["--binding", binding];
        let mut seen = vec![home.ok(&[&["send", "--agent", "echo", "hello"], &by[..]].concat())];
        seen.push(home.ok(&[&["send", "--stream", "--agent", "stream", "3 chunks, 30 ms apart"], &by[..]].concat()));
        let sent = home.json(&[&["send", "--agent", "ask", "start"], &by[..]].concat());
        let id = sent[0].pointer("/task/id").and_then(Value::as_str).unwrap().to_owned();
        seen.push(home.ok(&[&["task", "get", &id], &by[..]].concat()).replace(&id, "ID"));
        let canceled = home.json(&[&["task", "cancel", &id], &by[..]].concat());
        seen.push(state(&canceled[0]).to_owned());
        let listed = home.json(&[&["task", "list", "--limit", "1"], &by[..]].concat());
        seen.push(listed[0]["id"].to_string().replace(&id, "ID"));
        let followed = home.run(&[&["task", "subscribe", &id, "--after", "0", "-o", "json"], &by[..]].concat());
        let events = text(&followed.stdout);
        let kind = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
        seen.push(events.lines().map(kind).collect::<Vec<_>>().join(" "));
        seen.push(home.fails(&[&["task", "get", "01980000-0000-7000-8000-000000000000"], &by[..]].concat(), 1));
        told.push(seen.iter().map(|text| alike(text)).collect());
    }
    assert_eq!(told[0].len(), 7);
    for (n, first) in told[0].iter().enumerate().take(6) {
        assert_eq!(first, &told[1][n], "rest");
        assert_eq!(first, &told[2][n], "grpc");
    }
    assert!(told[2][6].contains("task not found"), "{}", told[2][6]);
}

#[test]
fn s3_57_s3_60_the_client_keeps_webhooks_over_every_binding() {
    let home = Home::new();
    let server = serve(&home);
    for binding in [Binding::JsonRpc, Binding::Rest, Binding::Grpc] {
        wait_for(keeps_webhooks(&server.url, binding));
    }
}

async fn keeps_webhooks(url: &str, binding: Binding) {
    let connector = Connector::new(Policy::Operator, Limits::default());
    let options = Options {
        credential: Some(Credential::Bearer(Secret::new(TOKEN))),
        binding: Some(binding),
        ..Options::default()
    };
    let client = Client::connect(connector, &client::parse_url(url).unwrap(), options).await.unwrap();
    let mut message = client::user_message("m", "what");
    message.tenant = "ask".to_owned();
    let SendMessageResponse::Task(task) = client.send(message).await.unwrap().value else { panic!("a task") };

    let config = TaskPushNotificationConfig {
        tenant: "ask".to_owned(),
        task_id: task.id.clone(),
        url: "https://example.com/hook".to_owned(),
        ..Default::default()
    };
    let made = client.create_push(config.clone()).await.unwrap().value;
    assert_eq!((&made.task_id, &made.url), (&task.id, &config.url), "{binding:?}");
    let task_id = task.id;
    let get =
        GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: made.id.clone(), ..Default::default() };
    assert_eq!(client.get_push(get.clone()).await.unwrap().value, made, "{binding:?}");
    let other = client.create_push(config).await.unwrap().value;
    let mut list = ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..Default::default() };
    list.page_size = 1;
    let first = client.list_push(list.clone()).await.unwrap().value;
    list.page_token = first.next_page_token;
    let second = client.list_push(list).await.unwrap().value;
    assert_eq!((first.configs.len(), second.configs.len(), second.next_page_token.as_str()), (1, 1, ""));
    let seen = [&first.configs[0], &second.configs[0]];
    assert!(seen.contains(&&made) && seen.contains(&&other), "{binding:?}: {seen:?}");
    let delete = DeleteTaskPushNotificationConfigRequest { task_id, id: made.id, ..Default::default() };
    client.delete_push(delete.clone()).await.unwrap();
    client.delete_push(delete).await.unwrap();
    assert!(client.get_push(get).await.is_err(), "{binding:?}");
}

/// Without what differs between two tasks.
fn alike(text: &str) -> String {
    text.lines()
        .filter(|line| !["context:", "started:", "changed:", "duration:"].iter().any(|field| line.starts_with(field)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_stream_goes_on_when_its_server_was_restarted() {
    let home = Home::new();
    let server = home.serve_with(&["--listen", "127.0.0.1:0", "--grpc-port", "0"], &[("SB_BOOTSTRAP_TOKEN", TOKEN)]);
    let (main, grpc) = (server.address().to_owned(), grpc_port(&home));
    let mut command = home.command(&[
        "send",
        "--stream",
        "--agent",
        "stream",
        "40 chunks, 100 ms apart",
        "--binding",
        "grpc",
        "-o",
        "json",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever prints nothing until the end follows in the same way.
    let mut command = home.command(&["send", "--agent", "stream", "40 chunks, 100 ms apart", "--binding", "grpc"]);
    let plain = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    server.stop();
    let _again = home.serve_with(&["--listen", &main, "--grpc-port", &grpc], &[("SB_BOOTSTRAP_TOKEN", TOKEN)]);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(state(&events.last().unwrap()["statusUpdate"]), "COMPLETED");
    assert!(!said.contains("resume-cursor"), "the number is not the agent's");
    let id = events[0].pointer("/task/id").and_then(Value::as_str).unwrap();
    let whole = artifact_text(&home.json(&["task", "get", id])[0]);
    assert!(whole.contains("39"), "{whole}");
    let plain = plain.wait_with_output().unwrap();
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    assert_eq!(text(&plain.stdout).lines().count(), 40, "{}", text(&plain.stdout));
}

fn grpc_port(home: &Home) -> String {
    let card = &home.json(&["card", "get"])[0];
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let grpc = interfaces.iter().find(|one| one["protocolBinding"] == "GRPC").unwrap();
    grpc["url"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_card_that_does_not_name_grpc_is_no_way_to_it() {
    let home = Home::new();
    let _server = home.serve_with(&[], &[("SB_BOOTSTRAP_TOKEN", TOKEN)]);
    let said = home.fails(&["send", "--binding", "grpc", "hello"], 1);
    assert!(said.contains("--grpc-port"), "{said}");
}
