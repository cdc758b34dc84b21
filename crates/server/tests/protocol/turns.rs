//! More than one message: continuing, the inbox, direct replies.

use serde_json::{Value, json};

use super::{
    player::{play, play_on},
    scenario::{CURRENT, EVERY, UNKNOWN, answer, begin, cancel, get, join, list, resume, send, step, stream},
    server::TestServer,
};

#[tokio::test]
async fn s3_82_an_answer_resumes_the_task_in_place() {
    let asked = send("ask", "what").state("INPUT_REQUIRED").keep("id", "/task/id").keep("in", "/task/contextId");
    let done = answer("forty-two").state("COMPLETED").is("/task/id", "$id").is("/task/contextId", "$in");
    // What was asked back is part of the history, between question and answer.
    let roles = |done: &Value| {
        let roles: Vec<_> = done["task"]["history"].as_array().unwrap().iter().map(|said| &said["role"]).collect();
        assert_eq!(roles[..3], ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{done:#}");
    };
    let done = done.is("/task/artifacts/0/parts/0/text", "forty-two").check(roles);
    let again = [send("ask", "once more"), answer("at its agent").and(json!({"tenant": "ask"})).state("COMPLETED")];
    let steps = [asked, done, list(json!({})).is("/totalSize", 1)].into_iter().chain(again);
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn continuations_must_fit_their_task() {
    let at = |context: &str| answer("that").and(json!({"message": {"contextId": context}}));
    let steps = [
        send("ask", "what").keep("asked", "/task").keep("in", "/task/contextId"),
        at("another context").wrong("message.contextId"),
        answer("that").and(json!({"message": {"taskId": UNKNOWN}})).refused("TASK_NOT_FOUND"),
        answer("that").and(json!({"tenant": "echo"})).refused("TASK_NOT_FOUND"),
        get().answers("$asked"),
        at("$in").state("COMPLETED"),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn s3_83_a_message_to_a_finished_task_is_refused() {
    let mut steps = Vec::new();
    for agent in ["echo", "fail", "reject"] {
        steps.extend([
            send(agent, "hello").keep("done", "/task"),
            answer("more").refused("UNSUPPORTED_OPERATION"),
            answer("more").streamed().refused("UNSUPPORTED_OPERATION"),
            get().answers("$done"),
        ]);
    }
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn a_message_to_a_running_task_waits_for_its_turn() {
    let mine = |done: &Value| {
        let history = done["task"]["history"].as_array().unwrap().iter();
        let mine: Vec<&Value> =
            history.filter(|said| said["role"] == "ROLE_USER").map(|said| &said["parts"][0]["text"]).collect();
        assert_eq!(mine, ["900", "200", "100"]);
    };
    let is_open = |sent: &Value| {
        let state = sent["task"]["status"]["state"].as_str().unwrap();
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state), "{sent:#}");
    };
    let all = |events: &Value| {
        let events = events.as_array().unwrap();
        let ends = events.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED");
        assert_eq!(ends.count(), 1, "{events:#?}");
        let artifacts = events.iter().filter(|event| event.get("artifactUpdate").is_some()).count();
        assert!(artifacts >= 3, "one a turn: {events:#?}");
    };
    let steps = [
        begin("slow", "900").varies(),
        resume("0").aside("following"),
        // Queued behind the first; a blocking send waits for its own turn, which is the last.
        answer("200").and(json!({"configuration": {"returnImmediately": true}})).check(is_open).varies(),
        answer("100").state("COMPLETED").check(mine),
        join("following").state("COMPLETED").check(all),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn a_blocking_send_waits_for_its_own_turn_only() {
    let there = list(json!({"contextId": "own turn", "historyLength": 0})).until("/totalSize", 1).varies();
    let steps = [
        send("slow", "900").and(json!({"message": {"contextId": "own turn"}})).aside("first"),
        there.keep("task", "/tasks/0/id"),
        answer("3000").and(json!({"configuration": {"returnImmediately": true}})).varies(),
        // The first one's turn is over long before the second one's.
        join("first").is("/task/id", "$task").state("WORKING"),
        cancel().state("CANCELED"),
    ];
    play(&super::scenario::UNTYPED[..2], steps).await;
}

#[tokio::test]
async fn a_direct_reply_is_a_message_and_no_task() {
    let direct = |step: super::scenario::Step, at: &str| {
        step.is(&format!("{at}/message/role"), "ROLE_AGENT")
            .has(&format!("{at}/message/messageId"))
            .is(&format!("{at}/message/parts/0/text"), "hello")
            .lacks(&format!("{at}/message/taskId"))
            .lacks(&format!("{at}/task"))
    };
    let steps = [
        direct(send("message", "hello"), ""),
        direct(stream("message", "hello").lacks("/1"), "/0"),
        // who does not wait for the turn waits for its first word all the same.
        direct(begin("message", "hello"), ""),
        list(json!({})).is("/totalSize", 0),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn a_context_is_kept_and_may_be_chosen() {
    let server = TestServer::start().await;
    let own = "mein Kontext \u{1F50C} /?#";
    let at = |text: &str, context: &str| send("echo", text).and(json!({"message": {"contextId": context}}));
    let another = |sent: &Value| assert_ne!(sent["task"]["id"], sent["task"]["contextId"]);
    let steps = [
        send("echo", "one").keep("in", "/task/contextId").keep("first", "/task/id"),
        at("two", "$in").is("/task/contextId", "$in").check(another),
        list(json!({"contextId": "$in"})).is("/totalSize", 2).is("/tasks/1/id", "$first"),
        at("three", own).is("/task/contextId", own),
        step("ListTasks", json!({"contextId": own})).is("/totalSize", 1),
    ];
    play_on(&server, &EVERY, steps).await;
    play_on(
        &server,
        &CURRENT,
        [send("ask", "start").and(json!({"configuration": {"historyLength": 0}})).lacks("/task/history")],
    )
    .await;
}
