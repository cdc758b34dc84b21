//! Without authentication: names and pages that are not of this machine.

use hyper_util::rt::{TokioExecutor, TokioIo};
use server::Cors;
use tokio::net::TcpStream;

use crate::edge::support::{Fixture, message};

async fn open() -> Fixture {
    Fixture::with(|options| {
        options.auth = false;
        options.public_url = Some("https://Box.example/sb".to_owned());
    })
    .await
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered() {
    let rig = open().await;
    let port = rig.address.port();
    for host in ["localhost", &format!("127.0.0.1:{port}"), "127.9.9.9", "[::1]:8765", "LOCALHOST:1", "box.example"] {
        let reply = rig.to(host, "GET", "/a2a/tasks").header("A2A-Version", "1.0").send().await;
        assert_eq!(reply.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "192.0.2.1", "", "[::2]"] {
        for (method, path) in [
            ("GET", "/a2a/tasks"),
            ("POST", "/a2a/message:send"),
            ("POST", "/a2a/jsonrpc"),
            ("POST", "/v1/a2a/agents/echo"),
            ("GET", "/v1/requests"),
            ("GET", "/.well-known/agent-card.json"),
            ("OPTIONS", "/a2a/tasks"),
            ("GET", "/nothing"),
        ] {
            let reply = rig.to(host, method, path).header("A2A-Version", "1.0").json(&message("hi")).send().await;
            assert_eq!((reply.status, reply.reason().as_str()), (403, "HOST_NOT_ALLOWED"), "{host} {method} {path}");
            assert_eq!(reply.json()["error"]["status"], "PERMISSION_DENIED");
        }
    }
    let total = rig.bare("GET", "/a2a/tasks").header("A2A-Version", "1.0").send().await.json()["totalSize"].clone();
    assert_eq!(total, 0);
}

#[tokio::test]
async fn a_second_name_does_not_help() {
    let rig = open().await;
    let twice = rig.bare("GET", "/healthz").header("Host", "evil.example").send().await;
    // Whoever reads the head may refuse it before.
    assert!(matches!(twice.status, 400 | 403), "{twice:?}");
    let absolute = rig.bare("GET", "http://evil.example/healthz").send().await;
    assert_eq!(absolute.status, 403);
}

#[tokio::test]
async fn http_2_has_its_name_elsewhere() {
    let rig = open().await;
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for (host, status) in [("localhost", 200), ("evil.example", 403)] {
        let request = hyper::Request::get(format!("http://{host}/healthz"));
        let response = sender.send_request(request.body(String::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{host}");
    }
}

#[tokio::test]
async fn only_pages_of_this_machine_may_call() {
    let rig = open().await;
    let from = |origin: &str| {
        let ask = rig.bare("POST", "/a2a/message:send").header("A2A-Version", "1.0").header("Origin", origin);
        ask.json(&message("hi")).send()
    };
    for origin in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:1", "https://box.example"] {
        let reply = from(origin).await;
        assert_eq!(reply.status, 200, "{origin}");
        assert_eq!(reply.names("access-control"), Vec::<&str>::new(), "to call is not to read");
    }
    for origin in
        ["https://evil.example", "null", "http://localhost.evil.example", "chrome-extension://abc", "localhost"]
    {
        let reply = from(origin).await;
        assert_eq!((reply.status, reply.reason().as_str()), (403, "ORIGIN_NOT_ALLOWED"), "{origin}");
    }
    assert_eq!(rig.bare("GET", "/a2a/tasks").header("A2A-Version", "1.0").send().await.json()["totalSize"], 4);
}

#[tokio::test]
async fn pages_that_are_listed_may_call_without_a_token() {
    let cors = Cors::parse(&["https://app.example"]).unwrap();
    let rig = Fixture::with(|options| {
        options.auth = false;
        options.cors = cors;
    })
    .await;
    let listed = rig.bare("GET", "/healthz").header("Origin", "https://app.example").send().await;
    assert_eq!((listed.status, listed.header("access-control-allow-origin")), (200, Some("https://app.example")));
    let preflight = rig.bare("OPTIONS", "/a2a/jsonrpc").header("Access-Control-Request-Method", "POST");
    let preflight = preflight.header("Origin", "https://evil.example").send().await;
    assert_eq!((preflight.status, preflight.names("access-control")), (403, Vec::new()));
    let rebound = rig.to("evil.example", "GET", "/healthz").header("Origin", "https://app.example").send().await;
    assert_eq!(rebound.status, 403);
}

#[tokio::test]
async fn with_authentication_names_do_not_matter() {
    let rig = Fixture::with(|_| {}).await;
    let reply = rig.to("evil.example", "GET", "/.well-known/agent-card.json").header("Origin", "null").send().await;
    assert_eq!(reply.status, 200);
    assert!(!reply.body.contains("evil.example"), "cards never use it");
    assert_eq!(rig.to("evil.example", "GET", "/a2a/tasks").send().await.status, 401);
}
