//! `sb config`: the configuration as the server would take it, where each value comes from, and whether it is right.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    config::{self, Config, Environment, Layer, LogFormat, process_environment},
    failure::Failure,
    findings::{self, Finding, Level},
    output::{self, Format},
    serve,
    table::table,
};

/// `sb config …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print every key, its value and where that comes from
    #[command(after_help = "Examples:\n  sb config show\n  sb config show --config ./switchboard.toml -o json")]
    Show(Show),
    /// Check the configuration file and the agents' files beside it
    #[command(after_help = "Examples:\n  sb config check\n  sb config check ./switchboard.toml")]
    Check(Check),
}

/// Takes the flags of `sb serve`, to show what they would do.
#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    server: serve::Args,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The file [env: SB_CONFIG] [default: the one that `sb serve` would read]
    file: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

/// A key of the configuration. What is not in [`KEYS`] is not shown, so that a test compares them with what a file may
/// hold.
struct Key {
    name: &'static str,
    flag: Option<Flag>,
    /// Whether the environment can have it.
    variable: bool,
    value: fn(&Config) -> Value,
}

/// The flag of a key, and whether it was given.
struct Flag {
    name: &'static str,
    given: fn(&Layer) -> bool,
}

/// Where a value comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Flag(&'static str),
    Variable(String),
    File(PathBuf),
    Default,
}

const KEYS: &[Key] = &[
    key("listen", |config| json!(config.listen.to_string())).flag("--listen", |flags| flags.listen.is_some()),
    key("data_dir", |config| json!(config.data_dir.display().to_string()))
        .flag("--data-dir", |flags| flags.data_dir.is_some()),
    // Neither prints a password.
    key("store", |config| json!(config.location.to_string())).flag("--store", |flags| flags.store.is_some()),
    key("store_connections", |config| json!(config.store_connections)),
    key("wake", |config| json!(config.wake.to_string())).flag("--wake", |flags| flags.wake.is_some()),
    key("public_url", |config| json!(config.public_url)).flag("--public-url", |flags| flags.public_url.is_some()),
    key("no_auth", |config| json!(!config.auth)).flag("--no-auth", |flags| flags.no_auth.is_some()),
    key("demo_agents", |config| json!(config.demo_agents)),
    key("default_agent", |config| json!(config.default_agent.as_ref().map(|agent| agent.as_str()))),
    key("blocking_cap", |config| span(config.blocking_cap)),
    key("cancel_grace", |config| span(config.cancel_grace)),
    key("lease", |config| span(config.lease)),
    key("log_format", |config| match config.log_format {
        LogFormat::Human => json!("human"),
        LogFormat::Json => json!("json"),
    })
    .flag("--log-format", |flags| flags.log_format.is_some()),
    key("cards.compat", |config| json!(config.compat_03.then_some("0.3"))).in_file_only(),
    key("limits.body_bytes", |config| json!(edge(config).body_limit)),
    key("limits.json_depth", |config| json!(inside(config).limits.json_depth)),
    key("limits.parts", |config| json!(inside(config).limits.parts)),
    key("limits.id_bytes", |config| json!(inside(config).limits.id_bytes)),
    key("limits.metadata_bytes", |config| json!(inside(config).limits.metadata_bytes)),
    key("limits.header_timeout", |config| span(edge(config).header_timeout)),
    key("limits.body_timeout", |config| span(edge(config).body_timeout)),
    key("limits.connections", |config| json!(edge(config).max_connections)),
    key("limits.requests_per_second", |config| json!(edge(config).request_rate.per_second)),
    key("limits.request_burst", |config| json!(edge(config).request_rate.burst)),
    key("limits.failed_auth_per_second", |config| json!(edge(config).failed_auth_rate.per_second)),
    key("limits.failed_auth_burst", |config| json!(edge(config).failed_auth_rate.burst)),
    key("limits.tasks", |config| json!(inside(config).quota.tasks.unwrap_or(0))),
    key("limits.stored_bytes", |config| json!(inside(config).quota.bytes.unwrap_or(0))),
    key("limits.streams", |config| json!(inside(config).max_streams.unwrap_or(0))),
    key("cors.origins", |config| match &config.cors {
        server::Cors::Nobody => json!([]),
        server::Cors::Everybody => json!(["*"]),
        server::Cors::Only(origins) => json!(origins),
    }),
];

const fn key(name: &'static str, value: fn(&Config) -> Value) -> Key {
    Key { name, flag: None, variable: true, value }
}

impl Key {
    const fn flag(mut self, name: &'static str, given: fn(&Layer) -> bool) -> Self {
        self.flag = Some(Flag { name, given });
        self
    }

    const fn in_file_only(mut self) -> Self {
        self.variable = false;
        self
    }

    /// `SB_LIMITS_TASKS` is `limits.tasks`.
    fn variable(&self) -> Option<String> {
        self.variable.then(|| format!("SB_{}", self.name.replace('.', "_").to_uppercase()))
    }
}

/// The options of the edge that the configuration makes.
fn edge(config: &Config) -> server::Options {
    let mut options = server::Options::new(config.listen);
    config.bounds.apply(&mut options);
    options
}

/// The options of the exchange that the configuration makes.
fn inside(config: &Config) -> exchange::Options {
    config.bounds.exchange()
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.verb {
        Verb::Show(args) => show(&args),
        Verb::Check(args) => check(&args),
    }
}

fn show(args: &Show) -> Result<(), Failure> {
    let flags = args.server.flags();
    let layer = config::load(flags.clone(), args.server.config(), &process_environment)?;
    let file = file(args.server.config(), &layer, &process_environment);
    let values = read_table(file.as_deref());
    let config = layer.check(&process_environment)?;

    let mut rows = Vec::new();
    let mut objects = serde_json::Map::new();
    for key in KEYS {
        let source = source(key, &flags, file.as_deref(), values.as_ref(), &process_environment);
        let value = (key.value)(&config);
        rows.push(vec![key.name.to_owned(), shown(&value), source.to_string()]);
        objects.insert(key.name.to_owned(), json!({"value": value, "source": source.to_string()}));
    }
    match args.output {
        Format::Json => {
            let read = file.filter(|_| values.is_some()).map(|file| file.display().to_string());
            output::line(&json!({"file": read, "keys": objects}).to_string());
        }
        Format::Text => output::print(&table(&["KEY", "VALUE", "SOURCE"], &rows)),
    }
    Ok(())
}

fn check(args: &Check) -> Result<(), Failure> {
    let loaded = config::load(Layer::default(), args.file.as_deref(), &process_environment);
    let findings = match loaded {
        Err(failure) => vec![Finding::failure("configuration", failure)],
        Ok(layer) => {
            let agents = layer.config_dir.as_ref().map(|directory| directory.join("agents"));
            let mut findings = vec![configuration(args.file.as_deref(), layer)];
            findings.extend(findings::agent_files(agents));
            findings
        }
    };
    findings::print(&findings, args.output);
    if findings::worst(&findings) == Level::Fail {
        return Err(Failure::usage("the configuration has errors").hint("each line that begins with `fail` is one"));
    }
    Ok(())
}

/// Whether the server would start with it.
pub(crate) fn configuration(given: Option<&Path>, layer: Layer) -> Finding {
    let file = file(given, &layer, &process_environment);
    let there = file.filter(|file| file.exists());
    match layer.check(&process_environment) {
        Ok(_) => Finding::ok(
            "configuration",
            there.map_or("no file: environment and defaults".to_owned(), |file| file.display().to_string()),
        ),
        Err(failure) => Finding::failure("configuration", failure),
    }
}

/// The file that was or would be read.
fn file(given: Option<&Path>, layer: &Layer, environment: Environment<'_>) -> Option<PathBuf> {
    let given = given.map(Path::to_owned).or_else(|| environment("SB_CONFIG").map(PathBuf::from));
    given.or_else(|| Some(layer.config_dir.as_ref()?.join("switchboard.toml")))
}

/// What stands in the file. It was read before, so that nothing is wrong with it.
fn read_table(file: Option<&Path>) -> Option<toml::Table> {
    std::fs::read_to_string(file?).ok()?.parse().ok()
}

fn source(
    key: &Key,
    flags: &Layer,
    file: Option<&Path>,
    values: Option<&toml::Table>,
    environment: Environment<'_>,
) -> Source {
    if let Some(flag) = key.flag.as_ref().filter(|flag| (flag.given)(flags)) {
        return Source::Flag(flag.name);
    }
    if let Some(variable) = key.variable().filter(|name| environment(name).is_some()) {
        return Source::Variable(variable);
    }
    match (file, values) {
        (Some(file), Some(values)) if holds(values, key.name) => Source::File(file.to_owned()),
        _ => Source::Default,
    }
}

/// Whether a table has a key such as `a.b`.
fn holds(table: &toml::Table, name: &str) -> bool {
    match name.split_once('.') {
        None => table.contains_key(name),
        Some((first, rest)) => table.get(first).and_then(toml::Value::as_table).is_some_and(|table| holds(table, rest)),
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A duration as it would be written.
fn span(duration: Duration) -> Value {
    if duration.subsec_millis() == 0 {
        json!(format!("{}s", duration.as_secs()))
    } else {
        json!(format!("{}ms", duration.as_millis()))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<String>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that serde takes in a table, from what it says about one that it does not know.
    fn known(table: &str) -> Option<Vec<String>> {
        let text = if table.is_empty() { "zzz = 1".to_owned() } else { format!("[{table}]\nzzz = 1") };
        let error = toml::from_str::<Layer>(&text).unwrap_err();
        let message = error.message();
        if !message.starts_with("unknown field `zzz`") {
            return None;
        }
        Some(message.split('`').skip(3).step_by(2).map(str::to_owned).collect())
    }

    fn every_key() -> Vec<String> {
        let mut keys = Vec::new();
        for key in known("").unwrap() {
            match known(&key) {
                Some(below) => keys.extend(below.iter().map(|below| format!("{key}.{below}"))),
                None => keys.push(key),
            }
        }
        keys
    }

    #[test]
    fn no_key_is_forgotten() {
        let shown: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(shown, every_key());
    }

    #[test]
    fn every_variable_is_one_that_is_read() {
        let asked = std::cell::RefCell::new(Vec::new());
        let environment = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            None
        };
        config::load(Layer::default(), None, &environment).unwrap();
        let asked = asked.into_inner();
        for key in KEYS {
            let name = self::key(key.name, key.value).variable().unwrap();
            assert_eq!(key.variable, asked.contains(&name), "{name}");
        }
    }

    #[test]
    fn the_highest_source_is_told() {
        let key = &KEYS[0];
        let flags = Layer { listen: Some("x".to_owned()), ..Layer::default() };
        let table: toml::Table = "listen = \"x\"".parse().unwrap();
        let file = Path::new("/f");
        let set = |_: &str| Some("x".to_owned());
        let unset = |_: &str| None;
        let none = Layer::default();
        assert_eq!(source(key, &flags, Some(file), Some(&table), &set), Source::Flag("--listen"));
        assert_eq!(source(key, &none, Some(file), Some(&table), &set), Source::Variable("SB_LISTEN".to_owned()));
        assert_eq!(source(key, &none, Some(file), Some(&table), &unset), Source::File(file.to_owned()));
        assert_eq!(source(key, &none, Some(file), None, &unset), Source::Default);
    }

    #[test]
    fn values_are_shown_as_they_are_written() {
        assert_eq!(shown(&span(Duration::from_millis(1500))), "1500ms");
        assert_eq!(shown(&span(Duration::from_secs(120))), "120s");
        assert_eq!(shown(&Value::Null), "-");
        assert_eq!(shown(&json!(["a", "b"])), "a, b");
    }
}
