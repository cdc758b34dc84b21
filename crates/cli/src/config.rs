//! The configuration: flags over environment over one TOML file over defaults.
//!
//! Each source is one [`Layer`] with the same keys; the first layer that has a key decides it. This module
//! reads and checks; nothing else looks at configuration variables.

mod limits;
mod masked;

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use agents::units::{Span, nearest};
use clap::ValueEnum;
use serde::Deserialize;
use store::{AgentId, Location, Wake};

pub(crate) use self::masked::Masked;
use self::{
    limits::{Bounds, CorsTable, Limits},
    masked::masked,
};
use crate::failure::Failure;

/// Where the environment comes from, so that tests can bring their own.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One source of configuration. The names of the fields are the keys of the file and, in upper case behind
/// `SB_`, of the environment; a table's name goes before its keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    pub(crate) listen: Option<String>,
    pub(crate) data_dir: Option<PathBuf>,
    /// Where the journal is; may hold a password.
    pub(crate) store: Option<Masked>,
    pub(crate) store_connections: Option<u16>,
    /// How instances wake each other; may hold a password.
    pub(crate) wake: Option<Masked>,
    pub(crate) public_url: Option<String>,
    pub(crate) no_auth: Option<bool>,
    pub(crate) demo_agents: Option<bool>,
    pub(crate) default_agent: Option<String>,
    pub(crate) blocking_cap: Option<Span>,
    pub(crate) cancel_grace: Option<Span>,
    pub(crate) lease: Option<Span>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) cards: Option<Cards>,
    #[serde(default)]
    pub(crate) limits: Limits,
    #[serde(default)]
    pub(crate) cors: CorsTable,
    /// Where the file is or would be, and beside it the agents' files. Not a key.
    #[serde(skip)]
    pub(crate) config_dir: Option<PathBuf>,
}

/// Every key of a [`Layer`].
const KEYS: [&str; 16] = [
    "listen",
    "data_dir",
    "store",
    "store_connections",
    "wake",
    "public_url",
    "no_auth",
    "demo_agents",
    "default_agent",
    "blocking_cap",
    "cancel_grace",
    "lease",
    "log_format",
    "cards",
    "limits",
    "cors",
];

/// How many connections read the journal when nothing is said, and at most.
const CONNECTIONS: u16 = 8;
const MAX_CONNECTIONS: usize = 1000;

/// The tables among them, with their keys.
const TABLES: [(&str, &[&str]); 3] = [("cards", &["compat"]), ("limits", Limits::KEYS), ("cors", CorsTable::KEYS)];

/// What agent cards say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cards {
    /// `"0.3"` puts the fields of that version beside those of 1.0, for clients that know no other.
    pub(crate) compat: Option<Compat>,
}

/// A version of the protocol that cards can be made readable for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Compat {
    #[serde(rename = "0.3")]
    V03,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Human,
    /// One JSON object a line
    Json,
}

/// The server's configuration, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// What belongs to this instance alone; on SQLite, unless told otherwise, the journal as well.
    pub(crate) data_dir: PathBuf,
    /// Where the journal is.
    pub(crate) location: Location,
    /// How many connections or threads read the journal.
    pub(crate) store_connections: usize,
    /// How instances wake each other.
    pub(crate) wake: Wake,
    pub(crate) public_url: Option<String>,
    pub(crate) auth: bool,
    pub(crate) demo_agents: bool,
    pub(crate) default_agent: Option<AgentId>,
    pub(crate) blocking_cap: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) lease: Duration,
    pub(crate) log_format: LogFormat,
    /// The public card can be read by clients of the 0.3 line.
    pub(crate) compat_03: bool,
    /// Of what callers send, keep and cause.
    pub(crate) bounds: Bounds,
    /// Which web pages may call.
    pub(crate) cors: server::Cors,
    /// Where agent files are looked for; nowhere when there is no home.
    pub(crate) config_dir: Option<PathBuf>,
}

/// The variables of this process; an empty one counts as unset.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// All layers as one. `file` is the `--config` flag.
pub(crate) fn load(flags: Layer, file: Option<&Path>, environment: Environment<'_>) -> Result<Layer, Failure> {
    let from_environment = Layer::from_environment(environment)?;
    let given = file.map(Path::to_owned).or_else(|| environment("SB_CONFIG").map(PathBuf::from));
    let path = given.clone().or_else(|| Some(config_home(environment)?.join("switchboard.toml")));
    let mut from_file = match &path {
        Some(path) => match (Layer::from_file(path)?, &given) {
            (Some(layer), _) => layer,
            (None, None) => Layer::default(),
            (None, Some(path)) => {
                return Err(Failure::usage(format!("there is no configuration file at `{}`", path.display()))
                    .hint("check --config or SB_CONFIG, or leave it out to run with the defaults"));
            }
        },
        None => Layer::default(),
    };
    from_file.config_dir = path.and_then(|path| Some(std::path::absolute(path).ok()?.parent()?.to_owned()));
    Ok(flags.over(from_environment).over(from_file))
}

impl Config {
    /// How the journal is opened.
    pub(crate) fn open_options(&self) -> store::OpenOptions {
        store::OpenOptions { connections: self.store_connections, wake: Some(self.wake.clone()) }
    }

    /// Where agent files are looked for.
    pub(crate) fn agents_dir(&self) -> Option<PathBuf> {
        Some(self.config_dir.as_ref()?.join("agents"))
    }
}

impl Layer {
    /// The server's configuration.
    pub(crate) fn check(self, environment: Environment<'_>) -> Result<Config, Failure> {
        let data_dir = self.data_dir(environment)?;
        let location = self.location(environment)?;
        let wake = self.wake(&location)?;
        let store_connections = usize::from(self.store_connections.unwrap_or(CONNECTIONS));
        if !(1..=MAX_CONNECTIONS).contains(&store_connections) {
            return Err(Failure::usage(format!("`store_connections` is {store_connections}"))
                .because(format!("it has to be 1 to {MAX_CONNECTIONS}")));
        }
        let listen = address(self.listen.as_deref().unwrap_or("127.0.0.1:8765"))?;
        let public_url = self.public_url.as_deref().map(public_url).transpose()?;
        let auth = !self.no_auth.unwrap_or(false);
        if !auth && !listen.ip().is_loopback() {
            return Err(Failure::usage(format!("refusing to serve {listen} without authentication"))
                .because("--no-auth is accepted on a loopback address only")
                .hint("leave --no-auth out, or listen on 127.0.0.1"));
        }
        if listen.ip().is_unspecified() && public_url.is_none() {
            return Err(Failure::usage(format!("listening on {listen} needs a public URL"))
                .because("agent cards have to name an address that callers can reach")
                .hint("add --public-url https://agents.example.org, or listen on one address"));
        }
        let demo_agents = self.demo_agents.unwrap_or(true);
        let default_agent = match self.default_agent.as_deref() {
            Some(id) => Some(AgentId::from_str(id).map_err(|reason| {
                Failure::usage(format!("`default_agent` is `{id}`, which is not an agent id")).because(reason)
            })?),
            None if demo_agents => "echo".parse().ok(),
            None => None,
        };
        let defaults = exchange::Options::default();
        Ok(Config {
            listen,
            data_dir,
            location,
            store_connections,
            wake,
            public_url,
            auth,
            demo_agents,
            default_agent,
            blocking_cap: self.blocking_cap.map_or(defaults.blocking_cap, |span| span.0),
            cancel_grace: self.cancel_grace.map_or(defaults.cancel_grace, |span| span.0),
            lease: self.lease.map_or(defaults.lease, |span| span.0),
            log_format: self.log_format.unwrap_or_default(),
            compat_03: self.cards.is_some_and(|cards| cards.compat == Some(Compat::V03)),
            bounds: self.limits.check()?,
            cors: self.cors.check()?,
            config_dir: self.config_dir,
        })
    }

    /// Where the server keeps its files, and the CLI finds what the server left for it.
    pub(crate) fn data_dir(&self, environment: Environment<'_>) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.data_dir {
            return Ok(directory.clone());
        }
        let home = xdg(environment, "XDG_DATA_HOME", ".local/share").ok_or_else(|| {
            Failure::usage("there is no place for the data")
                .because("neither XDG_DATA_HOME nor HOME is set")
                .hint("name a directory with --data-dir or SB_DATA_DIR")
        })?;
        Ok(home.join("switchboard"))
    }

    /// Where the journal is: SQLite in the data directory when nothing is said.
    pub(crate) fn location(&self, environment: Environment<'_>) -> Result<Location, Failure> {
        let Some(store) = &self.store else {
            return self.data_dir(environment).map(Location::Sqlite);
        };
        Location::parse(store.expose()).map_err(|reason| {
            Failure::usage(format!("cannot use the store `{store}`"))
                .because(reason)
                .hint("it is given by --store, SB_STORE or `store` in the configuration file")
        })
    }

    /// How instances on this journal wake each other.
    fn wake(&self, location: &Location) -> Result<Wake, Failure> {
        let failure = |wake: &Masked| Failure::usage(format!("cannot use the wake-up channel `{wake}`"));
        let hint = "it is given by --wake, SB_WAKE or `wake` in the configuration file";
        let wanted = match &self.wake {
            None => None,
            Some(wake) => {
                Some(wake.expose().parse::<Wake>().map_err(|error| failure(wake).caused_by(&error).hint(hint))?)
            }
        };
        location.wake(wanted.as_ref()).map_err(|reason| {
            let named = self.wake.clone().unwrap_or_default();
            failure(&named).because(reason).hint("leave it out, or write local, off, nats://HOST or tls://HOST")
        })
    }

    /// This layer, and where it is silent the one below.
    fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            data_dir: self.data_dir.or(below.data_dir),
            store: self.store.or(below.store),
            store_connections: self.store_connections.or(below.store_connections),
            wake: self.wake.or(below.wake),
            public_url: self.public_url.or(below.public_url),
            no_auth: self.no_auth.or(below.no_auth),
            demo_agents: self.demo_agents.or(below.demo_agents),
            default_agent: self.default_agent.or(below.default_agent),
            blocking_cap: self.blocking_cap.or(below.blocking_cap),
            cancel_grace: self.cancel_grace.or(below.cancel_grace),
            lease: self.lease.or(below.lease),
            log_format: self.log_format.or(below.log_format),
            cards: self.cards.or(below.cards),
            limits: self.limits.over(below.limits),
            cors: self.cors.over(below.cors),
            config_dir: self.config_dir.or(below.config_dir),
        }
    }

    fn from_environment(environment: Environment<'_>) -> Result<Self, Failure> {
        Ok(Self {
            listen: environment("SB_LISTEN"),
            data_dir: environment("SB_DATA_DIR").map(PathBuf::from),
            store: environment("SB_STORE").map(Masked::new),
            store_connections: variable(environment, "SB_STORE_CONNECTIONS", |text| {
                text.parse().map_err(|_| format!("it has to be a number from 1 to {MAX_CONNECTIONS}"))
            })?,
            wake: environment("SB_WAKE").map(Masked::new),
            public_url: environment("SB_PUBLIC_URL"),
            no_auth: variable(environment, "SB_NO_AUTH", yes_or_no)?,
            demo_agents: variable(environment, "SB_DEMO_AGENTS", yes_or_no)?,
            default_agent: environment("SB_DEFAULT_AGENT"),
            blocking_cap: variable(environment, "SB_BLOCKING_CAP", str::parse)?,
            cancel_grace: variable(environment, "SB_CANCEL_GRACE", str::parse)?,
            lease: variable(environment, "SB_LEASE", str::parse)?,
            log_format: variable(environment, "SB_LOG_FORMAT", |text| LogFormat::from_str(text, true))?,
            cards: None,
            limits: Limits::from_environment(environment)?,
            cors: CorsTable::from_environment(environment)?,
            config_dir: None,
        })
    }

    /// `None` when there is no such file.
    fn from_file(path: &Path) -> Result<Option<Self>, Failure> {
        let failure = || Failure::usage(format!("cannot use the configuration file `{}`", path.display()));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure().caused_by(&error)),
        };
        // What is wrong with a file is shown with its line, which may hold a password.
        let wrong = |error: toml::de::Error| failure().because(masked(error.to_string().trim_end()));
        let table: toml::Table = text.parse().map_err(wrong)?;
        refuse_unknown(&table, "", &KEYS, failure)?;
        for (name, keys) in TABLES {
            if let Some(toml::Value::Table(table)) = table.get(name) {
                refuse_unknown(table, &format!("{name}."), keys, failure)?;
            }
        }
        let mut layer: Self = toml::from_str(&text).map_err(wrong)?;
        // A path in a file is meant from where the file is, whoever starts the server from wherever.
        if let (Some(directory), Some(base)) = (&layer.data_dir, path.parent()) {
            layer.data_dir = Some(base.join(directory));
        }
        if let (Some(store), Some(base)) = (&layer.store, path.parent())
            && let Some(directory) = store.expose().strip_prefix("sqlite:").filter(|directory| !directory.is_empty())
        {
            let directory = base.join(directory.strip_prefix("//").unwrap_or(directory));
            layer.store = Some(Masked::new(format!("sqlite:{}", directory.display())));
        }
        Ok(Some(layer))
    }
}

/// Refuses a table with a key that is not one of `keys`. `prefix` is what stands before them.
fn refuse_unknown(
    table: &toml::Table,
    prefix: &str,
    keys: &[&'static str],
    failure: impl FnOnce() -> Failure,
) -> Result<(), Failure> {
    let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) else {
        return Ok(());
    };
    let failure = failure().because(format!("unknown key `{prefix}{unknown}`"));
    Err(match nearest(unknown, keys) {
        Some(key) => failure.hint(format!("did you mean `{prefix}{key}`?")),
        None => failure.hint(format!("the keys are {prefix}{}", keys.join(&format!(", {prefix}")))),
    })
}

fn variable<T>(
    environment: Environment<'_>,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let Some(value) = environment(name) else {
        return Ok(None);
    };
    parse(&value).map(Some).map_err(|reason| Failure::usage(format!("cannot use {name}={value}")).because(reason))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("it has to be true or false".to_owned()),
    }
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let failure = || {
        Failure::usage(format!("cannot listen on `{text}`"))
            .hint("write HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765")
    };
    let mut addresses = text.to_socket_addrs().map_err(|error| failure().caused_by(&error))?;
    addresses.next().ok_or_else(|| failure().because("the name has no address"))
}

fn public_url(text: &str) -> Result<String, Failure> {
    let failure = || Failure::usage(format!("`{text}` cannot be the public URL"));
    let url = client::parse_url(text).map_err(|error| failure().caused_by(&error))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(failure().because("it has a query or a fragment").hint("write scheme, host and path only"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn config_home(environment: Environment<'_>) -> Option<PathBuf> {
    Some(xdg(environment, "XDG_CONFIG_HOME", ".config")?.join("switchboard"))
}

/// A base directory of the XDG specification, which says that a relative path counts as unset.
fn xdg(environment: Environment<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = environment(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    given.or_else(|| environment("HOME").map(|home| PathBuf::from(home).join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switchboard.toml");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let (_keep, path) = file("listen = \"127.0.0.1:3\"\nblocking_cap = \"3s\"\nlease = \"3s\"\n");
        let variables =
            environment(&[("SB_LISTEN", "127.0.0.1:2"), ("SB_BLOCKING_CAP", "2s"), ("SB_DATA_DIR", "/data")]);
        let flags = Layer { listen: Some("127.0.0.1:1".to_owned()), ..Layer::default() };
        let config = load(flags, Some(&path), &variables).unwrap().check(&variables).unwrap();
        assert_eq!(config.listen.port(), 1, "flag");
        assert_eq!(config.blocking_cap, Duration::from_secs(2), "environment");
        assert_eq!(config.lease, Duration::from_secs(3), "file");
        assert_eq!(config.cancel_grace, exchange::Options::default().cancel_grace, "default");
        assert!(config.auth && config.demo_agents);
        assert_eq!(config.default_agent.unwrap().as_str(), "echo");
    }

    #[test]
    fn every_key_can_stand_in_the_file() {
        let (_keep, path) = file(
            r#"
            listen = "0.0.0.0:1"
            data_dir = "data"
            store = "sqlite:journal"
            store_connections = 3
            wake = "off"
            public_url = "https://agents.example.org/"
            no_auth = false
            demo_agents = false
            default_agent = "research"
            blocking_cap = "2m"
            cancel_grace = "500ms"
            lease = "10s"
            log_format = "json"
            cards.compat = "0.3"
            limits.tasks = 5
            cors.origins = ["https://app.example.org"]
            "#,
        );
        let nothing = environment(&[]);
        let config = load(Layer::default(), Some(&path), &nothing).unwrap().check(&nothing).unwrap();
        assert_eq!(config.public_url.unwrap(), "https://agents.example.org");
        assert_eq!(config.data_dir, path.parent().unwrap().join("data"));
        assert_eq!(config.location.directory(), Some(path.parent().unwrap().join("journal").as_path()));
        assert_eq!((config.store_connections, config.wake), (3, Wake::Off));
        assert_eq!(config.log_format, LogFormat::Json);
        assert!(config.compat_03);
        assert_eq!(config.cancel_grace, Duration::from_millis(500));
        assert_eq!(config.bounds.exchange().quota.tasks, Some(5));
        assert_eq!(config.cors, server::Cors::Only(vec!["https://app.example.org".to_owned()]));
        let text = std::fs::read_to_string(&path).unwrap();
        for key in KEYS {
            assert!(text.contains(key), "{key} is not in this test");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_with_a_suggestion() {
        for (key, meant) in [("lisen", "listen"), ("public-url", "public_url"), ("demo_agent", "demo_agents")] {
            let (_keep, path) = file(&format!("{key} = 1\n"));
            let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
            assert_eq!(failure.causes, [format!("unknown key `{key}`")]);
            assert_eq!(failure.hint.unwrap(), format!("did you mean `{meant}`?"));
        }
        for (text, unknown, meant) in [
            ("[limits]\nbody-byte = 1\n", "limits.body-byte", "limits.body_bytes"),
            ("[limits]\nstored_byte = 1\n", "limits.stored_byte", "limits.stored_bytes"),
            ("cors.origin = \"*\"\n", "cors.origin", "cors.origins"),
        ] {
            let (_keep, path) = file(text);
            let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
            assert_eq!(failure.causes, [format!("unknown key `{unknown}`")]);
            assert_eq!(failure.hint.unwrap(), format!("did you mean `{meant}`?"));
        }
        let (_keep, path) = file("zzz = 1\n");
        let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
        assert!(failure.hint.unwrap().starts_with("the keys are"));
    }

    #[test]
    fn bad_values_are_usage_errors() {
        for text in ["listen = 5", "lease = \"5\"", "log_format = \"xml\"", "listen = "] {
            let (_keep, path) = file(text);
            let failure = load(Layer::default(), Some(&path), &environment(&[])).unwrap_err();
            assert_eq!(failure.exit as u8, 2, "{text}");
        }
        for (name, value) in [("SB_NO_AUTH", "maybe"), ("SB_LEASE", "soon"), ("SB_LOG_FORMAT", "xml")] {
            let failure = load(Layer::default(), None, &environment(&[(name, value)])).unwrap_err();
            assert!(failure.error.contains(name));
        }
    }

    #[test]
    fn the_journal_is_where_it_is_said_to_be() {
        let location = |store: &str, wake: &str| {
            let pairs = [("SB_STORE", store), ("SB_WAKE", wake), ("SB_DATA_DIR", "/data")];
            let given = environment(&pairs);
            let variables = |name: &str| given(name).filter(|value| !value.is_empty());
            let config = load(Layer::default(), None, &variables)?.check(&variables)?;
            Ok::<_, Failure>((config.location.to_string(), config.wake.to_string()))
        };
        let is = |store: &str, wake: &str| (store.to_owned(), wake.to_owned());
        assert_eq!(location("", "").unwrap(), is("sqlite:/data", "local"));
        assert_eq!(location("sqlite:/x", "off").unwrap(), is("sqlite:/x", "off"));
        assert_eq!(location("postgres://u:secret@h/d", "").unwrap(), is("postgres://u:***@h/d", "notify"));
        assert_eq!(location("postgresql://h/d", "local").unwrap(), is("postgresql://h/d", "local"));
        for (store, wake) in [
            ("postgres://u:secret@h:x/d", ""),
            ("postgres://u:secret@h/d?zzz=1", ""),
            ("postgress://u:sec/ret@h/d", ""),
            ("mysql://u@h/d?password=secret", ""),
            ("sqlite:", ""),
            ("", "notify"),
            ("", "nats://user:secret@"),
            ("", "tls://user:secret@h?secret=1"),
            ("", "sometimes"),
        ] {
            let failure = location(store, wake).unwrap_err();
            assert_eq!(failure.exit as u8, 2);
            assert!(failure.hint.is_some());
            let said = format!("{failure:?}");
            assert!(!said.contains("sec"), "{said}");
        }
        for connections in ["0", "1001", "many", "-1"] {
            let pairs = [("SB_STORE_CONNECTIONS", connections), ("SB_DATA_DIR", "/data")];
            let variables = environment(&pairs);
            let checked = load(Layer::default(), None, &variables).and_then(|layer| layer.check(&variables));
            assert_eq!(checked.unwrap_err().exit as u8, 2);
        }
    }

    #[test]
    fn a_broken_file_does_not_tell_its_password() {
        for text in [
            "store = \"postgres://u:secret@h/d",
            "store = \"postgres://u:secret@h/d\" x",
            "store = [\"postgres://h/d?password=secret\"]",
        ] {
            let (_keep, path) = file(text);
            let said = format!("{:?}", load(Layer::default(), Some(&path), &environment(&[])).unwrap_err());
            assert!(said.contains("postgres://") && !said.contains("secret"), "{said}");
        }
        let layer = Layer { store: Some(Masked::new("postgres://u:secret@h/d".into())), ..Layer::default() };
        assert!(!format!("{layer:?}").contains("secret"));
    }

    #[test]
    fn tables_are_layered_key_by_key() {
        let (_keep, path) = file("[limits]\ntasks = 3\nstreams = 3\nbody_bytes = \"3MiB\"\n");
        let variables = environment(&[
            ("SB_LIMITS_STREAMS", "2"),
            ("SB_CORS_ORIGINS", "https://a, https://b"),
            ("SB_DATA_DIR", "/data"),
        ]);
        let config = load(Layer::default(), Some(&path), &variables).unwrap().check(&variables).unwrap();
        let options = config.bounds.exchange();
        assert_eq!((options.quota.tasks, options.max_streams), (Some(3), Some(2)));
        assert_eq!(config.cors, server::Cors::Only(vec!["https://a".to_owned(), "https://b".to_owned()]));
        for (name, value) in [("SB_LIMITS_TASKS", "many"), ("SB_LIMITS_BODY_BYTES", "10MB")] {
            let failure = load(Layer::default(), None, &environment(&[(name, value)])).unwrap_err();
            assert!(failure.error.contains(name));
        }
    }

    #[test]
    fn a_missing_file_matters_only_when_it_was_named() {
        assert!(load(Layer::default(), None, &environment(&[("XDG_CONFIG_HOME", "/nowhere")])).is_ok());
        assert!(load(Layer::default(), Some(Path::new("/nowhere/x.toml")), &environment(&[])).is_err());
        assert!(load(Layer::default(), None, &environment(&[("SB_CONFIG", "/nowhere/x.toml")])).is_err());
    }

    #[test]
    fn the_data_directory_follows_xdg() {
        let at = |pairs: &[(&str, &str)]| Layer::default().data_dir(&environment(pairs)).ok();
        assert_eq!(at(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]), Some("/x/switchboard".into()));
        assert_eq!(at(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]), Some("/h/.local/share/switchboard".into()));
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn what_is_not_safe_is_refused() {
        let home = environment(&[("HOME", "/h")]);
        let check = |listen: &str, no_auth: bool, public_url: Option<&str>| {
            let layer = Layer {
                listen: Some(listen.to_owned()),
                no_auth: Some(no_auth),
                public_url: public_url.map(str::to_owned),
                ..Layer::default()
            };
            layer.check(&home).map_err(|failure| failure.exit as u8)
        };
        let url = Some("https://agents.example.org");
        assert!(check("127.0.0.1:0", true, None).is_ok());
        assert!(check("[::1]:0", true, None).is_ok());
        assert_eq!(check("0.0.0.0:0", true, url).unwrap_err(), 2);
        assert_eq!(check("192.0.2.1:0", true, None).unwrap_err(), 2);
        assert_eq!(check("0.0.0.0:0", false, None).unwrap_err(), 2);
        assert_eq!(check("[::]:0", false, None).unwrap_err(), 2);
        assert!(check("0.0.0.0:0", false, url).is_ok());
        assert_eq!(check("8765", false, None).unwrap_err(), 2);
        assert_eq!(check("127.0.0.1:0", false, Some("agents.example.org")).unwrap_err(), 2);
        assert_eq!(check("127.0.0.1:0", false, Some("https://h/?a=b")).unwrap_err(), 2);
    }
}
