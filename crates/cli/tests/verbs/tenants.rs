//! `sb tenant`, with and without a running server.

use serde_json::json;

use super::rig::{Home, failed, line_value};

#[test]
fn tenants_with_a_running_server() {
    let home = Home::new();
    let server = home.serve();
    let added = home.ok(&["tenant", "add", "acme"]);
    assert!(added.starts_with("created tenant acme\n"), "{added}");
    let token = line_value(&added, "token").to_owned();
    assert_eq!(server.status_with(&token), 200);

    let listed = home.ok(&["tenant", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0].find("STATE"), lines[1].find("enabled"), "columns are aligned:\n{listed}");
    let acme = home.json(&["tenant", "list"]).into_iter().find(|tenant| tenant["name"] == "acme").unwrap();
    assert_eq!(acme["disabled"], false);

    assert_eq!(home.ok(&["tenant", "disable", "acme"]), "tenant acme is disabled\n");
    assert_eq!(server.status_with(&token), 401);
    assert!(home.ok(&["tenant", "list"]).contains("disabled"));
    assert_eq!(home.json(&["tenant", "enable", "acme"])[0]["disabled"], false);
    assert_eq!(server.status_with(&token), 200);

    let rotated = home.json(&["tenant", "rotate", "acme", "--expires", "30d", "--name", "new"]);
    assert_eq!(server.status_with(&token), 401);
    assert_eq!(server.status_with(rotated[0]["token"].as_str().unwrap()), 200);
    let tokens = home.json(&["token", "list", "--tenant", "acme"]);
    assert_eq!((tokens[0]["state"].as_str(), tokens[1]["state"].as_str()), (Some("revoked"), Some("live")));
    assert_eq!(tokens[1]["name"], "new");
    let life = tokens[1]["expires_at"].as_i64().unwrap() - tokens[1]["created_at"].as_i64().unwrap();
    assert!((life - 30 * 24 * 3600).abs() <= 1, "{life}");
}

#[test]
fn tenants_without_a_server() {
    let home = Home::new();
    let token = line_value(&home.ok(&["tenant", "add", "acme"]), "token").to_owned();
    assert_eq!(home.json(&["tenant", "list"])[0]["name"], "acme");
    let taken = home.fails(&["tenant", "add", "acme"], 1);
    assert!(taken.contains("there is a tenant `acme` already") && !taken.contains("409"), "nobody spoke HTTP: {taken}");
    home.ok(&["tenant", "disable", "acme"]);
    let server = home.serve();
    assert_eq!(server.status_with(&token), 401);
    server.stop();
    home.ok(&["tenant", "enable", "acme"]);
    let rotated = home.ok(&["tenant", "rotate", "acme"]);
    let server = home.serve();
    assert_eq!(server.status_with(&token), 401);
    assert_eq!(server.status_with(line_value(&rotated, "token")), 200);
    // A server that was killed is no server that runs.
    drop(server);
    assert_eq!(home.json(&["tenant", "list"]).len(), 2);
}

#[test]
fn a_tenant_is_deleted_with_a_running_server() {
    let home = Home::new();
    let server = home.serve();
    let token = line_value(&home.ok(&["tenant", "add", "acme"]), "token").to_owned();
    assert!(home.fails(&["tenant", "delete", "acme"], 2).contains("--yes"), "nobody can be asked");
    assert!(home.fails(&["tenant", "delete", "default", "--yes"], 1).contains("cannot be deleted"));
    assert!(home.fails(&["tenant", "delete", "nobody", "--yes"], 1).contains("no tenant `nobody`"));
    let asks = json!({"tenant": "ask", "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}});
    let (status, answer) = server.http("POST", "/a2a/message:send", Some(&token), Some(&asks));
    assert_eq!(status, 200, "{answer}");
    let refused = home.fails(&["tenant", "delete", "acme", "--yes"], 1);
    assert!(refused.contains("have not ended") && refused.contains("--force"), "{refused}");
    assert_eq!(server.status_with(&token), 200, "nothing was done");

    let deleted = home.json(&["tenant", "delete", "acme", "--yes", "--force"]);
    assert_eq!((&deleted[0]["done"], &deleted[0]["tasks"]), (&json!(true), &json!(1)));
    assert_eq!(server.status_with(&token), 401);
    assert_eq!(home.json(&["tenant", "list"]).len(), 1);
    assert_eq!(home.json(&["audit"])[0]["action"], "delete_tenant");
}

#[test]
fn a_tenant_is_deleted_without_a_server() {
    let home = Home::new();
    let token = line_value(&home.ok(&["tenant", "add", "acme"]), "token").to_owned();
    assert_eq!(home.ok(&["tenant", "delete", "acme", "--yes"]), "deleted tenant acme with 0 tasks\n");
    assert!(home.json(&["tenant", "list"]).is_empty());
    assert_eq!(home.serve().status_with(&token), 401);
}

#[test]
fn only_a_new_tenant_makes_a_journal_on_sqlite() {
    let home = Home::on_sqlite();
    assert!(home.fails(&["tenant", "list"], 2).contains("no journal"), "only `tenant add` makes one");
    assert!(!home.path("data").exists());
    home.ok(&["tenant", "add", "acme"]);
    assert_eq!(home.json(&["tenant", "list"])[0]["name"], "acme");
}

#[test]
fn the_local_command_line_goes_on_after_a_rotation() {
    let home = Home::new();
    let server = home.serve();
    let before = home.token();
    let rotated = home.ok(&["tenant", "rotate", "default"]);
    assert_eq!(home.token(), line_value(&rotated, "token"));
    assert_eq!(server.status_with(&before), 401);
    assert_eq!(home.ok(&["send", "hello"]), "hello\n");
    server.stop();
    let _again = home.serve();
    assert_eq!(home.ok(&["send", "again"]), "again\n");
}

#[test]
fn what_cannot_be_done_is_said() {
    let home = Home::new();
    let server = home.serve();
    for (args, code) in [
        (&["tenant", "add", "default"][..], 1),
        (&["tenant", "add", "a b"], 1),
        (&["tenant", "disable", "nobody"], 1),
        (&["token", "list", "--tenant", "nobody"], 1),
        (&["token", "revoke", "99"], 1),
    ] {
        home.fails(args, code);
    }
    for args in [&["tenant"][..], &["tenant", "add"], &["token", "add", "--expires", "soon"], &["token", "revoke", "x"]]
    {
        assert_eq!(home.run(args).status.code(), Some(2), "{args:?}");
    }
    let wrong = home.command(&["tenant", "list"]).env("SB_ADMIN_TOKEN", "sba_wrong").output().unwrap();
    assert!(failed(&wrong, 4).contains("admin token"));
    let stranger = Home::new();
    let args = ["tenant", "list", "--url", &server.url];
    assert!(stranger.fails(&args, 4).contains("SB_ADMIN_TOKEN"), "no token is known there");
    let mut known = stranger.command(&args);
    known.env("SB_ADMIN_TOKEN", home.admin_token());
    assert!(failed(&known.output().unwrap(), 4).contains("SB_ADMIN_TOKEN was not sent"), "it is for no other origin");
    assert!(known.env("SB_URL", &server.url).output().unwrap().status.success());
    let url = server.url.clone();
    server.stop();
    home.fails(&["tenant", "list", "--url", &url], 3);
}

#[test]
fn every_verb_has_help_with_an_example() {
    let home = Home::new();
    for verb in [
        "tenant add",
        "tenant list",
        "tenant disable",
        "tenant enable",
        "tenant rotate",
        "token add",
        "token list",
        "token revoke",
        "agent list",
        "agent show",
        "agent add",
        "agent remove",
        "agent check",
        "task get",
        "task list",
        "task cancel",
        "task subscribe",
        "audit",
    ] {
        let mut args: Vec<&str> = verb.split(' ').collect();
        args.push("--help");
        let help = home.ok(&args);
        assert!(help.contains("Example") && help.contains(&format!("sb {verb}")), "{help}");
        assert!(help.contains("--output"), "{help}");
    }
}
