//! The one thread that writes. It takes everything that waits, commits it as one transaction, and only
//! then tells anyone: watchers first, then callers. When more waits than one transaction should hold, tenants take turns
//! by bytes ([`crate::fair`]).
//!
//! An operation decides whether it is refused before its first write, so a refusal costs the batch nothing.
//! Whatever fails otherwise rolls the batch back, and each operation runs again in a transaction of its own:
//! only the guilty one fails.

use std::{
    collections::HashMap,
    fs::File,
    path::Path,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rusqlite::{CachedStatement, Connection, Transaction, TransactionBehavior, params};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    checkpoint::{Checkpointer, LIMITS, OpenReads},
    clock::{Clock, Ticks},
    schema,
    usage::Ledger,
};
use crate::{
    AgentId, Error, Event, Hub, LeaseTime, News, Result, TaskId, TenantId, clock, codec,
    fair::{BatchLimit, Cost, FairQueue},
    fault,
    ops::{
        TaskRow,
        columns::{self, Column},
    },
    waiter::{Counters, Waiter},
};

/// How much one transaction takes. Nobody can commit while it runs, so it is bounded by bytes as well.
const BATCH: BatchLimit = BatchLimit { operations: 1024, bytes: 4 << 20 };

/// A caller whose small operation was just committed often has another one soon: a task's second commit. It is waited for so long, and so
/// often between two large transactions, so that a task waits for one of these and not for two.
const FOLLOW_UP: Duration = Duration::from_millis(5);
const FOLLOW_UPS: u32 = 2;

/// How often commits of other processes are looked for while anyone wants to hear of them.
const POLL: Duration = Duration::from_millis(100);

/// How often, and how many at a time, expired idempotency keys are removed. The lookup ignores them anyway.
const SWEEP: Duration = Duration::from_secs(60);
const SWEEP_ROWS: i64 = 1000;

/// The way to the writer thread. Dropping it commits what waits and ends the thread.
pub(super) struct Writer {
    jobs: Option<SyncSender<Order>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    /// Hears when the thread has closed the file.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
    /// Where readers of the same file say what they are at.
    pub(super) reads: Arc<OpenReads>,
    /// A transaction failed otherwise than by a refusal, and since then none has proven that there is room.
    pub(super) in_trouble: Arc<AtomicBool>,
}

/// The transaction that an operation is part of.
pub(super) struct Batch<'c> {
    pub(super) conn: &'c Connection,
    /// The journal's time at the begin of the transaction.
    pub(super) now: LeaseTime,
    /// Work became due or a cancel mark was set.
    pub(super) poke: bool,
    /// How many tasks made their push configurations due.
    pub(super) owed: usize,
    events: Vec<(TaskId, Arc<Event>)>,
    last_pos: Option<i64>,
    counts: HashMap<(TenantId, AgentId, &'static str), i64>,
    next_pk: Option<i64>,
    /// What tenants use more or less after this batch.
    pub(super) ledger: Ledger,
    pub(super) rows: &'c mut Rows,
    hot: [Option<CachedStatement<'c>>; 7],
}

/// The statements of the ordinary course of a task, by their place in [`HOT`].
#[derive(Clone, Copy)]
pub(super) enum Hot {
    InsertTask,
    SaveTask,
    TouchTask,
    Log,
    AddMessage,
    EndTurn,
    AddArtifact,
}

static HOT: LazyLock<[String; 7]> = LazyLock::new(|| {
    let name = |column: &Column| column.0.to_owned();
    let is_new = |column: &Column| format!("{} = ?", column.0);
    [
        format!(
            "INSERT INTO a2a_tasks (pk, task_id, {}) VALUES (?, ?, {})",
            columns::list(columns::all(), name),
            columns::list(columns::all(), |_| "?".to_owned())
        ),
        format!("UPDATE a2a_tasks SET {} WHERE pk = ?", columns::list(columns::CHANGING.iter(), is_new)),
        // What a running turn says changes no indexed column: the indexes are left alone.
        "UPDATE a2a_tasks SET seq = ?2, updated_at = ?3 WHERE pk = ?1".to_owned(),
        "INSERT INTO a2a_events (task, seq, at, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)".to_owned(),
        "INSERT INTO messages (pos, task, message_id, role, status, turn, body, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            .to_owned(),
        "UPDATE messages SET status = 'acked' WHERE pos >= ?1 AND pos < ?2 AND status = 'in_progress'".to_owned(),
        "INSERT INTO a2a_artifacts (pos, task, turn, artifact_id, append, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            .to_owned(),
    ]
});

/// The rows of tasks whose holders write through this instance, as they were last written: their turns write again and again, and need not
/// read them each time. Valid while nobody else writes to the file; whatever may change rows in another way forgets them.
#[derive(Default)]
pub(super) struct Rows(HashMap<TaskId, TaskRow>);

/// The most rows that are kept.
const MAX_ROWS: usize = 4096;

impl Rows {
    pub(super) fn take(&mut self, task: TaskId) -> Option<TaskRow> {
        self.0.remove(&task)
    }

    /// Keeps a row that was just written, if somebody holds it; else forgets what it knew of it.
    pub(super) fn keep(&mut self, row: TaskRow) {
        if row.owner.is_some() && self.0.len() < MAX_ROWS {
            self.0.insert(row.task, row.stored());
        } else {
            self.0.remove(&row.task);
        }
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// An operation with someone who waits for its outcome. It can run several times; the last run counts.
trait Job: Send {
    /// `Err` when the transaction must be rolled back.
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<()>;
    /// Tells the caller. Only the first call has an effect.
    fn finish(&mut self, failure: Option<Error>);
}

/// What the thread is told.
enum Order {
    Run(Queued),
    /// Sign off and end. Nothing comes after it.
    Stop,
}

struct Queued {
    job: Box<dyn Job>,
    cost: Cost,
    /// Its place in the queue, free again when the writer takes the job.
    room: OwnedSemaphorePermit,
}

struct Call<T, F> {
    op: F,
    waiter: Waiter<T>,
}

enum Failure {
    /// The transaction could not be begun: nobody's fault, and not worth another wait for each.
    Begin(Error),
    /// One of the operations, or the commit.
    Batch(Error),
}

struct Thread {
    // Fields are dropped in this order: this is the last connection.
    checkpointer: Checkpointer,
    conn: Connection,
    _database: Arc<File>,
    clock: Clock,
    jobs: Receiver<Order>,
    waiting: FairQueue<Queued>,
    hub: Hub,
    me: String,
    counters: Arc<Counters>,
    /// Changes when another connection has committed.
    seen_version: i64,
    /// The last event that was published, or that nobody watched.
    seen_pos: i64,
    last_sweep: Instant,
    rows: Rows,
    in_trouble: Arc<AtomicBool>,
    /// Negative control for crash tests: callers are told before the commit.
    ack_before_commit: bool,
    /// The last to be dropped: the file is closed then.
    _ended: oneshot::Sender<()>,
}

impl Writer {
    pub(super) fn start(
        file: &Path,
        cache_kib: u32,
        queue: usize,
        me: String,
        ticks: Ticks,
        hub: Hub,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let conn = schema::open_writer(file, cache_kib)?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        // A log that begins anew is cut to this.
        conn.pragma_update(None, "journal_size_limit", codec::signed(LIMITS.keep))?;
        let clock = {
            let tx = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
            let clock = Clock::of(&tx, ticks)?;
            tx.commit()?;
            clock
        };
        let (seen_version, seen_pos) = {
            let tx = conn.unchecked_transaction()?;
            (data_version(&tx)?, last_pos(&tx)?)
        };
        let insert = "INSERT INTO instances (id, started_at, knows) VALUES (?1, ?2, ?3)";
        conn.execute(insert, params![me, clock::now().as_millis(), schema::known()])?;
        // One place more than there are permits, for the last order.
        let (sender, jobs) = sync_channel(queue + 1);
        let (ending, ended) = oneshot::channel();
        let ack_before_commit = fault::is_on("ack-before-commit");
        let reads = Arc::new(OpenReads::default());
        let in_trouble = Arc::new(AtomicBool::new(false));
        let checkpointer = Checkpointer::start(file, LIMITS, Arc::clone(&reads))?;
        let thread = Thread {
            _database: checkpointer.database(),
            checkpointer,
            conn,
            clock,
            jobs,
            waiting: FairQueue::new(BATCH),
            hub,
            me,
            counters,
            seen_version,
            seen_pos,
            last_sweep: Instant::now(),
            rows: Rows::default(),
            in_trouble: Arc::clone(&in_trouble),
            ack_before_commit,
            _ended: ending,
        };
        let thread = thread::Builder::new()
            .name("journal-writer".into())
            .spawn(move || thread.run())
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self {
            jobs: Some(sender),
            room: Arc::new(Semaphore::new(queue)),
            thread: Some(thread),
            ended: Mutex::new(Some(ended)),
            reads,
            in_trouble,
        })
    }

    /// Takes no more, commits what waits, signs off and closes the file.
    pub(super) async fn close(&self) {
        self.room.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(ended), Some(jobs)) = (ended, &self.jobs) else { return };
        if jobs.try_send(Order::Stop).is_ok() {
            // Nothing is ever sent; it ends with the thread.
            let _ = ended.await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.room.is_closed()
    }

    /// Runs an operation in one of the next transactions and returns when that is committed. The operations of a tenant
    /// run in the order of these calls.
    pub(super) async fn run<T, F>(&self, cost: impl Into<Cost>, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Batch<'_>) -> Result<T> + Send + 'static,
    {
        let closed = || Error::Unavailable("the writer has stopped".into());
        let cost = cost.into();
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())?;
        let (reply, outcome) = oneshot::channel();
        let job = Box::new(Call { op, waiter: Waiter::new(reply) });
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        // With a permit in hand the channel has room.
        jobs.try_send(Order::Run(Queued { job, cost, room })).map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It has said why it panicked.
            let _ = thread.join();
        }
    }
}

impl<'c> Batch<'c> {
    fn new(conn: &'c Connection, now: LeaseTime, rows: &'c mut Rows) -> Self {
        Self {
            rows,
            hot: Default::default(),
            conn,
            now,
            poke: false,
            owed: 0,
            events: Vec::new(),
            last_pos: None,
            counts: HashMap::new(),
            next_pk: None,
            ledger: Ledger::default(),
        }
    }

    /// The number of a new task.
    pub(super) fn allocate_pk(&mut self) -> Result<i64> {
        let pk = match self.next_pk {
            Some(pk) => pk,
            None => self
                .conn
                .prepare_cached("SELECT coalesce(max(pk), 0) + 1 FROM a2a_tasks")?
                .query_row((), |row| row.get(0))?,
        };
        self.next_pk = Some(pk + 1);
        Ok(pk)
    }

    /// A statement that almost every operation needs: looked up once for the batch.
    pub(super) fn statement(&mut self, hot: Hot) -> Result<&mut CachedStatement<'c>> {
        let slot = &mut self.hot[hot as usize];
        if slot.is_none() {
            *slot = Some(self.conn.prepare_cached(&HOT[hot as usize])?);
        }
        slot.as_mut().ok_or_else(|| Error::Unavailable("a statement cannot be prepared".into()))
    }

    /// An event was written: it is kept for those who watch.
    pub(super) fn logged(&mut self, task: TaskId, event: Event) {
        self.last_pos = Some(self.conn.last_insert_rowid());
        self.events.push((task, Arc::new(event)));
    }

    /// Changes the number of visible tasks. The sums are written once, before the commit.
    pub(super) fn change_count(&mut self, tenant: TenantId, agent: &AgentId, state: a2a::TaskState, n: i64) {
        *self.counts.entry((tenant, agent.clone(), codec::state_name(state))).or_default() += n;
    }

    fn write_counts(&mut self) -> Result<()> {
        let mut add = self.conn.prepare_cached(
            "INSERT INTO task_counts (tenant_id, agent_id, state, n) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET n = n + excluded.n",
        )?;
        for ((tenant, agent, state), n) in self.counts.drain().filter(|(_, n)| *n != 0) {
            add.execute(params![tenant.0, agent.as_str(), state, n])?;
        }
        self.ledger.write(self.conn)
    }
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Batch<'_>) -> Result<T> + Send,
{
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let before = batch.conn.total_changes();
        let outcome = (self.op)(batch);
        self.waiter.keep(outcome, batch.conn.total_changes() != before)
    }

    fn finish(&mut self, failure: Option<Error>) {
        self.waiter.finish(failure);
    }
}

impl Thread {
    fn run(mut self) {
        loop {
            // A test that makes its own time says when other instances' commits are looked for.
            let order = if self.clock.is_machine() {
                self.jobs.recv_timeout(POLL)
            } else {
                self.jobs.recv().map_err(RecvTimeoutError::from)
            };
            match order {
                Ok(Order::Run(first)) => {
                    if self.process(first) {
                        break;
                    }
                }
                Ok(Order::Stop) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if self.hub.is_heard()
                        && let Err(error) = self.look_around()
                    {
                        tracing::warn!(%error, "looking for other instances' commits failed");
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Err(error) = self.sign_off() {
            tracing::warn!(%error, "signing off failed");
        }
    }

    fn sign_off(&self) -> Result<()> {
        self.conn.execute("DELETE FROM instances WHERE id = ?1", [&self.me])?;
        Clock::save(&self.conn, self.clock.now())
    }

    /// Runs this and all that waits behind it, a batch at a time. Says whether that was the last of it.
    fn process(&mut self, first: Queued) -> bool {
        let mut is_last = false;
        // None before the first large transaction: nobody has waited for it.
        let mut follow_ups = 0;
        self.waiting.push(first.cost, first);
        loop {
            while let Ok(order) = self.jobs.try_recv() {
                match order {
                    Order::Run(queued) => self.waiting.push(queued.cost, queued),
                    Order::Stop => is_last = true,
                }
            }
            if self.waiting.is_empty() {
                return is_last;
            }
            let mut bytes = 0;
            let jobs = self.waiting.take().into_iter().map(|queued| {
                drop(queued.room);
                bytes += queued.cost.bytes;
                queued.job
            });
            self.run_batch(jobs.collect());
            if bytes > BATCH.bytes / 2 {
                follow_ups = FOLLOW_UPS;
            } else if follow_ups > 0 && !is_last && self.waiting.is_heavy() {
                follow_ups -= 1;
                match self.jobs.recv_timeout(FOLLOW_UP) {
                    Ok(Order::Run(queued)) => self.waiting.push(queued.cost, queued),
                    Ok(Order::Stop) => is_last = true,
                    Err(_) => {}
                }
            }
        }
    }

    fn run_batch(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        match self.attempt(&mut jobs) {
            Ok(()) => finish(&mut jobs, None),
            Err(Failure::Begin(error)) => {
                self.note(&error);
                finish(&mut jobs, Some(&error));
            }
            Err(Failure::Batch(error)) if jobs.len() == 1 => {
                self.note(&error);
                jobs[0].finish(Some(error));
            }
            Err(Failure::Batch(error)) => {
                tracing::warn!(%error, jobs = jobs.len(), "a transaction failed, running its operations one by one");
                for job in jobs.chunks_mut(1) {
                    match self.attempt(job) {
                        Ok(()) => finish(job, None),
                        Err(Failure::Begin(error) | Failure::Batch(error)) => {
                            self.note(&error);
                            job[0].finish(Some(error));
                        }
                    }
                }
            }
        }
    }

    /// Remembers that a write failed otherwise than by being refused, before its caller hears of it.
    fn note(&self, error: &Error) {
        if !error.is_refusal() {
            self.in_trouble.store(true, Relaxed);
        }
    }

    /// One transaction. After an error nothing of it is left.
    fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let done = self.attempt_alone(jobs);
        self.checkpointer.committed();
        done
    }

    fn attempt_alone(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let gate = self.checkpointer.gate();
        let _writing = gate.pass();
        self.conn
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut s| s.execute(()))
            .map_err(|error| Failure::Begin(Error::Unavailable(format!("cannot begin a transaction: {error}"))))?;
        let done = self.transact(jobs);
        if done.is_err() {
            self.rows.forget();
        }
        if done.is_err()
            && !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "rolling back failed");
        }
        done.map_err(Failure::Batch)
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<()> {
        // Events of other processes come before ours in the log, so they are published before ours.
        self.look_around()?;
        let changes = self.conn.total_changes();
        let mut batch = Batch::new(&self.conn, self.clock.now(), &mut self.rows);
        for job in jobs.iter_mut() {
            job.apply(&mut batch)?;
        }
        batch.write_counts()?;
        if self.conn.total_changes() == changes {
            // Nothing to make durable: no sync.
            self.conn.prepare_cached("ROLLBACK")?.execute(())?;
            return Ok(());
        }
        if self.last_sweep.elapsed() > SWEEP {
            sweep(&self.conn, self.clock.now())?;
            self.last_sweep = Instant::now();
        }
        if self.ack_before_commit {
            finish(jobs, None);
            thread::sleep(Duration::from_millis(50));
        }
        self.conn.prepare_cached("COMMIT")?.execute(())?;

        self.counters.committed(batch.events.len());
        if let Some(pos) = batch.last_pos {
            self.seen_pos = pos;
        }
        for (task, event) in &batch.events {
            self.hub.publish(*task, event);
        }
        if !batch.events.is_empty() {
            self.hub.log_grew();
        }
        if batch.poke {
            self.hub.poke();
        }
        if batch.owed > 0 {
            self.counters.owed(batch.owed);
            self.hub.poke_outbox();
        }
        self.hub.tell(|| News::of(batch.events.iter().map(|(task, event)| (*task, event.seq)), batch.poke));
        Ok(())
    }

    /// Publishes what other processes have committed since the last look.
    fn look_around(&mut self) -> Result<()> {
        let version = data_version(&self.conn)?;
        if version == self.seen_version {
            return Ok(());
        }
        self.rows.forget();
        if self.hub.is_watched() {
            let mut tail = self.conn.prepare_cached(
                "SELECT e.pos, t.task_id, e.seq, e.at, e.kind, e.body
                 FROM a2a_events e CROSS JOIN a2a_tasks t ON t.pk = e.task
                 WHERE e.pos > ?1 ORDER BY e.pos",
            )?;
            let mut rows = tail.query([self.seen_pos])?;
            while let Some(row) = rows.next()? {
                self.seen_pos = row.get(0)?;
                let task = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
                match (codec::parse_task(task), super::read::event(row, 2)) {
                    (Ok(task), Ok(event)) => self.hub.publish(task, &Arc::new(event)),
                    // Written by a newer version. Its watchers notice the gap; our own writes must go on.
                    (Err(error), _) | (_, Err(error)) => {
                        tracing::warn!(%error, pos = self.seen_pos, "an event of another instance is unreadable");
                    }
                }
            }
        } else {
            self.seen_pos = last_pos(&self.conn)?;
        }
        self.seen_version = version;
        self.hub.log_grew();
        self.hub.poke();
        self.hub.poke_outbox();
        Ok(())
    }
}

fn finish(jobs: &mut [Box<dyn Job>], failure: Option<&Error>) {
    for job in jobs {
        job.finish(failure.map(|error| Error::Unavailable(error.to_string())));
    }
}

fn sweep(conn: &Connection, now: LeaseTime) -> Result<()> {
    Clock::save(conn, now)?;
    conn.prepare_cached(
        "DELETE FROM idempotency WHERE (tenant_id, key) IN
           (SELECT tenant_id, key FROM idempotency WHERE expires <= ?1 LIMIT ?2)",
    )?
    .execute(params![now.0, SWEEP_ROWS])?;
    Ok(())
}

fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row((), |row| row.get(0))?)
}

fn last_pos(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("SELECT coalesce(max(pos), 0) FROM a2a_events")?.query_row((), |row| row.get(0))?)
}
