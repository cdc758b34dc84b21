//! Delivery of a message to a remote that breaks off, is away or comes back: the message is delivered once, and a task whose message may have
//! arrived neither fails nor is sent again without a key.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::completing;
use crate::harness::{
    TOKEN,
    http::{artifact_text, is_terminal, message, state, text},
    remote::{Answer, Caller, Remote, Setup, Step, card_03, card_10, task_03, task_10},
};

/// Starts a task for `quinn` without waiting for it. Returns its id.
async fn begin(caller: &Caller) -> String {
    let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
    text(&caller.api().post("/a2a/agents/quinn/message:send", &body).await.task(), "/id").to_owned()
}

/// The card of another Switchboard: it recognizes a message by its key.
fn keyed_card(url: &str) -> Value {
    let mut card = card_10(url);
    card["capabilities"]["extensions"] = json!([{"uri": a2a::RESUME_CURSOR}]);
    card
}

fn streaming_card_10(url: &str) -> Value {
    let mut card = card_10(url);
    card["capabilities"]["streaming"] = json!(true);
    card
}

fn done_10() -> Answer {
    Answer::Result(json!({"task": task_10("rt-1", "rc-1", "COMPLETED", "done")}))
}

/// A page of ListTasks with the task `rt-1`, whose first message has this id.
fn listed(message_id: &str) -> Answer {
    let mut task = task_10("rt-1", "rc-1", "COMPLETED", "done");
    task["history"] = json!([{"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "work"}]}]);
    page(&json!([task]), "")
}

/// A page of tasks of others.
fn others(next: &str) -> Answer {
    let mut task = task_10("rt-other", "rc-2", "WORKING", "");
    task["history"] = json!([{"messageId": "other", "role": "ROLE_USER", "parts": [{"text": "other"}]}]);
    page(&json!([task]), next)
}

fn page(tasks: &Value, next: &str) -> Answer {
    Answer::Result(json!({"tasks": tasks, "nextPageToken": next, "pageSize": 100, "totalSize": 1}))
}

fn count(remote: &Remote, method: &str) -> usize {
    remote.methods().iter().filter(|called| *called == method).count()
}

#[tokio::test]
async fn an_answer_that_is_lost_sends_the_same_key_again() {
    let remote = Remote::with_card(keyed_card).await;
    remote.on("SendMessage", [Answer::closes(), Answer::closes(), done_10()]);
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    let calls = remote.calls();
    assert_eq!(calls.len(), 3, "{calls:#?}");
    for call in &calls[1..] {
        assert_eq!(call.message()["messageId"], calls[0].message()["messageId"], "{calls:#?}");
        assert_eq!(call.header("idempotency-key"), calls[0].header("idempotency-key"), "{calls:#?}");
    }
}

#[tokio::test]
async fn a_remote_that_took_the_message_and_went_away_is_sent_the_same_key_when_it_is_back() {
    let remote = Remote::with_card(keyed_card).await;
    remote.says("SendMessage", Answer::closes());
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("SendMessage", 1).await;
    let key = remote.calls()[0].header("idempotency-key").map(str::to_owned);
    let base = remote.base.clone();
    drop(remote);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let task = caller.api().task(&id).await;
    assert!(!is_terminal(state(&task)), "{task:#}");
    let remote = Remote::again(&base).await;
    remote.has_card(&keyed_card(&remote.agent()));
    remote.says("SendMessage", done_10());
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(remote.only_call().header("idempotency-key").map(str::to_owned), key);
}

/// A proxy that loses the first answer to a message and lets nobody through for a while after that.
struct LossyProxy {
    base: String,
    state: Arc<AtomicU8>,
}

impl LossyProxy {
    const PASSES: u8 = 0;
    const LOSES: u8 = 1;
    const IS_SHUT: u8 = 2;
    const SHUT_FOR: Duration = Duration::from_secs(3);

    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = Arc::new(AtomicU8::new(Self::PASSES));
        let (server, seen) = (server.to_owned(), Arc::clone(&state));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if seen.load(Relaxed) != Self::IS_SHUT {
                    tokio::spawn(Self::pass(client, server.clone(), Arc::clone(&seen)));
                }
            }
        });
        Self { base, state }
    }

    /// Ends with the connection of either side.
    async fn pass(mut client: TcpStream, server: String, state: Arc<AtomicU8>) -> Option<()> {
        let mut server = TcpStream::connect(server).await.ok()?;
        let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let mut all = String::new();
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let count = read.ok().filter(|count| *count > 0 && state.load(Relaxed) != Self::IS_SHUT)?;
                    all += &String::from_utf8_lossy(&asked[..count]);
                    server.write_all(&asked[..count]).await.ok()?;
                }
                read = server.read(&mut answered) => {
                    let count = read.ok().filter(|count| *count > 0)?;
                    let is_message = all.contains("\"SendMessage\"") || all.contains("\"SendStreamingMessage\"");
                    if is_message && state.compare_exchange(Self::LOSES, Self::IS_SHUT, Relaxed, Relaxed).is_ok() {
                        drop(client);
                        tokio::time::sleep(Self::SHUT_FOR).await;
                        state.store(Self::PASSES, Relaxed);
                        return None;
                    }
                    client.write_all(&answered[..count]).await.ok()?;
                }
            }
        }
    }
}

#[tokio::test]
async fn work_of_another_switchboard_whose_answer_was_lost_is_done_once() {
    let far = Setup::new().start().await;
    let proxy = LossyProxy::start(far.server.address()).await;
    let url = format!("{}/a2a/agents/echo", proxy.base);
    let card = format!("{url}/.well-known/agent-card.json");
    let auth = "{scheme: bearer, credentialsEnv: KEY}";
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{url}/jsonrpc\", card: \"{card}\", auth: {auth}}}\n");
    let caller = Setup::new().yaml(&yaml).env("KEY", TOKEN).start().await;
    caller.knows("quinn").await;
    proxy.state.store(LossyProxy::LOSES, Relaxed);
    let id = begin(&caller).await;
    let begun = std::time::Instant::now();
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "work"), "{task:#}");
    assert!(begun.elapsed() > LossyProxy::SHUT_FOR / 2, "no answer was lost");
    let there = far.api().get("/a2a/tasks?tenant=echo").await.ok();
    assert_eq!(there["tasks"].as_array().map(Vec::len), Some(1), "{there:#}");
}

#[tokio::test]
async fn a_remote_without_keys_is_asked_for_the_message_until_it_answers() {
    for streams in [false, true] {
        let remote = Remote::with_card(if streams { streaming_card_10 } else { card_10 }).await;
        let method = if streams { "SendStreamingMessage" } else { "SendMessage" };
        remote.says(method, Answer::closes());
        remote.says("ListTasks", Answer::status(503, "busy"));
        remote.says("GetTask", Answer::Result(task_10("rt-1", "rc-1", "COMPLETED", "done")));
        let caller = Caller::knowing("quinn", &remote.agent()).await;
        let id = begin(&caller).await;
        remote.until_called("ListTasks", 2).await;
        let task = caller.api().task(&id).await;
        assert!(!is_terminal(state(&task)), "{task:#}");
        let sent = remote.calls().into_iter().find(|call| call.rpc() == method).unwrap();
        remote.says("ListTasks", listed(text(sent.message(), "/messageId")));
        let task = caller.api().task_when(&id, is_terminal).await;
        assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
        let sends = count(&remote, "SendMessage") + count(&remote, "SendStreamingMessage");
        assert_eq!(sends, 1, "{:?}", remote.methods());
    }
}

#[tokio::test]
async fn a_remote_that_cannot_tell_what_it_took_gets_no_second_message() {
    for streams in [false, true] {
        let remote = Remote::with_card(if streams { streaming_card_10 } else { card_10 }).await;
        let (method, other) =
            if streams { ("SendStreamingMessage", "SendMessage") } else { ("SendMessage", "SendStreamingMessage") };
        remote.on(method, [Answer::closes(), done_10()]);
        remote.says(other, done_10());
        let caller = Caller::knowing("quinn", &remote.agent()).await;
        let id = begin(&caller).await;
        let task = caller.api().task_when(&id, is_terminal).await;
        assert_eq!(state(&task), "FAILED", "{task:#}");
        let said = text(&task, "/status/message/parts/0/text");
        assert!(said.contains("may have taken the message"), "{said}");
        let sends = count(&remote, "SendMessage") + count(&remote, "SendStreamingMessage");
        assert_eq!(sends, 1, "{:?}", remote.methods());
    }
}

#[tokio::test]
async fn s4_29_a_remote_of_1_0_is_sent_the_message_again_once_it_said_that_it_has_not_got_it() {
    let remote = Remote::with_card(streaming_card_10).await;
    remote.says("SendStreamingMessage", Answer::closes());
    remote.says("ListTasks", page(&json!([]), ""));
    remote.says("SendMessage", done_10());
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let outcome = caller.asks("quinn", "work").await;
    assert_eq!((&outcome["response"], &outcome["taskState"]), (&json!("done"), &json!("completed")));
    // The message may still be on its way when it is asked for the first time.
    assert_eq!(remote.methods(), ["SendStreamingMessage", "ListTasks", "ListTasks", "SendMessage"]);
    let calls = remote.calls();
    assert_eq!(calls[0].message()["messageId"], calls[3].message()["messageId"]);
}

/// A proxy answers 503 also when the remote took the message and its answer was lost.
#[tokio::test]
async fn a_message_that_a_proxy_refuses_with_503_is_asked_for_before_it_is_sent_again() {
    let remote = Remote::with_card(card_10).await;
    remote.on("SendMessage", [Answer::status(503, "upstream connect error"), done_10()]);
    remote.says("ListTasks", Answer::status(503, "upstream connect error"));
    remote.says("GetTask", Answer::Result(task_10("rt-1", "rc-1", "COMPLETED", "done")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("ListTasks", 1).await;
    remote.says("ListTasks", listed(text(remote.calls()[0].message(), "/messageId")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(count(&remote, "SendMessage"), 1, "{:?}", remote.methods());
}

#[tokio::test]
async fn a_busy_remote_that_does_not_have_the_message_gets_it_until_it_takes_it() {
    let remote = Remote::with_card(card_10).await;
    let busy = Answer::status(503, "busy");
    remote.on("SendMessage", [busy.clone(), busy.clone(), busy.clone(), busy, done_10()]);
    remote.says("ListTasks", page(&json!([]), ""));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), count(&remote, "SendMessage")), ("COMPLETED", 5), "{task:#}");
}

/// A proxy may have lost the answer of another Switchboard, which is at work on the message.
#[tokio::test]
async fn a_message_that_a_proxy_refuses_with_503_is_canceled_at_a_remote_with_keys() {
    let remote = Remote::with_card(keyed_card).await;
    remote.says("SendMessage", Answer::status(503, "upstream connect error"));
    remote.says("ListTasks", Answer::status(503, "upstream connect error"));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    remote.says("ListTasks", listed(&message_id));
    remote.until_called("CancelTask", 1).await;
}

#[tokio::test]
async fn a_message_that_is_refused_with_503_for_too_long_has_failed_and_is_canceled() {
    let remote = Remote::with_card(keyed_card).await;
    remote.says("SendMessage", Answer::status(503, "upstream connect error"));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    // `deliver_for` bounds messages that cannot have arrived.
    let (deliver_for, track_for) = ("SB_OUTBOUND_DELIVER_FOR", "SB_OUTBOUND_TRACK_FOR");
    let caller = Setup::new().yaml(&yaml).env(deliver_for, "1s").env(track_for, "3s").start().await;
    caller.knows("quinn").await;
    let id = begin(&caller).await;
    remote.until_called("SendMessage", 1).await;
    remote.says("ListTasks", listed(text(remote.calls()[0].message(), "/messageId")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    assert!(!text(&task, "/status/message/parts/0/text").contains("within 1 s"), "{task:#}");
    remote.until_called("CancelTask", 1).await;
    let keys: BTreeSet<String> = remote
        .calls()
        .iter()
        .filter(|call| call.rpc() == "SendMessage")
        .filter_map(|call| call.header("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys.len(), 1, "{:?}", remote.methods());
}

#[tokio::test]
async fn a_message_that_is_refused_with_503_is_not_sent_again_to_a_remote_that_cannot_be_asked() {
    for card in [card_10, card_03] {
        let remote = Remote::with_card(card).await;
        for method in ["SendMessage", "message/send"] {
            remote.says(method, Answer::status(503, "upstream connect error"));
        }
        let caller = Caller::knowing("quinn", &remote.agent()).await;
        let id = begin(&caller).await;
        let task = caller.api().task_when(&id, is_terminal).await;
        assert_eq!(state(&task), "FAILED", "{task:#}");
        let said = text(&task, "/status/message/parts/0/text");
        assert!(said.contains("503") && said.contains("may have taken the message"), "{said}");
        assert_eq!(count(&remote, "SendMessage") + count(&remote, "message/send"), 1, "{:?}", remote.methods());
    }
}

/// An answer that may be another one later does not settle what is owed.
#[tokio::test]
async fn the_cancel_of_an_unanswered_message_is_owed_until_the_remote_has_listed_its_tasks() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::hangs());
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    remote.says("ListTasks", Answer::status(500, "out of order"));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    remote.until_called("ListTasks", 1).await;
    let large = Answer::Plain(200, vec![("content-type", "application/json".to_owned())], vec![b' '; 9 << 20]);
    remote.on("ListTasks", [Answer::status(401, "who?"), large, listed(&message_id)]);
    remote.until_called("CancelTask", 1).await;
    let sizes: Vec<Value> = remote
        .calls()
        .iter()
        .filter(|call| call.rpc() == "ListTasks")
        .map(|call| call.params()["pageSize"].clone())
        .collect();
    let [.., large, smaller] = &sizes[..] else { panic!("{sizes:?}") };
    assert!(smaller.as_u64() < large.as_u64(), "a page that is too large is asked for in part: {sizes:?}");
    assert_eq!(count(&remote, "CancelTask"), 1);
}

#[tokio::test]
async fn a_task_without_history_does_not_hide_the_one_with_the_message() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::hangs());
    remote.says("ListTasks", Answer::status(503, "busy"));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    let foreign = page(&json!([task_10("rt-other", "rc-2", "WORKING", "")]), "page-2");
    // The message may also arrive after the remote was asked for the first time.
    let nothing_yet = page(&json!([task_10("rt-other", "rc-2", "WORKING", "")]), "");
    remote.on("ListTasks", [nothing_yet, foreign, listed(&message_id)]);
    remote.until_called("CancelTask", 1).await;
    let calls = remote.calls();
    let cancel = calls.iter().find(|call| call.rpc() == "CancelTask").unwrap();
    assert_eq!(cancel.params()["id"], "rt-1");
}

/// A server remembers a key for a day from the first attempt on, however often the message is sent again.
#[tokio::test]
async fn a_message_whose_key_may_be_forgotten_is_asked_for_before_it_is_sent_again() {
    let remote = Remote::with_card(keyed_card).await;
    remote.says("SendMessage", Answer::closes());
    remote.says("ListTasks", Answer::status(503, "busy"));
    remote.says("GetTask", Answer::Result(task_10("rt-1", "rc-1", "COMPLETED", "done")));
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let setup = Setup::new().yaml(&yaml);
    let clock = setup.home().write("clock", "0");
    let caller = setup.env("SB_CLOCK", &clock).start().await;
    caller.knows("quinn").await;
    let id = begin(&caller).await;
    remote.until_called("SendMessage", 1).await;
    let after_hours = |hours: u64| caller.home.write("clock", (hours * 3_600_000).to_string());
    after_hours(7);
    // An attempt that is under way has read the clock before.
    let sends = count(&remote, "SendMessage");
    remote.until_called("SendMessage", sends + 2).await;
    assert_eq!(count(&remote, "ListTasks"), 0, "the key is remembered");
    after_hours(14);
    remote.until_called("ListTasks", 1).await;
    let sends = count(&remote, "SendMessage");
    remote.says("ListTasks", listed(text(remote.calls()[0].message(), "/messageId")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(count(&remote, "SendMessage"), sends, "{:?}", remote.methods());
}

/// Pages with 10,000 newer tasks of others.
fn many_others() -> Vec<Answer> {
    let mut task = task_10("rt-other", "rc-2", "COMPLETED", "");
    task["history"] = json!([{"messageId": "other", "role": "ROLE_USER", "parts": [{"text": "other"}]}]);
    let tasks = json!(vec![task; 100]);
    (0..100).map(|n| page(&tasks, &format!("page-{}", n + 2))).collect()
}

#[tokio::test]
async fn a_message_behind_more_tasks_than_are_looked_through_at_once_is_found() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::closes());
    remote.says("ListTasks", Answer::status(503, "busy"));
    remote.says("GetTask", Answer::Result(task_10("rt-1", "rc-1", "COMPLETED", "done")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("ListTasks", 1).await;
    let message_id = text(remote.calls()[0].message(), "/messageId").to_owned();
    remote.on("ListTasks", many_others().into_iter().chain([listed(&message_id)]));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(count(&remote, "SendMessage"), 1, "{:?}", remote.methods());
    let calls = remote.calls();
    let last = calls.iter().rfind(|call| call.rpc() == "ListTasks").unwrap();
    assert_eq!(last.params()["pageToken"], "page-101", "it goes on where it was");
}

/// It has refused to work. What it refuses for lack of room it has not taken.
#[tokio::test]
async fn a_remote_with_too_much_to_do_gets_the_message_until_it_takes_it() {
    let exhausted = json!({"code": -32000, "message": "too many", "data": [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RESOURCE_EXHAUSTED", "domain": "a2a-protocol.org"}
    ]});
    let exhausted = json!({"jsonrpc": "2.0", "id": "$id", "error": exhausted}).to_string().into_bytes();
    let json = vec![("content-type", "application/json".to_owned())];
    for refused in [Answer::status(429, "too many"), Answer::Plain(200, json, exhausted)] {
        let remote = Remote::with_card(card_10).await;
        remote.on("SendMessage", [refused.clone(), refused.clone(), done_10()]);
        let caller = Caller::knowing("quinn", &remote.agent()).await;
        let id = begin(&caller).await;
        let task = caller.api().task_when(&id, is_terminal).await;
        assert_eq!(state(&task), "COMPLETED", "{refused:?}: {task:#}");
        assert_eq!(remote.methods(), ["SendMessage"; 3], "{refused:?}");
    }
}

#[tokio::test]
async fn a_call_of_the_tool_whose_answer_is_lost_is_canceled() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::closes().later(Duration::from_millis(300)));
    remote.says("ListTasks", page(&json!([]), ""));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Setup::new().json(&json!({"weatherbot": {"url": remote.agent()}})).start().await;
    let called = async {
        remote.until_called("SendMessage", 1).await;
        remote.says("ListTasks", listed(text(remote.calls()[0].message(), "/messageId")));
    };
    let (answer, ()) = tokio::join!(caller.a2a("call weatherbot hello"), called);
    assert!(answer.contains("cannot be reached"), "{answer}");
    remote.until_called("CancelTask", 1).await;
}

#[tokio::test]
async fn a_message_that_arrives_after_its_connection_broke_is_not_sent_again() {
    let remote = Remote::with_card(streaming_card_10).await;
    remote.says("SendStreamingMessage", Answer::closes());
    remote.says("ListTasks", page(&json!([]), ""));
    remote.says("GetTask", Answer::Result(task_10("rt-1", "rc-1", "COMPLETED", "done")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    remote.until_called("ListTasks", 1).await;
    let message_id = text(remote.calls()[0].message(), "/messageId").to_owned();
    remote.says("ListTasks", listed(&message_id));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(remote.methods(), ["SendStreamingMessage", "ListTasks", "ListTasks", "GetTask"]);
}

#[tokio::test]
async fn a_remote_that_never_has_the_message_gets_it_a_few_times_and_no_more() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::closes());
    remote.says("ListTasks", page(&json!([]), ""));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    assert!(text(&task, "/status/message/parts/0/text").contains("may have taken the message"), "{task:#}");
    assert_eq!(count(&remote, "SendMessage"), 3, "{:?}", remote.methods());
}

#[tokio::test]
async fn tasks_wait_while_the_circuit_is_open_and_none_fails() {
    let remote = completing("done").await;
    let base = remote.base.clone();
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    drop(remote);
    // More than the failures that open the circuit, one after the other.
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(begin(&caller).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    caller.remote_when("quinn", |remote| remote["breaker"] != "closed").await;
    ids.push(begin(&caller).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    for id in &ids {
        let task = caller.api().task(id).await;
        assert!(!is_terminal(state(&task)), "{task:#}");
    }
    let remote = Remote::again(&base).await;
    remote.has_card(&card_03(&remote.agent()));
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    for id in &ids {
        let task = caller.api().task_when(id, is_terminal).await;
        assert_eq!(state(&task), "COMPLETED", "{task:#}");
    }
    assert_eq!(remote.calls().len(), ids.len(), "{:?}", remote.methods());
    assert_eq!(caller.remote("quinn").await["breaker"], "closed");
}

#[tokio::test]
async fn a_message_that_cannot_be_delivered_in_time_has_failed() {
    let yaml = "agents:\n  - {name: quinn, url: \"http://127.0.0.1:9/a2a\"}\n";
    let caller = Setup::new().yaml(yaml).env("SB_OUTBOUND_DELIVER_FOR", "2s").start().await;
    caller.remote_when("quinn", |_| true).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    let said = text(&task, "/status/message/parts/0/text");
    assert!(said.contains("cannot be reached") && said.contains("not delivered within 2 s"), "{said}");
}

#[tokio::test]
async fn failing_calls_of_one_tenant_close_a_remote_for_that_tenant_alone() {
    let remote = completing("").await;
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let token = "sb_test-token-of-the-tenant-second-00";
    caller.home.add_tenant("second", token).await;
    let second = caller.api().with_token(Some(token));
    remote.says("message/send", Answer::status(500, "out of order"));
    let work = json!({"agent": "quinn", "message": "work"});
    for _ in 0..6 {
        second.post("/v1/chat", &work).await;
    }
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "fine")));
    assert_eq!(caller.asks("quinn", "work").await["response"], "fine");
    // The operator is shown the worst of the circuits.
    assert_ne!(caller.remote("quinn").await["breaker"], "closed");
    let shown = caller.api().get("/v1/remotes/quinn").await.ok();
    assert_eq!(shown["breaker"], "closed", "a tenant is shown its own: {shown:#}");
}

#[tokio::test]
async fn slow_calls_of_one_tenant_leave_room_for_the_others() {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::hangs());
    let caller = Setup::new().json(&json!({"weatherbot": {"url": remote.agent()}})).start().await;
    let token = "sb_test-token-of-the-tenant-second-00";
    caller.home.add_tenant("second", token).await;
    let second = caller.api().with_token(Some(token));
    let line = json!({"line": "call weatherbot hello"});
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (second, line) = (second.clone(), line.clone());
        slow.spawn(async move { second.post("/v1/remotes/a2a", &line).await });
    }
    remote.until_called("message/send", 32).await;
    let refused = second.post("/v1/remotes/a2a", &line).await.ok();
    assert!(text(&refused, "/text").contains("as many calls as it may have at once"), "{refused:#}");
    remote.says("message/send", Answer::Result(task_03("t-1", "c-1", "completed", "sunny")));
    assert_eq!(caller.a2a("call weatherbot hello").await, "sunny");
}

/// An event of a stream with its number.
fn numbered(number: u32, result: &Value) -> Step {
    Step::Bytes(format!("id: {number}\ndata: {}\n\n", json!({"jsonrpc": "2.0", "id": "$id", "result": result})).into())
}

#[tokio::test]
async fn a_stream_that_has_nothing_after_the_last_event_is_not_followed_for_ever() {
    let remote = Remote::with_card(|url| {
        let mut card = keyed_card(url);
        card["capabilities"]["streaming"] = json!(true);
        card
    })
    .await;
    let working = json!({"task": task_10("rt-1", "rc-1", "WORKING", "done")});
    let status = json!({"taskId": "rt-1", "contextId": "rc-1", "status": {"state": "TASK_STATE_COMPLETED"}});
    remote.says("SendStreamingMessage", Answer::Stream(vec![numbered(1, &working)]));
    // It is followed anew from its begin, and what is known of it is compared with the whole task at its end. That fails once.
    let ends = Answer::Stream(vec![numbered(3, &json!({"statusUpdate": status}))]);
    remote.on("SubscribeToTask", [Answer::Refused(-32004, "not now"), ends, Answer::Stream(Vec::new())]);
    let [before, after] = ["WORKING", "COMPLETED"].map(|state| Answer::Result(task_10("rt-1", "rc-1", state, "done")));
    remote.on("GetTask", [before, Answer::status(503, "busy"), after]);
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let id = begin(&caller).await;
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{:?}", remote.methods());
}

/// Cancels a task whose message was sent and not answered.
async fn cancel_unanswered(caller: &Caller, remote: &Remote) -> String {
    let id = begin(caller).await;
    remote.until_called("SendMessage", 1).await;
    caller.api().post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    text(remote.calls()[0].message(), "/messageId").to_owned()
}

#[tokio::test]
async fn a_message_that_was_not_answered_is_found_behind_newer_tasks_and_canceled() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::hangs());
    remote.says("ListTasks", Answer::status(503, "busy"));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    remote.on("ListTasks", [others("page-2"), others("page-3"), listed(&message_id)]);
    remote.until_called("CancelTask", 1).await;
    let calls = remote.calls();
    let cancel = calls.iter().find(|call| call.rpc() == "CancelTask").unwrap();
    assert_eq!(cancel.params()["id"], "rt-1");
    let tokens: Vec<&str> = calls
        .iter()
        .filter(|call| call.rpc() == "ListTasks")
        .map(|call| call.params()["pageToken"].as_str().unwrap_or_default())
        .collect();
    assert!(tokens.ends_with(&["", "page-2", "page-3"]), "{tokens:?}");
}

#[tokio::test]
async fn a_search_that_is_cut_off_goes_on_where_it_was() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::hangs());
    remote.says("ListTasks", Answer::status(503, "busy"));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    let busy = Answer::status(503, "busy");
    remote.on("ListTasks", [others("page-2"), others("page-3"), busy, listed(&message_id)]);
    remote.until_called("CancelTask", 1).await;
    let calls = remote.calls();
    let lists = calls.iter().filter(|call| call.rpc() == "ListTasks");
    let tokens: Vec<&str> = lists.map(|call| call.params()["pageToken"].as_str().unwrap_or_default()).collect();
    assert!(tokens.ends_with(&["", "page-2", "page-3", "page-3"]), "{tokens:?}");
}

#[tokio::test]
async fn the_cancel_of_a_message_that_arrives_late_is_still_owed() {
    let remote = Remote::with_card(card_10).await;
    remote.says("SendMessage", Answer::hangs());
    remote.says("ListTasks", page(&json!([]), ""));
    remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    let message_id = cancel_unanswered(&caller, &remote).await;
    remote.until_called("ListTasks", 1).await;
    remote.says("ListTasks", listed(&message_id));
    remote.until_called("CancelTask", 1).await;
}

#[tokio::test]
async fn the_cancel_of_a_message_that_arrives_late_is_still_owed_when_the_wall_clock_jumps() {
    for jump in ["90000000", "-3600000"] {
        let remote = Remote::with_card(card_10).await;
        remote.says("SendMessage", Answer::hangs());
        remote.says("ListTasks", page(&json!([]), ""));
        remote.says("CancelTask", Answer::Result(task_10("rt-1", "rc-1", "CANCELED", "")));
        let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
        let setup = Setup::new().yaml(&yaml);
        let clock = setup.home().write("clock", "0");
        let caller = setup.env("SB_CLOCK", &clock).start().await;
        caller.knows("quinn").await;
        let id = begin(&caller).await;
        remote.until_called("SendMessage", 1).await;
        caller.home.write("clock", jump);
        caller.api().post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
        remote.until_called("ListTasks", 2).await;
        remote.says("ListTasks", listed(text(remote.calls()[0].message(), "/messageId")));
        remote.until_called("CancelTask", 1).await;
    }
}

#[tokio::test]
async fn a_wall_clock_that_jumps_ends_no_tracking() {
    let remote = completing("").await;
    let working = Answer::Result(task_03("rt-1", "rc-1", "working", ""));
    remote.says("message/send", working.clone());
    remote.says("tasks/get", working);
    let yaml = format!("agents:\n  - {{name: quinn, url: \"{}\"}}\n", remote.agent());
    let setup = Setup::new().yaml(&yaml).env("SB_OUTBOUND_QUIET", "300ms");
    let clock = setup.home().write("clock", "0");
    let setup = setup.env("SB_CLOCK", &clock);
    let caller = setup.start().await;
    caller.knows("quinn").await;
    let id = begin(&caller).await;
    let looks = |remote: &Remote| count(remote, "tasks/get");
    remote.until_called("tasks/get", 2).await;
    // A day and an hour, in milliseconds.
    caller.home.write("clock", "90000000");
    let before = looks(&remote);
    remote.until_called("tasks/get", before + 3).await;
    let task = caller.api().task(&id).await;
    assert!(!is_terminal(state(&task)), "{task:#}");
    remote.says("tasks/get", Answer::Result(task_03("rt-1", "rc-1", "completed", "done")));
    let task = caller.api().task_when(&id, is_terminal).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "done"), "{task:#}");
    assert_eq!(count(&remote, "tasks/cancel"), 0);
}
