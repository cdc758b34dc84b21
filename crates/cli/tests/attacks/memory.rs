//! What one tenant sends within its limits: the server's memory stays under the bound of `docs/limits.md`, read from the system, and
//! another tenant is answered meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the figures are those of docs/limits.md")]

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{JoinHandle, JoinSet},
};

use crate::harness::{
    Home, PATIENCE, Server, TOKEN,
    grpc::framed,
    http::{Api, message, to},
};

/// So much more than when it is idle the server may take, at default limits.
const BOUND_MIB: u64 = 300;
/// How long the other tenant may wait for its echo. The build for tests is many times slower than the one that is released.
const ECHO: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// Just under the limit of a body.
const LARGE: usize = 9 << 20;

/// A server, the tenant that attacks it and one that does not.
struct Rig {
    attacker: Api,
    idle_kib: u64,
    calls: JoinHandle<Duration>,
    done: Arc<AtomicBool>,
    // Dropped in this order: the database goes when its server is gone.
    server: Server,
    home: Home,
}

impl Rig {
    async fn start() -> Self {
        Self::with(Home::new()).await
    }

    async fn with(home: Home) -> Self {
        let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
        home.add_tenant("other", "sb_other").await;
        let (attacker, other) = (server.api(), server.api().with_token(Some("sb_other")));
        attacker.send(&to("echo", "warm")).await;
        let idle_kib = kib(&server, "VmHWM");
        let done = Arc::new(AtomicBool::new(false));
        let calls = tokio::spawn({
            let done = Arc::clone(&done);
            async move {
                let mut worst = Duration::ZERO;
                while !done.load(Relaxed) {
                    let begun = Instant::now();
                    other.send(&to("echo", "are you there?")).await;
                    worst = worst.max(begun.elapsed());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                worst
            }
        });
        Self { attacker, idle_kib, calls, done, server, home }
    }

    /// What the server took at most above what it had when it was idle, and how long the other tenant waited.
    async fn finish(self, name: &str) {
        self.done.store(true, Relaxed);
        let worst = self.calls.await.unwrap();
        let peak = kib(&self.server, "VmHWM").saturating_sub(self.idle_kib) / 1024;
        println!("{name}: {peak} MiB, the other tenant waited {} ms", worst.as_millis());
        assert!(peak < BOUND_MIB, "{name}: {peak} MiB above idle");
        assert!(worst < ECHO, "{name}: the other tenant waited {worst:?}");
    }

    /// Posts a body, or puts it, and gives the status.
    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> u16 {
        let (method, path) = path.strip_prefix("PUT ").map_or((Method::POST, path), |path| (Method::PUT, path));
        let request = self.attacker.request(method, path).header("Content-Type", "application/json");
        self.attacker.call(request.body(body)).await.status
    }

    /// A task of so many bytes, there and back.
    async fn large_task(&self) -> String {
        let task = self.attacker.send(&to("echo", &"x".repeat(LARGE))).await;
        task["id"].as_str().unwrap().to_owned()
    }

    /// A connection that asks for something and reads only what the system takes by itself.
    async fn stalled(&self, method: &str, path: &str, more: &str) -> TcpStream {
        let address = self.server.address().trim_start_matches("http://").to_owned();
        let mut socket = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\n\
             {more}\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket
    }
}

/// A line of the process's status, in KiB.
fn kib(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A list of small things, of about so many bytes.
fn many(one: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + one.len());
    while text.len() < bytes {
        text.push_str(one);
        text.push(',');
    }
    text.pop();
    text
}

/// An object of many members, not in order.
fn members(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut n: u32 = 0;
    while text.len() < bytes {
        n = n.wrapping_add(0x9E37_79B9);
        let _ = write!(text, "\"{n:x}\":1,");
    }
    text.pop();
    format!("{{{text}}}")
}

fn data_message(data: &str) -> String {
    format!(
        r#"{{"message":{{"messageId":"m","contextId":"c","role":"ROLE_USER","parts":[{{"data":{data}}}]}},"tenant":"echo"}}"#
    )
}

/// Bodies that are read: where they go, and the answers that are right.
fn bodies() -> Vec<(&'static str, &'static str, String, &'static [u16])> {
    let numbers = format!("[{}]", many("1", LARGE));
    let empties = format!("[{}]", many("[]", LARGE));
    let deep = format!("{}{}{}", "[".repeat(90), many("{}", LARGE - 200), "]".repeat(90));
    let rpc =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let parts = |one: &str| {
        let parts = many(one, LARGE - 300);
        format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{parts}]}}"#)
    };
    let text = r#"{"text":""}"#;
    let of_03 = format!(
        r#"{{"message":{{"kind":"message","messageId":"m","role":"user","parts":[{}]}}}}"#,
        many(r#"{"kind":"text","text":""}"#, LARGE - 300)
    );
    let listed = |field: &str| {
        let entries = many("\"\"", LARGE - 300);
        format!(
            r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{text}],"{field}":[{entries}]}},"tenant":"echo"}}"#
        )
    };
    let send = "/a2a/message:send";
    vec![
        ("a keyed list of numbers", send, data_message(&numbers), &[200]),
        ("a keyed list of empty lists", send, data_message(&empties), &[200]),
        ("a keyed object of many members", send, data_message(&members(LARGE)), &[200]),
        ("a keyed deep list", send, data_message(&deep), &[200]),
        ("many parts", send, format!(r#"{{"message":{},"tenant":"echo"}}"#, parts(text)), &[400]),
        ("many parts of data", send, format!(r#"{{"message":{},"tenant":"echo"}}"#, parts(r#"{"data":1}"#)), &[400]),
        ("many extensions", send, listed("extensions"), &[400]),
        ("many references", send, listed("referenceTaskIds"), &[400]),
        (
            "many parts in an envelope",
            "/a2a/jsonrpc",
            rpc("SendMessage", &format!(r#"{{"message":{}}}"#, parts(text))),
            &[200],
        ),
        ("many parts of 0.3", "/a2a/jsonrpc", rpc("message/send", &of_03), &[200]),
        ("many parts under /v1/a2a", "/v1/a2a/agents/echo", rpc("message/send", &of_03), &[200]),
        ("parameters that are a list", "/a2a/jsonrpc", rpc("SendMessage", &numbers), &[200]),
        ("parameters that are a list, under /v1/a2a", "/v1/a2a/agents/echo", rpc("message/send", &numbers), &[200]),
        ("parameters that nobody knows", "/a2a/jsonrpc", rpc("GetTask", &format!(r#"{{"x":{empties}}}"#)), &[200]),
        ("an envelope that is a list", "/a2a/jsonrpc", empties.clone(), &[200]),
        ("a chat of a tree", "/v1/chat", format!(r#"{{"agent":"echo","message":{empties}}}"#), &[400]),
        ("an agent of a tree", "/v1/agents", format!(r#"{{"id":"a","x":{empties}}}"#), &[400, 413]),
        (
            "a card of many skills",
            "PUT /v1/cards/mine",
            format!(r#"{{"name":"a","skills":[{}]}}"#, many("{}", LARGE)),
            &[400],
        ),
        (
            "queued, a tree",
            "/v1/queue/publish",
            format!(r#"{{"from":"me","to":"nobody","payload":{empties}}}"#),
            &[200, 201],
        ),
    ]
}

#[tokio::test]
async fn a_body_takes_no_more_than_the_bound() {
    for (name, path, body, right) in bodies() {
        let rig = Rig::start().await;
        let status = rig.post(path, body).await;
        assert!(right.contains(&status), "{name}: {status}");
        rig.finish(name).await;
    }
}

#[tokio::test]
async fn many_large_bodies_at_once_take_no_more_than_the_bound() {
    let body = data_message(&format!("[{}]", many("1", LARGE)));
    for (name, count) in [("six large messages at once", 6), ("thirty large messages at once", 30)] {
        let rig = Rig::start().await;
        let sent = (0..count).map(|n| rig.post("/a2a/message:send", body.replace("\"m\"", &format!("\"m{n}\""))));
        let answers = join_all(sent).await;
        assert!(answers.contains(&200), "{answers:?}");
        assert!(answers.iter().all(|status| [200, 429, 503].contains(status)), "{answers:?}");
        rig.finish(name).await;
    }
}

#[tokio::test]
async fn a_call_of_grpc_takes_no_more_than_the_bound() {
    // Messages of two bytes each: parts of a message, and values of a Struct.
    let parts = [vec![0x12], varint(LARGE), [0x2a, 0].repeat(LARGE / 2)].concat();
    let values = [0x0a, 0].repeat(LARGE / 2);
    let list = [vec![0x32], varint(values.len()), values].concat();
    let entry = [vec![0x0a, 1, b'x', 0x12], varint(list.len()), list].concat();
    let object = [vec![0x0a], varint(entry.len()), entry].concat();
    for (name, path, message) in [
        ("many parts over gRPC", "/lf.a2a.v1.A2AService/SendMessage", parts),
        ("many values over gRPC", "/secondbrain.a2a.A2AGateway/GetTask", object),
    ] {
        let rig = Rig::start().await;
        let http = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
        let url = format!("{}{path}", rig.attacker.base());
        let call = http.post(url).header("Content-Type", "application/grpc").header("a2a-version", "1.0");
        let answer = call.bearer_auth(TOKEN).body(framed(&message)).send().await.unwrap();
        assert_eq!(answer.headers().get("grpc-status").unwrap(), "3", "{name}");
        rig.finish(name).await;
    }
}

/// A value of 9.9 MB in 1.65 million objects, over gRPC: sent, and read by two at once. As trees that took 2.2 GiB.
#[tokio::test]
async fn small_values_over_grpc_take_no_more_than_the_bound() {
    const VALUES: usize = 1_650_000;
    let within = |key: u8, inside: Vec<u8>| [vec![key], varint(inside.len()), inside].concat();
    // A list of `{"": null}`.
    let list = || within(0x32, [0x0a, 4, 0x2a, 2, 0x0a, 0].repeat(VALUES));
    let message = [vec![0x0a, 1, b'm', 0x20, 1], within(0x2a, within(0x22, list()))].concat();
    let request = [within(0x0a, b"echo".to_vec()), within(0x12, message)].concat();
    // The same as a Struct.
    let member = |name: &str, value: Vec<u8>| {
        within(0x0a, [within(0x0a, name.as_bytes().to_vec()), within(0x12, value)].concat())
    };
    let text = |text: &str| within(0x1a, text.as_bytes().to_vec());
    let object = |members: Vec<Vec<u8>>| within(0x2a, members.concat());
    let message = object(vec![
        member("messageId", text("m2")),
        member("role", text("ROLE_USER")),
        member("parts", within(0x32, within(0x0a, object(vec![member("data", list())])))),
    ]);
    let as_struct = [member("tenant", text("echo")), member("message", message)].concat();

    let (standard, gateway) = ("lf.a2a.v1.A2AService", "secondbrain.a2a.A2AGateway");
    for (service, request) in [(standard, request), (gateway, as_struct)] {
        let rig = Rig::start().await;
        let http = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
        let call = async |method: &str, message: &[u8]| {
            let call = http.post(format!("{}/{service}/{method}", rig.attacker.base()));
            let call = call.header("Content-Type", "application/grpc").header("a2a-version", "1.0");
            let call = call.header("last-event-id", "0").bearer_auth(TOKEN).body(framed(message));
            let answer = call.send().await.unwrap();
            // A status stands in the head of an answer only where that is an error.
            let status = answer.headers().get("grpc-status").cloned();
            (status, answer.bytes().await.unwrap().len())
        };
        let sent = call("SendMessage", &request).await;
        assert!(sent.0.is_none() && sent.1 > LARGE, "{service}: {sent:?}");
        let listed = rig.attacker.get("/v1/requests").await.ok();
        let id = listed["requests"][0]["request_id"].as_str().unwrap();
        let named = match service == standard {
            true => within(0x12, id.as_bytes().to_vec()),
            false => member("id", text(id)),
        };
        for method in ["GetTask", "SubscribeToTask"] {
            let answers = join_all((0..2).map(|_| call(method, &named))).await;
            let has_all = |(status, bytes): &(Option<_>, usize)| status.is_none() && *bytes > LARGE;
            assert!(answers.iter().any(has_all), "{service}: {method}: {answers:?}");
            let is_bounded = |status: &Option<_>| status.as_ref().is_none_or(|status| status == "8" || status == "14");
            assert!(answers.iter().all(|(status, _)| is_bounded(status)), "{service}: {method}: {answers:?}");
        }
        rig.finish(&format!("1.65 million small values over {service}")).await;
    }
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

#[tokio::test]
async fn the_events_of_a_tree_take_no_more_than_the_bound() {
    let rig = Rig::start().await;
    let body = data_message(&format!("[{}]", many("[]", LARGE)));
    assert_eq!(rig.post("/a2a/message:send", body).await, 200);
    let listed = rig.attacker.get("/v1/requests").await.ok();
    let id = listed["requests"][0]["request_id"].as_str().unwrap();
    let told = rig.attacker.get(&format!("/v1/requests/{id}/events")).await;
    assert!(told.body.len() > LARGE, "{} bytes", told.body.len());
    rig.finish("native events").await;
}

/// A list is cut by bytes, and its pages together are all of it.
#[tokio::test]
async fn lists_of_large_tasks_take_no_more_than_the_bound_and_miss_none() {
    let rig = Rig::start().await;
    for _ in 0..12 {
        rig.large_task().await;
    }
    let (mut token, mut seen, mut longest) = (String::new(), Vec::new(), 0);
    loop {
        let page = rig.attacker.get(&format!("/a2a/tasks?includeArtifacts=true&pageSize=100&pageToken={token}")).await;
        longest = longest.max(page.body.len());
        let page = page.ok();
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        assert_eq!(page["totalSize"], 13);
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 13);
    assert!(longest < 40 << 20, "a page of {longest} bytes");
    let lists = (0..20).map(|_| rig.attacker.get("/a2a/tasks?includeArtifacts=true&pageSize=100"));
    let answers: Vec<u16> = join_all(lists).await.iter().map(|reply| reply.status).collect();
    assert!(answers.iter().all(|status| [200, 429, 503].contains(status)), "{answers:?}");
    let cheap = rig.attacker.get("/a2a/tasks?historyLength=0&pageSize=100").await;
    assert!(cheap.body.len() < 1 << 20, "{} bytes", cheap.body.len());
    rig.finish("lists of large tasks").await;
}

#[tokio::test]
async fn a_hundred_stalled_readers_take_no_more_than_the_bound() {
    for (name, method, path, more) in [
        ("a task", "GET", "/a2a/tasks/{id}", "Content-Length: 0\r\n"),
        ("a list", "GET", "/a2a/tasks?includeArtifacts=true", "Content-Length: 0\r\n"),
        ("a replay", "POST", "/a2a/tasks/{id}:subscribe", "Content-Length: 0\r\nLast-Event-ID: 0\r\n"),
        ("native events", "GET", "/v1/requests/{id}/events", "Content-Length: 0\r\n"),
    ] {
        let rig = Rig::start().await;
        let id = rig.large_task().await;
        let path = path.replace("{id}", &id);
        let mut stalled = join_all((0..100).map(|_| rig.stalled(method, &path, more))).await;
        // Some have begun to be answered, and more is not read.
        let mut first = [0; 64];
        assert!(stalled[0].read(&mut first).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_secs(4)).await;
        rig.finish(&format!("a hundred stalled readers of {name}")).await;
    }
}

/// What a tenant keeps beside its tasks is as large as it makes it, too.
#[tokio::test]
async fn lists_of_what_a_tenant_keeps_take_no_more_than_the_bound() {
    let rig = Rig::start().await;
    let (words, half) = ("x".repeat(60_000), "x".repeat(30_000));
    for n in 0..300 {
        let card = json!({"name": format!("card {n}"), "description": words}).to_string();
        assert_eq!(rig.post(&format!("PUT /v1/cards/card{n}"), card).await, 201);
    }
    for n in 0..100 {
        let agent = json!({"id": format!("agent{n}"), "name": "a", "role": half, "goal": half, "model": "script/m"})
            .to_string();
        assert_eq!(rig.post("/v1/agents", agent).await, 201);
    }
    for path in ["/v1/cards", "/v1/agents"] {
        let listed = rig.attacker.get(path).await;
        assert!(listed.status == 200 && listed.body.len() > 100 * words.len(), "{} bytes", listed.body.len());
        let mut stalled = join_all((0..100).map(|_| rig.stalled("GET", path, "Content-Length: 0\r\n"))).await;
        let mut first = [0; 64];
        assert!(stalled[0].read(&mut first).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    rig.finish("a hundred stalled readers of what a tenant keeps").await;
}

/// On HTTP/2 a connection has many requests at once, and small ones take memory, too.
#[tokio::test]
async fn requests_without_a_token_have_a_pool_of_their_own() {
    // A quarter of the pool, which has 1024.
    const SHARE: usize = 256;
    let home = Home::new();
    let server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    let url = format!("{}/grpc.health.v1.Health/Watch", server.api().base());
    let clients: Vec<_> = (0..3).map(|_| reqwest::Client::builder().http2_prior_knowledge().build().unwrap()).collect();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut watches = JoinSet::new();
    for n in 0..400 {
        let request = clients[n % 3].post(&url).header("Content-Type", "application/grpc").header("te", "trailers");
        let mut watch = request.body(framed(&[])).send().await.unwrap();
        assert_eq!(watch.status(), 200, "watch {n}");
        let ended = Arc::clone(&ended);
        watches.spawn(async move {
            while let Ok(Some(_)) = watch.chunk().await {}
            ended.fetch_add(1, Relaxed);
        });
    }
    for _ in 0..20 {
        assert_eq!(server.api().get("/a2a/tasks").await.status, 200, "callers with a token are let in");
    }
    let since = Instant::now();
    while ended.load(Relaxed) < 400 - SHARE && since.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ended.load(Relaxed), 400 - SHARE, "the oldest ones give way, and no others");
    assert_eq!(server.api().get("/healthz").await.status, 200);
    assert!(server.log().contains("requests without a token"), "{}", server.log());
}

/// Those who send much and do not read what they are answered.
#[tokio::test]
async fn forty_stalled_senders_take_no_more_than_the_bound() {
    let rig = Rig::start().await;
    let text = "x".repeat(LARGE);
    let sent = (0..40).map(async |n| {
        let body = json!({"message": {"messageId": format!("m{n}"), "role": "ROLE_USER", "parts": [{"text": text}]}, "tenant": "echo"});
        let body = body.to_string();
        let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        let mut socket = rig.stalled("POST", "/a2a/message:send", &length).await;
        let _ = socket.write_all(body.as_bytes()).await;
        socket
    });
    let _sockets = join_all(sent).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    rig.finish("forty stalled senders").await;
}

#[tokio::test]
async fn a_long_conversation_of_large_messages_takes_no_more_than_the_bound() {
    let rig = Rig::start().await;
    for n in 0..16 {
        let mut sent = message(&"x".repeat(LARGE));
        sent["contextId"] = json!("c");
        sent["messageId"] = json!(format!("m{n}"));
        rig.attacker.send(&json!({"message": sent, "tenant": "echo"})).await;
    }
    rig.finish("a conversation of large messages").await;
}

/// A program that reads nothing and says when it was started; further lines of its table.
fn deaf(home: &Home, table: &str) {
    let started = home.write("started/none", "");
    let started = started.trim_end_matches("none");
    let program = format!("argv = [\"/bin/sh\", \"-c\", \"touch {started}$$; exec sleep 600\"]");
    let slots = "kind = \"command\"\nconcurrency = 24\nper_tenant = 24";
    home.add_agent("deaf.toml", &format!("{slots}\n[command]\n{program}\n{table}\n"));
}

/// How many programs have been started. A file is there from the begin.
fn started(home: &Home) -> usize {
    std::fs::read_dir(home.path("started")).unwrap().count() - 1
}

/// Each was given 30 MB where the input was kept in memory.
#[tokio::test]
async fn turns_of_programs_that_read_nothing_take_no_more_than_the_bound() {
    let text = "x".repeat(10_000_000);
    for (name, table, programs) in
        [("24 programs that read nothing", "", 24), ("24 turns of one that reads nothing", "mode = \"serve\"", 1)]
    {
        let home = Home::new();
        deaf(&home, table);
        let rig = Rig::with(home).await;
        for n in 0..24 {
            let body = json!({
                "message": {"messageId": format!("m{n}"), "role": "ROLE_USER", "parts": [{"text": text}]},
                "tenant": "deaf",
                "configuration": {"returnImmediately": true, "historyLength": 0},
            });
            assert_eq!(rig.post("/a2a/message:send", body.to_string()).await, 200, "{n}");
        }
        let begun = Instant::now();
        while started(&rig.home) < programs {
            assert!(begun.elapsed() < 4 * PATIENCE, "{name}: {} programs were started", started(&rig.home));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The last messages are on their way to a program that is there already.
        tokio::time::sleep(Duration::from_secs(3)).await;
        rig.finish(name).await;
    }
}

/// Messages that wait in the journal are claimed many at a time.
#[tokio::test]
async fn turns_that_are_claimed_together_take_no_more_than_the_bound() {
    let home = Home::new();
    deaf(&home, "");
    let text = "x".repeat(10_000_000);
    let mut server = home.start(home.serving(&[], &[]).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    server.api().send(&to("echo", "warm")).await;
    let idle_kib = kib(&server, "VmHWM");
    for n in 0..24 {
        let body = json!({
            "message": {"messageId": format!("m{n}"), "role": "ROLE_USER", "parts": [{"text": text}]},
            "tenant": "deaf",
            "configuration": {"returnImmediately": true, "historyLength": 0},
        });
        server.api().post("/a2a/message:send", &body).await.ok();
    }
    server.kill9();
    let before = started(&home);
    // Its turns begin with it.
    let rig = Rig { idle_kib, ..Rig::with(home).await };
    let begun = Instant::now();
    while started(&rig.home) < before + 24 {
        assert!(begun.elapsed() < 4 * PATIENCE, "{} programs were started", started(&rig.home) - before);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    rig.finish("24 turns that are claimed together").await;
}

/// What was said before in the context is read for each turn, however small its message is.
#[tokio::test]
async fn turns_in_a_large_context_take_no_more_than_the_bound() {
    let home = Home::new();
    deaf(&home, "");
    home.add_agent("reads.toml", "kind = \"command\"\nconcurrency = 24\n[command]\nargv = [\"true\"]\n");
    let rig = Rig::with(home).await;
    let send = async |id: String, text: &str| {
        let message = json!({"messageId": id, "contextId": "c", "role": "ROLE_USER", "parts": [{"text": text}]});
        let configuration = json!({"returnImmediately": true, "historyLength": 0});
        let body = json!({"message": message, "tenant": "reads", "configuration": configuration});
        assert_eq!(rig.post("/a2a/message:send", body.to_string()).await, 200);
    };
    send("before".to_owned(), &"x".repeat(LARGE)).await;
    join_all((0..24).map(|n| send(format!("m{n}"), "hello"))).await;
    let begun = Instant::now();
    let completed = "/a2a/tasks?tenant=reads&status=TASK_STATE_COMPLETED&historyLength=0";
    while rig.attacker.get(completed).await.ok()["totalSize"] != 25 {
        assert!(begun.elapsed() < 4 * PATIENCE, "they come to their ends");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    rig.finish("24 turns in a large context").await;
}

/// What workers ask for is as large as its publishers have made it.
#[tokio::test]
async fn the_queue_takes_no_more_than_the_bound() {
    let rig = Rig::start().await;
    let entry = json!({"from": "a", "to": "far", "text": "x".repeat(LARGE), "maxAttempts": 1}).to_string();
    let publish = async |count: usize| {
        for _ in 0..count {
            assert_eq!(rig.post("/v1/queue/publish", entry.clone()).await, 201);
        }
    };
    let many = r#"{"max": 100}"#;
    let mut ids = Vec::new();
    publish(6).await;
    for _ in 0..6 {
        let asked =
            rig.attacker.request(Method::POST, "/v1/queue/far/consume").header("Content-Type", "application/json");
        let handed = rig.attacker.call(asked.body(many)).await.ok();
        assert_eq!(handed["messages"].as_array().unwrap().len(), 1, "one at a time");
        let (id, lease) = (&handed["messages"][0]["id"], &handed["messages"][0]["lease"]);
        let nack = json!({"lease": lease, "error": "no"}).to_string();
        assert_eq!(rig.post(&format!("/v1/queue/messages/{}/nack", id.as_str().unwrap()), nack).await, 200);
        ids.push(id.as_str().unwrap().to_owned());
    }
    publish(6).await;
    let consumed = join_all((0..8).map(|_| rig.post("/v1/queue/far/consume", many))).await;
    let letters = join_all((0..8).map(|_| rig.attacker.get("/v1/queue/dlq"))).await;
    let entries = join_all(
        ids.iter().map(|id| format!("/v1/queue/messages/{id}")).map(async |path| rig.attacker.get(&path).await),
    )
    .await;
    let statuses = consumed.into_iter().chain(letters.iter().chain(&entries).map(|reply| reply.status));
    let statuses: Vec<u16> = statuses.collect();
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{statuses:?}");
    drop((letters, entries));
    rig.finish("the queue").await;
}

/// Entries are small, and what belongs to them is not: what was said before in their context, and the state that a worker has kept.
#[tokio::test]
async fn what_belongs_to_entries_takes_no_more_than_the_bound_and_no_room_of_others() {
    const ENTRIES: usize = 48;
    const ONE: &str = r#"{"max": 1}"#;
    let home = Home::new();
    home.add_agent("keeps.toml", "kind = \"queue\"\n");
    let rig = Rig::with(home).await;
    let publish = async |to: &str, text: &str| {
        let entry = json!({"from": "a", "to": to, "text": text, "correlationId": "c"}).to_string();
        assert_eq!(rig.post("/v1/queue/publish", entry).await, 201);
    };
    let consume = async |agent: &str| {
        let handed = rig.attacker.post(&format!("/v1/queue/{agent}/consume"), &json!({"max": 1})).await.ok();
        handed["messages"][0].clone()
    };
    let verb = async |entry: &serde_json::Value, verb: &str, mut body: serde_json::Value| {
        body["lease"] = entry["lease"].clone();
        let path = format!("/v1/queue/messages/{}/{verb}", entry["id"].as_str().unwrap());
        assert_eq!(rig.post(&path, body.to_string()).await, 200);
    };
    publish("talks", &"x".repeat(LARGE)).await;
    verb(&consume("talks").await, "ack", json!({})).await;
    for _ in 0..ENTRIES {
        publish("talks", "hello").await;
    }
    let state = "x".repeat(LARGE);
    let asks = json!({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}});
    let mut kept = Vec::new();
    for _ in 0..8 {
        publish("keeps", "hello").await;
        let entry = consume("keeps").await;
        verb(&entry, "progress", json!({"events": [{"keep": state}, asks]})).await;
        kept.push(entry["id"].clone());
    }
    for (n, task) in kept.iter().enumerate() {
        let parts = json!([{"text": "more"}]);
        let more = json!({"messageId": format!("m{n}"), "taskId": task, "role": "ROLE_USER", "parts": parts});
        let body = json!({"message": more, "configuration": {"returnImmediately": true, "historyLength": 0}});
        assert_eq!(rig.post("/a2a/message:send", body.to_string()).await, 200);
    }
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", ONE.len());
    let stalled = |agent: &'static str, count: usize| {
        let (rig, length) = (&rig, &length);
        join_all((0..count).map(move |_| async move {
            let mut socket = rig.stalled("POST", &format!("/v1/queue/{agent}/consume"), length).await;
            socket.write_all(ONE.as_bytes()).await.unwrap();
            socket
        }))
    };
    let _stalled = (stalled("talks", ENTRIES).await, stalled("keeps", 8).await);
    // Another tenant's large messages have the room that they have always.
    let neighbor = rig.server.api().with_token(Some("sb_other"));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        let sent = neighbor.post("/a2a/message:send", &to("echo", &state)).await;
        assert_eq!(sent.status, 200, "{}", String::from_utf8_lossy(&sent.body));
    }
    let counts = rig.attacker.get("/v1/queue/status").await.ok();
    assert!(counts["in_progress"].as_u64().unwrap() <= 2, "what is refused is not taken: {counts}");
    rig.finish("what belongs to entries").await;
}
