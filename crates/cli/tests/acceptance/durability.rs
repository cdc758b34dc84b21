//! What survives: kill -9, SIGTERM, and a second process on the same journal.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{
    http::{answer, artifact_text, is_terminal, state, text, to, to_at_once},
    rig::Rig,
};

#[tokio::test]
async fn s0_54_tasks_survive_kill_9() {
    let mut rig = Rig::start().await;
    let api = rig.api();
    let echoed = api.send(&to("echo", "hello")).await;
    let asked = api.send(&to("ask", "what")).await;
    let failed = api.send(&to("fail", "please")).await;
    let running = api.send(&to_at_once("slow", "300")).await;
    rig.kill9();
    rig.restart().await;

    let api = rig.api();
    for task in [&echoed, &asked, &failed] {
        assert_eq!(&api.task(text(task, "/id")).await, task);
    }
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 4);
    // What was acknowledged and not yet done is done now.
    let done = api.task_when(text(&running, "/id"), is_terminal).await;
    assert_eq!(state(&done), "COMPLETED");
    // What waited for its caller still does.
    let answered = api.send(&answer(text(&asked, "/id"), "that")).await;
    assert_eq!((state(&answered), &answered["id"]), ("COMPLETED", &asked["id"]));
}

#[tokio::test]
async fn s0_54_nothing_acknowledged_is_lost_under_load() {
    let mut rig = Rig::start().await;
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8 {
        let api = rig.api();
        senders.spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let request = to_at_once("stream", &format!("3 {}", [0, 40, 200][(sender + n) % 3]));
                let call = super::http::with_json(api.request(reqwest::Method::POST, "/a2a/message:send"), &request);
                // The server dies in the middle of this; from then on nothing is acknowledged.
                let Ok(response) = call.send().await else { break };
                let Ok(body) = response.bytes().await else { break };
                let reply: serde_json::Value = serde_json::from_slice(&body).unwrap();
                acknowledged.push(text(&reply, "/task/id").to_owned());
            }
            acknowledged
        });
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    rig.kill9();
    let acknowledged: Vec<String> = senders.join_all().await.concat();
    assert!(!acknowledged.is_empty());
    rig.restart().await;
    let api = rig.api();
    let mut interrupted = 0;
    for id in &acknowledged {
        let task = api.task_when(id, is_terminal).await;
        assert_eq!(state(&task), "COMPLETED", "{task:#}");
        let events = api.subscribe(id, Some(0)).await.rest().await;
        let ids: Vec<u64> = events.iter().map(|frame| frame.id).collect();
        assert_eq!(ids, (1..=events.len() as u64).collect::<Vec<_>>());
        assert_eq!(events.iter().filter(|frame| frame.is_end()).count(), 1);
        let begun = events.iter().filter(|frame| frame.state() == Some("WORKING")).count();
        interrupted += usize::from(begun > 1);
    }
    println!("{} tasks were acknowledged, {interrupted} were in the middle of something", acknowledged.len());
    assert!(interrupted > 0, "it was killed between two tasks: nothing is proven");
}

#[tokio::test]
async fn sigterm_ends_in_order_and_streams_resume() {
    let mut rig = Rig::start().await;
    let api = rig.api();
    let id = text(&api.send(&to_at_once("slow", "1500")).await, "/id").to_owned();
    let mut stream = api.subscribe(&id, Some(0)).await;
    let mut seen = stream.until(|frame| frame.state() == Some("WORKING")).await;
    rig.server.signal("TERM");

    // Not ready: it says so, or it takes no more connections.
    let begun = Instant::now();
    loop {
        match api.bare(reqwest::Method::GET, "/readyz").send().await {
            Ok(response) if response.status() == 200 => {}
            Ok(response) => {
                assert_eq!(response.status(), 503);
                break;
            }
            Err(_) => break,
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "still ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The stream ends in order: with whole events and not with an error.
    seen.extend(stream.rest().await);
    assert!(!seen.last().unwrap().is_end(), "it ends before its task does");
    let status = rig.server.ended().await;
    assert_eq!(status.code(), Some(0), "{status:?}");

    rig.restart().await;
    let cursor = seen.last().unwrap().id;
    let rest = rig.api().subscribe(&id, Some(cursor)).await.rest().await;
    let all: Vec<u64> = seen.iter().chain(&rest).map(|frame| frame.id).collect();
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!(rest.last().unwrap().state(), Some("COMPLETED"));
}

#[tokio::test]
async fn sigterm_without_work_is_quick() {
    let mut rig = Rig::start().await;
    rig.api().send(&to("echo", "hello")).await;
    let begun = Instant::now();
    rig.server.signal("TERM");
    assert_eq!(rig.server.ended().await.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn s3_98_a_second_instance_sees_everything() {
    let mut rig = Rig::start().await;
    let second = rig.second().await;
    let (a, b) = (rig.api(), second.api());

    let mut on_a = a.stream("/a2a/message:stream", &to("stream", "10 60")).await;
    let id = on_a.next().await.unwrap().task_id().to_owned();
    let on_b = b.subscribe(&id, Some(0)).await;
    let reader = tokio::spawn(async move {
        let mut on_b = on_b;
        (on_b.rest().await, Instant::now())
    });
    on_a.rest().await;
    let ended_on_a = Instant::now();
    let (frames, ended_on_b) = reader.await.unwrap();
    let late = ended_on_b.saturating_duration_since(ended_on_a);
    assert!(late < Duration::from_secs(2), "{late:?}");
    assert_eq!(frames, a.subscribe(&id, Some(0)).await.rest().await, "the same events in the same order");
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"));

    // Reading, listing, continuing and cancelling work from either side.
    assert_eq!(b.task(&id).await, a.task(&id).await);
    let asked = a.send(&to("ask", "what")).await;
    let done = b.send(&answer(text(&asked, "/id"), "that")).await;
    assert_eq!(state(&done), "COMPLETED");
    assert_eq!(a.task(text(&asked, "/id")).await, done);
    let running = a.send(&to_at_once("slow", "20000")).await;
    let canceled = b.post_empty(&format!("/a2a/tasks/{}:cancel", text(&running, "/id"))).await.ok();
    assert_eq!(state(&canceled), "CANCELED");
    assert_eq!(state(&a.task(text(&running, "/id")).await), "CANCELED");
    assert_eq!(b.get("/a2a/tasks").await.ok(), a.get("/a2a/tasks").await.ok());
}

#[tokio::test]
async fn s3_98_a_second_instance_takes_over_from_a_dead_one() {
    let mut rig = Rig::start().await;
    let second = rig.second().await;
    let id = text(&rig.api().send(&to_at_once("stream", "6 100")).await, "/id").to_owned();
    let b = second.api();
    let mut stream = b.subscribe(&id, Some(0)).await;
    stream.until(|frame| frame.kind() == "artifactUpdate").await;
    rig.kill9();
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().state(), Some("COMPLETED"));
    let whole = b.send(&json!({"tenant": "stream", "message": super::http::message("6 1")})).await;
    assert_eq!(artifact_text(&b.task(&id).await), artifact_text(&whole));
}
