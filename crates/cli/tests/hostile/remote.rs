//! Remotes that mean no good: each ends in an error that says what happened, within its caps and its time, and the server and
//! whoever called live on.

mod cards;
mod endless;
mod frames;
mod odd;
mod streams;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    http::{state, text},
    remote::{Answer, Caller, Remote, Setup, Step, card_03, task_03},
};

/// What memory may grow by, whatever a remote says. The caps of a body and of an event are a small part of it.
const MEMORY: u64 = 256 << 20;

/// What a remote gets rid of at most before nobody listens any more: the cap of a body, for some attempts, and what sockets hold.
const TAKEN: u64 = 64 << 20;

/// Nothing that a remote does keeps a caller longer, with the time that these tests give it.
const SOON: Duration = Duration::from_secs(20);

/// A server with one remote in both registries: the agent `bad`, and `tool` for `/a2a`.
struct Rig {
    caller: Caller,
    remote: Remote,
    /// Its memory when nothing had happened yet.
    memory: u64,
}

impl Rig {
    async fn start(card: impl FnOnce(&str) -> Value) -> Self {
        Self::of(Remote::with_card(card).await).await
    }

    /// The remote may have no card, or none that can be read.
    async fn of(remote: Remote) -> Self {
        let yaml = format!("agents:\n  - {{name: bad, url: \"{}\", timeout: 3s}}\n", remote.agent());
        let registry = json!({"tool": {"url": remote.agent()}});
        let setup = Setup::new().yaml(&yaml).json(&registry);
        let caller = setup
            .env("SB_OUTBOUND_TIMEOUT", "3s")
            .env("SB_OUTBOUND_QUIET", "2s")
            .env("SB_OUTBOUND_TURN_BYTES", "16MiB")
            .start()
            .await;
        caller.remote_when("bad", |remote| remote["reachable"].is_boolean()).await;
        let memory = caller.peak_memory();
        Self { caller, remote, memory }
    }

    /// One that answers every message so.
    async fn answering(answer: Answer) -> Self {
        let rig = Self::start(card_03).await;
        rig.remote.says("message/send", answer);
        rig
    }

    /// The task of a message ends as a failure; gives the words.
    async fn task_fails(&self, what: &str) -> String {
        self.task_failed(what).await.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The same, where more than one problem may be looked for: what is not as it should be is told.
    async fn task_failed(&self, what: &str) -> Result<String, String> {
        let begun = Instant::now();
        let task = self.caller.sends("bad", "work").await;
        if state(&task) != "FAILED" {
            return Err(format!("{what}: {task:#}"));
        }
        if begun.elapsed() >= SOON {
            return Err(format!("{what}: {:?}", begun.elapsed()));
        }
        let said = text(&task, "/status/message/parts/0/text").to_owned();
        clear(what, &said).map(|()| said)
    }

    /// A call by `/a2a` ends as an error; gives the words.
    async fn tool_fails(&self, what: &str) -> String {
        let begun = Instant::now();
        let said = self.caller.a2a("call tool work").await;
        assert!(said.starts_with("ERR: "), "{what}: {said}");
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        clear(what, &said).unwrap_or_else(|problem| panic!("{problem}"));
        said
    }

    /// Both.
    async fn fails(&self, what: &str) {
        self.task_fails(what).await;
        self.tool_fails(what).await;
    }

    /// The server answers others and this remote, once it behaves, and has not grown.
    async fn lives(&self, what: &str) {
        self.remote.says("message/send", Answer::Result(task_03("rt-9", "rc-9", "completed", "better")));
        assert_eq!(self.caller.asks("bad", "work").await["response"], "better", "{what}");
        self.server_lives(what).await;
    }

    async fn server_lives(&self, what: &str) {
        assert_eq!(self.caller.asks("echo", "hello").await["response"], "hello", "{what}");
        let grown = self.caller.peak_memory().saturating_sub(self.memory);
        assert!(grown < MEMORY, "{what}: the server has grown by {} MiB", grown >> 20);
        assert!(self.remote.said() < TAKEN, "{what}: {} MiB were listened to", self.remote.said() >> 20);
    }
}

/// An error is for people: a few words without codes for their terminal.
fn clear(what: &str, said: &str) -> Result<(), String> {
    let steers = said.chars().any(|letter| letter.is_control() && letter != '\n');
    let is_clear = said.len() > 10 && said.len() < 2_000 && !steers;
    if is_clear { Ok(()) } else { Err(format!("{what}: {} bytes of error: {said:.300?}", said.len())) }
}

fn head(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 Said\r\ncontent-type: application/json\r\n{more}\r\n").into_bytes()
}

#[tokio::test]
async fn a_body_without_an_end_is_read_as_far_as_the_cap() {
    let letters = Step::Forever(vec![b'x'; 64 << 10], Duration::ZERO);
    let spaces = Step::Forever(vec![b' '; 64 << 10], Duration::ZERO);
    let quote = Step::Bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":{\"id\":\"".to_vec());
    let arrays = Step::Forever(b"[],".repeat(20 << 10), Duration::ZERO);
    let list = Step::Bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":[".to_vec());
    for (what, pieces) in [("letters", vec![quote, letters]), ("spaces", vec![spaces]), ("arrays", vec![list, arrays])]
    {
        let rig = Rig::answering(Answer::body_of("application/json", pieces)).await;
        rig.fails(what).await;
        rig.lives(what).await;
    }
}

#[tokio::test]
async fn a_length_that_is_a_lie_costs_nothing() {
    for (what, length) in [("a huge one", "9999999999999"), ("no number", "many"), ("negative", "-1")] {
        let head = head(&format!("content-length: {length}\r\n"));
        let rig = Rig::answering(Answer::Raw(vec![Step::Bytes(head), Step::Bytes(b"{\"json".to_vec())])).await;
        rig.fails(what).await;
        rig.lives(what).await;
    }
}

#[tokio::test]
async fn heads_that_are_too_much_or_no_http_at_all() {
    let line = b"x-more: and more and more and more and more and more and more and more\r\n";
    let status = Step::Bytes(b"HTTP/1.1 200 Said\r\n".to_vec());
    let go_on = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
    for (what, pieces) in [
        ("headers without an end", vec![status.clone(), Step::Forever(line.repeat(100), Duration::ZERO)]),
        (
            "a header without an end",
            vec![status, Step::Bytes(b"x: ".to_vec()), Step::Forever(vec![b'y'; 9_000], Duration::ZERO)],
        ),
        ("continue for ever", vec![Step::Forever(go_on, Duration::ZERO)]),
        ("noise", vec![Step::Bytes(vec![0xff; 4_096])]),
        ("another protocol", vec![Step::Bytes(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), Step::Hang]),
        ("no word", vec![]),
        ("half a head", vec![Step::Bytes(b"HTTP/1.1 200 Sa".to_vec())]),
        (
            "a broken chunk",
            vec![Step::Bytes(head("transfer-encoding: chunked\r\n")), Step::Bytes(b"zz\r\n{}\r\n".to_vec())],
        ),
        (
            "an unfinished chunk",
            vec![Step::Bytes(head("transfer-encoding: chunked\r\n")), Step::Bytes(b"ffff\r\n{}".to_vec())],
        ),
        (
            "compressed, unasked",
            vec![Step::Bytes(head("content-encoding: gzip\r\n")), Step::Bytes(b"\x1f\x8b\x08\0\0\0".to_vec())],
        ),
    ] {
        let rig = Rig::answering(Answer::Raw(pieces)).await;
        rig.fails(what).await;
        rig.lives(what).await;
    }
}

#[tokio::test]
async fn a_slow_drip_ends_when_the_time_is_over() {
    let second = Duration::from_secs(1);
    let drip = |bytes: &[u8]| Step::Forever(bytes.to_vec(), second);
    for (what, pieces) in [
        ("of a head", vec![Step::Bytes(b"HTTP/1.1 200 Said\r\nx-slow: ".to_vec()), drip(b"y")]),
        ("of a body", vec![Step::Bytes(head("content-length: 5000\r\n")), drip(b" ")]),
        ("of nothing", vec![Step::Hang]),
    ] {
        let rig = Rig::answering(Answer::Raw(pieces)).await;
        let (task, tool) = (rig.task_fails(what).await, rig.tool_fails(what).await);
        assert!(task.contains("within 3 s") && tool.contains("within 3 s"), "{what}: {task} / {tool}");
        rig.lives(what).await;
    }
}

#[tokio::test]
async fn answers_of_the_wrong_types_are_refused_one_by_one() {
    let mut problems = Vec::new();
    let rig = Rig::start(card_03).await;
    let envelope = |result: Value| Answer::json(&json!({"jsonrpc": "2.0", "id": "$id", "result": result}));
    let task =
        |status: Value| Answer::Result(json!({"kind": "task", "id": "rt-1", "contextId": "rc-1", "status": status}));
    let artifacts = |artifacts: Value| {
        let status = json!({"state": "completed"});
        Answer::Result(
            json!({"kind": "task", "id": "rt-1", "contextId": "rc-1", "status": status, "artifacts": artifacts}),
        )
    };
    for (what, answer) in [
        ("nothing", Answer::Plain(200, vec![], vec![])),
        ("a page", Answer::Plain(200, vec![("content-type", "text/html".to_owned())], b"<html>hello</html>".to_vec())),
        ("an array", Answer::json(&json!([]))),
        ("a string", Answer::json(&json!("done"))),
        ("null", Answer::json(&Value::Null)),
        ("no result", Answer::json(&json!({"jsonrpc": "2.0", "id": "$id"}))),
        ("an error that is a string", Answer::json(&json!({"jsonrpc": "2.0", "id": "$id", "error": "no"}))),
        ("an error without a code", Answer::json(&json!({"jsonrpc": "2.0", "id": "$id", "error": {}}))),
        (
            "an error of wrong types",
            Answer::json(&json!({"jsonrpc": "2.0", "id": "$id", "error": {"code": "x", "message": 7}})),
        ),
        ("a result that is null", envelope(Value::Null)),
        ("a result that is a number", Answer::Result(json!(7))),
        ("a result that is an array", Answer::Result(json!([]))),
        ("an empty result", Answer::Result(json!({}))),
        ("a status that is null", task(Value::Null)),
        ("a status without a state", task(json!({}))),
        ("a state that is a number", task(json!({"state": 99}))),
        ("a state that nobody knows", task(json!({"state": "dancing"}))),
        (
            "an id that is a number",
            Answer::Result(json!({"kind": "task", "id": 7, "contextId": "rc-1", "status": {"state": "working"}})),
        ),
        ("artifacts that are a string", artifacts(json!("x"))),
        ("artifacts that are numbers", artifacts(json!([7]))),
        ("parts that are a number", artifacts(json!([{"artifactId": "a", "parts": 7}]))),
        ("a part that is a number", artifacts(json!([{"artifactId": "a", "parts": [7]}]))),
        ("a text that is an object", artifacts(json!([{"artifactId": "a", "parts": [{"kind": "text", "text": {}}]}]))),
        (
            "half a body",
            Answer::Plain(
                200,
                vec![("content-type", "application/json".to_owned())],
                b"{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"resu".to_vec(),
            ),
        ),
        (
            "no UTF-8",
            Answer::Plain(
                200,
                vec![("content-type", "application/json".to_owned())],
                b"{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":\"\xff\xfe\"}".to_vec(),
            ),
        ),
    ] {
        rig.remote.says("message/send", answer);
        problems.extend(rig.task_failed(what).await.err());
        // It behaves in between, so that the circuit stays closed.
        rig.lives(what).await;
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let inside = Remote::elsewhere().await;
    inside.says("message/send", Answer::Result(task_03("rt-1", "rc-1", "completed", "secrets")));
    let rig = Rig::start(card_03).await;
    for status in [301, 302, 303, 307, 308] {
        for location in
            [inside.agent(), "http://169.254.169.254/latest/meta-data/".to_owned(), "//127.0.0.1:1/".to_owned()]
        {
            rig.remote.says("message/send", Answer::redirect(status, &location));
            let what = format!("{status} to {location}");
            let said = rig.task_fails(&what).await;
            assert!(said.contains(&status.to_string()) || said.contains("redirect"), "{what}: {said}");
            assert!(!said.contains("169.254"), "where it leads is not for the caller: {said}");
            rig.tool_fails(&what).await;
            rig.lives(&what).await;
        }
    }
    assert!(inside.asked().is_empty() && inside.open() == 0, "{:#?}", inside.asked());
}
