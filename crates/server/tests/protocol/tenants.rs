//! What belongs to someone else does not exist.

use serde_json::json;

use super::{
    http::{reason, state},
    player::play_on,
    scenario::{
        CREATE_PUSH, DELETE_PUSH, EVERY, GET_PUSH, LIST_PUSH, Step, UNKNOWN, Who, answer, begin, cancel, get, list,
        resume, send, step, subscribe,
    },
    server::TestServer,
};

#[tokio::test]
async fn x_8_another_tenants_task_does_not_exist() {
    let server = TestServer::start().await;
    let theirs = |step: Step| step.by(Who::Other).refused("TASK_NOT_FOUND");
    let config = json!({"taskId": "$task", "id": "c", "url": "https://example.com/hook"});
    let named = json!({"taskId": "$task", "id": "c"});
    let steps = [
        begin("slow", "20000").varies(),
        step(CREATE_PUSH, config.clone()).keep("made", ""),
        theirs(get()),
        theirs(cancel()),
        theirs(subscribe()),
        theirs(resume("0")),
        theirs(answer("let me in")),
        theirs(step(CREATE_PUSH, config)),
        theirs(step(GET_PUSH, named.clone())),
        theirs(step(LIST_PUSH, json!({"taskId": "$task"}))),
        theirs(step(DELETE_PUSH, named)),
        list(json!({})).by(Who::Other).is("/totalSize", 0),
        // The field `tenant` names an agent, and never an owner.
        send("default", "hello").by(Who::Other).refused("AGENT_NOT_FOUND"),
        send("other", "hello").by(Who::Other).refused("AGENT_NOT_FOUND"),
        send("echo", "hello").by(Who::Other).state("COMPLETED"),
    ];
    play_on(&server, &EVERY, steps).await;
    // It is as it was.
    let steps = [
        begin("slow", "20000").varies().keep("id", "/task/id"),
        cancel().by(Who::Other).refused("TASK_NOT_FOUND"),
        list(json!({})).is("/totalSize", 1),
        get().until("/status/state", "TASK_STATE_WORKING"),
        cancel().state("CANCELED").is("/id", "$id"),
    ];
    play_on(&server, &EVERY, steps).await;
}

#[tokio::test]
async fn x_8_what_is_said_of_another_tenants_task_is_what_is_said_of_none() {
    let server = TestServer::start().await;
    let theirs = server.api().with_token(Some(&server.add_tenant("other").await));
    let sent = server.api().send(&begin("slow", "20000").request).await;
    let id = sent["id"].as_str().unwrap();
    for path in [
        "/a2a/tasks/{id}",
        "/a2a/agents/slow/tasks/{id}",
        "/a2a/tasks/{id}:subscribe",
        "/a2a/tasks/{id}:subscribe?afterSequence=0",
    ] {
        let reply = theirs.get(&path.replace("{id}", id)).await.error(404);
        let nothing = theirs.get(&path.replace("{id}", UNKNOWN)).await.error(404);
        // The same error in the same shape, but for the id that was asked for.
        assert_eq!(reply.to_string().replace(id, UNKNOWN), nothing.to_string());
    }
    let other = server.grpc().with("authorization", &format!("Bearer {}", theirs.token().unwrap()));
    for service in [super::grpc::A2A, super::grpc::GATEWAY] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let theirs = other.call(service, method, &json!({"id": id})).await.error(5);
            let nobodys = other.call(service, method, &json!({"id": UNKNOWN})).await.error(5);
            assert_eq!(reason(&theirs), "TASK_NOT_FOUND", "{method}");
            assert_eq!(theirs.to_string().replace(id, UNKNOWN), nobodys.to_string(), "{method}");
        }
    }
    assert_eq!(state(&server.api().task_when(id, |state| state == "WORKING").await), "WORKING");
}
