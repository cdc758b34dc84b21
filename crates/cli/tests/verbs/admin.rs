//! The admin routes over HTTP, and who may call them.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::rig::Home;

#[test]
fn only_the_admin_token_opens_the_admin_routes() {
    let home = Home::new();
    let server = home.serve();
    let admin = home.admin_token();
    assert!(admin.starts_with("sba_") && admin.len() == 47, "{admin}");
    let mode = std::fs::metadata(home.path("data/admin.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    assert_eq!(server.http("GET", "/v1/admin/tenants", Some(&admin), None).0, 200);
    let (status, refusal) = server.http("GET", "/v1/admin/tenants", None, None);
    assert_eq!(status, 401);
    assert!(refusal["error"]["message"].as_str().unwrap().contains("admin token"), "{refusal}");
    let tenant = home.token();
    for wrong in [None, Some("sba_wrong"), Some(""), Some(tenant.as_str())] {
        for path in ["/v1/admin/tenants", "/v1/admin/audit", "/v1/admin/nothing"] {
            let (status, body) = server.http("GET", path, wrong, None);
            assert_eq!((status, &body), (401, &refusal), "{path} {wrong:?}");
        }
    }
    assert_eq!(server.status_with(&admin), 401, "the admin token is no tenant's");
    assert_eq!(server.http("POST", "/v1/admin/tenants", Some("x"), Some(&json!({"name": "a"}))).0, 401);
    // A list has no names.
    let (status, body) = server.http("POST", "/v1/admin/tenants", Some(&admin), Some(&json!(["acme"])));
    assert_eq!(status, 400, "{body}");
    assert_eq!(home.json(&["tenant", "list"]).len(), 1, "a refused call changes nothing");
}

#[test]
fn tenants_over_http() {
    let home = Home::new();
    let server = home.serve();
    let admin = home.admin_token();
    let call = |method: &str, path: &str, body: Option<&Value>| server.http(method, path, Some(&admin), body);

    let (status, created) = call("POST", "/v1/admin/tenants", Some(&json!({"name": "acme"})));
    assert_eq!(status, 201);
    assert_eq!((&created["name"], &created["disabled"]), (&json!("acme"), &json!(false)));
    assert!(created["created_at"].as_i64().unwrap() > 1_700_000_000 && created["last_used_at"].is_null());
    let first = created["token"].as_str().unwrap();
    assert!(first.starts_with("sb_"));
    assert_eq!(server.status_with(first), 200);
    let path = format!("/v1/admin/tenants/{}", created["id"]);

    let (status, listed) = call("GET", "/v1/admin/tenants", None);
    assert_eq!((status, &listed["count"]), (200, &json!(2)));
    assert!(!listed.to_string().contains("sb_"), "a token is shown once: {listed}");
    let (status, one) = call("GET", &path, None);
    assert_eq!((status, &one["name"]), (200, &json!("acme")));

    let (status, disabled) = call("PATCH", &path, Some(&json!({"disabled": true})));
    assert_eq!((status, &disabled["disabled"]), (200, &json!(true)));
    assert_eq!(server.status_with(first), 401, "at once on the server that did it");
    call("PATCH", &path, Some(&json!({"disabled": false})));
    assert_eq!(server.status_with(first), 200);

    let (status, rotated) = call("POST", &format!("{path}/rotate-token"), None);
    assert_eq!(status, 200);
    assert_eq!(server.status_with(first), 401);
    assert_eq!(server.status_with(rotated["token"].as_str().unwrap()), 200);
}

#[test]
fn tokens_over_http() {
    let home = Home::new();
    let server = home.serve();
    let admin = home.admin_token();
    let call = |method: &str, path: &str, body: Option<&Value>| server.http(method, path, Some(&admin), body);
    let tenant = call("POST", "/v1/admin/tenants", Some(&json!({"name": "acme"}))).1;
    let path = format!("/v1/admin/tenants/{}/tokens", tenant["id"]);

    let (status, one) = call("POST", &path, Some(&json!({"name": "ci"})));
    assert_eq!((status, &one["state"], &one["expires_at"]), (201, &json!("live"), &json!(null)));
    let (status, two) = call("POST", &path, Some(&json!({"expires_in_seconds": 1})));
    assert_eq!(status, 201);
    let (one_token, two_token) = (one["token"].as_str().unwrap(), two["token"].as_str().unwrap());
    assert_eq!(server.status_with(one_token), 200);
    server.refuses_soon(two_token);

    let (status, listed) = call("GET", &path, None);
    assert_eq!((status, &listed["count"]), (200, &json!(3)));
    assert_eq!(listed["tokens"][0]["name"], "first");
    assert_eq!(listed["tokens"][2]["state"], "expired");
    assert!(!listed.to_string().contains("sb_"));

    let at = format!("{path}/{}", one["id"]);
    let (status, revoked) = call("DELETE", &at, None);
    assert_eq!((status, &revoked["state"]), (200, &json!("revoked")));
    assert_eq!(server.status_with(one_token), 401, "at once on the server that did it");
    assert_eq!(call("GET", &at, None).1["revoked_at"], revoked["revoked_at"]);
    assert_eq!(call("DELETE", &at, None), (200, revoked), "once more is the same");
    assert_eq!(server.status_with(tenant["token"].as_str().unwrap()), 200, "the others live on");
    let default = format!("/v1/admin/tenants/1/tokens/{}", one["id"]);
    assert_eq!(call("DELETE", &default, None).0, 404, "it is another tenant's");
}

#[test]
fn bad_admin_requests_are_refused_in_the_right_shape() {
    let home = Home::new();
    let server = home.serve();
    let admin = home.admin_token();
    let call = |method: &str, path: &str, body: Option<&Value>| server.http(method, path, Some(&admin), body);
    let tenants = "/v1/admin/tenants";
    for (method, path, body, expected) in [
        ("POST", tenants, Some(json!({"name": "default"})), 409),
        ("POST", tenants, Some(json!({"name": "a b"})), 400),
        ("POST", tenants, Some(json!({"name": ""})), 400),
        ("POST", tenants, Some(json!({"name": 5})), 400),
        ("POST", tenants, Some(json!({"name": "a", "role": "x"})), 400),
        ("POST", tenants, Some(json!([])), 400),
        ("POST", tenants, None, 400),
        ("PATCH", "/v1/admin/tenants/1", Some(json!({})), 400),
        ("PATCH", "/v1/admin/tenants/1", Some(json!({"disabled": "yes"})), 400),
        ("PATCH", "/v1/admin/tenants/99", Some(json!({"disabled": true})), 404),
        ("GET", "/v1/admin/tenants/99", None, 404),
        ("GET", "/v1/admin/tenants/99/tokens", None, 404),
        ("POST", "/v1/admin/tenants/99/tokens", None, 404),
        ("POST", "/v1/admin/tenants/99/rotate-token", None, 404),
        ("POST", "/v1/admin/tenants/1/tokens", Some(json!({"expires_in_seconds": 0})), 400),
        ("POST", "/v1/admin/tenants/1/tokens", Some(json!({"expires_in_seconds": -1})), 400),
        ("POST", "/v1/admin/tenants/1/tokens", Some(json!({"name": "a\u{1b}b"})), 400),
        ("DELETE", "/v1/admin/tenants/1/tokens/99", None, 404),
        ("PUT", "/v1/admin/tenants/1", None, 405),
        ("DELETE", "/v1/admin/tenants/1", None, 400),
        ("DELETE", "/v1/admin/tenants/1?force=yes", None, 400),
        ("DELETE", "/v1/admin/tenants/99", None, 404),
        ("PUT", tenants, Some(json!({})), 405),
        ("GET", "/v1/admin/tenants/acme", None, 404),
        ("GET", "/v1/admin/nothing", None, 404),
        ("GET", "/v1/admin/audit?limit=x", None, 400),
        ("GET", "/v1/admin/audit?limit=0", None, 400),
    ] {
        let (status, answer) = call(method, path, body.as_ref());
        assert_eq!(status, expected, "{method} {path} {body:?}: {answer}");
        assert_eq!(answer["error"]["code"], expected, "{answer}");
        assert!(answer["error"]["message"].is_string() && answer["error"]["details"].is_array(), "{answer}");
    }
    assert_eq!(home.json(&["tenant", "list"]).len(), 1);
    assert_eq!(home.json(&["token", "list"]).len(), 1);
}

#[test]
fn the_audit_list_tells_who_did_what() {
    let home = Home::new();
    // Before the first start: on the journal itself.
    home.ok(&["tenant", "add", "acme"]);
    let server = home.serve();
    let admin = home.admin_token();
    home.ok(&["tenant", "disable", "acme"]);
    home.ok(&["token", "add", "--name", "ci"]);
    let (status, answer) = server.http("GET", "/v1/admin/audit", Some(&admin), None);
    assert_eq!(status, 200);
    let entries = answer["entries"].as_array().unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (entry["actor"].clone(), entry["action"].clone())).collect();
    let expected = [
        ("admin", "create_token"),
        ("admin", "update_tenant"),
        ("system", "create_token"),
        ("system", "create_tenant"),
        ("local", "create_tenant"),
    ];
    assert_eq!(told, expected.map(|(actor, action)| (json!(actor), json!(action))));
    assert_eq!(entries[1]["before"]["disabled"], false);
    assert_eq!(entries[1]["after"]["disabled"], true);
    assert_eq!(entries[1]["target_kind"], "tenant");
    assert!(!answer.to_string().contains("sb_"));

    let page = format!("/v1/admin/audit?limit=2&before_id={}", entries[1]["id"]);
    let older = server.http("GET", &page, Some(&admin), None).1;
    assert_eq!(older["entries"].as_array().unwrap().as_slice(), &entries[2..4]);

    assert_eq!(home.json(&["audit"]).as_slice(), entries.as_slice());
    assert_eq!(home.json(&["audit", "--limit", "1"]).len(), 1);
    let text = home.ok(&["audit"]);
    assert!(text.starts_with("ID  TIME") && text.contains("update_tenant"), "{text}");
}

#[test]
fn an_admin_token_from_outside_takes_the_place_of_the_other() {
    let home = Home::new();
    home.serve().stop();
    let first = home.admin_token();
    let given = "an-admin-token-from-outside";
    let server = home.serve_with(&[], &[("SB_ADMIN_TOKEN", given)]);
    assert_eq!(server.http("GET", "/v1/admin/tenants", Some(given), None).0, 200);
    assert_eq!(server.http("GET", "/v1/admin/tenants", Some(&first), None).0, 401);
    assert!(!home.path("data/admin.json").exists(), "what is given is not written");
    home.ok(&["tenant", "list"]);
    let mut short = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(short.env("SB_ADMIN_TOKEN", "short").output().unwrap().status.code(), Some(2));
}
