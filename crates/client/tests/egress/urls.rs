//! URLs that say where they lead: those that are refused, and those that are not.

use std::sync::Arc;

use client::{Connector, Error, Limits, Policy, egress::Guard};
use url::Url;

use crate::egress::{
    CLOSE, PUBLIC, PUBLIC_V6, check, dns::Dns, get, guard, is_forbidden, site_everywhere, tenant, url,
};

/// This machine, in the ways it can be written.
const LOOPBACK: &[&str] = &[
    "127.0.0.1",
    "127.0.0.0",
    "127.0.0.2",
    "127.1.2.3",
    "127.255.255.254",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "127.1.",
    "2130706433",
    "2130706433.",
    "017700000001",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0.0.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0.0.01",
    "0177.0x0.0.1",
    "00000177.1",
    "127.0.0.0x1",
    "127.0x000001",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "127.0.0.%31",
    "１２７.0.0.1",
    "１２７．０．０．１",
    "127。0。0。1",
    "127｡0｡0｡1",
    "①②⑦.⓪.⓪.①",
    "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
    "1\u{ad}27.0.0.1",
    "127.0.\t0.1",
    "127.0.0.1\n",
    "0",
    "0.0.0.0",
    "00",
    "0x0",
    "0x",
    "0.0",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]",
    "[::FFFF:127.0.0.1]",
    "[::ffff:0.0.0.0]",
];

/// The same by IPv6, which a machine may not have.
const LOOPBACK_V6: &[&str] = &["[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::0.0.0.1]"];

/// Other addresses that are not public: the first and last of each range, and what wraps them.
const SPECIAL: &[&str] = &[
    "0.0.0.1",
    "0.255.255.255",
    "127.255.255.255",
    "10.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "012.0.0.1",
    "0xa.1",
    "167772161",
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.169.254.",
    "169.254.43518",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "０ｘａ９ｆｅａ９ｆｅ",
    "169.254.170.2",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.170",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.0",
    "192.0.2.255",
    "192.88.99.0",
    "192.88.99.255",
    "192.168.0.0",
    "192.168.1.1",
    "192.168.257",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.0",
    "198.51.100.255",
    "203.0.113.0",
    "203.0.113.255",
    "224.0.0.0",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.254",
    "255.255.255.255",
    "4294967295",
    "[::2]",
    "[::127.0.0.1]",
    "[::a9fe:a9fe]",
    "[::93.184.216.34]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:100.64.0.1]",
    "[::ffff:192.168.0.1]",
    "[::ffff:255.255.255.255]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::93.184.216.34]",
    "[64:ff9b::ffff:ffff]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[64:ff9b:1:ffff:ffff:ffff:ffff:ffff]",
    "[100::]",
    "[100::ffff:ffff:ffff:ffff]",
    "[100:0:0:1::]",
    "[2001::]",
    "[2001::7f00:1]",
    "[2001:0:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[2001:2::]",
    "[2001:2:0:ffff:ffff:ffff:ffff:ffff]",
    "[2001:10::]",
    "[2001:1f:ffff::]",
    "[2001:20::]",
    "[2001:2f:ffff::]",
    "[2001:1ff:ffff::]",
    "[2001:db8::]",
    "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[2002::]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2002:5db8:d822::1]",
    "[2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[3fff::]",
    "[3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[4000::]",
    "[5f00::]",
    "[5f00:ffff::]",
    "[fc00::]",
    "[fd00:ec2::254]",
    "[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[fe80::]",
    "[fe80::a9fe:a9fe]",
    "[febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[fec0::]",
    "[feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
    "[ff00::]",
    "[ff02::1]",
    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
];

/// Names of this machine, which nobody is asked for.
const LOCAL_NAMES: &[&str] = &[
    "localhost",
    "LOCALHOST",
    "LocalHost.",
    "localhost.",
    "sub.localhost",
    "a.b.localhost.",
    "localhost%2e",
    "%6c%6f%63alhost",
    "ｌｏｃａｌｈｏｓｔ",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "local\u{ad}host",
    "localhost。",
    "sub。localhost",
    "loc\talhost",
];

/// Whole URLs whose host is not what it seems to be, or is at a port of its own.
const DISGUISED: &[&str] = &[
    r"http://127.0.0.1\@example.org/",
    r"http:\\127.0.0.1\hook",
    "http:127.0.0.1/hook",
    "http:/127.0.0.1/hook",
    "http:////127.0.0.1/hook",
    "  http://127.0.0.1/hook  ",
    "ht\ntp://127.0.0.1/hook",
    "http://127.0.0.1\r\n/hook",
    "http://127.0.0.1?@example.org/",
    "http://127.0.0.1#@example.org/",
    "http://127.0.0.1:80/hook#fragment",
    "HTTPS://127.0.0.1/hook",
    "https://[::1]/hook",
    "http://localhost\\.example.org/",
    "http://localhost#.example.org",
    "http://@127.0.0.1/",
    "http://:@127.0.0.1/",
];

/// Not usable as they are written, wherever they would lead.
const UNUSABLE: &[&str] = &[
    "",
    "hook",
    "//127.0.0.1/hook",
    "http:",
    "http://",
    "http:///",
    "https://:443/",
    "http://?x",
    "http://#x",
    "http://user@example.org/",
    "http://user:pass@example.org/",
    "http://:pass@example.org/",
    "http://example.org@127.0.0.1/",
    "http://example.org:80@127.0.0.1/",
    "http://example.org%2f@127.0.0.1/",
    "http://127.0.0.1%2f@example.org/",
    "http://a@b@127.0.0.1/",
    "http://127.0.0.1%00.example.org/",
    "http://127.0.0.1%0d%0a/",
    "http://exam%20ple.org/",
    "http://exam ple.org/",
    "http://example.org%2f.test/",
    "http://example.org%23.test/",
    "http://example.org%40127.0.0.1/",
    "http://example.org:99999/",
    "http://example.org:-1/",
    "http://example.org:80:80/",
    "http://example.org:8o/",
    "http://256.256.256.256/",
    "http://127.0.0.1.5/",
    "http://1.2.3.4.5/",
    "http://127.0.0.08/",
    "http://4294967296/",
    "http://0x100000000/",
    "http://example.0x7f/",
    "http://127..1/",
    "http://.127.0.0.1/",
    "http://127.0.0.1../",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::1%2525lo]/",
    "http://[127.0.0.1]/",
    "http://[::ffff:127.1]/",
    "http://[v1.fe80::1]/",
    "http://[localhost]/",
    "http://localhost../",
    "http://./",
    "http://../",
    "http://.localhost/",
    "http://a..b.example.org/",
    "http://xn--/",
    "http://exa*mple.org/",
    "http://example.org;127.0.0.1/",
    "http://example.org,127.0.0.1.test/",
    "http://$(id).example.org/",
    "ftp://example.org/",
    "ws://example.org/",
    "wss://example.org/",
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "dict://127.0.0.1:11211/stat",
    "ldap://127.0.0.1/",
    "data:text/plain,x",
    "javascript:alert(1)",
    "unix:/run/docker.sock",
    "http+unix://%2frun%2fdocker.sock/",
    "jar:http://127.0.0.1!/",
    "blob:http://127.0.0.1/x",
    "view-source:http://127.0.0.1/",
    "about:blank",
    "httpx://example.org/",
];

/// What lies beside the ranges, and names.
const GOOD: &[&str] = &[
    "https://93.184.216.34/hook",
    "http://1.1.1.1/",
    "http://1.0.0.0:8080/",
    "https://9.255.255.255:8443/",
    "https://11.0.0.0:443/",
    "http://100.63.255.255:80/",
    "http://100.128.0.0/",
    "http://126.255.255.255/",
    "http://128.0.0.0/",
    "http://169.253.255.255/",
    "http://169.255.0.0/",
    "http://172.15.255.255/",
    "http://172.32.0.0/",
    "http://191.255.255.255/",
    "http://192.0.1.0/",
    "http://192.0.3.0/",
    "http://192.88.98.255/",
    "http://192.88.100.0/",
    "http://192.167.255.255/",
    "http://192.169.0.0/",
    "http://198.17.255.255/",
    "http://198.20.0.0/",
    "http://198.51.99.255/",
    "http://198.51.101.0/",
    "http://203.0.112.255/",
    "http://203.0.114.0/",
    "http://223.255.255.255/",
    "http://1572395042/",
    "http://[2000::1]/",
    "http://[2001:200::]/",
    "http://[2001:db7:ffff::]/",
    "http://[2001:db9::]/",
    "http://[2003::]/",
    "https://[2606:2800:220:1::1]/hook",
    "http://[3ffe:ffff::]/",
    "http://[3fff:1000::]/",
    "http://[::ffff:93.184.216.34]/",
    "https://example.org/hook?token=t#fragment",
    "https://example.org./hook",
    "https://a_b.example.org:8443/",
    "https://bücher.example/",
    r"http://example.org:80\@127.0.0.1:80/",
    "https://localhost.example.org/",
    "https://notlocalhost/",
    "https://127.0.0.1.example.org/",
];

#[tokio::test]
async fn hostile_addresses_are_refused_and_nobody_is_called() {
    let site = site_everywhere(CLOSE);
    let dns = Dns::with(&[&["127.0.0.1"]]).await;
    // The ports are allowed, so that it is the address that is refused.
    let connector = tenant(guard(&[], Some(&[site.port(), 80, 443]), dns.clone()));
    let at_site = |host: &&str| format!("http://{host}:{}/hook", site.port());
    let hosts = [LOOPBACK, LOOPBACK_V6, SPECIAL, LOCAL_NAMES].concat();
    let disguised = DISGUISED.iter().map(|text| (*text).to_owned());
    for text in hosts.iter().map(at_site).chain(disguised) {
        let url = Url::parse(&text).unwrap_or_else(|error| panic!("{text:?} is not hostile, but no URL: {error}"));
        let checked = check(&connector, &url).await;
        assert!(is_forbidden(&checked), "{text:?} ({url}) is checked: {checked:?}");
        let sent = get(&connector, &url).await;
        assert!(is_forbidden(&sent), "{text:?} ({url}) is called: {sent:?}");
    }
    assert_eq!(site.connections(), 0);
    assert_eq!(dns.asked(), 0);
}

#[tokio::test]
async fn what_is_refused_to_tenants_would_have_led_here() {
    let site = site_everywhere(CLOSE);
    let connector = Connector::new(Policy::Operator, Limits::default());
    for host in LOOPBACK {
        let url = url(&format!("http://{host}:{}/", site.port()));
        // Not every system has the rest of its loopback range, or IPv6, or takes the unspecified address for itself.
        if url.host_str() != Some("127.0.0.1") {
            continue;
        }
        get(&connector, &url).await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    }
    assert!(site.connections() >= 30);
}

#[tokio::test]
async fn urls_that_cannot_be_trusted_to_mean_one_thing_are_refused() {
    let dns = Dns::with(&[&[PUBLIC]]).await;
    let connector = tenant(guard(&[], None, dns.clone()));
    for text in UNUSABLE {
        let Ok(url) = Url::parse(text) else { continue };
        let checked = check(&connector, &url).await;
        assert!(matches!(checked, Err(Error::Url { .. })), "{text:?} ({url}) is checked: {checked:?}");
        let sent = get(&connector, &url).await;
        assert!(matches!(sent, Err(Error::Url { .. })), "{text:?} ({url}) is called: {sent:?}");
    }
    assert_eq!(dns.asked(), 0);
}

#[tokio::test]
async fn public_addresses_and_names_pass() {
    let dns = Dns::with(&[&[PUBLIC, PUBLIC_V6]]).await;
    let connector = tenant(guard(&[], None, dns));
    for text in GOOD {
        let checked = check(&connector, &url(text)).await;
        assert!(checked.is_ok(), "{text}: {checked:?}");
    }
}

#[tokio::test]
async fn names_of_this_machine_work_where_it_may_be_called() {
    let site = site_everywhere(CLOSE);
    let resolver = Guard::default().resolver;
    let url = url(&format!("http://localhost:{}/", site.port()));
    // Who allows one of the two loopback addresses means that one, whatever else the system calls by the name.
    for (allow, connections) in [(&["127.0.0.0/8", "::1"][..], 1), (&["127.0.0.0/8"], 2)] {
        let connector = tenant(guard(allow, None, Arc::clone(&resolver)));
        check(&connector, &url).await.unwrap();
        assert_eq!(get(&connector, &url).await.unwrap().status, 200);
        assert_eq!(site.connections(), connections);
    }
    let elsewhere = tenant(guard(&["10.0.0.0/8"], None, resolver));
    assert!(is_forbidden(&check(&elsewhere, &url).await));
    assert_eq!(site.connections(), 2);
}

#[tokio::test]
async fn a_range_that_is_allowed_opens_no_other() {
    let site = site_everywhere(CLOSE);
    let dns = Dns::with(&[&[PUBLIC]]).await;
    let connector = tenant(guard(&["127.0.0.0/8"], None, dns));
    for host in ["127.0.0.1", "2130706433"] {
        let url = url(&format!("http://{host}:{}/", site.port()));
        check(&connector, &url).await.unwrap();
        assert_eq!(get(&connector, &url).await.unwrap().status, 200, "{host}");
    }
    check(&connector, &url(&format!("http://[::ffff:127.0.0.1]:{}/", site.port()))).await.unwrap();
    for host in ["[::1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "0.0.0.0", "10.0.0.1"] {
        let url = url(&format!("http://{host}:{}/", site.port()));
        assert!(is_forbidden(&check(&connector, &url).await), "{host}");
        assert!(is_forbidden(&get(&connector, &url).await), "{host}");
    }
    assert_eq!(site.connections(), 2);
}
