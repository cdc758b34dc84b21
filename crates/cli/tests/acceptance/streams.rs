//! Streams: what they show, when they end, how they resume, and that nobody disturbs anybody.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    http::{Api, answer, artifact_text, is_terminal, message, reason, state, text, to, to_at_once, with_json},
    rig::{PATIENCE, Rig, TOKEN},
    sse::{Frame, Sse},
};

const STREAM: &str = "/a2a/message:stream";

/// Whether waits of a minute are welcome.
fn is_long_form() -> bool {
    std::env::var_os("SB_LONG").is_some()
}

/// Frames that follow each other without a gap, beginning after `after`.
#[track_caller]
fn check_contiguous(frames: &[Frame], after: u64) {
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    let expected: Vec<u64> = (after + 1..=after + frames.len() as u64).collect();
    assert_eq!(ids, expected, "{frames:#?}");
}

/// Subscribes over every way that takes a cursor.
async fn with_cursor(api: &Api, task: &str, after: u64) -> Vec<Sse> {
    let path = format!("/a2a/tasks/{task}:subscribe");
    let call = format!("/a2a/jsonrpc?afterSequence={after}");
    vec![
        api.subscribe(task, Some(after)).await,
        Sse::open(api.request(Method::GET, &path).header("Last-Event-ID", after.to_string())).await,
        Sse::open(api.request(Method::GET, &format!("{path}?afterSequence={after}"))).await,
        Sse::open(api.request(Method::POST, &format!("{path}?afterSequence={after}"))).await,
        api.rpc_stream(&call, "SubscribeToTask", &json!({"id": task})).await,
    ]
}

#[tokio::test]
async fn s3_50_stream_shows_task_then_updates() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut stream = api.stream(STREAM, &to("stream", "4 chunks, 30 ms apart")).await;
    assert!(stream.header("cache-control").unwrap().contains("no-cache"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    let frames = stream.rest().await;

    assert_eq!(frames[0].kind(), "task");
    let id = frames[0].task_id().to_owned();
    assert!(frames[1..].iter().all(|frame| ["statusUpdate", "artifactUpdate"].contains(&frame.kind())));
    assert!(frames.iter().all(|frame| frame.task_id() == id));
    let (last, before) = frames.split_last().unwrap();
    assert_eq!(last.state(), Some("COMPLETED"));
    assert!(before.iter().all(|frame| !frame.is_end()), "it ends at the end");

    // The chunks add up to what Get shows, in one artifact, begun once.
    let chunks: Vec<&Frame> = frames.iter().filter(|frame| frame.kind() == "artifactUpdate").collect();
    assert!(chunks.len() >= 2, "30 ms apart they are not one: {frames:#?}");
    for (n, chunk) in chunks.iter().enumerate() {
        let update = &chunk.body["artifactUpdate"];
        assert_eq!(update.get("append").and_then(serde_json::Value::as_bool).unwrap_or(false), n > 0, "{update:#}");
        assert_eq!(update["artifact"]["artifactId"], chunks[0].body["artifactUpdate"]["artifact"]["artifactId"]);
        assert_eq!(update["contextId"], frames[0].body["task"]["contextId"]);
    }
    // X-10: the last of them says so, and the status does not say it all again.
    let last_chunks: Vec<bool> = chunks.iter().map(|it| it.body["artifactUpdate"]["lastChunk"] == true).collect();
    assert_eq!(last_chunks.iter().position(|it| *it), Some(chunks.len() - 1), "{frames:#?}");
    assert!(last.body["statusUpdate"]["status"].get("message").is_none(), "{frames:#?}");
    let said: String = chunks.iter().map(|chunk| chunk.artifact_text()).collect();
    let task = api.task(&id).await;
    assert_eq!(artifact_text(&task), said);
    assert_eq!(task["artifacts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn x_32_streams_end_at_input_required_but_not_at_auth_required() {
    let rig = Rig::start().await;
    let api = rig.api();
    let frames = api.stream(STREAM, &to("ask", "what")).await.rest().await;
    assert_eq!(frames.last().unwrap().state(), Some("INPUT_REQUIRED"));
    let asked = frames[0].task_id().to_owned();

    // A subscriber stays through the turns.
    let mut subscriber = api.subscribe(&asked, None).await;
    assert_eq!(subscriber.next().await.unwrap().state(), Some("INPUT_REQUIRED"));
    // X-39: a stream that continues a task starts with the task and has new events only.
    let frames = api.stream(STREAM, &answer(&asked, "that")).await.rest().await;
    assert_eq!(frames[0].kind(), "task");
    assert_eq!(frames[0].task_id(), asked);
    assert!(frames[1..].iter().all(|frame| frame.state() != Some("INPUT_REQUIRED")), "{frames:#?}");
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    assert_eq!(subscriber.rest().await.last().unwrap().state(), Some("COMPLETED"));

    let mut stream = api.stream(STREAM, &to("auth", "let me in")).await;
    let seen = stream.until(|frame| frame.state() == Some("AUTH_REQUIRED")).await;
    api.send(&answer(seen[0].task_id(), "I am in")).await;
    assert_eq!(stream.rest().await.last().unwrap().state(), Some("COMPLETED"));
}

#[tokio::test]
async fn s3_92_x_27_events_are_numbered_from_one_without_gaps() {
    let mut rig = Rig::start().await;
    let api = rig.api();
    let live = api.stream(STREAM, &to("stream", "5 10")).await.rest().await;
    let id = live[0].task_id().to_owned();
    let all = api.subscribe(&id, Some(0)).await.rest().await;
    check_contiguous(&all, 0);
    assert_eq!(all[0].state(), Some("SUBMITTED"));
    // What was seen live is what is replayed, each under its number.
    for frame in &live[1..] {
        assert_eq!(Some(frame), all.iter().find(|kept| kept.id == frame.id));
    }
    let journal = rig.journal().await;
    let tenant = journal.tenants().await.unwrap()[0].id;
    let task = store::TaskId::parse(&id).unwrap();
    let kept = journal.events(tenant, task, 0, 1000).await.unwrap();
    assert_eq!(kept.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=all.len() as u64).collect::<Vec<_>>());

    // A restart continues the numbers of a task that goes on.
    let asked = api.send(&to("ask", "what")).await;
    let asked = text(&asked, "/id").to_owned();
    let mut subscriber = api.subscribe(&asked, Some(0)).await;
    let before = subscriber.until(|frame| frame.state() == Some("INPUT_REQUIRED")).await;
    // The task as of a number has that number.
    let snapshot = api.subscribe(&asked, None).await.next().await.unwrap();
    assert_eq!((snapshot.kind(), snapshot.id), ("task", before.last().unwrap().id));
    rig.kill9();
    rig.restart().await;
    let api = rig.api();
    api.send(&answer(&asked, "that")).await;
    let after = api.subscribe(&asked, Some(0)).await.rest().await;
    assert_eq!(after[..before.len()], before[..]);
    // The answer itself has a number but no frame.
    let gap: Vec<u64> =
        (1..=after.last().unwrap().id).filter(|seq| after.iter().all(|frame| frame.id != *seq)).collect();
    assert_eq!(gap, [before.last().unwrap().id + 1]);
}

#[tokio::test]
async fn s3_93_a_cut_stream_resumes_after_its_cursor() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut stream = api.stream(STREAM, &to("stream", "12 40")).await;
    let seen = stream.until(|frame| frame.id >= 3).await;
    let id = seen[0].task_id().to_owned();
    let cursor = seen.last().unwrap().id;
    drop(stream);

    let mut resumed = Vec::new();
    for stream in with_cursor(&api, &id, cursor).await {
        resumed.push(tokio::spawn(async move {
            let mut stream = stream;
            stream.rest().await
        }));
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
    // What cannot be a cursor: ignored as Last-Event-ID, refused as a parameter.
    let task = text(&api.send(&to_at_once("slow", "20000")).await, "/id").to_owned();
    let path = format!("/a2a/tasks/{task}:subscribe");
    let mut plain = Sse::open(api.request(Method::GET, &path).header("Last-Event-ID", "what")).await;
    assert_eq!(plain.next().await.unwrap().kind(), "task");
    api.get(&format!("{path}?afterSequence=what")).await.error(400);
}

#[tokio::test]
async fn s3_94_resume_after_kill_9() {
    let mut rig = Rig::start().await;
    let mut stream = rig.api().stream(STREAM, &to("stream", "8 60")).await;
    let seen = stream.until(|frame| frame.id >= 4).await;
    let id = seen[0].task_id().to_owned();
    rig.kill9();
    rig.restart().await;

    let api = rig.api();
    let cursor = 3;
    let frames = api.subscribe(&id, Some(cursor)).await.rest().await;
    check_contiguous(&frames, cursor);
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    assert_eq!(frames.iter().filter(|frame| frame.is_end()).count(), 1);
    assert!(frames.iter().any(|frame| frame.state() == Some("WORKING")), "it was interrupted: {frames:#?}");
    // What had been seen is still what happened.
    let all = api.subscribe(&id, Some(0)).await.rest().await;
    for frame in &seen[1..] {
        assert_eq!(Some(frame), all.iter().find(|kept| kept.id == frame.id));
    }
    // The next attempt begins its artifact anew, and nothing is in it twice.
    let whole = api.send(&to("stream", "8 1")).await;
    assert_eq!(artifact_text(&api.task(&id).await), artifact_text(&whole));
    let text_after: String = frames
        .iter()
        .rev()
        .take_while(|frame| frame.state() != Some("WORKING"))
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .map(Frame::artifact_text)
        .collect();
    assert_eq!(text_after, artifact_text(&whole));
}

#[tokio::test]
async fn s3_95_resume_when_the_task_has_ended() {
    let mut rig = Rig::start().await;
    let api = rig.api();
    let all = api.stream(STREAM, &to("stream", "4 10")).await.rest().await;
    let id = all[0].task_id().to_owned();
    let last = all.last().unwrap().id;
    for restarted in [false, true] {
        if restarted {
            rig.kill9();
            rig.restart().await;
        }
        let api = rig.api();
        for mut stream in with_cursor(&api, &id, last - 2).await {
            let frames = stream.rest().await;
            check_contiguous(&frames, last - 2);
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[1].state(), Some("COMPLETED"));
        }
        // X-39: at the last sequence, an empty stream.
        for mut stream in with_cursor(&api, &id, last).await {
            assert_eq!(stream.rest().await, []);
        }
        // Without a cursor it is over.
        let error = api.post_empty(&format!("/a2a/tasks/{id}:subscribe")).await.error(400);
        assert_eq!(reason(&error), "UNSUPPORTED_OPERATION");
    }
}

#[tokio::test]
async fn s3_97_streams_do_not_disturb_each_other() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut sender = api.stream(STREAM, &to("stream", "8 40")).await;
    let first = sender.next().await.unwrap();
    let id = first.task_id().to_owned();
    let mut second = api.subscribe(&id, Some(0)).await;
    let mut third = api.subscribe(&id, Some(0)).await;
    second.next().await.unwrap();
    // The one that started the task goes away, and so does one of the others.
    drop(sender);
    drop(second);
    let frames = third.rest().await;
    check_contiguous(&frames, 0);
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    assert_eq!(state(&api.task(&id).await), "COMPLETED");
}

#[tokio::test]
async fn a_dropped_blocking_send_does_not_stop_its_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    let mut request = to("slow", "1000");
    request["message"]["contextId"] = json!("dropped");
    let call = super::http::with_json(api.request(Method::POST, "/a2a/message:send"), &request);
    let given_up = call.timeout(Duration::from_millis(500)).send().await;
    assert!(given_up.is_err());
    let page = api.get("/a2a/tasks?contextId=dropped").await.ok();
    let done = api.task_when(text(&page, "/tasks/0/id"), is_terminal).await;
    assert_eq!(state(&done), "COMPLETED");
}

#[tokio::test]
async fn a_stalled_reader_does_not_slow_the_task() {
    let rig = Rig::start().await;
    let api = rig.api();
    // Large enough that no socket buffer takes it: the request, the artifact and the reply each carry it.
    let large = "x".repeat(4 << 20);
    let address = api.base().strip_prefix("http://").unwrap().to_owned();
    let mut stalled = Vec::new();
    for n in 0..4 {
        let request = json!({"tenant": "echo", "message": {
            "messageId": "large", "contextId": format!("stalled-{n}"), "role": "ROLE_USER", "parts": [{"text": large}],
        }});
        let body = request.to_string();
        let head = format!(
            "POST {STREAM} HTTP/1.1\r\nhost: {address}\r\na2a-version: 1.0\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body.as_bytes()).await.unwrap();
        // It has begun; not a byte more is read.
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        stalled.push(socket);
    }
    for n in 0..4 {
        let begun = Instant::now();
        loop {
            let page = api.get(&format!("/a2a/tasks?contextId=stalled-{n}&historyLength=0")).await.ok();
            if page["tasks"][0]["status"]["state"] == "TASK_STATE_COMPLETED" {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{page:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // Everyone else is served as ever.
    assert_eq!(state(&api.send(&to("echo", "hello")).await), "COMPLETED");
    if !is_long_form() {
        return;
    }
    // After a bound the server gives them up: what is left of the stream never comes.
    tokio::time::sleep(Duration::from_secs(75)).await;
    for mut socket in stalled {
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is closed");
        assert!(rest.len() < large.len() * 3, "{} bytes came", rest.len());
    }
}

#[tokio::test]
async fn a_cursor_beyond_the_log_counts_as_none() {
    let rig = Rig::start().await;
    let api = rig.api();
    let id = text(&api.send(&to_at_once("slow", "700")).await, "/id").to_owned();
    let frames = api.subscribe(&id, Some(1000)).await.rest().await;
    assert_eq!(frames[0].kind(), "task", "it is not of this task: {frames:#?}");
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));
    let path = format!("/a2a/tasks/{id}:subscribe?afterSequence=1000");
    assert_eq!(reason(&api.get(&path).await.error(400)), "UNSUPPORTED_OPERATION");
}

#[tokio::test]
async fn x_27_quiet_streams_are_kept_alive() {
    let rig = Rig::start().await;
    let api = rig.api();
    let id = text(&api.send(&to_at_once("slow", "40000")).await, "/id").to_owned();
    let mut response = api.request(Method::GET, &format!("/a2a/tasks/{id}:subscribe")).send().await.unwrap();
    let begun = Instant::now();
    let mut seen = String::new();
    while !seen.contains("\n\n:") && begun.elapsed() < PATIENCE {
        let chunk = response.chunk().await.unwrap().expect("the stream stays open");
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    let (_, comment) = seen.rsplit_once("\n\n:").unwrap_or_else(|| panic!("no comment in {seen}"));
    assert!(!comment.contains("id:"), "a comment has no id: {seen}");
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_resume_cursor_is_an_extension_and_is_echoed() {
    const CURSOR: &str = "urn:switchboard:a2a:resume-cursor:v1";
    let rig = Rig::start().await;
    let api = rig.api();
    let card = api.get("/.well-known/agent-card.json").await.ok();
    let declared = super::http::array(&card, "/capabilities/extensions");
    assert!(declared.iter().any(|extension| extension["uri"] == CURSOR && extension["required"] != true), "{card:#}");

    let wanted = format!("urn:example:unknown, {CURSOR}");
    for header in ["A2A-Extensions", "X-A2A-Extensions"] {
        let request = api.request(Method::POST, "/a2a/message:send").header(header, &wanted);
        let reply = api.call(super::http::with_json(request, &json!({"message": message("hello")}))).await;
        reply.task();
        assert_eq!(reply.header("a2a-extensions"), Some(CURSOR), "{}", reply.shown());
        let request = api.request(Method::POST, STREAM).header(header, &wanted);
        let stream = Sse::open(super::http::with_json(request, &json!({"message": message("hello")}))).await;
        assert_eq!(stream.header("a2a-extensions"), Some(CURSOR));
    }
    let reply = api.post("/a2a/message:send", &json!({"message": message("hello")})).await;
    assert!(reply.header("a2a-extensions").is_none(), "nobody asked: {}", reply.shown());
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
#[track_caller]
fn closed(updates: &[Value]) -> Vec<String> {
    let mut closed: Vec<String> = Vec::new();
    for update in updates {
        let id = text(update, "/artifact/artifactId").to_owned();
        assert!(!closed.contains(&id), "a chunk behind the last one: {update:#}");
        let parts = update["artifact"]["parts"].as_array().map_or(0, Vec::len);
        assert_ne!(parts, 0, "an artifact without parts: {update:#}");
        if update["lastChunk"] == true {
            closed.push(id);
        }
    }
    closed.sort();
    closed
}

#[tokio::test]
async fn x_10_the_last_chunk_of_data_and_files_says_so_on_every_surface_live_and_on_replay() {
    let rig = Rig::start_with_agents("", &[("makes.toml", MAKES)], None).await;
    let api = rig.api();
    let updates = |frames: &[Frame]| -> Vec<Value> {
        frames
            .iter()
            .filter(|frame| frame.kind() == "artifactUpdate")
            .map(|frame| frame.body["artifactUpdate"].clone())
            .collect()
    };
    let live = api.stream(STREAM, &to("makes", "go")).await.rest().await;
    let id = live[0].task_id().to_owned();
    let expected = [format!("{id}-text-2"), "facts".to_owned(), "page".to_owned()];
    assert_eq!(closed(&updates(&live)), expected);
    for mut replay in with_cursor(&api, &id, 0).await {
        assert_eq!(closed(&updates(&replay.rest().await)), expected);
    }
    let task = api.task(&id).await;
    let parts: Vec<usize> =
        task["artifacts"].as_array().unwrap().iter().map(|made| made["parts"].as_array().unwrap().len()).collect();
    assert_eq!(parts, [2, 1, 1], "what says that nothing follows adds nothing: {task:#}");

    for path in ["/a2a/agents/makes/jsonrpc", "/v1/a2a/agents/makes"] {
        let said = json!({"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "go"}]});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": said}});
        let request = with_json(api.bare(Method::POST, path).bearer_auth(TOKEN), &call);
        let body = request.send().await.unwrap().text().await.unwrap();
        let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
        let results = data.map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].take());
        let updates: Vec<Value> = results.filter(|result| result["kind"] == "artifact-update").collect();
        let closed = closed(&updates);
        assert_eq!((closed.len(), &closed[1..]), (3, &expected[1..]), "{path}: {updates:#?}");
    }

    let grpc = super::grpc::Grpc::new(&rig.server.url);
    for service in [super::grpc::A2A, super::grpc::GATEWAY] {
        let streamed = grpc.call(service, "SendStreamingMessage", &to("makes", "go")).await;
        let updates: Vec<Value> =
            streamed.messages.iter().filter_map(|message| message.get("artifactUpdate").cloned()).collect();
        assert_eq!(closed(&updates).len(), 3, "{service}: {updates:#?}");
    }
}
