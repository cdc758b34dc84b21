//! `sb agent new NAME --lang …`: what it writes works at once. These tests need python3, node, sh and cargo.

use std::{fs, path::Path};

use serde_json::Value;

use super::rig::{Home, Server, text, worked};

/// Makes an agent from a template, checks it, gives it to the server, and calls it twice.
fn try_template(language: &str, files: &[&str]) {
    let home = Home::new();
    let server = home.serve();
    let place = home.path("work");
    fs::create_dir_all(&place).unwrap();
    let in_place = |args: &[&str]| {
        let mut command = home.command(args);
        // What builds a program needs its own home, not the one of this test.
        for name in ["CARGO_HOME", "RUSTUP_HOME"] {
            let own = std::env::var_os(name).map(Into::into).or_else(|| {
                let directory = if name == "CARGO_HOME" { ".cargo" } else { ".rustup" };
                Some(Path::new(&std::env::var_os("HOME")?).join(directory))
            });
            command.envs(own.map(|own: std::path::PathBuf| (name, own)));
        }
        worked(&command.current_dir(&place).output().unwrap())
    };
    let made = in_place(&["agent", "new", "greet", "--lang", language]);
    for line in [
        "made agent greet in greet\n",
        "sb agent check greet/greet.toml\n",
        "sb agent add greet/greet.toml\n",
        "sb send --agent greet hello\n",
    ] {
        assert!(made.contains(line), "{made}");
    }
    for file in files.iter().chain([&"greet.toml"]) {
        assert!(place.join("greet").join(file).is_file(), "{file}");
    }
    let checked = in_place(&["agent", "check", "greet/greet.toml"]);
    assert!(checked.trim_end().ends_with("  ok"), "{checked}");
    let added = in_place(&["agent", "add", "greet/greet.toml"]);
    assert!(added.ends_with("the server has it; call it: sb send --agent greet hello\n"), "{added}");
    for said in ["hello", "again, wörld"] {
        assert_eq!(in_place(&["send", "--agent", "greet", said]).trim_end(), format!("You said: {said}"));
    }
    let task = task_of(&server, &home);
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    server.stop();
}

fn task_of(server: &Server, home: &Home) -> Value {
    let (status, tasks) = server.http("GET", "/a2a/tasks", Some(&home.token()), None);
    assert_eq!(status, 200, "{tasks}");
    tasks["tasks"][0].clone()
}

#[test]
fn python() {
    try_template("python", &["main.py"]);
}

#[test]
fn node() {
    try_template("node", &["main.mjs"]);
}

#[test]
fn sh() {
    try_template("sh", &["main.sh"]);
}

#[test]
fn rust() {
    try_template("rust", &["Cargo.toml", "src/main.rs", "target/release/greet"]);
}

#[test]
fn nothing_is_written_over_and_nothing_is_asked_that_a_program_does_not_need() {
    let home = Home::new();
    let place = home.path("greet");
    let dir = place.to_str().unwrap();
    home.ok(&["agent", "new", "greet", "--lang", "sh", "--dir", dir]);
    let said = home.fails(&["agent", "new", "greet", "--lang", "python", "--dir", dir], 1);
    assert!(said.contains("greet.toml` already") && said.contains("--dir"), "{said}");
    assert!(!place.join("main.py").exists());
    let said = home.fails(&["agent", "new", "Gr eet", "--lang", "sh"], 2);
    assert!(said.contains("`Gr eet` is not an agent id"), "{said}");
    for wrong in [&["--lang", "sh"][..], &["greet", "--lang", "sh", "--goal", "x"], &["greet", "--dir", "x"]] {
        let output = home.command(&[&["agent", "new"], wrong].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stderr));
    }
    let added = home.command(&["agent", "add", &format!("{dir}/greet.toml")]).output().unwrap();
    assert!(
        text(&added.stderr).contains("no server is running here; `sb serve` starts one"),
        "{}",
        text(&added.stderr)
    );
    let shown = &home.json(&["agent", "add", "--replace", &format!("{dir}/greet.toml")])[0];
    assert_eq!((&shown["served"], &shown["ok"]), (&false.into(), &true.into()));
}
