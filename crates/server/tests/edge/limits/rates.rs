//! How often callers may come.

use std::time::Duration;

use a2a::Timestamp;
use futures_util::future::join_all;
use serde_json::json;
use server::Rate;
use tokio::time::sleep;

use crate::edge::support::{Fixture, OTHER_TOKEN, envelope, message};

const FREE: Rate = Rate { per_second: 0, burst: 0 };

#[tokio::test]
async fn requests_over_the_rate_are_refused_on_every_surface() {
    let rig = Fixture::with(|options| options.request_rate = Rate { per_second: 1, burst: 3 }).await;
    for _ in 0..3 {
        assert_eq!(rig.get("/a2a/tasks").await.status, 200);
    }
    for (method, path) in [
        ("GET", "/a2a/tasks"),
        ("POST", "/a2a/message:send"),
        ("POST", "/a2a/message:stream"),
        ("POST", "/a2a/jsonrpc"),
        ("POST", "/a2a"),
        ("POST", "/v1/a2a/agents/echo"),
        ("GET", "/v1/requests"),
        ("GET", "/a2a/extendedAgentCard"),
    ] {
        // Broken on purpose: nobody has read it.
        let reply = rig.ask(method, path).header("Content-Type", "application/json").body("{").send().await;
        assert_eq!(reply.retry_after(), 1, "{method} {path}");
    }
    assert_eq!(rig.get("/a2a/tasks").await.header("a2a-version"), Some("1.0"));
    // Another tenant and what is public do not notice.
    assert_eq!(rig.ask_as(OTHER_TOKEN, "GET", "/a2a/tasks").send().await.status, 200);
    for path in ["/healthz", "/.well-known/agent-card.json"] {
        assert_eq!(rig.bare("GET", path).send().await.status, 200);
    }
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(rig.get("/a2a/tasks").await.status, 200);
}

#[tokio::test]
async fn a_refused_send_leaves_nothing() {
    let rig = Fixture::with(|options| options.request_rate = Rate { per_second: 1, burst: 1 }).await;
    assert_eq!(rig.post("/a2a/message:send", &message("one")).await.status, 200);
    assert_eq!(rig.post("/a2a/message:send", &message("two")).await.status, 429);
    let body = envelope("SendMessage", message("three"));
    assert_eq!(rig.post("/a2a/jsonrpc", &body).await.status, 429);
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(rig.get("/a2a/tasks").await.json()["totalSize"], 1);
}

#[tokio::test]
async fn a_laptop_does_not_notice_the_default() {
    let rig = Fixture::with(|_| {}).await;
    let mut asks = Vec::new();
    for _ in 0..300 {
        asks.push(tokio::spawn(rig.ask("GET", "/a2a/tasks").send()));
    }
    for ask in asks {
        assert_eq!(ask.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn failed_authentications_are_limited_and_the_rest_is_not() {
    let rate = Rate { per_second: 1, burst: 3 };
    let rig = Fixture::with(|options| options.failed_auth_rate = rate).await;
    let hash = exchange::admin::hash("sba_of_nobody").to_vec();
    rig.exchange.store().set_setting("test", exchange::admin::ADMIN_TOKEN, hash).await.unwrap();
    for _ in 0..3 {
        assert_eq!(rig.ask_as("sb_wrong", "GET", "/a2a/tasks").send().await.status, 401);
    }
    for (method, path) in
        [("GET", "/a2a/tasks"), ("POST", "/a2a/jsonrpc"), ("GET", "/v1/requests"), ("GET", "/v1/admin/tenants")]
    {
        for ask in [rig.ask_as("sb_wrong", method, path), rig.bare(method, path)] {
            let reply = ask.send().await;
            assert_eq!(reply.retry_after(), 1, "{method} {path}");
            assert!(!reply.body.contains("sb_wrong"));
        }
    }
    // Behind a proxy everybody has the same address: who has a token comes in all the same.
    assert_eq!(rig.ask("GET", "/a2a/tasks").send().await.status, 200);
    assert_eq!(rig.ask_as(OTHER_TOKEN, "GET", "/a2a/tasks").send().await.status, 200);
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(rig.ask_as("sb_wrong", "GET", "/a2a/tasks").send().await.status, 401);
}

#[tokio::test]
async fn an_address_that_fails_too_often_has_few_tokens_looked_up() {
    let rig = Fixture::with(|options| options.failed_auth_rate = Rate { per_second: 1, burst: 1 }).await;
    assert_eq!(rig.ask_as("sb_wrong", "GET", "/a2a/tasks").send().await.status, 401);
    // Each is one that nobody has seen: a token that was refused a moment ago is not looked up again.
    let wrong = (0..60).map(|n| rig.ask_as(&format!("sb_wrong_{n}"), "GET", "/a2a/tasks").send());
    let replies = join_all(wrong).await;
    // The bound that refuses a token tells whether it was looked up: that of failures comes after the look, that of looks before it.
    let not_looked_up = replies.iter().filter(|reply| reply.body.contains(r#""limitPerSecond":"5""#)).count();
    assert!(not_looked_up > 0, "{}", replies[0].body);
}

#[tokio::test]
async fn a_trusted_proxy_says_who_calls() {
    let fails = async |rig: &Fixture, forwarded: &str| {
        rig.bare("GET", "/a2a/tasks").header("X-Forwarded-For", forwarded).send().await.status
    };
    for (proxies, others) in [(vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()], 401), (vec![], 429)]
    {
        let rig = Fixture::with(|options| {
            options.failed_auth_rate = Rate { per_second: 1, burst: 1 };
            options.trusted_proxies = proxies;
        })
        .await;
        assert_eq!(fails(&rig, "203.0.113.9, 10.0.0.1").await, 401);
        // What a caller claims in front does not make it another.
        assert_eq!(fails(&rig, "198.51.100.1, 203.0.113.9, 10.0.0.1").await, 429);
        assert_eq!(fails(&rig, "203.0.113.10, 10.0.0.1").await, others);
    }
}

#[tokio::test]
async fn nothing_is_limited_where_the_rate_is_zero() {
    let rig = Fixture::with(|options| {
        options.request_rate = FREE;
        options.failed_auth_rate = FREE;
    })
    .await;
    for _ in 0..200 {
        assert_eq!(rig.bare("GET", "/a2a/tasks").send().await.status, 401);
    }
    let start = Timestamp::from_millis(0);
    let reply = rig.call("ListTasks", json!({"statusTimestampAfter": start})).await;
    assert_eq!(reply["result"]["totalSize"], 0, "{reply}");
}
