//! Writing for tenants whose locks another session holds.
//!
//! The writer waits for a lock only briefly, because no other tenant can commit meanwhile. The operations of a tenant that has
//! to wait for longer are written here: in order, in transactions that hold nothing of another tenant, over a connection of
//! their own. Until all of them have ended, those that come later line up behind them, so that a tenant's operations keep
//! their order and a tenant has at most one transaction of this instance at a time, on which the argument about bounds in
//! [`super::fetch`] rests. Each transaction takes its locks in the order of all others.
//!
//! A tenant that has waited in vain stays here for a while ([`STAY`]): its next operation would only stop the others again.
//! Not more than [`CONNECTIONS`] tenants write here at once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::{
        Semaphore,
        mpsc::{self, error::TrySendError},
    },
    task::JoinSet,
    time::Instant,
};

use super::writer::{BATCH, Committer, Job, Jobs, Locked, Setting};
use crate::{Error, TenantId, fair::FairQueue};

/// Maximum number of connections that wait for locks.
pub(super) const CONNECTIONS: usize = 4;

/// Maximum number of operations of one tenant that wait here. Further ones are refused.
const MOST_WAITING: usize = 1024;

/// How long a tenant stays that has waited in vain.
const STAY: Duration = Duration::from_secs(30);

/// Maximum time for which a transaction waits for a lock.
const LOCK_WAIT: Option<&str> = Some("3s");
/// The same for each of its operations after that.
const LOCK_WAIT_AGAIN: Option<&str> = Some("500ms");
/// The same after one of them has waited in vain once more.
const LOCK_WAIT_LEAST: Option<&str> = Some("5ms");

/// The tenants that are written for apart from all others; `None` is the server's own work.
pub(super) struct BlockedTenants {
    setting: Arc<Setting>,
    tenants: HashMap<Option<TenantId>, BlockedTenant>,
    connections: Arc<Semaphore>,
    running: JoinSet<()>,
}

struct BlockedTenant {
    jobs: mpsc::Sender<Box<dyn Job>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Number of operations that have not ended. Only the owner of the sender adds to it.
    waiting: AtomicUsize,
    /// When an operation last waited for its lock in vain, unless one has succeeded since.
    locked: Mutex<Option<Instant>>,
}

impl BlockedTenants {
    pub(super) fn new(setting: Arc<Setting>) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Self { setting, tenants: HashMap::new(), connections, running: JoinSet::new() }
    }

    /// Takes the operations of tenants that are written for here, and returns the others.
    pub(super) fn hand_over(&mut self, jobs: Jobs) -> Jobs {
        if self.tenants.is_empty() {
            return jobs;
        }
        self.tenants.retain(|_, tenant| tenant.is_here());
        while self.running.try_join_next().is_some() {}
        let mut others = Vec::new();
        for job in jobs {
            match self.tenants.get(&job.need().cost.tenant) {
                Some(tenant) => tenant.push(job),
                None => others.push(job),
            }
        }
        others
    }

    /// Writes for a tenant here, whose operations these are.
    pub(super) fn add(&mut self, tenant: Option<TenantId>, jobs: Jobs) {
        let (setting, connections) = (&self.setting, &self.connections);
        let blocked = self.tenants.entry(tenant).or_insert_with(|| {
            tracing::warn!(
                tenant.id = tenant.map(|tenant| tenant.0),
                "another session holds a lock that a tenant needs; the tenant waits"
            );
            let (sender, receiver) = mpsc::channel(MOST_WAITING);
            let progress = Arc::new(Progress::default());
            let run = run(receiver, Arc::clone(&progress), Arc::clone(setting), Arc::clone(connections));
            self.running.spawn(run);
            BlockedTenant { jobs: sender, progress }
        });
        for job in jobs {
            job.give_back();
            blocked.push(job);
        }
    }

    /// Returns when all operations have ended.
    pub(super) async fn finish(mut self) {
        self.tenants.clear();
        while self.running.join_next().await.is_some() {}
    }
}

impl BlockedTenant {
    fn is_here(&self) -> bool {
        self.progress.waiting.load(SeqCst) > 0 || self.progress.is_locked()
    }

    fn push(&self, job: Box<dyn Job>) {
        let why = "another session holds a lock of this tenant, and too many operations wait for it";
        let refuse = |mut job: Box<dyn Job>| job.finish(Some(Error::Unavailable(why.into())));
        if self.progress.waiting.load(SeqCst) >= MOST_WAITING {
            return refuse(job);
        }
        self.progress.waiting.fetch_add(1, SeqCst);
        // There is room: what the channel holds is a part of what waits.
        if let Err(TrySendError::Full(job) | TrySendError::Closed(job)) = self.jobs.try_send(job) {
            self.progress.waiting.fetch_sub(1, SeqCst);
            refuse(job);
        }
    }
}

impl Progress {
    fn is_locked(&self) -> bool {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        locked.is_some_and(|at| at.elapsed() < STAY)
    }

    fn set_locked(&self, is_locked: bool) {
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = is_locked.then(Instant::now);
    }
}

/// Runs the operations of one tenant until no more can come.
async fn run(
    mut jobs: mpsc::Receiver<Box<dyn Job>>,
    progress: Arc<Progress>,
    setting: Arc<Setting>,
    connections: Arc<Semaphore>,
) {
    let mut waiting = FairQueue::new(BATCH);
    loop {
        if waiting.is_empty() {
            let Some(first) = jobs.recv().await else { return };
            waiting.push(first.need().cost, first);
        }
        // It is never closed.
        let Ok(_connection) = connections.acquire().await else { return };
        while let Ok(job) = jobs.try_recv() {
            waiting.push(job.need().cost, job);
        }
        let mut batch = waiting.take();
        let taken = batch.len();
        batch.retain(|job| job.take());
        let mut committer = Committer::new(Arc::clone(&setting), LOCK_WAIT);
        progress.set_locked(process(&mut committer, batch).await);
        progress.waiting.fetch_sub(taken, SeqCst);
    }
}

/// Brings every operation to its end. Returns whether one has failed because of a lock.
async fn process(committer: &mut Committer, jobs: Jobs) -> bool {
    let Err(mut locked) = committer.process(jobs).await else { return false };
    if locked.jobs.len() > 1 {
        let Locked { jobs, error } = locked;
        tracing::warn!(%error, jobs = jobs.len(), "a transaction waited for a lock in vain, running its operations one by one");
        locked = Locked { jobs: Vec::new(), error };
        committer.lock_wait = LOCK_WAIT_AGAIN;
        for job in jobs {
            if let Err(again) = committer.process(vec![job]).await {
                locked.jobs.extend(again.jobs);
                committer.lock_wait = LOCK_WAIT_LEAST;
            }
        }
    }
    let Locked { jobs, error } = locked;
    let is_locked = !jobs.is_empty();
    if is_locked {
        committer.note_trouble();
    }
    let why = match error {
        Error::Unavailable(why) => why,
        other => other.to_string(),
    };
    for mut job in jobs {
        job.finish(Some(Error::Unavailable(why.clone())));
    }
    is_locked
}
