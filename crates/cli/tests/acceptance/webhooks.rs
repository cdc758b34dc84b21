//! What webhooks are told, by the built binary over real sockets: what arrives, what survives a crash, and what never leaves.

use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use super::{
    http::{self, Api, answer, artifact_text, is_terminal, state, text, to, to_at_once},
    rig::Rig,
    webhook::Webhook,
};

/// Webhooks on this machine may be told, and what fails is tried again at once.
const LOCAL: &str = "[egress]\nallow = [\"127.0.0.0/8\"]\n[push]\ntimeout = \"2s\"\nfirst_wait = \"50ms\"\nlongest_wait = \"200ms\"\nattempts = 3\n";

fn told_by(mut request: Value, config: Value) -> Value {
    request["configuration"]["taskPushNotificationConfig"] = config;
    request
}

#[tokio::test]
async fn s3_73_s3_75_a_webhook_hears_of_its_task() {
    let rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let config =
        json!({"url": webhook.url, "token": "tok", "authentication": {"scheme": "Basic", "credentials": "dXNlcg=="}});
    let task = api.send(&told_by(to("echo", "hello"), config)).await;
    assert_eq!(webhook.until_completed().await, ["task", "working", "hello", "completed"]);
    let secret = api.get("/v1/push/secret").await.ok();
    for got in webhook.got() {
        assert_eq!(got.header("content-type"), "application/a2a+json");
        assert_eq!(got.header("authorization"), "Basic dXNlcg==");
        assert_eq!((got.header("x-a2a-notification-token"), got.header("a2a-notification-token")), ("tok", "tok"));
        let signed = format!("{}.{}.", got.header("webhook-id"), got.header("webhook-timestamp"));
        let signature = signature(text(&secret, "/secret"), &[signed.as_bytes(), &got.raw].concat());
        assert_eq!(got.header("webhook-signature"), signature);
        assert_eq!(got.body.as_object().unwrap().len(), 1, "one StreamResponse: {}", got.body);
    }
    let last = webhook.got().pop().unwrap().body;
    assert_eq!(text(&last, "/statusUpdate/taskId"), text(&task, "/id"));
    assert_eq!(text(&last, "/statusUpdate/status/state"), "TASK_STATE_COMPLETED");
}

/// By the Standard Webhooks.
fn signature(secret: &str, content: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use hmac::{Hmac, Mac};
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("its prefix")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length is a key");
    mac.update(content);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn s3_73_a_webhook_outlives_the_server() {
    let mut rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let running = api.send(&to_at_once("slow", "600")).await;
    let path = format!("/a2a/tasks/{}/pushNotificationConfigs", text(&running, "/id"));
    api.post(&path, &json!({"url": webhook.url})).await.ok();
    rig.kill9();
    rig.restart().await;
    let told = webhook.until_completed().await;
    assert!(!told.contains(&"task".to_owned()), "only what came after it: {told:?}");
}

#[tokio::test]
async fn s3_74_a_webhook_that_fails_is_no_concern_of_the_task() {
    let rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    webhook.answers(&[500, 503]);
    let mut stream =
        api.stream("/a2a/message:stream", &told_by(to("stream", "3 10"), json!({"url": webhook.url}))).await;
    let frames = stream.rest().await;
    assert_eq!(frames.last().unwrap().state(), Some("COMPLETED"), "the stream is whole");
    let told = webhook.until_completed().await;
    assert_eq!(told[..4], ["task", "task", "task", "working"], "{told:?}");
    // One where nobody listens.
    let url = webhook.url.clone();
    drop(webhook);
    let task = api.send(&told_by(to("echo", "again"), json!({"url": url}))).await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "again"));
    let id = text(&task, "/id").to_owned();
    let dead = until_dead(&api, &id, 4).await;
    assert_eq!(dead["deadLetters"][0]["outcome"], "unreachable", "{dead:#}");
    assert_eq!(dead["deadLetters"][0]["attempts"], 3);
    // It comes back, and is told all that it missed.
    let webhook = Webhook::again(&url).await;
    let replay = api.post_empty(&format!("/v1/push/{id}/{id}/replay")).await.ok();
    assert_eq!(replay["replayed"], 4);
    assert_eq!(webhook.until_completed().await, ["task", "working", "again", "completed"]);
}

/// The outbox of an inline configuration, once it has so many dead letters.
async fn until_dead(api: &Api, task: &str, letters: usize) -> Value {
    for _ in 0..500 {
        let outbox = api.get(&format!("/v1/push/{task}/{task}")).await.ok();
        if http::array(&outbox, "/deadLetters").len() == letters {
            return outbox;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{:#}", api.get(&format!("/v1/push/{task}/{task}")).await.ok());
}

#[tokio::test]
async fn s3_76_a_webhook_that_was_deleted_hears_nothing_more() {
    let rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let task = api.send(&told_by(to("ask", "what"), json!({"id": "mine", "url": webhook.url}))).await;
    webhook.until(|told| told.last().is_some_and(|last| last == "input_required")).await;
    let id = text(&task, "/id");
    let path = format!("/a2a/tasks/{id}/pushNotificationConfigs/mine");
    for _ in 0..2 {
        assert_eq!(api.call(api.request(Method::DELETE, &path)).await.ok(), json!({}));
    }
    let done = api.send(&answer(id, "that")).await;
    assert!(is_terminal(state(&done)));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(webhook.told().last().unwrap(), "input_required");
}

#[tokio::test]
async fn a_webhook_of_03_is_told_in_03() {
    let rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let params = json!({
        "message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]},
        "configuration": {"pushNotificationConfig": {"url": webhook.url, "token": "tok"}}
    });
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params});
    let bare = api.bare(Method::POST, "/a2a/agents/echo").bearer_auth(api.token().unwrap());
    let sent = api.call(http::with_json(bare, &call)).await.ok();
    assert_eq!(sent["result"]["kind"], "task", "{sent:#}");
    let told = webhook.until_completed().await;
    assert_eq!((told.first().unwrap().as_str(), told.contains(&"working".to_owned())), ("submitted", true), "{told:?}");
    let last = webhook.got().pop().unwrap();
    assert_eq!(last.header("a2a-version"), "0.3");
    assert_eq!((&last.body["kind"], &last.body["id"]), (&"task".into(), &sent["result"]["id"]));
    assert_eq!(last.body["artifacts"][0]["parts"][0], json!({"kind": "text", "text": "hello"}));
}

/// Nobody is called who may not be, and nothing tells what is there.
#[tokio::test]
async fn a_webhook_leads_nowhere_that_it_may_not() {
    let rig = Rig::start_with("[push]\nfirst_wait = \"50ms\"\nlongest_wait = \"50ms\"\nattempts = 2\n").await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let port = webhook.url.rsplit(':').next().unwrap().to_owned();
    let task = api.send(&to("ask", "what")).await;
    let path = format!("/a2a/tasks/{}/pushNotificationConfigs", text(&task, "/id"));
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut errors = Vec::new();
    for url in [
        webhook.url.clone(),
        format!("http://127.0.0.1:{closed}/"),
        format!("http://localhost:{port}"),
        format!("http://[::1]:{port}"),
        format!("http://[::ffff:127.0.0.1]:{port}"),
        format!("http://2130706433:{port}"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.0.0.1:22/".to_owned(),
        "https://1.1.1.1:22/".to_owned(),
    ] {
        let error = api.post(&path, &json!({"url": url})).await.error(400);
        assert_eq!(http::violations(&error), ["url"], "{url}");
        errors.push(error["message"].clone());
    }
    errors.dedup();
    assert_eq!(errors.len(), 1, "the same words whatever is there: {errors:?}");
    assert!(webhook.told().is_empty());
}

#[tokio::test]
async fn secrets_of_webhooks_are_nowhere_to_be_read() {
    let rig = Rig::start_with(LOCAL).await;
    let api = rig.api();
    let webhook = Webhook::start().await;
    let config = json!({"url": webhook.url, "token": "canary-token-1", "authentication": {"scheme": "Bearer", "credentials": "canary-credentials-2"}});
    let task = api.send(&told_by(to("echo", "hello"), config)).await;
    webhook.until_completed().await;
    let id = text(&task, "/id");
    for path in [
        format!("/a2a/tasks/{id}"),
        format!("/a2a/tasks/{id}/pushNotificationConfigs"),
        format!("/a2a/tasks/{id}/pushNotificationConfigs/{id}"),
        "/v1/push".to_owned(),
        format!("/v1/push/{id}/{id}"),
    ] {
        let shown = api.get(&path).await.ok().to_string();
        assert!(!shown.contains("canary"), "{path}: {shown}");
    }
    assert!(!rig.server.log().contains("canary"), "the log");
    let journal = rig.journal().await;
    let tenant = journal.tenants().await.unwrap()[0].id;
    let stored = journal.push(tenant, store::TaskId::parse(id).unwrap(), id).await.unwrap().unwrap();
    assert!(!format!("{stored:?}").contains("canary"));
    assert!(!String::from_utf8_lossy(&stored.config.sealed).contains("canary"));
}

#[tokio::test]
async fn x_4_push_can_be_switched_off() {
    let rig = Rig::start_with("[push]\nenabled = false\n").await;
    let api = rig.api();
    let card = api.get("/a2a/agents/echo/.well-known/agent-card.json").await.ok();
    assert_eq!(card["capabilities"]["pushNotifications"], false);
    api.rpc_error("ListTaskPushNotificationConfigs", &json!({"taskId": "x"}), -32003).await;
    let inline = told_by(to("echo", "hi"), json!({"url": "https://example.com/"}));
    api.rpc_error("SendMessage", &inline, -32003).await;
}
