//! Pages in a browser of the same machine, where nobody has to say who they are; and what answers say to caches.

use super::{
    frames::{Client, frame},
    rig::{Rig, ask, get, run},
};
use crate::harness::TOKEN;

/// A request of a page, and whether it may call.
struct Attempt {
    name: &'static str,
    target: &'static str,
    /// Whole lines.
    headers: &'static str,
    status: u16,
}

const ATTEMPTS: [Attempt; 26] = [
    row("a person at the command line", "/a2a/tasks", "Host: localhost\r\n", 200),
    row("a page of this server", "/a2a/tasks", "Host: localhost\r\nSec-Fetch-Site: same-origin\r\n", 200),
    row("an address that somebody typed", "/a2a/tasks", "Host: 127.0.0.1\r\nSec-Fetch-Site: none\r\n", 200),
    row("a page of another site", "/a2a/tasks", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
    row("a page of another port", "/a2a/tasks", "Host: localhost\r\nSec-Fetch-Site: same-site\r\n", 403),
    row(
        "a picture on another page",
        "/a2a/tasks",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
        403,
    ),
    row(
        "a link on another page",
        "/a2a/tasks",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
        403,
    ),
    row("a word that no browser says", "/a2a/tasks", "Host: localhost\r\nSec-Fetch-Site: trusted\r\n", 403),
    row("two words", "/a2a/tasks", "Host: localhost\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", 403),
    row(
        "a page that lies about its site",
        "/a2a/tasks",
        "Host: localhost\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: same-origin\r\n",
        403,
    ),
    row("another site by its origin", "/a2a/tasks", "Host: localhost\r\nOrigin: https://evil.example\r\n", 403),
    row("a page from a file", "/a2a/tasks", "Host: localhost\r\nOrigin: null\r\n", 403),
    row(
        "an origin that begins like ours",
        "/a2a/tasks",
        "Host: localhost\r\nOrigin: http://localhost.evil.example\r\n",
        403,
    ),
    row("a name that was rebound", "/a2a/tasks", "Host: rebound.example\r\n", 403),
    row(
        "a name that was rebound, with our port",
        "/a2a/tasks",
        "Host: rebound.example:8765\r\nSec-Fetch-Site: same-origin\r\n",
        403,
    ),
    row("a name that begins like an address", "/a2a/tasks", "Host: 127.0.0.1.evil.example\r\n", 403),
    row("a name with a user", "/a2a/tasks", "Host: localhost@evil.example\r\n", 403),
    row("an address that means this machine in another way", "/a2a/tasks", "Host: 0x7f.0.0.1\r\n", 403),
    row("the address of everywhere", "/a2a/tasks", "Host: 0.0.0.0\r\n", 403),
    row("two names", "/a2a/tasks", "Host: localhost\r\nHost: evil.example\r\n", 403),
    row("no name", "/a2a/tasks", "", 403),
    row("an empty name", "/a2a/tasks", "Host: \r\n", 403),
    row("another name in the target", "http://evil.example/a2a/tasks", "Host: localhost\r\n", 403),
    row("another name beside the target", "http://localhost/a2a/tasks", "Host: evil.example\r\n", 403),
    row("administration by a page", "/v1/admin/tenants", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
    row("health by a page", "/healthz", "Host: rebound.example\r\n", 403),
];

const fn row(name: &'static str, target: &'static str, headers: &'static str, status: u16) -> Attempt {
    Attempt { name, target, headers, status }
}

#[test]
fn without_authentication_no_page_of_another_server_may_call() {
    let rig = Rig::start(&["--no-auth"], &[]);
    run(
        &rig,
        &ATTEMPTS,
        |attempt| attempt.name,
        |Attempt { target, headers, status, .. }| {
            let bytes = format!("GET {target} HTTP/1.1\r\nConnection: close\r\nA2A-Version: 1.0\r\n{headers}\r\n");
            let heard = ask(rig.connect(), bytes.as_bytes())?;
            if heard.status() == Some(*status) { Ok(()) } else { Err(format!("{:.200}", heard.0)) }
        },
    );
    // In HTTP/2 the name stands elsewhere: GET, http, /healthz, and an authority of another name.
    let mut client = Client::open(&rig, 65_535);
    let mut head = vec![0x82, 0x86, 0x04, 8];
    head.extend(b"/healthz");
    head.extend([0x01, 12]);
    head.extend(b"evil.example");
    assert!(client.write(&frame(1, 5, 1, &head)));
    let answer = std::iter::from_fn(|| client.read()).find(|frame| frame.kind == 1).expect("an answer");
    // 403 by Huffman's code.
    assert!(answer.payload.windows(3).any(|window| window == [0x68, 0x0c, 0xff]), "{:02x?}", answer.payload);
}

#[test]
fn what_is_private_is_kept_by_nobody() {
    let rig = Rig::start(&[], &[]);
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let admin = format!("Authorization: Bearer {}\r\n", rig.home.admin_token());
    let close = "Connection: close\r\nA2A-Version: 1.0\r\n";
    for (path, credential) in [
        ("/a2a/tasks", token.as_str()),
        ("/a2a/tasks/none", &token),
        ("/a2a/nothing/here", &token),
        ("/a2a/tasks", ""),
        ("/a2a/tasks", "X-API-Key: wrong\r\n"),
        ("/v1/requests", &token),
        ("/v1/queue/status", &token),
        ("/v1/agents", &token),
        ("/v1/cards", &token),
        ("/v1/admin/tenants", &admin),
        ("/v1/admin/tenants", &token),
        ("/v1/admin/nothing", &admin),
    ] {
        let heard = ask(rig.connect(), &get(path, &format!("{close}{credential}"))).expect("an answer");
        assert_eq!(heard.header("cache-control"), Some("no-store"), "{path}: {:.200}", heard.0);
        assert_eq!(heard.header("vary"), Some("Authorization, X-API-Key, x-sb-token"), "{path}");
        assert_eq!(heard.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    for path in ["/.well-known/agent-card.json", "/.well-known/jwks.json"] {
        let heard = ask(rig.connect(), &get(path, close)).expect("an answer");
        assert_eq!(heard.header("cache-control"), Some("public, max-age=60"), "{path}");
        assert_eq!(heard.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}
