//! A repeated send finds its first task, and only then.

use serde_json::{Value, json};

use super::{
    http::{array, message as fresh_message},
    player::{play, play_on},
    scenario::{CURRENT, EVERY, Step, Who, answer, begin, get, join, list, message, resume, send, step, stream},
    server::{Setup, TestServer},
};

fn keyed(agent: &str, context: &str, id: &str, words: &str) -> Step {
    send(agent, words).and(json!({"message": {"messageId": id, "contextId": context}}))
}

#[tokio::test]
async fn s3_77_send_is_idempotent() {
    let request = || keyed("stream", "c", "m", "3 20");
    let conflict = || keyed("stream", "c", "m", "4 20").refused("IDEMPOTENCY_CONFLICT");
    let once = |events: &Value| {
        let events = events.as_array().unwrap();
        let begun = events.iter().filter(|event| {
            event.get("artifactUpdate").is_some_and(|update| update.get("append") != Some(&json!(true)))
        });
        assert_eq!(begun.count(), 1, "one artifact begun once");
        let runs = events.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING");
        assert_eq!(runs.count(), 1, "it ran once");
    };
    let other_way = json!({"configuration": {"historyLength": 0, "returnImmediately": true}});
    let about = |attempt: i32| json!({"metadata": {"attempt": attempt, "correlationId": format!("c-{attempt}")}});
    let second = || keyed("stream", "c2", "m2", "2 20");
    let names = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
    let mut steps: Vec<Step> = names.iter().map(|name| request().aside(name)).collect();
    steps.push(request().state("COMPLETED").count("/task/history", 1).keep("first", "/task"));
    // A repetition joins the task and waits with it.
    steps.extend(names.map(|name| join(name).is("/task", "$first")));
    steps.extend([
        list(json!({"contextId": "c"})).is("/totalSize", 1),
        resume("0").check(once),
        // Other configuration is not other content, nor is other metadata of the request, which says how to work on a message.
        request().and(other_way).is("/task/id", "$task"),
        request().and(about(2)).is("/task/id", "$task"),
        request().and(about(3)).is("/task/id", "$task"),
        request().streamed().is("/0/task/id", "$task"),
        conflict(),
        conflict().streamed(),
        second().and(about(1)).keep("second", "/task/id"),
        second().and(about(2)).is("/task/id", "$second"),
        // Metadata of the message is a part of it.
        second().and(json!({"message": {"metadata": {"other": 1}}})).refused("IDEMPOTENCY_CONFLICT"),
        list(json!({"contextId": "c"})).is("/totalSize", 1),
        list(json!({"contextId": "c2"})).is("/totalSize", 1),
    ]);
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn s3_78_another_target_context_or_message_is_another_task() {
    let steps = [
        keyed("echo", "c", "m", "hello").keep("one", "/task/id"),
        keyed("reject", "c", "m", "hello"),
        keyed("echo", "other", "m", "hello"),
        keyed("echo", "c", "other", "hello"),
        list(json!({})).is("/totalSize", 4),
        // Another tenant's key is another key.
        keyed("echo", "c", "m", "hello").by(Who::Other).state("COMPLETED"),
        list(json!({})).by(Who::Other).is("/totalSize", 1),
        step("GetTask", json!({"id": "$one"})).by(Who::Other).refused("TASK_NOT_FOUND"),
        list(json!({})).is("/totalSize", 4),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn s3_79_x_24_idempotent_across_bindings_and_restart() {
    let mut server = TestServer::start().await;
    let mut request = message("echo", fresh_message("hello"));
    request["message"]["contextId"] = json!("c");
    let first = server.api().send(&request).await;
    let scoped = json!({"message": request["message"]});
    let mut old = request["message"].clone();
    (old["kind"], old["role"]) = (json!("message"), json!("user"));
    old["parts"][0]["kind"] = json!("text");
    for _ in 0..2 {
        let (api, grpc) = (server.api(), server.grpc());
        assert_eq!(api.send(&request).await, first);
        assert_eq!(api.rpc_ok("SendMessage", &request).await["task"], first);
        // The URL's agent and the field's are the same target.
        assert_eq!(api.post("/a2a/agents/echo/message:send", &scoped).await.task(), first);
        for service in [super::grpc::A2A, super::grpc::GATEWAY] {
            assert_eq!(grpc.ok(service, "SendMessage", &request).await["task"]["id"], first["id"], "{service}");
        }
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}});
        let in_03 = super::raw::call(
            &api,
            "POST /a2a/agents/echo\nA2A-Version:\nContent-Type: application/json",
            call.to_string(),
        );
        assert_eq!(in_03.await.ok()["result"]["id"], first["id"]);
        assert_eq!(api.get("/a2a/tasks").await.ok()["totalSize"], 1);
        server = server.restart(Setup::new()).await;
    }
}

#[tokio::test]
async fn s3_80_without_a_context_the_header_is_the_key() {
    let server = TestServer::start().await;
    let with_key = |text: &str, key| send("echo", text).with("idempotency-key", key);
    let steps = [
        with_key("hello", "k").keep("first", "/task"),
        with_key("hello", "k").is("/task", "$first"),
        with_key("hello", "other").check(|_| {}),
        with_key("something else", "k").refused("IDEMPOTENCY_CONFLICT"),
        list(json!({})).is("/totalSize", 2),
        // Without it, the same message is new work each time.
        send("echo", "hello"),
        send("echo", "hello"),
        list(json!({})).is("/totalSize", 4),
    ];
    play_on(&server, &EVERY, steps).await;
    // One key means the same over every binding.
    let request = message("echo", fresh_message("once"));
    let first = server.grpc().with("idempotency-key", "k-1").ok(super::grpc::A2A, "SendMessage", &request).await;
    let head = "POST /a2a/message:send\nIdempotency-Key: k-1\nContent-Type: application/json";
    let again = super::raw::call(&server.api(), head, request.to_string()).await;
    assert_eq!(again.task()["id"], first["task"]["id"]);
}

#[tokio::test]
async fn x_19_a_follow_up_with_a_known_id_and_other_content_is_a_new_message() {
    let more = |text: &str| {
        let again = json!({"message": {"messageId": "again"}, "configuration": {"returnImmediately": true}});
        answer(text).and(again).varies()
    };
    let said = |task: &Value| {
        let history = array(task, "/history").iter().filter(|message| message["messageId"] == "again");
        let said: Vec<&Value> = history.map(|message| &message["parts"][0]["text"]).collect();
        assert_eq!(said, ["one 1", "two 1"], "the same again is the same; something else is not");
    };
    let done = get().until("/status/state", "TASK_STATE_COMPLETED").check(said);
    play(&EVERY, [begin("slow", "600").varies(), more("one 1"), more("two 1"), more("two 1"), done]).await;
}

#[tokio::test]
async fn s3_81_repeated_continuations_are_not_duplicated() {
    let answered = || answer("that").and(json!({"message": {"messageId": "the answer"}}));
    let once = |task: &Value| {
        let history = array(task, "/history").iter().filter(|message| message["messageId"] == "the answer");
        assert_eq!(history.count(), 1, "{task:#}");
    };
    let steps = [
        send("ask", "what"),
        answered().state("COMPLETED").keep("done", "/task"),
        // The check precedes the one for a terminal state.
        answered().is("/task", "$done"),
        answered().is("/task", "$done"),
        get().answers("$done").check(once),
    ];
    play(&EVERY, steps).await;
}

#[tokio::test]
async fn x_19_a_direct_reply_is_given_again() {
    let server = TestServer::start().await;
    let request = || keyed("message", "c", "m", "hello");
    let steps = [
        request().has("/message").keep("first", ""),
        request().answers("$first"),
        request().streamed().answers(json!(["$first"])),
        send("message", "hello").check(|_| {}).keep("fresh", "/message/messageId"),
        request().answers("$first").check(|_| {}),
    ];
    play_on(&server, &EVERY, steps).await;
    let fresh = stream("message", "hello").has("/0/message").lacks("/1");
    play_on(&server, &CURRENT, [fresh]).await;
}
