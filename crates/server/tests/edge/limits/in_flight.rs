//! Requests under way: a crowd without tokens takes nothing from callers with one.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Response, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, time::timeout};

use crate::edge::{support::Fixture, wire::PATIENCE};

/// SERVING, as a gRPC message.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

type Sender = SendRequest<Full<Bytes>>;

async fn connect(fixture: &Fixture) -> Sender {
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Begins to watch health without a token.
async fn watch(fixture: &Fixture, sender: &mut Sender) -> Response<Incoming> {
    let request = hyper::Request::post(format!("http://{}/grpc.health.v1.Health/Watch", fixture.address))
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()
}

/// The next data of a watch, or the gRPC status at its end with its message.
async fn next(watch: &mut Response<Incoming>) -> Result<Bytes, (String, String)> {
    let frame = timeout(PATIENCE, watch.body_mut().frame()).await.expect("a frame").expect("no end yet").unwrap();
    frame.into_data().map_err(|frame| {
        let trailers = frame.into_trailers().unwrap();
        let text = |name: &str| trailers[name].to_str().unwrap().to_owned();
        (text("grpc-status"), text("grpc-message"))
    })
}

#[tokio::test]
async fn watches_without_a_token_keep_no_caller_out() {
    let fixture = Fixture::with(|options| options.max_connections = 10).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut sender = connect(&fixture).await;
        for _ in 0..100 {
            open.push(watch(&fixture, &mut sender).await);
        }
        for _ in 0..10 {
            let reply = fixture.get("/a2a/tasks").await;
            assert_eq!(reply.status, 200, "{} watches are open: {reply:?}", open.len());
            assert_eq!(fixture.bare("GET", "/.well-known/agent-card.json").send().await.status, 200);
        }
    }
}

#[tokio::test]
async fn the_oldest_watch_of_an_address_gives_way_and_is_told_why() {
    let fixture = Fixture::with(|options| options.max_connections = 10).await;
    let mut sender = connect(&fixture).await;
    // A quarter of the pool, which has 64.
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut watch = watch(&fixture, &mut sender).await;
        assert_eq!(next(&mut watch).await.unwrap(), SERVING);
        open.push(watch);
    }
    let mut newer = watch(&fixture, &mut sender).await;
    assert_eq!(next(&mut newer).await.unwrap(), SERVING);
    let (code, message) = next(&mut open[0]).await.unwrap_err();
    assert_eq!(code, "8");
    assert!(message.starts_with("too%20many%20requests%20without%20a%20token"), "{message}");
    // The second is the oldest now.
    let _newest = watch(&fixture, &mut sender).await;
    assert_eq!(next(&mut open[1]).await.unwrap_err().0, "8");
}
