//! `sb tenant`: who may call.

use std::io::{self, IsTerminal};

use agents::units::Span;
use exchange::admin::{CreateTenant, CreateToken, DEFAULT_TENANT, DeletedTenant, Tenant, UpdateTenant};

use crate::{
    admin::{Admin, AdminArgs, print_change, print_json},
    failure::Failure,
    local::{Local, PrivateFile},
    output::{self, Format},
    table::{self, table},
};

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
    /// Delete a tenant with all that it has: tasks, webhooks, tokens, cards and agents
    #[command(after_help = "Nothing brings it back but a backup. The audit log keeps that it was there.\n\n\
                            Examples:\n  sb tenant delete acme\n  sb tenant delete acme --yes --force")]
    Delete(Delete),
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
struct Delete {
    /// The tenant's name
    name: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Also when some of its tasks have not ended: cancel them first
    #[arg(long)]
    force: bool,
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
        Verb::Delete(args) => args.admin.run(log, false, async |admin| delete(&args, admin).await),
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

async fn delete(args: &Delete, admin: &Admin) -> Result<(), Failure> {
    let id = admin.tenant_named(&args.name).await?;
    if !args.yes {
        confirm(&args.name)?;
    }
    let mut total: Option<DeletedTenant> = None;
    while total.as_ref().is_none_or(|total| !total.done) {
        let step = admin.delete_tenant(id, args.force).await.map_err(|failure| {
            if failure.error.contains("have not ended") {
                return failure
                    .hint("--force cancels them first; `sb tenant disable` only refuses the tenant's tokens");
            }
            failure
        })?;
        let before = total.take().map_or((0, 0), |total| (total.tasks, total.bytes));
        total = Some(DeletedTenant { tasks: step.tasks + before.0, bytes: step.bytes + before.1, ..step });
    }
    if let Some(deleted) = total {
        let text = format!("deleted tenant {} with {} tasks", deleted.name, deleted.tasks);
        print_change(args.admin.output, &deleted, None, &text);
    }
    Ok(())
}

/// Asks for the name once more, on a terminal.
fn confirm(name: &str) -> Result<(), Failure> {
    let refused = || Failure::usage(format!("the tenant `{name}` was not deleted"));
    if !io::stdin().is_terminal() {
        return Err(refused()
            .because("there is no terminal to ask on")
            .hint("say --yes to delete it without a question"));
    }
    output::error_line("note", "this deletes its tasks, webhooks, tokens, cards and agents, and cannot be undone");
    output::print(&format!("type `{name}` to delete it: "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| refused().caused_by(&error))?;
    if answer.trim() == name { Ok(()) } else { Err(refused().because("the answer was another")) }
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
    let token = changed.token.filter(|_| args.name == DEFAULT_TENANT);
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
