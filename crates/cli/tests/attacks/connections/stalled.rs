//! Readers that read nothing: an answer that nobody takes does not stay.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use super::{
    frames::{Client, Frame, frame, request, unfinished, watch},
    rig::{PATIENCE, Rig, SHORT, ask, get, hear, run},
};
use crate::harness::TOKEN;

const RST_STREAM: u8 = 3;

/// A stream of HTTP/2 whose answer is not taken.
struct Attempt {
    name: &'static str,
    /// The window of each stream.
    window: u32,
    /// What is asked on the first one.
    asked: Vec<u8>,
}

/// A task whose answer is larger than what sockets hold.
fn large(rig: &Rig) -> String {
    let sent = rig.send("echo", &"x".repeat(8 << 20)).expect("a large task");
    sent["task"]["id"].as_str().expect("an id").to_owned()
}

fn attempts(large: &str, slow: &str) -> Vec<Attempt> {
    let row = |name, window, asked| Attempt { name, window, asked };
    let get = |path: &str| request(1, path, &[]);
    vec![
        row("a large answer without a window", 0, get(&format!("/a2a/tasks/{large}"))),
        row("a large answer with a window of a byte", 1, get(&format!("/a2a/tasks/{large}"))),
        row("a large answer with a window for its begin", 65_535, get(&format!("/a2a/tasks/{large}"))),
        row("a small answer without a window", 0, get("/a2a/tasks?pageSize=1")),
        row("a public answer without a window", 0, get("/.well-known/agent-card.json")),
        row("a replay without a window", 0, get(&format!("/a2a/tasks/{large}:subscribe?afterSequence=0"))),
        row("a stream of events without a window", 0, get(&format!("/a2a/tasks/{slow}:subscribe"))),
        row("a stream of gRPC without a window", 0, watch(1)),
    ]
}

#[test]
fn an_answer_that_nobody_takes_is_reset_and_the_others_go_on() {
    let rig = Rig::start(&[], &SHORT);
    let large = large(&rig);
    let slow = rig.send("slow", "600000").expect("a task")["task"]["id"].as_str().expect("an id").to_owned();
    let attempts = attempts(&large, &slow);
    run(
        &rig,
        &attempts,
        |attempt| attempt.name,
        |attempt| {
            let mut client = Client::open(&rig, attempt.window);
            client.write(&attempt.asked);
            let is_reset = |frame: &Frame| frame.kind == RST_STREAM && frame.stream == 1;
            let mut frames = std::iter::from_fn(|| client.read());
            if !frames.any(|frame| is_reset(&frame)) {
                return Err("the connection ended instead".to_owned());
            }
            // Another stream of the same connection, which takes its answer.
            client.write(&request(3, "/healthz", &[]));
            client.write(&frame(8, 0, 3, &[0, 0, 16, 0]));
            client.write(&frame(8, 0, 0, &[0, 0, 16, 0]));
            let ends = |frame: &Frame| frame.stream == 3 && frame.kind == 0 && frame.flags & 1 == 1;
            match std::iter::from_fn(|| client.read()).any(|frame| ends(&frame)) {
                true => Ok(()),
                false => Err("the other stream has no answer".to_owned()),
            }
        },
    );
}

/// More requests without a token than an address may have, which take no answer or have no end, give way to the next one long before they
/// have stood still for too long.
#[test]
fn requests_of_anybody_that_stand_still_give_way() {
    for (name, window, asked) in
        [("answers that nobody takes", 0, watch as fn(u32) -> Vec<u8>), ("bodies that do not come", 65_535, unfinished)]
    {
        let rig = Rig::start(&[], &[]);
        let mut crowd: Vec<Client> = (0..3).map(|_| Client::open(&rig, window)).collect();
        for client in &mut crowd {
            assert!((1..400).step_by(2).all(|stream| client.write(&asked(stream))), "{name}");
            client.is_heard();
        }
        let begun = Instant::now();
        let mut let_in = 0;
        while let_in < 5 {
            let asked = get("/.well-known/agent-card.json", "Connection: close\r\n");
            let card = ask(rig.connect(), &asked).expect("an answer");
            let_in = if card.status() == Some(200) { let_in + 1 } else { 0 };
            assert!(begun.elapsed() < PATIENCE, "{name}: {:.300}", card.0);
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(rig.echo(), Ok(()), "{name}");
    }
}

/// Checks of health are let in always, and those that stand still give way to newer ones as well.
#[test]
fn checks_of_health_that_nobody_takes_give_way() {
    const EACH: u32 = 200;
    let rig = Rig::start(&[], &[]);
    let mut crowd: Vec<Client> = (0..4).map(|_| Client::open(&rig, 0)).collect();
    for client in &mut crowd {
        let asked: Vec<u8> = (0..EACH).flat_map(|n| request(2 * n + 1, "/healthz", &[])).collect();
        assert!(client.write(&asked));
        // The server has all of these before the next client asks.
        client.is_heard();
    }
    // An address has 256: what the first client asked for is ended, long before it has stood still for too long.
    let first = &mut crowd[0];
    let resets = std::iter::from_fn(|| first.read()).filter(|frame| frame.kind == RST_STREAM);
    assert_eq!(resets.take(EACH as usize).count(), EACH as usize);
    let admin = format!("Connection: close\r\nAuthorization: Bearer {}\r\n", rig.home.admin_token());
    for (path, headers) in
        [("/healthz", "Connection: close\r\n"), ("/readyz", "Connection: close\r\n"), ("/v1/admin/tenants", &admin)]
    {
        for _ in 0..5 {
            let heard = ask(rig.connect(), &get(path, headers)).expect("an end");
            assert_eq!(heard.status(), Some(200), "{path}: {:.200}", heard.0);
        }
    }
    assert_eq!(rig.echo(), Ok(()));
}

#[test]
fn a_reader_of_http_1_that_stops_is_shown_out() {
    let rig = Rig::start(&[], &SHORT);
    let large = large(&rig);
    for path in [format!("/a2a/tasks/{large}"), format!("/a2a/tasks/{large}:subscribe?afterSequence=0")] {
        let mut stream = rig.connect();
        let headers = format!("Authorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\nConnection: close\r\n");
        stream.write_all(&get(&path, &headers)).expect("it is sent");
        std::thread::sleep(std::time::Duration::from_secs(6));
        let heard = hear(&mut stream).expect("an end");
        assert!(heard.0.len() < 8 << 20, "{path}: all of it came after all");
        assert_eq!(rig.echo(), Ok(()));
    }
}

/// A hundred connections with as many requests as they may have, all answered and nothing taken.
#[test]
fn a_hundred_who_take_nothing_cost_little() {
    // More than an address may have under way otherwise, so that it can be seen what each costs.
    let many = [("SB_LIMITS_CONNECTIONS", "40000"), ("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "40000")];
    let rig = Rig::start(&[], &[&[("SB_LIMITS_STALL_TIMEOUT", "10m")][..], &many].concat());
    rig.echo().expect("it is awake");
    let before = rig.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = Client::open(&rig, 0);
        let asked: Vec<u8> = (0..200).flat_map(|n| request(2 * n + 1, "/.well-known/agent-card.json", &[])).collect();
        assert!(client.write(&asked));
        // Each is answered as far as it can be: by its head.
        let heads = std::iter::from_fn(|| client.read()).filter(|frame| frame.kind == 1).take(200);
        assert_eq!(heads.count(), 200);
        clients.push(client);
    }
    let each = rig.resident_bytes().saturating_sub(before) / 100;
    println!("{} KiB for each connection of 200 answers that nobody takes", each >> 10);
    assert!(each < 4 << 20, "{each} bytes each");
    assert_eq!(rig.echo(), Ok(()));
}
