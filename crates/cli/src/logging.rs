//! Logs: on stderr, for people or as JSON lines. Never on stdout, which belongs to what was asked for.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

use crate::{
    config::{LogFormat, process_environment},
    failure::Failure,
};

/// Sets up logging for the process. `flag` wins over RUST_LOG, which wins over `default`.
pub(crate) fn start(flag: Option<&str>, default: &str, format: LogFormat) -> Result<(), Failure> {
    let given = flag.map(str::to_owned).or_else(|| process_environment("RUST_LOG"));
    let mut filter = given.unwrap_or_else(|| default.to_owned());
    // What the client of NATS says of every attempt, the store says once for each outage.
    if !filter.contains("async_nats") {
        filter.push_str(",async_nats=off");
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::usage(format!("`{filter}` is not a log filter"))
            .caused_by(&error)
            .hint("write a level such as `debug`, or `target=level,…`")
    })?;
    let colour = std::io::stderr().is_terminal() && process_environment("NO_COLOR").is_none();
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only when logging was set up before, and then it is.
    let _ = match format {
        LogFormat::Human => builder.with_ansi(colour).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
