//! The server in the hands of a person: its first start on a terminal, and its end by signals.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{harness::Home, verbs::terminal::Terminal};

#[test]
fn the_first_start_shows_its_token_on_a_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::start(&mut home.serving(&[], &[]));
    terminal.shows("Try it from another terminal");
    terminal.interrupt();
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains(&format!("token: {}\n", home.token())), "{screen}");
}

#[test]
fn running_work_has_a_grace_and_a_second_signal_ends_it() {
    let home = Home::new();
    let server = home.serve();
    let id = home.ok(&["send", "--agent", "slow", "--detach", "1500"]);
    std::thread::sleep(Duration::from_millis(700));
    let (code, _) = server.stop_with("TERM");
    assert_eq!(code, Some(0));

    let server = home.serve();
    let log = home.json(&["task", "subscribe", id.trim(), "--after", "0"]);
    let starts = log.iter().filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING").count();
    assert_eq!(starts, 1, "it was not begun anew: {log:#?}");
    assert!(home.ok(&["task", "get", id.trim()]).ends_with("done after 1500 ms\n"));
    let mut sender = home
        .command(&["send", "--agent", "slow", "60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    // `timeout` sends its signal to the child and then to the child's group.
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(1000));
    let log = server.log();
    assert!(
        log.contains("stopping") && !log.contains("stopped at once"),
        "a second SIGTERM so soon is the first: {log}"
    );
    let since = Instant::now();
    let (code, _) = server.stop_with("TERM");
    assert_eq!(code, Some(1));
    assert!(since.elapsed() < Duration::from_secs(5), "a second signal does not wait for the grace");
    let _ = sender.kill();
    let _ = sender.wait();

    let server = home.serve();
    home.ok(&["send", "--agent", "slow", "--detach", "60000"]);
    std::thread::sleep(Duration::from_millis(700));
    server.signal("INT");
    std::thread::sleep(Duration::from_millis(200));
    let since = Instant::now();
    let (code, _) = server.stop_with("INT");
    assert_eq!(code, Some(1));
    assert!(since.elapsed() < Duration::from_secs(5), "nor does a second Ctrl-C, however soon it comes");
}
