//! The line between an instance and its store: where virtual time meets a real journal, and where things go wrong.
//!
//! Each call runs on another thread while virtual time and everything else of the story stand still, so the journal is the real
//! one, an hour costs nothing, and the order of calls is the same whenever a story is played. A line can be stopped (calls wait, as in a process that is not scheduled), cut (calls fail), slow
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
use bytes::Bytes;
use store::{
    Accept, Accepted, AdminToken, AgentId, AgentQueue, Append, Appended, AuditEntry, Bearer, CancelMark, Change,
    Changed, Claim, Claimed, Deleted, Due, Error, Event, FeedLimit, FeedPage, Filter, Holder, Hub, Installation,
    InstanceId, Journal, Lease, LeaseTime, LeasedTurn, Letters, Most, NewAdminToken, NewPush, NewToken, Outbox,
    OwedCancel, Page, Position, PruneStep, Pruned, PushClaim, PushConfig, PushFilter, PushLease, Queue, QueueEntry,
    Registry, Removal, Replay, Result, Retention, Settlement, Snapshot, Stats, Store, StoredAgent, StoredCard, Tailed,
    TaskHead, TaskId, Tenant, TenantId, Term, Token, Usage, View, Wish,
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};

use testkit::rng::Random;

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
    weather: Mutex<(Weather, u64)>,
    /// Those who wait are told in the order in which they came; a watch channel tells them in a random one.
    changed: Notify,
    steady: Steady,
    rng: Mutex<Random>,
    /// Where the store's own work is done.
    real: Handle,
    /// Where every call is written down, if that is wanted.
    trace: Option<Trace>,
    /// The line stops by itself when this is called next.
    stops_at: Mutex<Option<&'static str>>,
    /// What agents say can never be written.
    pub(crate) choosy: AtomicBool,
}

/// Every call of a story, with its moment and its outcome.
pub(crate) type Trace = Arc<Mutex<Vec<String>>>;

/// Calls that do not write.
const READS: [&str; 8] = ["next_due", "marked", "head", "task", "read", "list", "history", "usage"];

/// Calls that are not worth telling. Settings are random keys.
const QUIET: [&str; 7] = ["next_due", "marked", "head", "task", "read", "list", "setting"];

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
    pub(crate) fn new(
        store: Arc<dyn Store>,
        steady: Steady,
        rng: Random,
        real: Handle,
        trace: Option<Trace>,
    ) -> Arc<Self> {
        let (hub, id) = (store.hub().clone(), store.instance());
        let (weather, changed) = (Mutex::new((Weather::Fine, 0)), Notify::new());
        let (inner, rng) = (Mutex::new(Some(store)), Mutex::new(rng));
        let (stops_at, choosy) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { inner, hub, id, weather, changed, steady, rng, real, trace, stops_at, choosy })
    }

    /// Stops the line at the next call of this name, before it reaches the store.
    pub(crate) fn stop_at(&self, name: &'static str) {
        *self.stops_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    /// Does something on the runtime whose time is real. Nothing else of the story goes on meanwhile.
    fn really<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        really(&self.real, work)
    }

    /// Hears of what other instances have committed, as a process of its own does ten times a second.
    fn look_around(&self, store: &Arc<dyn Store>) {
        let store = Arc::clone(store);
        let nothing = TaskId::parse("00000000-0000-7000-8000-000000000000").expect("it is an id");
        let _ = self.really(async move { store.wake(TenantId(0), nothing).await });
    }

    pub(crate) fn set(&self, weather: Weather) {
        let mut now = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        *now = (weather, now.1 + 1);
        drop(now);
        self.changed.notify_waiters();
    }

    pub(crate) fn weather(&self) -> Weather {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The process ends, between any two lines of it: nothing it does reaches the store any more.
    pub(crate) async fn kill(&self) {
        self.set(Weather::Dead);
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its threads are waited for.
        self.really(async move { tokio::task::spawn_blocking(move || drop(store)).await })
            .expect("dropping a store does not panic");
    }

    async fn dawdle(&self) {
        let wait = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(12_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// How often the weather has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    async fn call<T: Send + std::fmt::Debug + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = Result<T>> + Send>> + Send + 'static,
    ) -> Result<T> {
        let asked = self.steady.seconds();
        {
            let mut stops_at = self.stops_at.lock().unwrap_or_else(PoisonError::into_inner);
            if *stops_at == Some(name) {
                *stops_at = None;
                self.set(Weather::Stopped);
            }
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.weather() {
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
                    changed.await;
                }
            }
        }
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(store) = store else { return std::future::pending().await };
        let now = self.steady.set();
        if let Some(tell) = self.steady.tell.clone() {
            self.really(async move { tokio::task::spawn_blocking(move || tell(now)).await }).expect("a clock is told");
        }
        if name == "next_due" {
            self.look_around(&store);
        }
        let outcome = self.really(call(store));
        if let Some(trace) = self.trace.as_ref().filter(|_| !QUIET.contains(&name)) {
            let id = self.id.to_string();
            let instance = &id[id.len() - 4..];
            let line = format!("{:9.3} {instance} {name} asked at {asked:.3}: {outcome:?}", self.steady.seconds());
            trace.lock().unwrap_or_else(PoisonError::into_inner).push(line);
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

/// Does something on the runtime whose time is real, and waits for it on this thread: virtual time and all that it drives stand
/// still.
pub(crate) fn really<T: Send + 'static>(real: &Handle, work: impl Future<Output = T> + Send + 'static) -> T {
    let (reply, answered) = std::sync::mpsc::channel();
    real.spawn(async move { reply.send(work.await) });
    answered.recv().expect("a store does not panic")
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
        children(tenant: TenantId, task: TaskId, limit: usize) -> Vec<TaskId>;
        head(tenant: TenantId, task: TaskId) -> TaskHead;
        task(tenant: TenantId, task: TaskId, view: View) -> Snapshot;
        list(tenant: TenantId, filter: Filter) -> Page;
        read(tenant: TenantId, task: TaskId, after: u64, most: Most) -> (Vec<Event>, bool);
        tail(after: &Position, limit: usize) -> (Vec<Tailed>, Position);
        feed(tenant: TenantId, agents: &[AgentId], after: &Position, limit: FeedLimit) -> FeedPage;
        log_end() -> Position;
        history(tenant: TenantId, task: TaskId, most: u64) -> Vec<Message>;
        turn_message(tenant: TenantId, task: TaskId, turn: u32) -> Message;
        context_history(tenant: TenantId, agent: &AgentId, context: &str, before: TaskId, limit: usize, most: u64) -> Vec<Message>;
        context_state(tenant: TenantId, agent: &AgentId, context: &str, before: TaskId) -> Option<(TaskId, Event)>;
        owed_cancels(agents: &[AgentId], limit: usize) -> Vec<OwedCancel>;
        settle_cancel(tenant: TenantId, task: TaskId, generation: u64);
        owe_cancel(tenant: TenantId, task: TaskId);
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
        first_message(tenant: TenantId, task: TaskId) -> Bytes;
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
        delete(tenant: TenantId, actor: &str, removal: Removal, size: u64) -> Deleted;
        owes_cancels(tenant: TenantId, removal: Removal) -> bool;
        unfinished_of(tenant: TenantId, limit: usize) -> Vec<TaskId>;
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
        check_schema();
        has_older_instances() -> bool;
    }

    async fn close(&self) {
        let store = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(store) = store else { return };
        self.really(async move { store.close().await });
        self.set(Weather::Dead);
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn instance(&self) -> InstanceId {
        self.id
    }
}
