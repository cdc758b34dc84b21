//! The bounds of `switchboard.toml`, as the running binary keeps them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use reqwest::{Method, RequestBuilder, StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};

use crate::harness::{
    Home, Server, TOKEN,
    http::{Api, message, with_json},
};

/// A server and a caller of it.
struct Sb {
    api: Api,
    // Dropped in this order: the database goes when its server is gone.
    _server: Server,
    _home: Home,
}

impl Sb {
    async fn start(config: &str, arguments: &[&str]) -> Self {
        let home = Home::new();
        home.configure(config);
        let server = home.start(home.serving(&[], arguments).env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
        Self { api: server.api(), _server: server, _home: home }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.api.request(Method::GET, path)
    }

    fn send(&self, agent: &str, text: &str) -> RequestBuilder {
        let body = json!({"message": message(text), "configuration": {"returnImmediately": true}});
        with_json(self.api.request(Method::POST, &format!("/a2a/agents/{agent}/message:send")), &body)
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn bounds_come_from_the_file() {
    let sb = Sb::start(
        r#"
        [limits]
        body_bytes = "64KiB"
        stored_bytes = "100KiB"
        failed_auth_per_second = 1
        failed_auth_burst = 2
        [cors]
        origins = ["https://app.example"]
        "#,
        &[],
    )
    .await;
    assert_eq!(status(sb.send("echo", &"x".repeat(65_536))).await, 413);
    assert_eq!(status(sb.send("echo", &"x".repeat(60_000))).await, 200);
    let full = sb.send("echo", "more").send().await.unwrap();
    assert_eq!((full.status().as_u16(), full.headers().contains_key(RETRY_AFTER)), (429, true));
    let listed = sb.get("/a2a/tasks").send().await.unwrap().bytes().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed["totalSize"], 1);

    let wrong = || sb.api.with_token(Some("sb_wrong")).request(Method::GET, "/a2a/tasks");
    let answers = [status(wrong()).await, status(wrong()).await, status(wrong()).await];
    assert_eq!(answers.map(|status| status.as_u16()), [401, 401, 429]);

    let page = sb.get("/a2a/tasks").header("Origin", "https://app.example").send().await.unwrap();
    assert_eq!(page.headers()["access-control-allow-origin"], "https://app.example");
}

#[tokio::test]
async fn a_rate_comes_from_the_file() {
    let sb = Sb::start("[limits]\nrequests_per_second = 1\nrequest_burst = 2\n", &[]).await;
    let answers =
        [status(sb.get("/a2a/tasks")).await, status(sb.get("/a2a/tasks")).await, status(sb.get("/a2a/tasks")).await];
    assert_eq!(answers.map(|status| status.as_u16()), [200, 200, 429]);
}

#[tokio::test]
async fn without_authentication_a_rebound_name_is_refused() {
    let sb = Sb::start("", &["--no-auth"]).await;
    assert_eq!(status(sb.get("/a2a/tasks")).await, 200);
    assert_eq!(status(sb.get("/a2a/tasks").header("Host", "rebound.example")).await, 403);
    assert_eq!(status(sb.get("/a2a/tasks").header("Origin", "https://page.example")).await, 403);
}

#[test]
fn a_key_that_is_no_key_is_refused_with_a_suggestion() {
    let home = Home::new();
    home.configure("[limits]\nbody_byte = 5\n");
    let said = home.fails(&["serve"], 2);
    assert!(said.contains("unknown key `limits.body_byte`") && said.contains("`limits.body_bytes`"), "{said}");
}
