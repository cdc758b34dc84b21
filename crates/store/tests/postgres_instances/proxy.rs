//! A proxy between an instance and the server that can lose what is on the way.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use testkit::postgres::Database;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
    time::timeout,
};

/// What the next COMMIT meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Loss {
    Nothing = 0,
    /// The server never gets it; the connection is cut.
    Commit = 1,
    /// The server gets it and answers; the connection is cut before the answer arrives.
    Answer = 2,
    /// The connection is cut as soon as it was passed on, whatever the server makes of that.
    Both = 3,
    /// Nothing goes either way until [`Proxy::go_on`], as if the instance were stopped.
    Time = 4,
}

/// What becomes of the server's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Pass,
    Lost,
    Held,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    /// What the next COMMIT meets, as a number.
    loss: AtomicU8,
    lost: AtomicUsize,
    /// Bumped to end all connections; odd while none is let through.
    cuts: watch::Sender<u64>,
    go_on: Notify,
}

impl Proxy {
    pub(crate) async fn start(database: &Database) -> Self {
        let (_, rest) = database.url().split_once('@').unwrap();
        let (server, _) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: server.parse().unwrap(),
            loss: AtomicU8::new(0),
            lost: AtomicUsize::new(0),
            cuts: watch::Sender::new(0),
            go_on: Notify::new(),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Who is refused sees the connection end.
                if accepting.cuts.borrow().is_multiple_of(2) {
                    tokio::spawn(Arc::clone(&accepting).serve(client));
                }
            }
        });
        Self { address, shared }
    }

    /// The database's URL, by way of this proxy.
    pub(crate) fn url(&self, database: &Database) -> String {
        let (head, rest) = database.url().split_once('@').unwrap();
        let (_, name) = rest.split_once('/').unwrap();
        format!("{head}@{}/{name}", self.address)
    }

    /// The next COMMIT meets this.
    pub(crate) fn lose(&self, loss: Loss) {
        self.shared.loss.store(loss as u8, SeqCst);
    }

    /// How often something was lost.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.load(SeqCst)
    }

    /// What was held goes on.
    pub(crate) fn go_on(&self) {
        self.shared.go_on.notify_one();
    }

    /// Ends all connections and lets none through.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|n| *n |= 1);
    }

    pub(crate) fn mend(&self) {
        self.shared.cuts.send_modify(|n| *n = (*n | 1) + 1);
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server).await else { return };
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let mut cuts = self.cuts.subscribe();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (end_answers, answers_end) = watch::channel(Answers::Pass);
        let answers = tokio::spawn(pass(from_server, to_client, answers_end));
        tokio::select! {
            () = self.requests(from_client, to_server, end_answers) => {}
            _ = cuts.changed() => {}
        }
        answers.abort();
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, answers: watch::Sender<Answers>) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
            let bytes = &buffer[..n];
            // The COMMIT is the last message of what is sent together: it ends the bytes.
            let loss = if bytes.ends_with(b"COMMIT\0") { self.loss.swap(0, SeqCst) } else { 0 };
            if loss != Loss::Nothing as u8 {
                self.lost.fetch_add(1, SeqCst);
            }
            if loss == Loss::Commit as u8 {
                return;
            }
            if loss == Loss::Time as u8 {
                answers.send_replace(Answers::Held);
                self.go_on.notified().await;
                answers.send_replace(Answers::Pass);
            }
            if loss == Loss::Answer as u8 {
                answers.send_replace(Answers::Lost);
            }
            if to.write_all(bytes).await.is_err() {
                return;
            }
            if loss == Loss::Both as u8 {
                return;
            }
            if loss == Loss::Answer as u8 {
                // The server's answer is read and thrown away by then.
                tokio::time::sleep(Duration::from_millis(300)).await;
                return;
            }
        }
    }
}

/// Passes on what comes, until it is to be thrown away.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut answers: watch::Receiver<Answers>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        // Even the end of the connection is news that a stopped instance does not get.
        while *answers.borrow() == Answers::Held && answers.changed().await.is_ok() {}
        let Ok(n @ 1..) = read else { return };
        if *answers.borrow() == Answers::Lost {
            continue;
        }
        let written = timeout(Duration::from_secs(10), to.write_all(&buffer[..n])).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}
