//! `sb completion` and `sb man`: what a shell and `man` know about the commands, made from the commands themselves.
//!
//! The script of a shell asks `sb` at each Tab what fits, so that it knows what only a server knows: its agents. What
//! cannot be found out at once is left out, and nothing is printed about it.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use a2a::TaskState;
use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell, env::Shells};
use serde_json::Value;

use crate::{
    Cli,
    admin::AdminArgs,
    failure::Failure,
    output, profile, routes,
    target::{TargetArgs, block_on, within},
    task,
};

/// The variable by which a shell asks.
const VARIABLE: &str = "SB_COMPLETE";

/// How long somebody waits for a Tab.
const PATIENCE: Duration = Duration::from_secs(2);

/// `sb completion …`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// `sb man …`
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Where to write one page for each command [default: print sb(1)]
    directory: Option<PathBuf>,
}

/// Which server is meant on a line that is not finished.
#[derive(Debug, Parser)]
struct Place {
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Which installation is meant on a line that is not finished.
#[derive(Debug, Parser)]
struct Administered {
    #[command(flatten)]
    admin: AdminArgs,
}

/// The flags that say which server.
const PLACE: [&str; 5] = ["--url", "--profile", "--data-dir", "--config", "--token"];
/// The flags that say which installation.
const ADMINISTERED: [&str; 4] = ["--url", "--data-dir", "--store", "--config"];

pub(crate) fn completion(args: &CompletionArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let written = match shells.completer(&shell) {
        Some(shell) => shell.write_registration(VARIABLE, "sb", "sb", "sb", &mut script),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    written.map_err(|error| Failure::failed(format!("cannot make the script of {shell}")).caused_by(&error))?;
    output::print(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Answers a shell that asks what fits. Says whether it was one.
pub(crate) fn answer() -> bool {
    let directory = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command).var(VARIABLE).bin("sb").completer("sb");
    match asked.try_complete(std::env::args_os(), directory.as_deref()) {
        Ok(answered) => answered,
        Err(error) => {
            // Nobody is left to tell when the terminal is gone.
            let _ = error.print();
            true
        }
    }
}

/// All commands, with what is known about the values of their options.
fn command() -> Command {
    with_values(Cli::command())
}

fn with_values(command: Command) -> Command {
    let of = command.get_name().to_owned();
    let of_agents = of == "agent";
    let command = command.mut_args(with_value);
    command.mut_subcommands(|below| {
        let is_id = of_agents && matches!(below.get_name(), "show" | "remove" | "restart" | "logs");
        let below = if is_id { below.mut_arg("id", |id| id.add(ArgValueCompleter::new(agents))) } else { below };
        let below = match (of.as_str(), below.get_name()) {
            ("task", "get" | "cancel" | "subscribe" | "download" | "logs") => {
                below.mut_arg("id", |id| id.add(ArgValueCompleter::new(tasks)))
            }
            ("task", "delete") => below.mut_arg("ids", |ids| ids.add(ArgValueCompleter::new(tasks))),
            // `mut_arg` would put the first of two arguments behind the second.
            ("push", "show" | "replay") => {
                below.mut_args(|arg| if arg.get_id() == "task" { arg.add(ArgValueCompleter::new(tasks)) } else { arg })
            }
            ("context", "delete") => below.mut_arg("id", |id| id.add(ArgValueCompleter::new(contexts))),
            ("tenant", "disable" | "enable" | "rotate" | "delete") => {
                below.mut_arg("name", |name| name.add(ArgValueCompleter::new(tenants)))
            }
            _ => below,
        };
        with_values(below)
    })
}

/// What an option is called says what it takes, wherever it stands.
fn with_value(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "agent" | "to_agent" => arg.add(ArgValueCompleter::new(agents)),
        "context" => arg.add(ArgValueCompleter::new(contexts)),
        "task" if arg.get_long().is_some() => arg.add(ArgValueCompleter::new(tasks)),
        "tenant" if arg.get_long().is_some() => arg.add(ArgValueCompleter::new(tenants)),
        "profile" => arg.add(ArgValueCompleter::new(profiles)),
        "state" => arg.add(ArgValueCompleter::new(states)),
        _ => arg,
    }
}

fn states(begun: &OsStr) -> Vec<CompletionCandidate> {
    let states = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Unspecified);
    fitting(begun, states.map(|state| (task::spoken(state), None)))
}

fn profiles(begun: &OsStr) -> Vec<CompletionCandidate> {
    fitting(begun, profile::names().into_iter().map(|name| (name, None)))
}

/// The agents of the server that the line means so far.
fn agents(begun: &OsStr) -> Vec<CompletionCandidate> {
    let one = |agent: &Value| Some((agent["id"].as_str()?.to_owned(), agent["name"].as_str().map(str::to_owned)));
    fitting(begun, listed(&["v1", "agents"], &[], "agents", one))
}

/// The tenants of the installation, where this user may administer it.
fn tenants(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Ok(Administered { admin }) = Administered::try_parse_from(place(&words(), &ADMINISTERED)) else {
        return Vec::new();
    };
    let names = block_on(within(PATIENCE, admin.tenant_names())).unwrap_or_default();
    fitting(begun, names.into_iter().map(|name| (name, None)))
}

/// The tasks that changed last, and the word for the newest.
fn tasks(begun: &OsStr) -> Vec<CompletionCandidate> {
    let one = |task: &Value| {
        let said = format!("{} {}", task["agent_id"].as_str()?, task["state"].as_str()?);
        Some((task["request_id"].as_str()?.to_owned(), Some(said)))
    };
    let mut found = listed(&["v1", "requests"], &[("limit", "50")], "requests", one);
    if !found.is_empty() {
        found.push((task::ids::LAST.to_owned(), Some("the newest task".to_owned())));
    }
    fitting(begun, found)
}

/// The contexts of the tasks that changed last.
fn contexts(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut seen = BTreeSet::new();
    let one = |task: &Value| Some((task["context_id"].as_str()?.to_owned(), None));
    let found = listed(&["v1", "requests"], &[("limit", "200")], "requests", one);
    fitting(begun, found.into_iter().filter(|(id, _)| seen.insert(id.clone())).collect::<Vec<_>>())
}

/// What the server of the line so far lists at a route, and what is said of each; nothing where it does not answer.
fn listed(
    path: &[&str],
    query: &[(&str, &str)],
    member: &str,
    one: impl Fn(&Value) -> Option<(String, Option<String>)>,
) -> Vec<(String, Option<String>)> {
    let Ok(Place { url, target }) = Place::try_parse_from(place(&words(), &PLACE)) else { return Vec::new() };
    let asked = async { Ok(routes::ask::<Value>(&target, url.as_deref(), path, query).await) };
    let answer = block_on(within(PATIENCE, asked)).ok().flatten().unwrap_or_default();
    answer[member].as_array().into_iter().flatten().filter_map(one).collect()
}

/// The words of the line so far.
fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The words that say which server is meant, for a parser that knows no others.
fn place(words: &[String], flags: &[&str]) -> Vec<OsString> {
    let mut found = vec![OsString::from("sb")];
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if flags.contains(&flag)
            && let Some(value) = value.or_else(|| words.next_if(|next| !next.starts_with('-')).cloned())
        {
            found.extend([flag.into(), value.into()]);
        }
    }
    found
}

fn fitting(begun: &OsStr, known: impl IntoIterator<Item = (String, Option<String>)>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    // A shell puts a value into its line as it is, and what it means there is a server's choice otherwise.
    let fitting = known.into_iter().filter(|(value, _)| value.starts_with(begun.as_ref()) && is_plain(value));
    let help = |help: Option<String>| help.map(|help| output::single_line(&help).into());
    fitting.map(|(value, said)| CompletionCandidate::new(value).help(help(said))).collect()
}

/// Whether a value means nothing but itself in every shell, and is no flag.
fn is_plain(value: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    let is_path = matches!(value, "." | "..");
    (1..=64).contains(&value.len()) && !value.starts_with('-') && !is_path && value.bytes().all(is_plain)
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let Some(directory) = &args.directory else {
        let page =
            page(Cli::command()).map_err(|error| Failure::failed("cannot make the manual page").caused_by(&error))?;
        output::print(&String::from_utf8_lossy(&page));
        return Ok(());
    };
    write_pages(directory).map_err(|error| {
        Failure::failed(format!("cannot write the manual pages to `{}`", directory.display()))
            .caused_by(&error)
            .hint("name a directory that can be written, such as ~/.local/share/man/man1")
    })
}

fn write_pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, directory)
}

/// Writes the page of a command, and those of the commands below it.
fn write_page(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_page(below, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    std::fs::write(directory.join(format!("{name}.1")), page(command.clone())?)
}

/// The page of a command.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(with_examples(&String::from_utf8_lossy(&page)).into_bytes())
}

/// A page whose examples are a section of their own, with their lines as they are.
fn with_examples(page: &str) -> String {
    let Some((before, extra)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (extra, after) = extra.find("\n.SH ").map_or((extra, ""), |end| extra.split_at(end + 1));
    let heading = ["Examples:\n", "Example:\n"].into_iter().find_map(|heading| Some((extra.find(heading)?, heading)));
    let (notes, examples) = match heading {
        Some((at, heading)) => (extra[..at].trim(), extra[at + heading.len()..].trim_end()),
        None => (extra.trim(), ""),
    };
    let mut out = before.to_owned();
    if !notes.is_empty() {
        out += &format!(".SH NOTES\n{notes}\n");
    }
    if !examples.is_empty() {
        out += &format!(".SH EXAMPLES\n.nf\n{examples}\n.fi\n");
    }
    out + after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_server_before_it_is_finished() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            place(&words("sb -- sb send --profile work --stream --url=http://h --agent ec"), &PLACE),
            ["sb", "--profile", "work", "--url", "http://h"]
        );
        assert_eq!(place(&words("sb send --url --agent"), &PLACE), ["sb"], "its value is not there yet");
    }

    #[test]
    fn examples_of_pages_are_a_section() {
        let made = String::from_utf8(page(Cli::command().find_subcommand("chat").unwrap().clone()).unwrap()).unwrap();
        assert!(made.contains(".SH NOTES\n/help shows") && !made.contains("EXTRA"), "{made}");
        assert!(made.contains(".SH EXAMPLES\n.nf\n  sb chat index\n  sb chat index \\-\\-context"), "{made}");
        for verb in ["serve", "send", "doctor", "audit"] {
            let made = page(Cli::command().find_subcommand(verb).unwrap().clone()).unwrap();
            assert!(String::from_utf8_lossy(&made).contains(&format!(".SH EXAMPLES\n.nf\n  sb {verb}")), "{verb}");
        }
        let cli = Cli::command();
        let get = cli.find_subcommand("card").unwrap().find_subcommand("get").unwrap();
        assert!(String::from_utf8(page(get.clone()).unwrap()).unwrap().contains(".SH EXAMPLES\n.nf\n  sb card get"));
    }

    #[test]
    fn every_command_is_still_consistent() {
        command().debug_assert();
    }
}
