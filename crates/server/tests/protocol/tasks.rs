//! Get, cancel and subscribe.

use serde_json::json;

use super::{
    http::{state, text},
    player::{play, play_on},
    raw,
    scenario::{
        Binding, CURRENT, EVERY, UNKNOWN, begin, cancel, get, get_with, join, list, send, step, stream, subscribe,
    },
    server::TestServer,
};

#[tokio::test]
async fn s3_54_get_gives_the_bare_task() {
    let server = TestServer::start().await;
    let mut steps = vec![
        send("echo", "hello").keep("sent", "/task"),
        get().answers("$sent"),
        get_with(0).lacks("/history").is("/id", "$task"),
        get_with(-1).wrong("historyLength"),
    ];
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        steps.extend([UNKNOWN, "nonsense"].map(|id| step(method, json!({"id": id})).refused("TASK_NOT_FOUND")));
    }
    steps.extend(["a/b", "a b"].map(|id| step("GetTask", json!({"id": id})).refused("TASK_NOT_FOUND")));
    play_on(&server, &CURRENT, steps).await;
    // Nobody is named.
    let nobody = ["GetTask", "CancelTask", "SubscribeToTask"].map(|method| step(method, json!({})).wrong("id"));
    play_on(&server, &[Binding::JsonRpc, Binding::Grpc, Binding::Struct], nobody).await;
}

#[tokio::test]
async fn s3_16_s3_55_x_35_x_41_cancel() {
    let server = TestServer::start().await;
    let running = begin("slow", "20000").varies().keep("id", "/task/id");
    let steps = [
        running,
        cancel().state("CANCELED").is("/id", "$id").keep("canceled", ""),
        // canceling a canceled task returns it.
        cancel().answers("$canceled"),
        get().answers("$canceled"),
        begin("slow", "20000").varies(),
        step("CancelTask", json!({"id": "$task", "metadata": {"why": "changed my mind"}})).state("CANCELED"),
        // One that waits for its caller.
        send("ask", "something").state("INPUT_REQUIRED"),
        cancel().state("CANCELED"),
        get().state("CANCELED"),
    ];
    play_on(&server, &super::scenario::UNTYPED, steps).await;
    let mut steps = Vec::new();
    for agent in ["echo", "fail", "reject"] {
        steps.push(send(agent, "hello").keep("done", "/task"));
        steps.push(cancel().refused("TASK_NOT_CANCELABLE"));
        steps.push(get().answers("$done"));
    }
    steps.extend([begin("slow", "20000").varies(), cancel().state("CANCELED"), cancel().state("CANCELED")]);
    play_on(&server, &EVERY, steps).await;
}

#[tokio::test]
async fn s3_55_x_41_a_cancel_needs_no_body_and_may_have_one() {
    let server = TestServer::start().await;
    let api = server.api();
    for body in ["", "{}", "{\"metadata\":{\"why\":\"changed my mind\"}}"] {
        let sent = api.send(&begin("slow", "20000").request).await;
        let head = format!("POST /a2a/tasks/{}:cancel\nContent-Type: application/json", text(&sent, "/id"));
        let canceled = raw::call(&api, &head, body).await.ok();
        assert_eq!((&canceled["id"], state(&canceled)), (&sent["id"], "CANCELED"), "{body}");
    }
}

#[tokio::test]
async fn s3_55_a_blocking_send_learns_of_the_cancel() {
    let blocked = json!({"message": {"contextId": "blocked"}});
    let there = list(json!({"contextId": "blocked", "historyLength": 0})).until("/totalSize", 1).varies();
    let steps = [
        send("slow", "20000").and(blocked).aside("sending"),
        there.keep("task", "/tasks/0/id"),
        cancel().state("CANCELED"),
        join("sending").state("CANCELED").is("/task/id", "$task"),
    ];
    play(&super::scenario::UNTYPED[..2], steps).await;
}

#[tokio::test]
async fn s3_56_subscribe_shows_the_task_and_what_follows() {
    let steps = [
        begin("slow", "800").varies(),
        subscribe().is("/0/task/id", "$task").state("COMPLETED").is("/-1/statusUpdate/taskId", "$task"),
        get().until("/status/state", "TASK_STATE_COMPLETED"),
        subscribe().refused("UNSUPPORTED_OPERATION"),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn s3_62_a_cancel_ends_every_stream_of_its_task() {
    let there = list(json!({"tenant": "slow", "historyLength": 0})).until("/totalSize", 1).varies();
    let steps = [
        stream("slow", "20000").aside("sender"),
        there.keep("task", "/tasks/0/id"),
        subscribe().aside("subscriber"),
        cancel().state("CANCELED").is("/id", "$task"),
        join("sender").is("/0/task/id", "$task").state("CANCELED"),
        join("subscriber").is("/0/task/id", "$task").state("CANCELED"),
    ];
    play(&EVERY, steps).await;
}
