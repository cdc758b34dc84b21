//! Sizes and times: bodies, parts, ids, metadata, nesting, slow clients, connections. With bounds that are not the default.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::edge::{
    support::{Fixture, message},
    wire::read_until,
};

#[tokio::test]
async fn a_body_over_the_bound_is_refused() {
    let rig = Fixture::with(|options| options.body_limit = 4096).await;
    let large = message(&"x".repeat(4096));
    for path in ["/a2a/message:send", "/a2a/jsonrpc", "/v1/a2a/agents/echo"] {
        let reply = rig.post(path, &large).await;
        assert_eq!((reply.status, reply.reason().as_str()), (413, "PAYLOAD_TOO_LARGE"), "{path}");
        assert_eq!(reply.json()["error"]["details"][0]["metadata"]["limitBytes"], "4096");
    }
    assert_eq!(rig.post("/a2a/message:send", &message(&"x".repeat(2000))).await.status, 200);
}

#[tokio::test]
async fn messages_over_the_bounds_are_refused_by_field() {
    let limits = a2a::Limits { id_bytes: 16, metadata_bytes: 64, parts: 2, json_depth: 4 };
    let rig = Fixture::in_exchange(|options| options.limits = limits).await;
    let nested = |depth: usize| -> Value {
        let text = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        serde_json::from_str(&text).unwrap()
    };
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = message("hello");
        change(&mut body["message"]);
        body
    };
    for (field, good, bad) in [
        (
            "message.messageId",
            changed(&|it| it["messageId"] = json!("m".repeat(16))),
            changed(&|it| it["messageId"] = json!("m".repeat(17))),
        ),
        (
            "message.contextId",
            changed(&|it| it["contextId"] = json!("c".repeat(16))),
            changed(&|it| it["contextId"] = json!("c".repeat(17))),
        ),
        (
            "message.metadata",
            changed(&|it| it["metadata"] = json!({"a": "x".repeat(40)})),
            changed(&|it| it["metadata"] = json!({"a": "x".repeat(64)})),
        ),
        (
            "message.parts",
            changed(&|it| it["parts"] = json!([{"text": "a"}, {"text": "b"}])),
            changed(&|it| it["parts"] = json!([{"text": "a"}, {"text": "b"}, {"text": "c"}])),
        ),
        (
            "message.parts[0].data",
            changed(&|it| it["parts"] = json!([{"data": nested(4), "mediaType": "text/plain"}])),
            changed(&|it| it["parts"] = json!([{"data": nested(5), "mediaType": "text/plain"}])),
        ),
    ] {
        let taken = rig.post("/a2a/message:send", &good).await;
        assert_eq!(taken.status, 200, "{field}: {taken:?}");
        let refused = rig.post("/a2a/message:send", &bad).await;
        assert_eq!((refused.status, refused.reason().as_str()), (400, "INVALID_PARAMS"), "{field}");
        let details = refused.json()["error"]["details"].clone();
        assert_eq!(details[1]["fieldViolations"][0]["field"], field, "{details}");
        let answer = rig.call("SendMessage", bad).await;
        assert_eq!(answer["error"]["code"], -32602, "{field}: {answer}");
    }
}

#[tokio::test]
async fn nesting_beyond_what_is_read_at_all_is_no_json() {
    let rig = Fixture::with(|_| {}).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{deep}}}}}"#);
    let reply = rig.ask("POST", "/a2a/jsonrpc").header("Content-Type", "application/json").body(body);
    let reply = reply.send().await;
    assert_eq!(reply.status, 200);
    assert!(reply.json()["error"]["code"].as_i64().unwrap() < -32000, "{reply:?}");
    assert_eq!(rig.bare("GET", "/healthz").send().await.status, 200);
}

#[tokio::test]
async fn slow_clients_are_given_up() {
    let rig = Fixture::with(|options| {
        options.header_timeout = Duration::from_millis(200);
        options.body_timeout = Duration::from_millis(200);
    })
    .await;
    let mut head = TcpStream::connect(rig.address).await.unwrap();
    head.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    let mut rest = Vec::new();
    assert!(timeout(Duration::from_secs(5), head.read_to_end(&mut rest)).await.is_ok(), "it is still open");
    let ask = rig.ask("POST", "/a2a/message:send").header("Content-Type", "application/json");
    let reply = ask.header("Content-Length", "100").send().await;
    assert_eq!((reply.status, reply.reason().as_str()), (408, "REQUEST_TIMEOUT"));
}

#[tokio::test]
async fn an_address_has_so_many_connections() {
    let rig = Fixture::with(|options| options.max_connections_per_address = 2).await;
    let id = rig.slow_task("long").await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.ask("GET", &format!("/a2a/tasks/{id}:subscribe")).open().await;
        read_until(&mut stream, "{\"task\":").await;
        open.push(stream);
    }
    let third = rig.get("/a2a/tasks").await;
    assert_eq!((third.status, third.header("retry-after")), (503, Some("1")));
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(10);
    while rig.get("/a2a/tasks").await.status != 200 {
        assert!(Instant::now() < deadline, "nobody gets in any more");
    }
}
