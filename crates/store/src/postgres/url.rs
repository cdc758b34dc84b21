//! Where the database is and how to talk to it: a connection URL as libpq reads it, which never shows its password.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// A `postgres://user:password@host:port/database?…` URL. It prints without its password.
#[derive(Clone)]
pub struct Url {
    masked: String,
    /// Boxed, since it is large and URLs are handed around.
    pub(super) config: Box<Config>,
    pub(super) tls: Tls,
}

/// What is asked of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) verify: Verify,
    /// Trust these authorities alone; those of the system when there is none.
    pub(super) root: Option<PathBuf>,
}

/// What of the server's certificate is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: the line is private, the other end could be anyone.
    #[default]
    Nothing,
    /// That an authority we trust has signed it.
    Chain,
    /// That, and that it is for the host we asked for.
    Full,
}

/// Why a URL is none. It never repeats the URL.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadUrl {
    /// Not ours.
    #[error("a PostgreSQL URL begins with postgres:// or postgresql://")]
    Scheme,
    /// There is no default.
    #[error("the URL names no host; for a local socket add ?host=/var/run/postgresql")]
    NoHost,
    /// Not one of the modes.
    #[error("sslmode={0:?} is none of disable, prefer, require, verify-ca and verify-full")]
    SslMode(String),
    /// As libpq has it: the system's authorities vouch for anyone's name, so the name must be checked.
    #[error("sslrootcert=system needs sslmode=verify-full")]
    WeakSystemRoot,
    /// What the client library says.
    #[error("not a PostgreSQL URL: {0}")]
    Malformed(String),
}

/// What holds unless the URL says otherwise, as its first parameters. A peer that has vanished without a word is noticed
/// within half a minute.
const DEFAULTS: &str = "application_name=switchboard&connect_timeout=5&keepalives_idle=10&keepalives_interval=5\
    &keepalives_retries=3&tcp_user_timeout=25";

impl Url {
    /// Whether a text is meant to be such a URL.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// The same server, another database.
    pub fn with_database(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other.masked = format!("{} (database {name})", self.masked);
        other
    }

    /// The database's name, which is the user's own when the URL names none.
    pub fn database(&self) -> Option<&str> {
        self.config.get_dbname().or(self.config.get_user())
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if !Self::is_one(text) {
            return Err(BadUrl::Scheme);
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        // A password with a '?' in it would be taken for parameters here, and be told in the error.
        if query.contains('@') {
            let why = "after the '?', an '@' is written %40; in a password, a '?' is written %3F";
            return Err(BadUrl::Malformed(why.to_owned()));
        }
        // The client library reads the rest as libpq does, but knows neither of these two.
        let mut passed_on = format!("{base}?{DEFAULTS}");
        let (mut mode, mut root) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(decoded(value)),
                Some(("sslrootcert", value)) => root = Some(decoded(value)),
                _ => passed_on.extend(["&", pair]),
            }
        }
        let mut config: Config = passed_on.parse().map_err(|error| BadUrl::Malformed(causes(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(BadUrl::NoHost);
        }
        let (ssl_mode, tls) = tls(mode.as_deref(), root.as_deref())?;
        // As in libpq, TLS is not for sockets: who reads those reads our memory too.
        let local = config.get_hosts().iter().all(is_socket) && config.get_hostaddrs().is_empty();
        config.ssl_mode(match ssl_mode {
            _ if local => SslMode::Disable,
            // Whoever stands between two machines can say that there is no TLS, and gets the password and everything else.
            SslMode::Prefer if !is_here(&config) => SslMode::Require,
            mode => mode,
        });
        Ok(Self { masked: masked(text), config: Box::new(config), tls })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL, or what was meant to be one, without its password.
pub fn masked(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    // A password may hold an unescaped '/' or '?': then the URL is malformed, and what precedes the last '@' is hidden.
    let at = authority.rfind('@').or_else(|| rest.rfind('@'));
    let mut shown = String::new();
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    let mut rest = rest;
    if let Some(at) = at {
        let (user, after) = (&rest[..at], &rest[at..]);
        match user.split_once(':') {
            Some((name, _)) => {
                shown.push_str(name);
                shown.push_str(":***");
            }
            None => shown.push_str(user),
        }
        rest = after;
    }
    let Some((before, query)) = rest.split_once('?') else {
        shown.push_str(rest);
        return shown;
    };
    shown.push_str(before);
    for (n, pair) in query.split('&').enumerate() {
        shown.push(if n == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if decoded(name).eq_ignore_ascii_case("password") => {
                shown.push_str(name);
                shown.push_str("=***");
            }
            _ => shown.push_str(pair),
        }
    }
    shown
}

/// What libpq means by these two.
fn tls(mode: Option<&str>, root: Option<&str>) -> Result<(SslMode, Tls), BadUrl> {
    let root = root.filter(|root| !root.is_empty());
    let system = root == Some("system");
    // Whoever names an authority wants it to be asked.
    let at_least = if root.is_some() { Verify::Chain } else { Verify::Nothing };
    let (mode, verify) = match mode.unwrap_or(if system { "verify-full" } else { "prefer" }) {
        "disable" => (SslMode::Disable, Verify::Nothing),
        "prefer" => (SslMode::Prefer, at_least),
        "require" => (SslMode::Require, at_least),
        "verify-ca" => (SslMode::Require, Verify::Chain),
        "verify-full" => (SslMode::Require, Verify::Full),
        other => return Err(BadUrl::SslMode(other.to_owned())),
    };
    if system && mode != SslMode::Disable && verify != Verify::Full {
        return Err(BadUrl::WeakSystemRoot);
    }
    Ok((mode, Tls { verify, root: root.filter(|_| !system).map(PathBuf::from) }))
}

#[cfg(unix)]
fn is_socket(host: &Host) -> bool {
    matches!(host, Host::Unix(_))
}

#[cfg(not(unix))]
fn is_socket(_: &Host) -> bool {
    false
}

/// Whether every connection stays on this machine.
fn is_here(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    // An address, where there is one, is where the connection goes; the host is then only its name.
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_here),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// An error with what caused it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(text: &str) -> Url {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn urls_are_read_as_libpq_reads_them() {
        let url = parse("postgres://me:p%40ss@db.example:6432/app?application_name=sb%20one");
        assert_eq!(url.config.get_user(), Some("me"));
        assert_eq!(url.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(url.config.get_ports(), [6432]);
        assert_eq!((url.database(), url.config.get_application_name()), (Some("app"), Some("sb one")));
        assert_eq!((url.config.get_ssl_mode(), url.tls.verify), (SslMode::Require, Verify::Nothing));
        let timeouts = |url: &Url| (url.config.get_connect_timeout().copied(), url.config.get_keepalives_idle());
        let seconds = Duration::from_secs;
        assert_eq!(timeouts(&url), (Some(seconds(5)), seconds(10)), "what holds unless something else is said");
        let said = parse("postgres://h/d?connect_timeout=2&keepalives_idle=60");
        assert_eq!(timeouts(&said), (Some(seconds(2)), seconds(60)));
        let socket = parse("postgresql:///app?host=/var/run/postgresql&user=me&sslmode=require");
        assert_eq!(socket.config.get_hosts(), [Host::Unix("/var/run/postgresql".into())]);
        assert_eq!(socket.config.get_ssl_mode(), SslMode::Disable, "sockets have no TLS");
        let at = parse("postgres://h/d?application_name=a%40b");
        assert_eq!((at.database(), at.config.get_application_name()), (Some("d"), Some("a@b")));
        assert_eq!(parse("postgres://me@h").database(), Some("me"));
        assert_eq!(parse("postgres://me@h/one").with_database("two").database(), Some("two"));
    }

    #[test]
    fn modes_mean_what_libpq_means() {
        let of = |query: &str| {
            let url = parse(&format!("postgres://me@h/d?{query}"));
            (url.config.get_ssl_mode(), url.tls.verify, url.tls.root)
        };
        let file = || Some(PathBuf::from("/ca.pem"));
        assert_eq!(of("sslmode=disable"), (SslMode::Disable, Verify::Nothing, None));
        assert_eq!(of("sslmode=require"), (SslMode::Require, Verify::Nothing, None));
        assert_eq!(of("sslmode=require&sslrootcert=/ca.pem"), (SslMode::Require, Verify::Chain, file()));
        assert_eq!(of("sslrootcert=%2Fca.pem"), (SslMode::Require, Verify::Chain, file()));
        assert_eq!(of("sslmode=verify-ca"), (SslMode::Require, Verify::Chain, None));
        assert_eq!(of("sslmode=verify-full&sslrootcert=/ca.pem"), (SslMode::Require, Verify::Full, file()));
        assert_eq!(of("sslrootcert=system"), (SslMode::Require, Verify::Full, None));
    }

    #[test]
    fn between_machines_only_who_says_so_goes_without_tls() {
        let of = |url: &str| parse(url).config.get_ssl_mode();
        for far in [
            "postgres://h/d",
            "postgres://h/d?sslmode=prefer",
            "postgres://10.0.0.1/d",
            "postgres://0.0.0.0/d",
            "postgres://localhost.example/d",
            "postgres://localhost,h/d",
            "postgres://localhost/d?hostaddr=10.0.0.1",
            "postgres://[2001:db8::1]/d",
        ] {
            assert_eq!(of(far), SslMode::Require, "{far}");
        }
        for near in [
            "postgres://localhost/d",
            "postgres://127.0.0.1/d",
            "postgres://[::1]/d",
            "postgres://localhost,127.0.0.2/d",
            "postgres://h/d?hostaddr=127.0.0.1",
        ] {
            assert_eq!(of(near), SslMode::Prefer, "{near}");
        }
        assert_eq!(of("postgres://h/d?sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, expected) in [
            ("mysql://me:geheim@h/d", BadUrl::Scheme),
            ("postgres:///d", BadUrl::NoHost),
            (
                "postgres://me:geheim@h/d?sslmod=x",
                BadUrl::Malformed("invalid connection string: unknown option `sslmod`".into()),
            ),
            ("postgres://me:geheim@h/d?sslmode=allow", BadUrl::SslMode("allow".into())),
            ("postgres://me:geheim@h/d?sslmode=require&sslrootcert=system", BadUrl::WeakSystemRoot),
        ] {
            assert_eq!(text.parse::<Url>().unwrap_err(), expected, "{text}");
        }
        for text in [
            "postgres://me:geheim@h:port/d",
            "postgres://me:ge?heim@h/d",
            "postgres://me:ge@x?heim=heim@h/d",
            "postgres://me:geheim@h/d?port=x",
            "postgres://me:geheim",
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(!error.contains("heim"), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for (text, expected) in [
            ("postgres://me:geheim@h:1/d", "postgres://me:***@h:1/d"),
            ("postgres://me:ge@heim@h/d?x=1", "postgres://me:***@h/d?x=1"),
            ("postgres://me:ge/heim@h/d", "postgres://me:***@h/d"),
            ("postgres://me:ge?heim@h/d", "postgres://me:***@h/d"),
            ("postgres://me@h/d?password=geheim&a=b", "postgres://me@h/d?password=***&a=b"),
            ("postgres://h/d?pass%77ord=geheim", "postgres://h/d?pass%77ord=***"),
            ("postgres://h/d?application_name=a", "postgres://h/d?application_name=a"),
            ("me:geheim@h", "me:***@h"),
        ] {
            assert_eq!(masked(text), expected);
        }
        let url = parse("postgres://me:geheim@h/d");
        for shown in
            [format!("{url}"), format!("{url:?}"), format!("{:?}", url.config), url.with_database("x").to_string()]
        {
            assert!(!shown.contains("geheim"), "{shown}");
        }
    }
}
