//! Work that begins on one instance and goes on on another, with wake-ups, without, and while they come and go.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    http::{Api, answer, array, artifact_text, fresh, state, text, to, to_at_once, with_json},
    sse::Frame,
};
use crate::{
    chaos::{ADMIN_TOKEN, Installation, Nats, attempts, readiness},
    harness::{Server, TOKEN},
};

/// A token is refused at most so long after it was revoked elsewhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(3);

/// The time that a canceled turn has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A subscriber of B follows a task that runs on A, across A's death.
async fn follow_across_a_takeover(installation: &Installation) {
    let [mut a, b, c]: [Server; 3] = installation.start_all().await;
    let task = a.api().send(&to_at_once("stream", "100 30")).await;
    let id = text(&task, "/id");
    // Without wake-ups a subscriber that came before the first words would look again when it is all over.
    while artifact_text(&a.api().task(id).await).is_empty() {
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
    assert_eq!(attempts(&frames), 2, "it was taken over once");
    assert_eq!(frames.iter().filter(|frame| frame.is_end()).count(), 1);
    let expected: String = (1..=100).map(|n| format!("chunk {n} of 100\n")).collect();
    assert_eq!(artifact_text(&b.api().task(id).await), expected, "the second attempt replaced the first");
}

/// A cancel on B stops the work on A, in much less than the time that A's turn would be given to ignore it.
async fn cancel_elsewhere(a: &Api, b: &Api, within: Duration) {
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
async fn repeat_elsewhere(a: &Api, b: &Api) {
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
async fn continue_elsewhere(a: &Api, b: &Api) {
    let asked = a.send(&to("ask", "start")).await;
    assert_eq!(state(&asked), "INPUT_REQUIRED");
    let mut reply = answer(text(&asked, "/id"), "my answer");
    reply["message"]["messageId"] = json!("second");
    let done = b.send(&reply).await;
    assert_eq!(state(&done), "COMPLETED");
    let repeated = a.call(with_json(a.request(Method::POST, "/a2a/message:send"), &reply)).await.task();
    assert_eq!(repeated, done, "and repeated on A it is the same answer");
}

/// Two instances, and everything that can cross between them at once.
async fn cross(installation: &Installation, cancel_within: Duration) -> [Server; 2] {
    let servers: [Server; 2] = installation.start_all().await;
    let (a, b) = (servers[0].api(), servers[1].api());
    tokio::join!(cancel_elsewhere(&a, &b, cancel_within), repeat_elsewhere(&a, &b), continue_elsewhere(&a, &b));
    servers
}

#[tokio::test]
async fn a_subscriber_follows_across_a_takeover() {
    // With leases as they are by default, so that the takeover comes from a proof that the instance is dead.
    follow_across_a_takeover(&Installation::on_postgres()).await;
}

#[tokio::test]
async fn any_instance_serves_any_request() {
    let installation = Installation::on_postgres().with_config("cancel_grace = \"5s\"\n");
    // The agent sees the cancel and ends by itself, long before it would be ended by force.
    let [a, b] = cross(&installation, GRACE - Duration::from_secs(2)).await;
    turn_pages_elsewhere(&a.api(), &b.api()).await;
    revoke_elsewhere(&a.api(), &b.api()).await;
}

/// How long a cancel may take when the other instance has to look for it.
const LOOKED_FOR: Duration = Duration::from_secs(20);

const SHORT_LEASE: &str = "lease = \"3s\"\n";

#[tokio::test]
async fn everything_arrives_without_wake_ups() {
    let installations = [(); 2].map(|()| Installation::on_postgres().with_wake("off").with_config(SHORT_LEASE));
    tokio::join!(cross(&installations[0], LOOKED_FOR), follow_across_a_takeover(&installations[1]));
}

#[tokio::test]
async fn everything_arrives_while_nats_comes_and_goes() {
    let mut nats = Nats::start(&[]);
    let installation = Installation::on_postgres().with_wake(&nats.url()).with_config(SHORT_LEASE);
    let [a, b] = cross(&installation, LOOKED_FOR).await;
    let (from_a, from_b) = (a.api(), b.api());

    // It is killed in the middle of a stream, and comes back in the middle of it.
    let task = from_a.send(&to_at_once("stream", "150 40")).await;
    let id = text(&task, "/id");
    let mut stream = from_b.subscribe(id, Some(0)).await;
    let mut frames = stream.until(|frame| !frame.artifact_text().is_empty()).await;
    nats.kill9();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    continue_elsewhere(&from_a, &from_b).await;
    nats.start_again();
    frames.extend(stream.rest().await);
    assert!(frames.last().is_some_and(Frame::is_end));
    assert_eq!(frames, from_a.subscribe(id, Some(0)).await.rest().await);

    nats.kill9();
    for server in [&a, &b] {
        assert_eq!(readiness(server).await, 200, "without NATS an instance is as ready as with it");
    }
    drop((a, b));
    nats.start_again();
    follow_across_a_takeover(&installation).await;
}
