//! `sb token`: what tenants authenticate with.

use agents::units::Span;
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, AdminArgs, list, print_change},
    failure::Failure,
    output::{self, Format},
    table::{self, table},
};

/// `sb token …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a token and print it, this once
    #[command(
        after_help = "Examples:\n  sb token add --name laptop\n  sb token add --tenant acme --name ci --expires 30d"
    )]
    Add(Add),
    /// List a tenant's tokens; the tokens themselves are not kept
    #[command(after_help = "Examples:\n  sb token list\n  sb token list --tenant acme -o json")]
    List(List),
    /// End a token
    #[command(after_help = "Example:\n  sb token revoke 3 --tenant acme")]
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Whose token
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    /// What to call it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// When it ends: 30d, 12h, 90m [default: never]
    #[arg(long, value_name = "LIFETIME")]
    expires: Option<Span>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Whose tokens
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// The token's number, as `sb token list` shows it
    id: u32,
    /// Whose token
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    match args.verb {
        Verb::Add(args) => args.admin.run(log, false, async |admin| add(&args, admin).await),
        Verb::List(args) => args.admin.run(log, false, async |admin| show(&args, admin).await),
        Verb::Revoke(args) => args.admin.run(log, false, async |admin| revoke(&args, admin).await),
    }
}

/// The body of a request that makes a token.
pub(crate) fn creation(name: Option<&str>, expires: Option<Span>) -> Value {
    let mut body = json!({});
    if let Some(name) = name {
        body["name"] = name.into();
    }
    if let Some(life) = expires {
        body["expires_in_seconds"] = life.0.as_secs().max(1).into();
    }
    body
}

async fn add(args: &Add, admin: &Admin) -> Result<(), Failure> {
    let path = admin.tenant(&args.tenant).await?;
    let body = creation(args.name.as_deref(), args.expires);
    let created = admin.call(Method::POST, &format!("{path}/tokens"), Some(body)).await?;
    let mut text = format!("created token {} of tenant {}", created["id"], args.tenant);
    if let Some(end) = created["expires_at"].as_i64() {
        text.push_str(&format!(", which ends at {}", table::time(Some(end))));
    }
    print_change(args.admin.output, &created, &text);
    Ok(())
}

async fn show(args: &List, admin: &Admin) -> Result<(), Failure> {
    let path = admin.tenant(&args.tenant).await?;
    let answer = admin.get(&format!("{path}/tokens")).await?;
    let tokens = list(&answer, "tokens");
    if args.admin.output == Format::Json {
        tokens.iter().for_each(|token| output::line(&token.to_string()));
        return Ok(());
    }
    let row = |token: &Value| {
        let text = |key: &str| token[key].as_str().unwrap_or_default().to_owned();
        let time = |key: &str| table::time(token[key].as_i64());
        vec![
            token["id"].to_string(),
            text("name"),
            text("state"),
            time("created_at"),
            time("expires_at"),
            time("last_used_at"),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    output::print(&table(&["ID", "NAME", "STATE", "CREATED", "EXPIRES", "LAST USED"], &rows));
    Ok(())
}

async fn revoke(args: &Revoke, admin: &Admin) -> Result<(), Failure> {
    let path = admin.tenant(&args.tenant).await?;
    let revoked = admin.call(Method::DELETE, &format!("{path}/tokens/{}", args.id), None).await?;
    print_change(args.admin.output, &revoked, &format!("revoked token {} of tenant {}", args.id, args.tenant));
    Ok(())
}
