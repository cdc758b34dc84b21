//! Notifications: told in order and at least once, given up after so many attempts, and nobody waits for a receiver.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::rig;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use a2a::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, ErrorKind, GetTaskPushNotificationConfigRequest, Part,
    SendMessageConfiguration, TaskPushNotificationConfig, TaskState,
};
use async_trait::async_trait;
use exchange::{
    Call, Options, Outcome, ReplyMode,
    push::{Answer, Carrier, KeyError, Parcel, PushOptions},
};
use rig::{Place, Rig, agent, message, task_of};
use serde_json::Value;
use store::{PushState, Replay, TaskId, TenantId};
use tokio::sync::Semaphore;

/// A carrier whose receivers are by the host of the URL, and do what they are told.
#[derive(Default)]
struct Post {
    got: Mutex<Vec<Got>>,
    /// The answers of a host, the last one for ever; 0 is none at all. A host that is not here answers 200.
    answers: Mutex<HashMap<String, Vec<u16>>>,
    /// Hosts that answer nothing before they may.
    silent: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// How many wait for those now.
    waiting: Arc<AtomicUsize>,
}

/// One that waits, until it does not.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Got {
    host: String,
    headers: HashMap<String, String>,
    body: Value,
    raw: Vec<u8>,
}

#[async_trait]
impl Carrier for Post {
    async fn receiver(&self, _: TenantId, url: &str) -> Result<String, String> {
        match url.strip_prefix("https://") {
            Some(rest) => Ok(format!("{}:443", rest.split('/').next().unwrap_or_default())),
            None => Err("must begin with https://".to_owned()),
        }
    }

    async fn carry(&self, parcel: Parcel) -> Result<Answer, String> {
        let host = parcel.url["https://".len()..].split('/').next().unwrap().to_owned();
        let headers = parcel.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let body = serde_json::from_slice(&parcel.body).unwrap();
        let raw = parcel.body.to_vec();
        self.got.lock().unwrap().push(Got { host: host.clone(), headers, body, raw });
        let silent = self.silent.lock().unwrap().get(&host).cloned();
        if let Some(silent) = silent {
            let _waits = Waits::new(&self.waiting);
            silent.acquire().await.unwrap().forget();
        }
        let mut answers = self.answers.lock().unwrap();
        let status = match answers.get_mut(&host) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0],
            None => 200,
        };
        if status > 0 { Ok(Answer { status, retry_after: None }) } else { Err("nobody is there".to_owned()) }
    }
}

impl Post {
    fn answers(&self, host: &str, statuses: &[u16]) {
        self.answers.lock().unwrap().insert(host.to_owned(), statuses.to_vec());
    }

    fn silence(&self, host: &str) -> Arc<Semaphore> {
        Arc::clone(self.silent.lock().unwrap().entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    fn at(&self, host: &str) -> Vec<Got> {
        self.got.lock().unwrap().iter().filter(|got| got.host == host).cloned().collect()
    }

    /// What a host was told, in a word each.
    fn told(&self, host: &str) -> Vec<String> {
        self.at(host).iter().map(|got| what(&got.body)).collect()
    }

    async fn until(&self, host: &str, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        for _ in 0..500 {
            let told = self.told(host);
            if enough(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{host} was told only {:?}", self.told(host));
    }
}

fn what(body: &Value) -> String {
    if body["task"].is_object() {
        return "task".to_owned();
    }
    if let Some(state) = body["statusUpdate"]["status"]["state"].as_str() {
        return state.trim_start_matches("TASK_STATE_").to_lowercase();
    }
    body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or("?").to_owned()
}

fn options(post: &Arc<Post>) -> PushOptions {
    PushOptions {
        timeout: Duration::from_secs(5),
        attempts: 4,
        waits: (Duration::from_millis(20), Duration::from_millis(80)),
        ..PushOptions::new(Arc::clone(post) as Arc<dyn Carrier>)
    }
}

async fn rig(push: PushOptions) -> Rig {
    Rig::with(Options { push: Some(push), ..Options::default() }, agents()).await
}

async fn rig_at(place: &Place, push: PushOptions) -> Rig {
    Rig::at(place, Options { push: Some(push), ..Options::default() }, agents()).await
}

fn agents() -> Vec<exchange::Entry> {
    let words = agent("words", |_, out| async move {
        for (word, first) in [("one ", true), ("two", false)] {
            out.text(word, first).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        Outcome::Completed(Vec::new())
    });
    let ask = agent("ask", |turn, _| async move {
        if turn.number == 1 {
            Outcome::InputRequired(vec![Part::text("which?")])
        } else {
            Outcome::Completed(Vec::new())
        }
    });
    let mut direct = agent("direct", |_, _| async { Outcome::Message(message("hi")) });
    direct.profile.reply = ReplyMode::Auto;
    vec![words, ask, direct]
}

fn config(url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig { url: url.to_owned(), ..TaskPushNotificationConfig::default() }
}

async fn send_with(
    rig: &Rig,
    agent: &str,
    config: TaskPushNotificationConfig,
) -> Result<exchange::Sent, exchange::Error> {
    let mut request = rig.request(agent, message("go"));
    let task_push_notification_config = Some(config);
    request.configuration = Some(SendMessageConfiguration { task_push_notification_config, ..Default::default() });
    rig.exchange.send(&rig.call, request).await
}

const DONE: &str = "completed";

fn is_done(told: &[String]) -> bool {
    told.last().is_some_and(|last| last == DONE)
}

#[tokio::test]
async fn s3_75_a_task_is_told_from_its_begin_to_its_end() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let authentication = Some(AuthenticationInfo { scheme: "Signature".into(), credentials: "abc".into() });
    let sent = send_with(
        &rig,
        "words",
        TaskPushNotificationConfig { token: "tok".into(), authentication, ..config("https://h/x") },
    );
    let task = task_of(&sent.await.unwrap());
    assert_eq!(post.until("h", is_done).await, ["task", "working", "one two", "completed"]);
    let got = post.at("h");
    let mut ids: Vec<&String> = got.iter().map(|got| &got.headers["webhook-id"]).collect();
    assert!(ids.iter().all(|id| id.starts_with(&format!("msg_{}_", task.id)) && !id.contains('.')), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 4);
    for got in &got {
        assert_eq!(got.headers["content-type"], "application/a2a+json");
        assert_eq!(got.headers["authorization"], "Signature abc");
        assert_eq!(
            (&got.headers["x-a2a-notification-token"], &got.headers["a2a-notification-token"]),
            (&"tok".into(), &"tok".into())
        );
        assert!(got.headers["webhook-signature"].starts_with("v1,") && got.headers.contains_key("webhook-timestamp"));
    }
}

#[tokio::test]
async fn secrets_are_written_and_never_read() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let task = task_of(&rig.send("ask", message("go")).await.unwrap()).id;
    let authentication = Some(AuthenticationInfo { scheme: "Bearer".into(), credentials: "canary-credentials".into() });
    let new = TaskPushNotificationConfig {
        task_id: task.clone(),
        token: "canary-token".into(),
        authentication,
        ..config("https://h/x")
    };
    let made = rig.exchange.create_push(&rig.call, new).await.unwrap();
    let get =
        GetTaskPushNotificationConfigRequest { task_id: task.clone(), id: made.id.clone(), tenant: String::new() };
    let read = rig.exchange.get_push(&rig.call, get).await.unwrap();
    assert_eq!(made, read);
    assert!(!format!("{made:?}").contains("canary"), "{made:?}");
    assert_eq!(made.authentication.unwrap().scheme, "Bearer");
    let stored =
        rig.store.push(rig.call.caller.tenant, TaskId::parse(&task).unwrap(), &made.id).await.unwrap().unwrap();
    assert!(!stored.config.sealed.is_empty() && !String::from_utf8_lossy(&stored.config.sealed).contains("canary"));
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let task = task_of(&rig.send("ask", message("go")).await.unwrap()).id;
    let new = |config: TaskPushNotificationConfig| TaskPushNotificationConfig { task_id: task.clone(), ..config };
    let with = |scheme: &str, credentials: &str| TaskPushNotificationConfig {
        authentication: Some(AuthenticationInfo { scheme: scheme.into(), credentials: credentials.into() }),
        ..config("https://h/x")
    };
    for (wrong, field) in [
        (config(""), "url"),
        (config("ftp://h"), "url"),
        (TaskPushNotificationConfig { token: "a\r\nb: c".into(), ..config("https://h") }, "token"),
        (TaskPushNotificationConfig { token: "é".into(), ..config("https://h") }, "token"),
        (with("", "x"), "authentication.scheme"),
        (with("Bear er", "x"), "authentication.scheme"),
        (with("Bearer", "a\nb"), "authentication.credentials"),
        (TaskPushNotificationConfig { id: "a\nb".into(), ..config("https://h") }, "id"),
    ] {
        let error: a2a::Error = rig.exchange.create_push(&rig.call, new(wrong.clone())).await.unwrap_err().into();
        assert_eq!(error.violations[0].field, field, "{wrong:?}");
        let total = rig.total().await;
        let error: a2a::Error = send_with(&rig, "words", wrong.clone()).await.unwrap_err().into();
        let inline = format!("configuration.taskPushNotificationConfig.{field}");
        assert_eq!(error.violations[0].field, inline, "{wrong:?}");
        assert_eq!(rig.total().await, total, "a message that is refused makes no task");
    }
    let other = TaskPushNotificationConfig { task_id: TaskId::mint().to_string(), ..config("https://h") };
    assert_eq!(rig.exchange.create_push(&rig.call, other.clone()).await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(send_with(&rig, "words", other).await.unwrap_err().kind(), ErrorKind::InvalidParams);
    let stranger = rig.other_tenant().await;
    let theirs = rig.exchange.create_push(&stranger, new(config("https://h/x"))).await.unwrap_err();
    assert_eq!(theirs.kind(), ErrorKind::TaskNotFound);
}

#[tokio::test]
async fn s3_74_a_failing_receiver_is_tried_again_with_the_same_id() {
    let post = Arc::new(Post::default());
    post.answers("h", &[500, 0, 429, 200]);
    let rig = rig(options(&post)).await;
    let sent = send_with(&rig, "words", config("https://h/x")).await.unwrap();
    assert_eq!(task_of(&sent).status.state, TaskState::Completed, "the task does not notice");
    let told = post.until("h", is_done).await;
    assert_eq!(told, ["task", "task", "task", "task", "working", "one two", "completed"]);
    let got = post.at("h");
    assert!(got[1..4].iter().all(|again| again.headers["webhook-id"] == got[0].headers["webhook-id"]));
    let id = task_of(&sent).id;
    let outbox = rig.exchange.outbox(&rig.call.caller, &id, &id).await.unwrap();
    let tried: Vec<_> =
        outbox.record.attempts.iter().map(|it| (it.place.seq, it.status, it.outcome.as_str())).collect();
    let expected =
        [(1, Some(500), "put off"), (1, None, "unreachable"), (1, Some(429), "put off"), (1, Some(200), "delivered")];
    assert_eq!(tried[..4], expected);
    assert!(outbox.record.letters.is_empty());
}

#[tokio::test]
async fn what_was_given_up_is_a_dead_letter_and_can_be_sent_again() {
    let post = Arc::new(Post::default());
    // Four attempts at the first, then a refusal that is final.
    post.answers("h", &[503, 503, 503, 503, 400, 200]);
    let rig = rig(options(&post)).await;
    let id = task_of(&send_with(&rig, "words", config("https://h/x")).await.unwrap()).id;
    post.until("h", is_done).await;
    let caller = &rig.call.caller;
    let letters = |outbox: &store::PushConfig| {
        outbox.record.letters.iter().map(|it| (it.place.seq, it.attempts, it.outcome.clone())).collect::<Vec<_>>()
    };
    let outbox = until_idle(&rig, &id).await;
    assert_eq!(letters(&outbox), [(1, 4, "HTTP 503".to_owned()), (2, 1, "HTTP 400".to_owned())]);
    let first = post.at("h")[0].clone();
    // It fails once more, and is a dead letter again; then it works.
    post.answers("h", &[400]);
    assert_eq!(rig.exchange.replay(caller, &id, &id, Replay::Event(1)).await.unwrap(), 1);
    post.until("h", |told| told.len() == 8).await;
    assert_eq!(letters(&until_idle(&rig, &id).await).len(), 2);
    post.answers("h", &[200]);
    assert_eq!(rig.exchange.replay(caller, &id, &id, Replay::All).await.unwrap(), 2);
    let told = post.until("h", |told| told.len() == 10).await;
    assert_eq!(told[8..], ["task", "working"]);
    let again = post.at("h")[8].clone();
    assert_eq!((&again.headers["webhook-id"], &again.body), (&first.headers["webhook-id"], &first.body));
    assert!(letters(&until_idle(&rig, &id).await).is_empty());
    assert_eq!(rig.exchange.replay(caller, &id, &id, Replay::All).await.unwrap(), 0);
    let missing = rig.exchange.replay(caller, &id, "nothing", Replay::All).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::TaskNotFound);
}

async fn until_idle(rig: &Rig, id: &str) -> store::PushConfig {
    for _ in 0..500 {
        let outbox = rig.exchange.outbox(&rig.call.caller, id, id).await.unwrap();
        if outbox.due.is_none() {
            return outbox;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never rests");
}

#[tokio::test]
async fn who_is_gone_is_told_no_more() {
    let post = Arc::new(Post::default());
    post.answers("h", &[200, 410]);
    let rig = rig(options(&post)).await;
    let id = task_of(&send_with(&rig, "words", config("https://h/x")).await.unwrap()).id;
    let outbox = until_idle(&rig, &id).await;
    assert_eq!((outbox.state, outbox.told.seq), (PushState::Gone, 1));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(post.told("h"), ["task", "working"]);
    // Whoever comes back goes on where it was.
    post.answers("h", &[200]);
    rig.exchange.replay(&rig.call.caller, &id, &id, Replay::All).await.unwrap();
    assert_eq!(post.until("h", is_done).await[2..], ["working", "one two", "completed"]);
}

#[tokio::test]
async fn s3_76_a_deleted_configuration_is_told_nothing_more() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let id = task_of(&send_with(&rig, "ask", config("https://h/x")).await.unwrap()).id;
    post.until("h", |told| told.last().is_some_and(|last| last == "input_required")).await;
    let delete = DeleteTaskPushNotificationConfigRequest { task_id: id.clone(), id: id.clone(), tenant: String::new() };
    for _ in 0..2 {
        rig.exchange.delete_push(&rig.call, delete.clone()).await.unwrap();
    }
    let mut more = message("this");
    more.task_id.clone_from(&id);
    assert_eq!(task_of(&rig.send("ask", more).await.unwrap()).status.state, TaskState::Completed);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(post.told("h"), ["task", "working", "input_required"]);
}

#[tokio::test]
async fn a_configuration_is_told_what_comes_after_it() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let id = task_of(&rig.send("ask", message("go")).await.unwrap()).id;
    let new = TaskPushNotificationConfig { task_id: id.clone(), ..config("https://h/x") };
    rig.exchange.create_push(&rig.call, new).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(post.told("h").is_empty());
    let mut more = message("this");
    more.task_id.clone_from(&id);
    rig.send("ask", more).await.unwrap();
    assert_eq!(post.until("h", is_done).await, ["working", "completed"]);
}

#[tokio::test]
async fn a_direct_reply_is_for_its_caller_alone() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let sent = send_with(&rig, "direct", config("https://h/x")).await.unwrap();
    assert!(matches!(sent.reply, exchange::Reply::Direct(_)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(post.told("h").is_empty());
}

#[tokio::test]
async fn who_asked_for_chunks_gets_them() {
    let post = Arc::new(Post::default());
    let rig = rig(options(&post)).await;
    let call = Call { extensions: vec![a2a::PUSH_CHUNKS.to_owned()], ..rig.call.clone() };
    let mut request = rig.request("words", message("go"));
    let task_push_notification_config = Some(config("https://h/x"));
    request.configuration = Some(SendMessageConfiguration { task_push_notification_config, ..Default::default() });
    rig.exchange.send(&call, request).await.unwrap();
    let told = post.until("h", is_done).await;
    let pieces: Vec<&String> = told.iter().filter(|word| ["one ", "two", ""].contains(&word.as_str())).collect();
    assert!(pieces.len() >= 2, "{told:?}");
}

/// A receiver that never answers, with many tasks for it, and one that answers: the other one's come at once.
#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other_and_no_task() {
    let post = Arc::new(Post::default());
    let silence = post.silence("slow");
    let push = PushOptions { slots: 6, per_tenant: 4, per_receiver: 2, ..options(&post) };
    let rig = rig(push).await;
    for _ in 0..20 {
        send_with(&rig, "ask", config("https://slow/x")).await.unwrap();
    }
    send_with(&rig, "words", config("https://quick/x")).await.unwrap();
    assert_eq!(post.until("quick", is_done).await.len(), 4);
    assert_eq!(post.told("slow").len(), 2, "no more at once than one receiver may have");
    // Another tenant has places of its own.
    let mut stranger = rig.clone();
    stranger.call = rig.other_tenant().await;
    send_with(&stranger, "words", config("https://slow/x")).await.unwrap();
    post.until("slow", |told| told.len() == 3).await;
    silence.add_permits(10_000);
    post.until("slow", |told| told.iter().filter(|word| *word == "input_required").count() == 20).await;
}

/// As many receivers that hang as would take all places: those that answer have theirs.
#[tokio::test]
async fn receivers_that_hang_leave_places_to_those_that_answer() {
    let post = Arc::new(Post::default());
    let push = PushOptions {
        timeout: Duration::from_millis(400),
        attempts: 1000,
        slots: 64,
        per_tenant: 8,
        per_receiver: 2,
        ..options(&post)
    };
    let rig = rig(push).await;
    for host in ["s1", "s2", "s3", "s4", "s5", "s6"] {
        post.silence(host);
        for _ in 0..6 {
            send_with(&rig, "ask", config(&format!("https://{host}/x"))).await.unwrap();
        }
    }
    // All places are theirs until it is known that they do not answer.
    let mut most = 0;
    for round in 0..300 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let waiting = post.waiting.load(SeqCst);
        assert!(waiting <= 8, "{waiting}");
        if round >= 150 {
            most = most.max(waiting);
        }
    }
    assert!((1..=4).contains(&most), "{most} of eight places are for those that do not answer");
    send_with(&rig, "ask", config("https://quick/x")).await.unwrap();
    post.until("quick", |told| told.last().is_some_and(|last| last == "input_required")).await;
}

/// The server stops in the middle; another one goes on where it was, with the same ids.
#[tokio::test]
async fn s3_73_another_instance_goes_on() {
    let post = Arc::new(Post::default());
    post.answers("h", &[200, 500]);
    let place = Place::new();
    let first = rig_at(&place, options(&post)).await;
    let id = task_of(&send_with(&first, "words", config("https://h/x")).await.unwrap()).id;
    post.until("h", |told| told.len() >= 2).await;
    first.exchange.shut_down(Duration::from_secs(5)).await;
    first.store.close().await;
    post.answers("h", &[200]);
    let second = rig_at(&place, options(&post)).await;
    let told = post.until("h", is_done).await;
    assert_eq!(told[told.len() - 3..], ["working", "one two", "completed"]);
    let outbox = until_idle(&second, &id).await;
    assert_eq!((outbox.told.seq, outbox.record.letters.len()), (outbox.owed, 0));
}

#[tokio::test]
async fn a_key_file_wraps_the_keys() {
    let post = Arc::new(Post::default());
    let place = Place::new();
    let with = |content: Option<&[u8]>| PushOptions { key_file: content.map(<[u8]>::to_vec), ..options(&post) };
    let plain = rig_at(&place, with(None)).await;
    let secret = plain.exchange.push_secret(&plain.call.caller).await.unwrap().secret;
    let wrapped = rig_at(&place, with(Some(&[1; 32]))).await;
    let kept = wrapped.exchange.push_secret(&wrapped.call.caller).await.unwrap().secret;
    assert_eq!(kept, secret, "they stay the same");
    let store = place.scratch.open().await;
    let stored = String::from_utf8(store.find_setting("push.keys").await.unwrap().unwrap()).unwrap();
    assert!(stored.starts_with("{\"wrapped\""), "{stored}");
    let start = |options: PushOptions| {
        let (store, options) = (Arc::clone(&store), Options { push: Some(options), ..Options::default() });
        async move { exchange::Exchange::start(store, exchange::Agents::default(), options).await.map(drop) }
    };
    assert!(matches!(start(with(None)).await, Err(KeyError::Wrapped)));
    assert!(matches!(start(with(Some(&[2; 32]))).await, Err(KeyError::OtherKey)));
    assert!(start(with(Some(&[1; 32]))).await.is_ok());

    // Another file takes its place where the one before is named. Whichever instance starts first, both have the same keys.
    let rotated = |content: &[u8], previous: &[u8]| PushOptions {
        key_file_previous: Some(previous.to_vec()),
        ..with(Some(content))
    };
    assert!(matches!(start(rotated(&[2; 32], &[3; 32])).await, Err(KeyError::OtherKey)));
    assert!(start(rotated(&[1; 32], &[2; 32])).await.is_ok(), "prepared: nothing is wrapped anew");
    assert!(start(with(Some(&[1; 32]))).await.is_ok());
    let starts = (0..4).map(|_| start(rotated(&[2; 32], &[1; 32])));
    for started in futures_util::future::join_all(starts).await {
        started.unwrap();
    }
    assert!(matches!(start(with(Some(&[1; 32]))).await, Err(KeyError::OtherKey)), "the old file opens nothing");
    assert!(start(rotated(&[2; 32], &[1; 32])).await.is_ok(), "nothing is left to do");
    let renewed = rig_at(&place, with(Some(&[2; 32]))).await;
    let kept = renewed.exchange.push_secret(&renewed.call.caller).await.unwrap().secret;
    assert_eq!(kept, secret, "receivers notice nothing");
}

/// Whether a notification verifies with a secret, as the Standard Webhooks say.
fn verifies(got: &Got, secret: &str) -> bool {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use hmac::Mac;
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{}.{}.", got.headers["webhook-id"], got.headers["webhook-timestamp"]).as_bytes());
    mac.update(&got.raw);
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    got.headers["webhook-signature"].split(' ').any(|one| one == wanted)
}

#[tokio::test]
async fn a_rotated_secret_overlaps_with_the_one_before() {
    let post = Arc::new(Post::default());
    let place = Place::new();
    let rig = rig_at(&place, options(&post)).await;
    let caller = &rig.call.caller;
    let told = async |host: &'static str| {
        send_with(&rig, "words", config(&format!("https://{host}/x"))).await.unwrap();
        post.until(host, is_done).await;
        post.got.lock().unwrap().iter().filter(|got| got.host == host).cloned().collect::<Vec<_>>()
    };
    let first = rig.exchange.push_secret(caller).await.unwrap();
    assert_eq!(first.previous_until, None);
    for got in told("before").await {
        assert!(verifies(&got, &first.secret) && !got.headers["webhook-signature"].contains(' '));
    }
    let second = rig.exchange.rotate_push_secret(caller, None).await.unwrap();
    assert!(second.secret != first.secret && second.previous_until.is_some());
    let shown = rig.exchange.push_secret(caller).await.unwrap();
    assert_eq!((shown.secret, shown.previous_until), (second.secret.clone(), second.previous_until));
    for got in told("overlap").await {
        assert!(verifies(&got, &first.secret) && verifies(&got, &second.secret));
    }
    // At most two count, and without an overlap one.
    let third = rig.exchange.rotate_push_secret(caller, Some(Duration::from_secs(60))).await.unwrap();
    for got in told("third").await {
        assert!(!verifies(&got, &first.secret) && verifies(&got, &second.secret) && verifies(&got, &third.secret));
    }
    let fourth = rig.exchange.rotate_push_secret(caller, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(fourth.previous_until, None);
    for got in told("alone").await {
        assert!(!verifies(&got, &third.secret) && verifies(&got, &fourth.secret));
    }
    let refused = rig.exchange.rotate_push_secret(caller, Some(Duration::MAX)).await;
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::InvalidParams));
    let store = place.scratch.open().await;
    let audit = store.audit(None, 10).await.unwrap();
    assert_eq!(audit.iter().filter(|entry| entry.detail.contains("push.signing")).count(), 3, "{audit:?}");
}

#[tokio::test]
async fn nothing_is_sent_where_nobody_is_to_send() {
    let rig = Rig::new(vec![agent("words", |_, _| async { Outcome::Completed(Vec::new()) })]).await;
    assert!(!rig.exchange.has_push());
    let refused = send_with(&rig, "words", config("https://h/x")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PushNotificationNotSupported);
}
