//! `sb profile`: servers by name, each with its address, a token for it and the agent that is meant where none is named.
//!
//! They stand in one file of the configuration directory that only its owner can read. A profile's token goes to the
//! profile's own origin and nowhere else.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, IsTerminal, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use agents::units::nearest;
use client::parse_url;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use crate::{
    admin,
    config::{self, Environment, process_environment},
    editor,
    failure::Failure,
    local::PrivateFile,
    output::{self, Format},
    servers::Servers,
    table::table,
    target::server_url,
};

/// The server of this machine, which needs no profile.
pub(crate) const LOCAL: &str = "local";

/// The most that is read of what should be a token.
const TOKEN_BYTES: u64 = 16 * 1024;

/// `sb profile …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Keep a server under a name
    #[command(
        after_help = "On a terminal the token is asked for where no file is named; what is typed is not shown.\n\n\
                      Examples:\n  sb profile add work --url https://agents.example.org --agent review\n  \
                      sb profile add work --url https://agents.example.org --token-file ~/token --replace\n  \
                      pass show agents | sb profile add work --url https://agents.example.org --token-file -"
    )]
    Add(Add),
    /// Call this server from now on where no other is named; `local` is that of this machine
    #[command(after_help = "Examples:\n  sb profile use work\n  sb profile use local")]
    Use(Use),
    /// List the profiles; tokens are not shown
    #[command(after_help = "Examples:\n  sb profile list\n  sb profile list -o json")]
    List(List),
    /// Forget a profile and its token
    #[command(after_help = "Example:\n  sb profile remove work")]
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What to call it
    name: String,
    /// The server
    #[arg(long, value_name = "URL")]
    url: String,
    /// A file with the token; `-` reads it from stdin [default: asked for on a terminal, else none]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The agent that `sb send` and `sb chat` call where none is named
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Take the place of a profile of that name
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, clap::Args)]
struct Use {
    /// Which
    #[arg(id = "profile", value_name = "NAME")]
    name: String,
}

#[derive(Debug, clap::Args)]
struct List {
    /// How to print it: `json` is one object a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Which
    #[arg(id = "profile", value_name = "NAME")]
    name: String,
}

/// The contents of `profiles.json` in the configuration directory.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Profiles {
    /// The one that counts where no other is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Profile {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
}

/// The profile that counts for a command.
pub(crate) struct Chosen {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) agent: Option<String>,
    /// It was named on the command line, which comes before the environment.
    pub(crate) by_flag: bool,
    token: Option<String>,
}

impl PrivateFile for Profiles {
    const NAME: &'static str = "profiles.json";
}

impl Chosen {
    /// Its token, if `url` is where it belongs.
    pub(crate) fn token_for(&self, url: &Url, servers: &Servers) -> Option<String> {
        let home = servers.resolve(parse_url(&self.url).ok()?);
        self.token.clone().filter(|_| home.origin() == url.origin())
    }
}

/// The profile that counts: the one of the flag, of SB_PROFILE, or the one that is in use. A command that names the data
/// directory means the server there.
pub(crate) fn chosen(
    flag: Option<&str>,
    names_directory: bool,
    environment: Environment<'_>,
) -> Result<Option<Chosen>, Failure> {
    let named = flag.map(str::to_owned).or_else(|| environment("SB_PROFILE").filter(|_| !names_directory));
    if named.as_deref() == Some(LOCAL) || (named.is_none() && names_directory) {
        return Ok(None);
    }
    let Some(directory) = config::config_home(environment) else {
        return match named {
            Some(name) => Err(no_home(&name)),
            None => Ok(None),
        };
    };
    let profiles = load(&directory)?;
    let Some(name) = named.or_else(|| profiles.current.clone()) else {
        return Ok(None);
    };
    let Profile { url, token, agent } = profiles.named(&name)?.clone();
    Ok(Some(Chosen { name, url, agent, by_flag: flag.is_some(), token }))
}

/// The names of the profiles, for completion.
pub(crate) fn names() -> Vec<String> {
    let profiles = config::config_home(&process_environment).and_then(|directory| load(&directory).ok());
    let names = profiles.map(|profiles| profiles.profiles.into_keys().collect::<Vec<_>>()).unwrap_or_default();
    names.into_iter().chain([LOCAL.to_owned()]).collect()
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let directory = config::config_home(&process_environment).ok_or_else(|| no_home("profiles"))?;
    match args.verb {
        Verb::Add(args) => add(&directory, args),
        Verb::Use(args) => r#use(&directory, &args.name),
        Verb::List(args) => {
            list(&load(&directory)?, args.output);
            Ok(())
        }
        Verb::Remove(args) => remove(&directory, &args.name),
    }
}

fn add(directory: &Path, args: Add) -> Result<(), Failure> {
    check_name(&args.name)?;
    let url = server_url(&args.url)?;
    // `HOST:PORT` is kept with its scheme.
    let url = if args.url.contains("://") { args.url } else { url.to_string() };
    if let Some(agent) = &args.agent
        && let Err(reason) = agent.parse::<store::AgentId>()
    {
        return Err(Failure::usage(format!("`{agent}` is not an agent id")).because(reason));
    }
    // Before anybody is asked for a token.
    if load(directory)?.profiles.contains_key(&args.name) && !args.replace {
        return Err(Failure::usage(format!("there is a profile `{}` already", args.name))
            .hint("choose another name, or take its place with --replace"));
    }
    let token = match args.token_file.as_deref() {
        Some(file) => Some(read_token(file)?),
        None if io::stdin().is_terminal() && io::stdout().is_terminal() => {
            let typed = editor::ask_secret("token (not shown; Enter for none): ")?;
            Some(typed.trim().to_owned()).filter(|token| !token.is_empty())
        }
        None => None,
    };
    if let Some(token) = &token
        && token.chars().any(|c| !c.is_ascii_graphic())
    {
        return Err(Failure::usage("that is no token").because("it has spaces or characters that no token has"));
    }
    let mut profiles = load(directory)?;
    let without_token = if token.is_none() { ", without a token" } else { "" };
    profiles.profiles.insert(args.name.clone(), Profile { url: url.clone(), token, agent: args.agent });
    save(&profiles, directory)?;
    output::line(&format!("profile {} is {url}{without_token}", args.name));
    if profiles.current.as_deref() != Some(args.name.as_str()) {
        output::error_line("note", &format!("`sb profile use {}` makes it the one that is called", args.name));
    }
    Ok(())
}

fn r#use(directory: &Path, name: &str) -> Result<(), Failure> {
    let mut profiles = load(directory)?;
    let url = if name == LOCAL { None } else { Some(profiles.named(name)?.url.clone()) };
    profiles.current = url.as_ref().map(|_| name.to_owned());
    save(&profiles, directory)?;
    match url {
        Some(url) => {
            output::line(&format!("commands call {url} where nothing else is named"));
            if is_elsewhere(&url).unwrap_or(false) {
                let note = format!(
                    "`sb tenant`, `sb token` and the like still administer the installation of this machine; name this \
                     server with `--url {url}` and its token with SB_ADMIN_TOKEN"
                );
                output::error_line("note", &note);
            }
        }
        None => output::line("commands call the server of this machine where nothing else is named"),
    }
    for variable in ["SB_PROFILE", "SB_URL"] {
        if process_environment(variable).is_some() {
            output::error_line("warning", &format!("{variable} is set and comes first"));
        }
    }
    Ok(())
}

/// Whether a server is another one than that which administrative commands mean.
fn is_elsewhere(url: &str) -> Result<bool, Failure> {
    let settings = config::load(config::Layer::default(), None, &process_environment)?;
    Ok(!admin::runs_here(&settings.data_dir(&process_environment)?, &parse_url(url)?)?)
}

fn list(profiles: &Profiles, format: Format) {
    let is_current = |name: &str| profiles.current.as_deref() == Some(name);
    match format {
        Format::Json => {
            for (name, profile) in &profiles.profiles {
                let shown = json!({
                    "name": name, "url": profile.url, "agent": profile.agent,
                    "hasToken": profile.token.is_some(), "current": is_current(name),
                });
                output::line(&shown.to_string());
            }
        }
        Format::Text if profiles.profiles.is_empty() => {
            output::error_line("note", "there are no profiles; `sb profile add NAME --url URL` makes one");
        }
        Format::Text => {
            let mut rows = Vec::new();
            for (name, profile) in &profiles.profiles {
                let mark = |holds: bool| if holds { "yes" } else { "-" }.to_owned();
                let agent = profile.agent.clone().unwrap_or_else(|| "-".to_owned());
                let row = [name.clone(), mark(is_current(name)), profile.url.clone(), agent];
                rows.push(row.into_iter().chain([mark(profile.token.is_some())]).collect());
            }
            output::print(&table(&["NAME", "IN USE", "URL", "AGENT", "TOKEN"], &rows));
        }
    }
}

fn remove(directory: &Path, name: &str) -> Result<(), Failure> {
    let mut profiles = load(directory)?;
    profiles.named(name)?;
    profiles.profiles.remove(name);
    if profiles.current.as_deref() == Some(name) {
        profiles.current = None;
        output::error_line("note", "it was in use: commands call the server of this machine now");
    }
    save(&profiles, directory)?;
    output::line(&format!("removed profile {name}"));
    Ok(())
}

impl Profiles {
    fn named(&self, name: &str) -> Result<&Profile, Failure> {
        self.profiles.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let failure = Failure::usage(format!("there is no profile `{name}`"));
            match nearest(name, &names) {
                Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                None => failure.hint("`sb profile list` shows them, `sb profile add` makes one"),
            }
        })
    }
}

fn load(directory: &Path) -> Result<Profiles, Failure> {
    Profiles::load(directory).map_err(|failure| failure.hint("repair or remove the file"))
}

fn save(profiles: &Profiles, directory: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
        Failure::failed(format!("cannot make the directory `{}`", directory.display()))
            .caused_by(&error)
            .hint("check its permissions, or set XDG_CONFIG_HOME to another place")
    })?;
    profiles.save(directory).map_err(|failure| failure.hint("check the directory's permissions and free space"))
}

/// A name that a command line and a shell take as it is.
fn check_name(name: &str) -> Result<(), Failure> {
    if name == LOCAL {
        return Err(Failure::usage("`local` is the server of this machine").hint("choose another name"));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.chars().all(is_plain) {
        return Err(Failure::usage(format!("`{name}` cannot be the name of a profile"))
            .hint("write at most 64 letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(TOKEN_BYTES).read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|opened| opened.take(TOKEN_BYTES).read_to_string(&mut text))
    };
    read.map_err(|error| Failure::usage(format!("cannot read a token from `{}`", file.display())).caused_by(&error))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::usage(format!("there is no token in `{}`", file.display()))
            .hint("leave --token-file out for a server without tokens"));
    }
    Ok(token.to_owned())
}

fn no_home(what: &str) -> Failure {
    Failure::usage(format!("there is no place to look for `{what}`"))
        .because("neither XDG_CONFIG_HOME nor HOME is set")
        .hint("set one of them, or name the server with --url")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(directory: &Path) {
        let profile = |url: &str, token: &str| Profile {
            url: url.to_owned(),
            token: Some(token.to_owned()),
            agent: Some("review".to_owned()),
        };
        let profiles = Profiles {
            current: Some("work".to_owned()),
            profiles: [
                ("work".to_owned(), profile("https://work.example", "w")),
                ("home".to_owned(), profile("https://home.example", "h")),
            ]
            .into(),
        };
        save(&profiles, directory).unwrap();
    }

    #[test]
    fn the_flag_comes_before_the_variable_and_that_before_the_one_in_use() {
        let home = tempfile::tempdir().unwrap();
        kept(&home.path().join("switchboard"));
        let path = home.path().to_str().unwrap().to_owned();
        let pick = |flag: Option<&str>, names_directory: bool, variable: Option<&str>| {
            let environment = |name: &str| match name {
                "XDG_CONFIG_HOME" => Some(path.clone()),
                "SB_PROFILE" => variable.map(str::to_owned),
                _ => None,
            };
            chosen(flag, names_directory, &environment)
        };
        let url = |chosen: Result<Option<Chosen>, Failure>| chosen.unwrap().map(|chosen| chosen.url);
        let (work, other) = (Some("https://work.example".to_owned()), Some("https://home.example".to_owned()));
        assert_eq!(url(pick(None, false, None)), work);
        assert_eq!(url(pick(None, false, Some("home"))), other);
        assert_eq!(url(pick(Some("work"), false, Some("home"))), work);
        assert_eq!(url(pick(Some("local"), false, Some("home"))), None);
        assert_eq!(url(pick(None, true, Some("home"))), None, "a directory is named");
        assert_eq!(url(pick(Some("home"), true, None)), other, "and so is a profile");
        let Err(failure) = pick(Some("wrok"), false, None) else { panic!("found") };
        assert_eq!((failure.exit as u8, failure.hint.as_deref()), (2, Some("did you mean `work`?")));
    }

    #[test]
    fn a_token_belongs_to_its_origin() {
        let chosen = Chosen {
            name: "work".to_owned(),
            url: "https://work.example/base".to_owned(),
            agent: None,
            by_flag: false,
            token: Some("w".to_owned()),
        };
        let token = |url: &str| chosen.token_for(&parse_url(url).unwrap(), &Servers::none());
        assert_eq!(token("https://work.example/a2a/agents/x"), Some("w".to_owned()));
        for other in ["http://work.example", "https://work.example:8443", "https://other.example"] {
            assert_eq!(token(other), None, "{other}");
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["work", "a.b-c_1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-x", "local", "a b", "a/b", "é"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
