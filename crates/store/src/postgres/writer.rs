//! The one task that writes. It takes everything that waits, writes it as one transaction, and only after the commit
//! tells anyone: watchers first, then callers. When more waits than one transaction should hold, tenants take turns by
//! bytes ([`crate::fair`]).
//!
//! An operation decides whether it is refused before its first write, so a refusal costs the batch nothing. Whatever
//! fails otherwise rolls the batch back, and each operation runs again in a transaction of its own: only the guilty one
//! fails.
//!
//! **A lock that somebody else holds** stops the tenants that need it and nobody else. A batch waits for locks briefly
//! ([`LOCK_WAIT`]). If that is not enough, the operations of each tenant run again in a transaction of their own, and those
//! that meet a lock once more are written apart, over a connection of their own ([`super::blocked`]; test:
//! `one_tenants_lock_holds_up_no_other_tenant`).
//!
//! **A lost database.** A batch whose connection breaks before its COMMIT was sent has changed nothing and runs again on
//! a new connection. One that breaks after it is looked up first ([`flush::settle`]): it is neither repeated nor
//! forgotten. An operation that has waited for [`super::Options::patience`] is given up with [`Error::Unavailable`], and only where it is
//! certain that it was not applied and will not be: while it stands in the queue, or between two attempts. (A commit whose
//! outcome cannot be learnt for half an hour ends with the same error; nothing else can be said then.) The queue is
//! bounded, and who finds it full waits outside for as long (tests: `a_lost_database_refuses_and_recovers`).
//!
//! **An instance that stands still** in the middle of a transaction (stopped, swapped out) keeps its locks only until
//! the server ends its session ([`SET_UP`]). When it goes on, its COMMIT fails, the batch runs again, and finds its
//! leases taken over (test: `an_instance_that_stood_still_cannot_write`).

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_postgres::{
    Client, Row, Statement,
    error::{DbError, Severity, SqlState},
};
use uuid::Uuid;

use super::{
    batch::Batch,
    blocked::BlockedTenants,
    fetch::{self, Need, Needs, Trouble},
    flush::{self, Seal, Settled},
    pool::{Connector, Role, Values},
};
use crate::{
    Error, Hub, InstanceId, LeaseTime, Result, TenantId,
    error::is_lost,
    fair::{BatchLimit, FairQueue},
    fault,
    waiter::{Counters, Waiter},
};

/// How much one transaction takes. Nobody here can commit while it runs, so it is bounded by bytes as well.
pub(super) const BATCH: BatchLimit = BatchLimit { operations: 1024, bytes: 4 << 20 };

/// How long a connection may take.
const OPEN: Duration = Duration::from_secs(10);

/// How long one half of a transaction may take. The server gives up on a lock before that.
const PHASE: Duration = Duration::from_secs(20);

/// How long the outcome of a commit is looked for: for less than the ids of commits are kept.
const DOUBT: Duration = Duration::from_secs(30 * 60);
const COMMITS_KEPT: Duration = Duration::from_secs(60 * 60);

/// How often a batch runs again because of a deadlock, before its operations run one by one.
const TRIES: u32 = 3;

/// How often, and how many at a time, expired idempotency keys and old commits are removed.
const SWEEP: Duration = Duration::from_secs(60);
const SWEEP_ROWS: i64 = 10_000;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Every statement of this session goes by a key, whatever the server believes about the size of a table that was
/// empty a minute ago. Nobody waits for a lock for ever, and nobody holds one while standing still.
const SET_UP: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
     SET plan_cache_mode = force_generic_plan; SET lock_timeout = '200ms'; SET statement_timeout = '15s';
     SET idle_in_transaction_session_timeout = '5s'";

/// Maximum time for which a transaction of several tenants waits for a lock. `None` leaves it to the session, see [`SET_UP`]: longer than
/// other instances usually need to commit, and short, since nobody here can commit meanwhile.
const LOCK_WAIT: Option<&str> = None;
/// The same for the operations of one tenant after their batch has waited in vain.
const LOCK_WAIT_AGAIN: Option<&str> = Some("50ms");
/// The same after the operations of another tenant have waited in vain once more: a lock on a whole table stops all of them.
const LOCK_WAIT_LEAST: Option<&str> = Some("5ms");

const SWEEP_KEYS: &str = "DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
       SELECT ctid FROM idempotency WHERE expires <= lease_now() LIMIT $1 FOR UPDATE SKIP LOCKED))";
const SWEEP_COMMITS: &str = "DELETE FROM commits WHERE ctid = ANY (ARRAY(
       SELECT ctid FROM commits WHERE (at >= 0 AND at < lease_now() - $1) OR (at < 0 AND at > -(lease_now() - $1)) LIMIT $2
       FOR UPDATE SKIP LOCKED))";

/// The way to the writer. When it is dropped the writer finishes what waits, and ends.
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    patience: Duration,
    /// Told when nothing more is to be taken.
    stop: Arc<Notify>,
}

/// What the writer works with.
pub(super) struct Setting {
    pub(super) connector: Connector,
    pub(super) hub: Hub,
    pub(super) me: InstanceId,
    pub(super) counters: Arc<Counters>,
    /// An operation failed although the database was there, and nobody has looked since whether there is room.
    pub(super) in_trouble: Arc<AtomicBool>,
    pub(super) shard: i16,
    /// Tell other instances by NOTIFY.
    pub(super) notify: bool,
}

/// A connection that writes, with its statements.
pub(super) struct Session {
    pub(super) client: Client,
    statements: HashMap<&'static str, Statement>,
    begin: String,
}

/// An operation with someone who waits for its outcome. It can run several times; the last run counts.
pub(super) trait Job: Send {
    fn need(&self) -> &Need;
    /// Takes it out of the queue. `false` when its caller has given up on it; it must not run then.
    fn take(&self) -> bool;
    /// Puts it back into a queue.
    fn give_back(&self);
    /// Until when it may be tried.
    fn deadline(&self) -> Instant;
    /// `Err` when the transaction must be rolled back.
    fn apply(&mut self, batch: &mut Batch) -> Result<()>;
    /// Tells the caller. Only the first call has an effect.
    fn finish(&mut self, failure: Option<Error>);
}

/// Operations in the order in which they came.
pub(super) type Jobs = Vec<Box<dyn Job>>;

struct Call<T, F> {
    op: F,
    need: Need,
    place: Arc<AtomicU8>,
    deadline: Instant,
    waiter: Waiter<T>,
}

/// Where a job is: in the queue, with the writer, or given up by its caller.
const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const LEFT: u8 = 2;

/// Why an attempt at a batch has not succeeded.
enum Failure {
    /// The connection is gone, and nothing was committed.
    Lost(Error),
    /// The connection is gone, and the batch may have been committed.
    Doubt(Uuid, Box<Batch>),
    /// It collided with another transaction and may well succeed the next time.
    Collision(Error),
    /// A lock was not free in time.
    Locked(Error),
    /// One of the operations, or the whole of it, does not work.
    Batch(Error),
}

/// Operations that have not run because of a lock.
pub(super) struct Locked {
    pub(super) jobs: Jobs,
    pub(super) error: Error,
}

struct Task {
    jobs: mpsc::Receiver<Box<dyn Job>>,
    waiting: FairQueue<Box<dyn Job>>,
    /// How many operations wait here at most; more stay in the channel.
    room: usize,
    stop: Arc<Notify>,
    committer: Committer,
    blocked: BlockedTenants,
    /// Lives as long as the writer does.
    _alive: oneshot::Sender<()>,
}

/// Commits batches over a connection of its own, one after the other.
pub(super) struct Committer {
    setting: Arc<Setting>,
    session: Option<Session>,
    /// Maximum time for which a transaction waits for a lock; `None` leaves it to the session.
    pub(super) lock_wait: Option<&'static str>,
    /// Negative control for crash tests: callers are told before the commit.
    ack_before_commit: bool,
}

impl Writer {
    /// Starts the writer; the receiver hears when it has ended.
    pub(super) fn start(setting: Setting, queue: usize, patience: Duration) -> (Self, oneshot::Receiver<()>) {
        let (sender, jobs) = mpsc::channel(queue);
        let (alive, ended) = oneshot::channel();
        let stop = Arc::new(Notify::new());
        let setting = Arc::new(setting);
        let task = Task {
            jobs,
            waiting: FairQueue::new(BATCH),
            room: queue.max(BATCH.operations),
            stop: Arc::clone(&stop),
            committer: Committer::new(Arc::clone(&setting), LOCK_WAIT),
            blocked: BlockedTenants::new(setting),
            _alive: alive,
        };
        tokio::spawn(task.run());
        (Self { jobs: sender, patience, stop }, ended)
    }

    /// Takes no more. What waits is written, and then the writer ends.
    pub(super) fn close(&self) {
        self.stop.notify_one();
    }

    /// Runs an operation in the next transaction and returns when that is committed.
    pub(super) async fn run<T, F>(&self, need: Need, op: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Batch) -> Result<T> + Send + 'static,
    {
        let closed = || Error::Unavailable("the writer has stopped".into());
        let deadline = Instant::now() + self.patience;
        let place = Arc::new(AtomicU8::new(QUEUED));
        let (reply, mut outcome) = oneshot::channel();
        let job = Call { op, need, place: Arc::clone(&place), deadline, waiter: Waiter::new(reply) };
        match timeout_at(deadline, self.jobs.send(Box::new(job))).await {
            Ok(sent) => sent.map_err(|_| closed())?,
            Err(_) => return Err(silent()),
        }
        match timeout_at(deadline, &mut outcome).await {
            Ok(outcome) => outcome.map_err(|_| closed())?,
            // Who leaves the queue in time is not applied. Otherwise the writer has it, and will tell.
            Err(_) if place.compare_exchange(QUEUED, LEFT, SeqCst, SeqCst).is_ok() => Err(silent()),
            Err(_) => outcome.await.map_err(|_| closed())?,
        }
    }
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Batch) -> Result<T> + Send,
{
    fn need(&self) -> &Need {
        &self.need
    }

    fn take(&self) -> bool {
        self.place.compare_exchange(QUEUED, TAKEN, SeqCst, SeqCst).is_ok()
    }

    fn give_back(&self) {
        self.place.store(QUEUED, SeqCst);
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn apply(&mut self, batch: &mut Batch) -> Result<()> {
        let before = batch.writes();
        let outcome = (self.op)(batch);
        self.waiter.keep(outcome, batch.writes() != before)
    }

    fn finish(&mut self, failure: Option<Error>) {
        self.waiter.finish(failure);
    }
}

impl Session {
    pub(super) async fn open(connector: &Connector) -> Result<Self> {
        let client = connector.open(Role::Write).await?;
        let mut statements = HashMap::new();
        client.batch_execute(SET_UP).await?;
        for sql in fetch::statements().into_iter().chain(flush::statements()).chain([SWEEP_KEYS, SWEEP_COMMITS]) {
            statements.insert(sql, client.prepare(sql).await?);
        }
        Ok(Self { client, statements, begin: "BEGIN".into() })
    }

    pub(super) async fn begin(&self) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&self.begin).await
    }

    /// Sets how long the transactions that follow wait for a lock.
    fn set_lock_wait(&mut self, wait: Option<&str>) {
        self.begin = wait.map_or_else(|| "BEGIN".into(), |wait| format!("BEGIN; SET LOCAL lock_timeout = '{wait}'"));
    }

    /// Runs one of the statements that were prepared.
    pub(super) async fn query(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self.statements.get(sql) {
            Some(statement) => self.client.query(statement, values).await,
            None => self.client.query(sql, values).await,
        }
    }

    /// The same, if there is any need.
    pub(super) async fn query_if(
        &self,
        needed: bool,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if needed { self.query(sql, values).await } else { Ok(Vec::new()) }
    }

    pub(super) async fn execute(&self, sql: &'static str, values: Values<'_>) -> Result<u64, tokio_postgres::Error> {
        match self.statements.get(sql) {
            Some(statement) => self.client.execute(statement, values).await,
            None => self.client.execute(sql, values).await,
        }
    }
}

impl Task {
    async fn run(mut self) {
        let mut sweeps = tokio::time::interval(SWEEP);
        sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    // Before the next job: whoever goes on calling must not keep it from ending.
                    () = self.stop.notified() => self.jobs.close(),
                    first = self.jobs.recv() => match first {
                        Some(first) => self.waiting.push(first.need().cost, first),
                        None => return self.blocked.finish().await,
                    },
                    _ = sweeps.tick() => self.committer.sweep().await,
                }
            } else {
                tokio::select! {
                    biased;
                    () = self.stop.notified() => self.jobs.close(),
                    () = std::future::ready(()) => {}
                }
            }
            self.run_next().await;
        }
    }

    /// Takes in what has come since, and runs the next batch.
    async fn run_next(&mut self) {
        while self.waiting.len() < self.room {
            let Ok(job) = self.jobs.try_recv() else { break };
            self.waiting.push(job.need().cost, job);
        }
        let mut jobs = self.blocked.hand_over(self.waiting.take());
        jobs.retain(|job| job.take());
        if let Err(locked) = self.committer.process(jobs).await {
            self.run_by_tenant(locked).await;
        }
    }

    /// Runs the operations of each tenant in a transaction of their own. Those that meet a lock once more are written apart.
    async fn run_by_tenant(&mut self, Locked { jobs, error }: Locked) {
        let mut by_tenant: Vec<(Option<TenantId>, Jobs)> = Vec::new();
        for job in jobs {
            let tenant = job.need().cost.tenant;
            match by_tenant.iter_mut().find(|(other, _)| *other == tenant) {
                Some((_, jobs)) => jobs.push(job),
                None => by_tenant.push((tenant, vec![job])),
            }
        }
        tracing::debug!(%error, tenants = by_tenant.len(), "a transaction waited for a lock in vain");
        if let [(tenant, jobs)] = &mut by_tenant[..] {
            return self.blocked.add(*tenant, mem::take(jobs));
        }
        self.committer.lock_wait = LOCK_WAIT_AGAIN;
        for (tenant, jobs) in by_tenant {
            if let Err(locked) = self.committer.process(jobs).await {
                self.blocked.add(tenant, locked.jobs);
                self.committer.lock_wait = LOCK_WAIT_LEAST;
            }
        }
        self.committer.lock_wait = LOCK_WAIT;
    }
}

impl Committer {
    pub(super) fn new(setting: Arc<Setting>, lock_wait: Option<&'static str>) -> Self {
        Self { setting, session: None, lock_wait, ack_before_commit: fault::is_on("ack-before-commit") }
    }

    /// Brings every job to its end, whatever it takes, except for those that meet a lock and those of the same tenants behind them.
    pub(super) async fn process(&mut self, mut jobs: Jobs) -> Result<(), Locked> {
        let mut pause = FIRST_PAUSE;
        let mut collisions = 0;
        while !jobs.is_empty() {
            match self.attempt(&mut jobs).await {
                Ok(()) => {
                    finish(&mut jobs, None);
                    return Ok(());
                }
                Err(Failure::Lost(error)) => {
                    self.session = None;
                    // Nothing is in doubt here: who has no more time can be refused.
                    let now = Instant::now();
                    for job in jobs.iter_mut().filter(|job| job.deadline() <= now + pause) {
                        job.finish(Some(Error::Unavailable(error.to_string())));
                    }
                    jobs.retain(|job| job.deadline() > now + pause);
                    tracing::warn!(%error, waiting = jobs.len(), "the journal has lost its database");
                    if !jobs.is_empty() {
                        sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
                Err(Failure::Doubt(id, batch)) => match self.settle(id, batch.now).await {
                    Some(Settled::Committed) => {
                        self.publish(&batch);
                        finish(&mut jobs, None);
                        return Ok(());
                    }
                    Some(Settled::Void) => {}
                    None => {
                        finish(&mut jobs, Some(&silent()));
                        return Ok(());
                    }
                },
                Err(Failure::Collision(error)) if collisions < TRIES => {
                    tracing::debug!(%error, "a transaction runs again");
                    collisions += 1;
                }
                Err(Failure::Locked(error)) => return Err(Locked { jobs, error }),
                Err(Failure::Collision(error) | Failure::Batch(error)) if jobs.len() == 1 => {
                    self.note_trouble();
                    jobs[0].finish(Some(error));
                    return Ok(());
                }
                Err(Failure::Collision(error) | Failure::Batch(error)) => {
                    tracing::warn!(%error, jobs = jobs.len(), "a transaction failed, running its operations one by one");
                    return self.process_each(jobs).await;
                }
            }
        }
        Ok(())
    }

    /// Runs each job in a transaction of its own.
    async fn process_each(&mut self, jobs: Jobs) -> Result<(), Locked> {
        let mut locked: Option<Locked> = None;
        for job in jobs {
            let tenant = job.need().cost.tenant;
            if let Some(locked) = &mut locked
                && locked.jobs.iter().any(|before| before.need().cost.tenant == tenant)
            {
                // It keeps its place behind the one that waits.
                locked.jobs.push(job);
                continue;
            }
            if let Err(met) = Box::pin(self.process(vec![job])).await {
                match &mut locked {
                    Some(locked) => locked.jobs.extend(met.jobs),
                    None => locked = Some(met),
                }
            }
        }
        locked.map_or(Ok(()), Err)
    }

    /// Notes that an operation failed although the database is there.
    pub(super) fn note_trouble(&self) {
        self.setting.in_trouble.store(true, Relaxed);
    }

    /// One transaction. After an error other than [`Failure::Doubt`] nothing of it is left.
    async fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            let opened = timeout(OPEN, Session::open(&self.setting.connector)).await;
            self.session = Some(opened.unwrap_or_else(|_| Err(silent())).map_err(Failure::Lost)?);
        }
        if let Some(session) = &mut self.session {
            session.set_lock_wait(self.lock_wait);
        }
        let Some(session) = &self.session else { return Err(Failure::Lost(silent())) };
        let mut needs = Needs::default();
        for job in jobs.iter() {
            needs.add(job.need());
        }
        let mut batch = Batch::new();
        let fetched = timeout(PHASE, Box::pin(fetch::fetch(session, &needs, &mut batch))).await;
        let Ok(fetched) = fetched else { return Err(Failure::Lost(silent())) };
        let applied = match fetched {
            Ok(()) => jobs.iter_mut().try_for_each(|job| job.apply(&mut batch)).map_err(Failure::Batch),
            Err(Trouble::Server(error)) => Err(sort(error)),
            Err(Trouble::Other(error)) => Err(Failure::Batch(error)),
            Err(Trouble::Near) => Err(Failure::Collision(Error::Unavailable("the tenant is at its bound".into()))),
        };
        self.setting.counters.locked(batch.quota_locks);
        if applied.is_err() || batch.writes() == 0 {
            // Nothing to make durable: no sync.
            let rolled_back = timeout(PHASE, session.client.batch_execute("ROLLBACK")).await;
            if !matches!(rolled_back, Ok(Ok(()))) {
                // What is refused or answered here was not written, whatever became of the connection.
                self.session = None;
            }
            return applied;
        }

        let news = flush::news(&batch);
        let notice = (self.setting.notify && !news.is_empty()).then(|| news.encode(self.setting.me));
        let seal = Seal { id: Uuid::new_v4(), shard: self.setting.shard, notice: notice.as_deref() };
        if self.ack_before_commit {
            finish(jobs, None);
            sleep(Duration::from_millis(50)).await;
        }
        match timeout(PHASE, Box::pin(flush::flush(session, &batch, &seal))).await {
            Ok(Ok(())) => {
                self.publish(&batch);
                Ok(())
            }
            Ok(Err(error)) if !is_gone(&error) && !session.client.is_closed() => Err(sort(error)),
            Ok(Err(_)) | Err(_) => {
                self.session = None;
                Err(Failure::Doubt(seal.id, Box::new(batch)))
            }
        }
    }

    /// Looks for the outcome of a commit until it is known. `None` when there is no hope of that: an id is kept for an
    /// hour of the server's time, and one that is older (this process was stopped meanwhile) says nothing by not being there.
    async fn settle(&mut self, id: Uuid, written: LeaseTime) -> Option<Settled> {
        let deadline = Instant::now() + DOUBT;
        let mut pause = FIRST_PAUSE;
        while Instant::now() < deadline {
            let settled = timeout(PHASE, async {
                let session = Session::open(&self.setting.connector).await?;
                // The transaction may still be running.
                session.client.batch_execute("SET lock_timeout = '3s'").await?;
                Ok::<_, Error>(flush::settle(&session, id).await?)
            });
            match settled.await.unwrap_or_else(|_| Err(silent())) {
                Ok((Settled::Void, now)) if now.since(written) > COMMITS_KEPT / 2 => break,
                Ok((settled, _)) => {
                    tracing::info!(commit.id = %id, outcome = ?settled, "a commit without an answer was looked up");
                    return Some(settled);
                }
                Err(error) => tracing::warn!(commit.id = %id, %error, "the outcome of a commit is not known yet"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        tracing::error!(commit.id = %id, "the outcome of a commit stays unknown");
        None
    }

    /// Tells of what was committed.
    fn publish(&self, batch: &Batch) {
        self.setting.counters.committed(batch.events.len());
        let hub = &self.setting.hub;
        for (task, event) in &batch.events {
            hub.publish(*task, event);
        }
        if !batch.events.is_empty() {
            hub.log_grew();
        }
        if batch.poke {
            hub.poke();
        }
        if !batch.owed.is_empty() {
            self.setting.counters.owed(batch.owed.len());
            hub.poke_outbox();
        }
        hub.tell(|| flush::news(batch));
    }

    /// Removes what nobody looks up any more. Other instances do the same; what one has locked the others pass over.
    async fn sweep(&mut self) {
        let Some(session) = &self.session else { return };
        match timeout(PHASE, sweep(session)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "sweeping failed"),
            Err(_) => self.session = None,
        }
    }
}

async fn sweep(session: &Session) -> Result<(), tokio_postgres::Error> {
    let kept = i64::try_from(COMMITS_KEPT.as_millis()).unwrap_or(i64::MAX);
    session.execute(SWEEP_KEYS, &[&SWEEP_ROWS]).await?;
    session.execute(SWEEP_COMMITS, &[&kept, &SWEEP_ROWS]).await?;
    Ok(())
}

/// What to do about an error of the server's, before anything was committed.
fn sort(error: tokio_postgres::Error) -> Failure {
    if is_gone(&error) {
        return Failure::Lost(Error::Unavailable(error.to_string()));
    }
    let code = error.code().cloned();
    let error = Error::from(error);
    match code {
        Some(SqlState::T_R_DEADLOCK_DETECTED | SqlState::T_R_SERIALIZATION_FAILURE) => Failure::Collision(error),
        Some(SqlState::LOCK_NOT_AVAILABLE) => Failure::Locked(error),
        _ => Failure::Batch(error),
    }
}

/// Whether the session has ended with this error, for whatever reason the server gives.
fn is_gone(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    is_lost(error) || matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

fn finish(jobs: &mut [Box<dyn Job>], failure: Option<&Error>) {
    for job in jobs {
        job.finish(failure.map(|error| Error::Unavailable(error.to_string())));
    }
}

fn silent() -> Error {
    Error::Unavailable("the database does not answer".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskId, clock, postgres::testing};

    #[tokio::test]
    async fn only_what_is_old_is_swept() {
        let database = testing::database().await;
        let session = Session::open(&database.connector()).await.unwrap();
        let now = clock::now().as_millis();
        let hour = i64::try_from(COMMITS_KEPT.as_millis()).unwrap();
        // Void ones have a negative time.
        for at in [now, now - hour + 60_000, now - hour - 1, -now, -(now - hour + 60_000), -(now - hour - 1)] {
            session.client.execute("INSERT INTO commits VALUES ($1, $2)", &[&Uuid::new_v4(), &at]).await.unwrap();
        }
        for (key, expires) in [(1_u8, Some(now - 1)), (2, Some(now + 60_000)), (3, None)] {
            let insert = "INSERT INTO idempotency VALUES (1, $1, '', gen_random_uuid(), 1, $2)";
            session.client.execute(insert, &[&vec![key], &expires]).await.unwrap();
        }
        sweep(&session).await.unwrap();
        let kept = session.client.query("SELECT abs(at) FROM commits ORDER BY abs(at)", &[]).await.unwrap();
        let kept: Vec<i64> = kept.iter().map(|row| row.get(0)).collect();
        assert_eq!(kept, [now - hour + 60_000, now - hour + 60_000, now, now]);
        let keys = session.client.query("SELECT key FROM idempotency ORDER BY key", &[]).await.unwrap();
        let keys: Vec<Vec<u8>> = keys.iter().map(|row| row.get(0)).collect();
        assert_eq!(keys, [[2], [3]]);
    }

    #[tokio::test]
    async fn settling_twice_says_the_same() {
        let database = testing::database().await;
        let session = Session::open(&database.connector()).await.unwrap();
        let now = clock::now().as_millis();
        let (never, done) = (Uuid::new_v4(), Uuid::new_v4());
        session.client.execute("INSERT INTO commits VALUES ($1, $2)", &[&done, &now]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(flush::settle(&session, never).await.unwrap().0, Settled::Void);
            assert_eq!(flush::settle(&session, done).await.unwrap().0, Settled::Committed);
        }
        // And the batch that comes too late cannot be committed any more.
        let late = session.client.execute("INSERT INTO commits VALUES ($1, $2)", &[&never, &now]).await;
        assert!(late.is_err());
    }

    /// The operations of a tenant whose lock another session holds, and those of others beside them.
    struct Held {
        database: testing::Database,
        store: Arc<dyn crate::Store>,
        holder: Client,
        blocked: TenantId,
        other: TenantId,
    }

    impl Held {
        async fn start() -> Self {
            let database = testing::database().await;
            let store = crate::postgres::open(&database.url, crate::postgres::Options::default()).await.unwrap();
            let blocked = store.create_tenant("blocked").await.unwrap().id;
            let other = store.create_tenant("other").await.unwrap().id;
            let holder = database.client().await;
            let held = Self { database, store, holder, blocked, other };
            // Opens the writer's connection.
            held.accept(other, TaskId::mint()).await.unwrap().unwrap();
            held
        }

        async fn lock(&self) {
            let lock = self.blocked.0 ^ fetch::QUOTA_LOCKS;
            self.holder.execute("SELECT pg_advisory_lock($1)", &[&lock]).await.unwrap();
        }

        async fn unlock(&self) {
            self.holder.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        }

        fn accept(&self, tenant: TenantId, task: TaskId) -> tokio::task::JoinHandle<Result<crate::Accepted>> {
            let store = Arc::clone(&self.store);
            tokio::spawn(async move { store.accept(tenant, fetch::tests::accept(task, 1000)).await })
        }
    }

    #[tokio::test]
    async fn one_tenants_lock_holds_up_no_other_tenant() {
        let held = Held::start().await;
        held.lock().await;
        let begun = Instant::now();
        let waiting: Vec<_> = (0..6).map(|_| held.accept(held.blocked, TaskId::mint())).collect();
        let mut longest = Duration::ZERO;
        while !waiting[0].is_finished() {
            let asked = Instant::now();
            held.accept(held.other, TaskId::mint()).await.unwrap().unwrap();
            longest = longest.max(asked.elapsed());
            sleep(Duration::from_millis(5)).await;
        }
        assert!(begun.elapsed() >= Duration::from_secs(3), "the tenant itself waits for its lock");
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        for waiting in waiting {
            let refused = waiting.await.unwrap().unwrap_err();
            assert!(matches!(&refused, Error::Unavailable(why) if why.contains("55P03")), "{refused}");
        }
        // Those that follow do not stop the others either.
        let late = held.accept(held.blocked, TaskId::mint());
        let asked = Instant::now();
        held.accept(held.other, TaskId::mint()).await.unwrap().unwrap();
        assert!(asked.elapsed() < Duration::from_millis(150), "{:?}", asked.elapsed());
        held.unlock().await;
        late.await.unwrap().unwrap();
    }

    /// Each of another tenant's tasks has two commits, which wait for one transaction each.
    #[tokio::test]
    async fn large_messages_of_one_tenant_hold_up_no_other_tenant() {
        let held = Held::start().await;
        let large: Vec<_> = (0..24)
            .map(|_| {
                let (store, tenant) = (Arc::clone(&held.store), held.blocked);
                let message = format!("\"{}\"", "x".repeat(4 << 20)).into();
                let accept = crate::Accept { message, ..fetch::tests::accept(TaskId::mint(), 1000) };
                tokio::spawn(async move { store.accept(tenant, accept).await })
            })
            .collect();
        let mut longest = Duration::ZERO;
        while !large.iter().all(tokio::task::JoinHandle::is_finished) {
            let asked = Instant::now();
            held.accept(held.other, TaskId::mint()).await.unwrap().unwrap();
            held.accept(held.other, TaskId::mint()).await.unwrap().unwrap();
            longest = longest.max(asked.elapsed());
        }
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        for large in large {
            large.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn operations_of_a_tenant_that_waits_for_its_lock_keep_their_order() {
        let held = Held::start().await;
        held.lock().await;
        let tasks: Vec<_> = (0..40).map(|_| TaskId::mint()).collect();
        let mut waiting = Vec::new();
        for task in &tasks {
            waiting.push(held.accept(held.blocked, *task));
            // Some of them come while the writer waits, some later, some when the lock is free.
            sleep(Duration::from_millis(20)).await;
            if waiting.len() == 30 {
                held.unlock().await;
            }
        }
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        let rows = held.database.client().await;
        let rows = rows.query("SELECT task FROM a2a_events WHERE seq = 1 ORDER BY pos", &[]).await.unwrap();
        let written: Vec<_> = rows.iter().map(|row| fetch::task_id(row.get(0))).collect();
        assert_eq!(written[written.len() - tasks.len()..], tasks, "in the order in which they came");
    }

    #[tokio::test]
    async fn what_waits_for_a_lock_is_written_before_the_writer_ends() {
        let held = Held::start().await;
        held.lock().await;
        let waiting = held.accept(held.blocked, TaskId::mint());
        sleep(Duration::from_millis(500)).await;
        let unlocked = async {
            sleep(Duration::from_millis(300)).await;
            held.unlock().await;
        };
        tokio::join!(held.store.close(), unlocked);
        waiting.await.unwrap().unwrap();
    }
}
