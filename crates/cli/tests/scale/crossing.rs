//! What is begun on one instance and goes on on another: streams, cancels, repeated messages, page tokens, revoked tokens.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::postgres::Database;

use super::{
    http::{Api, array, fresh, state, text, to, to_at_once, with_json},
    rig::{ADMIN_TOKEN, Server, Setting, TOKEN},
    sse::Frame,
};

/// A token is refused at most so long after it was revoked elsewhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(3);

/// A turn that was told to stop has this long; `cancel_grace` of these tests.
const GRACE: Duration = Duration::from_secs(5);

/// A subscriber of B follows a task that runs on A, across A's death. The instances left over hear of it by `setting`'s
/// wake-ups, if any.
pub(crate) async fn follow_across_a_takeover(setting: &Setting) {
    let [mut a, b, c]: [Server; 3] = setting.start_all().await;
    let task = a.api().send(&to_at_once("stream", "100 30")).await;
    let id = text(&task, "/id");
    // Words wait a moment before they are out. Without wake-ups who came before them would look again when it is all over.
    while super::http::artifact_text(&a.api().task(id).await).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut stream = b.api().subscribe(id, Some(0)).await;
    let mut frames = stream.until(|frame| !frame.artifact_text().is_empty()).await;
    a.kill9();
    frames.extend(stream.rest().await);

    assert!(frames.last().is_some_and(Frame::is_end), "{frames:#?}");
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    let log = c.api().subscribe(id, Some(0)).await.rest().await;
    assert_eq!(frames, log, "what B's subscriber saw is the log");
    assert_eq!(ids, (1..=frames.len() as u64).collect::<Vec<_>>(), "nothing is missing, nothing comes twice");
    let attempts = frames.iter().filter(|frame| frame.state() == Some("WORKING")).count();
    assert_eq!(attempts, 2, "it was taken over once");
    assert_eq!(frames.iter().filter(|frame| frame.is_end()).count(), 1);
    let expected: String = (1..=100).map(|n| format!("chunk {n} of 100\n")).collect();
    assert_eq!(super::http::artifact_text(&b.api().task(id).await), expected, "the second attempt replaced the first");
}

/// A cancel on B stops the work on A, in much less than the time that A's turn would be given to ignore it.
pub(crate) async fn cancel_elsewhere(a: &Api, b: &Api, within: Duration) {
    let task = a.send(&to_at_once("slow", "60000")).await;
    let id = text(&task, "/id");
    let begun = Instant::now();
    let canceled = b.post_empty(&format!("/a2a/tasks/{id}:cancel")).await.ok();
    assert_eq!(state(&canceled), "CANCELED");
    assert!(begun.elapsed() < within, "it took {:?}", begun.elapsed());
    let log = a.subscribe(id, Some(0)).await.rest().await;
    assert_eq!(log.iter().filter(|frame| frame.is_end()).count(), 1, "{log:#?}");
    assert_eq!(log.last().and_then(Frame::state), Some("CANCELED"));
}

/// The same message on A and on B, one after the other and at once.
pub(crate) async fn repeat_elsewhere(a: &Api, b: &Api) {
    let request = |context: &str| {
        let mut request = to("stream", "5 20");
        request["message"]["contextId"] = json!(context);
        request["message"]["messageId"] = json!("m");
        request
    };
    let context = format!("context-{}", fresh());
    let first = a.send(&request(&context)).await;
    let second = b.send(&request(&context)).await;
    assert_eq!(first, second);
    let context = format!("context-{}", fresh());
    let one = request(&context);
    let (first, second) = tokio::join!(a.send(&one), b.send(&one));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(b.get(&format!("/a2a/tasks?contextId={context}")).await.ok()["totalSize"], 1);
}

async fn turn_pages_elsewhere(a: &Api, b: &Api) {
    let context = format!("context-{}", fresh());
    for n in 0..5 {
        let mut request = to("echo", "hello");
        request["message"]["contextId"] = json!(context);
        request["message"]["messageId"] = json!(format!("m-{n}"));
        a.send(&request).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        array(page, "/tasks").iter().map(|task| text(task, "/id").to_owned()).collect()
    };
    let path = format!("/a2a/tasks?contextId={context}&pageSize=2");
    let whole = ids(&a.get(&format!("/a2a/tasks?contextId={context}")).await.ok());
    assert_eq!(whole.len(), 5);
    let mut found = Vec::new();
    let mut page = a.get(&path).await.ok();
    for api in [b, a, b] {
        found.extend(ids(&page));
        let token = text(&page, "/nextPageToken").to_owned();
        if token.is_empty() {
            break;
        }
        page = api.get(&format!("{path}&pageToken={token}")).await.ok();
    }
    assert_eq!(found, whole);
}

async fn revoke_elsewhere(a: &Api, b: &Api) {
    let admin = a.with_token(Some(ADMIN_TOKEN));
    let tenants = admin.get("/v1/admin/tenants").await.ok();
    let tenant = &tenants["tenants"][0]["id"];
    let tokens =
        format!("/v1/admin/tenants/{}/tokens", tenant.as_str().map_or_else(|| tenant.to_string(), str::to_owned));
    let made = admin.post(&tokens, &json!({"name": "short-lived"})).await;
    assert_eq!(made.status, 201, "{}", made.shown());
    let made = made.json();
    let token = text(&made, "/token");
    let (with_a, with_b) = (a.with_token(Some(token)), b.with_token(Some(token)));
    assert_eq!(with_a.get("/a2a/tasks").await.status, 200);
    assert_eq!(with_b.get("/a2a/tasks").await.status, 200);
    let id = made["id"].as_str().map_or_else(|| made["id"].to_string(), str::to_owned);
    let revoked = admin.call(admin.request(Method::DELETE, &format!("{tokens}/{id}"))).await;
    assert!(revoked.status < 300, "{}", revoked.shown());
    let begun = Instant::now();
    assert_eq!(with_a.get("/a2a/tasks").await.status, 401, "at once where it was revoked");
    while with_b.get("/a2a/tasks").await.status != 401 {
        assert!(begun.elapsed() < REVOKED_WITHIN, "B still takes it after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(b.with_token(Some(TOKEN)).get("/a2a/tasks").await.status, 200, "other tokens live on");
}

/// A question that A has asked is answered on B.
pub(crate) async fn continue_elsewhere(a: &Api, b: &Api) {
    let asked = a.send(&to("ask", "start")).await;
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let mut answer = super::http::answer(text(&asked, "/id"), "my answer");
    answer["message"]["messageId"] = json!("second");
    let done = b.send(&answer).await;
    assert_eq!(state(&done), "COMPLETED");
    let repeated = a.call(with_json(a.request(Method::POST, "/a2a/message:send"), &answer)).await.task();
    assert_eq!(repeated, done, "and repeated on A it is the same answer");
}

#[tokio::test]
async fn a_subscriber_follows_across_a_takeover() {
    let database = Database::create();
    follow_across_a_takeover(&Setting::on(database.url())).await;
}

#[tokio::test]
async fn any_instance_serves_any_request() {
    let database = Database::create();
    let setting = Setting::on(database.url()).with_config("cancel_grace = \"5s\"\n");
    let [a, b]: [Server; 2] = setting.start_all().await;
    let (a, b) = (a.api(), b.api());
    // The agent sees the cancel and ends by itself, long before anyone would end it by force.
    cancel_elsewhere(&a, &b, GRACE - Duration::from_secs(2)).await;
    repeat_elsewhere(&a, &b).await;
    continue_elsewhere(&a, &b).await;
    turn_pages_elsewhere(&a, &b).await;
    revoke_elsewhere(&a, &b).await;
}
