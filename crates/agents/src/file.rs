//! One agent file, `<id>.toml`: the keys that every agent has at the top, and the table of its kind.
//!
//! A file is taken whole or not at all. What is wrong is said with the key and the line, and a name that does not exist
//! with the one that was probably meant. A file in an older form reads as it always did, and a warning shows the new one.

mod common;
mod table;

use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use exchange::{Delivery, Entry, OnCrash, Profile, ReplyMode};
use store::AgentId;

pub use self::table::{Table, keys_of, quotes};
use self::{common::Common, table::unknown};
use crate::{
    command::Quarters,
    kind::{Context, KINDS, Kind},
    mind,
    model::Models,
    remote::Remotes,
    settled,
};

/// Reads agent files.
#[derive(Clone)]
pub struct Reader {
    kinds: &'static [Kind],
    quarters: Quarters,
    remotes: Option<Remotes>,
    models: Option<Models>,
}

/// An agent file that was read without fault.
pub struct AgentFile {
    /// What callers and workers need to know, and what runs.
    pub entry: Entry,
    /// What the operator should know, such as a program that is not there.
    pub warnings: Vec<String>,
    /// Whether it means something else when it stands in another directory.
    pub relative: bool,
    /// Files whose change makes the agent anew.
    pub watched: Vec<PathBuf>,
}

/// A file and what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// The agent's id, or the file's name where that is none.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// The agent's name.
    pub name: Option<String>,
    /// The agent's kind.
    pub kind: Option<&'static str>,
    /// Why the file cannot be loaded.
    pub error: Option<String>,
    /// What the operator should know of a file that can.
    pub warnings: Vec<String>,
}

/// Why a file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not an agent file.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line where there is one.
        problem: String,
    },
}

impl Reader {
    /// A reader that knows these kinds. `instance` marks what the agents start, see [`crate::guard`].
    pub fn new(kinds: &'static [Kind], instance: impl Into<Arc<str>>) -> Self {
        let quarters = Quarters { mark: instance.into(), ..Quarters::default() };
        Self { kinds, quarters, remotes: None, models: None }
    }

    /// Programs of the agents that it reads live here.
    #[must_use]
    pub fn with_quarters(self, quarters: Quarters) -> Self {
        Self { quarters, ..self }
    }

    /// Agents that it reads can be those of remotes, which are these.
    #[must_use]
    pub fn with_remotes(self, remotes: Remotes) -> Self {
        Self { remotes: Some(remotes), ..self }
    }

    /// Agents that it reads can think with these.
    #[must_use]
    pub fn with_models(self, models: Models) -> Self {
        Self { models: Some(models), ..self }
    }

    /// Reads an agent file.
    pub fn load(&self, path: &Path) -> Result<AgentFile, Error> {
        self.parse(path, &read(path)?)
    }

    /// Reads the text of an agent file that stands at `path`.
    pub fn parse(&self, path: &Path, text: &str) -> Result<AgentFile, Error> {
        let id = id_of(path)?;
        self.build(id, path, text).map_err(|problem| Error::Invalid { path: path.to_owned(), problem })
    }

    /// Reads an agent file to tell about it.
    pub fn state(&self, path: &Path) -> FileState {
        FileState::of(path, &self.load(path))
    }

    fn build(&self, id: AgentId, path: &Path, text: &str) -> Result<AgentFile, String> {
        let mut top = Table::parse(text)?;
        let kind = self.kind(&mut top)?;
        for other in self.kinds.iter().filter(|other| other.name != kind.name) {
            if let Some(line) = top.line_of(other.name) {
                return Err(format!(
                    "line {line}: the table `[{0}]` is for files with `kind = \"{0}\"`, and this one has `kind = \"{1}\"`",
                    other.name, kind.name
                ));
            }
        }
        let mut own = top.table(kind.name)?;
        top.beside(format!("in the table `[{}]`", kind.name), (kind.keys)());
        own.beside("at the top of the file, above all tables".to_owned(), keys_of::<Common>());
        let mut warnings = Vec::new();
        warnings.extend(top.adopt(kind.moved, &mut own)?);

        let mut profile = Profile::new(id.clone(), kind.name);
        (kind.prepare)(&mut profile);
        let common: Common = top.read()?;
        let given = common.describe(&mut profile, &mut warnings)?;
        let named = given.directory.clone();
        let path = std::path::absolute(path).map_err(|error| format!("its directory is not known: {error}"))?;
        let directory = named.as_deref().or_else(|| path.parent()).unwrap_or(&path).to_owned();
        let context = Context {
            id,
            tenants: profile.tenants.clone(),
            quarters: self.quarters.clone(),
            remotes: self.remotes.clone(),
            models: self.models.clone(),
            directory,
            relative: Cell::new(false),
            watched: RefCell::default(),
        };
        let built = (kind.build)(own, &context)?;
        profile.delivery = built.delivery;
        if let Some(own) = built.described {
            given.complete(&mut profile, own);
        }
        if built.delivery != Delivery::Run {
            if profile.on_crash == OnCrash::Resume {
                let why = "`on_crash`: \"resume\" is for what this server runs; a worker begins anew: \"retry\", \"fail\" or \"ask\"";
                return Err(why.to_owned());
            }
            let unused = [("timeout", profile.timeout.is_some()), ("reply", profile.reply != ReplyMode::Task)];
            let unused = unused.into_iter().filter(|(_, given)| *given);
            warnings.extend(unused.map(|(key, _)| format!("`{key}` does nothing where workers do the work")));
        }
        if kind.name == mind::KIND.name && profile.on_crash != OnCrash::Resume {
            return Err(
                "`on_crash`: an agent run by a model always goes on behind its last step: \"resume\"".to_owned()
            );
        }
        warnings.extend(built.warnings);
        let relative = named.is_none() && context.relative.get();
        let watched = context.watched.into_inner();
        Ok(AgentFile { entry: Entry::new(profile, built.agent), warnings, relative, watched })
    }

    fn kind(&self, top: &mut Table<'_>) -> Result<&Kind, String> {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
        let Some(name) = top.text("kind")? else {
            return Err(format!("missing key `kind`; kinds are: {}", names.join(", ")));
        };
        self.kinds.iter().find(|kind| kind.name == name).ok_or_else(|| unknown("kind", &name, &names))
    }
}

/// With every kind there is, to look at files without running what they describe.
impl Default for Reader {
    fn default() -> Self {
        Self::new(KINDS, "")
    }
}

impl FileState {
    pub(crate) fn of(path: &Path, read: &Result<AgentFile, Error>) -> Self {
        let mut state = Self {
            id: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            path: path.to_owned(),
            name: None,
            kind: None,
            error: None,
            warnings: Vec::new(),
        };
        match read {
            Ok(file) => {
                state.name = Some(file.entry.profile.name.clone());
                state.kind = Some(file.entry.profile.kind);
                state.warnings.clone_from(&file.warnings);
            }
            Err(Error::Invalid { problem, .. }) => state.error = Some(problem.clone()),
            Err(error) => state.error = Some(error.to_string()),
        }
        state
    }
}

/// The agent's id: the file's name without its ending.
pub fn id_of(path: &Path) -> Result<AgentId, Error> {
    let invalid = |problem: String| Error::Invalid { path: path.to_owned(), problem };
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.ok_or_else(|| invalid("the file's name is not UTF-8 text".to_owned()))?;
    stem.parse().map_err(|why| invalid(format!("the file's name gives the agent's id, and `{stem}` is none: {why}")))
}

/// The agent files of a directory, by name. A directory that is not there is empty.
pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    list_ending(directory, &["toml"])
}

/// The files of a directory with one of these endings, by name. A directory that is not there is empty.
pub(crate) fn list_ending(directory: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // Links are followed; what went away in between is not there.
        let ends = path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known));
        if !hidden && ends && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    settled::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
