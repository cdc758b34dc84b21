//! Where workers wait: each is handed what there is for it, and nobody else is woken; whoever holds an entry hears when it is canceled.
//!
//! One loop claims for those who wait, in the order in which they came. A claim that nobody is there to take any more is given back.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use store::{AgentId, Append, Claim, Holder, Lease, LeaseTime, LeasedTurn, TaskId, TenantId, TurnEnd, Wish};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{lapse::requeue_lapsed, steps::Steps};
use crate::Inner;

/// After a look that found nothing the next one is so far away at least.
const PAUSE: Duration = Duration::from_millis(50);

/// A time without a look that is so much longer than the pause between two is one in which this instance did not run.
const AWAY: Duration = Duration::from_secs(1);

/// How long workers have to come back after an outage before leases that ran out in it count.
const COME_BACK: Duration = Duration::from_secs(6);

/// Those who wait.
#[derive(Default)]
pub(crate) struct Desk {
    inside: Mutex<Inside>,
    /// Somebody has come, or has made room.
    changed: Notify,
}

#[derive(Default)]
struct Inside {
    waiting: Vec<Waiting>,
    /// Whose entry of each agent was handed out last, here. The next tenant is first in line.
    served: HashMap<AgentId, TenantId>,
    /// From when on leases are seen to run out, and how long those that did before are left alone; nothing is known before the first look.
    calm: Option<(LeaseTime, Instant)>,
    /// When leases that ran out were looked for last.
    looked: Option<Instant>,
    /// How the store's clock runs beside a steady one.
    steps: Steps,
    /// Who wants to hear that a task is canceled.
    watched: HashMap<TaskId, Vec<(Holder, CancellationToken)>>,
}

struct Waiting {
    wish: Wish,
    claim: Claim,
    reply: oneshot::Sender<store::Result<Vec<LeasedTurn>>>,
}

/// What a worker was promised. When it goes away before it has looked, the work goes back.
pub(super) struct Promise {
    inner: Arc<Inner>,
    receiver: oneshot::Receiver<store::Result<Vec<LeasedTurn>>>,
}

/// Entries that were taken for somebody who does not know of them yet. Those that are left in it go back.
pub(super) struct Undelivered {
    inner: Arc<Inner>,
    pub(super) leases: Vec<Lease>,
}

impl Undelivered {
    pub(super) fn new(inner: &Arc<Inner>, leases: Vec<Lease>) -> Self {
        Self { inner: Arc::clone(inner), leases }
    }

    /// Gives all of them back and waits until that is done, on a task of its own: the caller may go away meanwhile.
    pub(super) async fn give_back(mut self) {
        let (inner, leases) = (Arc::clone(&self.inner), std::mem::take(&mut self.leases));
        let _ = self.inner.tracker.spawn(async move { give_back(&inner, leases).await }).await;
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        if !leases.is_empty() {
            let inner = Arc::clone(&self.inner);
            self.inner.tracker.spawn(async move { give_back(&inner, leases).await });
        }
    }
}

/// A wish to hear of a cancel, for as long as it is kept.
pub(super) struct Watching<'a> {
    desk: &'a Desk,
    task: TaskId,
    pub(super) canceled: CancellationToken,
}

impl Desk {
    /// Says that a task is canceled.
    pub(crate) fn cancel(&self, task: TaskId) {
        for (_, watching) in self.lock().watched.get(&task).into_iter().flatten() {
            watching.cancel();
        }
    }

    /// Whose entry of an agent was handed out last.
    pub(super) fn served(&self, agent: &AgentId) -> Option<TenantId> {
        self.lock().served.get(agent).copied()
    }

    /// Remembers whose entries were handed out.
    pub(super) fn serve_after(&self, leased: &[LeasedTurn]) {
        if let Some(last) = leased.last() {
            self.lock().served.insert(last.lease.agent.clone(), last.lease.tenant);
        }
    }

    /// From when on leases that ran out count: all of them, once those who were cut off with the store had time to come back. `None` before
    /// that is known.
    pub(super) fn lapses_since(&self) -> Option<LeaseTime> {
        let (since, until) = self.lock().calm?;
        Some(if Instant::now() < until { since } else { LeaseTime::default() })
    }

    /// The store has been away, or this instance: whoever held something may still be there.
    pub(super) fn set_calm(&self, calm: Option<LeaseTime>) {
        self.lock().calm = calm.map(|since| (since, Instant::now() + COME_BACK));
    }

    /// Notes a look for leases that ran out. When the one before is so long ago that this instance did not run in between, as when it was
    /// stopped or its machine was paused, its workers could not renew theirs: that is the same as if the store had been away.
    pub(super) fn note_look(&self, poll: Duration) {
        let now = Instant::now();
        let mut inside = self.lock();
        let before = inside.looked.replace(now);
        if before.is_some_and(|before| now.duration_since(before) > poll + AWAY) {
            inside.calm = None;
        }
    }

    /// How far the store's clock has stepped forward, if it has.
    pub(super) fn clock_step(&self, now: LeaseTime, asked: Instant) -> Option<Duration> {
        self.lock().steps.compare(now, asked, Instant::now())
    }

    /// Leases that a step of the clock has ended are prolonged.
    pub(super) fn settle_clock_step(&self) {
        self.lock().steps.forget();
    }

    /// There may be room for more of something.
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    /// Hears when a task of this holder is canceled.
    pub(super) fn watch(&self, task: TaskId, holder: &Holder) -> Watching<'_> {
        let canceled = CancellationToken::new();
        self.lock().watched.entry(task).or_default().push((holder.clone(), canceled.clone()));
        self.look();
        Watching { desk: self, task, canceled }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.canceled.cancel();
        let mut inside = self.desk.lock();
        if let Some(watched) = inside.watched.get_mut(&self.task) {
            watched.retain(|(_, watching)| !watching.is_cancelled());
            if watched.is_empty() {
                inside.watched.remove(&self.task);
            }
        }
    }
}

impl Promise {
    /// Claims now, on a task of its own: whoever asks may go away while it commits.
    pub(super) fn now(
        inner: &Arc<Inner>,
        claiming: impl Future<Output = store::Result<Vec<LeasedTurn>>> + Send + 'static,
    ) -> Self {
        let (reply, receiver) = oneshot::channel();
        let here = Arc::clone(inner);
        inner.tracker.spawn(async move {
            let claimed = claiming.await;
            hand_over(&here, reply, claimed).await;
        });
        Self { inner: Arc::clone(inner), receiver }
    }

    /// Claims when there is something.
    pub(super) fn later(inner: &Arc<Inner>, wish: Wish, claim: Claim) -> Self {
        let (reply, receiver) = oneshot::channel();
        inner.desk.lock().waiting.push(Waiting { wish, claim, reply });
        inner.desk.look();
        Self { inner: Arc::clone(inner), receiver }
    }

    /// What came of it within that time; nothing when nothing has.
    pub(super) async fn within(mut self, patience: Duration) -> store::Result<Vec<LeasedTurn>> {
        tokio::select! {
            biased;
            handed = &mut self.receiver => handed.unwrap_or_else(|_| Ok(Vec::new())),
            () = tokio::time::sleep(patience) => {
                self.receiver.close();
                // It may have come just now.
                self.receiver.try_recv().unwrap_or_else(|_| Ok(Vec::new()))
            }
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(leased)) = self.receiver.try_recv() {
            drop(Undelivered::new(&self.inner, leases_of(leased)));
        }
    }
}

async fn hand_over(
    inner: &Inner,
    reply: oneshot::Sender<store::Result<Vec<LeasedTurn>>>,
    claimed: store::Result<Vec<LeasedTurn>>,
) {
    if let Err(Ok(leased)) = reply.send(claimed) {
        give_back(inner, leases_of(leased)).await;
    }
}

fn leases_of(leased: Vec<LeasedTurn>) -> Vec<Lease> {
    leased.into_iter().map(|leased| leased.lease).collect()
}

async fn give_back(inner: &Inner, leases: Vec<Lease>) {
    for lease in leases {
        let end = Some(TurnEnd::Release { begun: false });
        if let Err(error) = inner.store.append(&lease, Append { end, ..Append::default() }).await {
            tracing::info!(task.id = %lease.task, %error, "an entry that nobody took waits for its lease to run out");
        }
    }
}

/// Serves those who wait, until the server stops.
pub(super) async fn serve(inner: Arc<Inner>) {
    let mut due = inner.store.hub().due();
    loop {
        due.mark_unchanged();
        let wait = match look_after(&inner).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "the queue cannot be looked at");
                Some(inner.options.poll)
            }
        };
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            () = inner.desk.changed.notified() => {}
            _ = due.changed(), if wait.is_some() => tokio::time::sleep(PAUSE / 10).await,
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// Hands out what there is. Says how long it is until another look is worth it; nobody waits when there is no such time.
async fn look_after(inner: &Arc<Inner>) -> store::Result<Option<Duration>> {
    tell_canceled(inner).await?;
    let wishes: Vec<Wish> = {
        let mut inside = inner.desk.lock();
        inside.waiting.retain(|waiting| !waiting.reply.is_closed());
        let distinct: HashSet<Wish> = inside.waiting.iter().map(|waiting| waiting.wish.clone()).collect();
        distinct.into_iter().collect()
    };
    let mut wait = (!inner.desk.lock().watched.is_empty()).then_some(inner.options.poll);
    if wishes.is_empty() {
        return Ok(wait);
    }
    let (now, times) = inner.store.next_queued(&wishes).await?;
    for (wish, time) in wishes.into_iter().zip(times) {
        let ahead = time.map_or(inner.options.poll, |time| time.since(now)).min(inner.options.poll);
        // What is due and cannot be had, because as much is held as may be, is looked at again when there is room, or after a while.
        let stuck = ahead.is_zero() && serve_wish(inner, &wish).await?;
        let next = if stuck { inner.options.poll } else { ahead.max(PAUSE) };
        wait = Some(wait.map_or(next, |wait| wait.min(next)));
    }
    Ok(wait)
}

/// Hands out what there is for a wish, to one after the other. Says whether anybody still waits although something is due.
async fn serve_wish(inner: &Arc<Inner>, wish: &Wish) -> store::Result<bool> {
    requeue_lapsed(inner, Some(wish.agent.clone())).await?;
    loop {
        let next = {
            let mut inside = inner.desk.lock();
            let place = inside.waiting.iter().position(|it| it.wish == *wish && !it.reply.is_closed());
            place.map(|place| inside.waiting.remove(place))
        };
        let Some(Waiting { wish, mut claim, reply }) = next else { return Ok(false) };
        let after = inner.desk.served(&wish.agent);
        claim.room.iter_mut().for_each(|room| room.after = after);
        match inner.store.claim(claim.clone()).await {
            Ok(leased) if leased.is_empty() => {
                inner.desk.lock().waiting.insert(0, Waiting { wish, claim, reply });
                return Ok(true);
            }
            Ok(leased) => {
                if wish.tenant.is_none() {
                    inner.desk.serve_after(&leased);
                }
                hand_over(inner, reply, Ok(leased)).await;
            }
            // It takes room by itself, and says when it has; the others wait until then.
            Err(error @ store::Error::Heavy { .. }) => {
                hand_over(inner, reply, Err(error)).await;
                return Ok(true);
            }
            Err(error) => {
                inner.desk.lock().waiting.insert(0, Waiting { wish, claim, reply });
                return Err(error);
            }
        }
    }
}

/// Tells those who asked that their tasks are canceled.
async fn tell_canceled(inner: &Inner) -> store::Result<()> {
    let holders: HashSet<Holder> =
        inner.desk.lock().watched.values().flatten().map(|(holder, _)| holder.clone()).collect();
    if !holders.is_empty() {
        let holders: Vec<Holder> = holders.into_iter().collect();
        inner.store.marked(&holders).await?.into_iter().for_each(|task| inner.desk.cancel(task));
    }
    Ok(())
}
