//! Opening the journal, and saying what to do when that does not work.

use std::{sync::Arc, time::Duration};

use store::{Error, Location, OpenOptions, Store};
use url::Url;

use crate::failure::Failure;

/// How long signing off may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Opens the journal, or makes it.
pub(crate) async fn open(location: &Location, options: OpenOptions) -> Result<Arc<dyn Store>, Failure> {
    store::open(location, options).await.map_err(|error| failure(location, &error))
}

/// Gives the journal back, and signs off there. An instance that could not is found gone by the others, as after a kill.
pub(crate) async fn close(store: Arc<dyn Store>) {
    if tokio::time::timeout(FAREWELL, store.close()).await.is_err() {
        tracing::warn!("the journal did not take the farewell in time");
    }
}

/// Why a journal could not be opened or read, and what to do.
pub(crate) fn failure(location: &Location, error: &Error) -> Failure {
    let failure = Failure::failed(format!("cannot open the journal in `{location}`"));
    let failure = match error {
        // It tells what its causes would tell again.
        Error::Postgres(_) => failure.because(error.to_string()),
        _ => failure.caused_by(error),
    };
    if let Error::FromTheFuture { .. } = error {
        return failure.hint("a newer version wrote it: run that version, or use another --store or --data-dir");
    }
    if let Error::Blocked(_) = error {
        return failure.hint("wait until that transaction has ended, or end it, and start again; nothing was changed");
    }
    match location {
        Location::Sqlite(_) => {
            failure.hint("check that the directory can be written and has room, or choose another with --data-dir")
        }
        Location::Postgres(url) => failure.hint(postgres_hint(&url.to_string(), url.database(), error)),
    }
}

/// What to do about an error of PostgreSQL. `shown` is the URL without its password.
fn postgres_hint(shown: &str, database: Option<&str>, error: &Error) -> String {
    let code = match error {
        Error::Postgres(error) => error.code().map(|code| code.code()),
        _ => None,
    };
    match code {
        Some("28P01") => "check the user and the password in --store, SB_STORE or the configuration file".into(),
        Some("28000") => "the server does not let this user in from here: look at its roles and its pg_hba.conf".into(),
        Some("3D000") => format!("create the database: {}", createdb(shown, database)),
        Some("42501") => "give the role what it needs: it has to own the database, or its schema `public`".into(),
        _ if error.to_string().contains("server does not support TLS") => {
            "let the server offer TLS; only for a line that nobody else can read, write ?sslmode=disable into the URL"
                .into()
        }
        _ if matches!(error, Error::Unavailable(_)) => {
            "check that the server runs, and its host and port in --store, SB_STORE or the configuration file".into()
        }
        _ => "look at the server's log, and at what `sb doctor` says".into(),
    }
}

/// The command that creates a database.
fn createdb(shown: &str, database: Option<&str>) -> String {
    let mut command = "createdb".to_owned();
    if let Ok(url) = Url::parse(shown) {
        let socket = url.query_pairs().find(|(name, _)| name == "host").map(|(_, host)| host.into_owned());
        if let Some(host) = url.host_str().map(str::to_owned).filter(|host| !host.is_empty()).or(socket) {
            command.push_str(&format!(" -h {host}"));
        }
        if let Some(port) = url.port() {
            command.push_str(&format!(" -p {port}"));
        }
        if !url.username().is_empty() {
            command.push_str(&format!(" -U {}", url.username()));
        }
    }
    if let Some(database) = database {
        command.push_str(&format!(" {database}"));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_creates_a_database_fits_its_url() {
        let command = |url: &str| {
            let Location::Postgres(url) = Location::parse(url).unwrap() else { panic!("not PostgreSQL") };
            createdb(&url.to_string(), url.database())
        };
        assert_eq!(command("postgres://sb:secret@db:5433/agents"), "createdb -h db -p 5433 -U sb agents");
        assert_eq!(command("postgres://db/agents"), "createdb -h db agents");
        assert_eq!(command("postgres:///agents?host=/run/pg"), "createdb -h /run/pg agents");
    }

    #[test]
    fn every_failure_says_what_to_do() {
        let here = Location::parse("sqlite:/data").unwrap();
        let there = Location::parse("postgres://sb:secret@db/agents").unwrap();
        for location in [&here, &there] {
            for error in [
                Error::FromTheFuture { found: 9, known: 1 },
                Error::Unavailable("connection refused".into()),
                Error::Blocked("x".into()),
                Error::Damaged("x".into()),
            ] {
                let failure = failure(location, &error);
                assert!(failure.hint.is_some());
                assert!(!format!("{failure:?}").contains("secret"));
            }
        }
    }
}
