//! Several processes of the built binary on one database, each with its own data directory.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use store::{Location, OpenOptions, Store};

use crate::harness::Home;
pub(crate) use crate::harness::{Ended, PATIENCE, Server, TOKEN};

/// The token of the one who administers them.
pub(crate) const ADMIN_TOKEN: &str = "sba_test-token-of-the-administrator-000000";

/// How instances are started.
pub(crate) struct Setting {
    home: Home,
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

impl Setting {
    /// On this database, everything else at its defaults.
    pub(crate) fn on(store: &str) -> Self {
        Self { store: Some(store.to_owned()), ..Self::on_a_file() }
    }

    /// On SQLite.
    pub(crate) fn on_a_file() -> Self {
        let (under, doubtful_clocks) = (Vec::new(), Vec::new());
        Self { home: Home::on_sqlite(), store: None, wake: None, fault: None, under, doubtful_clocks }
    }

    /// With this configuration file.
    pub(crate) fn with_config(self, config: &str) -> Self {
        self.home.configure(config);
        self
    }

    /// With this `agents.yaml`.
    pub(crate) fn with_agents_yaml(self, content: &str) -> Self {
        self.home.write(".config/switchboard/agents.yaml", content);
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
        let next = self.home.write("clock.next", ahead.to_string());
        std::fs::rename(next, self.home.path("clock")).expect("the clock can be set");
    }

    /// Where its agent files are.
    pub(crate) fn agents_dir(&self) -> PathBuf {
        self.home.agents()
    }

    /// The data directory of one of the instances.
    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    /// Starts an instance and waits until it listens.
    pub(crate) async fn start(&self, name: &str) -> Server {
        self.try_to_start(name).await.unwrap_or_else(|ended| panic!("{name}: {ended}"))
    }

    /// Starts instances called `a`, `b`, `c`, …
    pub(crate) async fn start_all<const N: usize>(&self) -> [Server; N] {
        let mut all = Vec::new();
        for name in ('a'..).take(N) {
            all.push(self.start(&name.to_string()).await);
        }
        all.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
    }

    /// Starts an instance that may end instead of listening.
    pub(crate) async fn try_to_start(&self, name: &str) -> Result<Server, Ended> {
        let mut command = self.home.serving(&self.under, &[]);
        command.env("SB_DATA_DIR", self.data_dir(name));
        command.env("SB_BOOTSTRAP_TOKEN", TOKEN).env("SB_ADMIN_TOKEN", ADMIN_TOKEN);
        command.envs(self.store.iter().map(|store| ("SB_STORE", store)));
        command.envs(self.wake.iter().map(|wake| ("SB_WAKE", wake)));
        command.envs(self.fault.map(|fault| ("SB_FAULT", fault)));
        if self.doubtful_clocks.contains(&name) {
            command.env("SB_CLOCK", self.home.path("clock"));
        }
        Server::start(&mut command, self.home.path(&format!("{name}.log"))).await
    }

    /// The journal itself, opened beside the instances.
    pub(crate) async fn journal(&self) -> Arc<dyn Store> {
        let file = format!("sqlite:{}", self.data_dir("a").display());
        let location = Location::parse(self.store.as_deref().unwrap_or(&file)).expect("it is a place for a journal");
        store::open(&location, OpenOptions::default()).await.expect("the journal can be opened")
    }
}

impl Server {
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
            assert!(begun.elapsed() < within, "{} still says {now} after {within:?}", self.url);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
