//! The agents this instance can run.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use store::AgentId;
use tokio::sync::Semaphore;

use crate::{Agent, Caller, Delivery, Profile};

/// One agent: its profile, its program and its free slots.
pub struct Entry {
    /// What is known about it.
    pub profile: Profile,
    /// What runs.
    pub agent: Arc<dyn Agent>,
    pub(crate) slots: Arc<Semaphore>,
    backlog: AtomicBool,
}

/// All agents. Cheap to clone; changes are seen by everyone at once.
#[derive(Clone, Default)]
pub struct Agents {
    entries: Arc<ArcSwap<BTreeMap<AgentId, Arc<Entry>>>>,
}

impl Entry {
    /// An agent with all its slots free.
    pub fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let slots = Arc::new(Semaphore::new(profile.concurrency.max(1)));
        Self { profile, agent, slots, backlog: AtomicBool::new(false) }
    }

    /// Whether work of this agent waits in the journal, as far as this instance knows: who comes now stands behind it.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed)
    }

    pub(crate) fn set_backlog(&self, backlog: bool) {
        self.backlog.store(backlog, Relaxed);
    }

    /// Whether instances run it, as opposed to workers who ask for its tasks.
    pub(crate) fn is_run(&self) -> bool {
        self.profile.delivery == Delivery::Run
    }

    /// Whether this tenant may see it.
    pub fn visible_to(&self, caller: &Caller) -> bool {
        self.profile.tenants.as_ref().is_none_or(|names| names.contains(caller.name.as_ref()))
    }

    /// Whether every tenant may see it, those to come included.
    pub fn is_open(&self) -> bool {
        self.profile.tenants.is_none()
    }
}

impl Agents {
    /// Adds or replaces an agent. Turns of the old one that run are not disturbed.
    pub fn insert(&self, entry: Entry) {
        let entry = Arc::new(entry);
        self.entries.rcu(|entries| {
            let mut entries = BTreeMap::clone(entries);
            entries.insert(entry.profile.id.clone(), Arc::clone(&entry));
            entries
        });
    }

    /// Removes an agent. Its waiting work stays in the journal until an agent of that id is back.
    pub fn remove(&self, id: &AgentId) {
        self.entries.rcu(|entries| {
            let mut entries = BTreeMap::clone(entries);
            entries.remove(id);
            entries
        });
    }

    /// The agent with this id, whoever may see it.
    pub(crate) fn get(&self, id: &AgentId) -> Option<Arc<Entry>> {
        self.entries.load().get(id).cloned()
    }

    /// The agent with this id, if this caller may see it.
    pub fn find(&self, caller: &Caller, id: &str) -> Option<Arc<Entry>> {
        let id: AgentId = id.parse().ok()?;
        self.get(&id).filter(|entry| entry.visible_to(caller) && !entry.profile.unlisted)
    }

    /// The same, where those that stand in no list are meant too.
    pub(crate) fn find_any(&self, caller: &Caller, id: &str) -> Option<Arc<Entry>> {
        let id: AgentId = id.parse().ok()?;
        self.get(&id).filter(|entry| entry.visible_to(caller))
    }

    /// The agent with this id, if everybody may see it.
    pub fn find_open(&self, id: &str) -> Option<Arc<Entry>> {
        let id: AgentId = id.parse().ok()?;
        self.get(&id).filter(|entry| entry.is_open() && !entry.profile.unlisted)
    }

    /// What kind of agent has this id.
    pub fn kind_of(&self, id: &AgentId) -> Option<&'static str> {
        self.get(id).map(|entry| entry.profile.kind)
    }

    /// Whether there is an agent with exactly this profile.
    pub fn has(&self, profile: &Profile) -> bool {
        self.get(&profile.id).is_some_and(|entry| entry.profile == *profile)
    }

    /// All agents this caller may see, by id.
    pub fn visible(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        let entries = self.entries.load();
        entries.values().filter(|entry| entry.visible_to(caller) && !entry.profile.unlisted).cloned().collect()
    }

    /// All agents, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().cloned().collect()
    }
}
