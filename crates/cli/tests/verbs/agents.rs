//! `sb agent`: files that come, break and go, and what the server makes of them.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::Value;
use testkit::certificates::certify;

use super::{
    rig::{Home, eventually, failed, text, worked},
    terminal::Terminal,
};

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
    assert!(added.ends_with("the server has it; call it: sb send --agent upper hello\n"), "{added}");
    assert_eq!(state(&home, "upper").as_deref(), Some("running"), "it was waited for");
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
    home.fails(&["send", "--agent", "upper", "x"], 2);
    home.fails(&["agent", "remove", "upper"], 2);
    assert!(home.fails(&["agent", "remove", "echo"], 1).contains("demo"));
    home.fails(&["agent", "remove", "../upper"], 2);
    home.fails(&["agent", "show", "upper"], 2);
}

#[test]
fn a_mistyped_agent_is_a_mistake_of_the_command_line() {
    let home = Home::new();
    home.add_agent("upper.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    let _server = home.serve();
    for (args, meant) in [
        (["agent", "show", "ehco"], "echo"),
        (["agent", "show", "uper"], "upper"),
        (["agent", "restart", "uper"], "upper"),
        (["agent", "remove", "uper"], "upper"),
    ] {
        let said = home.fails(&args, 2);
        assert!(said.contains(&format!("did you mean `{meant}`?")), "{args:?}: {said}");
    }
    assert!(home.agents().join("upper.toml").exists());
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
    let ids: Vec<Value> = home.json(&["agent", "list"]).into_iter().map(|mut agent| agent["id"].take()).collect();
    assert_eq!(ids, ["index", "upper"], "the one that routes is no demo");
    // Its models are beside its agents.
    let model = "default = \"script/m\"\n[providers.script]\napi = \"scripted\"\nfile = \"replies.json\"\n";
    home.write("elsewhere/models.toml", model);
    home.write("elsewhere/replies.json", "{\"replies\":[{\"text\":\"x\"}]}");
    home.write("elsewhere/agents/mind.toml", "kind = \"llm\"\n");
    assert!(home.ok(&["agent", "check", "mind"]).ends_with(" ok\n"));
}

const MODELS: &str = "default = \"script/m\"\n[providers.script]\napi = \"scripted\"\nfile = \"replies.json\"\n";
const REPLIES: &str = "{\"replies\":[{\"text\":\"Noted.\"}]}";

/// A home with a model that says one thing.
fn thinking() -> Home {
    let home = Home::new();
    home.write(".config/switchboard/models.toml", MODELS);
    home.write(".config/switchboard/replies.json", REPLIES);
    home
}

#[test]
fn a_first_agent_is_made_from_flags() {
    let home = thinking();
    let _server = home.serve();
    let notes = ["agent", "new", "--id", "notes", "--role", "note \"taker\"", "--goal", "keep what was decided"];
    let said = home.ok(&[&notes[..], &["--capability", "/write", "--capability", "agent"]].concat());
    assert!(said.starts_with("made agent notes as ") && said.ends_with("\ntalk to it: sb chat notes\n"), "{said}");
    let file = fs::read_to_string(home.agents().join("notes.toml")).unwrap();
    assert!(file.contains("kind = \"llm\"") && file.contains("capabilities = [\"/write\", \"/agent\"]"), "{file}");
    assert!(!file.contains("model ="), "it follows the server's default");
    eventually("the server loads it", || state(&home, "notes").as_deref() == Some("running"));
    assert_eq!(worked(&home.pipe(&["chat", "notes"], "hello\n")), "Noted.\n");
    let listed = find(&home, "notes").unwrap();
    assert_eq!((listed["kind"].as_str(), listed["name"].as_str()), (Some("llm"), Some("notes")));

    assert!(home.fails(&notes, 2).contains("--replace"), "what is there stays");
    assert_eq!(fs::read_to_string(home.agents().join("notes.toml")).unwrap(), file);
    let made = home.json(&[&notes[..], &["--replace", "--model", "script/other"]].concat()).remove(0);
    assert_eq!((made["ok"].as_bool(), made["talk"].as_str()), (Some(true), Some("sb chat notes")));
    assert!(fs::read_to_string(home.agents().join("notes.toml")).unwrap().contains("model = \"script/other\""));
}

#[test]
fn what_is_missing_or_wrong_is_said_in_the_words_of_the_file() {
    let home = thinking();
    let said = home.fails(&["agent", "new"], 2);
    assert!(said.contains("missing: --id, --role, --goal") && said.contains("--model"), "{said}");
    assert!(home.fails(&["agent", "new", "--yes", "--role", "x", "--id", "x"], 2).contains("missing: --goal"));
    let with = |more: &[&str]| {
        let said = home.fails(&[&["agent", "new", "--role", "r", "--goal", "g"][..], more].concat(), 2);
        assert!(said.contains("no agent was made"), "{said}");
        said
    };
    let said = with(&["--id", "x", "--capability", "serch"]);
    assert!(said.contains("`llm.capabilities[0]`: `/serch` is no command; did you mean `/search`?"), "{said}");
    assert!(with(&["--id", "x", "--model", "a b"]).contains("`llm.model`: must be a name"));
    assert!(with(&["--id", "a/b"]).contains("`a/b` is not an agent id"));
    assert!(with(&["--id", "index"]).contains("built in"));
    assert!(!home.agents().exists(), "nothing was written");

    let output = home.run(&["agent", "new", "--id", "x", "--role", "r", "--goal", "g", "--model", "anthropic/c"]);
    worked(&output);
    let said = text(&output.stderr);
    assert!(
        said.contains("it cannot think yet: model `anthropic/c` needs") && said.contains("ANTHROPIC_API_KEY"),
        "{said}"
    );
    let checked = home.ok(&["agent", "check", "x"]);
    assert!(checked.contains("ok, but it cannot think yet"), "a warning is no failure: {checked}");
}

#[test]
fn a_first_agent_is_made_from_questions() {
    let home = thinking();
    let mut terminal = Terminal::start(&mut home.command(&["agent", "new"]));
    for (question, answer) in [
        ("id, which it is called by: ", ""),
        ("note: an agent needs an id", "not an id"),
        ("note: `not an id` is not an agent id", "notes"),
        ("name, for people [notes]: ", "Notes of ours"),
        ("role: what it is, in a few words [assistant]: ", ""),
        ("goal: what it is there for: ", "keep what was decided"),
        ("model [script/m]: ", "two words"),
        ("note: `llm.model`: must be a name", ""),
        ("commands that it may use, or `none` [all]: ", "wirte"),
        ("did you mean `/write`?", "write"),
    ] {
        terminal.shows(question);
        terminal.types(answer);
    }
    let shown = terminal.shows("write this to ");
    assert!(shown.contains("name = \"Notes of ours\"\nrole = \"assistant\"\n"), "{shown}");
    terminal.types("");
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.ends_with("talk to it: sb chat notes\n"), "{screen}");
    let file = fs::read_to_string(home.agents().join("notes.toml")).unwrap();
    assert!(file.contains("capabilities = [\"/write\"]") && !file.contains("model ="), "{file}");

    // Whoever does not want to replace it names another one, or says no in the end.
    let args = ["agent", "new", "--role", "r", "--goal", "g", "--model", "script/m", "--capability", "none"];
    let mut terminal = Terminal::start(&mut home.command(&args));
    for (question, answer) in [
        ("id, which it is called by: ", "notes"),
        ("replace it? [y/N] ", ""),
        ("choose another id", "other"),
        ("name, for people [other]: ", ""),
        ("write this to ", "n"),
    ] {
        terminal.shows(question);
        terminal.types(answer);
    }
    let (code, screen) = terminal.ends();
    assert!(code == Some(1) && screen.contains("no agent was made"), "{screen}");
    assert!(!home.agents().join("other.toml").exists());
    assert_eq!(fs::read_to_string(home.agents().join("notes.toml")).unwrap(), file);
}

#[test]
fn the_one_that_routes_is_listed_with_the_others() {
    let home = thinking();
    home.add_agent("helper.toml", "kind = \"llm\"\n[llm]\nrole = \"analyst\"\ngoal = \"extract\"\n");
    let seen = |home: &Home, id: &str| {
        let agent = find(home, id).unwrap();
        (agent["kind"].as_str().unwrap().to_owned(), agent["state"].as_str().unwrap().to_owned())
    };
    let is = |kind: &str, state: &str| (kind.to_owned(), state.to_owned());
    assert_eq!((seen(&home, "index"), seen(&home, "helper")), (is("llm", "stopped"), is("llm", "stopped")));
    let server = home.serve();
    assert_eq!((seen(&home, "index"), seen(&home, "helper")), (is("llm", "running"), is("llm", "running")));
    assert_eq!(find(&home, "index").unwrap()["source"], "built-in");
    let shown = home.ok(&["agent", "show", "helper"]);
    assert!(shown.contains("kind:        llm") && shown.contains("analyst"), "{shown}");
    assert!(home.ok(&["agent", "show", "index"]).contains("orchestrator"));

    let own = serde_json::json!({"id": "own", "role": "clerk"});
    assert_eq!(server.http("POST", "/v1/agents", Some(&home.token()), Some(&own)).0, 201);
    assert_eq!(seen(&home, "own"), is("llm", "running"));
    assert_eq!(find(&home, "own").unwrap()["source"], "/v1/agents", "its tenant has defined it");
}

#[test]
fn agent_files_are_managed_after_the_server_has_ended() {
    let home = Home::new();
    home.add_agent("la.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    let file = home.write("project/lb.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    home.serve().stop();
    for how in ["stopped", "killed"] {
        if how == "killed" {
            home.serve().kill9();
        }
        let listed = home.run(&["agent", "list"]);
        assert!(worked(&listed).contains("stopped"), "{how}: {}", text(&listed.stdout));
        assert!(text(&listed.stderr).contains("no server is running here"), "{how}");
        assert_eq!(home.json(&["agent", "show", "la"])[0]["state"], "stopped", "{how}");
        let added = home.run(&["agent", "add", &file, "--replace"]);
        assert!(worked(&added).starts_with("added agent lb"), "{how}");
        assert!(text(&added.stderr).contains("no server is running here; `sb serve` starts one"), "{how}");
        assert_eq!(home.json(&["agent", "add", &file, "--replace"])[0]["served"], false, "{how}");
        let restarted = home.run(&["agent", "restart", "la"]);
        worked(&restarted);
        assert!(text(&restarted.stderr).contains("there is nothing to restart"), "{how}");
    }
    // A server that is named is still missed.
    home.fails(&["agent", "list", "--url", "http://127.0.0.1:9"], 3);
    assert!(home.fails(&["task", "list"], 3).contains("no server runs with this data directory"));
}

#[test]
fn a_running_server_whose_certificate_is_not_trusted_is_not_taken_for_a_stopped_one() {
    let home = Home::new();
    home.add_agent("la.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    certify(&home.path(""), "ca", None);
    certify(&home.path(""), "server", Some("ca"));
    let file = |name: &str| home.path(name).display().to_string();
    let _server = home.serve_with(&["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")], &[]);
    let said = home.fails(&["agent", "list"], 3);
    assert!(said.contains("SSL_CERT_FILE") && !said.contains("no server is running"), "{said}");
    let restarted = home.run(&["agent", "restart", "la"]);
    assert!(!text(&restarted.stderr).contains("nothing to restart"), "{}", text(&restarted.stderr));
    assert!(worked(&restarted).starts_with("restarted agent la"));
}

#[test]
fn a_mistyped_agent_gets_a_hint_wherever_it_is_named() {
    let home = Home::new();
    home.add_agent("greet.toml", "kind = \"command\"\n[command]\nargv = [\"cat\"]\n");
    let _server = home.serve();
    let said = home.fails(&["card", "get", "--agent", "gret"], 2);
    assert!(said.contains("`sb agent list` shows the agents"), "{said}");
    let said = home.fails(&["agent", "logs", "gret"], 1);
    assert!(said.contains("did you mean `greet`?"), "{said}");
}

#[test]
fn what_is_no_agent_file_is_refused_with_the_reason() {
    let home = Home::new();
    let directory = home.path("project");
    fs::create_dir_all(&directory).unwrap();
    let mut command = home.command(&["agent", "add", "."]);
    let said = failed(&command.current_dir(&directory).output().unwrap(), 1);
    assert!(said.contains("is a directory") && !said.contains("UTF-8"), "{said}");
    let file = home.write("project/two.toml", "kind = \"command\"\n[llm]\nrole = \"analyst\"\n");
    let said = home.fails(&["agent", "add", &file], 1);
    assert!(said.contains("the table `[llm]` is for files with `kind = \"llm\"`"), "{said}");
}
