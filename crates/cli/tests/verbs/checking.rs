//! `sb config`, `sb doctor`, `sb completion` and `sb man`.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use super::rig::{Home, failed, text, worked};

const AGENT: &str = "kind = \"command\"\n[command]\nargv = [\"cat\"]\n";

#[test]
fn config_show_tells_where_values_come_from() {
    let home = Home::new();
    let file = home.write("sb.toml", "lease = \"7s\"\ndemo_agents = false\n[limits]\ntasks = 5\n");
    let args = ["config", "show", "--config", &file, "--listen", "127.0.0.1:4242", "-o", "json"];
    let mut command = home.command(&args);
    let command = command.env("SB_CANCEL_GRACE", "500ms").env("SB_LEASE", "8s");
    let output = command.env("SB_ADMIN_TOKEN", "hunter2-hunter2-hunter2").output().unwrap();
    let shown = worked(&output);
    assert!(!shown.contains("hunter"), "{shown}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["file"], file.as_str());
    for (key, value, source) in [
        ("listen", Value::from("127.0.0.1:4242"), "--listen"),
        ("data_dir", Value::from(home.path("data").to_str().unwrap()), "SB_DATA_DIR"),
        ("cancel_grace", Value::from("500ms"), "SB_CANCEL_GRACE"),
        ("lease", Value::from("8s"), "SB_LEASE"),
        ("demo_agents", Value::from(false), file.as_str()),
        ("limits.tasks", Value::from(5), file.as_str()),
        ("admin_token", Value::from("***"), "SB_ADMIN_TOKEN"),
        ("public_url", Value::Null, "default"),
        ("no_auth", Value::from(false), "default"),
        ("log_format", Value::from("human"), "default"),
    ] {
        assert_eq!((&shown["keys"][key]["value"], &shown["keys"][key]["source"]), (&value, &source.into()), "{key}");
    }
    let shown = home.ok(&["config", "show"]);
    assert!(shown.starts_with("KEY ") && shown.contains("SB_DATA_DIR"), "{shown}");
    home.fails(&["config", "show", "--listen", "0.0.0.0:1", "--no-auth"], 2);
    home.ok(&["config", "show", "--listen", "192.0.2.1:1", "--no-auth=false"]);
    assert!(home.ok(&["config", "docs"]).contains("`SB_LISTEN`"));
}

#[test]
fn a_server_tells_a_mistyped_variable_once() {
    let home = Home::new();
    let server = home.serve_with(&[], &[("SB_LISTNE", "127.0.0.1:1"), ("SB_OF_ANOTHER_PROGRAM", "x")]);
    let log = server.log();
    let line = "warning: unknown environment variable `SB_LISTNE`: did you mean `SB_LISTEN`?";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    assert!(!log.contains("SB_OF_ANOTHER_PROGRAM"), "it may be somebody else's: {log}");
}

#[test]
fn config_check_reads_the_file_and_the_agents() {
    let home = Home::new();
    assert!(home.ok(&["config", "check"]).contains("no file"), "defaults are fine");
    let file = home.write("etc/switchboard.toml", "default_agent = \"copy\"\n");
    home.write("etc/agents/copy.toml", AGENT);
    let shown = home.ok(&["config", "check", &file]);
    assert!(shown.contains("ok    configuration") && shown.contains("ok    agent copy"), "{shown}");

    home.write("etc/agents/gone.toml", AGENT.replace("cat", "/nowhere/program").as_str());
    let shown = home.ok(&["config", "check", &file]);
    assert!(shown.contains("warn  agent gone") && shown.contains("/nowhere/program"), "{shown}");

    home.write("etc/agents/bad.toml", AGENT.replace("argv", "argw").as_str());
    let output = home.run(&["config", "check", &file]);
    failed(&output, 2);
    let shown = text(&output.stdout);
    assert!(shown.contains("fail  agent bad") && shown.contains("did you mean `argv`?"), "{shown}");

    home.write("etc/switchboard.toml", "lisen = 1\n");
    let output = home.run(&["config", "check", &file, "-o", "json"]);
    failed(&output, 2);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["status"], &report["checks"][0]["status"]), (&"fail".into(), &"fail".into()));
    assert_eq!(report["checks"][0]["hint"], "did you mean `listen`?");
    failed(&home.run(&["config", "check", "/nowhere/sb.toml"]), 2);
}

/// The status and the detail of one check.
fn finding<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
    (check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_healthy_server_on_sqlite_has_nothing_to_fear() {
    let home = Home::on_sqlite();
    let listen = free_port();
    let server = home.serve_with(&["--listen", &listen], &[]);
    let doctor = ["doctor", "--listen", &listen];
    let seen = home.json(&doctor).remove(0);
    for name in
        ["configuration", "data directory", "disk", "sqlite", "journal", "port", "clock", "public URL", "agents"]
    {
        let (status, detail) = finding(&seen, name);
        assert!(status == "ok" || name == "disk", "{name}: {status} {detail}");
    }
    let (_, detail) = finding(&seen, "fsync");
    assert!(detail.contains("p50") && detail.contains("p99 "), "{detail}");
    assert!(finding(&seen, "journal").1.starts_with("wal"));
    assert!(finding(&seen, "port").1.contains(&server.url));
    assert!(finding(&seen, "clock").1.contains("server's"));
    assert!(home.ok(&doctor).contains("ok    journal"));
    assert_eq!(home.ok(&["send", "hello"]), "hello\n", "the server has not noticed");

    // The running server has another public URL than the configuration.
    let output = home.run(&["doctor", "--listen", &listen, "--public-url", "https://agents.example.org", "-o", "json"]);
    assert!(failed(&output, 1).contains("something is wrong"));
    assert_eq!(finding(&report(&output), "public URL").0, "fail");
    drop(server);
    let seen = home.json(&doctor).remove(0);
    assert!(finding(&seen, "port").1.ends_with("is free"), "{seen}");
}

#[test]
fn the_doctor_compares_the_card_that_clients_elsewhere_get() {
    let home = Home::on_sqlite();
    let (listen, public) = (free_port(), free_port());
    let url = format!("http://{public}");
    let edge = ["--listen", &listen, "--public-url", &url];
    let server = home.serve_with(&edge, &[]);
    let doctor = [&["doctor"], &edge[..]].concat();
    let seen = home.json(&doctor).remove(0);
    let (status, detail) = finding(&seen, "public URL");
    assert!(status == "warn" && detail.contains("no card can be fetched there"), "{detail}");
    // A proxy there that hands on what it gets.
    let proxy = TcpListener::bind(&public).unwrap();
    let address = server.address().to_owned();
    std::thread::spawn(move || {
        for stream in proxy.incoming().map_while(Result::ok) {
            let (Ok(upstream), Ok(reader)) = (TcpStream::connect(&address), stream.try_clone()) else { continue };
            let Ok(mut back) = upstream.try_clone() else { continue };
            std::thread::spawn(move || std::io::copy(&mut &reader, &mut &upstream));
            std::thread::spawn(move || std::io::copy(&mut back, &mut &stream));
        }
    });
    let seen = home.json(&doctor).remove(0);
    assert_eq!(finding(&seen, "public URL"), ("ok", format!("{url}, as on the card, and it answers").as_str()));
}

#[test]
fn the_doctor_finds_what_is_wrong_on_sqlite() {
    let home = Home::on_sqlite();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    fs::create_dir(home.path("data")).unwrap();
    fs::set_permissions(home.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(home.path("data/switchboard.db"), "this is not a database, whatever its name says").unwrap();
    home.write(".config/switchboard/agents/bad.toml", "kind = \"commando\"\n");
    let output = home.run(&["doctor", "--listen", &taken, "-o", "json"]);
    failed(&output, 1);
    let seen = report(&output);
    assert_eq!(seen["status"], "fail");
    assert_eq!(finding(&seen, "data directory").0, "warn");
    for name in ["journal", "port", "agent bad"] {
        assert_eq!(finding(&seen, name).0, "fail", "{seen}");
    }
    for check in seen["checks"].as_array().unwrap() {
        assert_eq!(check["hint"].is_string(), check["status"] != "ok", "what is not well says what to do: {check}");
    }
    let file = home.write("sb.toml", "lisen = 1\n");
    let output = home.run(&["doctor", "--config", &file]);
    failed(&output, 1);
    assert!(text(&output.stdout).contains("did you mean `listen`?"));
    drop(other);
}

#[test]
fn shells_and_man_know_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        // The script asks by a variable; nothing else makes a command answer so.
        assert!(home.ok(&["completion", shell]).contains("SB_COMPLETE"), "{shell}");
        let mut asking = home.command(&["--", "sb", ""]);
        let asked = asking.env("SB_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "1").output().unwrap();
        let verbs = worked(&asked);
        for verb in ["serve", "send", "chat", "profile", "doctor", "completion"] {
            assert!(verbs.contains(verb), "{shell} does not know {verb}: {verbs}");
        }
        assert!(!verbs.contains("guard") && !verbs.contains("launch"), "{verbs}");
    }
    assert_eq!(home.run(&["completion", "csh"]).status.code(), Some(2));
    assert!(home.ok(&["man"]).contains(".TH sb 1"));
    let pages = home.path("man/man1");
    home.ok(&["man", pages.to_str().unwrap()]);
    for page in ["sb.1", "sb-chat.1", "sb-config-show.1", "sb-doctor.1"] {
        assert!(pages.join(page).exists(), "{page} in {:?}", names(&pages));
    }
    assert!(!names(&pages).iter().any(|name| name.contains("guard")), "{:?}", names(&pages));
    let file = home.write("file", "");
    home.fails(&["man", &file], 1);
}

#[test]
fn a_data_directory_that_this_user_may_not_read_is_not_called_broken() {
    let home = Home::on_sqlite();
    home.serve().stop();
    let data = home.path("data");
    let mode = fs::metadata(&data).unwrap().permissions();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o0)).unwrap();
    let run = |args: &[&str]| {
        // Root may read everything.
        let is_root = fs::read_dir(&data).is_ok();
        let under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let own = home.command(args);
        let mut command = Command::new(if is_root { under[0] } else { env!("CARGO_BIN_EXE_sb") });
        if is_root {
            command.args(&under[1..]).arg(env!("CARGO_BIN_EXE_sb"));
        }
        command.args(args).env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("HOME", "/nonexistent").current_dir("/").stdin(Stdio::null()).output().unwrap()
    };
    let sent = run(&["send", "hello"]);
    let examined = run(&["doctor"]);
    fs::set_permissions(&data, mode).unwrap();
    let said = failed(&sent, 1);
    assert!(said.contains("this user may not read it") && !said.contains("repair or remove"), "{said}");
    let found = text(&examined.stdout);
    assert!(!found.contains("none yet") && found.contains("fail  journal"), "{found}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

const SCRIPTED: &str = "default = \"script/m\"\n[providers.script]\napi = \"scripted\"\nfile = \"replies.json\"\n";

#[test]
fn models_are_checked_and_no_key_is_told() {
    let home = Home::on_sqlite();
    let check = |home: &Home, key: Option<&str>| {
        let mut command = home.command(&["config", "check", "-o", "json"]);
        let output = command.envs(key.map(|key| ("ANTHROPIC_API_KEY", key))).output().unwrap();
        (output.status.code(), report(&output))
    };
    let (code, seen) = check(&home, None);
    assert_eq!(code, Some(0), "a server without models is a server: {seen}");
    let (status, detail) = finding(&seen, "default model");
    assert!(status == "warn" && detail.contains("ANTHROPIC_API_KEY") && detail.contains("models.toml"), "{detail}");

    let (_, seen) = check(&home, Some("sk-hunter2"));
    assert!(!seen.to_string().contains("hunter2"), "{seen}");
    let (status, detail) = finding(&seen, "provider anthropic");
    assert!(status == "ok" && detail.contains("key from the variable ANTHROPIC_API_KEY"), "{detail}");
    assert_eq!(finding(&seen, "default model"), ("ok", "anthropic/claude-sonnet-5"));

    home.write(".config/switchboard/models.toml", SCRIPTED);
    home.add_agent("far.toml", "kind = \"llm\"\n[llm]\nmodel = \"openai/gpt-5\"\n");
    let (code, seen) = check(&home, None);
    let (status, detail) = finding(&seen, "provider script");
    assert!(code == Some(0) && status == "warn" && detail.contains("replies.json"), "{detail}");
    assert!(seen.to_string().contains("write the file of replies"), "{seen}");
    assert!(!seen.to_string().contains("no provider is set"), "one is set, and its file is missing: {seen}");
    let (status, detail) = finding(&seen, "agent far");
    assert!(
        status == "warn" && detail.contains("it cannot think yet") && detail.contains("OPENAI_API_KEY"),
        "{detail}"
    );
    home.write(".config/switchboard/replies.json", "{\"replies\":[{\"text\":\"x\"}]}");
    let (_, seen) = check(&home, None);
    assert_eq!((finding(&seen, "provider script").0, finding(&seen, "default model")), ("ok", ("ok", "script/m")));
    assert_eq!(finding(&home.json(&["doctor"]).remove(0), "default model"), ("ok", "script/m"), "and so is the doctor");

    home.write(".config/switchboard/models.toml", SCRIPTED.replace("default", "defualt"));
    let (code, seen) = check(&home, None);
    let (status, detail) = finding(&seen, "models");
    assert!(code == Some(2) && status == "fail" && detail.contains("defualt"), "{detail}");
    let output = home.run(&["doctor"]);
    failed(&output, 1);
    assert!(text(&output.stdout).contains("fail  models"), "{}", text(&output.stdout));
    assert!(!text(&output.stderr).contains("defualt"), "it is said once: {}", text(&output.stderr));
}
