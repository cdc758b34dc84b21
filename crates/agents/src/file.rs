//! One agent file, `<id>.toml`: read, checked, and turned into a profile and what to run.
//!
//! A file is taken whole or not at all. What is wrong is said with the key and the line, and a key that
//! does not exist with the one that was probably meant.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use a2a::{AgentExtension, AgentSkill};
use exchange::{OnCrash, Profile, ReplyMode};
use serde::Deserialize;
use store::AgentId;

use crate::{
    command::{CommandSpec, OutputMode},
    units::{Size, Span, nearest},
};

/// What `kind` may be.
pub const KINDS: [&str; 1] = ["command"];

/// An agent file that was read without fault.
#[derive(Debug, Clone)]
pub struct AgentFile {
    /// What callers and workers need to know.
    pub profile: Profile,
    /// What runs.
    pub command: CommandSpec,
}

/// What [`check`] found in a file that can be loaded.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The file.
    pub file: AgentFile,
    /// What will go wrong when the agent is called: a program or a directory that is not there.
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

/// Reads an agent file.
pub fn load(path: &Path) -> Result<AgentFile, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads an agent file and looks for what a load does not: whether its program is there.
pub fn check(path: &Path) -> Result<Checked, Error> {
    let file = load(path)?;
    let warnings = file.command.problems();
    Ok(Checked { file, warnings })
}

/// Reads the text of an agent file that stands at `path`.
pub fn parse(path: &Path, text: &str) -> Result<AgentFile, Error> {
    read(path, text).map_err(|problem| Error::Invalid { path: path.to_owned(), problem })
}

/// The agent's id: the file's name without its ending.
pub fn id_of(path: &Path) -> Result<AgentId, Error> {
    let invalid = |problem: String| Error::Invalid { path: path.to_owned(), problem };
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let stem = stem.ok_or_else(|| invalid("the file's name is not UTF-8 text".to_owned()))?;
    stem.parse().map_err(|why| invalid(format!("the file's name gives the agent's id, and `{stem}` is none: {why}")))
}

/// Only the kind, so that a file of another kind is not blamed for its keys.
#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    name: Option<String>,
    description: Option<String>,
    version: Option<String>,
    skills: Option<Vec<RawSkill>>,
    input_modes: Option<Vec<String>>,
    output_modes: Option<Vec<String>>,
    extensions: Option<Vec<RawExtension>>,
    #[serde(rename = "kind")]
    _kind: String,
    reply: Option<RawReply>,
    tenants: Option<Vec<String>>,
    command: RawCommand,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSkill {
    id: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    examples: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExtension {
    uri: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    required: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCommand {
    argv: Vec<String>,
    cwd: Option<PathBuf>,
    output: Option<RawOutput>,
    timeout: Option<Span>,
    grace: Option<Span>,
    concurrency: Option<usize>,
    max_attempts: Option<u32>,
    max_output: Option<Size>,
    on_crash: Option<RawOnCrash>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    pass_env: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawReply {
    Task,
    Auto,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawOutput {
    Text,
    Events,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawOnCrash {
    Retry,
    Fail,
    Ask,
}

fn read(path: &Path, text: &str) -> Result<AgentFile, String> {
    let id = match id_of(path) {
        Ok(id) => id,
        Err(Error::Invalid { problem, .. }) => return Err(problem),
        Err(error) => return Err(error.to_string()),
    };
    let kind: Kind = toml::from_str(text).map_err(|error| explain(text, &error))?;
    let kinds = KINDS.map(|kind| format!("\"{kind}\"")).join(", ");
    match kind.kind.as_deref() {
        Some("command") => {}
        Some(other) => return Err(format!("there is no kind \"{other}\"; kinds are: {kinds}")),
        None => return Err(format!("`kind` is missing; kinds are: {kinds}")),
    }
    let raw: RawFile = toml::from_str(text).map_err(|error| explain(text, &error))?;
    let directory = std::path::absolute(path)
        .map_err(|error| format!("its directory cannot be found: {error}"))?
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    let command = command(&raw.command, &directory)?;
    let profile = profile(id, raw)?;
    Ok(AgentFile { profile, command })
}

fn profile(id: AgentId, raw: RawFile) -> Result<Profile, String> {
    let mut profile = Profile::new(id, "command");
    profile.name = filled("name", raw.name)?.unwrap_or_else(|| profile.id.to_string());
    profile.description = filled("description", raw.description)?.unwrap_or_else(|| profile.name.clone());
    profile.version = filled("version", raw.version)?.unwrap_or_else(|| "1.0.0".to_owned());
    profile.skills = skills(raw.skills, &profile)?;
    if let Some(modes) = raw.input_modes {
        profile.input_modes = media_types("input_modes", modes)?;
    }
    if let Some(modes) = raw.output_modes {
        profile.output_modes = media_types("output_modes", modes)?;
    }
    for extension in raw.extensions.unwrap_or_default() {
        if extension.uri.is_empty() {
            return Err("`extensions.uri` is empty".to_owned());
        }
        profile.extensions.push(AgentExtension {
            uri: extension.uri,
            description: extension.description,
            required: extension.required,
            params: None,
        });
    }
    profile.reply = match raw.reply {
        Some(RawReply::Auto) => ReplyMode::Auto,
        Some(RawReply::Task) | None => ReplyMode::Task,
    };
    profile.tenants = raw.tenants.map(|names| names.into_iter().collect());
    let command = raw.command;
    profile.timeout = command.timeout.map(|timeout| timeout.0);
    profile.concurrency = at_least_one("command.concurrency", command.concurrency, profile.concurrency)?;
    profile.max_attempts = at_least_one("command.max_attempts", command.max_attempts, profile.max_attempts)?;
    profile.on_crash = match command.on_crash {
        Some(RawOnCrash::Fail) => OnCrash::Fail,
        Some(RawOnCrash::Ask) => OnCrash::Ask,
        Some(RawOnCrash::Retry) | None => OnCrash::Retry,
    };
    Ok(profile)
}

fn command(raw: &RawCommand, directory: &Path) -> Result<CommandSpec, String> {
    if raw.argv.first().is_none_or(String::is_empty) {
        return Err("`command.argv` needs a program".to_owned());
    }
    if raw.argv.iter().any(|argument| argument.contains('\0')) {
        return Err("`command.argv` holds a NUL character".to_owned());
    }
    let is_name = |name: &&String| !name.is_empty() && !name.contains(['=', '\0']);
    if let Some(name) = raw.env.keys().chain(&raw.pass_env).find(|name| !is_name(name)) {
        return Err(format!("`{}` is not a name of an environment variable", name.escape_default()));
    }
    if let Some((name, _)) = raw.env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(format!("`command.env.{name}` holds a NUL character"));
    }
    let cwd = match &raw.cwd {
        Some(cwd) => directory.join(cwd),
        None => directory.to_path_buf(),
    };
    let mut spec = CommandSpec::new(raw.argv.clone(), cwd);
    spec.output = match raw.output {
        Some(RawOutput::Events) => OutputMode::Events,
        Some(RawOutput::Text) | None => OutputMode::Text,
    };
    spec.env = raw.env.clone();
    spec.pass_env = raw.pass_env.clone();
    spec.grace = raw.grace.map_or(spec.grace, |grace| grace.0);
    spec.max_output = at_least_one("command.max_output", raw.max_output.map(|size| size.0), spec.max_output)?;
    Ok(spec)
}

/// The card's skills; an agent that names none has one, which is all it does.
fn skills(raw: Option<Vec<RawSkill>>, profile: &Profile) -> Result<Vec<AgentSkill>, String> {
    let raw = raw.unwrap_or_default();
    if raw.is_empty() {
        return Ok(vec![AgentSkill {
            id: profile.id.to_string(),
            name: profile.name.clone(),
            description: profile.description.clone(),
            tags: vec![profile.id.to_string()],
            ..AgentSkill::default()
        }]);
    }
    let mut skills: Vec<AgentSkill> = Vec::with_capacity(raw.len());
    for skill in raw {
        if skill.id.is_empty() {
            return Err("`skills.id` is empty".to_owned());
        }
        if skills.iter().any(|other| other.id == skill.id) {
            return Err(format!("two skills have the id `{}`", skill.id));
        }
        skills.push(AgentSkill {
            name: filled("skills.name", skill.name)?.unwrap_or_else(|| skill.id.clone()),
            description: filled("skills.description", skill.description)?
                .unwrap_or_else(|| profile.description.clone()),
            tags: if skill.tags.is_empty() { vec![skill.id.clone()] } else { skill.tags },
            id: skill.id,
            examples: skill.examples,
            ..AgentSkill::default()
        });
    }
    Ok(skills)
}

/// A text that is not empty when it is there.
fn filled(key: &str, text: Option<String>) -> Result<Option<String>, String> {
    match text {
        Some(text) if text.trim().is_empty() => Err(format!("`{key}` is empty")),
        text => Ok(text),
    }
}

fn media_types(key: &str, modes: Vec<String>) -> Result<Vec<String>, String> {
    if modes.is_empty() {
        return Err(format!("`{key}` is empty"));
    }
    for mode in &modes {
        let well_formed = mode.split_once('/').is_some_and(|(kind, of)| !kind.is_empty() && !of.is_empty());
        if !well_formed {
            return Err(format!("`{key}`: `{mode}` is not a media type such as \"text/plain\""));
        }
    }
    Ok(modes)
}

fn at_least_one<T: PartialOrd + From<u8>>(key: &str, value: Option<T>, default: T) -> Result<T, String> {
    match value {
        Some(value) if value < T::from(1) => Err(format!("`{key}` must be at least 1")),
        Some(value) => Ok(value),
        None => Ok(default),
    }
}

/// The parser's own words with the line, and for a name that is not known the one that was probably meant.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let mut problem = String::new();
    if let Some(span) = error.span() {
        let before = text.get(..span.start).unwrap_or(text);
        problem = format!("line {}: ", before.matches('\n').count() + 1);
    }
    let message = error.message().trim_end().replace('\n', ", ");
    // The words of serde: "unknown field `a`, expected one of `b`, `c`".
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (known_words, meant) = match names.split_first() {
        Some((wrong, known)) if message.starts_with("unknown field") => {
            (format!("unknown key `{wrong}`"), nearest(wrong, known))
        }
        Some((wrong, known)) if message.starts_with("unknown variant") => (message.clone(), nearest(wrong, known)),
        _ => (message.replace("missing field", "missing key"), None),
    };
    problem.push_str(&known_words);
    if let Some(meant) = meant {
        problem.push_str(&format!("; did you mean `{meant}`?"));
    } else if message.starts_with("unknown field") {
        problem.push_str(&format!("; keys are: {}", names[1..].join(", ")));
    }
    problem
}

#[cfg(test)]
mod tests;
