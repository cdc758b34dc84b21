//! The agents this instance can run: those that all tenants share, as far as they may see them, and those that one tenant has defined for
//! itself.
//!
//! A tenant's own agent stands before a common one of the same id, for that tenant and for nobody else. **Its slots are its own**: agents of
//! two tenants, or a tenant's and a common one, that have the same id by chance, never wait for each other.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use store::{AgentId, TenantId, Tenants};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Agent, Caller, Delivery, Error, OnCrash, Outcome, Output, Profile, Turn, nearest};

/// How long a turn rests whose agent this instance cannot make.
const REST: Duration = Duration::from_secs(10);

/// One agent: its profile, its program and its free slots.
pub struct Entry {
    /// What is known about it.
    pub profile: Profile,
    /// What runs.
    pub agent: Arc<dyn Agent>,
    pub(crate) lane: Arc<Lane>,
    /// Whose own it is, if it is one tenant's.
    owner: Option<TenantId>,
    /// It is not there any more for callers, and only has to end what it has begun.
    leaving: bool,
}

/// The slots of an agent, and of those that have taken its place while it still runs.
pub(crate) struct Lane {
    pub(crate) slots: Arc<Semaphore>,
    /// How many there are, and how many of them one tenant may have, if that was said.
    most: usize,
    per_tenant: Option<usize>,
    backlog: AtomicBool,
    running: Mutex<HashMap<TenantId, usize>>,
    /// Those who had as many as they may when they came with more: what comes now stands behind that.
    held_back: Mutex<HashSet<TenantId>>,
}

/// A slot that a tenant's turn has.
pub(crate) struct Slot {
    lane: Arc<Lane>,
    tenant: TenantId,
    _permit: OwnedSemaphorePermit,
}

/// An agent whose work is claimed by this instance.
pub(crate) struct Offer {
    pub(crate) id: AgentId,
    pub(crate) lane: Arc<Lane>,
    /// It goes on where it last kept its state.
    pub(crate) resumes: bool,
    /// Whose work it is: its owner's, or that of all who have no agent of their own by this id.
    pub(crate) tenants: Tenants,
}

/// All agents. Cheap to clone; changes are seen by everyone at once.
#[derive(Clone, Default)]
pub struct Agents {
    book: Arc<ArcSwap<Book>>,
    /// The slots of every agent that there is, or that has a turn that still runs. Whoever changes the book holds it.
    lanes: Arc<Mutex<Lanes>>,
}

/// By owner, if there is one, and id.
type Lanes = HashMap<(Option<TenantId>, AgentId), Weak<Lane>>;
type Shelf = BTreeMap<AgentId, Arc<Entry>>;

#[derive(Clone, Default)]
struct Book {
    common: Shelf,
    own: HashMap<TenantId, Arc<Shelf>>,
    /// Agents of tenants that this instance cannot make, and another one may.
    aside: HashSet<(TenantId, AgentId)>,
    /// Common agents that were removed and hand work on: what others do for their tasks has to be ended still.
    removed: Shelf,
    offers: Arc<[Offer]>,
}

impl Entry {
    /// An agent with all its slots free.
    pub fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let most = profile.concurrency.max(1);
        let lane = Lane {
            slots: Arc::new(Semaphore::new(most)),
            most,
            per_tenant: profile.per_tenant,
            backlog: AtomicBool::new(false),
            running: Mutex::default(),
            held_back: Mutex::default(),
        };
        Self { profile, agent, lane: Arc::new(lane), owner: None, leaving: false }
    }

    /// Whether instances run it, as opposed to workers who ask for its tasks.
    pub(crate) fn is_run(&self) -> bool {
        self.profile.delivery == Delivery::Run
    }

    /// Whether this caller may see it: its tenant may, and its token is for it.
    pub fn visible_to(&self, caller: &Caller) -> bool {
        if !caller.covers(self.profile.id.as_str()) {
            return false;
        }
        match self.owner {
            Some(owner) => owner == caller.tenant,
            None => self.profile.tenants.as_ref().is_none_or(|names| names.contains(caller.name.as_ref())),
        }
    }

    /// Whether every tenant may see it, those to come included.
    pub fn is_open(&self) -> bool {
        self.owner.is_none() && self.profile.tenants.is_none()
    }

    /// Whether it is one tenant's own.
    pub fn is_own(&self) -> bool {
        self.owner.is_some()
    }

    /// Stands where an agent was: what is due of it is tried again a few times, since it may be about to come back, and then fails.
    pub(crate) fn gone(id: &AgentId, lane: &Arc<Lane>) -> Self {
        let entry = Self::new(Profile::new(id.clone(), "none"), Arc::new(Gone));
        Self { lane: Arc::clone(lane), ..entry }
    }

    /// Stands where an agent is that this instance cannot make: what is due of it rests until another instance takes it, or until it can.
    pub(crate) fn unmade(id: &AgentId, lane: &Arc<Lane>) -> Self {
        let entry = Self::new(Profile::new(id.clone(), "none"), Arc::new(Unmade));
        Self { lane: Arc::clone(lane), ..entry }
    }

    /// The same agent with these slots.
    fn on(&self, lane: Arc<Lane>) -> Self {
        let (profile, agent) = (self.profile.clone(), Arc::clone(&self.agent));
        Self { profile, agent, lane, owner: self.owner, leaving: self.leaving }
    }
}

struct Gone;

#[async_trait]
impl Agent for Gone {
    async fn run(&self, turn: Turn, _out: Output) -> Outcome {
        Outcome::Retry(format!("there is no agent '{}' any more", turn.agent))
    }
}

struct Unmade;

#[async_trait]
impl Agent for Unmade {
    async fn run(&self, _turn: Turn, _out: Output) -> Outcome {
        Outcome::Parked { at_most: Some(REST) }
    }
}

impl Lane {
    /// How many slots one tenant may have, where that is not all of them. `others` is whether there is more than one tenant at all: then
    /// a quarter is left for whoever comes next, and at least one.
    pub(crate) fn each(&self, others: bool) -> Option<usize> {
        let reserved = || self.most.saturating_sub((self.most / 4).max(1)).max(1);
        self.per_tenant.or_else(|| others.then(reserved)).filter(|each| *each < self.most)
    }

    /// Gives a free slot to a turn of this tenant.
    pub(crate) fn give(self: &Arc<Self>, permit: OwnedSemaphorePermit, tenant: TenantId) -> Slot {
        *self.count().entry(tenant).or_default() += 1;
        Slot { lane: Arc::clone(self), tenant, _permit: permit }
    }

    /// A free slot for a turn of this tenant, if it may have one more.
    pub(crate) fn try_give(self: &Arc<Self>, tenant: TenantId, others: bool) -> Option<Slot> {
        // Counted first, so that many at once do not pass the bound together.
        let mut count = self.count();
        let mut held_back = self.held_back();
        let has = count.entry(tenant).or_default();
        if self.each(others).is_some_and(|each| *has >= each) {
            held_back.insert(tenant);
        }
        let may_have = !held_back.contains(&tenant);
        let permit = may_have.then(|| Arc::clone(&self.slots).try_acquire_owned().ok()).flatten();
        match permit {
            Some(permit) => {
                *has += 1;
                Some(Slot { lane: Arc::clone(self), tenant, _permit: permit })
            }
            None => {
                if *has == 0 {
                    count.remove(&tenant);
                }
                None
            }
        }
    }

    /// Whether a tenant may have one more.
    pub(crate) fn may_have(&self, tenant: TenantId, others: bool) -> bool {
        let has = self.count().get(&tenant).copied().unwrap_or_default();
        self.each(others).is_none_or(|each| has < each)
    }

    /// After what waits was looked at: who may have more has nothing that waits.
    pub(crate) fn settle(&self, others: bool) {
        let count = self.count();
        let each = self.each(others);
        self.held_back().retain(|tenant| {
            let has = count.get(tenant).copied().unwrap_or_default();
            each.is_some_and(|each| has >= each)
        });
    }

    fn held_back(&self) -> MutexGuard<'_, HashSet<TenantId>> {
        self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each tenant has running.
    pub(crate) fn running(&self) -> Vec<(TenantId, usize)> {
        self.count().iter().map(|(tenant, running)| (*tenant, *running)).collect()
    }

    fn count(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether work of this id waits in the journal, as far as this instance knows: who comes now stands behind it.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Relaxed)
    }

    pub(crate) fn set_backlog(&self, backlog: bool) {
        self.backlog.store(backlog, Relaxed);
    }
}

impl Slot {
    /// Whether its tenant may have no other beside those that it has.
    pub(crate) fn was_last(&self, others: bool) -> bool {
        !self.lane.may_have(self.tenant, others)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut count = self.lane.count();
        if let Some(running) = count.get_mut(&self.tenant) {
            *running -= 1;
            if *running == 0 {
                count.remove(&self.tenant);
            }
        }
    }
}

impl Agents {
    /// Adds or replaces an agent. Turns of the old one that run are not disturbed.
    pub fn insert(&self, entry: Entry) {
        self.change(|book, lanes| {
            let id = entry.profile.id.clone();
            lanes.insert((None, id.clone()), Arc::downgrade(&entry.lane));
            book.removed.remove(&id);
            book.common.insert(id, Arc::new(entry));
        });
    }

    /// Removes an agent. Its waiting work stays in the journal until an agent of that id is back.
    pub fn remove(&self, id: &AgentId) {
        self.change(|book, _| {
            if let Some(entry) = book.common.remove(id).filter(|entry| entry.profile.tells_cancel) {
                book.removed.insert(id.clone(), entry);
            }
        });
    }

    /// Adds or replaces an agent of one tenant. Turns of the old one that run are not disturbed, and count.
    pub fn insert_own(&self, tenant: TenantId, entry: Entry) {
        self.insert_all_own([(tenant, entry)]);
    }

    /// The same for many.
    pub(crate) fn insert_all_own(&self, entries: impl IntoIterator<Item = (TenantId, Entry)>) {
        self.change(|book, lanes| {
            for (tenant, entry) in entries {
                put(book, lanes, tenant, entry);
            }
        });
    }

    /// Removes an agent of one tenant.
    pub fn remove_own(&self, tenant: TenantId, id: &AgentId) {
        self.change(|book, _| take(book, tenant, id));
    }

    /// Removes an agent of one tenant that this instance cannot make. Its work is left to those who can.
    pub(crate) fn set_aside(&self, tenant: TenantId, id: &AgentId) {
        self.change(|book, _| {
            take(book, tenant, id);
            book.aside.insert((tenant, id.clone()));
        });
    }

    /// Whether there is such an agent, which this instance cannot make.
    pub(crate) fn is_aside(&self, tenant: TenantId, id: &AgentId) -> bool {
        self.book.load().aside.contains(&(tenant, id.clone()))
    }

    /// Hides a tenant's own agent from callers: what it has begun can still be ended by it. Says whether there was one.
    pub(crate) fn dismiss_own(&self, tenant: TenantId, id: &AgentId) -> bool {
        let mut was_here = false;
        self.change(|book, _| {
            book.aside.remove(&(tenant, id.clone()));
            let Some(shelf) = book.own.get_mut(&tenant) else { return };
            let Some(entry) = shelf.get(id).filter(|entry| !entry.leaving) else { return };
            let entry = Entry { leaving: true, ..entry.on(Arc::clone(&entry.lane)) };
            Arc::make_mut(shelf).insert(id.clone(), Arc::new(entry));
            was_here = true;
        });
        was_here
    }

    /// Removes an agent that was dismissed, unless another one has taken its place.
    pub(crate) fn drop_own(&self, tenant: TenantId, id: &AgentId) {
        if self.own(tenant, id).is_some_and(|entry| entry.leaving) {
            self.remove_own(tenant, id);
        }
    }

    /// Whether what is left of a tenant's agent may be canceled: it was dismissed, or could not be made, and no other has taken its place.
    pub(crate) fn is_leaving(&self, tenant: TenantId, id: &AgentId) -> bool {
        match self.own(tenant, id) {
            Some(entry) => entry.leaving,
            None => self.common(id).is_none(),
        }
    }

    /// A tenant's own agent with this id.
    pub(crate) fn own(&self, tenant: TenantId, id: &AgentId) -> Option<Arc<Entry>> {
        self.book.load().own.get(&tenant)?.get(id).cloned()
    }

    /// The agent that this id means for this tenant, whether it may see it or not: its own before the common one.
    pub(crate) fn get(&self, tenant: TenantId, id: &AgentId) -> Option<Arc<Entry>> {
        let book = self.book.load();
        book.own.get(&tenant).and_then(|shelf| shelf.get(id)).or_else(|| book.common.get(id)).cloned()
    }

    /// The common agent with this id, whoever may see it.
    pub(crate) fn common(&self, id: &AgentId) -> Option<Arc<Entry>> {
        self.book.load().common.get(id).cloned()
    }

    /// The agent with this id, if this caller may see it.
    pub fn find(&self, caller: &Caller, id: &str) -> Option<Arc<Entry>> {
        self.find_any(caller, id).filter(|entry| !entry.profile.unlisted)
    }

    /// The same, where those that stand in no list are meant too.
    pub(crate) fn find_any(&self, caller: &Caller, id: &str) -> Option<Arc<Entry>> {
        let id: AgentId = id.parse().ok()?;
        let own = self.own(caller.tenant, &id).filter(|entry| !entry.leaving);
        own.or_else(|| self.common(&id)).filter(|entry| entry.visible_to(caller))
    }

    /// The agent with this id, if everybody may see it.
    pub fn find_open(&self, id: &str) -> Option<Arc<Entry>> {
        let id: AgentId = id.parse().ok()?;
        self.common(&id).filter(|entry| entry.is_open() && !entry.profile.unlisted)
    }

    /// The agents that everybody may see, by id.
    pub fn open(&self) -> Vec<AgentId> {
        let book = self.book.load();
        let open = book.common.values().filter(|entry| entry.is_open() && !entry.profile.unlisted);
        open.map(|entry| entry.profile.id.clone()).collect()
    }

    /// What kind of common agent has this id.
    pub fn kind_of(&self, id: &AgentId) -> Option<&'static str> {
        self.common(id).map(|entry| entry.profile.kind)
    }

    /// Whether there is a common agent with exactly this profile.
    pub fn has(&self, profile: &Profile) -> bool {
        self.common(&profile.id).is_some_and(|entry| entry.profile == *profile)
    }

    /// All agents this caller may see, by id.
    pub fn visible(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        let book = self.book.load();
        let mut seen: BTreeMap<&AgentId, &Arc<Entry>> = book.common.iter().collect();
        let own = book.own.get(&caller.tenant).into_iter().flat_map(|shelf| shelf.iter());
        seen.extend(own.filter(|(_, entry)| !entry.leaving));
        let is_shown = |entry: &&Arc<Entry>| entry.visible_to(caller) && !entry.profile.unlisted;
        seen.into_values().filter(is_shown).cloned().collect()
    }

    /// That an agent is not there for this caller, and which of those that it sees it may have meant.
    pub fn missing(&self, caller: &Caller, name: &str) -> Error {
        let visible = self.visible(caller);
        let meant = nearest(name, visible.iter().map(|entry| &entry.profile.id)).cloned();
        Error::agent_not_meant(name, meant)
    }

    /// All agents, common ones first. Those of different tenants may have one id.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        let book = self.book.load();
        let own = book.own.values().flat_map(|shelf| shelf.values());
        book.common.values().chain(own).cloned().collect()
    }

    /// The ids of the agents that hand work on, removed ones included.
    pub(crate) fn handing_on(&self) -> BTreeSet<AgentId> {
        let removed = self.book.load().removed.values().cloned().collect::<Vec<_>>();
        let all = self.all().into_iter().chain(removed);
        all.filter(|entry| entry.profile.tells_cancel).map(|entry| entry.profile.id.clone()).collect()
    }

    /// The agent that can end what others do for a task of this agent. It may have been removed.
    pub(crate) fn get_or_removed(&self, tenant: TenantId, id: &AgentId) -> Option<Arc<Entry>> {
        self.get(tenant, id).or_else(|| self.book.load().removed.get(id).cloned())
    }

    /// The agents that this instance runs.
    pub(crate) fn offers(&self) -> Arc<[Offer]> {
        Arc::clone(&self.book.load().offers)
    }

    fn change(&self, change: impl FnOnce(&mut Book, &mut Lanes)) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = Book::clone(&self.book.load());
        change(&mut book, &mut lanes);
        book.offers = offers(&book);
        lanes.retain(|_, lane| lane.strong_count() > 0);
        self.book.store(Arc::new(book));
    }
}

/// Puts a tenant's own agent on its shelf, with the slots of the one before it, be they of turns that still run.
fn put(book: &mut Book, lanes: &mut Lanes, tenant: TenantId, entry: Entry) {
    let id = entry.profile.id.clone();
    book.aside.remove(&(tenant, id.clone()));
    let place = (Some(tenant), id.clone());
    let shared = lanes.get(&place).and_then(Weak::upgrade);
    let lane = shared.unwrap_or_else(|| Arc::clone(&entry.lane));
    lanes.insert(place, Arc::downgrade(&lane));
    let shelf = book.own.entry(tenant).or_default();
    Arc::make_mut(shelf).insert(id, Arc::new(Entry { owner: Some(tenant), lane, ..entry }));
}

fn take(book: &mut Book, tenant: TenantId, id: &AgentId) {
    book.aside.remove(&(tenant, id.clone()));
    let Some(shelf) = book.own.get_mut(&tenant) else { return };
    Arc::make_mut(shelf).remove(id);
    if shelf.is_empty() {
        book.own.remove(&tenant);
    }
}

fn offers(book: &Book) -> Arc<[Offer]> {
    let offer = |id: &AgentId, entry: &Entry, tenants: Tenants| Offer {
        id: id.clone(),
        lane: Arc::clone(&entry.lane),
        resumes: entry.profile.on_crash == OnCrash::Resume,
        tenants,
    };
    // Who has an agent of its own by that id, be it that this instance cannot make it.
    let mut owners: HashMap<&AgentId, Vec<TenantId>> = HashMap::new();
    for (tenant, shelf) in &book.own {
        shelf.keys().for_each(|id| owners.entry(id).or_default().push(*tenant));
    }
    book.aside.iter().for_each(|(tenant, id)| owners.entry(id).or_default().push(*tenant));
    let mut offers = Vec::new();
    for (id, entry) in book.common.iter().filter(|(_, entry)| entry.is_run()) {
        let others = owners.get(id).cloned().unwrap_or_default();
        offers.push(offer(id, entry, Tenants::AllBut(others)));
    }
    for (tenant, shelf) in &book.own {
        for (id, entry) in shelf.iter().filter(|(_, entry)| entry.is_run()) {
            offers.push(offer(id, entry, Tenants::Only(*tenant)));
        }
    }
    // Work that others have left for an agent of theirs that is gone fails, and does not wait for one that is not theirs.
    for (id, tenants) in owners.into_iter().filter(|(id, _)| !book.common.contains_key(*id)) {
        let gone = Entry::new(Profile::new(id.clone(), "none"), Arc::new(Gone));
        offers.push(offer(id, &gone, Tenants::AllBut(tenants)));
    }
    offers.into()
}
