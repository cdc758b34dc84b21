//! Checkpoints of the write-ahead log, on a thread of their own: no commit waits while pages are copied into the database.
//!
//! A log is written from its begin again once all of it was copied. A pass copies beside the writer, which goes on meanwhile; the small
//! rest is copied while the writer pauses between two transactions ([`Gate`]). That also bounds the log when the writer is faster than the
//! copying.
//!
//! A reader keeps what was written since it began in the log, so the log grows for as long as the reader lasts. Once it has ended,
//! the file is cut.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::schema;
use crate::{Error, Result};

/// Bounds of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogLimits {
    /// Bytes in the log at which they are copied.
    pub(super) copy: u64,
    /// Bytes of the file beyond which it is cut.
    pub(super) keep: u64,
    /// Bytes of the file at which a reader is reported that has held it for so long.
    pub(super) warn: (u64, Duration),
}

pub(super) const LIMITS: LogLimits =
    LogLimits { copy: 16 << 20, keep: 128 << 20, warn: (WARN_BYTES, Duration::from_secs(10)) };

/// A log of this size is one that somebody should look at.
pub const WARN_BYTES: u64 = 256 << 20;

/// How much may be left to copy while the writer pauses, and how many passes are made to get there.
const REST: u64 = 2 << 20;
const PASSES: usize = 4;

/// The least time between two looks at the log, and the time until the next one while a reader holds it.
const PACE: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_secs(1);

/// How long the writer pauses at most for readers that keep the file from being cut, and how often it does.
const PATIENCE: Duration = Duration::from_millis(50);
const CUT_EVERY: Duration = Duration::from_secs(5);

/// How often a reader is reported.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Lets the checkpoint's last piece happen between two transactions of the writer. The checkpoint goes first: the writer never passes
/// it twice.
#[derive(Default)]
pub(super) struct Gate {
    turnstile: Mutex<()>,
    writing: Mutex<()>,
}

impl Gate {
    /// Held for the time of a transaction.
    pub(super) fn pass(&self) -> MutexGuard<'_, ()> {
        drop(lock(&self.turnstile));
        lock(&self.writing)
    }

    fn pause(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        (lock(&self.turnstile), lock(&self.writing))
    }
}

/// When the reads began that this store's threads are at.
#[derive(Default)]
pub(super) struct OpenReads(Mutex<HashMap<ThreadId, Instant>>);

impl OpenReads {
    pub(super) fn begun(&self) {
        lock(&self.0).insert(thread::current().id(), Instant::now());
    }

    pub(super) fn ended(&self) {
        lock(&self.0).remove(&thread::current().id());
    }

    fn longest(&self) -> Option<Duration> {
        lock(&self.0).values().min().map(Instant::elapsed)
    }
}

/// The thread. Dropping it ends it.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    database: Arc<File>,
}

#[derive(Default)]
struct Shared {
    gate: Arc<Gate>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// There was a commit since the last look.
    grown: bool,
    ended: bool,
}

struct Thread {
    conn: Connection,
    database: Arc<File>,
    log: PathBuf,
    limits: LogLimits,
    page: u64,
    shared: Arc<Shared>,
    reads: Arc<OpenReads>,
    /// Since when a reader has held the log.
    held: Option<Instant>,
    warned: Option<Instant>,
    /// When the file was to be cut although there were readers.
    forced: Option<Instant>,
}

/// What is in the log, in bytes.
#[derive(Debug, Clone, Copy)]
struct Log {
    all: u64,
    copied: u64,
}

impl Log {
    fn rest(self) -> u64 {
        self.all.saturating_sub(self.copied)
    }
}

impl Checkpointer {
    pub(super) fn start(file: &Path, limits: LogLimits, reads: Arc<OpenReads>) -> Result<Self> {
        let conn = schema::open_checkpointer(file, PATIENCE)?;
        let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let shared = Arc::new(Shared::default());
        let database = database(file).map_err(|error| Error::Unavailable(error.to_string()))?;
        let thread = Thread {
            conn,
            database: Arc::clone(&database),
            log: log_of(file),
            limits,
            page: page.into(),
            shared: Arc::clone(&shared),
            reads,
            held: None,
            warned: None,
            forced: None,
        };
        let run = move || thread.run();
        // The log of a test is that of its own thread.
        #[cfg(test)]
        let run = {
            let log = tracing::dispatcher::get_default(Clone::clone);
            move || tracing::dispatcher::with_default(&log, run)
        };
        let thread = thread::Builder::new()
            .name("journal-checkpoint".into())
            .spawn(run)
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { shared, thread: Some(thread), database })
    }

    /// Has to last until the last connection of this process is closed.
    pub(super) fn database(&self) -> Arc<File> {
        Arc::clone(&self.database)
    }

    pub(super) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.shared.gate)
    }

    /// The log has grown.
    pub(super) fn committed(&self) {
        let mut state = lock(&self.shared.state);
        if !state.grown {
            state.grown = true;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        lock(&self.shared.state).ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It has said why it panicked.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits for a commit, or until the time is over. Says whether to go on.
    fn wait(&self, most: Option<Duration>) -> bool {
        let state = lock(&self.state);
        let idle = |state: &mut State| !state.grown && !state.ended;
        let mut state = match most {
            Some(most) => self.changed.wait_timeout_while(state, most, idle).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
        };
        state.grown = false;
        !state.ended
    }

    fn pause(&self, time: Duration) {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout_while(state, time, |state| !state.ended));
    }
}

impl Thread {
    fn run(mut self) {
        let mut again = None;
        while self.shared.wait(again) {
            again = match self.round() {
                Ok(is_done) => (!is_done).then_some(RETRY),
                Err(error) => {
                    tracing::warn!(%error, "copying the write-ahead log into the database failed");
                    Some(RETRY)
                }
            };
            self.shared.pause(PACE);
        }
    }

    /// Copies what there is to copy. Says whether nothing is left to do before the next commit.
    fn round(&mut self) -> Result<bool> {
        let Some(mut log) = self.checkpoint("NOOP")? else { return Ok(false) };
        let is_long = self.file_bytes() > self.limits.keep;
        if log.all < self.limits.copy && !is_long {
            self.held = None;
            return Ok(true);
        }
        for _ in 0..PASSES {
            if log.rest() == 0 {
                break;
            }
            let seen = log;
            // Otherwise another process is at it.
            log = match self.checkpoint("PASSIVE")? {
                Some(log) => log,
                None => return Ok(false),
            };
            if log.copied < seen.all {
                self.report_reader();
                // Short reads that overlap end while the writer pauses; long ones do not.
                if !is_long || self.forced.is_some_and(|at| at.elapsed() < CUT_EVERY) {
                    return Ok(false);
                }
                self.forced = Some(Instant::now());
                return self.cut();
            }
            if log.rest() > 0 {
                // SQLite syncs the database when all was copied. Most of that is done here, while the writer goes on.
                self.database.sync_data().map_err(|error| Error::Unavailable(error.to_string()))?;
            }
            if log.rest() <= REST {
                break;
            }
        }
        self.held = None;
        if is_long {
            return self.cut();
        }
        if log.rest() > 0 {
            let _paused = self.shared.gate.pause();
            self.checkpoint("PASSIVE")?;
        }
        Ok(true)
    }

    fn cut(&mut self) -> Result<bool> {
        let _paused = self.shared.gate.pause();
        self.checkpoint("TRUNCATE")?;
        Ok(self.file_bytes() <= self.limits.keep)
    }

    /// `None` when somebody else makes one.
    fn checkpoint(&self, mode: &str) -> Result<Option<Log>> {
        let mut checkpoint = self.conn.prepare_cached(&format!("PRAGMA wal_checkpoint = {mode}"))?;
        let (all, copied): (i64, i64) = checkpoint.query_row((), |row| Ok((row.get(1)?, row.get(2)?)))?;
        let (Ok(all), Ok(copied)) = (u64::try_from(all), u64::try_from(copied)) else { return Ok(None) };
        Ok(Some(Log { all: all * self.page, copied: copied * self.page }))
    }

    fn file_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }

    fn report_reader(&mut self) {
        let held = self.held.get_or_insert_with(Instant::now).elapsed();
        let bytes = self.file_bytes();
        let is_told = self.warned.is_some_and(|at| at.elapsed() < WARN_EVERY);
        if bytes < self.limits.warn.0 || held < self.limits.warn.1 || is_told {
            return;
        }
        self.warned = Some(Instant::now());
        let reader = match self.reads.longest() {
            Some(ago) if ago >= held => format!("a read of this server that began {} s ago", ago.as_secs()),
            _ => "another process: a backup, an export, or a tool that has the file open".to_owned(),
        };
        tracing::warn!(
            bytes,
            held_s = held.as_secs(),
            "the write-ahead log has grown to {} MiB and cannot shrink: it is held by {reader}",
            bytes >> 20
        );
    }
}

/// The write-ahead log beside a database.
pub(super) fn log_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push("-wal");
    name.into()
}

/// The database as a plain file, for syncing. One for each process: closing it gives up the process's locks on the database, so it
/// has to last until the last connection is closed.
fn database(file: &Path) -> std::io::Result<Arc<File>> {
    static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<File>>>> = LazyLock::new(Mutex::default);
    let path = fs::canonicalize(file)?;
    let mut open = lock(&OPEN);
    open.retain(|_, file| file.strong_count() > 0);
    if let Some(file) = open.get(&path).and_then(Weak::upgrade) {
        return Ok(file);
    }
    let opened = Arc::new(File::options().read(true).write(true).open(file)?);
    open.insert(path, Arc::downgrade(&opened));
    Ok(opened)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::mpsc};

    use super::*;

    const SMALL: LogLimits = LogLimits { copy: 64 << 10, keep: 1 << 20, warn: (2 << 20, Duration::ZERO) };

    fn open(dir: &Path) -> (PathBuf, Connection) {
        let file = dir.join("db");
        let conn = schema::open_writer(&file, 1024).unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        (file, conn)
    }

    fn write(conn: &Connection, checkpointer: &Checkpointer, bytes: i64) {
        let gate = checkpointer.gate();
        let writing = gate.pass();
        conn.execute("INSERT INTO t VALUES (zeroblob(?1))", [bytes]).unwrap();
        drop(writing);
        checkpointer.committed();
    }

    fn size(file: &Path) -> u64 {
        fs::metadata(log_of(file)).unwrap().len()
    }

    /// Far more time than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    fn until(is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "it does not come true");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[derive(Clone)]
    struct Told(mpsc::Sender<String>);

    impl io::Write for Told {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_busy_writer_does_not_make_the_log_grow() {
        let dir = tempfile::tempdir().unwrap();
        let (file, conn) = open(dir.path());
        let checkpointer = Checkpointer::start(&file, SMALL, Arc::default()).unwrap();
        let end = Instant::now() + Duration::from_secs(1);
        let (mut written, mut most) = (0, 0);
        while Instant::now() < end || written < 64 << 20 {
            write(&conn, &checkpointer, 16 << 10);
            written += 16 << 10;
            most = most.max(size(&file));
        }
        assert!(most < written / 2, "{most} of {written} bytes");
        until(|| size(&file) <= SMALL.keep);
        drop(checkpointer);
        let rows: i64 = conn.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap();
        assert_eq!(u64::try_from(rows).unwrap(), written >> 14);
    }

    #[test]
    fn a_reader_that_holds_the_log_is_reported_and_the_log_is_cut_when_it_has_ended() {
        let (sender, told) = mpsc::channel();
        let told_to = Told(sender);
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || told_to.clone()).finish();
        let _subscribed = tracing::subscriber::set_default(subscriber);
        let dir = tempfile::tempdir().unwrap();
        let (file, conn) = open(dir.path());
        let checkpointer = Checkpointer::start(&file, SMALL, Arc::default()).unwrap();
        write(&conn, &checkpointer, 1000);
        let reader = schema::open_reader(&file, 1024).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        for _ in 0..256 {
            write(&conn, &checkpointer, 16 << 10);
        }
        let begun = Instant::now();
        let line = loop {
            assert!(begun.elapsed() < LONG, "nothing is reported");
            // The time that the reader has held the log is looked at once more.
            write(&conn, &checkpointer, 1000);
            if let Ok(line) = told.recv_timeout(Duration::from_millis(100)) {
                break line;
            }
        };
        assert!(line.contains("MiB and cannot shrink: it is held by another process"), "{line}");
        assert!(size(&file) > 4 << 20);
        reader.execute_batch("ROLLBACK").unwrap();
        // Nobody writes any more.
        until(|| size(&file) <= SMALL.keep);
        let rows: i64 = reader.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap();
        assert!(rows > 256, "{rows}");
    }

    #[test]
    fn a_read_of_this_server_is_reported_as_one() {
        let reads = Arc::new(OpenReads::default());
        assert_eq!(reads.longest(), None);
        reads.begun();
        assert!(reads.longest().is_some());
        reads.ended();
        assert_eq!(reads.longest(), None);
    }
}
