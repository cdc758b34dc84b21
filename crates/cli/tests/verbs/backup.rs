//! `sb backup` and `sb restore`: taken while a server works, and everything that was acknowledged is in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::rig::{Home, Server, eventually, serve, store, token, worked};

/// How many send at once while backups are taken.
const SENDERS: usize = 4;

/// Sends a message and waits for its end; gives the task's id.
fn send(server: &Server, token: &str, id: &str) -> String {
    let message = json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": format!("says {id}")}]}});
    let (status, answer) = server.http("POST", "/a2a/message:send", Some(token), Some(&message));
    assert_eq!(status, 200, "{answer}");
    answer["task"]["id"].as_str().unwrap().to_owned()
}

fn path(home: &Home, name: &str) -> String {
    home.path(name).to_str().unwrap().to_owned()
}

fn count(report: &Value, kind: &str) -> u64 {
    let kinds = report["kinds"].as_array().unwrap();
    kinds.iter().find(|entry| entry["kind"] == kind).unwrap()["count"].as_u64().unwrap()
}

#[test]
fn a_backup_under_load_has_everything_that_was_acknowledged() {
    let home = Home::new();
    let server = serve(&home, &store(&home, "live"), "live");
    let token = token(&home, "live");
    let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
    let stop = AtomicBool::new(false);
    let mut backups = Vec::new();
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (server, token, acknowledged, stop) = (&server, &token, &acknowledged, &stop);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Relaxed) {
                    let task = send(server, token, &format!("m-{sender}-{n}"));
                    acknowledged.lock().unwrap().push(task);
                    n += 1;
                }
            });
        }
        for n in 0..3 {
            thread::sleep(Duration::from_millis(300));
            let before = acknowledged.lock().unwrap().clone();
            let file = path(&home, &format!("backup-{n}"));
            let report = home.json(&["backup", &file, "--store", &store(&home, "live")]).remove(0);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            assert!(count(&report, "tasks") >= before.len() as u64, "{report}");
            backups.push((file, before, report));
        }
        stop.store(true, Relaxed);
    });
    assert!(backups[2].1.len() > backups[0].1.len(), "the server has worked on meanwhile");
    server.stop();

    for (n, (file, before, report)) in backups.into_iter().enumerate() {
        let name = format!("restored-{n}");
        let restored = home.json(&["restore", &file, "--store", &store(&home, &name), "--with-credentials"]).remove(0);
        assert_eq!(restored["sha256"], report["sha256"], "what was backed up is what was restored");
        assert_eq!(restored["stored_sha256"], report["sha256"]);
        assert_eq!(fs::metadata(home.path(&name).join("switchboard.db")).unwrap().permissions().mode() & 0o777, 0o600);
        let server = serve(&home, &store(&home, &name), &name);
        for task in before {
            let (status, found) = server.http("GET", &format!("/a2a/tasks/{task}"), Some(&token), None);
            assert_eq!((status, &found["status"]["state"]), (200, &"TASK_STATE_COMPLETED".into()), "{task}");
        }
        // What ran when the backup was taken is taken up again.
        eventually("all work ends", || {
            let (_, working) =
                server.http("GET", "/a2a/tasks?status=TASK_STATE_WORKING&pageSize=1", Some(&token), None);
            working["totalSize"] == 0
        });
        server.stop();
    }
}

#[test]
fn a_token_of_before_a_restore_without_credentials_is_refused_with_the_way_to_a_new_one() {
    let home = Home::new();
    let server = serve(&home, &store(&home, "live"), "live");
    let (old, file) = (token(&home, "live"), path(&home, "backup"));
    home.json(&["backup", &file, "--store", &store(&home, "live")]);
    server.stop();
    home.ok(&["restore", &file, "--store", &store(&home, "new")]);
    let server = serve(&home, &store(&home, "new"), "new");
    let said = home.fails(&["send", "--url", &server.url, "--token", &old, "hello"], 4);
    assert!(said.contains("`sb tenant rotate NAME` makes a new one"), "{said}");
}

#[test]
fn a_restore_takes_only_what_it_should_where_it_should() {
    let home = Home::new();
    let server = serve(&home, &store(&home, "live"), "live");
    let token = token(&home, "live");
    let task = send(&server, &token, "m-1");
    let (live, file) = (store(&home, "live"), path(&home, "backup"));
    let text = home.ok(&["backup", &file, "--store", &live]);
    assert!(text.lines().next().unwrap().ends_with(&format!("records from {live} to {file}")), "{text}");
    // From anywhere: a name is told as it is found from elsewhere.
    let mut here = home.command(&["export", "here", "--store", &live]);
    let told = worked(&here.current_dir(home.path("")).output().unwrap());
    assert!(told.lines().next().unwrap().ends_with(&format!(" to {}", path(&home, "here"))), "{told}");
    assert!(text.starts_with("backed up ") && text.contains("tasks ") && text.contains("all "), "{text}");
    let said = home.fails(&["backup", &file, "--store", &live], 2);
    assert!(said.contains("exists") && said.contains("hint: "), "{said}");
    let said = home.fails(&["restore", &file, "--store", &live], 1);
    assert!(said.contains("a server is running") && said.contains("stop the server"), "{said}");
    server.stop();
    let said = home.fails(&["restore", &file, "--store", &live], 1);
    assert!(said.contains("not empty"), "{said}");
    home.fails(&["backup", "-", "--store", &live], 2);
    let said = home.fails(&["import", &file, "--store", &store(&home, "new")], 2);
    assert!(said.contains("sb restore"), "{said}");
    let said = home.fails(&["backup", &path(&home, "b"), "--store", &store(&home, "nowhere")], 2);
    assert!(said.contains("there is no journal") && !home.path("nowhere").exists(), "{said}");

    let mut bytes = fs::read(&file).unwrap();
    let page = bytes.len() / 2 / 4096 * 4096;
    bytes[page..page + 4096].fill(7);
    let damaged = home.write("damaged", &bytes);
    let said = home.fails(&["restore", &damaged, "--store", &store(&home, "new")], 1);
    assert!(said.contains("damaged") && said.contains("nothing was written"), "{said}");
    let other = home.write("other", "this is no backup at all\n");
    assert!(home.fails(&["restore", &other, "--store", &store(&home, "new")], 1).contains("not an archive"));
    home.fails(&["restore", "/nowhere/backup", "--store", &store(&home, "new")], 1);
    assert!(!home.path("new").join("switchboard.db").exists());

    home.ok(&["restore", &file, "--store", &store(&home, "new"), "--with-credentials"]);
    let server = serve(&home, &store(&home, "new"), "new");
    assert_eq!(server.http("GET", &format!("/a2a/tasks/{task}"), Some(&token), None).0, 200);
    // An archive is restored as well.
    let archive = path(&home, "archive");
    home.ok(&["export", &archive, "--store", &store(&home, "new")]);
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    home.ok(&["restore", &archive, "--store", &store(&home, "third")]);
    let names: Vec<_> = fs::read_dir(home.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".partial")), "{names:?}");
}
