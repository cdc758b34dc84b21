//! The feed of a tenant, `/v1/feed`: whose events it has, and how it is resumed.

use std::{collections::HashMap, time::Duration};

use exchange::Keep;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    PATIENCE,
    http::{Api, message, text, to, violations},
    server::{ADMIN, Setup, TestServer},
};

const INBOUND: &str = "agent.chat.inbound";

/// A feed that is read.
struct Feed {
    response: Response,
    buffer: Vec<u8>,
    /// The id that came last.
    last: String,
}

impl Feed {
    async fn open(api: &Api, query: &str, last: Option<&str>) -> Self {
        let mut request = api.request(Method::GET, &format!("/v1/feed{query}"));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = timeout(PATIENCE, request.send()).await.expect("an answer in time").expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: Vec::new(), last: String::new() }
    }

    /// The next event: its name and its data.
    async fn next(&mut self) -> (String, Value) {
        let reading = async {
            loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                    let record: Vec<u8> = self.buffer.drain(..end + 2).collect();
                    let fields: HashMap<&str, &str> = std::str::from_utf8(&record)
                        .expect("UTF-8")
                        .lines()
                        .filter_map(|line| line.split_once(": "))
                        .collect();
                    let Some(data) = fields.get("data") else { continue };
                    fields["id"].clone_into(&mut self.last);
                    return (fields["event"].to_owned(), serde_json::from_str(data).expect("JSON"));
                }
                let chunk = self.response.chunk().await.expect("a chunk").expect("the feed does not end");
                self.buffer.extend_from_slice(&chunk);
            }
        };
        timeout(PATIENCE, reading).await.expect("the feed goes on")
    }

    /// The events up to the end of this task.
    async fn until_end_of(&mut self, task: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let (name, event) = self.next().await;
            if name != INBOUND {
                continue;
            }
            let is_end = event["taskId"] == task && event["state"] == "completed";
            events.push(event);
            if is_end {
                return events;
            }
        }
    }
}

async fn task(api: &Api, agent: &str, words: &str) -> String {
    let request = json!({"message": message(words)});
    text(&api.post(&format!("/a2a/agents/{agent}/message:send"), &request).await.task(), "/id").to_owned()
}

#[tokio::test]
async fn s4_27_a_feed_has_the_events_of_all_tasks_of_one_tenant() {
    let rig = TestServer::start().await;
    let other = rig.api().with_token(Some(&rig.add_tenant("other").await));
    let mut feed = Feed::open(&rig.api(), "", None).await;
    let mut others = Feed::open(&other, "", None).await;
    assert_eq!(feed.next().await.0, "open");
    let hidden = task(&other, "echo", "not yours").await;
    let (first, second) = (task(&rig.api(), "echo", "one").await, task(&rig.api(), "echo", "two").await);

    let events = feed.until_end_of(&second).await;
    assert!(events.iter().all(|event| event["taskId"] == *first || event["taskId"] == *second), "{events:#?}");
    let of = |task: &str| -> Vec<&Value> { events.iter().filter(|event| event["taskId"] == *task).collect() };
    let said = of(&first);
    assert!(said.iter().any(|event| event["type"] == "artifact" && event["text"] == "one"), "{said:#?}");
    let states: Vec<&str> = said.iter().filter_map(|event| event["state"].as_str()).collect();
    assert_eq!((states.first(), states.last()), (Some(&"submitted"), Some(&"completed")));
    let numbers: Vec<u64> = said.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted() && said.iter().all(|event| event["agent"] == "echo"), "{said:#?}");
    let theirs = others.until_end_of(&hidden).await;
    assert!(theirs.iter().all(|event| event["taskId"] == *hidden), "{theirs:#?}");
}

#[tokio::test]
async fn s4_27_a_feed_is_resumed_after_a_restart_and_misses_nothing() {
    let mut rig = TestServer::start().await;
    let mut feed = Feed::open(&rig.api(), "", None).await;
    let first = task(&rig.api(), "echo", "one").await;
    feed.until_end_of(&first).await;
    let place = feed.last.clone();
    drop(feed);
    let second = task(&rig.api(), "echo", "two").await;
    rig = rig.restart(Setup::new()).await;
    let third = task(&rig.api(), "echo", "three").await;

    let whole = |events: &[Value]| -> Vec<(String, u64)> {
        events.iter().map(|event| (text(event, "/taskId").to_owned(), event["sequence"].as_u64().unwrap())).collect()
    };
    let mut by_header = Feed::open(&rig.api(), "?after=0", Some(&place)).await;
    let seen = whole(&by_header.until_end_of(&third).await);
    assert!(seen.iter().all(|(task, _)| *task == second || *task == third), "{seen:?}");
    assert!(seen.iter().any(|(task, _)| *task == second));
    let mut by_query = Feed::open(&rig.api(), &format!("?after={place}"), None).await;
    assert_eq!(whole(&by_query.until_end_of(&third).await), seen);
    // From the begin of the log, of which nothing is gone.
    let mut all = Feed::open(&rig.api(), "?after=0", None).await;
    assert_eq!(all.next().await.0, "open");
    let all = whole(&all.until_end_of(&third).await);
    assert!(all.iter().any(|(task, _)| *task == first) && all.ends_with(&seen), "{all:?}");
}

#[tokio::test]
async fn s4_27_the_cursor_0_is_reset_only_where_events_may_have_been_removed() {
    let rig = TestServer::start().await;
    assert_eq!(Feed::open(&rig.api(), "?after=0", None).await.next().await.0, "open", "a journal without events");
    task(&rig.api(), "echo", "one").await;
    assert_eq!(Feed::open(&rig.api(), "?after=0", None).await.next().await.0, "open");
    // What is kept so briefly may be gone.
    let brief = Setup::new().engine(|engine| engine.retention.tasks = Keep::For(Duration::from_secs(30))).start().await;
    assert_eq!(Feed::open(&brief.api(), "?after=0", None).await.next().await.0, "reset");
}

#[tokio::test]
async fn s4_27_a_cursor_is_its_tenants_own() {
    let rig = TestServer::start().await;
    let other = rig.api().with_token(Some(&rig.add_tenant("other").await));
    let mut feed = Feed::open(&rig.api(), "", None).await;
    feed.next().await;
    for (api, cursor) in [(&other, feed.last.as_str()), (&rig.api(), "17"), (&rig.api(), "nonsense")] {
        let refused = api.get(&format!("/v1/feed?after={cursor}")).await.error(400);
        assert_eq!(violations(&refused), ["after"], "{refused:#}");
    }
    rig.api().with_token(None).get("/v1/feed").await.error(401);
}

#[tokio::test]
async fn s4_27_a_token_for_one_agent_sees_its_tasks_alone() {
    let rig = TestServer::start().await;
    let admin = rig.api().with_token(Some(ADMIN));
    let new = json!({"name": "bound", "agents": ["stream"], "scopes": ["read"]});
    let made = admin.post("/v1/admin/tenants/1/tokens", &new).await.json();
    let bound = rig.api().with_token(made["token"].as_str());
    let unread = admin.post("/v1/admin/tenants/1/tokens", &json!({"name": "s", "scopes": ["send"]})).await.json();
    rig.api().with_token(unread["token"].as_str()).get("/v1/feed").await.error(403);

    let mut feed = Feed::open(&bound, "?after=0", None).await;
    task(&rig.api(), "echo", "not for it").await;
    let seen = text(&rig.api().send(&to("stream", "for it")).await, "/id").to_owned();
    let events = feed.until_end_of(&seen).await;
    assert!(events.iter().all(|event| event["agent"] == "stream"), "{events:#?}");
}
