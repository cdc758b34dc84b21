//! `sb tenant`: who may call.

use agents::units::Span;
use exchange::admin::{CreateTenant, CreateToken, Tenant, UpdateTenant};

use crate::{
    admin::{Admin, AdminArgs, print_change, print_json},
    failure::Failure,
    local::{Local, PrivateFile},
    output::{self, Format},
    table::{self, table},
};

/// The tenant whose token the local command line has.
const LOCAL_TENANT: &str = "default";

/// `sb tenant …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a tenant and print its first token
    #[command(after_help = "Example:\n  sb tenant add acme")]
    Add(Named),
    /// List the tenants
    #[command(after_help = "Examples:\n  sb tenant list\n  sb tenant list -o json")]
    List(List),
    /// Refuse all tokens of a tenant; its tasks stay, and run on
    #[command(after_help = "Example:\n  sb tenant disable acme")]
    Disable(Named),
    /// Honour a tenant's tokens again
    #[command(after_help = "Example:\n  sb tenant enable acme")]
    Enable(Named),
    /// Revoke all tokens of a tenant and print a new one
    #[command(after_help = "Examples:\n  sb tenant rotate acme\n  sb tenant rotate acme --expires 90d")]
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
struct Named {
    /// The tenant's name
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    /// The tenant's name
    name: String,
    /// What to call the new token
    #[arg(long = "name", value_name = "NAME")]
    token_name: Option<String>,
    /// When the new token ends: 30d, 12h, 90m [default: never]
    #[arg(long, value_name = "LIFETIME")]
    expires: Option<Span>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    match args.verb {
        Verb::Add(args) => args.admin.run(log, true, async |admin| add(&args, admin).await),
        Verb::List(args) => args.admin.run(log, false, async |admin| show(&args, admin).await),
        Verb::Disable(args) => args.admin.run(log, false, async |admin| set(&args, admin, true).await),
        Verb::Enable(args) => args.admin.run(log, false, async |admin| set(&args, admin, false).await),
        Verb::Rotate(args) => args.admin.run(log, false, async |admin| rotate(&args, admin).await),
    }
}

async fn add(args: &Named, admin: &Admin) -> Result<(), Failure> {
    let created = admin.create_tenant(CreateTenant { name: args.name.clone() }).await?;
    let text = format!("created tenant {}", args.name);
    print_change(args.admin.output, &created, created.token.as_deref(), &text);
    Ok(())
}

async fn show(args: &List, admin: &Admin) -> Result<(), Failure> {
    let tenants = admin.tenants().await?;
    if args.admin.output == Format::Json {
        print_json(&tenants);
        return Ok(());
    }
    let row = |tenant: &Tenant| {
        vec![
            tenant.id.to_string(),
            tenant.name.clone(),
            if tenant.disabled { "disabled" } else { "enabled" }.to_owned(),
            table::time(Some(tenant.created_at)),
            table::time(tenant.last_used_at),
        ]
    };
    let rows: Vec<_> = tenants.iter().map(row).collect();
    output::print(&table(&["ID", "NAME", "STATE", "CREATED", "LAST USED"], &rows));
    Ok(())
}

async fn set(args: &Named, admin: &Admin, disabled: bool) -> Result<(), Failure> {
    let id = admin.tenant_named(&args.name).await?;
    let changed = admin.update_tenant(id, UpdateTenant { disabled }).await?;
    let state = if disabled { "disabled" } else { "enabled" };
    print_change(args.admin.output, &changed, None, &format!("tenant {} is {state}", args.name));
    Ok(())
}

async fn rotate(args: &Rotate, admin: &Admin) -> Result<(), Failure> {
    let id = admin.tenant_named(&args.name).await?;
    let new = CreateToken {
        name: args.token_name.clone(),
        expires_in_seconds: args.expires.map(|life| life.0.as_secs().max(1)),
        ..CreateToken::default()
    };
    let changed = admin.rotate(id, new).await?;
    // Printed first: whatever goes wrong after this, the only copy of the token is not lost.
    let text = format!("rotated the tokens of tenant {}", args.name);
    print_change(args.admin.output, &changed, changed.token.as_deref(), &text);
    let token = changed.token.filter(|_| args.name == LOCAL_TENANT);
    if let (Some(token), Some(directory)) = (token, &admin.data_dir) {
        let mut local = Local::load(directory)?;
        if local.token.is_some() {
            local.token = Some(token);
            local.save(directory)?;
            output::error_line("note", "the command line on this machine uses it from now on");
        }
    }
    Ok(())
}
