//! Instances under test: the built binary, several processes of it on one database, each with its own data directory.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use store::{Location, OpenOptions, Store};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::http::Api;

/// The token that every instance knows.
pub(crate) const TOKEN: &str = "sb_scale-token-of-the-default-tenant-000000";
/// The token of the one who administers them.
pub(crate) const ADMIN_TOKEN: &str = "sba_scale-token-of-the-administrator-00000";

/// Nothing a test waits for takes longer, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How instances are started.
pub(crate) struct Setting {
    dir: TempDir,
    /// What `--store` says; without it the journal is a file in the data directory.
    pub(crate) store: Option<String>,
    /// What `--wake` says.
    pub(crate) wake: Option<String>,
    pub(crate) fault: Option<&'static str>,
    /// A program and its arguments that run the server.
    pub(crate) under: Vec<String>,
    /// The instances whose wall clock [`Setting::set_clocks`] sets.
    doubtful_clocks: Vec<&'static str>,
}

/// One process.
pub(crate) struct Instance {
    child: Child,
    base: String,
    log: PathBuf,
}

impl Setting {
    /// On this database, everything else at its defaults.
    pub(crate) fn on(store: &str) -> Self {
        Self { store: Some(store.to_owned()), ..Self::on_a_file() }
    }

    /// On SQLite.
    pub(crate) fn on_a_file() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let (under, doubtful_clocks) = (Vec::new(), Vec::new());
        let setting = Self { dir, store: None, wake: None, fault: None, under, doubtful_clocks };
        setting.with_config("")
    }

    /// With this configuration file.
    pub(crate) fn with_config(self, config: &str) -> Self {
        std::fs::write(self.config(), config).expect("the configuration can be written");
        self
    }

    pub(crate) fn with_wake(self, wake: &str) -> Self {
        Self { wake: Some(wake.to_owned()), ..self }
    }

    pub(crate) fn with_fault(self, fault: Option<&'static str>) -> Self {
        Self { fault, ..self }
    }

    /// Puts the wall clock of this instance in the test's hands.
    pub(crate) fn with_doubtful_clock_of(mut self, name: &'static str) -> Self {
        self.doubtful_clocks.push(name);
        self
    }

    /// Sets the doubtful wall clocks so many milliseconds ahead of the true ones, or behind.
    pub(crate) fn set_clocks(&self, ahead: i64) {
        // In one step: whoever reads half a number would see yet another time.
        let next = self.dir.path().join("clock.next");
        std::fs::write(&next, ahead.to_string()).expect("the clock can be written");
        std::fs::rename(&next, self.clock()).expect("the clock can be set");
    }

    /// Where its agent files are.
    pub(crate) fn agents_dir(&self) -> PathBuf {
        self.dir.path().join("agents")
    }

    /// The data directory of one of the instances.
    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts an instance and waits until it listens.
    pub(crate) async fn start(&self, name: &str) -> Instance {
        let log = self.dir.path().join(format!("{name}.log"));
        match self.spawn(name, &log).await {
            Ok(instance) => instance,
            Err(status) => {
                panic!("{name} does not listen ({status:?}):\n{}", std::fs::read_to_string(&log).unwrap_or_default())
            }
        }
    }

    /// Starts instances called `a`, `b`, `c`, …
    pub(crate) async fn start_all<const N: usize>(&self) -> [Instance; N] {
        let mut all = Vec::new();
        for name in ('a'..).take(N) {
            all.push(self.start(&name.to_string()).await);
        }
        all.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
    }

    /// Starts an instance that is expected to fail: how it ended, and what it said.
    pub(crate) async fn fails_to_start(&self, name: &str) -> (ExitStatus, String) {
        let log = self.dir.path().join(format!("{name}.log"));
        match self.spawn(name, &log).await {
            Ok(instance) => panic!("it listens on {}", instance.base),
            Err(status) => {
                (status.expect("it ends by itself"), std::fs::read_to_string(&log).expect("what it said can be read"))
            }
        }
    }

    /// The journal itself, opened beside the instances.
    pub(crate) async fn journal(&self) -> Arc<dyn Store> {
        let location = match &self.store {
            Some(store) => Location::parse(store).expect("it is a place for a journal"),
            None => Location::parse(&format!("sqlite:{}", self.data_dir("a").display())).expect("it is a directory"),
        };
        store::open(&location, OpenOptions::default()).await.expect("the journal can be opened")
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("switchboard.toml")
    }

    fn clock(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    async fn spawn(&self, name: &str, log: &Path) -> Result<Instance, Option<ExitStatus>> {
        let log_file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("the log can be written");
        let mut command = match self.under.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(env!("CARGO_BIN_EXE_sb"));
                command
            }
            None => Command::new(env!("CARGO_BIN_EXE_sb")),
        };
        let home = self.dir.path();
        command
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(self.data_dir(name))
            .arg("--config")
            .arg(self.config())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("XDG_DATA_HOME", home.join("share"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("SB_BOOTSTRAP_TOKEN", TOKEN)
            .env("SB_ADMIN_TOKEN", ADMIN_TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true);
        if let Some(store) = &self.store {
            command.args(["--store", store]);
        }
        if let Some(wake) = &self.wake {
            command.args(["--wake", wake]);
        }
        if let Some(fault) = self.fault {
            command.env("SB_FAULT", fault);
        }
        if self.doubtful_clocks.contains(&name) {
            command.env("SB_CLOCK", self.clock());
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
            return Err(timeout(PATIENCE, child.wait()).await.ok().and_then(Result::ok));
        };
        // Whatever else the server prints must not find a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Instance { child, base, log: log.to_owned() })
    }
}

impl Instance {
    /// Callers of this process, with the token of the tenant `default`.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.base, Some(TOKEN))
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("the server is running")
    }

    /// Ends the process without a warning.
    pub(crate) async fn kill9(&mut self) {
        self.child.kill().await.expect("the server was running");
    }

    /// Asks the process to end and waits until it has; whether it said that all was well.
    pub(crate) async fn stop(&mut self) -> bool {
        self.signal("TERM");
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("the server ends in time");
        ended.expect("the server was started").success()
    }

    /// Sends a signal and does not wait.
    pub(crate) fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    /// What `/readyz` answers.
    pub(crate) async fn readiness(&self) -> u16 {
        self.api().get("/readyz").await.status
    }

    /// Waits until `/readyz` answers this.
    pub(crate) async fn becomes(&self, readiness: u16, within: Duration) {
        let begun = Instant::now();
        loop {
            let now = self.readiness().await;
            if now == readiness {
                return;
            }
            assert!(begun.elapsed() < within, "{} still says {now} after {within:?}", self.base);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            match self.child.try_wait() {
                Ok(Some(status)) => eprintln!("--- the server at {} is gone: {status} ---", self.base),
                _ => eprintln!("--- the server at {} runs ---", self.base),
            }
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}
