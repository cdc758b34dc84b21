//! What keeps calls from running away: the circuit of a remote that fails, and delegation that comes back to where it began.

use std::time::Duration;

use serde_json::json;

use super::completing;
use crate::harness::{
    http::{artifact_text, state, text},
    remote::{Answer, Caller, Setup, task_03},
};

#[tokio::test]
async fn a_remote_that_fails_again_and_again_is_left_alone_for_a_while() {
    let (remote, other) = (completing("").await, completing("by the other").await);
    remote.says("message/send", Answer::status(500, "out of order"));
    let entry = |name: &str, url: &str| format!("  - {{name: {name}, url: \"{url}\", skills: [triage]}}\n");
    let yaml = format!("agents:\n{}{}", entry("quinn", &remote.agent()), entry("zoe", &other.agent()));
    let caller = Setup::new().yaml(&yaml).start().await;
    caller.knows("quinn").await;
    caller.knows("zoe").await;
    for _ in 0..12 {
        caller.chat(&json!({"agent": "quinn", "message": "work"})).await;
    }
    // One call is tried now and then, which fails and opens the circuit for longer.
    caller.remote_when("quinn", |remote| remote["breaker"] == "open").await;
    let reply = loop {
        let before = remote.calls().len();
        let reply = caller.chat(&json!({"agent": "quinn", "message": "work"})).await;
        if remote.calls().len() == before {
            break reply;
        }
    };
    assert!(reply.status == 502 || reply.json()["taskState"] == "failed", "{}", reply.shown());
    assert!(String::from_utf8_lossy(&reply.body).contains("circuit"), "{}", reply.shown());
    // A skill goes to another one that has it.
    let outcome = caller.chat(&json!({"skill": "triage", "message": "work"})).await;
    assert_eq!(outcome.ok()["agent"], "zoe");
}

#[tokio::test]
async fn what_a_caller_did_wrong_does_not_open_the_circuit() {
    let remote = completing("").await;
    remote.says("message/send", Answer::Refused(-32602, "what city?"));
    let caller = Caller::knowing("quinn", &remote.agent()).await;
    for _ in 0..8 {
        caller.chat(&json!({"agent": "quinn", "message": "work"})).await;
    }
    assert_eq!(caller.remote("quinn").await["breaker"], "closed");
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "fine")));
    assert_eq!(caller.asks("quinn", "work").await["response"], "fine");
}

/// The entry of an agent of another Switchboard.
fn entry(name: &str, other: &Caller) -> String {
    format!(
        "name: {name}\nurl: \"{}/a2a/agents/{name}/jsonrpc\"\ncard: \"{}/a2a/agents/{name}/.well-known/agent-card.json\"\nauth: {{scheme: bearer, credentialsEnv: KEY}}\n",
        other.server.url, other.server.url
    )
}

#[tokio::test]
async fn a_circle_of_servers_is_noticed_and_ends() {
    let setup = || Setup::new().env("KEY", crate::harness::TOKEN);
    let (one, two) = (setup().start().await, setup().start().await);
    one.edit("agents.d/ring.yaml", &entry("ring", &two));
    two.edit("agents.d/ring.yaml", &entry("ring", &one));
    for caller in [&one, &two] {
        caller.remote_when("ring", |_| true).await;
    }
    for caller in [&one, &two] {
        let admin = caller.admin();
        admin.post_empty("/v1/remotes/ring/probe").await.ok();
        caller.knows("ring").await;
    }
    let task = one.sends("ring", "round and round").await;
    assert_eq!(state(&task), "FAILED", "{task:#}");
    let said = text(&task, "/status/message/parts/0/text");
    assert!(said.contains("delegation") || said.contains("cycle") || said.contains("circle"), "{said}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let count =
        |caller: &Caller| caller.home.scratch.look(&["SELECT count(*) FROM a2a_tasks"]).remove(0).remove(0)[0].clone();
    let (here, there) = (count(&one).expect("a number"), count(&two).expect("a number"));
    assert!(here.parse::<u64>().unwrap() + there.parse::<u64>().unwrap() <= 16, "{here} and {there}");
}

#[tokio::test]
async fn a_switchboard_calls_a_switchboard_that_calls_a_switchboard() {
    let last = Setup::new().start().await;
    let middle = Setup::new().env("KEY", crate::harness::TOKEN).file("agents.d/echo2.yaml", "").start().await;
    middle.edit("agents.d/echo2.yaml", &entry("echo", &last).replace("name: echo", "name: echo2"));
    middle.knows("echo2").await;
    let first = Setup::new().env("KEY", crate::harness::TOKEN).start().await;
    first.edit("agents.d/echo2.yaml", &entry("echo2", &middle));
    first.knows("echo2").await;
    let task = first.sends("echo2", "all the way").await;
    assert_eq!((state(&task), artifact_text(&task).as_str()), ("COMPLETED", "all the way"));
}
