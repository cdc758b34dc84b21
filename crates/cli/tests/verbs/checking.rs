//! `sb doctor` behind a proxy and as another user. `checking_on_sqlite.md` has what else it does.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::rig::{Home, failed, text};

/// The status and the detail of one check.
fn finding<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str) {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
    (check["status"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
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
