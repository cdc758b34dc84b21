//! `sb remote`: agents elsewhere that this server calls.

use std::path::PathBuf;

use http::Method;
use serde_json::{Map, Value, json};
use url::form_urlencoded::byte_serialize;

use crate::{
    admin::{Admin, AdminArgs, print_json},
    failure::Failure,
    output::{self, Format},
    table::{fields, table},
    target::server_url,
};

/// `sb remote …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the remotes, and whether they answer
    #[command(after_help = "Examples:\n  sb remote list\n  sb remote list -o json")]
    List(List),
    /// Add a remote; it is an agent of this server from then on
    #[command(
        after_help = "The remote is kept in the server's directory `agents.d`. Keys stay in variables of the server.\n\n\
                      Examples:\n  sb remote add weather https://weather.example.org/a2a --api-key-env WEATHER_KEY\n  \
                      sb remote add far http://127.0.0.1:9999 && sb send --agent far hello"
    )]
    Add(Add),
    /// Remove a remote that was added
    #[command(after_help = "Example:\n  sb remote remove weather")]
    Remove(Named),
    /// Print the card of a remote, as it came
    #[command(after_help = "Examples:\n  sb remote card weather\n  sb remote card weather --refresh")]
    Card(Card),
    /// Look whether a remote, or whoever is at a URL, answers
    #[command(after_help = "Examples:\n  sb remote probe weather\n  sb remote probe http://127.0.0.1:9999")]
    Probe(Probe),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Its name here: the id of the agent that it becomes
    name: String,
    /// Where it is: its JSON-RPC endpoint, the host that has its card, or the card itself
    #[arg(value_name = "URL")]
    at: String,
    /// The server's variable with the key to send as X-API-Key
    #[arg(long, value_name = "VARIABLE", group = "credential")]
    api_key_env: Option<String>,
    /// The server's variable with the token to send as bearer
    #[arg(long, value_name = "VARIABLE", group = "credential")]
    bearer_env: Option<String>,
    /// The server's file with the token to send as bearer; it is read for each call
    #[arg(long, value_name = "FILE", group = "credential")]
    bearer_file: Option<PathBuf>,
    /// Use this binding, whatever its card prefers: JSONRPC, HTTP+JSON or GRPC
    #[arg(long, value_name = "BINDING")]
    binding: Option<String>,
    /// Where its card is, if that is not where cards are
    #[arg(long, value_name = "URL")]
    card: Option<String>,
    /// How long a call may take
    #[arg(long = "call-timeout", value_name = "DURATION")]
    call_timeout: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Its name here
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Card {
    /// Its name here
    name: String,
    /// Ask for it again
    #[arg(long)]
    refresh: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Probe {
    /// Its name here, or a URL
    #[arg(value_name = "NAME|URL")]
    whom: String,
    #[command(flatten)]
    admin: AdminArgs,
}

const NOTHING: Option<&Value> = None;

pub(crate) fn run(args: &Args, log: Option<&str>) -> Result<(), Failure> {
    match &args.verb {
        Verb::List(args) => args.admin.run(log, false, async |admin| list(args, admin).await),
        Verb::Add(args) => args.admin.run(log, false, async |admin| add(args, admin).await),
        Verb::Remove(args) => args.admin.run(log, false, async |admin| remove(args, admin).await),
        Verb::Card(args) => args.admin.run(log, false, async |admin| card(args, admin).await),
        Verb::Probe(args) => args.admin.run(log, false, async |admin| probe(args, admin).await),
    }
}

async fn list(args: &List, admin: &Admin) -> Result<(), Failure> {
    let mut answer: Value = admin.route(Method::GET, "/v1/remotes", NOTHING).await?;
    let Value::Array(remotes) = answer["remotes"].take() else { return Ok(()) };
    if args.admin.output == Format::Json {
        print_json(&remotes);
        return Ok(());
    }
    if remotes.is_empty() {
        let how = "there are none: `sb remote add NAME URL`, or write agents.yaml beside the configuration file";
        output::error_line("note", how);
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let row = |remote: &Value| {
        let skills = remote["skills"].as_array().map_or(0, Vec::len).to_string();
        vec![text(&remote["name"]), text(&remote["registry"]), stands(remote), skills, text(&remote["url"])]
    };
    let rows: Vec<Vec<String>> = remotes.iter().map(row).collect();
    output::print(&table(&["NAME", "REGISTRY", "STATE", "SKILLS", "URL"], &rows));
    Ok(())
}

/// How a remote stands, in a few words.
fn stands(remote: &Value) -> String {
    if remote["breaker"] == "open" {
        return "not called (circuit open)".to_owned();
    }
    match (remote["reachable"].as_bool(), remote["latencyMs"].as_u64()) {
        (Some(true), Some(latency)) => match remote["error"].as_str() {
            Some(error) => format!("reachable, {latency} ms; {error}"),
            None => format!("reachable, {latency} ms"),
        },
        (Some(true), None) => "reachable".to_owned(),
        (Some(false), _) => format!("unreachable: {}", remote["error"].as_str().unwrap_or("no reason known")),
        (None, _) => "not asked yet".to_owned(),
    }
}

async fn add(args: &Add, admin: &Admin) -> Result<(), Failure> {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(args.name));
    entry.insert("url".to_owned(), json!(address(&args.at)?));
    let given = [
        ("apiKeyEnv", &args.api_key_env),
        ("binding", &args.binding),
        ("card", &args.card),
        ("timeout", &args.call_timeout),
    ];
    for (key, value) in given {
        entry.extend(value.as_ref().map(|value| (key.to_owned(), json!(value))));
    }
    if let Some(variable) = &args.bearer_env {
        entry.insert("auth".to_owned(), json!({"scheme": "bearer", "credentialsEnv": variable}));
    }
    if let Some(file) = &args.bearer_file {
        let file = std::path::absolute(file).map_err(|error| {
            Failure::failed(format!("cannot find the directory of `{}`", file.display())).caused_by(&error)
        })?;
        let file = file.to_str().ok_or_else(|| Failure::usage("the path of --bearer-file is not UTF-8 text"))?;
        entry.insert("auth".to_owned(), json!({"scheme": "bearer", "credentialsFile": file}));
    }
    let added: Value = admin.route(Method::POST, "/v1/remotes", Some(&entry)).await?;
    print(args.admin.output, &added);
    if added["reachable"] != true {
        output::error_line("note", "it does not answer yet; it is asked again by itself");
    }
    Ok(())
}

/// A URL as it was given, in which the server may put variables, or the one that `HOST:PORT` stands for.
fn address(given: &str) -> Result<String, Failure> {
    if given.contains("://") || given.contains("${") {
        return Ok(given.to_owned());
    }
    Ok(server_url(given)?.to_string())
}

async fn remove(args: &Named, admin: &Admin) -> Result<(), Failure> {
    let removed: Value = admin.route(Method::DELETE, &of(&args.name, ""), NOTHING).await?;
    match args.admin.output {
        Format::Json => print_json(&[removed]),
        Format::Text => output::line(&format!("removed {}", args.name)),
    }
    Ok(())
}

async fn card(args: &Card, admin: &Admin) -> Result<(), Failure> {
    let below = if args.refresh { "/card?refresh=true" } else { "/card" };
    let card: Value = admin.route(Method::GET, &of(&args.name, below), NOTHING).await?;
    match args.admin.output {
        Format::Json => print_json(&[card]),
        // Plain data always serialises.
        Format::Text => {
            output::print_foreign(&format!("{}\n", serde_json::to_string_pretty(&card).unwrap_or_default()));
        }
    }
    Ok(())
}

async fn probe(args: &Probe, admin: &Admin) -> Result<(), Failure> {
    // No name has a colon.
    let found: Value = if args.whom.contains(':') {
        admin.route(Method::POST, "/v1/remotes/probe", Some(&json!({"url": address(&args.whom)?}))).await?
    } else {
        admin.route(Method::POST, &of(&args.whom, "/probe"), NOTHING).await?
    };
    print(args.admin.output, &found);
    if found["reachable"] == true {
        return Ok(());
    }
    let why = found["error"].as_str().unwrap_or("it does not answer").to_owned();
    Err(Failure::failed(format!("{} cannot be reached", args.whom)).because(why))
}

/// A route of a remote.
fn of(name: &str, below: &str) -> String {
    let name: String = byte_serialize(name.as_bytes()).collect();
    format!("/v1/remotes/{name}{below}")
}

fn print(format: Format, remote: &Value) {
    if format == Format::Json {
        print_json(std::slice::from_ref(remote));
        return;
    }
    let text = |key: &str| remote[key].as_str().map(str::to_owned);
    let skills = remote["skills"].as_array().map(|skills| {
        let ids: Vec<&str> = skills.iter().filter_map(|skill| skill["id"].as_str()).collect();
        ids.join(", ")
    });
    let pairs = [
        ("name", text("name")),
        ("url", text("url")),
        ("card", text("cardUrl")),
        ("description", text("description")),
        ("registry", text("registry")),
        ("state", Some(stands(remote))),
        ("binding", text("binding")),
        ("version", text("protocolVersion")),
        ("skills", skills.filter(|skills| !skills.is_empty())),
        (if remote["missingCredential"].is_null() { "accepts" } else { "demands" }, ways(remote)),
    ];
    output::print(&fields(&pairs));
    say_missing_credential(remote);
}

/// How a remote wants to be authenticated to, as its card says it.
fn ways(remote: &Value) -> Option<String> {
    let ways: Vec<&str> = remote["security"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!ways.is_empty()).then(|| ways.join(", or "))
}

/// Says that the card demands a credential that the entry does not have, and how to give one.
fn say_missing_credential(remote: &Value) {
    let how = match remote["missingCredential"].as_str() {
        None => return,
        Some("bearer") => "with `--bearer-env VARIABLE` or `--bearer-file FILE`",
        Some("apiKey") => "with `--api-key-env VARIABLE`",
        Some(_) => "by `auth` or `headers` of its entry",
    };
    let text = if remote["registry"].is_null() {
        format!("its card demands a credential; add it {how}")
    } else {
        format!("its card demands a credential, and its entry has no credential; remove it and add it again {how}")
    };
    output::error_line("note", &text);
}
