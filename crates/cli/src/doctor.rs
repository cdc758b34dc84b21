//! `sb doctor`: looks at everything a server on this machine needs, says what is wrong and what to do about it.

mod database;
mod machine;
mod server;

use store::Location;

use crate::{
    config::{LogFormat, process_environment},
    config_command,
    failure::Failure,
    findings::{self, Finding, Level},
    logging,
    output::Format,
    serve, target,
};

/// `sb doctor …`. Takes the flags of `sb serve`, since it looks at the server that they describe.
#[derive(Debug, clap::Args)]
// The group would be named after this type, as that of `serve::Args` is.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    server: serve::Args,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args, log: Option<&str>) -> Result<(), Failure> {
    // What is wrong with models is a finding.
    logging::start(log, "error,agents::model=off", LogFormat::Human)?;
    let findings = target::block_on(examine(args))?;
    findings::print(&findings, args.output);
    if findings::worst(&findings) == Level::Fail {
        return Err(Failure::failed("something is wrong").hint("each line that begins with `fail` says what to do"));
    }
    Ok(())
}

async fn examine(args: &Args) -> Result<Vec<Finding>, Failure> {
    let settings = match args.server.settings() {
        Ok(settings) => settings,
        Err(failure) => return Ok(vec![Finding::failure("configuration", failure)]),
    };
    let mut findings = vec![config_command::configuration(&settings)];
    let Ok(config) = settings.check(&process_environment) else {
        // The first finding says why, and everything else would look at the wrong place.
        return Ok(findings);
    };
    findings.push(machine::data_directory(&config.data_dir));
    findings.extend(machine::secret_files(&settings.secret_files(&config.data_dir, &process_environment)));
    findings.extend(findings::certificate(&config));
    findings.push(machine::disk(&config.data_dir));
    match &config.location {
        Location::Sqlite(directory) => {
            findings.extend(machine::fsync(directory));
            findings.push(machine::sqlite());
            findings.push(machine::journal(directory));
        }
        Location::Postgres(url) => findings.extend(database::examine(&config, &config.location, url).await),
    }
    let running = server::find(&config).await;
    findings.push(server::port(&config, running.as_ref()));
    findings.push(machine::clock(running.as_ref().and_then(|server| server.date)).await);
    findings.push(server::public_url(&config, running.as_ref().filter(|server| server.is_ours)).await);
    findings.extend(machine::programs());
    let models = findings::known_models(config.models.clone());
    findings.extend(findings::models(&models).await);
    findings.extend(findings::agent_files(config.agents_dir.clone(), &models, config.keys.demo_agents()));
    findings.extend(findings::default_agent(&config));
    Ok(findings)
}
