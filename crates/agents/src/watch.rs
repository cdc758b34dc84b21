//! The directory of agent files: loaded at start, and again when a file comes, changes or goes.
//!
//! The directory is looked at twice a second. A file that breaks keeps its last good version; a file that
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

use crate::{
    command::CommandAgent,
    file::{self, AgentFile},
};

/// How often the directory is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What the files need to become agents.
pub struct Options {
    /// Agents that exist without a file, unless a file has their id.
    pub builtins: Vec<Entry>,
    /// The mark of this server's programs, see [`crate::guard`].
    pub instance: String,
}

/// A file and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// The agent's id, or the file's name where that is none.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with the file as it stands.
    pub error: Option<String>,
    /// Whether the agent runs, in its last good version if there is an error.
    pub loaded: bool,
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
    instance: Arc<str>,
    known: BTreeMap<PathBuf, Known>,
    /// Whether the directory could not be read, so that it is said once.
    unreadable: bool,
}

struct Known {
    stamp: Stamp,
    text: Option<String>,
    id: Option<AgentId>,
    error: Option<String>,
    loaded: bool,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
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
            instance: options.instance.into(),
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

    /// The files and what became of them, by path.
    pub fn snapshot(&self) -> Vec<FileState> {
        let files = lock(&self.files);
        let state = |(path, known): (&PathBuf, &Known)| FileState {
            id: match &known.id {
                Some(id) => id.to_string(),
                None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            },
            path: path.clone(),
            error: known.error.clone(),
            loaded: known.loaded,
        };
        files.known.iter().map(state).collect()
    }

    /// The directory.
    pub fn directory(&self) -> PathBuf {
        lock(&self.files).directory.clone()
    }
}

impl Files {
    fn look(&mut self) {
        let found = match list(&self.directory) {
            Ok(found) => {
                self.unreadable = false;
                found
            }
            // A directory that is gone takes its agents along; one that cannot be read changes nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
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
            if self.known.get(&path).is_none_or(|known| known.stamp != stamp) {
                self.load(path, stamp);
            }
        }
    }

    fn load(&mut self, path: PathBuf, stamp: Stamp) {
        let before = self.known.remove(&path);
        let (text, read) = match fs::read_to_string(&path) {
            Ok(text) => {
                let read = file::parse(&path, &text);
                (Some(text), read)
            }
            Err(source) => (None, Err(file::Error::Read { path: path.clone(), source })),
        };
        if let Some(known) = before.as_ref().filter(|known| text.is_some() && known.text == text) {
            // Touched, not changed.
            let known = Known { stamp, text, id: known.id.clone(), error: known.error.clone(), loaded: known.loaded };
            self.known.insert(path, known);
            return;
        }
        let loaded_before = before.as_ref().is_some_and(|known| known.loaded);
        let known = match read {
            Ok(AgentFile { profile, command }) => {
                let id = profile.id.clone();
                for problem in command.problems() {
                    tracing::warn!(agent.name = %id, path = %path.display(), "agent `{id}` will fail: {problem}");
                }
                let verb = if loaded_before { "reloaded" } else { "loaded" };
                self.agents
                    .insert(Entry::new(profile, Arc::new(CommandAgent::new(command, Arc::clone(&self.instance)))));
                tracing::info!(agent.name = %id, path = %path.display(), "{verb} agent `{id}`");
                Known { stamp, text, id: Some(id), error: None, loaded: true }
            }
            Err(error) => {
                let id = file::id_of(&path).ok();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if loaded_before {
                    tracing::warn!(path = %path.display(), error = %error, "`{name}` is broken; its last good version stays");
                } else {
                    tracing::error!(path = %path.display(), error = %error, "`{name}` is broken; there is no such agent");
                    if let Some(id) = &id {
                        self.agents.remove(id);
                    }
                }
                Known { stamp, text, id, error: Some(error.to_string()), loaded: loaded_before }
            }
        };
        self.known.insert(path, known);
    }

    fn remove(&mut self, path: &Path) {
        let Some(Known { id: Some(id), loaded, .. }) = self.known.remove(path) else { return };
        if let Some(builtin) = self.builtins.get(&id) {
            self.agents.insert(again(builtin));
            tracing::info!(agent.name = %id, path = %path.display(), "the built-in agent `{id}` is back");
        } else if loaded {
            self.agents.remove(&id);
            tracing::info!(agent.name = %id, path = %path.display(), "removed agent `{id}`");
        }
    }
}

/// The files of agents in a directory, with what changes when they do.
fn list(directory: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        // Links are followed; what went away in between is not there.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_file() {
            let stamp = Stamp { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() };
            found.insert(path, stamp);
        }
    }
    Ok(found)
}

/// The same agent with all its slots free.
fn again(entry: &Entry) -> Entry {
    Entry::new(entry.profile.clone(), Arc::clone(&entry.agent))
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}
