//! `sb agent`: the agents of a server, and the files that describe them.
//!
//! What a server offers is on its cards. What stands in files is read here once more, with the server's own reader, so
//! that a broken edit is explained by whoever asks, wherever the log went.

mod arrival;
pub(crate) mod files;
mod logs;
mod new;
mod program;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use agents::{
    FileState, Reader,
    mind::{self, INDEX},
    model::Models,
};
use client::{Client, call_json, discover};
use http::Method;
use serde_json::{Value, json};

use self::{arrival::Arrival, files::Directory};
use crate::{
    config::{LogFormat, Settings, process_environment},
    failure::Failure,
    findings, logging,
    output::{self, Format},
    routes,
    servers::Servers,
    table::{fields, table},
    target::{Target, TargetArgs},
};

/// `sb agent …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the agents: those the server offers, and files that are broken
    #[command(after_help = "Examples:\n  sb agent list\n  sb agent list -o json | jq -r .id")]
    List(List),
    /// Print what is known of an agent
    #[command(after_help = "Examples:\n  sb agent show count\n  sb agent show count -o json | jq .card")]
    Show(Show),
    /// Make an agent: a program from a template, or one run by a model from a few questions
    #[command(after_help = "Examples:\n  sb agent new greet --lang python\n  sb agent new\n  \
                      sb agent new --id notes --role 'note taker' --goal 'keep what was decided' \\\n    --capability /write --yes")]
    New(Box<new::New>),
    /// Copy an agent's file to where the server looks for it, and wait until the server has it; a broken one is refused
    #[command(after_help = "Examples:\n  sb agent add count.toml\n  sb agent add draft.toml --id count --replace")]
    Add(Add),
    /// Delete an agent's file; work that waits for it stays queued
    #[command(after_help = "Example:\n  sb agent remove count")]
    Remove(Remove),
    /// Make the server read an agent's file again: new turns get a new process, those that run end in theirs
    #[command(after_help = "Example:\n  sb agent restart count")]
    Restart(Remove),
    /// Print what the programs of an agent wrote to standard error, with times and tasks; on the server's machine
    #[command(
        after_help = "Examples:\n  sb agent logs count\n  sb agent logs count -f\n  sb agent logs count -n 20 -o json"
    )]
    Logs(logs::Logs),
    /// Check an agent's file, or all of them
    #[command(after_help = "Examples:\n  sb agent check\n  sb agent check ./count.toml")]
    Check(Check),
}

/// Which server and which directory, for all verbs.
#[derive(Debug, clap::Args)]
struct Common {
    /// How to print it: `json` is one object a line
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, clap::Args)]
struct List {
    /// The server [env: SB_URL] [default: the local one]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The agent
    id: String,
    /// The server [env: SB_URL] [default: the local one]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The file; its name gives the agent's id
    file: PathBuf,
    /// Another id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Take the place of a file that is there
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The agent
    id: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// Files, or agents that have one [default: all files of the directory]
    files: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// An agent as the list shows it.
struct Listed {
    id: String,
    name: Option<String>,
    kind: Option<&'static str>,
    source: Option<String>,
    state: &'static str,
    error: Option<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    // What is wrong with models is told by those verbs that look at them.
    logging::start(log, "warn,agents::model=off", LogFormat::Human)?;
    match args.verb {
        Verb::List(args) => args.common.target.block_on(list(&args)),
        Verb::Show(args) => args.common.target.block_on(show(&args)),
        Verb::New(mut args) => new::run(&mut args),
        Verb::Add(args) => add(&args),
        Verb::Remove(args) => remove(&args),
        Verb::Restart(args) => restart(&args),
        Verb::Logs(args) => logs::run(&args),
        Verb::Check(args) => check(&args),
    }
}

impl Common {
    /// Where the local server looks for agent files: by the configuration that is named, by what the server left, or
    /// by the configuration as it is.
    fn directory(&self) -> Result<Directory, Failure> {
        let settings = self.target.settings(&process_environment)?;
        let left = self.left(&settings)?;
        left.or_else(|| settings.agents_dir()).map(Directory::new).ok_or_else(no_directory)
    }

    /// The models that this server has, if its environment is that of this command: by the file beside its agents, unless the
    /// configuration names another.
    fn models(&self) -> Result<Models, Failure> {
        let settings = self.target.settings(&process_environment)?;
        let beside = self.left(&settings)?.and_then(|agents| Some(agents.parent()?.join("models.toml")));
        let named = settings.keys.models.clone();
        Ok(findings::known_models(named.or(beside).or_else(|| settings.models(&settings.keys))))
    }

    /// Where the server that last started here said that its agents are. What is named counts more.
    fn left(&self, settings: &Settings) -> Result<Option<PathBuf>, Failure> {
        if self.target.names_config() {
            return Ok(None);
        }
        match settings.data_dir(&process_environment) {
            Ok(data_dir) => Ok(Servers::of(&data_dir)?.newest().and_then(|server| server.agents.clone())),
            Err(_) => Ok(None),
        }
    }

    fn demo_agents(&self) -> Result<bool, Failure> {
        Ok(self.target.settings(&process_environment)?.keys.demo_agents())
    }
}

fn no_directory() -> Failure {
    Failure::usage("there is no place for agent files")
        .because("neither XDG_CONFIG_HOME nor HOME is set")
        .hint("name a configuration file with --config; agents stand in `agents` beside it")
}

/// The agents that a server offers to this caller, by id. `None` when no server was named and none runs.
async fn offered(url: Option<&str>, common: &Common) -> Result<(Option<BTreeMap<String, String>>, bool), Failure> {
    let Some(target) = common.target.target_if_any(url, None)? else { return Ok((None, false)) };
    let named = target.named;
    match extended_skills(common, target).await {
        Ok(skills) => Ok((Some(skills), named)),
        // It has ended meanwhile.
        Err(_) if common.target.target_if_any(url, None)?.is_none() => Ok((None, false)),
        Err(failure) => Err(failure),
    }
}

async fn extended_skills(common: &Common, target: Target) -> Result<BTreeMap<String, String>, Failure> {
    let options = common.target.client_options(&target)?;
    let connector = common.target.connector();
    let found = discover(&connector, &target.url, target.credential.as_ref()).await?;
    // Where nobody authenticates, the public card says what there is.
    let card = if found.card.capabilities.extended_agent_card == Some(true) {
        Client::from_card(connector, &found, options)?.extended_card().await?.value
    } else {
        found.card
    };
    let mut agents = BTreeMap::new();
    for skill in card.skills {
        // The gateway's own skill, which is no agent.
        if skill.id == "relay" && skill.tags.iter().any(|tag| tag == "gateway") {
            continue;
        }
        agents.insert(skill.id, skill.name);
    }
    Ok(agents)
}

/// Which of a server's agents are those of remotes, and where they are described. A server that does not say has none.
async fn registries(url: Option<&str>, common: &Common) -> BTreeMap<String, String> {
    let remotes = told(url, common, "remotes").await;
    let named = |remote: Value| Some((remote["name"].as_str()?.to_owned(), remote["registry"].as_str()?.to_owned()));
    remotes.into_iter().filter_map(named).collect()
}

/// Which of a server's agents this tenant has defined itself.
async fn defined(url: Option<&str>, common: &Common) -> BTreeSet<String> {
    let agents = told(url, common, "agents").await;
    // What others have made has a source.
    let own = agents.into_iter().filter(|agent| agent["source"].is_null());
    own.filter_map(|agent| Some(agent["id"].as_str()?.to_owned())).collect()
}

/// A list of a server's own routes, whose member has the route's name. A server that does not say has nothing there.
async fn told(url: Option<&str>, common: &Common, list: &str) -> Vec<Value> {
    let asked = async {
        let target = common.target.target(url, None).ok()?;
        let at = routes::at(target.url, &["v1", list], &[]);
        let answer =
            call_json(&common.target.connector(), Method::GET, &at, target.credential.as_ref(), None, None).await;
        serde_json::from_slice::<Value>(&answer.ok()?).ok()
    };
    let answer = asked.await.unwrap_or_default();
    answer[list].as_array().cloned().unwrap_or_default()
}

/// Everything that is known: what the server offers, and with a local one the files.
async fn known(url: Option<&str>, common: &Common) -> Result<Vec<Listed>, Failure> {
    let (offered, remote) = offered(url, common).await?;
    let runs = offered.is_some();
    let mut offered = offered.unwrap_or_default();
    let mut agents: Vec<Listed> = Vec::new();
    if !remote {
        for file in common.directory()?.agents(&Reader::default())? {
            let name = offered.remove(&file.id);
            agents.push(listed(file, name, runs));
        }
        if !runs {
            let demo = if common.demo_agents()? { agents::demo() } else { Vec::new() };
            let builtin = demo.iter().map(|entry| (entry.profile.id.to_string(), entry.profile.name.clone()));
            for (id, name) in builtin.chain([(INDEX.to_owned(), INDEX.to_owned())]) {
                if !agents.iter().any(|agent| agent.id == id) {
                    offered.insert(id, name);
                }
            }
        }
    }
    let elsewhere = if runs { registries(url, common).await } else { BTreeMap::new() };
    let own = if runs { defined(url, common).await } else { BTreeSet::new() };
    for (id, name) in offered {
        let (kind, source) = match elsewhere.get(&id) {
            Some(registry) => (Some("a2a"), Some(registry.clone())),
            None if own.contains(&id) => (Some(mind::KIND.name), Some("/v1/agents".to_owned())),
            None if id == INDEX => (Some(mind::KIND.name), Some("built-in".to_owned())),
            None if remote => (None, None),
            None => (Some("builtin"), Some("built-in".to_owned())),
        };
        let state = if runs { "running" } else { "stopped" };
        agents.push(Listed { id, name: Some(name), kind, source, state, error: None, warnings: vec![] });
    }
    agents.sort_by(|a, b| a.id.cmp(&b.id));
    if !runs {
        output::error_line("note", "no server is running here");
    }
    Ok(agents)
}

/// A text of several lines on one.
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A file's agent; `offered` is its name on the server's card, if it is there.
fn listed(file: FileState, offered: Option<String>, runs: bool) -> Listed {
    let source = Some(file.path.display().to_string());
    let state = match (&file.error, &offered) {
        (None, Some(_)) => "running",
        // Another tenant's, or too new.
        (None, None) if runs => "hidden",
        (None, None) => "stopped",
        (Some(_), Some(_)) => "stale",
        (Some(_), None) => "broken",
    };
    let FileState { id, name, kind, error, warnings, .. } = file;
    Listed { id, name: offered.or(name), kind, source, state, error, warnings }
}

impl Listed {
    fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "kind": self.kind, "type": self.kind, "source": self.source,
            "state": self.state, "error": self.error, "warnings": self.warnings,
        })
    }
}

async fn list(args: &List) -> Result<(), Failure> {
    let agents = known(args.url.as_deref(), &args.common).await?;
    if args.common.output == Format::Json {
        agents.iter().for_each(|agent| output::line(&agent.json().to_string()));
        return Ok(());
    }
    let mut rows = Vec::new();
    for agent in &agents {
        let state = match &agent.error {
            Some(error) => format!("{}: {}", agent.state, folded(error)),
            None => agent.state.to_owned(),
        };
        let source = agent.source.clone().unwrap_or_else(|| "-".to_owned());
        rows.push(vec![agent.id.clone(), agent.kind.unwrap_or("-").to_owned(), source, state]);
    }
    output::print(&table(&["ID", "KIND", "SOURCE", "STATE"], &rows));
    agents.iter().for_each(|agent| warn(&agent.id, &agent.warnings));
    Ok(())
}

async fn show(args: &Show) -> Result<(), Failure> {
    let mut agents = known(args.url.as_deref(), &args.common).await?;
    let Some(at) = agents.iter().position(|agent| agent.id == args.id) else {
        let known = agents.iter().map(|agent| agent.id.as_str()).collect::<Vec<_>>();
        let failure = Failure::usage(format!("there is no agent `{}`", args.id));
        return Err(failure.hint(files::meant(&args.id, &known)));
    };
    let agent = agents.swap_remove(at);
    let card = if matches!(agent.state, "running" | "stale") {
        let target = args.common.target.target(args.url.as_deref(), Some(&args.id))?;
        Some(discover(&args.common.target.connector(), &target.url, target.credential.as_ref()).await?)
    } else {
        None
    };
    if args.common.output == Format::Json {
        let mut shown = agent.json();
        shown["card"] = match &card {
            Some(found) => serde_json::from_slice(&found.json)
                .map_err(|error| Failure::failed("the card is not JSON").caused_by(&error))?,
            None => Value::Null,
        };
        output::line(&shown.to_string());
        return Ok(());
    }
    let mut pairs = vec![
        ("id", Some(agent.id)),
        ("name", agent.name),
        ("kind", agent.kind.map(str::to_owned)),
        ("source", agent.source),
        ("state", Some(agent.state.to_owned())),
        ("error", agent.error.as_deref().map(folded)),
    ];
    pairs.extend(agent.warnings.into_iter().map(|warning| ("warning", Some(warning))));
    if let Some(found) = card {
        let card = found.card;
        let skills: Vec<String> = card.skills.into_iter().map(|skill| skill.id).collect();
        pairs.extend([
            ("description", Some(card.description)),
            ("version", Some(card.version)),
            ("skills", Some(skills.join(", "))),
            ("takes", Some(card.default_input_modes.join(", "))),
            ("gives", Some(card.default_output_modes.join(", "))),
            ("url", card.supported_interfaces.into_iter().next().map(|interface| interface.url)),
        ]);
    }
    output::print(&fields(&pairs));
    Ok(())
}

fn add(args: &Add) -> Result<(), Failure> {
    let directory = args.common.directory()?;
    let added = directory.add(&args.file, args.id.as_deref(), args.replace)?;
    if args.common.output == Format::Text {
        output::line(&format!("added agent {} as {}", added.id, added.path.display()));
    }
    warn(&added.id, &added.warnings);
    let arrival = args.common.target.block_on(arrival::wait(&args.common, &added.id))?;
    match args.common.output {
        Format::Json => {
            let mut shown = checked_json(&added);
            shown["served"] = json!(arrival.is_served());
            output::line(&shown.to_string());
        }
        Format::Text => arrival.say(&args.common, &added.id),
    }
    Ok(())
}

fn warn(id: &str, warnings: &[String]) {
    for warning in warnings {
        output::error_line("warning", &format!("agent `{id}`: {warning}"));
    }
}

fn checked_json(file: &FileState) -> Value {
    json!({
        "id": file.id, "name": file.name, "kind": file.kind, "source": file.path.display().to_string(),
        "ok": file.error.is_none(), "error": file.error, "warnings": file.warnings,
    })
}

fn remove(args: &Remove) -> Result<(), Failure> {
    let removed = args.common.directory()?.remove(&args.id)?;
    match args.common.output {
        Format::Json => {
            output::line(&json!({"id": args.id, "source": removed.display().to_string(), "removed": true}).to_string());
        }
        Format::Text => output::line(&format!("removed agent {}", args.id)),
    }
    Ok(())
}

fn restart(args: &Remove) -> Result<(), Failure> {
    let touched = args.common.directory()?.touch(&args.id)?;
    let arrival = args.common.target.block_on(arrival::wait(&args.common, &args.id))?;
    if args.common.output == Format::Json {
        let shown = json!({"id": args.id, "source": touched.display().to_string(), "served": arrival.is_served()});
        output::line(&shown.to_string());
    } else if arrival == Arrival::NoServer {
        output::error_line("note", "no server is running here; there is nothing to restart");
    } else {
        output::line(&format!("restarted agent {}: new turns get a new process", args.id));
    }
    Ok(())
}

fn check(args: &Check) -> Result<(), Failure> {
    let mut checked = Vec::new();
    let reader = findings::reader().with_models(args.common.models()?);
    if args.files.is_empty() {
        checked = args.common.directory()?.agents(&reader)?;
    }
    for named in &args.files {
        // A path when it looks like one, and an agent's id otherwise.
        let is_path = named.contains(std::path::MAIN_SEPARATOR) || named.ends_with(".toml");
        let path = if is_path { PathBuf::from(named) } else { args.common.directory()?.path(named) };
        checked.push(reader.state(&path));
    }
    let mut rows = Vec::new();
    for file in &checked {
        if args.common.output == Format::Json {
            output::line(&checked_json(file).to_string());
            continue;
        }
        let verdict = match (&file.error, file.warnings.as_slice()) {
            (Some(problem), _) => format!("broken: {problem}"),
            (None, []) => "ok".to_owned(),
            (None, warnings) => format!("ok, but {}", warnings.join("; ")),
        };
        rows.push(vec![file.id.clone(), file.path.display().to_string(), verdict]);
    }
    if args.common.output == Format::Text {
        output::print(&table(&["ID", "FILE", "RESULT"], &rows));
    }
    match checked.iter().filter(|file| file.error.is_some()).count() {
        0 => Ok(()),
        1 => Err(Failure::failed("an agent file is broken")),
        broken => Err(Failure::failed(format!("{broken} agent files are broken"))),
    }
}
