//! A machine that others use too: files that anybody can change, and databases that claim to know no TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    thread,
};

use crate::harness::{Ended, Home, Server, eventually, wait_for};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A file that decides what the server does, and how it is started with it.
struct Attempt {
    name: &'static str,
    /// What is made below the home, with which modes.
    files: &'static [(&'static str, &'static str, u32)],
    directory: Option<(&'static str, u32)>,
    /// Where a link leads that stands for the configuration file.
    link: Option<&'static str>,
    args: &'static [&'static str],
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn what_anybody_can_change_is_not_obeyed() {
    const CONFIG: &str = ".config/switchboard/switchboard.toml";
    let attempts = [
        Attempt {
            name: "a configuration file that anybody can write",
            files: &[(CONFIG, "demo_agents = true\n", 0o666)],
            directory: None,
            link: None,
            args: &[],
        },
        Attempt {
            name: "a directory in which anybody can replace it",
            files: &[(CONFIG, "demo_agents = true\n", 0o644)],
            directory: Some((".config/switchboard", 0o777)),
            link: None,
            args: &[],
        },
        Attempt {
            name: "a link to a file that anybody can write",
            files: &[("elsewhere/real.toml", "demo_agents = true\n", 0o646)],
            directory: None,
            link: Some("elsewhere/real.toml"),
            args: &[],
        },
        Attempt {
            name: "a link into a directory that anybody can write",
            files: &[("elsewhere/real.toml", "demo_agents = true\n", 0o644)],
            directory: Some(("elsewhere", 0o777)),
            link: Some("elsewhere/real.toml"),
            args: &[],
        },
        Attempt {
            name: "a key file that anybody can write",
            files: &[("push.key", KEY, 0o602)],
            directory: None,
            link: None,
            args: &["--key-file", "push.key"],
        },
        Attempt {
            name: "a private key that anybody can write",
            files: &[("cert.pem", "", 0o644), ("key.pem", "", 0o606)],
            directory: None,
            link: None,
            args: &["--tls-cert", "cert.pem", "--tls-key", "key.pem"],
        },
        Attempt {
            name: "a certificate in a directory that anybody can write",
            files: &[("tls/cert.pem", "", 0o644), ("tls/key.pem", "", 0o600)],
            directory: Some(("tls", 0o777)),
            link: None,
            args: &["--tls-cert", "tls/cert.pem", "--tls-key", "tls/key.pem"],
        },
    ];
    for Attempt { name, files, directory, link, args } in attempts {
        let home = Home::new();
        for (path, content, bits) in files {
            home.write(path, content);
            mode(&home.path(path), *bits);
        }
        if let Some(link) = link {
            fs::create_dir_all(home.path(".config/switchboard")).unwrap();
            symlink(home.path(link), home.path(CONFIG)).unwrap();
        }
        if let Some((directory, bits)) = directory {
            mode(&home.path(directory), bits);
        }
        let mut command = home.serving(&[], args);
        let started = wait_for(Server::start(command.current_dir(home.path("")), home.path("server.log")));
        let Err(Ended { status, said }) = started else { panic!("{name}: the server obeys") };
        assert_eq!(status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("anybody can") && said.contains("chmod o-w "), "{name}: {said}");
    }
}

#[test]
fn agents_that_anybody_can_change_stay_as_they_were() {
    let home = Home::new();
    home.add_agent("mine.toml", "kind = \"command\"\n[command]\nargv = [\"echo\", \"mine\"]\n");
    let theirs = "kind = \"command\"\n[command]\nargv = [\"echo\", \"theirs\"]\n";
    home.add_agent("theirs.toml", theirs);
    mode(&home.agents().join("theirs.toml"), 0o666);
    let server = home.serve();
    assert_eq!(home.ok(&["send", "--agent", "mine", "x"]), "mine\n");
    let said = home.run(&["send", "--agent", "theirs", "x"]);
    assert!(!said.status.success() && server.log().contains("chmod o-w "), "{}", server.log());
    // A file that others may write from now on says nothing any more, and what it said last counts.
    let file = home.agents().join("mine.toml");
    mode(&file, 0o666);
    fs::write(&file, theirs).unwrap();
    eventually("the change is seen", || server.log().matches("chmod o-w ").count() >= 2);
    assert_eq!(home.ok(&["send", "--agent", "mine", "x"]), "mine\n");
    // So is everything in a directory that others may write.
    mode(&file, 0o644);
    eventually("the repair is seen", || home.run(&["send", "--agent", "mine", "x"]).stdout == b"theirs\n");
    mode(&home.agents(), 0o777);
    home.add_agent("new.toml", theirs);
    eventually("the directory is seen", || server.log().contains("`new.toml` is broken"));
    assert!(!home.run(&["send", "--agent", "new", "x"]).status.success());
    mode(&home.agents(), 0o755);
    eventually("the repair is seen", || home.run(&["send", "--agent", "new", "x"]).stdout == b"theirs\n");
}

/// Somebody between two machines says that there is no TLS, to hear the password.
#[test]
fn a_database_elsewhere_without_tls_hears_no_password() {
    let home = Home::on_sqlite();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let listening = thread::spawn(move || {
        let mut heard = Vec::new();
        // One connection for each attempt; the last says that it is over.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 8];
            if stream.read_exact(&mut bytes).is_err() {
                break;
            }
            // "No TLS here."
            let _ = stream.write_all(b"N");
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            heard.extend(rest);
        }
        heard
    });
    // The address of all interfaces is none of the loopback, and is this machine all the same.
    for (n, query) in ["", "?sslmode=prefer", "?sslmode=require", "?connect_timeout=3"].into_iter().enumerate() {
        let store = format!("postgres://sb:hunter2@0.0.0.0:{port}/db{query}");
        for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["tenant", "list", "--timeout=20s"]] {
            let said = home.fails(&[args, &["--store", &store]].concat(), 1);
            assert!(said.contains("sslmode=disable") && !said.contains("hunter2"), "{n}: {said}");
        }
    }
    drop(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    assert!(listening.join().unwrap().is_empty(), "something was said without TLS");
}
