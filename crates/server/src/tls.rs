//! TLS at the door: the certificate and its key, read again when their files change.
//!
//! Whoever renews certificates replaces two files, one after the other. A pair that does not fit, or cannot be read, is not
//! used: the last good one stays until a good one is there. Connections that are open keep what they began with.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        CertificateError, Error as RustlsError, RootCertStore, ServerConfig,
        client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
        crypto::CryptoProvider,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
        server::ParsedCertificate,
        version::{TLS12, TLS13},
    },
};

/// How often the files are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// The most that is read of either file.
const LARGEST: u64 = 1 << 20;

/// Where a certificate and its key are, as PEM: the server's own certificate first, then those between it and the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain.
    pub cert: PathBuf,
    /// The key of its first certificate.
    pub key: PathBuf,
}

/// Why a pair of files is no use.
#[derive(Debug)]
pub struct TlsError {
    file: PathBuf,
    why: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for TlsError {}

/// The bytes of both files.
#[derive(PartialEq, Eq)]
struct Pair {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// What new connections are greeted with.
pub(crate) struct Tls {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
    read: Pair,
}

impl TlsFiles {
    /// Says what is wrong with the files, if anything.
    pub fn check(&self) -> Result<(), TlsError> {
        self.read().and_then(|pair| self.config(&pair)).map(drop)
    }

    /// The reasons for which callers of this host refuse the certificate, whatever authority has issued it.
    pub fn problems(&self, host: &str) -> Result<Vec<String>, TlsError> {
        let pair = self.read()?;
        let in_cert = |why: String| TlsError { file: self.cert.clone(), why };
        let leaf = CertificateDer::from_pem_slice(&pair.cert).map_err(|error| in_cert(error.to_string()))?;
        let leaf = ParsedCertificate::try_from(&leaf).map_err(|error| in_cert(error.to_string()))?;
        // The times are checked before the issuer is, which is nobody here.
        let algorithms = provider().signature_verification_algorithms.all;
        let times =
            verify_server_cert_signed_by_trust_anchor(&leaf, &RootCertStore::empty(), &[], UnixTime::now(), algorithms);
        let time = |time: &UnixTime| {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            a2a::Timestamp::from_millis(seconds.saturating_mul(1000))
        };
        let mut problems = Vec::new();
        match times {
            Err(RustlsError::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                problems.push(format!("it has expired on {}", time(&not_after)));
            }
            Err(RustlsError::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
                problems.push(format!("it is not valid before {}", time(&not_before)));
            }
            _ => {}
        }
        let name = ServerName::try_from(host).map_err(|_| in_cert(format!("no certificate can be for `{host}`")))?;
        if let Err(error) = verify_server_name(&leaf, &name) {
            problems.push(match error {
                RustlsError::InvalidCertificate(refused) => refused.to_string(),
                error => error.to_string(),
            });
        }
        Ok(problems)
    }

    fn read(&self) -> Result<Pair, TlsError> {
        let read = |file: &Path| {
            store::read_regular(file, LARGEST)
                .map_err(|error| TlsError { file: file.to_owned(), why: error.to_string() })
        };
        Ok(Pair { cert: read(&self.cert)?, key: read(&self.key)? })
    }

    fn config(&self, pair: &Pair) -> Result<Arc<ServerConfig>, TlsError> {
        let in_cert = |why: String| TlsError { file: self.cert.clone(), why };
        let in_key = |why: String| TlsError { file: self.key.clone(), why };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pair.cert).collect();
        let chain = chain.map_err(|error| in_cert(format!("not a PEM certificate: {error}")))?;
        if chain.is_empty() {
            return Err(in_cert("there is no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| {
            in_key("there is no private key in it that can be read (-----BEGIN PRIVATE KEY-----)".to_owned())
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| in_cert(error.to_string()))?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| in_key(format!("it does not go with the certificate: {error}")))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn provider() -> CryptoProvider {
    tokio_rustls::rustls::crypto::aws_lc_rs::default_provider()
}

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> io::Result<Self> {
        let invalid = |error: TlsError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let read = files.read().map_err(invalid)?;
        let config = files.config(&read).map_err(invalid)?;
        Ok(Self { current: ArcSwap::new(config), read, files })
    }

    /// What greets the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Looks at the files now and then. Does not return.
    pub(crate) async fn watch(&self) {
        let mut seen: Option<Pair> = None;
        let mut is_unreadable = false;
        loop {
            tokio::time::sleep(PERIOD).await;
            let files = self.files.clone();
            let Ok(pair) = tokio::task::spawn_blocking(move || files.read()).await else { continue };
            match pair {
                // Said once: it stays so until it can be read again.
                Err(error) if !is_unreadable => {
                    is_unreadable = true;
                    tracing::warn!(%error, "the certificate cannot be read again; the one that was read stays");
                }
                Err(_) => {}
                Ok(pair) if Some(&pair) == seen.as_ref().or(Some(&self.read)) => is_unreadable = false,
                Ok(pair) => {
                    match self.files.config(&pair) {
                        Ok(config) => {
                            self.current.store(config);
                            tracing::info!("the certificate was read again");
                        }
                        Err(error) => tracing::warn!(%error, "a new certificate is no use; the one before stays"),
                    }
                    is_unreadable = false;
                    seen = Some(pair);
                }
            }
        }
    }
}
