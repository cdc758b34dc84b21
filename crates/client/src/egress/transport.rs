//! The HTTP client beneath a connector: a pool of connections that are opened under its policy.

use std::{
    error::Error as StdError,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{
        self,
        connect::{HttpConnector, dns::Name},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls_platform_verifier::{BuilderVerifierExt, Verifier};
use tokio::net::TcpStream;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tower::Service;

use super::{
    guard::{Checked, Resolve, with_port_of_url},
    interim::Bounded,
    steady::Watched,
};

/// How long a connection without a request is kept.
const IDLE: Duration = Duration::from_secs(90);
/// How often the other side is asked whether it is still there, how many answers may be missing, and how long what is sent may stay
/// unacknowledged.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
pub(super) type Client = legacy::Client<Connect, Full<Bytes>>;
type Stream = TokioIo<Bounded<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>>;

/// The protocol and the peers of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    /// Whether it speaks TLS.
    pub(super) is_secure: bool,
    /// Whether it speaks HTTP/2 without asking.
    pub(super) is_http2: bool,
    /// Whether tenants choose who answers.
    pub(super) is_stranger: bool,
}

/// Opens connections.
#[derive(Clone)]
pub(super) struct Connect {
    inner: HttpsConnector<HttpConnector<Resolver>>,
    timeout: Duration,
}

/// How the names of a policy are resolved.
#[derive(Clone)]
pub(super) enum Resolver {
    /// Every address of a name is as good as another.
    Any(Arc<dyn Resolve>),
    Checked(Checked),
    Steady(Watched),
    /// All names lead to this IP address, at the port of the URL. A certificate of the address is accepted for them.
    Fixed(SocketAddr),
}

/// A client of a connector.
pub(super) fn client(protocol: Protocol, resolver: Resolver, timeout: Duration) -> Result<Client, BoxError> {
    let tls = tls(protocol, &resolver)?;
    let mut http = HttpConnector::new_with_resolver(resolver);
    http.enforce_http(false);
    http.set_nodelay(true);
    // Each address of a name has its share, so that one that does not answer leaves time for the next.
    http.set_connect_timeout(Some(timeout));
    http.set_keepalive(Some(KEEP_ALIVE));
    http.set_keepalive_interval(Some(KEEP_ALIVE));
    http.set_keepalive_retries(Some(KEEP_ALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    if protocol.is_stranger {
        // No connection is kept for a stranger that has answered, which could be many and cost on.
        builder.pool_max_idle_per_host(0);
    }
    if protocol.is_http2 && !protocol.is_secure {
        builder.http2_only(true);
    }
    let inner = HttpsConnector::from((http, tls));
    Ok(builder.build(Connect { inner, timeout }))
}

fn tls(protocol: Protocol, resolver: &Resolver) -> Result<ClientConfig, BoxError> {
    let provider = crypto::CryptoProvider::get_default().map(Arc::clone);
    let provider = provider.unwrap_or_else(|| Arc::new(crypto::aws_lc_rs::default_provider()));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    // Plain HTTP must work where no root certificates are installed, and should not pay for loading them.
    let builder = match (protocol.is_secure, resolver) {
        (true, Resolver::Fixed(address)) => {
            let verifier = AlsoByAddress::new(address.ip(), provider)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        (true, _) => builder.with_platform_verifier()?,
        (false, _) => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut config = builder.with_no_client_auth();
    // Where a stranger might choose it speaks the simpler protocol.
    let spoken: &[&[u8]] = if protocol.is_stranger { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
    config.alpn_protocols = spoken.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Accepts what the platform accepts, and a certificate of the address that all names lead to.
#[derive(Debug)]
struct AlsoByAddress {
    platform: Verifier,
    names: Vec<ServerName<'static>>,
}

impl AlsoByAddress {
    fn new(ip: IpAddr, provider: Arc<crypto::CryptoProvider>) -> Result<Self, BoxError> {
        let mut names = vec![ServerName::from(ip)];
        if ip.is_loopback() {
            names.push(ServerName::try_from("localhost")?);
        }
        Ok(Self { platform: Verifier::new(provider)?, names })
    }
}

impl ServerCertVerifier for AlsoByAddress {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |name: &ServerName<'_>| self.platform.verify_server_cert(leaf, intermediates, name, ocsp, now);
        verify(name).or_else(|error| match error {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => self.names.iter().find_map(|name| verify(name).ok()).ok_or(error),
            error => Err(error),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.platform.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.platform.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.platform.supported_verify_schemes()
    }
}

impl Service<Uri> for Connect {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, timeout) = (self.inner.call(uri), self.timeout);
        Box::pin(async move {
            let connected = tokio::time::timeout(timeout, connecting).await;
            let stream = connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting timed out"))??;
            Ok(TokioIo::new(Bounded::new(TokioIo::new(stream))))
        })
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        match self {
            Self::Any(resolver) => {
                let resolver = Arc::clone(resolver);
                Box::pin(async move { Ok(with_port_of_url(resolver.resolve(name.as_str()).await?).into_iter()) })
            }
            Self::Checked(checked) => {
                let checked = checked.clone();
                Box::pin(async move { Ok(checked.resolve(name.as_str()).await?.into_iter()) })
            }
            Self::Fixed(address) => {
                let found = vec![SocketAddr::new(address.ip(), 0)];
                Box::pin(async move { Ok(found.into_iter()) })
            }
            Self::Steady(watched) => {
                let watched = watched.clone();
                Box::pin(async move { Ok(watched.resolve(name.as_str()).await?.into_iter()) })
            }
        }
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connect").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Whether a request was refused before anything was done with it, so that it can be sent again: a connection on HTTP/2 that is about to
/// end says so.
pub(super) fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let ends = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (ends || refused);
        }
        next = error.source();
    }
    false
}

/// Whether waiting for the network has taken too long.
pub(super) fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        next = error.source();
    }
    false
}
