//! The directory of agent files: what comes, changes, breaks and goes.

use crate::rig;

use std::{fs, time::Duration};

use rig::{Rig, text};

fn file(argument: &str) -> String {
    format!("kind = \"command\"\n[command]\nargv = [\"echo\", \"-n\", \"{argument}\"]\n")
}

async fn soon(what: &str, is: impl Fn() -> bool) {
    for _ in 0..200 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

fn has(rig: &Rig, id: &str) -> bool {
    rig.exchange.agents().find(&rig.call.caller, id).is_some()
}

#[tokio::test]
async fn files_come_change_and_go() {
    let rig = Rig::new().await;
    assert!(!has(&rig, "say"));
    let path = rig.write("say.toml", &file("one"));
    soon("the file is loaded without being asked", || has(&rig, "say")).await;
    assert_eq!(text(&rig.say("say", "x").await), "one");

    rig.write("say.toml", &file("three"));
    rig.files.refresh();
    assert_eq!(text(&rig.say("say", "x").await), "three");

    rig.write("say.toml", "kind = \"command\"\n[command]\nagrv = []\n");
    rig.files.refresh();
    assert_eq!(text(&rig.say("say", "x").await), "three", "the last good version");
    let [state] = rig.files.snapshot().try_into().unwrap();
    assert!(state.id == "say" && state.path == path);
    assert!(state.error.unwrap().starts_with("line 3: unknown key `agrv`; did you mean `argv`?"));

    rig.write("say.toml", &file("four!"));
    rig.files.refresh();
    assert_eq!(rig.files.snapshot()[0].error, None);
    assert_eq!(text(&rig.say("say", "x").await), "four!");

    fs::remove_file(path).unwrap();
    soon("the agent is gone with its file", || !has(&rig, "say")).await;
    assert_eq!(rig.files.snapshot(), []);
}

#[tokio::test]
async fn a_file_that_never_was_good_is_no_agent() {
    let rig = Rig::new().await;
    rig.write("bad.toml", "kind = ");
    rig.write("tasks.toml", &file("x"));
    rig.write("notes.txt", "not an agent");
    rig.write(".hidden.toml", "not an agent");
    rig.files.refresh();
    let states = rig.files.snapshot();
    let ids: Vec<&str> = states.iter().map(|state| state.id.as_str()).collect();
    assert_eq!(ids, ["bad", "tasks"]);
    assert!(states.iter().all(|state| state.error.is_some() && !has(&rig, &state.id)));
}

#[tokio::test]
async fn a_file_stands_before_a_built_in_agent() {
    let rig = Rig::new().await;
    assert_eq!(text(&rig.say("echo", "built-in").await), "built-in");
    let path = rig.write("echo.toml", &file("mine"));
    rig.files.refresh();
    assert_eq!(text(&rig.say("echo", "x").await), "mine");
    fs::remove_file(&path).unwrap();
    rig.files.refresh();
    assert_eq!(text(&rig.say("echo", "back").await), "back");

    rig.write("echo.toml", "broken");
    rig.files.refresh();
    assert!(!has(&rig, "echo"), "the built-in agent is not what the file meant");
    fs::remove_file(&path).unwrap();
    rig.files.refresh();
    assert!(has(&rig, "echo"));
}

#[tokio::test]
async fn tenants_are_named_in_the_file() {
    let rig = Rig::new().await;
    rig.write("theirs.toml", &format!("tenants = [\"acme\"]\n{}", file("x")));
    rig.write("ours.toml", &format!("tenants = [\"default\"]\n{}", file("x")));
    rig.files.refresh();
    assert!(!has(&rig, "theirs") && has(&rig, "ours"));
}
