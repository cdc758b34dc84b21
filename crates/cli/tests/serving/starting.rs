//! What a server says when it starts, with the flags that it was given: each command in it is run as it stands. And what it says when it
//! cannot.

use std::{fs, path::Path, process::Command};

use crate::harness::{Home, text, worked};

/// What a first start prints for people.
fn banner(home: &Home, args: &[&str], environment: &[(&str, &str)]) -> String {
    let (code, printed) = home.serve_with(args, environment).stop_with("TERM");
    assert_eq!(code, Some(0));
    assert!(printed.contains("This is the first start."), "{printed}");
    printed
}

/// A free port, which stays free for a while.
fn free() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The commands in it: each begins with two blanks, and goes on where a line ends with a backslash.
fn commands(banner: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in banner.lines() {
        if goes_on {
            let last = commands.last_mut().unwrap();
            last.push('\n');
            last.push_str(line);
        } else if line.starts_with("  sb ") || line.starts_with("  curl ") {
            commands.push(line.trim_start().to_owned());
        }
        goes_on = (goes_on || line.starts_with("  curl ")) && line.ends_with('\\');
    }
    commands
}

/// Runs a command as somebody would who has opened another terminal: nothing of this server's environment is there.
fn run(home: &Home, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_sb")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", command]).env_clear().env("PATH", path).env("HOME", home.path("")).current_dir("/");
    worked(&shell.output().unwrap())
}

#[test]
fn the_first_words_are_right_as_they_stand() {
    let agent = "kind = \"command\"\n[command]\nargv = [\"echo\", \"hello\"]\n";
    let unusual = "my data's";
    let cases: [(&[&str], Option<&str>); 5] = [
        (&[], None),
        (&["--no-auth"], None),
        (&["--demo-agents=false"], Some("own.toml")),
        (&["--demo-agents=false", "--default-agent", "own"], Some("own.toml")),
        (&["--data-dir", unusual], None),
    ];
    for (args, file) in cases {
        let home = Home::on_sqlite();
        if let Some(file) = file {
            home.add_agent(file, agent);
        }
        let listen = free();
        let directory = home.path(unusual).display().to_string();
        let args: Vec<&str> = args.iter().map(|arg| if *arg == unusual { directory.as_str() } else { arg }).collect();
        let args = [&["--listen", &listen], &args[..]].concat();
        let said = banner(&home, &args, &[]);
        let data = if args.contains(&directory.as_str()) { unusual } else { "data" };
        let token = home.stored(&format!("{data}/cli.json"), "token");
        assert!(!said.contains(&token), "this is no terminal: {said}");
        assert_eq!(said.contains("Bearer"), !args.contains(&"--no-auth"), "{said}");

        let _server = home.serve_with(&args, &[]);
        let found = commands(&said);
        assert_eq!(found.len(), 2, "{said}");
        for command in found {
            let printed = run(&home, &command.replace("Bearer TOKEN", &format!("Bearer {token}")));
            let expected = if command.contains("5 chunks") { "chunk 5 of 5" } else { "hello" };
            assert!(printed.contains(expected), "{args:?}\n{command}\n{printed}");
        }
        let administration = said.split('`').find(|words| words.starts_with("sb token add")).unwrap();
        assert!(run(&home, administration).contains("sb_"), "{administration}");
    }
}

#[test]
fn nobody_is_named_who_does_not_answer() {
    let home = Home::new();
    let said = banner(&home, &["--demo-agents=false"], &[]);
    assert!(!said.contains("sb send") && said.contains("sb agent new"), "{said}");
}

#[test]
fn a_data_directory_that_is_found_without_saying_is_not_named() {
    let home = Home::on_sqlite();
    let mut command = home.serving(&[], &[]);
    command.env_remove("SB_DATA_DIR");
    let server = crate::harness::wait_for(home.start(&mut command));
    let (_, said) = server.stop_with("TERM");
    assert!(said.contains("sb send --stream") && !said.contains("--data-dir"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_the_first_thing_that_is_said() {
    let home = Home::new();
    let server = home.serve();
    let busy = server.address();
    let port = busy.rsplit(':').next().unwrap();
    let fresh = Home::on_sqlite();
    home.add_agent("broken.toml", "kind = \n");
    fresh.add_agent("broken.toml", "kind = \n");
    let cases: [(&Home, &[&str]); 4] = [
        (&fresh, &["--listen", busy]),
        (&fresh, &["--listen", "127.0.0.1:0", "--grpc-port", port]),
        (&home, &["--listen", busy]),
        (&home, &["--listen", busy, "--log", "trace"]),
    ];
    for (home, args) in cases {
        let ended = home.command(&[&["serve"], args].concat()).output().unwrap();
        let (said, printed) = (text(&ended.stderr), text(&ended.stdout));
        assert_eq!((ended.status.code(), printed.as_str()), (Some(1), ""), "{said}");
        assert!(said.starts_with(&format!("error: cannot listen on {busy}")), "{said}");
        assert!(said.contains("hint: ") && (said.contains("--listen") || said.contains("--grpc-port")), "{said}");
    }
    assert!(!fresh.path("data").exists(), "nothing was made");
    let said = home.fails(&["serve", "--listen", busy], 1);
    assert!(said.contains(&format!("process {}", server.pid())), "it says who: {said}");

    let listen = format!("[admin]\nlisten = \"{busy}\"\n");
    let file = fresh.write("sb.toml", listen);
    let said = fresh.fails(&["serve", "--listen", "127.0.0.1:0", "--config", &file], 1);
    assert!(said.starts_with(&format!("error: cannot listen on {busy}")), "{said}");
    assert!(fs::read_dir(fresh.path("data")).is_err());
}
