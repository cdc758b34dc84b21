//! The turns that run here: known by their task, told when they are canceled or have lost their lease, ended before
//! another turn of the same task begins.
//!
//! A turn is one future on the runtime. It owns a slot of its agent and a lease of its task, and it
//! writes only under that lease: whoever took the task over in the meantime is not disturbed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use store::{Lease, TaskId, fault};
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Entry, Inner, aftermath, registry::Slot, turn};

/// How long turns that are to stop may take to write what is needed for another to go on.
const FAREWELL: Duration = Duration::from_secs(5);

/// The turns that run here.
#[derive(Default)]
pub(crate) struct Workers {
    tasks: Mutex<Tasks>,
    /// A slot became free that others may be waiting for.
    pub(crate) freed: Notify,
    /// A task has ended otherwise than as COMPLETED, and others may still work for it.
    pub(crate) cut_short: Notify,
    /// Set when the grace of a shutdown is over: turns are given back.
    release: CancellationToken,
    /// Set when there is no more time for that either.
    abandon: CancellationToken,
    /// Set when no turn runs any more and none will.
    over: CancellationToken,
    /// The loops of the scheduler.
    pub(crate) loops: TaskTracker,
}

/// Ordered, so that a story of the simulation makes the same calls whenever it is played.
#[derive(Default)]
struct Tasks {
    running: BTreeMap<TaskId, Running>,
    /// Tasks of messages that are being accepted: they may have a lease of ours already that nobody has told us of.
    starting: BTreeMap<TaskId, usize>,
}

/// One turn that runs here.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) lease: Lease,
    /// It is to stop, because its task is canceled.
    pub(crate) cancel: CancellationToken,
    /// It is no longer its lease's.
    pub(crate) lost: CancellationToken,
    /// It has come to an end here.
    ended: CancellationToken,
    /// The turn of the same task that was known here before, and may not have ended yet.
    before: Option<CancellationToken>,
}

/// What a leased turn begins with.
pub(crate) struct Begin {
    pub(crate) turn: store::Turn,
    /// An earlier attempt was cut off.
    pub(crate) interrupted: bool,
    /// It was parked.
    pub(crate) rested: bool,
    /// When the lease was asked for. It may have been given, and have run out, long before anyone here hears of it.
    pub(crate) asked: Instant,
}

/// A message is being accepted for this task.
pub(crate) struct Starting<'a> {
    workers: &'a Workers,
    task: TaskId,
}

impl Workers {
    /// Tells a turn that runs here to stop.
    pub(crate) fn cancel(&self, task: TaskId) {
        if let Some(running) = self.lock().running.get(&task) {
            running.cancel.cancel();
        }
    }

    /// Returns when running turns are given back.
    pub(crate) async fn released(&self) {
        self.release.cancelled().await;
    }

    /// Whether running turns are given back.
    pub(crate) fn is_releasing(&self) -> bool {
        self.release.is_cancelled()
    }

    /// Returns when nothing is worth waiting for any more.
    pub(crate) async fn abandoned(&self) {
        self.abandon.cancelled().await;
    }

    /// Returns when no turn runs any more and none will.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Says that a lease of this task may be about to be given to this instance.
    pub(crate) fn starting(&self, task: TaskId) -> Starting<'_> {
        *self.lock().starting.entry(task).or_default() += 1;
        Starting { workers: self, task }
    }

    /// The leases of all turns that run here.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.lock().running.values().map(|running| running.lease.clone()).collect()
    }

    /// The tasks whose turns run here or are about to.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let tasks = self.lock();
        tasks.running.keys().chain(tasks.starting.keys()).copied().collect()
    }

    /// Tells the turns of these leases that they have lost them.
    pub(crate) fn lose(&self, lost: &[Lease]) {
        let tasks = self.lock();
        for lease in lost {
            if let Some(running) = tasks.running.get(&lease.task).filter(|running| running.lease == *lease) {
                running.lost.cancel();
            }
        }
    }

    /// Makes a leased turn known: from here on it can be canceled and its lease is renewed. Of two turns of one task the
    /// older one is told that it has lost its lease.
    pub(crate) fn register(&self, lease: Lease) -> Running {
        let mut running = Running {
            lease,
            cancel: CancellationToken::new(),
            lost: CancellationToken::new(),
            ended: CancellationToken::new(),
            before: None,
        };
        let mut tasks = self.lock();
        match tasks.running.get(&running.lease.task) {
            Some(newer) if newer.lease.generation > running.lease.generation => {
                running.lost.cancel();
                return running;
            }
            Some(older) if !fault::is_on("takes-own") => {
                older.lost.cancel();
                running.before = Some(older.ended.clone());
            }
            _ => {}
        }
        tasks.running.insert(running.lease.task, running.clone());
        running
    }

    fn remove(&self, running: &Running) {
        let mut tasks = self.lock();
        // The task may already run here again under a newer lease.
        if tasks.running.get(&running.lease.task).is_some_and(|now| now.lease.generation == running.lease.generation) {
            tasks.running.remove(&running.lease.task);
        }
        drop(tasks);
        running.ended.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let mut tasks = self.workers.lock();
        if let Some(count) = tasks.starting.get_mut(&self.task) {
            *count -= 1;
            if *count == 0 {
                tasks.starting.remove(&self.task);
            }
        }
    }
}

/// Runs a registered turn, and those that wait behind it.
pub(crate) async fn run(inner: Arc<Inner>, entry: Arc<Entry>, running: Running, begin: Begin, slot: Slot) {
    // Not both at once, whatever the leases say.
    if let Some(before) = &running.before {
        before.cancelled().await;
    }
    turn::drive(&inner, &entry, &running, begin).await;
    if running.lost.is_cancelled() && entry.profile.tells_cancel {
        aftermath::owe_again(&inner, &running.lease).await;
    }
    inner.workers.remove(&running);
    // Somebody may wait for the slot, or for this tenant to have one less.
    let was_full = entry.lane.slots.available_permits() == 0 || slot.was_last(inner.has_tenants.load(Relaxed));
    drop(slot);
    if was_full {
        inner.workers.freed.notify_one();
    }
}

/// Whether the lease still holds. It is asked immediately before an agent begins: nothing that takes time may come between.
///
/// A lease that was granted or renewed by a call made less than a third of its time ago holds. An older one is renewed first,
/// since its work may have been taken over meanwhile. So is one whose renewal took that long to be answered.
pub(crate) async fn is_held(inner: &Inner, running: &Running, asked: Instant) -> bool {
    let lease = inner.options.lease;
    let mut is_recent = asked.elapsed() < lease / 3;
    while !is_recent {
        if running.lost.is_cancelled() || inner.workers.is_releasing() {
            return false;
        }
        let asked = Instant::now();
        match inner.store.renew(std::slice::from_ref(&running.lease), lease).await {
            Ok(lost) if lost.is_empty() => is_recent = asked.elapsed() < lease / 3,
            Ok(_) => {
                tracing::info!(task.id = %running.lease.task, "a turn was taken over before it began here");
                return false;
            }
            Err(error) => {
                tracing::warn!(error = %error, "a lease that came late cannot be looked after yet");
                tokio::select! {
                    biased;
                    () = running.lost.cancelled() => {}
                    () = inner.workers.released() => {}
                    () = tokio::time::sleep(lease / 24) => {}
                }
            }
        }
    }
    !running.lost.is_cancelled()
}

/// Stops taking work, waits for what runs, and gives back what does not end in time.
pub(crate) async fn shut_down(inner: &Inner, grace: Duration) {
    inner.draining.cancel();
    inner.tracker.close();
    let workers = &inner.workers;
    if tokio::time::timeout(grace, inner.tracker.wait()).await.is_err() {
        tracing::info!(turns = inner.tracker.len(), "giving back turns that did not end in time");
        workers.release.cancel();
        if tokio::time::timeout(FAREWELL, inner.tracker.wait()).await.is_err() {
            tracing::warn!(turns = inner.tracker.len(), "turns did not stop; others take them over as after a crash");
        }
    }
    workers.release.cancel();
    workers.abandon.cancel();
    workers.over.cancel();
    workers.loops.close();
    if tokio::time::timeout(FAREWELL, workers.loops.wait()).await.is_err() {
        tracing::warn!(loops = workers.loops.len(), "the journal does not answer; going without it");
    }
}
