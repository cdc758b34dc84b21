//! The agents that tenants define for themselves: kept in the store byte for byte, made into agents here. What a definition says, and how
//! an agent is made of it, is the business of whoever implements [`Maker`].
//!
//! What is defined at this instance is there at once. Every instance looks twice a second whether anything has changed
//! ([`store::Registry::agents_revision`]) and then reads all of it; of that it makes only what it does not have already. Whoever changes
//! something here, and whoever reads all of it, comes one after the other: nobody puts an older definition in the place of a newer one.
//!
//! An agent that is removed is hidden from callers first, and stays until what it had begun is canceled and those who work for it were told.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use a2a::{TaskState, Timestamp};
use futures_util::future::join_all;
use serde_json::Value;
use store::{AgentId, Filter, PageKey, Scope, StoredAgent, TaskId, TenantId, View, clock};
use tokio::sync::Mutex;

use crate::{Caller, Entry, Error, Exchange, Inner, Luggage, convert, intake::answered};

/// How many agents a tenant may define.
pub const MOST_AGENTS: u64 = 200;
/// How long a definition may be, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;

/// How often is looked whether others have changed something.
const LOOK: Duration = Duration::from_millis(500);
/// So many tasks of an agent that is removed are canceled at once.
const AT_ONCE: u32 = 32;
/// So often its tasks are looked for again, since others may still have sent it something.
const ROUNDS: usize = 8;
/// How long after the first look the next one follows: by then every instance knows that the agent is gone.
const PAUSE: Duration = Duration::from_secs(2);
/// So long something may still come for it.
const LATE: Duration = Duration::from_secs(6);
/// So long it stays at most, for others to be told of what was canceled, and so often that is looked at in the end.
const TELLING: Duration = Duration::from_secs(3600);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Makes agents of what tenants define.
pub trait Maker: Send + Sync + 'static {
    /// An agent of a definition, or what is wrong with it.
    fn make(&self, id: &AgentId, definition: &[u8], updated_at: Timestamp) -> Result<Entry, a2a::Error>;

    /// What a list says of an agent that is built in, in the words of a definition, if it is one of these.
    fn builtin(&self, id: &str) -> Option<Value>;
}

/// Somebody who is a [`Maker`].
#[derive(Clone)]
pub struct MadeBy(pub Arc<dyn Maker>);

impl fmt::Debug for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeBy(…)")
    }
}

/// What this instance has seen of the definitions. Whoever changes any of them holds it.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Definitions>);

#[derive(Default)]
struct Definitions {
    /// The revision that it is of; none before the first look.
    revision: Option<i64>,
    marks: HashMap<(TenantId, AgentId), Mark>,
}

/// What tells one definition from another.
#[derive(PartialEq, Eq)]
struct Mark {
    created_at: Timestamp,
    updated_at: Timestamp,
    digest: [u8; 32],
}

impl Mark {
    fn of(agent: &StoredAgent) -> Self {
        let digest = convert::digest(&[&agent.definition]);
        Self { created_at: agent.created_at, updated_at: agent.updated_at, digest }
    }
}

impl Exchange {
    /// Keeps an agent that a tenant defines, and makes it. [`Error::AgentExists`] when the tenant has one of that id, or sees one.
    pub async fn define_agent(&self, caller: &Caller, id: &str, definition: Vec<u8>) -> Result<StoredAgent, Error> {
        let id: AgentId = id.parse().map_err(|why: &str| Error::invalid("id", why))?;
        may_define(caller, id.as_str())?;
        let maker = self.maker()?;
        self.refuse_builtin(id.as_str())?;
        check_size(&definition)?;
        // What is wrong with it is found before anything is kept.
        maker.make(&id, &definition, clock::now())?;
        if self.inner.agents.find_any(caller, id.as_str()).is_some_and(|entry| !entry.is_own()) {
            return Err(Error::AgentExists(id.to_string()));
        }
        let kept = self.inner.store.create_agent(caller.tenant, &id, definition, MOST_AGENTS);
        let kept = self.change(caller.tenant, &id, kept);
        match answered(kept).await {
            Err(store::Error::Exists) => Err(Error::AgentExists(id.to_string())),
            kept => Ok(kept?),
        }
    }

    /// Replaces what a tenant has defined, wholly. Turns that run go on as they were.
    pub async fn redefine_agent(&self, caller: &Caller, id: &str, definition: Vec<u8>) -> Result<StoredAgent, Error> {
        may_define(caller, id)?;
        let maker = self.maker()?;
        let id = self.own_id(caller, id)?;
        check_size(&definition)?;
        maker.make(&id, &definition, clock::now())?;
        let kept = self.inner.store.replace_agent(caller.tenant, &id, definition);
        let kept = self.change(caller.tenant, &id, kept);
        match answered(kept).await {
            Err(store::Error::NotFound) => Err(Error::NotDefined(id.to_string())),
            kept => Ok(kept?),
        }
    }

    /// Forgets an agent that a tenant has defined, and cancels what it has not ended. With very much of that it is not all canceled when this
    /// returns.
    pub async fn undefine_agent(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        may_define(caller, id)?;
        let id = self.own_id(caller, id)?;
        let (inner, tenant) = (&self.inner, caller.tenant);
        let removed = async {
            let mut seen = inner.own.0.lock().await;
            let was_there = inner.store.remove_agent(tenant, &id).await?;
            if was_there {
                seen.marks.remove(&(tenant, id.clone()));
                inner.agents.dismiss_own(tenant, &id);
                seen.follow(inner).await;
            }
            Ok(was_there)
        };
        if !answered(removed).await? {
            return Err(Error::NotDefined(id.to_string()));
        }
        // On a task of its own: whoever asked may go away. What comes from here on is for another agent of that id, if there is one.
        let (here, agent, until) = (self.clone(), id.clone(), TaskId::mint());
        let swept = inner.tracker.spawn(async move { here.cancel_all(tenant, &agent, until).await });
        let is_over = answered(async { Ok(swept.await.is_ok()) }).await.unwrap_or(false);
        if !is_over {
            tracing::info!(agent.name = %id, "an agent has more to cancel than can be waited for");
        }
        see_off(inner, tenant, id);
        Ok(())
    }

    /// What a tenant has defined, by id.
    pub async fn defined_agents(&self, caller: &Caller, luggage: &Luggage) -> Result<Vec<StoredAgent>, Error> {
        caller.needs(Scope::Read)?;
        let store = &self.inner.store;
        let mut all = self.weighed(caller, luggage, |most| store.own_agents(caller.tenant, most)).await?;
        all.retain(|agent| caller.covers(agent.id.as_str()));
        Ok(all)
    }

    /// One that a tenant has defined.
    pub async fn defined_agent(&self, caller: &Caller, id: &str) -> Result<StoredAgent, Error> {
        caller.needs(Scope::Read)?;
        let own: AgentId = id.parse().map_err(|_| Error::not_defined(id))?;
        let found = self.inner.store.own_agent(caller.tenant, &own).await?;
        found.filter(|_| caller.covers(id)).ok_or_else(|| Error::not_defined(id))
    }

    /// What is to be said of an agent that is built in, in the words of a definition.
    pub fn builtin_agent(&self, id: &str) -> Option<Value> {
        self.inner.options.maker.as_ref()?.0.builtin(id)
    }

    fn maker(&self) -> Result<&Arc<dyn Maker>, Error> {
        self.inner.options.maker.as_ref().map(|made_by| &made_by.0).ok_or(Error::NothingDefined)
    }

    fn refuse_builtin(&self, id: &str) -> Result<(), Error> {
        if self.builtin_agent(id).is_none() {
            return Ok(());
        }
        Err(Error::invalid("id", format!("'{id}' is built in, and cannot be created, changed or deleted")))
    }

    /// The id of an agent that this tenant may change.
    fn own_id(&self, caller: &Caller, id: &str) -> Result<AgentId, Error> {
        self.refuse_builtin(id)?;
        if self.inner.agents.find_any(caller, id).is_some_and(|entry| !entry.is_own()) {
            let why = format!("'{id}' is not defined by this tenant, and cannot be changed or deleted here");
            return Err(Error::invalid("id", why));
        }
        id.parse().map_err(|_| Error::not_defined(id))
    }

    /// Writes a definition in its turn, and makes the agent of what was written.
    async fn change(
        &self,
        tenant: TenantId,
        id: &AgentId,
        write: impl Future<Output = store::Result<StoredAgent>>,
    ) -> store::Result<StoredAgent> {
        let inner = &self.inner;
        let mut seen = inner.own.0.lock().await;
        let stored = write.await?;
        match make(inner, &stored) {
            Some(entry) => inner.agents.insert_own(tenant, entry),
            None => inner.agents.set_aside(tenant, id),
        }
        seen.marks.insert((tenant, id.clone()), Mark::of(&stored));
        seen.follow(inner).await;
        Ok(stored)
    }

    /// Cancels what an agent that is about to go has not ended and what was begun until then, page by page, until none is left.
    async fn cancel_all(&self, tenant: TenantId, agent: &AgentId, until: TaskId) {
        let states = [TaskState::Working, TaskState::Submitted, TaskState::InputRequired, TaskState::AuthRequired];
        // What moves from one state to another while it is looked for is found by the next round.
        for _ in 0..ROUNDS {
            let mut found = 0;
            for state in states {
                match self.cancel_those(tenant, agent, state, until).await {
                    Ok(canceled) => found += canceled,
                    Err(error) => {
                        tracing::warn!(agent.name = %agent, %error, "the tasks of an agent that is gone cannot be canceled yet");
                        return;
                    }
                }
            }
            if found == 0 {
                return;
            }
        }
    }

    async fn cancel_those(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        state: TaskState,
        until: TaskId,
    ) -> store::Result<usize> {
        let mut after: Option<PageKey> = None;
        let mut found = 0;
        // Another agent of that id is another agent: what is sent to it is not canceled.
        while self.inner.agents.is_leaving(tenant, agent) {
            let filter = Filter {
                agent: Some(agent.clone()),
                among: Vec::new(),
                context: None,
                state: Some(state),
                since: None,
                after,
                limit: AT_ONCE,
                view: View { history: Some(0), artifacts: false, ..View::FULL },
            };
            let page = self.inner.store.list(tenant, filter).await?;
            let begun = page.tasks.iter().filter(|task| task.task <= until);
            let canceled = join_all(begun.map(|task| self.cancel_one(tenant, task.task, task.seq))).await;
            found += canceled.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn cancel_one(&self, tenant: TenantId, task: TaskId, seq: u64) {
        match self.stop(tenant, task, seq).await {
            Err(error) if !error.is_refusal() => {
                tracing::warn!(task.id = %task, %error, "a task of an agent that is gone cannot be canceled");
            }
            _ => {}
        }
    }
}

impl Definitions {
    /// What was changed here needs no second look, unless others have changed something too.
    async fn follow(&mut self, inner: &Inner) {
        if let (Some(before), Ok(now)) = (self.revision, inner.store.agents_revision().await)
            && now == before + 1
        {
            self.revision = Some(now);
        }
    }
}

/// Reads all definitions and makes agents of them.
pub(crate) async fn load(inner: &Arc<Inner>) -> store::Result<()> {
    if inner.options.maker.is_none() {
        return Ok(());
    }
    let mut seen = inner.own.0.lock().await;
    let (revision, all) = inner.store.all_agents().await?;
    let mut gone: HashSet<(TenantId, AgentId)> = seen.marks.keys().cloned().collect();
    let mut made = Vec::new();
    for stored in all {
        let key = (stored.tenant, stored.id.clone());
        gone.remove(&key);
        let mark = Mark::of(&stored);
        if seen.marks.get(&key) == Some(&mark) {
            continue;
        }
        match make(inner, &stored) {
            Some(entry) => made.push((stored.tenant, entry)),
            None => inner.agents.set_aside(stored.tenant, &stored.id),
        }
        seen.marks.insert(key, mark);
    }
    inner.agents.insert_all_own(made);
    for (tenant, id) in gone {
        inner.agents.dismiss_own(tenant, &id);
        see_off(inner, tenant, id.clone());
        seen.marks.remove(&(tenant, id));
    }
    seen.revision = Some(revision);
    Ok(())
}

/// Starts the look at what others change.
pub(crate) fn start(inner: &Arc<Inner>) {
    if inner.options.maker.is_some() {
        inner.workers.loops.spawn(watch(Arc::clone(inner)));
    }
}

async fn watch(inner: Arc<Inner>) {
    // The store says the same twice a second while it is away; once is enough.
    let mut is_well = true;
    loop {
        tokio::select! {
            biased;
            () = inner.draining.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        match look(&inner).await {
            Ok(()) => is_well = true,
            Err(error) if is_well => {
                tracing::warn!(%error, "whether agents of tenants have changed cannot be looked up");
                is_well = false;
            }
            Err(_) => {}
        }
    }
}

async fn look(inner: &Arc<Inner>) -> store::Result<()> {
    let now = inner.store.agents_revision().await?;
    if inner.own.0.lock().await.revision == Some(now) {
        return Ok(());
    }
    load(inner).await
}

/// The agent of what was stored. What cannot be made into one, since another version has stored it, is left out.
fn make(inner: &Inner, stored: &StoredAgent) -> Option<Entry> {
    let maker = &inner.options.maker.as_ref()?.0;
    match maker.make(&stored.id, &stored.definition, stored.updated_at) {
        Ok(entry) => Some(entry),
        Err(error) => {
            let (tenant, agent) = (stored.tenant.0, &stored.id);
            tracing::warn!(tenant.id = tenant, agent.name = %agent, error = ?error.message, "the definition of an agent is not understood, and it is left out");
            None
        }
    }
}

/// Removes an agent that was dismissed once nothing of it is left: what was sent to it by those who had not heard that it is gone is canceled,
/// and who works for it is told of what was.
fn see_off(inner: &Arc<Inner>, tenant: TenantId, id: AgentId) {
    let here = Exchange { inner: Arc::clone(inner) };
    inner.workers.loops.spawn(async move {
        let (mut pause, mut waited) = (PAUSE, Duration::ZERO);
        while waited < TELLING {
            tokio::select! {
                biased;
                () = here.inner.draining.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            // Where there is another agent of that id, what comes late is for that one.
            if waited < LATE && here.inner.agents.common(&id).is_none() {
                here.cancel_all(tenant, &id, TaskId::mint()).await;
            }
            let owed = here.inner.store.owed_cancels(std::slice::from_ref(&id), usize::from(u8::MAX)).await;
            if owed.is_ok_and(|owed| owed.iter().all(|owed| owed.tenant != tenant)) {
                break;
            }
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        here.inner.agents.drop_own(tenant, &id);
    });
}

/// Refuses whoever may not change the tenant's agents; one that the token is not for is not there.
fn may_define(caller: &Caller, id: &str) -> Result<(), Error> {
    caller.needs(Scope::Admin)?;
    if caller.covers(id) { Ok(()) } else { Err(Error::not_defined(id)) }
}

fn check_size(definition: &[u8]) -> Result<(), Error> {
    if definition.len() > MOST_BYTES {
        return Err(Error::invalid("", format!("a definition has at most {MOST_BYTES} bytes")));
    }
    Ok(())
}
