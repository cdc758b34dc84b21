//! What is about the process: a port that is taken, and what a server that stops says.

use serde_json::json;

use super::{
    grpc::A2A,
    harness::Home,
    http::{reason, text, to_at_once},
    rig::Rig,
};

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_and_says_that_there_is_more() {
    let rig = Rig::start(&[]).await;
    let sent = rig.grpc().ok(A2A, "SendMessage", &to_at_once("stream", "600 chunks, 100 ms apart")).await;
    let id = text(&sent, "/task/id");
    let mut following = rig.grpc().open(A2A, "SubscribeToTask", &json!({"id": id})).await;
    assert_eq!(text(&following.next().await.unwrap(), "/task/id"), id);
    rig.server.signal("TERM");
    let ended = following.finish().await;
    assert_eq!(reason(&ended.error(14)), "UNAVAILABLE");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = Home::new();
    let said = home.fails(&["serve", "--listen", "127.0.0.1:0", "--grpc-port", &port], 1);
    assert!(said.contains(&port) && said.contains("gRPC"), "{said}");
}
