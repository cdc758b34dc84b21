//! `sb push`: what became of notifications, dead letters, and the secret of receivers.

use std::{net::TcpListener, process::Stdio, time::Duration};

use serde_json::json;

use super::rig::{Home, eventually};

const CONFIG: &str =
    "[egress]\nallow = [\"127.0.0.0/8\"]\n[push]\nfirst_wait = \"20ms\"\nlongest_wait = \"40ms\"\nattempts = 2\n";

#[test]
fn dead_letters_are_listed_shown_and_sent_again() {
    let home = Home::new();
    home.configure(CONFIG);
    let server = home.serve();
    let token = home.token();
    assert_eq!(home.ok(&["push", "list", "--dead"]), "TASK  ID  STATE  TOLD  DEAD  URL\n");
    // Nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/hook");
    let send = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
        "configuration": {"taskPushNotificationConfig": {"id": "mine", "url": url}}
    });
    let (status, sent) = server.http("POST", "/a2a/agents/echo/message:send", Some(&token), Some(&send));
    assert_eq!(status, 200, "{sent}");
    let task = sent["task"]["id"].as_str().unwrap().to_owned();
    eventually("four dead letters", || {
        home.json(&["push", "list", "--dead"])
            .first()
            .is_some_and(|it| it["deadLetters"].as_array().unwrap().len() == 4)
    });
    let text = home.ok(&["push", "list", "--task", &task]);
    assert!(text.contains("mine") && text.contains(&url) && text.contains("active"), "{text}");
    let shown = home.ok(&["push", "show", &task, "mine"]);
    for name in ["last", &task[..13]] {
        assert_eq!(home.ok(&["push", "show", name, "mine"]), shown);
        assert_eq!(home.ok(&["push", "list", "--task", name]), text);
    }
    assert!(shown.contains("dead letters") && shown.contains("unreachable") && shown.contains("attempts"), "{shown}");
    let json = home.json(&["push", "show", &task, "mine"]).remove(0);
    assert_eq!((&json["deadLetters"][0]["sequence"], &json["deadLetters"][0]["attempts"]), (&1.into(), &2.into()));
    assert_eq!(json["attempts"].as_array().unwrap().len(), 8);

    assert_eq!(home.ok(&["push", "replay", &task, "mine", "--sequence", "2"]), "1 dead letter will be sent again\n");
    let replayed = home.json(&["push", "replay", "--all-dead"]).remove(0);
    assert!(replayed["replayed"].as_u64().unwrap() >= 3, "{replayed}");
    std::thread::sleep(Duration::from_millis(100));

    let missing = home.fails(&["push", "show", &task, "other"], 1);
    assert!(missing.contains("no push notification configuration `other`"), "{missing}");
    home.fails(&["push", "replay", &task, "other"], 1);
    home.fails(&["push", "replay"], 2);
    home.fails(&["push", "replay", "--all-dead", &task, "mine"], 2);
    assert!(home.ok(&["push", "secret"]).starts_with("whsec_"));
}

#[test]
fn a_key_file_that_cannot_be_used_is_said_at_the_start() {
    let home = Home::new();
    let short = home.write("short.key", "too short");
    let failed = home.fails(&["serve", "--listen", "127.0.0.1:0", "--key-file", &short], 2);
    assert!(failed.contains("fewer than 32 bytes") && failed.contains("head -c 32"), "{failed}");
    home.fails(&["serve", "--listen", "127.0.0.1:0", "--key-file", "/nowhere/key"], 2);
}

/// Starts a server with these key files, reads the tenant's signing secret and stops it.
fn secret_with(home: &Home, key: &str, previous: Option<&str>) -> String {
    let mut args = vec!["--key-file", key];
    args.extend(previous.iter().flat_map(|previous| ["--key-file-previous", previous]));
    let server = home.serve_with(&args, &[]);
    let secret = home.ok(&["push", "secret"]);
    server.stop();
    secret
}

#[test]
fn a_key_file_is_replaced_and_a_start_killed_in_the_middle_loses_nothing() {
    let home = Home::new();
    let keys = ["one", "two", "three"].map(|name| home.write(&format!("{name}.key"), format!("{name:-<40}")));
    let [one, two, three] = [0, 1, 2].map(|n| keys[n].as_str());
    let secret = secret_with(&home, one, None);
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!(secret_with(&home, one, Some(two)), secret, "prepared: nothing changes");
    assert_eq!(secret_with(&home, two, Some(one)), secret, "replaced");
    assert_eq!(secret_with(&home, two, None), secret, "the old file is not needed any more");
    let refused = home.fails(&["serve", "--listen", "127.0.0.1:0", "--key-file", one], 2);
    assert!(refused.contains("not the one that wraps"), "{refused}");

    // Killed before, while and after the keys are wrapped anew: they are wrapped by the one file or by the other.
    let args = ["--key-file", three, "--key-file-previous", two];
    for wait in [0, 20, 60, 120, 200, 300] {
        let mut command = home.serving(&[], &args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(secret_with(&home, three, Some(two)), secret, "whatever the kills have left");
    assert_eq!(secret_with(&home, three, None), secret);
}
