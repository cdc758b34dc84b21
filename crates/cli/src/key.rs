//! `sb key`: the keys that sign this installation's agent cards.

use agents::units::Span;
use exchange::admin::{Key, RotateKey};

use crate::{
    admin::{Admin, AdminArgs, print_json},
    failure::Failure,
    output::{self, Format},
    table::{self, table},
};

/// `sb key …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the keys; with `-o json` each with its public half
    #[command(after_help = "Examples:\n  sb key list\n  sb key list -o json")]
    List(List),
    /// Make a new key; the one before is still published and signs for a while
    #[command(after_help = "Examples:\n  sb key rotate\n  sb key rotate --alg EdDSA --overlap 30d")]
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    /// For which algorithm: ES256 or EdDSA [default: that of the key before]
    #[arg(long, value_name = "ALG", value_parser = ["ES256", "EdDSA"], ignore_case = true)]
    alg: Option<String>,
    /// How long the key before still counts [default: 7d]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<Span>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    match args.verb {
        Verb::List(args) => args.admin.run(log, false, async |admin| {
            show(args.admin.output, &admin.keys().await?);
            Ok(())
        }),
        Verb::Rotate(args) => args.admin.run(log, false, async |admin| rotate(&args, admin).await),
    }
}

async fn rotate(args: &Rotate, admin: &Admin) -> Result<(), Failure> {
    let alg = args.alg.as_ref().map(|name| if name.eq_ignore_ascii_case("ES256") { "ES256" } else { "EdDSA" });
    let request =
        RotateKey { alg: alg.map(str::to_owned), overlap_seconds: args.overlap.map(|overlap| overlap.0.as_secs()) };
    show(args.admin.output, &admin.rotate_key(request).await?);
    Ok(())
}

fn show(format: Format, keys: &[Key]) {
    if format == Format::Json {
        print_json(keys);
        return;
    }
    let row = |key: &Key| {
        vec![
            key.kid.clone(),
            key.alg.clone(),
            key.state.clone(),
            table::time(Some(key.created_at)),
            table::time(key.retires_at),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    output::print(&table(&["KEY", "ALG", "STATE", "CREATED", "ENDS"], &rows));
}
