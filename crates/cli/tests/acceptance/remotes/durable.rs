//! What survives: a crash of this server or of the remote, a cancel, and work that takes longer than anybody waits.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{chunk, completing, status, streaming_card};
use crate::harness::{
    PATIENCE,
    http::{Api, answer, artifact_text, is_terminal, message, state, text, with_json},
    remote::{Answer, Caller, Remote, Setup, Step, card_03, card_10, task_03, task_10},
};

/// A message for `quinn`, answered at once; gives the task's id.
async fn begin(caller: &Caller) -> String {
    let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
    text(&caller.api().post("/a2a/agents/quinn/message:send", &body).await.task(), "/id").to_owned()
}

/// Waits until the first piece of a task's artifact is here.
async fn has_begun(caller: &Caller, id: &str) {
    let begun = Instant::now();
    while artifact_text(&caller.api().task(id).await) != "one " {
        assert!(begun.elapsed() < PATIENCE, "nothing came: {:#}", caller.api().task(id).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A stream that says that it works and then nothing more.
fn begins() -> Answer {
    let events = [task_03("rt-1", "rc-1", "submitted", ""), status("working", false), chunk("one ", false, false)];
    Answer::Stream(events.into_iter().map(Step::Event).chain([Step::Hang]).collect())
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_stream_is_picked_up_and_nothing_is_sent_twice() {
    let remote = Remote::with_card(streaming_card).await;
    remote.says("message/stream", begins());
    let mut caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("message/stream", 1).await;
    has_begun(&caller, &id).await;
    let snapshot = task_03("rt-1", "rc-1", "working", "one ");
    let rest = [snapshot, chunk("two", true, true), status("completed", true)];
    remote.says("tasks/resubscribe", Answer::events(rest));
    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "one two")));
    caller.restart().await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "one two"));
    let sends = remote.methods().into_iter().filter(|method| method.starts_with("message/")).count();
    assert_eq!(sends, 1, "{:?}", remote.methods());
}

#[tokio::test]
async fn a_crash_while_a_remote_task_is_polled_goes_on_with_polling() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let mut caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("tasks/get", 1).await;
    caller.restart().await;
    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "at last")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "at last"));
    assert_eq!(remote.methods().into_iter().filter(|method| method == "message/send").count(), 1);
}

#[tokio::test]
async fn a_crash_before_the_answer_is_told_to_the_caller_who_decides() {
    let remote = completing("done").await;
    let works = Answer::Result(task_03("rt-1", "rc-1", "completed", "done"));
    remote.on("message/send", [Answer::hangs(), works]);
    let mut caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("message/send", 1).await;
    caller.restart().await;
    // Nobody knows whether the remote works on it, and it cannot be asked: it is not sent again by itself.
    let task = caller.api().task_when(&id, |state| state == "INPUT_REQUIRED").await;
    assert_eq!(text(&task, "/status/message/metadata/reason"), "INTERRUPTED", "{task:#}");
    assert_eq!(remote.calls().len(), 1);
    let done = caller.api().send(&answer(&id, "again")).await;
    assert_eq!((state(&done), artifact_text(&done).as_str()), ("COMPLETED", "done"));
    assert_eq!(remote.calls().len(), 2);
}

#[tokio::test]
async fn a_crash_before_the_answer_sends_the_same_message_to_whoever_knows_it_again() {
    let remote = Remote::start().await;
    let mut card = card_10(&remote.agent());
    card["capabilities"]["extensions"] = json!([{"uri": a2a::RESUME_CURSOR}]);
    remote.has_card(&card);
    let works = Answer::Result(json!({"task": task_10("rt-1", "rc-1", "COMPLETED", "done")}));
    remote.on("SendMessage", [Answer::hangs(), works]);
    let mut caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("SendMessage", 1).await;
    caller.restart().await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"));
    let calls = remote.calls();
    assert_eq!(calls.len(), 2, "{calls:#?}");
    assert_eq!(calls[0].message()["messageId"], calls[1].message()["messageId"], "{calls:#?}");
    assert!(calls[0].header("idempotency-key").is_some(), "{calls:#?}");
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"), "{calls:#?}");
}

#[tokio::test]
async fn a_remote_that_dies_and_comes_back_is_asked_how_far_it_is() {
    let remote = Remote::with_card(streaming_card).await;
    remote.says("message/stream", begins());
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("message/stream", 1).await;
    has_begun(&caller, &id).await;
    let base = remote.base.clone();
    drop(remote);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_terminal(state(&caller.api().task(&id).await)), "nobody knows yet how it ended");
    let remote = Remote::again(&base).await;
    remote.has_card(&streaming_card(&remote.agent()));
    let done = task_03("rt-1", "rc-1", "completed", "one two");
    remote.says("tasks/resubscribe", Answer::Refused(-32004, "it has ended"));
    remote.says("tasks/get", Answer::Result(done));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "one two"));
    assert!(!remote.methods().iter().any(|method| method.starts_with("message/")), "{:?}", remote.methods());
}

#[tokio::test]
async fn a_cancel_is_passed_on() {
    let remote = Remote::with_card(streaming_card).await;
    remote.says("message/stream", begins());
    remote.says("tasks/cancel", Answer::Result(task_03("rt-1", "rc-1", "canceled", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    has_begun(&caller, &id).await;
    let canceled = caller.api().post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(state(&canceled), "CANCELED");
    remote.until_called("tasks/cancel", 1).await;
    let cancel = remote.calls().into_iter().find(|call| call.rpc() == "tasks/cancel").unwrap();
    assert_eq!(cancel.params()["id"], "rt-1");
}

#[tokio::test]
async fn a_cancel_reaches_a_remote_that_was_away() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let mut caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("tasks/get", 1).await;
    let base = remote.base.clone();
    drop(remote);
    let canceled = caller.api().post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert!(matches!(state(&canceled), "CANCELED" | "WORKING"), "{canceled:#}");
    caller.restart().await;
    let remote = Remote::again(&base).await;
    remote.has_card(&card_03(&remote.agent()));
    let end = Answer::Result(task_03("rt-1", "rc-1", "canceled", ""));
    remote.says("tasks/cancel", end.clone());
    remote.says("tasks/get", end);
    remote.until_called("tasks/cancel", 1).await;
    assert_eq!(state(&caller.api().task_when(&id, is_terminal).await), "CANCELED");
}

#[tokio::test]
async fn a_cancel_of_a_task_that_waits_at_the_remote_is_passed_on() {
    let remote = completing("").await;
    let mut asks = task_03("rt-1", "rc-1", "input-required", "");
    let parts = json!([{"kind": "text", "text": "which city?"}]);
    asks["status"]["message"] = json!({"kind": "message", "messageId": "q", "role": "agent", "parts": parts});
    remote.says("message/send", Answer::Result(asks));
    remote.says("tasks/cancel", Answer::Result(task_03("rt-1", "rc-1", "canceled", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let task = caller.sends("quinn", "weather").await;
    assert_eq!(state(&task), "INPUT_REQUIRED");
    let canceled = caller.api().post_empty(&format!("/a2a/tasks/{}:cancel", text(&task, "/id"))).await.ok();
    assert_eq!(state(&canceled), "CANCELED");
    remote.until_called("tasks/cancel", 1).await;
}

#[tokio::test]
async fn a_long_remote_task_holds_no_slot() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_QUIET", "1s").start().await;
    caller.knows("quinn").await;
    // More than the slots that an agent has.
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(begin(&caller).await);
    }
    remote.until_called("message/send", 20).await;
    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    for id in ids {
        assert_eq!(artifact_text(&caller.api().task_when(&id, is_terminal).await), "done");
    }
    assert_eq!(remote.methods().into_iter().filter(|method| method == "message/send").count(), 20);
}

#[tokio::test]
async fn a_remote_task_that_nobody_remembers_has_failed() {
    let remote = completing("").await;
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "working", "")));
    remote.says("tasks/get", Answer::Refused(-32001, "Task not found"));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    assert!(text(&task, "/status/message/parts/0/text").to_lowercase().contains("not found"), "{task:#}");
}

#[tokio::test]
async fn what_is_tracked_too_long_has_failed() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let caller =
        Setup::new().yaml(&yaml).env("SB_OUTBOUND_TRACK_FOR", "3s").env("SB_OUTBOUND_QUIET", "1s").start().await;
    caller.knows("quinn").await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    remote.until_called("tasks/cancel", 1).await;
}

#[tokio::test]
async fn the_work_of_a_remote_ends_with_a_task_that_took_too_long() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let agent = format!("kind = \"remote\"\ntimeout = \"1s\"\n[remote]\nurl = \"{}\"\n", remote.agent());
    let caller = Setup::new().file("agents/quinn.toml", &agent).start().await;
    caller.remote_when("quinn", |_| true).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    remote.until_called("tasks/cancel", 1).await;
    assert_eq!(remote.calls().last().unwrap().params()["id"], "rt-1");
}

/// Nothing is known of what is owed once a task is gone.
#[tokio::test]
async fn the_work_of_a_remote_is_canceled_before_its_tasks_are_deleted() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    let canceled = Answer::Result(task_03("rt-1", "rc-1", "canceled", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let token = "sb_test-token-of-the-tenant-second-00";
    caller.home.add_tenant("second", token).await;
    let second = caller.api().with_token(Some(token));
    let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
    let begin = async || text(&second.post("/a2a/agents/quinn/message:send", &body).await.task(), "/id").to_owned();
    let delete = async |api: &Api, path: &str| api.call(api.request(Method::DELETE, path)).await.ok();
    let canceling = |remote: &Remote| remote.methods().iter().filter(|method| *method == "tasks/cancel").count();

    // The remote is away for a moment when it is told.
    remote.on("tasks/cancel", [Answer::status(503, "busy"), canceled.clone()]);
    let id = begin().await;
    remote.until_called("tasks/get", 1).await;
    delete(&second, &format!("/v1/requests/{id}?cancel=true")).await;
    assert_eq!(canceling(&remote), 2);

    remote.on("tasks/cancel", [Answer::status(503, "busy"), canceled]);
    begin().await;
    remote.until_called("message/send", 2).await;
    let admin = caller.admin();
    let tenants = admin.get("/v1/admin/tenants").await.ok();
    let tenants = tenants["tenants"].as_array().unwrap();
    let tenant = tenants.iter().find(|tenant| tenant["name"] == "second").unwrap();
    let deleted = delete(&admin, &format!("/v1/admin/tenants/{}?force=true", tenant["id"])).await;
    assert_eq!(deleted["done"], true, "{deleted:#}");
    assert_eq!(canceling(&remote), 4);
}

#[tokio::test]
async fn a_remote_that_notifies_is_heard_at_once_and_not_believed() {
    let remote = Remote::start().await;
    let mut card = card_03(&remote.agent());
    card["capabilities"]["pushNotifications"] = json!(true);
    remote.has_card(&card);
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    remote.says("tasks/pushNotificationConfig/set", Answer::Result(json!({})));
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    // Nobody would look by itself in the time of this test.
    let caller = Setup::new().yaml(&yaml).env("SB_OUTBOUND_POLL", "60s").start().await;
    caller.knows("quinn").await;
    let id = begin(&caller).await;
    remote.until_called("tasks/pushNotificationConfig/set", 1).await;
    let set = remote.calls().into_iter().find(|call| call.rpc() == "tasks/pushNotificationConfig/set").unwrap();
    assert_eq!(set.params()["taskId"], "rt-1", "{}", set.body);
    let url = text(set.params(), "/pushNotificationConfig/url").to_owned();
    assert!(url.starts_with(&caller.server.url), "{url}");
    let secret = text(set.params(), "/pushNotificationConfig/token").to_owned();
    let api = caller.api();
    let notify = async |url: &str, (name, value): (&str, &str), body: &Value| {
        api.call(with_json(api.bare(Method::POST, url).header(name, value), body)).await.status
    };
    let bearer = format!("Bearer {secret}");
    let (by_header, by_bearer) = (("X-A2A-Notification-Token", secret.as_str()), ("Authorization", bearer.as_str()));

    // What it says of the task is not taken for it: the task is asked for.
    let looks = |remote: &Remote| remote.methods().iter().filter(|method| *method == "tasks/get").count();
    let before = looks(&remote);
    let forged = task_03("rt-1", "rc-1", "completed", "forged");
    assert_eq!(notify(&url, by_header, &forged).await, 200);
    remote.until_called("tasks/get", before + 1).await;
    let task = caller.api().task(&id).await;
    assert!(!is_terminal(state(&task)) && artifact_text(&task).is_empty(), "{task:#}");
    // Whoever guesses is told nothing and changes nothing.
    let before = looks(&remote);
    let (start, token) = url.rsplit_once('/').unwrap();
    for guess in ["x", &token.to_uppercase(), &token[1..], &format!("{token}x"), &id] {
        let header = ("X-A2A-Notification-Token", guess);
        for (url, header) in
            [(format!("{start}/{guess}"), header), (url.clone(), header), (format!("{start}/{guess}"), by_header)]
        {
            assert!(matches!(notify(&url, header, &forged).await, 401 | 404), "{url} {header:?}");
        }
    }
    assert!(matches!(notify(&url, ("X-Other", "x"), &forged).await, 401 | 404));
    assert_eq!(looks(&remote), before);

    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    // Any body will do, in any dialect, since it is not looked at.
    let event = json!({"statusUpdate": {"taskId": "rt-1", "status": {"state": "TASK_STATE_COMPLETED"}}});
    assert_eq!(notify(&url, by_bearer, &event).await, 200);
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"));
}

#[tokio::test]
async fn what_cannot_have_arrived_is_sent_again_and_what_may_have_is_not() {
    let remote = completing("done").await;
    let base = remote.base.clone();
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    drop(remote);
    // Nobody listens when it is sent, and somebody does a moment later.
    let id = begin(&caller).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let remote = Remote::again(&base).await;
    remote.has_card(&card_03(&remote.agent()));
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), remote.calls().len()), ("COMPLETED", 1), "{task:#}");
    // It is taken, and the connection ends.
    remote.says("message/send", Answer::closes());
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, |state| is_terminal(state) || state == "INPUT_REQUIRED").await;
    assert!(matches!(state(&task), "FAILED" | "INPUT_REQUIRED"), "{task:#}");
    let sent = remote.methods().iter().filter(|method| *method == "message/send").count();
    assert_eq!(sent, 2, "it may work on it; it is only asked for its tasks");
}
