//! The accept loop: HTTP/1 and HTTP/2, with TLS or without, a bound on connections, and an orderly end.

use std::{io, pin::pin, sync::Arc, time::Duration};

use a2a::Network;
use axum::Router;
use futures_util::future::join_all;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto::Builder,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{Options, connection::Connection, limits::Peered, tls::Tls};

/// How long to wait when no connection can be accepted, for want of file descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the other end of an HTTP/2 connection is asked whether it is there, and how long it has to answer.
const PING: Duration = Duration::from_secs(20);
/// How many requests one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 256;
/// The largest head of a request. It also bounds what waits to be written to a slow HTTP/1 client.
const MAX_BUFFER: usize = 128 * 1024;

/// A socket and what is answered there.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
}

/// What the connections of all doors share.
struct House<'a> {
    options: &'a Options,
    builder: &'static Builder<TokioExecutor>,
    tls: Option<&'a Tls>,
    proxies: Arc<[Network]>,
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
    abort: CancellationToken,
}

/// Serves connections until `stop` is set and those that are open are done, or have had their time.
pub(crate) async fn run(doors: Vec<Door>, tls: Option<&Tls>, options: &Options, stop: CancellationToken) {
    // One for as long as the process lives: a copy in each connection would be the largest part of some.
    let builder: &'static Builder<TokioExecutor> = Box::leak(Box::new(builder(options)));
    let house = House {
        options,
        builder,
        tls,
        proxies: options.trusted_proxies.as_slice().into(),
        // Each door holds one while nobody comes.
        permits: Arc::new(Semaphore::new(options.max_connections.clamp(doors.len(), Semaphore::MAX_PERMITS))),
        graceful: GracefulShutdown::new(),
        abort: CancellationToken::new(),
    };
    let served = join_all(doors.into_iter().map(|door| house.open(door, &stop)));
    match tls {
        Some(tls) => tokio::select! { _ = served => {} () = tls.watch() => {} },
        None => drop(served.await),
    }
    if timeout(options.drain, house.graceful.shutdown()).await.is_err() {
        tracing::warn!(drain_ms = options.drain.as_millis(), "connections are still open and are closed now");
    }
    house.abort.cancel();
}

impl House<'_> {
    /// Lets connections in until `stop` is set. Then nobody new comes: the address is free for the next process.
    async fn open(&self, Door { listener, router }: Door, stop: &CancellationToken) {
        loop {
            // The permit comes first: a connection that is over the bound stays in the backlog.
            let permit = tokio::select! {
                permit = Arc::clone(&self.permits).acquire_owned() => permit,
                () = stop.cancelled() => break,
            };
            let Ok(permit) = permit else { break };
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        pause_after(&error).await;
                        continue;
                    }
                },
                () = stop.cancelled() => break,
            };
            prepare(&stream);
            let guest = Guest {
                service: Peered::new(router.clone(), peer.ip(), &self.proxies),
                builder: self.builder,
                watcher: self.graceful.watcher(),
                abort: self.abort.clone(),
                opening: self.options.header_timeout,
                stall: self.options.stall,
                _permit: permit,
            };
            match self.tls.map(Tls::acceptor) {
                None => drop(tokio::spawn(guest.serve(stream))),
                Some(acceptor) => drop(tokio::spawn(async move {
                    // Both have the time that a request's head has: who takes longer has nothing to say.
                    match timeout(guest.opening, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => guest.serve(stream).await,
                        Ok(Err(error)) => tracing::debug!(error = %error, "a TLS handshake failed"),
                        Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
                    }
                })),
            }
        }
    }
}

/// What it takes to serve one connection.
struct Guest {
    service: Peered,
    builder: &'static Builder<TokioExecutor>,
    watcher: Watcher,
    abort: CancellationToken,
    opening: Duration,
    stall: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Guest {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let io = TokioIo::new(Connection::new(stream, self.opening, self.stall));
        let service = TowerToHyperService::new(self.service);
        // Made where it stays: what is moved into a future takes its room twice.
        let mut connection = pin!(self.watcher.watch(self.builder.serve_connection(io, service)));
        tokio::select! {
            served = connection.as_mut() => {
                if let Err(error) = served {
                    // Clients that vanish are no fault of ours.
                    tracing::debug!(error = %error, "a connection ended early");
                }
            }
            () = self.abort.cancelled() => {}
        }
    }
}

fn builder(options: &Options) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.header_timeout).max_buf_size(MAX_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

fn prepare(stream: &TcpStream) {
    // An event is one small write; waiting for more of them would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "TCP_NODELAY could not be set");
    }
}

async fn pause_after(error: &io::Error) {
    match error.kind() {
        // The client was gone before it was accepted.
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused => {}
        _ => {
            tracing::warn!(error = %error, "no connection can be accepted");
            sleep(PAUSE).await;
        }
    }
}
