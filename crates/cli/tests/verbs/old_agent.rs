//! An agent that speaks 0.3, and `sb` talking to it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::rig::{Home, failed, worked};

/// How it takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Streams,
    /// It does not say that it streams, and works for a while.
    Works,
    /// It says that it streams, and does not know how.
    Boasts,
    /// It breaks off instead of answering.
    Breaks,
    /// It sends its artifact a second time when all of it was streamed.
    Repeats,
    /// It puts another artifact in the place of the one that was streamed.
    Replaces,
}

/// A 0.3 server that answers every message with its own text.
struct OldAgent {
    url: String,
    /// The headers and the body of each call.
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

impl OldAgent {
    fn start() -> Self {
        Self::start_as(Way::Streams)
    }

    fn start_as(way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (base, log) = (url.clone(), Arc::clone(&calls));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                answer(socket.unwrap(), &base, &log, way);
            }
        });
        Self { url, calls }
    }

    fn call(&self, number: usize) -> (String, Value) {
        self.calls.lock().unwrap()[number].clone()
    }
}

fn answer(mut socket: TcpStream, base: &str, log: &Mutex<Vec<(String, Value)>>, way: Way) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let (mut line, mut headers, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line).unwrap();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.to_ascii_lowercase();
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        headers.push_str(&header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (status, media_type, body) = if line.starts_with("GET /.well-known/agent-card.json") {
        (200, "application/json", card(base, way).to_string())
    } else if line.starts_with("GET") {
        (404, "application/json", "{}".to_owned())
    } else {
        let call: Value = serde_json::from_slice(&body).unwrap();
        log.lock().unwrap().push((headers, call.clone()));
        match (way, call["method"].as_str().unwrap()) {
            (Way::Breaks, _) => return,
            (Way::Boasts, "message/stream") => no_method(&call),
            _ => reply(&call, way),
        }
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n");
    socket.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
}

fn no_method(call: &Value) -> (u16, &'static str, String) {
    let error = json!({"code": -32601, "message": "Method not found"});
    (200, "application/json", json!({"jsonrpc": "2.0", "id": call["id"], "error": error}).to_string())
}

fn card(base: &str, way: Way) -> Value {
    json!({
        "protocolVersion": "0.3.0", "name": "old", "description": "d", "url": format!("{base}/rpc"),
        "preferredTransport": "JSONRPC", "version": "1", "capabilities": {"streaming": way != Way::Works},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    })
}

fn reply(call: &Value, way: Way) -> (u16, &'static str, String) {
    let envelope = |result: Value| json!({"jsonrpc": "2.0", "id": call["id"], "result": result}).to_string();
    let message = &call["params"]["message"];
    let context = message["contextId"].as_str().unwrap_or("c-new");
    let part = json!([{"kind": "text", "text": format!("you said {}", message["parts"][0]["text"])}]);
    let artifact = json!({"artifactId": "a", "parts": part});
    let task = |state: &str, artifacts: Value| {
        let status = json!({"state": state});
        json!({"kind": "task", "id": "t-1", "contextId": context, "status": status, "artifacts": artifacts})
    };
    let status = |state: &str, last: bool| {
        let status = json!({"state": state});
        json!({"kind": "status-update", "taskId": "t-1", "contextId": context, "status": status, "final": last})
    };
    match call["method"].as_str().unwrap() {
        "message/send" if way == Way::Works => (200, "application/json", envelope(task("working", json!([])))),
        "message/send" => (200, "application/json", envelope(task("completed", json!([artifact])))),
        "message/stream" => {
            let chunk = json!({"kind": "artifact-update", "taskId": "t-1", "contextId": context, "artifact": artifact});
            let mut events = vec![task("submitted", json!([])), status("working", false), chunk.clone()];
            if matches!(way, Way::Repeats | Way::Replaces) {
                let mut more = chunk.clone();
                more["append"] = json!(true);
                more["artifact"]["parts"][0]["text"] = json!(", and more");
                let mut whole = chunk;
                whole["artifact"]["parts"][0]["text"] = match way {
                    Way::Repeats => json!(format!("you said {}, and more", message["parts"][0]["text"])),
                    _ => json!("something else"),
                };
                events.extend([more, whole]);
            }
            events.push(status("completed", true));
            let frames: Vec<String> =
                events.into_iter().map(|event| format!("data: {}\n\n", envelope(event))).collect();
            (200, "text/event-stream", frames.concat())
        }
        "tasks/get" if call["params"]["id"] == "t-1" => {
            let part = json!([{"kind": "text", "text": "you said \"hello\""}]);
            let artifacts = json!([{"artifactId": "a", "parts": part}]);
            (200, "application/json", envelope(task("completed", artifacts)))
        }
        _ => {
            let error = json!({"code": -32001, "message": "Task not found"});
            (200, "application/json", json!({"jsonrpc": "2.0", "id": call["id"], "error": error}).to_string())
        }
    }
}

#[test]
fn send_speaks_0_3() {
    let home = Home::new();
    let agent = OldAgent::start();
    assert_eq!(home.ok(&["send", "--url", &agent.url, "--context", "c-1", "hello"]), "you said \"hello\"\n");
    let (headers, call) = agent.call(0);
    assert!(headers.contains("a2a-version: 0.3\r\n"), "{headers}");
    assert_eq!(call["method"], "message/stream", "it says that it streams, and a stream can be followed further");
    assert!(!headers.contains("idempotency-key"), "{headers}");
    assert_eq!((&call["params"]["contextId"], &call["params"]["message"]["contextId"]), (&json!("c-1"), &json!("c-1")));
    assert_eq!(call["params"]["message"]["role"], "user");

    let reply = home.json(&["send", "--url", &agent.url, "hello"]).remove(0);
    assert_eq!((&reply["kind"], &reply["status"]["state"]), (&json!("task"), &json!("completed")), "as it came");
    let file = home.write("a.txt", "x");
    home.ok(&["send", "--url", &agent.url, "--file", &file, "look"]);
    let part = &agent.call(4).1["params"]["message"]["parts"][1];
    assert_eq!((&part["kind"], &part["file"]["bytes"]), (&json!("file"), &json!("eA==")));
}

#[test]
fn streams_and_conversations_speak_0_3() {
    let home = Home::new();
    let agent = OldAgent::start();
    assert_eq!(home.ok(&["send", "--stream", "--url", &agent.url, "hello"]), "you said \"hello\"\n");
    let events = home.json(&["send", "--stream", "--url", &agent.url, "hello"]);
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["task", "status-update", "artifact-update", "status-update"]);
    assert_eq!(events[3]["final"], true);

    let output = home.pipe(&["chat", &agent.url], "one\ntwo\n");
    assert_eq!(worked(&output), "you said \"one\"\nyou said \"two\"\n");
    let (_, second) = agent.call(3);
    assert_eq!(second["params"]["contextId"], "c-new", "the conversation that the agent began");
}

#[test]
fn an_artifact_that_is_sent_anew_is_printed_once() {
    let home = Home::new();
    let send = |way| home.ok(&["send", "--stream", "--url", &OldAgent::start_as(way).url, "hello"]);
    assert_eq!(send(Way::Repeats), "you said \"hello\", and more\n");
    assert_eq!(send(Way::Replaces), "you said \"hello\", and more\n· the answer was replaced\nsomething else\n");
}

#[test]
fn what_0_3_lacks_is_said() {
    let home = Home::new();
    let agent = OldAgent::start();
    let card = home.json(&["card", "get", &agent.url]).remove(0);
    assert_eq!(card["protocolVersion"], "0.3.0", "as it came");
    assert!(failed(&home.run(&["task", "list", "--url", &agent.url]), 1).contains("0.3"));
    assert!(failed(&home.run(&["task", "get", "--url", &agent.url, "t-9"]), 1).contains("Task not found"));
}

#[test]
fn who_does_not_stream_is_asked_until_the_end() {
    let home = Home::new();
    for way in [Way::Works, Way::Boasts] {
        let agent = OldAgent::start_as(way);
        assert_eq!(home.ok(&["send", "--url", &agent.url, "hello"]), "you said \"hello\"\n", "{way:?}");
        let methods: Vec<Value> = agent.calls.lock().unwrap().iter().map(|(_, call)| call["method"].clone()).collect();
        let expected = match way {
            Way::Works => ["message/send", "tasks/get"],
            _ => ["message/stream", "message/send"],
        };
        assert_eq!(methods, expected, "{way:?}");
        let reply = home.json(&["send", "--stream", "--url", &agent.url, "hello"]);
        assert_eq!(reply.last().unwrap()["status"]["state"], "completed", "{way:?}");
    }
}

#[test]
fn a_message_that_may_have_arrived_is_not_sent_again_to_a_stranger() {
    let home = Home::new();
    let agent = OldAgent::start_as(Way::Breaks);
    let said = failed(&home.run(&["send", "--url", &agent.url, "hello"]), 3);
    assert!(said.contains("not known") && said.contains(&format!("`sb task list --url {}`", agent.url)), "{said}");
    assert_eq!(agent.calls.lock().unwrap().len(), 1);
}
