//! `agents.yaml` and the files of `agents.d`: remotes with skills, keys and headers. An entry that cannot be used is left out, and why is said.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::{Binding, ClientCredentials, Secret};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use store::AgentId;

use super::spec::{Auth, Registry, Sees, Spec, Value};
use crate::{environment, units::Span};

/// One entry, as it is written.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// Its name here, and the id of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is; `${VAR}` is a variable's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The variable with its key.
    #[serde(default, alias = "api_key_env", skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// What else to authenticate with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Scheme>,
    /// Further headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Whether it streams, until its card says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// How long one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The same in milliseconds.
    #[serde(default, alias = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What it can do, whatever its card says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// Where its card is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// `JSONRPC`, `HTTP+JSON` or `GRPC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// Who sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<BTreeSet<String>>,
    // What the same file says to others.
    #[serde(default, skip_serializing)]
    #[serde(rename = "external")]
    pub(super) _external: Option<serde_json::Value>,
    #[serde(default, skip_serializing)]
    #[serde(rename = "discordBotTokenEnvKey")]
    pub(super) _discord: Option<serde_json::Value>,
    #[serde(default, skip_serializing)]
    #[serde(rename = "subscribesTo")]
    pub(super) _subscribes_to: Option<serde_json::Value>,
}

/// A skill: its name, or that and what it is.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Skill {
    /// Its name.
    Name(String),
    /// Both.
    Described {
        /// Its name.
        name: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}

/// How to authenticate.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scheme {
    /// `apiKey` (which is meant where nothing is said), `bearer`, `oauth2` or `hmac`, of which nothing comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The variable with the key or the token.
    #[serde(default, alias = "credentials_env", skip_serializing_if = "Option::is_none")]
    pub credentials_env: Option<String>,
    /// The file with the key or the token.
    #[serde(default, alias = "credentials_file", skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<String>,
    /// The header of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Who gives tokens.
    #[serde(default, alias = "token_url", skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// The variable with the id to ask with.
    #[serde(default, alias = "client_id_env", skip_serializing_if = "Option::is_none")]
    pub client_id_env: Option<String>,
    /// The variable with the secret to ask with.
    #[serde(default, alias = "client_secret_env", skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    /// What to ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Headers that say how a message travels.
const FRAMING: [&str; 7] =
    ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "content-type"];

/// What a file says, and what its operator should know.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) specs: Vec<Spec>,
    pub(super) warnings: Vec<String>,
    /// The names of entries that were left out.
    pub(super) broken: Vec<String>,
}

/// Reads `agents.yaml`.
pub(super) fn read(text: &str, timeout: Duration) -> Result<Listed, String> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        agents: Option<Vec<serde_json::Value>>,
    }
    let mut listed = Listed::default();
    if text.trim().is_empty() {
        return Ok(listed);
    }
    let file: File = parse(text)?;
    for (at, entry) in file.agents.unwrap_or_default().into_iter().enumerate() {
        let named = entry.get("name").and_then(|name| name.as_str()).map(str::to_owned);
        let known = entry
            .get("name")
            .and_then(|name| name.as_str())
            .map_or_else(|| format!("entry {}", at + 1), |name| format!("`{name}`"));
        let read = serde_json::from_value::<Entry>(entry).map_err(|error| error.to_string());
        match read.and_then(|entry| spec(entry, Registry::Yaml, timeout)) {
            Ok((spec, warnings)) => {
                listed.warnings.extend(warnings.into_iter().map(|warning| format!("{known}: {warning}")));
                listed.specs.retain(|before| before.name != spec.name);
                listed.specs.push(spec);
            }
            Err(why) => {
                listed.warnings.push(format!("{known} is broken: {why}"));
                listed.broken.extend(named);
            }
        }
    }
    Ok(listed)
}

/// Reads a file of `agents.d`, which has one entry.
pub(super) fn read_one(text: &str, timeout: Duration) -> Result<(Spec, Vec<String>), String> {
    spec(parse::<Entry>(text)?, Registry::Directory, timeout)
}

/// An entry as a file of `agents.d`.
pub(super) fn write(entry: &Entry) -> Result<String, String> {
    serde_saphyr::to_string(entry).map_err(|error| error.to_string())
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or("it is not YAML").to_owned()
    })
}

/// What an entry says. The warnings are sentences without the agent's name.
pub(super) fn spec(entry: Entry, registry: Registry, timeout: Duration) -> Result<(Spec, Vec<String>), String> {
    let mut warnings = Vec::new();
    let name = entry.name.filter(|name| !name.is_empty()).ok_or("`name` is required")?;
    let _: AgentId = name.parse().map_err(|why| format!("`name` is no id of an agent: {why}"))?;
    let text = entry.url.filter(|url| !url.is_empty()).ok_or("`url` is required")?;
    let url = match interpolate(&text) {
        Ok(text) => Ok(client::parse_url(&text).map_err(|error| format!("`url`: {error}"))?),
        Err(variable) => {
            let why = format!("the variable {variable} of its url is not set");
            warnings.push(format!("{why}, so that it cannot be reached"));
            Err(why)
        }
    };
    let card =
        entry.card.as_deref().map(interpolate).transpose().map_err(|name| format!("`card`: {name} is not set"))?;
    let card = card.map(|card| client::parse_url(&card)).transpose().map_err(|error| format!("`card`: {error}"))?;
    let auth = auth(entry.api_key_env, entry.auth, &mut warnings)?;
    if let Some(missing) = auth.missing() {
        warnings.push(format!("{missing}: it is called without a key"));
    }
    let mut headers = Vec::new();
    for (name, value) in entry.headers {
        let value = interpolate(&value).map_err(|variable| format!("`headers.{name}`: {variable} is not set"))?;
        let header: HeaderName = name.parse().map_err(|_| format!("`headers`: `{name}` is no header's name"))?;
        if FRAMING.contains(&header.as_str()) {
            return Err(format!("`headers`: `{name}` is not for an entry to say"));
        }
        let mut value =
            HeaderValue::from_str(&value).map_err(|_| format!("`headers.{name}` cannot stand in a header"))?;
        value.set_sensitive(true);
        headers.push((header, value));
    }
    let given = match (entry.timeout, entry.timeout_ms) {
        (Some(text), _) => Some(text.parse::<Span>().map_err(|why| format!("`timeout`: {why}"))?.0),
        (None, Some(millis)) => Some(Duration::from_millis(millis)),
        (None, None) => None,
    };
    if given.is_some_and(|given| given.is_zero()) {
        return Err("`timeout` must be more than nothing".to_owned());
    }
    let binding = entry.binding.as_deref().map(binding).transpose()?;
    let skills = entry.skills.into_iter().map(|skill| match skill {
        Skill::Name(name) => (name, String::new()),
        Skill::Described { name, description } => (name, description.unwrap_or_default()),
    });
    let spec = Spec {
        name,
        registry,
        url,
        card,
        follows_card: false,
        auth,
        headers,
        streaming: entry.streaming.unwrap_or(false),
        binding,
        timeout: given.unwrap_or(timeout),
        skills: skills.collect(),
        sees: if registry == Registry::File { Sees::Message } else { Sees::Trace },
        tenants: entry.tenants,
    };
    Ok((spec.at_card(), warnings))
}

fn auth(api_key_env: Option<String>, scheme: Option<Scheme>, warnings: &mut Vec<String>) -> Result<Auth, String> {
    let Some(Scheme {
        scheme,
        credentials_env,
        credentials_file,
        header,
        token_url,
        client_id_env,
        client_secret_env,
        scope,
    }) = scheme
    else {
        let own = api_key_env.map(|name| variable("apiKeyEnv", name)).transpose()?;
        return Ok(own.map_or(Auth::None, api_key));
    };
    let given = match (credentials_env.or(api_key_env), credentials_file) {
        (Some(_), Some(_)) => return Err("`auth` has both a variable and `credentialsFile`: one is enough".to_owned()),
        (Some(name), None) => Some(Value::Variable(variable("auth.credentialsEnv", name)?)),
        (None, Some(path)) => Some(Value::file("auth.credentialsFile", &path)?),
        (None, None) => None,
    };
    let required = "`auth.credentialsEnv` or `auth.credentialsFile` is required";
    let kind = scheme.as_deref().unwrap_or("apiKey");
    match kind {
        "apiKey" => {
            let header = header.unwrap_or_else(|| "x-api-key".to_owned());
            let header: HeaderName =
                header.parse().map_err(|_| format!("`auth.header`: `{header}` is no header's name"))?;
            Ok(Auth::Key { header, value: given.ok_or(required)? })
        }
        "bearer" => Ok(Auth::Bearer(given.ok_or(required)?)),
        "oauth2" => {
            let url = token_url.ok_or("`auth.tokenUrl` is required")?;
            let url = interpolate(&url).map_err(|variable| format!("`auth.tokenUrl`: {variable} is not set"))?;
            let url = client::parse_url(&url).map_err(|error| format!("`auth.tokenUrl`: {error}"))?;
            let read = |key: &str, variable: Option<String>| {
                let variable = variable.ok_or_else(|| format!("`auth.{key}` is required"))?;
                environment::secret(&variable)
                    .ok_or_else(|| format!("`auth.{key}`: the variable {variable} is not set"))
            };
            let id = read("clientIdEnv", client_id_env)?;
            let secret = Secret::new(read("clientSecretEnv", client_secret_env)?);
            Ok(Auth::Granted(Arc::new(ClientCredentials::new(url, id, secret, scope))))
        }
        "hmac" => {
            warnings.push("`auth.scheme` is \"hmac\", which nobody has described: it is called without".to_owned());
            Ok(Auth::None)
        }
        other => Err(format!("`auth.scheme` is `{other}`; schemes are: apiKey, bearer, oauth2")),
    }
}

/// A variable's name. What is none may be a key that was meant to stand in one.
fn variable(key: &str, name: String) -> Result<String, String> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if is_name { Ok(name) } else { Err(format!("`{key}` is the name of a variable, not a key")) }
}

fn api_key(variable: String) -> Auth {
    Auth::Key { header: HeaderName::from_static("x-api-key"), value: Value::Variable(variable) }
}

fn binding(name: &str) -> Result<Binding, String> {
    let all = [Binding::JsonRpc, Binding::Rest, Binding::Grpc];
    let known = all.into_iter().find(|binding| binding.as_str().eq_ignore_ascii_case(name));
    known.ok_or_else(|| format!("`binding` is `{name}`; bindings are: JSONRPC, HTTP+JSON, GRPC"))
}

/// Puts variables in their places. An error is the name of one that is not set.
fn interpolate(text: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        made.push_str(before);
        made.push_str(&environment::secret(name).ok_or_else(|| name.to_owned())?);
        rest = behind;
    }
    made.push_str(rest);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    #[test]
    fn s4_37_38_the_sample_is_read() {
        let text = "agents:\n  - name: quinn\n    url: \"${SB_TEST_UNSET_QUINN}/a2a\"\n    skills:\n      - name: pr_review\n        description: Review PRs\n      - bug_triage\n\n  - name: protomaker\n    url: \"http://ava.example${HOME}/a2a\"\n    apiKeyEnv: SB_TEST_UNSET_AVA\n    discordBotTokenEnvKey: X\n    skills:\n      - name: sitrep\n";
        let listed = read(text, TIMEOUT).unwrap();
        let names: Vec<&str> = listed.specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["quinn", "protomaker"]);
        let [quinn, ava] = listed.specs.as_slice() else { unreachable!("two") };
        assert!(quinn.url.is_err());
        assert_eq!(quinn.skills, [("pr_review".into(), "Review PRs".into()), ("bug_triage".into(), String::new())]);
        assert!(ava.url.as_ref().unwrap().path().ends_with("/a2a"));
        assert_eq!(ava.timeout, TIMEOUT);
        assert_eq!(ava.auth.missing().unwrap(), "the variable SB_TEST_UNSET_AVA is not set");
        assert_eq!(listed.warnings.len(), 2, "{:?}", listed.warnings);
    }

    #[test]
    fn an_entry_that_cannot_be_used_is_left_out_alone() {
        let text = "agents:\n  - name: good\n    url: http://h/a2a\n    timeoutMs: 1000\n    binding: grpc\n  - url: http://x\n  - name: a b\n    url: http://x\n  - name: c\n    url: ftp://x\n  - name: d\n    url: http://x\n    surprise: 1\n  - name: e\n    url: http://x\n    auth: {scheme: magic}\n  - 7\n";
        let listed = read(text, TIMEOUT).unwrap();
        assert_eq!(listed.specs.len(), 1);
        assert_eq!(listed.specs[0].timeout, Duration::from_secs(1));
        assert_eq!(listed.specs[0].binding, Some(Binding::Grpc));
        assert_eq!(listed.warnings.len(), 6, "{:#?}", listed.warnings);
        assert!(listed.warnings.iter().any(|warning| warning.contains("surprise")), "{:#?}", listed.warnings);
        assert!(read("agents: {a: b}", TIMEOUT).is_err());
        assert!(read("\t- x", TIMEOUT).is_err());
        assert!(read("", TIMEOUT).unwrap().specs.is_empty());
        assert!(read("agents:\n", TIMEOUT).unwrap().specs.is_empty());
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let entry = Entry {
            name: Some("far".to_owned()),
            url: Some("http://h:1/a2a".to_owned()),
            api_key_env: Some("KEY".to_owned()),
            skills: vec![Skill::Name("one".to_owned())],
            ..Entry::default()
        };
        let (spec, _) = read_one(&write(&entry).unwrap(), TIMEOUT).unwrap();
        assert_eq!((spec.name.as_str(), spec.url.unwrap().as_str()), ("far", "http://h:1/a2a"));
        assert_eq!(spec.skills, [("one".to_owned(), String::new())]);
        assert!(matches!(spec.auth, Auth::Key { value: Value::Variable(name), .. } if name == "KEY"));
    }
}
