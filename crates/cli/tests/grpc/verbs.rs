//! `sb` as a caller over gRPC: what it prints is what it prints over the other bindings.

use std::process::Stdio;

use serde_json::Value;

use super::{
    harness::{Home, TOKEN, text},
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

/// Without what differs between two tasks.
fn alike(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("context:") && !line.starts_with("changed:"))
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
