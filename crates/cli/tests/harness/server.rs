//! A server under test: the built binary as a process of its own.

use std::{
    fmt, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout};

use super::{PATIENCE, TOKEN, http::Api, wait_for};

/// A running `sb serve`. Dropping it is kill -9.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    log: PathBuf,
    /// Reads what it prints after it has said where it listens.
    printed: Option<JoinHandle<String>>,
}

/// One that ended instead of listening, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

impl Server {
    /// Starts it and waits until it listens. Its log is appended to this file.
    pub(crate) async fn start(command: &mut Command, log: PathBuf) -> Result<Self, Ended> {
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (say, said) = oneshot::channel();
        let printed = thread::spawn(move || {
            let url = lines.find_map(|line| line.strip_prefix("listening on ").map(|url| url.trim().to_owned()));
            // Nobody waits for it any more when it took too long.
            let _ = say.send(url);
            // Whatever else the server prints must not find a closed pipe.
            lines.map(|line| line + "\n").collect()
        });
        let mut server = Self { child, url: String::new(), log, printed: Some(printed) };
        match timeout(PATIENCE, said).await.expect("a server listens or ends in time") {
            Ok(Some(url)) => {
                server.url = url;
                Ok(server)
            }
            _ => Err(Ended { status: server.ended().await, said: server.log() }),
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Callers of it, with the token that most suites start their servers with.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.url, Some(TOKEN))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal and does not wait.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    /// Ends it without a warning.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for it to end by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the server at {} does not end", self.url);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asks it to end and waits until it has; whether it said that all was well.
    pub(crate) async fn ends_well(&mut self) -> bool {
        self.signal("TERM");
        self.ended().await.success()
    }

    /// Ends it with a signal; gives its exit code and what it had printed since it listened.
    pub(crate) fn stop_with(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let status = wait_for(self.ended());
        (status.code(), self.printed.take().unwrap().join().unwrap())
    }

    /// Ends it as it ends on SIGTERM.
    pub(crate) fn stop(self) {
        assert_eq!(self.stop_with("TERM").0, Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is gone tells another story than one that answers wrongly.
        let state = self.child.try_wait();
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            // With everything in the log, what matters is what the server worried about.
            let worries: Vec<&str> =
                log.lines().filter(|line| !line.contains(" TRACE ") && !line.contains(" DEBUG ")).collect();
            let tail = &worries[worries.len().saturating_sub(40)..];
            eprintln!("--- the server at {}: {state:?}; the end of its log ---\n{}", self.url, tail.join("\n"));
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server does not listen ({}):\n{}", self.status, self.said)
    }
}
