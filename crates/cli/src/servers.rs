//! The servers that run with one data directory, as the command line on this machine finds them.
//!
//! Each server has a file of its own in `servers`, named after its instance, and whoever looks believes it only while that instance holds
//! its lock: so the end of one server, however it came, takes nothing from the others. Where none runs, `cli.json` says
//! where one last answered, which is told and not called: whoever answers there now may be anybody.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use client::{Connector, Limits, egress::LocalServer, parse_url, same_origin};
use serde::{Deserialize, Serialize};
use store::{InstanceId, clock};
use url::Url;

use crate::{
    failure::Failure,
    local::{Local, PrivateFile, not_written, write_private},
};

/// The directory of these files, in the data directory.
const DIRECTORY: &str = "servers";

/// A server of this data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The address that it listens on.
    pub(crate) url: String,
    /// What URLs on its cards begin with, if that is another URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public_url: Option<String>,
    /// Its port for gRPC alone, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grpc_port: Option<u16>,
    /// Where it is administered, if that is another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin_url: Option<String>,
    /// Where it looks for agent files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agents: Option<PathBuf>,
    /// Its process, for people.
    #[serde(default)]
    pub(crate) pid: u32,
    /// When it began to listen, in milliseconds since the epoch.
    #[serde(default)]
    started: i64,
    /// Its instance holds its lock. Where none does, whoever answers there now is a stranger.
    #[serde(skip)]
    pub(crate) runs: bool,
}

/// What a server says of itself while it answers. Dropping it takes that back.
pub(crate) struct Registered {
    path: PathBuf,
}

/// What the command line knows of servers here.
pub(crate) struct Servers {
    /// Those that run, the newest first; when none does, the one that was last known, if any.
    known: Vec<Entry>,
    /// A token that they know.
    token: Option<String>,
}

impl Entry {
    pub(crate) fn new(url: &str, admin_url: Option<String>, agents: Option<PathBuf>) -> Self {
        let started = clock::now().as_millis();
        let (public_url, grpc_port) = (None, None);
        Self {
            url: url.to_owned(),
            public_url,
            grpc_port,
            admin_url,
            agents,
            pid: std::process::id(),
            started,
            runs: true,
        }
    }

    /// Says that this server answers. Its instance has to hold its lock already. Files of servers that are gone are removed.
    pub(crate) fn register(&self, data_dir: &Path, instance: InstanceId) -> Result<Registered, Failure> {
        let directory = data_dir.join(DIRECTORY);
        let path = directory.join(format!("{instance}.json"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| not_written(&directory, &error))?;
        write_private(self, &path)?;
        running(data_dir);
        Ok(Registered { path })
    }

    /// Says what URLs on its cards begin with.
    pub(crate) fn with_public_url(self, public: &str) -> Self {
        Self { public_url: Some(public.to_owned()).filter(|public| *public != self.url), ..self }
    }

    /// Says at which port it speaks gRPC alone.
    pub(crate) fn with_grpc_port(self, port: Option<u16>) -> Self {
        Self { grpc_port: port, ..self }
    }

    /// Where it is administered.
    pub(crate) fn administered_at(&self) -> &str {
        self.admin_url.as_deref().unwrap_or(&self.url)
    }

    /// Whether a URL leads to it.
    fn is_at(&self, url: &Url) -> bool {
        self.addresses().any(|own| own.origin() == url.origin())
    }

    /// The addresses that it listens on.
    fn addresses(&self) -> impl Iterator<Item = Url> {
        let own = [Some(&self.url), self.admin_url.as_ref()];
        own.into_iter().flatten().filter_map(|own| parse_url(own).ok())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // What stays is found to be of a dead instance, and removed.
        let _ = fs::remove_file(&self.path);
    }
}

impl Servers {
    /// Looks into a data directory.
    pub(crate) fn of(data_dir: &Path) -> Result<Self, Failure> {
        let local = Local::load(data_dir)?;
        let mut known = running(data_dir);
        if known.is_empty()
            && let Some(url) = local.url
        {
            let (admin_url, agents) = (local.admin_url, local.agents);
            known.push(Entry { url, admin_url, agents, ..Entry::default() });
        }
        Ok(Self { known, token: local.token })
    }

    /// Where there is no data directory there are none.
    pub(crate) fn none() -> Self {
        Self { known: Vec::new(), token: None }
    }

    /// The one that is meant when none is named.
    pub(crate) fn newest(&self) -> Option<&Entry> {
        self.known.first()
    }

    /// All that are known, the newest first.
    pub(crate) fn all(&self) -> &[Entry] {
        &self.known
    }

    /// The one that a URL leads to.
    pub(crate) fn at(&self, url: &Url) -> Option<&Entry> {
        self.known.iter().find(|entry| entry.is_at(url))
    }

    /// The same URL, which leads to the address that a server listens on where it names that server as `localhost`. What else listens
    /// on another loopback address at the same port may belong to anybody on this machine.
    pub(crate) fn resolve(&self, mut url: Url) -> Url {
        if url.host_str() == Some("localhost") {
            let mut addresses = self.known.iter().filter(|entry| entry.runs).flat_map(Entry::addresses);
            // Fails only for URLs without a host.
            if let Some(own) = addresses.find(|own| same_origin(own, &url)) {
                let _ = url.set_host(own.host_str());
            }
        }
        url
    }

    /// Whether one of them runs at this URL.
    pub(crate) fn runs_at(&self, url: &Url) -> bool {
        self.at(url).is_some_and(|entry| entry.runs)
    }

    /// A connector that calls them where they listen, whatever their cards say.
    pub(crate) fn connector(&self, limits: Limits) -> Connector {
        let local = |entry: &Entry| {
            Some(LocalServer {
                listen: parse_url(&entry.url).ok()?,
                public: parse_url(entry.public_url.as_deref()?).ok()?,
                grpc_port: entry.grpc_port,
            })
        };
        Connector::with_local(limits, self.known.iter().filter(|entry| entry.runs).filter_map(local))
    }

    /// The stored token, if a server that knows it runs at this URL.
    pub(crate) fn token_for(&self, url: &Url) -> Option<String> {
        self.token.clone().filter(|_| self.runs_at(url))
    }
}

/// The servers that run, the newest first. What others have left is removed, as far as that is allowed.
fn running(data_dir: &Path) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(data_dir.join(DIRECTORY)) else { return Vec::new() };
    let mut found = Vec::new();
    for file in files.flatten() {
        let path = file.path();
        let name = file.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
        let Some(instance) = id.and_then(InstanceId::parse) else { continue };
        if store::is_dead(data_dir, instance) {
            let _ = fs::remove_file(&path);
            continue;
        }
        // It may have ended since the look.
        let Ok(bytes) = fs::read(&path) else { continue };
        match serde_json::from_slice::<Entry>(&bytes) {
            Ok(entry) => found.push(Entry { runs: true, ..entry }),
            Err(error) => tracing::warn!(path = %path.display(), %error, "what a server said of itself cannot be read"),
        }
    }
    found.sort_by_key(|entry| std::cmp::Reverse(entry.started));
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn urls(servers: &Servers) -> Vec<&str> {
        servers.all().iter().map(|entry| entry.url.as_str()).collect()
    }

    /// A server that runs, as far as anybody can tell.
    pub(crate) fn started(data: &Path, url: &str, started: i64) -> (store::Presence, Registered) {
        let instance = InstanceId::mint();
        let presence = store::announce(data, instance).unwrap();
        let entry = Entry { started, ..Entry::new(url, None, None) };
        let registered = entry.register(data, instance).unwrap_or_else(|failure| panic!("{failure:?}"));
        (presence, registered)
    }

    #[test]
    fn the_newest_that_runs_is_meant() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let token = Some("t".to_owned());
        Local { url: Some("http://127.0.0.1:9".to_owned()), token, ..Local::default() }.save(data).unwrap();
        assert_eq!(urls(&Servers::of(data).unwrap()), ["http://127.0.0.1:9"], "as versions before wrote it");

        let first = started(data, "http://127.0.0.1:1", 1);
        let second = started(data, "http://127.0.0.1:2", 2);
        let servers = Servers::of(data).unwrap();
        assert_eq!(urls(&servers), ["http://127.0.0.1:2", "http://127.0.0.1:1"]);
        for (url, token) in [
            ("http://localhost:1/x", Some("t")),
            ("http://127.0.0.1:2", Some("t")),
            ("http://127.0.0.1:9", None),
            ("http://127.0.0.2:1", None),
            ("http://[::1]:1", None),
            ("http://localhost:9", None),
        ] {
            let url = servers.resolve(parse_url(url).unwrap());
            assert!(token.is_none() || url.host_str() == Some("127.0.0.1"), "{url}");
            assert_eq!(servers.token_for(&url).as_deref(), token, "{url}");
        }

        // One that was killed: its lock is free, its file stays.
        let (presence, registered) = second;
        let left = registered.path.clone();
        drop(presence);
        std::mem::forget(registered);
        assert_eq!(urls(&Servers::of(data).unwrap()), ["http://127.0.0.1:1"]);
        assert!(!left.exists(), "what is dead is removed");

        drop(first);
        assert_eq!(urls(&Servers::of(data).unwrap()), ["http://127.0.0.1:9"], "where one last answered");
    }

    #[test]
    fn what_is_damaged_hides_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let (_presence, damaged) = started(data, "http://127.0.0.1:1", 2);
        fs::write(&damaged.path, "{").unwrap();
        let _other = started(data, "http://127.0.0.1:2", 1);
        fs::write(data.join(DIRECTORY).join("notes.txt"), "x").unwrap();
        assert_eq!(urls(&Servers::of(data).unwrap()), ["http://127.0.0.1:2"]);
    }
}
