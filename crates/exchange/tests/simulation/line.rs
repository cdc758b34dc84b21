//! The line between an instance and its store: where virtual time meets a real journal, and where things go wrong.
//!
//! Each call runs on a thread of its own while virtual time stands still, so the journal is the real one and an hour costs
//! nothing. A line can be stopped (calls wait, as in a process that is not scheduled), cut (calls fail), slow
//! (calls wait before they are made) and dead (calls never come back).

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use a2a::Message;
use async_trait::async_trait;
use store::{
    Accept, Accepted, AdminToken, AgentId, AgentQueue, Append, Appended, AuditEntry, Bearer, CancelMark, Change,
    Changed, Claim, Claimed, Deleted, Due, Error, Event, Filter, Holder, Hub, Installation, InstanceId, Journal, Lease,
    LeaseTime, LeasedTurn, Letters, Most, NewAdminToken, NewPush, NewToken, Outbox, OwedCancel, Page, Position,
    PruneStep, Pruned, PushClaim, PushConfig, PushFilter, PushLease, Queue, QueueEntry, Registry, Removal, Replay,
    Result, Retention, Settlement, Snapshot, Stats, Store, StoredAgent, StoredCard, Tailed, TaskHead, TaskId, Tenant,
    TenantId, Term, Token, Usage, View, Wish,
};
use tokio::{runtime::Handle, sync::watch, time::Instant};

use crate::dice::Dice;

/// The machine's steady clock, as virtual time.
#[derive(Clone)]
pub(crate) struct Steady {
    begin: Instant,
    millis: Arc<AtomicI64>,
    /// Tells a clock that is not read here, the database's, what time it is.
    tell: Option<Arc<dyn Fn(i64) + Send + Sync>>,
}

/// What a line does to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fine,
    Stopped,
    Cut,
    Slow,
    /// What writes waits, as behind somebody's lock; what reads does not.
    Stuck,
    Dead,
}

/// One instance's store.
pub(crate) struct Line {
    inner: Mutex<Option<Arc<dyn Store>>>,
    hub: Hub,
    id: InstanceId,
    weather: watch::Sender<Weather>,
    steady: Steady,
    dice: Mutex<Dice>,
    /// Where the store's own work is done.
    real: Handle,
    /// Every call is told.
    told: bool,
    /// What agents say can never be written.
    pub(crate) choosy: AtomicBool,
}

/// Calls that do not write.
const READS: [&str; 8] = ["next_due", "marked", "head", "task", "read", "list", "history", "usage"];

/// Calls that are not worth telling.
const QUIET: [&str; 6] = ["next_due", "marked", "head", "task", "read", "list"];

impl Steady {
    pub(crate) fn new(tell: Option<Arc<dyn Fn(i64) + Send + Sync>>) -> Self {
        Self { begin: Instant::now(), millis: Arc::default(), tell }
    }

    pub(crate) fn ticks(&self) -> store::sqlite::Ticks {
        let millis = Arc::clone(&self.millis);
        store::sqlite::Ticks::new(move || millis.load(Relaxed))
    }

    /// Seconds since the story began, for what is written down.
    pub(crate) fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn set(&self) -> i64 {
        let now = i64::try_from(self.begin.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.millis.store(now, Relaxed);
        now
    }
}

impl Line {
    pub(crate) fn new(store: Arc<dyn Store>, steady: Steady, dice: Dice, real: Handle) -> Arc<Self> {
        let (hub, id) = (store.hub().clone(), store.instance());
        let (weather, _) = watch::channel(Weather::Fine);
        let (inner, dice) = (Mutex::new(Some(store)), Mutex::new(dice));
        let told = std::env::var_os("SB_SEED").is_some();
        Arc::new(Self { inner, hub, id, weather, steady, dice, real, told, choosy: AtomicBool::new(false) })
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    pub(crate) fn weather(&self) -> Weather {
        *self.weather.borrow()
    }

    /// The process ends, between any two lines of it: nothing it does reaches the store any more.
    pub(crate) async fn kill(&self) {
        self.set(Weather::Dead);
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its threads are waited for.
        tokio::task::spawn_blocking(move || drop(store)).await.expect("dropping a store does not panic");
    }

    async fn dawdle(&self) {
        let wait = self.dice.lock().unwrap_or_else(PoisonError::into_inner).below(12_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// Hears of every change of the weather.
    pub(crate) fn watch(&self) -> watch::Receiver<Weather> {
        self.weather.subscribe()
    }

    async fn call<T: Send + std::fmt::Debug + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = Result<T>> + Send>> + Send + 'static,
    ) -> Result<T> {
        let asked = self.steady.seconds();
        let mut weather = self.weather.subscribe();
        loop {
            let now = *weather.borrow_and_update();
            match now {
                Weather::Fine => break,
                Weather::Cut => return Err(Error::Unavailable("the line is cut".into())),
                Weather::Slow => {
                    self.dawdle().await;
                    if !matches!(self.weather(), Weather::Stopped | Weather::Dead) {
                        break;
                    }
                }
                Weather::Stuck if READS.contains(&name) => break,
                Weather::Stopped | Weather::Stuck | Weather::Dead => {
                    if weather.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(store) = store else { return std::future::pending().await };
        let now = self.steady.set();
        let tell = self.steady.tell.clone();
        let real = self.real.clone();
        let outcome = tokio::task::spawn_blocking(move || {
            if let Some(tell) = tell {
                tell(now);
            }
            real.block_on(call(store))
        });
        let outcome = outcome.await.expect("a store does not panic");
        if self.told && !QUIET.contains(&name) {
            let instance = &self.id.to_string()[..4];
            eprintln!("{:9.3} {instance} {name} asked at {asked:.3}: {outcome:?}", self.steady.seconds());
        }
        if self.weather() == Weather::Slow {
            // Also between the commit and whoever waits for it.
            self.dawdle().await;
        }
        if self.weather() == Weather::Dead {
            // What was committed is committed; nobody here hears of it.
            std::future::pending::<()>().await;
        }
        outcome
    }
}

/// Makes calls of a part of the store go over the line; `$own` are those that do not, or not only.
macro_rules! over_the_line {
    ($part:ident { $($name:ident ( $($arg:ident : $given:ty),* ) $(-> $out:ty)?;)* } $($own:item)*) => {
        #[async_trait]
        impl $part for Line {
            $(
                async fn $name(&self, $($arg: $given),*) -> Result<over_the_line!(@ $($out)?)> {
                    $(let $arg = $arg.to_owned();)*
                    self.call(stringify!($name), move |store| Box::pin(async move { store.$name($(Given::give(&$arg)),*).await })).await
                }
            )*

            $($own)*
        }
    };
    (@ $out:ty) => { $out };
    (@) => { () };
}

/// An argument that was kept, as the store takes it.
trait Given<'a, T> {
    fn give(&'a self) -> T;
}

impl<'a, T: Clone> Given<'a, T> for T {
    fn give(&'a self) -> T {
        self.clone()
    }
}

impl<'a> Given<'a, &'a str> for String {
    fn give(&'a self) -> &'a str {
        self
    }
}

impl<'a, T> Given<'a, &'a [T]> for Vec<T> {
    fn give(&'a self) -> &'a [T] {
        self
    }
}

macro_rules! by_reference {
    ($($type:ty),*) => {
        $(impl<'a> Given<'a, &'a $type> for $type {
            fn give(&'a self) -> &'a $type {
                self
            }
        })*
    };
}

by_reference!(Position, AgentId, PushLease, [u8; 32]);

over_the_line! {
    Journal {
        accept(tenant: TenantId, accept: Accept) -> Accepted;
        claim(claim: Claim) -> Vec<LeasedTurn>;
        next_due(agents: &[AgentId]) -> Due;
        renew(leases: &[Lease], lasts: Duration) -> Vec<Lease>;
        reclaim_dead() -> usize;
        mark_cancel(tenant: TenantId, task: TaskId) -> CancelMark;
        force_cancel(tenant: TenantId, task: TaskId);
        marked(holders: &[Holder]) -> Vec<TaskId>;
        reveal(tenant: TenantId, task: TaskId);
        wake(tenant: TenantId, task: TaskId) -> bool;
        head(tenant: TenantId, task: TaskId) -> TaskHead;
        task(tenant: TenantId, task: TaskId, view: View) -> Snapshot;
        list(tenant: TenantId, filter: Filter) -> Page;
        read(tenant: TenantId, task: TaskId, after: u64, most: Most) -> (Vec<Event>, bool);
        tail(after: &Position, limit: usize) -> (Vec<Tailed>, Position);
        history(tenant: TenantId, task: TaskId) -> Vec<Message>;
        context_history(tenant: TenantId, agent: &AgentId, context: &str, before: TaskId, limit: usize) -> Vec<Message>;
        context_state(tenant: TenantId, agent: &AgentId, context: &str, before: TaskId) -> Option<Event>;
        owed_cancels(agents: &[AgentId], limit: usize) -> Vec<OwedCancel>;
        settle_cancel(tenant: TenantId, task: TaskId);
    }

    async fn append(&self, lease: &Lease, append: Append) -> Result<Appended> {
        if self.choosy.load(Relaxed) && !append.drafts.is_empty() {
            return Err(Error::Damaged("this can never be written".into()));
        }
        let lease = lease.clone();
        self.call("append", move |store| Box::pin(async move { store.append(&lease, append).await })).await
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

over_the_line! {
    Queue {
        claim_task(tenant: TenantId, task: TaskId, term: Term, resumes: bool) -> LeasedTurn;
        lapsed(agent: Option<AgentId>, since: LeaseTime, limit: usize) -> (LeaseTime, Vec<Lease>);
        prolong_lapsed(step: Duration) -> usize;
        next_queued(wishes: &[Wish]) -> (LeaseTime, Vec<Option<LeaseTime>>);
        entry(tenant: Option<TenantId>, task: TaskId) -> QueueEntry;
        dead_letters(tenant: TenantId, letters: Letters) -> Vec<QueueEntry>;
        agent_queues(tenant: TenantId) -> Vec<AgentQueue>;
    }
}

over_the_line! {
    Outbox {
        put_push(tenant: TenantId, task: TaskId, new: NewPush);
        remove_push(tenant: TenantId, task: TaskId, id: &str) -> bool;
        push(tenant: TenantId, task: TaskId, id: &str) -> Option<PushConfig>;
        pushes(tenant: TenantId, filter: PushFilter) -> Vec<PushConfig>;
        claim_pushes(claim: PushClaim) -> Claimed;
        next_push() -> (LeaseTime, Option<LeaseTime>);
        settle_push(lease: &PushLease, settlement: Settlement);
        replay_pushes(tenant: TenantId, task: TaskId, id: &str, which: Replay) -> usize;
    }
}

over_the_line! {
    Retention {
        prune(step: PruneStep) -> Pruned;
        delete(tenant: TenantId, actor: &str, removal: Removal) -> Deleted;
        unfinished(tenant: TenantId, context: &str, limit: usize) -> Vec<TaskId>;
    }
}

over_the_line! {
    Registry {
        create_tenant(name: &str) -> Tenant;
        tenants() -> Vec<Tenant>;
        add_token(token: NewToken) -> Token;
        token(hash: &[u8; 32]) -> Option<Bearer>;
        live_tokens(tokens: &[i64]) -> Vec<i64>;
        credentials_revision() -> i64;
        tokens(tenant: TenantId) -> Vec<Token>;
        touch_token(token: i64);
        administer(actor: &str, change: Change) -> Changed;
        admin_tokens() -> Vec<AdminToken>;
        add_admin_token(actor: &str, token: NewAdminToken) -> AdminToken;
        revoke_admin_token(actor: &str, token: i64) -> AdminToken;
        audit(before: Option<i64>, limit: usize) -> Vec<AuditEntry>;
        put_card(tenant: TenantId, agent: &AgentId, card: Vec<u8>, most: u64) -> (StoredCard, bool);
        cards(tenant: TenantId, most_bytes: u64) -> Vec<StoredCard>;
        card(tenant: TenantId, agent: &AgentId) -> Option<StoredCard>;
        remove_card(tenant: TenantId, agent: &AgentId) -> bool;
        create_agent(tenant: TenantId, id: &AgentId, definition: Vec<u8>, most: u64) -> StoredAgent;
        replace_agent(tenant: TenantId, id: &AgentId, definition: Vec<u8>) -> StoredAgent;
        remove_agent(tenant: TenantId, id: &AgentId) -> bool;
        own_agents(tenant: TenantId, most_bytes: u64) -> Vec<StoredAgent>;
        own_agent(tenant: TenantId, id: &AgentId) -> Option<StoredAgent>;
        all_agents() -> (i64, Vec<StoredAgent>);
        agents_revision() -> i64;
        usage(tenant: TenantId) -> Usage;
    }
}

over_the_line! {
    Installation {
        setting(name: &str, create: Vec<u8>) -> Vec<u8>;
        find_setting(name: &str) -> Option<Vec<u8>>;
        set_setting(actor: &str, name: &str, value: Vec<u8>);
        replace_setting(actor: &str, name: &str, was: Vec<u8>, value: Vec<u8>) -> bool;
        ping();
    }

    async fn close(&self) {
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(store) = store else { return };
        let real = self.real.clone();
        let closing = tokio::task::spawn_blocking(move || real.block_on(async move { store.close().await }));
        closing.await.expect("a store does not panic");
        self.set(Weather::Dead);
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn instance(&self) -> InstanceId {
        self.id
    }
}
