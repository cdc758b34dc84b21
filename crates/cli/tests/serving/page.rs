//! What somebody finds who looks at the origin: a page in a browser, JSON elsewhere, and JSON-RPC for those who post.

use http::Method;
use serde_json::json;

use crate::harness::{
    Home, Server,
    http::{Api, Reply, message, with_json},
    wait_for,
};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn look(server: &Server, method: Method, accept: Option<&str>) -> Reply {
    let api = Api::new(&server.url, None);
    let request = api.bare(method, "/");
    wait_for(api.call(match accept {
        Some(accept) => request.header("Accept", accept),
        None => request,
    }))
}

#[test]
fn a_browser_is_told_what_this_is() {
    let home = Home::new();
    home.add_agent("hidden.toml", "kind = \"command\"\ntenants = [\"acme\"]\n[command]\nargv = [\"true\"]\n");
    let server = home.serve();
    let page = look(&server, Method::GET, Some(BROWSER));
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let card = format!("{}/.well-known/agent-card.json", server.url);
    for told in ["Switchboard", version, &card, "/a2a/agents/<em>id</em>/", "sb send --url"] {
        assert!(text.contains(told), "no {told}: {text}");
    }
    for never in ["<script", "<img", "http-equiv", "echo", "hidden", &home.token()] {
        assert!(!text.contains(never), "{never}: {text}");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("vary"), Some("Accept"));

    let head = look(&server, Method::HEAD, Some(BROWSER));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-type"), page.header("content-type"));
}

#[test]
fn programs_are_told_in_json() {
    let home = Home::new();
    let server = home.serve();
    for accept in [None, Some("*/*"), Some("application/json")] {
        let told = look(&server, Method::GET, accept).ok();
        assert_eq!(told["name"], "Switchboard");
        assert_eq!(told["card"], format!("{}/.well-known/agent-card.json", server.url));
    }
}

#[test]
fn the_rest_of_the_origin_is_as_it_was() {
    let home = Home::new();
    let server = home.serve();
    let api = server.api().with_token(Some(&home.token()));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hello")}});
    let sent = wait_for(api.post("/", &call)).ok();
    assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    let stranger = Api::new(&server.url, None);
    assert_eq!(wait_for(stranger.call(with_json(stranger.bare(Method::POST, "/"), &call))).status, 401);

    let refused = look(&server, Method::DELETE, None);
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, POST, OPTIONS")));
    let options = look(&server, Method::OPTIONS, None);
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, POST, OPTIONS")));

    // Without tokens, pages of other names are kept out, here as everywhere.
    drop(server);
    let open = home.serve_with(&["--no-auth"], &[]);
    let stranger = Api::new(&open.url, None);
    let lured = stranger.bare(Method::GET, "/").header("Host", "evil.example.org").header("Accept", BROWSER);
    let lured = wait_for(stranger.call(lured));
    assert!(lured.status >= 400, "{}", lured.shown());
}
