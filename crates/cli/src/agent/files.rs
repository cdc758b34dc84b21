//! The directory of agent files: read, checked, and changed so that the server never sees half a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use agents::file;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Where agent files are.
pub(crate) struct Directory {
    path: PathBuf,
}

/// A file and what is in it.
pub(crate) struct FileAgent {
    /// The agent's id, or what the file is called where that is none.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<&'static str>,
    /// Why it cannot be loaded.
    pub(crate) problem: Option<String>,
    /// What will go wrong when the agent is called.
    pub(crate) warnings: Vec<String>,
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
    pub(crate) fn agents(&self) -> Result<Vec<FileAgent>, Failure> {
        let failure = |error: &io::Error| {
            Failure::failed(format!("cannot read the agents in `{}`", self.path.display())).caused_by(error)
        };
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failure(&error)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failure(&error))?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|ending| ending == "toml") && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths.iter().map(|path| FileAgent::read(path)).collect())
    }

    /// Copies a file here. It runs where it ran: what is relative to the file's directory stays relative to that.
    pub(crate) fn add(&self, from: &Path, id: Option<&str>, replace: bool) -> Result<FileAgent, Failure> {
        let refuse = |error: &file::Error| {
            Failure::failed(format!("`{}` is not an agent file that can be added", from.display()))
                .caused_by(error)
                .hint("`docs/agents.md` describes the file; `sb agent check FILE` checks it")
        };
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
        let read = file::parse(&source.with_file_name(format!("{id}.toml")), &text).map_err(|error| refuse(&error))?;
        let to = self.path(&id);
        let text = settled(&text, &to, &read.command.cwd).ok_or_else(|| {
            Failure::failed(format!("`{}` runs relative to its own directory", from.display()))
                .because("and its text has no simple place to say so once it is copied")
                .hint(format!("add `cwd = \"{}\"` below `[command]`", read.command.cwd.display()))
        })?;
        if !replace && to.exists() {
            return Err(Failure::failed(format!("there is an agent file `{}` already", to.display()))
                .hint("--replace puts the new one in its place"));
        }
        write(&to, &text)
            .map_err(|error| Failure::failed(format!("cannot write `{}`", to.display())).caused_by(&error))?;
        Ok(FileAgent::read(&to))
    }

    /// Deletes an agent's file.
    pub(crate) fn remove(&self, id: &str) -> Result<PathBuf, Failure> {
        if let Err(why) = id.parse::<store::AgentId>() {
            return Err(Failure::usage(format!("`{id}` is not an agent id")).because(why));
        }
        let path = self.path(id);
        match fs::remove_file(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let failure = Failure::failed(format!("there is no agent file `{}`", path.display()));
                let builtin = agents::demo().iter().any(|entry| entry.profile.id.as_str() == id);
                Err(if builtin {
                    failure.hint("this is a demo agent; `demo_agents = false` in the configuration removes them all")
                } else {
                    failure.hint("`sb agent list` shows what there is")
                })
            }
            Err(error) => Err(Failure::failed(format!("cannot remove `{}`", path.display())).caused_by(&error)),
        }
    }
}

impl FileAgent {
    pub(crate) fn read(path: &Path) -> Self {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match file::check(path) {
            Ok(checked) => Self {
                id: checked.file.profile.id.to_string(),
                path: path.to_owned(),
                name: Some(checked.file.profile.name),
                kind: Some(checked.file.profile.kind),
                problem: None,
                warnings: checked.warnings,
            },
            Err(error) => {
                let problem = match error {
                    file::Error::Invalid { problem, .. } => problem,
                    error => error.to_string(),
                };
                Self {
                    id: stem,
                    path: path.to_owned(),
                    name: None,
                    kind: None,
                    problem: Some(problem),
                    warnings: vec![],
                }
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "kind": self.kind, "source": self.path.display().to_string(),
            "ok": self.problem.is_none(), "error": self.problem, "warnings": self.warnings,
        })
    }
}

/// The file's text so that, standing at `to`, it runs in `cwd`. `None` when there is no simple way to say that in it.
fn settled(text: &str, to: &Path, cwd: &Path) -> Option<String> {
    let runs_there = |text: &str| file::parse(to, text).is_ok_and(|read| read.command.cwd == cwd);
    if runs_there(text) {
        return Some(text.to_owned());
    }
    let line = format!("cwd = {}", toml::Value::String(cwd.to_str()?.to_owned()));
    let mut lines: Vec<&str> = text.lines().collect();
    let header = lines.iter().position(|line| line.split('#').next().unwrap_or_default().trim() == "[command]")?;
    let is_cwd =
        |line: &&str| line.trim_start().strip_prefix("cwd").is_some_and(|rest| rest.trim_start().starts_with('='));
    match lines[header + 1..].iter().take_while(|line| !line.starts_with('[')).position(is_cwd) {
        Some(offset) => lines[header + 1 + offset] = &line,
        None => lines.insert(header + 1, &line),
    }
    let settled = lines.join("\n") + "\n";
    runs_there(&settled).then_some(settled)
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
    use super::*;

    const FILE: &str = "kind = \"command\"\n[command] # runs\nargv = [\"sh\", \"x.sh\"]\n";

    #[test]
    fn a_copied_file_runs_where_it_ran() {
        let to = Path::new("/agents/x.toml");
        let cwd = Path::new("/home/me/\"x\"");
        let text = settled(FILE, to, cwd).unwrap();
        assert_eq!(file::parse(to, &text).unwrap().command.cwd, cwd);
        let relative = FILE.replace("[command] # runs\n", "[command]\ncwd = \"below\"\n");
        let text = settled(&relative, to, cwd).unwrap();
        assert_eq!(file::parse(to, &text).unwrap().command.cwd, cwd);
        assert!(!text.contains("below"));
        let absolute = FILE.replace("# runs\n", "\ncwd = \"/srv\"\n");
        assert_eq!(settled(&absolute, to, Path::new("/srv")).unwrap(), absolute, "nothing to change");
        let inline = "kind = \"command\"\ncommand = { argv = [\"sh\"] }\n";
        assert!(settled(inline, to, cwd).is_none());
    }
}
