//! Names whose addresses change, mix, or never come.

use std::{sync::Arc, time::Duration};

use client::{Connector, Error, Limits, Policy};
use testkit::http_server::HttpServer;
use url::Url;

use crate::egress::{
    CLOSE, HANG, KEEP, PUBLIC, PUBLIC_V6, check,
    dns::{Answer, Dns},
    get, guard, is_forbidden, send, site, tenant, url,
};

fn at(site: &HttpServer) -> Url {
    url(&format!("http://hook.test:{}/hook?x=1#fragment", site.port()))
}

#[tokio::test]
async fn a_name_that_turns_to_this_machine_after_its_check_is_not_called() {
    let site = site(CLOSE);
    let dns = Dns::with(&[&[PUBLIC], &["127.0.0.1"]]).await;
    let connector = tenant(guard(&[], Some(&[site.port()]), dns.clone()));
    check(&connector, &at(&site)).await.unwrap();
    let sent = get(&connector, &at(&site)).await;
    assert!(is_forbidden(&sent), "{sent:?}");
    assert_eq!((dns.asked(), site.connections()), (2, 0));
}

#[tokio::test]
async fn a_name_is_refused_over_each_way_to_speak_http() {
    let site = site(CLOSE);
    let dns = Dns::with(&[&["127.0.0.1"]]).await;
    let connector = tenant(guard(&[], Some(&[site.port()]), dns));
    for (scheme, http2) in [("http", false), ("http", true), ("https", false), ("https", true)] {
        let url = url(&format!("{scheme}://hook.test:{}/", site.port()));
        let sent = send(&connector, &url, http2).await;
        assert!(is_forbidden(&sent), "{scheme} {http2}: {sent:?}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_judged() {
    let site = site(CLOSE);
    // Whoever asks a second time is told of an address that is refused.
    let dns = Dns::with(&[&["127.0.0.1"], &["10.0.0.1"]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], None, dns.clone()));
    let answer = get(&connector, &at(&site)).await.unwrap();
    assert_eq!((answer.status.as_u16(), dns.asked(), site.connections()), (200, 1, 1));
    let [request] = &site.received()[..] else { panic!("one request is one request") };
    assert_eq!(request.line, "GET /hook?x=1 HTTP/1.1");
    assert_eq!(request.header("host"), Some(format!("hook.test:{}", site.port())));
}

#[tokio::test]
async fn each_call_is_one_resolution_and_one_connection() {
    // A site that would keep its connections gets none to keep: they would be many.
    for manner in [CLOSE, KEEP] {
        let site = site(manner);
        let dns = Dns::with(&[&["127.0.0.1"]]).await;
        let connector = tenant(guard(&["127.0.0.0/8"], None, dns.clone()));
        for _ in 0..3 {
            assert_eq!(get(&connector, &at(&site)).await.unwrap().bytes().await.unwrap(), "ok");
        }
        assert_eq!((dns.asked(), site.connections(), site.received().len()), (3, 3, 3));
    }
}

#[tokio::test]
async fn a_refusal_is_not_remembered() {
    let site = site(CLOSE);
    let dns = Dns::with(&[&["10.0.0.1"], &["127.0.0.1"], &["10.0.0.1"]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], None, dns.clone()));
    assert!(is_forbidden(&get(&connector, &at(&site)).await));
    assert_eq!(get(&connector, &at(&site)).await.unwrap().status, 200);
    assert!(is_forbidden(&get(&connector, &at(&site)).await));
    assert_eq!((dns.asked(), site.connections()), (3, 1));
}

#[tokio::test]
async fn one_forbidden_address_among_others_is_enough() {
    let site = site(CLOSE);
    for answer in [
        &[PUBLIC, "10.0.0.1"][..],
        &["10.0.0.1", PUBLIC],
        &["127.0.0.1", "10.0.0.1"],
        &["127.0.0.1", PUBLIC, "169.254.169.254"],
        &["127.0.0.1", "::1"],
        &[PUBLIC, PUBLIC_V6, "::ffff:10.0.0.1"],
        &["127.0.0.1", "64:ff9b::7f00:1"],
    ] {
        let dns = Dns::with(&[answer]).await;
        let connector = tenant(guard(&["127.0.0.0/8"], Some(&[site.port()]), dns.clone()));
        let checked = check(&connector, &at(&site)).await;
        assert!(is_forbidden(&checked), "{answer:?} is checked: {checked:?}");
        let sent = get(&connector, &at(&site)).await;
        assert!(is_forbidden(&sent), "{answer:?} is called: {sent:?}");
        assert_eq!(dns.asked(), 2);
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn a_name_without_address_passes_its_check_and_cannot_be_reached() {
    let connector = tenant(guard(&[], None, Dns::with(&[&[]]).await));
    let url = url("http://unknown.test/");
    check(&connector, &url).await.unwrap();
    let sent = get(&connector, &url).await;
    assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
}

#[tokio::test]
async fn a_silent_name_server_costs_no_more_than_the_total_timeout() {
    let dns = Dns::start(vec![Answer::Silence]).await;
    let total = Duration::from_millis(300);
    let limits = Limits { total_timeout: Some(total), connect_timeout: HANG * 2, ..Limits::default() };
    let connector = Connector::new(Policy::Tenant(Arc::new(guard(&[], None, dns.clone()))), limits);
    let url = url("http://silent.test/");
    let sent = get(&connector, &url).await;
    assert!(matches!(sent, Err(Error::Timeout { after, .. }) if after == total), "{sent:?}");
    // Who registers it does not wait for ever either, and may try.
    check(&connector, &url).await.unwrap();
    assert_eq!(dns.asked(), 2);
}

#[tokio::test]
async fn an_operator_can_tell_a_refusal_from_a_closed_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let connector = tenant(guard(&["127.0.0.0/8"], None, Dns::with(&[&["127.0.0.1"], &["10.0.0.1"]]).await));
    let url = url(&format!("http://hook.test:{port}/"));
    let closed = get(&connector, &url).await;
    assert!(matches!(closed, Err(Error::Unreachable { .. })), "{closed:?}");
    let refused = get(&connector, &url).await.unwrap_err();
    assert!(!refused.to_string().contains("10.0.0.1"), "{refused}");
    let source = std::error::Error::source(&refused).unwrap();
    assert_eq!(source.to_string(), "10.0.0.1 is not public and not allowed");
}
