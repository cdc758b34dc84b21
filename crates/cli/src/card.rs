//! `sb card`: agent cards.

use client::discover;

use crate::{
    config::LogFormat,
    failure::Failure,
    logging,
    output::{self, Format},
    target,
};

/// `sb card …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print an agent's card
    Get(Get),
}

#[derive(Debug, clap::Args)]
struct Get {
    /// The agent's URL, or that of the card itself [default: the server]
    url: Option<String>,
    /// An agent of the server
    #[arg(long, value_name = "ID", conflicts_with = "url")]
    agent: Option<String>,
    /// How to print it: `text` is indented
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    logging::start(log, "warn", LogFormat::Human)?;
    match args.verb {
        Verb::Get(args) => args.target.block_on(get(&args)),
    }
}

async fn get(args: &Get) -> Result<(), Failure> {
    let target = args.target.target(args.url.as_deref(), args.agent.as_deref())?;
    let found = discover(&args.target.connector(), &target.url, target.token.as_ref()).await?;
    // It was parsed, so that it is UTF-8.
    let json = String::from_utf8_lossy(&found.json);
    match args.output {
        Format::Text => output::print_foreign(&format!("{}\n", output::indented(&json))),
        Format::Json => output::line(&output::one_line(&json)),
    }
    Ok(())
}
