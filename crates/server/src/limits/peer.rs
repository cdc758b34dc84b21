//! Who is at the other end of a connection, put into each of its requests: the address of the socket, or what a proxy that is
//! trusted says about it.

use std::{
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use a2a::{Error, Network};
use axum::Router;
use http::{HeaderMap, Request};
use tower::Service;

use super::RequestSlot;
use crate::places::{Place, Places, Seat};

/// How many proxies can stand behind each other.
const MAX_PROXIES: usize = 32;

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The routes, for requests of one connection.
#[derive(Clone)]
pub(crate) struct Peered {
    router: Router,
    address: IpAddr,
    proxies: Arc<[Network]>,
    connection: Wire,
}

/// The connection that a request comes by.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) seat: Arc<Seat>,
    places: Arc<Places>,
}

impl Peered {
    pub(crate) fn new(router: Router, address: IpAddr, proxies: &Arc<[Network]>, place: &Place) -> Self {
        let connection = Wire { seat: Arc::clone(&place.seat), places: Arc::clone(&place.places) };
        Self { router, address, proxies: Arc::clone(proxies), connection }
    }
}

impl Wire {
    /// A request of this sender, or of a kind that operators send: what comes on a connection that is reserved for them always is.
    pub(crate) fn begin(&self, Peer(address): Peer, is_for_operators: bool) -> Result<Arc<RequestSlot>, Error> {
        let is_for_operators = is_for_operators || self.seat.is_reserved();
        self.places.in_flight.begin(&self.seat, address, !self.seat.is_counted(), is_for_operators)
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
        request.extensions_mut().insert(self.connection.clone());
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
    // What is no text is no address either.
    let values = headers.get_all("x-forwarded-for").iter().rev().map(|value| value.to_str().unwrap_or_default());
    for entry in values.flat_map(|list| list.rsplit(',')).take(MAX_PROXIES) {
        let Some(address) = address_of(entry.trim()) else { return nearest };
        if !is_ours(address) {
            return address;
        }
        nearest = address;
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
