//! Answers that are deep, odd or large in places where nobody expects it: what is taken over of them has to be something that the
//! journal can keep and that everybody who asks for it can read.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Rig, SOON};
use crate::harness::{
    Home,
    grpc::{A2A, GATEWAY, Grpc, encoded, framed},
    http::{message, text},
    remote::{Answer, Remote, card_03, card_10, task_10},
};

/// A task that has ended with this, as it is on the wire.
fn ended(members: &str) -> Answer {
    let task = r#""kind":"task","id":"rt-1","contextId":"rc-1","status":{"state":"completed"}"#;
    let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":{{{task},{members}}}}}");
    Answer::Plain(200, vec![("content-type", "application/json".to_owned())], body.into_bytes())
}

impl Rig {
    /// Begins a task, waits for its end and reads it over every binding and in both dialects; gives what cannot be read.
    async fn is_read_in_every_way(&self, what: &str) -> Vec<String> {
        let api = self.caller.api();
        let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
        let id = text(&api.post("/a2a/agents/bad/message:send", &body).await.task(), "/id").to_owned();
        let begun = Instant::now();
        // It may be one that cannot be read as a whole.
        let has_ended = |body: &[u8]| {
            let body = String::from_utf8_lossy(body);
            ["COMPLETED", "FAILED"].iter().any(|state| body.contains(&format!("TASK_STATE_{state}")))
        };
        while !has_ended(&api.get(&format!("/a2a/tasks/{id}")).await.body) {
            assert!(begun.elapsed() < SOON, "{what}: no end of {id}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut problems = Vec::new();
        let rpc = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": id}});
        for (way, reply) in [
            ("HTTP+JSON", api.get(&format!("/a2a/tasks/{id}")).await),
            ("a list", api.get("/a2a/tasks?includeArtifacts=true").await),
            ("1.0", api.post("/a2a/jsonrpc", &rpc("GetTask")).await),
            ("0.3", api.post("/a2a/jsonrpc", &rpc("tasks/get")).await),
            ("chat", api.get(&format!("/v1/chat/{id}")).await),
        ] {
            let read = serde_json::from_slice::<Value>(&reply.body);
            problems.extend(read.err().map(|error| format!("{what}, {way}: {error}")));
        }
        let grpc = Grpc::new(&self.caller.server.url);
        for service in [A2A, GATEWAY] {
            let request = framed(&encoded(service, "GetTask", &json!({"id": id})));
            let answer = grpc.raw(&format!("{service}/GetTask"), request).send().await;
            assert!(answer.is_ok(), "{what}: {service} does not answer any more: {:?}", answer.err());
        }
        problems
    }
}

#[tokio::test]
async fn what_is_deep_is_not_passed_on() {
    let mut problems = Vec::new();
    for depth in [1_000, 100_000, 1_000_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (place, members) in [
            (
                "data",
                format!(r#""artifacts":[{{"artifactId":"a","parts":[{{"kind":"data","data":{{"x":{nested}}}}}]}}]"#),
            ),
            (
                "a part's metadata",
                format!(
                    r#""artifacts":[{{"artifactId":"a","parts":[{{"kind":"text","text":"t","metadata":{{"x":{nested}}}}}]}}]"#
                ),
            ),
            (
                "an artifact's metadata",
                format!(
                    r#""artifacts":[{{"artifactId":"a","parts":[{{"kind":"text","text":"t"}}],"metadata":{{"x":{nested}}}}}]"#
                ),
            ),
            ("a task's metadata", format!(r#""metadata":{{"x":{nested}}}"#)),
            ("artifacts", format!(r#""artifacts":{nested}"#)),
        ] {
            let rig = Rig::start(card_03).await;
            rig.remote.says("message/send", ended(&members));
            let what = format!("{place}, {depth} deep");
            problems.extend(rig.is_read_in_every_way(&what).await);
            rig.lives(&what).await;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn what_is_odd_is_read_or_refused_and_hurts_nobody() {
    let rig = Rig::start(card_03).await;
    let mut problems = Vec::new();
    let artifact = |id: &str, text: &str| {
        format!(r#""artifacts":[{{"artifactId":"{id}","parts":[{{"kind":"text","text":"{text}"}}]}}]"#)
    };
    for (what, members) in [
        ("a number without an end", format!(r#""metadata":{{"x":{}}}"#, "9".repeat(400))),
        ("members twice", r#""id":"other","status":{"state":"failed","state":"completed"}"#.to_owned()),
        ("zero in a text", artifact("a", r"zero \u0000 zero")),
        ("zero in an id", artifact(r"a\u0000b", "text")),
        ("half a letter", artifact("a", r"\ud800")),
        ("codes", artifact(r"a\u001b[2J", r"\u001b[2J\u0007")),
        ("a long id", artifact(&"i".repeat(1 << 20), "text")),
        ("an empty id", artifact("", "text")),
        ("many artifacts", format!(r#""artifacts":[{}{{}}]"#, r#"{"parts":[{"text":"x"}]},"#.repeat(20_000))),
        (
            "many parts",
            format!(
                r#""artifacts":[{{"artifactId":"a","parts":[{}{{"text":"x"}}]}}]"#,
                r#"{"text":"x"},"#.repeat(100_000)
            ),
        ),
        ("no parts", r#""artifacts":[{"artifactId":"a","parts":[]}]"#.to_owned()),
    ] {
        rig.remote.says("message/send", ended(&members));
        problems.extend(rig.is_read_in_every_way(what).await);
        let begun = Instant::now();
        rig.caller.a2a("call tool work").await;
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        rig.lives(what).await;
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn the_ids_of_a_remote_are_ids_and_no_paths() {
    let remote = Remote::start().await;
    let mut card = card_10(&remote.agent());
    card["supportedInterfaces"][0]["protocolBinding"] = json!("HTTP+JSON");
    remote.has_card(&card);
    let rig = Rig::of(remote).await;
    for id in ["../../admin", "..", "a/b?c=d#e", "a\r\nX-Evil: 1", "%2e%2e%2fadmin", "a b", ".", ""] {
        let task = json!({"task": task_10(id, "rc-1", "WORKING", "")});
        rig.remote.says("/a2a/message:send", Answer::json(&task));
        let body = json!({"message": message("work"), "configuration": {"returnImmediately": true}});
        let api = rig.caller.api();
        let ours = text(&api.post("/a2a/agents/bad/message:send", &body).await.task(), "/id").to_owned();
        tokio::time::sleep(Duration::from_millis(700)).await;
        api.post_empty(&format!("/a2a/tasks/{ours}:cancel")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        for asked in rig.remote.asked() {
            let known = asked.path.ends_with("agent-card.json") || asked.path.ends_with("agent.json");
            // One segment after `tasks`, whatever stands in it, or the place where messages go.
            let segments: Vec<&str> = asked.path.split(['/', '?']).collect();
            let is_task = matches!(segments[..], ["", "a2a", "tasks", id] if !matches!(id, "" | "." | ".."));
            // An id that would lead somewhere leads nowhere.
            let is_task = is_task || asked.path == "/a2a/tasks";
            let is_task = is_task || asked.path == "/a2a/message:send";
            assert!(known || is_task, "{id:?} became {asked:#?}");
            assert_eq!(asked.header("x-evil"), None, "{asked:#?}");
        }
    }
    rig.server_lives("ids").await;
}

/// What a remote calls its tasks forges no line on a terminal, and means nothing to a shell that a command is copied to.
#[tokio::test(flavor = "multi_thread")]
async fn ids_of_a_remote_forge_neither_lines_nor_commands() {
    let remote = Remote::with_card(card_10).await;
    let id = "a;id\nerror: your token has expired\u{202e}";
    remote.says("SendMessage", Answer::Result(json!({"task": task_10(id, id, "INPUT_REQUIRED", "who?")})));
    let home = Home::on_sqlite();
    let output = tokio::task::block_in_place(|| home.run(&["send", "hello", "--url", &remote.base]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("go on with `sb send --task 'a;id"), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("error")) && !said.contains('\u{202e}'), "{said}");
}
