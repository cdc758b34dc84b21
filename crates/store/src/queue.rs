//! Tasks as a queue sees them: entries that wait, are held, are done, or are dead letters.
//!
//! There is no second store: an entry is a task, its `message_id` the task's id. What sets it apart is that nobody works on it
//! unless somebody asks ([`crate::Post::queued`]). Tasks that instances run have the same columns and become dead letters by the
//! same rule.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use a2a::{TaskState, Timestamp};

use crate::{AgentId, FailedAttempt, Lease, TaskId, TenantId};

/// The highest priority; the lowest is zero.
pub const HIGHEST: u8 = 9;

/// A task as the queue sees it.
#[derive(Debug, Clone)]
pub struct QueueEntry {
    /// The task.
    pub task: TaskId,
    /// Whose it is.
    pub tenant: TenantId,
    /// For which agent.
    pub agent: AgentId,
    /// Its context.
    pub context: Arc<str>,
    /// Who has published it; empty for what came as a message.
    pub from: Arc<str>,
    /// Its state.
    pub state: TaskState,
    /// It waits for whoever asks for it.
    pub queued: bool,
    /// It is a dead letter.
    pub dead: bool,
    /// Of two that wait the higher one comes first.
    pub priority: u8,
    /// The current or last turn, from 1; zero before the first.
    pub turn: u32,
    /// How often that was tried; what was given back on purpose does not count.
    pub attempts: u32,
    /// How often it may be tried, where that is its own affair.
    pub max_attempts: Option<u32>,
    /// Why attempts failed.
    pub errors: Vec<FailedAttempt>,
    /// The dead letter that it repeats.
    pub replays: Option<TaskId>,
    /// Since when there is this task.
    pub created_at: Timestamp,
    /// Since when it has this state.
    pub status_at: Timestamp,
    /// How long until it can be had, or until its lease runs out.
    pub due_in: Option<Duration>,
    /// The number of the last lease of it.
    pub generation: u64,
    /// The lease of it, if somebody has one.
    pub lease: Option<Lease>,
    /// It is to be canceled.
    pub canceled: bool,
    /// The length of the message that began it, as JSON.
    pub first_bytes: u64,
    /// The length of all its messages.
    pub message_bytes: u64,
}

/// How long the messages of an entry are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lengths {
    pub(crate) first: u64,
    pub(crate) all: u64,
}

/// Which dead letters.
#[derive(Debug, Clone, Default)]
pub struct Letters {
    /// Of one agent.
    pub agent: Option<AgentId>,
    /// Those after this one.
    pub after: Option<(Timestamp, TaskId)>,
    /// At most so many.
    pub limit: usize,
}

/// Who would take an entry: of which agent, and of one tenant or of any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wish {
    /// The agent.
    pub agent: AgentId,
    /// The tenant.
    pub tenant: Option<TenantId>,
}

/// How a tenant's tasks of one agent stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQueue {
    /// The agent.
    pub agent: AgentId,
    /// How many are in each state. Dead letters are among those that failed.
    pub counts: Vec<(TaskState, u64)>,
    /// How many dead letters there are.
    pub dead: u64,
    /// Since when the one that has waited longest waits.
    pub oldest_waiting: Option<Timestamp>,
    /// Since when there is a dead letter.
    pub oldest_dead: Option<Timestamp>,
}

/// A row of the counts that a store reads: of a state, or of dead letters.
pub(crate) struct Counted {
    pub(crate) agent: AgentId,
    /// `None` for dead letters.
    pub(crate) state: Option<TaskState>,
    pub(crate) n: u64,
    /// The oldest of them.
    pub(crate) since: Option<Timestamp>,
}

/// The counts by agent, by name.
pub(crate) fn sort_counts(counted: Vec<Counted>) -> Vec<AgentQueue> {
    let mut queues: BTreeMap<AgentId, AgentQueue> = BTreeMap::new();
    for Counted { agent, state, n, since } in counted {
        let queue = queues.entry(agent.clone()).or_insert_with(|| AgentQueue {
            agent,
            counts: Vec::new(),
            dead: 0,
            oldest_waiting: None,
            oldest_dead: None,
        });
        match state {
            Some(state) => {
                queue.counts.push((state, n));
                if state == TaskState::Submitted {
                    queue.oldest_waiting = since;
                }
            }
            None => {
                queue.dead = n;
                queue.oldest_dead = since;
            }
        }
    }
    queues.into_values().collect()
}
