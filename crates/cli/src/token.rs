//! `sb token`: what tenants and administrators authenticate with.

use agents::units::Span;
use exchange::admin::{AdminToken, CreateAdminToken, CreateToken, Token};
use store::Scope;

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
        alias = "create",
        after_help = "Examples:\n  sb token add --name laptop\n  sb token add --tenant acme --name ci --expires 30d\n  \
                      sb token add --scope read --agent echo\n  sb token add --admin --name ops --expires 30d"
    )]
    Add(Add),
    /// List a tenant's tokens; the tokens themselves are not kept
    #[command(
        after_help = "Examples:\n  sb token list\n  sb token list --tenant acme -o json\n  sb token list --admin"
    )]
    List(List),
    /// End a token
    #[command(after_help = "Examples:\n  sb token revoke 3 --tenant acme\n  sb token revoke 2 --admin")]
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
    /// What it is for: read, send, cancel or admin; can be given several times [default: all of them]
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<Scope>,
    /// An agent that it is bound to: others are not there for it; can be given several times [default: all]
    #[arg(long, value_name = "ID")]
    agent: Vec<String>,
    /// A token of an administrator: no tenant's, and for all of them. It needs a name, which the audit log will tell
    #[arg(long = "admin", conflicts_with_all = ["tenant", "scope", "agent"], requires = "name")]
    is_admin: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Whose tokens
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    /// Those of administrators. The one that the server was started with is not among them
    #[arg(long = "admin", conflicts_with = "tenant")]
    is_admin: bool,
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
    /// One of an administrator
    #[arg(long = "admin", conflicts_with = "tenant")]
    is_admin: bool,
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
    let expires_in_seconds = args.expires.map(|life| life.0.as_secs().max(1));
    if args.is_admin {
        let name = args.name.clone().unwrap_or_default();
        let created = admin.create_admin_token(CreateAdminToken { name, expires_in_seconds }).await?;
        let mut text = format!("created admin token {}, {}", created.id, created.name);
        if created.expires_at.is_some() {
            text.push_str(&format!(", which ends at {}", table::time(created.expires_at)));
        }
        print_change(args.admin.output, &created, created.token.as_deref(), &text);
        return Ok(());
    }
    let tenant = admin.tenant_named(&args.tenant).await?;
    let new = CreateToken {
        name: args.name.clone(),
        expires_in_seconds,
        scopes: args.scope.iter().map(Scope::to_string).collect(),
        agents: args.agent.clone(),
    };
    let created = admin.create_token(tenant, new).await?;
    let mut text = format!("created token {} of tenant {}", created.id, args.tenant);
    if created.expires_at.is_some() {
        text.push_str(&format!(", which ends at {}", table::time(created.expires_at)));
    }
    print_change(args.admin.output, &created, created.token.as_deref(), &text);
    Ok(())
}

async fn show(args: &List, admin: &Admin) -> Result<(), Failure> {
    if args.is_admin {
        return show_admins(args, admin).await;
    }
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
            token.scopes.join(","),
            if token.agents.is_empty() { "all".to_owned() } else { token.agents.join(",") },
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let columns = ["ID", "NAME", "STATE", "CREATED", "EXPIRES", "LAST USED", "SCOPES", "AGENTS"];
    output::print(&table(&columns, &rows));
    Ok(())
}

async fn show_admins(args: &List, admin: &Admin) -> Result<(), Failure> {
    let tokens = admin.admin_tokens().await?;
    if args.admin.output == Format::Json {
        print_json(&tokens);
        return Ok(());
    }
    let row = |token: &AdminToken| {
        vec![
            token.id.to_string(),
            token.name.clone(),
            token.state.clone(),
            table::time(Some(token.created_at)),
            table::time(token.expires_at),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    output::print(&table(&["ID", "NAME", "STATE", "CREATED", "EXPIRES"], &rows));
    Ok(())
}

async fn revoke(args: &Revoke, admin: &Admin) -> Result<(), Failure> {
    if args.is_admin {
        let revoked = admin.revoke_admin_token(args.id.into()).await?;
        let text = format!("revoked admin token {}, {}", args.id, revoked.name);
        print_change(args.admin.output, &revoked, None, &text);
        return Ok(());
    }
    let tenant = admin.tenant_named(&args.tenant).await?;
    let revoked = admin.revoke_token(tenant, args.id.into()).await?;
    let text = format!("revoked token {} of tenant {}", args.id, args.tenant);
    print_change(args.admin.output, &revoked, None, &text);
    Ok(())
}
