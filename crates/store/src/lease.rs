//! Leases: who may write to a leasable thing, for how long, and who takes over. The whole argument is here.
//!
//! **What is leasable** has a row with five columns: its key, `due_at`, `owner`, `generation`, `attempt`. `due_at` is a
//! queue's visibility time: when nobody holds the thing, the moment from which it may be taken; while somebody holds it,
//! the moment at which the lease runs out. A task's turn is such a thing; so is a push configuration's cursor, whose one
//! difference is argued in [`crate::push`].
//!
//! **A holder is not a process.** [`Holder`] names whoever has the lease. An instance is one; a worker on the other side of
//! a connection can be another, and any instance may write for it: a [`Lease`] says by itself whose it is.
//!
//! **The fence is the guarantee.** Each lease of a thing has a higher generation than the one before. A write under another
//! generation, or under a lease that was given back, changes nothing ([`crate::Error::LeaseLost`]). All that follows is
//! only about not disturbing those who are at work; none of it is needed for one history of each task.
//!
//! **Lease time is the store's** ([`LeaseTime`]): the database's clock on PostgreSQL, and on SQLite a clock that does not
//! jump (see `sqlite::clock`). It is read inside the transaction that uses it, so a renewal that has waited is not
//! an old one. Wall clocks of instances stand in events, for people; nothing here is decided by them.
//!
//! **When a thing may be claimed.** It is due, and
//! - nobody holds it; or
//! - its holder is known to be gone: it was released, or its instance is proven dead (`interrupted`); or
//! - the claimer itself held it and does not work on it (an answer that never arrived); or
//! - the lease has run out, *and its holder had a last call* (`overdue`).
//!
//! The last call is what keeps a common misfortune from being taken for the death of others. When a database restarts,
//! a network breaks, writes stall behind a lock or on a full disk, or a clock is stepped, the leases of *all* run out at
//! once, and whoever comes back first would take over the turns of everyone else. So the first claim that finds a lease
//! run out only says so, in the row itself, and gives its holder half a lease more. That claim is a write: it succeeds only
//! when writing works again, and then a holder that lives renews or writes in time, since a renewal that fails is tried again soon. An
//! instance that is really gone without a proof is waited for half a lease longer, and that is all it costs.
//!
//! **What one runs oneself is never claimed**, whatever the clock says ([`Claim::running`]), and is renewed before
//! anything is claimed. A turn that has lost its lease is told, by the renewal or by its next write, and has
//! ended here before another one of the same task begins here.
//!
//! **Death needs a proof that stays true.** On SQLite that is a file lock that can be taken: the kernel frees it when the
//! process ends and never before. On PostgreSQL a free advisory lock only says that there is no session at the moment, and
//! every session drops when the server restarts; it counts when it is still free on a second look. Even then the
//! holder keeps its generation until somebody claims the work: one that comes back first, renews.
//!
//! **The queue** has tasks that no instance runs by itself ([`Line::Queue`]): whoever asks gets them, mostly workers outside. Their
//! leases are a queue's visibility time, asked for by the second, and there is no last call: who wants more time says so
//! before it is over. A lease that ran out is seen by [`crate::Journal::lapsed`], and the attempt ends as one that failed:
//! the task waits again, or is a dead letter. A claim takes what nobody holds, and nothing else. One misfortune no worker can hear of: the
//! clock is stepped forward, and no call of its fails. An instance compares the store's clock with a steady one whenever it looks for such
//! leases, and prolongs by the step those that would not have run out without it, once ([`crate::Queue::prolong_lapsed`], `overdue`).
//!
//! **A turn can be parked** ([`crate::TurnEnd::Park`]): nobody holds it and no slot is taken, until a time or until it is woken.
//! Then whoever has room goes on with the same attempt. It waits in the same line as other due work.
//!
//! **A stop on purpose** gives a turn back at once ([`crate::TurnEnd::Release`]), marked as interrupted: what the agent's
//! policy says about crashes holds for it too. It is a further attempt, and says so, but it is not counted against the agent's
//! limit ([`Lease::tries`]).

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{AgentId, Error, InstanceId, Result, TaskId, TenantId, Turn, fault, ops::requests};

/// A moment of the store's own clock, in milliseconds. It means something only to the store that it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseTime(pub(crate) i64);

/// Whoever has a lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder(Arc<str>);

/// For whom a lease is, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Who gets it.
    pub holder: Holder,
    /// How long it lasts without a renewal.
    pub lasts: Duration,
}

/// The right to write to a task, until it runs out and someone takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who has it.
    pub holder: Holder,
    /// The task.
    pub task: TaskId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its agent.
    pub agent: AgentId,
    /// Its context.
    pub context: Arc<str>,
    /// Grows with each lease of the task; a write with an old one is refused.
    pub generation: u64,
    /// The turn that it was given for; those behind it go on under the same lease.
    pub turn: u32,
    /// Which attempt at the turn this is, from 1.
    pub attempt: u32,
    /// How many of the attempts count: those that were not given back on purpose.
    pub tries: u32,
    /// How often the task may be tried, where that is its own affair.
    pub max_attempts: Option<u32>,
    /// Its turns are told what was said before in the context.
    pub remembers: bool,
    /// The event with which the agent last kept its state, if it has: what the turn goes on from.
    pub kept: u64,
    /// What the task came from, as JSON.
    pub origin: Option<Arc<str>>,
}

impl Lease {
    /// The event with what came beside the message of a turn; see [`Turn::request`].
    pub fn request(&self, turn: u32) -> Option<u64> {
        requests::of(self.origin.as_deref(), turn)
    }
}

/// A lease and what it is for.
#[derive(Debug, Clone)]
pub struct LeasedTurn {
    /// The lease.
    pub lease: Lease,
    /// The work.
    pub turn: Turn,
    /// An earlier attempt was cut off: its holder is gone, or was stopped on purpose.
    pub interrupted: bool,
    /// It was parked, and goes on as the same attempt.
    pub rested: bool,
    /// Its task carries a cancel mark, which it is to be told of at once.
    pub canceled: bool,
}

/// What a claim is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Line {
    /// What instances run by themselves.
    #[default]
    Running,
    /// What waits in the queue for whoever asks: of one tenant, or of all of them.
    Queue(Option<TenantId>),
}

/// A wish for work.
#[derive(Debug, Clone)]
pub struct Claim {
    /// On whose behalf.
    pub term: Term,
    /// What kind of work.
    pub line: Line,
    /// Of which agents, and how much of each.
    pub room: Vec<Room>,
    /// What the claimer is at work on, or about to be. A lease of these that it still has is never taken for one that ran
    /// out; what it has given back it may get again.
    pub running: Vec<TaskId>,
}

/// Whose turns there is room for. Of two rooms of one agent no tenant is in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// One's, which has an agent of its own of that id.
    Only(TenantId),
    /// All others'.
    AllBut(Vec<TenantId>),
}

/// How much an agent can take on.
#[derive(Debug, Clone)]
pub struct Room {
    /// The agent.
    pub agent: AgentId,
    /// So many turns.
    pub slots: usize,
    /// The tenant that was served last: the next one is first in line.
    pub after: Option<TenantId>,
    /// Another attempt at a turn goes on where the one before last kept its state.
    pub resumes: bool,
    /// Whose turns.
    pub tenants: Tenants,
    /// How many one tenant may have.
    pub shares: Shares,
    /// Of a queue: how many of its entries may be held at once, by all.
    pub most_held: Option<usize>,
    /// Of a queue: how many bytes the messages of the entries may have together that are to be worked on.
    pub most_bytes: u64,
}

/// The rows of a claim that fit into its room: as many as have no more bytes together. [`Error::Heavy`] when not even the first does.
pub(crate) fn fit<T>(rows: Vec<T>, most: u64, mut bytes_of: impl FnMut(&T) -> Result<u64>) -> Result<Vec<T>> {
    if most == u64::MAX {
        return Ok(rows);
    }
    let (mut fits, mut left) = (0, most);
    for row in &rows {
        let bytes = bytes_of(row)?;
        if bytes > left {
            if fits == 0 {
                return Err(Error::Heavy { bytes });
            }
            break;
        }
        left -= bytes;
        fits += 1;
    }
    let mut rows = rows;
    rows.truncate(fits);
    Ok(rows)
}

/// How much of an agent one tenant may have, so that no one has all of it while others wait.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    /// So many turns at once, if there is a bound.
    pub each: Option<usize>,
    /// What the claimer runs of each already.
    pub running: Vec<(TenantId, usize)>,
}

/// Of more agents than so many it is asked first which have any work at all: tenants may define thousands, and most of them rest.
pub(crate) const MANY: usize = 64;

/// Those of the agents that are among these.
pub(crate) fn among(agents: &[AgentId], found: &[String]) -> Vec<AgentId> {
    let found: HashSet<&str> = found.iter().map(String::as_str).collect();
    agents.iter().filter(|agent| found.contains(agent.as_str())).cloned().collect()
}

/// What [`crate::Journal::next_due`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The time there.
    pub now: LeaseTime,
    /// When the next turn is due, or was: with nothing due yet, about when to look again.
    pub next: Option<LeaseTime>,
    /// The agents that have something due now.
    pub agents: Vec<AgentId>,
}

impl LeaseTime {
    /// So much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Holder {
    /// A worker that is not an instance. Its death cannot be proven; its leases run out.
    pub fn worker(name: &str) -> Self {
        Self(format!("{WORKER}{name}").into())
    }

    /// What it is called: the name of a worker, or the id of an instance.
    pub fn name(&self) -> &str {
        holder_name(&self.0)
    }

    /// As it stands in `owner`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As it was stored.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<InstanceId> for Holder {
    fn from(instance: InstanceId) -> Self {
        Self(instance.to_string().into())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Claim {
    /// A claim of this much by someone who runs nothing yet.
    pub fn new(term: Term, room: Vec<Room>) -> Self {
        Self { term, line: Line::Running, room, running: Vec::new() }
    }

    /// A claim of so many entries of an agent's queue.
    pub fn of_queue(term: Term, tenant: Option<TenantId>, room: Room) -> Self {
        Self { line: Line::Queue(tenant), ..Self::new(term, vec![room]) }
    }

    /// Whether a task is of the kind that is asked for. What somebody holds leaves the queue in another way, whatever its time
    /// (see [`crate::Journal::lapsed`]).
    pub(crate) fn is_about(&self, queued: bool, tenant: TenantId, is_held: bool) -> bool {
        match self.line {
            Line::Running => !queued,
            Line::Queue(only) => queued && !is_held && only.is_none_or(|only| only == tenant),
        }
    }

    /// Whether the claimer may have a task that is due. What it runs itself it has already.
    pub(crate) fn may_have(&self, owner: Option<&str>, task: TaskId) -> bool {
        owner != Some(self.term.holder.as_str()) || !self.running.contains(&task)
    }

    /// Whether the holder of a task whose lease has run out is to have a last call first.
    pub(crate) fn comes_too_soon(&self, owner: Option<&str>, interrupted: bool, overdue: bool) -> bool {
        let is_others = owner.is_some_and(|owner| owner != self.term.holder.as_str());
        is_others && !interrupted && !overdue && !fault::is_on("takeover-at-once")
    }
}

impl Tenants {
    /// Whether a tenant is one of them.
    pub fn have(&self, tenant: TenantId) -> bool {
        match self {
            Self::Only(one) => *one == tenant,
            Self::AllBut(others) => !others.contains(&tenant),
        }
    }
}

impl Room {
    /// So many turns of this agent, whoever's come first.
    pub fn new(agent: AgentId, slots: usize) -> Self {
        let tenants = Tenants::AllBut(Vec::new());
        Self {
            agent,
            slots,
            after: None,
            resumes: false,
            tenants,
            shares: Shares::default(),
            most_held: None,
            most_bytes: u64::MAX,
        }
    }
}

impl Shares {
    /// How many more turns a tenant may get.
    pub(crate) fn left(&self, tenant: TenantId) -> usize {
        let Some(each) = self.each else { return usize::MAX };
        let running = self.running.iter().find(|(of, _)| *of == tenant).map_or(0, |(_, running)| *running);
        each.saturating_sub(running)
    }
}

/// Tells workers from instances.
const WORKER: &str = "worker:";

/// What the holder in `owner` is called.
pub(crate) fn holder_name(owner: &str) -> &str {
    owner.strip_prefix(WORKER).unwrap_or(owner)
}

/// A length of time in milliseconds that a database can add to what time it is. Thousands of centuries are as good as
/// for ever.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

/// Tenants in the order in which they are served: the one after the last that was served first.
pub(crate) fn in_line(mut tenants: Vec<TenantId>, after: Option<TenantId>) -> Vec<TenantId> {
    tenants.sort_unstable();
    let first = tenants.partition_point(|tenant| after.is_some_and(|after| *tenant <= after));
    tenants.rotate_left(first);
    tenants
}

/// Shares `slots` among tenants that stand in line, `waiting` of each: one each in turn until there is no more of either.
/// What a tenant leaves the others get.
pub(crate) fn share(mut slots: usize, waiting: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; waiting.len()];
    loop {
        let before = slots;
        for (share, waiting) in shares.iter_mut().zip(waiting) {
            if slots > 0 && *share < *waiting {
                *share += 1;
                slots -= 1;
            }
        }
        if slots == 0 || slots == before {
            return shares;
        }
    }
}

/// One of each line in turn, until there is no more. Whoever comes last was served last, which is what [`Room::after`] is told.
pub(crate) fn one_by_one<T>(lines: Vec<Vec<T>>) -> Vec<T> {
    let mut lines: Vec<_> = lines.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lines.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_one_by_one() {
        assert_eq!(share(4, &[100, 1]), [3, 1]);
        assert_eq!(share(1, &[5, 5]), [1, 0]);
        assert_eq!(share(7, &[5, 1, 5]), [3, 1, 3]);
        assert_eq!(share(9, &[2, 2]), [2, 2]);
        assert_eq!(share(3, &[]), [0; 0]);
    }

    #[test]
    fn lines_are_merged_one_by_one() {
        assert_eq!(one_by_one(vec![vec![1, 2, 3], vec![], vec![10], vec![20, 21]]), [1, 10, 20, 2, 21, 3]);
        assert!(one_by_one::<u8>(vec![]).is_empty());
    }

    #[test]
    fn the_tenant_after_the_last_is_first() {
        let line = |after: Option<i64>| {
            let tenants = [3, 1, 2].map(TenantId).to_vec();
            in_line(tenants, after.map(TenantId)).into_iter().map(|tenant| tenant.0).collect::<Vec<_>>()
        };
        assert_eq!(line(None), [1, 2, 3]);
        assert_eq!(line(Some(1)), [2, 3, 1]);
        assert_eq!(line(Some(3)), [1, 2, 3]);
        assert_eq!(line(Some(9)), [1, 2, 3]);
    }

    #[test]
    fn what_may_be_claimed() {
        let me = Holder::from(InstanceId::mint());
        let task = TaskId::mint();
        let claim = Claim::new(Term { holder: me.clone(), lasts: Duration::from_secs(1) }, Vec::new());
        let busy = Claim { running: vec![task], ..claim.clone() };
        let (own, other) = (Some(me.as_str()), Some("somebody"));
        assert!(!busy.may_have(own, task), "what runs here");
        assert!(busy.may_have(None, task) && busy.may_have(other, task), "what was given back or taken meanwhile");
        assert!(claim.may_have(own, task), "one's own that nobody works on");
        assert!(!claim.comes_too_soon(None, false, false), "nobody's");
        assert!(!claim.comes_too_soon(own, false, false), "one's own");
        assert!(claim.comes_too_soon(other, false, false), "run out just now");
        assert!(!claim.comes_too_soon(other, true, false), "of the dead");
        assert!(!claim.comes_too_soon(other, false, true), "who had a last call");
    }
}
