//! `sb token`, and how soon the end of a token is felt.

use super::rig::{Home, line_value};

#[test]
fn tokens_are_added_listed_and_revoked() {
    let home = Home::new();
    let server = home.serve();
    let added = home.ok(&["token", "add", "--name", "laptop"]);
    let token = line_value(&added, "token").to_owned();
    assert_eq!(home.ok(&["send", "--token", &token, "hello"]), "hello\n");
    let json = home.json(&["token", "add", "--expires", "12h"]).remove(0);
    assert!(json["token"].as_str().unwrap().starts_with("sb_") && json["expires_at"].is_i64());

    let listed = home.json(&["token", "list"]);
    assert_eq!(listed.len(), 3);
    let laptop = listed.iter().find(|token| token["name"] == "laptop").unwrap();
    let text = home.ok(&["token", "list"]);
    assert!(text.starts_with("ID  NAME") && text.contains("laptop") && !text.contains("sb_"), "{text}");

    let revoked = home.ok(&["token", "revoke", &laptop["id"].to_string()]);
    assert!(revoked.starts_with("revoked token"), "{revoked}");
    assert_eq!(server.status_with(&token), 401);
    home.fails(&["send", "--token", &token, "hello"], 4);
    assert_eq!(home.ok(&["send", "hello"]), "hello\n", "the other tokens live on");
}

#[test]
fn an_expired_token_is_refused_within_three_seconds() {
    let home = Home::new();
    let server = home.serve();
    let token = line_value(&home.ok(&["token", "add", "--expires", "2s"]), "token").to_owned();
    assert_eq!(server.status_with(&token), 200);
    std::thread::sleep(std::time::Duration::from_secs(2));
    server.refuses_soon(&token);
    assert!(home.ok(&["token", "list"]).contains("expired"));
}

#[test]
fn a_token_revoked_on_the_journal_is_refused_within_three_seconds() {
    let home = Home::new();
    let server = home.serve();
    let token = line_value(&home.ok(&["token", "add", "--name", "other"]), "token").to_owned();
    assert_eq!(server.status_with(&token), 200);
    // Without the admin token the command line goes to the journal, beside the server.
    std::fs::remove_file(home.path("data/admin.json")).unwrap();
    let id =
        home.json(&["token", "list"]).into_iter().find(|token| token["name"] == "other").unwrap()["id"].to_string();
    home.ok(&["token", "revoke", &id]);
    server.refuses_soon(&token);
    let tenant = line_value(&home.ok(&["tenant", "add", "acme"]), "token").to_owned();
    assert_eq!(server.status_with(&tenant), 200);
    home.ok(&["tenant", "disable", "acme"]);
    server.refuses_soon(&tenant);
}

#[test]
fn a_token_that_is_used_says_when() {
    let home = Home::new();
    let _server = home.serve();
    assert!(home.json(&["token", "list"])[0]["last_used_at"].is_null());
    home.ok(&["send", "hello"]);
    super::rig::eventually("the use is written down", || home.json(&["token", "list"])[0]["last_used_at"].is_i64());
    assert!(home.json(&["tenant", "list"])[0]["last_used_at"].is_i64());
}

#[test]
fn a_token_can_be_for_less_than_everything() {
    let home = Home::new();
    let server = home.serve();
    let added = home.ok(&["token", "create", "--name", "ci", "--scope", "read", "--scope", "send", "--agent", "echo"]);
    let token = line_value(&added, "token").to_owned();
    assert_eq!(home.ok(&["send", "--token", &token, "hello"]), "hello\n");
    let said = home.fails(&["send", "--token", &token, "--agent", "slow", "1"], 2);
    assert!(said.contains("slow"), "{said}");
    let task = home.json(&["send", "--token", &token, "hello"]).remove(0)["task"]["id"].as_str().unwrap().to_owned();
    let said = home.fails(&["task", "delete", &task, "--token", &token], 4);
    assert!(said.contains("cancel"), "{said}");
    let listed = home.json(&["token", "list"]);
    let ci = listed.iter().find(|token| token["name"] == "ci").unwrap();
    assert_eq!(ci["scopes"], serde_json::json!(["read", "send"]));
    assert_eq!(ci["agents"], serde_json::json!(["echo"]));
    let text = home.ok(&["token", "list"]);
    assert!(text.contains("read,send") && text.contains("read,send,cancel,admin"), "{text}");
    assert!(home.ok(&["audit", "--limit", "1"]).contains("echo"), "the audit log says what it is for");
    for wrong in [&["token", "add", "--scope", "write"][..], &["token", "add", "--agent", "a/b"]] {
        assert!(!home.run(wrong).status.success(), "{wrong:?}");
    }
    assert_eq!(home.json(&["token", "list"]).len(), listed.len(), "what was refused made nothing");
    drop(server);
}

#[test]
fn there_can_be_several_administrators() {
    let home = Home::new();
    let _server = home.serve();
    let added = home.ok(&["token", "add", "--admin", "--name", "ops", "--expires", "30d"]);
    let ops = line_value(&added, "token").to_owned();
    assert!(ops.starts_with("sba_"), "{added}");
    let as_ops = |args: &[&str]| home.command(args).env("SB_ADMIN_TOKEN", &ops).output().unwrap();
    assert!(as_ops(&["tenant", "add", "acme"]).status.success());
    let audit = home.json(&["audit", "--limit", "1"]).remove(0);
    assert_eq!((audit["actor"].as_str(), audit["action"].as_str()), (Some("admin:ops"), Some("create_tenant")));
    assert!(home.ok(&["token", "list", "--admin"]).contains("ops"));
    let id = home.json(&["token", "list", "--admin"])[0]["id"].to_string();
    assert!(home.ok(&["token", "revoke", "--admin", &id]).contains("ops"));
    assert_eq!(as_ops(&["tenant", "list"]).status.code(), Some(4));
    assert!(home.ok(&["token", "list", "--admin"]).contains("revoked"));
    home.fails(&["token", "add", "--admin", "--name", "ops"], 1);
    for wrong in [
        &["token", "add", "--admin"][..],
        &["token", "add", "--admin", "--name", "x", "--scope", "read"],
        &["token", "add", "--admin", "--name", "x", "--tenant", "default"],
    ] {
        home.fails(wrong, 2);
    }
}
