//! TLS to the server, by rustls: what of its certificate is checked follows `sslmode`.

use std::{path::Path, sync::Arc};

use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, CryptoProvider},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::url::{Tls, Verify};
use crate::{Error, Result};

/// What makes TLS sessions over connections that the client library opens. Reads the authorities now, so that a missing
/// file is an error at start and not at the next reconnect.
pub(super) fn connector(tls: &Tls) -> Result<MakeRustlsConnect> {
    let failed = |error: RustlsError| Error::Unavailable(format!("cannot set up TLS: {error}"));
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match tls.verify {
        Verify::Nothing => Arc::new(Unchecked(Arc::clone(&provider))),
        Verify::Chain => Arc::new(ChainOnly(webpki(&provider, tls.root.as_deref())?)),
        Verify::Full => webpki(&provider, tls.root.as_deref())?,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    // What `sslnegotiation=direct` needs; servers that do not know it pass over it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn webpki(provider: &Arc<CryptoProvider>, root: Option<&Path>) -> Result<Arc<WebPkiServerVerifier>> {
    let roots = match root {
        Some(file) => roots_of_file(file)?,
        None => roots_of_system()?,
    };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| Error::Unavailable(format!("cannot check the server's certificate: {error}")))
}

fn roots_of_file(file: &Path) -> Result<RootCertStore> {
    let failed = |why: &dyn std::fmt::Display| Error::Unavailable(format!("sslrootcert {}: {why}", file.display()));
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(file).map_err(|error| failed(&error))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"holds no certificate in PEM"));
    }
    Ok(roots)
}

fn roots_of_system() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's store may hold old certificates that cannot be read; the others count.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = "the system has no certificate authorities to check the server with; name one with sslrootcert";
        return Err(Error::Unavailable(why.to_owned()));
    }
    Ok(roots)
}

/// `verify-ca`: any name will do.
#[derive(Debug)]
struct ChainOnly(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        // The name is looked at last: whoever fails there has passed the rest. A test holds rustls to it.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(RustlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// `prefer` and `require`: the certificate may be anyone's, but its key must be the one that speaks.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::PathBuf,
        process::{Command, Output},
    };

    use super::{
        super::pool::{Connector, Limits, Role},
        *,
    };
    use testkit::certificates::certify;

    /// A server with a certificate for `localhost`, made by an authority of its own.
    struct Server {
        dir: PathBuf,
        port: u16,
    }

    fn scripts() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres")
    }

    fn run(command: &mut Command) -> Output {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    impl Server {
        async fn start() -> Self {
            let output = run(Command::new(scripts()).arg("start"));
            let exports = String::from_utf8(output.stdout).unwrap();
            let value = |name: &str| {
                let (_, rest) = exports.split_once(&format!("{name}='")).unwrap();
                rest.split_once('\'').unwrap().0.to_owned()
            };
            let url: super::super::url::Url = value("SB_TEST_POSTGRES").parse().unwrap();
            let server = Self { dir: value("SB_TEST_POSTGRES_DIR").into(), port: url.config.get_ports()[0] };
            let dir = server.dir.join("data");
            certify(&dir, "ca", None);
            certify(&dir, "other", None);
            certify(&dir, "server", Some("ca"));
            // The server wants its key to belong to whoever runs it.
            #[cfg(unix)]
            {
                use std::os::unix::fs::MetadataExt;
                let owner = std::fs::metadata(&dir).unwrap();
                for file in ["server.key", "server.pem"] {
                    std::os::unix::fs::chown(dir.join(file), Some(owner.uid()), Some(owner.gid())).unwrap();
                }
            }
            let client = Connector::new(&url, &Limits::default()).unwrap().open(Role::Session).await.unwrap();
            client.batch_execute("CREATE ROLE guest LOGIN PASSWORD 'geheim'").await.unwrap();
            for setting in ["ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'", "ssl = on"] {
                client.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
            }
            let hba =
                "local all all trust\nhostssl all guest 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
            std::fs::write(dir.join("pg_hba.conf"), hba).unwrap();
            client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
            server
        }

        /// Whether the connection is encrypted.
        async fn connect(&self, who: &str, host: &str, query: &str) -> Result<bool> {
            let query = query.replace("DIR", &self.dir.join("data").to_string_lossy());
            let url = format!("postgres://{who}@{host}:{}/postgres?{query}", self.port).parse().unwrap();
            let client = Connector::new(&url, &Limits::default())?.open(Role::Read).await?;
            let row = client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await?;
            Ok(row.try_get(0)?)
        }

        async fn settle(&self) {
            for _ in 0..100 {
                if self.connect("postgres", "127.0.0.1", "sslmode=require").await.is_ok() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            panic!("the server does not speak TLS");
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = Command::new(scripts()).arg("stop").arg(&self.dir).output();
        }
    }

    #[tokio::test]
    async fn modes_check_what_they_say() {
        let server = Server::start().await;
        server.settle().await;
        for (host, query, encrypted) in [
            ("127.0.0.1", "sslmode=disable", false),
            ("127.0.0.1", "sslmode=prefer", true),
            ("127.0.0.1", "", true),
            ("127.0.0.1", "sslmode=require", true),
            ("127.0.0.1", "sslmode=require&sslrootcert=DIR/ca.pem", true),
            ("127.0.0.1", "sslmode=verify-ca&sslrootcert=DIR/ca.pem", true),
            ("localhost", "sslmode=verify-full&sslrootcert=DIR/ca.pem", true),
        ] {
            let outcome = server.connect("postgres", host, query).await;
            assert!(matches!(outcome, Ok(found) if found == encrypted), "{host} {query}: {outcome:?}");
        }
        for (host, query, why) in [
            // The right authority, another name; the right name, another authority; neither.
            ("127.0.0.1", "sslmode=verify-full&sslrootcert=DIR/ca.pem", "not valid for name"),
            ("localhost", "sslmode=verify-full&sslrootcert=DIR/other.pem", "UnknownIssuer"),
            ("127.0.0.1", "sslmode=verify-ca&sslrootcert=DIR/other.pem", "UnknownIssuer"),
            ("127.0.0.1", "sslmode=require&sslrootcert=DIR/other.pem", "UnknownIssuer"),
            ("localhost", "sslmode=verify-full", "UnknownIssuer"),
            ("localhost", "sslmode=verify-full&sslrootcert=DIR/none.pem", "none.pem"),
            ("localhost", "sslmode=verify-full&sslrootcert=DIR/server.key", "no certificate"),
        ] {
            let outcome = server.connect("postgres", host, query).await;
            let Err(error) = outcome else { panic!("{host} {query} was let through") };
            assert!(error.to_string().contains(why), "{host} {query}: {error}");
        }
        // Passwords go through TLS too, and are bound to it: who passes them on from another session is found out.
        for query in ["", "channel_binding=disable", "channel_binding=require"] {
            assert!(server.connect("guest:geheim", "127.0.0.1", query).await.unwrap(), "{query}");
        }
        let unbound = server.connect("guest:geheim", "127.0.0.1", "sslmode=disable&channel_binding=require").await;
        assert!(unbound.is_err(), "{unbound:?}");
        let refused = server.connect("guest:falsch", "127.0.0.1", "").await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "postgresql: password authentication failed for user \"guest\" (SQLSTATE 28P01)"
        );
    }
}
