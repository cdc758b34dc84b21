//! Streams that do not end, that end twice, that are somebody else's, and that are no streams.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Rig, SOON};
use crate::harness::{
    http::{artifact_text, is_terminal, message, state, text},
    remote::{Answer, Step, card_03, task_03},
};

fn streaming(url: &str) -> Value {
    let mut card = card_03(url);
    card["capabilities"]["streaming"] = json!(true);
    card
}

async fn streaming_rig(answer: Answer) -> Rig {
    let rig = Rig::start(streaming).await;
    rig.remote.says("message/stream", answer);
    rig.remote.says("message/send", Answer::Refused(-32603, "only by stream"));
    rig.remote.says("tasks/get", Answer::Refused(-32001, "Task not found"));
    rig.remote.says("tasks/resubscribe", Answer::Refused(-32001, "Task not found"));
    rig
}

fn begin() -> Step {
    Step::Event(task_03("rt-1", "rc-1", "working", ""))
}

fn status(task: &str, state: &str, is_final: bool) -> Step {
    Step::Event(
        json!({"kind": "status-update", "taskId": task, "contextId": "rc-1", "status": {"state": state}, "final": is_final}),
    )
}

fn piece(task: &str, words: &str, append: bool) -> Value {
    let artifact = json!({"artifactId": "a-1", "parts": [{"kind": "text", "text": words}]});
    json!({"kind": "artifact-update", "taskId": task, "contextId": "rc-1", "artifact": artifact, "append": append, "lastChunk": false})
}

fn chunk(task: &str, words: &str) -> Step {
    Step::Event(piece(task, words, false))
}

impl Rig {
    /// The stream behaves again, and so does everything else.
    async fn streams_again(&self, what: &str) {
        let whole = [begin(), chunk("rt-1", "better"), status("rt-1", "completed", true)];
        self.remote.says("message/stream", Answer::Stream(whole.to_vec()));
        assert_eq!(self.caller.asks("bad", "work").await["response"], "better", "{what}");
        self.server_lives(what).await;
    }
}

#[tokio::test]
async fn an_event_without_an_end_is_read_as_far_as_the_cap() {
    for (what, first) in [("a line", "data: {\"x\":\""), ("a comment", ": "), ("a name", "event: "), ("no field", "")] {
        let endless = vec![Step::Bytes(first.into()), Step::Forever(vec![b'x'; 64 << 10], Duration::ZERO)];
        let rig = streaming_rig(Answer::Stream(endless)).await;
        rig.task_fails(what).await;
        rig.streams_again(what).await;
    }
    let lines = Step::Forever(b"data: x\n".repeat(8 << 10), Duration::ZERO);
    let rig = streaming_rig(Answer::Stream(vec![lines])).await;
    rig.task_fails("lines").await;
    rig.streams_again("lines").await;
}

#[tokio::test]
async fn an_artifact_without_an_end_is_taken_as_far_as_the_cap() {
    let words = "x".repeat(32 << 10);
    let more = Step::Events(piece("rt-1", &words, true), 1, Duration::ZERO);
    let rig = streaming_rig(Answer::Stream(vec![begin(), chunk("rt-1", &words), more])).await;
    rig.task_fails("chunks").await;
    rig.streams_again("chunks").await;
}

#[tokio::test]
async fn events_without_an_end_do_not_hold_the_server() {
    let working = json!({"kind": "status-update", "taskId": "rt-1", "contextId": "rc-1", "status": {"state": "working"}, "final": false});
    let pause = Duration::from_millis(1);
    let bytes = |bytes: &[u8]| Step::Forever(bytes.repeat(50), pause);
    for (what, step) in [
        ("states", Step::Events(working, 50, pause)),
        ("comments", bytes(b": still here\n\n")),
        ("nothing", bytes(b"\n\n\n\n")),
        ("empty data", bytes(b"data:\n\n")),
    ] {
        let rig = streaming_rig(Answer::Stream(vec![begin(), step])).await;
        let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
        let task = rig.caller.api().post("/a2a/agents/bad/message:send", &body).await.task();
        let id = text(&task, "/id");
        rig.remote.until_called("message/stream", 1).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        let begun = Instant::now();
        assert_eq!(rig.caller.asks("echo", "hello").await["response"], "hello", "{what}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{what}: {:?}", begun.elapsed());
        let grown = rig.caller.peak_memory().saturating_sub(rig.memory);
        assert!(grown < super::MEMORY, "{what}: the server has grown by {} MiB", grown >> 20);
        let events = rig.caller.home.scratch.look(&["SELECT count(*) FROM a2a_events"]).remove(0).remove(0);
        let events: u64 = events[0].as_deref().unwrap_or_default().parse().unwrap();
        assert!(events < 5_000, "{what}: {events} events were stored of what says nothing new");
        // Whoever began it can end it.
        let reply = rig.caller.api().post_empty(&format!("/a2a/tasks/{id}:cancel")).await;
        assert!(
            reply.status == 200 || is_terminal(state(&rig.caller.api().task(id).await)),
            "{what}: {}",
            reply.shown()
        );
        rig.caller.api().task_when(id, is_terminal).await;
    }
}

#[tokio::test]
async fn a_stream_that_only_drips_is_given_up() {
    let second = Duration::from_secs(1);
    for (what, pieces) in [
        ("comments", vec![Step::Forever(b": wait\n\n".to_vec(), second)]),
        ("half an event", vec![Step::Bytes(b"data: {".to_vec()), Step::Forever(b" ".to_vec(), second)]),
        ("nothing", vec![Step::Hang]),
    ] {
        let rig = streaming_rig(Answer::Stream(pieces)).await;
        rig.task_fails(what).await;
        rig.streams_again(what).await;
    }
}

#[tokio::test]
async fn a_stream_that_names_another_task_does_not_speak_for_ours() {
    let others = [begin(), chunk("rt-2", "stolen"), status("rt-2", "completed", true)];
    let rig = streaming_rig(Answer::Stream(others.to_vec())).await;
    rig.remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "mine")));
    rig.remote.says("tasks/resubscribe", Answer::Refused(-32004, "it has ended"));
    let task = rig.caller.sends("bad", "work").await;
    let ended = (state(&task), artifact_text(&task));
    assert!(ended.0 == "FAILED" && ended.1.is_empty() || ended == ("COMPLETED", "mine".to_owned()), "{task:#}");
    rig.streams_again("another task").await;
    // Neither does another task that begins in the middle.
    let other = Step::Event(task_03("rt-2", "rc-2", "completed", "stolen"));
    rig.remote.says("message/stream", Answer::Stream(vec![begin(), other]));
    let task = rig.caller.sends("bad", "work").await;
    assert!(!artifact_text(&task).contains("stolen"), "{task:#}");
}

#[tokio::test]
async fn a_poll_that_names_another_task_does_not_speak_for_ours() {
    let rig = Rig::start(card_03).await;
    rig.remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "working", "")));
    rig.remote.says("tasks/get", Answer::Result(task_03("rt-2", "rc-2", "completed", "stolen")));
    let task = rig.caller.sends("bad", "work").await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    assert!(artifact_text(&task).is_empty(), "{task:#}");
    rig.lives("a poll").await;
}

#[tokio::test]
async fn what_comes_after_the_end_does_not_count() {
    let mut steps = vec![begin(), chunk("rt-1", "done"), status("rt-1", "completed", true)];
    steps.extend([chunk("rt-1", "more"), status("rt-1", "failed", true), begin()]);
    steps.push(Step::Events(piece("rt-1", "more", true), 1, Duration::from_millis(5)));
    let rig = streaming_rig(Answer::Stream(steps)).await;
    let begun = Instant::now();
    let task = rig.caller.sends("bad", "work").await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert!(begun.elapsed() < SOON);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = text(&task, "/id");
    assert_eq!(rig.caller.api().task(id).await["artifacts"], task["artifacts"], "it stays as it ended");
    rig.streams_again("after the end").await;
}

#[tokio::test]
async fn events_of_the_wrong_types_are_refused() {
    let mut problems = Vec::new();
    let odd = [
        json!([]),
        json!({}),
        json!({"kind": "dance"}),
        json!({"kind": "status-update", "taskId": "rt-1", "contextId": "rc-1", "status": [], "final": true}),
        json!({"kind": "artifact-update", "taskId": "rt-1", "contextId": "rc-1", "artifact": "x"}),
        json!({"kind": "artifact-update", "taskId": "rt-1", "contextId": "rc-1", "artifact": {"artifactId": "a", "parts": 7}}),
    ];
    for result in odd {
        let what = result.to_string();
        let rig = streaming_rig(Answer::Stream(vec![begin(), Step::Event(result)])).await;
        problems.extend(rig.task_failed(&what).await.err());
        rig.streams_again(&what).await;
    }
    for (what, raw) in [
        ("no JSON", b"data: hello\n\n".to_vec()),
        ("no UTF-8", b"data: {\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"\xff\xfe\":7}\n\n".to_vec()),
        ("no envelope", b"data: {\"id\":\"rt-1\"}\n\n".to_vec()),
        ("deep", format!("data: {}{}\n\n", "[".repeat(100_000), "]".repeat(100_000)).into_bytes()),
        (
            "an error",
            b"data: {\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"error\":{\"code\":-32603,\"message\":\"the wheel came off\"}}\n\n"
                .to_vec(),
        ),
    ] {
        let rig = streaming_rig(Answer::Stream(vec![begin(), Step::Bytes(raw)])).await;
        problems.extend(rig.task_failed(what).await.err());
        rig.streams_again(what).await;
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
