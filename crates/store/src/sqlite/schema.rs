//! The file: how a connection to it is set up and how its schema comes up to date.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::registry;
use crate::{Error, Result, schema::COMPATIBLE_FROM};

/// In order; the number of those applied is the file's `user_version`. Never edit one that was released.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_journal.sql"),
    include_str!("migrations/0002_tokens.sql"),
    include_str!("migrations/0003_usage.sql"),
    include_str!("migrations/0004_remembers.sql"),
    include_str!("migrations/0005_clustered.sql"),
    include_str!("migrations/0006_leases.sql"),
    include_str!("migrations/0007_turns.sql"),
    include_str!("migrations/0008_queue_view.sql"),
    include_str!("migrations/0009_cards.sql"),
    include_str!("migrations/0010_push.sql"),
    include_str!("migrations/0011_queue.sql"),
    include_str!("migrations/0012_retention.sql"),
    include_str!("migrations/0013_outbound.sql"),
    include_str!("migrations/0014_minds.sql"),
    include_str!("migrations/0015_credentials.sql"),
    include_str!("migrations/0016_contexts.sql"),
    include_str!("migrations/0017_instances.sql"),
];

/// The oldest version of the schema whose programs can work with the newest. A migration that only adds leaves it as it
/// is; one that removes something, or changes what a column means, sets it to its own number.
const OLDEST: i64 = 15;

/// How long a connection waits for another process's write.
const BUSY: Duration = Duration::from_secs(10);

/// More than the distinct statements of this crate, so that none is compiled twice.
const STATEMENTS: usize = 128;

/// Opens the connection that writes, and brings the schema up to date.
pub(crate) fn open_writer(file: &Path, cache_kib: u32) -> Result<Connection> {
    let mut conn = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    set_up(&conn, cache_kib)?;
    refuse_future(version(&conn)?)?;
    use_wal(&conn)?;
    sync_fully(&conn)?;
    conn.pragma_update(None, "wal_autocheckpoint", 4000)?;
    migrate(&mut conn)?;
    Ok(conn)
}

/// Opens a connection that only makes checkpoints, and waits no longer than `busy` for others. The writer must have opened the file before.
pub(crate) fn open_checkpointer(file: &Path, busy: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(busy)?;
    sync_fully(&conn)?;
    Ok(conn)
}

fn sync_fully(conn: &Connection) -> Result<()> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a plain sync leaves data in the drive's cache. Elsewhere this changes nothing.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    Ok(())
}

/// Opens a connection that can only read. The writer must have opened the file before.
pub(crate) fn open_reader(file: &Path, cache_kib: u32) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    set_up(&conn, cache_kib)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn set_up(conn: &Connection, cache_kib: u32) -> Result<()> {
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // A negative cache size is in KiB.
    conn.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    Ok(())
}

/// Switching to WAL does not wait for locks by itself, and two processes may do it at once.
fn use_wal(conn: &Connection) -> Result<()> {
    let deadline = Instant::now() + BUSY;
    loop {
        let switched = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                let why = format!("the file system does not support WAL (journal mode is {mode})");
                return Err(Error::Unavailable(why));
            }
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Brings the schema up to date.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    if version(conn)? == known() {
        return Ok(());
    }
    // The version is read again under the write lock: another process may have been first.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&tx)?;
    refuse_future(found)?;
    let applied = usize::try_from(found).unwrap_or(0);
    for migration in &MIGRATIONS[applied..] {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "user_version", known())?;
    if (1..known()).contains(&found) {
        // For older processes that have the file open.
        registry::put_setting(&tx, COMPATIBLE_FROM, OLDEST.to_string().as_bytes())?;
    }
    tx.commit()?;
    Ok(())
}

/// Whether the program of an instance that is registered knows an older schema than this one.
pub(super) fn has_older_instances(conn: &Connection) -> Result<bool> {
    let mut older = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM instances WHERE knows < ?1)")?;
    Ok(older.query_row([known()], |row| row.get(0))?)
}

/// Whether this program can go on with the schema as it is now.
pub(super) fn check(conn: &Connection) -> Result<()> {
    let found = version(conn)?;
    if found <= known() {
        return Ok(());
    }
    let mark = match registry::setting(conn, COMPATIBLE_FROM) {
        Ok(mark) => mark,
        Err(error @ Error::Unavailable(_)) => return Err(error),
        // The table is another one now.
        Err(_) => None,
    };
    crate::schema::check(found, known(), mark.as_deref())
}

fn refuse_future(found: i64) -> Result<()> {
    if found > known() {
        return Err(Error::FromTheFuture { found, known: known() });
    }
    Ok(())
}

pub(crate) fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

pub(crate) fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_open_a_new_file_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new.db");
        thread::scope(|scope| {
            let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| open_writer(&file, 1024).map(drop))).collect();
            for opener in openers {
                opener.join().unwrap().unwrap();
            }
        });
        let conn = open_reader(&file, 1024).unwrap();
        assert_eq!(version(&conn).unwrap(), known());
    }

    #[test]
    fn what_an_older_version_wrote_is_found_by_its_task() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("old.db");
        let conn = Connection::open(&file).unwrap();
        for migration in &MIGRATIONS[..4] {
            conn.execute_batch(migration).unwrap();
        }
        for (task, said) in [(1, "a"), (2, "b"), (1, "c"), (2, "d"), (1, "e")] {
            conn.execute(
                "INSERT INTO a2a_messages (task, message_id, role, status, turn, body, created_at)
                 VALUES (?1, ?2, 'user', 'acked', 1, CAST(?2 AS BLOB), 0)",
                (task, said),
            )
            .unwrap();
            conn.execute(
                "INSERT INTO a2a_artifacts (task, turn, artifact_id, append, body) VALUES (?1, 1, ?2, 0, x'00')",
                (task, said),
            )
            .unwrap();
        }
        conn.pragma_update(None, "user_version", 4).unwrap();
        drop(conn);
        let conn = open_writer(&file, 1024).unwrap();
        for (column, table) in [("message_id", "messages"), ("artifact_id", "a2a_artifacts")] {
            let of_task = |pk: i64| -> String {
                let (first, end) = crate::sqlite::tx::positions(pk);
                let sql = format!(
                    "SELECT group_concat({column}, '') FROM
                       (SELECT {column} FROM {table} WHERE pos >= ?1 AND pos < ?2 ORDER BY pos)"
                );
                conn.query_row(&sql, (first, end), |row| row.get(0)).unwrap()
            };
            assert_eq!((of_task(1), of_task(2)), ("ace".into(), "bd".into()), "{table}");
            // What an older version would write now lies in nobody's range, and is refused.
            let stray = conn.execute(
                &format!(
                    "INSERT INTO {table} SELECT max(pos) + 1, 9, {} FROM {table}",
                    if table == "messages" { "'m', 'user', 'acked', 1, x'00', 0" } else { "1, 'x', 0, x'00'" }
                ),
                (),
            );
            assert!(stray.unwrap_err().to_string().contains("CHECK"), "{table}");
        }
    }

    #[test]
    fn a_process_goes_on_only_with_a_newer_schema_that_says_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new.db");
        let (writer, reader) = (open_writer(&file, 1024).unwrap(), open_reader(&file, 1024).unwrap());
        check(&reader).unwrap();
        writer.pragma_update(None, "user_version", known() + 1).unwrap();
        assert!(matches!(check(&reader), Err(Error::FromTheFuture { .. })), "there is no mark");
        registry::put_setting(&writer, COMPATIBLE_FROM, known().to_string().as_bytes()).unwrap();
        check(&reader).unwrap();
        registry::put_setting(&writer, COMPATIBLE_FROM, (known() + 1).to_string().as_bytes()).unwrap();
        assert!(matches!(check(&reader), Err(Error::FromTheFuture { .. })), "the mark says no");
        writer.execute_batch("ALTER TABLE settings RENAME TO elsewhere").unwrap();
        assert!(matches!(check(&reader), Err(Error::FromTheFuture { .. })), "the table is gone");
    }

    #[test]
    fn commits_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("new.db"), 1024).unwrap();
        let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(synchronous, 2, "FULL");
        for pragma in ["fullfsync", "checkpoint_fullfsync"] {
            let on: bool = conn.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
            assert!(on, "{pragma}");
        }
    }

    #[test]
    fn finding_due_work_uses_its_index() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("new.db"), 1024).unwrap();
        let plan: String = conn
            .query_row(&format!("EXPLAIN QUERY PLAN {}", *crate::sqlite::lease::DUE), ("a", 0, 0), |row| {
                row.get("detail")
            })
            .unwrap();
        assert!(plan.contains("a2a_tasks_due") && !plan.contains("TEMP"), "{plan}");
        let plan: String = conn
            .query_row(&format!("EXPLAIN QUERY PLAN {}", crate::sqlite::lease::HEAD), ("a", 0), |row| row.get("detail"))
            .unwrap();
        assert!(plan.contains("a2a_tasks_due") && !plan.contains("TEMP"), "{plan}");
        let plan: String = conn
            .query_row(&format!("EXPLAIN QUERY PLAN {}", crate::sqlite::lease::BUSY), ["a"], |row| row.get("detail"))
            .unwrap();
        assert!(plan.contains("SEARCH") && plan.contains("COVERING INDEX a2a_tasks_due"), "{plan}");
    }

    #[test]
    fn who_is_dead_is_found_without_a_look_at_all_tasks() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("db"), 1024).unwrap();
        let [run, queued] = crate::sqlite::lease::RECLAIM;
        for statement in [crate::sqlite::lease::OTHERS, run, queued] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let count = plan.parameter_count();
            let mut rows = plan.query(rusqlite::params_from_iter(std::iter::repeat_n("x", count))).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let detail: String = row.get("detail").unwrap();
                assert!(!detail.contains("a2a_tasks") || detail.contains("INDEX"), "{statement}: {detail}");
            }
        }
    }
}
