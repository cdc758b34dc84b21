//! `sb audit`: who changed tenants and tokens.

use exchange::admin::AuditEntry;
use serde_json::Value;

use crate::{
    admin::{Admin, AdminArgs, print_json},
    failure::Failure,
    output::{self, Format},
    table::{self, table},
};

/// `sb audit …`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many entries, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Only entries before this one
    #[arg(long, value_name = "ID")]
    before: Option<u32>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    args.admin.run(log, false, async |admin| show(&args, admin).await)
}

async fn show(args: &Args, admin: &Admin) -> Result<(), Failure> {
    let entries = admin.audit(args.before.map(i64::from), args.limit.into()).await?;
    if args.admin.output == Format::Json {
        print_json(&entries);
        return Ok(());
    }
    let row = |entry: &AuditEntry| {
        vec![
            entry.id.to_string(),
            table::time(Some(entry.ts)),
            entry.actor.clone(),
            entry.action.clone(),
            format!("{} {}", text(&entry.target_kind), text(&entry.target_id)),
            text(&entry.after),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::print(&table(&["ID", "TIME", "ACTOR", "ACTION", "TARGET", "AFTER"], &rows));
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
