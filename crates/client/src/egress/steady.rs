//! Names of remotes that an operator has named. They may lead inside, as most names of a company do; but one that has led outside, where its
//! addresses are somebody else's to choose, does not lead inside later.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use a2a::Network;

use super::{
    guard::{Guard, Refusal, Resolve, is_public, with_port_of_url},
    transport::BoxError,
};

/// Remembers which names have led outside. Shared by all who call them.
#[derive(Debug, Default)]
pub struct Steady {
    guard: Guard,
    outside: Mutex<BTreeSet<String>>,
}

impl Steady {
    /// One that lets names lead to these addresses whatever they did before.
    pub fn new(allow: Vec<Network>) -> Self {
        Self { guard: Guard { allow, ..Guard::default() }, outside: Mutex::default() }
    }

    /// The same with another way to know the addresses of names.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.guard.resolver = resolver;
        self
    }

    fn judge(&self, name: &str, addresses: &[std::net::IpAddr]) -> Result<(), Refusal> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = addresses.iter().map(|address| address.to_canonical());
        let inside = inside.filter(|address| !is_public(*address)).find(|address| !self.guard.allows(*address));
        let any_outside = addresses.iter().any(|address| is_public(address.to_canonical()));
        match inside {
            // Nobody has an address of the inside beside public ones except to be called by mistake.
            Some(address) if any_outside || outside.contains(&name) => Err(Refusal::Address(address)),
            _ => {
                if any_outside {
                    outside.insert(name);
                }
                Ok(())
            }
        }
    }
}

/// A resolver that remembers which names have led outside.
#[derive(Clone)]
pub(super) struct Watched(pub(super) Arc<Steady>);

impl Watched {
    pub(super) async fn resolve(&self, name: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let addresses = self.0.guard.resolver.resolve(name).await?;
        self.0.judge(name, &addresses)?;
        Ok(with_port_of_url(addresses))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_that_has_led_outside_does_not_lead_inside() {
        let steady = Steady::new(Vec::new());
        let judge = |name: &str, texts: &[&str]| steady.judge(name, &addresses(texts));
        assert!(judge("quinn", &["10.0.0.7"]).is_ok(), "a name of the company");
        assert!(judge("quinn", &["10.0.0.8", "fd00::1"]).is_ok());
        assert!(judge("far.example", &["93.184.216.34"]).is_ok());
        assert!(judge("far.example", &["93.184.216.35", "2606:2800::1"]).is_ok(), "it may move");
        for inside in ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:10.0.0.7"] {
            for name in ["far.example", "FAR.example."] {
                assert!(matches!(judge(name, &[inside]), Err(Refusal::Address(_))), "{name} {inside}");
            }
        }
        assert!(judge("far.example", &["93.184.216.34"]).is_ok(), "it comes back");
        assert!(judge("mixed.example", &["93.184.216.34", "10.0.0.7"]).is_err());
    }

    #[test]
    fn what_is_allowed_is_allowed_to_every_name() {
        let steady = Steady::new(vec!["10.0.0.0/8".parse().unwrap()]);
        assert!(steady.judge("far.example", &addresses(&["93.184.216.34"])).is_ok());
        assert!(steady.judge("far.example", &addresses(&["10.0.0.7"])).is_ok());
        assert!(steady.judge("far.example", &addresses(&["127.0.0.1"])).is_err());
    }
}
