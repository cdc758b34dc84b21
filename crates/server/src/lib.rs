//! The edge: A2A over HTTP in both its generations and over gRPC, agent cards and health.
//!
//! [`Server`] listens, reads requests of the bindings, JSON-RPC, HTTP+JSON and gRPC, and translates them into operations of the
//! [`Exchange`]. Under `/a2a` that is A2A itself; under `/v1` stand an older surface of it (`docs/compatibility.md`), the
//! native requests and administration. It
//! decides who calls and what a request says, never what an operation means. Work does not hang on a connection: a client
//! that goes away takes nothing with it but its socket.

mod accept;
mod admin;
mod agent_cards;
mod app;
mod arbiter;
mod auth;
mod body;
mod card_registry;
mod cards;
mod chat;
mod connection;
mod contexts;
mod cors;
mod encode;
mod events;
mod feed;
mod grpc;
mod headers;
mod limits;
mod open;
mod operation;
mod origin;
mod outboxes;
mod own_agents;
mod page;
mod path;
mod places;
mod progress;
mod protocol;
mod query;
mod queue;
mod remotes;
mod reply;
mod requests;
mod rest;
mod rpc;
mod signing;
mod sse;
mod surface;
mod tls;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use exchange::Exchange;
use http::HeaderValue;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use a2a::Network;
pub use cards::Compat;
pub use cors::Cors;
pub use limits::Rate;
pub use tls::{TlsError, TlsFiles};

use self::{accept::Door, places::Places};

/// A year, for the host of the public URL and none below it.
const HSTS: &str = "max-age=31536000";

/// How many connections an address for administration has.
const ADMIN_PLACES: usize = 256;

/// Where to listen, and bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// A further port at the same address, for gRPC alone. Cards name it; without one they do not name gRPC at all.
    pub grpc_port: Option<u16>,
    /// An address for administration alone. With it nothing is administered at the other.
    pub admin_listen: Option<SocketAddr>,
    /// What URLs on cards begin with; the address when there is none.
    pub public_url: Option<String>,
    /// Whether browsers are told to come back by TLS only, where there is TLS and the public URL says so.
    pub hsts: bool,
    /// The certificate to speak TLS with, if any.
    pub tls: Option<TlsFiles>,
    /// The proxies that are believed when they say on whose behalf they call.
    pub trusted_proxies: Vec<Network>,
    /// Whether callers need a token.
    pub auth: bool,
    /// Whether the card of an agent that every tenant sees can be read without a token.
    pub public_cards: bool,
    /// Which cards clients can read that know no other version than 0.3.
    pub compat: Compat,
    /// The size of a request's body, in bytes.
    pub body_limit: usize,
    /// How long a request's head may take.
    pub header_timeout: Duration,
    /// How long a request's body may stand still.
    pub body_timeout: Duration,
    /// How many bytes of a body have to come in a second once it has lasted so long; 0 is no bound.
    pub body_rate: u64,
    /// How many connections are open at once. When all are taken, one that is idle gives way to the next.
    pub max_connections: usize,
    /// How many of them one address may have; behind a trusted proxy, how many requests under way.
    pub max_connections_per_address: usize,
    /// How long a connection may be idle on which nobody has said who they are.
    pub unauthenticated_timeout: Duration,
    /// How many requests a tenant may send.
    pub request_rate: Rate,
    /// How many requests with a wrong token, or none, may come from one address.
    pub failed_auth_rate: Rate,
    /// Which web pages may call.
    pub cors: Cors,
    /// How long a connection, or a stream of HTTP/2, may take nothing of what is written to it.
    pub stall: Duration,
    /// How long a stream of events is silent before it carries a comment.
    pub keep_alive: Duration,
    /// How long open requests have to finish when the server stops.
    pub drain: Duration,
}

/// A server that listens and has not begun to answer.
pub struct Server {
    tls: Option<tls::Tls>,
    doors: Vec<Door>,
    address: SocketAddr,
    grpc_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    base_url: String,
    options: Options,
}

impl Options {
    /// The defaults, at this address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            grpc_port: None,
            admin_listen: None,
            public_url: None,
            hsts: true,
            tls: None,
            trusted_proxies: Vec::new(),
            auth: true,
            public_cards: true,
            compat: Compat::default(),
            body_limit: 10 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate: 1024,
            max_connections: 10_000,
            max_connections_per_address: 2500,
            unauthenticated_timeout: Duration::from_secs(10),
            request_rate: Rate { per_second: 50_000, burst: 100_000 },
            failed_auth_rate: Rate { per_second: 20, burst: 100 },
            cors: Cors::Nobody,
            stall: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            drain: Duration::from_secs(30),
        }
    }
}

impl Options {
    fn places(&self) -> places::Bounds {
        places::Bounds {
            places: self.max_connections,
            per_address: self.max_connections_per_address,
            reserved: places::Bounds::reserve_of(self.max_connections),
            unknown_idle: self.unauthenticated_timeout,
        }
    }

    /// The reasons for which callers refuse the certificate at the URL that is on the cards.
    pub fn certificate_problems(&self) -> Vec<String> {
        let public = self.public_url.as_deref().map(str::parse::<http::Uri>);
        let host = match &public {
            Some(Ok(url)) => url.host().map(str::to_owned),
            Some(Err(_)) => None,
            None => Some(self.listen.ip().to_string()),
        };
        let (Some(files), Some(host)) = (&self.tls, host) else { return Vec::new() };
        // What is wrong with the files themselves stops the start.
        files.problems(host.trim_matches(['[', ']'])).unwrap_or_default()
    }

    /// `Strict-Transport-Security`, where it is said.
    fn hsts(&self) -> Option<HeaderValue> {
        let is_https = self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
        (self.hsts && self.tls.is_some() && is_https).then_some(HeaderValue::from_static(HSTS))
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Server {
    /// Listens. From here on clients can connect, and wait until [`run`](Self::run).
    ///
    /// Refused are a wildcard address without a public URL, since no card could name it, and an address beyond
    /// loopback without authentication.
    pub async fn bind(exchange: Exchange, options: Options) -> io::Result<Self> {
        let refuse = |message: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        let addresses = [Some(options.listen), options.admin_listen];
        if !options.auth && addresses.iter().flatten().any(|address| !address.ip().is_loopback()) {
            return refuse("without authentication only a loopback address can be listened at");
        }
        if options.listen.ip().is_unspecified() && options.public_url.is_none() {
            return refuse("a wildcard address needs a public URL");
        }
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let grpc_listener =
            match options.grpc_port {
                Some(port) => Some(TcpListener::bind((options.listen.ip(), port)).await.map_err(|error| {
                    io::Error::new(error.kind(), format!("port {port}, which is for gRPC: {error}"))
                })?),
                None => None,
            };
        let admin_listener = match options.admin_listen {
            Some(address) => Some(TcpListener::bind(address).await.map_err(|error| {
                io::Error::new(error.kind(), format!("{address}, which is for administration: {error}"))
            })?),
            None => None,
        };
        let admin_address = admin_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let grpc_address = grpc_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let base_url = match &options.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("{}://{address}", options.scheme()),
        };
        let tls = options.tls.clone().map(tls::Tls::open).transpose()?;
        let auth = auth::Auth::new(Arc::clone(exchange.store()), options.auth).await.map_err(io::Error::other)?;
        let grpc = grpc_address.map(|address| advertised(address, options.public_url.as_deref()));
        let addresses = cards::Addresses { base: base_url.clone(), grpc };
        let signing = signing::Signing::new(Arc::clone(exchange.store()), &base_url).await.map_err(io::Error::other)?;
        let terms = cards::Terms {
            auth: auth.required(),
            public: options.public_cards,
            push: exchange.has_push(),
            compat: options.compat,
        };
        let cards = cards::Cards::new(addresses, terms, signing);
        let app = Arc::new(app::App {
            readiness: Arc::new(open::Readiness::new(exchange.clone())),
            exchange,
            auth,
            cards,
            bounds: body::Bounds { limit: options.body_limit, pause: options.body_timeout, rate: options.body_rate },
            keep_alive: options.keep_alive,
            limits: limits::Limits::new(options.request_rate, options.failed_auth_rate),
            names: origin::Names::new(options.auth, options.public_url.as_deref()),
            cors: options.cors.clone(),
            local: origin::Local {
                scheme: options.scheme(),
                address,
                grpc_port: grpc_address.map(|address| address.port()),
            },
            hsts: options.hsts(),
        });
        let places = Places::new(options.places());
        let router = app::router(Arc::clone(&app), admin_listener.is_none());
        let mut doors = vec![Door { listener, router, places: Arc::clone(&places) }];
        if let Some(listener) = grpc_listener {
            doors.push(Door { listener, router: app::grpc_router(Arc::clone(&app)), places });
        }
        if let Some(listener) = admin_listener {
            // Whatever the others do, these places are free.
            let places =
                Places::new(places::Bounds { places: ADMIN_PLACES, per_address: ADMIN_PLACES, ..options.places() });
            doors.push(Door { listener, router: app::admin_router(app), places });
        }
        Ok(Self { doors, tls, address, grpc_address, admin_address, base_url, options })
    }

    /// Where this process itself answers.
    pub fn local_url(&self) -> String {
        format!("{}://{}", self.options.scheme(), self.address)
    }

    /// The address that is listened at, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The address for gRPC alone, if there is one.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc_address
    }

    /// Where this machine reaches the server: the address that is listened at, or loopback where that is every address.
    pub fn reached_at(&self) -> String {
        self.reached(self.address)
    }

    /// What this machine administers the server by: the address that is for it alone, if there is one.
    pub fn admin_url(&self) -> Option<String> {
        self.admin_address.map(|address| self.reached(address))
    }

    fn reached(&self, address: SocketAddr) -> String {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("{}://{}", self.options.scheme(), SocketAddr::new(ip, address.port()))
    }

    /// What URLs on cards begin with.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Answers until `stop` is set, then lets open requests finish and returns.
    ///
    /// Streams end when the exchange drains: whoever sets `stop` drains it first or at the same time.
    pub async fn run(self, stop: CancellationToken) {
        accept::run(self.doors, self.tls.as_ref(), &self.options, stop).await;
    }
}

/// Where callers find the port for gRPC: at the host of the public URL, else at the address itself.
fn advertised(address: SocketAddr, public_url: Option<&str>) -> String {
    let public = public_url.and_then(|url| url.parse::<http::Uri>().ok()?.host().map(str::to_owned));
    public.map_or_else(|| address.to_string(), |host| format!("{host}:{}", address.port()))
}
