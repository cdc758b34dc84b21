//! `sb agent`: files that come, break and go, and what the server makes of them.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::Value;

use super::rig::{Home, eventually, failed, text, worked};

const UPPER: &str = "name = \"Upper\"\nkind = \"command\"\n\n[command]\nargv = [\"sh\", \"upper.sh\"]\n";
const BROKEN: &str = "name = \"Upper\"\nkind = \"command\"\n\n[command]\nargvv = [\"sh\"]\n";

/// A directory of the person's own, with an agent and its script.
fn project(home: &Home) -> PathBuf {
    let directory = home.path("project");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("upper.sh"), "cat >/dev/null; echo LOUD\n").unwrap();
    fs::write(directory.join("upper.toml"), UPPER).unwrap();
    fs::write(directory.join("broken.toml"), BROKEN).unwrap();
    directory
}

fn find(home: &Home, id: &str) -> Option<Value> {
    home.json(&["agent", "list"]).into_iter().find(|agent| agent["id"] == id)
}

fn state(home: &Home, id: &str) -> Option<String> {
    Some(find(home, id)?["state"].as_str()?.to_owned())
}

#[test]
fn an_agent_is_added_breaks_and_is_removed() {
    let home = Home::new();
    let _server = home.serve();
    let project = project(&home);
    let file = project.join("upper.toml");
    let added = home.ok(&["agent", "add", file.to_str().unwrap()]);
    assert!(added.starts_with("added agent upper"), "{added}");
    eventually("the server loads it", || state(&home, "upper").as_deref() == Some("running"));
    // It runs where it was, although only its file was copied.
    assert_eq!(home.ok(&["send", "--agent", "upper", "x"]), "LOUD\n");
    let shown = home.json(&["agent", "show", "upper"]).remove(0);
    assert_eq!((shown["kind"].as_str(), shown["card"]["name"].as_str()), (Some("command"), Some("Upper")));
    let text = home.ok(&["agent", "show", "upper"]);
    assert!(text.contains("state:       running") && text.contains("/a2a/agents/upper/jsonrpc"), "{text}");

    fs::write(home.agents().join("upper.toml"), BROKEN).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let broken = find(&home, "upper").unwrap();
    assert_eq!(broken["state"], "stale", "the last good version stays");
    assert!(broken["error"].as_str().unwrap().contains("did you mean `argv`?"), "{broken}");
    assert!(home.ok(&["agent", "list"]).contains("stale: line"));
    assert_eq!(home.ok(&["send", "--agent", "upper", "x"]), "LOUD\n");

    assert_eq!(home.ok(&["agent", "remove", "upper"]), "removed agent upper\n");
    eventually("the server unloads it", || find(&home, "upper").is_none());
    home.fails(&["send", "--agent", "upper", "x"], 1);
    home.fails(&["agent", "remove", "upper"], 1);
    assert!(home.fails(&["agent", "remove", "echo"], 1).contains("demo"));
    home.fails(&["agent", "remove", "../upper"], 2);
    home.fails(&["agent", "show", "upper"], 1);
}

#[test]
fn a_broken_file_is_not_added() {
    let home = Home::new();
    let project = project(&home);
    let path = |name: &str| project.join(name).to_str().unwrap().to_owned();
    let said = home.fails(&["agent", "add", &path("broken.toml")], 1);
    assert!(said.contains("line 5") && said.contains("did you mean `argv`?"), "{said}");
    home.fails(&["agent", "add", &path("nowhere.toml")], 1);
    home.fails(&["agent", "add", &path("upper.toml"), "--id", "a/b"], 2);
    assert!(!home.agents().exists(), "nothing was written");

    home.ok(&["agent", "add", &path("upper.toml")]);
    assert!(home.fails(&["agent", "add", &path("upper.toml")], 1).contains("--replace"));
    home.fails(&["agent", "add", &path("broken.toml"), "--id", "upper", "--replace"], 1);
    let kept = fs::read_to_string(home.agents().join("upper.toml")).unwrap();
    assert!(kept.contains("upper.sh") && kept.starts_with("directory = "), "{kept}");
    let added = home.json(&["agent", "add", &path("upper.toml"), "--id", "second"]).remove(0);
    assert_eq!((added["id"].as_str(), added["ok"].as_bool()), (Some("second"), Some(true)));
    home.ok(&["agent", "add", &path("upper.toml"), "--replace"]);
    let names: Vec<_> = fs::read_dir(home.agents()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn files_are_checked() {
    let home = Home::new();
    let project = project(&home);
    assert_eq!(home.ok(&["agent", "check"]), "ID  FILE  RESULT\n");
    let upper = project.join("upper.toml");
    let broken = project.join("broken.toml");
    assert!(home.ok(&["agent", "check", upper.to_str().unwrap()]).ends_with(" ok\n"));
    let output = home.run(&["agent", "check", "-o", "json", upper.to_str().unwrap(), broken.to_str().unwrap()]);
    assert!(failed(&output, 1).contains("an agent file is broken"));
    let lines: Vec<Value> =
        output.stdout.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!((lines[0]["ok"].as_bool(), lines[1]["ok"].as_bool()), (Some(true), Some(false)));

    fs::create_dir_all(home.agents()).unwrap();
    fs::write(home.agents().join("good.toml"), UPPER.replace("\"sh\"", "\"no-such-program\"")).unwrap();
    assert!(home.ok(&["agent", "check", "good"]).contains("not in PATH"), "a warning is no failure");
    fs::write(home.agents().join("bad.toml"), BROKEN).unwrap();
    let output = home.run(&["agent", "check"]);
    failed(&output, 1);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("good") && table.contains("broken: line 5"), "{table}");
}

#[test]
fn an_older_form_is_shown_the_new_one_wherever_files_are_read() {
    const OLD: &str = "kind = \"command\"\n[command]\nargv = [\"sh\", \"upper.sh\"]\ntimeout = \"60s\"\n";
    const NEW_FORM: &str = "keys that now stand at the top of the file, above all tables: `timeout = \"60s\"`";
    let home = Home::new();
    let project = project(&home);
    fs::write(project.join("old.toml"), OLD).unwrap();
    let output = home.run(&["agent", "add", project.join("old.toml").to_str().unwrap()]);
    assert!(worked(&output).starts_with("added agent old") && text(&output.stderr).contains(NEW_FORM));
    for args in [&["agent", "check"][..], &["agent", "show", "old"], &["config", "check"]] {
        let shown = home.ok(args);
        assert!(shown.contains(NEW_FORM), "{args:?}: {shown}");
    }
    let listed = home.run(&["agent", "list"]);
    assert!(text(&listed.stderr).contains(NEW_FORM), "{}", text(&listed.stderr));
    let said = find(&home, "old").unwrap()["warnings"][0].as_str().unwrap().to_owned();
    assert!(said.contains(NEW_FORM), "{said}");
    assert!(find(&home, "echo").unwrap()["warnings"].as_array().unwrap().is_empty());

    let log = home.path("log");
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let server = command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let _server = Killed(server);
    let warned =
        |time: &str| fs::read_to_string(&log).unwrap().contains(&format!("above all tables: `timeout = \\\"{time}"));
    eventually("the start warns", || warned("60s"));
    fs::write(home.agents().join("old.toml"), OLD.replace("60s", "61s")).unwrap();
    eventually("the reload warns", || warned("61s"));
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn agents_are_listed_without_a_server_and_of_another_one() {
    let home = Home::new();
    let project = project(&home);
    home.ok(&["agent", "add", project.join("upper.toml").to_str().unwrap()]);
    fs::write(home.agents().join("bad.toml"), BROKEN).unwrap();
    assert_eq!(state(&home, "upper").as_deref(), Some("stopped"));
    assert_eq!(state(&home, "bad").as_deref(), Some("broken"));
    assert_eq!(state(&home, "echo").as_deref(), Some("stopped"));
    assert!(home.ok(&["agent", "show", "upper"]).contains("state:  stopped"));

    let server = home.serve();
    assert_eq!(state(&home, "bad").as_deref(), Some("broken"), "it never was good");
    let other = Home::new();
    let token = home.token();
    let listed = other.json(&["agent", "list", "--url", &server.url, "--token", &token]);
    assert!(listed.iter().any(|agent| agent["id"] == "upper" && agent["source"].is_null()), "{listed:?}");
    let shown = other.ok(&["agent", "show", "upper", "--url", &server.url, "--token", &token]);
    assert!(shown.contains("name:        Upper"), "{shown}");
    other.fails(&["agent", "list", "--url", &server.url, "--token", "sb_wrong"], 4);
    let url = server.url.clone();
    drop(server);
    other.fails(&["agent", "list", "--url", &url, "--token", &token], 3);
}

#[test]
fn agents_of_another_configuration_are_found() {
    let home = Home::new();
    let project = project(&home);
    let config = home.path("elsewhere/sb.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "demo_agents = false\n").unwrap();
    let environment = [("SB_CONFIG", config.to_str().unwrap())];
    let _server = home.serve_with(&[], &environment);
    // The server has left word of where it looks.
    home.ok(&["agent", "add", project.join("upper.toml").to_str().unwrap()]);
    assert!(home.path("elsewhere/agents/upper.toml").is_file());
    eventually("the server loads it", || state(&home, "upper").as_deref() == Some("running"));
    assert_eq!(home.json(&["agent", "list"]).len(), 1);
}
