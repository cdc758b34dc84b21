//! Who may call.

use serde_json::json;

use crate::edge::support::{Fixture, envelope, message};

#[tokio::test]
async fn without_auth_everybody_is_the_default_tenant() {
    let fixture = Fixture::with(|options| options.auth = false).await;
    let ask = fixture.bare("POST", "/a2a/jsonrpc").header("A2A-Version", "1.0");
    let sent = ask.json(&envelope("SendMessage", message("hello"))).send().await.json();
    assert!(sent["result"]["task"]["id"].is_string(), "{sent}");
    let names: Vec<String> =
        fixture.exchange.store().tenants().await.unwrap().into_iter().map(|tenant| tenant.name).collect();
    assert_eq!(json!(names), json!(["alice", "bob", "default"]));
}
