//! `sb config`: the configuration as the server would take it, where each value comes from, and whether it is right.

use std::{fmt::Write, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    config::{
        self, Layer, Settings,
        keys::{Slot, keys},
        process_environment,
    },
    courier,
    failure::Failure,
    findings::{self, Finding, Level},
    output::{self, Format},
    serve,
    table::table,
    target,
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
    Show(Box<Show>),
    /// Check the configuration file, the models and the agents' files beside it
    #[command(after_help = "Examples:\n  sb config check\n  sb config check ./switchboard.toml")]
    Check(Check),
    /// Print what every key is, in Markdown
    Docs,
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

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.verb {
        Verb::Show(args) => show(&args),
        Verb::Check(args) => check(&args),
        Verb::Docs => {
            output::print(&reference());
            Ok(())
        }
    }
}

fn show(args: &Show) -> Result<(), Failure> {
    let settings = args.server.settings()?;
    let mut config = settings.check(&process_environment)?;
    let mut rows = Vec::new();
    let mut objects = serde_json::Map::new();
    for Slot { key, value } in config.keys.slots() {
        let source = settings.source(&key);
        let (text, json) = match value.shown().or(key.default) {
            Some(shown) => (shown.text, shown.json),
            None => ("-".to_owned(), Value::Null),
        };
        objects.insert(key.name.to_owned(), json!({"value": json, "source": source}));
        rows.push(vec![key.name.to_owned(), text, source]);
    }
    match args.output {
        Format::Json => {
            let file = settings.file().map(|file| file.display().to_string());
            output::line(&json!({"file": file, "keys": objects}).to_string());
        }
        Format::Text => output::print(&table(&["KEY", "VALUE", "SOURCE"], &rows)),
    }
    Ok(())
}

fn check(args: &Check) -> Result<(), Failure> {
    let loaded = config::load(Layer::default(), args.file.as_deref(), &process_environment);
    let findings = match loaded {
        Err(failure) => vec![Finding::failure("configuration", failure)],
        Ok(settings) => {
            let mut findings = vec![configuration(&settings)];
            let models = findings::known_models(settings.models(&settings.keys));
            findings.extend(target::block_on(async { Ok(findings::models(&models).await) })?);
            findings.extend(findings::agent_files(settings.agents_dir(), &models, settings.keys.demo_agents()));
            // What is wrong with the configuration otherwise is told already.
            if let Ok(config) = settings.check(&process_environment) {
                findings.extend(findings::certificate(&config));
                findings.extend(findings::default_agent(&config));
            }
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
pub(crate) fn configuration(settings: &Settings) -> Finding {
    let file = settings.file().map(|file| file.display().to_string());
    match settings.check(&process_environment).and_then(|config| {
        config.check_certificate()?;
        courier::options(&config).map(drop)
    }) {
        Ok(()) => Finding::ok("configuration", file.unwrap_or("no file: environment and defaults".to_owned())),
        Err(failure) => Finding::failure("configuration", failure),
    }
}

/// `docs/config.md`.
fn reference() -> String {
    let mut out = INTRODUCTION.to_owned();
    let mut section = None;
    for key in keys() {
        let table = key.name.split_once('.').map(|(table, _)| table);
        if section.replace(table) != Some(table) {
            out.push_str(&match table {
                None => "\n## Keys\n\n| key | flag | variable | default | |\n|---|---|---|---|---|\n".to_owned(),
                Some(table) => format!("\n## Table `[{table}]`\n\n| key | variable | default | |\n|---|---|---|---|\n"),
            });
        }
        let flag = match (table, key.flag()) {
            (Some(_), _) => String::new(),
            (None, None) => "| – ".to_owned(),
            (None, Some(flag)) => format!("| `--{flag}` "),
        };
        let default = key.otherwise.map_or_else(|| format!("`{}`", key.fallback()), str::to_owned);
        let (name, variable, about) = (key.name, &key.variable, key.about());
        let place = if key.in_file { "" } else { " Not in the file." };
        let range = key.range.map(|range| format!(" {}.", range.text)).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| `{name}` {flag}| `{variable}` | {default} | {about}{place}{range} |");
    }
    out
}

const INTRODUCTION: &str = r#"# Configuration

A flag of `sb serve` wins over a variable of the environment, which wins over the file, which wins over the default. `sb config
show` prints every value and where it comes from, and takes the flags of `sb serve`; `sb config check` says whether the server
would start. Nothing has to be configured.

The file is `switchboard/switchboard.toml` in the XDG config directory (`~/.config`), or what `--config` or `SB_CONFIG` names;
agent files are in `agents` beside it. A key that does not exist is an error. A relative path in the file is meant from where
the file is.

| written | in the file | in a flag or a variable |
|---|---|---|
| a duration | `"500ms"`, `"30s"`, `"2m"`, `"1h"`, `"30d"` | `30s` |
| an age | a duration, or `"never"` | `90d`, `never` |
| a size | a number of bytes, or `"64KiB"`, `"10MiB"`, `"1GiB"` | `10MiB` |
| yes or no | `true`, `false` | `true`, `false`, also `1`, `0`, `yes`, `no`, `on`, `off`; a flag alone says yes |

An empty variable counts as unset. A password in a flag is seen by everybody who can list processes: put it into the variable,
or better into a file: `SB_STORE_FILE`, `SB_WAKE_FILE`, `SB_ADMIN_TOKEN_FILE` and `SB_BOOTSTRAP_TOKEN_FILE` name files whose content is the
value, and a credential of systemd (`LoadCredential=SB_STORE:…`) that has the variable's name is read as well. None is ever printed. What the bounds of `[limits]` mean for callers is in [limits.md](limits.md), what goes and what stays by
`[retention]` in [retention.md](retention.md).

This page is printed by `sb config docs`.
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_up_to_date() {
        let stored = include_str!("../../../docs/config.md");
        assert!(stored == reference(), "docs/config.md is out of date: cargo run -- config docs > docs/config.md");
    }

    #[test]
    fn what_limits_mean_is_told_of_each() {
        let told = include_str!("../../../docs/limits.md");
        for key in keys().iter().filter_map(|key| key.name.strip_prefix("limits.")) {
            assert!(told.contains(&format!("`{key}`")), "docs/limits.md says nothing about {key}");
        }
    }
}
