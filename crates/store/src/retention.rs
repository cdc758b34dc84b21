//! What goes: tasks that ended long ago, their logs before them, and what somebody wants gone at once. The whole argument is here.
//!
//! **What goes.** A task goes with everything that is its own: messages, artifacts, log, idempotency keys, push configurations. The counts
//! and what its tenant uses go down by exactly what was counted, in the same transaction. A log may go before its task does: the task
//! stands as it ended, and whoever asks for an event that is gone hears so ([`crate::Error::Pruned`]). A log goes from its begin, so
//! that what is left of it has no gap.
//!
//! **What stays** ([`Ended::may_go`]), however old it is:
//! - what has not ended;
//! - a dead letter, until it is replayed or somebody deletes it;
//! - a task that owes a notification or has one as a dead letter, with its whole log: what a configuration tells depends on it
//!   (see [`crate::push`]). One whose receiver is gone owes nothing;
//! - a task whose agent still has to cancel what others do for it, with its log: what that is stands there. A week after its time it goes all
//!   the same: instances give up a cancel after a day, and nobody tries one whose agent is gone;
//! - the log of a task that was answered by a direct reply, for as long as there is the task: a repeated message is answered from it.
//!
//! Whoever deletes a task by its id has decided ([`crate::Retention::delete`]): then only what has not ended stays.
//!
//! **Nobody notices.** A step is one short transaction over a bounded number of tasks, events and bytes; the caller pauses between
//! two of them. On SQLite steps are operations of the writer, and the one thing that a step does at once, however large it is, is the
//! messages and artifacts of one task: half of them gone would be a task that never was. Pages that become free are written again by
//! what comes next, so the file stops growing and does not shrink (test: `what_goes_makes_room_for_what_comes`). On PostgreSQL steps run
//! beside the writer, see `postgres/retention.rs` for the locks.
//!
//! **Where a walk stands** is remembered by the caller ([`PruneWalk`]): what was passed over is not looked at with every step. It may
//! become free later, so the caller begins anew from time to time.
//!
//! **Ages** are measured from when a task ended, which is wall time, by the wall clock or by the store's own, whichever says less. A
//! clock that jumps ahead must not cost anybody anything; what is kept for too long goes later.
//!
//! **A number may come again.** On SQLite a new task has the number after the highest that there is, which may be that of one that
//! went. Nothing is left of that one under the number (test: `a_number_that_comes_again_finds_nothing`), and outside of the file tasks have their ids.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::{AgentId, Error, Event, LeaseTime, Result, TaskId, TenantId, clock, lease, ops::Aftermath};

/// What a step removes of what ended long enough ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prune {
    /// Whole tasks.
    Tasks,
    /// Only their logs.
    Events,
}

/// Whose tasks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Those of one agent.
    Agent(AgentId),
    /// Those of all agents but these.
    AllBut(Vec<AgentId>),
}

/// One small step.
#[derive(Debug, Clone)]
pub struct PruneStep {
    /// Whose they are.
    pub tenant: TenantId,
    /// Of which agents.
    pub whose: Whose,
    /// What goes.
    pub what: Prune,
    /// How long ago they must have ended.
    pub older_than: Duration,
    /// Where the last step of the same kind has left off.
    pub walk: PruneWalk,
    /// How many times the usual number of tasks, events and bytes it may remove: 1 to [`LARGEST_STEP`].
    pub size: u64,
}

/// The most that [`PruneStep::size`] may be. A step looks at no more tasks than it may remove then.
pub const LARGEST_STEP: u64 = MOST_SEEN as u64 / MOST_TASKS;

/// How far a walk over a tenant's tasks has come. A new one begins at the oldest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneWalk {
    /// The line that it goes along; which lines there are is the store's affair. Empty before the first.
    pub(crate) line: String,
    /// The last task of each line that was dealt with: when it ended, and its id.
    pub(crate) places: BTreeMap<String, (i64, TaskId)>,
}

/// What a step has removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many tasks.
    pub tasks: u64,
    /// How many events, those of the tasks included.
    pub events: u64,
    /// How many bytes the tenant has back.
    pub bytes: u64,
    /// Whether there may be more to remove now.
    pub more: bool,
    /// Where the next step goes on.
    pub walk: PruneWalk,
    /// How long the store was busy with it. The wait for the writer is not part of that: when others write much it is long,
    /// and that is when the most has to be removed.
    pub took: Duration,
}

/// What is to be deleted at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// A task.
    Task(TaskId),
    /// All tasks of a context, those that were answered by a direct reply included.
    Context(String),
    /// All tasks of the tenant, those that callers do not see included.
    Tenant,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// How many tasks.
    pub tasks: u64,
    /// How many bytes the tenant has back.
    pub bytes: u64,
    /// Whether some of it is left, for another call.
    pub more: bool,
    /// How long the store was busy with it, as in [`Pruned::took`].
    pub took: Duration,
}

/// How many tasks a step looks at, and how much of them one of the usual size removes.
pub(crate) const MOST_SEEN: usize = 200;
pub(crate) const MOST_TASKS: u64 = 50;
pub(crate) const MOST_EVENTS: u64 = 500;
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// How much longer than others a task is kept that owes a cancel, in milliseconds.
const CANCEL_OWED_FOR: i64 = 7 * 24 * 60 * 60 * 1000;

/// The states that end a task, as SQL has a list of them.
pub(crate) const ENDS: &str = "('completed', 'failed', 'canceled', 'rejected')";

/// Whether a push configuration `c` owes something, in the SQL of both stores.
pub(crate) const OWES: &str = "((c.state = 0 AND (c.owed > c.seq OR c.part > 0)) OR c.letters > 0)";

/// What decides whether a task that has ended may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// It was answered by a direct reply.
    pub(crate) is_direct: bool,
    /// It is a dead letter.
    pub(crate) is_dead: bool,
    /// One of its push configurations owes something, or it owes a cancel.
    pub(crate) owes: bool,
}

impl Ended {
    /// Whether this of it may go by itself.
    pub(crate) fn may_go(self, what: Prune) -> bool {
        !self.is_dead && !self.owes && (what == Prune::Tasks || !self.is_direct)
    }
}

/// Whether a task that ended at this time owes a cancel for which it is kept, where tasks go that ended before `before`.
pub(crate) fn owes_cancel(aftermath: Aftermath, ended_at: i64, before: i64) -> bool {
    aftermath == Aftermath::Owed && ended_at >= before.saturating_sub(CANCEL_OWED_FOR)
}

/// Maximum number of tasks that one step of this size removes.
pub(crate) fn most_tasks(size: u64) -> u64 {
    MOST_TASKS * clamped(size)
}

fn clamped(size: u64) -> u64 {
    size.clamp(1, LARGEST_STEP)
}

impl Whose {
    pub(crate) fn includes(&self, agent: &str) -> bool {
        match self {
            Self::Agent(one) => one.as_str() == agent,
            Self::AllBut(others) => others.iter().all(|other| other.as_str() != agent),
        }
    }
}

impl PruneStep {
    /// What ended before this is old enough.
    pub(crate) fn before(&self, now: LeaseTime) -> i64 {
        clock::now().as_millis().min(now.0).saturating_sub(lease::millis(self.older_than))
    }

    pub(crate) fn most_tasks(&self) -> u64 {
        most_tasks(self.size)
    }

    pub(crate) fn most_events(&self) -> u64 {
        MOST_EVENTS * self.size()
    }

    pub(crate) fn most_bytes(&self) -> u64 {
        MOST_BYTES * self.size()
    }

    fn size(&self) -> u64 {
        clamped(self.size)
    }

    /// Whether it has removed enough.
    pub(crate) fn is_done(&self, pruned: &Pruned) -> bool {
        pruned.tasks >= self.most_tasks() || pruned.events >= self.most_events() || pruned.bytes >= self.most_bytes()
    }
}

impl PruneWalk {
    /// Where it stands on a line.
    pub(crate) fn place(&self, line: &str) -> (i64, TaskId) {
        self.places.get(line).copied().unwrap_or((i64::MIN, TaskId::from_u128(0)))
    }

    /// A task of a line was dealt with.
    pub(crate) fn pass(&mut self, line: &str, at: i64, task: TaskId) {
        self.places.insert(line.to_owned(), (at, task));
    }
}

/// Whoever reads a log that ends at `end` from `after` on hears of it when what comes next is gone.
pub(crate) fn refuse_pruned(events: &[Event], after: u64, end: u64) -> Result<()> {
    let is_next = |event: &Event| event.seq == after.saturating_add(1);
    let is_pruned = after < end && !events.first().is_some_and(is_next);
    if is_pruned { Err(Error::Pruned) } else { Ok(()) }
}

/// What the audit log says of a deletion: its name, and which tasks went. Nothing of what was said in them.
pub(crate) fn audit_entry(tenant: TenantId, removal: &Removal, tasks: &[TaskId], bytes: i64) -> (&'static str, Value) {
    let tasks: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
    let (action, kind, target) = match removal {
        Removal::Task(task) => ("task_deleted", "task", task.to_string()),
        Removal::Context(context) => ("context_deleted", "context", context.clone()),
        Removal::Tenant => ("tenant_tasks_deleted", "tenant", tenant.0.to_string()),
    };
    let after = json!({"tenant_id": tenant.0, "deleted": tasks.len(), "tasks": tasks, "bytes": bytes});
    (action, json!({"target_kind": kind, "target_id": target, "before": null, "after": after}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_still_needs_stays() {
        let plain = Ended { is_direct: false, is_dead: false, owes: false };
        assert!(plain.may_go(Prune::Tasks) && plain.may_go(Prune::Events));
        let direct = Ended { is_direct: true, ..plain };
        assert!(direct.may_go(Prune::Tasks) && !direct.may_go(Prune::Events), "its log is the answer to a repetition");
        for kept in [Ended { is_dead: true, ..plain }, Ended { owes: true, ..plain }] {
            assert!(!kept.may_go(Prune::Tasks) && !kept.may_go(Prune::Events), "{kept:?}");
        }
    }

    #[test]
    fn a_task_that_owes_a_cancel_is_kept_for_a_bounded_time() {
        let before = 100 * CANCEL_OWED_FOR;
        assert!(owes_cancel(Aftermath::Owed, before - CANCEL_OWED_FOR, before));
        assert!(!owes_cancel(Aftermath::Owed, before - CANCEL_OWED_FOR - 1, before));
        assert!(!owes_cancel(Aftermath::No, before, before));
    }

    #[test]
    fn agents_are_one_or_all_others() {
        let agent = |name: &str| name.parse::<AgentId>().unwrap();
        assert!(Whose::Agent(agent("a")).includes("a") && !Whose::Agent(agent("a")).includes("b"));
        let others = Whose::AllBut(vec![agent("a")]);
        assert!(!others.includes("a") && others.includes("b"));
    }
}
