//! A tenant that wants all of an agent: it gets its share, and others are served.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Home, PATIENCE, Server, TOKEN,
    http::{Api, text, to, to_at_once},
    remote::{Answer, Remote, Setup, card_03, task_03},
};

/// Four turns at once, each of which waits until it is let go.
const SLOW: &str = r#"
kind = "command"
concurrency = 4
[command]
argv = ["/bin/sh", "-c", "until [ -e GATE ]; do sleep 0.05; done; echo done"]
"#;

async fn start(more: &str) -> (Home, Server, Api, Api) {
    let home = Home::new();
    let gate = home.path("gate");
    home.add_agent(
        "slow.toml",
        &SLOW.replace("GATE", gate.to_str().unwrap()).replace("[command]", &format!("{more}\n[command]")),
    );
    home.add_tenant("other", "sb_other").await;
    let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    let (greedy, other) = (server.api(), server.api().with_token(Some("sb_other")));
    // The server has looked how many tenants there are.
    other.send(&to("echo", "hello")).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    (home, server, greedy, other)
}

/// How many of a tenant's tasks run.
async fn running(api: &Api) -> usize {
    let listed = api.get("/a2a/tasks?status=TASK_STATE_WORKING&historyLength=0&pageSize=100").await.ok();
    listed["tasks"].as_array().unwrap().len()
}

/// Waits until so many run, and a moment longer, so that more would be seen.
async fn settles_at(api: &Api, most: usize) {
    tokio::time::timeout(PATIENCE, async {
        while running(api).await < most {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(running(api).await, most);
}

#[tokio::test]
async fn no_tenant_has_all_slots_of_an_agent_while_there_are_others() {
    for (name, more, share) in [("by default", "", 3), ("as the file says", "per_tenant = 2", 2)] {
        let (home, _server, greedy, other) = start(more).await;
        for _ in 0..12 {
            greedy.send(&to_at_once("slow", "mine")).await;
        }
        settles_at(&greedy, share).await;
        let theirs = other.send(&to_at_once("slow", "theirs")).await;
        let id = theirs["id"].as_str().unwrap();
        other.task_when(id, |state| state == "WORKING").await;
        assert_eq!(running(&greedy).await, share, "{name}");
        // What was held back is done all the same.
        home.write("gate", "");
        other.task_when(id, |state| state == "COMPLETED").await;
        tokio::time::timeout(PATIENCE, async {
            loop {
                let done = greedy.get("/a2a/tasks?status=TASK_STATE_COMPLETED&historyLength=0&pageSize=100").await.ok();
                if done["totalSize"] == json!(12) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .unwrap();
    }
}

/// A circuit is its tenant's: what fails for one of them is tried for another, and works for it when it works.
#[tokio::test]
async fn a_remote_that_fails_for_one_tenant_is_called_for_another() {
    let remote = Remote::with_card(card_03).await;
    remote.says("message/send", Answer::status(503, "not now"));
    let caller = Setup::new().json(&json!({"tool": {"url": remote.agent()}})).start().await;
    caller.home.add_tenant("other", "sb_other").await;
    let mut said = String::new();
    for _ in 0..20 {
        said = caller.a2a("call tool work").await;
        if said.contains("circuit OPEN") {
            break;
        }
    }
    assert!(said.contains("circuit OPEN"), "{said}");
    let other = caller.api().with_token(Some("sb_other"));
    let calls = async || {
        let body = other.post("/v1/remotes/a2a", &json!({"line": "call tool work"})).await.ok();
        text(&body, "/text").to_owned()
    };
    let said = calls().await;
    assert!(said.contains("503") && !said.contains("circuit OPEN"), "{said}");
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "better")));
    let said = calls().await;
    assert!(said.contains("better"), "{said}");
}
