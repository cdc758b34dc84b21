//! Archives: everything a store holds as lines of JSON, to be moved between the stores or kept.
//!
//! An archive is one header line, one line for each record in a fixed order, and one last line with the number and
//! the SHA-256 of the records of each kind and of all of them:
//!
//! ```text
//! {"switchboard":{"archive":2,"created_at":1763200000000,"source":"sqlite 7","program":"0.2.0"},"sha256":"…"}
//! {"tenant":{"id":1,"name":"default","enabled":true,"created_at":1763200000000}}
//! …
//! {"end":{"kinds":[{"kind":"tenants","count":1,"sha256":"…"},…],"sha256":"…"}}
//! ```
//!
//! What it promises:
//! - **One moment.** It is read in one transaction, while servers go on writing.
//! - **All or nothing.** It is taken in by one transaction, which ends only when the last line was right and everything
//!   read back from the target has the same sums. A file that was cut off or changed leaves nothing behind.
//! - **The same again.** What was imported and is exported again gives the same lines, whatever the stores: only the
//!   header tells when and where from.
//! - **Little memory.** A record at a time, however large the store.
//!
//! Leases are not carried over: a task that runs is due in the archive and marked as interrupted, so that whoever takes
//! it up does what its agent wants to be done then. The lines hold hashes of tokens, and everything that was said.
//!
//! Whoever made a file may mean no good. What is taken in are records and nothing else, checked one by one (`check`) and written into
//! tables that this program has made. What gives rights comes only when it is asked for ([`Terms::credentials`]). An archive may end with
//! a signature of the installation's key over its first and its last line, which between them prove all others; one that does not fit is
//! always refused, and [`Terms::signed_by`] asks for one.

mod backup;
mod check;
mod lines;
mod postgres;
mod record;
mod sqlite;

use std::io::{self, BufRead, Write};

use a2a::signature::{PublicKey, SigningKey};

use self::lines::{Proven, Reader, Writer};
pub use self::{
    backup::{backup, is_sqlite, restore},
    lines::{Sum, Sums},
    record::Kind,
};
use crate::Location;

/// Which settings are of the installation. The others are of the journal that has them: its heartbeat, and which programs
/// can work with it.
const OF_INSTALLATION: &str = "name NOT LIKE 'journal.%'";

/// Counts the rows of a table that make a store one that is not empty.
fn count_rows(table: &str) -> String {
    let only = if table == "settings" { format!(" WHERE {OF_INSTALLATION}") } else { String::new() };
    format!("SELECT count(*) FROM {table}{only}")
}

/// A `Result` of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Is told what is going on, and how many records it has come to.
pub type Progress<'a> = &'a dyn Fn(Phase, u64);

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Records are read and written.
    Copying,
    /// What was written is read again.
    Verifying,
}

/// Why an archive could not be made or taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is something else.
    #[error("this is not an archive of Switchboard: {0}")]
    NotAnArchive(String),
    /// It was made by a newer version.
    #[error("the archive has format {found} and was made by {made_by}; this program knows formats up to {known}")]
    FromTheFuture {
        /// Its format.
        found: u64,
        /// The newest format this program knows.
        known: u32,
        /// The program that made it.
        made_by: String,
    },
    /// Its last line is missing.
    #[error("the archive was cut off: it ends after {lines} lines, without its last one")]
    Truncated {
        /// How many there are.
        lines: u64,
    },
    /// A line cannot be read.
    #[error("line {line} of the archive is damaged: {why}")]
    Damaged {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It is not what was written.
    #[error("the archive was changed: {0}")]
    Altered(String),
    /// Nobody has signed it, and somebody was to.
    #[error("it is not signed")]
    Unsigned,
    /// Its signature is not of what it holds.
    #[error("its signature does not fit: {0}")]
    BadSignature(&'static str),
    /// It cannot be signed.
    #[error("it cannot be signed: {0}")]
    NotSigned(String),
    /// A backup that SQLite finds fault with.
    #[error("the backup is damaged: {0}")]
    BadBackup(String),
    /// There is something in the target.
    #[error("the target is not empty: it has {0}")]
    NotEmpty(String),
    /// A server works on the target.
    #[error("a server is running on the target")]
    InUse,
    /// There is nothing to read.
    #[error("there is no journal in `{0}`")]
    NoJournal(String),
    /// The source has not been brought up to date.
    #[error("the journal has schema version {found}, this program works with {known}")]
    OldSchema {
        /// The version it has.
        found: i64,
        /// The version that is needed.
        known: i64,
    },
    /// What was read back is not what was written; nothing was kept.
    #[error("what was read back differs: {what}")]
    Differs {
        /// In what.
        what: String,
    },
    /// The file.
    #[error("cannot read or write the file")]
    Io(#[from] io::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] crate::Error),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

/// On which terms a file is taken in.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Take what gives rights as well: tokens, the settings with their keys, push configurations and agents of tenants.
    pub credentials: bool,
    /// Only what one of these keys has signed; when nothing is said, what nobody has signed as well.
    pub signed_by: Option<Vec<PublicKey>>,
}

/// What an import or a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What the file held.
    pub archive: Sums,
    /// What was read back from the target. It is what the file held, without what was left out.
    pub stored: Sums,
    /// The key that has signed it.
    pub signer: Option<String>,
}

/// Writes everything in the store to `out`, and signs it. Blocks while it waits for `out` and for SQLite.
pub async fn export(
    location: &Location,
    out: &mut dyn Write,
    signer: Option<&SigningKey>,
    progress: Progress<'_>,
) -> Result<Sums> {
    match location {
        Location::Sqlite(dir) => {
            let conn = sqlite::open_source(dir)?;
            sqlite::export(&conn, out, signer, progress)
        }
        Location::Postgres(url) => postgres::export(url, out, signer, progress).await,
    }
}

/// A setting of the installation, read beside its servers.
pub async fn setting(location: &Location, name: &str) -> Result<Option<Vec<u8>>> {
    match location {
        Location::Sqlite(dir) => sqlite::setting(dir, name),
        Location::Postgres(url) => postgres::setting(url, name).await,
    }
}

/// Takes an archive into a store that is empty and that no server works on. Blocks while it waits for `input` and for
/// SQLite.
pub async fn import(
    location: &Location,
    input: &mut dyn BufRead,
    terms: &Terms,
    progress: Progress<'_>,
) -> Result<Imported> {
    let reader = Reader::new(input, terms, progress)?;
    match location {
        Location::Sqlite(dir) => sqlite::import(dir, reader, progress),
        Location::Postgres(url) => postgres::import(url, reader, progress).await,
    }
}

/// Reads an archive to its end and keeps nothing. Hidden because only the fuzz target of the reader calls it.
#[doc(hidden)]
pub fn read_through(input: &mut dyn BufRead, terms: &Terms) -> Result<Sums> {
    let mut reader = Reader::new(input, terms, &|_, _| {})?;
    while reader.next()?.is_some() {}
    Ok(reader.finish()?.archive)
}

/// Compares what was taken with what was found.
fn compare(proven: Proven, stored: Sums) -> Result<Imported> {
    let Proven { archive, taken, signer } = proven;
    for (given, found) in taken.kinds.iter().zip(&stored.kinds) {
        let name = given.kind.name();
        if given.count != found.count {
            return Err(Error::Differs { what: format!("{} {name} were written, {} found", given.count, found.count) });
        }
        if given.sha256 != found.sha256 {
            return Err(Error::Differs { what: format!("the sum of the {name}") });
        }
    }
    if taken != stored {
        return Err(Error::Differs { what: "the sum of everything".into() });
    }
    Ok(Imported { archive, stored, signer })
}
