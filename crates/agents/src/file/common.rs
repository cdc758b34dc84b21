//! The keys of every agent, whatever its kind: what the card shows, and how its turns are run.

use std::{
    collections::BTreeSet,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use a2a::{AgentExtension, AgentSkill};
use exchange::{OnCrash, Profile, ReplyMode, ReplyText};
use serde::Deserialize;

use crate::{kind::Described, units::Span};

/// A text that is not blank.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Filled(String);

impl TryFrom<String> for Filled {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.trim().is_empty() { Err("must not be empty") } else { Ok(Self(text)) }
    }
}

/// The top of a file without what belongs to its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Common {
    name: Option<Filled>,
    description: Option<Filled>,
    version: Option<Filled>,
    #[serde(default)]
    skills: Vec<Skill>,
    input_modes: Option<Vec<String>>,
    output_modes: Option<Vec<String>>,
    #[serde(default)]
    extensions: Vec<Extension>,
    tenants: Option<BTreeSet<String>>,
    #[serde(default, with = "Reply")]
    reply: ReplyMode,
    #[serde(default, with = "Text")]
    reply_text: ReplyText,
    reveal_after: Option<Span>,
    timeout: Option<Span>,
    concurrency: Option<NonZeroUsize>,
    per_tenant: Option<NonZeroUsize>,
    max_attempts: Option<NonZeroU32>,
    on_crash: Option<CrashWish>,
    directory: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Skill {
    id: Filled,
    name: Option<Filled>,
    description: Option<Filled>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    examples: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Extension {
    uri: Filled,
    #[serde(default)]
    description: String,
    #[serde(default)]
    required: bool,
}

/// What `reply` may say.
#[derive(Deserialize)]
#[serde(remote = "ReplyMode", rename_all = "lowercase")]
enum Reply {
    Task,
    Auto,
}

/// What `reply_text` may say.
#[derive(Deserialize)]
#[serde(remote = "ReplyText", rename_all = "lowercase")]
enum Text {
    Artifact,
    Both,
}

#[derive(Deserialize)]
struct CrashWish(#[serde(with = "Crash")] OnCrash);

/// What `on_crash` may say.
#[derive(Deserialize)]
#[serde(remote = "OnCrash", rename_all = "lowercase")]
enum Crash {
    Retry,
    Fail,
    Ask,
    Resume,
}

impl Common {
    /// Writes what the file says into a profile that has the defaults. Gives the directory that paths are meant from, if
    /// the file names one, and what else it names.
    pub(super) fn describe(self, profile: &mut Profile, warnings: &mut Vec<String>) -> Result<Given, String> {
        let (name, description, skills_given) =
            (self.name.is_some(), self.description.is_some(), !self.skills.is_empty());
        profile.name = self.name.map_or_else(|| profile.id.to_string(), |name| name.0);
        profile.description = self.description.map_or_else(|| profile.name.clone(), |description| description.0);
        profile.version = self.version.map_or_else(|| "1.0.0".to_owned(), |version| version.0);
        profile.skills = skills(self.skills, profile)?;
        set_modes("input_modes", &mut profile.input_modes, self.input_modes)?;
        set_modes("output_modes", &mut profile.output_modes, self.output_modes)?;
        for Extension { uri, description, required } in self.extensions {
            profile.extensions.push(AgentExtension { uri: uri.0, description, required, params: None });
        }
        profile.tenants = self.tenants;
        profile.reply = self.reply;
        profile.reply_text = self.reply_text;
        if let Some(Span(time)) = self.reveal_after {
            profile.reveal_after = time;
            if self.reply == ReplyMode::Task {
                warnings.push("`reveal_after` does nothing without `reply = \"auto\"`".to_owned());
            }
        }
        profile.timeout = self.timeout.map_or(profile.timeout, |time| Some(time.0));
        profile.concurrency = self.concurrency.map_or(profile.concurrency, NonZeroUsize::get);
        profile.per_tenant = self.per_tenant.map(NonZeroUsize::get);
        profile.max_attempts = self.max_attempts.map_or(profile.max_attempts, NonZeroU32::get);
        profile.on_crash = self.on_crash.map_or(profile.on_crash, |wish| wish.0);
        match self.directory {
            Some(directory) if directory.is_relative() => Err("`directory` must be an absolute path".to_owned()),
            directory => Ok(Given { directory, name, description, skills: skills_given }),
        }
    }
}

/// What a file says by itself.
pub(super) struct Given {
    pub(super) directory: Option<PathBuf>,
    name: bool,
    description: bool,
    skills: bool,
}

impl Given {
    /// Where the file is silent, what its kind knows counts.
    pub(super) fn complete(&self, profile: &mut Profile, own: Described) {
        let Described { name, description, skills, commands } = own;
        if !self.name && !name.is_empty() {
            profile.name = name;
        }
        if !self.description && !description.is_empty() {
            profile.description = description;
        }
        if !self.skills {
            profile.skills = skills;
        }
        profile.commands = commands;
    }
}

/// The card's skills; an agent that names none has one, which is all it does.
fn skills(mut skills: Vec<Skill>, profile: &Profile) -> Result<Vec<AgentSkill>, String> {
    if skills.is_empty() {
        let (id, name) = (Filled(profile.id.to_string()), Some(Filled(profile.name.clone())));
        skills.push(Skill { id, name, description: None, tags: vec![], examples: vec![] });
    }
    let mut made: Vec<AgentSkill> = Vec::with_capacity(skills.len());
    for Skill { id: Filled(id), name, description, tags, examples } in skills {
        if made.iter().any(|other| other.id == id) {
            return Err(format!("two skills have the id `{id}`"));
        }
        made.push(AgentSkill {
            name: name.map_or_else(|| id.clone(), |name| name.0),
            description: description.map_or_else(|| profile.description.clone(), |description| description.0),
            tags: if tags.is_empty() { vec![id.clone()] } else { tags },
            id,
            examples,
            ..AgentSkill::default()
        });
    }
    Ok(made)
}

fn set_modes(key: &str, modes: &mut Vec<String>, given: Option<Vec<String>>) -> Result<(), String> {
    let Some(given) = given else { return Ok(()) };
    let is_type = |mode: &&String| mode.split_once('/').is_some_and(|(kind, of)| !kind.is_empty() && !of.is_empty());
    if given.is_empty() {
        return Err(format!("`{key}`: must not be empty"));
    }
    if let Some(mode) = given.iter().find(|mode| !is_type(mode)) {
        return Err(format!("`{key}`: `{mode}` is not a media type such as \"text/plain\""));
    }
    *modes = given;
    Ok(())
}
