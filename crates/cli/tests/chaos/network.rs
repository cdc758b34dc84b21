//! A proxy between an instance and its database.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::PATIENCE;

/// A proxy that can be blocked.
pub(crate) struct Network {
    url: String,
    state: Arc<State>,
}

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    /// Nothing passes, and connections stay open.
    Silent,
    /// Connections break, and new ones are closed at once.
    Cut,
}

/// What happens to the commit at which everything falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastCommit {
    /// It never arrives at the server.
    Stays,
    /// It arrives, and its answer does not.
    Passes,
}

struct State {
    passage: watch::Sender<Passage>,
    /// The bytes that are waited for, and what happens to their commit.
    trap: Mutex<Option<(Vec<u8>, LastCommit)>>,
}

impl Network {
    /// A proxy to the server of this URL.
    pub(crate) async fn to(url: &str) -> Self {
        let (user, rest) = url.split_once('@').expect("the URL names a user");
        let (server, database) = rest.split_once('/').expect("the URL names a database");
        let server: SocketAddr = server.parse().expect("the server is an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let state = Arc::new(State { passage: watch::Sender::new(Passage::Open), trap: Mutex::new(None) });
        tokio::spawn(accept(listener, server, Arc::clone(&state)));
        Self { url: format!("{user}@{address}/{database}"), state }
    }

    /// The same URL, by way of the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, passage: Passage) {
        self.state.passage.send_replace(passage);
    }

    /// Falls silent when a transaction commits in which these bytes went along.
    pub(crate) fn fall_silent_at_the_commit_of(&self, bytes: &str, last: LastCommit) {
        *self.state.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some((bytes.as_bytes().to_vec(), last));
    }

    /// Waits until it has.
    pub(crate) async fn is_silent(&self) {
        let mut passage = self.state.passage.subscribe();
        let waited = tokio::time::timeout(PATIENCE, passage.wait_for(|now| *now == Passage::Silent)).await;
        assert!(matches!(waited, Ok(Ok(_))), "it never fell silent");
    }
}

impl State {
    fn trap(&self) -> Option<(Vec<u8>, LastCommit)> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spring(&self) {
        *self.trap.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.passage.send_replace(Passage::Silent);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    while let Ok((inbound, _)) = listener.accept().await {
        if *state.passage.borrow() == Passage::Cut {
            continue;
        }
        let Ok(outbound) = TcpStream::connect(server).await else { continue };
        let (from_client, to_client) = inbound.into_split();
        let (from_server, to_server) = outbound.into_split();
        tokio::spawn(pass(from_client, to_server, Arc::clone(&state), true));
        tokio::spawn(pass(from_server, to_client, Arc::clone(&state), false));
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: Arc<State>, to_server: bool) {
    let mut passage = state.passage.subscribe();
    let mut buffer = vec![0; 64 << 10];
    // The bytes that are waited for went along this connection, and their commit has not yet.
    let mut uncommitted = false;
    loop {
        let now = *passage.borrow_and_update();
        match now {
            Passage::Cut => return,
            Passage::Silent => {
                if passage.changed().await.is_err() {
                    return;
                }
            }
            Passage::Open => tokio::select! {
                // An answer that is there as well must not slip through.
                biased;
                changed = passage.changed() => if changed.is_err() { return },
                read = from.read(&mut buffer) => {
                    let Ok(count @ 1..) = read else { return };
                    let bytes = &buffer[..count];
                    let mut springs = None;
                    if to_server && let Some((awaited, last)) = state.trap() {
                        uncommitted |= bytes.windows(awaited.len()).any(|part| part == awaited);
                        // A COMMIT is the last message of what is sent together: it ends the bytes.
                        springs = (uncommitted && bytes.ends_with(b"COMMIT\0")).then_some(last);
                    }
                    if springs.is_some() {
                        state.spring();
                    }
                    if springs == Some(LastCommit::Stays) {
                        // Nothing after a lost commit may pass either: the connection ends.
                        let _ = passage.wait_for(|now| *now != Passage::Silent).await;
                        return;
                    }
                    if to.write_all(bytes).await.is_err() {
                        return;
                    }
                },
            },
        }
    }
}
