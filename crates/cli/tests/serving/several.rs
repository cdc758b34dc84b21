//! Several servers on one data directory: commands find one that runs, whichever of the others has ended, and however.

use std::fs;

use crate::harness::Home;

/// How many servers have said that they run.
fn registered(home: &Home) -> usize {
    fs::read_dir(home.path("data/servers")).map_or(0, Iterator::count)
}

#[test]
fn commands_find_a_server_that_runs() {
    let home = Home::new();
    let first = home.serve();
    let second = home.serve();
    assert_eq!(registered(&home), 2);
    let card = |home: &Home| home.ok(&["card", "get"]);
    assert!(card(&home).contains(&second.url), "the newest is meant");
    for server in [&first, &second] {
        assert_eq!(home.ok(&["send", "--url", &server.url, "hello"]), "hello\n", "the stored token belongs to both");
        assert!(home.ok(&["tenant", "list", "--url", &server.url]).contains("default"), "and so does the admin's");
    }

    second.stop();
    assert_eq!(registered(&home), 1);
    assert!(card(&home).contains(&first.url), "the end of the second is nothing to the first");
    assert_eq!(home.ok(&["send", "hello"]), "hello\n");
    assert!(home.ok(&["tenant", "list"]).contains("default"));

    let mut third = home.serve();
    third.kill9();
    assert!(card(&home).contains(&first.url), "and neither is one that was killed");
    assert_eq!(registered(&home), 1, "what it left is removed");

    // Where none runs, whoever answers where the last one did is a stranger, and hears nothing.
    let address = first.address().to_owned();
    first.stop();
    assert_eq!(registered(&home), 0);
    let stranger = std::net::TcpListener::bind(address).unwrap();
    stranger.set_nonblocking(true).unwrap();
    assert!(home.fails(&["send", "hello"], 3).contains("no server runs"));
    assert!(stranger.accept().is_err(), "nobody has called");
}

#[test]
fn the_doctor_knows_each_of_them() {
    let home = Home::on_sqlite();
    let first = home.serve();
    let second = home.serve();
    for server in [&first, &second] {
        let found = home.ok(&["doctor", "--listen", server.address()]);
        assert!(found.contains(&format!("a server of ours answers at {}", server.url)), "{found}");
    }
}

#[test]
fn the_doctor_of_another_home_does_not_take_a_server_for_its_own() {
    let (home, other) = (Home::on_sqlite(), Home::on_sqlite());
    let server = home.serve();
    let found = other.ok(&["doctor", "--listen", server.address()]);
    let data = other.path("data");
    let expected = format!("is held by a Switchboard server of another data directory than {}", data.display());
    assert!(found.contains(&expected) && !found.contains("a server of ours"), "{found}");
    assert!(!cfg!(target_os = "linux") || found.contains("run by user "), "{found}");
}
