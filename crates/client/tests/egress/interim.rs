//! Servers that answer with interim responses: a few are passed over, and those without end fail the call.

use std::sync::Arc;

use client::{
    Connector, Error, Limits, Policy,
    egress::{Guard, Steady},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::egress::{send, url};

const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A server that answers each request with so many interim responses and then properly; without a number they do not end.
async fn serve(http2: bool, interim: Option<usize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // It ends when the client has gone.
            tokio::spawn(async move {
                let _ = if http2 { talk_two(socket, interim).await } else { talk_one(socket, interim).await };
            });
        }
    });
    port
}

async fn answer(socket: &mut TcpStream, interim: &[u8], count: Option<usize>, last: &[u8]) -> std::io::Result<()> {
    let Some(count) = count else {
        loop {
            socket.write_all(&interim.repeat(1000)).await?;
        }
    };
    socket.write_all(&[&interim.repeat(count), last].concat()).await
}

async fn talk_one(mut socket: TcpStream, interim: Option<usize>) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        head.push(socket.read_u8().await?);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            answer(&mut socket, INTERIM, interim, ANSWER).await?;
        }
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn talk_two(mut socket: TcpStream, interim: Option<usize>) -> std::io::Result<()> {
    // `:status` by the name that HPACK numbers 8, and 200 by its own number.
    let hint = |stream| frame(HEADERS, END_HEADERS, stream, &[8, 3, b'1', b'0', b'3']);
    let last = |stream| [frame(HEADERS, END_HEADERS, stream, &[0x88]), frame(0, END_STREAM, stream, b"ok")].concat();
    open_two(&mut socket).await?;
    loop {
        let stream = next_request_two(&mut socket).await?;
        answer(&mut socket, &hint(stream), interim, &last(stream)).await?;
    }
}

/// Opens a connection on HTTP/2 as its server.
pub(crate) async fn open_two(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    socket.read_exact(&mut [0; 24]).await?;
    Ok(())
}

/// The stream of the next request on HTTP/2.
pub(crate) async fn next_request_two(socket: &mut TcpStream) -> std::io::Result<u32> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        socket.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => socket.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            HEADERS => return Ok(u32::from_be_bytes(stream)),
            _ => {}
        }
    }
}

/// Connectors of all policies, without a time that a call may take.
fn connectors() -> [Connector; 3] {
    let loopback = || vec!["127.0.0.0/8".parse().unwrap()];
    let guard = Guard { allow: loopback(), ..Guard::default() };
    let policies =
        [Policy::Operator, Policy::Remote(Arc::new(Steady::new(loopback()))), Policy::Tenant(Arc::new(guard))];
    policies.map(|policy| Connector::new(policy, Limits::default()))
}

#[tokio::test]
async fn interim_responses_without_end_fail_the_call() {
    for http2 in [false, true] {
        let url = url(&format!("http://127.0.0.1:{}/", serve(http2, None).await));
        for connector in connectors() {
            let error = send(&connector, &url, http2).await.unwrap_err();
            assert!(matches!(error, Error::Malformed(_)), "{error:?}");
            assert!(error.to_string().contains("interim responses (1xx)"), "{error}");
        }
    }
}

#[tokio::test]
async fn some_interim_responses_are_passed_over_for_each_request() {
    for http2 in [false, true] {
        let url = url(&format!("http://127.0.0.1:{}/", serve(http2, Some(60)).await));
        for connector in connectors() {
            for _ in 0..4 {
                let answer = send(&connector, &url, http2).await.unwrap();
                assert_eq!(answer.status, 200);
                assert_eq!(answer.bytes().await.unwrap(), "ok");
            }
        }
    }
}
