//! `sb token`: what tenants authenticate with.

use agents::units::Span;
use exchange::admin::{CreateToken, Token};

use crate::{
    admin::{Admin, AdminArgs, print_change, print_json},
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

async fn add(args: &Add, admin: &Admin) -> Result<(), Failure> {
    let tenant = admin.tenant_named(&args.tenant).await?;
    let new =
        CreateToken { name: args.name.clone(), expires_in_seconds: args.expires.map(|life| life.0.as_secs().max(1)) };
    let created = admin.create_token(tenant, new).await?;
    let mut text = format!("created token {} of tenant {}", created.id, args.tenant);
    if created.expires_at.is_some() {
        text.push_str(&format!(", which ends at {}", table::time(created.expires_at)));
    }
    print_change(args.admin.output, &created, created.token.as_deref(), &text);
    Ok(())
}

async fn show(args: &List, admin: &Admin) -> Result<(), Failure> {
    let tenant = admin.tenant_named(&args.tenant).await?;
    let tokens = admin.tokens(tenant).await?;
    if args.admin.output == Format::Json {
        print_json(&tokens);
        return Ok(());
    }
    let row = |token: &Token| {
        vec![
            token.id.to_string(),
            token.name.clone(),
            token.state.clone(),
            table::time(Some(token.created_at)),
            table::time(token.expires_at),
            table::time(token.last_used_at),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    output::print(&table(&["ID", "NAME", "STATE", "CREATED", "EXPIRES", "LAST USED"], &rows));
    Ok(())
}

async fn revoke(args: &Revoke, admin: &Admin) -> Result<(), Failure> {
    let tenant = admin.tenant_named(&args.tenant).await?;
    let revoked = admin.revoke_token(tenant, args.id.into()).await?;
    let text = format!("revoked token {} of tenant {}", args.id, args.tenant);
    print_change(args.admin.output, &revoked, None, &text);
    Ok(())
}
