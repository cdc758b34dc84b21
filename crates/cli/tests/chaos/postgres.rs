//! A PostgreSQL server that belongs to one test and may be killed, and a session of a client.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A cluster of its own, which ends when this is dropped.
pub(crate) struct Postgres {
    dir: TempDir,
    url: String,
    /// The directory of its programs.
    programs: PathBuf,
}

impl Postgres {
    /// Starts a server that syncs every commit.
    pub(crate) fn start() -> Self {
        Self::start_under(&[])
    }

    /// Starts a server that another program runs.
    pub(crate) fn start_under(under: &[String]) -> Self {
        // Its user has to get at it, and the path of its socket has to be short.
        let dir = tempfile::Builder::new().prefix("sb-scale.").tempdir_in("/tmp").expect("a directory can be made");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), permissions).expect("they can be changed");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let mut command = match under.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(script);
                command
            }
            None => Command::new(script),
        };
        let output =
            command.args(["start", "--durable"]).arg(dir.path().join("pg")).output().expect("it can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("it is text");
        let url = said.split('\'').nth(1).expect("it says how to connect").to_owned();
        let mut postgres = Self { dir, url, programs: PathBuf::new() };
        let program = std::fs::read_link(format!("/proc/{}/exe", postgres.postmaster())).expect("it runs");
        postgres.programs = program.parent().expect("a program is in a directory").to_owned();
        postgres
    }

    /// How to connect to its database `postgres`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends SIGKILL to all its processes, and returns when they have ended.
    pub(crate) fn kill9(&self) {
        let postmaster = self.postmaster();
        let mut all = vec![postmaster];
        all.extend(children(postmaster));
        let pids: Vec<String> = all.iter().map(ToString::to_string).collect();
        // Some of them may have ended by themselves.
        let _ = Command::new("kill").args(["-s", "KILL"]).args(&pids).stderr(Stdio::null()).status();
        let begun = Instant::now();
        while all.iter().any(|pid| is_alive(*pid)) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{pids:?} do not die");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops it as an administrator does: sessions are ended, and a checkpoint is written.
    pub(crate) fn stop(&self) {
        self.control(&["stop", "--mode", "fast"]);
    }

    /// Starts it again, on the same port.
    pub(crate) fn start_again(&self) {
        let log = self.log();
        self.control(&["start", "--log", &log.display().to_string()]);
    }

    fn control(&self, arguments: &[&str]) {
        let control = self.programs.join("pg_ctl");
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(control);
            command
        } else {
            Command::new(control)
        };
        let command = command.current_dir("/").args(arguments);
        let command = command.args(["--wait", "--silent", "--pgdata"]).arg(self.dir.path().join("pg/data"));
        let status = command.status().expect("it can be run");
        assert!(status.success(), "{}", std::fs::read_to_string(self.log()).unwrap_or_default());
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("pg/server.log")
    }

    /// The process that the others are children of.
    pub(crate) fn postmaster(&self) -> u32 {
        let file = self.dir.path().join("pg/data/postmaster.pid");
        let text = std::fs::read_to_string(file).expect("it runs");
        text.lines().next().and_then(|line| line.trim().parse().ok()).expect("its first line is a process id")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.dir.path().join("pg/data/postmaster.pid").is_file() {
            self.kill9();
        }
    }
}

/// A session of a client.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server lets us in");
    tokio::spawn(connection);
    client
}

fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("there is /proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if status_of(pid).is_some_and(|(_, parent)| parent == of) {
            found.push(pid);
        }
    }
    found
}

fn is_alive(pid: u32) -> bool {
    status_of(pid).is_some_and(|(state, _)| state != "Z")
}

/// The state and the parent of a process.
fn status_of(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
