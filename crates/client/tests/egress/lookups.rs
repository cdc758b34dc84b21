//! Concurrent name lookups: the silent name servers of one tenant do not delay another.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use client::egress::{Lookups, Resolve, for_tenant};
use tokio::time::timeout;

use crate::egress::HANG;

/// Knows every name, except that nobody answers for those that begin with `silent`.
#[derive(Debug)]
struct Names;

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match host.starts_with("silent") {
            true => std::future::pending().await,
            false => Ok(vec![IpAddr::from([192, 0, 2, 1])]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silent_name_servers_of_one_tenant_delay_nobody_else() {
    let lookups = Arc::new(Lookups::new(Arc::new(Names)));
    for n in 0..200 {
        let lookups = Arc::clone(&lookups);
        let name = format!("silent{n}.test");
        tokio::spawn(for_tenant(1, async move { timeout(HANG, lookups.resolve(&name)).await }));
    }
    // Callers that stop waiting give nothing back: the system goes on.
    tokio::time::sleep(HANG * 2).await;
    let again = for_tenant(1, lookups.resolve("there.test"));
    assert!(timeout(Duration::from_secs(60), again).await.is_err(), "it has its share and no more");
    let other = timeout(HANG, for_tenant(2, lookups.resolve("there.test"))).await;
    assert_eq!(other.expect("another tenant does not wait").unwrap().len(), 1);
    let none = timeout(HANG, lookups.resolve("there.test")).await;
    assert_eq!(none.expect("nor does a call for no tenant").unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_name_servers_of_calls_for_no_tenant_delay_no_tenant() {
    let lookups = Arc::new(Lookups::new(Arc::new(Names)));
    for n in 0..200 {
        let lookups = Arc::clone(&lookups);
        tokio::spawn(async move { lookups.resolve(&format!("silent{n}.test")).await });
    }
    tokio::task::yield_now().await;
    let tenant = timeout(HANG, for_tenant(2, lookups.resolve("there.test"))).await;
    assert_eq!(tenant.expect("a tenant does not wait").unwrap().len(), 1);
}
