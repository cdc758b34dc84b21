//! A home of its own with the binary in it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing a test waits for takes longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Directories of its own, so that no test sees another's files or this machine's.
pub(crate) struct Home {
    directory: TempDir,
}

/// A running `sb serve`. Dropping it is kill -9.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
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

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
        command.args(args).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.directory.path()).env("SB_DATA_DIR", self.path("data"));
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

    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut command = self.command(&[&["serve"], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        // Whatever else the server prints must not find a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Server { child, url }
    }

    pub(crate) fn serve_anywhere(&self) -> Server {
        self.serve(&["--listen", "127.0.0.1:0"])
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
