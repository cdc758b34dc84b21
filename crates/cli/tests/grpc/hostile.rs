//! Bytes that are not what they should be: each gets an error in the right shape, and nothing changes.

use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    grpc::{A2A, Answer, GATEWAY, Grpc, Messages, encoded, framed},
    harness::{Home, PATIENCE},
    http::{reason, to},
    rig::Rig,
};

async fn raw(grpc: &Grpc, service: &str, body: Vec<u8>) -> Answer {
    Messages::of(grpc.raw(&format!("{service}/SendMessage"), body), None).await.finish().await
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let rig = Rig::start(&[]).await;
    let grpc = rig.grpc();
    let message = encoded(A2A, "SendMessage", &to("echo", "hello"));
    for (what, body, code, told) in [
        ("nothing", Vec::new(), 3, "INVALID_REQUEST"),
        ("half a head", vec![0, 0], 3, "INVALID_REQUEST"),
        ("half a message", framed(&message)[..message.len()].to_vec(), 3, "INVALID_REQUEST"),
        ("two messages", [framed(&message), framed(&message)].concat(), 3, "INVALID_REQUEST"),
        ("a length beyond everything", [&[0, 255, 255, 255, 255][..], &message].concat(), 3, "INVALID_REQUEST"),
        ("another flag", [&[7][..], &framed(&message)[1..]].concat(), 3, "INVALID_REQUEST"),
        ("compressed", [&[1][..], &framed(&message)[1..]].concat(), 12, "COMPRESSION_NOT_SUPPORTED"),
        ("garbage", framed(&[0xff; 64]), 3, "PARSE_ERROR"),
        ("text that is no text", framed(&[0x0a, 2, 0xff, 0xfe]), 3, "PARSE_ERROR"),
        ("JSON", framed(br#"{"message":{}}"#), 3, "PARSE_ERROR"),
        ("an empty message", framed(b""), 3, "INVALID_PARAMS"),
    ] {
        for service in [A2A, GATEWAY] {
            let answer = raw(&grpc, service, body.clone()).await;
            assert_eq!(reason(&answer.error(code)), told, "{what} at {service}");
        }
    }
    assert_eq!(rig.api().get("/a2a/tasks").await.ok()["totalSize"], 0);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_before_it_is_read() {
    let rig = Rig::start(&[]).await;
    let request = to("echo", &"x".repeat(11 << 20));
    for service in [A2A, GATEWAY] {
        let answer = raw(&rig.grpc(), service, framed(&encoded(service, "SendMessage", &request))).await;
        assert_eq!(reason(&answer.error(8)), "PAYLOAD_TOO_LARGE", "{service}");
    }
    let fits = to("echo", &"x".repeat(9 << 20));
    let answer = rig.grpc().call(A2A, "SendMessage", &fits).await;
    assert_eq!(answer.code(), Some(0));
}

#[tokio::test]
async fn small_messages_do_not_become_large_ones() {
    let rig = Rig::start(&[]).await;
    // Millions of parts of two bytes each, in the message of the request.
    let parts = [0x2a, 0].repeat(4 << 20);
    let mut request = vec![0x12];
    let mut length = parts.len();
    while length > 0x7f {
        request.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    request.push(length as u8);
    request.extend(parts);
    let answer = raw(&rig.grpc(), A2A, framed(&request)).await;
    let error = answer.error(3);
    assert_eq!(reason(&error), "INVALID_PARAMS");
    assert!(error.to_string().contains("message.parts"), "{error}");

    // Nobody has said who they are when they ask for health.
    let nobody = rig.grpc().without("authorization");
    let long = nobody.raw("grpc.health.v1.Health/Check", framed(&vec![0x0a; 100_000]));
    assert_eq!(reason(&Messages::of(long, None).await.finish().await.error(8)), "PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn what_nests_deeper_than_readers_go_can_be_read_all_the_same() {
    let rig = Rig::start(&[]).await;
    let mut deep = json!("bottom");
    for _ in 0..90 {
        deep = json!({"a": deep});
    }
    let request = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x", "metadata": deep}]}, "tenant": "echo"});
    let sent = rig.api().send(&request).await;
    let id = sent["id"].clone();
    let got = rig.grpc().ok(A2A, "GetTask", &json!({"id": id})).await;
    assert!(got.to_string().contains("bottom"), "{got}");
    let listed = rig.grpc().ok(A2A, "ListTasks", &json!({"includeArtifacts": true})).await;
    assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(1));
    let got = rig.grpc().ok(GATEWAY, "GetTask", &json!({"id": id})).await;
    assert!(got.to_string().contains("bottom"), "{got}");
}

#[tokio::test]
async fn other_media_types_and_methods_are_answered_as_http() {
    let rig = Rig::start(&[]).await;
    let message = framed(&encoded(A2A, "SendMessage", &to("echo", "hello")));
    for media in ["application/json", "application/grpc-web", "application/grpc+json", "text/plain"] {
        let request = rig.grpc().raw(&format!("{A2A}/SendMessage"), message.clone());
        let (client, request) = request.build_split();
        let mut request = request.unwrap();
        request.headers_mut().insert("content-type", media.parse().unwrap());
        let answer = client.execute(request).await.unwrap();
        assert_eq!(answer.status(), 415, "{media}");
    }
    let api = rig.api();
    assert_eq!(api.get(&format!("/{A2A}/SendMessage")).await.status, 405);
    // HTTP/1.1 has no trailers that a client of gRPC could rely on.
    let request = api.request(Method::POST, &format!("/{A2A}/SendMessage")).header("content-type", "application/grpc");
    let answer = api.call(request.body(message)).await;
    assert_eq!((answer.status, reason(&answer.error(400))), (400, "INVALID_REQUEST"));
    // Who has no token learns nothing else, in whatever they speak.
    let nobody = api.with_token(None);
    assert_eq!(reason(&nobody.get(&format!("/{A2A}/Nothing")).await.error(401)), "UNAUTHENTICATED");
}

#[tokio::test]
async fn missing_metadata_is_told() {
    let rig = Rig::start(&[]).await;
    let bare = rig.grpc().without("a2a-version").without("authorization");
    assert_eq!(reason(&bare.call(A2A, "ListTasks", &json!({})).await.error(16)), "UNAUTHENTICATED");
    let versionless = rig.grpc().without("a2a-version");
    assert_eq!(reason(&versionless.call(A2A, "ListTasks", &json!({})).await.error(9)), "VERSION_NOT_SUPPORTED");
    let two = rig.grpc().with("x-api-key", "sb_another-token");
    assert_eq!(reason(&two.call(A2A, "ListTasks", &json!({})).await.error(16)), "UNAUTHENTICATED");
}

#[tokio::test]
async fn noise_on_the_socket_ends_its_own_connection_only() {
    let rig = Rig::start(&[]).await;
    for noise in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\0\0\0\0\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nXX",
    ] {
        let mut socket = TcpStream::connect(rig.server.address()).await.unwrap();
        socket.write_all(noise).await.unwrap();
        let _ = socket.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "{noise:?}");
    }
    assert_eq!(rig.grpc().ok(A2A, "ListTasks", &json!({})).await["pageSize"], 50);
}

#[tokio::test]
async fn rates_hold_over_every_binding_together() {
    let rig = Rig::start_in(Home::new(), &[], &[("SB_LIMITS_REQUESTS_PER_SECOND", "1")]).await;
    let _ = rig.api().get("/a2a/tasks").await;
    let mut refused = None;
    for _ in 0..5 {
        let answer = rig.grpc().call(A2A, "ListTasks", &json!({})).await;
        refused = refused.or_else(|| (answer.code() == Some(8)).then_some(answer));
    }
    let error = refused.expect("the sixth of two was refused").error(8);
    assert_eq!(reason(&error), "RESOURCE_EXHAUSTED");
    assert!(error["details"].to_string().contains("retryDelay"), "{error:#}");
}
