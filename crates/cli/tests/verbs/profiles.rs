//! `sb profile`, and which server a command calls because of one.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use super::rig::{Home, failed, text, worked};

const FILE: &str = ".config/switchboard/profiles.json";

/// Runs a command that has no server of its own to find.
fn run_from(home: &Home, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let nowhere = home.path("nowhere");
    home.command(args).env("SB_DATA_DIR", nowhere).envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn a_profile_names_a_server_its_token_and_its_agent() {
    let home = Home::new();
    let server = home.serve();
    let token = home.write("token", format!("{}\n", home.token()));
    let added =
        home.run(&["profile", "add", "work", "--url", &server.url, "--token-file", &token, "--agent", "message"]);
    assert_eq!(worked(&added), format!("profile work is {}\n", server.url));
    assert_eq!(fs::metadata(home.path(FILE)).unwrap().permissions().mode() & 0o777, 0o600);

    assert_eq!(worked(&run_from(&home, &["send", "--profile", "work", "hi"], &[])), "hi\n");
    assert_eq!(worked(&run_from(&home, &["send", "hi"], &[("SB_PROFILE", "work")])), "hi\n");
    failed(&run_from(&home, &["send", "hi"], &[]), 2);
    assert_eq!(
        text(&home.run(&["profile", "use", "work"]).stdout),
        format!("commands call {} where nothing else is named\n", server.url)
    );
    assert_eq!(worked(&run_from(&home, &["send", "hi"], &[])), "hi\n");
    // Its agent is meant where none is named, and only there.
    let reply = worked(&run_from(&home, &["send", "-o", "json", "hi"], &[]));
    assert!(reply.starts_with("{\"message\":"), "{reply}");
    let reply = worked(&run_from(&home, &["send", "-o", "json", "--agent", "echo", "hi"], &[]));
    assert!(reply.starts_with("{\"task\":"), "{reply}");
    let reply = worked(&run_from(&home, &["send", "-o", "json", "--url", &server.url, "hi"], &[]));
    assert!(reply.starts_with("{\"task\":"), "a URL is no profile: {reply}");
    let tasks = worked(&run_from(&home, &["task", "list", "-o", "json"], &[]));
    assert_eq!(tasks.lines().count(), 2, "all tasks are listed, whoever's they are: {tasks}");
    let chat = home.command(&["chat"]).env("SB_DATA_DIR", "/nowhere").output().unwrap();
    worked(&chat);

    for args in [&["profile", "list"][..], &["profile", "list", "-o", "json"]] {
        let listed = home.ok(args);
        assert!(listed.contains("work") && listed.contains(&server.url) && listed.contains("message"), "{listed}");
        assert!(!listed.contains(&home.token()), "{listed}");
    }
    let listed = home.json(&["profile", "list"]).remove(0);
    assert_eq!((&listed["hasToken"], &listed["current"]), (&true.into(), &true.into()));

    home.ok(&["profile", "use", "local"]);
    failed(&run_from(&home, &["send", "hi"], &[]), 2);
    home.ok(&["profile", "use", "work"]);
    assert_eq!(home.ok(&["profile", "remove", "work"]), "removed profile work\n");
    failed(&run_from(&home, &["send", "hi"], &[]), 2);
    assert!(!fs::read_to_string(home.path(FILE)).unwrap().contains(&home.token()));
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_profile() {
    let (home, other) = (Home::new(), Home::new());
    let (server, second) = (home.serve(), other.serve());
    let token = home.write("token", home.token());
    let second_token = home.write("second", other.token());
    home.ok(&["profile", "add", "first", "--url", &server.url, "--token-file", &token]);
    home.ok(&["profile", "add", "second", "--url", &second.url, "--token-file", &second_token]);
    home.ok(&["profile", "use", "first"]);
    let called = |args: &[&str], environment: &[(&str, &str)]| {
        let card = worked(&run_from(&home, &[&["card", "get"], args].concat(), environment));
        let called = [&server.url, &second.url].into_iter().filter(|url| card.contains(url.as_str())).count();
        assert_eq!(called, 1, "{card}");
        if card.contains(&server.url) { 1 } else { 2 }
    };
    assert_eq!(called(&[], &[]), 1);
    assert_eq!(called(&[], &[("SB_PROFILE", "second")]), 2);
    assert_eq!(called(&[], &[("SB_URL", &second.url)]), 2);
    assert_eq!(called(&["--profile", "first"], &[("SB_URL", &second.url)]), 1);
    assert_eq!(called(&["--profile", "first"], &[("SB_PROFILE", "second")]), 1);
    assert_eq!(called(&[&second.url], &[("SB_PROFILE", "first")]), 2);
    assert_eq!(called(&["--data-dir", other.path("data").to_str().unwrap()], &[]), 2, "the server there");
    // So is the server of this machine, with its own token.
    let elsewhere = [("SB_URL", second.url.as_str()), ("SB_PROFILE", "second"), ("SB_TOKEN", "sb_wrong")];
    let local = home.command(&["send", "--profile", "local", "hi"]).envs(elsewhere).output().unwrap();
    assert_eq!(worked(&local), "hi\n");
    // A token of the environment belongs to the origin of SB_URL. There it comes before that of a profile in use, not before that of a
    // profile that a flag names.
    let wrong = [("SB_TOKEN", "sb_wrong")];
    assert_eq!(worked(&run_from(&home, &["send", "hi"], &wrong)), "hi\n");
    let wrong = [("SB_TOKEN", "sb_wrong"), ("SB_URL", &server.url)];
    assert_eq!(worked(&run_from(&home, &["send", "--profile", "first", "hi"], &wrong)), "hi\n");
    failed(&run_from(&home, &["send", "hi"], &wrong), 4);
}

#[test]
fn administration_says_whom_it_means_where_a_profile_means_another_server() {
    let (home, other) = (Home::new(), Home::new());
    let (server, second) = (home.serve(), other.serve());
    home.ok(&["profile", "add", "far", "--url", &second.url]);
    let told = |args: &[&str], profile: Option<&str>| {
        let mut command = home.command(args);
        command.env_remove("SB_DATA_DIR");
        command.env("XDG_DATA_HOME", home.path("share"));
        // The data directory of a server is not named here, but found.
        let output = command.envs(profile.map(|name| ("SB_PROFILE", name))).output().unwrap();
        worked(&output);
        text(&output.stderr)
    };
    std::fs::create_dir_all(home.path("share")).unwrap();
    std::os::unix::fs::symlink(home.path("data"), home.path("share/switchboard")).unwrap();
    let note = "not the server of the profile `far`";
    let list = ["tenant", "list"];
    assert!(!told(&list, None).contains("note"));
    let said = told(&list, Some("far"));
    assert!(said.contains(note) && said.contains(&format!("--url {}", second.url)), "{said}");
    let said = told(&["profile", "use", "far"], None);
    assert!(said.contains("still administer the installation of this machine"), "{said}");
    assert!(told(&list, None).contains(note));
    let data = home.path("data");
    let named = told(&["tenant", "list", "--data-dir", data.to_str().unwrap()], None);
    assert!(named.is_empty(), "the directory is named: {named}");
    // A profile of the server here is administered by the same commands.
    let here = home.json(&["tenant", "list"]).len();
    assert_eq!(here, 1);
    home.ok(&["profile", "add", "near", "--url", &server.url]);
    let said = told(&["profile", "use", "near"], None);
    assert!(said.is_empty(), "{said}");
    assert!(told(&list, None).is_empty());
}

#[test]
fn a_profile_takes_a_host_and_a_port() {
    let home = Home::new();
    let server = home.serve();
    let token = home.write("token", home.token());
    home.ok(&["profile", "add", "here", "--url", server.address(), "--token-file", &token]);
    assert_eq!(worked(&run_from(&home, &["send", "--profile", "here", "hi"], &[])), "hi\n");
    home.ok(&["remote", "add", "again", server.address()]);
    assert!(home.ok(&["remote", "probe", server.address()]).contains("Switchboard"));
}

#[test]
fn a_token_goes_to_its_own_server_only() {
    let (home, other) = (Home::new(), Home::new());
    let (server, second) = (home.serve(), other.serve());
    // A token that both servers would take must still not be sent.
    let token = home.write("token", other.token());
    home.ok(&["profile", "add", "work", "--url", &server.url, "--token-file", &token]);
    home.ok(&["profile", "use", "work"]);
    failed(&run_from(&home, &["send", "--url", &second.url, "hi"], &[]), 4);
    failed(&run_from(&home, &["send", "--profile", "work", "--url", &second.url, "hi"], &[]), 4);
    let given = [("SB_TOKEN", other.token())];
    let given = given.each_ref().map(|(name, value)| (*name, value.as_str()));
    let said = failed(&run_from(&home, &["send", "--url", &second.url, "hi"], &given), 4);
    assert!(said.contains("SB_TOKEN was not sent"), "{said}");
    let named = [given[0], ("SB_URL", second.url.as_str())];
    assert_eq!(worked(&run_from(&home, &["send", "--url", &second.url, "hi"], &named)), "hi\n");
}

#[test]
fn what_cannot_be_a_profile_is_refused() {
    let home = Home::new();
    let add = |args: &[&str]| home.run(&[&["profile", "add"], args].concat());
    failed(&add(&["local", "--url", "http://h"]), 2);
    failed(&add(&["a b", "--url", "http://h"]), 2);
    failed(&add(&["work", "--url", "nonsense"]), 2);
    failed(&add(&["work", "--url", "http://h", "--agent", "a:b"]), 2);
    failed(&add(&["work", "--url", "http://h", "--token-file", "/nowhere/token"]), 2);
    let said = failed(&home.pipe(&["profile", "add", "work", "--url", "http://h", "--token-file", "-"], "\n"), 2);
    assert!(said.contains("there is no token"), "{said}");
    let said = failed(&home.pipe(&["profile", "add", "work", "--url", "http://h", "--token-file", "-"], "a b\n"), 2);
    assert!(said.contains("that is no token") && !said.contains("a b"), "{said}");
    assert!(!home.path(FILE).exists(), "nothing was kept");

    worked(&home.pipe(&["profile", "add", "work", "--url", "http://h", "--token-file", "-"], "sb_x\n"));
    let said = failed(&add(&["work", "--url", "http://other"]), 2);
    assert!(said.contains("--replace"), "{said}");
    worked(&add(&["work", "--url", "http://other", "--replace"]));
    assert_eq!(home.json(&["profile", "list"]).remove(0)["hasToken"], false);
    for args in [&["profile", "use", "wrok"][..], &["profile", "remove", "wrok"], &["send", "--profile", "wrok", "hi"]]
    {
        let said = home.fails(args, 2);
        assert!(said.contains("did you mean `work`?"), "{said}");
    }
    assert!(home.fails(&["agent", "list", "--profile", "wrok"], 2).contains("did you mean `work`?"));
    home.write(FILE, "{");
    let said = home.fails(&["profile", "list"], 1);
    assert!(said.contains("profiles.json") && said.contains("repair or remove the file"), "{said}");
}
