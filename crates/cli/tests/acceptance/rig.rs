//! A server under test: the built binary as a process of its own on a temporary data directory.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use sha2::{Digest, Sha256};
use store::scratch::Scratch;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::http::Api;

/// The token that every rig's server knows.
pub(crate) const TOKEN: &str = "sb_acceptance-token-of-the-default-tenant-00";

/// Nothing a test waits for takes longer, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A data directory and the server on it.
pub(crate) struct Rig {
    // Dropped in this order: the database goes when its servers are gone.
    pub(crate) instance: Instance,
    scratch: Scratch,
    dir: TempDir,
    arguments: Vec<String>,
    fault: Option<&'static str>,
}

/// One process.
pub(crate) struct Instance {
    child: Child,
    base: String,
    log: PathBuf,
}

impl Rig {
    /// A server with everything at its defaults.
    pub(crate) async fn start() -> Self {
        Self::start_with("", &[]).await
    }

    /// A server with this configuration file and these arguments.
    pub(crate) async fn start_with(config: &str, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        write_config(dir.path(), config);
        let scratch = Scratch::new(&dir.path().join("data"));
        let instance = Instance::start(dir.path(), &scratch, &arguments, None).await;
        Self { instance, scratch, dir, arguments, fault: None }
    }

    /// A server with agent files and, as a negative control, a promise that it breaks.
    pub(crate) async fn start_with_agents(config: &str, agents: &[(&str, &str)], fault: Option<&'static str>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        write_config(dir.path(), config);
        let directory = dir.path().join("agents");
        std::fs::create_dir(&directory).expect("the agents' directory can be made");
        for (name, text) in agents {
            let text = text.replace("$DIR", &directory.display().to_string());
            std::fs::write(directory.join(name), text).expect("an agent file can be written");
        }
        let scratch = Scratch::new(&dir.path().join("data"));
        let instance = Instance::start(dir.path(), &scratch, &[], fault).await;
        Self { instance, scratch, dir, arguments: Vec::new(), fault }
    }

    /// Callers of the server, with the token of the tenant `default`.
    pub(crate) fn api(&self) -> Api {
        self.instance.api()
    }

    /// Where its agent files are.
    pub(crate) fn agents_dir(&self) -> PathBuf {
        self.dir.path().join("agents")
    }

    /// Ends the server without a warning.
    pub(crate) async fn kill9(&mut self) {
        self.instance.child.kill().await.expect("the server was running");
    }

    /// Starts a server on the same data directory. The old one must be gone.
    pub(crate) async fn restart(&mut self) {
        self.instance = Instance::start(self.dir.path(), &self.scratch, &self.arguments, self.fault).await;
    }

    /// Starts a server on the same data directory with another configuration.
    pub(crate) async fn restart_with(&mut self, config: &str, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        write_config(self.dir.path(), config);
        self.restart().await;
    }

    /// One more server on the same data directory.
    pub(crate) async fn second(&self) -> Instance {
        Instance::start(self.dir.path(), &self.scratch, &self.arguments, self.fault).await
    }

    /// Makes another tenant in the running server's journal and gives its token.
    pub(crate) async fn add_tenant(&self, name: &str) -> String {
        let token = format!("sb_acceptance-token-of-the-tenant-{name}-00");
        let journal = self.journal().await;
        let tenant = journal.create_tenant(name).await.expect("the tenant is new");
        let new = store::NewToken {
            tenant: tenant.id,
            hash: Sha256::digest(token.as_bytes()).into(),
            name: "acceptance".to_owned(),
            expires: None,
        };
        journal.add_token(new).await.expect("the token is new");
        token
    }

    /// The journal itself, opened beside the server.
    pub(crate) async fn journal(&self) -> std::sync::Arc<dyn store::Store> {
        self.scratch.open().await
    }
}

impl Instance {
    async fn start(dir: &Path, scratch: &Scratch, arguments: &[String], fault: Option<&str>) -> Self {
        let log = dir.join("server.log");
        let log_file =
            std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("the log can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sb"));
        command
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.join("data"))
            .arg("--config")
            .arg(dir.join("switchboard.toml"))
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .env("XDG_CONFIG_HOME", dir.join("config"))
            .env("XDG_DATA_HOME", dir.join("share"))
            .env("XDG_STATE_HOME", dir.join("state"))
            .env("SB_BOOTSTRAP_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true);
        if let Some(url) = scratch.url() {
            command.args(["--store", url]);
        }
        if let Some(fault) = fault {
            command.env("SB_FAULT", fault);
        }
        let mut child = command.spawn().expect("the binary can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let base = timeout(PATIENCE, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(base) = line.strip_prefix("listening on ") {
                    return Some(base.trim().to_owned());
                }
            }
            None
        })
        .await;
        let Ok(Some(base)) = base else {
            panic!("the server does not listen:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        };
        // Whatever else the server prints must not find a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, base, log }
    }

    /// Callers of this process, with the token of the tenant `default`.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.base, Some(TOKEN))
    }

    /// Asks the process to end, and does not wait.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal and does not wait.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("the server is running").to_string();
        let status = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    /// Waits for the process to end by itself.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait()).await.expect("the server ends in time").expect("the server was started")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            // A server that is gone tells another story than one that answers wrongly.
            match self.child.try_wait() {
                Ok(Some(status)) => eprintln!("--- the server at {} is gone: {status} ---", self.base),
                _ => eprintln!("--- the server at {} runs ---", self.base),
            }
            eprintln!("--- end of its log ---");
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

fn write_config(dir: &Path, config: &str) {
    std::fs::write(dir.join("switchboard.toml"), config).expect("the configuration can be written");
}
