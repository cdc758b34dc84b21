//! Where URLs that tenants give may lead: which URLs, addresses and ports, and how their names are resolved.
//!
//! A name is resolved once for each connection, all that it resolves to is judged, and the connection goes to one of the
//! addresses that were judged. There is no second resolution between, which could give another answer.

use std::{
    error::Error as StdError,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use a2a::Network;
use async_trait::async_trait;
use url::{Host, Url};

use super::{Lookups, shown, transport::BoxError};
use crate::Error;

/// Ports that may be called at any address that may be called at all: where web servers listen.
const WEB_PORTS: [u16; 4] = [80, 443, 8080, 8443];
/// Below it are the ports of a system's own services.
const FIRST_FREE_PORT: u16 = 1024;
/// The addresses of every machine to itself.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// What tenants may call. By default what the whole internet can call anyway, on the ports of the web.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Addresses that may be called although they are private. They may also be called on every port from 1024 up.
    pub allow: Vec<Network>,
    /// The only ports that may be called, at whatever address.
    pub ports: Option<Vec<u16>>,
    /// Who knows the addresses of names.
    pub resolver: Arc<dyn Resolve>,
}

/// Knows the addresses of names.
#[async_trait]
pub trait Resolve: fmt::Debug + Send + Sync {
    /// All addresses of a host. It is asked again for every connection, and what it says is judged by others.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Why a URL may not be called. It tells what is there, and is therefore not for tenants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not an address of the internet, and not allowed.
    #[error("{0} is not public and not allowed")]
    Address(IpAddr),
    /// The port may not be called there, or not at all.
    #[error("the port may not be called there")]
    Port,
    /// A name of this machine.
    #[error("`{0}` is this machine")]
    Local(String),
}

/// Which addresses a port may be called at. Whoever resolves a name does not learn the port, and needs no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// At every address that may be called.
    Anywhere,
    /// Only at those that the operator allows by name.
    Allowed,
}

/// A resolver that gives only addresses that were judged.
#[derive(Clone)]
pub(super) struct Checked {
    guard: Arc<Guard>,
    reach: Reach,
}

/// The resolver of the system.
#[derive(Debug)]
struct System;

impl Default for Guard {
    fn default() -> Self {
        Self { allow: Vec::new(), ports: None, resolver: Arc::new(Lookups::new(Arc::new(System))) }
    }
}

impl Guard {
    /// Judges all of a URL that can be judged without asking for a name.
    pub(super) fn check(&self, url: &Url) -> Result<Reach, Error> {
        let refuse = |reason: &str| Err(Error::Url { url: shown(url), reason: reason.to_owned() });
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("it may not hold a user name or password");
        }
        let reach = url.port_or_known_default().and_then(|port| self.reach(port));
        let reach = reach.ok_or(Error::Forbidden(Refusal::Port))?;
        // The type tells names from addresses in all the ways that addresses are written: `0x7f.1` is one.
        let judged = match url.host() {
            None => return refuse("it has no host"),
            Some(Host::Domain(name)) if !is_name(name) => return refuse("its host is not a name"),
            Some(Host::Domain(name)) => self.judge_name(name),
            Some(Host::Ipv4(address)) => self.judge(&[address.into()], reach),
            Some(Host::Ipv6(address)) => self.judge(&[address.into()], reach),
        };
        judged.map(|()| reach).map_err(Error::Forbidden)
    }

    /// The addresses of a name, of which there is at least one. Nobody has judged them.
    pub(super) async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = match is_local(name) {
            // Everybody knows them. Who allows one of the two means it by `localhost`.
            true => LOOPBACK.into_iter().filter(|address| self.allows(*address)).collect(),
            false => self.resolver.resolve(name).await?,
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }

    /// Whether all these addresses may be called. One that may not spoils the others: nobody has it beside public ones
    /// except to be called by mistake.
    pub(super) fn judge(&self, addresses: &[IpAddr], reach: Reach) -> Result<(), Refusal> {
        for address in addresses {
            let address = address.to_canonical();
            if self.allows(address) {
                continue;
            }
            if !is_public(address) {
                return Err(Refusal::Address(address));
            }
            if reach == Reach::Allowed {
                return Err(Refusal::Port);
            }
        }
        Ok(())
    }

    /// Names of this machine are not left to a resolver, which may know them or send them out.
    fn judge_name(&self, name: &str) -> Result<(), Refusal> {
        let is_refused = is_local(name) && !LOOPBACK.into_iter().any(|address| self.allows(address));
        if is_refused { Err(Refusal::Local(name.to_owned())) } else { Ok(()) }
    }

    pub(super) fn allows(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(address))
    }

    /// Where a port may be called. `None` when nowhere.
    fn reach(&self, port: u16) -> Option<Reach> {
        match &self.ports {
            Some(ports) => ports.contains(&port).then_some(Reach::Anywhere),
            None if WEB_PORTS.contains(&port) => Some(Reach::Anywhere),
            None => (port >= FIRST_FREE_PORT && !self.allow.is_empty()).then_some(Reach::Allowed),
        }
    }
}

impl Checked {
    pub(super) fn new(guard: &Arc<Guard>, reach: Reach) -> Self {
        Self { guard: Arc::clone(guard), reach }
    }

    pub(super) async fn resolve(&self, name: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let addresses = self.guard.look_up(name).await?;
        self.guard.judge(&addresses, self.reach)?;
        Ok(with_port_of_url(addresses))
    }
}

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Addresses to connect to. Port 0 stands for the one of the URL.
pub(super) fn with_port_of_url(addresses: Vec<IpAddr>) -> Vec<SocketAddr> {
    addresses.into_iter().map(|address| SocketAddr::new(address.to_canonical(), 0)).collect()
}

/// Whether a name is one of this machine.
fn is_local(name: &str) -> bool {
    let bare = name.trim_end_matches('.');
    bare == "localhost" || bare.ends_with(".localhost")
}

/// The refusal that made a call fail, if one did.
pub(super) fn refusal_in(error: &(dyn StdError + 'static)) -> Option<Refusal> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return Some(refusal.clone());
        }
        next = error.source();
    }
    None
}

/// Whether this is a host name as DNS has them, with underscores, which some use. What URLs allow beyond that, and all
/// that is not ASCII after IDNA, is of use only to those who hope that two programs read it differently.
fn is_name(host: &str) -> bool {
    let bare = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        let fits = (1..=63).contains(&label.len());
        fits && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    bare.len() <= 253 && bare.split('.').all(is_label)
}

/// Whether an address is one of the internet's, by IANA's registries of special-purpose addresses. The address is
/// canonical: an IPv4 address that is mapped into IPv6 was unmapped.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => match address.octets() {
            // This network, private, loopback, link-local (where clouds keep their metadata), carriers' NAT.
            [0 | 10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] | [169, 254, ..] | [100, 64..=127, ..] => false,
            // Protocol assignments and relays of 6to4.
            [192, 0, 0, _] | [192, 88, 99, _] => false,
            // Documentation and benchmarks.
            [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..] => false,
            // Multicast, reserved, broadcast.
            [224..=255, ..] => false,
            _ => true,
        },
        IpAddr::V6(address) => match address.segments() {
            // Protocol assignments: Teredo, benchmarks, ORCHID and others, of which none has web servers.
            [0x2001, 0..=0x1ff, ..] => false,
            // 6to4, which has any IPv4 address in it.
            [0x2002, ..] => false,
            // Documentation.
            [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
            // Global unicast is the only block that is given out. Outside are loopback, unique local, link-local,
            // site-local, multicast, discard, segment routing, and IPv4 in the dress of IPv6: compatible and NAT64.
            [0x2000..=0x3fff, ..] => true,
            _ => false,
        },
    }
}
