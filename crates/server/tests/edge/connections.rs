//! Sockets: bounds, both versions of HTTP, and the end of the server.

use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::{Options, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::edge::{
    support::{Fixture, TOKEN, message},
    wire::{PATIENCE, read_until},
};

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn http_2_without_tls() {
    let fixture = Fixture::start().await;
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://{}/a2a/message:stream", fixture.address))
        .header("x-sb-token", TOKEN)
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(message("stream").to_string())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_connection_outlives_a_body_that_nobody_wanted() {
    let fixture = Fixture::start().await;
    let token = format!("x-sb-token: {TOKEN}\r\n");
    for (status, request, headers) in [
        (401, "POST /a2a/message:send", "A2A-Version: 1.0"),
        (404, "POST /a2a/nothing/here", &format!("{token}A2A-Version: 1.0")),
        (405, "PUT /a2a/message:send", &format!("{token}A2A-Version: 1.0")),
        (415, "POST /a2a/message:send", &format!("{token}A2A-Version: 1.0\r\nContent-Type: text/plain")),
        (400, "POST /a2a/message:send", &format!("{token}A2A-Version: 9")),
    ] {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        // The body comes a moment after its head, as with most clients.
        let body = "x".repeat(10_000);
        let length = body.len();
        let head = format!("{request} HTTP/1.1\r\nHost: x\r\n{headers}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(20)).await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "}").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{answer}");
        stream.write_all(HEALTH).await.unwrap();
        let answer = read_until(&mut stream, "\"ok\"").await;
        assert!(answer.contains("HTTP/1.1 200"), "{status}: {answer}");
    }
    // What is too much to be read in passing is said to end the connection, and so is what nobody here is called.
    let closed = Fixture::with(|options| options.auth = false).await;
    for (fixture, host, length) in [(&fixture, "x", 5_000_000), (&closed, "evil.example", 10)] {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        let head = format!("POST /a2a/message:send HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "}").await;
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_are_given_up() {
    let fixture = Fixture::with(|options| {
        options.header_timeout = Duration::from_millis(200);
        options.body_timeout = Duration::from_millis(200);
    })
    .await;
    for start in [&b""[..], b"P", b"PRI * HTTP/2.0", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "still open after {:?}", String::from_utf8_lossy(start));
    }

    let ask = fixture.ask("POST", "/a2a/jsonrpc").header("Content-Type", "application/json");
    let reply = ask.header("Content-Length", "10").send().await;
    assert_eq!((reply.status, reply.reason().as_str()), (408, "REQUEST_TIMEOUT"));
}

#[tokio::test]
async fn an_idle_connection_gives_way_and_a_busy_one_does_not() {
    let fixture = Fixture::with(|options| options.max_connections = 1).await;
    let mut idle = TcpStream::connect(fixture.address).await.unwrap();
    idle.write_all(HEALTH).await.unwrap();
    read_until(&mut idle, "{\"status\":\"ok\"}").await;
    let id = fixture.slow_task("long").await;
    let mut rest = Vec::new();
    assert!(timeout(PATIENCE, idle.read_to_end(&mut rest)).await.is_ok(), "it is still open");

    let mut stream = fixture.ask("GET", &format!("/a2a/tasks/{id}:subscribe")).open().await;
    read_until(&mut stream, "{\"task\":").await;
    let refused = fixture.get("/a2a/tasks").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("connection"), Some("close"));
    for path in ["/healthz", "/readyz"] {
        let health = fixture.bare("GET", path).send().await;
        assert_eq!((health.status, health.header("connection")), (200, Some("close")), "{path}");
    }
    let hash = exchange::admin::hash("sba_test").to_vec();
    fixture.exchange.store().set_setting("test", exchange::admin::ADMIN_TOKEN, hash).await.unwrap();
    let admin = fixture.bare("GET", "/v1/admin/tenants").header("Authorization", "Bearer sba_test").send().await;
    assert_eq!((admin.status, admin.header("connection")), (200, Some("close")));
    fixture.exchange.draining().cancel();
    stream.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn who_does_not_say_who_they_are_may_not_stay() {
    let fixture = Fixture::with(|options| options.unauthenticated_timeout = Duration::from_millis(300)).await;
    for begin in [&b""[..], HEALTH, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "still open after {}", begin.escape_ascii());
    }
}

#[tokio::test]
async fn a_reader_that_stops_is_dropped() {
    let fixture = Fixture::with(|options| options.stall = Duration::from_millis(300)).await;
    // More than the sockets' buffers hold.
    let text = "x".repeat(9 * 1024 * 1024);
    let sent = fixture.post("/a2a/message:send", &message(&text)).await.json();
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    let mut stream = fixture.ask("GET", &format!("/a2a/tasks/{id}:subscribe?afterSequence=0")).open().await;
    sleep(Duration::from_secs(2)).await;
    let mut bytes = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.expect("it was closed");
    let complete = String::from_utf8_lossy(&bytes).contains("TASK_STATE_COMPLETED");
    assert!(read.is_err() || !complete, "the stream went on");
    assert_eq!(fixture.bare("GET", "/healthz").send().await.status, 200);
}

#[tokio::test]
async fn a_drain_ends_streams_and_lets_requests_finish() {
    let fixture = Fixture::start().await;
    let id = fixture.slow_task("long").await;
    let mut stream = fixture.ask("GET", &format!("/a2a/tasks/{id}:subscribe")).open().await;
    read_until(&mut stream, "{\"task\":").await;
    let mut idle = TcpStream::connect(fixture.address).await.unwrap();
    idle.write_all(HEALTH).await.unwrap();
    read_until(&mut idle, "{\"status\":\"ok\"}").await;

    let start = Instant::now();
    fixture.exchange.draining().cancel();
    let ready = fixture.bare("GET", "/readyz").send().await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "{\"status\":\"draining\"}"));
    fixture.stop.cancel();
    fixture.running.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream was ended properly");
    assert!(TcpStream::connect(fixture.address).await.is_err());
}

#[tokio::test]
async fn an_instance_whose_schema_was_migrated_away_is_not_ready_and_drains() {
    let fixture = Fixture::start().await;
    let ready = fixture.bare("GET", "/readyz").send().await;
    assert_eq!(ready.status, 200, "{}", ready.body);
    fixture.scratch.set_schema(99);
    let ready = fixture.bare("GET", "/readyz").send().await;
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("the schema of the journal is newer"), "{}", ready.body);
    timeout(PATIENCE, fixture.exchange.draining().cancelled()).await.expect("it drains");
    assert!(fixture.exchange.is_outdated());
    let ready = fixture.bare("GET", "/readyz").send().await;
    assert!(ready.status == 503 && ready.body.contains("newer"), "{}", ready.body);
    assert_eq!(fixture.post("/a2a/message:send", &message("hello")).await.status, 503);
}

#[tokio::test]
async fn addresses_that_would_be_wrong_are_refused() {
    let fixture = Fixture::start().await;
    let refused = async |options: Options| {
        let error = Server::bind(fixture.exchange.clone(), options).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    };
    refused(Options::new(([0, 0, 0, 0], 0).into())).await;
    let public_url = Some("https://sb.example".to_owned());
    refused(Options { auth: false, public_url, ..Options::new(([0, 0, 0, 0], 0).into()) }).await;
    let taken = Server::bind(fixture.exchange.clone(), Options::new(fixture.address)).await.err().unwrap();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn clients_that_vanish_leave_their_work_behind() {
    let fixture = Fixture::start().await;
    for n in 0..200 {
        let ask = fixture.ask("POST", "/a2a/message:send").json(&message("hello"));
        let stream = ask.open().await;
        // Closed at every moment between arrival and answer.
        sleep(Duration::from_micros(n * 10)).await;
        drop(stream);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let working = fixture.get("/a2a/tasks?status=TASK_STATE_WORKING").await.json()["totalSize"].clone();
        let waiting = fixture.get("/a2a/tasks?status=TASK_STATE_SUBMITTED").await.json()["totalSize"].clone();
        if working == 0 && waiting == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{working} tasks are working and {waiting} wait, with nobody to run them");
        sleep(Duration::from_millis(100)).await;
    }
}
