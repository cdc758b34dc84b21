//! The binary `sb`: reads the command line and hands over to the command.

mod a2a_command;
mod admin;
mod admin_token;
mod agent;
mod aside;
mod audit;
mod banner;
mod bench;
mod bootstrap;
mod card;
mod chat;
mod completion;
mod config;
mod config_command;
mod context;
mod courier;
mod credentials;
mod doctor;
mod editor;
mod failure;
mod findings;
mod journal;
mod key;
mod local;
mod logging;
mod output;
mod parts;
mod privacy;
mod profile;
mod push;
mod relay;
mod remote;
mod routes;
mod send;
mod serve;
mod servers;
mod table;
mod target;
mod task;
mod tenant;
mod token;
mod transfer;
mod trust;
mod waiting;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Switchboard makes agents callable by other agents: a durable A2A server in one binary.
#[derive(Debug, Parser)]
#[command(name = "sb", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log, as in RUST_LOG: a level or `target=level,…`, and `json` for lines of JSON [env: RUST_LOG]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    /// Show on stderr what is said to servers and what they answer, without secrets
    #[arg(long, global = true, conflicts_with = "log")]
    debug: bool,
}

/// What `--debug` logs.
const DEBUG: &str = "warn,client=debug,client::wire=trace";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(after_help = "Examples:\n  sb serve\n  sb serve --listen 127.0.0.1:9000 --data-dir ./data\n  \
                            sb serve --config /etc/switchboard/switchboard.toml")]
    Serve(serve::Args),
    /// Send a message to an agent and print its reply
    #[command(after_help = "Examples:\n  sb send --agent echo hello\n  \
                      sb send --agent echo --file report.pdf 'Summarize this.'\n  \
                      git diff | sb send --stream --url https://agents.example.org/a2a/agents/review -")]
    Send(send::Args),
    /// Talk with an agent, line by line
    #[command(
        after_help = "/help shows the commands of a conversation; /quit or Ctrl-D ends, Ctrl-C cancels the task that runs.\n\n\
                      Examples:\n  sb chat index\n  sb chat index --context 0198f2a4-…    # goes on with a conversation\n  \
                      sb chat https://agents.example.org/a2a/agents/review"
    )]
    Chat(chat::Args),
    /// Look at tasks, follow, cancel and delete them
    Task(task::Args),
    /// List and delete contexts, which group tasks
    Context(context::Args),
    /// Agent cards
    Card(card::Args),
    /// The queue: publish work, take it, and see what became of it; and the registry of cards
    #[command(name = "a2a")]
    A2a(a2a_command::Args),
    /// Notifications to webhooks: how far they have come, and dead letters
    Push(push::Args),
    /// Agents elsewhere that this server calls
    Remote(remote::Args),
    /// The agents of the server, and their files
    Agent(agent::Args),
    /// Who may call
    Tenant(tenant::Args),
    /// What tenants authenticate with
    Token(token::Args),
    /// Servers by name, with their tokens
    Profile(profile::Args),
    /// The keys that sign agent cards
    Key(key::Args),
    /// Who changed tenants, tokens and keys, and who deleted tasks
    #[command(after_help = "Examples:\n  sb audit\n  sb audit --limit 10 -o json")]
    Audit(audit::Args),
    /// The server's configuration: what it is and whether it is right
    Config(config_command::Args),
    /// Check everything that a server on this machine needs
    #[command(after_help = "Examples:\n  sb doctor\n  sb doctor --config ./switchboard.toml -o json")]
    Doctor(doctor::Args),
    /// Copy the journal while servers run
    #[command(after_help = "Examples:\n  sb backup /backup/switchboard-$(date +%F)\n  \
                            sb backup --store postgres://switchboard@db/switchboard /backup/switchboard.archive")]
    Backup(transfer::To),
    /// Put a backup into an empty store
    #[command(
        after_help = "Examples:\n  sb restore /backup/switchboard-2026-01-31 --data-dir /var/lib/switchboard --with-credentials\n  \
                            sb restore backup.archive --store postgres://switchboard@db/switchboard"
    )]
    Restore(transfer::From),
    /// Write everything in the store to an archive that any store can take in
    #[command(after_help = "Examples:\n  sb export switchboard.archive\n  \
                            sb export - | gzip > switchboard.archive.gz")]
    Export(transfer::To),
    /// Take an archive into an empty store
    #[command(
        after_help = "Examples:\n  sb import switchboard.archive --verify jwks.json --store postgres://switchboard@db/switchboard\n  \
                            sb export - | sb import - --with-credentials --store postgres://switchboard@db/switchboard"
    )]
    Import(transfer::From),
    /// Print the completion script of a shell
    #[command(
        after_help = "The script asks `sb` what fits, so it also knows the agents of the server, states and profiles.\n\n\
                      Examples:\n  sb completion bash > ~/.local/share/bash-completion/completions/sb\n  \
                      sb completion zsh > ~/.zfunc/_sb\n  \
                      sb completion fish > ~/.config/fish/completions/sb.fish"
    )]
    Completion(completion::CompletionArgs),
    /// Print or write the manual pages
    #[command(after_help = "Examples:\n  sb man | man -l -\n  sb man ~/.local/share/man/man1")]
    Man(completion::ManArgs),
    /// Put load on an agent and measure what it does
    #[command(after_help = "Examples:\n  sb bench\n  sb bench --mode stream --concurrency 256 --duration 30s\n  \
                            sb bench --url http://127.0.0.1:9000 --requests 1000 -o json")]
    Bench(Box<bench::Args>),
}

fn main() -> ExitCode {
    // Before anything else: it is started for every turn of a program, and has nothing to hide.
    #[cfg(target_os = "linux")]
    if std::env::args_os().nth(1).is_some_and(|verb| verb == agents::launch::VERB) {
        return agents::launch::run(std::env::args_os().skip(2));
    }
    privacy::close();
    if let Some(ended) = guard() {
        return ended;
    }
    if completion::answer() {
        return ExitCode::SUCCESS;
    }
    if wants_json(std::env::args().skip(1)) {
        output::speak_to_programs();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if output::is_for_programs() && error.use_stderr() => {
            let failure = usage(&error);
            failure.print();
            return failure.exit.into();
        }
        Err(error) => {
            // Also the way of --help and --version; nobody is left to tell when the terminal is gone.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}

/// Ends the programs of a server that is gone, if that is what this was started for: `sb guard INSTANCE`. It is no command
/// for people, and none that a shell offers.
fn guard() -> Option<ExitCode> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [verb, instance] = &words[..] else { return None };
    if verb != "guard" {
        return None;
    }
    match agents::guard::run(&instance.to_string_lossy()) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            let failure = Failure::failed("the guard of programs ended badly").caused_by(&error);
            failure.print();
            Some(failure.exit.into())
        }
    }
}

/// Whether the command line asks for JSON. It is looked at before it is understood, since what is wrong with it is said in JSON as well.
fn wants_json(args: impl Iterator<Item = String>) -> bool {
    let mut is_format = false;
    for arg in args.take_while(|arg| arg != "--") {
        if matches!(arg.as_str(), "-ojson" | "-o=json" | "--output=json" | "--json") || (is_format && arg == "json") {
            return true;
        }
        is_format = matches!(arg.as_str(), "-o" | "--output");
    }
    false
}

/// What is wrong with a command line, for a program.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let failure = Failure::usage(first.strip_prefix("error: ").unwrap_or(first));
    lines
        .take_while(|line| !line.starts_with("Usage:"))
        .fold(failure, |failure, line| failure.because(line))
        .hint("--help shows how it is used")
}

/// Tells variables that nothing reads. Those that are like none of ours may belong to somebody else, and are told where the
/// configuration is looked at. A server says it before it hides its environment, and so only once.
fn warn_of_variables(command: &Command) {
    let is_about_configuration = matches!(command, Command::Doctor(_) | Command::Config(_));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, meant) in config::unknown_variables(names) {
        let hint = meant.as_ref().map(|meant| format!(": did you mean `{meant}`?"));
        if hint.is_some() || is_about_configuration {
            let text = format!("unknown environment variable `{name}`{}", hint.unwrap_or_default());
            output::error_line("warning", &text);
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    warn_of_variables(&cli.command);
    let log = if cli.debug { Some(DEBUG) } else { cli.log.as_deref() };
    match cli.command {
        Command::Serve(_) if cli.debug => {
            Err(Failure::usage("--debug is for commands that call a server").hint("--log says what a server logs"))
        }
        Command::Serve(args) => {
            privacy::hide_environment()?;
            serve::run(&args)
        }
        Command::Send(args) => send::run(args, log),
        Command::Chat(args) => chat::run(args, log),
        Command::Task(args) => task::run(args, log),
        Command::Context(args) => context::run(args, log),
        Command::Card(args) => card::run(args, log),
        Command::A2a(args) => a2a_command::run(args, log),
        Command::Push(args) => push::run(args, log),
        Command::Remote(args) => remote::run(&args, log),
        Command::Agent(args) => agent::run(args, log),
        Command::Tenant(args) => tenant::run(args, log),
        Command::Token(args) => token::run(args, log),
        Command::Profile(args) => profile::run(args),
        Command::Key(args) => key::run(args, log),
        Command::Audit(args) => audit::run(args, log),
        Command::Config(args) => config_command::run(args),
        Command::Doctor(args) => doctor::run(&args, log),
        Command::Backup(args) => transfer::backup(&args, log),
        Command::Restore(args) => transfer::restore(&args, log),
        Command::Export(args) => transfer::export(&args, log),
        Command::Import(args) => transfer::import(&args, log),
        Command::Completion(args) => completion::completion(&args),
        Command::Man(args) => completion::man(&args),
        Command::Bench(args) => bench::run(*args, log),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_is_asked_for_in_every_spelling() {
        let wants = |line: &str| wants_json(line.split_whitespace().map(str::to_owned));
        for line in
            ["send -o json x", "send -ojson x", "task list --output=json", "a2a show t --json", "send --output json"]
        {
            assert!(wants(line), "{line}");
        }
        for line in ["send json", "send -o text json", "a2a work x -- program -o json", "task list"] {
            assert!(!wants(line), "{line}");
        }
    }
}
