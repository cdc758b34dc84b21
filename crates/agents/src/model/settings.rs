//! `models.toml` and the environment: which providers there are, with what they are asked.
//!
//! Keys never stand in the file. Where it says where a key is, that is looked up when the file is read.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use client::Secret;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use url::Url;

use super::known::{WELL_KNOWN, WellKnown, ollama_url, well_known};
use crate::{
    file::Table,
    settled,
    units::{Span, nearest},
};

/// How long a provider may say nothing.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's chat completions, which many others speak.
    Openai,
    /// Replies from a file.
    Scripted,
}

/// What the file and the environment say together.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Settings {
    pub(super) default: Option<String>,
    pub(super) fallback: bool,
    pub(super) providers: BTreeMap<String, Spec>,
}

/// A provider, as it is described.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) api: Api,
    /// Where it is, or why that is not known. Nowhere for what comes from a file.
    pub(super) url: Option<Result<Url, String>>,
    pub(super) key: Key,
    /// Keys of tenants, by name.
    pub(super) tenants: BTreeMap<String, Key>,
    pub(super) timeout: Duration,
    pub(super) images: bool,
    /// Which of its models may be asked, an asterisk at the end standing for anything; all of them where nothing is said.
    pub(super) models: Option<Vec<String>>,
    pub(super) script: Option<PathBuf>,
}

/// What to authenticate with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) from: Source,
    /// The key, if one is needed, or why there is none.
    pub(super) value: Result<Option<Secret>, String>,
}

/// Where a key is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// None is needed.
    Nowhere,
    Variable(String),
    File(PathBuf),
}

/// `models.toml` as it stands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    default: Option<Spanned<String>>,
    #[serde(default)]
    fallback: bool,
    #[serde(default)]
    providers: BTreeMap<String, Spanned<Entry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    api: Option<Api>,
    url: Option<Link>,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    timeout: Option<Span>,
    images: Option<bool>,
    models: Option<Vec<String>>,
    file: Option<PathBuf>,
    #[serde(default)]
    tenants: BTreeMap<String, Spanned<Place>>,
}

/// Where a tenant's key is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    key_env: Option<String>,
    key_file: Option<PathBuf>,
}

/// A URL that can be called and shown.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct Link(Url);

impl TryFrom<String> for Link {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        link(&text).map(Self)
    }
}

/// The text is not repeated in what is wrong with it: it may hold a password.
fn link(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("is not a URL that starts with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(
            "must have no user name, password, query or fragment; keys come by `key_env` or `key_file`".to_owned()
        );
    }
    Ok(url)
}

impl File {
    /// Reads the file's text. What is wrong is said with the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let read = Table::parse(text).and_then(Table::read::<Self>);
        let file = read.map_err(|problem| without_values(&about_keys(problem)))?;
        file.check(text)?;
        Ok(file)
    }

    /// What a type does not say.
    fn check(&self, text: &str) -> Result<(), String> {
        let at = |span: Range<usize>| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1;
        if let Some(model) = self.default.as_ref().filter(|model| !model.get_ref().contains('/')) {
            let line = at(model.span());
            return Err(format!("line {line}: `default` is PROVIDER/MODEL, such as \"ollama/llama3.2\""));
        }
        for (name, entry) in &self.providers {
            let line = at(entry.span());
            let refuse = |problem: &str| Err(format!("line {line}: `providers.{name}`: {problem}"));
            let entry = entry.get_ref();
            let is_name =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            if !is_name {
                return refuse("a provider's name has letters, digits, `-`, `_` and `.`");
            }
            let Some(api) = entry.api.or_else(|| well_known(name).map(|known| known.api)) else {
                let names: Vec<&str> = WELL_KNOWN.iter().map(|known| known.name).collect();
                let meant = nearest(name, &names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                return refuse(&format!("missing key `api`: \"anthropic\", \"openai\" or \"scripted\"{meant}"));
            };
            if entry.key_env.is_some() && entry.key_file.is_some() {
                return refuse("either `key_env` or `key_file`");
            }
            if api == Api::Scripted {
                let others =
                    [entry.url.is_some(), entry.key_env.is_some(), entry.key_file.is_some(), !entry.tenants.is_empty()];
                if others.contains(&true) {
                    return refuse("what is scripted has neither a URL nor keys");
                }
                if entry.file.is_none() {
                    return refuse("missing key `file`: where the replies are");
                }
            } else {
                if entry.file.is_some() {
                    return refuse("`file` is for `api = \"scripted\"`");
                }
                if entry.url.is_none() && well_known(name).is_none() {
                    return refuse("missing key `url`");
                }
            }
            for (tenant, place) in &entry.tenants {
                if place.get_ref().key_env.is_some() == place.get_ref().key_file.is_some() {
                    let line = at(place.span());
                    return Err(format!(
                        "line {line}: `providers.{name}.tenants.{tenant}`: either `key_env` or `key_file`"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What it says together with the environment. Paths in it are meant from `directory`.
    pub(super) fn resolve(&self, environment: &dyn Fn(&str) -> Option<String>, directory: &Path) -> Settings {
        let variable = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let mut providers = BTreeMap::new();
        for (name, entry) in &self.providers {
            providers.insert(name.clone(), entry.get_ref().spec(name, &variable, directory));
        }
        let default = self.default.as_ref().map(Spanned::get_ref);
        let named = default.and_then(|model| model.split_once('/')).map(|(name, _)| name);
        for known in WELL_KNOWN.iter().filter(|known| !self.providers.contains_key(known.name)) {
            // Those that need no key are there once anybody mentions them.
            let is_set = match known.key {
                Some(key) => variable(key).is_some(),
                None => known.base.and_then(variable).is_some() || named == Some(known.name),
            };
            if is_set {
                providers.insert(known.name.to_owned(), Entry::default().spec(known.name, &variable, directory));
            }
        }
        let first = || {
            // What somebody describes is meant more than what happens to be in the environment.
            let mut known: Vec<&WellKnown> = WELL_KNOWN.iter().collect();
            known.sort_by_key(|known| !self.providers.contains_key(known.name));
            let usable = known.into_iter().filter(|known| providers.get(known.name).is_some_and(Spec::is_usable));
            usable.filter_map(|known| Some(format!("{}/{}", known.name, known.model?))).next()
        };
        let default = default.cloned().or_else(first);
        Settings { default, fallback: self.fallback, providers }
    }
}

impl Entry {
    fn spec(&self, name: &str, variable: &dyn Fn(&str) -> Option<String>, directory: &Path) -> Spec {
        let known = well_known(name);
        let api = self.api.or_else(|| known.map(|known| known.api)).unwrap_or(Api::Openai);
        let url = match (&self.url, known) {
            _ if api == Api::Scripted => None,
            (Some(Link(url)), _) => Some(Ok(url.clone())),
            (None, Some(known)) => Some(url_of(known, variable)),
            (None, None) => None,
        };
        let key = match (&self.key_env, &self.key_file, known.and_then(|known| known.key)) {
            (Some(name), _, _) => Key::variable(name, variable),
            (None, Some(file), _) => Key::file(&directory.join(file)),
            // Somewhere else the key of its own service is not shown to anybody.
            (None, None, Some(key)) if api != Api::Scripted && self.url.is_none() => Key::variable(key, variable),
            (None, None, _) => Key { from: Source::Nowhere, value: Ok(None) },
        };
        let tenants = self.tenants.iter().map(|(tenant, place)| {
            let place = place.get_ref();
            let key = match (&place.key_env, &place.key_file) {
                (Some(name), _) => Key::variable(name, variable),
                (None, Some(file)) => Key::file(&directory.join(file)),
                (None, None) => Key { from: Source::Nowhere, value: Ok(None) },
            };
            (tenant.clone(), key)
        });
        Spec {
            name: name.to_owned(),
            api,
            url,
            key,
            tenants: tenants.collect(),
            timeout: self.timeout.map_or(TIMEOUT, |time| time.0),
            images: self.images.unwrap_or(api == Api::Scripted || known.is_some_and(|known| known.images)),
            models: self.models.clone(),
            script: self.file.as_ref().map(|file| directory.join(file)),
        }
    }
}

fn url_of(known: &WellKnown, variable: &dyn Fn(&str) -> Option<String>) -> Result<Url, String> {
    let given = known.base.and_then(|name| Some((name, variable(name)?)));
    match given {
        Some((name, host)) if known.name == "ollama" => link(&ollama_url(&host)).map_err(|why| format!("{name} {why}")),
        Some((name, url)) => link(&url).map_err(|why| format!("{name} {why}")),
        None => link(known.url),
    }
}

impl Key {
    fn variable(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(fits) {
            // It may be the key itself, and is not repeated.
            let why = "`key_env` is not the name of a variable (letters, digits and underscores)";
            return Self { from: Source::Nowhere, value: Err(why.to_owned()) };
        }
        let value = match variable(name) {
            Some(value) => checked(&value).map_err(|why| format!("the variable {name} {why}")),
            None => Err(format!("the variable {name} is not set")),
        };
        Self { from: Source::Variable(name.to_owned()), value }
    }

    fn file(path: &Path) -> Self {
        let shown = path.file_name().unwrap_or_default().to_string_lossy();
        let value = match settled::read_to_string(path) {
            Ok(text) => checked(&text).map_err(|why| format!("the key file `{shown}` {why}")),
            Err(error) => Err(format!("the key file `{shown}` cannot be read: {error}")),
        };
        Self { from: Source::File(path.to_owned()), value }
    }
}

fn checked(text: &str) -> Result<Option<Secret>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("holds characters that no header can carry".to_owned());
    }
    Ok(Some(Secret::new(text)))
}

impl Spec {
    /// Whether this model of it may be asked.
    pub(super) fn offers(&self, model: &str) -> bool {
        let is = |name: &String| match name.strip_suffix('*') {
            Some(begin) => model.starts_with(begin),
            None => model == name,
        };
        self.models.as_ref().is_none_or(|models| models.iter().any(is))
    }

    /// Whether it can be asked for those who have no key of their own.
    pub(super) fn is_usable(&self) -> bool {
        !matches!(self.url, Some(Err(_))) && self.key.value.is_ok()
    }

    /// What a tenant shows it, or why there is nothing. A tenant that has a key of its own spends no other.
    pub(super) fn key_for(&self, tenant: &str) -> Result<Option<Secret>, String> {
        if let Some(Err(why)) = &self.url {
            return Err(why.clone());
        }
        self.tenants.get(tenant).unwrap_or(&self.key).value.clone()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none needed"),
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

impl Api {
    /// As the file calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Scripted => "scripted",
        }
    }
}

/// Whoever writes a key into the file is told where it belongs.
fn about_keys(problem: String) -> String {
    for name in ["key", "api_key", "apikey", "token", "secret"] {
        if let Some((line, _)) = problem.split_once(&format!("unknown key `{name}`;")) {
            return format!(
                "{line}`{name}`: a key does not stand in this file: name the variable that has it by `key_env = \"…\"`, or a file by `key_file = \"…\"`"
            );
        }
    }
    problem
}

/// The parser repeats a text that it did not expect, and that may be a key. Its own names for our types tell nobody anything.
fn without_values(problem: &str) -> String {
    let problem = problem.replace(".$__serde_spanned_private_value", "");
    let problem = problem.replace("struct Entry", "a table").replace("struct Place", "a table");
    let Some((before, rest)) = problem.split_once("string \"") else { return problem };
    let after = rest.rsplit_once('"').map_or("", |(_, after)| after);
    format!("{}a text{after}", before.strip_suffix("the ").unwrap_or(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        File::parse(text).unwrap_err()
    }

    fn resolved(text: &str, variables: &[(&str, &str)]) -> Settings {
        let environment =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        File::parse(text).unwrap().resolve(&environment, Path::new("/etc/sb"))
    }

    #[test]
    fn what_is_wrong_is_said_with_the_line_and_what_was_meant() {
        for (text, said) in [
            (
                "default = \"x/y\"\ndefalt = 1\n",
                "line 2: unknown key `defalt`; did you mean `default`? keys are: default, fallback, providers",
            ),
            (
                "[providers.gateway]\napi = \"openai\"\nurl = \"https://g.example/v1\"\nkey_evn = \"X\"\n",
                "line 4: unknown key `key_evn`; did you mean `key_env`? keys are: api, url, key_env, key_file, timeout, images, models, file, tenants",
            ),
            (
                "[providers.openai]\nkey = \"sk-secret-secret\"\n",
                "line 2: `key`: a key does not stand in this file: name the variable that has it by `key_env = \"…\"`, or a file by `key_file = \"…\"`",
            ),
            (
                "\n[providers]\nopenai = \"sk-secret-secret\"\n",
                "line 3: `providers.openai` must be a table, not a text",
            ),
            (
                "[providers.x]\napi = \"open-ai\"\n",
                "line 2: `providers.x.api`: unknown value `open-ai`; did you mean `openai`? values are: anthropic, openai, scripted",
            ),
            (
                "\n[providers.antropic]\n",
                "line 2: `providers.antropic`: missing key `api`: \"anthropic\", \"openai\" or \"scripted\"; did you mean `anthropic`?",
            ),
            ("[providers.x]\napi = \"openai\"\n", "line 1: `providers.x`: missing key `url`"),
            ("[providers.x]\napi = \"scripted\"\n", "line 1: `providers.x`: missing key `file`: where the replies are"),
            (
                "[providers.x]\napi = \"openai\"\nurl = \"ftp://a\"\n",
                "line 3: `providers.x.url`: is not a URL that starts with http:// or https://",
            ),
            (
                "[providers.x]\napi = \"openai\"\nurl = \"https://u:p@a/\"\n",
                "line 3: `providers.x.url`: must have no user name, password, query or fragment; keys come by `key_env` or `key_file`",
            ),
            (
                "[providers.openai]\ntimeout = 5\n",
                "line 2: `providers.openai.timeout` must be a duration in quotes, e.g. \"60s\", not the number 5",
            ),
            (
                "[providers.openai]\nkey_env = \"A\"\nkey_file = \"b\"\n",
                "line 1: `providers.openai`: either `key_env` or `key_file`",
            ),
            (
                "[providers.openai]\n[providers.openai.tenants.acme]\n",
                "line 2: `providers.openai.tenants.acme`: either `key_env` or `key_file`",
            ),
            ("default = \"gpt-5\"\n", "line 1: `default` is PROVIDER/MODEL, such as \"ollama/llama3.2\""),
        ] {
            assert_eq!(refused(text), said, "{text}");
        }
    }

    #[test]
    fn the_environment_alone_is_enough() {
        let settings = resolved(
            "",
            &[("ANTHROPIC_API_KEY", " k1 "), ("OPENAI_API_KEY", "k2"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")],
        );
        assert_eq!(settings.providers.keys().collect::<Vec<_>>(), ["anthropic", "openai"]);
        assert_eq!(settings.default.as_deref(), Some("anthropic/claude-sonnet-5"));
        assert_eq!(settings.providers["anthropic"].key_for("t").unwrap().unwrap().expose(), "k1");
        assert_eq!(settings.providers["openai"].url.clone().unwrap().unwrap().as_str(), "http://127.0.0.1:9/v1");
        assert_eq!(resolved("", &[("OLLAMA_HOST", "gpu")]).default.as_deref(), Some("ollama/llama3.2"));
        assert_eq!(resolved("", &[("OPENAI_API_KEY", "")]), Settings::default());
        let broken = resolved("", &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "localhost:1")]);
        assert_eq!(
            broken.providers["openai"].key_for("t").unwrap_err(),
            "OPENAI_BASE_URL is not a URL that starts with http:// or https://"
        );
        assert_eq!(broken.default, None);
    }

    #[test]
    fn the_file_names_local_ones_by_mentioning_them_and_keeps_keys_apart() {
        let settings = resolved(
            "default = \"ollama/qwen3\"\n[providers.vllm]\n[providers.openai]\nurl = \"http://127.0.0.1:9/v1\"\n\
             [providers.anthropic]\nkey_env = \"MINE\"\n[providers.anthropic.tenants.acme]\nkey_env = \"THEIRS\"\n\
             [providers.anthropic.tenants.late]\nkey_env = \"MISSING\"\n",
            &[("OPENAI_API_KEY", "k"), ("MINE", "mine"), ("THEIRS", "theirs"), ("ANTHROPIC_API_KEY", "not this one")],
        );
        assert_eq!(settings.providers.keys().collect::<Vec<_>>(), ["anthropic", "ollama", "openai", "vllm"]);
        assert_eq!(
            settings.providers["openai"].key.value,
            Ok(None),
            "what is elsewhere is not shown the key of OpenAI"
        );
        let key = |tenant: &str| {
            settings.providers["anthropic"].key_for(tenant).map(|key| key.map(|key| key.expose().to_owned()))
        };
        assert_eq!(key("acme"), Ok(Some("theirs".to_owned())));
        assert_eq!(key("other"), Ok(Some("mine".to_owned())));
        assert_eq!(key("late"), Err("the variable MISSING is not set".to_owned()));
    }

    #[test]
    fn keys_are_not_in_debug() {
        let settings = resolved("", &[("ANTHROPIC_API_KEY", "very-secret")]);
        assert!(!format!("{settings:?}").contains("very-secret"));
    }
}
