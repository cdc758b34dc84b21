//! The built binary and callers of it.

use super::{
    grpc::Grpc,
    harness::{Home, Server, TOKEN},
    http::Api,
};

/// A home and its server.
pub(super) struct Rig {
    // Dropped in this order: the database goes when its servers are gone.
    pub(super) server: Server,
    pub(super) home: Home,
}

impl Rig {
    pub(super) async fn start(arguments: &[&str]) -> Self {
        Self::start_in(Home::new(), arguments, &[]).await
    }

    /// In a home that was prepared, with these variables.
    pub(super) async fn start_in(home: Home, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = home.serving(&[], arguments);
        let server = home.start(command.env("SB_BOOTSTRAP_TOKEN", TOKEN).envs(variables.iter().copied())).await;
        Self { server, home }
    }

    pub(super) fn grpc(&self) -> Grpc {
        Grpc::new(&self.server.url)
    }

    pub(super) fn api(&self) -> Api {
        self.server.api()
    }

    /// Ends the server without a warning and starts another one on the same data.
    pub(super) async fn restart(&mut self) {
        self.server.kill9();
        let mut command = self.home.serving(&[], &[]);
        self.server = self.home.start(command.env("SB_BOOTSTRAP_TOKEN", TOKEN)).await;
    }
}
