//! The configuration: flags over environment over one TOML file over defaults.
//!
//! Each source is one [`Layer`] with the same keys, which are declared in [`keys`] and nowhere else; the first layer that
//! has a key decides it. This module reads and checks; nothing else looks at configuration variables.

pub(crate) mod keys;
mod masked;
mod value;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    str::FromStr,
};

use agents::{environment, units::nearest};
use exchange::{Keep, RetentionRule, RetentionRules};
use server::{Cors, Rate};
use store::{AgentId, Location, Wake, check_tenant_name};

pub(crate) use self::{
    keys::Layer,
    masked::Masked,
    value::{CardTrust, LogFormat, Token},
};
use self::{
    keys::{Key, Slot, keys},
    masked::masked,
    value::{Age, AgesOf, Compat},
};
use crate::failure::Failure;

/// Where the environment comes from, so that tests can bring their own.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All layers as one, and where each value comes from.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) keys: Layer,
    /// The file that is read if it is there.
    file: Option<PathBuf>,
    is_there: bool,
    /// Of the keys that are given.
    sources: BTreeMap<&'static str, Source>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Flag,
    Variable,
    File,
}

/// The server's configuration, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// Every key as it was given, or as it was worked out where that takes more than a default.
    pub(crate) keys: Layer,
    /// What belongs to this instance alone; on SQLite, unless told otherwise, the journal as well.
    pub(crate) data_dir: PathBuf,
    /// Where the journal is.
    pub(crate) location: Location,
    /// How the journal is opened.
    pub(crate) open: store::OpenOptions,
    pub(crate) exchange: exchange::Options,
    pub(crate) edge: server::Options,
    /// Where agent files are looked for; nowhere when there is no home.
    pub(crate) agents_dir: Option<PathBuf>,
    /// Which remotes there are, and how they are called. Whose cards are believed is read from files, by whoever calls.
    pub(crate) remotes: agents::remote::Options,
    /// Where it is said which models there are.
    pub(crate) models: Option<PathBuf>,
}

/// The variables of this process; an empty one counts as unset.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    environment::variable(name)
}

/// Variables beside those of keys that mean something to a command.
const OTHERS: [&str; 5] = ["SB_URL", "SB_TOKEN", "SB_API_KEY", "SB_PROFILE", "SB_CONFIG"];
/// Variables with a name of ours that say nothing of the configuration.
const INTERNAL: [&str; 5] = ["SB_COMPLETE", "SB_GUARD", "SB_CLOCK", "SB_FAULT", "SB_PYTHON"];

/// The variables among these that begin with `SB_` and mean nothing, each with the one that may have been meant.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<(String, Option<String>)> {
    let mut known: Vec<String> = keys().into_iter().map(|key| key.variable).collect();
    known.extend(OTHERS.map(str::to_owned));
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let is_unknown = |name: &String| {
        let of_file = name.strip_suffix("_FILE").unwrap_or(name);
        let is_ours = INTERNAL.contains(&name.as_str()) || name.starts_with("SB_TEST_");
        name.starts_with("SB_") && !is_ours && !known.contains(&name.as_str()) && !known.contains(&of_file)
    };
    // Capitals count less than the name.
    let lower: Vec<String> = known.iter().map(|name| name.to_lowercase()).collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    let mut unknown: Vec<_> = names
        .filter(is_unknown)
        .map(|name| (nearest(&name, &lower).map(str::to_uppercase), name))
        .map(|(meant, name)| (name, meant))
        .collect();
    unknown.sort();
    unknown
}

/// All layers as one. `file` is the `--config` flag.
pub(crate) fn load(mut flags: Layer, file: Option<&Path>, environment: Environment<'_>) -> Result<Settings, Failure> {
    let named = file.map(Path::to_owned).or_else(|| environment("SB_CONFIG").map(PathBuf::from));
    let is_named = named.is_some();
    let file = named.or_else(|| Some(config_home(environment)?.join("switchboard.toml")));
    let from_file = file.as_deref().map(read_file).transpose()?.flatten();
    let is_there = from_file.is_some();
    if let (Some(file), true, false) = (&file, is_named, is_there) {
        return Err(Failure::usage(format!("there is no configuration file at `{}`", file.display()))
            .hint("check --config or SB_CONFIG, or leave it out to run with the defaults"));
    }
    let mut layer = from_file.unwrap_or_default();
    let mut sources = BTreeMap::new();
    for Slot { key, value } in layer.slots() {
        if value.shown().is_some() {
            sources.insert(key.name, Source::File);
        }
        let given = if value.is_secret() {
            environment::secret_from(&key.variable, environment).map_err(Failure::usage)?
        } else {
            environment(&key.variable)
        };
        if let Some(text) = given {
            value.read(&text).map_err(|reason| {
                Failure::usage(format!("cannot use {}={}", key.variable, masked(&text))).because(reason)
            })?;
            sources.insert(key.name, Source::Variable);
        }
    }
    for Slot { key, value } in flags.slots() {
        if value.shown().is_some() {
            sources.insert(key.name, Source::Flag);
        }
    }
    Ok(Settings { keys: flags.over(layer), file, is_there, sources })
}

impl Config {
    /// Says what is wrong with the files of the certificate, if there are any.
    pub(crate) fn check_certificate(&self) -> Result<(), Failure> {
        let Some(files) = &self.edge.tls else { return Ok(()) };
        let hint = "--tls-cert is a file of PEM certificates, the server's own first, and --tls-key its private key";
        for file in [&files.cert, &files.key] {
            agents::settled::read(file).map_err(|error| {
                Failure::usage(format!("cannot use `{}`", file.display())).caused_by(&error).hint(hint)
            })?;
        }
        files.check().map_err(|error| Failure::usage("cannot use the certificate").caused_by(&error).hint(hint))
    }
}

impl Settings {
    /// The file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|_| self.is_there)
    }

    /// The files that hold secrets, as far as the configuration names them; not all of them need be there.
    pub(crate) fn secret_files(&self, data_dir: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
        let mut keys = self.keys.clone();
        let named = [&keys.key_file, &keys.key_file_previous, &keys.tls_key];
        let mut files: Vec<PathBuf> = named.into_iter().flatten().cloned().collect();
        for Slot { key, value } in keys.slots().into_iter().filter(|slot| slot.value.is_secret()) {
            let is_in_file = matches!(self.sources.get(key.name), Some(Source::File));
            files.extend(self.file().filter(|_| is_in_file && value.shown().is_some()).map(Path::to_owned));
            files.extend(environment(&format!("{}_FILE", key.variable)).map(PathBuf::from));
        }
        files.extend(["cli.json", "admin.json"].map(|name| data_dir.join(name)));
        files.extend(config_home(environment).map(|home| home.join("profiles.json")));
        files.sort();
        files.dedup();
        files
    }

    /// Where the value of a key comes from, for people.
    pub(crate) fn source(&self, key: &Key) -> String {
        match (self.sources.get(key.name), &self.file) {
            (Some(Source::Flag), _) => format!("--{}", key.flag().unwrap_or_default()),
            (Some(Source::Variable), _) => key.variable.clone(),
            (Some(Source::File), Some(file)) => file.display().to_string(),
            _ => "default".to_owned(),
        }
    }

    /// Where agent files are looked for: beside the configuration file, be it there or not.
    pub(crate) fn agents_dir(&self) -> Option<PathBuf> {
        Some(self.directory()?.join("agents"))
    }

    /// Where the configuration file is, be it there or not.
    fn directory(&self) -> Option<PathBuf> {
        Some(std::path::absolute(self.file.as_ref()?).ok()?.parent()?.to_owned())
    }

    /// A file beside the configuration file.
    fn beside(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory()?.join(name))
    }

    /// Where it is said which models there are.
    pub(crate) fn models(&self, keys: &Layer) -> Option<PathBuf> {
        keys.models.clone().or_else(|| self.beside("models.toml"))
    }

    /// Which remotes there are, and how they are called.
    fn remotes(&self, keys: &Layer) -> agents::remote::Options {
        let given = |given: &Option<PathBuf>, name: &str| given.clone().or_else(|| self.beside(name));
        let outbound = &keys.outbound;
        agents::remote::Options {
            enabled: outbound.enabled(),
            json: given(&keys.a2a_agents, "a2a_agents.json"),
            yaml: given(&keys.agents_yaml, "agents.yaml"),
            directory: given(&keys.agents_d, "agents.d"),
            card_refresh: outbound.card_refresh().0,
            probe: outbound.probe().0,
            timeout: outbound.timeout().0,
            quiet: outbound.quiet().0,
            poll: outbound.poll().0,
            deliver_for: outbound.deliver_for().0,
            track_for: outbound.track_for().0,
            body_bytes: count(outbound.body_bytes().0),
            event_bytes: count(outbound.event_bytes().0),
            turn_bytes: count(outbound.turn_bytes().0),
            names: std::sync::Arc::new(client::egress::Steady::new(keys.egress.allow().0)),
            ..agents::remote::Options::default()
        }
    }

    /// The server's configuration.
    pub(crate) fn check(&self, environment: Environment<'_>) -> Result<Config, Failure> {
        let mut keys = self.keys.clone();
        refuse_out_of_range(&mut keys)?;
        let data_dir = self.data_dir(environment)?;
        let location = self.location(environment)?;
        let wake = self.wake(&location)?;
        let listen = address(&keys.listen())?;
        let public_url = keys.public_url.as_deref().map(public_url).transpose()?;
        let auth = !keys.no_auth();
        let admin_listen = keys.admin.listen.as_deref().map(address).transpose()?;
        for listen in [Some(listen), admin_listen].into_iter().flatten() {
            if !auth && !listen.ip().is_loopback() {
                return Err(Failure::usage(format!("refusing to serve {listen} without authentication"))
                    .because("--no-auth is accepted on a loopback address only")
                    .hint("leave --no-auth out, or listen on 127.0.0.1"));
            }
        }
        if listen.ip().is_unspecified() && public_url.is_none() {
            return Err(Failure::usage(format!("listening on {listen} needs a public URL"))
                .because("agent cards have to name an address that callers can reach")
                .hint("add --public-url https://agents.example.org, or listen on one address"));
        }
        let tls = match (keys.tls_cert.clone(), keys.tls_key.clone()) {
            (Some(cert), Some(key)) => Some(server::TlsFiles { cert, key }),
            (None, None) => None,
            (Some(_), None) => return Err(Failure::usage("`tls_cert` needs a `tls_key`").hint("add --tls-key FILE")),
            (None, Some(_)) => return Err(Failure::usage("`tls_key` needs a `tls_cert`").hint("add --tls-cert FILE")),
        };
        let default_agent = match keys.default_agent.as_deref() {
            Some(id) => Some(AgentId::from_str(id).map_err(|reason| {
                Failure::usage(format!("`default_agent` is `{id}`, which is not an agent id")).because(reason)
            })?),
            None if keys.demo_agents() => "echo".parse().ok(),
            None => None,
        };
        let cors = Cors::parse(&keys.cors.origins().0)
            .map_err(|reason| Failure::usage("cannot use `cors.origins`").because(reason))?;

        // What was worked out is shown instead of what was left out.
        keys.data_dir = Some(data_dir.clone());
        keys.store = Some(Masked::new(location.to_string()));
        keys.wake = Some(Masked::new(wake.to_string()));
        keys.listen = Some(listen.to_string());
        keys.admin.listen = admin_listen.map(|address| address.to_string());
        keys.public_url.clone_from(&public_url);
        keys.default_agent = default_agent.as_ref().map(AgentId::to_string);
        let limits = &mut keys.limits;
        let (requests, failed_auth) = (limits.requests_per_second(), limits.failed_auth_per_second());
        let request_rate = rate(requests, limits.request_burst.get_or_insert((requests * 2).max(1)));
        let connections = limits.connections();
        let per_address = *limits.connections_per_address.get_or_insert(share_of(connections));
        if per_address > connections {
            let failure = Failure::usage(format!("`limits.connections_per_address` cannot be {per_address}"));
            return Err(failure.because(format!("it has to be at most `limits.connections`, which is {connections}")));
        }
        let failed_auth_rate = rate(failed_auth, limits.failed_auth_burst.get_or_insert((failed_auth * 5).max(1)));

        let bound = |limit: u64| (limit > 0).then_some(limit);
        let exchange = exchange::Options {
            blocking_cap: keys.blocking_cap().0,
            cancel_grace: keys.cancel_grace().0,
            lease: keys.lease().0,
            default_agent,
            limits: a2a::Limits {
                id_bytes: count(keys.limits.id_bytes().0),
                metadata_bytes: count(keys.limits.metadata_bytes().0),
                parts: count(keys.limits.parts()),
                json_depth: count(keys.limits.json_depth()),
            },
            quota: store::Quota { tasks: bound(keys.limits.tasks()), bytes: bound(keys.limits.stored_bytes().0) },
            max_streams: bound(keys.limits.streams()).map(count),
            bytes_in_flight: bound(keys.limits.bytes_in_flight().0),
            retention: retention(&keys.retention)?,
            chat_wait: keys.chat_wait().0,
            delegation: exchange::DelegationLimits {
                depth: small(keys.delegation.depth()),
                fan_out: small(keys.delegation.fan_out()),
                calls: small(keys.delegation.calls()),
                time: keys.delegation.time.map(|time| time.0),
            },
            ..exchange::Options::default()
        };
        let edge = server::Options {
            // Its range is that of ports.
            grpc_port: keys.grpc_port.and_then(|port| u16::try_from(port).ok()),
            public_url,
            hsts: keys.hsts(),
            tls,
            trusted_proxies: keys.trusted_proxies().0,
            auth,
            public_cards: keys.cards.public(),
            compat: match keys.cards.compat {
                Some(Compat::V03) => server::Compat::All,
                Some(Compat::None) => server::Compat::None,
                None => server::Compat::Agents,
            },
            body_limit: count(keys.limits.body_bytes().0),
            header_timeout: keys.limits.header_timeout().0,
            body_timeout: keys.limits.body_timeout().0,
            body_rate: keys.limits.body_rate().0,
            max_connections: count(keys.limits.connections()),
            max_connections_per_address: count(per_address),
            unauthenticated_timeout: keys.limits.unauthenticated_timeout().0,
            stall: keys.limits.stall_timeout().0,
            admin_listen,
            request_rate,
            failed_auth_rate,
            cors,
            ..server::Options::new(listen)
        };
        let open = store::OpenOptions { connections: count(keys.store_connections()), wake: Some(wake) };
        let (remotes, models) = (self.remotes(&keys), self.models(&keys));
        let agents_dir = self.agents_dir();
        Ok(Config { keys, data_dir, location, open, exchange, edge, agents_dir, remotes, models })
    }

    /// Where the server keeps its files, and the CLI finds what the server left for it.
    pub(crate) fn data_dir(&self, environment: Environment<'_>) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.keys.data_dir {
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
        let Some(store) = &self.keys.store else {
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
        let wanted = match &self.keys.wake {
            None => None,
            Some(wake) => {
                Some(wake.expose().parse::<Wake>().map_err(|error| failure(wake).caused_by(&error).hint(hint))?)
            }
        };
        location.wake(wanted.as_ref()).map_err(|reason| {
            let named = self.keys.wake.clone().unwrap_or_default();
            failure(&named).because(reason).hint("leave it out, or write local, off, nats://HOST or tls://HOST")
        })
    }
}

/// What a file says. `None` when there is no such file.
fn read_file(path: &Path) -> Result<Option<Layer>, Failure> {
    let failure = || Failure::usage(format!("cannot use the configuration file `{}`", path.display()));
    let text = match agents::settled::read_once_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure().caused_by(&error)),
    };
    // What is wrong with a file is shown with its line, which may hold a password.
    let wrong = |error: toml::de::Error| {
        let failure = failure().because(masked(error.to_string().trim_end()));
        match agents::file::quotes(&text, error.span(), error.message()) {
            Some(line) => failure.hint(format!("write `{}`", masked(&line))),
            None => failure,
        }
    };
    let table: toml::Table = text.parse().map_err(wrong)?;
    if let Some((reason, hint)) = unknown(&table, "", &keys()) {
        return Err(failure().because(reason).hint(hint));
    }
    let mut layer: Layer = toml::from_str(&text).map_err(wrong)?;
    // A path in a file is meant from where the file is, whoever starts the server from wherever.
    if let Some(base) = path.parent() {
        for place in [
            &mut layer.data_dir,
            &mut layer.key_file,
            &mut layer.key_file_previous,
            &mut layer.tls_cert,
            &mut layer.tls_key,
        ] {
            *place = place.take().map(|place| base.join(place));
        }
    }
    if let (Some(store), Some(base)) = (&layer.store, path.parent())
        && let Some(directory) = store.expose().strip_prefix("sqlite:").filter(|directory| !directory.is_empty())
    {
        let directory = base.join(directory.strip_prefix("//").unwrap_or(directory));
        layer.store = Some(Masked::new(format!("sqlite:{}", directory.display())));
    }
    if let (Some(trusted), Some(base)) = (&mut layer.trust.keys, path.parent()) {
        for entry in &mut trusted.0 {
            entry.file = base.join(&entry.file);
        }
    }
    Ok(Some(layer))
}

/// The first name in a file that is no key of a file: what is wrong with it, and what to do. `prefix` stands before the
/// names of this table.
fn unknown(table: &toml::Table, prefix: &str, keys: &[Key]) -> Option<(String, String)> {
    for (name, value) in table {
        let name = format!("{prefix}{name}");
        let below = format!("{name}.");
        match keys.iter().find(|key| key.name == name) {
            Some(key) if key.in_file => {}
            Some(key) => return Some((format!("`{name}` cannot stand in a file"), format!("set {}", key.variable))),
            None if keys.iter().any(|key| key.name.starts_with(&below)) => {
                if let Some(found) = value.as_table().and_then(|table| unknown(table, &below, keys)) {
                    return Some(found);
                }
            }
            None => {
                let hint = match meant(&name, keys, value.is_table()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "`sb config docs` prints all keys".to_owned(),
                };
                return Some((format!("unknown key `{name}`"), hint));
            }
        }
    }
    None
}

/// The key, table or keys that an unknown name may stand for: one of nearly the same name, or those of other tables.
fn meant(name: &str, keys: &[Key], is_table: bool) -> Option<String> {
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    let tables: Vec<&str> = names.iter().filter_map(|name| name.rsplit_once('.')).map(|(table, _)| table).collect();
    let table = nearest(name, &tables).map(|table| format!("the table `[{table}]`"));
    if is_table && table.is_some() {
        return table;
    }
    if let Some(meant) = nearest(name, &names) {
        return Some(format!("`{meant}`"));
    }
    fn parts(name: &str) -> (&str, &str) {
        name.rsplit_once('.').unwrap_or(("", name))
    }
    let leaf = name.rsplit('.').next().unwrap_or(name);
    let leaves: Vec<&str> = names.iter().map(|name| parts(name).1).collect();
    if let Some(meant) = nearest(leaf, &leaves) {
        let homes: Vec<String> = keys
            .iter()
            .filter(|key| parts(key.name).1 == meant && key.in_file)
            .map(|key| match parts(key.name).0 {
                "" => format!("`{meant}` above all tables"),
                table => format!("`{meant}` in `[{table}]`"),
            })
            .collect();
        return (!homes.is_empty()).then(|| homes.join(" or "));
    }
    table
}

fn refuse_out_of_range(keys: &mut Layer) -> Result<(), Failure> {
    for Slot { key, value } in keys.slots() {
        if let (Some(range), Some(number)) = (&key.range, value.number())
            && !range.numbers.contains(&number)
        {
            return Err(Failure::usage(format!("`{}` cannot be {number}", key.name))
                .because(format!("it has to be {}", range.text)));
        }
    }
    Ok(())
}

/// Connections that one address may have if nothing else is set. Another address always has room for one.
fn share_of(connections: u64) -> u64 {
    (connections / 4).max(64.min(connections / 2)).max(1)
}

/// How long what has ended is kept. A name that cannot be one is a rule that would never count.
fn retention(keys: &keys::Retained) -> Result<RetentionRules, Failure> {
    let keep = |age: Age| age.0.map_or(Keep::Forever, |span| Keep::For(span.0));
    let rule = |of: AgesOf| RetentionRule { tasks: of.tasks.map(keep), events: of.events.map(keep) };
    let mut agents = BTreeMap::new();
    for (name, of) in keys.agents().0 {
        let agent = AgentId::from_str(&name).map_err(|reason| {
            Failure::usage(format!("`retention.agents.{name}` does not name an agent")).because(reason)
        })?;
        agents.insert(agent, rule(of));
    }
    let mut tenants = BTreeMap::new();
    for (name, of) in keys.tenants().0 {
        check_tenant_name(&name).map_err(|reason| {
            Failure::usage(format!("`retention.tenants.{name}` does not name a tenant")).because(reason)
        })?;
        tenants.insert(name, rule(of));
    }
    let (tasks, events) = (keep(keys.tasks()), keep(keys.events()));
    Ok(RetentionRules { tasks, events, agents, tenants, every: keys.every().0 })
}

/// How many or how much, on a machine that cannot count further.
/// A number whose range is that of its kind.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn rate(per_second: u64, burst: &u64) -> Rate {
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Rate { per_second: number(per_second), burst: number(*burst) }
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

/// Where what people configure stands.
pub(crate) fn config_home(environment: Environment<'_>) -> Option<PathBuf> {
    Some(xdg(environment, "XDG_CONFIG_HOME", ".config")?.join("switchboard"))
}

/// Where what belongs to a person and to nobody's data is kept from one time to the next.
pub(crate) fn state_home(environment: Environment<'_>) -> Option<PathBuf> {
    Some(xdg(environment, "XDG_STATE_HOME", ".local/state")?.join("switchboard"))
}

/// A base directory of the XDG specification, which says that a relative path counts as unset.
fn xdg(environment: Environment<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let given = environment(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    given.or_else(|| environment("HOME").map(|home| PathBuf::from(home).join(below_home)))
}

#[cfg(test)]
mod tests;
