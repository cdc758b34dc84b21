//! Where committed events are announced inside one process.
//!
//! The hub only makes things faster: whoever follows a task reads the log, and the hub saves the
//! reading while the log's end is still in memory. It holds something only for tasks that someone
//! watches, and a watcher costs a cursor, however slowly it reads.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::watch;

use crate::{Event, TaskId};

/// How much of a watched task's log end is kept in memory.
const RING_EVENTS: usize = 256;
const RING_BYTES: usize = 1 << 20;
const SHARDS: usize = 16;

type Shard = Mutex<HashMap<TaskId, Weak<Topic>>>;

/// The announcer. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    shards: Arc<[Shard; SHARDS]>,
    /// Bumped when work may have become due or a cancel mark may have been set by someone else.
    due: Arc<watch::Sender<u64>>,
}

/// One watcher of one task.
pub struct Watch {
    hub: Hub,
    task: TaskId,
    topic: Arc<Topic>,
    changed: watch::Receiver<u64>,
}

/// What a watcher finds in memory.
#[derive(Debug)]
pub enum Recent {
    /// Exactly the events after its cursor; none when it is up to date as far as the hub knows.
    Events(Vec<Arc<Event>>),
    /// Its cursor lies before what is kept: read the log.
    Behind,
}

struct Topic {
    ring: Mutex<Ring>,
    latest: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    latest: u64,
}

impl Default for Hub {
    fn default() -> Self {
        Self { shards: Arc::new(std::array::from_fn(|_| Mutex::default())), due: Arc::new(watch::Sender::new(0)) }
    }
}

impl Hub {
    /// Watches a task. What is published from now on is seen; what was before is in the log.
    pub fn watch(&self, task: TaskId) -> Watch {
        let mut shard = self.shard(task);
        let topic = shard.get(&task).and_then(Weak::upgrade).unwrap_or_else(|| {
            let topic = Arc::new(Topic { ring: Mutex::default(), latest: watch::Sender::new(0) });
            shard.insert(task, Arc::downgrade(&topic));
            topic
        });
        let changed = topic.latest.subscribe();
        Watch { hub: self.clone(), task, topic, changed }
    }

    /// Announces a committed event. Called by the writer only, in the order of the log.
    pub(crate) fn publish(&self, task: TaskId, event: &Arc<Event>) {
        let Some(topic) = self.shard(task).get(&task).and_then(Weak::upgrade) else {
            return;
        };
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
        topic.latest.send_replace(event.seq);
    }

    /// Says that work may be due or a cancel mark may be set.
    pub(crate) fn poke(&self) {
        self.due.send_modify(|n| *n += 1);
    }

    /// Hears of such.
    pub fn due(&self) -> watch::Receiver<u64> {
        self.due.subscribe()
    }

    /// Whether anyone watches anything.
    pub(crate) fn is_watched(&self) -> bool {
        self.shards.iter().any(|shard| !lock(shard).is_empty())
    }

    /// Whether anyone wants to hear of other processes' commits: of a task, or of work that is due.
    pub(crate) fn is_heard(&self) -> bool {
        self.due.receiver_count() > 0 || self.is_watched()
    }

    fn shard(&self, task: TaskId) -> MutexGuard<'_, HashMap<TaskId, Weak<Topic>>> {
        lock(&self.shards[task.shard(SHARDS)])
    }
}

impl Watch {
    /// The events after `after` that are still in memory.
    pub fn recent(&mut self, after: u64) -> Recent {
        // Whatever is published after this line makes `changed` return.
        self.changed.borrow_and_update();
        let ring = lock(&self.topic.ring);
        if ring.latest <= after {
            return Recent::Events(Vec::new());
        }
        match ring.events.front() {
            Some(front) if front.seq <= after + 1 => {
                let skip = usize::try_from(after + 1 - front.seq).unwrap_or(usize::MAX);
                Recent::Events(ring.events.iter().skip(skip).cloned().collect())
            }
            _ => Recent::Behind,
        }
    }

    /// Returns when something was published since the last [`Watch::recent`].
    pub async fn changed(&mut self) {
        // The sender lives in the topic that this watch holds: an error cannot happen.
        let _ = self.changed.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.hub.shard(self.task);
        // Under the shard's lock nobody can upgrade the weak reference: one strong one is this watch's own.
        if Arc::strong_count(&self.topic) == 1 {
            shard.remove(&self.task);
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
