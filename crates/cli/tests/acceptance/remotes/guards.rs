//! What keeps calls from running away: the circuit of a remote that fails, and delegation that comes back to where it began.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::completing;
use crate::harness::{
    PATIENCE, TOKEN,
    http::{artifact_text, is_terminal, state, text, to_at_once},
    remote::{Answer, Caller, Remote, Setup, card_10, task_03, task_10},
};

/// Most tasks that a circle makes on all its servers together: the first one, and `delegation.depth` (8) that come of it.
const LONGEST_CIRCLE: u64 = 9;

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
    assert!(tasks_of(&[&one, &two]) <= LONGEST_CIRCLE);
}

/// How many tasks there are on these servers.
fn tasks_of(servers: &[&Caller]) -> u64 {
    let count = |server: &&Caller| {
        let rows = server.home.scratch.look(&["SELECT count(*) FROM a2a_tasks"]).remove(0);
        rows[0][0].clone().expect("a number").parse::<u64>().expect("a number")
    };
    servers.iter().map(count).sum()
}

/// Sends a message and waits until its task has ended. Gives up as soon as there are more tasks than a circle may make.
async fn ends(first: &Caller, agent: &str, all: &[&Caller]) -> Value {
    let sent = first.api().post("/a2a/message:send", &to_at_once(agent, "round and round")).await.task();
    let begun = Instant::now();
    loop {
        let task = first.api().get(&format!("/a2a/tasks/{}", text(&sent, "/id"))).await.ok();
        let made = tasks_of(all);
        assert!(made <= LONGEST_CIRCLE, "{made} tasks of one message: {task:#}");
        if is_terminal(state(&task)) {
            return task;
        }
        assert!(begun.elapsed() < PATIENCE, "{task:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[track_caller]
fn refused(task: &Value) -> &str {
    assert_eq!(state(task), "FAILED", "{task:#}");
    let said = text(task, "/status/message/parts/0/text");
    assert!(said.contains("delegation refused"), "{said}");
    said
}

#[tokio::test]
async fn a_circle_of_servers_ends_whatever_url_leads_there() {
    for path in ["/a2a/agents/ring/jsonrpc", "/a2a/agents/ring", "/a2a/ring/jsonrpc", "/v1/a2a/agents/ring"] {
        let setup = || Setup::new().env("KEY", TOKEN);
        let (one, two) = (setup().start().await, setup().start().await);
        for (caller, other) in [(&one, &two), (&two, &one)] {
            let url = format!("{}{path}", other.server.url);
            let entry = format!("name: ring\nurl: \"{url}\"\nauth: {{scheme: bearer, credentialsEnv: KEY}}\n");
            caller.edit("agents.d/ring.yaml", &entry);
        }
        for caller in [&one, &two] {
            caller.remote_when("ring", |_| true).await;
        }
        let task = ends(&one, "ring", &[&one, &two]).await;
        refused(&task);
    }
}

/// An agent that passes everything on to the remote `loop` of `a2a_agents.json`.
const RING: &str = "kind = \"remote\"\n[remote]\nname = \"loop\"\n";

fn leads_to(url: &str) -> String {
    json!({"agents": {"loop": {"url": url, "auth": {"token": TOKEN}}}}).to_string()
}

#[tokio::test]
async fn a_circle_of_servers_that_tell_each_other_nothing_ends() {
    for path in ["/v1/a2a/agents/ring", "/a2a/agents/ring/jsonrpc"] {
        let setup = || Setup::new().file("agents/ring.toml", RING);
        let (one, two) = (setup().start().await, setup().start().await);
        for (caller, other) in [(&one, &two), (&two, &one)] {
            caller.edit("a2a_agents.json", &leads_to(&format!("{}{path}", other.server.url)));
        }
        for caller in [&one, &two] {
            caller.remote_when("loop", |_| true).await;
        }
        let task = ends(&one, "ring", &[&one, &two]).await;
        let said = refused(&task);
        assert!(said.contains("9 agents deep"), "{said}");
    }
}

#[tokio::test]
async fn a_circle_to_oneself_under_another_name_is_noticed_and_named() {
    let caller = Setup::new().file("agents/ring.toml", RING).start().await;
    let port = caller.server.address().rsplit_once(':').unwrap().1.to_owned();
    for host in ["localhost", "127.0.0.1"] {
        for path in ["/v1/a2a/agents/ring", "/a2a/agents/ring/jsonrpc", "/a2a/agents/ring"] {
            let before = tasks_of(&[&caller]);
            let url = format!("http://{host}:{port}{path}");
            caller.edit("a2a_agents.json", &leads_to(&url));
            let known = |remote: &Value| remote["url"] == url.as_str();
            caller.remote_when("loop", known).await;
            let task = caller.sends("ring", "round and round").await;
            let said = refused(&task);
            assert!(
                said.contains("a circle, `") && said.contains("/ring` is at work on this already"),
                "{url}: {said}"
            );
            assert_eq!(tasks_of(&[&caller]) - before, 2, "{url}");
        }
    }
}

/// Sends a message into a circle of one server and a relay that passes this header on and nothing else but the text.
async fn ends_with(header: &'static str) -> (Caller, Remote) {
    let relay = Remote::with_card(card_10).await;
    let caller = Caller::knowing("ring", &relay.agent()).await;
    relay.says("SendMessage", Answer::Relayed(format!("{}/a2a/agents/ring/jsonrpc", caller.server.url), header));
    let task = ends(&caller, "ring", &[&caller]).await;
    let said = refused(&task);
    assert!(said.contains("9 agents deep") || said.contains("a circle, `"), "{said}");
    (caller, relay)
}

#[tokio::test]
async fn a_circle_through_a_relay_that_passes_on_the_idempotency_key_alone_ends() {
    ends_with("idempotency-key").await;
}

#[tokio::test]
async fn a_circle_through_a_relay_that_passes_on_traceparent_alone_ends() {
    let (caller, relay) = ends_with("traceparent").await;
    // An honest caller sends any number of messages in one trace.
    let calls = relay.calls();
    let traceparent = calls[0].header("traceparent").expect("remotes are told the trace");
    let other = format!("{}-b7ad6b7169203331-01", &traceparent[..35]);
    relay.says("SendMessage", Answer::Result(json!({"task": task_10("rt-1", "rc-1", "COMPLETED", "fine")})));
    let message = json!({"agent": "ring", "message": "work"});
    let answer = caller.chat_with(&message, &[("traceparent", &other)]).await.ok();
    assert_eq!(answer["response"], "fine", "{answer:#}");
}

#[tokio::test]
async fn a_circle_of_servers_over_grpc_ends() {
    let setup = || Setup::new().env("KEY", TOKEN).argument("--grpc-port").argument("0");
    let (one, two) = (setup().start().await, setup().start().await);
    for (caller, other) in [(&one, &two), (&two, &one)] {
        caller.edit("agents.d/ring.yaml", &format!("{}binding: GRPC\n", entry("ring", other)));
    }
    for caller in [&one, &two] {
        caller.remote_when("ring", |_| true).await;
    }
    for caller in [&one, &two] {
        caller.admin().post_empty("/v1/remotes/ring/probe").await.ok();
        let known = caller.knows("ring").await;
        assert_eq!(known["binding"], "GRPC", "{known:#}");
    }
    refused(&ends(&one, "ring", &[&one, &two]).await);
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
