//! Streams: what they show, when they end, how they resume, and that nobody disturbs anybody.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, array, is_terminal, reason, state, text, with_json},
    player::{play, play_on},
    raw,
    scenario::{
        Binding, CURRENT, EVERY, UNTYPED, answer, begin, cancel, get, join, list, message, resume, said, send, stream,
        subscribe,
    },
    server::{Setup, TestServer},
    sse::{Frame, Sse},
};

const STREAM: &str = "/a2a/message:stream";

/// The updates of artifacts among events.
fn updates(events: &Value) -> Vec<&Value> {
    events.as_array().unwrap().iter().filter_map(|event| event.get("artifactUpdate")).collect()
}

fn said_by(updates: &[&Value]) -> String {
    updates.iter().filter_map(|update| update["artifact"]["parts"][0]["text"].as_str()).collect()
}

#[tokio::test]
async fn s3_50_x_10_stream_shows_task_then_updates() {
    let whole = "chunk 1 of 4\nchunk 2 of 4\nchunk 3 of 4\nchunk 4 of 4\n";
    let check = move |events: &Value| {
        let list = events.as_array().unwrap();
        let is_update = |event: &Value| event.get("statusUpdate").is_some() || event.get("artifactUpdate").is_some();
        assert!(list[1..].iter().all(is_update), "{events:#}");
        let task = &list[0]["task"];
        for update in list[1..].iter().filter_map(|event| event.as_object()?.values().next()) {
            assert_eq!((&update["taskId"], &update["contextId"]), (&task["id"], &task["contextId"]), "{update:#}");
        }
        let ends = list.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED");
        assert_eq!(ends.count(), 1, "it ends at the end: {events:#}");
        // The chunks add up to what Get shows, in one artifact, begun once.
        let chunks = updates(events);
        assert!(chunks.len() >= 2, "30 ms apart they are not one: {events:#}");
        for (n, chunk) in chunks.iter().enumerate() {
            assert_eq!(chunk["append"].as_bool().unwrap_or(false), n > 0, "{chunk:#}");
            assert_eq!(chunk["artifact"]["artifactId"], chunks[0]["artifact"]["artifactId"]);
            // X-10: the last of them says so, and the status does not say it all again.
            assert_eq!(chunk["lastChunk"].as_bool().unwrap_or(false), n + 1 == chunks.len(), "{events:#}");
        }
        assert_eq!(said_by(&chunks), whole);
    };
    let steps = [
        stream("stream", "4 chunks, 30 ms apart")
            .has("/0/task/id")
            .state("COMPLETED")
            .check(check)
            .lacks("/-1/statusUpdate/status/message"),
        get().is("/artifacts/0/parts", json!([{"text": whole}])).count("/artifacts", 1),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn x_32_streams_end_at_input_required_but_not_at_auth_required() {
    let never_again = |events: &Value| {
        let list = events.as_array().unwrap();
        let asked = |event: &Value| event["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED";
        assert!(!list[1..].iter().any(asked), "{events:#}");
    };
    let there = list(json!({"status": "TASK_STATE_AUTH_REQUIRED", "historyLength": 0})).until("/totalSize", 1).varies();
    let steps = [
        stream("ask", "what").has("/0/task/id").state("INPUT_REQUIRED"),
        // A subscriber stays through the turns.
        subscribe().aside("subscriber"),
        // X-39: a stream that continues a task starts with the task, which may have ended by then, and has new events only.
        answer("that").streamed().is("/0/task/id", "$task").state("COMPLETED").check(never_again).varies(),
        join("subscriber").is("/0/task/status/state", "TASK_STATE_INPUT_REQUIRED").state("COMPLETED"),
        stream("auth", "let me in").aside("stream"),
        there.keep("task", "/tasks/0/id"),
        answer("I am in").state("COMPLETED"),
        join("stream").is("/0/task/id", "$task").state("COMPLETED"),
    ];
    play(&[Binding::JsonRpc, Binding::Rest, Binding::V03], steps).await;
}

#[tokio::test]
async fn s3_96_a_subscription_after_everything_and_after_nothing() {
    let all = |events: &Value| assert!(events.as_array().unwrap().len() >= 4, "{events:#}");
    let steps = [
        stream("stream", "2 chunks, 30 ms apart").state("COMPLETED"),
        resume("0").check(all).state("COMPLETED").is("/0/task/status/state", "TASK_STATE_SUBMITTED"),
        resume("2").state("COMPLETED").lacks("/0/task"),
        subscribe().refused("UNSUPPORTED_OPERATION"),
        resume("x").wrong("afterSequence"),
    ];
    play(&EVERY, steps).await;
}

/// Subscribes over every way that takes a cursor.
async fn with_cursor(api: &Api, task: &str, after: u64) -> Vec<Sse> {
    let path = format!("/a2a/tasks/{task}:subscribe");
    let call = format!("/a2a/jsonrpc?afterSequence={after}");
    vec![
        api.subscribe(task, Some(after)).await,
        Sse::open(raw::request(api, &format!("GET {path}\nLast-Event-ID: {after}"))).await,
        Sse::open(api.request(Method::GET, &format!("{path}?afterSequence={after}"))).await,
        Sse::open(api.request(Method::POST, &format!("{path}?afterSequence={after}"))).await,
        Sse::open(raw::request(api, &format!("GET {path}?since_seq={after}\nLast-Event-ID: 0"))).await,
        Sse::open(api.request(Method::GET, &format!("{path}?after_sequence={after}"))).await,
        api.rpc_stream(&call, "SubscribeToTask", &json!({"id": task})).await,
    ]
}

/// Events that follow each other without a gap, beginning after `after`.
#[track_caller]
fn check_contiguous(frames: &[Frame], after: u64) {
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    assert_eq!(ids, (after + 1..=after + frames.len() as u64).collect::<Vec<_>>(), "{frames:#?}");
}

#[tokio::test]
async fn s3_93_x_26_a_cut_stream_resumes_after_its_cursor() {
    let server = TestServer::start().await;
    let api = server.api();
    let mut stream = api.stream(STREAM, &message("stream", said("12 40"))).await;
    let seen = stream.until(|frame| frame.id >= 3).await;
    let id = seen[0].task_id().to_owned();
    let cursor = seen.last().unwrap().id;
    drop(stream);

    let mut resumed = Vec::new();
    for mut stream in with_cursor(&api, &id, cursor).await {
        resumed.push(tokio::spawn(async move { stream.rest().await }));
    }
    let all = api.subscribe(&id, Some(0)).await.rest().await;
    check_contiguous(&all, 0);
    assert!(!all.iter().skip(1).any(|frame| frame.kind() == "task"), "a cursor gets events, not snapshots");
    for frames in resumed {
        let frames = frames.await.unwrap();
        check_contiguous(&frames, cursor);
        assert_eq!(frames[..], all[usize::try_from(cursor).unwrap()..]);
        assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    }
    // X-39: at the last sequence, an empty stream.
    for mut stream in with_cursor(&api, &id, all.last().unwrap().id).await {
        assert_eq!(stream.rest().await, []);
    }
    let foreign = raw::request(&api, &format!("GET /a2a/tasks/{id}:subscribe\nLast-Event-ID: not-ours"));
    assert_eq!(reason(&api.call(foreign).await.error(400)), "UNSUPPORTED_OPERATION");
    // What cannot be a cursor: ignored as Last-Event-ID, refused as a parameter.
    let task = api.send(&begin("slow", "20000").request).await;
    let path = format!("/a2a/tasks/{}:subscribe", text(&task, "/id"));
    let mut plain = Sse::open(raw::request(&api, &format!("GET {path}\nLast-Event-ID: what"))).await;
    assert_eq!(plain.next().await.unwrap().kind(), "task");
    api.get(&format!("{path}?afterSequence=what")).await.error(400);
    // X-26, X-41: a POST with and without a body.
    let mut with_body = Sse::open(with_json(api.request(Method::POST, &path), &json!({}))).await;
    assert_eq!(with_body.next().await.unwrap().kind(), "task");
    assert_eq!(api.subscribe(text(&task, "/id"), None).await.next().await.unwrap().kind(), "task");
}

#[tokio::test]
async fn s3_97_streams_do_not_disturb_each_other() {
    let server = TestServer::start().await;
    let api = server.api();
    let mut sender = api.stream(STREAM, &message("stream", said("8 40"))).await;
    let first = sender.next().await.unwrap();
    let id = first.task_id().to_owned();
    let mut second = api.subscribe(&id, Some(0)).await;
    let mut third = api.subscribe(&id, Some(0)).await;
    second.next().await.unwrap();
    // The one that started the task goes away, and so does one of the others.
    drop((sender, second));
    let frames = third.rest().await;
    check_contiguous(&frames, 0);
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    assert_eq!(state(&api.task(&id).await), "COMPLETED");
    // So it is over gRPC.
    let mut stream =
        server.grpc().open(super::grpc::A2A, "SendStreamingMessage", &message("stream", said("5 50"))).await;
    let id = text(&stream.next().await.unwrap(), "/task/id").to_owned();
    drop(stream);
    assert_eq!(state(&api.task_when(&id, is_terminal).await), "COMPLETED");
}

#[tokio::test]
async fn a_dropped_blocking_send_does_not_stop_its_task() {
    let server = TestServer::start().await;
    let api = server.api();
    let mut request = message("slow", said("1000"));
    request["message"]["contextId"] = json!("dropped");
    let call = with_json(api.request(Method::POST, "/a2a/message:send"), &request);
    assert!(call.timeout(Duration::from_millis(500)).send().await.is_err());
    let page = api.get("/a2a/tasks?contextId=dropped").await.ok();
    let done = api.task_when(text(&page, "/tasks/0/id"), is_terminal).await;
    assert_eq!(state(&done), "COMPLETED");
}

#[tokio::test]
async fn a_cursor_beyond_the_log_counts_as_none() {
    let steps = [
        begin("slow", "700").varies(),
        resume("1000").is("/0/task/id", "$task").state("COMPLETED"),
        resume("1000").refused("UNSUPPORTED_OPERATION"),
    ];
    play(&CURRENT, steps).await;
}

#[tokio::test]
async fn x_27_quiet_streams_are_kept_alive() {
    let server = Setup::new().edge(|edge| edge.keep_alive = Duration::from_millis(300)).start().await;
    let api = server.api();
    let id = text(&api.send(&begin("slow", "40000").request).await, "/id").to_owned();
    let begun = tokio::time::Instant::now();
    let mut response = api.request(Method::GET, &format!("/a2a/tasks/{id}:subscribe")).send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("\n\n:") && begun.elapsed() < super::PATIENCE {
        let chunk = response.chunk().await.unwrap().expect("the stream stays open");
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    let (_, comment) = seen.rsplit_once("\n\n:").unwrap_or_else(|| panic!("no comment in {seen}"));
    assert!(!comment.contains("id:"), "a comment has no id: {seen}");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(::server::Options::new(([127, 0, 0, 1], 0).into()).keep_alive, Duration::from_secs(15));
}

const CURSOR: &str = "urn:switchboard:a2a:resume-cursor:v1";

#[tokio::test]
async fn the_resume_cursor_is_an_extension_and_is_echoed() {
    let server = TestServer::start().await;
    let api = server.api();
    let card = api.get("/.well-known/agent-card.json").await.ok();
    let declared = array(&card, "/capabilities/extensions");
    assert!(declared.iter().any(|extension| extension["uri"] == CURSOR && extension["required"] != true), "{card:#}");
    let body = json!({"message": said("hello")}).to_string();
    for header in ["A2A-Extensions", "X-A2A-Extensions"] {
        for (path, version, echoed) in
            [("message:send", "1.0", "a2a-extensions"), ("message:stream", "1.0", "a2a-extensions")]
        {
            let head = format!(
                "POST /a2a/{path}\n{header}: urn:example:unknown, {CURSOR}\nContent-Type: application/json\nA2A-Version: {version}"
            );
            let reply = raw::call(&api, &head, body.clone()).await;
            assert_eq!((reply.status, reply.header(echoed)), (200, Some(CURSOR)), "{}", reply.shown());
        }
    }
    let plain = api.post("/a2a/message:send", &json!({"message": said("hello")})).await;
    assert!(plain.header("a2a-extensions").is_none(), "nobody asked: {}", plain.shown());
}

#[tokio::test]
async fn x_39_a_cursor_of_grpc_replays_what_is_missing_and_nothing_else() {
    let server = TestServer::start().await;
    let plain = server.grpc();
    let grpc = plain.with("a2a-extensions", CURSOR);
    for service in [super::grpc::A2A, super::grpc::GATEWAY] {
        let streamed =
            grpc.call(service, "SendStreamingMessage", &message("stream", said("4 chunks, 40 ms apart"))).await;
        assert_eq!(streamed.headers["a2a-extensions"], CURSOR);
        let number = |event: &Value| {
            let event = event.as_object().unwrap().values().next().unwrap();
            event["metadata"][format!("{CURSOR}/sequence")].as_f64().unwrap() as u64
        };
        let numbers: Vec<u64> = streamed.messages.iter().map(number).collect();
        assert!(numbers.is_sorted() && numbers.len() >= 3, "{numbers:?}");
        let id = json!({"id": text(&streamed.messages[0], "/task/id")});
        for (n, after) in numbers.iter().enumerate() {
            let resumed = grpc.with("after_sequence", &after.to_string()).call(service, "SubscribeToTask", &id).await;
            assert_eq!(resumed.code(), Some(0));
            assert_eq!(resumed.messages, streamed.messages[n + 1..], "after {after}");
        }
        let all = grpc.with("after_sequence", "0").call(service, "SubscribeToTask", &id).await;
        assert_eq!(all.messages.len(), streamed.messages.len());
        let ended = grpc.call(service, "SubscribeToTask", &id).await;
        assert_eq!(reason(&ended.error(9)), "UNSUPPORTED_OPERATION", "without a cursor there is nothing to follow");
        // Who does not ask for numbers gets none.
        let streamed = plain.call(service, "SendStreamingMessage", &message("echo", said("plain"))).await;
        assert!(streamed.messages.iter().all(|event| !event.to_string().contains("sequence")), "{streamed:?}");
        assert!(!streamed.headers.contains_key("a2a-extensions"));
    }
    let task =
        text(&grpc.ok(super::grpc::A2A, "SendMessage", &message("stream", said("2 10"))).await, "/task/id").to_owned();
    let beside = json!({"id": task, "afterSequence": 0});
    let all = grpc.call(super::grpc::GATEWAY, "SubscribeToTask", &beside).await;
    assert!(all.messages[0]["task"].is_object() && all.messages.len() > 2, "{all:?}");
}

#[tokio::test]
async fn a_reader_that_stalls_holds_nobody_up() {
    let server = TestServer::start().await;
    let (grpc, many) = (server.grpc(), message("stream", said("400 chunks, 2 ms apart")));
    let stalled = grpc.open(super::grpc::A2A, "SendStreamingMessage", &many).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Over the same connection.
    let quick = grpc.ok(super::grpc::A2A, "SendMessage", &message("echo", said("quick"))).await;
    assert_eq!(state(&quick["task"]), "COMPLETED");
    let whole = stalled.finish().await;
    assert_eq!(state(&whole.messages.last().unwrap()["statusUpdate"]), "COMPLETED");
}

/// A program that makes data and a file, each said whole and long before the next.
const MAKES: &str = r#"
kind = "command"
[command]
argv = ["sh", "-c", '''cat >/dev/null
printf '{"artifactUpdate":{"artifact":{"artifactId":"facts","parts":[{"data":{"n":1}}]}}}\n'
sleep 0.3
printf '{"artifactUpdate":{"artifact":{"artifactId":"page","parts":[{"raw":"aGVsbG8=","filename":"p.txt"}]}}}\n'
printf '{"artifactUpdate":{"artifact":{"parts":[{"text":"done"}]}}}\n'
sleep 0.3
printf '{"artifactUpdate":{"artifact":{"artifactId":"facts","parts":[{"data":{"n":2}}]},"append":true}}\n'
sleep 0.3''']
output = "events"
"#;

/// Which artifacts have said that their last chunk is that, each once and with nothing behind it.
fn closed(events: &Value) -> Vec<String> {
    let mut closed: Vec<String> = Vec::new();
    for update in updates(events) {
        let id = text(update, "/artifact/artifactId").to_owned();
        assert!(!closed.contains(&id), "a chunk behind the last one: {update:#}");
        assert_ne!(array(update, "/artifact/parts").len(), 0, "an artifact without parts: {update:#}");
        if update["lastChunk"] == true {
            closed.push(id);
        }
    }
    closed.sort();
    closed
}

#[tokio::test]
async fn x_10_the_last_chunk_of_data_and_files_says_so_on_every_surface_live_and_on_replay() {
    let server = Setup::new().file("makes.toml", MAKES).start().await;
    // In Arbiter's dialect the text is the first artifact.
    let whole = |events: &Value, text: &str| {
        let closed = closed(events);
        assert_eq!((closed.len(), &closed[1..]), (3, &["facts".to_owned(), "page".to_owned()][..]), "{events:#}");
        assert!(closed[0].ends_with(text), "{closed:?}");
    };
    let current = move |events: &Value| whole(events, "-text-2");
    let parts = |task: &Value| {
        let parts: Vec<usize> = array(task, "/artifacts").iter().map(|made| array(made, "/parts").len()).collect();
        assert_eq!(parts, [2, 1, 1], "what says that nothing follows adds nothing: {task:#}");
    };
    let steps = [stream("makes", "go").check(current), resume("0").check(current), get().check(parts)];
    play_on(&server, &EVERY, steps).await;
    let said = json!({"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "go"}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": said}});
    let head = "POST /v1/a2a/agents/makes\nA2A-Version:\nContent-Type: application/json";
    let body = String::from_utf8(raw::call(&server.api(), head, call.to_string()).await.body).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let results = data.map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].take());
    let updates = results.filter(|result| result["kind"] == "artifact-update");
    whole(&updates.map(|update| json!({"artifactUpdate": update})).collect(), "-text-0");
}

#[tokio::test]
async fn an_error_before_the_stream_is_no_stream_unless_events_are_read() {
    let server = TestServer::start().await;
    let bad = |agent| stream(agent, "x").and(json!({"message": {"parts": []}}));
    let steps = [bad("echo").wrong("message.parts"), subscribe().and(json!({"id": "nope"})).refused("TASK_NOT_FOUND")];
    play_on(&server, &EVERY, steps).await;
    // Several steps of one stream, in one stream.
    let steps = [
        begin("slow", "60000").varies(),
        send("echo", "x").keep("task", "/task/id"),
        cancel().refused("TASK_NOT_CANCELABLE"),
    ];
    play_on(&server, &UNTYPED, steps).await;
}
