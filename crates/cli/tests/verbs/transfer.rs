//! `sb export` and `sb import`: from either store into either, byte for byte, and nothing that was tampered with.
//! Also what `--store` says when a database cannot be used.

use std::{
    fs,
    io::Read,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use testkit::postgres::Database;

use super::rig::{Home, Server, failed, serve, store, text, token, worked};

fn send(server: &Server, token: &str, agent: &str, id: &str) -> String {
    let message = json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": "1 2 3"}]},
        "configuration": {"returnImmediately": agent == "slow"}});
    let path = format!("/a2a/agents/{agent}/message:send");
    let (status, answer) = server.http("POST", &path, Some(token), Some(&message));
    assert_eq!(status, 200, "{answer}");
    answer["task"]["id"].as_str().unwrap_or_default().to_owned()
}

/// A server that has worked, and the tasks that it has.
fn work(home: &Home, store: &str, data: &str) -> (String, Vec<String>) {
    let server = serve(home, store, data);
    let token = token(home, data);
    let mut tasks = Vec::new();
    for (n, agent) in ["echo", "stream", "ask", "fail", "message", "slow", "echo"].into_iter().enumerate() {
        tasks.push(send(&server, &token, agent, &format!("m-{n}")));
    }
    tasks.retain(|task| !task.is_empty());
    server.stop();
    (token, tasks)
}

fn exported(home: &Home, store: &str, name: &str) -> Vec<u8> {
    let file = home.path(name);
    let report = home.json(&["export", file.to_str().unwrap(), "--store", store]).remove(0);
    let bytes = fs::read(file).unwrap();
    assert_eq!(report["records"].as_u64().unwrap() as usize, text(&bytes).lines().count() - 2);
    bytes
}

/// All lines but the first, which tells when and where from.
fn records(bytes: &[u8]) -> String {
    text(bytes).split_once('\n').unwrap().1.to_owned()
}

/// The task as callers get it.
fn seen(server: &Server, token: &str, task: &str) -> Value {
    let (status, found) = server.http("GET", &format!("/a2a/tasks/{task}"), Some(token), None);
    assert_eq!(status, 200, "{found}");
    found
}

#[test]
fn a_move_to_postgres_and_back_changes_nothing() {
    let home = Home::new();
    let database = Database::empty();
    let (here, there) = (store(&home, "data"), database.url());
    let (token, tasks) = work(&home, &here, "data");
    let first = exported(&home, &here, "first");
    let file = home.path("first");
    let file = file.to_str().unwrap();
    let report = home.json(&["import", file, "--store", there, "--with-credentials"]).remove(0);
    assert_eq!(report["sha256"], report["stored_sha256"]);
    for kind in report["kinds"].as_array().unwrap() {
        assert_eq!((&kind["count"], &kind["sha256"]), (&kind["stored"]["count"], &kind["stored"]["sha256"]), "{kind}");
    }
    let said = home.fails(&["import", file, "--store", there], 1);
    assert!(said.contains("not empty"), "{said}");
    assert_eq!(records(&exported(&home, there, "second")), records(&first));
    home.ok(&[
        "import",
        home.path("second").to_str().unwrap(),
        "--store",
        &store(&home, "third"),
        "--with-credentials",
    ]);
    assert_eq!(records(&exported(&home, &store(&home, "third"), "third.archive")), records(&first));

    // The moved installation goes on: the same tokens, the same tasks.
    let mut before: Vec<Value> = Vec::new();
    let server = serve(&home, &here, "data");
    for task in &tasks {
        before.push(seen(&server, &token, task));
    }
    server.stop();
    let server = serve(&home, there, "elsewhere");
    let same = tasks.iter().zip(&before).filter(|(task, before)| seen(&server, &token, task) == **before).count();
    // The slow one may have run to its end here and there, each at its own time.
    assert!(same >= tasks.len() - 1, "{same} of {}", tasks.len());
    let said = home.fails(&["import", file, "--store", there], 1);
    assert!(said.contains("a server is running"), "{said}");
    // And it can be exported and backed up while it works.
    let task = send(&server, &token, "echo", "m-new");
    let backup = home.path("backup");
    home.ok(&["backup", backup.to_str().unwrap(), "--store", there]);
    assert!(text(&fs::read(&backup).unwrap()).contains(&task));
    server.stop();
    home.ok(&["restore", backup.to_str().unwrap(), "--store", &store(&home, "fourth"), "--with-credentials"]);
    let server = serve(&home, &store(&home, "fourth"), "fourth");
    assert_eq!(seen(&server, &token, &task)["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn an_archive_that_was_changed_is_refused() {
    let home = Home::new();
    let (here, there) = (store(&home, "data"), store(&home, "new"));
    work(&home, &here, "data");
    let good = exported(&home, &here, "archive");
    let refused = |name: &str, bytes: &[u8], why: &str| {
        let file = home.write(name, bytes);
        let said = home.fails(&["import", &file, "--store", &there], 1);
        assert!(said.contains(why) && said.contains("hint: "), "{name}: {said}");
        assert!(!home.path("new").join("switchboard.db").exists(), "{name}");
    };
    for at in [0, 40, good.len() / 3, good.len() / 2, good.len() - 100, good.len() - 3] {
        let mut bytes = good.clone();
        bytes[at] ^= 2;
        refused("altered", &bytes, "was not taken in");
    }
    refused("cut", &good[..good.len() / 2], "was cut off");
    refused("empty", b"", "not an archive");
    let file = home.write("good", &good);
    let table = home.ok(&["import", &file, "--store", &there]);
    assert!(table.starts_with("imported ") && table.contains("IN STORE"), "{table}");
}

#[test]
fn archives_go_through_pipes() {
    let home = Home::new();
    let here = store(&home, "data");
    work(&home, &here, "data");
    let mut out = home.command(&["export", "-", "--store", &here]);
    let mut out = out.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut command =
        home.command(&["import", "-", "--store", &store(&home, "new"), "--with-credentials", "-o", "json"]);
    let taken: Output = command.stdin(out.stdout.take().unwrap()).output().unwrap();
    let report: Value = serde_json::from_str(&worked(&taken)).unwrap();
    let written = out.wait_with_output().unwrap();
    assert!(written.status.success() && text(&written.stderr).contains("exported "), "the report is not in the way");
    assert_eq!(report["sha256"], report["stored_sha256"]);
    assert!(report["records"].as_u64().unwrap() > 30, "{report}");
}

#[test]
fn an_export_into_a_pipe_that_nobody_reads_lets_go_of_the_journal() {
    let home = Home::new();
    let here = store(&home, "data");
    let server = serve(&home, &here, "data");
    let token = token(&home, "data");
    // More than a pipe and all buffers before it hold.
    for n in 0..4 {
        let message = json!({"message": {"messageId": format!("m-{n}"), "role": "ROLE_USER",
            "parts": [{"text": "x".repeat(200_000)}]}});
        let (status, answer) = server.http("POST", "/a2a/agents/echo/message:send", Some(&token), Some(&message));
        assert_eq!(status, 200, "{answer}");
    }
    server.stop();
    let mut export = home.command(&["export", "-", "--store", &here]);
    let mut export = export.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = export.stdout.take().unwrap();
    let mut begin = [0; 15];
    pipe.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"{\"switchboard\":");
    let journal = home.path("data").join("switchboard.db");
    testkit::temp_store::alter(&journal, "UPDATE tenants SET name = name; PRAGMA wal_checkpoint(TRUNCATE)");
    let log = fs::metadata(home.path("data").join("switchboard.db-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0, "a reader keeps the log from being cut");
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    assert!(export.wait().unwrap().success());
    let direct = exported(&home, &here, "direct");
    assert_eq!(records(&[&begin[..], &rest].concat()), records(&direct));

    let mut nowhere = home.command(&["export", "-", "--store", &here]);
    nowhere.env("TMPDIR", "/nowhere").stdout(Stdio::piped());
    let said = failed(&nowhere.output().unwrap(), 1);
    assert!(said.contains("temporary file in `/nowhere`") && said.contains("TMPDIR"), "{said}");
}

#[test]
fn a_database_that_cannot_be_used_is_explained() {
    let home = Home::new();
    let database = Database::empty();
    let (server, _) = database.url().rsplit_once('/').unwrap();
    let missing = format!("{server}/not_there");
    for args in [["serve", "--listen", "127.0.0.1:0"], ["tenant", "list", "--timeout=20s"], ["export", "-", "-otext"]] {
        let said = home.fails(&[&args[..], &["--store", &missing]].concat(), 1);
        assert!(said.contains("does not exist") && said.contains("hint: create the database: createdb -h "), "{said}");
    }
    let nobody = "postgres://sb:hunter2@127.0.0.1:1/db";
    let said = home.fails(&["tenant", "list", "--store", nobody], 1);
    assert!(said.contains("check that the server runs") && !said.contains("hunter2"), "{said}");
    let said = home.fails(&["tenant", "list", "--store", "postgress://sb:hunter2@127.0.0.1:1/db"], 2);
    assert!(said.contains("postgres://USER@HOST/DATABASE") && !said.contains("hunter2"), "{said}");
    let said = home.fails(&["tenant", "list", "--store", database.url()], 2);
    assert!(said.contains("there is no journal"), "looking makes none: {said}");
    let said = home.fails(&["serve", "--wake", "notify", "--store", &store(&home, "data")], 2);
    assert!(said.contains("notify") && said.contains("hint: "), "{said}");

    let output = home.run(&["doctor", "--store", nobody, "--listen", "127.0.0.1:0"]);
    failed(&output, 1);
    let shown = text(&output.stdout);
    assert!(shown.contains("fail  postgresql") && !shown.contains("hunter2"), "{shown}");
    let output = home.run(&["config", "show", "--store", nobody, "--wake", "nats://u:hunter3@127.0.0.1", "-o", "json"]);
    let shown = worked(&output);
    assert!(!shown.contains("hunter"), "{shown}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["keys"]["store"], json!({"value": "postgres://sb:***@127.0.0.1:1/db", "source": "--store"}));
    assert_eq!(shown["keys"]["wake"]["source"], "--wake");
    assert_eq!(shown["keys"]["store_connections"], json!({"value": 8, "source": "default"}));
}

#[test]
fn administration_and_the_doctor_work_on_postgres() {
    let home = Home::new();
    let database = Database::empty();
    let place = ["--store", database.url()];
    let with = |args: &[&str]| home.ok(&[args, &place[..]].concat());
    // Without a server, on the journal itself.
    let made = with(&["tenant", "add", "acme"]);
    let token = made.lines().find_map(|line| line.strip_prefix("token: ")).unwrap().to_owned();
    assert!(with(&["tenant", "list"]).contains("acme"));
    let server = serve(&home, database.url(), "data");
    assert_eq!(server.status_with(&token), 200);
    // With one, through it: the data directory says where it is.
    with(&["tenant", "disable", "acme"]);
    assert_eq!(server.status_with(&token), 401);
    let listen = server.address();
    // A server for tests may not sync, which the doctor has to say.
    let output = home.run(&["doctor", "--store", database.url(), "--listen", listen, "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {report}")).clone()
    };
    assert_eq!(finding("journal")["status"], "ok");
    assert!(finding("instances")["detail"].as_str().unwrap().starts_with("1 alive"), "{report}");
    let durability = finding("durability");
    let detail = durability["detail"].as_str().unwrap();
    assert!(detail.contains("synchronous_commit on"), "{report}");
    assert_eq!(durability["status"] == "ok", detail.contains("fsync on"), "{report}");
    assert_eq!(output.status.success(), durability["status"] == "ok", "nothing else is wrong: {report}");
    let second = serve(&home, database.url(), "data-2");
    assert_eq!(
        second.http("GET", "/v1/admin/tenants", Some(&home.admin_token()), None).0,
        200,
        "one admin token for all"
    );
    assert_eq!(second.http("GET", "/v1/admin/tenants", Some(&token), None).0, 401);
}
