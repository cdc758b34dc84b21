//! The directory of agent files: loaded at start, and again when a file comes, changes or goes.
//!
//! The directory is looked at twice a second. A file that is touched is loaded again, and so is one whose program has changed, where the
//! file asks for that. A file that breaks keeps its last good version; a file that
//! never was good is no agent, and hides a built-in one of the same id all the same: whoever put it there
//! did not mean the built-in one to answer.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, SystemTime},
};

use exchange::{Agents, Entry};
use store::AgentId;

use crate::file::{self, FileState, Reader};

/// How often the directory is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What the files need to become agents.
pub struct Options {
    /// Agents that exist without a file, unless a file has their id.
    pub builtins: Vec<Entry>,
    /// Who reads the files.
    pub reader: Reader,
}

/// The agents of a directory. Cheap to clone; the last clone that is dropped ends the watching.
#[derive(Clone)]
pub struct AgentFiles {
    files: Arc<Mutex<Files>>,
    /// Never sent to: its end is the sign to stop.
    _watching: mpsc::SyncSender<()>,
}

struct Files {
    directory: PathBuf,
    agents: Agents,
    builtins: BTreeMap<AgentId, Entry>,
    reader: Reader,
    known: BTreeMap<PathBuf, Known>,
    /// Whether the directory could not be read, so that it is said once.
    unreadable: bool,
}

struct Known {
    stamp: Stamp,
    /// Other files that are part of the agent, as they were when it was loaded.
    watched: Vec<(PathBuf, Option<Stamp>)>,
    state: FileState,
    /// Whether the agent runs, in its last good version if the file is broken.
    loaded: bool,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
    /// Who may change the file and its directory decides whether it is read.
    modes: (u32, u32),
}

impl AgentFiles {
    /// Loads the directory into `agents`, built-in agents included, and keeps it loaded. A directory that
    /// does not exist is empty.
    pub fn start(directory: &Path, agents: &Agents, options: Options) -> io::Result<Self> {
        let mut builtins = BTreeMap::new();
        for entry in options.builtins {
            agents.insert(again(&entry));
            builtins.insert(entry.profile.id.clone(), entry);
        }
        let mut files = Files {
            directory: std::path::absolute(directory)?,
            agents: agents.clone(),
            builtins,
            reader: options.reader,
            known: BTreeMap::new(),
            unreadable: false,
        };
        files.look();
        let files = Arc::new(Mutex::new(files));
        let (watching, stop) = mpsc::sync_channel(0);
        let watched = Arc::clone(&files);
        thread::Builder::new().name("agent-files".to_owned()).spawn(move || {
            while stop.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                lock(&watched).look();
            }
        })?;
        Ok(Self { files, _watching: watching })
    }

    /// Looks at the directory now, for whoever has just changed it.
    pub fn refresh(&self) {
        lock(&self.files).look();
    }

    /// The files as they stand, by path.
    pub fn snapshot(&self) -> Vec<FileState> {
        lock(&self.files).known.values().map(|known| known.state.clone()).collect()
    }
}

impl Files {
    fn look(&mut self) {
        // A directory that is gone takes its agents along; one that cannot be read changes nothing.
        let found = match stamps(&self.directory) {
            Ok(found) => {
                self.unreadable = false;
                found
            }
            Err(error) => {
                if !self.unreadable {
                    tracing::warn!(path = %self.directory.display(), error = %error, "the agent directory cannot be read; its agents stay as they are");
                }
                self.unreadable = true;
                return;
            }
        };
        let gone: Vec<PathBuf> = self.known.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        for path in gone {
            self.remove(&path);
        }
        for (path, stamp) in found {
            if self.known.get(&path).is_none_or(|known| known.stamp != stamp || known.has_changed()) {
                self.load(path, stamp);
            }
        }
    }

    fn load(&mut self, path: PathBuf, stamp: Stamp) {
        let read = self.reader.load(&path);
        let watched = match (&read, self.known.get(&path)) {
            (Ok(file), _) => file.watched.clone(),
            // Those of its last good version.
            (Err(_), Some(known)) => known.watched.iter().map(|(path, _)| path.clone()).collect(),
            (Err(_), None) => Vec::new(),
        };
        let watched = watched.into_iter().map(|path| (path.clone(), stamp_of(&path, 0))).collect();
        let state = FileState::of(&path, &read);
        let loaded_before = self.known.get(&path).is_some_and(|known| known.loaded);
        let loaded = loaded_before || read.is_ok();
        match read {
            Ok(file) => {
                let id = &state.id;
                for warning in &state.warnings {
                    tracing::warn!(agent.name = %id, path = %path.display(), "agent `{id}`: {warning}");
                }
                if !loaded_before && self.builtins.contains_key(&file.entry.profile.id) {
                    tracing::warn!(agent.name = %id, path = %path.display(), "agent `{id}` takes the place of the built-in one");
                }
                self.agents.insert(file.entry);
                let verb = if loaded_before { "reloaded" } else { "loaded" };
                tracing::info!(agent.name = %id, path = %path.display(), "{verb} agent `{id}`");
            }
            Err(error) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if loaded_before {
                    tracing::warn!(path = %path.display(), error = %error, "`{name}` is broken; its last good version stays");
                } else {
                    tracing::error!(path = %path.display(), error = %error, "`{name}` is broken; there is no such agent");
                    if let Ok(id) = file::id_of(&path) {
                        self.agents.remove(&id);
                    }
                }
            }
        }
        self.known.insert(path, Known { stamp, watched, state, loaded });
    }

    fn remove(&mut self, path: &Path) {
        let (Some(known), Ok(id)) = (self.known.remove(path), file::id_of(path)) else { return };
        if let Some(builtin) = self.builtins.get(&id) {
            self.agents.insert(again(builtin));
            tracing::info!(agent.name = %id, path = %path.display(), "the built-in agent `{id}` is back");
        } else if known.loaded {
            self.agents.remove(&id);
            tracing::info!(agent.name = %id, path = %path.display(), "removed agent `{id}`");
        }
    }
}

impl Known {
    /// Whether a file that is part of the agent is another than it was.
    fn has_changed(&self) -> bool {
        self.watched.iter().any(|(path, stamp)| stamp_of(path, 0) != *stamp)
    }
}

/// The agent files of a directory, with what changes when they do.
fn stamps(directory: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    let place = fs::metadata(directory).map_or(0, |metadata| metadata.mode());
    for path in file::list(directory)? {
        if let Some(stamp) = stamp_of(&path, place) {
            found.insert(path, stamp);
        }
    }
    Ok(found)
}

/// What changes when a file in a directory of this mode does; `None` where there is none.
fn stamp_of(path: &Path, directory: u32) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    let modes = (metadata.mode(), directory);
    Some(Stamp { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino(), modes })
}

/// The same agent with all its slots free.
fn again(entry: &Entry) -> Entry {
    Entry::new(entry.profile.clone(), Arc::clone(&entry.agent))
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}
