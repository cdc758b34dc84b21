//! A NATS server that belongs to one test, to be killed.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::rig::PATIENCE;

/// A NATS server of one's own on a fixed port. It ends with this.
pub(crate) struct Nats {
    child: Child,
    port: u16,
}

impl Nats {
    pub(crate) fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port is free").port();
        Self { child: run(port), port }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it was started");
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run(self.port);
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(port: u16) -> Child {
    let program = std::env::var_os("SB_TEST_NATS_SERVER").map(PathBuf::from).or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        // Debian puts it where only root's PATH looks.
        directories.push("/usr/sbin".into());
        directories.into_iter().map(|directory| directory.join("nats-server")).find(|file| file.is_file())
    });
    let program = program.expect("nats-server is installed, or SB_TEST_NATS_SERVER says where it is");
    let mut command = Command::new(program);
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.expect("it can be started");
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "nats-server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}
