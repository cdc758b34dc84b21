//! Somebody who listens, and counts who comes.

use std::{
    net::Ipv6Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const KEEP: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
pub(crate) const CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

pub(crate) struct Site {
    pub(crate) port: u16,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    connections: AtomicUsize,
    heads: Mutex<Vec<String>>,
}

impl Site {
    /// On 127.0.0.1 alone.
    pub(crate) async fn start(answer: impl Into<String>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer.into())
    }

    /// On every address of this machine, of both versions where it has both.
    pub(crate) async fn everywhere(answer: &str) -> Self {
        let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
        };
        Self::on(listener, answer.to_owned())
    }

    fn on(listener: TcpListener, answer: String) -> Self {
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Log::default());
        tokio::spawn(accept(listener, answer, Arc::clone(&log)));
        Self { port, log }
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// The requests that came, without bodies.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.log.heads.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, answer: String, log: Arc<Log>) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        log.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(talk(socket, answer.clone(), Arc::clone(&log)));
    }
}

async fn talk(mut socket: TcpStream, answer: String, log: Arc<Log>) {
    let mut head = Vec::new();
    while let Ok(byte) = socket.read_u8().await {
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            log.heads.lock().unwrap().push(String::from_utf8(std::mem::take(&mut head)).unwrap());
            socket.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains("connection: close") {
                return;
            }
        }
    }
}
