//! A tenant that wants all of an agent: it gets its share, and others are served.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{io::ErrorKind, net::UdpSocket, time::Duration};

use futures_util::future::join_all;
use serde_json::json;

use crate::harness::{
    Home, PATIENCE, Server, TOKEN,
    http::{Api, text, to, to_at_once},
    remote::{Answer, Caller, Remote, Setup, Step, WELL_KNOWN, card_03, task_03},
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

/// So many calls as wait for a name at once; the share of a tenant is much smaller.
const LOOKUPS: usize = 40;
/// Connecting may take as long.
const CONNECTING: Duration = Duration::from_secs(10);

/// A server of a machine whose name server, at this address, never answers, and which knows `there.test` by itself. `None` where the user may
/// not listen where name servers do.
fn beside_a_silent_name_server(address: &str, setup: Setup) -> Option<(UdpSocket, Setup)> {
    let silent = match UdpSocket::bind((address, 53)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
        bound => bound.unwrap(),
    };
    let home = setup.home();
    let names = home.write("resolv.conf", format!("nameserver {address}\noptions timeout:30 attempts:1\n"));
    let hosts = home.write("hosts", "127.0.0.1 localhost there.test\n");
    let switch = home.write("nsswitch.conf", "hosts: files dns\n");
    let mount = format!(
        "mount --bind {names} /etc/resolv.conf && mount --bind {hosts} /etc/hosts && mount --bind {switch} /etc/nsswitch.conf && exec \"$@\""
    );
    let under = ["unshare", "--mount", "sh", "-c", &mount, "sb"].map(str::to_owned).to_vec();
    Some((silent, setup.under(under)))
}

/// Many calls of one tenant wait for the addresses of names, and then another tenant's call arrives soon all the same.
async fn is_called_meanwhile(caller: &Caller, waiting: Vec<String>, agent: &str, remote: &Remote, path: &str) {
    let other = caller.api().with_token(Some("sb_other"));
    let api = caller.api();
    let begin = async |agent: &String| api.post("/a2a/message:send", &to_at_once(agent, "work")).await.ok();
    join_all(waiting.iter().map(begin)).await;
    // By then as many as may wait at once do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = remote.asked().len();
    other.post("/a2a/message:send", &to_at_once(agent, "work")).await.ok();
    let called = remote.until("a call", |asked| asked[before..].iter().any(|asked| asked.path == path));
    tokio::time::timeout(CONNECTING / 2, called).await.expect("it waits for the names of another tenant");
}

#[tokio::test]
async fn names_of_remotes_that_one_tenant_waits_for_delay_no_call_of_another() {
    let remote = Remote::start().await;
    // No connection is kept for the call.
    let card = card_03(&remote.agent().replace("127.0.0.1", "there.test")).to_string().into_bytes();
    remote.says(WELL_KNOWN, Answer::body_of("application/json", vec![Step::Bytes(card)]));
    remote.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "better")));
    let url = remote.agent().replace("127.0.0.1", "there.test");
    let there = format!("agents:\n  - {{name: there, url: \"{url}\"}}\n");
    let Some((_silent, setup)) = beside_a_silent_name_server("127.0.0.153", Setup::new().yaml(&there)) else { return };
    let caller = setup.start().await;
    caller.home.add_tenant("other", "sb_other").await;
    caller.knows("there").await;
    let silent: Vec<String> = (0..LOOKUPS).map(|n| format!("silent{n}")).collect();
    let entries: String =
        silent.iter().map(|name| format!("  - {{name: {name}, url: \"http://{name}.test/a2a\"}}\n")).collect();
    caller.edit("agents.yaml", &format!("{there}{entries}"));
    caller.remote_when(&silent[LOOKUPS - 1], |_| true).await;
    is_called_meanwhile(&caller, silent, "there", &remote, "/a2a").await;
}

#[tokio::test]
async fn names_of_providers_that_one_tenant_waits_for_delay_no_call_of_another() {
    let provider = Remote::start().await;
    let url = provider.base.replace("127.0.0.1", "there.test");
    let entry = |name: &str, url: &str| {
        format!("[providers.{name}]\napi = \"openai\"\nurl = \"{url}/v1\"\nkey_env = \"GATEWAY_KEY\"\n")
    };
    let models = [entry("silent", "http://silent.test"), entry("there", &url)].concat();
    let agent = |provider: &str| {
        format!(
            "kind = \"llm\"\nconcurrency = 64\nper_tenant = 64\n[llm]\nrole = \"helper\"\ngoal = \"help\"\nmodel = \"{provider}/m\"\n"
        )
    };
    let setup = Setup::new().file("models.toml", &models).env("GATEWAY_KEY", "sk-gateway-0123456789");
    let setup = setup.file("agents/silent.toml", &agent("silent")).file("agents/there.toml", &agent("there"));
    let Some((_silent, setup)) = beside_a_silent_name_server("127.0.0.154", setup) else { return };
    let caller = setup.start().await;
    caller.home.add_tenant("other", "sb_other").await;
    let waiting = vec!["silent".to_owned(); LOOKUPS];
    is_called_meanwhile(&caller, waiting, "there", &provider, "/v1/chat/completions").await;
}
