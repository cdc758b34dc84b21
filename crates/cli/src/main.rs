//! The binary `sb`: reads the command line and hands over to the command.

mod bootstrap;
mod card;
mod config;
mod duration;
mod failure;
mod local;
mod logging;
mod output;
mod send;
mod serve;
mod target;

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
    /// What to log, as in RUST_LOG: a level or `target=level,…` [env: RUST_LOG]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Args),
    /// Send a message to an agent and print its reply
    Send(send::Args),
    /// Agent cards
    Card(card::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
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

fn run(cli: Cli) -> Result<(), Failure> {
    let log = cli.log.as_deref();
    match cli.command {
        Command::Serve(args) => serve::run(args, log),
        Command::Send(args) => send::run(args, log),
        Command::Card(args) => card::run(args, log),
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
}
