//! The tables: how they come up to date, however many instances start at once.
//!
//! A statement that waits for an exclusive lock keeps every later statement on that table waiting. So a migration waits
//! for a lock only briefly ([`Waits::lock`]), gives back all that it holds, pauses while running instances go on, and
//! tries again. An attempt that fails leaves the schema at a version: migrations are one transaction, as far as they are not
//! [`CONCURRENTLY`].

use std::{
    fmt,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tokio_postgres::{Client, error::SqlState};

use super::pool::{Connector, Pool, Role};
use crate::{Error, Result, schema::COMPATIBLE_FROM};

/// In order; the number of those applied is in `schema_version`. Never edit one that was released.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_journal.sql"),
    include_str!("migrations/0002_leases.sql"),
    include_str!("migrations/0003_turns.sql"),
    include_str!("migrations/0004_queue_view.sql"),
    include_str!("migrations/0005_cards.sql"),
    include_str!("migrations/0006_push.sql"),
    include_str!("migrations/0007_queue.sql"),
    include_str!("migrations/0008_retention.sql"),
    include_str!("migrations/0009_outbound.sql"),
    include_str!("migrations/0010_minds.sql"),
    include_str!("migrations/0011_credentials.sql"),
    include_str!("migrations/0012_lists.sql"),
    include_str!("migrations/0013_instances.sql"),
];

/// A migration that begins with this only makes indexes, and makes them beside those who write. That cannot be done in a
/// transaction. What an attempt left unfinished is found and made anew.
const CONCURRENTLY: &str = "-- concurrently";

/// The advisory lock under which migrations run. Any number will do; all versions of this program use this one.
const LOCK: i64 = 0x5357_4954_4348_0001;

/// The first server with 64-bit transaction ids in SQL.
const OLDEST_SERVER: i32 = 130_000;

/// The oldest version of the schema whose programs can work with the newest. A migration that only adds leaves it as it
/// is; one that removes something, or changes what a column means, sets it to its own number.
const OLDEST: i64 = 11;

/// How long a migration waits for the transactions of others.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// For one lock.
    lock: Duration,
    /// Between the first two attempts; doubled each time.
    pause: Duration,
    longest_pause: Duration,
    /// From the first attempt to the last.
    total: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(1),
            pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(10),
            total: Duration::from_secs(600),
        }
    }
}

/// How long an instance waits before it logs that it waits: for the migration of another, and for the transactions that have to
/// end before an index is complete. Nobody waits behind it.
const TELL: Duration = Duration::from_secs(10);

/// How often an instance looks whether another still migrates. It does not wait in the database: an index that is made
/// concurrently would wait for that session.
const LOOK: Duration = Duration::from_millis(100);

/// How far an attempt has come.
#[derive(Debug, Default)]
struct Progress {
    /// Whether the advisory lock is held. It is kept through the pauses.
    has_turn: bool,
    /// The migration that runs, counted from 1 among those that are to be applied.
    number: usize,
    of: usize,
}

/// A transaction that another one waits for.
struct Blocker {
    pid: i32,
    application: String,
    /// These two are shown only to the transaction's own role and to those that may read all statistics.
    state: Option<String>,
    seconds: Option<f64>,
    others: i64,
}

enum Failure {
    Blocked(String),
    Other(Error),
}

/// See [`super::schema_digest`].
pub(super) fn digest() -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(MIGRATIONS.concat());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Brings the schema up to date. Who comes while another is at it waits and finds it done.
pub(super) async fn migrate(connector: &Connector) -> Result<()> {
    migrate_to(connector, MIGRATIONS, Waits::default()).await
}

async fn migrate_to(connector: &Connector, migrations: &[&str], waits: Waits) -> Result<()> {
    let mut client = connector.open(Role::Session).await?;
    refuse_old_server(&client).await?;
    let known = count(migrations);
    let found = version(&client).await?;
    refuse_future(found, known)?;
    if found == Some(known) {
        return Ok(());
    }
    let pid = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
    let watcher = connector.open(Role::Session).await?;
    let begun = Instant::now();
    let mut progress = Progress::default();
    let mut pause = waits.pause;
    loop {
        let attempt = attempt(&mut client, migrations, waits, &mut progress);
        let (outcome, blocker) = watch(attempt, &watcher, pid, waits.lock / 3).await;
        let why = match outcome {
            Ok(()) => return Ok(()),
            Err(Failure::Other(error)) => return Err(error),
            Err(Failure::Blocked(why)) => why,
        };
        let blocker = blocker.map_or(why, |blocker| blocker.to_string());
        let waited = begun.elapsed();
        let pause_now = if progress.has_turn { pause } else { Duration::ZERO };
        if waited + pause_now >= waits.total {
            return Err(Error::Blocked(format!("{progress} has waited {} s for {blocker}", waited.as_secs())));
        }
        tracing::warn!(
            %blocker,
            waited_s = waited.as_secs(),
            pause_s = pause_now.as_secs_f64(),
            "{progress} waits for another transaction; trying again"
        );
        if progress.has_turn {
            sleep(pause).await;
            pause = (pause * 2).min(waits.longest_pause);
        }
    }
}

/// Applies what is missing.
async fn attempt(
    client: &mut Client,
    migrations: &[&str],
    waits: Waits,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if !progress.has_turn {
        take_turn(client).await?;
        progress.has_turn = true;
    }
    let known = count(migrations);
    let mut first = None;
    loop {
        // It is read again under the lock: another instance may have been first.
        let found = version(client).await?;
        refuse_future(found, known)?;
        let applied = usize::try_from(found.unwrap_or(0)).unwrap_or(0);
        let missing = &migrations[applied..];
        let begun_at = *first.get_or_insert(applied);
        (progress.number, progress.of) = (applied - begun_at + 1, migrations.len() - begun_at);
        let only_indexes = |migration: &&str| migration.starts_with(CONCURRENTLY);
        let apply = match missing.iter().position(only_indexes) {
            _ if missing.is_empty() => return Ok(()),
            // In a database that has nothing yet nobody writes.
            _ if found.is_none() => missing,
            Some(0) => {
                make_indexes(client, missing[0], waits.total).await?;
                &missing[..1]
            }
            until => &missing[..until.unwrap_or(missing.len())],
        };
        apply_all(client, apply, found, applied + apply.len(), waits.lock, progress).await?;
        if let Some(found) = found {
            let to = applied + apply.len();
            tracing::info!(from = found, to, "{progress} of the schema is done");
        }
    }
}

/// Takes the advisory lock. It is the session's, and ends with it.
async fn take_turn(client: &Client) -> Result<(), Failure> {
    let begun = Instant::now();
    while !client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.try_get::<_, bool>(0)? {
        if begun.elapsed() >= TELL {
            return Err(Failure::Blocked("the migration of another instance".into()));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Applies migrations in one transaction, and sets the version. After an error nothing of it is left.
async fn apply_all(
    client: &mut Client,
    migrations: &[&str],
    found: Option<i64>,
    version: usize,
    lock: Duration,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let tx = client.transaction().await?;
    tx.batch_execute(&format!("SET LOCAL lock_timeout = {}", lock.as_millis())).await?;
    tx.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)").await?;
    for (n, migration) in migrations.iter().enumerate() {
        progress.number += usize::from(n > 0);
        if !migration.starts_with(CONCURRENTLY) {
            tx.batch_execute(migration).await?;
        } else if found.is_none() {
            tx.batch_execute(&migration.replace(" CONCURRENTLY ", " ")).await?;
        }
    }
    tx.execute("DELETE FROM schema_version", &[]).await?;
    let version = i32::try_from(version).unwrap_or(i32::MAX);
    tx.execute("INSERT INTO schema_version (version) VALUES ($1)", &[&version]).await?;
    if found.is_some() {
        // For older instances that are at work.
        let mark = OLDEST.to_string();
        let set = "INSERT INTO settings (name, value) VALUES ($1, $2)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        tx.execute(set, &[&COMPATIBLE_FROM, &mark.as_bytes()]).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Makes the indexes of a migration that are not there. An index that is complete, of the same name, is taken for the same: only
/// an earlier attempt can have made it.
async fn make_indexes(client: &Client, migration: &str, wait: Duration) -> Result<(), Failure> {
    // It waits for transactions without holding up anybody, and one that is given up half-way is to be made anew.
    client.batch_execute(&format!("SET lock_timeout = {}", wait.as_millis())).await?;
    let lines: Vec<&str> = migration.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in lines.join(" ").split_terminator(';') {
        let statement = statement.trim();
        let name = statement.split_whitespace().nth(3).unwrap_or_default();
        let is_valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)";
        match client.query_opt(is_valid, &[&name]).await?.map(|row| row.try_get(0)).transpose()? {
            Some(true) => continue,
            Some(false) => client.batch_execute(&format!("DROP INDEX CONCURRENTLY {name}")).await?,
            None => {}
        }
        client.batch_execute(statement).await?;
    }
    Ok(())
}

/// Does `work` in the session `pid`, and says which transaction it was last seen to wait for. A long wait is logged.
async fn watch<T>(work: impl Future<Output = T>, watcher: &Client, pid: i32, period: Duration) -> (T, Option<Blocker>) {
    let mut last = None;
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    let mut work = pin!(work);
    loop {
        let look = async {
            sleep(period).await;
            blocker(watcher, pid).await
        };
        let seen = tokio::select! {
            biased;
            done = &mut work => return (done, last),
            seen = look => seen,
        };
        match seen {
            Ok(Some(blocker)) => {
                let waited = begun.elapsed();
                if waited >= told + TELL {
                    told = waited;
                    tracing::warn!(%blocker, waited_s = waited.as_secs(), "making an index waits for another transaction");
                }
                last = Some(blocker);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot tell what a migration waits for"),
        }
    }
}

/// The oldest transaction that keeps the session `pid` waiting. What it does is not read: statements may hold data.
async fn blocker(watcher: &Client, pid: i32) -> Result<Option<Blocker>> {
    let blocking = "SELECT pid, coalesce(application_name, ''), state,
                      extract(epoch FROM clock_timestamp() - xact_start)::float8, count(*) OVER () - 1
                    FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids($1))
                    ORDER BY xact_start LIMIT 1";
    let Some(row) = watcher.query_opt(blocking, &[&pid]).await? else { return Ok(None) };
    Ok(Some(Blocker {
        pid: row.try_get(0)?,
        application: row.try_get(1)?,
        state: row.try_get(2)?,
        seconds: row.try_get(3)?,
        others: row.try_get(4)?,
    }))
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.has_turn {
            true => write!(f, "migration {} of {}", self.number, self.of),
            false => f.write_str("the schema's migration"),
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of the database", self.pid)?;
        if !self.application.is_empty() {
            // Who connects chooses the name.
            write!(f, " ({})", self.application.escape_debug())?;
        }
        if let Some(state) = &self.state {
            write!(f, ", {state}")?;
        }
        if let Some(seconds) = self.seconds {
            write!(f, ", its transaction is {seconds:.0} s old")?;
        }
        if self.others > 0 {
            write!(f, ", and {} more", self.others)?;
        }
        Ok(())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED) => Self::Blocked(error.to_string()),
            _ => Self::Other(error.into()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The version of the schema; `None` in a database that has none yet.
pub(crate) async fn version(client: &Client) -> Result<Option<i64>> {
    let exists = client.query_one("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = client.query_opt("SELECT version FROM schema_version", &[]).await?;
    Ok(row.map(|row| row.try_get::<_, i32>(0)).transpose()?.map(i64::from))
}

/// Whether this program can go on with the schema as it is now.
pub(super) async fn check(pool: &Pool) -> Result<()> {
    let row = pool.query_one("SELECT version FROM schema_version", &[]).await?;
    let found = i64::from(row.try_get::<_, i32>(0)?);
    if found <= known() {
        return Ok(());
    }
    let mark = match pool.query_opt("SELECT value FROM settings WHERE name = $1", &[&COMPATIBLE_FROM]).await {
        Ok(row) => row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?,
        Err(error @ Error::Unavailable(_)) => return Err(error),
        // The table is another one now.
        Err(_) => None,
    };
    crate::schema::check(found, known(), mark.as_deref())
}

pub(crate) fn known() -> i64 {
    count(MIGRATIONS)
}

fn count(migrations: &[&str]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

fn refuse_future(found: Option<i64>, known: i64) -> Result<()> {
    match found {
        Some(found) if found > known => Err(Error::FromTheFuture { found, known }),
        _ => Ok(()),
    }
}

async fn refuse_old_server(client: &Client) -> Result<()> {
    let settings = "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";
    let row = client.query_one(settings, &[]).await?;
    if row.try_get::<_, i32>(0)? >= OLDEST_SERVER {
        return Ok(());
    }
    let version: String = row.try_get(1)?;
    Err(Error::Unavailable(format!("PostgreSQL 13 or newer is needed, this is {version}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::testing, *};
    use crate::{Journal, Registry, testing::accept};

    #[tokio::test(flavor = "multi_thread")]
    async fn many_may_migrate_a_new_database_at_once() {
        let database = testing::empty_database();
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let connector = database.connector();
                tokio::spawn(async move { migrate(&connector).await })
            })
            .collect();
        for start in starts {
            start.await.unwrap().unwrap();
        }
        let client = database.client().await;
        assert_eq!(version(&client).await.unwrap(), Some(known()));
        let rows: i64 = client.query_one("SELECT count(*) FROM schema_version", &[]).await.unwrap().get(0);
        assert_eq!(rows, 1);
    }

    #[tokio::test]
    async fn a_newer_schema_is_left_alone() {
        let database = testing::database().await;
        let client = database.client().await;
        client.batch_execute("UPDATE schema_version SET version = 99").await.unwrap();
        let outcome = migrate(&database.connector()).await;
        assert!(matches!(outcome, Err(Error::FromTheFuture { found: 99, .. })), "{outcome:?}");
        assert_eq!(version(&client).await.unwrap(), Some(99));
    }

    /// The schema, and one migration more that needs a table that everybody writes to.
    fn with_one_more() -> Vec<&'static str> {
        [MIGRATIONS, &["ALTER TABLE a2a_tasks ADD COLUMN one_more integer"]].concat()
    }

    fn short_waits(total: Duration) -> Waits {
        let pause = Duration::from_millis(500);
        Waits { lock: Duration::from_secs(1), pause, longest_pause: pause, total }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_migration_behind_a_reader_lets_running_instances_write() {
        let database = testing::database().await;
        let store = super::super::start(&database.url, super::super::Options::default()).await.unwrap();
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let mut reader = database.client().await;
        reader.batch_execute("SET application_name = 'a long report'").await.unwrap();
        let report = reader.transaction().await.unwrap();
        report.batch_execute("SELECT count(*) FROM a2a_tasks").await.unwrap();

        let connector = database.connector();
        let migrating = tokio::spawn(async move {
            migrate_to(&connector, &with_one_more(), short_waits(Duration::from_secs(120))).await
        });
        let mut slowest = Duration::ZERO;
        for _ in 0..60 {
            let since = Instant::now();
            store.accept(tenant, accept("hello")).await.unwrap();
            slowest = slowest.max(since.elapsed());
            sleep(Duration::from_millis(50)).await;
        }
        assert!(slowest < Duration::from_secs(5), "a message waited {slowest:?}");
        assert!(!migrating.is_finished(), "the reader is still there");
        report.rollback().await.unwrap();
        migrating.await.unwrap().unwrap();
        assert_eq!(version(&reader).await.unwrap(), Some(known() + 1));
    }

    const INSERT: &str = "SET lock_timeout = '300ms';
        INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, agent_id, state)
        VALUES (gen_random_uuid(), 1, 1, 1, 1, 1, 'echo', 'completed')";

    /// The sessions that make an index, or remove an incomplete one, and wait for a transaction.
    async fn waiting_for_index(client: &Client) -> Vec<i32> {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                         AND query LIKE '%INDEX CONCURRENTLY%' AND state = 'active' AND wait_event_type = 'Lock'";
        let rows = client.query(waiting, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn until_waiting_for_index(client: &Client) -> i32 {
        let begun = Instant::now();
        loop {
            if let [pid] = waiting_for_index(client).await[..] {
                return pid;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no index is made that waits");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The names of the indexes by whether they are complete.
    async fn indexes(client: &Client, is_valid: bool) -> i64 {
        let count = "SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indisvalid = $1
                       AND relname IN ('a2a_tasks_groups', 'a2a_tasks_in_context')";
        client.query_one(count, &[&is_valid]).await.unwrap().get(0)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_are_made_beside_those_who_write_and_made_anew_after_a_kill() {
        let database = testing::empty_database();
        let before = MIGRATIONS.iter().position(|migration| migration.starts_with(CONCURRENTLY)).unwrap();
        let waits = short_waits(Duration::from_secs(120));
        migrate_to(&database.connector(), &MIGRATIONS[..before], waits).await.unwrap();
        let client = database.client().await;
        let mut other = database.client().await;
        for killed in [true, false] {
            // Whoever makes an index waits for this transaction, which has written.
            let open = other.transaction().await.unwrap();
            open.batch_execute(INSERT).await.unwrap();
            let connector = database.connector();
            let migrating = tokio::spawn(async move { migrate_to(&connector, MIGRATIONS, waits).await });
            let pid = until_waiting_for_index(&client).await;
            for _ in 0..10 {
                client.batch_execute(INSERT).await.expect("writers do not wait behind it");
            }
            assert_eq!(waiting_for_index(&client).await, [pid], "it still waits");
            if killed {
                client.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
                migrating.await.unwrap().unwrap_err();
                assert_eq!(indexes(&client, false).await, 1, "one is there and not complete");
                assert_eq!(version(&client).await.unwrap(), Some(count(&MIGRATIONS[..before])));
                open.commit().await.unwrap();
            } else {
                open.commit().await.unwrap();
                migrating.await.unwrap().unwrap();
            }
        }
        assert_eq!((indexes(&client, true).await, indexes(&client, false).await), (2, 0));
        assert_eq!(version(&client).await.unwrap(), Some(known()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_migration_that_waits_in_vain_names_the_transaction() {
        let database = testing::database().await;
        let mut reader = database.client().await;
        reader.batch_execute("SET application_name = 'a long report'").await.unwrap();
        let report = reader.transaction().await.unwrap();
        let row = report.query_one("SELECT pg_backend_pid(), count(*) FROM a2a_tasks", &[]).await.unwrap();
        let pid: i32 = row.get(0);
        let waits = short_waits(Duration::from_secs(3));
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        let _subscribed = tracing::subscriber::set_default(subscriber);
        let refused = migrate_to(&database.connector(), &with_one_more(), waits).await.unwrap_err().to_string();
        for part in ["migration 1 of 1", &format!("process {pid} "), "a long report", "idle in transaction"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(!refused.contains("SELECT"), "a statement may hold data: {refused}");
        let log = std::fs::read_to_string(log.path()).unwrap();
        let line = log.lines().find(|line| line.contains("WARN")).unwrap_or_else(|| panic!("no warning: {log}"));
        let blocker = format!("blocker=process {pid} of the database (a long report), idle in transaction");
        for part in
            ["migration 1 of 1 waits for another transaction; trying again", &blocker, " waited_s=", " pause_s=0.5"]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
        report.rollback().await.unwrap();
        assert_eq!(version(&reader).await.unwrap(), Some(known()), "nothing was changed");
    }

    #[tokio::test]
    async fn an_instance_goes_on_only_with_a_newer_schema_that_says_it_may() {
        let database = testing::database().await;
        let (client, pool) = (database.client().await, database.readers());
        check(&pool).await.unwrap();
        let version = known() + 1;
        let mark = async |change: String| {
            client.batch_execute(&change).await.unwrap();
            check(&pool).await
        };
        let set = |oldest: i64| {
            format!(
                "INSERT INTO settings (name, value) VALUES ('{COMPATIBLE_FROM}', convert_to('{oldest}', 'UTF8'))
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value"
            )
        };
        let unmarked = mark(format!("UPDATE schema_version SET version = {version}")).await;
        assert!(matches!(unmarked, Err(Error::FromTheFuture { .. })), "{unmarked:?}");
        mark(set(known())).await.unwrap();
        for change in [set(version), "ALTER TABLE settings RENAME TO elsewhere".into()] {
            let refused = mark(change.clone()).await;
            assert!(matches!(refused, Err(Error::FromTheFuture { .. })), "{change}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn a_failed_task_shows_its_error_whatever_its_message_holds() {
        let database = testing::database().await;
        let client = database.client().await;
        let deep =
            format!(r#"{{"parts":[{{"text":"deep"}}],"metadata":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
        for (message, error) in [
            (r#"{"parts":[{"text":"no luck"}]}"#, "no luck"),
            (r#"{"parts":[{"text":"half \ud800"}]}"#, ""),
            (r#"{"parts":[{"text":"nul \u0000"}]}"#, ""),
            (r#"{"parts":[{"text":"not nul \\u0000"}]}"#, r"not nul \u0000"),
            (r#"{"parts":[]}"#, ""),
            (&deep, ""),
        ] {
            let row = client
                .query_one(
                    "INSERT INTO a2a_tasks (task_id, tenant_id, created_at, updated_at, status_at, seq, agent_id, state,
                       status_message)
                     VALUES (gen_random_uuid(), 1, 1, 1, 1, 1, 'echo', 'failed', $1)
                     RETURNING error_message, final_message_json",
                    &[&message],
                )
                .await
                .unwrap();
            assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (error, message));
        }
    }
}
