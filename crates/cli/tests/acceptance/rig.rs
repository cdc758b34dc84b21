//! A server with everything at its defaults, or nearly, that can be killed and started again.

use std::{path::PathBuf, process::Command, sync::Arc};

use store::Store;

use crate::harness::{Home, Server, http::Api};
pub(crate) use crate::harness::{PATIENCE, TOKEN};

/// A home and the server in it.
pub(crate) struct Rig {
    // Dropped in this order: the database goes when its servers are gone.
    pub(crate) server: Server,
    home: Home,
    /// How the server was started.
    command: Command,
}

impl Rig {
    /// A server with everything at its defaults.
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// A server with this configuration file.
    pub(crate) async fn start_with(config: &str) -> Self {
        Self::start_with_agents(config, &[], None).await
    }

    /// A server with agent files and, as a negative control, a promise that it breaks.
    pub(crate) async fn start_with_agents(config: &str, agents: &[(&str, &str)], fault: Option<&str>) -> Self {
        let home = Home::new();
        home.configure(config);
        for (name, text) in agents {
            home.add_agent(name, &text.replace("$DIR", &home.agents().display().to_string()));
        }
        let mut command = home.serving(&[], &[]);
        command.env("SB_BOOTSTRAP_TOKEN", TOKEN);
        command.envs(fault.map(|fault| ("SB_FAULT", fault)));
        Self { server: home.start(&mut command).await, home, command }
    }

    /// Callers of the server, with the token of the tenant `default`.
    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// Where its agent files are.
    pub(crate) fn agents_dir(&self) -> PathBuf {
        self.home.agents()
    }

    /// Ends the server without a warning.
    pub(crate) fn kill9(&mut self) {
        self.server.kill9();
    }

    /// Starts a server on the same data directory. The old one must be gone.
    pub(crate) async fn restart(&mut self) {
        self.server = self.second().await;
    }

    /// One more server on the same data directory.
    pub(crate) async fn second(&mut self) -> Server {
        self.home.start(&mut self.command).await
    }

    /// The journal itself, opened beside the server.
    pub(crate) async fn journal(&self) -> Arc<dyn Store> {
        self.home.scratch.open().await
    }
}
