//! Who is at the other end of a connection, put into each of its requests: the address of the socket, or what a proxy that is
//! trusted says about it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
};

use axum::Router;
use http::{HeaderMap, Request};
use tower::Service;

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A range of addresses, such as `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Whether it has this address in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address (10.0.0.1) and no range of them (10.0.0.0/8)");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok().filter(|prefix| *prefix <= bits));
        Ok(Self { address, prefix: prefix.ok_or_else(wrong)? })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The routes, for requests of one connection.
#[derive(Clone)]
pub(crate) struct Peered {
    router: Router,
    address: IpAddr,
    proxies: Arc<[Network]>,
}

impl Peered {
    pub(crate) fn new(router: Router, address: IpAddr, proxies: &Arc<[Network]>) -> Self {
        Self { router, address, proxies: Arc::clone(proxies) }
    }
}

impl<B> Service<Request<B>> for Peered
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.router.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let peer = Peer(sender(self.address, request.headers(), &self.proxies));
        request.extensions_mut().insert(peer);
        self.router.call(request)
    }
}

/// Who is behind a connection. Each proxy adds the address that it was called from at the end of `X-Forwarded-For`: from there
/// backwards, the first that is no proxy of ours. What stands before that is hearsay.
fn sender(socket: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let is_ours = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    if !is_ours(socket) {
        return socket;
    }
    let mut nearest = socket;
    let values = headers.get_all("x-forwarded-for").iter().rev();
    for value in values {
        let Ok(list) = value.to_str() else { return nearest };
        for entry in list.rsplit(',').map(str::trim) {
            let Some(address) = address_of(entry) else { return nearest };
            if !is_ours(address) {
                return address;
            }
            nearest = address;
        }
    }
    nearest
}

/// An entry may have a port: `192.0.2.1:80`, `[2001:db8::1]:80`.
fn address_of(entry: &str) -> Option<IpAddr> {
    let with_port = || entry.parse::<std::net::SocketAddr>().ok().map(|it| it.ip());
    entry.trim_matches(['[', ']']).parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "192.0.2.8", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "::1", true),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{address} in {network}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_proxies_are_believed_and_only_what_they_saw() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        for (socket, forwarded, expected) in [
            ("192.0.2.1", &["203.0.113.9"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9:1234"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1"),
            ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["unknown, 10.0.0.3"], "10.0.0.3"),
        ] {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            let found = sender(socket.parse().unwrap(), &headers, &proxies);
            assert_eq!(found.to_string(), expected, "{socket} {forwarded:?}");
        }
    }
}
