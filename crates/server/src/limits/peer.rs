//! The address at the other end of a connection, put into each of its requests.

use std::{
    net::IpAddr,
    task::{Context, Poll},
};

use axum::Router;
use http::Request;
use tower::Service;

/// Who sent a request, as far as the socket tells. Behind a proxy it is the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The routes, for requests of one connection.
#[derive(Clone)]
pub(crate) struct Peered {
    router: Router,
    peer: Peer,
}

impl Peered {
    pub(crate) fn new(router: Router, address: IpAddr) -> Self {
        Self { router, peer: Peer(address) }
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
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
    }
}
