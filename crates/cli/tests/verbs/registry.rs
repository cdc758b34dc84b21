//! The card registry over HTTP, `/v1/cards`. `registry.md` has the verbs.

use serde_json::{Value, json};

use super::rig::{Home, line_value};

#[test]
fn cards_over_http_are_each_tenants_own() {
    let home = Home::new();
    let server = home.serve();
    let token = home.token();
    let other = line_value(&home.ok(&["tenant", "add", "other"]), "token").to_owned();
    let card = json!({"name": "Mine", "supportedInterfaces": [{"url": "https://h.example"}], "more": 1});
    let put = |token: &str, body: &Value| server.http("PUT", "/v1/cards/mine", Some(token), Some(body));
    assert_eq!(put(&token, &card).0, 201);
    let (status, entry) = put(&token, &card);
    assert_eq!((status, &entry["agentId"], &entry["source"]), (200, &json!("mine"), &json!("stored")));
    assert!(entry["card"].get("more").is_none() && entry["card"].get("signatures").is_none(), "{entry}");
    assert_eq!(put(&other, &json!({"name": "Theirs"})).0, 201);
    assert_eq!(server.http("GET", "/v1/cards/mine", Some(&other), None).1["card"]["name"], "Theirs");
    assert_eq!(server.http("DELETE", "/v1/cards/mine", Some(&other), None).0, 200);
    assert_eq!(server.http("GET", "/v1/cards/mine", Some(&token), None).1["card"]["name"], "Mine");
    let theirs = server.http("GET", "/v1/cards/mine", Some(&other), None);
    let nobodys = server.http("GET", "/v1/cards/none", Some(&other), None);
    assert_eq!((theirs.0, nobodys.0), (404, 404));
    assert_eq!(theirs.1.to_string().replace("mine", "none"), nobodys.1.to_string());

    assert_eq!(server.http("GET", "/v1/cards", None, None).0, 401);
    assert_eq!(server.http("PUT", "/v1/cards/mine", None, Some(&card)).0, 401);
    for wrong in [json!([]), json!({}), json!({"name": 1}), json!({"name": "x".repeat(70_000)})] {
        assert_eq!(put(&token, &wrong).0, 400, "{}", wrong.to_string().chars().take(50).collect::<String>());
    }
    assert_eq!(server.http("PUT", "/v1/cards/a%20b", Some(&token), Some(&card)).0, 400);
    assert_eq!(server.http("POST", "/v1/cards/mine", Some(&token), Some(&card)).0, 405);
}
