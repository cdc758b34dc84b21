//! Streams across crashes and restarts, and readers that stop reading.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    http::{Api, answer, artifact_text, reason, state, text, to},
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
        // at the last sequence, an empty stream.
        for mut stream in with_cursor(&api, &id, last).await {
            assert_eq!(stream.rest().await, []);
        }
        // Without a cursor it is over.
        let error = api.post_empty(&format!("/a2a/tasks/{id}:subscribe")).await.error(400);
        assert_eq!(reason(&error), "UNSUPPORTED_OPERATION");
    }
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
