//! What URLs of tenants may lead to, with sockets, names and an environment that mean no good.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod dns;
mod interim;
mod lookups;
mod names;
mod ports;
mod sending;
mod transport;
mod urls;

use std::{
    net::{IpAddr, Ipv6Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use client::{
    Connector, Error, Limits, Policy,
    egress::{Guard, Request, Resolve, Response},
};
use http::Method;
use testkit::http_server::{HttpServer, raw};
use url::Url;

/// Addresses that answers and URLs may lead to. Nothing here connects to them.
const PUBLIC: &str = "93.184.216.34";
const PUBLIC_V6: &str = "2606:2800:220:1::1";

const KEEP: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

/// What a test of a hang waits for. Nothing should take as long.
const HANG: Duration = Duration::from_secs(20);

fn guard(allow: &[&str], ports: Option<&[u16]>, resolver: Arc<dyn Resolve>) -> Guard {
    let allow = allow.iter().map(|network| network.parse().unwrap()).collect();
    Guard { allow, ports: ports.map(<[u16]>::to_vec), resolver }
}

fn tenant(guard: Guard) -> Connector {
    let limits = Limits { total_timeout: Some(HANG / 2), ..Limits::default() };
    Connector::new(Policy::Tenant(Arc::new(guard)), limits)
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A server on 127.0.0.1 alone that answers every request so.
fn site(answer: &str) -> HttpServer {
    HttpServer::repeating(TcpListener::bind("127.0.0.1:0").unwrap(), raw(answer))
}

/// The same on every address of this machine, of both versions where it has both.
fn site_everywhere(answer: &str) -> HttpServer {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind("0.0.0.0:0"));
    HttpServer::repeating(listener.unwrap(), raw(answer))
}

async fn get(connector: &Connector, url: &Url) -> Result<Response, Error> {
    send(connector, url, false).await
}

async fn send(connector: &Connector, url: &Url, http2: bool) -> Result<Response, Error> {
    let request =
        Request { method: Method::GET, url, token: None, headers: vec![], body: None, streaming: false, http2 };
    tokio::time::timeout(HANG, connector.send(request)).await.expect("a call without end")
}

async fn check(connector: &Connector, url: &Url) -> Result<(), Error> {
    tokio::time::timeout(HANG, connector.check_url(url)).await.expect("a check without end")
}

/// Whether the policy refused, in the one way that it may.
fn is_forbidden<T>(result: &Result<T, Error>) -> bool {
    let Err(error @ Error::Forbidden(_)) = result else { return false };
    assert_eq!(error.to_string(), "this address may not be called");
    true
}
