//! Who calls, and what came with the call beside the request itself.

use std::sync::Arc;

use a2a::Dialect;
use store::{Lease, TaskId};

use crate::{Caller, Luggage, Origin};

/// A call's surroundings, the same for every binding.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// The agent that the URL names. A request's `tenant` field must agree with it.
    pub agent: Option<String>,
    /// The protocol extensions the caller wants.
    pub extensions: Vec<String>,
    /// The `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
    /// The generation of the protocol that the caller speaks, and in which it is notified.
    pub dialect: Dialect,
    /// What the surface does otherwise than A2A 1.0.
    pub rules: Rules,
    /// What a task that it makes comes from.
    pub origin: Origin,
    /// The id of a task that it makes, where that had to be known before. No surface lets its callers choose one.
    pub task: Option<TaskId>,
    /// The lease of the turn that makes the call, if one does. No task begins once that turn is over.
    pub parent: Option<Lease>,
    /// What it has in flight.
    pub luggage: Arc<Luggage>,
}

/// Where a surface departs from A2A 1.0. The default departs nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Every first message makes a task: an agent that would answer directly completes it with its message.
    pub always_task: bool,
    /// A message that was sent before under the same key finds the first one's task.
    pub idempotent: bool,
    /// A task that was canceled before can be canceled no more than one that ended otherwise.
    pub cancel_once: bool,
    /// An agent is told what was said before in the context.
    pub remembers: bool,
    /// A stream that continues a task has every event after its message, those included that the task before them shows.
    pub all_events: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { always_task: false, idempotent: true, cancel_once: false, remembers: true, all_events: false }
    }
}

impl Call {
    /// A call with nothing beside its caller.
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            agent: None,
            extensions: Vec::new(),
            idempotency_key: None,
            dialect: Dialect::V1,
            rules: Rules::default(),
            origin: Origin::default(),
            task: None,
            parent: None,
            luggage: Arc::default(),
        }
    }
}
