//! The accept loop: HTTP/1 and HTTP/2, with TLS or without, a place for each connection, and an orderly end.

use std::{
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use a2a::Network;
use axum::Router;
use futures_util::future::join_all;
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    connection::{Connection, Version},
    limits::Peered,
    places::{Entry, Place, Places},
    progress::{PIECE, Streams},
    tls::Tls,
};

/// How long to wait when no connection can be accepted, for want of file descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the other end of an HTTP/2 connection is asked whether it is there, and how long it has to answer.
const PING: Duration = Duration::from_secs(20);
/// How many requests one HTTP/2 connection may have open. With what waits for each, about 4 MiB of answers.
const MAX_STREAMS: u32 = 256;
/// How many requests may be taken back before they were looked at, and how many may be wrong, until an HTTP/2 connection is ended.
const MAX_TAKEN_BACK: usize = 20;
const MAX_WRONG: usize = 128;
/// The largest head of a request.
const MAX_HEAD: u32 = 16 * 1024;
/// What waits to be written to a slow HTTP/1 client, besides the piece of an answer that does not fit.
const MAX_BUFFER: usize = 128 * 1024;

/// A socket and what is answered there.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
    /// Whose places its connections take.
    pub(crate) places: Arc<Places>,
}

/// How HTTP is spoken. One for as long as the process lives: a copy in each connection would be the largest part of some.
struct Versions {
    one: http1::Builder,
    two: http2::Builder<Streams>,
}

/// What the connections of all doors share.
struct House<'a> {
    options: &'a Options,
    versions: &'static Versions,
    tls: Option<&'a Tls>,
    proxies: Arc<[Network]>,
    graceful: GracefulShutdown,
    abort: CancellationToken,
}

/// Serves connections until `stop` is set and those that are open are done, or have had their time.
pub(crate) async fn run(doors: Vec<Door>, tls: Option<&Tls>, options: &Options, stop: CancellationToken) {
    let house = House {
        options,
        versions: Box::leak(Box::new(Versions::new(options))),
        tls,
        proxies: options.trusted_proxies.as_slice().into(),
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
    async fn open(&self, Door { listener, router, places }: Door, stop: &CancellationToken) {
        loop {
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
            let place = tokio::select! {
                place = self.place(&places, peer.ip()) => place,
                () = stop.cancelled() => break,
            };
            let Some(place) = place else {
                tracing::debug!(peer = %peer.ip(), "a connection is closed: its address has too many");
                continue;
            };
            prepare(&stream);
            let guest = Guest {
                service: Peered::new(router.clone(), peer.ip(), &self.proxies, &place),
                versions: self.versions,
                watcher: self.graceful.watcher(),
                place,
                abort: self.abort.clone(),
                opening: self.options.header_timeout,
                stall: self.options.stall,
            };
            match self.tls.map(Tls::acceptor) {
                None => drop(tokio::spawn(guest.serve(stream))),
                Some(acceptor) => drop(tokio::spawn(async move {
                    // Both have the time that a request's head has: who takes longer has nothing to say.
                    let greeted = tokio::select! {
                        greeted = timeout(guest.opening, acceptor.accept(stream)) => greeted,
                        () = guest.place.lost() => return,
                        () = guest.abort.cancelled() => return,
                    };
                    match greeted {
                        Ok(Ok(stream)) => guest.serve(stream).await,
                        Ok(Err(error)) => tracing::debug!(error = %error, "a TLS handshake failed"),
                        Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
                    }
                })),
            }
        }
    }

    /// A place for somebody at this address; none when that has too many. While there is none at all, whoever comes waits.
    async fn place(&self, places: &Arc<Places>, address: IpAddr) -> Option<Place> {
        let counted = (!self.proxies.iter().any(|network| network.contains(address))).then_some(address);
        loop {
            let mut left = pin!(places.left());
            // From here on nobody leaves unnoticed.
            left.as_mut().enable();
            match places.enter(counted) {
                Entry::In(place) => return Some(place),
                Entry::Refused => return None,
                Entry::Full => drop(timeout(PAUSE, left).await),
            }
        }
    }
}

/// What it takes to serve one connection.
struct Guest {
    service: Peered,
    versions: &'static Versions,
    watcher: Watcher,
    place: Place,
    abort: CancellationToken,
    opening: Duration,
    stall: Duration,
}

impl Guest {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { service, versions, watcher, place, abort, opening, stall } = self;
        let mut connection = Connection::new(stream, Arc::clone(&place.seat), stall);
        let version = tokio::select! {
            version = timeout(opening, connection.version()) => version,
            () = place.lost() => return,
            () = abort.cancelled() => return,
        };
        let (io, service) = (TokioIo::new(connection), TowerToHyperService::new(service));
        // Made where they stay: what is moved into a future takes its room twice.
        match version {
            Ok(Ok(Some(Version::One))) => {
                let served = pin!(watcher.watch(versions.one.serve_connection(io, service)));
                finish(served, &place, &abort).await;
            }
            Ok(Ok(Some(Version::Two))) => {
                let served = pin!(watcher.watch(versions.two.serve_connection(io, service)));
                finish(served, &place, &abort).await;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(error = %error, "a connection ended before it began"),
            Err(_elapsed) => tracing::debug!("a client said nothing for too long"),
        }
    }
}

/// Serves a connection until it ends or has to.
async fn finish(served: Pin<&mut impl Future<Output = hyper::Result<()>>>, place: &Place, abort: &CancellationToken) {
    tokio::select! {
        served = served => {
            if let Err(error) = served {
                // Clients that vanish are no fault of ours.
                tracing::debug!(error = %error, "a connection ended early");
            }
        }
        () = place.lost() => tracing::debug!("a connection that did nothing gives way"),
        () = abort.cancelled() => {}
    }
}

impl Versions {
    fn new(options: &Options) -> Self {
        let mut one = http1::Builder::new();
        one.timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_header_size(MAX_HEAD as usize)
            .max_buf_size(MAX_BUFFER);
        let mut two = http2::Builder::new(Streams { stall: options.stall });
        two.timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD)
            .max_send_buf_size(PIECE)
            .max_pending_accept_reset_streams(MAX_TAKEN_BACK)
            .max_local_error_reset_streams(MAX_WRONG);
        Self { one, two }
    }
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
