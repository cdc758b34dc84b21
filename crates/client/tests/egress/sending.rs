//! Ways around a check: redirects, and proxies that the environment names.

use std::process::Command;

use crate::egress::{CLOSE, dns::Dns, get, guard, site, tenant, url};

/// Set for a process that this file starts: what it is to call.
const TARGET: &str = "SWITCHBOARD_TEST_TARGET";

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let inside = site(CLOSE);
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://127.0.0.1:{}/secret", inside.port());
        let site = site(&format!(
            "HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        ));
        // Both may be called, so that it is not the address that holds it back.
        let connector = tenant(guard(&["127.0.0.0/8"], None, Dns::with(&[&["127.0.0.1"]]).await));
        for host in ["127.0.0.1", "hook.test"] {
            let answer = get(&connector, &url(&format!("http://{host}:{}/", site.port()))).await.unwrap();
            assert_eq!(answer.status, status);
            assert_eq!(answer.headers["location"], location);
        }
        assert_eq!(site.connections(), 2);
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_of_the_environment_are_not_used() {
    // The environment of a process with threads cannot be changed, so this test runs itself again with another.
    if let Ok(target) = std::env::var(TARGET) {
        let connector = tenant(guard(&["127.0.0.0/8"], None, Dns::with(&[&["127.0.0.1"]]).await));
        for host in ["127.0.0.1", "hook.test"] {
            let answer = get(&connector, &url(&format!("http://{host}:{target}/"))).await.unwrap();
            assert_eq!(answer.status, 200);
        }
        return;
    }
    let proxy = site(CLOSE);
    let target = site(CLOSE);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "egress::sending::proxies_of_the_environment_are_not_used"]);
    command.env(TARGET, target.port().to_string()).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, format!("http://127.0.0.1:{}", proxy.port()));
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((proxy.connections(), target.connections()), (0, 2));
}
