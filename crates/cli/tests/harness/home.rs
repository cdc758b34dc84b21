//! A directory with everything that belongs to one installation, and the binary in it.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Mutex,
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::temp_store::{TempStore, add_tenant};

use super::{Server, wait_for};

/// A home of its own, so that no test sees another's files or this machine's.
pub(crate) struct Home {
    /// Its journal, seen from beside.
    pub(crate) scratch: TempStore,
    directory: TempDir,
    /// The token that its server was given; nothing writes it down for commands to find.
    given: Mutex<Option<String>>,
}

impl Home {
    /// On the store that the test run is about.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: TempStore::new(&directory.path().join("data")), directory, given: Mutex::default() }
    }

    /// Whose journal is a file, whatever the test run is about.
    pub(crate) fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scratch: TempStore::file(&directory.path().join("data")), directory, given: Mutex::default() }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// Where its agent files are, once there are some.
    pub(crate) fn agents(&self) -> PathBuf {
        self.path(".config/switchboard/agents")
    }

    /// Writes a file below the home; gives its path.
    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes the configuration file.
    pub(crate) fn configure(&self, text: &str) {
        self.write(".config/switchboard/switchboard.toml", text);
    }

    /// Writes a file beside the configuration's agents.
    pub(crate) fn add_agent(&self, name: &str, text: &str) {
        self.write(&format!(".config/switchboard/agents/{name}"), text);
    }

    /// Makes a tenant and a token of it, beside the server if one runs.
    pub(crate) async fn add_tenant(&self, name: &str, token: &str) {
        add_tenant(self.scratch.open().await.as_ref(), name, token).await;
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_under(&[], args)
    }

    /// `sb serve` with these arguments, run by another program if one is named. It listens on a free port unless it is told
    /// another one.
    pub(crate) fn serving(&self, under: &[String], args: &[&str]) -> Command {
        let mut command = self.command_under(under, &[&["serve"], args].concat());
        command.env("SB_LISTEN", "127.0.0.1:0");
        command
    }

    fn command_under(&self, under: &[String], args: &[&str]) -> Command {
        // Figures are measured with the build that is released.
        let binary = std::env::var_os("SB_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_sb").into());
        let mut command = match under.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&binary);
                command
            }
            None => Command::new(&binary),
        };
        command.args(args).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.directory.path()).env("SB_DATA_DIR", self.path("data"));
        command.envs(self.scratch.url().map(|url| ("SB_STORE", url)));
        if args.first() != Some(&"serve") {
            command.envs(self.given.lock().unwrap().as_ref().map(|token| ("SB_TOKEN", token)));
        }
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

    /// A server with everything at its defaults.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[], &[])
    }

    /// A server with these arguments and this environment.
    pub(crate) fn serve_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Server {
        wait_for(self.start(self.serving(&[], args).envs(environment.iter().copied())))
    }

    /// Starts a server and waits until it listens.
    pub(crate) async fn start(&self, command: &mut Command) -> Server {
        let given = command.get_envs().find(|(name, _)| *name == "SB_BOOTSTRAP_TOKEN");
        if let Some((_, Some(token))) = given {
            *self.given.lock().unwrap() = token.to_str().map(str::to_owned);
        }
        Server::start(command, self.path("server.log")).await.unwrap_or_else(|ended| panic!("{ended}"))
    }

    /// The token that the local command line has.
    pub(crate) fn token(&self) -> String {
        self.stored("data/cli.json", "token")
    }

    pub(crate) fn admin_token(&self) -> String {
        self.stored("data/admin.json", "token")
    }

    /// What a file below the home says about something.
    pub(crate) fn stored(&self, below: &str, name: &str) -> String {
        let value: Value = serde_json::from_slice(&fs::read(self.path(below)).unwrap()).unwrap();
        value[name].as_str().unwrap().to_owned()
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
    assert!(said.contains("error: ") || said.contains("{\"error\":{"), "{said}");
    said
}
