//! Which server a client command calls, and with which token.

use std::{path::PathBuf, sync::OnceLock, time::Duration};

use agents::units::Span;
use clap::ValueEnum;
use client::{Binding, Connector, Credential, Limits, Secret, parse_url};
use http::{HeaderName, HeaderValue};
use url::{Host, Url};

use crate::{
    config::{self, Environment, Layer, Settings, process_environment},
    credentials::{self, Sources, Variables},
    failure::{Exit, Failure},
    profile,
    servers::Servers,
    trust,
};

/// How operations travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// JSON-RPC
    #[value(alias = "JSONRPC")]
    Jsonrpc,
    /// HTTP+JSON
    #[value(aliases = ["http+json", "HTTP+JSON"])]
    Rest,
    /// gRPC, where the card names it
    #[value(alias = "GRPC")]
    Grpc,
}

impl From<Wire> for Binding {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::Jsonrpc => Self::JsonRpc,
            Wire::Rest => Self::Rest,
            Wire::Grpc => Self::Grpc,
        }
    }
}

/// The options that all client commands share.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// The token to authenticate with [env: SB_TOKEN] [default: that of the profile or of the local server]
    #[arg(long, value_name = "TOKEN", alias = "bearer")]
    token: Option<String>,
    /// A key to authenticate with in the place of a token, in the header `X-API-Key` [env: SB_API_KEY]
    #[arg(long, value_name = "KEY", conflicts_with = "token")]
    api_key: Option<String>,
    /// Something else to say with every call, as `NAME:VALUE`: a header, or metadata of gRPC; may be given again
    #[arg(long = "svc-param", value_name = "NAME:VALUE", value_parser = header)]
    params: Vec<(HeaderName, HeaderValue)>,
    /// A protocol extension to ask for, by its URI; may be given again. Some agents require one
    #[arg(long = "extension", value_name = "URI")]
    extensions: Vec<String>,
    /// How to call the agent [default: the first of `jsonrpc` and `rest` that its card names]
    #[arg(long, value_name = "BINDING", value_enum, alias = "transport")]
    pub(crate) binding: Option<Wire>,
    /// Follow the card to an address on another origin, token included
    #[arg(long)]
    pub(crate) allow_other_origin: bool,
    /// How long the whole command may take
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(crate) timeout: Span,
    /// The server of `sb profile add`; `local` is that of this machine [env: SB_PROFILE] [default: the one in use]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where the local server keeps its files [env: SB_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The configuration file [env: SB_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The target of the command, to which its credentials and headers belong: the first that was found.
    #[arg(skip)]
    home: OnceLock<Origin>,
}

/// Where a command's own credentials belong.
#[derive(Debug, Clone)]
enum Origin {
    /// The local server, wherever that listens.
    Local,
    Of(Url),
}

/// Work to its end or until that time is over.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new(Exit::Timeout, format!("no result within {limit:?}"))
            .hint("give it more time with --timeout; the server goes on with what it has accepted")),
    }
}

/// Whom to call.
pub(crate) struct Target {
    /// Where the agent's card is to be found.
    pub(crate) url: Url,
    /// The credential that belongs there.
    pub(crate) credential: Option<Credential>,
    /// The headers of the command line, if they belong there.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// It was named, not found in the data directory.
    pub(crate) named: bool,
    /// The agent of its profile, for verbs that speak to one; the URL is that of the server.
    pub(crate) default_agent: Option<String>,
}

impl TargetArgs {
    /// Finds the server: the URL or the profile given, SB_URL, SB_PROFILE, the profile in use, or what the local server
    /// wrote down.
    pub(crate) fn target(&self, url: Option<&str>, agent: Option<&str>) -> Result<Target, Failure> {
        Ok(self.find(url, agent, &process_environment, Variables::Sent)?)
    }

    /// The same, or `None` when no server is named and none runs with this data directory.
    pub(crate) fn target_if_any(&self, url: Option<&str>, agent: Option<&str>) -> Result<Option<Target>, Failure> {
        match self.find(url, agent, &process_environment, Variables::Sent) {
            Ok(target) => Ok(Some(target)),
            Err(Missing::Server(_)) => Ok(None),
            Err(Missing::Other(failure)) => Err(failure),
        }
    }

    /// The same for what anybody may read: no variable of the environment is sent there.
    pub(crate) fn public_target(&self, url: Option<&str>, agent: Option<&str>) -> Result<Target, Failure> {
        Ok(self.find(url, agent, &process_environment, Variables::Kept)?)
    }

    /// Takes from others what was not given.
    pub(crate) fn default_to(&mut self, other: &Self) {
        if self.token.is_none() && self.api_key.is_none() {
            self.token.clone_from(&other.token);
            self.api_key.clone_from(&other.api_key);
            // They stay those of the other's target.
            self.home.clone_from(&other.home);
        }
        self.profile = self.profile.take().or_else(|| other.profile.clone());
        self.data_dir = self.data_dir.take().or_else(|| other.data_dir.clone());
        self.config = self.config.take().or_else(|| other.config.clone());
    }

    /// Whether a server was named, by a flag or the environment, beside its URL.
    pub(crate) fn names_server(&self) -> bool {
        let is_set = |name: &str| process_environment(name).is_some();
        self.profile.is_some() || is_set("SB_URL") || is_set("SB_PROFILE")
    }

    /// The flags that lead to the same server again, in the same way. A token is not among them.
    pub(crate) fn words(&self) -> Vec<String> {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
        let named = [
            ("--profile", self.profile.clone()),
            ("--data-dir", self.data_dir.as_ref().map(absolute)),
            ("--config", self.config.as_ref().map(absolute)),
        ];
        let binding = self.binding.and_then(|wire| Some(wire.to_possible_value()?.get_name().to_owned()));
        let how = [("--binding", binding)];
        let extensions = self.extensions.iter().map(|extension| ("--extension", Some(extension.clone())));
        let pairs = named.into_iter().chain(how).chain(extensions);
        let words = pairs.filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten();
        words.chain(self.allow_other_origin.then(|| "--allow-other-origin".to_owned())).collect()
    }

    /// What connections are made with.
    pub(crate) fn connector(&self) -> Connector {
        self.connector_with(Limits::default())
    }

    /// The same within other limits.
    pub(crate) fn connector_with(&self, limits: Limits) -> Connector {
        let servers = self.settings(&process_environment).and_then(|settings| servers(&settings, &process_environment));
        servers.unwrap_or_else(|_| Servers::none()).connector(limits)
    }

    /// How the agent is called.
    pub(crate) fn client_options(&self, target: &Target) -> Result<client::Options, Failure> {
        Ok(client::Options {
            credential: target.credential.clone(),
            headers: target.headers.clone(),
            binding: self.binding.map(Binding::from),
            allow_foreign_interface: self.allow_other_origin,
            trust: trust::configured(&self.settings(&process_environment)?)?,
            extensions: self.extensions.clone(),
            ..client::Options::default()
        })
    }

    /// Runs a command to its end or until its time is over.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        block_on(self.in_time(work))
    }

    /// Work to its end or until its time is over.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        within(self.timeout.0, work).await
    }

    /// The configuration that the command line and the local server share.
    pub(crate) fn settings(&self, environment: Environment<'_>) -> Result<Settings, Failure> {
        let flags = Layer { data_dir: self.data_dir.clone(), ..Layer::default() };
        config::load(flags, self.config.as_deref(), environment)
    }

    /// Whether the configuration was named.
    pub(crate) fn names_config(&self) -> bool {
        self.config.is_some() || process_environment("SB_CONFIG").is_some()
    }

    fn find(
        &self,
        url: Option<&str>,
        agent: Option<&str>,
        environment: Environment<'_>,
        variables: Variables,
    ) -> Result<Target, Missing> {
        let settings = self.settings(environment)?;
        let servers = servers(&settings, environment);
        let profile = profile::chosen(self.profile.as_deref(), self.data_dir.is_some(), environment)?;
        let flagged = profile.as_ref().filter(|profile| profile.by_flag);
        let is_local = self.profile.as_deref() == Some(profile::LOCAL);
        // Flags come before the environment, and that before what was set up once.
        let variable = environment("SB_URL").filter(|_| !is_local);
        let (named, is_profile) = match (url, flagged, variable, &profile) {
            (Some(url), ..) => (Some(server_url(url)?), false),
            (None, Some(profile), ..) => (Some(server_url(&profile.url)?), true),
            (None, None, Some(url), _) => (Some(server_url(&url)?), false),
            (None, None, None, Some(profile)) => (Some(server_url(&profile.url)?), true),
            (None, None, None, None) => (None, false),
        };
        let is_named = named.is_some();
        let (base, servers) = match named {
            Some(base) => match servers {
                Ok(servers) => (servers.resolve(base), Ok(servers)),
                Err(failure) => (base, Err(failure)),
            },
            None => {
                let servers = servers?;
                let newest = servers.newest().ok_or_else(|| Missing::Server(no_server()))?;
                if !newest.runs {
                    return Err(Missing::Server(gone(&newest.url)));
                }
                (parse_url(&newest.url)?, Ok(servers))
            }
        };
        let is_home = match self.home.get_or_init(|| if is_named { Origin::Of(base.clone()) } else { Origin::Local }) {
            Origin::Of(home) => home.origin() == base.origin(),
            Origin::Local => !is_named || servers.as_ref().is_ok_and(|servers| servers.runs_at(&base)),
        };
        let flag = match (&self.api_key, &self.token) {
            (Some(key), _) => Some(credentials::api_key(key.clone())),
            (None, token) => token.clone().map(credentials::bearer),
        };
        let sources = Sources {
            flag: flag.filter(|_| is_home),
            profile_flag: self.profile.as_deref(),
            profile: profile.as_ref(),
            servers,
            environment,
            variables,
        };
        let credential = sources.for_url(&base)?;
        let headers = if is_home { self.params.clone() } else { Vec::new() };
        let default_agent = profile.filter(|_| is_profile && agent.is_none()).and_then(|profile| profile.agent);
        let url = match agent {
            Some(id) => agent_url(base, id)?,
            None => base,
        };
        Ok(Target { url, credential, headers, named: is_named, default_agent })
    }
}

/// Why there is no target.
#[derive(Debug)]
enum Missing {
    /// No server is named, and none runs with this data directory.
    Server(Failure),
    Other(Failure),
}

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<client::Error> for Missing {
    fn from(error: client::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Server(failure) | Missing::Other(failure) => failure,
        }
    }
}

impl Target {
    /// The credential, if it is a bearer token.
    pub(crate) fn token(&self) -> Option<Secret> {
        match &self.credential {
            Some(Credential::Bearer(token)) => Some(token.clone()),
            _ => None,
        }
    }

    /// The agent that is meant where none was named: that of the profile, if it has one.
    pub(crate) fn or_default_agent(mut self) -> Result<Self, Failure> {
        if let Some(agent) = self.default_agent.take() {
            self.url = agent_url(self.url, &agent)?;
        }
        Ok(self)
    }
}

/// The servers of the data directory. Without a home there are none.
fn servers(settings: &Settings, environment: Environment<'_>) -> Result<Servers, Failure> {
    match settings.data_dir(environment) {
        Ok(directory) => Servers::of(&directory),
        Err(_) => Ok(Servers::none()),
    }
}

/// Runs a command to its end or until its time is over, and gives a hint then.
pub(crate) fn run_within<T>(
    limit: Duration,
    hint: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    block_on(async {
        match tokio::time::timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(Exit::Timeout, format!("no result within {limit:?}")).hint(hint)),
        }
    })
}

/// Runs a command to its end, however long that takes.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start").caused_by(&error))?;
    runtime.block_on(work)
}

/// A header as it is given on the command line.
fn header(given: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = given.split_once([':', '=']).ok_or("write NAME:VALUE")?;
    let name = name.trim().parse().map_err(|_| format!("`{}` is no name of a header", name.trim()))?;
    let value = value.trim().parse().map_err(|_| "the value has characters that no header can carry")?;
    Ok((name, value))
}

/// One agent of a Switchboard server.
fn agent_url(mut base: Url, id: &str) -> Result<Url, Failure> {
    if let Err(reason) = id.parse::<store::AgentId>() {
        return Err(Failure::usage(format!("`{id}` is not an agent id")).because(reason));
    }
    // Fails only for URLs without a host, which `parse_url` refuses.
    if let Ok(mut path) = base.path_segments_mut() {
        path.pop_if_empty().extend(["a2a", "agents", id]);
    }
    Ok(base)
}

/// The URL of a server. `HOST:PORT` is one of this machine by HTTP, and one elsewhere by HTTPS.
pub(crate) fn server_url(text: &str) -> Result<Url, client::Error> {
    let host = text.split('/').next().unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port);
    let is_address = port.is_some_and(|port| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()));
    if text.contains("://") || !is_address {
        return parse_url(text);
    }
    let url = parse_url(&format!("http://{text}"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if is_loopback { Ok(url) } else { parse_url(&format!("https://{text}")) }
}

/// Whoever answers there now may be anybody: nothing is sent, and no token.
pub(crate) fn gone(url: &str) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("no server runs with this data directory; the one that started last answered at {url}"),
    )
    .hint("start one with `sb serve`, or name one with --url")
}

fn no_server() -> Failure {
    Failure::usage("no server is known")
        .because("neither --url nor SB_URL is given, and no server has started with this data directory")
        .hint("start one with `sb serve`, or name one with --url")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::local::{Local, PrivateFile};

    fn args(directory: &Path) -> TargetArgs {
        TargetArgs {
            extensions: Vec::new(),
            token: None,
            api_key: None,
            params: Vec::new(),
            binding: None,
            allow_other_origin: false,
            timeout: "1s".parse().unwrap(),
            profile: None,
            data_dir: Some(directory.to_owned()),
            config: None,
            home: OnceLock::new(),
        }
    }

    fn found(args: &TargetArgs, url: Option<&str>, variables: &[(&str, &str)]) -> (String, Option<String>) {
        let environment =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let target =
            args.find(url, None, &environment, Variables::Sent).unwrap_or_else(|failure| panic!("{failure:?}"));
        let token = target.token().map(|token| token.expose().to_owned());
        (target.url.to_string(), token)
    }

    #[test]
    fn an_address_without_a_scheme_is_a_url() {
        for (text, url) in [
            ("127.0.0.1:8765", "http://127.0.0.1:8765/"),
            ("localhost:8765/base", "http://localhost:8765/base"),
            ("[::1]:80", "http://[::1]/"),
            ("agents.example.com:8443", "https://agents.example.com:8443/"),
            ("http://agents.example.com", "http://agents.example.com/"),
        ] {
            assert_eq!(server_url(text).unwrap().as_str(), url);
        }
        for text in ["nonsense", "agents.example.com", "localhost:", "127.0.0.1:x", "a b:80"] {
            assert!(server_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_stored_token_goes_only_where_it_belongs() {
        let directory = tempfile::tempdir().unwrap();
        let local =
            Local { url: Some("http://127.0.0.1:1".to_owned()), token: Some("stored".to_owned()), ..Local::default() };
        local.save(directory.path()).unwrap();
        let args = args(directory.path());
        // Whoever answers where a server was is a stranger.
        let missing = args.find(None, None, &|_| None, Variables::Sent);
        let Err(Missing::Server(failure)) = missing else { panic!("a server was found") };
        assert!(failure.exit == Exit::Unreachable && failure.error.contains("127.0.0.1:1"), "{failure:?}");
        assert_eq!(found(&args, Some("http://127.0.0.1:1/x"), &[]).1, None);
        let _server = crate::servers::tests::started(directory.path(), "http://127.0.0.1:1", 1);
        let stored = Some("stored".to_owned());
        assert_eq!(found(&args, None, &[]), ("http://127.0.0.1:1/".to_owned(), stored.clone()));
        assert_eq!(found(&args, Some("http://127.0.0.1:1/x"), &[]).1, stored);
        assert_eq!(found(&args, Some("http://127.0.0.1:2"), &[]).1, None);
        assert_eq!(found(&args, None, &[("SB_URL", "https://other.example.org")]).1, None);
        let variables = [("SB_URL", "https://other.example.org"), ("SB_TOKEN", "given")];
        assert_eq!(found(&args, None, &variables).1, Some("given".to_owned()));
        assert_eq!(found(&args, None, &[("SB_TOKEN", "given")]).1, Some("given".to_owned()));
    }

    #[test]
    fn flags_win_over_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let mut args = args(directory.path());
        args.token = Some("flag".to_owned());
        let variables = [("SB_URL", "http://b"), ("SB_TOKEN", "variable")];
        assert_eq!(found(&args, Some("http://a"), &variables), ("http://a/".to_owned(), Some("flag".to_owned())));
    }

    #[test]
    fn without_a_server_there_is_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let missing = args(directory.path()).find(None, None, &|_| None, Variables::Sent);
        let Err(Missing::Server(failure)) = missing else { panic!("a server was found") };
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.hint.unwrap().contains("sb serve"));
    }

    #[test]
    fn an_agent_is_below_its_server() {
        let url = agent_url(parse_url("http://h/base/").unwrap(), "echo").unwrap();
        assert_eq!(url.as_str(), "http://h/base/a2a/agents/echo");
        assert!(agent_url(parse_url("http://h").unwrap(), "../x").is_err());
    }
}
