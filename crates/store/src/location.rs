//! Where the journal is, and the one place that chooses what opens it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, InstanceId, Result, Store, Wake, postgres, sqlite, wake};

/// How many connections of PostgreSQL read, when nothing else is said.
pub const CONNECTIONS: usize = 8;

/// Where the journal is. Printing it prints no password.
#[derive(Debug, Clone)]
pub enum Location {
    /// A file of SQLite in this directory.
    Sqlite(PathBuf),
    /// A database of PostgreSQL.
    Postgres(Box<postgres::Url>),
}

/// How the journal is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How many connections or threads read; one in each instance more than that writes.
    pub connections: usize,
    /// How instances hear of each other's commits; what fits the store when nothing is said.
    pub wake: Option<Wake>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { connections: CONNECTIONS, wake: None }
    }
}

impl Location {
    /// Reads what people write: `postgres://…`, `postgresql://…` or `sqlite:DIR`. Says what is wrong, without repeating a
    /// password.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if let Some(dir) = text.strip_prefix("sqlite:") {
            let dir = dir.strip_prefix("//").unwrap_or(dir);
            if dir.is_empty() {
                return Err("`sqlite:` needs a directory, such as sqlite:/var/lib/switchboard".into());
            }
            return Ok(Self::Sqlite(PathBuf::from(dir)));
        }
        if postgres::Url::is_one(text) {
            return text
                .parse()
                .map(|url| Self::Postgres(Box::new(url)))
                .map_err(|error: postgres::BadUrl| error.to_string());
        }
        Err("write postgres://USER@HOST/DATABASE, or sqlite:DIRECTORY".into())
    }

    /// The directory, when it is SQLite.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(dir) => Some(dir),
            Self::Postgres(_) => None,
        }
    }

    /// What wakes instances when nothing is said, or why what is said cannot be.
    pub fn wake(&self, wanted: Option<&Wake>) -> std::result::Result<Wake, String> {
        match (self, wanted) {
            (Self::Sqlite(_), None) => Ok(Wake::Local),
            (Self::Postgres(_), None) => Ok(Wake::Notify),
            (Self::Sqlite(_), Some(Wake::Notify)) => {
                Err("`notify` is PostgreSQL's, and the store is SQLite: its processes hear of each other by the file"
                    .into())
            }
            (_, Some(wake)) => Ok(wake.clone()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(dir) => write!(f, "sqlite:{}", dir.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// Opens or creates the journal.
pub async fn open(location: &Location, options: OpenOptions) -> Result<Arc<dyn Store>> {
    let wake = location.wake(options.wake.as_ref()).map_err(Error::Unavailable)?;
    let store: Arc<dyn Store> = match location {
        Location::Sqlite(dir) => {
            let defaults = sqlite::Options::default();
            let readers = options.connections.min(defaults.readers);
            sqlite::open(dir, sqlite::Options { readers, wake: wake.clone(), ..defaults })?
        }
        Location::Postgres(url) => {
            let defaults = postgres::Options::default();
            let connections = options.connections;
            postgres::open(url, postgres::Options { connections, wake: wake.clone(), ..defaults }).await?
        }
    };
    wake::join(store.as_ref(), &wake).await?;
    Ok(store)
}

/// A file in an instance's own directory that says that the instance lives. SQLite's journal has it by itself; with
/// PostgreSQL it lets the command line find the server, and the next start what a killed one left behind.
pub struct Presence(#[expect(dead_code, reason = "held for its lock")] sqlite::instances::Presence);

/// Says that this instance lives, in a directory that is made if it is not there.
pub fn announce(dir: &Path, instance: InstanceId) -> Result<Presence> {
    let failed = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", dir.display()));
    sqlite::create_private_dir(dir).map_err(failed)?;
    sqlite::instances::Presence::announce(&dir.join(sqlite::INSTANCES), instance).map(Presence)
}

/// The instances that were announced in `dir` and are gone without having said so.
pub fn dead_instances(dir: &Path) -> Vec<InstanceId> {
    sqlite::dead_instances(dir)
}

/// Whether an instance that was announced in `dir` is gone for good. When in doubt it lives.
pub fn is_dead(dir: &Path, instance: InstanceId) -> bool {
    sqlite::instances::is_dead(&dir.join(sqlite::INSTANCES), &instance.to_string())
}

/// Forgets an instance that is dead and has been cleaned up after.
pub fn bury(dir: &Path, instance: InstanceId) {
    sqlite::instances::bury(&dir.join(sqlite::INSTANCES), &instance.to_string());
}
