//! Decides which credential is sent to which origin.
//!
//! A flag belongs to the target of its command, a profile's token to the origin of the profile, and the stored token to the
//! servers of the data directory. A variable belongs to the origin of SB_URL, and where SB_URL is not set to the servers of
//! the data directory, and is never sent to fetch a card. Nothing is sent anywhere else, except with `--allow-other-origin` to the origin that the card
//! names.
//!
//! Two loopback addresses are two origins: another user of this machine may listen on one of them at the same port. URLs are
//! compared after [`Servers::resolve`], which leads `localhost` to a server of the data directory.

use std::sync::{Mutex, PoisonError};

use client::{Credential, Secret, origin};
use http::HeaderName;
use url::Url;

use crate::{
    config::Environment,
    failure::Failure,
    profile::{Chosen, LOCAL},
    servers::Servers,
    target::server_url,
};

/// Why variables were not sent with the last call that was prepared.
static WITHHELD: Mutex<Option<String>> = Mutex::new(None);

/// Everything that a command can authenticate with.
pub(crate) struct Sources<'a> {
    /// `--token` or `--api-key`, if the command's target is the one that is called.
    pub(crate) flag: Option<Credential>,
    /// The name of `--profile`.
    pub(crate) profile_flag: Option<&'a str>,
    /// The profile that counts.
    pub(crate) profile: Option<&'a Chosen>,
    /// The servers of the data directory.
    pub(crate) servers: Result<Servers, Failure>,
    pub(crate) environment: Environment<'a>,
    pub(crate) variables: Variables,
}

/// Whether a command sends the secrets in variables of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variables {
    /// To the origin that they belong to.
    Sent,
    /// Nowhere: what the command asks for is public.
    Kept,
}

impl Sources<'_> {
    /// The credential for a URL: that of a flag, else of the profile that a flag names, else of the environment, else of the
    /// profile in use, else of the data directory.
    pub(crate) fn for_url(self, url: &Url) -> Result<Option<Credential>, Failure> {
        let none = Servers::none();
        let servers = self.servers.as_ref().unwrap_or(&none);
        let mut withheld = Withheld { variables: self.variables, ..Withheld::new(url) };
        let key = withheld.variable("SB_API_KEY", servers, self.environment);
        let token = withheld.variable("SB_TOKEN", servers, self.environment);
        let of_profile = self.profile.and_then(|profile| profile.token_for(url, servers)).map(bearer);
        withheld.keep();
        if self.flag.is_some() {
            return Ok(self.flag);
        }
        if self.profile_flag == Some(LOCAL)
            && let Some(stored) = servers.token_for(url)
        {
            return Ok(Some(bearer(stored)));
        }
        if self.profile.is_some_and(|profile| profile.by_flag) && of_profile.is_some() {
            return Ok(of_profile);
        }
        if let Some(key) = key? {
            return Ok(Some(api_key(key)));
        }
        if let Some(found) = token?.map(bearer).or(of_profile) {
            return Ok(Some(found));
        }
        Ok(self.servers?.token_for(url).map(bearer))
    }
}

/// A secret variable, if it belongs to the origin of a URL.
pub(crate) fn variable(
    name: &'static str,
    url: &Url,
    servers: &Servers,
    environment: Environment<'_>,
) -> Result<Option<String>, Failure> {
    let mut withheld = Withheld::new(url);
    let value = withheld.variable(name, servers, environment);
    withheld.keep();
    value
}

/// Says which variables were not sent with the last call, and why.
pub(crate) fn withheld() -> Option<String> {
    WITHHELD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(crate) fn bearer(token: String) -> Credential {
    Credential::Bearer(Secret::new(token))
}

pub(crate) fn api_key(key: String) -> Credential {
    Credential::Header { name: HeaderName::from_static("x-api-key"), value: Secret::new(key) }
}

/// The variables that do not belong to the origin of a URL.
struct Withheld<'a> {
    url: &'a Url,
    names: Vec<&'static str>,
    variables: Variables,
    /// The origin of SB_URL.
    home: Option<String>,
}

impl<'a> Withheld<'a> {
    fn new(url: &'a Url) -> Self {
        Self { url, names: Vec::new(), variables: Variables::Sent, home: None }
    }

    fn variable(
        &mut self,
        name: &'static str,
        servers: &Servers,
        environment: Environment<'_>,
    ) -> Result<Option<String>, Failure> {
        let belongs = match environment("SB_URL") {
            _ if self.variables == Variables::Kept => false,
            Some(home) => {
                let home = server_url(&home).ok().map(|home| servers.resolve(home));
                self.home = Some(home.as_ref().map_or_else(|| "SB_URL".to_owned(), origin));
                home.is_some_and(|home| home.origin() == self.url.origin())
            }
            None => servers.runs_at(self.url),
        };
        let value = agents::environment::secret_from(name, environment);
        if belongs {
            return value.map_err(Failure::usage);
        }
        if !matches!(value, Ok(None)) {
            self.names.push(name);
        }
        Ok(None)
    }

    fn keep(self) {
        let said = (!self.names.is_empty()).then(|| self.text());
        *WITHHELD.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    fn text(&self) -> String {
        let (names, here) = (self.names.join(" and "), origin(self.url));
        if self.variables == Variables::Kept {
            let verb = if self.names.len() == 1 { "was" } else { "were" };
            return format!("{names} {verb} not sent to {here}: cards are fetched with the credential of a flag only");
        }
        let home = match &self.home {
            Some(home) => format!("{home}, the origin of SB_URL"),
            None => "the server of this machine, since SB_URL is not set".to_owned(),
        };
        match self.names.len() {
            1 => format!("{names} was not sent to {here}: it belongs to {home}; SB_URL={here} sends it"),
            _ => format!("{names} were not sent to {here}: they belong to {home}; SB_URL={here} sends them"),
        }
    }
}
