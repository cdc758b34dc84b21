//! What is known of a remote before anybody has called it, whichever file says so.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use client::{Binding, ClientCredentials, Credential, Secret};
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::environment;

/// Where a remote is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    /// `a2a_agents.json`.
    Json,
    /// `agents.yaml`.
    Yaml,
    /// A file of `agents.d`.
    Directory,
    /// An agent file of kind `remote`.
    File,
}

impl Registry {
    /// As people know it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "a2a_agents.json",
            Self::Yaml => "agents.yaml",
            Self::Directory => "agents.d",
            Self::File => "file",
        }
    }
}

/// What a remote is told beside the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Nothing but the protocol's version and its own token.
    Text,
    /// All parts, the skill that is meant, and what the call belongs to.
    Trace,
    /// The message's metadata, extensions and references as well.
    Message,
}

impl Sees {
    /// Whether it is told more than the text.
    pub fn traces(self) -> bool {
        self != Self::Text
    }
}

/// A remote.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name here.
    pub name: String,
    /// Where it is described.
    pub registry: Registry,
    /// Where it is, or why that is not known.
    pub url: Result<Url, String>,
    /// Where its card is, if that does not follow from its URL.
    pub card: Option<Url>,
    /// Whether the path of its JSON-RPC endpoint is the one that its card names. Otherwise `url` is the endpoint.
    pub follows_card: bool,
    /// What to authenticate with.
    pub auth: Auth,
    /// Further headers of every call.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether it streams, until its card says.
    pub streaming: bool,
    /// The binding to use, whatever its card prefers.
    pub binding: Option<Binding>,
    /// How long one call may take.
    pub timeout: Duration,
    /// What the operator says that it can do.
    pub skills: Vec<(String, String)>,
    /// What it is told.
    pub sees: Sees,
    /// Names of the tenants that see it; all of them when `None`.
    pub tenants: Option<BTreeSet<String>>,
}

/// What a remote is authenticated to with. Variables and files are read for each call, so that a new value counts at once.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Nothing.
    #[default]
    None,
    /// `Authorization: Bearer …`.
    Bearer(Value),
    /// A header of its own.
    Key {
        /// Which.
        header: HeaderName,
        /// What stands in it.
        value: Value,
    },
    /// A token that is asked for.
    Granted(Arc<ClientCredentials>),
}

/// A secret, or where it is.
#[derive(Debug, Clone)]
pub enum Value {
    /// It stands in the registry's file.
    Inline(Secret),
    /// This variable has it.
    Variable(String),
    /// This file has it.
    File(PathBuf),
}

impl Value {
    /// A file of this server's, which is named by its whole path.
    pub fn file(key: &str, path: &str) -> Result<Self, String> {
        let path = Path::new(path);
        if path.is_absolute() {
            Ok(Self::File(path.to_owned()))
        } else {
            Err(format!("`{key}` is not an absolute path"))
        }
    }

    /// The secret, if there is one.
    pub fn get(&self) -> Option<Secret> {
        match self {
            Self::Inline(secret) => Some(secret.clone()).filter(|secret| !secret.expose().is_empty()),
            Self::Variable(name) => environment::secret(name).map(Secret::new),
            Self::File(path) => environment::secret_in(path).ok().map(Secret::new),
        }
    }

    /// Why there is no secret although there should be one.
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Inline(_) => None,
            Self::Variable(name) => self.get().is_none().then(|| format!("the variable {name} is not set")),
            Self::File(path) => {
                let why = environment::secret_in(path).err()?;
                Some(format!("cannot use the file `{}`: {why}", path.display()))
            }
        }
    }
}

impl Auth {
    /// What to show the remote now.
    pub fn credential(&self) -> Option<Credential> {
        match self {
            Self::None => None,
            Self::Bearer(value) => value.get().map(Credential::Bearer),
            Self::Key { header, value } => value.get().map(|value| Credential::Header { name: header.clone(), value }),
            Self::Granted(credentials) => Some(Credential::ClientCredentials(Arc::clone(credentials))),
        }
    }

    /// Why there is nothing to show although there should be.
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Bearer(value) | Self::Key { value, .. } => value.missing(),
            Self::None | Self::Granted(_) => None,
        }
    }
}

impl Spec {
    /// Whether a text is a URL, or a host with a port, of the host that the operator has for it.
    pub fn names_host(&self, text: &str) -> bool {
        let parsed = match text {
            url if url.contains("://") => Url::parse(url),
            address if address.contains(':') => Url::parse(&format!("http://{address}")),
            // A name or a sentence.
            _ => return false,
        };
        let Ok(url) = parsed else { return false };
        let is_at = |own: &Url| own.host() == url.host();
        self.url.as_ref().is_ok_and(is_at) || self.card.as_ref().is_some_and(is_at)
    }

    /// Makes `card` of a `url` that is that of a card. The card then says where the agent is on that host.
    pub(super) fn at_card(mut self) -> Self {
        if let Ok(url) = &mut self.url
            && let Some(agent) = client::agent_of_card(url)
        {
            let card = std::mem::replace(url, agent);
            self.card.get_or_insert(card);
            self.follows_card = true;
        }
        self
    }

    /// Where its card may be.
    pub fn card_places(&self) -> Vec<Url> {
        match (&self.card, &self.url) {
            (Some(card), _) => vec![card.clone()],
            (None, Ok(url)) if self.registry == Registry::Json => client::card_beside(url),
            (None, Ok(url)) => client::card_well_known(url),
            (None, Err(_)) => Vec::new(),
        }
    }
}
