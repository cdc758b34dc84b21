//! A home of its own with the binary in it, and plain HTTP to its server.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use store::scratch::Scratch;
use tempfile::TempDir;

/// Nothing a test waits for takes longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// A token is refused at most so long after it ended.
pub(crate) const REVOKED_WITHIN: Duration = Duration::from_secs(3);

/// Directories of its own, so that no test sees another's files or this machine's.
pub(crate) struct Home {
    scratch: Scratch,
    directory: TempDir,
}

/// A running `sb serve`. Dropping it is kill -9.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: Scratch::new(&directory.path().join("data")), directory }
    }

    /// Whose journal is a file, whatever the test run is about.
    pub(crate) fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: Scratch::file(&directory.path().join("data")), directory }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// Writes a file below the home; gives its path.
    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn agents(&self) -> PathBuf {
        self.path(".config/switchboard/agents")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
        command.args(args).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.directory.path()).env("SB_DATA_DIR", self.path("data"));
        command.envs(self.scratch.url().map(|url| ("SB_STORE", url)));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command with this on its stdin.
    pub(crate) fn pipe(&self, args: &[&str], input: &str) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What a command prints when it works.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        worked(&self.run(args))
    }

    /// The objects that a command prints, one a line.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let stdout = self.ok(&[args, &["-o", "json"]].concat());
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What a command says when it fails with this exit code.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32) -> String {
        failed(&self.run(args), code)
    }

    pub(crate) fn serve(&self) -> Server {
        self.serve_at("127.0.0.1:0", &[])
    }

    pub(crate) fn serve_at(&self, listen: &str, environment: &[(&str, &str)]) -> Server {
        let mut command = self.command(&["serve", "--listen", listen]);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        // Whatever else the server prints must not find a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Server { child, url }
    }

    /// The token that the local command line has.
    pub(crate) fn token(&self) -> String {
        self.stored("cli.json")
    }

    pub(crate) fn admin_token(&self) -> String {
        self.stored("admin.json")
    }

    fn stored(&self, file: &str) -> String {
        let bytes = fs::read(self.path("data").join(file)).unwrap();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        value["token"].as_str().unwrap().to_owned()
    }
}

impl Server {
    pub(crate) fn address(&self) -> String {
        self.url.strip_prefix("http://").unwrap().to_owned()
    }

    /// Ends it as it ends on SIGTERM.
    pub(crate) fn stop(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        eventually("the server stops", || self.child.try_wait().unwrap().is_some());
    }

    /// One request; gives the status and the body as JSON.
    pub(crate) fn http(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> (u16, Value) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
            let mut request = client.request(method.parse().unwrap(), format!("{}{path}", self.url));
            request = request.header("A2A-Version", "1.0");
            if let Some(token) = token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            if let Some(body) = body {
                request = request.header("Content-Type", "application/json").body(body.to_string());
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let bytes = response.bytes().await.unwrap();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        })
    }

    /// What a caller with this token gets.
    pub(crate) fn status_with(&self, token: &str) -> u16 {
        self.http("GET", "/a2a/extendedAgentCard", Some(token), None).0
    }

    #[track_caller]
    pub(crate) fn refuses_soon(&self, token: &str) {
        let since = Instant::now();
        while self.status_with(token) != 401 {
            assert!(since.elapsed() < REVOKED_WITHIN, "the token is still honoured");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn worked(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(!stdout.contains('\u{1b}'), "there is no terminal to steer: {stdout:?}");
    stdout
}

#[track_caller]
pub(crate) fn failed(output: &Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}\n{said}", text(&output.stdout));
    assert!(said.contains("error: "), "{said}");
    said
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The value of the line `name: value`.
#[track_caller]
pub(crate) fn line_value<'a>(text: &'a str, name: &str) -> &'a str {
    let prefix = format!("{name}: ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_else(|| panic!("no {name} in {text}"))
}
