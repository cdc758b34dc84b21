//! Which ports may be called where.

use client::egress::Guard;

use crate::egress::{PUBLIC, PUBLIC_V6, check, dns::Dns, get, guard, is_forbidden, tenant, url};

#[tokio::test]
async fn public_addresses_are_called_on_ports_of_the_web_alone() {
    let connector = tenant(Guard::default());
    for port in [1, 21, 22, 23, 25, 53, 81, 110, 111, 143, 389, 445, 465, 587, 993, 1023, 1024, 2375, 2379, 3000] {
        assert_refused(&connector, port).await;
    }
    for port in [3306, 4222, 5432, 5672, 6379, 6443, 8000, 8081, 8444, 9000, 9200, 10250, 11211, 27017, 65535] {
        assert_refused(&connector, port).await;
    }
}

async fn assert_refused(connector: &client::Connector, port: u16) {
    for text in [
        format!("http://{PUBLIC}:{port}/"),
        format!("https://[{PUBLIC_V6}]:{port}/"),
        format!("https://example.org:{port}/"),
    ] {
        let url = url(&text);
        assert!(is_forbidden(&check(connector, &url).await), "{url}");
        assert!(is_forbidden(&get(connector, &url).await), "{url}");
    }
}

#[tokio::test]
async fn allowed_addresses_are_called_on_free_ports_as_well() {
    let dns = Dns::with(&[&[PUBLIC]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], None, dns));
    for (authority, passes) in [
        ("127.0.0.1", true),
        ("127.0.0.1:443", true),
        ("127.0.0.1:1024", true),
        ("127.0.0.1:6379", true),
        ("127.0.0.1:1023", false),
        ("127.0.0.1:22", false),
        ("93.184.216.34:1024", false),
        ("93.184.216.34:6379", false),
        ("93.184.216.34:8443", true),
        ("10.0.0.1:6379", false),
        ("10.0.0.1:443", false),
        ("public.test:443", true),
        ("public.test:6379", false),
    ] {
        let checked = check(&connector, &url(&format!("http://{authority}/"))).await;
        assert!(if passes { checked.is_ok() } else { is_forbidden(&checked) }, "{authority}: {checked:?}");
    }
}

#[tokio::test]
async fn a_public_name_is_not_called_on_a_port_of_allowed_addresses() {
    let dns = Dns::with(&[&[PUBLIC]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], None, dns.clone()));
    let sent = get(&connector, &url("http://public.test:6379/")).await;
    assert!(is_forbidden(&sent), "{sent:?}");
    assert_eq!(dns.asked(), 1);
}

#[tokio::test]
async fn ports_that_are_given_are_the_only_ones_everywhere() {
    let dns = Dns::with(&[&[PUBLIC]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], Some(&[443, 9000]), dns));
    for (text, passes) in [
        ("https://93.184.216.34/", true),
        ("http://93.184.216.34:9000/", true),
        ("http://127.0.0.1:9000/", true),
        ("https://public.test/", true),
        ("http://93.184.216.34/", false),
        ("http://127.0.0.1:8080/", false),
        ("http://127.0.0.1:9001/", false),
        ("http://public.test/", false),
    ] {
        let checked = check(&connector, &url(text)).await;
        assert!(if passes { checked.is_ok() } else { is_forbidden(&checked) }, "{text}: {checked:?}");
    }
}

#[tokio::test]
async fn a_name_without_address_passes_on_ports_that_some_address_could_have() {
    let unknown = || Dns::with(&[&[]]);
    let strict = tenant(guard(&[], None, unknown().await));
    let with_own = tenant(guard(&["10.0.0.0/8"], None, unknown().await));
    for (port, strictly, with_range) in
        [(443, true, true), (8080, true, true), (9000, false, true), (22, false, false), (1023, false, false)]
    {
        let url = url(&format!("https://unknown.test:{port}/"));
        assert_eq!(check(&strict, &url).await.is_ok(), strictly, "{port}");
        assert_eq!(check(&with_own, &url).await.is_ok(), with_range, "{port}");
    }
}
