//! `sb a2a`: the queue and the card registry.

mod cards;
mod plan;
mod queue;

use clap::Parser;

use crate::{config::LogFormat, failure::Failure, logging, routes::RouteArgs, target::TargetArgs, work};

/// `sb a2a …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(flatten)]
    Queue(queue::Verb),
    /// Take work from an agent's queue and run a program for each entry
    #[command(after_help = work::EXAMPLES)]
    Work(work::Args),
    /// Run an ordered list of steps, each a piece of work for an agent
    #[command(subcommand)]
    Plan(plan::Verb),
    #[command(flatten)]
    Cards(cards::Verb),
}

/// `/a2a …` in a conversation.
#[derive(Debug, Parser)]
#[command(name = "/a2a", multicall = false, disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

impl Verb {
    /// Which server, and how to print; `work` has its own life.
    fn routes(&mut self) -> Option<&mut RouteArgs> {
        match self {
            Self::Queue(verb) => Some(verb.routes()),
            Self::Plan(verb) => Some(verb.routes()),
            Self::Cards(verb) => Some(verb.routes()),
            Self::Work(_) => None,
        }
    }
}

pub(crate) fn run(mut args: Args, log: Option<&str>) -> Result<(), Failure> {
    if let Verb::Work(args) = args.verb {
        return work::run(args, log);
    }
    logging::start(log, "warn", LogFormat::Human)?;
    let timeout = args.verb.routes().map(|routes| routes.target.timeout.0).unwrap_or_default();
    crate::target::block_on(crate::target::within(timeout, perform(args.verb)))
}

/// Carries out a line that was typed in a conversation, on the conversation's server where it names no other.
pub(crate) async fn line(words: &[String], url: Option<&str>, target: &TargetArgs) -> Result<(), Failure> {
    let words = std::iter::once("/a2a").chain(words.iter().map(String::as_str));
    let mut verb = match Line::try_parse_from(words) {
        Ok(line) => line.verb,
        Err(error) if error.use_stderr() => return Err(Failure::usage(error.to_string().trim_end().to_owned())),
        // It is the help that was asked for.
        Err(error) => {
            crate::output::print(&error.to_string());
            return Ok(());
        }
    };
    match verb.routes() {
        Some(routes) => routes.default_to(url, target),
        None => return Err(Failure::usage("a worker is a program of its own: run `sb a2a work` in another shell")),
    }
    perform(verb).await
}

async fn perform(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Queue(verb) => verb.perform().await,
        Verb::Plan(verb) => verb.perform().await,
        Verb::Cards(verb) => verb.perform().await,
        Verb::Work(_) => Ok(()),
    }
}
