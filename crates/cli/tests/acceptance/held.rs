//! Tasks that are held: kept out of sight, because the agent's first output may be a direct reply. Nobody waits for long
//! without hearing of them, and nobody is shut out.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    http::{Api, is_terminal, state, text, to, to_at_once, with_json},
    rig::{Rig, TOKEN},
    sse::Frame,
};

/// A task is shown after a second of silence; this is one more for a busy machine.
const SHOWN: Duration = Duration::from_secs(2);

/// Says that it was started, waits, and replies without a task.
const SCRIPT: &str = r#"cat > /dev/null
echo started >> ../starts
sleep "$1"
echo '{"message":{"parts":[{"text":"here I am"}]}}'
"#;

/// A server with an agent that replies before its task would be shown, and one that replies long after.
async fn rig(fault: Option<&'static str>) -> Rig {
    let agent = |seconds: &str, reveal: &str| {
        let command = format!("argv = [\"sh\", \"reply.sh\", \"{seconds}\"]\noutput = \"events\"\n");
        format!("kind = \"command\"\nreply = \"auto\"\nconcurrency = 16\n{reveal}[command]\n{command}")
    };
    // A busy machine may take longer than the second of the default to start a program.
    let soon = agent("0.6", "reveal_after = \"4s\"\n");
    let agents = [("soon.toml", soon), ("late.toml", agent("3.5", "")), ("reply.sh", SCRIPT.to_owned())];
    let agents = agents.each_ref().map(|(name, file)| (*name, file.as_str()));
    Rig::start_with_agents("", &agents, fault).await
}

/// How often an agent was started.
fn starts(rig: &Rig) -> usize {
    let file = rig.agents_dir().with_file_name("starts");
    std::fs::read_to_string(file).expect("somebody was started").lines().count()
}

/// Sends a message over a connection that breaks before there is an answer, and sends it again, as a call and as a stream. Gives what
/// these two are told.
async fn vanish_and_repeat(api: &Api, agent: &str, path: &str) -> (Value, Vec<Frame>) {
    let mut request = to(agent, "hello");
    request["message"]["contextId"] = json!(format!("{agent}{path}"));
    let first = Api::new(api.base(), Some(TOKEN));
    let sending = async {
        let response = with_json(first.request(Method::POST, path), &request).send().await;
        response.expect("the server answers").bytes().await
    };
    assert!(timeout(Duration::from_millis(200), sending).await.is_err(), "it was not to wait for an answer");

    let repeated = Instant::now();
    let streamed = async {
        let mut stream = api.stream("/a2a/message:stream", &request).await;
        let first = stream.next().await.expect("the stream says something");
        assert!(repeated.elapsed() < SHOWN, "{:?}", repeated.elapsed());
        let mut frames = vec![first];
        frames.extend(stream.rest().await);
        frames
    };
    let (called, frames) = tokio::join!(api.post("/a2a/message:send", &request), streamed);
    let called = called.ok();
    assert_eq!(api.post("/a2a/message:send", &request).await.ok(), called, "and whoever comes later is told the same");
    (called, frames)
}

#[tokio::test]
async fn a_repeated_message_finds_what_its_first_sender_did_not_wait_for() {
    let rig = rig(None).await;
    let api = rig.api();
    let (send, stream) = ("/a2a/message:send", "/a2a/message:stream");
    let (soon_sent, soon_streamed, late_sent, late_streamed) = tokio::join!(
        vanish_and_repeat(&api, "soon", send),
        vanish_and_repeat(&api, "soon", stream),
        vanish_and_repeat(&api, "late", send),
        vanish_and_repeat(&api, "late", stream),
    );
    for (called, frames) in [soon_sent, soon_streamed] {
        assert_eq!(text(&called, "/message/parts/0/text"), "here I am");
        assert_eq!(frames.iter().map(|frame| &frame.body).collect::<Vec<_>>(), [&called]);
    }
    for (called, frames) in [late_sent, late_streamed] {
        let task = &called["task"];
        assert_eq!(state(task), "COMPLETED", "{called:#}");
        assert_eq!(text(task, "/status/message/parts/0/text"), "here I am");
        assert_eq!(frames[0].task_id(), text(task, "/id"));
        assert_eq!(frames.last().and_then(Frame::state), Some("COMPLETED"), "{frames:#?}");
    }
    assert_eq!(starts(&rig), 4, "one each");
}

#[tokio::test]
async fn x_49_a_repeated_message_that_is_not_to_wait_does_not() {
    let rig = rig(None).await;
    let api = rig.api();
    let mut request = to_at_once("late", "hello");
    request["message"]["contextId"] = json!("c-49");
    let (first, again) = tokio::join!(api.post("/a2a/message:send", &request), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        api.post("/a2a/message:send", &request).await
    });
    let (first, again) = (first.task(), again.task());
    assert_eq!(text(&first, "/id"), text(&again, "/id"));
    assert!(!is_terminal(state(&again)), "it came back before the agent had spoken: {again:#}");
    api.post_empty(&format!("/a2a/tasks/{}:cancel", text(&first, "/id"))).await.ok();
}

#[tokio::test]
async fn a_task_of_a_silent_agent_is_shown_and_can_be_canceled() {
    let rig = rig(None).await;
    let api = rig.api();
    let begun = Instant::now();
    let mut stream = api.stream("/a2a/message:stream", &to("late", "hello")).await;
    let first = stream.next().await.expect("the stream says something");
    assert!(begun.elapsed() < SHOWN, "{:?}", begun.elapsed());
    let id = first.task_id();
    assert!(!is_terminal(state(&api.task(id).await)));
    assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1);
    let canceled = api.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(state(&canceled), "CANCELED");
    let rest = stream.rest().await;
    assert_eq!(rest.last().and_then(Frame::state), Some("CANCELED"), "{rest:#?}");
}

#[tokio::test]
async fn control_a_task_that_is_not_shown_is_noticed() {
    let rig = rig(Some("stay-held")).await;
    let mut stream = rig.api().stream("/a2a/message:stream", &to("late", "hello")).await;
    assert!(timeout(SHOWN, stream.next()).await.is_err(), "it was to stay silent");
}
