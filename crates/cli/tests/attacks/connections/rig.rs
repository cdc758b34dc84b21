//! A server with short times, those who attack it, and the other caller who must not notice.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::raw_http::{exchange, read_to_end};

use crate::harness::{Home, Server, TOKEN};

/// No answer takes longer, unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Times in which a test can see what happens.
pub(super) const SHORT: [(&str, &str); 4] = [
    ("SB_LIMITS_HEADER_TIMEOUT", "1s"),
    ("SB_LIMITS_BODY_TIMEOUT", "1s"),
    ("SB_LIMITS_UNAUTHENTICATED_TIMEOUT", "2s"),
    ("SB_LIMITS_STALL_TIMEOUT", "2s"),
];

/// A server under attack.
pub(super) struct Rig {
    // Dropped in this order: the database goes when its server is gone.
    pub(super) server: Server,
    pub(super) home: Home,
}

impl Rig {
    pub(super) fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let home = Home::new();
        let mut given = vec![("SB_BOOTSTRAP_TOKEN", TOKEN), ("SB_LIMITS_FAILED_AUTH_PER_SECOND", "0")];
        given.extend(environment);
        let server = home.serve_with(args, &given);
        Self { server, home }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address().parse().expect("an address")
    }

    pub(super) fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Another caller sends a message to `echo` and gets its answer.
    pub(super) fn echo(&self) -> Result<(), String> {
        let sent = self.send("echo", "are you there?")?;
        match sent["task"]["status"]["state"].as_str() {
            Some("TASK_STATE_COMPLETED") => Ok(()),
            _ => Err(format!("echo answers {sent}")),
        }
    }

    pub(super) fn send(&self, agent: &str, text: &str) -> Result<Value, String> {
        let message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]});
        let body =
            json!({"tenant": agent, "message": message, "configuration": {"returnImmediately": agent == "slow"}});
        let answer = ask(self.connect(), &post("/a2a/message:send", &body.to_string()))?;
        match answer.status() {
            Some(200) => serde_json::from_str(answer.body()).map_err(|error| error.to_string()),
            _ => Err(format!("the other caller hears {:?}", answer.0)),
        }
    }

    /// What the server keeps in memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the system says it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }
}

/// Everything that came before the end, as text.
pub(super) struct Heard(pub(super) String);

impl Heard {
    fn of(bytes: Vec<u8>) -> Self {
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn status(&self) -> Option<u16> {
        self.0.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }

    pub(super) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }

    /// How many answers there were.
    pub(super) fn answers(&self) -> usize {
        self.0.matches("HTTP/1.1 ").count()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split_once("\r\n\r\n")?.0;
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has times");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket has times");
    stream
}

/// A request with a token that ends its connection.
pub(super) fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         A2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A request without a body; `headers` are whole lines.
pub(super) fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

/// Sends bytes and hears all that comes until the server ends the connection.
pub(super) fn ask(stream: TcpStream, bytes: &[u8]) -> Result<Heard, String> {
    exchange(stream, bytes.to_vec(), false).map(Heard::of)
}

/// Hears all that comes until the server ends the connection.
pub(super) fn hear(stream: &mut TcpStream) -> Result<Heard, String> {
    read_to_end(stream).map(Heard::of)
}

/// Sends a byte now and then until the server ends the connection; the patience of whoever drips is limited too.
pub(super) fn drip(mut stream: TcpStream, begin: &[u8], drop: &[u8], every: Duration) -> Result<Heard, String> {
    stream.write_all(begin).map_err(|error| error.to_string())?;
    let mut writing = stream.try_clone().map_err(|error| error.to_string())?;
    let drop = drop.to_vec();
    let started = Instant::now();
    let writer = thread::spawn(move || {
        while started.elapsed() < PATIENCE && writing.write_all(&drop).is_ok() {
            thread::sleep(every);
        }
    });
    let heard = hear(&mut stream);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let _ = writer.join();
    heard
}

/// Runs a table of attempts: each must hold, and after each the other caller is served. `attempt` says what went wrong.
#[track_caller]
pub(super) fn run<A>(rig: &Rig, table: &[A], name: impl Fn(&A) -> &str, attempt: impl Fn(&A) -> Result<(), String>) {
    let mut failures = Vec::new();
    for row in table {
        if let Err(why) = attempt(row).and_then(|()| rig.echo()) {
            failures.push(format!("{}: {why}", name(row)));
        }
    }
    eprintln!("{} attempts", table.len());
    let log = rig.server.log();
    if log.contains("panicked") {
        failures.push("something panicked, says the log".to_owned());
    }
    assert!(failures.is_empty(), "{} of {} attempts\n{}", failures.len(), table.len(), failures.join("\n"));
}
