//! Backups of the journal on SQLite: a copy that SQLite makes while servers write, and the way back.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead},
    path::{Path, PathBuf},
    thread,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{Error, Imported, Progress, Result, Sums, Terms, import, sqlite as lines};
use crate::{
    Location,
    sqlite::{self, FILE, schema},
};

/// What every database file of SQLite begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Copies the journal in `dir` into `file`, which must not exist, as of one moment and while servers go on writing.
/// The copy is private, synced and checked. What it holds is told. A journal of an older version is copied as it is.
pub fn backup(dir: &Path, file: &Path, progress: Progress<'_>) -> Result<Sums> {
    let conn = lines::open_of_any_version(dir)?;
    if !of_before(&conn)? {
        lines::check_schema(&conn)?;
    }
    drop(conn);
    create(file)?;
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

/// Puts a backup of the journal into a store that is empty and that no server works on. Its records are copied into tables that this
/// program makes: whatever else the file has, triggers, views, indexes or tables of others, stays there. A backup of an older version is
/// brought up to date in a copy when the target is a directory; its file is left as it is.
pub async fn restore(location: &Location, file: &Path, terms: &Terms, progress: Progress<'_>) -> Result<Imported> {
    if terms.signed_by.is_some() {
        return Err(Error::Unsigned);
    }
    // Kept until everything was read.
    let mut _copy = None;
    let mut conn = open_alone(file)?;
    check_integrity(&conn)?;
    if let (Location::Sqlite(dir), true) = (location, of_before(&conn)?) {
        drop(conn);
        let copy = Beside::new(dir)?;
        bring_up_to_date(file, &copy.path).map_err(bad_backup)?;
        conn = open_alone(&copy.path)?;
        _copy = Some(copy);
    }
    lines::check_schema(&conn)?;
    check_tables(&conn)?;
    let (from, mut to) = io::pipe()?;
    let writing = thread::Builder::new()
        .name("backup-reader".to_owned())
        .spawn(move || lines::export(&conn, &mut to, None, &|_, _| {}))?;
    let mut from = io::BufReader::new(from);
    let imported = import(location, &mut from, terms, progress).await;
    drop(from);
    let written = writing.join().map_err(|_| io::Error::other("the backup's reader has panicked"))?;
    match (imported, written) {
        (Ok(imported), Ok(_)) => Ok(imported),
        // Whoever failed first broke the pipe for the other.
        (Err(Error::Truncated { .. }), Err(error)) | (Ok(_), Err(error)) => Err(bad_backup(error)),
        (Err(error), _) => Err(error),
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
    let mut conn = open_alone(file)?;
    check_integrity(&conn)?;
    let mut _copy = None;
    if of_before(&conn)? {
        // Its records are those that a restore would make of it.
        drop(conn);
        let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
        let copy = Beside::new(directory.unwrap_or(Path::new(".")))?;
        bring_up_to_date(file, &copy.path).map_err(bad_backup)?;
        conn = open_alone(&copy.path)?;
        _copy = Some(copy);
    }
    lines::check_schema(&conn)?;
    lines::sums(&conn, progress)
}

/// Opens a file that nobody else has open, without making others beside it.
fn open_alone(file: &Path) -> Result<Connection> {
    let path = std::path::absolute(file)?;
    let path = path.to_str().ok_or_else(|| io::Error::other("the path of the backup is not UTF-8"))?;
    let escaped = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?;
    distrust(&conn)?;
    Ok(conn)
}

fn check_integrity(conn: &Connection) -> Result<()> {
    let said: String = conn
        .query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))
        .map_err(|error| Error::BadBackup(error.to_string()))?;
    if said == "ok" { Ok(()) } else { Err(Error::BadBackup(said)) }
}

/// What SQLite finds fault with while it reads a file of somebody is the file's fault.
fn bad_backup(error: Error) -> Error {
    match error {
        Error::Store(crate::Error::Sqlite(error)) => Error::BadBackup(error.to_string()),
        other => other,
    }
}

fn of_before(conn: &Connection) -> Result<bool> {
    Ok((1..schema::known()).contains(&schema::version(conn)?))
}

/// Refuses a file in which something else stands where a table belongs: a view, or a table that a module of SQLite makes up. Only
/// tables have pages.
fn check_tables(conn: &Connection) -> Result<()> {
    for (name, _) in lines::TABLES {
        let found: i64 = conn
            .query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND type = 'table' AND rootpage > 0",
                [name],
                |row| row.get(0),
            )
            .map_err(|error| Error::BadBackup(error.to_string()))?;
        if found != 1 {
            return Err(Error::BadBackup(format!("`{name}` is no table")));
        }
    }
    Ok(())
}

/// Makes `copy` what a server of this version would have made of the file, with nothing of the file's own at work.
fn bring_up_to_date(file: &Path, copy: &Path) -> Result<()> {
    let mut from = File::open(file)?;
    let mut to = create(copy)?;
    io::copy(&mut from, &mut to)?;
    drop(to);
    let mut conn = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    distrust(&conn)?;
    // Nothing is left beside the file, which is read without a log.
    conn.pragma_update(None, "journal_mode", "MEMORY")?;
    schema::migrate(&mut conn)?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Lets nothing of a file's schema act: no triggers, no views, no functions that do more than compute.
fn distrust(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    Ok(())
}

/// A new file that only its owner can read.
fn create(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// A database file with a name of its own that goes when this is dropped.
struct Beside {
    path: PathBuf,
}

impl Beside {
    fn new(dir: &Path) -> Result<Self> {
        sqlite::create_private_dir(dir)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever version wrote it, a journal can be backed up before a newer one brings it up to date.
    #[tokio::test]
    async fn a_journal_of_before_is_backed_up_as_it_is() {
        for version in 1..schema::MIGRATIONS.len() {
            let dir = tempfile::tempdir().unwrap();
            let data = dir.path().join("data");
            fs::create_dir(&data).unwrap();
            let conn = Connection::open(data.join(FILE)).unwrap();
            conn.pragma_update(None, "journal_mode", "WAL").unwrap();
            for migration in &schema::MIGRATIONS[..version] {
                conn.execute_batch(migration).unwrap();
            }
            conn.execute_batch("INSERT INTO tenants (name, created_at) VALUES ('one', 1)").unwrap();
            conn.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
            let file = dir.path().join("backup.db");
            let sums = backup(&data, &file, &|_, _| {}).unwrap_or_else(|error| panic!("version {version}: {error}"));
            assert_eq!(sums.records(), 1, "version {version}");
            assert_eq!(schema::version(&conn).unwrap(), i64::try_from(version).unwrap(), "the journal is as it was");
            let copy = Connection::open(&file).unwrap();
            assert_eq!(schema::version(&copy).unwrap(), i64::try_from(version).unwrap(), "and so is the copy");
            drop(copy);
            let target = dir.path().join("restored");
            let terms = Terms { credentials: true, signed_by: None };
            let restored = restore(&Location::Sqlite(target), &file, &terms, &|_, _| {}).await.unwrap();
            assert_eq!(restored.stored, sums, "version {version}");
            let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left.len(), 3, "nothing is left beside the backup: {left:?}");
        }
    }

    /// Whatever version wrote it, its records come and its triggers do not, not even while it is brought up to date.
    #[tokio::test]
    async fn backups_of_before_are_brought_up_to_date_without_their_triggers() {
        for version in 1..=schema::MIGRATIONS.len() {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("backup.db");
            let conn = Connection::open(&file).unwrap();
            for migration in &schema::MIGRATIONS[..version] {
                conn.execute_batch(migration).unwrap();
            }
            conn.execute_batch("INSERT INTO tenants (name, created_at) VALUES ('one', 1)").unwrap();
            for table in ["tenants", "a2a_tasks", "a2a_artifacts", "settings"] {
                for at in ["INSERT", "UPDATE", "DELETE"] {
                    let body = "INSERT INTO tenants (name, created_at) VALUES (hex(randomblob(8)), 1)";
                    conn.execute_batch(&format!(
                        "CREATE TRIGGER {table}_{at} BEFORE {at} ON {table} BEGIN {body}; END"
                    ))
                    .unwrap();
                }
            }
            conn.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
            drop(conn);
            let before = fs::read(&file).unwrap();
            let target = dir.path().join("data");
            let terms = Terms { credentials: true, signed_by: None };
            let restored = restore(&Location::Sqlite(target.clone()), &file, &terms, &|_, _| {}).await;
            let restored = restored.unwrap_or_else(|error| panic!("version {version}: {error}"));
            assert_eq!(restored.stored.records(), 1, "version {version}");
            let left: Vec<_> = fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [FILE], "version {version}");
            let conn = Connection::open(target.join(FILE)).unwrap();
            let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
            assert_eq!(conn.query_row(triggers, (), |row| row.get::<_, i64>(0)).unwrap(), 0, "version {version}");
            assert_eq!(fs::read(&file).unwrap(), before, "version {version}: the backup is as it was");
        }
    }
}
