//! Connections: addresses that do not answer, connections that the other side closes, and bodies that come too late.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use client::{
    Connector, Error, Limits, Policy,
    egress::{Guard, Resolve, Steady},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use crate::egress::{
    CLOSE, HANG, addresses, get, guard,
    interim::{ANSWER, frame, next_request_two, open_two},
    send, site, url,
};

const SILENT: &str = "127.0.0.2";

/// Knows the same addresses for every name.
#[derive(Debug)]
struct Same(Vec<IpAddr>);

#[async_trait]
impl Resolve for Same {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(self.0.clone())
    }
}

/// A listener that takes no more connections. The system drops the attempts of others, as a firewall does.
async fn silent(port: u16) -> (TcpListener, Vec<TcpStream>) {
    let address = SocketAddr::new(SILENT.parse().unwrap(), port);
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut held = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        held.push(connected.unwrap());
        assert!(held.len() < 100, "the listener takes all");
    }
    (listener, held)
}

#[tokio::test]
async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
    let site = site(CLOSE);
    let _silent = silent(site.port()).await;
    let resolver = Arc::new(Same(addresses(&[SILENT, "127.0.0.1"])));
    let limits = Limits { connect_timeout: Duration::from_secs(1), ..Limits::default() };
    let policies = [
        Policy::Remote(Arc::new(Steady::default().with_resolver(resolver.clone()))),
        Policy::Tenant(Arc::new(guard(&["127.0.0.0/8"], None, resolver))),
    ];
    for policy in policies {
        let connector = Connector::new(policy, limits);
        let answer = get(&connector, &url(&format!("http://two.test:{}/", site.port()))).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    // What cannot be reached at all costs the time for connecting, and nothing was sent.
    let connector = Connector::new(Policy::Operator, Limits { connect_timeout: Duration::from_millis(100), ..limits });
    let error = get(&connector, &url(&format!("http://{SILENT}:{}/", site.port()))).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.never_sent(), "{error:?}");
}

/// A server that answers the first request of each connection and then closes the connection: at once, or when the second one has come.
async fn serve_one(reads_second: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, requests) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            for is_answered in [true, false] {
                if is_answered || reads_second {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(socket.read_u8().await.unwrap());
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                if is_answered {
                    socket.write_all(ANSWER).await.unwrap();
                }
            }
        }
    });
    (port, requests)
}

#[tokio::test]
async fn a_request_that_may_have_come_is_not_sent_again() {
    for reads_second in [false, true] {
        let (port, requests) = serve_one(reads_second).await;
        let url = url(&format!("http://127.0.0.1:{port}/"));
        let connector = Connector::new(Policy::Operator, Limits::default());
        assert_eq!(get(&connector, &url).await.unwrap().bytes().await.unwrap(), "ok");
        let second = match reads_second {
            true => get(&connector, &url).await,
            // A connection whose end has come is not used.
            false => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                get(&connector, &url).await
            }
        };
        match second {
            Ok(answer) => assert!(answer.status == 200 && !reads_second),
            Err(error) => assert!(reads_second && !error.never_sent(), "{error:?}"),
        }
        assert_eq!(requests.load(Ordering::SeqCst), 2, "each came once");
    }
}

/// A server of HTTP/2 that sends its whole answer at once.
async fn serve_two() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                open_two(&mut socket).await?;
                let stream = next_request_two(&mut socket).await?;
                let answer = [frame(1, 4, stream, &[0x88]), frame(0, 1, stream, b"ok")].concat();
                socket.write_all(&answer).await?;
                // It stays until the client has gone.
                next_request_two(&mut socket).await
            });
        }
    });
    port
}

#[tokio::test]
async fn a_body_that_is_read_after_the_total_timeout_is_too_late() {
    let url = url(&format!("http://127.0.0.1:{}/", serve_two().await));
    for (total, is_late) in [(HANG / 2, true), (HANG * 10, false)] {
        let limits = Limits { total_timeout: Some(total), ..Limits::default() };
        let allow = vec!["127.0.0.0/8".parse().unwrap()];
        let connector = Connector::new(Policy::Tenant(Arc::new(Guard { allow, ..Guard::default() })), limits);
        let answer = send(&connector, &url, true).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(HANG).await;
        tokio::time::resume();
        let read = answer.bytes().await;
        match is_late {
            true => assert!(matches!(read, Err(Error::Timeout { after, .. }) if after == total), "{read:?}"),
            false => assert_eq!(read.unwrap(), "ok"),
        }
    }
}
