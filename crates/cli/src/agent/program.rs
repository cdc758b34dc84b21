//! `sb agent new NAME --lang LANGUAGE`: a directory with an agent file and a program that works at once.
//!
//! The templates are files of this crate, and a test runs each of them as it is written here.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use agents::Reader;
use clap::ValueEnum;
use serde_json::json;
use store::AgentId;

use super::{checked_json, warn};
use crate::{
    failure::Failure,
    output::{self, Format},
};

/// What a program is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// Python 3, which stays and takes turns
    Python,
    /// Node.js, which stays and takes turns
    Node,
    /// A shell script, started for each turn
    Sh,
    /// Rust without crates, started for each turn; it is built if cargo is here
    Rust,
}

/// The files of a template: where, and what. The first is the agent's; its name is the agent's id.
type Files = &'static [(&'static str, &'static str)];

/// In templates, the agent's id.
const NAME: &str = "NAME";

impl Language {
    fn files(self) -> Files {
        match self {
            Self::Python => &[
                ("NAME.toml", include_str!("templates/python/agent.toml")),
                ("main.py", include_str!("templates/python/main.py")),
            ],
            Self::Node => &[
                ("NAME.toml", include_str!("templates/node/agent.toml")),
                ("main.mjs", include_str!("templates/node/main.mjs")),
            ],
            Self::Sh => &[
                ("NAME.toml", include_str!("templates/sh/agent.toml")),
                ("main.sh", include_str!("templates/sh/main.sh")),
            ],
            Self::Rust => &[
                ("NAME.toml", include_str!("templates/rust/agent.toml")),
                ("Cargo.toml", include_str!("templates/rust/Cargo.toml")),
                ("src/main.rs", include_str!("templates/rust/main.rs")),
            ],
        }
    }
}

/// Makes the directory, by default one of the agent's name here.
pub(super) fn run(id: &str, language: Language, directory: Option<&Path>, format: Format) -> Result<(), Failure> {
    if let Err(why) = id.parse::<AgentId>() {
        return Err(Failure::usage(format!("`{id}` is not an agent id")).because(why));
    }
    let directory = directory.map_or_else(|| PathBuf::from(id), Path::to_owned);
    let written = write(id, language.files(), &directory)?;
    let built = language != Language::Rust || build(&directory)?;
    let made = Reader::default().state(&written[0]);
    let file = made.path.display().to_string();
    let mut next = Vec::new();
    if !built {
        next.push(("build it", format!("cd {} && cargo build --release", quoted(&directory.display().to_string()))));
    }
    next.push(("check it", format!("sb agent check {}", quoted(&file))));
    next.push(("give it to the server", format!("sb agent add {}", quoted(&file))));
    next.push(("call it", format!("sb send --agent {id} hello")));
    match format {
        Format::Json => {
            let mut shown = checked_json(&made);
            shown["files"] = json!(written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
            shown["next"] = json!(next.iter().map(|(_, command)| command).collect::<Vec<_>>());
            output::line(&shown.to_string());
        }
        Format::Text => {
            output::line(&format!("made agent {id} in {}", directory.display()));
            let width = next.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
            for (what, command) in next {
                output::line(&format!("  {:<width$}  {command}", format!("{what}:"), width = width + 1));
            }
        }
    }
    if built {
        warn(&made.id, &made.warnings);
    }
    Ok(())
}

/// Writes the files, and none if one of them is there already.
fn write(id: &str, files: Files, directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let place = |(name, _): &(&str, &str)| directory.join(name.replace(NAME, id));
    if let Some(there) = files.iter().map(place).find(|path| path.exists()) {
        return Err(Failure::failed(format!("there is a file `{}` already", there.display()))
            .hint("choose another name, or another directory with --dir"));
    }
    let mut written = Vec::new();
    for file in files {
        let path = place(file);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, file.1.replace(NAME, id)))
            .map_err(|error| Failure::failed(format!("cannot write `{}`", path.display())).caused_by(&error))?;
        written.push(path);
    }
    Ok(written)
}

/// Builds a Rust program. `false` where there is nothing to build it with.
fn build(directory: &Path) -> Result<bool, Failure> {
    let mut cargo = Command::new("cargo");
    // Where the file says that the program is, whatever this environment says.
    cargo.args(["build", "--release", "--offline", "--quiet", "--target-dir", "target"]).current_dir(directory);
    match cargo.stdin(Stdio::null()).output() {
        Ok(built) if built.status.success() => Ok(true),
        Ok(built) => Err(Failure::failed("the program was made, but cannot be built")
            .because(String::from_utf8_lossy(&built.stderr).trim().to_owned())
            .hint(format!("mend it and run `cargo build --release` in `{}`", directory.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::failed("cannot run cargo").caused_by(&error)),
    }
}

/// An argument as a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+=:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_an_agent_file() {
        for language in Language::value_variants() {
            let place = tempfile::tempdir().unwrap();
            let written = write("it", language.files(), place.path()).unwrap();
            let state = Reader::default().state(&written[0]);
            assert_eq!((state.error, state.id.as_str()), (None, "it"), "{language:?}");
            for path in &written {
                assert!(!fs::read_to_string(path).unwrap().contains(NAME), "{}", path.display());
            }
            assert!(write("it", language.files(), place.path()).is_err(), "nothing is written over");
        }
    }

    #[test]
    fn a_shell_reads_what_is_quoted() {
        assert_eq!(quoted("a/b.toml"), "a/b.toml");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }
}
