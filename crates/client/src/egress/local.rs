//! Servers of this machine whose cards name another URL than the address that they listen on.

use std::{net::SocketAddr, sync::OnceLock};

use url::{Host, Url};

use super::transport::{self, Protocol, Resolver};
use crate::{
    Error, Limits,
    binding::{Binding, Endpoint},
    discovery::same_origin,
};

/// A server of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The address that it listens on.
    pub listen: Url,
    /// The URL that its cards name.
    pub public: Url,
    /// The port for gRPC alone, if there is one.
    pub grpc_port: Option<u16>,
}

/// A local server and the client that calls it over TLS.
#[derive(Debug)]
pub(super) struct Local {
    server: LocalServer,
    // Its certificate is that of the public name, which resolves to the listen address here, or that of the listen address.
    client: OnceLock<transport::Client>,
}

impl Local {
    pub(super) fn new(server: LocalServer) -> Self {
        Self { server, client: OnceLock::new() }
    }

    /// Whether a URL leads to it.
    pub(super) fn is_at(&self, url: &Url) -> bool {
        same_origin(&self.server.listen, url)
    }

    /// The same URL under the name of the certificate, and the client that finds the server by that name. `None` where no
    /// certificate of another name is shown.
    pub(super) fn by_name(&self, url: &Url, limits: Limits) -> Result<Option<(Url, &transport::Client)>, Error> {
        let LocalServer { listen, public, grpc_port } = &self.server;
        let (Some(Host::Domain(name)), Some(ip)) = (public.host(), address(listen)) else { return Ok(None) };
        let is_grpc = listen.host() == url.host() && grpc_port.is_some() && url.port() == *grpc_port;
        if listen.scheme() != "https" || public.scheme() != "https" || !(is_grpc || self.is_at(url)) {
            return Ok(None);
        }
        let mut named = url.clone();
        if named.set_host(Some(name)).is_err() {
            return Ok(None);
        }
        if let Some(client) = self.client.get() {
            return Ok(Some((named, client)));
        }
        let protocol = Protocol { is_secure: true, is_http2: false, is_stranger: false };
        let client = transport::client(protocol, Resolver::Fixed(ip), limits.connect_timeout).map_err(Error::Setup)?;
        Ok(Some((named, self.client.get_or_init(|| client))))
    }

    /// Makes an interface of its card lead to the listen address.
    pub(super) fn localize(&self, endpoint: &mut Endpoint) {
        let LocalServer { listen, public, .. } = &self.server;
        // An address of gRPC has a port of its own and no path.
        let (is_public, base, port) = match endpoint.binding {
            Binding::Grpc => (endpoint.url.host() == public.host(), "", endpoint.url.port()),
            Binding::JsonRpc | Binding::Rest => {
                (same_origin(public, &endpoint.url), public.path().trim_end_matches('/'), listen.port())
            }
        };
        let path = endpoint.url.path().strip_prefix(base).filter(|path| path.is_empty() || path.starts_with('/'));
        let Some(path) = path.filter(|_| is_public) else { return };
        let mut url = listen.clone();
        url.set_path(path);
        url.set_query(endpoint.url.query());
        // Fails only for URLs without a host.
        if url.set_port(port).is_ok() {
            endpoint.url = url;
        }
    }
}

fn address(url: &Url) -> Option<SocketAddr> {
    let ip = match url.host()? {
        Host::Ipv4(ip) => ip.into(),
        Host::Ipv6(ip) => ip.into(),
        Host::Domain(_) => return None,
    };
    Some(SocketAddr::new(ip, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use a2a::Dialect;

    use super::*;
    use crate::parse_url;

    #[test]
    fn interfaces_below_the_public_url_lead_to_the_listen_address() {
        let local = Local::new(LocalServer {
            listen: parse_url("http://127.0.0.1:8765").unwrap(),
            public: parse_url("https://agents.example.com/base").unwrap(),
            grpc_port: None,
        });
        for (binding, given, expected) in [
            (Binding::JsonRpc, "https://agents.example.com/base/a2a/jsonrpc", "http://127.0.0.1:8765/a2a/jsonrpc"),
            (Binding::Rest, "https://agents.example.com/base/a2a?x=1", "http://127.0.0.1:8765/a2a?x=1"),
            (Binding::Grpc, "http://agents.example.com:50051", "http://127.0.0.1:50051/"),
            (Binding::Rest, "https://other.example.com/base/a2a", "https://other.example.com/base/a2a"),
            (Binding::Rest, "https://agents.example.com/elsewhere", "https://agents.example.com/elsewhere"),
            (Binding::Rest, "https://agents.example.com/basement", "https://agents.example.com/basement"),
            (Binding::Rest, "http://agents.example.com/base/a2a", "http://agents.example.com/base/a2a"),
        ] {
            let url = parse_url(given).unwrap();
            let mut endpoint = Endpoint { binding, dialect: Dialect::V1, version: None, url, tenant: String::new() };
            local.localize(&mut endpoint);
            assert_eq!(endpoint.url.as_str(), expected, "{given}");
        }
    }

    #[test]
    fn a_certificate_of_the_public_name_is_asked_for_at_the_listen_address_only() {
        let local = |listen: &str, public: &str| {
            let (listen, public) = (parse_url(listen).unwrap(), parse_url(public).unwrap());
            Local::new(LocalServer { listen, public, grpc_port: Some(50051) })
        };
        let named = |local: &Local, url: &str| {
            let named = local.by_name(&parse_url(url).unwrap(), Limits::default()).unwrap();
            named.map(|(url, _)| url.to_string())
        };
        let tls = local("https://127.0.0.1:8443", "https://agents.example.com");
        let by_name = Some("https://agents.example.com:8443/a2a".to_owned());
        assert_eq!(named(&tls, "https://127.0.0.1:8443/a2a"), by_name);
        assert_eq!(named(&tls, "https://127.0.0.1:9443/a2a"), None);
        let by_name = Some("https://agents.example.com:50051/".to_owned());
        assert_eq!(named(&tls, "https://127.0.0.1:50051"), by_name);
        assert_eq!(named(&tls, "https://127.0.0.2:50051"), None);
        assert_eq!(named(&tls, "https://agents.example.com/a2a"), None, "a named URL leads where it says");
        let behind_proxy = local("http://127.0.0.1:8765", "https://agents.example.com");
        assert_eq!(named(&behind_proxy, "http://127.0.0.1:8765/a2a"), None);
    }
}
