//! Logs: on stderr, for people or as JSON lines. Never on stdout, which belongs to what was asked for. `docs/logs.md` says what is in them.

mod bounded;

use tracing_subscriber::{
    EnvFilter,
    filter::LevelFilter,
    fmt::{self, format},
};

use self::bounded::Bounded;

use crate::{
    config::{LogFormat, process_environment},
    failure::Failure,
    output,
};

/// What can be logged as a whole, by name.
const CRATES: [&str; 8] = ["a2a", "agents", "async_nats", "client", "exchange", "sb", "server", "store"];

/// Sets up logging for the process. `flag` wins over RUST_LOG, which wins over `default`.
pub(crate) fn start(flag: Option<&str>, default: &str, format: LogFormat) -> Result<(), Failure> {
    let given = flag.map(str::to_owned).or_else(|| process_environment("RUST_LOG"));
    let (mut filter, format) = read(&given.unwrap_or_else(|| default.to_owned()), default, format);
    let word = |directive: &&str| !directive.contains(['=', '[', ':']) && directive.parse::<LevelFilter>().is_err();
    if let Some(word) = filter.split(',').find(word).filter(|word| !CRATES.contains(word)) {
        return Err(Failure::usage(format!("`{word}` is not a level of logging"))
            .hint("levels are error, warn, info, debug, trace and off; `target=level,…` says it for a part"));
    }
    let said = filter.clone();
    // What the client of NATS says of every attempt, the store says once for each outage. Refused certificates are told by the call's
    // own error.
    for target in ["async_nats", "rustls_platform_verifier"] {
        if !filter.contains(target) {
            filter.push_str(&format!(",{target}=off"));
        }
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::usage(format!("`{said}` is not a log filter"))
            .caused_by(&error)
            .hint("write a level such as `debug`, or `target=level,…`")
    })?;
    let colour = output::wants_color(&std::io::stderr());
    let builder = fmt::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only when logging was set up before, and then it is.
    let _ = match format {
        LogFormat::Human => {
            let lines = format::Format::default().with_ansi(colour).with_target(false);
            builder.with_ansi(colour).event_format(Bounded::new(lines, format)).try_init()
        }
        LogFormat::Json => {
            let lines = format::Format::default().json().flatten_event(true);
            let fields = format::JsonFields::new();
            builder.with_ansi(false).fmt_fields(fields).event_format(Bounded::new(lines, format)).try_init()
        }
    };
    Ok(())
}

/// What to log, and how it looks: `json` among what is to be logged says how, and no crate has that name here.
fn read(given: &str, default: &str, format: LogFormat) -> (String, LogFormat) {
    let mut format = format;
    let mut directives = Vec::new();
    for directive in given.split(',').map(str::trim) {
        match directive {
            "json" => format = LogFormat::Json,
            "" => {}
            other => directives.push(other),
        }
    }
    let filter = if directives.is_empty() { default.to_owned() } else { directives.join(",") };
    (filter, format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_how_and_not_what() {
        let read = |given| read(given, "info", LogFormat::Human);
        assert_eq!(read("json"), ("info".to_owned(), LogFormat::Json));
        assert_eq!(read("debug, json"), ("debug".to_owned(), LogFormat::Json));
        assert_eq!(read("warn,store=debug"), ("warn,store=debug".to_owned(), LogFormat::Human));
    }
}
