//! NATS servers for tests: the program `nats-server`, or the one that `SB_TEST_NATS_SERVER` names.

use std::{
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{PATIENCE, free_port};

/// A server on a fixed port of its own. Dropping it kills it.
pub struct Nats {
    child: Child,
    port: u16,
    arguments: Vec<String>,
}

impl Nats {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    pub fn start_on(port: u16, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { child: spawn(port, &arguments), port, arguments }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.child = spawn(self.port, &self.arguments);
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, arguments: &[String]) -> Child {
    let program = std::env::var_os("SB_TEST_NATS_SERVER").map(PathBuf::from).or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Debian puts it where only root's PATH looks.
        let directories = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
        directories.map(|directory| directory.join("nats-server")).find(|file| file.is_file())
    });
    let program = program.expect("nats-server is installed, or SB_TEST_NATS_SERVER says where it is");
    let mut command = Command::new(&program);
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]).args(arguments);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "nats-server has ended");
        assert!(since.elapsed() < PATIENCE, "nats-server does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    child
}
