//! The journal on PostgreSQL, for any number of instances: one task of each that writes in batches, a few connections
//! that read, and one session that proves that the instance lives.
//!
//! | what | where |
//! |---|---|
//! | locking and reading what a batch needs | [`fetch`] |
//! | deciding, in memory, by the operations that all stores share | [`batch`] |
//! | writing it, and commits whose answer is lost | [`flush`] |
//! | batching, retrying, publishing | [`writer`] |
//! | writing for tenants that wait for a lock | [`blocked`] |
//! | leases of the living and the dead | [`lease`], [`instances`] |
//! | what goes | [`retention`] |
//! | the log of all tasks | [`tail`] |

mod administer;
mod batch;
mod blocked;
mod fetch;
mod flush;
mod inspect;
mod instances;
mod lease;
mod pool;
mod push;
mod queue;
mod read;
mod registry;
mod retention;
pub(crate) mod schema;
mod tail;
#[cfg(test)]
mod testing;
mod tls;
mod url;
mod writer;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinHandle;

use self::{
    fetch::Need,
    instances::Presence,
    lease::Suspects,
    pool::{Connector, Limits, Pool, Role},
    writer::{Setting, Writer},
};
pub use self::{
    inspect::{Content, Inspection, inspect},
    url::{BadUrl, Url, masked},
};
use crate::{
    Accept, Accepted, AdminToken, AgentId, AgentQueue, Append, Appended, AuditEntry, Bearer, CancelMark, Change,
    Changed, Claim, Claimed, Deleted, Due, Event, FeedLimit, FeedPage, Filter, Holder, Hub, Installation, InstanceId,
    Journal, Lease, LeaseTime, LeasedTurn, Letters, Most, NewAdminToken, NewPush, Outbox, OwedCancel, Page, Position,
    PruneStep, Pruned, PushClaim, PushConfig, PushFilter, PushLease, Queue, QueueEntry, Registry, Removal, Replay,
    Result, Retention, Settlement, Snapshot, Stats, Store, StoredAgent, StoredCard, Tailed, TaskHead, TaskId, Tenant,
    TenantId, Term, Token, Usage, View, Wake, Wish, hub::LOOK, ops, waiter::Counters,
};

/// Connections for what is written beside the journal: tenants, tokens, settings, renewals.
const WRITERS: usize = 2;

/// Connections for claims and settlements of notifications, which must not keep a renewal waiting.
const TELLERS: usize = 2;

/// Connections for reading who may call: no tenant's reads keep another from being recognised.
const DOORKEEPERS: usize = 2;

const PATIENCE: Duration = Duration::from_secs(10);

/// A commit this young proves that the journal can be written.
const PROOF_MS: i64 = 1000;

/// What can be tuned.
#[derive(Debug, Clone)]
pub struct Options {
    /// Connections that read, at most. The instance has eight more, and up to four while tenants wait for locks.
    pub connections: usize,
    /// How many operations may wait for the writer; more wait outside.
    pub queue: usize,
    /// How long an operation waits for a database that does not answer.
    pub patience: Duration,
    /// How watchers and workers are woken. NATS comes by [`crate::wake::join`].
    pub wake: Wake,
    /// How often a watcher that hears nothing looks at the log.
    pub look: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 8, queue: 4096, patience: PATIENCE, wake: Wake::Notify, look: LOOK }
    }
}

/// The journal on PostgreSQL. When it is dropped, what waits is committed in the background, and then this instance
/// gives up its leases.
struct PostgresStore {
    readers: Pool,
    doorkeepers: Pool,
    writers: Pool,
    tellers: Pool,
    writer: Writer,
    hub: Hub,
    counters: Arc<Counters>,
    in_trouble: Arc<AtomicBool>,
    suspects: Suspects,
    /// Signs off when the writer has ended.
    presence: Mutex<Option<JoinHandle<()>>>,
    id: InstanceId,
    me: Arc<str>,
}

/// Opens the journal in the database that `url` names; its tables are created or brought up to date.
pub async fn open(url: &Url, options: Options) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(start(url, options).await?))
}

async fn start(url: &Url, options: Options) -> Result<PostgresStore> {
    let limits = Limits { connections: options.connections.max(1), ..Limits::default() };
    let connector = Connector::new(url, &limits)?;
    schema::migrate(&connector).await?;

    let id = InstanceId::mint();
    let hub = Hub::new(options.wake == Wake::Off, options.look);
    let notify = options.wake == Wake::Notify;
    let presence = Presence { connector: connector.clone(), me: id, hub: hub.clone(), listen: notify };
    let announced = presence.announce().await?;
    let counters = Arc::new(Counters::default());
    let in_trouble = Arc::new(AtomicBool::new(false));
    let setting = Setting {
        connector: connector.clone(),
        hub: hub.clone(),
        me: id,
        counters: Arc::clone(&counters),
        in_trouble: Arc::clone(&in_trouble),
        shard: announced.shard,
        notify,
    };
    let (writer, ended) = Writer::start(setting, options.queue.max(1), options.patience);
    let presence = Mutex::new(Some(presence.keep(announced, ended)));
    let suspects = Suspects::default();
    let writers = Pool::new(connector.clone(), Role::Write, Limits { connections: WRITERS, ..limits.clone() });
    let tellers = Pool::new(connector.clone(), Role::Write, Limits { connections: TELLERS, ..limits.clone() });
    let doorkeepers = Pool::new(connector.clone(), Role::Read, Limits { connections: DOORKEEPERS, ..limits.clone() });
    let readers = Pool::new(connector, Role::Read, limits);
    let me = id.to_string().into();
    Ok(PostgresStore {
        readers,
        doorkeepers,
        writers,
        tellers,
        writer,
        hub,
        counters,
        in_trouble,
        suspects,
        presence,
        id,
        me,
    })
}

/// Creates the tables or brings them up to date. Hidden because [`open`] does it: tests make a template database with it.
#[doc(hidden)]
pub async fn migrate(url: &Url) -> Result<()> {
    schema::migrate(&Connector::new(url, &Limits::default())?).await
}

/// A digest of all migrations: databases with the same one have the same tables. Hidden because only tests name a template
/// database by it.
#[doc(hidden)]
pub fn schema_digest() -> String {
    schema::digest()
}

/// One session for whoever reads or writes the tables by itself, without a bound on time. Nothing is migrated.
pub(crate) async fn session(url: &Url) -> Result<tokio_postgres::Client> {
    Connector::new(url, &Limits::default())?.open(Role::Session).await
}

#[async_trait]
impl Journal for PostgresStore {
    async fn accept(&self, tenant: TenantId, accept: Accept) -> Result<Accepted> {
        let need = Need::accept(tenant, &accept);
        self.writer.run(need, move |batch| ops::accept(batch, tenant, &accept)).await
    }

    async fn append(&self, lease: &Lease, append: Append) -> Result<Appended> {
        let lease = lease.clone();
        let (need, tokens) = (Need::append(&lease, &append), append.tokens);
        let appended = self.writer.run(need, move |batch| ops::append(batch, &lease, &append)).await?;
        self.counters.spent(tokens);
        Ok(appended)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<LeasedTurn>> {
        let need = Need::claim(&claim);
        self.writer.run(need, move |batch| ops::claim(batch, &claim)).await
    }

    async fn next_due(&self, agents: &[AgentId]) -> Result<Due> {
        lease::next_due(&self.readers, agents).await
    }

    async fn renew(&self, leases: &[Lease], lasts: Duration) -> Result<Vec<Lease>> {
        lease::renew(&self.writers, leases, lasts).await
    }

    async fn reclaim_dead(&self) -> Result<usize> {
        let dead = lease::dead_instances(&self.readers, &self.me, &self.suspects).await?;
        if dead.is_empty() {
            return Ok(0);
        }
        let reclaimed = lease::reclaim(&self.writers, &dead).await?;
        if reclaimed > 0 {
            self.hub.poke();
        }
        Ok(reclaimed)
    }

    async fn mark_cancel(&self, tenant: TenantId, task: TaskId) -> Result<CancelMark> {
        self.writer.run(Need::task(tenant, task, true), move |batch| ops::mark(batch, tenant, task)).await
    }

    async fn force_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(Need::task(tenant, task, true), move |batch| ops::force(batch, tenant, task)).await
    }

    async fn owed_cancels(&self, agents: &[AgentId], limit: usize) -> Result<Vec<OwedCancel>> {
        read::owed_cancels(&self.readers, agents, limit).await
    }

    async fn settle_cancel(&self, tenant: TenantId, task: TaskId, generation: u64) -> Result<()> {
        let need = Need::task(tenant, task, false);
        self.writer.run(need, move |batch| ops::settle(batch, tenant, task, generation)).await
    }

    async fn owe_cancel(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(Need::task(tenant, task, false), move |batch| ops::owe_again(batch, tenant, task)).await
    }

    async fn marked(&self, holders: &[Holder]) -> Result<Vec<TaskId>> {
        lease::marked(&self.readers, holders).await
    }

    async fn reveal(&self, tenant: TenantId, task: TaskId) -> Result<()> {
        self.writer.run(Need::task(tenant, task, false), move |batch| ops::reveal(batch, tenant, task)).await
    }

    async fn wake(&self, tenant: TenantId, task: TaskId) -> Result<bool> {
        self.writer.run(Need::task(tenant, task, false), move |batch| ops::wake(batch, tenant, task)).await
    }

    async fn children(&self, tenant: TenantId, task: TaskId, limit: usize) -> Result<Vec<TaskId>> {
        read::children(&self.readers.of(tenant), tenant, task, limit).await
    }

    async fn head(&self, tenant: TenantId, task: TaskId) -> Result<TaskHead> {
        read::head(&self.readers.of(tenant), tenant, task).await
    }

    async fn task(&self, tenant: TenantId, task: TaskId, view: View) -> Result<Snapshot> {
        read::task(&self.readers.of(tenant), tenant, task, view).await
    }

    async fn list(&self, tenant: TenantId, filter: Filter) -> Result<Page> {
        read::list(&self.readers.of(tenant), tenant, &filter).await
    }

    async fn read(&self, tenant: TenantId, task: TaskId, after: u64, most: Most) -> Result<(Vec<Event>, bool)> {
        read::events(&self.readers.of(tenant), tenant, task, after, most).await
    }

    async fn tail(&self, after: &Position, limit: usize) -> Result<(Vec<Tailed>, Position)> {
        tail::tail(&self.readers, *after, limit).await
    }

    async fn feed(&self, tenant: TenantId, agents: &[AgentId], after: &Position, limit: FeedLimit) -> Result<FeedPage> {
        tail::feed(&self.readers.of(tenant), tenant, agents, *after, limit).await
    }

    async fn log_end(&self) -> Result<Position> {
        tail::log_end(&self.readers).await
    }

    async fn history(&self, tenant: TenantId, task: TaskId, most: u64) -> Result<Vec<a2a::Message>> {
        read::history(&self.readers.of(tenant), tenant, task, most).await
    }

    async fn turn_message(&self, tenant: TenantId, task: TaskId, turn: u32) -> Result<a2a::Message> {
        read::turn_message(&self.readers.of(tenant), tenant, task, turn).await
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
        read::context_history(&self.readers.of(tenant), tenant, agent, context, before, limit, most).await
    }

    async fn context_state(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        context: &str,
        before: TaskId,
    ) -> Result<Option<(TaskId, Event)>> {
        read::context_state(&self.readers.of(tenant), tenant, agent, context, before).await
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

#[async_trait]
impl Queue for PostgresStore {
    async fn claim_task(&self, tenant: TenantId, task: TaskId, term: Term, resumes: bool) -> Result<LeasedTurn> {
        let need = Need::task(tenant, task, true);
        self.writer.run(need, move |batch| ops::claim_task(batch, tenant, task, &term, resumes)).await
    }

    async fn lapsed(&self, agent: Option<AgentId>, since: LeaseTime, limit: usize) -> Result<(LeaseTime, Vec<Lease>)> {
        queue::lapsed(&self.readers, agent.as_ref(), since, limit).await
    }

    async fn prolong_lapsed(&self, step: Duration) -> Result<usize> {
        queue::prolong_lapsed(&self.writers, step).await
    }

    async fn next_queued(&self, wishes: &[Wish]) -> Result<(LeaseTime, Vec<Option<LeaseTime>>)> {
        queue::next(&self.readers, wishes).await
    }

    async fn entry(&self, tenant: Option<TenantId>, task: TaskId) -> Result<QueueEntry> {
        match tenant {
            Some(tenant) => queue::entry(&self.readers.of(tenant), Some(tenant), task).await,
            None => queue::entry(&self.readers, None, task).await,
        }
    }

    async fn first_message(&self, tenant: TenantId, task: TaskId) -> Result<Bytes> {
        queue::first_message(&self.readers.of(tenant), tenant, task).await
    }

    async fn dead_letters(&self, tenant: TenantId, letters: Letters) -> Result<Vec<QueueEntry>> {
        queue::dead_letters(&self.readers.of(tenant), tenant, &letters).await
    }

    async fn agent_queues(&self, tenant: TenantId) -> Result<Vec<AgentQueue>> {
        queue::agent_queues(&self.readers.of(tenant), tenant).await
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn put_push(&self, tenant: TenantId, task: TaskId, new: NewPush) -> Result<()> {
        self.writer.run(Need::pushes(tenant, task), move |batch| ops::put_push(batch, tenant, task, &new)).await
    }

    async fn remove_push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run(Need::pushes(tenant, task), move |batch| ops::remove_push(batch, tenant, task, &id)).await
    }

    async fn push(&self, tenant: TenantId, task: TaskId, id: &str) -> Result<Option<PushConfig>> {
        push::find(&self.readers.of(tenant), tenant, task, id).await
    }

    async fn pushes(&self, tenant: TenantId, filter: PushFilter) -> Result<Vec<PushConfig>> {
        push::list(&self.readers.of(tenant), tenant, &filter).await
    }

    async fn claim_pushes(&self, claim: PushClaim) -> Result<Claimed> {
        push::claim(&self.readers, &self.tellers, &claim).await
    }

    async fn next_push(&self) -> Result<(LeaseTime, Option<LeaseTime>)> {
        push::next(&self.readers).await
    }

    async fn settle_push(&self, lease: &PushLease, settlement: Settlement) -> Result<()> {
        push::settle(&self.tellers, lease, &settlement).await
    }

    async fn replay_pushes(&self, tenant: TenantId, task: TaskId, id: &str, which: Replay) -> Result<usize> {
        let replayed = push::replay(&self.tellers, tenant, task, id, which).await?;
        self.hub.poke_outbox();
        Ok(replayed)
    }
}

#[async_trait]
impl Retention for PostgresStore {
    async fn prune(&self, step: PruneStep) -> Result<Pruned> {
        retention::prune(&self.readers, &self.writers, &step).await
    }

    async fn delete(&self, tenant: TenantId, actor: &str, removal: Removal, size: u64) -> Result<Deleted> {
        retention::delete(&self.writers, tenant, actor, &removal, size).await
    }

    async fn owes_cancels(&self, tenant: TenantId, removal: Removal) -> Result<bool> {
        retention::owes_cancels(&self.readers.of(tenant), tenant, &removal).await
    }

    async fn unfinished_of(&self, tenant: TenantId, limit: usize) -> Result<Vec<TaskId>> {
        retention::unfinished_of(&self.readers.of(tenant), tenant, limit).await
    }

    async fn unfinished(&self, tenant: TenantId, context: &str, limit: usize) -> Result<Vec<TaskId>> {
        retention::unfinished(&self.readers.of(tenant), tenant, context, limit).await
    }
}

#[async_trait]
impl Registry for PostgresStore {
    async fn tenants(&self) -> Result<Vec<Tenant>> {
        registry::tenants(&self.readers).await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<Bearer>> {
        registry::token(&self.doorkeepers, hash).await
    }

    async fn live_tokens(&self, tokens: &[i64]) -> Result<Vec<i64>> {
        registry::live_tokens(&self.doorkeepers, tokens).await
    }

    async fn credentials_revision(&self) -> Result<i64> {
        registry::credentials_revision(&self.doorkeepers).await
    }

    async fn tokens(&self, tenant: TenantId) -> Result<Vec<Token>> {
        registry::tokens(&self.readers.of(tenant), tenant).await
    }

    async fn touch_token(&self, token: i64) -> Result<()> {
        administer::touch_token(&self.writers, token).await
    }

    async fn administer(&self, actor: &str, change: Change) -> Result<Changed> {
        administer::administer(&self.writers, actor, &change).await
    }

    async fn admin_tokens(&self) -> Result<Vec<AdminToken>> {
        registry::admin_tokens(&self.doorkeepers).await
    }

    async fn add_admin_token(&self, actor: &str, token: NewAdminToken) -> Result<AdminToken> {
        administer::add_admin_token(&self.writers, actor, &token).await
    }

    async fn revoke_admin_token(&self, actor: &str, token: i64) -> Result<AdminToken> {
        administer::revoke_admin_token(&self.writers, actor, token).await
    }

    async fn audit(&self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>> {
        administer::audit(&self.readers, before, limit).await
    }

    async fn put_card(
        &self,
        tenant: TenantId,
        agent: &AgentId,
        card: Vec<u8>,
        most: u64,
    ) -> Result<(StoredCard, bool)> {
        administer::put_card(&self.writers, tenant, agent, &card, most).await
    }

    async fn cards(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredCard>> {
        registry::cards(&self.readers.of(tenant), tenant, most_bytes).await
    }

    async fn card(&self, tenant: TenantId, agent: &AgentId) -> Result<Option<StoredCard>> {
        registry::card(&self.readers.of(tenant), tenant, agent.as_str()).await
    }

    async fn remove_card(&self, tenant: TenantId, agent: &AgentId) -> Result<bool> {
        administer::remove_card(&self.writers, tenant, agent.as_str()).await
    }

    async fn create_agent(
        &self,
        tenant: TenantId,
        id: &AgentId,
        definition: Vec<u8>,
        most: u64,
    ) -> Result<StoredAgent> {
        administer::create_agent(&self.writers, tenant, id, &definition, most).await
    }

    async fn replace_agent(&self, tenant: TenantId, id: &AgentId, definition: Vec<u8>) -> Result<StoredAgent> {
        administer::replace_agent(&self.writers, tenant, id, &definition).await
    }

    async fn remove_agent(&self, tenant: TenantId, id: &AgentId) -> Result<bool> {
        administer::remove_agent(&self.writers, tenant, id).await
    }

    async fn own_agents(&self, tenant: TenantId, most_bytes: u64) -> Result<Vec<StoredAgent>> {
        registry::own_agents(&self.readers.of(tenant), tenant, most_bytes).await
    }

    async fn own_agent(&self, tenant: TenantId, id: &AgentId) -> Result<Option<StoredAgent>> {
        registry::own_agent(&self.readers.of(tenant), tenant, id.as_str()).await
    }

    async fn all_agents(&self) -> Result<(i64, Vec<StoredAgent>)> {
        registry::all_agents(&self.readers).await
    }

    async fn agents_revision(&self) -> Result<i64> {
        registry::agents_revision(&self.readers).await
    }

    async fn usage(&self, tenant: TenantId) -> Result<Usage> {
        registry::usage(&self.readers.of(tenant), tenant).await
    }
}

#[async_trait]
impl Installation for PostgresStore {
    async fn setting(&self, name: &str, create: Vec<u8>) -> Result<Vec<u8>> {
        if let Some(value) = registry::setting(&self.readers, name).await? {
            return Ok(value);
        }
        administer::create_setting(&self.writers, name, &create).await
    }

    async fn find_setting(&self, name: &str) -> Result<Option<Vec<u8>>> {
        registry::setting(&self.doorkeepers, name).await
    }

    async fn set_setting(&self, actor: &str, name: &str, value: Vec<u8>) -> Result<()> {
        administer::set_setting(&self.writers, actor, name, &value).await
    }

    async fn replace_setting(&self, actor: &str, name: &str, was: Vec<u8>, value: Vec<u8>) -> Result<bool> {
        administer::replace_setting(&self.writers, actor, name, &was, &value).await
    }

    async fn ping(&self) -> Result<()> {
        // Others may still fit in where what has just failed did not.
        if self.in_trouble.load(Relaxed) {
            administer::find_room(&self.writers).await?;
            self.in_trouble.store(false, Relaxed);
        }
        if !self.writers.is_closed() && self.counters.has_committed_within(PROOF_MS) {
            return Ok(());
        }
        administer::heartbeat(&self.writers).await?;
        self.counters.committed(0);
        Ok(())
    }

    async fn check_schema(&self) -> Result<()> {
        schema::check(&self.readers).await
    }

    async fn has_older_instances(&self) -> Result<bool> {
        let older = "SELECT EXISTS (SELECT FROM instances WHERE knows < $1)";
        Ok(self.readers.query_one(older, &[&schema::known()]).await?.try_get(0)?)
    }

    fn stats(&self) -> Stats {
        self.counters.stats()
    }

    fn instance(&self) -> InstanceId {
        self.id
    }

    async fn close(&self) {
        self.writer.close();
        self.writers.close();
        self.tellers.close();
        self.readers.close();
        self.doorkeepers.close();
        let presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(presence) = presence {
            // It has bounds of its own, and says so when it cannot sign off.
            let _ = presence.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::Pin, sync::mpsc, task::Poll};

    use tokio::time::timeout;

    use super::*;
    use crate::{NewToken, Reach, fair::Cost};

    #[tokio::test]
    async fn whoever_reads_keeps_nobody_from_being_recognised() {
        let database = testing::database().await;
        let store = start(&database.url, Options { connections: 2, ..Options::default() }).await.unwrap();
        let tenant = store.create_tenant("acme").await.unwrap().id;
        let token = NewToken { tenant, hash: [1; 32], name: "t".into(), expires: None, reach: Reach::default() };
        let token = store.add_token(token).await.unwrap();
        let busy = (store.readers.checkout().await.unwrap(), store.readers.checkout().await.unwrap());
        assert!(timeout(Duration::from_millis(200), store.tenants()).await.is_err(), "the others are busy");
        let looked = async {
            assert_eq!(store.token(&[1; 32]).await.unwrap().unwrap().token, token);
            assert_eq!(store.live_tokens(&[token.id]).await.unwrap(), [token.id]);
            store.credentials_revision().await.unwrap();
            store.admin_tokens().await.unwrap();
            store.find_setting("admin.token").await.unwrap();
        };
        timeout(Duration::from_secs(30), looked).await.expect("somebody is at the door");
        drop(busy);
    }

    /// Agents look for sub-tasks and entries on behalf of a tenant, whose reads these are like any others.
    #[tokio::test]
    async fn looking_for_sub_tasks_and_entries_is_within_the_share_of_the_tenant() {
        let database = testing::database().await;
        let store = start(&database.url, Options { connections: 2, ..Options::default() }).await.unwrap();
        let (tenant, other) = (TenantId(1), TenantId(2));
        let task = TaskId::mint();
        let readers = store.readers.of(tenant);
        let mut slow = Box::pin(readers.query("SELECT pg_sleep(0.001)", &[]));
        // Polled once, it has the share of the tenant, and goes on only when it is polled again.
        assert!(is_pending(&mut slow).await);
        let wait = Duration::from_millis(100);
        assert!(timeout(wait, store.children(tenant, task, 9)).await.is_err(), "the share is in use");
        assert!(timeout(wait, store.entry(Some(tenant), task)).await.is_err(), "the share is in use");
        let left_alone = async {
            assert!(store.children(other, task, 9).await.unwrap().is_empty());
            assert!(store.entry(Some(other), task).await.is_err());
            assert!(store.entry(None, task).await.is_err());
        };
        timeout(Duration::from_secs(30), left_alone).await.expect("another tenant's reads do not wait");
        slow.await.unwrap();
        assert!(store.children(tenant, task, 9).await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_operations_of_one_tenant_do_not_hold_up_another() {
        let database = testing::database().await;
        let store = start(&database.url, Options::default()).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |cost: Cost, n: u32| {
            let order = Arc::clone(&order);
            let op = move |_: &mut batch::Batch| {
                order.lock().unwrap().push(n);
                Ok(())
            };
            Box::pin(store.writer.run(Need::of(cost), op))
        };
        let (begun, begins) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let busy = store.writer.run(Need::default(), move |_| {
            let _ = begun.send(());
            let _ = tokio::task::block_in_place(|| ended.recv());
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

    /// Polls it once.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
    }
}
