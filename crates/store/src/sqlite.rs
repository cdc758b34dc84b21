//! The journal on one SQLite file: WAL, every commit synced, one thread that writes and a few that read.
//!
//! Several processes may open the same directory. Each sees the others' commits by looking at the file (about
//! ten times a second while anyone waits for something), and takes over the work of those that have died.

mod administer;
mod checkpoint;
mod clock;
mod inspect;
pub(crate) mod instances;
mod lease;
mod push;
mod queue;
mod read;
mod readers;
mod registry;
mod retention;
mod row;
pub(crate) mod schema;
pub(crate) mod tx;
mod usage;
mod writer;

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

pub use self::{
    checkpoint::WARN_BYTES as WARN_LOG_BYTES,
    clock::Ticks,
    inspect::{Inspection, inspect, version, version_number},
};
use self::{instances::Presence, readers::Readers, writer::Writer};
use crate::{
    Accept, Accepted, AdminToken, AgentId, AgentQueue, Append, Appended, AuditEntry, Bearer, CancelMark, Change,
    Changed, Claim, Claimed, Deleted, Due, Error, Event, FeedLimit, FeedPage, Filter, Holder, Hub, Installation,
    InstanceId, Journal, Lease, LeaseTime, LeasedTurn, Letters, Most, NewAdminToken, NewPush, Outbox, OwedCancel, Page,
    Position, PruneStep, Pruned, PushClaim, PushConfig, PushFilter, PushLease, Queue, QueueEntry, Registry, Removal,
    Replay, Result, Retention, Settlement, Snapshot, Stats, Store, StoredAgent, StoredCard, Tailed, TaskHead, TaskId,
    Tenant, TenantId, Term, Token, Usage, View, Wake, Wish, fair::Cost, hub::LOOK, ops, waiter::Counters,
};

/// The journal's file in the data directory.
pub const FILE: &str = "switchboard.db";

/// Where each process keeps its lock.
pub(crate) const INSTANCES: &str = "instances";

/// The writer works at the end of its tables. A commit may have to walk the whole of its cache, so that is a smaller one.
const WRITER_SHARE: u32 = 2;

/// The cache of the connection that reads who may call: these are small tables.
const DOORKEEPER_KIB: u32 = 1024;

/// A commit this young proves that the journal can be written.
const PROOF_MS: i64 = 1000;

/// What can be tuned.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that read. Of four, one tenant may have three.
    pub readers: usize,
    /// How many operations may wait for the writer, and as many for the readers; more wait outside.
    pub queue: usize,
    /// Page cache of each connection, in KiB.
    pub cache_kib: u32,
    /// How watchers and workers are woken. NATS comes on top of the file, by [`crate::wake::join`]; NOTIFY is
    /// PostgreSQL's own.
    pub wake: Wake,
    /// How often a watcher that hears nothing looks at the log.
    pub look: Duration,
    /// What drives the journal's clock.
    pub ticks: Ticks,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, queue: 4096, cache_kib: 16 * 1024, wake: Wake::Local, look: LOOK, ticks: Ticks::default() }
    }
}

/// The journal on SQLite. Dropping it commits what waits, closes the file and gives up this instance's leases.
struct SqliteStore {
    // Fields are dropped in this order: the writer is the last connection and cleans up, then the proof of
    // life goes.
    readers: Readers,
    /// Reads who may call, and nothing else.
    doorkeeper: Readers,
    writer: Writer,
    presence: Mutex<Option<Presence>>,
    ticks: Ticks,
    hub: Hub,
    counters: Arc<Counters>,
    id: InstanceId,
    me: Arc<str>,
    instances: PathBuf,
}

/// Opens or creates the journal in `dir`.
pub fn open(dir: &Path, options: Options) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(start(dir, options)?))
}

fn start(dir: &Path, options: Options) -> Result<SqliteStore> {
    if options.wake == Wake::Notify {
        return Err(Error::Unavailable("SQLite has no NOTIFY: wake up by `local`, `nats://…` or `off`".into()));
    }
    let failed = |error: io::Error| Error::Unavailable(format!("{}: {error}", dir.display()));
    create_private_dir(dir).map_err(failed)?;
    let file = dir.join(FILE);
    create_private_file(&file).map_err(failed)?;
    let instances = dir.join(INSTANCES);
    let id = InstanceId::mint();
    let presence = Presence::announce(&instances, id)?;
    let hub = Hub::new(options.wake == Wake::Off, options.look);
    let counters = Arc::new(Counters::default());
    let queue = options.queue.max(1);
    let writer = Writer::start(
        &file,
        options.cache_kib / WRITER_SHARE,
        queue,
        id.to_string(),
        options.ticks.clone(),
        hub.clone(),
        Arc::clone(&counters),
    )?;
    let readers = Readers::start(&file, options.cache_kib, options.readers, queue, readers::WAIT, &writer.reads)?;
    let doorkeeper = Readers::start(&file, DOORKEEPER_KIB, 1, queue, readers::WAIT, &writer.reads)?;
    let me = id.to_string().into();
    let presence = Mutex::new(Some(presence));
    let ticks = options.ticks;
    Ok(SqliteStore { readers, doorkeeper, writer, presence, ticks, hub, counters, id, me, instances })
}

/// The instances that are gone without having signed off, until someone reclaims their work.
pub fn dead_instances(dir: &Path) -> Vec<InstanceId> {
    instances::dead(&dir.join(INSTANCES))
}

/// Whether a process that lives has the journal in `dir` open.
pub fn is_open(dir: &Path) -> bool {
    instances::any_alive(&dir.join(INSTANCES))
}

#[cfg(unix)]
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(not(unix))]
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

/// SQLite gives the files beside this one the same permissions.
pub(crate) fn create_private_file(file: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}

#[async_trait]
impl Journal for SqliteStore {
    async fn accept(&self, tenant: TenantId, accept: Accept) -> Result<Accepted> {
        let cost = Cost::of(tenant, accept.bytes());
        self.writer.run(cost, move |batch| ops::accept(batch, tenant, &accept)).await
    }

    async fn append(&self, lease: &Lease, append: Append) -> Result<Appended> {
        let lease = lease.clone();
        let (cost, tokens) = (Cost::of(lease.tenant, append.bytes()), append.tokens);
        let appended = self.writer.run(cost, move |batch| ops::append(batch, &lease, &append)).await?;
        self.counters.spent(tokens);
        Ok(appended)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<LeasedTurn>> {
        self.writer.run(Cost::SYSTEM, move |batch| ops::claim(batch, &claim)).await
    }

    async fn renew(&self, leases: &[Lease], lasts: Duration) -> Result<Vec<Lease>> {
        let leases = leases.to_vec();
        self.writer.run(Cost::SYSTEM, move |batch| lease::renew(batch, &leases, lasts)).await
    }

    async fn reclaim_dead(&self) -> Result<usize> {
        let (dir, me) = (self.instances.clone(), Arc::clone(&self.me));
        let dead = self.readers.run(move |conn| {
            let mut others = lease::other_instances(conn, &me)?;
            // Holders that are no instance have no lock; their leases run out.
            others.retain(|id| InstanceId::parse(id).is_some() && instances::is_dead(&dir, id));
            Ok(others)
        });
        let dead = dead.await?;
        if dead.is_empty() {
            return Ok(0);
        }
        let dir = self.instances.clone();
        let gone = dead.clone();
        let reclaimed = self.writer.run(Cost::SYSTEM, move |batch| lease::reclaim(batch, &dead)).await?;
        self.readers
            .run(move |_| {
                gone.iter().for_each(|id| instances::bury(&dir, id));
                Ok(())
            })
            .await?;
        Ok(reclaimed)
    }

    async fn mark_cancel(&self, tenant: TenantId, task: TaskId) -> Result<CancelMark> {
        self.writer.run(tenant, move |batch| ops::mark(batch, tenant, task)).await
    }

    async fn force_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(tenant, move |batch| ops::force(batch, tenant, task)).await
    }

    async fn owed_cancels(&self, agents: &[AgentId], limit: usize) -> Result<Vec<OwedCancel>> {
        let agents = agents.to_vec();
        self.readers.run(move |conn| read::owed_cancels(conn, &agents, limit)).await
    }

    async fn settle_cancel(&self, tenant: TenantId, task: TaskId, generation: u64) -> Result<()> {
        self.writer.run(tenant, move |batch| ops::settle(batch, tenant, task, generation)).await
    }

    async fn owe_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(tenant, move |batch| ops::owe_again(batch, tenant, task)).await
    }

    async fn next_due(&self, agents: &[AgentId]) -> Result<Due> {
        let (agents, ticks) = (agents.to_vec(), self.ticks.clone());
        self.readers
            .run(move |conn| {
                let now = clock::read(conn, &ticks)?;
                lease::next_due(conn, &agents, now)
            })
            .await
    }

    async fn marked(&self, holders: &[Holder]) -> Result<Vec<TaskId>> {
        let holders = holders.to_vec();
        self.readers.run(move |conn| lease::marked(conn, &holders)).await
    }

    async fn reveal(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(tenant, move |batch| ops::reveal(batch, tenant, task)).await
    }

    async fn wake(&self, tenant: TenantId, task: TaskId) -> Result<bool> {
        self.writer.run(tenant, move |batch| ops::wake(batch, tenant, task)).await
    }

    async fn children(&self, tenant: TenantId, task: TaskId, limit: usize) -> Result<Vec<TaskId>> {
        self.readers.run_for(tenant, move |conn| read::children(conn, tenant, task, limit)).await
    }

    async fn head(&self, tenant: TenantId, task: TaskId) -> Result<TaskHead> {
        self.readers.run_for(tenant, move |conn| read::head(conn, tenant, task)).await
    }

    async fn task(&self, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot> {
        self.readers.run_for(tenant, move |conn| read::task(conn, tenant, task, view)).await
    }

    async fn list(&self, tenant: TenantId, filter: Filter) -> Result<Page> {
        self.readers.run_for(tenant, move |conn| read::list(conn, tenant, &filter)).await
    }

    async fn read(&self, tenant: TenantId, task: TaskId, after: u64, most: Most) -> Result<(Vec<Event>, bool)> {
        self.readers.run_for(tenant, move |conn| read::events(conn, tenant, task, after, most)).await
    }

    async fn tail(&self, after: &Position, limit: usize) -> Result<(Vec<Tailed>, Position)> {
        let after = *after;
        self.readers.run(move |conn| read::tail(conn, after, limit)).await
    }

    async fn feed(&self, tenant: TenantId, agents: &[AgentId], after: &Position, limit: FeedLimit) -> Result<FeedPage> {
        let (agents, after) = (agents.to_vec(), *after);
        self.readers.run_for(tenant, move |conn| read::feed(conn, tenant, &agents, after, limit)).await
    }

    async fn log_end(&self) -> Result<Position> {
        self.readers.run(read::log_end).await
    }

    async fn history(&self, tenant: TenantId, task: TaskId, most: u64) -> Result<Vec<a2a::Message>> {
        self.readers.run_for(tenant, move |conn| read::history(conn, tenant, task, most)).await
    }

    async fn turn_message(&self, tenant: TenantId, task: TaskId, turn: u32) -> Result<a2a::Message> {
        self.readers.run_for(tenant, move |conn| read::turn_message(conn, tenant, task, turn)).await
    }

    async fn context_history(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        context: &str,
        before: TaskId,
        limit: usize,
        most: u64,
    ) -> Result<Vec<a2a::Message>> {
        let (agent, context) = (agent.clone(), context.to_owned());
        self.readers
            .run_for(tenant, move |conn| read::context_history(conn, tenant, &agent, &context, before, limit, most))
            .await
    }

    async fn context_state(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        context: &str,
        before: TaskId,
    ) -> Result<Option<(TaskId, Event)>> {
        let (agent, context) = (agent.clone(), context.to_owned());
        self.readers.run_for(tenant, move |conn| read::context_state(conn, tenant, &agent, &context, before)).await
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

#[async_trait]
impl Queue for SqliteStore {
    async fn claim_task(&self, tenant: TenantId, task: TaskId, term: Term, resumes: bool) -> Result<LeasedTurn> {
        self.writer.run(tenant, move |batch| ops::claim_task(batch, tenant, task, &term, resumes)).await
    }

    async fn lapsed(&self, agent: Option<AgentId>, since: LeaseTime, limit: usize) -> Result<(LeaseTime, Vec<Lease>)> {
        let ticks = self.ticks.clone();
        let lapsed = move |conn: &_| {
            let now = clock::read(conn, &ticks)?;
            Ok((now, queue::lapsed(conn, agent.as_ref(), since, limit, now)?))
        };
        self.readers.run(lapsed).await
    }

    async fn prolong_lapsed(&self, step: Duration) -> Result<usize> {
        self.writer.run(Cost::SYSTEM, move |batch| queue::prolong_lapsed(batch, step)).await
    }

    async fn next_queued(&self, wishes: &[Wish]) -> Result<(LeaseTime, Vec<Option<LeaseTime>>)> {
        let (wishes, ticks) = (wishes.to_vec(), self.ticks.clone());
        self.readers.run(move |conn| Ok((clock::read(conn, &ticks)?, queue::next(conn, &wishes)?))).await
    }

    async fn entry(&self, tenant: Option<TenantId>, task: TaskId) -> Result<QueueEntry> {
        let ticks = self.ticks.clone();
        let entry = move |conn: &_| queue::entry(conn, tenant, task, clock::read(conn, &ticks)?);
        match tenant {
            Some(tenant) => self.readers.run_for(tenant, entry).await,
            None => self.readers.run(entry).await,
        }
    }

    async fn first_message(&self, tenant: TenantId, task: TaskId) -> Result<Bytes> {
        self.readers.run_for(tenant, move |conn| queue::first_message(conn, tenant, task)).await
    }

    async fn dead_letters(&self, tenant: TenantId, letters: Letters) -> Result<Vec<QueueEntry>> {
        let ticks = self.ticks.clone();
        self.readers
            .run_for(tenant, move |conn| queue::dead_letters(conn, tenant, &letters, clock::read(conn, &ticks)?))
            .await
    }

    async fn agent_queues(&self, tenant: TenantId) -> Result<Vec<AgentQueue>> {
        self.readers.run_for(tenant, move |conn| queue::agent_queues(conn, tenant)).await
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn put_push(&self, tenant: TenantId, task: TaskId, new: NewPush) -> Result<()> {
        self.writer.run(Cost::of(tenant, new.size()), move |batch| ops::put_push(batch, tenant, task, &new)).await
    }

    async fn remove_push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run(tenant, move |batch| ops::remove_push(batch, tenant, task, &id)).await
    }

    async fn push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<PushConfig>> {
        let id = id.to_owned();
        self.readers.run_for(tenant, move |conn| push::find(conn, tenant, task, &id)).await
    }

    async fn pushes(&self, tenant: TenantId, filter: PushFilter) -> Result<Vec<PushConfig>> {
        self.readers.run_for(tenant, move |conn| push::list(conn, tenant, &filter)).await
    }

    async fn claim_pushes(&self, claim: PushClaim) -> Result<Claimed> {
        self.writer.run(Cost::SYSTEM, move |batch| push::claim(batch, &claim)).await
    }

    async fn next_push(&self) -> Result<(LeaseTime, Option<LeaseTime>)> {
        let ticks = self.ticks.clone();
        self.readers.run(move |conn| Ok((clock::read(conn, &ticks)?, push::next(conn)?))).await
    }

    async fn settle_push(&self, lease: &PushLease, settlement: Settlement) -> Result<()> {
        let lease = lease.clone();
        self.writer.run(lease.config.tenant, move |batch| push::settle(batch, &lease, &settlement)).await
    }

    async fn replay_pushes(&self, tenant: TenantId, task: TaskId, id: &str, which: Replay) -> Result<usize> {
        let id = id.to_owned();
        let replayed = self.writer.run(tenant, move |batch| push::replay(batch, tenant, task, &id, which)).await?;
        self.hub.poke_outbox();
        Ok(replayed)
    }
}

#[async_trait]
impl Retention for SqliteStore {
    async fn prune(&self, step: PruneStep) -> Result<Pruned> {
        self.writer.run(Cost::SYSTEM, move |batch| retention::prune(batch, &step)).await
    }

    async fn delete(&self, tenant: TenantId, actor: &str, removal: Removal, size: u64) -> Result<Deleted> {
        let actor = actor.to_owned();
        self.writer.run(tenant, move |batch| retention::delete(batch, tenant, &actor, &removal, size)).await
    }

    async fn owes_cancels(&self, tenant: TenantId, removal: Removal) -> Result<bool> {
        self.readers.run_for(tenant, move |conn| retention::owes_cancels(conn, tenant, &removal)).await
    }

    async fn unfinished_of(&self, tenant: TenantId, limit: usize) -> Result<Vec<TaskId>> {
        self.readers.run_for(tenant, move |conn| retention::unfinished_of(conn, tenant, limit)).await
    }

    async fn unfinished(&self, tenant: TenantId, context: &str, limit: usize) -> Result<Vec<TaskId>> {
        let context = context.to_owned();
        self.readers.run_for(tenant, move |conn| retention::unfinished(conn, tenant, &context, limit)).await
    }
}

#[async_trait]
impl Registry for SqliteStore {
    async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.readers.run(registry::tenants).await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<Bearer>> {
        let hash = *hash;
        self.doorkeeper.run(move |conn| registry::token(conn, &hash)).await
    }

    async fn live_tokens(&self, tokens: &[i64]) -> Result<Vec<i64>> {
        let tokens = tokens.to_vec();
        self.doorkeeper.run(move |conn| registry::live_tokens(conn, &tokens)).await
    }

    async fn credentials_revision(&self) -> Result<i64> {
        self.doorkeeper.run(registry::credentials_revision).await
    }

    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>> {
        self.readers.run_for(tenant, move |conn| registry::tokens(conn, tenant)).await
    }

    async fn touch_token(&self, token: i64) -> Result<()> {
        self.writer.run(Cost::SYSTEM, move |batch| registry::touch_token(batch, token)).await
    }

    async fn administer(&self, actor: &str, change: Change) -> Result<Changed> {
        let actor = actor.to_owned();
        self.writer.run(Cost::SYSTEM, move |batch| administer::administer(batch, &actor, &change)).await
    }

    async fn admin_tokens(&self) -> Result<Vec<AdminToken>> {
        self.doorkeeper.run(registry::admin_tokens).await
    }

    async fn add_admin_token(&self, actor: &str, token: NewAdminToken) -> Result<AdminToken> {
        let actor = actor.to_owned();
        self.writer.run(Cost::SYSTEM, move |batch| administer::add_admin_token(batch, &actor, &token)).await
    }

    async fn revoke_admin_token(&self, actor: &str, token: i64) -> Result<AdminToken> {
        let actor = actor.to_owned();
        self.writer.run(Cost::SYSTEM, move |batch| administer::revoke_admin_token(batch, &actor, token)).await
    }

    async fn audit(&self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>> {
        self.readers.run(move |conn| administer::audit(conn, before, limit)).await
    }

    async fn put_card(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        card: Vec<u8>,
        most: u64,
    ) -> Result<(StoredCard, bool)> {
        let agent = agent.clone();
        self.writer
            .run(Cost::of(tenant, card.len()), move |batch| administer::put_card(batch, tenant, &agent, &card, most))
            .await
    }

    async fn cards(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredCard>> {
        self.readers.run_for(tenant, move |conn| registry::cards(conn, tenant, most_bytes)).await
    }

    async fn card(&self, tenant: TenantId, agent: &AgentId) -> Result<Option<StoredCard>> {
        let agent = agent.clone();
        self.readers.run_for(tenant, move |conn| registry::card(conn, tenant, agent.as_str())).await
    }

    async fn remove_card(&self, tenant: TenantId, agent: &AgentId) -> Result<bool> {
        let agent = agent.clone();
        self.writer.run(tenant, move |batch| registry::remove_card(batch, tenant, agent.as_str())).await
    }

    async fn create_agent(
        &self,
        tenant: TenantId,
        id: &AgentId,
        definition: Vec<u8>,
        most: u64,
    ) -> Result<StoredAgent> {
        let id = id.clone();
        self.writer
            .run(Cost::of(tenant, definition.len()), move |batch| {
                administer::create_agent(batch, tenant, &id, &definition, most)
            })
            .await
    }

    async fn replace_agent(&self, tenant: TenantId, id: &AgentId, definition: Vec<u8>) -> Result<StoredAgent> {
        let id = id.clone();
        self.writer
            .run(Cost::of(tenant, definition.len()), move |batch| {
                administer::replace_agent(batch, tenant, &id, &definition)
            })
            .await
    }

    async fn remove_agent(&self, tenant: TenantId, id: &AgentId) -> Result<bool> {
        let id = id.clone();
        self.writer.run(tenant, move |batch| administer::remove_agent(batch, tenant, &id)).await
    }

    async fn own_agents(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredAgent>> {
        self.readers.run_for(tenant, move |conn| registry::own_agents(conn, tenant, most_bytes)).await
    }

    async fn own_agent(&self, tenant: TenantId, id: &AgentId) -> Result<Option<StoredAgent>> {
        let id = id.clone();
        self.readers.run_for(tenant, move |conn| registry::own_agent(conn, tenant, id.as_str())).await
    }

    async fn all_agents(&self) -> Result<(i64, Vec<StoredAgent>)> {
        self.readers.run(registry::all_agents).await
    }

    async fn agents_revision(&self) -> Result<i64> {
        self.readers.run(registry::agents_revision).await
    }

    async fn usage(&self, tenant: TenantId) -> Result<Usage> {
        self.readers.run_for(tenant, move |conn| usage::usage(conn, tenant)).await
    }
}

#[async_trait]
impl Installation for SqliteStore {
    async fn setting(&self, name: &str, create: Vec<u8>) -> Result<Vec<u8>> {
        let name = name.to_owned();
        let asked = name.clone();
        if let Some(value) = self.readers.run(move |conn| registry::setting(conn, &asked)).await? {
            return Ok(value);
        }
        self.writer.run(Cost::SYSTEM, move |batch| registry::create_setting(batch, &name, &create)).await
    }

    async fn find_setting(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.doorkeeper.run(move |conn| registry::setting(conn, &name)).await
    }

    async fn set_setting(&self, actor: &str, name: &str, value: Vec<u8>) -> Result<()> {
        let (actor, name) = (actor.to_owned(), name.to_owned());
        self.writer.run(Cost::SYSTEM, move |batch| administer::set_setting(batch, &actor, &name, &value)).await
    }

    async fn replace_setting(&self, actor: &str, name: &str, was: Vec<u8>, value: Vec<u8>) -> Result<bool> {
        let (actor, name) = (actor.to_owned(), name.to_owned());
        self.writer
            .run(Cost::SYSTEM, move |batch| administer::replace_setting(batch, &actor, &name, &was, &value))
            .await
    }

    async fn ping(&self) -> Result<()> {
        if self.writer.in_trouble.load(Relaxed) {
            // A write that needs less may still fit in.
            self.writer.run(Cost::SYSTEM, |batch| registry::find_room(batch)).await?;
            self.writer.in_trouble.store(false, Relaxed);
        }
        if !self.writer.is_closed() && self.counters.has_committed_within(PROOF_MS) {
            return Ok(());
        }
        self.writer.run(Cost::SYSTEM, |batch| registry::heartbeat(batch)).await
    }

    async fn check_schema(&self) -> Result<()> {
        self.readers.run(schema::check).await
    }

    async fn has_older_instances(&self) -> Result<bool> {
        self.readers.run(schema::has_older_instances).await
    }

    fn stats(&self) -> Stats {
        self.counters.stats()
    }

    fn instance(&self) -> InstanceId {
        self.id
    }

    async fn close(&self) {
        // The writer is the last connection: it cleans up.
        self.readers.close().await;
        self.doorkeeper.close().await;
        self.writer.close().await;
        drop(self.presence.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        pin::Pin,
        sync::{
            atomic::{AtomicUsize, Ordering::Relaxed},
            mpsc,
        },
        task::Poll,
    };

    use tokio::time::timeout;

    use super::*;
    use crate::{NewToken, Reach, testing};
    use a2a::Dialect;

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_reads_keeps_nobody_from_being_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default();
        let busy = options.readers;
        let store = Arc::new(start(dir.path(), options).unwrap());
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let token = NewToken { tenant, hash: [1; 32], name: "t".into(), expires: None, reach: Reach::default() };
        let token = store.add_token(token).await.unwrap();
        // Every reader has something to do that does not end by itself.
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..busy {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let (begun, store) = (begun.clone(), Arc::clone(&store));
            tokio::spawn(async move {
                let read = move |_: &rusqlite::Connection| {
                    let _ = begun.send(());
                    let _ = ended.recv();
                    Ok(())
                };
                store.readers.run(read).await
            });
        }
        for _ in 0..busy {
            tokio::task::block_in_place(|| begins.recv()).unwrap();
        }
        assert!(timeout(Duration::from_millis(200), store.tenants()).await.is_err(), "the others are busy");
        let looked = async {
            assert_eq!(store.token(&[1; 32]).await.unwrap().unwrap().token, token);
            assert_eq!(store.live_tokens(&[token.id]).await.unwrap(), [token.id]);
            store.credentials_revision().await.unwrap();
            store.admin_tokens().await.unwrap();
            store.find_setting("admin.token").await.unwrap();
        };
        timeout(Duration::from_secs(30), looked).await.expect("somebody is at the door");
        drop(ends);
    }

    /// Agents look for sub-tasks and entries on behalf of a tenant, whose reads these are like any others.
    #[tokio::test(flavor = "multi_thread")]
    async fn looking_for_sub_tasks_and_entries_is_within_the_share_of_the_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default();
        let share = options.readers - 1;
        let store = Arc::new(start(dir.path(), options).unwrap());
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let other = store.create_tenant("other").await.unwrap().id;
        let task = store.accept(tenant, testing::accept("x")).await.unwrap().task;
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..share {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let (begun, store) = (begun.clone(), Arc::clone(&store));
            tokio::spawn(async move {
                let read = move |_: &rusqlite::Connection| {
                    let _ = begun.send(());
                    let _ = ended.recv();
                    Ok(())
                };
                store.readers.run_for(tenant, read).await
            });
        }
        for _ in 0..share {
            tokio::task::block_in_place(|| begins.recv()).unwrap();
        }
        let wait = Duration::from_millis(100);
        assert!(timeout(wait, store.children(tenant, task, 9)).await.is_err(), "the share is in use");
        assert!(timeout(wait, store.entry(Some(tenant), task)).await.is_err(), "the share is in use");
        let left_alone = async {
            assert!(store.children(other, task, 9).await.unwrap().is_empty());
            assert!(store.entry(Some(other), task).await.is_err());
            store.entry(None, task).await.unwrap();
        };
        timeout(Duration::from_secs(30), left_alone).await.expect("another tenant's reads do not wait");
        drop(ends);
        assert!(store.children(tenant, task, 9).await.unwrap().is_empty());
    }

    /// Sets how many pages the file may have; SQLite takes no less than it has.
    async fn set_most_pages(store: &SqliteStore, pages: u32) {
        let set = move |batch: &mut writer::Batch<'_>| {
            Ok(batch.conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?)
        };
        store.writer.run(Cost::SYSTEM, set).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_cannot_grow_is_not_ready_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = start(dir.path(), Options::default()).unwrap();
        let tenant = store.create_tenant("acme").await.unwrap().id;
        set_most_pages(&store, 1).await;
        store.ping().await.unwrap();
        let large = testing::accept(&"x".repeat(100_000));
        let refused = store.accept(tenant, large.clone()).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        for _ in 0..2 {
            let refused = store.ping().await;
            assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        }
        set_most_pages(&store, u32::MAX).await;
        store.ping().await.unwrap();
        store.accept(tenant, large).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_cannot_grow_is_not_ready_whatever_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = start(dir.path(), Options::default()).unwrap();
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let task = store.accept(tenant, testing::accept("x")).await.unwrap().task;
        set_most_pages(&store, 1).await;
        let push = NewPush {
            id: "hook".to_owned(),
            url: format!("http://h/{}", "x".repeat(100_000)),
            receiver: "h:80".to_owned(),
            scheme: String::new(),
            sealed: Vec::new(),
            dialect: Dialect::V1,
            chunks: false,
        };
        let refused = store.put_push(tenant, task, push.clone()).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        let refused = store.ping().await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        set_most_pages(&store, u32::MAX).await;
        store.ping().await.unwrap();
        store.put_push(tenant, task, push).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_operations_of_one_tenant_do_not_hold_up_another() {
        let dir = tempfile::tempdir().unwrap();
        let store = start(dir.path(), Options::default()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |cost: Cost, n: u32| {
            let order = Arc::clone(&order);
            let op = move |_: &mut writer::Batch<'_>| {
                order.lock().unwrap().push(n);
                Ok(())
            };
            Box::pin(store.writer.run(cost, op))
        };
        let (begun, begins) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let busy = store.writer.run(Cost::SYSTEM, move |_| {
            let _ = begun.send(());
            let _ = ended.recv();
            Ok(())
        });
        let mut busy = Box::pin(busy);
        let mut calls = Vec::new();
        assert!(is_pending(&mut busy).await);
        tokio::task::block_in_place(|| begins.recv()).unwrap();
        // Polled once, each stands in the queue.
        for n in 0..24 {
            calls.push(note(Cost::of(TenantId(1), 4 << 20), n));
            assert!(is_pending(calls.last_mut().unwrap()).await);
        }
        calls.push(note(TenantId(2).into(), 100));
        assert!(is_pending(calls.last_mut().unwrap()).await);
        drop(end);
        busy.await.unwrap();
        for call in calls {
            call.await.unwrap();
        }
        let order = order.lock().unwrap();
        assert_eq!(order[0], 100, "the other tenant goes first");
        assert_eq!(order[1..], (0..24).collect::<Vec<_>>(), "a tenant's operations keep their order");
    }

    /// A task has two commits. The second goes before the next large operation although that was there first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_waits_for_one_large_operation_and_not_for_two() {
        const LARGE: usize = 16;
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(start(dir.path(), Options::default()).unwrap());
        let done = Arc::new(AtomicUsize::new(0));
        let mut large = Vec::new();
        for _ in 0..LARGE {
            let (store, done) = (Arc::clone(&store), Arc::clone(&done));
            large.push(tokio::spawn(async move {
                let op = move |_: &mut writer::Batch<'_>| {
                    std::thread::sleep(Duration::from_millis(50));
                    Ok(done.fetch_add(1, Relaxed))
                };
                store.writer.run(Cost::of(TenantId(1), 8 << 20), op).await
            }));
        }
        while done.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let small = || {
            let done = Arc::clone(&done);
            store.writer.run(TenantId(2), move |_: &mut writer::Batch<'_>| Ok(done.load(Relaxed)))
        };
        let mut follows = 0;
        for _ in 0..4 {
            let (first, second) = (small().await.unwrap(), small().await.unwrap());
            assert!(first < LARGE, "the large ones are over");
            follows += usize::from(first == second);
            // The next task comes while a large operation is under way.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(follows >= 2, "{follows} of 4");
        for large in large {
            large.await.unwrap().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_of_retention_is_not_charged_for_its_wait() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(start(dir.path(), Options::default()).unwrap());
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let (begun, begins) = mpsc::channel();
        let busy = Arc::clone(&store);
        let busy = tokio::spawn(async move {
            let op = move |_: &mut writer::Batch<'_>| {
                let _ = begun.send(());
                std::thread::sleep(Duration::from_millis(400));
                Ok(())
            };
            busy.writer.run(Cost::SYSTEM, op).await
        });
        tokio::task::block_in_place(|| begins.recv()).unwrap();
        let (whose, what, walk) = (crate::Whose::AllBut(Vec::new()), crate::Prune::Tasks, crate::PruneWalk::default());
        let step = PruneStep { tenant, whose, what, older_than: Duration::ZERO, walk, size: 1 };
        let asked = std::time::Instant::now();
        let pruned = store.prune(step).await.unwrap();
        assert!(asked.elapsed() >= Duration::from_millis(200), "it did not wait for the writer");
        assert!(pruned.took < Duration::from_millis(200), "{:?}", pruned.took);
        busy.await.unwrap().unwrap();
    }

    /// Polls it once.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
    }
}
