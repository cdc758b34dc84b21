//! What a batch of operations reads and writes, in memory: [`super::fetch`] fills it, the operations run on it, and
//! [`super::flush`] writes what they have changed.
//!
//! All rows that are read here are locked by the batch's transaction, so what is decided in memory holds at its commit.
//! That goes for the numbers of events, too: a task's `seq` is read under its row lock and counted on from there, and
//! nobody else can count before the commit (test: `concurrent_appends_leave_no_gap`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, btree_map},
    sync::Arc,
};

use a2a::{TaskState, Timestamp};
use bytes::Bytes;
use uuid::Uuid;

use super::fetch::Free;
use crate::{
    AgentId, Claim, Error, Event, IdempotencyKey, LeaseTime, Line, NewPush, Quota, Result, TaskId, TenantId, Turn,
    codec, lease,
    ops::{self, FirstUse, InboxMessage, Made, NewMessage, Owes, TaskRow, Tx},
};

/// An idempotency key and whose it is.
pub(super) type KeyOf = (TenantId, [u8; 32]);

/// The transaction, before it is written.
pub(super) struct Batch {
    /// The server's time when everything was locked.
    pub(super) now: LeaseTime,
    /// Work became due or a cancel mark was set.
    pub(super) poke: bool,
    /// In the order of the log.
    pub(super) events: Vec<(TaskId, Arc<Event>)>,
    pub(super) tasks: BTreeMap<TaskId, Entry>,
    /// The messages of these tasks that are 'pending' or 'in_progress', by turn.
    inboxes: HashMap<TaskId, BTreeMap<u32, Waiting>>,
    /// How many bytes the inboxes have that were not read, since they are too many for a claim.
    too_long: HashMap<TaskId, u64>,
    pub(super) messages: Vec<Message>,
    /// Messages that are stored already and have another status now, by task and turn.
    pub(super) moved: BTreeMap<(TaskId, u32), &'static str>,
    pub(super) artifacts: Vec<Artifact>,
    /// Of what is stored already.
    pub(super) removals: Vec<Removal>,
    pub(super) keys: BTreeMap<KeyOf, Key>,
    /// Sorted, since two instances may share a shard and must not wait for each other in a circle.
    pub(super) counts: BTreeMap<(TenantId, AgentId, &'static str), i64>,
    pub(super) usage: BTreeMap<TenantId, Used>,
    /// The push configurations of tasks, where somebody asked: their ids and the bytes that each takes.
    pub(super) pushes: BTreeMap<TaskId, BTreeMap<String, i64>>,
    /// Those that are removed, and then those that are made or replaced.
    pub(super) push_removals: BTreeSet<(TaskId, String)>,
    pub(super) push_puts: BTreeMap<(TaskId, String), Put>,
    /// The tasks that make their push configurations due: how far their logs go, and whether it concerns all or only those who
    /// asked for every chunk.
    pub(super) owed: BTreeMap<TaskId, (u64, Owes)>,
    /// How many entries of queues that have a bound may still be held.
    pub(super) free: Free,
    /// How many tenants' locks it took.
    pub(super) quota_locks: usize,
    /// Rows that are due and cannot be read.
    pub(super) unreadable: Vec<Uuid>,
    /// How often something was written.
    writes: u64,
}

/// A task that the batch has locked or made.
pub(super) struct Entry {
    pub(super) row: TaskRow,
    pub(super) change: Change,
}

/// How much of a row has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Nothing,
    /// The log's end.
    Touched,
    /// All that can change.
    Saved,
    /// A new row.
    Inserted,
}

/// A push configuration that is made or replaced.
pub(super) struct Put {
    pub(super) tenant: TenantId,
    pub(super) new: NewPush,
    /// A new one is told of what comes after this event.
    pub(super) from: u64,
    pub(super) at: i64,
}

/// A message of the inbox, or the one that the current turn works on.
struct Waiting {
    in_progress: bool,
    /// Not there when nobody could need it: the message of a turn that runs.
    message: Option<InboxMessage>,
    /// Where it is in `messages`, if this batch has added it.
    new: Option<usize>,
}

/// A new row of `messages`.
pub(super) struct Message {
    pub(super) task: TaskId,
    pub(super) id: String,
    pub(super) role: &'static str,
    pub(super) status: &'static str,
    pub(super) turn: u32,
    pub(super) body: Bytes,
    pub(super) at: i64,
}

/// A new row of `a2a_artifacts`.
pub(super) struct Artifact {
    pub(super) task: TaskId,
    pub(super) turn: u32,
    pub(super) id: String,
    pub(super) append: bool,
    pub(super) body: Bytes,
    /// Of the event that it comes with.
    pub(super) seq: u64,
}

/// Rows of `a2a_artifacts` that go.
pub(super) struct Removal {
    pub(super) tenant: TenantId,
    pub(super) task: TaskId,
    /// Those of this artifact, or of this turn.
    pub(super) id: Option<String>,
    pub(super) turn: Option<u32>,
    /// Those that came after this event.
    pub(super) after: Option<u64>,
}

/// An idempotency key of the batch.
#[derive(Default)]
pub(super) struct Key {
    /// What this batch has inserted ahead of its operations, so that no other instance can.
    pub(super) reserved: Option<Use>,
    /// What it stands for by now: as it was found, or as an operation of this batch has left it.
    pub(super) used: Option<Use>,
    /// An operation of this batch has said so.
    pub(super) changed: bool,
}

/// What an idempotency key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) fingerprint: Vec<u8>,
    pub(super) task: TaskId,
    pub(super) turn: u32,
    pub(super) expires: Option<i64>,
}

/// What a tenant uses.
#[derive(Default)]
pub(super) struct Used {
    /// What this batch adds.
    pub(super) tasks: i64,
    pub(super) bytes: i64,
    /// What was there before: tasks and bytes, where a bound applies.
    pub(super) before: Option<(i64, i64)>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            now: LeaseTime(0),
            poke: false,
            events: Vec::new(),
            tasks: BTreeMap::new(),
            inboxes: HashMap::new(),
            too_long: HashMap::new(),
            messages: Vec::new(),
            moved: BTreeMap::new(),
            artifacts: Vec::new(),
            removals: Vec::new(),
            keys: BTreeMap::new(),
            counts: BTreeMap::new(),
            usage: BTreeMap::new(),
            pushes: BTreeMap::new(),
            push_removals: BTreeSet::new(),
            push_puts: BTreeMap::new(),
            owed: BTreeMap::new(),
            free: Free::new(),
            quota_locks: 0,
            unreadable: Vec::new(),
            writes: 0,
        }
    }

    /// How much was written so far, to see whether an operation that fails has written something.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// A row that was read and locked. A turn that runs has its message; nobody needs to read it.
    pub(super) fn know_task(&mut self, row: TaskRow) {
        if row.owner.is_some() {
            let running = Waiting { in_progress: true, message: None, new: None };
            self.inboxes.entry(row.task).or_default().insert(row.turn, running);
        }
        self.tasks.insert(row.task, Entry { row, change: Change::Nothing });
    }

    /// An entry that was claimed and whose inbox has too many bytes for its claim: it is not read.
    pub(super) fn know_too_long(&mut self, row: TaskRow, bytes: u64) {
        self.too_long.insert(row.task, bytes);
        self.tasks.insert(row.task, Entry { row, change: Change::Nothing });
    }

    /// A row that was claimed. All of its inbox is read after this, so that what is missing there is known to be.
    pub(super) fn know_claimed(&mut self, row: TaskRow) {
        self.too_long.remove(&row.task);
        self.inboxes.insert(row.task, BTreeMap::new());
        self.tasks.insert(row.task, Entry { row, change: Change::Nothing });
    }

    /// A message that is 'pending' or 'in_progress', of a task that is known.
    pub(super) fn know_message(&mut self, task: TaskId, turn: u32, in_progress: bool, message: InboxMessage) {
        self.inbox(task).insert(turn, Waiting { in_progress, message: Some(message), new: None });
    }

    fn inbox(&mut self, task: TaskId) -> &mut BTreeMap<u32, Waiting> {
        self.inboxes.entry(task).or_default()
    }

    fn current(&mut self, row: &TaskRow) -> Option<&Waiting> {
        self.inbox(row.task).get(&row.turn).filter(|waiting| waiting.in_progress)
    }

    /// A row that is due and cannot be read is not looked at again for a while.
    pub(super) fn step_aside(&mut self, task: Uuid) {
        self.writes += 1;
        self.unreadable.push(task);
    }

    /// Whether a lease of it could be given: it is due as far as this batch goes, and all that it takes was read.
    fn is_due(&self, row: &TaskRow, claim: &Claim) -> bool {
        row.due_at.is_some_and(|due| due <= self.now.0)
            && claim.is_about(row.queued, row.tenant, row.owner.is_some())
            && claim.may_have(row.owner.as_deref(), row.task)
            && (self.too_long.contains_key(&row.task)
                || self
                    .inboxes
                    .get(&row.task)
                    .is_some_and(|inbox| inbox.values().all(|waiting| waiting.message.is_some())))
    }

    /// The entries of a queue that a claim takes: their inboxes have been read, and have no more bytes together.
    fn fit(&self, chosen: Vec<TaskRow>, most: u64) -> Result<Vec<TaskRow>> {
        let read = |row: &TaskRow| -> u64 {
            let inbox = self.inboxes.get(&row.task).into_iter().flat_map(BTreeMap::values);
            inbox.filter_map(|waiting| waiting.message.as_ref()).map(InboxMessage::len).sum()
        };
        let mut chosen = chosen;
        if let Some(at) = chosen.iter().position(|row| self.too_long.contains_key(&row.task)) {
            if at == 0 {
                return Err(Error::Heavy { bytes: self.too_long[&chosen[0].task] });
            }
            chosen.truncate(at);
        }
        lease::fit(chosen, most, |row| Ok(read(row)))
    }

    fn put(&mut self, row: TaskRow, change: Change) {
        self.writes += 1;
        let row = row.stored();
        match self.tasks.get_mut(&row.task) {
            Some(entry) => {
                entry.row = row;
                entry.change = entry.change.max(change);
            }
            None => {
                self.tasks.insert(row.task, Entry { row, change });
            }
        }
    }

    fn set_status(&mut self, task: TaskId, turn: u32, new: Option<usize>, status: &'static str) {
        self.writes += 1;
        match new {
            Some(index) => self.messages[index].status = status,
            None => {
                self.moved.insert((task, turn), status);
            }
        }
    }

    /// Drops artifacts that this batch has added. Returns their bytes.
    fn drop_new(&mut self, is_removed: impl Fn(&Artifact) -> bool) -> i64 {
        let mut bytes = 0;
        self.artifacts.retain(|artifact| {
            let removed = is_removed(artifact);
            if removed {
                bytes += i64::try_from(artifact.body.len()).unwrap_or(i64::MAX);
            }
            !removed
        });
        bytes
    }
}

/// Text of PostgreSQL cannot hold this one character. The body has the id as it is.
fn without_nul(id: &str) -> String {
    id.replace('\0', "\u{fffd}")
}

impl Tx for Batch {
    fn now(&self) -> LeaseTime {
        self.now
    }

    fn poke(&mut self) {
        self.poke = true;
    }

    fn new_key(&mut self) -> Result<i64> {
        Ok(0)
    }

    fn load(&mut self, tenant: TenantId, task: TaskId) -> Result<TaskRow> {
        let entry = self.tasks.get(&task).filter(|entry| entry.row.tenant == tenant);
        entry.map(|entry| entry.row.clone()).ok_or(Error::NotFound)
    }

    fn due(&mut self, claim: &Claim) -> Result<Vec<TaskRow>> {
        let mut taken = Vec::new();
        for room in &claim.room {
            let mut waiting: BTreeMap<TenantId, Vec<&TaskRow>> = BTreeMap::new();
            for Entry { row, .. } in self.tasks.values() {
                if row.agent == room.agent && room.tenants.have(row.tenant) && self.is_due(row, claim) {
                    waiting.entry(row.tenant).or_default().push(row);
                }
            }
            let mut lines = Vec::new();
            for tenant in lease::in_line(waiting.keys().copied().collect(), room.after) {
                let mut rows = waiting.remove(&tenant).unwrap_or_default();
                rows.sort_by_key(|row| (Reverse(row.priority), row.due_at));
                rows.truncate(room.shares.left(tenant));
                lines.push(rows);
            }
            let free = self.free.get(room.agent.as_str()).filter(|_| room.most_held.is_some());
            let slots = free.map_or(room.slots, |free| room.slots.min(*free));
            let chosen: Vec<TaskRow> = lease::one_by_one(lines).into_iter().take(slots).cloned().collect();
            let chosen = match claim.line {
                Line::Running => chosen,
                Line::Queue(_) => self.fit(chosen, room.most_bytes)?,
            };
            if room.most_held.is_some()
                && let Some(free) = self.free.get_mut(room.agent.as_str())
            {
                *free = free.saturating_sub(chosen.len());
            }
            taken.extend(chosen);
        }
        Ok(taken)
    }

    fn insert(&mut self, row: TaskRow) -> Result<()> {
        if self.tasks.contains_key(&row.task) {
            return Err(Error::Damaged(format!("the task {} exists already", row.task)));
        }
        self.put(row, Change::Inserted);
        Ok(())
    }

    fn save(&mut self, row: TaskRow) -> Result<()> {
        self.put(row, Change::Saved);
        Ok(())
    }

    fn touch(&mut self, row: TaskRow) -> Result<()> {
        self.put(row, Change::Touched);
        Ok(())
    }

    fn log(&mut self, row: &TaskRow, event: Event) -> Result<()> {
        self.writes += 1;
        self.events.push((row.task, Arc::new(event)));
        Ok(())
    }

    fn add_message(&mut self, row: &TaskRow, message: NewMessage<'_>) -> Result<()> {
        self.writes += 1;
        let NewMessage { id, role, status, turn, body, at } = message;
        let index = self.messages.len();
        let (id, body) = (without_nul(id), body.clone());
        if matches!(status, "pending" | "in_progress") {
            let is_large = !row.queued && body.len() > Turn::WITH_LEASE;
            let message =
                if is_large { InboxMessage::Large(body.len() as u64) } else { InboxMessage::Here(body.clone()) };
            let waiting = Waiting { in_progress: status == "in_progress", message: Some(message), new: Some(index) };
            self.inbox(row.task).insert(turn, waiting);
        }
        self.messages.push(Message { task: row.task, id, role, status, turn, body, at: at.as_millis() });
        Ok(())
    }

    fn has_current_turn(&mut self, row: &TaskRow) -> Result<bool> {
        Ok(self.current(row).is_some())
    }

    fn current_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>> {
        Ok(self.current(row).and_then(|waiting| waiting.message.clone()))
    }

    fn waiting_message(&mut self, row: &TaskRow) -> Result<Option<InboxMessage>> {
        let oldest = self.inbox(row.task).values().find(|waiting| !waiting.in_progress);
        Ok(oldest.and_then(|waiting| waiting.message.clone()))
    }

    fn begin_turn(&mut self, row: &TaskRow) -> Result<()> {
        let mut inbox = self.inbox(row.task).iter_mut();
        let Some((turn, waiting)) = inbox.find(|(_, waiting)| !waiting.in_progress) else { return Ok(()) };
        waiting.in_progress = true;
        let (turn, new) = (*turn, waiting.new);
        self.set_status(row.task, turn, new, "in_progress");
        Ok(())
    }

    fn end_turn(&mut self, row: &TaskRow) -> Result<()> {
        let mut ended = Vec::new();
        self.inbox(row.task).retain(|turn, waiting| {
            if waiting.in_progress {
                ended.push((*turn, waiting.new));
            }
            !waiting.in_progress
        });
        for (turn, new) in ended {
            self.set_status(row.task, turn, new, "acked");
        }
        Ok(())
    }

    fn add_artifact(&mut self, row: &TaskRow, artifact_id: &str, append: bool, body: &Bytes) -> Result<()> {
        self.writes += 1;
        let (id, body) = (without_nul(artifact_id), body.clone());
        // Each comes with an event of its own, which is logged next.
        self.artifacts.push(Artifact { task: row.task, turn: row.turn, id, append, body, seq: row.seq + 1 });
        Ok(())
    }

    /// What is stored already is taken off the usage by the statement that removes it.
    fn remove_artifact(&mut self, row: &TaskRow, artifact_id: &str) -> Result<i64> {
        self.writes += 1;
        let (tenant, task, id) = (row.tenant, row.task, without_nul(artifact_id));
        let bytes = self.drop_new(|artifact| artifact.task == task && artifact.id == id);
        self.removals.push(Removal { tenant, task, id: Some(id), turn: None, after: None });
        Ok(bytes)
    }

    fn remove_artifacts_of_turn(&mut self, row: &TaskRow, after: u64) -> Result<i64> {
        self.writes += 1;
        let (tenant, task, turn) = (row.tenant, row.task, row.turn);
        self.removals.push(Removal { tenant, task, id: None, turn: Some(turn), after: (after > 0).then_some(after) });
        Ok(self.drop_new(|artifact| artifact.task == task && artifact.turn == turn && artifact.seq > after))
    }

    fn find_key(&mut self, tenant: TenantId, key: &IdempotencyKey) -> Result<Option<FirstUse>> {
        let found = self.keys.get(&(tenant, key.key)).and_then(|key| key.used.as_ref());
        let found = found.filter(|used| used.expires.is_none_or(|expires| expires > self.now.0));
        Ok(found.map(|used| FirstUse { fingerprint: used.fingerprint.clone(), task: used.task, turn: used.turn }))
    }

    fn remember(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()> {
        self.writes += 1;
        let expires = key.keep.map(|keep| self.now.after(keep).0);
        let fingerprint = key.fingerprint.to_vec();
        let entry = self.keys.entry((tenant, key.key)).or_default();
        // What was reserved for it a moment ago is as good.
        let expires = entry.reserved.as_ref().map_or(expires, |reserved| reserved.expires);
        entry.used = Some(Use { fingerprint, task: made.task, turn: made.turn, expires });
        entry.changed = true;
        Ok(())
    }

    fn pushes(&mut self, row: &TaskRow) -> Result<Vec<(String, i64)>> {
        Ok(self.pushes.get(&row.task).into_iter().flatten().map(|(id, bytes)| (id.clone(), *bytes)).collect())
    }

    fn put_push(&mut self, row: &TaskRow, new: &NewPush, from: u64, at: Timestamp) -> Result<()> {
        self.writes += 1;
        let bytes = i64::try_from(new.size()).unwrap_or(i64::MAX);
        self.pushes.entry(row.task).or_default().insert(new.id.clone(), bytes);
        let put = Put { tenant: row.tenant, new: new.clone(), from, at: at.as_millis() };
        match self.push_puts.entry((row.task, new.id.clone())) {
            btree_map::Entry::Occupied(mut before) => {
                // It goes on where the one before it would have begun.
                let from = before.get().from.min(from);
                before.insert(Put { from, ..put });
            }
            btree_map::Entry::Vacant(place) => drop(place.insert(put)),
        }
        Ok(())
    }

    fn remove_push(&mut self, row: &TaskRow, id: &str) -> Result<()> {
        self.writes += 1;
        self.pushes.entry(row.task).or_default().remove(id);
        let key = (row.task, id.to_owned());
        self.push_puts.remove(&key);
        self.push_removals.insert(key);
        Ok(())
    }

    fn owe(&mut self, row: &TaskRow, owes: Owes) -> Result<()> {
        self.writes += 1;
        let owed = self.owed.entry(row.task).or_insert((row.seq, owes));
        *owed = (row.seq, owed.1.max(owes));
        Ok(())
    }

    fn count(&mut self, tenant: TenantId, agent: &AgentId, state: TaskState, n: i64) {
        *self.counts.entry((tenant, agent.clone(), codec::state_name(state))).or_default() += n;
    }

    fn add_usage(&mut self, tenant: TenantId, tasks: i64, bytes: i64) {
        let used = self.usage.entry(tenant).or_default();
        used.tasks += tasks;
        used.bytes += bytes;
    }

    fn check_quota(&mut self, tenant: TenantId, quota: Quota, begins: bool) -> Result<()> {
        if quota.tasks.filter(|_| begins).is_none() && quota.bytes.is_none() {
            return Ok(());
        }
        let used = self.usage.entry(tenant).or_default();
        let (tasks, bytes) = used.before.ok_or_else(|| Error::Damaged("the tenant's usage was not read".into()))?;
        ops::within_quota(quota, begins, tasks + used.tasks, bytes + used.bytes)
    }
}
