//! Where committed events are announced inside one process.
//!
//! The hub only makes things faster: whoever follows a task reads the log, and the hub saves the
//! reading while the log's end is still in memory. It holds something only for tasks that someone
//! watches, and a watcher costs a cursor, however slowly it reads.
//!
//! What this process commits is *published*, with its bytes. What others have committed is only
//! *announced*: a watcher behind it is sent to the log, once for each announcement. The ring holds
//! published events alone and never a gap, so an announcement leaves it as it is: the next published
//! event either continues the ring or begins a new one, and a cursor before that reads the log.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{Event, TaskId, nats::NatsHandle, wake::News};

/// How much of a watched task's log end is kept in memory.
const RING_EVENTS: usize = 256;
const RING_BYTES: usize = 1 << 20;
const SHARDS: usize = 16;

/// How long a watcher trusts the hub before it looks at the log itself.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

type Shard = Mutex<HashMap<TaskId, Watched>>;

/// The announcer. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shards: Arc<[Shard; SHARDS]>,
    /// Bumped when work may have become due or a cancel mark may have been set by someone else.
    due: Arc<watch::Sender<u64>>,
    /// Bumped when a notification may have become due.
    owed: Arc<watch::Sender<u64>>,
    /// Bumped when the log of all tasks may have grown.
    log: Arc<watch::Sender<u64>>,
    /// Where other instances are told of this one's commits, beside what the store does by itself.
    others: Arc<OnceLock<NatsHandle>>,
    /// Nothing is announced at all: everything is found by looking.
    silent: bool,
    look: Duration,
}

/// A task that someone watches. It is forgotten with its last watcher, whoever else may hold the topic at that moment.
struct Watched {
    topic: Arc<Topic>,
    watches: usize,
}

/// One watcher of one task.
pub struct Watch {
    hub: Hub,
    task: TaskId,
    topic: Arc<Topic>,
    changed: watch::Receiver<u64>,
    /// The announcements that this watcher was sent to the log for, or had read already.
    heard: u64,
}

/// What a watcher finds in memory.
#[derive(Debug)]
pub enum Recent {
    /// Exactly the events after its cursor; none when it is up to date as far as the hub knows.
    Events(Vec<Arc<Event>>),
    /// Its cursor lies before what is kept, or others have announced more: read the log.
    Behind,
}

struct Topic {
    ring: Mutex<Ring>,
    /// Counts whatever there was to notice.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The last published event.
    latest: u64,
    /// How often others have announced something that was not published here.
    calls: u64,
    /// The furthest end of the log that they named.
    told: u64,
    /// The last of `calls` that named none.
    told_all: u64,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new(false, LOOK)
    }
}

impl Hub {
    /// A hub that announces, or, when `silent`, one that leaves everything to be found by looking at the log, which
    /// watchers do every `look`.
    pub(crate) fn new(silent: bool, look: Duration) -> Self {
        Self {
            shards: Arc::new(std::array::from_fn(|_| Mutex::default())),
            due: Arc::new(watch::Sender::new(0)),
            owed: Arc::new(watch::Sender::new(0)),
            log: Arc::new(watch::Sender::new(0)),
            others: Arc::default(),
            silent,
            look,
        }
    }

    /// Watches a task. What is published from now on is seen; what was before is in the log.
    pub fn watch(&self, task: TaskId) -> Watch {
        let mut shard = self.shard(task);
        let watched = shard.entry(task).or_insert_with(|| {
            let topic = Arc::new(Topic { ring: Mutex::default(), changes: watch::Sender::new(0) });
            Watched { topic, watches: 0 }
        });
        watched.watches += 1;
        let topic = Arc::clone(&watched.topic);
        drop(shard);
        let changed = topic.changes.subscribe();
        // Announced before now is in the log by now.
        let heard = lock(&topic.ring).calls;
        Watch { hub: self.clone(), task, topic, changed, heard }
    }

    /// Announces a committed event. Called by the writer only, in the order of the log.
    pub(crate) fn publish(&self, task: TaskId, event: &Arc<Event>) {
        if self.silent {
            return;
        }
        let Some(topic) = self.topic(task) else { return };
        let mut ring = lock(&topic.ring);
        if event.seq <= ring.latest {
            return;
        }
        if event.seq != ring.latest + 1 {
            ring.events.clear();
            ring.bytes = 0;
        }
        ring.latest = event.seq;
        ring.bytes += event.body.len();
        ring.events.push_back(Arc::clone(event));
        while ring.events.len() > RING_EVENTS || (ring.bytes > RING_BYTES && ring.events.len() > 1) {
            if let Some(old) = ring.events.pop_front() {
                ring.bytes -= old.body.len();
            }
        }
        drop(ring);
        topic.notice();
    }

    /// Announces that another instance has written, and where the task's log ends now. Costs nothing for a task that
    /// nobody watches here.
    pub(crate) fn announce(&self, task: TaskId, seq: u64) {
        if self.silent {
            return;
        }
        self.log_grew();
        let Some(topic) = self.topic(task) else { return };
        let mut ring = lock(&topic.ring);
        if seq <= ring.latest {
            return;
        }
        ring.calls += 1;
        ring.told = ring.told.max(seq);
        drop(ring);
        topic.notice();
    }

    /// Announces that others may have written to anything.
    pub(crate) fn announce_all(&self) {
        if self.silent {
            return;
        }
        self.log_grew();
        for shard in self.shards.iter() {
            let topics: Vec<_> = lock(shard).values().map(|watched| Arc::clone(&watched.topic)).collect();
            for topic in topics {
                let mut ring = lock(&topic.ring);
                ring.calls += 1;
                ring.told_all = ring.calls;
                drop(ring);
                topic.notice();
            }
        }
    }

    /// Says that work may be due or a cancel mark may be set.
    pub(crate) fn poke(&self) {
        if !self.silent {
            self.due.send_modify(|n| *n += 1);
        }
    }

    /// Says that the log of all tasks has grown. Costs nothing while nobody follows it.
    pub(crate) fn log_grew(&self) {
        if !self.silent && self.log.receiver_count() > 0 {
            self.log.send_modify(|n| *n += 1);
        }
    }

    /// Hears when the log of all tasks may have grown.
    pub fn log(&self) -> watch::Receiver<u64> {
        self.log.subscribe()
    }

    /// How long to wait for a word before looking at the log without it.
    pub fn look(&self) -> Duration {
        self.look
    }

    /// Says that a notification may be due.
    pub(crate) fn poke_outbox(&self) {
        if !self.silent {
            self.owed.send_modify(|n| *n += 1);
        }
    }

    /// Hears when a notification may be due.
    pub fn owed(&self) -> watch::Receiver<u64> {
        self.owed.subscribe()
    }

    /// Tells other instances what this one has committed, if they hear of it through the hub.
    pub(crate) fn tell(&self, news: impl FnOnce() -> News) {
        if let Some(others) = self.others.get() {
            others.tell(&news());
        }
    }

    /// From now on [`Hub::tell`] goes there.
    pub(crate) fn tell_through(&self, others: NatsHandle) {
        // A second channel would say the same again.
        let _ = self.others.set(others);
    }

    /// The same watchers for one who only hears: that one must not keep the outward channel, which is its own, alive.
    pub(crate) fn inward(&self) -> Self {
        Self { others: Arc::default(), ..self.clone() }
    }

    /// Hears of such.
    pub fn due(&self) -> watch::Receiver<u64> {
        self.due.subscribe()
    }

    /// Whether anyone watches anything.
    pub(crate) fn is_watched(&self) -> bool {
        !self.silent && self.shards.iter().any(|shard| !lock(shard).is_empty())
    }

    /// Whether anyone wants to hear of other processes' commits: of a task, or of work that is due.
    pub(crate) fn is_heard(&self) -> bool {
        !self.silent && (self.due.receiver_count() > 0 || self.log.receiver_count() > 0 || self.is_watched())
    }

    fn topic(&self, task: TaskId) -> Option<Arc<Topic>> {
        self.shard(task).get(&task).map(|watched| Arc::clone(&watched.topic))
    }

    fn shard(&self, task: TaskId) -> MutexGuard<'_, HashMap<TaskId, Watched>> {
        lock(&self.shards[task.shard(SHARDS)])
    }
}

impl Topic {
    fn notice(&self) {
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Watch {
    /// The events after `after` that are still in memory.
    pub fn recent(&mut self, after: u64) -> Recent {
        // Whatever is published after this line makes `changed` return.
        self.changed.borrow_and_update();
        let ring = lock(&self.topic.ring);
        if ring.latest > after {
            return match ring.events.front() {
                Some(front) if front.seq <= after + 1 => {
                    let skip = usize::try_from(after + 1 - front.seq).unwrap_or(usize::MAX);
                    Recent::Events(ring.events.iter().skip(skip).cloned().collect())
                }
                _ => Recent::Behind,
            };
        }
        // What the ring has is read. An announcement sends each watcher to the log once: one that names an end which
        // never comes must not keep it reading.
        let more = self.heard != ring.calls && (ring.told > after || ring.told_all > self.heard);
        self.heard = ring.calls;
        if more { Recent::Behind } else { Recent::Events(Vec::new()) }
    }

    /// How long to wait for [`Watch::changed`] before looking at the log without it.
    pub fn look(&self) -> Duration {
        self.hub.look
    }

    /// Whether something was published or announced since the last [`Watch::recent`].
    pub fn has_changed(&self) -> bool {
        self.changed.has_changed().unwrap_or(false)
    }

    /// Returns when something was published or announced since the last [`Watch::recent`].
    pub async fn changed(&mut self) {
        // The sender lives in the topic that this watch holds: an error cannot happen.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.hub.shard(self.task);
        if let Some(watched) = shard.get_mut(&self.task) {
            watched.watches -= 1;
            if watched.watches == 0 {
                shard.remove(&self.task);
            }
        }
    }
}

/// A poisoned lock guards plain data that is valid after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;

    fn event(seq: u64) -> Arc<Event> {
        let body = bytes::Bytes::from_static(b"{}");
        Arc::new(Event { seq, at: crate::clock::now(), kind: EventKind::Artifact, body })
    }

    fn seqs(recent: Recent) -> Option<Vec<u64>> {
        match recent {
            Recent::Events(events) => Some(events.iter().map(|e| e.seq).collect()),
            Recent::Behind => None,
        }
    }

    #[test]
    fn a_watcher_sees_what_came_after_its_cursor() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let mut watch = hub.watch(task);
        for seq in 3..=5 {
            hub.publish(task, &event(seq));
        }
        assert_eq!(seqs(watch.recent(2)), Some(vec![3, 4, 5]));
        assert_eq!(seqs(watch.recent(4)), Some(vec![5]));
        assert_eq!(seqs(watch.recent(5)), Some(vec![]));
        assert_eq!(seqs(watch.recent(1)), None, "the ring does not reach back to 2");
    }

    #[test]
    fn a_gap_sends_the_watcher_to_the_log() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let mut watch = hub.watch(task);
        hub.publish(task, &event(1));
        hub.publish(task, &event(4));
        assert_eq!(seqs(watch.recent(1)), None);
        assert_eq!(seqs(watch.recent(3)), Some(vec![4]));
    }

    #[test]
    fn a_task_is_forgotten_although_someone_is_telling_of_it() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let watch = hub.watch(task);
        let telling = hub.topic(task);
        drop(watch);
        assert!(telling.is_some() && !hub.is_watched());
    }

    #[test]
    fn nothing_is_kept_when_nobody_watches() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let first = hub.watch(task);
        let second = hub.watch(task);
        drop(first);
        assert!(hub.is_watched());
        drop(second);
        assert!(!hub.is_watched());
    }

    #[test]
    fn an_announcement_sends_the_watcher_to_the_log_once() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let mut watch = hub.watch(task);
        let mut second = hub.watch(task);
        hub.announce(task, 5);
        assert!(watch.has_changed());
        assert_eq!(seqs(watch.recent(3)), None);
        assert!(!watch.has_changed());
        assert_eq!(seqs(watch.recent(3)), Some(vec![]), "the end that was named may never come");
        assert_eq!(seqs(second.recent(5)), Some(vec![]), "it has read that far by itself");
        hub.announce(task, 5);
        assert_eq!(seqs(watch.recent(5)), Some(vec![]));
        // Late news of an earlier commit do not hide the later one.
        hub.announce(task, 7);
        hub.announce(task, 6);
        assert_eq!(seqs(watch.recent(6)), None);
        assert_eq!(seqs(hub.watch(task).recent(0)), Some(vec![]), "a new watcher reads the log first");
    }

    #[test]
    fn an_announcement_leaves_the_ring_without_a_gap() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let mut watch = hub.watch(task);
        for seq in 1..=4 {
            hub.publish(task, &event(seq));
        }
        // Another instance writes 5, this one 6.
        hub.announce(task, 5);
        assert_eq!(seqs(watch.recent(2)), Some(vec![3, 4]), "what the ring has comes first");
        assert_eq!(seqs(watch.recent(4)), None, "and the announcement is not forgotten over it");
        hub.publish(task, &event(6));
        assert_eq!(seqs(watch.recent(4)), None, "5 is in the log only");
        assert_eq!(seqs(watch.recent(5)), Some(vec![6]));
        // The news of one's own commit by a detour, or of a commit that was also seen in the file.
        hub.announce(task, 7);
        hub.publish(task, &event(7));
        assert_eq!(seqs(watch.recent(5)), Some(vec![6, 7]));
        assert_eq!(seqs(watch.recent(7)), Some(vec![]));
        hub.publish(task, &event(8));
        watch.recent(7);
        hub.announce(task, 8);
        assert!(!watch.has_changed(), "8 was published already");
    }

    #[test]
    fn everything_may_be_announced() {
        let hub = Hub::default();
        let (one, other) = (TaskId::mint(), TaskId::mint());
        let (mut first, mut second) = (hub.watch(one), hub.watch(other));
        hub.publish(one, &event(1));
        hub.announce_all();
        assert_eq!(seqs(first.recent(0)), Some(vec![1]));
        assert_eq!(seqs(first.recent(1)), None);
        assert_eq!(seqs(first.recent(1)), Some(vec![]));
        assert_eq!(seqs(second.recent(9)), None);
        hub.announce(one, 1);
        assert!(!first.has_changed());
    }

    #[test]
    fn a_task_that_nobody_watches_costs_nothing() {
        let hub = Hub::default();
        hub.announce(TaskId::mint(), 5);
        hub.announce_all();
        assert!(!hub.is_watched());
    }

    #[test]
    fn a_silent_hub_says_nothing() {
        let hub = Hub::new(true, Duration::from_millis(1));
        let task = TaskId::mint();
        let (mut watch, due) = (hub.watch(task), hub.due());
        hub.publish(task, &event(1));
        hub.announce(task, 2);
        hub.announce_all();
        hub.poke();
        assert!(!watch.has_changed() && !due.has_changed().unwrap());
        assert_eq!(seqs(watch.recent(0)), Some(vec![]));
        assert!(!hub.is_heard() && !hub.is_watched());
        assert_eq!(watch.look(), Duration::from_millis(1));
    }

    #[test]
    fn the_ring_is_bounded() {
        let hub = Hub::default();
        let task = TaskId::mint();
        let mut watch = hub.watch(task);
        for seq in 1..=(RING_EVENTS as u64 + 10) {
            hub.publish(task, &event(seq));
        }
        assert_eq!(seqs(watch.recent(0)), None);
        assert_eq!(seqs(watch.recent(10)).map(|s| s.len()), Some(RING_EVENTS));
    }
}
