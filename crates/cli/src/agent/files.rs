//! The directory of agent files: read, checked, and changed so that the server never sees half a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use agents::{FileState, Reader, file, units::nearest};

use crate::{failure::Failure, findings};

/// Where agent files are.
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the file of this agent is or would be.
    pub(crate) fn path(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}.toml"))
    }

    /// All files, by name. A directory that is not there is empty.
    pub(crate) fn agents(&self, reader: &Reader) -> Result<Vec<FileState>, Failure> {
        let paths = file::list(&self.path).map_err(|error| {
            Failure::failed(format!("cannot read the agents in `{}`", self.path.display())).caused_by(&error)
        })?;
        Ok(paths.iter().map(|path| reader.state(path)).collect())
    }

    /// Copies a file here. It runs where it ran: what is meant from the file's directory stays meant from that.
    pub(crate) fn add(&self, from: &Path, id: Option<&str>, replace: bool) -> Result<FileState, Failure> {
        let refuse = |error: &file::Error| {
            Failure::failed(format!("`{}` is not an agent file that can be added", from.display()))
                .caused_by(error)
                .hint("`docs/agents.md` describes the file; `sb agent check FILE` checks it")
        };
        if from.is_dir() {
            return Err(Failure::failed(format!("`{}` is a directory", from.display()))
                .hint("name the agent's file in it, such as `agent.toml`"));
        }
        let id = match id {
            Some(id) => id.to_owned(),
            None => file::id_of(from).map_err(|error| refuse(&error))?.to_string(),
        };
        if let Err(why) = id.parse::<store::AgentId>() {
            return Err(Failure::usage(format!("`{id}` is not an agent id")).because(why));
        }
        let text = fs::read_to_string(from)
            .map_err(|error| Failure::failed(format!("cannot read `{}`", from.display())).caused_by(&error))?;
        // Checked under the name that it will have.
        let source = std::path::absolute(from).map_err(|error| Failure::failed("no such path").caused_by(&error))?;
        let source = source.with_file_name(format!("{id}.toml"));
        let reader = Reader::default();
        let read = reader.parse(&source, &text).map_err(|error| refuse(&error))?;
        let moved = read.relative && source.parent() != self.path(&id).parent();
        let text = if moved { settled(&text, &source)? } else { text };
        self.create(&reader, &id, &text, replace)
    }

    /// Makes the file of an agent.
    pub(crate) fn create(&self, reader: &Reader, id: &str, text: &str, replace: bool) -> Result<FileState, Failure> {
        let to = self.path(id);
        if !replace && to.exists() {
            return Err(Failure::failed(format!("there is an agent file `{}` already", to.display()))
                .hint("--replace puts the new one in its place"));
        }
        write(&to, text)
            .map_err(|error| Failure::failed(format!("cannot write `{}`", to.display())).caused_by(&error))?;
        let mut state = reader.state(&to);
        state.warnings.extend(findings::in_place_of_a_demo(id));
        Ok(state)
    }

    /// Deletes an agent's file.
    pub(crate) fn remove(&self, id: &str) -> Result<PathBuf, Failure> {
        self.change(id, "remove", |path| fs::remove_file(path))
    }

    /// Makes an agent's file look new, so that the server reads it again.
    pub(crate) fn touch(&self, id: &str) -> Result<PathBuf, Failure> {
        self.change(id, "touch", |path| {
            let now = std::time::UNIX_EPOCH
                + std::time::Duration::from_millis(store::clock::now().as_millis().unsigned_abs());
            fs::OpenOptions::new().append(true).open(path)?.set_modified(now)
        })
    }

    /// The agents that have a file, be it good or broken.
    pub(super) fn ids(&self) -> Vec<String> {
        let paths = file::list(&self.path).unwrap_or_default();
        paths.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
    }

    fn change(&self, id: &str, what: &str, change: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf, Failure> {
        if let Err(why) = id.parse::<store::AgentId>() {
            return Err(Failure::usage(format!("`{id}` is not an agent id")).because(why));
        }
        let path = self.path(id);
        match change(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("there is no agent file `{}`", path.display());
                let builtin = agents::demo().iter().any(|entry| entry.profile.id.as_str() == id);
                if builtin {
                    return Err(Failure::failed(text)
                        .hint("this is a demo agent; `demo_agents = false` in the configuration removes them all"));
                }
                Err(Failure::usage(text).hint(meant(id, &self.ids())))
            }
            Err(error) => Err(Failure::failed(format!("cannot {what} `{}`", path.display())).caused_by(&error)),
        }
    }
}

/// Which of the known agents may have been meant by an id that none of them has.
pub(super) fn meant(id: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    match nearest(id, &known) {
        Some(meant) => format!("did you mean `{meant}`? `sb agent list` shows what there is"),
        None => "`sb agent list` shows what there is".to_owned(),
    }
}

/// The text of a file that leaves its directory, with a line that names it.
fn settled(text: &str, source: &Path) -> Result<String, Failure> {
    let Some(directory) = source.parent().and_then(Path::to_str) else {
        return Err(Failure::failed(format!("`{}` is not UTF-8 text", source.display()))
            .hint("what runs relative to its own directory can only be added from one that is"));
    };
    let text = text.trim_start_matches('\u{feff}');
    Ok(format!("directory = {}\n{text}", toml::Value::String(directory.to_owned())))
}

/// Writes a file as a whole: whoever looks sees the old one or the new one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = directory.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What stays would be hidden from everybody.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copied_file_runs_where_it_ran() {
        let (home, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = Directory::new(place.path().to_owned());
        let source = home.path().join("a \"quoted\" one");
        fs::create_dir(&source).unwrap();
        let line = format!("directory = {}\n", toml::Value::String(source.to_str().unwrap().to_owned()));
        for (text, moved) in [
            ("kind = \"command\"\n[command] # runs\nargv = [\"./run\"]\n", true),
            ("kind = \"command\"\ncommand = { argv = [\"./run\"], cwd = \".\" }\n", true),
            ("\u{feff}kind = \"command\"\n[command]\nargv = [\"./run\"]\n", true),
            ("kind = \"command\"\n[command]\nargv = [\"true\"]\ncwd = \"/\"\n", false),
            ("kind = \"command\"\ndirectory = \"/\"\n[command]\nargv = [\"true\"]\n", false),
        ] {
            fs::write(source.join("x.toml"), text).unwrap();
            fs::write(source.join("run"), "").unwrap();
            fs::set_permissions(source.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
            let added = directory.add(&source.join("x.toml"), None, true).unwrap();
            assert_eq!((added.error, added.warnings), (None, vec![]), "its program is where it was\n{text}");
            let expected = if moved { line.clone() + text.trim_start_matches('\u{feff}') } else { text.to_owned() };
            assert_eq!(fs::read_to_string(added.path).unwrap(), expected);
        }
        let there = place.path().join("x.toml");
        let text = "kind = \"command\"\n[command]\nargv = [\"true\"]\n";
        fs::write(&there, text).unwrap();
        directory.add(&there, None, true).unwrap();
        assert_eq!(fs::read_to_string(&there).unwrap(), text, "it has not moved");
    }
}
