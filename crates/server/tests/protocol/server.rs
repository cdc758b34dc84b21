//! The server in this process, with the demo agents, on the store that the test run is about.

use std::{fs, sync::Arc};

use ::agents::{KINDS, Reader};
use ::server::{Options, Server};
use async_trait::async_trait;
use client::egress::{Connector, Guard, Limits, Policy, for_tenant};
use exchange::{
    Agents, Exchange,
    admin::{ADMIN_TOKEN, hash},
    push::{Answer, Carrier, Parcel, PushOptions},
};
use store::TenantId;
use tempfile::TempDir;
use testkit::temp_store::{Rows, TempStore, add_tenant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{TOKEN, grpc::Grpc, http::Api};

pub(crate) const ADMIN: &str = "sba_test_of_an_administrator";

/// How a server is to be.
pub(crate) struct Setup {
    pub(crate) engine: exchange::Options,
    pub(crate) edge: Options,
    pub(crate) demo_agents: bool,
    files: Vec<(String, String)>,
    tenants: Vec<(String, String)>,
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) exchange: Exchange,
    stop: CancellationToken,
    running: JoinHandle<()>,
    // Dropped in this order: the database goes when its server is gone.
    pub(crate) scratch: Arc<TempStore>,
    directory: Arc<TempDir>,
}

/// Takes the webhooks that may be called, and calls none.
struct Receivers(Connector);

#[async_trait]
impl Carrier for Receivers {
    async fn receiver(&self, tenant: TenantId, url: &str) -> Result<String, String> {
        let parsed = Url::parse(url).map_err(|_| "is not a URL".to_owned())?;
        for_tenant(tenant.0, self.0.check_url(&parsed)).await.map_err(|error| error.to_string())?;
        Ok(parsed.host_str().unwrap_or_default().to_owned())
    }

    async fn carry(&self, _: Parcel) -> Result<Answer, String> {
        Err("nobody is called here".to_owned())
    }
}

impl Setup {
    /// Everything at its defaults, as `sb serve` has them.
    pub(crate) fn new() -> Self {
        let connector = Connector::new(Policy::Tenant(Arc::new(Guard::default())), Limits::default());
        let engine = exchange::Options {
            default_agent: "echo".parse().ok(),
            push: Some(PushOptions::new(Arc::new(Receivers(connector)))),
            ..exchange::Options::default()
        };
        Self {
            engine,
            edge: Options::new(([127, 0, 0, 1], 0).into()),
            demo_agents: true,
            files: Vec::new(),
            tenants: Vec::new(),
        }
    }

    /// With other settings of the engine.
    pub(crate) fn engine(mut self, change: impl FnOnce(&mut exchange::Options)) -> Self {
        change(&mut self.engine);
        self
    }

    /// With other settings of the server.
    pub(crate) fn edge(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.edge);
        self
    }

    /// With a file beside the configuration's agents.
    pub(crate) fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// With a tenant beside `default`.
    pub(crate) fn tenant(mut self, name: &str, token: &str) -> Self {
        self.tenants.push((name.to_owned(), token.to_owned()));
        self
    }

    pub(crate) async fn start(self) -> TestServer {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let scratch = Arc::new(TempStore::new(&directory.path().join("data")));
        let store = scratch.open().await;
        add_tenant(store.as_ref(), "default", TOKEN).await;
        for (name, token) in &self.tenants {
            add_tenant(store.as_ref(), name, token).await;
        }
        store.set_setting("test", ADMIN_TOKEN, hash(ADMIN).to_vec()).await.unwrap();
        self.launch(scratch, directory).await
    }

    async fn launch(self, scratch: Arc<TempStore>, directory: Arc<TempDir>) -> TestServer {
        let agents = Agents::default();
        if self.demo_agents {
            ::agents::demo().into_iter().for_each(|entry| agents.insert(entry));
        }
        let home = directory.path().join("agents");
        fs::create_dir_all(&home).unwrap();
        for (name, text) in &self.files {
            fs::write(home.join(name), text).unwrap();
        }
        let reader = Reader::new(KINDS, "test");
        for (name, _) in self.files.iter().filter(|(name, _)| name.ends_with(".toml")) {
            agents.insert(reader.load(&home.join(name)).unwrap().entry);
        }
        let exchange = Exchange::start(scratch.open().await, agents, self.engine).await.unwrap();
        let server = Server::bind(exchange.clone(), self.edge).await.unwrap();
        let url = format!("http://{}", server.local_addr());
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        TestServer { url, exchange, stop, running, scratch, directory }
    }
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Setup::new().start().await
    }

    /// Ends it and starts another one on the same journal.
    pub(crate) async fn restart(self, setup: Setup) -> Self {
        self.stop.cancel();
        self.exchange.shut_down(std::time::Duration::ZERO).await;
        self.running.await.unwrap();
        setup.launch(self.scratch, self.directory).await
    }

    /// Starts one more on the same journal.
    pub(crate) async fn second(&self, setup: Setup) -> Self {
        setup.launch(Arc::clone(&self.scratch), Arc::clone(&self.directory)).await
    }

    /// Whoever has the token of the tenant `default`.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.url, Some(TOKEN))
    }

    /// The same over gRPC.
    pub(crate) fn grpc(&self) -> Grpc {
        Grpc::new(&self.url)
    }

    /// What the tables hold.
    pub(crate) fn look(&self, queries: &[&str]) -> Vec<Rows> {
        self.scratch.look(queries)
    }

    /// Makes a tenant and gives its token.
    pub(crate) async fn add_tenant(&self, name: &str) -> String {
        let token = format!("sb_test-token-of-the-tenant-{name}-00");
        add_tenant(self.exchange.store().as_ref(), name, &token).await;
        token
    }
}
