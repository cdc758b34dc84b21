//! Instances of the built binary on one journal, each with its own data directory.

use std::{
    ops::Index,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use store::{Location, OpenOptions, Store, TenantId};
use testkit::postgres::Database;
use tokio::sync::watch;

use super::{
    Disk, Ended, Home, Network, Postgres, Server, TOKEN,
    client::{Addresses, Client},
};

/// The administrator's token.
pub(crate) const ADMIN_TOKEN: &str = "sba_test-token-of-the-administrator-000000";

/// How long programs may take to end after their server was killed.
const ORPHANED: Duration = Duration::from_secs(3);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How instances are started, and what all of them need.
pub(crate) struct Installation {
    pub(crate) home: Home,
    /// The value of `--store`; without it the journal is a file in the data directory.
    store: Option<String>,
    wake: Option<String>,
    broken_promise: Option<&'static str>,
    /// A program and its arguments that run the server.
    under: Vec<String>,
    listen: Option<String>,
    /// The instance whose wall clock [`Installation::set_clock`] sets.
    adjustable_clock_of: Option<&'static str>,
    postgres: Option<Postgres>,
    _database: Option<Database>,
}

/// Instances that run.
pub(crate) struct Instances {
    // Dropped first: databases end after their servers.
    pub(super) servers: Vec<Server>,
    /// The way of each instance to its database, if faults can happen to it.
    pub(super) networks: Vec<Network>,
    pub(super) disk: Option<Disk>,
    /// When instances were killed.
    pub(super) kills: watch::Sender<Vec<Instant>>,
    /// Programs that outlived their server.
    survivors: usize,
    addresses: Addresses,
    pub(crate) installation: Installation,
}

impl Installation {
    pub(crate) fn on_sqlite() -> Self {
        let (home, under) = (Home::on_sqlite(), Vec::new());
        let (store, wake, broken_promise, listen, adjustable_clock_of) = (None, None, None, None, None);
        let (postgres, _database) = (None, None);
        Self { home, store, wake, broken_promise, under, listen, adjustable_clock_of, postgres, _database }
    }

    /// On a database of the server that `SB_TEST_POSTGRES` names.
    pub(crate) fn on_postgres() -> Self {
        let database = Database::create();
        Self { store: Some(database.url().to_owned()), _database: Some(database), ..Self::on_sqlite() }
    }

    /// On a PostgreSQL server of its own, which may be killed.
    pub(crate) fn on_its_own_postgres() -> Self {
        let postgres = Postgres::start();
        Self { store: Some(postgres.url().to_owned()), postgres: Some(postgres), ..Self::on_sqlite() }
    }

    /// On the database at this URL.
    pub(crate) fn on(url: &str) -> Self {
        Self { store: Some(url.to_owned()), ..Self::on_sqlite() }
    }

    /// With this configuration file.
    pub(crate) fn with_config(self, config: &str) -> Self {
        self.home.configure(config);
        self
    }

    pub(crate) fn with_wake(self, wake: &str) -> Self {
        Self { wake: Some(wake.to_owned()), ..self }
    }

    /// With servers that break this promise on purpose.
    pub(crate) fn breaking(self, promise: &'static str) -> Self {
        Self { broken_promise: Some(promise), ..self }
    }

    /// Servers that start from now on keep all promises.
    pub(crate) fn keep_promises(&mut self) {
        self.broken_promise = None;
    }

    /// With servers that another program runs.
    pub(crate) fn under(self, under: Vec<String>) -> Self {
        Self { under, ..self }
    }

    pub(crate) fn with_adjustable_clock_of(self, name: &'static str) -> Self {
        let installation = Self { adjustable_clock_of: Some(name), ..self };
        installation.set_clock(0);
        installation
    }

    /// Sets the adjustable wall clock so many milliseconds ahead of the true one.
    pub(super) fn set_clock(&self, ahead: i64) {
        // In one step: half a number would be another time.
        let next = self.home.write("clock.next", ahead.to_string());
        std::fs::rename(next, self.home.path("clock")).expect("the clock can be set");
    }

    /// Adds an agent whose program is a shell script; `settings` are lines of its file.
    pub(crate) fn add_script(&self, name: &str, settings: &str, script: &str) {
        let script = self.home.write(&format!(".config/switchboard/programs/{name}.sh"), script);
        let command = format!("[command]\noutput = \"text\"\nargv = [\"sh\", {script:?}]\n");
        self.home.add_agent(&format!("{name}.toml"), &format!("kind = \"command\"\n{settings}\n{command}"));
    }

    /// The data directory of one of the instances.
    pub(crate) fn data_dir(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    /// Its own PostgreSQL.
    pub(super) fn postgres(&self) -> &Postgres {
        self.postgres.as_ref().expect("it has a PostgreSQL of its own")
    }

    /// Starts an instance and waits until it listens.
    pub(crate) async fn start(&self, name: &str) -> Server {
        self.try_to_start(name).await.unwrap_or_else(|ended| panic!("{name}: {ended}"))
    }

    /// Starts instances called `a`, `b`, `c`, …
    pub(crate) async fn start_all<const N: usize>(&self) -> [Server; N] {
        let mut all = Vec::new();
        for name in &NAMES[..N] {
            all.push(self.start(name).await);
        }
        all.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
    }

    /// Starts an instance that may end instead of listening.
    pub(crate) async fn try_to_start(&self, name: &str) -> Result<Server, Ended> {
        self.start_on(name, self.store.as_deref()).await
    }

    async fn start_on(&self, name: &str, store: Option<&str>) -> Result<Server, Ended> {
        let mut command = self.home.serving(&self.under, &[]);
        command.env("SB_DATA_DIR", self.data_dir(name));
        command.env("SB_BOOTSTRAP_TOKEN", TOKEN).env("SB_ADMIN_TOKEN", ADMIN_TOKEN);
        command.envs(store.map(|store| ("SB_STORE", store)));
        command.envs(self.wake.iter().map(|wake| ("SB_WAKE", wake)));
        command.envs(self.listen.iter().map(|address| ("SB_LISTEN", address)));
        command.envs(self.broken_promise.map(|promise| ("SB_FAULT", promise)));
        if self.adjustable_clock_of == Some(name) {
            command.env("SB_CLOCK", self.home.path("clock"));
        }
        Server::start(&mut command, self.home.path(&format!("{name}.log"))).await
    }

    /// The journal itself, opened beside the instances.
    pub(crate) async fn journal(&self) -> Arc<dyn Store> {
        let file = format!("sqlite:{}", self.data_dir("a").display());
        let location = Location::parse(self.store.as_deref().unwrap_or(&file)).expect("it names a journal");
        store::open(&location, OpenOptions::default()).await.expect("the journal can be opened")
    }

    /// The journal and the tenant of [`TOKEN`].
    pub(crate) async fn journal_and_tenant(&self) -> (Arc<dyn Store>, TenantId) {
        let journal = self.journal().await;
        let tenant = journal.tenants().await.expect("tenants can be read")[0].id;
        (journal, tenant)
    }
}

impl Instances {
    /// Starts so many instances, at most three. On SQLite there can be one.
    pub(crate) async fn start(installation: Installation, count: usize) -> Self {
        let mut servers = Vec::new();
        for name in &NAMES[..count] {
            servers.push(installation.start(name).await);
        }
        Self::of(installation, servers, Vec::new())
    }

    /// The same, each with a way to the database that faults can happen to.
    pub(crate) async fn start_with_networks(installation: Installation, count: usize) -> Self {
        let (mut servers, mut networks) = (Vec::new(), Vec::new());
        for name in &NAMES[..count] {
            let network = Network::to(installation.store.as_deref().expect("it is on PostgreSQL")).await;
            let server = installation.start_on(name, Some(network.url())).await;
            servers.push(server.unwrap_or_else(|ended| panic!("{name}: {ended}")));
            networks.push(network);
        }
        Self::of(installation, servers, networks)
    }

    /// One instance that has the same address after each start.
    pub(crate) async fn start_at_one_address(installation: Installation) -> Self {
        let mut instances = Self::start(installation, 1).await;
        instances.installation.listen = Some(instances[0].address().to_owned());
        instances
    }

    fn of(installation: Installation, servers: Vec<Server>, networks: Vec<Network>) -> Self {
        let addresses = Addresses::of(servers.iter().map(|server| server.url.clone()));
        let kills = watch::Sender::new(Vec::new());
        Self { servers, networks, disk: None, kills, survivors: 0, addresses, installation }
    }

    /// With a disk that can be filled.
    pub(crate) fn with_disk(self, disk: Disk) -> Self {
        Self { disk: Some(disk), ..self }
    }

    pub(super) fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("it has a disk that can be filled")
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub(crate) fn network(&self, index: usize) -> &Network {
        &self.networks[index]
    }

    /// A client of all instances.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.addresses.clone(), self.kills.subscribe())
    }

    /// How many programs outlived the only instance when it was killed.
    pub(crate) fn survivors(&self) -> usize {
        self.survivors
    }

    /// Stops all instances; the installation stays.
    pub(crate) async fn stop_all(mut self) -> Installation {
        for server in &mut self.servers {
            assert!(server.ends_well().await, "{}", server.log());
        }
        self.installation
    }

    /// Starts an instance that has ended.
    pub(super) async fn restart(&mut self, index: usize) {
        let store = self.networks.get(index).map(Network::url).or(self.installation.store.as_deref());
        let started = self.installation.start_on(NAMES[index], store).await;
        self.servers[index] = started.unwrap_or_else(|ended| panic!("{}: {ended}", NAMES[index]));
        self.addresses.replace(index, &self.servers[index].url);
    }

    /// Looks for programs that outlived the only instance, and ends them.
    pub(super) async fn count_survivors(&mut self) {
        let programs = self.installation.home.path(".config/switchboard/programs");
        if self.servers.len() > 1 || !programs.is_dir() {
            return;
        }
        let mark = format!("{}/", programs.display());
        let begun = Instant::now();
        loop {
            let running = processes_with(&mark);
            if running.is_empty() {
                return;
            }
            if begun.elapsed() > ORPHANED {
                let kill = std::process::Command::new("kill").args(["-s", "KILL"]).args(&running).status();
                kill.expect("it can be run");
                self.survivors += running.len();
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Index<usize> for Instances {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.servers[index]
    }
}

/// The status of `/readyz`.
pub(crate) async fn readiness(server: &Server) -> u16 {
    server.api().get("/readyz").await.status
}

/// Waits until `/readyz` has this status.
pub(crate) async fn becomes(server: &Server, wanted: u16, within: Duration) {
    let begun = Instant::now();
    loop {
        let now = readiness(server).await;
        if now == wanted {
            return;
        }
        assert!(begun.elapsed() < within, "{} still answers {now} after {within:?}", server.url);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The processes whose command line contains this.
fn processes_with(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("there is /proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if pid.bytes().all(|b| b.is_ascii_digit()) && String::from_utf8_lossy(&command).contains(mark) {
            found.push(pid);
        }
    }
    found
}
