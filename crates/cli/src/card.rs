//! `sb card`: agent cards, whether they are signed, and by whom.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use a2a::signature::{Trusted, verify};
use client::{Trust, discover, origin, parse_url};
use exchange::admin::SignCard;
use serde_json::value::RawValue;

use crate::{
    admin::{Admin, AdminArgs},
    config::{CardTrust, LogFormat, process_environment},
    failure::Failure,
    logging,
    output::{self, Format},
    target, trust,
};

/// The largest card that is read from a file.
const MAX_BYTES: u64 = 4 << 20;

/// `sb card …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print an agent's card, and whether its signature is good
    #[command(after_help = "Examples:\n  sb card get\n  sb card get --agent echo -o json | jq .skills\n  \
                            sb card get https://agents.example.org")]
    Get(Get),
    /// Check whether a key that you trust has signed a card
    #[command(after_help = "Trusted are the keys of --key and those of `trust.keys` in the configuration, \
                            never those that a card points to.\n\n\
                            Examples:\n  sb card verify https://agents.example.org\n  \
                            sb card verify card.json --key jwks.json\n  \
                            sb card verify --agent echo --key jwks.json -o json")]
    Verify(Verify),
    /// Sign a card with the installation's key and print it
    #[command(after_help = "Example:\n  sb card sign card.json > signed.json")]
    Sign(Sign),
}

#[derive(Debug, clap::Args)]
struct Get {
    /// The agent's URL, or that of the card itself [default: the server]
    url: Option<String>,
    /// The same, as others spell it
    #[arg(short = 'a', long, value_name = "URL", hide = true, conflicts_with = "url")]
    agent_card: Option<String>,
    /// An agent of the server
    #[arg(long, value_name = "ID", conflicts_with_all = ["url", "agent_card"])]
    agent: Option<String>,
    /// How to print it: `text` is indented
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

#[derive(Debug, clap::Args)]
struct Verify {
    /// The agent's URL, that of the card itself, a file, or `-` [default: the server]
    card: Option<String>,
    /// An agent of the server
    #[arg(long, value_name = "ID", conflicts_with = "card")]
    agent: Option<String>,
    /// A file with a JSON Web Key or a set of them to trust; can be given several times
    #[arg(long, visible_alias = "jwks", value_name = "FILE")]
    key: Vec<PathBuf>,
    /// From which origin the card of a file is [default: that of its first interface]
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
    /// What a card means that is not verified: `require` is a failure, `prefer` only says it, `ignore` does not look
    #[arg(long, value_name = "MODE", value_enum, default_value = "require")]
    mode: CardTrust,
    /// How to print the verdict
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: target::TargetArgs,
}

#[derive(Debug, clap::Args)]
struct Sign {
    /// The file with the card, or `-`
    card: String,
    /// Where verifiers find the installation's public keys
    #[arg(long, value_name = "URL")]
    jku: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    match args.verb {
        Verb::Get(args) => {
            logging::start(log, "warn", LogFormat::Human)?;
            args.target.block_on(get(&args))
        }
        Verb::Verify(args) => {
            logging::start(log, "warn", LogFormat::Human)?;
            args.target.block_on(check(&args))
        }
        Verb::Sign(args) => args.admin.run(log, false, async |admin| sign(&args, admin).await),
    }
}

async fn get(args: &Get) -> Result<(), Failure> {
    let target =
        args.target.public_target(args.url.as_deref().or(args.agent_card.as_deref()), args.agent.as_deref())?;
    let trust = trust::configured(&args.target.settings(&process_environment)?)?;
    let found = discover(&args.target.connector(), &target.url, target.credential.as_ref()).await;
    let found = found.map_err(Failure::of_agent)?;
    // It was parsed, so that it is UTF-8.
    print_card(&String::from_utf8_lossy(&found.json), args.output);
    if trust.mode != client::Mode::Ignore {
        trust::tell(&trust.judge(&found));
    }
    Ok(())
}

fn print_card(json: &str, format: Format) {
    match format {
        Format::Text => output::print_foreign(&format!("{}\n", output::indented(json))),
        Format::Json => output::line(&output::one_line(json)),
    }
}

async fn check(args: &Verify) -> Result<(), Failure> {
    if args.mode == CardTrust::Ignore {
        output::error_line("signature", "not looked at");
        return Ok(());
    }
    let mut trust = trust::configured(&args.target.settings(&process_environment)?)?;
    for file in &args.key {
        trust.keys.extend(trust::read_keys(file, None)?);
    }
    if trust.keys.is_empty() {
        return Err(Failure::usage("no key is trusted")
            .because("a card cannot vouch for its own key")
            .hint("name a file with --key, or trust one for its origin with `trust.keys` in the configuration"));
    }
    let (json, from) = found(args).await?;
    let Trust { keys, now, .. } = &trust;
    let verdict = verify(&json, keys, from.as_deref(), *now);
    match args.output {
        Format::Json => output::line(&trust::verdict_json(&verdict).to_string()),
        Format::Text if verdict.is_ok() => output::line(&output::single_line(&trust::verdict_text(&verdict))),
        Format::Text => {}
    }
    match verdict {
        Err(refusal) if args.mode == CardTrust::Require => {
            let trusted = |trusted: &Trusted| trusted.origin.is_some() && trusted.origin != from;
            let failure = Failure::failed("the card is not verified").caused_by(&refusal);
            Err(match &from {
                Some(from) if keys.iter().all(trusted) => failure.hint(format!("no key is trusted for {from}")),
                _ => failure,
            })
        }
        Err(_) if args.output == Format::Text => {
            output::line(&output::single_line(&trust::verdict_text(&verdict)));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The card, and the origin that it is from if that is known.
async fn found(args: &Verify) -> Result<(Vec<u8>, Option<String>), Failure> {
    let given = args.origin.as_deref().map(parse_url).transpose()?.map(|url| origin(&url));
    if let Some(file) = args.card.as_deref().filter(|card| !is_url(card)) {
        let json = read(file)?;
        let from = given.or_else(|| stated_origin(&json));
        return Ok((json, from));
    }
    let target = args.target.public_target(args.card.as_deref(), args.agent.as_deref())?;
    let found = discover(&args.target.connector(), &target.url, target.credential.as_ref()).await;
    let found = found.map_err(Failure::of_agent)?;
    Ok((found.json.to_vec(), Some(origin(&found.url))))
}

fn is_url(card: &str) -> bool {
    card.starts_with("http://") || card.starts_with("https://")
}

/// Where a card from a file says that its agent is.
fn stated_origin(json: &[u8]) -> Option<String> {
    let url = match a2a::v03::decode_card(json).ok()? {
        a2a::v03::AnyCard::V1(card) => card.supported_interfaces.into_iter().next()?.url,
        a2a::v03::AnyCard::V03(card) => card.url,
    };
    parse_url(&url).ok().map(|url| origin(&url))
}

async fn sign(args: &Sign, admin: &Admin) -> Result<(), Failure> {
    let unusable = || Failure::usage(format!("`{}` is no card", args.card));
    let text = String::from_utf8(read(&args.card)?).map_err(|_| unusable().because("it is not UTF-8"))?;
    let card = RawValue::from_string(text).map_err(|error| unusable().caused_by(&error))?;
    if !card.get().starts_with('{') {
        return Err(unusable().because("it is not an object"));
    }
    let signed = admin.sign_card(SignCard { card, jku: args.jku.clone() }).await?;
    print_card(signed.card.get(), args.admin.output);
    Ok(())
}

fn read(card: &str) -> Result<Vec<u8>, Failure> {
    let failure = |error: std::io::Error| Failure::usage(format!("cannot read `{card}`")).caused_by(&error);
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = match card {
        "-" => Box::new(std::io::stdin()),
        file => Box::new(std::fs::File::open(Path::new(file)).map_err(failure)?),
    };
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failure)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!("`{card}` is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
}
