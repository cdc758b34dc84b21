//! Backups of the journal on SQLite: a copy that SQLite makes while servers write, and the way back.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead},
    path::{Path, PathBuf},
    thread,
};

use rusqlite::{Connection, OpenFlags};

use super::{Error, Progress, Result, Sums, import, sqlite as lines};
use crate::{
    Location,
    sqlite::{self, FILE, schema},
};

/// What every database file of SQLite begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the backup held.
    pub backup: Sums,
    /// What was read back from the target. It is the same.
    pub stored: Sums,
}

/// Copies the journal in `dir` into `file`, which must not exist, as of one moment and while servers go on writing.
/// The copy is private, synced and checked. What it holds is told.
pub fn backup(dir: &Path, file: &Path, progress: Progress<'_>) -> Result<Sums> {
    // Also says whether there is a journal that this version knows.
    drop(lines::open_source(dir)?);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)?;
    let outcome = copy(dir, file).and_then(|()| check(file, progress));
    if outcome.is_err() {
        // Half a backup is worse than none.
        let _ = fs::remove_file(file);
    }
    outcome
}

/// Whether what `input` has next is a database file of SQLite.
pub fn is_sqlite(input: &mut dyn BufRead) -> io::Result<bool> {
    Ok(input.fill_buf()?.starts_with(MAGIC))
}

/// Puts a backup of the journal into a store that is empty and that no server works on. A backup of an older version is
/// brought up to date; its file is left as it is.
pub async fn restore(location: &Location, file: &Path, progress: Progress<'_>) -> Result<Restored> {
    match location {
        Location::Sqlite(dir) => restore_file(dir, file, progress),
        Location::Postgres(_) => restore_elsewhere(location, file, progress).await,
    }
}

fn copy(dir: &Path, file: &Path) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(dir.join(FILE), flags)?;
    let target = file.to_str().ok_or_else(|| io::Error::other("the path of the backup is not UTF-8"))?;
    // One read transaction: whatever is committed meanwhile is left out as a whole.
    conn.execute("VACUUM INTO ?1", [target])?;
    File::open(file)?.sync_all()?;
    Ok(())
}

/// Reads the whole file as it lies there: SQLite's own check, then every record.
fn check(file: &Path, progress: Progress<'_>) -> Result<Sums> {
    let conn = open_alone(file)?;
    check_integrity(&conn)?;
    lines::check_schema(&conn)?;
    lines::sums(&conn, progress)
}

/// Opens a file that nobody else has open, without making others beside it.
fn open_alone(file: &Path) -> Result<Connection> {
    let path = std::path::absolute(file)?;
    let path = path.to_str().ok_or_else(|| io::Error::other("the path of the backup is not UTF-8"))?;
    let escaped = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?)
}

fn check_integrity(conn: &Connection) -> Result<()> {
    let said: String = conn
        .query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))
        .map_err(|error| Error::BadBackup(error.to_string()))?;
    if said == "ok" { Ok(()) } else { Err(Error::BadBackup(said)) }
}

fn restore_file(dir: &Path, file: &Path, progress: Progress<'_>) -> Result<Restored> {
    if sqlite::is_open(dir) {
        return Err(Error::InUse);
    }
    let target = dir.join(FILE);
    if target.try_exists()? {
        let bytes = fs::metadata(&target)?.len();
        return Err(Error::NotEmpty(format!("a journal of {bytes} bytes")));
    }
    sqlite::create_private_dir(dir)?;
    let copy = Beside::new(dir)?;
    let outcome = prepare(file, &copy.path, progress)?;
    // Of two that restore at once one wins, and a server that has started meanwhile keeps its journal.
    fs::hard_link(&copy.path, &target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::NotEmpty("a journal that was made just now".into()),
        _ => error.into(),
    })?;
    drop(copy);
    File::open(dir)?.sync_all()?;
    Ok(outcome)
}

/// Makes `copy` a journal that a server can go on with.
fn prepare(file: &Path, copy: &Path, progress: Progress<'_>) -> Result<Restored> {
    let mut from = File::open(file)?;
    sqlite::create_private_file(copy)?;
    let mut to = OpenOptions::new().write(true).open(copy)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()?;
    drop(to);
    check_integrity(&open_alone(copy)?)?;
    let conn = schema::open_writer(copy, 32 * 1024)?;
    let backup = lines::sums(&conn, progress)?;
    conn.execute_batch("BEGIN IMMEDIATE")?;
    lines::void_leases(&conn)?;
    let stored = lines::sums(&conn, progress)?;
    if backup != stored {
        return Err(Error::Differs { what: "the sum of everything".into() });
    }
    conn.execute_batch("COMMIT")?;
    // What is in the log beside it goes into the file, which is all that is kept.
    conn.pragma_update(None, "journal_mode", "DELETE")?;
    conn.close().map_err(|(_, error)| error)?;
    File::open(copy)?.sync_all()?;
    Ok(Restored { backup, stored })
}

/// A backup of SQLite into a store of another kind: its records go through a pipe as an archive.
async fn restore_elsewhere(location: &Location, file: &Path, progress: Progress<'_>) -> Result<Restored> {
    let conn = open_alone(file)?;
    check_integrity(&conn)?;
    lines::check_schema(&conn)?;
    let (from, mut to) = io::pipe()?;
    let writing = thread::Builder::new()
        .name("backup-reader".to_owned())
        .spawn(move || lines::export(&conn, &mut to, &|_, _| {}))?;
    let mut from = io::BufReader::new(from);
    let imported = import(location, &mut from, progress).await;
    drop(from);
    let written = writing.join().map_err(|_| io::Error::other("the backup's reader has panicked"))?;
    match (imported, written) {
        (Ok(imported), Ok(_)) => Ok(Restored { backup: imported.archive, stored: imported.stored }),
        // Whoever failed first broke the pipe for the other.
        (Err(Error::Truncated { .. }), Err(error)) | (Ok(_), Err(error)) => Err(error),
        (Err(error), _) => Err(error),
    }
}

/// A database file with a name of its own that goes when this is dropped.
struct Beside {
    path: PathBuf,
}

impl Beside {
    fn new(dir: &Path) -> Result<Self> {
        let path = dir.join(format!("{FILE}.{}.restore", std::process::id()));
        let beside = Self { path };
        beside.remove();
        Ok(beside)
    }

    fn remove(&self) {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            // What is not there need not go.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.remove();
    }
}
