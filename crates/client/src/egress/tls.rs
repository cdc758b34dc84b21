//! Failed connections to servers that are there: certificates that are not accepted, and ports that speak the other of HTTP and HTTPS.

use std::{error::Error as StdError, fmt, io};

use a2a::Timestamp;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error as RustlsError, InvalidMessage, pki_types::UnixTime,
};

/// Names of a certificate that are shown.
const SHOWN_NAMES: usize = 5;
/// Error kind of a connection without TLS whose other side speaks TLS. It survives the way through hyper and h2, which the error
/// itself does not.
const KIND: io::ErrorKind = io::ErrorKind::Unsupported;

/// Why no connection can be made although the server is there. The same call fails until somebody changes the URL, the certificate or
/// the authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProblem {
    /// The certificate was issued by an authority that is not trusted here.
    #[error("its certificate was issued by an authority that this machine does not trust")]
    UntrustedIssuer,
    /// The certificate is for other names than the one that was called.
    #[error("its certificate is for {}, not for {host}", Names(.names))]
    NameMismatch {
        /// The name that was called.
        host: String,
        /// The names of the certificate.
        names: Vec<String>,
    },
    /// The certificate has expired.
    #[error("its certificate has expired{}", Since(.0, " on "))]
    Expired(Option<Timestamp>),
    /// The certificate is not valid yet.
    #[error("its certificate is not valid yet{}", Since(.0, ", but from "))]
    NotYetValid(Option<Timestamp>),
    /// The certificate is not accepted for another reason.
    #[error("its certificate is not accepted: {0}")]
    Certificate(String),
    /// The port of an `https` URL speaks plain HTTP.
    #[error("it speaks plain HTTP at this port, not TLS")]
    PlainHttp,
    /// The port of an `http` URL speaks TLS.
    #[error("it speaks TLS at this port, not plain HTTP")]
    SpeaksTls,
    /// The two sides cannot agree on how to speak TLS.
    #[error("no TLS connection can be made: {0}")]
    Handshake(String),
}

/// The names of a certificate in a sentence.
struct Names<'a>(&'a [String]);

/// A point in time behind some words, if there is one.
struct Since<'a>(&'a Option<Timestamp>, &'static str);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no host name"),
            names if names.len() > SHOWN_NAMES => {
                write!(f, "{} and {} more", names[..SHOWN_NAMES].join(", "), names.len() - SHOWN_NAMES)
            }
            [name] => f.write_str(name),
            [names @ .., last] => write!(f, "{} and {last}", names.join(", ")),
        }
    }
}

impl fmt::Display for Since<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |time| write!(f, "{}{time}", self.1))
    }
}

impl TlsProblem {
    /// The problem that made connecting fail, if that is why it failed.
    pub(super) fn of_connecting(error: &(dyn StdError + 'static), host: &str) -> Option<Self> {
        match rustls_error(error)? {
            RustlsError::InvalidCertificate(refused) => Some(Self::of_certificate(refused, host)),
            RustlsError::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Self::PlainHttp),
            // The other side has a fault of its own, which may pass.
            RustlsError::AlertReceived(AlertDescription::InternalError) => None,
            error @ (RustlsError::AlertReceived(_)
            | RustlsError::InvalidMessage(_)
            | RustlsError::NoApplicationProtocol
            | RustlsError::NoCertificatesPresented
            | RustlsError::PeerIncompatible(_)
            | RustlsError::PeerMisbehaved(_)) => Some(Self::Handshake(error.to_string())),
            _ => None,
        }
    }

    fn of_certificate(refused: &CertificateError, host: &str) -> Self {
        let time = |time: &UnixTime| {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            Some(Timestamp::from_millis(seconds.saturating_mul(1000)))
        };
        match refused {
            CertificateError::UnknownIssuer => Self::UntrustedIssuer,
            CertificateError::NotValidForName => Self::NameMismatch { host: host.to_owned(), names: Vec::new() },
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names = presented.iter().filter_map(|name| name_in(name)).collect();
                Self::NameMismatch { host: host.to_owned(), names }
            }
            CertificateError::Expired => Self::Expired(None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(time(not_after)),
            CertificateError::NotValidYet => Self::NotYetValid(None),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotYetValid(time(not_before)),
            other => Self::Certificate(other.to_string()),
        }
    }
}

/// The name in the way in which rustls writes it: `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
fn name_in(presented: &str) -> Option<String> {
    let name = presented.strip_prefix("DnsName(\"").and_then(|name| name.strip_suffix("\")"));
    let address = || presented.strip_prefix("IpAddress(").and_then(|name| name.strip_suffix(')'));
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_*:".contains(&byte));
    name.or_else(address).filter(is_plain).map(str::to_owned)
}

/// The error of rustls among the causes of an error.
fn rustls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a RustlsError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<RustlsError>() {
            return Some(found);
        }
        // The source of an I/O error is the source of the error in it.
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = within.map(|error| error as &(dyn StdError + 'static)).or_else(|| error.source());
    }
    None
}

/// The error of a connection without TLS that is answered in TLS, if these are the first bytes of such an answer. No answer of HTTP
/// begins like an alert of TLS, and no frame of HTTP/2 that may come first is as long as that would say.
pub(super) fn check_first_bytes(bytes: &[u8]) -> io::Result<()> {
    const ALERT: u8 = 21;
    const MAJOR_VERSION: u8 = 3;
    match bytes {
        [ALERT] | [ALERT, MAJOR_VERSION, ..] => Err(io::Error::new(KIND, TlsProblem::SpeaksTls)),
        _ => Ok(()),
    }
}

/// Whether a call failed since the other side speaks TLS.
pub(super) fn is_answered_in_tls(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>().or_else(|| error.downcast_ref::<h2::Error>()?.get_io());
        if io.is_some_and(|error| error.kind() == KIND) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(error: RustlsError) -> Option<String> {
        let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        TlsProblem::of_connecting(&nested, "h").map(|problem| problem.to_string())
    }

    fn mismatch(presented: &[&str]) -> String {
        let expected = "h".try_into().unwrap();
        let presented = presented.iter().map(|name| (*name).to_owned()).collect();
        problem(CertificateError::NotValidForNameContext { expected, presented }.into()).unwrap()
    }

    #[test]
    fn each_problem_is_one_sentence() {
        let dns = "DnsName(\"localhost\")";
        for (presented, said) in [
            (&[][..], "its certificate is for no host name, not for h"),
            (&[dns], "its certificate is for localhost, not for h"),
            (&[dns, "IpAddress(127.0.0.1)"], "its certificate is for localhost and 127.0.0.1, not for h"),
            (&[dns, "DnsName(\"\u{1b}[2J\")", "Other"], "its certificate is for localhost, not for h"),
            (
                &[dns; 7],
                "its certificate is for localhost, localhost, localhost, localhost, localhost and 2 more, not for h",
            ),
        ] {
            assert_eq!(mismatch(presented), said);
        }
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let expired = CertificateError::ExpiredContext { time: at(2000), not_after: at(1000) };
        let said = "its certificate has expired on 1970-01-01T00:16:40.000Z";
        assert_eq!(problem(expired.into()).unwrap(), said);
        assert!(problem(CertificateError::UnknownIssuer.into()).unwrap().contains("does not trust"));
        let plain = problem(InvalidMessage::InvalidContentType.into()).unwrap();
        assert_eq!(plain, "it speaks plain HTTP at this port, not TLS");
        assert!(problem(RustlsError::AlertReceived(AlertDescription::ProtocolVersion)).is_some());
        assert_eq!(problem(RustlsError::AlertReceived(AlertDescription::InternalError)), None, "it may pass");
    }

    #[test]
    fn an_alert_is_known_by_its_first_bytes() {
        for (bytes, is_alert) in [
            (&[21, 3, 3, 0, 2, 2, 50][..], true),
            (&[21], true),
            (&[21, 0, 0], false),
            (b"HTTP/1.1 400", false),
            (&[0, 0, 18, 4], false),
            (&[], false),
        ] {
            let checked = check_first_bytes(bytes);
            assert_eq!(checked.as_ref().is_err_and(|error| is_answered_in_tls(error)), is_alert, "{bytes:?}");
        }
    }
}
