//! Crowds: so many connections that none is left, by people who have no token or whom nobody stops, and others who still get in.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use testkit::certificates::certify;
use tokio::net::TcpSocket;

use super::{
    frames::{Client, frame, request, watch},
    rig::{PATIENCE, Rig, ask, connect, get, hear, post, run},
};
use crate::harness::{Home, TOKEN, wait_for};

/// As many connections as there are.
const PLACES: usize = 50;

const LIMITS: [(&str, &str); 5] = [
    ("SB_LIMITS_CONNECTIONS", "50"),
    // All come from one address.
    ("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "50"),
    // Nobody is to leave for having had their time.
    ("SB_LIMITS_UNAUTHENTICATED_TIMEOUT", "10m"),
    ("SB_LIMITS_HEADER_TIMEOUT", "10m"),
    ("SB_LIMITS_STREAMS", "1000"),
];

/// Connections that do something, until they are dropped.
struct Crowd {
    stop: Arc<AtomicBool>,
    members: Vec<thread::JoinHandle<()>>,
}

/// What each of a crowd does after it has connected: the first bytes, then these again and again while it reads.
struct Attempt {
    name: &'static str,
    members: usize,
    begin: Vec<u8>,
    again: Vec<u8>,
    /// Whether another caller gets in at once, or when the server has waited a moment for who these are.
    at_once: bool,
}

fn attempts() -> Vec<Attempt> {
    let row = |name, members, begin: Vec<u8>, again: Vec<u8>| Attempt { name, members, begin, again, at_once: true };
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
    let ping = frame(6, 0, 0, &[7; 8]);
    let known = get("/a2a/tasks", &format!("Authorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\n"));
    vec![
        row("silence", PLACES, Vec::new(), Vec::new()),
        row("much more silence", 10 * PLACES, Vec::new(), Vec::new()),
        row("half a head", PLACES, b"GET /healthz HTTP/1.1\r\nX-A: ".to_vec(), b"b".to_vec()),
        row("half a preface", PLACES, b"PRI * HTTP".to_vec(), Vec::new()),
        row("health again and again", PLACES, get("/healthz", ""), get("/healthz", "")),
        row("cards again and again", PLACES, Vec::new(), get("/.well-known/agent-card.json", "")),
        row("wrong tokens again and again", PLACES, Vec::new(), get("/a2a/tasks", "X-API-Key: wrong\r\n")),
        row("HTTP/2 that answers pings", PLACES, preface.clone(), Vec::new()),
        row("HTTP/2 that sends pings", PLACES, preface.clone(), ping),
        row("a tenant that idles", PLACES, known, Vec::new()),
        row(
            "a tenant that idles in HTTP/2",
            PLACES,
            [preface.clone(), request(1, "/a2a/tasks", &[])].concat(),
            Vec::new(),
        ),
        Attempt {
            at_once: false,
            ..row("health that is watched for ever", PLACES, [preface, watch(1)].concat(), Vec::new())
        },
    ]
}

#[test]
fn whoever_does_nothing_gives_way() {
    let rig = Rig::start(&[], &LIMITS);
    let attempts = attempts();
    run(
        &rig,
        &attempts,
        |attempt| attempt.name,
        |attempt| {
            let crowd = Crowd::gather(rig.address(), attempt.members, &attempt.begin, &attempt.again);
            let mut got_in = rig.echo();
            let since = Instant::now();
            while !attempt.at_once && got_in.is_err() && since.elapsed() < PATIENCE {
                got_in = rig.echo();
            }
            for _ in 0..20 {
                got_in = got_in.and_then(|()| rig.echo());
            }
            drop(crowd);
            got_in
        },
    );
}

impl Crowd {
    /// Returns when all are in.
    fn gather(address: SocketAddr, members: usize, begin: &[u8], again: &[u8]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let member = |_| {
            let mut stream = connect(address);
            let _ = stream.write_all(begin);
            let (stop, again) = (Arc::clone(&stop), again.to_vec());
            thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let mut heard = [0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    let read = stream.read(&mut heard);
                    let is_over = match &read {
                        Ok(length) => *length == 0,
                        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
                    };
                    // Who is shown out stays away.
                    if is_over || stream.write_all(&again).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            })
        };
        let members = (0..members).map(member).collect();
        Self { stop, members }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.members.drain(..) {
            let _ = member.join();
        }
    }
}

/// A stream that is under way, which nobody may end for another.
fn subscribed(mut stream: TcpStream, task: &str, headers: &str) -> TcpStream {
    let path = format!("/a2a/tasks/{task}:subscribe");
    let known = format!("Authorization: Bearer {TOKEN}\r\nA2A-Version: 1.0\r\n{headers}");
    stream.write_all(&get(&path, &known)).expect("it is sent");
    let mut heard = Vec::new();
    let mut piece = [0; 1024];
    while !String::from_utf8_lossy(&heard).contains("data: ") {
        let length = stream.read(&mut piece).expect("a stream begins");
        assert_ne!(length, 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&piece[..length]);
    }
    stream
}

fn slow_task(rig: &Rig) -> String {
    rig.send("slow", "600000").expect("a task")["task"]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn when_all_are_busy_operators_still_get_in() {
    let rig = Rig::start(&[], &LIMITS);
    let task = slow_task(&rig);
    let mut open: Vec<TcpStream> = (0..PLACES).map(|_| subscribed(rig.connect(), &task, "")).collect();

    let admin = format!("Authorization: Bearer {}\r\n", rig.home.admin_token());
    for round in 0..5 {
        let refused = ask(rig.connect(), &post("/a2a/message:send", "{}")).expect("an end");
        assert_eq!((refused.status(), refused.header("retry-after")), (Some(503), Some("1")), "{round}");
        // Somebody sits in the place that is kept, and says nothing.
        let silent: Vec<TcpStream> = (0..5).map(|_| rig.connect()).collect();
        for (path, headers) in [("/healthz", ""), ("/readyz", ""), ("/v1/admin/tenants", admin.as_str())] {
            let heard = ask(rig.connect(), &get(path, headers)).expect("an end");
            assert_eq!(heard.status(), Some(200), "{path}: {:.200}", heard.0);
        }
        drop(silent);
    }
    for stream in &mut open {
        stream.set_nonblocking(true).expect("a socket");
        let mut byte = [0; 4096];
        // More may have come, but not the end.
        while let Ok(length) = stream.read(&mut byte) {
            assert_ne!(length, 0, "a stream was ended for another");
        }
    }
    drop(open);
    let since = Instant::now();
    while let Err(why) = rig.echo() {
        assert!(since.elapsed() < PATIENCE, "{why}");
    }
}

/// The allocator is set up for this in `.cargo/config.toml`. It looks for memory to give back when something is freed, so it is given
/// something to do. `SB_LONG=1` opens 10,000 streams.
#[test]
fn streams_that_have_ended_give_their_memory_back() {
    let streams = if std::env::var_os("SB_LONG").is_some() { 10_000 } else { 900 };
    let limits = [("SB_LIMITS_STREAMS", "0"), ("SB_LIMITS_CONNECTIONS", "40000")];
    let rig = Rig::start(&[], &[&limits[..], &[("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "20000")]].concat());
    let task = slow_task(&rig);
    let open = |count| (0..count).map(|_| subscribed(rig.connect(), &task, "")).collect::<Vec<_>>();
    drop(open(100));
    for round in 0..2 {
        let before = rig.resident_bytes();
        let streams = open(streams);
        let taken = rig.resident_bytes().saturating_sub(before);
        let each = taken / streams.len() as u64;
        assert!(each > 8 << 10, "{each} bytes each: too little to see whether they are given back");
        drop(streams);
        let since = Instant::now();
        let left = loop {
            assert_eq!(rig.echo(), Ok(()));
            let left = rig.resident_bytes().saturating_sub(before);
            if left < taken / 3 || since.elapsed() > PATIENCE {
                break left;
            }
            thread::sleep(Duration::from_millis(200));
        };
        println!("{round}: {} KiB a stream, {} of {} MiB kept", each >> 10, left >> 20, taken >> 20);
        assert!(left < taken / 3, "round {round}: {left} of {taken} bytes are kept");
    }
}

/// A connection from another address of this machine.
fn from(source: &str, rig: &Rig) -> TcpStream {
    let stream = wait_for(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source.parse().expect("an address"), 0))?;
        socket.connect(rig.address()).await?.into_std()
    });
    let stream = stream.expect("a connection");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Watches of health without a token, from four addresses at once. `SB_LONG=1` opens 11,000 of them for a minute.
#[test]
fn watches_of_anybody_refuse_no_tenant() {
    const EACH: u32 = 250;
    let is_long = std::env::var_os("SB_LONG").is_some();
    let (connections, lasts) = if is_long { (44, Duration::from_secs(60)) } else { (8, Duration::from_secs(2)) };
    let rig = Rig::start(&[], &[]);
    let mut crowd = Vec::new();
    for n in 0..connections {
        let mut client = Client::over(from(&format!("127.0.0.{}", n % 4 + 1), &rig), 65_535);
        let asked: Vec<u8> = (0..EACH).flat_map(|n| watch(2 * n + 1)).collect();
        assert!(client.write(&asked));
        client.is_heard();
        crowd.push(client);
    }
    let (begun, mut calls, mut refused, mut longest) = (Instant::now(), 0, Vec::new(), Duration::ZERO);
    while begun.elapsed() < lasts {
        let called = Instant::now();
        refused.extend(rig.echo().err());
        longest = longest.max(called.elapsed());
        calls += 1;
    }
    println!("{connections} connections: {} of {calls} calls refused, the longest took {longest:?}", refused.len());
    assert!(refused.is_empty(), "{} of {calls} calls refused: {:.300}", refused.len(), refused[0]);
}

#[test]
fn an_address_has_its_share_and_no_more() {
    let rig = Rig::start(&[], &[("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "10")]);
    let task = slow_task(&rig);
    let mut open: Vec<TcpStream> = (0..10).map(|_| subscribed(from("127.0.0.3", &rig), &task, "")).collect();
    let cards = get("/.well-known/agent-card.json", "Connection: close\r\n");
    for attempt in 0..5 {
        let refused = ask(from("127.0.0.3", &rig), &cards).expect("an end");
        assert_eq!((refused.status(), refused.header("retry-after")), (Some(503), Some("1")), "{attempt}");
        let other = ask(from("127.0.0.4", &rig), &cards).expect("an end");
        assert_eq!(other.status(), Some(200), "another address is not concerned");
        assert_eq!(rig.echo(), Ok(()));
    }
    // Who idles gives way to others of the same address.
    open.truncate(5);
    let mut idle: Vec<TcpStream> = (0..40).map(|_| from("127.0.0.3", &rig)).collect();
    let since = Instant::now();
    while ask(from("127.0.0.3", &rig), &cards).expect("an end").status() != Some(200) {
        assert!(since.elapsed() < PATIENCE, "nobody of that address gets in");
    }
    assert_eq!(hear(&mut idle[0]).expect("an end").0, "");
}

#[test]
fn behind_a_proxy_the_address_that_it_names_has_its_share() {
    let rig = Rig::start(&[], &[("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "3"), ("SB_TRUSTED_PROXIES", "127.0.0.1")]);
    let task = slow_task(&rig);
    let proxied = "X-Forwarded-For: 203.0.113.9\r\n";
    let open: Vec<TcpStream> = (0..3).map(|_| subscribed(rig.connect(), &task, proxied)).collect();
    let token = format!("Connection: close\r\nA2A-Version: 1.0\r\nAuthorization: Bearer {TOKEN}\r\n");
    let asks = |address: &str| {
        let headers = format!("{token}X-Forwarded-For: {address}\r\n");
        ask(rig.connect(), &get("/a2a/tasks", &headers)).expect("an end")
    };
    let refused = asks("203.0.113.9");
    assert_eq!((refused.status(), refused.header("retry-after")), (Some(429), Some("1")), "{:.200}", refused.0);
    assert_eq!(asks("198.51.100.1, 203.0.113.9").status(), Some(429), "what a client says before is hearsay");
    assert_eq!(asks("203.0.113.10").status(), Some(200));
    let health = ask(rig.connect(), &get("/healthz", &format!("Connection: close\r\n{proxied}"))).expect("an end");
    assert_eq!(health.status(), Some(200), "requests without a token have a pool of their own");
    drop(open);
    let since = Instant::now();
    while asks("203.0.113.9").status() != Some(200) {
        assert!(since.elapsed() < PATIENCE, "its share is never free again");
    }
}

#[test]
fn administration_has_an_address_of_its_own() {
    let home = Home::new();
    let mut command = home.serving(&[], &[]);
    command.envs([("SB_BOOTSTRAP_TOKEN", TOKEN), ("SB_ADMIN_LISTEN", "127.0.0.1:0"), ("SB_LIMITS_CONNECTIONS", "2")]);
    command.env("SB_LIMITS_CONNECTIONS_PER_ADDRESS", "2");
    let server = wait_for(home.start(&mut command));
    let rig = Rig { server, home };
    let task = slow_task(&rig);
    let open: Vec<TcpStream> = (0..2).map(|_| subscribed(rig.connect(), &task, "")).collect();

    let admin = format!("Connection: close\r\nAuthorization: Bearer {}\r\n", rig.home.admin_token());
    let stored = std::fs::read_to_string(rig.home.path("data/cli.json")).expect("the server leaves its address");
    let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    let url = stored["admin_url"].as_str().expect("an address").strip_prefix("http://").expect("without TLS");
    let address: SocketAddr = url.parse().expect("an address");
    for (path, status) in [("/v1/admin/tenants", 200), ("/healthz", 200), ("/a2a/tasks", 404), ("/v1/remotes", 200)] {
        let heard = ask(connect(address), &get(path, &admin)).expect("an end");
        assert_eq!(heard.status(), Some(status), "{path}: {:.200}", heard.0);
    }
    drop(open);
    let since = Instant::now();
    while let Err(why) = rig.echo() {
        assert!(since.elapsed() < PATIENCE, "{why}");
    }
    let elsewhere = ask(rig.connect(), &get("/v1/admin/tenants", &admin)).expect("an end");
    assert_eq!(elsewhere.status(), Some(404), "{:.200}", elsewhere.0);
    // The command line finds it, by itself and by the name of the server.
    assert!(rig.home.ok(&["tenant", "add", "acme"]).contains("acme"));
    assert!(rig.home.ok(&["tenant", "list", "--url", &rig.server.url]).contains("acme"));
}

#[test]
fn who_greets_slowly_gives_way_too() {
    let home = Home::new();
    certify(&home.path(""), "ca", None);
    certify(&home.path(""), "server", Some("ca"));
    let file = |name: &str| home.path(name).display().to_string();
    let mut command = home.serving(&[], &["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")]);
    let server = wait_for(home.start(command.envs(LIMITS)));
    let port = server.url.rsplit_once(':').expect("a port").1.to_owned();
    let address: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");
    let ca = reqwest::tls::Certificate::from_pem(&std::fs::read(home.path("ca.pem")).expect("it was made"));
    let asks = || {
        let client =
            reqwest::Client::builder().tls_certs_only([ca.as_ref().expect("a certificate").clone()]).no_proxy();
        let client = client.timeout(PATIENCE).build().expect("a client");
        wait_for(async { client.get(format!("https://localhost:{port}/healthz")).send().await })
    };
    // Nothing, half a greeting, and one that drips.
    let half = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for (begin, again) in [(&[][..], &[][..]), (&half, &[]), (&half, &[0])] {
        let crowd = Crowd::gather(address, PLACES, begin, again);
        for _ in 0..5 {
            let answer = asks();
            assert!(answer.as_ref().is_ok_and(|answer| answer.status() == 200), "{answer:?}");
        }
        drop(crowd);
    }
}

/// Nobody has to be pushed: who does not say who they are leaves by themselves.
#[test]
fn who_does_not_say_who_they_are_is_shown_out() {
    let rig = Rig::start(&[], &[("SB_LIMITS_UNAUTHENTICATED_TIMEOUT", "1s")]);
    let mut silent = rig.connect();
    assert_eq!(hear(&mut silent).expect("an end").0, "");
    assert!(Client::open(&rig, 65_535).ends());
    // A tenant stays, however long it is silent: longer than that here.
    let mut known = Client::open(&rig, 65_535);
    assert!(known.write(&request(1, "/a2a/tasks", &[])));
    thread::sleep(Duration::from_secs(3));
    assert!(known.write(&request(3, "/a2a/tasks", &[])));
    let answers = std::iter::from_fn(|| known.read()).filter(|frame| frame.kind == 1).take(2);
    assert_eq!(answers.map(|frame| frame.stream).collect::<Vec<u32>>(), [1, 3]);
}
