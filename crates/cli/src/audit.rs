//! `sb audit`: who changed tenants and tokens.

use serde_json::Value;

use crate::{
    admin::{Admin, AdminArgs, list},
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
    let before = args.before.map(|id| format!("&before_id={id}")).unwrap_or_default();
    let answer = admin.get(&format!("/audit?limit={}{before}", args.limit)).await?;
    let entries = list(&answer, "entries");
    if args.admin.output == Format::Json {
        entries.iter().for_each(|entry| output::line(&entry.to_string()));
        return Ok(());
    }
    let row = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let target = match &entry["target_id"] {
            Value::String(name) => name.clone(),
            id => id.to_string(),
        };
        let after = if entry["after"].is_null() { String::new() } else { entry["after"].to_string() };
        vec![
            entry["id"].to_string(),
            table::time(entry["ts"].as_i64()),
            text("actor"),
            text("action"),
            format!("{} {target}", text("target_kind")),
            after,
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::print(&table(&["ID", "TIME", "ACTOR", "ACTION", "TARGET", "AFTER"], &rows));
    Ok(())
}
